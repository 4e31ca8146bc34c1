//! Slot builders, and the Arrow arrays made of them. Reads no payload.

use std::sync::Arc;

use arrow_array::types::*;
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, FixedSizeBinaryArray, FixedSizeListArray,
    Float64Array, Int32Array, ListArray, PrimitiveArray, StringArray, StructArray, UInt64Array,
    make_array,
};
use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::ArrowError;

use super::plan::{ColumnNode, SlotKind, ValueType, VariantNode};
use super::{NumberType, ViewKind};

/// The values of one slot, as they are collected.
#[derive(Debug)]
pub(super) enum SlotBuilder {
    W1(Vec<u8>),
    W2(Vec<u16>),
    W4(Vec<u32>),
    W8(Vec<u64>),
    Offsets(Vec<i32>),
    Bytes { offsets: Vec<i32>, bytes: Vec<u8> },
}

impl SlotBuilder {
    pub(super) fn new(slot: SlotKind) -> Self {
        match slot {
            SlotKind::Numbers(1) => Self::W1(Vec::new()),
            SlotKind::Numbers(2) => Self::W2(Vec::new()),
            SlotKind::Numbers(4) => Self::W4(Vec::new()),
            SlotKind::Numbers(_) => Self::W8(Vec::new()),
            SlotKind::Offsets => Self::Offsets(vec![0]),
            SlotKind::Bytes => Self::Bytes { offsets: vec![0], bytes: Vec::new() },
        }
    }

    /// Keeps the first `len` numbers or rows.
    pub(super) fn truncate(&mut self, len: usize) {
        match self {
            Self::W1(values) => values.truncate(len),
            Self::W2(values) => values.truncate(len),
            Self::W4(values) => values.truncate(len),
            Self::W8(values) => values.truncate(len),
            Self::Offsets(offsets) => offsets.truncate(len + 1),
            Self::Bytes { offsets, bytes } => {
                offsets.truncate(len + 1);
                bytes.truncate(last_offset(offsets));
            }
        }
    }

    /// Reserves capacity for `more` times the current length on top of it.
    pub(super) fn grow(&mut self, more: f64) {
        let by = |len: usize| (len as f64 * more) as usize;
        match self {
            Self::W1(values) => values.reserve(by(values.len())),
            Self::W2(values) => values.reserve(by(values.len())),
            Self::W4(values) => values.reserve(by(values.len())),
            Self::W8(values) => values.reserve(by(values.len())),
            Self::Offsets(offsets) => offsets.reserve(by(offsets.len())),
            Self::Bytes { offsets, bytes } => {
                offsets.reserve(by(offsets.len()));
                bytes.reserve(by(bytes.len()));
            }
        }
    }
}

/// The end of the last row.
pub(super) fn last_offset(offsets: &[i32]) -> usize {
    offsets.last().map_or(0, |end| end.unsigned_abs() as usize)
}

/// The arrays of these nodes, each with `len` rows. Moves the values out of the slots.
pub(super) fn arrays(
    nodes: &[ColumnNode],
    slots: &mut [SlotBuilder],
    len: usize,
) -> Result<Vec<ArrayRef>, ArrowError> {
    nodes.iter().map(|node| array(node, slots, len)).collect()
}

fn array(node: &ColumnNode, slots: &mut [SlotBuilder], len: usize) -> Result<ArrayRef, ArrowError> {
    Ok(match node {
        ColumnNode::Number { slot, of } => number(*of, &mut slots[*slot])?,
        ColumnNode::View { slot, of, kind } => view(*kind, *of, &mut slots[*slot])?,
        ColumnNode::FixedBytes { slot, size } => {
            let values = buffer(&mut slots[*slot])?;
            Arc::new(FixedSizeBinaryArray::try_new(*size as i32, values, None)?)
        }
        ColumnNode::Text { slot } => {
            let (offsets, bytes) = bytes(&mut slots[*slot])?;
            Arc::new(StringArray::try_new(offsets, bytes, None)?)
        }
        ColumnNode::Bytes { slot } => {
            let (offsets, bytes) = bytes(&mut slots[*slot])?;
            Arc::new(BinaryArray::try_new(offsets, bytes, None)?)
        }
        ColumnNode::FixedList { size, field, item } => {
            let items = array(item, slots, len * size)?;
            let field = Arc::clone(field);
            Arc::new(FixedSizeListArray::try_new_with_length(
                field,
                *size as i32,
                items,
                None,
                len,
            )?)
        }
        ColumnNode::List { offsets, field, item } => {
            let SlotBuilder::Offsets(ends) = &mut slots[*offsets] else {
                return Err(slot_mismatch());
            };
            let ends = std::mem::take(ends);
            let items = array(item, slots, last_offset(&ends))?;
            let offsets = OffsetBuffer::new(ScalarBuffer::from(ends));
            Arc::new(ListArray::try_new(Arc::clone(field), offsets, items, None)?)
        }
        ColumnNode::Struct { fields, children } => {
            let children = arrays(children, slots, len)?;
            Arc::new(StructArray::try_new_with_length(fields.clone(), children, None, len)?)
        }
        ColumnNode::Variant(node) => Arc::new(variant(node, slots, len)?),
    })
}

