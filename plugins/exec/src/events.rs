//! Converts events to the columns that programs get, and the columns of programs to events.

use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{
    Array, ArrayRef, DictionaryArray, Int32Array, Int64Array, RecordBatch, StringArray,
    TimestampNanosecondArray,
};
use arrow_buffer::{NullBuffer, ScalarBuffer};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};
use sluice_kit::json::JsonRows;
use sluice_model::{Batch, ChannelId, Channels, Error};

use crate::columns::EventColumns;
use crate::wire::END;

/// Which optional columns a program gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProgramColumns {
    /// Numbers that identify events when they return.
    pub(crate) numbers: bool,
    /// Decoded fields as JSON.
    pub(crate) fields: bool,
}

/// The maximum payload bytes per batch for a program, unless one event has more.
const BATCH_BYTES: usize = 1 << 20;
/// The maximum number of events per batch for a program.
const BATCH_EVENTS: usize = 16 << 10;

impl ProgramColumns {
    /// The columns that a program gets.
    ///
    /// All are nullable in the schema, so that a program can write back nulls with the same schema.
    pub(crate) fn schema(self) -> SchemaRef {
        let time = DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()));
        let number = self.numbers.then_some(("number", DataType::Int64));
        let fields = self.fields.then_some(("fields", DataType::Utf8));
        let events = [
            ("timestamp", time),
            ("channel", DataType::Utf8),
            ("payload", DataType::Binary),
            ("sequence", DataType::Int64),
            ("source", DataType::Utf8),
            ("encoding", DataType::Utf8),
            ("attributes", DataType::Utf8),
        ];
        let columns = number.into_iter().chain(events).chain(fields);
        Arc::new(Schema::new(
            columns.map(|(name, kind)| Field::new(name, kind, true)).collect::<Vec<_>>(),
        ))
    }

    /// The first bytes of a stream for a program: the schema.
    pub(crate) fn head(self) -> Result<Vec<u8>, Error> {
        let writer = StreamWriter::try_new(Vec::new(), &self.schema()).map_err(arrow_error)?;
        Ok(writer.get_ref().clone())
    }

    /// Events as messages of a stream for a program, in batches of moderate size. `first` is the
    /// number of the first event.
    pub(crate) fn messages(
        self,
        batch: &Batch,
        first: i64,
        channels: &Channels,
    ) -> Result<Vec<Vec<u8>>, Error> {
        let mut messages = Vec::new();
        let mut start = 0;
        while start < batch.len() {
            let len = self.part_len(batch, start);
            let part = batch.slice(start, len);
            messages.push(self.message(&part, first.saturating_add(start as i64), channels)?);
            start += len;
        }
        Ok(messages)
    }

    /// How many events from `start` on to put into one batch.
    fn part_len(self, batch: &Batch, start: usize) -> usize {
        let (mut bytes, mut end) = (0, start);
        while end < batch.len() && end - start < BATCH_EVENTS {
            bytes += batch.payload_len(end);
            if bytes > BATCH_BYTES && end > start {
                break;
            }
            end += 1;
        }
        end - start
    }

    fn message(self, batch: &Batch, first: i64, channels: &Channels) -> Result<Vec<u8>, Error> {
        if batch.payload_bytes() > i32::MAX as u64 {
            return Err(Error::invalid("an event of more than 2 GiB cannot be sent to a program"));
        }
        let columns = self.columns(batch, first, channels)?;
        let written = || -> Result<Vec<u8>, ArrowError> {
            let mut writer = StreamWriter::try_new(Vec::new(), &columns.schema())?;
            let head = writer.get_ref().len();
            writer.write(&columns)?;
            Ok(writer.get_mut().split_off(head))
        };
        written().map_err(arrow_error)
    }

    fn columns(self, batch: &Batch, first: i64, channels: &Channels) -> Result<RecordBatch, Error> {
        let events = batch.to_arrow(channels)?;
        let words = |name: &str| -> Result<ArrayRef, ArrowError> {
            let column =
                events.column_by_name(name).and_then(|c| c.as_dictionary_opt::<Int32Type>());
            let words = column.and_then(|column| column.downcast_dict::<StringArray>());
            let words = words.ok_or_else(|| ArrowError::SchemaError(name.to_owned()))?;
            Ok(Arc::new(words.into_iter().collect::<StringArray>()))
        };
        let fields = self.fields.then(|| fields(batch)).transpose()?;
        let build = || -> Result<RecordBatch, ArrowError> {
            let timestamps = ScalarBuffer::from(batch.timestamps().to_vec());
            let timestamps = TimestampNanosecondArray::new(timestamps, None).with_timezone("UTC");
            let sequences = Int64Array::new(batch.sequences().to_vec().into(), None);
            let numbers = (first..).take(batch.len());
            let numbers =
                self.numbers.then(|| Arc::new(Int64Array::from_iter_values(numbers)) as _);
            let events: [ArrayRef; 7] = [
                Arc::new(timestamps),
                words("channel")?,
                payloads(batch),
                Arc::new(sequences),
                words("source")?,
                words("encoding")?,
                words("attributes")?,
            ];
            RecordBatch::try_new(
                self.schema(),
                numbers.into_iter().chain(events).chain(fields).collect(),
            )
        };
        build().map_err(arrow_error)
    }
}

