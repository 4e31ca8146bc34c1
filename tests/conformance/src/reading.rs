//! Reads a source like the engine, but with bounds: a source that yields more than its input could
//! hold is stopped. Checks nothing else.

use std::ops::Range;

use sluice_kit::contract::PlainEvent;
use sluice_model::{
    BlockPool, Damage, Error, Query, ReadContext, Reader, Seam, Source, Split, SplitStart,
};

use crate::kit_plugins::plain_events;

/// The bounds beyond which a source is considered endless.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadBounds {
    pub(crate) events: usize,
    pub(crate) payload: usize,
    /// Consecutive batches without events.
    pub(crate) idle: usize,
}

impl ReadBounds {
    /// The bounds for a valid input of this length.
    pub(crate) fn of_length(len: usize) -> Self {
        Self { events: 1 << 22, payload: 1 << 30, idle: 10_000 + len }
    }

    /// The bounds for damaged variants of an input with this result.
    pub(crate) fn around(valid: &ReadResult, len: usize) -> Self {
        let payload: usize = valid.events.iter().map(|event| event.payload.len()).sum();
        Self {
            events: valid.events.len() * 4 + len * 2 + 1_000,
            payload: payload * 8 + len * 2 + (1 << 20),
            idle: 10_000 + len,
        }
    }
}

/// A range reported as damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DamageRange {
    pub(crate) input: String,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) reason: String,
}

impl DamageRange {
    /// The bytes that are reported.
    pub(crate) fn bytes(&self) -> Range<u64> {
        self.offset..self.offset.saturating_add(self.length)
    }
}

/// The result of reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadResult {
    pub(crate) events: Vec<PlainEvent>,
    pub(crate) damage: Vec<DamageRange>,
    /// The error that ended it.
    pub(crate) error: Option<String>,
    /// Which bound it exceeded.
    pub(crate) endless: Option<String>,
    /// Notes of the source besides damage: from reading and, if asked, about its inputs.
    pub(crate) remarks: Vec<String>,
}

impl ReadResult {
    /// Whether it reports any problem.
    pub(crate) fn reports_anything(&self) -> bool {
        !self.damage.is_empty() || self.error.is_some() || !self.remarks.is_empty()
    }

    /// The same with damage sorted like in reports: by file and position.
    pub(crate) fn in_reported_order(mut self) -> Self {
        let place = |told: &DamageRange| {
            (told.input.clone(), told.offset, told.length, told.reason.clone())
        };
        self.damage.sort_by_cached_key(place);
        self
    }

    /// The first difference to another result; `None` if they are equal.
    pub(crate) fn difference(&self, other: &Self) -> Option<String> {
        match (&self.error, &other.error) {
            (None, Some(error)) | (Some(error), None) => {
                return Some(format!("only one of them fails, with `{error}`"));
            }
            // What precedes an error may differ.
            (Some(_), Some(_)) => return None,
            (None, None) => {}
        }
        let first = self.events.iter().zip(&other.events).position(|(a, b)| a != b);
        if let Some(at) = first {
            let shown = |read: &Self| read.events.get(at).map(shown).unwrap_or_default();
            return Some(format!("event {at} is {} instead of {}", shown(other), shown(self)));
        }
        if self.events.len() != other.events.len() {
            return Some(format!("{} events instead of {}", other.events.len(), self.events.len()));
        }
        let damage =
            |read: &Self| format!("{:?}", read.damage.iter().map(range).collect::<Vec<_>>());
        (self.damage != other.damage)
            .then(|| format!("damage {} instead of {}", damage(other), damage(self)))
    }
}

fn range(told: &DamageRange) -> (u64, u64, &str) {
    (told.offset, told.length, &told.reason)
}

/// A short description of an event.
pub(crate) fn shown(event: &PlainEvent) -> String {
    const SHOWN: usize = 12;
    let PlainEvent { timestamp, sequence, channel, payload, .. } = event;
    let digits: String = payload.iter().take(SHOWN).map(|byte| format!("{byte:02x}")).collect();
    let more = if payload.len() > SHOWN { "…" } else { "" };
    let len = payload.len();
    format!("number {sequence} at {timestamp} on {channel:?} with {len} bytes {digits}{more}")
}

