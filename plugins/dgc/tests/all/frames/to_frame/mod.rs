//! `to-frame`: results computed by hand, any order of events, and any batch boundaries.

mod poses;
mod properties;

use std::io::Write;

use serde_json::{Value, json};
use sluice_dgc::fuzzing::PointFrame;
use sluice_model::Stage;

use crate::frames::kit::{
    FrameRun, OutputEvent, PayloadForm, ScriptedContent, at, make, origin, pose,
};

fn near(found: &[f64], expected: &[f64]) -> bool {
    found.len() == expected.len() && found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9)
}

/// The x of the points of each event that has some.
fn xs(outs: &[OutputEvent]) -> Vec<(i64, f64)> {
    let of = |out: &OutputEvent| Some((out.timestamp / 1_000_000 - 2, out.points.first()?[0]));
    outs.iter().filter_map(of).collect()
}

/// A vehicle with a sensor two metres ahead and one metre up that looks to the left.
fn vehicle() -> tempfile::NamedTempFile {
    let mut file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    let text = "[sensor.VELODYNE]\nposition = [2.0, 0.0, 1.0]\nrpy = [0.0, 0.0, 90.0]\n\
                relative_to = \"body\"\n";
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn with_vehicle(mut options: Value, check: impl FnOnce(Value)) {
    let vehicle = vehicle();
    options["calibration"] = json!(vehicle.path());
    check(options);
}

fn points(frame: PointFrame, points: &[[f64; 3]]) -> ScriptedContent {
    ScriptedContent::Points("VELODYNE", frame, points.to_vec())
}

const PLACE: [f64; 3] = [10.0, 20.0, 1.0];

#[test]
fn a_point_ahead_of_the_sensor_matches_the_position_computed_by_hand() {
    with_vehicle(json!({}), |options| {
        let mut run = FrameRun::new("to-frame", options);
        let ahead = points(PointFrame::Sensor, &[[1.0, 0.0, 0.0], [0.0, 0.0, 5.0]]);
        let outs = run.drive(&[at(0, ScriptedContent::Pose(PLACE, 90.0)), at(5, ahead)]);
        // In the body it is two metres ahead and one to the left, and the body looks along y.
        assert!(near(&outs[1].points[0], &[9.0, 22.0, 2.0]), "{outs:?}");
        assert!(near(&outs[1].points[1], &[10.0, 22.0, 7.0]), "{outs:?}");
        assert_eq!(outs[1].frame, Some(PointFrame::Local));
        assert_eq!(outs[1].columns, ["utime", "points"]);
        assert!(outs[0].kind == "decoded" && !outs[0].payload.is_empty(), "poses pass as they are");
    });
}

#[test]
fn points_can_be_moved_back_from_the_local_frame_to_their_sensor() {
    let drive = |frame, place: [f64; 3]| {
        [at(0, ScriptedContent::Pose(PLACE, 90.0)), at(5, points(frame, &[place]))]
    };
    with_vehicle(json!({ "frame": "sensor", "pose": "POSE" }), |options| {
        let back =
            FrameRun::new("to-frame", options).drive(&drive(PointFrame::Local, [9.0, 22.0, 2.0]));
        assert!(near(&back[1].points[0], &[1.0, 0.0, 0.0]), "{back:?}");
        assert_eq!(back[1].frame, Some(PointFrame::Sensor));
    });
    with_vehicle(json!({ "frame": "body", "pose": "POSE" }), |options| {
        let back =
            FrameRun::new("to-frame", options).drive(&drive(PointFrame::Local, [9.0, 22.0, 2.0]));
        assert!(near(&back[1].points[0], &[2.0, 1.0, 1.0]), "{back:?}");
    });
}

#[test]
fn between_sensor_and_body_no_pose_is_needed_and_no_order() {
    with_vehicle(json!({ "frame": "body" }), |options| {
        assert!(matches!(make("to-frame", options.clone()).unwrap(), Stage::Map(_)));
        let mut run = FrameRun::new("to-frame", options);
        let outs = run.drive(&[at(5, points(PointFrame::Sensor, &[[1.0, 0.0, 0.0]]))]);
        assert!(near(&outs[0].points[0], &[2.0, 1.0, 1.0]), "{outs:?}");
        let batch =
            run.batch(&[at(5, points(PointFrame::Local, &[[0.0; 3]]))], PayloadForm::Decoded);
        let refused = run.all(vec![batch]).unwrap_err().to_string();
        assert!(refused.contains("name their channel"), "{refused}");
    });
}

#[test]
fn points_already_in_the_frame_stay_as_they_are() {
    let mut run = FrameRun::new("to-frame", json!({}));
    let outs = run.drive(&[at(5, points(PointFrame::Local, &[[1.0, 2.0, 3.0]]))]);
    assert_eq!((outs[0].points[0], run.filtered), ([1.0, 2.0, 3.0], 0));
}

#[test]
fn the_internal_column_is_removed_from_all_rows() {
    let other = |ms| at(ms, ScriptedContent::Points("OTHER", PointFrame::Body, vec![[0.0; 3]]));
    let mut run = FrameRun::new("to-frame", json!({ "channels": "VELODYNE" }));
    let first = run.batch(&[origin(0), other(1)], PayloadForm::Decoded);
    let second = run.batch(&[pose(2, 1.0), origin(3), other(4)], PayloadForm::Decoded);
    let merged = {
        // Both channels in one table of rows, as a previous stage may produce them.
        let both = |batch: sluice_model::Batch| {
            let (points, rest): (Vec<_>, Vec<_>) = batch
                .rows()
                .to_vec()
                .into_iter()
                .partition(|rows| rows.message.name.starts_with("sluice.points"));
            let columns: Vec<_> = points.iter().map(|rows| rows.columns.clone()).collect();
            let columns =
                arrow_select::concat::concat_batches(&columns[0].schema(), &columns).unwrap();
            let events = points.iter().flat_map(|rows| rows.events.clone()).collect();
            let rows = sluice_model::Rows { events, columns, ..points[0].clone() };
            batch.with_rows(rest.into_iter().chain([rows]).collect())
        };
        vec![both(first), both(second)]
    };
    let out = run.all(merged).unwrap();
    let outs = run.outs(&out);
    let others: Vec<&OutputEvent> = outs.iter().filter(|out| out.channel == "OTHER").collect();
    assert_eq!(others.len(), 2);
    assert!(others.iter().all(|out| out.columns == ["utime", "points"]), "{others:?}");
    let kinds: std::collections::BTreeSet<_> = others.iter().map(|out| &out.kind).collect();
    assert_eq!(kinds.len(), 1);
}

#[test]
fn poses_of_a_sensor_are_not_used_as_poses_of_the_vehicle() {
    let sensor = json!({ "frame": "sensor", "sensor": "VELODYNE", "channels": "POSE" });
    with_vehicle(sensor, |options| {
        let mut run = FrameRun::new("to-frame", options.clone());
        let batch = run.batch(&[pose(0, 1.0), origin(1)], PayloadForm::Decoded);
        let out = run.all(vec![batch]).unwrap();
        for options in [json!({}), options] {
            let (mut next, out) = (FrameRun::new("to-frame", options.clone()), out.clone());
            std::mem::swap(&mut next.channels, &mut run.channels);
            let out = next.all(out).unwrap();
            let outs = next.outs(&out);
            if options == json!({}) {
                assert_eq!((outs.len(), next.filtered), (1, 1));
                assert!(
                    next.has_note("of the vehicle rather than of a sensor"),
                    "{:?}",
                    next.notes
                );
            } else {
                assert_eq!(outs[0].numbers["pos"], [3.0, 0.0, 1.0]);
            }
            std::mem::swap(&mut next.channels, &mut run.channels);
        }
    });
}

#[test]
fn a_log_without_points_is_noted() {
    let mut run = FrameRun::new("to-frame", json!({}));
    run.drive(&[pose(0, 1.0), at(1, ScriptedContent::Other)]);
    assert!(
        run.has_note("no event had points: add `velodyne` or `laser` before"),
        "{:?}",
        run.notes
    );
    let mut run = FrameRun::new("to-frame", json!({}));
    run.drive(&[pose(0, 1.0), at(1, points(PointFrame::Local, &[[0.0; 3]]))]);
    assert!(run.notes.is_empty(), "{:?}", run.notes);
}

#[test]
fn points_of_unknown_frame_are_refused_on_selected_channels() {
    let unknown = |run: &FrameRun, name: &str| {
        let batch = run.batch(&[pose(0, 1.0), origin(1)], PayloadForm::Decoded);
        let rows = batch.rows().iter().map(|rows| {
            if rows.message.name.starts_with("sluice.points") {
                let schema = rows.columns.schema();
                let fields = schema.fields().iter();
                let fields: Vec<_> = fields
                    .map(|field| field.as_ref().clone().with_metadata(Default::default()))
                    .collect();
                let schema = arrow_schema::Schema::new(fields).into();
                let columns = rows.columns.columns().to_vec();
                let columns = arrow_array::RecordBatch::try_new(schema, columns).unwrap();
                let message = sluice_model::MessageType::named(name, rows.message.key).into();
                return sluice_model::Rows { message, columns, ..rows.clone() };
            }
            rows.clone()
        });
        let rows = rows.collect();
        batch.with_rows(rows)
    };
    for (stage, options) in [("to-frame", json!({})), ("georeference", json!({}))] {
        for name in ["sluice.points", "sluice.points.moon", "cloud_t"] {
            let mut run = FrameRun::new(stage, options.clone());
            let batch = unknown(&run, name);
            let refused = run.all(vec![batch]).unwrap_err().to_string();
            assert!(refused.contains("unknown frame of points"), "{refused}");
        }
    }
    let mut run = FrameRun::new("to-frame", json!({ "channels": "ANOTHER" }));
    let batch = unknown(&run, "cloud_t");
    run.all(vec![batch]).unwrap();
    // The name of the type says it where the column does not.
    let mut run = FrameRun::new("to-frame", json!({}));
    let batch = unknown(&run, "sluice.points.body");
    let out = run.all(vec![batch]).unwrap();
    assert_eq!(xs(&run.outs(&out)), [(1, 1.0)]);
}

#[test]
fn sensors_that_are_not_in_the_calibration_are_noted() {
    let unknown = ScriptedContent::Points("NEW", PointFrame::Sensor, vec![[0.0; 3]]);
    let drive = [pose(0, 1.0), at(1, unknown), origin(2)];
    let mut run = FrameRun::new("to-frame", json!({}));
    assert_eq!(xs(&run.drive(&drive)).len(), 1);
    assert!(run.has_note("NEW: the calibration has no sensor of this name"), "{:?}", run.notes);
    let mut run = FrameRun::new("to-frame", json!({ "mounts": { "NE?": "VELODYNE" } }));
    assert_eq!(xs(&run.drive(&drive)).len(), 2);
    let mut run = FrameRun::new("to-frame", json!({ "without_mount": "stop" }));
    let batch = run.batch(&drive, PayloadForm::Decoded);
    assert!(run.all(vec![batch]).unwrap_err().to_string().contains("`mounts`"));
}

#[test]
fn only_selected_channels_are_moved() {
    let other = ScriptedContent::Points("OTHER_POINTS", PointFrame::Body, vec![[0.0; 3]]);
    let mut run = FrameRun::new("to-frame", json!({ "channels": ["VELODYNE", "OTHER"] }));
    let outs = run.drive(&[pose(0, 1.0), at(1, other), origin(2), at(3, ScriptedContent::Other)]);
    assert_eq!((outs[1].points[0][0], outs[2].points[0][0]), (0.0, 1.0));
    assert_eq!((outs[1].frame, outs[2].frame), (Some(PointFrame::Body), Some(PointFrame::Local)));
    assert!(run.has_note("OTHER: events without points"), "{:?}", run.notes);
}

#[test]
fn poses_can_be_converted_to_those_of_a_sensor() {
    let options = json!({ "frame": "sensor", "sensor": "VELODYNE", "channels": "POSE" });
    with_vehicle(options, |options| {
        for form in [PayloadForm::Decoded, PayloadForm::Raw] {
            let mut run = FrameRun::new("to-frame", options.clone());
            let batch = run.batch(
                &[at(0, ScriptedContent::Pose(PLACE, 90.0)), at(1, ScriptedContent::NoPose)],
                form,
            );
            let out = run.all(vec![batch]).unwrap();
            let outs = run.outs(&out);
            assert_eq!((outs.len(), run.filtered), (1, 1));
            let of = |name: &str| outs[0].numbers[name].clone();
            assert!(near(&of("pos"), &[10.0, 22.0, 2.0]), "{outs:?}");
            assert!(near(&of("orientation").map_abs(), &[0.0, 0.0, 0.0, 1.0]), "{outs:?}");
            // Turning by one radian a second about z, two metres ahead along y: two more to the
            // left.
            assert!(near(&of("vel"), &[3.0, 0.0, 0.0]), "{outs:?}");
            assert!(outs[0].kind == "sluice.pose" && outs[0].payload.is_empty());
            assert_eq!(outs[0].columns, ["utime", "pos", "vel", "orientation", "rotation_rate"]);
        }
        let stop = [options, json!({ "without_pose": "stop" })];
        let stop = stop.iter().flat_map(|part| part.as_object().unwrap().clone()).collect();
        let mut run = FrameRun::new("to-frame", Value::Object(stop));
        let batch = run.batch(&[at(1, ScriptedContent::NoPose)], PayloadForm::Raw);
        let stopped = run.all(vec![batch]).unwrap_err().to_string();
        assert!(stopped.contains("length 0") && stopped.contains("`without_pose"), "{stopped}");
    });
}

trait MapAbs {
    fn map_abs(self) -> Self;
}

impl MapAbs for Vec<f64> {
    fn map_abs(self) -> Self {
        self.into_iter().map(f64::abs).collect()
    }
}

#[test]
fn mistakes_in_options_name_their_keys() {
    let refusal = |options: Value| make("to-frame", options).unwrap_err();
    assert_eq!(refusal(json!({ "mounts": { "A": "NOBODY" } })).path, ["mounts", "A"]);
    assert_eq!(
        refusal(json!({ "frame": "sensor", "sensor": "X", "channels": "P" })).path,
        ["sensor"]
    );
    assert_eq!(refusal(json!({ "sensor": "VELODYNE" })).path, ["sensor"]);
    assert_eq!(refusal(json!({ "max_gap": "-1s" })).path, ["max_gap"]);
    for (options, message) in [
        (json!({ "max_gap": "1s" }), "`max_gap` needs `choose = \"interpolate\"`"),
        (json!({ "max_gap": "1s", "choose": "at" }), "`max_gap` needs `choose = \"interpolate\"`"),
        (json!({ "wait": "2s" }), "`wait` needs `choose = \"at\"` or `choose = \"interpolate\"`"),
    ] {
        assert_eq!(refusal(options).message, message);
    }
    assert_eq!(refusal(json!({ "calibration": "/nowhere.toml" })).path, ["calibration"]);
}
