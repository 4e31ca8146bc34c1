//! Where a vehicle's sensors and cameras sit, and what cameras see, from a file. Projects nothing.

mod mounts;
mod read;
mod tree;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use sluice_core::files;
use sluice_core::mistake::Mistake;
use sluice_core::options::TYPES_FORMAT;

use crate::config::Document;
use crate::geometry::{Quaternion, Transform};

/// The name of the calibration that is built in: that of the dataset's vehicle.
pub const BUILT_IN: &str = "mit-dgc";

const BUILT_IN_TEXT: &str = include_str!("../../data/mit-dgc.toml");
/// Longer files are no calibrations.
const LONGEST: usize = 1 << 20;
/// More mistakes are not shown.
const MOST_SHOWN: usize = 20;

/// Where the calibration of the vehicle comes from: a `.toml` file, a `.cfg` file in the language of `lr3.cfg`,
/// or the name of the one that is built in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CalibrationPath(pub PathBuf);

impl CalibrationPath {
    /// The calibration that is there. `Err` has every mistake in it.
    pub fn load(&self) -> Result<Calibration, String> {
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

/// Where something sits on the vehicle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mount {
    /// Its origin in the body frame, in metres.
    pub position: [f64; 3],
    /// Its axes in the body frame; of length 1.
    pub orientation: Quaternion,
}

impl Mount {
    /// From its own frame to the body's.
    pub fn to_body(&self) -> Transform {
        Transform::new(self.position, &self.orientation)
    }
}

/// What a camera is like.
#[derive(Clone, Debug, PartialEq)]
pub struct Camera {
    /// What the calibration calls it.
    pub name: String,
    /// The width of the images it was calibrated with, in pixels.
    pub width: u16,
    /// The height of the images it was calibrated with, in pixels.
    pub height: u16,
    /// How it projects.
    pub pinhole: Pinhole,
    /// How its lens distorts.
    pub distortion: Distortion,
    /// Where it sits: x to the right, y down and z ahead, as its images show them.
    pub mount: Mount,
    /// Its hardware number.
    pub uid: Option<String>,
    /// The channel of its small images.
    pub thumbnail_channel: Option<String>,
    /// The channel of where its images are to be found.
    pub image_url_channel: Option<String>,
    /// The channel of its images in full size.
    pub full_frame_channel: Option<String>,
    /// A few letters for it.
    pub short_name: Option<String>,
}

/// How a camera without distortion projects, in pixels of the images it was calibrated with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pinhole {
    /// The focal length along rows.
    pub fx: f64,
    /// The focal length along columns.
    pub fy: f64,
    /// How much rows shift with columns.
    pub skew: f64,
    /// The column of the optical axis.
    pub cx: f64,
    /// The row of the optical axis.
    pub cy: f64,
}

/// How a lens distorts.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Distortion {
    /// Not at all.
    None,
    /// As if projected onto a sphere.
    Spherical {
        /// Its centre beside that of the image, in widths of the image.
        center: [f64; 2],
        /// How strong it is.
        param: f64,
    },
}

/// The corners of the vehicle, in metres in the body frame, x and y.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct VehicleBounds {
    /// The left corner in front.
    pub front_left: [f64; 2],
    /// The right corner in front.
    pub front_right: [f64; 2],
    /// The left corner behind.
    pub rear_left: [f64; 2],
    /// The right corner behind.
    pub rear_right: [f64; 2],
}

/// What is known of a vehicle.
#[derive(Clone, Debug)]
pub struct Calibration {
    vehicle: Vehicle,
    made_from: String,
}

/// What a file says, whichever language it is in.
#[derive(Clone, Debug, Default, PartialEq)]
struct Vehicle {
    mounts: BTreeMap<String, Mount>,
    cameras: Vec<Camera>,
    masks: BTreeMap<String, [f64; 2]>,
    bounds: Option<VehicleBounds>,
    nad83_offset: Option<[f64; 3]>,
}

