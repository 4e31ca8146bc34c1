//! A bounded history of timestamped values, such as poses. Reads no events.

use std::collections::VecDeque;

/// Maximum length of a history: 80 seconds at 100 poses per second.
const MAX_LEN: usize = 8192;

/// A larger step back, in nanoseconds, means that the clock was set or another recording starts.
const CLOCK_RESET_NS: i64 = 1_000_000_000;

/// A value with a time.
pub(crate) trait Timestamped {
    /// The time in nanoseconds.
    fn time(&self) -> i64;
}

/// The newest values of a channel, in log order and by time.
#[derive(Debug)]
pub(crate) struct History<T> {
    last: Option<T>,
    /// By time, without duplicates.
    by_time: VecDeque<T>,
}

impl<T> Default for History<T> {
    fn default() -> Self {
        Self { last: None, by_time: VecDeque::new() }
    }
}

impl<T: Timestamped + Clone> History<T> {
    /// Adds the next value of the log. If it is more than a second older than the newest, the
    /// history starts anew: the previous values belong to another time.
    pub(crate) fn add(&mut self, next: T) {
        if self.restarts_at(next.time()) {
            self.by_time.clear();
        }
        let place = self.by_time.partition_point(|value| value.time() <= next.time());
        match place.checked_sub(1).and_then(|before| self.by_time.get_mut(before)) {
            Some(same) if same.time() == next.time() => *same = next.clone(),
            _ => self.by_time.insert(place, next.clone()),
        }
        if self.by_time.len() > MAX_LEN {
            self.by_time.pop_front();
        }
        self.last = Some(next);
    }

    /// Whether no value was added yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.last.is_none()
    }

    /// Whether a value of this time would restart the history.
    pub(crate) fn restarts_at(&self, time: i64) -> bool {
        self.newest().is_some_and(|newest| newest.saturating_sub(time) > CLOCK_RESET_NS)
    }

    /// Whether a value of this time would be older than a previous one.
    pub(crate) fn is_out_of_order(&self, time: i64) -> bool {
        self.newest().is_some_and(|newest| time < newest)
    }

    /// The latest time.
    pub(crate) fn newest(&self) -> Option<i64> {
        self.by_time.back().map(Timestamped::time)
    }

    /// The last value in log order, whatever its time.
    pub(crate) fn last(&self) -> Option<&T> {
        self.last.as_ref()
    }

    /// The newest at or before `time`.
    pub(crate) fn at(&self, time: i64) -> Option<&T> {
        self.around(time).0
    }

    /// The newest at or before `time`, and the oldest after it.
    pub(crate) fn around(&self, time: i64) -> (Option<&T>, Option<&T>) {
        let after = self.by_time.partition_point(|value| value.time() <= time);
        (after.checked_sub(1).and_then(|before| self.by_time.get(before)), self.by_time.get(after))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct TestValue(i64, usize);

    impl Timestamped for TestValue {
        fn time(&self) -> i64 {
            self.0
        }
    }

    fn history(times: &[i64]) -> History<TestValue> {
        let mut history = History::default();
        times.iter().enumerate().for_each(|(n, time)| history.add(TestValue(*time, n)));
        history
    }

    #[test]
    fn the_last_value_follows_log_order_rather_than_time() {
        let history = history(&[10, 30, 20]);
        assert_eq!(history.last(), Some(&TestValue(20, 2)));
        assert_eq!(history.at(25), Some(&TestValue(20, 2)));
        assert_eq!(history.around(29), (Some(&TestValue(20, 2)), Some(&TestValue(30, 1))));
        assert_eq!(history.around(9), (None, Some(&TestValue(10, 0))));
    }

    #[test]
    fn a_later_value_replaces_one_of_the_same_time() {
        assert_eq!(
            history(&[10, 20, 10]).around(10),
            (Some(&TestValue(10, 2)), Some(&TestValue(20, 1)))
        );
    }

    #[test]
    fn a_clock_that_is_set_back_restarts_the_history() {
        let mut history = history(&[5_000_000_000, 6_000_000_000]);
        assert!(history.restarts_at(4_999_999_999) && !history.restarts_at(5_000_000_000));
        history.add(TestValue(0, 9));
        assert_eq!(history.around(7_000_000_000), (Some(&TestValue(0, 9)), None));
        history.add(TestValue(i64::MAX, 10));
        history.add(TestValue(i64::MIN, 11));
        assert_eq!(history.around(0), (Some(&TestValue(i64::MIN, 11)), None));
    }

    #[test]
    fn the_length_of_a_history_is_limited() {
        let times: Vec<i64> = (0..MAX_LEN as i64 + 10).collect();
        let history = history(&times);
        assert_eq!((history.at(9), history.at(10)), (None, Some(&TestValue(10, 10))));
    }

    proptest! {
        #[test]
        fn lookups_are_those_of_a_sorted_list(
            times in proptest::collection::vec(0i64..200, 0..60), asked in 0i64..210,
        ) {
            let history = history(&times);
            let numbered = || times.iter().enumerate().map(|(n, time)| TestValue(*time, n));
            let before = numbered().filter(|k| k.0 <= asked).max_by_key(|k| (k.0, k.1));
            let after = numbered().filter(|k| k.0 > asked).min_by_key(|k| (k.0, usize::MAX - k.1));
            prop_assert_eq!(history.around(asked), (before.as_ref(), after.as_ref()));
            prop_assert_eq!(history.last().copied(), numbered().next_back());
        }
    }
}
