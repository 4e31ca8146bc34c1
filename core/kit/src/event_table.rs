//! Logs as tables: the columns of all events, or of the decoded events of one channel, and batches
//! as these columns. Reads nothing, and knows no query language.
//!
//! | column | type | |
//! |---|---|---|
//! | `timestamp` | `Timestamp(ns, UTC)` | |
//! | `source` | `Utf8View` | |
//! | `channel` | `Utf8View` | the text form of its name; not in the table of one channel |
//! | `sequence` | `Int64` | |
//! | `payload` | `BinaryView`, nullable | unless the events are decoded; null if there is none |
//!
//! The table of a decoded channel has the fields of its messages, named as in written tables
//! (`timestamp_` for a field `timestamp`). Its type is that of the channel's first event that can
//! be decoded; events of other types are left out and counted. Types that differ only in whether
//! they know the lengths of lists count as the same.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, StringViewArray, UInt32Array};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow_select::interleave::interleave;
use arrow_select::take::take;
use sluice_io::escape::column_of_field;
use sluice_model::cast::rows_with_list_lengths;
use sluice_model::{Batch, Channels, Error, MessageType, Rows, raw};

/// The time of the event.
pub const TIMESTAMP: &str = "timestamp";
/// Nanoseconds, in written tables whose times are finer than microseconds.
pub const TIMESTAMP_NS: &str = "timestamp_ns";
/// The source of the event.
pub const SOURCE: &str = "source";
/// The channel; not in the table of one channel.
pub const CHANNEL: &str = "channel";
/// The variant among channels of one name and source, in written tables of all channels.
pub const VARIANT: &str = "channel_variant";
/// The sequence number of the event.
pub const SEQUENCE: &str = "sequence";
/// The payload's bytes.
pub const PAYLOAD: &str = "payload";

/// The names of our own columns, here and in written tables, which no field may have.
pub const RESERVED: [&str; 7] =
    [TIMESTAMP, TIMESTAMP_NS, SOURCE, CHANNEL, VARIANT, SEQUENCE, PAYLOAD];

/// The kind of a table.
#[derive(Clone, Debug)]
pub enum TableKind {
    /// All events.
    Events,
    /// The events of a channel, with their payloads.
    Payloads(Arc<str>),
    /// The decoded events of a channel, with the fields of one type.
    Fields(Arc<str>, Arc<RowType>),
}

/// The type of decoded rows.
#[derive(Debug)]
pub struct RowType {
    /// The type of the messages.
    pub message: Arc<MessageType>,
    /// The columns of their fields.
    pub columns: SchemaRef,
}

/// The type of a channel.
#[derive(Clone, Debug, Default)]
pub enum ChannelSchema {
    /// The log has no such channel.
    #[default]
    Missing,
    /// None of its events can be decoded.
    Payloads,
    /// The type of its first event that can be decoded.
    Fields(Arc<RowType>),
}

impl ChannelSchema {
    /// The table of this channel; `None` if the log has no such channel.
    pub fn kind(&self, channel: &str) -> Option<TableKind> {
        match self {
            Self::Missing => None,
            Self::Payloads => Some(TableKind::Payloads(channel.into())),
            Self::Fields(rows) => Some(TableKind::Fields(channel.into(), Arc::clone(rows))),
        }
    }
}

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogColumn {
    /// The time of the event.
    Timestamp,
    /// Its source.
    Source,
    /// Its channel.
    Channel,
    /// Its sequence number.
    Sequence,
    /// Its payload.
    Payload,
    /// A field of the message, by index.
    Field(usize),
}

impl RowType {
    /// The type of these rows.
    pub fn from_rows(rows: &Rows) -> Self {
        Self { message: Arc::clone(&rows.message), columns: rows.columns.schema() }
    }

    /// Whether rows have this type and these columns.
    pub fn is_of(&self, rows: &Rows) -> bool {
        let same = Arc::ptr_eq(&self.message, &rows.message) || self.message == rows.message;
        let columns = rows.columns.schema_ref();
        same && (Arc::ptr_eq(&self.columns, columns) || self.columns.fields() == columns.fields())
    }

    /// The columns of rows of this type, also if theirs do not know the lengths of lists that this
    /// one knows, or the other way round. `None` for those of another type.
    fn columns_of(&self, rows: &Rows) -> Option<RecordBatch> {
        if self.is_of(rows) {
            return Some(rows.columns.clone());
        }
        let is_same = self.message == rows.message;
        is_same.then(|| rows_with_list_lengths(&rows.columns, &self.columns)).flatten()
    }
}

