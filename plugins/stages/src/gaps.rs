//! `gaps`: tells at the end which channels fell silent. Lets every event pass and changes none.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use sluice_core::schemars::JsonSchema;
use sluice_core::time::{self, Length};
use sluice_core::{
    Batch, Channel, Channels, Clock, Error, Fold, FoldQuery, OptionsError, Patterns, Stage,
    StageContext,
};

use crate::intervals::Intervals;

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
    pub longer_than: Length,
    /// A silence counts if it is longer than this many times the usual time between two events of the
    /// channel, too; nothing is said of channels of which it is not known what is usual, as they have few
    /// events or come in bursts. 0 leaves that out of account.
    #[serde(default = "factor")]
    pub factor: f64,
}

fn longer_than() -> Length {
    Length(1_000_000_000)
}

fn factor() -> f64 {
    10.0
}

/// Of more channels it is only said how many there are.
const MOST_NAMED: usize = 100;

/// With fewer intervals it is not known what is usual for a channel.
const FEWEST: u64 = 10;

/// Where nine of ten intervals may be this many times the usual one, events come in bursts.
const BURST: i64 = 10;

/// An event that is earlier than the one before by no more than this has come late. By more, the clock has
/// been set, or the time is wrong.
const LATE: i64 = 10_000_000_000;

struct Gaps {
    options: GapsOptions,
    /// By channel.
    silences: Vec<Silence>,
}

/// What is known of the times of a channel's events.
struct Silence {
    watched: bool,
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
        if !options.factor.is_finite() || options.factor < 0.0 {
            return Err(OptionsError::at("factor", "expected a number, 0 or more"));
        }
        Ok(Self::Fold(Box::new(Gaps { options, silences: Vec::new() })))
    }
}

