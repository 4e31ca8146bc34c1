//! The compressed bytes of a stream, as the decoder takes them.

use std::io::{self, BufRead, BufReader, Read};

use zstd::zstd_safe::DCtx;

use super::ZSTD_MAGIC;
use super::unpack::{BLOCK_HEADER, MAX_KEPT};
use crate::frames::SKIPPABLE;

/// Compressed bytes. Those that were consumed are kept, to be read again if need be.
pub(super) struct CompressedInput<R> {
    from: BufReader<R>,
    /// What was consumed and can be read again, and how much of it has given its output.
    kept: Vec<u8>,
    used: usize,
    /// Bytes that are read again, and how many of them were consumed.
    again: Vec<u8>,
    consumed_again: usize,
    /// How many bytes were consumed for the first time, and how many were to be read again.
    consumed: u64,
    rewound: u64,
}

impl<R: Read> CompressedInput<R> {
    /// How many bytes may be read again for each byte of the input, and on top. Hostile input has
    /// a damaged block at every byte.
    const REWOUND_PER_BYTE: u64 = 4;
    const ALLOWANCE: u64 = 1 << 20;

    pub(super) fn new(from: R) -> Self {
        Self {
            from: BufReader::with_capacity(DCtx::in_size(), from),
            kept: Vec::new(),
            used: 0,
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
        // Of a long skippable frame, only the first bytes.
        let free = MAX_KEPT.saturating_sub(self.kept.len());
        self.kept.extend_from_slice(there.get(..len.min(free)).unwrap_or_default());
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

    /// How many bytes can be read again.
    pub(super) fn kept_len(&self) -> usize {
        self.kept.len()
    }

    /// Whether a frame seems to begin in what can be read again, behind its first byte, or in the
    /// header of a block that follows.
    pub(super) fn keeps_frame(&mut self) -> bool {
        let next = self.fill_buf().unwrap_or_default();
        let next: Vec<u8> = next.iter().take(BLOCK_HEADER).copied().collect();
        let kept = self.kept.get(1..).unwrap_or_default();
        let last = kept.get(kept.len().saturating_sub(BLOCK_HEADER)..).unwrap_or_default();
        let has_magic =
            |bytes: &[u8]| bytes.windows(ZSTD_MAGIC.len()).any(|four| four == ZSTD_MAGIC);
        has_magic(kept) || has_magic(&[last, &next].concat())
    }

    /// Takes note that what was consumed has given its output.
    pub(super) fn note_output(&mut self) {
        self.used = self.kept.len();
    }

    /// What has given its output is not read again.
    pub(super) fn drop_used(&mut self) {
        self.keep_last(self.kept.len() - self.used);
    }

    /// Of what was consumed, only the last `len` bytes can be read again.
    pub(super) fn keep_last(&mut self, len: usize) {
        self.kept.drain(..self.kept.len().saturating_sub(len));
        self.used = 0;
    }

    /// Reads what can be read again, but for its first byte, unless that was done too often.
    pub(super) fn rewind(&mut self) {
        let len = self.kept.len();
        let mut kept = std::mem::take(&mut self.kept);
        self.used = 0;
        let most = self.consumed.saturating_mul(Self::REWOUND_PER_BYTE) + Self::ALLOWANCE;
        self.rewound += len as u64;
        if len == 0 || self.rewound > most || len >= MAX_KEPT {
            return;
        }
        match self.consumed_again.checked_sub(len) {
            // All of it was read again before: the rest still follows.
            Some(start) if self.again.get(start..self.consumed_again) == Some(&*kept) => {
                self.consumed_again = start + 1;
            }
            _ => {
                kept.drain(..1);
                kept.extend_from_slice(self.again.get(self.consumed_again..).unwrap_or_default());
                (self.again, self.consumed_again) = (kept, 0);
            }
        }
    }
}
