//! Turns settings into a calibration, or reports every mistake in them.
//!
//! Independent of where each file format keeps its settings: see `cfg` and `toml`.

mod cfg;
mod toml;

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use sluice_kit::mistake::Mistake;

use super::mount_tree::{self, BODY, RelativeMount, mistake};
use super::vehicle::{Camera, Distortion, Mount, Pinhole, VehicleBounds, VehicleCalibration};
use crate::config::{ConfigEntry, ConfigValue, Scalar, first_value};
use crate::geometry::Quaternion;

pub(super) use self::cfg::vehicle_from_cfg;
pub(super) use self::toml::vehicle_from_toml;

/// The content of a file.
pub(super) type ConfigTree = Vec<ConfigEntry>;

/// Maximum number of sensors and cameras.
const MAX_MOUNTS: usize = 1024;

/// The forms of an orientation, in order of precedence.
const ORIENTATIONS: [&str; 3] = ["orientation", "rpy", "angleaxis"];
const PINHOLE: &str = "pinhole";
const CAMERA_TEXTS: [&str; 5] =
    ["uid", "thumbnail_channel", "image_url_channel", "full_frame_channel", "short_name"];
const BOUNDS: &str = "vehicle_bounds";
const CORNERS: [&str; 4] = ["front_left", "front_right", "rear_left", "rear_right"];
/// Frames of the body that are given beside the sensors.
const FRAMES: [&str; 2] = ["imu_body_frame", "gps_body_frame"];
const NAD83: &str = "nad83_offset_deg_deg_m";
const MASKS: &str = "laser_mask";

/// The value of the first entry of each name.
struct EntryIndex<'d>(HashMap<&'d str, &'d ConfigValue>);

impl<'d> EntryIndex<'d> {
    fn new(entries: &'d [ConfigEntry]) -> Self {
        let mut index = HashMap::with_capacity(entries.len());
        for entry in entries {
            index.entry(entry.name.as_str()).or_insert(&entry.value);
        }
        Self(index)
    }

    fn group(&self, name: &str) -> Option<&'d [ConfigEntry]> {
        self.0.get(name)?.entries()
    }
}

/// The settings of one sensor, camera or frame.
struct FrameSettings<'d> {
    /// Its name, and the position of the name.
    name: &'d str,
    span: &'d Range<usize>,
    /// The groups that describe it; the first that has a setting wins.
    own: Vec<&'d [ConfigEntry]>,
    /// The enclosing groups to inherit from, nearest first.
    enclosing: Vec<&'d EntryIndex<'d>>,
}

impl<'d> FrameSettings<'d> {
    fn new(entry: &'d ConfigEntry, group: &'d [ConfigEntry]) -> Self {
        Self { name: &entry.name, span: &entry.span, own: vec![group], enclosing: Vec::new() }
    }

    fn own(&self, key: &str) -> Option<&'d ConfigValue> {
        self.own.iter().find_map(|group| first_value(group, key))
    }

    fn own_or_inherited(&self, key: &str) -> Option<&'d ConfigValue> {
        self.own(key).or_else(|| self.enclosing.iter().find_map(|index| index.0.get(key).copied()))
    }
}

/// Collects the calibration and its mistakes.
#[derive(Default)]
struct CalibrationReader {
    vehicle: VehicleCalibration,
    mounts: Vec<RelativeMount>,
    names: HashSet<String>,
    mistakes: Vec<Mistake>,
}

impl CalibrationReader {
    fn finish(mut self) -> Result<VehicleCalibration, Vec<Mistake>> {
        self.vehicle.mounts = mount_tree::resolve_mounts(&self.mounts, &mut self.mistakes);
        for camera in &mut self.vehicle.cameras {
            if let Some(mount) = self.vehicle.mounts.get(&camera.name) {
                camera.mount = *mount;
            }
        }
        self.vehicle.cameras.sort_by(|a, b| a.name.cmp(&b.name));
        if self.vehicle == VehicleCalibration::default() && self.mistakes.is_empty() {
            let expected = "sensors, cameras, frames, bounds or masks";
            let message = format!("no calibration data in the file: expected {expected}");
            self.push_mistake(&(0..0), &message);
        }
        self.mistakes.sort_by_key(|mistake| mistake.span.start);
        if self.mistakes.is_empty() { Ok(self.vehicle) } else { Err(self.mistakes) }
    }

    fn sensor(&mut self, settings: &FrameSettings<'_>) {
        let orientation = self.required_orientation(settings);
        self.add_mount(settings, orientation);
    }

