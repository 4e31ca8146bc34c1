//! Converts times to adjusted standard GPS time, as used in LAS files.

/// Start of GPS time, 1980-01-06, in seconds since 1970.
const EPOCH: i64 = 315_964_800;
/// Offset of adjusted GPS time, which keeps present-day values small.
const ADJUSTMENT: i64 = 1_000_000_000;
const NANOS: i64 = 1_000_000_000;

/// Seconds since 1970 from which GPS time is ahead of UTC by one more leap second.
const LEAPS: [i64; 18] = [
    362_793_600,   // 1981-07-01
    394_329_600,   // 1982-07-01
    425_865_600,   // 1983-07-01
    489_024_000,   // 1985-07-01
    567_993_600,   // 1988-01-01
    631_152_000,   // 1990-01-01
    662_688_000,   // 1991-01-01
    709_948_800,   // 1992-07-01
    741_484_800,   // 1993-07-01
    773_020_800,   // 1994-07-01
    820_454_400,   // 1996-01-01
    867_715_200,   // 1997-07-01
    915_148_800,   // 1999-01-01
    1_136_073_600, // 2006-01-01
    1_230_768_000, // 2009-01-01
    1_341_100_800, // 2012-07-01
    1_435_708_800, // 2015-07-01
    1_483_228_800, // 2017-01-01, the last one so far
];

/// Adjusted standard GPS time in seconds, for UTC nanoseconds since 1970.
pub(crate) fn adjusted(nanos: i64) -> f64 {
    let (seconds, fraction) = (nanos.div_euclid(NANOS), nanos.rem_euclid(NANOS));
    let leaps = LEAPS.partition_point(|leap| *leap <= seconds) as i64;
    // Whole seconds are exact, so only the sum is rounded.
    (seconds - EPOCH + leaps - ADJUSTMENT) as f64 + fraction as f64 / NANOS as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_model::time::format;

    #[test]
    fn leap_seconds_start_with_months() {
        for leap in LEAPS {
            let text = format(leap * NANOS);
            assert!(
                text.contains("-01-01T00:00:00.0") || text.contains("-07-01T00:00:00.0"),
                "{text}"
            );
            let step = adjusted(leap * NANOS) - adjusted((leap - 1) * NANOS);
            assert_eq!(step, 2.0, "{text}");
        }
        assert!(LEAPS.is_sorted());
    }

    #[test]
    fn in_november_2007_gps_was_fourteen_seconds_ahead() {
        // 2007-11-03T14:00:00Z
        assert_eq!(adjusted(1_194_098_400 * NANOS), f64::from(1_194_098_400 - 1_315_964_800 + 14));
        assert_eq!(adjusted(315_964_800 * NANOS), -1e9);
    }

    #[test]
    fn fractions_survive_to_a_few_nanoseconds_and_no_time_is_out_of_range() {
        let exact = f64::from(1_194_098_400 - 1_315_964_800 + 14) + 0.123_456_789;
        assert!((adjusted(1_194_098_400_123_456_789) - exact).abs() < 2e-8);
        assert!(adjusted(i64::MIN) < -1e9 && adjusted(i64::MAX) > 1e9);
    }
}
