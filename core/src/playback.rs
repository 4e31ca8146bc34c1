//! Playback: when recorded events are due again, and how somebody pauses, steps or seeks meanwhile.
//!
//! [`Playback`] is the desk: whoever has it steers. [`PlaybackClock`] is the clock of one sink that plays: it says
//! of each event whether it is due, waits for that, and follows the desk.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Steers what plays events by their times. Shared by the sinks of a run and whoever holds the keys.
#[derive(Debug, Default)]
pub struct Playback {
    state: Mutex<PlaybackState>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug)]
struct PlaybackState {
    paused: bool,
    /// Events to let go although it is paused.
    steps: u64,
    /// How much faster than its sink's own speed.
    factor: f64,
    /// Where to go on instead, until the engine has taken it.
    seek: Option<i64>,
    /// How often the engine has gone elsewhere.
    seeks: u64,
    /// Where it went last: each sink plays from the first event on that is no earlier.
    from: Option<i64>,
    /// Nothing more is to be played.
    over: bool,
    /// The time of the event that was played last.
    position: Option<i64>,
    /// The time of the event that was played first.
    first: Option<i64>,
    /// How many events were played.
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
    /// Stops playing until further notice, or goes on. Gives whether it is paused now.
    pub fn toggle(&self) -> bool {
        self.change(|desk| {
            desk.paused = !desk.paused;
            desk.steps = 0;
            desk.paused
        })
    }

    /// Plays so many more events, and pauses.
    pub fn step(&self, events: u64) {
        self.change(|desk| {
            desk.paused = true;
            desk.steps += events;
        });
    }

    /// Plays at this multiple of the sinks' own speed from now on.
    pub fn set_factor(&self, factor: f64) {
        self.change(|desk| desk.factor = factor);
    }

    /// The multiple of the sinks' own speed.
    pub fn factor(&self) -> f64 {
        self.state().factor
    }

    /// Goes on with the first event at or after this time.
    pub fn seek(&self, time: i64) {
        self.change(|desk| desk.seek = Some(time));
    }

    /// Plays nothing more: the run ends as if its sources had.
    pub fn end(&self) {
        self.change(|desk| desk.over = true);
    }

    /// Whether nothing more is played.
    pub fn is_over(&self) -> bool {
        self.state().over
    }

    /// Whether it is paused.
    pub fn is_paused(&self) -> bool {
        self.state().paused
    }

    /// The time of the event that was played last, or that was sought.
    pub fn position(&self) -> Option<i64> {
        let desk = self.state();
        desk.seek.or(desk.position)
    }

    /// The time of the event that was played first, wherever playing has gone since.
    pub fn first(&self) -> Option<i64> {
        self.state().first
    }

    /// How many events were played so far, by all sinks together.
    pub fn played(&self) -> u64 {
        self.state().played
    }

    /// Whether playing is to go on elsewhere, or to end.
    pub fn is_redirected(&self) -> bool {
        let desk = self.state();
        desk.over || desk.seek.is_some()
    }

    /// Where to go on, if somebody has asked for that since the last call. For the engine, which then
    /// reads from about there.
    pub fn take_seek(&self) -> Option<i64> {
        let mut desk = self.state();
        let seek = desk.seek.take()?;
        desk.seeks += 1;
        (desk.from, desk.position) = (Some(seek), Some(seek));
        Some(seek)
    }

    /// Has everything played once more, from where it began. For the engine, which then reads it again.
    pub fn begin_again(&self) {
        let mut desk = self.state();
        desk.seeks += 1;
        desk.from = None;
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
    /// Times as fast as recorded; 0 is as fast as possible.
    pub speed: f64,
    /// Longer silences are cut to this.
    pub max_gap: Option<Duration>,
}

/// What becomes of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaybackTurn {
    /// It is due, and counts as played.
    Now,
    /// It is not due yet.
    Later,
    /// It is not played: playing goes on elsewhere, or is over.
    Never,
}

/// The clock of one sink that plays events by their times.
#[derive(Debug)]
pub struct PlaybackClock {
    playback: Arc<Playback>,
    cancelled: Arc<AtomicBool>,
    timer: PlaybackTimer,
    seeks: u64,
    /// What is earlier is not played, until something is not.
    from: Option<i64>,
}

#[derive(Debug)]
struct PlaybackTimer {
    speed: PlaybackSpeed,
    /// What the next events are due relative to.
    anchor: Option<TimeAnchor>,
    /// The time of the event that was played last.
    last: Option<i64>,
}

