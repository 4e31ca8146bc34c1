use std::collections::BTreeMap;
use std::path::PathBuf;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, UInt8Type};
use arrow_array::{
    Array, ArrayRef, BinaryArray, FixedSizeListArray, Float64Array, Int16Array, Int64Array,
    RecordBatch,
};
use arrow_schema::{DataType, Field};
use serde_json::{Value, json};
use sluice_core::{
    Batch, BatchBuilder, Channel, Channels, Encoding, Fold, Map, MessageType, Name, Payloads, Rows,
    StageContext, TypeKey,
};

use super::*;
use crate::points::{Cloud, Frame, Points};

/// Cameras of 100 by 50 pixels: one looks ahead, one to the left, one ahead through a bent lens. Their
/// middle is 2 metres above the ground, and 1 metre is 100 pixels at a depth of 1.
const CALIBRATION: &str = "
[camera.ahead]
width = 100
height = 50
pinhole = [100, 100, 0, 50, 25]
position = [1, 0, 2]
rpy = [-90, 0, -90]
thumbnail_channel = 'CAM_A'
[camera.left]
width = 100
height = 50
pinhole = [100, 100, 0, 50, 25]
position = [0, 1, 2]
rpy = [-90, 0, 0]
thumbnail_channel = 'CAM_L'
[camera.round]
width = 100
height = 50
pinhole = [100, 100, 0, 50, 25]
distortion_model = 'spherical'
distortion_center = [0, 0]
distortion_params = [1.2]
position = [1, 0, 2]
rpy = [-90, 0, -90]
thumbnail_channel = 'CAM_R'
[sensor.SCAN]
position = [1, 1, 3]
rpy = [0, 0, 0]
";

/// Ten metres ahead of the camera, a metre to the left and a metre above: pixel 40, 15.
const UPPER_LEFT: [f64; 3] = [11.0, 1.0, 3.0];
const BEHIND: [f64; 3] = [-11.0, 1.0, 3.0];

#[derive(Clone)]
enum Event {
    /// Channel, milliseconds, bytes.
    Image(&'static str, i64, Vec<u8>),
    /// Milliseconds, x, degrees of yaw.
    Pose(i64, f64, f64),
    /// Milliseconds, frame, points; on the channel SCAN.
    Points(i64, Frame, Vec<[f64; 3]>),
}
use Event::{Image, Points as Scan, Pose};

const QUARTERS: [[u8; 3]; 4] = [[250, 0, 0], [0, 250, 0], [0, 0, 250], [250, 250, 250]];

/// Red, green; blue, white.
fn quarters(width: u16, height: u16) -> Vec<u8> {
    let (half_width, half_height) = (width / 2, height / 2);
    let pixel = |at: u32| {
        let (column, row) = (at % u32::from(width), at / u32::from(width));
        let (right, low) = (column >= half_width.into(), row >= half_height.into());
        QUARTERS[usize::from(right) + 2 * usize::from(low)]
    };
    let pixels: Vec<u8> = (0..u32::from(width) * u32::from(height)).flat_map(pixel).collect();
    let mut bytes = Vec::new();
    let mut encoder = jpeg_encoder::Encoder::new(&mut bytes, 100);
    encoder.set_sampling_factor(jpeg_encoder::SamplingFactor::F_1_1);
    encoder.encode(&pixels, width, height, jpeg_encoder::ColorType::Rgb).unwrap();
    bytes
}

fn image(millis: i64) -> Event {
    Image("CAM_A", millis, quarters(100, 50))
}

/// A stage under test, and what it has told.
struct Run {
    fold: Box<dyn Fold>,
    map: Box<dyn Map>,
    channels: Channels,
    notes: BTreeMap<String, u64>,
    _folder: tempfile::TempDir,
}

/// A point as it came out.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    u: f32,
    v: f32,
    depth: f32,
    colour: Option<[u8; 3]>,
    camera: Option<String>,
}

impl Run {
    fn new(options: Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.toml");
        std::fs::write(&path, CALIBRATION).unwrap();
        let mut options: CameraOptions = serde_json::from_value(options).unwrap();
        options.calibration = CalibrationPath(path);
        let mut parts = Stage::try_from(options).unwrap().into_parts().into_iter();
        let (Some(Stage::Fold(fold)), Some(Stage::Map(map))) = (parts.next(), parts.next()) else {
            panic!("a fold and a map were expected");
        };
        let (channels, notes) = (Channels::default(), BTreeMap::new());
        Self { fold, map, channels, notes, _folder: folder }
    }

