//! What a channel is called in MCAP files, and the way back. Knows no file.
//!
//! What the format has no field for is in the metadata of the channel, under keys `sluice.…`.

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_model::{Channel, Clock, EmbeddedSchema, Encoding, Name};

use crate::wire::{ChannelRecord, SchemaRecord};

/// The metadata of a channel whose encoding is none of ours: the encoding.
const ENCODING: &str = "mcap.encoding";
/// Follows the key [`ENCODING`], or that with this, where the file has that key itself. Only
/// channels of such encodings need it.
const KEPT: &str = ".kept";
/// The source of a channel, unless it is [`USUAL_SOURCE`].
const SOURCE: &str = "sluice.source";
/// `relative` for times since the start of a recording.
const CLOCK: &str = "sluice.clock";
/// `escaped` for a topic with escapes for bytes that are not UTF-8.
const TOPIC: &str = "sluice.topic";
/// `none` for a channel with a schema of which only the declaration is known, not the name.
const TYPE: &str = "sluice.type_name";

/// What `sluice convert` calls any input: a source that is not worth writing.
const USUAL_SOURCE: &str = "log";
/// Marks a view, as [`Channel::VIEW`].
const IS_VIEW: &str = "1";
/// Marks a view in a run, if the file that it is read from lacks what it shows. In files, it is a
/// view as any other: its original may be added.
const IS_LONE_VIEW: &str = "alone";

const RELATIVE: &str = "relative";
const ESCAPED: &str = "escaped";
const NONE: &str = "none";

/// A schema record of its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StoredSchema {
    pub(crate) name: Arc<str>,
    pub(crate) schema: EmbeddedSchema,
}

impl StoredSchema {
    pub(crate) fn from_record(record: &SchemaRecord<'_>) -> Self {
        let schema = EmbeddedSchema { encoding: record.encoding.into(), data: record.data.into() };
        Self { name: record.name.into(), schema }
    }

    /// The bytes of its fields.
    pub(crate) fn bytes(&self) -> usize {
        self.name.len() + self.schema.encoding.len() + self.schema.data.len()
    }

    pub(crate) fn is_record(&self, record: &SchemaRecord<'_>) -> bool {
        *self.name == *record.name
            && *self.schema.encoding == *record.encoding
            && *self.schema.data == *record.data
    }

    /// The schema that is written for a channel, if one is.
    pub(crate) fn from_channel(channel: &Channel) -> Option<Self> {
        let name = channel.type_name.clone();
        if channel.schema.is_none() && name.is_none() {
            return None;
        }
        let empty = || EmbeddedSchema { encoding: "".into(), data: [].into() };
        let schema = channel.schema.clone().unwrap_or_else(empty);
        Some(Self { name: name.unwrap_or_else(|| "".into()), schema })
    }
}

/// A channel record of its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StoredChannel {
    /// 0 for none.
    pub(crate) schema: u16,
    pub(crate) topic: Vec<u8>,
    pub(crate) encoding: String,
    pub(crate) metadata: BTreeMap<String, String>,
}

impl StoredChannel {
    pub(crate) fn from_record(record: ChannelRecord<'_>) -> Self {
        let ChannelRecord { schema, topic, encoding, metadata, .. } = record;
        Self { schema, topic: topic.to_owned(), encoding: encoding.to_owned(), metadata }
    }

    /// The bytes of its fields.
    pub(crate) fn bytes(&self) -> usize {
        let metadata = self.metadata.iter().map(|(key, value)| key.len() + value.len());
        self.topic.len() + self.encoding.len() + metadata.sum::<usize>()
    }

    /// Whether it only shows what other channels hold, and which one, if it is one.
    pub(crate) fn shown_channel(&self) -> Option<Option<&str>> {
        let is_view = self.metadata.get(Channel::VIEW).is_some_and(|view| view == IS_VIEW);
        is_view.then(|| self.metadata.get(Channel::VIEW_OF).map(String::as_str))
    }

    /// The record that is written for a channel.
    pub(crate) fn from_channel(channel: &Channel, schema: u16) -> Self {
        let mut metadata = channel.metadata.clone();
        let mut set = |key: &str, value: &str| metadata.insert(key.to_owned(), value.to_owned());
        if *channel.source != *USUAL_SOURCE {
            set(SOURCE, &channel.source);
        }
        if channel.clock == Clock::Relative {
            set(CLOCK, RELATIVE);
        }
        if channel.schema.is_some() && channel.type_name.is_none() {
            set(TYPE, NONE);
        }
        if channel.metadata.get(Channel::VIEW).is_some_and(|view| view == IS_LONE_VIEW) {
            set(Channel::VIEW, IS_VIEW);
        }
        let topic = match std::str::from_utf8(channel.name.as_bytes()) {
            Ok(topic) => topic,
            Err(_) => {
                set(TOPIC, ESCAPED);
                channel.name.text()
            }
        };
        let mut encoding = channel.encoding.as_str().to_owned();
        if channel.encoding == Encoding::Unknown {
            encoding = metadata.remove(ENCODING).unwrap_or(encoding);
            rename_kept(&mut metadata, |key| key.strip_suffix(KEPT).unwrap_or(key).to_owned());
        }
        Self { schema, topic: topic.as_bytes().to_owned(), encoding, metadata }
    }

