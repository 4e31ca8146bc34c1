//! Batches as Arrow record batches and back. No payload is copied either way.
//!
//! | column | type | |
//! |---|---|---|
//! | `timestamp` | `Timestamp(ns, UTC)` | |
//! | `source` | `Dictionary(Int32, Utf8)` | |
//! | `channel` | `Dictionary(Int32, Utf8)` | the name in its lossless text form |
//! | `sequence` | `Int64` | |
//! | `encoding` | `Dictionary(Int32, Utf8)` | |
//! | `attributes` | `Dictionary(Int32, Utf8)`, nullable | type, schema, clock, metadata: JSON |
//! | `payload` | `BinaryView` | |

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampNanosecondType};
use arrow_array::{
    Array, ArrayRef, BinaryViewArray, DictionaryArray, Int32Array, Int64Array, RecordBatch,
    StringArray, TimestampNanosecondArray,
};
use arrow_buffer::{NullBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};
use serde::{Deserialize, Serialize};

use crate::{Batch, Channel, ChannelId, Channels, Clock, EmbeddedSchema, Encoding, Error, Name};

/// The properties of a channel that have no column of their own, as JSON.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Attributes {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    type_name: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    schema: Option<EmbeddedSchema>,
    #[serde(default)]
    clock: Clock,
    #[serde(default)]
    metadata: std::collections::BTreeMap<String, String>,
}

impl Batch {
    /// The columns of every batch's record batch.
    pub fn arrow_schema() -> SchemaRef {
        let words = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        let time = DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()));
        Arc::new(Schema::new(vec![
            Field::new("timestamp", time, false),
            Field::new("source", words.clone(), false),
            Field::new("channel", words.clone(), false),
            Field::new("sequence", DataType::Int64, false),
            Field::new("encoding", words.clone(), false),
            Field::new("attributes", words, true),
            Field::new("payload", DataType::BinaryView, false),
        ]))
    }

    /// The events as Arrow columns. Decoded rows are not in them.
    pub fn to_arrow(&self, channels: &Channels) -> Result<RecordBatch, Error> {
        let channels = self.used_channels(channels);
        let columns: Vec<ArrayRef> = vec![
            Arc::new(self.timestamp_column()),
            channels.column(|channel| Some(&*channel.source))?,
            channels.column(|channel| Some(channel.name.text()))?,
            Arc::new(self.sequence_column()),
            channels.column(|channel| Some(channel.encoding.as_str()))?,
            channels.column(Channel::attributes)?,
            Arc::new(self.payload_column()?),
        ];
        RecordBatch::try_new(Self::arrow_schema(), columns).map_err(column_mismatch)
    }

    /// The timestamps as a column. Copies nothing.
    pub fn timestamp_column(&self) -> TimestampNanosecondArray {
        TimestampNanosecondArray::new(self.timestamps.clone(), None).with_timezone("UTC")
    }

    /// The sequence numbers as a column. Copies nothing.
    pub fn sequence_column(&self) -> Int64Array {
        Int64Array::new(self.sequences.clone(), None)
    }

    /// The payloads as a column. Validates each, but copies none.
    pub fn payload_column(&self) -> Result<BinaryViewArray, Error> {
        self.payload_column_with(None)
    }

    /// The same, with null for events that have decoded rows only.
    pub fn nullable_payload_column(&self) -> Result<BinaryViewArray, Error> {
        let gone = self.decoded_only_mask();
        self.payload_column_with(gone.map(|gone| gone.into_iter().map(|gone| !gone).collect()))
    }

    fn payload_column_with(&self, nulls: Option<NullBuffer>) -> Result<BinaryViewArray, Error> {
        let column = BinaryViewArray::try_new(self.payloads.clone(), self.segments.clone(), nulls);
        column.map_err(column_mismatch)
    }

    /// Reads the events of a record batch. Other columns are ignored; `source`, `encoding` and
    /// `attributes` may be missing.
    ///
    /// `Err` names the column that is missing or has the wrong type.
    pub fn from_arrow(columns: &RecordBatch, channels: &Channels) -> Result<Self, Error> {
        let required = |name: &str| {
            columns
                .column_by_name(name)
                .ok_or_else(|| Error::invalid(format!("there is no column `{name}`")))
        };
        let wrong = |name: &str, want: &str, found: &ArrayRef| {
            let (found, nulls) = (found.data_type(), found.null_count());
            Error::invalid(format!(
                "column `{name}`: expected {want} without nulls, found {found} with {nulls} nulls"
            ))
        };
        let column = required("timestamp")?;
        let timestamps = column.as_primitive_opt::<TimestampNanosecondType>();
        let timestamps = timestamps
            .filter(|c| c.null_count() == 0)
            .ok_or_else(|| wrong("timestamp", "timestamps in ns", column))?;
        let column = required("sequence")?;
        let sequences = column.as_primitive_opt::<Int64Type>();
        let sequences = sequences
            .filter(|c| c.null_count() == 0)
            .ok_or_else(|| wrong("sequence", "int64", column))?;
        let column = required("payload")?;
        let payloads = column.as_binary_view_opt();
        let payloads = payloads
            .filter(|c| c.null_count() == 0)
            .ok_or_else(|| wrong("payload", "a binary view", column))?;
        Ok(Self {
            timestamps: timestamps.values().clone(),
            sequences: sequences.values().clone(),
            channels: channel_column(columns, channels)?,
            wide_times: None,
            origins: None,
            places: None,
            payloads: payloads.views().clone(),
            segments: payloads.data_buffers().to_vec().into(),
            rows: Vec::new(),
        })
    }

    /// Builds a batch from columns of equal length without nulls.
    ///
    /// # Panics
    ///
    /// If the columns differ in length.
    pub fn from_columns(
        timestamps: ScalarBuffer<i64>,
        sequences: ScalarBuffer<i64>,
        channels: Vec<u32>,
        payloads: &BinaryViewArray,
    ) -> Self {
        let len = timestamps.len();
        let same = sequences.len() == len && channels.len() == len && payloads.len() == len;
        assert!(same, "one value per event");
        Self {
            timestamps,
            sequences,
            channels: channels.into(),
            wide_times: None,
            origins: None,
            places: None,
            payloads: payloads.views().clone(),
            segments: payloads.data_buffers().to_vec().into(),
            rows: Vec::new(),
        }
    }

    /// The channels of the batch.
    pub fn used_channels(&self, channels: &Channels) -> UsedChannels {
        // A table, not a map: it is read once per event.
        const NEW: i32 = -1;
        let most = self.channels.iter().max().map_or(0, |id| *id as usize + 1);
        let (mut local, mut used) = (vec![NEW; most], Vec::new());
        let keys = self.channels.iter().map(|id| {
            let key = &mut local[*id as usize];
            if *key == NEW {
                used.push(channels.get(ChannelId(*id)));
                *key = (used.len() - 1) as i32;
            }
            *key
        });
        UsedChannels { keys: keys.collect(), channels: used }
    }
}