    /// Of one camera that looks ahead.
    fn ahead() -> Self {
        Self::new(json!({ "cameras": ["ahead"] }))
    }

    fn push(&mut self, events: &[Event]) -> Vec<Batch> {
        let batch = self.batch(events);
        let mut context = StageContext::new(&self.channels, None);
        let carried = self.fold.push(batch, &mut context).unwrap();
        let painted = carried.into_iter().map(|batch| self.map.apply(batch, &mut context).unwrap());
        let painted = painted.collect();
        for (what, count) in context.notes {
            *self.notes.entry(what).or_default() += count;
        }
        painted
    }

    fn points(&mut self, events: &[Event]) -> Vec<Points> {
        let batches = self.push(events);
        batches.iter().flat_map(|batch| batch.rows()).filter_map(Points::of).collect()
    }

    /// What becomes of each point.
    fn seen(&mut self, events: &[Event]) -> Vec<Option<Seen>> {
        self.points(events).iter().flat_map(seen).collect()
    }

    fn told(&self, part: &str) -> u64 {
        let told = self.notes.iter().filter(|(what, _)| what.contains(part));
        told.map(|(_, count)| count).sum()
    }

    fn batch(&self, events: &[Event]) -> Batch {
        let mut builder = BatchBuilder::default();
        for (n, event) in events.iter().enumerate() {
            let (name, millis) = match event {
                Image(name, millis, _) => (*name, *millis),
                Pose(millis, ..) => ("POSE", *millis),
                Scan(millis, ..) => ("SCAN", *millis),
            };
            let channel = Channel::new(Name::from_text(name), "log", Encoding::Lcm);
            let id = self.channels.intern(channel).unwrap();
            builder.push_copy(millis * 1_000_000, n as i64, id, b"");
        }
        let numbered = || (0u32..).zip(events);
        let mut rows = vec![images(numbered()), poses(numbered())];
        for frame in [Frame::Sensor, Frame::Body, Frame::Local] {
            rows.push(scans(numbered(), frame));
        }
        rows.retain(|rows| !rows.events.is_empty());
        builder.finish().with_rows(rows)
    }
}

fn rows(events: Vec<u32>, columns: Vec<(&str, ArrayRef)>) -> Rows {
    let columns = RecordBatch::try_from_iter(columns).unwrap();
    let message = MessageType::named("made_up", TypeKey(1)).into();
    Rows { message, payloads: Payloads::Kept, events, columns }
}

fn images<'e>(events: impl Iterator<Item = (u32, &'e Event)>) -> Rows {
    let (mut numbers, mut times, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
    for (event, image) in events {
        if let Image(_, millis, file) = image {
            numbers.push(event);
            times.push(millis * 1000);
            bytes.push(file.as_slice());
        }
    }
    let sizes = |size: i16| -> ArrayRef { Arc::new(Int16Array::from(vec![size; numbers.len()])) };
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("utime", Arc::new(Int64Array::from(times))),
        ("width", sizes(100)),
        ("height", sizes(50)),
        ("image", Arc::new(BinaryArray::from_vec(bytes))),
    ];
    rows(numbers, columns)
}

fn poses<'e>(events: impl Iterator<Item = (u32, &'e Event)>) -> Rows {
    let (mut numbers, mut times) = (Vec::new(), Vec::new());
    let (mut positions, mut turns) = (Vec::new(), Vec::new());
    for (event, pose) in events {
        if let Pose(millis, x, yaw) = pose {
            let turn = crate::geometry::Quaternion::from_roll_pitch_yaw_degrees([0.0, 0.0, *yaw]);
            numbers.push(event);
            times.push(millis * 1000);
            positions.extend([*x, 0.0, 0.0]);
            turns.extend([turn.w, turn.x, turn.y, turn.z]);
        }
    }
    let lists = |values: Vec<f64>, length| -> ArrayRef {
        let element = Arc::new(Field::new_list_field(DataType::Float64, false));
        let values = Arc::new(Float64Array::from(values));
        Arc::new(FixedSizeListArray::new(element, length, values, None))
    };
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("utime", Arc::new(Int64Array::from(times))),
        ("pos", lists(positions, 3)),
        ("orientation", lists(turns, 4)),
    ];
    rows(numbers, columns)
}