    /// The channel of a record with this schema.
    pub(crate) fn to_channel(&self, schema: Option<&StoredSchema>, source: &Arc<str>) -> Channel {
        let mut metadata = self.metadata.clone();
        let encoding = Encoding::from_word(&self.encoding);
        if encoding == Encoding::Unknown {
            rename_kept(&mut metadata, |key| format!("{key}{KEPT}"));
            if self.encoding != encoding.as_str() {
                metadata.insert(ENCODING.to_owned(), self.encoding.clone());
            }
        }
        let source = metadata.remove(SOURCE).map_or_else(|| Arc::clone(source), Into::into);
        let clock = match take_if(&mut metadata, CLOCK, RELATIVE) {
            true => Clock::Relative,
            false => Clock::Utc,
        };
        let is_escaped = take_if(&mut metadata, TOPIC, ESCAPED);
        let name = match std::str::from_utf8(&self.topic) {
            Ok(topic) if is_escaped => Name::from_text(topic),
            _ => Name::from_bytes(&self.topic),
        };
        let has_name = !take_if(&mut metadata, TYPE, NONE);
        let type_name = schema.filter(|_| has_name).map(|schema| Arc::clone(&schema.name));
        let is_declared = |schema: &&StoredSchema| {
            !schema.schema.encoding.is_empty() || !schema.schema.data.is_empty()
        };
        let schema = schema.filter(is_declared).map(|schema| schema.schema.clone());
        let mut channel = Channel::new(name, source, encoding);
        (channel.type_name, channel.schema) = (type_name, schema);
        (channel.clock, channel.metadata) = (clock, metadata);
        channel
    }
}

/// Marks a view whose original is not where it was read from: it shows what nothing else holds.
pub(crate) fn mark_lone_view(channel: &mut Channel) {
    channel.metadata.insert(Channel::VIEW.to_owned(), IS_LONE_VIEW.to_owned());
}

/// Renames the key [`ENCODING`], and those like it.
fn rename_kept(metadata: &mut BTreeMap<String, String>, name: impl Fn(&str) -> String) {
    let is_like_it = |key: &str| {
        key.strip_prefix(ENCODING).is_some_and(|rest| rest.split(KEPT).all(str::is_empty))
    };
    if metadata.keys().any(|key| is_like_it(key)) {
        let all = std::mem::take(metadata).into_iter();
        let rename = |key: String| if is_like_it(&key) { name(&key) } else { key };
        *metadata = all.map(|(key, value)| (rename(key), value)).collect();
    }
}

/// Removes a key that has this value.
fn take_if(metadata: &mut BTreeMap<String, String>, key: &str, value: &str) -> bool {
    let is_it = metadata.get(key).is_some_and(|found| found == value);
    if is_it {
        metadata.remove(key);
    }
    is_it
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encoding() -> impl Strategy<Value = Encoding> {
        use Encoding::{Cdr, Json, Lcm, Text, Unknown, Vel};
        proptest::sample::select(vec![Cdr, Json, Lcm, Text, Unknown, Vel])
    }

    proptest! {
        #[test]
        fn a_channel_comes_back(
            name in proptest::collection::vec(any::<u8>(), 0..8),
            source in "log|[a-z]{0,3}",
            encoding in encoding(),
            type_name in proptest::option::of("[a-z]{0,3}"),
            schema in proptest::option::of(("[a-z]{1,3}", proptest::collection::vec(any::<u8>(), 0..4))),
            is_relative: bool,
            metadata in proptest::collection::btree_map(
                r"[a-c]|mcap\.x|mcap\.encoding(\.kept){0,2}", "[ab]{0,3}", 0..4,
            ),
        ) {
            let source: Arc<str> = source.into();
            let mut channel = Channel::new(Name::from_bytes(&name), Arc::clone(&source), encoding);
            channel.type_name = type_name.map(Into::into);
            channel.schema = schema.map(|(encoding, data)| EmbeddedSchema {
                encoding: encoding.into(), data: data.into(),
            });
            channel.clock = if is_relative { Clock::Relative } else { Clock::Utc };
            channel.metadata = metadata;
            let stored = StoredChannel::from_channel(&channel, 1);
            let schema = StoredSchema::from_channel(&channel);
            let back = stored.to_channel(schema.as_ref(), &"log".into());
            prop_assert_eq!(back, channel);
        }
    }

    #[test]
    fn an_encoding_of_another_program_comes_back() {
        let stored = StoredChannel {
            schema: 0,
            topic: b"/tar".to_vec(),
            encoding: "data_tamer".to_owned(),
            metadata: BTreeMap::new(),
        };
        let channel = stored.to_channel(None, &"log".into());
        assert_eq!(channel.encoding, Encoding::Unknown);
        assert_eq!(channel.metadata["mcap.encoding"], "data_tamer");
        assert_eq!(StoredChannel::from_channel(&channel, 0), stored);
    }

    #[test]
    fn metadata_named_like_that_of_an_encoding_comes_back() {
        let keys = ["mcap.encoding", "mcap.encoding.kept", "mcap.encoding.kept.kept"];
        for encoding in ["data_tamer", "unknown", "cdr", ""] {
            for count in 1..=keys.len() {
                let all =
                    keys.iter().take(count).map(|key| ((*key).to_owned(), key.len().to_string()));
                let stored = StoredChannel {
                    schema: 0,
                    topic: b"/a".to_vec(),
                    encoding: encoding.to_owned(),
                    metadata: all.collect(),
                };
                let channel = stored.to_channel(None, &"log".into());
                assert_eq!(StoredChannel::from_channel(&channel, 0), stored, "{channel:?}");
            }
        }
    }
}
