//! Streams inside the graph: runs the segments behind folds and merges, delivers their outcomes in
//! order, and ends them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use sluice_io::tasks::{Job, OrderedTasks, TaskPool};
use sluice_kit::reading::StepSizes;
use sluice_model::{Batch, Error};

use super::super::segment::{Branch, SegmentOutcome, SegmentOutput};
use super::super::topology::{MergeNode, Port, ports_of};
use super::RunDriver;

/// The head of a stream inside the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StreamHead {
    Fold(usize),
    Merge(usize),
}

/// The running tasks of a head, in order, and the sizes of earlier ones.
pub(super) struct Pending {
    pub(super) tasks: OrderedTasks<SegmentOutcome>,
    /// Updated when a task is delivered, so that starting the next one depends only on the events.
    pub(super) step_sizes: StepSizes,
}

impl Pending {
    fn new(pool: &TaskPool) -> Self {
        // How many run depends on the sizes of those before, not on what they start with.
        let tasks = OrderedTasks::new(pool, usize::MAX, usize::MAX);
        Self { tasks, step_sizes: StepSizes::default() }
    }
}

/// The note on events that a merge could not wait for.
const MERGED_LATE: &str = "merged out of order, because too much would have had to wait; more \
                           --memory avoids this";

/// The maximum number of batches between two folds.
const MAX_BETWEEN_FOLDS: usize = 16;

