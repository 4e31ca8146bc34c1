//! Tables per channel: how events and types are divided among them, and merged again.

use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use parquet::file::reader::FileReader;
use serde_json::json;
use sluice_kit::contract::PlainEvent;
use sluice_model::{
    Batch, Channel, Channels, MessageType, Payloads, Query, ReadContext, Rows, SinkContext, TypeKey,
};

use crate::kit::{
    batch, context, drive, event, files, footer, read, source, write, write_with_notes,
};

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

/// What tells two channels with one name and one source apart.
#[derive(Clone, Copy, Debug)]
enum Difference {
    Metadata,
    Type,
}

impl Difference {
    fn set(self, channel: &mut Channel, version: &str) {
        match self {
            Self::Metadata => _ = channel.metadata.insert("version".into(), version.into()),
            Self::Type => channel.type_name = Some(version.into()),
        }
    }

    fn get(self, channel: &Channel) -> Option<String> {
        match self {
            Self::Metadata => channel.metadata.get("version").cloned(),
            Self::Type => channel.type_name.as_deref().map(str::to_owned),
        }
    }
}

/// Events of two channels with one name and one source.
fn of_two_versions(context: &SinkContext, by: Difference) -> Vec<sluice_model::Batch> {
    let channel = |version: &str| {
        let name = sluice_model::Name::from_text("SCAN");
        let mut channel = Channel::new(name, "laser", sluice_model::Encoding::Vel);
        by.set(&mut channel, version);
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
fn versions(path: &Path, by: Difference) -> Vec<(i64, Option<String>)> {
    let (source, context) = (source(path), ReadContext::standalone("test"));
    let mut found = Vec::new();
    for split in source.splits(u64::MAX, &Query::default()).unwrap() {
        let mut reader = source.read(&split, sluice_model::SplitStart::At(0), &context).unwrap();
        while let Some(batch) = reader.next_batch().unwrap() {
            found.extend(batch.iter().map(|event| {
                let channel = context.channels.get(event.channel);
                (event.sequence, by.get(&channel))
            }));
        }
    }
    found
}

#[test]
fn channels_of_one_name_and_source_stay_separate() {
    let folder = tempfile::tempdir().unwrap();
    for by in [Difference::Metadata, Difference::Type] {
        for name in ["by-channel.parquet", "by-time.parquet", "tables/"] {
            let (path, context) = (folder.path().join(format!("{by:?}/{name}")), context(64 << 20));
            let order = if name == "by-time.parquet" { "time" } else { "channel" };
            let options = json!({ "path": path, "order": order, "row_group_rows": 130 });
            assert_eq!(write(options, of_two_versions(&context, by), &context).unwrap(), 500);
            let mut found = versions(&path, by);
            found.sort();
            for (number, version) in &found {
                let expected = if -number % 7 == 3 { "101" } else { "102" };
                assert_eq!(version.as_deref(), Some(expected), "{by:?}, {name}: {number}");
            }
            assert_eq!(found.len(), 500);
        }
    }
}

#[test]
fn a_second_channel_of_a_name_after_the_first_row_group_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let context = context(64 << 20);
    let mut batches = of_two_versions(&context, Difference::Type);
    let first = batches[0].channels()[0];
    batches[0] = batches[0].retain(|row| batches[0].channels()[row] == first);
    let options = json!({ "path": folder.path().join("all.parquet"), "row_group_rows": 10 });
    let error = write(options, batches, &context).unwrap_err().to_string();
    let wanted = "differ in their encoding, type or metadata";
    assert!(error.contains(wanted) && error.contains("all.parquet"), "{error}");
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

/// Events of a type of 200 numbers, as a batch each.
fn wide_messages(count: i64, channels: &Channels) -> Vec<Batch> {
    let one = |n: i64| {
        let column = |at: i64| -> (String, ArrayRef) {
            (format!("f{at}"), Arc::new(Float64Array::from(vec![(n * 7919 + at) as f64])))
        };
        let rows = Rows {
            message: MessageType::named("wide", TypeKey(7)).into(),
            payloads: Payloads::Kept,
            events: vec![0],
            columns: RecordBatch::try_from_iter((0..200).map(column)).unwrap(),
        };
        let name = ["A", "B", "C"][n as usize % 3];
        batch(&[event(n * 1_000, n, name, b"")], channels).with_rows(vec![rows])
    };
    (0..count).map(one).collect()
}

#[test]
fn tables_of_wide_messages_do_not_depend_on_memory() {
    let written = |memory: usize| {
        let folder = tempfile::tempdir().unwrap();
        let context = context(memory);
        let options = json!({ "path": folder.path().join("tables/"), "row_group_rows": 40 });
        let batches = wide_messages(300, &context.channels);
        assert_eq!(write(options, batches, &context).unwrap(), 300);
        files(folder.path())
    };
    // An eighth of a MiB holds the arrays of three messages.
    assert!(written(1 << 20) == written(1 << 30));
}

#[test]
fn a_folder_of_two_depths_is_noted() {
    let folder = tempfile::tempdir().unwrap();
    let context = context(1 << 20);
    let poses = vec![poses(&context.channels, 3, 0)];
    let others = vec![batch(&[event(1, 90, "OTHER", b"1")], &context.channels)];
    let path = |name: &str| json!({ "path": folder.path().join(name) });
    let (_, notes) = write_with_notes(path("one/"), poses.clone(), &context).unwrap();
    assert!(notes.is_empty(), "{notes:?}");
    let both = [poses, others].concat();
    let (_, notes) = write_with_notes(path("two/"), both, &context).unwrap();
    assert_eq!(notes.len(), 1);
    assert!(notes[0].0.contains("`POSE` is divided by type"), "{notes:?}");
}
