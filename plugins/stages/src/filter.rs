//! Stage `filter`: passes events by channel, source, time and a condition on decoded fields.

use serde::{Deserialize, Serialize};
use sluice_model::options::SOURCES_FORMAT;
use sluice_model::time::TimePoint;
use sluice_model::{
    Batch, Channel, ChannelQuery, Error, FieldPath, Map, OptionsError, Patterns, PerChannel,
    RowsEffect, Stage, StageContext, plugin,
};
use sluice_model::{
    schemars::JsonSchema, schemars::Schema, schemars::SchemaGenerator, schemars::json_schema,
};

use crate::condition::Condition;
use crate::window::{ClipWindow, bound};

/// Options of `filter`. An event passes if it passes every option that is given.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(crate = "sluice_model::schemars")]
pub(crate) struct FilterOptions {
    /// The channels that pass. Default: all.
    pub(crate) channels: Patterns,
    /// Channels that do not pass, even if `channels` includes them.
    pub(crate) exclude: Patterns,
    /// The sources whose channels pass. Default: all.
    #[schemars(schema_with = "source_patterns")]
    pub(crate) source: Patterns,
    /// Events before this time do not pass. `none` is no limit, as without the option.
    #[serde(deserialize_with = "bound")]
    pub(crate) start: Option<TimePoint>,
    /// Events at or after this time do not pass. `none` is no limit.
    #[serde(deserialize_with = "bound")]
    pub(crate) end: Option<TimePoint>,
    /// A condition on decoded fields, such as `vel[0] > 3 and quality != 0`. Only events for which
    /// it holds pass.
    #[serde(rename = "where")]
    pub(crate) condition: Option<Condition>,
    /// What happens to events without a value that `where` needs.
    pub(crate) missing: MissingPolicy,
}

/// What happens to events whose condition cannot be evaluated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "sluice_model::schemars")]
pub(crate) enum MissingPolicy {
    /// They do not pass.
    #[default]
    Drop,
    /// They pass.
    Pass,
}

#[derive(Debug)]
struct Filter {
    options: FilterOptions,
    window: ClipWindow,
    passes: PerChannel<bool>,
}

impl TryFrom<FilterOptions> for Stage {
    type Error = OptionsError;

    fn try_from(options: FilterOptions) -> Result<Self, OptionsError> {
        if options.condition.is_none() && options.missing != MissingPolicy::default() {
            return Err(OptionsError::needs("missing", "where"));
        }
        let window = ClipWindow::new(["start", "end"], options.start, options.end)?;
        Ok(Self::Map(Box::new(Filter { options, window, passes: PerChannel::default() })))
    }
}

sluice_model::register! {
    stage "filter": FilterOptions,
    about: "passes events by channel, source, time and decoded fields",
    sample: include_str!("../samples/filter.toml"),
}

impl FilterOptions {
    fn lets_pass(&self, channel: &Channel) -> bool {
        let allows = |patterns: &Patterns, name| patterns.is_empty() || patterns.matches(name);
        let name = channel.name.text();
        allows(&self.channels, name)
            && !self.exclude.matches(name)
            && allows(&self.source, &channel.source)
    }
}

impl Map for Filter {
    fn apply(&self, batch: Batch, context: &mut StageContext<'_>) -> Result<Batch, Error> {
        if batch.is_empty() {
            // The window's origin may be unknown, and no event needs it.
            return Ok(batch);
        }
        let bounds = self.window.bounds(context.origin, 0)?;
        let decide = |channel: &Channel| Ok(self.options.lets_pass(channel));
        let passes = self.passes.table(context.channels, decide)?;
        let (times, channels) = (batch.timestamps(), batch.channels());
        let passes = |row: usize| passes[channels[row] as usize] & bounds.contains(times[row]);
        let Some(condition) = &self.options.condition else {
            return Ok(crate::keep(&batch, context, passes));
        };
        let decided = condition.decide(&batch, passes, context)?;
        let unknown = self.options.missing == MissingPolicy::Pass;
        let holds = |row: usize| passes(row) & decided[row].unwrap_or(unknown);
        Ok(crate::keep(&batch, context, holds))
    }

    fn query(&self) -> plugin::MapQuery {
        let ClipWindow { start, end, .. } = self.window;
        let FilterOptions { channels, exclude, source, .. } = &self.options;
        let channels = ChannelQuery::from_patterns(channels, exclude, source);
        plugin::MapQuery { start, end, channels, keeps_times: true, keeps_channels: true }
    }

    fn named_fields(&self) -> Vec<(&'static str, FieldPath)> {
        let fields = self.options.condition.as_ref().map(Condition::needed_fields);
        fields.unwrap_or_default().into_iter().map(|field| ("where", field)).collect()
    }

    fn uses_rows(&self) -> bool {
        self.options.condition.is_some()
    }

    fn rows_after(&self) -> RowsEffect {
        RowsEffect::Same
    }

    fn needs_origin(&self) -> bool {
        self.window.is_relative()
    }
}

