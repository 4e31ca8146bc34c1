//! How far to read ahead: limits known from the start, and the sizes of recent steps, which decide
//! how many fit into the memory budget. They only decide when work starts.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use sluice_model::{Batch, BlockPool, Rows, Split};

/// How far to read ahead.
#[derive(Clone, Copy, Debug)]
pub struct ReadLimits {
    /// The size of splits of files. It decides how events are batched, so it depends on the memory
    /// alone.
    pub split_bytes: usize,
    /// The most splits in progress.
    pub window: usize,
    /// The largest split that a task reads; `None` for any. Others get a reader on its own thread.
    pub max_task_bytes: Option<u64>,
    /// The bytes of blocks in use above which only one split is in progress.
    pub max_lent_bytes: usize,
}

/// The largest split that a task reads, in multiples of the usual size.
const MAX_TASK_SPLITS: usize = 4;

/// The blocks of a split in progress.
const BLOCKS_PER_SPLIT: usize = 3;

/// How much longer than a split a block is: its last event ends in the next one.
const BLOCK_MARGIN: usize = 64 << 10;

impl ReadLimits {
    /// The limits for this memory, of which `for_reading` is for reading, and this many threads.
    pub fn new(memory: usize, for_reading: usize, jobs: usize) -> Self {
        let split_bytes = (memory / 256).clamp(64 << 10, 2 << 20);
        let window = (for_reading / (split_bytes * MAX_TASK_SPLITS)).clamp(1, 2 * jobs + 1);
        Self {
            split_bytes,
            window,
            max_task_bytes: Some(Split::MAX_TASK_BYTES.min((split_bytes * MAX_TASK_SPLITS) as u64)),
            max_lent_bytes: window * BLOCKS_PER_SPLIT * (split_bytes + BLOCK_MARGIN),
        }
    }

    /// One split after another, each read by one task, whatever its size.
    pub(super) fn in_turn() -> Self {
        Self {
            split_bytes: usize::MAX,
            window: 1,
            max_task_bytes: None,
            max_lent_bytes: usize::MAX,
        }
    }

    /// The most memory of splits in progress.
    pub fn memory(&self) -> usize {
        self.window.saturating_mul(self.split_bytes * MAX_TASK_SPLITS)
    }

    /// The blocks to read into, with `more` beyond those of splits in progress.
    pub fn blocks(&self, more: usize) -> BlockPool {
        BlockPool::new(self.split_bytes + BLOCK_MARGIN, self.window * BLOCKS_PER_SPLIT + more)
    }
}

/// How many times as large as the largest split of a task its events may be in memory.
const MAX_EXPANSION: u64 = 4;

/// The memory of an event without its payload and its rows.
const EVENT_BYTES: usize = 64;

/// Notices a split that is far larger than it states.
#[derive(Debug)]
pub(super) struct SplitMeter {
    /// `None` if nothing is to be noticed.
    limit: Option<usize>,
    /// The bytes so far if batches shared no memory.
    unshared: usize,
    /// The bytes of the events since that exceeds the limit.
    bytes: usize,
}

impl SplitMeter {
    /// A meter for a split that a task reads, of at most this many bytes.
    pub(super) fn new(max_task_bytes: Option<u64>) -> Self {
        let limit = max_task_bytes.map(|max| (max * MAX_EXPANSION) as usize);
        Self { limit, unshared: 0, bytes: 0 }
    }

    /// Whether the split is too large for a task, with another batch.
    pub(super) fn is_exceeded_by(&mut self, batch: &Batch) -> bool {
        let Some(limit) = self.limit else { return false };
        if self.unshared <= limit {
            self.unshared += batch.memory();
            return false;
        }
        // Looks at each event: not before it may matter.
        let rows: usize = batch.rows().iter().map(Rows::memory).sum();
        self.bytes += batch.len() * EVENT_BYTES + batch.payload_bytes() as usize + rows;
        self.bytes > limit
    }
}

/// Steps to start before the first size is known: a stage may make much of little.
const INITIAL_STEPS: usize = 2;

/// Number of sizes to remember: enough that every kind of event occurs.
const WINDOW: usize = 32;

/// Peak memory of a step, as a multiple of its output: stages hold input and output at once, sinks
/// hold events and encoded bytes.
const PEAK: usize = 2;

/// The output sizes of recent steps of one stream.
#[derive(Debug, Default)]
pub struct StepSizes(Mutex<VecDeque<usize>>);

impl StepSizes {
    /// Records the output size of a step.
    pub fn note(&self, bytes: usize) {
        let mut recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.len() >= WINDOW {
            recent.pop_front();
        }
        recent.push_back(bytes);
    }

    /// The number of steps that likely fit into this many bytes. At least one, so that the run
    /// always makes progress.
    pub fn max_steps(&self, bytes: usize) -> usize {
        match self.largest() {
            None => INITIAL_STEPS,
            Some(0) => usize::MAX,
            Some(largest) => (bytes / largest.saturating_mul(PEAK)).max(1),
        }
    }

    /// The bytes that this many steps likely take.
    pub fn estimated_bytes(&self, steps: usize) -> usize {
        self.largest().unwrap_or(0).saturating_mul(PEAK).saturating_mul(steps)
    }

    fn largest(&self) -> Option<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_steps_are_begun_until_one_has_come_back() {
        let sizes = StepSizes::default();
        assert_eq!((sizes.max_steps(0), sizes.estimated_bytes(7)), (INITIAL_STEPS, 0));
        sizes.note(10);
        assert_eq!((sizes.max_steps(95), sizes.estimated_bytes(7)), (4, 140));
        assert_eq!(sizes.max_steps(3), 1);
    }

    #[test]
    fn the_largest_of_late_counts() {
        let sizes = StepSizes::default();
        sizes.note(50);
        (1..WINDOW).for_each(|_| sizes.note(0));
        assert_eq!(sizes.max_steps(100), 1);
        assert_eq!(sizes.max_steps(200), 2);
        sizes.note(0);
        assert_eq!(sizes.max_steps(100), usize::MAX);
    }
}
