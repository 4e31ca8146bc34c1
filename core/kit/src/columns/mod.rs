//! Payloads of declared types as Arrow columns, and back: the building block of codecs.
//!
//! A codec describes the fields of a type ([`PayloadField`]) and the rules of its wire format
//! ([`WireRules`]). [`PayloadPlan::compile`] turns them into operations, which decode many payloads
//! at once, column by column, and encode rows. Which payload has which type is the codec's part.
//!
//! | shape | column |
//! |---|---|
//! | [`NumberType`] | the same type |
//! | [`FieldShape::Bool`] | `Boolean` |
//! | [`FieldShape::Enum`] | `Int32`, with the names in the field's metadata as `sluice.enum` |
//! | [`FieldShape::Text`] | `Utf8`, [`escaped`](sluice_io::escape::escaped) if it is not UTF-8 |
//! | [`FieldShape::Bytes`], [`FieldShape::CountedBytes`], a list of bytes | `Binary` |
//! | [`FieldShape::Rest`], [`FieldShape::Opaque`] | `Binary` |
//! | [`FieldShape::FixedBytes`] | `FixedSizeBinary` |
//! | [`FieldShape::Fixed`] | `FixedSizeList` |
//! | [`FieldShape::List`], [`FieldShape::Counted`] | `List` |
//! | [`FieldShape::Struct`] | `Struct` |
//! | [`FieldShape::Variant`] | nullable `Struct` of all members; `class` if it has several cases |
//! | [`FieldShape::RestList`] | `List` |
//! | [`FieldShape::Span`] | `Binary`, `Utf8` or none |
//! | [`FieldShape::Views`] | a column per view |
//! | fields without bytes | none |
//!
//! Decoding and encoding are inverse: a payload that would not be reproduced byte for byte is
//! refused. Plans whose columns leave something out, as views and skipped bytes do, only decode.

use std::fmt;
use std::sync::Arc;

use arrow_schema::DataType;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod arrays;
mod compile;
mod cursor;
mod decode;
mod encode;
mod gather;
mod odd_booleans;
mod plan;
mod program_builder;
mod records;
mod shape;
mod sources;

#[cfg(test)]
mod tests;

pub use compile::ENUM;
pub use cursor::{Faults, PayloadCursor};
pub use encode::RowEncoder;
pub use plan::PayloadPlan;

/// Why a payload or a row is refused: a fixed text without data, so that refusals can be counted.
pub type PayloadFault = &'static str;

/// The parts of the wire format that differ between formats.
#[derive(Clone, Copy, Debug)]
pub struct WireRules {
    /// The byte order of numbers and lengths.
    pub endian: Endian,
    /// The width of a boolean in bytes: 1, 2, 4 or 8. It is written as 0 or 1; see
    /// [`sluice_model::raw`] for other values.
    pub booleans: usize,
    /// How the length prefix of text, bytes and lists is written.
    pub lengths: LengthEncoding,
    /// How enums are written.
    pub enums: EnumEncoding,
    /// Numbers, and 32-bit lengths, start at a multiple of their width or of this, whichever is
    /// less, counted from the start of the payload. The bytes before them are zeros. A power of two
    /// of at most 8; 1 if nothing is aligned.
    pub alignment: usize,
    /// What is accepted.
    pub strictness: Strictness,
    /// The most columns, including nested ones.
    pub max_columns: usize,
    /// How deep shapes may nest.
    pub max_depth: usize,
    /// The most bytes of a list of fixed length.
    pub max_fixed_len: usize,
    /// What is said of payloads and rows that are refused.
    pub faults: &'static Faults,
}

impl WireRules {
    /// Little-endian, with booleans of one byte and lengths of 32 bits.
    pub const LITTLE_ENDIAN: Self = Self {
        endian: Endian::Little,
        booleans: 1,
        lengths: LengthEncoding::U32,
        enums: EnumEncoding::ByCount,
        alignment: 1,
        strictness: Strictness::Lossless,
        // Declarations can expand to billions.
        max_columns: 2_000,
        max_depth: 32,
        max_fixed_len: 16 << 20,
        faults: &Faults::DEFAULT,
    };
}

impl WireRules {
    /// The fewest bytes behind the length of a text.
    fn text_end(&self) -> usize {
        let has_nul = self.lengths == LengthEncoding::U32WithNul;
        usize::from(has_nul && self.strictness == Strictness::Lossless)
    }

    /// The alignment of numbers of this width.
    fn alignment_of(&self, width: usize) -> usize {
        // Numbers of 24 bits are not aligned.
        if width.is_power_of_two() { width.min(self.alignment).max(1) } else { 1 }
    }
}

/// Which payloads are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// Those that encoding reproduces.
    Lossless,
    /// Also those with other booleans than 0 and 1, other padding than zeros, empty text without
    /// its zero byte, and up to [`MAX_TAIL`] bytes behind the last field. Encoding gives another
    /// payload, and the difference has to be kept elsewhere.
    Lenient,
}

/// The most bytes behind the last field that lenient plans skip: what writers pad payloads with.
pub const MAX_TAIL: usize = 3;

/// The byte order of a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Endian {
    /// Least significant byte first.
    #[default]
    Little,
    /// Most significant byte first.
    Big,
}

