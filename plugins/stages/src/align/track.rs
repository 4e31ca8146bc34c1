//! The values of one field over time, and which of them a row takes. Keeps only what rows may still
//! need; holds no values itself, only where they are.

use std::collections::VecDeque;

use super::options::Method;

/// Where a value is, and when it was true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimedValue {
    pub(crate) time: i64,
    pub(crate) place: Place,
}

/// Where a value is: the number of a chunk of its input, and a row of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) chunk: u64,
    pub(crate) row: u32,
}

/// The values that a row takes of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pick {
    /// None.
    Missing(Absence),
    /// One, this many nanoseconds away from the row.
    One(Place, u64),
    /// A weighted mean of two: the weight is that of the second one, the distance that of the
    /// farther one.
    Between(Place, Place, f64, u64),
}

/// Why a row has no value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absence {
    /// No value came up to the row.
    NotYet,
    /// The last value is this old.
    Old(u64),
    /// The last value is this old, and recent enough; the next one is too far, or cannot be
    /// combined with it.
    NoNext(u64),
}

/// How a row chooses its value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PickRule {
    pub(crate) method: Method,
    /// Nanoseconds.
    pub(crate) tolerance: i64,
}

/// The values of a field by time.
#[derive(Debug, Default)]
pub(crate) struct Track {
    /// By time; of equal times, in order of arrival: a row before them takes the first one, which
    /// decides it, and others the last one.
    values: VecDeque<TimedValue>,
    /// The time of the newest value that is no longer in `values`.
    dropped: Option<i64>,
    /// Finished rows would have taken another value if there had been one before this time.
    settled: Option<i64>,
}

impl Track {
    pub(crate) fn insert(&mut self, value: TimedValue) {
        if self.values.back().is_none_or(|last| last.time <= value.time) {
            return self.values.push_back(value);
        }
        let place = self.values.partition_point(|other| other.time <= value.time);
        self.values.insert(place, value);
    }

    /// Forgets everything: time starts anew.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Whether a value later than `time` is known.
    pub(crate) fn knows_after(&self, time: i64) -> bool {
        self.values.back().is_some_and(|last| last.time > time)
    }

    /// Whether a value of this time would have changed a row that is finished, and earlier.
    pub(crate) fn is_settled(&self, time: i64) -> bool {
        self.settled.is_some_and(|settled| time < settled)
    }

    /// How much memory it takes itself, without the values.
    pub(crate) fn memory(&self) -> u64 {
        (self.values.len() * size_of::<TimedValue>()) as u64
    }

    /// The lowest number of a chunk that is needed.
    pub(crate) fn first_chunk(&self) -> Option<u64> {
        self.values.iter().map(|value| value.place.chunk).min()
    }

    /// Drops what no row at `row` or later can use.
    pub(crate) fn advance(&mut self, row: i64, tolerance: i64) {
        while let Some(first) = self.values.front() {
            let is_superseded = self.values.get(1).is_some_and(|next| next.time <= row);
            if !is_superseded && first.time.saturating_add(tolerance) >= row {
                return;
            }
            self.dropped = Some(first.time);
            self.values.pop_front();
        }
    }

    /// The first time from `row` on at which a value may be used; `None` if there is none.
    pub(crate) fn next_use(&self, row: i64, rule: PickRule) -> Option<i64> {
        let ahead = if rule.method.looks_ahead() { rule.tolerance } else { 0 };
        let first =
            self.values.iter().find(|value| value.time.saturating_add(rule.tolerance) >= row)?;
        Some(first.time.saturating_sub(ahead).max(row))
    }

    /// The last value up to a row, and the first one after it.
    fn around(&self, row: i64) -> (Option<&TimedValue>, Option<&TimedValue>) {
        let next = self.values.partition_point(|value| value.time <= row);
        (next.checked_sub(1).and_then(|at| self.values.get(at)), self.values.get(next))
    }

    /// Remembers up to which time behind a row its choice excludes values. Needs
    /// [`advance`](Self::advance) first.
    pub(crate) fn settle(&mut self, row: i64, rule: PickRule) {
        let (before, next) = self.around(row);
        let reach = row.saturating_add(rule.tolerance).saturating_add(1);
        let until = next.map_or(reach, |next| next.time.min(reach));
        let age = before.map(|value| row.saturating_sub(value.time));
        let age = age.filter(|age| *age <= rule.tolerance);
        let until = match (rule.method, age) {
            (Method::Nearest, Some(age)) => until.min(row.saturating_add(age)),
            (Method::Nearest, None) => until,
            // Of a row with a value of its own time, the next one does not count.
            (Method::Linear | Method::Slerp, Some(1..)) => until,
            _ => return,
        };
        self.settled = self.settled.max(Some(until));
    }

