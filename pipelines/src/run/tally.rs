//! Counting: how many events of each channel went into and out of each node. Judges nothing.

use std::collections::{BTreeMap, BTreeSet};

use sluice_core::ChannelId;
use sluice_core::counts::EventCounts;

use super::met::Met;

/// What happened at one node.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeTally {
    /// For sources, events read; for others, events that came in.
    pub(crate) entered: EventCounts,
    /// For stages, events that came out; for sinks, events handed to the writer.
    pub(crate) left: EventCounts,
    /// For sources, events whose place is known but that could not be read; for sinks, events refused.
    pub(crate) damaged: EventCounts,
    /// Events a stage says it left out.
    pub(crate) filtered: u64,
    /// Events that came out of a stage without having gone in.
    pub(crate) added: EventCounts,
    /// Payloads a stage says it could not decode or encode.
    pub(crate) undecoded: EventCounts,
    /// Events that went on, or were written, with the nearest time there is.
    pub(crate) clamped: u64,
    /// What is to be told once, with how often it happened.
    pub(crate) notes: BTreeMap<String, u64>,
    /// Channels that a sink wrote without their sources.
    pub(crate) without_sources: BTreeSet<ChannelId>,
    /// What it met of what its options name.
    pub(crate) met: Met,
}

impl NodeTally {
    pub(crate) fn add(&mut self, other: &Self) {
        self.entered.add(&other.entered);
        self.left.add(&other.left);
        self.damaged.add(&other.damaged);
        self.undecoded.add(&other.undecoded);
        self.added.add(&other.added);
        self.filtered += other.filtered;
        self.clamped += other.clamped;
        for (note, count) in &other.notes {
            self.note(note, *count);
        }
        self.without_sources.extend(&other.without_sources);
        self.met.add(&other.met);
    }

    /// Notes what was met of what the node's options name.
    pub(crate) fn meet(&mut self, met: Option<Met>) {
        met.iter().for_each(|met| self.met.add(met));
    }

    /// Takes events for lost that were counted as written.
    pub(crate) fn lose(&mut self, events: &EventCounts) {
        self.left.subtract(events);
        self.damaged.add(events);
    }

    pub(crate) fn note(&mut self, what: &str, count: u64) {
        match self.notes.get_mut(what) {
            Some(so_far) => *so_far += count,
            None => drop(self.notes.insert(what.to_owned(), count)),
        }
    }
}

/// What happened at every node, by the node's place in the pipeline.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally(BTreeMap<usize, NodeTally>);

impl Tally {
    pub(crate) fn node(&mut self, node: usize) -> &mut NodeTally {
        self.0.entry(node).or_default()
    }

    pub(crate) fn get(&self, node: usize) -> NodeTally {
        self.0.get(&node).cloned().unwrap_or_default()
    }

    pub(crate) fn add(&mut self, other: &Self) {
        for (node, tally) in &other.0 {
            self.node(*node).add(tally);
        }
    }
}
