//! Reading a source as the engine does, but with an end: what gives more than its input could hold is
//! stopped. Judges nothing else.

use sluice_core::contract::PlainEvent;
use sluice_core::{
    BlockPool, Damage, Error, Query, ReadContext, Reader, Seam, Source, Split, SplitStart,
};

use crate::private::plain;

/// How much a source may give before it is taken to have no end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) events: usize,
    pub(crate) payload: usize,
    /// Batches without events, one behind another.
    pub(crate) idle: usize,
}

impl Bounds {
    /// For a sound input, of which nothing is known but its length.
    pub(crate) fn of_length(len: usize) -> Self {
        Self { events: 1 << 22, payload: 1 << 30, idle: 10_000 + len }
    }

    /// For what was made of an input that gives so much.
    pub(crate) fn around(sound: &Read, len: usize) -> Self {
        let payload: usize = sound.events.iter().map(|event| event.payload.len()).sum();
        Self {
            events: sound.events.len() * 4 + len * 2 + 1_000,
            payload: payload * 8 + len * 2 + (1 << 20),
            idle: 10_000 + len,
        }
    }
}

/// A range that is told as damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub(crate) input: String,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) reason: String,
}

/// What reading gave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) events: Vec<PlainEvent>,
    pub(crate) damage: Vec<Told>,
    /// What ended it before its time.
    pub(crate) error: Option<String>,
    /// What there is too much of.
    pub(crate) endless: Option<String>,
    /// What the source says beside damage: while it reads, and of its inputs, where it was asked.
    pub(crate) says: Vec<String>,
}

impl Read {
    /// Whether it says that not all is well.
    pub(crate) fn tells(&self) -> bool {
        !self.damage.is_empty() || self.error.is_some() || !self.says.is_empty()
    }

    /// The same with damage as reports list it: by file and place.
    pub(crate) fn in_reported_order(mut self) -> Self {
        let place =
            |told: &Told| (told.input.clone(), told.offset, told.length, told.reason.clone());
        self.damage.sort_by_cached_key(place);
        self
    }

    /// How what another reading gave differs; nothing if it does not.
    pub(crate) fn difference(&self, other: &Self) -> Option<String> {
        match (&self.error, &other.error) {
            (None, Some(error)) | (Some(error), None) => {
                return Some(format!("only one of them fails, with `{error}`"));
            }
            // What was read before the end is the reader's business.
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

fn range(told: &Told) -> (u64, u64, &str) {
    (told.offset, told.length, &told.reason)
}

/// An event in a few words.
pub(crate) fn shown(event: &PlainEvent) -> String {
    const SHOWN: usize = 12;
    let PlainEvent { timestamp, sequence, channel, payload, .. } = event;
    let digits: String = payload.iter().take(SHOWN).map(|byte| format!("{byte:02x}")).collect();
    let more = if payload.len() > SHOWN { "…" } else { "" };
    let len = payload.len();
    format!("number {sequence} at {timestamp} on {channel:?} with {len} bytes {digits}{more}")
}

/// What a source says of its inputs beside events and damage.
pub(crate) fn said(source: &dyn Source) -> Vec<String> {
    let inputs = source.inputs().unwrap_or_default();
    inputs.iter().flat_map(|input| source.findings(&input.path).unwrap_or_default()).collect()
}

/// How many events the source says there are, without reading them; nothing if it does not say it of every
/// input.
pub(crate) fn counted(source: &dyn Source) -> Option<Result<u64, Error>> {
    let inputs = source.inputs().ok()?;
    let counts = inputs.iter().map(|input| source.events_in(&input.path).transpose());
    counts.collect::<Option<Result<Vec<u64>, Error>>>().map(|counts| Ok(counts?.iter().sum()))
}

/// The name under which sources are read.
pub(crate) const NAME: &str = "log";

/// In which order pieces are read. What they give is put together in the order of the list all the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turns {
    /// One after another.
    Forwards,
    /// The last one first.
    Backwards,
    /// Beside each other, on threads of their own.
    Beside,
}

/// How many threads read beside each other.
const THREADS: usize = 3;

/// How a source is read: in pieces of about how many bytes, what of it, and in which order.
#[derive(Clone, Debug)]
pub(crate) struct Manner {
    pub(crate) target: u64,
    pub(crate) query: Query,
    pub(crate) turns: Turns,
}

impl Manner {
    /// All of it, from the front.
    pub(crate) fn in_pieces(target: u64) -> Self {
        Self { target, query: Query::default(), turns: Turns::Forwards }
    }
}

/// Reads all of a source in pieces of `target` bytes through blocks of this pool.
pub(crate) fn read_all(
    source: &dyn Source,
    target: u64,
    blocks: &BlockPool,
    bounds: Bounds,
) -> Read {
    read_as(source, &Manner::in_pieces(target), blocks, bounds)
}

/// Reads a source in some manner.
pub(crate) fn read_as(
    source: &dyn Source,
    manner: &Manner,
    blocks: &BlockPool,
    bounds: Bounds,
) -> Read {
    let mut context = ReadContext::standalone(NAME);
    context.blocks = blocks.clone();
    context.query = manner.query.clone();
    let splits = match source.splits(manner.target, &manner.query) {
        Ok(splits) => splits,
        Err(error) => return Read { error: Some(error.to_string()), ..Read::default() },
    };
    let reading = Reading { source, context, bounds, splits };
    match manner.turns {
        Turns::Forwards => reading.joined(|at| reading.searched(at)),
        Turns::Backwards => {
            let mut pieces: Vec<Piece> =
                (0..reading.splits.len()).rev().map(|at| reading.searched(at)).collect();
            reading.joined(|_| pieces.pop().unwrap_or_default())
        }
        Turns::Beside => {
            let mut pieces = reading.beside().into_iter();
            reading.joined(|_| pieces.next().unwrap_or_default())
        }
    }
}

/// What a piece gave.
#[derive(Debug, Default)]
struct Piece {
    read: Read,
    payload: usize,
    seam: Seam,
}

struct Reading<'s> {
    source: &'s dyn Source,
    context: ReadContext,
    bounds: Bounds,
    splits: Vec<Split>,
}

impl Reading<'_> {
    /// Whether a piece begins where the one before it ends.
    fn follows(&self, at: usize) -> bool {
        let before = at.checked_sub(1).and_then(|before| self.splits.get(before));
        let split = self.splits.get(at);
        before.zip(split).is_some_and(|(before, split)| before.is_followed_by(split))
    }

