//! Rows with their episodes.

use std::fs;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Decimal128Array, Int32Array, StringArray, UInt64Array};
use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_model::Batch;

use crate::testing::{StageRunner, int_rows, rows};

/// The time of each row, and its episode.
fn numbered(batch: &Batch) -> Vec<(i64, i64)> {
    let mut found = Vec::new();
    for of in batch.rows() {
        let numbers = of.columns.column_by_name("episode").unwrap().as_primitive::<Int64Type>();
        assert_eq!(numbers.null_count(), 0);
        let times = of.events.iter().map(|event| batch.timestamps()[*event as usize]);
        found.extend(times.zip(numbers.values().iter().copied()));
    }
    found
}

/// Rows of channel `R` at these times with these values, a batch for each slice.
fn run(options: &Value, given: &[&[(i64, i32)]]) -> (Vec<(i64, i64)>, StageRunner) {
    let mut options = options.clone();
    options["channel"] = json!("R");
    let mut run = StageRunner::new("episodes", options);
    run.origin = given.iter().flat_map(|part| part.first()).map(|row| row.0).next();
    let batches: Vec<Batch> = given
        .iter()
        .map(|part| {
            let events: Vec<(&str, i64)> = part.iter().map(|row| ("R", row.0)).collect();
            let values: Vec<i32> = part.iter().map(|row| row.1).collect();
            let rows = int_rows("r_t", &(0..part.len() as u32).collect::<Vec<_>>(), &values);
            run.batch(&events).with_rows(vec![rows])
        })
        .collect();
    let out = run.all(batches).unwrap();
    let count: usize = given.iter().map(|part| part.len()).sum();
    assert_eq!(out.len() as u64 + run.filtered, count as u64);
    (numbered(&out), run)
}

fn episodes(options: Value, given: &[(i64, i32)]) -> Vec<(i64, i64)> {
    run(&options, &[given]).0
}

#[test]
fn without_options_only_a_step_back_begins_another_episode() {
    let rows = [(5, 0), (900, 0), (900, 0), (7, 0), (8, 0)];
    assert_eq!(episodes(json!({}), &rows), [(5, 0), (900, 0), (900, 0), (7, 1), (8, 1)]);
}

#[test]
fn a_gap_ends_an_episode() {
    let rows = [(0, 0), (10, 0), (20, 0), (31, 0), (41, 0)];
    assert_eq!(
        episodes(json!({ "gap": "10ns" }), &rows),
        [(0, 0), (10, 0), (20, 0), (31, 1), (41, 1)]
    );
}

#[test]
fn a_change_begins_an_episode() {
    let rows = [(0, 7), (1, 7), (2, 8), (3, 7)];
    assert_eq!(episodes(json!({ "change": "v" }), &rows), [(0, 0), (1, 0), (2, 1), (3, 2)]);
    // Nothing has changed if the field does not exist.
    assert_eq!(episodes(json!({ "change": "w" }), &rows)[3], (3, 0));
}

#[test]
fn an_episode_is_a_stretch_for_which_the_condition_holds() {
    let rows = [(0, 1), (1, 5), (2, 6), (3, 1), (4, 7)];
    assert_eq!(episodes(json!({ "where": "v > 4" }), &rows), [(1, 0), (2, 0), (4, 1)]);
}

#[test]
fn short_episodes_are_dropped_and_get_no_number() {
    let rows = [(0, 1), (1, 2), (2, 2), (3, 3), (4, 4), (5, 4)];
    let options = json!({ "change": "v", "min_rows": 2 });
    let wanted = vec![(1, 0), (2, 0), (4, 1), (5, 1)];
    let (found, runner) = run(&options, &[&rows]);
    assert_eq!((found, runner.filtered), (wanted.clone(), 2));
    assert!(runner.notes.contains(&("episodes".to_owned(), 2)), "{:?}", runner.notes);
    let short = "episodes with fewer than 2 rows are dropped".to_owned();
    assert!(runner.notes.contains(&(short, 2)), "{:?}", runner.notes);
    let cut: Vec<&[(i64, i32)]> = rows.chunks(1).collect();
    assert_eq!(run(&options, &cut).0, wanted);
}

#[test]
fn a_table_has_the_times_of_episodes_and_their_tasks() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("episodes.csv");
    fs::write(&path, "start,end,task\n+3ns,+4ns,\n+1ns,+3ns,pull\n").unwrap();
    let mut run = StageRunner::new("episodes", json!({ "channel": "R", "table": path }));
    assert!(run.needs_origin());
    run.origin = Some(0);
    let batch = run.batch(&[("R", 0), ("R", 1), ("R", 2), ("R", 3), ("R", 4)]);
    let batch = batch.with_rows(vec![int_rows("r_t", &[0, 1, 2, 3, 4], &[0; 5])]);
    let out = run.all([batch]).unwrap();
    assert_eq!((numbered(&out), run.filtered), (vec![(1, 0), (2, 0), (3, 1)], 2));
    let tasks = out.rows()[0].columns.column_by_name("task").unwrap().as_string::<i32>();
    let tasks: Vec<Option<&str>> = tasks.iter().collect();
    assert_eq!(tasks, [Some("pull"), Some("pull"), None]);
    let none = StageRunner::refusal("episodes", json!({ "table": folder.path().join("no.csv") }));
    assert_eq!(none.path, ["table"]);
}

