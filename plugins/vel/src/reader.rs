//! A VEL file as a framed log: the channel and time of each message. [`scan`] decides what is a
//! message, [`start`] how a file starts.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use sluice_io::escape::escaped_path;
use sluice_io::files::InputContent;
use sluice_kit::framed::{
    EventHeader, FramedReader, Framing, Peek, PositionContent, RecordContent, RecordOutline,
};
use sluice_kit::window::ReadAt;
use sluice_model::{Clock, Damage, Error, ReadContext, Split, SplitStart, plugin};

use crate::channels::MessageChannels;
use crate::layout::{has_sensor_name, sensor};
use crate::rules::Rules;
use crate::scan;
use crate::start::{self, hex_bytes};
use crate::wire::{HEAD_LEN, HEADER_LEN, MAGIC, MessageHeader, SIZE_LEN, VERSION};

/// Reads one split of a log.
pub(crate) type LogReader = FramedReader<VelFraming>;

/// Opens a log at a split, for the messages of a time window. `clock` is what times count from,
/// including `rules.epoch`.
pub(crate) fn open(
    window: plugin::TimeWindow,
    path: &Path,
    split: &Split,
    entry: SplitStart,
    (rules, clock): (Rules, Clock),
    context: &ReadContext,
) -> Result<LogReader, Error> {
    let (source, channels) = (source_of(path, context), Arc::clone(&context.channels));
    let ids = MessageChannels::new(Arc::clone(&rules.names), source, clock, channels);
    let messages = VelFraming {
        rules,
        ids,
        head: None,
        ended: match entry {
            SplitStart::At(at) if at < split.start => Some(at),
            SplitStart::At(_) | SplitStart::Search => None,
        },
        input: escaped_path(path).into(),
        context: context.clone(),
    };
    // The head tells where the first message is.
    let entry = if entry == SplitStart::At(0) { SplitStart::Search } else { entry };
    let log = context.open_log(path, InputContent::Marked)?;
    LogReader::with_window(window, log, split, entry, messages, context)
}

/// The source of messages without a sensor: the file name without extensions.
pub(crate) fn source_of(path: &Path, context: &ReadContext) -> Arc<str> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match name.split('.').find(|part| !part.is_empty()) {
        Some(stem) if stem != "-" => stem.into(),
        _ => Arc::clone(&context.source),
    }
}

/// Tells a framed reader where the messages of a log are.
#[derive(Debug)]
pub(crate) struct VelFraming {
    rules: Rules,
    ids: MessageChannels,
    /// How the file starts, if that was examined.
    head: Option<start::FileStart>,
    /// Where an earlier split found the end of the log: not every split searches what follows.
    ended: Option<u64>,
    input: Arc<str>,
    context: ReadContext,
}

impl VelFraming {
    /// Where sequential reading starts. Reports what is wrong with the head, if that is known now.
    fn handle_head(&mut self, head: start::FileStart) -> u64 {
        let begins = match &head {
            start::FileStart::Sound { body, head } => {
                if head.minor > VERSION.1 {
                    self.report_version(head.major, head.minor);
                }
                *body
            }
            start::FileStart::Empty => {
                let reason =
                    format!("the log is empty: expected at least a head of {HEAD_LEN} bytes");
                self.context.damage.report(Damage::new(&self.input, 0, 0, reason));
                0
            }
            start::FileStart::Marred { body, found } => {
                let reason = format!("expected {}, found {}", hex_bytes(&MAGIC), hex_bytes(found));
                let len = found.len() as u64;
                self.context.damage.report(Damage::new(&self.input, 0, len, reason));
                *body
            }
            start::FileStart::Damaged { .. } | start::FileStart::Refused { .. } => 0,
        };
        self.head = Some(head);
        begins
    }

    fn report_version(&self, major: u16, minor: u16) {
        let (known, input) = (VERSION.1, &self.input);
        let what = format!(
            "{input} has version {major}.{minor}; it was read as version {major}.{known}, the \
             newest one \
             supported"
        );
        self.context.losses.note(what, 0);
    }

    fn event_header(
        &self,
        header: &MessageHeader,
        timestamp: i64,
        pos: u64,
        channel: sluice_model::ChannelId,
    ) -> EventHeader {
        let len = header.message_len() as usize;
        EventHeader { timestamp, sequence: pos.cast_signed(), channel, payload: HEADER_LEN..len }
    }
}

