//! Reads payloads piece by piece, never beyond their end.

#![warn(clippy::indexing_slicing)]

use super::{LayoutError, LengthEncoding};
use crate::booleans::{ODD_BOOLEAN, is_true};

pub(super) const SHORT: LayoutError = "it is shorter than its type";
pub(super) const LONG: LayoutError = "it is longer than its type";
const ODD_LENGTH: LayoutError = "a length is not written in the shortest way";
const NEGATIVE: LayoutError = "a length is negative";
const EMPTY: LayoutError = "too many of its references are null";
const HUGE: LayoutError = "a length is more than 2 GiB";

/// The rest of a payload.
pub(super) struct PayloadCursor<'b> {
    rest: &'b [u8],
    /// The bytes of placeholders that may still be added to columns.
    budget: usize,
    /// The raw booleans read so far, if any value is accepted.
    raw_booleans: Option<Vec<u8>>,
}

/// The budget of placeholder bytes: per byte of payload, plus an allowance. A null reference is
/// short, but its placeholder may be long.
const BLANK_BUDGET: (usize, usize) = (64, 64 << 10);

impl<'b> PayloadCursor<'b> {
    pub(super) fn new(payload: &'b [u8]) -> Self {
        let budget = payload.len().saturating_mul(BLANK_BUDGET.0).saturating_add(BLANK_BUDGET.1);
        Self { rest: payload, budget, raw_booleans: None }
    }

    /// Like [`new`](Self::new), but treats every boolean that is not all zeros as true, and keeps
    /// the raw bytes.
    pub(super) fn with_raw_booleans(payload: &'b [u8]) -> Self {
        Self { raw_booleans: Some(Vec::new()), ..Self::new(payload) }
    }

    /// The raw booleans, if they were kept.
    pub(super) fn raw_booleans(self) -> Option<Vec<u8>> {
        self.raw_booleans
    }

    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }

    /// Spends placeholder bytes from the budget.
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

    /// A length prefix, checked against the remaining bytes at `least` bytes per element.
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

    /// Checks a length from elsewhere against the remaining bytes.
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
