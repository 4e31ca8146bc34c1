//! Playback: when recorded events are due, and how playing is paused, stepped and moved.
//!
//! [`Playback`] is the shared control. [`PlaybackClock`] is the clock of one playing sink: it
//! decides whether an event is due, waits for it, and follows the control.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sluice_model::RunHandle;

/// Controls playback. Shared by the sinks of a run and the user interface.
#[derive(Debug, Default)]
pub struct Playback {
    state: Mutex<PlaybackState>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug)]
struct PlaybackState {
    paused: bool,
    /// Single steps to play while paused.
    steps: u64,
    /// The factor applied to the speed of each sink.
    factor: f64,
    /// A pending seek, until the engine takes it.
    seek: Option<i64>,
    /// The number of seeks so far.
    seeks: u64,
    /// The time of the last seek: sinks skip earlier events.
    from: Option<i64>,
    /// Whether playback has ended.
    over: bool,
    /// The time of the last event played.
    position: Option<i64>,
    /// The time of the first event played.
    first: Option<i64>,
    /// The number of events played.
    played: u64,
}

impl Default for PlaybackState {
    fn default() -> Self {
        Self {
            paused: false,
            steps: 0,
            factor: 1.0,
            seek: None,
            seeks: 0,
            from: None,
            over: false,
            position: None,
            first: None,
            played: 0,
        }
    }
}

impl Playback {
    /// Pauses or resumes. Returns whether it is paused now.
    pub fn toggle(&self) -> bool {
        self.change(|state| {
            state.paused = !state.paused;
            state.steps = 0;
            state.paused
        })
    }

    /// Plays this many more events, then pauses.
    pub fn step(&self, events: u64) {
        self.change(|state| {
            state.paused = true;
            state.steps += events;
        });
    }

    /// Sets the multiple of the sinks' own speed.
    pub fn set_factor(&self, factor: f64) {
        self.change(|state| state.factor = factor);
    }

    /// The multiple of the sinks' own speed.
    pub fn factor(&self) -> f64 {
        self.state().factor
    }

    /// Continues with the first event at or after this time.
    pub fn seek(&self, time: i64) {
        self.change(|state| state.seek = Some(time));
    }

    /// Ends playback: the run ends as if its sources had.
    pub fn end(&self) {
        self.change(|state| state.over = true);
    }

    /// Whether playback has ended.
    pub fn is_over(&self) -> bool {
        self.state().over
    }

    /// Whether it is paused.
    pub fn is_paused(&self) -> bool {
        self.state().paused
    }

    /// The time of the last event played, or of a pending seek.
    pub fn position(&self) -> Option<i64> {
        let state = self.state();
        state.seek.or(state.position)
    }

    /// The time of the first event played, regardless of seeks.
    pub fn first(&self) -> Option<i64> {
        self.state().first
    }

    /// The number of events played so far by all sinks.
    pub fn played(&self) -> u64 {
        self.state().played
    }

    /// Whether a seek is pending or playback has ended.
    pub fn is_redirected(&self) -> bool {
        let state = self.state();
        state.over || state.seek.is_some()
    }

    /// Takes the pending seek. For the engine, which then reads from about there.
    pub fn take_seek(&self) -> Option<i64> {
        let mut state = self.state();
        let seek = state.seek.take()?;
        state.seeks += 1;
        (state.from, state.position) = (Some(seek), Some(seek));
        Some(seek)
    }

    /// Restarts from the beginning. For the engine, which then reads all sources again.
    pub fn begin_again(&self) {
        let mut state = self.state();
        state.seeks += 1;
        state.from = None;
    }

    fn change<T>(&self, change: impl FnOnce(&mut PlaybackState) -> T) -> T {
        let changed = change(&mut self.state());
        self.changed.notify_all();
        changed
    }

    fn state(&self) -> MutexGuard<'_, PlaybackState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How fast a sink plays.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PlaybackSpeed {
    /// The speed relative to the recording; 0 means as fast as possible.
    pub speed: f64,
    /// Longer gaps are shortened to this.
    pub max_gap: Option<Duration>,
}

/// What to do with an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaybackTurn {
    /// Play it now; it counts as played.
    Now,
    /// It is not due yet.
    Later,
    /// Skip it: playback continues elsewhere, or has ended.
    Never,
}

/// The clock of one sink that plays events by their times.
#[derive(Debug)]
pub struct PlaybackClock {
    playback: Arc<Playback>,
    run: RunHandle,
    timer: PlaybackTimer,
    seeks: u64,
    /// Earlier events are skipped until one is not.
    from: Option<i64>,
}

#[derive(Debug)]
struct PlaybackTimer {
    speed: PlaybackSpeed,
    /// The reference for the next events.
    anchor: Option<TimeAnchor>,
    /// The latest time played since times last jumped back.
    latest: Option<i64>,
}

#[derive(Clone, Copy, Debug)]
struct TimeAnchor {
    event: i64,
    played: Instant,
    factor: f64,
}

/// The largest step back of times, in nanoseconds, that is disorder, as of sensors with different
/// delays. A larger one is a jump, as of a clock that was set.
const MAX_DISORDER: i64 = 2_000_000_000;

