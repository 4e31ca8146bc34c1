//! Types, defaults and validation of the options of `las`.

use serde::{Deserialize, Deserializer, Serialize};
use sluice_model::FieldPath;
use sluice_model::options::OutPath;
use sluice_model::schemars::JsonSchema;

/// Which files have colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "sluice_model::schemars")]
pub(crate) enum ColourPolicy {
    #[default]
    Auto,
    Keep,
    Drop,
}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a number above 0, or three of them")]
#[schemars(crate = "sluice_model::schemars")]
pub(crate) enum OneOrThree {
    One(f64),
    Three([f64; 3]),
}

pub(crate) fn points() -> FieldPath {
    FieldPath::column("points")
}

pub(crate) fn xyz() -> [String; 3] {
    ["x", "y", "z"].map(str::to_owned)
}

pub(crate) fn millimetre() -> [f64; 3] {
    [0.001; 3]
}

pub(crate) fn full_range() -> f64 {
    f64::from(u16::MAX)
}

pub(crate) fn path<'de, D: Deserializer<'de>>(deserializer: D) -> Result<OutPath, D::Error> {
    let path = OutPath::deserialize(deserializer)?;
    let is_packed = path.0.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("zst"));
    if !path.is_stdout() && (path.is_folder() || !is_packed) {
        return Ok(path);
    }
    Err(serde::de::Error::custom(
        "the header of a LAS file is written last, so the output cannot be standard output or \
         end in `.zst`; a path that ends in `.laz` compresses points",
    ))
}

pub(crate) fn scale<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[f64; 3], D::Error> {
    let scale = match OneOrThree::deserialize(deserializer)? {
        OneOrThree::One(scale) => [scale; 3],
        OneOrThree::Three(scales) => scales,
    };
    if scale.iter().all(|scale| (1e-12..=1e12).contains(scale)) {
        return Ok(scale);
    }
    Err(serde::de::Error::custom("expected a number from 1e-12 to 1e12, or three of them"))
}

pub(crate) fn offset<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<[f64; 3]>, D::Error> {
    let offset = <[f64; 3]>::deserialize(deserializer)?;
    if offset.iter().all(|value| value.abs() <= 1e15) {
        return Ok(Some(offset));
    }
    Err(serde::de::Error::custom("expected three numbers from -1e15 to 1e15"))
}

pub(crate) fn factor<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let factor = f64::deserialize(deserializer)?;
    if (0.0..=1e12).contains(&factor) {
        return Ok(factor);
    }
    Err(serde::de::Error::custom("expected a number from 0 to 1e12"))
}
