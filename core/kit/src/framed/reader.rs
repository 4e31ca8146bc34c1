//! Reads one split of a framed log into batches, and reports damage.

use std::sync::Arc;

use sluice_io::escape::escaped_path;
use sluice_io::files::LogFile;
use sluice_model::{
    Batch, BatchBuilder, ChannelId, Damage, Error, PayloadOffset, ReadContext, Reader, Seam, Split,
    SplitStart, plugin,
};

use super::{
    EventHeader, Framing, LIKELY_EVENTS, Peek, PositionContent, RecordContent, RecordOutline,
};
use crate::window::{BlockWindow, Doubled};

mod log_end;

/// Bytes read beyond the end of a split, for a record that crosses it.
const OVERHANG: u64 = 4 << 10;
/// Bytes read after a skipped record: another one to skip may follow.
const FIRST_READ: u64 = 16 << 10;
/// Bytes after a record that show whether another one starts there.
const FOLLOWING: usize = 64;
const CUT_BY_GAP: &str = "cut off where the compressed data is damaged";

/// How many of `left` bytes to read first if a time window may skip most of them: at least the
/// minimum seek distance, since a second request may cost more than it saves.
fn first_read_len(log: &LogFile, left: u64) -> u64 {
    log.min_seek_distance().map_or(left, |least| left.min(least.max(FIRST_READ)))
}

/// Reads one split of a framed log.
#[derive(Debug)]
pub struct FramedReader<F> {
    log: BlockWindow,
    framing: F,
    context: ReadContext,
    input: Arc<str>,
    start: u64,
    /// The current position.
    at: u64,
    /// Records that start here or later belong to the next split.
    end: u64,
    /// The time window; events outside it are skipped.
    window: plugin::TimeWindow,
    /// The position the log is known to reach.
    expected: u64,
    /// Whether the split was planned as a stream: compressed, or a pipe.
    was_stream: bool,
    began: Option<u64>,
    done: bool,
    /// Whether the next record is likely longer than a block, so that reading a block is in vain.
    expects_long: bool,
}

impl<F: Framing> FramedReader<F> {
    /// Opens a reader for one split of a log, which [`ReadContext::open_log`] has opened, so that
    /// reading ends when the run is cancelled. A stream must be at its beginning.
    pub fn new(
        log: LogFile,
        split: &Split,
        entry: SplitStart,
        framing: F,
        context: &ReadContext,
    ) -> Result<Self, Error> {
        Self::with_window(plugin::TimeWindow::default(), log, split, entry, framing, context)
    }

    /// Like [`new`](Self::new), for a time window. All headers are read, so times need not be
    /// sorted, but the rest of long records outside the window is skipped. Damage is reported
    /// wherever it is.
    pub fn with_window(
        window: plugin::TimeWindow,
        log: LogFile,
        split: &Split,
        entry: SplitStart,
        mut framing: F,
        context: &ReadContext,
    ) -> Result<Self, Error> {
        let input = escaped_path(log.path()).into();
        let mut log = BlockWindow::new(log, context);
        let end = split.end.unwrap_or(u64::MAX);
        let began = match entry {
            SplitStart::At(at) => Some(at),
            SplitStart::Search => {
                let want = end.saturating_sub(split.start).saturating_add(OVERHANG);
                let look = if window.is_open() { want } else { first_read_len(&log.file, want) };
                log.load(split.start, look)?;
                let range = split.start..end;
                log.scan(|log| framing.find(log, range))?.flatten()
            }
        };
        let expected = split.bytes.map_or(0, |bytes| split.start.saturating_add(bytes));
        Ok(Self {
            log,
            framing,
            input,
            context: context.clone(),
            start: split.start,
            at: began.unwrap_or(end),
            end,
            window,
            expected: split.end.unwrap_or(expected),
            was_stream: split.bytes.is_none(),
            began,
            done: began.is_none(),
            expects_long: false,
        })
    }

    /// Reads events until the block or the split ends.
    fn fill(&mut self) -> Result<Batch, Error> {
        let (mut batch, from) = (BatchBuilder::with_capacity(LIKELY_EVENTS), self.at);
        while self.at < self.end {
            match self.read_fast(&mut batch)? {
                FastPath::Advanced => {}
                // The block is full: the incomplete record must be read again with what follows.
                FastPath::NeedsBlock if !batch.is_empty() => break,
                // Far from the window there may be no event for long: return to check for
                // cancellation.
                FastPath::NeedsBlock if self.at - from > self.context.blocks.block_len() as u64 => {
                    break;
                }
                FastPath::NeedsBlock => self.load_next()?,
                // What follows may take long to come.
                FastPath::NeedsSlowPath if self.log.is_behind() && !batch.is_empty() => break,
                FastPath::NeedsSlowPath => {
                    if !self.read_slow(&mut batch)? {
                        self.done = true;
                        break;
                    }
                }
            }
        }
        self.done |= self.at >= self.end;
        self.context.run.count_read(self.at - from);
        self.log.file.forget(self.at);
        if !batch.is_empty() {
            batch.segment(self.log.share());
        }
        Ok(batch.finish())
    }

