//! Support for the MIT Urban Challenge dataset: its message types, camera logs, the calibration of
//! the vehicle, laser packets and scans as points, coordinate frames, georeferencing, and cameras.
//!
//! None of it is bound to that one vehicle: calibration, laser tables and channels are options.

mod calibration;
mod camera;
mod camera_model;
mod camlog;
mod config;
mod dataset_decoder;
mod event_report;
mod geometry;
mod georeference;
mod globe;
mod laser;
mod mount_events;
mod points;
mod poses;
mod ranges;
mod to_frame;
mod velodyne;

/// What fuzz targets, benchmarks and the tests of this crate need. Not part of the public API.
#[doc(hidden)]
pub mod fuzzing {
    pub use crate::calibration::{
        BUILT_IN, Calibration, Camera, Distortion, Mount, Pinhole, VehicleBounds,
    };
    pub use crate::camera_model::{CameraModel, Pixel};
    pub use crate::config::{ConfigEntry, ConfigValue, Document, Scalar};
    pub use crate::geometry::{Quaternion, Transform};
    pub use crate::points::{CloudBuilder, PointFrame, Points};
}

/// The type declarations of the dataset's messages: file name and text.
const TYPES: &[(&str, &str)] = &[
    ("gps_to_local_t.lcm", include_str!("../types/gps_to_local_t.lcm")),
    ("image_t.lcm", include_str!("../types/image_t.lcm")),
    ("laser_t.lcm", include_str!("../types/laser_t.lcm")),
    ("pose_t.lcm", include_str!("../types/pose_t.lcm")),
    ("velodyne_t.lcm", include_str!("../types/velodyne_t.lcm")),
];

sluice_model::register! {
    types "mit-dgc": TYPES,
    codec: "lcm",
    about: "message types of the MIT Urban Challenge vehicle: poses, GPS, scans, images, packets",
}