impl Framing for VelFraming {
    /// A message is certain if another header follows it, and none begins where its layout ends.
    #[inline]
    fn peek(&mut self, pos: u64, bytes: &[u8]) -> Result<Peek, Error> {
        if let (0, Some(start::FileStart::Refused { at, what })) = (pos, &self.head) {
            return Err(Error::malformed(&*self.input, *at, what));
        }
        let Some(header) = bytes.first_chunk().and_then(MessageHeader::parse) else {
            return Ok(Peek::More);
        };
        if !self.rules.is_sound(&header) {
            return Ok(Peek::Ambiguous);
        }
        let Some((message, after)) = bytes.split_at_checked(header.message_len() as usize) else {
            return Ok(Peek::More);
        };
        match after.first_chunk().and_then(MessageHeader::parse) {
            Some(next) if self.rules.is_sound(&next) => {}
            Some(_) => return Ok(Peek::Ambiguous),
            None => return Ok(Peek::More),
        }
        let payload = message.get(HEADER_LEN..).unwrap_or_default();
        if scan::may_swallow(&header, payload, &self.rules) {
            return Ok(Peek::Ambiguous);
        }
        let Some(timestamp) = self.rules.nanos(header.ms) else { return Ok(Peek::Ambiguous) };
        let channel = self.ids.resolve(&header, payload)?;
        let head = self.event_header(&header, timestamp, pos, channel);
        Ok(Peek::Event { len: message.len(), head })
    }

    fn classify(&mut self, log: &mut dyn ReadAt, pos: u64) -> Result<PositionContent, Error> {
        if let (0, Some(start::FileStart::Damaged { end, reason })) = (pos, &self.head) {
            return Ok(PositionContent::Damage { end: *end, reason: reason.clone() });
        }
        let content = match self.ended == Some(pos) {
            true => scan::MessageScan::End,
            false => scan::classify(log, pos, &self.rules)?,
        };
        Ok(match content {
            scan::MessageScan::Message { end, .. } => PositionContent::Record { end },
            scan::MessageScan::Damage { end, reason } => {
                PositionContent::Damage { end, reason: reason.to_string() }
            }
            scan::MessageScan::End => PositionContent::End { mark: SIZE_LEN as u64 },
        })
    }

    /// The first message of the range. A range that starts in the head leads to the first message
    /// of the file, even if that belongs to a later range; the start of the file leads to damage
    /// there.
    fn find(&mut self, log: &mut dyn ReadAt, range: Range<u64>) -> Result<Option<u64>, Error> {
        if range.start == 0 {
            let head = start::read_start(log, &self.rules)?;
            return Ok(Some(self.handle_head(head)));
        }
        let claimed = start::file_head(log)?.map_or(HEAD_LEN as u64, |(_, head)| head.body());
        if range.start >= claimed {
            return scan::find(log, range, &self.rules);
        }
        match start::messages_start(log, &self.rules)? {
            Some(body) => Ok(Some(body)),
            None => scan::find(log, range.start.max(start::FIRST_MESSAGE)..range.end, &self.rules),
        }
    }

    fn find_after_gap(
        &mut self,
        log: &mut dyn ReadAt,
        range: Range<u64>,
    ) -> Result<Option<u64>, Error> {
        scan::find(log, range, &self.rules)
    }

    fn event(&mut self, pos: u64, message: &[u8]) -> Result<RecordContent, Error> {
        let broken = || Error::internal("a validated message has no header or time");
        let header = message.first_chunk().and_then(MessageHeader::parse).ok_or_else(broken)?;
        let time = self.rules.time(header.ms).ok_or_else(broken)?;
        let channel = self.ids.resolve(&header, message.get(HEADER_LEN..).unwrap_or_default())?;
        let nearest = if time < 0 { i64::MIN } else { i64::MAX };
        let (timestamp, is_wide) =
            i64::try_from(time).map_or((nearest, true), |timestamp| (timestamp, false));
        let head = self.event_header(&header, timestamp, pos, channel);
        Ok(if is_wide { RecordContent::Wide(head, time) } else { RecordContent::Event(head) })
    }

    fn outline(&mut self, bytes: &[u8]) -> Result<Option<RecordOutline>, Error> {
        let header = bytes.first_chunk().and_then(MessageHeader::parse);
        let Some(header) = header.filter(|header| self.rules.is_sound(header)) else {
            return Ok(None);
        };
        let Some(timestamp) = self.rules.nanos(header.ms) else { return Ok(None) };
        let front = bytes.get(HEADER_LEN..).unwrap_or_default();
        let (type_id, version) = (header.type_id, header.version);
        let lacks_sensor =
            has_sensor_name(type_id, version) && sensor(type_id, version, front).is_none();
        if lacks_sensor || scan::may_swallow(&header, front, &self.rules) {
            return Ok(None);
        }
        // Registers the channel even if the message is filtered out.
        self.ids.resolve(&header, front)?;
        Ok(Some(RecordOutline { len: header.message_len(), timestamp }))
    }

    fn confirms(&self, bytes: &[u8]) -> bool {
        let next = bytes.first_chunk().and_then(MessageHeader::parse);
        next.is_some_and(|next| self.rules.is_sound(&next))
    }
}
