//! A channel: the origin and encoding of events. [`Channels`](crate::Channels) has all of a run.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::display::Base64Display;
use base64::prelude::BASE64_STANDARD as STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Name;

/// How a channel's payloads are encoded, as far as its source knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Encoding {
    /// An LCM message: eight bytes of fingerprint, then the fields.
    Lcm,
    /// A VEL DataLog message body.
    Vel,
    /// Ice encoding 1.0.
    Ice,
    /// CDR, as ROS 2 and DDS write it.
    Cdr,
    /// A ROS 1 message.
    Ros1,
    /// A protobuf message.
    Protobuf,
    /// JSON text.
    Json,
    /// Text.
    Text,
    /// Not known.
    #[default]
    Unknown,
}

impl Encoding {
    /// Its name in files and reports.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Lcm => "lcm",
            Self::Vel => "vel",
            Self::Ice => "ice",
            Self::Cdr => "cdr",
            Self::Ros1 => "ros1",
            Self::Protobuf => "protobuf",
            Self::Json => "json",
            Self::Text => "text",
            Self::Unknown => "unknown",
        }
    }

    /// The encoding of that name; unknown names are [`Encoding::Unknown`].
    pub fn from_word(word: &str) -> Self {
        use Encoding::{Cdr, Ice, Json, Lcm, Protobuf, Ros1, Text, Vel};
        let all = [Lcm, Vel, Ice, Cdr, Ros1, Protobuf, Json, Text];
        all.into_iter().find(|e| e.as_str() == word).unwrap_or_default()
    }
}

/// What a channel's timestamps count from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// The Unix epoch, UTC.
    #[default]
    Utc,
    /// The start of the recording.
    Relative,
}

/// The declaration of a channel's payloads that the log itself stores.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmbeddedSchema {
    /// The language of the declaration, as the log names it, such as `ros2msg`.
    pub encoding: Arc<str>,
    /// The declaration, in that language. In base64 where it is stored as text.
    #[serde(serialize_with = "to_base64", deserialize_with = "from_base64")]
    pub data: Arc<[u8]>,
}

fn to_base64<S: serde::Serializer>(data: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&Base64Display::new(data, &STANDARD))
}

fn from_base64<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Arc<[u8]>, D::Error> {
    let text = String::deserialize(deserializer)?;
    STANDARD.decode(text).map(Arc::from).map_err(serde::de::Error::custom)
}

/// Where events come from and what their payloads are.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Channel {
    /// The channel's name.
    pub name: Name,
    /// The robot, sensor or pipeline source it belongs to.
    pub source: Arc<str>,
    /// How payloads are encoded.
    pub encoding: Encoding,
    /// The payloads' type, where the source knows it.
    pub type_name: Option<Arc<str>>,
    /// The declaration of that type, where the log stores it.
    pub schema: Option<EmbeddedSchema>,
    /// What timestamps count from.
    pub clock: Clock,
    /// Anything else the format records about it.
    pub metadata: BTreeMap<String, String>,
}

impl Channel {
    /// The key in [`metadata`](Self::metadata) that marks a view: a channel that only shows what
    /// others hold.
    pub const VIEW: &str = "sluice.view";
    /// The key for the name of the channel that a view shows; views that show several have none.
    pub const VIEW_OF: &str = "sluice.view.of";

    /// Whether it only shows what others hold.
    pub fn is_view(&self) -> bool {
        self.metadata.get(Self::VIEW).is_some_and(|view| view == "1")
    }

    /// A channel of which only name, source and encoding are known; everything else has its
    /// default.
    pub fn new(name: Name, source: impl Into<Arc<str>>, encoding: Encoding) -> Self {
        let (source, metadata) = (source.into(), BTreeMap::new());
        let (type_name, schema) = (None, None);
        Self { name, source, encoding, type_name, schema, clock: Clock::Utc, metadata }
    }

    /// Whether it may declare the type of its payloads: that of JSON needs no declaration.
    pub fn may_declare_type(&self) -> bool {
        self.schema.is_some() || self.encoding == Encoding::Json
    }

    /// The total length of its strings.
    pub(crate) fn len(&self) -> usize {
        // Schemas are shared by channels, and bounded by the sources that read them.
        let Self { name, source, type_name, metadata, .. } = self;
        let metadata: usize = metadata.iter().map(|(key, value)| key.len() + value.len()).sum();
        let kind = type_name.as_ref().map_or(0, |name| name.len());
        name.text().len() + name.as_bytes().len() + source.len() + kind + metadata
    }
}

/// A channel's number: valid only with the [`Channels`](crate::Channels) that assigned it.
///
/// Numbers depend on the order in which threads first saw the channels, so they must never reach
/// output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelId(pub u32);

impl ChannelId {
    /// The number as an index into tables by channel.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
