//! Scans in decoded rows.

use std::sync::Arc;

use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{
    ArrayRef, FixedSizeListArray, Float32Array, Float64Array, Int64Array, ListArray,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_model::{Batch, Payloads, Rows};

use crate::points::kit::{EventPoints, PointRun, RawEvent, make, points, rows};

const UTIME: i64 = 1_194_098_400_000_000;

#[derive(Clone, Debug)]
struct TestScan {
    ranges: Vec<f32>,
    intensities: Vec<f32>,
    rad0: f32,
    radstep: f32,
}

fn scan(ranges: &[f32]) -> TestScan {
    TestScan { ranges: ranges.to_vec(), intensities: Vec::new(), rad0: -0.5, radstep: 0.25 }
}

fn lists(lists: impl Iterator<Item = Vec<f32>>) -> ArrayRef {
    let lists = lists.map(|list| Some(list.into_iter().map(Some).collect::<Vec<_>>()));
    Arc::new(ListArray::from_iter_primitive::<Float32Type, _, _>(lists))
}

fn decoded(scans: &[TestScan]) -> Rows {
    let utimes: Vec<i64> = (0..scans.len() as i64).map(|event| UTIME + event).collect();
    decoded_at(utimes, scans)
}

fn decoded_at(utimes: Vec<i64>, scans: &[TestScan]) -> Rows {
    let events: Vec<u32> = (0..scans.len() as u32).collect();
    let floats = |of: fn(&TestScan) -> f32| -> ArrayRef {
        Arc::new(scans.iter().map(|scan| Some(of(scan))).collect::<Float32Array>())
    };
    rows(
        &events,
        Payloads::Kept,
        vec![
            ("utime", Arc::new(Int64Array::from(utimes)) as ArrayRef),
            ("ranges", lists(scans.iter().map(|scan| scan.ranges.clone()))),
            ("intensities", lists(scans.iter().map(|scan| scan.intensities.clone()))),
            ("rad0", floats(|scan| scan.rad0)),
            ("radstep", floats(|scan| scan.radstep)),
        ],
    )
}

fn raw_batch(run: &PointRun, scans: &[TestScan]) -> Batch {
    let events: Vec<RawEvent> =
        scans.iter().map(|_| ("SKIRT_FL", UTIME * 1000, b"as it was before".to_vec())).collect();
    run.batch(&events)
}

fn batch(run: &PointRun, scans: &[TestScan]) -> Batch {
    let batch = raw_batch(run, scans);
    if scans.is_empty() { batch } else { batch.with_rows(vec![decoded(scans)]) }
}

fn event_points(options: Value, scans: &[TestScan]) -> (Vec<EventPoints>, Vec<String>) {
    let mut run = PointRun::new("laser", options);
    let batch = batch(&run, scans);
    let out = run.apply(batch).unwrap();
    (points(&out), run.counted_notes())
}

#[test]
fn samples_are_at_their_angles_in_a_plane() {
    let (event_points, notes) = event_points(json!({}), &[scan(&[1.0, 2.0, 3.0])]);
    assert!(notes.is_empty(), "{notes:?}");
    assert_eq!((event_points[0].utime, event_points[0].points.len()), (UTIME, 3));
    let point = &event_points[0].points[1];
    assert_eq!(point.xyz, [2.0 * (-0.25_f64).cos(), 2.0 * (-0.25_f64).sin(), 0.0]);
    assert_eq!((point.laser, point.time, point.intensity), (1, UTIME * 1000, None));
    assert_eq!(point.azimuth, (-0.25_f64).to_degrees() as f32);
}

#[test]
fn scans_with_impossible_times_have_that_of_their_event() {
    let mut run = PointRun::new("laser", json!({}));
    let scans = [0; 4].map(|_| scan(&[1.0]));
    let times = vec![UTIME + 1, i64::MAX, i64::MIN, 10_000_000_000_000_000];
    let batch = raw_batch(&run, &scans).with_rows(vec![decoded_at(times, &scans)]);
    let found = points(&run.apply(batch).unwrap());
    let times: Vec<_> =
        found.iter().map(|of_event| (of_event.utime, of_event.points[0].time)).collect();
    let own = UTIME + 1;
    assert_eq!(times[0], (own, own * 1000));
    assert_eq!(times[1..], [(UTIME, UTIME * 1000); 3]);
    assert_eq!(
        run.counted_notes(),
        ["3 channel `SKIRT_FL`: `utime` beyond the years 1677 to 2262; the event's time is used"]
    );
}

#[test]
fn invalid_ranges_yield_no_points() {
    let odd = scan(&[0.0, 81.91, f32::NAN, f32::INFINITY, -1.0, 79.0, 5.0]);
    let (event_points, notes) = event_points(json!({}), &[odd]);
    let samples: Vec<u16> = event_points[0].points.iter().map(|point| point.laser).collect();
    assert_eq!(samples, [5, 6]);
    assert_eq!(
        notes,
        ["5 channel `SKIRT_FL`: samples without a point: out of range, masked, or not a number"]
    );
}

#[test]
fn limits_are_inclusive() {
    let options = json!({ "min_range": 2.0, "max_range": 3.0 });
    let (event_points, _) = event_points(options, &[scan(&[1.9, 2.0, 3.0, 3.5])]);
    assert_eq!(event_points[0].points.iter().map(|point| point.laser).collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn intensities_are_kept_if_there_is_one_per_range() {
    let lit = TestScan { intensities: vec![7.0, 8.0, 9.0], ..scan(&[1.0, 0.0, 3.0]) };
    let odd = TestScan { intensities: vec![7.0], ..scan(&[1.0]) };
    let few = TestScan { intensities: vec![7.0], ..scan(&[1.0, 1.0]) };
    let (event_points, notes) = event_points(json!({}), &[lit, scan(&[1.0]), odd, few]);
    let intensities: Vec<Vec<Option<f32>>> =
        event_points.iter().map(|t| t.points.iter().map(|p| p.intensity).collect()).collect();
    assert_eq!(
        intensities,
        [vec![Some(7.0), Some(9.0)], vec![None], vec![Some(7.0)], vec![None; 2]]
    );
    let wanted = "1 channel `SKIRT_FL`: \
                  scans with different numbers of intensities and ranges: points without intensity";
    assert!(notes.contains(&wanted.to_owned()), "{notes:?}");
}

#[test]
fn scans_with_other_number_types_are_accepted() {
    let mut run = PointRun::new("laser", json!({ "channels": "*" }));
    let ranges = [Some([Some(1.0), None, Some(2.0)])];
    let fixed: ArrayRef =
        Arc::new(FixedSizeListArray::from_iter_primitive::<Float64Type, _, _>(ranges, 3));
    let float = |value: f64| -> ArrayRef { Arc::new(Float64Array::from(vec![value])) };
    let columns = vec![("ranges", fixed), ("rad0", float(0.0)), ("radstep", float(0.5))];
    let batch = run.batch(&[("scan", 7_001, Vec::new())]);
    let batch = batch.with_rows(vec![rows(&[0], Payloads::Gone, columns)]);
    let out = run.apply(batch).unwrap();
    let event_points = points(&out);
    assert_eq!((event_points[0].utime, event_points[0].points[1].time), (7, 7_001));
    assert_eq!(event_points[0].points.iter().map(|point| point.laser).collect::<Vec<_>>(), [0, 2]);
}

#[test]
fn samples_on_the_own_vehicle_are_dropped() {
    let samples = |options: Value| {
        let mut run = PointRun::new("laser", options);
        let batch = run.batch(&[("BROOM_CL", 0, Vec::new())]);
        // From 0.75 to 1.65 rad; the vehicle is from 0.9 to 1.6.
        let scan = TestScan { rad0: 0.75, radstep: 0.1, ..scan(&[1.0; 10]) };
        let out = run.apply(batch.with_rows(vec![decoded(&[scan])])).unwrap();
        points(&out)[0].points.iter().map(|point| point.laser).collect::<Vec<_>>()
    };
    assert_eq!(samples(json!({})), [0, 1, 9]);
    assert_eq!(samples(json!({ "masks": false })).len(), 10);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("vehicle.cfg");
    let scanner = "BROOM_CL { position = [0, 0, 0]; rpy = [0, 0, 0]; mask = [1.2, 3.0]; }";
    std::fs::write(&path, format!("calibration {{ {scanner} }}")).unwrap();
    assert_eq!(samples(json!({ "calibration": path })), [0, 1, 2, 3, 4]);
    let refused = make("laser", json!({ "calibration": "no-such" })).unwrap_err();
    assert_eq!(refused.path, ["calibration"]);
    assert!(make("laser", json!({ "calibration": "no-such", "masks": false })).is_ok());
}

#[test]
fn mounts_name_the_mask_of_a_channel_and_a_missing_one_is_noted() {
    let event_points = |channel, options: Value| {
        let mut run = PointRun::new("laser", options);
        let batch = run.batch(&[(channel, 0, Vec::new())]);
        let scan = TestScan { rad0: 0.75, radstep: 0.1, ..scan(&[1.0; 10]) };
        let out = run.apply(batch.with_rows(vec![decoded(&[scan])])).unwrap();
        let has_told =
            run.counted_notes().iter().any(|notes| notes.contains("neither a mask nor a sensor"));
        (points(&out)[0].points.len(), has_told)
    };
    assert_eq!(event_points("BROOM_X", json!({})), (10, true));
    assert_eq!(
        event_points("BROOM_X", json!({ "mounts": { "BROOM_[XY]": "BROOM_CL" } })),
        (3, false)
    );
    // It is known, and sees nothing of the vehicle.
    assert_eq!(event_points("SKIRT_FL", json!({})), (10, false));
    assert_eq!(event_points("BROOM_X", json!({ "masks": false })), (10, false));
    let refused = make("laser", json!({ "mounts": { "BROOM_X": "nobody" } })).unwrap_err();
    assert_eq!(refused.path, ["mounts", "BROOM_X"]);
}

#[test]
fn events_without_a_scan_are_noted_by_reason() {
    let mut run = PointRun::new("laser", json!({}));
    let batch =
        run.batch(&[("BROOM_L", 0, vec![1]), ("BROOM_L", 0, vec![2]), ("POSE", 0, vec![3])]);
    let column: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let out =
        run.apply(batch.with_rows(vec![rows(&[1], Payloads::Kept, vec![("v", column)])])).unwrap();
    assert_eq!((run.undecoded, out.len()), (2, 3));
    assert_eq!(run.counted_notes().len(), 2);
    let wrong = TestScan { rad0: f32::NAN, ..scan(&[1.0]) };
    let (points, notes) = event_points(json!({}), &[wrong, scan(&vec![1.0; 65_537])]);
    assert!(points.is_empty());
    assert_eq!(
        notes,
        [
            "1 channel `SKIRT_FL`: `rad0` or `radstep` is not a finite number",
            "1 channel `SKIRT_FL`: scan of more than 65536 samples",
        ]
    );
}

#[test]
fn limits_that_leave_nothing_are_refused() {
    let refused = |options: Value| make("laser", options).unwrap_err().path;
    assert_eq!(refused(json!({ "min_range": -0.1 })), ["min_range"]);
    assert_eq!(refused(json!({ "max_range": 0.0 })), ["max_range"]);
}

fn scans() -> impl Strategy<Value = TestScan> {
    let floats = || prop_oneof![0.0f32..90.0, any::<f32>(), Just(81.91)];
    let ways =
        prop_oneof![Just((-1.5f32, 0.017)), Just((-1.5, 0.018)), (any::<f32>(), any::<f32>())];
    (proptest::collection::vec(floats(), 0..40), any::<bool>(), any::<bool>(), ways).prop_map(
        |(ranges, lit, odd, (rad0, radstep))| {
            let count = if lit { ranges.len() + usize::from(odd) } else { 0 };
            TestScan { ranges, intensities: vec![0.5; count], rad0, radstep }
        },
    )
}

proptest! {
    #[test]
    fn batch_boundaries_do_not_matter(
        scans in proptest::collection::vec((scans(), any::<bool>()), 1..20),
    ) {
        let plain =
            |scans: &[(TestScan, bool)]| scans.iter().map(|(scan, _)| scan.clone()).collect();
        let of = |pieces: Vec<Vec<TestScan>>| {
            let mut run = PointRun::new("laser", json!({}));
            let (mut all, mut before) = (Vec::new(), 0);
            for piece in pieces {
                let batch = batch(&run, &piece);
                let out = run.apply(batch).unwrap();
                all.extend(points(&out).into_iter().map(|event_points| {
                    // In pieces, the rows count anew.
                    let points = event_points.points.into_iter();
                    let points: Vec<_> = points.map(|p| (p.xyz, p.intensity, p.laser)).collect();
                    (before + event_points.event, points)
                }));
                before += piece.len() as u32;
            }
            (all, run.notes, run.undecoded)
        };
        let whole = of(vec![plain(&scans)]);
        prop_assert_eq!(&of(scans.chunk_by(|_, next| !next.1).map(plain).collect()), &whole);
        let sound = |xyz: &[f64; 3]| xyz.iter().all(|axis| axis.abs() <= 79.0);
        prop_assert!(whole.0.iter().all(|(_, points)| points.iter().all(|(xyz, ..)| sound(xyz))));
    }
}
