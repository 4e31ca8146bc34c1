//! Compares the figures of a log with expectations. Reads no events.

mod channel;
mod join;

use std::collections::BTreeSet;

use sluice_io::escape::printable;
use sluice_kit::suggestion;
use sluice_model::{UnmetExpectation, UnmetTime};

use super::limit::Limit;
use super::rules::{ChannelExpectation, Expectations, Rule};
use super::values::MustExist;
use super::words::{count, length, percent, range};
use crate::figures::{ChannelFigures, Figures, Finding, FindingKind, InputFigures, Thinned};

/// The most names listed in a sentence.
const MOST_NAMES: usize = 8;

/// What comparing figures with expectations has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// The expectations that are not met, in the order of the file; those of the log first.
    pub unmet: Vec<UnmetExpectation>,
    /// Notes that do not count.
    pub notes: Vec<String>,
}

impl From<&UnmetExpectation> for Finding {
    fn from(unmet: &UnmetExpectation) -> Self {
        Self {
            kind: FindingKind::Unmet,
            text: unmet.to_string(),
            channel: unmet.channels.first().cloned(),
            time: unmet.when.map(|when| when.start),
        }
    }
}

/// The expectations that a log with these figures does not meet.
pub fn unmet(expectations: &Expectations, figures: &Figures) -> Vec<UnmetExpectation> {
    compare(expectations, figures).unmet
}

/// Compares the figures of a log with expectations.
///
/// Failures of several channels that have the same cause, a silence at the same time, are joined.
pub fn compare(expectations: &Expectations, figures: &Figures) -> Comparison {
    let mut run = Comparing { expectations, figures, found: Vec::new(), notes: Vec::new() };
    run.log();
    for expectation in &expectations.channels {
        let channels = matching(expectation, figures);
        if channels.is_empty() {
            run.missing(expectation);
        }
        for channel in channels {
            run.channel(channel, &expectation.rules);
        }
    }
    run.other_channels();
    run.channels_without_figures();
    let Comparing { found, notes, .. } = run;
    Comparison { unmet: join::bounded(join::joined(found)), notes }
}

/// The channels with events that match, by name.
fn matching<'f>(expectation: &ChannelExpectation, figures: &'f Figures) -> Vec<&'f ChannelFigures> {
    let channels = figures.channels.iter();
    let matches = |channel: &&ChannelFigures| {
        channel.events > 0 && expectation.pattern.matches(&channel.name)
    };
    let mut channels: Vec<&ChannelFigures> = channels.filter(matches).collect();
    channels.sort_by_key(|channel| (&channel.name, &channel.source));
    channels
}

/// An expectation that is not met, and the silence that is the reason.
struct ExpectationFailure {
    unmet: UnmetExpectation,
    /// The offset of its rule.
    offset: usize,
    /// The start and end of the silence.
    silence: Option<(i64, i64)>,
}

/// A comparison that is going on.
struct Comparing<'e> {
    expectations: &'e Expectations,
    figures: &'e Figures,
    found: Vec<ExpectationFailure>,
    notes: Vec<String>,
}

