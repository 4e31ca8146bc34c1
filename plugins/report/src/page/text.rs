//! Numbers, times and names as the page writes them.

use std::fmt::Write;

use maud::{Markup, html};
use sluice_io::escape::printable;

use crate::Figures;

/// A name from a log: nothing in it can hide or reorder what is around it.
pub(super) fn name(text: &str) -> Markup {
    html! { bdi { (printable(text)) } }
}

/// A number with at most so many decimals, without zeros at the end.
pub(super) fn decimals(value: f64, most: usize) -> String {
    let mut text = String::new();
    push_decimals(&mut text, value, most);
    text
}

/// Appends a number with at most so many decimals, without zeros at the end.
pub(super) fn push_decimals(text: &mut String, value: f64, most: usize) {
    if !value.is_finite() {
        text.push('0');
        return;
    }
    let Some(scaled) = scaled(value, most) else {
        text.push_str(&decimals_of_digits(value, most));
        return;
    };
    let (mut number, mut places) = (scaled.abs() as u64, most);
    while places > 0 && number % 10 == 0 {
        (number, places) = (number / 10, places - 1);
    }
    if scaled < 0.0 {
        text.push('-');
    }
    let unit = 10u64.pow(places as u32);
    // Writing to a string does not fail.
    let _written = match places {
        0 => write!(text, "{number}"),
        _ => write!(text, "{}.{:0places$}", number / unit, number % unit),
    };
}

/// Like [`decimals`], for any finite number: by all its decimal digits, which takes five times as
/// long.
fn decimals_of_digits(value: f64, most: usize) -> String {
    let text = format!("{value:.most$}");
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        text.as_str()
    };
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// The whole number nearest to a value times a power of ten; `None` if it is not exact, or if two
/// may be equally near.
fn scaled(value: f64, places: usize) -> Option<f64> {
    const EXACT: f64 = (1u64 << 52) as f64;
    let scaled = value * power_of_ten(places)?;
    // Halves are exact too, so that only a product that is one may have been rounded across it.
    let is_half = scaled.fract().abs() == 0.5;
    (scaled.abs() < EXACT && !is_half).then(|| scaled.round())
}

/// An exact power of ten.
fn power_of_ten(places: usize) -> Option<f64> {
    (places <= 15).then(|| 10u64.pow(places as u32) as f64)
}

/// A number to five significant digits; whole ones that are exact in all.
pub(super) fn significant(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return if value == 0.0 { "0".to_owned() } else { "–".to_owned() };
    }
    if value.fract() == 0.0 && value.abs() < 9e15 {
        return decimals(value, 0);
    }
    let magnitude = value.abs().log10().floor();
    if (-4.0..9.0).contains(&magnitude) {
        let most = (4.0 - magnitude).clamp(0.0, 8.0) as usize;
        return decimals(value, most);
    }
    let text = format!("{value:.4e}");
    match text.split_once('e') {
        Some((mantissa, exponent)) if mantissa.contains('.') => {
            format!("{}e{exponent}", mantissa.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text,
    }
}

/// A number rounded to a power of ten that is at most a 20,000th of `span`.
pub(super) fn rounded(value: f64, span: f64) -> f64 {
    let is_rounded = value.is_finite() && value != 0.0 && span.is_finite() && span > 0.0;
    let places = -(span.log10() - 4.3).floor();
    let digits = value.abs().log10().floor() + places;
    if !is_rounded || digits >= 17.0 {
        return value;
    }
    if digits < 0.0 {
        return 0.0;
    }
    // A whole number and a power of ten that are exact: their quotient is the number that a parser
    // makes of its decimal digits.
    if places >= 0.0
        && let Some(scaled) = scaled(value, places as usize)
        && let Some(power) = power_of_ten(places as usize)
    {
        return scaled / power;
    }
    rounded_by_digits(value, digits as usize)
}

/// A number rounded to so many decimal digits after its first.
fn rounded_by_digits(value: f64, digits: usize) -> f64 {
    format!("{value:.digits$e}").parse().ok().filter(|v: &f64| v.is_finite()).unwrap_or(value)
}

/// A part of a whole as a percentage; a part that is not zero never reads as nothing.
pub(super) fn percent(part: u64, whole: u64) -> String {
    let share = part as f64 * 100.0 / whole.max(1) as f64;
    match share {
        _ if part == 0 => "0 %".to_owned(),
        share if share < 0.1 => "< 0.1 %".to_owned(),
        share if share < 10.0 || share > 99.0 && share < 100.0 => format!("{share:.1} %"),
        share => format!("{share:.0} %"),
    }
}

/// The times of a log, as clocks and as offsets from the start of its axis.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    pub(super) start: i64,
    pub(super) end: i64,
    is_relative: bool,
}

impl Clock {
    pub(super) fn new(figures: &Figures) -> Self {
        let start = figures.axis_start.unwrap_or(0);
        let end = figures.axis_end.unwrap_or(start);
        Self { start, end, is_relative: figures.is_relative }
    }

