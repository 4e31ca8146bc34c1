//! Times as users write them: points in time and durations. All arithmetic is checked.

use std::borrow::Cow;
use std::time::Duration;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

const NANOS: i64 = 1_000_000_000;

/// A point in time, as written by a user.
///
/// | written | means |
/// |---|---|
/// | `2007-11-03T14:00:00Z` (RFC 3339; a date means midnight UTC) | that time |
/// | `1194098400`, `1194098400.25` | seconds since 1970; by size also ms, us or ns |
/// | `1194098400s`, `…ms`, `…us`, `…ns` | the same with a unit |
/// | `+12.5`, `+12.5s`, `+1m30s` | after the first event |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimePoint {
    /// Nanoseconds since the Unix epoch (or since the start, for relative clocks).
    At(i64),
    /// Nanoseconds after the first event.
    After(i64),
}

impl TimePoint {
    /// Parses a time. `Err` says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if let Some(after) = text.strip_prefix('+') {
            return match TimeLength::parse(after)? {
                TimeLength(nanos @ 0..) => Ok(Self::After(nanos)),
                TimeLength(_) => Err(not_a_time(text)),
            };
        }
        if let Some(nanos) = number(text) {
            return nanos.map(Self::At);
        }
        let whole_nanos = without_finer_digits(text);
        let Some(moment) = whole_nanos.parse().ok().or_else(|| midnight(text)) else {
            return Err(match format!("{whole_nanos}Z").parse::<Timestamp>() {
                // It may be a local time, and what is left of one with a zone.
                Ok(moment) => format!("`{text}` has no time zone: write {moment} for UTC"),
                Err(_) => not_a_time(text),
            });
        };
        i64::try_from(moment.as_nanosecond()).map(Self::At).map_err(|_| out_of_range(text))
    }

    /// Like [`parse`](Self::parse), but `Err` for numbers that most likely lack a `+`: those within
    /// a year of 1970, with or without a unit. Times relative to the start of a recording can be
    /// written as a date (`1970-01-01T00:00:02Z`) or in nanoseconds (`2000000000ns`); 0 is valid.
    pub fn parse_chosen(text: &str) -> Result<Self, String> {
        Self::chosen(text, "")
    }

    /// [`parse_chosen`](Self::parse_chosen), with `quote` around what `Err` says to write.
    fn chosen(text: &str, quote: &str) -> Result<Self, String> {
        let (text, when) = (text.trim(), Self::parse(text)?);
        let Self::At(nanos) = when else { return Ok(when) };
        if !lacks_plus(text, nanos) {
            return Ok(when);
        }
        let length = text.trim_start_matches('-');
        Err(format!(
            "`{text}` is {}: write `{quote}+{length}{quote}` for a time after the first event, or \
             the date if a clock starts at 0",
            format(nanos)
        ))
    }

    /// The absolute time, given the time of the first event; saturating.
    pub fn resolve(self, origin: i64) -> i64 {
        match self {
            Self::At(nanos) => nanos,
            Self::After(nanos) => origin.saturating_add(nanos),
        }
    }

    /// Whether it is relative to the first event.
    pub fn is_relative(self) -> bool {
        matches!(self, Self::After(_))
    }
}

/// Numbers within this many nanoseconds of 1970 are durations whose `+` is missing.
const FORGOTTEN_PLUS: u64 = 365 * 86_400 * NANOS.unsigned_abs();

/// Whether the text of this time is a number that most likely lacks a `+`.
fn lacks_plus(text: &str, nanos: i64) -> bool {
    let is_exact = text.ends_with("ns") || nanos == 0;
    !is_exact && nanos.unsigned_abs() < FORGOTTEN_PLUS && number(text).is_some()
}

/// A point in time that cannot be one after the first event, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbsoluteTime(pub i64);

impl AbsoluteTime {
    fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        match TimePoint::parse(text) {
            Ok(TimePoint::At(nanos)) if lacks_plus(text, nanos) => {
                let time = format(nanos);
                Err(format!("`{text}` is {time}: write it like that if it is right"))
            }
            Ok(TimePoint::At(nanos)) => Ok(Self(nanos)),
            Err(why) if why != not_a_time(text) => Err(why),
            _ => Err(format!(
                "`{text}` is not a point in time: write 2007-11-03T14:00:00Z, or seconds since 1970"
            )),
        }
    }
}