impl Comparing<'_> {
    /// Adds an expectation of the whole log.
    fn add(&mut self, rule: &str, offset: usize, expected: String, found: String) {
        let unmet = UnmetExpectation {
            channels: Vec::new(),
            rule: rule.to_owned(),
            expected,
            found,
            when: None,
            place: self.expectations.place(offset),
        };
        self.found.push(ExpectationFailure { unmet, offset, silence: None });
    }

    /// Adds a note about the rule at an offset.
    fn note(&mut self, what: String, offset: usize) {
        let place = self.expectations.place(offset);
        let place = if place.is_empty() { place } else { format!(" ({place})") };
        self.notes.push(what + &place);
    }

    /// From `start` to `end`.
    fn when(&self, start: i64, end: i64) -> UnmetTime {
        UnmetTime::new(start, end, self.figures.start.unwrap_or(start))
    }

    fn log(&mut self) {
        let (rules, figures) = (&self.expectations.log, self.figures);
        if let Some(Rule { value, offset }) = rules.damage {
            self.damage(value, offset);
        }
        if let Some(Rule { value, offset }) = rules.duration {
            let (start, end) = (figures.start.unwrap_or(0), figures.end.unwrap_or(0));
            let found = end.max(start).abs_diff(start);
            let ends = (value.min.map(|min| min.0), value.max.map(|max| max.0));
            if !is_within(found, ends) {
                self.add("duration", offset, range(ends, length), length(found));
            }
        }
        if let Some(Rule { value, offset }) = rules.count {
            let ends = (value.min, value.max);
            if !is_within(figures.events, ends) {
                let expected = range(ends, |number| count(number, "event"));
                self.add("count", offset, expected, figures.events.to_string());
            }
        }
        let jumps = (rules.missing_numbers, "missing_numbers", figures.sequence_jumps);
        let back = (rules.time_back, "time_back", Some(figures.steps_back));
        for (rule, name, found) in [jumps, back] {
            let Some(Rule { value, offset }) = rule else { continue };
            let Some(found) = found else {
                let what = "no event has the number after that of the event before it";
                self.note(format!("`{name}` cannot be compared: {what}"), offset);
                continue;
            };
            if value.is_exceeded(found, figures.events) {
                self.add(name, offset, at_most(value, "event"), count(found, "event"));
            }
        }
    }

    fn damage(&mut self, limit: Limit, offset: usize) {
        let inputs = &self.figures.inputs;
        let lost: u64 = inputs.iter().map(|input| input.damaged_bytes).sum();
        let ranges: u64 = inputs.iter().map(|input| input.damaged_ranges).sum();
        let all: u64 = inputs.iter().filter_map(|input| input.bytes).sum();
        // A range may have no bytes, such as a log that ends too early.
        let is_exceeded = match limit {
            Limit::Count(0) => lost > 0 || ranges > 0,
            limit => limit.is_exceeded(lost, all),
        };
        if !is_exceeded {
            return;
        }
        let is_damaged = |input: &&InputFigures| !input.damage.is_empty();
        let first = inputs.iter().find(is_damaged).and_then(|input| {
            let first = input.damage.first()?;
            let name = printable(&input.name);
            Some(format!(", the first at byte {} of {name}: {}", first.offset, first.reason))
        });
        let (lost, ranges) = (count(lost, "byte"), count(ranges, "range"));
        let found = format!("{lost} in {ranges}{}", first.unwrap_or_default());
        self.add("damage", offset, at_most(limit, "byte"), found);
    }

    /// A pattern that matches no channel.
    fn missing(&mut self, expectation: &ChannelExpectation) {
        let rule = expectation.rules.must_exist;
        let text = expectation.pattern.text();
        let names = self.figures.channels.iter().map(|channel| channel.name.as_str());
        let near = suggestion::nearest_to_pattern(text, names, 3).join(", ");
        let near = if near.is_empty() { near } else { format!("; near it: {near}") };
        let (offset, must_exist) =
            rule.map_or((expectation.offset, MustExist::Yes), |rule| (rule.offset, rule.value));
        match must_exist {
            MustExist::No => {}
            MustExist::Warn => {
                self.note(format!("no channel matches `{text}`{near}"), offset);
            }
            MustExist::Yes => {
                let found = format!("none{near}");
                self.add("must_exist", offset, format!("a channel that matches `{text}`"), found);
            }
        }
    }

    /// Channels that no pattern matches.
    fn other_channels(&mut self) {
        let Some(Rule { value: true, offset }) = self.expectations.log.no_other_channels else {
            return;
        };
        let is_known =
            |name: &str| self.expectations.channels.iter().any(|known| known.pattern.matches(name));
        let channels = self.figures.channels.iter().filter(|channel| channel.events > 0);
        let names = channels.map(|channel| channel.name.as_str());
        let others: BTreeSet<&str> = names.filter(|name| !is_known(name)).collect();
        if others.is_empty() {
            return;
        }
        let listed: Vec<&str> = others.iter().copied().take(MOST_NAMES).collect();
        let more = others.len().saturating_sub(MOST_NAMES);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let found = format!("{}{more}", listed.join(", "));
        self.add("no_other_channels", offset, "only channels of this file".to_owned(), found);
    }

    /// Channels that cannot be compared, because there are too many: they never pass silently.
    fn channels_without_figures(&mut self) {
        let Some(first) = self.expectations.channels.first() else { return };
        let channels = self.figures.thinned.iter().find(|thin| thin.what == Thinned::CHANNELS);
        if let Some(Thinned { of, shown, .. }) = channels {
            let expected = format!("at most {shown} channels, which can be compared");
            self.add("channels", first.offset, expected, of.to_string());
        }
    }
}

/// Whether a value is in a range.
fn is_within<T: PartialOrd + Copy>(value: T, (min, max): (Option<T>, Option<T>)) -> bool {
    min.is_none_or(|min| value >= min) && max.is_none_or(|max| value <= max)
}

/// What a limit expects.
fn at_most(limit: Limit, noun: &str) -> String {
    match limit {
        Limit::Count(0) => "none".to_owned(),
        Limit::Count(most) => format!("at most {}", count(most, noun)),
        Limit::Share(most) => format!("at most {}", percent(most)),
    }
}
