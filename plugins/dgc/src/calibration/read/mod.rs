//! Settings as what is known of a vehicle, or every mistake in them. Does not know where files keep which
//! settings.

mod cfg;
mod toml;

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use sluice_core::mistake::Mistake;

use super::mounts::{self, BODY, Told};
use super::{Camera, Distortion, Mount, Pinhole, Vehicle, VehicleBounds};
use crate::config::{Entry, Value, Word, first};
use crate::geometry::Quaternion;

pub(super) use self::cfg::cfg;
pub(super) use self::toml::toml;

/// What a file says.
pub(super) type Tree = Vec<Entry>;

/// More sensors and cameras are refused.
const MOST: usize = 1024;

/// How an orientation may be told, in the order in which it is looked for.
const ORIENTATIONS: [&str; 3] = ["orientation", "rpy", "angleaxis"];
const PINHOLE: &str = "pinhole";
const CAMERA_TEXTS: [&str; 5] =
    ["uid", "thumbnail_channel", "image_url_channel", "full_frame_channel", "short_name"];
const BOUNDS: &str = "vehicle_bounds";
const CORNERS: [&str; 4] = ["front_left", "front_right", "rear_left", "rear_right"];
/// Frames of the body that are told beside the sensors.
const FRAMES: [&str; 2] = ["imu_body_frame", "gps_body_frame"];
const NAD83: &str = "nad83_offset_deg_deg_m";
const MASKS: &str = "laser_mask";

/// A mistake of which nothing more is to be said.
pub(super) fn mistake(span: Range<usize>, message: impl Into<String>) -> Mistake {
    Mistake { span, message: message.into(), help: None, detail: None }
}

/// What the first entry of each name stands for.
struct Index<'d>(HashMap<&'d str, &'d Value>);

impl<'d> Index<'d> {
    fn of(entries: &'d [Entry]) -> Self {
        let mut index = HashMap::with_capacity(entries.len());
        for entry in entries {
            index.entry(entry.name.as_str()).or_insert(&entry.value);
        }
        Self(index)
    }

    fn group(&self, name: &str) -> Option<&'d [Entry]> {
        self.0.get(name)?.entries()
    }
}

/// The settings of one thing.
struct Settings<'d> {
    /// The name of the thing, and where it stands.
    name: &'d str,
    span: &'d Range<usize>,
    /// The groups that are about it; the first that has a setting counts.
    own: Vec<&'d [Entry]>,
    /// The groups around, the nearest first, that say what its own do not.
    around: Vec<&'d Index<'d>>,
}

impl<'d> Settings<'d> {
    fn of(entry: &'d Entry, group: &'d [Entry]) -> Self {
        Self { name: &entry.name, span: &entry.span, own: vec![group], around: Vec::new() }
    }

    fn own(&self, key: &str) -> Option<&'d Value> {
        self.own.iter().find_map(|group| first(group, key))
    }

    fn any(&self, key: &str) -> Option<&'d Value> {
        self.own(key).or_else(|| self.around.iter().find_map(|index| index.0.get(key).copied()))
    }
}

/// What was read so far.
#[derive(Default)]
struct Reader {
    vehicle: Vehicle,
    told: Vec<Told>,
    names: HashSet<String>,
    mistakes: Vec<Mistake>,
}

impl Reader {
    fn finish(mut self) -> Result<Vehicle, Vec<Mistake>> {
        self.vehicle.mounts = mounts::resolve(&self.told, &mut self.mistakes);
        for camera in &mut self.vehicle.cameras {
            if let Some(mount) = self.vehicle.mounts.get(&camera.name) {
                camera.mount = *mount;
            }
        }
        self.vehicle.cameras.sort_by(|a, b| a.name.cmp(&b.name));
        if self.vehicle == Vehicle::default() && self.mistakes.is_empty() {
            self.wrong(&(0..0), "nothing about a vehicle in the whole file");
        }
        self.mistakes.sort_by_key(|mistake| mistake.span.start);
        if self.mistakes.is_empty() { Ok(self.vehicle) } else { Err(self.mistakes) }
    }

    fn sensor(&mut self, settings: &Settings<'_>) {
        let orientation = self.needed_orientation(settings);
        self.place(settings, orientation);
    }

