//! Decides which times to believe: one absurd time must neither end rows early nor make others of
//! them wait. Orders nothing.
//!
//! An event whose time is far from the newest time, and from the event before it of its own
//! channel, waits for the next event: whichever time that is nearer to is the right one, unless it
//! is far from both. The first event waits, too, as its time may be the wrong one. A channel that
//! is far behind is believed, but if it goes on for long and no event is near the newest time, that
//! was wrong.

use std::collections::VecDeque;

use super::plan::CLOCK_RESET_NS;
use super::track::Place;

/// The values of one event, with their time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    /// The time that the event counts for, before its lag is subtracted.
    pub(super) time: i64,
    pub(super) input: usize,
    /// The event's number.
    pub(super) sequence: i64,
    pub(super) place: Place,
}

/// An arrival whose time is believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Admission {
    pub(super) arrival: Arrival,
    /// Whether the clock was set back, or another log starts: nothing before it belongs to it.
    pub(super) restarts: bool,
}

/// A time this much later than all others may be wrong.
const FAR_AHEAD: i64 = 10_000_000_000;
/// Events that are farther from each other do not confirm each other, unless all are that rare, but
/// never if they are farther than the longest pause.
const LONG_PAUSE: u64 = 24 * 3600 * 1_000_000_000;
const LONGEST_PAUSE: u64 = 366 * LONG_PAUSE;

/// The state of the decision.
#[derive(Debug, Default)]
pub(super) struct TimeGuard {
    newest: Option<i64>,
    /// The time of the last event of each input, believed or not.
    last: Vec<Option<i64>>,
    /// Of each input that has had events far behind the newest time, since the last event that was
    /// near it, the time of the first one.
    behind: Vec<Option<i64>>,
    is_any_behind: bool,
    /// The first event, until another one is believed.
    first: Option<Arrival>,
    suspect: Option<Arrival>,
    /// How many events were left out.
    pub(super) disbelieved: u64,
}

impl TimeGuard {
    pub(super) fn new(inputs: usize) -> Self {
        Self { last: vec![None; inputs], behind: vec![None; inputs], ..Self::default() }
    }

    /// Adds the arrivals to believe after the next one, in order: at most three.
    pub(super) fn admit(&mut self, next: Arrival, admitted: &mut VecDeque<Admission>) {
        let own = self.last.get(next.input).copied().flatten();
        if let Some(last) = self.last.get_mut(next.input) {
            *last = Some(next.time);
        }
        let is_next_of_own = own.is_some_and(|own| is_near(own, next.time));
        let Some(newest) = self.newest else {
            self.newest = Some(next.time);
            self.first = Some(next);
            return;
        };
        let newest = self.resolve(next.time, newest, admitted);
        let is_near_newest = is_near(newest, next.time);
        if is_near_newest && self.is_any_behind {
            self.behind.fill(None);
            self.is_any_behind = false;
        }
        if is_near_newest {
            self.believe(next, false, admitted);
        } else if is_next_of_own {
            let restarts = next.time < newest && self.is_long_behind(next);
            self.believe(next, restarts, admitted);
        } else {
            self.suspect = Some(next);
        }
    }

    /// The arrivals that still wait.
    pub(super) fn waiting(&self) -> impl Iterator<Item = Arrival> {
        self.first.into_iter().chain(self.suspect)
    }

    /// Decides about the arrivals that wait at the end: the last event is wrong if it is too far
    /// from all others for any pause, and an only event is right.
    pub(super) fn finish(&mut self, admitted: &mut VecDeque<Admission>) {
        if let (Some(suspect), Some(newest)) = (self.suspect.take(), self.newest) {
            match suspect.time.abs_diff(newest) <= LONGEST_PAUSE {
                true => self.believe_suspect(suspect, newest, admitted),
                false => self.disbelieved += 1,
            }
        }
        let only = self.first.take();
        admitted.extend(only.map(|arrival| Admission { arrival, restarts: false }));
    }

    /// Decides about the arrival that waits, by the time of the next one. Returns the newest time.
    fn resolve(&mut self, next: i64, newest: i64, admitted: &mut VecDeque<Admission>) -> i64 {
        let Some(suspect) = self.suspect.take() else { return newest };
        let distance = next.abs_diff(suspect.time);
        let pause = suspect.time.abs_diff(newest).clamp(LONG_PAUSE, LONGEST_PAUSE);
        if distance < next.abs_diff(newest) && distance <= pause {
            self.believe_suspect(suspect, newest, admitted);
        } else {
            self.disbelieved += 1;
        }
        self.newest.unwrap_or(newest)
    }

