//! `gaps`: tells at the end which channels fell silent. Lets every event pass and changes none.
//!
//! `rates` says how long a channel may be silent.

mod rates;

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use sluice_core::schemars::JsonSchema;
use sluice_core::time::{self, TimeLength};
use sluice_core::{
    Batch, Channel, Channels, Clock, Error, Fold, FoldQuery, OptionsError, Patterns, Stage,
    StageContext,
};

use crate::intervals::Intervals;
use rates::Rates;

/// Options of `gaps`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_core::schemars")]
pub struct GapsOptions {
    /// The channels that are watched. Left out: all are.
    #[serde(default)]
    pub channels: Patterns,
    /// A silence counts if it is longer than this.
    #[serde(default = "longer_than")]
    pub longer_than: TimeLength,
    /// A silence counts if it is longer than this many times the usual (median) time between two events of the
    /// channel, too. 0 leaves that out of account. Left out: by how evenly the events of the channel come. Unless
    /// it is 0, nothing is said of channels with few events, of which it is not known what is usual.
    pub factor: Option<f64>,
    /// How many events a second are expected, by channel, or pattern of channels: whatever comes, a silence of
    /// such a channel counts if it is longer than nearly two intervals, and than `longer_than`.
    #[serde(default)]
    pub rates: BTreeMap<String, f64>,
}

fn longer_than() -> TimeLength {
    TimeLength(1_000_000_000)
}

/// Of more channels it is only said how many there are.
const MOST_NAMED: usize = 100;

/// An event that is earlier than the one before by no more than this has come late. By more, the clock has
/// been set, or the time is wrong.
const LATE: i64 = 10_000_000_000;

struct Gaps {
    options: GapsOptions,
    rates: Rates,
    /// By channel.
    silences: Vec<Silence>,
}

/// What is known of the times of a channel's events.
struct Silence {
    watched: bool,
    /// How long it takes from one event to the next, where that is said.
    expected: Option<i64>,
    clock: Clock,
    /// The time of the latest event.
    last: Option<i64>,
    /// The time of the last event, if it is far from the one before: the next one decides which is wrong.
    odd: Option<i64>,
    /// Whether more than one event says that `last` is right.
    supported: bool,
    /// How long it took from each event to the next one, where that is not longer than allowed.
    short: Intervals,
    /// The same, where it is.
    long: Intervals,
    longest: Gap,
}

/// A time without an event.
#[derive(Clone, Copy, Default)]
struct Gap {
    length: i64,
    /// When the event before it happened.
    after: i64,
}

impl TryFrom<GapsOptions> for Stage {
    type Error = OptionsError;

    fn try_from(options: GapsOptions) -> Result<Self, OptionsError> {
        if options.longer_than.0 < 0 {
            return Err(OptionsError::at("longer_than", "a silence is not shorter than nothing"));
        }
        if options.factor.is_some_and(|factor| !factor.is_finite() || factor < 0.0) {
            return Err(OptionsError::at("factor", "expected a number, 0 or more"));
        }
        let rates = Rates::parse(&options.rates)?;
        Ok(Self::Fold(Box::new(Gaps { options, rates, silences: Vec::new() })))
    }
}

sluice_core::register! {
    stage "gaps": GapsOptions,
    about: "tells which channels fell silent, and lets every event pass",
    sample: include_str!("../../samples/gaps.toml"),
}

impl Fold for Gaps {
    fn push(&mut self, batch: Batch, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        self.meet(context.channels);
        let longer_than = self.options.longer_than.0;
        for (channel, time) in batch.channels().iter().zip(batch.timestamps()) {
            if context.wanted.wants_time(*time) {
                self.silences[*channel as usize].push(*time, longer_than);
            }
        }
        Ok(crate::unless_empty(batch))
    }

    fn finish(&mut self, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        let ends = self.settle();
        let names = names(context.channels, &self.silences);
        let gaps = self.told(&names, |silence| self.gaps(silence));
        tell(context, gaps, "have gaps, too");
        let ends = self.told(&names, |silence| self.end(silence, &ends).map(|what| (what, 0)));
        tell(context, ends, "end early, too");
        tell(context, self.missing(context.channels), "never came, too");
        Ok(Vec::new())
    }

    /// Every channel says how long the log is, whether or not it is watched.
    fn query(&self) -> FoldQuery {
        FoldQuery { keeps_times: true, ..FoldQuery::default() }
    }

