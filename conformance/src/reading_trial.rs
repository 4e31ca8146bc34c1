//! Everything that is tried by reading a source: its sample, pieces of it, the engine, and the sample cut
//! off and changed in every way.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sluice_core::contract::PlainEvent;
use sluice_core::{
    BlockPool, ChannelQuery, Make, Pattern, Patterns, Plugin, Query, Registry, Source,
};

use crate::extents::{Cut, Cuts, Extents};
use crate::finding::Fault;
use crate::hostile::{Change, changes};
use crate::isolation::Cases;
use crate::judge::{Judge, plausible};
use crate::reading::{Bounds, Manner, Read, Turns, counted, read_all, read_as, said};
use crate::running::{MANNERS, resolved, run};
use crate::source::SourceTrial;
use crate::{Promise, sniffing};

/// Samples up to this length are cut off behind every byte.
const SMALL: usize = 8 << 10;
/// How many bytes of longer samples are read, about, to see what cuts give.
const CUT_BUDGET: usize = 8 << 20;
/// How many bytes are read, about, to see what changes give, and how many changes there are.
const CHANGE_BUDGET: usize = 8 << 20;
const MOST_CHANGES: usize = 1_500;
const LEAST_CHANGES: usize = 64;
/// Every so many changes, the changed sample is read in pieces too.
const PIECES_EVERY: usize = 8;
/// How many changed samples are read by the engine.
const RUNS: usize = 3;
/// What a case has learned when the sample was found to be sound.
const SOUND: &str = "sound";

/// A source and what it is tried with.
pub(crate) struct Subject<'t> {
    pub(crate) trial: &'t SourceTrial,
    pub(crate) plugin: &'t Plugin,
    pub(crate) registry: &'t Registry,
}

/// A file of the sample.
struct Sample<'t> {
    place: usize,
    name: &'t str,
    bytes: &'t [u8],
}

impl<'t> Subject<'t> {
    /// Options as they would be with the sample in some folder.
    pub(crate) fn options_anywhere(&self) -> Value {
        self.options(Path::new("."))
    }

    fn options(&self, folder: &Path) -> Value {
        let takes_path = self.plugin.option_names().iter().any(|name| name == "path");
        let first = self.trial.files.first().map_or("log", |(name, _)| name);
        resolved(&self.trial.options, folder, takes_path.then_some(first))
    }