#[derive(Clone, Copy, Debug)]
struct TimeAnchor {
    event: i64,
    played: Instant,
    factor: f64,
}

/// How long to wait before looking whether the run is to end.
const PATIENCE: Duration = Duration::from_millis(50);

impl PlaybackClock {
    /// A clock that starts with the first event it is asked about.
    pub fn new(playback: Arc<Playback>, cancelled: Arc<AtomicBool>, tempo: PlaybackSpeed) -> Self {
        let clock = PlaybackTimer { speed: tempo, anchor: None, last: None };
        Self { playback, cancelled, timer: clock, seeks: 0, from: None }
    }

    /// Asks for an event of that time without waiting. One without a time, because it lies beyond all that 64 bits
    /// hold, is due at once, and says nothing of when others are; while a place is sought, it is not played.
    pub fn poll(&mut self, time: Option<i64>) -> PlaybackTurn {
        let mut desk = self.playback.state();
        if self.cancelled.load(Ordering::Relaxed) || desk.over || desk.seek.is_some() {
            return PlaybackTurn::Never;
        }
        if self.seeks != desk.seeks {
            (self.seeks, self.from) = (desk.seeks, desk.from);
            (self.timer.anchor, self.timer.last) = (None, None);
        }
        if self.from.is_some_and(|from| time.is_none_or(|time| time < from)) {
            return PlaybackTurn::Never;
        }
        self.from = None;
        if desk.paused {
            // However long the pause is, what comes after it is due at once.
            self.timer.anchor = None;
            if desk.steps == 0 {
                return PlaybackTurn::Later;
            }
            desk.steps -= 1;
        } else if self.timer.due(time, desk.factor).is_some_and(|due| due > Instant::now()) {
            return PlaybackTurn::Later;
        }
        if let Some(time) = time {
            self.timer.last = Some(time);
            desk.position = Some(time);
            desk.first.get_or_insert(time);
        }
        desk.played += 1;
        PlaybackTurn::Now
    }

    /// Waits until an event of that time is due, or is not to be played at all.
    pub fn wait(&mut self, time: Option<i64>) -> PlaybackTurn {
        loop {
            match self.poll(time) {
                PlaybackTurn::Later => {}
                turn => return turn,
            }
            let desk = self.playback.state();
            let due = if desk.paused { None } else { self.timer.due(time, desk.factor) };
            let left = due.map(|due| due.saturating_duration_since(Instant::now()));
            let wait = left.unwrap_or(PATIENCE).min(PATIENCE);
            let waited = self.playback.changed.wait_timeout(desk, wait);
            drop(waited.unwrap_or_else(PoisonError::into_inner));
        }
    }
}

impl PlaybackTimer {
    /// When an event of that time is due; nothing means at once.
    fn due(&mut self, time: Option<i64>, factor: f64) -> Option<Instant> {
        let time = time?;
        let speed = self.speed.speed * factor;
        if speed <= 0.0 || !speed.is_finite() {
            return None;
        }
        let now = Instant::now();
        // Where times step back nobody knows how long that took: such an event is due at once, and what
        // follows relative to it.
        if self.last.is_some_and(|last| time < last) {
            self.last = None;
            self.anchor = None;
        }
        let mut anchor = self.anchor.unwrap_or(TimeAnchor { event: time, played: now, factor });
        if anchor.factor != factor {
            // As far as it had come at the old speed.
            let gone = now.saturating_duration_since(anchor.played).as_nanos() as f64;
            let reached =
                anchor.event.saturating_add((gone * self.speed.speed * anchor.factor) as i64);
            let event = reached.clamp(self.last.unwrap_or(time).min(time), time);
            anchor = TimeAnchor { event, played: now, factor };
        }
        if let (Some(most), Some(last)) = (self.speed.max_gap, self.last) {
            let most = i64::try_from(most.as_nanos()).unwrap_or(i64::MAX);
            if time.saturating_sub(last) > most {
                // The silence is cut where it begins: what is left of it starts when the last event was due.
                let played = anchor.at(last, speed).unwrap_or(now);
                anchor = TimeAnchor { event: time.saturating_sub(most), played, factor };
                self.last = Some(anchor.event);
            }
        }
        self.anchor = Some(anchor);
        anchor.at(time, speed)
    }
}

impl TimeAnchor {
    fn at(&self, time: i64, speed: f64) -> Option<Instant> {
        // However slow it is, a lifetime is as long as anybody waits.
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
        (Arc::clone(&playback), PlaybackClock::new(playback, Arc::default(), tempo))
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
    fn flat_out_everything_is_due() {
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
