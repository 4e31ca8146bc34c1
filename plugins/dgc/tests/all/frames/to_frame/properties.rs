//! Any drive, cut into batches anywhere, and points moved there and back.

use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_dgc::fuzzing::PointFrame;

use super::{near, points};
use crate::frames::kit::{FrameRun, OutputEvent, PayloadForm, ScriptedContent, ScriptedEvent, at};

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
    (choose, age, 0i64..900).prop_map(|(choose, age, wait)| match choose {
        "last" => json!({ "choose": choose, "max_age": age }),
        _ => json!({ "choose": choose, "max_age": age, "wait": format!("{wait}ms") }),
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
