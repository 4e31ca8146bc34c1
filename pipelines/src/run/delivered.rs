//! What finished steps delivered, in bytes, and how many more may be under way for what is left of the
//! memory. Starts nothing, and decides nothing but when work is begun.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// How many steps are begun before one has shown what it gives: a stage may make much of little.
const FIRST: usize = 2;

/// Of how many steps it is remembered what they gave. Long enough that every kind of event comes by.
const REMEMBERED: usize = 32;

/// How many times what it gives a step takes while it is made: what a stage makes is there beside what it is
/// made of, and what a sink encodes beside the events.
const PEAK: usize = 2;

/// The sizes of what recent steps of one stream gave.
#[derive(Debug, Default)]
pub(super) struct Delivered(Mutex<VecDeque<usize>>);

impl Delivered {
    /// Notes what a step gave.
    pub(super) fn note(&self, bytes: usize) {
        let mut recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.len() >= REMEMBERED {
            recent.pop_front();
        }
        recent.push_back(bytes);
    }

    /// How many steps may be under way, so that they are likely to fit into so many bytes. At
    /// least one: however little memory there is, the run goes on.
    pub(super) fn steps_within(&self, bytes: usize) -> usize {
        match self.largest() {
            None => FIRST,
            Some(0) => usize::MAX,
            Some(largest) => (bytes / largest.saturating_mul(PEAK)).max(1),
        }
    }

    /// How many bytes so many steps are likely to take.
    pub(super) fn likely(&self, steps: usize) -> usize {
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
        let delivered = Delivered::default();
        assert_eq!((delivered.steps_within(0), delivered.likely(7)), (FIRST, 0));
        delivered.note(10);
        assert_eq!((delivered.steps_within(95), delivered.likely(7)), (4, 140));
        assert_eq!(delivered.steps_within(3), 1);
    }

    #[test]
    fn the_largest_of_late_counts() {
        let delivered = Delivered::default();
        delivered.note(50);
        (1..REMEMBERED).for_each(|_| delivered.note(0));
        assert_eq!(delivered.steps_within(100), 1);
        assert_eq!(delivered.steps_within(200), 2);
        delivered.note(0);
        assert_eq!(delivered.steps_within(100), usize::MAX);
    }
}
