//! How rows become episodes, and where these are: indexes, files, row groups, tasks.

use arrow_array::ArrayRef;
use arrow_array::cast::AsArray;
use serde_json::{Value, json};
use sluice_model::SinkContext;

use crate::kit::{
    BEGIN, STEP, TestRows, context, data, doubles, float_column, info, int_column, ints, read_json,
    table, texts, vectors, write, write_with,
};

/// One column of numbers.
fn numbers(count: usize) -> Vec<(&'static str, ArrayRef)> {
    vec![("x", doubles((0..count).map(|n| n as f64)))]
}

fn episodes(folder: &std::path::Path) -> arrow_array::RecordBatch {
    table(&folder.join("meta/episodes/chunk-000/file-000.parquet")).0
}

#[test]
fn episodes_begin_where_the_field_changes() {
    let folder = tempfile::tempdir().unwrap();
    let mut columns = numbers(6);
    columns.push(("episode", ints([0, 0, 0, 1, 1, 1])));
    columns.push(("task", texts(&["pick", "pick", "place", "pick", "pick", "pick"])));
    let rows = TestRows::on_grid(6, columns);
    write(folder.path(), &[rows], json!({ "robot_type": "arm" })).unwrap();
    let (rows, groups) = data(folder.path());
    assert_eq!(groups, 2);
    assert_eq!(int_column(&rows, "episode_index"), [0, 0, 0, 1, 1, 1]);
    assert_eq!(int_column(&rows, "frame_index"), [0, 1, 2, 0, 1, 2]);
    assert_eq!(int_column(&rows, "index"), [0, 1, 2, 3, 4, 5]);
    assert_eq!(int_column(&rows, "task_index"), [0, 0, 1, 0, 0, 0]);
    assert_eq!(float_column(&rows, "timestamp"), [0.0, 0.1, 0.2, 0.0, 0.1, 0.2]);
    let rows = episodes(folder.path());
    assert_eq!(int_column(&rows, "length"), [3, 3]);
    assert_eq!(int_column(&rows, "dataset_from_index"), [0, 3]);
    assert_eq!(int_column(&rows, "dataset_to_index"), [3, 6]);
    let tasks = rows.column_by_name("tasks").unwrap().as_list::<i32>().value(0);
    let tasks: Vec<_> = tasks.as_string::<i32>().iter().flatten().map(str::to_owned).collect();
    assert_eq!(tasks, ["pick", "place"]);
    let (rows, _) = table(&folder.path().join("meta/tasks.parquet"));
    assert_eq!(int_column(&rows, "task_index"), [0, 1]);
    let info = info(folder.path());
    assert_eq!(info["codebase_version"], "v3.0");
    assert_eq!((&info["fps"], &info["robot_type"]), (&json!(10), &json!("arm")));
    assert_eq!((&info["total_frames"], &info["total_tasks"]), (&json!(6), &json!(2)));
    assert_eq!(info["splits"], json!({ "train": "0:2" }));
}

/// Rows with a hole of three steps after the fourth.
fn with_hole() -> TestRows {
    let mut rows = TestRows::on_grid(8, numbers(8));
    rows.times[4..].iter_mut().for_each(|time| *time += 3 * STEP);
    rows
}