/// The stream that a stage's program gets for these events. For tests and fuzzing.
pub fn write_stream(batches: &[Batch], channels: &Channels) -> Result<Vec<u8>, Error> {
    let program_columns = ProgramColumns { numbers: true, fields: false };
    let (mut stream, mut first) = (program_columns.head()?, 0);
    for batch in batches {
        stream.extend(program_columns.messages(batch, first, channels)?.concat());
        first += batch.len() as i64;
    }
    stream.extend(END);
    Ok(stream)
}

fn arrow_error(error: ArrowError) -> Error {
    Error::internal(format!("a batch cannot be written as an Arrow stream: {error}"))
}

/// Refuses events without a payload, which would look empty.
pub(crate) fn refuse_without_payload(batch: &Batch, channels: &Channels) -> Result<(), Error> {
    let gone = batch.decoded_only_mask().unwrap_or_default();
    let Some(row) = gone.into_iter().position(|is_gone| is_gone) else { return Ok(()) };
    let event = batch.event(row);
    let channel = channels.get(event.channel);
    Err(Error::invalid(format!(
        "event {} on channel `{}` has decoded fields only, and no payload: put the stage `encode` \
         before the program, or set `fields = true` if it needs no payloads",
        event.sequence,
        channel.name.text()
    )))
}

/// The payloads; null for events without one.
fn payloads(batch: &Batch) -> ArrayRef {
    let gone = batch.decoded_only_mask();
    let mut payloads = BinaryBuilder::with_capacity(batch.len(), batch.payload_bytes() as usize);
    for row in 0..batch.len() {
        match &gone {
            Some(gone) if gone[row] => payloads.append_null(),
            _ => payloads.append_value(batch.payload(row)),
        }
    }
    Arc::new(payloads.finish())
}

/// The decoded fields of each event as JSON; null for events that are not decoded.
fn fields(batch: &Batch) -> Result<ArrayRef, Error> {
    let mut texts: Vec<Option<Vec<u8>>> = vec![None; batch.len()];
    for rows in batch.rows() {
        let fields = JsonRows::new(&rows.columns)?;
        for (row, event) in rows.events.iter().enumerate() {
            let Some(text @ None) = texts.get_mut(*event as usize) else { continue };
            fields.write(row, text.insert(Vec::new()));
        }
    }
    let mut column = StringBuilder::new();
    for text in &texts {
        column.append_option(text.as_deref().map(String::from_utf8_lossy));
    }
    Ok(Arc::new(column.finish()))
}

/// What a channel gets if a program leaves it null.
#[derive(Debug)]
struct ChannelDefaults {
    source: Arc<str>,
    encoding: Option<&'static str>,
    attributes: Option<String>,
}

/// What events get if a program leaves it null.
#[derive(Debug)]
pub(crate) struct Defaults {
    /// First the defaults of new events, then those of the channels that events were sent on.
    words: Vec<ChannelDefaults>,
    /// The index of the defaults of each event; new events have none.
    rows: Vec<usize>,
}

impl Defaults {
    /// The defaults of new events, from the node of this name.
    pub(crate) fn new(node: &str, event_columns: &EventColumns) -> Self {
        let encoding = event_columns.is_text.then_some("text");
        let new = ChannelDefaults { source: node.into(), encoding, attributes: None };
        Self { words: vec![new], rows: Vec::new() }
    }

