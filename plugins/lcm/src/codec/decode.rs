//! Decodes payloads into slots, following a plan. A first pass walks each payload, checks
//! everything, and copies what has no fixed offset. Then the regions of a few hundred messages are
//! read at once, column by column.
//!
//! A payload that turns out to be wrong leaves nothing behind. Nothing is allocated per message.

use arrow_array::RecordBatch;
use arrow_array::RecordBatchOptions;
use arrow_schema::ArrowError;
use sluice_core::Batch;
use sluice_core::name;

use super::columns::{self, SlotBuilder, last_offset};
use super::plan::{Leaf, MessagePlan, NumberArray, Op, Program, Region};
use super::wire::{PayloadCursor, PayloadFault, check_booleans};
use crate::types::Library;

/// Bytes of the fingerprint.
pub(crate) const FINGERPRINT_LEN: usize = 8;

/// Messages whose regions are collected before they are read, so that they stay in the core's own
/// cache.
const BLOCK_MESSAGES: usize = 256;
/// Most records that wait in one region's queue.
const MAX_QUEUED: usize = 8 * 1024;

/// Two valid messages may not fit into one batch: a column holds at most 2 GiB of text, or as many
/// elements.
const COLUMN_FULL: PayloadFault = "the column of its batch is full (2 GiB)";

/// Builds the rows of one batch.
pub(crate) struct Decoder<'p, 'b> {
    plan: &'p MessagePlan,
    library: &'p Library,
    slots: Vec<SlotBuilder>,
    /// The records of each region of the plan that are still to be read.
    queues: Vec<RegionQueue<'b>>,
    registers: Vec<i64>,
    rows: usize,
}

/// The records of one region, over all messages.
#[derive(Default)]
struct RegionQueue<'b> {
    /// Each has one or more adjacent records, never none.
    records: Vec<&'b [u8]>,
    /// Records already read into columns.
    decoded: usize,
    /// Records in all.
    total: usize,
}

impl<'p, 'b> Decoder<'p, 'b> {
    pub(crate) fn new(plan: &'p MessagePlan, library: &'p Library) -> Self {
        Self {
            plan,
            library,
            slots: plan.slots.iter().map(|slot| SlotBuilder::new(*slot)).collect(),
            queues: (0..plan.regions).map(|_| RegionQueue::default()).collect(),
            registers: vec![0; plan.registers],
            rows: 0,
        }
    }