/// How a length is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LengthEncoding {
    /// As 32 bits.
    U32,
    /// As 32 bits. Text ends with a zero byte, which its length includes.
    U32WithNul,
    /// As one byte, or as 255 followed by 32 bits if it is 255 or more.
    Size,
}

impl LengthEncoding {
    /// The bytes of an empty list.
    fn width(self) -> usize {
        if self == Self::Size { 1 } else { 4 }
    }
}

/// How an enum is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnumEncoding {
    /// One unsigned byte; two bytes if there are more than 127 values, four if more than 32767.
    ByCount,
    /// Four bytes.
    I32,
}

impl EnumEncoding {
    fn width(self, values: usize) -> usize {
        match (self, values) {
            (Self::ByCount, 0..=127) => 1,
            (Self::ByCount, 128..=32_767) => 2,
            _ => 4,
        }
    }
}

/// A type of number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "their names say it")]
pub enum NumberType {
    I8,
    U8,
    I16,
    U16,
    I24,
    U24,
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
            Self::I24 | Self::U24 => 3,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    /// Whether it is a floating-point number.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64)
    }

    /// Whether it is signed.
    pub fn is_signed(self) -> bool {
        !matches!(self, Self::U8 | Self::U16 | Self::U24 | Self::U32 | Self::U64)
    }

    fn data_type(self) -> DataType {
        match self {
            Self::I8 => DataType::Int8,
            Self::U8 => DataType::UInt8,
            Self::I16 => DataType::Int16,
            Self::U16 => DataType::UInt16,
            Self::I24 | Self::I32 => DataType::Int32,
            Self::U24 | Self::U32 => DataType::UInt32,
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
    /// One of these values.
    Enum(Vec<(String, i32)>),
    /// Text with a length prefix.
    Text,
    /// Bytes with a length prefix.
    Bytes,
    /// This many bytes.
    FixedBytes(usize),
    /// Bytes, as many as an earlier integer member of the same struct says, given by its index.
    CountedBytes(usize),
    /// A list of fixed length.
    Fixed(Box<FieldShape>, usize),
    /// A list with a length prefix.
    List(Box<FieldShape>),
    /// A list whose length is an earlier integer member of the same struct, given by its index.
    Counted(Box<FieldShape>, usize),
    /// Consecutive members.
    Struct(Vec<PayloadField>),
    /// A byte that selects which of these follows, counted from 1; 0 for none.
    Variant(Vec<(String, Vec<PayloadField>)>),
    /// A value that is kept as its bytes.
    Opaque(OpaqueValue),
    /// The rest of the payload.
    Rest,
    /// A list of numbers until this many bytes before the end of the payload.
    RestList(Box<FieldShape>, usize),
    /// Bytes of this extent. Only plans without encoding have other spans than
    /// [`SpanKind::Bytes`].
    Span(SpanKind, Extent),
    /// A number, or a list of numbers, of this byte order.
    InOrder(Endian, Box<FieldShape>),
    /// Columns of what a number, or a list of numbers, says; the field has none of its own. Plans
    /// with such a field do not encode.
    Views(Box<FieldShape>, Vec<NumberView>),
}

/// What the bytes of a span are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// Bytes.
    Bytes,
    /// Text up to the first zero byte, without trailing blanks.
    TrimmedText,
    /// Nothing: there is no column.
    Skipped,
}

/// Where a span ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// After this many bytes.
    Fixed(usize),
    /// After as many bytes as an earlier integer member says, given by its index.
    Counted(usize),
    /// This many bytes before the end of the payload.
    Rest(usize),
}

/// A column of what a number says.
#[derive(Clone, Debug, PartialEq)]
pub struct NumberView {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: ViewKind,
}

impl Eq for NumberView {}

/// What a column says of a number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ViewKind {
    /// The number itself. The last of the views of a number.
    Value,
    /// The number times a factor, plus an offset.
    Scaled(f64, f64),
    /// One bit.
    Flag(u32),
    /// The lowest of some bits, and how many there are.
    Bits(u32, u32),
    /// Whether it is not 0.
    NonZero,
}

/// A value whose end only the format can find, such as one that holds itself.
#[derive(Clone)]
pub struct OpaqueValue(Arc<SkipValue>);

/// Moves a cursor behind the value at its start.
type SkipValue = dyn Fn(&mut PayloadCursor<'_>) -> Result<(), PayloadFault> + Send + Sync;

impl OpaqueValue {
    /// A value that `skip` moves a cursor behind. It takes at least a byte.
    pub fn new(
        skip: impl Fn(&mut PayloadCursor<'_>) -> Result<(), PayloadFault> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(skip))
    }

    fn skip<'b>(&self, cursor: &mut PayloadCursor<'b>) -> Result<&'b [u8], PayloadFault> {
        let before = cursor.rest();
        (self.0)(cursor)?;
        Ok(before.get(..before.len() - cursor.rest().len()).unwrap_or_default())
    }
}

impl fmt::Debug for OpaqueValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OpaqueValue")
    }
}

impl PartialEq for OpaqueValue {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for OpaqueValue {}

/// A named field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PayloadField {
    /// Its name.
    pub name: String,
    /// Its type.
    pub shape: FieldShape,
}

impl PayloadField {
    /// A member of that name and shape.
    pub fn new(name: impl Into<String>, shape: FieldShape) -> Self {
        Self { name: name.into(), shape }
    }
}
