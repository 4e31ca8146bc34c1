//! Reads payloads piece by piece, never beyond their end.

#![warn(clippy::indexing_slicing)]

use sluice_model::raw::ODD_BOOLEAN;

use super::{Endian, LengthEncoding, MAX_TAIL, PayloadFault, Strictness, WireRules};

/// What a format says of payloads and rows that do not match their type.
#[derive(Debug)]
pub struct Faults {
    /// The payload ends too early.
    pub short: PayloadFault,
    /// The payload ends too late.
    pub left_over: PayloadFault,
    /// More elements than the payload has bytes for.
    pub too_many: PayloadFault,
    /// A negative number of elements.
    pub negative: PayloadFault,
    /// A column would exceed the 2 GiB, or as many elements, that it can hold.
    pub full: PayloadFault,
    /// A list has another length than the member that counts it.
    pub other_length: PayloadFault,
    /// A length does not fit into 31 bits.
    pub too_long: PayloadFault,
}

impl Faults {
    /// What formats say that have no words of their own.
    pub const DEFAULT: Self = Self {
        short: "it is shorter than its type",
        left_over: "it is longer than its type",
        too_many: "it is shorter than its type",
        negative: "a length is negative",
        full: "the column of its batch is full",
        other_length: "a list is not as long as its length field says",
        too_long: "a length is more than 2 GiB",
    };
}

const ODD_LENGTH: PayloadFault = "a length is not written in the shortest way";
const BAD_TEXT: PayloadFault = "a string does not end with a zero where its length says";
/// The case of a variant is unknown.
pub(super) const NO_CASE: PayloadFault = "its class is not one of those declared";
const PADDING: PayloadFault = "padding is not zero";
const EMPTY: PayloadFault = "too many of its references are null";

/// Zero-byte elements allowed in any payload.
const MIN_EMPTY_BUDGET: usize = 256;
/// Zero-byte elements that longer payloads may have for each byte. Arrays in arrays are such
/// elements, so this is how deep arrays may be nested when none of them is empty.
const EMPTY_PER_BYTE: usize = 4;
/// The budget of placeholder bytes: per byte of payload, plus an allowance. A null reference is
/// short, but its placeholder may be long.
const BLANK_BUDGET: (usize, usize) = (64, 64 << 10);

/// The unread rest of a payload, or of a part of it.
#[derive(Clone, Copy, Debug)]
pub struct PayloadCursor<'b> {
    rest: &'b [u8],
    /// Length of the payload up to the end of this part.
    len: usize,
    rules: &'b WireRules,
    /// Zero-byte elements still allowed: nothing else bounds them.
    empty_budget: usize,
    /// The bytes of placeholders that may still be added to columns.
    blank_budget: usize,
}

impl<'b> PayloadCursor<'b> {
    /// At the start of a payload. The type itself needs up to `empty_elements` of zero bytes.
    pub(super) fn new(payload: &'b [u8], rules: &'b WireRules, empty_elements: usize) -> Self {
        Self::at_part(payload, payload.len(), rules, empty_elements)
    }

    /// At the start of the first part of a payload of `len` bytes.
    pub(super) fn at_part(
        first: &'b [u8],
        len: usize,
        rules: &'b WireRules,
        empty_elements: usize,
    ) -> Self {
        Self {
            rest: first,
            len: first.len(),
            rules,
            empty_budget: len.saturating_mul(EMPTY_PER_BYTE).max(MIN_EMPTY_BUDGET) + empty_elements,
            blank_budget: len.saturating_mul(BLANK_BUDGET.0) + BLANK_BUDGET.1,
        }
    }

    /// Goes on with the next part, when this one is read to its end.
    pub(super) fn next_part(&mut self, part: &'b [u8]) -> Result<(), PayloadFault> {
        if !self.rest.is_empty() {
            return Err(self.rules.faults.left_over);
        }
        (self.rest, self.len) = (part, self.len + part.len());
        Ok(())
    }

