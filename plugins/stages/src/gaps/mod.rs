//! Stage `gaps`: reports at the end which channels fell silent. Passes every event unchanged.
//!
//! `rates` computes how long a channel may be silent.

mod rates;

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use sluice_model::options::CHANNELS_FORMAT;
use sluice_model::schemars::JsonSchema;
use sluice_model::time::{self, TimeSpan};
use sluice_model::{
    Batch, Channel, Channels, Clock, Error, Fold, FoldQuery, OptionsError, Patterns, Stage,
    StageContext,
};

use crate::histogram::Histogram;
use rates::Rates;

/// Options of `gaps`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(crate = "sluice_model::schemars")]
pub(crate) struct GapsOptions {
    /// The channels to watch. Default: all.
    #[serde(default)]
    pub(crate) channels: Patterns,
    /// Only longer silences count.
    #[serde(default = "longer_than")]
    pub(crate) longer_than: TimeSpan,
    /// A silence must also be longer than this many times the median interval of the channel. 0
    /// turns this off. Default: by how regular the intervals are. Unless it is 0, channels with too
    /// few events to tell are not reported.
    pub(crate) factor: Option<f64>,
    /// The expected rate in events per second, by channel or pattern of channels. A silence of such
    /// a channel counts if it is longer than nearly two intervals and than `longer_than`.
    #[serde(default)]
    #[schemars(extend("propertyNames" = { "type": "string", "format": CHANNELS_FORMAT }))]
    pub(crate) rates: BTreeMap<String, f64>,
}

fn longer_than() -> TimeSpan {
    TimeSpan(1_000_000_000)
}

/// The maximum number of channels to name; further ones are counted.
const MAX_NAMED: usize = 100;

/// An event that is earlier than its predecessor by at most this is late. Otherwise, the clock was
/// set or the time is wrong.
const MAX_LATE: i64 = 10_000_000_000;

struct Gaps {
    options: GapsOptions,
    rates: Rates,
    /// By channel.
    tracks: Vec<ChannelTrack>,
}

/// The event times of a channel.
struct ChannelTrack {
    watched: bool,
    /// The expected interval, if given.
    expected: Option<i64>,
    clock: Clock,
    /// The time of the latest event.
    last: Option<i64>,
    /// The time of the last event, if it is far from the previous one: the next event decides which
    /// is wrong.
    outlier: Option<i64>,
    /// Whether more than one event confirms `last`.
    supported: bool,
    /// Intervals that are not longer than allowed.
    short: Histogram,
    /// Intervals that are longer.
    long: Histogram,
    longest: Gap,
}

/// An interval without an event.
#[derive(Clone, Copy, Default)]
struct Gap {
    length: i64,
    /// The time of the event before it.
    after: i64,
}

impl TryFrom<GapsOptions> for Stage {
    type Error = OptionsError;

    fn try_from(options: GapsOptions) -> Result<Self, OptionsError> {
        if options.factor.is_some_and(|factor| !factor.is_finite() || factor < 0.0) {
            return Err(OptionsError::at("factor", "expected a number, 0 or more"));
        }
        let rates = Rates::parse(&options.rates)?;
        Ok(Self::Fold(Box::new(Gaps { options, rates, tracks: Vec::new() })))
    }
}

sluice_model::register! {
    stage "gaps": GapsOptions,
    about: "reports channels that fall silent, and passes every event",
    sample: include_str!("../../samples/gaps.toml"),
}

impl Fold for Gaps {
    fn push(&mut self, batch: Batch, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        self.add_channels(context.channels);
        let longer_than = self.options.longer_than.nanos();
        for (channel, time) in batch.channels().iter().zip(batch.timestamps()) {
            if context.window.wants_time(*time) {
                self.tracks[*channel as usize].push(*time, longer_than);
            }
        }
        Ok(crate::unless_empty(batch))
    }

