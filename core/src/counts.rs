//! Counting the events of batches by channel, and listing their channels. Judges nothing.

use std::collections::BTreeSet;

use crate::Batch;

/// Events by channel, indexed by the channel's number. As long as it has to be.
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

    /// One more than the number of the last channel that may have events.
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

    /// Takes one event of a channel away.
    pub fn remove_one(&mut self, channel: u32) {
        self.grow(channel as usize + 1);
        let count = &mut self.0[channel as usize];
        *count = count.saturating_sub(1);
    }

    /// Adds those of `other`, up to the greatest number there is: through a graph that parts and meets again and again, more ways
    /// lead than that.
    pub fn add(&mut self, other: &Self) {
        self.grow(other.len());
        let add = |(ours, theirs): (&mut u64, &u64)| *ours = ours.saturating_add(*theirs);
        self.0.iter_mut().zip(&other.0).for_each(add);
    }

    /// Takes `other` away; gives whether there was enough of each.
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

/// The channels of a batch: as they were read, and as they are called now. Events of many channels come
/// in no order: the set is asked only when a channel is called otherwise than it was last.
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
