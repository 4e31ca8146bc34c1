//! `unproject`: the points that pixels of cameras look at, at a depth or on a plane. Knows no depth by itself, and
//! looks at no other points.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, StructArray, UInt8Array};
use arrow_buffer::OffsetBuffer;
use arrow_schema::Field;
use schemars::JsonSchema;
use serde::Deserialize;
use sluice_core::{Error, OptionsError, Rows, Stage};

use super::image::Image;
use super::image_map::{BROKEN, ImageMap, PerImage, SHAPE, Why};
use super::picture::Picture;
use crate::calibration::{CalibrationPath, Camera};
use crate::camera_model::CameraModel;
use crate::points::{self, Frame};

/// Options of `unproject`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UnprojectOptions {
    /// The cameras, by their names or by the channels of their images. None given: all that the calibration
    /// has.
    pub cameras: Vec<String>,
    /// Where the cameras are mounted, and how they project: `mit-dgc`, or a file.
    pub calibration: CalibrationPath,
    /// Every so manieth pixel of every so manieth row becomes a point, by its centre.
    #[schemars(range(min = 1))]
    pub every: u32,
    /// Only these places of the image as it was sent: column and row, the first pixel reaches from 0 to 1.
    pub pixels: Vec<[f64; 2]>,
    /// How far along the optical axis the points lie, in metres: 1 if left out, which gives the rays.
    pub depth: Option<f64>,
    /// Instead: how high above the ground the plane is, level with the body, that the points lie on.
    pub height: Option<f64>,
    /// Points farther from the camera than so many metres are left out.
    pub max_range: Option<f64>,
    /// The frame of the points: `body`, or `sensor` for the camera's own. To the local one leads `to-frame`.
    pub frame: Frame,
    /// Give each point the colour of its pixel.
    pub colour: bool,
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
            frame: Frame::Body,
            colour: true,
        }
    }
}

sluice_core::register! {
    stage "unproject": UnprojectOptions,
    about: "turns pixels of cameras into the points that they look at",
    sample: include_str!("../../samples/unproject.toml"),
}

/// What ends a ray.
#[derive(Clone, Copy, Debug)]
enum Onto {
    Depth(f64),
    Height(f64),
}

/// More points of one image are refused.
const MOST_POINTS: u64 = 4 << 20;

impl TryFrom<UnprojectOptions> for Stage {
    type Error = OptionsError;

    fn try_from(options: UnprojectOptions) -> Result<Self, OptionsError> {
        if options.every == 0 {
            return Err(OptionsError::at("every", "expected 1 or more"));
        }
        if options.frame == Frame::Local {
            let what = "points come in the frame `body` or `sensor`; `to-frame` brings them into the local one";
            return Err(OptionsError::at("frame", what));
        }
        let is_far = |metres: &f64| metres.is_finite() && *metres > 0.0;
        for (key, metres) in [("depth", options.depth), ("max_range", options.max_range)] {
            if metres.is_some_and(|metres| !is_far(&metres)) {
                return Err(OptionsError::at(key, "expected metres, above 0"));
            }
        }
        let onto = match (options.depth, options.height) {
            (Some(_), Some(_)) => {
                let what = "a point lies at a `depth` or at a `height`: give one of them";
                return Err(OptionsError::at("height", what));
            }
            (_, Some(height)) if !height.is_finite() => {
                return Err(OptionsError::at("height", "expected metres above the ground"));
            }
            (_, Some(height)) => Onto::Height(height),
            (depth, None) => Onto::Depth(depth.unwrap_or(1.0)),
        };
        let (calibration, cameras) = (options.calibration.clone(), options.cameras.clone());
        let images = ImageMap::new(Unproject { onto, options }, &calibration, &cameras)?;
        Ok(Self::Map(Box::new(images)))
    }
}

struct Unproject {
    onto: Onto,
    options: UnprojectOptions,
}

const MANY: Why = "images of more than 4 million points stay as they were: take fewer by `every`";

