//! The options of the stage `foxglove`.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use sluice_model::Patterns;
use sluice_model::options::TYPES_FORMAT;
use sluice_model::time::TimeLength;
use sluice_views::ViewMap;

/// In place of a calibration: there is none.
pub(crate) const NO_CALIBRATION: &str = "none";

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
    #[schemars(schema_with = "calibration_schema")]
    pub(crate) calibration: Option<String>,
    /// How often mounts and calibrations are repeated, in log time, for viewers that seek.
    pub(crate) repeat: TimeLength,
}

fn calibration_schema(_: &mut SchemaGenerator) -> Schema {
    let file = json_schema!({ "type": "string", "format": TYPES_FORMAT });
    json_schema!({ "anyOf": [{ "const": NO_CALIBRATION }, file, { "type": "null" }] })
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
