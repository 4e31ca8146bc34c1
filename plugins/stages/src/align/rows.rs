//! When there are rows: the steps of a grid that have values, or the times of a channel. Decides no
//! value.

use std::collections::VecDeque;

use super::grid::Grid;

/// A row that is due next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowTime {
    pub(super) time: i64,
    /// The step on the grid, or the number of the clock's event.
    pub(super) sequence: i64,
    /// The time of the row before it, whether that was left out or not.
    pub(super) before: Option<i64>,
    /// Whether it follows directly on that row.
    pub(super) step: u64,
}

/// The times of rows.
#[derive(Debug)]
pub(super) enum RowTimes {
    Grid {
        grid: Grid,
        /// The next step, if there was one.
        next: Option<i64>,
    },
    Clock {
        /// Times and numbers, by time.
        queue: VecDeque<(i64, i64)>,
        /// The time of the last row.
        last: Option<i64>,
        rows: u64,
    },
}

impl RowTimes {
    pub(super) fn on_grid(grid: Grid) -> Self {
        Self::Grid { grid, next: None }
    }

    pub(super) fn of_clock() -> Self {
        Self::Clock { queue: VecDeque::new(), last: None, rows: 0 }
    }

    /// Adds an event of the clock. Returns whether it makes a row: not if there is one of its time,
    /// or a later one is finished.
    pub(super) fn tick(&mut self, time: i64, sequence: i64) -> bool {
        let Self::Clock { queue, last, .. } = self else { return false };
        let place = queue.partition_point(|other| other.0 <= time);
        let is_there = place.checked_sub(1).and_then(|at| queue.get(at));
        let is_double = is_there.is_some_and(|other| other.0 == time);
        if is_double || last.is_some_and(|last| time <= last) {
            return false;
        }
        queue.insert(place, (time, sequence));
        true
    }

    /// The earliest time that the next row can have.
    pub(super) fn earliest(&self) -> Option<i64> {
        match self {
            Self::Grid { grid, next } => {
                Some(next.map_or(i64::MIN, |next| grid.time(next).unwrap_or(i64::MAX)))
            }
            Self::Clock { queue, .. } => queue.front().map(|row| row.0),
        }
    }

    /// The time of the last row, whether it was left out or not.
    pub(super) fn last(&self) -> Option<i64> {
        match self {
            Self::Grid { grid, next } => grid.time((*next)?.checked_sub(1)?),
            Self::Clock { last, .. } => *last,
        }
    }

    /// The next row. Steps of a grid without any value are skipped: `next_use` is the first time
    /// from the given one on at which there is one.
    pub(super) fn next(&self, next_use: impl Fn(i64) -> Option<i64>) -> Option<RowTime> {
        match self {
            Self::Grid { grid, next } => {
                let used = next_use(self.earliest()?)?;
                let step = grid.step_at(used).max(next.unwrap_or(i64::MIN));
                let time = grid.time(step)?;
                let before = step.checked_sub(1).and_then(|step| grid.time(step));
                Some(RowTime { time, sequence: step, before, step: step.cast_unsigned() })
            }
            Self::Clock { queue, last, rows } => {
                let (time, sequence) = *queue.front()?;
                Some(RowTime { time, sequence, before: *last, step: *rows })
            }
        }
    }

    /// Goes on behind a row.
    pub(super) fn advance(&mut self, row: RowTime) {
        match self {
            Self::Grid { next, .. } => *next = row.sequence.checked_add(1),
            Self::Clock { queue, last, rows } => {
                queue.pop_front();
                *last = Some(row.time);
                *rows += 1;
            }
        }
    }

    /// Time starts anew.
    pub(super) fn restart(&mut self) {
        match self {
            Self::Grid { next, .. } => *next = None,
            Self::Clock { queue, last, rows } => {
                queue.clear();
                *last = None;
                // No row follows directly on one from before.
                *rows += 1;
            }
        }
    }
}
