//! Edits the columns of decoded rows, and replaces payloads by rows. Knows no column by name.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BinaryArray, FixedSizeListArray, Float64Array, RecordBatch};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field, Schema};
use sluice_model::{Batch, Channels, Error, MessageType, Payloads, Rows, TypeKey};

use crate::dataset_decoder::DatasetDecoder;

/// Removes and adds columns. A column replaces one of the same name.
pub(crate) fn with_columns(
    rows: &Rows,
    without: &[&str],
    columns: Vec<(Field, ArrayRef)>,
) -> Result<Rows, Error> {
    let schema = rows.columns.schema();
    let others = schema.fields().iter().zip(rows.columns.columns());
    let others = others.filter(|(known, _)| !without.contains(&known.name().as_str()));
    let (mut fields, mut arrays): (Vec<_>, Vec<_>) =
        others.map(|(field, array)| (Arc::clone(field), Arc::clone(array))).unzip();
    for (field, array) in columns {
        match fields.iter().position(|known| known.name() == field.name()) {
            Some(at) => (fields[at], arrays[at]) = (Arc::new(field), array),
            None => {
                fields.push(Arc::new(field));
                arrays.push(array);
            }
        }
    }
    let schema = Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()));
    let columns = RecordBatch::try_new(schema, arrays)
        .map_err(|error| Error::internal(format!("columns beside rows: {error}")))?;
    let (message, events) = (Arc::clone(&rows.message), rows.events.clone());
    Ok(Rows { message, payloads: rows.payloads, events, columns })
}

/// Gives rows one of our own types. They replace the payloads of their events.
pub(crate) fn with_type(rows: Rows, name: &str) -> Rows {
    let message = Arc::new(MessageType::named(name, schema_key(&rows.columns.schema())));
    Rows { message, payloads: Payloads::Gone, ..rows }
}

/// A key per set of columns: rows with different columns do not fit into one table.
fn schema_key(schema: &Schema) -> TypeKey {
    type_key("", schema)
}

/// A key per set of columns and meaning, given by `meaning`.
pub(crate) fn type_key(meaning: &str, schema: &Schema) -> TypeKey {
    let mut hash = blake3::Hasher::new();
    hash.update(meaning.as_bytes());
    for field in schema.fields() {
        hash.update(format!("{} {}\n", field.name(), field.data_type()).as_bytes());
    }
    let mut first = [0; 8];
    first.copy_from_slice(&hash.finalize().as_bytes()[..8]);
    TypeKey(u64::from_be_bytes(first))
}

/// A column of numbers.
pub(crate) fn number_column(name: &str, values: Vec<f64>) -> (Field, ArrayRef) {
    (Field::new(name, DataType::Float64, false), Arc::new(Float64Array::from(values)))
}

/// A column of `N` numbers per row.
pub(crate) fn list_column<const N: usize>(name: &str, values: &[[f64; N]]) -> (Field, ArrayRef) {
    let list = fixed_size_list(values.iter(), None);
    (Field::new(name, list.data_type().clone(), false), Arc::new(list))
}

/// A nullable column of `N` numbers per row.
pub(crate) fn nullable_lists<const N: usize>(
    name: &str,
    values: &[Option<[f64; N]>],
) -> (Field, ArrayRef) {
    let nulls = NullBuffer::from_iter(values.iter().map(Option::is_some));
    let values: Vec<[f64; N]> = values.iter().map(|value| value.unwrap_or([0.0; N])).collect();
    let list = fixed_size_list(values.iter(), Some(nulls));
    (Field::new(name, list.data_type().clone(), true), Arc::new(list))
}

fn fixed_size_list<'v, const N: usize>(
    values: impl Iterator<Item = &'v [f64; N]>,
    nulls: Option<NullBuffer>,
) -> FixedSizeListArray {
    let element = Arc::new(Field::new_list_field(DataType::Float64, false));
    let values = Float64Array::from_iter_values(values.flatten().copied());
    FixedSizeListArray::new(element, N as i32, Arc::new(values), nulls)
}

/// Removes a column, if present.
pub(crate) fn without_column(rows: Rows, name: &str) -> Result<Rows, Error> {
    match rows.columns.column_by_name(name) {
        Some(_) => with_columns(&rows, &[name], Vec::new()),
        None => Ok(rows),
    }
}

/// Sets the rows of a batch, and removes the payloads that they replace.
pub(crate) fn replace_rows(batch: Batch, rows: Vec<Rows>) -> Batch {
    let gone = rows.iter().filter(|rows| rows.payloads == Payloads::Gone);
    let gone = gone.flat_map(|rows| rows.events.iter().copied());
    let mut full: Vec<u32> = gone.filter(|event| batch.payload_len(*event as usize) > 0).collect();
    full.sort_unstable();
    if full.is_empty() {
        return batch.with_rows(rows);
    }
    if full.len() == batch.len() {
        return batch.without_payloads().with_rows(rows);
    }
    let offsets = OffsetBuffer::new_zeroed(full.len());
    let empty = BinaryArray::new(offsets, Buffer::default(), None);
    batch.with_payloads(&full, &empty).with_rows(rows)
}

/// Changes all rows of a batch and removes the internal column `hidden`.
pub(crate) fn map_rows(
    batch: Batch,
    hidden: &str,
    change: impl Fn(&Rows) -> Result<Vec<Rows>, Error>,
) -> Result<Batch, Error> {
    let changed: Vec<Vec<Rows>> = batch.rows().iter().map(change).collect::<Result<_, _>>()?;
    let changed = changed.into_iter().flatten().map(|rows| without_column(rows, hidden));
    let changed = changed.collect::<Result<_, _>>()?;
    Ok(replace_rows(batch, changed))
}

/// Changes the rows of selected events only. The others stay as they are.
pub(crate) fn map_selected(
    rows: &Rows,
    is_selected: impl Fn(u32) -> bool,
    change: impl Fn(&Rows) -> Result<Rows, Error>,
) -> Result<Vec<Rows>, Error> {
    let (selected, others): (Vec<u32>, Vec<u32>) =
        (0..rows.events.len() as u32).partition(|row| is_selected(rows.events[*row as usize]));
    match (selected.is_empty(), others.is_empty()) {
        (true, _) => Ok(vec![rows.clone()]),
        (false, true) => Ok(vec![change(rows)?]),
        (false, false) => Ok(vec![change(&rows.pick(&selected))?, rows.pick(&others)]),
    }
}

/// Adds decoded rows for those of `events` (ascending) that have none yet, if they are wanted.
pub(crate) fn with_decoded_rows(
    batch: Batch,
    events: &[u32],
    (decoder, channels): (&DatasetDecoder, &Channels),
    is_wanted: impl Fn(&Rows) -> bool,
) -> Result<Batch, Error> {
    let has_rows = batch.decoded_mask();
    let raw: Vec<u32> = events.iter().copied().filter(|event| !has_rows[*event as usize]).collect();
    if raw.is_empty() {
        return Ok(batch);
    }
    let found = decoder.decode_rows(&batch, &raw, channels)?;
    let mut rows = batch.rows().to_vec();
    rows.extend(found.rows.into_iter().filter(is_wanted));
    Ok(batch.with_rows(rows))
}
