//! What becomes of messages of every kind.

use std::sync::Arc;

use arrow_array::types::{Float32Type, Float64Type, UInt32Type};
use arrow_array::{
    ArrayRef, BinaryArray, FixedSizeListArray, Float32Array, Float64Array, Int16Array, Int32Array,
    Int64Array, ListArray, StringArray,
};
use serde_json::{Value, json};
use sluice_model::Batch;

use crate::kit::{
    Messages, OutEvent, StageRun, bytes, double, doubles, fields, number, on, parts, text,
};

const START: i64 = 1_700_000_000_000_000_000;

fn images(data: &[&[u8]], pixelformat: &[u8; 4]) -> Vec<(&'static str, ArrayRef)> {
    let len = data.len();
    let fourcc = i32::from_le_bytes(*pixelformat);
    vec![
        ("utime", Arc::new(Int64Array::from(vec![START / 1000 - 7; len]))),
        ("width", Arc::new(Int16Array::from(vec![4; len]))),
        ("height", Arc::new(Int16Array::from(vec![2; len]))),
        ("stride", Arc::new(Int16Array::from(vec![0; len]))),
        ("pixelformat", Arc::new(Int32Array::from(vec![fourcc; len]))),
        ("image", Arc::new(BinaryArray::from(data.to_vec()))),
    ]
}

fn camera<'m>(columns: Vec<(&'m str, ArrayRef)>) -> Messages<'m> {
    Messages { channel: "CAM", source: "log", type_name: "lcmtypes.image_t", columns }
}

fn quaternions(rows: &[[f32; 4]]) -> ArrayRef {
    let rows = rows.iter().map(|row| Some(row.map(Some)));
    Arc::new(FixedSizeListArray::from_iter_primitive::<Float32Type, _, _>(rows, 4))
}

fn positions(rows: &[[f64; 3]]) -> ArrayRef {
    let rows = rows.iter().map(|row| Some(row.map(Some)));
    Arc::new(FixedSizeListArray::from_iter_primitive::<Float64Type, _, _>(rows, 3))
}

fn one(mut run: StageRun, messages: Messages<'_>) -> Vec<OutEvent> {
    let batch = run.batch(START, &[messages]);
    run.all(vec![batch])
}

#[test]
fn a_jpeg_is_shown_as_it_is_whatever_its_pixel_format_says() {
    let jpeg: &[u8] = b"\xff\xd8\xff\xe0 and the rest";
    let out = one(StageRun::new(json!({})), camera(images(&[jpeg], b"RGB3")));
    let [original, view] = out.as_slice() else { panic!("{out:?}") };
    assert_eq!((original.channel.as_str(), original.message.as_slice()), ("CAM", &b"payload"[..]));
    assert_eq!(view.channel, "/view/CAM");
    assert_eq!((view.type_name.as_str(), view.time), ("foxglove.CompressedImage", START));
    let view = &view.message;
    assert_eq!((bytes(view, 2), text(view, 3)), (jpeg.to_vec(), "jpeg".to_owned()));
    assert_eq!(text(view, 4), "CAM_optical");
    let stamp = bytes(view, 1);
    assert_eq!((number(&stamp, 1), number(&stamp, 2)), (1_699_999_999, 999_993_000));
}

#[test]
fn pixels_are_shown_if_there_are_enough_of_them() {
    let mut run = StageRun::new(json!({}));
    let (enough, few) = ([7; 24], [7; 23]);
    let batch = run.batch(START, &[camera(images(&[&enough, &few], b"RGB3"))]);
    let out = run.all(vec![batch]);
    let views = on(&out, "/view/CAM");
    let [view] = views.as_slice() else { panic!("{views:?}") };
    assert_eq!(view.type_name, "foxglove.RawImage");
    let view = &view.message;
    assert_eq!([number(view, 2), number(view, 3), number(view, 5)], [4, 2, 12]);
    assert_eq!((text(view, 4), bytes(view, 6).len()), ("rgb8".to_owned(), 24));
    assert!(run.notes.iter().any(|note| note.contains("`CAM`: not shown")), "{:?}", run.notes);
}

