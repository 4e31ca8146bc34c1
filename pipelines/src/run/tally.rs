//! Counting: how many events of each channel went into and out of each node. Judges nothing.

use std::collections::{BTreeMap, BTreeSet};

use sluice_core::ChannelId;

use super::met::Met;

/// Events by channel, indexed by the channel's number. As long as it has to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts(Vec<u64>);

impl Counts {
    /// The events of a batch by channel.
    pub(crate) fn of(channels: &[u32]) -> Self {
        let longest = channels.iter().max().map_or(0, |id| *id as usize + 1);
        let mut counts = vec![0u64; longest];
        for id in channels {
            counts[*id as usize] += 1;
        }
        Self(counts)
    }

    pub(crate) fn get(&self, channel: usize) -> u64 {
        self.0.get(channel).copied().unwrap_or(0)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    pub(crate) fn add_one(&mut self, channel: u32) {
        self.grow(channel as usize + 1);
        self.0[channel as usize] += 1;
    }

    /// Takes one event of a channel away.
    pub(crate) fn take_one(&mut self, channel: u32) {
        self.grow(channel as usize + 1);
        let count = &mut self.0[channel as usize];
        *count = count.saturating_sub(1);
    }

    /// Stays at the greatest number there is: through a graph that parts and meets again and again, more ways
    /// lead than that.
    pub(crate) fn add(&mut self, other: &Self) {
        self.grow(other.len());
        let add = |(ours, theirs): (&mut u64, &u64)| *ours = ours.saturating_add(*theirs);
        self.0.iter_mut().zip(&other.0).for_each(add);
    }

    /// Takes `other` away; gives whether there was enough of each.
    pub(crate) fn subtract(&mut self, other: &Self) -> bool {
        self.grow(other.len());
        let mut enough = true;
        for (ours, theirs) in self.0.iter_mut().zip(&other.0) {
            enough &= *ours >= *theirs;
            *ours = ours.saturating_sub(*theirs);
        }
        enough
    }

    fn grow(&mut self, len: usize) {
        if self.0.len() < len {
            self.0.resize(len, 0);
        }
    }
}

/// What happened at one node.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeTally {
    /// For sources, events read; for others, events that came in.
    pub(crate) entered: Counts,
    /// For stages, events that came out; for sinks, events handed to the writer.
    pub(crate) left: Counts,
    /// For sources, events whose place is known but that could not be read; for sinks, events refused.
    pub(crate) damaged: Counts,
    /// Events a stage says it left out.
    pub(crate) filtered: u64,
    /// Events that came out of a stage without having gone in.
    pub(crate) added: Counts,
    /// Payloads a stage says it could not decode or encode.
    pub(crate) undecoded: Counts,
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
    pub(crate) fn lose(&mut self, events: &Counts) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_grow_as_channels_are_met() {
        let mut counts = Counts::of(&[0, 2, 2]);
        counts.add(&Counts::of(&[5]));
        counts.add_one(1);
        assert_eq!((counts.get(2), counts.get(5), counts.get(9), counts.total()), (2, 1, 0, 5));
        assert!(counts.subtract(&Counts::of(&[2, 2])));
        assert!(!counts.subtract(&Counts::of(&[2])));
    }
}
