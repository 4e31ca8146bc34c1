//! Maps from the fields of messages to what they are: pictures, scans, points, poses, positions on
//! the globe, mounts and lines of a log. Reads no rows.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use sluice_model::{FieldPath, Pattern, Patterns};

/// Patterns that are not those of channels, which a run would look for.
fn type_patterns(_: &mut SchemaGenerator) -> Schema {
    let one = json_schema!({ "type": "string",
        "description": "a glob, or `re:` and a regular expression" });
    json_schema!({ "anyOf": [one, { "type": "array", "items": one }] })
}

/// What to show of some messages. Exactly one of `image`, `scan`, `points`, `velodyne`, `pose`,
/// `fix`, `mount` and `log` says what they are.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ViewMap {
    /// Channels whose messages it fits. Default: all.
    pub channels: Patterns,
    /// Types it fits, by name. Default: all that have the fields.
    #[schemars(schema_with = "type_patterns")]
    pub types: Patterns,
    /// The field with the message's own time. Default, and if it has none: the time of the event.
    pub time: Option<FieldPath>,
    /// The unit of the field `time`.
    pub time_unit: TimeUnit,
    /// The coordinate frame of the data; `{channel}` and `{source}` stand for those of the event.
    pub frame: Option<String>,
    /// The channel of the view, with the same placeholders. Default: `/view/{channel}`.
    pub topic: Option<String>,
    /// A picture.
    pub image: Option<ImageFields>,
    /// A planar scan.
    pub scan: Option<ScanFields>,
    /// A list of points.
    pub points: Option<PointsField>,
    /// A packet of a spinning laser, with the options of the stage `velodyne`. Packets are gathered
    /// to revolutions.
    #[schemars(with = "Option<std::collections::BTreeMap<String, Value>>")]
    pub velodyne: Option<Value>,
    /// A pose.
    pub pose: Option<PoseFields>,
    /// A position on the globe.
    pub fix: Option<FixFields>,
    /// Where the sensor of a channel is mounted.
    pub mount: Option<MountFields>,
    /// A line of a log.
    pub log: Option<LogFields>,
}

/// Units of times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TimeUnit {
    /// Seconds.
    S,
    /// Milliseconds.
    Ms,
    /// Microseconds.
    #[default]
    Us,
    /// Nanoseconds.
    Ns,
}

impl TimeUnit {
    /// Nanoseconds.
    pub fn nanos(self) -> i64 {
        match self {
            Self::S => 1_000_000_000,
            Self::Ms => 1_000_000,
            Self::Us => 1_000,
            Self::Ns => 1,
        }
    }
}

/// A number, or the field it is in.
#[derive(Clone, Debug, PartialEq, JsonSchema)]
#[schemars(untagged)]
pub enum Scalar {
    /// The same number for all messages.
    Number(f64),
    /// A field.
    Field(FieldPath),
}

impl<'de> Deserialize<'de> for Scalar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a number, or a field")]
        enum RawScalar {
            Number(f64),
            Text(String),
        }
        match RawScalar::deserialize(deserializer)? {
            RawScalar::Number(number) => Ok(Self::Number(number)),
            // An untagged enum would not say what is wrong with the path.
            RawScalar::Text(text) => {
                FieldPath::parse(&text).map(Self::Field).map_err(serde::de::Error::custom)
            }
        }
    }
}

/// The fields of a picture. JPEG, PNG and WebP are recognised by their first bytes; for others,
/// width, height and encoding are needed.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImageFields {
    /// The bytes of the picture.
    pub data: FieldPath,
    /// Pixels.
    #[serde(default)]
    pub width: Option<Scalar>,
    /// Pixels.
    #[serde(default)]
    pub height: Option<Scalar>,
    /// Bytes per row. Default: from the width.
    #[serde(default)]
    pub step: Option<Scalar>,
    /// How pixels are stored, as Foxglove calls it: `mono8`, `rgb8`, `bayer_rggb8`, …
    #[serde(default)]
    pub encoding: Option<String>,
    /// The field that says how pixels are stored: a FourCC, or a name.
    #[serde(default)]
    pub encoding_field: Option<FieldPath>,
}

