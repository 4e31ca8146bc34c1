//! Goes through a log from front to back, block by block, and gives batches whose payloads lie in the
//! blocks. Damage is stepped over and reported; where it begins and ends is [`scan`]'s word.

use std::io;
use std::path::Path;
use std::sync::Arc;

use sluice_core::files::LogFile;
use sluice_core::pool::Block;
use sluice_core::{
    Batch, BatchBuilder, ChannelIds, Damage, Encoding, Entry, Error, Place, ReadContext, Reader,
    Seam, Split,
};

use crate::scan::{self, Limits, ReadAt, Verdict};
use crate::wire::{HEADER_LEN, Header, SYNC};

/// What is read beyond a split's end at first, for the event that lies across it.
const OVERHANG: u64 = 4 << 10;
/// How far a log may have grown, since it was cut into splits, for the last split still to read it all.
const MOST_GROWTH: u64 = 4 << 20;
/// Room that a batch is begun with; columns are used again, so that more than is needed costs little.
pub(crate) const LIKELY_EVENTS: usize = 8 << 10;
/// Where blocks are read to: the system copies twice as fast to a multiple of this as to where an
/// allocator puts a long vector.
const ALIGNED: usize = 64;
/// Nanoseconds a microsecond.
pub(crate) const MICRO: i64 = 1_000;
/// The most damaged bytes of one range that are kept for inputs that cannot be read again.
const MOST_KEPT: u64 = 64 << 20;

/// Reads one split of a log.
pub struct LogReader {
    log: Window,
    limits: Limits,
    context: ReadContext,
    input: Arc<str>,
    ids: ChannelIds,
    start: u64,
    /// Where reading is.
    at: u64,
    /// Events that begin here or later are of the next split.
    end: u64,
    /// Where the log is known to go on to.
    expected: u64,
    began: Option<u64>,
    done: bool,
}

impl LogReader {
    /// Opens a log at a split.
    pub fn open(
        path: &Path,
        split: &Split,
        entry: Entry,
        limits: Limits,
        context: &ReadContext,
    ) -> Result<Self, Error> {
        let mut log = Window::new(LogFile::open(path)?, context.keep_damaged_bytes);
        let grown = |bytes: u64| split.start.saturating_add(bytes).saturating_add(MOST_GROWTH);
        let end = split.end.or(split.bytes.map(grown)).unwrap_or(u64::MAX);
        let began = match entry {
            Entry::At(at) => Some(at),
            Entry::Search => {
                log.load(
                    context,
                    split.start,
                    end.saturating_sub(split.start).saturating_add(OVERHANG),
                )?;
                let range = split.start..end;
                log.scanning(|log| scan::next_event(log, range, &limits))?
            }
        };
        let expected = split.bytes.map_or(0, |bytes| split.start.saturating_add(bytes));
        Ok(Self {
            log,
            limits,
            input: path.to_string_lossy().into(),
            ids: ChannelIds::new(
                Arc::clone(&context.source),
                Encoding::Lcm,
                Arc::clone(&context.channels),
            ),
            context: context.clone(),
            start: split.start,
            at: began.unwrap_or(end),
            end,
            expected: split.end.unwrap_or(expected),
            began,
            done: began.is_none(),
        })
    }

    /// Reads events until the block is used up or the split ends.
    fn fill(&mut self) -> Result<Batch, Error> {
        let (mut batch, from) = (BatchBuilder::with_capacity(LIKELY_EVENTS), self.at);
        while self.at < self.end {
            match self.hop(&mut batch)? {
                Hop::Event => {}
                // What is there of the event has to stay with what follows: the block is full.
                Hop::NextBlock if !batch.is_empty() => break,
                Hop::NextBlock => self.load_next()?,
                Hop::Slow => {
                    if !self.step(&mut batch)? {
                        self.done = true;
                        break;
                    }
                }
            }
        }
        self.done |= self.at >= self.end;
        self.context.count_read(self.at - from);
        self.log.file.forget(self.at);
        if !batch.is_empty() {
            batch.segment(self.log.share());
        }
        Ok(batch.finish())
    }

