//! Datasets that are read and written again: what they declare stays if they agree.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use sluice_model::{Error, ReadContext};

use crate::kit::{
    Outcome, TestRows, context, data, doubles, info, read, snapshot, vectors, write, write_batches,
};

/// A dataset of one episode, of a robot with these axes.
fn dataset(folder: &Path, robot: Value, axes: Value) {
    let columns = vec![("observation.state", vectors(3, 2)), ("x", doubles([0.0, 1.0, 2.0]))];
    let state = match axes {
        Value::Null => json!("`observation.state`"),
        axes => json!({ "names": axes }),
    };
    let options = json!({
        "robot_type": robot,
        "floats": "keep",
        "features": { "observation.state": state, "x": "x" },
    });
    write(folder, &[TestRows::on_grid(3, columns)], options).unwrap();
}

/// Reads datasets one after another, and writes them as one.
fn merge(parts: &[&Path], to: &Path, more: Value) -> Result<Outcome, Error> {
    let context = context();
    let reading =
        ReadContext { channels: Arc::clone(&context.channels), ..ReadContext::standalone("log") };
    let batches = read(json!(parts), 1, &reading)?;
    write_batches(&context, to, batches, more)
}

/// The robot type, and the names of the axes of the state.
fn declared(folder: &Path) -> (Value, Value) {
    let mut info = info(folder);
    (info["robot_type"].take(), info["features"]["observation.state"]["names"].take())
}

#[test]
fn robot_type_and_axes_stay_if_all_datasets_agree() {
    let folder = tempfile::tempdir().unwrap();
    let [one, two, whole] = ["one", "two", "whole"].map(|name| folder.path().join(name));
    for part in [&one, &two] {
        dataset(part, json!("arm"), json!(["a", "b"]));
    }
    let outcome = merge(&[&one, &two], &whole, json!({ "floats": "keep" })).unwrap();
    assert_eq!(outcome.noted("robot").or(outcome.noted("axes")), None, "{outcome:?}");
    let (mut part, mut merged) = (info(&one), info(&whole));
    for key in ["total_episodes", "total_frames", "splits"] {
        assert_ne!(part[key].take(), merged[key].take(), "{key}");
    }
    assert_eq!(part, merged);
    // What the options say comes first.
    let state = json!({ "observation.state": { "names": ["c", "d"] } });
    merge(&[&one], &folder.path().join("own"), json!({ "robot_type": "leg", "features": state }))
        .unwrap();
    let own = declared(&folder.path().join("own"));
    assert_eq!(own, (json!("leg"), json!(["c", "d"])));
    // One number of a vector does not have the names of all.
    let first = json!({ "observation.state": "`observation.state`[0]" });
    merge(&[&one], &folder.path().join("first"), json!({ "features": first })).unwrap();
    assert_eq!(declared(&folder.path().join("first")), (json!("arm"), Value::Null));
}

#[test]
fn what_datasets_declare_differently_is_left_out_with_a_note() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    dataset(&path("arm"), json!("arm"), json!(["a", "b"]));
    dataset(&path("car"), json!("car"), json!(["b", "a"]));
    dataset(&path("none"), Value::Null, Value::Null);
    for (parts, robots) in [
        (vec!["arm", "car", "arm"], "(\"arm\", \"car\")"),
        (vec!["arm", "none"], "(none, \"arm\")"),
        (vec!["none", "arm"], "(none, \"arm\")"),
    ] {
        let whole = path(&parts.concat());
        let parts: Vec<_> = parts.iter().map(|part| path(part)).collect();
        let parts: Vec<&Path> = parts.iter().map(|part| &**part).collect();
        let outcome = merge(&parts, &whole, json!({})).unwrap();
        assert_eq!(outcome.noted(robots), Some(0), "{outcome:?}");
        assert_eq!(outcome.noted("`observation.state`: the inputs name"), Some(0), "{outcome:?}");
        assert_eq!(declared(&whole), (Value::Null, Value::Null));
        assert_eq!(data(&whole).0.num_rows(), 3 * parts.len());
    }
    let state = json!({ "names": ["b", "a"] });
    let options = json!({ "robot_type": "arm", "features": { "observation.state": state } });
    let outcome = merge(&[&path("arm"), &path("car")], &path("mended"), options).unwrap();
    assert_eq!(outcome.noted("robot").or(outcome.noted("axes")), None, "{outcome:?}");
    assert_eq!(declared(&path("mended")), (json!("arm"), json!(["b", "a"])));
}

#[test]
fn what_a_copy_does_not_get_of_a_description_is_noted() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let change = |name: &str, more: Value| {
        dataset(&path(name), Value::Null, Value::Null);
        let mut info = info(&path(name));
        info.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        if more["note"].is_number() {
            info["features"]["x"]["unit"] = json!("m");
        }
        std::fs::write(path(name).join("meta/info.json"), info.to_string()).unwrap();
    };
    change("one", json!({ "splits": { "val": "0:1" }, "note": 1 }));
    change("two", json!({ "splits": { "val": "0:1" }, "note": 2 }));
    change("three", json!({ "splits": {}, "video_path": "videos" }));
    let parts = ["one", "two", "three"].map(path);
    let outcome = merge(&parts.each_ref().map(|path| &**path), &path("whole"), json!({})).unwrap();
    let lost: Vec<_> =
        outcome.notes.iter().filter(|(note, _)| note.contains("these keys")).collect();
    assert_eq!(lost.len(), 1, "{outcome:?}");
    assert!(lost[0].0.ends_with("these keys: splits, note, features.*.unit"), "{outcome:?}");
    assert_eq!(info(&path("whole"))["splits"], json!({ "train": "0:3" }));
    let outcome = merge(&[&path("three")], &path("copy"), json!({})).unwrap();
    assert_eq!(outcome.noted("these keys"), None, "{outcome:?}");
}

#[test]
fn a_dataset_without_frames_is_merged_into_like_a_new_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    dataset(&path("arm"), json!("arm"), json!(["a", "b"]));
    dataset(&path("car"), json!("car"), json!(["b", "a"]));
    write(&path("whole"), &[], json!({ "fps": 10 })).unwrap();
    let append = json!({ "append": true, "floats": "keep" });
    let outcome = merge(&[&path("arm"), &path("car")], &path("whole"), append).unwrap();
    assert_eq!(outcome.noted("`observation.state`: the inputs name"), Some(0), "{outcome:?}");
    assert_eq!(declared(&path("whole")), (Value::Null, Value::Null));
}

#[test]
fn appended_datasets_must_not_have_another_robot_type() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    dataset(&path("arm"), json!("arm"), json!(["a", "b"]));
    dataset(&path("car"), json!("car"), json!(["b", "a"]));
    dataset(&path("whole"), json!("arm"), json!(["a", "b"]));
    let append = |part: &str, more: Value| {
        let mut options = json!({ "append": true, "floats": "keep" });
        options.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        merge(&[&path(part)], &path("whole"), options)
    };
    let before = snapshot(&path("whole"));
    let error = append("car", json!({})).unwrap_err().to_string();
    assert!(error.contains("`car`") && error.contains("robot_type = \"arm\""), "{error}");
    assert!(snapshot(&path("whole")) == before);
    assert_eq!(append("arm", json!({})).unwrap().notes, []);
    let outcome = append("car", json!({ "robot_type": "arm" })).unwrap();
    assert_eq!(outcome.noted("`observation.state`: the names of its axes differ"), Some(0));
    assert_eq!(declared(&path("whole")), (json!("arm"), json!(["a", "b"])));
    assert_eq!(info(&path("whole"))["total_frames"], 9);
}
