//! Walks the fields of a record of which some declare the length of others.

#![warn(clippy::indexing_slicing)]

use crate::wire::BinaryNumber;

/// How many fields may declare the length of others.
pub(crate) const MAX_REGISTERS: usize = 16;

/// The fields after a record's head, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct FieldWalk {
    /// The fields.
    pub(crate) steps: Vec<WalkStep>,
    /// Fields of the head that declare lengths: their offsets, number formats and registers.
    pub(crate) head_registers: Vec<(usize, BinaryNumber, usize)>,
}

/// A field.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WalkStep {
    /// Its length.
    pub(crate) size: WalkSize,
    /// The register that stores its value, if it declares the length of other fields.
    pub(crate) register: Option<(BinaryNumber, usize)>,
}

/// The length of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WalkSize {
    /// This many bytes.
    Fixed(usize),
    /// As many elements as a register says.
    Counted {
        /// The register.
        by: usize,
        /// Bytes per element.
        width: usize,
    },
    /// The rest of the record, in whole elements.
    Rest {
        /// Bytes per element.
        width: usize,
    },
}

/// The result of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WalkResult {
    /// The fields end at this offset.
    End(usize),
    /// At least this many bytes are needed to continue.
    Needs(usize),
    /// The fields do not fit the record.
    Mismatch,
}

impl FieldWalk {
    /// Walks the fields of the record at the start of `bytes`, from `head_len` on, and calls `each`
    /// with the offset and length of each field.
    ///
    /// `body_end` is where the fields must end, if that is known; without it, no field may take the
    /// rest of the record. No field may end after `max_len`.
    pub(crate) fn run(
        &self,
        bytes: &[u8],
        head_len: usize,
        body_end: Option<usize>,
        max_len: usize,
        mut each: impl FnMut(usize, usize),
    ) -> WalkResult {
        let mut registers = [0u64; MAX_REGISTERS];
        for (at, word, register) in &self.head_registers {
            let value = bytes.get(*at..).and_then(|bytes| word.bits(bytes));
            let Some(value) = value else { return WalkResult::Needs(at + word.number.width()) };
            store(&mut registers, *register, value);
        }
        let mut at = head_len;
        for step in &self.steps {
            let Some(len) = step.size.len(&registers, at, body_end) else {
                return WalkResult::Mismatch;
            };
            let Some(end) = at.checked_add(len).filter(|end| *end <= body_end.unwrap_or(max_len))
            else {
                return WalkResult::Mismatch;
            };
            if let Some((word, register)) = step.register {
                let value = bytes.get(at..).and_then(|bytes| word.bits(bytes));
                let Some(value) = value else { return WalkResult::Needs(end) };
                store(&mut registers, register, value);
            }
            each(at, len);
            at = end;
        }
        WalkResult::End(at)
    }
}

fn store(registers: &mut [u64; MAX_REGISTERS], register: usize, value: u64) {
    if let Some(kept) = registers.get_mut(register) {
        *kept = value;
    }
}

impl WalkSize {
    fn len(self, registers: &[u64], at: usize, body_end: Option<usize>) -> Option<usize> {
        match self {
            Self::Fixed(len) => Some(len),
            Self::Counted { by, width } => {
                usize::try_from(*registers.get(by)?).ok()?.checked_mul(width)
            }
            Self::Rest { width } => {
                let left = body_end?.checked_sub(at)?;
                left.is_multiple_of(width.max(1)).then_some(left)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Endian, NumberType};
    use proptest::prelude::*;

    const COUNT: BinaryNumber = BinaryNumber { number: NumberType::U8, endian: Endian::Little };

    fn lists() -> FieldWalk {
        let count = |by| WalkStep { size: WalkSize::Fixed(1), register: Some((COUNT, by)) };
        let list = |by| WalkStep { size: WalkSize::Counted { by, width: 2 }, register: None };
        FieldWalk { steps: vec![count(0), list(0), count(1), list(1)], head_registers: Vec::new() }
    }

    #[test]
    fn consecutive_lists_are_found() {
        let mut places = Vec::new();
        let walked = lists().run(&[1, 9, 9, 2, 8, 8, 8, 8, 7], 0, None, 64, |at, len| {
            places.push((at, len));
        });
        assert_eq!((walked, places), (WalkResult::End(8), vec![(0, 1), (1, 2), (3, 1), (4, 4)]));
    }

    #[test]
    fn a_walk_reports_how_many_bytes_it_needs() {
        assert_eq!(lists().run(&[1], 0, None, 64, |_, _| ()), WalkResult::Needs(4));
        assert_eq!(lists().run(&[200], 0, None, 64, |_, _| ()), WalkResult::Mismatch);
    }

    proptest! {
        #[test]
        fn no_field_ends_after_the_maximum_length(bytes: Vec<u8>, max_len in 0usize..64) {
            let mut ends = Vec::new();
            lists().run(&bytes, 0, None, max_len, |at, len| ends.push(at + len));
            prop_assert!(ends.iter().all(|end| *end <= max_len));
        }
    }
}
