//! Encodes columns as payloads, following the plan they were decoded with. Decodes nothing.

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BinaryArray, PrimitiveArray, RecordBatch, StringArray,
};
use arrow_buffer::{ArrowNativeType, NullBuffer, OffsetBuffer, ScalarBuffer};
use sluice_io::escape;
use sluice_model::raw::raw_value;

use super::cast::as_type;
use super::compile::CLASS;
use super::cursor::{NO_CASE, PayloadCursor, put_length};
use super::plan::{
    ColumnNode, Count, Leaf, Op, PayloadPlan, Program, Region, ValueType, VariantNode, VariantOp,
};
use super::{Endian, LengthEncoding, NumberType, PayloadFault};

const NULL: PayloadFault = "a field is null";
const UNFIT: PayloadFault = "a value does not fit into its field";
const BAD_OPAQUE: PayloadFault = "the bytes of a nested value do not match its type";

impl PayloadPlan {
    /// The payloads of all rows, each appended by `write`, mostly with [`RowEncoder::write`]. A row
    /// that fails is null, and its reason is added to `bad`.
    ///
    /// Columns are found by name and cast if that loses nothing. `Err` names the column that is
    /// missing or has the wrong type.
    pub fn encode<'p>(
        &'p self,
        columns: &RecordBatch,
        bad: &mut Vec<(u32, PayloadFault)>,
        mut write: impl FnMut(&mut RowEncoder<'p>, usize, &mut Vec<u8>) -> Result<(), PayloadFault>,
    ) -> Result<BinaryArray, String> {
        let mut rows = RowEncoder::new(self, columns)?;
        let (mut out, mut ends) = (Vec::new(), vec![0]);
        let mut valid = Vec::with_capacity(columns.num_rows());
        for row in 0..columns.num_rows() {
            let start = out.len();
            let written = write(&mut rows, row, &mut out);
            if let Err(reason) = written {
                out.truncate(start);
                bad.push((row as u32, reason));
            }
            valid.push(written.is_ok());
            let end = i32::try_from(out.len());
            ends.push(end.map_err(|_| "the payloads of one batch are longer than 2 GiB")?);
        }
        let offsets = OffsetBuffer::new(ScalarBuffer::from(ends));
        let nulls = Some(NullBuffer::from(valid)).filter(|nulls| nulls.null_count() > 0);
        BinaryArray::try_new(offsets, out.into(), nulls).map_err(|e| e.to_string())
    }
}

/// The column values that belong to a slot.
#[derive(Debug, Default)]
enum SlotSource {
    #[default]
    Missing,
    Numbers(Words, Nulls),
    /// Numbers of which those that are invalid in the last part do not fit into their field.
    Narrow(Words, Nulls, NullBuffer),
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

/// Numbers as words of their width.
#[derive(Debug)]
enum Words {
    W1(ScalarBuffer<u8>),
    W2(ScalarBuffer<u16>),
    W4(ScalarBuffer<u32>),
    W8(ScalarBuffer<u64>),
}

/// Nulls of a value itself or of a list or struct around it.
type Nulls = Option<NullBuffer>;

/// Encodes the rows of columns.
#[derive(Debug)]
pub struct RowEncoder<'p> {
    plan: &'p PayloadPlan,
    slots: Vec<SlotSource>,
    registers: Vec<i64>,
    /// Where the payload begins in the output.
    start: usize,
    /// The rows that the cast to the columns' types would change.
    unfit: Vec<bool>,
}

impl<'p> RowEncoder<'p> {
    fn new(plan: &'p PayloadPlan, columns: &RecordBatch) -> Result<Self, String> {
        if plan.is_one_way {
            return Err("its columns do not hold all of a payload".to_owned());
        }
        let mut encoder = Self {
            plan,
            slots: plan.slots.iter().map(|_| SlotSource::default()).collect(),
            registers: vec![0; plan.registers],
            start: 0,
            unfit: vec![false; columns.num_rows()],
        };
        for (field, node) in plan.schema.fields().iter().zip(&plan.columns) {
            let name = field.name();
            let column = columns
                .column_by_name(name)
                .ok_or_else(|| format!("there is no column `{name}`"))?;
            let column = as_type(column, field.data_type(), &mut encoder.unfit)
                .map_err(|reason| format!("column `{name}`: {reason}"))?;
            encoder.load(node, &column, None);
        }
        Ok(encoder)
    }