    /// Whether an input has been far behind for so long that the newest time is wrong.
    fn is_long_behind(&mut self, next: Arrival) -> bool {
        self.is_any_behind = true;
        let Some(since) = self.behind.get_mut(next.input) else { return false };
        next.time.abs_diff(*since.get_or_insert(next.time)) >= FAR_AHEAD.unsigned_abs()
    }

    fn believe_suspect(
        &mut self,
        suspect: Arrival,
        newest: i64,
        admitted: &mut VecDeque<Admission>,
    ) {
        let restarts = newest.saturating_sub(suspect.time) > CLOCK_RESET_NS;
        self.believe(suspect, restarts, admitted);
    }

    fn believe(&mut self, arrival: Arrival, restarts: bool, admitted: &mut VecDeque<Admission>) {
        let restarts = match self.first.take() {
            None => restarts,
            Some(first) if may_begin(first.time, arrival.time) => {
                admitted.push_back(Admission { arrival: first, restarts: false });
                false
            }
            Some(_) => {
                self.disbelieved += 1;
                self.newest = None;
                false
            }
        };
        if restarts {
            self.behind.fill(None);
        }
        let newest = self.newest.filter(|_| !restarts).unwrap_or(arrival.time);
        self.newest = Some(newest.max(arrival.time));
        admitted.push_back(Admission { arrival, restarts });
    }
}

/// Whether a log whose next event has the time `next` may begin at `first`.
fn may_begin(first: i64, next: i64) -> bool {
    is_near(first, next) || (first < next && next.abs_diff(first) <= LONGEST_PAUSE)
}

