//! Columns back into payloads, by the plan they were decoded with. Decodes nothing.

use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, ArrayRef, BinaryArray, RecordBatch};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use sluice_core::layout::as_type;
use sluice_core::name;

use super::plan::{Leaf, Node, Op, Plan, Program, Region};
use super::wire::{Cursor, Reason};
use crate::types::Library;
use crate::types::syntax::Primitive;

const NULL: Reason = "a field is null";
const OTHER_LENGTH: Reason = "a list is not as long as its length field says";
const LONG: Reason = "a text is longer than 2 GiB";
const UNFIT: Reason = "a value does not fit into its field";
const BAD_WIRE: Reason = "what is kept as bytes is no value of its type";

/// The payloads of all rows; null where a row stands for none, of which `bad` is told.
pub(crate) fn encode(
    plan: &Plan,
    library: &Library,
    fingerprint: u64,
    columns: &RecordBatch,
    bad: &mut Vec<(u32, Reason)>,
) -> Result<BinaryArray, String> {
    let mut encoder = Encoder {
        library,
        slots: plan.slots.iter().map(|_| Given::default()).collect(),
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
        encoder.take(node, &column, None);
    }
    let (mut ends, mut valid) = (vec![0], Vec::with_capacity(columns.num_rows()));
    for row in 0..columns.num_rows() {
        let start = encoder.out.len();
        encoder.out.extend_from_slice(&fingerprint.to_be_bytes());
        let is_unfit = unfit.get(row) == Some(&true);
        let written = if is_unfit { Err(UNFIT) } else { encoder.program(&plan.program, row) };
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

/// What a slot is filled from.
#[derive(Default)]
enum Given {
    #[default]
    Nothing,
    W1(ScalarBuffer<u8>, Nulls),
    W2(ScalarBuffer<u16>, Nulls),
    W4(ScalarBuffer<u32>, Nulls),
    W8(ScalarBuffer<u64>, Nulls),
    Offsets(OffsetBuffer<i32>, Nulls),
    Text(arrow_array::StringArray, Nulls),
    Bytes(BinaryArray, Nulls),
}

/// Which values are null, themselves or by what is around them.
type Nulls = Option<NullBuffer>;

struct Encoder<'p> {
    library: &'p Library,
    slots: Vec<Given>,
    registers: Vec<i64>,
    out: Vec<u8>,
}

impl Encoder<'_> {
    /// Takes an array apart into the slots of its node. `around` says what is null around it.
    fn take(&mut self, node: &Node, array: &ArrayRef, around: Nulls) {
        let nulls = NullBuffer::union(array.nulls(), around.as_ref());
        match node {
            Node::Number { slot, of } => self.slots[*slot] = numbers(*of, array, nulls),
            Node::FixedBytes { slot, size } => {
                let array = array.as_fixed_size_binary();
                let start = array.offset() * size;
                let values = array.values().slice_with_length(start, array.len() * size);
                let nulls = nulls.map(|nulls| nulls.expand(*size));
                self.slots[*slot] = Given::W1(values.into(), nulls);
            }
            Node::Text { slot } => {
                self.slots[*slot] = Given::Text(array.as_string::<i32>().clone(), nulls);
            }
            Node::Bytes { slot } => {
                self.slots[*slot] = Given::Bytes(array.as_binary::<i32>().clone(), nulls);
            }
            Node::FixedList { size, item, .. } => {
                let list = array.as_fixed_size_list();
                let start = list.value_offset(0).unsigned_abs() as usize;
                let items = list.values().slice(start, list.len() * size);
                self.take(item, &items, nulls.map(|nulls| nulls.expand(*size)));
            }
            Node::List { offsets, item, .. } => {
                let list = array.as_list::<i32>();
                self.slots[*offsets] = Given::Offsets(list.offsets().clone(), nulls);
                self.take(item, list.values(), None);
            }
            Node::Struct { children, .. } => {
                let columns = array.as_struct().columns();
                for (child, column) in children.iter().zip(columns) {
                    self.take(child, column, nulls.clone());
                }
            }
        }
    }

    fn program(&mut self, program: &Program, row: usize) -> Result<(), Reason> {
        for op in &program.ops {
            match op {
                Op::Region(region) => self.region(region, row)?,
                Op::Text { slot } => {
                    let Given::Text(texts, nulls) = &self.slots[*slot] else { return Err(NULL) };
                    check_null(nulls, row, 1)?;
                    let text = name::unescaped(texts.value(row));
                    let length = i32::try_from(text.len() + 1).map_err(|_| LONG)?;
                    self.out.extend_from_slice(&length.to_be_bytes());
                    self.out.extend_from_slice(&text);
                    self.out.push(0);
                }
                Op::Bytes { slot, count } => {
                    let length = self.bytes(*slot, row)?;
                    self.check_length(length, *count)?;
                }
                Op::Numbers { offsets, leaf, count } => {
                    let (start, end) = self.items(*offsets, row)?;
                    self.check_length(end - start, *count)?;
                    let Self { slots, out, .. } = self;
                    let range = start * leaf.per..end * leaf.per;
                    write(&slots[leaf.slot], range, |bytes| out.extend_from_slice(bytes))?;
                }
                Op::List { offsets, count, item } => {
                    let (start, end) = self.items(*offsets, row)?;
                    self.check_length(end - start, *count)?;
                    (start..end).try_for_each(|row| self.program(item, row))?;
                }
                Op::Repeat { count, item } => {
                    let rows = row * count..(row + 1) * count;
                    rows.into_iter().try_for_each(|row| self.program(item, row))?;
                }
                Op::Wire { slot, of } => {
                    let start = self.out.len();
                    self.bytes(*slot, row)?;
                    let mut cursor = Cursor::new(&self.out[start..], 0);
                    let skipped = cursor.skip(self.library, *of).and_then(|_| cursor.end());
                    skipped.map_err(|_| BAD_WIRE)?;
                }
            }
        }
        Ok(())
    }

    fn region(&mut self, region: &Region, row: usize) -> Result<(), Reason> {
        let Self { slots, registers, out, .. } = self;
        let start = out.len();
        out.resize(start + region.size, 0);
        let record = &mut out[start..];
        for Leaf { slot, width, places, run } in &region.leaves {
            for (nth, place) in places.iter().enumerate() {
                let first = (row * places.len() + nth) * run;
                let mut at = *place;
                write(&slots[*slot], first..first + run, |bytes| {
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

    /// Appends bytes as they are; gives how many.
    fn bytes(&mut self, slot: usize, row: usize) -> Result<usize, Reason> {
        let Given::Bytes(values, nulls) = &self.slots[slot] else { return Err(NULL) };
        check_null(nulls, row, 1)?;
        let bytes = values.value(row);
        self.out.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    /// Which rows of its items a list has.
    fn items(&self, slot: usize, row: usize) -> Result<(usize, usize), Reason> {
        let Given::Offsets(offsets, nulls) = &self.slots[slot] else { return Err(NULL) };
        check_null(nulls, row, 1)?;
        Ok((offsets[row].unsigned_abs() as usize, offsets[row + 1].unsigned_abs() as usize))
    }

    fn check_length(&self, length: usize, register: usize) -> Result<(), Reason> {
        let said = usize::try_from(self.registers[register]);
        if said == Ok(length) { Ok(()) } else { Err(OTHER_LENGTH) }
    }
}

fn check_null(nulls: &Nulls, start: usize, len: usize) -> Result<(), Reason> {
    let Some(nulls) = nulls else { return Ok(()) };
    if (start..start + len).any(|at| nulls.is_null(at)) { Err(NULL) } else { Ok(()) }
}

/// Gives numbers to `put`, each as a log has it.
fn write(
    given: &Given,
    range: std::ops::Range<usize>,
    mut put: impl FnMut(&[u8]),
) -> Result<(), Reason> {
    let (Given::W1(_, nulls) | Given::W2(_, nulls) | Given::W4(_, nulls) | Given::W8(_, nulls)) =
        given
    else {
        return Err(NULL);
    };
    check_null(nulls, range.start, range.len())?;
    match given {
        Given::W1(values, _) => values[range].iter().for_each(|v| put(&v.to_be_bytes())),
        Given::W2(values, _) => values[range].iter().for_each(|v| put(&v.to_be_bytes())),
        Given::W4(values, _) => values[range].iter().for_each(|v| put(&v.to_be_bytes())),
        Given::W8(values, _) => values[range].iter().for_each(|v| put(&v.to_be_bytes())),
        Given::Nothing | Given::Offsets(..) | Given::Text(..) | Given::Bytes(..) => {}
    }
    Ok(())
}

/// Numbers as the bits they are made of.
fn numbers(of: Primitive, array: &ArrayRef, nulls: Nulls) -> Given {
    match of {
        Primitive::Int8 => Given::W1(bits::<Int8Type, _>(array), nulls),
        Primitive::Byte => Given::W1(bits::<UInt8Type, _>(array), nulls),
        Primitive::Int16 => Given::W2(bits::<Int16Type, _>(array), nulls),
        Primitive::Int32 => Given::W4(bits::<Int32Type, _>(array), nulls),
        Primitive::Float => Given::W4(bits::<Float32Type, _>(array), nulls),
        Primitive::Int64 => Given::W8(bits::<Int64Type, _>(array), nulls),
        Primitive::Double => Given::W8(bits::<Float64Type, _>(array), nulls),
        Primitive::Boolean => {
            let values = array.as_boolean().values().iter().map(u8::from).collect();
            Given::W1(values, nulls)
        }
        Primitive::String => Given::Nothing,
    }
}

/// The same memory under another name. Both are numbers of one width.
fn bits<T: ArrowPrimitiveType, U: arrow_buffer::ArrowNativeType>(
    array: &ArrayRef,
) -> ScalarBuffer<U> {
    array.as_primitive::<T>().values().inner().clone().into()
}
