//! The types that columns have in a table, and the columns of messages in these types.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields, IntervalUnit, Schema, TimeUnit};
use sluice_model::cast::{cast, cast_exact};
use sluice_model::{Error, Rows};

use crate::input::{as_stored, check_fields, map_leaves};

/// The type that a table has for an Arrow type.
///
/// Parquet has no times in seconds and no dates in milliseconds, which would be plain numbers: they
/// are times in milliseconds, and dates in days. It has one layout for lists, and for repeated
/// values. A struct without members is a boolean: whether it is there.
pub(crate) fn table_type(data_type: &DataType) -> DataType {
    type_with_dates(data_type, &DataType::Date32)
}

/// The same with this type for dates in milliseconds.
fn type_with_dates(data_type: &DataType, date: &DataType) -> DataType {
    let inner = |data_type: &DataType| type_with_dates(data_type, date);
    map_leaves(data_type, &|leaf| match leaf {
        DataType::Timestamp(TimeUnit::Second, zone) => {
            DataType::Timestamp(TimeUnit::Millisecond, zone.clone())
        }
        DataType::Time32(TimeUnit::Second) => DataType::Time32(TimeUnit::Millisecond),
        DataType::Date64 => date.clone(),
        DataType::Struct(_) => DataType::Boolean,
        DataType::ListView(item) => inner(&DataType::List(Arc::clone(item))),
        DataType::LargeListView(item) => inner(&DataType::LargeList(Arc::clone(item))),
        DataType::RunEndEncoded(_, values) => inner(values.data_type()),
        DataType::Dictionary(key, value) => {
            DataType::Dictionary(key.clone(), Box::new(inner(value)))
        }
        other => other.clone(),
    })
}

/// The field of this name with the type that a table has for its own. `Err` for values that do not
/// fit into it.
pub(crate) fn in_table_type(column: &ArrayRef, name: &str, rows: &Rows) -> Result<ArrayRef, Error> {
    let data_type = table_type(column.data_type());
    if *column.data_type() == data_type {
        return Ok(Arc::clone(column));
    }
    let with_members = type_with_members(column.data_type());
    let column = match *column.data_type() == with_members {
        true => Ok(Arc::clone(column)),
        false => as_stored(column, &with_members),
    };
    column.and_then(|column| cast_with_whole_days(&column, &data_type)).map_err(|e| {
        Error::invalid(format!(
            "a value in the field `{name}` of the type `{}` does not fit into a table, which has \
             dates in whole days, and times in seconds as milliseconds; leave out the field, or \
             its event: {e}",
            rows.message.name
        ))
    })
}

/// The type with booleans for structs without members, which Arrow does not cast.
fn type_with_members(data_type: &DataType) -> DataType {
    map_leaves(data_type, &|leaf| match leaf {
        DataType::Struct(_) => DataType::Boolean,
        other => other.clone(),
    })
}

/// The column with this type of a table. Arrow's own cast cuts the time of day off a date.
fn cast_with_whole_days(column: &ArrayRef, data_type: &DataType) -> Result<ArrayRef, ArrowError> {
    let exact_type = type_with_dates(column.data_type(), &DataType::Date64);
    let exact = cast_exact(column, &exact_type)?;
    let days = cast_exact(&exact, data_type)?;
    if exact_type != *data_type && *cast(&days, &exact_type)? != *exact {
        return Err(ArrowError::CastError("a date has a time of day".to_owned()));
    }
    Ok(days)
}

/// Checks that a table can have columns of these fields, and that they could be read back. `Err`
/// names the first that it cannot have.
pub(crate) fn check_types(fields: &Fields) -> Result<(), String> {
    check_fields(fields)?;
    let missing = |field: &FieldRef| {
        missing_type(&table_type(field.data_type())).or_else(|| unconverted_struct(field))
    };
    let missing = fields.iter().find_map(|field| Some((field, missing(field)?)));
    missing.map_or(Ok(()), |(field, what)| {
        Err(format!("the field `{}` is or has {what}, which Parquet does not have", field.name()))
    })
}

/// The structs without members in this field that [`as_stored`] does not make booleans, or only
/// together with a map, which it makes a list.
fn unconverted_struct(field: &FieldRef) -> Option<&'static str> {
    let with_members = type_with_members(field.data_type());
    let is_changed = with_members != *field.data_type();
    let schema = Schema::new(vec![Field::new("", with_members, true)]);
    let mut what = None;
    for field in schema.flattened_fields() {
        match field.data_type() {
            DataType::Map(..) if is_changed => what = Some("a map and a struct without members"),
            DataType::Dictionary(_, value) if is_empty_struct(value) => return Some(HIDDEN_STRUCT),
            data_type if is_empty_struct(data_type) => return Some(HIDDEN_STRUCT),
            _ => {}
        }
    }
    what
}

const HIDDEN_STRUCT: &str =
    "a struct without members in a view of lists, a dictionary or repeated values";

fn is_empty_struct(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Struct(fields) if fields.is_empty())
}

/// The first type in this one of a table that Parquet does not have.
fn missing_type(data_type: &DataType) -> Option<&'static str> {
    let within = |field: &FieldRef| missing_type(field.data_type());
    match data_type {
        DataType::Union(..) => Some("a union"),
        DataType::Interval(IntervalUnit::MonthDayNano) => {
            Some("an interval of months, days and nanoseconds")
        }
        DataType::Struct(fields) => fields.iter().find_map(within),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => within(item),
        DataType::Dictionary(_, value) => match &**value {
            DataType::Dictionary(..) => Some("a dictionary of dictionaries"),
            value if value.is_nested() => Some("a dictionary of structs or lists"),
            value => missing_type(value),
        },
        _ => None,
    }
}
