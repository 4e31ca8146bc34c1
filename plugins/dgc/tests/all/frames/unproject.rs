//! Pixels unprojected to points, and projected back.

use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{ArrayRef, BinaryArray, Int16Array, Int64Array, RecordBatch};
use proptest::prelude::*;
use serde_json::{Value, json};
use sluice_dgc::fuzzing::{BUILT_IN, Calibration, CameraModel, PointFrame, Points};
use sluice_model::{
    BatchBuilder, Channel, Channels, Encoding, MessageType, Name, Payloads, Rows, Stage,
    StageContext, TypeKey,
};

use crate::frames::kit::make;

/// The header of a JPEG file of this size, which is never decoded.
fn jpeg(width: u16, height: u16) -> Vec<u8> {
    let mut bytes = vec![0xff, 0xd8, 0xff, 0xc0, 0, 17, 8];
    bytes.extend(height.to_be_bytes());
    bytes.extend(width.to_be_bytes());
    bytes.extend([
        3, 1, 0x11, 0, 2, 0x11, 0, 3, 0x11, 0, 0xff, 0xda, 0, 12, 3, 1, 0, 2, 0, 3, 0, 0, 63, 0,
    ]);
    bytes
}

/// The points of one image on this channel, and the notes.
fn points(options: Value, channel: &str, file: &[u8]) -> (Option<Points>, Vec<String>) {
    let channels = Channels::default();
    let id = channels.intern(Channel::new(Name::from_text(channel), "log", Encoding::Lcm)).unwrap();
    let mut builder = BatchBuilder::default();
    builder.push_copy(1_000_000, 1, id, b"payload");
    let size: ArrayRef = Arc::new(Int16Array::from(vec![0]));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("utime", Arc::new(Int64Array::from(vec![17]))),
        ("width", Arc::clone(&size)),
        ("height", size),
        ("image", Arc::new(BinaryArray::from_iter_values([file]))),
    ];
    let columns = RecordBatch::try_from_iter(columns).unwrap();
    let message = MessageType::named("image", TypeKey(1)).into();
    let rows = Rows { message, payloads: Payloads::Kept, events: vec![0], columns };
    let batch = builder.finish().with_rows(vec![rows]);
    let Stage::Map(map) = make("unproject", options).unwrap() else { panic!("no map") };
    let mut context = StageContext::new(&channels, None);
    let out = map.apply(batch, &mut context).unwrap();
    assert_eq!((out.len(), out.timestamps()), (1, &[1_000_000][..]));
    let notes = context.report.notes.into_iter().map(|(what, _)| what).collect();
    (out.rows().first().and_then(Points::from_rows), notes)
}

fn member(points: &Points, name: &str) -> Vec<f64> {
    points.member(name).unwrap().as_primitive::<Float64Type>().values().to_vec()
}

#[test]
fn every_point_projects_to_its_pixel() {
    let calibration = Calibration::load(Path::new(BUILT_IN)).unwrap();
    for camera in calibration.cameras() {
        let Some(channel) = camera.thumbnail_channel.clone() else { continue };
        let model = CameraModel::new(camera, 376, 240).unwrap();
        for onto in [json!({ "depth": 7.5 }), json!({ "height": 0.0 }), json!({ "height": 0.5 })] {
            for frame in ["body", "sensor"] {
                let mut options = onto.clone();
                options["every"] = json!(20);
                options["colour"] = json!(false);
                options["frame"] = json!(frame);
                options["max_range"] = json!(1e6);
                let (points, notes) = points(options, &channel, &jpeg(376, 240));
                let points = points.unwrap_or_else(|| panic!("{notes:?}"));
                assert_eq!(points.frame() == PointFrame::Sensor, frame == "sensor");
                let [x, y, z] = points.xyz();
                let (u, v, depth) =
                    (member(&points, "u"), member(&points, "v"), member(&points, "depth"));
                assert!(!x.is_empty());
                for at in 0..x.len() {
                    let mut point = [x[at], y[at], z[at]];
                    if frame == "sensor" {
                        point = camera.mount.to_body().apply(point);
                    }
                    if let Some(height) = onto["height"].as_f64() {
                        assert!((point[2] - height).abs() < 1e-9 * depth[at].max(1.0));
                    }
                    let seen = model.project(point).unwrap();
                    let off = (seen.u - u[at]).hypot(seen.v - v[at]);
                    assert!(off < 1e-9 * depth[at].max(1.0), "{off} at {} {}", u[at], v[at]);
                    assert!((seen.depth - depth[at]).abs() < 1e-9 * depth[at].max(1.0));
                }
            }
        }
    }
}

