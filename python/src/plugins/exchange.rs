//! Batches for Python and back: the columns of `Batch::to_arrow`, and a number for each event, by
//! which it is known when it returns. Payloads are copied into a plain binary column: pyarrow
//! cannot filter views. The values of dictionaries are distinct and not null, as pandas requires.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, DictionaryArray, Int32Array, Int64Array, RecordBatch, RecordBatchReader,
    StringArray, UInt32Array, new_null_array,
};
use arrow_cast::display::array_value_to_string;
use arrow_schema::{ArrowError, DataType, Field, Schema};
use arrow_select::take::take;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3_arrow::input::AnyRecordBatch;
use sluice_kit::suggestion::nearest;
use sluice_model::cast::{cast, cast_exact};
use sluice_model::{Batch, Channels, Encoding, Error};

use crate::table::Batch as PyBatch;

/// The column of numbers.
const NUMBER: &str = "number";
/// The columns that events must have.
const REQUIRED: [&str; 3] = ["timestamp", "channel", "payload"];
/// The columns that events of a stage keep if they are not returned.
const OPTIONAL: [&str; 4] = ["source", "sequence", "encoding", "attributes"];

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
        if let Some(words) = column.as_dictionary_opt::<Int32Type>() {
            *column = Arc::new(distinct(words).map_err(wrong)?);
        }
    }
    fields.push(Arc::new(Field::new(NUMBER, DataType::Int64, true)));
    columns.push(Arc::new(numbers));
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).map_err(wrong)
}

/// The same texts by a dictionary without null and repeated values.
fn distinct(words: &DictionaryArray<Int32Type>) -> Result<DictionaryArray<Int32Type>, ArrowError> {
    let (mut values, mut places) = (Vec::new(), HashMap::new());
    let mut new_key = |value| {
        *places.entry(value).or_insert_with(|| {
            values.push(value);
            (values.len() - 1) as i32
        })
    };
    let old_values = words.values().as_string::<i32>();
    let new_keys: Vec<Option<i32>> =
        old_values.iter().map(|value| value.map(&mut new_key)).collect();
    if values.len() == words.values().len() {
        return Ok(words.clone());
    }
    let new_key = |key: Option<i32>| *new_keys.get(usize::try_from(key?).ok()?)?;
    let keys: Int32Array = words.keys().iter().map(new_key).collect();
    DictionaryArray::try_new(keys, Arc::new(StringArray::from(values)))
}

/// Columns for Python.
pub(super) fn to_python(py: Python<'_>, columns: RecordBatch) -> PyResult<Py<PyBatch>> {
    Py::new(py, PyBatch::new(columns))
}

/// The batches that Python returned: Arrow data, several of it, or nothing.
pub(super) fn from_python(returned: &Bound<'_, PyAny>) -> PyResult<Vec<RecordBatch>> {
    if returned.is_none() {
        return Ok(Vec::new());
    }
    if is_arrow(returned)? {
        return arrow_batches(returned);
    }
    let mut batches = Vec::new();
    for item in returned.try_iter().map_err(|_| unexpected(returned, ""))? {
        let item = item?;
        if !is_arrow(&item)? {
            return Err(unexpected(&item, &format!("{} of ", type_name(returned))));
        }
        batches.extend(arrow_batches(&item)?);
    }
    Ok(batches)
}

/// Whether an object has the Arrow interface.
pub(super) fn is_arrow(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    Ok(object.hasattr("__arrow_c_array__")? || object.hasattr("__arrow_c_stream__")?)
}

fn unexpected(found: &Bound<'_, PyAny>, within: &str) -> PyErr {
    PyTypeError::new_err(format!(
        "expected Arrow data, an iterable of it, or None; found {within}{}: Arrow data has a \
         method `__arrow_c_array__` or `__arrow_c_stream__`",
        type_name(found)
    ))
}

/// The name of the type of an object.
pub(super) fn type_name(object: &Bound<'_, PyAny>) -> String {
    object.get_type().name().map_or_else(|_| "an object".into(), |name| name.to_string())
}

fn arrow_batches(object: &Bound<'_, PyAny>) -> PyResult<Vec<RecordBatch>> {
    let batches: Result<Vec<_>, _> = arrow_reader(object)?.collect();
    batches.map_err(|error| PyValueError::new_err(error.to_string()))
}

