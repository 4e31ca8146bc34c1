//! Columns of decoded messages: lists that are unnested, selected fields, and what fields say of
//! themselves.

use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef, Float64Array, Int64Array, ListArray, RecordBatch, StructArray};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{Field, Schema};
use parquet::file::reader::FileReader;
use serde_json::json;
use sluice_kit::contract::PlainEvent;
use sluice_model::{
    Channel, ChannelId, Encoding, MessageType, Name, Payloads, ReadContext, Rows, TypeKey,
};

use crate::kit::{batch, context, event, footer, read, source, write, write_with_notes};

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
fn payloads_of_records_that_are_described_in_part_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = format!("{}/", folder.path().display());
    for (options, encoding, is_kept) in [
        (json!({ "path": path }), Encoding::Unknown, true),
        (json!({ "path": path }), Encoding::Lcm, false),
        (json!({ "path": path, "unnest": "points" }), Encoding::Unknown, false),
        (json!({ "path": path, "fields": ["utime"] }), Encoding::Unknown, false),
        (json!({ "path": path, "payload": "drop" }), Encoding::Unknown, false),
    ] {
        let context = context(64 << 20);
        let channel = Channel::new(Name::from_text("A"), "log", encoding);
        let channel = context.channels.intern(channel).unwrap();
        let batch = scans(0, 50, &context.channels);
        let is_first = |id: u32| context.channels.get(ChannelId(id)).name.text() == "A";
        let channels =
            batch.channels().iter().map(|id| if is_first(*id) { channel.0 } else { *id });
        let channels = channels.collect();
        let batch = batch.with_channels(channels);
        let rows = batch.rows()[0].clone();
        let message = MessageType::part("scan", TypeKey(5)).into();
        let gone = rows.pick(&[0]);
        let gone = Rows { payloads: Payloads::Gone, message: Arc::clone(&message), ..gone };
        let kept = rows.pick(&(1..rows.events.len() as u32).collect::<Vec<_>>());
        let batch = batch.with_rows(vec![gone, Rows { message, ..kept }]);
        write(options.clone(), vec![batch], &context).unwrap();
        let kept = folder.path().join(match is_kept {
            true => "channel=A/schema=0000000000000005-1/part-00000.parquet",
            false => "channel=A/part-00000.parquet",
        });
        let has_payload = |table: &Path| {
            let table = footer(table);
            let columns = table.metadata().file_metadata().schema_descr().columns();
            columns.iter().any(|column| column.name() == "payload")
        };
        assert_eq!(has_payload(&kept), is_kept, "{options}");
        if is_kept {
            let gone = "channel=A/schema=0000000000000005/part-00000.parquet";
            assert!(!has_payload(&folder.path().join(gone)), "{options}");
            let events = read(&kept).unwrap().events;
            assert!(events.iter().all(|event| !event.payload.is_empty()), "{events:?}");
            std::fs::remove_dir_all(folder.path()).unwrap();
        }
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
fn options_without_effect_are_refused() {
    for (options, needs) in [
        (json!({ "compression": "snappy", "level": 9 }), "`level` needs `compression"),
        (json!({ "compression": "none", "level": 9 }), "`level` needs `compression"),
        (json!({ "order": "time" }), "`order` needs one table of all events"),
    ] {
        let mut all = json!({ "path": "t/" });
        all.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
        let error = sluice_model::Registry::linked().sink("parquet", all).err().unwrap();
        assert!(error.message.contains(needs), "{error}");
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
