//! Runs a pipeline for `run` and `convert`: signals, progress, the report, and the words at the end.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};

use serde_json::{Value, json};
use sluice_core::files::FileIdentity;
use sluice_core::name::{json_escaped, printable_sentence};
use sluice_core::output::place;
use sluice_core::{Error, Overwrite};
use sluice_pipeline::dispatch::{self, Carrier};
use sluice_pipeline::names::NameReport;
use sluice_pipeline::report::Note;
use sluice_pipeline::resume::{self, Before};
use sluice_pipeline::run::{self, Options, Stop};
use sluice_pipeline::{Part, Pipeline, Report};

use crate::args::{Engine, EngineArgs, ProgressForm, RunningArgs};
use crate::commands::{batch, plan};
use crate::damage;
use crate::ending::{Ending, Failure, Outcome};
use crate::extension::{self, Reach};
use crate::features;
use crate::flags::{self, Origin};
use crate::log;
use crate::progress::Meter;
use crate::shell::Shell;
use crate::signals::{self, Listening, SignalMessages};
use crate::units;

/// How many ways are told in which inputs are damaged; the report has each range.
const MOST_SHOWN: usize = 20;

/// Refuses options that this program knows but cannot obey.
pub(crate) fn refuse_what_is_missing(args: &EngineArgs) -> Result<(), Failure> {
    match args.engine {
        Engine::Ballista if args.shard.is_some() => Err(Failure::WrongUse(
            "a part of a batch is run on this machine: --shard does not go with --engine ballista"
                .into(),
        )),
        Engine::Ballista => engine().map(drop),
        Engine::Local => args.cluster.refuse_to_stay_here(),
    }
}

/// What brings units to the workers of a cluster, if they are to be run there.
pub(crate) fn carrier(
    args: &EngineArgs,
    shell: &Shell,
) -> Result<Option<Box<dyn Carrier>>, Failure> {
    match args.engine {
        Engine::Local => Ok(None),
        Engine::Ballista => (engine()?.connect)(&reach(args), shell).map(Some),
    }
}

fn reach(args: &EngineArgs) -> Reach {
    let EngineArgs { running, cluster, .. } = args;
    Reach {
        scheduler: cluster.scheduler.clone(),
        local_cluster: cluster.local_cluster,
        patience: cluster.cluster_patience.clone(),
        jobs: running.jobs,
        allow_exec: running.allow_exec,
    }
}

fn engine() -> Result<&'static extension::Engine, Failure> {
    extension::engine().ok_or_else(|| features::CLUSTER.missing())
}

/// Runs a pipeline, or shows its plan if that is all that is wanted.
pub(crate) fn execute(
    pipeline: Pipeline,
    args: &EngineArgs,
    origin: Origin,
    shell: &Shell,
) -> Outcome {
    if args.dry_run {
        return plan::print_text(&pipeline, &options(args), shell);
    }
    run::allowed(&pipeline, &options(args))?;
    if !pipeline.templates.is_empty() {
        return batch::execute(&pipeline, args, origin, shell);
    }
    if args.shard.is_some() {
        return Err(Failure::WrongUse(
            "--shard runs some of the inputs, and the outputs of this pipeline are not named after them: put \
             `{stem}` into their paths"
                .into(),
        ));
    }
    let targets = resume::targets(&pipeline);
    let only_prints = targets.iter().all(|target| target == Path::new("-"));
    let report_file = ReportFile::of(&args.running, &pipeline, &targets)?;
    if args.resume
        && let Some(before) = resume::done_before(&pipeline, &options(args))?
    {
        resume::sweep_outputs(&targets);
        return already_done(&before, report_file, shell);
    }
    let carrier = carrier(args, shell)?;
    let meter = Arc::new(Meter::new(args.running.progress, shell));
    let watched = |options: &Options| match &carrier {
        Some(carrier) => Ok(dispatch::run_by(pipeline, &**carrier, &shell.registry, options)?),
        None => Ok(run::run(pipeline, options)?),
    };
    let result = watch_with(&meter, options(args), &signals::PUBLISHING, watched);
    let result = result.map_err(Failure::with_way_on);
    if let Some(file) = report_file {
        file.write(result.as_ref().map(Report::to_json))?;
    }
    let mut report =
        result.map_err(|failure| if only_prints { failure } else { failure.not_closed() })?;
    if args.resume {
        resume::sweep_outputs(&targets);
    }
    meter.forget_told(&mut report);
    tell_losses(&report, origin, shell);
    tell_unmatched(&report, origin, shell);
    if !report.refused {
        tell_summary(&summary(&report), summary_fields(&report), &args.running, shell);
    }
    Ok(ending_of(&report, args.running.strict))
}

/// How a run ended that went through.
pub(crate) fn ending_of(report: &Report, strict: bool) -> Ending {
    match report.unmatched().next() {
        Some(_) if strict => Ending::Unmatched,
        _ if report.is_complete() => Ending::Done,
        _ => Ending::Losses,
    }
}