#[test]
fn a_hole_splits_is_filled_or_ends_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let run = |name: &str, options: Value| write(&path(name), &[with_hole()], options);
    let outcome = run("split", json!({})).unwrap();
    assert_eq!((outcome.written, outcome.noted("holes in the grid")), (8, Some(1)));
    assert_eq!(info(&path("split"))["total_episodes"], 2);
    let outcome = run("hold", json!({ "holes": "hold" })).unwrap();
    assert_eq!((outcome.written, outcome.noted("repeated")), (8, Some(3)));
    let (rows, _) = data(&path("hold"));
    assert_eq!(float_column(&rows, "x"), [0.0, 1.0, 2.0, 3.0, 3.0, 3.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
    assert_eq!(info(&path("hold"))["total_episodes"], 1);
    let outcome = run("short", json!({ "holes": "hold", "max_hold": "200ms" })).unwrap();
    assert_eq!((outcome.noted("repeated"), outcome.noted("holes in the grid")), (None, Some(1)));
    let error = run("fail", json!({ "holes": "fail" })).unwrap_err().to_string();
    assert!(error.contains("3 rows are missing") && error.contains("14:00:00.7"), "{error}");
    assert!(!path("fail").join("meta").exists());
}

#[test]
fn holes_are_filled_in_any_memory() {
    let folder = tempfile::tempdir().unwrap();
    let mut rows = with_hole();
    let tasks = ["a", "a", "a", "b", "b", "b", "a", "a"];
    rows.columns.push(("task", texts(&tasks)));
    rows.columns.push(("state", vectors(8, 300)));
    let whole = folder.path().join("whole");
    write(&whole, std::slice::from_ref(&rows), json!({ "holes": "hold" })).unwrap();
    let (expected, _) = data(&whole);
    assert_eq!(int_column(&expected, "task_index"), [0, 0, 0, 1, 1, 1, 1, 1, 1, 0, 0]);
    // From a row group per frame to one that ends within the hole.
    for unit in [1 << 10, 2000, 3000, 5000, 7000] {
        let context = SinkContext { memory: 8 * unit, ..context() };
        let path = folder.path().join(unit.to_string());
        let options = json!({ "holes": "hold" });
        let outcome = write_with(&context, &path, std::slice::from_ref(&rows), options).unwrap();
        assert_eq!((outcome.written, outcome.noted("repeated")), (8, Some(3)));
        assert_eq!(info(&path)["total_frames"], 11);
        let (found, groups) = data(&path);
        assert!(found == expected && groups > 1, "{unit} bytes");
        assert_eq!(int_column(&episodes(&path), "length"), [11]);
    }
}

#[test]
fn a_long_hole_is_filled_in_several_units() {
    let folder = tempfile::tempdir().unwrap();
    let mut rows = TestRows::on_grid(3, vec![("state", vectors(3, 30))]);
    rows.times[2] += 2_000 * STEP;
    let context = SinkContext { memory: 8 << 14, ..context() };
    let options = json!({ "holes": "hold", "max_hold": "1h" });
    let outcome = write_with(&context, folder.path(), &[rows], options).unwrap();
    assert_eq!((outcome.written, outcome.noted("repeated")), (3, Some(2_000)));
    let (rows, groups) = data(folder.path());
    assert_eq!(int_column(&rows, "index"), (0..2_003).collect::<Vec<_>>());
    // A frame has 160 bytes, a unit 16 KiB.
    assert_eq!(groups, 20);
}

#[test]
fn one_absurd_time_makes_no_frames() {
    let folder = tempfile::tempdir().unwrap();
    let mut rows = TestRows::on_grid(5, numbers(5));
    rows.times[4] = i64::MAX;
    let options = json!({ "holes": "hold", "max_hold": "1h" });
    let outcome = write(folder.path(), &[rows], options).unwrap();
    assert_eq!((outcome.written, outcome.left_out), (4, 1));
    assert_eq!(outcome.noted("shorter than"), Some(1));
    assert_eq!(info(folder.path())["total_frames"], 4);
}

#[test]
fn a_clock_that_steps_back_and_another_log_begin_an_episode() {
    let folder = tempfile::tempdir().unwrap();
    let again = TestRows { source: "second", ..TestRows::on_grid(3, numbers(3)) };
    let rows = [TestRows::on_grid(3, numbers(3)), TestRows::on_grid(2, numbers(2)), again];
    let outcome = write(folder.path(), &rows, json!({})).unwrap();
    assert_eq!(outcome.noted("step back"), Some(1));
    assert_eq!(int_column(&episodes(folder.path()), "length"), [3, 2, 3]);
}

#[test]
fn rows_of_several_channels_or_alternating_sources_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let second = TestRows { source: "second", ..TestRows::on_grid(2, numbers(2)) };
    let mut late = TestRows::on_grid(2, numbers(2));
    late.times.iter_mut().for_each(|time| *time += 10 * STEP);
    let rows = [TestRows::on_grid(2, numbers(2)), second, late];
    let error = write(folder.path(), &rows, json!({})).unwrap_err().to_string();
    assert!(error.contains("alternate"), "{error}");
}

