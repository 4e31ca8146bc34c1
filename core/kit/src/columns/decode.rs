//! Decodes payloads into slots, following a plan. A first pass walks each payload, checks
//! everything, and copies what has no fixed offset. Then the regions of a few hundred payloads are
//! read at once, column by column.
//!
//! A payload that turns out to be wrong leaves nothing behind. Nothing is allocated per payload.

use arrow_array::builder::BinaryBuilder;
use arrow_array::{BinaryArray, RecordBatch, RecordBatchOptions};
use arrow_schema::{ArrowError, SchemaRef};
use sluice_io::escape;
use sluice_model::{Batch, Error, PayloadForm};

use super::arrays::{self, SlotBuilder, last_offset};
use super::cursor::{NO_CASE, PayloadCursor, check_booleans, check_padding};
use super::gather::{extend_slot, gather};
use super::plan::{Count, NumberArray, Op, PayloadPlan, Program, Region, ValueType, VariantOp};
use super::{PayloadFault, SpanKind};

/// Payloads whose regions are collected before they are read, so that they stay in the core's own
/// cache.
const BLOCK_PAYLOADS: usize = 256;
/// Payloads that predict the size of columns, until the first block does better.
const FIRST_PAYLOADS: usize = 16;
/// Most records that wait in one region's queue.
const MAX_QUEUED: usize = 8 * 1024;

impl PayloadForm for PayloadPlan {
    fn schema(&self) -> &SchemaRef {
        self.schema()
    }

    fn decode(
        &self,
        batch: &Batch,
        events: &[u32],
        bad: &mut Vec<(u32, PayloadFault)>,
        raw: Option<&mut BinaryBuilder>,
    ) -> Result<(Vec<u32>, RecordBatch), Error> {
        let fields = |event| {
            let payload = batch.payload(event as usize);
            Ok(payload.get(self.header.len()..).unwrap_or_default())
        };
        let total_len = events.iter().map(|event| batch.payload_len(*event as usize)).sum();
        self.decode(events, total_len, fields, bad, raw)
    }

    fn encode(
        &self,
        columns: &RecordBatch,
        bad: &mut Vec<(u32, PayloadFault)>,
        raw: Option<&BinaryArray>,
    ) -> Result<BinaryArray, String> {
        self.encode(columns, bad, |rows, row, out| {
            out.extend_from_slice(&self.header);
            rows.write(row, raw, out)
        })
    }
}

impl PayloadPlan {
    /// Decodes the payloads of these events. Returns the events that could be decoded, and their
    /// columns; the reasons for the others are added to `bad`. `payload` is called once for each
    /// event, in their order. Columns are allocated for about `total_len` bytes of payload.
    ///
    /// With `raw`, booleans may be any bytes, and those of each decoded payload are appended to it.
    pub fn decode<'b>(
        &'b self,
        events: &[u32],
        total_len: usize,
        mut payload: impl FnMut(u32) -> Result<&'b [u8], PayloadFault>,
        bad: &mut Vec<(u32, PayloadFault)>,
        raw: Option<&mut BinaryBuilder>,
    ) -> Result<(Vec<u32>, RecordBatch), Error> {
        self.decode_parts(events, total_len, |event, _| payload(event), bad, raw)
    }

    /// Like [`decode`](Self::decode), for payloads in one piece or in the parts that
    /// [`compile_in_parts`](Self::compile_in_parts) was told of. `payload` returns the first part,
    /// and pushes the others, the last one first.
    pub fn decode_parts<'b>(
        &'b self,
        events: &[u32],
        total_len: usize,
        mut payload: impl FnMut(u32, &mut Vec<&'b [u8]>) -> Result<&'b [u8], PayloadFault>,
        bad: &mut Vec<(u32, PayloadFault)>,
        raw: Option<&mut BinaryBuilder>,
    ) -> Result<(Vec<u32>, RecordBatch), Error> {
        let decoded = match raw {
            None => Decoder::new(self).decode(events, total_len, payload, bad),
            Some(raw) => {
                let normalized = self.normalize(events, &mut payload);
                let mut each = normalized.payloads();
                let next = |_, _: &mut Vec<_>| each.next().unwrap_or(Err(self.rules.faults.short));
                let decoded = Decoder::new(self).decode(events, total_len, next, bad);
                decoded.inspect(|(good, _)| normalized.append_raw(good, raw))
            }
        };
        decoded.map_err(|e| Error::internal(e.to_string()))
    }
}

