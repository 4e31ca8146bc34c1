//! Adding to a dataset: its data files stay, and nothing is half-appended.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use jpeg_encoder::ColorType;
use serde_json::{Value, json};
use sluice_io::output::faults::{FaultInjector, StepFault};
use sluice_io::tasks::TaskPool;
use sluice_model::{
    Batch, BlockPool, DynSink, Error, OpenSink, Outputs, Overwrite, PrepareContext, ReadContext,
    Registry, SinkContext,
};

use crate::kit::{
    TestRows, context, doubles, files, info, int_column, ints, jpeg, read, read_json, snapshot,
    table, texts, vectors, write, write_with,
};

/// Two episodes with an image, a vector and a task.
fn rows(shade: u8, task: &str) -> TestRows {
    let images = (0..8).map(|n| jpeg(16, 8, shade + 10 * n, ColorType::Rgb)).collect();
    TestRows::on_grid(
        8,
        vec![
            ("image", files(images)),
            ("state", vectors(8, 2)),
            ("episode", ints([0, 0, 0, 0, 1, 1, 1, 1])),
            ("task", texts(&[task; 8])),
        ],
    )
}

fn append() -> Value {
    json!({ "append": true })
}

#[test]
fn appended_episodes_are_those_of_one_run() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, parts) = (folder.path().join("whole"), folder.path().join("parts"));
    write(&whole, &[rows(0, "a"), rows(100, "b")], json!({})).unwrap();
    // The first run finds no dataset, and makes one.
    write(&parts, &[rows(0, "a")], append()).unwrap();
    let before = snapshot(&parts.join("data"));
    write(&parts, &[rows(100, "b")], append()).unwrap();
    let after = snapshot(&parts.join("data"));
    assert!(before.iter().all(|(path, bytes)| after[path] == *bytes));
    assert_eq!((before.len(), after.len()), (1, 2));
    assert_eq!(info(&parts), info(&whole));
    let stats = |path: &Path| read_json(path.join("meta/stats.json"));
    let (one, two) = (stats(&whole), stats(&parts));
    for (feature, entry) in one.as_object().unwrap() {
        assert_eq!(entry["count"], two[feature]["count"], "{feature}");
        assert_eq!(entry["max"], two[feature]["max"], "{feature}");
    }
    let (added, _) = table(&parts.join("data/chunk-000/file-001.parquet"));
    assert_eq!(int_column(&added, "index"), (8..16).collect::<Vec<_>>());
    assert_eq!(int_column(&added, "episode_index"), [2, 2, 2, 2, 3, 3, 3, 3]);
    assert_eq!(int_column(&added, "task_index"), [1; 8]);
    let (episodes, _) = table(&parts.join("meta/episodes/chunk-000/file-001.parquet"));
    assert_eq!(int_column(&episodes, "data/file_index"), [1, 1]);
    assert_eq!(int_column(&episodes, "meta/episodes/file_index"), [1, 1]);
    let listed = read_json(parts.join("_manifest.json"))["files"].as_array().unwrap().len();
    // Two of data, two of episodes, and three that describe the dataset.
    assert_eq!(listed, 7);
}

#[test]
fn a_dataset_of_any_rate_is_appended_to() {
    let folder = tempfile::tempdir().unwrap();
    // Those of 39 and 49 ms are read with another last bit.
    for period in [39, 49, 70] {
        let path = folder.path().join(period.to_string());
        let fps = 1000.0 / f64::from(period);
        let mut rows = TestRows::on_grid(2, vec![("x", doubles([1.0, 2.0]))]);
        rows.times = vec![0, i64::from(period) * 1_000_000];
        write(&path, std::slice::from_ref(&rows), json!({})).unwrap();
        write(&path, &[rows], json!({ "append": true, "fps": fps })).unwrap();
    }
}

