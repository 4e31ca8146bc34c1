//! The byte format `lcm-log`: which events a log can hold, and events as bytes and back.
//!
//! It reads only what [`LcmByteFormat::encode`] wrote, and refuses anything else as a whole.
//! [`reader`](crate::reader) reads logs that may be damaged.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use sluice_kit::ChannelIds;
use sluice_kit::framed::LIKELY_EVENTS;
use sluice_model::{
    Batch, BatchBuilder, ByteFormat, Channel, Channels, Encoding, Error, Event, PayloadOffset,
    PrepareContext, ReadContext,
};

use crate::reader::NANOS_PER_MICRO;
use crate::wire::{HEADER_LEN, LcmHeader, TooLong, append_event, record_len};

/// LCM logs as a byte format: consecutive events with nothing around them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LcmByteFormat;

/// An event that has been checked against the limits of the log format.
pub(crate) struct EncodableEvent<'e> {
    event: &'e Event<'e>,
    name: &'e [u8],
    utime: i64,
    len: u64,
    /// Whether the time loses precision below a microsecond.
    is_truncated: bool,
    /// Whether the time is outside the range of the log and was clamped.
    is_clamped: bool,
}

impl<'e> EncodableEvent<'e> {
    /// `wide_time` is the event's time if it differs from the timestamp. `Err` says why no log can
    /// hold the event.
    fn new(event: &'e Event<'e>, wide_time: Option<i128>, name: &'e [u8]) -> Result<Self, TooLong> {
        let len = record_len(name, event.payload)?;
        let Some(time) = wide_time else {
            // 128-bit division would be half the cost of copying a small event.
            let utime = event.timestamp.div_euclid(NANOS_PER_MICRO);
            let is_truncated = event.timestamp.rem_euclid(NANOS_PER_MICRO) != 0;
            return Ok(Self { event, name, utime, len, is_truncated, is_clamped: false });
        };
        let micros = i64::try_from(time.div_euclid(NANOS_PER_MICRO.into()));
        let (utime, is_clamped) = match micros {
            Ok(utime) => (utime, false),
            Err(_) => (event.timestamp.div_euclid(NANOS_PER_MICRO), true),
        };
        let is_truncated = !is_clamped && i128::from(utime) * i128::from(NANOS_PER_MICRO) != time;
        Ok(Self { event, name, utime, len, is_truncated, is_clamped })
    }

    /// Checks event `row` of a batch and reports what is lost to `context`. `None` if no log can
    /// hold the event.
    pub(crate) fn check(
        row: usize,
        (event, wide_time): (&'e Event<'e>, Option<i128>),
        name: &'e [u8],
        context: &mut PrepareContext<'_>,
    ) -> Option<Self> {
        let refuse =
            |reason: TooLong| context.report.refused.push((row as u32, reason.to_string()));
        let encodable = Self::new(event, wide_time, name).map_err(refuse).ok()?;
        if encodable.is_clamped {
            context.report.clamped.push(row as u32);
        }
        if encodable.is_truncated {
            let loss = "times are written in whole microseconds; smaller parts are cut off";
            context.report.losses.insert(loss);
        }
        Some(encodable)
    }

    /// The bytes before the payload.
    pub(crate) fn payload_start(&self) -> usize {
        HEADER_LEN + self.name.len()
    }

    pub(crate) fn payload(&self) -> &'e [u8] {
        self.event.payload
    }

    /// Whether these bytes are what is before the payload.
    pub(crate) fn has_head(&self, bytes: &[u8]) -> bool {
        let Some((head, name)) = bytes.split_first_chunk() else { return false };
        let expected = (self.event.sequence, self.utime, self.event.payload.len());
        let is_same = |header: LcmHeader| {
            usize::try_from(header.data_len)
                .is_ok_and(|len| (header.number, header.utime, len) == expected)
                && usize::try_from(header.channel_len) == Ok(name.len())
        };
        LcmHeader::parse(head).is_some_and(is_same) && name == self.name
    }

    pub(crate) fn append(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        let Event { sequence, payload, .. } = *self.event;
        append_event(out, sequence, self.utime, self.name, payload).map_err(unrefused)
    }
}

fn unrefused(reason: impl std::fmt::Display) -> Error {
    Error::internal(format!("an event that does not fit the format was not refused: {reason}"))
}

impl ByteFormat for LcmByteFormat {
    fn stored_time(&self, time: i64) -> i64 {
        // The greatest timestamp stands for all later times, which the log holds exactly.
        if time == i64::MAX { time } else { time.saturating_sub(time.rem_euclid(NANOS_PER_MICRO)) }
    }

    fn accepts_wide_times(&self) -> bool {
        true
    }

    fn lengths(&self, batch: &Batch, context: &mut PrepareContext<'_>) -> Result<Vec<u32>, Error> {
        let known = context.channels.all();
        context.note_names_only(batch, &Encoding::Lcm);
        let each = batch.iter().enumerate().map(|(row, event)| {
            let timed = (&event, batch.wide_time(row));
            let encodable =
                EncodableEvent::check(row, timed, channel_name(&known, &event), context);
            encodable.map_or(0, |encodable| u32::try_from(encodable.len).unwrap_or(u32::MAX))
        });
        Ok(each.collect())
    }

    fn encode(
        &self,
        events: &[Batch],
        channels: &Channels,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let known = channels.all();
        for batch in events {
            out.reserve(batch.payload_bytes() as usize + batch.len() * HEADER_LEN);
            for (row, event) in batch.iter().enumerate() {
                let (wide_time, name) = (batch.wide_time(row), channel_name(&known, &event));
                EncodableEvent::new(&event, wide_time, name).map_err(unrefused)?.append(out)?;
            }
        }
        Ok(())
    }

