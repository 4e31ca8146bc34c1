//! Binary numbers: their width and byte order.

#![warn(clippy::indexing_slicing)]

use schemars::JsonSchema;
use serde::Deserialize;

/// The byte order of a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Endian {
    /// Least significant byte first.
    #[default]
    Little,
    /// Most significant byte first.
    Big,
}

/// A type of number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    U8,
    I8,
    U16,
    I16,
    U24,
    I24,
    U32,
    I32,
    U64,
    I64,
    F32,
    F64,
}

impl Number {
    /// Its width in bytes.
    pub(crate) fn width(self) -> usize {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::U16 | Self::I16 => 2,
            Self::U24 | Self::I24 => 3,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    /// Whether it is a floating-point number.
    pub(crate) fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64)
    }

    /// Whether it is signed.
    pub(crate) fn is_signed(self) -> bool {
        !matches!(self, Self::U8 | Self::U16 | Self::U24 | Self::U32 | Self::U64)
    }

    /// The smallest and the largest integer it can hold.
    pub(crate) fn range(self) -> (i128, i128) {
        let bits = 8 * self.width() as u32;
        match self.is_signed() {
            true => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
            false => (0, (1i128 << bits) - 1),
        }
    }
}

/// The type and byte order of a stored number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BinaryNumber {
    /// Its type.
    pub(crate) number: Number,
    /// Its byte order.
    pub(crate) endian: Endian,
}

impl BinaryNumber {
    /// The raw bits at the start of `bytes`; `None` if there are too few bytes.
    #[inline]
    pub(crate) fn bits(self, bytes: &[u8]) -> Option<u64> {
        let bytes = bytes.get(..self.number.width())?;
        Some(match (bytes, self.endian) {
            (&[a], _) => u64::from(a),
            (&[a, b], Endian::Little) => u64::from(u16::from_le_bytes([a, b])),
            (&[a, b], Endian::Big) => u64::from(u16::from_be_bytes([a, b])),
            (&[a, b, c, d], Endian::Little) => u64::from(u32::from_le_bytes([a, b, c, d])),
            (&[a, b, c, d], Endian::Big) => u64::from(u32::from_be_bytes([a, b, c, d])),
            (bytes, Endian::Little) => fold(bytes.iter().rev()),
            (bytes, Endian::Big) => fold(bytes.iter()),
        })
    }

    /// The integer at the start of `bytes`; `None` if there are too few bytes or it is a float.
    #[inline]
    pub(crate) fn whole(self, bytes: &[u8]) -> Option<i128> {
        if self.number.is_float() {
            return None;
        }
        let bits = self.bits(bytes)?;
        let unused = 64 - 8 * self.number.width() as u32;
        Some(match self.number.is_signed() {
            true => i128::from((bits << unused).cast_signed() >> unused),
            false => i128::from(bits),
        })
    }

    /// The number at the start of `bytes` as a float, rounded if needed; `None` if there are too
    /// few bytes.
    #[inline]
    pub(crate) fn float(self, bytes: &[u8]) -> Option<f64> {
        Some(match self.number {
            Number::F32 => f64::from(f32::from_bits(self.bits(bytes)? as u32)),
            Number::F64 => f64::from_bits(self.bits(bytes)?),
            _ => self.whole(bytes)? as f64,
        })
    }

    /// The bytes that store these bits.
    pub(crate) fn bytes(self, bits: u64) -> Vec<u8> {
        let mut bytes = bits.to_le_bytes().to_vec();
        bytes.truncate(self.number.width());
        if self.endian == Endian::Big {
            bytes.reverse();
        }
        bytes
    }
}

#[inline]
fn fold<'b>(bytes: impl Iterator<Item = &'b u8>) -> u64 {
    bytes.fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn word(number: Number, endian: Endian) -> BinaryNumber {
        BinaryNumber { number, endian }
    }

    #[test]
    fn odd_widths_keep_their_sign() {
        let bytes = [0xfe, 0xff, 0xff, 7];
        assert_eq!(word(Number::I24, Endian::Little).whole(&bytes), Some(-2));
        assert_eq!(word(Number::U24, Endian::Big).whole(&bytes), Some(0xfe_ffff));
        assert_eq!(word(Number::U32, Endian::Big).whole(&bytes[1..]), None);
    }

    proptest! {
        #[test]
        fn bits_survive_writing_and_reading(
            bits: u64,
            number in proptest::sample::select(vec![
                Number::U8, Number::I16, Number::U24, Number::I24, Number::F32, Number::U64,
                Number::F64,
            ]),
            big: bool,
        ) {
            let word = word(number, if big { Endian::Big } else { Endian::Little });
            let kept = u64::MAX >> (64 - 8 * number.width());
            prop_assert_eq!(word.bits(&word.bytes(bits)), Some(bits & kept));
        }

        #[test]
        fn numbers_are_what_the_machine_reads(bytes: [u8; 8]) {
            let little = |number| word(number, Endian::Little);
            let (signed, unsigned) = (i64::from_le_bytes(bytes), u64::from_le_bytes(bytes));
            prop_assert_eq!(little(Number::I64).whole(&bytes), Some(i128::from(signed)));
            prop_assert_eq!(little(Number::U64).whole(&bytes), Some(i128::from(unsigned)));
            let float = word(Number::F64, Endian::Big).float(&bytes).map(f64::to_bits);
            prop_assert_eq!(float, Some(f64::from_be_bytes(bytes).to_bits()));
        }
    }
}