/// Cuts a fraction of seconds after nanoseconds, as [`scaled`] does.
fn without_finer_digits(text: &str) -> Cow<'_, str> {
    const NANO_DIGITS: usize = 9;
    let Some((before, fraction)) = text.split_once(['.', ',']) else { return text.into() };
    let len = fraction.bytes().take_while(u8::is_ascii_digit).count();
    let cut = (fraction.get(..len.min(NANO_DIGITS)), fraction.get(len..));
    let (Some(digits), Some(after)) = cut else { return text.into() };
    if len > NANO_DIGITS { format!("{before}.{digits}{after}").into() } else { text.into() }
}

/// Parses a date without a time of day: midnight UTC.
fn midnight(text: &str) -> Option<Timestamp> {
    // jiff would ignore a time of day.
    let is_plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    let date: Date = is_plain.then(|| text.parse().ok())??;
    Some(date.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

/// Parses a number with or without a unit as nanoseconds; `None` if it is not one.
fn number(text: &str) -> Option<Result<i64, String>> {
    let split = text.find(|c: char| !matches!(c, '0'..='9' | '.' | '-')).unwrap_or(text.len());
    let (digits, unit) = text.split_at_checked(split)?;
    let unit = match unit.trim() {
        "" => guess_unit(digits),
        unit => unit_nanos(unit)?,
    };
    scaled(digits, unit).map(|nanos| match nanos {
        Some(0) if is_not_zero(digits) => Err(too_short(text)),
        nanos => nanos.ok_or_else(|| out_of_range(text)),
    })
}

/// Whether a decimal number is not 0.
fn is_not_zero(digits: &str) -> bool {
    digits.contains(|c| matches!(c, '1'..='9'))
}

fn too_short(text: &str) -> String {
    format!("`{text}` is shorter than a nanosecond")
}

/// The unit of a bare number in nanoseconds: seconds up to the year 5138, then finer by its size.
fn guess_unit(digits: &str) -> i64 {
    let whole = digits.trim_start_matches('-').split('.').next().unwrap_or_default();
    match (digits.contains('.'), whole.len()) {
        (true, _) | (false, 0..=11) => NANOS,
        (false, 12..=14) => 1_000_000,
        (false, 15..=17) => 1_000,
        (false, _) => 1,
    }
}

fn unit_nanos(unit: &str) -> Option<i64> {
    Some(match unit {
        "s" | "sec" => NANOS,
        "ms" => 1_000_000,
        "us" | "µs" => 1_000,
        "ns" => 1,
        "m" | "min" => 60 * NANOS,
        "h" => 3600 * NANOS,
        "d" => 86_400 * NANOS,
        _ => return None,
    })
}

/// `digits` (a decimal number) times `unit`, without rounding through floats: `1.5` of 1000 is
/// 1500. The inner `None` means that the result is too large, the outer one that `digits` is not a
/// decimal number.
pub fn scaled(digits: &str, unit: i64) -> Option<Option<i64>> {
    let (sign, digits) = digits.strip_prefix('-').map_or((1, digits), |rest| (-1, rest));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let plain = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if whole.len() + fraction.len() == 0 || !plain(whole) || !plain(fraction) {
        return None;
    }
    let value = || -> Option<i64> {
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        let digits = fraction.get(..fraction.len().min(18)).unwrap_or_default();
        let part: i128 = if digits.is_empty() { 0 } else { digits.parse().ok()? };
        let below = part * i128::from(unit) / 10i128.pow(digits.len() as u32);
        i64::try_from(sign * (whole.checked_mul(i128::from(unit))?.checked_add(below)?)).ok()
    };
    Some(value())
}

fn not_a_time(text: &str) -> String {
    format!(
        "`{text}` is not a time: write 2007-11-03T14:00:00Z, seconds since 1970, or +SECONDS after \
         the first event"
    )
}

fn out_of_range(text: &str) -> String {
    format!("`{text}` is out of range (1677 to 2262)")
}

/// A duration: `1.5` (seconds), `200ms`, `1m30s`, `2h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeLength(pub i64);

impl TimeLength {
    /// Parses a duration. `Err` says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a duration: write 1.5, 200ms, 1m30s or 2h");
        let (sign, whole) = text.trim().strip_prefix('-').map_or((1, text.trim()), |r| (-1, r));
        if whole.is_empty() {
            return Err(wrong());
        }
        let (mut rest, mut total) = (whole, 0_i64);
        while !rest.is_empty() {
            let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
            let (digits, tail) = rest.split_at_checked(number).ok_or_else(wrong)?;
            let unit = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
            let (unit, tail) = tail.split_at_checked(unit).ok_or_else(wrong)?;
            let unit = match unit.trim() {
                // A number without a unit is seconds, but only on its own: `1s500` could be `1.5`.
                "" if digits.len() == whole.len() => NANOS,
                unit => unit_nanos(unit).ok_or_else(wrong)?,
            };
            let part = scaled(digits, unit).ok_or_else(wrong)?.ok_or_else(|| out_of_range(text))?;
            total = total.checked_add(part).ok_or_else(|| out_of_range(text))?;
            rest = tail;
        }
        if total == 0 && is_not_zero(whole) {
            return Err(too_short(text));
        }
        Ok(Self(sign * total))
    }

    /// As a [`Duration`]; zero if it is negative.
    pub fn duration(self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0).unwrap_or(0))
    }
}

