//! The sizes of recent steps, and how many steps fit into the memory budget. Only decides when work
//! starts.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

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
