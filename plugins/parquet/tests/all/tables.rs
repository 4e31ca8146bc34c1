//! One table of all events and tables per channel: events are restored in order, for any cuts.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::kit::{
    batch, context, drive, event, read, source, write, write_on, write_single, write_with_notes,
};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, Float64Array, Int64Array, ListArray, RecordBatch, StringArray, StructArray,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{Field, Schema};
use parquet::file::reader::{FileReader, SerializedFileReader};
use proptest::prelude::*;
use serde_json::json;
use sluice_io::tasks::TaskPool;
use sluice_kit::contract::{PlainEvent, gather_splits, trials};
use sluice_model::{
    ChannelQuery, MessageType, Pattern, Patterns, Payloads, Query, ReadContext, Rows, SinkContext,
    TypeKey,
};

fn footer(path: &Path) -> SerializedFileReader<fs::File> {
    SerializedFileReader::new(fs::File::open(path).unwrap()).unwrap()
}

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

/// Every file below a folder.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            found.extend(
                files(&path).into_iter().map(|(below, bytes)| (format!("{name}/{below}"), bytes)),
            );
        } else {
            found.insert(name, fs::read(&path).unwrap());
        }
    }
    found
}

#[test]
fn tables_a_channel_give_back_the_events_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tables/");
    let mut events = drive(3_000);
    events[5].channel = "odd/näme=%".to_owned();
    events[6].channel = String::new();
    let context = context(64 << 20);
    let batches = events.chunks(777).map(|some| batch(some, &context.channels)).collect();
    write(json!({ "path": path, "row_group_rows": 100 }), batches, &context).unwrap();
    let names: Vec<String> = files(&path).into_keys().collect();
    assert!(
        names.contains(&"channel=odd%2Fn%C3%A4me%3D%25/part-00000.parquet".to_owned()),
        "{names:?}"
    );
    assert_eq!(names.len(), 7 + 1, "seven tables and the manifest: {names:?}");
    assert!(read(&path).unwrap().events == events);
}

#[test]
fn tables_whose_numbers_do_not_rise_are_read_by_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tables/");
    let mut events = drive(1_000);
    for (n, event) in events.iter_mut().enumerate() {
        (event.timestamp, event.sequence) = (n as i64 * 1_000, 1);
    }
    let context = context(64 << 20);
    write(json!({ "path": path }), vec![batch(&events, &context.channels)], &context).unwrap();
    let back = read(&path).unwrap().events;
    assert!(back == events);
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
fn many_channels_share_the_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tables/");
    let names: Vec<String> = (0..300).map(|n| format!("CHANNEL_{n}")).collect();
    let events: Vec<PlainEvent> = (0..30_000)
        .map(|n| event(n * 1_000, n, &names[n as usize * 7 % 300], &[n as u8; 100]))
        .collect();
    let context = context(1 << 20);
    let batches = events.chunks(1_000).map(|some| batch(some, &context.channels)).collect();
    assert_eq!(write(json!({ "path": path }), batches, &context).unwrap(), 30_000);
    let groups = footer(&path.join("channel=CHANNEL_7/part-00000.parquet")).num_row_groups();
    assert!(groups > 1, "a quarter of a MiB does not hold 4 MiB of events");
    assert!(read(&path).unwrap().events == events);
}

/// A batch of decoded messages on the channel POSE: one message per event, except for every third.
fn poses(channels: &sluice_model::Channels, key: u64, from: i64) -> sluice_model::Batch {
    let events: Vec<PlainEvent> =
        (from..from + 90).map(|n| event(n * 1_000, n, "POSE", &n.to_le_bytes())).collect();
    let decoded: Vec<u32> = (0..90).filter(|n| n % 3 != 0).collect();
    let x: Float64Array = decoded.iter().map(|n| f64::from(*n)).collect::<Vec<_>>().into();
    let timestamp: Int64Array =
        decoded.iter().map(|n| i64::from(*n) * 5).collect::<Vec<_>>().into();
    let frame: StringArray = decoded.iter().map(|n| Some(format!("frame {}", n % 2))).collect();
    let columns: [(&str, ArrayRef); 3] =
        [("x", Arc::new(x)), ("timestamp", Arc::new(timestamp)), ("frame", Arc::new(frame))];
    let columns = RecordBatch::try_from_iter(columns).unwrap();
    let message = MessageType::named("pose_t", TypeKey(key)).into();
    let rows = Rows { message, payloads: Payloads::Kept, events: decoded, columns };
    batch(&events, channels).with_rows(vec![rows])
}

