//! One table of all events: they are restored in order, for any cuts.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use parquet::file::reader::FileReader;
use proptest::prelude::*;
use serde_json::json;
use sluice_io::tasks::TaskPool;
use sluice_kit::contract::{PlainEvent, gather_splits, trials};
use sluice_model::{ChannelQuery, Pattern, Patterns, Query, ReadContext, Registry};

use crate::kit::{
    batch, context, drive, event, files, footer, read, source, write, write_on, write_single,
};

#[test]
fn a_table_of_all_events_restores_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.parquet");
    let events = drive(5_000);
    for order in ["channel", "time"] {
        for compression in ["zstd", "snappy", "none"] {
            let more = json!({ "order": order, "compression": compression, "row_group_rows": 700 });
            write_single(&path, &events, 900, more);
            let back = read(&path).unwrap();
            assert!(back.events == events, "{order} {compression}");
            assert_eq!(back.damage, []);
            assert_eq!(footer(&path).num_row_groups(), 8);
            assert_eq!(source(&path).events_in(&path).unwrap(), Some(5_000));
        }
    }
}

#[test]
fn a_name_that_promises_a_compressed_file_is_refused() {
    for (path, is_right) in [("y.parquet.zst", false), ("y.ZST", false), ("y.zst/", true)] {
        let sink = Registry::linked().sink("parquet", json!({ "path": path }));
        let refused = sink.err().map(|error| error.message);
        assert_eq!(refused.is_none(), is_right, "{path}: {refused:?}");
        assert!(refused.is_none_or(|message| message.contains("`.zst`")), "{path}");
    }
}

/// A file can have 32,767 row groups: a long log must not fail after hours for that.
#[test]
fn row_groups_of_a_long_table_grow() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.parquet");
    let events = drive(13_000);
    write_single(&path, &events, 5_000, json!({ "row_group_rows": 1 }));
    let footer = footer(&path);
    let rows = |group: usize| footer.metadata().row_group(group).num_rows();
    assert_eq!([0, 4095, 4096, 8191, 8192].map(rows), [1, 1, 2, 2, 4]);
    assert_eq!(footer.num_row_groups(), 2 * 4096 + (13_000 - (1 + 2) * 4096) / 4);
    assert!(read(&path).unwrap().events == events);
}

#[test]
fn rows_are_sorted_by_channel_only_where_numbers_tell_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.parquet");
    let mut events = drive(1_000);
    // The second half was appended by a logger that counted from 0 again.
    for (n, event) in events[700..].iter_mut().enumerate() {
        event.sequence = n as i64;
    }
    write_single(&path, &events, 100, json!({ "row_group_rows": 500 }));
    assert_eq!(read(&path).unwrap().events, events);
    let footer = footer(&path);
    let sorted = |group: usize| {
        let columns = footer.metadata().row_group(group).sorting_columns().cloned();
        columns.map(|columns| columns.iter().map(|c| c.column_idx).collect::<Vec<_>>())
    };
    assert_eq!(sorted(0), Some(vec![1, 2, 3]), "source, channel, sequence");
    // Times of these events step back here and there.
    assert_eq!(sorted(1), None);
}

#[test]
fn declared_sorting_columns_are_true() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.parquet");
    let mut events = drive(100);
    events.sort_by_key(|event| event.timestamp);
    write_single(&path, &events, 100, json!({ "order": "time" }));
    let rising = footer(&path).metadata().row_group(0).sorting_columns().cloned().unwrap();
    assert_eq!(
        rising.iter().map(|c| (c.column_idx, c.descending)).collect::<Vec<_>>(),
        [(0, false)]
    );
    events.swap(3, 70);
    write_single(&path, &events, 100, json!({ "order": "time" }));
    assert_eq!(footer(&path).metadata().row_group(0).sorting_columns(), None);
}

#[test]
fn the_same_events_give_the_same_bytes_however_they_are_cut_and_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out");
    let events = drive(6_000);
    for (name, more) in [
        ("all.parquet", json!({ "row_group_rows": 900 })),
        ("tables/", json!({ "row_group_rows": 300 })),
    ] {
        let mut found: Option<BTreeMap<String, Vec<u8>>> = None;
        for cut in [1, 333, 6_000] {
            for threads in [false, true] {
                drop(fs::remove_dir_all(&path));
                let context = context(64 << 20);
                let tasks = match threads {
                    true => TaskPool::thread_per_task(3),
                    false => TaskPool::default(),
                };
                let batches =
                    events.chunks(cut).map(|some| batch(some, &context.channels)).collect();
                let mut options = json!({ "path": path.join(name) });
                options.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
                assert_eq!(write_on(&tasks, options, batches, &context).unwrap().0, 6_000);
                let bytes = files(&path);
                assert!(
                    found.get_or_insert_with(|| bytes.clone()) == &bytes,
                    "{name} {cut} {threads}"
                );
            }
        }
    }
}

