//! Tests a source on its valid sample: as it is, in splits, with queries, and in the engine. For
//! damaged samples, see `damage_trial`.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sluice_kit::contract::{PlainEvent, overwrite};
use sluice_model::{BlockPool, ChannelQuery, Pattern, Patterns, Query, Source};

use crate::damage_trial::DamageTrial;
use crate::engine_run::{RUN_CONFIGS, resolve_options, run};
use crate::finding::Fault;
use crate::isolation::Cases;
use crate::reading::{
    ReadBounds, ReadMode, ReadResult, SplitOrder, claimed_count, read_all, read_with_mode,
    source_remarks,
};
use crate::subject::{SampleFile, TrialSubject};
use crate::{Promise, sniffing};

/// The value that a case leaves if the sample was read without faults.
const VALID: &str = "sound";

impl<'t> TrialSubject<'t> {
    /// The options, with the sample in some folder.
    pub(crate) fn options_anywhere(&self) -> Value {
        self.options(Path::new("."))
    }

    fn options(&self, folder: &Path) -> Value {
        let takes_path = self.plugin.option_names().iter().any(|name| name == "path");
        let first = self.trial.files.first().map_or("log", |(name, _)| name);
        resolve_options(&self.trial.options, folder, takes_path.then_some(first))
    }

