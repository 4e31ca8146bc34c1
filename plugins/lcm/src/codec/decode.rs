//! Payloads into slots, by a plan: first a walk from part to part, which checks everything and takes over
//! what has no fixed place; then, for some hundred messages at a time, regions, column by column.
//!
//! A payload that is found wrong on the walk leaves nothing behind. No value is held by itself, and
//! nothing is allocated for a message.

use arrow_array::RecordBatch;
use arrow_array::RecordBatchOptions;
use arrow_schema::ArrowError;
use sluice_core::Batch;
use sluice_core::name;

use super::columns::{self, Filling, last};
use super::plan::{Leaf, Numbers, Op, Plan, Program, Region};
use super::wire::{Cursor, Reason, check_booleans};
use crate::types::Library;

/// Length of the fingerprint.
pub(crate) const FINGERPRINT: usize = 8;

/// How many messages' regions are gathered before they are read: what they lie in should stay in a
/// core's own cache.
const BLOCK: usize = 256;
/// How many regions of one place may wait.
const MOST_WAITING: usize = 8 * 1024;

/// A reason why two good messages do not fit into one batch. A batch would have to hold 2 GiB of texts, or as
/// many elements.
const FULL: Reason = "the column of its batch has no room for more";

/// Rows in the making.
pub(crate) struct Decoder<'p, 'b> {
    plan: &'p Plan,
    library: &'p Library,
    slots: Vec<Filling>,
    /// For each region of the plan, what waits to be read.
    waiting: Vec<Waiting<'b>>,
    registers: Vec<i64>,
    rows: usize,
}

/// Where one region lies in messages.
#[derive(Default)]
struct Waiting<'b> {
    /// One or several records side by side, never none.
    records: Vec<&'b [u8]>,
    /// How many records have been read into columns.
    read: usize,
    /// How many there have been in all.
    seen: usize,
}

impl<'p, 'b> Decoder<'p, 'b> {
    pub(crate) fn new(plan: &'p Plan, library: &'p Library) -> Self {
        Self {
            plan,
            library,
            slots: plan.slots.iter().map(|slot| Filling::new(*slot)).collect(),
            waiting: (0..plan.regions).map(|_| Waiting::default()).collect(),
            registers: vec![0; plan.registers],
            rows: 0,
        }
    }