#[test]
fn decoded_messages_become_columns_and_are_read_decoded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tables/");
    let context = context(64 << 20);
    let batches = vec![poses(&context.channels, 7, 0), poses(&context.channels, 7, 90)];
    assert_eq!(write(json!({ "path": path }), batches, &context).unwrap(), 180);
    let typed = path.join("channel=POSE/schema=0000000000000007/part-00000.parquet");
    let names: Vec<String> = footer(&typed)
        .metadata()
        .file_metadata()
        .schema_descr()
        .columns()
        .iter()
        .map(|column| column.name().to_owned())
        .collect();
    assert_eq!(names, ["timestamp", "source", "sequence", "x", "timestamp_", "frame"]);
    assert_eq!(
        footer(&path.join("channel=POSE/schema=raw/part-00000.parquet"))
            .metadata()
            .file_metadata()
            .num_rows(),
        60
    );
    let (source, context) = (source(&typed), ReadContext::standalone("log"));
    let splits = source.splits(1 << 20, &Query::default()).unwrap();
    let mut reader = source.read(&splits[0], sluice_model::SplitStart::At(0), &context).unwrap();
    let back = reader.next_batch().unwrap().unwrap();
    let original = poses(&context.channels, 7, 0);
    assert_eq!(back.rows()[0].message.key, TypeKey(7));
    assert_eq!(&*back.rows()[0].message.name, "pose_t");
    let (back, original) = (&back.rows()[0].columns, &original.rows()[0].columns);
    assert_eq!(back.slice(0, 60).columns(), original.columns());
    assert_eq!(back.schema().field(1).name(), "timestamp");
}

#[test]
fn a_channel_of_one_type_has_no_folder_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tables/");
    let context = context(64 << 20);
    let all = poses(&context.channels, 7, 0);
    let decoded = all.take(all.rows()[0].events.clone());
    write(json!({ "path": path, "payload": "keep" }), vec![decoded], &context).unwrap();
    let table = path.join("channel=POSE/part-00000.parquet");
    let schema = footer(&table).metadata().file_metadata().schema_descr_ptr();
    assert_eq!(schema.columns().last().unwrap().name(), "payload");
    assert_eq!(read(&table).unwrap().events.len(), 60);
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

/// Events of two channels with one name and one source, which only their versions tell apart.
fn of_two_versions(context: &SinkContext) -> Vec<sluice_model::Batch> {
    let channel = |version: &str| {
        let name = sluice_model::Name::from_text("SCAN");
        let mut channel = sluice_model::Channel::new(name, "laser", sluice_model::Encoding::Vel);
        channel.metadata.insert("version".into(), version.into());
        context.channels.intern(channel).unwrap()
    };
    let (old, new) = (channel("101"), channel("102"));
    let batches = (0..10).map(|n| {
        let mut batch = sluice_model::BatchBuilder::default();
        for m in 0..50 {
            let at = n * 50 + m;
            batch.push_copy(at, -at, if at % 7 == 3 { old } else { new }, &at.to_le_bytes());
        }
        batch.finish()
    });
    batches.collect()
}

/// The number of each event, and the version of its channel.
fn versions(path: &Path) -> Vec<(i64, Option<String>)> {
    let (source, context) = (source(path), ReadContext::standalone("test"));
    let mut found = Vec::new();
    for split in source.splits(u64::MAX, &Query::default()).unwrap() {
        let mut reader = source.read(&split, sluice_model::SplitStart::At(0), &context).unwrap();
        while let Some(batch) = reader.next_batch().unwrap() {
            found.extend(batch.iter().map(|event| {
                let channel = context.channels.get(event.channel);
                (event.sequence, channel.metadata.get("version").cloned())
            }));
        }
    }
    found
}

#[test]
fn channels_of_one_name_and_source_stay_separate() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["by-channel.parquet", "by-time.parquet", "tables/"] {
        let (path, context) = (folder.path().join(name), context(64 << 20));
        let order = if name == "by-time.parquet" { "time" } else { "channel" };
        let options = json!({ "path": path, "order": order, "row_group_rows": 130 });
        assert_eq!(write(options, of_two_versions(&context), &context).unwrap(), 500);
        let mut found = versions(&path);
        found.sort();
        for (number, version) in &found {
            let expected = if -number % 7 == 3 { "101" } else { "102" };
            assert_eq!(version.as_deref(), Some(expected), "{name}: {number}");
        }
        assert_eq!(found.len(), 500);
    }
}

