//! Compares the figures of one channel with the rules of a pattern.

use sluice_kit::suggestion;
use sluice_model::time::TimeSpan;
use sluice_model::{UnmetExpectation, UnmetTime};

use super::super::limit::Limit;
use super::super::rules::{ChannelRules, Rule};
use super::super::values::{CountRange, DroppedShare, FieldRange, LatencyRange, RateRange};
use super::super::words::{count, length, number, percent, range, signed_length};
use super::{Comparing, ExpectationFailure, MOST_NAMES, at_most, is_within};
use crate::figures::{ChannelFigures, FieldFigures, GapFigures};

/// What a rule says that is not met.
struct Failure<'r> {
    rule: &'r str,
    offset: usize,
    expected: String,
    found: String,
    when: Option<UnmetTime>,
    silence: Option<(i64, i64)>,
}

impl<'r> Failure<'r> {
    fn new(rule: &'r str, offset: usize, expected: String, found: String) -> Self {
        Self { rule, offset, expected, found, when: None, silence: None }
    }
}

impl Comparing<'_> {
    /// Compares a channel with the rules of a pattern.
    pub(super) fn channel(&mut self, channel: &ChannelFigures, rules: &ChannelRules) {
        let mut failures = Vec::new();
        failures.extend(types(channel, rules));
        failures.extend(rules.count.and_then(|rule| events(channel, rule)));
        failures.extend(rules.rate.and_then(|rule| self.rate(channel, rule)));
        failures.extend(rules.max_gap.and_then(|rule| self.max_gap(channel, rules, rule)));
        failures.extend(rules.dropped.and_then(|rule| self.dropped(channel, rule)));
        failures.extend(rules.starts_within.and_then(|rule| self.starts_within(channel, rule)));
        failures.extend(rules.ends_within.and_then(|rule| self.ends_within(channel, rule)));
        failures.extend(self.undecoded(channel, rules.undecoded));
        failures.extend(limited("time_back", channel.steps_back, channel, rules.time_back));
        failures.extend(rules.latency.and_then(|rule| latency(channel, rule)));
        for (path, rule) in &rules.fields {
            self.field(channel, path, *rule, &mut failures);
        }
        let name = self.channel_name(channel);
        for failure in failures {
            let Failure { rule, offset, expected, found, when, silence } = failure;
            let when = when.or_else(|| silence.map(|(start, end)| self.when(start, end)));
            let place = self.expectations.place(offset);
            let (channels, rule) = (vec![name.clone()], rule.to_owned());
            let unmet = UnmetExpectation { channels, rule, expected, found, when, place };
            self.found.push(ExpectationFailure { unmet, offset, silence });
        }
    }

    /// The channel's name, with its source if others have the same name.
    fn channel_name(&self, channel: &ChannelFigures) -> String {
        let same = self.figures.channels.iter().filter(|other| other.name == channel.name);
        match same.count() {
            0 | 1 => channel.name.clone(),
            _ => format!("{} ({})", channel.name, channel.source),
        }
    }

    fn rate(&self, channel: &ChannelFigures, rule: Rule<RateRange>) -> Option<Failure<'static>> {
        let RateRange { min, max, least_events } = rule.value;
        let expected = || range((min, max), |rate| format!("{} Hz", number(rate)));
        let failure = |found| Some(Failure::new("rate", rule.offset, expected(), found));
        if channel.events < least_events {
            // Too few for a median, although the log is long enough for more.
            let (start, end) = (self.figures.start?, self.figures.end?);
            let due = min.unwrap_or(0.0) * (end.max(start).abs_diff(start) as f64 / 1e9);
            let is_silent = due >= 2.0 * least_events as f64;
            let lasting = length(end.max(start).abs_diff(start));
            let found = format!("{} in {lasting}", count(channel.events, "event"));
            return if is_silent { failure(found) } else { None };
        }
        match channel.rate {
            None => failure("no rate, since all events have one time".to_owned()),
            Some(rate) if is_within(rate.median, (min, max)) => None,
            Some(rate) => failure(format!("{} Hz", number(rate.median))),
        }
    }

    fn max_gap(
        &self,
        channel: &ChannelFigures,
        rules: &ChannelRules,
        rule: Rule<TimeSpan>,
    ) -> Option<Failure<'static>> {
        let (start, end) = (self.figures.start?, self.figures.end?);
        let between = channel.longest_gap;
        let before = rules.starts_within.is_none().then(|| gap(start, channel.first));
        let after = rules.ends_within.is_none().then(|| gap(channel.last, end));
        // The first of equally long ones.
        let longest = [between, before.flatten(), after.flatten()].into_iter().flatten();
        let longest = longest.max_by_key(|gap| (gap.length, std::cmp::Reverse(gap.start)))?;
        let TimeSpan(most) = rule.value;
        if longest.length <= most {
            return None;
        }
        let others = channel.gaps.iter().filter(|gap| gap.length > most && **gap != longest);
        let found = match others.count() {
            0 => length(longest.length),
            more => format!("{}, and {more} more such gaps", length(longest.length)),
        };
        let expected = format!("at most {}", length(most));
        let silence = Some((longest.start, longest.start.saturating_add_unsigned(longest.length)));
        Some(Failure { silence, ..Failure::new("max_gap", rule.offset, expected, found) })
    }

    fn dropped(
        &self,
        channel: &ChannelFigures,
        rule: Rule<DroppedShare>,
    ) -> Option<Failure<'static>> {
        let DroppedShare { over, share } = rule.value;
        let median = channel.rate.map(|rate| 1e9 / rate.median)?;
        let all = channel.intervals.count();
        let long = channel.intervals.count_above(over * median);
        let is_judged = all + 1 >= super::super::values::LEAST_EVENTS;
        if !is_judged || long as f64 <= share * all as f64 {
            return None;
        }
        let usual = length(median as u64);
        let expected =
            format!("at most {} of intervals over {} × {usual}", percent(share), number(over));
        let found = format!("{} ({long} of {all})", percent(long as f64 / all as f64));
        let longest = channel.longest_gap;
        let when =
            longest.map(|gap| self.when(gap.start, gap.start.saturating_add_unsigned(gap.length)));
        Some(Failure { when, ..Failure::new("dropped", rule.offset, expected, found) })
    }

    fn starts_within(
        &self,
        channel: &ChannelFigures,
        rule: Rule<TimeSpan>,
    ) -> Option<Failure<'static>> {
        let silence = gap(self.figures.start?, channel.first)?;
        let within = format!("an event within {} of the start", length(rule.value.0));
        let found = format!("the first after {}", length(silence.length));
        silent("starts_within", rule, silence, within, found)
    }

    fn ends_within(
        &self,
        channel: &ChannelFigures,
        rule: Rule<TimeSpan>,
    ) -> Option<Failure<'static>> {
        let silence = gap(channel.last, self.figures.end?)?;
        let within = format!("an event within {} of the end", length(rule.value.0));
        let found = format!("the last {} before it", length(silence.length));
        silent("ends_within", rule, silence, within, found)
    }

    fn undecoded(
        &self,
        channel: &ChannelFigures,
        rule: Option<Rule<Limit>>,
    ) -> Option<Failure<'static>> {
        let failure = limited("undecoded", channel.undecoded, channel, rule)?;
        let first = channel.first_undecoded.map(|first| self.when(first, first));
        Some(Failure { when: first, ..failure })
    }

    fn field(
        &self,
        channel: &ChannelFigures,
        path: &str,
        rule: Rule<FieldRange>,
        failures: &mut Vec<Failure<'_>>,
    ) {
        let FieldRange { min, max, nulls, nan } = rule.value;
        let (name, expected) = (format!("field {path}"), range((min, max), number));
        let mut fail = |expected: String, found: String, when: Option<UnmetTime>| {
            let failure = Failure::new("fields", rule.offset, format!("{name} {expected}"), found);
            failures.push(Failure { when, ..failure });
        };
        let Some(field) = channel.fields.iter().find(|field| field.path == path) else {
            return fail("to exist".to_owned(), missing_field(channel, path), None);
        };
        let FieldFigures { count: values, nulls: null, not_finite, .. } = field;
        let all = values + null + not_finite;
        match (field.min, field.max) {
            (Some(least), Some(greatest)) => {
                let when = |at| Some(self.when(at, at));
                if min.is_some_and(|min| least < min) {
                    fail(expected.clone(), number(least), when(field.min_at));
                }
                if max.is_some_and(|max| greatest > max) {
                    fail(expected.clone(), number(greatest), when(field.max_at));
                }
            }
            _ if min.is_some() || max.is_some() => {
                fail(expected.clone(), "no value".to_owned(), None);
            }
            _ => {}
        }
        if let Some(limit) = nulls.filter(|limit| limit.is_exceeded(*null, all)) {
            fail(format!("null {}", at_most(limit, "time")), count(*null, "null"), None);
        }
        if nan.is_exceeded(*not_finite, all) {
            let found = format!("{not_finite} NaN or infinite");
            fail(format!("NaN {}", at_most(nan, "time")), found, None);
        }
    }
}

