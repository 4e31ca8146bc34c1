mod kit;

use std::collections::BTreeMap;
use std::path::PathBuf;

use arrow_array::cast::AsArray;
use arrow_array::types::Float32Type;
use serde_json::{Value, json};
use sluice_model::StageContext;

use self::kit::*;
use super::*;
use crate::points::{PointFrame, Points};

#[test]
fn points_get_the_pixel_and_colour_at_their_projection() {
    let around = [[11.0, 1.0, 3.0], [11.0, -1.0, 3.0], [11.0, 1.0, 1.0], [11.0, -1.0, 1.0]];
    let scan = Scan(5, PointFrame::Body, [&around[..], &[BEHIND]].concat());
    let seen = CameraRun::ahead().seen(&[image(0), scan]);
    let positions =
        [[40.0, 15.0, 10.0], [60.0, 15.0, 10.0], [40.0, 35.0, 10.0], [60.0, 35.0, 10.0]];
    for ((seen, position), colour) in seen.iter().zip(positions).zip(QUARTERS) {
        assert!(is_at(seen, position), "{seen:?} is not at {position:?}");
        let found = seen.as_ref().unwrap().colour.unwrap();
        assert!(is_like(found, colour), "{found:?} is not {colour:?}");
    }
    assert_eq!((seen.len(), &seen[4]), (5, &None));
}

#[test]
fn pixels_are_those_of_the_image_as_it_was_sent() {
    let half = Image("CAM_A", 0, quarters(50, 25));
    let seen = CameraRun::ahead().seen(&[half, Scan(0, PointFrame::Body, vec![UPPER_LEFT])]);
    assert!(is_at(&seen[0], [20.0, 7.5, 10.0]), "{seen:?}");
    assert!(is_like(seen[0].as_ref().unwrap().colour.unwrap(), QUARTERS[0]));
}

#[test]
fn points_of_the_local_frame_are_projected_from_the_pose_at_the_time_of_the_image() {
    let point = || Scan(60, PointFrame::Local, vec![[16.0, 1.0, 3.0]]);
    // Between its two poses the vehicle was at 5 metres.
    let events = [Pose(0, 0.0, 0.0), image(50), point(), Pose(100, 10.0, 0.0), point()];
    let seen = CameraRun::ahead().seen(&events);
    assert!(is_at(&seen[0], [50.0 - 100.0 / 15.0, 25.0 - 100.0 / 15.0, 15.0]), "{seen:?}");
    assert!(is_at(&seen[1], [40.0, 15.0, 10.0]), "{seen:?}");
}

#[test]
fn a_vehicle_that_has_turned_sees_what_is_ahead_of_it_now() {
    let scan = Scan(0, PointFrame::Local, vec![[-1.0, 11.0, 3.0], UPPER_LEFT]);
    let seen = CameraRun::ahead().seen(&[Pose(0, 0.0, 90.0), image(0), scan]);
    assert!(is_at(&seen[0], [40.0, 15.0, 10.0]), "{seen:?}");
    assert_eq!(seen[1], None);
}

#[test]
fn points_of_a_sensor_are_projected_through_its_mount() {
    let mut run = CameraRun::ahead();
    let seen = run.seen(&[image(0), Scan(0, PointFrame::Sensor, vec![[10.0, 0.0, 0.0]])]);
    assert!(is_at(&seen[0], [40.0, 15.0, 10.0]), "{seen:?}");
}

#[test]
fn an_image_that_is_too_old_or_too_young_is_not_used() {
    let at = |millis| Scan(millis, PointFrame::Body, vec![UPPER_LEFT]);
    let mut run = CameraRun::ahead();
    let seen = run.seen(&[at(0), image(1000), at(799), at(800), at(1200), at(1201)]);
    let is_seen: Vec<bool> = seen.iter().map(Option::is_some).collect();
    assert_eq!(is_seen, [false, false, true, true, false]);
    assert_eq!(run.note_count("SCAN: events without an image of any camera"), 3);
}

