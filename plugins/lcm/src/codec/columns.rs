//! Slots while they are filled, and slots as Arrow arrays. Reads no payload.

use std::sync::Arc;

use arrow_array::types::*;
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, FixedSizeBinaryArray, FixedSizeListArray, ListArray,
    PrimitiveArray, StringArray, StructArray,
};
use arrow_buffer::{BooleanBuffer, Buffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::ArrowError;

use super::plan::{Node, Slot};
use crate::types::syntax::Primitive;

/// A slot while it is filled.
#[derive(Debug)]
pub(crate) enum Filling {
    W1(Vec<u8>),
    W2(Vec<u16>),
    W4(Vec<u32>),
    W8(Vec<u64>),
    Offsets(Vec<i32>),
    Bytes { offsets: Vec<i32>, bytes: Vec<u8> },
}

impl Filling {
    pub(crate) fn new(slot: Slot) -> Self {
        match slot {
            Slot::Numbers(1) => Self::W1(Vec::new()),
            Slot::Numbers(2) => Self::W2(Vec::new()),
            Slot::Numbers(4) => Self::W4(Vec::new()),
            Slot::Numbers(_) => Self::W8(Vec::new()),
            Slot::Offsets => Self::Offsets(vec![0]),
            Slot::Bytes => Self::Bytes { offsets: vec![0], bytes: Vec::new() },
        }
    }

    /// Keeps the first `len` numbers, or rows.
    pub(crate) fn truncate(&mut self, len: usize) {
        match self {
            Self::W1(values) => values.truncate(len),
            Self::W2(values) => values.truncate(len),
            Self::W4(values) => values.truncate(len),
            Self::W8(values) => values.truncate(len),
            Self::Offsets(offsets) => offsets.truncate(len + 1),
            Self::Bytes { offsets, bytes } => {
                offsets.truncate(len + 1);
                bytes.truncate(last(offsets));
            }
        }
    }

    /// Makes room for `more` times what it has, in all.
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

/// Where the last row ends.
pub(crate) fn last(offsets: &[i32]) -> usize {
    offsets.last().map_or(0, |end| end.unsigned_abs() as usize)
}

/// The arrays of these nodes, each of `len` rows. Takes what it uses of the slots.
pub(crate) fn arrays(
    nodes: &[Node],
    slots: &mut [Filling],
    len: usize,
) -> Result<Vec<ArrayRef>, ArrowError> {
    nodes.iter().map(|node| array(node, slots, len)).collect()
}

fn array(node: &Node, slots: &mut [Filling], len: usize) -> Result<ArrayRef, ArrowError> {
    Ok(match node {
        Node::Number { slot, of } => number(*of, &mut slots[*slot])?,
        Node::FixedBytes { slot, size } => {
            let values = buffer(&mut slots[*slot])?;
            Arc::new(FixedSizeBinaryArray::try_new(*size as i32, values, None)?)
        }
        Node::Text { slot } => {
            let (offsets, bytes) = bytes(&mut slots[*slot])?;
            Arc::new(StringArray::try_new(offsets, bytes, None)?)
        }
        Node::Bytes { slot } => {
            let (offsets, bytes) = bytes(&mut slots[*slot])?;
            Arc::new(BinaryArray::try_new(offsets, bytes, None)?)
        }
        Node::FixedList { size, field, item } => {
            let items = array(item, slots, len * size)?;
            Arc::new(FixedSizeListArray::try_new(Arc::clone(field), *size as i32, items, None)?)
        }
        Node::List { offsets, field, item } => {
            let Filling::Offsets(ends) = &mut slots[*offsets] else { return Err(other_slot()) };
            let ends = std::mem::take(ends);
            let items = array(item, slots, last(&ends))?;
            let offsets = OffsetBuffer::new(ScalarBuffer::from(ends));
            Arc::new(ListArray::try_new(Arc::clone(field), offsets, items, None)?)
        }
        Node::Struct { fields, children } => {
            let children = arrays(children, slots, len)?;
            Arc::new(StructArray::try_new_with_length(fields.clone(), children, None, len)?)
        }
    })
}

fn number(of: Primitive, slot: &mut Filling) -> Result<ArrayRef, ArrowError> {
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
        Primitive::String => return Err(other_slot()),
    })
}

fn primitive<T: ArrowPrimitiveType>(values: Buffer) -> ArrayRef {
    Arc::new(PrimitiveArray::<T>::new(ScalarBuffer::from(values), None))
}

/// The numbers of a slot. Whether they are integers or floats, and signed, is only said by their array.
fn buffer(slot: &mut Filling) -> Result<Buffer, ArrowError> {
    Ok(match slot {
        Filling::W1(values) => Buffer::from_vec(std::mem::take(values)),
        Filling::W2(values) => Buffer::from_vec(std::mem::take(values)),
        Filling::W4(values) => Buffer::from_vec(std::mem::take(values)),
        Filling::W8(values) => Buffer::from_vec(std::mem::take(values)),
        Filling::Offsets(_) | Filling::Bytes { .. } => return Err(other_slot()),
    })
}

fn bytes(slot: &mut Filling) -> Result<(OffsetBuffer<i32>, Buffer), ArrowError> {
    let Filling::Bytes { offsets, bytes } = slot else { return Err(other_slot()) };
    let offsets = OffsetBuffer::new(ScalarBuffer::from(std::mem::take(offsets)));
    Ok((offsets, Buffer::from_vec(std::mem::take(bytes))))
}

fn other_slot() -> ArrowError {
    ArrowError::InvalidArgumentError("a node of a plan names a slot of another kind".to_owned())
}
