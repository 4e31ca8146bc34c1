//! The layout of TOML calibrations: tables `sensor.NAME` and `camera.NAME`, and a few others.
//! Unknown keys are mistakes.

use sluice_kit::mistake::Mistake;

use super::{BOUNDS, CAMERA_TEXTS, CORNERS, FRAMES, MASKS, NAD83, ORIENTATIONS, PINHOLE};
use super::{CalibrationReader, ConfigTree, FrameSettings};
use crate::calibration::mount_tree::mistake;
use crate::calibration::vehicle::VehicleCalibration;
use crate::config::ConfigEntry;

const MOUNT: [&str; 5] = ["position", "orientation", "rpy", "angleaxis", "relative_to"];
const LENS: [&str; 6] =
    ["width", "height", "distortion_model", "distortion_center", "distortion_params", PINHOLE];

/// Reads the calibration from a TOML file.
pub(in super::super) fn vehicle_from_toml(
    tree: &ConfigTree,
) -> Result<VehicleCalibration, Vec<Mistake>> {
    let mut reader = CalibrationReader::default();
    for entry in tree {
        let Some(group) = reader.group(entry) else { continue };
        match entry.name.as_str() {
            "sensor" => group.iter().for_each(|sensor| reader.sensor_table(sensor)),
            "camera" => group.iter().for_each(|camera| reader.camera_table(camera)),
            BOUNDS => {
                reader.check_keys(group, &[&CORNERS]);
                reader.bounds(&FrameSettings::new(entry, group));
            }
            MASKS => reader.masks(group),
            name if FRAMES.contains(&name) => {
                reader.check_keys(group, &[&MOUNT, &[NAD83]]);
                reader.frame(&FrameSettings::new(entry, group));
            }
            _ => reader.unknown_key(entry, &[&["sensor", "camera", BOUNDS, MASKS], &FRAMES]),
        }
    }
    reader.finish()
}

impl CalibrationReader {
    fn group<'d>(&mut self, entry: &'d ConfigEntry) -> Option<&'d [ConfigEntry]> {
        let group = entry.value.entries();
        if group.is_none() {
            self.push_mistake(&entry.span, &format!("expected a table as `{}`", entry.name));
        }
        group
    }

    fn sensor_table(&mut self, entry: &ConfigEntry) {
        let Some(group) = self.group(entry) else { return };
        self.check_keys(group, &[&MOUNT]);
        self.check_orientation(group);
        self.sensor(&FrameSettings::new(entry, group));
    }

    fn camera_table(&mut self, entry: &ConfigEntry) {
        let Some(group) = self.group(entry) else { return };
        self.check_keys(group, &[&MOUNT, &LENS, &CAMERA_TEXTS]);
        self.check_orientation(group);
        self.camera(&FrameSettings::new(entry, group));
    }

    fn check_orientation(&mut self, group: &[ConfigEntry]) {
        let mut orientations =
            group.iter().filter(|entry| ORIENTATIONS.contains(&entry.name.as_str()));
        if let (Some(first), Some(second)) = (orientations.next(), orientations.next()) {
            let message = format!(
                "`{}` repeats the orientation given by `{}`: leave one out",
                second.name, first.name
            );
            self.push_mistake(&second.span, &message);
        }
    }

    fn check_keys(&mut self, group: &[ConfigEntry], allowed: &[&[&str]]) {
        for entry in group {
            if !allowed.iter().any(|keys| keys.contains(&entry.name.as_str())) {
                self.unknown_key(entry, allowed);
            }
        }
    }

    fn unknown_key(&mut self, entry: &ConfigEntry, allowed: &[&[&str]]) {
        let message = format!("unknown key `{}`", entry.name);
        let help = Some(format!("expected one of {}", allowed.concat().join(", ")));
        self.mistakes.push(Mistake { help, ..mistake(entry.span.clone(), message) });
    }
}
