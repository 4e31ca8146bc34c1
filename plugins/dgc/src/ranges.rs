//! Validates the options `min_range` and `max_range`, the same for all sensors.

/// The minimum and maximum range in metres. `nearest` is the lower limit of the minimum. `Err` has
/// the option at fault and the reason.
pub(crate) fn range_limits(
    min_range: f64,
    max_range: f64,
    nearest: f64,
) -> Result<[f64; 2], (&'static str, String)> {
    if min_range.is_nan() || min_range < 0.0 {
        return Err(("min_range", format!("expected metres, 0 or more, found {min_range}")));
    }
    let least = min_range.max(nearest);
    if max_range.is_nan() || max_range <= least {
        let why = if min_range < nearest {
            format!("{least}, the minimum range of this stage")
        } else {
            format!("`min_range`, {least}")
        };
        return Err(("max_range", format!("expected metres above {why}, found {max_range}")));
    }
    Ok([least, max_range])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_limits_are_refused() {
        let wrong = |min, max, nearest| range_limits(min, max, nearest).err().map(|(key, _)| key);
        assert_eq!(range_limits(0.0, 79.0, 0.01), Ok([0.01, 79.0]));
        assert_eq!(range_limits(2.0, f64::INFINITY, 0.01), Ok([2.0, f64::INFINITY]));
        assert_eq!(wrong(0.0, 0.01, 0.01), Some("max_range"));
        assert_eq!(wrong(5.0, 5.0, 0.0), Some("max_range"));
        assert_eq!(wrong(0.0, f64::NAN, 0.0), Some("max_range"));
        assert_eq!(wrong(-0.1, 1.0, 0.0), Some("min_range"));
        assert_eq!(wrong(f64::NAN, 1.0, 0.0), Some("min_range"));
    }
}
