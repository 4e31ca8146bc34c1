//! `plan`: shows what a pipeline would read and write. Reads only what planning requires.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::{Map, Value, json};
use sluice_io::escape::{json_escaped, path_text, printable, printable_sentence};
use sluice_io::files::{self, FileIdentity, is_special};
use sluice_model::{Input, PluginKind, time, units};
use sluice_pipeline::batch::{self, Unit};
use sluice_pipeline::run::{self, Options, ReadPlan, SourcePlan};
use sluice_pipeline::{Mistakes, OnDamage, Outline, Pipeline, PipelineNode};

use crate::args::{EngineArgs, PlanArgs};
use crate::commands::execute::engine_options;
use crate::commands::{outline, pipeline, variables, warn_unset};
use crate::exit::{CommandResult, ExitStatus, Failure};
use crate::shell::Shell;
use crate::stdout;

pub(crate) fn run(args: &PlanArgs, shell: &Shell) -> CommandResult {
    let pipeline = match pipeline(&args.file, &args.variables, shell) {
        Err(Failure::Mistakes(mistakes)) => return print_outline(mistakes, args, shell),
        read => read?,
    };
    if !args.json {
        return print_text(&pipeline, &EngineArgs::default(), shell);
    }
    let units = batch_units(&pipeline, &EngineArgs::default(), shell)?;
    let mut plan = plan_json(&pipeline, &run::plan(&pipeline, &Options::default())?);
    if let Some(units) = units {
        extend(&mut plan, json!({ "units": units.iter().map(unit_json).collect::<Vec<_>>() }));
    }
    stdout::json(&format!("{plan:#}"), shell)?;
    Ok(ExitStatus::Done)
}

/// Prints the outline of a pipeline whose only mistakes are unset variables.
fn print_outline(mistakes: Mistakes, args: &PlanArgs, shell: &Shell) -> CommandResult {
    let variables = variables(&args.variables);
    let Ok(outline) = Outline::read(&mistakes.document, &variables, &shell.registry) else {
        return Err(mistakes.into());
    };
    warn_unset(&outline, shell);
    if args.json {
        stdout::json(&format!("{:#}", outline::json(&outline)), shell)?;
    } else {
        stdout::text(&outline::text(&outline), shell)?;
    }
    Ok(ExitStatus::Done)
}

/// Prints the plan for people, of a batch only for the part in the arguments.
pub(crate) fn print_text(pipeline: &Pipeline, args: &EngineArgs, shell: &Shell) -> CommandResult {
    let text = match batch_units(pipeline, args, shell)? {
        Some(units) => batch_text(pipeline, &units, args.overwrite),
        None => plan_text(pipeline, &run::plan(pipeline, &engine_options(args))?, args.overwrite),
    };
    stdout::text(&text, shell)?;
    for node in &pipeline.nodes {
        if let Some(program) = &node.program {
            let line = printable(&program.line);
            stdout::text(&format!("runs   {}: {line}; needs --allow-exec\n", node.name), shell)?;
        }
    }
    for left_out in &pipeline.pruned {
        let left_out = left_out.to_string();
        stdout::text(&format!("left out: {}\n", printable_sentence(&left_out)), shell)?;
    }
    Ok(ExitStatus::Done)
}

/// The units of a batch; `None` if outputs are not named after inputs.
fn batch_units(
    pipeline: &Pipeline,
    args: &EngineArgs,
    shell: &Shell,
) -> Result<Option<Vec<Unit>>, Failure> {
    if pipeline.templates.is_empty() {
        return Ok(None);
    }
    Ok(Some(super::batch::open(pipeline, args, shell)?.units))
}

fn batch_text(pipeline: &Pipeline, batch: &[Unit], overwrite: bool) -> String {
    let of = |kind: PluginKind| pipeline.nodes.iter().filter(move |node| node.kind == kind);
    let inputs = units::pluralize(batch.len() as u64, "input");
    let sources = of(PluginKind::Source)
        .map(|node| format!("reads  {} ({}) for each of {inputs}\n", node.name, node.plugin));
    let stages = of(PluginKind::Stage).map(|stage| stage_text(pipeline, stage));
    let sinks = of(PluginKind::Sink).map(|node| {
        format!("writes {} ({}) from {}\n", node.name, node.plugin, from(pipeline, node))
    });
    let units = batch.iter().map(|unit| unit_text(unit, overwrite));
    sources.chain(stages).chain(sinks).chain(units).collect()
}

fn unit_text(unit: &Unit, overwrite: bool) -> String {
    let size = unit.input.bytes.map_or("size not known".to_owned(), units::bytes);
    let mut text = format!("unit   {}  {size}\n", stdout::printable_path(&unit.input.path));
    if let Some(failure) = &unit.failure {
        line(&mut text, format_args!("         fails: {}\n", printable_sentence(failure)));
    }
    for output in &unit.outputs {
        let note = match (batch::output_exists(output), overwrite) {
            (true, true) => REPLACED,
            (true, false) => "  exists; --resume checks it, --overwrite replaces it",
            (false, _) => "",
        };
        line(&mut text, format_args!("         {}{note}\n", stdout::printable_path(output)));
    }
    text
}

const REPLACED: &str = "  exists, and is replaced";

fn unit_json(unit: &Unit) -> Value {
    let outputs = unit
        .outputs
        .iter()
        .map(|path| (path_text(path), batch::output_exists(path)))
        .map(|(path, exists)| json!({ "path": path, "exists": exists }));
    json!({ "input": unit.input, "outputs": outputs.collect::<Vec<_>>() })
}