impl TableKind {
    /// The columns, in order.
    pub fn columns(&self) -> Vec<LogColumn> {
        match self {
            Self::Events => {
                vec![
                    LogColumn::Timestamp,
                    LogColumn::Source,
                    LogColumn::Channel,
                    LogColumn::Sequence,
                    LogColumn::Payload,
                ]
            }
            Self::Payloads(_) => {
                vec![
                    LogColumn::Timestamp,
                    LogColumn::Source,
                    LogColumn::Sequence,
                    LogColumn::Payload,
                ]
            }
            Self::Fields(_, rows) => {
                let own = [LogColumn::Timestamp, LogColumn::Source, LogColumn::Sequence];
                own.into_iter()
                    .chain((0..rows.columns.fields().len()).map(LogColumn::Field))
                    .collect()
            }
        }
    }

    /// The only channel of the table.
    pub fn channel(&self) -> Option<&Arc<str>> {
        match self {
            Self::Events => None,
            Self::Payloads(channel) | Self::Fields(channel, _) => Some(channel),
        }
    }

    /// The schema of all columns.
    pub fn schema(&self) -> SchemaRef {
        self.schema_of(&self.columns())
    }

    /// The schema of these columns.
    pub fn schema_of(&self, columns: &[LogColumn]) -> SchemaRef {
        Arc::new(Schema::new(columns.iter().map(|column| self.field(*column)).collect::<Vec<_>>()))
    }

    fn field(&self, column: LogColumn) -> Field {
        let time = || DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()));
        match (column, self) {
            (LogColumn::Timestamp, _) => Field::new(TIMESTAMP, time(), false),
            (LogColumn::Source, _) => Field::new(SOURCE, DataType::Utf8View, false),
            (LogColumn::Channel, _) => Field::new(CHANNEL, DataType::Utf8View, false),
            (LogColumn::Sequence, _) => Field::new(SEQUENCE, DataType::Int64, false),
            (LogColumn::Field(at), Self::Fields(_, rows)) => {
                let field = rows.columns.field(at);
                field.clone().with_name(column_of_field(field.name(), &RESERVED))
            }
            (LogColumn::Payload | LogColumn::Field(_), _) => {
                Field::new(PAYLOAD, DataType::BinaryView, true)
            }
        }
    }
}

/// The names and sources of channels, by channel id.
#[derive(Debug)]
pub struct ChannelLabels {
    names: StringViewArray,
    sources: StringViewArray,
}

impl ChannelLabels {
    /// The labels of all channels so far.
    pub fn from_channels(channels: &Channels) -> Self {
        let all = channels.all();
        Self {
            names: all.iter().map(|channel| Some(channel.name.text())).collect(),
            sources: all.iter().map(|channel| Some(&*channel.source)).collect(),
        }
    }

    /// The number of channels.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

/// A batch as these columns. `fields` are the decoded rows, one per event; `labels` must cover all
/// channels of the batch.
pub fn record_batch(
    columns: &[LogColumn],
    schema: &SchemaRef,
    batch: &Batch,
    fields: Option<&RecordBatch>,
    labels: &ChannelLabels,
) -> Result<RecordBatch, Error> {
    let build = |column: &LogColumn| -> Result<ArrayRef, Error> {
        Ok(match column {
            LogColumn::Timestamp => Arc::new(batch.timestamp_column()),
            LogColumn::Sequence => Arc::new(batch.sequence_column()),
            LogColumn::Source => take_labels(&labels.sources, batch)?,
            LogColumn::Channel => take_labels(&labels.names, batch)?,
            LogColumn::Payload => Arc::new(batch.nullable_payload_column()?),
            LogColumn::Field(at) => {
                let column = fields.and_then(|fields| fields.columns().get(*at));
                Arc::clone(
                    column.ok_or_else(|| Error::internal("rows without one of their columns"))?,
                )
            }
        })
    };
    let arrays = columns.iter().map(build).collect::<Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(batch.len()));
    RecordBatch::try_new_with_options(Arc::clone(schema), arrays, &options).map_err(column_mismatch)
}

fn take_labels(labels: &StringViewArray, batch: &Batch) -> Result<ArrayRef, Error> {
    let ids = UInt32Array::from_iter_values(batch.channels().iter().copied());
    take(labels, &ids, None).map_err(column_mismatch)
}

/// The error that columns do not fit, which only a mistake in the program causes.
pub fn column_mismatch(error: ArrowError) -> Error {
    Error::internal(format!("a batch does not fit its columns: {error}"))
}

/// The events of a batch that have rows of one type, and these rows.
#[derive(Debug)]
pub struct SelectedRows {
    /// The events.
    pub batch: Batch,
    /// Their rows, one per event.
    pub fields: RecordBatch,
    /// The events that have rows of another type, by position in the whole batch, ascending.
    pub other_type: Vec<u32>,
    /// The events without rows, by position in the whole batch, ascending.
    pub undecoded: Vec<u32>,
}

