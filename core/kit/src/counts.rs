//! Counts the events of batches by channel, and lists their channels.

use std::collections::BTreeSet;

use sluice_model::{Batch, ChannelId};

/// Event counts by channel number.
///
/// Batches of a log with thousands of channels have few of them, and are counted several times: as
/// long as a list of these is much shorter than a table of all, there is no table.
#[derive(Clone, Debug, Default)]
pub struct EventCounts {
    /// By channel number.
    table: Vec<u64>,
    /// What is not in the table: by channel number, each once.
    list: Vec<(u32, u64)>,
}

/// A list is much shorter than a table with so many entries for each of its own.
const ENTRIES_PER_LISTED: usize = 8;

impl EventCounts {
    /// The events of a batch by channel.
    pub fn count(channels: &[u32]) -> Self {
        let len = channels.iter().max().map_or(0, |id| *id as usize + 1);
        if len > channels.len().saturating_mul(ENTRIES_PER_LISTED) {
            let mut sorted = channels.to_vec();
            sorted.sort_unstable();
            let runs = sorted.chunk_by(|a, b| a == b);
            let list = runs.map(|run| (run[0], run.len() as u64)).collect();
            return Self { table: Vec::new(), list };
        }
        let mut table = vec![0u64; len];
        for id in channels {
            table[*id as usize] += 1;
        }
        Self { table, list: Vec::new() }
    }

    /// The events of a channel.
    pub fn get(&self, channel: usize) -> u64 {
        let listed = self.list.binary_search_by_key(&channel, |(id, _)| *id as usize);
        let listed = listed.map_or(0, |place| self.list[place].1);
        self.table.get(channel).copied().unwrap_or(0).saturating_add(listed)
    }

    /// The channels that have events, by number.
    pub fn channels(&self) -> impl Iterator<Item = ChannelId> {
        let in_table = (0..).zip(&self.table).filter(|(_, count)| **count > 0).map(|(id, _)| id);
        let listed = self.list.iter().filter(|(_, count)| *count > 0).map(|(id, _)| *id);
        in_table.chain(listed).map(ChannelId)
    }

    /// One more than the highest channel number.
    pub fn len(&self) -> usize {
        let listed = self.list.last().map_or(0, |(id, _)| *id as usize + 1);
        self.table.len().max(listed)
    }

    /// Whether it has no channel.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The events of all channels.
    pub fn total(&self) -> u64 {
        self.table.iter().chain(self.list.iter().map(|(_, count)| count)).sum()
    }

    /// Adds one event of a channel.
    pub fn add_one(&mut self, channel: u32) {
        self.table(channel as usize + 1)[channel as usize] += 1;
    }

    /// Removes one event of a channel.
    pub fn remove_one(&mut self, channel: u32) {
        let count = &mut self.table(channel as usize + 1)[channel as usize];
        *count = count.saturating_sub(1);
    }

    /// Adds the counts of `other`, saturating: a graph that splits and joins repeatedly can have
    /// more paths than 64 bits count.
    pub fn add(&mut self, other: &Self) {
        let len = self.len().max(other.len());
        let listed = self.list.len() + other.list.len();
        if self.table.is_empty() && other.table.is_empty() && listed * ENTRIES_PER_LISTED < len {
            self.list = sum_of_lists(&self.list, &other.list);
        } else {
            self.update(other, |ours, theirs| *ours = ours.saturating_add(theirs));
        }
    }

    /// Subtracts `other`, saturating; returns whether every count was large enough.
    pub fn subtract(&mut self, other: &Self) -> bool {
        let mut enough = true;
        self.update(other, |ours, theirs| {
            enough &= *ours >= theirs;
            *ours = ours.saturating_sub(theirs);
        });
        enough
    }

    fn update(&mut self, other: &Self, mut change: impl FnMut(&mut u64, u64)) {
        if !other.is_empty() {
            let table = self.table(other.len());
            table.iter_mut().zip(&other.table).for_each(|(ours, theirs)| change(ours, *theirs));
            other.list.iter().for_each(|(id, theirs)| change(&mut table[*id as usize], *theirs));
        }
    }

    /// All counts as a table, of at least this length.
    fn table(&mut self, len: usize) -> &mut [u64] {
        let len = len.max(self.len());
        self.table.resize(len, 0);
        for (id, count) in self.list.drain(..) {
            let entry = &mut self.table[id as usize];
            *entry = entry.saturating_add(count);
        }
        &mut self.table
    }
}

fn sum_of_lists(a: &[(u32, u64)], b: &[(u32, u64)]) -> Vec<(u32, u64)> {
    let mut both = [a, b].concat();
    both.sort_by_key(|(id, _)| *id);
    both.dedup_by(|(next, count), (id, sum)| {
        let is_same = next == id;
        if is_same {
            *sum = sum.saturating_add(*count);
        }
        is_same
    });
    both
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

    /// The same counts as a table and as a list.
    fn both_forms(channels: &[u32]) -> [EventCounts; 2] {
        let mut table = EventCounts::count(channels);
        table.table(0);
        let list = EventCounts::count(channels);
        assert!(table.list.is_empty() && list.table.is_empty());
        [table, list]
    }

    #[test]
    fn lists_and_tables_count_the_same() {
        let all = |counts: &EventCounts| (0..1002).map(|id| counts.get(id)).collect::<Vec<_>>();
        for mut ours in both_forms(&[900, 7, 900, 1000]) {
            for theirs in both_forms(&[1001, 900, 7, 7]) {
                let mut sum = ours.clone();
                sum.add(&theirs);
                assert_eq!([7, 900, 1000, 1001].map(|id| sum.get(id)), [3, 3, 1, 1]);
                assert_eq!((sum.total(), sum.len()), (8, 1002));
                let channels: Vec<u32> = sum.channels().map(|id| id.0).collect();
                assert_eq!(channels, [7, 900, 1000, 1001]);
                assert!(sum.subtract(&theirs));
                assert_eq!(all(&sum), all(&ours));
                assert!(!sum.subtract(&theirs));
                assert_eq!([7, 900, 1000, 1001].map(|id| sum.get(id)), [0, 1, 1, 0]);
                let channels: Vec<u32> = sum.channels().map(|id| id.0).collect();
                assert_eq!(channels, [900, 1000]);
            }
            ours.add_one(7);
            ours.remove_one(900);
            assert_eq!([7, 900].map(|id| ours.get(id)), [2, 1]);
        }
    }

    #[test]
    fn sums_of_lists_become_tables() {
        let mut sum = EventCounts::default();
        for first in 0..200 {
            sum.add(&EventCounts::count(&[first, 1000]));
        }
        assert_eq!((sum.get(50), sum.get(1000), sum.total()), (1, 200, 400));
        assert!(sum.list.is_empty());
    }

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