/// Whether an event of time `next` may follow one of time `before`.
fn is_near(before: i64, next: i64) -> bool {
    (-CLOCK_RESET_NS..=FAR_AHEAD).contains(&next.saturating_sub(before))
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;

    /// The believed times, and whether time starts anew at each.
    fn believed(arrivals: &[(usize, i64)]) -> (Vec<(i64, bool)>, u64) {
        let mut guard = TimeGuard::new(2);
        let mut out = VecDeque::new();
        for (input, time) in arrivals {
            let place = Place { chunk: 0, row: 0 };
            let next = Arrival { time: *time, input: *input, sequence: 0, place };
            guard.admit(next, &mut out);
        }
        guard.finish(&mut out);
        let out = out.iter().map(|one| (one.arrival.time, one.restarts)).collect();
        (out, guard.disbelieved)
    }

    #[test]
    fn a_single_absurd_time_is_left_out() {
        for absurd in [1_000_000 * S, -5 * S, i64::MAX, i64::MIN] {
            let (times, lost) =
                believed(&[(0, S), (1, 2 * S), (0, absurd), (1, 2 * S), (0, 3 * S)]);
            assert_eq!(times, [(S, false), (2 * S, false), (2 * S, false), (3 * S, false)]);
            assert_eq!(lost, 1);
        }
        let (times, lost) = believed(&[(0, 1_000_000 * S), (0, S), (0, 2 * S)]);
        assert_eq!((times, lost), (vec![(S, false), (2 * S, false)], 1));
    }

    #[test]
    fn an_absurd_time_of_the_first_or_last_event_is_left_out() {
        let now = 1_700_000_000 * S;
        let sound = [(0, now), (1, now + S), (0, now + 2 * S)];
        let times = sound.map(|(_, time)| (time, false)).to_vec();
        for absurd in [0, 2 * now, now - 400 * 86_400 * S, i64::MIN, i64::MAX] {
            for input in [0, 1] {
                let absurd = [(input, absurd)];
                assert_eq!(believed(&[&absurd[..], &sound].concat()), (times.clone(), 1));
                assert_eq!(believed(&[&sound[..], &absurd].concat()), (times.clone(), 1));
                // After the first one, which alone is right so far.
                let second = [&sound[..1], &absurd, &sound[1..]].concat();
                assert_eq!(believed(&second), (times.clone(), 1));
            }
        }
        // Within a year, it may be a pause.
        let early = [(0, now - 300 * 86_400 * S)];
        assert_eq!(believed(&[&early[..], &sound].concat()).1, 0);
    }

    #[test]
    fn an_only_event_is_right_and_of_two_that_are_far_apart_the_first() {
        let now = 1_700_000_000 * S;
        for other in [None, Some((0, 0)), Some((1, 2 * now)), Some((1, i64::MIN))] {
            let all: Vec<_> = [(0, now)].into_iter().chain(other).collect();
            let lost = u64::from(other.is_some());
            assert_eq!(believed(&all), (vec![(now, false)], lost));
        }
    }

    #[test]
    fn a_clock_that_is_set_back_starts_anew() {
        let (times, lost) = believed(&[(0, 100 * S), (1, 100 * S), (0, S), (1, S), (0, 2 * S)]);
        let anew = [(100 * S, false), (100 * S, false), (S, true), (S, false), (2 * S, false)];
        assert_eq!((times, lost), (anew.to_vec(), 0));
    }

    #[test]
    fn a_long_pause_is_believed_after_the_next_event() {
        let (times, lost) = believed(&[(0, S), (0, 2 * S), (0, 100 * S), (1, 100 * S)]);
        assert_eq!((times.len(), lost), (4, 0));
        assert!(times.iter().all(|time| !time.1));
    }

    #[test]
    fn a_channel_whose_times_are_always_earlier_is_believed_after_its_first_event() {
        let pairs = (0..5).flat_map(|n| [(0, (100 + n) * S), (1, (95 + n) * S)]);
        let (times, lost) = believed(&pairs.collect::<Vec<_>>());
        assert_eq!((times.len(), lost), (9, 1));
        assert!(times.iter().all(|time| !time.1));
    }

    #[test]
    fn an_absurd_time_does_not_confirm_a_less_absurd_one() {
        let (times, lost) =
            believed(&[(0, S), (1, S), (1, 1_000_000 * S), (1, 2_000_000_000 * S), (0, 2 * S)]);
        assert_eq!(times, [(S, false), (S, false), (2 * S, false)]);
        assert_eq!(lost, 2);
    }

    #[test]
    fn absurd_times_nearer_to_each_other_than_to_the_others_do_not_confirm_each_other() {
        let absurd = [(1, 2_000_000_000 * S), (1, 3_000_000_000 * S)];
        let (times, lost) = believed(&[(0, S), absurd[0], absurd[1], (0, 2 * S)]);
        assert_eq!((times, lost), (vec![(S, false), (2 * S, false)], 2));
    }

    #[test]
    fn rare_events_confirm_each_other() {
        let days = [0, 2, 4, 6, 8, 10].map(|day| (0, day * 86_400 * S));
        for times in [[0, 20, 45, 3000, 3600, 3700].map(|time| (0, time * S)), days] {
            let (times, lost) = believed(&times);
            assert_eq!((times.len(), lost), (6, 0));
            assert!(times.iter().all(|time| !time.1));
        }
    }

    #[test]
    fn a_channel_that_goes_on_far_behind_a_time_that_nothing_follows_starts_anew() {
        let tenths = |from: i64, to: i64| (from..to).map(|n| (0, n * S / 10));
        let absurd = [(1, 1_000_000 * S), (1, 1_000_000 * S + 1)];
        let arrivals: Vec<_> = tenths(0, 50).chain(absurd).chain(tenths(50, 300)).collect();
        let (times, lost) = believed(&arrivals);
        assert_eq!((times.len(), lost), (302, 0));
        let anew: Vec<i64> = times.iter().filter(|time| time.1).map(|time| time.0).collect();
        assert_eq!(anew, [15 * S]);
    }

    #[test]
    fn a_channel_that_is_behind_and_catches_up_starts_nothing_anew() {
        // Channel 1 comes 9 s late, and channel 0 pauses for a minute.
        let pair = |n: i64| [(0, (100 + n) * S), (1, (91 + n) * S)];
        let pause = (101..160).map(|second| (1, second * S));
        let arrivals: Vec<_> = (0..10).flat_map(pair).chain(pause).collect();
        let (times, _) = believed(&arrivals);
        assert!(times.iter().all(|time| !time.1), "{times:?}");
    }
}
