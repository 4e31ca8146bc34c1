//! What fields become: features, their types and shapes, images, and what is refused.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, BooleanArray, Float64Array, ListArray, StructArray, UInt32Array,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field};
use jpeg_encoder::ColorType;
use serde_json::{Value, json};

use crate::kit::{
    TestRows, data, doubles, files, info, ints, jpeg, read_json, texts, vectors, write,
};

fn feature(folder: &std::path::Path, name: &str) -> (String, Value, Value) {
    let entry = info(folder)["features"][name].clone();
    (entry["dtype"].as_str().unwrap().to_owned(), entry["shape"].clone(), entry["names"].clone())
}

/// Lists of these lengths.
fn lists(lengths: &[usize]) -> ArrayRef {
    let item = Arc::new(Field::new("item", DataType::Float64, true));
    let offsets = OffsetBuffer::from_lengths(lengths.iter().copied());
    let values = doubles((0..lengths.iter().sum::<usize>()).map(|n| n as f64));
    Arc::new(ListArray::new(item, offsets, values, None))
}

#[test]
fn lists_that_nest_deeper_than_features_may_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    // A data file with more would be refused when it is read.
    for depth in [6, 300] {
        let nest = |inner: ArrayRef, _| {
            let item = Arc::new(Field::new("item", inner.data_type().clone(), true));
            let offsets = OffsetBuffer::from_lengths([inner.len()]);
            Arc::new(ListArray::new(item, offsets, inner, None)) as ArrayRef
        };
        let lists = (0..depth).fold(doubles([1.0]), nest);
        let rows = TestRows::on_grid(1, vec![("deep", lists)]);
        let path = folder.path().join(depth.to_string());
        let error = write(&path, &[rows], json!({})).unwrap_err().to_string();
        assert!(error.contains("the field `deep` has more than 5 dimensions"), "{error}");
    }
}

#[test]
fn every_kind_of_field_becomes_a_feature() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("d");
    let front: Vec<Vec<u8>> = (0..3).map(|n| jpeg(16, 8, n * 80, ColorType::Rgb)).collect();
    let grey = (0..3).map(|n| jpeg(10, 6, n * 80, ColorType::Luma)).collect();
    let nested: ArrayRef = Arc::new(ListArray::new(
        Arc::new(Field::new("item", DataType::Float64, true)),
        OffsetBuffer::from_lengths([4; 6]),
        doubles((0..24).map(f64::from)),
        None,
    ));
    let nested: ArrayRef = Arc::new(ListArray::new(
        Arc::new(Field::new("item", nested.data_type().clone(), true)),
        OffsetBuffer::from_lengths([2; 3]),
        nested,
        None,
    ));
    let rows = TestRows::on_grid(
        3,
        vec![
            ("observation.state", vectors(3, 3)),
            ("action", lists(&[2, 2, 2])),
            ("speed", doubles([0.0, 1.0, 2.0])),
            ("count", ints([1, 2, 3])),
            ("brake", Arc::new(BooleanArray::from(vec![true, false, true]))),
            ("gear", texts(&["P", "D", "D"])),
            ("grid", nested),
            ("observation.images.front", files(front.clone())),
            ("observation.images.grey", files(grey)),
        ],
    );
    let outcome = write(&path, &[rows], json!({ "robot_type": "car", "task": "drive" })).unwrap();
    assert_eq!((outcome.written, outcome.left_out), (3, 0));
    let image = json!(["height", "width", "channels"]);
    let is = |name: &str, dtype: &str, shape: Value, names: Value| {
        assert_eq!(feature(&path, name), (dtype.to_owned(), shape, names), "{name}");
    };
    is("observation.state", "float32", json!([3]), Value::Null);
    is("action", "float32", json!([2]), Value::Null);
    is("speed", "float32", json!([1]), Value::Null);
    is("count", "int64", json!([1]), Value::Null);
    is("brake", "bool", json!([1]), Value::Null);
    is("gear", "string", json!([1]), Value::Null);
    is("grid", "float32", json!([2, 4]), Value::Null);
    is("observation.images.front", "image", json!([8, 16, 3]), image.clone());
    is("observation.images.grey", "image", json!([6, 10, 1]), image);
    is("timestamp", "float32", json!([1]), Value::Null);
    is("task_index", "int64", json!([1]), Value::Null);

    let (rows, groups) = data(&path);
    assert_eq!((rows.num_rows(), groups), (3, 1));
    let images = rows.column_by_name("observation.images.front").unwrap().as_struct();
    let bytes = images.column_by_name("bytes").unwrap().as_binary::<i32>();
    // Byte for byte.
    assert!((0..3).all(|n| bytes.value(n) == front[n]));
    assert_eq!(images.column_by_name("path").unwrap().null_count(), 3);
    let state = rows.column_by_name("observation.state").unwrap().as_fixed_size_list();
    let values = state.values().as_primitive::<arrow_array::types::Float32Type>();
    assert_eq!(values.value(8), 0.8);
    let stats = read_json(path.join("meta/stats.json"));
    assert_eq!(stats["grid"]["max"], json!([20.0, 21.0, 22.0, 23.0]));
    assert_eq!(stats["grid"]["count"], json!([3]));
    assert_eq!(stats["brake"]["max"], json!([1.0]));
    assert_eq!(stats["observation.images.front"]["min"].as_array().unwrap().len(), 3);
    assert!(stats.get("gear").is_none());
}

