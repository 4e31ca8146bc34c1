//! Decodes payloads into columns.

use std::sync::Arc;

use arrow_array::types::*;
use arrow_array::*;
use arrow_buffer::{
    ArrowNativeType, Buffer, MutableBuffer, NullBuffer, OffsetBuffer, ScalarBuffer,
};
use arrow_schema::ArrowError;

use super::compile::{LayoutNode, ListLength, VariantNode};
use super::wire::PayloadCursor;
use super::{LayoutError, NumberType, PayloadLayout};
use crate::name;

/// The reason if the payloads of a batch exceed the limits of a column.
const FULL: LayoutError = "the column of its batch is full";
const NO_CASE: LayoutError = "its class is not one of those declared";

/// Rows of a layout that are being built.
#[derive(Debug)]
pub struct LayoutRows<'l> {
    layout: &'l PayloadLayout,
    columns: Vec<ColumnBuilder>,
    registers: Vec<i64>,
    rows: usize,
}

impl<'l> LayoutRows<'l> {
    pub(super) fn new(layout: &'l PayloadLayout) -> Self {
        let columns = layout.compiled.nodes.iter().map(ColumnBuilder::for_node).collect();
        Self { layout, columns, registers: vec![0; layout.compiled.registers], rows: 0 }
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Reserves capacity for `more` rows like the only one so far, unless they would take more than
    /// `most` bytes.
    pub(super) fn reserve_alike(&mut self, more: usize, most: usize) {
        let one: usize = self.columns.iter().map(ColumnBuilder::bytes).sum();
        if self.rows == 1 && one.checked_mul(more).is_some_and(|bytes| bytes <= most) {
            self.columns.iter_mut().for_each(|column| column.reserve_times(more));
        }
    }

    /// Decodes a payload as a row. The layout must cover all of it. `Err` adds nothing.
    pub fn push(&mut self, payload: &[u8]) -> Result<(), LayoutError> {
        self.read(&mut PayloadCursor::new(payload))
    }

    /// Like [`push`](Self::push), but accepts booleans of any bytes, and returns these in order.
    pub fn push_with_raw_booleans(&mut self, payload: &[u8]) -> Result<Vec<u8>, LayoutError> {
        let mut cursor = PayloadCursor::with_raw_booleans(payload);
        self.read(&mut cursor)?;
        Ok(cursor.raw_booleans().unwrap_or_default())
    }

    fn read(&mut self, cursor: &mut PayloadCursor<'_>) -> Result<(), LayoutError> {
        let (nodes, registers) = (&self.layout.compiled.nodes, &mut self.registers);
        let mut columns = self.columns.iter_mut().zip(nodes);
        let read = columns.try_for_each(|(column, node)| column.read(node, cursor, registers));
        let read = read.and_then(|()| cursor.end());
        match read {
            Ok(()) => self.rows += 1,
            Err(_) => self.columns.iter_mut().for_each(|column| column.truncate(self.rows)),
        }
        read
    }

    /// The rows.
    pub fn finish(self) -> Result<RecordBatch, ArrowError> {
        let nodes = self.layout.compiled.nodes.iter();
        let arrays = self.columns.into_iter().zip(nodes);
        let arrays = arrays.map(|(column, node)| column.finish(node)).collect::<Result<_, _>>()?;
        // A payload without fields has rows but no columns, so the row count is explicit.
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        RecordBatch::try_new_with_options(Arc::clone(self.layout.schema()), arrays, &options)
    }
}

/// A column that is being built.
#[derive(Debug)]
enum ColumnBuilder {
    /// Numbers in their wire format.
    Words {
        width: usize,
        bytes: MutableBuffer,
    },
    Bools(Vec<bool>),
    Values(Vec<i32>),
    Bytes {
        offsets: Vec<i32>,
        bytes: Vec<u8>,
    },
    Fixed {
        count: usize,
        rows: usize,
        item: Box<ColumnBuilder>,
    },
    List {
        offsets: Vec<i32>,
        item: Box<ColumnBuilder>,
    },
    Struct {
        rows: usize,
        children: Vec<ColumnBuilder>,
    },
    Variant {
        /// The case of each row, counted from 1; 0 for none.
        cases: Vec<u8>,
        children: Vec<(ColumnBuilder, Vec<bool>)>,
    },
}

impl ColumnBuilder {
    fn for_node(node: &LayoutNode) -> Self {
        match node {
            LayoutNode::Number { of, .. } => {
                Self::Words { width: of.width(), bytes: MutableBuffer::new(0) }
            }
            LayoutNode::Bool { .. } => Self::Bools(Vec::new()),
            LayoutNode::Enum { .. } => Self::Values(Vec::new()),
            LayoutNode::Text(_) | LayoutNode::Bytes(_) | LayoutNode::Rest => {
                Self::Bytes { offsets: vec![0], bytes: Vec::new() }
            }
            LayoutNode::Fixed { count, item, .. } => {
                Self::Fixed { count: *count, rows: 0, item: Box::new(Self::for_node(item)) }
            }
            LayoutNode::List { item, .. } => {
                Self::List { offsets: vec![0], item: Box::new(Self::for_node(item)) }
            }
            LayoutNode::Struct { members, .. } => {
                Self::Struct { rows: 0, children: members.iter().map(Self::for_node).collect() }
            }
            LayoutNode::Variant(VariantNode { children, .. }) => {
                let children = children.iter().map(|node| (Self::for_node(node), Vec::new()));
                Self::Variant { cases: Vec::new(), children: children.collect() }
            }
        }
    }

