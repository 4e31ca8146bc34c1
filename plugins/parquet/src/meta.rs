//! The key-value metadata in a table's footer, which sink and source share.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use parquet::file::metadata::KeyValue;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sluice_model::{
    Channel, ChannelId, Channels, Clock, EmbeddedSchema, Encoding, Error, MessageType, Name,
    RunOrigin,
};

use crate::fixed_lists::ListLengths;

/// The start of `created_by` in tables that we wrote.
pub(crate) const CREATED_BY: &str = "sluice ";

const VERSION: &str = "sluice.version";
const PIPELINE: &str = "sluice.pipeline";
const NAME: &str = "sluice.pipeline_name";
const INPUTS: &str = "sluice.inputs";
const CHANNELS: &str = "sluice.channels";
const GROUPS: &str = "sluice.row_groups";
const ORDER: &str = "sluice.order";
const TYPE: &str = "sluice.type";
const FIELDS: &str = "sluice.fields";
const LISTS: &str = "sluice.lists";

/// The metadata of a table beyond Parquet's own.
#[derive(Debug, Default)]
pub(crate) struct FooterMeta {
    /// The channels of the table.
    pub(crate) channels: Vec<ChannelMeta>,
    /// The metadata of row groups.
    pub(crate) groups: GroupsMeta,
    /// Whether the sequence numbers of all events written together rise: sorting by them restores
    /// the order in which the sink received the events.
    pub(crate) by_sequence: bool,
    /// The type of the messages, if they were decoded.
    pub(crate) message: Option<Arc<MessageType>>,
    /// The metadata of the messages' fields that have some, by column: units, the names of enums,
    /// and which column holds raw payloads.
    pub(crate) fields: BTreeMap<String, BTreeMap<String, String>>,
    /// The lengths of lists, by column, in those that have lists of fixed length.
    pub(crate) lists: BTreeMap<String, ListLengths>,
}

/// What is wrong with an entry of the footer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EntryFault {
    key: &'static str,
    reason: String,
}

impl EntryFault {
    /// Whether it is of an entry that [`FooterMeta::for_rewritten_file`] keeps.
    pub(crate) fn stays_in_rewritten_file(&self) -> bool {
        self.key != GROUPS && self.key != LISTS
    }
}

impl fmt::Display for EntryFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, reason } = self;
        write!(f, "the footer's record `{key}` cannot be read: {reason}")?;
        if *key == GROUPS {
            f.write_str(
                "; rows come as they are stored, which may be by channel: sort them by `sequence` \
                 for the order of the events",
            )?;
        }
        Ok(())
    }
}

/// The metadata of row groups, one element each, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GroupsMeta {
    /// The CRC-32 of its bytes in the file.
    #[serde(default)]
    pub(crate) crc32: Vec<u32>,
    /// Whether its rows are sorted by channel: sorting them by sequence number restores their
    /// order.
    #[serde(default)]
    pub(crate) by_channel: Vec<bool>,
    /// The rows per channel as pairs of index in the list of channels and row count; in the order
    /// of rows if these are sorted by channel.
    #[serde(default)]
    pub(crate) rows: Vec<Vec<(u32, u32)>>,
}

/// Channels in the order in which a file has them: by source and name, then by what distinguishes
/// channels of the same name.
pub(crate) fn in_file_order(
    used: impl Iterator<Item = ChannelId>,
    channels: &Channels,
) -> Vec<(ChannelId, Arc<Channel>)> {
    let mut used: Vec<_> = used.map(|id| (id, channels.get(id))).collect();
    used.sort_unstable_by(|(_, a), (_, b)| {
        let names = (&a.source, a.name.text()).cmp(&(&b.source, b.name.text()));
        names.then_with(|| ChannelMeta::from_channel(a).cmp(&ChannelMeta::from_channel(b)))
    });
    used
}

