//! Numbers in conditions: integers stay exact, and compare exactly with floats.

use std::cmp::Ordering;

/// A number, as an integer if possible.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Number {
    Whole(i64),
    /// An integer beyond `i64`, as unsigned columns may hold.
    Large(u64),
    Float(f64),
}

/// An arithmetic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

impl Number {
    /// The integer, or the nearest float if neither `i64` nor `u64` can hold it.
    pub(super) fn from_i128(whole: i128) -> Self {
        let large = || u64::try_from(whole).map(Self::Large);
        let small = i64::try_from(whole).map(Self::Whole);
        small.or_else(|_| large()).unwrap_or(Self::Float(whole as f64))
    }

    fn whole(self) -> Option<i128> {
        match self {
            Self::Whole(number) => Some(number.into()),
            Self::Large(number) => Some(number.into()),
            Self::Float(_) => None,
        }
    }

    pub(super) fn float(self) -> f64 {
        match self {
            Self::Whole(number) => number as f64,
            Self::Large(number) => number as f64,
            Self::Float(number) => number,
        }
    }

    /// `None` if either is NaN.
    pub(super) fn compare(self, other: Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Whole(a), Self::Whole(b)) => Some(a.cmp(&b)),
            (Self::Float(a), Self::Float(b)) => a.partial_cmp(&b),
            (a, Self::Float(b)) => compare_exactly(a.whole()?, b),
            (Self::Float(a), b) => compare_exactly(b.whole()?, a).map(Ordering::reverse),
            (a, b) => Some(a.whole()?.cmp(&b.whole()?)),
        }
    }

    /// `None` for a remainder by zero.
    pub(super) fn calculate(self, operation: Arithmetic, other: Self) -> Option<Self> {
        let floats = || calculate_floats(self.float(), operation, other.float());
        match (self.whole(), other.whole()) {
            (Some(a), Some(b)) if operation != Arithmetic::Divide => {
                calculate_wholes(a, operation, b)
                    .map_or_else(floats, |found| Some(Self::from_i128(found)))
            }
            _ => floats(),
        }
    }

    pub(super) fn negate(self) -> Self {
        self.whole().map_or_else(|| Self::Float(-self.float()), |whole| Self::from_i128(-whole))
    }

    pub(super) fn abs(self) -> Self {
        self.whole()
            .map_or_else(|| Self::Float(self.float().abs()), |whole| Self::from_i128(whole.abs()))
    }
}

/// Compares without rounding the integer to a float.
fn compare_exactly(whole: i128, float: f64) -> Option<Ordering> {
    if float.is_nan() {
        return None;
    }
    // A float whose integer part `i128` cannot hold is beyond all integers here, and the cast
    // saturates.
    let by_whole_part = whole.cmp(&(float.trunc() as i128));
    let by_fraction = || 0.0.partial_cmp(&float.fract()).unwrap_or(Ordering::Equal);
    Some(by_whole_part.then_with(by_fraction))
}

/// `None` if the result is not an exact integer.
fn calculate_wholes(a: i128, operation: Arithmetic, b: i128) -> Option<i128> {
    match operation {
        Arithmetic::Add => a.checked_add(b),
        Arithmetic::Subtract => a.checked_sub(b),
        Arithmetic::Multiply => a.checked_mul(b),
        Arithmetic::Divide => None,
        Arithmetic::Remainder => a.checked_rem(b),
    }
}

fn calculate_floats(a: f64, operation: Arithmetic, b: f64) -> Option<Number> {
    Some(Number::Float(match operation {
        Arithmetic::Add => a + b,
        Arithmetic::Subtract => a - b,
        Arithmetic::Multiply => a * b,
        Arithmetic::Divide => a / b,
        Arithmetic::Remainder if b == 0.0 => return None,
        Arithmetic::Remainder => a % b,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MOST: Number = Number::Whole(i64::MAX);

    #[test]
    fn whole_numbers_and_floats_compare_without_rounding() {
        // 2^53 + 1 has no float.
        let odd = Number::Whole(9_007_199_254_740_993);
        assert_eq!(odd.compare(Number::Float(9_007_199_254_740_992.0)), Some(Ordering::Greater));
        assert_eq!(MOST.compare(Number::Float(9.223_372_036_854_776e18)), Some(Ordering::Less));
        assert_eq!(Number::Whole(-1).compare(Number::Float(-1.5)), Some(Ordering::Greater));
        assert_eq!(Number::Whole(1).compare(Number::Float(1.5)), Some(Ordering::Less));
        assert_eq!(
            Number::Large(u64::MAX).compare(Number::Float(f64::INFINITY)),
            Some(Ordering::Less)
        );
        assert_eq!(Number::Large(u64::MAX).compare(MOST), Some(Ordering::Greater));
        assert_eq!(Number::Whole(1).compare(Number::Float(f64::NAN)), None);
    }

    #[test]
    fn whole_numbers_stay_whole_until_they_overflow() {
        let sum = MOST.calculate(Arithmetic::Add, Number::Whole(1));
        assert_eq!(sum, Some(Number::Large(1 << 63)));
        let large = Number::Large(u64::MAX);
        assert_eq!(
            large.calculate(Arithmetic::Multiply, large),
            Some(Number::Float(u64::MAX as f64 * u64::MAX as f64))
        );
        assert_eq!(Number::Large(1 << 63).negate(), Number::Whole(i64::MIN));
        assert_eq!(Number::Whole(i64::MIN).abs(), Number::Large(1 << 63));
    }

    #[test]
    fn division_gives_floats_and_a_remainder_by_zero_nothing() {
        let (seven, two, zero) = (Number::Whole(7), Number::Whole(2), Number::Whole(0));
        assert_eq!(seven.calculate(Arithmetic::Divide, two), Some(Number::Float(3.5)));
        assert_eq!(seven.calculate(Arithmetic::Divide, zero), Some(Number::Float(f64::INFINITY)));
        assert_eq!(seven.negate().calculate(Arithmetic::Remainder, two), Some(Number::Whole(-1)));
        assert_eq!(seven.calculate(Arithmetic::Remainder, zero), None);
        assert_eq!(Number::Float(7.0).calculate(Arithmetic::Remainder, zero), None);
    }

    proptest! {
        #[test]
        fn wholes_that_floats_hold_compare_like_floats(
            a in -(1i64 << 53)..(1 << 53), b in any::<f64>())
        {
            let found = Number::Whole(a).compare(Number::Float(b));
            prop_assert_eq!(found, (a as f64).partial_cmp(&b));
            let reversed = Number::Float(b).compare(Number::Whole(a));
            prop_assert_eq!(reversed, found.map(Ordering::reverse));
        }
    }
}
