//! The value of a field by which rows are told apart, of each row of a batch.

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, UInt64Type};
use arrow_array::{Array, Float64Array, Int64Array, RecordBatch, StringArray, UInt64Array};
use arrow_schema::DataType;
use sluice_model::cast::cast;
use sluice_model::{Error, FieldPath};

/// The values of a field.
pub(super) enum KeyColumn {
    Whole(Int64Array),
    Unsigned(UInt64Array),
    Number(Float64Array),
    Text(StringArray),
    /// The rows do not have the field.
    Absent,
}

/// A value, to compare with the next one.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Key {
    #[default]
    Null,
    Whole(i128),
    /// The bits of a number.
    Number(u64),
    Text(String),
}

impl KeyColumn {
    /// `Err` if the field is neither a number nor a text.
    pub(super) fn resolve(field: &FieldPath, columns: &RecordBatch) -> Result<Self, Error> {
        let Some(values) = field.resolve(columns) else { return Ok(Self::Absent) };
        let kind = values.data_type();
        let wanted = match kind {
            DataType::Boolean => DataType::Int64,
            DataType::UInt64 => DataType::UInt64,
            kind if kind.is_integer() => DataType::Int64,
            // Their digits, which no other number type has room for.
            kind if kind.is_decimal() => DataType::Utf8,
            kind if kind.is_numeric() => DataType::Float64,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
            other => {
                return Err(Error::invalid(format!(
                    "episodes: `change` names `{field}`, which is {other}: expected a number or a \
                     text"
                )));
            }
        };
        let values = cast(&values, &wanted)
            .map_err(|error| Error::internal(format!("values of `{field}`: {error}")))?;
        Ok(match wanted {
            DataType::Int64 => Self::Whole(values.as_primitive::<Int64Type>().clone()),
            DataType::UInt64 => Self::Unsigned(values.as_primitive::<UInt64Type>().clone()),
            DataType::Float64 => Self::Number(values.as_primitive::<Float64Type>().clone()),
            _ => Self::Text(values.as_string::<i32>().clone()),
        })
    }

    /// Makes `key` the value of a row. Returns whether it was another one.
    pub(super) fn replace(&self, row: usize, key: &mut Key) -> bool {
        let next = match self {
            Self::Text(texts) if texts.is_valid(row) => {
                let text = texts.value(row);
                if matches!(key, Key::Text(known) if known == text) {
                    return false;
                }
                Key::Text(text.to_owned())
            }
            Self::Whole(values) if values.is_valid(row) => Key::Whole(values.value(row).into()),
            Self::Unsigned(values) if values.is_valid(row) => Key::Whole(values.value(row).into()),
            // Both zeros are one value.
            Self::Number(values) if values.is_valid(row) => {
                Key::Number((values.value(row) + 0.0).to_bits())
            }
            _ => Key::Null,
        };
        let is_other = next != *key;
        *key = next;
        is_other
    }
}
