//! Segments: the part of a pipeline that one task runs on one batch, on any thread.
//!
//! A segment is a tree of maps. Its leaves are sinks, which prepare the batch in the task, and
//! ports, where a batch continues to a node that has to see batches in order.

use std::sync::Arc;

use sluice_kit::counts::EventCounts;
use sluice_model::plugin::times_clamped;
use sluice_model::{
    Batch, BlockPool, ChannelId, Channels, DynSink, Error, Map, PrepareContext, PreparedBatch,
    Query, RunHandle, StageContext,
};

use super::node_calls::NodeCalls;
use super::observed::NamingNodes;
use super::tally::RunTally;
use crate::source_name::unknown_channel;

/// Where a batch goes.
pub(crate) enum Branch {
    /// Through a map, and on to its successors.
    Map { node: usize, map: Arc<dyn Map>, origin: Option<i64>, needed: Query, next: Vec<Self> },
    /// To a sink, which prepares it.
    Sink { node: usize, sink: DynSink },
    /// To this port, in order.
    Port(usize),
}

impl Branch {
    fn is_leaf(&self) -> bool {
        !matches!(self, Self::Map { .. })
    }
}

/// What a segment made of a batch, for nodes that work in order.
pub(crate) enum SegmentOutput {
    /// For a sink to gather: what it has prepared.
    Block { node: usize, block: PreparedBatch, events: BlockEvents },
    /// For the node behind a port.
    Batch { port: usize, batch: Batch },
}

/// The events of a prepared block.
pub(crate) struct BlockEvents {
    pub(crate) counts: EventCounts,
    /// Their channels, in order; empty if the run is no recording.
    pub(crate) channels: Vec<u32>,
    /// The bytes of their payloads, if the sink buffers events.
    pub(crate) bytes: u64,
}

/// The context that all tasks of a run share.
#[derive(Clone)]
pub(crate) struct TaskContext {
    pub(crate) channels: Arc<Channels>,
    pub(crate) blocks: BlockPool,
    /// The nodes whose options name channels or fields.
    pub(crate) naming: NamingNodes,
    /// What the nodes are called if they are at fault.
    pub(crate) labels: NodeCalls,
    /// The connection of maps to the run.
    pub(crate) run: RunHandle,
    pub(crate) is_recording: bool,
}

/// The outcome of one batch.
#[derive(Default)]
pub(crate) struct SegmentOutcome {
    pub(crate) deliveries: Vec<SegmentOutput>,
    pub(crate) tally: RunTally,
    /// Approximate bytes of memory that it takes.
    pub(crate) memory: usize,
}

impl TaskContext {
    /// Runs a batch through a segment. If `source` is set, the batch counts as read by that node.
    pub(crate) fn run(
        &self,
        branches: &[Branch],
        source: Option<usize>,
        batch: Batch,
        outcome: &mut SegmentOutcome,
    ) -> Result<(), Error> {
        if batch.is_empty() {
            return Ok(());
        }
        let counts = EventCounts::count(batch.origins());
        if let Some(node) = source {
            if counts.len() > self.channels.len() {
                return Err(unknown_channel());
            }
            outcome.tally.node(node).observe(self.naming.entered(node, &batch));
            outcome.tally.node(node).observe(self.naming.left(node, &batch));
            outcome.tally.node(node).left.add(&counts);
        }
        self.fan_out(branches, batch, &counts, outcome)
    }

    fn fan_out(
        &self,
        branches: &[Branch],
        batch: Batch,
        counts: &EventCounts,
        outcome: &mut SegmentOutcome,
    ) -> Result<(), Error> {
        let Some((last, others)) = branches.split_last() else { return Ok(()) };
        if branches.iter().any(Branch::is_leaf) {
            outcome.memory += batch.memory();
        }
        for branch in others {
            self.follow(branch, batch.clone(), counts, outcome)?;
        }
        self.follow(last, batch, counts, outcome)
    }

    fn follow(
        &self,
        branch: &Branch,
        batch: Batch,
        counts: &EventCounts,
        outcome: &mut SegmentOutcome,
    ) -> Result<(), Error> {
        match branch {
            Branch::Map { node, map, origin, needed, next } => {
                let context = StageContext::new(&self.channels, *origin).within(needed.window());
                let run = self.run.clone();
                let mut context = StageContext { run, ..context.needing(&needed.channels) };
                let (before, placed) = (batch.len(), batch.places().map(|_| batch.clone()));
                outcome.tally.node(*node).observe(self.naming.entered(*node, &batch));
                let batch = self.labels.call(*node, || map.apply(batch, &mut context))?;
                let batch = match placed {
                    Some(before) => before.give_places(vec![batch]).pop().unwrap_or_default(),
                    None => batch,
                };
                outcome.tally.node(*node).observe(self.naming.left(*node, &batch));
                // The count alone is not enough: some may be dropped and others added.
                let after = if batch.len() == before && context.report.added.is_empty() {
                    counts.clone()
                } else {
                    EventCounts::count(batch.origins())
                };
                count_stage(*node, &context, counts, &after, outcome);
                if batch.is_empty() { Ok(()) } else { self.fan_out(next, batch, &after, outcome) }
            }
            Branch::Sink { node, sink } => self.prepare(*node, sink, batch, counts, outcome),
            Branch::Port(port) => {
                outcome.deliveries.push(SegmentOutput::Batch { port: *port, batch });
                Ok(())
            }
        }
    }