/// A duration of 0 or more, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TimeSpan(pub u64);

impl TimeSpan {
    /// Parses a duration. `Err` says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let TimeLength(length) = TimeLength::parse(text)?;
        let span = u64::try_from(length).map(Self);
        span.map_err(|_| format!("expected a duration of 0 or more, found `{text}`"))
    }

    /// Parses a duration above 0. `Err` says what is wrong with it.
    pub fn parse_positive(text: &str) -> Result<Self, String> {
        let span = TimeLength::parse(text).map(|TimeLength(length)| u64::try_from(length))?;
        let span = span.ok().filter(|span| *span > 0).map(Self);
        span.ok_or_else(|| "expected a duration above 0".to_owned())
    }

    /// As a [`Duration`].
    pub fn duration(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// In nanoseconds, at most as many as there are between two times.
    pub fn nanos(self) -> i64 {
        i64::try_from(self.0).unwrap_or(i64::MAX)
    }
}

/// Formats `nanos` as an RFC 3339 time in UTC with nanoseconds, or as a plain number if it is out
/// of range.
pub fn format(nanos: i64) -> String {
    match Timestamp::from_nanosecond(i128::from(nanos)) {
        Ok(moment) => format!("{moment:.9}"),
        Err(_) => format!("{nanos}ns"),
    }
}

macro_rules! text_option {
    ($type:ident, $read:expr, $describe:literal, $write:expr) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let write: fn(&$type) -> String = $write;
                write(self).serialize(serializer)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                #[derive(Deserialize)]
                #[serde(untagged, expecting = $describe)]
                enum RawTime {
                    Whole(i64),
                    Number(f64),
                    Text(String),
                }
                // A number has no quotes yet, which a time with a plus needs.
                let (text, quote) = match RawTime::deserialize(deserializer)? {
                    RawTime::Whole(whole) => (whole.to_string(), "\""),
                    RawTime::Number(number) => (number.to_string(), "\""),
                    RawTime::Text(text) => (text, ""),
                };
                let read: fn(&str, &str) -> Result<$type, String> = $read;
                read(&text, quote).map_err(serde::de::Error::custom)
            }
        }

        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": ["string", "number"], "description": $describe })
            }
        }
    };
}

