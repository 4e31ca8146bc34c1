//! The plan of a type: the steps that decode a payload from first to last byte, and how columns are
//! built. Reads no payload.
//!
//! Adjacent members of fixed size form one [`Region`]. Between regions are texts, lists and
//! variants. Values go into numbered *slots*, flat vectors, and [`ColumnNode`]s say how slots
//! become Arrow arrays. Members that take no bytes have no column.

use std::ops::Range;
use std::sync::Arc;

use arrow_schema::{DataType, FieldRef, Fields, Schema, SchemaRef};

use super::{Endian, NumberType, OpaqueValue, SpanKind, ViewKind, WireRules};

/// How payloads of one type are decoded and encoded. Immutable and cheap to share.
#[derive(Debug)]
pub struct PayloadPlan {
    pub(super) rules: WireRules,
    pub(super) program: Program,
    pub(super) slots: Vec<SlotKind>,
    pub(super) columns: Vec<ColumnNode>,
    pub(super) schema: SchemaRef,
    pub(super) regions: usize,
    pub(super) registers: usize,
    /// As many zeros as the longest region has bytes: what a missing value is decoded from.
    pub(super) zeros: Vec<u8>,
    /// Whether its columns do not hold all of a payload.
    pub(super) is_one_way: bool,
    /// What payloads start with.
    pub(super) header: Vec<u8>,
}

impl PayloadPlan {
    /// The plan of payloads without fields.
    pub fn empty() -> Self {
        Self {
            rules: WireRules::LITTLE_ENDIAN,
            program: Program::default(),
            slots: Vec::new(),
            columns: Vec::new(),
            schema: Arc::new(Schema::empty()),
            regions: 0,
            registers: 0,
            zeros: Vec::new(),
            is_one_way: false,
            header: Vec::new(),
        }
    }

    /// Whole payloads start with these bytes, which decoding skips without a look, and encoding
    /// writes: those that say which type they have.
    pub fn with_header(self, header: &[u8]) -> Self {
        Self { header: header.to_vec(), ..self }
    }

    /// Its columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The number of columns, including nested ones.
    pub fn column_count(&self) -> usize {
        self.slots.len()
    }
}

/// The steps for one row, in order.
#[derive(Debug, Default)]
pub(super) struct Program {
    pub(super) ops: Vec<Op>,
    /// Fewest bytes of a row.
    pub(super) min_len: usize,
    /// Zero-byte elements in arrays of fixed size, per row.
    pub(super) empty_elements: usize,
}

/// One step of a program.
#[derive(Debug)]
pub(super) enum Op {
    Region(Region),
    /// Padding up to a multiple of this.
    Align(usize),
    /// The end of a part of the payload.
    Part,
    /// Text, into a slot of bytes.
    Text {
        slot: usize,
    },
    /// Bytes, into a slot of bytes unless they are skipped.
    Bytes {
        slot: usize,
        count: Count,
        kind: SpanKind,
    },
    /// Number arrays, `per_element` numbers each.
    Numbers {
        offsets: usize,
        leaf: NumberArray,
        count: Count,
        /// The alignment of the first number, if there is any.
        align: usize,
    },
    /// Rows of another program.
    List {
        offsets: usize,
        count: Count,
        item: Program,
        /// The alignment of the first row, if there is any.
        align: usize,
    },
    /// Rows of another program, a fixed number of them.
    Repeat {
        count: usize,
        item: Program,
    },
    Variant(VariantOp),
    /// A value kept as raw bytes, into a slot of bytes.
    Opaque {
        slot: usize,
        of: OpaqueValue,
    },
}

/// Where the number of elements is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Count {
    /// In front of them.
    Prefix,
    /// In a register.
    Register(usize),
    /// In the type.
    Fixed(usize),
    /// As many as there are until this many bytes before the end of the payload.
    Rest(usize),
}

/// One of several structs, or none. Every child has a row for every variant; those of other cases
/// are blank.
#[derive(Debug)]
pub(super) struct VariantOp {
    /// The slot of the cases, counted from 1; 0 for none.
    pub(super) slot: usize,
    pub(super) children: Vec<Program>,
    pub(super) cases: Arc<VariantCases>,
    /// The bytes of the columns of a missing value.
    pub(super) blank: usize,
}

/// The column with the name of a variant's case.
pub(super) const CLASS: &str = "class";

/// What the cases of a variant are.
#[derive(Debug)]
pub(super) struct VariantCases {
    /// The names of the cases, if there are several.
    pub(super) classes: Option<Vec<Arc<str>>>,
    /// For each case its children, in order.
    pub(super) children: Vec<Vec<usize>>,
}

/// The numbers of a counted array.
#[derive(Clone, Copy, Debug)]
pub(super) struct NumberArray {
    pub(super) slot: usize,
    pub(super) of: ValueType,
    pub(super) endian: Endian,
    pub(super) per_element: usize,
}

/// Adjacent members of fixed size.
#[derive(Debug, Default)]
pub(super) struct Region {
    /// Index in the plan.
    pub(super) id: usize,
    pub(super) size: usize,
    pub(super) leaves: Vec<Leaf>,
    /// Ranges of booleans, each of which has to be 0 or 1.
    pub(super) booleans: Vec<Range<usize>>,
    /// Ranges of padding, each byte of which has to be 0.
    pub(super) padding: Vec<Range<usize>>,
    /// Members that count the elements of a later member.
    pub(super) counts: Vec<CountField>,
}

/// Numbers in a region that go into one slot.
#[derive(Clone, Debug)]
pub(super) struct Leaf {
    pub(super) slot: usize,
    pub(super) of: ValueType,
    pub(super) endian: Endian,
    /// Offsets in the record, in slot order.
    pub(super) offsets: Vec<usize>,
    /// Adjacent numbers at each offset.
    pub(super) run: usize,
}

