//! The times of rows at a fixed rate: exact to the nanosecond, without drift. Knows no events.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer};
use sluice_model::schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use sluice_model::time;

/// A rate of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    nanohertz: i64,
}

const HERTZ: i64 = 1_000_000_000;
/// Nanoseconds per second, times nanohertz per hertz.
const STEP: i128 = HERTZ as i128 * HERTZ as i128;
/// The highest rate: a row per microsecond.
const MAX_HERTZ: i64 = 1_000_000;

impl Rate {
    /// Parses `50Hz`, `29.97` or `0.5 Hz`. `Err` says what is wrong with it.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a rate: write 50Hz, 30 or 0.5Hz");
        let number = text.trim();
        let number = match number.len().checked_sub(2).and_then(|at| number.split_at_checked(at)) {
            Some((number, unit)) if unit.eq_ignore_ascii_case("hz") => number.trim_end(),
            _ => number,
        };
        let nanohertz = time::scaled(number, HERTZ).ok_or_else(wrong)?.unwrap_or(i64::MAX);
        if nanohertz <= 0 || nanohertz > MAX_HERTZ * HERTZ {
            return Err(format!("`{text}`: expected a rate above 0, and up to {MAX_HERTZ} Hz"));
        }
        Ok(Self { nanohertz })
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "a rate such as 30 or \"50Hz\"")]
        enum RawRate {
            Number(serde_json::Number),
            Text(String),
        }
        let text = match RawRate::deserialize(deserializer)? {
            RawRate::Number(number) => number.to_string(),
            RawRate::Text(text) => text,
        };
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for Rate {
    fn schema_name() -> Cow<'static, str> {
        "Rate".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["number", "string"],
            "description": "rows per second: 30, \"50Hz\" or \"0.5Hz\"" })
    }
}

/// The times of rows: `anchor` and every whole number of periods from it, rounded down to
/// nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    pub(crate) rate: Rate,
    pub(crate) anchor: i64,
}

impl Grid {
    /// The time of a step; `None` out of the range of times.
    pub(crate) fn time(self, step: i64) -> Option<i64> {
        let since = (i128::from(step) * STEP).div_euclid(i128::from(self.rate.nanohertz));
        i64::try_from(i128::from(self.anchor) + since).ok()
    }

    /// The first step at `time` or later.
    pub(crate) fn step_at(self, time: i64) -> i64 {
        let since = i128::from(time) - i128::from(self.anchor);
        let steps = since * i128::from(self.rate.nanohertz);
        let first = -(-steps).div_euclid(STEP);
        // At most a step per microsecond of 64 bits of nanoseconds.
        i64::try_from(first).unwrap_or(if first < 0 { i64::MIN } else { i64::MAX })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn grid(rate: &str, anchor: i64) -> Grid {
        Grid { rate: Rate::parse(rate).unwrap(), anchor }
    }

    #[test]
    fn rates_are_numbers_with_or_without_their_unit() {
        for text in ["50", "50Hz", " 50 hz ", "50.0"] {
            assert_eq!(Rate::parse(text).unwrap().nanohertz, 50 * HERTZ);
        }
        for wrong in ["", "Hz", "0", "-1", "1e3", "2MHz", "1000001", "fast"] {
            assert!(Rate::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn thirty_steps_of_a_third_of_a_hundredth_are_a_second() {
        let grid = grid("30", 0);
        assert_eq!(
            [0, 1, 2, 30].map(|step| grid.time(step).unwrap()),
            [0, 33_333_333, 66_666_666, 1_000_000_000]
        );
        assert_eq!([0, 1, 33_333_333, 33_333_334].map(|time| grid.step_at(time)), [0, 1, 1, 2]);
    }

    proptest! {
        #[test]
        fn the_first_step_at_a_time_is_not_before_it(
            time in any::<i64>(), anchor in any::<i64>(), nanohertz in 1..=MAX_HERTZ * HERTZ,
        ) {
            let grid = Grid { rate: Rate { nanohertz }, anchor };
            let step = grid.step_at(time);
            if let Some(at) = grid.time(step) {
                prop_assert!(at >= time);
            }
            if let Some(before) = grid.time(step - 1) {
                prop_assert!(before < time);
            }
        }
    }
}
