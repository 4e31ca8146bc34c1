//! Which silences are reported, and which are not.

use crate::testing::StageRunner;
use serde_json::{Value, json};
use sluice_model::TimeWindow;

const START: i64 = 1_194_098_400_000_000_000;
const MILLIS: i64 = 1_000_000;

/// The notes for events on these channels, at these milliseconds.
fn notes(options: Value, events: &[(&str, i64)]) -> Vec<(String, u64)> {
    let mut run = StageRunner::new("gaps", options);
    let at = |millis: i64| START + millis * MILLIS;
    let mut events: Vec<_> = events.iter().map(|(name, time)| (*name, at(*time))).collect();
    events.sort_by_key(|event| event.1);
    let batch = run.batch(&events);
    let out = run.all([batch]).unwrap();
    assert_eq!((out.len(), run.filtered), (events.len(), 0));
    run.notes
}

fn steady(name: &str, times: impl Iterator<Item = i64>) -> Vec<(&str, i64)> {
    times.map(|time| (name, time)).collect()
}

#[test]
fn silences_are_counted_and_the_longest_is_reported() {
    let mut events = steady("POSE", (0..40_000).step_by(10));
    let gone = |time: &i64| !(5_000..7_500).contains(time) && !(9_000..20_240).contains(time);
    events.extend(steady("CAM", (0..40_000).step_by(20).filter(gone)));
    let note = "CAM: fell silent; the longest gap is 11.26 s, after 2007-11-03T14:00:08.98Z";
    assert_eq!(notes(json!({}), &events), [(note.to_owned(), 2)]);
    assert_eq!(notes(json!({ "channels": "POSE" }), &events), []);
    assert_eq!(notes(json!({ "longer_than": "3s" }), &events), [(note.to_owned(), 1)]);
}

#[test]
fn a_channel_that_ends_before_the_others_is_reported() {
    let mut events = steady("POSE", (0..=60_000).step_by(10));
    events.extend(steady("CAM", (0..=36_000).step_by(50)));
    let note = "CAM: nothing after 2007-11-03T14:00:36Z, 24 s before the end";
    assert_eq!(notes(json!({ "channels": "C*" }), &events), [(note.to_owned(), 0)]);
}

#[test]
fn a_typical_interval_of_a_slow_channel_is_not_a_gap() {
    let mut events = steady("STATUS", (0..200_000).step_by(5_000));
    events.extend([("ONCE", 3), ("POSE", 199_000)]);
    assert_eq!(notes(json!({}), &events), []);
    let (what, count) = &notes(json!({ "factor": 0.5 }), &events)[0];
    assert!(what.starts_with("STATUS: fell silent; the longest gap is 5 s"), "{what}");
    assert_eq!(*count, 39);
    events.extend(steady("STATUS", (260_000..300_000).step_by(5_000)));
    assert_eq!(notes(json!({ "channels": "STATUS" }), &events).len(), 1);
}

#[test]
fn events_out_of_order_are_not_a_gap() {
    let times = (0..1_000).map(|n| n * 10 - if n % 2 == 0 { 15 } else { 0 });
    let events: Vec<_> = times.map(|time| ("A", START + time * MILLIS)).collect();
    let mut run = StageRunner::new("gaps", json!({}));
    let batch = run.batch(&events);
    run.all([batch]).unwrap();
    assert_eq!(run.notes, []);
}

#[test]
fn notes_are_few_however_many_channels_there_are() {
    let names: Vec<String> = (0..150).map(|n| format!("C{n:03}")).collect();
    let mut events = Vec::new();
    for name in &names {
        events.extend(steady(name, (0..12).chain([9_000])));
    }
    events.extend(steady("LAST", (0..20_000).step_by(10)));
    let notes = notes(json!({}), &events);
    let more = [("50 more channels also have gaps", 0), ("50 more channels also end early", 0)];
    let more = more.map(|(what, count)| (what.to_owned(), count));
    assert_eq!((notes.len(), &notes[100], &notes[201]), (202, &more[0], &more[1]));
}

#[test]
fn wild_times_are_reported_and_harm_nothing() {
    let events: Vec<_> = [0, i64::MAX, i64::MIN, 5, 6, 7].map(|time| ("A", time)).into();
    let mut run = StageRunner::new("gaps", json!({ "factor": 1e300 }));
    let batch = run.batch(&events);
    run.all([batch]).unwrap();
    assert_eq!(run.notes, []);
    let mut run = StageRunner::new("gaps", json!({}));
    let batch = run.batch(&events);
    run.all([batch]).unwrap();
    assert_eq!(run.notes, []);
}

