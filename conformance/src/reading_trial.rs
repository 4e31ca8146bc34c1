//! What is tried by reading a source's sound sample: as it is, in pieces, in part, and by the engine. What becomes of
//! damaged ones is tried beside it.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sluice_core::contract::{PlainEvent, overwrite};
use sluice_core::{
    BlockPool, ChannelQuery, Pattern, Patterns, Plugin, PluginFactory, Query, Registry, Source,
};

use crate::damage_trial::Damaged;
use crate::finding::Fault;
use crate::isolation::Cases;
use crate::reading::{Bounds, Manner, Read, Turns, counted, read_all, read_as, said};
use crate::running::{MANNERS, resolved, run};
use crate::source::SourceTrial;
use crate::{Promise, sniffing};

/// What a case has learned when the sample was found to be sound.
const SOUND: &str = "sound";

/// A source and what it is tried with.
pub(crate) struct Subject<'t> {
    pub(crate) trial: &'t SourceTrial,
    pub(crate) plugin: &'t Plugin,
    pub(crate) registry: &'t Registry,
}

/// A file of the sample.
pub(crate) struct Sample<'t> {
    pub(crate) place: usize,
    pub(crate) name: &'t str,
    pub(crate) bytes: &'t [u8],
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

    pub(crate) fn len(&self) -> usize {
        self.samples().map(|sample| sample.bytes.len()).sum()
    }

    fn bounds(&self) -> Bounds {
        Bounds::of_length(self.len())
    }

    pub(crate) fn source(&self, folder: &Path) -> Result<Box<dyn Source>, Fault> {
        let PluginFactory::Source(make) = self.plugin.make else {
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
    pub(crate) fn is_single(&self, folder: &Path) -> bool {
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

    pub(crate) fn in_pieces(&self, folder: &Path, sound: &Read) -> Vec<Fault> {
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
    pub(crate) fn cut_otherwise(
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
    pub(crate) fn in_turns(
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
    pub(crate) fn by_engine(&self, folder: &Path, whole: &Read) -> Vec<Fault> {
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
    pub(crate) fn path(&self, folder: &Path) -> PathBuf {
        folder.join(self.name)
    }

    pub(crate) fn write(&self, folder: &Path, bytes: &[u8]) {
        let path = self.path(folder);
        let parent = path.parent().unwrap_or(folder);
        let written = fs::create_dir_all(parent).and_then(|()| overwrite(&path, bytes));
        written.expect("a sample can be written into the build's own folder");
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
        let only = ChannelQuery::from_patterns(&names, &none, &none);
        let others = ChannelQuery::from_patterns(&none, &names, &none);
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
