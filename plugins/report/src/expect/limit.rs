//! Limits: durations, counts, sizes and shares.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};
use sluice_model::options::ByteSize;
use sluice_model::schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

/// A share from 0 to 1, written as a number or in percent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Share(pub(crate) f64);

impl Share {
    pub(super) fn from_number(number: f64) -> Result<Self, String> {
        let is_share = (0.0..=1.0).contains(&number);
        is_share.then_some(Self(number)).ok_or_else(|| "expected a share from 0 to 1".to_owned())
    }

    /// A share in percent.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let percent = text.trim().strip_suffix('%');
        let share = percent.and_then(|percent| percent.trim().parse::<f64>().ok());
        let share = share.and_then(|percent| Self::from_number(percent / 100.0).ok());
        share.ok_or_else(|| format!("`{text}` is not a share: write 0.1%"))
    }
}

struct ShareVisitor;

impl Visitor<'_> for ShareVisitor {
    type Value = Share;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a share, such as 0.05 or \"5%\"")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Share, E> {
        self.visit_f64(number as f64)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Share, E> {
        self.visit_f64(number as f64)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Share, E> {
        Share::from_number(number).map_err(E::custom)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Share, E> {
        Share::parse(text).map_err(E::custom)
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ShareVisitor)
    }
}

impl JsonSchema for Share {
    fn schema_name() -> Cow<'static, str> {
        "Share".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["number", "string"],
            "description": "a share from 0 to 1, or in percent such as \"5%\""
        })
    }
}

/// At most so many, or at most such a share of all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// A number of events, values or bytes.
    Count(u64),
    /// A share from 0 to 1.
    Share(f64),
}

impl Limit {
    /// Whether `count` of `all` is too much.
    pub(crate) fn is_exceeded(self, count: u64, all: u64) -> bool {
        match self {
            Self::Count(most) => count > most,
            Self::Share(most) => count > 0 && count as f64 > most * all as f64,
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        let is_fraction = text.contains('.') && text.trim().parse::<f64>().is_ok();
        match text.trim().ends_with('%') {
            true => Share::parse(text).map(|Share(share)| Self::Share(share)),
            false if is_fraction => Err(format!(
                "expected a whole number, a size such as \"64KiB\", or a share such as \"{}%\"",
                text.trim()
            )),
            false => ByteSize::parse(text).map(|size| Self::Count(size.0)),
        }
    }
}

struct LimitVisitor;

impl Visitor<'_> for LimitVisitor {
    type Value = Limit;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a whole number, 0 or more, a size such as \"64KiB\", or a share such as \"1%\"",
        )
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Limit, E> {
        let count = u64::try_from(number);
        count.map(Limit::Count).map_err(|_| E::custom("expected a number of 0 or more"))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Limit, E> {
        Ok(Limit::Count(number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Limit, E> {
        Limit::parse(text).map_err(E::custom)
    }
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LimitVisitor)
    }
}

impl JsonSchema for Limit {
    fn schema_name() -> Cow<'static, str> {
        "Limit".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["integer", "string"],
            "description": "at most so many, a size such as \"64KiB\", or a share such as \"1%\""
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Limit, String> {
        let table: toml::Table = format!("x = {text}").parse().unwrap();
        Limit::deserialize(table["x"].clone()).map_err(|error| error.to_string())
    }

    #[test]
    fn limits_are_counts_sizes_or_shares() {
        assert_eq!(read("3"), Ok(Limit::Count(3)));
        assert_eq!(read("\"1KiB\""), Ok(Limit::Count(1024)));
        assert_eq!(read("\"1.5KiB\""), Ok(Limit::Count(1536)));
        assert_eq!(read("\"0.5%\""), Ok(Limit::Share(0.005)));
        assert!(Limit::Share(0.1).is_exceeded(11, 100) && !Limit::Share(0.1).is_exceeded(10, 100));
        assert!(!Limit::Share(0.0).is_exceeded(0, 0) && Limit::Share(0.0).is_exceeded(1, 100));
        for wrong in ["-1", "\"101%\"", "\"nan%\"", "1.5", "\"0.1\"", "true"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