/// The time from `start` to `end`; `None` if it is not after it.
fn gap(start: i64, end: i64) -> Option<GapFigures> {
    (end > start).then(|| GapFigures { start, length: end.abs_diff(start) })
}

/// A silence at an end of the log.
fn silent(
    name: &'static str,
    rule: Rule<TimeSpan>,
    silence: GapFigures,
    expected: String,
    found: String,
) -> Option<Failure<'static>> {
    if silence.length <= rule.value.0 {
        return None;
    }
    let silence = Some((silence.start, silence.start.saturating_add_unsigned(silence.length)));
    Some(Failure { silence, ..Failure::new(name, rule.offset, expected, found) })
}

fn types(channel: &ChannelFigures, rules: &ChannelRules) -> Option<Failure<'static>> {
    let rule = rules.types.as_ref()?;
    let patterns: Vec<&str> = rule.value.0.iter().map(|pattern| pattern.text()).collect();
    let expected = format!("type {}", patterns.join(" or "));
    let others = channel.types.iter().filter(|known| !rule.value.matches(&known.name));
    let others: Vec<&str> = others.map(|other| other.name.as_str()).take(MOST_NAMES).collect();
    let found = match (channel.types.is_empty(), others.is_empty()) {
        (true, _) => "no type of its messages is known; are they declared?".to_owned(),
        (false, true) => return None,
        (false, false) => others.join(", "),
    };
    Some(Failure::new("type", rule.offset, expected, found))
}

