//! The byte format `vel`: which events a log can hold, and messages as bytes and back.
//!
//! A file is a head with an empty index, and messages. Absolute times are written as milliseconds
//! since 1970, as there is no first event to count from; relative times as they are. It reads only
//! what [`VelByteFormat::encode`] wrote, and refuses anything else as a whole.
//! [`reader`](crate::reader) reads logs that may be damaged.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use sluice_kit::framed::LIKELY_EVENTS;
use sluice_model::{
    Batch, BatchBuilder, ByteFormat, ChannelId, Channels, Clock, Encoding, Error, Event,
    PayloadOffset, PrepareContext, ReadContext,
};

use crate::channels::MessageChannels;
use crate::hash::MessageNames;
use crate::mapping::{BatchUsage, ChannelMapping, DecodedType, TypeVersion, decoded_types};
use crate::reader::source_of;
use crate::time::{round_trip, to_wide_millis, to_wide_nanos};
use crate::wire::{END_MARK, FileHead, HEADER_LEN, MIN_SIZE, MessageHeader, append_message};

/// VEL logs as a byte format.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VelByteFormat;

/// The length and type of the message for this event, or why there is none.
fn check_event(
    event: &Event<'_>,
    mapping: &ChannelMapping,
    decoded: Option<DecodedType>,
) -> Result<(u32, TypeVersion), String> {
    let type_id = mapping.type_of(decoded)?;
    let header =
        MessageHeader::new(0, type_id, 0.0, event.payload.len()).map_err(|e| e.to_string())?;
    Ok((u32::try_from(header.message_len()).unwrap_or(u32::MAX), type_id))
}

/// The mappings of the channels of some events.
struct ChannelMappings {
    mappings: Vec<ChannelMapping>,
    /// Index of each channel's mapping, by channel id.
    indices: Vec<u32>,
}

impl ChannelMappings {
    fn new<'b>(batches: impl IntoIterator<Item = &'b Batch>, channels: &Channels) -> Self {
        let (mut mappings, mut indices) = (Vec::new(), vec![u32::MAX; channels.len()]);
        for id in batches.into_iter().flat_map(Batch::channels) {
            let index = &mut indices[*id as usize];
            if *index == u32::MAX {
                *index = mappings.len() as u32;
                mappings.push(ChannelMapping::from_channel(&channels.get(ChannelId(*id))));
            }
        }
        Self { mappings, indices }
    }

    /// The mapping of an event's channel, and its index.
    #[inline]
    fn mapping(&self, event: &Event<'_>) -> (usize, &ChannelMapping) {
        let place = self.indices[event.channel.index()] as usize;
        (place, &self.mappings[place])
    }
}

impl ByteFormat for VelByteFormat {
    fn head(&self) -> Result<Vec<u8>, Error> {
        Ok(FileHead::new(0).write().to_vec())
    }

    fn stored_time(&self, time: i64) -> i64 {
        round_trip(time)
    }

    fn encoding(&self) -> Option<Encoding> {
        Some(Encoding::Vel)
    }

    fn accepts_wide_times(&self) -> bool {
        true
    }

    fn keeps_sources(&self) -> bool {
        true
    }

    fn may_rename_channels(&self) -> bool {
        true
    }

    fn lengths(&self, batch: &Batch, context: &mut PrepareContext<'_>) -> Result<Vec<u32>, Error> {
        let (table, decoded) =
            (ChannelMappings::new([batch], context.channels), decoded_types(batch));
        let (mut lengths, mut usage) =
            (Vec::with_capacity(batch.len()), BatchUsage::new(table.mappings.len()));
        for (row, event) in batch.iter().enumerate() {
            let (mapping, decoded) = (table.mapping(&event), decoded.get(row).copied().flatten());
            match check_event(&event, mapping.1, decoded) {
                Ok((len, type_id)) => {
                    lengths.push(len);
                    usage.add(mapping, type_id, event.payload, decoded.is_some());
                }
                Err(reason) => {
                    context.report.refused.push((row as u32, reason));
                    lengths.push(0);
                    continue;
                }
            }
            let time = time_of(batch, row);
            if to_wide_nanos(to_wide_millis(time)) != Some(time) {
                context.report.losses.insert(TIMES_ROUNDED);
            }
        }
        usage.report_losses(&table.mappings, &mut context.report.losses);
        if usage.channels(&table.mappings).any(|mapping| mapping.clock == Clock::Utc) {
            context.report.losses.insert(EPOCH_NOT_WRITTEN);
        }
        Ok(lengths)
    }

