//! The compressed bytes of a stream, as the decoder takes them.

use std::io::{self, BufRead, BufReader, Read};

use zstd::zstd_safe::DCtx;

use super::frame_needs::FrameNeeds;
use crate::frames::{LONGEST_HEADER, MAGIC, SKIPPABLE};

/// The bytes of the header of a block.
pub(super) const BLOCK_HEADER: usize = 3;

/// Compressed bytes. Those that were consumed are kept, to be read again if need be.
pub(super) struct CompressedInput<R> {
    from: BufReader<R>,
    /// How much of what was consumed is kept.
    most_kept: usize,
    /// What was consumed and can be read again, and how much of it has given its output.
    kept: Vec<u8>,
    used: usize,
    /// The positions where what can be read again starts, and up to which it has given its output.
    start: u64,
    used_end: u64,
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

    pub(super) fn new(from: R, most_kept: usize) -> Self {
        Self {
            from: BufReader::with_capacity(DCtx::in_size(), from),
            most_kept,
            kept: Vec::new(),
            used: 0,
            start: 0,
            used_end: 0,
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
        let free = self.most_kept.saturating_sub(self.kept.len());
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
        Ok(may_begin_frame(there))
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
        let has_magic = |bytes: &[u8]| bytes.windows(MAGIC.len()).any(|four| four == MAGIC);
        has_magic(kept) || has_magic(&[last, &next].concat())
    }

    /// What the frame needs whose header was to be decoded last, if that is missing, and blocks
    /// follow the header as they do if it is not damaged. Consumes the header and these blocks.
    ///
    /// After an `Err`, such as `WouldBlock`, it can be called again.
    pub(super) fn frame_needs(&mut self) -> io::Result<Option<FrameNeeds>> {
        let mut start: Vec<u8> = self.kept.iter().take(LONGEST_HEADER).copied().collect();
        // The decoder has seen the whole header, so this reads nothing that it needs.
        start.extend(self.fill_buf().unwrap_or_default().iter().take(LONGEST_HEADER));
        let Some(needs) = FrameNeeds::from_start(&start) else { return Ok(None) };
        Ok(self.has_blocks(&needs)?.then_some(needs))
    }

    /// Whether the first blocks behind the header are what they can be, and the end or another
    /// frame follows the last one.
    fn has_blocks(&mut self, needs: &FrameNeeds) -> io::Result<bool> {
        /// Of random bytes, one in 21 passes for the header of a block.
        const ENOUGH: usize = 8;
        const LONGEST: usize = 128 << 10;
        let mut end = needs.header_len;
        for _ in 0..ENOUGH {
            let [a, b, c] = self.keep(end, BLOCK_HEADER)? else { return Ok(false) };
            let header = u32::from_le_bytes([*a, *b, *c, 0]) as usize;
            let (is_last, len) = (header & 1 == 1, header >> 3);
            let stored_len = match header >> 1 & 3 {
                1 => 1,
                3 => return Ok(false),
                _ => len,
            };
            end += BLOCK_HEADER;
            if len > LONGEST || self.keep(end, stored_len)?.len() < stored_len {
                return Ok(false);
            }
            end += stored_len;
            if is_last {
                let checksum_len = if needs.has_checksum { 4 } else { 0 };
                let next = self.keep(end, checksum_len + MAGIC.len())?;
                return Ok(next.get(checksum_len..).is_some_and(may_begin_frame));
            }
        }
        Ok(true)
    }

    /// Consumes up to `len` bytes behind the first `start` of those that can be read again. Returns
    /// them: fewer at the end.
    fn keep(&mut self, start: usize, len: usize) -> io::Result<&[u8]> {
        while self.kept.len() < start + len {
            let part = self.fill_buf()?.len().min(start + len - self.kept.len());
            if part == 0 {
                break;
            }
            self.consume(part);
        }
        let bytes = self.kept.get(start..).unwrap_or_default();
        Ok(bytes.get(..len).unwrap_or(bytes))
    }

    /// How many compressed bytes precede the next one.
    pub(super) fn position(&self) -> u64 {
        self.consumed - self.again.len().saturating_sub(self.consumed_again) as u64
    }

    /// The position of the first byte that can be read again.
    pub(super) fn start(&self) -> u64 {
        self.start
    }

    /// The position behind the last byte that has given its output.
    pub(super) fn used_end(&self) -> u64 {
        self.used_end
    }

    /// Takes note that what was consumed has given its output.
    pub(super) fn note_output(&mut self) {
        (self.used, self.used_end) = (self.kept.len(), self.position());
    }

    /// What has given its output is not read again.
    pub(super) fn drop_used(&mut self) {
        let start = self.used_end;
        self.keep_last(self.kept.len() - self.used);
        (self.start, self.used_end) = (start, start);
    }

    /// Of what was consumed, only the last `len` bytes can be read again.
    pub(super) fn keep_last(&mut self, len: usize) {
        self.kept.drain(..self.kept.len().saturating_sub(len));
        self.used = 0;
        self.start = self.position() - self.kept.len() as u64;
        self.used_end = self.start;
    }

    /// Reads what can be read again, but for its first byte, unless that was done too often.
    pub(super) fn rewind(&mut self) {
        let kept = std::mem::take(&mut self.kept);
        self.put_back(kept);
        self.keep_last(0);
    }

    fn put_back(&mut self, mut kept: Vec<u8>) {
        let len = kept.len();
        let most = self.consumed.saturating_mul(Self::REWOUND_PER_BYTE) + Self::ALLOWANCE;
        self.rewound += len as u64;
        if len == 0 || self.rewound > most || len >= self.most_kept {
            return;
        }
        match self.consumed_again.checked_sub(len) {
            // All of it was read again before: the rest still follows.
            Some(start) if self.again.get(start..self.consumed_again) == Some(&kept[..]) => {
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

/// Whether these bytes are the first ones of a frame, as far as they go.
fn may_begin_frame(bytes: &[u8]) -> bool {
    let begins = |magic: [u8; 4], masks: [u8; 4]| {
        let mut expected = magic.iter().zip(masks);
        bytes.iter().zip(&mut expected).all(|(byte, (magic, mask))| (byte ^ magic) & mask == 0)
    };
    begins(MAGIC, [0xff; 4]) || begins(SKIPPABLE, [0xf0, 0xff, 0xff, 0xff])
}