/// The findings that a source reports about its inputs.
pub(crate) fn source_remarks(source: &dyn Source) -> Vec<String> {
    let inputs = source.inputs().unwrap_or_default();
    inputs.iter().flat_map(|input| source.findings(&input.path).unwrap_or_default()).collect()
}

/// The number of events that the source states without reading them; `None` unless it states it for
/// every input.
pub(crate) fn claimed_count(source: &dyn Source) -> Option<Result<u64, Error>> {
    let inputs = source.inputs().ok()?;
    let counts = inputs.iter().map(|input| source.events_in(&input.path).transpose());
    counts.collect::<Option<Result<Vec<u64>, Error>>>().map(|counts| Ok(counts?.iter().sum()))
}

/// The node name that sources are read under.
pub(crate) const NAME: &str = "log";

/// The order in which splits are read. Results are always put together in list order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SplitOrder {
    /// One after the other.
    Forwards,
    /// Last one first.
    Backwards,
    /// Concurrently, on several threads.
    Beside,
}

/// The number of concurrent threads.
const THREADS: usize = 3;

/// How to read a source: split size, query and order.
#[derive(Clone, Debug)]
pub(crate) struct ReadMode {
    pub(crate) target: u64,
    pub(crate) query: Query,
    pub(crate) order: SplitOrder,
}

impl ReadMode {
    /// Everything, in order.
    pub(crate) fn in_pieces(target: u64) -> Self {
        Self { target, query: Query::default(), order: SplitOrder::Forwards }
    }
}

/// Reads a whole source in splits of `target` bytes, with blocks of this pool.
pub(crate) fn read_all(
    source: &dyn Source,
    target: u64,
    blocks: &BlockPool,
    bounds: ReadBounds,
) -> ReadResult {
    read_with_mode(source, &ReadMode::in_pieces(target), blocks, bounds)
}

/// Reads a source in this mode.
pub(crate) fn read_with_mode(
    source: &dyn Source,
    mode: &ReadMode,
    blocks: &BlockPool,
    bounds: ReadBounds,
) -> ReadResult {
    let mut context = ReadContext::standalone(NAME);
    context.blocks = blocks.clone();
    context.query = mode.query.clone();
    let splits = match source.splits(mode.target, &mode.query) {
        Ok(splits) => splits,
        Err(error) => {
            return ReadResult { error: Some(error.to_string()), ..ReadResult::default() };
        }
    };
    let reading = SplitReader { source, context, bounds, splits };
    match mode.order {
        SplitOrder::Forwards => reading.join_splits(|at| reading.read_searching(at)),
        SplitOrder::Backwards => {
            let mut pieces: Vec<SplitResult> =
                (0..reading.splits.len()).rev().map(|at| reading.read_searching(at)).collect();
            reading.join_splits(|_| pieces.pop().unwrap_or_default())
        }
        SplitOrder::Beside => {
            let mut pieces = reading.read_on_threads().into_iter();
            reading.join_splits(|_| pieces.next().unwrap_or_default())
        }
    }
}

/// The result of one split.
#[derive(Debug, Default)]
struct SplitResult {
    read: ReadResult,
    payload: usize,
    seam: Seam,
}

struct SplitReader<'s> {
    source: &'s dyn Source,
    context: ReadContext,
    bounds: ReadBounds,
    splits: Vec<Split>,
}