#[test]
fn points_of_the_local_frame_without_a_pose_are_not_projected_and_noted() {
    let mut run = CameraRun::ahead();
    let scan = || Scan(0, PointFrame::Local, vec![UPPER_LEFT]);
    assert_eq!(run.seen(&[Pose(-5000, 0.0, 0.0), image(0), scan(), scan()]), [None, None]);
    assert_eq!(run.note_count("SCAN: events without a pose for the time of the images"), 2);
}

#[test]
fn a_damaged_image_yields_pixels_without_colours_and_is_noted() {
    let mut run = CameraRun::ahead();
    let whole = quarters(100, 50);
    for broken in [b"no JPEG".to_vec(), whole[..whole.len() / 2].to_vec()] {
        let events = [Image("CAM_A", 0, broken), Scan(0, PointFrame::Body, vec![UPPER_LEFT])];
        let seen = run.seen(&events);
        assert!(is_at(&seen[0], [40.0, 15.0, 10.0]), "{seen:?}");
        assert_eq!(seen[0].as_ref().unwrap().colour, None);
    }
    assert_eq!(run.note_count("CAM_A: events without colour"), 2);
}

#[test]
fn an_empty_image_is_noted_and_the_previous_one_is_used() {
    let mut run = CameraRun::ahead();
    let events =
        [image(0), Image("CAM_A", 50, vec![]), Scan(60, PointFrame::Body, vec![UPPER_LEFT])];
    assert!(run.seen(&events)[0].as_ref().unwrap().colour.is_some());
    assert_eq!(run.note_count("CAM_A: images that are empty"), 1);
}

#[test]
fn an_image_of_another_aspect_ratio_is_not_used_and_is_noted() {
    let mut run = CameraRun::ahead();
    let events = [Image("CAM_A", 0, quarters(64, 64)), Scan(0, PointFrame::Body, vec![UPPER_LEFT])];
    assert_eq!(run.seen(&events), [None]);
    assert_eq!(
        run.note_count("CAM_A: events whose image has another aspect ratio than ahead (100 x 50)"),
        1
    );
}

#[test]
fn pixels_do_not_depend_on_the_option_colour() {
    for file in [quarters(50, 25), quarters(100, 50)[..700].to_vec()] {
        let events = [Image("CAM_A", 0, file), Scan(0, PointFrame::Body, vec![UPPER_LEFT])];
        let positions = [true, false].map(|colour| {
            let mut run = CameraRun::new(json!({ "cameras": ["ahead"], "colour": colour }));
            let points = run.points(&events).remove(0);
            let u = points.member("u").unwrap().as_primitive::<Float32Type>().value(0);
            (u, run.note_count("CAM_A: images whose size differs from their message"))
        });
        assert_eq!(positions[0], positions[1]);
    }
    let half = Image("CAM_A", 0, quarters(50, 25));
    let mut run = CameraRun::new(json!({ "cameras": ["ahead"], "colour": false }));
    let seen = run.points(&[half, Scan(0, PointFrame::Body, vec![UPPER_LEFT])]);
    assert_eq!(seen[0].member("u").unwrap().as_primitive::<Float32Type>().value(0), 20.0);
    assert_eq!(run.note_count("CAM_A: images whose size differs from their message"), 1);
}

#[test]
fn an_image_is_shared_by_all_batches_that_see_it_and_never_copied() {
    let mut run = CameraRun::ahead();
    let scan = || Scan(0, PointFrame::Body, vec![UPPER_LEFT]);
    let files = [vec![image(0), scan()], vec![scan()]].map(|events| {
        let batch = run.batch(&events);
        let mut context = StageContext::new(&run.channels, None);
        let carried = run.fold.push(batch, &mut context).unwrap().remove(0);
        let points = carried.rows().iter().find_map(Points::from_rows).unwrap();
        attach_images::ImageViews::from_points(&points, 0).image(0).unwrap().clone()
    });
    assert!(files[0].ptr_eq(&files[1]));
}

