//! When the events of one channel are measured and received.
//!
//! Both are functions of the event's index, so any part of the log can be found directly.

use std::ops::Range;

use super::noise::Noise;

/// The receiving computer stalls at most once in each window of this length.
const STALL_WINDOW_US: u64 = 50_000;
const STALL_STREAM: u64 = 2000;

/// The timing of one channel.
#[derive(Debug, Clone, Copy)]
pub(super) struct ChannelTiming {
    /// Events per second.
    pub(super) hertz: u64,
    /// When the first event is measured.
    pub(super) phase_us: u64,
    /// Minimum time from measurement to receipt.
    pub(super) lag_us: u64,
    /// Upper bound of the random delay on top of `lag_us`. Less than the time between two events,
    /// so they stay in order.
    pub(super) jitter_us: u64,
}

/// The events of one channel in one drive.
#[derive(Debug)]
pub(super) struct Timetable {
    seed: u64,
    stream: u64,
    timing: ChannelTiming,
    /// The indices of events that were never received.
    lost: Range<u64>,
    /// One past the index of the last event.
    end: u64,
}

impl Timetable {
    /// The timetable of a channel that ends at `end_us` and loses its events during `silence_us`.
    pub(super) fn new(
        seed: u64,
        stream: u64,
        timing: ChannelTiming,
        end_us: u64,
        silence_us: Range<u64>,
    ) -> Self {
        let lost = timing.first_from(silence_us.start)..timing.first_from(silence_us.end);
        Self { seed, stream, timing, lost, end: timing.first_from(end_us) }
    }

    /// Limits the channel to its first event.
    pub(super) fn once(mut self) -> Self {
        self.end = self.end.min(1);
        self
    }

    /// When event `index` is measured, in microseconds from the start of the drive.
    pub(super) fn measured_us(&self, index: u64) -> u64 {
        self.timing.measured_us(index)
    }

    /// When event `index` is received; never earlier than the event before it.
    pub(super) fn received_us(&self, index: u64) -> u64 {
        let jitter = self.noise(index).below(self.timing.jitter_us);
        delayed_us(self.seed, self.measured_us(index) + self.timing.lag_us + jitter)
    }

    /// The random numbers of event `index`.
    pub(super) fn noise(&self, index: u64) -> Noise {
        Noise::new(self.seed, self.stream, index)
    }

    /// The index of the first event received at `bound_us` or later.
    pub(super) fn first_received_from(&self, bound_us: u64) -> u64 {
        let mut index = self.timing.first_from(bound_us).min(self.end);
        while index > 0 && self.received_us(index - 1) >= bound_us {
            index -= 1;
        }
        index
    }

    /// One past the index of the last event.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// The events among `indices` that are in the log.
    pub(super) fn received(&self, indices: Range<u64>) -> impl Iterator<Item = u64> {
        indices.filter(|index| !self.lost.contains(index))
    }

    /// The number of events before `index` that are in the log.
    pub(super) fn received_below(&self, index: u64) -> u64 {
        index - (index.clamp(self.lost.start, self.lost.end) - self.lost.start)
    }
}

impl ChannelTiming {
    fn measured_us(&self, index: u64) -> u64 {
        self.phase_us + index * 1_000_000 / self.hertz
    }

    /// The index of the first event measured at `us` or later.
    fn first_from(&self, us: u64) -> u64 {
        (us.saturating_sub(self.phase_us) * self.hertz).div_ceil(1_000_000)
    }
}

/// Delays a receive time by the stalls of the receiving computer.
///
/// Never makes it earlier or changes the order: what arrives during a stall is read right after it.
fn delayed_us(seed: u64, us: u64) -> u64 {
    let mut noise = Noise::new(seed, STALL_STREAM, us / STALL_WINDOW_US);
    let begin = us / STALL_WINDOW_US * STALL_WINDOW_US + noise.below(20_000);
    let length = 200 + noise.below(2_600);
    let stalls = us >= STALL_WINDOW_US && noise.below(4) == 0;
    // The backlog is read sixteen times as fast as it arrived, while more arrives.
    if stalls && (begin..begin + length * 16 / 15).contains(&us) {
        us.max(begin + length + (us - begin) / 16)
    } else {
        us
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn timetable(seed: u64) -> Timetable {
        let timing = ChannelTiming { hertz: 2600, phase_us: 0, lag_us: 150, jitter_us: 300 };
        Timetable::new(seed, 0, timing, 10_000_000, 4_000_000..5_500_000)
    }

    #[test]
    fn events_are_received_in_order_and_within_the_longest_lag() {
        let table = timetable(1);
        let mut before = 0;
        for index in 0..table.end() {
            let received = table.received_us(index);
            assert!(received >= before, "event {index} overtakes the one before it");
            let lag = received - table.measured_us(index);
            assert!((100..=6_000).contains(&lag), "event {index} lags {lag} µs");
            before = received;
        }
    }

    #[test]
    fn the_receiver_stalls_now_and_then() {
        let table = timetable(1);
        let longest = (0..table.end()).map(|k| table.received_us(k) - table.measured_us(k)).max();
        assert!(longest.unwrap() > 2_000);
    }

    proptest! {
        #[test]
        fn a_bound_separates_earlier_from_later_events(seed: u64, bound in 0u64..11_000_000) {
            let table = timetable(seed);
            let first = table.first_received_from(bound);
            prop_assert!(first == 0 || table.received_us(first - 1) < bound);
            prop_assert!(first == table.end() || table.received_us(first) >= bound);
        }

        #[test]
        fn counting_agrees_with_listing(to in 0u64..26_000) {
            let table = timetable(1);
            prop_assert_eq!(table.received(0..to).count() as u64, table.received_below(to));
        }
    }
}
