//! Stage `sample`: thins out channels by count or by rate. Does not average or interpolate.

use serde::Deserialize;
use sluice_model::schemars::JsonSchema;
use sluice_model::{
    Batch, Channel, Error, Fold, OptionsError, Patterns, PerChannel, RowsEffect, Stage,
    StageContext,
};

/// Options of `sample`. Exactly one of `every` and `max_hz` is needed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_model::schemars")]
pub(crate) struct SampleOptions {
    /// Pass the first event of each channel, then every n-th.
    pub(crate) every: Option<u64>,
    /// Pass at most this many events per second of each channel, by their timestamps.
    pub(crate) max_hz: Option<f64>,
    /// The channels to thin out; others pass whole. Default: all.
    #[serde(default)]
    pub(crate) channels: Patterns,
}

#[derive(Debug)]
struct Sampler {
    rule: SampleRule,
    channels: Patterns,
    thinned: PerChannel<bool>,
    states: Vec<SampleState>,
}

#[derive(Clone, Copy, Debug)]
enum SampleRule {
    Every(u64),
    /// The minimum distance in nanoseconds.
    MinInterval(i64),
}

/// The state of a channel.
#[derive(Clone, Copy, Debug, Default)]
struct SampleState {
    /// How many events to drop before the next one passes.
    skip: u64,
    /// The time of the last event that passed.
    last: Option<i64>,
}

impl TryFrom<SampleOptions> for Stage {
    type Error = OptionsError;

    fn try_from(options: SampleOptions) -> Result<Self, OptionsError> {
        let rule = rule(options.every, options.max_hz)?;
        let (channels, thinned) = (options.channels, PerChannel::default());
        Ok(Self::Fold(Box::new(Sampler { rule, channels, thinned, states: Vec::new() })))
    }
}

sluice_model::register! {
    stage "sample": SampleOptions,
    about: "thins out channels, to every n-th event or to a rate",
    sample: include_str!("../samples/sample.toml"),
}

fn rule(every: Option<u64>, max_hz: Option<f64>) -> Result<SampleRule, OptionsError> {
    match (every, max_hz) {
        (Some(0), None) => Err(OptionsError::at("every", "expected 1 (which keeps all) or more")),
        (Some(every), None) => Ok(SampleRule::Every(every)),
        // Truncated, not rounded, so that a channel with exactly this rate keeps all its events
        // although their times are truncated too. The cast saturates.
        (None, Some(hz)) if hz > 0.0 && hz.is_finite() => {
            Ok(SampleRule::MinInterval((1e9 / hz) as i64))
        }
        (None, Some(_)) => Err(OptionsError::at("max_hz", "expected a rate above 0")),
        _ => Err(OptionsError {
            path: Vec::new(),
            message: "either `every` or `max_hz` is needed, but not both".to_owned(),
        }),
    }
}

impl SampleState {
    fn lets_pass(&mut self, rule: SampleRule, time: i64) -> bool {
        match rule {
            SampleRule::Every(every) => self.counts_down(every),
            SampleRule::MinInterval(nanos) => self.is_apart(nanos, time),
        }
    }

    fn counts_down(&mut self, every: u64) -> bool {
        let passes = self.skip == 0;
        self.skip = if passes { every - 1 } else { self.skip - 1 };
        passes
    }

    fn is_apart(&mut self, nanos: i64, time: i64) -> bool {
        // An earlier time means that the clock was set back, or that another log starts.
        let passes = self.last.is_none_or(|last| time < last || time.saturating_sub(last) >= nanos);
        if passes {
            self.last = Some(time);
        }
        passes
    }
}

impl Fold for Sampler {
    fn push(&mut self, batch: Batch, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        let Self { rule, channels: patterns, thinned, states } = self;
        let decide = |c: &Channel| Ok(patterns.is_empty() || patterns.matches(c.name.text()));
        let thinned = thinned.table(context.channels, decide)?;
        states.resize(thinned.len(), SampleState::default());
        let (times, channels) = (batch.timestamps(), batch.channels());
        let passes = |row: usize| {
            let channel = channels[row] as usize;
            !thinned[channel] || states[channel].lets_pass(*rule, times[row])
        };
        Ok(crate::unless_empty(crate::keep(&batch, context, passes)))
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

    fn passing(options: Value, events: &[(&str, i64)]) -> Vec<i64> {
        let mut run = StageRunner::new("sample", options);
        let batch = run.batch(events);
        let out = run.all([batch]).unwrap();
        assert_eq!(out.len() + run.filtered as usize, events.len());
        times(&out)
    }

    #[test]
    fn every_counts_by_channel_and_begins_with_the_first() {
        let events = [("A", 0), ("B", 1), ("A", 2), ("A", 3), ("B", 4), ("A", 5)];
        assert_eq!(passing(json!({ "every": 2 }), &events), [0, 1, 3]);
        assert_eq!(passing(json!({ "every": 1 }), &events).len(), 6);
    }

    #[test]
    fn a_rate_is_kept_by_channel() {
        let ms = |n: i64| n * 1_000_000;
        let events = [
            ("A", ms(0)),
            ("B", ms(50)),
            ("A", ms(99)),
            ("A", ms(100)),
            ("B", ms(120)),
            ("A", ms(205)),
        ];
        let kept = [ms(0), ms(50), ms(100), ms(205)];
        assert_eq!(passing(json!({ "max_hz": 10 }), &events), kept);
    }

    #[test]
    fn a_channel_with_exactly_the_rate_keeps_all_events() {
        let third = |n: i64| ("A", n * 1_000_000_000 / 3);
        let events: Vec<_> = (0..30).map(third).collect();
        assert_eq!(passing(json!({ "max_hz": 3.0 }), &events).len(), 30);
    }

    #[test]
    fn a_time_step_back_starts_anew() {
        let events = [("A", 5_000_000_000), ("A", 1_000_000_000), ("A", 1_500_000_000)];
        assert_eq!(passing(json!({ "max_hz": 1 }), &events), [5_000_000_000, 1_000_000_000]);
    }

    #[test]
    fn times_at_the_ends_of_the_range_do_not_overflow() {
        let events = [("A", i64::MIN), ("A", i64::MAX)];
        assert_eq!(passing(json!({ "max_hz": 1e-9 }), &events).len(), 2);
    }

    #[test]
    fn channels_that_are_not_named_pass_whole() {
        let events = [("A", 0), ("B", 1), ("A", 2), ("B", 3)];
        assert_eq!(passing(json!({ "every": 9, "channels": "A" }), &events), [0, 1, 3]);
    }

    #[test]
    fn exactly_one_rule_is_needed() {
        for options in [json!({}), json!({ "every": 2, "max_hz": 1 })] {
            assert!(StageRunner::refusal("sample", options).message.contains("either"));
        }
        assert_eq!(StageRunner::refusal("sample", json!({ "every": 0 })).path, ["every"]);
        assert_eq!(StageRunner::refusal("sample", json!({ "max_hz": -1 })).path, ["max_hz"]);
    }
}
