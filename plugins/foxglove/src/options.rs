//! The options of the stage `foxglove`: which fields of which messages viewers show, and as what.

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use sluice_model::time::TimeLength;
use sluice_model::{FieldPath, Pattern, Patterns};

/// Options of `foxglove`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct FoxgloveOptions {
    /// Channels to show. Default: all whose type has a map.
    pub(crate) channels: Patterns,
    /// What to show of messages. The first map that fits a message is used; the built-in ones come
    /// last.
    pub(crate) map: Vec<ViewMap>,
    /// Whether the maps of the built-in types are used: those of `mit-dgc`, VEL and Orca.
    pub(crate) built_in: bool,
    /// Where sensors are mounted, and how cameras project: as for the stage `mounts`, or `none`.
    #[schemars(extend("format" = sluice_model::options::TYPES_FORMAT))]
    pub(crate) calibration: Option<String>,
    /// How often mounts and calibrations are repeated, in log time, for viewers that seek.
    pub(crate) repeat: TimeLength,
}

impl Default for FoxgloveOptions {
    fn default() -> Self {
        Self {
            channels: Patterns::default(),
            map: Vec::new(),
            built_in: true,
            calibration: None,
            repeat: TimeLength(5_000_000_000),
        }
    }
}

/// What to show of some messages. Exactly one of `image`, `scan`, `points`, `velodyne`, `pose`,
/// `fix`, `mount` and `log` says what they are.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ViewMap {
    /// Channels whose messages it fits. Default: all.
    pub(crate) channels: Patterns,
    /// Types it fits, by name. Default: all that have the fields.
    pub(crate) types: Patterns,
    /// The field with the message's own time. Default: the time of the event.
    pub(crate) time: Option<FieldPath>,
    /// The unit of the field `time`.
    pub(crate) time_unit: TimeUnit,
    /// The coordinate frame of the data; `{channel}` and `{source}` stand for those of the event.
    pub(crate) frame: Option<String>,
    /// The channel of the view, with the same placeholders. Default: `/view/{channel}`.
    pub(crate) topic: Option<String>,
    /// A picture.
    pub(crate) image: Option<ImageFields>,
    /// A planar scan.
    pub(crate) scan: Option<ScanFields>,
    /// A list of points.
    pub(crate) points: Option<PointsField>,
    /// A packet of a spinning laser, with the options of the stage `velodyne`. Packets are gathered
    /// to revolutions.
    #[schemars(with = "Option<std::collections::BTreeMap<String, Value>>")]
    pub(crate) velodyne: Option<Value>,
    /// A pose.
    pub(crate) pose: Option<PoseFields>,
    /// A position on the globe.
    pub(crate) fix: Option<FixFields>,
    /// Where the sensor of a channel is mounted.
    pub(crate) mount: Option<MountFields>,
    /// A line of a log.
    pub(crate) log: Option<LogFields>,
}

/// Units of times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TimeUnit {
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
    pub(crate) fn nanos(self) -> i64 {
        match self {
            Self::S => 1_000_000_000,
            Self::Ms => 1_000_000,
            Self::Us => 1_000,
            Self::Ns => 1,
        }
    }
}

/// A number, or the field it is in.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Scalar {
    /// The same number for all messages.
    Number(f64),
    /// A field.
    Field(FieldPath),
}

/// The fields of a picture. JPEG, PNG and WebP are recognised by their first bytes; for others,
/// width, height and encoding are needed.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ImageFields {
    /// The bytes of the picture.
    pub(crate) data: FieldPath,
    /// Pixels.
    #[serde(default)]
    pub(crate) width: Option<Scalar>,
    /// Pixels.
    #[serde(default)]
    pub(crate) height: Option<Scalar>,
    /// Bytes per row. Default: from the width.
    #[serde(default)]
    pub(crate) step: Option<Scalar>,
    /// How pixels are stored, as Foxglove calls it: `mono8`, `rgb8`, `bayer_rggb8`, …
    #[serde(default)]
    pub(crate) encoding: Option<String>,
    /// The field that says how pixels are stored: a FourCC, or a name.
    #[serde(default)]
    pub(crate) encoding_field: Option<FieldPath>,
}