    fn holds(&self) -> bool {
        false
    }
}

impl Gaps {
    /// Makes room for channels that are new.
    fn meet(&mut self, channels: &Channels) {
        for channel in channels.since(self.silences.len()) {
            let patterns = &self.options.channels;
            let watched = patterns.is_empty() || patterns.matches(channel.name.text());
            let expected = self.rates.interval(channel.name.text());
            self.silences.push(Silence::of(&channel, watched, expected));
        }
    }

    /// What `look` says of watched channels, with its number, by their names.
    fn told(
        &self,
        names: &[String],
        look: impl Fn(&Silence) -> Option<(String, u64)>,
    ) -> BTreeMap<String, u64> {
        let watched = self.silences.iter().zip(names).filter(|(silence, _)| silence.watched);
        let told = watched.filter_map(|(silence, name)| {
            let (what, count) = look(silence)?;
            Some((format!("{name}: {what}"), count))
        });
        told.collect()
    }

    /// What is to be said of silences between events, and how many there were.
    fn gaps(&self, silence: &Silence) -> Option<(String, u64)> {
        let (allowed, Gap { length, after }) = (self.allowed(silence)?, silence.longest);
        if length <= allowed {
            return None;
        }
        let (length, after) = (seconds(length), moment(after, silence.clock));
        let what = format!("fell silent; the longest gap is {length}, after {after}");
        Some((what, silence.long.longer_than(allowed).max(1)))
    }

    /// What is to be said of a silence that lasts until the end.
    fn end(&self, silence: &Silence, ends: &Ends) -> Option<String> {
        let (allowed, last) = (self.allowed(silence)?, silence.last?);
        let length = end_of(silence.clock, ends)?.saturating_sub(last);
        let (missing, last) = (seconds(length), moment(last, silence.clock));
        (length > allowed).then(|| format!("nothing after {last}, {missing} before the end"))
    }

    /// How long the channel may be silent; nothing where it is not known what is usual.
    fn allowed(&self, silence: &Silence) -> Option<i64> {
        let longer_than = self.options.longer_than.0;
        let usual = || rates::usual(&silence.short, &silence.long);
        let allowed = match (silence.expected, self.options.factor) {
            (Some(interval), _) => rates::allowed_of_expected(interval),
            (None, None) => usual()?.allowed(),
            (None, Some(0.0)) => 0,
            (None, Some(factor)) => usual()?.allowed_by_factor(factor, longer_than)?,
        };
        Some(allowed.max(longer_than))
    }

    /// The channels of `rates` on which no event came at all.
    fn missing(&self, channels: &Channels) -> BTreeMap<String, u64> {
        let channels = channels.since(0);
        let with_events = channels.iter().zip(&self.silences);
        let with_events: Vec<&str> = with_events
            .filter(|(_, silence)| silence.has_events())
            .map(|(channel, _)| channel.name.text())
            .collect();
        let missing = self.rates.unmatched(&with_events);
        missing
            .map(|pattern| (format!("{pattern}: events are expected, and none came"), 0))
            .collect()
    }

    /// Decides about the last events of channels, after which none came that could. Gives the end of the log
    /// by each clock.
    fn settle(&mut self) -> Ends {
        let mut ends = Ends::new();
        for silence in &self.silences {
            if end_of(silence.clock, &ends).is_none() {
                let alike = self.silences.iter().filter(|other| other.clock == silence.clock);
                ends.extend(supported_end(alike).map(|end| (silence.clock, end)));
            }
        }
        for silence in &mut self.silences {
            let end = end_of(silence.clock, &ends);
            let odd = silence.odd.take().filter(|odd| end.is_some_and(|end| *odd <= end));
            if let Some(odd) = odd.filter(|odd| silence.last.is_some_and(|last| *odd > last)) {
                silence.follow(odd, self.options.longer_than.0);
            }
        }
        ends
    }
}

impl Silence {
    fn of(channel: &Channel, watched: bool, expected: Option<i64>) -> Self {
        let (short, long) = (Intervals::default(), Intervals::default());
        let (clock, last, longest) = (channel.clock, None, Gap::default());
        let (odd, supported) = (None, false);
        Self { watched, expected, clock, last, odd, supported, short, long, longest }
    }

