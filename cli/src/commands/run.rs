//! `run`: runs a pipeline file; and how any verb runs its pipeline.

use std::path::Path;
use std::sync::Arc;

use sluice_model::Overwrite;
use sluice_pipeline::run::{self, Options};
use sluice_pipeline::{Pipeline, Report, dispatch, resume};

use super::execute::{
    already_done, connect_carrier, deliver_report, engine_options, print_summary, refuse_to_redo,
    report_findings, report_json, run_watched, summary_fields, summary_text, warn_of_kept_outputs,
};
use super::report_file::{self, ReportFile};
use super::{batch, execute, plan};
use crate::args::{EngineArgs, RunArgs};
use crate::exit::{CommandResult, Failure};
use crate::flags::{self, PipelineOrigin};
use crate::notes;
use crate::progress::ProgressMeter;
use crate::python;
use crate::shell::Shell;
use crate::signals;

pub(crate) fn run(args: &RunArgs, shell: &Shell) -> CommandResult {
    let pipeline = report_file::prepare(args.engine.report(), || {
        execute::check_engine(&args.engine)?;
        let mut document = super::document(&args.file)?;
        let plugins = args.python.as_deref().map(python::file_option).transpose()?;
        document.presets.extend(plugins);
        super::read(&document, &args.variables, shell)
    })?;
    pipeline.notes.iter().for_each(|note| shell.note(note));
    execute(pipeline, &args.engine, PipelineOrigin::File, shell)
}

/// Runs a pipeline, or prints its plan with `--dry-run`.
pub(crate) fn execute(
    pipeline: Pipeline,
    args: &EngineArgs,
    origin: PipelineOrigin,
    shell: &Shell,
) -> CommandResult {
    let is_batch = !pipeline.templates.is_empty();
    report_file::prepare(args.report(), || check_usage(&pipeline, args))?;
    if args.dry_run {
        return plan::print_text(&pipeline, args, shell);
    }
    if is_batch {
        return batch::execute(&pipeline, args, origin, shell);
    }
    let targets = resume::targets(&pipeline);
    let only_prints = targets.iter().all(|target| target == Path::new("-"));
    let clock = flags::clock(&pipeline);
    let mut options = engine_options(args);
    let mut before = None;
    if args.resume {
        let once = || Ok(resume::input_read_once(&pipeline)?);
        if let Some(input) = report_file::prepare(args.report(), once)? {
            // Outputs that are there stay, and so does their report.
            refuse_to_redo(&input, &targets)?;
            options.overwrite = Overwrite::Refuse;
        }
        let earlier = || Ok(resume::earlier_run(&pipeline, &engine_options(args))?);
        before = report_file::prepare(args.report(), earlier)?;
    }
    let report_file = ReportFile::open_if_requested(&args.running, &pipeline, &targets)?;
    if let Some(before) = before {
        resume::sweep_outputs(&targets);
        let naming = (origin, clock.as_deref(), args.running.strict);
        return already_done(before, report_file, naming, shell);
    }
    if args.resume && resume::is_of_other_pipeline(&pipeline, &engine_options(args)) {
        shell.note(&notes::other_pipeline());
    }
    let carrier = connect_carrier(args, shell);
    let meter = Arc::new(ProgressMeter::beside(&targets, args.running.progress, shell));
    let watched = |options: &Options| match carrier? {
        Some(carrier) => Ok(dispatch::run_by(pipeline, &*carrier, &shell.registry, options)?),
        None => Ok(run::run(pipeline, options)?),
    };
    let result = run_watched(&meter, options, &signals::PUBLISHING, watched);
    // A report says whether everything was written, whoever reads it.
    let may_be_closed = only_prints && report_file.is_none();
    let result = result.map_err(Failure::with_retry_hint).map_err(|failure| match may_be_closed {
        true => failure,
        false => failure.stdout_closed_is_failure(),
    });
    let strict = args.running.strict;
    let to_json = |report: &Report| report_json(report, strict);
    let failed = meter.failed_run();
    failed.iter().for_each(|failed| warn_of_kept_outputs(failed, shell));
    let known = failed.map(|failed| failed.to_json());
    deliver_report(report_file, result.as_ref(), to_json, known, shell)?;
    let mut report = result?;
    if args.resume {
        resume::sweep_outputs(&targets);
    }
    meter.drop_reported_notes(&mut report);
    flags::name_clock(&mut report.names, clock.as_deref());
    let status = report_findings(&report, origin, strict, shell);
    if !report.refused {
        let (text, fields) = (summary_text(&report), summary_fields(&report, status));
        print_summary(&text, fields, &args.running, shell);
    }
    Ok(status)
}

/// Refuses arguments that do not suit the pipeline, and programs unless they are allowed.
fn check_usage(pipeline: &Pipeline, args: &EngineArgs) -> Result<(), Failure> {
    if args.shard.is_some() && pipeline.templates.is_empty() {
        return Err(Failure::Usage(
            "--shard runs a part of the inputs, so outputs must be named after inputs: put \
             `{stem}` into their paths"
                .into(),
        ));
    }
    match args.dry_run {
        true => Ok(()),
        false => Ok(run::check_programs_allowed(pipeline, &engine_options(args))?),
    }
}
