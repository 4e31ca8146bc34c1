//! Rates: how often and how evenly events come, over the last few seconds. Knows no event.

use std::time::Duration;

/// The times between one event and the next, and what came at their ends.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Gaps {
    /// How many there are.
    pub(super) count: u64,
    /// Bytes of the events at their ends.
    pub(super) bytes: u64,
    /// Their sum, in nanoseconds.
    sum: f64,
    /// The sum of their squares.
    squares: f64,
}

impl Gaps {
    /// Adds a gap before an event of so many bytes. Times that step back are no time.
    pub(super) fn push(&mut self, from: i64, to: i64, bytes: u64) {
        let gap = to.saturating_sub(from).max(0) as f64;
        self.append(&Self { count: 1, bytes, sum: gap, squares: gap * gap });
    }

    /// Adds those of another run of events.
    pub(super) fn append(&mut self, other: &Self) {
        self.count += other.count;
        self.bytes += other.bytes;
        self.sum += other.sum;
        self.squares += other.squares;
    }
}

/// In how many parts a window moves on.
const PARTS: usize = 10;

/// What came within the last few seconds.
#[derive(Clone, Debug)]
pub(super) struct Window {
    /// How long a part of it is.
    part: Duration,
    /// By number of part, modulo [`PARTS`].
    gaps: [Gaps; PARTS],
    /// The number of the newest part.
    newest: u64,
}

impl Window {
    /// A window of about that length.
    pub(super) fn of(length: Duration) -> Self {
        let part = (length / PARTS as u32).max(Duration::from_millis(1));
        Self { part, gaps: [Gaps::default(); PARTS], newest: 0 }
    }

    /// Adds what came until `now`, which is a time since the beginning and never steps back.
    pub(super) fn add(&mut self, now: Duration, gaps: &Gaps) {
        self.move_on(now);
        self.gaps[self.newest as usize % PARTS].append(gaps);
    }

    /// All that is in the window now.
    pub(super) fn sum(&mut self, now: Duration) -> Gaps {
        self.move_on(now);
        let mut sum = Gaps::default();
        self.gaps.iter().for_each(|gaps| sum.append(gaps));
        sum
    }

    /// How much time it covers, of what has passed since `began`.
    pub(super) fn covered(&self, now: Duration, began: Duration) -> Duration {
        let oldest = self.newest.saturating_sub(PARTS as u64 - 1);
        let oldest = self.part.saturating_mul(u32::try_from(oldest).unwrap_or(u32::MAX));
        now.saturating_sub(oldest.max(began))
    }

    fn move_on(&mut self, now: Duration) {
        let number = (now.as_nanos() / self.part.as_nanos()) as u64;
        let gone = number.saturating_sub(self.newest).min(PARTS as u64);
        for past in 0..gone {
            self.gaps[(number - past) as usize % PARTS] = Gaps::default();
        }
        self.newest = self.newest.max(number);
    }
}

/// How often and how evenly the events of a channel come.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rates {
    /// Events a second; nothing as long as there was but one.
    pub(super) hz: Option<f64>,
    /// The standard deviation of the gaps, in milliseconds; nothing for fewer than two.
    pub(super) jitter_ms: Option<f64>,
    /// Bytes a second.
    pub(super) bytes_per_second: Option<f64>,
}

impl Rates {
    /// The rates of a channel with these gaps within the window, and `last` as its last gap and what came
    /// at its end; its last event is so old.
    ///
    /// What has been silent for longer than usual gets slower with every second, and 0 when the window
    /// has nothing of it any more. What is slower than the window is long has the rate of its last gap.
    pub(super) fn of(gaps: &Gaps, last: &Gaps, age: Duration) -> Self {
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

    fn gaps(times_ms: &[i64]) -> Gaps {
        let mut gaps = Gaps::default();
        times_ms.windows(2).for_each(|pair| gaps.push(pair[0] * MS, pair[1] * MS, 50));
        gaps
    }

    fn rates(times_ms: &[i64], age_ms: u64) -> Rates {
        let tail = &times_ms[times_ms.len().saturating_sub(2)..];
        Rates::of(&gaps(times_ms), &gaps(tail), Duration::from_millis(age_ms))
    }

    #[test]
    fn even_events_have_a_rate_and_no_jitter() {
        let even = rates(&[0, 100, 200, 300, 400], 50);
        assert_eq!((even.hz, even.jitter_ms), (Some(10.0), Some(0.0)));
        assert_eq!(even.bytes_per_second, Some(500.0));
    }

    #[test]
    fn jitter_is_the_standard_deviation_of_the_gaps() {
        // Gaps of 90 and 110: the mean is 100, each is 10 away, and there are four.
        let jitter = rates(&[0, 90, 200, 290, 400], 0).jitter_ms.unwrap();
        assert!((jitter - (400.0f64 / 3.0).sqrt()).abs() < 1e-6, "{jitter}");
        assert_eq!(rates(&[0, 90], 0).jitter_ms, None);
    }

    #[test]
    fn one_event_has_no_rate_and_two_at_once_none_yet() {
        assert_eq!(rates(&[5], 0), Rates::default());
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
        let (none, last) = (Gaps::default(), gaps(&[0, 10_000]));
        let hz = |age_s| Rates::of(&none, &last, Duration::from_secs(age_s)).hz;
        assert_eq!((hz(6), hz(10), hz(21)), (Some(0.1), Some(0.1), Some(0.0)));
    }

    #[test]
    fn a_window_forgets_what_is_older() {
        let mut window = Window::of(Duration::from_secs(5));
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
        let mut window = Window::of(Duration::from_secs(5));
        let (at, began) = (Duration::from_millis, Duration::from_millis(500));
        window.sum(at(1500));
        assert_eq!(window.covered(at(1500), began), at(1000));
        window.sum(at(20_250));
        assert_eq!(window.covered(at(20_250), began), at(4750));
    }
}