/// What pixels of some events look at.
#[derive(Default)]
struct Found {
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
    /// The point that a place of the image looks at, in the frame that is asked for, and its depth. Nothing if
    /// there is none, or none so near.
    fn point(&self, model: &CameraModel, [u, v]: [f64; 2]) -> Option<([f64; 3], f64)> {
        let origin = model.position();
        let ray = model.ray(u, v)?;
        let depth = match self.onto {
            Onto::Depth(depth) => depth,
            Onto::Height(height) => (height - origin[2]) / ray[2],
        };
        let from_camera = ray.map(|along| along * depth);
        let range = from_camera.iter().map(|part| part * part).sum::<f64>().sqrt();
        let is_near = range.is_finite() && self.options.max_range.is_none_or(|most| range <= most);
        if depth <= 0.0 || !is_near {
            return None;
        }
        let mut axis = 0..3;
        let point = from_camera.map(|along| origin[axis.next().unwrap_or_default()] + along);
        let in_frame = if self.options.frame == Frame::Sensor {
            model.from_body().apply(point)
        } else {
            point
        };
        Some((in_frame, depth))
    }

    /// The places of an image that are asked for.
    fn places(&self, [width, height]: [u32; 2]) -> Result<Vec<[f64; 2]>, Why> {
        let (width_of, height_of) = (f64::from(width), f64::from(height));
        if !self.options.pixels.is_empty() {
            let is_inside =
                |[u, v]: &&[f64; 2]| (0.0..width_of).contains(u) && (0.0..height_of).contains(v);
            return Ok(self.options.pixels.iter().filter(is_inside).copied().collect());
        }
        let every = self.options.every;
        let count = |len: u32| u64::from(len.div_ceil(every));
        if count(width) * count(height) > MOST_POINTS {
            return Err(MANY);
        }
        let step = every as usize;
        let rows = (0..height).step_by(step);
        let places = rows.flat_map(|row| {
            (0..width).step_by(step).map(move |column| [column, row].map(|at| f64::from(at) + 0.5))
        });
        Ok(places.collect())
    }
}

impl PerImage for Unproject {
    type Made = Found;

    fn add(
        &self,
        event: u32,
        image: &Image,
        camera: &Camera,
        found: &mut Found,
    ) -> Result<(), Why> {
        let size = image.found.ok_or(BROKEN)?;
        let model = CameraModel::new(camera, size[0], size[1]).ok_or(SHAPE)?;
        let places = self.places(size)?;
        let picture = match self.options.colour {
            true => Some(Picture::of_jpeg(&image.bytes).ok_or(BROKEN)?),
            false => None,
        };
        let before = found.numbers[0].len();
        for [u, v] in places {
            let Some(([x, y, z], depth)) = self.point(&model, [u, v]) else { continue };
            let numbers = [x, y, z, u, v, depth];
            found.numbers.iter_mut().zip(numbers).for_each(|(to, number)| to.push(number));
            if let Some(picture) = &picture {
                let colour = picture.colour(u, v).unwrap_or_default();
                found.colours.iter_mut().zip(colour).for_each(|(to, part)| to.push(part));
            }
        }
        found.events.push(event);
        found.utimes.push(image.utime);
        found.lengths.push(found.numbers[0].len() - before);
        Ok(())
    }

    fn rows(&self, found: Found) -> Result<Rows, Error> {
        if i32::try_from(found.numbers[0].len()).is_err() {
            return Err(Error::invalid("more than two thousand million points in one batch"));
        }
        let numbers =
            found.numbers.map(|numbers| Arc::new(Float64Array::from(numbers)) as ArrayRef);
        let mut members: Vec<(&str, ArrayRef)> = NUMBERS.into_iter().zip(numbers).collect();
        if self.options.colour {
            let colours = found.colours.map(|parts| Arc::new(UInt8Array::from(parts)) as ArrayRef);
            members.extend(COLOURS.into_iter().zip(colours));
        }
        let fields: Vec<Field> = members
            .iter()
            .map(|(name, array)| Field::new(*name, array.data_type().clone(), false))
            .collect();
        let arrays = members.into_iter().map(|(_, array)| array).collect();
        let points = StructArray::new(fields.into(), arrays, None);
        let offsets = OffsetBuffer::from_lengths(found.lengths);
        Ok(points::rows_of(found.events, found.utimes, (points, offsets), self.options.frame))
    }
}