fn number(of: ValueType, slot: &mut SlotBuilder) -> Result<ArrayRef, ArrowError> {
    let of = match of {
        ValueType::Number(of) => of,
        ValueType::Bool(_) => return booleans(slot),
        ValueType::Enum(_) => return enums(slot),
    };
    let values = buffer(slot)?;
    Ok(match of {
        NumberType::I8 => primitive::<Int8Type>(values),
        NumberType::U8 => primitive::<UInt8Type>(values),
        NumberType::I16 => primitive::<Int16Type>(values),
        NumberType::U16 => primitive::<UInt16Type>(values),
        NumberType::I24 | NumberType::I32 => primitive::<Int32Type>(values),
        NumberType::U24 | NumberType::U32 => primitive::<UInt32Type>(values),
        NumberType::I64 => primitive::<Int64Type>(values),
        NumberType::U64 => primitive::<UInt64Type>(values),
        NumberType::F32 => primitive::<Float32Type>(values),
        NumberType::F64 => primitive::<Float64Type>(values),
    })
}

/// What a view says of the numbers of a slot, which keeps them for further views.
fn view(kind: ViewKind, of: NumberType, slot: &mut SlotBuilder) -> Result<ArrayRef, ArrowError> {
    fn all<'s, T: Copy + Into<u64>>(values: &'s [T]) -> Box<dyn Iterator<Item = u64> + 's> {
        Box::new(values.iter().map(|value| (*value).into()))
    }
    if kind == ViewKind::Value {
        return number(ValueType::Number(of), slot);
    }
    let words = match slot {
        SlotBuilder::W1(values) => all(values),
        SlotBuilder::W2(values) => all(values),
        SlotBuilder::W4(values) => all(values),
        SlotBuilder::W8(values) => all(values),
        SlotBuilder::Offsets(_) | SlotBuilder::Bytes { .. } => return Err(slot_mismatch()),
    };
    Ok(match kind {
        ViewKind::Scaled(factor, offset) => {
            let scaled = words.map(|word| float(of, word) * factor + offset);
            Arc::new(Float64Array::from_iter_values(scaled))
        }
        ViewKind::Flag(bit) => Arc::new(flags(words.map(|word| word >> bit & 1 == 1))),
        ViewKind::NonZero | ViewKind::Value => Arc::new(flags(words.map(|word| word != 0))),
        ViewKind::Bits(low, count) => {
            let mask = u64::MAX >> (64 - count.clamp(1, 64));
            Arc::new(UInt64Array::from_iter_values(words.map(|word| word >> low & mask)))
        }
    })
}

fn flags(values: impl Iterator<Item = bool>) -> BooleanArray {
    BooleanArray::from(values.collect::<Vec<_>>())
}

/// A number as a float, rounded if needed.
fn float(of: NumberType, word: u64) -> f64 {
    match of {
        NumberType::I8 => f64::from(word as i8),
        NumberType::I16 => f64::from(word as i16),
        NumberType::I24 | NumberType::I32 => f64::from(word as i32),
        NumberType::I64 => word.cast_signed() as f64,
        NumberType::F32 => f64::from(f32::from_bits(word as u32)),
        NumberType::F64 => f64::from_bits(word),
        NumberType::U8 | NumberType::U16 | NumberType::U24 | NumberType::U32 | NumberType::U64 => {
            word as f64
        }
    }
}

