//! Reading a log through a window: the current block, which batches share, and lookahead in the log
//! around it. Knows no format.

use std::ops::Range;

use bytes::Bytes;

use sluice_io::ReadBuffer;
use sluice_io::files::LogFile;
use sluice_model::pool::PooledBlock;
use sluice_model::{Error, ErrorKind, ReadContext};

/// The alignment of reads: the system copies twice as fast to aligned addresses.
const ALIGNED: usize = 64;
/// The most bytes kept of one damaged range, for inputs that cannot be read again.
const MAX_KEPT: u64 = 64 << 20;

/// A log that can be read at any position.
pub trait ReadAt {
    /// Fills `buf` from `pos`, and returns the number of bytes read.
    ///
    /// Fewer bytes than requested mean the end of the log; at or after the end the result is 0.
    fn read_at(&mut self, pos: u64, buf: &mut [u8]) -> Result<usize, Error>;

    /// Declares that nothing before `pos` will be read until the current operation ends, so that
    /// long damage in a stream need not be buffered.
    fn forget(&mut self, pos: u64) {
        let _ = pos;
    }
}

impl ReadAt for &[u8] {
    fn read_at(&mut self, pos: u64, buf: &mut [u8]) -> Result<usize, Error> {
        let rest = usize::try_from(pos).ok().and_then(|pos| self.get(pos..)).unwrap_or_default();
        let len = rest.len().min(buf.len());
        if let (Some(to), Some(from)) = (buf.get_mut(..len), rest.get(..len)) {
            to.copy_from_slice(from);
        }
        Ok(len)
    }
}

/// Bytes at a position of a log, followed by a copy of themselves.
pub(crate) struct Doubled<'b> {
    pub(crate) at: u64,
    pub(crate) bytes: &'b [u8],
}

impl ReadAt for Doubled<'_> {
    fn read_at(&mut self, pos: u64, buf: &mut [u8]) -> Result<usize, Error> {
        let skip = pos.checked_sub(self.at).and_then(|skip| usize::try_from(skip).ok());
        let Some(skip) = skip else { return Ok(0) };
        let there = self.bytes.iter().chain(self.bytes).skip(skip);
        Ok(buf.iter_mut().zip(there).map(|(to, from)| *to = *from).count())
    }
}

impl ReadAt for LogFile {
    fn read_at(&mut self, pos: u64, buf: &mut [u8]) -> Result<usize, Error> {
        LogFile::read_at(self, pos, buf)
    }

    fn forget(&mut self, pos: u64) {
        LogFile::forget(self, pos);
    }
}

/// The number of bytes from `pos` to the end of the log, by binary search; it must be less than
/// `most`.
pub fn bytes_from(log: &mut dyn ReadAt, pos: u64, most: u64) -> Result<u64, Error> {
    let mut there = 0..most;
    while there.end - there.start > 1 {
        let middle = there.start + (there.end - there.start) / 2;
        match log.read_at(pos.saturating_add(middle - 1), &mut [0])? {
            0 => there.end = middle,
            _ => there.start = middle,
        }
    }
    Ok(there.start)
}

/// A search reads little at first, because the target is often near, and doubles up to the maximum.
const FIRST_SEARCH: usize = 512;
const LARGEST_SEARCH: usize = 64 * 1024;

/// Searches a range of a log for the start of something. Buffers at most 64 KiB.
#[derive(Debug)]
pub struct Search {
    /// The start of the window.
    start: u64,
    /// The end of the range: matches must start before it.
    until: u64,
    /// The length of a match, less its first byte.
    overlap: usize,
    window: ReadBuffer,
    /// The bytes of the window already searched.
    searched: usize,
    /// The size of the next window.
    size: usize,
    ended: bool,
    forgets: bool,
}

impl Search {
    /// Searches `range` for something recognized by `1 + overlap` bytes.
    pub fn new(range: Range<u64>, overlap: usize) -> Self {
        Self {
            start: range.start,
            until: range.end,
            overlap,
            window: ReadBuffer::default(),
            searched: 0,
            size: FIRST_SEARCH,
            ended: false,
            forgets: false,
        }
    }

    /// Forgets bytes that have been searched: they are not read again.
    pub fn forget(&mut self) {
        self.forgets = true;
    }

