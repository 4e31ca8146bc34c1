//! Stage `camera`: the pixels and colours of points in camera images. Neither adds nor moves
//! points.
//!
//! A fold, which sees events in log order, attaches to each event of points the last image of each
//! camera and the vehicle's pose at that time. A map then decodes the images and projects the
//! points, on all cores.

mod attach_images;
mod image;
mod image_map;
mod options;
mod picture;
mod picture_cache;
mod projector;
mod undistort;
mod unproject;

use std::sync::Arc;

use sluice_model::{OptionsError, PluginFactory, Registry, Stage};

use crate::to_frame::mounts::SensorMounts;
use attach_images::AttachImages;
pub(crate) use options::CameraOptions;
use options::{CameraChannel, camera_channels};
use projector::ProjectPoints;

sluice_model::register! {
    stage "camera": CameraOptions,
    make: PluginFactory::Stage(|value, registry| stage(sluice_model::options::read(value)?, registry)),
    about: "adds to points their pixels and colours in camera images",
    sample: include_str!("../../samples/camera.toml"),
}

fn stage(mut options: CameraOptions, registry: &Registry) -> Result<Stage, OptionsError> {
    let load = options.calibration.load();
    let calibration = load.map_err(|message| OptionsError::at("calibration", message))?;
    let lenses: Arc<[CameraChannel]> = camera_channels(&calibration, &options.cameras)?.into();
    let fold = AttachImages::new(Arc::clone(&lenses), &options, registry)?;
    let mounts = SensorMounts::new(calibration, std::mem::take(&mut options.mounts))?;
    let map = ProjectPoints::new(mounts, lenses, &options);
    Ok(Stage::Chain(vec![Stage::Fold(Box::new(fold)), Stage::Map(Box::new(map))]))
}

#[cfg(test)]
mod tests;