    /// Decodes the payloads of these events; gives the columns and which events they are of.
    pub(crate) fn decode(
        mut self,
        batch: &'b Batch,
        events: &[u32],
        bad: &mut Vec<(u32, Reason)>,
    ) -> Result<(Vec<u32>, RecordBatch), ArrowError> {
        let mut good = Vec::with_capacity(events.len());
        for (nth, block) in events.chunks(BLOCK).enumerate() {
            for event in block {
                match self.message(batch.payload(*event as usize)) {
                    Ok(()) => good.push(*event),
                    Err(reason) => bad.push((*event, reason)),
                }
            }
            self.read_all();
            if nth == 0 && events.len() > BLOCK {
                let more = (events.len() - BLOCK) as f64 / BLOCK as f64;
                // A little more than what the first block says, as messages differ.
                self.slots.iter_mut().for_each(|slot| slot.grow(more * 1.03));
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        let arrays = columns::arrays(&self.plan.columns, &mut self.slots, self.rows)?;
        let schema = self.plan.schema.clone();
        Ok((good, RecordBatch::try_new_with_options(schema, arrays, &options)?))
    }

    fn message(&mut self, payload: &'b [u8]) -> Result<(), Reason> {
        let plan = self.plan;
        let body = payload.get(FINGERPRINT..).unwrap_or_default();
        let mut cursor = Cursor::new(body, plan.program.empty);
        let walked = self.walk(&plan.program, &mut cursor).and_then(|()| cursor.end());
        match walked {
            Ok(()) => self.rows += 1,
            Err(_) => self.undo(&plan.program, self.rows),
        }
        walked
    }

    fn walk(&mut self, program: &Program, cursor: &mut Cursor<'b>) -> Result<(), Reason> {
        for op in &program.ops {
            match op {
                Op::Region(region) => {
                    let record = cursor.take(region.size)?;
                    self.check(region, record)?;
                    self.wait(region, record, 1);
                }
                Op::Text { slot } => self.text(*slot, cursor.text()?)?,
                Op::Bytes { slot, count } => {
                    let count = cursor.count(self.registers[*count], 1)?;
                    let taken = cursor.take(count)?;
                    push_bytes(&mut self.slots[*slot], taken)?;
                }
                Op::Numbers { offsets, leaf, count } => {
                    let size = leaf.per * leaf.width;
                    let count = cursor.count(self.registers[*count], size)?;
                    let taken = cursor.take(count * size)?;
                    self.numbers(leaf, taken)?;
                    self.push_offset(*offsets, count)?;
                }
                Op::List { offsets, count, item } => {
                    let count = cursor.count(self.registers[*count], item.least)?;
                    self.push_offset(*offsets, count)?;
                    self.items(item, count, cursor)?;
                }
                Op::Repeat { count, item } => {
                    cursor.check(*count, item.least)?;
                    self.items(item, *count, cursor)?;
                }
                Op::Wire { slot, of } => {
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
        cursor: &mut Cursor<'b>,
    ) -> Result<(), Reason> {
        if let [Op::Region(region)] = item.ops.as_slice() {
            let records = cursor.take(region.size * count)?;
            if !region.booleans.is_empty() {
                records
                    .chunks_exact(region.size)
                    .try_for_each(|record| self.check(region, record))?;
            }
            if count > 0 {
                self.wait(region, records, count);
            }
            return Ok(());
        }
        (0..count).try_for_each(|_| self.walk(item, cursor))
    }

    #[inline]
    fn check(&mut self, region: &Region, record: &[u8]) -> Result<(), Reason> {
        for at in &region.booleans {
            check_booleans(record.get(at.clone()).unwrap_or_default())?;
        }
        for count in &region.counts {
            self.registers[count.register] = count.read(record);
        }
        Ok(())
    }

    /// Notes where records lie, at least one of them.
    #[inline]
    fn wait(&mut self, region: &Region, records: &'b [u8], count: usize) {
        let waiting = &mut self.waiting[region.id];
        waiting.records.push(records);
        waiting.seen += count;
        if waiting.records.len() >= MOST_WAITING {
            self.read(region);
        }
    }

    fn text(&mut self, slot: usize, text: &[u8]) -> Result<(), Reason> {
        let slot = &mut self.slots[slot];
        // Nearly every string is plain, and stays as it is.
        if text.is_ascii() && memchr::memchr(b'\\', text).is_none() {
            return push_bytes(slot, text);
        }
        push_bytes(slot, name::escaped(text).as_bytes())
    }

    #[inline]
    fn numbers(&mut self, leaf: &Numbers, bytes: &[u8]) -> Result<(), Reason> {
        if leaf.are_booleans {
            check_booleans(bytes)?;
        }
        match &mut self.slots[leaf.slot] {
            Filling::W1(values) => values.extend_from_slice(bytes),
            Filling::W2(values) => values.extend(words(bytes, u16::from_be_bytes)),
            Filling::W4(values) => values.extend(words(bytes, u32::from_be_bytes)),
            Filling::W8(values) => values.extend(words(bytes, u64::from_be_bytes)),
            Filling::Offsets(_) | Filling::Bytes { .. } => {}
        }
        Ok(())
    }

    #[inline]
    fn push_offset(&mut self, slot: usize, count: usize) -> Result<(), Reason> {
        let Filling::Offsets(offsets) = &mut self.slots[slot] else { return Ok(()) };
        let end = i32::try_from(last(offsets) + count).map_err(|_| FULL)?;
        offsets.push(end);
        Ok(())
    }

    /// Reads all regions that wait.
    fn read_all(&mut self) {
        let plan = self.plan;
        self.read_program(&plan.program);
    }

    fn read_program(&mut self, program: &Program) {
        for op in &program.ops {
            match op {
                Op::Region(region) => self.read(region),
                Op::List { item, .. } | Op::Repeat { item, .. } => self.read_program(item),
                Op::Text { .. } | Op::Bytes { .. } | Op::Numbers { .. } | Op::Wire { .. } => {}
            }
        }
    }

    fn read(&mut self, region: &Region) {
        let waiting = &mut self.waiting[region.id];
        let are_single = waiting.records.len() == waiting.seen - waiting.read;
        for leaf in &region.leaves {
            let slot = &mut self.slots[leaf.slot];
            if are_single {
                gather(slot, leaf, waiting.records.iter().copied());
            } else {
                let records = waiting.records.iter().flat_map(|r| r.chunks_exact(region.size));
                gather(slot, leaf, records);
            }
        }
        waiting.records.clear();
        waiting.read = waiting.seen;
    }

    /// Takes back what a program has added behind its first `rows` rows.
    fn undo(&mut self, program: &Program, rows: usize) {
        for op in &program.ops {
            match op {
                Op::Region(region) => self.undo_region(region, rows),
                Op::Text { slot } | Op::Bytes { slot, .. } | Op::Wire { slot, .. } => {
                    self.slots[*slot].truncate(rows);
                }
                Op::Numbers { offsets, leaf, .. } => {
                    let items = self.undo_offsets(*offsets, rows);
                    self.slots[leaf.slot].truncate(items * leaf.per);
                }
                Op::List { offsets, item, .. } => {
                    let items = self.undo_offsets(*offsets, rows);
                    self.undo(item, items);
                }
                Op::Repeat { count, item } => self.undo(item, rows * count),
            }
        }
    }

    fn undo_offsets(&mut self, slot: usize, rows: usize) -> usize {
        let Filling::Offsets(offsets) = &mut self.slots[slot] else { return 0 };
        offsets.truncate(rows + 1);
        last(offsets)
    }

    fn undo_region(&mut self, region: &Region, rows: usize) {
        let waiting = &mut self.waiting[region.id];
        while waiting.seen > rows.max(waiting.read) {
            let Some(records) = waiting.records.pop() else { break };
            waiting.seen -= records.len() / region.size;
        }
        if waiting.read > rows {
            (waiting.read, waiting.seen) = (rows, rows);
            for leaf in &region.leaves {
                self.slots[leaf.slot].truncate(rows * leaf.places.len() * leaf.run);
            }
        }
    }
}

fn push_bytes(slot: &mut Filling, taken: &[u8]) -> Result<(), Reason> {
    let Filling::Bytes { offsets, bytes } = slot else { return Ok(()) };
    let end = i32::try_from(bytes.len() + taken.len()).map_err(|_| FULL)?;
    bytes.extend_from_slice(taken);
    offsets.push(end);
    Ok(())
}

/// The words that bytes are made of.
fn words<const N: usize, T>(
    bytes: &[u8],
    read: impl Fn([u8; N]) -> T,
) -> impl ExactSizeIterator<Item = T> {
    bytes.as_chunks().0.iter().map(move |word| read(*word))
}

/// Appends one leaf of every record.
fn gather<'r>(slot: &mut Filling, leaf: &Leaf, records: impl Iterator<Item = &'r [u8]>) {
    match slot {
        Filling::W1(values) => gather_words(values, leaf, records, u8::from_be_bytes),
        Filling::W2(values) => gather_words(values, leaf, records, u16::from_be_bytes),
        Filling::W4(values) => gather_words(values, leaf, records, u32::from_be_bytes),
        Filling::W8(values) => gather_words(values, leaf, records, u64::from_be_bytes),
        Filling::Offsets(_) | Filling::Bytes { .. } => {}
    }
}

fn gather_words<'r, const N: usize, T: Copy + Default>(
    values: &mut Vec<T>,
    leaf: &Leaf,
    records: impl Iterator<Item = &'r [u8]>,
    read: impl Fn([u8; N]) -> T + Copy,
) {
    let [place] = leaf.places.as_slice() else {
        for record in records {
            for place in &leaf.places {
                let bytes = record.get(*place..*place + leaf.run * N).unwrap_or_default();
                values.extend(words(bytes, read));
            }
        }
        return;
    };
    let place = *place;
    // Short runs are known to the compiler: they come out as plain moves.
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
