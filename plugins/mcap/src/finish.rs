//! Writes a file front to back, and keeps what its summary needs.

use std::collections::BTreeMap;

use sluice_model::{Error, OutputFile};

use crate::declare::Numbering;
use crate::encode::EncodedChunk;
use crate::wire::{Append, AttachmentHead, HEAD, MAGIC, Statistics, op};

/// The name of this program in headers.
const LIBRARY: &str = concat!("sluice ", env!("CARGO_PKG_VERSION"));

/// A file that is being written.
#[derive(Debug)]
pub(crate) struct McapFile {
    file: OutputFile,
    /// The checksum of everything so far.
    crc: crc32fast::Hasher,
    len: u64,
    /// Whether every write succeeded.
    is_complete: bool,
    statistics: Statistics,
    chunk_indexes: Vec<u8>,
    attachment_indexes: Vec<u8>,
    metadata_indexes: Vec<u8>,
}

impl McapFile {
    /// Starts a file.
    pub(crate) fn start(file: OutputFile, profile: &str) -> Result<Self, Error> {
        let mut started = Self {
            file,
            crc: crc32fast::Hasher::new(),
            len: 0,
            is_complete: true,
            statistics: Statistics { start: u64::MAX, ..Statistics::default() },
            chunk_indexes: Vec::new(),
            attachment_indexes: Vec::new(),
            metadata_indexes: Vec::new(),
        };
        let mut front = MAGIC.to_vec();
        front.record(op::HEADER, |out| {
            out.bytes(profile.as_bytes());
            out.bytes(LIBRARY.as_bytes());
        });
        started.write(&front)?;
        Ok(started)
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Whether the file can be finished after a write that failed: a file that grows under its
    /// final name ends with what was written before.
    pub(crate) fn can_finish(&self) -> bool {
        self.is_complete || self.file.is_growing()
    }

    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        self.file.flush()
    }

    /// Appends bytes.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let written = self.file.write_binary(bytes);
        self.is_complete &= written.is_ok();
        written?;
        self.crc.update(bytes);
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Appends what `append` writes, in any number of writes. If that fails, a file that grows has
    /// nothing of it, and any other cannot be completed.
    pub(crate) fn write_all_or_nothing<T>(
        &mut self,
        append: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mark = self.file.mark().inspect_err(|_| self.is_complete = false)?;
        let (crc, len, is_growing) = (self.crc.clone(), self.len, mark.is_some());
        let appended = append(self).and_then(|done| {
            let flushed = if is_growing { self.file.flush() } else { Ok(()) };
            flushed.inspect_err(|_| self.is_complete = false).map(|()| done)
        });
        match mark {
            Some(mark) if appended.is_err() => {
                self.file.roll_back(mark);
                (self.crc, self.len) = (crc, len);
            }
            _ => self.is_complete &= appended.is_ok(),
        }
        appended
    }

    /// Appends a chunk with its message indexes.
    pub(crate) fn write_chunk(&mut self, unit: &ChunkBytes) -> Result<(), Error> {
        let ChunkBytes { bytes, chunk, packed_len } = unit;
        let start = self.len;
        self.write(bytes)?;
        let end = start + chunk.head.len() as u64 + packed_len;
        let (mut offsets, mut index_start) = (Vec::new(), end);
        for index in &chunk.indexes {
            offsets.push((index.channel, index_start));
            index_start += index.record.len() as u64;
            *self.statistics.counts.entry(index.channel).or_default() += index.events;
        }
        let indexes_len = self.len - end;
        self.chunk_indexes.record(op::CHUNK_INDEX, |out| {
            out.u64(chunk.start_time);
            out.u64(chunk.end_time);
            out.u64(start);
            out.u64(end - start);
            out.array(|out| {
                for (channel, offset) in &offsets {
                    out.u16(*channel);
                    out.u64(*offset);
                }
            });
            out.u64(indexes_len);
            out.bytes(chunk.compression.name().as_bytes());
            out.u64(*packed_len);
            out.u64(chunk.plain_len);
        });
        let all = &mut self.statistics;
        all.chunks += 1;
        all.messages += chunk.events;
        if chunk.events > 0 {
            all.start = all.start.min(chunk.start_time);
            all.end = all.end.max(chunk.end_time);
        }
        self.file.set_rows(self.statistics.messages, self.statistics.messages);
        Ok(())
    }

    /// Notes an attachment of `len` bytes at `start`.
    pub(crate) fn note_attachment(&mut self, (start, len): (u64, u64), head: &AttachmentHead) {
        self.statistics.attachments += 1;
        self.attachment_indexes.record(op::ATTACHMENT_INDEX, |out| {
            out.u64(start);
            out.u64(len);
            out.u64(head.log_time);
            out.u64(head.create_time);
            out.u64(head.data_len);
            out.bytes(&head.name);
            out.bytes(&head.media_type);
        });
    }

