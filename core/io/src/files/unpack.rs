//! Decompression of streams, a block at a time. What the checksum of a short frame shows to be
//! wrong is not passed on.

use std::fmt;
use std::io::{self, Read};
use std::ops::Range;

use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};

use super::ZSTD_MAGIC;
use super::compressed_input::CompressedInput;
use super::stream::UpstreamError;
use crate::ReadBuffer;
use crate::frames::DEFAULT_LEN;

/// The bytes that show how a frame starts.
const FIRST: usize = 5;
/// The bytes of the header of a block.
const BLOCK_HEADER: usize = 3;
/// The most bytes that wait for the checksum of their frame: those of the frames that we write.
pub(super) const MAX_WAITING: usize = DEFAULT_LEN;
/// The same for a frame that was searched for, and for what follows it.
const MAX_FOUND: usize = 16 * MAX_WAITING;
/// The bytes decompressed at a time: the most that a block holds.
const STEP: usize = 128 << 10;

/// Decompresses a stream that is compressed with zstd.
///
/// The decoder is given one block at a time: it drops what it has decompressed in a call that
/// meets damage. So all blocks before that are there, however the compressed bytes arrive.
pub(super) struct Unpacker<R> {
    from: CompressedInput<R>,
    decoder: Decoder<'static>,
    /// How much the decoder wants: mostly the rest of a block and the header of the next.
    wanted: usize,
    /// Whether a frame may begin here, or the stream end.
    is_between: bool,
    /// Whether the stream ended within a frame.
    is_cut_off: bool,
    /// Whether the decoder may hold decompressed bytes.
    may_hold: bool,
    /// What is decompressed.
    plain: ReadBuffer,
    /// How much of it is passed on, and may be.
    ready: Range<usize>,
    /// Whether no frame waits for its checksum.
    skips_checksums: bool,
    /// If the frame is passed on before its checksum is seen, as it is long or comes slowly: how
    /// much of it was.
    passed: Option<u64>,
    /// Why nothing follows what is ready.
    failure: Option<io::Error>,
    /// Whether the frame was searched for. It may be one that the damaged frame contains, as
    /// payloads may be compressed: then neither a frame nor the end follows it.
    is_found: bool,
    /// While it looks for the next frame: the last four bytes read, the first in the lowest bits.
    search: Option<u32>,
}

impl<R: Read> Unpacker<R> {
    pub(super) fn new(from: R) -> io::Result<Self> {
        Ok(Self {
            from: CompressedInput::new(from),
            decoder: Decoder::new()?,
            wanted: FIRST,
            is_between: true,
            is_cut_off: false,
            may_hold: false,
            plain: ReadBuffer::default(),
            ready: 0..0,
            skips_checksums: false,
            passed: None,
            failure: None,
            is_found: false,
            search: None,
        })
    }

    /// Passes on what is decompressed at once: for who looks at the first bytes only.
    pub(super) fn skip_checksums(&mut self) {
        self.skips_checksums = true;
    }

    /// Goes on behind damage, with the next frame: whatever starts with the magic number of one.
    /// Frames are searched for from the damaged block on, so that damage of its length hides none;
    /// if no block follows another one, or not enough, from that on, whose length may be wrong.
    pub(super) fn resume(&mut self) {
        self.from.rewind(self.wanted <= BLOCK_HEADER || self.is_cut_off);
        self.search = Some(0);
    }

    /// Moves behind the magic number of the next frame. False at the end.
    fn find_frame(&mut self, mut last: u32) -> io::Result<bool> {
        loop {
            let there = self.from.fill_buf()?;
            if there.is_empty() {
                return Ok(false);
            }
            let is_magic = |byte: &u8| {
                last = last >> 8 | u32::from(*byte) << 24;
                last == u32::from_le_bytes(ZSTD_MAGIC)
            };
            let (used, is_found) = match there.iter().position(is_magic) {
                Some(at) => (at + 1, true),
                None => (there.len(), false),
            };
            self.from.consume(used);
            self.from.approve();
            self.search = Some(last);
            if is_found {
                return Ok(true);
            }
        }
    }

    /// Begins the frame whose magic number has been read.
    fn begin_frame(&mut self) -> io::Result<()> {
        self.decoder.reinit()?;
        let (mut magic, mut nothing) = (InBuffer::around(&ZSTD_MAGIC), [0; 0]);
        self.wanted = self.decoder.run(&mut magic, &mut OutBuffer::around(&mut nothing[..]))?;
        (self.is_between, self.is_cut_off, self.may_hold) = (false, false, false);
        (self.is_found, self.passed) = (true, None);
        Ok(())
    }

    /// Moves to the next frame and begins it, if one is searched for. False if there is none.
    fn search_on(&mut self) -> io::Result<bool> {
        let Some(last) = self.search else { return Ok(true) };
        if !self.find_frame(last)? {
            return Ok(false);
        }
        self.search = None;
        self.begin_frame().map(|()| true)
    }

