//! Stage `{{name}}`: keeps events whose payload is long enough.
//!
//! The filter is a sample. Replace it with yours: only `apply` depends on it.

use schemars::JsonSchema;
use serde::Deserialize;
use sluice_model::{Batch, Error, Map, MapQuery, OptionsError, Stage, StageContext, register};

/// Keeps events whose payload is long enough.
// The options in pipeline files. Their doc comments are the help of `plugins {{name}}`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MinPayloadLength {
    /// The minimum length of a payload, in bytes.
    #[serde(default = "one")]
    least: usize,
}

fn one() -> usize {
    1
}

register! {
    stage "{{name}}": MinPayloadLength,
    about: "keeps events whose payload is long enough",
    sample: include_str!("../samples/{{name}}.toml"),
}

// Validates the options before anything is read. An error names the option.
impl TryFrom<MinPayloadLength> for Stage {
    type Error = OptionsError;

    fn try_from(options: MinPayloadLength) -> Result<Self, OptionsError> {
        if options.least == 0 {
            return Err(OptionsError::at(
                "least",
                "expected 1 or more: 0 keeps every event",
            ));
        }
        Ok(Self::Map(Box::new(options)))
    }
}

// A stateless stage, called on all cores in any order. A stage with state implements `Fold`.
impl Map for MinPayloadLength {
    fn apply(&self, batch: Batch, context: &mut StageContext<'_>) -> Result<Batch, Error> {
        let kept = batch.retain(|row| batch.payload_len(row) >= self.least);
        // Every event must be accounted for, or the run fails.
        context.report.filtered += (batch.len() - kept.len()) as u64;
        Ok(kept)
    }

    // The stage changes neither times nor channels, so filters after it can be pushed down to the
    // source.
    fn query(&self) -> MapQuery {
        MapQuery {
            keeps_times: true,
            keeps_channels: true,
            ..MapQuery::default()
        }
    }
}
