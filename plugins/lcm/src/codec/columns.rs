//! Slot builders, and the Arrow arrays made of them. Reads no payload.

use std::sync::Arc;

use arrow_array::types::*;
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, FixedSizeBinaryArray, FixedSizeListArray, ListArray,
    PrimitiveArray, StringArray, StructArray,
};
use arrow_buffer::{BooleanBuffer, Buffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::ArrowError;

use super::plan::{ColumnNode, SlotKind};
use crate::types::syntax::Primitive;

/// The values of one slot, as they are collected.
#[derive(Debug)]
pub(crate) enum SlotBuilder {
    W1(Vec<u8>),
    W2(Vec<u16>),
    W4(Vec<u32>),
    W8(Vec<u64>),
    Offsets(Vec<i32>),
    Bytes { offsets: Vec<i32>, bytes: Vec<u8> },
}

impl SlotBuilder {
    pub(crate) fn new(slot: SlotKind) -> Self {
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
    pub(crate) fn truncate(&mut self, len: usize) {
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
    pub(crate) fn grow(&mut self, more: f64) {
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
pub(crate) fn last_offset(offsets: &[i32]) -> usize {
    offsets.last().map_or(0, |end| end.unsigned_abs() as usize)
}

/// The arrays of these nodes, each with `len` rows. Moves the values out of the slots.
pub(crate) fn arrays(
    nodes: &[ColumnNode],
    slots: &mut [SlotBuilder],
    len: usize,
) -> Result<Vec<ArrayRef>, ArrowError> {
    nodes.iter().map(|node| array(node, slots, len)).collect()
}

fn array(node: &ColumnNode, slots: &mut [SlotBuilder], len: usize) -> Result<ArrayRef, ArrowError> {
    Ok(match node {
        ColumnNode::Number { slot, of } => number(*of, &mut slots[*slot])?,
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
            Arc::new(FixedSizeListArray::try_new(Arc::clone(field), *size as i32, items, None)?)
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
    })
}

fn number(of: Primitive, slot: &mut SlotBuilder) -> Result<ArrayRef, ArrowError> {
    let values = buffer(slot)?;
    Ok(match of {
        Primitive::Int8 => primitive::<Int8Type>(values),
        Primitive::Int16 => primitive::<Int16Type>(values),
        Primitive::Int32 => primitive::<Int32Type>(values),
        Primitive::Int64 => primitive::<Int64Type>(values),
        Primitive::Byte => primitive::<UInt8Type>(values),
        Primitive::Float => primitive::<Float32Type>(values),
        Primitive::Double => primitive::<Float64Type>(values),
        Primitive::Boolean => {
            let bits = BooleanBuffer::collect_bool(values.len(), |at| values[at] != 0);
            Arc::new(BooleanArray::new(bits, None))
        }
        Primitive::String => return Err(slot_mismatch()),
    })
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
