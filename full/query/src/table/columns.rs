//! The columns of a log's tables, and batches as these columns.

use std::sync::Arc;

use arrow_array::{
    ArrayRef, BinaryViewArray, RecordBatch, RecordBatchOptions, StringViewArray, UInt32Array,
};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow_select::take::take;
use datafusion::arrow::buffer::NullBuffer;
use sluice_io::escape::column_of_field;
use sluice_model::{Batch, Channels, Error, MessageType, Payloads};

pub(super) const TIMESTAMP: &str = "timestamp";
pub(super) const SOURCE: &str = "source";
pub(super) const CHANNEL: &str = "channel";
const SEQUENCE: &str = "sequence";
const PAYLOAD: &str = "payload";

/// Names of our columns, here and in written tables: no field may have them.
const RESERVED: [&str; 7] =
    [TIMESTAMP, "timestamp_ns", SOURCE, CHANNEL, "channel_variant", SEQUENCE, PAYLOAD];

/// The kind of a table.
#[derive(Clone, Debug)]
pub(crate) enum TableKind {
    /// All events.
    Events,
    /// The events of a channel, with their payloads.
    Payloads(Arc<str>),
    /// The decoded events of a channel, with the fields of one type.
    Fields(Arc<str>, Arc<RowType>),
}

/// The type of decoded rows.
#[derive(Debug)]
pub(crate) struct RowType {
    pub(crate) message: Arc<MessageType>,
    pub(crate) columns: SchemaRef,
}

/// The type of a channel.
#[derive(Clone, Debug, Default)]
pub(super) enum ChannelSchema {
    /// The log has no such channel.
    #[default]
    Missing,
    /// None of its events can be decoded.
    Payloads,
    /// The type of its first event that can be decoded.
    Fields(Arc<RowType>),
}

impl ChannelSchema {
    pub(super) fn kind(&self, channel: &str) -> Option<TableKind> {
        match self {
            Self::Missing => None,
            Self::Payloads => Some(TableKind::Payloads(channel.into())),
            Self::Fields(rows) => Some(TableKind::Fields(channel.into(), Arc::clone(rows))),
        }
    }
}

/// A column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogColumn {
    Timestamp,
    Source,
    Channel,
    Sequence,
    Payload,
    /// A field of the message, by index.
    Field(usize),
}

impl RowType {
    /// Whether rows have this type and these columns.
    pub(crate) fn is_of(&self, rows: &sluice_model::Rows) -> bool {
        let same = Arc::ptr_eq(&self.message, &rows.message) || self.message == rows.message;
        let columns = rows.columns.schema_ref();
        same && (Arc::ptr_eq(&self.columns, columns) || self.columns.fields() == columns.fields())
    }
}

impl TableKind {
    /// The columns, in order.
    pub(crate) fn columns(&self) -> Vec<LogColumn> {
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
    pub(crate) fn channel(&self) -> Option<&Arc<str>> {
        match self {
            Self::Events => None,
            Self::Payloads(channel) | Self::Fields(channel, _) => Some(channel),
        }
    }

    pub(crate) fn schema(&self) -> SchemaRef {
        let fields = self.columns().into_iter().map(|column| self.field(column));
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
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
pub(crate) struct ChannelLabels {
    names: StringViewArray,
    sources: StringViewArray,
}

impl ChannelLabels {
    pub(crate) fn from_channels(channels: &Channels) -> Self {
        let all = channels.since(0);
        Self {
            names: all.iter().map(|channel| Some(channel.name.text())).collect(),
            sources: all.iter().map(|channel| Some(&*channel.source)).collect(),
        }
    }

    /// The number of channels.
    pub(crate) fn len(&self) -> usize {
        arrow_array::Array::len(&self.names)
    }
}

/// A batch as these columns. `fields` are the decoded rows, one per event; `labels` must cover all
/// channels of the batch.
pub(crate) fn record_batch(
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
            LogColumn::Payload => payloads(batch)?,
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

/// The payloads; null for events that have only decoded fields.
fn payloads(batch: &Batch) -> Result<ArrayRef, Error> {
    let column = batch.payload_column()?;
    let gone = batch.rows().iter().filter(|rows| rows.payloads == Payloads::Gone);
    let gone: Vec<u32> = gone.flat_map(|rows| rows.events.iter().copied()).collect();
    if gone.is_empty() {
        return Ok(Arc::new(column));
    }
    let mut there = vec![true; batch.len()];
    gone.into_iter().for_each(|event| there[event as usize] = false);
    let (views, buffers, _) = column.into_parts();
    let nulls = NullBuffer::from(there);
    Ok(Arc::new(BinaryViewArray::try_new(views, buffers, Some(nulls)).map_err(column_mismatch)?))
}

pub(super) fn column_mismatch(error: ArrowError) -> Error {
    Error::internal(format!("a batch does not fit its columns: {error}"))
}
