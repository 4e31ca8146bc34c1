//! Encodes columns as payloads.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BinaryArray, BooleanArray, Int32Array, RecordBatch,
    StringArray, StructArray,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_cast::cast;
use arrow_schema::{DataType, FieldRef};

use super::compile::{CLASS, LayoutNode, ListLength, VariantNode};
use super::decoding::length_value;
use super::wire::put_length;
use super::{LayoutError, NumberType, PayloadLayout};
use crate::booleans::is_true;
use crate::name;

const NULL: LayoutError = "a field is null";
const OTHER_LENGTH: LayoutError = "a list is not as long as its length field says";
const UNFIT: LayoutError = "a value does not fit into its field";
const NO_CLASS: LayoutError = "its class is not one of those declared";

/// Columns that are encoded as payloads.
#[derive(Debug)]
pub struct LayoutColumns<'l> {
    layout: &'l PayloadLayout,
    columns: Vec<ColumnReader>,
    unfit: Vec<bool>,
    state: WriteState,
}

/// The state while a payload is encoded.
#[derive(Debug, Default)]
struct WriteState {
    /// The members that are lengths of later members.
    registers: Vec<i64>,
    /// The raw booleans of the row, if known.
    raw: Option<Vec<u8>>,
    /// How many of their bytes have been written.
    raw_at: usize,
}

impl WriteState {
    /// The raw bytes of the next boolean.
    fn next_raw(&mut self, width: usize) -> Option<&[u8]> {
        let (raw, start) = (self.raw.as_deref()?, self.raw_at);
        self.raw_at += width;
        raw.get(start..self.raw_at)
    }

    /// Whether all raw bytes were used, and no more.
    fn is_spent(&self) -> bool {
        self.raw.as_ref().is_none_or(|raw| raw.len() == self.raw_at)
    }
}

impl<'l> LayoutColumns<'l> {
    pub(super) fn new(layout: &'l PayloadLayout, columns: &RecordBatch) -> Result<Self, String> {
        let mut unfit = vec![false; columns.num_rows()];
        let fields = layout.schema().fields().iter();
        let given = fields.zip(&layout.compiled.nodes).map(|(field, node)| {
            let name = field.name();
            let column =
                columns.column_by_name(name).ok_or_else(|| format!("there is no column `{name}`"));
            let column = as_type(column?, field.data_type(), &mut unfit);
            Ok(ColumnReader::new(
                node,
                &column.map_err(|reason| format!("column `{name}`: {reason}"))?,
            ))
        });
        let given = given.collect::<Result<_, String>>()?;
        let registers = vec![0; layout.compiled.registers];
        Ok(Self {
            layout,
            columns: given,
            unfit,
            state: WriteState { registers, ..WriteState::default() },
        })
    }

    /// Encodes a row, appending to `out`. On `Err`, `out` is unchanged.
    pub fn write(&mut self, row: usize, out: &mut Vec<u8>) -> Result<(), LayoutError> {
        if self.unfit.get(row) != Some(&false) {
            return Err(UNFIT);
        }
        let start = out.len();
        let state = &mut self.state;
        let mut each = self.columns.iter().zip(&self.layout.compiled.nodes);
        let written = each.try_for_each(|(given, node)| given.write(node, row, out, state));
        if written.is_err() {
            out.truncate(start);
        }
        written
    }

    /// Like [`write`](Self::write), with these raw booleans where they match the row's values. If
    /// their number differs, all booleans are written as 0 and 1.
    pub fn write_with_raw_booleans(
        &mut self,
        row: usize,
        raw: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), LayoutError> {
        let start = out.len();
        (self.state.raw, self.state.raw_at) = (Some(raw.to_vec()), 0);
        let written = self.write(row, out);
        let is_spent = self.state.is_spent();
        self.state.raw = None;
        if written.is_ok() && !is_spent {
            out.truncate(start);
            return self.write(row, out);
        }
        written
    }
}

/// Casts a column back to the type it was decoded as: other programs write lists and numbers
/// differently. Rows that the cast would change are marked in `unfit`.
pub fn as_type(
    column: &ArrayRef,
    data_type: &DataType,
    unfit: &mut [bool],
) -> Result<ArrayRef, String> {
    if column.data_type() == data_type {
        return Ok(Arc::clone(column));
    }
    // A null in the wrong place is found when its row is written.
    let data_type = &nullable(data_type);
    check_lists(column, data_type)?;
    let there = cast(column, data_type).map_err(|e| e.to_string())?;
    let back = cast(&there, &nullable(column.data_type())).map_err(|e| e.to_string())?;
    let column = cast(column, back.data_type()).map_err(|e| e.to_string())?;
    if *back != *column {
        for (row, unfit) in unfit.iter_mut().enumerate() {
            *unfit |= *back.slice(row, 1) != *column.slice(row, 1);
        }
    }
    Ok(there)
}

