//! The accounting of a channel in a report.

use serde::{Deserialize, Serialize};

/// The accounting of a channel on the way to a sink: `in = out + filtered + damaged`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ChannelReport {
    /// The sink.
    pub sink: String,
    /// The channel's source.
    pub source: String,
    /// The channel, as it was read.
    pub channel: String,
    /// Events read, or added by a stage.
    #[serde(rename = "in")]
    pub entered: u64,
    /// Events written.
    pub out: u64,
    /// Events dropped by stages.
    pub filtered: u64,
    /// Events that could not be read, or that the sink's format cannot represent.
    pub damaged: u64,
    /// Events whose payload could not be decoded or encoded, and that passed unchanged.
    pub undecoded: u64,
}
