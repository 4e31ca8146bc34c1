//! A stage at work without the engine: batches in, and all that came of them. Does not judge how it may be
//! called, only what it gave.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use sluice_core::{
    Batch, ChannelId, Plugin, PluginFactory, Query, Rows, Stage, StageContext, TimeWindow,
};

use crate::Promise;
use crate::events::{Events, joined};
use crate::finding::Fault;

use super::wanted::{before, only};

/// A stage and its events.
pub(super) struct Tried<'e> {
    pub(super) plugin: &'e Plugin,
    pub(super) options: &'e Value,
    pub(super) events: &'e Events,
}

/// All that came of the events.
pub(super) struct Outcome {
    pub(super) events: Events,
    given: Counts,
    filtered: u64,
    added: Counts,
    undecoded: Counts,
    notes: Counts,
    /// What is wrong with rows.
    misplaced: Option<String>,
    /// What was held back by who says that it holds nothing back.
    held: Option<String>,
}

/// How often something happened, by name.
type Counts = BTreeMap<String, u64>;

impl Tried<'_> {
    /// What comes of all events in one batch.
    pub(super) fn whole(&self) -> Result<Outcome, String> {
        self.cut(usize::MAX, false)
    }

    /// What comes of the events in batches of this size, with empty ones between or without.
    pub(super) fn cut(&self, size: usize, empty: bool) -> Result<Outcome, String> {
        let mut batches = self.events.cut(size.min(self.events.len()));
        if empty {
            batches = batches.into_iter().flat_map(|b| [Batch::default(), b]).collect();
            batches.push(Batch::default());
        }
        self.work()?.all(batches)
    }

    /// What comes of the events where only these are wanted after the stage, without any others: from all
    /// events, and from those alone that the stage says it needs for them.
    pub(super) fn wanted(&self, after: &Query) -> Result<[Outcome; 2], String> {
        let each = [false, true].map(|skips| -> Result<Outcome, String> {
            let mut work = self.work()?;
            let (needs, windows) = before(&work.parts, after, self.events.batch.timestamps());
            work.windows = windows;
            let events = if skips { only(self.events, &needs) } else { self.events.clone() };
            let mut outcome = work.all(events.cut(7))?;
            outcome.events = only(&outcome.events, after);
            Ok(outcome)
        });
        let [all, few] = each;
        Ok([all?, few?])
    }

    /// What comes of batches of this size that a stage without memory gets in another order, put in order
    /// again; nothing if it has a memory.
    pub(super) fn backwards(&self, size: usize) -> Option<Result<Outcome, String>> {
        let mut work = match self.work() {
            Ok(work) => work,
            Err(what) => return Some(Err(what)),
        };
        if work.parts.iter().any(|part| matches!(part, Stage::Fold(_))) {
            return None;
        }
        let mut outs = Vec::new();
        for batch in self.events.cut(size).into_iter().rev() {
            let mut out = Vec::new();
            if let Err(what) = work.push(0, batch, &mut out) {
                return Some(Err(what));
            }
            outs.push(out);
        }
        let out: Vec<Batch> = outs.into_iter().rev().flatten().collect();
        Some(Ok(work.outcome(&out)))
    }

    fn work(&self) -> Result<Work<'_>, String> {
        let PluginFactory::Stage(make) = self.plugin.make else {
            return Err("it is no stage".to_owned());
        };
        let stage = make(self.options.clone()).map_err(|error| error.to_string())?;
        let origin = self.events.batch.timestamps().first().copied();
        let (parts, said) = (stage.into_parts(), Said::default());
        let (windows, misplaced, held) = (Vec::new(), None, None);
        Ok(Work { parts, events: self.events, origin, windows, said, misplaced, held })
    }
}

/// What a stage has said so far.
#[derive(Default)]
struct Said {
    filtered: u64,
    added: Counts,
    undecoded: Counts,
    notes: Counts,
}

/// A stage that is made for one pass over the events.
struct Work<'e> {
    parts: Vec<Stage>,
    events: &'e Events,
    origin: Option<i64>,
    /// The times that are wanted after each part; all, where nothing is said.
    windows: Vec<TimeWindow>,
    said: Said,
    misplaced: Option<String>,
    held: Option<String>,
}