    /// The next match of `find`, which returns its offset in the bytes passed, and how many of them
    /// need not be searched again.
    pub fn next(
        &mut self,
        log: &mut dyn ReadAt,
        find: impl Fn(&[u8]) -> Option<(usize, usize)>,
    ) -> Result<Option<u64>, Error> {
        loop {
            let found = find(self.window.get(self.searched..).unwrap_or_default());
            if let Some((at, done)) = found {
                let at = self.start + (self.searched + at) as u64;
                self.searched += done;
                return Ok(Some(at).filter(|at| *at < self.until));
            }
            if self.ended {
                return Ok(None);
            }
            self.slide(log)?;
        }
    }

    /// Reads to the end of the range.
    pub fn skip_to_end(&mut self, log: &mut dyn ReadAt) -> Result<(), Error> {
        self.forgets = true;
        while !self.ended {
            self.slide(log)?;
        }
        Ok(())
    }

    /// Advances the window, except for its last bytes, which may start a match.
    fn slide(&mut self, log: &mut dyn ReadAt) -> Result<(), Error> {
        self.start += self.window.len().saturating_sub(self.overlap).max(self.searched) as u64;
        self.searched = 0;
        if self.forgets {
            log.forget(self.start);
        }
        let wanted = self.until.saturating_sub(self.start).saturating_add(self.overlap as u64);
        let len = usize::try_from(wanted).map_or(self.size, |wanted| wanted.min(self.size));
        let there = self.window.replace(len, |space| log.read_at(self.start, space))?.len();
        self.ended = there < self.size;
        self.size = (self.size * 2).min(LARGEST_SEARCH);
        Ok(())
    }

    /// The end of the bytes read: the end of the log after a complete search.
    pub fn reached(&self) -> u64 {
        self.start + self.window.len() as u64
    }
}

/// The current block, and the log around it.
#[derive(Debug)]
pub(crate) struct BlockWindow {
    pub(crate) file: LogFile,
    context: ReadContext,
    block: Option<PooledBlock>,
    /// The aligned start of data in the block.
    pad: usize,
    /// The position of the block in the log.
    pub(crate) start: u64,
    /// The number of bytes read into the block.
    filled: usize,
    /// The part of the block that may be filled: reused blocks may be longer, which must not decide
    /// how events are batched.
    limit: usize,
    /// Whether the log ended in the block.
    ended: bool,
    /// Whether the block has all that has come of a stream, and more is awaited.
    is_behind: bool,
    kept_from: Option<u64>,
}

