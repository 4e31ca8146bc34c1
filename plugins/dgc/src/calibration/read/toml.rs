//! Where a TOML file keeps what: tables `sensor.NAME` and `camera.NAME`, and a few beside them. Each key has
//! to be a known one.

use sluice_core::mistake::Mistake;

use super::{BOUNDS, CAMERA_TEXTS, CORNERS, FRAMES, MASKS, NAD83, ORIENTATIONS, PINHOLE};
use super::{Reader, Settings, Tree, mistake};
use crate::calibration::Vehicle;
use crate::config::Entry;

const MOUNT: [&str; 5] = ["position", "orientation", "rpy", "angleaxis", "relative_to"];
const LENS: [&str; 6] =
    ["width", "height", "distortion_model", "distortion_center", "distortion_params", PINHOLE];

/// What a TOML file tells of a vehicle.
pub(in super::super) fn toml(tree: &Tree) -> Result<Vehicle, Vec<Mistake>> {
    let mut reader = Reader::default();
    for entry in tree {
        let Some(group) = reader.group(entry) else { continue };
        match entry.name.as_str() {
            "sensor" => group.iter().for_each(|sensor| reader.sensor_table(sensor)),
            "camera" => group.iter().for_each(|camera| reader.camera_table(camera)),
            BOUNDS => {
                reader.check_keys(group, &[&CORNERS]);
                reader.bounds(&Settings::of(entry, group));
            }
            MASKS => reader.masks(group),
            name if FRAMES.contains(&name) => {
                reader.check_keys(group, &[&MOUNT, &[NAD83]]);
                reader.frame(&Settings::of(entry, group));
            }
            _ => reader.unknown(entry, &[&["sensor", "camera", BOUNDS, MASKS], &FRAMES]),
        }
    }
    reader.finish()
}

impl Reader {
    fn group<'d>(&mut self, entry: &'d Entry) -> Option<&'d [Entry]> {
        let group = entry.value.entries();
        if group.is_none() {
            self.wrong(&entry.span, &format!("expected a table as `{}`", entry.name));
        }
        group
    }

    fn sensor_table(&mut self, entry: &Entry) {
        let Some(group) = self.group(entry) else { return };
        self.check_keys(group, &[&MOUNT]);
        self.check_orientation(group);
        self.sensor(&Settings::of(entry, group));
    }

    fn camera_table(&mut self, entry: &Entry) {
        let Some(group) = self.group(entry) else { return };
        self.check_keys(group, &[&MOUNT, &LENS, &CAMERA_TEXTS]);
        self.check_orientation(group);
        self.camera(&Settings::of(entry, group));
    }

    fn check_orientation(&mut self, group: &[Entry]) {
        let mut told = group.iter().filter(|entry| ORIENTATIONS.contains(&entry.name.as_str()));
        if let (Some(first), Some(second)) = (told.next(), told.next()) {
            let message =
                format!("`{}` says again what `{}` says: leave one out", second.name, first.name);
            self.wrong(&second.span, &message);
        }
    }

    fn check_keys(&mut self, group: &[Entry], known: &[&[&str]]) {
        for entry in group {
            if !known.iter().any(|keys| keys.contains(&entry.name.as_str())) {
                self.unknown(entry, known);
            }
        }
    }

    fn unknown(&mut self, entry: &Entry, known: &[&[&str]]) {
        let message = format!("no such key: `{}`", entry.name);
        let help = Some(format!("known are {}", known.concat().join(", ")));
        self.mistakes.push(Mistake { help, ..mistake(entry.span.clone(), message) });
    }
}