/// The batches of an object with the Arrow interface, each made when it is read.
pub(super) fn arrow_reader(
    object: &Bound<'_, PyAny>,
) -> PyResult<Box<dyn RecordBatchReader + Send>> {
    let batches = object.extract::<AnyRecordBatch>().and_then(AnyRecordBatch::into_reader);
    // Other Arrow data is a column, such as an item of a table.
    batches.map_err(|error| {
        let found = type_name(object);
        PyTypeError::new_err(format!("expected record batches or tables, found {found}: {error}"))
    })
}

/// Events from their columns, cast to the types that events have. `defaults` are the columns that
/// stand for missing ones.
pub(super) fn to_batch(
    columns: &RecordBatch,
    defaults: &[(&str, ArrayRef)],
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
    refuse_misspelled(columns)?;
    let mut cast_columns: Vec<(String, ArrayRef)> = Vec::new();
    for field in Batch::arrow_schema().fields() {
        let name = field.name();
        let column = match column(columns, name)?.filter(|c| *c.data_type() != DataType::Null) {
            Some(column) if name == "source" && column.logical_null_count() > 0 => {
                return Err(Error::invalid("column `source`: expected a text, found null"));
            }
            Some(column) => cast_exactly(column, field)?,
            None => match defaults.iter().find(|(default, _)| default == name) {
                Some((_, column)) => cast_exactly(column, field)?,
                None => continue,
            },
        };
        match name.as_str() {
            "encoding" => refuse_unknown_encodings(&column)?,
            "attributes" => refuse_other_json(&column)?,
            _ => {}
        }
        cast_columns.push((name.clone(), column));
    }
    let columns = RecordBatch::try_from_iter(cast_columns)
        .map_err(|error| Error::invalid(format!("its columns do not fit: {error}")))?;
    Batch::from_arrow(&columns, channels)
}

/// Refuses columns whose names are nearly those of missing ones. Other columns are ignored.
fn refuse_misspelled(columns: &RecordBatch) -> Result<(), Error> {
    let (schema, known) = (columns.schema(), Batch::arrow_schema());
    let known: Vec<&str> = known.fields().iter().map(|field| field.name().as_str()).collect();
    let missing: Vec<&str> =
        known.iter().copied().filter(|name| schema.index_of(name).is_err()).collect();
    let others = schema.fields().iter().map(|field| field.name().as_str());
    for name in others.filter(|name| *name != NUMBER && !known.contains(name)) {
        if let Some(near) = nearest(name, &missing) {
            return Err(Error::invalid(format!("unknown column `{name}`; did you mean `{near}`?")));
        }
    }
    Ok(())
}

/// Refuses encodings that have no name here: they would become `unknown`.
fn refuse_unknown_encodings(column: &ArrayRef) -> Result<(), Error> {
    match find_text(column, |word| Encoding::from_word(word).as_str() != word) {
        None => Ok(()),
        Some(unknown) => Err(Error::invalid(format!(
            "column `encoding`: expected lcm, vel, ice, cdr, ros1, protobuf, json, text or \
             unknown, found `{unknown}`"
        ))),
    }
}

/// Refuses attributes that are no object: an array would become one, by the places of its items.
fn refuse_other_json(column: &ArrayRef) -> Result<(), Error> {
    match find_text(column, |json| !json.trim_start().starts_with('{')) {
        None => Ok(()),
        Some(other) => Err(Error::invalid(format!(
            "column `attributes`: expected a JSON object, found `{other}`"
        ))),
    }
}

/// The first text of a column with a dictionary that fits.
fn find_text(column: &ArrayRef, fits: impl Fn(&str) -> bool) -> Option<&str> {
    let words = column.as_dictionary::<Int32Type>();
    let values = words.values().as_string::<i32>();
    if !values.iter().flatten().any(&fits) {
        return None;
    }
    // Not every value of a dictionary need be that of an event.
    let keys = words.keys().iter().flatten().map(|key| key as usize);
    let mut texts = keys.filter(|key| values.is_valid(*key)).map(|key| values.value(key));
    texts.find(|text| fits(text))
}

