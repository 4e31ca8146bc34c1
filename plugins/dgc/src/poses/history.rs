//! A bounded history of things that are known from some moment on, such as poses. Reads no events.

use std::collections::VecDeque;

/// How many are remembered: at the usual 100 poses a second, 80 seconds of them.
const MOST: usize = 8192;

/// A step back by more nanoseconds than this is a clock that was set, or another recording.
const CLOCK_SET: i64 = 1_000_000_000;

/// Something that is known from some moment on.
pub(crate) trait Timed {
    /// When, in nanoseconds.
    fn time(&self) -> i64;
}

/// The newest things known on a channel, in two orders: as the log has them, and by their times.
#[derive(Debug)]
pub(crate) struct History<T> {
    last: Option<T>,
    /// By time; no two of one.
    known: VecDeque<T>,
}

impl<T> Default for History<T> {
    fn default() -> Self {
        Self { last: None, known: VecDeque::new() }
    }
}

impl<T: Timed + Clone> History<T> {
    /// Adds the next of the log. One whose time is more than a second before the newest begins a history
    /// anew: what was known is of another time.
    pub(crate) fn note(&mut self, next: T) {
        if self.begins_anew(next.time()) {
            self.known.clear();
        }
        let place = self.known.partition_point(|known| known.time() <= next.time());
        match place.checked_sub(1).and_then(|before| self.known.get_mut(before)) {
            Some(same) if same.time() == next.time() => *same = next.clone(),
            _ => self.known.insert(place, next.clone()),
        }
        if self.known.len() > MOST {
            self.known.pop_front();
        }
        self.last = Some(next);
    }

    /// Whether nothing was known yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.last.is_none()
    }

    /// Whether one of this time would begin the history anew.
    pub(crate) fn begins_anew(&self, time: i64) -> bool {
        self.newest().is_some_and(|newest| newest.saturating_sub(time) > CLOCK_SET)
    }

    /// Whether one of this time would be older than one before it.
    pub(crate) fn steps_back(&self, time: i64) -> bool {
        self.newest().is_some_and(|newest| time < newest)
    }

    /// The latest time that is known.
    pub(crate) fn newest(&self) -> Option<i64> {
        self.known.back().map(Timed::time)
    }

    /// The one that came last in the log, whatever its time.
    pub(crate) fn last(&self) -> Option<&T> {
        self.last.as_ref()
    }

    /// The newest at or before `time`.
    pub(crate) fn at(&self, time: i64) -> Option<&T> {
        self.around(time).0
    }

    /// The newest at or before `time`, and the oldest after it.
    pub(crate) fn around(&self, time: i64) -> (Option<&T>, Option<&T>) {
        let after = self.known.partition_point(|known| known.time() <= time);
        (after.checked_sub(1).and_then(|before| self.known.get(before)), self.known.get(after))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Known(i64, usize);

    impl Timed for Known {
        fn time(&self) -> i64 {
            self.0
        }
    }

    fn history(times: &[i64]) -> History<Known> {
        let mut history = History::default();
        times.iter().enumerate().for_each(|(n, time)| history.note(Known(*time, n)));
        history
    }

    #[test]
    fn the_last_is_that_of_the_log_and_not_of_the_clock() {
        let history = history(&[10, 30, 20]);
        assert_eq!(history.last(), Some(&Known(20, 2)));
        assert_eq!(history.at(25), Some(&Known(20, 2)));
        assert_eq!(history.around(29), (Some(&Known(20, 2)), Some(&Known(30, 1))));
        assert_eq!(history.around(9), (None, Some(&Known(10, 0))));
    }

    #[test]
    fn of_two_with_one_time_the_later_in_the_log_counts() {
        assert_eq!(history(&[10, 20, 10]).around(10), (Some(&Known(10, 2)), Some(&Known(20, 1))));
    }

    #[test]
    fn a_clock_that_is_set_back_begins_anew() {
        let mut history = history(&[5_000_000_000, 6_000_000_000]);
        assert!(history.begins_anew(4_999_999_999) && !history.begins_anew(5_000_000_000));
        history.note(Known(0, 9));
        assert_eq!(history.around(7_000_000_000), (Some(&Known(0, 9)), None));
        history.note(Known(i64::MAX, 10));
        history.note(Known(i64::MIN, 11));
        assert_eq!(history.around(0), (Some(&Known(i64::MIN, 11)), None));
    }

    #[test]
    fn only_so_many_are_remembered() {
        let times: Vec<i64> = (0..MOST as i64 + 10).collect();
        let history = history(&times);
        assert_eq!((history.at(9), history.at(10)), (None, Some(&Known(10, 10))));
    }

    proptest! {
        #[test]
        fn lookups_are_those_of_a_sorted_list(
            times in proptest::collection::vec(0i64..200, 0..60), asked in 0i64..210,
        ) {
            let history = history(&times);
            let numbered = || times.iter().enumerate().map(|(n, time)| Known(*time, n));
            let before = numbered().filter(|k| k.0 <= asked).max_by_key(|k| (k.0, k.1));
            let after = numbered().filter(|k| k.0 > asked).min_by_key(|k| (k.0, usize::MAX - k.1));
            prop_assert_eq!(history.around(asked), (before.as_ref(), after.as_ref()));
            prop_assert_eq!(history.last().copied(), numbered().next_back());
        }
    }
}