#[test]
fn chosen_features_have_their_names_types_and_axes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("d");
    let rows = TestRows::on_grid(
        3,
        vec![("vel", vectors(3, 3)), ("utime", ints([1, 2, 3])), ("unused", texts(&["", "", ""]))],
    );
    let features = json!({
        "observation.state": { "field": "vel", "names": ["x", "y", "z"], "dtype": "float64" },
        "action": "vel[0]",
        "utime": {},
    });
    write(&path, &[rows], json!({ "features": features })).unwrap();
    let names: Vec<String> =
        info(&path)["features"].as_object().unwrap().keys().take(4).cloned().collect();
    assert_eq!(names, ["observation.state", "action", "utime", "timestamp"]);
    let state = feature(&path, "observation.state");
    assert_eq!(state, ("float64".to_owned(), json!([3]), json!(["x", "y", "z"])));
    assert_eq!(feature(&path, "action").0, "float32");
}

#[test]
fn raw_pixels_become_png_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("d");
    let pixels: Vec<Vec<u8>> = (0..2).map(|n| vec![n * 100; 4 * 2 * 3]).collect();
    let member = |name: &str, array: ArrayRef| {
        (Arc::new(Field::new(name, array.data_type().clone(), true)), array)
    };
    let camera = StructArray::from(vec![
        member("width", Arc::new(UInt32Array::from(vec![4, 4]))),
        member("height", Arc::new(UInt32Array::from(vec![2, 2]))),
        member("encoding", texts(&["rgb8", "rgb8"])),
        member("data", files(pixels)),
    ]);
    let rows = TestRows::on_grid(2, vec![("front", Arc::new(camera))]);
    write(&path, &[rows], json!({})).unwrap();
    assert_eq!(feature(&path, "front").1, json!([2, 4, 3]));
    let stats = read_json(path.join("meta/stats.json"));
    let shades = stats["front"]["max"].as_array().unwrap();
    assert_eq!(shades.len(), 3);
    for shade in shades {
        assert!((shade[0][0].as_f64().unwrap() * 255.0 - 100.0).abs() < 1e-9);
    }
}

#[test]
fn rows_that_cannot_be_frames_are_counted_and_split_the_episode() {
    let folder = tempfile::tempdir().unwrap();
    let good = jpeg(16, 8, 9, ColorType::Rgb);
    let mut pictures = vec![good.clone(); 12];
    pictures[3] = good[..good.len() / 2].to_vec();
    pictures[4] = Vec::new();
    let mut values: Vec<Option<f64>> = (0..12).map(|n| Some(f64::from(n))).collect();
    (values[7], values[8]) = (None, Some(f64::NAN));
    let columns: Vec<(&str, ArrayRef)> =
        vec![("image", files(pictures)), ("x", Arc::new(Float64Array::from(values)))];
    let rows = TestRows::on_grid(12, columns);
    let path = folder.path().join("d");
    let outcome = write(&path, std::slice::from_ref(&rows), json!({})).unwrap();
    let refused: Vec<u32> = outcome.refused.iter().map(|(event, _)| *event).collect();
    assert_eq!(refused, [3, 4, 7, 8]);
    assert!(outcome.refused[0].1.contains("truncated"), "{:?}", outcome.refused);
    assert!(outcome.refused[1].1.contains("empty"), "{:?}", outcome.refused);
    assert!(outcome.refused[2].1.contains("no value"), "{:?}", outcome.refused);
    assert!(outcome.refused[3].1.contains("finite"), "{:?}", outcome.refused);
    assert_eq!((outcome.written, outcome.noted("holes in the grid")), (8, Some(2)));
    assert_eq!(info(&path)["total_episodes"], 3);
    let stopped = write(&folder.path().join("e"), &[rows], json!({ "unusable": "stop" }));
    let error = stopped.unwrap_err().to_string();
    assert!(error.contains("14:00:00.3") && error.contains("truncated"), "{error}");
    assert!(!folder.path().join("e/meta").exists());
}

