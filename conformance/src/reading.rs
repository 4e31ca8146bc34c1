//! Reading a source as the engine does, but with an end: what gives more than its input could hold is
//! stopped. Judges nothing else.

use sluice_core::contract::PlainEvent;
use sluice_core::{BlockPool, Damage, Entry, Error, Query, ReadContext, Seam, Source, Split};

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

/// The name under which sources are read.
pub(crate) const NAME: &str = "log";

/// Reads all of a source in pieces of `target` bytes through blocks of this pool.
pub(crate) fn read_all(
    source: &dyn Source,
    target: u64,
    blocks: &BlockPool,
    bounds: Bounds,
) -> Read {
    let mut context = ReadContext::standalone(NAME);
    context.blocks = blocks.clone();
    let mut reading = Reading { source, context, bounds, read: Read::default(), payload: 0 };
    if let Err(error) = reading.run(target) {
        reading.read.error = Some(error.to_string());
    }
    reading.read
}

struct Reading<'s> {
    source: &'s dyn Source,
    context: ReadContext,
    bounds: Bounds,
    read: Read,
    payload: usize,
}

impl Reading<'_> {
    fn run(&mut self, target: u64) -> Result<(), Error> {
        let mut last: Option<(Split, Seam)> = None;
        for split in self.source.splits(target, &Query::default())? {
            let before = (self.read.events.len(), self.read.damage.len(), self.payload);
            let follows = last.as_ref().filter(|(before, _)| before.is_followed_by(&split));
            let due = follows.and_then(|(_, seam)| seam.ended);
            let entry = if follows.is_some() { Entry::Search } else { Entry::At(split.start) };
            let mut seam = self.split(&split, entry)?;
            if due.is_some() && seam.began != due {
                self.read.events.truncate(before.0);
                self.read.damage.truncate(before.1);
                self.payload = before.2;
                seam = self.split(&split, Entry::At(due.unwrap_or_default()))?;
            }
            if self.read.endless.is_some() {
                return Ok(());
            }
            last = Some((split, seam));
        }
        Ok(())
    }

    fn split(&mut self, split: &Split, entry: Entry) -> Result<Seam, Error> {
        let context = self.context.with_own_logs();
        let mut reader = self.source.read(split, entry, &context)?;
        let mut idle = 0;
        let read = loop {
            let batch = match reader.next_batch() {
                Ok(Some(batch)) => batch,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            };
            idle = if batch.is_empty() { idle + 1 } else { 0 };
            let (events, payload) = (batch.len(), batch.payload_bytes() as usize);
            self.payload = self.payload.saturating_add(payload);
            if let Some(what) = self.too_much(self.read.events.len() + events, idle) {
                self.read.endless = Some(what);
                break Ok(());
            }
            self.read.events.extend(plain(&batch, &context.channels));
        };
        let told = |d: Damage| Told {
            input: d.input.to_string(),
            offset: d.offset,
            length: d.length,
            reason: d.reason,
        };
        self.read.damage.extend(context.damage.take().into_iter().map(told));
        self.read.says.extend(context.losses.take_notes().into_iter().map(|(what, _)| what));
        read.map(|()| reader.seam())
    }

    fn too_much(&self, events: usize, idle: usize) -> Option<String> {
        if events > self.bounds.events {
            return Some(format!("{events} events, and there are more"));
        }
        if self.payload > self.bounds.payload {
            return Some(format!("{} bytes of payloads, and there are more", self.payload));
        }
        (idle > self.bounds.idle)
            .then(|| format!("{idle} empty batches one behind another, and there are more"))
    }
}
