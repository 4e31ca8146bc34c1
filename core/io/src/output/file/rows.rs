//! Keeps account of the rows and events that a file has while it is written.

use std::sync::atomic::Ordering;

use super::{Destination, FrameWriter, OutputFile};

/// What the first bytes of a file hold.
#[derive(Clone, Copy, Default)]
pub(super) struct RowCounts {
    rows: u64,
    events: u64,
}

impl OutputFile {
    /// Says how many rows the bytes written so far hold, if they end with a whole one, and of how
    /// many events, in the order in which the sink was given them: that is what a file that grows
    /// and must end early has. A compressed one has those in the frames before.
    pub fn set_rows(&mut self, rows: u64, events: u64) {
        match &mut self.destination {
            Destination::Packed(packed) => packed.set_counts(RowCounts { rows, events }),
            _ => self.events_in_file.store(events, Ordering::Relaxed),
        }
    }
}

impl FrameWriter {
    fn set_counts(&mut self, counts: RowCounts) {
        self.counts = counts;
        if self.plain.is_empty() && self.frames.is_empty() {
            self.put_counts(counts);
        }
    }

    pub(super) fn put_counts(&mut self, counts: RowCounts) {
        self.rows_in_file = counts.rows;
        self.events_in_file.store(counts.events, Ordering::Relaxed);
    }
}