/// A channel in the footer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct ChannelMeta {
    pub(crate) source: String,
    pub(crate) name: String,
    pub(crate) encoding: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) type_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) schema: Option<EmbeddedSchema>,
    #[serde(default, skip_serializing_if = "is_utc")]
    pub(crate) relative: bool,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) metadata: BTreeMap<String, String>,
    /// The variant among channels of one name and source.
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
    pub(crate) fn from_channel(channel: &Channel) -> Self {
        Self {
            source: channel.source.to_string(),
            name: channel.name.text().to_owned(),
            encoding: channel.encoding.as_str().to_owned(),
            type_name: channel.type_name.as_deref().map(str::to_owned),
            schema: channel.schema.clone(),
            relative: channel.clock == Clock::Relative,
            metadata: channel.metadata.clone(),
            variant: 0,
        }
    }

    /// The channel with only what all of these have in common.
    pub(crate) fn common(all: &[&Self]) -> Option<Self> {
        let (first, others) = all.split_first()?;
        let same = |is_it: &dyn Fn(&Self) -> bool| others.iter().all(|other| is_it(other));
        let mut common = Self::clone(first);
        if !same(&|other| other.encoding == first.encoding) {
            common.encoding = Encoding::Unknown.as_str().to_owned();
        }
        common.type_name =
            first.type_name.clone().filter(|_| same(&|o| o.type_name == first.type_name));
        common.schema = first.schema.clone().filter(|_| same(&|o| o.schema == first.schema));
        common.metadata.retain(|key, value| same(&|other| other.metadata.get(key) == Some(value)));
        Some(common)
    }

    pub(crate) fn to_channel(&self) -> Channel {
        let encoding = Encoding::from_word(&self.encoding);
        let mut channel = Channel::new(Name::from_text(&self.name), self.source.as_str(), encoding);
        channel.type_name = self.type_name.as_deref().map(Arc::from);
        channel.schema = self.schema.clone();
        channel.clock = if self.relative { Clock::Relative } else { Clock::Utc };
        channel.metadata = self.metadata.clone();
        channel
    }
}

impl FooterMeta {
    /// The entries that stay valid when another program rewrites the file and copies them: those
    /// about rows, bytes and lengths do not.
    pub(crate) fn for_rewritten_file(self) -> Self {
        let (groups, lists) = (GroupsMeta::default(), BTreeMap::new());
        Self { groups, by_sequence: false, lists, ..self }
    }

    /// The footer's entries.
    pub(crate) fn to_entries(&self, origin: &RunOrigin) -> Result<Vec<KeyValue>, Error> {
        // Says what cannot be read, which JSON would not.
        origin.inputs.iter().try_for_each(|input| input.blake3().map(drop))?;
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
        if !self.fields.is_empty() {
            entries.push(entry(FIELDS, &json(&self.fields)?));
        }
        if !self.lists.is_empty() {
            entries.push(entry(LISTS, &json(&self.lists)?));
        }
        Ok(entries)
    }

    /// Parses the footer's entries, and returns those that are malformed, too. They are left out,
    /// as missing ones are.
    pub(crate) fn from_entries(entries: Option<&Vec<KeyValue>>) -> (Self, Vec<EntryFault>) {
        let entries = entries.map_or(&[][..], Vec::as_slice);
        let mut faults = Vec::new();
        let meta = Self {
            channels: parsed(entries, CHANNELS, &mut faults).unwrap_or_default(),
            groups: parsed(entries, GROUPS, &mut faults).unwrap_or_default(),
            by_sequence: find(entries, ORDER).and_then(|e| e.value.as_deref()) == Some("sequence"),
            message: parsed(entries, TYPE, &mut faults),
            fields: parsed(entries, FIELDS, &mut faults).unwrap_or_default(),
            lists: parsed(entries, LISTS, &mut faults).unwrap_or_default(),
        };
        (meta, faults)
    }
}

/// What the footer says of the run that wrote a table. Tables of one run have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TableOrigin<'e> {
    pipeline: Option<&'e str>,
    inputs: Option<&'e str>,
}

impl<'e> TableOrigin<'e> {
    pub(crate) fn from_entries(entries: Option<&'e Vec<KeyValue>>) -> Self {
        let entries = entries.map_or(&[][..], Vec::as_slice);
        let value = |key| find(entries, key).and_then(|entry| entry.value.as_deref());
        Self { pipeline: value(PIPELINE), inputs: value(INPUTS) }
    }
}

fn find<'e>(entries: &'e [KeyValue], key: &str) -> Option<&'e KeyValue> {
    entries.iter().find(|entry| entry.key == key)
}

/// The JSON of an entry, if it is there and can be read.
fn parsed<T: DeserializeOwned>(
    entries: &[KeyValue],
    key: &'static str,
    faults: &mut Vec<EntryFault>,
) -> Option<T> {
    let text = find(entries, key)?.value.as_deref().unwrap_or_default();
    let value = serde_json::from_str(text).map_err(|e| e.to_string());
    value.map_err(|reason| faults.push(EntryFault { key, reason })).ok()
}

fn entry(key: &str, value: &str) -> KeyValue {
    KeyValue::new(key.to_owned(), value.to_owned())
}

fn json(value: &impl Serialize) -> Result<String, Error> {
    serde_json::to_string(value).map_err(|e| Error::internal(e.to_string()))
}
