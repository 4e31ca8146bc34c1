//! Decompresses as much of a chunk as is there, if the end of the file cuts it off. Knows no
//! record, and cannot verify anything: the checksum covers the whole chunk.
//!
//! Compressed data is in blocks. Only what complete blocks hold is produced, at most the declared
//! length.

#![warn(clippy::indexing_slicing)]

use std::io::Read;
use std::ops::RangeInclusive;

use bytes::Bytes;
use lz4_flex::frame::FrameDecoder;
use sluice_model::BlockPool;
use sluice_model::options::ByteSize;
use zstd::zstd_safe::{DCtx, InBuffer, OutBuffer};

use crate::chunk::ChunkCompression;
use crate::wire::{ChunkHead, HEAD, Head};

/// The uncompressed bytes produced at a time: more than a zstd block has.
const STEP: usize = 256 << 10;
/// The uncompressed bytes after which the position in the compressed ones is noted again.
const NOTE_EVERY: u64 = 64 << 10;
/// The head of a zstd block, which the decoder reads along with the block before it.
const ZSTD_BLOCK_HEAD: usize = 3;

/// The records of a chunk as far as they are there.
#[derive(Clone, Debug)]
pub(crate) struct CutChunk {
    pub(crate) plain: Bytes,
    /// The times that its messages may have.
    pub(crate) times: RangeInclusive<u64>,
    /// The position of the chunk, and of its records.
    at: u64,
    records: u64,
    /// Starts of compressed blocks: compressed and uncompressed positions, both rising.
    blocks: Vec<(u64, u64)>,
    reason: String,
}

impl CutChunk {
    /// What is there of the chunk at `at`, whose content is cut off for this reason.
    ///
    /// Decompresses twice: the first time only finds out how much memory is needed.
    pub(crate) fn new(
        (at, record): (u64, Head),
        (head, content): (&ChunkHead, &Bytes),
        (blocks, max): (&BlockPool, ByteSize),
        reason: String,
    ) -> Self {
        let is_complete = !record.is_unfinished_chunk();
        let mut chunk = Self {
            plain: Bytes::new(),
            times: if is_complete { head.start_time..=head.end_time } else { 0..=u64::MAX },
            at,
            records: at + HEAD + head.records_at,
            blocks: Vec::new(),
            reason,
        };
        let packed = content.slice((head.records_at as usize).min(content.len())..);
        let most = head.plain_len.min(max.0);
        match ChunkCompression::parse(&head.compression) {
            Some(ChunkCompression::None) => {
                let len = usize::try_from(most).unwrap_or(usize::MAX).min(packed.len());
                chunk.plain = packed.slice(..len);
            }
            Some(compression) => chunk.decompress(compression, &packed, (blocks, most)),
            None => {}
        }
        chunk
    }

    fn decompress(
        &mut self,
        compression: ChunkCompression,
        packed: &[u8],
        (blocks, most): (&BlockPool, u64),
    ) {
        let mut len = 0;
        decompress(compression, packed, most, |bytes, _| len += bytes.len());
        let (mut block, mut at) = (blocks.block_with_len(len), 0);
        let starts = &mut self.blocks;
        let end = decompress(compression, packed, most, |bytes, start| {
            let noted = starts.last().map(|(_, noted)| *noted);
            if noted.is_none_or(|noted: u64| at as u64 >= noted.saturating_add(NOTE_EVERY)) {
                starts.push((start, at as u64));
            }
            if let Some(to) = block.get_mut(at..at + bytes.len()) {
                to.copy_from_slice(bytes);
            }
            at += bytes.len();
        });
        starts.push((end, len as u64));
        self.plain = block.freeze().slice(..len);
    }

    /// Where the damage starts if so many bytes of the records were read, and why: at the
    /// compressed block that has the next one, or before it.
    pub(crate) fn damage(&self, read: u64) -> (u64, String) {
        if read == 0 {
            return (self.at, self.reason.clone());
        }
        let after = self.blocks.partition_point(|(_, plain)| *plain <= read);
        let block = after.checked_sub(1).and_then(|at| self.blocks.get(at));
        let from = self.records + block.map_or(read, |(packed, _)| *packed);
        let unverified = "its records before this were read without a checksum";
        (from, format!("{}; {unverified}", self.reason))
    }
}

/// Passes on what complete blocks hold, at most `most` bytes, with the compressed position before
/// the block. Returns the one behind the last block.
fn decompress(
    compression: ChunkCompression,
    packed: &[u8],
    most: u64,
    to: impl FnMut(&[u8], u64),
) -> u64 {
    match compression {
        ChunkCompression::Zstd => decompress_zstd(packed, most, to),
        ChunkCompression::Lz4 => decompress_lz4(packed, most, to),
        ChunkCompression::None => 0,
    }
}

fn decompress_zstd(packed: &[u8], most: u64, mut to: impl FnMut(&[u8], u64)) -> u64 {
    let (mut context, mut scratch) = (DCtx::create(), vec![0; STEP]);
    let (mut at, mut want, mut left, mut block_at) = (0usize, ZSTD_BLOCK_HEAD, most, 0);
    while left > 0 {
        // Given what the decoder asks for and no more, it reads one block at a time.
        let end = packed.len().min(at.saturating_add(want));
        let part = packed.get(at..end).unwrap_or_default();
        let room = usize::try_from(left).unwrap_or(usize::MAX).min(STEP);
        let out = scratch.get_mut(..room).unwrap_or_default();
        let (mut input, mut output) = (InBuffer::around(part), OutBuffer::around(out));
        let Ok(hint) = context.decompress_stream(&mut output, &mut input) else { break };
        let (read, written) = (input.pos(), output.pos());
        if read == 0 && written == 0 {
            break;
        }
        at += read;
        // Another frame may follow.
        want = if hint == 0 { ZSTD_BLOCK_HEAD } else { hint };
        if written > 0 {
            to(scratch.get(..written).unwrap_or_default(), block_at as u64);
            left -= written as u64;
            block_at = at.saturating_sub(ZSTD_BLOCK_HEAD).max(block_at);
        }
    }
    block_at as u64
}

fn decompress_lz4(packed: &[u8], most: u64, mut to: impl FnMut(&[u8], u64)) -> u64 {
    let (mut decoder, mut scratch) = (FrameDecoder::new(packed), vec![0; STEP]);
    let (mut left, mut block_at, mut end) = (most, 0, 0);
    while left > 0 {
        let room = usize::try_from(left).unwrap_or(usize::MAX).min(STEP);
        let out = scratch.get_mut(..room).unwrap_or_default();
        let Ok(read @ 1..) = decoder.read(out) else { break };
        let now = (packed.len() - decoder.get_ref().len()) as u64;
        if now > end {
            (block_at, end) = (end, now);
        }
        to(out.get(..read).unwrap_or_default(), block_at);
        left -= read as u64;
    }
    end
}
