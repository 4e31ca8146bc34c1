//! Keeps booleans other than 0 and 1. Normalizes them to 0 and 1 before decoding, and restores the
//! original bytes after encoding.

use std::ops::Range;

use arrow_array::builder::BinaryBuilder;
use sluice_model::raw::is_true;

use super::cursor::{NO_CASE, PayloadCursor};
use super::plan::{Count, Op, PayloadPlan, Program, ValueType};
use super::{Endian, PayloadFault};

/// Payloads in which every boolean is 0 or 1.
pub(super) struct Normalized<'e> {
    events: &'e [u32],
    /// The payloads, one behind the other.
    bytes: Vec<u8>,
    /// The original bytes of their booleans.
    raw: Vec<u8>,
    /// Where each event's payload and booleans end, or why it has none.
    ends: Vec<Result<(usize, usize), PayloadFault>>,
}

impl PayloadPlan {
    /// Copies of the payloads of these events in which every boolean is 0 or 1.
    pub(super) fn normalize<'e, 'b>(
        &self,
        events: &'e [u32],
        payload: &mut impl FnMut(u32, &mut Vec<&'b [u8]>) -> Result<&'b [u8], PayloadFault>,
    ) -> Normalized<'e> {
        let mut later = Vec::new();
        let mut all = Normalized { events, bytes: Vec::new(), raw: Vec::new(), ends: Vec::new() };
        for event in events {
            let start = all.bytes.len();
            later.clear();
            let located = payload(*event, &mut later).and_then(|first| {
                all.bytes.extend_from_slice(first);
                later.iter().rev().for_each(|part| all.bytes.extend_from_slice(part));
                self.boolean_ranges(all.bytes.get(start..).unwrap_or_default())
            });
            if located.is_err() {
                all.bytes.truncate(start);
            }
            let end = located.map(|ranges| {
                for at in ranges {
                    let range = start + at.start..start + at.end;
                    for word in self.boolean_words(&mut all.bytes, range) {
                        all.raw.extend_from_slice(word);
                        self.set_boolean(word, is_true(word));
                    }
                }
                (all.bytes.len(), all.raw.len())
            });
            all.ends.push(end);
        }
        all
    }

    /// Restores the original bytes of booleans whose value has not changed. Does nothing if the
    /// number of booleans differs: the bytes are of another payload.
    pub(super) fn restore_booleans(
        &self,
        payload: &mut [u8],
        raw: &[u8],
    ) -> Result<(), PayloadFault> {
        let ranges = self.boolean_ranges(payload)?;
        if ranges.iter().map(Range::len).sum::<usize>() != raw.len() {
            return Ok(());
        }
        let mut raw = raw.chunks_exact(self.rules.booleans);
        for range in ranges {
            for (word, raw) in self.boolean_words(payload, range).zip(&mut raw) {
                if is_true(word) == is_true(raw) {
                    word.copy_from_slice(raw);
                }
            }
        }
        Ok(())
    }

    fn boolean_words<'w>(
        &self,
        payload: &'w mut [u8],
        range: Range<usize>,
    ) -> impl Iterator<Item = &'w mut [u8]> {
        payload.get_mut(range).unwrap_or_default().chunks_exact_mut(self.rules.booleans)
    }

    fn set_boolean(&self, word: &mut [u8], value: bool) {
        word.fill(0);
        let low = match self.rules.endian {
            Endian::Little => word.first_mut(),
            Endian::Big => word.last_mut(),
        };
        if let Some(low) = low {
            *low = u8::from(value);
        }
    }

    /// The byte ranges of the booleans that become columns.
    fn boolean_ranges(&self, payload: &[u8]) -> Result<Vec<Range<usize>>, PayloadFault> {
        let cursor = PayloadCursor::new(payload, &self.rules, self.program.empty_elements);
        let registers = vec![0; self.registers];
        let (len, ranges) = (payload.len(), Vec::new());
        let mut walk = BooleanLocator { cursor, len, registers, ranges };
        walk.program(&self.program)?;
        Ok(walk.ranges)
    }
}