/// The channels of a batch, for columns of their texts.
#[derive(Clone, Debug)]
pub struct UsedChannels {
    /// For each event the index of its channel.
    keys: ScalarBuffer<i32>,
    /// In order of first appearance.
    channels: Vec<Arc<Channel>>,
}

impl UsedChannels {
    /// A text of each event's channel, such as its name, as a dictionary.
    pub fn column<'c, T: AsRef<str>>(
        &'c self,
        text: impl Fn(&'c Channel) -> Option<T>,
    ) -> Result<ArrayRef, Error> {
        let texts: StringArray = self.channels.iter().map(|channel| text(channel)).collect();
        let keys = Int32Array::new(self.keys.clone(), None);
        Ok(Arc::new(DictionaryArray::try_new(keys, Arc::new(texts)).map_err(column_mismatch)?))
    }
}

#[expect(clippy::needless_pass_by_value, reason = "used as a function value")]
fn column_mismatch(error: ArrowError) -> Error {
    Error::internal(format!("a batch does not fit its Arrow columns: {error}"))
}

impl Channel {
    /// The value of its `attributes` column; `None` if all attributes have their default.
    pub fn attributes(&self) -> Option<String> {
        let Self { type_name, schema, clock, metadata, .. } = self;
        if type_name.is_none() && schema.is_none() && *clock == Clock::Utc && metadata.is_empty() {
            return None;
        }
        let (type_name, schema) = (type_name.clone(), schema.clone());
        let attributes =
            Attributes { type_name, schema, clock: *clock, metadata: metadata.clone() };
        serde_json::to_string(&attributes).ok()
    }
}

/// Interns the channels that these columns describe, once per combination of values.
fn channel_column(columns: &RecordBatch, channels: &Channels) -> Result<ScalarBuffer<u32>, Error> {
    let words = ["channel", "source", "encoding", "attributes"]
        .map(|name| DictionaryColumn::find(columns, name));
    let [channel, source, encoding, attributes] = words;
    let (channel, source, encoding, attributes) = (channel?, source?, encoding?, attributes?);
    if channel.is_none() {
        return Err(Error::invalid("no column `channel`"));
    }
    let parts = [&channel, &source, &encoding, &attributes];
    let mut known: HashMap<[i32; 4], u32> = HashMap::new();
    let mut ids = Vec::with_capacity(columns.num_rows());
    for row in 0..columns.num_rows() {
        let keys = parts.map(|words| words.as_ref().map_or(-1, |words| words.key(row)));
        let id = match known.get(&keys) {
            Some(id) => *id,
            None => {
                let word = |n: usize| parts[n].as_ref().and_then(|words| words.word(keys[n]));
                let id = channels.intern(build_channel(word(0), word(1), word(2), word(3))?)?.0;
                known.insert(keys, id);
                id
            }
        };
        ids.push(id);
    }
    Ok(ids.into())
}

