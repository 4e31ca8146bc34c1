//! Stage `camera`: the pixels and colours of points in camera images. Neither adds nor moves
//! points.
//!
//! A fold, which sees events in log order, attaches to each event of points the last image of each
//! camera and the vehicle's pose at that time. A map then decodes the images and projects the
//! points, on all cores.

mod attach_images;
mod image;
mod image_map;
mod picture;
mod picture_cache;
mod projector;
mod undistort;
mod unproject;

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use sluice_model::time::TimeLength;
use sluice_model::{OptionsError, Pattern, Stage};

use crate::calibration::{Calibration, CalibrationPath, Camera};
use crate::poses::options::non_negative;
use crate::to_frame::mounts::SensorMounts;
use attach_images::AttachImages;
use projector::ProjectPoints;

/// Options of `camera`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CameraOptions {
    /// Cameras, by name or by the channel of their images. If several see a point, the first one
    /// wins. Default: all cameras of the calibration, sorted by name.
    pub(crate) cameras: Vec<String>,
    /// The calibration with the mounts and projections of the cameras: `mit-dgc`, or a file.
    pub(crate) calibration: CalibrationPath,
    /// Names of sensors in the calibration, by channel or pattern; other sensors have the name of
    /// their channel. For points in a sensor's frame.
    pub(crate) mounts: BTreeMap<String, String>,
    /// Maximum time between an image and the points; older and newer images are not used.
    pub(crate) max_age: TimeLength,
    /// Adds the colour of its pixel to each point.
    pub(crate) colour: bool,
    /// The image that `u` and `v` refer to.
    pub(crate) pixel: PixelOf,
    /// Channel of the poses; needed for points in the local frame.
    pub(crate) pose: Pattern,
    /// Maximum gap between two poses to interpolate between them. Otherwise the nearest pose is
    /// used, if it is at most a second away.
    pub(crate) max_gap: TimeLength,
    /// What happens to points that no camera sees.
    pub(crate) unseen: UnseenPoints,
}

/// The image that pixels refer to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PixelOf {
    /// The image as sent.
    #[default]
    Image,
    /// The image without lens distortion.
    Undistorted,
}

/// What happens to points that no camera sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum UnseenPoints {
    /// They are kept without a pixel.
    #[default]
    Keep,
    /// They are removed from their events.
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
            unseen: UnseenPoints::default(),
        }
    }
}

sluice_model::register! {
    stage "camera": CameraOptions,
    about: "adds to points their pixels and colours in camera images",
    sample: include_str!("../../samples/camera.toml"),
}

impl TryFrom<CameraOptions> for Stage {
    type Error = OptionsError;

    fn try_from(mut options: CameraOptions) -> Result<Self, OptionsError> {
        non_negative("max_age", options.max_age)?;
        non_negative("max_gap", options.max_gap)?;
        let load = options.calibration.load();
        let calibration = load.map_err(|message| OptionsError::at("calibration", message))?;
        let lenses: Arc<[CameraChannel]> = camera_channels(&calibration, &options.cameras)?.into();
        let fold = AttachImages::new(Arc::clone(&lenses), &options)?;
        let mounts = SensorMounts::new(calibration, std::mem::take(&mut options.mounts))?;
        let map = ProjectPoints::new(mounts, lenses, &options);
        Ok(Self::Chain(vec![Self::Fold(Box::new(fold)), Self::Map(Box::new(map))]))
    }
}

/// A camera and the channel of its images.
#[derive(Debug)]
struct CameraChannel {
    camera: Camera,
    channel: String,
}

/// The cameras with these names, in this order, or all if `names` is empty.
fn camera_channels(
    calibration: &Calibration,
    names: &[String],
) -> Result<Vec<CameraChannel>, OptionsError> {
    let lens = |camera: &Camera| {
        let channel = camera.thumbnail_channel.clone()?;
        Some(CameraChannel { camera: camera.clone(), channel })
    };
    if names.is_empty() {
        let all: Vec<CameraChannel> = calibration.cameras().iter().filter_map(lens).collect();
        return match all.is_empty() {
            true => {
                Err(OptionsError::at("calibration", "expected a camera with a thumbnail_channel"))
            }
            false => Ok(all),
        };
    }
    let mut lenses: Vec<CameraChannel> = Vec::with_capacity(names.len());
    for (at, name) in names.iter().enumerate() {
        let wrong = |message: String| OptionsError {
            path: vec!["cameras".to_owned(), at.to_string()],
            message,
        };
        let camera = calibration.camera(name).ok_or_else(|| {
            let known: Vec<&str> = calibration.cameras().iter().map(|c| c.name.as_str()).collect();
            wrong(format!("unknown camera `{name}`: expected one of {}", known.join(", ")))
        })?;
        if lenses.iter().any(|lens| lens.camera.name == camera.name) {
            return Err(wrong(format!("duplicate camera `{}`", camera.name)));
        }
        let lens = lens(camera);
        lenses
            .push(lens.ok_or_else(|| wrong(format!("camera `{name}` has no thumbnail_channel")))?);
    }
    Ok(lenses)
}

/// The column with a camera's images. Internal to the stage.
fn image_column(camera: usize) -> String {
    format!("image of camera {camera}")
}

/// The column with a camera's views: see [`attach_images::ImageView`]. Internal to the stage.
fn view_column(camera: usize) -> String {
    format!("view of camera {camera}")
}

#[cfg(test)]
mod tests;
