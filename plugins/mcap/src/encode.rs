//! Encodes chunks with their message indexes. Knows no offset of the file.

use std::io;
use std::sync::Arc;

use sluice_io::level::FrameLevel;
use sluice_model::Batch;

use crate::chunk::{self, ChunkCompression};
use crate::wire::{Append, HEAD, MESSAGE_HEAD, op};

/// The events of a chunk that is to be encoded.
#[derive(Clone)]
pub(crate) struct ChunkPlan {
    /// The records of schemas and channels whose first events are in it.
    pub(crate) declarations: Vec<u8>,
    /// The numbers of channels: all that its events have are assigned.
    pub(crate) numbers: Arc<Vec<Option<u16>>>,
    pub(crate) events: Vec<Batch>,
    /// About as many bytes as its records have.
    pub(crate) len: usize,
}

/// The records of a chunk, not yet compressed, and their index.
pub(crate) struct ChunkRecords {
    pub(crate) plain: Vec<u8>,
    index: IndexBuilder,
    start_time: u64,
    end_time: u64,
    events: u64,
}

/// A chunk, ready to be written.
pub(crate) struct EncodedChunk {
    /// The Chunk record up to its compressed records.
    pub(crate) head: Vec<u8>,
    pub(crate) packed: Vec<u8>,
    /// The message index of each channel, by number.
    pub(crate) indexes: Vec<ChannelIndex>,
    pub(crate) compression: ChunkCompression,
    pub(crate) plain_len: u64,
    pub(crate) start_time: u64,
    pub(crate) end_time: u64,
    pub(crate) events: u64,
}

/// The message index of a channel in a chunk.
pub(crate) struct ChannelIndex {
    pub(crate) channel: u16,
    pub(crate) events: u64,
    pub(crate) record: Vec<u8>,
}

/// The length of a message as a record.
pub(crate) fn record_len(payload: usize) -> usize {
    HEAD as usize + MESSAGE_HEAD + payload
}

/// Times and offsets of messages, by channel.
#[derive(Default)]
struct IndexBuilder {
    /// By number: where the channel is in `entries`, plus 1; 0 if it has none.
    places: Vec<u32>,
    entries: Vec<(u16, Vec<u8>)>,
}

impl IndexBuilder {
    fn add(&mut self, channel: u16, time: u64, offset: u64) {
        let slot = usize::from(channel);
        if self.places.len() <= slot {
            self.places.resize(slot + 1, 0);
        }
        let place = &mut self.places[slot];
        if *place == 0 {
            self.entries.push((channel, Vec::new()));
            *place = self.entries.len() as u32;
        }
        let (_, pairs) = &mut self.entries[*place as usize - 1];
        pairs.u64(time);
        pairs.u64(offset);
    }

    fn finish(mut self) -> Vec<ChannelIndex> {
        self.entries.sort_by_key(|(channel, _)| *channel);
        let index = |(channel, pairs): (u16, Vec<u8>)| {
            let events = (pairs.len() / (2 * size_of::<u64>())) as u64;
            let mut record = Vec::with_capacity(pairs.len() + 32);
            record.record(op::MESSAGE_INDEX, |out| {
                out.u16(channel);
                out.bytes(&pairs);
            });
            ChannelIndex { channel, events, record }
        };
        self.entries.into_iter().map(index).collect()
    }
}

impl ChunkPlan {
    /// Encodes the records of the chunk.
    pub(crate) fn records(self) -> ChunkRecords {
        let Self { declarations, numbers, events, len } = self;
        let mut plain = declarations;
        plain.reserve(len);
        let (mut index, mut count) = (IndexBuilder::default(), 0);
        let (mut first, mut last) = (u64::MAX, 0);
        for batch in &events {
            for event in batch.iter() {
                let number = numbers.get(event.channel.index()).copied().flatten();
                let Some(channel) = number else { continue };
                // Others were refused.
                let time = event.timestamp as u64;
                index.add(channel, time, plain.len() as u64);
                (first, last, count) = (first.min(time), last.max(time), count + 1);
                plain.push(op::MESSAGE);
                plain.u64((MESSAGE_HEAD + event.payload.len()) as u64);
                plain.u16(channel);
                plain.u32(u32::try_from(event.sequence).unwrap_or(0));
                plain.u64(time);
                plain.u64(time);
                plain.extend_from_slice(event.payload);
            }
        }
        let (start_time, end_time) = if count == 0 { (0, 0) } else { (first, last) };
        ChunkRecords { plain, index, start_time, end_time, events: count }
    }
}

impl ChunkRecords {
    /// Compresses the chunk.
    pub(crate) fn pack(
        self,
        compression: ChunkCompression,
        level: &FrameLevel,
    ) -> io::Result<EncodedChunk> {
        let Self { plain, index, start_time, end_time, events } = self;
        let (plain_len, crc) = (plain.len() as u64, crc32fast::hash(&plain));
        let packed = chunk::pack(plain, compression, level)?;
        let mut head = Vec::with_capacity(64);
        head.push(op::CHUNK);
        let name = compression.name().as_bytes();
        head.u64((40 + name.len() + packed.len()) as u64);
        head.u64(start_time);
        head.u64(end_time);
        head.u64(plain_len);
        head.u32(crc);
        head.bytes(name);
        head.u64(packed.len() as u64);
        let indexes = index.finish();
        Ok(EncodedChunk {
            head,
            packed,
            indexes,
            compression,
            plain_len,
            start_time,
            end_time,
            events,
        })
    }
}