    /// Adds the defaults of events that were sent: the channels they were sent on.
    pub(crate) fn sent(
        mut self,
        sent: impl Iterator<Item = Option<ChannelId>>,
        channels: &Channels,
    ) -> Self {
        // A table, not a map, because this is looked up per event. Index 0 is that of new events.
        let mut places: Vec<usize> = Vec::new();
        for channel in sent {
            let Some(id) = channel else {
                self.rows.push(0);
                continue;
            };
            if places.len() <= id.index() {
                places.resize(id.index() + 1, 0);
            }
            if places[id.index()] == 0 {
                places[id.index()] = self.words.len();
                let channel = channels.get(id);
                self.words.push(ChannelDefaults {
                    source: Arc::clone(&channel.source),
                    encoding: Some(channel.encoding.as_str()),
                    attributes: channel.attributes(),
                });
            }
            self.rows.push(places[id.index()]);
        }
        self
    }

    /// The column, with nulls replaced by what `word` returns.
    fn fill(
        &self,
        column: Option<&ArrayRef>,
        len: usize,
        word: impl Fn(&ChannelDefaults) -> Option<&str>,
    ) -> Result<ArrayRef, ArrowError> {
        let nulls = column.map(|column| column.logical_nulls());
        let is_full = |nulls: &Option<NullBuffer>| nulls.iter().all(|n| n.null_count() == 0);
        if let Some(column) = column.filter(|_| nulls.as_ref().is_some_and(is_full)) {
            return Ok(Arc::clone(column));
        }
        let said = column.and_then(|column| column.as_dictionary_opt::<Int32Type>());
        let values = said.and_then(|said| said.values().as_string_opt::<i32>());
        let first = values.map_or(0, StringArray::len);
        let is_said = |row| match &nulls {
            Some(Some(nulls)) => nulls.is_valid(row),
            Some(None) => true,
            None => false,
        };
        let key = |row: usize| -> Option<i32> {
            if let Some(said) = said.filter(|_| is_said(row)) {
                return Some(said.keys().value(row));
            }
            let place = self.rows.get(row).copied().unwrap_or(0);
            word(self.words.get(place)?)?;
            i32::try_from(first + place).ok()
        };
        let keys: Int32Array = (0..len).map(key).collect();
        let words = values.into_iter().flatten().chain(self.words.iter().map(&word));
        let words: StringArray = words.collect();
        Ok(Arc::new(DictionaryArray::try_new(keys, Arc::new(words))?))
    }
}

/// The events of a batch from a program. Events without a sequence number are numbered from
/// `first`.
pub(crate) fn to_batch(
    event_columns: &EventColumns,
    first: i64,
    defaults: &Defaults,
    channels: &Channels,
) -> Result<Batch, Error> {
    let len = event_columns.len();
    let sequences = || (first..).take(len).collect::<Vec<i64>>().into();
    let sequences = event_columns.sequences.clone().unwrap_or_else(sequences);
    let timestamps = TimestampNanosecondArray::new(event_columns.timestamps.clone(), None);
    let build = || -> Result<RecordBatch, ArrowError> {
        let source =
            defaults.fill(event_columns.source.as_ref(), len, |channel| Some(&channel.source))?;
        let encoding =
            defaults.fill(event_columns.encoding.as_ref(), len, |channel| channel.encoding)?;
        let attributes = defaults.fill(event_columns.attributes.as_ref(), len, |channel| {
            channel.attributes.as_deref()
        })?;
        RecordBatch::try_from_iter([
            ("timestamp", Arc::new(timestamps) as ArrayRef),
            ("sequence", Arc::new(Int64Array::new(sequences, None))),
            ("channel", Arc::clone(&event_columns.channel)),
            ("source", source),
            ("encoding", encoding),
            ("attributes", attributes),
            ("payload", Arc::new(event_columns.payloads.clone())),
        ])
    };
    let columns = build().map_err(|e| Error::invalid(format!("its columns do not fit: {e}")))?;
    Batch::from_arrow(&columns, channels)
}

/// The same events, with the channels they were read on.
pub(crate) fn with_origins(
    batch: &Batch,
    event_columns: &EventColumns,
    origins: Vec<u32>,
) -> Batch {
    if origins == batch.channels() {
        return batch.clone();
    }
    let sequences = ScalarBuffer::from(batch.sequences().to_vec());
    let read = Batch::from_columns(
        event_columns.timestamps.clone(),
        sequences,
        origins,
        &event_columns.payloads,
    );
    read.with_channels(batch.channels().to_vec())
}
