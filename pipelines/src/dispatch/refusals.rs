//! What only a run on this machine can do, told before anything is sent.

use std::path::{Path, PathBuf};

use sluice_core::files::is_special;
use sluice_core::store::StorePath;
use sluice_core::{Error, ErrorKind, Input, Query, Registry};

use crate::batch::Batch;
use crate::run::Options;
use crate::spec::{Node, Part, Pipeline};

/// The pieces in which a source is asked for to find out whether it ever ends.
const PIECE: u64 = 2 << 20;

/// Judges nodes and options.
pub(super) fn judge(
    pipeline: &Pipeline,
    registry: &Registry,
    options: &Options,
) -> Result<(), Error> {
    if options.recording.is_some() {
        return Err(refused("recordings are written as they come".to_owned()));
    }
    for node in &pipeline.nodes {
        let talks =
            registry.get(node.kind, node.plugin).is_some_and(|plugin| !plugin.schemes.is_empty());
        match &node.part {
            Part::Source(source) => {
                let is_live = || {
                    let splits = source.splits(PIECE, &Query::default());
                    splits.is_ok_and(|splits| splits.iter().any(|split| split.live))
                };
                if talks || is_live() {
                    return Err(refused(format!("`{}` receives what comes live", node.name)));
                }
            }
            Part::Sink(sink) => judge_sink(node, &sink.targets(), talks)?,
            Part::Stage(_) => {}
        }
    }
    Ok(())
}

fn judge_sink(node: &Node, targets: &[PathBuf], talks: bool) -> Result<(), Error> {
    // A unit may be run twice, and only files can be published once all the same.
    if targets.is_empty() && (talks || node.program.is_some()) {
        return Err(refused(format!(
            "`{}` writes no files, so what it does might be done twice",
            node.name
        )));
    }
    let appends = node.options.get("append").and_then(serde_json::Value::as_bool) == Some(true);
    if let Some(there) = targets.iter().find(|target| appends && target.exists()) {
        return Err(refused(format!("`{}` continues {}", node.name, there.display())));
    }
    judge_outputs(targets)
}

/// Judges the units of a batch.
pub(super) fn judge_units(batch: &Batch) -> Result<(), Error> {
    for unit in &batch.units {
        judge_inputs(std::slice::from_ref(&unit.input))?;
        judge_outputs(&unit.outputs)?;
        judge_places(std::iter::once(&batch.folder).chain(&unit.outputs))?;
    }
    match batch.prints() {
        true => judge_outputs(&["-".into()]),
        false => Ok(()),
    }
}

/// Judges what is read.
pub(super) fn judge_inputs(inputs: &[Input]) -> Result<(), Error> {
    let stream = inputs.iter().find(|input| input.bytes.is_none());
    stream.map_or(Ok(()), |input| {
        Err(refused(format!("{} can only be read here", named(&input.path, "standard input"))))
    })
}

/// Judges what is written.
pub(super) fn judge_outputs(outputs: &[PathBuf]) -> Result<(), Error> {
    judge_places(outputs.iter())?;
    let device = outputs.iter().find(|output| **output == Path::new("-") || is_special(output));
    device.map_or(Ok(()), |output| {
        Err(refused(format!("{} can only be written here", named(output, "standard output"))))
    })
}

/// Judges where things are written: what workers make is put together in one place, and given its names there.
fn judge_places<'p>(mut paths: impl Iterator<Item = &'p PathBuf>) -> Result<(), Error> {
    let bucket = |path: &PathBuf| {
        StorePath::parse(path).map(|place| place.map(|place| place.with_key("").at))
    };
    let Some(first) = paths.next() else { return Ok(()) };
    let expected = bucket(first)?;
    for path in paths {
        if bucket(path)? != expected {
            let (first, path) = (first.display(), path.display());
            return Err(refused(format!(
                "outputs lie in several places, {first} and {path}: all have to be in one bucket of an object store, \
                 or none"
            )));
        }
    }
    Ok(())
}

fn named(path: &Path, stream: &str) -> String {
    if path == Path::new("-") { stream.to_owned() } else { path.display().to_string() }
}

fn refused(what: String) -> Error {
    let what =
        format!("{what}, which needs a run on this machine: --engine local; nothing was done");
    ErrorKind::NotAllowed(what).into()
}
