//! Fixtures: a calibration, events, and the stage `camera` run by hand.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, UInt8Type};
use arrow_array::{
    Array, ArrayRef, BinaryArray, FixedSizeListArray, Float64Array, Int16Array, Int64Array,
    RecordBatch,
};
use arrow_schema::{DataType, Field};
use serde_json::{Value, json};
use sluice_model::{
    Batch, BatchBuilder, Channel, Channels, Encoding, Fold, Map, MessageType, Name, Payloads,
    Registry, Rows, Stage, StageContext, TypeKey,
};

use crate::calibration::CalibrationPath;
use crate::camera::{CameraOptions, stage};
use crate::points::{CloudBuilder, PointFrame, Points};

/// Cameras of 100 by 50 pixels: one looks ahead, one to the left, one ahead through a distorting
/// lens. They are mounted 2 metres above the ground; at a depth of 1 metre, 1 metre is 100 pixels.
pub(super) const CALIBRATION: &str = "
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
pub(super) const UPPER_LEFT: [f64; 3] = [11.0, 1.0, 3.0];
pub(super) const BEHIND: [f64; 3] = [-11.0, 1.0, 3.0];

#[derive(Clone)]
pub(super) enum CameraEvent {
    /// Channel, milliseconds, bytes.
    Image(&'static str, i64, Vec<u8>),
    /// Milliseconds, x, degrees of yaw.
    Pose(i64, f64, f64),
    /// Milliseconds, frame, points; on the channel SCAN.
    Points(i64, PointFrame, Vec<[f64; 3]>),
}
pub(super) use CameraEvent::{Image, Points as Scan, Pose};

pub(super) const QUARTERS: [[u8; 3]; 4] = [[250, 0, 0], [0, 250, 0], [0, 0, 250], [250, 250, 250]];

/// Red, green; blue, white.
pub(super) fn quarters(width: u16, height: u16) -> Vec<u8> {
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

pub(super) fn image(millis: i64) -> CameraEvent {
    Image("CAM_A", millis, quarters(100, 50))
}

/// A stage under test and its notes.
pub(super) struct CameraRun {
    pub(super) fold: Box<dyn Fold>,
    pub(super) map: Box<dyn Map>,
    pub(super) channels: Channels,
    pub(super) notes: BTreeMap<String, u64>,
    _folder: tempfile::TempDir,
}

/// A point in the output.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ProjectedPoint {
    pub(super) u: f32,
    pub(super) v: f32,
    pub(super) depth: f32,
    pub(super) colour: Option<[u8; 3]>,
    pub(super) camera: Option<String>,
}

impl CameraRun {
    pub(super) fn new(options: Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.toml");
        std::fs::write(&path, CALIBRATION).unwrap();
        let mut options: CameraOptions = serde_json::from_value(options).unwrap();
        options.calibration = CalibrationPath(path);
        let mut parts = stage(options, &Registry::linked()).unwrap().into_parts().into_iter();
        let (Some(Stage::Fold(fold)), Some(Stage::Map(map))) = (parts.next(), parts.next()) else {
            panic!("a fold and a map were expected");
        };
        let (channels, notes) = (Channels::default(), BTreeMap::new());
        Self { fold, map, channels, notes, _folder: folder }
    }

    /// With one camera that looks ahead.
    pub(super) fn ahead() -> Self {
        Self::new(json!({ "cameras": ["ahead"] }))
    }

    pub(super) fn push(&mut self, events: &[CameraEvent]) -> Vec<Batch> {
        let batch = self.batch(events);
        let mut context = StageContext::new(&self.channels, None);
        let carried = self.fold.push(batch, &mut context).unwrap();
        let painted = carried.into_iter().map(|batch| self.map.apply(batch, &mut context).unwrap());
        let painted = painted.collect();
        for (what, count) in context.report.notes {
            *self.notes.entry(what).or_default() += count;
        }
        painted
    }

    pub(super) fn points(&mut self, events: &[CameraEvent]) -> Vec<Points> {
        let batches = self.push(events);
        batches.iter().flat_map(|batch| batch.rows()).filter_map(Points::from_rows).collect()
    }

    /// The projection of each point.
    pub(super) fn seen(&mut self, events: &[CameraEvent]) -> Vec<Option<ProjectedPoint>> {
        self.points(events).iter().flat_map(seen).collect()
    }

    pub(super) fn note_count(&self, part: &str) -> u64 {
        let note_count = self.notes.iter().filter(|(what, _)| what.contains(part));
        note_count.map(|(_, count)| count).sum()
    }

    pub(super) fn batch(&self, events: &[CameraEvent]) -> Batch {
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
        for frame in [PointFrame::Sensor, PointFrame::Body, PointFrame::Local] {
            rows.push(scans(numbered(), frame));
        }
        rows.retain(|rows| !rows.events.is_empty());
        builder.finish().with_rows(rows)
    }
}

pub(super) fn rows(events: Vec<u32>, columns: Vec<(&str, ArrayRef)>) -> Rows {
    let columns = RecordBatch::try_from_iter(columns).unwrap();
    let message = MessageType::named("made_up", TypeKey(1)).into();
    Rows { message, payloads: Payloads::Kept, events, columns }
}

pub(super) fn images<'e>(events: impl Iterator<Item = (u32, &'e CameraEvent)>) -> Rows {
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

pub(super) fn poses<'e>(events: impl Iterator<Item = (u32, &'e CameraEvent)>) -> Rows {
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

pub(super) fn scans<'e>(
    events: impl Iterator<Item = (u32, &'e CameraEvent)>,
    frame: PointFrame,
) -> Rows {
    let mut cloud = CloudBuilder::default();
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

pub(super) fn seen(points: &Points) -> Vec<Option<ProjectedPoint>> {
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
        u.is_valid(at).then(|| ProjectedPoint {
            u: u.value(at),
            v: v.value(at),
            depth: depth.value(at),
            colour: red.zip(green).zip(blue).map(|((r, g), b)| [r, g, b]),
            camera: camera.map(|cameras| cameras.value(at).to_owned()),
        })
    };
    (0..points.len()).map(one).collect()
}

pub(super) fn is_at(seen: &Option<ProjectedPoint>, position: [f64; 3]) -> bool {
    seen.as_ref().is_some_and(|seen| {
        let found = [seen.u, seen.v, seen.depth].map(f64::from);
        found.iter().zip(position).all(|(found, expected)| (found - expected).abs() < 1e-4)
    })
}

pub(super) fn is_like(colour: [u8; 3], expected: [u8; 3]) -> bool {
    colour.iter().zip(expected).all(|(found, expected)| found.abs_diff(expected) < 20)
}