    /// Nanoseconds from the start of the axis to its end.
    pub(super) fn duration(self) -> u64 {
        self.end.abs_diff(self.start)
    }

    /// Whether times are relative to the log's own zero.
    pub(super) fn is_relative(self) -> bool {
        self.is_relative
    }

    /// Seconds after the first event.
    pub(super) fn seconds(self, time: i64) -> f64 {
        (i128::from(time) - i128::from(self.start)) as f64 / 1e9
    }

    /// A time after the first event: `+12.345 s`, `+1:02:03.456`.
    pub(super) fn offset(self, time: i64) -> String {
        let sign = if time < self.start { '−' } else { '+' };
        let millis = time.abs_diff(self.start).saturating_add(500_000) / 1_000_000;
        let (seconds, millis) = (millis / 1000, millis % 1000);
        let (minutes, hours) = (seconds / 60 % 60, seconds / 3600);
        let rest = seconds % 60;
        match (hours, minutes) {
            (0, 0) => format!("{sign}{rest}.{millis:03} s"),
            (0, minutes) => format!("{sign}{minutes}:{rest:02}.{millis:03}"),
            (hours, minutes) => format!("{sign}{hours}:{minutes:02}:{rest:02}.{millis:03}"),
        }
    }

    /// A time by the log's clock: `2006-06-12 14:31:23.104` in UTC, or seconds if it is relative.
    pub(super) fn absolute(self, time: i64) -> String {
        if self.is_relative {
            return format!("{:.3} s", time as f64 / 1e9);
        }
        match jiff::Timestamp::from_nanosecond(i128::from(time)) {
            Ok(moment) => moment.strftime("%Y-%m-%d %H:%M:%S.%3f").to_string(),
            Err(_) => format!("{time} ns"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_have_few_decimals() {
        assert_eq!(decimals(1.500, 2), "1.5");
        assert_eq!(decimals(-0.001, 2), "0");
        assert_eq!(decimals(100.0, 0), "100");
        assert_eq!(decimals(f64::NAN, 2), "0");
        let texts =
            [0.0, 1.0, -12.345678, 123456.7, 1e-7, -1.5e12, 1e300, 1.5e9 + 0.5].map(significant);
        assert_eq!(
            texts,
            ["0", "1", "-12.346", "123457", "1e-7", "-1500000000000", "1e300", "1.5e9"]
        );
    }

    proptest! {
        #[test]
        fn short_ways_give_the_same_digits(
            value in prop_oneof![
                -1e4..1e4f64,
                (-20_000i32..20_000).prop_map(|n| f64::from(n) / 20.0),
                (-20_000i32..20_000).prop_map(|n| f64::from(n) * 0.05),
                proptest::num::f64::NORMAL,
            ],
            most in 0usize..10,
            span in 1e-6..1e9f64,
        ) {
            prop_assert_eq!(decimals(value, most), decimals_of_digits(value, most));
            let digits = value.abs().log10().floor() - (span.log10() - 4.3).floor();
            if value != 0.0 && (0.0..17.0).contains(&digits) {
                let expected = rounded_by_digits(value, digits as usize);
                prop_assert_eq!(rounded(value, span), expected, "{} of {}", value, span);
            }
        }
    }

    #[test]
    fn values_are_rounded_to_what_a_plot_can_show() {
        assert_eq!(rounded(1.234_567_89, 1.0), 1.23457);
        assert_eq!(rounded(123_456.789, 1e6), 123_460.0);
        assert_eq!(rounded(0.3, 1e4), 0.3);
        assert_eq!(rounded(0.03, 1e4), 0.0);
        assert_eq!(rounded(-0.000_001, 1.0).to_string(), "0");
        assert_eq!(rounded(7.0, 0.0), 7.0);
        assert_eq!(rounded(1e300, 1e301), 1e300);
        assert!(rounded(f64::MAX, f64::MAX).is_finite());
    }

    #[test]
    fn times_are_offsets_and_dates() {
        let figures = Figures { axis_start: Some(1_150_122_683_104_000_000), ..Figures::default() };
        let clock = Clock::new(&figures);
        assert_eq!(clock.offset(clock.start), "+0.000 s");
        assert_eq!(clock.offset(clock.start + 62_345_678_901), "+1:02.346");
        assert_eq!(clock.offset(clock.start - 3_600_000_000_000), "−1:00:00.000");
        assert_eq!(clock.absolute(clock.start), "2006-06-12 14:31:23.104");
        let relative = Clock { is_relative: true, ..clock };
        assert_eq!(relative.absolute(1_500_000_000), "1.500 s");
        for time in [i64::MIN, i64::MAX] {
            assert!(!clock.offset(time).is_empty() && !clock.absolute(time).is_empty());
        }
    }

    #[test]
    fn a_small_share_is_not_nothing() {
        let texts = [(0, 10), (1, 100_000), (1, 3), (999, 1000), (5, 5), (0, 0)];
        let texts = texts.map(|(part, whole)| percent(part, whole));
        assert_eq!(texts, ["0 %", "< 0.1 %", "33 %", "99.9 %", "100 %", "0 %"]);
    }
}
