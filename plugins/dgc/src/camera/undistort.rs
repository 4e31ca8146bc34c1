//! Stage `undistort`: removes the lens distortion from images. Ignores points.

use std::sync::Arc;

use arrow_array::{ArrayRef, BinaryArray, Int16Array, Int64Array, RecordBatch};
use arrow_schema::{Field, Schema};
use schemars::JsonSchema;
use serde::Deserialize;
use sluice_model::{
    Error, MessageType, OptionsError, Payloads, PluginFactory, Registry, Rows, Stage, TypeKey,
};

use super::image::{CameraImage, UNDISTORTED};
use super::image_map::{ImageMap, ImageNote, ImageTransform, KeepReason, UNDECODABLE, WRONG_SHAPE};
use super::picture::Picture;
use crate::calibration::{CalibrationPath, Camera};
use crate::camera_model::CameraModel;
use crate::poses::rows::with_type;

/// Options of `undistort`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct UndistortOptions {
    /// Cameras, by name or by the channel of their images. Default: all cameras of the calibration.
    pub(crate) cameras: Vec<String>,
    /// The calibration with the projections of the cameras: `mit-dgc`, or a file.
    pub(crate) calibration: CalibrationPath,
    /// Quality of the output JPEG files, from 1 to 100.
    #[schemars(range(min = 1, max = 100))]
    pub(crate) quality: u8,
}

impl Default for UndistortOptions {
    fn default() -> Self {
        Self { cameras: Vec::new(), calibration: CalibrationPath::default(), quality: 90 }
    }
}

sluice_model::register! {
    stage "undistort": UndistortOptions,
    make: PluginFactory::Stage(|value, registry| stage(sluice_model::options::read(value)?, registry)),
    about: "removes the lens distortion from camera images",
    sample: include_str!("../../samples/undistort.toml"),
}

fn stage(options: UndistortOptions, registry: &Registry) -> Result<Stage, OptionsError> {
    if !(1..=100).contains(&options.quality) {
        return Err(OptionsError::at("quality", "expected a quality from 1 to 100"));
    }
    let images = Undistort { quality: options.quality };
    let images = ImageMap::new(images, &options.calibration, &options.cameras, registry)?;
    Ok(Stage::Map(Box::new(images)))
}

struct Undistort {
    quality: u8,
}

const TOO_WIDE: KeepReason =
    "images of more than 32767 columns or rows, which `image_t` cannot describe; kept unchanged";

/// An undistorted image.
struct UndistortedImage {
    event: u32,
    micros: i64,
    size: [i16; 2],
    jpeg: Vec<u8>,
}

impl Undistort {
    /// Removes the distortion of an image.
    fn undistort(
        &self,
        event: u32,
        image: &CameraImage,
        camera: &Camera,
    ) -> Result<UndistortedImage, KeepReason> {
        // Checked first, to avoid decoding images that cannot be used.
        let [width, height] = image.jpeg_size.ok_or(UNDECODABLE)?;
        let model = CameraModel::new(camera, width, height).ok_or(WRONG_SHAPE)?;
        let [Ok(columns), Ok(rows)] = [width, height].map(i16::try_from) else {
            return Err(TOO_WIDE);
        };
        let picture = Picture::from_jpeg(&image.bytes).ok_or(UNDECODABLE)?;
        let mut flat = Picture::black(width, height);
        let places = (0..height).flat_map(|row| (0..width).map(move |column| (column, row)));
        for (pixel, (column, row)) in flat.pixels().zip(places) {
            let (u, v) = model.distort(f64::from(column) + 0.5, f64::from(row) + 0.5);
            *pixel = picture.bilinear(u, v).unwrap_or_default();
        }
        let jpeg = flat.to_jpeg(self.quality).ok_or(UNDECODABLE)?;
        Ok(UndistortedImage { event, micros: image.utime, size: [columns, rows], jpeg })
    }
}

impl ImageTransform for Undistort {
    type Output = Vec<UndistortedImage>;

    fn transform(
        &self,
        event: u32,
        image: &CameraImage,
        camera: &Camera,
        images: &mut Vec<UndistortedImage>,
    ) -> Result<Option<ImageNote>, KeepReason> {
        images.push(self.undistort(event, image, camera)?);
        Ok(None)
    }

    fn build_rows(&self, images: Vec<UndistortedImage>) -> Result<Rows, Error> {
        Ok(rows(images))
    }
}

