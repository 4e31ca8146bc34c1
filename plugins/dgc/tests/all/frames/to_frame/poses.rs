//! Which pose each event gets, and how long it waits for it.

use serde_json::{Value, json};
use sluice_dgc::fuzzing::PointFrame;
use sluice_model::Stage;

use super::{near, points, xs};
use crate::frames::kit::{
    FrameRun, PayloadForm, ScriptedContent, at, in_source, make, origin, pose,
};

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
fn out_of_order_poses_are_counted() {
    let mut run = FrameRun::new("to-frame", json!({}));
    run.drive(&[pose(10, 1.0), pose(5, 2.0), pose(10, 2.0), pose(7, 2.0), origin(8)]);
    assert!(run.has_note("POSE: 2 of the poses are older than a previous one"), "{:?}", run.notes);
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