    fn read(
        &mut self,
        node: &LayoutNode,
        cursor: &mut PayloadCursor<'_>,
        registers: &mut [i64],
    ) -> Result<(), LayoutError> {
        match (self, node) {
            (Self::Words { width, bytes }, LayoutNode::Number { of, register }) => {
                let word = cursor.take(*width)?;
                bytes.extend_from_slice(word);
                if let Some(register) = register.and_then(|at| registers.get_mut(at)) {
                    *register = length_value(*of, word);
                }
            }
            (Self::Bools(bools), LayoutNode::Bool { width }) => bools.push(cursor.bool(*width)?),
            (Self::Values(values), LayoutNode::Enum { width }) => {
                values.push(cursor.value(*width)?)
            }
            (Self::Bytes { offsets, bytes }, LayoutNode::Text(lengths)) => {
                let length = cursor.length(*lengths, 1)?;
                push_text(offsets, bytes, cursor.take(length)?)?;
            }
            (Self::Bytes { offsets, bytes }, LayoutNode::Bytes(lengths)) => {
                let length = cursor.length(*lengths, 1)?;
                push_bytes(offsets, bytes, cursor.take(length)?)?;
            }
            (Self::Bytes { offsets, bytes }, LayoutNode::Rest) => {
                push_bytes(offsets, bytes, cursor.take(cursor.left())?)?;
            }
            (Self::Fixed { count, rows, item }, LayoutNode::Fixed { item: of, .. }) => {
                item.read_many(of, *count, cursor, registers)?;
                *rows += 1;
            }
            (Self::List { offsets, item }, LayoutNode::List { count, least, item: of, .. }) => {
                let length = match count {
                    ListLength::Prefix(lengths) => cursor.length(*lengths, *least)?,
                    ListLength::Register(at) => {
                        cursor.fits(registers.get(*at).copied().unwrap_or_default(), *least)?
                    }
                };
                item.read_many(of, length, cursor, registers)?;
                push_end(offsets, last(offsets) + length)?;
            }
            (Self::Struct { rows, children }, LayoutNode::Struct { members, .. }) => {
                for (child, node) in children.iter_mut().zip(members) {
                    child.read(node, cursor, registers)?;
                }
                *rows += 1;
            }
            (Self::Variant { cases, children }, LayoutNode::Variant(variant)) => {
                cases.push(read_variant(children, variant, cursor, registers)?);
            }
            _ => {}
        }
        Ok(())
    }