impl SplitReader<'_> {
    /// Whether a split starts where the one before it ends.
    fn follows(&self, at: usize) -> bool {
        let before = at.checked_sub(1).and_then(|before| self.splits.get(before));
        let split = self.splits.get(at);
        before.zip(split).is_some_and(|(before, split)| before.is_followed_by(split))
    }

    /// Reads a split without knowledge of the others.
    fn read_searching(&self, at: usize) -> SplitResult {
        let Some(split) = self.splits.get(at) else { return SplitResult::default() };
        let entry = if self.follows(at) { SplitStart::Search } else { SplitStart::At(split.start) };
        self.piece(split, entry)
    }

    /// Reads all splits on several threads.
    fn read_on_threads(&self) -> Vec<SplitResult> {
        let every = |first: usize| {
            let ats = (first..self.splits.len()).step_by(THREADS);
            ats.map(|at| (at, self.read_searching(at))).collect::<Vec<_>>()
        };
        let mut pieces: Vec<(usize, SplitResult)> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..THREADS).map(|first| scope.spawn(move || every(first))).collect();
            let read = threads.into_iter().map(|thread| match thread.join() {
                Ok(pieces) => pieces,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            read.flatten().collect()
        });
        pieces.sort_by_key(|(at, _)| *at);
        pieces.into_iter().map(|(_, piece)| piece).collect()
    }

    /// Joins splits like the engine: one that did not start where the previous one ended is read
    /// again from there.
    fn join_splits(&self, mut piece: impl FnMut(usize) -> SplitResult) -> ReadResult {
        let (mut read, mut payload, mut last) = (ReadResult::default(), 0_usize, Seam::default());
        for (at, split) in self.splits.iter().enumerate() {
            let due = if self.follows(at) { last.ended } else { None };
            let mut next = piece(at);
            // A failed split has no seam.
            if let Some(due) = due
                && next.seam.began != Some(due)
                && next.read.error.is_none()
            {
                next = self.piece(split, SplitStart::At(due));
            }
            payload = payload.saturating_add(next.payload);
            let ReadResult { events, damage, error, endless, remarks: says } = next.read;
            read.events.extend(events);
            read.damage.extend(damage);
            read.remarks.extend(says);
            read.error = error;
            read.endless = endless.or_else(|| self.bound_exceeded(read.events.len(), payload, 0));
            if read.error.is_some() || read.endless.is_some() {
                break;
            }
            last = next.seam;
        }
        read
    }

    fn piece(&self, split: &Split, entry: SplitStart) -> SplitResult {
        let context = self.context.with_own_logs();
        let mut piece = SplitResult::default();
        match self.source.read(split, entry, &context) {
            Ok(mut reader) => match self.batches(&mut *reader, &context, &mut piece) {
                Ok(()) => piece.seam = reader.seam(),
                Err(error) => piece.read.error = Some(error.to_string()),
            },
            Err(error) => piece.read.error = Some(error.to_string()),
        }
        let told = |d: Damage| DamageRange {
            input: d.input.to_string(),
            offset: d.offset,
            length: d.length,
            reason: d.reason,
        };
        piece.read.damage = context.damage.take().into_iter().map(told).collect();
        piece.read.remarks =
            context.losses.take_notes().into_iter().map(|(what, _)| what).collect();
        piece
    }

    fn batches(
        &self,
        reader: &mut dyn Reader,
        context: &ReadContext,
        piece: &mut SplitResult,
    ) -> Result<(), Error> {
        let mut idle = 0;
        while let Some(batch) = reader.next_batch()? {
            idle = if batch.is_empty() { idle + 1 } else { 0 };
            piece.payload = piece.payload.saturating_add(batch.payload_bytes() as usize);
            let events = piece.read.events.len() + batch.len();
            if let Some(what) = self.bound_exceeded(events, piece.payload, idle) {
                piece.read.endless = Some(what);
                return Ok(());
            }
            piece.read.events.extend(plain_events(&batch, &context.channels));
        }
        Ok(())
    }

    fn bound_exceeded(&self, events: usize, payload: usize, idle: usize) -> Option<String> {
        if events > self.bounds.events {
            return Some(format!("{events} events, and there are more"));
        }
        if payload > self.bounds.payload {
            return Some(format!("{payload} bytes of payloads, and there are more"));
        }
        (idle > self.bounds.idle)
            .then(|| format!("{idle} consecutive empty batches, and there are more"))
    }
}