/// The fields of a planar scan: ranges, and the angles from the first to the last of them.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScanFields {
    /// The list of ranges. Null ranges are no return.
    pub ranges: FieldPath,
    /// Metres per unit of the ranges.
    #[serde(default = "one")]
    pub scale: f64,
    /// Ranges up to this are no return, in metres.
    #[serde(default)]
    pub min_range: f64,
    /// Ranges from this on are no return, in metres.
    #[serde(default)]
    pub max_range: Option<Scalar>,
    /// The list of intensities. Null ones are 0.
    #[serde(default)]
    pub intensities: Option<FieldPath>,
    /// The angle of the first range, counterclockwise from ahead. Default: half the field of view
    /// to the right.
    #[serde(default)]
    pub start: Option<Scalar>,
    /// The angle from one range to the next.
    #[serde(default)]
    pub step: Option<Scalar>,
    /// The angle from the first to the last range, instead of `step`.
    #[serde(default)]
    pub field_of_view: Option<Scalar>,
    /// Whether angles are degrees.
    #[serde(default)]
    pub degrees: bool,
}

fn one() -> f64 {
    1.0
}

/// The field of a list of points: structs with `x`, `y` and `z`, and if they have them `intensity`,
/// `laser`, `time`, and `red`, `green` and `blue`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PointsField {
    /// The list.
    pub field: FieldPath,
}

/// A place in space. Rotations are a quaternion, or else angles in radians.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PlacementFields {
    /// x, y and z; z may be missing.
    pub position: Vec<Scalar>,
    /// Metres per unit of the position.
    pub scale: Option<f64>,
    /// The quaternion x, y, z, w.
    pub quaternion: Vec<Scalar>,
    /// Roll, pitch and yaw.
    pub rpy: Vec<Scalar>,
    /// Yaw only.
    pub yaw: Option<Scalar>,
}

/// The fields of a pose.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PoseFields {
    /// Where it is.
    pub at: PlacementFields,
    /// The frame in which it is given.
    pub parent: Option<String>,
    /// The frame that it places. Default: `base_link`.
    pub child: Option<String>,
    /// Channel that ties the parent frame to the globe, as for the stage `georeference`: positions
    /// on the globe are shown as well.
    pub gps: Option<Pattern>,
}

/// The fields of a position on the globe.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FixFields {
    /// Degrees.
    pub latitude: Scalar,
    /// Degrees.
    pub longitude: Scalar,
    /// Metres.
    #[serde(default)]
    pub altitude: Option<Scalar>,
    /// Degrees, clockwise from north.
    #[serde(default)]
    pub heading: Option<Scalar>,
    /// Standard deviation to all sides, in metres.
    #[serde(default)]
    pub horizontal_error: Option<Scalar>,
    /// Standard deviation of the altitude, in metres.
    #[serde(default)]
    pub vertical_error: Option<Scalar>,
}

/// The fields of a sensor's mount.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MountFields {
    /// Where it is.
    pub at: PlacementFields,
    /// The frame in which it is given. Default: `base_link`.
    pub parent: Option<String>,
    /// The field of view of a scanner whose scans do not have it, in degrees.
    pub field_of_view: Option<Scalar>,
}

/// The fields of a line of a log.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogFields {
    /// The text.
    pub text: FieldPath,
    /// From 1, debug, to 5, fatal. Default: 2, info.
    #[serde(default)]
    pub level: Option<Scalar>,
}

#[cfg(test)]
mod tests {
    use sluice_model::options;

    use super::*;

    #[test]
    fn a_wrong_number_or_field_says_what_is_accepted() {
        let read = |value: Value| options::read::<FixFields>(value);
        let refusal = |latitude: Value| {
            let value = serde_json::json!({ "latitude": latitude, "longitude": 8.4 });
            let error = read(value).unwrap_err();
            assert_eq!(error.path, ["latitude"]);
            error.message
        };
        assert_eq!(refusal(true.into()), "a number, or a field");
        assert_eq!(refusal("pos[".into()), FieldPath::parse("pos[").unwrap_err());
        let read = read(serde_json::json!({ "latitude": "pos[0]", "longitude": 8 })).unwrap();
        assert_eq!(read.latitude, Scalar::Field(FieldPath::parse("pos[0]").unwrap()));
        assert_eq!(read.longitude, Scalar::Number(8.0));
    }
}
