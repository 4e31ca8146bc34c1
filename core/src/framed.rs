//! Framed logs: files that are records, one behind another. Goes through one from front to back, block
//! by block, and gives batches whose payloads lie in the blocks; steps over damage and reports it.
//!
//! What a record is, and where damage begins and ends, is its format's word ([`Framing`]).

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::files::LogFile;
use crate::window::{BlockWindow, ReadAt};
use crate::{
    Batch, BatchBuilder, ChannelId, Damage, Error, PayloadOffset, ReadContext, Reader, Seam, Split,
    SplitStart, plugin,
};

/// What is read beyond a split's end at first, for the record that lies across it.
const OVERHANG: u64 = 4 << 10;
/// How far a log may have grown, since it was cut into splits, for the last split still to read it all.
const MOST_GROWTH: u64 = 4 << 20;
/// What is read at first behind a record that was skipped: another one may follow.
const FIRST_READ: u64 = 16 << 10;
/// The bytes behind a record that tell whether another one begins there.
const FOLLOWING: usize = 64;
/// Room that a batch is begun with; columns are used again, so that more than is needed costs little.
pub const LIKELY_EVENTS: usize = 8 << 10;

/// How a format lays out its records. Its answers depend on the bytes of the log and the position only,
/// never on how they were read: so any splitting gives the same.
///
/// Looking around in the log fails when the run is to end, whatever is looked for: such an `Err` is to be
/// passed on, and costs nothing that was read before.
pub trait Framing: Send {
    /// The record that `bytes`, which lie at `pos`, begin with. The fast path: `Ambiguous` wherever there is
    /// any doubt.
    fn peek(&mut self, pos: u64, bytes: &[u8]) -> Result<Peek, Error>;

    /// What is at `pos`, away from the fast path. `Err` comes from `log` only.
    fn classify(&mut self, log: &mut dyn ReadAt, pos: u64) -> io::Result<PositionContent>;

    /// Where the first record that begins in `range` begins.
    fn find(&mut self, log: &mut dyn ReadAt, range: Range<u64>) -> io::Result<Option<u64>>;

    /// The event of a record at `pos` that has been judged to be one.
    fn event(&mut self, pos: u64, record: &[u8]) -> Result<RecordContent, Error>;

    /// What the record that `bytes` begin with says of itself, where these are too few to hold it; nothing
    /// where a record has to be read before its time is known.
    fn outline(&mut self, bytes: &[u8]) -> Result<Option<RecordOutline>, Error> {
        let _ = bytes;
        Ok(None)
    }

    /// Whether a record begins with `bytes`, which puts the one before them beyond doubt.
    fn confirms(&self, bytes: &[u8]) -> bool {
        let _ = bytes;
        false
    }
}

/// The length and the time of a record, as its header has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordOutline {
    /// Bytes of the record.
    pub len: u64,
    /// Nanoseconds.
    pub timestamp: i64,
}

/// An event in the record that holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventHeader {
    /// Nanoseconds.
    pub timestamp: i64,
    /// The number its origin gave it.
    pub sequence: i64,
    /// Its channel.
    pub channel: ChannelId,
    /// Where in the record its payload lies.
    pub payload: Range<usize>,
}

/// What came of looking at bytes.
#[derive(Debug)]
pub enum Peek {
    /// A whole record, and beyond doubt.
    Event {
        /// Bytes of the record.
        len: usize,
        /// The event in it.
        head: EventHeader,
    },
    /// A whole record that is neither event nor damage, such as a blank line.
    Skip {
        /// Bytes of the record.
        len: usize,
    },
    /// More bytes are needed to tell.
    More,
    /// It has to be judged.
    Ambiguous,
}

/// What is at a position of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PositionContent {
    /// A record.
    Record {
        /// The position behind it.
        end: u64,
    },
    /// No record that can be believed.
    Damage {
        /// Where the next record begins, or the end of the log.
        end: u64,
        /// What was found instead.
        reason: String,
    },
    /// Nothing: the log ends here, whatever follows.
    End {
        /// How many bytes here say so.
        mark: u64,
    },
}

