//! `undistort`: images as cameras without distortion would have sent them. Looks at no points.

use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, Int16Array, Int64Array, RecordBatch};
use arrow_schema::{Field, Schema};
use schemars::JsonSchema;
use serde::Deserialize;
use sluice_core::{Error, MessageType, OptionsError, Payloads, Rows, Stage, TypeKey};

use super::image::{Image, UNDISTORTED};
use super::image_map::{BROKEN, ImageMap, PerImage, SHAPE, Why};
use super::picture::Picture;
use crate::calibration::{CalibrationPath, Camera};
use crate::camera_model::CameraModel;
use crate::poses::rows::of_type;

/// Options of `undistort`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UndistortOptions {
    /// The cameras, by their names or by the channels of their images. None given: all that the calibration
    /// has.
    pub cameras: Vec<String>,
    /// How the cameras project: `mit-dgc`, or a file.
    pub calibration: CalibrationPath,
    /// The quality of the JPEG files that are made, from 1 to 100.
    #[schemars(range(min = 1, max = 100))]
    pub quality: u8,
}

impl Default for UndistortOptions {
    fn default() -> Self {
        Self { cameras: Vec::new(), calibration: CalibrationPath::default(), quality: 90 }
    }
}

sluice_core::register! {
    stage "undistort": UndistortOptions,
    about: "takes the lens' distortion out of images",
    sample: include_str!("../../samples/undistort.toml"),
}

impl TryFrom<UndistortOptions> for Stage {
    type Error = OptionsError;

    fn try_from(options: UndistortOptions) -> Result<Self, OptionsError> {
        if !(1..=100).contains(&options.quality) {
            return Err(OptionsError::at("quality", "expected a quality from 1 to 100"));
        }
        let images = Undistort { quality: options.quality };
        let images = ImageMap::new(images, &options.calibration, &options.cameras)?;
        Ok(Self::Map(Box::new(images)))
    }
}

struct Undistort {
    quality: u8,
}

const WIDE: Why = "images of more than 32767 columns or rows stay as they were: a message cannot say how large they are";

/// An image without distortion.
struct Flat {
    event: u32,
    micros: i64,
    size: [i16; 2],
    jpeg: Vec<u8>,
}

impl Undistort {
    /// The image as the camera would have sent it without distortion.
    fn flat(&self, event: u32, image: &Image, camera: &Camera) -> Result<Flat, Why> {
        // What will not be used need not be decoded.
        let [width, height] = image.found.ok_or(BROKEN)?;
        let model = CameraModel::new(camera, width, height).ok_or(SHAPE)?;
        let [Ok(columns), Ok(rows)] = [width, height].map(i16::try_from) else {
            return Err(WIDE);
        };
        let picture = Picture::of_jpeg(&image.bytes).ok_or(BROKEN)?;
        let mut flat = Picture::black(width, height);
        let places = (0..height).flat_map(|row| (0..width).map(move |column| (column, row)));
        for (pixel, (column, row)) in flat.pixels().zip(places) {
            let (u, v) = model.distort(f64::from(column) + 0.5, f64::from(row) + 0.5);
            *pixel = picture.mixed(u, v).unwrap_or_default();
        }
        let jpeg = flat.to_jpeg(self.quality).ok_or(BROKEN)?;
        Ok(Flat { event, micros: image.utime, size: [columns, rows], jpeg })
    }
}

impl PerImage for Undistort {
    type Made = Vec<Flat>;

    fn add(
        &self,
        event: u32,
        image: &Image,
        camera: &Camera,
        flats: &mut Vec<Flat>,
    ) -> Result<(), Why> {
        flats.push(self.flat(event, image, camera)?);
        Ok(())
    }

    fn rows(&self, flats: Vec<Flat>) -> Result<Rows, Error> {
        Ok(rows(flats))
    }
}

