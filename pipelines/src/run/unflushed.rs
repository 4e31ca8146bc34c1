//! The events of a recording that may be lost if its output cannot be completed. Counts only what
//! it is told.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluice_kit::counts::EventCounts;

/// The events handed to a sink since its last flush, without those that are in the file anyway.
#[derive(Default)]
pub(super) struct Unflushed {
    /// How many events the file has, and how many it had at the start.
    in_file: Option<(Arc<AtomicU64>, u64)>,
    handed: u64,
    /// The channels of the events of each block, oldest first, and how many had been handed with
    /// it; empty if nobody tells what the file has.
    blocks: VecDeque<(u64, Vec<u32>)>,
    /// All events, if nobody tells what the file has.
    all: EventCounts,
}

impl Unflushed {
    /// Of an output in which nothing is written; `in_file` is how many events its file has.
    pub(super) fn new(in_file: Option<Arc<AtomicU64>>) -> Self {
        let in_file = in_file.map(|events| {
            let before = events.load(Ordering::Relaxed);
            (events, before)
        });
        Self { in_file, ..Self::default() }
    }

    /// Adds the events of a block, and their channels in order.
    pub(super) fn add(&mut self, events: &EventCounts, channels: Vec<u32>) {
        if self.in_file.is_none() {
            return self.all.add(events);
        }
        self.handed += channels.len() as u64;
        self.blocks.push_back((self.handed, channels));
        self.drop_written();
    }

    /// Forgets them: they are flushed.
    pub(super) fn clear(&mut self) {
        self.blocks.clear();
        self.all = EventCounts::default();
    }

    /// Takes the events that are not in the file.
    pub(super) fn take(&mut self) -> EventCounts {
        let written = self.drop_written();
        let mut all = std::mem::take(&mut self.all);
        for (handed, channels) in std::mem::take(&mut self.blocks) {
            // The file may have the first ones.
            let missing = handed.saturating_sub(written).min(channels.len() as u64) as usize;
            all.add(&EventCounts::count(&channels[channels.len() - missing..]));
        }
        all
    }

    /// Forgets blocks that are in the file as a whole. Returns how many events have been written.
    fn drop_written(&mut self) -> u64 {
        let Some((events, before)) = &self.in_file else { return 0 };
        let written = events.load(Ordering::Relaxed).saturating_sub(*before);
        while self.blocks.front().is_some_and(|(handed, _)| *handed <= written) {
            self.blocks.pop_front();
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_the_file_is_not_lost() {
        let in_file = Arc::new(AtomicU64::new(5));
        let mut unflushed = Unflushed::new(Some(Arc::clone(&in_file)));
        for channels in [[0, 0], [0, 1], [1, 1]] {
            unflushed.add(&EventCounts::count(&channels), channels.to_vec());
        }
        in_file.store(8, Ordering::Relaxed);
        let lost = unflushed.take();
        // The second block is in the file in part.
        assert_eq!((lost.get(0), lost.get(1)), (0, 3));
        let mut unknown = Unflushed::new(None);
        unknown.add(&EventCounts::count(&[0, 0]), vec![0, 0]);
        unknown.clear();
        for channels in [[1], [1]] {
            unknown.add(&EventCounts::count(&channels), channels.to_vec());
        }
        let lost = unknown.take();
        assert_eq!((lost.get(0), lost.get(1)), (0, 2));
    }
}
