//! The byte format `arrow`: an Arrow IPC stream of batches, which holds any event without loss.
//!
//! Each piece has its own dictionaries and can be read by itself. Payloads are not copied when
//! read.

use std::path::Path;

use arrow_buffer::Buffer;
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::writer::{
    DictionaryTracker, EncodedData, IpcDataGenerator, IpcWriteContext, IpcWriteOptions,
    write_message,
};
use arrow_ipc::{Message, RecordBatch, root_as_message};
use arrow_schema::ArrowError;
use bytes::Bytes;
use sluice_model::{
    Batch, BatchBuilder, ByteFormat, Channel, Channels, Error, ErrorKind, PrepareContext,
    ReadContext, SniffResult,
};

/// The name of this format.
pub(crate) const NAME: &str = "arrow";

/// Arrow IPC streams as a byte format.
#[derive(Clone, Copy, Debug)]
pub struct Arrow;

/// The bytes of an event in its columns, without payload: time, number, four keys, and a view.
const EVENT_LEN: usize = 8 + 8 + 4 * 4 + 16;
/// Payloads up to this length are stored in the view.
const INLINE: usize = 12;
/// The bytes of a channel's strings that are not counted: they are written once per piece, not once
/// per event.
const USUAL_WORDS: usize = 64;

/// The start of a message, followed by the length of its metadata.
const CONTINUATION: [u8; 4] = [0xff; 4];
/// The end of a stream: an empty message.
const END: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];

impl ByteFormat for Arrow {
    fn head(&self) -> Result<Vec<u8>, Error> {
        let (schema, _) = schema_message();
        let mut head = Vec::new();
        write_message(&mut head, schema, &IpcWriteOptions::default()).map_err(encode_error)?;
        Ok(head)
    }

    fn tail(&self) -> Result<Vec<u8>, Error> {
        Ok(END.to_vec())
    }

    fn keeps_sources(&self) -> bool {
        true
    }

    fn lengths(&self, batch: &Batch, context: &mut PrepareContext<'_>) -> Result<Vec<u32>, Error> {
        let known = context.channels.since(0);
        let words: Vec<usize> = known.iter().map(|channel| words_len(channel)).collect();
        let each = (0..batch.len()).map(|row| {
            let payload = batch.payload_len(row);
            let payload = if payload > INLINE { payload } else { 0 };
            let words = words[batch.channels()[row] as usize].saturating_sub(USUAL_WORDS);
            u32::try_from(EVENT_LEN + payload + words).unwrap_or(u32::MAX)
        });
        Ok(each.collect())
    }

