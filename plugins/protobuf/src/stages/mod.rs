//! The stages `to-protobuf` and `from-protobuf`: messages of any codec carried as protobuf, for
//! programs that know no other types, and restored to what they were.
//!
//! The channel's metadata says what its messages were: their type (`sluice.type`), the types of
//! their columns (`sluice.columns`) and the original channel (`sluice.channel`).

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sluice_model::{Channel, Clock, EmbeddedSchema, Encoding};

mod column_types;
mod from_protobuf;
mod layer;
mod to_protobuf;

pub use layer::TypedLayer;

/// The metadata key for the type of the original messages, as JSON.
const TYPE: &str = "sluice.type";
/// The metadata key for the types of their columns, as JSON.
const COLUMNS: &str = "sluice.columns";
/// The metadata key for what the channel was, as JSON.
const CHANNEL: &str = "sluice.channel";
/// The metadata key for the encoding of the original messages.
pub const ENCODING: &str = "sluice.encoding";

/// What of a channel `to-protobuf` replaces.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OriginalChannel {
    #[serde(default)]
    encoding: Encoding,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    type_name: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    schema: Option<EmbeddedSchema>,
    #[serde(default)]
    clock: Clock,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    metadata: BTreeMap<String, String>,
}

impl OriginalChannel {
    fn from_channel(channel: &Channel) -> Self {
        let Channel { encoding, type_name, schema, clock, metadata, .. } = channel.clone();
        Self { encoding, type_name, schema, clock, metadata }
    }

    /// The channel it was, under the name and source that `channel` has now.
    fn restore(self, channel: &Channel) -> Channel {
        let Self { encoding, type_name, schema, clock, metadata } = self;
        let (name, source) = (channel.name.clone(), Arc::clone(&channel.source));
        Channel { name, source, encoding, type_name, schema, clock, metadata }
    }
}
