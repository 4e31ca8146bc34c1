//! Turns events into the rows of a query's tables.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow_schema::{ArrowError, Field, Fields, Schema, SchemaRef};
use arrow_select::concat::concat_batches;
use arrow_select::take::{take_arrays, take_record_batch};
use datafusion::arrow::compute::sort_to_indices;
use sluice_model::cast::{cast_exact, rows_with_list_lengths};
use sluice_model::{Batch, Channel, Channels, Error, PerChannel, Rows};

use super::columns::{self, EventColumn};
use super::query::QueryTable;

/// Assigns channels to the tables of a query.
#[derive(Debug)]
pub(super) struct TableMembers {
    /// The channel of each table.
    names: Vec<Option<String>>,
    places: PerChannel<Option<usize>>,
}

impl TableMembers {
    pub(super) fn new(tables: &[QueryTable]) -> Self {
        let name = |table: &QueryTable| match table {
            QueryTable::Events => None,
            QueryTable::Channel(name) => Some(name.clone()),
        };
        Self { names: tables.iter().map(name).collect(), places: PerChannel::default() }
    }

    /// The table index of each channel of the run, by channel id.
    pub(super) fn places(&self, channels: &Channels) -> Result<Arc<Vec<Option<usize>>>, Error> {
        self.places.table(channels, |channel: &Channel| {
            let is_it = |name: &Option<String>| name.as_deref() == Some(channel.name.text());
            Ok(self.names.iter().position(is_it))
        })
    }
}

/// Rows of one type and one table.
#[derive(Clone, Debug)]
pub(super) struct TableRows {
    /// The index of the table.
    pub(super) table: usize,
    pub(super) rows: Rows,
}

/// The decoded rows of a batch per table, and the number of undecoded events of these tables.
pub(super) fn rows_of_tables(
    batch: &Batch,
    places: &[Option<usize>],
    tables: usize,
) -> (Vec<TableRows>, u64) {
    let place = |event: u32| {
        let channel = batch.channels().get(event as usize).copied().unwrap_or_default();
        places.get(channel as usize).copied().flatten()
    };
    let (mut found, mut decoded) = (Vec::new(), 0u64);
    for rows in batch.rows() {
        for table in 0..tables {
            let each = (0u32..).zip(&rows.events);
            let picked = each.filter(|(_, event)| place(**event) == Some(table));
            let picked: Vec<u32> = picked.map(|(row, _)| row).collect();
            if !picked.is_empty() {
                decoded += picked.len() as u64;
                let all = picked.len() == rows.events.len();
                let rows = if all { rows.clone() } else { rows.pick(&picked) };
                found.push(TableRows { table, rows });
            }
        }
    }
    let of_tables = (0..batch.len() as u32).filter(|event| place(*event).is_some()).count() as u64;
    (found, of_tables.saturating_sub(decoded))
}

/// The rows of the table `events`, with the event index column. Copies no payloads.
pub(super) fn events(batch: &Batch, channels: &Channels) -> Result<RecordBatch, Error> {
    let arrow = batch.to_arrow(channels)?;
    let mut columns = event_columns(&arrow)?;
    let payloads: ArrayRef = Arc::new(batch.nullable_payload_column()?);
    let sizes = (0..batch.len()).map(|row| batch.payload_len(row) as i64);
    let sizes = Int64Array::new(sizes.collect(), payloads.nulls().cloned());
    columns.extend([payloads, Arc::new(sizes)]);
    columns.push(Arc::new(UInt32Array::from_iter_values(0..batch.len() as u32)));
    let schema = columns::with_event(&columns::events_schema());
    RecordBatch::try_new(schema, columns).map_err(|error| column_mismatch(&error))
}

/// The rows of a channel's table, with the event index column.
pub(super) fn channel(
    batch: &Batch,
    rows: &Rows,
    table: &SchemaRef,
    channels: &Channels,
) -> Result<RecordBatch, Error> {
    let of_events = UInt32Array::from(rows.events.clone());
    let columns = event_columns(&batch.to_arrow(channels)?)?;
    let columns =
        take_arrays(&columns, &of_events, None).map_err(|error| column_mismatch(&error))?;
    let fields = rows.columns.columns().iter().cloned();
    let all = columns.into_iter().chain(fields).chain([Arc::new(of_events) as ArrayRef]).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(rows.events.len()));
    let batch = RecordBatch::try_new_with_options(columns::with_event(table), all, &options);
    batch.map_err(|error| column_mismatch(&error))
}