    fn encode(
        &self,
        events: &[Batch],
        channels: &Channels,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let table = ChannelMappings::new(events, channels);
        for batch in events {
            out.reserve(batch.payload_bytes() as usize + batch.len() * HEADER_LEN);
            let decoded = decoded_types(batch);
            for (row, event) in batch.iter().enumerate() {
                let ((_, mapping), decoded) =
                    (table.mapping(&event), decoded.get(row).copied().flatten());
                let (_, type_id) = check_event(&event, mapping, decoded).map_err(unrefused)?;
                let (marker, ms) = (mapping.marker, to_wide_millis(time_of(batch, row)));
                append_message(out, marker, type_id, ms, event.payload).map_err(unrefused)?;
            }
        }
        Ok(())
    }

    fn decode(
        &self,
        piece: Bytes,
        position: u64,
        input: &Path,
        context: &ReadContext,
    ) -> Result<Result<Vec<Batch>, String>, Error> {
        let mut batch = BatchBuilder::with_capacity(LIKELY_EVENTS);
        let (names, source) = (Arc::new(MessageNames::default()), source_of(input, context));
        let mut ids =
            MessageChannels::new(names, source, Clock::Relative, Arc::clone(&context.channels));
        let mut at = 0;
        while at < piece.len() {
            let found = split_message(piece.get(at..).unwrap_or_default());
            let (header, time, payload) = match found {
                Ok(found) => found,
                Err(reason) => return Ok(Err(format!("{reason}, at byte {at} of the contents"))),
            };
            let Ok(offset) = u32::try_from(at + HEADER_LEN) else {
                return Ok(Err("a piece of a log is longer than 4 GiB".into()));
            };
            let place = PayloadOffset { segment: 0, offset };
            let sequence = position.saturating_add(at as u64).cast_signed();
            batch.push_wide(time, sequence, ids.resolve(&header, payload)?, payload, place);
            at += HEADER_LEN + payload.len();
        }
        if batch.is_empty() {
            return Ok(Ok(Vec::new()));
        }
        batch.segment(piece.clone());
        Ok(Ok(vec![batch.finish()]))
    }
}

/// The time of an event, in nanoseconds.
fn time_of(batch: &Batch, row: usize) -> i128 {
    batch.wide_time(row).unwrap_or_else(|| batch.timestamps()[row].into())
}

pub(crate) const TIMES_ROUNDED: &str =
    "times are written as milliseconds in doubles, and rounded if these cannot hold them";

const EPOCH_NOT_WRITTEN: &str =
    "absolute times are not marked as such; they are read back as relative to the start of the log";

fn unrefused(reason: impl std::fmt::Display) -> Error {
    Error::internal(format!("an event that does not fit the format was not refused: {reason}"))
}

