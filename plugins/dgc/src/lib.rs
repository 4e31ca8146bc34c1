//! The MIT Urban Challenge dataset, and what it takes to use it: its message types, the calibration of the
//! vehicle, laser packets and scans as points, frames, the globe, and cameras.
//!
//! None of it is bound to that one vehicle: calibration, laser tables and channels are options.

pub mod calibration;
pub mod camera;
pub mod camera_model;
pub mod camlog;
pub mod config;
pub mod geometry;
pub mod georeference;
pub mod laser;
pub mod points;
pub mod poses;
pub mod to_frame;
pub mod velodyne;

mod globe;
mod messages;
mod ranges;
mod taken;

/// The files that declare the dataset's messages: name and text.
pub const TYPES: &[(&str, &str)] = &[
    ("gps_to_local_t.lcm", include_str!("../types/gps_to_local_t.lcm")),
    ("image_t.lcm", include_str!("../types/image_t.lcm")),
    ("laser_t.lcm", include_str!("../types/laser_t.lcm")),
    ("pose_t.lcm", include_str!("../types/pose_t.lcm")),
    ("velodyne_t.lcm", include_str!("../types/velodyne_t.lcm")),
];

sluice_core::register! {
    types "mit-dgc": TYPES,
    codec: "lcm",
    about: "poses, GPS, laser scans, images and Velodyne packets of the MIT Urban Challenge vehicle",
}