/// The fields of a planar scan: ranges, and the angles from the first to the last of them.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ScanFields {
    /// The list of ranges.
    pub(crate) ranges: FieldPath,
    /// Metres per unit of the ranges.
    #[serde(default = "one")]
    pub(crate) scale: f64,
    /// Ranges up to this are no return, in metres.
    #[serde(default)]
    pub(crate) min_range: f64,
    /// Ranges from this on are no return, in metres.
    #[serde(default)]
    pub(crate) max_range: Option<Scalar>,
    /// The list of intensities.
    #[serde(default)]
    pub(crate) intensities: Option<FieldPath>,
    /// The angle of the first range, counterclockwise from ahead. Default: half the field of view
    /// to the right.
    #[serde(default)]
    pub(crate) start: Option<Scalar>,
    /// The angle from one range to the next.
    #[serde(default)]
    pub(crate) step: Option<Scalar>,
    /// The angle from the first to the last range, instead of `step`.
    #[serde(default)]
    pub(crate) field_of_view: Option<Scalar>,
    /// Whether angles are degrees.
    #[serde(default)]
    pub(crate) degrees: bool,
}

fn one() -> f64 {
    1.0
}

/// The field of a list of points: structs with `x`, `y` and `z`, and if they have them `intensity`,
/// `laser`, `time`, and `red`, `green` and `blue`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PointsField {
    /// The list.
    pub(crate) field: FieldPath,
}

/// A place in space. Rotations are a quaternion, or else angles in radians.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PlacementFields {
    /// x, y and z; z may be missing.
    pub(crate) position: Vec<Scalar>,
    /// Metres per unit of the position.
    pub(crate) scale: Option<f64>,
    /// The quaternion x, y, z, w.
    pub(crate) quaternion: Vec<Scalar>,
    /// Roll, pitch and yaw.
    pub(crate) rpy: Vec<Scalar>,
    /// Yaw only.
    pub(crate) yaw: Option<Scalar>,
}

/// The fields of a pose.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PoseFields {
    /// Where it is.
    pub(crate) at: PlacementFields,
    /// The frame in which it is given.
    pub(crate) parent: Option<String>,
    /// The frame that it places. Default: `base_link`.
    pub(crate) child: Option<String>,
    /// Channel that ties the parent frame to the globe, as for the stage `georeference`: positions
    /// on the globe are shown as well.
    pub(crate) gps: Option<Pattern>,
}

/// The fields of a position on the globe.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FixFields {
    /// Degrees.
    pub(crate) latitude: Scalar,
    /// Degrees.
    pub(crate) longitude: Scalar,
    /// Metres.
    #[serde(default)]
    pub(crate) altitude: Option<Scalar>,
    /// Degrees, clockwise from north.
    #[serde(default)]
    pub(crate) heading: Option<Scalar>,
    /// Standard deviation to all sides, in metres.
    #[serde(default)]
    pub(crate) horizontal_error: Option<Scalar>,
    /// Standard deviation of the altitude, in metres.
    #[serde(default)]
    pub(crate) vertical_error: Option<Scalar>,
}

/// The fields of a sensor's mount.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MountFields {
    /// Where it is.
    pub(crate) at: PlacementFields,
    /// The frame in which it is given. Default: `base_link`.
    pub(crate) parent: Option<String>,
    /// The field of view of a scanner whose scans do not have it, in degrees.
    pub(crate) field_of_view: Option<Scalar>,
}

/// The fields of a line of a log.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogFields {
    /// The text.
    pub(crate) text: FieldPath,
    /// From 1, debug, to 5, fatal. Default: 2, info.
    #[serde(default)]
    pub(crate) level: Option<Scalar>,
}