fn scans<'e>(events: impl Iterator<Item = (u32, &'e Event)>, frame: Frame) -> Rows {
    let mut cloud = Cloud::default();
    for (event, scan) in events {
        let Scan(millis, _, points) = scan else { continue };
        if !matches!(scan, Scan(_, of, _) if *of == frame) {
            continue;
        }
        for [x, y, z] in points {
            cloud.x.push(*x);
            cloud.y.push(*y);
            cloud.z.push(*z);
            cloud.intensity.push(0.5);
            cloud.laser.push(1);
            cloud.azimuth.push(2.0);
            cloud.time.push(millis * 1_000_000);
        }
        cloud.end_event(event, millis * 1000, true).unwrap();
    }
    cloud.finish(frame)
}

fn seen(points: &Points) -> Vec<Option<Seen>> {
    let numbers = |name: &str| points.member(name).unwrap().as_primitive::<Float32Type>().clone();
    let (u, v, depth) = (numbers("u"), numbers("v"), numbers("depth"));
    let parts = ["red", "green", "blue"].map(|name| points.member(name));
    let cameras = points.member("camera").map(|cameras| cameras.as_string::<i32>().clone());
    let one = |at: usize| {
        let colour = parts.map(|part| {
            let part = part?.as_primitive::<UInt8Type>();
            part.is_valid(at).then(|| part.value(at))
        });
        let [red, green, blue] = colour;
        let camera = cameras.as_ref().filter(|cameras| cameras.is_valid(at));
        u.is_valid(at).then(|| Seen {
            u: u.value(at),
            v: v.value(at),
            depth: depth.value(at),
            colour: red.zip(green).zip(blue).map(|((r, g), b)| [r, g, b]),
            camera: camera.map(|cameras| cameras.value(at).to_owned()),
        })
    };
    (0..points.len()).map(one).collect()
}

fn is_at(seen: &Option<Seen>, place: [f64; 3]) -> bool {
    seen.as_ref().is_some_and(|seen| {
        let found = [seen.u, seen.v, seen.depth].map(f64::from);
        found.iter().zip(place).all(|(found, expected)| (found - expected).abs() < 1e-4)
    })
}

fn is_like(colour: [u8; 3], expected: [u8; 3]) -> bool {
    colour.iter().zip(expected).all(|(found, expected)| found.abs_diff(expected) < 20)
}

#[test]
fn points_get_the_pixel_and_the_colour_of_where_they_are_seen() {
    let around = [[11.0, 1.0, 3.0], [11.0, -1.0, 3.0], [11.0, 1.0, 1.0], [11.0, -1.0, 1.0]];
    let scan = Scan(5, Frame::Body, [&around[..], &[BEHIND]].concat());
    let seen = Run::ahead().seen(&[image(0), scan]);
    let places = [[40.0, 15.0, 10.0], [60.0, 15.0, 10.0], [40.0, 35.0, 10.0], [60.0, 35.0, 10.0]];
    for ((seen, place), colour) in seen.iter().zip(places).zip(QUARTERS) {
        assert!(is_at(seen, place), "{seen:?} is not at {place:?}");
        let found = seen.as_ref().unwrap().colour.unwrap();
        assert!(is_like(found, colour), "{found:?} is not {colour:?}");
    }
    assert_eq!((seen.len(), &seen[4]), (5, &None));
}

#[test]
fn pixels_are_those_of_the_image_as_it_was_sent() {
    let half = Image("CAM_A", 0, quarters(50, 25));
    let seen = Run::ahead().seen(&[half, Scan(0, Frame::Body, vec![UPPER_LEFT])]);
    assert!(is_at(&seen[0], [20.0, 7.5, 10.0]), "{seen:?}");
    assert!(is_like(seen[0].as_ref().unwrap().colour.unwrap(), QUARTERS[0]));
}

#[test]
fn points_of_the_local_frame_are_seen_from_where_the_vehicle_was_when_the_image_was_taken() {
    let point = || Scan(60, Frame::Local, vec![[16.0, 1.0, 3.0]]);
    // Between its two poses the vehicle was at 5 metres.
    let events = [Pose(0, 0.0, 0.0), image(50), point(), Pose(100, 10.0, 0.0), point()];
    let seen = Run::ahead().seen(&events);
    assert!(is_at(&seen[0], [50.0 - 100.0 / 15.0, 25.0 - 100.0 / 15.0, 15.0]), "{seen:?}");
    assert!(is_at(&seen[1], [40.0, 15.0, 10.0]), "{seen:?}");
}

