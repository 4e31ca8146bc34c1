//! `report`: generates the pipeline from logs to what shows them, and runs it.

use std::ffi::OsString;
use std::path::Path;

use sluice_io::output::canonical_path;
use sluice_model::{DefaultRole, Input, PluginKind};
use sluice_pipeline::batch::{Batch, BatchRecord, FailurePolicy};

use crate::args::{Assignment, EngineArgs, ReportArgs};
use crate::commands::generated::{parse_generated, parse_usable, print_pipeline};
use crate::commands::{execute, report_file, run};
use crate::conversion;
use crate::exit::{CommandResult, ExitStatus, Failure};
use crate::flags::PipelineOrigin;
use crate::input_format::InputFormat;
use crate::inputs::{self, FoundSource};
use crate::plugin_lookup;
use crate::recipe::{Recipe, string};
use crate::shell::Shell;
use crate::sniffing::FailedInputs;

/// The page of each log, in the current folder, unless `--to` names it.
const PAGES: &str = "{stem}.html";

pub(crate) fn run(args: &ReportArgs, shell: &Shell) -> CommandResult {
    execute::check_engine(&args.engine)?;
    if !args.json {
        refuse_unnamed_page(args)?;
        let to = args.to.as_deref().unwrap_or(PAGES);
        return report(args, &args.inputs, to, shell);
    }
    // What is wrong for all logs is said once.
    InputFormat::from_args(&args.format)?.named_source(shell)?;
    let failed = |failure: Failure| match failure {
        Failure::Options(_)
        | Failure::Description(_)
        | Failure::Interrupted { .. }
        | Failure::StdoutClosed => Err(failure),
        _ if args.engine.failing(args.print_pipeline) == FailurePolicy::Stop => Err(failure),
        _ => {
            failure.report(shell);
            Ok(ExitStatus::Failed)
        }
    };
    let (mut logs, mut worst) = (Vec::new(), ExitStatus::Done);
    for name in &args.inputs {
        match inputs::expand(shell, name) {
            Ok(found) => logs.extend(found),
            Err(failure) => worst = failed(failure)?,
        }
    }
    if logs.len() > 1 && args.engine.running.report.is_some() {
        return Err(Failure::Usage(format!(
            "--report with --json takes one log, not {}: each is a run of its own; run them one by \
             one, or write figures to files: --to '{{stem}}.json'",
            logs.len()
        )));
    }
    // A line per log.
    for Input { path, .. } in logs {
        let ending = match inputs::utf8_path(&path) {
            Ok(path) => match report(args, &[path.into()], "-", shell) {
                Err(failure @ Failure::Usage(_)) => return Err(failure),
                ending => ending,
            },
            Err(failure) => Err(failure),
        };
        worst = worst.max(ending.or_else(failed)?);
    }
    Ok(worst)
}

/// The page that a pipeline for [`PAGES`] writes, if it reads the one log that is named. It is the
/// output of a run, unless its folder has the record of a batch, which then has to have the page.
fn only_page(text: &str, inputs: &[String], engine: &EngineArgs, shell: &Shell) -> Option<String> {
    if engine.resume || engine.shard.is_some() {
        return None;
    }
    let batch = batch(text, engine, shell)?;
    let ([input], [unit]) = (inputs, &*batch.units) else { return None };
    // A glob stays a batch, however many logs match it.
    let is_named = canonical_path(Path::new(input)) == canonical_path(&unit.input.path);
    if !is_named || !matches!(BatchRecord::read(&batch.folder), Ok(None)) {
        return None;
    }
    Some(unit.outputs.first()?.to_str()?.replace('{', "{{").replace('}', "}}"))
}

/// The batch of this pipeline. What is wrong is reported when the pipeline runs.
fn batch(text: &str, engine: &EngineArgs, shell: &Shell) -> Option<Batch> {
    let pipeline = parse_generated("sluice report", text, None, shell).ok()?;
    Batch::new(&pipeline, &shell.registry, engine.failing(false)).ok()
}

