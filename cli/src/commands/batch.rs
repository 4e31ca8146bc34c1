//! Runs a pipeline once per input, for outputs named after inputs, and reports the result of each.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};
use sluice_io::escape::path_text;
use sluice_io::files;
use sluice_model::units;
use sluice_pipeline::Pipeline;
use sluice_pipeline::batch::{Batch, BatchReport, FailurePolicy, Status, UnitReport};
use sluice_pipeline::run::Options;

use crate::args::EngineArgs;
use crate::commands::execute::{
    self, refuse_to_redo, report_losses, report_unmatched, run_watched, summary_text,
};
use crate::commands::report_file::{self, ReportFile};
use crate::exit::{CommandResult, EXIT_LOSSES, EXIT_UNMET, ExitStatus, Failure};
use crate::flags::{self, PipelineOrigin};
use crate::inputs;
use crate::notes;
use crate::progress::ProgressMeter;
use crate::shell::Shell;
use crate::signals;

/// The number of failed inputs listed; the report has all.
const MOST_SHOWN: usize = 100;

/// The batch of a pipeline, or the part of it that is to run. A name that is not UTF-8 is no
/// option: its unit fails, or, unless others go on without it, the batch is refused.
pub(crate) fn open(
    pipeline: &Pipeline,
    args: &EngineArgs,
    shell: &Shell,
) -> Result<Batch, Failure> {
    let failing = args.failing(false);
    let mut batch = Batch::new(pipeline, &shell.registry, failing)?;
    for unit in &mut batch.units {
        match (inputs::utf8_path(&unit.input.path), failing) {
            (Ok(_), _) => {}
            (Err(failure), FailurePolicy::Stop) => return Err(failure),
            (Err(failure), FailurePolicy::Continue) => unit.failure = Some(failure.message()),
        }
    }
    match args.shard {
        Some(shard) => Ok(batch.shard(shard, pipeline, &execute::engine_options(args))?),
        None => Ok(batch),
    }
}

/// Runs a batch.
pub(crate) fn execute(
    pipeline: &Pipeline,
    args: &EngineArgs,
    origin: PipelineOrigin,
    shell: &Shell,
) -> CommandResult {
    let batch = report_file::prepare(args.report(), || open(pipeline, args, shell))?;
    if args.resume {
        for unit in batch.units.iter().filter(|unit| files::is_stream(&unit.input.path)) {
            // Outputs that are there stay, and so does their report.
            refuse_to_redo(&unit.input.path, &unit.outputs)?;
        }
        let is_other =
            || Ok(batch.is_of_other_pipeline(&shell.registry, &execute::engine_options(args))?);
        if report_file::prepare(args.report(), is_other)? {
            shell.note(&notes::other_pipeline());
        }
    }
    let outputs: Vec<PathBuf> =
        batch.units.iter().flat_map(|unit| unit.outputs.iter().cloned()).collect();
    let report_file = ReportFile::open_if_requested(&args.running, pipeline, &outputs)?;
    let carrier = execute::connect_carrier(args, shell);
    let run = |options: &Options| match carrier? {
        Some(carrier) => Ok(batch.run_by(&*carrier, &shell.registry, options)?),
        None => Ok(batch.run(&shell.registry, options)?),
    };
    let meter = Arc::new(ProgressMeter::beside(&outputs, args.running.progress, shell));
    let result = run_watched(&meter, execute::engine_options(args), &signals::PUBLISHING, run);
    // Names that match nothing in a part may match in others.
    let strict = args.running.strict && args.shard.is_none();
    let to_json =
        |report: &BatchReport| execute::with_exit(report.to_json(), exit_status(report, strict));
    execute::deliver_report(
        report_file,
        result.as_ref(),
        to_json,
        meter.failed_run().map(|failed| failed.to_json()),
        shell,
    )?;
    let mut report = result?;
    let status = exit_status(&report, strict);
    report_losses(&report.report, origin, shell);
    flags::name_clock(&mut report.report.names, flags::clock(pipeline).as_deref());
    report_unmatched(&report.report, origin, status, shell);
    let (text, fields) = (batch_summary(&report), batch_fields(&report, status));
    execute::print_summary(&text, fields, &args.running, shell);
    report_failures(&report, args, shell);
    Ok(status)
}

