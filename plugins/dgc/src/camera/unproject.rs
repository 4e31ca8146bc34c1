//! Stage `unproject`: turns pixels of camera images into points at a given depth or on a plane.
//! Neither estimates depth nor uses other points.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, StructArray, UInt8Array};
use arrow_buffer::OffsetBuffer;
use arrow_schema::Field;
use schemars::JsonSchema;
use serde::Deserialize;
use sluice_model::{Error, OptionsError, PluginFactory, Registry, Rows, Stage};

use super::image::CameraImage;
use super::image_map::{ImageMap, ImageNote, ImageTransform, KeepReason, UNDECODABLE, WRONG_SHAPE};
use super::picture::Picture;
use crate::calibration::{CalibrationPath, Camera};
use crate::camera_model::CameraModel;
use crate::points::{self, PointFrame};

/// Options of `unproject`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct UnprojectOptions {
    /// Cameras, by name or by the channel of their images. Default: all cameras of the calibration.
    pub(crate) cameras: Vec<String>,
    /// The calibration with the mounts and projections of the cameras: `mit-dgc`, or a file.
    pub(crate) calibration: CalibrationPath,
    /// Step between pixels, in columns and rows: `16` uses every 16th pixel of every 16th row, at
    /// its centre.
    #[schemars(range(min = 1))]
    pub(crate) every: u32,
    /// Only these positions of the image as sent, as column and row; the first pixel spans 0 to 1.
    pub(crate) pixels: Vec<[f64; 2]>,
    /// Depth of the points along the optical axis, in metres. Default: 1, which yields rays.
    pub(crate) depth: Option<f64>,
    /// Alternative to `depth`: height above the ground of a plane level with the body, on which the
    /// points lie.
    pub(crate) height: Option<f64>,
    /// Maximum distance from the camera, in metres; farther points are left out.
    pub(crate) max_range: Option<f64>,
    /// Frame of the points: `body`, or `sensor` for the frame of the camera. Use `to-frame` for the
    /// local frame.
    pub(crate) frame: PointFrame,
    /// Adds the colour of its pixel to each point.
    pub(crate) colour: bool,
}

impl Default for UnprojectOptions {
    fn default() -> Self {
        Self {
            cameras: Vec::new(),
            calibration: CalibrationPath::default(),
            every: 16,
            pixels: Vec::new(),
            depth: None,
            height: None,
            max_range: None,
            frame: PointFrame::Body,
            colour: true,
        }
    }
}

sluice_model::register! {
    stage "unproject": UnprojectOptions,
    make: PluginFactory::Stage(|value, registry| stage(sluice_model::options::read(value)?, registry)),
    about: "turns pixels of camera images into points at a depth or on a plane",
    sample: include_str!("../../samples/unproject.toml"),
}

/// Where a ray ends.
#[derive(Clone, Copy, Debug)]
enum RayTarget {
    Depth(f64),
    Height(f64),
}

/// Maximum number of points per image.
const MAX_POINTS: u64 = 4 << 20;

fn stage(options: UnprojectOptions, registry: &Registry) -> Result<Stage, OptionsError> {
    if options.every == 0 {
        return Err(OptionsError::at("every", "expected 1 or more"));
    }
    if !options.pixels.is_empty() && options.every != UnprojectOptions::default().every {
        let what = "expected either `every` or `pixels`, found both";
        return Err(OptionsError::at("every", what));
    }
    let is_pixel = |position: &[f64; 2]| position.iter().all(|at| at.is_finite() && *at >= 0.0);
    if let Some(wrong) = options.pixels.iter().position(|position| !is_pixel(position)) {
        return Err(OptionsError::in_entry("pixels", wrong, "expected a column and a row from 0"));
    }
    if options.frame == PointFrame::Local {
        let what = "expected `body` or `sensor`; `to-frame` moves points into the local frame";
        return Err(OptionsError::at("frame", what));
    }
    let is_far = |metres: &f64| metres.is_finite() && *metres > 0.0;
    for (key, metres) in [("depth", options.depth), ("max_range", options.max_range)] {
        if metres.is_some_and(|metres| !is_far(&metres)) {
            return Err(OptionsError::at(key, "expected metres above 0"));
        }
    }
    let target = match (options.depth, options.height) {
        (Some(_), Some(_)) => {
            let what = "expected either `depth` or `height`, found both";
            return Err(OptionsError::at("height", what));
        }
        (_, Some(height)) if !height.is_finite() => {
            return Err(OptionsError::at("height", "expected metres above the ground"));
        }
        (_, Some(height)) => RayTarget::Height(height),
        (depth, None) => RayTarget::Depth(depth.unwrap_or(1.0)),
    };
    if let (RayTarget::Depth(depth), Some(most)) = (target, options.max_range)
        && most < depth
    {
        let what = format!("expected at least the depth of the points, which is {depth}");
        return Err(OptionsError::at("max_range", what));
    }
    let (calibration, cameras) = (options.calibration.clone(), options.cameras.clone());
    let images = ImageMap::new(Unproject { target, options }, &calibration, &cameras, registry)?;
    Ok(Stage::Map(Box::new(images)))
}

struct Unproject {
    target: RayTarget,
    options: UnprojectOptions,
}

const TOO_MANY_POINTS: KeepReason =
    "images of more than 4 million points; kept unchanged (a larger `every` yields fewer points)";

const MISSING_POINTS: ImageNote = "images of which pixels have no point: these are outside the \
                                   image, see nothing of the plane, or only points farther than \
                                   `max_range`";

