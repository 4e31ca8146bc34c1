//! Which source the driver asks next, how long it waits for it, and how much it may read.

use std::collections::{BTreeMap, BTreeSet};
use std::task::Poll;
use std::time::{Duration, Instant};

use crossbeam_channel::Select;
use sluice_model::Error;

use super::super::topology::MergeNode;
use super::sources::SILENCE_TIMEOUT;
use super::{RunDriver, RunningSource, SourceStep};

/// How long to wait for sources without data before doing something else.
const DATA_PATIENCE: Duration = Duration::from_millis(20);

/// How long to wait for a step before checking whether the run was stopped.
const STEP_PATIENCE: Duration = Duration::from_millis(100);

impl RunDriver<'_> {
    /// The source to poll next: one that a merge waits for, otherwise the one with the fewest
    /// turns. A source without data is polled only if no other one may go on.
    pub(super) fn next_source(&mut self) -> Result<Option<usize>, Error> {
        let mut asked = BTreeMap::new();
        for source in 0..self.sources.len() {
            if !self.has_demand(&self.sources[source].segment, &mut asked) {
                self.sources[source].was_cut_short |= !self.sources[source].ended;
                self.end_source(source)?;
            }
        }
        self.note_silence();
        let open = |source: &usize| !self.sources[*source].ended;
        let has_data = |source: &usize| self.sources[*source].has_data();
        let turn = |source: &usize| {
            (!has_data(source), self.is_held_back(*source), self.sources[*source].turns, *source)
        };
        // A silent source that no merge waits for would otherwise never get its turn.
        let back = |source: &usize| self.sources[*source].silent && has_data(source);
        let back = (0..self.sources.len()).filter(open).filter(back).min_by_key(turn);
        let starved = (0..self.merges.len())
            .filter_map(|merge| self.awaited(merge)?.iter().copied().filter(open).min_by_key(turn));
        let starved = back.or_else(|| starved.min_by_key(turn));
        if starved.as_ref().is_some_and(has_data) {
            return Ok(starved);
        }
        // What a merge waits for is silent: that is no reason to wait with other streams.
        let free = |source: &usize| has_data(source) && !self.feeds_starved_merge(*source);
        let free = (0..self.sources.len()).filter(open).filter(free).min_by_key(turn);
        let any = || (0..self.sources.len()).filter(open).min_by_key(turn);
        Ok(free.or(starved).or_else(any))
    }

    /// Whether events of a source could only queue up at a merge, which waits for another one.
    fn feeds_starved_merge(&self, source: usize) -> bool {
        let starved = self.merges.iter().filter(|node| node.merge.starved().is_some());
        starved.flat_map(|node| &node.roots).any(|roots| roots.contains(&source))
    }

    /// The sources of which one must deliver before a merge can continue.
    ///
    /// If the merge waits for another merge, these are the sources that the other one waits for:
    /// anything else would only queue up.
    pub(super) fn awaited(&self, mut merge: usize) -> Option<&BTreeSet<usize>> {
        let mut input = self.merges[merge].merge.starved()?;
        while let Some(before) = self.merges[merge].fed_by[input]
            && let Some(starved) = self.merges[before].merge.starved()
        {
            (merge, input) = (before, starved);
        }
        Some(&self.merges[merge].roots[input])
    }

    /// The next step of the chosen source; `None` at its end. Pending if it has no data.
    pub(super) fn next_step(&mut self, chosen: usize) -> Result<Poll<Option<SourceStep>>, Error> {
        if !self.sources[chosen].has_data() {
            self.await_data();
        }
        let budget = self.budget_for(chosen);
        let labels = &self.setup.shared.labels;
        let RunningSource { node, steps, may_stall, plan, .. } = &mut self.sources[chosen];
        loop {
            let may_wait = *may_stall && steps.in_flight() == 0;
            let patience = if may_wait { Duration::ZERO } else { STEP_PATIENCE };
            // Also starts to listen, on this thread.
            let step = Error::catching(|| steps.poll(patience, budget)).map_err(|error| {
                let split = steps.split_in_progress().and_then(|split| plan.0.get(split));
                labels.name(*node, split.map(|split| split.input.as_path()), error)
            })?;
            if step.is_ready() || *may_stall && steps.in_flight() == 0 {
                return Ok(step);
            }
        }
    }

    /// Waits for any source without data, but not for long: silence matters too.
    fn await_data(&self) {
        let mut select = Select::new();
        let silent = self.sources.iter().filter(|source| !source.ended && !source.has_data());
        silent.for_each(|source| source.steps.add_to(&mut select));
        // Data or not, the caller goes on.
        select.ready_timeout(DATA_PATIENCE).ok();
    }

    /// The bytes that running steps of a source may take: what the others leave.
    pub(super) fn budget_for(&self, source: usize) -> usize {
        let others = self.sources.iter().enumerate().filter(|(n, _)| *n != source);
        let others: usize = others.map(|(_, other)| other.steps.estimated_bytes()).sum();
        let heads = self.pending.values();
        let heads: usize =
            heads.map(|pending| pending.step_sizes.estimated_bytes(pending.tasks.len())).sum();
        let merges: usize = self.merges.iter().map(|merge| merge.merge.bytes()).sum();
        self.setup.step_budget.saturating_sub(others.saturating_add(heads).saturating_add(merges))
    }

    /// Whether events of a source would only queue up at a merge that already holds many of them
    /// and waits for another source. Otherwise two merges that share a source could fill memory at
    /// one of them.
    pub(super) fn is_held_back(&self, source: usize) -> bool {
        let limit = self.setup.merge_limit();
        self.merges.iter().any(|MergeNode { merge, roots, .. }| {
            let feeds = roots.iter().enumerate().filter(|(_, roots)| roots.contains(&source));
            let mut waits = feeds.filter(|(input, _)| merge.waiting_bytes(*input) > limit);
            waits.any(|(input, _)| merge.starved().is_some_and(|starved| starved != input))
        })
    }

    /// Marks merge inputs as idle whose live sources are all silent; merges do not wait for these.
    pub(super) fn note_silence(&mut self) {
        for source in &mut self.sources {
            source.silent = !source.ended && source.has_been_silent();
        }
        for merge in 0..self.merges.len() {
            for input in 0..self.merges[merge].roots.len() {
                let is_idle = self.is_idle(merge, input);
                self.merges[merge].merge.set_idle(input, is_idle);
            }
        }
    }

    /// Waits again for idle inputs of a merge that may precede what has just been pushed.
    pub(super) fn end_idleness(&mut self, merge: usize) {
        for input in 0..self.merges[merge].roots.len() {
            if self.merges[merge].merge.is_idle(input) && !self.is_idle(merge, input) {
                self.merges[merge].merge.set_idle(input, false);
            }
        }
    }

    /// Whether each live source of a merge input is silent, or has long sent events for others
    /// only.
    fn is_idle(&self, merge: usize, input: usize) -> bool {
        let MergeNode { roots, is_undelayed, last_push, fed_by, .. } = &self.merges[merge];
        let holds = |before: usize| self.merges[before].merge.bytes() > 0;
        let may_be_idle = is_undelayed[input] && !fed_by[input].is_some_and(holds);
        // What follows arrives later than all that the merge holds.
        let is_past = |until: Instant| {
            last_push.iter().all(|last| *last <= until)
                && until.duration_since(last_push[input]) >= SILENCE_TIMEOUT
        };
        let mut open = roots[input].iter().map(|root| &self.sources[*root]);
        open.all(|root| {
            // What has arrived in the silence may be waiting for other sources and their stages.
            let is_silent = root.silent && root.is_quiet();
            root.ended || is_silent || may_be_idle && root.caught_up().is_some_and(is_past)
        })
    }

    /// By how much, at least, what follows in a merge is later than what came.
    pub(super) fn later_by(&self, merge: usize) -> i64 {
        let MergeNode { roots, is_undelayed, last_push, .. } = &self.merges[merge];
        if !is_undelayed.iter().all(|undelayed| *undelayed) {
            return 0;
        }
        // Live events have the times at which they arrive, also those that others take. What has
        // arrived may be waiting for other sources and their stages.
        let roots = roots.iter().flatten().map(|root| &self.sources[*root]);
        let open = roots.filter(|root| !root.ended);
        let caught_up = open.filter_map(RunningSource::caught_up).min();
        let later = caught_up.zip(last_push.iter().max());
        let later = later.and_then(|(until, last)| until.checked_duration_since(*last));
        let later = later.and_then(|later| later.checked_sub(SILENCE_TIMEOUT)).unwrap_or_default();
        i64::try_from(later.as_nanos()).unwrap_or(i64::MAX)
    }
}
