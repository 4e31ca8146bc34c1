//! Event times: the sum of a record's time fields and an epoch. All arithmetic is checked.

#![warn(clippy::indexing_slicing)]

use crate::offset::RecordOffset;
use crate::wire::BinaryNumber;

const NANOS: i128 = 1_000_000_000;
/// 1980-01-06, in seconds since 1970.
pub(crate) const GPS_EPOCH: i64 = 315_964_800;

/// Seconds since 1970 (UTC) from which GPS time was this many seconds ahead of UTC.
const LEAP_SECONDS: [(i64, i64); 18] = [
    (362_793_600, 1),
    (394_329_600, 2),
    (425_865_600, 3),
    (489_024_000, 4),
    (567_993_600, 5),
    (631_152_000, 6),
    (662_688_000, 7),
    (709_948_800, 8),
    (741_484_800, 9),
    (773_020_800, 10),
    (820_454_400, 11),
    (867_715_200, 12),
    (915_148_800, 13),
    (1_136_073_600, 14),
    (1_230_768_000, 15),
    (1_341_100_800, 16),
    (1_435_708_800, 17),
    (1_483_228_800, 18),
];

/// How GPS times are converted to UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeapSeconds {
    /// No conversion.
    None,
    /// By a fixed number of seconds.
    Fixed(i64),
    /// By the number of leap seconds at the time.
    Historical,
}

/// How an event's time is computed.
#[derive(Clone, Debug)]
pub(crate) struct Timing {
    /// The time fields; they are added.
    pub(crate) parts: Vec<TimeField>,
    /// Added to their sum, in nanoseconds.
    pub(crate) epoch: i64,
    /// Subtracted from the result.
    pub(crate) leap: LeapSeconds,
}

/// A field that holds a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimeField {
    /// Its offset.
    pub(crate) at: RecordOffset,
    /// Its number format.
    pub(crate) word: BinaryNumber,
    /// Its unit in nanoseconds.
    pub(crate) unit: i64,
    /// Factor and offset that turn the stored value into its unit.
    pub(crate) scale: Option<(f64, f64)>,
    /// The value at which it wraps to 0.
    pub(crate) wraps: Option<u64>,
    /// The index of its counter: fields with the same unit and period share one.
    pub(crate) counter: usize,
}

/// How many different wrapping counters can be tracked.
pub(crate) const MAX_COUNTERS: usize = 4;

/// What later events need to know of earlier ones.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TimeState {
    /// The unwrapped value of each counter.
    pub(crate) unwrapped: [Option<i128>; MAX_COUNTERS],
    /// The time of the previous event.
    pub(crate) nanos: Option<i64>,
}

impl Timing {
    /// The time of a record in nanoseconds, and the state for the next record; `None` if the time
    /// is out of range.
    #[inline]
    pub(crate) fn nanos(&self, record: &[u8], before: &TimeState) -> Option<(i64, TimeState)> {
        let (mut sum, mut after) = (i128::from(self.epoch), *before);
        for part in &self.parts {
            let nanos = part.nanos(record, &mut after.unwrapped)?;
            sum = sum.checked_add(nanos)?;
        }
        let nanos = i64::try_from(self.leap.utc(sum)?).ok()?;
        after.nanos = Some(nanos);
        Some((nanos, after))
    }

    /// Why a record has no time.
    pub(crate) fn fault(&self, record: &[u8]) -> &'static str {
        let is_beyond = |part: &TimeField| {
            let value = part.word.whole(part.at.bytes_in(record));
            let turn = part.wraps.map(|wraps| 0..i128::from(wraps));
            turn.zip(value).is_some_and(|(turn, value)| !turn.contains(&value))
        };
        match self.parts.iter().any(is_beyond) {
            true => "its time is not below the number in `wraps`",
            false => "its time is out of range (1677 to 2262)",
        }
    }
}

impl TimeField {
    fn nanos(&self, record: &[u8], counters: &mut [Option<i128>; MAX_COUNTERS]) -> Option<i128> {
        let bytes = self.at.bytes_in(record);
        if self.word.number.is_float() || self.scale.is_some() {
            let (scale, offset) = self.scale.unwrap_or((1.0, 0.0));
            return float_nanos(self.word.float(bytes)? * scale + offset, self.unit);
        }
        let mut value = self.word.whole(bytes)?;
        if let Some(modulus) = self.wraps {
            let unwrapped = counters.get_mut(self.counter)?;
            value = unwrap(value, i128::from(modulus), *unwrapped)?;
            *unwrapped = Some(value);
        }
        value.checked_mul(i128::from(self.unit))
    }
}

