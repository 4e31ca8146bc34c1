//! Trials of sinks: what they write is whole, the same however it is run, and holds what they were given.

mod atomic;
mod back;
mod encoding;
mod files;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sluice_core::output::MANIFEST;
use sluice_core::output::faults::FaultInjector;
use sluice_core::{DynSink, Overwrite, Plugin, PluginFactory, PluginKind, Registry};
use sluice_pipeline::Report;
use sluice_pipeline::run::Options;

use crate::events::{Events, Gather, Replay};
use crate::finding::{Fault, Gathered, expect_none};
use crate::hostile::Dice;
use crate::isolation::{Isolation, is_other_process};
use crate::pipe::{EVENTS, Failure, Pipe, gathered, lasting, read, run};
use crate::private::registry;
use crate::running::filled;
use crate::{Finding, Promise, options};

use files::Tree;

pub use back::{EventOrder, FormatFidelity, TimeRounding};

/// A sink to be tried.
#[derive(Clone, Debug)]
#[must_use = "nothing is tried before `check` or `findings`"]
pub struct SinkTrial {
    plugin: String,
    options: Value,
    path: Option<String>,
    fed_by: Option<String>,
    reader: Option<Reader>,
    keeps: FormatFidelity,
    writes: Writes,
}

/// Whether files are to appear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Writes {
    Files,
    Nothing,
}

/// What reads a sink's output.
#[derive(Clone, Debug)]
struct Reader {
    plugin: String,
    options: Value,
}

/// Tries the sink that is registered under this name.
///
/// It is given the kit's own mix of events unless [`fed_by`](SinkTrial::fed_by) says otherwise, by the real
/// engine, on one thread and several, in batches of several sizes, and with every step of its outputs failing in
/// turn; and first of all once in a process of its own. It is held to this:
///
/// - **Options, Sample**: unknown options are refused, and the sample shows all there are.
/// - **Termination, NoPanic**: a run comes to its end, and does not end the process.
/// - **Threads, Batches**: the output is the same, byte for byte, also if batches are encoded backwards and twice.
/// - **Books**: every event it says it wrote is counted once, and changes the output.
/// - **Readable**: the source of [`read_by`](SinkTrial::read_by) gives the events back.
/// - **Targets**: the files that appear are those it says, in the folder it is given.
/// - **Refusal**: what exists is not replaced unasked.
/// - **Atomic**: if anything fails the run fails, what was there is there, and nothing else is.
pub fn sink(plugin: &str) -> SinkTrial {
    SinkTrial {
        plugin: plugin.to_owned(),
        options: json!({}),
        path: None,
        fed_by: None,
        reader: None,
        keeps: FormatFidelity::default(),
        writes: Writes::Files,
    }
}

impl SinkTrial {
    /// Options beside `path`. `${DIR}` in them is the folder that it is to write into: for those whose outputs are
    /// not named by `path`.
    pub fn options(mut self, options: Value) -> Self {
        self.options = options;
        self
    }

    /// What its output is called: a file, or with a slash at its end a folder. Without it that is `out` with the
    /// first extension of its format.
    pub fn path(mut self, name: &str) -> Self {
        self.path = Some(name.to_owned());
        self
    }

    /// The events to write: those that this pipeline gives, whose last node is called `events`.
    pub fn fed_by(mut self, pipeline: &str) -> Self {
        self.fed_by = Some(pipeline.to_owned());
        self
    }

    /// The source that reads the output.
    pub fn read_by(self, source: &str) -> Self {
        self.read_with(source, json!({}))
    }

    /// The source that reads the output, with options. If these have no `path`, it is the sink's.
    pub fn read_with(mut self, source: &str, options: Value) -> Self {
        self.reader = Some(Reader { plugin: source.to_owned(), options });
        self
    }

    /// What of events the format holds, where that is not everything.
    pub fn keeps(mut self, keeps: FormatFidelity) -> Self {
        self.keeps = keeps;
        self
    }

    /// Says that it writes no file at all.
    pub fn writes_nothing(mut self) -> Self {
        self.writes = Writes::Nothing;
        self
    }