    /// The fast path: all events that lie in the block whole, each with a sync word behind it.
    #[inline]
    fn hop(&mut self, batch: &mut BatchBuilder) -> Result<Hop, Error> {
        let start = self.log.start;
        let bytes = self.log.bytes();
        let stop = usize::try_from(self.end.saturating_sub(start)).unwrap_or(usize::MAX);
        let Some(mut at) = self.at.checked_sub(start).and_then(|at| usize::try_from(at).ok())
        else {
            return Ok(Hop::NextBlock);
        };
        let hop = loop {
            if at >= stop {
                break Hop::Event;
            }
            let Some((head, rest)) =
                bytes.get(at..).and_then(|b| b.split_first_chunk::<HEADER_LEN>())
            else {
                break Hop::NextBlock;
            };
            let Some(header) = Header::parse(head) else { break Hop::Slow };
            let Ok(len) = self.limits.event_len(&header) else { break Hop::Slow };
            let channel_len = header.channel_len as usize;
            let Some((body, after)) = rest.split_at_checked(len as usize - HEADER_LEN) else {
                break Hop::NextBlock;
            };
            match after.first_chunk() {
                Some(&SYNC) => {}
                Some(_) => break Hop::Slow,
                None => break Hop::NextBlock,
            }
            let (channel, payload) = body.split_at(channel_len);
            let Some(timestamp) = header.utime.checked_mul(MICRO) else { break Hop::Slow };
            let id = self.ids.of(channel)?;
            let offset = (at + HEADER_LEN + channel_len) as u32;
            batch.push(timestamp, header.number, id, payload, Place { segment: 0, offset });
            at += len as usize;
        };
        let is_beyond = at > bytes.len();
        self.at = start + at as u64;
        Ok(match hop {
            // Damage led out of the block: what lies between has been looked at, and may be gone.
            Hop::NextBlock if is_beyond => Hop::NextBlock,
            Hop::NextBlock if self.log.reaches_end() => Hop::Slow,
            Hop::NextBlock if self.log.extend()? => Hop::Event,
            // A full block that begins here does not hold the event: it is longer than a block.
            Hop::NextBlock if self.log.begins_at(self.at) => Hop::Slow,
            other => other,
        })
    }

    /// One event or one damaged range, away from the fast path. False at the end of the log.
    fn step(&mut self, batch: &mut BatchBuilder) -> Result<bool, Error> {
        let (at, limits) = (self.at, self.limits);
        match self.log.scanning(|log| scan::judge(log, at, &limits))? {
            Verdict::End => {
                self.miss_what_was_cut_off();
                self.miss_what_is_packed();
                return Ok(false);
            }
            Verdict::Damage { end, reason } => {
                self.report(end, reason.to_string(), None)?;
                self.at = end;
            }
            Verdict::Event { header, end } if self.log.holds(at, end) => {
                self.accept(batch, &header, end)?;
            }
            // A long event: as it has been judged, its length may be believed, and a block be made for it.
            Verdict::Event { .. } if !batch.is_empty() => self.end_block_here(),
            Verdict::Event { header, end } => {
                self.log.load_exactly(&self.context, at, end - at)?;
                if !self.log.holds(at, end) {
                    return Err(self.log.file_changed(at));
                }
                self.accept(batch, &header, end)?;
            }
        }
        Ok(true)
    }

    /// Makes the fast path ask for the next block, so that the batch is given out first.
    fn end_block_here(&mut self) {
        self.log.forget_after(self.at);
    }

    fn accept(&mut self, batch: &mut BatchBuilder, header: &Header, end: u64) -> Result<(), Error> {
        let start = (self.at - self.log.start) as usize;
        let record =
            self.log.bytes().get(start..(end - self.log.start) as usize).unwrap_or_default();
        let body = record.get(HEADER_LEN..).unwrap_or_default();
        let (channel, payload) = body.split_at(body.len().min(header.channel_len as usize));
        let id = self.ids.of(channel)?;
        match header.utime.checked_mul(MICRO) {
            Some(timestamp) => {
                let offset = (start + HEADER_LEN + channel.len()) as u32;
                batch.push(timestamp, header.number, id, payload, Place { segment: 0, offset });
            }
            None => {
                let reason =
                    format!("time {} µs is beyond the times that can be held", header.utime);
                self.report(end, reason, Some(id))?;
            }
        }
        self.at = end;
        Ok(())
    }

    fn load_next(&mut self) -> Result<(), Error> {
        let left = self.end.saturating_sub(self.at).saturating_add(OVERHANG);
        self.log.load(&self.context, self.at, left)
    }

    /// Reports `self.at..end`.
    fn report(
        &mut self,
        end: u64,
        reason: String,
        channel: Option<sluice_core::ChannelId>,
    ) -> Result<(), Error> {
        let mut damage = Damage::new(&self.input, self.at, end - self.at, reason);
        damage.channel = channel;
        if self.context.keep_damaged_bytes && !self.log.file.is_seekable() {
            damage.bytes = self.log.kept(self.at, end);
        }
        self.context.damage.report(damage);
        Ok(())
    }

    /// The log ends before the split does: it became shorter since it was looked at.
    fn miss_what_was_cut_off(&mut self) {
        // Each split tells of its own part.
        let from = self.at.max(self.start);
        if from >= self.expected || !self.log.file.is_seekable() {
            return;
        }
        let (length, reason) = (self.expected - from, "the log became shorter while it was read");
        self.context.damage.report(Damage::new(&self.input, from, length, reason));
    }
}

impl LogReader {
    /// The log is compressed, and cannot be decompressed any further: how much is missing is not known.
    fn miss_what_is_packed(&mut self) {
        let Some(reason) = self.log.file.broken() else { return };
        self.context.damage.report(Damage::new(&self.input, self.at, 0, reason));
    }
}