/// The notes for events in this order, at these milliseconds.
fn notes_in_order(events: &[(&str, i64)], wanted: TimeWindow) -> Vec<(String, u64)> {
    let mut run = StageRunner::new("gaps", json!({}));
    run.wanted = wanted;
    let at = |(name, millis): &(_, i64)| (*name, START + millis * MILLIS);
    let batch = run.batch(&events.iter().map(at).collect::<Vec<_>>());
    run.all([batch]).unwrap();
    run.notes
}

const YEAR: i64 = 31_536_000_000;

#[test]
fn one_wrong_time_is_not_a_silence_and_not_the_end() {
    for wrong in [-YEAR, -20_000, 30_000, YEAR, 200 * YEAR] {
        for place in [0, 1, 500, 999, 1000] {
            let mut events = steady("A", (0..10_000).step_by(10));
            events.insert(place, ("A", wrong));
            events.extend(steady("B", (9_500..10_000).step_by(10)));
            let notes = notes_in_order(&events, TimeWindow::default());
            assert_eq!(notes, [], "{wrong} at {place}");
        }
    }
}

#[test]
fn a_clock_that_is_set_begins_anew() {
    let mut events = steady("A", (0..10_000).step_by(10));
    events.extend(steady("A", (-60_000..-50_000).step_by(10)));
    assert_eq!(notes_in_order(&events, TimeWindow::default()), []);
    events.extend(steady("A", (-47_000..-46_000).step_by(10)));
    let note = "A: fell silent; the longest gap is 3.01 s, after 2007-11-03T13:59:09.99Z";
    assert_eq!(notes_in_order(&events, TimeWindow::default()), [(note.to_owned(), 1)]);
}

#[test]
fn what_is_late_does_not_make_the_silence_after_it_longer() {
    let mut events = steady("A", (0..10_000).step_by(10));
    events.push(("A", 4_000));
    events.extend(steady("A", (10_000..20_000).step_by(10)));
    assert_eq!(notes_in_order(&events, TimeWindow::default()), []);
    let events = [steady("A", (0..10_000).step_by(10)), vec![("A", 4_000)]].concat();
    assert_eq!(notes_in_order(&events, TimeWindow::default()), []);
}

#[test]
fn channels_with_too_few_events_are_not_reported() {
    let mut events = steady("POSE", (0..60_000).step_by(10));
    events.extend(steady("FEW", (0..9).chain([40_000])));
    events.extend(steady("BURSTS", (0..50_000).step_by(2_500).flat_map(|at| at..at + 4)));
    assert_eq!(notes(json!({}), &events), []);
    events.extend(steady("PAIRS", (0..40_000).step_by(100).flat_map(|at| [at, at])));
    let note = "PAIRS: nothing after 2007-11-03T14:00:39.9Z, 20.09 s before the end";
    assert_eq!(notes(json!({}), &events), [(note.to_owned(), 0)]);
    assert_eq!(notes(json!({ "factor": 0 }), &events).len(), 5);
}

#[test]
fn only_the_pushed_down_window_is_reported() {
    let times = (0..60_000).step_by(10);
    let mut events = steady("A", times.filter(|time| !(10_000..30_000).contains(time)));
    events.extend(steady("B", (0..60_000).step_by(10)));
    let window = |start: i64, end: i64| {
        let at = |millis: i64| Some(START + millis * MILLIS);
        TimeWindow { start: at(start), end: at(end) }
    };
    assert_eq!(notes_in_order(&events, window(0, 10_000)), []);
    assert_eq!(notes_in_order(&events, window(30_000, 60_000)), []);
    let note = "A: nothing after 2007-11-03T14:00:09.99Z, 5 s before the end";
    assert_eq!(notes_in_order(&events, window(0, 15_000)), [(note.to_owned(), 0)]);
}

#[test]
fn every_channel_is_needed_in_the_pushed_down_window() {
    let query = StageRunner::new("gaps", json!({ "channels": "A" })).fold_query();
    assert!(query.keeps_times && !query.keeps_channels);
    assert_eq!((query.reach, query.also), (0, None));
}

