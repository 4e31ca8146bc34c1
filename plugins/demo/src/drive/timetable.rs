//! When the events of one channel are measured and when they are received.
//!
//! Both are functions of the event's index, so that any stretch of the log can be found at once.

use std::ops::Range;

use super::noise::Noise;

/// The receiving computer is looked at in stretches of this length, each of which may hold a stall.
const STRETCH_US: u64 = 50_000;
const STALL_STREAM: u64 = 2000;

/// The rhythm of one channel, as a constant table lists it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rhythm {
    /// Events per second.
    pub(super) hertz: u64,
    /// When the first event is measured.
    pub(super) phase_us: u64,
    /// The least time from measurement to receipt.
    pub(super) lag_us: u64,
    /// Bound of what chance adds to it; less than the time between two events, so that they stay
    /// in order.
    pub(super) jitter_us: u64,
}

/// The events of one channel in one drive.
#[derive(Debug)]
pub(super) struct Timetable {
    seed: u64,
    stream: u64,
    rhythm: Rhythm,
    /// The indices that were never received.
    lost: Range<u64>,
    /// The index behind the last event.
    end: u64,
}

impl Timetable {
    /// The timetable of a channel that is heard until `end_us` except during `silence_us`.
    pub(super) fn new(
        seed: u64,
        stream: u64,
        rhythm: Rhythm,
        end_us: u64,
        silence_us: Range<u64>,
    ) -> Self {
        let lost = rhythm.first_from(silence_us.start)..rhythm.first_from(silence_us.end);
        Self { seed, stream, rhythm, lost, end: rhythm.first_from(end_us) }
    }

    /// Stops the channel behind its first event.
    pub(super) fn once(mut self) -> Self {
        self.end = self.end.min(1);
        self
    }

    /// When event `index` is measured, in microseconds from the start of the drive.
    pub(super) fn measured_us(&self, index: u64) -> u64 {
        self.rhythm.measured_us(index)
    }

    /// When event `index` is received; never earlier than the event before it.
    pub(super) fn received_us(&self, index: u64) -> u64 {
        let jitter = self.noise(index).below(self.rhythm.jitter_us);
        delayed_us(self.seed, self.measured_us(index) + self.rhythm.lag_us + jitter)
    }

    /// The numbers that belong to event `index`.
    pub(super) fn noise(&self, index: u64) -> Noise {
        Noise::of(self.seed, self.stream, index)
    }

    /// The index of the first event received at `bound_us` or later.
    pub(super) fn first_received_from(&self, bound_us: u64) -> u64 {
        let mut index = self.rhythm.first_from(bound_us).min(self.end);
        while index > 0 && self.received_us(index - 1) >= bound_us {
            index -= 1;
        }
        index
    }

    /// The index behind the last event.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// The events among `indices` that are in the log.
    pub(super) fn heard(&self, indices: Range<u64>) -> impl Iterator<Item = u64> {
        indices.filter(|index| !self.lost.contains(index))
    }

    /// How many events below `index` are in the log.
    pub(super) fn heard_below(&self, index: u64) -> u64 {
        index - (index.clamp(self.lost.start, self.lost.end) - self.lost.start)
    }
}

impl Rhythm {
    fn measured_us(&self, index: u64) -> u64 {
        self.phase_us + index * 1_000_000 / self.hertz
    }

    /// The index of the first event measured at `us` or later.
    fn first_from(&self, us: u64) -> u64 {
        (us.saturating_sub(self.phase_us) * self.hertz).div_ceil(1_000_000)
    }
}

/// What becomes of a receive time if the receiving computer now and then stops for a moment.
///
/// Never earlier, never out of order: what came in during a stall is read right behind it.
fn delayed_us(seed: u64, us: u64) -> u64 {
    let mut noise = Noise::of(seed, STALL_STREAM, us / STRETCH_US);
    let begin = us / STRETCH_US * STRETCH_US + noise.below(20_000);
    let length = 200 + noise.below(2_600);
    let stalls = us >= STRETCH_US && noise.below(4) == 0;
    // The backlog is read sixteen times as fast as it came in, and more comes in meanwhile.
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
        let rhythm = Rhythm { hertz: 2600, phase_us: 0, lag_us: 150, jitter_us: 300 };
        Timetable::new(seed, 0, rhythm, 10_000_000, 4_000_000..5_500_000)
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
        fn a_bound_parts_the_events_before_it_from_those_behind(seed: u64, bound in 0u64..11_000_000) {
            let table = timetable(seed);
            let first = table.first_received_from(bound);
            prop_assert!(first == 0 || table.received_us(first - 1) < bound);
            prop_assert!(first == table.end() || table.received_us(first) >= bound);
        }

        #[test]
        fn counting_agrees_with_listing(to in 0u64..26_000) {
            let table = timetable(1);
            prop_assert_eq!(table.heard(0..to).count() as u64, table.heard_below(to));
        }
    }
}