    fn camera(&mut self, settings: &FrameSettings<'_>) {
        let orientation = self.required_orientation(settings);
        let mount = self.add_mount(settings, orientation);
        let size = [self.image_size(settings, "width"), self.image_size(settings, "height")];
        let (pinhole, distortion) = (self.pinhole(settings), self.distortion(settings));
        let texts = CAMERA_TEXTS.map(|key| self.text(settings, key));
        let (Some(mount), [Some(width), Some(height)], Some(pinhole), Some(distortion)) =
            (mount, size, pinhole, distortion)
        else {
            return;
        };
        let [uid, thumbnail_channel, image_url_channel, full_frame_channel, short_name] = texts;
        self.vehicle.cameras.push(Camera {
            name: settings.name.to_owned(),
            width,
            height,
            pinhole,
            distortion,
            mount,
            uid,
            thumbnail_channel,
            image_url_channel,
            full_frame_channel,
            short_name,
        });
    }

    /// Reads a frame whose orientation is optional.
    fn frame(&mut self, settings: &FrameSettings<'_>) {
        let orientation =
            match ORIENTATIONS.iter().any(|key| settings.own_or_inherited(key).is_some()) {
                true => self.orientation(settings),
                false => Some(Quaternion::IDENTITY),
            };
        self.add_mount(settings, orientation);
        if let Some(value) = settings.own(NAD83) {
            self.vehicle.nad83_offset = self.numbers(value, settings.span, NAD83);
        }
    }

    /// Reads a mount relative to its parent frame.
    fn add_mount(
        &mut self,
        settings: &FrameSettings<'_>,
        orientation: Option<Quaternion>,
    ) -> Option<Mount> {
        let position = self.required_numbers(settings, "position");
        let relative_to = settings.own_or_inherited("relative_to").and_then(ConfigValue::scalar);
        let relative_to = relative_to.filter(|scalar| scalar.text != BODY);
        if self.mounts.len() >= MAX_MOUNTS {
            if self.mounts.len() == MAX_MOUNTS && self.names.insert(String::new()) {
                self.push_mistake(
                    settings.span,
                    &format!("more than {MAX_MOUNTS} sensors and cameras"),
                );
            }
            return None;
        }
        if !self.names.insert(settings.name.to_owned()) || settings.name == BODY {
            self.push_mistake(settings.span, &format!("duplicate frame `{}`", settings.name));
            return None;
        }
        let mount = Mount { position: position?, orientation: orientation? };
        self.mounts.push(RelativeMount {
            name: settings.name.to_owned(),
            mount,
            relative_to: relative_to.map(|Scalar { text, span }| (text.clone(), span.clone())),
        });
        Some(mount)
    }

    fn required_orientation(&mut self, settings: &FrameSettings<'_>) -> Option<Quaternion> {
        if ORIENTATIONS.iter().all(|key| settings.own_or_inherited(key).is_none()) {
            let help = "rpy = [roll, pitch, yaw] in degrees, orientation = [w, x, y, z], or \
                        angleaxis = [radians, x, y, z]";
            let message = format!("`{}` has no orientation", settings.name);
            let help = Some(help.to_owned());
            self.mistakes.push(Mistake { help, ..mistake(settings.span.clone(), message) });
            return None;
        }
        self.orientation(settings)
    }

    fn orientation(&mut self, settings: &FrameSettings<'_>) -> Option<Quaternion> {
        let (key, value) =
            ORIENTATIONS.iter().find_map(|key| Some((*key, settings.own_or_inherited(key)?)))?;
        match key {
            "rpy" => {
                let angles = self.numbers(value, settings.span, key)?;
                Some(Quaternion::from_roll_pitch_yaw_degrees(angles))
            }
            "angleaxis" => {
                let [angle, axis @ ..]: [f64; 4] = self.numbers(value, settings.span, key)?;
                if axis == [0.0; 3] && angle != 0.0 {
                    self.push_mistake(
                        span_of(value, settings.span),
                        "expected an axis, found one of length 0",
                    );
                    return None;
                }
                Some(Quaternion::from_angle_axis(angle, axis))
            }
            _ => {
                let [w, x, y, z] = self.numbers(value, settings.span, key)?;
                let direction = Quaternion { w, x, y, z }.normalized();
                if direction.is_none() {
                    self.push_mistake(
                        span_of(value, settings.span),
                        "expected an orientation, found a quaternion of length 0",
                    );
                }
                direction
            }
        }
    }

    fn pinhole(&mut self, settings: &FrameSettings<'_>) -> Option<Pinhole> {
        let [fx, fy, skew, cx, cy] = self.required_numbers(settings, PINHOLE)?;
        if fx <= 0.0 || fy <= 0.0 {
            let span = settings
                .own_or_inherited(PINHOLE)
                .map_or(settings.span, |v| span_of(v, settings.span));
            self.push_mistake(span, "expected focal lengths above 0 in [fx, fy, skew, cx, cy]");
            return None;
        }
        Some(Pinhole { fx, fy, skew, cx, cy })
    }

