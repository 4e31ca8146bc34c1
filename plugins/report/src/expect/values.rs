//! Values of rules: ranges, limits and durations, as a file writes them.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use sluice_model::schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use sluice_model::time::{TimeLength, TimeSpan};

use super::limit::{Limit, Share};

/// A value that can be written as a number, as text, or as a table.
trait ShortForm: Sized {
    /// Its table.
    type Table: DeserializeOwned + JsonSchema;

    /// What it is, for errors and schemas.
    const EXPECTED: &'static str;

    fn from_number(number: f64) -> Result<Self, String> {
        let _ = number;
        Err(format!("expected {}", Self::EXPECTED))
    }

    fn from_text(text: &str) -> Result<Self, String> {
        Err(format!("expected {}, found `{text}`", Self::EXPECTED))
    }

    fn from_table(table: Self::Table) -> Result<Self, String>;
}

struct ShortFormVisitor<T>(PhantomData<T>);

impl<'de, T: ShortForm> Visitor<'de> for ShortFormVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
        T::from_number(number as f64).map_err(E::custom)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
        T::from_number(number as f64).map_err(E::custom)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
        T::from_number(number).map_err(E::custom)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        T::from_text(text).map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        let table = T::Table::deserialize(MapAccessDeserializer::new(map))?;
        T::from_table(table).map_err(A::Error::custom)
    }
}

/// Implements `Deserialize` and `JsonSchema` by [`ShortForm`].
macro_rules! short_form {
    ($type:ident) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(ShortFormVisitor(PhantomData))
            }
        }

        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(generator: &mut SchemaGenerator) -> Schema {
                let table = generator.subschema_for::<<Self as ShortForm>::Table>();
                json_schema!({
                    "anyOf": [{ "type": ["number", "string"] }, table],
                    "description": <Self as ShortForm>::EXPECTED
                })
            }
        }
    };
}

/// A range of numbers of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountRange {
    /// The least number.
    pub min: Option<u64>,
    /// The greatest number.
    pub max: Option<u64>,
}

/// The table of a [`CountRange`].
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_model::schemars")]
struct CountTable {
    /// The least number.
    min: Option<u64>,
    /// The greatest number.
    max: Option<u64>,
}

impl ShortForm for CountRange {
    type Table = CountTable;

    const EXPECTED: &'static str = "a number of events, or a table with `min` and `max`";

    fn from_number(number: f64) -> Result<Self, String> {
        if number < 0.0 || number.fract() != 0.0 {
            return Err("expected a whole number, 0 or more".to_owned());
        }
        let exactly = Some(number as u64);
        Ok(Self { min: exactly, max: exactly })
    }

    fn from_table(CountTable { min, max }: CountTable) -> Result<Self, String> {
        check_from_zero(min, max)?;
        Ok(Self { min, max })
    }
}
short_form!(CountRange);

/// A range of rates in events per second, and the least number of events for which it is compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateRange {
    /// The least rate.
    pub min: Option<f64>,
    /// The greatest rate.
    pub max: Option<f64>,
    /// The least number of events from which a median says something.
    pub least_events: u64,
}

/// The default of [`RateRange::least_events`].
pub(crate) const LEAST_EVENTS: u64 = 10;

/// The default of `tolerance`.
const TOLERANCE: f64 = 0.1;

/// The table of a [`RateRange`].
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_model::schemars")]
struct RateTable {
    /// The least rate in events per second.
    min: Option<f64>,
    /// The greatest rate in events per second.
    max: Option<f64>,
    /// The rate in events per second, instead of `min` and `max`.
    hz: Option<f64>,
    /// By how much the rate may differ from `hz`, as a share of it; 0.1 by default.
    tolerance: Option<Share>,
    /// The least number of events from which on the rate is compared; 10 by default.
    least_events: Option<u64>,
}

impl RateRange {
    fn around(hz: f64, tolerance: f64, least_events: u64) -> Result<Self, String> {
        if !(hz > 0.0 && hz.is_finite()) {
            return Err("expected a rate above 0".to_owned());
        }
        if !(0.0..1.0).contains(&tolerance) {
            return Err("expected a tolerance below 1, such as 0.1 or \"10%\"".to_owned());
        }
        let (min, max) = (hz * (1.0 - tolerance), hz * (1.0 + tolerance));
        Ok(Self { min: Some(min), max: Some(max), least_events })
    }
}

impl ShortForm for RateRange {
    type Table = RateTable;

    const EXPECTED: &'static str = "a rate in events per second, or a table with `min` and `max`, \
                                    or with `hz` and `tolerance`";

    fn from_number(hz: f64) -> Result<Self, String> {
        Self::around(hz, TOLERANCE, LEAST_EVENTS)
    }

