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
    /// The events of each block, oldest first, and how many had been handed with it. All together
    /// if nobody tells what the file has.
    blocks: VecDeque<(u64, EventCounts)>,
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

    /// Adds the events of a block.
    pub(super) fn add(&mut self, events: &EventCounts) {
        self.handed += events.total();
        self.drop_written();
        match self.blocks.back_mut().filter(|_| self.in_file.is_none()) {
            Some((_, all)) => all.add(events),
            None => self.blocks.push_back((self.handed, events.clone())),
        }
    }

    /// Forgets them: they are flushed.
    pub(super) fn clear(&mut self) {
        self.blocks.clear();
    }

    /// Takes the events that are not in the file.
    pub(super) fn take(&mut self) -> EventCounts {
        self.drop_written();
        let mut all = EventCounts::default();
        std::mem::take(&mut self.blocks).iter().for_each(|(_, events)| all.add(events));
        all
    }

    /// Forgets blocks that are in the file as a whole.
    fn drop_written(&mut self) {
        let Some((events, before)) = &self.in_file else { return };
        let written = events.load(Ordering::Relaxed).saturating_sub(*before);
        while self.blocks.front().is_some_and(|(handed, _)| *handed <= written) {
            self.blocks.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_in_the_file_are_not_lost() {
        let in_file = Arc::new(AtomicU64::new(5));
        let mut unflushed = Unflushed::new(Some(Arc::clone(&in_file)));
        for channels in [[0, 0], [0, 1], [1, 1]] {
            unflushed.add(&EventCounts::count(&channels));
        }
        in_file.store(8, Ordering::Relaxed);
        let lost = unflushed.take();
        // The second block is in the file in part.
        assert_eq!((lost.get(0), lost.get(1)), (1, 3));
        let mut unknown = Unflushed::new(None);
        unknown.add(&EventCounts::count(&[0, 0]));
        unknown.clear();
        unknown.add(&EventCounts::count(&[1]));
        unknown.add(&EventCounts::count(&[1]));
        assert_eq!((unknown.blocks.len(), unknown.take().get(1)), (1, 2));
    }
}