#[test]
fn splits_and_what_else_a_description_says_stay() {
    let folder = tempfile::tempdir().unwrap();
    let appended = |splits: Value| {
        let path = folder.path().join(splits.to_string());
        write(&path, &[rows(0, "a")], json!({})).unwrap();
        let mut before = info(&path);
        before["splits"] = splits;
        before["note"] = json!({ "by": "me" });
        before["video_files_size_in_mb"] = json!(500);
        before["features"]["state"]["unit"] = json!("m");
        fs::write(path.join("meta/info.json"), before.to_string()).unwrap();
        let outcome = write(&path, &[rows(50, "b")], append()).unwrap();
        let mut after = info(&path);
        let splits = after["splits"].take();
        for key in ["total_episodes", "total_frames", "total_tasks", "splits"] {
            assert_ne!(before[key].take(), after[key].take(), "{key}");
        }
        assert_eq!(before, after);
        (splits, outcome.noted("new episodes that are not in the split `train`"))
    };
    assert_eq!(appended(json!({ "train": "0:2" })), (json!({ "train": "0:4" }), None));
    let last = json!({ "val": "0:1", "train": "1:2" });
    assert_eq!(appended(last), (json!({ "val": "0:1", "train": "1:4" }), None));
    let first = json!({ "train": "0:1", "val": "1:2" });
    assert_eq!(appended(first.clone()), (first, Some(2)));
}

/// A change that no append may survive, and what the refusal says.
#[track_caller]
fn refused(change: impl Fn(&Path), more: Value, says: &str) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("d");
    write(&path, &[rows(0, "a")], json!({ "robot_type": "car" })).unwrap();
    change(&path);
    let before = snapshot(&path);
    let mut options = append();
    options.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let error = write(&path, &[rows(50, "b")], options).unwrap_err().to_string();
    assert!(error.contains(says), "{error}");
    assert!(snapshot(&path) == before, "something is half-appended: {error}");
}

fn edit(path: &Path, name: &str, from: &str, to: &str) {
    let text = fs::read_to_string(path.join(name)).unwrap();
    assert!(text.contains(from), "{text}");
    fs::write(path.join(name), text.replace(from, to)).unwrap();
}

#[test]
fn datasets_that_would_be_misread_are_refused() {
    let info = "meta/info.json";
    refused(|path| edit(path, info, "v3.0", "v2.1"), json!({}), "v2.1");
    refused(|_| (), json!({ "fps": 20 }), "10 frames per second");
    refused(|_| (), json!({ "robot_type": "arm" }), "`car`");
    refused(|path| edit(path, info, "\"total_frames\": 8", "\"total_frames\": 9"), json!({}), "9");
    refused(
        |path| edit(path, info, "\"total_tasks\": 1", "\"total_tasks\": 2"),
        json!({}),
        "tasks",
    );
    refused(
        |path| {
            edit(
                path,
                info,
                "\"float32\",\n            \"shape\": [\n                2",
                "\"int8\",\n            \"shape\": [\n                2",
            )
        },
        json!({}),
        "int8",
    );
    refused(|path| fs::remove_file(path.join("meta/stats.json")).unwrap(), json!({}), "statistics");
    refused(|path| fs::write(path.join(info), "{").unwrap(), json!({}), "info.json");
    let data = "data/chunk-000/file-000.parquet";
    refused(|path| fs::remove_file(path.join(data)).unwrap(), json!({}), "found 0");
    refused(|path| fs::write(path.join(data), "PAR1").unwrap(), json!({}), "data file");
    let tasks = "meta/tasks.parquet";
    refused(|path| fs::write(path.join(tasks), "").unwrap(), json!({}), "tasks");
    let features = json!({ "features": { "state": "state" } });
    refused(|_| (), features, "features");
}

