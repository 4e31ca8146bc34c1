//! Playback: when recorded events are due, and how playing is paused, stepped and moved.
//!
//! [`Playback`] is the shared control. [`PlaybackClock`] is the clock of one playing sink: it
//! decides whether an event is due, waits for it, and follows the control.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sluice_model::{RunHandle, units};

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
    /// The event that a sink waits for in a long gap.
    wait: Option<Wait>,
    /// The time of the first event played.
    first: Option<i64>,
    /// The number of events played.
    played: u64,
}

/// A wait of a sink for an event that is not due yet.
#[derive(Clone, Copy, Debug)]
struct Wait {
    event: i64,
    due: Instant,
    /// The speed relative to the recording.
    speed: f64,
}

impl PlaybackState {
    /// The time of the last event played, and while a sink waits for the next one, how far into the
    /// gap it is.
    fn position(&self) -> Option<i64> {
        let (position, Some(wait)) = (self.position?, self.wait) else { return self.position };
        let left = wait.due.saturating_duration_since(Instant::now()).as_nanos() as f64;
        let reached = wait.event.saturating_sub((left * wait.speed) as i64);
        Some(reached.clamp(position, position.max(wait.event)))
    }
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
            wait: None,
            first: None,
            played: 0,
        }
    }
}

impl Playback {
    /// Pauses or resumes. Returns whether it is paused now.
    pub fn toggle(&self) -> bool {
        self.change(|state| {
            state.wait = None;
            state.paused = !state.paused;
            state.steps = 0;
            state.paused
        })
    }

    /// Plays this many more events, then pauses.
    pub fn step(&self, events: u64) {
        self.change(|state| {
            state.wait = None;
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

    /// The time of the last event played, or of a pending seek; in a long gap, the time reached.
    pub fn position(&self) -> Option<i64> {
        let state = self.state();
        state.seek.or_else(|| state.position())
    }

    /// The time of the last event played, or of a pending seek: where to seek back from.
    pub fn last_played(&self) -> Option<i64> {
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
        (state.from, state.position, state.wait) = (Some(seek), Some(seek), None);
        Some(seek)
    }

    /// Restarts from the beginning. For the engine, which then reads all sources again.
    pub fn begin_again(&self) {
        let mut state = self.state();
        state.seeks += 1;
        (state.from, state.wait) = (None, None);
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
    /// The time of the event whose gap was noted last.
    noted: Option<i64>,
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

/// A longer wait in a longer gap is noted when it begins.
const LONG_GAP: Duration = Duration::from_secs(10);

/// The interval for checking cancellation.
const CANCEL_CHECK_INTERVAL: Duration = Duration::from_millis(50);

impl PlaybackClock {
    /// A clock that starts with the first event it is asked about.
    pub fn new(playback: Arc<Playback>, run: RunHandle, speed: PlaybackSpeed) -> Self {
        let timer = PlaybackTimer { speed, anchor: None, latest: None };
        Self { playback, run, timer, seeks: 0, from: None, noted: None }
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
            (state.position, state.wait) = (Some(time), None);
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
            self.note_gap(time);
            let mut state = self.playback.state();
            let due = if state.paused { None } else { self.timer.due(time, state.factor) };
            let speed = self.timer.speed.speed * state.factor;
            let event = time.filter(|_| self.noted == time);
            state.wait = event.zip(due).map(|(event, due)| Wait { event, due, speed });
            let left = due.map(|due| due.saturating_duration_since(Instant::now()));
            let wait = left.unwrap_or(CANCEL_CHECK_INTERVAL).min(CANCEL_CHECK_INTERVAL);
            let waited = self.playback.changed.wait_timeout(state, wait);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Notes a long wait for an event, once: otherwise nobody knows why nothing is played.
    fn note_gap(&mut self, time: Option<i64>) {
        let state = *self.playback.state();
        let (Some(time), Some(latest)) = (time, self.timer.latest) else { return };
        if state.paused || self.noted == Some(time) {
            return;
        }
        let Some(due) = self.timer.due(Some(time), state.factor) else { return };
        let wait = due.saturating_duration_since(Instant::now());
        let gap = Duration::from_nanos(time.saturating_sub(latest).try_into().unwrap_or(0));
        if wait.min(gap) <= LONG_GAP {
            return;
        }
        self.noted = Some(time);
        let wait = units::duration(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX));
        let note = format!(
            "nothing is sent for {wait}, a gap in the recording or between two; `max_gap` \
             (--max-gap) shortens gaps, and seeking ahead ends this one"
        );
        self.run.note(&note, 0);
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
mod tests;