fn source_patterns(_: &mut SchemaGenerator) -> Schema {
    let one = json_schema!({ "type": "string", "format": SOURCES_FORMAT,
        "description": "a glob, or `re:` and a regular expression" });
    json_schema!({ "anyOf": [one, { "type": "array", "items": one }] })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{StageRunner, int_rows, times};
    use serde_json::{Value, json};

    /// The times of the events that pass: POSE at 0 and 30, GPS at 10 and 40, ODO at 20 and 50.
    fn passing(options: Value) -> Vec<i64> {
        let mut run = StageRunner::new("filter", options);
        let batch = run.batch(&[
            ("POSE", 0),
            ("GPS", 10),
            ("ODO", 20),
            ("POSE", 30),
            ("GPS", 40),
            ("ODO", 50),
        ]);
        let out = run.all([batch]).unwrap();
        assert_eq!(out.len() as u64 + run.filtered, 6);
        times(&out)
    }

    #[test]
    fn without_options_every_event_passes() {
        assert_eq!(passing(json!({})), [0, 10, 20, 30, 40, 50]);
    }

    #[test]
    fn channels_and_exclude_work_together() {
        assert_eq!(passing(json!({ "channels": ["P*", "GPS"] })), [0, 10, 30, 40]);
        assert_eq!(passing(json!({ "exclude": "re:.*S.*" })), [20, 50]);
        assert_eq!(passing(json!({ "channels": ["P*", "GPS"], "exclude": "GPS" })), [0, 30]);
    }

    #[test]
    fn sources_are_matched_too() {
        assert_eq!(passing(json!({ "source": "lo?" })).len(), 6);
        assert_eq!(passing(json!({ "source": "elsewhere" })).len(), 0);
    }

    #[test]
    fn the_window_begins_with_its_start_and_ends_before_its_end() {
        assert_eq!(passing(json!({ "start": "10ns", "end": "40ns" })), [10, 20, 30]);
        assert_eq!(passing(json!({ "start": "20ns", "end": "none" })), [20, 30, 40, 50]);
        assert_eq!(passing(json!({ "start": "none", "end": "none" })), passing(json!({})));
    }

    #[test]
    fn relative_times_count_from_the_first_event() {
        let mut run = StageRunner::new("filter", json!({ "start": "+20ns" }));
        assert!(run.needs_origin());
        run.origin = Some(5);
        let batch = run.batch(&[("A", 24), ("A", 25)]);
        assert_eq!(times(&run.all([batch]).unwrap()), [25]);
    }

    #[test]
    fn relative_times_without_a_first_event_are_an_error() {
        let mut run = StageRunner::new("filter", json!({ "start": "+20ns" }));
        let batch = run.batch(&[("A", 24)]);
        assert!(run.all([batch]).unwrap_err().to_string().contains("`start` counts from"));
        assert!(run.all([Batch::default()]).is_ok());
    }

    #[test]
    fn a_window_without_any_time_is_refused() {
        let error = StageRunner::refusal("filter", json!({ "start": "20ns", "end": "10ns" }));
        assert_eq!(error.path, ["end"]);
    }

    /// The times of the events that pass: POSE at 0, 20, 40 decoded with v = 0, 1, 2; GPS at 10,
    /// 30, 50 not.
    fn passing_where(options: Value) -> (Vec<i64>, Vec<(String, u64)>) {
        let mut run = StageRunner::new("filter", options);
        let events: Vec<_> =
            (0..6).map(|n| (if n % 2 == 0 { "POSE" } else { "GPS" }, n * 10)).collect();
        let batch = run.batch(&events);
        let batch = batch.with_rows(vec![int_rows("pose_t", &[0, 2, 4], &[0, 1, 2])]);
        let out = run.all([batch]).unwrap();
        assert_eq!(out.len() as u64 + run.filtered, 6);
        (times(&out), run.notes)
    }

    const NOT_DECODED: &str =
        "not decoded, so `where` finds no field: no stage `decode` before it knows their types";

    #[test]
    fn events_pass_where_the_condition_holds() {
        let (times, notes) = passing_where(json!({ "where": "v > 0" }));
        assert_eq!((times, notes), (vec![20, 40], vec![(NOT_DECODED.to_owned(), 3)]));
    }

    #[test]
    fn events_with_missing_values_pass_if_asked_for() {
        let (times, _) = passing_where(json!({ "where": "v > 0", "missing": "pass" }));
        assert_eq!(times, [10, 20, 30, 40, 50]);
    }

    #[test]
    fn only_events_that_pass_otherwise_are_noted_to_lack_a_field() {
        let options = json!({ "where": "w > 0 and exists(v)", "channels": "POSE", "end": "30ns" });
        let (times, notes) = passing_where(options);
        let note = ("no field `w` in the decoded type".to_owned(), 2);
        assert_eq!((times, notes), (vec![], vec![note]));
        let (times, notes) = passing_where(json!({ "where": "v < 2", "channels": "POSE" }));
        assert_eq!((times, notes), (vec![0, 20], vec![]));
    }

    #[test]
    fn a_wrong_condition_is_reported_with_its_column() {
        let error = StageRunner::refusal("filter", json!({ "where": "v >> 3" }));
        assert_eq!(error.path, ["where"]);
        assert_eq!(
            error.message,
            "at column 3: `>>` is not an operator; there are no bit operations\n\n  v >> 3\n    ^^"
        );
    }

    #[test]
    fn events_without_a_value_are_let_through_by_a_condition_only() {
        let error = StageRunner::refusal("filter", json!({ "missing": "pass" }));
        assert_eq!(
            (error.path, error.message),
            (vec!["missing".into()], "`missing` needs `where`".into())
        );
    }

    #[test]
    fn the_window_is_pushed_down_to_the_source() {
        let options = FilterOptions { start: Some(TimePoint::At(7)), ..FilterOptions::default() };
        let Stage::Map(filter) = Stage::try_from(options).unwrap() else { panic!("no map") };
        let query = filter.query();
        assert_eq!(
            (query.start, query.end, query.keeps_times),
            (Some(TimePoint::At(7)), None, true)
        );
    }
}