#[test]
fn an_append_that_fails_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("d");
    write(&path, &[rows(0, "a")], json!({})).unwrap();
    let before = snapshot(&path);
    let mut failed = 0;
    for step in 0.. {
        let faults = Arc::new(FaultInjector::at(step, StepFault::Broken));
        let outputs = Outputs::new(Overwrite::Refuse, true, &[]).with_faults(Arc::clone(&faults));
        let context = SinkContext { outputs: Arc::new(outputs), ..context() };
        let ran = write_with(&context, &path, &[rows(90, "b")], append());
        drop(context);
        if faults.steps() <= step {
            assert!(ran.is_ok());
            break;
        }
        if ran.is_ok() {
            panic!("step {step} failed, and the run did not");
        }
        assert!(snapshot(&path) == before, "step {step} left something behind");
        failed += 1;
    }
    assert!(failed > 10, "{failed} steps");
    assert_eq!(info(&path)["total_episodes"], 4);
}

#[test]
fn an_append_without_frames_changes_no_file_of_the_dataset() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("d");
    write(&path, &[rows(0, "a")], json!({})).unwrap();
    let before = snapshot(&path.join("meta"));
    write(&path, &[], append()).unwrap();
    assert!(snapshot(&path.join("meta")) == before);
}

#[test]
fn appending_and_overwriting_contradict_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("d");
    let x = || TestRows::on_grid(2, vec![("x", doubles([1.0, 2.0]))]);
    write(&path, &[x()], json!({})).unwrap();
    for (overwrite, says) in [(Overwrite::Replace, "--overwrite"), (Overwrite::Redo, "--resume")] {
        let outputs = Arc::new(Outputs::new(overwrite, false, &[]));
        let context = SinkContext { outputs, ..context() };
        let error = write_with(&context, &path, &[x()], append()).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    let outputs = Arc::new(Outputs::new(Overwrite::Refuse, false, &[path.join("meta/info.json")]));
    let context = SinkContext { outputs, ..context() };
    let error = write_with(&context, &path, &[x()], append()).unwrap_err().to_string();
    assert!(error.contains("also an input"), "{error}");
}

/// A dataset of two episodes, and the files that a run left which was killed while it appended two
/// others, before it renamed its last files.
fn killed(path: &Path, last: &[&str]) {
    write(path, &[rows(0, "a")], json!({ "chunks_size": 2 })).unwrap();
    let before = snapshot(path);
    // A run that adds several files.
    for shade in [50, 60] {
        write(path, &[rows(shade, "b")], append()).unwrap();
    }
    for name in last {
        fs::write(path.join(name), &before[&path.join(name)]).unwrap();
    }
}

const DESCRIBING: [&str; 3] = ["meta/info.json", "meta/stats.json", "meta/tasks.parquet"];

#[test]
fn what_a_killed_append_left_is_damage_and_no_frame() {
    let folder = tempfile::tempdir().unwrap();
    killed(folder.path(), &DESCRIBING);
    let context = ReadContext::standalone("d");
    let batches = read(json!(folder.path()), 1, &context).unwrap();
    let indexes = batches.iter().flat_map(|batch| batch.sequences().to_vec());
    assert_eq!(indexes.collect::<Vec<_>>(), (0..8).collect::<Vec<i64>>());
    let damage = context.damage.take();
    assert_eq!(damage.len(), 2);
    for (found, name) in damage.iter().zip(["chunk-000/file-001", "chunk-001/file-000"]) {
        let len = fs::metadata(&*found.input).unwrap().len();
        assert_eq!((found.offset, found.length), (0, len));
        assert!(found.input.contains(name), "{}", found.input);
        assert!(found.reason.contains("meta/info.json does not count its frames"));
        assert!(found.reason.contains("append them again"));
    }
}

