//! Rows of random events: against a simple model, in batches, and in windows.

use proptest::prelude::*;
use serde_json::json;
use sluice_model::TimeWindow;

use super::aligned;
use super::kit::{MS, Runner, TestEvent};

/// The value that a simple search through all values chooses.
fn modelled(values: &[(i64, f64)], row: i64, method: &str, tolerance: i64) -> Option<f64> {
    let near = |value: &&(i64, f64)| (value.0 - row).abs() <= tolerance;
    let last = values.iter().rev().find(|value| value.0 <= row).filter(near);
    let next = values.iter().find(|value| value.0 > row).filter(near);
    match (method, last, next) {
        ("last", last, _) => last.map(|last| last.1),
        ("nearest", Some(last), Some(next)) if next.0 - row < row - last.0 => Some(next.1),
        ("nearest", last, next) => last.or(next).map(|one| one.1),
        (_, Some(last), _) if last.0 == row => Some(last.1),
        (_, Some(last), Some(next)) => {
            let weight = (row - last.0) as f64 / (next.0 - last.0) as f64;
            Some(last.1 * (1.0 - weight) + next.1 * weight)
        }
        _ => None,
    }
}

fn method() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("last"), Just("nearest"), Just("linear")]
}

fn events(back: i64) -> impl Strategy<Value = Vec<TestEvent>> {
    let event = (prop_oneof![Just("A"), Just("B"), Just("X")], -back..40i64, 0..100i32);
    proptest::collection::vec(event, 0..80).prop_map(move |steps| {
        let mut now = 10_000;
        let event = |(name, step, value): (&'static str, i64, i32)| {
            now += step;
            (name, now * MS, f64::from(value))
        };
        steps.into_iter().map(event).collect()
    })
}

proptest! {
    #[test]
    fn rows_are_those_of_a_simple_search(
        events in events(0), a in method(), b in method(), tolerance in 0i64..80,
        lag in -50i64..50, clock in any::<bool>(),
    ) {
        let mut options = json!({ "tolerance": format!("{tolerance}ms"), "fields": {
            "a": { "field": "A.v", "method": a },
            "b": { "field": "B.v", "method": b, "lag": format!("{lag}ms") } } });
        options[if clock { "clock" } else { "rate" }] = if clock { json!("X") } else { json!(100) };
        let out = aligned(options, &events);
        prop_assert!(!out.notes.keys().any(|note| note.contains("came after")));
        let found: Vec<(i64, Vec<f64>)> = out.rows.into_iter()
            .map(|(time, row)| (time, row.iter().map(|text| text.parse().unwrap()).collect()))
            .collect();
        let of = |wanted: &str, lag: i64| -> Vec<(i64, f64)> {
            let of = events.iter().filter(|event| event.0 == wanted);
            of.map(|event| (event.1 - lag * MS, event.2)).collect()
        };
        let (first, second) = (of("A", 0), of("B", lag));
        let mut times: Vec<i64> = match clock {
            true => of("X", 0).into_iter().map(|event| event.0).collect(),
            false => (9_000 / 10..15_000 / 10).map(|step| step * 10 * MS).collect(),
        };
        times.dedup();
        let row = |time: i64| {
            let a = modelled(&first, time, a, tolerance * MS)?;
            Some((time, vec![a, modelled(&second, time, b, tolerance * MS)?]))
        };
        let wanted: Vec<_> = times.into_iter().filter_map(row).collect();
        prop_assert_eq!(found, wanted);
    }

    #[test]
    fn values_that_would_have_changed_finished_rows_are_counted(
        events in events(30), method in method(), tolerance in 0i64..80,
    ) {
        let fields = json!({ "a": { "field": "A.v", "method": method } });
        let tolerance_ms = format!("{tolerance}ms");
        let out = aligned(
            json!({ "rate": 100, "tolerance": tolerance_ms, "fields": fields }), &events,
        );
        let of = events.iter().filter(|event| event.0 == "A");
        let mut values: Vec<(i64, f64)> = of.map(|event| (event.1, event.2)).collect();
        values.sort_by_key(|value| value.0);
        // Of equal times, a row before them takes the one that came first.
        let mut first = values.clone();
        first.dedup_by_key(|value| value.0);
        let steps = (8_000 / 10..15_000 / 10).map(|step| step * 10 * MS);
        let wanted: Vec<(i64, String)> = steps
            .filter_map(|time| {
                let at = values.partition_point(|value| value.0 <= time);
                let after = first.iter().filter(|value| value.0 > time);
                let all: Vec<_> = values[..at].iter().chain(after).copied().collect();
                let value = modelled(&all, time, method, tolerance * MS)?;
                Some((time, format!("{value:?}")))
            })
            .collect();
        let found: Vec<_> =
            out.rows.iter().map(|(time, values)| (*time, values[0].clone())).collect();
        let is_counted = out.notes.keys().any(|note| note.contains("came after"));
        prop_assert!(found == wanted || is_counted, "{:?} {:?}", found, wanted);
    }

    #[test]
    fn batches_and_windows_do_not_matter(
        events in events(10), method in method(), size in 1usize..9, missing in 0..2,
        start in 9_900i64..10_300, length in 0i64..400,
    ) {
        let missing = ["drop", "null"][missing as usize];
        let options = json!({ "rate": 100, "tolerance": "30ms", "missing": missing, "fields": {
            "a": { "field": "A.v", "method": method }, "b": "B.v", "l": "A.q" } });
        let whole = aligned(options.clone(), &events);
        let pieces: Vec<&[TestEvent]> = events.chunks(size).collect();
        let cut = Runner::new(options.clone(), TimeWindow::default()).all(&pieces).unwrap();
        prop_assert_eq!(&cut.rows, &whole.rows);
        prop_assert_eq!(&cut.sequences, &whole.sequences);
        prop_assert_eq!(&cut.notes, &whole.notes);
        let (start, end) = (start * MS, (start + length) * MS);
        let window = TimeWindow { start: Some(start), end: Some(end) };
        let part = Runner::new(options, window).all(&pieces).unwrap();
        let wanted: Vec<_> =
            whole.rows.into_iter().filter(|row| window.wants_time(row.0)).collect();
        prop_assert_eq!(part.rows, wanted);
    }
}