    fn decode(
        &self,
        piece: Bytes,
        _: u64,
        _: &Path,
        context: &ReadContext,
    ) -> Result<Result<Vec<Batch>, String>, Error> {
        let mut batch = BatchBuilder::with_capacity(LIKELY_EVENTS);
        let mut ids = ChannelIds::new(Encoding::Lcm, context);
        let mut at = 0;
        while at < piece.len() {
            let (header, name, payload) = match split_event(piece.get(at..).unwrap_or_default()) {
                Ok(found) => found,
                Err(reason) => return Ok(Err(format!("{reason}, at byte {at} of the contents"))),
            };
            at += HEADER_LEN + name.len() + payload.len();
            let Ok(offset) = u32::try_from(at - payload.len()) else {
                return Ok(Err("a piece of a log is longer than 4 GiB".into()));
            };
            let place = PayloadOffset { segment: 0, offset };
            let time = i128::from(header.utime) * i128::from(NANOS_PER_MICRO);
            batch.push_wide(time, header.number, ids.resolve(name)?, payload, place);
        }
        if batch.is_empty() {
            return Ok(Ok(Vec::new()));
        }
        batch.segment(piece.clone());
        Ok(Ok(vec![batch.finish()]))
    }
}

fn channel_name<'c>(known: &'c [Arc<Channel>], event: &Event<'_>) -> &'c [u8] {
    known[event.channel.index()].name.as_bytes()
}

/// Splits off the event at the start of these bytes.
fn split_event(bytes: &[u8]) -> Result<(LcmHeader, &[u8], &[u8]), &'static str> {
    let (head, rest) = bytes.split_first_chunk().ok_or("the header of an event is cut off")?;
    let header = LcmHeader::parse(head).ok_or("expected the sync word of an event")?;
    let (name, payload) = (usize::try_from(header.channel_len), usize::try_from(header.data_len));
    let (Ok(name), Ok(payload)) = (name, payload) else { return Err("a length is negative") };
    let (name, rest) = rest.split_at_checked(name).ok_or("the channel of an event is cut off")?;
    let (payload, _) =
        rest.split_at_checked(payload).ok_or("the payload of an event is cut off")?;
    Ok((header, name, payload))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sluice_model::{BlockPool, Name};

    fn batch(events: &[(i64, i64, u8, Vec<u8>)], channels: &Channels) -> Batch {
        let mut batch = BatchBuilder::default();
        for (time, number, name, payload) in events {
            let name = Name::from_bytes(&vec![*name; usize::from(*name % 5)]);
            let id = channels.intern(Channel::new(name, "test", Encoding::Lcm)).unwrap();
            batch.push_copy(*time, *number, id, payload);
        }
        batch.finish()
    }

    fn decoded(piece: &[u8]) -> Result<Vec<Batch>, String> {
        let context = ReadContext::standalone("test");
        LcmByteFormat.decode(Bytes::copy_from_slice(piece), 0, Path::new("x"), &context).unwrap()
    }

    fn one() -> Vec<u8> {
        let mut bytes = Vec::new();
        append_event(&mut bytes, 7, 2_000_000, b"POSE", b"payload, longer than a view").unwrap();
        bytes
    }

    #[test]
    fn what_is_no_run_of_whole_events_is_refused_as_a_whole() {
        let (good, len) = (one(), one().len());
        for (at, with, says) in [(0, 0, "sync word"), (20, 0xff, "negative")] {
            let mut bad = [&good[..], &good].concat();
            bad[len + at] = with;
            assert!(decoded(&bad).unwrap_err().contains(says), "{says}");
        }
    }

    /// The times read back after writing these, and how many were clamped.
    fn written(times: Vec<i128>) -> (Vec<i128>, usize) {
        let channels = Channels::default();
        let events: Vec<_> = times.iter().map(|_| (0, 0, 1, vec![7])).collect();
        let events = batch(&events, &channels).with_wide_times(times);
        let buffers = BlockPool::new(16, 1);
        let mut context = PrepareContext::new(&channels, &buffers);
        let lengths = LcmByteFormat.lengths(&events, &mut context).unwrap();
        let mut bytes = Vec::new();
        LcmByteFormat.encode(std::slice::from_ref(&events), &channels, &mut bytes).unwrap();
        assert_eq!(
            (lengths.iter().sum::<u32>() as usize, context.report.refused.len()),
            (bytes.len(), 0)
        );
        let back = decoded(&bytes).unwrap();
        let time = |batch: &Batch, row| {
            batch.wide_time(row).unwrap_or_else(|| batch.timestamps()[row].into())
        };
        let each = back.iter().flat_map(|batch| (0..batch.len()).map(move |row| time(batch, row)));
        (each.collect(), context.report.clamped.len())
    }

    #[test]
    fn a_time_that_no_log_holds_becomes_the_nearest_timestamp() {
        let last = i128::from(i64::MAX);
        let (found, clamped) =
            written(vec![1_999, last + 1, last * 1_000, last * 1_001, i128::MIN]);
        let micros = |time: i128| time.div_euclid(1_000) * 1_000;
        let first = micros(i64::MIN.into());
        assert_eq!(found, [1_000, micros(last + 1), last * 1_000, micros(last), first]);
        assert_eq!(clamped, 2);
    }

    proptest! {
        #[test]
        fn every_time_that_a_log_can_say_survives(
            utimes in proptest::collection::vec(
                prop_oneof![any::<i64>(), Just(i64::MIN), Just(i64::MAX), -5i64..5], 1..20))
        {
            let times: Vec<i128> = utimes.iter().map(|utime| i128::from(*utime) * 1_000).collect();
            prop_assert_eq!(written(times.clone()), (times, 0));
        }
    }
}