    /// What a piece gives that is read without knowing of the others.
    fn searched(&self, at: usize) -> Piece {
        let Some(split) = self.splits.get(at) else { return Piece::default() };
        let entry = if self.follows(at) { SplitStart::Search } else { SplitStart::At(split.start) };
        self.piece(split, entry)
    }

    /// What the pieces give when several threads take turns.
    fn beside(&self) -> Vec<Piece> {
        let every = |first: usize| {
            let ats = (first..self.splits.len()).step_by(THREADS);
            ats.map(|at| (at, self.searched(at))).collect::<Vec<_>>()
        };
        let mut pieces: Vec<(usize, Piece)> = std::thread::scope(|scope| {
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

    /// Puts pieces together as the engine does: one that did not begin where the one before it ended is
    /// read again from there.
    fn joined(&self, mut piece: impl FnMut(usize) -> Piece) -> Read {
        let (mut read, mut payload, mut last) = (Read::default(), 0_usize, Seam::default());
        for (at, split) in self.splits.iter().enumerate() {
            let due = if self.follows(at) { last.ended } else { None };
            let mut next = piece(at);
            // What fails has no seam.
            if let Some(due) = due
                && next.seam.began != Some(due)
                && next.read.error.is_none()
            {
                next = self.piece(split, SplitStart::At(due));
            }
            payload = payload.saturating_add(next.payload);
            let Read { events, damage, error, endless, says } = next.read;
            read.events.extend(events);
            read.damage.extend(damage);
            read.says.extend(says);
            read.error = error;
            read.endless = endless.or_else(|| self.too_much(read.events.len(), payload, 0));
            if read.error.is_some() || read.endless.is_some() {
                break;
            }
            last = next.seam;
        }
        read
    }

    fn piece(&self, split: &Split, entry: SplitStart) -> Piece {
        let context = self.context.with_own_logs();
        let mut piece = Piece::default();
        match self.source.read(split, entry, &context) {
            Ok(mut reader) => match self.batches(&mut *reader, &context, &mut piece) {
                Ok(()) => piece.seam = reader.seam(),
                Err(error) => piece.read.error = Some(error.to_string()),
            },
            Err(error) => piece.read.error = Some(error.to_string()),
        }
        let told = |d: Damage| Told {
            input: d.input.to_string(),
            offset: d.offset,
            length: d.length,
            reason: d.reason,
        };
        piece.read.damage = context.damage.take().into_iter().map(told).collect();
        piece.read.says = context.losses.take_notes().into_iter().map(|(what, _)| what).collect();
        piece
    }

    fn batches(
        &self,
        reader: &mut dyn Reader,
        context: &ReadContext,
        piece: &mut Piece,
    ) -> Result<(), Error> {
        let mut idle = 0;
        while let Some(batch) = reader.next_batch()? {
            idle = if batch.is_empty() { idle + 1 } else { 0 };
            piece.payload = piece.payload.saturating_add(batch.payload_bytes() as usize);
            let events = piece.read.events.len() + batch.len();
            if let Some(what) = self.too_much(events, piece.payload, idle) {
                piece.read.endless = Some(what);
                return Ok(());
            }
            piece.read.events.extend(plain(&batch, &context.channels));
        }
        Ok(())
    }

    fn too_much(&self, events: usize, payload: usize, idle: usize) -> Option<String> {
        if events > self.bounds.events {
            return Some(format!("{events} events, and there are more"));
        }
        if payload > self.bounds.payload {
            return Some(format!("{payload} bytes of payloads, and there are more"));
        }
        (idle > self.bounds.idle)
            .then(|| format!("{idle} empty batches one behind another, and there are more"))
    }
}
