//! Rows of events, and what becomes of odd ones.

mod kit;
mod properties;

use std::sync::Arc;

use serde_json::{Value, json};
use sluice_model::{Channels, Fold, Map, OptionsError, Registry, Stage, StageContext, TimeWindow};

use super::fold::AlignFold;
use super::plan::AlignPlan;
use super::select::SelectMap;
use kit::{MS, Outcome, Runner, TestEvent};

fn aligned(options: Value, events: &[TestEvent]) -> Outcome {
    Runner::new(options, TimeWindow::default()).all(&[events]).unwrap()
}

fn refused(options: Value, events: &[TestEvent]) -> String {
    let runner = Runner::new(options, TimeWindow::default());
    runner.all(&[events]).err().expect("a refusal").to_string()
}

fn wrong(options: Value) -> OptionsError {
    Registry::linked().stage("align", options).unwrap_err()
}

/// Ten rows per second, with a tolerance of 100 ms.
fn tenths(fields: Value) -> Value {
    json!({ "rate": "10Hz", "fields": fields })
}

fn ms(events: &[(&'static str, i64, f64)]) -> Vec<TestEvent> {
    events.iter().map(|(name, time, value)| (*name, time * MS, *value)).collect()
}

#[test]
fn rows_lie_on_whole_periods_and_take_the_last_values() {
    let events = ms(&[("A", 950, 1.0), ("B", 990, 7.0), ("A", 1050, 2.0), ("B", 1100, 8.0)]);
    let out = aligned(tenths(json!({ "a": "A.v", "b": "B.v" })), &events);
    let row = |time: i64, a: &str, b: &str| (time * MS, vec![a.to_owned(), b.to_owned()]);
    assert_eq!(out.rows, [row(1000, "1.0", "7.0"), row(1100, "2.0", "8.0")]);
    assert_eq!((out.sequences, out.filtered), (vec![10, 11], 4));
    assert_eq!(out.notes["rows on the grid"], 3);
    assert_eq!(out.notes["`A.v`: rows whose last value is older than 100.0 ms"], 1);
    assert_eq!(out.notes["`A.v`: the farthest value is 50.0 ms away from its row"], 0);
    let none = aligned(tenths(json!({ "a": "A.v" })), &[]);
    assert_eq!(none.notes["no rows on the grid"], 0);
}

#[test]
fn a_field_without_any_value_is_noted() {
    let fields = json!({ "a": "A.v", "b": "B.v" });
    for events in [ms(&[("A", 950, 1.0), ("A", 1050, 2.0)]), Vec::new()] {
        let out = aligned(tenths(fields.clone()), &events);
        let absent =
            |field: &str| out.notes.keys().any(|n| n.starts_with(&format!("`{field}`: no v")));
        assert_eq!((absent("A.v"), absent("B.v")), (events.is_empty(), true));
    }
}

#[test]
fn an_anchor_moves_the_grid() {
    let mut options = tenths(json!({ "a": "A.v" }));
    options["anchor"] = json!("1970-01-01T00:00:00.03Z");
    let out = aligned(options, &ms(&[("A", 900, 1.0), ("A", 1000, 2.0)]));
    assert_eq!(out.values(), [(930, "1.0"), (1030, "2.0")]);
    assert_eq!(out.sequences, [9, 10]);
}

#[test]
fn values_of_both_sides_are_combined() {
    let events = ms(&[("A", 950, 1.0), ("A", 1030, 2.0), ("A", 1110, 3.0)]);
    let method = |method: &str| tenths(json!({ "a": { "field": "A.v", "method": method } }));
    let linear = aligned(method("linear"), &events);
    assert_eq!(linear.values(), [(1000, "1.625"), (1100, "2.875")]);
    let nearest = aligned(method("nearest"), &events);
    assert_eq!(nearest.values(), [(900, "1.0"), (1000, "2.0"), (1100, "3.0"), (1200, "3.0")]);
}

#[test]
fn none_takes_only_what_came_since_the_row_before() {
    let mut options = tenths(json!({ "b": "B.v", "a": { "field": "A.v", "method": "none" } }));
    options["missing"] = json!("null");
    let events = ms(&[("A", 990, 1.0), ("B", 995, 0.0), ("B", 1080, 0.0), ("B", 1180, 0.0)]);
    let values: Vec<_> =
        aligned(options, &events).rows.iter().map(|row| row.1[1].clone()).collect();
    assert_eq!(values, ["1.0", "null", "null"]);
}

#[test]
fn rotations_are_interpolated_on_the_sphere() {
    let options = tenths(json!({ "q": { "field": "A.q", "method": "slerp" } }));
    let out = aligned(options, &ms(&[("A", 950, 0.0), ("A", 1050, 1.0)]));
    let (half, text) = (0.25f64, &out.rows[0].1[0]);
    let parts: Vec<f64> =
        text.trim_matches(['[', ']']).split(", ").map(|part| part.parse().unwrap()).collect();
    let wanted = [half.cos(), 0.0, 0.0, half.sin()];
    assert!(parts.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-12), "{text}");
}

#[test]
fn angles_cross_the_end_of_their_range() {
    let options = tenths(json!({ "a": { "field": "A.v", "method": "linear", "angle": true } }));
    let out = aligned(options, &ms(&[("A", 950, 3.0), ("A", 1050, -3.0)]));
    let angle: f64 = out.rows[0].1[0].parse().unwrap();
    assert!((angle.abs() - std::f64::consts::PI).abs() < 1e-12, "{angle}");
}

#[test]
fn several_fields_make_one_vector() {
    let fields = json!({ "x": ["A.v", "A.q", "B.v"],
        "l": { "field": ["L.l"], "length": 2 } });
    let events = ms(&[("A", 950, 0.0), ("B", 960, 5.0), ("L", 970, 2.0)]);
    let out = aligned(tenths(fields), &events);
    assert_eq!(out.rows[0].1, ["[0.0, 1.0, 0.0, 0.0, 0.0, 5.0]", "[2.0, 3.0]"]);
}

#[test]
fn lists_of_another_length_are_not_used() {
    let fields = json!({ "l": { "field": "L.l", "length": 2, "method": "linear" } });
    let events = ms(&[("L", 900, 2.0), ("L", 950, 3.0), ("L", 980, 2.0), ("L", 990, 0.0)]);
    let out = aligned(tenths(fields), &events);
    assert_eq!(out.values(), [(900, "[2.0, 3.0]")]);
    assert_eq!(out.note("values that are not 2 numbers long"), 2);
}

#[test]
fn in_a_vector_lists_have_the_length_of_the_first_one() {
    let events =
        ms(&[("L", 870, 0.0), ("L", 890, 2.0), ("A", 890, 5.0), ("L", 950, 3.0), ("L", 1010, 2.0)]);
    for (fields, method, row) in
        [(&["L.l", "A.v"][..], "last", "[2.0, 3.0, 5.0]"), (&["L.l"][..], "linear", "[2.0, 3.0]")]
    {
        let fields = json!({ "x": { "field": fields, "method": method, "tolerance": "150ms" } });
        let out = aligned(tenths(fields), &events);
        assert_eq!(out.values(), [(900, row), (1000, row)]);
        assert_eq!(out.note("of another length than the first one"), 2);
    }
}

#[test]
fn lists_of_different_lengths_have_no_mean() {
    let fields = json!({ "l": { "field": "L.l", "method": "linear" } });
    let out = aligned(tenths(fields), &ms(&[("L", 950, 2.0), ("L", 1050, 3.0), ("L", 1150, 3.0)]));
    assert_eq!(out.values(), [(1100, "[3.0, 4.0, 5.0]")]);
    assert_eq!(out.note("without a fitting value"), 2);
}

#[test]
fn what_cannot_be_computed_with_is_refused() {
    let text = ms(&[("T", 0, 1.0)]);
    let linear = refused(tenths(json!({ "s": { "field": "T.s", "method": "linear" } })), &text);
    assert!(linear.contains("`T.s` is text: `linear` needs numbers"), "{linear}");
    let vector = refused(tenths(json!({ "s": ["T.s"] })), &text);
    assert!(vector.contains("a vector has numbers only"), "{vector}");
    let slerp = refused(
        tenths(json!({ "a": { "field": "A.v", "method": "slerp" } })),
        &ms(&[("A", 0, 1.0)]),
    );
    assert!(slerp.contains("needs quaternions"), "{slerp}");
}

#[test]
fn own_times_and_lags_move_values() {
    // The own time of a value of 60,000 is 60 ms earlier.
    let field = json!({ "a": { "field": "A.v", "time": "own" } });
    let events = ms(&[("A", 1050, 60_000.0), ("A", 1120, 60_000.0), ("A", 1190, 60_000.0)]);
    let out = aligned(tenths(field), &events);
    let times: Vec<i64> = out.rows.iter().map(|row| row.0 / MS).collect();
    // Their own times are 990, 1060 and 1130 ms.
    assert_eq!(times, [1000, 1100, 1200]);
    assert_eq!(out.note("the farthest value is 70.0 ms away"), 0);
    let events = ms(&[("A", 1050, 1.0), ("A", 1150, 2.0)]);
    let lag = |lag: &str| tenths(json!({ "a": { "field": "A.v", "lag": lag } }));
    assert_eq!(aligned(lag("60ms"), &events).values(), [(1000, "1.0"), (1100, "2.0")]);
    assert_eq!(aligned(lag("-60ms"), &events).values(), [(1200, "1.0"), (1300, "2.0")]);
}

#[test]
fn seconds_and_nanoseconds_are_an_own_time() {
    let field = json!({ "a": { "field": "S.v", "time": "stamp" } });
    let out = aligned(tenths(field), &ms(&[("S", 2005, 1.0), ("S", 2105, 2.0)]));
    assert_eq!(out.values(), [(2000, "1.0"), (2100, "2.0")]);
    assert_eq!(out.note("the farthest value is 5.0 ms away"), 0);
}

#[test]
fn a_field_that_is_no_time_is_an_error_and_so_is_one_that_no_message_has() {
    let field = |time: &str| tenths(json!({ "a": { "field": "T.s", "time": time } }));
    let events = ms(&[("T", 1000, 1.0), ("T", 1100, 2.0)]);
    let text = refused(field("s"), &events);
    assert!(text.contains("the `time` of `T`, `s`, is text: expected a number"), "{text}");
    let missing = refused(field("header.stamp"), &events);
    assert!(missing.contains("none of the 2 messages of `T` has a time"), "{missing}");
}

#[test]
fn a_channel_may_be_the_clock() {
    let mut options = json!({ "clock": "X", "fields": { "a": "A.v" }, "missing": "null" });
    let events = ms(&[("X", 1, 0.0), ("A", 5, 1.0), ("X", 7, 0.0), ("X", 7, 0.0), ("A", 9, 2.0)]);
    let out = aligned(options.clone(), &events);
    assert_eq!((out.values(), &out.sequences), (vec![(7, "1.0")], &vec![2]));
    assert_eq!(out.note("events of the clock at the time of another"), 1);
    options["fields"] = json!({ "a": { "field": "A.v", "method": "linear" } });
    let out = aligned(options, &ms(&[("A", 0, 1.0), ("X", 5, 0.0), ("A", 20, 5.0)]));
    assert_eq!(out.values(), [(5, "2.0")]);
}

#[test]
fn rows_without_a_value_are_left_out_or_null_or_end_the_run() {
    let events = ms(&[("A", 1000, 1.0), ("B", 1000, 2.0), ("A", 1100, 3.0), ("A", 1250, 4.0)]);
    let with = |missing: &str| {
        json!({ "rate": 10, "tolerance": "60ms", "missing": missing,
            "fields": { "a": "A.v", "b": "B.v" } })
    };
    assert_eq!(aligned(with("drop"), &events).rows.len(), 1);
    let null = aligned(with("null"), &events);
    let row = |time: i64, a: &str, b: &str| (time * MS, vec![a.to_owned(), b.to_owned()]);
    let rows = [row(1000, "1.0", "2.0"), row(1100, "3.0", "null"), row(1300, "4.0", "null")];
    assert_eq!(null.rows, rows);
    assert_eq!(
        (null.note("holes between rows"), null.note("the longest hole is 200.0 ms")),
        (1, 0)
    );
    let stop = refused(with("stop"), &events);
    assert!(stop.contains("1970-01-01T00:00:01.1"), "{stop}");
    assert!(stop.contains("`B.v` has no value: the last one is 100.0 ms old"), "{stop}");
}

#[test]
fn rows_begin_when_every_field_has_had_a_value() {
    let events = ms(&[("A", 1050, 1.0), ("A", 1150, 2.0), ("A", 1250, 3.0), ("A", 1350, 4.0)]);
    let with = |missing: &str, methods: [&str; 2]| {
        json!({ "rate": 10, "tolerance": "110ms", "missing": missing, "fields": {
            "a": { "field": "A.v", "method": methods[0] },
            "b": { "field": "A.v", "method": methods[1] } } })
    };
    for missing in ["null", "stop"] {
        for methods in [["linear", "linear"], ["nearest", "last"]] {
            let rows = aligned(with(missing, methods), &events).rows;
            // The row at 1000 is before the first value, of which `nearest` alone makes one.
            assert_eq!(rows[0].0, 1100 * MS, "{missing} {methods:?}");
        }
    }
}

#[test]
fn null_values_are_no_values_and_nan_is_one() {
    let events = ms(&[("A", 950, 1.0), ("A", 990, 404.0), ("A", 1090, f64::NAN)]);
    assert_eq!(
        aligned(tenths(json!({ "a": "A.v" })), &events).values(),
        [(1000, "1.0"), (1100, "NaN")]
    );
}

#[test]
fn a_field_that_is_null_by_its_type_has_no_values() {
    let events = ms(&[("N", 950, 1.0), ("N", 1050, 2.0), ("N", 1150, 3.0)]);
    for missing in ["drop", "null"] {
        for x in [json!("N.x"), json!(["N.x"]), json!({ "field": "N.x", "method": "linear" })] {
            let mut options = tenths(json!({ "v": "N.v", "x": x }));
            options["missing"] = json!(missing);
            let out = aligned(options, &events);
            assert_eq!((out.rows.len(), out.note("`N.x`: no value came")), (0, 0));
        }
    }
}

#[test]
fn an_absurd_time_of_the_first_or_last_event_makes_no_rows() {
    let sound: Vec<TestEvent> =
        (0..40).map(|n| ("A", 1_700_000_000_000 * MS + n * 50 * MS, n as f64)).collect();
    let options = || tenths(json!({ "a": { "field": "A.v", "method": "nearest" } }));
    let expected = aligned(options(), &sound).rows;
    for absurd in [0, i64::MAX] {
        for place in [0, 1, 20, 40] {
            let mut events = sound.clone();
            events.insert(place, ("A", absurd, -1.0));
            for size in [1, 2, 41] {
                let batches: Vec<&[TestEvent]> = events.chunks(size).collect();
                let runner = Runner::new(options(), TimeWindow::default());
                let out = runner.all(&batches).unwrap();
                assert!(out.rows == expected, "{absurd} at {place}: {:?}", out.rows);
                assert_eq!(out.note("whose time is far from that of all others"), 1);
            }
        }
    }
}

#[test]
fn an_absurd_time_makes_no_rows_and_a_pause_is_skipped() {
    let far = i64::MAX / MS;
    let events = ms(&[("A", 0, 1.0), ("A", 100, 2.0), ("A", far, 9.0), ("A", 200, 3.0)]);
    let out = aligned(tenths(json!({ "a": "A.v" })), &events);
    assert_eq!(out.values(), [(0, "1.0"), (100, "2.0"), (200, "3.0"), (300, "3.0")]);
    assert_eq!(out.note("whose time is far from that of all others"), 1);
    let year = 365 * 86_400_000;
    let events = ms(&[("A", 0, 1.0), ("A", year, 2.0), ("A", year + 100, 3.0)]);
    let out = aligned(tenths(json!({ "a": "A.v" })), &events);
    assert_eq!((out.rows.len(), out.note("holes between rows")), (5, 1));
}

#[test]
fn two_absurd_times_in_a_row_leave_all_rows() {
    let fields = json!({ "a": { "field": "A.v", "method": "linear" },
        "b": { "field": "B.v", "tolerance": "1h" } });
    let options = json!({ "rate": "20Hz", "tolerance": "2s", "fields": fields });
    let mut events = vec![("B", 0, 5.0)];
    events.extend((0..600).map(|n| ("A", n * 100 * MS, n as f64)));
    let sound = aligned(options.clone(), &events);
    assert_eq!(sound.rows.len(), 1199);
    events.splice(51..51, [("B", 1_000_000_000 * MS, 6.0), ("B", 2_000_000_000_000 * MS, 7.0)]);
    let out = aligned(options.clone(), &events);
    assert!(out.rows == sound.rows, "{} rows", out.rows.len());
    assert_eq!(out.note("whose time is far from that of all others"), 2);
    let window = TimeWindow { start: Some(20_000 * MS), end: Some(30_000 * MS) };
    let part = Runner::new(options, window).all(&[&events]).unwrap();
    assert!(part.rows == sound.rows[400..600], "{} rows", part.rows.len());
}

#[test]
fn a_rare_field_does_not_keep_the_values_of_the_other_fields_of_its_channel() {
    // Only the first `v` is not null.
    let fields = json!({ "v": { "field": "A.v", "tolerance": "1h" }, "q": "A.q" });
    let plan = AlignPlan::new(serde_json::from_value(tenths(fields)).unwrap()).unwrap();
    let plan = Arc::new(plan);
    let (select, mut fold) = (SelectMap::new(Arc::clone(&plan)), AlignFold::new(plan));
    let channels = Channels::default();
    let mut memory = Vec::new();
    for first in 0..100 {
        let value = |n: i64| if n == 0 { 1.0 } else { 404.0 };
        let events: Vec<TestEvent> =
            (first * 100..(first + 1) * 100).map(|n| ("A", n * 10 * MS, value(n))).collect();
        let mut context = StageContext::new(&channels, Some(0));
        let batch = kit::batch(&channels, first as usize * 100, &events);
        let batch = select.apply(batch, &mut context).unwrap();
        assert_eq!(fold.push(batch, &mut context).unwrap()[0].len(), 10);
        memory.push(fold.memory());
    }
    assert!(memory[99] <= memory[1] && memory[99] > 0, "{memory:?}");
}

#[test]
fn a_clock_that_is_set_back_starts_rows_anew() {
    let events = ms(&[("A", 5000, 1.0), ("A", 5100, 2.0), ("A", 1000, 3.0), ("A", 1100, 4.0)]);
    let out = aligned(tenths(json!({ "a": "A.v" })), &events);
    let times: Vec<i64> = out.rows.iter().map(|row| row.0 / MS).collect();
    assert_eq!(times, [5000, 5100, 5200, 1000, 1100, 1200]);
    assert_eq!(out.note("the clock was set back"), 1);
}

#[test]
fn a_value_that_comes_after_its_row_is_counted() {
    let events = ms(&[("A", 990, 1.0), ("A", 1110, 2.0), ("A", 995, 3.0), ("A", 1200, 4.0)]);
    let out = aligned(tenths(json!({ "a": "A.v" })), &events);
    assert_eq!(out.values()[0], (1000, "1.0"));
    assert_eq!(out.note("values that came after the row of their time"), 1);
}

#[test]
fn a_value_that_would_have_been_the_next_one_of_a_finished_row_is_counted() {
    let late = |late: i64, method: &str| {
        let events = ms(&[("A", 0, 0.0), ("A", 116, 16.0), ("A", late, 500.0), ("A", 190, 30.0)]);
        let fields = json!({ "a": { "field": "A.v", "method": method, "tolerance": "150ms" } });
        aligned(tenths(fields), &events).notes.iter().any(|(note, _)| note.contains("came after"))
    };
    for (time, linear, nearest) in
        [(90, true, true), (100, true, true), (111, true, true), (116, false, false)]
    {
        let found = (late(time, "linear"), late(time, "nearest"), late(time, "last"));
        assert_eq!(found, (linear, nearest, time <= 100), "{time}");
    }
}

#[test]
fn a_rate_above_that_of_the_values_is_noted() {
    let events = ms(&[("A", 0, 1.0), ("A", 100, 2.0), ("A", 200, 3.0)]);
    let out = aligned(json!({ "rate": "50Hz", "fields": { "a": "A.v" } }), &events);
    assert_eq!(out.note("same value as the row before"), 13);
}

#[test]
fn a_type_that_changes_makes_rows_of_both_types() {
    let runner = |method: &str| {
        let field = json!({ "m": { "field": "M.m", "method": method } });
        Runner::new(tenths(field), TimeWindow::default())
    };
    let (first, second) = (ms(&[("M", 0, 1.0)]), ms(&[("M", 100, 200.0)]));
    let out = runner("last").all(&[&first, &second]).unwrap();
    assert_eq!(out.values(), [(0, "1.0"), (100, "200"), (200, "200")]);
    assert_eq!(out.types, ["Float64", "Int64"]);
    let (first, second) = (ms(&[("M", -50, 1.0)]), ms(&[("M", 50, 200.0)]));
    // For means, all numbers are of one type.
    assert_eq!(runner("linear").all(&[&first, &second]).unwrap().values(), [(0, "100.5")]);
}

#[test]
fn two_sources_of_one_channel_are_refused() {
    let message = refused(tenths(json!({ "b": "B.v" })), &ms(&[("B", 0, 1.0), ("B", 1, -1.0)]));
    assert!(message.contains("`B` has events of the sources `log` and `other`"), "{message}");
}

#[test]
fn undecoded_events_and_missing_fields_are_noted() {
    let out =
        aligned(tenths(json!({ "x": "X.v", "a": "A.w" })), &ms(&[("X", 0, 0.0), ("A", 1, 0.0)]));
    assert_eq!((out.rows.len(), out.note("`X`: not decoded")), (0, 1));
    assert_eq!(out.note("`A`: messages without a field `w`"), 1);
}

#[test]
fn mistakes_in_options_name_their_key() {
    let fields = json!({ "a": "A.v" });
    assert!(wrong(json!({ "fields": fields })).message.contains("exactly one of `rate`"));
    let two = json!({ "rate": 1, "clock": "A", "fields": fields });
    assert!(wrong(two).message.contains("exactly one of `rate`"));
    assert!(wrong(json!({ "rate": 1, "fields": {} })).message.contains("at least one field"));
    let field = |settings: Value| json!({ "rate": 1, "fields": { "a": settings } });
    let path = |settings: Value| wrong(field(settings)).path.join(".");
    assert_eq!(path(json!({ "field": "A.v", "angle": true })), "fields.a.angle");
    assert_eq!(path(json!({ "field": "A.v", "quaternion": "xyzw" })), "fields.a.quaternion");
    assert_eq!(path(json!({ "field": "A.v", "length": 0 })), "fields.a.length");
    assert_eq!(path(json!({ "field": "A.v", "time_unit": "s" })), "fields.a.time_unit");
    let unit = |field: Value| json!({ "rate": 1, "time_unit": "s", "fields": { "a": field } });
    assert_eq!(wrong(unit(json!("A.v"))).message, "`time_unit` needs `time`");
    let timed = json!({ "field": "A.v", "time": "own" });
    assert!(Registry::linked().stage("align", unit(timed)).is_ok());
    assert_eq!(path(json!({ "field": "A.v", "tolerance": "2h" })), "fields.a.tolerance");
    assert_eq!(path(json!([])), "fields.a");
}

#[test]
fn a_window_is_pushed_down_if_only_the_times_of_events_count() {
    let reach = |options: Value| {
        let stage = Registry::linked().stage("align", options).unwrap();
        let Stage::Fold(fold) = &stage.into_parts()[1] else { panic!("a fold") };
        fold.query()
    };
    let query = reach(tenths(json!({ "a": { "field": "A.v", "lag": "30ms" } })));
    assert!(query.keeps_times && query.reach >= 130 * MS, "{query:?}");
    assert!(!reach(tenths(json!({ "a": { "field": "A.v", "time": "own" } }))).keeps_times);
}
