//! Counts the events of batches by channel, and lists their channels.

use std::collections::BTreeSet;

use sluice_model::Batch;

/// Event counts, indexed by channel number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EventCounts(Vec<u64>);

impl EventCounts {
    /// The events of a batch by channel.
    pub fn count(channels: &[u32]) -> Self {
        let longest = channels.iter().max().map_or(0, |id| *id as usize + 1);
        let mut counts = vec![0u64; longest];
        for id in channels {
            counts[*id as usize] += 1;
        }
        Self(counts)
    }

    /// The events of a channel.
    pub fn get(&self, channel: usize) -> u64 {
        self.0.get(channel).copied().unwrap_or(0)
    }

    /// The length of the table: one more than the highest channel number.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has no channel.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The events of all channels.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Adds one event of a channel.
    pub fn add_one(&mut self, channel: u32) {
        self.grow(channel as usize + 1);
        self.0[channel as usize] += 1;
    }

    /// Removes one event of a channel.
    pub fn remove_one(&mut self, channel: u32) {
        self.grow(channel as usize + 1);
        let count = &mut self.0[channel as usize];
        *count = count.saturating_sub(1);
    }

    /// Adds the counts of `other`, saturating: a graph that splits and joins repeatedly can have
    /// more paths than 64 bits count.
    pub fn add(&mut self, other: &Self) {
        self.grow(other.len());
        let add = |(ours, theirs): (&mut u64, &u64)| *ours = ours.saturating_add(*theirs);
        self.0.iter_mut().zip(&other.0).for_each(add);
    }

    /// Subtracts `other`, saturating; returns whether every count was large enough.
    pub fn subtract(&mut self, other: &Self) -> bool {
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

/// The channels of a batch: as read, and as they are now. The set is only accessed when the mapping
/// of a channel differs from the last one seen.
pub fn channels_by_origin(batch: &Batch) -> BTreeSet<(u32, u32)> {
    let mut names = BTreeSet::new();
    let mut last: Vec<Option<u32>> = Vec::new();
    for (&origin, &channel) in batch.origins().iter().zip(batch.channels()) {
        let place = origin as usize;
        if place >= last.len() {
            last.resize(place + 1, None);
        }
        if last[place].replace(channel) != Some(channel) {
            names.insert((origin, channel));
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_grow_as_channels_are_met() {
        let mut counts = EventCounts::count(&[0, 2, 2]);
        counts.add(&EventCounts::count(&[5]));
        counts.add_one(1);
        assert_eq!((counts.get(2), counts.get(5), counts.get(9), counts.total()), (2, 1, 0, 5));
        assert!(counts.subtract(&EventCounts::count(&[2, 2])));
        assert!(!counts.subtract(&EventCounts::count(&[2])));
    }
}
