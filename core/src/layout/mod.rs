//! Layouts: payloads of consecutive little-endian fields, as Arrow columns and back. A building
//! block for codecs, which name layouts and decide which payloads have them.
//!
//! | shape | column |
//! |---|---|
//! | [`NumberType`] | the same type |
//! | [`FieldShape::Bool`] | `Boolean` |
//! | [`FieldShape::Enum`] | `Int32`, with the names in the field's metadata as `sluice.enum` |
//! | [`FieldShape::Text`] | `Utf8`, [`escaped`](crate::name::escaped) if it is not UTF-8 |
//! | [`FieldShape::Bytes`], [`FieldShape::Rest`], a list of bytes | `Binary` |
//! | [`FieldShape::Fixed`] | `FixedSizeList` |
//! | [`FieldShape::List`], [`FieldShape::Counted`] | `List` |
//! | [`FieldShape::Struct`] | `Struct` |
//! | [`FieldShape::Variant`] | nullable `Struct` of all members; `class` if it has several cases |
//! | fields without bytes | none |
//!
//! Decoding and encoding are inverse: a payload that would not be reproduced byte for byte is
//! refused.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};

mod compile;
mod decoding;
mod encoding;
mod plain;
mod wire;

#[cfg(test)]
mod tests;

pub use decoding::LayoutRows;
pub use encoding::{LayoutColumns, as_type};
pub use plain::{PlainType, decode, encode};

use compile::{CompiledLayout, compile};

/// The key in a field's metadata for the names of an enum's values, as a JSON object.
pub const ENUM: &str = "sluice.enum";

/// Why a payload or a row is refused: a fixed text without data.
pub type LayoutError = &'static str;

/// The parts of the wire format that differ between formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireRules {
    /// The width of a boolean in bytes. It is written as 0 or 1; see [`crate::booleans`] for other
    /// values.
    pub booleans: usize,
    /// How the length prefix of text and lists is written.
    pub lengths: LengthEncoding,
}

/// How a length is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LengthEncoding {
    /// As 32 bits.
    U32,
    /// As one byte, or as 255 followed by 32 bits if it is 255 or more.
    Size,
}

/// A number, little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "their names say it")]
pub enum NumberType {
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F32,
    F64,
}

impl NumberType {
    /// Its width in bytes.
    pub fn width(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    fn data_type(self) -> DataType {
        match self {
            Self::I8 => DataType::Int8,
            Self::U8 => DataType::UInt8,
            Self::I16 => DataType::Int16,
            Self::U16 => DataType::UInt16,
            Self::I32 => DataType::Int32,
            Self::U32 => DataType::UInt32,
            Self::I64 => DataType::Int64,
            Self::U64 => DataType::UInt64,
            Self::F32 => DataType::Float32,
            Self::F64 => DataType::Float64,
        }
    }
}

/// The type of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldShape {
    /// A number.
    Number(NumberType),
    /// A boolean.
    Bool,
    /// One of these values: one byte, two if there are more than 127 values, four if more than
    /// 32767.
    Enum(Vec<(String, i32)>),
    /// Text with a length prefix.
    Text,
    /// Bytes with a length prefix.
    Bytes,
    /// A list of fixed length.
    Fixed(Box<FieldShape>, usize),
    /// A list with a length prefix.
    List(Box<FieldShape>),
    /// A list whose length is an earlier integer member of the same struct, given by its index.
    Counted(Box<FieldShape>, usize),
    /// Consecutive members.
    Struct(Vec<LayoutField>),
    /// A byte that selects which of these follows, counted from 1; 0 for none.
    Variant(Vec<(String, Vec<LayoutField>)>),
    /// The rest of the payload.
    Rest,
}

/// A named field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayoutField {
    /// Its name.
    pub name: String,
    /// Its type.
    pub shape: FieldShape,
}

impl LayoutField {
    /// A member of that name and shape.
    pub fn new(name: impl Into<String>, shape: FieldShape) -> Self {
        Self { name: name.into(), shape }
    }
}

/// The layout of payloads of one type. Immutable and cheap to share.
#[derive(Debug)]
pub struct PayloadLayout {
    compiled: CompiledLayout,
    schema: SchemaRef,
}

impl PayloadLayout {
    /// Compiles these members. `Err` says why they cannot become columns.
    pub fn new(wire: WireRules, members: &[LayoutField]) -> Result<Self, String> {
        let compiled = compile(wire, members)?;
        let schema = Arc::new(Schema::new(compiled.fields.clone()));
        Ok(Self { compiled, schema })
    }

    /// Its columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Starts decoding rows.
    pub fn rows(&self) -> LayoutRows<'_> {
        LayoutRows::new(self)
    }

    /// Prepares columns for encoding, found by name and cast if that loses nothing. Rows that the
    /// cast would change are refused when they are written.
    ///
    /// `Err` names the column that is missing or has the wrong type.
    pub fn columns(&self, columns: &RecordBatch) -> Result<LayoutColumns<'_>, String> {
        LayoutColumns::new(self, columns)
    }
}

fn field(name: &str, data_type: DataType, nullable: bool, shape: &FieldShape) -> FieldRef {
    let field = Field::new(name, data_type, nullable);
    let FieldShape::Enum(values) = shape else { return Arc::new(field) };
    let names: serde_json::Map<_, _> =
        values.iter().map(|(name, value)| (name.clone(), (*value).into())).collect();
    let metadata = HashMap::from([(ENUM.to_owned(), serde_json::Value::from(names).to_string())]);
    Arc::new(field.with_metadata(metadata))
}

fn element(item: DataType, nullable: bool) -> FieldRef {
    Arc::new(Field::new("item", item, nullable))
}

fn struct_type(fields: Vec<FieldRef>) -> DataType {
    DataType::Struct(Fields::from(fields))
}
