//! Encodes columns as payloads, following the plan they were decoded with. Decodes nothing.

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, BinaryArray, RecordBatch};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use sluice_core::layout::as_type;
use sluice_core::name;

use super::plan::{ColumnNode, Leaf, MessagePlan, Op, Program, Region};
use super::wire::{PayloadCursor, PayloadFault};
use crate::types::Library;
use crate::types::syntax::Primitive;

const NULL: PayloadFault = "a field is null";
const OTHER_LENGTH: PayloadFault = "a list and its length field differ";
const LONG: PayloadFault = "a text is longer than 2 GiB";
const UNFIT: PayloadFault = "a value does not fit into its field";
const BAD_OPAQUE: PayloadFault = "the bytes of a nested value do not match its type";

/// The payloads of all rows. A row that cannot be encoded is null, and `bad` gets the reason.
pub(crate) fn encode(
    plan: &MessagePlan,
    library: &Library,
    fingerprint: u64,
    columns: &RecordBatch,
    bad: &mut Vec<(u32, PayloadFault)>,
) -> Result<BinaryArray, String> {
    let mut encoder = Encoder {
        library,
        slots: plan.slots.iter().map(|_| SlotSource::default()).collect(),
        registers: vec![0; plan.registers],
        out: Vec::new(),
    };
    let mut unfit = vec![false; columns.num_rows()];
    for (field, node) in plan.schema.fields().iter().zip(&plan.columns) {
        let name = field.name();
        let column =
            columns.column_by_name(name).ok_or_else(|| format!("there is no column `{name}`"))?;
        let column = as_type(column, field.data_type(), &mut unfit)
            .map_err(|reason| format!("column `{name}`: {reason}"))?;
        encoder.load(node, &column, None);
    }
    let (mut ends, mut valid) = (vec![0], Vec::with_capacity(columns.num_rows()));
    for row in 0..columns.num_rows() {
        let start = encoder.out.len();
        encoder.out.extend_from_slice(&fingerprint.to_be_bytes());
        let is_unfit = unfit.get(row) == Some(&true);
        let written = if is_unfit { Err(UNFIT) } else { encoder.encode_row(&plan.program, row) };
        if let Err(reason) = written {
            encoder.out.truncate(start);
            bad.push((row as u32, reason));
        }
        valid.push(written.is_ok());
        let end = i32::try_from(encoder.out.len());
        ends.push(end.map_err(|_| "the payloads of one batch are longer than 2 GiB")?);
    }
    let offsets = OffsetBuffer::new(ScalarBuffer::from(ends));
    let nulls = Some(NullBuffer::from(valid)).filter(|nulls| nulls.null_count() > 0);
    BinaryArray::try_new(offsets, encoder.out.into(), nulls).map_err(|e| e.to_string())
}

/// The column values that belong to a slot.
#[derive(Default)]
enum SlotSource {
    #[default]
    Missing,
    W1(ScalarBuffer<u8>, Nulls),
    W2(ScalarBuffer<u16>, Nulls),
    W4(ScalarBuffer<u32>, Nulls),
    W8(ScalarBuffer<u64>, Nulls),
    Offsets(OffsetBuffer<i32>, Nulls),
    Text(arrow_array::StringArray, Nulls),
    Bytes(BinaryArray, Nulls),
}

/// Nulls of a value itself or of a list or struct around it.
type Nulls = Option<NullBuffer>;

struct Encoder<'p> {
    library: &'p Library,
    slots: Vec<SlotSource>,
    registers: Vec<i64>,
    out: Vec<u8>,
}

