//! `unproject`: the points that pixels of cameras look at, at a depth or on a plane. Knows no depth by itself, and
//! looks at no other points.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, StructArray, UInt8Array};
use arrow_buffer::OffsetBuffer;
use arrow_schema::Field;
use schemars::JsonSchema;
use serde::Deserialize;
use sluice_core::{
    Batch, Error, Map, MapQuery, OptionsError, PerChannel, Rows, Stage, StageContext,
};

use super::image::Image;
use super::picture::Picture;
use super::undistort::{Left, Why, others, tell};
use super::{Lens, lenses};
use crate::calibration::CalibrationPath;
use crate::camera_model::CameraModel;
use crate::messages::Messages;
use crate::points::{self, Frame};
use crate::poses::Known;
use crate::poses::rows::in_place;

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
        let load = options.calibration.load();
        let calibration = load.map_err(|message| OptionsError::at("calibration", message))?;
        Ok(Self::Map(Box::new(Unproject {
            lenses: lenses(&calibration, &options.cameras)?,
            made_from: calibration.made_from().to_owned(),
            onto,
            options,
            lens_of: PerChannel::default(),
            messages: Messages::of_dataset()?,
        })))
    }
}

struct Unproject {
    lenses: Vec<Lens>,
    made_from: String,
    onto: Onto,
    options: UnprojectOptions,
    /// The number of the camera whose images a channel has.
    lens_of: PerChannel<Option<usize>>,
    messages: Messages,
}

const NONE: Why = "events that are no images as they were sent stay as they are";
const BROKEN: Why = "images that are no JPEG, cut off or too large stay as they were";
const SHAPE: Why = "images of another shape than the camera's stay as they were";
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

    /// Adds the points of an image.
    fn add(&self, event: u32, image: &Image, lens: &Lens, found: &mut Found) -> Result<(), Why> {
        let size = image.found.ok_or(BROKEN)?;
        let model = CameraModel::new(&lens.camera, size[0], size[1]).ok_or(SHAPE)?;
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

    /// The points of these events, and which events have none.
    fn found(
        &self,
        batch: &Batch,
        events: &[u32],
        lens_of: impl Fn(u32) -> Option<usize>,
        context: &StageContext<'_>,
    ) -> Result<(Found, Vec<Left>), Error> {
        let messages = self.messages.rows(batch, events, context.channels)?;
        let (mut images, mut left) = (Vec::new(), messages.bad);
        for rows in &messages.rows {
            let known = Image::of(rows, batch.timestamps());
            let wrong = if known.is_some() { Image::WRONG } else { NONE };
            let known = known.unwrap_or_else(|| vec![None; rows.events.len()]);
            let known = rows.events.iter().zip(known);
            images.extend(known.map(|(event, image)| (*event, image.ok_or(wrong))));
        }
        images.sort_by_key(|(event, _)| *event);
        let mut found = Found::default();
        for (event, image) in images {
            let lens = lens_of(event).and_then(|lens| self.lenses.get(lens)).ok_or(NONE);
            let added = lens.and_then(|lens| self.add(event, &image?, lens, &mut found));
            left.extend(added.err().map(|why| (event, why)));
        }
        Ok((found, left))
    }

    /// The points as rows, which are all that is left of their events.
    fn rows(&self, found: Found) -> Result<Rows, Error> {
        if i32::try_from(found.numbers[0].len()).is_err() {
            return Err(Error::unfit("more than two thousand million points in one batch"));
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

impl Map for Unproject {
    fn apply(&self, batch: Batch, context: &mut StageContext<'_>) -> Result<Batch, Error> {
        let lens_of = self.lens_of.table(context.channels, |channel| {
            Ok(self.lenses.iter().position(|lens| lens.channel == channel.name.text()))
        })?;
        let events = (0u32..).zip(batch.channels());
        let events = events.filter(|(_, channel)| lens_of[**channel as usize].is_some());
        let events: Vec<u32> = events.map(|(event, _)| event).collect();
        if events.is_empty() {
            return Ok(batch);
        }
        let lens_of = |event: u32| lens_of[batch.channels()[event as usize] as usize];
        let (found, left) = self.found(&batch, &events, lens_of, context)?;
        tell(&batch, left, context);
        if found.events.is_empty() {
            return Ok(batch);
        }
        let new = self.rows(found)?;
        let old = batch.rows().iter().filter_map(|rows| others(rows, &new.events));
        let all = old.chain([new.clone()]).collect();
        Ok(in_place(batch, all))
    }

    fn query(&self) -> MapQuery {
        MapQuery { keeps_times: true, keeps_channels: true, ..MapQuery::default() }
    }

    fn beside_options(&self) -> Option<String> {
        Some(self.made_from.clone())
    }
}