    fn from_table(table: RateTable) -> Result<Self, String> {
        let RateTable { min, max, hz, tolerance, least_events } = table;
        let least_events = least_events.unwrap_or(LEAST_EVENTS);
        match hz {
            Some(_) if min.is_some() || max.is_some() => {
                Err("expected either `hz` or `min` and `max`".to_owned())
            }
            Some(hz) => {
                let tolerance = tolerance.map_or(TOLERANCE, |Share(share)| share);
                Self::around(hz, tolerance, least_events)
            }
            None if tolerance.is_some() => Err("`tolerance` needs `hz`".to_owned()),
            None => {
                check_from_zero(min, max)?;
                Ok(Self { min, max, least_events })
            }
        }
    }
}
short_form!(RateRange);

/// A range of durations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurationRange {
    /// The shortest.
    pub min: Option<TimeSpan>,
    /// The longest.
    pub max: Option<TimeSpan>,
}

/// The table of a [`DurationRange`].
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_model::schemars")]
struct DurationTable {
    /// The shortest duration.
    min: Option<TimeSpan>,
    /// The longest duration.
    max: Option<TimeSpan>,
}

impl ShortForm for DurationRange {
    type Table = DurationTable;

    const EXPECTED: &'static str = "a table with `min` and `max`, such as { min = \"10m\" }";

    fn from_table(DurationTable { min, max }: DurationTable) -> Result<Self, String> {
        check_range(min, max)?;
        Ok(Self { min, max })
    }
}
short_form!(DurationRange);

/// How many intervals may be how much longer than usual.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DroppedShare {
    /// Intervals longer than this many times the median are gaps of lost events.
    pub over: f64,
    /// The greatest share of such intervals.
    pub share: f64,
}

/// The default of [`DroppedShare::over`].
const OVER: f64 = 1.5;

/// The table of [`DroppedShare`].
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_model::schemars")]
struct DroppedShareTable {
    /// Intervals longer than this many times the median count as dropped events; 1.5 by default.
    over: Option<f64>,
    /// The greatest share of such intervals.
    share: Share,
}

impl ShortForm for DroppedShare {
    type Table = DroppedShareTable;

    const EXPECTED: &'static str = "a share of intervals such as 0.05 or \"5%\", or a table with \
                                    `over` and `share`";

    fn from_number(share: f64) -> Result<Self, String> {
        Self::from_table(DroppedShareTable { over: None, share: Share::from_number(share)? })
    }

    fn from_text(text: &str) -> Result<Self, String> {
        Self::from_table(DroppedShareTable { over: None, share: Share::parse(text)? })
    }

    fn from_table(DroppedShareTable { over, share }: DroppedShareTable) -> Result<Self, String> {
        let over = over.unwrap_or(OVER);
        if !(over >= 1.0 && over.is_finite()) {
            return Err("expected `over` of 1 or more".to_owned());
        }
        Ok(Self { over, share: share.0 })
    }
}
short_form!(DroppedShare);

/// A range of latencies: the time at which events were received less that of their messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatencyRange {
    /// The least latency of any event in nanoseconds; may be negative.
    pub min: Option<i64>,
    /// The greatest of any event.
    pub max: Option<i64>,
    /// The greatest median.
    pub median: Option<i64>,
}

/// The table of a [`LatencyRange`].
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_model::schemars")]
struct LatencyTable {
    /// The least latency of any event; negative if clocks may differ.
    min: Option<TimeLength>,
    /// The greatest latency of any event.
    max: Option<TimeLength>,
    /// The greatest median latency.
    median: Option<TimeLength>,
}

impl ShortForm for LatencyRange {
    type Table = LatencyTable;

    const EXPECTED: &'static str = "a duration such as \"200ms\", or a table with `min`, `max` and \
                                    `median`";

    fn from_number(seconds: f64) -> Result<Self, String> {
        Self::from_text(&seconds.to_string())
    }

    fn from_text(text: &str) -> Result<Self, String> {
        let TimeLength(max) = TimeLength::parse(text)?;
        Ok(Self { min: None, max: Some(max), median: None })
    }

    fn from_table(LatencyTable { min, max, median }: LatencyTable) -> Result<Self, String> {
        match median {
            Some(_) if min.is_none() && max.is_none() => {}
            _ => check_range(min, max)?,
        }
        let nanos = |length: Option<TimeLength>| length.map(|length| length.0);
        Ok(Self { min: nanos(min), max: nanos(max), median: nanos(median) })
    }
}
short_form!(LatencyRange);

/// A range of the values of a field.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_model::schemars")]
pub struct FieldRange {
    /// The least value.
    pub min: Option<f64>,
    /// The greatest value.
    pub max: Option<f64>,
    /// How many values may be null; any number by default.
    pub nulls: Option<Limit>,
    /// How many values may be NaN or infinite; none by default.
    #[serde(default = "none")]
    pub nan: Limit,
}

