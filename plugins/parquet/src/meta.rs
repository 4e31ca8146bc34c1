//! The key-value metadata in a table's footer, as sink and source both know it.

use std::collections::BTreeMap;
use std::sync::Arc;

use parquet::file::metadata::KeyValue;
use serde::{Deserialize, Serialize};
use sluice_core::{Channel, Clock, Encoding, Error, MessageType, Name, RunOrigin};

/// How what a footer says of its writer begins, if that was ours.
pub(crate) const CREATED_BY: &str = "sluice ";

const VERSION: &str = "sluice.version";
const PIPELINE: &str = "sluice.pipeline";
const NAME: &str = "sluice.pipeline_name";
const INPUTS: &str = "sluice.inputs";
const CHANNELS: &str = "sluice.channels";
const GROUPS: &str = "sluice.row_groups";
const ORDER: &str = "sluice.order";
const TYPE: &str = "sluice.type";

/// What a footer says of its table, beside what Parquet has a place for.
#[derive(Debug, Default)]
pub(crate) struct Meta {
    /// The channels of the table.
    pub(crate) channels: Vec<ChannelMeta>,
    /// What is said of row groups.
    pub(crate) groups: GroupsMeta,
    /// Whether the numbers of all events that were written together rise: sorting by them gives back
    /// the order in which the sink was given the events.
    pub(crate) by_sequence: bool,
    /// The type of the messages, where they were decoded.
    pub(crate) message: Option<Arc<MessageType>>,
}

/// For each row group, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GroupsMeta {
    /// The CRC-32 of its bytes in the file.
    #[serde(default)]
    pub(crate) crc32: Vec<u32>,
    /// Whether its rows are sorted by channel: sorting them by sequence gives back their order.
    #[serde(default)]
    pub(crate) by_channel: Vec<bool>,
    /// How many rows each channel has in it: places in the list of channels, and rows. In the order of
    /// the rows, where these are sorted by channel.
    #[serde(default)]
    pub(crate) rows: Vec<Vec<(u32, u32)>>,
}

/// A channel as a footer has it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct ChannelMeta {
    pub(crate) source: String,
    pub(crate) name: String,
    pub(crate) encoding: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) type_name: Option<String>,
    #[serde(default, skip_serializing_if = "is_utc")]
    pub(crate) relative: bool,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) metadata: BTreeMap<String, String>,
    /// Which of several channels of one name and source it is.
    #[serde(default, skip_serializing_if = "is_first")]
    pub(crate) variant: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_first(variant: &u32) -> bool {
    *variant == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_utc(relative: &bool) -> bool {
    !relative
}

impl ChannelMeta {
    pub(crate) fn of(channel: &Channel) -> Self {
        Self {
            source: channel.source.to_string(),
            name: channel.name.text().to_owned(),
            encoding: channel.encoding.as_str().to_owned(),
            type_name: channel.type_name.as_deref().map(str::to_owned),
            relative: channel.clock == Clock::Relative,
            metadata: channel.metadata.clone(),
            variant: 0,
        }
    }

    /// The channel of which nothing can be said but what all of these have in common.
    pub(crate) fn common(all: &[&Self]) -> Option<Self> {
        let (first, others) = all.split_first()?;
        let same = |is_it: &dyn Fn(&Self) -> bool| others.iter().all(|other| is_it(other));
        let mut common = Self::clone(first);
        if !same(&|other| other.encoding == first.encoding) {
            common.encoding = Encoding::Unknown.as_str().to_owned();
        }
        common.type_name =
            first.type_name.clone().filter(|_| same(&|o| o.type_name == first.type_name));
        common.metadata.retain(|key, value| same(&|other| other.metadata.get(key) == Some(value)));
        Some(common)
    }

    pub(crate) fn channel(&self) -> Channel {
        let encoding = Encoding::from_word(&self.encoding);
        let mut channel = Channel::new(Name::from_text(&self.name), self.source.as_str(), encoding);
        channel.type_name = self.type_name.as_deref().map(Arc::from);
        channel.clock = if self.relative { Clock::Relative } else { Clock::Utc };
        channel.metadata = self.metadata.clone();
        channel
    }
}

impl Meta {
    /// What is still true of it when another program has written the file anew and kept the entries: what
    /// is said of rows and their bytes no longer is.
    pub(crate) fn of_rewritten(self) -> Self {
        Self { groups: GroupsMeta::default(), by_sequence: false, ..self }
    }

    /// The footer's entries.
    pub(crate) fn to_entries(&self, origin: &RunOrigin) -> Result<Vec<KeyValue>, Error> {
        let mut entries = vec![
            entry(VERSION, env!("CARGO_PKG_VERSION")),
            entry(PIPELINE, &origin.pipeline),
            entry(INPUTS, &json(&origin.inputs)?),
            entry(CHANNELS, &json(&self.channels)?),
            entry(GROUPS, &json(&self.groups)?),
        ];
        entries.extend(origin.name.as_deref().map(|name| entry(NAME, name)));
        entries.extend(self.by_sequence.then(|| entry(ORDER, "sequence")));
        if let Some(message) = &self.message {
            entries.push(entry(TYPE, &json(message)?));
        }
        Ok(entries)
    }

    /// What a footer says; what it does not say, or says in a way that is not understood, is left out.
    pub(crate) fn of(entries: Option<&Vec<KeyValue>>) -> Self {
        let find =
            |key: &str| entries.into_iter().flatten().find(|e| e.key == key)?.value.as_deref();
        Self {
            channels: find(CHANNELS).and_then(|t| serde_json::from_str(t).ok()).unwrap_or_default(),
            groups: find(GROUPS).and_then(|t| serde_json::from_str(t).ok()).unwrap_or_default(),
            by_sequence: find(ORDER) == Some("sequence"),
            message: find(TYPE).and_then(|text| serde_json::from_str(text).ok()),
        }
    }
}

fn entry(key: &str, value: &str) -> KeyValue {
    KeyValue::new(key.to_owned(), value.to_owned())
}

fn json(value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|e| Error::internal(e.to_string()))
}