#[test]
fn the_nearest_pose_is_used_if_the_gap_is_too_wide() {
    let scan = || Scan(60, PointFrame::Local, vec![[16.0, 1.0, 3.0]]);
    let events = [Pose(0, 0.0, 0.0), Pose(101, 5.0, 0.0), image(60), scan()];
    let seen = CameraRun::ahead().seen(&events);
    // Seen from the second pose, not from an interpolated one.
    assert!(is_at(&seen[0], [40.0, 15.0, 10.0]), "{seen:?}");
    let mut wide = CameraRun::new(json!({ "cameras": ["ahead"], "max_gap": "1s" }));
    assert!(wide.seen(&events)[0].as_ref().unwrap().depth > 11.0);
    let far = [Pose(-1100, 0.0, 0.0), Pose(1100, 0.0, 0.0), image(0), scan()];
    assert_eq!(CameraRun::ahead().seen(&far), [None]);
}

#[test]
fn mounts_name_the_sensor_of_a_channel() {
    let at = |mounts: Value| {
        let mut run = CameraRun::new(json!({ "cameras": ["ahead"], "mounts": mounts }));
        let seen = run.seen(&[image(0), Scan(0, PointFrame::Sensor, vec![[10.0, 0.0, 0.0]])]);
        seen[0].as_ref().map(|seen| (seen.u, seen.depth))
    };
    assert_eq!(at(json!({})), Some((40.0, 10.0)));
    let left = at(json!({ "SC*": "left" }));
    assert!(left.is_none_or(|position| position != (40.0, 10.0)), "{left:?}");
}

#[test]
fn points_that_no_camera_sees_can_be_dropped() {
    let mut run = CameraRun::new(json!({ "cameras": ["ahead"], "unseen": "drop" }));
    let scans = [vec![BEHIND, UPPER_LEFT], vec![BEHIND], vec![UPPER_LEFT, BEHIND, UPPER_LEFT]];
    let scans = scans.map(|points| Scan(0, PointFrame::Body, points));
    let points = run.points(&[&[image(0)], &scans[..]].concat());
    let [points] = points.as_slice() else { panic!("{points:?}") };
    assert_eq!([0, 1, 2].map(|row| points.range(row).len()), [1, 0, 2]);
    assert!(seen(points).iter().all(Option::is_some));
    assert_eq!(points.xyz()[0], [11.0; 3]);
}

#[test]
fn the_first_camera_that_sees_a_point_wins_and_is_named() {
    let left = [-1.0, 11.0, 3.0];
    let mut run = CameraRun::new(json!({ "cameras": ["CAM_R", "left", "ahead"] }));
    let images = ["CAM_A", "CAM_L"].map(|channel| Image(channel, 0, quarters(100, 50)));
    let round = Image("CAM_R", 0, quarters(100, 50));
    let scan = || Scan(0, PointFrame::Body, vec![UPPER_LEFT, left, BEHIND]);
    let events = [&images[..], &[scan(), round, scan()]].concat();
    let seen = run.seen(&events);
    let cameras = seen.iter().map(|seen| Some(seen.as_ref()?.camera.as_deref().unwrap()));
    let expected = [Some("ahead"), Some("left"), None, Some("round"), Some("left"), None];
    assert_eq!(cameras.collect::<Vec<_>>(), expected);
}

#[test]
fn pixels_may_refer_to_the_undistorted_image() {
    let events =
        [Image("CAM_R", 0, quarters(100, 50)), Scan(0, PointFrame::Body, vec![[11.0, 2.0, 2.0]])];
    let by = (1.0 / (1.0 + 1.2_f64.powi(4) * 0.04)).sqrt();
    let seen = CameraRun::new(json!({ "cameras": ["round"] })).seen(&events);
    assert!(is_at(&seen[0], [50.0 - 20.0 * by, 25.0, 10.0]), "{seen:?}");
    let flat =
        CameraRun::new(json!({ "cameras": ["round"], "pixel": "undistorted" })).seen(&events);
    assert!(is_at(&flat[0], [30.0, 25.0, 10.0]), "{flat:?}");
    assert_eq!(flat[0].as_ref().unwrap().colour, seen[0].as_ref().unwrap().colour);
}

