//! Reads payloads piece by piece, and never beyond their end. Knows no columns.

#![warn(clippy::indexing_slicing)]

use super::{LayoutError, LengthEncoding};
use crate::booleans::{ODD_BOOLEAN, is_true};

pub(super) const SHORT: LayoutError = "it is shorter than its type";
pub(super) const LONG: LayoutError = "it is longer than its type";
const ODD_LENGTH: LayoutError = "a length is not written in the shortest way";
const NEGATIVE: LayoutError = "a length is negative";
const EMPTY: LayoutError = "far more of it is missing than is there";
const HUGE: LayoutError = "a length is more than 2 GiB";

/// What is left of a payload.
pub(super) struct PayloadCursor<'b> {
    rest: &'b [u8],
    /// How many bytes of columns may still be filled with what stands for nothing.
    budget: usize,
    /// The bytes of booleans that were read, where any are taken.
    raw_booleans: Option<Vec<u8>>,
}

/// How many bytes of columns a byte of a payload may fill with what stands for nothing, and how many more
/// any payload may: references that lead nowhere are short, and what they could lead to may be long.
const BLANKS: (usize, usize) = (64, 64 << 10);

impl<'b> PayloadCursor<'b> {
    pub(super) fn new(payload: &'b [u8]) -> Self {
        let budget = payload.len().saturating_mul(BLANKS.0).saturating_add(BLANKS.1);
        Self { rest: payload, budget, raw_booleans: None }
    }

    /// The same, but takes every boolean that is not all zeros for true, and keeps their bytes.
    pub(super) fn with_raw_booleans(payload: &'b [u8]) -> Self {
        Self { raw_booleans: Some(Vec::new()), ..Self::new(payload) }
    }

    /// The bytes of the booleans that were read, if they were kept.
    pub(super) fn raw_booleans(self) -> Option<Vec<u8>> {
        self.raw_booleans
    }

    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    /// Takes what a column needs for what is not there.
    pub(super) fn spend(&mut self, bytes: usize) -> Result<(), LayoutError> {
        self.budget = self.budget.checked_sub(bytes).ok_or(EMPTY)?;
        Ok(())
    }

    pub(super) fn end(&self) -> Result<(), LayoutError> {
        if self.rest.is_empty() { Ok(()) } else { Err(LONG) }
    }

    #[inline]
    pub(super) fn take(&mut self, len: usize) -> Result<&'b [u8], LayoutError> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(SHORT)?;
        self.rest = rest;
        Ok(taken)
    }

    #[inline]
    fn word<const N: usize>(&mut self) -> Result<[u8; N], LayoutError> {
        let (word, rest) = self.rest.split_first_chunk().ok_or(SHORT)?;
        self.rest = rest;
        Ok(*word)
    }

    pub(super) fn byte(&mut self) -> Result<u8, LayoutError> {
        self.word().map(|[byte]: [u8; 1]| byte)
    }

    pub(super) fn bool(&mut self, width: usize) -> Result<bool, LayoutError> {
        let bytes = self.take(width)?;
        if let Some(raw) = &mut self.raw_booleans {
            raw.extend_from_slice(bytes);
            return Ok(is_true(bytes));
        }
        match bytes.split_first() {
            Some((first @ (0 | 1), rest)) if rest.iter().all(|byte| *byte == 0) => Ok(*first == 1),
            _ => Err(ODD_BOOLEAN),
        }
    }

    /// An enum's value.
    pub(super) fn value(&mut self, width: usize) -> Result<i32, LayoutError> {
        Ok(match width {
            1 => self.byte()?.into(),
            2 => i16::from_le_bytes(self.word()?).into(),
            _ => i32::from_le_bytes(self.word()?),
        })
    }

    /// A length, which what follows of `least` bytes each must have room for.
    #[inline]
    pub(super) fn length(
        &mut self,
        lengths: LengthEncoding,
        least: usize,
    ) -> Result<usize, LayoutError> {
        let length = match lengths {
            LengthEncoding::U32 => i64::from(u32::from_le_bytes(self.word()?)),
            LengthEncoding::Size => match self.byte()? {
                255 => match i32::from_le_bytes(self.word()?) {
                    length @ 255.. => length.into(),
                    0..=254 => return Err(ODD_LENGTH),
                    _ => return Err(NEGATIVE),
                },
                length => length.into(),
            },
        };
        self.fits(length, least)
    }

    /// A length from elsewhere, which what follows must have room for.
    #[inline]
    pub(super) fn fits(&self, length: i64, least: usize) -> Result<usize, LayoutError> {
        let length = usize::try_from(length).map_err(|_| NEGATIVE)?;
        match length.checked_mul(least) {
            Some(bytes) if bytes <= self.left() => Ok(length),
            _ => Err(SHORT),
        }
    }
}

/// Writes a length.
pub(super) fn put_length(
    length: usize,
    lengths: LengthEncoding,
    out: &mut Vec<u8>,
) -> Result<(), LayoutError> {
    let whole = i32::try_from(length).map_err(|_| HUGE)?;
    match (lengths, u8::try_from(length)) {
        (LengthEncoding::Size, Ok(short @ 0..=254)) => out.push(short),
        (LengthEncoding::Size, _) => {
            out.push(255);
            out.extend_from_slice(&whole.to_le_bytes());
        }
        (LengthEncoding::U32, _) => out.extend_from_slice(&whole.to_le_bytes()),
    }
    Ok(())
}
