//! The types of columns as JSON, which channels carry in their metadata.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, SchemaRef, TimeUnit};
use serde::{Deserialize, Serialize};

/// The longest list or binary value of fixed length.
const MAX_LEN: i32 = 1 << 24;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ColumnType {
    name: String,
    #[serde(rename = "type")]
    of: TypeText,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    nullable: bool,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    metadata: BTreeMap<String, String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum TypeText {
    Bool,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F32,
    F64,
    Utf8,
    Binary,
    FixedBinary(i32),
    List(Box<ColumnType>),
    FixedList(Box<ColumnType>, i32),
    Struct(Vec<ColumnType>),
    /// With the time zone, if any.
    Timestamp(UnitText, Option<String>),
    Date32,
    Date64,
    Time32(UnitText),
    Time64(UnitText),
    Duration(UnitText),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum UnitText {
    S,
    Ms,
    Us,
    Ns,
}

impl From<TimeUnit> for UnitText {
    fn from(unit: TimeUnit) -> Self {
        match unit {
            TimeUnit::Second => Self::S,
            TimeUnit::Millisecond => Self::Ms,
            TimeUnit::Microsecond => Self::Us,
            TimeUnit::Nanosecond => Self::Ns,
        }
    }
}

impl From<UnitText> for TimeUnit {
    fn from(unit: UnitText) -> Self {
        match unit {
            UnitText::S => Self::Second,
            UnitText::Ms => Self::Millisecond,
            UnitText::Us => Self::Microsecond,
            UnitText::Ns => Self::Nanosecond,
        }
    }
}

/// The types of columns as text; `Err` for types that no plan stores.
pub(super) fn to_text(columns: &Schema) -> Result<String, String> {
    let columns = column_types(columns.fields())?;
    serde_json::to_string(&columns).map_err(|e| e.to_string())
}

/// The columns that a text, which may be untrusted, describes.
pub(super) fn from_text(text: &str) -> Result<SchemaRef, String> {
    let columns: Vec<ColumnType> = serde_json::from_str(text).map_err(|e| e.to_string())?;
    Ok(Arc::new(Schema::new(fields(columns)?)))
}

fn column_types(columns: &Fields) -> Result<Vec<ColumnType>, String> {
    columns.iter().map(|column| column_type(column)).collect()
}

fn column_type(column: &Field) -> Result<ColumnType, String> {
    let metadata = column.metadata().iter();
    Ok(ColumnType {
        name: column.name().clone(),
        of: type_text(column.data_type())?,
        nullable: column.is_nullable(),
        metadata: metadata.map(|(key, value)| (key.clone(), value.clone())).collect(),
    })
}

fn type_text(of: &DataType) -> Result<TypeText, String> {
    Ok(match of {
        DataType::Boolean => TypeText::Bool,
        DataType::Int8 => TypeText::I8,
        DataType::Int16 => TypeText::I16,
        DataType::Int32 => TypeText::I32,
        DataType::Int64 => TypeText::I64,
        DataType::UInt8 => TypeText::U8,
        DataType::UInt16 => TypeText::U16,
        DataType::UInt32 => TypeText::U32,
        DataType::UInt64 => TypeText::U64,
        DataType::Float32 => TypeText::F32,
        DataType::Float64 => TypeText::F64,
        DataType::Utf8 => TypeText::Utf8,
        DataType::Binary => TypeText::Binary,
        DataType::FixedSizeBinary(len) => TypeText::FixedBinary(*len),
        DataType::List(item) => TypeText::List(Box::new(column_type(item)?)),
        DataType::FixedSizeList(item, len) => {
            TypeText::FixedList(Box::new(column_type(item)?), *len)
        }
        DataType::Struct(fields) => TypeText::Struct(column_types(fields)?),
        DataType::Timestamp(unit, zone) => {
            TypeText::Timestamp((*unit).into(), zone.as_deref().map(str::to_owned))
        }
        DataType::Date32 => TypeText::Date32,
        DataType::Date64 => TypeText::Date64,
        DataType::Time32(unit) => TypeText::Time32((*unit).into()),
        DataType::Time64(unit) => TypeText::Time64((*unit).into()),
        DataType::Duration(unit) => TypeText::Duration((*unit).into()),
        other => return Err(format!("{other} is not stored")),
    })
}

fn fields(columns: Vec<ColumnType>) -> Result<Vec<FieldRef>, String> {
    columns.into_iter().map(field).collect()
}

fn field(column: ColumnType) -> Result<FieldRef, String> {
    let ColumnType { name, of, nullable, metadata } = column;
    let metadata: HashMap<String, String> = metadata.into_iter().collect();
    Ok(Arc::new(Field::new(name, data_type(of)?, nullable).with_metadata(metadata)))
}

fn data_type(of: TypeText) -> Result<DataType, String> {
    let length = |len: i32| match len {
        0..=MAX_LEN => Ok(len),
        _ => Err(format!("a length of {len} is out of range")),
    };
    Ok(match of {
        TypeText::Bool => DataType::Boolean,
        TypeText::I8 => DataType::Int8,
        TypeText::I16 => DataType::Int16,
        TypeText::I32 => DataType::Int32,
        TypeText::I64 => DataType::Int64,
        TypeText::U8 => DataType::UInt8,
        TypeText::U16 => DataType::UInt16,
        TypeText::U32 => DataType::UInt32,
        TypeText::U64 => DataType::UInt64,
        TypeText::F32 => DataType::Float32,
        TypeText::F64 => DataType::Float64,
        TypeText::Utf8 => DataType::Utf8,
        TypeText::Binary => DataType::Binary,
        TypeText::FixedBinary(len) => DataType::FixedSizeBinary(length(len)?),
        TypeText::List(item) => DataType::List(field(*item)?),
        TypeText::FixedList(item, len) => DataType::FixedSizeList(field(*item)?, length(len)?),
        TypeText::Struct(columns) => DataType::Struct(fields(columns)?.into()),
        TypeText::Timestamp(unit, zone) => DataType::Timestamp(unit.into(), zone.map(Into::into)),
        TypeText::Date32 => DataType::Date32,
        TypeText::Date64 => DataType::Date64,
        TypeText::Time32(unit @ (UnitText::S | UnitText::Ms)) => DataType::Time32(unit.into()),
        TypeText::Time64(unit @ (UnitText::Us | UnitText::Ns)) => DataType::Time64(unit.into()),
        TypeText::Time32(_) | TypeText::Time64(_) => {
            return Err("a time of day in a unit that it cannot have".into());
        }
        TypeText::Duration(unit) => DataType::Duration(unit.into()),
    })
}
