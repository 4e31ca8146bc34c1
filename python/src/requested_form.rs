//! Columns as their consumer asks for them with `requested_schema` of the Arrow PyCapsule
//! interface: the same values in other types, such as plain texts instead of views. Never changes
//! a value, and neither selects nor renames columns or their members.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_cast::can_cast_types;
use arrow_schema::{ArrowError, DataType, FieldRef, Schema, SchemaRef};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use pyo3_arrow::PySchema;
use sluice_model::cast::{as_type, cast_exact};

/// The schema to deliver: the requested one, or that of the columns if none is requested or there
/// is no cast to it, which the interface allows.
///
/// `Err` if the requested schema has other columns, or columns of other members.
pub(crate) fn schema(
    of: &SchemaRef,
    requested: Option<&Bound<'_, PyCapsule>>,
) -> PyResult<SchemaRef> {
    let Some(requested) = requested else { return Ok(Arc::clone(of)) };
    let requested = PySchema::from_arrow_pycapsule(requested)?.into_inner();
    let (found, expected) = (names(&requested), names(of));
    if found != expected {
        return Err(PyValueError::new_err(format!(
            "requested_schema: expected the columns {}, found {}: `columns` selects others",
            expected.join(", "),
            found.join(", ")
        )));
    }
    let mut pairs = of.fields().iter().zip(requested.fields());
    if !pairs.all(|(ours, theirs)| can_cast_types(ours.data_type(), theirs.data_type())) {
        return Ok(Arc::clone(of));
    }
    for (ours, theirs) in of.fields().iter().zip(requested.fields()) {
        let (expected, found) = (members(ours.data_type()), members(theirs.data_type()));
        if found != expected {
            return Err(PyValueError::new_err(format!(
                "requested_schema: column `{}`: expected the members {expected}, found {found}",
                ours.name()
            )));
        }
    }
    let fields = requested.fields().clone();
    Ok(Arc::new(Schema::new_with_metadata(fields, of.metadata().clone())))
}

/// The rows with this schema. `Err` if a value would be another one.
pub(crate) fn rows(of: RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    if of.schema_ref() == schema {
        return Ok(of);
    }
    let columns = of.columns().iter().zip(schema.fields());
    let columns = columns.map(|(column, field)| as_requested(column, field));
    let columns = columns.collect::<Result<_, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(of.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
}

fn as_requested(column: &ArrayRef, field: &FieldRef) -> Result<ArrayRef, ArrowError> {
    let (name, data_type) = (field.name(), field.data_type());
    let wrong = |why: String| ArrowError::CastError(format!("column `{name}`: {why}"));
    let mut unfit = vec![false; column.len()];
    let cast_column = as_type(column, data_type, &mut unfit).map_err(wrong)?;
    if let Some(row) = unfit.iter().position(|unfit| *unfit) {
        let value = arrow_cast::display::array_value_to_string(column, row).unwrap_or_default();
        let from = column.data_type();
        return Err(wrong(format!("{value} of type {from} is no value of {data_type}")));
    }
    // The cast is to items of lists that may be null.
    cast_exact(&cast_column, data_type)
}

/// The names of members at any depth, which a cast matches by position if they differ.
fn members(of: &DataType) -> String {
    match of {
        DataType::Struct(fields) => {
            let member =
                |field: &FieldRef| format!("{:?}{}", field.name(), members(field.data_type()));
            let all: Vec<String> = fields.iter().map(member).collect();
            format!("({})", all.join(", "))
        }
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _)
        | DataType::RunEndEncoded(_, item) => members(item.data_type()),
        DataType::Map(entries, _) => members(entries.data_type()),
        DataType::Dictionary(_, values) => members(values),
        _ => String::new(),
    }
}

fn names(of: &Schema) -> Vec<&str> {
    of.fields().iter().map(|field| field.name().as_str()).collect()
}
