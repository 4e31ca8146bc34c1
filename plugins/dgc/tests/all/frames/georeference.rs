//! `georeference`: results computed by hand, and any order of events.

use serde_json::{Value, json};
use sluice_dgc::fuzzing::PointFrame;

use crate::frames::kit::{
    FrameRun, OutputEvent, PayloadForm, ScriptedContent, ScriptedEvent, at, make,
};

/// The frame is turned by a quarter: its y points west, and its x north.
fn reference(ms: i64) -> ScriptedEvent {
    let quarter = std::f64::consts::FRAC_PI_2;
    at(
        ms,
        ScriptedContent::GpsReference([100.0, 200.0, 10.0], [34.5845, -117.359, 872.0, -quarter]),
    )
}

fn points(ms: i64, place: [f64; 3]) -> ScriptedEvent {
    at(ms, ScriptedContent::Points("VELODYNE", PointFrame::Local, vec![place]))
}

fn place(out: &OutputEvent) -> [f64; 3] {
    ["latitude", "longitude", "altitude"].map(|name| {
        let of = if out.points.is_empty() { &out.numbers } else { &out.members };
        of[name][0]
    })
}

#[test]
fn points_match_positions_computed_by_hand() {
    let mut run = FrameRun::new("georeference", json!({}));
    // A kilometre along x, which is to the north, and three metres above the reference.
    let outs = run.drive(&[reference(0), points(5, [1100.0, 200.0, 13.0])]);
    let [latitude, longitude, altitude] = place(&outs[1]);
    assert!((latitude - 34.593_514_454_551_88).abs() < 1e-12, "{latitude}");
    assert!((longitude + 117.359).abs() < 1e-12, "{longitude}");
    assert_eq!(altitude, 875.0);
    assert_eq!(
        (outs[1].points[0], outs[1].frame),
        ([1100.0, 200.0, 13.0], Some(PointFrame::Local))
    );
    assert_eq!(outs[1].columns, ["utime", "points"]);
}

#[test]
fn poses_get_position_and_heading_whether_decoded_or_not() {
    let drive = [reference(0), at(5, ScriptedContent::Pose([100.0, 200.0, 10.0], 30.0))];
    let mut found = Vec::new();
    for form in [PayloadForm::Decoded, PayloadForm::Raw] {
        let mut run = FrameRun::new("georeference", json!({ "channels": "POSE" }));
        let batch = run.batch(&drive, form);
        let out = run.all(vec![batch]).unwrap();
        let outs = run.outs(&out);
        assert_eq!(place(&outs[1]), [34.5845, -117.359, 872.0]);
        // Local x is north, and the vehicle is turned by 30 degrees to the left of it.
        assert!((outs[1].numbers["heading"][0] - 330.0).abs() < 1e-9, "{outs:?}");
        assert!(outs[1].kind == "sluice.pose.globe" && outs[1].payload.is_empty());
        assert!(outs[1].columns.contains(&"accel".to_owned()));
        assert!(!outs[0].payload.is_empty(), "references pass unchanged");
        found.push(outs[1].clone());
    }
    assert_eq!(found[0], found[1]);
}

#[test]
fn undecoded_poses_pass_unless_their_channel_is_named() {
    let mut run = FrameRun::new("georeference", json!({}));
    let batch = run.batch(&[at(5, ScriptedContent::Pose([0.0; 3], 0.0))], PayloadForm::Raw);
    let out = run.all(vec![batch]).unwrap();
    assert!(!run.outs(&out)[0].payload.is_empty() && run.filtered == 0);
}

#[test]
fn points_of_another_frame_are_refused_with_advice() {
    let mut run = FrameRun::new("georeference", json!({}));
    let body = ScriptedContent::Points("VELODYNE", PointFrame::Body, vec![[0.0; 3]]);
    let batch = run.batch(&[reference(0), at(1, body)], PayloadForm::Decoded);
    let refused = run.all(vec![batch]).unwrap_err().to_string();
    assert!(refused.contains("body frame") && refused.contains("`to-frame`"), "{refused}");
}

#[test]
fn events_without_a_reference_are_dropped_and_noted() {
    let drive =
        [points(0, [0.0; 3]), reference(0), points(10_000, [0.0; 3]), points(10_001, [0.0; 3])];
    let mut run = FrameRun::new("georeference", json!({}));
    assert_eq!(run.drive(&drive).len(), 2);
    assert_eq!(run.filtered, 2);
    assert!(
        run.has_note("VELODYNE: 1 event with 1 point came before any GPS reference"),
        "{:?}",
        run.notes
    );
    assert!(run.has_note("had no GPS reference within 10s"), "{:?}", run.notes);
    let mut run = FrameRun::new("georeference", json!({ "without_reference": "stop" }));
    let batch = run.batch(&drive, PayloadForm::Decoded);
    assert!(run.all(vec![batch]).unwrap_err().to_string().contains("`without_reference"));
}

#[test]
fn only_a_later_reference_is_waited_for() {
    let error = make("georeference", json!({ "wait": "2s" })).err().unwrap();
    assert_eq!(
        (error.path, &*error.message),
        (vec!["wait".into()], "`wait` needs `choose = \"at\"`")
    );
    make("georeference", json!({ "wait": "2s", "choose": "at" })).unwrap();
}

#[test]
fn events_without_anything_to_place_are_noted() {
    let mut run = FrameRun::new("georeference", json!({ "channels": ["POSE", "OTHER"] }));
    let batch = run.batch(&[reference(0), at(1, ScriptedContent::Other)], PayloadForm::Decoded);
    run.all(vec![batch]).unwrap();
    assert!(
        run.has_note("OTHER: events without points or poses; passed unchanged"),
        "{:?}",
        run.notes
    );
    assert!(
        run.has_note("no event had points: add `velodyne` or `laser` before"),
        "{:?}",
        run.notes
    );
    let mut run = FrameRun::new("georeference", json!({}));
    run.drive(&[reference(0), points(5, [0.0; 3])]);
    assert!(run.notes.is_empty(), "{:?}", run.notes);
}

#[test]
fn references_by_time_are_waited_for() {
    let moved = at(8, ScriptedContent::GpsReference([0.0; 3], [34.0, -117.0, 0.0, 0.0]));
    let drive = [reference(0), points(10, [0.0; 3]), moved, reference(20)];
    let latitude =
        |options: Value| place(&FrameRun::new("georeference", options).drive(&drive)[1])[0];
    assert_eq!(latitude(json!({ "choose": "at" })), 34.0);
    assert!(latitude(json!({})) > 34.5);
}

#[test]
fn invalid_references_are_not_used() {
    for wrong in [[90.0, 0.0], [91.0, 0.0], [f64::NAN, 0.0], [0.0, 181.0], [0.0, f64::INFINITY]] {
        let mut run = FrameRun::new("georeference", json!({}));
        let bad = at(1, ScriptedContent::GpsReference([0.0; 3], [wrong[0], wrong[1], 0.0, 0.0]));
        assert_eq!(run.drive(&[bad, points(2, [0.0; 3])]).len(), 1);
        assert!(run.has_note("GPS_TO_LOCAL: GPS references with a number"), "{:?}", run.notes);
    }
}

#[test]
fn negative_durations_are_refused() {
    assert_eq!(make("georeference", json!({ "wait": "-1s" })).unwrap_err().path, ["wait"]);
    assert_eq!(make("georeference", json!({ "max_age": "-1s" })).unwrap_err().path, ["max_age"]);
}