    fn encode(
        &self,
        events: &[Batch],
        channels: &Channels,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        // Arrow writes whole segments, so the piece needs its own.
        let mut piece = BatchBuilder::with_capacity(events.iter().map(Batch::len).sum());
        for event in events.iter().flat_map(Batch::iter) {
            piece.push_copy(event.timestamp, event.sequence, event.channel, event.payload);
        }
        let columns = piece.finish().to_arrow(channels)?;
        let options = IpcWriteOptions::default();
        let (_, mut dictionaries) = schema_message();
        let encoded = IpcDataGenerator::default().encode(
            &columns,
            &mut dictionaries,
            &options,
            &mut IpcWriteContext::default(),
        );
        let (words, columns) = encoded.map_err(encode_error)?;
        for message in words.into_iter().chain([columns]) {
            write_message(&mut *out, message, &options).map_err(encode_error)?;
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
        if piece.is_empty() {
            return Ok(Ok(Vec::new()));
        }
        if let Err(reason) = check(&piece) {
            return Ok(Err(reason));
        }
        let head = self.head()?;
        let decode = || -> Result<_, ArrowError> {
            let mut decoder = StreamDecoder::new();
            let mut columns = decoder.decode(&mut Buffer::from_vec(head))?;
            let mut bytes = Buffer::from(piece);
            while columns.is_none() && !bytes.is_empty() {
                columns = decoder.decode(&mut bytes)?;
            }
            Ok(columns)
        };
        match decode().map(|columns| columns.map(|c| Batch::from_arrow(&c, &context.channels))) {
            Ok(Some(Ok(batch))) => Ok(Ok(vec![batch])),
            Ok(Some(Err(error))) if matches!(error.kind(), ErrorKind::Invalid(_)) => {
                Ok(Err(error.to_string()))
            }
            Ok(Some(Err(error))) => Err(error),
            Ok(None) => Ok(Err("it has no record batch".into())),
            Err(error) => Ok(Err(error.to_string())),
        }
    }
}

/// Recognises an archive of `arrow` without a footer, whose format no other source knows.
pub(crate) fn sniff(head: &[u8]) -> SniffResult {
    let is_ours = Arrow.head().is_ok_and(|stream| head.starts_with(&stream));
    if is_ours { SniffResult::Yes } else { SniffResult::No }
}

/// The schema message that starts a stream, and its dictionary ids.
fn schema_message() -> (EncodedData, DictionaryTracker) {
    let mut dictionaries = DictionaryTracker::new(false);
    let message = IpcDataGenerator::default().schema_to_bytes_with_dictionary_tracker(
        &Batch::arrow_schema(),
        &mut dictionaries,
        &IpcWriteOptions::default(),
    );
    (message, dictionaries)
}

fn encode_error(error: ArrowError) -> Error {
    Error::internal(format!("a batch cannot be written as an Arrow stream: {error}"))
}

/// The approximate bytes that describe a channel in a piece.
fn words_len(channel: &Channel) -> usize {
    let Channel { name, source, type_name, metadata, .. } = channel;
    let metadata: usize = metadata.iter().map(|(key, value)| key.len() + value.len()).sum();
    name.text().len() + source.len() + type_name.as_ref().map_or(0, |name| name.len()) + metadata
}

/// Checks that a piece has the layout of [`Arrow::encode`]: dictionaries, then one record batch.
///
/// The Arrow library panics if lengths and offsets of a message do not fit its body. It validates
/// the content of columns itself.
fn check(piece: &[u8]) -> Result<(), String> {
    let mut rest = piece;
    loop {
        let (message, body, remaining) = message(rest)?;
        let fits = match (message.header_as_dictionary_batch(), message.header_as_record_batch()) {
            (Some(words), _) => {
                let fits = |values| fits_dictionary(&values, body.len()).unwrap_or_default();
                !words.isDelta() && words.data().is_some_and(fits)
            }
            (_, Some(columns)) => {
                let fits = fits_columns(&columns, body.len()).unwrap_or_default();
                if fits && remaining.is_empty() {
                    return Ok(());
                }
                false
            }
            _ => false,
        };
        if !fits {
            let at = piece.len() - rest.len();
            return Err(format!("the Arrow message at byte {at} of its content is malformed"));
        }
        rest = remaining;
    }
}

/// The first message of these bytes, its body, and the rest.
fn message(bytes: &[u8]) -> Result<(Message<'_>, &[u8], &[u8]), String> {
    let split = || {
        let rest = bytes.strip_prefix(&CONTINUATION)?;
        let (len, rest) = rest.split_first_chunk()?;
        rest.split_at_checked(usize::try_from(u32::from_le_bytes(*len)).ok()?)
    };
    let (about, rest) = split().ok_or("an Arrow message is cut off")?;
    let message = root_as_message(about).map_err(|e| format!("not an Arrow message: {e}"))?;
    let body = usize::try_from(message.bodyLength()).ok().and_then(|n| rest.split_at_checked(n));
    let (body, remaining) = body.ok_or("the body of an Arrow message is cut off")?;
    Ok((message, body, remaining))
}

/// The bytes per value in each column of [`Batch::arrow_schema`].
const WIDTHS: [usize; 7] = [8, 4, 4, 8, 4, 4, 16];

/// Whether the array of a dictionary fits a body of this length as strings.
fn fits_dictionary(words: &RecordBatch<'_>, body: usize) -> Option<bool> {
    let (len, nodes, buffers) = layout(words, body)?;
    let ([nulls], [marks, offsets, _]) = (&nodes[..], &buffers[..]) else { return None };
    let all_marked = *nulls == 0 || len <= marks.checked_mul(8)?;
    let counts = words.variadicBufferCounts().is_none_or(|counts| counts.is_empty());
    Some(counts && all_marked && *offsets == len.checked_add(1)?.checked_mul(4)?)
}

/// Whether the arrays of a batch fit a body of this length, match the columns, and have no nulls:
/// only dictionary values may be null.
fn fits_columns(columns: &RecordBatch<'_>, body: usize) -> Option<bool> {
    let (len, nodes, buffers) = layout(columns, body)?;
    let counts: Vec<i64> = columns.variadicBufferCounts()?.iter().collect();
    let [segments] = counts[..] else { return None };
    let fixed = buffers.len().checked_sub(usize::try_from(segments).ok()?)?;
    // A validity buffer precedes the values of each column.
    let values = buffers.iter().skip(1).step_by(2);
    let all_fit = values.zip(WIDTHS).all(|(held, width)| Some(*held) == len.checked_mul(width));
    let none_null = nodes.len() == WIDTHS.len() && nodes.iter().all(|nulls| *nulls == 0);
    Some(fixed == 2 * WIDTHS.len() && none_null && all_fit)
}

/// The number of rows, the null count of each array, and the length of each buffer. `None` if they
/// do not fit a body of this length.
fn layout(columns: &RecordBatch<'_>, body: usize) -> Option<(usize, Vec<usize>, Vec<usize>)> {
    if columns.compression().is_some() {
        return None;
    }
    let len = usize::try_from(columns.length()).ok()?;
    let nulls = |node: &arrow_ipc::FieldNode| {
        let nulls = usize::try_from(node.null_count()).ok().filter(|nulls| *nulls <= len);
        nulls.filter(|_| node.length() == columns.length())
    };
    let held = |buffer: &arrow_ipc::Buffer| {
        let end = buffer.offset().checked_add(buffer.length())?;
        let inside = buffer.offset() >= 0 && usize::try_from(end).is_ok_and(|end| end <= body);
        usize::try_from(buffer.length()).ok().filter(|_| inside)
    };
    let nodes: Option<Vec<usize>> = columns.nodes()?.iter().map(nulls).collect();
    let buffers: Option<Vec<usize>> = columns.buffers()?.iter().map(held).collect();
    Some((len, nodes?, buffers?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sluice_model::{Clock, Encoding, Name};

    fn channels() -> Channels {
        let channels = Channels::default();
        let mut odd = Channel::new(Name::from_bytes(b"CAM\xff"), "left", Encoding::Vel);
        odd.type_name = Some("ImageM".into());
        odd.clock = Clock::Relative;
        odd.metadata.insert("version".into(), "3".into());
        channels.intern(odd).unwrap();
        channels.intern(Channel::new(Name::from_text("POSE"), "left", Encoding::Lcm)).unwrap();
        channels.intern(Channel::new(Name::from_text("POSE"), "right", Encoding::Lcm)).unwrap();
        channels
    }

    fn batch(events: &[(i64, i64, u32, Vec<u8>)]) -> Batch {
        let mut batch = BatchBuilder::default();
        for (time, number, channel, payload) in events {
            batch.push_copy(*time, *number, sluice_model::ChannelId(*channel), payload);
        }
        batch.finish()
    }

    fn encoded(batches: &[Batch], channels: &Channels) -> Vec<u8> {
        let mut piece = Vec::new();
        Arrow.encode(batches, channels, &mut piece).unwrap();
        piece
    }

    fn decoded(piece: &[u8], context: &ReadContext) -> Result<Vec<Batch>, String> {
        Arrow.decode(Bytes::copy_from_slice(piece), 0, Path::new("x"), context).unwrap()
    }

    fn some() -> Vec<(i64, i64, u32, Vec<u8>)> {
        let payload = |n: i64| (0..n * 5).map(|byte| byte as u8).collect();
        (0..9).map(|n| (n - 4, n * 7, n as u32 % 3, payload(n))).collect()
    }

    #[test]
    fn pieces_between_head_and_tail_are_an_arrow_stream() {
        let (channels, events) = (channels(), batch(&some()));
        let (front, back) = (events.slice(0, 4), events.slice(4, 5));
        let pieces = [encoded(&[front], &channels), encoded(&[back], &channels)].concat();
        let stream = [Arrow.head().unwrap(), pieces, Arrow.tail().unwrap()].concat();
        let reader = arrow_ipc::reader::StreamReader::try_new(&stream[..], None).unwrap();
        let read: Vec<_> = reader.map(|columns| columns.unwrap().num_rows()).collect();
        assert_eq!(read, [4, 5]);
    }

    #[test]
    fn payloads_are_not_copied_on_the_way_in() {
        let (channels, context) = (channels(), ReadContext::standalone("x"));
        let payload = b"a payload that is longer than a view".to_vec();
        let piece = encoded(&[batch(&[(1, 2, 1, payload)])], &channels);
        // Aligned like a pool block.
        let mut block = context.blocks.block_with_len(piece.len());
        block[..piece.len()].copy_from_slice(&piece);
        let piece = block.freeze().slice(..piece.len());
        let batches = Arrow.decode(piece.clone(), 0, Path::new("x"), &context).unwrap().unwrap();
        let span = piece.as_ptr_range();
        assert!(span.contains(&batches[0].payload(0).as_ptr()));
    }

    #[test]
    fn other_messages_than_those_of_a_piece_are_refused() {
        let (channels, context) = (channels(), ReadContext::standalone("x"));
        let good = encoded(&[batch(&some())], &channels);
        let (head, tail) = (Arrow.head().unwrap(), Arrow.tail().unwrap());
        for bad in [
            [&good[..], &good].concat(),
            [&head[..], &good].concat(),
            [&good[..], &tail].concat(),
            good[..good.len() - 1].to_vec(),
            tail,
            b"no Arrow".to_vec(),
        ] {
            assert!(decoded(&bad, &context).is_err());
        }
        assert!(decoded(b"", &context).unwrap().is_empty());
    }

    #[test]
    fn any_byte_may_be_wrong() {
        let (channels, context) = (channels(), ReadContext::standalone("x"));
        let mut piece = encoded(&[batch(&some())], &channels);
        for at in 0..piece.len() {
            for flip in [1, 0x80, 0xff] {
                piece[at] ^= flip;
                // The content does not matter: frames have checksums. It must not panic.
                drop(decoded(&piece, &context));
                piece[at] ^= flip;
            }
        }
    }

    proptest! {
        #[test]
        fn nothing_of_an_event_is_lost(
            events in proptest::collection::vec(
                (
                    any::<i64>(),
                    any::<i64>(),
                    0u32..3,
                    proptest::collection::vec(any::<u8>(), 0..40),
                ),
                1..20,
            ),
            cut in 0usize..20)
        {
            let (channels, context) = (channels(), ReadContext::standalone("x"));
            let whole = batch(&events);
            let cut = cut.min(whole.len());
            let parts = [whole.slice(0, cut), whole.slice(cut, whole.len() - cut)];
            let piece = encoded(&parts, &channels);
            prop_assert_eq!(&piece, &encoded(&[whole], &channels));
            let back = decoded(&piece, &context).unwrap();
            let back: Vec<_> = back.iter().flat_map(Batch::iter).collect();
            prop_assert_eq!(back.len(), events.len());
            for (event, (time, number, channel, payload)) in back.iter().zip(&events) {
                let fields = (event.timestamp, event.sequence, event.payload);
                prop_assert_eq!(fields, (*time, *number, &payload[..]));
                let there = context.channels.get(event.channel);
                prop_assert_eq!(there, channels.get(sluice_model::ChannelId(*channel)));
            }
        }
    }
}
