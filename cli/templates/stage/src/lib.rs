//! Stage `{{name}}`: lets events pass whose payload is long enough.
//!
//! What it does is an example. Put your own in its place: `apply` is all that does it.

use schemars::JsonSchema;
use serde::Deserialize;
use sluice_core::{Batch, Error, Map, MapQuery, OptionsError, Stage, StageContext, register};

/// Lets events pass whose payload is long enough.
// The options: what a pipeline file may say. Their comments are the help of `plugins {{name}}`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LongEnough {
    /// How many bytes a payload has at least.
    #[serde(default = "one")]
    least: usize,
}

fn one() -> usize {
    1
}

register! {
    stage "{{name}}": LongEnough,
    about: "lets events pass whose payload is long enough",
    sample: include_str!("../samples/{{name}}.toml"),
}

// What is wrong with options is said here, with the option at fault: before anything is read.
impl TryFrom<LongEnough> for Stage {
    type Error = OptionsError;

    fn try_from(options: LongEnough) -> Result<Self, OptionsError> {
        if options.least == 0 {
            return Err(OptionsError::at(
                "least",
                "expected 1 or more: 0 lets every event pass",
            ));
        }
        Ok(Self::Map(Box::new(options)))
    }
}

// A stage without memory: it is given batches on all cores, in any order. One that has to remember what came
// before is a `Fold`.
impl Map for LongEnough {
    fn apply(&self, batch: Batch, context: &mut StageContext<'_>) -> Result<Batch, Error> {
        let kept = batch.retain(|row| batch.payload_len(row) >= self.least);
        // Every event is accounted for: the run fails if one is missing and nobody says why.
        context.filtered += (batch.len() - kept.len()) as u64;
        Ok(kept)
    }

    // What is asked for behind this stage may be asked of the source: it changes neither times nor channels.
    fn query(&self) -> MapQuery {
        MapQuery {
            keeps_times: true,
            keeps_channels: true,
            ..MapQuery::default()
        }
    }
}