    fn samples(&self) -> impl Iterator<Item = Sample<'t>> {
        let files = self.trial.files.iter().enumerate();
        files.map(|(place, (name, bytes))| Sample { place, name, bytes })
    }

    /// Tries everything.
    pub(crate) fn try_all(&self, cases: &mut Cases) {
        let folder = cases.folder();
        self.write_all(&folder);
        let pool = BlockPool::new(1 << 20, 4);
        cases.case("the sample as it is", |cases| {
            let faults = self.sound(&folder, &pool);
            if faults.is_empty() {
                cases.learn(json!(SOUND));
            }
            faults
        });
        // All else is told by how it differs from the sound sample.
        if !cases.learned().iter().any(|learned| learned == SOUND) {
            return;
        }
        let Ok(source) = self.source(&folder) else { return };
        let mut sound = read_all(&*source, u64::MAX, &pool, self.bounds());
        sound.says.extend(said(&*source));
        cases.case("the sample in pieces", |_| self.in_pieces(&folder, &sound));
        cases.case("the sample, in part", |_| self.in_part(&folder, &sound, &pool));
        cases.roomy_case("the sample, run by the engine", |_| self.by_engine(&folder, &sound));
        if let Some(first) = self.trial.files.first().filter(|_| self.is_single(&folder)) {
            cases.case("first bytes of files", |_| self.sniffed(&folder, &first.0));
        }
        let subject = Damaged { subject: self, folder, sound, pool };
        for sample in self.samples() {
            subject.try_damage(cases, &sample);
        }
    }

    fn write_all(&self, folder: &Path) {
        for sample in self.samples() {
            sample.write(folder, sample.bytes);
        }
    }

    fn len(&self) -> usize {
        self.samples().map(|sample| sample.bytes.len()).sum()
    }

    fn bounds(&self) -> Bounds {
        Bounds::of_length(self.len())
    }

    fn source(&self, folder: &Path) -> Result<Box<dyn Source>, Fault> {
        let Make::Source(make) = self.plugin.make else {
            return Err(Fault::new(Promise::Options, "it is no source", String::new()));
        };
        make(self.options(folder)).map_err(|error| {
            let what = "the options of the trial are refused";
            Fault::new(Promise::Options, what, error.to_string())
        })
    }

    fn read(
        &self,
        folder: &Path,
        target: u64,
        pool: &BlockPool,
        bounds: Bounds,
    ) -> Result<Read, Fault> {
        Ok(read_all(&*self.source(folder)?, target, pool, bounds))
    }

    /// Whether it is read from one input.
    fn is_single(&self, folder: &Path) -> bool {
        let inputs = self.source(folder).ok().and_then(|source| source.inputs().ok());
        inputs.is_some_and(|inputs| inputs.len() == 1)
    }

    fn sound(&self, folder: &Path, pool: &BlockPool) -> Vec<Fault> {
        let read = match self.read(folder, u64::MAX, pool, self.bounds()) {
            Ok(read) => read,
            Err(fault) => return vec![fault],
        };
        let wrong = |what: &str, detail: &str| vec![Fault::new(Promise::Damage, what, detail)];
        if let Some(endless) = &read.endless {
            let what = "it gives more than there can be";
            return vec![Fault::new(Promise::Termination, what, endless)];
        }
        if let Some(error) = &read.error {
            return wrong("a sound sample cannot be read", error);
        }
        if let Some(damage) = read.damage.first() {
            return wrong("a sound sample is told to be damaged", &damage.reason);
        }
        if read.events.is_empty() {
            return wrong("the sample has no event: give one with some", "");
        }
        self.miscounted(folder, &read).into_iter().collect()
    }

    /// Whether it says another number of events than it gives.
    fn miscounted(&self, folder: &Path, read: &Read) -> Option<Fault> {
        let source = self.source(folder).ok()?;
        let detail = match counted(&*source).filter(|_| self.len() > 0)? {
            Ok(count) if count == read.events.len() as u64 => return None,
            Ok(count) => format!("{count} instead of {}", read.events.len()),
            Err(error) => error.to_string(),
        };
        let what = "`events_in` says another number of events than there are";
        Some(Fault::new(Promise::Books, what, detail))
    }

    fn in_pieces(&self, folder: &Path, sound: &Read) -> Vec<Fault> {
        let mut faults: Vec<Fault> = self.uncovered(folder).into_iter().collect();
        let differs = self.cut_otherwise(folder, sound, self.bounds(), &self.targets());
        faults.extend(differs.or_else(|| {
            let targets =
                [(self.len() as u64 / 40).max(self.least().max(7)), self.len() as u64 / 3];
            self.in_turns(folder, sound, self.bounds(), &targets)
        }));
        faults
    }

    /// Sizes of pieces. Of a long sample, there would be too many small ones.
    fn targets(&self) -> Vec<u64> {
        let len = self.len() as u64;
        if len == 0 {
            return vec![1 << 20];
        }
        let mut targets = vec![1, 7, 64, 1000, len / 3, len / 2, len.saturating_sub(1)];
        targets.retain(|target| *target > 0 && len / target <= 2_000);
        targets.push(len.max(1));
        targets
    }

    /// How what is read in pieces of these sizes, and through small blocks, differs.
    fn cut_otherwise(
        &self,
        folder: &Path,
        whole: &Read,
        bounds: Bounds,
        targets: &[u64],
    ) -> Option<Fault> {
        let blocks = [1 << 20, 100, 4096];
        let manners = targets.iter().zip(blocks.into_iter().cycle());
        // What is made up is not read through blocks, and takes its time.
        let as_a_whole: &[(&u64, usize)] = match self.len() {
            0 => &[],
            _ => &[(&u64::MAX, 29), (&u64::MAX, 1000)],
        };
        for (target, block) in manners.chain(as_a_whole.iter().copied()) {
            let pool = BlockPool::new(block, 2);
            let read = match self.read(folder, *target, &pool, bounds) {
                Ok(read) => read,
                Err(fault) => return Some(fault),
            };
            if let Some(how) = whole.difference(&read) {
                let pieces = match *target {
                    u64::MAX => "as a whole".to_owned(),
                    target => format!("in pieces of {target} bytes"),
                };
                let what = "another splitting gives something else";
                let detail = format!("{pieces}, through blocks of {block} bytes: {how}");
                return Some(Fault::new(Promise::Splitting, what, detail));
            }
        }
        None
    }

    /// How what is read in pieces of these sizes differs when they are not read one after another.
    fn in_turns(
        &self,
        folder: &Path,
        whole: &Read,
        bounds: Bounds,
        targets: &[u64],
    ) -> Option<Fault> {
        let turns = [(Turns::Backwards, "the last one first"), (Turns::Beside, "on three threads")];
        let pool = BlockPool::new(4096, 8);
        for (target, (turns, how_read)) in
            targets.iter().flat_map(|target| turns.map(|turns| (*target, turns)))
        {
            let source = match self.source(folder) {
                Ok(source) => source,
                Err(fault) => return Some(fault),
            };
            let manner = Manner { turns, ..Manner::in_pieces(target) };
            if let Some(how) = whole.difference(&read_as(&*source, &manner, &pool, bounds)) {
                let what = "pieces that are read in another order give something else";
                let detail = format!("in pieces of {target} bytes, {how_read}: {how}");
                return Some(Fault::new(Promise::Threads, what, detail));
            }
        }
        None
    }

    /// Whether what is asked for is missing where not all is asked for.
    fn in_part(&self, folder: &Path, sound: &Read, pool: &BlockPool) -> Vec<Fault> {
        let third = (self.len() as u64 / 3).max(self.least());
        for target in [u64::MAX, third] {
            for (words, query) in queries(sound) {
                let read = |query: Query| {
                    let manner = Manner { query, ..Manner::in_pieces(target) };
                    let source = self.source(folder)?;
                    Ok(read_as(&*source, &manner, pool, self.bounds()))
                };
                let (all, few) = match (read(Query::default()), read(query.clone())) {
                    (Ok(all), Ok(few)) => (all, few),
                    (Err(fault), _) | (_, Err(fault)) => return vec![fault],
                };
                let only = |Read { events, error, .. }: Read| Read {
                    events: wanted(events, &query),
                    error,
                    ..Read::default()
                };
                if let Some(how) = only(all).difference(&only(few)) {
                    let what = "what is asked for is not what reading all of it gives";
                    let detail = format!("asked for {words}: {how}");
                    return vec![Fault::new(Promise::Query, what, detail)];
                }
            }
        }
        Vec::new()
    }

    /// The smallest pieces of a source that makes its events up: there is no length to go by.
    fn least(&self) -> u64 {
        if self.len() == 0 { 1 << 20 } else { 1 }
    }

    /// Whether the splits leave something out, or have it twice.
    fn uncovered(&self, folder: &Path) -> Option<Fault> {
        let source = self.source(folder).ok()?;
        let target = (self.len() as u64 / 4).max(1);
        let splits = source.splits(target, &Query::default()).ok()?;
        let inputs = source.inputs().ok()?;
        let wrong = |detail: String| {
            Some(Fault::new(
                Promise::Splitting,
                "splits do not lie end to end in the inputs",
                detail,
            ))
        };
        let mut seen: Vec<&Path> = Vec::new();
        for (n, split) in splits.iter().enumerate() {
            let before = n.checked_sub(1).and_then(|before| splits.get(before));
            match before.filter(|before| before.input == split.input) {
                Some(before) if !before.is_followed_by(split) => {
                    return wrong(format!("{split:?}"));
                }
                Some(_) => {}
                None if seen.contains(&&*split.input) => return wrong(format!("{split:?}")),
                None => seen.push(&split.input),
            }
        }
        // What is read together, such as a folder of tables, has one split, by whatever name.
        let is_by_input = inputs.len() == 1 || seen.len() > 1;
        let missed = inputs.iter().find(|input| !seen.contains(&&*input.path));
        missed
            .filter(|input| is_by_input && input.bytes != Some(0))
            .and_then(|input| wrong(format!("{} is not among them", input.path.display())))
    }

    /// How what the engine reads differs, with any number of threads and little memory.
    fn by_engine(&self, folder: &Path, whole: &Read) -> Vec<Fault> {
        let mut faults = Vec::new();
        for manner in MANNERS {
            let (jobs, memory) = manner;
            let with = format!("{jobs} threads and {memory} MiB");
            match run(self.plugin.name, &self.options(folder), manner, self.registry) {
                Err(mistakes) => {
                    let what = "a pipeline with it is refused";
                    faults.push(Fault::new(Promise::Options, what, mistakes));
                }
                Ok(read) => faults.extend(whole.difference(&read).map(|how| {
                    let what = "run by the engine, it gives something else";
                    Fault::new(Promise::Threads, what, format!("{with}: {how}"))
                })),
            }
        }
        faults.truncate(1);
        faults
    }

    fn sniffed(&self, folder: &Path, name: &str) -> Vec<Fault> {
        let reads = &self.trial.reads;
        sniffing::faults(self.plugin, &folder.join(name), reads, (self.registry, folder))
    }
}