#[test]
fn a_scan_becomes_a_scan_and_points() {
    let ranges =
        ListArray::from_iter_primitive::<Float32Type, _, _>([Some([1.0, 2.0, 80.0].map(Some))]);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("ranges", Arc::new(ranges)),
        ("rad0", Arc::new(Float32Array::from(vec![0.0]))),
        ("radstep", Arc::new(Float32Array::from(vec![std::f32::consts::FRAC_PI_2]))),
    ];
    let messages = Messages { channel: "SICK", source: "", type_name: "p.laser_t", columns };
    let out = one(StageRun::new(json!({})), messages);
    let scan = &on(&out, "/view/SICK")[0].message;
    assert!((double(scan, 5) - std::f64::consts::PI).abs() < 1e-6);
    assert_eq!(doubles(scan, 6), [1.0, 2.0, f64::INFINITY], "80 m is no return");
    let cloud = &on(&out, "/view/SICK/points")[0].message;
    assert_eq!((number(cloud, 4), fields(cloud, 5).len()), (12, 3));
    let points = bytes(cloud, 6);
    let points: Vec<f32> =
        points.chunks(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect();
    let expected = [1.0, 0.0, 0.0, 0.0, 2.0, 0.0];
    assert!(points.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{points:?}");
}

/// A VEL scan and the configuration of its scanner.
fn scanner(source: &str) -> [Messages<'_>; 2] {
    let ranges =
        ListArray::from_iter_primitive::<UInt32Type, _, _>([Some([0, 1500, 3000].map(Some))]);
    let position = quaternions(&[[100.0, 200.0, 300.0, 0.0]]);
    [
        Messages {
            channel: "LaserRange2DConfigM",
            source,
            type_name: "LaserRange2DConfigM.v100",
            columns: vec![
                ("field_of_view", Arc::new(Float32Array::from(vec![180.0]))),
                ("quaternion", quaternions(&[[2.0, 0.0, 0.0, 0.0]])),
                ("position", position),
            ],
        },
        Messages {
            channel: "LaserRange2DDataM",
            source,
            type_name: "LaserRange2DDataM.v101",
            columns: vec![("ranges", Arc::new(ranges))],
        },
    ]
}

#[test]
fn a_scan_takes_angles_and_mount_from_the_configuration_of_its_sensor() {
    let mut run = StageRun::new(json!({}));
    let [config, scan] = scanner("front");
    let batch = run.batch(START, &[config, scan]);
    let out = run.all(vec![batch]);
    let scan = &on(&out, "/view/front/LaserRange2DDataM")[0].message;
    assert_eq!(text(scan, 2), "front");
    let quarter = std::f64::consts::FRAC_PI_2;
    assert_eq!([double(scan, 4), double(scan, 5)], [-quarter, quarter]);
    assert_eq!(doubles(scan, 6), [f64::INFINITY, 1.5, 3.0]);
    let transform = bytes(&on(&out, "/tf")[0].message, 1);
    assert_eq!((text(&transform, 2), text(&transform, 3)), ("base_link".into(), "front".into()));
    assert_eq!(parts::<3>(&transform, 4), [0.1, 0.2, 0.3]);
    assert_eq!(parts::<4>(&transform, 5), [0.0, 0.0, 0.0, 1.0], "w is last, and normalised");
}

fn pose(count: usize) -> Messages<'static> {
    let places: Vec<[f64; 3]> = (0..count).map(|n| [n as f64, 2.0, 3.0]).collect();
    let orientation = quaternions(&vec![[0.0, 0.0, 0.0, 3.0]; count]);
    let columns = vec![("pos", positions(&places)), ("orientation", orientation)];
    Messages { channel: "POSE", source: "log", type_name: "lcmtypes.pose_t", columns }
}

#[test]
fn a_pose_places_the_vehicle() {
    let out = one(StageRun::new(json!({})), pose(2));
    let transform = bytes(&on(&out, "/tf")[1].message, 1);
    assert_eq!((text(&transform, 2), text(&transform, 3)), ("odom".into(), "base_link".into()));
    assert_eq!(parts::<3>(&transform, 4), [1.0, 2.0, 3.0]);
    assert_eq!(parts::<4>(&transform, 5), [0.0, 0.0, 1.0, 0.0]);
    assert_eq!(text(&on(&out, "/view/POSE")[0].message, 2), "odom");
}

#[test]
fn numbers_that_place_nothing_are_told() {
    let mut run = StageRun::new(json!({}));
    let columns = vec![
        ("pos", positions(&[[f64::NAN, 0.0, 0.0], [0.0; 3]])),
        ("orientation", quaternions(&[[1.0, 0.0, 0.0, 0.0], [0.0; 4]])),
    ];
    let messages = Messages { channel: "POSE", source: "log", type_name: "pose_t", columns };
    let batch = run.batch(START, &[messages]);
    assert_eq!(run.all(vec![batch]).len(), 2);
    assert_eq!(run.notes, ["channel `POSE`: not shown: numbers are missing or not finite"]);
}