    /// Reads `count` consecutive values.
    fn read_many(
        &mut self,
        node: &LayoutNode,
        count: usize,
        cursor: &mut PayloadCursor<'_>,
        registers: &mut [i64],
    ) -> Result<(), LayoutError> {
        if let Self::Words { width, bytes } = self {
            // Numbers have the same layout in payload and column.
            let length = count.checked_mul(*width).ok_or(FULL)?;
            bytes.extend_from_slice(cursor.take(length)?);
            return Ok(());
        }
        (0..count).try_for_each(|_| self.read(node, cursor, registers))
    }

    /// The size in bytes.
    fn bytes(&self) -> usize {
        match self {
            Self::Words { bytes, .. } => bytes.len(),
            Self::Bools(bools) => bools.len(),
            Self::Values(values) => size_of_val(values.as_slice()),
            Self::Bytes { offsets, bytes } => size_of_val(offsets.as_slice()) + bytes.len(),
            Self::Fixed { item, .. } => item.bytes(),
            Self::List { offsets, item } => size_of_val(offsets.as_slice()) + item.bytes(),
            Self::Struct { children, .. } => children.iter().map(Self::bytes).sum(),
            Self::Variant { cases, children } => {
                let children = children.iter().map(|(child, valid)| child.bytes() + valid.len());
                cases.len() + children.sum::<usize>()
            }
        }
    }

    /// Reserves capacity for `times` the current size.
    fn reserve_times(&mut self, times: usize) {
        match self {
            Self::Words { bytes, .. } => bytes.reserve(bytes.len() * times),
            Self::Bools(bools) => bools.reserve(bools.len() * times),
            Self::Values(values) => values.reserve(values.len() * times),
            Self::Bytes { offsets, bytes } => {
                offsets.reserve((offsets.len() - 1) * times);
                bytes.reserve(bytes.len() * times);
            }
            Self::Fixed { item, .. } => item.reserve_times(times),
            Self::List { offsets, item } => {
                offsets.reserve((offsets.len() - 1) * times);
                item.reserve_times(times);
            }
            Self::Struct { children, .. } => {
                children.iter_mut().for_each(|child| child.reserve_times(times));
            }
            Self::Variant { cases, children } => {
                cases.reserve(cases.len() * times);
                for (child, valid) in children {
                    child.reserve_times(times);
                    valid.reserve(valid.len() * times);
                }
            }
        }
    }

    /// Adds a placeholder for a missing value.
    fn push_blank(&mut self) {
        match self {
            Self::Words { width, bytes } => bytes.extend_zeros(*width),
            Self::Bools(bools) => bools.push(false),
            Self::Values(values) => values.push(0),
            Self::Bytes { offsets, .. } | Self::List { offsets, .. } => {
                offsets.push(offsets.last().copied().unwrap_or_default());
            }
            Self::Fixed { count, rows, item } => {
                (0..*count).for_each(|_| item.push_blank());
                *rows += 1;
            }
            Self::Struct { rows, children } => {
                children.iter_mut().for_each(Self::push_blank);
                *rows += 1;
            }
            Self::Variant { cases, children } => {
                cases.push(0);
                for (child, valid) in children {
                    child.push_blank();
                    valid.push(false);
                }
            }
        }
    }

