//! Converts columns to types that JSON can express: times become text, maps become lists, encodings
//! are removed.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, ListArray, OffsetSizeTrait, RecordBatch, StringArray,
    StructArray, new_null_array,
};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Schema, TimeUnit};
use jiff::Timestamp;
use sluice_model::Error;
use sluice_model::cast::cast;

/// Converts all columns.
pub(super) fn rows(rows: &RecordBatch) -> Result<RecordBatch, Error> {
    let columns: Vec<ArrayRef> = rows.columns().iter().map(column).collect::<Result<_, _>>()?;
    let fields = rows.schema_ref().fields().iter().zip(&columns);
    let fields =
        fields.map(|(field, column)| Field::new(field.name(), column.data_type().clone(), true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    RecordBatch::try_new_with_options(schema, columns, &options).map_err(broken)
}

/// Converts a column.
///
/// Recursion is bounded: the types of queries and messages have limited depth.
pub(super) fn column(array: &ArrayRef) -> Result<ArrayRef, Error> {
    Ok(match array.data_type() {
        DataType::Timestamp(unit, zone) => moments(array, *unit, zone.is_some()),
        DataType::Struct(_) => object(array.as_struct())?,
        DataType::List(field) => list(array.as_list::<i32>(), field)?,
        DataType::LargeList(field) => list(array.as_list::<i64>(), field)?,
        DataType::FixedSizeList(field, size) => fixed_size_list(array, field, *size)?,
        DataType::Map(_, _) => column(&(Arc::new(ListArray::from(array.as_map().clone())) as _))?,
        DataType::Dictionary(_, value) => column(&cast(array, value).map_err(broken)?)?,
        DataType::RunEndEncoded(_, value) => {
            column(&cast(array, value.data_type()).map_err(broken)?)?
        }
        DataType::ListView(field) => {
            column(&cast(array, &DataType::List(Arc::clone(field))).map_err(broken)?)?
        }
        DataType::LargeListView(field) => {
            column(&cast(array, &DataType::LargeList(Arc::clone(field))).map_err(broken)?)?
        }
        DataType::Date32
        | DataType::Date64
        | DataType::Time32(_)
        | DataType::Time64(_)
        | DataType::Duration(_)
        | DataType::Interval(_)
        | DataType::Union(_, _) => text(array)?,
        _ => Arc::clone(array),
    })
}

/// Values as Arrow formats them: `2007-11-03`, `14:00:00.25`, `PT1.5S`. What is beyond the calendar
/// is a number with its unit, as for timestamps.
pub(super) fn text(array: &ArrayRef) -> Result<ArrayRef, Error> {
    let options = FormatOptions::default();
    let formatter = ArrayFormatter::try_new(array, &options).map_err(broken)?;
    let text = |row: usize| -> Result<Option<String>, Error> {
        if array.is_null(row) {
            return Ok(None);
        }
        let text = formatter.value(row).try_to_string();
        text.or_else(|error| number_with_unit(array, row).ok_or(error)).map(Some).map_err(|error| {
            Error::invalid(format!("a {} cannot be shown: {error}", array.data_type()))
        })
    };
    let texts: Result<StringArray, Error> = (0..array.len()).map(text).collect();
    Ok(Arc::new(texts?))
}

/// `2147483647d`. `None` for types that are no number of units.
fn number_with_unit(array: &ArrayRef, row: usize) -> Option<String> {
    let unit = match array.data_type() {
        DataType::Date32 => "d",
        DataType::Date64 => "ms",
        DataType::Time32(unit) | DataType::Time64(unit) | DataType::Duration(unit) => {
            unit_name(*unit)
        }
        _ => return None,
    };
    let number = cast(&array.slice(row, 1), &DataType::Int64).ok()?;
    let number = number.as_primitive_opt::<Int64Type>()?;
    number.is_valid(0).then(|| format!("{}{unit}", number.value(0)))
}

fn unit_name(unit: TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Second => "s",
        TimeUnit::Millisecond => "ms",
        TimeUnit::Microsecond => "us",
        TimeUnit::Nanosecond => "ns",
    }
}

fn moments(array: &ArrayRef, unit: TimeUnit, has_zone: bool) -> ArrayRef {
    let name = unit_name(unit);
    let (values, nanos) = match unit {
        TimeUnit::Second => (array.as_primitive::<TimestampSecondType>().values(), 1_000_000_000),
        TimeUnit::Millisecond => {
            (array.as_primitive::<TimestampMillisecondType>().values(), 1_000_000)
        }
        TimeUnit::Microsecond => (array.as_primitive::<TimestampMicrosecondType>().values(), 1_000),
        TimeUnit::Nanosecond => (array.as_primitive::<TimestampNanosecondType>().values(), 1),
    };
    let text = |value: i64| match Timestamp::from_nanosecond(i128::from(value) * nanos) {
        Ok(moment) if has_zone => moment.to_string(),
        Ok(moment) => moment.to_string().trim_end_matches('Z').to_owned(),
        // Beyond the calendar.
        Err(_) => format!("{value}{name}"),
    };
    let each = values.iter().enumerate();
    let each = each.map(|(row, value)| (!array.is_null(row)).then(|| text(*value)));
    Arc::new(each.collect::<StringArray>())
}

fn object(array: &StructArray) -> Result<ArrayRef, Error> {
    let columns: Vec<ArrayRef> = array.columns().iter().map(column).collect::<Result<_, _>>()?;
    let fields: Vec<FieldRef> = array
        .fields()
        .iter()
        .zip(&columns)
        .map(|(field, column)| plain_field(field, column))
        .collect();
    let plain = StructArray::try_new_with_length(
        fields.into(),
        columns,
        array.nulls().cloned(),
        array.len(),
    );
    Ok(Arc::new(plain.map_err(broken)?))
}

fn list<O: OffsetSizeTrait>(
    array: &arrow_array::GenericListArray<O>,
    field: &FieldRef,
) -> Result<ArrayRef, Error> {
    let values = column(array.values())?;
    let field = plain_field(field, &values);
    let (offsets, nulls) = (array.offsets().clone(), array.nulls().cloned());
    let plain = arrow_array::GenericListArray::<O>::try_new(field, offsets, values, nulls);
    Ok(Arc::new(plain.map_err(broken)?))
}

fn fixed_size_list(array: &ArrayRef, field: &FieldRef, size: i32) -> Result<ArrayRef, Error> {
    let array = array.as_fixed_size_list();
    let values = column(array.values())?;
    let field = plain_field(field, &values);
    if size == 0 {
        // Without values, the length must be set explicitly.
        return Ok(new_null_array(&DataType::FixedSizeList(field, 0), array.len()));
    }
    let plain = FixedSizeListArray::try_new(field, size, values, array.nulls().cloned());
    Ok(Arc::new(plain.map_err(broken)?))
}

fn plain_field(field: &FieldRef, column: &ArrayRef) -> FieldRef {
    Arc::new(Field::new(field.name(), column.data_type().clone(), true))
}

fn broken(error: ArrowError) -> Error {
    Error::internal(error.to_string())
}