#[test]
fn rows_that_are_on_no_grid_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut rows = TestRows::on_grid(5, numbers(5));
    rows.times[3] += STEP * 2 / 5;
    let error =
        write(folder.path(), std::slice::from_ref(&rows), json!({})).unwrap_err().to_string();
    assert!(error.contains("`align`") && error.contains("40.000 ms"), "{error}");
    // Twice the rate of the rows.
    let slow = write(folder.path(), &[TestRows::on_grid(4, numbers(4))], json!({ "fps": 4 }));
    assert!(slow.unwrap_err().to_string().contains("grid of 4"));
}

#[test]
fn the_rate_follows_from_the_rows() {
    let folder = tempfile::tempdir().unwrap();
    let mut rows = TestRows::on_grid(40, numbers(40));
    rows.times = (0..40).map(|n| BEGIN + (n as f64 * 1e9 / 29.97).round() as i64).collect();
    write(folder.path(), &[rows], json!({})).unwrap();
    assert_eq!(info(folder.path())["fps"], json!(29.97));
    let (rows, _) = data(folder.path());
    let expected: Vec<f32> = (0..40).map(|n| (f64::from(n) / 29.97) as f32).collect();
    assert_eq!(float_column(&rows, "timestamp"), expected);
}

#[test]
fn any_regular_grid_gives_a_rate() {
    let folder = tempfile::tempdir().unwrap();
    let hertz = |rate: f64| 1e9 / rate;
    for (name, period, rate) in [
        ("70ms", 70e6, 1e3 / 70.0),
        ("300ms", 300e6, 1e3 / 300.0),
        ("7ms", 7e6, 1e3 / 7.0),
        ("14.2857", hertz(14.2857), 14.2857),
        ("3.3333", hertz(3.3333), 3.3333),
        ("100.01", hertz(100.01), 100.01),
        ("100.009", hertz(100.009), 100.009),
    ] {
        let path = folder.path().join(name);
        let mut rows = TestRows::on_grid(4000, numbers(4000));
        rows.times = (0..4000).map(|n| BEGIN + (f64::from(n) * period).round() as i64).collect();
        let outcome = write(&path, &[rows], json!({})).unwrap();
        assert_eq!((outcome.written, outcome.noted("step back")), (4000, None), "{name}");
        let found = info(&path)["fps"].as_f64().unwrap();
        assert!((found - rate).abs() < 1e-9 * rate, "{name}: {found}");
    }
}

#[test]
fn two_rows_that_give_no_rate_end_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let error = |name: &str, second: i64| {
        let mut rows = TestRows::on_grid(3, numbers(3));
        rows.times[1] = BEGIN + second;
        let path = folder.path().join(name);
        write(&path, &[rows], json!({})).unwrap_err().to_string()
    };
    for error in [error("same", 0), error("far", 100_000 * STEP)] {
        assert!(error.contains("14:00:00") && error.contains("set `fps`"), "{error}");
    }
    assert!(error("far too", 100_000 * STEP).contains("16:46:40"));
}

#[test]
fn a_first_row_beyond_the_memory_waits_for_the_rate() {
    let folder = tempfile::tempdir().unwrap();
    let rows = TestRows::on_grid(3, vec![("state", vectors(3, 4096))]);
    let small = SinkContext { memory: 8 * 4096, ..context() };
    let outcome = write_with(&small, folder.path(), &[rows], json!({ "min_frames": 1 })).unwrap();
    assert_eq!(outcome.written, 3);
    assert_eq!(info(folder.path())["fps"], 10);
}

#[test]
fn an_error_of_a_rate_from_two_rows_names_them() {
    let folder = tempfile::tempdir().unwrap();
    let mut rows = TestRows::on_grid(5, numbers(5));
    rows.times[3] += STEP * 2 / 5;
    let error = |options| {
        write(folder.path(), std::slice::from_ref(&rows), options).unwrap_err().to_string()
    };
    let inferred = error(json!({}));
    assert!(inferred.contains("the first two rows, at 2007-11-03T14:00:00"), "{inferred}");
    assert!(!error(json!({ "fps": 10 })).contains("first two"));
}

