//! Runs a pipeline for `run` and `convert`: signals, progress, report file and summary.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};

use serde_json::{Value, json};
use sluice_io::escape::printable_sentence;
use sluice_io::files::is_stream;
use sluice_io::output::is_used;
use sluice_model::{Overwrite, units};
use sluice_pipeline::Report;
use sluice_pipeline::dispatch::Carrier;
use sluice_pipeline::names::{NameKind, NameReport};
use sluice_pipeline::report::Note;
use sluice_pipeline::resume::EarlierRun;
use sluice_pipeline::run::{Options, Stop};

use crate::args::{EngineArgs, EngineKind, ProgressFormat, RunningArgs};
use crate::commands::report_file::{ReportFile, failure_json};
use crate::damage;
use crate::engine::{self, ClusterOptions, Engine};
use crate::exit::{CommandResult, EXIT_UNMET, ExitStatus, Failure};
use crate::features;
use crate::flags::{self, PipelineOrigin};
use crate::log;
use crate::notes;
use crate::progress::ProgressMeter;
use crate::shell::Shell;
use crate::signals::{SignalListener, SignalMessages};

/// The number of damage groups printed; the report has each range.
const MOST_SHOWN: usize = 20;

/// The number of expectations printed that are not met; the report has all.
const MOST_UNMET_SHOWN: usize = 100;

/// Refuses engine options that this program cannot satisfy.
pub(crate) fn check_engine(args: &EngineArgs) -> Result<(), Failure> {
    match args.engine {
        EngineKind::Ballista if args.shard.is_some() => Err(Failure::Usage(
            "--shard cannot be used with --engine ballista: a part of a batch runs on this machine"
                .into(),
        )),
        EngineKind::Ballista => engine().map(drop),
        EngineKind::Local => args.cluster.refuse_without_cluster_engine(),
    }
}

/// Connects to the cluster, if the run uses one.
pub(crate) fn connect_carrier(
    args: &EngineArgs,
    shell: &Shell,
) -> Result<Option<Box<dyn Carrier>>, Failure> {
    match args.engine {
        EngineKind::Local => Ok(None),
        EngineKind::Ballista => (engine()?.connect)(&cluster_options(args), shell).map(Some),
    }
}

fn cluster_options(args: &EngineArgs) -> ClusterOptions {
    let EngineArgs { running, cluster, .. } = args;
    ClusterOptions {
        scheduler: cluster.scheduler.clone(),
        local_cluster: cluster.local_cluster,
        credentials: cluster.credentials.clone(),
        patience: cluster.cluster_patience.clone(),
        jobs: running.jobs,
        allow_exec: running.allow_exec,
    }
}

fn engine() -> Result<&'static Engine, Failure> {
    engine::engine().ok_or_else(|| features::CLUSTER.failure())
}

/// The exit status of a completed run.
pub(crate) fn exit_status(report: &Report, strict: bool) -> ExitStatus {
    match report.unmatched().next() {
        Some(_) if strict => ExitStatus::Unmatched,
        _ if report.unmet_count > 0 => ExitStatus::Unmet,
        _ if report.is_complete() => ExitStatus::Done,
        _ => ExitStatus::Losses,
    }
}

/// A report or summary with the exit code of the command, which its options may change.
pub(crate) fn with_exit(mut fields: Value, status: ExitStatus) -> Value {
    fields["exit"] = status.code().into();
    fields
}

/// The report of a run as JSON.
pub(crate) fn report_json(report: &Report, strict: bool) -> Value {
    let mut fields = with_exit(report.to_json(), exit_status(report, strict));
    if report.refused {
        fields["error"] = refusal(report).into();
    }
    fields
}

/// Why a strict run published nothing.
fn refusal(report: &Report) -> String {
    format!("nothing was published: {}, and --strict was given", unmatched_what(report))
}

/// What matched nothing.
fn unmatched_what(report: &Report) -> &'static str {
    match report.unmatched().any(|name| name.kind != NameKind::Window) {
        true => "a name matched nothing",
        false => "the time window has no event",
    }
}