    /// Keeps the first `rows`.
    fn truncate(&mut self, keep: usize) {
        match self {
            Self::Words { width, bytes } => bytes.truncate(keep * *width),
            Self::Bools(bools) => bools.truncate(keep),
            Self::Values(values) => values.truncate(keep),
            Self::Bytes { offsets, bytes } => {
                offsets.truncate(keep + 1);
                bytes.truncate(last(offsets));
            }
            Self::Fixed { count, rows, item } => {
                item.truncate(keep * *count);
                *rows = keep.min(*rows);
            }
            Self::List { offsets, item } => {
                offsets.truncate(keep + 1);
                item.truncate(last(offsets));
            }
            Self::Struct { rows, children } => {
                children.iter_mut().for_each(|child| child.truncate(keep));
                *rows = keep.min(*rows);
            }
            Self::Variant { cases, children } => {
                cases.truncate(keep);
                for (child, valid) in children {
                    child.truncate(keep);
                    valid.truncate(keep);
                }
            }
        }
    }

    fn finish(self, node: &LayoutNode) -> Result<ArrayRef, ArrowError> {
        Ok(match (self, node) {
            (Self::Words { bytes, .. }, LayoutNode::Number { of, .. }) => {
                numbers(*of, bytes.into())
            }
            (Self::Bools(bools), _) => Arc::new(BooleanArray::from(bools)),
            (Self::Values(values), _) => Arc::new(Int32Array::from(values)),
            (Self::Bytes { offsets, bytes }, LayoutNode::Text(_)) => {
                Arc::new(StringArray::try_new(ends(offsets), Buffer::from_vec(bytes), None)?)
            }
            (Self::Bytes { offsets, bytes }, _) => {
                Arc::new(BinaryArray::try_new(ends(offsets), Buffer::from_vec(bytes), None)?)
            }
            (Self::Fixed { count, rows, item }, LayoutNode::Fixed { item: of, field, .. }) => {
                let (item, size) = (item.finish(of)?, count as i32);
                let list = FixedSizeListArray::try_new_with_length(
                    Arc::clone(field),
                    size,
                    item,
                    None,
                    rows,
                )?;
                Arc::new(list)
            }
            (Self::List { offsets, item }, LayoutNode::List { item: of, field, .. }) => {
                let item = item.finish(of)?;
                Arc::new(ListArray::try_new(Arc::clone(field), ends(offsets), item, None)?)
            }
            (Self::Struct { rows, children }, LayoutNode::Struct { members, fields }) => {
                let children = children.into_iter().zip(members);
                let arrays = children.map(|(child, node)| child.finish(node));
                let arrays = arrays.collect::<Result<_, _>>()?;
                Arc::new(StructArray::try_new_with_length(fields.clone(), arrays, None, rows)?)
            }
            (Self::Variant { cases, children }, LayoutNode::Variant(variant)) => {
                Arc::new(variants(&cases, children, variant)?)
            }
            _ => {
                let what = "a column is of another kind than its node".to_owned();
                return Err(ArrowError::InvalidArgumentError(what));
            }
        })
    }
}

/// Reads one case of a variant into its children, and returns its number: 0 if there is none.
fn read_variant(
    children: &mut [(ColumnBuilder, Vec<bool>)],
    variant: &VariantNode,
    cursor: &mut PayloadCursor<'_>,
    registers: &mut [i64],
) -> Result<u8, LayoutError> {
    let case = cursor.byte()?;
    let places = match case.checked_sub(1) {
        None => &[][..],
        Some(at) => variant.cases.get(usize::from(at)).ok_or(NO_CASE)?,
    };
    cursor.spend(variant.blank)?;
    for place in places {
        let (child, node) = (children.get_mut(*place), variant.children.get(*place));
        let (Some((child, valid)), Some(node)) = (child, node) else { continue };
        child.read(node, cursor, registers)?;
        valid.push(true);
    }
    for (at, (child, valid)) in children.iter_mut().enumerate() {
        if !places.contains(&at) {
            child.push_blank();
            valid.push(false);
        }
    }
    Ok(case)
}

fn variants(
    cases: &[u8],
    children: Vec<(ColumnBuilder, Vec<bool>)>,
    variant: &VariantNode,
) -> Result<StructArray, ArrowError> {
    let mut arrays: Vec<ArrayRef> = Vec::new();
    if let Some(classes) = &variant.classes {
        let class = |case: &u8| classes.get(usize::from(*case).checked_sub(1)?).map(|c| &**c);
        arrays.push(Arc::new(StringArray::from_iter(cases.iter().map(class))));
    }
    for ((child, valid), node) in children.into_iter().zip(&variant.children) {
        let data = child.finish(node)?.into_data();
        // A nested null reference is null already.
        let nulls = NullBuffer::union(data.nulls(), Some(&NullBuffer::from(valid)));
        arrays.push(make_array(data.into_builder().nulls(nulls).build()?));
    }
    let valid = NullBuffer::from(cases.iter().map(|case| *case != 0).collect::<Vec<_>>());
    StructArray::try_new_with_length(variant.fields.clone(), arrays, Some(valid), cases.len())
}

fn push_text(offsets: &mut Vec<i32>, bytes: &mut Vec<u8>, text: &[u8]) -> Result<(), LayoutError> {
    // Nearly all text is ASCII without escapes.
    if text.is_ascii() && !text.contains(&b'\\') {
        return push_bytes(offsets, bytes, text);
    }
    push_bytes(offsets, bytes, name::escaped(text).as_bytes())
}

fn push_bytes(offsets: &mut Vec<i32>, bytes: &mut Vec<u8>, more: &[u8]) -> Result<(), LayoutError> {
    push_end(offsets, bytes.len() + more.len())?;
    bytes.extend_from_slice(more);
    Ok(())
}

fn push_end(offsets: &mut Vec<i32>, end: usize) -> Result<(), LayoutError> {
    offsets.push(i32::try_from(end).map_err(|_| FULL)?);
    Ok(())
}

/// Where the last row ends.
fn last(offsets: &[i32]) -> usize {
    offsets.last().map_or(0, |end| end.unsigned_abs() as usize)
}

fn ends(offsets: Vec<i32>) -> OffsetBuffer<i32> {
    OffsetBuffer::new(ScalarBuffer::from(offsets))
}

/// A number used as a length; meaningless for floats.
pub(super) fn length_value(of: NumberType, word: &[u8]) -> i64 {
    let mut wide = [0; 8];
    for (to, from) in wide.iter_mut().zip(word) {
        *to = *from;
    }
    let unsigned = i64::from_le_bytes(wide);
    match of {
        NumberType::I8 => i64::from(unsigned as i8),
        NumberType::I16 => i64::from(unsigned as i16),
        NumberType::I32 => i64::from(unsigned as i32),
        _ => unsigned,
    }
}

fn numbers(of: NumberType, bytes: Buffer) -> ArrayRef {
    match of {
        NumberType::I8 => primitive::<Int8Type>(bytes),
        NumberType::U8 => primitive::<UInt8Type>(bytes),
        NumberType::I16 => primitive::<Int16Type>(bytes),
        NumberType::U16 => primitive::<UInt16Type>(bytes),
        NumberType::I32 => primitive::<Int32Type>(bytes),
        NumberType::U32 => primitive::<UInt32Type>(bytes),
        NumberType::I64 => primitive::<Int64Type>(bytes),
        NumberType::U64 => primitive::<UInt64Type>(bytes),
        NumberType::F32 => primitive::<Float32Type>(bytes),
        NumberType::F64 => primitive::<Float64Type>(bytes),
    }
}

fn primitive<T: ArrowPrimitiveType>(bytes: Buffer) -> ArrayRef {
    Arc::new(PrimitiveArray::<T>::new(ScalarBuffer::from(in_order::<T::Native>(bytes)), None))
}

/// Converts little-endian words to the byte order of this machine.
pub(super) fn in_order<N: ArrowNativeType>(bytes: Buffer) -> Buffer {
    if cfg!(target_endian = "little") {
        return bytes;
    }
    let words = bytes.as_slice().chunks_exact(size_of::<N>());
    Buffer::from_vec(words.flat_map(|word| word.iter().rev().copied()).collect::<Vec<u8>>())
}
