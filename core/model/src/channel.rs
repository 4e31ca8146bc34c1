//! Channels: the origin and encoding of events, interned once per run. Reads no log.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use base64::Engine as _;
use base64::display::Base64Display;
use base64::prelude::BASE64_STANDARD as STANDARD;
use hashbrown::HashMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sluice_io::error::FEWER_CHANNELS;

use crate::{Error, Name};

/// How a channel's payloads are encoded, as far as its source knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
    /// A channel of which only name, source and encoding are known; everything else has its
    /// default.
    pub fn new(name: Name, source: impl Into<Arc<str>>, encoding: Encoding) -> Self {
        let (source, metadata) = (source.into(), BTreeMap::new());
        let (type_name, schema) = (None, None);
        Self { name, source, encoding, type_name, schema, clock: Clock::Utc, metadata }
    }

    /// The total length of its strings.
    fn len(&self) -> usize {
        // Schemas are shared by channels, and bounded by the sources that read them.
        let Self { name, source, type_name, metadata, .. } = self;
        let metadata: usize = metadata.iter().map(|(key, value)| key.len() + value.len()).sum();
        let kind = type_name.as_ref().map_or(0, |name| name.len());
        name.text().len() + name.as_bytes().len() + source.len() + kind + metadata
    }
}

/// A channel's number: valid only with the [`Channels`] that assigned it.
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

/// Every channel of a run, each once. Shared by all threads; lookups are cheap, insertions are
/// rare.
#[derive(Debug)]
pub struct Channels {
    inner: RwLock<InternTable>,
    limit: usize,
}

#[derive(Debug, Default)]
struct InternTable {
    /// The total length of their strings.
    bytes: usize,
    list: Vec<Arc<Channel>>,
    index: HashMap<Arc<Channel>, ChannelId, foldhash::fast::RandomState>,
}

impl Default for Channels {
    fn default() -> Self {
        Self::with_limit(Self::DEFAULT_LIMIT)
    }
}

impl Channels {
    /// The most channels a run may have: a damaged log can invent any number.
    ///
    /// Tables, reports and manifests need up to five kilobytes per channel, which has to fit into
    /// the memory of an ordinary run.
    pub const DEFAULT_LIMIT: usize = 1 << 16;

    /// The most bytes of names, sources and other strings of all channels.
    const MAX_BYTES: usize = 32 << 20;

    /// An empty table that takes at most `limit` channels.
    pub fn with_limit(limit: usize) -> Self {
        Self { inner: RwLock::default(), limit }
    }

    /// Returns the number of `channel`, adding it if it is new.
    ///
    /// `Err` if that would exceed the limit of channels or of their total length.
    pub fn intern(&self, channel: Channel) -> Result<ChannelId, Error> {
        if let Some(id) = self.read(|inner| inner.index.get(&channel).copied()) {
            return Ok(id);
        }
        let mut inner = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(id) = inner.index.get(&channel) {
            return Ok(*id);
        }
        let id = u32::try_from(inner.list.len()).ok().filter(|id| (*id as usize) < self.limit);
        let id = ChannelId(id.ok_or_else(|| Error::too_many_channels(self.limit))?);
        inner.bytes = inner.bytes.saturating_add(channel.len());
        if inner.bytes > Self::MAX_BYTES {
            return Err(Error::refused(format!(
                "names of channels are longer than {} MiB together: the input is damaged, or \
                 gives every event its own channel; {FEWER_CHANNELS}",
                Self::MAX_BYTES >> 20
            )));
        }
        let channel = Arc::new(channel);
        inner.list.push(Arc::clone(&channel));
        inner.index.insert(channel, id);
        Ok(id)
    }

    /// The channel of that number.
    ///
    /// # Panics
    ///
    /// If the number belongs to another table.
    pub fn get(&self, id: ChannelId) -> Arc<Channel> {
        self.read(|inner| inner.list.get(id.index()).cloned())
            .expect("a channel's number is used with the table that gave it")
    }

    /// The current number of channels.
    pub fn len(&self) -> usize {
        self.read(|inner| inner.list.len())
    }

    /// Whether there is no channel yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The channels from number `from` on, in the order of their numbers.
    pub fn since(&self, from: usize) -> Vec<Arc<Channel>> {
        self.read(|inner| inner.list.get(from..).unwrap_or_default().to_vec())
    }

    fn read<T>(&self, look: impl FnOnce(&InternTable) -> T) -> T {
        look(&self.inner.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A value for every channel of a run, computed when a channel first appears.
///
/// Stages use it to decide once per channel rather than once per event. Not for stages that intern
/// channels while computing values: their new channels would be processed in turn.
#[derive(Debug)]
pub struct PerChannel<T>(RwLock<Arc<Vec<T>>>);

impl<T> Default for PerChannel<T> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<T: Clone> PerChannel<T> {
    /// The table, extended to every channel that is in `channels` now.
    pub fn table(
        &self,
        channels: &Channels,
        mut value: impl FnMut(&Channel) -> Result<T, Error>,
    ) -> Result<Arc<Vec<T>>, Error> {
        let known = Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner));
        if known.len() >= channels.len() {
            return Ok(known);
        }
        let mut longer = Vec::clone(&known);
        for channel in channels.since(known.len()) {
            longer.push(value(&channel)?);
        }
        let longer = Arc::new(longer);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&longer);
        Ok(longer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn channel(name: &str) -> Channel {
        Channel::new(Name::from_text(name), "log", Encoding::Lcm)
    }

    #[test]
    fn a_channel_is_interned_once() {
        let channels = Channels::default();
        let pose = channels.intern(channel("POSE")).unwrap();
        assert_eq!(channels.intern(channel("POSE")).unwrap(), pose);
        assert_ne!(channels.intern(channel("GPS")).unwrap(), pose);
        assert_eq!(channels.get(pose).name.text(), "POSE");
    }

    #[test]
    fn more_channels_than_the_limit_are_refused() {
        let channels = Channels::with_limit(1);
        channels.intern(channel("A")).unwrap();
        assert!(
            channels.intern(channel("B")).unwrap_err().to_string().contains("more than 1 channel")
        );
        channels.intern(channel("A")).unwrap();
    }

    #[test]
    fn names_are_only_so_long_together() {
        let channels = Channels::default();
        let long = |n: usize| channels.intern(channel(&format!("{n}{}", "x".repeat(5 << 20))));
        assert!((0..3).all(|n| long(n).is_ok()));
        assert!(long(3).unwrap_err().to_string().contains("longer than 32 MiB"));
    }

    #[test]
    fn a_table_by_channel_grows_with_the_channels() {
        let (channels, lengths) = (Channels::default(), PerChannel::default());
        channels.intern(channel("A")).unwrap();
        let length = |c: &Channel| Ok(c.name.text().len());
        assert_eq!(*lengths.table(&channels, length).unwrap(), vec![1]);
        channels.intern(channel("BCD")).unwrap();
        assert_eq!(*lengths.table(&channels, length).unwrap(), vec![1, 3]);
    }
}
