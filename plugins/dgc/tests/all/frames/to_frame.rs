//! `to-frame`: results computed by hand, any order of events, and any batch boundaries.

use std::io::Write;

use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_dgc::fuzzing::PointFrame;
use sluice_model::Stage;

use crate::frames::kit::{
    FrameRun, OutputEvent, PayloadForm, ScriptedContent, ScriptedEvent, at, in_source, make,
    origin, pose,
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
fn the_last_pose_follows_log_order_rather_than_time() {
    let drive = [pose(100, 1.0), pose(50, 2.0), origin(120), pose(110, 3.0), origin(105)];
    assert_eq!(xs(&FrameRun::new("to-frame", json!({})).drive(&drive)), [(120, 2.0), (105, 3.0)]);
}

#[test]
fn the_newest_pose_before_an_event_is_waited_for() {
    let drive = [
        pose(0, 1.0),
        origin(25),
        pose(10, 2.0),
        at(22, ScriptedContent::Other),
        pose(20, 3.0),
        pose(30, 4.0),
    ];
    let mut run = FrameRun::new("to-frame", json!({ "choose": "at" }));
    assert_eq!(xs(&run.drive(&drive)), [(25, 3.0)]);
}

#[test]
fn poses_are_interpolated() {
    let drive = [
        at(0, ScriptedContent::Pose([0.0; 3], 0.0)),
        at(5, points(PointFrame::Body, &[[1.0, 0.0, 0.0]])),
        at(10, points(PointFrame::Body, &[[1.0, 0.0, 0.0]])),
        at(10, ScriptedContent::Pose([10.0, 0.0, 0.0], 90.0)),
    ];
    let outs = FrameRun::new("to-frame", json!({ "choose": "interpolate" })).drive(&drive);
    let half = std::f64::consts::FRAC_1_SQRT_2;
    assert!(near(&outs[1].points[0], &[5.0 + half, half, 0.0]), "{outs:?}");
    assert!(near(&outs[2].points[0], &[10.0, 1.0, 0.0]), "{outs:?}");
}

#[test]
fn poses_too_far_apart_are_not_interpolated() {
    let drive = [pose(0, 0.0), origin(50), pose(101, 1.0), origin(102), pose(150, 2.0)];
    let mut run = FrameRun::new("to-frame", json!({ "choose": "interpolate" }));
    let found = xs(&run.drive(&drive));
    assert_eq!(found.iter().map(|(ms, _)| *ms).collect::<Vec<_>>(), [102]);
    assert!(run.has_note("VELODYNE: 1 event with 1 point lay between poses"), "{:?}", run.notes);
    assert!(run.has_note("100ms"), "{:?}", run.notes);
}

#[test]
fn a_pose_that_is_too_old_is_not_used_unless_the_age_is_unlimited() {
    let drive = [pose(0, 1.0), origin(1000), origin(1001)];
    let mut run = FrameRun::new("to-frame", json!({}));
    assert_eq!(xs(&run.drive(&drive)), [(1000, 1.0)]);
    assert!(
        run.has_note("VELODYNE: 1 event with 1 point had no pose within 1s"),
        "{:?}",
        run.notes
    );
    let mut run = FrameRun::new("to-frame", json!({ "max_age": "none" }));
    assert_eq!(xs(&run.drive(&drive)), [(1000, 1.0), (1001, 1.0)]);
}

#[test]
fn events_before_any_pose_are_dropped_and_noted_by_channel() {
    for choose in ["last", "at", "interpolate"] {
        let mut run = FrameRun::new("to-frame", json!({ "choose": choose }));
        let outs = run.drive(&[origin(0), origin(1), pose(10, 1.0), origin(10)]);
        assert_eq!(xs(&outs), [(10, 1.0)], "{choose}");
        assert_eq!(run.filtered, 2);
        assert!(
            run.has_note("VELODYNE: 2 events with 2 points came before any pose"),
            "{:?}",
            run.notes
        );
    }
}

#[test]
fn a_log_without_poses_yields_no_points() {
    for choose in ["last", "at", "interpolate"] {
        let mut run = FrameRun::new("to-frame", json!({ "choose": choose }));
        assert_eq!(run.drive(&[origin(0), at(1, ScriptedContent::Other)]).len(), 1);
        assert_eq!(run.filtered, 1);
    }
}

#[test]
fn an_event_without_a_pose_can_end_the_run() {
    let mut run = FrameRun::new("to-frame", json!({ "without_pose": "stop" }));
    let batch = run.batch(&[origin(0)], PayloadForm::Decoded);
    let stopped = run.all(vec![batch]).unwrap_err().to_string();
    assert!(stopped.contains("an event of `VELODYNE` of 1970-01-01T"), "{stopped}");
}

#[test]
fn events_wait_no_longer_than_wait() {
    // Without a later pose, an event is resolved when its channel is more than `wait` further on.
    let drive = [pose(0, 1.0), origin(5), origin(406), pose(4, 2.0)];
    let at_once = json!({ "choose": "at", "wait": "400ms" });
    assert_eq!(xs(&FrameRun::new("to-frame", at_once).drive(&drive)), [(5, 1.0), (406, 1.0)]);
    let later = json!({ "choose": "at", "wait": "402ms" });
    assert_eq!(xs(&FrameRun::new("to-frame", later).drive(&drive)), [(5, 2.0), (406, 2.0)]);
}

#[test]
fn waiting_does_not_depend_on_channels_that_a_source_may_leave_out() {
    let options = || json!({ "choose": "at", "wait": "400ms" });
    let with = [
        pose(0, 1.0),
        origin(5),
        at(405, ScriptedContent::Other),
        at(406, ScriptedContent::Other),
        pose(4, 2.0),
    ];
    let without = [pose(0, 1.0), origin(5), pose(4, 2.0)];
    let found = xs(&FrameRun::new("to-frame", options()).drive(&with));
    assert_eq!(found, xs(&FrameRun::new("to-frame", options()).drive(&without)));
    // A pose that arrives too late is not used, whatever came before it.
    let late = [pose(0, 1.0), origin(5), pose(500, 2.0)];
    assert_eq!(xs(&FrameRun::new("to-frame", options()).drive(&late)), [(5, 1.0)]);
}

#[test]
fn pending_events_are_bounded_by_their_points() {
    // 64 bytes a point, and 32 MiB in all. Points that need no pose wait with the others.
    for frame in [PointFrame::Body, PointFrame::Local] {
        let many = points(frame, &vec![[1.0; 3]; 400_000]);
        let others = |ms| at(ms, many.clone());
        let drive = [pose(0, 1.0), origin(5), others(6), others(7), pose(4, 2.0), pose(9, 3.0)];
        let outs = FrameRun::new("to-frame", json!({ "choose": "at" })).drive(&drive);
        let expected = if frame == PointFrame::Body { [1.0, 2.0, 3.0] } else { [1.0, 1.0, 1.0] };
        assert_eq!(xs(&outs), [(5, expected[0]), (6, expected[1]), (7, expected[2])]);
    }
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
fn points_use_the_poses_of_their_own_source() {
    for choose in ["last", "at", "interpolate"] {
        let drive = [
            in_source("a", pose(0, 1.0)),
            in_source("b", pose(0, 100.0)),
            in_source("a", origin(5)),
            in_source("b", origin(5)),
            in_source("b", pose(10, 100.0)),
            in_source("a", pose(10, 1.0)),
        ];
        let outs = FrameRun::new("to-frame", json!({ "choose": choose })).drive(&drive);
        assert_eq!(xs(&outs), [(5, 1.0), (5, 100.0)], "{choose}");
    }
}

#[test]
fn points_without_poses_of_their_own_use_those_of_the_only_other_source() {
    for choose in ["last", "at", "interpolate"] {
        let (a, b) = (in_source("a", pose(0, 1.0)), in_source("a", pose(10, 1.0)));
        let mut run = FrameRun::new("to-frame", json!({ "choose": choose }));
        let outs = run.drive(&[a.clone(), in_source("laser", origin(5)), b.clone()]);
        assert_eq!(xs(&outs), [(5, 1.0)], "{choose}");
        assert!(run.notes.is_empty(), "{:?}", run.notes);
        // With two others it is ambiguous.
        let mut run = FrameRun::new("to-frame", json!({ "choose": choose }));
        let outs = run.drive(&[a, in_source("b", pose(0, 9.0)), in_source("laser", origin(5)), b]);
        assert_eq!(xs(&outs), []);
        assert!(
            run.has_note("came from a source without a pose, while several other"),
            "{:?}",
            run.notes
        );
    }
}

#[test]
fn a_source_that_used_poses_of_another_before_its_own_is_noted() {
    let drive = [
        in_source("a", pose(0, 1.0)),
        in_source("b", origin(5)),
        in_source("b", pose(6, 9.0)),
        in_source("b", origin(7)),
    ];
    let mut run = FrameRun::new("to-frame", json!({}));
    assert_eq!(xs(&run.drive(&drive)), [(5, 1.0), (7, 9.0)]);
    assert!(run.has_note("1 event of `b` used poses of `a` before"), "{:?}", run.notes);
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
fn out_of_order_poses_are_counted() {
    let mut run = FrameRun::new("to-frame", json!({}));
    run.drive(&[pose(10, 1.0), pose(5, 2.0), pose(10, 2.0), pose(7, 2.0), origin(8)]);
    assert!(run.has_note("POSE: 2 of the poses are older than a previous one"), "{:?}", run.notes);
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
fn a_clock_may_be_set_back() {
    let drive = [
        pose(50_000, 1.0),
        origin(50_005),
        pose(50_010, 2.0),
        origin(50_015),
        pose(1_000, 3.0),
        origin(1_005),
        pose(1_010, 4.0),
    ];
    let mut run = FrameRun::new("to-frame", json!({ "choose": "at" }));
    assert_eq!(xs(&run.drive(&drive)), [(50_005, 1.0), (50_015, 2.0), (1_005, 3.0)]);
    let mut run = FrameRun::new("to-frame", json!({ "choose": "interpolate" }));
    assert_eq!(xs(&run.drive(&drive)), [(50_005, 1.5), (1_005, 3.5)]);
}

#[test]
fn invalid_poses_are_noted_and_not_used() {
    let mut run = FrameRun::new("to-frame", json!({}));
    let outs = run.drive(&[pose(0, 1.0), at(5, ScriptedContent::NoPose), origin(6)]);
    assert_eq!(xs(&outs), [(6, 1.0)]);
    assert!(run.has_note("POSE: poses with an orientation of length 0"), "{:?}", run.notes);
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
    assert_eq!(refusal(json!({ "calibration": "/nowhere.toml" })).path, ["calibration"]);
}

#[test]
fn time_windows_are_pushed_down_with_the_reach_of_poses() {
    let query = |options: Value| {
        let parts = make("to-frame", options).unwrap().into_parts();
        let Some(Stage::Fold(fold)) = parts.into_iter().next() else { panic!("no fold") };
        fold.query()
    };
    let last = query(json!({}));
    assert!(last.keeps_times && last.keeps_channels);
    assert_eq!(last.reach, 2_000_000_000);
    assert!(last.also.unwrap().may_want("POSE"));
    assert!(!query(json!({ "max_age": "none" })).keeps_times);
    let between = query(json!({ "choose": "interpolate", "wait": "3s" }));
    assert_eq!(between.reach, 4_100_000_000);
}

fn scripted_drives() -> impl Strategy<Value = Vec<ScriptedEvent>> {
    let step = prop_oneof![8 => -3i64..30, 1 => -40i64..0, 1 => 0i64..1500, 1 => -3000i64..0];
    let what = prop_oneof![
        4 => (-9.0..9.0, -180.0..180.0)
            .prop_map(|(x, yaw)| ScriptedContent::Pose([x, 2.0 * x, 0.5], yaw)),
        1 => Just(ScriptedContent::NoPose),
        2 => (0usize..4).prop_map(|n| points(PointFrame::Sensor, &vec![[1.0, 2.0, 3.0]; n])),
        3 => (0usize..4).prop_map(|n| points(PointFrame::Body, &vec![[4.0, 5.0, 6.0]; n])),
        1 => Just(points(PointFrame::Local, &[[7.0, 8.0, 9.0]])),
        1 => Just(ScriptedContent::Other),
    ];
    proptest::collection::vec((step, what), 0..80).prop_map(|steps| {
        let mut ms = 100_000;
        let next = |(step, what)| {
            ms += step;
            at(ms, what)
        };
        steps.into_iter().map(next).collect()
    })
}

type DriveOutcome = (Vec<OutputEvent>, u64, std::collections::BTreeMap<String, u64>);

fn outcome(
    options: &Value,
    drive: &[ScriptedEvent],
    cuts: &[bool],
    form: PayloadForm,
) -> DriveOutcome {
    let mut run = FrameRun::new("to-frame", options.clone());
    let mut batches = Vec::new();
    let mut rest = drive;
    while !rest.is_empty() {
        let begun = drive.len() - rest.len();
        let is_cut = |at: &usize| cuts.get(begun + at).copied().unwrap_or(false);
        let (piece, after) = rest.split_at((1..rest.len()).find(is_cut).unwrap_or(rest.len()));
        batches.push(run.batch(piece, form));
        rest = after;
    }
    let out = run.all(batches).unwrap();
    let mut outs = run.outs(&out);
    // Ignores whether unselected poses are decoded.
    outs.iter_mut().filter(|out| out.channel == "POSE").for_each(|out| {
        *out = OutputEvent {
            timestamp: out.timestamp,
            payload: out.payload.clone(),
            ..OutputEvent::default()
        };
    });
    (outs, run.filtered, run.notes)
}

fn options() -> impl Strategy<Value = Value> {
    let choose = prop_oneof![Just("last"), Just("at"), Just("interpolate")];
    let age = prop_oneof![Just("none"), Just("1s"), Just("15ms")];
    (choose, age, 0i64..900).prop_map(|(choose, age, wait)| {
        json!({ "choose": choose, "max_age": age, "wait": format!("{wait}ms") })
    })
}

proptest! {
    #[test]
    fn batch_boundaries_and_decoders_do_not_matter(
        options in options(), drive in scripted_drives(),
        cuts in proptest::collection::vec(any::<bool>(), 80),
    ) {
        let whole = outcome(&options, &drive, &[], PayloadForm::Decoded);
        prop_assert_eq!(whole.0.len() as u64 + whole.1, drive.len() as u64);
        prop_assert!(whole.0.iter().all(|out| out.frame.is_none_or(|f| f == PointFrame::Local)));
        prop_assert_eq!(&outcome(&options, &drive, &cuts, PayloadForm::Decoded), &whole);
        prop_assert_eq!(&outcome(&options, &drive, &cuts, PayloadForm::Raw), &whole);
    }

    #[test]
    fn there_and_back_is_where_it_was(
        place in prop::array::uniform3(-50.0..50.0),
        (body, yaw) in (prop::array::uniform3(-1e3..1e3), -180.0..180.0),
    ) {
        let points_there = points(PointFrame::Sensor, &[place]);
        let there = [at(0, ScriptedContent::Pose(body, yaw)), at(1, points_there)];
        let outs = FrameRun::new("to-frame", json!({})).drive(&there);
        let back = [there[0].clone(), at(1, points(PointFrame::Local, &[outs[1].points[0]]))];
        let mut run = FrameRun::new("to-frame", json!({ "frame": "sensor", "pose": "POSE" }));
        let back = run.drive(&back);
        prop_assert!(near(&back[1].points[0], &place), "{:?}", back);
    }
}