/// The interval for checking cancellation.
const CANCEL_CHECK_INTERVAL: Duration = Duration::from_millis(50);

impl PlaybackClock {
    /// A clock that starts with the first event it is asked about.
    pub fn new(playback: Arc<Playback>, run: RunHandle, speed: PlaybackSpeed) -> Self {
        let timer = PlaybackTimer { speed, anchor: None, latest: None };
        Self { playback, run, timer, seeks: 0, from: None }
    }

    /// Decides about an event without waiting. An event without a time (one outside the 64-bit
    /// range) is due immediately and does not affect others; it is skipped while seeking.
    pub fn poll(&mut self, time: Option<i64>) -> PlaybackTurn {
        let mut state = self.playback.state();
        if self.run.is_cancelled() || state.over || state.seek.is_some() {
            return PlaybackTurn::Never;
        }
        if self.seeks != state.seeks {
            (self.seeks, self.from) = (state.seeks, state.from);
            (self.timer.anchor, self.timer.latest) = (None, None);
        }
        if self.from.is_some_and(|from| time.is_none_or(|time| time < from)) {
            return PlaybackTurn::Never;
        }
        self.from = None;
        if state.paused {
            // After a pause the next event is due immediately.
            self.timer.anchor = None;
            if state.steps == 0 {
                return PlaybackTurn::Later;
            }
            state.steps -= 1;
        } else if self.timer.due(time, state.factor).is_some_and(|due| due > Instant::now()) {
            return PlaybackTurn::Later;
        }
        if let Some(time) = time {
            self.timer.latest = self.timer.latest.max(Some(time));
            state.position = Some(time);
            state.first.get_or_insert(time);
        }
        state.played += 1;
        PlaybackTurn::Now
    }