#[test]
fn own_maps_show_own_types() {
    let options = json!({ "map": [{
        "types": ["my.fix"], "time": "t", "time_unit": "s", "topic": "/where/{channel}",
        "fix": { "latitude": "lat", "longitude": "lon", "altitude": 12, "heading": "course" },
    }, { "channels": ["NOTES"], "log": { "text": "line", "level": "severity" } }] });
    let mut run = StageRun::new(options);
    let numbers = |value: f64| Arc::new(Float64Array::from(vec![value])) as ArrayRef;
    let fix = vec![
        ("t", numbers(1.5)),
        ("lat", numbers(50.0)),
        ("lon", numbers(7.5)),
        ("course", numbers(180.0)),
    ];
    let fix = Messages { channel: "RX", source: "", type_name: "my.fix", columns: fix };
    let line = vec![
        ("line", Arc::new(StringArray::from(vec!["stuck"])) as ArrayRef),
        ("severity", numbers(4.0)),
    ];
    let line = Messages { channel: "NOTES", source: "", type_name: "note", columns: line };
    let batch = run.batch(START, &[fix, line]);
    let out = run.all(vec![batch]);
    let fix = &on(&out, "/where/RX")[0].message;
    let place = [double(fix, 1), double(fix, 2), double(fix, 3), double(fix, 10)];
    assert_eq!(place, [50.0, 7.5, 12.0, std::f64::consts::PI]);
    let stamp = bytes(fix, 6);
    assert_eq!([number(&stamp, 1), number(&stamp, 2)], [1, 500_000_000]);
    let line = &on(&out, "/view/NOTES")[0].message;
    assert_eq!((number(line, 2), text(line, 3)), (4, "stuck".to_owned()));
}

#[test]
fn a_map_whose_fields_are_missing_is_told() {
    let map = json!([{ "channels": ["CAM"], "image": { "data": "pixels" } }]);
    let mut run = StageRun::new(json!({ "map": map, "built_in": false }));
    let batch = run.batch(START, &[camera(images(&[b"x"], b"GREY"))]);
    assert_eq!(run.all(vec![batch]).len(), 1);
    let note = "map 0 is for channel `CAM`, but `lcmtypes.image_t` does not have its fields";
    assert_eq!(run.notes, [note]);
}

#[test]
fn what_a_map_says_without_effect_is_told() {
    let notes = |map: Value| {
        let mut run = StageRun::new(json!({ "map": [map], "built_in": false }));
        let number: ArrayRef = Arc::new(Float64Array::from(vec![1.0]));
        let ranges = ListArray::from_iter_primitive::<Float64Type, _, _>([Some([Some(2.0)])]);
        let columns = vec![("utime", number), ("mm", Arc::new(ranges) as ArrayRef)];
        let scan = Messages { channel: "SCAN", source: "", type_name: "my.scan", columns };
        let batch = run.batch(START, &[scan]);
        run.all(vec![batch]);
        run.notes.into_iter().filter(|note| !note.starts_with("frames without")).collect::<Vec<_>>()
    };
    let scan = |more: Value| {
        let mut map = json!({ "scan": { "ranges": "mm", "field_of_view": 1 } });
        map.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        map
    };
    assert_eq!(notes(scan(json!({ "time": "utime", "types": "my.*" }))), [""; 0]);
    let wrong_time = "map 0: `my.scan` has no time in `utim`: its views have the time of the event";
    assert_eq!(notes(scan(json!({ "time": "utim" }))), [wrong_time]);
    let no_type = "map 0: no message has one of its `types`";
    assert_eq!(notes(scan(json!({ "types": ["nope"] }))), [no_type]);
    let no_angles = "channel `SCAN`: scans not shown: their map has neither `step` nor \
                     `field_of_view`, and no mount of the frame `SCAN` has the latter";
    assert_eq!(notes(scan(json!({ "scan": { "ranges": "mm" } }))), [no_angles]);
}

#[test]
fn mounts_are_repeated() {
    let mut run = StageRun::new(json!({ "repeat": "2s" }));
    let [config, _] = scanner("front");
    let batches: Vec<Batch> = std::iter::once(run.batch(START, &[config]))
        .chain((1..=5).map(|n| run.batch(START + n * 1_000_000_000, &scanner("front")[1..])))
        .collect();
    let out = run.all(batches);
    let seconds: Vec<i64> =
        on(&out, "/tf").iter().map(|event| (event.time - START) / 1_000_000_000).collect();
    assert_eq!(seconds, [0, 2, 4]);
}

#[test]
fn events_may_be_cut_into_any_batches() {
    let all = |cuts: &[usize]| {
        let mut run = StageRun::new(json!({}));
        let [config, scan] = scanner("front");
        let batch =
            run.batch(START, &[pose(3), config, scan, camera(images(&[b"\xff\xd8\xff"], b"    "))]);
        let ends = cuts.iter().copied().chain([batch.len()]);
        let mut start = 0;
        let batches = ends.map(|end| batch.slice(std::mem::replace(&mut start, end), end - start));
        let batches = batches.collect::<Vec<_>>();
        run.all(batches)
    };
    let whole = all(&[]);
    for cuts in [&[1][..], &[2, 4], &[1, 2, 3, 4, 5]] {
        assert_eq!(all(cuts), whole);
    }
}

#[test]
fn channels_can_be_selected() {
    let out = one(StageRun::new(json!({ "channels": ["CAM*"] })), pose(2));
    assert_eq!(out.len(), 2);
}
