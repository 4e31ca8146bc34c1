//! Parses and prints the pipelines that verbs generate from their arguments.

use std::env;
use std::path::Path;

use sluice_model::{Error, Plugin, PluginKind};
use sluice_pipeline::{Document, Pipeline, PipelineNode, PluginInstance, Variables};

use crate::args::Assignment;
use crate::exit::{CommandResult, ExitStatus, Failure};
use crate::flags::{self, PipelineOrigin};
use crate::input_format::InputFormat;
use crate::inputs;
use crate::inspection;
use crate::recipe::{Recipe, string};
use crate::shell::Shell;
use crate::sniffing::FailedInputs;
use crate::stdout;

/// Parses a generated pipeline, which has no variables. Nothing that it writes may replace the file
/// that describes its format.
pub(crate) fn parse_generated(
    name: &str,
    text: &str,
    describe: Option<&Path>,
    shell: &Shell,
) -> Result<Pipeline, Failure> {
    let document = Document::generated(format!("{name} (the pipeline made for it)"), text);
    let mut pipeline = Pipeline::read(&document, &Variables::default(), &shell.registry)
        .map_err(|mistakes| flags::mistakes_with_flags(&mistakes))?;
    refuse_fields_without_decoding(&pipeline)?;
    pipeline.files.extend(describe.map(Path::to_owned));
    Ok(pipeline)
}

/// Parses the pipeline of a verb that only reads logs, and writes no quarantine file.
pub(crate) fn parse_reading(
    name: &str,
    text: &str,
    describe: Option<&Path>,
    shell: &Shell,
) -> Result<Pipeline, Failure> {
    let mut pipeline = parse_generated(name, text, describe, shell)?;
    let nodes = pipeline.nodes.into_iter();
    pipeline.nodes = nodes.map(|node| inspection::reading_only(node, shell)).collect();
    Ok(pipeline)
}

/// Parses a generated pipeline, some inputs of which have failed: they fail alone if outputs are
/// named after inputs, and otherwise the first is an error.
pub(crate) fn parse_usable(
    name: &str,
    (text, failed): (&str, FailedInputs),
    describe: Option<&Path>,
    shell: &Shell,
) -> Result<Pipeline, Failure> {
    let mut pipeline = parse_generated(name, text, describe, shell)?;
    for (path, failure) in failed {
        if pipeline.templates.is_empty() {
            return Err(failure);
        }
        pipeline.unreadable.insert(path, failure.message());
    }
    Ok(pipeline)
}

/// The source of a log as a node of a pipeline, with all options that such a node takes.
pub(crate) fn source_node(
    verb: &str,
    format: &InputFormat,
    (source, log): (&Plugin, &Path),
    shell: &Shell,
) -> Result<PipelineNode, Failure> {
    // A file, even if its name looks like an address.
    let path = Assignment { name: "path".into(), value: string(inputs::utf8_path(log)?) };
    let options = [vec![path], format.options.clone()].concat();
    let recipe =
        Recipe { source: source.name, source_options: &options, sink: "null", ..Recipe::default() };
    let pipeline = parse_generated(verb, &recipe.text(), None, shell)?;
    let source = pipeline.nodes.into_iter().find(|node| node.kind == PluginKind::Source);
    source.ok_or_else(|| Failure::Failed("no source".into()))
}

/// Prints a generated pipeline with absolute paths, so that it can be saved anywhere.
pub(crate) fn print_pipeline(name: &str, text: String, shell: &Shell) -> CommandResult {
    let here = env::current_dir().map_err(|e| Error::io("find", Path::new("."), e))?;
    if here.to_str().is_none() {
        let what =
            "the path of this folder is not UTF-8, so the paths are relative to it: save it here";
        shell.warn(what);
        stdout::unescaped(&text, shell)?;
        return Ok(ExitStatus::Done);
    }
    let document = Document::generated(name, text);
    let text = document.relocated(&here, &Variables::default(), &shell.registry)?;
    stdout::unescaped(&text, shell)?;
    Ok(ExitStatus::Done)
}

/// Refuses flags that name fields if nothing is decoded.
fn refuse_fields_without_decoding(pipeline: &Pipeline) -> Result<(), Failure> {
    let has_rows = |node: &PipelineNode| match &node.instance {
        PluginInstance::Source(source) => !source.is_undecoded(),
        PluginInstance::Stage(_) => node.plugin == "decode",
        PluginInstance::Sink(_) => false,
    };
    if pipeline.nodes.iter().any(has_rows) {
        return Ok(());
    }
    let names = pipeline.nodes.iter().flat_map(|node| node.names.iter().map(move |n| (node, n)));
    let mut fields = names.filter(|(_, name)| name.name.field().is_some());
    match fields.next() {
        None => Ok(()),
        Some((node, name)) => Err(Failure::Usage(format!(
            "{}: only decoded messages have fields; give the files that declare them with --types",
            PipelineOrigin::of_generated(&pipeline.text).flag(&node.name, &name.option)
        ))),
    }
}