/// Most pieces of what a stage gives piece by piece.
const MOST_PIECES: usize = 100_000;

impl Work<'_> {
    /// What comes of these batches.
    fn all(mut self, batches: Vec<Batch>) -> Result<Outcome, String> {
        let mut out = Vec::new();
        for batch in batches {
            self.push(0, batch, &mut out)?;
        }
        self.finish(&mut out)?;
        Ok(self.outcome(&out))
    }

    /// Gives a batch to the part at a place, and what comes of it to those behind.
    fn push(&mut self, place: usize, batch: Batch, out: &mut Vec<Batch>) -> Result<(), String> {
        if self.parts.len() <= place {
            out.push(batch);
            return Ok(());
        }
        let count = batch.len() as u64;
        let (added, filtered) = (sum(&self.said.added), self.said.filtered);
        let given = self.given(place, |part, context| match part {
            Stage::Map(map) => map.apply(batch, context).map(|batch| vec![batch]),
            Stage::Fold(fold) => fold.push(batch, context),
            Stage::Chain(_) => Ok(vec![batch]),
        })?;
        let entered = count + sum(&self.said.added) - added;
        let left = given.iter().map(|batch| batch.len() as u64).sum::<u64>();
        let filtered = self.said.filtered - filtered;
        if !self.holds(place) && entered != left + filtered {
            let what =
                || format!("of {entered} events {left} come out and {filtered} are filtered");
            self.held.get_or_insert_with(what);
        }
        given.into_iter().try_for_each(|batch| self.push(place + 1, batch, out))
    }

    fn finish(&mut self, out: &mut Vec<Batch>) -> Result<(), String> {
        for place in 0..self.parts.len() {
            let left = self.given(place, |part, context| match part {
                Stage::Fold(fold) => fold.finish(context),
                _ => Ok(Vec::new()),
            })?;
            left.into_iter().try_for_each(|batch| self.push(place + 1, batch, out))?;
        }
        Ok(())
    }

    /// Whether the part at a place may give events later than they came. Books of maps are kept at the end.
    fn holds(&self, place: usize) -> bool {
        match self.parts.get(place) {
            Some(Stage::Fold(fold)) => fold.delays_events(),
            _ => true,
        }
    }

    /// All that the part at a place gives for this work, also what it does not give at once.
    fn given(
        &mut self,
        place: usize,
        work: impl FnOnce(&mut Stage, &mut StageContext<'_>) -> Result<Vec<Batch>, sluice_core::Error>,
    ) -> Result<Vec<Batch>, String> {
        let mut given = self.step(place, work)?;
        for _ in 0..MOST_PIECES {
            let more = self.step(place, |part, context| match part {
                Stage::Fold(fold) => fold.more(context),
                _ => Ok(Vec::new()),
            })?;
            if more.is_empty() {
                return Ok(given);
            }
            given.extend(more);
        }
        Err("what it gives piece by piece (`more`) has no end".to_owned())
    }

    fn step(
        &mut self,
        place: usize,
        work: impl FnOnce(&mut Stage, &mut StageContext<'_>) -> Result<Vec<Batch>, sluice_core::Error>,
    ) -> Result<Vec<Batch>, String> {
        let channels = &self.events.channels;
        let wanted = self.windows.get(place).copied().unwrap_or_default();
        let mut context = StageContext::new(channels, self.origin).within(wanted);
        let Some(part) = self.parts.get_mut(place) else { return Ok(Vec::new()) };
        let given = work(part, &mut context).map_err(|error| error.to_string())?;
        self.said.filtered += context.filtered;
        count(&context.undecoded, self.events, &mut self.said.undecoded);
        count(&context.added, self.events, &mut self.said.added);
        for (what, count) in context.notes {
            *self.said.notes.entry(what).or_default() += count;
        }
        let wrong = given
            .iter()
            .find_map(|batch| batch.rows().iter().find_map(|rows| misplaced(rows, batch.len())));
        self.misplaced = self.misplaced.take().or(wrong);
        Ok(given)
    }

    fn outcome(self, out: &[Batch]) -> Outcome {
        let Said { filtered, added, undecoded, notes } = self.said;
        let channels = Arc::clone(&self.events.channels);
        let given = by_channel(self.events, &self.events.batch);
        let (misplaced, held) = (self.misplaced, self.held);
        // Rows that belong to no event cannot be put together.
        let batch = match misplaced.is_some() {
            true => {
                joined(&out.iter().map(|b| b.clone().with_rows(Vec::new())).collect::<Vec<_>>())
            }
            false => joined(out),
        };
        let events = Events { channels, batch };
        Outcome { events, given, filtered, added, undecoded, notes, misplaced, held }
    }
}

/// What is wrong with rows that travel with so many events.
fn misplaced(rows: &Rows, events: usize) -> Option<String> {
    let name = &rows.message.name;
    let (many, few) = (rows.events.len(), rows.columns.num_rows());
    if many != few {
        return Some(format!("`{name}`: {few} rows for {many} events"));
    }
    if !rows.events.is_sorted_by(|one, next| one < next) {
        return Some(format!("`{name}`: events are not in order, or there twice"));
    }
    let beyond = rows.events.last().is_some_and(|last| *last as usize >= events);
    beyond.then(|| format!("`{name}`: rows of events that are not in the batch"))
}

/// How many events there are of each channel that they were read on.
fn by_channel(events: &Events, batch: &Batch) -> Counts {
    let mut counts = Counts::new();
    count(batch.origins(), events, &mut counts);
    counts
}

fn sum(counts: &Counts) -> u64 {
    counts.values().sum()
}

/// Counts channels by their names.
fn count(ids: &[u32], events: &Events, counts: &mut Counts) {
    for id in ids {
        let name = events.channels.get(ChannelId(*id)).name.text().to_owned();
        *counts.entry(name).or_default() += 1;
    }
}

impl Outcome {
    /// What is wrong with it whatever was given.
    pub(super) fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        if let Some(what) = &self.misplaced {
            faults.push(Fault::new(Promise::WholeRows, "rows do not lie beside events", what));
        }
        if let Some(what) = &self.held {
            let kind = "it says that it holds nothing back (`holds`), and does";
            faults.push(Fault::new(Promise::Books, kind, what));
        }
        let entered = |channel: &str| {
            let of = |counts: &Counts| counts.get(channel).copied().unwrap_or(0);
            of(&self.given) + of(&self.added)
        };
        let out = by_channel(&self.events, &self.events.batch);
        if let Some((channel, count)) = out.iter().find(|(name, count)| **count > entered(name)) {
            let what = format!("{count} events of `{channel}` come out of {}", entered(channel));
            faults.push(Fault::new(Promise::Books, "it makes up events", what));
        }
        let (given, added) = (sum(&self.given), sum(&self.added));
        let (left, filtered) = (self.events.len() as u64, self.filtered);
        if given + added != left + filtered {
            let and = if added > 0 { format!(" and {added} more") } else { String::new() };
            let what =
                format!("of {given} events{and} {left} come out and {filtered} are filtered");
            let kind = "events are lost, or are counted wrong";
            faults.push(Fault::new(Promise::Books, kind, what));
        }
        faults
    }

    /// In which ways another outcome of the same events differs.
    pub(super) fn difference(&self, other: &Self, promise: Promise) -> Vec<Fault> {
        let events = self.events.difference(&other.events);
        let events = events.map(|what| Fault::new(promise, "other events come out", what));
        let differs = |kind: &str, ours: String, theirs: String| {
            let what = || format!("{theirs} instead of {ours}");
            (ours != theirs).then(|| Fault::new(promise, kind, what()))
        };
        let counts = |counts: &Counts| format!("{counts:?}");
        let (ours, theirs) = (self.filtered.to_string(), other.filtered.to_string());
        [
            events,
            differs("another number is filtered", ours, theirs),
            differs("others are added", counts(&self.added), counts(&other.added)),
            differs("others cannot be decoded", counts(&self.undecoded), counts(&other.undecoded)),
            differs("other notes", counts(&self.notes), counts(&other.notes)),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}
