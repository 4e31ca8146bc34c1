//! Stage `limit`: passes the first events.

use serde::Deserialize;
use sluice_model::schemars::JsonSchema;
use sluice_model::{Batch, Error, Fold, OptionsError, RowsEffect, Stage, StageContext};

/// Options of `limit`. At least one is needed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_model::schemars")]
pub(crate) struct LimitOptions {
    /// How many events pass. Reading stops after them.
    pub(crate) events: Option<u64>,
    /// How many events of each channel pass.
    pub(crate) per_channel: Option<u64>,
}

#[derive(Debug)]
struct Limit {
    left: u64,
    per_channel: u64,
    /// Events passed, by channel.
    passed: Vec<u64>,
}

impl TryFrom<LimitOptions> for Stage {
    type Error = OptionsError;

    fn try_from(options: LimitOptions) -> Result<Self, OptionsError> {
        let LimitOptions { events, per_channel } = options;
        if events.is_none() && per_channel.is_none() {
            let message = "`events` or `per_channel` is needed";
            return Err(OptionsError { path: Vec::new(), message: message.to_owned() });
        }
        let (left, per_channel) = (events.unwrap_or(u64::MAX), per_channel.unwrap_or(u64::MAX));
        Ok(Self::Fold(Box::new(Limit { left, per_channel, passed: Vec::new() })))
    }
}

sluice_model::register! {
    stage "limit": LimitOptions,
    about: "passes the first events, of all or of each channel",
    sample: include_str!("../samples/limit.toml"),
}

impl Limit {
    fn lets_pass(&mut self, channel: u32) -> bool {
        let passed = &mut self.passed[channel as usize];
        if self.left == 0 || *passed >= self.per_channel {
            return false;
        }
        *passed += 1;
        self.left -= 1;
        true
    }
}

impl Fold for Limit {
    fn push(&mut self, batch: Batch, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        self.passed.resize(context.channels.len(), 0);
        let channels = batch.channels();
        let kept = crate::keep(&batch, context, |row| self.lets_pass(channels[row]));
        Ok(crate::unless_empty(kept))
    }

    fn is_done(&self) -> bool {
        self.left == 0
    }

    fn rows_after(&self) -> RowsEffect {
        RowsEffect::Same
    }

    fn delays_events(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{StageRunner, times};
    use serde_json::{Value, json};

    fn passing(options: Value) -> Vec<i64> {
        let mut run = StageRunner::new("limit", options);
        let batches = [
            run.batch(&[("A", 0), ("A", 1), ("B", 2)]),
            run.batch(&[("A", 3), ("B", 4), ("C", 5)]),
        ];
        let out = run.all(batches).unwrap();
        assert_eq!(out.len() as u64 + run.filtered, 6);
        times(&out)
    }

    #[test]
    fn the_first_events_pass() {
        assert_eq!(passing(json!({ "events": 4 })), [0, 1, 2, 3]);
        assert_eq!(passing(json!({ "events": 0 })).len(), 0);
    }

    #[test]
    fn the_first_events_of_each_channel_pass() {
        assert_eq!(passing(json!({ "per_channel": 1 })), [0, 2, 5]);
        assert_eq!(passing(json!({ "events": 2, "per_channel": 1 })), [0, 2]);
    }

    #[test]
    fn it_is_done_when_all_have_passed() {
        let mut run = StageRunner::new("limit", json!({ "events": 2 }));
        let batch = run.batch(&[("A", 0)]);
        run.all([batch.clone()]).unwrap();
        assert!(!run.is_done());
        run.all([batch]).unwrap();
        assert!(run.is_done());
    }

    #[test]
    fn a_limit_without_a_number_is_refused() {
        assert!(StageRunner::refusal("limit", json!({})).message.contains("is needed"));
    }
}