/// `count` events on the channels `A` to `C`; those on `A` and `B` are scans: event `n` has a list
/// of `n % 4` points, whose `x` counts through all of them, and `utime`.
fn scans(first: i64, count: i64, channels: &sluice_model::Channels) -> sluice_model::Batch {
    let name = |n: i64| ["A", "B", "C"][n as usize % 3];
    let events: Vec<PlainEvent> = (first..first + count)
        .map(|n| event(n / 2 * 1_000_000, n, name(n), format!("{n}").as_bytes()))
        .collect();
    let decoded: Vec<i64> = (first..first + count).filter(|n| n % 3 != 2).collect();
    let lengths: Vec<usize> = decoded.iter().map(|n| *n as usize % 4).collect();
    let xs = decoded.iter().flat_map(|n| (0..n % 4).map(move |k| (n * 10 + k) as f64));
    let x: ArrayRef = Arc::new(Float64Array::from_iter_values(xs));
    let total = lengths.iter().sum::<usize>() as i64;
    let time: ArrayRef = Arc::new(Int64Array::from_iter_values(0..total));
    let points = StructArray::try_from(vec![("x", x), ("utime", time)]).unwrap();
    let element = Arc::new(Field::new("item", points.data_type().clone(), true));
    let list = ListArray::new(element, OffsetBuffer::from_lengths(lengths), Arc::new(points), None);
    let utime: ArrayRef = Arc::new(Int64Array::from(decoded.clone()));
    let columns: Vec<(&str, ArrayRef)> = vec![("utime", utime), ("points", Arc::new(list))];
    let rows = Rows {
        message: MessageType { codec: "lcm".into(), ..MessageType::named("scan", TypeKey(5)) }
            .into(),
        payloads: Payloads::Kept,
        events: decoded.iter().map(|n| (n - first) as u32).collect(),
        columns: RecordBatch::try_from_iter(columns).unwrap(),
    };
    batch(&events, channels).with_rows(vec![rows])
}

/// The rows of [`scans`] after unnesting: channel, number, utime, x.
fn apart(count: i64) -> Vec<(String, i64, i64, f64)> {
    let each = (0..count).filter(|n| n % 3 != 2).flat_map(|n| {
        (0..n % 4).map(move |k| (["A", "B"][n as usize % 3].to_owned(), n, n, (n * 10 + k) as f64))
    });
    each.collect()
}

fn read_apart(path: &Path) -> Vec<(String, i64, i64, f64)> {
    let (source, mut found) = (source(path), Vec::new());
    let context = ReadContext::standalone("log");
    for split in source.splits(1 << 20, &context.query).unwrap() {
        let mut reader = source.read(&split, sluice_model::SplitStart::Search, &context).unwrap();
        while let Some(batch) = reader.next_batch().unwrap() {
            for rows in batch.rows() {
                let utime = rows.columns.column_by_name("utime");
                let x = rows.columns.column_by_name("x");
                let (Some(utime), Some(x)) = (utime, x) else { continue };
                let (utime, x) =
                    (utime.as_primitive::<Int64Type>(), x.as_primitive::<Float64Type>());
                for (row, at) in rows.events.iter().enumerate() {
                    let event = batch.event(*at as usize);
                    let name = context.channels.get(event.channel).name.text().to_owned();
                    found.push((name, event.sequence, utime.value(row), x.value(row)));
                }
            }
        }
    }
    found
}

#[test]
fn each_element_of_a_list_is_a_row_and_they_read_back_in_order() {
    let folder = tempfile::tempdir().unwrap();
    for (n, cut) in [(0, 1000), (1, 7), (2, 64)] {
        let path = folder.path().join(format!("{n}/"));
        let context = context(64 << 20);
        let starts = (0..1000).step_by(cut);
        let batches = starts
            .map(|start| scans(start, (1000 - start).min(cut as i64), &context.channels))
            .collect();
        let options = json!({ "path": format!("{}/", path.display()), "unnest": "points",
            "row_group_rows": 100 });
        assert_eq!(write(options, batches, &context).unwrap(), 1000, "events are counted");
        let table = footer(&path.join("channel=A/part-00000.parquet"));
        let rows = apart(1000).iter().filter(|row| row.0 == "A").count() as i64;
        assert_eq!(table.metadata().file_metadata().num_rows(), rows);
        let groups = table.metadata().row_groups();
        assert!(groups.len() > 2 && groups.iter().all(|group| group.num_rows() <= 100));
        let schema = table.metadata().file_metadata().schema_descr();
        let names: Vec<_> = schema.columns().iter().map(|c| c.name().to_owned()).collect();
        assert_eq!(names, ["timestamp", "source", "sequence", "utime", "x", "points_utime"]);
        assert_eq!(read_apart(&path), apart(1000), "{cut}");
        // Events without a list are unchanged.
        let raw = read(&path.join("channel=C/part-00000.parquet")).unwrap().events;
        assert!(raw.len() == 333 && raw[1].payload == b"5");
    }
}

