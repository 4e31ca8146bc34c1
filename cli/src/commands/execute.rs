//! Runs a pipeline for `run` and `convert`: signals, progress, the report, and the words at the end.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use sluice_core::files::Identity;
use sluice_core::{Error, Overwrite};
use sluice_pipeline::run::{self, Options};
use sluice_pipeline::{Part, Pipeline, Report};

use crate::args::{Engine, EngineArgs, ProgressForm};
use crate::commands::plan;
use crate::ending::{Ending, Failure, Outcome};
use crate::progress::Meter;
use crate::shell::Shell;
use crate::signals::Listening;
use crate::units;

/// How many damaged ranges are listed; the report has all of them.
const MOST_SHOWN: usize = 20;

/// Refuses options that this version knows but cannot obey.
pub(crate) fn refuse_what_is_missing(args: &EngineArgs) -> Result<(), Failure> {
    let missing = match args {
        EngineArgs { resume: true, .. } => "--resume",
        EngineArgs { engine: Engine::Ballista, .. } => "--engine ballista",
        _ => return Ok(()),
    };
    Err(Failure::WrongUse(format!("this version does not have {missing} yet; nothing was done")))
}

/// Runs a pipeline, or shows its plan if that is all that is wanted.
pub(crate) fn execute(pipeline: Pipeline, args: &EngineArgs, shell: &Shell) -> Outcome {
    if args.dry_run {
        return plan::print_text(&pipeline, &options(args));
    }
    let only_prints = targets(&pipeline).iter().all(|target| target == Path::new("-"));
    let report_file = args.report.as_deref().map(|path| ReportFile::open(path, &pipeline));
    let report_file = report_file.transpose()?;
    let result = run_watched(pipeline, args, shell);
    if let Some(file) = report_file {
        file.write(&result)?;
    }
    let report =
        result.map_err(|failure| if only_prints { failure } else { failure.not_closed() })?;
    tell_losses(&report, shell);
    // Machines have had their last word.
    if args.progress != ProgressForm::Json {
        shell.say(&summary(&report));
    }
    Ok(if report.is_complete() { Ending::Done } else { Ending::Losses })
}

fn run_watched(pipeline: Pipeline, args: &EngineArgs, shell: &Shell) -> Result<Report, Failure> {
    let meter = Arc::new(Meter::new(args.progress, shell.quiet));
    let options = Options { progress: Some(meter.clone()), ..options(args) };
    let (quiet, told) = (shell.quiet, Arc::clone(&meter));
    let listening = Listening::start(Arc::clone(&options.stop), move |text| {
        if !quiet {
            told.say(text);
        }
    });
    let result = run::run(pipeline, &options);
    drop(listening);
    meter.finish();
    Ok(result?)
}

fn options(args: &EngineArgs) -> Options {
    Options {
        jobs: args.jobs,
        memory: args.memory,
        overwrite: if args.overwrite { Overwrite::Replace } else { Overwrite::Refuse },
        hash: args.report.is_some(),
        ..Options::default()
    }
}

/// Everything a pipeline writes.
fn targets(pipeline: &Pipeline) -> Vec<PathBuf> {
    let of = |part: &Part| if let Part::Sink(sink) = part { sink.targets() } else { Vec::new() };
    pipeline.nodes.iter().flat_map(|node| of(&node.part)).collect()
}

/// Where the report goes: opened before the run, so that a run is not done in vain.
struct ReportFile {
    path: PathBuf,
    to: Box<dyn Write>,
}

impl ReportFile {
    fn open(path: &Path, pipeline: &Pipeline) -> Result<Self, Failure> {
        let to: Box<dyn Write> = if path == Path::new("-") {
            Box::new(io::stdout())
        } else {
            refuse_log(path, pipeline)?;
            Box::new(File::create(path).map_err(|e| Error::io("create", path, e))?)
        };
        Ok(Self { path: path.to_owned(), to })
    }

    fn write(mut self, result: &Result<Report, Failure>) -> Result<(), Failure> {
        let value = match result {
            Ok(report) => report.to_json(),
            Err(failure) => failed(failure),
        };
        let written = writeln!(self.to, "{value:#}").and_then(|()| self.to.flush());
        Ok(written.map_err(|e| Error::io("write", &self.path, e))?)
    }
}

fn failed(failure: &Failure) -> Value {
    let error = match failure {
        Failure::WrongUse(message) | Failure::Failed(message) => message.clone(),
        Failure::Mistakes(mistakes) => mistakes.to_string(),
        Failure::Closed => "standard output was closed".to_owned(),
    };
    json!({ "error": error, "exit": failure.code() })
}

/// A slip of the finger must not write the report over a log.
fn refuse_log(path: &Path, pipeline: &Pipeline) -> Result<(), Failure> {
    let taken = |what: &str| {
        Err(Failure::WrongUse(format!("the report would replace {what}: {}", path.display())))
    };
    if targets(pipeline).iter().any(|target| target == path) {
        return taken("an output");
    }
    let Some(identity) = Identity::of(path) else { return Ok(()) };
    for node in &pipeline.nodes {
        let Part::Source(source) = &node.part else { continue };
        if source.inputs()?.iter().any(|input| Identity::of(&input.path) == Some(identity)) {
            return taken("an input");
        }
    }
    Ok(())
}

/// Says what was damaged or not carried, and what else is worth knowing.
pub(crate) fn tell_losses(report: &Report, shell: &Shell) {
    for damage in report.damage.iter().take(MOST_SHOWN) {
        let sluice_pipeline::report::DamageReport { input, offset, length, reason, .. } = damage;
        let length = if *length == 1 { "1 byte".into() } else { format!("{length} bytes") };
        shell.warn(&format!("{input}: {length} at byte {offset} could not be read: {reason}"));
    }
    let more = report.damaged_ranges.saturating_sub(report.damage.len().min(MOST_SHOWN) as u64);
    if more > 0 {
        shell.warn(&format!("and {} more", units::count(more)));
    }
    for note in &report.notes {
        let times = if note.count > 0 {
            format!(" ({} times)", units::count(note.count))
        } else {
            String::new()
        };
        shell.say(&format!("note: {}: {}{times}", note.node, note.what));
    }
    if report.interrupted {
        shell.warn("stopped early: what was read until then has been written whole");
    }
}

fn summary(report: &Report) -> String {
    let read: u64 = report.sources.values().map(|source| source.events).sum();
    let written: u64 = report.sinks.values().map(|sink| sink.events).sum();
    let (bytes, seconds) = (report.bytes_read, report.seconds);
    let mut text = units::many(read, "event");
    match report.sinks.len() {
        0 | 1 if written == read => {}
        0 | 1 => text += &format!(" read, {} written", units::count(written)),
        sinks => text += &format!(" read for {sinks} sinks"),
    }
    text +=
        &format!("; {} in {seconds:.2} s, {}", units::bytes(bytes), units::speed(bytes, seconds));
    if report.damaged_ranges > 0 {
        text += &format!("; {}", units::many(report.damaged_ranges, "damaged range"));
    }
    text + &written_files(report)
}

fn written_files(report: &Report) -> String {
    let files = || report.files.iter().filter(|file| file.path != Path::new("-"));
    let bytes = units::bytes(files().map(|file| file.bytes).sum());
    match (files().count(), files().next()) {
        (0, _) | (_, None) => String::new(),
        (1, Some(file)) => format!("; wrote {} ({bytes})", file.path.display()),
        (many, _) => format!("; wrote {} ({bytes})", units::many(many as u64, "file")),
    }
}