#[test]
fn the_next_append_takes_the_place_of_what_a_killed_one_left() {
    let folder = tempfile::tempdir().unwrap();
    let (path, whole) = (folder.path().join("d"), folder.path().join("whole"));
    // With and without the new tasks, which are renamed before the description.
    for last in [&DESCRIBING[..], &DESCRIBING[..2]] {
        if path.exists() {
            fs::remove_dir_all(&path).unwrap();
            fs::remove_dir_all(&whole).unwrap();
        }
        killed(&path, last);
        assert_eq!(snapshot(&path.join("data")).len(), 3);
        let outcome = write(&path, &[rows(90, "c")], append()).unwrap();
        // Two data files, and two tables of episodes.
        assert_eq!(outcome.noted("files replaced or removed"), Some(4));
        write(&whole, &[rows(0, "a")], json!({ "chunks_size": 2 })).unwrap();
        write(&whole, &[rows(90, "c")], append()).unwrap();
        for part in ["data", "meta"] {
            let names = |root: &Path| {
                let files = snapshot(&root.join(part)).into_iter();
                let named = |(path, bytes): (PathBuf, Vec<u8>)| {
                    (path.strip_prefix(root).unwrap().to_owned(), bytes)
                };
                files.map(named).collect::<Vec<_>>()
            };
            assert!(names(&path) == names(&whole), "{part}");
        }
        let context = ReadContext::standalone("d");
        let batches = read(json!(path), 1, &context).unwrap();
        assert_eq!(batches.iter().map(Batch::len).sum::<usize>(), 16);
        assert!(context.damage.take().is_empty());
    }
}

#[test]
fn a_dataset_without_frames_is_appended_to_after_an_append_that_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &[], json!({ "fps": 10 })).unwrap();
    let empty = fs::read(folder.path().join("meta/info.json")).unwrap();
    write(folder.path(), &[rows(50, "b")], append()).unwrap();
    fs::write(folder.path().join("meta/info.json"), empty).unwrap();
    write(folder.path(), &[rows(90, "c")], append()).unwrap();
    assert_eq!(snapshot(&folder.path().join("data")).len(), 1);
    let batches = read(json!(folder.path()), 1, &ReadContext::standalone("d")).unwrap();
    assert_eq!(batches.iter().map(Batch::len).sum::<usize>(), 8);
    let task = batches[0].rows()[0].columns.column_by_name("task").unwrap();
    assert_eq!(task.as_string::<i32>().value(0), "c");
}

#[test]
fn statistics_of_frames_that_are_not_counted_are_not_added_to() {
    let folder = tempfile::tempdir().unwrap();
    killed(folder.path(), &DESCRIBING[..1]);
    let before = snapshot(folder.path());
    let error = write(folder.path(), &[rows(90, "c")], append()).unwrap_err().to_string();
    assert!(error.contains("expected statistics of 8 frames, found those of 24"), "{error}");
    assert!(error.contains("convert the dataset") && error.contains("stats.json"), "{error}");
    assert!(snapshot(folder.path()) == before);
}

/// An append that is open.
struct OpenAppend {
    context: SinkContext,
    sink: DynSink,
    output: OpenSink,
}

impl OpenAppend {
    fn new(path: &Path) -> Result<Self, Error> {
        let context = context();
        let options = json!({ "path": path, "append": true });
        let sink = Registry::linked().sink("lerobot", options).unwrap();
        let output = sink.open(&context, &TaskPool::thread_per_task(2))?;
        Ok(Self { context, sink, output })
    }

    /// Writes rows and ends, but publishes nothing.
    fn finish(mut self, rows: &TestRows) -> Result<Arc<Outputs>, Error> {
        let buffers = BlockPool::new(64, 2);
        let mut preparing = PrepareContext::new(&self.context.channels, &buffers);
        let block = self.sink.prepare(rows.batch(&self.context), &mut preparing)?;
        self.output.push(block)?;
        self.output.finish()?;
        Ok(self.context.outputs)
    }
}

#[test]
fn files_that_another_run_counts_by_now_are_not_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("d");
    killed(&path, &DESCRIBING);
    let open = OpenAppend::new(&path).unwrap();
    // Another program counts them.
    edit(&path, "meta/info.json", "\"total_frames\": 8", "\"total_frames\": 24");
    let before = snapshot(&path);
    let error = open.finish(&rows(90, "c")).unwrap_err().to_string();
    assert!(
        error.contains("another program has changed the dataset since this run began"),
        "{error}"
    );
    assert!(snapshot(&path) == before);
}