/// The type with everything in it nullable.
fn nullable(data_type: &DataType) -> DataType {
    let loose = |field: &FieldRef| {
        let inner = nullable(field.data_type());
        Arc::new(field.as_ref().clone().with_data_type(inner).with_nullable(true))
    };
    match data_type {
        DataType::List(item) => DataType::List(loose(item)),
        DataType::LargeList(item) => DataType::LargeList(loose(item)),
        DataType::FixedSizeList(item, size) => DataType::FixedSizeList(loose(item), *size),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(loose).collect()),
        other => other.clone(),
    }
}

/// How far a cast to fixed-size lists may grow a column: factor and allowance in elements. The size
/// may come from an untrusted file.
const MAX_GROWTH: (usize, usize) = (2, 64 << 10);

/// Refuses casts that would make lists far longer.
fn check_lists(array: &ArrayRef, wanted: &DataType) -> Result<(), String> {
    let items = match array.data_type() {
        DataType::List(_) => array.as_list::<i32>().values(),
        DataType::LargeList(_) => array.as_list::<i64>().values(),
        DataType::FixedSizeList(..) => array.as_fixed_size_list().values(),
        DataType::Struct(_) => {
            let DataType::Struct(fields) = wanted else { return Ok(()) };
            let mut both = array.as_struct().columns().iter().zip(fields);
            return both.try_for_each(|(column, field)| check_lists(column, field.data_type()));
        }
        _ => return Ok(()),
    };
    match wanted {
        DataType::FixedSizeList(field, size) => {
            let needs = array.len().saturating_mul(size.unsigned_abs() as usize);
            if needs > items.len().saturating_mul(MAX_GROWTH.0).saturating_add(MAX_GROWTH.1) {
                return Err(format!("its lists do not have {size} elements"));
            }
            check_lists(items, field.data_type())
        }
        DataType::List(field) | DataType::LargeList(field) => check_lists(items, field.data_type()),
        _ => Ok(()),
    }
}

/// The column that a node is encoded from.
#[derive(Debug)]
enum ColumnReader {
    /// Numbers, as an Arrow array.
    Words {
        array: ArrayRef,
        of: NumberType,
    },
    Bools(BooleanArray),
    Values(Int32Array),
    Text(StringArray),
    Bytes(BinaryArray),
    Fixed {
        nulls: Option<NullBuffer>,
        first: usize,
        item: Box<ColumnReader>,
    },
    List {
        nulls: Option<NullBuffer>,
        offsets: OffsetBuffer<i32>,
        item: Box<ColumnReader>,
    },
    Struct {
        nulls: Option<NullBuffer>,
        children: Vec<ColumnReader>,
    },
    Variant {
        nulls: Option<NullBuffer>,
        class: Option<StringArray>,
        children: Vec<ColumnReader>,
    },
}

impl ColumnReader {
    /// `array` has the node's type.
    fn new(node: &LayoutNode, array: &ArrayRef) -> Self {
        let nulls = array.nulls().cloned();
        match node {
            LayoutNode::Number { of, .. } => Self::Words { array: Arc::clone(array), of: *of },
            LayoutNode::Bool { .. } => Self::Bools(array.as_boolean().clone()),
            LayoutNode::Enum { .. } => Self::Values(array.as_primitive::<Int32Type>().clone()),
            LayoutNode::Text(_) => Self::Text(array.as_string::<i32>().clone()),
            LayoutNode::Bytes(_) | LayoutNode::Rest => {
                Self::Bytes(array.as_binary::<i32>().clone())
            }
            LayoutNode::Fixed { item, .. } => {
                let list = array.as_fixed_size_list();
                let first = list.value_offset(0).unsigned_abs() as usize;
                Self::Fixed { nulls, first, item: Box::new(Self::new(item, list.values())) }
            }
            LayoutNode::List { item, .. } => {
                let list = array.as_list::<i32>();
                let item = Box::new(Self::new(item, list.values()));
                Self::List { nulls, offsets: list.offsets().clone(), item }
            }
            LayoutNode::Struct { members, .. } => {
                let children = children(members, array.as_struct(), 0);
                Self::Struct { nulls, children }
            }
            LayoutNode::Variant(VariantNode { classes, children: nodes, .. }) => {
                let array = array.as_struct();
                let skipped = usize::from(classes.is_some());
                let class = classes.as_ref().and_then(|_| array.column_by_name(CLASS));
                let class = class.map(|class| class.as_string::<i32>().clone());
                Self::Variant { nulls, class, children: children(nodes, array, skipped) }
            }
        }
    }