    /// Appends a row to `out`. With `raw`, booleans are written with the raw bytes of their row if
    /// these mean the same values. After `Err`, the bytes appended are undefined.
    pub fn write(
        &mut self,
        row: usize,
        raw: Option<&BinaryArray>,
        out: &mut Vec<u8>,
    ) -> Result<(), PayloadFault> {
        if self.unfit.get(row) != Some(&false) {
            return Err(UNFIT);
        }
        let (plan, start) = (self.plan, out.len());
        self.start = start;
        self.program(&plan.program, row, out)?;
        let Some(raw) = raw else { return Ok(()) };
        let payload = out.get_mut(start..).unwrap_or_default();
        plan.restore_booleans(payload, raw_value(raw, row))
    }

    /// Distributes an array over the slots of its node. `around` are the nulls of the parent.
    fn load(&mut self, node: &ColumnNode, array: &ArrayRef, around: Nulls) {
        let nulls = NullBuffer::union(array.nulls(), around.as_ref());
        match node {
            ColumnNode::Number { slot, of } => self.slots[*slot] = numbers(*of, array, nulls),
            ColumnNode::FixedBytes { slot, size } => {
                let array = array.as_fixed_size_binary();
                let start = array.offset() * size;
                let values = array.values().slice_with_length(start, array.len() * size);
                let nulls = nulls.map(|nulls| nulls.expand(*size));
                self.slots[*slot] = SlotSource::Numbers(Words::W1(values.into()), nulls);
            }
            // Plans with views do not encode.
            ColumnNode::View { .. } => {}
            ColumnNode::Text { slot } => {
                self.slots[*slot] = SlotSource::Text(array.as_string::<i32>().clone(), nulls);
            }
            ColumnNode::Bytes { slot } => {
                self.slots[*slot] = SlotSource::Bytes(array.as_binary::<i32>().clone(), nulls);
            }
            ColumnNode::FixedList { size, item, .. } => {
                let list = array.as_fixed_size_list();
                let start = list.value_offset(0).unsigned_abs() as usize;
                let items = list.values().slice(start, list.len() * size);
                self.load(item, &items, nulls.map(|nulls| nulls.expand(*size)));
            }
            ColumnNode::List { offsets, item, .. } => {
                let list = array.as_list::<i32>();
                self.slots[*offsets] = SlotSource::Offsets(list.offsets().clone(), nulls);
                self.load(item, list.values(), None);
            }
            ColumnNode::Struct { children, .. } => {
                let columns = array.as_struct().columns();
                for (child, column) in children.iter().zip(columns) {
                    self.load(child, column, nulls.clone());
                }
            }
            ColumnNode::Variant(node) => {
                let VariantNode { slot, children, cases, .. } = node;
                let structs = array.as_struct();
                let skipped = usize::from(cases.classes.is_some());
                let class = structs.column_by_name(CLASS).filter(|_| skipped == 1);
                let class = class.map(|class| class.as_string::<i32>().clone());
                let nulls = array.nulls().cloned();
                self.slots[*slot] = SlotSource::Variant { around, nulls, class };
                for (child, column) in children.iter().zip(structs.columns().iter().skip(skipped)) {
                    self.load(child, column, None);
                }
            }
        }
    }

    fn program(
        &mut self,
        program: &Program,
        row: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), PayloadFault> {
        for op in &program.ops {
            match op {
                Op::Region(region) => self.region(region, row, out)?,
                Op::Align(alignment) => self.align(*alignment, out),
                Op::Text { slot } => self.text(*slot, row, out)?,
                Op::Bytes { slot, count, .. } => {
                    let bytes = self.bytes(*slot, row)?;
                    self.put_count(bytes.len(), *count, out)?;
                    out.extend_from_slice(bytes);
                }
                Op::Numbers { offsets, leaf, count, align } => {
                    let (start, end) = self.items(*offsets, row)?;
                    self.put_count(end - start, *count, out)?;
                    if start < end {
                        self.align(*align, out);
                    }
                    let range = start * leaf.per_element..end * leaf.per_element;
                    write_numbers(&self.slots[leaf.slot], range, leaf.endian, |bytes| {
                        out.extend_from_slice(bytes);
                    })?;
                }
                Op::List { offsets, count, item, align } => {
                    let (start, end) = self.items(*offsets, row)?;
                    self.put_count(end - start, *count, out)?;
                    if start < end {
                        self.align(*align, out);
                    }
                    (start..end).try_for_each(|row| self.program(item, row, out))?;
                }
                Op::Repeat { count, item } => {
                    let mut rows = row * count..(row + 1) * count;
                    rows.try_for_each(|row| self.program(item, row, out))?;
                }
                Op::Opaque { slot, of } => {
                    let bytes = self.bytes(*slot, row)?;
                    let mut cursor = PayloadCursor::new(bytes, &self.plan.rules, 0);
                    let skipped = of.skip(&mut cursor).and_then(|_| cursor.end());
                    skipped.map_err(|_| BAD_OPAQUE)?;
                    out.extend_from_slice(bytes);
                }
                Op::Variant(variant) => self.variant(variant, row, out)?,
            }
        }
        Ok(())
    }