fn plan_text(pipeline: &Pipeline, reading: &ReadPlan, overwrite: bool) -> String {
    let target = |path: &Path| target_text(path, reading, overwrite);
    let sources = reading.sources.iter().map(|source| source_text(pipeline, source, &target));
    let of = |kind: PluginKind| pipeline.nodes.iter().filter(move |node| node.kind == kind);
    let stages = of(PluginKind::Stage).map(|stage| stage_text(pipeline, stage));
    let sinks = of(PluginKind::Sink).map(|sink| sink_text(pipeline, sink, &target));
    sources.chain(stages).chain(sinks).collect()
}

fn source_text(
    pipeline: &Pipeline,
    source: &SourcePlan,
    target: &impl Fn(&Path) -> String,
) -> String {
    let node = &pipeline.nodes[source.node];
    let pieces = units::pluralize(source.splits.len() as u64, "piece");
    let mut text = format!("reads  {} ({}) in {pieces}", node.name, node.plugin);
    for (word, when) in [("from", source.query.start), ("before", source.query.end)] {
        if let Some(when) = when {
            line(&mut text, format_args!(", {word} {}", time::format(when)));
        }
    }
    text.push('\n');
    for Input { path, bytes } in &source.inputs {
        let size = bytes.map_or("size not known".to_owned(), units::bytes);
        line(&mut text, format_args!("         {}  {size}\n", stdout::printable_path(path)));
    }
    if let OnDamage::Quarantine(path) = &node.damage {
        line(&mut text, format_args!("         damaged bytes to {}\n", target(path)));
    }
    text
}

fn stage_text(pipeline: &Pipeline, node: &PipelineNode) -> String {
    format!(
        "does   {} ({}) from {}  {}\n",
        node.name,
        node.plugin,
        from(pipeline, node),
        json_escaped(&node.options.to_string())
    )
}

fn sink_text(
    pipeline: &Pipeline,
    node: &PipelineNode,
    target: &impl Fn(&Path) -> String,
) -> String {
    let mut text =
        format!("writes {} ({}) from {}\n", node.name, node.plugin, from(pipeline, node));
    for path in node.targets() {
        line(&mut text, format_args!("         {}\n", target(path)));
    }
    text
}

/// An output, and what a run does if it exists.
fn target_text(target: &Path, reading: &ReadPlan, overwrite: bool) -> String {
    let mut inputs = reading.sources.iter().flat_map(|source| &source.inputs);
    let note = match would_be_replaced(target) {
        true if FileIdentity::is_one_of(target, inputs.by_ref().map(|input| &input.path)) => {
            "  is also an input, which a run does not replace"
        }
        true if overwrite => REPLACED,
        true => "  exists; --overwrite replaces it",
        false => "",
    };
    format!("{}{note}", stdout::printable_path(target))
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _written = text.write_fmt(line);
}

fn from(pipeline: &Pipeline, node: &PipelineNode) -> String {
    from_names(pipeline, node).join(", ")
}

fn from_names<'p>(pipeline: &'p Pipeline, node: &PipelineNode) -> Vec<&'p str> {
    node.from.iter().map(|from| pipeline.nodes[*from].name.as_str()).collect()
}

/// Whether an output exists and would have to be replaced.
fn would_be_replaced(target: &Path) -> bool {
    let is_empty_folder = || target.read_dir().is_ok_and(|mut inside| inside.next().is_none());
    target != Path::new("-") && files::exists(target) && !is_special(target) && !is_empty_folder()
}

fn plan_json(pipeline: &Pipeline, reading: &ReadPlan) -> Value {
    let sources = reading.sources.iter().map(|source| source_json(pipeline, source));
    let of = |kind: PluginKind| pipeline.nodes.iter().filter(move |node| node.kind == kind);
    let left_out = pipeline.pruned.iter();
    let left_out = left_out.map(|left| json!({ "name": left.node, "why": left.why }));
    json!({
        "name": pipeline.name,
        "left_out": left_out.collect::<Vec<_>>(),
        "sources": sources.collect::<Vec<_>>(),
        "stages": of(PluginKind::Stage).map(|node| node_json(pipeline, node)).collect::<Vec<_>>(),
        "sinks": of(PluginKind::Sink).map(|node| sink_json(pipeline, node)).collect::<Vec<_>>(),
    })
}

fn source_json(pipeline: &Pipeline, source: &SourcePlan) -> Value {
    let SourcePlan { node, inputs, query, splits } = source;
    let mut value = node_json(pipeline, &pipeline.nodes[*node]);
    extend(
        &mut value,
        json!({
            "inputs": inputs,
            "splits": splits.len(),
            "start_ns": query.start,
            "end_ns": query.end,
        }),
    );
    if let OnDamage::Quarantine(path) = &pipeline.nodes[*node].damage {
        extend(&mut value, json!({ "quarantine": target_json(path) }));
    }
    value
}

fn sink_json(pipeline: &Pipeline, node: &PipelineNode) -> Value {
    let targets = node.targets().iter().map(|target| target_json(target));
    let mut value = node_json(pipeline, node);
    extend(&mut value, json!({ "targets": targets.collect::<Vec<_>>() }));
    value
}

fn target_json(target: &Path) -> Value {
    json!({ "path": path_text(target), "exists": would_be_replaced(target) })
}

fn node_json(pipeline: &Pipeline, node: &PipelineNode) -> Value {
    let mut value = json!({ "name": node.name, "plugin": node.plugin, "options": node.options });
    if let Some(program) = &node.program {
        extend(&mut value, json!({ "program": program.line }));
    }
    if node.kind != PluginKind::Source {
        extend(&mut value, json!({ "from": from_names(pipeline, node) }));
    }
    value
}

fn extend(value: &mut Value, more: Value) {
    let fields = value.as_object_mut().into_iter();
    fields.for_each(|fields| fields.extend(more.as_object().cloned().unwrap_or_else(Map::new)));
}
