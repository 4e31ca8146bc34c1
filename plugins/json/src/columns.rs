//! Values of one type as an Arrow column. Encodes nothing.

use std::sync::Arc;

use arrow_array::builder::{
    BinaryBuilder, BooleanBuilder, Float64Builder, Int64Builder, StringBuilder,
};
use arrow_array::{ArrayRef, ListArray, StructArray};
use arrow_buffer::{NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::Field;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Number, Value};

use crate::schema::JsonShape;

const OTHER_TYPE: &str = "a value is not of the type that the schema says";
const TOO_BIG: &str = "an integer does not fit into 64 bits";
const NOT_BASE64: &str = "a string is not base64";
const TOO_LONG: &str = "the values of one batch are longer than 2 GiB";

/// Collects the values of a column. A missing value is null.
pub(crate) enum ColumnBuilder {
    Bool(BooleanBuilder),
    Integer(Int64Builder),
    Number(Float64Builder),
    Text(StringBuilder),
    Bytes(BinaryBuilder),
    Any(StringBuilder),
    List { item: Box<Self>, ends: Vec<i32>, len: usize, nulls: NullBufferBuilder },
    Object { properties: Vec<(String, Self)>, len: usize, nulls: NullBufferBuilder },
}

/// A number that is an integer, in any spelling: `1.0` and `1e3` are, too.
fn whole(number: &Number) -> Option<i64> {
    /// Up to which integers differ as doubles.
    const EXACT: f64 = (1u64 << 53) as f64;
    number.as_i64().or_else(|| {
        let double = number.as_f64().filter(|_| !number.is_u64())?;
        (double.fract() == 0.0 && double.abs() < EXACT).then_some(double as i64)
    })
}

impl ColumnBuilder {
    pub(crate) fn new(shape: &JsonShape) -> Self {
        let nulls = || NullBufferBuilder::new(0);
        match shape {
            JsonShape::Bool => Self::Bool(BooleanBuilder::new()),
            JsonShape::Integer => Self::Integer(Int64Builder::new()),
            JsonShape::Number => Self::Number(Float64Builder::new()),
            JsonShape::Text => Self::Text(StringBuilder::new()),
            JsonShape::Bytes => Self::Bytes(BinaryBuilder::new()),
            JsonShape::Any => Self::Any(StringBuilder::new()),
            JsonShape::List(item) => {
                let item = Box::new(Self::new(item));
                Self::List { item, ends: vec![0], len: 0, nulls: nulls() }
            }
            JsonShape::Object(all) => {
                let each = all.iter().map(|(name, shape)| (name.clone(), Self::new(shape)));
                Self::Object { properties: each.collect(), len: 0, nulls: nulls() }
            }
        }
    }

    /// Whether a value can be appended: [`append`](Self::append) does not check.
    pub(crate) fn check(shape: &JsonShape, value: &Value) -> Result<(), &'static str> {
        match (shape, value) {
            (_, Value::Null)
            | (JsonShape::Any, _)
            | (JsonShape::Bool, Value::Bool(_))
            | (JsonShape::Number, Value::Number(_))
            | (JsonShape::Text, Value::String(_)) => Ok(()),
            (JsonShape::Integer, Value::Number(number)) => {
                whole(number).map(drop).ok_or(if number.is_u64() { TOO_BIG } else { OTHER_TYPE })
            }
            (JsonShape::Bytes, Value::String(text)) => {
                BASE64_STANDARD.decode(text).map(drop).map_err(|_| NOT_BASE64)
            }
            (JsonShape::List(item), Value::Array(values)) => {
                values.iter().try_for_each(|value| Self::check(item, value))
            }
            (JsonShape::Object(properties), Value::Object(values)) => {
                let mut known =
                    properties.iter().filter_map(|(name, shape)| Some((shape, values.get(name)?)));
                known.try_for_each(|(shape, value)| Self::check(shape, value))
            }
            _ => Err(OTHER_TYPE),
        }
    }

    /// Appends a value that was [checked](Self::check).
    pub(crate) fn append(&mut self, value: Option<&Value>) -> Result<(), &'static str> {
        let value = value.filter(|value| !value.is_null());
        match self {
            Self::Bool(of) => of.append_option(value.and_then(Value::as_bool)),
            Self::Integer(of) => of.append_option(value.and_then(Value::as_number).and_then(whole)),
            Self::Number(of) => of.append_option(value.and_then(Value::as_f64)),
            Self::Text(of) => of.append_option(value.and_then(Value::as_str)),
            Self::Bytes(of) => {
                let text = value.and_then(Value::as_str);
                of.append_option(text.and_then(|text| BASE64_STANDARD.decode(text).ok()));
            }
            Self::Any(of) => of.append_option(value.map(Value::to_string)),
            Self::List { item, ends, len, nulls } => {
                let values = value.and_then(Value::as_array);
                nulls.append(values.is_some());
                let values = values.map(Vec::as_slice).unwrap_or_default();
                values.iter().try_for_each(|value| item.append(Some(value)))?;
                *len += values.len();
                ends.push(i32::try_from(*len).map_err(|_| TOO_LONG)?);
            }
            Self::Object { properties, len, nulls } => {
                let values = value.and_then(Value::as_object);
                nulls.append(values.is_some());
                *len += 1;
                for (name, of) in properties {
                    of.append(values.and_then(|values| values.get(name)))?;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn finish(self, field: &Field) -> ArrayRef {
        use arrow_schema::DataType;
        match (self, field.data_type()) {
            (Self::Bool(mut of), _) => Arc::new(of.finish()),
            (Self::Integer(mut of), _) => Arc::new(of.finish()),
            (Self::Number(mut of), _) => Arc::new(of.finish()),
            (Self::Text(mut of) | Self::Any(mut of), _) => Arc::new(of.finish()),
            (Self::Bytes(mut of), _) => Arc::new(of.finish()),
            (Self::List { item, ends, mut nulls, .. }, DataType::List(of)) => {
                let ends = OffsetBuffer::new(ScalarBuffer::from(ends));
                let items = item.finish(of);
                Arc::new(ListArray::new(Arc::clone(of), ends, items, nulls.finish()))
            }
            (Self::Object { properties, len, mut nulls }, DataType::Struct(fields)) => {
                let each = properties.into_iter().zip(fields);
                let columns = each.map(|((_, of), field)| of.finish(field)).collect();
                let structs =
                    StructArray::try_new_with_length(fields.clone(), columns, nulls.finish(), len);
                Arc::new(structs.expect("the columns have the types of their fields"))
            }
            (Self::List { .. } | Self::Object { .. }, _) => {
                unreachable!("fields are made from the same shape")
            }
        }
    }
}