    fn write(
        &self,
        node: &LayoutNode,
        row: usize,
        out: &mut Vec<u8>,
        state: &mut WriteState,
    ) -> Result<(), LayoutError> {
        match (self, node) {
            (Self::Words { array, of }, LayoutNode::Number { register, .. }) => {
                let register = register.and_then(|at| state.registers.get_mut(at));
                write_number(*of, array, row, register, out)?;
            }
            (Self::Bools(bools), LayoutNode::Bool { width }) => {
                check_valid(bools, row)?;
                write_bool(bools.value(row), *width, out, state);
            }
            (Self::Values(values), LayoutNode::Enum { width }) => {
                check_valid(values, row)?;
                put_value(values.value(row), *width, out)?;
            }
            (Self::Text(texts), LayoutNode::Text(lengths)) => {
                check_valid(texts, row)?;
                let text = name::unescaped(texts.value(row));
                put_length(text.len(), *lengths, out)?;
                out.extend_from_slice(&text);
            }
            (Self::Bytes(values), LayoutNode::Bytes(lengths)) => {
                check_valid(values, row)?;
                put_length(values.value(row).len(), *lengths, out)?;
                out.extend_from_slice(values.value(row));
            }
            (Self::Bytes(values), LayoutNode::Rest) => {
                check_valid(values, row)?;
                out.extend_from_slice(values.value(row));
            }
            (Self::Fixed { nulls, first, item }, LayoutNode::Fixed { count, item: of, .. }) => {
                check_nulls(nulls, row)?;
                item.write_many(of, first + row * count, *count, out, state)?;
            }
            (Self::List { nulls, offsets, item }, LayoutNode::List { count, item: of, .. }) => {
                check_nulls(nulls, row)?;
                let end = |at: usize| offsets.get(at).map_or(0, |end| end.unsigned_abs() as usize);
                let (start, end) = (end(row), end(row + 1));
                put_count(end - start, *count, out, &state.registers)?;
                item.write_many(of, start, end - start, out, state)?;
            }
            (Self::Struct { nulls, children }, LayoutNode::Struct { members, .. }) => {
                check_nulls(nulls, row)?;
                for (child, node) in children.iter().zip(members) {
                    child.write(node, row, out, state)?;
                }
            }
            (Self::Variant { nulls, class, children }, LayoutNode::Variant(variant)) => {
                let parts = (nulls, class.as_ref(), &children[..]);
                write_variant(variant, parts, row, out, state)?;
            }
            _ => return Err(UNFIT),
        }
        Ok(())
    }

    fn write_many(
        &self,
        node: &LayoutNode,
        start: usize,
        count: usize,
        out: &mut Vec<u8>,
        state: &mut WriteState,
    ) -> Result<(), LayoutError> {
        match self {
            Self::Words { array, of } => words(*of, array, start, count, out),
            _ => (start..start + count).try_for_each(|row| self.write(node, row, out, state)),
        }
    }
}

/// Appends a number, and sets its register if it is a length.
fn write_number(
    of: NumberType,
    array: &ArrayRef,
    row: usize,
    register: Option<&mut i64>,
    out: &mut Vec<u8>,
) -> Result<(), LayoutError> {
    let start = out.len();
    words(of, array, row, 1, out)?;
    if let Some(register) = register {
        *register = length_value(of, out.get(start..).unwrap_or_default());
    }
    Ok(())
}

/// Appends a boolean: its original bytes if they mean the same value, 0 or 1 otherwise.
fn write_bool(value: bool, width: usize, out: &mut Vec<u8>, state: &mut WriteState) {
    match state.next_raw(width) {
        Some(raw) if is_true(raw) == value => out.extend_from_slice(raw),
        _ => {
            out.push(u8::from(value));
            out.resize(out.len() + width - 1, 0);
        }
    }
}