impl BlockWindow {
    pub(crate) fn new(file: LogFile, context: &ReadContext) -> Self {
        Self {
            file,
            context: context.clone(),
            block: None,
            pad: 0,
            start: 0,
            filled: 0,
            limit: 0,
            ended: false,
            is_behind: false,
            kept_from: None,
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        let block = self.block.as_ref().map(|block| block.as_slice()).unwrap_or_default();
        block.get(self.pad..self.pad + self.filled).unwrap_or_default()
    }

    /// The bytes of the block from `at` on.
    pub(crate) fn from(&self, at: u64) -> &[u8] {
        let skip = at.checked_sub(self.start).and_then(|skip| usize::try_from(skip).ok());
        skip.and_then(|skip| self.bytes().get(skip..)).unwrap_or_default()
    }

    /// The end of the block in the log.
    pub(crate) fn end(&self) -> u64 {
        self.start.saturating_add(self.filled as u64)
    }

    /// Reads a block at `at`, of at most `want` bytes; of a stream what has come.
    pub(crate) fn load(&mut self, at: u64, want: u64) -> Result<(), Error> {
        let most = self.context.blocks.block_len().saturating_sub(ALIGNED).max(1);
        self.load_at_least(1, at, want.min(most as u64))
    }

    /// Reads `want` bytes at `at` into a block of that size. Only for records that have been
    /// accepted.
    pub(crate) fn load_exactly(&mut self, at: u64, want: u64) -> Result<(), Error> {
        self.load_at_least(usize::MAX, at, want)
    }

    fn load_at_least(&mut self, least: usize, at: u64, want: u64) -> Result<(), Error> {
        let want = usize::try_from(want).unwrap_or(usize::MAX);
        let mut block = self.context.blocks.block_with_len(want.saturating_add(ALIGNED));
        let pad = block.as_ptr().align_offset(ALIGNED).min(ALIGNED);
        let space = block.get_mut(pad..pad + want).unwrap_or_default();
        let read = self.file.read_arrived(at, space, least.min(want))?;
        self.limit = self.context.blocks.block_len().max(pad + want);
        (self.block, self.pad, self.start) = (Some(block), pad, at);
        self.filled = read;
        self.note_end(read < want);
        Ok(())
    }

    /// The log may have ended, if less was read than wanted.
    fn note_end(&mut self, is_short: bool) {
        self.is_behind = is_short && self.file.awaits_more(self.end());
        self.ended = is_short && !self.is_behind;
    }

    /// Whether reading on would wait.
    pub(crate) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Reads more into the rest of the block. False if it is full.
    pub(crate) fn extend(&mut self) -> Result<bool, Error> {
        let Some(block) = &mut self.block else { return Ok(false) };
        let limit = self.limit.min(block.len());
        let free = block.get_mut(self.pad + self.filled..limit).unwrap_or_default();
        if free.is_empty() {
            return Ok(false);
        }
        // A little at a time: mostly one event crosses the end of the block.
        let step = free.len().min(64 << 10);
        let free = free.get_mut(..step).unwrap_or_default();
        let read = self.file.read_arrived(self.start + self.filled as u64, free, 1)?;
        self.filled += read;
        self.note_end(read < step);
        Ok(true)
    }

    pub(crate) fn reaches_end(&self) -> bool {
        self.ended && self.block.is_some()
    }

    pub(crate) fn begins_at(&self, at: u64) -> bool {
        self.block.is_some() && self.start == at
    }

    pub(crate) fn holds(&self, at: u64, end: u64) -> bool {
        self.start <= at && end <= self.start + self.filled as u64
    }

    pub(crate) fn forget_after(&mut self, at: u64) {
        self.filled = at.saturating_sub(self.start).min(self.filled as u64) as usize;
        self.ended = false;
        if let Some(block) = &mut self.block {
            block.truncate(self.pad + self.filled);
        }
    }

    /// Takes the block's bytes, to share them with a batch. The window is empty afterwards.
    pub(crate) fn share(&mut self) -> Bytes {
        // Batches may be kept for long: little is copied, so that they do not hold whole blocks.
        if self.filled < self.context.blocks.block_len() / 4 {
            let bytes = Bytes::copy_from_slice(self.bytes());
            (self.block, self.filled, self.ended) = (None, 0, false);
            return bytes;
        }
        let filled = std::mem::take(&mut self.filled);
        self.ended = false;
        let span = self.pad..self.pad + filled;
        self.block.take().map(|block| block.freeze().slice(span)).unwrap_or_default()
    }

    /// Runs `scan`. `None` if the run was cancelled meanwhile.
    pub(crate) fn scan<T>(
        &mut self,
        scan: impl FnOnce(&mut dyn ReadAt) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        match scan(self) {
            Err(error) if matches!(error.kind(), ErrorKind::Aborted) => Ok(None),
            scanned => scanned.map(Some),
        }
    }

    /// Whether the run was cancelled before anything arrived behind `end`.
    pub(crate) fn is_stopped_at(&mut self, end: u64) -> Result<bool, Error> {
        let may_be = self.context.run.is_cancelled() && !self.file.is_seekable();
        Ok(may_be && self.file.read_at(end, &mut [0])? == 0 && self.file.was_stopped())
    }

    /// Whether reading has found that the log ends at `end` because it cannot be decompressed
    /// further.
    pub(crate) fn is_broken_at(&self, end: u64) -> bool {
        self.file.decompression_error().is_some() && self.file.stream_end() == Some(end)
    }

    /// The buffered bytes of a damaged range; empty if it was too long.
    pub(crate) fn kept_bytes(&mut self, at: u64, end: u64) -> Vec<Bytes> {
        self.kept_from = None;
        let mut bytes = vec![0; (end - at).min(MAX_KEPT) as usize];
        let Ok(read) = self.file.read_at(at, &mut bytes) else { return Vec::new() };
        bytes.truncate(read);
        vec![bytes.into()]
    }

    pub(crate) fn file_changed(&self, at: u64) -> Error {
        Error::malformed(
            self.file.path().to_string_lossy(),
            at,
            "the log changed while it was read; run again when it is complete",
        )
    }
}

impl ReadAt for BlockWindow {
    fn read_at(&mut self, pos: u64, buf: &mut [u8]) -> Result<usize, Error> {
        // Formats may look ahead for long and need not know about runs: check for cancellation
        // here.
        if self.file.is_cancelled() {
            return Err(ErrorKind::Aborted.into());
        }
        if let Some(there) = self.from(pos).get(..buf.len()) {
            buf.copy_from_slice(there);
            return Ok(there.len());
        }
        self.file.read_at(pos, buf)
    }

    fn forget(&mut self, pos: u64) {
        let from = *self.kept_from.get_or_insert(pos);
        if !self.context.damage.keeps_bytes() || pos.saturating_sub(from) > MAX_KEPT {
            self.file.forget(pos);
        }
    }
}
