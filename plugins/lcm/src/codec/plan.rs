//! The plan of a type: the steps that decode a payload from first to last byte, and how columns are
//! built. Reads no payload.
//!
//! Adjacent members of fixed size form one [`Region`]. Between regions are strings, counted arrays
//! and lists. Values go into numbered *slots*, flat vectors, and [`ColumnNode`]s say how slots
//! become Arrow arrays. Members that take no bytes have no column.

use std::ops::Range;
use std::sync::Arc;

use arrow_schema::{DataType, FieldRef, Fields, SchemaRef};

use crate::types::TypeId;
use crate::types::syntax::Primitive;

/// How messages of a type are decoded and encoded.
#[derive(Debug)]
pub(crate) struct MessagePlan {
    pub(crate) program: Program,
    pub(crate) slots: Vec<SlotKind>,
    pub(crate) columns: Vec<ColumnNode>,
    pub(crate) schema: SchemaRef,
    pub(crate) regions: usize,
    pub(crate) registers: usize,
}

/// The steps for one row, in order.
#[derive(Debug, Default)]
pub(crate) struct Program {
    pub(crate) ops: Vec<Op>,
    /// Fewest bytes of a row.
    pub(crate) min_len: usize,
    /// Zero-byte elements in arrays of fixed size, per row.
    pub(crate) empty_elements: usize,
}

/// One step of a program.
#[derive(Debug)]
pub(crate) enum Op {
    Region(Region),
    /// A string, into a slot of texts.
    Text {
        slot: usize,
    },
    /// Bytes, counted by a register, into a slot of bytes.
    Bytes {
        slot: usize,
        count: usize,
    },
    /// Number arrays counted by a register, `per_element` numbers each.
    Numbers {
        offsets: usize,
        leaf: NumberArray,
        count: usize,
    },
    /// Rows of another program, counted by a register.
    List {
        offsets: usize,
        count: usize,
        item: Program,
    },
    /// Rows of another program, a fixed number of them.
    Repeat {
        count: usize,
        item: Program,
    },
    /// A value kept as raw bytes, into a slot of bytes.
    Opaque {
        slot: usize,
        of: TypeId,
    },
}

/// The numbers of a counted array.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NumberArray {
    pub(crate) slot: usize,
    pub(crate) width: usize,
    pub(crate) per_element: usize,
    pub(crate) are_booleans: bool,
}

/// Adjacent members of fixed size.
#[derive(Debug, Default)]
pub(crate) struct Region {
    /// Index in the plan.
    pub(crate) id: usize,
    pub(crate) size: usize,
    pub(crate) leaves: Vec<Leaf>,
    /// Ranges of booleans; each byte has to be 0 or 1.
    pub(crate) booleans: Vec<Range<usize>>,
    /// Members that count the elements of a later member.
    pub(crate) counts: Vec<CountField>,
}

/// Numbers in a region that go into one slot.
#[derive(Clone, Debug)]
pub(crate) struct Leaf {
    pub(crate) slot: usize,
    pub(crate) width: usize,
    /// Offsets in the record, in slot order.
    pub(crate) offsets: Vec<usize>,
    /// Adjacent numbers at each offset.
    pub(crate) run: usize,
}

/// A number in a region that goes into a register.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CountField {
    pub(crate) offset: usize,
    pub(crate) width: usize,
    pub(crate) register: usize,
}

impl CountField {
    /// The number in this record.
    #[inline]
    pub(crate) fn read(&self, record: &[u8]) -> i64 {
        let bytes = record.get(self.offset..).unwrap_or_default();
        match self.width {
            1 => bytes.first_chunk().map_or(0, |b| i8::from_be_bytes(*b).into()),
            2 => bytes.first_chunk().map_or(0, |b| i16::from_be_bytes(*b).into()),
            4 => bytes.first_chunk().map_or(0, |b| i32::from_be_bytes(*b).into()),
            _ => bytes.first_chunk().map_or(0, |b| i64::from_be_bytes(*b)),
        }
    }
}

/// The kind of values in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotKind {
    /// Numbers of this many bytes.
    Numbers(usize),
    /// List offsets.
    Offsets,
    /// Strings or bytes, with their offsets.
    Bytes,
}

/// How slots become an Arrow array.
#[derive(Debug)]
pub(crate) enum ColumnNode {
    Number { slot: usize, of: Primitive },
    FixedBytes { slot: usize, size: usize },
    Text { slot: usize },
    Bytes { slot: usize },
    FixedList { size: usize, field: FieldRef, item: Box<ColumnNode> },
    List { offsets: usize, field: FieldRef, item: Box<ColumnNode> },
    Struct { fields: Fields, children: Vec<ColumnNode> },
}

impl ColumnNode {
    /// The Arrow type of the array.
    pub(crate) fn data_type(&self) -> DataType {
        match self {
            Self::Number { of, .. } => arrow_type(*of),
            Self::FixedBytes { size, .. } => DataType::FixedSizeBinary(*size as i32),
            Self::Text { .. } => DataType::Utf8,
            Self::Bytes { .. } => DataType::Binary,
            Self::FixedList { size, field, .. } => {
                DataType::FixedSizeList(Arc::clone(field), *size as i32)
            }
            Self::List { field, .. } => DataType::List(Arc::clone(field)),
            Self::Struct { fields, .. } => DataType::Struct(fields.clone()),
        }
    }
}

fn arrow_type(of: Primitive) -> DataType {
    match of {
        Primitive::Int8 => DataType::Int8,
        Primitive::Int16 => DataType::Int16,
        Primitive::Int32 => DataType::Int32,
        Primitive::Int64 => DataType::Int64,
        Primitive::Byte => DataType::UInt8,
        Primitive::Float => DataType::Float32,
        Primitive::Double => DataType::Float64,
        Primitive::String => DataType::Utf8,
        Primitive::Boolean => DataType::Boolean,
    }
}

/// Bytes of one value; `None` for strings.
pub(crate) fn width(of: Primitive) -> Option<usize> {
    Some(match of {
        Primitive::Int8 | Primitive::Byte | Primitive::Boolean => 1,
        Primitive::Int16 => 2,
        Primitive::Int32 | Primitive::Float => 4,
        Primitive::Int64 | Primitive::Double => 8,
        Primitive::String => return None,
    })
}
