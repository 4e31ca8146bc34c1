//! What `align` does, resolved from its options: which channels are read, and how each value is
//! chosen. Sees no events.

use std::collections::BTreeSet;
use std::ops::Range;

use sluice_model::time::TimePoint;
use sluice_model::{ChannelQuery, FieldPath, FoldQuery, OptionsError, Pattern, Patterns};
use sluice_views::TimeUnit;

use super::grid::Rate;
use super::options::{
    AlignOptions, ChannelField, FieldSettings, Method, MissingPolicy, QuaternionOrder,
};

/// The plan of the stage.
#[derive(Debug)]
pub(crate) struct AlignPlan {
    /// The channel of the rows.
    pub(crate) name: String,
    pub(crate) rows: RowRule,
    pub(crate) missing: MissingPolicy,
    /// The channels that are read.
    pub(crate) channels: Vec<ChannelPlan>,
    pub(crate) inputs: Vec<InputPlan>,
    pub(crate) tracks: Vec<TrackPlan>,
    pub(crate) columns: Vec<ColumnPlan>,
    pub(crate) least_lag: i64,
}

/// When there are rows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RowRule {
    /// At a rate.
    Rate { rate: Rate, anchor: TimePoint },
    /// At the times of this input.
    Input(usize),
}

/// A channel that is read.
#[derive(Debug)]
pub(crate) struct ChannelPlan {
    pub(crate) name: String,
    pub(crate) inputs: Vec<usize>,
}

/// The times of a channel's events: a channel has several if its fields disagree about them.
#[derive(Debug)]
pub(crate) struct InputPlan {
    /// The field with the time, and its unit in nanoseconds; the time of the event without.
    pub(crate) time: Option<(FieldPath, i64)>,
    pub(crate) lag: i64,
    pub(crate) tracks: Vec<usize>,
}

/// The values of a field of a channel over time.
#[derive(Debug)]
pub(crate) struct TrackPlan {
    pub(crate) input: usize,
    /// `None`: the whole message.
    pub(crate) path: Option<FieldPath>,
    /// The field as written, for messages.
    pub(crate) label: String,
    pub(crate) method: Method,
    pub(crate) tolerance: i64,
    pub(crate) is_angle: bool,
    pub(crate) quaternion: QuaternionOrder,
    pub(crate) length: Option<u32>,
    /// Whether it becomes part of a vector.
    pub(crate) is_part: bool,
    /// How long a row waits for it behind the newest time.
    pub(crate) wait: i64,
}

/// A column of the rows.
#[derive(Debug)]
pub(crate) struct ColumnPlan {
    pub(crate) name: String,
    pub(crate) tracks: Range<usize>,
    /// Whether it is a vector of all its tracks.
    pub(crate) is_vector: bool,
}

/// What a time can be off by and still be waited for, or belong to the same run of the clock.
pub(crate) const CLOCK_RESET_NS: i64 = 1_000_000_000;

impl AlignPlan {
    pub(crate) fn new(mut options: AlignOptions) -> Result<Self, OptionsError> {
        if options.name.is_empty() {
            return Err(OptionsError::at("name", "expected the name of a channel"));
        }
        let fields = std::mem::take(&mut options.fields).settings()?;
        if fields.is_empty() {
            return Err(OptionsError::at("fields", "expected at least one field"));
        }
        let takes_unit = |(_, field): &(String, FieldSettings)| {
            field.time.is_some() && field.time_unit.is_none()
        };
        let has_time = options.time.is_some() || fields.iter().any(takes_unit);
        if !has_time && options.time_unit != TimeUnit::default() {
            return Err(OptionsError::needs("time_unit", "time"));
        }
        let AlignOptions { rate, fps, clock, .. } = &options;
        let anchor = options.anchor.unwrap_or(TimePoint::At(0));
        let rows = match (rate, fps, clock) {
            (Some(rate), None, None) | (None, Some(rate), None) => {
                Some(RowRule::Rate { rate: *rate, anchor })
            }
            (None, None, Some(_)) => None,
            _ => {
                let message = "exactly one of `rate`, `fps` and `clock` is needed".to_owned();
                return Err(OptionsError { path: Vec::new(), message });
            }
        };
        if rows.is_none() && options.anchor.is_some() {
            return Err(OptionsError::at("anchor", "rows at the times of a channel have none"));
        }
        let (name, missing) = (options.name.clone(), options.missing);
        let mut builder = PlanBuilder::new(&options)?;
        let rows = match (rows, clock) {
            (None, Some(channel)) => RowRule::Input(builder.clock(channel)?),
            (rows, _) => rows.ok_or_else(|| OptionsError::at("rate", "expected a rate"))?,
        };
        for (name, settings) in fields {
            builder.column(name, settings)?;
        }
        let PlanBuilder { channels, inputs, tracks, columns, .. } = builder;
        let least_lag = inputs.iter().map(|input| input.lag).min().unwrap_or(0);
        Ok(Self { name, rows, missing, channels, inputs, tracks, columns, least_lag })
    }

