//! Calibration of a vehicle: where its sensors and cameras are mounted, and how its cameras
//! project.
//!
//! Reads and validates calibration files. Projects nothing: see
//! [`camera_model`](crate::camera_model).

mod mount_tree;
mod read;
mod toml_tree;
mod vehicle;

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use sluice_io::files;
use sluice_kit::mistake::Mistake;
use sluice_model::options::TYPES_FORMAT;

use crate::config::Document;
use vehicle::VehicleCalibration;
pub use vehicle::{Camera, Distortion, Mount, Pinhole, VehicleBounds};

/// The name of the built-in calibration: that of the dataset's vehicle.
pub const BUILT_IN: &str = "mit-dgc";

const BUILT_IN_TEXT: &str = include_str!("../../data/mit-dgc.toml");
/// Longer files are refused.
const MAX_FILE_LEN: usize = 1 << 20;
/// Further mistakes are only counted.
const MAX_SHOWN_MISTAKES: usize = 20;

/// The calibration to use: a `.toml` file, a `.cfg` file in the language of `lr3.cfg`, or the name
/// of a built-in one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct CalibrationPath(pub(crate) PathBuf);

impl CalibrationPath {
    /// Loads the calibration. `Err` lists every mistake in it.
    pub(crate) fn load(&self) -> Result<Calibration, String> {
        Calibration::load(&self.0)
    }
}

impl Default for CalibrationPath {
    fn default() -> Self {
        Self(BUILT_IN.into())
    }
}

impl JsonSchema for CalibrationPath {
    fn schema_name() -> Cow<'static, str> {
        "CalibrationPath".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": TYPES_FORMAT,
            "description": "a .toml or .cfg file, or the name of a built-in calibration" })
    }
}

/// The calibration of a vehicle.
#[derive(Clone, Debug)]
pub struct Calibration {
    vehicle: VehicleCalibration,
    fingerprint: String,
}

impl Calibration {
    /// Loads the built-in calibration of that name, or the file at `path`.
    ///
    /// The extension `.toml` or `.cfg` determines the language; for any other name the content
    /// does. `Err` lists every mistake with its position.
    pub fn load(path: &Path) -> Result<Self, String> {
        if path == Path::new(BUILT_IN) {
            return Self::from_toml("mit-dgc.toml", BUILT_IN_TEXT);
        }
        let text = read_text(path)?;
        let name = path.to_string_lossy();
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("toml") => Self::from_toml(&name, &text),
            Some("cfg") => Self::from_cfg(&name, &text),
            _ if looks_like_toml(&text) => Self::from_toml(&name, &text),
            _ => Self::from_cfg(&name, &text),
        }
    }

    /// Parses a TOML calibration. `name` is the file name in error messages.
    pub fn from_toml(name: &str, text: &str) -> Result<Self, String> {
        Self::from_tree(name, text, toml_tree::parse_toml(text), read::vehicle_from_toml)
    }

    /// Parses a calibration in the language of `lr3.cfg`. `name` is the file name in error
    /// messages.
    pub fn from_cfg(name: &str, text: &str) -> Result<Self, String> {
        Self::from_tree(
            name,
            text,
            Document::parse(text).map(|document| document.entries().to_vec()),
            read::vehicle_from_cfg,
        )
    }

    fn from_tree(
        name: &str,
        text: &str,
        tree: Result<read::ConfigTree, Vec<Mistake>>,
        read: fn(&read::ConfigTree) -> Result<VehicleCalibration, Vec<Mistake>>,
    ) -> Result<Self, String> {
        let vehicle =
            tree.and_then(|tree| read(&tree)).map_err(|m| render_mistakes(name, text, m))?;
        let fingerprint = format!("calibration, blake3 {}", blake3::hash(text.as_bytes()).to_hex());
        Ok(Self { vehicle, fingerprint })
    }

    /// The mount of a sensor or camera.
    pub fn mount(&self, name: &str) -> Option<Mount> {
        self.vehicle.mounts.get(name).copied()
    }

    /// The names of all mounted sensors, cameras and frames, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.vehicle.mounts.keys().map(String::as_str)
    }

    /// The camera with this name or thumbnail channel.
    pub fn camera(&self, name: &str) -> Option<&Camera> {
        let is_match = |camera: &&Camera| {
            camera.name == name || camera.thumbnail_channel.as_deref() == Some(name)
        };
        self.vehicle.cameras.iter().find(is_match)
    }

    /// All cameras, sorted by name.
    pub fn cameras(&self) -> &[Camera] {
        &self.vehicle.cameras
    }

    /// The range of angles, in radians, in which a laser scanner sees the vehicle itself.
    pub fn mask(&self, channel: &str) -> Option<[f64; 2]> {
        self.vehicle.masks.get(channel).copied()
    }

    /// Whether any scanner has a mask.
    pub fn has_masks(&self) -> bool {
        !self.vehicle.masks.is_empty()
    }

    /// The outline of the vehicle.
    pub fn vehicle_bounds(&self) -> Option<&VehicleBounds> {
        self.vehicle.bounds.as_ref()
    }

    /// The offset from positions on the globe to NAD 83: degrees of latitude and longitude, and
    /// metres.
    pub fn nad83_offset(&self) -> Option<[f64; 3]> {
        self.vehicle.nad83_offset
    }

    /// A line that identifies the text the calibration was parsed from, by its hash.
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }
}

fn read_text(path: &Path) -> Result<String, String> {
    let bytes = files::read_small(path, MAX_FILE_LEN).map_err(|e| e.to_string())?;
    let refused = |what: &str| Err(format!("{what}: {}", path.display()));
    if bytes.is_empty() {
        return refused("expected a calibration file, found an empty file or none");
    }
    if bytes.len() > MAX_FILE_LEN {
        return refused("expected a calibration, found a file longer than 1 MiB");
    }
    // Comments may be in any encoding.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Whether a line starts like a TOML table before any line that contains `{`.
fn looks_like_toml(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim_start);
    let first = lines.find(|line| line.starts_with('[') || line.contains('{'));
    first.is_some_and(|line| line.starts_with('['))
}

fn render_mistakes(name: &str, text: &str, mistakes: Vec<Mistake>) -> String {
    let shown =
        mistakes.iter().take(MAX_SHOWN_MISTAKES).map(|mistake| mistake.render(name, text, false));
    let more = mistakes.len().saturating_sub(MAX_SHOWN_MISTAKES);
    let more = (more > 0).then(|| format!("and {more} more mistakes"));
    // The first line stands on its own where only one line is shown.
    let head = match mistakes.len() {
        1 => "1 mistake in the calibration".to_owned(),
        many => format!("{many} mistakes in the calibration"),
    };
    [head].into_iter().chain(shown).chain(more).collect::<Vec<_>>().join("\n\n")
}

#[cfg(test)]
mod tests;