/// The exit status of a completed or interrupted batch.
fn exit_status(report: &BatchReport, strict: bool) -> ExitStatus {
    match report.exit() {
        exit if report.is_interrupted() => ExitStatus::Interrupted(exit),
        1 => ExitStatus::Failed,
        _ if strict && report.report.unmatched().next().is_some() => ExitStatus::Unmatched,
        0 => ExitStatus::Done,
        EXIT_UNMET => ExitStatus::Unmet,
        _ => ExitStatus::Losses,
    }
}

/// The result of the batch as JSON fields.
fn batch_fields(report: &BatchReport, status: ExitStatus) -> Value {
    let mut fields = execute::summary_fields(&report.report, status);
    fields["inputs"] = json!({
        "done": report.count(Status::Done),
        "skipped": report.count(Status::Skipped),
        "failed": report.count(Status::Failed),
        "interrupted": report.count(Status::Interrupted),
        "not_started": report.count(Status::NotStarted),
    });
    fields
}

fn batch_summary(report: &BatchReport) -> String {
    let inputs = |status| units::pluralize(report.count(status) as u64, "input");
    let mut text = format!("{} done", inputs(Status::Done));
    let others = [
        (Status::Skipped, "done before"),
        (Status::Failed, "failed"),
        (Status::Interrupted, "interrupted"),
        (Status::NotStarted, "not started"),
    ];
    for (status, word) in others {
        match report.count(status) {
            0 => {}
            count => text += &format!(", {} {word}", units::count(count as u64)),
        }
    }
    if report.count(Status::Done) > 0 {
        text += &format!("; {}", summary_text(&report.report));
    }
    text
}

fn report_failures(report: &BatchReport, args: &EngineArgs, shell: &Shell) {
    let before = || report.units.iter().filter(|unit| unit.status == Status::Skipped);
    // Records of older versions have the exit code only.
    let had_losses = |unit: &&UnitReport| unit.losses || unit.exit == Some(EXIT_LOSSES);
    match before().filter(had_losses).count() as u64 {
        0 => {}
        losses => {
            let inputs = units::pluralize(losses, "input");
            shell.warn(&format!("{inputs} had losses in an earlier run"));
        }
    }
    match before().filter(|unit| unit.exit == Some(EXIT_UNMET)).count() as u64 {
        0 => {}
        unmet => {
            let inputs = units::pluralize(unmet, "input");
            shell.error(&format!("{inputs} did not meet the expectations in an earlier run"));
        }
    }
    let failed = || report.units.iter().filter(|unit| unit.status == Status::Failed);
    for unit in failed().take(MOST_SHOWN) {
        let reason = unit.error.as_deref().unwrap_or_default();
        let text = format!("{} failed: {reason}", path_text(&unit.input));
        let fields = json!({ "input": path_text(&unit.input), "reason": reason });
        shell.error_with_fields("input-failed", &text, fields);
    }
    let more = failed().count().saturating_sub(MOST_SHOWN);
    if more > 0 {
        shell.error(&format!("and {} more", units::count(more as u64)));
    }
    let left = report.count(Status::NotStarted) as u64;
    if report.is_interrupted() {
        let given_up = report.count(Status::Interrupted) as u64;
        let inputs = units::pluralize(left + given_up, "input");
        let how = if args.overwrite { "--resume instead of --overwrite" } else { "--resume" };
        shell.warn(&format!(
            "interrupted: finished inputs are recorded; {inputs} left, of which nothing was \
             published; the same command with {how} continues"
        ));
    } else if left > 0 {
        let inputs = units::pluralize(left, "input");
        let all = "--keep-going continues when one fails";
        shell.warn(&format!("{inputs} not started; --resume continues with them, {all}"));
    }
}
