//! The content of a calibration: mounts, cameras and the shape of the vehicle.

use std::collections::BTreeMap;

use crate::geometry::{Quaternion, Transform};

/// Where a sensor or camera is mounted on the vehicle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mount {
    /// Origin in the body frame, in metres.
    pub position: [f64; 3],
    /// Orientation of its axes in the body frame; a unit quaternion.
    pub orientation: Quaternion,
}

impl Mount {
    /// The transform from the sensor frame to the body frame.
    pub fn to_body(&self) -> Transform {
        Transform::new(self.position, &self.orientation)
    }
}

/// A calibrated camera.
#[derive(Clone, Debug, PartialEq)]
pub struct Camera {
    /// Name in the calibration.
    pub name: String,
    /// Width of the calibration images, in pixels.
    pub width: u16,
    /// Height of the calibration images, in pixels.
    pub height: u16,
    /// The pinhole parameters.
    pub pinhole: Pinhole,
    /// The lens distortion.
    pub distortion: Distortion,
    /// The mount: x to the right, y down and z ahead, as in its images.
    pub mount: Mount,
    /// Hardware identifier.
    pub uid: Option<String>,
    /// Channel of its thumbnails.
    pub thumbnail_channel: Option<String>,
    /// Channel of the URLs of its images.
    pub image_url_channel: Option<String>,
    /// Channel of its full-size images.
    pub full_frame_channel: Option<String>,
    /// Abbreviated name.
    pub short_name: Option<String>,
}

/// Pinhole parameters, in pixels of the calibration images.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pinhole {
    /// Horizontal focal length.
    pub fx: f64,
    /// Vertical focal length.
    pub fy: f64,
    /// Skew: how much `u` grows with y.
    pub skew: f64,
    /// Column of the principal point.
    pub cx: f64,
    /// Row of the principal point.
    pub cy: f64,
}

/// A lens distortion model.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Distortion {
    /// No distortion.
    None,
    /// Spherical distortion.
    Spherical {
        /// Offset of its centre from the image centre, in image widths.
        center: [f64; 2],
        /// Strength of the distortion.
        param: f64,
    },
}

/// The corners of the vehicle: x and y in the body frame, in metres.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VehicleBounds {
    /// Front left corner.
    pub front_left: [f64; 2],
    /// Front right corner.
    pub front_right: [f64; 2],
    /// Rear left corner.
    pub rear_left: [f64; 2],
    /// Rear right corner.
    pub rear_right: [f64; 2],
}

/// The content of a calibration file, in either language.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct VehicleCalibration {
    pub(super) mounts: BTreeMap<String, Mount>,
    pub(super) cameras: Vec<Camera>,
    pub(super) masks: BTreeMap<String, [f64; 2]>,
    pub(super) bounds: Option<VehicleBounds>,
    pub(super) nad83_offset: Option<[f64; 3]>,
}