/// The images as rows that replace the payloads of their events.
fn rows(images: Vec<UndistortedImage>) -> Rows {
    let sizes = |at: usize| -> ArrayRef {
        Arc::new(Int16Array::from_iter_values(images.iter().map(|flat| flat.size[at])))
    };
    let micros = Int64Array::from_iter_values(images.iter().map(|flat| flat.micros));
    let jpegs = BinaryArray::from_iter_values(images.iter().map(|flat| &flat.jpeg));
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
    let columns = RecordBatch::try_new(Arc::new(schema), columns)
        .expect("each column has one value per image");
    let events = images.iter().map(|flat| flat.event).collect();
    let message = MessageType::named(UNDISTORTED, TypeKey(0)).into();
    with_type(Rows { message, payloads: Payloads::Gone, events, columns }, UNDISTORTED)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use arrow_array::cast::AsArray;
    use serde_json::{Value, json};
    use sluice_model::{Batch, BatchBuilder, Channel, Channels, Encoding, Map, Name, StageContext};

    use super::super::image_map::NOT_AN_IMAGE;
    use super::*;
    use crate::calibration::{BUILT_IN, Calibration};

    fn make_map(options: Value) -> Result<Box<dyn Map>, OptionsError> {
        let options: UndistortOptions = serde_json::from_value(options).unwrap();
        let Stage::Map(map) = stage(options, &Registry::linked())? else {
            panic!("a map was expected")
        };
        Ok(map)
    }

    /// A JPEG file of eight by eight pixels whose header claims another size.
    fn jpeg_claiming(width: u16, height: u16) -> Vec<u8> {
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
    fn undistorted_images_match_the_pinhole_projection() {
        let calibration = Calibration::load(Path::new(BUILT_IN)).unwrap();
        let camera = calibration.camera("cam_roof_fc").unwrap();
        let channels = Channels::default();
        for position in [[300.5, 60.5], [90.5, 160.5], [180.0, 133.5]] {
            let batch = batch(&channels, &[("CAM_THUMB_RFC", &dotted(camera, position))]);
            let map = make_map(json!({})).unwrap();
            let out = map.apply(batch, &mut StageContext::new(&channels, None)).unwrap();
            let flat = Picture::from_jpeg(bytes(&out.rows()[0], 0)).unwrap();
            assert_eq!((flat.width, flat.height), (376, 240));
            let [u, v] = position;
            assert!(flat.colour(u, v).unwrap()[0] < 40, "{position:?}");
            for (u, v) in [(u + 12.0, v), (u - 12.0, v), (u, v + 12.0), (u, v - 12.0)] {
                assert!(flat.colour(u, v).unwrap()[0] > 200, "beside {position:?}");
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
        let map = make_map(json!({ "cameras": ["CAM_THUMB_RFC"], "quality": 80 })).unwrap();
        let out = map.apply(batch(&channels, &images), &mut context).unwrap();
        assert_eq!(out.timestamps(), [0, 1_000_000, 2_000_000, 3_000_000]);
        let [old, new] = out.rows() else { panic!("{:?}", out.rows()) };
        assert_eq!((&old.events[..], &new.events[..]), (&[0, 1, 3][..], &[2][..]));
        assert_eq!(new.payloads, Payloads::Gone);
        assert_eq!([0, 1, 2, 3].map(|event| out.payload_len(event)), [7, 7, 0, 7]);
        let micros = new.columns.column_by_name("utime").unwrap();
        assert_eq!(micros.as_primitive::<arrow_array::types::Int64Type>().value(0), 1995);
        let expected = [UNDECODABLE, WRONG_SHAPE].map(|why| (format!("CAM_THUMB_RFC: {why}"), 1));
        let mut notes = context.report.notes.clone();
        notes.sort_by_key(|(what, _)| !what.ends_with(UNDECODABLE));
        assert_eq!(notes, expected);
    }

    #[test]
    fn unusable_images_are_recognised_by_their_header() {
        let calibration = Calibration::load(Path::new(BUILT_IN)).unwrap();
        let camera = calibration.camera("cam_roof_fc").unwrap();
        let undistort = Undistort { quality: 90 };
        let flat = |bytes: &[u8]| {
            let image = CameraImage {
                time: i64::MIN,
                utime: i64::MIN,
                declared_size: [376, 240],
                jpeg_size: Picture::jpeg_size(bytes),
                bytes: bytes.into(),
            };
            undistort.undistort(0, &image, camera).map(|flat| flat.micros)
        };
        assert_eq!(flat(&jpeg_claiming(5600, 5600)), Err(WRONG_SHAPE));
        assert_eq!(flat(&jpeg_claiming(37_600, 24_000)), Err(TOO_WIDE));
        let whole = dotted(camera, [90.0, 90.0]);
        assert_eq!(flat(&whole[..whole.len() / 2]), Err(UNDECODABLE));
        // The time of its message, whatever it is.
        assert_eq!(flat(&whole), Ok(i64::MIN));
    }

    #[test]
    fn an_undistorted_image_is_not_undistorted_again() {
        let calibration = Calibration::load(Path::new(BUILT_IN)).unwrap();
        let image = dotted(calibration.camera("cam_roof_fc").unwrap(), [90.0, 90.0]);
        let channels = Channels::default();
        let mut context = StageContext::new(&channels, None);
        let map = make_map(json!({})).unwrap();
        let once = map.apply(batch(&channels, &[("CAM_THUMB_RFC", &image)]), &mut context).unwrap();
        let twice = map.apply(once.clone(), &mut context).unwrap();
        assert_eq!(bytes(&twice.rows()[0], 0), bytes(&once.rows()[0], 0));
        assert_eq!(context.report.notes, [(format!("CAM_THUMB_RFC: {NOT_AN_IMAGE}"), 1)]);
    }

    #[test]
    fn mistakes_in_options_name_their_keys() {
        let key = |options| make_map(options).err().map(|error| error.path[0].clone());
        assert_eq!(key(json!({ "quality": 0 })).as_deref(), Some("quality"));
        assert_eq!(key(json!({ "quality": 101 })).as_deref(), Some("quality"));
        assert_eq!(key(json!({ "cameras": ["nobody"] })).as_deref(), Some("cameras"));
    }
}