#[test]
fn times_between_microseconds_have_a_column_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.parquet");
    let columns =
        |path: &Path| footer(path).metadata().file_metadata().schema_descr().num_columns();
    let mut events = drive(50);
    write_single(&path, &events, 50, json!({}));
    assert_eq!(columns(&path), 5);
    events[7].timestamp += 1;
    events[8].timestamp = -1;
    events[9].timestamp = i64::MIN;
    write_single(&path, &events, 50, json!({}));
    assert_eq!(columns(&path), 6);
    assert_eq!(read(&path).unwrap().events, events);
    // They come too late for a table whose first row group has been written.
    let context = context(64 << 20);
    let options = json!({ "path": path, "row_group_rows": 5 });
    let late = write(options, vec![batch(&events, &context.channels)], &context).unwrap_err();
    assert!(late.to_string().contains("timestamp_ns = true"), "{late}");
    write_single(&path, &events, 50, json!({ "row_group_rows": 5, "timestamp_ns": true }));
    assert_eq!(read(&path).unwrap().events, events);
}

#[test]
fn clamped_times_do_not_need_the_column_of_nanoseconds() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.parquet");
    let (events, context) = (drive(4), context(64 << 20));
    let times = [0, i128::MAX, i128::MIN, 1_000];
    let events = batch(&events, &context.channels).with_wide_times(times.to_vec());
    let nearest = [0, i64::MAX / 1_000, i64::MIN / 1_000, 1].map(|micros| micros * 1_000);
    for more in [json!(1), json!(4)] {
        let options = json!({ "path": path, "row_group_rows": more });
        write(options, vec![events.clone()], &context).unwrap();
        let back = read(&path).unwrap();
        let times: Vec<i64> = back.events.iter().map(|event| event.timestamp).collect();
        assert_eq!((times, back.damage), (nearest.to_vec(), vec![]));
    }
}

#[test]
fn only_row_groups_and_rows_that_are_asked_for_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.parquet");
    let events = drive(10_000);
    write_single(&path, &events, 10_000, json!({ "row_group_rows": 1_000 }));
    let source = source(&path);
    let (start, end) = (events[4_500].timestamp, events[4_600].timestamp);
    let window = Query { start: Some(start), end: Some(end), ..Query::default() };
    let splits = source.splits(1 << 20, &window).unwrap();
    assert_eq!(splits.len(), 1);
    let channels = Patterns(vec![Pattern::parse("B").unwrap()]);
    let only = |channels: &Patterns| Query {
        channels: ChannelQuery::from_patterns(channels, &Patterns::default(), &Patterns::default()),
        ..Query::default()
    };
    let query = only(&channels);
    let splits = source.splits(1 << 20, &query).unwrap();
    assert_eq!(splits.len(), 10);
    let context = ReadContext { query, ..ReadContext::standalone("log") };
    let found = gather_splits(&*source, splits, &context).unwrap().events;
    let expected: Vec<PlainEvent> = events.iter().filter(|e| e.channel == "B").cloned().collect();
    assert_eq!(found, expected);
    let none = Patterns(vec![Pattern::parse("X").unwrap()]);
    assert_eq!(source.splits(1 << 20, &only(&none)).unwrap(), []);
}

#[test]
fn a_table_of_no_events_is_a_table() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("none.parquet");
    write_single(&path, &[], 1, json!({}));
    assert_eq!(footer(&path).metadata().file_metadata().num_rows(), 0);
    assert_eq!(read(&path).unwrap().events, []);
}

#[test]
fn an_event_larger_than_a_row_group_has_one_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.parquet");
    let mut events = drive(100);
    events[50].payload = vec![5; 3 << 20];
    write_single(&path, &events, 100, json!({ "row_group_bytes": "1MiB" }));
    assert_eq!(footer(&path).num_row_groups(), 3);
    assert!(read(&path).unwrap().events == events);
}

fn any_event() -> impl Strategy<Value = PlainEvent> {
    let payload = proptest::collection::vec(any::<u8>(), 0..40);
    (any::<i64>(), any::<i64>(), "[A-C]|\\PC{0,5}", payload).prop_map(
        |(time, number, channel, payload)| {
            // The text form of a name, as from every source.
            let channel = sluice_model::Name::from_text(&channel).text().to_owned();
            event(time, number, &channel, &payload)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(trials(24, 256)))]

    #[test]
    fn any_events_come_back(
        events in proptest::collection::vec(any_event(), 0..60),
        rise: bool, cut in 1usize..20, rows in 1u32..30,
    ) {
        let mut events = events;
        if rise {
            events.iter_mut().enumerate().for_each(|(n, event)| event.sequence = n as i64);
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("all.parquet");
        write_single(&path, &events, cut, json!({ "row_group_rows": rows, "timestamp_ns": true }));
        let back = read(&path).unwrap();
        prop_assert_eq!(back.events, events);
        prop_assert_eq!(back.damage, []);
    }
}
