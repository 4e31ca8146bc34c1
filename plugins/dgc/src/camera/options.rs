//! Options of the stage `camera`, and the cameras that they name.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_model::options::CHANNELS_FORMAT;
use sluice_model::time::TimeSpan;
use sluice_model::{OptionsError, Pattern};

use crate::calibration::{Calibration, CalibrationPath, Camera};

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
    #[schemars(extend("propertyNames" = { "type": "string", "format": CHANNELS_FORMAT }))]
    pub(crate) mounts: BTreeMap<String, String>,
    /// Maximum time between an image and the points; older and newer images are not used.
    pub(crate) max_age: TimeSpan,
    /// Adds the colour of its pixel to each point.
    pub(crate) colour: bool,
    /// The image that `u` and `v` refer to.
    pub(crate) pixel: PixelOf,
    /// Channel of the poses; needed for points in the local frame.
    pub(crate) pose: Pattern,
    /// Maximum gap between two poses to interpolate between them. Otherwise the nearest pose is
    /// used, if it is at most a second away.
    pub(crate) max_gap: TimeSpan,
    /// What happens to points that no camera sees.
    pub(crate) unseen: UnseenPoints,
}

/// The image that pixels refer to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PixelOf {
    /// The image as sent.
    #[default]
    Image,
    /// The image without lens distortion.
    Undistorted,
}

/// What happens to points that no camera sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
            max_age: TimeSpan(200_000_000),
            colour: true,
            pixel: PixelOf::default(),
            pose: Pattern::parse("POSE").expect("a plain name is a pattern"),
            max_gap: TimeSpan(100_000_000),
            unseen: UnseenPoints::default(),
        }
    }
}

/// A camera and the channel of its images.
#[derive(Debug)]
pub(super) struct CameraChannel {
    pub(super) camera: Camera,
    pub(super) channel: String,
}

/// The cameras with these names, in this order, or all if `names` is empty.
pub(super) fn camera_channels(
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
        let wrong = |message: String| OptionsError::in_entry("cameras", at, message);
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
pub(super) fn image_column(camera: usize) -> String {
    format!("image of camera {camera}")
}

/// The column with a camera's views: see `ImageView`. Internal to the stage.
pub(super) fn view_column(camera: usize) -> String {
    format!("view of camera {camera}")
}