impl Reader for LogReader {
    fn next_batch(&mut self) -> Result<Option<Batch>, Error> {
        while !self.done && !self.context.is_cancelled() {
            let batch = self.fill()?;
            if !batch.is_empty() {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    fn seam(&self) -> Seam {
        Seam { began: self.began, ended: self.began.map(|_| self.at) }
    }
}

/// What came of going on.
enum Hop {
    /// Events were read; there may be more.
    Event,
    /// The next event does not lie in the block whole, and the block is full.
    NextBlock,
    /// What comes next needs judging.
    Slow,
}

/// The block that is being read, and the log around it.
struct Window {
    file: LogFile,
    block: Option<Block>,
    /// Where in the block reading begins.
    pad: usize,
    /// Where the block lies in the log.
    start: u64,
    /// How much of the block has been read.
    filled: usize,
    /// Whether the log ended in it.
    ended: bool,
    failed: Option<Error>,
    /// Whether damaged bytes of a stream are to be kept until they have been reported.
    keep: bool,
    kept_from: Option<u64>,
}

impl Window {
    fn new(file: LogFile, keep: bool) -> Self {
        let (block, failed, kept_from) = (None, None, None);
        Self { file, block, pad: 0, start: 0, filled: 0, ended: false, failed, keep, kept_from }
    }

    fn bytes(&self) -> &[u8] {
        let block = self.block.as_ref().map(|block| block.as_slice()).unwrap_or_default();
        block.get(self.pad..self.pad + self.filled).unwrap_or_default()
    }

    /// Reads at most `want` bytes from `at` on, and at most a block.
    fn load(&mut self, context: &ReadContext, at: u64, want: u64) -> Result<(), Error> {
        let most = context.blocks.usual().saturating_sub(ALIGNED).max(1);
        self.load_exactly(context, at, want.min(most as u64))
    }

    /// Reads `want` bytes from `at` on, for which a block is made. Only for what has been judged.
    fn load_exactly(&mut self, context: &ReadContext, at: u64, want: u64) -> Result<(), Error> {
        let want = usize::try_from(want).unwrap_or(usize::MAX);
        let mut block = context.blocks.block_of(want.saturating_add(ALIGNED));
        let pad = block.as_ptr().align_offset(ALIGNED).min(ALIGNED);
        let read = self.file.read_at(at, block.get_mut(pad..pad + want).unwrap_or_default())?;
        (self.block, self.pad, self.start) = (Some(block), pad, at);
        (self.filled, self.ended) = (read, read < want);
        Ok(())
    }

    /// Reads on into what is left of the block. False if it is full.
    fn extend(&mut self) -> Result<bool, Error> {
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

    fn reaches_end(&self) -> bool {
        self.ended && self.block.is_some()
    }

    fn begins_at(&self, at: u64) -> bool {
        self.block.is_some() && self.start == at
    }

    fn holds(&self, at: u64, end: u64) -> bool {
        self.start <= at && end <= self.start + self.filled as u64
    }

    fn forget_after(&mut self, at: u64) {
        self.filled = at.saturating_sub(self.start).min(self.filled as u64) as usize;
        self.ended = false;
        if let Some(block) = &mut self.block {
            block.truncate(self.pad + self.filled);
        }
    }

    /// The block's bytes, to be shared with a batch. The window is empty afterwards.
    fn share(&mut self) -> bytes::Bytes {
        let filled = std::mem::take(&mut self.filled);
        self.ended = false;
        let span = self.pad..self.pad + filled;
        self.block.take().map(|block| block.freeze().slice(span)).unwrap_or_default()
    }

    /// Lets `scan` read, with its errors kept as what they are.
    fn scanning<T>(
        &mut self,
        scan: impl FnOnce(&mut dyn ReadAt) -> io::Result<T>,
    ) -> Result<T, Error> {
        let scanned = scan(self);
        scanned.map_err(|error| {
            self.failed.take().unwrap_or_else(|| Error::io("read", self.file.path(), error))
        })
    }

    /// What a stream still has of a damaged range; nothing if it was too long to be kept.
    fn kept(&mut self, at: u64, end: u64) -> Vec<bytes::Bytes> {
        self.kept_from = None;
        let mut bytes = vec![0; (end - at).min(MOST_KEPT) as usize];
        let Ok(read) = self.file.read_at(at, &mut bytes) else { return Vec::new() };
        bytes.truncate(read);
        vec![bytes.into()]
    }

    fn file_changed(&self, at: u64) -> Error {
        Error::malformed(
            self.file.path().to_string_lossy(),
            at,
            "the log changed while it was read; run again when it is no longer written to",
        )
    }
}

impl ReadAt for Window {
    fn read_at(&mut self, pos: u64, buf: &mut [u8]) -> io::Result<usize> {
        let there = pos.checked_sub(self.start).and_then(|at| usize::try_from(at).ok());
        let there = there.and_then(|at| self.bytes().get(at..)).unwrap_or_default();
        if let Some(there) = there.get(..buf.len()) {
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
        if !self.keep || pos.saturating_sub(from) > MOST_KEPT {
            self.file.forget(pos);
        }
    }
}