impl SelectedRows {
    /// Selects the events that have rows of this type.
    pub fn new(batch: Batch, kind: &RowType) -> Result<Self, Error> {
        let batch = raw::drop_raw_columns(batch);
        let columns = |rows| Some((rows, kind.columns_of(rows)?));
        let matching: Vec<(&Rows, RecordBatch)> = batch.rows().iter().filter_map(columns).collect();
        // Nearly every batch of one channel: rows of all events.
        if let [(one, fields)] = matching.as_slice()
            && one.events.len() == batch.len()
        {
            let fields = fields.clone();
            return Ok(Self { batch, fields, other_type: Vec::new(), undecoded: Vec::new() });
        }
        let mut places: Vec<(u32, usize, usize)> = Vec::new();
        for (at, (rows, _)) in matching.iter().enumerate() {
            places.extend(rows.events.iter().enumerate().map(|(row, event)| (*event, at, row)));
        }
        places.sort_unstable();
        let fields = match matching.as_slice() {
            [] => RecordBatch::new_empty(Arc::clone(&kind.columns)),
            [(_, fields)] => fields.clone(),
            several => interleave_rows(several, &places, &kind.columns)?,
        };
        let events: Vec<u32> = places.into_iter().map(|(event, ..)| event).collect();
        if events.len() == batch.len() {
            return Ok(Self { batch, fields, other_type: Vec::new(), undecoded: Vec::new() });
        }
        let (other_type, undecoded) = left_out(&batch, &events);
        Ok(Self { batch: batch.take(events), fields, other_type, undecoded })
    }
}

/// The events beside those selected: those that have rows, and those that have none.
fn left_out(batch: &Batch, selected: &[u32]) -> (Vec<u32>, Vec<u32>) {
    let decoded = batch.decoded_mask();
    let events = (0..batch.len() as u32).filter(|event| selected.binary_search(event).is_err());
    events.partition(|event| decoded[*event as usize])
}

/// Interleaves rows of one type, in the order of their events.
fn interleave_rows(
    all: &[(&Rows, RecordBatch)],
    places: &[(u32, usize, usize)],
    schema: &SchemaRef,
) -> Result<RecordBatch, Error> {
    let picks: Vec<(usize, usize)> = places.iter().map(|(_, at, row)| (*at, *row)).collect();
    let column = |place: usize| {
        let parts: Vec<&dyn Array> =
            all.iter().map(|(_, columns)| columns.column(place).as_ref()).collect();
        interleave(&parts, &picks).map_err(column_mismatch)
    };
    let columns = (0..schema.fields().len()).map(column).collect::<Result<_, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(picks.len()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
        .map_err(column_mismatch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use arrow_array::{FixedSizeListArray, Int64Array, ListArray};
    use arrow_buffer::OffsetBuffer;
    use sluice_model::{BatchBuilder, ChannelId, Payloads, TypeKey};

    /// Pairs of numbers from `first` on, for these events.
    fn pairs(events: Vec<u32>, first: i64, is_fixed: bool, key: u64) -> Rows {
        let count = events.len();
        let numbers = Int64Array::from_iter_values(first..first + 2 * count as i64);
        let item = Arc::new(Field::new("item", DataType::Int64, false));
        let pairs: ArrayRef = match is_fixed {
            true => Arc::new(FixedSizeListArray::new(item, 2, Arc::new(numbers), None)),
            false => {
                let offsets = OffsetBuffer::from_lengths(vec![2; count]);
                Arc::new(ListArray::new(item, offsets, Arc::new(numbers), None))
            }
        };
        let columns = RecordBatch::try_from_iter_with_nullable([("pair", pairs, false)]).unwrap();
        let message = MessageType::named("t", TypeKey(key)).into();
        Rows { message, payloads: Payloads::Kept, events, columns }
    }

    #[test]
    fn types_that_differ_in_whether_lengths_of_lists_are_known_are_the_same() {
        let mut builder = BatchBuilder::default();
        (0..6).for_each(|n| builder.push_copy(n, n, ChannelId(0), b""));
        let rows = vec![
            pairs(vec![1, 3], 10, true, 1),
            pairs(vec![0, 2], 20, false, 1),
            pairs(vec![4], 30, false, 2),
        ];
        let batch = builder.finish().with_rows(rows);
        for first in &batch.rows()[..2] {
            let kind = RowType::from_rows(first);
            let selected = SelectedRows::new(batch.clone(), &kind).unwrap();
            assert_eq!((selected.other_type, selected.undecoded), (vec![4], vec![5]));
            assert_eq!(selected.fields.schema(), kind.columns);
            let pairs = selected.fields.column(0);
            let pairs: Vec<i64> = (0..4)
                .flat_map(|row| {
                    match pairs.as_fixed_size_list_opt() {
                        Some(lists) => lists.value(row),
                        None => pairs.as_list::<i32>().value(row),
                    }
                    .as_primitive::<Int64Type>()
                    .values()
                    .to_vec()
                })
                .collect();
            assert_eq!(pairs, [20, 21, 10, 11, 22, 23, 12, 13]);
        }
    }
}