/// Says which names in options nothing matched.
pub(crate) fn tell_unmatched(report: &Report, origin: Origin, shell: &Shell) {
    let told = |name: &&NameReport| name.sentence().is_some();
    let all = || report.names.iter().filter(told);
    for name in all().take(MOST_SHOWN) {
        let (node, what) =
            (flags::place_of_name(name, origin), name.sentence().unwrap_or_default());
        if name.is_unmatched() {
            let said = printable_sentence(&format!("{node}: {what}")).into_owned();
            match report.refused {
                true => shell.error_of("unmatched", &said, json!(name)),
                false => shell.warn_of("unmatched", &said, json!(name)),
            }
        } else {
            shell.note(&Note { node, what, count: 0 });
        }
    }
    let more = all().count().saturating_sub(MOST_SHOWN) as u64;
    if more > 0 {
        shell.warn(&format!("and {} more", units::many(more, "name")));
    }
    if report.refused {
        shell.error("nothing was published, as --strict was given and a name matched nothing");
    }
}

/// Says that there is nothing to do.
fn already_done(before: &Before, report_file: Option<ReportFile>, shell: &Shell) -> Outcome {
    let ending = if before.exit == 0 { Ending::Done } else { Ending::Losses };
    if let Some(file) = report_file {
        let mut value = Report::default().to_json();
        value["exit"] = ending.code().into();
        value["skipped"] = true.into();
        file.write(Ok(value))?;
    }
    let folders: Vec<String> = before.folders.iter().map(|f| f.display().to_string()).collect();
    let files = units::many(before.files, "file");
    shell.say(&format!("already done: {} ({files})", folders.join(", ")));
    if ending == Ending::Losses {
        shell.warn("there were losses when it was done");
    }
    Ok(ending)
}

/// Runs something that can be stopped, and shows how it goes.
pub(crate) fn watch<T>(
    args: &EngineArgs,
    shell: &Shell,
    run: impl FnOnce(&Options) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let meter = Arc::new(Meter::new(args.running.progress, shell));
    watch_with(&meter, options(args), &signals::PUBLISHING, run)
}

/// As [`watch`], with a meter that others know, too, and words for those who stop the run.
pub(crate) fn watch_with<T>(
    meter: &Arc<Meter>,
    options: Options,
    words: &'static SignalMessages,
    run: impl FnOnce(&Options) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let options = Options { progress: Some(meter.clone()), ..options };
    let told = Arc::clone(meter);
    let say = move |text: &str| told.say(text);
    let listening = Listening::start(Arc::clone(&options.stop), words, say);
    let result = run(&options);
    drop(listening);
    meter.finish();
    result.map_err(|failure| failure.by(&options.stop))
}