/// Casts rows to the declared fields, which are matched by name.
///
/// `Err` names a field that is missing or does not fit.
pub(super) fn as_declared(rows: &Rows, declared: &Fields) -> Result<Rows, String> {
    let field = |field: &Arc<Field>| -> Result<ArrayRef, String> {
        let name = columns::field_name(field.name());
        let column = rows.columns.column_by_name(name).ok_or_else(|| {
            format!("a `{}` has no field `{name}`, which `tables` declares", rows.message.name)
        })?;
        cast_exact(column, field.data_type()).map_err(|error| {
            let (is, declared) = (column.data_type(), field.data_type());
            format!(
                "field `{name}` of `{}` is {is}, and `tables` declares {declared}: {error}",
                rows.message.name
            )
        })
    };
    let fields = declared.iter().map(field).collect::<Result<Vec<_>, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows.events.len()));
    let columns = RecordBatch::try_new_with_options(message_schema(declared), fields, &options);
    let columns = columns.map_err(|error| error.to_string())?;
    Ok(Rows { columns, ..rows.clone() })
}

/// Rows with the discovered columns. `None` if theirs differ in more than whether the lengths of
/// lists are known.
pub(super) fn as_discovered(rows: &Rows, discovered: &Fields) -> Option<Rows> {
    let columns = rows_with_list_lengths(&rows.columns, &message_schema(discovered))?;
    Some(Rows { columns, ..rows.clone() })
}

/// The columns of a table as those of messages.
fn message_schema(columns: &Fields) -> SchemaRef {
    let field = |column: &Arc<Field>| {
        Arc::new(column.as_ref().clone().with_name(columns::field_name(column.name())))
    };
    Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()))
}

/// Merges the rows of one table, in the order of their events.
pub(super) fn in_order(mut parts: Vec<RecordBatch>) -> Result<Option<RecordBatch>, Error> {
    if parts.len() < 2 {
        return Ok(parts.pop());
    }
    let Some(schema) = parts.first().map(RecordBatch::schema) else { return Ok(None) };
    let together = concat_batches(&schema, &parts).map_err(|error| column_mismatch(&error))?;
    let event = together.num_columns() - 1;
    let order = sort_to_indices(together.column(event), None, None);
    let ordered = order.and_then(|order| take_record_batch(&together, &order));
    ordered.map(Some).map_err(|error| column_mismatch(&error))
}

/// Removes the event index column.
pub(super) fn without_event(rows: &RecordBatch) -> Result<RecordBatch, Error> {
    let others: Vec<usize> = (0..rows.num_columns().saturating_sub(1)).collect();
    rows.project(&others).map_err(|error| column_mismatch(&error))
}

/// The event index of a row, from the last column.
pub(super) fn event_of(rows: &RecordBatch, row: usize) -> u32 {
    let events = rows.columns().last().and_then(|column| column.as_primitive_opt::<UInt32Type>());
    events.and_then(|events| events.values().get(row).copied()).unwrap_or(u32::MAX)
}

/// The event columns without the payload.
fn event_columns(arrow: &RecordBatch) -> Result<Vec<ArrayRef>, Error> {
    let columns =
        [EventColumn::Timestamp, EventColumn::Source, EventColumn::Channel, EventColumn::Sequence];
    columns.into_iter().map(|columns| column(arrow, columns)).collect()
}

fn column(arrow: &RecordBatch, columns: EventColumn) -> Result<ArrayRef, Error> {
    let found = arrow.column_by_name(columns.name()).cloned();
    found.ok_or_else(|| Error::internal(format!("a batch without a column `{}`", columns.name())))
}

fn column_mismatch(error: &ArrowError) -> Error {
    Error::internal(format!("events do not fit the columns of their table: {error}"))
}