/// The column of this name, if there is one. `Err` if there are several.
fn column<'c>(columns: &'c RecordBatch, name: &str) -> Result<Option<&'c ArrayRef>, Error> {
    let schema = columns.schema_ref();
    if schema.fields().iter().filter(|field| field.name() == name).count() > 1 {
        return Err(Error::invalid(format!("column `{name}`: expected one, found several")));
    }
    Ok(columns.column_by_name(name))
}

/// A cast that fails where a value has no counterpart, instead of dropping or rounding it.
fn cast_exactly(column: &ArrayRef, to: &Field) -> Result<ArrayRef, Error> {
    let wrong = |why: String| Error::invalid(format!("column `{}`: {why}", to.name()));
    let cast_to = |column: &ArrayRef, to: &DataType| {
        cast_exact(column, to).map_err(|error| wrong(error.to_string()))
    };
    let cast_column = cast_to(column, to.data_type())?;
    let from = column.data_type();
    let is_number = matches!(to.data_type(), DataType::Int64 | DataType::Timestamp(..));
    if is_number && (from.is_floating() || from.is_decimal()) {
        let back = cast_to(&cast_column, from)?;
        let is_rounded = |row: &usize| column.slice(*row, 1) != back.slice(*row, 1);
        if column != &back
            && let Some(row) = (0..column.len()).find(is_rounded)
        {
            let value = array_value_to_string(column, row).unwrap_or_default();
            return Err(wrong(format!("expected whole numbers, found {value}")));
        }
    }
    Ok(cast_column)
}

/// Which events of a batch return.
pub(super) struct Returned {
    /// For each event that was given, whether it is back.
    is_back: Vec<bool>,
    /// For each event that returned, the one it was; `None` for new ones.
    numbers: Vec<Option<u32>>,
}

impl Returned {
    /// Nothing has returned yet of so many events.
    pub(super) fn new(given: usize) -> Self {
        Self { is_back: vec![false; given], numbers: Vec::new() }
    }

    /// Matches the next events by number, and returns what stands for columns that they do not
    /// have: the values of the events that they name. New events have no source, and the sequence
    /// number 0, however they are cut into batches.
    ///
    /// A number that returns a second time is a new event with the same values.
    pub(super) fn defaults(
        &mut self,
        columns: &RecordBatch,
        given: &RecordBatch,
    ) -> Result<Vec<(&'static str, ArrayRef)>, Error> {
        let named = self.match_numbers(columns)?;
        let default = |name: &'static str| {
            let column = given.column_by_name(name);
            let column = column.ok_or_else(|| Error::internal(format!("no column {name}")))?;
            let column = take(column, &named, None).map_err(|e| Error::internal(e.to_string()))?;
            let Some(numbers) = column.as_primitive_opt::<Int64Type>() else {
                return Ok((name, column));
            };
            let numbers = numbers.iter().map(Option::unwrap_or_default);
            Ok((name, Arc::new(Int64Array::from_iter_values(numbers)) as ArrayRef))
        };
        OPTIONAL.into_iter().map(default).collect()
    }

    /// The numbers of these events.
    fn match_numbers(&mut self, columns: &RecordBatch) -> Result<UInt32Array, Error> {
        let given = self.is_back.len();
        let column = match column(columns, NUMBER)? {
            Some(column) => cast_exactly(column, &Field::new(NUMBER, DataType::Int64, true))?,
            None => new_null_array(&DataType::Int64, columns.num_rows()),
        };
        let named = column.as_primitive::<Int64Type>().iter().map(|number| {
            let Some(number) = number else {
                self.numbers.push(None);
                return Ok(None);
            };
            let known = u32::try_from(number).ok();
            let place = known.and_then(|known| self.is_back.get_mut(known as usize));
            let is_back = place.ok_or_else(|| {
                Error::invalid(format!(
                    "column `{NUMBER}`: event {number} was not in the batch of {given} events"
                ))
            })?;
            self.numbers.push(known.filter(|_| !std::mem::replace(is_back, true)));
            Ok(known)
        });
        named.collect()
    }

    /// For each event that returned, its number if it is not new; and how many did not return.
    pub(super) fn finish(self) -> (Vec<Option<u32>>, u64) {
        let filtered = self.is_back.iter().filter(|is_back| !**is_back).count() as u64;
        (self.numbers, filtered)
    }
}
