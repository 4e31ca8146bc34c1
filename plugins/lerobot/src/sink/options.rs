//! Options of the sink `lerobot`. Resolves no field.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use sluice_kit::selection::FieldList;
use sluice_model::options::{ByteSize, OutPath};
use sluice_model::time::TimeSpan;
use sluice_model::{FieldPath, OptionsError};
use sluice_views::ImageFields;

use crate::feature::{NumberType, RESERVED};
use crate::info::{LEAST_FPS, MB};

/// Writes the rows of one channel as a LeRobot dataset, version 3.0.
///
/// Each row is a frame, each field a feature. The rows must be on a grid: the stage `align` puts
/// several channels onto one.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
#[schemars(rename = "LeRobotOptions")]
pub struct LeRobotSink {
    /// The folder of the dataset.
    pub(super) path: OutPath,
    /// Frames per second. Default: from the first two rows.
    #[serde(default, deserialize_with = "frame_rate")]
    pub(super) fps: Option<f64>,
    /// The robot, as `info.json` names it.
    #[serde(default)]
    pub(super) robot_type: Option<String>,
    /// The task of rows without a text in a field `task`.
    #[serde(default)]
    pub(super) task: Option<String>,
    /// The features to write, in this order: a table from their names to fields. A field can also
    /// be a table with `field`, `names` (of its axes), `dtype` and `image` (the fields of raw
    /// pixels). Default: all fields, under their own names.
    #[serde(default)]
    pub(super) features: Option<FeatureMap>,
    /// How numbers of 64-bit floating point are written: `float32`, as policies expect, or `keep`.
    #[serde(default)]
    pub(super) floats: FloatPolicy,
    /// How images are stored: `image` is the only way so far.
    #[serde(default)]
    pub(super) images: ImageStorage,
    /// What becomes of a hole in the grid: `split` starts a new episode behind it, `hold` repeats
    /// the row before it, `fail` ends the run.
    #[serde(default)]
    pub(super) holes: HolePolicy,
    /// The longest hole that `holes = "hold"` fills. Longer ones split the episode.
    #[serde(default = "one_second")]
    pub(super) max_hold: TimeSpan,
    /// Shorter episodes are left out, and counted.
    #[serde(default = "two", deserialize_with = "frames")]
    pub(super) min_frames: u32,
    /// What becomes of a row without a value for a feature, with a number that is not finite, or
    /// with an image that cannot be loaded: `drop` leaves it out, which makes a hole; `stop` ends
    /// the run.
    #[serde(default)]
    pub(super) unusable: UnusablePolicy,
    /// Files per folder.
    #[serde(default = "thousand", deserialize_with = "positive")]
    pub(super) chunks_size: u64,
    /// The size up to which episodes are added to a data file.
    #[serde(default = "hundred_mb")]
    pub(super) data_file_size: ByteSize,
    /// Whether to add to the dataset that the folder holds. Its data files stay as they are.
    #[serde(default)]
    pub(super) append: bool,
}

/// How 64-bit numbers are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum FloatPolicy {
    #[default]
    Float32,
    Keep,
}

/// How images are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum ImageStorage {
    #[default]
    Image,
}

impl<'de> Deserialize<'de> for ImageStorage {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match &*String::deserialize(deserializer)? {
            "image" => Ok(Self::Image),
            "video" => Err(D::Error::custom(
                "videos are not written: write `image`, then run `lerobot-edit-dataset` with \
                 `--operation.type convert_image_to_video`",
            )),
            other => Err(D::Error::custom(format!("expected `image`, found `{other}`"))),
        }
    }
}

/// What becomes of holes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum HolePolicy {
    #[default]
    Split,
    Fail,
    Hold,
}

/// What becomes of rows that cannot be frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(super) enum UnusablePolicy {
    #[default]
    Drop,
    Stop,
}

fn one_second() -> TimeSpan {
    TimeSpan(1_000_000_000)
}

fn two() -> u32 {
    2
}

fn thousand() -> u64 {
    1000
}

fn hundred_mb() -> ByteSize {
    ByteSize(100 * MB)
}

/// The most frames that an episode may need: they are kept in memory.
const MAX_MIN_FRAMES: u32 = 10_000;

fn frames<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    let frames = u32::deserialize(deserializer)?;
    if (1..=MAX_MIN_FRAMES).contains(&frames) {
        return Ok(frames);
    }
    Err(D::Error::custom(format!("expected a number from 1 to {MAX_MIN_FRAMES}")))
}

