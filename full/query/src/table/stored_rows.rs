//! Rows as the cache stores them: with one column of channel ids in place of sources and channels.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions, UInt16Array};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use sluice_kit::event_table::{LogColumn, column_mismatch};
use sluice_model::{Batch, Error};

/// The column with channel ids, which stands for the columns `source` and `channel`. First, if any
/// of them is stored.
const CHANNEL_ID: &str = "channel_id";

/// Whether a column is stored as a channel id.
pub(super) fn is_label(column: LogColumn) -> bool {
    matches!(column, LogColumn::Source | LogColumn::Channel)
}

/// The schema in which these columns are stored; `schema` is the one that they are built in.
pub(super) fn stored_schema(columns: &[LogColumn], schema: &Schema) -> SchemaRef {
    let has_labels = columns.iter().any(|column| is_label(*column));
    let id = has_labels.then(|| Arc::new(Field::new(CHANNEL_ID, DataType::UInt16, false)));
    let others = columns.iter().zip(schema.fields());
    let others = others.filter(|(column, _)| !is_label(**column));
    let others = others.map(|(_, field)| Arc::clone(field));
    Arc::new(Schema::new(id.into_iter().chain(others).collect::<Vec<_>>()))
}

/// The rows of a batch as they are stored: `rows` are those of `built`.
pub(super) fn stored_rows(
    built: &[LogColumn],
    batch: &Batch,
    rows: &RecordBatch,
) -> Result<RecordBatch, Error> {
    let mut columns: Vec<ArrayRef> = Vec::new();
    if built.iter().any(|column| is_label(*column)) {
        let ids = batch.channels().iter().map(|id| u16::try_from(*id));
        let ids: UInt16Array = ids.collect::<Result<Vec<_>, _>>().map_err(too_many)?.into();
        columns.push(Arc::new(ids));
    }
    let others = built.iter().zip(rows.columns()).filter(|(column, _)| !is_label(**column));
    columns.extend(others.map(|(_, values)| Arc::clone(values)));
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    RecordBatch::try_new_with_options(stored_schema(built, &rows.schema()), columns, &options)
        .map_err(column_mismatch)
}

fn too_many(_: std::num::TryFromIntError) -> Error {
    Error::internal("more channels than a run may have")
}
