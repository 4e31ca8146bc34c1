//! Encodes columns as payloads, following the plan they were decoded with. Decodes nothing.

use arrow_array::{Array, BinaryArray, RecordBatch};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use sluice_io::escape;
use sluice_model::cast::as_fields;
use sluice_model::raw::raw_value;

use super::cursor::{NO_CASE, PayloadCursor, put_length};
use super::plan::{Count, NumberArray, Op, PayloadPlan, Program, Region, VariantOp};
use super::records::{self, RecordWindow};
use super::sources::{NULL, SlotSource, UNFIT, check_valid, load};
use super::{LengthEncoding, PayloadFault};

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
        // Allocators reuse memory better if sizes are few, and what is not touched costs nothing.
        let mut out = Vec::with_capacity(rows.encoded_len().next_power_of_two());
        let mut ends = Vec::with_capacity(columns.num_rows() + 1);
        ends.push(0);
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

/// Encodes the rows of columns.
#[derive(Debug)]
pub struct RowEncoder<'p> {
    plan: &'p PayloadPlan,
    slots: Vec<SlotSource>,
    /// The next records of each region of the plan.
    windows: Vec<RecordWindow>,
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
            windows: (0..plan.regions).map(|_| RecordWindow::default()).collect(),
            registers: vec![0; plan.registers],
            start: 0,
            unfit: vec![false; columns.num_rows()],
        };
        let columns = as_fields(columns, plan.schema.fields(), &mut encoder.unfit)?;
        for (column, node) in columns.iter().zip(&plan.columns) {
            load(&mut encoder.slots, node, column, None);
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

    /// About as many bytes as all rows take.
    fn encoded_len(&self) -> usize {
        // What the format puts before the fields of each row, rounded up.
        const HEADER: usize = 16;
        let slots: usize = self.slots.iter().map(SlotSource::encoded_len).sum();
        slots + self.unfit.len() * HEADER
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
                Op::Part => {}
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
                    self.numbers(leaf, (start, end), out)?;
                }
                Op::List { offsets, count, item, align } => {
                    let (start, end) = self.items(*offsets, row)?;
                    self.put_count(end - start, *count, out)?;
                    if start < end {
                        self.align(*align, out);
                    }
                    self.programs(item, (start, end), out)?;
                }
                Op::Repeat { count, item } => {
                    self.programs(item, (row * count, (row + 1) * count), out)?;
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

    /// Appends several rows of a program.
    fn programs(
        &mut self,
        item: &Program,
        (start, end): (usize, usize),
        out: &mut Vec<u8>,
    ) -> Result<(), PayloadFault> {
        if let [Op::Region(region)] = item.ops.as_slice() {
            let window = &mut self.windows[region.id];
            return window.append(region, (start, end), &self.slots, out);
        }
        (start..end).try_for_each(|row| self.program(item, row, out))
    }

    fn region(
        &mut self,
        region: &Region,
        row: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), PayloadFault> {
        let start = out.len();
        self.windows[region.id].append(region, (row, row + 1), &self.slots, out)?;
        let record = out.get(start..).unwrap_or_default();
        for count in &region.counts {
            self.registers[count.register] = count.read(record);
        }
        Ok(())
    }

    /// Appends these elements of an array.
    fn numbers(
        &self,
        leaf: &NumberArray,
        (start, end): (usize, usize),
        out: &mut Vec<u8>,
    ) -> Result<(), PayloadFault> {
        let SlotSource::Numbers(source) = &self.slots[leaf.slot] else { return Err(NULL) };
        let range = start * leaf.per_element..end * leaf.per_element;
        source.check(range.start, range.len())?;
        records::append_numbers(&source.numbers, range, leaf.endian, out);
        Ok(())
    }

    fn text(&self, slot: usize, row: usize, out: &mut Vec<u8>) -> Result<(), PayloadFault> {
        let SlotSource::Text(texts, nulls) = &self.slots[slot] else { return Err(NULL) };
        check_valid(nulls, row, 1, NULL)?;
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
        check_valid(around, row, 1, NULL)?;
        if check_valid(nulls, row, 1, NULL).is_err() {
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
        check_valid(nulls, row, 1, NULL)?;
        Ok(values.value(row))
    }

    /// The range of items that belong to a list's row, counted from the first one loaded.
    fn items(&self, slot: usize, row: usize) -> Result<(usize, usize), PayloadFault> {
        let SlotSource::Offsets(offsets, nulls) = &self.slots[slot] else { return Err(NULL) };
        check_valid(nulls, row, 1, NULL)?;
        let item = |row: usize| offsets[row].abs_diff(offsets[0]) as usize;
        Ok((item(row), item(row + 1)))
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
