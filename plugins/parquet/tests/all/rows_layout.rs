//! One table of the decoded messages of one channel, in a file.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{Float64Array, RecordBatch};
use parquet::file::reader::{FileReader, SerializedFileReader};
use serde_json::json;
use sluice_model::{
    Batch, Channels, MessageType, Payloads, PrepareContext, Query, ReadContext, Registry, Rows,
    SplitStart, TypeKey,
};

use crate::kit::{batch, context, event, source, write};

/// 40 decoded messages of this type on this channel.
fn messages(channels: &Channels, channel: &str, key: u64) -> Batch {
    let events: Vec<_> = (0..40).map(|n| event(n * 1_000, n, channel, &n.to_le_bytes())).collect();
    let x: Float64Array = (0..40).map(f64::from).collect::<Vec<_>>().into();
    let columns = RecordBatch::try_from_iter([("x", Arc::new(x) as _)]).unwrap();
    let message = MessageType::named("row", TypeKey(key)).into();
    let rows = Rows { message, payloads: Payloads::Kept, events: (0..40).collect(), columns };
    batch(&events, channels).with_rows(vec![rows])
}

fn columns(path: &Path) -> (Vec<String>, i64) {
    let table = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    let about = table.metadata().file_metadata();
    let columns = about.schema_descr_ptr();
    (columns.columns().iter().map(|column| column.name().to_owned()).collect(), about.num_rows())
}

#[test]
fn the_rows_of_one_channel_are_a_file_with_their_columns_that_is_read_as_that_channel() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("aligned.parquet");
    let context = context(64 << 20);
    let batches = (0..3).map(|_| messages(&context.channels, "aligned", 7)).collect();
    let options = json!({ "path": path, "layout": "rows", "row_group_rows": 70 });
    assert_eq!(write(options, batches, &context).unwrap(), 120);
    assert_eq!(
        columns(&path),
        (["timestamp", "source", "sequence", "x"].map(Into::into).into(), 120)
    );
    let read = ReadContext::standalone("log");
    let source = source(&path);
    let splits = source.splits(1 << 20, &Query::default()).unwrap();
    let mut reader = source.read(&splits[0], SplitStart::At(0), &read).unwrap();
    let back = reader.next_batch().unwrap().unwrap();
    let channel = sluice_model::ChannelId(back.channels()[0]);
    assert_eq!(read.channels.get(channel).name.text(), "aligned");
    assert_eq!(back.rows()[0].columns.schema().field(0).name(), "x");
}

#[test]
fn a_second_channel_or_type_ends_the_run() {
    for (channel, key, found) in [
        ("POSE", 7, "found the channels `aligned` and `POSE`"),
        ("aligned", 8, "found messages on `aligned` of another type"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("aligned.parquet");
        let context = context(64 << 20);
        let channels = &context.channels;
        let batches = vec![messages(channels, "aligned", 7), messages(channels, channel, key)];
        let options = json!({ "path": path, "layout": "rows" });
        let error = write(options, batches, &context).unwrap_err();
        assert!(error.to_string().contains(found), "{error}");
        assert!(!path.exists(), "nothing half written");
    }
}

#[test]
fn events_that_are_not_decoded_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("aligned.parquet");
    let context = context(64 << 20);
    let registry = Registry::linked();
    let sink = registry.sink("parquet", json!({ "path": path, "layout": "rows" })).unwrap();
    let buffers = sluice_model::BlockPool::new(64, 2);
    let mut prepare = PrepareContext::new(&context.channels, &buffers);
    let raw = messages(&context.channels, "aligned", 7).with_rows(Vec::new());
    let _block = sink.prepare(raw, &mut prepare).unwrap();
    let refused: Vec<u32> = prepare.report.refused.iter().map(|(row, _)| *row).collect();
    assert_eq!(refused, (0..40).collect::<Vec<u32>>());
}

#[test]
fn without_rows_the_table_is_empty() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("aligned.parquet");
    let context = context(64 << 20);
    write(json!({ "path": path, "layout": "rows" }), Vec::new(), &context).unwrap();
    assert_eq!(columns(&path), (["timestamp", "source", "sequence"].map(Into::into).into(), 0));
}

#[test]
fn a_table_per_channel_on_standard_output_is_refused() {
    let sink = |options| Registry::linked().sink("parquet", options).map(|_| ());
    let error = sink(json!({ "path": "-", "layout": "channel" })).unwrap_err();
    assert!(error.to_string().contains("which is standard output"), "{error}");
    for options in [json!({ "path": "-" }), json!({ "path": "t", "layout": "channel" })] {
        assert!(sink(options).is_ok());
    }
}

#[test]
fn a_folder_is_refused() {
    let registry = Registry::linked();
    let options = json!({ "path": "tables/", "layout": "rows" });
    let Err(error) = registry.sink("parquet", options) else { panic!("accepted") };
    assert!(error.to_string().contains("`path` must not end with a slash"), "{error}");
}