    fn finish(&mut self, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        let ends = self.resolve_outliers();
        let names = names(context.channels, &self.tracks);
        let gaps = self.notes_by_channel(&names, |track| self.gaps(track));
        note_all(context, gaps, "also have gaps");
        let ends =
            self.notes_by_channel(&names, |track| self.end(track, &ends).map(|what| (what, 0)));
        note_all(context, ends, "also end early");
        note_all(context, self.missing(context.channels), "also have no events");
        Ok(Vec::new())
    }

    /// All channels determine how long the log is, watched or not.
    fn query(&self) -> FoldQuery {
        FoldQuery { keeps_times: true, ..FoldQuery::default() }
    }

    fn delays_events(&self) -> bool {
        false
    }
}

impl Gaps {
    /// Adds channels that are new.
    fn add_channels(&mut self, channels: &Channels) {
        for channel in channels.since(self.tracks.len()) {
            let patterns = &self.options.channels;
            let watched = patterns.is_empty() || patterns.matches(channel.name.text());
            let expected = self.rates.interval(channel.name.text());
            self.tracks.push(ChannelTrack::new(&channel, watched, expected));
        }
    }

    /// Messages of `look` for watched channels, with their counts.
    fn notes_by_channel(
        &self,
        names: &[String],
        look: impl Fn(&ChannelTrack) -> Option<(String, u64)>,
    ) -> BTreeMap<String, u64> {
        let watched = self.tracks.iter().zip(names).filter(|(track, _)| track.watched);
        let notes_by_channel = watched.filter_map(|(track, name)| {
            let (what, count) = look(track)?;
            Some((format!("{name}: {what}"), count))
        });
        notes_by_channel.collect()
    }

    /// The message about gaps between events, and their number.
    fn gaps(&self, track: &ChannelTrack) -> Option<(String, u64)> {
        let (allowed, Gap { length, after }) = (self.allowed(track)?, track.longest);
        if length <= allowed {
            return None;
        }
        let (length, after) = (seconds(length), moment(after, track.clock));
        let what = format!("fell silent; the longest gap is {length}, after {after}");
        Some((what, track.long.longer_than(allowed).max(1)))
    }

    /// The message about a gap that lasts until the end.
    fn end(&self, track: &ChannelTrack, ends: &LogEnds) -> Option<String> {
        let (allowed, last) = (self.allowed(track)?, track.last?);
        let length = end_by_clock(track.clock, ends)?.saturating_sub(last);
        let (missing, last) = (seconds(length), moment(last, track.clock));
        (length > allowed).then(|| format!("nothing after {last}, {missing} before the end"))
    }

    /// How long the channel may be silent; `None` if too few events are known.
    fn allowed(&self, track: &ChannelTrack) -> Option<i64> {
        let longer_than = self.options.longer_than.nanos();
        let typical = || rates::typical(&track.short, &track.long);
        let allowed = match (track.expected, self.options.factor) {
            (Some(interval), _) => rates::allowed_for(interval),
            (None, None) => typical()?.allowed(),
            (None, Some(0.0)) => 0,
            (None, Some(factor)) => typical()?.allowed_by_factor(factor, longer_than)?,
        };
        Some(allowed.max(longer_than))
    }

    /// The patterns of `rates` without any event.
    fn missing(&self, channels: &Channels) -> BTreeMap<String, u64> {
        let channels = channels.since(0);
        let with_events = channels.iter().zip(&self.tracks);
        let with_events: Vec<&str> = with_events
            .filter(|(_, track)| track.has_events())
            .map(|(channel, _)| channel.name.text())
            .collect();
        let missing = self.rates.unmatched(&with_events);
        missing.map(|pattern| (format!("{pattern}: expected events, but none came"), 0)).collect()
    }

    /// Decides about each channel's last event, which no later event can confirm. Returns the end
    /// of the log by clock.
    fn resolve_outliers(&mut self) -> LogEnds {
        let mut ends = LogEnds::new();
        for track in &self.tracks {
            if end_by_clock(track.clock, &ends).is_none() {
                let alike = self.tracks.iter().filter(|other| other.clock == track.clock);
                ends.extend(supported_end(alike).map(|end| (track.clock, end)));
            }
        }
        for track in &mut self.tracks {
            let end = end_by_clock(track.clock, &ends);
            let outlier =
                track.outlier.take().filter(|outlier| end.is_some_and(|end| *outlier <= end));
            if let Some(outlier) =
                outlier.filter(|outlier| track.last.is_some_and(|last| *outlier > last))
            {
                track.accept(outlier, self.options.longer_than.nanos());
            }
        }
        ends
    }
}