    /// Decodes the payloads of these events. Returns the events that could be decoded, and their
    /// columns.
    pub(crate) fn decode(
        mut self,
        batch: &'b Batch,
        events: &[u32],
        bad: &mut Vec<(u32, PayloadFault)>,
    ) -> Result<(Vec<u32>, RecordBatch), ArrowError> {
        let mut good = Vec::with_capacity(events.len());
        for (nth, block) in events.chunks(BLOCK_MESSAGES).enumerate() {
            for event in block {
                match self.decode_message(batch.payload(*event as usize)) {
                    Ok(()) => good.push(*event),
                    Err(reason) => bad.push((*event, reason)),
                }
            }
            self.flush_all();
            if nth == 0 && events.len() > BLOCK_MESSAGES {
                let more = (events.len() - BLOCK_MESSAGES) as f64 / BLOCK_MESSAGES as f64;
                // A little more than the first block predicts, as messages differ.
                self.slots.iter_mut().for_each(|slot| slot.grow(more * 1.03));
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        let arrays = columns::arrays(&self.plan.columns, &mut self.slots, self.rows)?;
        let schema = self.plan.schema.clone();
        Ok((good, RecordBatch::try_new_with_options(schema, arrays, &options)?))
    }

    fn decode_message(&mut self, payload: &'b [u8]) -> Result<(), PayloadFault> {
        let plan = self.plan;
        let body = payload.get(FINGERPRINT_LEN..).unwrap_or_default();
        let mut cursor = PayloadCursor::new(body, plan.program.empty_elements);
        let walked = self.walk(&plan.program, &mut cursor).and_then(|()| cursor.end());
        match walked {
            Ok(()) => self.rows += 1,
            Err(_) => self.roll_back(&plan.program, self.rows),
        }
        walked
    }

    fn walk(
        &mut self,
        program: &Program,
        cursor: &mut PayloadCursor<'b>,
    ) -> Result<(), PayloadFault> {
        for op in &program.ops {
            match op {
                Op::Region(region) => {
                    let record = cursor.take(region.size)?;
                    self.check(region, record)?;
                    self.enqueue(region, record, 1);
                }
                Op::Text { slot } => self.text(*slot, cursor.text()?)?,
                Op::Bytes { slot, count } => {
                    let count = cursor.count(self.registers[*count], 1)?;
                    let bytes = cursor.take(count)?;
                    push_bytes(&mut self.slots[*slot], bytes)?;
                }
                Op::Numbers { offsets, leaf, count } => {
                    let size = leaf.per_element * leaf.width;
                    let count = cursor.count(self.registers[*count], size)?;
                    let bytes = cursor.take(count * size)?;
                    self.numbers(leaf, bytes)?;
                    self.push_offset(*offsets, count)?;
                }
                Op::List { offsets, count, item } => {
                    let count = cursor.count(self.registers[*count], item.min_len)?;
                    self.push_offset(*offsets, count)?;
                    self.items(item, count, cursor)?;
                }
                Op::Repeat { count, item } => {
                    cursor.check(*count, item.min_len)?;
                    self.items(item, *count, cursor)?;
                }
                Op::Opaque { slot, of } => {
                    let value = cursor.skip(self.library, *of)?;
                    push_bytes(&mut self.slots[*slot], value)?;
                }
            }
        }
        Ok(())
    }

    fn items(
        &mut self,
        item: &Program,
        count: usize,
        cursor: &mut PayloadCursor<'b>,
    ) -> Result<(), PayloadFault> {
        if let [Op::Region(region)] = item.ops.as_slice() {
            let records = cursor.take(region.size * count)?;
            if !region.booleans.is_empty() {
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
            check_booleans(record.get(at.clone()).unwrap_or_default())?;
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
        let slot = &mut self.slots[slot];
        // Nearly every string is plain ASCII and is copied unchanged.
        if text.is_ascii() && memchr::memchr(b'\\', text).is_none() {
            return push_bytes(slot, text);
        }
        push_bytes(slot, name::escaped(text).as_bytes())
    }

    #[inline]
    fn numbers(&mut self, leaf: &NumberArray, bytes: &[u8]) -> Result<(), PayloadFault> {
        if leaf.are_booleans {
            check_booleans(bytes)?;
        }
        match &mut self.slots[leaf.slot] {
            SlotBuilder::W1(values) => values.extend_from_slice(bytes),
            SlotBuilder::W2(values) => values.extend(words(bytes, u16::from_be_bytes)),
            SlotBuilder::W4(values) => values.extend(words(bytes, u32::from_be_bytes)),
            SlotBuilder::W8(values) => values.extend(words(bytes, u64::from_be_bytes)),
            SlotBuilder::Offsets(_) | SlotBuilder::Bytes { .. } => {}
        }
        Ok(())
    }

    #[inline]
    fn push_offset(&mut self, slot: usize, count: usize) -> Result<(), PayloadFault> {
        let SlotBuilder::Offsets(offsets) = &mut self.slots[slot] else { return Ok(()) };
        let end = i32::try_from(last_offset(offsets) + count).map_err(|_| COLUMN_FULL)?;
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
                Op::Text { .. } | Op::Bytes { .. } | Op::Numbers { .. } | Op::Opaque { .. } => {}
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

fn push_bytes(slot: &mut SlotBuilder, value: &[u8]) -> Result<(), PayloadFault> {
    let SlotBuilder::Bytes { offsets, bytes } = slot else { return Ok(()) };
    let end = i32::try_from(bytes.len() + value.len()).map_err(|_| COLUMN_FULL)?;
    bytes.extend_from_slice(value);
    offsets.push(end);
    Ok(())
}

/// Splits bytes into words of `N` bytes.
fn words<const N: usize, T>(
    bytes: &[u8],
    read: impl Fn([u8; N]) -> T,
) -> impl ExactSizeIterator<Item = T> {
    bytes.as_chunks().0.iter().map(move |word| read(*word))
}

/// Appends one leaf of each record.
fn gather<'r>(slot: &mut SlotBuilder, leaf: &Leaf, records: impl Iterator<Item = &'r [u8]>) {
    match slot {
        SlotBuilder::W1(values) => gather_words(values, leaf, records, u8::from_be_bytes),
        SlotBuilder::W2(values) => gather_words(values, leaf, records, u16::from_be_bytes),
        SlotBuilder::W4(values) => gather_words(values, leaf, records, u32::from_be_bytes),
        SlotBuilder::W8(values) => gather_words(values, leaf, records, u64::from_be_bytes),
        SlotBuilder::Offsets(_) | SlotBuilder::Bytes { .. } => {}
    }
}

fn gather_words<'r, const N: usize, T: Copy + Default>(
    values: &mut Vec<T>,
    leaf: &Leaf,
    records: impl Iterator<Item = &'r [u8]>,
    read: impl Fn([u8; N]) -> T + Copy,
) {
    let [place] = leaf.offsets.as_slice() else {
        for record in records {
            for place in &leaf.offsets {
                let bytes = record.get(*place..*place + leaf.run * N).unwrap_or_default();
                values.extend(words(bytes, read));
            }
        }
        return;
    };
    let place = *place;
    // With a run length known at compile time these become plain moves.
    match leaf.run {
        1 => values.extend(records.map(|record| run::<1, N, T>(record, place, read)[0])),
        2 => values.extend(records.flat_map(|record| run::<2, N, T>(record, place, read))),
        3 => values.extend(records.flat_map(|record| run::<3, N, T>(record, place, read))),
        4 => values.extend(records.flat_map(|record| run::<4, N, T>(record, place, read))),
        6 => values.extend(records.flat_map(|record| run::<6, N, T>(record, place, read))),
        9 => values.extend(records.flat_map(|record| run::<9, N, T>(record, place, read))),
        length => {
            for record in records {
                let bytes = record.get(place..place + length * N).unwrap_or_default();
                values.extend(words(bytes, read));
            }
        }
    }
}

#[inline]
fn run<const RUN: usize, const N: usize, T: Copy + Default>(
    record: &[u8],
    place: usize,
    read: impl Fn([u8; N]) -> T,
) -> [T; RUN] {
    let bytes = record.get(place..place + RUN * N).unwrap_or_default();
    let words = bytes.as_chunks().0.first_chunk::<RUN>();
    words.map_or([T::default(); RUN], |words| words.map(read))
}