#[test]
fn without_colour_images_are_not_decoded() {
    let mut run = CameraRun::new(json!({ "cameras": ["ahead"], "colour": false }));
    let events =
        [Image("CAM_A", 0, b"no JPEG".to_vec()), Scan(0, PointFrame::Body, vec![UPPER_LEFT])];
    let points = run.points(&events);
    assert!(is_at(&seen(&points[0])[0], [40.0, 15.0, 10.0]));
    assert!(points[0].member("red").is_none() && run.notes.is_empty(), "{:?}", run.notes);
}

#[test]
fn rows_have_the_same_columns_whatever_was_seen() {
    let kinds = [vec![UPPER_LEFT], vec![BEHIND], vec![]].map(|points| {
        let mut run = CameraRun::new(json!({}));
        let batch = run.push(&[image(0), Scan(0, PointFrame::Body, points)]).remove(0);
        let rows = batch.rows().iter().find(|rows| Points::from_rows(rows).is_some()).unwrap();
        (rows.columns.schema(), rows.message.key)
    });
    assert_eq!(kinds[0], kinds[1]);
    assert_eq!(kinds[0], kinds[2]);
    let fields = kinds[0].0.fields().iter().map(|field| field.name().as_str());
    assert_eq!(fields.collect::<Vec<_>>(), ["utime", "points"]);
}

#[test]
fn batch_boundaries_do_not_matter() {
    let scan = |millis, frame| Scan(millis, frame, vec![UPPER_LEFT, [16.0, 1.0, 3.0], BEHIND]);
    let events = [
        Pose(0, 0.0, 0.0),
        scan(1, PointFrame::Local),
        image(2),
        scan(10, PointFrame::Local),
        scan(12, PointFrame::Body),
        Pose(50, 5.0, 0.0),
        Image("CAM_A", 40, b"broken".to_vec()),
        scan(60, PointFrame::Local),
        image(70),
        scan(80, PointFrame::Sensor),
        scan(90, PointFrame::Local),
    ];
    let run = |cuts: &[usize]| {
        let (mut run, mut seen, mut start) = (CameraRun::ahead(), BTreeMap::new(), 0);
        for end in cuts.iter().copied().chain([events.len()]) {
            for points in run.points(&events[start..end]) {
                for (row, event) in points.events().iter().enumerate() {
                    let found = super::tests::seen(&points)[points.range(row)].to_vec();
                    seen.insert(start + *event as usize, found);
                }
            }
            start = end;
        }
        (seen, run.notes)
    };
    let whole = run(&[]);
    assert_eq!(whole.0.len(), 6);
    for first in 1..events.len() {
        assert_eq!(run(&[first]), whole, "cut at {first}");
        for second in first..events.len() {
            assert_eq!(run(&[first, second]), whole, "cut at {first} and {second}");
        }
    }
}

#[test]
fn mistakes_in_options_name_their_keys() {
    let wrong = |options: Value| {
        let options = sluice_model::options::read::<CameraOptions>(options);
        options.and_then(|options| stage(options, &Registry::linked())).err().unwrap()
    };
    let error = wrong(json!({ "cameras": ["cam_roof_fc", "nobody"] }));
    assert_eq!(error.path, ["cameras", "1"]);
    assert!(error.message.contains("expected one of cam_roof_fc, cam_roof_fc_6mm"), "{error}");
    let twice = wrong(json!({ "cameras": ["cam_roof_fc", "CAM_THUMB_RFC"] }));
    assert!(twice.message.contains("duplicate camera"), "{twice}");
    assert_eq!(wrong(json!({ "max_age": "-1s" })).path, ["max_age"]);
    assert_eq!(wrong(json!({ "max_gap": "-1s" })).path, ["max_gap"]);
    assert_eq!(wrong(json!({ "mounts": { "A": "nobody" } })).path, ["mounts", "A"]);
    assert_eq!(wrong(json!({ "calibration": PathBuf::from("/nowhere") })).path, ["calibration"]);
}

#[test]
fn queries_can_be_pushed_down_through_the_stage() {
    let query = CameraRun::ahead().fold.query();
    assert!(query.keeps_times && query.keeps_channels && query.also.is_some());
    assert!(query.reach >= 200_000_000);
}
