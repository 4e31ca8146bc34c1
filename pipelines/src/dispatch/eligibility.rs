//! Refuses pipelines that can only run on this machine, before anything is sent.

use std::path::{Path, PathBuf};

use sluice_io::files::is_stream;
use sluice_io::store::StorePath;
use sluice_model::{Error, ErrorKind, Input, Query, Registry};

use crate::batch::Batch;
use crate::run::Options;
use crate::spec::{Pipeline, PipelineNode, PluginInstance};

/// The split size for asking a source whether it is live.
const PROBE_SPLIT: u64 = 2 << 20;

/// Checks nodes and options.
pub(super) fn check_pipeline(
    pipeline: &Pipeline,
    registry: &Registry,
    options: &Options,
) -> Result<(), Error> {
    if options.recording.is_some() {
        return Err(refused("recordings are written live".to_owned()));
    }
    for node in &pipeline.nodes {
        let talks =
            registry.get(node.kind, node.plugin).is_some_and(|plugin| !plugin.schemes.is_empty());
        match &node.instance {
            PluginInstance::Source(source) => {
                let is_live = || {
                    let splits = source.splits(PROBE_SPLIT, &Query::default());
                    splits.is_ok_and(|splits| splits.iter().any(|split| split.live))
                };
                if talks || is_live() {
                    return Err(refused(format!("`{}` is a live source", node.name)));
                }
            }
            PluginInstance::Sink(sink) => check_sink(node, &sink.traits().targets, talks)?,
            PluginInstance::Stage(_) => {}
        }
    }
    Ok(())
}

fn check_sink(node: &PipelineNode, targets: &[PathBuf], talks: bool) -> Result<(), Error> {
    // A unit may run twice, and only files can then still be published once.
    if targets.is_empty() && (talks || node.program.is_some()) {
        return Err(refused(format!(
            "`{}` writes no files, so its effects might happen twice",
            node.name
        )));
    }
    let appends = node.options.get("append").and_then(serde_json::Value::as_bool) == Some(true);
    if let Some(there) = targets.iter().find(|target| appends && target.exists()) {
        return Err(refused(format!("`{}` appends to {}", node.name, there.display())));
    }
    check_outputs(targets)
}

/// Checks the units of a batch.
pub(super) fn check_units(batch: &Batch) -> Result<(), Error> {
    for unit in &batch.units {
        check_inputs(std::slice::from_ref(&unit.input))?;
        check_outputs(&unit.outputs)?;
        check_places(std::iter::once(&batch.folder).chain(&unit.outputs))?;
    }
    match batch.writes_stdout() {
        true => check_outputs(&["-".into()]),
        false => Ok(()),
    }
}

/// Checks inputs.
pub(super) fn check_inputs(inputs: &[Input]) -> Result<(), Error> {
    let stream = inputs.iter().find(|input| input.bytes.is_none());
    stream.map_or(Ok(()), |input| {
        Err(refused(format!("{} can only be read here", describe(&input.path, "standard input"))))
    })
}

/// Checks outputs.
pub(super) fn check_outputs(outputs: &[PathBuf]) -> Result<(), Error> {
    check_places(outputs.iter())?;
    let device = outputs.iter().find(|output| is_stream(output));
    device.map_or(Ok(()), |output| {
        Err(refused(format!("{} can only be written here", describe(output, "standard output"))))
    })
}

/// Checks that all outputs are in one place: worker outputs are staged there and renamed within it.
fn check_places<'p>(mut paths: impl Iterator<Item = &'p PathBuf>) -> Result<(), Error> {
    let bucket = |path: &PathBuf| {
        StorePath::parse(path).map(|place| place.map(|place| place.with_key("").at))
    };
    let Some(first) = paths.next() else { return Ok(()) };
    let expected = bucket(first)?;
    for path in paths {
        if bucket(path)? != expected {
            let (first, path) = (first.display(), path.display());
            return Err(refused(format!(
                "outputs are in several places, {first} and {path}: put all into one bucket \
                 of an object store, or none"
            )));
        }
    }
    Ok(())
}

fn describe(path: &Path, stream: &str) -> String {
    if path == Path::new("-") { stream.to_owned() } else { path.display().to_string() }
}

fn refused(what: String) -> Error {
    let what =
        format!("{what}, which needs a run on this machine: --engine local; nothing was done");
    ErrorKind::NotAllowed(what).into()
}