#[test]
fn events_of_other_channels_and_without_rows_are_dropped_and_end_nothing() {
    let mut run = StageRunner::new("episodes", json!({ "channel": "R" }));
    let batch = run.batch(&[("R", 0), ("A", 1), ("R", 2), ("R", 3)]);
    let batch = batch.with_rows(vec![int_rows("r_t", &[0, 2], &[0, 0])]);
    let out = run.all([batch]).unwrap();
    assert_eq!((numbered(&out), run.filtered), (vec![(0, 0), (2, 0)], 2));
}

#[test]
fn no_episodes_are_a_note_without_a_count() {
    let (found, runner) = run(&json!({ "where": "v > 4" }), &[&[(0, 1)]]);
    assert_eq!((found, runner.notes), (vec![], vec![("no episodes".to_owned(), 0)]));
}

#[test]
fn rows_of_several_types_keep_theirs() {
    let mut run = StageRunner::new("episodes", json!({ "channel": "R", "change": "v" }));
    let batch = run.batch(&[("R", 0), ("R", 1), ("R", 2)]);
    let text: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
    let number: ArrayRef = Arc::new(Int32Array::from(vec![1, 1]));
    let all = vec![rows("r_t", &[0, 2], vec![("v", number)]), rows("s_t", &[1], vec![("v", text)])];
    let out = run.all([batch.with_rows(all)]).unwrap();
    let mut found = numbered(&out);
    found.sort_unstable();
    assert_eq!(found, [(0, 0), (1, 1), (2, 2)]);
    assert_eq!(out.rows().len(), 2);
}

#[test]
fn numbers_that_no_float_tells_apart_are_different_values() {
    let large = 1_u64 << 60;
    let whole: ArrayRef = Arc::new(UInt64Array::from(vec![large, large, large + 1, u64::MAX]));
    let tenths = [1_i128 << 60, 1 << 60, (1 << 60) + 1, -1];
    let tenths = Decimal128Array::from_iter_values(tenths).with_precision_and_scale(38, 1);
    for values in [whole, Arc::new(tenths.unwrap())] {
        let mut run = StageRunner::new("episodes", json!({ "channel": "R", "change": "v" }));
        let batch = run.batch(&[("R", 0), ("R", 1), ("R", 2), ("R", 3)]);
        let rows = rows("r_t", &[0, 1, 2, 3], vec![("v", values)]);
        let out = run.all([batch.with_rows(vec![rows])]).unwrap();
        assert_eq!(numbered(&out), [(0, 0), (1, 0), (2, 1), (3, 2)]);
    }
}

#[test]
fn the_type_of_a_whole_number_is_no_change() {
    let mut run = StageRunner::new("episodes", json!({ "channel": "R", "change": "v" }));
    let signed: ArrayRef = Arc::new(Int32Array::from(vec![5]));
    let unsigned: ArrayRef = Arc::new(UInt64Array::from(vec![5, 6]));
    let all =
        vec![rows("i_t", &[0], vec![("v", signed)]), rows("u_t", &[1, 2], vec![("v", unsigned)])];
    let batch = run.batch(&[("R", 0), ("R", 1), ("R", 2)]).with_rows(all);
    assert_eq!(numbered(&run.all([batch]).unwrap()), [(0, 0), (1, 0), (2, 1)]);
}

#[test]
fn what_cannot_be_done_is_refused() {
    let wrong = |options: Value| StageRunner::refusal("episodes", options).path.join(".");
    assert_eq!(wrong(json!({ "gap": "0s" })), "gap");
    assert_eq!(wrong(json!({ "min_rows": 0 })), "min_rows");
    let mut run = StageRunner::new("episodes", json!({ "channel": "R" }));
    let batch = run.batch(&[("R", 0)]);
    let column: ArrayRef = Arc::new(Int32Array::from(vec![1]));
    let batch = batch.with_rows(vec![rows("r_t", &[0], vec![("episode", column)])]);
    let message = run.all([batch]).unwrap_err().to_string();
    assert!(message.contains("already have a field `episode`"), "{message}");
}

proptest! {
    #[test]
    fn batches_do_not_matter_and_numbers_have_no_holes(
        given in proptest::collection::vec((-3i64..12, 0i32..4), 1..60), size in 1usize..9,
        min_rows in 1u64..5, gap in any::<bool>(), change in any::<bool>(), holds in any::<bool>(),
    ) {
        let mut now = 100;
        let given: Vec<(i64, i32)> = given.into_iter().map(|(step, value)| {
            now += step;
            (now, value)
        }).collect();
        let mut options = json!({ "min_rows": min_rows });
        if gap { options["gap"] = json!("8ns") }
        if change { options["change"] = json!("v") }
        if holds { options["where"] = json!("v != 1") }
        let whole = run(&options, &[&given]).0;
        let cut: Vec<&[(i64, i32)]> = given.chunks(size).collect();
        prop_assert_eq!(&run(&options, &cut).0, &whole);
        let numbers: Vec<i64> = whole.iter().map(|row| row.1).collect();
        prop_assert!(numbers.first().is_none_or(|first| *first == 0));
        prop_assert!(numbers.windows(2).all(|pair| pair[1] - pair[0] <= 1 && pair[1] >= pair[0]));
        for episode in whole.chunk_by(|a, b| a.1 == b.1) {
            prop_assert!(episode.len() as u64 >= min_rows && episode.is_sorted());
        }
    }
}
