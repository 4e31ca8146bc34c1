//! Keeps booleans other than 0 and 1. Normalizes them to 0 and 1 before decoding, and restores the
//! original bytes after encoding.

use std::ops::Range;

use super::decode::FINGERPRINT_LEN;
use super::plan::{MessagePlan, Op, Program};
use super::wire::{PayloadCursor, PayloadFault};
use crate::types::Library;

/// The message with every boolean as 0 or 1, and the original bytes of all booleans.
pub(crate) fn normalize(
    plan: &MessagePlan,
    library: &Library,
    payload: &[u8],
) -> Result<(Vec<u8>, Vec<u8>), PayloadFault> {
    let (mut normalized, mut raw) = (payload.to_vec(), Vec::new());
    for place in boolean_ranges(plan, library, payload)? {
        for byte in normalized.get_mut(place).unwrap_or_default() {
            raw.push(*byte);
            *byte = u8::from(*byte != 0);
        }
    }
    Ok((normalized, raw))
}

/// Restores the original bytes of booleans whose value has not changed. Does nothing if the number
/// of booleans differs: the bytes are of another message.
pub(crate) fn restore(
    plan: &MessagePlan,
    library: &Library,
    payload: &mut [u8],
    raw: &[u8],
) -> Result<(), PayloadFault> {
    let places: Vec<usize> =
        boolean_ranges(plan, library, payload)?.into_iter().flatten().collect();
    if places.len() == raw.len() {
        for (place, raw) in places.into_iter().zip(raw) {
            match payload.get_mut(place) {
                Some(byte) if (*byte != 0) == (*raw != 0) => *byte = *raw,
                _ => {}
            }
        }
    }
    Ok(())
}

/// The byte ranges of the booleans that become columns.
fn boolean_ranges(
    plan: &MessagePlan,
    library: &Library,
    payload: &[u8],
) -> Result<Vec<Range<usize>>, PayloadFault> {
    let cursor = PayloadCursor::new(
        payload.get(FINGERPRINT_LEN..).unwrap_or_default(),
        plan.program.empty_elements,
    );
    let registers = vec![0; plan.registers];
    let mut walk =
        BooleanLocator { library, cursor, end: payload.len(), registers, ranges: Vec::new() };
    walk.program(&plan.program)?;
    Ok(walk.ranges)
}

/// Walks over a message and collects the ranges of its booleans.
struct BooleanLocator<'w> {
    library: &'w Library,
    cursor: PayloadCursor<'w>,
    /// Length of the message.
    end: usize,
    registers: Vec<i64>,
    ranges: Vec<Range<usize>>,
}

impl BooleanLocator<'_> {
    fn program(&mut self, program: &Program) -> Result<(), PayloadFault> {
        program.ops.iter().try_for_each(|op| self.op(op))
    }

    fn op(&mut self, op: &Op) -> Result<(), PayloadFault> {
        let at = self.end - self.cursor.remaining();
        match op {
            Op::Region(region) => {
                let record = self.cursor.take(region.size)?;
                let booleans = region.booleans.iter();
                self.ranges.extend(booleans.map(|place| at + place.start..at + place.end));
                for count in &region.counts {
                    if let Some(register) = self.registers.get_mut(count.register) {
                        *register = count.read(record);
                    }
                }
            }
            Op::Text { .. } => drop(self.cursor.text()?),
            Op::Bytes { count, .. } => {
                let count = self.count(*count, 1)?;
                self.cursor.take(count)?;
            }
            Op::Numbers { leaf, count, .. } => {
                let size = leaf.per_element * leaf.width;
                let taken = self.count(*count, size)?.saturating_mul(size);
                self.cursor.take(taken)?;
                if leaf.are_booleans {
                    self.ranges.push(at..at + taken);
                }
            }
            Op::List { count, item, .. } => {
                let count = self.count(*count, item.min_len)?;
                (0..count).try_for_each(|_| self.program(item))?;
            }
            Op::Repeat { count, item } => {
                self.cursor.check(*count, item.min_len)?;
                (0..*count).try_for_each(|_| self.program(item))?;
            }
            // Opaque values keep their booleans.
            Op::Opaque { of, .. } => drop(self.cursor.skip(self.library, *of)?),
        }
        Ok(())
    }

    fn count(&mut self, register: usize, least: usize) -> Result<usize, PayloadFault> {
        let number = self.registers.get(register).copied().unwrap_or_default();
        self.cursor.count(number, least)
    }
}
