//! `report`: generates the pipeline from logs to what shows them, and runs it.

use sluice_model::{DefaultRole, Input, PluginKind};

use crate::args::{Assignment, ReportArgs};
use crate::commands::generated::{parse_generated, print_pipeline};
use crate::commands::{convert, execute, run};
use crate::conversion;
use crate::exit::{CommandResult, ExitStatus, Failure};
use crate::flags::PipelineOrigin;
use crate::input_format::InputFormat;
use crate::inputs;
use crate::recipe::{Recipe, string};
use crate::shell::Shell;

/// The page of each log, in the current folder.
const PAGES: &str = "{stem}.html";

pub(crate) fn run(args: &ReportArgs, shell: &Shell) -> CommandResult {
    execute::check_engine(&args.engine)?;
    if !args.json {
        refuse_unnamed_page(args)?;
        let to = args.to.as_deref().unwrap_or(PAGES);
        return report(args, &args.inputs, to, shell);
    }
    let mut logs = Vec::new();
    for name in &args.inputs {
        logs.extend(inputs::expand(shell, name)?);
    }
    if logs.len() > 1 && args.engine.running.report.is_some() {
        return Err(Failure::Usage(format!(
            "--report with --json takes one log, not {}: each is a run of its own; run them one by \
             one, or write figures to files: --to '{{stem}}.json'",
            logs.len()
        )));
    }
    // A line per log.
    let mut worst = ExitStatus::Done;
    for Input { path, .. } in logs {
        let path = inputs::utf8_path(&path)?.to_owned();
        worst = worst.max(report(args, &[path], "-", shell)?);
    }
    Ok(worst)
}

/// Refuses standard input, which has no name, for a page that is named after its log.
fn refuse_unnamed_page(args: &ReportArgs) -> Result<(), Failure> {
    match args.to.is_none() && args.inputs.iter().any(|input| input == "-") {
        true => Err(Failure::Usage(
            "standard input has no name to call a page by; name the page: --to PAGE.html".into(),
        )),
        false => Ok(()),
    }
}

/// Writes one report of these logs, or one of each if `to` has placeholders.
fn report(args: &ReportArgs, logs: &[String], to: &str, shell: &Shell) -> CommandResult {
    let text = pipeline_text(args, logs, to, shell)?;
    let describe = args.format.describe.as_deref();
    let pipeline = parse_generated("sluice report", &text, describe, shell)?;
    if args.print_pipeline {
        return print_pipeline("sluice report", text, shell);
    }
    run::execute(pipeline, &args.engine, PipelineOrigin::Flags, shell)
}

/// The pipeline file equivalent to the arguments.
fn pipeline_text(
    args: &ReportArgs,
    logs: &[String],
    to: &str,
    shell: &Shell,
) -> Result<String, Failure> {
    let sink = inputs::default_plugin(shell, PluginKind::Sink, DefaultRole::Report)?;
    let (inputs, selection) = inputs::resolve_file_urls(logs, &args.selection, shell)?;
    let format = InputFormat::from_args(&args.format)?;
    let source = convert::find_source(&inputs, format.from.as_deref(), &format.options, shell)?;
    let own = conversion::own_types(source, &inputs, shell);
    let types = conversion::decoding_types(source, own, !selection.decoding.types.is_empty());
    let types: Vec<&str> = types.iter().map(String::as_str).collect();
    let from_source = conversion::behind(source, &format.options);
    let mut sink_options = Vec::new();
    if let Some(title) = &args.title {
        sink_options.push(Assignment { name: "title".into(), value: string(title) });
    }
    if let Some(expect) = &args.expect {
        sink_options.push(Assignment { name: "expect".into(), value: string(expect) });
    }
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
    Ok(recipe.text())
}
