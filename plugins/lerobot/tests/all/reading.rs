//! The source: frames come back as rows, and what is no dataset is an error or damage.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::{Arc, Mutex};

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::Float32Type;
use jpeg_encoder::ColorType;
use serde_json::json;
use sluice_io::output::faults::FaultInjector;
use sluice_model::{Batch, Outputs, Overwrite, Query, ReadContext, Registry, SinkContext};

use crate::kit::{
    TestRows, context, data, doubles, files, info, int_column, ints, jpeg, read, read_json, texts,
    vectors, write, write_batches, write_with,
};

fn dataset(folder: &Path, shade: u8) {
    let images = (0..9).map(|n| jpeg(16, 8, shade + n, ColorType::Luma)).collect();
    let rows = TestRows::on_grid(
        9,
        vec![
            ("image", files(images)),
            ("state", vectors(9, 2)),
            ("x", doubles((0..9).map(f64::from))),
            ("note", texts(&["n"; 9])),
            ("episode", ints([0, 0, 0, 1, 1, 1, 2, 2, 2])),
            ("task", texts(&["a", "a", "a", "b", "b", "b", "a", "a", "a"])),
        ],
    );
    write(folder, &[rows], json!({})).unwrap();
}

#[test]
fn frames_come_back_as_rows() {
    let folder = tempfile::tempdir().unwrap();
    dataset(folder.path(), 40);
    for target in [1, u64::MAX] {
        let batches = read(json!(folder.path()), target, &ReadContext::standalone("d")).unwrap();
        assert_eq!(batches.len(), 3);
        let rows: Vec<_> = batches.iter().flat_map(Batch::rows).collect();
        let episodes: Vec<i64> =
            rows.iter().flat_map(|rows| int_column(&rows.columns, "episode")).collect();
        assert_eq!(episodes, [0, 0, 0, 1, 1, 1, 2, 2, 2]);
        let tasks = rows[1].columns.column_by_name("task").unwrap().as_string::<i32>();
        assert_eq!(tasks.value(0), "b");
        let image = rows[2].columns.column_by_name("image").unwrap();
        assert_eq!(image.as_binary::<i32>().value(2), jpeg(16, 8, 48, ColorType::Luma));
        let times: Vec<i64> = batches.iter().flat_map(|b| b.timestamps().to_vec()).collect();
        assert_eq!(times, (0..9).map(|n| n * 100_000_000).collect::<Vec<i64>>());
    }
}

#[test]
fn frames_to_which_links_lead_are_read_once() {
    let folder = tempfile::tempdir().unwrap();
    dataset(folder.path(), 40);
    for (to, link) in [
        ("chunk-000", "data/chunk-001"),
        ("..", "data/up"),
        ("file-000.parquet", "data/chunk-000/file-001.parquet"),
        ("chunk-000", "meta/episodes/chunk-001"),
    ] {
        symlink(to, folder.path().join(link)).unwrap();
    }
    let frames = || {
        let batches = read(json!(folder.path()), 1, &ReadContext::standalone("d")).unwrap();
        batches.iter().map(Batch::len).sum::<usize>()
    };
    assert_eq!(frames(), 9);
    // A link to the folder around another one leads to no file of the dataset.
    let data = folder.path().join("data");
    fs::rename(&data, folder.path().join("x")).unwrap();
    fs::create_dir(&data).unwrap();
    symlink("../x", data.join("a")).unwrap();
    symlink("../x/chunk-000", data.join("chunk-000")).unwrap();
    assert_eq!(frames(), 9);
}

#[test]
fn several_datasets_become_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for (n, name) in ["part-a", "part-b"].iter().enumerate() {
        dataset(&path(name), 30 * n as u8);
    }
    let context = context();
    let reading = ReadContext {
        channels: std::sync::Arc::clone(&context.channels),
        ..ReadContext::standalone("d")
    };
    let batches = read(json!(path("part-*")), 1, &reading).unwrap();
    write_batches(&context, &path("whole"), batches, json!({})).unwrap();
    let (rows, groups) = data(&path("whole"));
    assert_eq!((rows.num_rows(), groups), (18, 6));
    assert_eq!(int_column(&rows, "index"), (0..18).collect::<Vec<_>>());
    assert_eq!(int_column(&rows, "task_index")[9..], [0, 0, 0, 1, 1, 1, 0, 0, 0]);
    let (first, _) = data(&path("part-a"));
    assert_eq!(
        first.column_by_name("image").unwrap(),
        &rows.column_by_name("image").unwrap().slice(0, 9)
    );
    let (mut one, two) = (info(&path("part-a")), info(&path("whole")));
    for (key, to) in [
        ("total_frames", json!(18)),
        ("total_episodes", json!(6)),
        ("splits", json!({ "train": "0:6" })),
    ] {
        one[key] = to;
    }
    assert_eq!(one, two);
    let stats = read_json(path("whole").join("meta/stats.json"));
    assert_eq!(stats["index"]["max"], json!([17.0]));
}

