//! Trials of sinks: their output is complete, independent of how they run, and holds the events
//! they were given.

mod accounting;
mod atomic;
mod encoding;
mod files;
mod read_back;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sluice_io::output::faults::FaultInjector;
use sluice_model::{DynSink, Overwrite, Plugin, PluginKind, Registry};
use sluice_pipeline::Report;
use sluice_pipeline::run::Options;

use crate::engine_run::fill_dir;
use crate::events::{Events, GatherSink, ReplaySource};
use crate::finding::{Fault, FindingSet, expect_none};
use crate::isolation::{Isolation, is_child_process};
use crate::kit_plugins::registry;
use crate::pipe::{
    EVENTS, PipelineText, RunFailure, gather_events, read_pipeline, run, stable_report,
};
use crate::{Finding, Promise, options};

use files::DirSnapshot;

pub use read_back::{EventOrder, FormatFidelity, TimeRounding};

/// A sink under test.
#[derive(Clone, Debug)]
#[must_use = "nothing is tried before `check` or `findings`"]
pub struct SinkTrial {
    plugin: String,
    options: Value,
    path: Option<String>,
    fed_by: Option<String>,
    reader: Option<OutputReader>,
    keeps: FormatFidelity,
    writes: ExpectedOutput,
}

/// Whether the sink writes files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExpectedOutput {
    Files,
    Nothing,
}

/// The source that reads a sink's output.
#[derive(Clone, Debug)]
struct OutputReader {
    plugin: String,
    options: Value,
}

/// Tests the sink registered under this name.
///
/// It gets the kit's mix of events unless [`fed_by`](SinkTrial::fed_by) says otherwise. It runs in
/// the real engine, on one thread and several, in batches of several sizes, and with every step of
/// its outputs failing in turn; before all that, once in a child process. It checks these promises:
///
/// - **Options, Sample**: unknown options are refused, and the sample shows all there are.
/// - **Termination, NoPanic**: a run ends, and does not kill the process.
/// - **Threads, Batches**: the output is the same, byte for byte, even if batches are encoded
///   backwards and twice.
/// - **Accounting**: every event it reports as written is counted once, and changes the output; the
///   row counts of its files are right.
/// - **Readable**: the source of [`read_by`](SinkTrial::read_by) returns the events.
/// - **Targets**: the files that appear are those it announces, in its folder.
/// - **Refusal**: existing outputs are not replaced unless requested.
/// - **Atomic**: if anything fails, the run fails, previous outputs are intact, and nothing else is
///   left.
pub fn sink(plugin: &str) -> SinkTrial {
    SinkTrial {
        plugin: plugin.to_owned(),
        options: json!({}),
        path: None,
        fed_by: None,
        reader: None,
        keeps: FormatFidelity::default(),
        writes: ExpectedOutput::Files,
    }
}

impl SinkTrial {
    /// Sets the options besides `path`. `${DIR}` in them is the output folder, for sinks whose
    /// outputs are not named by `path`.
    pub fn options(mut self, options: Value) -> Self {
        self.options = options;
        self
    }

    /// Names its output: a file, or with a trailing slash a folder. The default is `out` with the
    /// first extension of its format.
    pub fn path(mut self, name: &str) -> Self {
        self.path = Some(name.to_owned());
        self
    }

    /// Writes the events of this pipeline, whose last node is called `events`.
    pub fn fed_by(mut self, pipeline: &str) -> Self {
        self.fed_by = Some(pipeline.to_owned());
        self
    }

    /// Reads the output with this source.
    pub fn read_by(self, source: &str) -> Self {
        self.read_with(source, json!({}))
    }

    /// Reads the output with this source and options. Their default `path` is the sink's.
    pub fn read_with(mut self, source: &str, options: Value) -> Self {
        self.reader = Some(OutputReader { plugin: source.to_owned(), options });
        self
    }

    /// Declares which properties of events the format keeps, if not all.
    pub fn keeps(mut self, keeps: FormatFidelity) -> Self {
        self.keeps = keeps;
        self
    }

    /// Declares that the sink writes no file.
    pub fn writes_nothing(mut self) -> Self {
        self.writes = ExpectedOutput::Nothing;
        self
    }

    /// All promises that are not kept.
    pub fn findings(&self) -> Vec<Finding> {
        let registry = registry();
        let Some(plugin) = registry.get(PluginKind::Sink, &self.plugin) else {
            return vec![options::unregistered(PluginKind::Sink, &self.plugin)];
        };
        let ended = self.run_isolated(plugin, &registry);
        if !ended.is_empty() || is_child_process() {
            return ended;
        }
        let bench = match SinkBench::new(self, plugin, &registry, &std::env::temp_dir()) {
            Ok(bench) => bench,
            Err(finding) => return vec![finding],
        };
        let mut findings = options::findings(plugin, &bench.options, &registry);
        findings.extend(bench.findings());
        findings
    }