fn none() -> Limit {
    Limit::Count(0)
}

impl FieldRange {
    /// `Err` if no value can be in it.
    pub(super) fn check(&self) -> Result<(), String> {
        match (self.min, self.max) {
            (None, None) => Ok(()),
            ends => check_range(ends.0, ends.1),
        }
    }
}

/// Whether a channel has to be there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MustExist {
    /// Without it, the expectation is not met.
    #[default]
    Yes,
    /// Without it, there is a note.
    Warn,
    /// It may be missing.
    No,
}

impl<'de> Deserialize<'de> for MustExist {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MustExistVisitor)
    }
}

struct MustExistVisitor;

impl Visitor<'_> for MustExistVisitor {
    type Value = MustExist;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("true, false or \"warn\"")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<MustExist, E> {
        Ok(if value { MustExist::Yes } else { MustExist::No })
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<MustExist, E> {
        match text {
            "warn" => Ok(MustExist::Warn),
            _ => Err(E::custom(format!("expected true, false or \"warn\", found `{text}`"))),
        }
    }
}

impl JsonSchema for MustExist {
    fn schema_name() -> Cow<'static, str> {
        "MustExist".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [{ "type": "boolean" }, { "const": "warn" }] })
    }
}

fn check_range<T: PartialOrd>(min: Option<T>, max: Option<T>) -> Result<(), String> {
    // Only NaN is in no order with itself.
    let is_nan = |end: &T| end.partial_cmp(end).is_none();
    if [&min, &max].into_iter().flatten().any(is_nan) {
        return Err("expected a number, found NaN".to_owned());
    }
    match (min, max) {
        (Some(min), Some(max)) if min > max => Err("`min` is greater than `max`".to_owned()),
        (None, None) => Err("expected `min` or `max`".to_owned()),
        _ => Ok(()),
    }
}

/// [`check_range`] for what is never negative.
fn check_from_zero<T: PartialOrd + Default>(min: Option<T>, max: Option<T>) -> Result<(), String> {
    match (&min, &max) {
        (Some(least), None) if *least <= T::default() => {
            Err("a `min` of 0 is always met: give another, or `max`".to_owned())
        }
        _ => check_range(min, max),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
        #[derive(Deserialize)]
        struct Line<T> {
            x: T,
        }
        let line: Result<Line<T>, _> = toml::from_str(&format!("x = {text}"));
        line.map(|line| line.x).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn ranges_have_a_short_form() {
        let counts = CountRange { min: Some(7), max: Some(7) };
        assert_eq!(read("7"), Ok(counts));
        let rate: RateRange = read("{ hz = 10, tolerance = 0.5 }").unwrap();
        assert_eq!((rate.min, rate.max, rate.least_events), (Some(5.0), Some(15.0), 10));
        for dropped in ["0.05", "\"5%\"", "{ share = \"5 %\" }", "{ share = 0.05 }"] {
            assert_eq!(read(dropped), Ok(DroppedShare { over: 1.5, share: 0.05 }), "{dropped}");
        }
        for half in ["{ hz = 10, tolerance = 0.5 }", "{ hz = 10, tolerance = \"50%\" }"] {
            assert_eq!(read(half), Ok(rate), "{half}");
        }
        let latency: LatencyRange = read("\"200ms\"").unwrap();
        assert_eq!((latency.min, latency.max), (None, Some(200_000_000)));
        assert_eq!(read("0.2"), Ok(latency));
        let warn: MustExist = read("\"warn\"").unwrap();
        assert_eq!(warn, MustExist::Warn);
    }

    #[test]
    fn impossible_values_are_refused() {
        for wrong in ["-1", "1.5", "{ min = 2, max = 1 }", "{}", "\"x\"", "{ least = 1 }"] {
            assert!(read::<CountRange>(wrong).is_err(), "{wrong}");
        }
        for wrong in [
            "0",
            "nan",
            "{ hz = 1, min = 2 }",
            "{ tolerance = 1 }",
            "{ hz = 1, tolerance = \"100%\" }",
            "{}",
            "{ hz = inf }",
            "{ min = nan }",
            "{ min = 1, max = nan }",
        ] {
            assert!(read::<RateRange>(wrong).is_err(), "{wrong}");
        }
        assert!(read::<FieldRange>("{ max = nan }").unwrap().check().is_err());
        for wrong in
            ["1.1", "nan", "\"101%\"", "\"5\"", "{ over = 0.5, share = 0 }", "{ over = 2 }"]
        {
            assert!(read::<DroppedShare>(wrong).is_err(), "{wrong}");
        }
        assert!(read::<TimeSpan>("\"-1s\"").is_err() && read::<DurationRange>("\"1s\"").is_err());
        assert!(read::<MustExist>("\"maybe\"").is_err());
    }
}