/// Times of a sensor with this many events per ten seconds, each late by up to `jitter` of an
/// interval, for a minute.
fn sensor(per_ten_seconds: i64, jitter: f64, mut chance: u64) -> Vec<i64> {
    let interval = 10_000.0 / per_ten_seconds as f64;
    let late = |_| {
        chance =
            chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (chance >> 40) as f64 / f64::from(1u32 << 24) * jitter
    };
    let lates: Vec<f64> = (0..6 * per_ten_seconds).map(late).collect();
    let times = lates.iter().zip(0u32..);
    times.map(|(late, n)| ((f64::from(n) + late) * interval) as i64).collect()
}

/// Times of a sensor without the events in this range.
fn without(times: &[i64], silence: std::ops::Range<i64>) -> Vec<i64> {
    times.iter().copied().filter(|time| !silence.contains(time)).collect()
}

#[test]
fn sensors_that_are_silent_for_nearly_a_second_are_reported_at_any_rate() {
    // Cameras at 10 to 22 Hz, GPS at 1 to 10 Hz.
    for rate in [10, 20, 40, 50, 80, 100, 150, 180, 220] {
        for (seed, jitter) in [(1, 0.0), (2, 0.02), (3, 0.05)] {
            let times = sensor(rate, jitter, seed);
            let options = json!({ "longer_than": "500ms" });
            let even = notes(options.clone(), &steady("S", times.iter().copied()));
            assert_eq!(even, [], "{rate} in 10 s, {jitter}");
            // For slow sensors, 0.9 s in which an event must be missing.
            let interval = 10_000 / rate;
            let from = times[times.len() / 2] - if rate == 10 { 450 } else { 5 };
            let gone = without(&times, from..from + 900);
            assert!(gone.len() < times.len());
            let noted = notes(options.clone(), &steady("S", gone.into_iter()));
            // At two events per second, one missing event is within the jitter.
            if jitter == 0.0 || interval <= 250 {
                assert_eq!(noted.len(), 1, "{rate} in 10 s, {jitter}");
                assert!(noted[0].0.starts_with("S: fell silent"), "{noted:?}");
                assert_eq!(noted[0].1, 1);
            }
        }
    }
}

#[test]
fn jitter_is_not_a_silence() {
    for rate in [10, 20, 50, 100, 220] {
        for (seed, jitter) in [(1, 0.1), (2, 0.3), (3, 0.6), (4, 0.95), (5, 0.99)] {
            let times = sensor(rate, jitter, seed);
            for longer_than in ["0s", "100ms", "500ms"] {
                let noted = notes(
                    json!({ "longer_than": longer_than }),
                    &steady("S", times.iter().copied()),
                );
                assert_eq!(noted, [], "{rate} in 10 s, {jitter}");
            }
        }
    }
}

#[test]
fn events_that_come_by_chance_have_no_silences() {
    let mut chance = 7u64;
    let mut at = 0.0;
    let times = (0..5_000).map(|_| {
        chance =
            chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        at -= ((chance >> 40) as f64 / f64::from(1u32 << 24)).max(1e-9).ln() * 200.0;
        at as i64
    });
    assert_eq!(notes(json!({ "longer_than": "500ms" }), &steady("S", times)), []);
}

#[test]
fn an_expected_rate_counts_for_any_events() {
    let slow = steady("GPS", (0..10).map(|n| n * 1_000));
    let options = json!({ "longer_than": "500ms", "rates": { "G*": 10 } });
    let noted = notes(options.clone(), &slow);
    assert_eq!(noted.len(), 1);
    assert!(noted[0].0.starts_with("GPS: fell silent; the longest gap is 1 s"), "{noted:?}");
    assert_eq!(noted[0].1, 9);
    // A name takes precedence over a pattern.
    let named = json!({ "longer_than": "500ms", "rates": { "G*": 10, "GPS": 1 } });
    assert_eq!(notes(named, &slow), []);
    let other = notes(options, &steady("POSE", (0..10_000).step_by(10)));
    assert_eq!(other, [("G*: expected events, but none came".to_owned(), 0)]);
}

#[test]
fn options_that_make_no_sense_are_refused() {
    for rate in [0.0, -1.0, 1e300] {
        let refusal = StageRunner::refusal("gaps", json!({ "rates": { "GPS": rate } }));
        assert_eq!(refusal.path, ["rates", "GPS"]);
    }
    assert_eq!(StageRunner::refusal("gaps", json!({ "longer_than": "-1s" })).path, ["longer_than"]);
    assert_eq!(StageRunner::refusal("gaps", json!({ "factor": -1 })).path, ["factor"]);
}
