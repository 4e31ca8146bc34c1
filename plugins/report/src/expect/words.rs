//! Durations, rates and numbers in words.

/// A duration: `3.2 s`, `200 ms`.
pub(crate) fn length(nanos: u64) -> String {
    let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs")];
    match units.into_iter().find(|(size, _)| nanos >= *size) {
        Some((size, unit)) => format!("{} {unit}", number(nanos as f64 / size as f64)),
        None if nanos == 0 => "0 s".to_owned(),
        None => format!("{nanos} ns"),
    }
}

/// A duration that may be negative.
pub(crate) fn signed_length(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    format!("{sign}{}", length(nanos.unsigned_abs()))
}

/// A number with six significant digits at most.
pub(crate) fn number(value: f64) -> String {
    const DIGITS: i32 = 6;
    if value == 0.0 || !value.is_finite() {
        return format!("{value}");
    }
    let magnitude = value.abs().log10().floor() as i32;
    if !(-5..15).contains(&magnitude) {
        return format!("{value:e}");
    }
    let decimals = usize::try_from(DIGITS - 1 - magnitude).unwrap_or(0);
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// A share in percent.
pub(crate) fn percent(share: f64) -> String {
    format!("{} %", number(share * 100.0))
}

/// `1 event`, `2 events`.
pub(crate) fn count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// What a range expects, such as `10 to 20 events`.
pub(crate) fn range<T>((min, max): (Option<T>, Option<T>), word: impl Fn(T) -> String) -> String {
    match (min.map(&word), max.map(&word)) {
        (Some(min), Some(max)) if min == max => min,
        (Some(min), Some(max)) => format!("{min} to {max}"),
        (Some(min), None) => format!("at least {min}"),
        (None, Some(max)) => format!("at most {max}"),
        (None, None) => "anything".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_as_many_digits_as_they_need() {
        assert_eq!((length(3_200_000_000), length(200_000_000)), ("3.2 s".into(), "200 ms".into()));
        assert_eq!(
            (length(0), length(17), length(1_500)),
            ("0 s".into(), "17 ns".into(), "1.5 µs".into())
        );
        assert_eq!(signed_length(-1_500_000), "-1.5 ms");
        assert_eq!(
            (number(9.98765432), number(1234567.0), number(0.0)),
            ("9.98765".into(), "1234567".into(), "0".into())
        );
        assert_eq!(
            (number(1e-9), number(f64::INFINITY), number(100.0)),
            ("1e-9".into(), "inf".into(), "100".into())
        );
        assert_eq!(percent(0.05), "5 %");
    }

    #[test]
    fn ranges_are_named_by_their_ends() {
        let words = |min, max| range((min, max), |n: u64| count(n, "event"));
        assert_eq!(words(Some(1), None), "at least 1 event");
        assert_eq!(words(None, Some(2)), "at most 2 events");
        assert_eq!(words(Some(2), Some(2)), "2 events");
        assert_eq!(words(Some(1), Some(2)), "1 event to 2 events");
    }
}
