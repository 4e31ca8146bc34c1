//! Runs a stage without the engine, and records all its output. Checks the output only.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use sluice_model::{Batch, ChannelId, Error, Plugin, Query, Rows, Stage, StageContext, TimeWindow};

use crate::Promise;
use crate::events::{Events, concat};
use crate::finding::Fault;

use super::pushdown::{before, select_events};

/// A stage and its events.
pub(super) struct DirectStage<'e> {
    pub(super) plugin: &'e Plugin,
    pub(super) options: &'e Value,
    pub(super) events: &'e Events,
}

/// The complete output of a stage.
pub(super) struct StageOutcome {
    pub(super) events: Events,
    given: ChannelCounts,
    filtered: u64,
    added: ChannelCounts,
    undecoded: ChannelCounts,
    notes: ChannelCounts,
    /// The first fault in rows.
    misplaced: Option<String>,
    /// Evidence of delayed events, if the stage declares that it delays none.
    held_back: Option<String>,
}

/// Counts by name.
type ChannelCounts = BTreeMap<String, u64>;

impl DirectStage<'_> {
    /// Runs all events as one batch.
    pub(super) fn whole(&self) -> Result<StageOutcome, String> {
        self.in_batches(usize::MAX, false)
    }

    /// Runs the events in batches of this size, optionally with empty ones between.
    pub(super) fn in_batches(&self, size: usize, empty: bool) -> Result<StageOutcome, String> {
        let mut batches = self.events.in_batches(size.min(self.events.len()));
        if empty {
            batches = batches.into_iter().flat_map(|b| [Batch::default(), b]).collect();
            batches.push(Batch::default());
        }
        self.start_pass()?.all(batches)
    }

    /// Runs the stage with only `after` wanted from it: once on all events, and once on those that
    /// it declares to need for that.
    pub(super) fn with_pushdown(&self, after: &Query) -> Result<[StageOutcome; 2], String> {
        let each = [false, true].map(|skips| -> Result<StageOutcome, String> {
            let mut work = self.start_pass()?;
            let (needs, windows) = before(&work.parts, after, self.events.batch.timestamps());
            work.windows = windows;
            let events =
                if skips { select_events(self.events, &needs) } else { self.events.clone() };
            let mut outcome = work.all(events.in_batches(7))?;
            outcome.events = select_events(&outcome.events, after);
            Ok(outcome)
        });
        let [all, few] = each;
        Ok([all?, few?])
    }

    /// Runs a stage of maps on its batches in reverse order, and restores the order of the output;
    /// `None` if it has a fold.
    pub(super) fn backwards(&self, size: usize) -> Option<Result<StageOutcome, String>> {
        let mut work = match self.start_pass() {
            Ok(work) => work,
            Err(what) => return Some(Err(what)),
        };
        if work.parts.iter().any(|part| matches!(part, Stage::Fold(_))) {
            return None;
        }
        let mut outs = Vec::new();
        for batch in self.events.in_batches(size).into_iter().rev() {
            let mut out = Vec::new();
            if let Err(what) = work.push(0, batch, &mut out) {
                return Some(Err(what));
            }
            outs.push(out);
        }
        let out: Vec<Batch> = outs.into_iter().rev().flatten().collect();
        Some(Ok(work.outcome(&out)))
    }

    fn start_pass(&self) -> Result<StagePass<'_>, String> {
        let stage = crate::kit_plugins::registry()
            .stage(self.plugin.name, self.options.clone())
            .map_err(|error| error.to_string())?;
        let origin = self.events.batch.timestamps().first().copied();
        let (parts, said) = (stage.into_parts(), StageLog::default());
        let (windows, misplaced, held) = (Vec::new(), None, None);
        Ok(StagePass { parts, events: self.events, origin, windows, log: said, misplaced, held })
    }
}

/// What a stage has reported so far.
#[derive(Default)]
struct StageLog {
    filtered: u64,
    added: ChannelCounts,
    undecoded: ChannelCounts,
    notes: ChannelCounts,
}

/// A stage instance for one pass over the events.
struct StagePass<'e> {
    parts: Vec<Stage>,
    events: &'e Events,
    origin: Option<i64>,
    /// The time window after each part; unlimited by default.
    windows: Vec<TimeWindow>,
    log: StageLog,
    misplaced: Option<String>,
    held: Option<String>,
}

/// The maximum number of `more` calls.
const MAX_PIECES: usize = 100_000;

