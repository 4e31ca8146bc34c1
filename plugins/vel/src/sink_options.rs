//! Options of the sink `vel` with a syntax of their own.

use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Most seconds in an index.
pub(crate) const MAX_SECONDS: u32 = 10_000_000;

/// The number of seconds in an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum IndexLen {
    #[default]
    Exact,
    Seconds(u32),
}

impl Serialize for IndexLen {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Exact => "exact".serialize(serializer),
            Self::Seconds(seconds) => seconds.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for IndexLen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(IndexLenVisitor)
    }
}

/// Parses an [`IndexLen`].
struct IndexLenVisitor;

impl Visitor<'_> for IndexLenVisitor {
    type Value = IndexLen;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`exact`, `none`, or a number of seconds up to {MAX_SECONDS}")
    }

    fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<IndexLen, E> {
        match word {
            "exact" => Ok(IndexLen::Exact),
            "none" => Ok(IndexLen::Seconds(0)),
            _ => Err(E::invalid_value(Unexpected::Str(word), &self)),
        }
    }

    fn visit_u64<E: serde::de::Error>(self, seconds: u64) -> Result<IndexLen, E> {
        let fitting = u32::try_from(seconds).ok().filter(|seconds| *seconds <= MAX_SECONDS);
        let unfit = || E::invalid_value(Unexpected::Unsigned(seconds), &self);
        fitting.map(IndexLen::Seconds).ok_or_else(unfit)
    }

    fn visit_i64<E: serde::de::Error>(self, seconds: i64) -> Result<IndexLen, E> {
        match u64::try_from(seconds) {
            Ok(seconds) => self.visit_u64(seconds),
            Err(_) => Err(E::invalid_value(Unexpected::Signed(seconds), &self)),
        }
    }
}

impl JsonSchema for IndexLen {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Index".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [
            { "type": "string", "enum": ["exact", "none"] },
            { "type": "integer", "minimum": 0, "maximum": MAX_SECONDS },
        ] })
    }
}
