//! Reads values off a payload, and steps over values of any type. Keeps nothing.

#![warn(clippy::indexing_slicing)]

use sluice_core::booleans::ODD_BOOLEAN;

use super::plan::width;
use crate::types::syntax::{Body, Dimension, Member, Primitive, TypeName};
use crate::types::{Library, TypeId};

/// Why a payload is not of its type. Few, so that they can be counted.
pub(crate) type Reason = &'static str;

/// The payload ends too early.
pub(crate) const SHORT: Reason = "the payload ends before its message does";
/// The payload goes on.
pub(crate) const LEFT_OVER: Reason = "bytes are left over behind the message";
/// A count that cannot be true.
const HUGE: Reason = "a length field says more than the payload holds";
const NEGATIVE: Reason = "a length field is negative";
const BAD_TEXT: Reason = "a string does not end with a zero where its length says";
const DEEP: Reason = "it holds itself deeper than 256 levels";

/// Elements without bytes that a message may have, if it is not itself longer than this.
const MOST_EMPTY: usize = 256;
const DEEPEST: usize = 256;

/// What is left of a payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'b> {
    rest: &'b [u8],
    /// How many elements without bytes may still come: nothing else bounds them.
    empty: usize,
}

impl<'b> Cursor<'b> {
    /// What lies behind the fingerprint. Its type itself asks for up to `empty` elements without bytes.
    pub(crate) fn new(body: &'b [u8], empty: usize) -> Self {
        Self { rest: body, empty: body.len().max(MOST_EMPTY) + empty }
    }

    /// How many bytes that is.
    pub(crate) fn left(&self) -> usize {
        self.rest.len()
    }

    #[inline]
    pub(crate) fn take(&mut self, len: usize) -> Result<&'b [u8], Reason> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(SHORT)?;
        self.rest = rest;
        Ok(taken)
    }

    /// A string without the zero at its end.
    pub(crate) fn text(&mut self) -> Result<&'b [u8], Reason> {
        let (length, rest) = self.rest.split_first_chunk().ok_or(SHORT)?;
        self.rest = rest;
        let length = i32::from_be_bytes(*length);
        let length = usize::try_from(length).map_err(|_| BAD_TEXT)?;
        match self.take(length)?.split_last() {
            Some((0, text)) => Ok(text),
            _ => Err(BAD_TEXT),
        }
    }

    /// How many elements there are of at least `least` bytes each, if there can be so many.
    #[inline]
    pub(crate) fn count(&mut self, number: i64, least: usize) -> Result<usize, Reason> {
        let count = usize::try_from(number).map_err(|_| NEGATIVE)?;
        self.check(count, least)?;
        Ok(count)
    }

    /// Whether `count` elements of at least `least` bytes can follow.
    #[inline]
    pub(crate) fn check(&mut self, count: usize, least: usize) -> Result<(), Reason> {
        if least == 0 {
            self.empty = self.empty.checked_sub(count).ok_or(HUGE)?;
        } else if count.checked_mul(least).is_none_or(|bytes| bytes > self.rest.len()) {
            return Err(HUGE);
        }
        Ok(())
    }

    /// `Err` if anything is left.
    pub(crate) fn end(&self) -> Result<(), Reason> {
        if self.rest.is_empty() { Ok(()) } else { Err(LEFT_OVER) }
    }

    /// Steps over a value, and gives its bytes.
    pub(crate) fn skip(&mut self, library: &Library, of: TypeId) -> Result<&'b [u8], Reason> {
        let before = self.rest;
        self.skip_value(library, of, 0)?;
        Ok(before.get(..before.len() - self.rest.len()).unwrap_or_default())
    }

    fn skip_value(&mut self, library: &Library, of: TypeId, depth: usize) -> Result<(), Reason> {
        if library.takes_no_bytes(of) {
            return Ok(());
        }
        if depth == DEEPEST {
            return Err(DEEP);
        }
        let declared = library.get(of);
        let Body::Struct { members, .. } = &declared.declaration.body else {
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

    /// Steps over a member's elements; gives its value, if it is one integer.
    fn skip_elements(
        &mut self,
        library: &Library,
        member: &Member,
        used: Option<TypeId>,
        elements: usize,
        depth: usize,
    ) -> Result<i64, Reason> {
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

/// `Err` if one of them is neither 0 nor 1.
pub(crate) fn check_booleans(bytes: &[u8]) -> Result<(), Reason> {
    if bytes.iter().all(|byte| *byte <= 1) { Ok(()) } else { Err(ODD_BOOLEAN) }
}

/// The integer that these bytes are, with its sign; 0 for none.
fn integer(bytes: &[u8]) -> i64 {
    match *bytes {
        [a] => i64::from(i8::from_be_bytes([a])),
        [a, b] => i64::from(i16::from_be_bytes([a, b])),
        [a, b, c, d] => i64::from(i32::from_be_bytes([a, b, c, d])),
        [a, b, c, d, e, f, g, h] => i64::from_be_bytes([a, b, c, d, e, f, g, h]),
        _ => 0,
    }
}