    /// Waits until an event of that time is due or is to be skipped.
    pub fn wait(&mut self, time: Option<i64>) -> PlaybackTurn {
        loop {
            match self.poll(time) {
                PlaybackTurn::Later => {}
                turn => return turn,
            }
            let state = self.playback.state();
            let due = if state.paused { None } else { self.timer.due(time, state.factor) };
            let left = due.map(|due| due.saturating_duration_since(Instant::now()));
            let wait = left.unwrap_or(CANCEL_CHECK_INTERVAL).min(CANCEL_CHECK_INTERVAL);
            let waited = self.playback.changed.wait_timeout(state, wait);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
    }
}

impl PlaybackTimer {
    /// When an event of that time is due; `None` means immediately.
    fn due(&mut self, time: Option<i64>, factor: f64) -> Option<Instant> {
        let time = time?;
        let speed = self.speed.speed * factor;
        if speed <= 0.0 || !speed.is_finite() {
            return None;
        }
        let now = Instant::now();
        // An event a little before others is due immediately, and the next ones when they would be
        // without it. When times jump back, the real distance is unknown: the event is due
        // immediately, and becomes the reference.
        if self.latest.is_some_and(|latest| time < latest.saturating_sub(MAX_DISORDER)) {
            self.latest = None;
            self.anchor = None;
        }
        let mut anchor = self.anchor.unwrap_or(TimeAnchor { event: time, played: now, factor });
        if anchor.factor != factor {
            // The position reached at the old speed.
            let gone = now.saturating_duration_since(anchor.played).as_nanos() as f64;
            let reached =
                anchor.event.saturating_add((gone * self.speed.speed * anchor.factor) as i64);
            let latest = self.latest.unwrap_or(time);
            let event = reached.clamp(latest, latest.max(time));
            anchor = TimeAnchor { event, played: now, factor };
        }
        if let (Some(most), Some(latest)) = (self.speed.max_gap, self.latest) {
            let most = i64::try_from(most.as_nanos()).unwrap_or(i64::MAX);
            if time.saturating_sub(latest) > most {
                // The gap is shortened at its start: the rest begins when the last event was due.
                let played = anchor.at(latest, speed).unwrap_or(now);
                anchor = TimeAnchor { event: time.saturating_sub(most), played, factor };
                self.latest = Some(anchor.event);
            }
        }
        self.anchor = Some(anchor);
        anchor.at(time, speed)
    }
}

impl TimeAnchor {
    fn at(&self, time: i64, speed: f64) -> Option<Instant> {
        // An upper limit on waiting, for very slow speeds.
        const LIFETIME: f64 = 1e18;
        let ahead = (i128::from(time) - i128::from(self.event)) as f64 / speed;
        self.played.checked_add(Duration::try_from_secs_f64(ahead.min(LIFETIME) / 1e9).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn pace(speed: f64, max_gap_ms: Option<u64>) -> (Arc<Playback>, PlaybackClock) {
        let playback = Arc::<Playback>::default();
        let tempo = PlaybackSpeed { speed, max_gap: max_gap_ms.map(Duration::from_millis) };
        (Arc::clone(&playback), PlaybackClock::new(playback, RunHandle::default(), tempo))
    }

    /// How long after the first event one of that time is due.
    fn due_after(pace: &mut PlaybackClock, time: i64) -> Duration {
        let start = pace.timer.anchor.map_or_else(Instant::now, |anchor| anchor.played);
        let due = pace.timer.due(Some(time), pace.playback.factor());
        due.map_or(Duration::ZERO, |due| due.saturating_duration_since(start))
    }

    #[test]
    fn events_are_due_by_their_times_and_the_speed() {
        let (_, mut pace) = pace(2.0, None);
        assert_eq!(pace.wait(Some(1000 * MS)), PlaybackTurn::Now);
        assert_eq!(due_after(&mut pace, 1500 * MS), Duration::from_millis(250));
        assert_eq!(pace.poll(Some(10_000 * MS)), PlaybackTurn::Later);
    }

    #[test]
    fn at_speed_0_everything_is_due() {
        let (_, mut pace) = pace(0.0, None);
        assert!((0..5).all(|n| pace.poll(Some(n * 1_000_000 * MS)) == PlaybackTurn::Now));
    }

    #[test]
    fn times_that_step_back_are_due_at_once_and_gaps_go_on_from_there() {
        let (_, mut pace) = pace(1.0, None);
        assert_eq!(pace.wait(Some(5000 * MS)), PlaybackTurn::Now);
        assert_eq!(pace.poll(Some(MS)), PlaybackTurn::Now);
        assert_eq!(due_after(&mut pace, 101 * MS), Duration::from_millis(100));
    }

    #[test]
    fn times_that_step_back_a_little_are_due_at_once_and_delay_no_others() {
        for max_gap in [None, Some(20)] {
            let (playback, mut pace) = pace(1.0, max_gap);
            assert_eq!(pace.poll(Some(5000 * MS)), PlaybackTurn::Now);
            for step in 1..20 {
                assert_eq!(pace.poll(Some((4970 + step) * MS)), PlaybackTurn::Now);
                let due = due_after(&mut pace, (5000 + step) * MS);
                assert_eq!(due, Duration::from_millis(step as u64));
            }
            playback.set_factor(2.0);
            assert_eq!(pace.poll(Some(4970 * MS)), PlaybackTurn::Now);
            assert!(due_after(&mut pace, 5010 * MS) <= Duration::from_millis(5));
        }
    }

    #[test]
    fn long_silences_are_cut() {
        let (_, mut pace) = pace(1.0, Some(20));
        assert_eq!(pace.wait(Some(0)), PlaybackTurn::Now);
        let before = Instant::now();
        assert_eq!(pace.wait(Some(3_600_000 * MS)), PlaybackTurn::Now);
        assert!(before.elapsed() >= Duration::from_millis(15));
        assert_eq!(pace.wait(Some(3_600_001 * MS)), PlaybackTurn::Now);
    }

    #[test]
    fn a_pause_lets_single_steps_through() {
        let (playback, mut pace) = pace(0.0, None);
        assert!(playback.toggle());
        assert_eq!(pace.poll(Some(1)), PlaybackTurn::Later);
        playback.step(2);
        assert_eq!(
            [pace.poll(Some(1)), pace.poll(Some(2)), pace.poll(Some(3))],
            [PlaybackTurn::Now, PlaybackTurn::Now, PlaybackTurn::Later]
        );
        assert_eq!((playback.position(), playback.first()), (Some(2), Some(1)));
        assert!(!playback.toggle());
        assert_eq!(pace.poll(Some(3)), PlaybackTurn::Now);
    }

    #[test]
    fn seeking_leaves_out_what_is_earlier_and_waits_for_nothing() {
        let (playback, mut pace) = pace(1.0, None);
        assert_eq!(pace.poll(Some(0)), PlaybackTurn::Now);
        playback.seek(900 * MS);
        assert_eq!(pace.poll(Some(MS)), PlaybackTurn::Never);
        assert_eq!(playback.take_seek(), Some(900 * MS));
        assert_eq!(pace.poll(Some(899 * MS)), PlaybackTurn::Never);
        assert_eq!(pace.poll(Some(901 * MS)), PlaybackTurn::Now);
        playback.end();
        assert_eq!(pace.wait(Some(902 * MS)), PlaybackTurn::Never);
        assert_eq!((playback.first(), playback.played()), (Some(0), 2));
    }

    #[test]
    fn a_new_speed_holds_from_now_on() {
        let (playback, mut pace) = pace(1.0, None);
        assert_eq!(pace.poll(Some(0)), PlaybackTurn::Now);
        assert_eq!(pace.poll(Some(100_000 * MS)), PlaybackTurn::Later);
        playback.set_factor(1e9);
        assert_eq!(pace.wait(Some(100_000 * MS)), PlaybackTurn::Now);
    }

    #[test]
    fn an_event_without_a_time_is_due_at_once_and_moves_no_clock() {
        let (playback, mut pace) = pace(1.0, None);
        assert_eq!(pace.poll(Some(0)), PlaybackTurn::Now);
        assert_eq!([pace.poll(None), pace.wait(None)], [PlaybackTurn::Now, PlaybackTurn::Now]);
        assert_eq!((playback.position(), playback.played()), (Some(0), 3));
        assert_eq!(pace.poll(Some(100_000 * MS)), PlaybackTurn::Later);
    }
}
