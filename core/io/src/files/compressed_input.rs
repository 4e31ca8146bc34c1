//! The compressed bytes of a stream, as the decoder takes them.

use std::io::{self, BufRead, BufReader, Read};

use zstd::zstd_safe::DCtx;

use super::ZSTD_MAGIC;
use crate::frames::SKIPPABLE;

/// Compressed bytes. Those of the last two blocks can be read again.
pub(super) struct CompressedInput<R> {
    from: BufReader<R>,
    /// The bytes that were consumed since the last block ended, and those of that block.
    suspect: Vec<u8>,
    block: Vec<u8>,
    /// Bytes that are read again, and how many of them were consumed.
    again: Vec<u8>,
    consumed_again: usize,
    /// How many bytes were consumed for the first time, and how many were to be read again.
    consumed: u64,
    rewound: u64,
}

impl<R: Read> CompressedInput<R> {
    /// The most bytes that are read again at once: a block, with all headers before it.
    const MAX_SUSPECT: usize = (128 << 10) + 64;
    /// How many bytes may be read again for each byte of the input, and on top. Hostile input has
    /// a damaged block at every byte.
    const REWOUND_PER_BYTE: u64 = 4;
    const ALLOWANCE: u64 = 1 << 20;

    pub(super) fn new(from: R) -> Self {
        Self {
            from: BufReader::with_capacity(DCtx::in_size(), from),
            suspect: Vec::new(),
            block: Vec::new(),
            again: Vec::new(),
            consumed_again: 0,
            consumed: 0,
            rewound: 0,
        }
    }

    pub(super) fn fill_buf(&mut self) -> io::Result<&[u8]> {
        match self.again.get(self.consumed_again..) {
            Some(again) if !again.is_empty() => Ok(again),
            _ => self.from.fill_buf(),
        }
    }

    pub(super) fn consume(&mut self, len: usize) {
        let is_again = self.consumed_again < self.again.len();
        let there = match self.again.get(self.consumed_again..) {
            Some(again) if is_again => again,
            _ => self.from.buffer(),
        };
        let free = Self::MAX_SUSPECT.saturating_sub(self.suspect.len());
        self.suspect.extend_from_slice(there.get(..len.min(free)).unwrap_or_default());
        match is_again {
            true => self.consumed_again += len,
            false => {
                self.from.consume(len);
                self.consumed += len as u64;
            }
        }
    }

    /// Whether what follows may be another frame, or is the end. True if it does not come yet.
    pub(super) fn continues_with_frame(&mut self) -> io::Result<bool> {
        let there = match self.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(true),
            there => there?,
        };
        let begins = |magic: [u8; 4], masks: [u8; 4]| {
            let mut expected = magic.iter().zip(masks);
            there.iter().zip(&mut expected).all(|(byte, (magic, mask))| (byte ^ magic) & mask == 0)
        };
        Ok(begins(ZSTD_MAGIC, [0xff; 4]) || begins(SKIPPABLE, [0xf0, 0xff, 0xff, 0xff]))
    }

    /// Takes note that a block ends.
    pub(super) fn end_block(&mut self) {
        std::mem::swap(&mut self.block, &mut self.suspect);
        self.suspect.clear();
    }

    /// What was consumed is not read again.
    pub(super) fn approve(&mut self) {
        self.block.clear();
        self.suspect.clear();
    }

    /// Reads what was consumed since the last block ended again, but for its first byte, unless
    /// that was done too often; `with_block`, also that block. At least one byte is skipped.
    pub(super) fn rewind(&mut self, with_block: bool) {
        let mut again = std::mem::take(&mut self.block);
        if !with_block {
            again.clear();
        }
        let is_whole = again.len().max(self.suspect.len()) < Self::MAX_SUSPECT;
        again.append(&mut self.suspect);
        if again.is_empty() {
            let len = self.fill_buf().map_or(0, |there| there.len().min(1));
            self.consume(len);
            self.suspect.clear();
            return;
        }
        let most = self.consumed.saturating_mul(Self::REWOUND_PER_BYTE) + Self::ALLOWANCE;
        self.rewound += again.len() as u64;
        if self.rewound > most || !is_whole {
            return;
        }
        again.drain(..1);
        again.extend_from_slice(self.again.get(self.consumed_again..).unwrap_or_default());
        (self.again, self.consumed_again) = (again, 0);
    }
}
