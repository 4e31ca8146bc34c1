//! `camera`: where on the images of cameras points are seen, and in which colour. Makes no points and moves
//! none.
//!
//! A fold, which sees events in the order of the log, puts beside each event of points the last image of
//! each camera and where the vehicle was then; a map decodes the images and projects, on all cores.

mod carry;
mod image;
mod image_map;
mod paint;
mod picture;
mod pictures;
pub mod undistort;
pub mod unproject;

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use sluice_core::time::TimeLength;
use sluice_core::{OptionsError, Pattern, Stage};

use crate::calibration::{Calibration, CalibrationPath, Camera};
use crate::poses::options::forward;
use crate::to_frame::mounts::Mounts;
use carry::Carry;
use paint::Paint;

/// Options of `camera`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CameraOptions {
    /// The cameras, by their names or by the channels of their images. Where several see a point, the first
    /// one counts. None given: all that the calibration has, sorted by name.
    pub cameras: Vec<String>,
    /// Where the cameras are mounted, and how they project: `mit-dgc`, or a file.
    pub calibration: CalibrationPath,
    /// What the calibration calls the sensor of a channel, by the channel or a pattern; all others are called
    /// what their channels are. For points in a sensor's frame.
    pub mounts: BTreeMap<String, String>,
    /// An image taken this much before or after the points is not used any more, or not yet.
    pub max_age: TimeLength,
    /// Give each point the colour of its pixel.
    pub colour: bool,
    /// Which image `u` and `v` are pixels of.
    pub pixel: PixelOf,
    /// The channel of the poses: needed for points in the local frame.
    pub pose: Pattern,
    /// Between poses further apart nothing is known: the nearest one counts, if it is not more than a second
    /// away.
    pub max_gap: TimeLength,
    /// What becomes of points that no camera sees.
    pub unseen: Unseen,
}

/// Which image pixels belong to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PixelOf {
    /// The image as it was sent.
    #[default]
    Image,
    /// The image as it would be without the lens' distortion.
    Undistorted,
}

/// What becomes of points that no camera sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Unseen {
    /// They go on without a pixel.
    #[default]
    Keep,
    /// They are left out of their events.
    Drop,
}

impl Default for CameraOptions {
    fn default() -> Self {
        Self {
            cameras: Vec::new(),
            calibration: CalibrationPath::default(),
            mounts: BTreeMap::new(),
            max_age: TimeLength(200_000_000),
            colour: true,
            pixel: PixelOf::default(),
            pose: Pattern::parse("POSE").expect("a plain name is a pattern"),
            max_gap: TimeLength(100_000_000),
            unseen: Unseen::default(),
        }
    }
}

sluice_core::register! {
    stage "camera": CameraOptions,
    about: "gives points their pixels and colours in the images of cameras",
    sample: include_str!("../../samples/camera.toml"),
}

impl TryFrom<CameraOptions> for Stage {
    type Error = OptionsError;

    fn try_from(mut options: CameraOptions) -> Result<Self, OptionsError> {
        forward("max_age", options.max_age)?;
        forward("max_gap", options.max_gap)?;
        let load = options.calibration.load();
        let calibration = load.map_err(|message| OptionsError::at("calibration", message))?;
        let lenses: Arc<[Lens]> = lenses(&calibration, &options.cameras)?.into();
        let fold = Carry::new(Arc::clone(&lenses), &options)?;
        let mounts = Mounts::of(calibration, std::mem::take(&mut options.mounts))?;
        let map = Paint::new(mounts, lenses, &options);
        Ok(Self::Chain(vec![Self::Fold(Box::new(fold)), Self::Map(Box::new(map))]))
    }
}

/// A camera, and the channel of its images.
#[derive(Debug)]
struct Lens {
    camera: Camera,
    channel: String,
}

/// The cameras of these names, in their order; all if none are given.
fn lenses(calibration: &Calibration, names: &[String]) -> Result<Vec<Lens>, OptionsError> {
    let lens = |camera: &Camera| {
        let channel = camera.thumbnail_channel.clone()?;
        Some(Lens { camera: camera.clone(), channel })
    };
    if names.is_empty() {
        let all: Vec<Lens> = calibration.cameras().iter().filter_map(lens).collect();
        return match all.is_empty() {
            true => Err(OptionsError::at("calibration", "no camera in it has a thumbnail_channel")),
            false => Ok(all),
        };
    }
    let mut lenses: Vec<Lens> = Vec::with_capacity(names.len());
    for (at, name) in names.iter().enumerate() {
        let wrong = |message: String| OptionsError {
            path: vec!["cameras".to_owned(), at.to_string()],
            message,
        };
        let camera = calibration.camera(name).ok_or_else(|| {
            let known: Vec<&str> = calibration.cameras().iter().map(|c| c.name.as_str()).collect();
            wrong(format!("no camera `{name}` in the calibration; known are {}", known.join(", ")))
        })?;
        if lenses.iter().any(|lens| lens.camera.name == camera.name) {
            return Err(wrong(format!("the camera `{}` is given twice", camera.name)));
        }
        let lens = lens(camera);
        lenses.push(lens.ok_or_else(|| wrong(format!("`{name}` has no thumbnail_channel")))?);
    }
    Ok(lenses)
}

/// The column with the images of a camera that events see, by number. Only the map sees it.
fn image_column(camera: usize) -> String {
    format!("image of camera {camera}")
}

/// The column with what else is known of them: see [`carry::View`]. Only the map sees it.
fn view_column(camera: usize) -> String {
    format!("view of camera {camera}")
}

#[cfg(test)]
mod tests;
