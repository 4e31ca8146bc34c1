//! Converts times between the format's milliseconds in a double and nanoseconds.
//!
//! It does not know the epoch.

/// Nanoseconds per millisecond.
const NANOS_PER_MILLI: i64 = 1_000_000;
/// Doubles hold whole numbers exactly up to here.
const MAX_EXACT: u64 = 1 << f64::MANTISSA_DIGITS;

/// The nearest nanosecond; `None` for NaN, and for what 64 bits cannot hold.
#[inline]
pub(crate) fn to_nanos(ms: f64) -> Option<i64> {
    // False for NaN, too. Values beyond 64 bits may exceed this by less than one part in a hundred,
    // and are checked below.
    let is_near = ms.abs() < 9.3e12;
    let whole = if is_near { ms as i64 } else { return None };
    // Multiplied in one step, Unix times would lose precision.
    let part = ((ms - whole as f64) * NANOS_PER_MILLI as f64).round();
    whole.checked_mul(NANOS_PER_MILLI)?.checked_add(part as i64)
}

/// Greater times would not fit into 128 bits of nanoseconds.
const MAX_MILLIS: f64 = 1e32;

/// The nearest nanosecond, also beyond 64 bits; `None` for NaN, and beyond 10³² ms.
#[inline]
pub(crate) fn to_wide_nanos(ms: f64) -> Option<i128> {
    if let Some(nanos) = to_nanos(ms) {
        return Some(nanos.into());
    }
    // False for NaN, too.
    let is_time = ms.abs() <= MAX_MILLIS;
    let (whole, part) = (ms.trunc(), (ms.fract() * NANOS_PER_MILLI as f64).round());
    is_time.then(|| whole as i128 * i128::from(NANOS_PER_MILLI) + part as i128)
}

/// The nearest double, also for times beyond 64 bits.
#[inline]
pub(crate) fn to_wide_millis(nanos: i128) -> f64 {
    match i64::try_from(nanos) {
        Ok(nanos) => to_millis(nanos),
        Err(_) => {
            let (whole, part) =
                (nanos / i128::from(NANOS_PER_MILLI), nanos % i128::from(NANOS_PER_MILLI));
            whole as f64 + part as f64 / NANOS_PER_MILLI as f64
        }
    }
}

/// The nearest double.
#[inline]
pub(crate) fn to_millis(nanos: i64) -> f64 {
    if nanos.unsigned_abs() <= MAX_EXACT {
        return nanos as f64 / NANOS_PER_MILLI as f64;
    }
    (nanos / NANOS_PER_MILLI) as f64 + (nanos % NANOS_PER_MILLI) as f64 / NANOS_PER_MILLI as f64
}

/// The time that is read back after writing this one.
///
/// It is the same up to 99 days from 0; Unix times come back to about 0.1 µs. The greatest
/// timestamp stands for all later times, and the least for all earlier ones.
#[inline]
pub(crate) fn round_trip(nanos: i64) -> i64 {
    let is_edge = matches!(nanos, i64::MIN | i64::MAX);
    // The doubles nearest to the least and greatest 64-bit time lie between these.
    if is_edge { nanos } else { to_nanos(to_millis(nanos)).unwrap_or(nanos) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn milliseconds_become_the_nearest_nanosecond() {
        for (ms, nanos) in [
            (0.0, 0),
            (10_000.0, 10_000_000_000),
            (0.000_000_6, 1),
            (-1.5, -1_500_000),
            (1234.567, 1_234_567_000),
        ] {
            assert_eq!(to_nanos(ms), Some(nanos), "{ms}");
        }
    }

    #[test]
    fn what_is_no_time_is_none() {
        for ms in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300, -1e300, 9.3e12, -9.3e12] {
            assert_eq!(to_nanos(ms), None, "{ms}");
        }
        assert_eq!(to_nanos(9_223_372_036_854.0), Some(9_223_372_036_854_000_000));
    }

    #[test]
    fn every_time_can_be_written() {
        for nanos in [i64::MAX, i64::MIN, i64::MAX - 999, 0] {
            assert!(to_nanos(to_millis(nanos)).is_some_and(|found| found.abs_diff(nanos) < 1000));
        }
    }

    proptest! {
        #[test]
        fn times_within_99_days_come_back(
            nanos in -8_553_600_000_000_000i64..8_553_600_000_000_000,
        ) {
            prop_assert_eq!(round_trip(nanos), nanos);
        }

        #[test]
        fn unix_times_come_back_to_an_eighth_of_a_microsecond(
            nanos in 0i64..2_000_000_000_000_000_000,
        ) {
            prop_assert!(round_trip(nanos).abs_diff(nanos) <= 125);
        }

        #[test]
        fn what_was_written_is_written_again(nanos: i64) {
            let ms = to_millis(nanos);
            let found = to_nanos(ms);
            prop_assert_eq!(found.map(|found| to_millis(found).to_bits()), Some(ms.to_bits()));
        }

        #[test]
        fn times_beyond_64_bits_come_back(bits: u64) {
            let ms = f64::from_bits(bits);
            match to_wide_nanos(ms) {
                Some(nanos) if to_nanos(ms).is_none() => {
                    prop_assert!(i64::try_from(nanos).is_err());
                    prop_assert_eq!(to_wide_millis(nanos).to_bits(), bits);
                }
                Some(nanos) => prop_assert_eq!(to_nanos(ms), i64::try_from(nanos).ok()),
                None => prop_assert!(ms.is_nan() || ms.abs() > MAX_MILLIS),
            }
        }

        #[test]
        fn any_double_is_a_time_or_none(bits: u64) {
            if let Some(nanos) = to_nanos(f64::from_bits(bits)) {
                prop_assert!((nanos as f64 / 1e6 - f64::from_bits(bits)).abs() <= 1.0);
            }
        }
    }
}