    /// Appends zeros up to a multiple of `alignment`.
    fn align(&self, alignment: usize, out: &mut Vec<u8>) {
        let len = (out.len() - self.start).next_multiple_of(alignment);
        out.resize(self.start + len, 0);
    }

    fn region(
        &mut self,
        region: &Region,
        row: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), PayloadFault> {
        let start = out.len();
        out.resize(start + region.size, 0);
        let record = &mut out[start..];
        for Leaf { slot, endian, offsets, run, .. } in &region.leaves {
            for (nth, offset) in offsets.iter().enumerate() {
                let first = (row * offsets.len() + nth) * run;
                let mut at = *offset;
                write_numbers(&self.slots[*slot], first..first + run, *endian, |bytes| {
                    record[at..at + bytes.len()].copy_from_slice(bytes);
                    at += bytes.len();
                })?;
            }
        }
        for count in &region.counts {
            self.registers[count.register] = count.read(record);
        }
        Ok(())
    }

    fn text(&self, slot: usize, row: usize, out: &mut Vec<u8>) -> Result<(), PayloadFault> {
        let SlotSource::Text(texts, nulls) = &self.slots[slot] else { return Err(NULL) };
        check_null(nulls, row, 1)?;
        let text = escape::unescaped(texts.value(row));
        let has_nul = self.plan.rules.lengths == LengthEncoding::U32WithNul;
        put_length(text.len() + usize::from(has_nul), &self.plan.rules, out)?;
        out.extend_from_slice(&text);
        if has_nul {
            out.push(0);
        }
        Ok(())
    }

    fn variant(
        &mut self,
        variant: &VariantOp,
        row: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), PayloadFault> {
        let SlotSource::Variant { around, nulls, class } = &self.slots[variant.slot] else {
            return Err(NULL);
        };
        check_null(around, row, 1)?;
        if check_null(nulls, row, 1).is_err() {
            out.push(0);
            return Ok(());
        }
        let case = match class {
            None => 0,
            Some(class) if class.is_null(row) => return Err(NULL),
            Some(class) => {
                let mut classes = variant.cases.classes.iter().flatten();
                classes.position(|name| **name == *class.value(row)).ok_or(NO_CASE)?
            }
        };
        out.push(u8::try_from(case + 1).map_err(|_| NO_CASE)?);
        let places = variant.cases.children.get(case).ok_or(NO_CASE)?;
        for child in places.iter().filter_map(|place| variant.children.get(*place)) {
            self.program(child, row, out)?;
        }
        Ok(())
    }

    /// The bytes of a row.
    fn bytes(&self, slot: usize, row: usize) -> Result<&[u8], PayloadFault> {
        let SlotSource::Bytes(values, nulls) = &self.slots[slot] else { return Err(NULL) };
        check_null(nulls, row, 1)?;
        Ok(values.value(row))
    }

    /// The range of items that belong to a list's row.
    fn items(&self, slot: usize, row: usize) -> Result<(usize, usize), PayloadFault> {
        let SlotSource::Offsets(offsets, nulls) = &self.slots[slot] else { return Err(NULL) };
        check_null(nulls, row, 1)?;
        Ok((offsets[row].unsigned_abs() as usize, offsets[row + 1].unsigned_abs() as usize))
    }

    /// Writes the number of elements, or compares it with the member that says it.
    fn put_count(
        &self,
        length: usize,
        count: Count,
        out: &mut Vec<u8>,
    ) -> Result<(), PayloadFault> {
        match count {
            Count::Prefix => put_length(length, &self.plan.rules, out),
            Count::Register(at) if usize::try_from(self.registers[at]) == Ok(length) => Ok(()),
            Count::Register(_) => Err(self.plan.rules.faults.other_length),
            Count::Fixed(count) if count != length => Err(self.plan.rules.faults.other_length),
            Count::Fixed(_) | Count::Rest(_) => Ok(()),
        }
    }
}

fn check_null(nulls: &Nulls, start: usize, len: usize) -> Result<(), PayloadFault> {
    let Some(nulls) = nulls else { return Ok(()) };
    if (start..start + len).any(|at| nulls.is_null(at)) { Err(NULL) } else { Ok(()) }
}

