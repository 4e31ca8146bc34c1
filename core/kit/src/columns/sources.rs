//! The columns that are encoded, as one flat array per slot. Writes no payload.

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, BinaryArray, PrimitiveArray, StringArray};
use arrow_buffer::{ArrowNativeType, NullBuffer, OffsetBuffer, ScalarBuffer};

use super::plan::{CLASS, ColumnNode, ValueType, VariantNode};
use super::{NumberType, PayloadFault};

pub(super) const NULL: PayloadFault = "a field is null";
pub(super) const UNFIT: PayloadFault = "a value does not fit into its field";

/// The column values that belong to a slot.
#[derive(Debug, Default)]
pub(super) enum SlotSource {
    #[default]
    Missing,
    Numbers(NumberSource),
    Offsets(OffsetBuffer<i32>, Nulls),
    Text(StringArray, Nulls),
    Bytes(BinaryArray, Nulls),
    Variant {
        /// Nulls of the structs around it.
        around: Nulls,
        nulls: Nulls,
        class: Option<StringArray>,
    },
}

/// Numbers of a slot, and which of them cannot be written.
#[derive(Debug)]
pub(super) struct NumberSource {
    pub(super) numbers: NumberBuffer,
    nulls: Nulls,
    /// Those that are invalid here do not fit into their field.
    fitting: Nulls,
}

/// Numbers as unsigned words of their width.
#[derive(Debug)]
pub(super) enum NumberBuffer {
    W1(ScalarBuffer<u8>),
    W2(ScalarBuffer<u16>),
    W4(ScalarBuffer<u32>),
    W8(ScalarBuffer<u64>),
}

/// Nulls of a value itself or of a list or struct around it.
pub(super) type Nulls = Option<NullBuffer>;

impl NumberBuffer {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::W1(values) => values.len(),
            Self::W2(values) => values.len(),
            Self::W4(values) => values.len(),
            Self::W8(values) => values.len(),
        }
    }

    fn width(&self) -> usize {
        match self {
            Self::W1(_) => 1,
            Self::W2(_) => 2,
            Self::W4(_) => 4,
            Self::W8(_) => 8,
        }
    }
}

impl NumberSource {
    /// Whether all numbers can be written.
    pub(super) fn is_whole(&self) -> bool {
        let has_none = |nulls: &Nulls| nulls.as_ref().is_none_or(|nulls| nulls.null_count() == 0);
        has_none(&self.nulls) && has_none(&self.fitting)
    }

    /// `Err` says why some of these numbers cannot be written.
    pub(super) fn check(&self, start: usize, len: usize) -> Result<(), PayloadFault> {
        check_valid(&self.nulls, start, len, NULL)?;
        check_valid(&self.fitting, start, len, UNFIT)
    }
}

impl SlotSource {
    /// About as many bytes as its values take in payloads.
    pub(super) fn encoded_len(&self) -> usize {
        // The length prefix of text, bytes and lists, rounded up.
        const PREFIX: usize = 8;
        let all = |offsets: &[i32]| match offsets {
            [first, .., last] => last.abs_diff(*first) as usize,
            _ => 0,
        };
        match self {
            Self::Missing => 0,
            Self::Numbers(source) => source.numbers.len() * source.numbers.width(),
            Self::Offsets(offsets, _) => offsets.len() * PREFIX,
            Self::Text(texts, _) => texts.len() * PREFIX + all(texts.value_offsets()),
            Self::Bytes(values, _) => values.len() * PREFIX + all(values.value_offsets()),
            Self::Variant { class, .. } => class.as_ref().map_or(0, StringArray::len),
        }
    }
}

/// Distributes an array over the slots of its node. `around` are the nulls of the parent.
pub(super) fn load(slots: &mut [SlotSource], node: &ColumnNode, array: &ArrayRef, around: Nulls) {
    let nulls = NullBuffer::union(array.nulls(), around.as_ref());
    match node {
        ColumnNode::Number { slot, of } => slots[*slot] = numbers(*of, array, nulls),
        ColumnNode::FixedBytes { slot, size } => {
            let array = array.as_fixed_size_binary();
            let start = array.offset() * size;
            let values = array.values().slice_with_length(start, array.len() * size);
            let nulls = nulls.map(|nulls| nulls.expand(*size));
            slots[*slot] = numbers_of(NumberBuffer::W1(values.into()), nulls);
        }
        // Plans with views do not encode.
        ColumnNode::View { .. } => {}
        ColumnNode::Text { slot } => {
            slots[*slot] = SlotSource::Text(array.as_string::<i32>().clone(), nulls);
        }
        ColumnNode::Bytes { slot } => {
            slots[*slot] = SlotSource::Bytes(array.as_binary::<i32>().clone(), nulls);
        }
        ColumnNode::FixedList { size, item, .. } => {
            let list = array.as_fixed_size_list();
            let start = list.value_offset(0).unsigned_abs() as usize;
            let items = list.values().slice(start, list.len() * size);
            load(slots, item, &items, nulls.map(|nulls| nulls.expand(*size)));
        }
        ColumnNode::List { offsets, item, .. } => {
            let list = array.as_list::<i32>();
            let (first, last) = (list.value_offsets()[0], list.value_offsets()[list.len()]);
            let items = list.values().slice(first as usize, (last - first) as usize);
            slots[*offsets] = SlotSource::Offsets(list.offsets().clone(), nulls);
            load(slots, item, &items, None);
        }
        ColumnNode::Struct { children, .. } => {
            let columns = array.as_struct().columns();
            for (child, column) in children.iter().zip(columns) {
                load(slots, child, column, nulls.clone());
            }
        }
        ColumnNode::Variant(node) => {
            let VariantNode { slot, children, cases, .. } = node;
            let structs = array.as_struct();
            let skipped = usize::from(cases.classes.is_some());
            let class = structs.column_by_name(CLASS).filter(|_| skipped == 1);
            let class = class.map(|class| class.as_string::<i32>().clone());
            let nulls = array.nulls().cloned();
            slots[*slot] = SlotSource::Variant { around, nulls, class };
            for (child, column) in children.iter().zip(structs.columns().iter().skip(skipped)) {
                load(slots, child, column, None);
            }
        }
    }
}