impl Calibration {
    /// The calibration of that name, or in that file. What the file is called says in which language it is;
    /// if neither `.toml` nor `.cfg`, what is in it does.
    ///
    /// `Err` has every mistake in it, with its place.
    pub fn load(path: &Path) -> Result<Self, String> {
        if path == Path::new(BUILT_IN) {
            return Self::of_toml("mit-dgc.toml", BUILT_IN_TEXT);
        }
        let text = text_of(path)?;
        let name = path.to_string_lossy();
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("toml") => Self::of_toml(&name, &text),
            Some("cfg") => Self::of_cfg(&name, &text),
            _ if looks_like_toml(&text) => Self::of_toml(&name, &text),
            _ => Self::of_cfg(&name, &text),
        }
    }

    /// The calibration that a TOML text has. `name` is what mistakes call it.
    pub fn of_toml(name: &str, text: &str) -> Result<Self, String> {
        Self::of(name, text, tree::of_toml(text), read::toml)
    }

    /// The calibration that a text in the language of `lr3.cfg` has. `name` is what mistakes call it.
    pub fn of_cfg(name: &str, text: &str) -> Result<Self, String> {
        Self::of(
            name,
            text,
            Document::parse(text).map(|document| document.entries().to_vec()),
            read::cfg,
        )
    }

    fn of(
        name: &str,
        text: &str,
        tree: Result<read::Tree, Vec<Mistake>>,
        read: fn(&read::Tree) -> Result<Vehicle, Vec<Mistake>>,
    ) -> Result<Self, String> {
        let vehicle = tree.and_then(|tree| read(&tree)).map_err(|m| shown(name, text, m))?;
        let made_from = format!("calibration, blake3 {}", blake3::hash(text.as_bytes()).to_hex());
        Ok(Self { vehicle, made_from })
    }

    /// Where a sensor or camera sits.
    pub fn mount(&self, name: &str) -> Option<Mount> {
        self.vehicle.mounts.get(name).copied()
    }

    /// The names of all that has a place on the vehicle, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.vehicle.mounts.keys().map(String::as_str)
    }

    /// The camera of that name, or whose small images are on the channel of that name.
    pub fn camera(&self, name: &str) -> Option<&Camera> {
        let is_meant = |camera: &&Camera| {
            camera.name == name || camera.thumbnail_channel.as_deref() == Some(name)
        };
        self.vehicle.cameras.iter().find(is_meant)
    }

    /// All cameras, sorted by their names.
    pub fn cameras(&self) -> &[Camera] {
        &self.vehicle.cameras
    }

    /// Between which angles, in radians, a laser scanner sees the vehicle itself.
    pub fn mask(&self, channel: &str) -> Option<[f64; 2]> {
        self.vehicle.masks.get(channel).copied()
    }

    /// Whether any scanner sees the vehicle.
    pub fn has_masks(&self) -> bool {
        !self.vehicle.masks.is_empty()
    }

    /// How large the vehicle is.
    pub fn vehicle_bounds(&self) -> Option<&VehicleBounds> {
        self.vehicle.bounds.as_ref()
    }

    /// What has to be added to places on the globe to have them in NAD 83: degrees of latitude and longitude,
    /// and metres.
    pub fn nad83_offset(&self) -> Option<[f64; 3]> {
        self.vehicle.nad83_offset
    }

    /// A line that is another one for each other text the calibration was read from.
    pub fn made_from(&self) -> &str {
        &self.made_from
    }
}

fn text_of(path: &Path) -> Result<String, String> {
    let bytes = files::head(path, LONGEST + 1).map_err(|e| e.to_string())?;
    let refused = |what: &str| Err(format!("{what}: {}", path.display()));
    if bytes.is_empty() {
        return refused("a file with a calibration is needed, and this is empty, or no file");
    }
    if bytes.len() > LONGEST {
        return refused("longer than 1 MiB, which no calibration is");
    }
    // Comments may be in any encoding.
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Whether a line begins like a table of TOML: no line with a `{` before does.
fn looks_like_toml(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim_start);
    let first = lines.find(|line| line.starts_with('[') || line.contains('{'));
    first.is_some_and(|line| line.starts_with('['))
}

fn shown(name: &str, text: &str, mistakes: Vec<Mistake>) -> String {
    let shown = mistakes.iter().take(MOST_SHOWN).map(|mistake| mistake.render(name, text, false));
    let more = mistakes.len().saturating_sub(MOST_SHOWN);
    let more = (more > 0).then(|| format!("and {more} more mistakes"));
    // Whoever has room for one line only shows the first.
    let head = match mistakes.len() {
        1 => "1 mistake in the calibration".to_owned(),
        many => format!("{many} mistakes in the calibration"),
    };
    [head].into_iter().chain(shown).chain(more).collect::<Vec<_>>().join("\n\n")
}

#[cfg(test)]
mod tests;