    /// All promises that are not kept.
    pub fn findings(&self) -> Vec<Finding> {
        let registry = registry();
        let Some(plugin) = registry.get(PluginKind::Sink, &self.plugin) else {
            return vec![options::unregistered(PluginKind::Sink, &self.plugin)];
        };
        let ended = self.isolated(plugin, &registry);
        if !ended.is_empty() || is_other_process() {
            return ended;
        }
        let bench = match Bench::new(self, plugin, &registry, &std::env::temp_dir()) {
            Ok(bench) => bench,
            Err(finding) => return vec![finding],
        };
        let mut findings = options::findings(plugin, &bench.options, &registry);
        findings.extend(bench.findings());
        findings
    }

    /// Runs it once in a process of its own: one that hangs or ends the process would do so to the test.
    fn isolated(&self, plugin: &Plugin, registry: &Registry) -> Vec<Finding> {
        let isolation = Isolation { plugin: &self.plugin, patience: PATIENCE, memory: 0 };
        isolation.run(&|cases| {
            cases.roomy_case("the events it is tried with", |cases| {
                // What goes wrong in any other way is seen afterwards.
                if let Ok(bench) = Bench::new(self, plugin, registry, &cases.folder()) {
                    bench.reset(&Tree::default());
                    drop(bench.run(&How::usual(&bench.events)));
                }
                Vec::new()
            });
        })
    }

    /// Fails the test if a promise is not kept.
    ///
    /// # Panics
    ///
    /// If one is not, with all that are not.
    #[track_caller]
    pub fn check(self) {
        expect_none(&self.plugin, &self.findings());
    }
}

/// How long a run may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// A sink with its events, and the folder it writes into.
struct Bench<'t> {
    trial: &'t SinkTrial,
    plugin: &'t Plugin,
    registry: &'t Registry,
    events: Arc<Events>,
    folder: tempfile::TempDir,
    /// With the path, if it has one.
    options: Value,
}

/// How the sink is run.
#[derive(Clone, Debug)]
struct How {
    events: Arc<Events>,
    jobs: usize,
    /// How many events a batch has.
    size: usize,
    overwrite: Overwrite,
    faults: Option<Arc<FaultInjector>>,
}

/// Most events of a batch, where sizes are not what is tried.
const USUAL: usize = 64;

impl How {
    fn usual(events: &Arc<Events>) -> Self {
        let events = Arc::clone(events);
        Self { events, jobs: 1, size: USUAL, overwrite: Overwrite::Refuse, faults: None }
    }

    fn replacing(self) -> Self {
        Self { overwrite: Overwrite::Replace, ..self }
    }
}

impl<'t> Bench<'t> {
    fn new(
        trial: &'t SinkTrial,
        plugin: &'t Plugin,
        registry: &'t Registry,
        place: &Path,
    ) -> Result<Self, Finding> {
        let broken = |what: String| Finding::new(Promise::Readable, what);
        let events = match &trial.fed_by {
            Some(text) => gathered(text, registry)
                .map_err(|e| broken(format!("the events could not be made: {e}")))?,
            None => Events::mix(),
        };
        if events.len() == 0 {
            return Err(broken("there are no events to try it with".to_owned()));
        }
        let folder = tempfile::tempdir_in(place).map_err(|e| broken(format!("no folder: {e}")))?;
        let mut bench =
            Self { trial, plugin, registry, events: Arc::new(events), folder, options: json!({}) };
        bench.options = filled(&trial.options, &bench.out().display().to_string());
        if let Some(path) = bench.path()
            && let Some(options) = bench.options.as_object_mut()
        {
            options.insert("path".to_owned(), json!(path));
        }
        Ok(bench)
    }