proptest! {
    #[test]
    fn any_pixel_of_any_camera_round_trips_to_a_billionth(
        (u, v) in (0.0..752.0_f64, 0.0..480.0_f64), depth in 0.5..100.0_f64, camera in 0usize..5,
    ) {
        let calibration = Calibration::load(Path::new(BUILT_IN)).unwrap();
        let camera = &calibration.cameras()[camera];
        let model = CameraModel::new(camera, 752, 480).unwrap();
        let ray = model.ray(u, v).unwrap();
        let at = model.position();
        let seen = model.project([0, 1, 2].map(|axis| at[axis] + depth * ray[axis]));
        // At the very edge, rounding decides whether it is in the image.
        let is_inside = u > 1e-9 && v > 1e-9 && u < 752.0 - 1e-9 && v < 480.0 - 1e-9;
        prop_assert!(seen.is_some() || !is_inside);
        if let Some(seen) = seen {
            prop_assert!((seen.u - u).hypot(seen.v - v) < 1e-9, "{seen:?} from {u} {v}");
        }
    }
}

#[test]
fn positions_outside_the_image_and_in_the_sky_yield_no_points() {
    let pixels = json!([[188.0, 1.0], [188.0, 239.0], [400.0, 10.0]]);
    let sky = json!({ "pixels": pixels, "height": 0.0, "colour": false });
    let (points, _) = points(sky, "CAM_THUMB_RFC", &jpeg(376, 240));
    let points = points.unwrap();
    assert_eq!(member(&points, "v"), [239.0]);
    assert!(points.xyz()[0][0] > 2.0, "it lies ahead");
}

#[test]
fn unusable_images_are_kept_and_noted() {
    for (file, part) in [(jpeg(100, 100), "aspect ratio"), (b"no image".to_vec(), "not JPEG files")]
    {
        let (points, notes) = points(json!({}), "CAM_THUMB_RFC", &file);
        assert!(points.is_none() && notes[0].contains(part), "{notes:?}");
    }
    let (points, notes) = points(json!({}), "CAM_THUMB_RFC", &jpeg(376, 240));
    assert!(points.is_none() && notes[0].contains("not JPEG files, truncated"), "{notes:?}");
}

#[test]
fn options_that_make_no_sense_are_refused() {
    for (options, key) in [
        (json!({ "every": 0 }), "every"),
        (json!({ "depth": 1.0, "height": 0.0 }), "height"),
        (json!({ "depth": -1.0 }), "depth"),
        (json!({ "max_range": 0.0 }), "max_range"),
        (json!({ "frame": "local" }), "frame"),
        (json!({ "max_range": 0.5 }), "max_range"),
        (json!({ "every": 8, "pixels": [[1.0, 1.0]] }), "every"),
        (json!({ "pixels": [[1.0, 1.0], [-5.0, 2.0]] }), "pixels.1"),
    ] {
        let error = make("unproject", options).err().unwrap();
        assert_eq!(error.path.join("."), key);
    }
}

#[test]
fn images_without_a_point_that_was_asked_for_are_noted() {
    for (mut options, is_noted) in [
        (json!({ "pixels": [[1e9, 2.0]] }), true),
        (json!({ "pixels": [[188.0, 239.0], [188.0, 1.0]], "height": 0.0 }), true),
        (json!({ "height": 0.0, "max_range": 0.001 }), true),
        (json!({ "height": 0.0 }), false),
        (json!({ "pixels": [[188.0, 239.0]] }), false),
    ] {
        options["colour"] = json!(false);
        let (_, notes) = points(options, "CAM_THUMB_RFC", &jpeg(376, 240));
        let found = notes.iter().any(|note| note.contains("images of which pixels have no point"));
        assert_eq!(found, is_noted, "{notes:?}");
    }
}