    /// The patterns of the channels that are read, each with its option.
    pub(crate) fn named_patterns(&self) -> impl Iterator<Item = (&'static str, Pattern)> {
        self.channels.iter().filter_map(|channel| {
            let mut inputs = channel.inputs.iter().filter_map(|input| self.inputs.get(*input));
            let has_fields = inputs.any(|input| !input.tracks.is_empty());
            let option = if has_fields { "fields" } else { "clock" };
            Some((option, exact_pattern(&channel.name)?))
        })
    }

    pub(crate) fn channel_query(&self) -> ChannelQuery {
        let patterns: Vec<Pattern> = self.named_patterns().map(|(_, pattern)| pattern).collect();
        if patterns.len() < self.channels.len() {
            return ChannelQuery::default();
        }
        ChannelQuery::from_patterns(&Patterns(patterns), &Patterns::default(), &Patterns::default())
    }

    /// What it needs of events outside a time window. The own times of messages may be far from
    /// those of their events, and which rows are the first depends on everything before them.
    pub(crate) fn fold_query(&self) -> FoldQuery {
        let by_event = self.inputs.iter().all(|input| input.time.is_none());
        let lag = self.inputs.iter().map(|input| input.lag.saturating_abs()).max().unwrap_or(0);
        let far = self.tracks.iter().map(|track| track.tolerance.max(track.wait)).max();
        FoldQuery {
            keeps_times: by_event && self.missing == MissingPolicy::Drop,
            reach: far.unwrap_or(0).saturating_add(lag).saturating_add(CLOCK_RESET_NS),
            ..FoldQuery::default()
        }
    }

    /// Whether rows are counted from the first event of the log.
    pub(crate) fn needs_origin(&self) -> bool {
        matches!(self.rows, RowRule::Rate { anchor, .. } if anchor.is_relative())
    }
}

/// A pattern for this name only; `None` if no pattern can say it.
fn exact_pattern(name: &str) -> Option<Pattern> {
    let plain = Pattern::parse(name).ok().filter(|pattern| pattern.as_name() == Some(name));
    plain.or_else(|| Pattern::parse(&format!("re:{}", regex::escape(name))).ok())
}

struct PlanBuilder {
    method: Method,
    tolerance: i64,
    time: Option<(FieldPath, i64)>,
    unit: TimeUnit,
    channels: Vec<ChannelPlan>,
    inputs: Vec<InputPlan>,
    tracks: Vec<TrackPlan>,
    columns: Vec<ColumnPlan>,
    names: BTreeSet<String>,
}

impl PlanBuilder {
    fn new(options: &AlignOptions) -> Result<Self, OptionsError> {
        let unit = options.time_unit;
        let tolerance = checked_tolerance(options.tolerance.0, &["tolerance"])?;
        Ok(Self {
            method: options.method,
            tolerance,
            time: options.time.clone().map(|time| (time, unit.nanos())),
            unit,
            channels: Vec::new(),
            inputs: Vec::new(),
            tracks: Vec::new(),
            columns: Vec::new(),
            names: BTreeSet::new(),
        })
    }

    fn clock(&mut self, channel: &str) -> Result<usize, OptionsError> {
        if channel.is_empty() {
            return Err(OptionsError::at("clock", "expected the name of a channel"));
        }
        let time = self.time.clone();
        Ok(self.input(channel, time, 0))
    }