/// The unwrapped counter value nearest to `before`; `None` if `value` is not below `modulus`.
fn unwrap(value: i128, modulus: i128, before: Option<i128>) -> Option<i128> {
    if !(0..modulus).contains(&value) {
        return None;
    }
    let Some(before) = before else { return Some(value) };
    let step = (value - before).rem_euclid(modulus);
    let nearest = if step > modulus / 2 { step - modulus } else { step };
    before.checked_add(nearest)
}

/// `value` units in nanoseconds. Whole units and the rest are converted separately, to keep
/// precision.
fn float_nanos(value: f64, unit: i64) -> Option<i128> {
    let whole = value.trunc();
    if !value.is_finite() || whole.abs() > 9.3e18 {
        return None;
    }
    let rest = ((value - whole) * unit as f64).round();
    (whole as i128).checked_mul(i128::from(unit))?.checked_add(rest as i128)
}

impl LeapSeconds {
    fn utc(self, nanos: i128) -> Option<i128> {
        let seconds = match self {
            Self::None => return Some(nanos),
            Self::Fixed(seconds) => seconds,
            Self::Historical => {
                let second = nanos.div_euclid(NANOS);
                let since = |(from, ahead): &&(i64, i64)| second >= i128::from(from + ahead);
                LEAP_SECONDS.iter().rev().find(since).map_or(0, |(_, ahead)| *ahead)
            }
        };
        nanos.checked_sub(i128::from(seconds) * NANOS)
    }
}

/// Nanoseconds per unit of time; `None` for an unknown unit.
pub(crate) fn unit_nanos(unit: &str) -> Option<i64> {
    Some(match unit {
        "weeks" => 604_800_000_000_000,
        "days" => 86_400_000_000_000,
        "s" => 1_000_000_000,
        "ms" => 1_000_000,
        "us" => 1_000,
        "ns" => 1,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn gps_times_are_utc_by_the_leap_seconds_of_their_day() {
        let gps = |seconds: i64| i128::from(GPS_EPOCH + seconds) * NANOS;
        // 2007-11-03T14:00:00Z is second 50400 + 14 of the Saturday of week 1451.
        let utc = LeapSeconds::Historical.utc(gps(1451 * 604_800 + 6 * 86_400 + 50_414));
        assert_eq!(utc, Some(1_194_098_400 * NANOS));
        assert_eq!(LeapSeconds::Historical.utc(gps(0)), Some(i128::from(GPS_EPOCH) * NANOS));
        assert_eq!(LeapSeconds::Fixed(18).utc(18 * NANOS), Some(0));
    }

    #[test]
    fn seconds_in_floats_keep_what_floats_have() {
        assert_eq!(float_nanos(1_194_098_400.25, 1_000_000_000), Some(1_194_098_400_250_000_000));
        assert_eq!(float_nanos(-0.5, 1_000_000_000), Some(-500_000_000));
        assert_eq!(float_nanos(f64::NAN, 1), None);
        assert_eq!(float_nanos(f64::INFINITY, 1), None);
    }

    #[test]
    fn a_counter_that_wraps_goes_on() {
        assert_eq!(unwrap(5, 256, None), Some(5));
        assert_eq!(unwrap(3, 256, Some(250)), Some(259));
        assert_eq!(unwrap(250, 256, Some(259)), Some(250));
        assert_eq!(unwrap(256, 256, None), None);
    }

    proptest! {
        #[test]
        fn steps_below_half_a_turn_are_followed(
            start in 0i128..1000, steps in proptest::collection::vec(-120i128..120, 0..40))
        {
            let mut truth = start + 10_000;
            let mut followed = Some(truth);
            for step in steps {
                truth += step;
                followed = unwrap(truth.rem_euclid(256), 256, followed);
                prop_assert_eq!(followed, Some(truth));
            }
        }

        #[test]
        fn no_time_is_wrong_by_overflow(
            value: f64, unit in prop_oneof![Just(1i64), Just(604_800_000_000_000)])
        {
            if let Some(nanos) = float_nanos(value, unit) {
                let about = value * unit as f64;
                prop_assert!((nanos as f64 - about).abs() <= about.abs() * 1e-9 + 1.0);
            }
        }
    }
}