#[test]
fn a_vehicle_that_has_turned_sees_what_is_ahead_of_it_now() {
    let scan = Scan(0, Frame::Local, vec![[-1.0, 11.0, 3.0], UPPER_LEFT]);
    let seen = Run::ahead().seen(&[Pose(0, 0.0, 90.0), image(0), scan]);
    assert!(is_at(&seen[0], [40.0, 15.0, 10.0]), "{seen:?}");
    assert_eq!(seen[1], None);
}

#[test]
fn points_of_a_sensor_are_seen_by_way_of_its_mount() {
    let mut run = Run::ahead();
    let seen = run.seen(&[image(0), Scan(0, Frame::Sensor, vec![[10.0, 0.0, 0.0]])]);
    assert!(is_at(&seen[0], [40.0, 15.0, 10.0]), "{seen:?}");
}

#[test]
fn an_image_that_is_too_old_or_too_young_is_not_used() {
    let at = |millis| Scan(millis, Frame::Body, vec![UPPER_LEFT]);
    let mut run = Run::ahead();
    let seen = run.seen(&[at(0), image(1000), at(799), at(800), at(1200), at(1201)]);
    let is_seen: Vec<bool> = seen.iter().map(Option::is_some).collect();
    assert_eq!(is_seen, [false, false, true, true, false]);
    assert_eq!(run.told("SCAN: no camera has an image of the moment"), 3);
}

#[test]
fn without_a_pose_points_of_the_local_frame_are_not_seen_and_it_is_told() {
    let mut run = Run::ahead();
    let scan = || Scan(0, Frame::Local, vec![UPPER_LEFT]);
    assert_eq!(run.seen(&[Pose(-5000, 0.0, 0.0), image(0), scan(), scan()]), [None, None]);
    assert_eq!(run.told("SCAN: no pose is known for the moment of the images"), 2);
}

#[test]
fn a_broken_image_gives_places_but_no_colours_and_is_told() {
    let mut run = Run::ahead();
    let whole = quarters(100, 50);
    for broken in [b"no JPEG".to_vec(), whole[..whole.len() / 2].to_vec()] {
        let events = [Image("CAM_A", 0, broken), Scan(0, Frame::Body, vec![UPPER_LEFT])];
        let seen = run.seen(&events);
        assert!(is_at(&seen[0], [40.0, 15.0, 10.0]), "{seen:?}");
        assert_eq!(seen[0].as_ref().unwrap().colour, None);
    }
    assert_eq!(run.told("CAM_A: events whose image is no JPEG"), 2);
}

#[test]
fn an_empty_image_is_told_and_the_one_before_it_counts() {
    let mut run = Run::ahead();
    let events = [image(0), Image("CAM_A", 50, vec![]), Scan(60, Frame::Body, vec![UPPER_LEFT])];
    assert!(run.seen(&events)[0].as_ref().unwrap().colour.is_some());
    assert_eq!(run.told("CAM_A: an image without a single byte"), 1);
}

#[test]
fn an_image_of_another_shape_shows_nothing_and_is_told() {
    let mut run = Run::ahead();
    let events = [Image("CAM_A", 0, quarters(64, 64)), Scan(0, Frame::Body, vec![UPPER_LEFT])];
    assert_eq!(run.seen(&events), [None]);
    assert_eq!(run.told("CAM_A: events whose image has not the shape of ahead (100 x 50)"), 1);
}

#[test]
fn pixels_do_not_depend_on_whether_colours_are_asked_for() {
    for file in [quarters(50, 25), quarters(100, 50)[..700].to_vec()] {
        let events = [Image("CAM_A", 0, file), Scan(0, Frame::Body, vec![UPPER_LEFT])];
        let places = [true, false].map(|colour| {
            let mut run = Run::new(json!({ "cameras": ["ahead"], "colour": colour }));
            let points = run.points(&events).remove(0);
            let u = points.member("u").unwrap().as_primitive::<Float32Type>().value(0);
            (u, run.told("CAM_A: images of another size than their messages say"))
        });
        assert_eq!(places[0], places[1]);
    }
    let half = Image("CAM_A", 0, quarters(50, 25));
    let mut run = Run::new(json!({ "cameras": ["ahead"], "colour": false }));
    let seen = run.points(&[half, Scan(0, Frame::Body, vec![UPPER_LEFT])]);
    assert_eq!(seen[0].member("u").unwrap().as_primitive::<Float32Type>().value(0), 20.0);
    assert_eq!(run.told("CAM_A: images of another size than their messages say"), 1);
}

