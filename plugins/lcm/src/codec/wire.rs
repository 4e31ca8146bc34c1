//! Reads values from a payload and skips values of any type. Keeps no state.

#![warn(clippy::indexing_slicing)]

use sluice_core::booleans::ODD_BOOLEAN;

use super::plan::width;
use crate::types::syntax::{Dimension, Primitive, StructMember, TypeBody, TypeName};
use crate::types::{Library, TypeId};

/// Why a payload does not match its type. There are few, so that they can be counted.
pub(crate) type PayloadFault = &'static str;

/// The payload is too short.
pub(crate) const SHORT: PayloadFault = "the payload ends before its message does";
/// The payload is too long.
pub(crate) const LEFT_OVER: PayloadFault = "bytes are left over after the message";
/// An impossible count.
const HUGE: PayloadFault = "a length field says more than the payload holds";
const NEGATIVE: PayloadFault = "a length field is negative";
const BAD_TEXT: PayloadFault = "a string does not end with a zero where its length says";
const DEEP: PayloadFault = "it holds itself deeper than 256 levels";

/// Zero-byte elements allowed in any message; longer messages may have one per byte.
const MIN_EMPTY_BUDGET: usize = 256;
const MAX_DEPTH: usize = 256;

/// The unread rest of a payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PayloadCursor<'b> {
    rest: &'b [u8],
    /// Zero-byte elements still allowed: nothing else bounds them.
    empty_budget: usize,
}

impl<'b> PayloadCursor<'b> {
    /// Starts after the fingerprint. The type itself needs up to `empty` zero-byte elements.
    pub(crate) fn new(body: &'b [u8], empty_elements: usize) -> Self {
        Self { rest: body, empty_budget: body.len().max(MIN_EMPTY_BUDGET) + empty_elements }
    }

    /// Bytes left.
    pub(crate) fn remaining(&self) -> usize {
        self.rest.len()
    }

    #[inline]
    pub(crate) fn take(&mut self, len: usize) -> Result<&'b [u8], PayloadFault> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(SHORT)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Reads a string, without its terminating zero.
    pub(crate) fn text(&mut self) -> Result<&'b [u8], PayloadFault> {
        let (length, rest) = self.rest.split_first_chunk().ok_or(SHORT)?;
        self.rest = rest;
        let length = i32::from_be_bytes(*length);
        let length = usize::try_from(length).map_err(|_| BAD_TEXT)?;
        match self.take(length)?.split_last() {
            Some((0, text)) => Ok(text),
            _ => Err(BAD_TEXT),
        }
    }

    /// Converts a length field to a count, if that many elements of at least `least` bytes can
    /// follow.
    #[inline]
    pub(crate) fn count(&mut self, number: i64, least: usize) -> Result<usize, PayloadFault> {
        let count = usize::try_from(number).map_err(|_| NEGATIVE)?;
        self.check(count, least)?;
        Ok(count)
    }

    /// Checks that `count` elements of at least `least` bytes can follow.
    #[inline]
    pub(crate) fn check(&mut self, count: usize, least: usize) -> Result<(), PayloadFault> {
        if least == 0 {
            self.empty_budget = self.empty_budget.checked_sub(count).ok_or(HUGE)?;
        } else if count.checked_mul(least).is_none_or(|bytes| bytes > self.rest.len()) {
            return Err(HUGE);
        }
        Ok(())
    }

    /// `Err` if anything is left.
    pub(crate) fn end(&self) -> Result<(), PayloadFault> {
        if self.rest.is_empty() { Ok(()) } else { Err(LEFT_OVER) }
    }

    /// Skips a value and returns its bytes.
    pub(crate) fn skip(&mut self, library: &Library, of: TypeId) -> Result<&'b [u8], PayloadFault> {
        let before = self.rest;
        self.skip_value(library, of, 0)?;
        Ok(before.get(..before.len() - self.rest.len()).unwrap_or_default())
    }

    fn skip_value(
        &mut self,
        library: &Library,
        of: TypeId,
        depth: usize,
    ) -> Result<(), PayloadFault> {
        if library.takes_no_bytes(of) {
            return Ok(());
        }
        if depth == MAX_DEPTH {
            return Err(DEEP);
        }
        let declared = library.get(of);
        let TypeBody::Struct { members, .. } = &declared.declaration.body else {
            return self.take(4).map(drop);
        };
        let mut counts = vec![0; members.len()];
        for (place, member) in members.iter().enumerate() {
            let mut elements = 1_usize;
            for dimension in &member.dimensions {
                let size = match dimension {
                    Dimension::Fixed { size, .. } => i64::from(*size),
                    Dimension::Counted(place) => counts.get(*place).copied().unwrap_or_default(),
                };
                let size = usize::try_from(size).map_err(|_| NEGATIVE)?;
                elements = elements.checked_mul(size).ok_or(HUGE)?;
            }
            let used = declared.uses.get(place).copied().flatten();
            let number = self.skip_elements(library, member, used, elements, depth)?;
            if let Some(count) = counts.get_mut(place) {
                *count = number;
            }
        }
        Ok(())
    }

    /// Skips the elements of a member. Returns its value if it is a single integer.
    fn skip_elements(
        &mut self,
        library: &Library,
        member: &StructMember,
        used: Option<TypeId>,
        elements: usize,
        depth: usize,
    ) -> Result<i64, PayloadFault> {
        match (&member.of, used) {
            (TypeName::Primitive(Primitive::String), _) => {
                self.check(elements, 1)?;
                for _ in 0..elements {
                    self.text()?;
                }
            }
            (TypeName::Primitive(of), _) => {
                let width = width(*of).unwrap_or_default();
                self.check(elements, width)?;
                let bytes = self.take(elements * width)?;
                if member.dimensions.is_empty() {
                    return Ok(integer(bytes));
                }
            }
            (TypeName::Declared(_), Some(used)) if !library.takes_no_bytes(used) => {
                if !member.dimensions.is_empty() {
                    self.check(elements, 1)?;
                }
                for _ in 0..elements {
                    self.skip_value(library, used, depth + 1)?;
                }
            }
            (TypeName::Declared(_), _) => {}
        }
        Ok(0)
    }
}

/// `Err` if a byte is neither 0 nor 1.
pub(crate) fn check_booleans(bytes: &[u8]) -> Result<(), PayloadFault> {
    if bytes.iter().all(|byte| *byte <= 1) { Ok(()) } else { Err(ODD_BOOLEAN) }
}

/// Reads a signed integer of 1, 2, 4 or 8 bytes; 0 for other lengths.
fn integer(bytes: &[u8]) -> i64 {
    match *bytes {
        [a] => i64::from(i8::from_be_bytes([a])),
        [a, b] => i64::from(i16::from_be_bytes([a, b])),
        [a, b, c, d] => i64::from(i32::from_be_bytes([a, b, c, d])),
        [a, b, c, d, e, f, g, h] => i64::from_be_bytes([a, b, c, d, e, f, g, h]),
        _ => 0,
    }
}