impl Leaf {
    /// The numbers of one record.
    pub(super) fn per_record(&self) -> usize {
        self.offsets.len() * self.run
    }
}

/// A number in a region that goes into a register.
#[derive(Clone, Copy, Debug)]
pub(super) struct CountField {
    pub(super) offset: usize,
    pub(super) of: NumberType,
    pub(super) endian: Endian,
    pub(super) register: usize,
}

impl CountField {
    /// The number in this record. One of 64 bits without a sign is negative if it is too large.
    #[inline]
    pub(super) fn read(&self, record: &[u8]) -> i64 {
        let endian = self.endian;
        let bytes = record.get(self.offset..).unwrap_or_default();
        let bits = match self.of.width() {
            1 => word(bytes, endian, u8::from_be_bytes, u8::from_le_bytes).into(),
            2 => word(bytes, endian, u16::from_be_bytes, u16::from_le_bytes).into(),
            3 => word(bytes, endian, u24_from_be_bytes, u24_from_le_bytes).into(),
            4 => word(bytes, endian, u32::from_be_bytes, u32::from_le_bytes).into(),
            _ => word(bytes, endian, u64::from_be_bytes, u64::from_le_bytes),
        };
        match self.of {
            NumberType::I8 => i64::from(bits as i8),
            NumberType::I16 => i64::from(bits as i16),
            NumberType::I24 => i64::from(sign_extended(bits as u32).cast_signed()),
            NumberType::I32 => i64::from(bits as i32),
            _ => bits.cast_signed(),
        }
    }
}

/// A number of 24 bits.
#[inline]
pub(super) fn u24_from_le_bytes([a, b, c]: [u8; 3]) -> u32 {
    u32::from_le_bytes([a, b, c, 0])
}

/// A number of 24 bits.
#[inline]
pub(super) fn u24_from_be_bytes([a, b, c]: [u8; 3]) -> u32 {
    u32::from_be_bytes([0, a, b, c])
}

/// A number of 24 bits with a sign as one of 32.
#[inline]
pub(super) fn sign_extended(word: u32) -> u32 {
    ((word << 8).cast_signed() >> 8).cast_unsigned()
}

/// The word at the start of these bytes.
#[inline]
fn word<const N: usize, T: Default>(
    bytes: &[u8],
    endian: Endian,
    big: fn([u8; N]) -> T,
    little: fn([u8; N]) -> T,
) -> T {
    let Some(bytes) = bytes.first_chunk() else { return T::default() };
    if endian == Endian::Big { big(*bytes) } else { little(*bytes) }
}

/// The kind of values in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotKind {
    /// Numbers of this many bytes.
    Numbers(usize),
    /// List offsets.
    Offsets,
    /// Texts or bytes, with their offsets.
    Bytes,
}

/// What the words of a slot are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueType {
    Number(NumberType),
    /// Booleans of this width.
    Bool(usize),
    /// Enums of this width.
    Enum(usize),
}

impl ValueType {
    pub(super) fn width(self) -> usize {
        match self {
            Self::Number(of) => of.width(),
            Self::Bool(width) | Self::Enum(width) => width,
        }
    }

    fn data_type(self) -> DataType {
        match self {
            Self::Number(of) => of.data_type(),
            Self::Bool(_) => DataType::Boolean,
            Self::Enum(_) => DataType::Int32,
        }
    }
}

/// How slots become an Arrow array.
#[derive(Debug)]
pub(super) enum ColumnNode {
    Number { slot: usize, of: ValueType },
    View { slot: usize, of: NumberType, kind: ViewKind },
    FixedBytes { slot: usize, size: usize },
    Text { slot: usize },
    Bytes { slot: usize },
    FixedList { size: usize, field: FieldRef, item: Box<ColumnNode> },
    List { offsets: usize, field: FieldRef, item: Box<ColumnNode> },
    Struct { fields: Fields, children: Vec<ColumnNode> },
    Variant(VariantNode),
}

/// The column of a variant.
#[derive(Debug)]
pub(super) struct VariantNode {
    /// The slot of the cases.
    pub(super) slot: usize,
    /// The members of all cases, preceded by the class if there are several cases.
    pub(super) fields: Fields,
    pub(super) children: Vec<ColumnNode>,
    pub(super) cases: Arc<VariantCases>,
}

impl ColumnNode {
    /// The Arrow type of the array.
    pub(super) fn data_type(&self) -> DataType {
        match self {
            Self::Number { of, .. } => of.data_type(),
            Self::View { of, kind, .. } => match kind {
                ViewKind::Value => of.data_type(),
                ViewKind::Scaled(..) => DataType::Float64,
                ViewKind::Flag(_) | ViewKind::NonZero => DataType::Boolean,
                ViewKind::Bits(..) => DataType::UInt64,
            },
            Self::FixedBytes { size, .. } => DataType::FixedSizeBinary(*size as i32),
            Self::Text { .. } => DataType::Utf8,
            Self::Bytes { .. } => DataType::Binary,
            Self::FixedList { size, field, .. } => {
                DataType::FixedSizeList(Arc::clone(field), *size as i32)
            }
            Self::List { field, .. } => DataType::List(Arc::clone(field)),
            Self::Struct { fields, .. } | Self::Variant(VariantNode { fields, .. }) => {
                DataType::Struct(fields.clone())
            }
        }
    }

    /// Whether its values may be null.
    pub(super) fn is_nullable(&self) -> bool {
        matches!(self, Self::Variant(_))
    }
}