#[test]
fn rows_of_one_event_stay_together_unless_they_are_more_than_a_row_group() {
    let folder = tempfile::tempdir().unwrap();
    let path = format!("{}/", folder.path().display());
    let context = context(64 << 20);
    let options = json!({ "path": path, "unnest": "points", "row_group_rows": 2 });
    let written = write(options, vec![scans(0, 12, &context.channels)], &context).unwrap();
    let table = footer(&folder.path().join("channel=A/part-00000.parquet"));
    let rows: Vec<i64> = table.metadata().row_groups().iter().map(|g| g.num_rows()).collect();
    // Events 0, 3, 6 and 9 have 0, 3, 2 and 1 points.
    assert_eq!((rows, written), (vec![2, 1, 2, 1], 12));
    assert_eq!(read_apart(folder.path()), apart(12));
}

#[test]
fn a_list_that_is_larger_than_memory_allows_at_once_is_cut_into_row_groups() {
    let folder = tempfile::tempdir().unwrap();
    let path = format!("{}/", folder.path().display());
    let context = context(4 << 20);
    let count = 300_000;
    let values: ArrayRef = Arc::new(Int64Array::from_iter_values(0..count as i64));
    let element = Arc::new(Field::new("item", values.data_type().clone(), true));
    let list = ListArray::new(element, OffsetBuffer::from_lengths([count]), values, None);
    let columns: Vec<(&str, ArrayRef)> = vec![("x", Arc::new(list))];
    let rows = Rows {
        message: MessageType::named("scan", TypeKey(5)).into(),
        payloads: Payloads::Gone,
        events: vec![0],
        columns: RecordBatch::try_from_iter(columns).unwrap(),
    };
    let batch = batch(&[event(0, 7, "A", b"")], &context.channels).with_rows(vec![rows]);
    let options = json!({ "path": path, "unnest": "x" });
    assert_eq!(write(options, vec![batch], &context).unwrap(), 1);
    let table = footer(&folder.path().join("channel=A/part-00000.parquet"));
    let rows: Vec<i64> = table.metadata().row_groups().iter().map(|g| g.num_rows()).collect();
    assert_eq!(rows.iter().sum::<i64>(), count as i64);
    assert!(rows.iter().all(|rows| *rows <= 16_384), "{rows:?}");
}

#[test]
fn times_and_numbers_of_elements_take_next_to_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = format!("{}/", folder.path().display());
    let context = context(64 << 20);
    let options = json!({ "path": path, "unnest": "points", "compression": "none" });
    let lengths = vec![384; 1000];
    let events: Vec<PlainEvent> = (0..1000)
        .map(|n| event(1_194_098_400_000_000_000 + n * 384_000, n * 7, "A", b""))
        .collect();
    let values: ArrayRef = Arc::new(Int64Array::from_iter_values(0..384_000));
    let element = Arc::new(Field::new("item", values.data_type().clone(), true));
    let list = ListArray::new(element, OffsetBuffer::from_lengths(lengths), values, None);
    let columns: Vec<(&str, ArrayRef)> = vec![("points", Arc::new(list))];
    let rows = Rows {
        message: MessageType::named("scan", TypeKey(5)).into(),
        payloads: Payloads::Gone,
        events: (0..1000).collect(),
        columns: RecordBatch::try_from_iter(columns).unwrap(),
    };
    let batch = batch(&events, &context.channels).with_rows(vec![rows]);
    write(options, vec![batch], &context).unwrap();
    let table = footer(&folder.path().join("channel=A/part-00000.parquet"));
    for group in table.metadata().row_groups() {
        for column in &group.columns()[..3] {
            let (bytes, rows) = (column.compressed_size(), group.num_rows());
            assert!(bytes < rows / 10, "{}: {bytes} bytes for {rows} rows", column.column_path());
        }
    }
    let sorted = table.metadata().row_group(0).sorting_columns().cloned().unwrap();
    assert_eq!(sorted.iter().map(|column| column.column_idx).collect::<Vec<_>>(), [0]);
}

