//! Reads logs for verbs that inspect them: into a sink of the verb's own, without a pipeline file.

use std::path::Path;

use serde_json::{Value, json};
use sluice_model::options::ByteSize;
use sluice_model::{DynSink, Error, ErrorKind, Input, Plugin, PluginKind, Source};
use sluice_pipeline::run::{self, Options};
use sluice_pipeline::{OnDamage, Pipeline, PipelineNode, PluginInstance, Report};

use crate::exit::Failure;
use crate::node_names::SOURCE_NAME;
use crate::shell::Shell;

/// The node for a verb that only reads logs, and writes no quarantine file.
pub(crate) fn reading_only(node: PipelineNode, shell: &Shell) -> PipelineNode {
    if !matches!(node.damage, OnDamage::Quarantine(_)) {
        return node;
    }
    shell.warn_once(
        "on_damage = \"quarantine\" means \"skip\" here: this command writes no file of damaged \
         bytes, as `convert` does",
    );
    PipelineNode { damage: OnDamage::Skip, ..node }
}

/// Reads a source into a sink.
pub(crate) fn read(
    source: PipelineNode,
    sink: DynSink,
    options: Options,
    shell: &Shell,
) -> Result<Report, Failure> {
    let nodes = vec![reading_only(source, shell), sink_node(sink)];
    let pipeline = Pipeline { memory: Some(INSPECTION_MEMORY), nodes, ..Pipeline::default() };
    let options = Options { stop: shell.stop(), ..options };
    // Whoever reads several logs need not try the others.
    run::check_programs_allowed(&pipeline, &options)
        .map_err(|error| Failure::Options(error.to_string()))?;
    run::run(pipeline, &options)
        .map_err(|error| Failure::from(error).with_exit_code_of(&options.stop))
}

/// What a source reports about its file, and the length of all files that it reads; `None` if one
/// has none.
pub(crate) fn findings(
    source: &PipelineNode,
    path: &Path,
) -> Result<(Vec<String>, Option<u64>), Failure> {
    of_source(source, path, |source| {
        let findings = of_files(source, path, |file| source.findings(file))?;
        let files = source.files()?;
        let bytes = files.iter().try_fold(0, |all: u64, file| all.checked_add(file.bytes?));
        Ok((findings, bytes))
    })
}

/// What is wrong with the file of a source besides damage, such as its index.
pub(crate) fn faults(source: &PipelineNode, path: &Path) -> Result<Vec<String>, Failure> {
    of_source(source, path, |source| of_files(source, path, |file| source.faults(file)))
}

/// What `ask` finds out from the source of a file. An error that is the fault of its plugin names
/// both.
fn of_source<T: Default>(
    node: &PipelineNode,
    path: &Path,
    ask: impl FnOnce(&dyn Source) -> Result<T, Error>,
) -> Result<T, Failure> {
    let Some(source) = node.source() else { return Ok(T::default()) };
    ask(source).map_err(|error| match error.kind() {
        ErrorKind::Internal { what, .. } => {
            let what = format!("`{}`, reading {}: {what}", node.plugin, path.display());
            Error::from(ErrorKind::Internal { what, input: Some(path.to_owned()) }).into()
        }
        _ => error.into(),
    })
}

/// What `say` says of a file, or of each file of a folder that is a log.
fn of_files(
    source: &dyn Source,
    path: &Path,
    say: impl Fn(&Path) -> Result<Vec<String>, Error>,
) -> Result<Vec<String>, Error> {
    let inputs = source.inputs()?;
    if inputs.iter().any(|input| input.path == path) {
        return say(path);
    }
    let mut all = Vec::new();
    for Input { path: file, .. } in inputs {
        let name = file.strip_prefix(path).unwrap_or(&file).display().to_string();
        all.extend(say(&file)?.into_iter().map(|what| format!("{name}: {what}")));
    }
    Ok(all)
}

/// Inspecting a log takes little memory.
const INSPECTION_MEMORY: ByteSize = ByteSize(256 << 20);

/// A source node that is not part of a pipeline file.
pub(crate) fn source_node(
    plugin: &Plugin,
    options: Value,
    shell: &Shell,
) -> Result<PipelineNode, Failure> {
    let source = shell.registry.source(plugin.name, options.clone()).map_err(|e| {
        let place = match &e.path[..] {
            [] => String::new(),
            path => format!("`{}`: ", path.join(".")),
        };
        Failure::Usage(format!("`{}` cannot read that: {place}{e}", plugin.name))
    })?;
    let (plugin, places) = ((&shell.registry, plugin), (0..0, |_: &str| None));
    let made = (PluginInstance::Source(source), options);
    Ok(PipelineNode::new(SOURCE_NAME.to_owned(), plugin, made, places))
}

/// A sink node that is not part of a pipeline file and reads from node 0.
pub(crate) fn sink_node(sink: DynSink) -> PipelineNode {
    PipelineNode {
        name: "sink".into(),
        plugin: "sink",
        kind: PluginKind::Sink,
        from: vec![0],
        instance: PluginInstance::Sink(sink),
        options: json!({}),
        stage_factory: None,
        program: None,
        damage: OnDamage::Skip,
        source_name: None,
        span: 0..0,
        names: Vec::new(),
    }
}