impl Sample<'_> {
    fn path(&self, folder: &Path) -> PathBuf {
        folder.join(self.name)
    }

    fn write(&self, folder: &Path, bytes: &[u8]) {
        let path = self.path(folder);
        let parent = path.parent().unwrap_or(folder);
        let written = fs::create_dir_all(parent).and_then(|()| fs::write(&path, bytes));
        written.expect("a sample can be written into the build's own folder");
    }
}

/// What to do about a format that cannot give a part of a file.
const DECLARE: &str = "if the format cannot do better, say `whole_or_nothing()`";

/// A source whose sample is damaged.
struct Damaged<'s, 't> {
    subject: &'s Subject<'t>,
    folder: PathBuf,
    sound: Read,
    pool: BlockPool,
}

impl Damaged<'_, '_> {
    fn try_damage(&self, cases: &mut Cases, sample: &Sample<'_>) {
        let mut judge = Judge::new(&self.sound, self.subject.trial.integrity);
        judge.is_single = sample.place == 0 && self.subject.is_single(&self.folder);
        judge.bytes = sample.bytes;
        judge.footer = self.subject.trial.footer;
        judge.is_divisible = judge.is_single && !self.subject.trial.whole_or_nothing;
        judge.header = if sample.place == 0 { self.subject.trial.header } else { 0 };
        judge.is_plain = !sluice_core::files::is_zstd(&sample.path(&self.folder)).unwrap_or(false);
        let cuts = self.try_cuts(cases, sample, &judge);
        self.try_silence(cases, sample, &judge, &cuts);
        self.try_giving_up(cases, sample, &judge, &cuts);
        let extents = judge
            .is_single
            .then(|| cuts.extents(self.sound.events.len(), sample.bytes.len()))
            .flatten()
            .map(|extents| extents.with_header(judge.header));
        judge.extents = extents.as_ref();
        self.try_changes(cases, sample, &judge, extents.as_ref());
        sample.write(&self.folder, sample.bytes);
    }