/// Prints what was lost, noted and not met in a completed run, and the names in its options that
/// matched nothing; returns the exit status.
pub(crate) fn report_findings(
    report: &Report,
    origin: PipelineOrigin,
    strict: bool,
    shell: &Shell,
) -> ExitStatus {
    let status = exit_status(report, strict);
    report_losses(report, origin, shell);
    report_unmatched(report, origin, status, shell);
    status
}

/// Prints the names in options that matched nothing: as errors if the command fails with them.
pub(crate) fn report_unmatched(
    report: &Report,
    origin: PipelineOrigin,
    status: ExitStatus,
    shell: &Shell,
) {
    let fails = status == ExitStatus::Unmatched;
    let is_reported = |name: &&NameReport| name.sentence().is_some();
    let all = || report.names.iter().filter(is_reported);
    for name in all().take(MOST_SHOWN) {
        let (place, what) =
            (flags::name_location(name, origin), name.sentence().unwrap_or_default());
        if name.is_unmatched() {
            let message = printable_sentence(&format!("{place}: {what}")).into_owned();
            match fails {
                true => shell.error_with_fields("unmatched", &message, name_fields(name)),
                false => shell.warn_with_fields("unmatched", &message, name_fields(name)),
            }
        } else {
            shell.note_at(&place, &Note { node: name.node.clone(), what, count: 0 });
        }
    }
    let more = all().count().saturating_sub(MOST_SHOWN) as u64;
    if more > 0 {
        shell.warn(&format!("and {} more", units::pluralize(more, "name")));
    }
    if report.refused {
        shell.error(&refusal(report));
    } else if fails {
        shell.error(&format!("{}, and --strict was given", unmatched_what(report)));
    }
}

/// A name as fields of a message, which has a `kind` of its own.
fn name_fields(name: &NameReport) -> Value {
    let NameReport { node, option, kind, name, found, nearest } = name;
    json!({
        "node": node,
        "option": option,
        "name_kind": kind,
        "name": name,
        "found": found,
        "nearest": nearest,
    })
}

/// Writes the report, or the failure with what is `known` of the run, to its file, and to the
/// caller of an embedded verb.
pub(crate) fn deliver_report<R>(
    file: Option<ReportFile>,
    result: Result<&R, &Failure>,
    to_json: impl Fn(&R) -> Value,
    known: Option<Value>,
    shell: &Shell,
) -> Result<(), Failure> {
    if let (Some(embedding), Ok(report)) = (shell.embedding(), result) {
        embedding.set_report(to_json(report));
    }
    let failed = |failure| failure_json(failure, known);
    file.map_or(Ok(()), |file| file.write(result.map(to_json).map_err(failed)))
}

/// Refuses to make outputs again that have what an earlier run read from `input`, which cannot be
/// read again.
pub(super) fn refuse_to_redo(input: &Path, targets: &[PathBuf]) -> Result<(), Failure> {
    let is_made = |target: &&PathBuf| match target.is_dir() {
        true => is_used(target),
        false => target.exists() && !is_stream(target),
    };
    let Some(made) = targets.iter().find(is_made) else { return Ok(()) };
    Err(Failure::Usage(format!(
        "--resume keeps outputs of inputs that can be read again, and {} cannot be; write \
         elsewhere, or replace the output with --overwrite: {}",
        input.display(),
        made.display()
    )))
}

/// Reports that `--resume` found nothing to do.
pub(super) fn already_done(
    before: EarlierRun,
    report_file: Option<ReportFile>,
    (origin, clock, strict): (PipelineOrigin, Option<&str>, bool),
    shell: &Shell,
) -> CommandResult {
    let mut report = Report { names: before.ended.unmatched, ..Report::default() };
    flags::name_clock(&mut report.names, clock);
    let ending = match before.ended.exit {
        _ if strict && report.unmatched().next().is_some() => ExitStatus::Unmatched,
        0 => ExitStatus::Done,
        EXIT_UNMET => ExitStatus::Unmet,
        _ => ExitStatus::Losses,
    };
    let mut value = with_exit(report.to_json(), ending);
    value["skipped"] = true.into();
    deliver_report(report_file, Ok(&value), Value::clone, None, shell)?;
    let folders: Vec<String> = before.folders.iter().map(|f| f.display().to_string()).collect();
    let files = units::pluralize(before.files, "file");
    shell.info(&format!("already done: {} ({files})", folders.join(", ")));
    report_unmatched(&report, origin, ending, shell);
    if before.ended.losses || ending == ExitStatus::Losses {
        shell.warn("the earlier run had losses");
    }
    if ending == ExitStatus::Unmet {
        shell.error("the earlier run did not meet its expectations");
    }
    Ok(ending)
}

