//! `cat`: prints events, as lines for people or as JSON.

use std::sync::Arc;

use sluice_model::time::TimePoint;
use sluice_model::{DefaultRole, Plugin, PluginKind};
use sluice_pipeline::Report;
use sluice_pipeline::run::{self, Options};

use crate::args::{Assignment, CatArgs, ProgressFormat, SelectionArgs};
use crate::commands::{execute, generated};
use crate::conversion;
use crate::exit::{CommandResult, Failure};
use crate::flags::PipelineOrigin;
use crate::input_format::InputFormat;
use crate::inputs;
use crate::plugin_lookup;
use crate::progress::ProgressMeter;
use crate::recipe::Recipe;
use crate::shell::Shell;
use crate::signals::SignalListener;

/// Consecutive inputs that are read by the same source.
struct InputGroup<'s> {
    source: &'s Plugin,
    inputs: Vec<String>,
}

pub(crate) fn run(args: &CatArgs, shell: &Shell) -> CommandResult {
    let (inputs, selection) = inputs::resolve_file_urls(&args.files, &args.selection, shell)?;
    let format = InputFormat::from_args(&args.format)?;
    let groups = group_inputs(inputs, &format, shell)?;
    if groups.len() > 1 {
        refuse_relative_times(&selection)?;
    }
    let mut report = Report::default();
    for group in groups {
        let printed: u64 = report.sinks.values().map(|sink| sink.events).sum();
        let limit = args.limit.map(|limit| limit.saturating_sub(printed));
        // Inputs beyond the limit are not opened; a limit of 0 still validates the options.
        if limit == Some(0) && printed > 0 {
            break;
        }
        report.add(print_group(args, &group, &selection, &format, limit, shell)?);
    }
    Ok(execute::report_findings(&report, PipelineOrigin::Flags, args.strict, shell))
}

/// Groups inputs: all of them if one source reads all, otherwise runs of consecutive inputs of one
/// format.
fn group_inputs<'s>(
    inputs: Vec<String>,
    format: &InputFormat,
    shell: &'s Shell,
) -> Result<Vec<InputGroup<'s>>, Failure> {
    let source = |inputs: &[String]| inputs::find_source(inputs, format, shell);
    let mixed = match source(&inputs) {
        Ok(source) => return Ok(vec![InputGroup { source, inputs }]),
        Err(failure @ Failure::Error(_)) => return Err(failure),
        Err(failure) => failure,
    };
    // A live input has no end, so nothing can follow it.
    if inputs.len() == 1 || inputs.iter().any(|input| plugin_lookup::is_url(input)) {
        return Err(mixed);
    }
    let mut groups: Vec<InputGroup<'s>> = Vec::new();
    for input in inputs {
        let source = source(std::slice::from_ref(&input))?;
        match groups.last_mut().filter(|group| group.source.name == source.name) {
            Some(group) => group.inputs.push(input),
            None => groups.push(InputGroup { source, inputs: vec![input] }),
        }
    }
    Ok(groups)
}

/// Refuses times relative to the first event, as logs that are read separately have no common first
/// event.
fn refuse_relative_times(selection: &SelectionArgs) -> Result<(), Failure> {
    for (flag, time) in [("--start", &selection.start), ("--end", &selection.end)] {
        let Some(time) = time else { continue };
        if matches!(TimePoint::parse_chosen(time), Ok(TimePoint::After(_))) {
            return Err(Failure::Usage(format!(
                "{flag} {time} is relative to the first event of all logs, but these have \
                 different formats: give an absolute time, or print them one by one"
            )));
        }
    }
    Ok(())
}

/// Prints the events of one group.
fn print_group(
    args: &CatArgs,
    group: &InputGroup<'_>,
    selection: &SelectionArgs,
    format: &InputFormat,
    limit: Option<u64>,
    shell: &Shell,
) -> Result<Report, Failure> {
    let source = group.source;
    let role = if args.json { DefaultRole::PrintJson } else { DefaultRole::Print };
    let sink = plugin_lookup::default_plugin(shell, PluginKind::Sink, role)?;
    let from_source = conversion::behind(source, &format.options)?;
    let own = conversion::own_types(source, &group.inputs, &selection.decoding.types, shell);
    let recipe = Recipe {
        source: source.name,
        from_source: &from_source,
        inputs: &group.inputs,
        source_options: &format.options,
        own_types: &own,
        selection: Some(selection),
        limit,
        // Payloads must be encoded again to be shown.
        encodes: args.payload && (source.gives_rows || !from_source.is_empty()),
        sink: sink.name,
        output: "-",
        sink_options: &sink_options(args),
        fields: &args.field,
        ..Recipe::default()
    };
    let pipeline = generated::parse_reading("sluice cat", &recipe.text(), None, shell)?;
    // Show no progress, only the messages of child programs.
    let meter = Arc::new(ProgressMeter::new(ProgressFormat::None, shell));
    let allow_exec = args.allow_exec;
    let options = Options { allow_exec, progress: Some(meter.clone()), ..Options::default() };
    // Nothing needs to be finished on a signal.
    let listening = SignalListener::terminating();
    let result = run::run(pipeline, &options);
    drop(listening);
    let mut report = result?;
    meter.drop_reported_notes(&mut report);
    Ok(report)
}

fn sink_options(args: &CatArgs) -> Vec<Assignment> {
    let on = |name: &str| Assignment { name: name.into(), value: "true".into() };
    match (args.json, args.payload, args.full) {
        (true, true, _) => vec![on("payload")],
        (false, _, false) => vec![on("abbreviate")],
        _ => Vec::new(),
    }
}