    fn bounds(&self) -> Bounds {
        Bounds::around(&self.sound, self.subject.len())
    }

    /// Reads the sample as it is now; asks what else there is to say where less was read and nothing told.
    fn read(&self) -> Result<Read, Fault> {
        let source = self.subject.source(&self.folder)?;
        let mut read = read_all(&*source, u64::MAX, &self.pool, self.bounds());
        read.says.retain(|what| !self.sound.says.contains(what));
        if !read.tells() && read.events.len() < self.sound.events.len() {
            read.says = said(&*source);
            read.says.retain(|what| !self.sound.says.contains(what));
        }
        Ok(read)
    }

    /// Tries cuts everywhere, or where they say most.
    fn try_cuts(&self, cases: &mut Cases, sample: &Sample<'_>, judge: &Judge<'_>) -> Cuts {
        let len = sample.bytes.len();
        for at in first_cuts(len) {
            self.try_cut(cases, sample, judge, at);
        }
        let mut cuts = learned(cases, sample, self.sound.events.len());
        if len > SMALL && judge.is_single {
            self.refine(cases, sample, judge, &mut cuts);
        }
        cuts
    }

    /// Finds where some of the events of a long sample end.
    fn refine(&self, cases: &mut Cases, sample: &Sample<'_>, judge: &Judge<'_>, cuts: &mut Cuts) {
        let events = self.sound.events.len();
        for event in some_events(events) {
            let (mut low, mut high) = cuts.around(event).unwrap_or_default();
            while low + 1 < high {
                let middle = low.midpoint(high);
                self.try_cut(cases, sample, judge, middle);
                *cuts = learned(cases, sample, events);
                let gives = cuts.at(middle).is_some_and(|cut| cut.events > event);
                (low, high) = if gives { (low, middle) } else { (middle, high) };
            }
            for at in (high + 1..high + 6).filter(|at| *at < sample.bytes.len()) {
                self.try_cut(cases, sample, judge, at);
            }
        }
        *cuts = learned(cases, sample, events);
    }

    fn try_cut(&self, cases: &mut Cases, sample: &Sample<'_>, judge: &Judge<'_>, at: usize) {
        let change = Change::cut(at, sample.bytes.len());
        let what = format!("{}: {change}", sample.name);
        cases.case(&what, |cases| {
            sample.write(&self.folder, &change.apply(sample.bytes));
            let read = match self.read() {
                Ok(read) => read,
                Err(fault) => return vec![fault],
            };
            let events = judge.prefix(&read);
            cases.learn(json!([sample.place, at, events, read.tells(), read.error.is_some()]));
            let mut faults = plausible(&read, &self.folder);
            faults.extend(judge.cut(at, &read));
            faults
        });
    }

