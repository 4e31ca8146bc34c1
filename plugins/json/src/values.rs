//! Rows of columns as JSON values. Decodes nothing.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{Array, ArrayRef};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Number, Value};

use crate::schema::JsonShape;

const NOT_A_NUMBER: &str = "JSON has no number for infinity and what is not a number";
const NOT_JSON: &str = "a text that stands for any value is not JSON";

/// The value of a row; `None` for null. The column has the type of the shape.
pub(crate) fn value(
    shape: &JsonShape,
    column: &ArrayRef,
    row: usize,
) -> Result<Option<Value>, &'static str> {
    if column.is_null(row) {
        return Ok(None);
    }
    let value = match shape {
        JsonShape::Bool => Value::Bool(column.as_boolean().value(row)),
        JsonShape::Integer => column.as_primitive::<Int64Type>().value(row).into(),
        JsonShape::Number => {
            let number = Number::from_f64(column.as_primitive::<Float64Type>().value(row));
            Value::Number(number.ok_or(NOT_A_NUMBER)?)
        }
        JsonShape::Text => column.as_string::<i32>().value(row).into(),
        JsonShape::Bytes => BASE64_STANDARD.encode(column.as_binary::<i32>().value(row)).into(),
        JsonShape::Any => {
            serde_json::from_str(column.as_string::<i32>().value(row)).map_err(|_| NOT_JSON)?
        }
        JsonShape::List(item) => {
            let items = column.as_list::<i32>().value(row);
            let value = |row| value(item, &items, row).map(Option::unwrap_or_default);
            Value::Array((0..items.len()).map(value).collect::<Result<_, _>>()?)
        }
        JsonShape::Object(properties) => {
            object(properties, column.as_struct().columns(), row)?.into()
        }
    };
    Ok(Some(value))
}

/// The object of a row. Properties that are null are left out.
pub(crate) fn object(
    properties: &[(String, JsonShape)],
    columns: &[ArrayRef],
    row: usize,
) -> Result<Map<String, Value>, &'static str> {
    let mut object = Map::new();
    for ((name, shape), column) in properties.iter().zip(columns) {
        if let Some(value) = value(shape, column, row)? {
            object.insert(name.clone(), value);
        }
    }
    Ok(object)
}