/// The images as rows, which are all that is left of their events.
fn rows(flats: Vec<Flat>) -> Rows {
    let sizes = |at: usize| -> ArrayRef {
        Arc::new(Int16Array::from_iter_values(flats.iter().map(|flat| flat.size[at])))
    };
    let micros = Int64Array::from_iter_values(flats.iter().map(|flat| flat.micros));
    let jpegs = BinaryArray::from_iter_values(flats.iter().map(|flat| &flat.jpeg));
    let columns: [(&str, ArrayRef); 4] = [
        ("utime", Arc::new(micros)),
        ("width", sizes(0)),
        ("height", sizes(1)),
        ("image", Arc::new(jpegs)),
    ];
    let field =
        |(name, array): &(&str, ArrayRef)| Field::new(*name, array.data_type().clone(), false);
    let schema = Schema::new(columns.iter().map(field).collect::<Vec<_>>());
    let columns = columns.into_iter().map(|(_, array)| array).collect();
    let columns =
        RecordBatch::try_new(Arc::new(schema), columns).expect("each column has a value an image");
    let events = flats.iter().map(|flat| flat.event).collect();
    let message = MessageType::named(UNDISTORTED, TypeKey(0)).into();
    of_type(Rows { message, payloads: Payloads::Gone, events, columns }, UNDISTORTED)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use arrow_array::cast::AsArray;
    use serde_json::{Value, json};
    use sluice_core::{Batch, BatchBuilder, Channel, Channels, Encoding, Map, Name, StageContext};

    use super::super::image_map::NONE;
    use super::*;
    use crate::calibration::{BUILT_IN, Calibration};

    fn made(options: Value) -> Result<Box<dyn Map>, OptionsError> {
        let options: UndistortOptions = serde_json::from_value(options).unwrap();
        let Stage::Map(map) = Stage::try_from(options)? else { panic!("a map was expected") };
        Ok(map)
    }

    /// A JPEG file of eight by eight pixels that says it has others.
    fn saying(width: u16, height: u16) -> Vec<u8> {
        let mut bytes = Picture::black(8, 8).to_jpeg(90).unwrap();
        let frame = bytes.windows(2).position(|bytes| bytes == [0xff, 0xc0]).unwrap();
        bytes[frame + 5..frame + 7].copy_from_slice(&height.to_be_bytes());
        bytes[frame + 7..frame + 9].copy_from_slice(&width.to_be_bytes());
        bytes
    }

    /// A batch with an image of each of these files, a millisecond apart.
    fn batch(channels: &Channels, images: &[(&str, &[u8])]) -> Batch {
        let mut builder = BatchBuilder::default();
        for (n, (name, _)) in images.iter().enumerate() {
            let channel = Channel::new(Name::from_text(name), "log", Encoding::Lcm);
            let id = channels.intern(channel).unwrap();
            builder.push_copy(n as i64 * 1_000_000, n as i64, id, b"payload");
        }
        let numbers = || images.iter().enumerate();
        let sizes: ArrayRef = Arc::new(Int16Array::from(vec![0; images.len()]));
        let micros = numbers().map(|(n, _)| n as i64 * 1000 - 5);
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("utime", Arc::new(Int64Array::from_iter_values(micros))),
            ("width", Arc::clone(&sizes)),
            ("height", sizes),
            ("image", Arc::new(BinaryArray::from_iter_values(images.iter().map(|(_, b)| *b)))),
        ];
        let columns = RecordBatch::try_from_iter(columns).unwrap();
        let message = MessageType::named("image", TypeKey(1)).into();
        let events = numbers().map(|(n, _)| n as u32).collect();
        builder.finish().with_rows(vec![Rows {
            message,
            payloads: Payloads::Kept,
            events,
            columns,
        }])
    }

    fn bytes(rows: &Rows, row: usize) -> &[u8] {
        rows.columns.column_by_name("image").unwrap().as_binary::<i32>().value(row)
    }

    /// White, with a black dot where the camera sees the point without distortion at these pixels.
    fn dotted(camera: &Camera, [u, v]: [f64; 2]) -> Vec<u8> {
        let model = CameraModel::new(camera, 376, 240).unwrap();
        let (u, v) = model.distort(u, v);
        let mut picture = Picture::black(376, 240);
        let places = (0..240).flat_map(|row| (0..376).map(move |column| (column, row)));
        for (pixel, (column, row)) in picture.pixels().zip(places) {
            let is_near = (f64::from(column) + 0.5 - u).hypot(f64::from(row) + 0.5 - v) < 5.0;
            *pixel = if is_near { [0; 3] } else { [255; 3] };
        }
        picture.to_jpeg(95).unwrap()
    }

    #[test]
    fn what_is_seen_is_where_a_pinhole_would_show_it() {
        let calibration = Calibration::load(Path::new(BUILT_IN)).unwrap();
        let camera = calibration.camera("cam_roof_fc").unwrap();
        let channels = Channels::default();
        for place in [[300.5, 60.5], [90.5, 160.5], [180.0, 133.5]] {
            let batch = batch(&channels, &[("CAM_THUMB_RFC", &dotted(camera, place))]);
            let map = made(json!({})).unwrap();
            let out = map.apply(batch, &mut StageContext::new(&channels, None)).unwrap();
            let flat = Picture::of_jpeg(bytes(&out.rows()[0], 0)).unwrap();
            assert_eq!((flat.width, flat.height), (376, 240));
            let [u, v] = place;
            assert!(flat.colour(u, v).unwrap()[0] < 40, "{place:?}");
            for (u, v) in [(u + 12.0, v), (u - 12.0, v), (u, v + 12.0), (u, v - 12.0)] {
                assert!(flat.colour(u, v).unwrap()[0] > 200, "beside {place:?}");
            }
        }
    }

    #[test]
    fn events_keep_their_times_and_others_stay_as_they_were() {
        let calibration = Calibration::load(Path::new(BUILT_IN)).unwrap();
        let image = dotted(calibration.camera("cam_roof_fc").unwrap(), [90.0, 90.0]);
        let square = Picture::black(16, 16).to_jpeg(90).unwrap();
        let images: [(&str, &[u8]); 4] = [
            ("CAM_THUMB_RFC", b"broken"),
            ("CAM_OTHER", &image),
            ("CAM_THUMB_RFC", &image),
            ("CAM_THUMB_RFC", &square),
        ];
        let channels = Channels::default();
        let mut context = StageContext::new(&channels, None);
        let map = made(json!({ "cameras": ["CAM_THUMB_RFC"], "quality": 80 })).unwrap();
        let out = map.apply(batch(&channels, &images), &mut context).unwrap();
        assert_eq!(out.timestamps(), [0, 1_000_000, 2_000_000, 3_000_000]);
        let [old, new] = out.rows() else { panic!("{:?}", out.rows()) };
        assert_eq!((&old.events[..], &new.events[..]), (&[0, 1, 3][..], &[2][..]));
        assert_eq!(new.payloads, Payloads::Gone);
        assert_eq!([0, 1, 2, 3].map(|event| out.payload_len(event)), [7, 7, 0, 7]);
        let micros = new.columns.column_by_name("utime").unwrap();
        assert_eq!(micros.as_primitive::<arrow_array::types::Int64Type>().value(0), 1995);
        let expected = [BROKEN, SHAPE].map(|why| (format!("CAM_THUMB_RFC: {why}"), 1));
        let mut told = context.notes.clone();
        told.sort_by_key(|(what, _)| !what.ends_with(BROKEN));
        assert_eq!(told, expected);
    }

    #[test]
    fn why_an_image_is_of_no_use_is_told_by_its_header() {
        let calibration = Calibration::load(Path::new(BUILT_IN)).unwrap();
        let camera = calibration.camera("cam_roof_fc").unwrap();
        let undistort = Undistort { quality: 90 };
        let flat = |bytes: &[u8]| {
            let image = Image {
                time: i64::MIN,
                utime: i64::MIN,
                told: [376, 240],
                found: Picture::size_of_jpeg(bytes),
                bytes: bytes.into(),
            };
            undistort.flat(0, &image, camera).map(|flat| flat.micros)
        };
        assert_eq!(flat(&saying(5600, 5600)), Err(SHAPE));
        assert_eq!(flat(&saying(37_600, 24_000)), Err(WIDE));
        let whole = dotted(camera, [90.0, 90.0]);
        assert_eq!(flat(&whole[..whole.len() / 2]), Err(BROKEN));
        // The time of its message, whatever that is.
        assert_eq!(flat(&whole), Ok(i64::MIN));
    }

    #[test]
    fn what_was_put_right_once_is_not_taken_for_an_image_as_it_was_sent() {
        let calibration = Calibration::load(Path::new(BUILT_IN)).unwrap();
        let image = dotted(calibration.camera("cam_roof_fc").unwrap(), [90.0, 90.0]);
        let channels = Channels::default();
        let mut context = StageContext::new(&channels, None);
        let map = made(json!({})).unwrap();
        let once = map.apply(batch(&channels, &[("CAM_THUMB_RFC", &image)]), &mut context).unwrap();
        let twice = map.apply(once.clone(), &mut context).unwrap();
        assert_eq!(bytes(&twice.rows()[0], 0), bytes(&once.rows()[0], 0));
        assert_eq!(context.notes, [(format!("CAM_THUMB_RFC: {NONE}"), 1)]);
    }

    #[test]
    fn mistakes_in_options_name_their_keys() {
        let key = |options| made(options).err().map(|error| error.path[0].clone());
        assert_eq!(key(json!({ "quality": 0 })).as_deref(), Some("quality"));
        assert_eq!(key(json!({ "quality": 101 })).as_deref(), Some("quality"));
        assert_eq!(key(json!({ "cameras": ["nobody"] })).as_deref(), Some("cameras"));
    }
}