sluice_core::register! {
    stage "gaps": GapsOptions,
    about: "tells which channels fell silent, and lets every event pass",
    sample: include_str!("../samples/gaps.toml"),
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
            self.silences.push(Silence::of(&channel, watched));
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
        let usual = silence.percentile(50)?;
        let GapsOptions { longer_than: Length(longer_than), factor, .. } = self.options;
        if factor > 0.0 && !silence.is_regular(usual, longer_than) {
            return None;
        }
        // Beyond the range of times it is the longest that can be.
        let times_usual = (usual as f64 * factor) as i64;
        Some(times_usual.max(longer_than))
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
    fn of(channel: &Channel, watched: bool) -> Self {
        let (short, long) = (Intervals::default(), Intervals::default());
        let (clock, last, longest) = (channel.clock, None, Gap::default());
        let (odd, supported) = (None, false);
        Self { watched, clock, last, odd, supported, short, long, longest }
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

    fn percentile(&self, percent: u128) -> Option<i64> {
        Intervals::percentile(&self.short, &self.long, percent)
    }

    /// Whether there are enough intervals to say that `usual` is, and few enough pauses that belong to it.
    fn is_regular(&self, usual: i64, longer_than: i64) -> bool {
        let enough = self.short.count() + self.long.count() >= FEWEST;
        // Pauses that are short beside a silence are never taken for one.
        let pause = self.percentile(90).filter(|pause| *pause > longer_than / 4);
        enough && pause.is_none_or(|pause| pause <= usual.saturating_mul(BURST))
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
mod tests {
    use crate::testing::Run;
    use serde_json::{Value, json};
    use sluice_core::Window;

    const START: i64 = 1_194_098_400_000_000_000;
    const MILLIS: i64 = 1_000_000;

    /// What is noted of events on these channels at these milliseconds.
    fn notes(options: Value, events: &[(&str, i64)]) -> Vec<(String, u64)> {
        let mut run = Run::of("gaps", options);
        let at = |millis: i64| START + millis * MILLIS;
        let mut events: Vec<_> = events.iter().map(|(name, time)| (*name, at(*time))).collect();
        events.sort_by_key(|event| event.1);
        let batch = run.batch(&events);
        let out = run.all([batch]).unwrap();
        assert_eq!((out.len(), run.filtered), (events.len(), 0));
        run.notes
    }

    fn steady(name: &str, times: impl Iterator<Item = i64>) -> Vec<(&str, i64)> {
        times.map(|time| (name, time)).collect()
    }

    #[test]
    fn silences_are_counted_and_the_longest_is_told() {
        let mut events = steady("POSE", (0..40_000).step_by(10));
        let gone = |time: &i64| !(5_000..7_500).contains(time) && !(9_000..20_240).contains(time);
        events.extend(steady("CAM", (0..40_000).step_by(20).filter(gone)));
        let told = "CAM: fell silent; the longest gap is 11.26 s, after 2007-11-03T14:00:08.98Z";
        assert_eq!(notes(json!({}), &events), [(told.to_owned(), 2)]);
        assert_eq!(notes(json!({ "channels": "POSE" }), &events), []);
        assert_eq!(notes(json!({ "longer_than": "3s" }), &events), [(told.to_owned(), 1)]);
    }

    #[test]
    fn a_channel_that_ends_before_the_others_is_told() {
        let mut events = steady("POSE", (0..=60_000).step_by(10));
        events.extend(steady("CAM", (0..=36_000).step_by(50)));
        let told = "CAM: nothing after 2007-11-03T14:00:36Z, 24 s before the end";
        assert_eq!(notes(json!({ "channels": "C*" }), &events), [(told.to_owned(), 0)]);
    }

    #[test]
    fn what_is_usual_for_a_slow_channel_is_no_gap() {
        let mut events = steady("STATUS", (0..200_000).step_by(5_000));
        events.extend([("ONCE", 3), ("POSE", 199_000)]);
        assert_eq!(notes(json!({}), &events), []);
        let (what, count) = &notes(json!({ "factor": 0.5 }), &events)[0];
        assert!(what.starts_with("STATUS: fell silent; the longest gap is 5 s"), "{what}");
        assert_eq!(*count, 39);
        events.extend(steady("STATUS", (260_000..300_000).step_by(5_000)));
        assert_eq!(notes(json!({ "channels": "STATUS" }), &events).len(), 1);
    }

    #[test]
    fn what_comes_out_of_order_is_no_gap() {
        let times = (0..1_000).map(|n| n * 10 - if n % 2 == 0 { 15 } else { 0 });
        let events: Vec<_> = times.map(|time| ("A", START + time * MILLIS)).collect();
        let mut run = Run::of("gaps", json!({}));
        let batch = run.batch(&events);
        run.all([batch]).unwrap();
        assert_eq!(run.notes, []);
    }

    #[test]
    fn notes_are_few_however_many_channels_there_are() {
        let names: Vec<String> = (0..150).map(|n| format!("C{n:03}")).collect();
        let mut events = Vec::new();
        for name in &names {
            events.extend(steady(name, (0..12).chain([9_000])));
        }
        events.extend(steady("LAST", (0..20_000).step_by(10)));
        let notes = notes(json!({}), &events);
        let more = [("50 more channels have gaps, too", 0), ("50 more channels end early, too", 0)];
        let more = more.map(|(what, count)| (what.to_owned(), count));
        assert_eq!((notes.len(), &notes[100], &notes[201]), (202, &more[0], &more[1]));
    }

    #[test]
    fn wild_times_are_told_and_harm_nothing() {
        let events: Vec<_> = [0, i64::MAX, i64::MIN, 5, 6, 7].map(|time| ("A", time)).into();
        let mut run = Run::of("gaps", json!({ "factor": 1e300 }));
        let batch = run.batch(&events);
        run.all([batch]).unwrap();
        assert_eq!(run.notes, []);
        let mut run = Run::of("gaps", json!({}));
        let batch = run.batch(&events);
        run.all([batch]).unwrap();
        assert_eq!(run.notes, []);
    }

    /// What is noted of events in this order, at these milliseconds.
    fn notes_in_order(events: &[(&str, i64)], wanted: Window) -> Vec<(String, u64)> {
        let mut run = Run::of("gaps", json!({}));
        run.wanted = wanted;
        let at = |(name, millis): &(_, i64)| (*name, START + millis * MILLIS);
        let batch = run.batch(&events.iter().map(at).collect::<Vec<_>>());
        run.all([batch]).unwrap();
        run.notes
    }

    const YEAR: i64 = 31_536_000_000;

    #[test]
    fn one_wrong_time_is_no_silence_and_not_the_end() {
        for wrong in [-YEAR, -20_000, 30_000, YEAR, 200 * YEAR] {
            for place in [0, 1, 500, 999, 1000] {
                let mut events = steady("A", (0..10_000).step_by(10));
                events.insert(place, ("A", wrong));
                events.extend(steady("B", (9_500..10_000).step_by(10)));
                let notes = notes_in_order(&events, Window::default());
                assert_eq!(notes, [], "{wrong} at {place}");
            }
        }
    }

    #[test]
    fn a_clock_that_is_set_begins_anew() {
        let mut events = steady("A", (0..10_000).step_by(10));
        events.extend(steady("A", (-60_000..-50_000).step_by(10)));
        assert_eq!(notes_in_order(&events, Window::default()), []);
        events.extend(steady("A", (-47_000..-46_000).step_by(10)));
        let told = "A: fell silent; the longest gap is 3.01 s, after 2007-11-03T13:59:09.99Z";
        assert_eq!(notes_in_order(&events, Window::default()), [(told.to_owned(), 1)]);
    }

    #[test]
    fn what_is_late_does_not_make_the_silence_after_it_longer() {
        let mut events = steady("A", (0..10_000).step_by(10));
        events.push(("A", 4_000));
        events.extend(steady("A", (10_000..20_000).step_by(10)));
        assert_eq!(notes_in_order(&events, Window::default()), []);
        let events = [steady("A", (0..10_000).step_by(10)), vec![("A", 4_000)]].concat();
        assert_eq!(notes_in_order(&events, Window::default()), []);
    }

    #[test]
    fn nothing_is_said_where_it_is_not_known_what_is_usual() {
        let mut events = steady("POSE", (0..60_000).step_by(10));
        events.extend(steady("FEW", (0..9).chain([40_000])));
        events.extend(steady("BURSTS", (0..50_000).step_by(2_500).flat_map(|at| at..at + 4)));
        assert_eq!(notes(json!({}), &events), []);
        events.extend(steady("PAIRS", (0..40_000).step_by(100).flat_map(|at| [at, at])));
        let told = "PAIRS: nothing after 2007-11-03T14:00:39.9Z, 20.09 s before the end";
        assert_eq!(notes(json!({}), &events), [(told.to_owned(), 0)]);
        assert_eq!(notes(json!({ "factor": 0 }), &events).len(), 5);
    }

    #[test]
    fn only_the_window_that_is_wanted_is_told_of() {
        let times = (0..60_000).step_by(10);
        let mut events = steady("A", times.filter(|time| !(10_000..30_000).contains(time)));
        events.extend(steady("B", (0..60_000).step_by(10)));
        let window = |start: i64, end: i64| {
            let at = |millis: i64| Some(START + millis * MILLIS);
            Window { start: at(start), end: at(end) }
        };
        assert_eq!(notes_in_order(&events, window(0, 10_000)), []);
        assert_eq!(notes_in_order(&events, window(30_000, 60_000)), []);
        let told = "A: nothing after 2007-11-03T14:00:09.99Z, 5 s before the end";
        assert_eq!(notes_in_order(&events, window(0, 15_000)), [(told.to_owned(), 0)]);
    }

    #[test]
    fn every_channel_is_needed_in_the_window_that_is_wanted() {
        let query = Run::of("gaps", json!({ "channels": "A" })).fold_query();
        assert!(query.keeps_times && !query.keeps_channels);
        assert_eq!((query.reach, query.also), (0, None));
    }

    #[test]
    fn options_that_make_no_sense_are_refused() {
        assert_eq!(Run::refusal("gaps", json!({ "longer_than": "-1s" })).path, ["longer_than"]);
        assert_eq!(Run::refusal("gaps", json!({ "factor": -1 })).path, ["factor"]);
    }
}
