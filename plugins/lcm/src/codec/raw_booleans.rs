//! Where the booleans of a message lie. Decodes and encodes nothing: it makes them 0 and 1 before
//! one, and what they were after the other.

use std::ops::Range;

use super::decode::FINGERPRINT;
use super::plan::{Op, Plan, Program};
use super::wire::{Cursor, Reason};
use crate::types::Library;

/// The message with every boolean as 0 or 1, and what they were.
pub(crate) fn tamed(
    plan: &Plan,
    library: &Library,
    payload: &[u8],
) -> Result<(Vec<u8>, Vec<u8>), Reason> {
    let (mut tame, mut raw) = (payload.to_vec(), Vec::new());
    for place in places(plan, library, payload)? {
        for byte in tame.get_mut(place).unwrap_or_default() {
            raw.push(*byte);
            *byte = u8::from(*byte != 0);
        }
    }
    Ok((tame, raw))
}

/// Puts the bytes of booleans where they stand for the same values. If there are more or fewer of
/// them than booleans, they are those of another message.
pub(crate) fn untame(
    plan: &Plan,
    library: &Library,
    payload: &mut [u8],
    raw: &[u8],
) -> Result<(), Reason> {
    let places: Vec<usize> = places(plan, library, payload)?.into_iter().flatten().collect();
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

/// Where the booleans of a message lie that become columns.
fn places(plan: &Plan, library: &Library, payload: &[u8]) -> Result<Vec<Range<usize>>, Reason> {
    let cursor = Cursor::new(payload.get(FINGERPRINT..).unwrap_or_default(), plan.program.empty);
    let registers = vec![0; plan.registers];
    let mut walk = Walk { library, cursor, end: payload.len(), registers, places: Vec::new() };
    walk.program(&plan.program)?;
    Ok(walk.places)
}

/// A walk over a message.
struct Walk<'w> {
    library: &'w Library,
    cursor: Cursor<'w>,
    /// How long the message is.
    end: usize,
    registers: Vec<i64>,
    places: Vec<Range<usize>>,
}

impl Walk<'_> {
    fn program(&mut self, program: &Program) -> Result<(), Reason> {
        program.ops.iter().try_for_each(|op| self.op(op))
    }

    fn op(&mut self, op: &Op) -> Result<(), Reason> {
        let at = self.end - self.cursor.left();
        match op {
            Op::Region(region) => {
                let record = self.cursor.take(region.size)?;
                let booleans = region.booleans.iter();
                self.places.extend(booleans.map(|place| at + place.start..at + place.end));
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
                let size = leaf.per * leaf.width;
                let taken = self.count(*count, size)?.saturating_mul(size);
                self.cursor.take(taken)?;
                if leaf.are_booleans {
                    self.places.push(at..at + taken);
                }
            }
            Op::List { count, item, .. } => {
                let count = self.count(*count, item.least)?;
                (0..count).try_for_each(|_| self.program(item))?;
            }
            Op::Repeat { count, item } => {
                self.cursor.check(*count, item.least)?;
                (0..*count).try_for_each(|_| self.program(item))?;
            }
            // What is kept as bytes keeps its booleans.
            Op::Wire { of, .. } => drop(self.cursor.skip(self.library, *of)?),
        }
        Ok(())
    }

    fn count(&mut self, register: usize, least: usize) -> Result<usize, Reason> {
        let said = self.registers.get(register).copied().unwrap_or_default();
        self.cursor.count(said, least)
    }
}