#[test]
fn an_image_is_shared_by_all_batches_that_see_it_and_never_copied() {
    let mut run = Run::ahead();
    let scan = || Scan(0, Frame::Body, vec![UPPER_LEFT]);
    let files = [vec![image(0), scan()], vec![scan()]].map(|events| {
        let batch = run.batch(&events);
        let mut context = StageContext::new(&run.channels, None);
        let carried = run.fold.push(batch, &mut context).unwrap().remove(0);
        let points = carried.rows().iter().find_map(Points::of).unwrap();
        carry::Views::of(&points, 0).image(0).unwrap().clone()
    });
    assert!(files[0].ptr_eq(&files[1]));
}

#[test]
fn between_poses_too_far_apart_the_nearest_counts() {
    let scan = || Scan(60, Frame::Local, vec![[16.0, 1.0, 3.0]]);
    let events = [Pose(0, 0.0, 0.0), Pose(101, 5.0, 0.0), image(60), scan()];
    let seen = Run::ahead().seen(&events);
    // As from the second pose, not from between.
    assert!(is_at(&seen[0], [40.0, 15.0, 10.0]), "{seen:?}");
    let mut wide = Run::new(json!({ "cameras": ["ahead"], "max_gap": "1s" }));
    assert!(wide.seen(&events)[0].as_ref().unwrap().depth > 11.0);
    let far = [Pose(-1100, 0.0, 0.0), Pose(1100, 0.0, 0.0), image(0), scan()];
    assert_eq!(Run::ahead().seen(&far), [None]);
}

#[test]
fn a_sensor_of_another_name_is_where_mounts_say() {
    let at = |mounts: Value| {
        let mut run = Run::new(json!({ "cameras": ["ahead"], "mounts": mounts }));
        let seen = run.seen(&[image(0), Scan(0, Frame::Sensor, vec![[10.0, 0.0, 0.0]])]);
        seen[0].as_ref().map(|seen| (seen.u, seen.depth))
    };
    assert_eq!(at(json!({})), Some((40.0, 10.0)));
    let left = at(json!({ "SC*": "left" }));
    assert!(left.is_none_or(|place| place != (40.0, 10.0)), "{left:?}");
}

#[test]
fn points_that_no_camera_sees_can_be_left_out_of_their_events() {
    let mut run = Run::new(json!({ "cameras": ["ahead"], "unseen": "drop" }));
    let scans = [vec![BEHIND, UPPER_LEFT], vec![BEHIND], vec![UPPER_LEFT, BEHIND, UPPER_LEFT]];
    let scans = scans.map(|points| Scan(0, Frame::Body, points));
    let points = run.points(&[&[image(0)], &scans[..]].concat());
    let [points] = points.as_slice() else { panic!("{points:?}") };
    assert_eq!([0, 1, 2].map(|row| points.range(row).len()), [1, 0, 2]);
    assert!(seen(points).iter().all(Option::is_some));
    assert_eq!(points.xyz()[0], [11.0; 3]);
}

#[test]
fn of_several_cameras_the_first_that_sees_a_point_counts_and_is_named() {
    let left = [-1.0, 11.0, 3.0];
    let mut run = Run::new(json!({ "cameras": ["CAM_R", "left", "ahead"] }));
    let images = ["CAM_A", "CAM_L"].map(|channel| Image(channel, 0, quarters(100, 50)));
    let round = Image("CAM_R", 0, quarters(100, 50));
    let scan = || Scan(0, Frame::Body, vec![UPPER_LEFT, left, BEHIND]);
    let events = [&images[..], &[scan(), round, scan()]].concat();
    let seen = run.seen(&events);
    let cameras = seen.iter().map(|seen| Some(seen.as_ref()?.camera.as_deref().unwrap()));
    let expected = [Some("ahead"), Some("left"), None, Some("round"), Some("left"), None];
    assert_eq!(cameras.collect::<Vec<_>>(), expected);
}

