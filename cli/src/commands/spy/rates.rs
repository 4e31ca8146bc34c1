//! Computes rates and jitter over the last few seconds. Knows no event.

use std::time::Duration;

/// Sums over the gaps between consecutive events.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct GapSums {
    /// The number of gaps.
    pub(super) count: u64,
    /// The bytes of the events that end the gaps.
    pub(super) bytes: u64,
    /// The sum of the gaps, in nanoseconds.
    sum: f64,
    /// The sum of their squares.
    squares: f64,
}

impl GapSums {
    /// Adds a gap that ends with an event of `bytes` bytes. A step back in time counts as 0.
    pub(super) fn push(&mut self, from: i64, to: i64, bytes: u64) {
        let gap = to.saturating_sub(from).max(0) as f64;
        self.append(&Self { count: 1, bytes, sum: gap, squares: gap * gap });
    }

    /// Adds the sums of other events.
    pub(super) fn append(&mut self, other: &Self) {
        self.count += other.count;
        self.bytes += other.bytes;
        self.sum += other.sum;
        self.squares += other.squares;
    }
}

/// The number of parts in which a window advances.
const WINDOW_PARTS: usize = 10;

/// Gaps within the last few seconds.
#[derive(Clone, Debug)]
pub(super) struct RateWindow {
    /// The length of a part.
    part: Duration,
    /// Indexed by part number, modulo [`WINDOW_PARTS`].
    gaps: [GapSums; WINDOW_PARTS],
    /// The number of the newest part.
    newest: u64,
}

impl RateWindow {
    /// Creates a window of about this length.
    pub(super) fn with_length(length: Duration) -> Self {
        let part = (length / WINDOW_PARTS as u32).max(Duration::from_millis(1));
        Self { part, gaps: [GapSums::default(); WINDOW_PARTS], newest: 0 }
    }

    /// Adds gaps received until `now`, a time since the start that never steps back.
    pub(super) fn add(&mut self, now: Duration, gaps: &GapSums) {
        self.move_on(now);
        self.gaps[self.newest as usize % WINDOW_PARTS].append(gaps);
    }

    /// The sum over the window.
    pub(super) fn sum(&mut self, now: Duration) -> GapSums {
        self.move_on(now);
        let mut sum = GapSums::default();
        self.gaps.iter().for_each(|gaps| sum.append(gaps));
        sum
    }

    /// The time covered by the window, at most that since `began`.
    pub(super) fn covered(&self, now: Duration, began: Duration) -> Duration {
        let oldest = self.newest.saturating_sub(WINDOW_PARTS as u64 - 1);
        let oldest = self.part.saturating_mul(u32::try_from(oldest).unwrap_or(u32::MAX));
        now.saturating_sub(oldest.max(began))
    }

    fn move_on(&mut self, now: Duration) {
        let number = (now.as_nanos() / self.part.as_nanos()) as u64;
        let gone = number.saturating_sub(self.newest).min(WINDOW_PARTS as u64);
        for past in 0..gone {
            self.gaps[(number - past) as usize % WINDOW_PARTS] = GapSums::default();
        }
        self.newest = self.newest.max(number);
    }
}

/// Rates of a channel.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ChannelRates {
    /// Events per second; `None` before the second event.
    pub(super) hz: Option<f64>,
    /// The standard deviation of the gaps in milliseconds; `None` for fewer than two.
    pub(super) jitter_ms: Option<f64>,
    /// Bytes per second.
    pub(super) bytes_per_second: Option<f64>,
}