impl Encoder<'_> {
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
                self.slots[*slot] = SlotSource::W1(values.into(), nulls);
            }
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
        }
    }

    fn encode_row(&mut self, program: &Program, row: usize) -> Result<(), PayloadFault> {
        for op in &program.ops {
            match op {
                Op::Region(region) => self.encode_region(region, row)?,
                Op::Text { slot } => {
                    let SlotSource::Text(texts, nulls) = &self.slots[*slot] else {
                        return Err(NULL);
                    };
                    check_null(nulls, row, 1)?;
                    let text = name::unescaped(texts.value(row));
                    let length = i32::try_from(text.len() + 1).map_err(|_| LONG)?;
                    self.out.extend_from_slice(&length.to_be_bytes());
                    self.out.extend_from_slice(&text);
                    self.out.push(0);
                }
                Op::Bytes { slot, count } => {
                    let length = self.bytes(*slot, row)?;
                    self.check_count(length, *count)?;
                }
                Op::Numbers { offsets, leaf, count } => {
                    let (start, end) = self.items(*offsets, row)?;
                    self.check_count(end - start, *count)?;
                    let Self { slots, out, .. } = self;
                    let range = start * leaf.per_element..end * leaf.per_element;
                    write_numbers(&slots[leaf.slot], range, |bytes| out.extend_from_slice(bytes))?;
                }
                Op::List { offsets, count, item } => {
                    let (start, end) = self.items(*offsets, row)?;
                    self.check_count(end - start, *count)?;
                    (start..end).try_for_each(|row| self.encode_row(item, row))?;
                }
                Op::Repeat { count, item } => {
                    let rows = row * count..(row + 1) * count;
                    rows.into_iter().try_for_each(|row| self.encode_row(item, row))?;
                }
                Op::Opaque { slot, of } => {
                    let start = self.out.len();
                    self.bytes(*slot, row)?;
                    let mut cursor = PayloadCursor::new(&self.out[start..], 0);
                    let skipped = cursor.skip(self.library, *of).and_then(|_| cursor.end());
                    skipped.map_err(|_| BAD_OPAQUE)?;
                }
            }
        }
        Ok(())
    }

    fn encode_region(&mut self, region: &Region, row: usize) -> Result<(), PayloadFault> {
        let Self { slots, registers, out, .. } = self;
        let start = out.len();
        out.resize(start + region.size, 0);
        let record = &mut out[start..];
        for Leaf { slot, width, offsets, run } in &region.leaves {
            for (nth, offset) in offsets.iter().enumerate() {
                let first = (row * offsets.len() + nth) * run;
                let mut at = *offset;
                write_numbers(&slots[*slot], first..first + run, |bytes| {
                    record[at..at + width].copy_from_slice(bytes);
                    at += width;
                })?;
            }
        }
        for count in &region.counts {
            registers[count.register] = count.read(record);
        }
        Ok(())
    }

    /// Appends bytes unchanged. Returns how many.
    fn bytes(&mut self, slot: usize, row: usize) -> Result<usize, PayloadFault> {
        let SlotSource::Bytes(values, nulls) = &self.slots[slot] else { return Err(NULL) };
        check_null(nulls, row, 1)?;
        let bytes = values.value(row);
        self.out.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    /// The range of items that belong to a list's row.
    fn items(&self, slot: usize, row: usize) -> Result<(usize, usize), PayloadFault> {
        let SlotSource::Offsets(offsets, nulls) = &self.slots[slot] else { return Err(NULL) };
        check_null(nulls, row, 1)?;
        Ok((offsets[row].unsigned_abs() as usize, offsets[row + 1].unsigned_abs() as usize))
    }

    fn check_count(&self, length: usize, register: usize) -> Result<(), PayloadFault> {
        let expected = usize::try_from(self.registers[register]);
        if expected == Ok(length) { Ok(()) } else { Err(OTHER_LENGTH) }
    }
}

fn check_null(nulls: &Nulls, start: usize, len: usize) -> Result<(), PayloadFault> {
    let Some(nulls) = nulls else { return Ok(()) };
    if (start..start + len).any(|at| nulls.is_null(at)) { Err(NULL) } else { Ok(()) }
}

/// Passes numbers to `put`, each in wire format.
fn write_numbers(
    given: &SlotSource,
    range: std::ops::Range<usize>,
    mut put: impl FnMut(&[u8]),
) -> Result<(), PayloadFault> {
    let (SlotSource::W1(_, nulls)
    | SlotSource::W2(_, nulls)
    | SlotSource::W4(_, nulls)
    | SlotSource::W8(_, nulls)) = given
    else {
        return Err(NULL);
    };
    check_null(nulls, range.start, range.len())?;
    match given {
        SlotSource::W1(values, _) => values[range].iter().for_each(|v| put(&v.to_be_bytes())),
        SlotSource::W2(values, _) => values[range].iter().for_each(|v| put(&v.to_be_bytes())),
        SlotSource::W4(values, _) => values[range].iter().for_each(|v| put(&v.to_be_bytes())),
        SlotSource::W8(values, _) => values[range].iter().for_each(|v| put(&v.to_be_bytes())),
        SlotSource::Missing
        | SlotSource::Offsets(..)
        | SlotSource::Text(..)
        | SlotSource::Bytes(..) => {}
    }
    Ok(())
}

/// Reinterprets numbers as unsigned words.
fn numbers(of: Primitive, array: &ArrayRef, nulls: Nulls) -> SlotSource {
    match of {
        Primitive::Int8 => SlotSource::W1(bits::<Int8Type, _>(array), nulls),
        Primitive::Byte => SlotSource::W1(bits::<UInt8Type, _>(array), nulls),
        Primitive::Int16 => SlotSource::W2(bits::<Int16Type, _>(array), nulls),
        Primitive::Int32 => SlotSource::W4(bits::<Int32Type, _>(array), nulls),
        Primitive::Float => SlotSource::W4(bits::<Float32Type, _>(array), nulls),
        Primitive::Int64 => SlotSource::W8(bits::<Int64Type, _>(array), nulls),
        Primitive::Double => SlotSource::W8(bits::<Float64Type, _>(array), nulls),
        Primitive::Boolean => {
            let values = array.as_boolean().values().iter().map(u8::from).collect();
            SlotSource::W1(values, nulls)
        }
        Primitive::String => SlotSource::Missing,
    }
}

/// The same memory as another type of the same width.
fn bits<T: ArrowPrimitiveType, U: arrow_buffer::ArrowNativeType>(
    array: &ArrayRef,
) -> ScalarBuffer<U> {
    array.as_primitive::<T>().values().inner().clone().into()
}