/// Runs something with progress, until it ends or a signal stops it, with these messages for
/// signals. The caller of an embedded verb handles signals itself.
pub(crate) fn run_watched<T>(
    meter: &Arc<ProgressMeter>,
    options: Options,
    words: &'static SignalMessages,
    run: impl FnOnce(&Options) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let options = Options { progress: Some(meter.clone()), ..options };
    if let Some(embedding) = meter.embedding() {
        return run(&Options { stop: Arc::clone(&embedding.stop), ..options });
    }
    let shared_meter = Arc::clone(meter);
    let say = move |text: &str| shared_meter.println(text);
    let listening = SignalListener::start(Arc::clone(&options.stop), words, say);
    let result = run(&options);
    drop(listening);
    meter.finish();
    result.map_err(|failure| failure.with_exit_code_of(&options.stop))
}

/// Runs `run` while `watch` runs on another thread. The channel of `watch` gets a message if `run`
/// succeeds, and is closed in any case. If `watch` panics, the run is asked to stop and the panic
/// is propagated.
pub(crate) fn run_with_watcher<T>(
    stop: &Stop,
    watch: impl FnOnce(&Receiver<()>) + Send,
    run: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    /// Stops the run on panic, as an endless run would never end otherwise.
    struct StopOnPanic<'s>(&'s Stop);
    impl Drop for StopOnPanic<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                self.0.request();
            }
        }
    }
    std::thread::scope(|scope| {
        let (running, over) = mpsc::channel();
        let watch = move || {
            let _watching = StopOnPanic(stop);
            watch(&over);
        };
        let watcher = std::thread::Builder::new().name("sluice-watch".into());
        let watcher = watcher.spawn_scoped(scope, watch);
        let watcher =
            watcher.map_err(|e| Failure::Failed(format!("cannot start a thread: {e}")))?;
        let result = run();
        if result.is_ok() {
            // The watcher may have ended already.
            let _told = running.send(());
        }
        drop(running);
        match watcher.join() {
            Ok(()) => result.map_err(|failure| failure.with_exit_code_of(stop)),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// The engine options for these arguments.
pub(crate) fn engine_options(args: &EngineArgs) -> Options {
    Options {
        overwrite: match (args.overwrite, args.resume) {
            (true, _) => Overwrite::Replace,
            (_, true) => Overwrite::Redo,
            _ => Overwrite::Refuse,
        },
        ..running_options(&args.running)
    }
}

/// The engine options for resources and reporting.
pub(crate) fn running_options(args: &RunningArgs) -> Options {
    let RunningArgs { jobs, memory, report, allow_exec, strict, .. } = args;
    let (jobs, memory, allow_exec, strict) = (*jobs, *memory, *allow_exec, *strict);
    Options { jobs, memory, allow_exec, strict, hash: report.is_some(), ..Options::default() }
}

/// Prints damage, losses and notes of a run whose options came from flags.
pub fn report_flag_losses(report: &Report, shell: &Shell) {
    report_losses(report, PipelineOrigin::Flags, shell);
}

/// Prints damage, losses and notes of a run.
pub(crate) fn report_losses(report: &Report, origin: PipelineOrigin, shell: &Shell) {
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
        shell.warn_with_fields("damage", &printable_sentence(&what), fields);
    }
    if more > 0 {
        shell.warn(&format!("and {} more", units::count(more)));
    }
    for (name, source) in &report.sources {
        for (reason, count) in &source.losses {
            let lost = units::pluralize(*count, "message");
            let fields = json!({ "node": name, "count": count, "reason": reason });
            shell.warn_with_fields("loss", &format!("{name}: {lost} lost: {reason}"), fields);
        }
    }
    // Machines get every note.
    let notes = match log::is_json() {
        true => report.notes.iter().map(Cow::Borrowed).collect(),
        false => notes::merged(&report.notes),
    };
    notes.iter().for_each(|note| shell.note(&flags::note_with_flags(note, origin)));
    report_unmet(report, origin, shell);
    if report.interrupted {
        shell.warn(
            "stopped before the end of an input that cannot be read again: the events read so far \
             are written",
        );
    }
}

/// Prints the expectations that are not met.
fn report_unmet(report: &Report, origin: PipelineOrigin, shell: &Shell) {
    for listed in report.unmet_expectations.iter().take(MOST_UNMET_SHOWN) {
        let input = listed.input.iter().map(String::as_str);
        let node = (origin == PipelineOrigin::File).then_some(listed.node.as_str());
        let sentence = listed.unmet.to_string();
        let words: Vec<&str> = input.chain(node).chain([sentence.as_str()]).collect();
        let text = printable_sentence(&words.join(": ")).into_owned();
        shell.error_with_fields("unmet", &text, json!(listed));
    }
    let more = report.unmet_count.saturating_sub(MOST_UNMET_SHOWN as u64);
    if more > 0 {
        shell.error(&format!("and {}", units::pluralize(more, "more expectation")));
    }
}

/// Prints the summary, except after JSON progress, which ends with its own last record.
pub(crate) fn print_summary(text: &str, fields: Value, args: &RunningArgs, shell: &Shell) {
    if args.progress != ProgressFormat::Json || log::is_json() {
        shell.summary(text, fields);
    }
}

/// The summary as JSON fields.
pub(crate) fn summary_fields(report: &Report, status: ExitStatus) -> Value {
    json!({
        "events": report.sources.values().map(|source| source.events).sum::<u64>(),
        "written": report.sinks.values().map(|sink| sink.events).sum::<u64>(),
        "bytes": report.bytes_read,
        "damage": report.damaged_ranges,
        "unmet": report.unmet_count,
        "lost": report.sources.values().map(|source| source.lost).sum::<u64>(),
        "files": report.files.len(),
        "seconds": report.seconds,
        "exit": status.code(),
    })
}

/// The summary as one line.
pub(crate) fn summary_text(report: &Report) -> String {
    let read: u64 = report.sources.values().map(|source| source.events).sum();
    let written: u64 = report.sinks.values().map(|sink| sink.events).sum();
    let (bytes, seconds) = (report.bytes_read, report.seconds);
    let mut text = units::pluralize(read, "event");
    match report.sinks.len() {
        0 | 1 if written == read => {}
        0 | 1 => text += &format!(" read, {} written", units::count(written)),
        sinks => text += &format!(" read for {sinks} sinks"),
    }
    text += &format!(
        "; {} in {seconds:.2} s, {}",
        units::bytes(bytes),
        units::throughput(bytes, seconds)
    );
    if report.damaged_ranges > 0 {
        text += &format!("; {}", units::pluralize(report.damaged_ranges, "damaged range"));
    }
    let lost = report.sources.values().map(|source| source.lost).sum();
    if lost > 0 {
        text += &format!("; {} lost", units::count(lost));
    }
    if report.unmet_count > 0 {
        let unmet = units::pluralize(report.unmet_count, "expectation");
        text += &format!("; {unmet} not met");
    }
    match written_files(report) {
        Some(files) => text + &format!("; wrote {files}"),
        None => text,
    }
}

/// Warns of the outputs that a run has published although it failed.
pub(super) fn warn_of_kept_outputs(failed: &Report, shell: &Shell) {
    if let Some(files) = written_files(failed) {
        shell.warn(&format!("what was received until the run failed is kept: {files}"));
    }
}

/// The files of a run and their size; `None` if there are none.
fn written_files(report: &Report) -> Option<String> {
    let files = || report.files.iter().filter(|file| file.path != Path::new("-"));
    let bytes = units::bytes(files().map(|file| file.bytes).sum());
    match (files().count(), files().next()) {
        (0, _) | (_, None) => None,
        (1, Some(file)) => Some(format!("{} ({bytes})", file.path.display())),
        (many, _) => Some(format!("{} ({bytes})", units::pluralize(many as u64, "file"))),
    }
}