    /// The bytes that are left.
    pub(super) fn rest(&self) -> &'b [u8] {
        self.rest
    }

    /// Takes the next `len` bytes.
    #[inline]
    pub fn take(&mut self, len: usize) -> Result<&'b [u8], PayloadFault> {
        let Some((taken, rest)) = self.rest.split_at_checked(len) else {
            return Err(self.rules.faults.short);
        };
        self.rest = rest;
        Ok(taken)
    }

    /// Skips padding up to a multiple of `alignment`, which is a power of two.
    #[inline]
    pub(super) fn align(&mut self, alignment: usize) -> Result<(), PayloadFault> {
        let padding = self.take((self.rest.len().wrapping_sub(self.len)) & (alignment - 1))?;
        check_padding(padding, self.rules)
    }

    #[inline]
    fn word<const N: usize>(&mut self) -> Result<[u8; N], PayloadFault> {
        let Some((word, rest)) = self.rest.split_first_chunk() else {
            return Err(self.rules.faults.short);
        };
        self.rest = rest;
        Ok(*word)
    }

    #[inline]
    fn u32(&mut self) -> Result<u32, PayloadFault> {
        let word = self.word()?;
        Ok(match self.rules.endian {
            Endian::Little => u32::from_le_bytes(word),
            Endian::Big => u32::from_be_bytes(word),
        })
    }

    pub(super) fn byte(&mut self) -> Result<u8, PayloadFault> {
        self.word().map(|[byte]: [u8; 1]| byte)
    }

    /// Takes a text with its length, and returns it without the zero at its end.
    #[inline]
    pub fn text(&mut self) -> Result<&'b [u8], PayloadFault> {
        if self.rules.lengths != LengthEncoding::U32WithNul {
            let length = self.length(1)?;
            return self.take(length);
        }
        let length = self.u32()?.cast_signed();
        let length = usize::try_from(length).map_err(|_| BAD_TEXT)?;
        match self.take(length)?.split_last() {
            Some((0, text)) => Ok(text),
            None if self.rules.strictness == Strictness::Lenient => Ok(&[]),
            _ => Err(BAD_TEXT),
        }
    }

    /// Takes a length prefix, if that many elements of at least `least` bytes can follow.
    #[inline]
    pub(super) fn length(&mut self, least: usize) -> Result<usize, PayloadFault> {
        let length = match self.rules.lengths {
            LengthEncoding::U32 | LengthEncoding::U32WithNul => i64::from(self.u32()?),
            LengthEncoding::Size => match self.byte()? {
                255 => match self.u32()?.cast_signed() {
                    length @ 255.. => length.into(),
                    0..=254 => return Err(ODD_LENGTH),
                    _ => return Err(self.rules.faults.negative),
                },
                length => length.into(),
            },
        };
        self.count(length, least)
    }

    /// How many elements there are until `tail` bytes before the end, all of them whole.
    pub(super) fn count_before(&self, tail: usize, size: usize) -> Result<usize, PayloadFault> {
        let Some(left) = self.rest.len().checked_sub(tail) else {
            return Err(self.rules.faults.short);
        };
        let size = size.max(1);
        if left.is_multiple_of(size) { Ok(left / size) } else { Err(self.rules.faults.left_over) }
    }

    /// Converts a number of elements, if that many of at least `least` bytes can follow.
    #[inline]
    pub(super) fn count(&mut self, number: i64, least: usize) -> Result<usize, PayloadFault> {
        let count = usize::try_from(number).map_err(|_| self.rules.faults.negative)?;
        self.check(count, least)?;
        Ok(count)
    }

    /// Checks that `count` elements of at least `least` bytes can follow.
    #[inline]
    pub fn check(&mut self, count: usize, least: usize) -> Result<(), PayloadFault> {
        let fits = if least == 0 {
            let left = self.empty_budget.checked_sub(count);
            self.empty_budget = left.unwrap_or_default();
            left.is_some()
        } else {
            count.checked_mul(least).is_some_and(|bytes| bytes <= self.rest.len())
        };
        if fits { Ok(()) } else { Err(self.rules.faults.too_many) }
    }

    /// Spends placeholder bytes from the budget.
    pub(super) fn spend_blank(&mut self, bytes: usize) -> Result<(), PayloadFault> {
        self.blank_budget = self.blank_budget.checked_sub(bytes).ok_or(EMPTY)?;
        Ok(())
    }

    /// `Err` if anything is left.
    pub(super) fn end(&self) -> Result<(), PayloadFault> {
        let most = if self.rules.strictness == Strictness::Lenient { MAX_TAIL } else { 0 };
        if self.rest.len() <= most { Ok(()) } else { Err(self.rules.faults.left_over) }
    }
}

/// `Err` if this padding is not zero.
#[inline]
pub(super) fn check_padding(bytes: &[u8], rules: &WireRules) -> Result<(), PayloadFault> {
    let is_fine = rules.strictness == Strictness::Lenient || bytes.iter().all(|byte| *byte == 0);
    if is_fine { Ok(()) } else { Err(PADDING) }
}

/// `Err` if one of these booleans is neither 0 nor 1.
#[inline]
pub(super) fn check_booleans(bytes: &[u8], rules: &WireRules) -> Result<(), PayloadFault> {
    if rules.strictness == Strictness::Lenient {
        return Ok(());
    }
    let is_fine = match (rules.booleans, rules.endian) {
        (1, _) => bytes.iter().all(|byte| *byte <= 1),
        (width, endian) => bytes.chunks_exact(width).all(|word| {
            let parts = match endian {
                Endian::Little => word.split_first(),
                Endian::Big => word.split_last(),
            };
            parts.is_some_and(|(low, others)| *low <= 1 && others.iter().all(|byte| *byte == 0))
        }),
    };
    if is_fine { Ok(()) } else { Err(ODD_BOOLEAN) }
}

/// Writes the length of a list or of bytes.
pub(super) fn put_length(
    length: usize,
    rules: &WireRules,
    out: &mut Vec<u8>,
) -> Result<(), PayloadFault> {
    let whole = i32::try_from(length).map_err(|_| rules.faults.too_long)?;
    if rules.lengths == LengthEncoding::Size {
        if let Ok(short @ 0..=254) = u8::try_from(length) {
            out.push(short);
            return Ok(());
        }
        out.push(255);
    }
    out.extend(match rules.endian {
        Endian::Little => whole.to_le_bytes(),
        Endian::Big => whole.to_be_bytes(),
    });
    Ok(())
}