    /// Takes note of the end of a frame, which is passed on unless it is part of another one.
    fn end_frame(&mut self) -> io::Result<()> {
        let is_part = std::mem::take(&mut self.is_found) && !self.from.continues_with_frame()?;
        match self.passed.take().filter(|_| is_part) {
            Some(len) => {
                self.plain.discard(usize::MAX);
                let why = "what looked like a frame is followed by none";
                return Err(io::Error::other(unverified(why, len)));
            }
            None if is_part => {
                self.plain.discard(usize::MAX);
                self.search = Some(0);
            }
            None => self.ready = 0..self.plain.len(),
        }
        Ok(())
    }

    /// Decompresses up to a block, and returns how many bytes that gave; `None` at the end. Nothing
    /// is wanted behind a frame.
    fn step(&mut self, to: &mut [u8]) -> io::Result<Option<usize>> {
        if self.wanted == 0 {
            self.decoder.reinit()?;
            (self.wanted, self.is_between) = (FIRST, true);
        }
        let there = if self.may_hold { &[] } else { self.from.fill_buf()? };
        if there.is_empty() && !self.may_hold {
            return match self.is_between {
                true => Ok(None),
                false => {
                    self.is_cut_off = true;
                    Err(io::Error::new(io::ErrorKind::UnexpectedEof, "incomplete frame"))
                }
            };
        }
        // A header by itself: if it is damaged, the block before it is not dropped.
        let wanted = match self.wanted {
            wanted @ ..=BLOCK_HEADER => wanted,
            wanted => wanted - BLOCK_HEADER,
        };
        let mut from = InBuffer::around(there.get(..wanted).unwrap_or(there));
        let space = to.len();
        let mut to = OutBuffer::around(to);
        self.wanted = self.decoder.run(&mut from, &mut to)?;
        let (used, written) = (from.pos(), to.pos());
        self.from.consume(used);
        if written > 0 && used == wanted || self.wanted == 0 {
            self.from.end_block();
        }
        self.is_between &= used == 0;
        // Behind a frame, it holds nothing.
        self.may_hold = self.wanted > 0 && written == space;
        Ok(Some(written))
    }

    /// Decompresses until something is ready, or something fails. False at the end.
    fn fill(&mut self) -> io::Result<bool> {
        self.plain.discard(usize::MAX);
        self.ready = 0..0;
        while self.ready.is_empty() {
            if !self.search_on()? {
                return Ok(false);
            }
            let mut plain = std::mem::take(&mut self.plain);
            let mut is_end = false;
            let stepped = plain.append(STEP, |space| {
                let written = self.step(space)?;
                is_end = written.is_none();
                Ok(written.unwrap_or(0))
            });
            self.plain = plain;
            let is_whole = self.wanted == 0;
            match stepped {
                Ok(_) if is_end => return Ok(false),
                Ok(_) if is_whole => self.end_frame()?,
                Ok(_) if self.is_passing() => self.pass(),
                Ok(_) => {}
                Err(error) if is_checksum_error(&error) => return Err(self.wrong_checksum()),
                // Nobody waits for the rest of a frame that comes slowly.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.plain.is_empty() {
                        return Err(error);
                    }
                    self.pass();
                }
                Err(error) => {
                    let error = self.with_unverified(error);
                    if self.plain.is_empty() {
                        return Err(error);
                    }
                    (self.ready, self.failure) = (0..self.plain.len(), Some(error));
                }
            }
        }
        Ok(true)
    }

    /// Whether the frame is passed on before its end.
    fn is_passing(&self) -> bool {
        let max = if self.is_found { MAX_FOUND } else { MAX_WAITING };
        self.skips_checksums || self.passed.is_some() || self.plain.len() > max
    }

    /// Passes on what there is of the frame.
    fn pass(&mut self) {
        self.ready = 0..self.plain.len();
        *self.passed.get_or_insert(0) += self.plain.len() as u64;
    }

    fn wrong_checksum(&mut self) -> io::Error {
        self.plain.discard(usize::MAX);
        let why = "the checksum of a frame is wrong";
        io::Error::other(match self.passed {
            None => format!("{why}, and the frame is left out"),
            Some(len) => unverified(why, len),
        })
    }

    /// Adds to what is wrong with a block how much precedes it in its frame: the damage may begin
    /// there, and no checksum tells.
    fn with_unverified(&self, error: io::Error) -> io::Error {
        let len = self.passed.unwrap_or(0) + self.plain.len() as u64;
        let is_damage = error.kind() == io::ErrorKind::Other && !UpstreamError::is(&error);
        match is_damage && len > 0 {
            true => io::Error::other(unverified(format_args!("{error} in a frame"), len)),
            false => error,
        }
    }
}

fn unverified(why: impl fmt::Display, len: u64) -> String {
    format!("{why}; {len} bytes of it were read before that, and what they hold may be wrong")
}

fn is_checksum_error(error: &io::Error) -> bool {
    // The only name of an error that has this word.
    error.kind() == io::ErrorKind::Other && error.to_string().contains("checksum")
}

impl<R: Read> Read for Unpacker<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.ready.is_empty() {
            if let Some(failure) = self.failure.take() {
                return Err(failure);
            }
            if !self.fill()? {
                return Ok(0);
            }
        }
        let len = self.ready.len().min(buffer.len());
        let from = self.ready.start..self.ready.start + len;
        if let (Some(to), Some(from)) = (buffer.get_mut(..len), self.plain.get(from)) {
            to.copy_from_slice(from);
        }
        self.ready.start += len;
        Ok(len)
    }
}