/// [`PAGES`] in the folder of the page `to`, if that has the record of a batch, which then has to
/// have the page, and the page is named after its log. `text` is the pipeline that writes pages to
/// a path.
fn page_of_batch(
    to: &str,
    text: impl Fn(&str) -> String,
    engine: &EngineArgs,
    shell: &Shell,
) -> Option<String> {
    let page = Path::new(to);
    let folder = page.parent()?;
    if to.contains(['{', '}']) || !matches!(BatchRecord::read(folder), Ok(Some(_))) {
        return None;
    }
    let pages = folder.join(PAGES).to_str()?.to_owned();
    let batch = batch(&text(&pages), engine, shell)?;
    let [unit] = &*batch.units else { return None };
    let is_page = canonical_path(unit.outputs.first()?) == canonical_path(page);
    is_page.then_some(pages)
}

/// Refuses what has no name, as standard input, for a page that is named after its log.
fn refuse_unnamed_page(args: &ReportArgs) -> Result<(), Failure> {
    let is_unnamed = |input: &&str| *input == "-" || plugin_lookup::is_url(input);
    let mut inputs = args.inputs.iter().filter_map(|input| input.to_str());
    let unnamed = inputs.find(is_unnamed).filter(|_| args.to.is_none());
    let Some(input) = unnamed else { return Ok(()) };
    let input = if input == "-" { "standard input" } else { input };
    Err(Failure::Usage(format!(
        "{input} has no name to call a page by; name the page: --to PAGE.html"
    )))
}

/// Writes one report of these logs, or one of each if `to` has placeholders.
fn report(args: &ReportArgs, logs: &[OsString], to: &str, shell: &Shell) -> CommandResult {
    let report = args.engine.report().filter(|_| !args.print_pipeline);
    let (text, pipeline) = report_file::prepare(report, || {
        let (text, failed) = pipeline_text(args, logs, to, shell)?;
        let describe = args.format.describe.as_deref();
        let pipeline = parse_usable("sluice report", (&text, failed), describe, shell)?;
        Ok((text, pipeline))
    })?;
    if args.print_pipeline {
        return print_pipeline("sluice report", text, shell);
    }
    run::execute(pipeline, &args.engine, PipelineOrigin::Flags, shell)
}

/// The pipeline file equivalent to the arguments, and the logs that fail alone.
fn pipeline_text(
    args: &ReportArgs,
    logs: &[OsString],
    to: &str,
    shell: &Shell,
) -> Result<(String, FailedInputs), Failure> {
    let sink = plugin_lookup::default_plugin(shell, PluginKind::Sink, DefaultRole::Report)?;
    let failing = args.engine.failing(args.print_pipeline);
    let (inputs, unnamed) = inputs::texts(logs, failing)?;
    let (inputs, selection) = inputs::resolve_file_urls(&inputs, &args.selection, shell)?;
    let format = InputFormat::from_args(&args.format)?;
    let FoundSource { plugin: source, names, mut failed } =
        inputs::find_source_of_usable(&inputs, &format, failing, shell)?;
    failed.extend(unnamed);
    let types = conversion::decoding_types(source, &names, &selection.decoding, shell);
    let from_source = conversion::behind(source, &format.options)?;
    let option = |(name, text): (&str, &Option<String>)| {
        text.as_ref().map(|text| Assignment { name: name.into(), value: string(text) })
    };
    let sink_options = [("title", &args.title), ("expect", &args.expect)].map(option);
    let sink_options: Vec<_> = sink_options.into_iter().flatten().collect();
    let recipe = Recipe {
        source: source.name,
        inputs: &inputs,
        source_options: &format.options,
        own_types: &types,
        selection: Some(&selection),
        from_source: &from_source,
        sink: sink.name,
        output: to,
        sink_options: &sink_options,
        fields: &args.field,
        ..Recipe::default()
    };
    let text = recipe.text();
    let text_of = |output: &str| Recipe { output, ..recipe }.text();
    let page = match to {
        _ if !failed.is_empty() => None,
        PAGES => only_page(&text, &inputs, &args.engine, shell),
        to => page_of_batch(to, text_of, &args.engine, shell),
    };
    match page {
        Some(page) => Ok((Recipe { output: &page, ..recipe }.text(), failed)),
        None => Ok((text, failed)),
    }
}