fn booleans(slot: &mut SlotBuilder) -> Result<ArrayRef, ArrowError> {
    fn bits<T: Default + PartialEq>(values: &[T]) -> BooleanBuffer {
        let zero = T::default();
        BooleanBuffer::collect_bool(values.len(), |at| values[at] != zero)
    }
    let bits = match slot {
        SlotBuilder::W1(values) => bits(values),
        SlotBuilder::W2(values) => bits(values),
        SlotBuilder::W4(values) => bits(values),
        SlotBuilder::W8(values) => bits(values),
        SlotBuilder::Offsets(_) | SlotBuilder::Bytes { .. } => return Err(slot_mismatch()),
    };
    Ok(Arc::new(BooleanArray::new(bits, None)))
}

/// The values of an enum: unsigned if they are bytes.
fn enums(slot: &mut SlotBuilder) -> Result<ArrayRef, ArrowError> {
    Ok(match slot {
        SlotBuilder::W1(values) => {
            Arc::new(Int32Array::from_iter_values(values.iter().map(|value| i32::from(*value))))
        }
        SlotBuilder::W2(values) => {
            let values = values.iter().map(|value| i32::from(value.cast_signed()));
            Arc::new(Int32Array::from_iter_values(values))
        }
        _ => primitive::<Int32Type>(buffer(slot)?),
    })
}

/// The structs of a variant's rows. The columns of other cases are null.
fn variant(
    node: &VariantNode,
    slots: &mut [SlotBuilder],
    len: usize,
) -> Result<StructArray, ArrowError> {
    let SlotBuilder::W1(cases) = &mut slots[node.slot] else { return Err(slot_mismatch()) };
    let cases = std::mem::take(cases);
    let index = |case: u8| usize::from(case).checked_sub(1);
    let mut arrays: Vec<ArrayRef> = Vec::new();
    if let Some(classes) = &node.cases.classes {
        let class = |case: &u8| classes.get(index(*case)?).map(|class| &**class);
        arrays.push(Arc::new(StringArray::from_iter(cases.iter().map(class))));
    }
    for (at, child) in node.children.iter().enumerate() {
        let has_it = |children: &Vec<usize>| children.contains(&at);
        let has_it: Vec<bool> = node.cases.children.iter().map(has_it).collect();
        let valid = |case: &u8| index(*case).and_then(|at| has_it.get(at)) == Some(&true);
        let valid: NullBuffer = cases.iter().map(valid).collect();
        let data = array(child, slots, len)?.into_data();
        // A nested null reference is null already.
        let nulls = NullBuffer::union(data.nulls(), Some(&valid));
        arrays.push(make_array(data.into_builder().nulls(nulls).build()?));
    }
    let valid: NullBuffer = cases.iter().map(|case| *case != 0).collect();
    StructArray::try_new_with_length(node.fields.clone(), arrays, Some(valid), len)
}

fn primitive<T: ArrowPrimitiveType>(values: Buffer) -> ArrayRef {
    Arc::new(PrimitiveArray::<T>::new(ScalarBuffer::from(values), None))
}

/// The numbers of a slot. Only their array says whether they are integers or floats, signed or not.
fn buffer(slot: &mut SlotBuilder) -> Result<Buffer, ArrowError> {
    Ok(match slot {
        SlotBuilder::W1(values) => Buffer::from_vec(std::mem::take(values)),
        SlotBuilder::W2(values) => Buffer::from_vec(std::mem::take(values)),
        SlotBuilder::W4(values) => Buffer::from_vec(std::mem::take(values)),
        SlotBuilder::W8(values) => Buffer::from_vec(std::mem::take(values)),
        SlotBuilder::Offsets(_) | SlotBuilder::Bytes { .. } => return Err(slot_mismatch()),
    })
}

fn bytes(slot: &mut SlotBuilder) -> Result<(OffsetBuffer<i32>, Buffer), ArrowError> {
    let SlotBuilder::Bytes { offsets, bytes } = slot else { return Err(slot_mismatch()) };
    let offsets = OffsetBuffer::new(ScalarBuffer::from(std::mem::take(offsets)));
    Ok((offsets, Buffer::from_vec(std::mem::take(bytes))))
}

fn slot_mismatch() -> ArrowError {
    ArrowError::InvalidArgumentError("plan node and slot are of different kinds".to_owned())
}
