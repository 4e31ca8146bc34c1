//! Exact sums of floating point numbers: the same in any order.

/// A fixed-point number that holds every sum of up to 2^62 finite doubles exactly: digits of 32
/// bits, from the least double on, which may be negative and overlong until they are normalised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExactSum {
    digits: Box<[i64; DIGITS]>,
    /// How much the digits may have grown: additions since they were normalised.
    added: u64,
}

/// 2,098 bits of doubles, and 62 for their number.
const DIGITS: usize = 68;
const DIGIT_BITS: u32 = 32;
/// An addition makes a digit longer by less than 2^32.
const MAX_ADDED: u64 = 1 << 30;
/// The exponent of the least bit.
const LEAST_EXPONENT: i32 = -1074;

impl Default for ExactSum {
    fn default() -> Self {
        Self { digits: Box::new([0; DIGITS]), added: 0 }
    }
}

impl ExactSum {
    /// Adds a finite number.
    #[inline]
    pub(super) fn add(&mut self, value: f64) {
        let bits = value.to_bits();
        let exponent = (bits >> 52) as u32 & 0x7ff;
        let fraction = bits & ((1 << 52) - 1);
        let (mantissa, place) =
            if exponent == 0 { (fraction, 0) } else { (fraction | 1 << 52, exponent - 1) };
        let (at, shift) = ((place / DIGIT_BITS) as usize, place % DIGIT_BITS);
        let wide = u128::from(mantissa) << shift;
        let sign = if value.is_sign_negative() { -1 } else { 1 };
        for (digit, part) in self.digits[at..at + 3].iter_mut().zip(0..) {
            *digit += sign * i64::from((wide >> (part * DIGIT_BITS)) as u32);
        }
        self.added += 1;
        if self.added >= MAX_ADDED {
            self.normalise();
        }
    }

    pub(super) fn append(&mut self, next: &Self) {
        if self.added + next.added >= MAX_ADDED {
            self.normalise();
        }
        self.digits.iter_mut().zip(next.digits.iter()).for_each(|(digit, other)| *digit += other);
        self.added += next.added + 1;
    }

    /// Makes all digits but the last lie between 0 and 2^32.
    fn normalise(&mut self) {
        let mut carry = 0;
        for digit in self.digits.iter_mut().take(DIGITS - 1) {
            let value = *digit + carry;
            carry = value >> DIGIT_BITS;
            *digit = value & i64::from(u32::MAX);
        }
        self.digits[DIGITS - 1] += carry;
        self.added = 1;
    }

    /// The sum divided by `count`, within two units of its last place.
    pub(super) fn mean(&self, count: u64) -> Option<f64> {
        if count == 0 {
            return None;
        }
        let mut sum = self.clone();
        sum.normalise();
        let is_negative = sum.digits[DIGITS - 1] < 0;
        if is_negative {
            sum.digits.iter_mut().for_each(|digit| *digit = -*digit);
            sum.normalise();
        }
        let Some(top) = sum.digits.iter().rposition(|digit| *digit != 0) else { return Some(0.0) };
        // Three digits hold at least 65 significant bits.
        let first = top.saturating_sub(2);
        let head = sum.digits[first..=top].iter().rev();
        let head = head.fold(0u128, |head, digit| head << DIGIT_BITS | *digit as u128);
        let quotient = head as f64 / count as f64;
        let exponent = LEAST_EXPONENT + (first as i32) * DIGIT_BITS as i32;
        let mean = times_power_of_two(quotient, exponent);
        Some(if is_negative { -mean } else { mean })
    }
}

/// Multiplies in steps, so that only the result can overflow or underflow.
fn times_power_of_two(mut value: f64, mut exponent: i32) -> f64 {
    while exponent != 0 {
        let step = exponent.clamp(-500, 500);
        value *= f64::powi(2.0, step);
        exponent -= step;
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sum(values: &[f64]) -> ExactSum {
        let mut sum = ExactSum::default();
        values.iter().for_each(|value| sum.add(*value));
        sum
    }

    #[test]
    fn nothing_is_lost_beside_large_numbers() {
        let values = [1e308, 1.0, -1e308, 5e-324, -1.0];
        assert_eq!(sum(&values).mean(1), Some(5e-324));
        assert_eq!(sum(&[f64::MAX, f64::MAX, f64::MAX]).mean(3), Some(f64::MAX));
        assert_eq!(sum(&[-3.0, -4.0]).mean(2), Some(-3.5));
        assert_eq!((sum(&[]).mean(0), sum(&[2.0, -2.0]).mean(2)), (None, Some(0.0)));
    }

    proptest! {
        #[test]
        fn order_and_grouping_do_not_matter(
            values in proptest::collection::vec(
                proptest::num::f64::NORMAL | proptest::num::f64::SUBNORMAL, 1..50),
            cut in 0usize..50,
        ) {
            let whole = sum(&values).mean(values.len() as u64);
            let (front, back) = values.split_at(cut.min(values.len()));
            let mut joined = sum(back);
            joined.append(&sum(front));
            prop_assert_eq!(joined.mean(values.len() as u64), whole);
        }

        #[test]
        fn sums_of_integers_are_exact(values in proptest::collection::vec(any::<i32>(), 1..50)) {
            let doubles: Vec<f64> = values.iter().map(|value| f64::from(*value)).collect();
            let expected: i64 = values.iter().map(|value| i64::from(*value)).sum();
            prop_assert_eq!(sum(&doubles).mean(1), Some(expected as f64));
        }
    }
}