    fn prepare(
        &self,
        node: usize,
        sink: &DynSink,
        batch: Batch,
        counts: &EventCounts,
        outcome: &mut SegmentOutcome,
    ) -> Result<(), Error> {
        let mut context = PrepareContext::new(&self.channels, &self.blocks);
        let origins = batch.clone();
        let bytes = if sink.traits().buffers_events { batch.payload_bytes() } else { 0 };
        let block = self.labels.call(node, || sink.prepare(batch, &mut context))?;
        let tally = outcome.tally.node(node);
        tally.observe(self.naming.entered(node, &origins));
        tally.observe(self.naming.left(node, &origins));
        tally.entered.add(counts);
        tally.left.add(counts);
        let mut refused = EventCounts::default();
        for (row, reason) in &context.report.refused {
            refused.add_one(origins.origins()[*row as usize]);
            tally.note(reason, 1);
        }
        tally.damaged.add(&refused);
        tally.left.subtract(&refused);
        let mut counts = counts.clone();
        counts.subtract(&refused);
        let channels = match self.is_recording {
            true => accepted_origins(&origins, &context.report.refused),
            false => Vec::new(),
        };
        let events = BlockEvents { counts, channels, bytes };
        for loss in &context.report.losses {
            tally.note(loss, 0);
        }
        context
            .report
            .clamped
            .retain(|row| context.report.refused.iter().all(|(refused, _)| refused != row));
        for row in &context.report.clamped {
            let channel = self.channels.get(ChannelId(origins.channels()[*row as usize]));
            tally.note(&times_clamped(&channel), 1);
        }
        tally.clamped += context.report.clamped.len() as u64;
        tally.without_sources.add(&context.report.without_sources);
        outcome.deliveries.push(SegmentOutput::Block { node, block, events });
        Ok(())
    }
}

/// The original channels of the events that a sink has not refused, in order.
fn accepted_origins(batch: &Batch, refused: &[(u32, String)]) -> Vec<u32> {
    let mut accepted = vec![true; batch.len()];
    refused.iter().for_each(|(row, _)| accepted[*row as usize] = false);
    let origins = batch.origins().iter().zip(accepted);
    origins.filter(|(_, accepted)| *accepted).map(|(origin, _)| *origin).collect()
}

/// Counts what a stage did with events.
pub(crate) fn count_stage(
    node: usize,
    context: &StageContext<'_>,
    before: &EventCounts,
    after: &EventCounts,
    outcome: &mut SegmentOutcome,
) {
    let tally = outcome.tally.node(node);
    tally.entered.add(before);
    tally.left.add(after);
    tally.filtered += context.report.filtered;
    tally.clamped += context.report.clamped;
    tally.added.add(&EventCounts::count(&context.report.added));
    tally.undecoded.add(&EventCounts::count(&context.report.undecoded));
    for (note, count) in &context.report.notes {
        tally.note(note, *count);
    }
    tally.unmet.extend(context.report.unmet.iter().cloned());
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_model::BatchBuilder;

    /// Returns the first event twice, and drops the second.
    struct Exchange;

    impl Map for Exchange {
        fn apply(&self, batch: Batch, context: &mut StageContext<'_>) -> Result<Batch, Error> {
            context.report.filtered += 1;
            context.report.added.push(batch.origins()[0]);
            Ok(batch.take(vec![0, 0]))
        }
    }

    #[test]
    fn events_are_counted_anew_where_as_many_are_others() {
        let mut builder = BatchBuilder::default();
        (0..2).for_each(|n| builder.push_copy(0, 0, ChannelId(n), b""));
        let (map, next) = (Arc::new(Exchange), vec![Branch::Port(0)]);
        let branch = Branch::Map { node: 1, map, origin: None, needed: Query::default(), next };
        let shared = TaskContext {
            channels: Arc::default(),
            blocks: BlockPool::new(64, 1),
            naming: NamingNodes::default(),
            labels: NodeCalls::default(),
            run: RunHandle::default(),
            is_recording: false,
        };
        let mut outcome = SegmentOutcome::default();
        shared.run(&[branch], None, builder.finish(), &mut outcome).unwrap();
        let tally = outcome.tally.get(1);
        assert_eq!((tally.left.get(0), tally.left.get(1)), (2, 0));
    }
}
