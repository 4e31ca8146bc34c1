//! An LCM log as a framed log: the channel and time of each event. [`scan`] decides what is an
//! event.

use std::ops::Range;
use std::path::Path;

use sluice_io::files::InputContent;
use sluice_kit::ChannelIds;
use sluice_kit::framed::{
    EventHeader, FramedReader, Framing, Peek, PositionContent, RecordContent, RecordOutline,
};
use sluice_kit::window::ReadAt;
use sluice_model::{Encoding, Error, ReadContext, Split, SplitStart, plugin};

use crate::scan::{self, ScanLimits};
use crate::wire::{HEADER_LEN, LcmHeader, SYNC};

/// Nanoseconds per microsecond.
pub(crate) const NANOS_PER_MICRO: i64 = 1_000;

/// Reads one split of a log.
pub(crate) type LogReader = FramedReader<LcmFraming>;

/// Opens a log at a split, for the events of a time window.
pub(crate) fn open(
    window: plugin::TimeWindow,
    path: &Path,
    split: &Split,
    entry: SplitStart,
    limits: ScanLimits,
    context: &ReadContext,
) -> Result<LogReader, Error> {
    let log = context.open_log(path, InputContent::Binary)?;
    LogReader::with_window(window, log, split, entry, LcmFraming::new(limits, context), context)
}

/// Tells a framed reader where the events of a log are.
#[derive(Debug)]
pub(crate) struct LcmFraming {
    limits: ScanLimits,
    ids: ChannelIds,
}

impl LcmFraming {
    fn new(limits: ScanLimits, context: &ReadContext) -> Self {
        Self { limits, ids: ChannelIds::new(Encoding::Lcm, context) }
    }
}

impl Framing for LcmFraming {
    /// An event is certain if a sync word follows it.
    #[inline]
    fn peek(&mut self, _: u64, bytes: &[u8]) -> Result<Peek, Error> {
        let Some((head, rest)) = bytes.split_first_chunk::<HEADER_LEN>() else {
            return Ok(Peek::More);
        };
        let Some(header) = LcmHeader::parse(head) else { return Ok(Peek::Ambiguous) };
        let Ok(len) = self.limits.event_len(&header) else { return Ok(Peek::Ambiguous) };
        let len = len as usize;
        let Some((body, after)) = rest.split_at_checked(len - HEADER_LEN) else {
            return Ok(Peek::More);
        };
        match after.first_chunk() {
            Some(&SYNC) => {}
            Some(_) => return Ok(Peek::Ambiguous),
            None => return Ok(Peek::More),
        }
        let Some(timestamp) = header.utime.checked_mul(NANOS_PER_MICRO) else {
            return Ok(Peek::Ambiguous);
        };
        let channel_len = header.channel_len as usize;
        let channel = self.ids.resolve(body.get(..channel_len).unwrap_or_default())?;
        let (sequence, payload) = (header.number, HEADER_LEN + channel_len..len);
        Ok(Peek::Event { len, head: EventHeader { timestamp, sequence, channel, payload } })
    }

    fn classify(&mut self, log: &mut dyn ReadAt, pos: u64) -> Result<PositionContent, Error> {
        Ok(match scan::classify(log, pos, &self.limits)? {
            scan::EventScan::Event { end, .. } => PositionContent::Record { end },
            scan::EventScan::Damage { end, reason } => {
                PositionContent::Damage { end, reason: reason.to_string() }
            }
            scan::EventScan::End => PositionContent::End { mark: 0 },
        })
    }

    fn find(&mut self, log: &mut dyn ReadAt, range: Range<u64>) -> Result<Option<u64>, Error> {
        scan::next_event(log, range, &self.limits)
    }

    fn find_after_gap(
        &mut self,
        log: &mut dyn ReadAt,
        range: Range<u64>,
    ) -> Result<Option<u64>, Error> {
        self.find(log, range)
    }

    fn event(&mut self, _: u64, record: &[u8]) -> Result<RecordContent, Error> {
        let header = record.first_chunk().and_then(LcmHeader::parse);
        let header = header.ok_or_else(|| Error::internal("a validated event has no header"))?;
        let body = record.get(HEADER_LEN..).unwrap_or_default();
        let (name, _) = body.split_at(body.len().min(header.channel_len as usize));
        let channel = self.ids.resolve(name)?;
        let payload = HEADER_LEN + name.len()..record.len();
        let timestamp = header.utime.saturating_mul(NANOS_PER_MICRO);
        let time = i128::from(header.utime) * i128::from(NANOS_PER_MICRO);
        let head = EventHeader { timestamp, sequence: header.number, channel, payload };
        let fits = time == i128::from(timestamp);
        Ok(if fits { RecordContent::Event(head) } else { RecordContent::Wide(head, time) })
    }

    fn outline(&mut self, bytes: &[u8]) -> Result<Option<RecordOutline>, Error> {
        let Some((head, rest)) = bytes.split_first_chunk::<HEADER_LEN>() else { return Ok(None) };
        let Some(header) = LcmHeader::parse(head) else { return Ok(None) };
        let (Ok(len), Some(timestamp)) =
            (self.limits.event_len(&header), header.utime.checked_mul(NANOS_PER_MICRO))
        else {
            return Ok(None);
        };
        let Some(name) = rest.get(..header.channel_len as usize) else { return Ok(None) };
        // Registers the channel even if the event is filtered out.
        self.ids.resolve(name)?;
        Ok(Some(RecordOutline { len, timestamp }))
    }

    fn confirms(&self, bytes: &[u8]) -> bool {
        bytes.starts_with(&SYNC)
    }
}