impl ChannelTrack {
    fn new(channel: &Channel, watched: bool, expected: Option<i64>) -> Self {
        let (short, long) = (Histogram::default(), Histogram::default());
        let (clock, last, longest) = (channel.clock, None, Gap::default());
        let (outlier, supported) = (None, false);
        Self { watched, expected, clock, last, outlier, supported, short, long, longest }
    }

    /// Adds the channel's next event. A late event ends no gap.
    fn push(&mut self, time: i64, longer_than: i64) {
        let Some(last) = self.last else {
            self.last = Some(time);
            return;
        };
        let is_odd = |last: i64| {
            let length = time.saturating_sub(last);
            length > longer_than || length < -MAX_LATE
        };
        match self.outlier.take() {
            Some(outlier) if time.abs_diff(outlier) < time.abs_diff(last) => {
                self.accept(outlier, longer_than);
                self.accept(time, longer_than);
            }
            _ if is_odd(last) => self.outlier = Some(time),
            _ => self.accept(time, longer_than),
        }
    }

    /// Adds an event whose time is trusted.
    fn accept(&mut self, time: i64, longer_than: i64) {
        let Some(after) = self.last else { return };
        let length = time.saturating_sub(after);
        // Nothing confirms the time of a channel's first event.
        let restarts = length < -MAX_LATE || length > MAX_LATE && !self.supported;
        self.supported = true;
        if restarts || length >= 0 {
            self.last = Some(time);
        }
        if self.watched && !restarts && length >= 0 {
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

    /// Its latest times, and whether several events confirm them.
    fn latest(&self) -> impl Iterator<Item = (i64, bool)> {
        let last = self.last.map(|last| (last, self.supported));
        last.into_iter().chain(self.outlier.map(|outlier| (outlier, false)))
    }
}

/// The end of the log by clock.
type LogEnds = Vec<(Clock, i64)>;

fn end_by_clock(clock: Clock, ends: &LogEnds) -> Option<i64> {
    ends.iter().find(|(other, _)| *other == clock).map(|(_, end)| *end)
}

/// The latest time of these channels that more than one event confirms.
fn supported_end<'s>(tracks: impl Iterator<Item = &'s ChannelTrack>) -> Option<i64> {
    let mut times: Vec<(i64, bool)> = tracks.flat_map(ChannelTrack::latest).collect();
    times.sort_unstable_by(|a, b| b.cmp(a));
    let before = times.iter().skip(1).map(|(time, _)| Some(*time)).chain([None]);
    let near = |time: i64, before: Option<i64>| {
        before.is_some_and(|before| time.saturating_sub(before) <= MAX_LATE)
    };
    let mut ends = times.iter().zip(before);
    ends.find(|((time, supported), before)| *supported || near(*time, *before)).map(|end| end.0.0)
}

/// The name of each channel, with its source if several channels with events have that name.
fn names(channels: &Channels, tracks: &[ChannelTrack]) -> Vec<String> {
    let channels = channels.since(0);
    let (mut met, mut doubles) = (BTreeSet::new(), BTreeSet::new());
    for (channel, _) in channels.iter().zip(tracks).filter(|(_, s)| s.last.is_some()) {
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

/// Notes messages, up to [`MAX_NAMED`].
fn note_all(context: &mut StageContext<'_>, notes_by_channel: BTreeMap<String, u64>, too: &str) {
    let more = notes_by_channel.len().saturating_sub(MAX_NAMED);
    notes_by_channel
        .into_iter()
        .take(MAX_NAMED)
        .for_each(|(what, count)| context.note(what, count));
    if more > 0 {
        context.note(format!("{more} more channels {too}"), 0);
    }
}

/// A duration in seconds, to the millisecond.
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