fn events(channel: &ChannelFigures, rule: Rule<CountRange>) -> Option<Failure<'static>> {
    let ends = (rule.value.min, rule.value.max);
    if is_within(channel.events, ends) {
        return None;
    }
    let expected = range(ends, |number| count(number, "event"));
    Some(Failure::new("count", rule.offset, expected, channel.events.to_string()))
}

fn limited(
    name: &'static str,
    found: u64,
    channel: &ChannelFigures,
    rule: Option<Rule<Limit>>,
) -> Option<Failure<'static>> {
    let rule = rule.filter(|rule| rule.value.is_exceeded(found, channel.events))?;
    let expected = at_most(rule.value, "event");
    Some(Failure::new(name, rule.offset, expected, count(found, "event")))
}

fn latency(channel: &ChannelFigures, rule: Rule<LatencyRange>) -> Option<Failure<'static>> {
    let LatencyRange { min, max, median } = rule.value;
    let failure = |expected, found| Some(Failure::new("latency", rule.offset, expected, found));
    let Some(found) = &channel.latency else {
        let expected = "messages with a time".to_owned();
        return failure(expected, "no field with the time of messages".to_owned());
    };
    let least = |least| format!("at least {}", signed_length(least));
    let most = |most| format!("at most {}", signed_length(most));
    if let Some(min) = min.filter(|min| found.least < *min) {
        return failure(least(min), signed_length(found.least));
    }
    if let Some(max) = max.filter(|max| found.greatest > *max) {
        return failure(most(max), signed_length(found.greatest));
    }
    let median = median.filter(|median| found.median > *median)?;
    failure(format!("a median of {}", most(median)), signed_length(found.median))
}

/// What is there instead of a field.
fn missing_field(channel: &ChannelFigures, path: &str) -> String {
    if channel.fields.is_empty() {
        return "no decoded fields; are its types declared?".to_owned();
    }
    let known = channel.fields.iter().map(|field| field.path.as_str());
    let near = suggestion::nearest_of(path, known, 3);
    match near.is_empty() {
        true if path.contains('[') => {
            "no such number; elements of lists of varying length, and of those longer than 64, are \
             not compared"
                .to_owned()
        }
        true => "no such number".to_owned(),
        false => format!("no such number; near it: {}", near.join(", ")),
    }
}