/// Builds the rows of one batch.
pub(super) struct Decoder<'b> {
    plan: &'b PayloadPlan,
    slots: Vec<SlotBuilder>,
    /// The records of each region of the plan that are still to be read.
    queues: Vec<RegionQueue<'b>>,
    registers: Vec<i64>,
    /// The parts of the payload behind the one that is being read, the last one first.
    later: Vec<&'b [u8]>,
    rows: usize,
}

/// The records of one region, over all payloads.
#[derive(Default)]
struct RegionQueue<'b> {
    /// Each has one or more adjacent records, never none.
    records: Vec<&'b [u8]>,
    /// Records already read into columns.
    decoded: usize,
    /// Records in all.
    total: usize,
}

impl<'b> Decoder<'b> {
    pub(super) fn new(plan: &'b PayloadPlan) -> Self {
        Self {
            plan,
            slots: plan.slots.iter().map(|slot| SlotBuilder::new(*slot)).collect(),
            queues: (0..plan.regions).map(|_| RegionQueue::default()).collect(),
            registers: vec![0; plan.registers],
            later: Vec::new(),
            rows: 0,
        }
    }

    /// Decodes the payloads of these events. Returns the events that could be decoded, and their
    /// columns.
    pub(super) fn decode(
        mut self,
        events: &[u32],
        total_len: usize,
        mut payload: impl FnMut(u32, &mut Vec<&'b [u8]>) -> Result<&'b [u8], PayloadFault>,
        bad: &mut Vec<(u32, PayloadFault)>,
    ) -> Result<(Vec<u32>, RecordBatch), ArrowError> {
        let mut good = Vec::with_capacity(events.len());
        let (mut done, mut done_len) = (0, 0);
        let (first, rest) = events.split_at(events.len().min(FIRST_PAYLOADS));
        for block in std::iter::once(first).chain(rest.chunks(BLOCK_PAYLOADS)) {
            for event in block {
                self.later.clear();
                let decoded = payload(*event, &mut self.later).and_then(|first| {
                    let len = self.later.iter().fold(first.len(), |sum, part| sum + part.len());
                    done_len += len;
                    self.decode_payload(first, len)
                });
                match decoded {
                    Ok(()) => good.push(*event),
                    Err(reason) => bad.push((*event, reason)),
                }
            }
            self.flush_all();
            done += block.len();
            if done <= FIRST_PAYLOADS + BLOCK_PAYLOADS {
                self.grow((done, done_len), (events.len(), total_len));
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        let arrays = arrays::arrays(&self.plan.columns, &mut self.slots, self.rows)?;
        let schema = self.plan.schema.clone();
        Ok((good, RecordBatch::try_new_with_options(schema, arrays, &options)?))
    }

    /// Reserves capacity for all payloads, of which so many are done. Both are numbers of payloads
    /// and their bytes.
    fn grow(&mut self, done: (usize, usize), all: (usize, usize)) {
        let more = |done: usize, all: usize| (all.saturating_sub(done) as f64) / (done as f64);
        // Whichever promises less: longer payloads mean longer lists, but not more of them.
        let more = more(done.0, all.0).min(more(done.1, all.1));
        if more.is_finite() && more > 0.0 {
            // A little more than they predict, as payloads differ.
            self.slots.iter_mut().for_each(|slot| slot.grow(more * 1.03));
        }
    }

    /// Decodes a payload of `len` bytes from its first part, and from `later`.
    fn decode_payload(&mut self, first: &'b [u8], len: usize) -> Result<(), PayloadFault> {
        let plan = self.plan;
        let empty_elements = plan.program.empty_elements;
        let mut cursor = PayloadCursor::at_part(first, len, &plan.rules, empty_elements);
        let mut walked = self.walk(&plan.program, &mut cursor).and_then(|()| cursor.end());
        if walked.is_ok() && !self.later.is_empty() {
            walked = Err(plan.rules.faults.left_over);
        }
        match walked {
            Ok(()) => self.rows += 1,
            Err(_) => self.roll_back(&plan.program, self.rows),
        }
        walked
    }

    fn walk(
        &mut self,
        program: &'b Program,
        cursor: &mut PayloadCursor<'b>,
    ) -> Result<(), PayloadFault> {
        for op in &program.ops {
            match op {
                Op::Region(region) => {
                    let record = cursor.take(region.size)?;
                    self.check(region, record)?;
                    self.enqueue(region, record, 1);
                }
                Op::Align(alignment) => cursor.align(*alignment)?,
                Op::Part => {
                    if let Some(part) = self.later.pop() {
                        cursor.next_part(part)?;
                    }
                }
                Op::Text { slot } => self.text(*slot, cursor.text()?)?,
                Op::Bytes { slot, count, kind } => {
                    let count = self.count(*count, cursor, 1)?;
                    let bytes = cursor.take(count)?;
                    match kind {
                        SpanKind::Bytes => self.push_bytes(*slot, bytes)?,
                        SpanKind::TrimmedText => self.text(*slot, trimmed(bytes))?,
                        SpanKind::Skipped => {}
                    }
                }
                Op::Numbers { offsets, leaf, count, align } => {
                    let size = leaf.per_element * leaf.of.width();
                    let count = self.count(*count, cursor, size)?;
                    if *align > 1 && count > 0 {
                        cursor.align(*align)?;
                    }
                    let bytes = cursor.take(count * size)?;
                    self.numbers(leaf, bytes)?;
                    self.push_offset(*offsets, count)?;
                }
                Op::List { offsets, count, item, align } => {
                    let count = self.count(*count, cursor, item.min_len)?;
                    if *align > 1 && count > 0 {
                        cursor.align(*align)?;
                    }
                    self.push_offset(*offsets, count)?;
                    self.items(item, count, cursor)?;
                }
                Op::Repeat { count, item } => {
                    cursor.check(*count, item.min_len)?;
                    self.items(item, *count, cursor)?;
                }
                Op::Opaque { slot, of } => {
                    let value = of.skip(cursor)?;
                    self.push_bytes(*slot, value)?;
                }
                Op::Variant(variant) => self.variant(variant, cursor)?,
            }
        }
        Ok(())
    }

    /// The number of elements of a list.
    #[inline]
    fn count(
        &self,
        count: Count,
        cursor: &mut PayloadCursor<'b>,
        least: usize,
    ) -> Result<usize, PayloadFault> {
        match count {
            Count::Prefix => cursor.length(least),
            Count::Register(register) => cursor.count(self.registers[register], least),
            Count::Fixed(count) => cursor.check(count, least).map(|()| count),
            Count::Rest(tail) => cursor.count_before(tail, least),
        }
    }

    fn variant(
        &mut self,
        variant: &'b VariantOp,
        cursor: &mut PayloadCursor<'b>,
    ) -> Result<(), PayloadFault> {
        let case = cursor.byte()?;
        let places = match case.checked_sub(1) {
            None => &[][..],
            Some(at) => variant.cases.children.get(usize::from(at)).ok_or(NO_CASE)?,
        };
        cursor.spend_blank(variant.blank)?;
        self.push_case(variant, case);
        for child in places.iter().filter_map(|place| variant.children.get(*place)) {
            self.walk(child, cursor)?;
        }
        for (at, child) in variant.children.iter().enumerate() {
            if !places.contains(&at) {
                self.blank(child)?;
            }
        }
        Ok(())
    }

    fn push_case(&mut self, variant: &VariantOp, case: u8) {
        if let SlotBuilder::W1(cases) = &mut self.slots[variant.slot] {
            cases.push(case);
        }
    }

    /// Adds a row for a missing value: zeros, and nothing.
    fn blank(&mut self, program: &'b Program) -> Result<(), PayloadFault> {
        let plan = self.plan;
        for op in &program.ops {
            match op {
                Op::Region(region) => {
                    self.enqueue(region, plan.zeros.get(..region.size).unwrap_or_default(), 1);
                }
                Op::Align(_) | Op::Part | Op::Bytes { kind: SpanKind::Skipped, .. } => {}
                Op::Text { slot } | Op::Bytes { slot, .. } | Op::Opaque { slot, .. } => {
                    self.push_bytes(*slot, &[])?;
                }
                Op::Numbers { offsets, .. } | Op::List { offsets, .. } => {
                    self.push_offset(*offsets, 0)?;
                }
                Op::Repeat { count, item } => (0..*count).try_for_each(|_| self.blank(item))?,
                Op::Variant(variant) => {
                    self.push_case(variant, 0);
                    variant.children.iter().try_for_each(|child| self.blank(child))?;
                }
            }
        }
        Ok(())
    }

    fn items(
        &mut self,
        item: &'b Program,
        count: usize,
        cursor: &mut PayloadCursor<'b>,
    ) -> Result<(), PayloadFault> {
        if let [Op::Region(region)] = item.ops.as_slice() {
            let records = cursor.take(region.size * count)?;
            if !region.booleans.is_empty() || !region.padding.is_empty() {
                records
                    .chunks_exact(region.size)
                    .try_for_each(|record| self.check(region, record))?;
            }
            if count > 0 {
                self.enqueue(region, records, count);
            }
            return Ok(());
        }
        (0..count).try_for_each(|_| self.walk(item, cursor))
    }

    #[inline]
    fn check(&mut self, region: &Region, record: &[u8]) -> Result<(), PayloadFault> {
        for at in &region.booleans {
            check_booleans(record.get(at.clone()).unwrap_or_default(), &self.plan.rules)?;
        }
        for at in &region.padding {
            check_padding(record.get(at.clone()).unwrap_or_default(), &self.plan.rules)?;
        }
        for count in &region.counts {
            self.registers[count.register] = count.read(record);
        }
        Ok(())
    }

    /// Queues `count` adjacent records, at least one.
    #[inline]
    fn enqueue(&mut self, region: &Region, records: &'b [u8], count: usize) {
        let queue = &mut self.queues[region.id];
        queue.records.push(records);
        queue.total += count;
        if queue.records.len() >= MAX_QUEUED {
            self.flush_region(region);
        }
    }

    fn text(&mut self, slot: usize, text: &[u8]) -> Result<(), PayloadFault> {
        // Nearly every text is plain ASCII and is copied unchanged.
        if text.is_ascii() && memchr::memchr(b'\\', text).is_none() {
            return self.push_bytes(slot, text);
        }
        self.push_bytes(slot, escape::escaped(text).as_bytes())
    }

    fn push_bytes(&mut self, slot: usize, value: &[u8]) -> Result<(), PayloadFault> {
        let SlotBuilder::Bytes { offsets, bytes } = &mut self.slots[slot] else { return Ok(()) };
        let end = i32::try_from(bytes.len() + value.len());
        offsets.push(end.map_err(|_| self.plan.rules.faults.full)?);
        bytes.extend_from_slice(value);
        Ok(())
    }

    #[inline]
    fn numbers(&mut self, leaf: &NumberArray, bytes: &[u8]) -> Result<(), PayloadFault> {
        if matches!(leaf.of, ValueType::Bool(_)) {
            check_booleans(bytes, &self.plan.rules)?;
        }
        extend_slot(&mut self.slots[leaf.slot], leaf, bytes);
        Ok(())
    }

    #[inline]
    fn push_offset(&mut self, slot: usize, count: usize) -> Result<(), PayloadFault> {
        let SlotBuilder::Offsets(offsets) = &mut self.slots[slot] else { return Ok(()) };
        let end =
            i32::try_from(last_offset(offsets) + count).map_err(|_| self.plan.rules.faults.full)?;
        offsets.push(end);
        Ok(())
    }

    /// Reads all queued records.
    fn flush_all(&mut self) {
        let plan = self.plan;
        self.flush_program(&plan.program);
    }

    fn flush_program(&mut self, program: &Program) {
        for op in &program.ops {
            match op {
                Op::Region(region) => self.flush_region(region),
                Op::List { item, .. } | Op::Repeat { item, .. } => self.flush_program(item),
                Op::Variant(variant) => {
                    variant.children.iter().for_each(|child| self.flush_program(child));
                }
                Op::Align(_)
                | Op::Part
                | Op::Text { .. }
                | Op::Bytes { .. }
                | Op::Numbers { .. }
                | Op::Opaque { .. } => {}
            }
        }
    }

    fn flush_region(&mut self, region: &Region) {
        let queue = &mut self.queues[region.id];
        let are_single = queue.records.len() == queue.total - queue.decoded;
        for leaf in &region.leaves {
            let slot = &mut self.slots[leaf.slot];
            if are_single {
                gather(slot, leaf, queue.records.iter().copied());
            } else {
                let records = queue.records.iter().flat_map(|r| r.chunks_exact(region.size));
                gather(slot, leaf, records);
            }
        }
        queue.records.clear();
        queue.decoded = queue.total;
    }

    /// Removes what a program has added after its first `rows` rows.
    fn roll_back(&mut self, program: &Program, rows: usize) {
        for op in &program.ops {
            match op {
                Op::Region(region) => self.roll_back_region(region, rows),
                Op::Align(_) | Op::Part | Op::Bytes { kind: SpanKind::Skipped, .. } => {}
                Op::Text { slot } | Op::Bytes { slot, .. } | Op::Opaque { slot, .. } => {
                    self.slots[*slot].truncate(rows);
                }
                Op::Numbers { offsets, leaf, .. } => {
                    let items = self.roll_back_offsets(*offsets, rows);
                    self.slots[leaf.slot].truncate(items * leaf.per_element);
                }
                Op::List { offsets, item, .. } => {
                    let items = self.roll_back_offsets(*offsets, rows);
                    self.roll_back(item, items);
                }
                Op::Repeat { count, item } => self.roll_back(item, rows * count),
                Op::Variant(variant) => {
                    self.slots[variant.slot].truncate(rows);
                    variant.children.iter().for_each(|child| self.roll_back(child, rows));
                }
            }
        }
    }

    fn roll_back_offsets(&mut self, slot: usize, rows: usize) -> usize {
        let SlotBuilder::Offsets(offsets) = &mut self.slots[slot] else { return 0 };
        offsets.truncate(rows + 1);
        last_offset(offsets)
    }

    fn roll_back_region(&mut self, region: &Region, rows: usize) {
        let queue = &mut self.queues[region.id];
        while queue.total > rows.max(queue.decoded) {
            let Some(records) = queue.records.pop() else { break };
            queue.total -= records.len() / region.size;
        }
        if queue.decoded > rows {
            (queue.decoded, queue.total) = (rows, rows);
            for leaf in &region.leaves {
                self.slots[leaf.slot].truncate(rows * leaf.offsets.len() * leaf.run);
            }
        }
    }
}

/// The text in a field of fixed length.
fn trimmed(bytes: &[u8]) -> &[u8] {
    let end = memchr::memchr(0, bytes).unwrap_or(bytes.len());
    bytes.get(..end).unwrap_or_default().trim_ascii_end()
}