/// What a record holds.
#[derive(Debug)]
pub enum RecordContent {
    /// An event.
    Event(EventHeader),
    /// An event of a time in nanoseconds that 64 bits cannot hold; its head has the nearest one.
    Wide(EventHeader, i128),
    /// Nothing that anybody would miss, such as a blank line.
    Skip,
    /// No event that could be passed on, and why; the channel, where that is known.
    Damage(String, Option<ChannelId>),
}

/// How much of `left` bytes is read at first, where a window of time may leave out most of them: no less
/// than it would be worth to skip, since a second request may cost more than what it leaves out.
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
    /// Where reading is.
    at: u64,
    /// Records that begin here or later are of the next split.
    end: u64,
    /// The times of events that are given; others are read past.
    window: plugin::TimeWindow,
    /// Where the log is known to go on to.
    expected: u64,
    /// Whether it was a stream when it was looked at: compressed, or a pipe.
    was_stream: bool,
    began: Option<u64>,
    done: bool,
}

impl<F: Framing> FramedReader<F> {
    /// Reads a log at a split. Of a stream nothing may have been forgotten yet.
    pub fn new(
        log: LogFile,
        split: &Split,
        entry: SplitStart,
        framing: F,
        context: &ReadContext,
    ) -> Result<Self, Error> {
        Self::with_window(plugin::TimeWindow::default(), log, split, entry, framing, context)
    }