#[test]
fn values_of_another_shape_end_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let refusal = |first: Vec<(&'static str, ArrayRef)>, then: Vec<(&'static str, ArrayRef)>| {
        let mut later = TestRows::on_grid(2, then);
        later.times.iter_mut().for_each(|time| *time += 200_000_000);
        let rows = [TestRows::on_grid(2, first), later];
        let path = folder.path().join("d");
        let error = write(&path, &rows, json!({})).unwrap_err().to_string();
        assert!(!path.join("meta").exists());
        error
    };
    let small = || vec![("i", files(vec![jpeg(8, 8, 1, ColorType::Rgb); 2]))];
    let large = vec![("i", files(vec![jpeg(16, 8, 1, ColorType::Rgb); 2]))];
    let error = refusal(small(), large);
    assert!(error.contains("[8, 16, 3]") && error.contains("[8, 8, 3]"), "{error}");
    let error = refusal(vec![("v", lists(&[3, 3]))], vec![("v", lists(&[3, 4]))]);
    assert!(error.contains("14:00:00.3") && error.contains("[4]"), "{error}");
    let error = refusal(vec![("v", doubles([1.0, 2.0]))], vec![("v", texts(&["a", "b"]))]);
    assert!(error.contains("string") && error.contains("float32"), "{error}");
    let error = refusal(vec![("v", doubles([1.0, 2.0]))], vec![("w", doubles([1.0, 2.0]))]);
    assert!(error.contains("no feature `v`"), "{error}");
}

#[test]
fn fields_that_cannot_be_features_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let refusal = |columns: Vec<(&'static str, ArrayRef)>, options: Value| {
        let rows = [TestRows::on_grid(2, columns)];
        write(&folder.path().join("d"), &rows, options).unwrap_err().to_string()
    };
    let own = || vec![("velocity", doubles([1.0, 2.0]))];
    let error = refusal(own(), json!({ "features": { "action": "velocty" } }));
    assert!(error.contains("`velocty`") && error.contains("similar: `velocity`"), "{error}");
    let dotted = || vec![("observation.state", vectors(2, 3))];
    for (field, quoted) in [
        ("observation.state", "\"`observation.state`\""),
        ("observation.state[0]", "\"`observation.state`[0]\""),
    ] {
        let error = refusal(dotted(), json!({ "features": { "observation.state": field } }));
        assert!(error.contains("backquotes") && error.ends_with(quoted), "{error}");
    }
    let error = refusal(vec![("index", ints([1, 2]))], json!({}));
    assert!(error.contains("`index`") && error.contains("`features`"), "{error}");
    let error = refusal(vec![("a/b", ints([1, 2]))], json!({}));
    assert!(error.contains("`a/b`"), "{error}");
    let texts = ListArray::new(
        Arc::new(Field::new("item", DataType::Utf8, true)),
        OffsetBuffer::from_lengths([1, 1]),
        texts(&["a", "b"]),
        None,
    );
    let error = refusal(vec![("words", Arc::new(texts))], json!({}));
    assert!(error.contains("`words`") && error.contains("Utf8"), "{error}");
    let names = json!({ "features": { "velocity": { "names": ["x", "y"] } } });
    assert!(refusal(own(), names).contains("`names`"));
    let narrow = json!({ "features": { "n": { "dtype": "int8" } } });
    let error = refusal(vec![("n", ints([1, 200]))], narrow);
    assert!(error.contains("int8"), "{error}");
}

#[test]
fn two_fields_of_one_name_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let member = |name: &str, values: [f64; 2]| {
        (Arc::new(Field::new(name, DataType::Float64, true)), doubles(values))
    };
    let of =
        |members: Vec<(Arc<Field>, ArrayRef)>| Arc::new(StructArray::from(members)) as ArrayRef;
    let inner = of(vec![member("c", [1.0, 2.0])]);
    let inner = (Arc::new(Field::new("b", inner.data_type().clone(), true)), inner);
    for (columns, name, fields) in [
        (
            vec![("A", of(vec![member("x", [1.0, 2.0])])), ("A.x", doubles([70.0, 80.0]))],
            "`A.x`",
            "the fields A.x and `A.x`",
        ),
        (
            vec![("A", of(vec![member("b.c", [7.0, 8.0]), inner]))],
            "`A.b.c`",
            "the fields A.`b.c` and A.b.c",
        ),
    ] {
        let rows = [TestRows::on_grid(2, columns)];
        let path = folder.path().join("d");
        let error = write(&path, &rows, json!({})).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains(fields), "{error}");
        assert!(error.contains("`features`"), "{error}");
        assert!(!path.join("meta").exists());
    }
    let structure = of(vec![member("x", [1.0, 2.0])]);
    let rows = [TestRows::on_grid(2, vec![("A", structure), ("A.x", doubles([70.0, 80.0]))])];
    let path = folder.path().join("d");
    write(&path, &rows, json!({ "features": { "A.x": "A.x", "B": "`A.x`" } })).unwrap();
    let max = |name: &str| read_json(path.join("meta/stats.json"))[name]["max"][0].clone();
    assert_eq!((max("A.x"), max("B")), (json!(2.0), json!(80.0)));
}

