//! Writes numbers in wire format: column by column into records of fixed size, and arrays.

use std::ops::Range;

use super::plan::{Leaf, Region};
use super::sources::{NULL, NumberBuffer, SlotSource};
use super::{Endian, PayloadFault};

/// The most records of a window.
const MAX_RECORDS: usize = 256;
/// About the most bytes of a window: it stays in the core's own cache.
const MAX_BYTES: usize = 32 << 10;

/// Some records of a region, written column by column before rows ask for them: rows mostly do so
/// in order.
#[derive(Debug, Default)]
pub(super) struct RecordWindow {
    /// The records in `bytes`.
    rows: Range<usize>,
    bytes: Vec<u8>,
    /// Why records cannot be written; empty if all can.
    faults: Vec<Option<PayloadFault>>,
}

impl RecordWindow {
    /// Appends the records of these rows. `Err` if one of their values cannot be written.
    pub(super) fn append(
        &mut self,
        region: &Region,
        (mut start, end): (usize, usize),
        slots: &[SlotSource],
        out: &mut Vec<u8>,
    ) -> Result<(), PayloadFault> {
        while start < end {
            if !self.rows.contains(&start) {
                self.fill(region, start, slots);
            }
            let (first, last) = (self.rows.start, end.min(self.rows.end));
            if last <= start {
                return Err(NULL);
            }
            let faults = self.faults.get(start - first..last - first).unwrap_or_default();
            if let Some(fault) = faults.iter().flatten().next() {
                return Err(fault);
            }
            let records = (start - first) * region.size..(last - first) * region.size;
            out.extend_from_slice(self.bytes.get(records).ok_or(NULL)?);
            start = last;
        }
        Ok(())
    }

    /// Moves to the records from `start` on; to none if slots have no numbers for them.
    fn fill(&mut self, region: &Region, start: usize, slots: &[SlotSource]) {
        let mut end = start + (MAX_BYTES / region.size.max(1)).clamp(1, MAX_RECORDS);
        for leaf in &region.leaves {
            let SlotSource::Numbers(source) = &slots[leaf.slot] else {
                end = start;
                continue;
            };
            end = end.min(source.numbers.len() / leaf.per_record());
        }
        self.rows = start..end.max(start);
        self.faults.clear();
        self.bytes.clear();
        self.bytes.resize(self.rows.len() * region.size, 0);
        for leaf in &region.leaves {
            let SlotSource::Numbers(source) = &slots[leaf.slot] else { continue };
            if !source.is_whole() {
                self.faults.resize(self.rows.len(), None);
                for (row, fault) in self.rows.clone().zip(&mut self.faults) {
                    let check = source.check(row * leaf.per_record(), leaf.per_record());
                    *fault = fault.or(check.err());
                }
            }
            let from = start * leaf.per_record();
            write_leaf(&mut self.bytes, region.size, leaf, &source.numbers, from);
        }
    }
}

/// Writes the numbers of a leaf, from the one at `from` on, into all records.
fn write_leaf(records: &mut [u8], size: usize, leaf: &Leaf, numbers: &NumberBuffer, from: usize) {
    match (numbers, leaf.endian) {
        (NumberBuffer::W1(values), _) => {
            scatter(records, size, leaf, &values[from..], u8::to_be_bytes);
        }
        (NumberBuffer::W2(values), Endian::Big) => {
            scatter(records, size, leaf, &values[from..], u16::to_be_bytes);
        }
        (NumberBuffer::W4(values), Endian::Big) => {
            scatter(records, size, leaf, &values[from..], u32::to_be_bytes);
        }
        (NumberBuffer::W8(values), Endian::Big) => {
            scatter(records, size, leaf, &values[from..], u64::to_be_bytes);
        }
        (NumberBuffer::W2(values), Endian::Little) => {
            scatter(records, size, leaf, &values[from..], u16::to_le_bytes);
        }
        (NumberBuffer::W4(values), Endian::Little) => {
            scatter(records, size, leaf, &values[from..], u32::to_le_bytes);
        }
        (NumberBuffer::W8(values), Endian::Little) => {
            scatter(records, size, leaf, &values[from..], u64::to_le_bytes);
        }
    }
}

fn scatter<const N: usize, T: Copy>(
    records: &mut [u8],
    size: usize,
    leaf: &Leaf,
    values: &[T],
    bytes: impl Fn(T) -> [u8; N] + Copy,
) {
    let records = records.chunks_exact_mut(size);
    if let ([offset], 1) = (leaf.offsets.as_slice(), leaf.run) {
        for (record, value) in records.zip(values) {
            if let Some(to) = record.get_mut(*offset..).and_then(<[u8]>::first_chunk_mut) {
                *to = bytes(*value);
            }
        }
        return;
    }
    for (record, values) in records.zip(values.chunks_exact(leaf.per_record())) {
        for (offset, values) in leaf.offsets.iter().zip(values.chunks_exact(leaf.run)) {
            let to = record.get_mut(*offset..).unwrap_or_default().as_chunks_mut().0;
            to.iter_mut().zip(values).for_each(|(to, value)| *to = bytes(*value));
        }
    }
}

/// Appends numbers of an array.
pub(super) fn append_numbers(
    numbers: &NumberBuffer,
    range: Range<usize>,
    endian: Endian,
    out: &mut Vec<u8>,
) {
    match (numbers, endian) {
        (NumberBuffer::W1(values), _) => out.extend_from_slice(&values[range]),
        (NumberBuffer::W2(values), Endian::Big) => append(out, &values[range], u16::to_be_bytes),
        (NumberBuffer::W4(values), Endian::Big) => append(out, &values[range], u32::to_be_bytes),
        (NumberBuffer::W8(values), Endian::Big) => append(out, &values[range], u64::to_be_bytes),
        (NumberBuffer::W2(values), Endian::Little) => append(out, &values[range], u16::to_le_bytes),
        (NumberBuffer::W4(values), Endian::Little) => append(out, &values[range], u32::to_le_bytes),
        (NumberBuffer::W8(values), Endian::Little) => append(out, &values[range], u64::to_le_bytes),
    }
}

fn append<const N: usize, T: Copy>(out: &mut Vec<u8>, values: &[T], bytes: impl Fn(T) -> [u8; N]) {
    // Through a block on the stack, which is not zeroed for each array as the output would be.
    let mut block = [[0; N]; 64];
    for values in values.chunks(block.len()) {
        block.iter_mut().zip(values).for_each(|(to, value)| *to = bytes(*value));
        out.extend_from_slice(block[..values.len()].as_flattened());
    }
}