    /// Runs it once in a child process: a hang or exit would affect the test.
    fn run_isolated(&self, plugin: &Plugin, registry: &Registry) -> Vec<Finding> {
        let isolation = Isolation { plugin: &self.plugin, patience: PATIENCE, memory: 0 };
        isolation.run(&|cases| {
            cases.unlimited_case("the events it is tried with", |cases| {
                // Other faults show later.
                if let Ok(bench) = SinkBench::new(self, plugin, registry, &cases.folder()) {
                    bench.reset(&DirSnapshot::default());
                    drop(bench.run(&SinkRun::standard(&bench.events)));
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

/// The timeout of a run.
const PATIENCE: Duration = Duration::from_secs(60);

/// A sink with its events and output folder.
struct SinkBench<'t> {
    trial: &'t SinkTrial,
    plugin: &'t Plugin,
    registry: &'t Registry,
    events: Arc<Events>,
    folder: tempfile::TempDir,
    /// The options, including the path.
    options: Value,
}

/// How to run the sink.
#[derive(Clone, Debug)]
struct SinkRun {
    events: Arc<Events>,
    jobs: usize,
    /// The number of events per batch.
    size: usize,
    overwrite: Overwrite,
    faults: Option<Arc<FaultInjector>>,
}

/// The standard batch size.
const STANDARD_BATCH: usize = 64;

impl SinkRun {
    fn standard(events: &Arc<Events>) -> Self {
        let events = Arc::clone(events);
        Self { events, jobs: 1, size: STANDARD_BATCH, overwrite: Overwrite::Refuse, faults: None }
    }

    fn replacing(self) -> Self {
        Self { overwrite: Overwrite::Replace, ..self }
    }
}

impl<'t> SinkBench<'t> {
    fn new(
        trial: &'t SinkTrial,
        plugin: &'t Plugin,
        registry: &'t Registry,
        place: &Path,
    ) -> Result<Self, Finding> {
        let broken = |what: String| Finding::new(Promise::Readable, what);
        let events = match &trial.fed_by {
            Some(text) => gather_events(text, registry)
                .map_err(|e| broken(format!("the events could not be made: {e}")))?,
            None => Events::mix(),
        };
        if events.len() == 0 {
            return Err(broken("there are no events to try it with".to_owned()));
        }
        let folder = tempfile::tempdir_in(place).map_err(|e| broken(format!("no folder: {e}")))?;
        let mut bench =
            Self { trial, plugin, registry, events: Arc::new(events), folder, options: json!({}) };
        bench.options = fill_dir(&trial.options, &bench.out().display().to_string());
        if let Some(path) = bench.path()
            && let Some(options) = bench.options.as_object_mut()
        {
            options.insert("path".to_owned(), json!(path));
        }
        Ok(bench)
    }

    /// The output folder of runs.
    fn out(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    /// Its output path, if it has an option for it.
    fn path(&self) -> Option<String> {
        let has_path = self.plugin.option_names().iter().any(|name| name == "path");
        let extension = self.plugin.extensions.first().copied().unwrap_or("bin");
        let name = self.trial.path.clone().unwrap_or_else(|| format!("written.{extension}"));
        has_path.then(|| self.out().join(name).display().to_string())
    }

    fn findings(&self) -> Vec<Finding> {
        let mut found = FindingSet::default();
        self.reset(&DirSnapshot::default());
        match self.run(&SinkRun::standard(&self.events)) {
            Ok(report) => self.check_all(&report, &mut found),
            Err(failure) => found.add(run_fault(&failure), "the events it is tried with"),
        }
        self.check_strays(&mut found);
        found.findings()
    }

    /// Checks that no file appears outside the output folder.
    fn check_strays(&self, found: &mut FindingSet) {
        for file in
            DirSnapshot::read(self.folder.path()).files().filter(|file| !file.starts_with("out/"))
        {
            let kind = "a file appears outside of the folder it is to write into";
            found.add(Fault::new(Promise::Targets, kind, file), "one of its runs");
        }
    }

    fn check_all(&self, report: &Report, found: &mut FindingSet) {
        let tree = DirSnapshot::read(&self.out());
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
            self.counts_rows(report, found);
            self.atomic(found);
        } else if self.trial.writes == ExpectedOutput::Files {
            let kind = "no file appears in its folder, so nothing can be compared";
            let what = "name its output by an option with `${DIR}`, or say `writes_nothing()`";
            found.add(Fault::new(Promise::Targets, kind, what), "the events it is tried with");
        }
    }

    /// Restores the output folder to this content.
    fn reset(&self, tree: &DirSnapshot) {
        tree.restore(&self.out()).expect("the kit's own folder can be written");
    }

    fn run(&self, how: &SinkRun) -> Result<Report, RunFailure> {
        let pipe = PipelineText::from_events().with(
            "sinks",
            "out",
            self.plugin.name,
            Some(EVENTS),
            &self.options,
        );
        let replay = ReplaySource {
            events: Arc::clone(&how.events),
            size: how.size,
            each: (STANDARD_BATCH / how.size.max(1)).max(1),
            // Channel ids depend on timing in real runs.
            reversed: how.jobs > 1 || how.size != STANDARD_BATCH,
        };
        let pipeline =
            read_pipeline(&pipe.text(), self.registry, Some(replay), &GatherSink::default());
        let options = Options {
            jobs: Some(how.jobs),
            overwrite: how.overwrite,
            faults: how.faults.clone(),
            ..Options::default()
        };
        run(pipeline.map_err(RunFailure::Error)?, options)
    }

    fn same_however_it_runs(&self, tree: &DirSnapshot, report: &Report, found: &mut FindingSet) {
        let usual = SinkRun::standard(&self.events);
        let all = self.events.len().max(1);
        let ways = [(2, STANDARD_BATCH), (8, STANDARD_BATCH), (1, 1), (1, 7), (2, all)];
        for (jobs, size) in ways {
            self.reset(&DirSnapshot::default());
            let case = format!("{jobs} threads and batches of {size} events");
            let promise = if size == STANDARD_BATCH { Promise::Threads } else { Promise::Batches };
            let ran = self.run(&SinkRun { jobs, size, ..usual.clone() });
            let again = match ran {
                Ok(again) => again,
                Err(failure) => {
                    found.add(Fault { promise, ..run_fault(&failure) }, case);
                    continue;
                }
            };
            if let Some(what) = tree.difference(&DirSnapshot::read(&self.out())) {
                found.add(Fault::new(promise, "the output differs", what), case);
            } else if stable_report(report) != stable_report(&again) {
                found.add(Fault::new(promise, "the report differs", String::new()), case);
            }
        }
    }

    fn make_sink(&self) -> Option<DynSink> {
        registry().sink(self.plugin.name, self.options.clone()).ok()
    }

    /// Checks that the files are those it announces, or next to them with
    /// a stem that starts like theirs.
    fn targets(&self, tree: &DirSnapshot, found: &mut FindingSet) {
        let Some(sink) = self.make_sink() else { return };
        let targets = &sink.traits().targets;
        let case = "a run that writes all events";
        for file in tree.files() {
            let path = self.out().join(file);
            if !targets.iter().any(|target| is_target_file(&path, target)) {
                let kind = "a file appears that `targets` does not announce";
                found.add(Fault::new(Promise::Targets, kind, file), case);
            }
        }
        for target in targets {
            let is_there = tree.files().any(|file| is_target_file(&self.out().join(file), target));
            if !is_there && target != Path::new("-") {
                let kind = "`targets` announces a file that does not appear";
                found.add(Fault::new(Promise::Targets, kind, target.display().to_string()), case);
            }
        }
    }

    fn refuses(&self, tree: &DirSnapshot, found: &mut FindingSet) {
        if tree.is_empty() {
            return;
        }
        let fewer = Arc::new(self.events.slice(0, self.events.len() / 2));
        let case = "an output that exists";
        let ran = self.run(&SinkRun::standard(&fewer));
        if let Some(what) = tree.difference(&DirSnapshot::read(&self.out())) {
            found.add(
                Fault::new(
                    Promise::Refusal,
                    "an existing output is changed although nobody asked",
                    what,
                ),
                case,
            );
        } else if ran.is_ok() {
            let kind = "the run succeeds although nothing could be written";
            found.add(Fault::new(Promise::Refusal, kind, String::new()), case);
        }
        self.reset(&DirSnapshot::default());
        let fresh = self.run(&SinkRun::standard(&fewer)).map(|_| DirSnapshot::read(&self.out()));
        self.reset(tree);
        let replaced = self.run(&SinkRun::standard(&fewer).replacing());
        let case = "an output that is to be replaced by one of fewer events";
        match (fresh, replaced) {
            (Ok(fresh), Ok(_)) => {
                // Files that are not part of the new output may stay.
                let now = DirSnapshot::read(&self.out()).only(&fresh);
                if let Some(what) = fresh.difference(&now) {
                    let kind = "it is not what it is where nothing was";
                    found.add(Fault::new(Promise::Refusal, kind, what), case);
                }
            }
            (_, Err(failure)) | (Err(failure), _) => found.add(run_fault(&failure), case),
        }
    }
}

/// The number of events that the sink reports.
fn written(report: &Report) -> u64 {
    report.sinks.get("out").map_or(0, |sink| sink.events)
}

/// Whether a file is a target, is inside it, or is next to it with a stem that starts with
/// the target's.
fn is_target_file(file: &Path, target: &Path) -> bool {
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

/// The fault for a failed run that had to succeed.
fn run_fault(failure: &RunFailure) -> Fault {
    match failure {
        RunFailure::Error(what) => {
            let is_accounting = what.contains("a sink was handed") || what.contains("internal:");
            let promise = if is_accounting { Promise::Accounting } else { Promise::Readable };
            Fault::new(promise, "the run fails", what)
        }
        RunFailure::Panic(what) => Fault::new(Promise::NoPanic, "it panics", what),
    }
}