    /// The value for a row; `after` is the time of the row before, and `combines` whether two
    /// values have a mean. Needs [`advance`](Self::advance) first.
    pub(crate) fn pick(
        &self,
        row: i64,
        after: Option<i64>,
        rule: PickRule,
        combines: impl Fn(Place, Place) -> bool,
    ) -> Pick {
        let (before, next) = self.around(row);
        let age = before.map(|value| row.abs_diff(value.time));
        let tolerance = rule.tolerance.unsigned_abs();
        let last = before.filter(|value| row.abs_diff(value.time) <= tolerance);
        let next = next.filter(|value| value.time.abs_diff(row) <= tolerance);
        let absent = || match (last, age, self.dropped) {
            (Some(_), Some(age), _) => Pick::Missing(Absence::NoNext(age)),
            (None, Some(age), _) => Pick::Missing(Absence::Old(age)),
            (_, None, Some(dropped)) => Pick::Missing(Absence::Old(row.abs_diff(dropped))),
            _ => Pick::Missing(Absence::NotYet),
        };
        let one = |value: &TimedValue| Pick::One(value.place, row.abs_diff(value.time));
        match (rule.method, last, next) {
            (Method::Last, Some(last), _) => one(last),
            (Method::None, Some(last), _) if after.is_none_or(|after| last.time > after) => {
                one(last)
            }
            (Method::Nearest, Some(last), Some(next)) => {
                let is_nearer = next.time.abs_diff(row) < row.abs_diff(last.time);
                one(if is_nearer { next } else { last })
            }
            (Method::Nearest, Some(one_side), None) | (Method::Nearest, None, Some(one_side)) => {
                one(one_side)
            }
            (Method::Linear | Method::Slerp, Some(last), _) if last.time == row => one(last),
            (Method::Linear | Method::Slerp, Some(last), Some(next))
                if combines(last.place, next.place) =>
            {
                let whole = next.time.abs_diff(last.time) as f64;
                let (age, rest) = (row.abs_diff(last.time), next.time.abs_diff(row));
                Pick::Between(last.place, next.place, age as f64 / whole, age.max(rest))
            }
            _ => absent(),
        }
    }
}

impl Pick {
    /// How far the farthest value is from the row, if it is known.
    pub(crate) fn distance(self) -> Option<u64> {
        match self {
            Self::One(_, distance) | Self::Between(.., distance) => Some(distance),
            Self::Missing(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn track(times: &[i64]) -> Track {
        let mut track = Track::default();
        for (row, time) in (0..).zip(times) {
            track.insert(TimedValue { time: *time, place: Place { chunk: 0, row } });
        }
        track
    }

    fn pick(times: &[i64], row: i64, method: Method, tolerance: i64) -> Pick {
        let (mut track, rule) = (track(times), PickRule { method, tolerance });
        track.advance(row, tolerance);
        track.pick(row, Some(row - 10), rule, |_, _| true)
    }

    fn at(row: u32) -> Place {
        Place { chunk: 0, row }
    }

    #[test]
    fn last_never_looks_ahead() {
        let last = |row| pick(&[10, 20, 30], row, Method::Last, 5);
        assert_eq!((last(9), last(10)), (Pick::Missing(Absence::NotYet), Pick::One(at(0), 0)));
        assert_eq!((last(25), last(26)), (Pick::One(at(1), 5), Pick::Missing(Absence::Old(6))));
        assert_eq!(last(99), Pick::Missing(Absence::Old(69)));
    }

    #[test]
    fn nearest_prefers_the_past_if_both_are_as_near() {
        let nearest = |row| pick(&[10, 20, 30], row, Method::Nearest, 6);
        assert_eq!(
            [4, 14, 15, 16, 36].map(nearest),
            [
                Pick::One(at(0), 6),
                Pick::One(at(0), 4),
                Pick::One(at(0), 5),
                Pick::One(at(1), 4),
                Pick::One(at(2), 6)
            ]
        );
        assert_eq!(
            (nearest(3), nearest(37)),
            (Pick::Missing(Absence::NotYet), Pick::Missing(Absence::Old(7)))
        );
    }

    #[test]
    fn linear_needs_both_sides_unless_a_value_has_the_time_of_the_row() {
        let linear = |row| pick(&[10, 20, 40], row, Method::Linear, 8);
        assert_eq!(linear(15), Pick::Between(at(0), at(1), 0.5, 5));
        assert_eq!((linear(20), linear(40)), (Pick::One(at(1), 0), Pick::One(at(2), 0)));
        assert_eq!(linear(25), Pick::Missing(Absence::NoNext(5)));
        assert_eq!(
            (linear(9), linear(30)),
            (Pick::Missing(Absence::NotYet), Pick::Missing(Absence::Old(10)))
        );
    }

    #[test]
    fn none_carries_nothing_on() {
        let none = |row| pick(&[10, 20], row, Method::None, 100);
        assert_eq!((none(19), none(20)), (Pick::One(at(0), 9), Pick::One(at(1), 0)));
        assert_eq!(none(30), Pick::Missing(Absence::NoNext(10)));
    }

    #[test]
    fn of_equal_times_the_later_arrival_is_the_last_one() {
        assert_eq!(pick(&[10, 20, 10], 12, Method::Last, 5), Pick::One(at(2), 2));
    }

    #[test]
    fn a_row_before_equal_times_takes_the_earlier_arrival() {
        for (method, expected) in [
            (Method::Linear, Pick::Between(at(0), at(1), 0.75, 6)),
            (Method::Nearest, Pick::One(at(1), 2)),
        ] {
            assert_eq!(pick(&[10, 18, 18], 16, method, 10), expected);
            assert_eq!(pick(&[10, 18, 18], 18, method, 10), Pick::One(at(2), 0));
        }
    }

    #[test]
    fn the_ends_of_the_range_of_times_are_times_too() {
        let linear = pick(&[i64::MIN, i64::MAX], 0, Method::Linear, i64::MAX);
        assert!(matches!(linear, Pick::Missing(Absence::Old(_))));
        assert_eq!(pick(&[i64::MAX], i64::MAX, Method::Last, 0), Pick::One(at(0), 0));
    }
}