#[test]
fn a_rate_at_which_most_rows_stand_behind_holes_ends_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let write = |rows: &TestRows, more| write(folder.path(), std::slice::from_ref(rows), more);
    let rows = TestRows::on_grid(9, numbers(9));
    let error = write(&rows, json!({ "fps": 30 })).unwrap_err().to_string();
    assert!(error.contains("before 8 of 8 rows, at 30 per second: set `fps`"), "{error}");
    let mut uneven = TestRows::on_grid(9, numbers(9));
    uneven.times[0] += 50_000_000;
    let error = write(&uneven, json!({ "min_frames": 1 })).unwrap_err().to_string();
    assert!(error.contains("before 7 of 8 rows, at 20 per second; the rate is"), "{error}");
    assert!(!folder.path().join("meta").exists());
    assert_eq!(write(&rows, json!({ "fps": 30, "holes": "hold" })).unwrap().written, 9);
}

#[test]
fn short_episodes_are_left_out_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let mut columns = numbers(6);
    columns.push(("episode", ints([0, 1, 1, 1, 2, 2])));
    let rows = TestRows::on_grid(6, columns);
    let outcome = write(folder.path(), &[rows], json!({ "min_frames": 3 })).unwrap();
    assert_eq!((outcome.written, outcome.left_out), (3, 3));
    assert_eq!(outcome.noted("shorter than"), Some(2));
    let (rows, _) = data(folder.path());
    assert_eq!(int_column(&rows, "episode_index"), [0, 0, 0]);
    assert_eq!(float_column(&rows, "x"), [1.0, 2.0, 3.0]);
}

#[test]
fn tasks_of_episodes_that_are_left_out_are_not_numbered() {
    let folder = tempfile::tempdir().unwrap();
    let mut columns = numbers(5);
    columns.push(("episode", ints([0, 1, 1, 2, 2])));
    columns.push(("task", texts(&["ghost", "a", "b", "b", ""])));
    let rows = TestRows::on_grid(5, columns);
    write(folder.path(), &[rows], json!({})).unwrap();
    let (rows, _) = data(folder.path());
    assert_eq!(int_column(&rows, "task_index"), [0, 1, 1, 2]);
    assert_eq!(info(folder.path())["total_tasks"], 3);
    let (tasks, _) = table(&folder.path().join("meta/tasks.parquet"));
    let names = tasks.column_by_name("task").unwrap().as_string::<i32>();
    assert_eq!(names.iter().flatten().collect::<Vec<_>>(), ["a", "b", ""]);
}

#[test]
fn frames_without_a_task_are_those_of_the_dataset() {
    let folder = tempfile::tempdir().unwrap();
    let mut columns = numbers(4);
    columns.push(("episode", ints([0, 1, 1, 1])));
    let outcome = write(folder.path(), &[TestRows::on_grid(4, columns)], json!({})).unwrap();
    assert_eq!(outcome.noted("without a task"), Some(3));
}

#[test]
fn a_file_with_several_episodes_is_never_larger_than_its_size() {
    let folder = tempfile::tempdir().unwrap();
    let count = 4000;
    let mut columns = vec![("x", doubles((0..count).map(|n| (n as f64).sin())))];
    let lengths = [300, 300, 2000, 300, 300, 800];
    let numbers = (0..).zip(lengths).flat_map(|(n, length)| std::iter::repeat_n(n, length));
    columns.push(("episode", ints(numbers)));
    let rows = TestRows::on_grid(count, columns);
    let limit = 40_000;
    for memory in [8 << 14, 64 << 20] {
        let path = folder.path().join(memory.to_string());
        let context = SinkContext { memory, ..context() };
        let options = json!({ "data_file_size": limit });
        write_with(&context, &path, std::slice::from_ref(&rows), options).unwrap();
        let files = int_column(&episodes(&path), "data/file_index");
        for file in 0..=*files.last().unwrap() {
            let name = format!("data/chunk-000/file-{file:03}.parquet");
            let bytes = std::fs::metadata(path.join(name)).unwrap().len();
            let is_shared = files.iter().filter(|found| **found == file).count() > 1;
            assert!(!is_shared || bytes <= limit, "{memory}: file {file} of {files:?}: {bytes}");
        }
        assert!(files.last().unwrap() < &5, "{files:?}");
    }
}