/// Runs something, and has a thread beside it watch. That is told when it went through; its channel is
/// closed in any case. If the thread panics, the run is asked to end, and the panic goes on.
pub(crate) fn beside<T>(
    stop: &Stop,
    watch: impl FnOnce(&Receiver<()>) + Send,
    run: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    /// A run without an end would never notice that nobody watches any more.
    struct Watching<'s>(&'s Stop);
    impl Drop for Watching<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                self.0.request();
            }
        }
    }
    std::thread::scope(|scope| {
        let (running, over) = mpsc::channel();
        let watch = move || {
            let _watching = Watching(stop);
            watch(&over);
        };
        let watcher = std::thread::Builder::new().name("sluice-watch".into());
        let watcher = watcher.spawn_scoped(scope, watch);
        let watcher =
            watcher.map_err(|e| Failure::Failed(format!("cannot start a thread: {e}")))?;
        let result = run();
        if result.is_ok() {
            // Who has seen enough does not listen any more.
            let _told = running.send(());
        }
        drop(running);
        match watcher.join() {
            Ok(()) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// The engine's options.
pub(crate) fn options(args: &EngineArgs) -> Options {
    Options {
        overwrite: match (args.overwrite, args.resume) {
            (true, _) => Overwrite::Replace,
            (_, true) => Overwrite::Redo,
            _ => Overwrite::Refuse,
        },
        ..resources(&args.running)
    }
}

/// The engine's options as far as they say with what to run, and what to tell of it.
pub(crate) fn resources(args: &RunningArgs) -> Options {
    let RunningArgs { jobs, memory, report, allow_exec, strict, .. } = args;
    let (jobs, memory, allow_exec, strict) = (*jobs, *memory, *allow_exec, *strict);
    Options { jobs, memory, allow_exec, strict, hash: report.is_some(), ..Options::default() }
}

/// Where the report goes: opened before the run, so that a run is not done in vain.
pub(crate) struct ReportFile {
    path: PathBuf,
    to: Box<dyn Write>,
}

impl ReportFile {
    /// The report that is asked for, of a pipeline that writes these outputs.
    pub(crate) fn of(
        args: &RunningArgs,
        pipeline: &Pipeline,
        outputs: &[PathBuf],
    ) -> Result<Option<Self>, Failure> {
        args.report.as_deref().map(|path| Self::open(path, pipeline, outputs)).transpose()
    }

    fn open(path: &Path, pipeline: &Pipeline, outputs: &[PathBuf]) -> Result<Self, Failure> {
        let to: Box<dyn Write> = if path == Path::new("-") {
            Box::new(io::stdout())
        } else {
            refuse_log(path, pipeline, outputs)?;
            let file = File::create(path).map_err(|e| Error::io("create", path, e))?;
            // A channel is some lines, and there may be thousands.
            Box::new(BufWriter::new(file))
        };
        Ok(Self { path: path.to_owned(), to })
    }

    /// Writes it: a report, or why there is none.
    pub(crate) fn write(mut self, result: Result<Value, &Failure>) -> Result<(), Failure> {
        let is_done = result.is_ok();
        let value = result.unwrap_or_else(failed);
        let text = format!("{value:#}");
        let written = writeln!(self.to, "{}", json_escaped(&text)).and_then(|()| self.to.flush());
        written.map_err(|e| match Error::io("write", &self.path, e).into() {
            Failure::Error(error) if is_done => Failure::Failed(format!(
                "{error}; the outputs are there, only the report is missing"
            )),
            failure => failure,
        })
    }
}

fn failed(failure: &Failure) -> Value {
    let interrupted = matches!(failure, Failure::Interrupted { .. });
    json!({ "error": failure.message(), "interrupted": interrupted, "exit": failure.code() })
}

/// A slip of the finger must not write the report over a log.
fn refuse_log(path: &Path, pipeline: &Pipeline, outputs: &[PathBuf]) -> Result<(), Failure> {
    let taken = |what: &str| {
        Err(Failure::WrongUse(format!("the report would replace {what}: {}", path.display())))
    };
    // A file of another spelling is the same file.
    if outputs.iter().any(|output| place(output) == place(path)) {
        return taken("an output");
    }
    let Some(identity) = FileIdentity::read(path) else { return Ok(()) };
    for node in &pipeline.nodes {
        let Part::Source(source) = &node.part else { continue };
        if source.files()?.iter().any(|input| FileIdentity::read(&input.path) == Some(identity)) {
            return taken("an input");
        }
    }
    Ok(())
}

/// Says what was damaged or not carried of what flags asked for, and what else is worth knowing.
pub fn tell_flag_losses(report: &Report, shell: &Shell) {
    tell_losses(report, Origin::Flags, shell);
}

/// Says what was damaged or not carried, and what else is worth knowing.
pub(crate) fn tell_losses(report: &Report, origin: Origin, shell: &Shell) {
    let (groups, more) = damage::groups(report, MOST_SHOWN);
    for group in groups {
        let first = group.first;
        let what = format!("{}: {}", first.input, group.text(" could not be read"));
        let fields = json!({
            "node": first.source,
            "input": first.input,
            "offset": first.offset,
            "length": first.length,
            "reason": first.reason,
            "ranges": group.count,
            "bytes": group.bytes,
        });
        shell.warn_of("damage", &printable_sentence(&what), fields);
    }
    if more > 0 {
        shell.warn(&format!("and {} more", units::count(more)));
    }
    for (name, source) in &report.sources {
        for (reason, count) in &source.losses {
            let lost = units::many(*count, "message");
            let fields = json!({ "node": name, "count": count, "reason": reason });
            shell.warn_of("loss", &format!("{name}: {lost} lost: {reason}"), fields);
        }
    }
    report.notes.iter().for_each(|note| shell.note(&flags::note(note, origin)));
    if report.interrupted {
        shell.warn(
            "stopped before the end of an input that cannot be read again: what it had given is written",
        );
    }
}

/// Says what a run did. Programs that asked for progress alone have had their last word.
pub(crate) fn tell_summary(text: &str, fields: Value, args: &RunningArgs, shell: &Shell) {
    if args.progress != ProgressForm::Json || log::is_json() {
        shell.summary(text, fields);
    }
}

/// What a run did, for programs.
pub(crate) fn summary_fields(report: &Report) -> Value {
    json!({
        "events": report.sources.values().map(|source| source.events).sum::<u64>(),
        "written": report.sinks.values().map(|sink| sink.events).sum::<u64>(),
        "bytes": report.bytes_read,
        "damage": report.damaged_ranges,
        "lost": report.sources.values().map(|source| source.lost).sum::<u64>(),
        "files": report.files.len(),
        "seconds": report.seconds,
        "exit": report.exit(),
    })
}

/// What a run did, in a line.
pub(crate) fn summary(report: &Report) -> String {
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
    let lost = report.sources.values().map(|source| source.lost).sum();
    if lost > 0 {
        text += &format!("; {} lost", units::count(lost));
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