/// The validity of a variant's rows, their classes if it has several, and its columns.
type VariantColumns<'c> = (&'c Option<NullBuffer>, Option<&'c StringArray>, &'c [ColumnReader]);

fn write_variant(
    variant: &VariantNode,
    (nulls, class, children): VariantColumns<'_>,
    row: usize,
    out: &mut Vec<u8>,
    state: &mut WriteState,
) -> Result<(), LayoutError> {
    if check_nulls(nulls, row).is_err() {
        out.push(0);
        return Ok(());
    }
    let case = match class {
        None => 0,
        Some(class) => case_of(variant, class, row)?,
    };
    out.push(u8::try_from(case + 1).map_err(|_| NO_CLASS)?);
    for place in variant.cases.get(case).ok_or(NO_CLASS)? {
        let (child, node) = (children.get(*place), variant.children.get(*place));
        let (Some(child), Some(node)) = (child, node) else { continue };
        child.write(node, row, out, state)?;
    }
    Ok(())
}

/// The columns of a struct from index `from` on, as readers of its members.
fn children(nodes: &[LayoutNode], array: &StructArray, from: usize) -> Vec<ColumnReader> {
    let columns = array.columns().iter().skip(from);
    nodes.iter().zip(columns).map(|(node, column)| ColumnReader::new(node, column)).collect()
}

fn case_of(variant: &VariantNode, class: &StringArray, row: usize) -> Result<usize, LayoutError> {
    check_valid(class, row)?;
    let classes = variant.classes.iter().flatten();
    classes.into_iter().position(|known| **known == *class.value(row)).ok_or(NO_CLASS)
}

fn put_count(
    length: usize,
    count: ListLength,
    out: &mut Vec<u8>,
    registers: &[i64],
) -> Result<(), LayoutError> {
    match count {
        ListLength::Prefix(lengths) => put_length(length, lengths, out),
        ListLength::Register(at) => {
            let said = registers.get(at).copied().map(usize::try_from);
            if said == Some(Ok(length)) { Ok(()) } else { Err(OTHER_LENGTH) }
        }
    }
}

fn put_value(value: i32, width: usize, out: &mut Vec<u8>) -> Result<(), LayoutError> {
    match width {
        1 => out.push(u8::try_from(value).map_err(|_| UNFIT)?),
        2 => out.extend_from_slice(&i16::try_from(value).map_err(|_| UNFIT)?.to_le_bytes()),
        _ => out.extend_from_slice(&value.to_le_bytes()),
    }
    Ok(())
}

fn check_valid(array: &dyn Array, row: usize) -> Result<(), LayoutError> {
    if row < array.len() && array.is_valid(row) { Ok(()) } else { Err(NULL) }
}

fn check_nulls(nulls: &Option<NullBuffer>, row: usize) -> Result<(), LayoutError> {
    if nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)) { Ok(()) } else { Err(NULL) }
}

/// Appends consecutive numbers.
fn words(
    of: NumberType,
    array: &ArrayRef,
    start: usize,
    count: usize,
    out: &mut Vec<u8>,
) -> Result<(), LayoutError> {
    let has_null = |nulls: &NullBuffer| nulls.slice(start, count).null_count() > 0;
    if array.nulls().is_some_and(has_null) {
        return Err(NULL);
    }
    match of {
        NumberType::I8 => put::<Int8Type>(array, start, count, out),
        NumberType::U8 => put::<UInt8Type>(array, start, count, out),
        NumberType::I16 => put::<Int16Type>(array, start, count, out),
        NumberType::U16 => put::<UInt16Type>(array, start, count, out),
        NumberType::I32 => put::<Int32Type>(array, start, count, out),
        NumberType::U32 => put::<UInt32Type>(array, start, count, out),
        NumberType::I64 => put::<Int64Type>(array, start, count, out),
        NumberType::U64 => put::<UInt64Type>(array, start, count, out),
        NumberType::F32 => put::<Float32Type>(array, start, count, out),
        NumberType::F64 => put::<Float64Type>(array, start, count, out),
    }
    Ok(())
}

fn put<T: ArrowPrimitiveType>(array: &ArrayRef, start: usize, count: usize, out: &mut Vec<u8>) {
    let values = array.as_primitive::<T>().values().slice(start, count);
    let little = super::decoding::in_order::<T::Native>(values.into_inner());
    out.extend_from_slice(little.as_slice());
}
