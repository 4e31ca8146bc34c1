//! Batches for Python and back: the columns of `Batch::to_arrow`, and a number for each event, by
//! which it is known when it returns. Payloads are copied into a plain binary column: pyarrow
//! cannot filter views.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_cast::{CastOptions, cast, cast_with_options};
use arrow_schema::{ArrowError, DataType, Field, Schema};
use pyo3::prelude::*;
use pyo3_arrow::input::AnyRecordBatch;
use sluice_model::{Batch, Channels, Error};

use crate::table::Batch as PyBatch;

/// The column of numbers.
const NUMBER: &str = "number";
/// The columns that events must have.
const REQUIRED: [&str; 3] = ["timestamp", "channel", "payload"];

/// The events as columns, numbered from 0.
pub(super) fn columns(batch: &Batch, channels: &Channels) -> Result<RecordBatch, Error> {
    let events = batch.to_arrow(channels)?;
    let numbers = Int64Array::from_iter_values(0..batch.len() as i64);
    let mut fields: Vec<_> = events.schema().fields().iter().cloned().collect();
    let mut columns = events.columns().to_vec();
    let wrong = |error| Error::internal(format!("a batch does not fit its columns: {error}"));
    for (field, column) in fields.iter_mut().zip(&mut columns) {
        if *field.data_type() == DataType::BinaryView {
            *column = cast(column, &DataType::LargeBinary).map_err(wrong)?;
            *field = Arc::new(Field::new(field.name(), DataType::LargeBinary, false));
        }
    }
    fields.push(Arc::new(Field::new(NUMBER, DataType::Int64, true)));
    columns.push(Arc::new(numbers));
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(wrong)
}

/// Columns for Python.
pub(super) fn to_python(py: Python<'_>, columns: RecordBatch) -> PyResult<Py<PyBatch>> {
    Py::new(py, PyBatch::new(columns))
}

/// The batches that Python returned: any Arrow data, or nothing.
pub(super) fn from_python(returned: &Bound<'_, PyAny>) -> PyResult<Vec<RecordBatch>> {
    if returned.is_none() {
        return Ok(Vec::new());
    }
    let reader = returned.extract::<AnyRecordBatch>()?.into_reader()?;
    let batches: Result<Vec<_>, _> = reader.collect();
    batches.map_err(|error| pyo3::exceptions::PyValueError::new_err(error.to_string()))
}

/// What to fill in for columns that are missing.
pub(super) struct Defaults<'d> {
    /// The source of events.
    pub(super) source: &'d str,
    /// The number of the first event.
    pub(super) first: i64,
}

/// Events from their columns, cast to the types that events have.
pub(super) fn to_batch(
    columns: &RecordBatch,
    defaults: &Defaults<'_>,
    channels: &Channels,
) -> Result<Batch, Error> {
    let missing: Vec<&str> =
        REQUIRED.into_iter().filter(|name| columns.column_by_name(name).is_none()).collect();
    if !missing.is_empty() {
        let schema = columns.schema();
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        return Err(Error::invalid(format!(
            "expected the columns timestamp, channel and payload, found {}",
            names.join(", ")
        )));
    }
    let mut cast_columns: Vec<(String, ArrayRef)> = Vec::new();
    for field in Batch::arrow_schema().fields() {
        let given = columns.column_by_name(field.name()).cloned();
        let column = match given.filter(|column| *column.data_type() != DataType::Null) {
            Some(column) => column,
            None => match default_column(field.name(), columns.num_rows(), defaults) {
                Some(column) => column,
                None => continue,
            },
        };
        let column = cast_exactly(&column, field.data_type())
            .map_err(|error| Error::invalid(format!("column `{}`: {error}", field.name())))?;
        cast_columns.push((field.name().clone(), column));
    }
    let columns = RecordBatch::try_from_iter(cast_columns)
        .map_err(|error| Error::invalid(format!("its columns do not fit: {error}")))?;
    Batch::from_arrow(&columns, channels)
}

/// A cast that fails where a value has no counterpart, instead of dropping it.
fn cast_exactly(column: &dyn Array, to: &DataType) -> Result<ArrayRef, ArrowError> {
    cast_with_options(column, to, &CastOptions { safe: false, ..CastOptions::default() })
}

fn default_column(name: &str, len: usize, defaults: &Defaults<'_>) -> Option<ArrayRef> {
    match name {
        "source" => Some(Arc::new(StringArray::from(vec![defaults.source; len]))),
        "sequence" => {
            let numbers = defaults.first..defaults.first.saturating_add(len as i64);
            Some(Arc::new(Int64Array::from_iter_values(numbers)))
        }
        _ => None,
    }
}

/// Which events of a batch returned: for each that did, the one it was; and the events that are
/// new.
pub(super) struct Returned {
    /// For each event, its number in the batch that was given.
    pub(super) numbers: Vec<Option<u32>>,
    /// How many of those given did not return.
    pub(super) filtered: u64,
}

impl Returned {
    /// Matches events by number. A number that returns a second time is a new event.
    pub(super) fn new(batches: &[RecordBatch], given: usize) -> Result<Self, Error> {
        let (mut is_back, mut numbers) = (vec![false; given], Vec::new());
        for columns in batches {
            let column = columns.column_by_name(NUMBER);
            let column = column.map(|column| cast_exactly(column, &DataType::Int64)).transpose();
            let column =
                column.map_err(|error| Error::invalid(format!("column `{NUMBER}`: {error}")))?;
            let column = column.as_ref().map(|column| column.as_primitive::<Int64Type>());
            for row in 0..columns.num_rows() {
                let Some(column) = column.filter(|column| column.is_valid(row)) else {
                    numbers.push(None);
                    continue;
                };
                let number = column.value(row);
                let known = u32::try_from(number).ok();
                let place = known.and_then(|known| is_back.get_mut(known as usize));
                let is_back = place.ok_or_else(|| {
                    Error::invalid(format!(
                        "column `{NUMBER}`: event {number} was not in the batch of {given} events"
                    ))
                })?;
                numbers.push(known.filter(|_| !std::mem::replace(is_back, true)));
            }
        }
        let filtered = is_back.iter().filter(|is_back| !**is_back).count() as u64;
        Ok(Self { numbers, filtered })
    }
}