    fn distortion(&mut self, settings: &FrameSettings<'_>) -> Option<Distortion> {
        let Some(model) = settings.own_or_inherited("distortion_model") else {
            if let Some(value) = settings.own("distortion_params") {
                let span = span_of(value, settings.span);
                self.push_mistake(
                    span,
                    "distortion parameters need `distortion_model = \"spherical\"`",
                );
                return None;
            }
            return Some(Distortion::None);
        };
        match model.scalar().map(|scalar| scalar.text.as_str()) {
            Some("none" | "null") => Some(Distortion::None),
            Some("spherical") => {
                let center = self.required_numbers(settings, "distortion_center");
                let params: Option<[f64; 1]> = self.required_numbers(settings, "distortion_params");
                Some(Distortion::Spherical { center: center?, param: params?[0] })
            }
            _ => {
                let span = span_of(model, settings.span);
                self.push_mistake(span, "expected `spherical` or `none` as the distortion model");
                None
            }
        }
    }

    fn image_size(&mut self, settings: &FrameSettings<'_>, key: &str) -> Option<u16> {
        let value = self.required(settings, key)?;
        let number = value.scalar().and_then(Scalar::integer).and_then(|n| u16::try_from(n).ok());
        let number = number.filter(|number| *number > 0);
        if number.is_none() {
            self.push_mistake(
                span_of(value, settings.span),
                "expected a number of pixels from 1 to 65535",
            );
        }
        number
    }

    fn text(&mut self, settings: &FrameSettings<'_>, key: &str) -> Option<String> {
        let value = settings.own(key)?;
        let scalar = value.scalar();
        if scalar.is_none() {
            self.push_mistake(
                span_of(value, settings.span),
                &format!("expected a string as `{key}`"),
            );
        }
        scalar.map(|scalar| scalar.text.clone())
    }

    fn bounds(&mut self, settings: &FrameSettings<'_>) {
        let corners = CORNERS.map(|key| self.required_numbers(settings, key));
        if let [Some(front_left), Some(front_right), Some(rear_left), Some(rear_right)] = corners {
            let bounds = VehicleBounds { front_left, front_right, rear_left, rear_right };
            self.vehicle.bounds = Some(bounds);
        }
    }

    fn masks(&mut self, masks: &[ConfigEntry]) {
        for ConfigEntry { name, span, value } in masks {
            self.mask(name, span, value);
        }
    }

    /// Adds the mask of a scanner; the first one wins.
    fn mask(&mut self, name: &str, span: &Range<usize>, value: &ConfigValue) {
        let Some(angles) = self.numbers::<2>(value, span, name) else { return };
        if angles[0] > angles[1] {
            self.push_mistake(span_of(value, span), "expected [from, to] with from <= to");
        }
        self.vehicle.masks.entry(name.to_owned()).or_insert(angles);
    }

    fn required<'d>(&mut self, settings: &FrameSettings<'d>, key: &str) -> Option<&'d ConfigValue> {
        let value = settings.own_or_inherited(key);
        if value.is_none() {
            self.push_mistake(settings.span, &format!("`{}` has no `{key}`", settings.name));
        }
        value
    }

    fn required_numbers<const N: usize>(
        &mut self,
        settings: &FrameSettings<'_>,
        key: &str,
    ) -> Option<[f64; N]> {
        let value = self.required(settings, key)?;
        self.numbers(value, settings.span, key)
    }

    fn numbers<const N: usize>(
        &mut self,
        value: &ConfigValue,
        span: &Range<usize>,
        key: &str,
    ) -> Option<[f64; N]> {
        let number = |scalar: &Scalar| scalar.double().filter(|number| number.is_finite());
        let scalars = value.scalars().unwrap_or_default();
        if let Some(wrong) = scalars.iter().find(|scalar| number(scalar).is_none()) {
            let message = format!("expected a number in `{key}`, found `{}`", wrong.text);
            self.push_mistake(&wrong.span, &message);
            return None;
        }
        let numbers: Vec<f64> = scalars.iter().filter_map(number).collect();
        let numbers = <[f64; N]>::try_from(numbers).ok();
        if numbers.is_none() {
            let (plural, found) = (if N == 1 { "" } else { "s" }, scalars.len());
            let message = format!("expected {N} number{plural} as `{key}`, found {found}");
            self.push_mistake(span_of(value, span), &message);
        }
        numbers
    }

    fn push_mistake(&mut self, span: &Range<usize>, message: &str) {
        self.mistakes.push(mistake(span.clone(), message));
    }
}

/// The position of a value, or `otherwise` if it is empty.
fn span_of<'v>(value: &'v ConfigValue, otherwise: &'v Range<usize>) -> &'v Range<usize> {
    match value {
        ConfigValue::Group(entries) => entries.first().map_or(otherwise, |entry| &entry.span),
        ConfigValue::Scalar(_) | ConfigValue::List(_) => {
            value.scalar().map_or(otherwise, |scalar| &scalar.span)
        }
    }
}
