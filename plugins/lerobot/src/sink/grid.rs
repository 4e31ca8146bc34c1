//! The grid of an episode's frames: whether a row is on the next step, behind a hole, or the first
//! of something else. Keeps no frame.

use sluice_model::{Error, time};

const SECOND: f64 = 1e9;

/// Rates of video whose periods are closer to those of other rates than microseconds can tell.
const VIDEO_RATES: [f64; 5] = [23.976, 47.952, 59.94, 119.88, 239.76];

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

    /// The rate by which a second row is the next step: the one with the fewest decimals that fits
    /// their distance, or else the exact one. `None` if that is below 0.001.
    ///
    /// Times may be rounded to nanoseconds, which changes their distance by less than one. If it is
    /// a whole number of microseconds, but not of milliseconds, they may be rounded to these.
    pub(super) fn rate(&self, time: i64) -> Option<f64> {
        const SLOWEST: f64 = 1e-3;
        const MICROSECOND: f64 = 1e3;
        const MILLISECOND: f64 = 1e6;
        let distance = (i128::from(time) - i128::from(self.last)) as f64;
        let exact = SECOND / distance;
        if distance <= 0.0 || exact < SLOWEST {
            return None;
        }
        let is_rounded = distance % MICROSECOND == 0.0 && distance % MILLISECOND != 0.0;
        for decimals in 0..=4 {
            let unit = 10f64.powi(decimals);
            let rate = (exact * unit).round() / unit;
            // By how much the distances of neighbouring rates differ. If it is not far more than
            // the rounding, some rate fits any distance.
            let spacing = distance / exact / unit;
            let is_within = |rounding: f64| {
                spacing >= 10.0 * rounding && (SECOND / rate - distance).abs() < rounding
            };
            if is_within(1.0) || is_rounded && is_within(MICROSECOND) {
                return Some(rate);
            }
        }
        let is_near = |rate: &f64| is_rounded && (SECOND / rate - distance).abs() < MICROSECOND;
        VIDEO_RATES.into_iter().find(is_near).or(Some(exact))
    }

    /// The rate by which a second row is the next step. `Err` names both rows.
    pub(super) fn rate_of_pair(&self, time: i64) -> Result<f64, Error> {
        self.rate(time).ok_or_else(|| {
            let pair = self.pair(time);
            Error::invalid(format!(
                "{pair}, do not say how many rows there are per second: set `fps`"
            ))
        })
    }

    /// The first row and a second one, for messages.
    pub(super) fn pair(&self, time: i64) -> String {
        let times = [self.last, time].map(time::format);
        format!("the first two rows, at {} and {}", times[0], times[1])
    }

    /// Whether a row is before the last one.
    pub(super) fn is_back(&self, time: i64, sequence: i64) -> bool {
        time < self.last || time == self.last && sequence <= self.last_sequence
    }

    /// Where a row is. `Err` if it is between two steps.
    pub(super) fn step(&self, time: i64, sequence: i64, fps: f64) -> Result<GridStep, Error> {
        if self.is_back(time, sequence) {
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
    fn rates_of_clocks_of_microseconds_are_recognised() {
        // The periods of 29.97 and 120 Hz are no whole microseconds.
        assert_eq!((rate(33_366_000), rate(33_367_000)), (Some(29.97), Some(29.97)));
        assert_eq!((rate(8_333_000), rate(8_334_000)), (Some(120.0), Some(120.0)));
        assert_eq!((rate(41_708_000), rate(41_709_000)), (Some(23.976), Some(23.976)));
        assert_eq!((rate(16_683_000), rate(16_684_000)), (Some(59.94), Some(59.94)));
        // The period of 100 Hz is.
        assert_eq!((rate(9_999_000), rate(10_001_000)), (Some(100.01), Some(99.99)));
    }

    #[test]
    fn rates_that_have_no_short_form_are_exact() {
        for period in [3 * MS, 7 * MS, 41 * MS, 70 * MS, 300 * MS, 123_456_789, 41] {
            let exact = SECOND / period as f64;
            assert_eq!(rate(period), Some(exact));
        }
        assert_eq!((rate(70_000_070), rate(300_003_000)), (Some(14.2857), Some(3.3333)));
        assert_eq!((rate(1_000_000 * MS), rate(1_000_001 * MS)), (Some(1e-3), None));
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
