//! The grid of an episode's frames: whether a row is on the next step, behind a hole, or the first
//! of something else. Keeps no frame.

use sluice_model::{Error, time};

const SECOND: f64 = 1e9;

/// Where a row is on the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GridStep {
    /// On the next step.
    Next,
    /// Behind this many steps without a row.
    Hole(u64),
    /// Before the row before it: the clock has stepped back, or another log begins.
    Back,
}

/// The steps of an episode.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grid {
    /// The time of the first row.
    start: i64,
    /// The number of steps so far.
    steps: u64,
    last: i64,
    last_sequence: i64,
}

impl Grid {
    /// A grid with a first row.
    pub(super) fn new(time: i64, sequence: i64) -> Self {
        Self { start: time, steps: 1, last: time, last_sequence: sequence }
    }

    /// The rate by which a second row is the next step: whole, or with up to three decimals, if
    /// that is its distance to a microsecond. `None` if there is none.
    pub(super) fn rate(&self, time: i64) -> Option<f64> {
        const MICROSECOND: f64 = 1e3;
        let distance = (i128::from(time) - i128::from(self.last)) as f64;
        if distance <= 0.0 {
            return None;
        }
        let exact = SECOND / distance;
        let rounded = [exact.round(), (exact * 1e3).round() / 1e3];
        let fits = |rate: &f64| *rate > 0.0 && (SECOND / rate - distance).abs() <= MICROSECOND;
        rounded.into_iter().find(fits)
    }

    /// Where a row is. `Err` if it is between two steps.
    pub(super) fn step(&self, time: i64, sequence: i64, fps: f64) -> Result<GridStep, Error> {
        if time < self.last || time == self.last && sequence <= self.last_sequence {
            return Ok(GridStep::Back);
        }
        let period = SECOND / fps;
        let since = (i128::from(time) - i128::from(self.start)) as f64;
        let beyond = since - self.steps as f64 * period;
        if beyond > period / 2.0 {
            return Ok(GridStep::Hole((beyond / period).round().max(1.0) as u64));
        }
        if beyond.abs() <= period / 4.0 {
            return Ok(GridStep::Next);
        }
        Err(Error::invalid(format!(
            "rows are not on a grid of {fps} per second: the one at {} is {:.3} ms off: put the \
             stage `align` before the sink, or set `fps`",
            time::format(time),
            beyond / 1e6
        )))
    }

    /// Whether a row behind a hole is on the grid.
    pub(super) fn is_on(&self, time: i64, fps: f64) -> bool {
        let steps = (i128::from(time) - i128::from(self.start)) as f64 / SECOND * fps;
        (steps - steps.round()).abs() <= 0.25
    }

    /// Adds a row behind `missing` steps.
    pub(super) fn push(&mut self, time: i64, sequence: i64, missing: u64) {
        self.steps += missing + 1;
        (self.last, self.last_sequence) = (time, sequence);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn rate(distance: i64) -> Option<f64> {
        Grid::new(5, 0).rate(5 + distance)
    }

    #[test]
    fn rates_are_rounded_to_what_people_set() {
        assert_eq!(rate(100 * MS), Some(10.0));
        assert_eq!(
            (rate(33_333_333), rate(33_333_000), rate(33_334_000)),
            (Some(30.0), Some(30.0), Some(30.0))
        );
        assert_eq!(rate(33_366_700), Some(29.97));
        assert_eq!(rate(2_000 * MS), Some(0.5));
        assert_eq!((rate(0), rate(-1), rate(i64::MAX / 2)), (None, None, None));
    }

    #[test]
    fn rows_are_next_behind_a_hole_or_back() {
        let grid = Grid::new(1000, 7);
        let step = |time, sequence| grid.step(time, sequence, 10.0).unwrap();
        assert_eq!(step(1000 + 100 * MS, 8), GridStep::Next);
        assert_eq!(step(1000 + 124 * MS, 8), GridStep::Next);
        assert_eq!(step(1000 + 200 * MS, 8), GridStep::Hole(1));
        assert_eq!(step(1000 + 500 * MS, 8), GridStep::Hole(4));
        assert_eq!((step(1000, 7), step(999, 9)), (GridStep::Back, GridStep::Back));
        assert_eq!(step(i64::MAX, 8), GridStep::Hole(92_233_720_368));
    }

    #[test]
    fn rows_between_steps_are_an_error_that_names_the_stage() {
        let grid = Grid::new(0, 0);
        for time in [30 * MS, 140 * MS, 74 * MS] {
            let error = grid.step(time, 1, 10.0).unwrap_err().to_string();
            assert!(error.contains("`align`"), "{error}");
        }
        // The same time twice, in one log.
        assert!(grid.step(0, 1, 10.0).is_err());
    }

    #[test]
    fn small_errors_of_the_clock_do_not_add_up() {
        let mut grid = Grid::new(0, 0);
        let mut slow = Ok(GridStep::Next);
        for n in 1..100 {
            let time = n * 101 * MS;
            slow = grid.step(time, n, 10.0);
            if slow.is_err() {
                break;
            }
            grid.push(time, n, 0);
        }
        assert!(slow.is_err());
    }
}