/// Points unprojected from the images of a batch.
#[derive(Default)]
struct UnprojectedPoints {
    events: Vec<u32>,
    utimes: Vec<i64>,
    lengths: Vec<usize>,
    /// x, y, z, u, v and depth, column by column.
    numbers: [Vec<f64>; 6],
    /// Red, green and blue.
    colours: [Vec<u8>; 3],
}

const NUMBERS: [&str; 6] = ["x", "y", "z", "u", "v", "depth"];
const COLOURS: [&str; 3] = ["red", "green", "blue"];

impl Unproject {
    /// The point that a position of the image looks at, in the requested frame, and its depth.
    /// `None` if there is none within `max_range`.
    fn point(&self, model: &CameraModel, [u, v]: [f64; 2]) -> Option<([f64; 3], f64)> {
        let origin = model.position();
        let ray = model.ray(u, v)?;
        let depth = match self.target {
            RayTarget::Depth(depth) => depth,
            RayTarget::Height(height) => (height - origin[2]) / ray[2],
        };
        let from_camera = ray.map(|along| along * depth);
        let range = from_camera.iter().map(|part| part * part).sum::<f64>().sqrt();
        let is_near = range.is_finite() && self.options.max_range.is_none_or(|most| range <= most);
        if depth <= 0.0 || !is_near {
            return None;
        }
        let mut axis = 0..3;
        let point = from_camera.map(|along| origin[axis.next().unwrap_or_default()] + along);
        let in_frame = if self.options.frame == PointFrame::Sensor {
            model.from_body().apply(point)
        } else {
            point
        };
        Some((in_frame, depth))
    }

    /// The positions of an image to unproject.
    fn positions(&self, [width, height]: [u32; 2]) -> Result<Vec<[f64; 2]>, KeepReason> {
        let (width_of, height_of) = (f64::from(width), f64::from(height));
        if !self.options.pixels.is_empty() {
            let is_inside =
                |[u, v]: &&[f64; 2]| (0.0..width_of).contains(u) && (0.0..height_of).contains(v);
            return Ok(self.options.pixels.iter().filter(is_inside).copied().collect());
        }
        let every = self.options.every;
        let count = |len: u32| u64::from(len.div_ceil(every));
        if count(width) * count(height) > MAX_POINTS {
            return Err(TOO_MANY_POINTS);
        }
        let step = every as usize;
        let rows = (0..height).step_by(step);
        let positions = rows.flat_map(|row| {
            (0..width).step_by(step).map(move |column| [column, row].map(|at| f64::from(at) + 0.5))
        });
        Ok(positions.collect())
    }
}

impl ImageTransform for Unproject {
    type Output = UnprojectedPoints;

    fn transform(
        &self,
        event: u32,
        image: &CameraImage,
        camera: &Camera,
        unprojected: &mut UnprojectedPoints,
    ) -> Result<Option<ImageNote>, KeepReason> {
        let size = image.jpeg_size.ok_or(UNDECODABLE)?;
        let model = CameraModel::new(camera, size[0], size[1]).ok_or(WRONG_SHAPE)?;
        let positions = self.positions(size)?;
        let picture = match self.options.colour {
            true => Some(Picture::from_jpeg(&image.bytes).ok_or(UNDECODABLE)?),
            false => None,
        };
        let before = unprojected.numbers[0].len();
        for [u, v] in positions {
            let Some(([x, y, z], depth)) = self.point(&model, [u, v]) else { continue };
            let numbers = [x, y, z, u, v, depth];
            unprojected.numbers.iter_mut().zip(numbers).for_each(|(to, number)| to.push(number));
            if let Some(picture) = &picture {
                let colour = picture.colour(u, v).unwrap_or_default();
                unprojected.colours.iter_mut().zip(colour).for_each(|(to, part)| to.push(part));
            }
        }
        unprojected.events.push(event);
        unprojected.utimes.push(image.utime);
        let points = unprojected.numbers[0].len() - before;
        unprojected.lengths.push(points);
        // Every image has pixels of a grid that see no point, such as those of the sky.
        let least = self.options.pixels.len().max(1);
        Ok((points < least).then_some(MISSING_POINTS))
    }

    fn build_rows(&self, unprojected: UnprojectedPoints) -> Result<Rows, Error> {
        if i32::try_from(unprojected.numbers[0].len()).is_err() {
            return Err(Error::invalid("more than 2^31 points in one batch"));
        }
        let numbers =
            unprojected.numbers.map(|numbers| Arc::new(Float64Array::from(numbers)) as ArrayRef);
        let mut members: Vec<(&str, ArrayRef)> = NUMBERS.into_iter().zip(numbers).collect();
        if self.options.colour {
            let colours =
                unprojected.colours.map(|parts| Arc::new(UInt8Array::from(parts)) as ArrayRef);
            members.extend(COLOURS.into_iter().zip(colours));
        }
        let fields: Vec<Field> = members
            .iter()
            .map(|(name, array)| Field::new(*name, array.data_type().clone(), false))
            .collect();
        let arrays = members.into_iter().map(|(_, array)| array).collect();
        let points = StructArray::new(fields.into(), arrays, None);
        let offsets = OffsetBuffer::from_lengths(unprojected.lengths);
        Ok(points::rows_from_points(
            unprojected.events,
            unprojected.utimes,
            (points, offsets),
            self.options.frame,
        ))
    }
}
