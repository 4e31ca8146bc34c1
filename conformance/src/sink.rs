//! Trials of sinks: what they write is whole, the same however it is run, and holds what they were given.

mod atomic;
mod back;
mod files;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use sluice_core::output::MANIFEST;
use sluice_core::output::faults::Faults;
use sluice_core::{DynSink, Kind, Make, Overwrite, Plugin, Registry};
use sluice_pipeline::Report;
use sluice_pipeline::run::Options;

use crate::events::{Events, Gather, Replay};
use crate::finding::{Fault, Gathered, expect_none};
use crate::pipe::{EVENTS, Failure, Pipe, gathered, lasting, read, run};
use crate::private::registry;
use crate::{Finding, Promise, options};

use files::Tree;

pub use back::{Keeps, Order};

/// A sink to be tried.
#[derive(Clone, Debug)]
#[must_use = "nothing is tried before `check` or `findings`"]
pub struct SinkTrial {
    plugin: String,
    options: Value,
    path: Option<String>,
    fed_by: Option<String>,
    reader: Option<Reader>,
    keeps: Keeps,
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
/// turn. It is held to this:
///
/// - **Options, Sample**: unknown options are refused, and the sample shows all there are.
/// - **Threads, Batches**: the output is the same, byte for byte.
/// - **Books**: every event it says it wrote is counted once, and changes the output.
/// - **Readable**: the source of [`read_by`](SinkTrial::read_by) gives the events back.
/// - **Targets**: the files that appear are those it says.
/// - **Refusal**: what exists is not replaced unasked.
/// - **Atomic**: if anything fails the run fails, what was there is there, and nothing else is.
pub fn sink(plugin: &str) -> SinkTrial {
    SinkTrial {
        plugin: plugin.to_owned(),
        options: json!({}),
        path: None,
        fed_by: None,
        reader: None,
        keeps: Keeps::default(),
    }
}

impl SinkTrial {
    /// Options beside `path`.
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
    pub fn keeps(mut self, keeps: Keeps) -> Self {
        self.keeps = keeps;
        self
    }

    /// All promises that are not kept.
    pub fn findings(&self) -> Vec<Finding> {
        let registry = registry();
        let Some(plugin) = registry.get(Kind::Sink, &self.plugin) else {
            let what = format!("no sink is registered as `{}`", self.plugin);
            return vec![Finding::new(Promise::Options, what)];
        };
        let bench = match Bench::new(self, plugin, &registry) {
            Ok(bench) => bench,
            Err(finding) => return vec![finding],
        };
        let mut findings = options::findings(plugin, &bench.options, &registry);
        findings.extend(bench.findings());
        findings
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
    faults: Option<Arc<Faults>>,
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
        let folder = tempfile::tempdir().map_err(|e| broken(format!("no folder: {e}")))?;
        let mut bench = Self {
            trial,
            plugin,
            registry,
            events: Arc::new(events),
            folder,
            options: trial.options.clone(),
        };
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
        found.findings()
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
            self.every_event_counts(&tree, report, found);
            self.atomic(found);
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
        let Make::Sink(make) = self.plugin.make else { return None };
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

    /// The first and the last event that are written change the output.
    fn every_event_counts(&self, tree: &Tree, report: &Report, found: &mut Gathered) {
        let (count, whole) = (self.events.len(), written(report));
        for (start, which) in [(0, "last"), (1, "first")] {
            let without = Arc::new(self.events.slice(start, count.saturating_sub(1)));
            self.reset(&Tree::default());
            let Ok(report) = self.run(&How::usual(&without)) else { continue };
            let same = tree.without(MANIFEST).difference(&Tree::of(&self.out()).without(MANIFEST));
            if written(&report) < whole && same.is_none() {
                let kind = "an event that counts as written is not in the output";
                let what = format!("the output is the same without the {which} event");
                found.add(Fault::new(Promise::Books, kind, what), "the events it is tried with");
            }
        }
    }
}

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
