//! The accounting of a run, which proves that no event was lost unreported.

use std::collections::BTreeMap;

use sluice_kit::counts::EventCounts;
use sluice_model::{Channels, Error};

use super::channel::ChannelReport;
use crate::run::tally::RunTally;

/// A node's name and inputs.
pub(super) type Label = (String, Vec<usize>);

/// The accounting of a run: its counts, and the graph they belong to.
pub(super) struct Accounting<'r> {
    labels: &'r [Label],
    tally: &'r RunTally,
    /// The number of readers, by node.
    pub(super) readers: Vec<usize>,
    /// Cached flows of nodes with several readers: where paths split and join again, their number
    /// doubles each time.
    cached: BTreeMap<usize, EventFlow>,
}

/// The events that entered a node, and their fate before it, summed over all paths that lead there.
#[derive(Clone, Default)]
struct EventFlow {
    entered: EventCounts,
    filtered: EventCounts,
    damaged: EventCounts,
    undecoded: EventCounts,
}

impl<'r> Accounting<'r> {
    pub(super) fn new(labels: &'r [Label], tally: &'r RunTally) -> Self {
        let mut readers = vec![0; labels.len()];
        labels.iter().flat_map(|(_, from)| from).for_each(|from| readers[*from] += 1);
        Self { labels, tally, readers, cached: BTreeMap::new() }
    }

    /// Checks that every stage accounts for the events it dropped.
    pub(super) fn check_stage_counts(&self) -> Result<(), Error> {
        for (node, (name, from)) in self.labels.iter().enumerate() {
            if from.is_empty() || self.readers[node] == 0 {
                continue;
            }
            let tally = self.tally.get(node);
            let (entered, left) = (tally.entered.total(), tally.left.total());
            let added = tally.added.total();
            if entered + added != left + tally.filtered {
                return Err(Error::internal(format!(
                    "stage `{name}` got {entered} events, returned {left} and reports {added} \
                     added and {} dropped",
                    tally.filtered
                )));
            }
        }
        Ok(())
    }

    fn flow(&mut self, node: usize) -> EventFlow {
        if let Some(flow) = self.cached.get(&node) {
            return flow.clone();
        }
        let flow = self.sum(node);
        if self.readers[node] > 1 {
            self.cached.insert(node, flow.clone());
        }
        flow
    }

    fn sum(&mut self, node: usize) -> EventFlow {
        let (_, from) = &self.labels[node];
        let tally = self.tally.get(node);
        if from.is_empty() {
            let mut entered = tally.left.clone();
            entered.add(&tally.damaged);
            return EventFlow { entered, damaged: tally.damaged, ..EventFlow::default() };
        }
        let mut flow = EventFlow::default();
        for input in from {
            let before = self.flow(*input);
            flow.entered.add(&before.entered);
            flow.filtered.add(&before.filtered);
            flow.damaged.add(&before.damaged);
            flow.undecoded.add(&before.undecoded);
        }
        flow.undecoded.add(&tally.undecoded);
        // Events that a stage adds count from there on as if they had been read.
        flow.entered.add(&tally.added);
        let mut dropped = tally.entered;
        dropped.add(&tally.added);
        // The events that leave a sink are those it wrote; what it refused is damage.
        dropped.subtract(&tally.left);
        dropped.subtract(&tally.damaged);
        flow.filtered.add(&dropped);
        flow.damaged.add(&tally.damaged);
        flow
    }

    pub(super) fn sink_rows(
        &mut self,
        node: usize,
        channels: &Channels,
    ) -> Result<Vec<ChannelReport>, Error> {
        let (sink, _) = &self.labels[node];
        let (flow, written) = (self.flow(node), self.tally.get(node).left);
        let (all, mut rows) = (channels.all(), Vec::new());
        for id in channels.by_name() {
            let (id, channel) = (id.index(), &all[id.index()]);
            let row = ChannelReport {
                sink: sink.clone(),
                source: channel.source.to_string(),
                channel: channel.name.text().to_owned(),
                entered: flow.entered.get(id),
                out: written.get(id),
                filtered: flow.filtered.get(id),
                damaged: flow.damaged.get(id),
                undecoded: flow.undecoded.get(id),
            };
            let told = row.out.saturating_add(row.filtered).saturating_add(row.damaged);
            if row.entered != told {
                return Err(Error::internal(format!(
                    "the accounting of sink `{sink}` does not balance: {row:?}"
                )));
            }
            if row.entered > 0 {
                rows.push(row);
            }
        }
        Ok(rows)
    }
}