    /// Whether a cut inside of an event is not told.
    fn try_silence(&self, cases: &mut Cases, sample: &Sample<'_>, judge: &Judge<'_>, cuts: &Cuts) {
        // Of what lies beside the first file, all that is not there may be told event by event.
        if judge.integrity == crate::Integrity::Nothing || !judge.is_single {
            return;
        }
        let Some((at, more)) = cuts.silent(sample.bytes.len()) else { return };
        let change = Change::cut(at, sample.bytes.len());
        cases.case(&format!("{}: {change}", sample.name), |_| {
            sample.write(&self.folder, &change.apply(sample.bytes));
            let what = "a cut inside of an event, or of what stands before it, is not told";
            vec![Fault::new(Promise::Damage, what, format!("nor are {more} others"))]
        });
    }

    /// Whether a cut costs events that lie in front of it.
    fn try_giving_up(
        &self,
        cases: &mut Cases,
        sample: &Sample<'_>,
        judge: &Judge<'_>,
        cuts: &Cuts,
    ) {
        if !judge.is_divisible {
            return;
        }
        let events = self.sound.events.len();
        let given_up = cuts.given_up(judge.header);
        // Of what is packed, nothing may be there before a block is whole.
        let is_all_or_nothing = judge.is_plain && events > 2 && cuts.gives_nothing(events);
        let half = sample.bytes.len() / 2;
        let Some((at, what, detail)) = given_up
            .map(|(at, lost, more)| {
                let detail = format!("{lost} are lost, and some with {more} other cuts");
                (at, "a cut costs events that lie in front of it", detail)
            })
            .or_else(|| {
                let detail = format!("none of {events} is given; {DECLARE}");
                is_all_or_nothing.then_some((half, "a cut file gives nothing at all", detail))
            })
        else {
            return;
        };
        let change = Change::cut(at, sample.bytes.len());
        cases.case(&format!("{}: {change}", sample.name), |_| {
            sample.write(&self.folder, &change.apply(sample.bytes));
            vec![Fault::new(Promise::Damage, what, detail)]
        });
    }

    fn try_changes(
        &self,
        cases: &mut Cases,
        sample: &Sample<'_>,
        judge: &Judge<'_>,
        extents: Option<&Extents>,
    ) {
        let len = sample.bytes.len();
        let files = self.subject.trial.files.len().max(1);
        let most = (CHANGE_BUDGET / len.max(1)).clamp(LEAST_CHANGES, MOST_CHANGES) / files;
        let mut places = vec![0, HEADER_AT, len.saturating_sub(64), len.saturating_sub(32)];
        places.extend(extents.map(|extents| extents.some_ends(6)).unwrap_or_default());
        let all = changes(sample.bytes, &places, most, self.subject.trial.seed);
        let run_every = all.len().div_ceil(RUNS);
        for (n, change) in all.iter().enumerate() {
            let what = format!("{}: {change}", sample.name);
            cases.case(&what, |_| self.changed(sample, judge, change, n % PIECES_EVERY == 0));
            if n % run_every == run_every - 1 {
                cases.roomy_case(&what, |_| self.run_changed(sample, change));
            }
        }
    }

    fn changed(
        &self,
        sample: &Sample<'_>,
        judge: &Judge<'_>,
        change: &Change,
        in_pieces: bool,
    ) -> Vec<Fault> {
        sample.write(&self.folder, &change.apply(sample.bytes));
        let read = match self.read() {
            Ok(read) => read,
            Err(fault) => return vec![fault],
        };
        let mut faults = plausible(&read, &self.folder);
        faults.extend(judge.changed(change, &read));
        // What has no end differs by where it was stopped.
        if in_pieces && read.endless.is_none() {
            // What it says of a damaged file may be wrong, but has to be said.
            drop(self.subject.source(&self.folder).map(|source| counted(&*source).is_some()));
            let target = (self.subject.len() as u64 / 50).max(64);
            let targets = [target, target * 9];
            let (folder, bounds) = (&self.folder, self.bounds());
            let other = self.subject.cut_otherwise(folder, &read, bounds, &targets);
            faults.extend(
                other.or_else(|| self.subject.in_turns(folder, &read, bounds, &targets[1..])),
            );
        }
        faults
    }

