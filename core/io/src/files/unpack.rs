//! Decompression of streams, a block at a time. What the checksum of a short frame shows to be
//! wrong is not passed on, nor what may be the bytes of other frames: a stored block whose length
//! is damaged takes them in.

use std::fmt;
use std::io::{self, Read};
use std::ops::Range;

use zstd::stream::raw::{DParameter, Decoder, InBuffer, Operation, OutBuffer};

use super::compressed_input::{BLOCK_HEADER, CompressedInput};
use super::frame_needs::MAX_WINDOW_LOG;
use super::upstream_error::UpstreamError;
use crate::ReadBuffer;
use crate::frames::{DEFAULT_LEN, MAGIC};

/// The bytes that show how a frame starts.
const FIRST: usize = 5;
/// The most bytes that wait for the checksum of their frame: those of the frames that we write.
pub(super) const MAX_WAITING: usize = DEFAULT_LEN;
/// The same for a frame that was searched for, and for what follows it.
const MAX_FOUND: usize = 16 * MAX_WAITING;
/// The bytes decompressed at a time: the most that a block holds.
const STEP: usize = 128 << 10;
/// The most compressed bytes that are kept of a frame that waits. Stored blocks are longer than
/// what they hold, and empty ones hold nothing.
const MAX_KEPT: usize = 2 * MAX_FOUND + 2 * STEP;

/// What decompressing a block, or a part of one, came to.
enum Step {
    /// Something may have been decompressed.
    Content,
    /// The header of a block is there, and right as far as it can tell: so the block before it
    /// ends where it should.
    Header,
    /// The stream ends.
    End,
}

/// Decompresses a stream that is compressed with zstd.
///
/// The decoder is given one block at a time: it drops what it has decompressed in a call that
/// meets damage. So all blocks before that are there, however the compressed bytes arrive.
pub(super) struct Unpacker<R> {
    from: CompressedInput<R>,
    decoder: Decoder<'static>,
    /// How much the decoder wants: mostly the rest of a block and the header of the next.
    wanted: usize,
    /// Whether the stream may end here: behind a frame.
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
    /// Why decompression failed, if the bytes that show what the frame needs do not come yet.
    undecided: Option<io::Error>,
    /// Whether nothing was decompressed before.
    is_first_block: bool,
    /// Whether the frame was searched for. It may be one that the damaged frame contains, as
    /// payloads may be compressed: then neither a frame nor the end follows it.
    is_found: bool,
    /// While it looks for the next frame: the last four bytes read, the first in the lowest bits.
    search: Option<u32>,
    /// The compressed position where the frame starts that was searched for last.
    found_at: u64,
    /// The compressed position from which on nothing was passed on when decompression failed.
    failed_at: u64,
    /// The one from which on something was passed on since it was resumed.
    resumed_at: Option<u64>,
}

impl<R: Read> Unpacker<R> {
    pub(super) fn new(from: R) -> io::Result<Self> {
        let mut decoder = Decoder::new()?;
        decoder.set_parameter(DParameter::WindowLogMax(MAX_WINDOW_LOG))?;
        Ok(Self {
            from: CompressedInput::new(from, MAX_KEPT),
            decoder,
            wanted: FIRST,
            is_between: false,
            is_cut_off: false,
            may_hold: false,
            plain: ReadBuffer::default(),
            ready: 0..0,
            skips_checksums: false,
            passed: None,
            failure: None,
            undecided: None,
            is_first_block: true,
            is_found: false,
            search: None,
            found_at: 0,
            failed_at: 0,
            resumed_at: None,
        })
    }

    /// Passes on what is decompressed at once: for who looks at the first bytes only.
    pub(super) fn skip_checksums(&mut self) {
        self.skips_checksums = true;
    }

    /// Goes on behind damage, with the next frame: whatever starts with the magic number of one.
    /// Frames are searched for from the start of what was not passed on, as damaged lengths of
    /// blocks hide them.
    pub(super) fn resume(&mut self) {
        self.from.rewind();
        (self.search, self.resumed_at) = (Some(0), None);
    }

    /// The compressed position from which on nothing was passed on when decompression failed.
    pub(super) fn failed_at(&self) -> u64 {
        self.failed_at
    }