fn frame_rate<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    let fps = f64::deserialize(deserializer)?;
    if fps.is_finite() && fps >= LEAST_FPS {
        return Ok(Some(fps));
    }
    Err(D::Error::custom(format!("expected a number above 0, from {LEAST_FPS:e} on")))
}

fn positive<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    match u64::deserialize(deserializer)? {
        0 => Err(D::Error::custom("expected a number above 0")),
        number => Ok(number),
    }
}

impl<'de> Deserialize<'de> for LeRobotSink {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let sink = Self::deserialize(deserializer)?;
        if sink.path.is_stdout() {
            return Err(D::Error::custom("a dataset is a folder, which standard output is not"));
        }
        if sink.holes != HolePolicy::Hold && sink.max_hold != one_second() {
            let error = OptionsError::needs("max_hold", "holes = \"hold\"");
            return Err(D::Error::custom(error));
        }
        Ok(sink)
    }
}

impl LeRobotSink {
    /// The folder, with a slash.
    pub(super) fn folder(&self) -> PathBuf {
        let mut path = self.path.0.clone().into_os_string();
        if !self.path.is_folder() {
            path.push("/");
        }
        path.into()
    }
}

/// Features by their names, in the order of the file.
#[derive(Clone, Debug)]
pub(super) struct FeatureMap(pub(super) Vec<(String, FeatureOptions)>);

/// What a feature is made of.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(super) struct FeatureOptions {
    /// The field. Default: the one of the feature's name.
    pub(super) field: Option<FieldPath>,
    /// The names of its axes.
    pub(super) names: Option<Vec<String>>,
    /// The type of its numbers.
    pub(super) dtype: Option<NumberType>,
    /// The fields of raw pixels.
    pub(super) image: Option<ImageFields>,
}

impl<'de> Deserialize<'de> for FeatureMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(FeatureMapVisitor)
    }
}

struct FeatureMapVisitor;

impl<'de> Visitor<'de> for FeatureMapVisitor {
    type Value = FeatureMap;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a table from the names of features to fields")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<FeatureMap, A::Error> {
        let mut features = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            let OneFeature(options) = map.next_value()?;
            check_name(&name).map_err(A::Error::custom)?;
            features.push((name, options));
        }
        if features.is_empty() {
            return Err(A::Error::custom("expected at least one feature"));
        }
        Ok(FeatureMap(features))
    }
}

/// A field, or a table.
struct OneFeature(FeatureOptions);

impl<'de> Deserialize<'de> for OneFeature {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FeatureVisitor).map(Self)
    }
}

/// Reports errors with their key in the table, which an untagged enum could not.
struct FeatureVisitor;

impl<'de> Visitor<'de> for FeatureVisitor {
    type Value = FeatureOptions;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field, or a table")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<FeatureOptions, E> {
        let field = Some(FieldPath::parse(text).map_err(E::custom)?);
        Ok(FeatureOptions { field, ..FeatureOptions::default() })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<FeatureOptions, A::Error> {
        let options = FeatureOptions::deserialize(MapAccessDeserializer::new(map))?;
        let FeatureOptions { field, names, dtype, image } = &options;
        if image.is_some() && (field.is_some() || names.is_some() || dtype.is_some()) {
            let what = "`image` says all of a feature: leave out `field`, `names` and `dtype`";
            return Err(A::Error::custom(what));
        }
        Ok(options)
    }
}

/// Checks that LeRobot takes a name. `Err` says why not, and what to do.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    if RESERVED.contains(&name) {
        return Err(format!(
            "every dataset has a column `{name}` of its own: give the feature another name in \
             `features`"
        ));
    }
    if name.is_empty() || name.contains('/') {
        return Err(format!(
            "`{name}` is not a name of a feature, which has at least one character and no slash: \
             give it another one in `features`"
        ));
    }
    Ok(())
}

/// For the schema only.
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum FeatureSchema {
    Field(FieldPath),
    Table(Box<FeatureOptions>),
}

impl JsonSchema for FeatureMap {
    fn schema_name() -> Cow<'static, str> {
        "Features".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        <BTreeMap<String, FeatureSchema>>::json_schema(generator)
    }
}

/// The note about a field that no event had, by which a run recognises it.
pub(super) fn note_of_missing(path: &FieldPath) -> String {
    FieldList::note_of_missing(path)
}