    /// The fast path: reads all records that are complete in the block and beyond doubt.
    #[inline]
    fn read_fast(&mut self, batch: &mut BatchBuilder) -> Result<FastPath, Error> {
        let start = self.log.start;
        let bytes = self.log.bytes();
        let stop = usize::try_from(self.end.saturating_sub(start)).unwrap_or(usize::MAX);
        let Some(mut at) = self.at.checked_sub(start).and_then(|at| usize::try_from(at).ok())
        else {
            return Ok(FastPath::NeedsBlock);
        };
        let outcome = loop {
            if at >= stop {
                break FastPath::Advanced;
            }
            let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) else {
                break FastPath::NeedsBlock;
            };
            match self.framing.peek(start + at as u64, rest)? {
                Peek::Event { len, head } => {
                    let offset = (at + head.payload.start) as u32;
                    let EventHeader { timestamp, sequence, channel, payload } = head;
                    if self.window.wants_time(timestamp) {
                        let place = PayloadOffset { segment: 0, offset };
                        let payload = rest.get(payload).unwrap_or_default();
                        batch.push(timestamp, sequence, channel, payload, place);
                    }
                    at += len;
                }
                Peek::Skip { len } => at += len,
                Peek::More => break FastPath::NeedsBlock,
                Peek::Ambiguous => break FastPath::NeedsSlowPath,
            }
        };
        let is_beyond = at > bytes.len();
        self.at = start + at as u64;
        Ok(match outcome {
            // Damage ended beyond the block: the bytes between were classified, and may be
            // discarded.
            FastPath::NeedsBlock if is_beyond => FastPath::NeedsBlock,
            FastPath::NeedsBlock if self.log.reaches_end() => FastPath::NeedsSlowPath,
            FastPath::NeedsBlock if self.skip()? => FastPath::NeedsBlock,
            FastPath::NeedsBlock if self.log.is_behind() && !batch.is_empty() => {
                FastPath::NeedsBlock
            }
            FastPath::NeedsBlock if self.log.extend()? => FastPath::Advanced,
            // A full block that starts here does not hold the record: it is longer than a block.
            FastPath::NeedsBlock if self.log.begins_at(self.at) => FastPath::NeedsSlowPath,
            other => other,
        })
    }

    /// Skips the record here if it is outside the window, confirmed, and seeking is cheaper than
    /// reading it.
    fn skip(&mut self) -> Result<bool, Error> {
        let Some(least) = self.log.file.min_seek_distance().filter(|_| !self.window.is_open())
        else {
            return Ok(false);
        };
        let Some(RecordOutline { len, timestamp }) =
            self.framing.outline(self.log.from(self.at))?
        else {
            return Ok(false);
        };
        let end = self.at.saturating_add(len);
        if self.window.wants_time(timestamp) || end.saturating_sub(self.log.end()) < least {
            return Ok(false);
        }
        let mut following = [0; FOLLOWING];
        let there = self.log.file.read_at(end, &mut following)?;
        let confirmed = self.framing.confirms(following.get(..there).unwrap_or_default());
        if confirmed {
            self.at = end;
        }
        Ok(confirmed)
    }

    /// The slow path: one record or one damaged range. False at the end of the log or of the run.
    fn read_slow(&mut self, batch: &mut BatchBuilder) -> Result<bool, Error> {
        let (at, framing) = (self.at, &mut self.framing);
        let Some(content) = self.log.scan(|log| framing.classify(log, at))? else {
            return Ok(false);
        };
        match content {
            PositionContent::End { mark } => {
                self.note_trailing_bytes(mark);
                self.report_truncation();
                return self.pass_gap();
            }
            PositionContent::Damage { end, reason } => {
                if !self.log.is_stopped_at(end)? {
                    self.report(end, reason, None);
                }
                self.at = end;
            }
            PositionContent::Record { end } if self.log.holds(at, end) => {
                self.accept(batch, end)?
            }
            // A long record: it was accepted, so a block of its length may be allocated. Return the
            // events before it first.
            PositionContent::Record { .. } if !batch.is_empty() => {
                self.log.forget_after(at);
                self.expects_long = true;
            }
            PositionContent::Record { end } => {
                self.log.load_exactly(at, end - at)?;
                self.expects_long = true;
                if !self.log.holds(at, end) {
                    return Err(self.log.file_changed(at));
                }
                self.accept(batch, end)?;
            }
        }
        Ok(true)
    }

    fn accept(&mut self, batch: &mut BatchBuilder, end: u64) -> Result<(), Error> {
        if self.log.is_stopped_at(end)? && !self.is_whole(end)? {
            self.at = end;
            return Ok(());
        }
        if self.log.is_broken_at(end) && !self.is_whole(end)? {
            self.report(end, CUT_BY_GAP.to_owned(), None);
            self.at = end;
            return Ok(());
        }
        let start = (self.at - self.log.start) as usize;
        let record =
            self.log.bytes().get(start..(end - self.log.start) as usize).unwrap_or_default();
        match self.framing.event(self.at, record)? {
            RecordContent::Event(head) | RecordContent::Wide(head, _)
                if !self.window.wants_time(head.timestamp) => {}
            RecordContent::Event(EventHeader { timestamp, sequence, channel, payload }) => {
                let offset = (start + payload.start) as u32;
                let payload = record.get(payload).unwrap_or_default();
                batch.push(
                    timestamp,
                    sequence,
                    channel,
                    payload,
                    PayloadOffset { segment: 0, offset },
                );
            }
            RecordContent::Wide(EventHeader { sequence, channel, payload, .. }, time) => {
                let place = PayloadOffset { segment: 0, offset: (start + payload.start) as u32 };
                let payload = record.get(payload).unwrap_or_default();
                batch.push_wide(time, sequence, channel, payload, place);
            }
            RecordContent::Skip => {}
            RecordContent::Damage(reason, channel) => self.report(end, reason, channel),
        }
        self.at = end;
        Ok(())
    }

    /// Whether what looks like a record, up to the end of a stopped stream, also looks like one if
    /// another follows. If not, the rest of it has not arrived.
    fn is_whole(&mut self, end: u64) -> Result<bool, Error> {
        let bytes = self.log.from(self.at);
        let mut doubled = Doubled { at: self.at, bytes };
        let content = self.framing.classify(&mut doubled, self.at)?;
        Ok(content == PositionContent::Record { end } && !self.framing.is_open_ended(bytes))
    }

    fn load_next(&mut self) -> Result<(), Error> {
        if std::mem::take(&mut self.expects_long)
            && let Some(end) = self.long_record_end()?
        {
            self.expects_long = true;
            return self.log.load_exactly(self.at, end - self.at);
        }
        let left = self.end.saturating_sub(self.at).saturating_add(OVERHANG);
        // A record was skipped beyond the block: what follows may be skipped as well.
        let has_skipped = !self.window.is_open() && self.at > self.log.end();
        let look = if has_skipped { first_read_len(&self.log.file, left) } else { left };
        self.log.load(self.at, look)
    }

    /// The end of the record here if it is longer than a block and everything is read.
    fn long_record_end(&mut self) -> Result<Option<u64>, Error> {
        if !self.window.is_open() || !self.log.file.is_seekable() {
            return Ok(None);
        }
        let (at, framing) = (self.at, &mut self.framing);
        let content = self.log.scan(|log| framing.classify(log, at))?;
        let block_len = self.context.blocks.block_len() as u64;
        Ok(match content {
            Some(PositionContent::Record { end }) if end - at > block_len => Some(end),
            _ => None,
        })
    }

    /// Reports `self.at..end`.
    fn report(&mut self, end: u64, reason: String, channel: Option<ChannelId>) {
        let mut damage = Damage::new(&self.input, self.at, end - self.at, reason);
        damage.channel = channel;
        if self.context.damage.keeps_bytes() && !self.log.file.is_seekable() {
            damage.bytes = self.log.kept_bytes(self.at, end);
        }
        self.context.damage.report(damage);
    }
}

impl<F: Framing> Reader for FramedReader<F> {
    fn next_batch(&mut self) -> Result<Option<Batch>, Error> {
        while !self.done && !self.log.file.is_cancelled() {
            let batch = self.fill()?;
            // Without events between it, damage may be any number of ranges.
            if !batch.is_empty() || self.context.damage.is_full() {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    fn seam(&self) -> Seam {
        Seam { began: self.began, ended: self.began.map(|_| self.at) }
    }
}

/// The result of the fast path.
enum FastPath {
    /// Events were read; there may be more.
    Advanced,
    /// The next record is not complete in the block, and the block is full.
    NeedsBlock,
    /// The next record has to be classified.
    NeedsSlowPath,
}