/// `Err` with this fault if one of these values is null.
pub(super) fn check_valid(
    nulls: &Nulls,
    start: usize,
    len: usize,
    fault: PayloadFault,
) -> Result<(), PayloadFault> {
    let Some(nulls) = nulls else { return Ok(()) };
    if (start..start + len).any(|at| nulls.is_null(at)) { Err(fault) } else { Ok(()) }
}

fn numbers_of(numbers: NumberBuffer, nulls: Nulls) -> SlotSource {
    SlotSource::Numbers(NumberSource { numbers, nulls, fitting: None })
}

/// Numbers, reinterpreted as unsigned words.
fn numbers(of: ValueType, array: &ArrayRef, nulls: Nulls) -> SlotSource {
    let words = match of {
        ValueType::Number(NumberType::I8) => NumberBuffer::W1(bits::<Int8Type, _>(array)),
        ValueType::Number(NumberType::U8) => NumberBuffer::W1(bits::<UInt8Type, _>(array)),
        ValueType::Number(NumberType::I16) => NumberBuffer::W2(bits::<Int16Type, _>(array)),
        ValueType::Number(NumberType::U16) => NumberBuffer::W2(bits::<UInt16Type, _>(array)),
        ValueType::Number(NumberType::I24 | NumberType::I32) => {
            NumberBuffer::W4(bits::<Int32Type, _>(array))
        }
        ValueType::Number(NumberType::U24 | NumberType::U32) => {
            NumberBuffer::W4(bits::<UInt32Type, _>(array))
        }
        ValueType::Number(NumberType::F32) => NumberBuffer::W4(bits::<Float32Type, _>(array)),
        ValueType::Number(NumberType::I64) => NumberBuffer::W8(bits::<Int64Type, _>(array)),
        ValueType::Number(NumberType::U64) => NumberBuffer::W8(bits::<UInt64Type, _>(array)),
        ValueType::Number(NumberType::F64) => NumberBuffer::W8(bits::<Float64Type, _>(array)),
        ValueType::Bool(width) => {
            let values = array.as_boolean().values().iter();
            match width {
                1 => NumberBuffer::W1(values.map(u8::from).collect()),
                2 => NumberBuffer::W2(values.map(u16::from).collect()),
                4 => NumberBuffer::W4(values.map(u32::from).collect()),
                _ => NumberBuffer::W8(values.map(u64::from).collect()),
            }
        }
        ValueType::Enum(width) => {
            let values = array.as_primitive::<Int32Type>();
            return match width {
                1 => narrow(values, nulls, |value| u8::try_from(value).ok(), NumberBuffer::W1),
                2 => {
                    let word = |value| i16::try_from(value).ok().map(i16::cast_unsigned);
                    narrow(values, nulls, word, NumberBuffer::W2)
                }
                _ => numbers_of(NumberBuffer::W4(bits::<Int32Type, _>(array)), nulls),
            };
        }
    };
    numbers_of(words, nulls)
}

/// Values as words that some of them may not fit into.
fn narrow<T: ArrowNativeType>(
    values: &PrimitiveArray<Int32Type>,
    nulls: Nulls,
    word: impl Fn(i32) -> Option<T>,
    words: fn(ScalarBuffer<T>) -> NumberBuffer,
) -> SlotSource {
    let fitting: NullBuffer = values.values().iter().map(|value| word(*value).is_some()).collect();
    let narrow = values.values().iter().map(|value| word(*value).unwrap_or_default());
    let numbers = words(narrow.collect());
    SlotSource::Numbers(NumberSource { numbers, nulls, fitting: Some(fitting) })
}

/// The same memory as another type of the same width.
fn bits<T: ArrowPrimitiveType, U: ArrowNativeType>(array: &ArrayRef) -> ScalarBuffer<U> {
    array.as_primitive::<T>().values().inner().clone().into()
}