#[test]
fn files_are_filled_up_to_their_size() {
    let folder = tempfile::tempdir().unwrap();
    let count = 60;
    let mut columns = vec![("x", doubles((0..count).map(|n| (n as f64).sin())))];
    columns.push(("episode", ints((0..count as i64).map(|n| n / 10))));
    let rows = TestRows::on_grid(count, columns);
    let options = json!({ "data_file_size": 1200, "chunks_size": 2 });
    write(folder.path(), &[rows], options).unwrap();
    let episodes = episodes(folder.path());
    let (chunks, files) =
        (int_column(&episodes, "data/chunk_index"), int_column(&episodes, "data/file_index"));
    let places: Vec<(i64, i64)> = chunks.into_iter().zip(files).collect();
    assert!(places.is_sorted() && places.first() == Some(&(0, 0)));
    assert!(places.iter().any(|(chunk, _)| *chunk > 0), "{places:?}");
    assert!(places.iter().all(|(_, file)| *file < 2), "{places:?}");
    let mut index = 0;
    for (chunk, file) in places.iter().collect::<std::collections::BTreeSet<_>>() {
        let path = format!("data/chunk-{chunk:03}/file-{file:03}.parquet");
        let (rows, groups) = table(&folder.path().join(path));
        // An episode is a row group, and never in two files.
        assert_eq!(groups, places.iter().filter(|place| **place == (*chunk, *file)).count());
        for found in int_column(&rows, "index") {
            assert_eq!(found, index);
            index += 1;
        }
    }
    assert_eq!(index, count as i64);
}

#[test]
fn an_episode_beyond_the_memory_is_written_in_parts() {
    let folder = tempfile::tempdir().unwrap();
    let rows = || [TestRows::on_grid(500, numbers(500))];
    let small = SinkContext { memory: 8 * 4096, ..context() };
    let outcome = write_with(&small, &folder.path().join("parts"), &rows(), json!({})).unwrap();
    assert_eq!((outcome.written, outcome.noted("several row groups")), (500, Some(1)));
    write(&folder.path().join("whole"), &rows(), json!({})).unwrap();
    let (parts, groups) = data(&folder.path().join("parts"));
    let (whole, one) = data(&folder.path().join("whole"));
    assert!(groups > 3 && one == 1, "{groups} row groups");
    assert_eq!(parts, whole);
    let stats = |name: &str| read_json(folder.path().join(name).join("meta/stats.json"));
    let (parts, whole) = (stats("parts"), stats("whole"));
    for name in ["min", "max", "mean", "std", "count"] {
        let number = |stats: &Value| stats["x"][name][0].as_f64().unwrap();
        assert!((number(&parts) - number(&whole)).abs() < 1e-9, "{name}");
    }
}

#[test]
fn batches_do_not_matter() {
    let folder = tempfile::tempdir().unwrap();
    let rows = with_hole();
    let piece = |from: usize, to: usize| {
        let columns =
            rows.columns.iter().map(|(name, array)| (*name, array.slice(from, to - from)));
        TestRows { times: rows.times[from..to].to_vec(), columns: columns.collect(), source: "log" }
    };
    let cuts = [vec![0, 8], vec![0, 1, 2, 3, 4, 5, 6, 7, 8], vec![0, 3, 6, 8]];
    let mut first = None;
    for (n, cut) in cuts.iter().enumerate() {
        let path = folder.path().join(n.to_string());
        let pieces: Vec<TestRows> = cut.windows(2).map(|pair| piece(pair[0], pair[1])).collect();
        write(&path, &pieces, json!({ "holes": "hold" })).unwrap();
        let (rows, _) = data(&path);
        assert_eq!(first.get_or_insert_with(|| rows.clone()), &rows);
    }
}

#[test]
fn without_rows_there_is_a_description_and_a_note() {
    let folder = tempfile::tempdir().unwrap();
    let outcome = write(folder.path(), &[], json!({})).unwrap();
    assert_eq!(outcome.noted("no frames"), Some(0));
    assert_eq!(info(folder.path())["total_frames"], 0);
    assert!(!folder.path().join("data").exists());
}
