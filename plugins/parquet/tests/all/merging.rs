//! The order of the events of several tables.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use serde_json::json;
use sluice_kit::contract::PlainEvent;
use sluice_model::{MessageType, Payloads, Rows, RunOrigin, SinkContext, TypeKey};

use crate::kit::{batch, context, event, read, write};

/// Events on two channels in turn, numbered from `first`, at these seconds.
fn log(first: i64, seconds: &[i64]) -> Vec<PlainEvent> {
    let each = (first..).zip(seconds);
    each.map(|(n, second)| event(second * 1_000_000_000, n, ["A", "B"][n as usize % 2], b"x"))
        .collect()
}

/// Writes events as tables of one run.
fn write_run(folder: &Path, pipeline: &str, events: &[PlainEvent]) {
    let origin = RunOrigin { pipeline: pipeline.to_owned(), ..RunOrigin::default() };
    let context = SinkContext { origin: Arc::new(origin), ..context(64 << 20) };
    let batches = vec![batch(events, &context.channels)];
    write(json!({ "path": folder.join("") }), batches, &context).unwrap();
}

fn seconds(path: &Path) -> Vec<i64> {
    read(path).unwrap().events.iter().map(|event| event.timestamp / 1_000_000_000).collect()
}

#[test]
fn logs_that_each_count_from_zero_are_merged_by_time() {
    let folder = tempfile::tempdir().unwrap();
    for (name, seconds) in [("log=a", [11, 12, 13, 14]), ("log=b", [1, 2, 3, 4])] {
        write_run(&folder.path().join(name), name, &log(0, &seconds));
    }
    assert_eq!(seconds(folder.path()), [1, 2, 3, 4, 11, 12, 13, 14]);
}

#[test]
fn each_of_several_logs_keeps_its_order() {
    let folder = tempfile::tempdir().unwrap();
    for (name, seconds) in [("log=a", [1, 5, 3, 9]), ("log=b", [2, 4, 6, 8])] {
        write_run(&folder.path().join(name), name, &log(0, &seconds));
    }
    assert_eq!(seconds(folder.path()), [1, 2, 4, 5, 3, 6, 8, 9]);
}

#[test]
fn pieces_whose_numbers_go_on_keep_their_order_whatever_their_times() {
    let folder = tempfile::tempdir().unwrap();
    // The clock was set back after the first piece; then a second recording was appended.
    for (piece, first, seconds) in
        [(0, 0, [101, 102]), (1, 2, [3, 4]), (2, 4, [5, 6]), (3, 0, [104, 105])]
    {
        write_run(&folder.path().join(format!("piece={piece}")), "record", &log(first, &seconds));
    }
    assert_eq!(seconds(folder.path()), [101, 102, 3, 4, 5, 6, 104, 105]);
    // Numbers of another run that happen to be higher do not continue those before.
    write_run(&folder.path().join("piece=1"), "convert", &log(2, &[3, 4]));
    assert_eq!(seconds(folder.path()), [3, 4, 5, 6, 101, 102, 104, 105]);
}

#[test]
fn tables_of_several_runs_in_one_folder_are_merged_by_time() {
    let folder = tempfile::tempdir().unwrap();
    let (a, b) = (folder.path().join("a"), folder.path().join("b"));
    write_run(&a, "a", &log(0, &[11, 12, 13, 14]));
    write_run(&b, "b", &log(0, &[1, 2, 3, 4]));
    let part = |folder: &Path| folder.join("channel=B/part-00000.parquet");
    fs::copy(part(&b), part(&a)).unwrap();
    assert_eq!(seconds(&a), [2, 4, 11, 13]);
}

#[test]
fn tables_of_rows_that_a_glob_finds_are_merged_by_time() {
    let folder = tempfile::tempdir().unwrap();
    let context = context(64 << 20);
    for (name, seconds) in [("a", [11, 13, 15]), ("b", [12, 14, 16])] {
        let one = |event| PlainEvent { channel: name.to_owned(), ..event };
        let events: Vec<PlainEvent> = log(0, &seconds).into_iter().map(one).collect();
        let events = batch(&events, &context.channels);
        let x: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
        let columns = RecordBatch::try_from_iter([("x", x)]).unwrap();
        let message = MessageType::named("pose_t", TypeKey(1)).into();
        let rows = Rows { message, payloads: Payloads::Kept, events: vec![0, 1, 2], columns };
        let path = folder.path().join(format!("{name}.parquet"));
        let options = json!({ "path": path, "layout": "rows" });
        write(options, vec![events.with_rows(vec![rows])], &context).unwrap();
    }
    assert_eq!(seconds(&folder.path().join("*.parquet")), [11, 12, 13, 14, 15, 16]);
}