#[test]
fn folders_that_hold_no_whole_dataset_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refusal = |change: &dyn Fn(&Path)| {
        let path = folder.path().join("d");
        if path.exists() {
            fs::remove_dir_all(&path).unwrap();
        }
        dataset(&path, 1);
        change(&path);
        read(json!(path), 1, &ReadContext::standalone("d")).unwrap_err().to_string()
    };
    let edit = |from: &'static str, to: &'static str| {
        move |path: &Path| {
            let text = fs::read_to_string(path.join("meta/info.json")).unwrap();
            assert!(text.contains(from));
            fs::write(path.join("meta/info.json"), text.replace(from, to)).unwrap();
        }
    };
    assert!(refusal(&edit("v3.0", "v2.1")).contains("v2.1"));
    assert!(refusal(&edit("\"total_frames\": 9", "\"total_frames\": 10")).contains("found 9"));
    assert!(refusal(&edit("\"total_frames\": 9", "\"total_frames\": 8")).contains("more frames"));
    assert!(refusal(&edit("\"x\": {", "\"y\": {")).contains("`y`"));
    assert!(
        refusal(&edit("\"image\",\n            \"shape\"", "\"video\",\n            \"shape\""))
            .contains("videos")
    );
    let cut = |path: &Path| {
        let file = path.join("data/chunk-000/file-000.parquet");
        let bytes = fs::read(&file).unwrap();
        fs::write(&file, &bytes[..bytes.len() - 9]).unwrap();
    };
    assert!(refusal(&cut).contains("file-000.parquet"));
    let gone = |path: &Path| fs::remove_file(path.join("meta/tasks.parquet")).unwrap();
    assert!(refusal(&gone).contains("tasks.parquet"));
}

#[test]
fn a_dataset_that_is_being_replaced_never_has_frames_of_two_runs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_owned();
    let write = |observer: Box<dyn Fn(u64) + Send + Sync>, first: f64| {
        let outputs = Outputs::new(Overwrite::Replace, true, &[]);
        let outputs = outputs.with_faults(Arc::new(FaultInjector::observed(observer)));
        let context = SinkContext { outputs: Arc::new(outputs), ..context() };
        let columns = vec![("x", doubles((0..9).map(|n| first + f64::from(n))))];
        let task = ("task", texts(&[if first > 0.0 { "new" } else { "old" }; 9]));
        let columns = columns.into_iter().chain([task]).collect();
        write_with(&context, &path, &[TestRows::on_grid(9, columns)], json!({})).unwrap();
    };
    write(Box::new(|_| ()), 0.0);
    let (watched, found) = (path.clone(), Arc::new(Mutex::new(Vec::new())));
    let seen = Arc::clone(&found);
    let observer = move |_| {
        let Ok(batches) = read(json!(watched), u64::MAX, &ReadContext::standalone("d")) else {
            return;
        };
        let rows = &batches[0].rows()[0].columns;
        let x = rows.column_by_name("x").unwrap().as_primitive::<Float32Type>().value(0);
        let task = rows.column_by_name("task").unwrap().as_string::<i32>().value(0).to_owned();
        seen.lock().unwrap().push((x, task));
    };
    write(Box::new(observer), 100.0);
    let found = found.lock().unwrap();
    assert!(!found.is_empty());
    let is_whole = |(x, task): &(f32, String)| (*x > 0.0) == (task == "new");
    assert!(found.iter().all(is_whole), "{found:?}");
}

#[test]
fn row_groups_that_are_not_what_they_claim_are_damage() {
    let folder = tempfile::tempdir().unwrap();
    dataset(folder.path(), 1);
    let file = folder.path().join("data/chunk-000/file-000.parquet");
    let bytes = fs::read(&file).unwrap();
    let source = Registry::linked().source("lerobot", json!({ "path": folder.path() })).unwrap();
    let splits = source.splits(1, &Query::default()).unwrap();
    assert_eq!(splits.len(), 3);
    let mut damaged = bytes.clone();
    let (start, end) = (splits[1].start as usize, splits[1].end.unwrap() as usize);
    damaged[start..end].fill(0xFF);
    fs::write(&file, damaged).unwrap();
    let context = ReadContext::standalone("d");
    let batches = read(json!(folder.path()), 1, &context).unwrap();
    assert_eq!(batches.iter().map(Batch::len).sum::<usize>(), 6);
    let found = context.damage.take();
    assert_eq!(found.len(), 1);
}
