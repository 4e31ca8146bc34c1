//! Folds in the driver: passes them batches, drains their output, and ends them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use sluice_kit::counts::EventCounts;
use sluice_model::{Batch, Error, Fold, StageContext};

use super::super::observed::NamingNodes;
use super::super::segment::{SegmentOutcome, count_stage};
use super::super::tally::RunTally;
use super::super::topology::FoldNode;
use super::RunDriver;
use super::streams::StreamHead;

/// How long a fold may go on after the end of its input, if no node wants its output.
const UNWANTED_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) struct RunningFold {
    pub(super) fold: FoldNode,
    pub(super) ended: bool,
}

/// Replaces a fold that was dropped.
pub(super) struct DroppedFold;

impl Fold for DroppedFold {
    fn push(&mut self, batch: Batch, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        context.report.filtered += batch.len() as u64;
        Ok(Vec::new())
    }

    fn is_done(&self) -> bool {
        true
    }
}

/// Records which of the names in its options left a fold.
fn observe_left(naming: &NamingNodes, node: usize, output: &[Batch], tally: &mut RunTally) {
    output.iter().for_each(|batch| tally.node(node).observe(naming.left(node, batch)));
}

impl RunDriver<'_> {
    /// Passes the next batch to a fold, or `None` at the end of its input.
    pub(super) fn fold(&mut self, place: usize, batch: Option<Batch>) -> Result<(), Error> {
        let RunningFold { fold, .. } = &mut self.folds[place];
        let mut context = self.setup.stage_context(fold, &self.origin);
        let before =
            batch.as_ref().map(|batch| EventCounts::count(batch.origins())).unwrap_or_default();
        let naming = &self.setup.shared.naming;
        let observed = batch.as_ref().and_then(|batch| naming.entered(fold.node, batch));
        self.tally.node(fold.node).observe(observed);
        let is_placed = |batch: &&Batch| batch.places().is_some() && !fold.fold.delays_events();
        let placed = batch.as_ref().filter(is_placed).cloned();
        let mut output = self.setup.shared.labels.call(fold.node, || match batch {
            Some(batch) => fold.fold.push(batch, &mut context),
            None => fold.fold.finish(&mut context),
        })?;
        if let Some(before) = placed {
            output = before.give_places(output);
        }
        let mut after = EventCounts::default();
        output.iter().for_each(|batch| after.add(&EventCounts::count(batch.origins())));
        observe_left(naming, fold.node, &output, &mut self.tally);
        let mut outcome = SegmentOutcome::default();
        count_stage(fold.node, &context, &before, &after, &mut outcome);
        self.tally.add(&outcome.tally);
        output.into_iter().try_for_each(|batch| self.emit(StreamHead::Fold(place), batch))?;
        self.drain_fold(place)
    }

    /// Drains output that a fold did not return at once; stops early if no node wants it any more.
    pub(super) fn drain_fold(&mut self, place: usize) -> Result<(), Error> {
        let begun = Instant::now();
        loop {
            let RunningFold { fold, .. } = &mut self.folds[place];
            let mut context = self.setup.stage_context(fold, &self.origin);
            let labels = &self.setup.shared.labels;
            let output = labels.call(fold.node, || fold.fold.more(&mut context))?;
            let mut after = EventCounts::default();
            output.iter().for_each(|batch| after.add(&EventCounts::count(batch.origins())));
            observe_left(&self.setup.shared.naming, fold.node, &output, &mut self.tally);
            let mut outcome = SegmentOutcome::default();
            count_stage(fold.node, &context, &EventCounts::default(), &after, &mut outcome);
            self.tally.add(&outcome.tally);
            if output.is_empty() {
                return Ok(());
            }
            output.into_iter().try_for_each(|batch| self.emit(StreamHead::Fold(place), batch))?;
            self.setup.check()?;
            let is_asked_to_end = self.options.stop.is_requested();
            let is_wanted = self.head_has_demand(StreamHead::Fold(place), &mut BTreeMap::new());
            match (self.folds[place].ended, is_wanted) {
                // A fold that produces until its input ends must be told of the end first.
                (false, true) if is_asked_to_end => return Ok(()),
                (false, false) => {
                    self.end_fold(place)?;
                    // Other readers of the same input may still want it.
                    self.folds[place].fold.fold = Box::new(DroppedFold);
                    return Ok(());
                }
                (true, false) if is_asked_to_end || begun.elapsed() >= UNWANTED_TIMEOUT => {
                    self.drop_fold(place);
                    return Ok(());
                }
                _ => {}
            }
        }
    }

    /// Ends a fold, and everything after it.
    pub(super) fn end_fold(&mut self, place: usize) -> Result<(), Error> {
        self.folds[place].ended = true;
        self.fold(place, None)?;
        self.end_head(StreamHead::Fold(place))
    }

    /// Drops a fold whose output no node wants, with all that it holds.
    pub(super) fn drop_fold(&mut self, place: usize) {
        let FoldNode { node, fold, .. } = &mut self.folds[place].fold;
        *fold = Box::new(DroppedFold);
        let tally = self.tally.node(*node);
        let came = tally.entered.total().saturating_add(tally.added.total());
        tally.filtered = came.saturating_sub(tally.left.total());
        tally.note("kept producing output that no node reads, and was stopped", 0);
    }
}