#[test]
fn pixels_may_count_in_the_image_without_distortion() {
    let events =
        [Image("CAM_R", 0, quarters(100, 50)), Scan(0, Frame::Body, vec![[11.0, 2.0, 2.0]])];
    let by = (1.0 / (1.0 + 1.2_f64.powi(4) * 0.04)).sqrt();
    let seen = Run::new(json!({ "cameras": ["round"] })).seen(&events);
    assert!(is_at(&seen[0], [50.0 - 20.0 * by, 25.0, 10.0]), "{seen:?}");
    let flat = Run::new(json!({ "cameras": ["round"], "pixel": "undistorted" })).seen(&events);
    assert!(is_at(&flat[0], [30.0, 25.0, 10.0]), "{flat:?}");
    assert_eq!(flat[0].as_ref().unwrap().colour, seen[0].as_ref().unwrap().colour);
}

#[test]
fn without_colour_images_are_not_decoded() {
    let mut run = Run::new(json!({ "cameras": ["ahead"], "colour": false }));
    let events = [Image("CAM_A", 0, b"no JPEG".to_vec()), Scan(0, Frame::Body, vec![UPPER_LEFT])];
    let points = run.points(&events);
    assert!(is_at(&seen(&points[0])[0], [40.0, 15.0, 10.0]));
    assert!(points[0].member("red").is_none() && run.notes.is_empty(), "{:?}", run.notes);
}

#[test]
fn rows_have_the_same_columns_whatever_was_seen() {
    let kinds = [vec![UPPER_LEFT], vec![BEHIND], vec![]].map(|points| {
        let mut run = Run::new(json!({}));
        let batch = run.push(&[image(0), Scan(0, Frame::Body, points)]).remove(0);
        let rows = batch.rows().iter().find(|rows| Points::of(rows).is_some()).unwrap();
        (rows.columns.schema(), rows.message.key)
    });
    assert_eq!(kinds[0], kinds[1]);
    assert_eq!(kinds[0], kinds[2]);
    let fields = kinds[0].0.fields().iter().map(|field| field.name().as_str());
    assert_eq!(fields.collect::<Vec<_>>(), ["utime", "points"]);
}

#[test]
fn a_log_cut_anywhere_gives_the_same() {
    let scan = |millis, frame| Scan(millis, frame, vec![UPPER_LEFT, [16.0, 1.0, 3.0], BEHIND]);
    let events = [
        Pose(0, 0.0, 0.0),
        scan(1, Frame::Local),
        image(2),
        scan(10, Frame::Local),
        scan(12, Frame::Body),
        Pose(50, 5.0, 0.0),
        Image("CAM_A", 40, b"broken".to_vec()),
        scan(60, Frame::Local),
        image(70),
        scan(80, Frame::Sensor),
        scan(90, Frame::Local),
    ];
    let run = |cuts: &[usize]| {
        let (mut run, mut seen, mut start) = (Run::ahead(), BTreeMap::new(), 0);
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
        let options: CameraOptions = serde_json::from_value(options).unwrap();
        Stage::try_from(options).unwrap_err()
    };
    let error = wrong(json!({ "cameras": ["cam_roof_fc", "nobody"] }));
    assert_eq!(error.path, ["cameras", "1"]);
    assert!(error.message.contains("known are cam_roof_fc, cam_roof_fc_6mm"), "{error}");
    let twice = wrong(json!({ "cameras": ["cam_roof_fc", "CAM_THUMB_RFC"] }));
    assert!(twice.message.contains("given twice"), "{twice}");
    assert_eq!(wrong(json!({ "max_age": "-1s" })).path, ["max_age"]);
    assert_eq!(wrong(json!({ "max_gap": "-1s" })).path, ["max_gap"]);
    assert_eq!(wrong(json!({ "mounts": { "A": "nobody" } })).path, ["mounts", "A"]);
    assert_eq!(wrong(json!({ "calibration": PathBuf::from("/nowhere") })).path, ["calibration"]);
}

#[test]
fn what_is_asked_for_after_the_stage_can_be_asked_for_before_it() {
    let query = Run::ahead().fold.query();
    assert!(query.keeps_times && query.keeps_channels && query.also.is_some());
    assert!(query.reach >= 200_000_000);
}