    /// The compressed position of what was passed on first since it was [resumed](Self::resume); up
    /// to where it was read if nothing was.
    pub(super) fn resumed_at(&self) -> u64 {
        self.resumed_at.unwrap_or_else(|| self.from.position())
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
                last == u32::from_le_bytes(MAGIC)
            };
            let (used, is_found) = match there.iter().position(is_magic) {
                Some(at) => (at + 1, true),
                None => (there.len(), false),
            };
            self.from.consume(used);
            self.from.keep_last(0);
            self.search = Some(last);
            if is_found {
                return Ok(true);
            }
        }
    }

    /// Begins the frame whose magic number has been read.
    fn begin_frame(&mut self) -> io::Result<()> {
        self.decoder.reinit()?;
        let (mut magic, mut nothing) = (InBuffer::around(&MAGIC), [0; 0]);
        self.wanted = self.decoder.run(&mut magic, &mut OutBuffer::around(&mut nothing[..]))?;
        (self.is_between, self.is_cut_off, self.may_hold) = (false, false, false);
        (self.is_found, self.passed) = (true, None);
        self.found_at = self.from.position().saturating_sub(MAGIC.len() as u64);
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
        self.from.keep_last(0);
        match self.passed.take().filter(|_| is_part) {
            Some(len) => {
                self.plain.discard(usize::MAX);
                self.failed_at = self.from.position();
                let why = "what looked like a frame is followed by none";
                return Err(io::Error::other(unverified(why, len)));
            }
            None if is_part => {
                self.plain.discard(usize::MAX);
                self.search = Some(0);
            }
            None => self.set_ready(),
        }
        Ok(())
    }

    /// Decompresses up to a block behind what is there. Nothing is wanted behind a frame.
    fn step(&mut self) -> io::Result<Step> {
        if self.wanted == 0 {
            self.decoder.reinit()?;
            (self.wanted, self.is_between) = (FIRST, true);
        }
        let there = if self.may_hold { &[] } else { self.from.fill_buf()? };
        if there.is_empty() && !self.may_hold {
            return match self.is_between {
                true => Ok(Step::End),
                false => {
                    self.is_cut_off = true;
                    Err(io::Error::new(io::ErrorKind::UnexpectedEof, "incomplete frame"))
                }
            };
        }
        // A header by itself: if it is damaged, the block before it is not dropped.
        let is_header = self.wanted <= BLOCK_HEADER;
        let wanted = if is_header { self.wanted } else { self.wanted - BLOCK_HEADER };
        let mut from = InBuffer::around(there.get(..wanted).unwrap_or(there));
        let written = self.plain.append(STEP, |space| -> io::Result<usize> {
            let mut to = OutBuffer::around(space);
            self.wanted = self.decoder.run(&mut from, &mut to)?;
            Ok(to.pos())
        })?;
        let used = from.pos();
        self.from.consume(used);
        if written > 0 {
            self.from.note_output();
            self.is_first_block = false;
        }
        self.is_between &= used == 0;
        // Behind a frame, it holds nothing.
        self.may_hold = self.wanted > 0 && written == STEP;
        Ok(if is_header && used == wanted && written == 0 { Step::Header } else { Step::Content })
    }

    /// Decompresses until something is ready, or something fails. False at the end.
    fn fill(&mut self) -> io::Result<bool> {
        self.plain.discard(usize::MAX);
        self.ready = 0..0;
        while self.ready.is_empty() {
            if !self.search_on()? {
                return Ok(false);
            }
            match self.undecided.take().map_or_else(|| self.step(), Err) {
                Ok(Step::End) => return Ok(false),
                Ok(_) if self.wanted == 0 => self.end_frame()?,
                Ok(Step::Header) if self.is_passing() => self.pass(),
                Ok(_) if self.skips_checksums => self.pass(),
                Ok(_) => {}
                // Nobody waits for the rest of a frame that comes slowly.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.plain.is_empty() {
                        return Err(error);
                    }
                    self.pass();
                }
                Err(error) => {
                    let error = self.fail(error);
                    if self.plain.is_empty() {
                        return Err(error);
                    }
                    self.pass();
                    self.failure = Some(error);
                }
            }
        }
        Ok(true)
    }

    /// Whether the frame is passed on before its end.
    fn is_passing(&self) -> bool {
        let max = if self.is_found { MAX_FOUND } else { MAX_WAITING };
        self.passed.is_some() || self.plain.len() > max || self.from.kept_len() > 2 * max
    }

    /// Passes on what there is of the frame.
    fn pass(&mut self) {
        self.from.drop_used();
        self.set_ready();
        *self.passed.get_or_insert(0) += self.plain.len() as u64;
    }

    fn set_ready(&mut self) {
        self.ready = 0..self.plain.len();
        if !self.plain.is_empty() {
            self.resumed_at.get_or_insert(self.found_at);
        }
    }

    /// Drops what is wrong of a frame that cannot be read to its end, and what may be no part of
    /// the log. Says how much of the frame remains: the damage may begin there, and no checksum
    /// tells. Drops nothing yet if reading fails.
    fn fail(&mut self, error: io::Error) -> io::Error {
        if error.kind() != io::ErrorKind::Other && !self.is_cut_off || UpstreamError::is(&error) {
            return error;
        }
        if !self.is_found && self.passed.is_none_or(|len| len == 0) {
            match self.from.frame_needs() {
                Ok(Some(needs)) => return io::Error::new(io::ErrorKind::Unsupported, needs.advice),
                Ok(None) => {}
                Err(unread) => {
                    self.undecided = Some(error);
                    return unread;
                }
            }
        }
        let is_checked = is_checksum_error(&error);
        let may_need_dictionary = self.is_first_block && !self.is_found && !self.is_cut_off;
        let error = match may_need_dictionary && !is_checked {
            true => io::Error::other(format!("{error} ({DICTIONARY})")),
            false => error,
        };
        // With another frame behind its checksum, its length is right: what it holds is its own.
        let is_whole = is_checked && {
            self.from.consume(self.wanted);
            self.from.continues_with_frame().unwrap_or(true)
        };
        // What was found counts only if it is whole, or the log ends in it.
        let is_wrong = self.is_found && !self.is_cut_off || is_checked && self.passed.is_none();
        let is_dropped = is_wrong || !is_whole && self.from.keeps_frame();
        self.failed_at = match self.passed {
            _ if !is_dropped => self.from.used_end(),
            None if self.is_found => self.found_at,
            _ => self.from.start(),
        };
        if is_dropped {
            self.plain.discard(usize::MAX);
        }
        if is_whole {
            self.from.keep_last(1);
        }
        let what = match is_checked {
            true => "the checksum of a frame is wrong".to_owned(),
            false if self.is_cut_off => error.to_string(),
            false => format!("{error} in a frame"),
        };
        match self.passed.unwrap_or(0) + self.plain.len() as u64 {
            0 if is_dropped => io::Error::other(format!("{what}, and the frame is left out")),
            len @ 1.. if !self.is_cut_off || self.is_found => {
                io::Error::other(unverified(what, len))
            }
            _ => error,
        }
    }
}

/// What the first block of a log may be, instead of damaged.
const DICTIONARY: &str = "if it was compressed with a dictionary, decompress it with that first: \
                          zstd -d -D DICTIONARY FILE";

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
