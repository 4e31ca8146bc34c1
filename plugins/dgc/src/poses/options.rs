//! Option types of the stages that look up values by time. Looks nothing up.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sluice_model::time::TimeSpan;

/// Maximum age of a value: a duration, or `none` for no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MaxAge(pub Option<TimeSpan>);

impl MaxAge {
    /// A limit in seconds.
    pub(crate) const fn seconds(seconds: u64) -> Self {
        Self(Some(TimeSpan(seconds * 1_000_000_000)))
    }

    /// Whether `age`, in nanoseconds, is within the limit.
    pub(crate) fn allows(self, age: u64) -> bool {
        self.0.is_none_or(|most| age <= most.0)
    }
}

impl<'de> Deserialize<'de> for MaxAge {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = serde_json::Value::deserialize(deserializer)?;
        if value == "none" {
            return Ok(Self(None));
        }
        let age: TimeSpan = serde_json::from_value(value).map_err(serde::de::Error::custom)?;
        Ok(Self(Some(age)))
    }
}

impl Serialize for MaxAge {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Some(age) => age.serialize(serializer),
            None => "none".serialize(serializer),
        }
    }
}

impl JsonSchema for MaxAge {
    fn schema_name() -> Cow<'static, str> {
        "MaxAge".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "number"],
            "description": "a duration such as 1.5 (seconds) or 200ms, or `none` for no limit" })
    }
}

/// What happens to events that lack what the stage needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum MissingPolicy {
    /// They are dropped and counted.
    #[default]
    Drop,
    /// They end the run.
    Stop,
}

/// Formats a duration in its largest unit.
pub(crate) fn format_duration(nanos: i64) -> String {
    let units = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)];
    let fits = |(_, unit): &(&str, i64)| nanos != 0 && nanos % unit == 0;
    match units.into_iter().find(fits) {
        Some((name, unit)) => format!("{}{name}", nanos / unit),
        None => format!("{nanos}ns"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_age_is_a_duration_or_none() {
        let age = |value| serde_json::from_value::<MaxAge>(value);
        assert_eq!(age(json!("none")).unwrap(), MaxAge(None));
        assert_eq!(age(json!("1500ms")).unwrap(), MaxAge(Some(TimeSpan(1_500_000_000))));
        assert_eq!(age(json!(2)).unwrap(), MaxAge::seconds(2));
        assert!(age(json!("old")).is_err());
        assert!(MaxAge(None).allows(u64::MAX) && !MaxAge::seconds(1).allows(1_000_000_001));
    }

    #[test]
    fn durations_are_formatted_in_their_largest_unit() {
        assert_eq!([1_500_000_000, 2_000_000_000, 5].map(format_duration), ["1500ms", "2s", "5ns"]);
    }
}
