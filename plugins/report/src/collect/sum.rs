//! Exact sums of floating point numbers: the same in any order.

use smallvec::SmallVec;

/// A fixed-point number that holds every sum of finite doubles exactly.
///
/// The bits of all doubles, from the least on, are cut into groups of 32. A double adds its
/// mantissa to the group in which its least bit lies, so that values of like size share a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ExactSum {
    /// The groups that are not empty, in ascending order: their numbers and sums.
    groups: SmallVec<[(u32, i128); 1]>,
    /// How much the sums may have grown: additions since they were normalised.
    added: u64,
}

/// 2,098 bits of doubles, and 62 for their number.
const DIGITS: usize = 68;
const DIGIT_BITS: u32 = 32;
/// An addition makes a sum longer by less than 2^84.
const MAX_ADDED: u64 = 1 << 42;
/// The exponent of the least bit.
const LEAST_EXPONENT: i32 = -1074;

/// The group of a finite number, and what it adds to it.
#[inline]
fn shifted_mantissa(value: f64) -> (u32, i128) {
    let bits = value.to_bits();
    let exponent = (bits >> 52) as u32 & 0x7ff;
    let fraction = bits & ((1 << 52) - 1);
    let (mantissa, place) =
        if exponent == 0 { (fraction, 0) } else { (fraction | 1 << 52, exponent - 1) };
    let wide = i128::from(mantissa) << (place % DIGIT_BITS);
    (place / DIGIT_BITS, if value.is_sign_negative() { -wide } else { wide })
}

impl ExactSum {
    /// Adds finite numbers.
    pub(super) fn add_all(&mut self, values: &[f64]) {
        let (mut group, mut sum) = (0, 0);
        for value in values {
            let (of, part) = shifted_mantissa(*value);
            // Zeros have the least exponent, and add nothing.
            if of != group && part != 0 {
                self.add_to(group, sum);
                (group, sum) = (of, 0);
            }
            sum += part;
        }
        self.add_to(group, sum);
        self.count(values.len() as u64);
    }

    pub(super) fn append(&mut self, next: &Self) {
        next.groups.iter().for_each(|(group, sum)| self.add_to(*group, *sum));
        self.count(next.added);
    }

    fn add_to(&mut self, group: u32, sum: i128) {
        match self.groups.binary_search_by_key(&group, |(known, _)| *known) {
            Ok(at) => self.groups[at].1 += sum,
            Err(_) if sum == 0 => {}
            Err(at) => self.groups.insert(at, (group, sum)),
        }
    }

    /// Counts additions. Each operand has at most half of those that a sum has room for.
    fn count(&mut self, added: u64) {
        self.added += added;
        if self.added < MAX_ADDED {
            return;
        }
        let digits = self.digits();
        let digits = (0..).zip(digits.iter()).filter(|(_, digit)| **digit != 0);
        self.groups = digits.map(|(group, digit)| (group, i128::from(*digit))).collect();
        self.added = 1;
    }

    /// The digits of the sum, all but the last of which lie between 0 and 2^32.
    fn digits(&self) -> [i64; DIGITS] {
        let mut digits = [0; DIGITS];
        let mut carry = 0i128;
        let mut groups = self.groups.iter().peekable();
        for (number, digit) in (0..).zip(digits.iter_mut()) {
            let sum = groups.next_if(|(group, _)| *group == number).map_or(0, |(_, sum)| *sum);
            let value = sum + carry;
            let is_last = number as usize == DIGITS - 1;
            *digit = if is_last { value as i64 } else { i64::from(value as u32) };
            carry = value >> DIGIT_BITS;
        }
        digits
    }

    /// The sum divided by `count`, within two units of its last place.
    pub(super) fn mean(&self, count: u64) -> Option<f64> {
        if count == 0 {
            return None;
        }
        let mut digits = self.digits();
        let is_negative = digits[DIGITS - 1] < 0;
        if is_negative {
            let negated = self.groups.iter().map(|(group, sum)| (*group, -sum)).collect();
            digits = Self { groups: negated, added: 0 }.digits();
        }
        let Some(top) = digits.iter().rposition(|digit| *digit != 0) else { return Some(0.0) };
        // Three digits hold at least 65 significant bits.
        let first = top.saturating_sub(2);
        let head = digits[first..=top].iter().rev();
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
        sum.add_all(values);
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