    /// The same, for events of a window of time only: headers are read all, so that nothing has to be
    /// believed of the order of times, but of long records outside of the window nothing else. Damage is
    /// told wherever it is.
    pub fn with_window(
        window: plugin::TimeWindow,
        log: LogFile,
        split: &Split,
        entry: SplitStart,
        mut framing: F,
        context: &ReadContext,
    ) -> Result<Self, Error> {
        let input = log.path().to_string_lossy().into();
        let mut log = BlockWindow::new(log, context);
        let grown = |bytes: u64| split.start.saturating_add(bytes).saturating_add(MOST_GROWTH);
        let end = split.end.or(split.bytes.map(grown)).unwrap_or(u64::MAX);
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
        })
    }

    /// Reads events until the block is used up or the split ends.
    fn fill(&mut self) -> Result<Batch, Error> {
        let (mut batch, from) = (BatchBuilder::with_capacity(LIKELY_EVENTS), self.at);
        while self.at < self.end {
            match self.read_fast(&mut batch)? {
                FastPath::Advanced => {}
                // What is there of the record has to stay with what follows: the block is full.
                FastPath::NeedsBlock if !batch.is_empty() => break,
                // Far from the window there may be no event for long: the run is looked at meanwhile.
                FastPath::NeedsBlock if self.at - from > self.context.blocks.block_len() as u64 => {
                    break;
                }
                FastPath::NeedsBlock => self.load_next()?,
                FastPath::NeedsSlowPath => {
                    if !self.read_slow(&mut batch)? {
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

    /// The fast path: all records that lie in the block whole and are beyond doubt.
    #[inline]
    fn read_fast(&mut self, batch: &mut BatchBuilder) -> Result<FastPath, Error> {
        let start = self.log.start;
        let bytes = self.log.bytes();
        let stop = usize::try_from(self.end.saturating_sub(start)).unwrap_or(usize::MAX);
        let Some(mut at) = self.at.checked_sub(start).and_then(|at| usize::try_from(at).ok())
        else {
            return Ok(FastPath::NeedsBlock);
        };
        let hop = loop {
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
        Ok(match hop {
            // Damage led out of the block: what lies between has been looked at, and may be gone.
            FastPath::NeedsBlock if is_beyond => FastPath::NeedsBlock,
            FastPath::NeedsBlock if self.log.reaches_end() => FastPath::NeedsSlowPath,
            FastPath::NeedsBlock if self.skip()? => FastPath::NeedsBlock,
            FastPath::NeedsBlock if self.log.extend()? => FastPath::Advanced,
            // A full block that begins here does not hold the record: it is longer than a block.
            FastPath::NeedsBlock if self.log.begins_at(self.at) => FastPath::NeedsSlowPath,
            other => other,
        })
    }

    /// Goes on behind the record that begins here, if it is outside of the window, and beyond doubt, and
    /// reading the rest of it costs more than leaving it out.
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

    /// One record or one damaged range, away from the fast path. False at the end of the log
    /// or of the run.
    fn read_slow(&mut self, batch: &mut BatchBuilder) -> Result<bool, Error> {
        let (at, framing) = (self.at, &mut self.framing);
        let Some(verdict) = self.log.scan(|log| framing.classify(log, at))? else {
            return Ok(false);
        };
        match verdict {
            PositionContent::End { mark } => {
                self.note_trailing_bytes(mark);
                self.report_truncation();
                self.report_decompression_error();
                return Ok(false);
            }
            PositionContent::Damage { end, reason } => {
                self.report(end, reason, None);
                self.at = end;
            }
            PositionContent::Record { end } if self.log.holds(at, end) => {
                self.accept(batch, end)?
            }
            // A long record: as it has been judged, its length may be believed, and a block be made for
            // it; what is there goes out first.
            PositionContent::Record { .. } if !batch.is_empty() => self.log.forget_after(at),
            PositionContent::Record { end } => {
                self.log.load_exactly(at, end - at)?;
                if !self.log.holds(at, end) {
                    return Err(self.log.file_changed(at));
                }
                self.accept(batch, end)?;
            }
        }
        Ok(true)
    }

    fn accept(&mut self, batch: &mut BatchBuilder, end: u64) -> Result<(), Error> {
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

    fn load_next(&mut self) -> Result<(), Error> {
        let left = self.end.saturating_sub(self.at).saturating_add(OVERHANG);
        // Behind the block lies what a skipped record led to: what follows may be skipped as well.
        let has_skipped = !self.window.is_open() && self.at > self.log.end();
        let look = if has_skipped { first_read_len(&self.log.file, left) } else { left };
        self.log.load(self.at, look)
    }

    /// Reports `self.at..end`.
    fn report(&mut self, end: u64, reason: String, channel: Option<ChannelId>) {
        let mut damage = Damage::new(&self.input, self.at, end - self.at, reason);
        damage.channel = channel;
        if self.context.keep_damaged_bytes && !self.log.file.is_seekable() {
            damage.bytes = self.log.kept_bytes(self.at, end);
        }
        self.context.damage.report(damage);
    }

    /// The log says that it ends here, and its file goes on.
    fn note_trailing_bytes(&self, mark: u64) {
        let end = self.at.saturating_add(mark);
        let left = self.log.file.len().map_or(0, |len| len.saturating_sub(end));
        // Each split comes here; the one in which the end lies tells of it.
        if left > 0 && self.at >= self.start {
            let input = &self.input;
            let what =
                format!("it ends at byte {end}; the {left} bytes after that are not read: {input}");
            self.context.losses.note(what, 0);
        }
    }

    /// The log ends before the split does: it became shorter since it was looked at.
    fn report_truncation(&mut self) {
        // Each split tells of its own part.
        let from = self.at.max(self.start);
        if self.was_stream && self.log.file.is_empty() {
            let reason = "the log became empty before it was read";
            self.context.damage.report(Damage::new(&self.input, 0, 0, reason));
        }
        let is_there = self.log.file.len().is_none_or(|len| len >= self.expected);
        if from >= self.expected || is_there {
            return;
        }
        let (length, reason) = (self.expected - from, "the log became shorter while it was read");
        self.context.damage.report(Damage::new(&self.input, from, length, reason));
    }

    /// The log is compressed, and cannot be decompressed any further: how much is missing is not known.
    fn report_decompression_error(&mut self) {
        let Some(reason) = self.log.file.decompression_error() else { return };
        self.context.damage.report(Damage::new(&self.input, self.at, 0, reason));
    }
}

impl<F: Framing> Reader for FramedReader<F> {
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
enum FastPath {
    /// Events were read; there may be more.
    Advanced,
    /// The next record does not lie in the block whole, and the block is full.
    NeedsBlock,
    /// What comes next needs judging.
    NeedsSlowPath,
}