impl RunDriver<'_> {
    /// Delivers all running tasks of heads inside the graph, and what follows from them.
    pub(super) fn deliver_all_tasks(&mut self) -> Result<(), Error> {
        let busy =
            |(head, pending): (&StreamHead, &Pending)| (!pending.tasks.is_empty()).then_some(*head);
        // Heads that others feed were created before those that feed them.
        while let Some(head) = self.pending.iter().rev().find_map(busy) {
            self.deliver_tasks(head, usize::MAX)?;
        }
        Ok(())
    }

    /// Passes what a task made of a batch on: to the sinks, and to what sees events in order.
    pub(super) fn deliver(&mut self, outcome: SegmentOutcome) -> Result<(), Error> {
        self.tally.add(&outcome.tally);
        for delivery in outcome.deliveries {
            match delivery {
                SegmentOutput::Block { node, block, events } => {
                    self.writers.push(node, block, events, &mut self.tally)?;
                }
                SegmentOutput::Batch { port, batch } => self.deliver_to_port(port, batch)?,
            }
        }
        Ok(())
    }

    fn deliver_to_port(&mut self, port: usize, batch: Batch) -> Result<(), Error> {
        match self.ports[port] {
            Port::Fold(fold) => self.fold(fold, Some(batch)),
            Port::Merge(merge, input) => {
                let MergeNode { merge: into, last_push, .. } = &mut self.merges[merge];
                last_push[input] = Instant::now();
                into.push(input, batch);
                self.end_idleness(merge);
                self.drain_merge(merge, None)
            }
        }
    }

    /// Passes on what merges hold, after a step, or because a source had no data.
    pub(super) fn drain_merges(&mut self) -> Result<(), Error> {
        // Merges that feed others were created after those they feed.
        for merge in (0..self.merges.len()).rev() {
            self.drain_merge(merge, Some(self.later_by(merge)))?;
        }
        Ok(())
    }

    /// See [`take`](sluice_kit::merge::Merge::take) for `later_by`.
    fn drain_merge(&mut self, merge: usize, later_by: Option<i64>) -> Result<(), Error> {
        while let Some(batch) = self.merges[merge].merge.take(later_by) {
            self.emit(StreamHead::Merge(merge), batch)?;
        }
        let MergeNode { node, merge, .. } = &mut self.merges[merge];
        let late = merge.take_late();
        if late > 0 {
            self.tally.node(*node).note(MERGED_LATE, late);
        }
        Ok(())
    }

    /// Runs a batch through a head's segment as a task; outcomes are delivered in order. Runs
    /// inline if a merge follows, because a merge needs everything of a step when the step ends.
    pub(super) fn emit(&mut self, head: StreamHead, batch: Batch) -> Result<(), Error> {
        if batch.is_empty() {
            return Ok(());
        }
        let (segment, shared) = (self.segment(head), self.setup.shared.clone());
        if self.leads_to_merge(&segment) {
            let batch = self.placed(head, batch);
            let mut outcome = SegmentOutcome::default();
            shared.run(&segment, None, batch, &mut outcome)?;
            return self.deliver(outcome);
        }
        let batch = batch.without_places();
        self.await_capacity(head)?;
        let pending = self.pending.entry(head).or_insert_with(|| Pending::new(&self.tasks));
        pending.tasks.start(Job::new(0, move || {
            let mut outcome = SegmentOutcome::default();
            shared.run(&segment, None, batch, &mut outcome)?;
            Ok(outcome)
        }));
        Ok(())
    }

    /// Numbers the events of a head whose order merges behind it restore.
    fn placed(&mut self, head: StreamHead, batch: Batch) -> Batch {
        let gives_places = match head {
            StreamHead::Fold(fold) => self.folds[fold].fold.gives_places,
            StreamHead::Merge(merge) => self.merges[merge].gives_places,
        };
        if !gives_places {
            return batch;
        }
        let first = self.next_place;
        self.next_place += batch.len() as i64;
        batch.with_places_from(first)
    }

    /// Delivers a head's oldest tasks until another one fits its budget.
    pub(super) fn await_capacity(&mut self, head: StreamHead) -> Result<(), Error> {
        // The rest is for the sources.
        let budget = self.setup.step_budget / 4 * 3 / self.pending.len().max(1);
        // The point at which a fold learns that it is done must not depend on the number of
        // threads.
        let leads_on = !ports_of(&self.segment(head)).is_empty();
        let most = if leads_on { MAX_BETWEEN_FOLDS } else { self.setup.limits.window + 1 };
        while let Some(Pending { tasks, step_sizes }) = self.pending.get(&head)
            && tasks.len() >= step_sizes.max_steps(budget).min(most)
        {
            self.deliver_tasks(head, 1)?;
        }
        Ok(())
    }

    /// Delivers a head's oldest `count` tasks.
    pub(super) fn deliver_tasks(&mut self, head: StreamHead, count: usize) -> Result<(), Error> {
        for _ in 0..count {
            let Some(pending) = self.pending.get_mut(&head) else { break };
            let Some(outcome) = pending.tasks.take_oldest()? else { break };
            pending.step_sizes.note(outcome.memory);
            self.deliver(outcome)?;
        }
        Ok(())
    }

    /// Ends everything that a segment leads to.
    pub(super) fn end_segment(&mut self, segment: &[Branch]) -> Result<(), Error> {
        for port in ports_of(segment) {
            match self.ports[port] {
                Port::Fold(fold) if !self.folds[fold].ended => self.end_fold(fold)?,
                Port::Fold(_) => {}
                Port::Merge(merge, input) => {
                    self.merges[merge].merge.end(input);
                    self.drain_merge(merge, None)?;
                    if self.merges[merge].merge.is_over() {
                        self.end_head(StreamHead::Merge(merge))?;
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn end_head(&mut self, head: StreamHead) -> Result<(), Error> {
        self.deliver_tasks(head, usize::MAX)?;
        let segment = self.segment(head);
        self.end_segment(&segment)
    }

    pub(super) fn segment(&self, head: StreamHead) -> Arc<Vec<Branch>> {
        Arc::clone(match head {
            StreamHead::Fold(fold) => &self.folds[fold].fold.segment,
            StreamHead::Merge(merge) => &self.merges[merge].segment,
        })
    }

    /// Whether any node that a segment leads to can still use events.
    pub(super) fn has_demand(
        &self,
        segment: &[Branch],
        asked: &mut BTreeMap<StreamHead, bool>,
    ) -> bool {
        segment.iter().any(|branch| match branch {
            Branch::Sink { .. } => true,
            Branch::Map { next, .. } => self.has_demand(next, asked),
            Branch::Port(port) => match self.ports[*port] {
                Port::Fold(fold) if self.folds[fold].fold.fold.is_done() => false,
                Port::Fold(fold) if self.folds[fold].fold.fold.needs_all_events() => true,
                Port::Fold(fold) => self.head_has_demand(StreamHead::Fold(fold), asked),
                Port::Merge(merge, _) => self.head_has_demand(StreamHead::Merge(merge), asked),
            },
        })
    }

    /// Memoised: the number of paths doubles each time the graph splits and joins again.
    pub(super) fn head_has_demand(
        &self,
        head: StreamHead,
        asked: &mut BTreeMap<StreamHead, bool>,
    ) -> bool {
        if let Some(known) = asked.get(&head) {
            return *known;
        }
        let wanted = self.has_demand(&self.segment(head), asked);
        asked.insert(head, wanted);
        wanted
    }

    /// Whether a segment leads to a merge, directly or not.
    pub(super) fn leads_to_merge(&self, segment: &[Branch]) -> bool {
        ports_of(segment).into_iter().any(|port| match self.ports[port] {
            Port::Fold(fold) => self.leads_to_merge(&self.folds[fold].fold.segment),
            Port::Merge(..) => true,
        })
    }
}
