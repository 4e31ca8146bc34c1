//! What fields of messages are as columns: the common form of what descriptors declare
//! (`from_descriptor`) and of what columns need (`from_columns`). Reads no message.

use std::sync::Arc;

use arrow_schema::{DataType, FieldRef, Schema, SchemaRef};

use crate::wire::{WireType, tag};

mod from_columns;
mod from_descriptor;

pub(crate) use from_columns::{compile_columns, restored_as, stored_as};
pub(crate) use from_descriptor::compile_message;

/// The most columns of a type, including nested ones: declarations can expand to billions.
const MAX_COLUMNS: usize = 2_000;
/// How deep messages may nest.
const MAX_DEPTH: usize = 32;

/// The fields of a message, by number.
#[derive(Clone, Debug, Default)]
pub(crate) struct MessagePlan {
    pub(crate) fields: Vec<FieldPlan>,
    /// The number of oneofs with several members.
    pub(crate) oneofs: usize,
    /// Whether it is an entry of a map: a key, which no other entry of the map has, and its value.
    pub(crate) is_map_entry: bool,
}

impl MessagePlan {
    /// The columns of its fields.
    pub(crate) fn schema(&self) -> SchemaRef {
        let fields = self.fields.iter().map(|field| Arc::clone(&field.column));
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }
}

/// A field and its column.
#[derive(Clone, Debug)]
pub(crate) struct FieldPlan {
    /// Its name in descriptors.
    pub(crate) name: String,
    pub(crate) number: u32,
    /// The tag that writers put in front of it.
    pub(crate) tag: u32,
    pub(crate) presence: Presence,
    pub(crate) value: ValuePlan,
    /// Its oneof, if that has several members.
    pub(crate) oneof: Option<usize>,
    /// Its column.
    pub(crate) column: FieldRef,
}

impl FieldPlan {
    pub(crate) fn new(
        (name, number): (String, u32),
        presence: Presence,
        value: ValuePlan,
        column: FieldRef,
    ) -> Self {
        let wire_type = match presence {
            Presence::List { is_packed: true, .. } => WireType::Len,
            _ => value.wire_type(),
        };
        let tag = tag(number, wire_type);
        Self { name, number, tag, presence, value, oneof: None, column }
    }
}

/// When a field is written, and what its column holds otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// Unless it is zero or empty.
    Implicit,
    /// Unless it is null.
    Optional,
    /// Always.
    Always,
    /// Any number of times.
    List {
        /// As one field with all elements.
        is_packed: bool,
        /// The number of elements, if that is fixed.
        len: Option<usize>,
    },
}

/// A value, or an element of a list.
#[derive(Clone, Debug)]
pub(crate) enum ValuePlan {
    Scalar(Scalar, Storage),
    Message(MessagePlan),
    /// A message of one field, which is no struct but the column of that field: lists in lists, and
    /// lists that may be null.
    Wrapper(Box<FieldPlan>),
}

impl ValuePlan {
    fn wire_type(&self) -> WireType {
        match self {
            Self::Scalar(scalar, _) => scalar.wire_type(),
            Self::Message(_) | Self::Wrapper(_) => WireType::Len,
        }
    }
}

/// A scalar type of protobuf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scalar {
    Double,
    Float,
    Int32,
    Int64,
    UInt32,
    UInt64,
    SInt32,
    SInt64,
    Fixed32,
    Fixed64,
    SFixed32,
    SFixed64,
    Bool,
    Text,
    Bytes,
    Enum,
}

impl Scalar {
    /// The scalar of a type number in descriptors.
    pub(crate) fn from_type(number: u64) -> Option<Self> {
        Some(match number {
            1 => Self::Double,
            2 => Self::Float,
            3 => Self::Int64,
            4 => Self::UInt64,
            5 => Self::Int32,
            6 => Self::Fixed64,
            7 => Self::Fixed32,
            8 => Self::Bool,
            9 => Self::Text,
            12 => Self::Bytes,
            13 => Self::UInt32,
            14 => Self::Enum,
            15 => Self::SFixed32,
            16 => Self::SFixed64,
            17 => Self::SInt32,
            18 => Self::SInt64,
            _ => return None,
        })
    }

    /// Its type number in descriptors.
    pub(crate) fn type_number(self) -> u64 {
        match self {
            Self::Double => 1,
            Self::Float => 2,
            Self::Int64 => 3,
            Self::UInt64 => 4,
            Self::Int32 => 5,
            Self::Fixed64 => 6,
            Self::Fixed32 => 7,
            Self::Bool => 8,
            Self::Text => 9,
            Self::Bytes => 12,
            Self::UInt32 => 13,
            Self::Enum => 14,
            Self::SFixed32 => 15,
            Self::SFixed64 => 16,
            Self::SInt32 => 17,
            Self::SInt64 => 18,
        }
    }

    pub(crate) fn wire_type(self) -> WireType {
        match self {
            Self::Double | Self::Fixed64 | Self::SFixed64 => WireType::Fixed64,
            Self::Float | Self::Fixed32 | Self::SFixed32 => WireType::Fixed32,
            Self::Text | Self::Bytes => WireType::Len,
            _ => WireType::Varint,
        }
    }

    /// Whether lists of it may be packed.
    pub(crate) fn is_packable(self) -> bool {
        self.wire_type() != WireType::Len
    }

    /// The column of a declared field of this type.
    fn storage(self) -> Storage {
        match self {
            Self::Double => Storage::F64,
            Self::Float => Storage::F32,
            Self::Int32 | Self::SInt32 | Self::SFixed32 | Self::Enum => Storage::I32,
            Self::Int64 | Self::SInt64 | Self::SFixed64 => Storage::I64,
            Self::UInt32 | Self::Fixed32 => Storage::U32,
            Self::UInt64 | Self::Fixed64 => Storage::U64,
            Self::Bool => Storage::Bool,
            Self::Text => Storage::Text,
            Self::Bytes => Storage::Bytes,
        }
    }
}

/// How a scalar is stored in its column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storage {
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
    Text,
    Bytes,
    FixedBytes(usize),
}

impl Storage {
    pub(crate) fn data_type(self) -> DataType {
        match self {
            Self::Bool => DataType::Boolean,
            Self::I8 => DataType::Int8,
            Self::I16 => DataType::Int16,
            Self::I32 => DataType::Int32,
            Self::I64 => DataType::Int64,
            Self::U8 => DataType::UInt8,
            Self::U16 => DataType::UInt16,
            Self::U32 => DataType::UInt32,
            Self::U64 => DataType::UInt64,
            Self::F32 => DataType::Float32,
            Self::F64 => DataType::Float64,
            Self::Text => DataType::Utf8,
            Self::Bytes => DataType::Binary,
            Self::FixedBytes(len) => DataType::FixedSizeBinary(len as i32),
        }
    }
}

/// Counts columns while a plan is made.
#[derive(Debug, Default)]
struct ColumnBudget(usize);

impl ColumnBudget {
    fn spend(&mut self, depth: usize) -> Result<(), String> {
        self.0 += 1;
        if self.0 > MAX_COLUMNS {
            return Err(format!("it has more than {MAX_COLUMNS} columns"));
        }
        if depth > MAX_DEPTH {
            return Err(format!("it nests deeper than {MAX_DEPTH} levels"));
        }
        Ok(())
    }
}
