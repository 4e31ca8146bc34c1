//! The window through which a file that has to be judged is read: a block of it, which batches share, and
//! the file around it for looking ahead. Knows no format.

use std::io;
use std::ops::Range;

use bytes::Bytes;

use crate::files::LogFile;
use crate::pool::PooledBlock;
use crate::{Error, ReadContext};

/// Where blocks are read to: the system copies twice as fast to a multiple of this as to where an
/// allocator puts a long vector.
const ALIGNED: usize = 64;
/// The most damaged bytes of one range that are kept for inputs that cannot be read again.
const MOST_KEPT: u64 = 64 << 20;

/// A log that can be read at any position.
pub trait ReadAt {
    /// Fills as much of `buf` as the log has at `pos`, and says how much that was.
    ///
    /// Fewer bytes than asked mean the end of the log; at or behind it the answer is 0.
    fn read_at(&mut self, pos: u64, buf: &mut [u8]) -> io::Result<usize>;

    /// Says that nothing before `pos` will be asked for until the question at hand is answered: long
    /// damage in a stream need not be kept.
    fn forget(&mut self, pos: u64) {
        let _ = pos;
    }
}

impl ReadAt for &[u8] {
    fn read_at(&mut self, pos: u64, buf: &mut [u8]) -> io::Result<usize> {
        let rest = usize::try_from(pos).ok().and_then(|pos| self.get(pos..)).unwrap_or_default();
        let len = rest.len().min(buf.len());
        if let (Some(to), Some(from)) = (buf.get_mut(..len), rest.get(..len)) {
            to.copy_from_slice(from);
        }
        Ok(len)
    }
}