/// Splits off the message at the start of these bytes, and its time.
fn split_message(bytes: &[u8]) -> Result<(MessageHeader, i128, &[u8]), &'static str> {
    let (head, rest) = bytes.split_first_chunk().ok_or("the header of a message is cut off")?;
    let header = MessageHeader::parse(head).ok_or("the header of a message is cut off")?;
    if header.size < MIN_SIZE || header.size == END_MARK {
        return Err("the size of a message is impossible");
    }
    let time = to_wide_nanos(header.ms).ok_or("the time of a message cannot be held")?;
    if to_wide_millis(time).to_bits() != header.ms.to_bits() {
        return Err("the time of a message is not in whole nanoseconds");
    }
    let len = usize::try_from(header.payload_len()).map_err(|_| "a message is too long")?;
    let (payload, _) = rest.split_at_checked(len).ok_or("the payload of a message is cut off")?;
    Ok((header, time, payload))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{Versions, type_key};
    use crate::wire::{MARKER, TIME_AT};
    use arrow_array::{RecordBatch, RecordBatchOptions};
    use arrow_schema::Schema;
    use proptest::prelude::*;
    use sluice_model::{BlockPool, Channel, Encoding, MessageType, Name, Payloads, Rows};

    fn batch(events: &[(i64, u8, Vec<u8>)], channels: &Channels) -> Batch {
        let mut batch = BatchBuilder::default();
        for (time, name, payload) in events {
            let name = Name::from_bytes(&vec![*name; usize::from(*name % 5)]);
            let id = channels.intern(Channel::new(name, "test", Encoding::Unknown)).unwrap();
            batch.push_copy(*time, 0, id, payload);
        }
        batch.finish()
    }

    fn decoded(piece: &[u8]) -> Result<Vec<Batch>, String> {
        decoded_at(0, piece)
    }

    fn decoded_at(position: u64, piece: &[u8]) -> Result<Vec<Batch>, String> {
        let (piece, context) = (Bytes::copy_from_slice(piece), ReadContext::standalone("test"));
        VelByteFormat.decode(piece, position, Path::new("x"), &context).unwrap()
    }

    fn one() -> Vec<u8> {
        let mut bytes = Vec::new();
        append_message(&mut bytes, MARKER, (7, 1), 2_000.0, b"payload, longer than a view")
            .unwrap();
        bytes
    }

    #[test]
    fn sequence_numbers_are_positions() {
        let batches = decoded(&[one(), one()].concat()).unwrap();
        let [batch] = &batches[..] else { panic!("one piece is one batch") };
        assert_eq!(batch.sequences(), [0, one().len() as i64]);
        assert_eq!(decoded_at(1 << 40, &one()).unwrap()[0].sequences(), [1 << 40]);
    }

    #[test]
    fn what_is_no_run_of_whole_messages_is_refused_as_a_whole() {
        let (good, len) = (one(), one().len());
        for (at, with, says) in [
            (0, [3, 0, 0, 0], "impossible"),
            (0, [0xff; 4], "impossible"),
            (0, [0xff, 0xff, 0xff, 0x7f], "cut off"),
            (TIME_AT, [1, 0, 0, 0], "nanoseconds"),
            (TIME_AT + 4, [0xff; 4], "cannot be held"),
        ] {
            let mut bad = [&good[..], &good].concat();
            bad[len + at..len + at + 4].copy_from_slice(&with);
            assert!(decoded(&bad).unwrap_err().contains(says), "{says}");
        }
    }

    #[test]
    fn rounded_times_are_reported() {
        let channels = Channels::default();
        let buffers = BlockPool::new(16, 1);
        for (time, is_rounded) in
            [(1_999, false), (1_194_098_400_000_000_001, true), (i64::MAX, true)]
        {
            let events = batch(&[(time, 1, Vec::new())], &channels);
            let mut context = PrepareContext::new(&channels, &buffers);
            assert_eq!(VelByteFormat.lengths(&events, &mut context).unwrap(), [21]);
            assert_eq!(context.report.losses.contains(TIMES_ROUNDED), is_rounded, "{time}");
        }
    }

    #[test]
    fn fields_that_do_not_tell_their_version_are_refused() {
        let (channels, buffers) = (Channels::default(), BlockPool::new(16, 1));
        let named = |name: &str, version| MessageType {
            codec: "vel".into(),
            ..MessageType::named(name, type_key(7, 1, version).unwrap())
        };
        for (message, refused) in
            [(named("A.v1", Versions::This), 0), (named("A.v1+", Versions::Above), 1)]
        {
            let columns = RecordBatch::try_new_with_options(
                Arc::new(Schema::empty()),
                Vec::new(),
                &RecordBatchOptions::new().with_row_count(Some(1)),
            );
            let rows = Rows {
                message: Arc::new(message),
                payloads: Payloads::Kept,
                events: vec![0],
                columns: columns.unwrap(),
            };
            let events = batch(&[(0, 1, Vec::new())], &channels).with_rows(vec![rows]);
            let mut context = PrepareContext::new(&channels, &buffers);
            VelByteFormat.lengths(&events, &mut context).unwrap();
            assert_eq!(context.report.refused.len(), refused);
            let written = VelByteFormat.encode(&[events], &channels, &mut Vec::new());
            assert_eq!(written.is_err(), refused > 0);
        }
    }

    #[test]
    fn only_channels_of_the_events_are_looked_at() {
        let channels = Channels::default();
        let all = batch(&[(0, 1, Vec::new()), (0, 2, Vec::new()), (0, 1, Vec::new())], &channels);
        assert_eq!(ChannelMappings::new([&all, &all], &channels).mappings.len(), 2);
        assert_eq!(ChannelMappings::new([&all.slice(2, 1)], &channels).mappings.len(), 1);
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in proptest::collection::vec(
            prop_oneof![Just(0u8), Just(0x31u8), any::<u8>()], 0..100))
        {
            if let Ok(batches) = decoded(&bytes) {
                let payloads: u64 = batches.iter().map(Batch::payload_bytes).sum();
                let events: usize = batches.iter().map(Batch::len).sum();
                prop_assert_eq!(payloads + (events * HEADER_LEN) as u64, bytes.len() as u64);
            }
        }
    }
}