    /// The folder that runs write into; nothing else is there.
    fn out(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    /// Its output, if it has an option for it.
    fn path(&self) -> Option<String> {
        let has_path = self.plugin.option_names().iter().any(|name| name == "path");
        let extension = self.plugin.extensions.first().copied().unwrap_or("bin");
        let name = self.trial.path.clone().unwrap_or_else(|| format!("written.{extension}"));
        has_path.then(|| self.out().join(name).display().to_string())
    }

    fn findings(&self) -> Vec<Finding> {
        let mut found = Gathered::default();
        self.reset(&Tree::default());
        match self.run(&How::usual(&self.events)) {
            Ok(report) => self.all(&report, &mut found),
            Err(failure) => found.add(unfit(&failure), "the events it is tried with"),
        }
        self.strays(&mut found);
        found.findings()
    }

    /// Nothing appears beside the folder that it is to write into.
    fn strays(&self, found: &mut Gathered) {
        for file in Tree::of(self.folder.path()).files().filter(|file| !file.starts_with("out/")) {
            let kind = "a file appears outside of the folder it is to write into";
            found.add(Fault::new(Promise::Targets, kind, file), "one of its runs");
        }
    }

    fn all(&self, report: &Report, found: &mut Gathered) {
        let tree = Tree::of(&self.out());
        self.same_however_it_runs(&tree, report, found);
        self.reset(&tree);
        self.targets(&tree, found);
        self.refuses(&tree, found);
        if let Some(reader) = &self.trial.reader {
            self.reset(&tree);
            self.reads_back(reader, report, found);
        }
        if !tree.is_empty() {
            self.any_order(found);
            self.every_event_counts(&tree, report, found);
            self.atomic(found);
        } else if self.trial.writes == Writes::Files {
            let kind = "no file appears in its folder, so nothing can be compared";
            let what = "name its output by an option with `${DIR}`, or say `writes_nothing()`";
            found.add(Fault::new(Promise::Targets, kind, what), "the events it is tried with");
        }
    }

    /// Makes the folder hold just this.
    fn reset(&self, tree: &Tree) {
        tree.restore(&self.out()).expect("the kit's own folder can be written");
    }

    fn run(&self, how: &How) -> Result<Report, Failure> {
        let pipe =
            Pipe::of_events().with("sinks", "out", self.plugin.name, Some(EVENTS), &self.options);
        let replay = Replay {
            events: Arc::clone(&how.events),
            size: how.size,
            each: (USUAL / how.size.max(1)).max(1),
            // Numbers of channels depend on timing in real runs.
            reversed: how.jobs > 1 || how.size != USUAL,
        };
        let pipeline = read(&pipe.text(), self.registry, Some(replay), &Gather::default());
        let options = Options {
            jobs: Some(how.jobs),
            overwrite: how.overwrite,
            faults: how.faults.clone(),
            ..Options::default()
        };
        run(pipeline.map_err(Failure::Error)?, options)
    }

    fn same_however_it_runs(&self, tree: &Tree, report: &Report, found: &mut Gathered) {
        let usual = How::usual(&self.events);
        let all = self.events.len().max(1);
        let ways = [(2, USUAL), (8, USUAL), (1, 1), (1, 7), (2, all)];
        for (jobs, size) in ways {
            self.reset(&Tree::default());
            let case = format!("{jobs} threads and batches of {size} events");
            let promise = if size == USUAL { Promise::Threads } else { Promise::Batches };
            let ran = self.run(&How { jobs, size, ..usual.clone() });
            let again = match ran {
                Ok(again) => again,
                Err(failure) => {
                    found.add(Fault { promise, ..unfit(&failure) }, case);
                    continue;
                }
            };
            if let Some(what) = tree.difference(&Tree::of(&self.out())) {
                found.add(Fault::new(promise, "the output differs", what), case);
            } else if lasting(report) != lasting(&again) {
                found.add(Fault::new(promise, "the report differs", String::new()), case);
            }
        }
    }

    fn made(&self) -> Option<Box<dyn DynSink>> {
        let PluginFactory::Sink(make) = self.plugin.make else { return None };
        make(self.options.clone()).ok()
    }

    /// The files that appear are those it says, or lie beside them under names that begin as theirs.
    fn targets(&self, tree: &Tree, found: &mut Gathered) {
        let Some(sink) = self.made() else { return };
        let targets = sink.targets();
        let case = "a run that writes all events";
        for file in tree.files() {
            let path = self.out().join(file);
            if !targets.iter().any(|target| belongs(&path, target)) {
                let kind = "a file appears that `targets` does not tell of";
                found.add(Fault::new(Promise::Targets, kind, file), case);
            }
        }
        for target in &targets {
            let is_there = tree.files().any(|file| belongs(&self.out().join(file), target));
            if !is_there && target != Path::new("-") {
                let kind = "`targets` tells of a file that does not appear";
                found.add(Fault::new(Promise::Targets, kind, target.display().to_string()), case);
            }
        }
    }

    fn refuses(&self, tree: &Tree, found: &mut Gathered) {
        if tree.is_empty() {
            return;
        }
        let fewer = Arc::new(self.events.slice(0, self.events.len() / 2));
        let case = "an output that exists";
        let ran = self.run(&How::usual(&fewer));
        if let Some(what) = tree.difference(&Tree::of(&self.out())) {
            found.add(
                Fault::new(Promise::Refusal, "what exists is changed although nobody asked", what),
                case,
            );
        } else if ran.is_ok() {
            let kind = "the run succeeds although nothing could be written";
            found.add(Fault::new(Promise::Refusal, kind, String::new()), case);
        }
        self.reset(&Tree::default());
        let fresh = self.run(&How::usual(&fewer)).map(|_| Tree::of(&self.out()));
        self.reset(tree);
        let replaced = self.run(&How::usual(&fewer).replacing());
        let case = "an output that is to be replaced by one of fewer events";
        match (fresh, replaced) {
            (Ok(fresh), Ok(_)) => {
                // What the new output has no use for may stay, if it is no part of it.
                let now = Tree::of(&self.out()).only(&fresh);
                if let Some(what) = fresh.difference(&now) {
                    let kind = "it is not what it is where nothing was";
                    found.add(Fault::new(Promise::Refusal, kind, what), case);
                }
            }
            (_, Err(failure)) | (Err(failure), _) => found.add(unfit(&failure), case),
        }
    }

    /// Each event that is written changes the output.
    fn every_event_counts(&self, tree: &Tree, report: &Report, found: &mut Gathered) {
        let (whole, notes) = (written(report), lasting(report).get("notes").cloned());
        for row in self.left_out() {
            let without = Arc::new(self.events.without(row));
            self.reset(&Tree::default());
            let Ok(report) = self.run(&How::usual(&without)) else { continue };
            let same = tree.without(MANIFEST).difference(&Tree::of(&self.out()).without(MANIFEST));
            // Of what it writes nothing of, though it has it, a sink may say how much there was.
            let is_said = lasting(&report).get("notes") != notes.as_ref();
            if written(&report) < whole && same.is_none() && !is_said {
                let kind = "an event that counts as written is not in the output";
                let which = match row {
                    0 => "the first event".to_owned(),
                    row if row + 1 == self.events.len() => "the last event".to_owned(),
                    row => format!("event {row}"),
                };
                let what = format!("the output is the same without {which}");
                found.add(Fault::new(Promise::Books, kind, what), "the events it is tried with");
            }
        }
    }

    /// The places of events that are left out in turn: the first and the last; and where no source reads what is
    /// written, those of each channel, and some between.
    fn left_out(&self) -> BTreeSet<usize> {
        let count = self.events.len();
        let mut places = BTreeSet::from([0, count - 1]);
        if self.trial.reader.is_some() {
            return places;
        }
        let channels = self.events.batch.channels();
        let (mut first, mut last) = (BTreeMap::new(), BTreeMap::new());
        for (row, channel) in channels.iter().enumerate() {
            first.entry(channel).or_insert(row);
            last.insert(channel, row);
        }
        places.extend(first.into_values().take(MOST_CHANNELS));
        places.extend(last.into_values().take(MOST_CHANNELS));
        // Not at even distances: what leaves out each third event would slip through.
        let (mut dice, step) = (Dice::new(11), count.div_ceil(BETWEEN));
        let between = (0..BETWEEN).map(|part| part * step + dice.below(step));
        places.extend(between.filter(|row| *row < count));
        places
    }
}

/// Of how many channels the first and the last event are left out, and how many events between.
const MOST_CHANNELS: usize = 12;
const BETWEEN: usize = 16;

/// How many events the sink says it wrote.
fn written(report: &Report) -> u64 {
    report.sinks.get("out").map_or(0, |sink| sink.events)
}

/// Whether a file is a target, lies in it, or beside it under a name that begins as the target's.
fn belongs(file: &Path, target: &Path) -> bool {
    if file.starts_with(target) {
        return true;
    }
    let stem = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.split('.').next().unwrap_or_default().to_owned()
    };
    let is_folder = target.as_os_str().as_encoded_bytes().ends_with(b"/");
    !is_folder && file.parent() == target.parent() && stem(file).starts_with(&stem(target))
}

/// A run that had to succeed and did not.
fn unfit(failure: &Failure) -> Fault {
    match failure {
        Failure::Error(what) => {
            let is_books = what.contains("a sink was handed") || what.contains("internal:");
            let promise = if is_books { Promise::Books } else { Promise::Readable };
            Fault::new(promise, "the run fails", what)
        }
        Failure::Panic(what) => Fault::new(Promise::NoPanic, "it panics", what),
    }
}
