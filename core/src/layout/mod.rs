//! Layouts: payloads that are little-endian fields one behind another, as Arrow columns and back. For
//! codecs: what a layout is called, and which payloads are of it, is theirs to say.
//!
//! | shape | column |
//! |---|---|
//! | [`NumberType`] | as it is |
//! | [`FieldShape::Bool`] | `Boolean` |
//! | [`FieldShape::Enum`] | `Int32`, with the names in the field's metadata as `sluice.enum` |
//! | [`FieldShape::Text`] | `Utf8`; bytes that are none become `\xNN`, see [`crate::name::escaped`] |
//! | [`FieldShape::Bytes`], [`FieldShape::Rest`], a list of bytes | `Binary` |
//! | [`FieldShape::Fixed`], [`FieldShape::List`], [`FieldShape::Counted`] | `FixedSizeList`, `List` |
//! | [`FieldShape::Struct`] | `Struct` |
//! | [`FieldShape::Variant`] | nullable `Struct` of all that its cases have; `class` says which it is, where there are several |
//! | what takes no bytes | none |
//!
//! Both ways are inverse: a payload that would not come back byte for byte is refused.

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

/// The key of a field's metadata under which the names of an enum's values stand, as a JSON object.
pub const ENUM: &str = "sluice.enum";

/// Why a payload or a row is refused. Reasons are few, and hold nothing of it.
pub type LayoutError = &'static str;

/// How values are written that formats write in different ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireRules {
    /// Bytes of a boolean. It is written as 0 or 1; see [`crate::booleans`] for others.
    pub booleans: usize,
    /// How the length of a text or list is written in front of it.
    pub lengths: LengthEncoding,
}

/// How a length is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LengthEncoding {
    /// As 32 bits.
    U32,
    /// As one byte, or as 255 and 32 bits where it is 255 or more.
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
    /// Its bytes.
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

/// What a field is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldShape {
    /// A number.
    Number(NumberType),
    /// A boolean.
    Bool,
    /// One of these values: a byte, two where there are more than 127, four where more than 32767.
    Enum(Vec<(String, i32)>),
    /// A text with its length.
    Text,
    /// Bytes with their number.
    Bytes,
    /// Always as many.
    Fixed(Box<FieldShape>, usize),
    /// As many as a length in front of them says.
    List(Box<FieldShape>),
    /// As many as an earlier member of the same struct says, a whole number; by its place.
    Counted(Box<FieldShape>, usize),
    /// Members one behind another.
    Struct(Vec<LayoutField>),
    /// A byte that says which of these follows, from 1 on; nothing, if it is 0.
    Variant(Vec<(String, Vec<LayoutField>)>),
    /// All that is left of the payload.
    Rest,
}

/// A field with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayoutField {
    /// Its name.
    pub name: String,
    /// What it is.
    pub shape: FieldShape,
}

impl LayoutField {
    /// A member of that name and shape.
    pub fn new(name: impl Into<String>, shape: FieldShape) -> Self {
        Self { name: name.into(), shape }
    }
}

/// What payloads of one type are made of. Cheap to share, the same for the whole run.
#[derive(Debug)]
pub struct PayloadLayout {
    compiled: CompiledLayout,
    schema: SchemaRef,
}

impl PayloadLayout {
    /// The layout of payloads with these members. `Err` says why there can be no columns of them.
    pub fn new(wire: WireRules, members: &[LayoutField]) -> Result<Self, String> {
        let compiled = compile(wire, members)?;
        let schema = Arc::new(Schema::new(compiled.fields.clone()));
        Ok(Self { compiled, schema })
    }

    /// Its columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Rows in the making.
    pub fn rows(&self) -> LayoutRows<'_> {
        LayoutRows::new(self)
    }

    /// Columns out of which payloads are made: by name, as far as they can be cast without loss. A row of
    /// which anything is lost is refused when it is written.
    ///
    /// `Err` says which column is missing or of another type.
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