text_option!(
    TimePoint,
    TimePoint::chosen,
    "a time: RFC 3339, seconds since 1970, or +SECONDS after the first event",
    |when| match when {
        TimePoint::At(nanos) => format!("{nanos}ns"),
        TimePoint::After(nanos) => format!("+{nanos}ns"),
    }
);
text_option!(
    AbsoluteTime,
    |text, _| AbsoluteTime::parse(text),
    "a point in time: RFC 3339, or seconds since 1970",
    |time| format!("{}ns", time.0)
);
text_option!(
    TimeLength,
    |text, _| TimeLength::parse(text),
    "a duration such as 1.5 (seconds), 200ms or 1m30s",
    |length| format!("{}ns", length.0)
);
text_option!(
    TimeSpan,
    |text, _| TimeSpan::parse(text),
    "a duration such as 1.5 (seconds), 200ms or 1m30s",
    |span| format!("{}ns", span.0)
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_every_form() {
        let at = |text: &str| TimePoint::parse(text).unwrap();
        let moment = 1_194_098_400 * NANOS;
        for text in [
            "2007-11-03T14:00:00Z",
            "1194098400",
            "1194098400000",
            "1194098400000000",
            "1194098400000000000",
            "1194098400s",
            "2007-11-03T15:00:00+01:00",
            "2007-11-03 15:00:00+01:00",
            "1194098400.0",
        ] {
            assert_eq!(at(text), TimePoint::At(moment), "{text}");
        }
        assert_eq!(at("2007-11-03"), TimePoint::At(1_194_048_000 * NANOS));
        assert_eq!(at("1194098400.25"), TimePoint::At(moment + NANOS / 4));
        assert_eq!(at("-2.5"), TimePoint::At(-5 * NANOS / 2));
        assert_eq!(at("+1m30.5s"), TimePoint::After(90 * NANOS + NANOS / 2));
        assert_eq!(at("5"), TimePoint::At(5 * NANOS));
        // Finer digits are cut, in dates as in numbers.
        for text in [
            "1194098400.1234567899",
            "2007-11-03T14:00:00.1234567899Z",
            "2007-11-03 15:00:00.123456789012345678901234567890+01:00",
        ] {
            assert_eq!(at(text), TimePoint::At(moment + 123_456_789), "{text}");
        }
        let naive = TimePoint::parse("2007-11-03 14:00:00.1234567899").unwrap_err();
        assert!(naive.contains("write 2007-11-03T14:00:00.123456789Z for UTC"), "{naive}");
        for wrong in [
            "",
            "noon",
            "1e9",
            "--1",
            "+",
            "+-5s",
            "99999999999999999999",
            "1..2",
            "2007-11-03T14:00:00[Europe/Berlin]",
            "2007-11-03 14:00:00 UTC",
            "2007-11-03T14:00:00-1",
            "2007-11-03 14:00:00 15:00:00",
        ] {
            assert!(TimePoint::parse(wrong).is_err(), "{wrong}");
        }
        for naive in ["2007-11-03 14:00:00", "2007-11-03T14:00:00.000", "2007-11-03T14:00"] {
            let message = TimePoint::parse(naive).unwrap_err();
            assert!(message.contains("write 2007-11-03T14:00:00Z for UTC"), "{message}");
        }
    }

    #[test]
    fn offsets_from_utc_of_every_sign_and_form_are_read() {
        let cases = [
            ("Z", 0),
            ("z", 0),
            ("+00:00", 0),
            ("-00:00", 0),
            ("+0000", 0),
            ("-00", 0),
            ("+04:00", -14_400),
            ("-04:00", 14_400),
            ("+0530", -19_800),
            ("-0330", 12_600),
            ("+04", -14_400),
            ("-04", 14_400),
        ];
        for time in ["2007-11-03T10:00:00", "2007-11-03 10:00:00.000", "2007-11-03T10:00"] {
            for (offset, seconds) in cases {
                let text = format!("{time}{offset}");
                let expected = TimePoint::At((1_194_084_000 + seconds) * NANOS);
                assert_eq!(TimePoint::parse_chosen(&text), Ok(expected), "{text}");
            }
            for cut in ["-", "-0", "-04:", "-04:0", "-040", "+", "+0", "+05:", "+05:3", "-26:00"] {
                let text = format!("{time}{cut}");
                let message = TimePoint::parse_chosen(&text).unwrap_err();
                assert!(message.contains("is not a time"), "{message}");
            }
        }
        for wrong in ["2007-11-03-04:00", "2007-11-03Z", "2007-11-03-04", "9999-12-31T23:00:00-04"]
        {
            let message = TimePoint::parse(wrong).unwrap_err();
            assert!(message.contains("is not a time"), "{message}");
        }
    }

    #[test]
    fn a_missing_plus_is_an_error_and_never_means_1970() {
        let refused = |text: &str| TimePoint::parse_chosen(text).unwrap_err();
        for text in ["2", "2s", "1m", "2.5", "500ms", "36h", "100000", " 2s "] {
            let hint = format!("write `+{}`", text.trim());
            assert!(refused(text).contains(&hint), "{}", refused(text));
        }
        assert!(refused("-2").contains("write `+2`"), "{}", refused("-2"));
        let at = |text: &str| TimePoint::parse_chosen(text).unwrap();
        assert_eq!(at("2000000000ns"), TimePoint::At(2 * NANOS));
        assert_eq!(at("1970-01-01T00:00:02Z"), TimePoint::At(2 * NANOS));
        assert_eq!((at("0"), at("+2s")), (TimePoint::At(0), TimePoint::After(2 * NANOS)));
        assert_eq!(at("1194098400"), TimePoint::At(1_194_098_400 * NANOS));
        let option = |json: &str| serde_json::from_str::<TimePoint>(json);
        assert!(option("\"2s\"").is_err() && option("1194098400").is_ok());
        // TOML has numbers with a plus, which is lost.
        let message = option("2").unwrap_err().to_string();
        assert!(message.contains("write `\"+2\"` for a time"), "{message}");
    }

    #[test]
    fn a_point_in_time_is_not_one_after_the_first_event() {
        let option = |json: &str| serde_json::from_str::<AbsoluteTime>(json);
        let at = |json: &str| option(json).unwrap();
        assert_eq!(at("\"1970-01-01T00:00:05Z\""), AbsoluteTime(5 * NANOS));
        assert_eq!((at("1194098400"), at("0")), (AbsoluteTime(1_194_098_400 * NANOS), at("\"0\"")));
        for wrong in ["5", "5.0", "\"5\"", "\"+5\"", "\"five\"", "\"2007-11-03T14:00:00\""] {
            let message = option(wrong).unwrap_err().to_string();
            assert!(!message.contains("first event"), "{message}");
            assert!(message.contains("write "), "{message}");
        }
        let message = option("5").unwrap_err().to_string();
        assert!(message.contains("is 1970-01-01T00:00:05.000000000Z: write it"), "{message}");
    }

    #[test]
    fn lengths_are_read_with_their_units() {
        let length = |text: &str| TimeLength::parse(text).unwrap().0;
        assert_eq!(
            (length("1.5"), length("200ms"), length("-1m")),
            (NANOS * 3 / 2, NANOS / 5, -60 * NANOS)
        );
        assert_eq!((length("1 s 500 ms"), length("0.0s"), length("1.5ns")), (NANOS * 3 / 2, 0, 1));
        for wrong in ["", "1x", "s", "9999999999h", "1.2.3s", "1s500", "1s 500", "1h30"] {
            assert!(TimeLength::parse(wrong).is_err(), "{wrong}");
        }
        for vanishing in ["0.5ns", "-0.5ns", "0.0000000001"] {
            let message = TimeLength::parse(vanishing).unwrap_err();
            assert!(message.ends_with("is shorter than a nanosecond"), "{message}");
            assert_eq!(TimePoint::parse(vanishing), Err(message));
        }
        assert!(serde_json::from_str::<TimeLength>("1e-10").is_err());
    }

    #[test]
    fn spans_are_durations_that_are_not_negative() {
        let span = |text: &str| serde_json::from_value::<TimeSpan>(text.into());
        assert_eq!(span("1m30s").unwrap().duration(), Duration::from_secs(90));
        assert_eq!((span("0").unwrap().nanos(), TimeSpan(u64::MAX).nanos()), (0, i64::MAX));
        let message = span("-5s").unwrap_err().to_string();
        assert!(message.contains("a duration of 0 or more, found `-5s`"), "{message}");
        assert_eq!(TimeSpan::parse_positive("2"), Ok(TimeSpan(2_000_000_000)));
        for wrong in ["0", "-1"] {
            assert_eq!(TimeSpan::parse_positive(wrong).unwrap_err(), "expected a duration above 0");
        }
    }

    #[test]
    fn every_time_can_be_printed() {
        assert_eq!(format(1_194_098_400_123_456_789), "2007-11-03T14:00:00.123456789Z");
        assert!(format(i64::MIN).starts_with("1677"));
    }
}