fn build_channel(
    name: Option<&str>,
    source: Option<&str>,
    encoding: Option<&str>,
    attributes: Option<&str>,
) -> Result<Channel, Error> {
    let name =
        name.ok_or_else(|| Error::invalid("column `channel`: expected a name, found null"))?;
    let encoding = encoding.map(Encoding::from_word).unwrap_or_default();
    let mut channel = Channel::new(Name::from_text(name), source.unwrap_or_default(), encoding);
    if let Some(json) = attributes {
        let wrong = |what: &dyn std::fmt::Display| {
            Error::invalid(format!("column `attributes` of channel `{name}`: {what}"))
        };
        // Serde takes a list for a struct.
        if json.trim_start().starts_with('[') {
            return Err(wrong(&"expected a JSON object, found a list"));
        }
        let read: Attributes = serde_json::from_str(json).map_err(|e| wrong(&e))?;
        channel = Channel {
            type_name: read.type_name,
            schema: read.schema,
            clock: read.clock,
            metadata: read.metadata,
            ..channel
        };
    }
    Ok(channel)
}

/// A dictionary column of strings.
struct DictionaryColumn<'c> {
    keys: &'c Int32Array,
    values: &'c StringArray,
}

impl<'c> DictionaryColumn<'c> {
    fn find(columns: &'c RecordBatch, name: &str) -> Result<Option<Self>, Error> {
        let Some(column) = columns.column_by_name(name) else { return Ok(None) };
        let words = column.as_dictionary_opt::<Int32Type>();
        let words =
            words.and_then(|words| Some((words.keys(), words.values().as_string_opt::<i32>()?)));
        let wrong = || {
            Error::invalid(format!(
                "column `{name}`: expected a dictionary of strings, found {}",
                column.data_type()
            ))
        };
        words.map(|(keys, values)| Some(Self { keys, values })).ok_or_else(wrong)
    }

    /// The dictionary key of a row; -1 for null.
    fn key(&self, row: usize) -> i32 {
        if self.keys.is_null(row) { -1 } else { self.keys.value(row) }
    }

    fn word(&self, key: i32) -> Option<&'c str> {
        let key = usize::try_from(key).ok()?;
        (key < self.values.len() && self.values.is_valid(key)).then(|| self.values.value(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BatchBuilder;

    #[test]
    fn a_batch_survives_arrow_with_all_its_channels_say() {
        let channels = Channels::default();
        let odd = Name::from_bytes(b"CAM\xff");
        let mut typed = Channel::new(odd, "left", Encoding::Vel);
        typed.type_name = Some("ImageM".into());
        let (encoding, data) = ("ros2msg".into(), (*b"int32 x\xff").into());
        typed.schema = Some(EmbeddedSchema { encoding, data });
        typed.clock = Clock::Relative;
        typed.metadata.insert("version".into(), "3".into());
        let plain = Channel::new(Name::from_text("POSE"), "log", Encoding::Lcm);
        let ids = [typed, plain].map(|channel| channels.intern(channel).unwrap());
        let mut builder = BatchBuilder::default();
        let long = b"a payload that is longer than a view";
        for n in 0..5i64 {
            let payload: &[u8] = if n % 2 == 0 { long } else { b"short" };
            builder.push_copy(n - 2, n * 7, ids[n as usize % 2], payload);
        }
        let batch = builder.finish().take(vec![4, 1, 2]);

        let columns = batch.to_arrow(&channels).unwrap();
        let elsewhere = Channels::default();
        let back = Batch::from_arrow(&columns, &elsewhere).unwrap();
        for (ours, theirs) in batch.iter().zip(back.iter()) {
            assert_eq!(
                (ours.timestamp, ours.sequence, ours.payload),
                (theirs.timestamp, theirs.sequence, theirs.payload)
            );
            assert_eq!(channels.get(ours.channel), elsewhere.get(theirs.channel));
        }
        let same_memory = batch.payload(0).as_ptr() == back.payload(0).as_ptr();
        assert!(same_memory && back.len() == 3);
    }

    #[test]
    fn a_missing_or_wrong_column_is_named() {
        let channels = Channels::default();
        let columns = Batch::default().to_arrow(&channels).unwrap();
        let without = columns.project(&[0, 1, 3, 6]).unwrap();
        assert!(
            Batch::from_arrow(&without, &channels).unwrap_err().to_string().contains("`channel`")
        );
    }

    #[test]
    fn attributes_are_an_object() {
        let read = |json| build_channel(Some("C"), None, None, Some(json));
        assert_eq!(read(r#"{"type_name": "a"}"#).unwrap().type_name.as_deref(), Some("a"));
        for (json, what) in [("[]", "found a list"), (r#" ["a"]"#, "found a list"), ("{a", "key")] {
            let message = read(json).unwrap_err().to_string();
            assert!(message.contains("`attributes` of channel `C`") && message.contains(what));
        }
    }
}