impl Normalized<'_> {
    /// The payload of each event, in their order.
    pub(super) fn payloads(&self) -> impl Iterator<Item = Result<&[u8], PayloadFault>> {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let (end, _) = (*end)?;
            let payload = self.bytes.get(start..end).unwrap_or_default();
            start = end;
            Ok(payload)
        })
    }

    /// Appends the booleans of those of its events that are among `good`, which are in their order.
    pub(super) fn append_raw(&self, good: &[u32], raw: &mut BinaryBuilder) {
        let (mut good, mut start) = (good.iter().peekable(), 0);
        for (event, end) in self.events.iter().zip(&self.ends) {
            let Ok((_, end)) = *end else { continue };
            if good.next_if_eq(&event).is_some() {
                raw.append_value(self.raw.get(start..end).unwrap_or_default());
            }
            start = end;
        }
    }
}

/// Walks over a payload and collects the ranges of its booleans.
struct BooleanLocator<'w> {
    cursor: PayloadCursor<'w>,
    /// Length of the payload.
    len: usize,
    registers: Vec<i64>,
    ranges: Vec<Range<usize>>,
}

impl BooleanLocator<'_> {
    fn program(&mut self, program: &Program) -> Result<(), PayloadFault> {
        program.ops.iter().try_for_each(|op| self.op(op))
    }

    fn op(&mut self, op: &Op) -> Result<(), PayloadFault> {
        match op {
            Op::Region(region) => {
                let at = self.at();
                let record = self.cursor.take(region.size)?;
                let booleans = region.booleans.iter();
                self.ranges.extend(booleans.map(|place| at + place.start..at + place.end));
                for count in &region.counts {
                    if let Some(register) = self.registers.get_mut(count.register) {
                        *register = count.read(record);
                    }
                }
            }
            Op::Align(alignment) => self.cursor.align(*alignment)?,
            // The parts of a payload have been put together.
            Op::Part => {}
            Op::Text { .. } => drop(self.cursor.text()?),
            Op::Bytes { count, .. } => {
                let count = self.count(*count, 1)?;
                self.cursor.take(count)?;
            }
            Op::Numbers { leaf, count, align, .. } => {
                let size = leaf.per_element * leaf.of.width();
                let taken = self.count(*count, size)?.saturating_mul(size);
                self.align(*align, taken)?;
                let at = self.at();
                self.cursor.take(taken)?;
                if matches!(leaf.of, ValueType::Bool(_)) {
                    self.ranges.push(at..at + taken);
                }
            }
            Op::List { count, item, align, .. } => {
                let count = self.count(*count, item.min_len)?;
                self.align(*align, count)?;
                (0..count).try_for_each(|_| self.program(item))?;
            }
            Op::Repeat { count, item } => {
                self.cursor.check(*count, item.min_len)?;
                (0..*count).try_for_each(|_| self.program(item))?;
            }
            Op::Variant(variant) => {
                let case = self.cursor.byte()?;
                let children = match case.checked_sub(1) {
                    None => &[][..],
                    Some(at) => variant.cases.children.get(usize::from(at)).ok_or(NO_CASE)?,
                };
                self.cursor.spend_blank(variant.blank)?;
                for child in children {
                    variant.children.get(*child).map_or(Ok(()), |child| self.program(child))?;
                }
            }
            // Opaque values keep their booleans.
            Op::Opaque { of, .. } => drop(of.skip(&mut self.cursor)?),
        }
        Ok(())
    }

    /// Skips the padding before the first of `count` elements.
    fn align(&mut self, alignment: usize, count: usize) -> Result<(), PayloadFault> {
        if count > 0 { self.cursor.align(alignment) } else { Ok(()) }
    }

    /// The offset of the cursor.
    fn at(&self) -> usize {
        self.len - self.cursor.rest().len()
    }

    fn count(&mut self, count: Count, least: usize) -> Result<usize, PayloadFault> {
        match count {
            Count::Prefix => self.cursor.length(least),
            Count::Register(register) => {
                let number = self.registers.get(register).copied().unwrap_or_default();
                self.cursor.count(number, least)
            }
            Count::Fixed(count) => self.cursor.check(count, least).map(|()| count),
            Count::Rest(tail) => self.cursor.count_before(tail, least),
        }
    }
}