/// Passes numbers to `put`, each in wire format.
fn write_numbers(
    source: &SlotSource,
    range: std::ops::Range<usize>,
    endian: Endian,
    mut put: impl FnMut(&[u8]),
) -> Result<(), PayloadFault> {
    let words = match source {
        SlotSource::Numbers(words, nulls) => {
            check_null(nulls, range.start, range.len())?;
            words
        }
        SlotSource::Narrow(words, nulls, fitting) => {
            check_null(nulls, range.start, range.len())?;
            if range.clone().any(|at| fitting.is_null(at)) {
                return Err(UNFIT);
            }
            words
        }
        _ => return Err(NULL),
    };
    match (words, endian) {
        (Words::W1(values), _) => put(&values[range]),
        (Words::W2(values), Endian::Big) => {
            values[range].iter().for_each(|v| put(&v.to_be_bytes()));
        }
        (Words::W4(values), Endian::Big) => {
            values[range].iter().for_each(|v| put(&v.to_be_bytes()));
        }
        (Words::W8(values), Endian::Big) => {
            values[range].iter().for_each(|v| put(&v.to_be_bytes()));
        }
        (Words::W2(values), Endian::Little) => {
            values[range].iter().for_each(|v| put(&v.to_le_bytes()));
        }
        (Words::W4(values), Endian::Little) => {
            values[range].iter().for_each(|v| put(&v.to_le_bytes()));
        }
        (Words::W8(values), Endian::Little) => {
            values[range].iter().for_each(|v| put(&v.to_le_bytes()));
        }
    }
    Ok(())
}

/// Numbers, reinterpreted as unsigned words.
fn numbers(of: ValueType, array: &ArrayRef, nulls: Nulls) -> SlotSource {
    let words = match of {
        ValueType::Number(NumberType::I8) => Words::W1(bits::<Int8Type, _>(array)),
        ValueType::Number(NumberType::U8) => Words::W1(bits::<UInt8Type, _>(array)),
        ValueType::Number(NumberType::I16) => Words::W2(bits::<Int16Type, _>(array)),
        ValueType::Number(NumberType::U16) => Words::W2(bits::<UInt16Type, _>(array)),
        ValueType::Number(NumberType::I24 | NumberType::I32) => {
            Words::W4(bits::<Int32Type, _>(array))
        }
        ValueType::Number(NumberType::U24 | NumberType::U32) => {
            Words::W4(bits::<UInt32Type, _>(array))
        }
        ValueType::Number(NumberType::F32) => Words::W4(bits::<Float32Type, _>(array)),
        ValueType::Number(NumberType::I64) => Words::W8(bits::<Int64Type, _>(array)),
        ValueType::Number(NumberType::U64) => Words::W8(bits::<UInt64Type, _>(array)),
        ValueType::Number(NumberType::F64) => Words::W8(bits::<Float64Type, _>(array)),
        ValueType::Bool(width) => {
            let values = array.as_boolean().values().iter();
            match width {
                1 => Words::W1(values.map(u8::from).collect()),
                2 => Words::W2(values.map(u16::from).collect()),
                4 => Words::W4(values.map(u32::from).collect()),
                _ => Words::W8(values.map(u64::from).collect()),
            }
        }
        ValueType::Enum(width) => {
            let values = array.as_primitive::<Int32Type>();
            return match width {
                1 => narrow(values, nulls, |value| u8::try_from(value).ok(), Words::W1),
                2 => {
                    let word = |value| i16::try_from(value).ok().map(i16::cast_unsigned);
                    narrow(values, nulls, word, Words::W2)
                }
                _ => SlotSource::Numbers(Words::W4(bits::<Int32Type, _>(array)), nulls),
            };
        }
    };
    SlotSource::Numbers(words, nulls)
}

/// Values as words that some of them may not fit into.
fn narrow<T: ArrowNativeType>(
    values: &PrimitiveArray<Int32Type>,
    nulls: Nulls,
    word: impl Fn(i32) -> Option<T>,
    words: fn(ScalarBuffer<T>) -> Words,
) -> SlotSource {
    let fitting: NullBuffer = values.values().iter().map(|value| word(*value).is_some()).collect();
    let narrow = values.values().iter().map(|value| word(*value).unwrap_or_default());
    SlotSource::Narrow(words(narrow.collect()), nulls, fitting)
}

/// The same memory as another type of the same width.
fn bits<T: ArrowPrimitiveType, U: ArrowNativeType>(array: &ArrayRef) -> ScalarBuffer<U> {
    array.as_primitive::<T>().values().inner().clone().into()
}