#[test]
fn a_field_task_that_is_no_text_is_refused_unless_it_is_a_feature() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    for (name, column) in [
        ("numbers", ints([3, 4])),
        ("lists", lists(&[1, 1])),
        ("files", files(vec![vec![1], vec![2]])),
    ] {
        let rows = [TestRows::on_grid(2, vec![("task", column), ("v", doubles([1.0, 2.0]))])];
        for options in [json!({}), json!({ "task": "x" }), json!({ "features": { "v": "v" } })] {
            let error = write(&path(name), &rows, options).unwrap_err().to_string();
            assert!(error.contains("expected text in the field `task`, found"), "{error}");
            assert!(!path(name).join("meta").exists());
        }
    }
    let rows = [TestRows::on_grid(2, vec![("task", ints([3, 4])), ("v", doubles([1.0, 2.0]))])];
    let features = json!({ "features": { "number": "task" }, "task": "x" });
    write(&path("chosen"), &rows, features).unwrap();
    let (columns, _) = data(&path("chosen"));
    assert_eq!(crate::kit::int_column(&columns, "number"), [3, 4]);
    let nulls: ArrayRef = Arc::new(arrow_array::NullArray::new(2));
    let rows = [TestRows::on_grid(2, vec![("task", nulls), ("v", doubles([1.0, 2.0]))])];
    let outcome = write(&path("null"), &rows, json!({})).unwrap();
    assert_eq!(outcome.noted("frames without a task"), Some(2));
}

#[test]
fn a_dtype_that_values_do_not_have_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refusal = |column: ArrayRef, dtype: &str| {
        let rows = [TestRows::on_grid(3, vec![("s", column)])];
        let options = json!({ "features": { "x": { "field": "s", "dtype": dtype } } });
        write(&folder.path().join("d"), &rows, options).unwrap_err().to_string()
    };
    let error = refusal(texts(&["a", "b", "c"]), "float32");
    assert!(error.contains("the field `s` is text") && error.contains("`x`"), "{error}");
    let pictures = vec![jpeg(8, 8, 1, ColorType::Rgb); 3];
    let error = refusal(files(pictures), "uint8");
    assert!(error.contains("the field `s` is an image"), "{error}");
    let error = refusal(ints([1, 200, 300]), "int8");
    assert!(error.contains("int8 cannot hold, such as 200 in the row at 2007-"), "{error}");
    assert!(error.contains("14:00:00.1"), "{error}");
    let error = refusal(lists(&[2, 2, 2]), "bool");
    assert!(error.contains("such as 2 in the row at") && error.contains("00.1"), "{error}");
    let error = refusal(doubles([1.0, 2.0, 2.5]), "int64");
    assert!(error.contains("such as 2.5 in the row at") && error.contains("00.2"), "{error}");
}

#[test]
fn options_say_what_is_wrong_with_them() {
    let refusal = |options: Value| {
        let mut all = json!({ "path": "d/" });
        all.as_object_mut().unwrap().extend(options.as_object().unwrap().clone());
        let made = sluice_model::Registry::linked().sink("lerobot", all);
        let error = made.err().unwrap();
        format!("{}: {error}", error.path.join("."))
    };
    let unknown = refusal(json!({ "features": { "a": "x", "b": { "feild": "x" } } }));
    assert!(unknown.starts_with("features.b.feild: unknown field"), "{unknown}");
    let wrong = refusal(json!({ "features": { "a": { "dtype": "int7" } } }));
    assert!(wrong.starts_with("features.a.dtype: unknown variant"), "{wrong}");
    assert!(refusal(json!({ "features": { "a": 3 } })).starts_with("features.a: invalid type"));
    assert!(refusal(json!({ "images": "video" })).contains("convert_image_to_video"));
    assert!(refusal(json!({ "fps": 0 })).contains("above 0"));
    assert!(refusal(json!({ "fps": 1e-300 })).contains("1e-9"));
    assert!(refusal(json!({ "min_frames": 0 })).contains("1 to"));
    assert!(refusal(json!({ "features": { "task_index": "a" } })).contains("task_index"));
    assert!(refusal(json!({ "features": {} })).contains("at least one"));
    assert!(refusal(json!({ "path": "-" })).contains("standard output"));
    let needs = "`max_hold` needs `holes = \"hold\"`";
    assert!(refusal(json!({ "max_hold": "2s" })).contains(needs));
    let negative = refusal(json!({ "max_hold": "-5s", "holes": "hold" }));
    assert!(negative.starts_with("max_hold: expected a duration of 0 or more"), "{negative}");
}
