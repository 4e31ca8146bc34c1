//! `cat`: prints events, as lines for people or as JSON.

use std::sync::Arc;

use sluice_core::time::TimePoint;
use sluice_core::{Plugin, PluginKind};
use sluice_pipeline::Report;
use sluice_pipeline::run::{self, Options};

use crate::args::{Assignment, CatArgs, ProgressForm, SelectionArgs};
use crate::commands::{convert, execute};
use crate::description::Format;
use crate::ending::{Failure, Outcome};
use crate::flags::Origin;
use crate::inputs;
use crate::progress::Meter;
use crate::recipe::Recipe;
use crate::shell::Shell;
use crate::signals::Listening;

/// Logs that one source reads, one after another.
struct Group<'s> {
    source: &'s Plugin,
    inputs: Vec<String>,
}

pub(crate) fn run(args: &CatArgs, shell: &Shell) -> Outcome {
    let (inputs, selection) = inputs::without_addresses(&args.files, &args.selection, shell)?;
    let format = Format::of(args.from.as_deref(), args.describe.as_deref(), &args.source_option)?;
    let groups = groups(inputs, &format, shell)?;
    if groups.len() > 1 {
        refuse_relative_times(&selection)?;
    }
    let mut report = Report::default();
    for group in groups {
        let printed: u64 = report.sinks.values().map(|sink| sink.events).sum();
        let limit = args.limit.map(|limit| limit.saturating_sub(printed));
        // What is behind the limit is not opened; a limit of 0 still judges the options.
        if limit == Some(0) && printed > 0 {
            break;
        }
        report.add(print(args, &group, &selection, &format, limit, shell)?);
    }
    execute::tell_losses(&report, Origin::Flags, shell);
    execute::tell_unmatched(&report, Origin::Flags, shell);
    Ok(execute::ending_of(&report, args.strict))
}

/// Inputs as they are read: together where one source reads all, else those of one format that
/// follow each other.
fn groups<'s>(
    inputs: Vec<String>,
    format: &Format,
    shell: &'s Shell,
) -> Result<Vec<Group<'s>>, Failure> {
    let source =
        |inputs: &[String]| convert::source(inputs, format.from.as_deref(), &format.options, shell);
    let mixed = match source(&inputs) {
        Ok(source) => return Ok(vec![Group { source, inputs }]),
        Err(failure) => failure,
    };
    // What has no end has nothing behind it.
    if inputs.len() == 1 || inputs.iter().any(|input| inputs::is_url(input)) {
        return Err(mixed);
    }
    let mut groups: Vec<Group<'s>> = Vec::new();
    for input in inputs {
        let source = source(std::slice::from_ref(&input))?;
        match groups.last_mut().filter(|group| group.source.name == source.name) {
            Some(group) => group.inputs.push(input),
            None => groups.push(Group { source, inputs: vec![input] }),
        }
    }
    Ok(groups)
}

/// Logs that are not read together have no first event in common.
fn refuse_relative_times(selection: &SelectionArgs) -> Result<(), Failure> {
    for (flag, time) in [("--start", &selection.start), ("--end", &selection.end)] {
        let Some(time) = time else { continue };
        if matches!(TimePoint::parse_chosen(time), Ok(TimePoint::After(_))) {
            return Err(Failure::WrongUse(format!(
                "{flag} {time} counts from the first event of all logs, and these are of different \
                 formats: give a point in time, or print them one by one"
            )));
        }
    }
    Ok(())
}

/// Prints the events of one group.
fn print(
    args: &CatArgs,
    group: &Group<'_>,
    selection: &SelectionArgs,
    format: &Format,
    limit: Option<u64>,
    shell: &Shell,
) -> Result<Report, Failure> {
    let source = group.source;
    let sink = inputs::named(shell, PluginKind::Sink, if args.json { "jsonl" } else { "text" })?;
    let recipe = Recipe {
        source: source.name,
        inputs: &group.inputs,
        source_options: &format.options,
        own_types: source.types,
        selection: Some(selection),
        limit,
        // To show a payload, it has to be there.
        encodes: args.payload && source.gives_rows,
        sink: sink.name,
        output: "-",
        sink_options: &sink_options(args),
        fields: &args.field,
        ..Recipe::default()
    };
    let pipeline = convert::read("sluice cat", &recipe.text(), shell)?;
    // Of a run that only prints, nothing is to be seen but what programs say.
    let meter = Arc::new(Meter::new(ProgressForm::None, shell));
    let allow_exec = args.allow_exec;
    let options = Options { allow_exec, progress: Some(meter.clone()), ..Options::default() };
    // There is nothing to finish.
    let listening = Listening::to_end();
    let result = run::run(pipeline, &options);
    drop(listening);
    let mut report = result?;
    meter.forget_told(&mut report);
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
