//! The compressed bytes of a stream, as the decoder takes them.

use std::io::{self, BufRead, BufReader, Read};

use zstd::zstd_safe::DCtx;

/// Compressed bytes. Those that were consumed since the decoder last gave any can be read again.
pub(super) struct CompressedInput<R> {
    from: BufReader<R>,
    /// The bytes that were consumed and not approved.
    suspect: Vec<u8>,
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

    /// What was consumed is not read again.
    pub(super) fn approve(&mut self) {
        self.suspect.clear();
    }

    /// Reads what was consumed again, but for its first byte, unless that was done too often. At
    /// least one byte is skipped.
    pub(super) fn rewind(&mut self) {
        if self.suspect.is_empty() {
            let len = self.fill_buf().map_or(0, |there| there.len().min(1));
            self.consume(len);
        }
        let most = self.consumed.saturating_mul(Self::REWOUND_PER_BYTE) + Self::ALLOWANCE;
        let mut again = std::mem::take(&mut self.suspect);
        self.rewound += again.len() as u64;
        if self.rewound > most || again.len() == Self::MAX_SUSPECT {
            return;
        }
        again.drain(..again.len().min(1));
        again.extend_from_slice(self.again.get(self.consumed_again..).unwrap_or_default());
        (self.again, self.consumed_again) = (again, 0);
    }
}
