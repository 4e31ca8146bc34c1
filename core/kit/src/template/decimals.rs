//! Numbers as text, formatted like C's `printf`.

use std::io::Write as _;

use crate::json::integer;

/// How a number is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NumberFormat {
    /// The minimum number of characters.
    pub(super) width: usize,
    /// Whether it is padded with zeros rather than spaces.
    pub(super) zeros: bool,
    pub(super) decimals: Option<usize>,
}

pub(super) fn write_signed(value: i64, format: NumberFormat, out: &mut Vec<u8>) {
    let start = out.len();
    integer(out, value);
    complete_integer(start, format, out);
}

pub(super) fn write_unsigned(value: u64, format: NumberFormat, out: &mut Vec<u8>) {
    let start = out.len();
    integer(out, value);
    complete_integer(start, format, out);
}

/// Adds decimals and padding to the integer at `start`.
fn complete_integer(start: usize, format: NumberFormat, out: &mut Vec<u8>) {
    if let Some(decimals) = format.decimals.filter(|decimals| *decimals > 0) {
        out.push(b'.');
        out.resize(out.len() + decimals, b'0');
    }
    fill(start, format.zeros, format.width, out);
}

pub(super) fn write_single(value: f32, format: NumberFormat, out: &mut Vec<u8>) {
    match format.decimals {
        None if value.is_finite() => {
            let start = out.len();
            // Writing to a Vec does not fail.
            let _written = write!(out, "{value:?}");
            fill(start, format.zeros, format.width, out);
        }
        _ => write_double(f64::from(value), format, out),
    }
}

pub(super) fn write_double(value: f64, format: NumberFormat, out: &mut Vec<u8>) {
    let start = out.len();
    match format.decimals {
        _ if !value.is_finite() => out.extend_from_slice(match value {
            f64::INFINITY => b"inf".as_slice(),
            f64::NEG_INFINITY => b"-inf",
            _ => b"nan",
        }),
        Some(decimals) => write_decimals(value, decimals, out),
        None => {
            // Writing to a Vec does not fail.
            let _written = write!(out, "{value:?}");
        }
    }
    fill(start, format.zeros && value.is_finite(), format.width, out);
}

/// Pads the text at `start` to a width, with zeros after the sign or spaces before it.
fn fill(start: usize, zeros: bool, width: usize, out: &mut Vec<u8>) {
    let len = out.len() - start;
    if len >= width {
        return;
    }
    let (lack, byte) = (width - len, if zeros { b'0' } else { b' ' });
    let at = if zeros && out.get(start) == Some(&b'-') { start + 1 } else { start };
    out.splice(at..at, std::iter::repeat_n(byte, lack));
}

/// The most decimals for which twice the power of ten fits into a `u64`.
const MAX_FAST_DECIMALS: usize = 18;

/// Writes a finite number with this many decimals, rounded like C's `printf`: by its exact value,
/// half to even.
fn write_decimals(value: f64, decimals: usize, out: &mut Vec<u8>) {
    match split(value.abs(), decimals) {
        Some((whole, fraction)) => {
            if value.is_sign_negative() {
                out.push(b'-');
            }
            integer(out, whole);
            if decimals > 0 {
                write_fraction(fraction, decimals, out);
            }
        }
        // Large numbers, or many decimals.
        None => {
            let _written = write!(out, "{value:.decimals$}");
        }
    }
}

/// The integer part and the rounded decimals of a non-negative number. `None` from 2^53 on, and for
/// many decimals.
///
/// The number is `mantissa / 2^shift`, so its fraction times a power of ten is an integer of at
/// most 113 bits, shifted right by `shift`: rounding is exact.
#[inline]
fn split(value: f64, decimals: usize) -> Option<(u64, u64)> {
    const MANTISSA: u32 = f64::MANTISSA_DIGITS - 1;
    const BIAS: u32 = 1023 + MANTISSA;
    let power = *POWERS.get(decimals)?;
    let bits = value.to_bits();
    let (exponent, digits) = ((bits >> MANTISSA) as u32, bits & ((1 << MANTISSA) - 1));
    // Subnormal numbers have no implicit leading one.
    let mantissa = if exponent == 0 { digits } else { digits | 1 << MANTISSA };
    let shift = BIAS.checked_sub(exponent.max(1)).filter(|shift| *shift > 0)?;
    let (whole, below) = match shift {
        ..64 => (mantissa >> shift, mantissa & ((1 << shift) - 1)),
        64.. => (0, mantissa),
    };
    // Less than half of the last decimal in any case.
    if shift > 120 {
        return Some((whole, 0));
    }
    let scaled = u128::from(below) * u128::from(power);
    let (fraction, rest) = ((scaled >> shift) as u64, scaled & ((1 << shift) - 1));
    let half = 1u128 << (shift - 1);
    let is_odd = if decimals == 0 { whole } else { fraction } & 1 == 1;
    let rounded = fraction + u64::from(rest > half || rest == half && is_odd);
    Some(if rounded == power { (whole + 1, 0) } else { (whole, rounded) })
}

const POWERS: [u64; MAX_FAST_DECIMALS + 1] = {
    let mut powers = [1; MAX_FAST_DECIMALS + 1];
    let mut at = 1;
    while at <= MAX_FAST_DECIMALS {
        powers[at] = powers[at - 1] * 10;
        at += 1;
    }
    powers
};

/// Appends a point and this many decimals.
pub(super) fn write_fraction(fraction: u64, decimals: usize, out: &mut Vec<u8>) {
    let start = out.len();
    // A leading one keeps all zeros; the point replaces it.
    integer(out, fraction + POWERS[decimals]);
    out[start] = b'.';
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_double() -> impl Strategy<Value = f64> {
        prop_oneof![
            any::<f64>(),
            any::<u64>().prop_map(f64::from_bits),
            (any::<i64>(), 0u32..64).prop_map(|(n, by)| n as f64 / (1u64 << by) as f64),
            (-2_000_000i64..2_000_000, 0u32..12).prop_map(|(n, by)| n as f64 / (1u64 << by) as f64),
            (any::<i32>(), 0i32..9).prop_map(|(n, by)| f64::from(n) / 10f64.powi(by)),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]
        #[test]
        fn decimals_are_exact_to_the_last_digit(value in any_double(), decimals in 0usize..22) {
            prop_assume!(value.is_finite());
            let mut out = Vec::new();
            write_decimals(value, decimals, &mut out);
            prop_assert_eq!(String::from_utf8(out).unwrap(), format!("{value:.decimals$}"));
        }
    }
}