    /// Takes the channel's next event. What came late ends no silence.
    fn push(&mut self, time: i64, longer_than: i64) {
        let Some(last) = self.last else {
            self.last = Some(time);
            return;
        };
        let is_odd = |last: i64| {
            let length = time.saturating_sub(last);
            length > longer_than || length < -LATE
        };
        match self.odd.take() {
            Some(odd) if time.abs_diff(odd) < time.abs_diff(last) => {
                self.follow(odd, longer_than);
                self.follow(time, longer_than);
            }
            _ if is_odd(last) => self.odd = Some(time),
            _ => self.follow(time, longer_than),
        }
    }

    /// Takes an event whose time is believed.
    fn follow(&mut self, time: i64, longer_than: i64) {
        let Some(after) = self.last else { return };
        let length = time.saturating_sub(after);
        // Of a channel's first event nothing says that its time is right.
        let anew = length < -LATE || length > LATE && !self.supported;
        self.supported = true;
        if anew || length >= 0 {
            self.last = Some(time);
        }
        if self.watched && !anew && length >= 0 {
            self.count(length, after, longer_than);
        }
    }

    fn count(&mut self, length: i64, after: i64, longer_than: i64) {
        let kind = if length > longer_than { &mut self.long } else { &mut self.short };
        kind.push(length);
        if length > self.longest.length {
            self.longest = Gap { length, after };
        }
    }

    fn has_events(&self) -> bool {
        self.last.is_some()
    }

    /// The latest times it knows, and whether several events say so.
    fn latest(&self) -> impl Iterator<Item = (i64, bool)> {
        let last = self.last.map(|last| (last, self.supported));
        last.into_iter().chain(self.odd.map(|odd| (odd, false)))
    }
}

/// The end of the log by each clock.
type Ends = Vec<(Clock, i64)>;

fn end_of(clock: Clock, ends: &Ends) -> Option<i64> {
    ends.iter().find(|(other, _)| *other == clock).map(|(_, end)| *end)
}

/// The latest time of these channels that more than one event supports.
fn supported_end<'s>(silences: impl Iterator<Item = &'s Silence>) -> Option<i64> {
    let mut times: Vec<(i64, bool)> = silences.flat_map(Silence::latest).collect();
    times.sort_unstable_by(|a, b| b.cmp(a));
    let before = times.iter().skip(1).map(|(time, _)| Some(*time)).chain([None]);
    let near = |time: i64, before: Option<i64>| {
        before.is_some_and(|before| time.saturating_sub(before) <= LATE)
    };
    let mut ends = times.iter().zip(before);
    ends.find(|((time, supported), before)| *supported || near(*time, *before)).map(|end| end.0.0)
}

/// The names of channels that have events, with their sources where names are not enough.
fn names(channels: &Channels, silences: &[Silence]) -> Vec<String> {
    let channels = channels.since(0);
    let (mut met, mut doubles) = (BTreeSet::new(), BTreeSet::new());
    for (channel, _) in channels.iter().zip(silences).filter(|(_, s)| s.last.is_some()) {
        let name = channel.name.text();
        if !met.insert(name) {
            doubles.insert(name);
        }
    }
    let name = |channel: &Channel| match channel.name.text() {
        name if doubles.contains(name) => format!("{name} of {}", channel.source),
        name => name.to_owned(),
    };
    channels.iter().map(|channel| name(channel)).collect()
}

/// Notes what there is to say, of so many channels at most.
fn tell(context: &mut StageContext<'_>, told: BTreeMap<String, u64>, too: &str) {
    let more = told.len().saturating_sub(MOST_NAMED);
    told.into_iter().take(MOST_NAMED).for_each(|(what, count)| context.note(what, count));
    if more > 0 {
        context.note(format!("{more} more channels {too}"), 0);
    }
}

/// A length of time in seconds, to the millisecond.
fn seconds(nanos: i64) -> String {
    let millis = nanos / 1_000_000;
    let text = format!("{}.{:03}", millis / 1000, millis % 1000);
    format!("{} s", text.trim_end_matches('0').trim_end_matches('.'))
}

fn moment(nanos: i64, clock: Clock) -> String {
    if clock == Clock::Relative {
        return format!("{} from the start", seconds(nanos));
    }
    let text = time::format(nanos);
    let Some((whole, fraction)) = text.strip_suffix('Z').and_then(|text| text.split_once('.'))
    else {
        return text;
    };
    match fraction.trim_end_matches('0') {
        "" => format!("{whole}Z"),
        fraction => format!("{whole}.{fraction}Z"),
    }
}

#[cfg(test)]
mod tests;