    fn samples(&self) -> impl Iterator<Item = SampleFile<'t>> {
        let files = self.trial.files.iter().enumerate();
        files.map(|(place, (name, bytes))| SampleFile { place, name, bytes })
    }

    /// Runs all cases.
    pub(crate) fn try_all(&self, cases: &mut Cases) {
        let folder = cases.folder();
        self.write_all(&folder);
        let pool = BlockPool::new(1 << 20, 4);
        cases.case("the sample as it is", |cases| {
            let faults = self.sample_faults(&folder, &pool);
            if faults.is_empty() {
                cases.learn(json!(VALID));
            }
            faults
        });
        // Everything else is compared with this result.
        if !cases.learned().iter().any(|learned| learned == VALID) {
            return;
        }
        let Ok(source) = self.source(&folder) else { return };
        let mut valid = read_all(&*source, u64::MAX, &pool, self.bounds());
        valid.remarks.extend(source_remarks(&*source));
        cases.case("the sample in pieces", |_| self.in_pieces(&folder, &valid));
        cases.case("the sample, in part", |_| self.in_part(&folder, &valid, &pool));
        cases.unlimited_case("the sample, run by the engine", |_| self.by_engine(&folder, &valid));
        if let Some(first) = self.trial.files.first().filter(|_| self.is_single(&folder)) {
            cases.case("first bytes of files", |_| self.sniffed(&folder, &first.0));
        }
        let subject = DamageTrial { subject: self, folder, valid, pool };
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

    fn bounds(&self) -> ReadBounds {
        ReadBounds::of_length(self.len())
    }

    pub(crate) fn source(&self, folder: &Path) -> Result<Box<dyn Source>, Fault> {
        self.registry.source(self.plugin.name, self.options(folder)).map_err(|error| {
            let what = "the options of the trial are refused";
            Fault::new(Promise::Options, what, error.to_string())
        })
    }

    fn read(
        &self,
        folder: &Path,
        target: u64,
        pool: &BlockPool,
        bounds: ReadBounds,
    ) -> Result<ReadResult, Fault> {
        Ok(read_all(&*self.source(folder)?, target, pool, bounds))
    }

    /// Whether it reads a single input.
    pub(crate) fn is_single(&self, folder: &Path) -> bool {
        let inputs = self.source(folder).ok().and_then(|source| source.inputs().ok());
        inputs.is_some_and(|inputs| inputs.len() == 1)
    }

    fn sample_faults(&self, folder: &Path, pool: &BlockPool) -> Vec<Fault> {
        let read = match self.read(folder, u64::MAX, pool, self.bounds()) {
            Ok(read) => read,
            Err(fault) => return vec![fault],
        };
        let wrong = |what: &str, detail: &str| vec![Fault::new(Promise::Damage, what, detail)];
        if let Some(endless) = &read.endless {
            let what = "it returns more than its input can hold";
            return vec![Fault::new(Promise::Termination, what, endless)];
        }
        if let Some(error) = &read.error {
            return wrong("a valid sample cannot be read", error);
        }
        if let Some(damage) = read.damage.first() {
            return wrong("damage is reported in a valid sample", &damage.reason);
        }
        if read.events.is_empty() {
            return wrong("the sample has no event: provide one with some", "");
        }
        let count = read.events.len();
        if let Some(due) = self.trial.events.filter(|due| *due != count) {
            let what = "the sample yields another number of events than it has";
            let detail = format!("it yields {count} events instead of {due}");
            return vec![Fault::new(Promise::Accounting, what, detail)];
        }
        self.count_fault(folder, &read).into_iter().collect()
    }

    /// Checks that the stated number of events is right.
    fn count_fault(&self, folder: &Path, read: &ReadResult) -> Option<Fault> {
        let source = self.source(folder).ok()?;
        let detail = match claimed_count(&*source).filter(|_| self.len() > 0)? {
            Ok(count) if count == read.events.len() as u64 => return None,
            Ok(count) => format!("{count} instead of {}", read.events.len()),
            Err(error) => error.to_string(),
        };
        let what = "`events_in` returns a wrong number of events";
        Some(Fault::new(Promise::Accounting, what, detail))
    }

    pub(crate) fn in_pieces(&self, folder: &Path, valid: &ReadResult) -> Vec<Fault> {
        let mut faults: Vec<Fault> = self.coverage_fault(folder).into_iter().collect();
        let differs = self.split_difference(folder, valid, self.bounds(), &self.targets());
        faults.extend(differs.or_else(|| {
            let targets =
                [(self.len() as u64 / 40).max(self.min_target().max(7)), self.len() as u64 / 3];
            self.order_difference(folder, valid, self.bounds(), &targets)
        }));
        faults
    }

    /// Split sizes, without small ones for long samples.
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

    /// How the result differs with these split sizes and with small blocks.
    pub(crate) fn split_difference(
        &self,
        folder: &Path,
        whole: &ReadResult,
        bounds: ReadBounds,
        targets: &[u64],
    ) -> Option<Fault> {
        let blocks = [1 << 20, 100, 4096];
        let modes = targets.iter().zip(blocks.into_iter().cycle());
        // Made-up events do not use blocks, and take their time.
        let as_a_whole: &[(&u64, usize)] = match self.len() {
            0 => &[],
            _ => &[(&u64::MAX, 29), (&u64::MAX, 1000)],
        };
        for (target, block) in modes.chain(as_a_whole.iter().copied()) {
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
                let what = "the result depends on how the input is split";
                let detail = format!("{pieces}, through blocks of {block} bytes: {how}");
                return Some(Fault::new(Promise::Splitting, what, detail));
            }
        }
        None
    }

    /// How the result differs if splits of these sizes are not read in order.
    pub(crate) fn order_difference(
        &self,
        folder: &Path,
        whole: &ReadResult,
        bounds: ReadBounds,
        targets: &[u64],
    ) -> Option<Fault> {
        let turns = [
            (SplitOrder::Backwards, "the last one first"),
            (SplitOrder::Beside, "on three threads"),
        ];
        let pool = BlockPool::new(4096, 8);
        for (target, (turns, how_read)) in
            targets.iter().flat_map(|target| turns.map(|turns| (*target, turns)))
        {
            let source = match self.source(folder) {
                Ok(source) => source,
                Err(fault) => return Some(fault),
            };
            let mode = ReadMode { order: turns, ..ReadMode::in_pieces(target) };
            if let Some(how) = whole.difference(&read_with_mode(&*source, &mode, &pool, bounds)) {
                let what = "the result depends on the order in which splits are read";
                let detail = format!("in pieces of {target} bytes, {how_read}: {how}");
                return Some(Fault::new(Promise::Threads, what, detail));
            }
        }
        None
    }

    /// Checks that a query yields what filtering everything would.
    fn in_part(&self, folder: &Path, valid: &ReadResult, pool: &BlockPool) -> Vec<Fault> {
        let third = (self.len() as u64 / 3).max(self.min_target());
        for target in [u64::MAX, third] {
            for (words, query) in queries(valid) {
                let read = |query: Query| {
                    let mode = ReadMode { query, ..ReadMode::in_pieces(target) };
                    let source = self.source(folder)?;
                    Ok(read_with_mode(&*source, &mode, pool, self.bounds()))
                };
                let (all, few) = match (read(Query::default()), read(query.clone())) {
                    (Ok(all), Ok(few)) => (all, few),
                    (Err(fault), _) | (_, Err(fault)) => return vec![fault],
                };
                let only = |ReadResult { events, error, .. }: ReadResult| ReadResult {
                    events: select_events(events, &query),
                    error,
                    ..ReadResult::default()
                };
                if let Some(how) = only(all).difference(&only(few)) {
                    let what = "a query does not yield what filtering everything would";
                    let detail = format!("asked for {words}: {how}");
                    return vec![Fault::new(Promise::Query, what, detail)];
                }
            }
        }
        Vec::new()
    }

    /// The smallest split size of a source that makes up its events: it has no length.
    fn min_target(&self) -> u64 {
        if self.len() == 0 { 1 << 20 } else { 1 }
    }

    /// Checks that the splits cover the inputs exactly once.
    fn coverage_fault(&self, folder: &Path) -> Option<Fault> {
        let source = self.source(folder).ok()?;
        let target = (self.len() as u64 / 4).max(1);
        let splits = source.splits(target, &Query::default()).ok()?;
        let inputs = source.inputs().ok()?;
        let wrong = |detail: String| {
            Some(Fault::new(
                Promise::Splitting,
                "splits do not cover the inputs exactly once",
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
        // Inputs that are read together, such as a folder of tables, have one split with any name.
        let is_by_input = inputs.len() == 1 || seen.len() > 1;
        let missed = inputs.iter().find(|input| !seen.contains(&&*input.path));
        missed
            .filter(|input| is_by_input && input.bytes != Some(0))
            .and_then(|input| wrong(format!("{} is not among them", input.path.display())))
    }

    /// How the result differs in the engine, with several thread counts and with little memory.
    pub(crate) fn by_engine(&self, folder: &Path, whole: &ReadResult) -> Vec<Fault> {
        let mut faults = Vec::new();
        for config in RUN_CONFIGS {
            let (jobs, memory) = config;
            let with = format!("{jobs} threads and {memory} MiB");
            match run(self.plugin.name, &self.options(folder), config, self.registry) {
                Err(mistakes) => {
                    let what = "a pipeline with it is refused";
                    faults.push(Fault::new(Promise::Options, what, mistakes));
                }
                Ok(read) => faults.extend(whole.difference(&read).map(|how| {
                    let what = "the result in the engine differs";
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

impl SampleFile<'_> {
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

/// Queries for parts of the sample, with descriptions.
fn queries(valid: &ReadResult) -> Vec<(String, Query)> {
    let mut times: Vec<i64> = valid.events.iter().map(|event| event.timestamp).collect();
    times.sort_unstable();
    let at = |numerator: usize| times.get(times.len() * numerator / 4).copied();
    let window = |start: Option<i64>, end: Option<i64>| Query { start, end, ..Query::default() };
    let mut queries = vec![
        window(at(2), None),
        window(None, at(2)),
        window(at(1), at(3)),
        // Ends are easily off by one: a window that only contains the last event.
        window(times.last().copied(), times.last().map(|last| last.saturating_add(1))),
    ];
    let first = valid.events.first().map(|event| &event.channel[..]);
    let last = valid.events.last().map(|event| &event.channel[..]);
    for name in first.into_iter().chain(last.filter(|last| first != Some(last))) {
        let Ok(pattern) = Pattern::parse(name) else { continue };
        let (names, none) = (Patterns(vec![pattern]), Patterns::default());
        let only = ChannelQuery::from_patterns(&names, &none, &none);
        let others = ChannelQuery::from_patterns(&none, &names, &none);
        queries.push(Query { channels: only.clone(), ..window(at(1), at(3)) });
        queries.extend([only, others].map(|channels| Query { channels, ..Query::default() }));
    }
    queries.into_iter().map(|query| (describe_query(&query), query)).collect()
}

fn describe_query(query: &Query) -> String {
    let time = |time: Option<i64>, open: &str| time.map_or(open.to_owned(), |at| at.to_string());
    let times = format!(
        "times from {} to before {}",
        time(query.start, "the beginning"),
        time(query.end, "the end")
    );
    let channels = if query.channels.is_all() { "" } else { ", and one channel or all others" };
    times + channels
}

/// The events that match a query.
fn select_events(mut events: Vec<PlainEvent>, query: &Query) -> Vec<PlainEvent> {
    events.retain(|event| {
        query.window().wants_time(event.timestamp)
            && query.channels.wants(&event.channel, &event.source)
    });
    events
}