    fn run_changed(&self, sample: &Sample<'_>, change: &Change) -> Vec<Fault> {
        sample.write(&self.folder, &change.apply(sample.bytes));
        match self.read() {
            Ok(read) if read.endless.is_none() => {
                self.subject.by_engine(&self.folder, &read.in_reported_order())
            }
            _ => Vec::new(),
        }
    }
}

/// Parts of what a source gives, in words and as it is asked for them.
fn queries(sound: &Read) -> Vec<(String, Query)> {
    let mut times: Vec<i64> = sound.events.iter().map(|event| event.timestamp).collect();
    times.sort_unstable();
    let at = |numerator: usize| times.get(times.len() * numerator / 4).copied();
    let window = |start: Option<i64>, end: Option<i64>| Query { start, end, ..Query::default() };
    let mut queries = vec![
        window(at(2), None),
        window(None, at(2)),
        window(at(1), at(3)),
        // Ends are easily off by one: a window that just holds the last event.
        window(times.last().copied(), times.last().map(|last| last.saturating_add(1))),
    ];
    let first = sound.events.first().map(|event| &event.channel[..]);
    let last = sound.events.last().map(|event| &event.channel[..]);
    for name in first.into_iter().chain(last.filter(|last| first != Some(last))) {
        let Ok(pattern) = Pattern::parse(name) else { continue };
        let (names, none) = (Patterns(vec![pattern]), Patterns::default());
        let only = ChannelQuery::of(&names, &none, &none);
        let others = ChannelQuery::of(&none, &names, &none);
        queries.push(Query { channels: only.clone(), ..window(at(1), at(3)) });
        queries.extend([only, others].map(|channels| Query { channels, ..Query::default() }));
    }
    queries.into_iter().map(|query| (in_words(&query), query)).collect()
}

fn in_words(query: &Query) -> String {
    let time = |time: Option<i64>, open: &str| time.map_or(open.to_owned(), |at| at.to_string());
    let times = format!(
        "times from {} to before {}",
        time(query.start, "the beginning"),
        time(query.end, "the end")
    );
    let channels = if query.channels.is_all() { "" } else { ", and one channel or all others" };
    times + channels
}

/// What is left of these events where only some are asked for.
fn wanted(mut events: Vec<PlainEvent>, query: &Query) -> Vec<PlainEvent> {
    events.retain(|event| {
        query.window().wants_time(event.timestamp)
            && query.channels.wants(&event.channel, &event.source)
    });
    events
}

/// Behind what most headers begin with.
const HEADER_AT: usize = 24;

/// Where a file is cut off at first.
fn first_cuts(len: usize) -> Vec<usize> {
    if len <= SMALL {
        return (0..len).collect();
    }
    const EDGE: usize = 1024;
    // What is cut off anywhere has half of the length.
    let room = (CUT_BUDGET / (len / 2).max(1)).clamp(40, 1024);
    let edge = EDGE.min(room * 8);
    let stride = (len / room).max(1);
    let mut cuts: Vec<usize> = (0..edge).chain((0..len).step_by(stride)).collect();
    cuts.extend(len - edge.min(room)..len);
    cuts.sort_unstable();
    cuts.dedup();
    cuts
}

/// Some of so many events: the first and last ones, and some between.
fn some_events(events: usize) -> Vec<usize> {
    const BETWEEN: usize = 10;
    let mut some: Vec<usize> = (0..events).step_by(events.div_ceil(BETWEEN).max(1)).collect();
    some.extend((0..2).chain(events.saturating_sub(2)..events));
    some.retain(|event| *event < events);
    some.sort_unstable();
    some.dedup();
    some
}

/// What cutting off this file has given so far, also in processes that are no more.
fn learned(cases: &Cases, sample: &Sample<'_>, events: usize) -> Cuts {
    let mut cuts = Cuts::default();
    cuts.add(sample.bytes.len(), Cut { events, told: false, failed: false });
    for learned in cases.learned() {
        let number = |place: usize| learned.get(place).and_then(Value::as_u64).map(|n| n as usize);
        let told = learned.get(3).and_then(Value::as_bool);
        if let (Some(place), Some(at), Some(events), Some(told)) =
            (number(0), number(1), number(2), told)
            && place == sample.place
        {
            let failed = learned.get(4).and_then(Value::as_bool).unwrap_or(false);
            cuts.add(at, Cut { events, told, failed });
        }
    }
    cuts
}