    /// Notes a metadata record of `len` bytes at `start`.
    pub(crate) fn note_metadata(&mut self, (start, len): (u64, u64), name: &[u8]) {
        self.statistics.metadata += 1;
        self.metadata_indexes.record(op::METADATA_INDEX, |out| {
            out.u64(start);
            out.u64(len);
            out.bytes(name);
        });
    }

    /// Writes the summary, and completes the file.
    ///
    /// If a file that grows has no room for its summary, it is completed without, or even without
    /// a footer, and this is `Err`.
    pub(crate) fn finish(mut self, numbering: &Numbering) -> Result<(), Error> {
        self.statistics.schemas = numbering.schemas();
        self.statistics.channels = numbering.channels();
        if self.statistics.messages == 0 {
            self.statistics.start = 0;
        }
        let mut statistics = Vec::new();
        append_statistics(&mut statistics, &self.statistics);
        let end = self.end(&[
            (op::SCHEMA, &numbering.schema_records),
            (op::CHANNEL, &numbering.channel_records),
            (op::STATISTICS, &statistics),
            (op::CHUNK_INDEX, &self.chunk_indexes),
            (op::ATTACHMENT_INDEX, &self.attachment_indexes),
            (op::METADATA_INDEX, &self.metadata_indexes),
        ]);
        let written = self.write(&end);
        if written.is_err() && self.can_finish() {
            // What matters is the first error.
            drop(self.write(&self.end(&[])));
        }
        written.and(self.file.finish(self.statistics.messages))
    }

    /// What follows the last record of data, with these groups of records as its summary.
    fn end(&self, summary: &[(u8, &[u8])]) -> Vec<u8> {
        let (mut end, mut offsets, mut footer) = (Vec::new(), Vec::new(), Vec::new());
        end.record(op::DATA_END, |out| out.u32(self.crc.clone().finalize()));
        let (start, before) = (self.len + end.len() as u64, end.len());
        for (opcode, records) in summary.iter().filter(|(_, records)| !records.is_empty()) {
            let group_start = self.len + end.len() as u64;
            end.extend_from_slice(records);
            offsets.record(op::SUMMARY_OFFSET, |out| {
                out.push(*opcode);
                out.u64(group_start);
                out.u64(records.len() as u64);
            });
        }
        let offsets_start = self.len + end.len() as u64;
        end.extend_from_slice(&offsets);
        footer.record(op::FOOTER, |out| {
            let is_there = !summary.is_empty();
            out.u64(if is_there { start } else { 0 });
            out.u64(if is_there { offsets_start } else { 0 });
        });
        // The checksum covers the head of the footer, too, with its final length.
        let len = (footer.len() as u64 - HEAD + size_of::<u32>() as u64).to_le_bytes();
        footer.splice(1..HEAD as usize, len);
        end.extend_from_slice(&footer);
        let crc = crc32fast::hash(end.get(before..).unwrap_or_default());
        end.u32(crc);
        end.extend_from_slice(&MAGIC);
        end
    }
}

/// A chunk with its message indexes, as bytes that are written at once: a file that grows has all
/// of them, or ends where they would begin.
pub(crate) struct ChunkBytes {
    bytes: Vec<u8>,
    /// The chunk, whose records are in `bytes` only.
    chunk: EncodedChunk,
    /// The length of its compressed records.
    packed_len: u64,
}

impl ChunkBytes {
    pub(crate) fn from_chunk(mut chunk: EncodedChunk) -> Self {
        let packed = std::mem::take(&mut chunk.packed);
        let indexes = chunk.indexes.iter().map(|index| &*index.record);
        let parts: Vec<&[u8]> = [&*chunk.head, &*packed].into_iter().chain(indexes).collect();
        Self { bytes: parts.concat(), packed_len: packed.len() as u64, chunk }
    }

    /// The number of its events.
    pub(crate) fn events(&self) -> u64 {
        self.chunk.events
    }
}

fn append_statistics(out: &mut Vec<u8>, statistics: &Statistics) {
    let append_counts = |out: &mut Vec<u8>, counts: &BTreeMap<u16, u64>| {
        out.array(|out| {
            for (channel, count) in counts {
                out.u16(*channel);
                out.u64(*count);
            }
        });
    };
    out.record(op::STATISTICS, |out| {
        out.u64(statistics.messages);
        out.u16(statistics.schemas);
        out.u32(statistics.channels);
        out.u32(statistics.attachments);
        out.u32(statistics.metadata);
        out.u32(statistics.chunks);
        out.u64(statistics.start);
        out.u64(statistics.end);
        append_counts(out, &statistics.counts);
    });
}