/// How many bytes the log has from `pos` on, by halving; it has fewer than `most`.
pub fn bytes_from(log: &mut dyn ReadAt, pos: u64, most: u64) -> io::Result<u64> {
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

/// A search begins small, because what it looks for is often near, and doubles up to the largest.
const FIRST_SEARCH: usize = 512;
const LARGEST_SEARCH: usize = 64 * 1024;

/// Looks through a range of a log for where something begins. Holds one window of at most 64 KiB.
#[derive(Debug)]
pub struct Search {
    /// Where the window begins.
    start: u64,
    /// Nothing that begins here or later is wanted.
    until: u64,
    /// How many bytes more than its first what is looked for is told by.
    overlap: usize,
    window: Vec<u8>,
    /// Bytes of the window that have been searched.
    searched: usize,
    /// Bytes the next window is to have.
    size: usize,
    ended: bool,
    forgets: bool,
}

impl Search {
    /// For something in `range` that is told by `1 + overlap` bytes.
    pub fn new(range: Range<u64>, overlap: usize) -> Self {
        Self {
            start: range.start,
            until: range.end,
            overlap,
            window: Vec::new(),
            searched: 0,
            size: FIRST_SEARCH,
            ended: false,
            forgets: false,
        }
    }

    /// Has what has been searched forgotten: it will not be asked for again.
    pub fn forget(&mut self) {
        self.forgets = true;
    }

    /// The next place that `find` finds: it says where in the bytes it is given, and how many of these
    /// need not be looked at again.
    pub fn next(
        &mut self,
        log: &mut dyn ReadAt,
        find: impl Fn(&[u8]) -> Option<(usize, usize)>,
    ) -> io::Result<Option<u64>> {
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

    /// Goes to the end of the range, whatever is there.
    pub fn skip_to_end(&mut self, log: &mut dyn ReadAt) -> io::Result<()> {
        self.forgets = true;
        while !self.ended {
            self.slide(log)?;
        }
        Ok(())
    }

    /// Moves the window on, but for its last bytes, with which something may begin.
    fn slide(&mut self, log: &mut dyn ReadAt) -> io::Result<()> {
        self.start += self.window.len().saturating_sub(self.overlap).max(self.searched) as u64;
        self.searched = 0;
        if self.forgets {
            log.forget(self.start);
        }
        let wanted = self.until.saturating_sub(self.start).saturating_add(self.overlap as u64);
        let len = usize::try_from(wanted).map_or(self.size, |wanted| wanted.min(self.size));
        self.window.resize(len, 0);
        let there = log.read_at(self.start, &mut self.window)?;
        self.window.truncate(there);
        self.ended = there < self.size;
        self.size = (self.size * 2).min(LARGEST_SEARCH);
        Ok(())
    }

    /// The end of what has been read: that of the log, if the search went through all of it.
    pub fn reached(&self) -> u64 {
        self.start + self.window.len() as u64
    }
}

/// The block that is being read, and the log around it.
#[derive(Debug)]
pub(crate) struct BlockWindow {
    pub(crate) file: LogFile,
    context: ReadContext,
    block: Option<PooledBlock>,
    /// Where in the block reading begins.
    pad: usize,
    /// Where the block lies in the log.
    pub(crate) start: u64,
    /// How much of the block has been read.
    filled: usize,
    /// Whether the log ended in it.
    ended: bool,
    failed: Option<Error>,
    /// Whether looking around ended because the run does.
    interrupted: bool,
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
            ended: false,
            failed: None,
            interrupted: false,
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

    /// Where the block ends in the log.
    pub(crate) fn end(&self) -> u64 {
        self.start.saturating_add(self.filled as u64)
    }

    /// Reads at most `want` bytes from `at` on, and at most a block.
    pub(crate) fn load(&mut self, at: u64, want: u64) -> Result<(), Error> {
        let most = self.context.blocks.block_len().saturating_sub(ALIGNED).max(1);
        self.load_exactly(at, want.min(most as u64))
    }

    /// Reads `want` bytes from `at` on, for which a block is made. Only for what has been judged.
    pub(crate) fn load_exactly(&mut self, at: u64, want: u64) -> Result<(), Error> {
        let want = usize::try_from(want).unwrap_or(usize::MAX);
        let mut block = self.context.blocks.block_with_len(want.saturating_add(ALIGNED));
        let pad = block.as_ptr().align_offset(ALIGNED).min(ALIGNED);
        let read = self.file.read_at(at, block.get_mut(pad..pad + want).unwrap_or_default())?;
        (self.block, self.pad, self.start) = (Some(block), pad, at);
        (self.filled, self.ended) = (read, read < want);
        Ok(())
    }

    /// Reads on into what is left of the block. False if it is full.
    pub(crate) fn extend(&mut self) -> Result<bool, Error> {
        let Some(block) = &mut self.block else { return Ok(false) };
        let room = block.get_mut(self.pad + self.filled..).unwrap_or_default();
        if room.is_empty() {
            return Ok(false);
        }
        // A little at a time: mostly one event lies across the end of what was asked for.
        let step = room.len().min(64 << 10);
        let room = room.get_mut(..step).unwrap_or_default();
        let read = self.file.read_at(self.start + self.filled as u64, room)?;
        self.filled += read;
        self.ended = read < step;
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

    /// The block's bytes, to be shared with a batch. The window is empty afterwards.
    pub(crate) fn share(&mut self) -> Bytes {
        let filled = std::mem::take(&mut self.filled);
        self.ended = false;
        let span = self.pad..self.pad + filled;
        self.block.take().map(|block| block.freeze().slice(span)).unwrap_or_default()
    }

    /// Lets `scan` read, with its errors kept as what they are. Nothing if the run ended meanwhile: what was
    /// found by then is no answer.
    pub(crate) fn scan<T>(
        &mut self,
        scan: impl FnOnce(&mut dyn ReadAt) -> io::Result<T>,
    ) -> Result<Option<T>, Error> {
        let scanned = scan(self);
        if self.interrupted {
            return Ok(None);
        }
        scanned.map(Some).map_err(|error| {
            self.failed.take().unwrap_or_else(|| Error::io("read", self.file.path(), error))
        })
    }

    /// What a stream still has of a damaged range; nothing if it was too long to be kept.
    pub(crate) fn kept_bytes(&mut self, at: u64, end: u64) -> Vec<Bytes> {
        self.kept_from = None;
        let mut bytes = vec![0; (end - at).min(MOST_KEPT) as usize];
        let Ok(read) = self.file.read_at(at, &mut bytes) else { return Vec::new() };
        bytes.truncate(read);
        vec![bytes.into()]
    }

    pub(crate) fn file_changed(&self, at: u64) -> Error {
        Error::malformed(
            self.file.path().to_string_lossy(),
            at,
            "the log changed while it was read; run again when it is no longer written to",
        )
    }
}

impl ReadAt for BlockWindow {
    fn read_at(&mut self, pos: u64, buf: &mut [u8]) -> io::Result<usize> {
        // A format may look around for long; it need not know of runs.
        if self.context.is_cancelled() {
            self.interrupted = true;
            return Err(io::ErrorKind::Other.into());
        }
        if let Some(there) = self.from(pos).get(..buf.len()) {
            buf.copy_from_slice(there);
            return Ok(there.len());
        }
        self.file.read_at(pos, buf).map_err(|error| {
            self.failed = Some(error);
            io::ErrorKind::Other.into()
        })
    }

    fn forget(&mut self, pos: u64) {
        let from = *self.kept_from.get_or_insert(pos);
        if !self.context.keep_damaged_bytes || pos.saturating_sub(from) > MOST_KEPT {
            self.file.forget(pos);
        }
    }
}