#[test]
fn chosen_fields_are_columns_named_by_their_paths() {
    let folder = tempfile::tempdir().unwrap();
    let path = format!("{}/", folder.path().display());
    let names = |options: serde_json::Value| {
        let context = context(64 << 20);
        let batches = vec![scans(0, 50, &context.channels)];
        let (written, notes) = write_with_notes(options, batches, &context).unwrap();
        assert_eq!(written, 50);
        let table = footer(&folder.path().join("channel=A/part-00000.parquet"));
        let columns = table.metadata().file_metadata().schema_descr().columns().iter();
        (columns.skip(3).map(|c| c.path().string()).collect::<Vec<_>>(), notes)
    };
    let (columns, notes) =
        names(json!({ "path": path, "fields": ["points[0].x", "utime", "nowhere"] }));
    assert_eq!(columns, ["points[0].x", "utime"]);
    assert_eq!(notes, [("no event has a field `nowhere`".to_owned(), 0)]);
    let (columns, notes) = names(json!({ "path": path, "fields": "x,utime", "unnest": "points" }));
    assert_eq!((columns, notes.len()), (vec!["x".to_owned(), "utime".to_owned()], 0));
    assert_eq!(read_apart(folder.path()), apart(50));
    let (columns, notes) = names(json!({ "path": path, "unnest": "pints" }));
    assert_eq!(columns, ["utime", "points.list.item.x", "points.list.item.utime"]);
    assert_eq!(notes, [("no event has a list `pints`".to_owned(), 0)]);
}

#[test]
fn partial_messages_do_not_claim_to_be_complete() {
    let folder = tempfile::tempdir().unwrap();
    let path = format!("{}/", folder.path().display());
    for options in
        [json!({ "path": path, "fields": ["utime"] }), json!({ "path": path, "unnest": "points" })]
    {
        let context = context(64 << 20);
        write(options, vec![scans(0, 50, &context.channels)], &context).unwrap();
        let table = footer(&folder.path().join("channel=A/part-00000.parquet"));
        let entries = table.metadata().file_metadata().key_value_metadata().unwrap();
        let text = entries.iter().find(|entry| entry.key == "sluice.type").unwrap();
        let text = text.value.clone().unwrap();
        assert!(text.contains("scan") && !text.contains("lcm"), "{text}");
        let message: MessageType = serde_json::from_str(&text).unwrap();
        assert!(message.is_part(), "and readers know that no message can be made of them");
    }
}

#[test]
fn fields_keep_what_they_say_of_themselves() {
    let folder = tempfile::tempdir().unwrap();
    let context = context(64 << 20);
    let said = |key: &str, value: &str| [(key.to_owned(), value.to_owned())].into();
    let batch = scans(0, 50, &context.channels);
    let rows = batch.rows()[0].clone();
    let fields: Vec<Field> = rows
        .columns
        .schema_ref()
        .fields()
        .iter()
        .map(|field| match &**field.name() {
            // Named like a column of tables.
            "utime" => {
                field.as_ref().clone().with_name("sequence").with_metadata(said("unit", "s"))
            }
            _ => field.as_ref().clone(),
        })
        .collect();
    let schema = Arc::new(Schema::new(fields));
    let columns = RecordBatch::try_new(schema, rows.columns.columns().to_vec()).unwrap();
    let batch = batch.with_rows(vec![Rows { columns, ..rows }]);
    write(json!({ "path": format!("{}/", folder.path().display()) }), vec![batch], &context)
        .unwrap();
    let (source, context) = (source(folder.path()), ReadContext::standalone("log"));
    for split in source.splits(1 << 20, &context.query).unwrap() {
        let mut reader = source.read(&split, sluice_model::SplitStart::Search, &context).unwrap();
        while let Some(batch) = reader.next_batch().unwrap() {
            for rows in batch.rows().iter().filter(|rows| rows.columns.num_columns() > 0) {
                let schema = rows.columns.schema();
                let field = schema.field_with_name("sequence").unwrap();
                assert_eq!(*field.metadata(), said("unit", "s"));
                assert!(schema.field_with_name("points").unwrap().metadata().is_empty());
            }
        }
    }
}

#[test]
fn lists_are_not_unnested_if_payloads_are_written() {
    for options in [
        json!({ "path": "t.parquet", "unnest": "points" }),
        json!({ "path": "t.parquet", "fields": ["x"] }),
        json!({ "path": "t/", "unnest": "points", "payload": "keep" }),
        json!({ "path": "t/", "unnest": "points[0]" }),
    ] {
        let registry = sluice_model::Registry::linked();
        assert!(registry.sink("parquet", options.clone()).is_err(), "{options}");
    }
}

#[test]
fn a_channel_with_only_empty_lists_has_no_table() {
    let folder = tempfile::tempdir().unwrap();
    let path = format!("{}/", folder.path().display());
    let context = context(64 << 20);
    let options = json!({ "path": path, "unnest": "points" });
    // Event 0 has no point.
    assert_eq!(write(options, vec![scans(0, 1, &context.channels)], &context).unwrap(), 1);
    assert!(!folder.path().join("channel=A").exists());
}