impl StagePass<'_> {
    /// Runs these batches.
    fn all(mut self, batches: Vec<Batch>) -> Result<StageOutcome, String> {
        let mut out = Vec::new();
        for batch in batches {
            self.push(0, batch, &mut out)?;
        }
        self.finish(&mut out)?;
        Ok(self.outcome(&out))
    }

    /// Passes a batch to one part, and its output to the following parts.
    fn push(&mut self, place: usize, batch: Batch, out: &mut Vec<Batch>) -> Result<(), String> {
        if self.parts.len() <= place {
            out.push(batch);
            return Ok(());
        }
        let count = batch.len() as u64;
        let (added, filtered) = (sum(&self.log.added), self.log.filtered);
        let given = self.all_output(place, |part, context| match part {
            Stage::Map(map) => map.apply(batch, context).map(|batch| vec![batch]),
            Stage::Fold(fold) => fold.push(batch, context),
            Stage::Chain(_) => Ok(vec![batch]),
        })?;
        let entered = count + sum(&self.log.added) - added;
        let left = given.iter().map(|batch| batch.len() as u64).sum::<u64>();
        let filtered = self.log.filtered - filtered;
        if !self.holds(place) && entered != left + filtered {
            let what =
                || format!("of {entered} events {left} come out and {filtered} are filtered");
            self.held.get_or_insert_with(what);
        }
        given.into_iter().try_for_each(|batch| self.push(place + 1, batch, out))
    }

    fn finish(&mut self, out: &mut Vec<Batch>) -> Result<(), String> {
        for place in 0..self.parts.len() {
            let left = self.all_output(place, |part, context| match part {
                Stage::Fold(fold) => fold.finish(context),
                _ => Ok(Vec::new()),
            })?;
            left.into_iter().try_for_each(|batch| self.push(place + 1, batch, out))?;
        }
        Ok(())
    }

    /// Whether a part may delay events. Maps are checked at the end.
    fn holds(&self, place: usize) -> bool {
        match self.parts.get(place) {
            Some(Stage::Fold(fold)) => fold.delays_events(),
            _ => true,
        }
    }

    /// All output of one part for this call, including `more`.
    fn all_output(
        &mut self,
        place: usize,
        work: impl FnOnce(&mut Stage, &mut StageContext<'_>) -> Result<Vec<Batch>, Error>,
    ) -> Result<Vec<Batch>, String> {
        let mut given = self.step(place, work)?;
        for _ in 0..MAX_PIECES {
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
        work: impl FnOnce(&mut Stage, &mut StageContext<'_>) -> Result<Vec<Batch>, Error>,
    ) -> Result<Vec<Batch>, String> {
        let channels = &self.events.channels;
        let wanted = self.windows.get(place).copied().unwrap_or_default();
        let mut context = StageContext::new(channels, self.origin).within(wanted);
        let Some(part) = self.parts.get_mut(place) else { return Ok(Vec::new()) };
        let given = work(part, &mut context).map_err(|error| error.to_string())?;
        self.log.filtered += context.report.filtered;
        count(&context.report.undecoded, self.events, &mut self.log.undecoded);
        count(&context.report.added, self.events, &mut self.log.added);
        for (what, count) in context.report.notes {
            *self.log.notes.entry(what).or_default() += count;
        }
        let wrong = given
            .iter()
            .find_map(|batch| batch.rows().iter().find_map(|rows| misplaced(rows, batch.len())));
        self.misplaced = self.misplaced.take().or(wrong);
        Ok(given)
    }

    fn outcome(self, out: &[Batch]) -> StageOutcome {
        let StageLog { filtered, added, undecoded, notes } = self.log;
        let channels = Arc::clone(&self.events.channels);
        let given = by_channel(self.events, &self.events.batch);
        let (misplaced, held) = (self.misplaced, self.held);
        // Rows without events cannot be joined.
        let batch = match misplaced.is_some() {
            true => {
                concat(&out.iter().map(|b| b.clone().with_rows(Vec::new())).collect::<Vec<_>>())
            }
            false => concat(out),
        };
        let events = Events { channels, batch };
        StageOutcome {
            events,
            given,
            filtered,
            added,
            undecoded,
            notes,
            misplaced,
            held_back: held,
        }
    }
}

/// What is wrong with the rows of a batch with this many events.
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

/// The number of events by original channel.
fn by_channel(events: &Events, batch: &Batch) -> ChannelCounts {
    let mut counts = ChannelCounts::new();
    count(batch.origins(), events, &mut counts);
    counts
}

fn sum(counts: &ChannelCounts) -> u64 {
    counts.values().sum()
}

/// Counts channels by their names.
fn count(ids: &[u32], events: &Events, counts: &mut ChannelCounts) {
    for id in ids {
        let name = events.channels.get(ChannelId(*id)).name.text().to_owned();
        *counts.entry(name).or_default() += 1;
    }
}

impl StageOutcome {
    /// What is wrong with the output for any input.
    pub(super) fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        if let Some(what) = &self.misplaced {
            faults.push(Fault::new(Promise::WholeRows, "rows do not lie beside events", what));
        }
        if let Some(what) = &self.held_back {
            let kind = "it declares that it delays no event (`delays_events`), and does";
            faults.push(Fault::new(Promise::Accounting, kind, what));
        }
        let entered = |channel: &str| {
            let of = |counts: &ChannelCounts| counts.get(channel).copied().unwrap_or(0);
            of(&self.given) + of(&self.added)
        };
        let out = by_channel(&self.events, &self.events.batch);
        if let Some((channel, count)) = out.iter().find(|(name, count)| **count > entered(name)) {
            let what = format!("{count} events of `{channel}` come out of {}", entered(channel));
            faults.push(Fault::new(Promise::Accounting, "it makes up events", what));
        }
        let (given, added) = (sum(&self.given), sum(&self.added));
        let (left, filtered) = (self.events.len() as u64, self.filtered);
        if given + added != left + filtered {
            let and = if added > 0 { format!(" and {added} more") } else { String::new() };
            let what =
                format!("of {given} events{and} {left} come out and {filtered} are filtered");
            let kind = "events are lost, or are counted wrong";
            faults.push(Fault::new(Promise::Accounting, kind, what));
        }
        faults
    }

    /// The differences to another output for the same events.
    pub(super) fn difference(&self, other: &Self, promise: Promise) -> Vec<Fault> {
        let events = self.events.difference(&other.events);
        let events = events.map(|what| Fault::new(promise, "other events come out", what));
        let differs = |kind: &str, ours: String, theirs: String| {
            let what = || format!("{theirs} instead of {ours}");
            (ours != theirs).then(|| Fault::new(promise, kind, what()))
        };
        let counts = |counts: &ChannelCounts| format!("{counts:?}");
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