    fn camera(&mut self, settings: &Settings<'_>) {
        let orientation = self.needed_orientation(settings);
        let mount = self.place(settings, orientation);
        let size = [self.size(settings, "width"), self.size(settings, "height")];
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

    /// A frame of which perhaps only the origin is known.
    fn frame(&mut self, settings: &Settings<'_>) {
        let orientation = match ORIENTATIONS.iter().any(|key| settings.any(key).is_some()) {
            true => self.orientation(settings),
            false => Some(Quaternion::IDENTITY),
        };
        self.place(settings, orientation);
        if let Some(value) = settings.own(NAD83) {
            self.vehicle.nad83_offset = self.numbers(value, settings.span, NAD83);
        }
    }

    /// Where something sits, relative to whatever it says.
    fn place(&mut self, settings: &Settings<'_>, orientation: Option<Quaternion>) -> Option<Mount> {
        let position = self.needed_numbers(settings, "position");
        let relative_to = settings.any("relative_to").and_then(Value::word);
        let relative_to = relative_to.filter(|word| word.text != BODY);
        if self.told.len() >= MOST {
            if self.told.len() == MOST && self.names.insert(String::new()) {
                self.wrong(settings.span, &format!("more than {MOST} sensors and cameras"));
            }
            return None;
        }
        if !self.names.insert(settings.name.to_owned()) || settings.name == BODY {
            self.wrong(settings.span, &format!("another frame is called `{}`", settings.name));
            return None;
        }
        let mount = Mount { position: position?, orientation: orientation? };
        self.told.push(Told {
            name: settings.name.to_owned(),
            mount,
            relative_to: relative_to.map(|Word { text, span }| (text.clone(), span.clone())),
        });
        Some(mount)
    }

    fn needed_orientation(&mut self, settings: &Settings<'_>) -> Option<Quaternion> {
        if ORIENTATIONS.iter().all(|key| settings.any(key).is_none()) {
            let help = "rpy = [roll, pitch, yaw] in degrees, orientation = [w, x, y, z], or \
                        angleaxis = [radians, x, y, z]";
            let message = format!("`{}` has no orientation", settings.name);
            let help = Some(help.to_owned());
            self.mistakes.push(Mistake { help, ..mistake(settings.span.clone(), message) });
            return None;
        }
        self.orientation(settings)
    }

    fn orientation(&mut self, settings: &Settings<'_>) -> Option<Quaternion> {
        let (key, value) = ORIENTATIONS.iter().find_map(|key| Some((*key, settings.any(key)?)))?;
        match key {
            "rpy" => {
                let angles = self.numbers(value, settings.span, key)?;
                Some(Quaternion::from_roll_pitch_yaw_degrees(angles))
            }
            "angleaxis" => {
                let [angle, axis @ ..]: [f64; 4] = self.numbers(value, settings.span, key)?;
                if axis == [0.0; 3] && angle != 0.0 {
                    self.wrong(place_of(value, settings.span), "an axis of length 0");
                    return None;
                }
                Some(Quaternion::from_angle_axis(angle, axis))
            }
            _ => {
                let [w, x, y, z] = self.numbers(value, settings.span, key)?;
                let direction = Quaternion { w, x, y, z }.normalized();
                if direction.is_none() {
                    self.wrong(place_of(value, settings.span), "a quaternion of length 0");
                }
                direction
            }
        }
    }

    fn pinhole(&mut self, settings: &Settings<'_>) -> Option<Pinhole> {
        let [fx, fy, skew, cx, cy] = self.needed_numbers(settings, PINHOLE)?;
        if fx <= 0.0 || fy <= 0.0 {
            let place = settings.any(PINHOLE).map_or(settings.span, |v| place_of(v, settings.span));
            self.wrong(place, "expected focal lengths above 0 in [fx, fy, skew, cx, cy]");
            return None;
        }
        Some(Pinhole { fx, fy, skew, cx, cy })
    }

    fn distortion(&mut self, settings: &Settings<'_>) -> Option<Distortion> {
        let Some(model) = settings.any("distortion_model") else {
            if let Some(value) = settings.own("distortion_params") {
                let place = place_of(value, settings.span);
                self.wrong(place, "a distortion without `distortion_model = \"spherical\"`");
                return None;
            }
            return Some(Distortion::None);
        };
        match model.word().map(|word| word.text.as_str()) {
            Some("none" | "null") => Some(Distortion::None),
            Some("spherical") => {
                let center = self.needed_numbers(settings, "distortion_center");
                let params: Option<[f64; 1]> = self.needed_numbers(settings, "distortion_params");
                Some(Distortion::Spherical { center: center?, param: params?[0] })
            }
            _ => {
                let place = place_of(model, settings.span);
                self.wrong(place, "expected `spherical` or `none` as the distortion's model");
                None
            }
        }
    }

    fn size(&mut self, settings: &Settings<'_>, key: &str) -> Option<u16> {
        let value = self.needed(settings, key)?;
        let number = value.word().and_then(Word::integer).and_then(|n| u16::try_from(n).ok());
        let number = number.filter(|number| *number > 0);
        if number.is_none() {
            self.wrong(place_of(value, settings.span), "expected pixels, from 1 to 65535");
        }
        number
    }

    fn text(&mut self, settings: &Settings<'_>, key: &str) -> Option<String> {
        let value = settings.own(key)?;
        let word = value.word();
        if word.is_none() {
            self.wrong(place_of(value, settings.span), &format!("expected a text as `{key}`"));
        }
        word.map(|word| word.text.clone())
    }

    fn bounds(&mut self, settings: &Settings<'_>) {
        let corners = CORNERS.map(|key| self.needed_numbers(settings, key));
        if let [Some(front_left), Some(front_right), Some(rear_left), Some(rear_right)] = corners {
            let bounds = VehicleBounds { front_left, front_right, rear_left, rear_right };
            self.vehicle.bounds = Some(bounds);
        }
    }

    fn masks(&mut self, masks: &[Entry]) {
        for Entry { name, span, value } in masks {
            self.mask(name, span, value);
        }
    }

    /// The first mask of a scanner counts.
    fn mask(&mut self, name: &str, span: &Range<usize>, value: &Value) {
        let Some(angles) = self.numbers::<2>(value, span, name) else { return };
        if angles[0] > angles[1] {
            self.wrong(place_of(value, span), "expected [from, to], with the smaller angle first");
        }
        self.vehicle.masks.entry(name.to_owned()).or_insert(angles);
    }

    fn needed<'d>(&mut self, settings: &Settings<'d>, key: &str) -> Option<&'d Value> {
        let value = settings.any(key);
        if value.is_none() {
            self.wrong(settings.span, &format!("`{}` has no `{key}`", settings.name));
        }
        value
    }

    fn needed_numbers<const N: usize>(
        &mut self,
        settings: &Settings<'_>,
        key: &str,
    ) -> Option<[f64; N]> {
        let value = self.needed(settings, key)?;
        self.numbers(value, settings.span, key)
    }

    fn numbers<const N: usize>(
        &mut self,
        value: &Value,
        span: &Range<usize>,
        key: &str,
    ) -> Option<[f64; N]> {
        let number = |word: &Word| word.double().filter(|number| number.is_finite());
        let words = value.words().unwrap_or_default();
        if let Some(wrong) = words.iter().find(|word| number(word).is_none()) {
            let message = format!("expected a number in `{key}`, found `{}`", wrong.text);
            self.wrong(&wrong.span, &message);
            return None;
        }
        let numbers: Vec<f64> = words.iter().filter_map(number).collect();
        let numbers = <[f64; N]>::try_from(numbers).ok();
        if numbers.is_none() {
            let (plural, found) = (if N == 1 { "" } else { "s" }, words.len());
            let message = format!("expected {N} number{plural} as `{key}`, found {found}");
            self.wrong(place_of(value, span), &message);
        }
        numbers
    }

    fn wrong(&mut self, span: &Range<usize>, message: &str) {
        self.mistakes.push(mistake(span.clone(), message));
    }
}

/// Where a value begins; `otherwise` if nothing is in it.
fn place_of<'v>(value: &'v Value, otherwise: &'v Range<usize>) -> &'v Range<usize> {
    match value {
        Value::Group(entries) => entries.first().map_or(otherwise, |entry| &entry.span),
        Value::Word(_) | Value::List(_) => value.word().map_or(otherwise, |word| &word.span),
    }
}
