//! Binary numbers: their width and byte order.

#![warn(clippy::indexing_slicing)]

pub(crate) use sluice_kit::columns::{Endian, NumberType};

/// The smallest and the largest integer that a number can hold.
pub(crate) fn range(of: NumberType) -> (i128, i128) {
    let bits = 8 * of.width() as u32;
    match of.is_signed() {
        true => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
        false => (0, (1i128 << bits) - 1),
    }
}

/// The type and byte order of a stored number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BinaryNumber {
    /// Its type.
    pub(crate) number: NumberType,
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
            NumberType::F32 => f64::from(f32::from_bits(self.bits(bytes)? as u32)),
            NumberType::F64 => f64::from_bits(self.bits(bytes)?),
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

    fn word(number: NumberType, endian: Endian) -> BinaryNumber {
        BinaryNumber { number, endian }
    }

    #[test]
    fn odd_widths_keep_their_sign() {
        let bytes = [0xfe, 0xff, 0xff, 7];
        assert_eq!(word(NumberType::I24, Endian::Little).whole(&bytes), Some(-2));
        assert_eq!(word(NumberType::U24, Endian::Big).whole(&bytes), Some(0xfe_ffff));
        assert_eq!(word(NumberType::U32, Endian::Big).whole(&bytes[1..]), None);
    }

    proptest! {
        #[test]
        fn bits_survive_writing_and_reading(
            bits: u64,
            number in proptest::sample::select(vec![
                NumberType::U8, NumberType::I16, NumberType::U24, NumberType::I24, NumberType::F32, NumberType::U64,
                NumberType::F64,
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
            prop_assert_eq!(little(NumberType::I64).whole(&bytes), Some(i128::from(signed)));
            prop_assert_eq!(little(NumberType::U64).whole(&bytes), Some(i128::from(unsigned)));
            let float = word(NumberType::F64, Endian::Big).float(&bytes).map(f64::to_bits);
            prop_assert_eq!(float, Some(f64::from_be_bytes(bytes).to_bits()));
        }
    }
}