    /// The input of a channel with these times.
    fn input(&mut self, channel: &str, time: Option<(FieldPath, i64)>, lag: i64) -> usize {
        let at = match self.channels.iter().position(|plan| plan.name == channel) {
            Some(at) => at,
            None => {
                self.channels.push(ChannelPlan { name: channel.to_owned(), inputs: Vec::new() });
                self.channels.len() - 1
            }
        };
        let Self { channels, inputs, .. } = self;
        let known = channels.get(at).map(|plan| plan.inputs.as_slice()).unwrap_or_default();
        let is_same = |input: &&usize| inputs[**input].time == time && inputs[**input].lag == lag;
        if let Some(input) = known.iter().find(is_same) {
            return *input;
        }
        inputs.push(InputPlan { time, lag, tracks: Vec::new() });
        channels[at].inputs.push(inputs.len() - 1);
        inputs.len() - 1
    }

    fn column(&mut self, name: String, settings: FieldSettings) -> Result<(), OptionsError> {
        let wrong = |key: &[&str], message: &str| {
            let path = ["fields", &name].into_iter().chain(key.iter().copied()).map(str::to_owned);
            OptionsError { path: path.collect(), message: message.to_owned() }
        };
        if name.is_empty() || !self.names.insert(name.clone()) {
            return Err(wrong(&[], "expected a name that no other field has"));
        }
        if settings.field.fields.is_empty() {
            return Err(wrong(&[], "expected a field, found an empty list"));
        }
        let method = settings.method.unwrap_or(self.method);
        if settings.angle && method != Method::Linear {
            return Err(wrong(&["angle"], "only `method = \"linear\"` computes with angles"));
        }
        if settings.quaternion.is_some() && method != Method::Slerp {
            return Err(wrong(&["quaternion"], "only `method = \"slerp\"` needs the order"));
        }
        if method == Method::Slerp && settings.length.is_some_and(|length| length != 4) {
            return Err(wrong(&["length"], "a quaternion has four numbers"));
        }
        if settings.time_unit.is_some() && settings.time.is_none() {
            return Err(wrong(&["time_unit"], "`time_unit` needs `time`"));
        }
        if settings.length == Some(0) {
            return Err(wrong(&["length"], "expected 1 or more"));
        }
        let tolerance = match settings.tolerance {
            Some(own) => checked_tolerance(own.0, &["fields", &name, "tolerance"])?,
            None => self.tolerance,
        };
        let first = self.tracks.len();
        for field in &settings.field.fields {
            self.track(field, &settings, method, tolerance);
        }
        let tracks = first..self.tracks.len();
        self.columns.push(ColumnPlan { name, tracks, is_vector: settings.field.is_list });
        Ok(())
    }

    fn track(
        &mut self,
        field: &ChannelField,
        settings: &FieldSettings,
        method: Method,
        tolerance: i64,
    ) {
        let unit = settings.time_unit.unwrap_or(self.unit).nanos();
        let own = settings.time.clone().map(|time| (time, unit));
        let time = own.or_else(|| self.time.clone());
        let lag = settings.lag.map_or(0, |lag| lag.0);
        // Messages are received some time after their own time, which nothing says.
        let late = if method.looks_ahead() || time.is_some() { tolerance } else { 0 };
        let input = self.input(&field.channel, time, lag);
        self.inputs[input].tracks.push(self.tracks.len());
        self.tracks.push(TrackPlan {
            input,
            path: field.path.clone(),
            label: field.text.clone(),
            method,
            tolerance,
            is_angle: settings.angle,
            quaternion: settings.quaternion.unwrap_or_default(),
            length: settings.length,
            is_part: settings.field.is_list,
            wait: late.saturating_add(lag),
        });
    }
}

/// The longest tolerance: rows wait for it, and values with them.
const MAX_TOLERANCE: i64 = 3600 * 1_000_000_000;

fn checked_tolerance(nanos: i64, path: &[&str]) -> Result<i64, OptionsError> {
    if (0..=MAX_TOLERANCE).contains(&nanos) {
        return Ok(nanos);
    }
    let path = path.iter().map(|key| (*key).to_owned()).collect();
    Err(OptionsError { path, message: "expected a duration from 0 to 1h".to_owned() })
}
