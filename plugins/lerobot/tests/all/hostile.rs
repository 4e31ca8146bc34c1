//! Datasets whose Parquet files are not what they should be: errors and damage that name the file,
//! in bounded memory.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Float32Array, Int64Array, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use serde_json::json;
use sluice_model::{Batch, ReadContext, Rows};

use crate::kit::{TestRows, doubles, read, texts, write};
use crate::nested::write_nested;

const DATA: &str = "data/chunk-000/file-000.parquet";
const EPISODES: &str = "meta/episodes/chunk-000/file-000.parquet";
const TASKS: &str = "meta/tasks.parquet";

fn rows() -> TestRows {
    TestRows::on_grid(3, vec![("x", doubles([1.0, 2.0, 3.0])), ("note", texts(&["n"; 3]))])
}

#[test]
fn files_that_nest_too_deep_for_the_stack_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (name, appends) in [(DATA, false), (TASKS, false), (DATA, true), (EPISODES, true)] {
        for groups in [300, 5_000] {
            let path = folder.path().join(format!("{groups}-{appends}-{}", name.len()));
            write(&path, &[rows()], json!({})).unwrap();
            write_nested(&path.join(name), &[], groups, ("optional group a { ", "} "));
            let error = match appends {
                true => write(&path, &[rows()], json!({ "append": true })).unwrap_err(),
                false => read(json!(path), 1, &ReadContext::standalone("d")).unwrap_err(),
            };
            let error = error.to_string();
            for part in ["nest deeper than 80 levels", "flatten them", name] {
                assert!(error.contains(part), "{error}");
            }
        }
    }
}

/// Replaces the data file of a dataset by one of these frames with a text each, at 10 per second.
fn replace_data(path: &Path, notes: &StringArray, arrow_schema: Option<&str>) {
    let times = (0..notes.len()).map(|n| n as f32 / 10.0).collect();
    replace_frames(path, notes, times, arrow_schema);
}

fn replace_frames(path: &Path, notes: &StringArray, times: Vec<f32>, arrow_schema: Option<&str>) {
    let count = notes.len() as i64;
    let ints = |of: fn(i64) -> i64| Arc::new(Int64Array::from_iter_values((0..count).map(of)));
    let columns: [(&str, ArrayRef); 7] = [
        ("x", Arc::new(Float32Array::from(vec![1.0; notes.len()]))),
        ("note", Arc::new(notes.clone())),
        ("timestamp", Arc::new(Float32Array::from(times))),
        ("frame_index", ints(|n| n)),
        ("episode_index", ints(|_| 0)),
        ("index", ints(|n| n)),
        ("task_index", ints(|_| 0)),
    ];
    let rows = RecordBatch::try_from_iter(columns).unwrap();
    let key = |text: &str| KeyValue::new("ARROW:schema".to_owned(), text.to_owned());
    let properties = WriterProperties::builder()
        .set_key_value_metadata(arrow_schema.map(|text| vec![key(text)]))
        .set_dictionary_page_size_limit(64 << 20)
        .build();
    let options = ArrowWriterOptions::new()
        .with_properties(properties)
        .with_skip_arrow_metadata(arrow_schema.is_some());
    let file = fs::File::create(path.join(DATA)).unwrap();
    let mut writer = ArrowWriter::try_new_with_options(file, rows.schema(), options).unwrap();
    writer.write(&rows).unwrap();
    writer.close().unwrap();
    let info = path.join("meta/info.json");
    let text = fs::read_to_string(&info).unwrap();
    let text = text.replace("\"total_frames\": 3", &format!("\"total_frames\": {count}"));
    fs::write(info, text).unwrap();
}

#[test]
fn a_text_that_many_frames_share_is_expanded_in_pieces() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &[rows()], json!({})).unwrap();
    let text = "x".repeat(1 << 20);
    replace_data(folder.path(), &StringArray::from(vec![&*text; 100]), None);
    assert!(fs::metadata(folder.path().join(DATA)).unwrap().len() < 2 << 20);
    let context = ReadContext::standalone("d");
    let batches = read(json!(folder.path()), u64::MAX, &context).unwrap();
    assert!(context.damage.take().is_empty());
    assert_eq!(batches.iter().map(Batch::len).sum::<usize>(), 100);
    let most = batches.iter().flat_map(Batch::rows).map(Rows::memory).max().unwrap();
    assert!(most <= 33 << 20, "{most} bytes at once");
}

#[test]
fn stated_times_that_are_not_those_of_the_frame_rate_are_noted() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &[rows()], json!({})).unwrap();
    // Less than LeRobot's tolerance, less than a frame, a frame and more.
    let times = vec![0.000_05, 0.14, 0.3, 0.6];
    replace_frames(folder.path(), &StringArray::from(vec!["n"; 4]), times, None);
    let context = ReadContext::standalone("d");
    let batches = read(json!(folder.path()), u64::MAX, &context).unwrap();
    let times: Vec<i64> = batches.iter().flat_map(|batch| batch.timestamps().to_vec()).collect();
    assert_eq!(times, [0, 100_000_000, 200_000_000, 300_000_000]);
    let notes = context.losses.take_notes();
    let [(little, 1), (much, 2)] = &notes[..] else { panic!("{notes:?}") };
    assert!(little.contains("`timestamp` is not `frame_index` / fps, by less"), "{little}");
    assert!(much.contains("by a frame or more; rows have the times of the frame rate, 10"));
}

#[test]
fn an_arrow_schema_that_cannot_be_read_is_noted_once_and_frames_are_read_without_it() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &[rows()], json!({})).unwrap();
    replace_data(folder.path(), &StringArray::from(vec!["a", "b"]), Some("no schema"));
    let context = ReadContext::standalone("d");
    let batches = read(json!(folder.path()), 1, &context).unwrap();
    assert_eq!(batches.iter().map(Batch::len).sum::<usize>(), 2);
    let notes = context.losses.take_notes();
    let [(note, 0)] = &notes[..] else { panic!("{notes:?}") };
    assert!(note.contains("file-000.parquet: the footer's record `ARROW:schema`"), "{note}");
}