#[test]
fn a_dataset_is_appended_to_by_one_run_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("d");
    // Both would take the files of a third one for leftovers, and replace them.
    killed(&path, &DESCRIBING);
    let refused = |when: &str| {
        let error = OpenAppend::new(&path).map(drop).unwrap_err().to_string();
        assert!(error.contains("another run is appending to this dataset"), "{when}: {error}");
    };
    let first = OpenAppend::new(&path).unwrap();
    refused("open");
    let outputs = first.finish(&rows(90, "c")).unwrap();
    refused("complete");
    outputs.publish(|_, _| Ok("{}".to_owned())).unwrap();
    let published = snapshot(&path.join("data"));
    write(&path, &[rows(120, "d")], append()).unwrap();
    let after = snapshot(&path.join("data"));
    assert!(published.iter().all(|(path, bytes)| after[path] == *bytes));
    assert_eq!((info(&path)["total_frames"].as_u64(), after.len()), (Some(24), 3));
    let names = fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(names.filter(|name| name.to_string_lossy().starts_with('.')).count(), 0);
}

#[test]
fn a_run_that_fails_or_is_killed_while_it_appends_is_in_nobodys_way() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &[rows(0, "a")], json!({})).unwrap();
    drop(OpenAppend::new(folder.path()).unwrap());
    // No process has this number.
    let left = folder.path().join(".many.4999999-1-0.sluice-tmp");
    fs::create_dir(&left).unwrap();
    write(folder.path(), &[rows(50, "b")], append()).unwrap();
    assert!(!left.exists());
    assert_eq!(info(folder.path())["total_frames"], 16);
}

#[test]
fn files_of_others_that_are_not_counted_are_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    killed(folder.path(), &DESCRIBING);
    let left = folder.path().join("data/chunk-001/file-000.parquet");
    let (rows_left, _) = table(&left);
    let file = fs::File::create(&left).unwrap();
    let mut writer = parquet::arrow::ArrowWriter::try_new(file, rows_left.schema(), None).unwrap();
    writer.write(&rows_left).unwrap();
    writer.close().unwrap();
    let before = snapshot(folder.path());
    let error = write(folder.path(), &[rows(90, "c")], append()).unwrap_err().to_string();
    assert!(error.contains("chunk-001/file-000.parquet"), "{error}");
    assert!(error.contains("another program wrote it"), "{error}");
    assert!(snapshot(folder.path()) == before);
}

#[test]
fn a_copy_that_sorts_first_does_not_make_its_original_a_leftover() {
    for copy in
        ["chunk-000/file-000-old.parquet", "a/file-000.parquet", "chunk-000/file-00.parquet"]
    {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &[rows(0, "a")], json!({})).unwrap();
        let copy = folder.path().join("data").join(copy);
        fs::create_dir_all(copy.parent().unwrap()).unwrap();
        fs::copy(folder.path().join("data/chunk-000/file-000.parquet"), &copy).unwrap();
        let before = snapshot(folder.path());
        let error = write(folder.path(), &[rows(90, "c")], append()).unwrap_err().to_string();
        assert!(error.contains("its name is not behind"), "{error}");
        assert!(snapshot(folder.path()) == before);
    }
}

#[test]
fn tasks_that_are_not_counted_stay_unless_an_append_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &[rows(0, "a")], json!({})).unwrap();
    write(folder.path(), &[rows(50, "b")], append()).unwrap();
    edit(folder.path(), "meta/info.json", "\"total_tasks\": 2", "\"total_tasks\": 1");
    let before = snapshot(folder.path());
    let error = write(folder.path(), &[rows(90, "c")], append()).unwrap_err().to_string();
    assert!(error.contains("expected 1 tasks, found 2"), "{error}");
    assert!(snapshot(folder.path()) == before);
}
