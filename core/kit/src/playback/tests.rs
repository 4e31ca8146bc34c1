use std::sync::atomic::{AtomicBool, Ordering};

use sluice_model::RunHost;

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

/// Keeps the notes, and ends the run with the first.
#[derive(Default)]
struct EndOnNote {
    notes: Mutex<Vec<String>>,
    cancelled: Arc<AtomicBool>,
}

impl RunHost for EndOnNote {
    fn log_line(&self, _: &str, _: &str) {}

    fn note(&self, _: &str, what: &str, _: u64) {
        self.notes.lock().unwrap().push(what.to_owned());
        self.cancelled.store(true, Ordering::Relaxed);
    }

    fn is_aborted(&self) -> bool {
        false
    }
}

#[test]
fn a_long_gap_is_noted_and_the_position_moves_through_it() {
    let host = Arc::<EndOnNote>::default();
    let run = RunHandle::new("out", Arc::clone(&host) as _, Arc::clone(&host.cancelled));
    let playback = Arc::<Playback>::default();
    let speed = PlaybackSpeed { speed: 1000.0, max_gap: None };
    let mut pace = PlaybackClock::new(Arc::clone(&playback), run, speed);
    assert_eq!(pace.poll(Some(0)), PlaybackTurn::Now);
    // A gap of 11 seconds takes 11 milliseconds.
    assert_eq!(pace.wait(Some(11_000 * MS)), PlaybackTurn::Now);
    assert!(host.notes.lock().unwrap().is_empty());
    assert_eq!(pace.wait(Some(86_400_000 * MS)), PlaybackTurn::Never);
    let notes = host.notes.lock().unwrap().clone();
    assert!(notes.len() == 1 && notes[0].contains("nothing is sent for 1 min 2"), "{notes:?}");
    let position = playback.position().unwrap();
    assert!(position > 11_000 * MS && position < 86_400_000 * MS, "{position}");
    // Whoever seeks back does not seek within the gap.
    assert_eq!(playback.last_played(), Some(11_000 * MS));
    assert!(playback.toggle());
    assert_eq!(playback.position(), Some(11_000 * MS));
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
