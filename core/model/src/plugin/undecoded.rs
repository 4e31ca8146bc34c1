//! What stages do with events that cannot be decoded.

use std::fmt::Display;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::StageContext;
use crate::{Batch, Error, Event};

/// What to do with events that cannot be decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UndecodedPolicy {
    /// Pass them on unchanged, and count them.
    #[default]
    Keep,
    /// Drop them.
    Drop,
    /// End the run.
    Stop,
}

impl UndecodedPolicy {
    /// The error for [`Stop`](Self::Stop).
    pub fn refusal(event: &Event<'_>, context: &StageContext<'_>, why: impl Display) -> Error {
        let channel = context.channels.get(event.channel);
        Error::invalid(format!(
            "event {} on channel `{}` cannot be decoded: {why}; `undecoded = \"keep\"` would pass \
             it on undecoded",
            event.sequence,
            channel.name.text()
        ))
    }

    /// Applies the policy to the events at the positions `failed`, counts them, and returns the
    /// batch to pass on.
    pub fn apply(
        self,
        batch: Batch,
        mut failed: Vec<u32>,
        context: &mut StageContext<'_>,
    ) -> Batch {
        failed.sort_unstable();
        if self == Self::Drop && !failed.is_empty() {
            context.report.filtered += failed.len() as u64;
            return batch.retain(|row| failed.binary_search(&(row as u32)).is_err());
        }
        let origins = batch.origins();
        context.report.undecoded.extend(failed.iter().map(|event| origins[*event as usize]));
        batch
    }
}