impl ChannelRates {
    /// Computes the rates of a channel from its gaps within the window, its last gap, and the age
    /// of its last event.
    ///
    /// If a channel is silent for longer than its mean gap, its rate falls, to 0 when the window is
    /// empty. A channel slower than the window has the rate of its last gap.
    pub(super) fn from_gaps(gaps: &GapSums, last: &GapSums, age: Duration) -> Self {
        let age = age.as_nanos() as f64;
        if last.count == 0 {
            return Self::default();
        }
        let gaps = match gaps.count {
            0 if age <= last.sum * 2.0 => last,
            0 => return Self { hz: Some(0.0), jitter_ms: None, bytes_per_second: Some(0.0) },
            _ => gaps,
        };
        let count = gaps.count as f64;
        let late = (age - gaps.sum / count).max(0.0);
        let seconds = (gaps.sum + late) / 1e9;
        let a_second = |number: f64| (seconds > 0.0).then(|| number / seconds);
        let jitter =
            || (((gaps.squares - gaps.sum * gaps.sum / count).max(0.0)) / (count - 1.0)).sqrt();
        Self {
            hz: a_second(count),
            jitter_ms: (gaps.count > 1).then(|| jitter() / 1e6),
            bytes_per_second: a_second(gaps.bytes as f64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn gaps(times_ms: &[i64]) -> GapSums {
        let mut gaps = GapSums::default();
        times_ms.windows(2).for_each(|pair| gaps.push(pair[0] * MS, pair[1] * MS, 50));
        gaps
    }

    fn rates(times_ms: &[i64], age_ms: u64) -> ChannelRates {
        let tail = &times_ms[times_ms.len().saturating_sub(2)..];
        ChannelRates::from_gaps(&gaps(times_ms), &gaps(tail), Duration::from_millis(age_ms))
    }

    #[test]
    fn even_events_have_a_rate_and_no_jitter() {
        let even = rates(&[0, 100, 200, 300, 400], 50);
        assert_eq!((even.hz, even.jitter_ms), (Some(10.0), Some(0.0)));
        assert_eq!(even.bytes_per_second, Some(500.0));
    }

    #[test]
    fn jitter_is_the_standard_deviation_of_the_gaps() {
        // Gaps of 90 and 110: the mean is 100, each deviates by 10, and there are four.
        let jitter = rates(&[0, 90, 200, 290, 400], 0).jitter_ms.unwrap();
        assert!((jitter - (400.0f64 / 3.0).sqrt()).abs() < 1e-6, "{jitter}");
        assert_eq!(rates(&[0, 90], 0).jitter_ms, None);
    }

    #[test]
    fn one_event_has_no_rate_and_two_at_once_none_yet() {
        assert_eq!(rates(&[5], 0), ChannelRates::default());
        assert_eq!(rates(&[5, 5], 0).hz, None);
        assert_eq!(rates(&[5, 5], 1000).hz, Some(1.0));
        assert_eq!(rates(&[9, 5], 500).hz, Some(2.0));
    }

    #[test]
    fn silence_makes_a_channel_slower() {
        let silent = |age_ms| rates(&[0, 100, 200], age_ms).hz.unwrap();
        assert_eq!((silent(0), silent(100), silent(1900)), (10.0, 10.0, 1.0));
    }

    #[test]
    fn a_slow_channel_has_the_rate_of_its_last_gap_until_that_is_overdue() {
        let (none, last) = (GapSums::default(), gaps(&[0, 10_000]));
        let hz = |age_s| ChannelRates::from_gaps(&none, &last, Duration::from_secs(age_s)).hz;
        assert_eq!((hz(6), hz(10), hz(21)), (Some(0.1), Some(0.1), Some(0.0)));
    }

    #[test]
    fn a_window_drops_older_gaps() {
        let mut window = RateWindow::with_length(Duration::from_secs(5));
        let at = Duration::from_millis;
        window.add(at(100), &gaps(&[0, 1, 2]));
        window.add(at(4900), &gaps(&[0, 1]));
        assert_eq!(window.sum(at(4999)).count, 3);
        assert_eq!(window.sum(at(5000)).count, 1);
        assert_eq!(window.sum(at(9499)).count, 1);
        assert_eq!(window.sum(at(9500)).count, 0);
        window.add(at(60_000), &gaps(&[0, 1]));
        assert_eq!((window.sum(at(60_000)).count, window.sum(at(1_000_000)).count), (1, 0));
    }

    #[test]
    fn a_window_covers_no_more_than_has_passed() {
        let mut window = RateWindow::with_length(Duration::from_secs(5));
        let (at, began) = (Duration::from_millis, Duration::from_millis(500));
        window.sum(at(1500));
        assert_eq!(window.covered(at(1500), began), at(1000));
        window.sum(at(20_250));
        assert_eq!(window.covered(at(20_250), began), at(4750));
    }
}
