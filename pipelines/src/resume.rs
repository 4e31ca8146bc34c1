//! Whether a run that is no batch has been done already: looks at the manifests of its output folders.

use std::path::{Path, PathBuf};

use sluice_core::output::{MANIFEST, sweep};
use sluice_core::{Error, Input, files};

use crate::batch::{Claim, Due};
use crate::manifest::{self, Manifest};
use crate::resolved;
use crate::run::{self, Options};
use crate::spec::{OnDamage, Part, Pipeline};

/// A run that was done before.
#[derive(Debug)]
pub struct Before {
    /// The folders with its files.
    pub folders: Vec<PathBuf>,
    /// How many files there are.
    pub files: u64,
    /// Its exit code.
    pub exit: u8,
}

/// The earlier run that did just what this pipeline would do now, if all of its inputs and outputs are
/// what they were. Reads them whole.
///
/// Only folders have a manifest that tells: a run that writes anything else has to be done again.
pub fn done_before(pipeline: &Pipeline, options: &Options) -> Result<Option<Before>, Error> {
    let folders = targets(pipeline);
    let quarantines = |damage: &OnDamage| matches!(damage, OnDamage::Quarantine(_));
    let told = folders.iter().all(|target| target.as_os_str().as_encoded_bytes().ends_with(b"/"));
    if folders.is_empty() || !told || pipeline.nodes.iter().any(|node| quarantines(&node.damage)) {
        return Ok(None);
    }
    let inputs = inputs(pipeline)?;
    let text = resolved::text(pipeline, run::memory(options, pipeline.memory));
    let plugins = manifest::plugins(&pipeline.nodes);
    let due = Due { pipeline: &text, plugins: &plugins, inputs: &inputs };
    let mut before = Before { folders, files: 0, exit: 0 };
    for folder in &before.folders {
        let Some(manifest) = read(folder) else { return Ok(None) };
        if !claim(&manifest).settles(&due, folder) {
            return Ok(None);
        }
        before.files += manifest.files.len() as u64;
        before.exit = before.exit.max(manifest.exit);
    }
    Ok(Some(before))
}

/// Removes what killed runs left at a pipeline's outputs. Not while another run writes there.
pub fn sweep_outputs(targets: &[PathBuf]) {
    sweep(targets.iter().map(PathBuf::as_path).filter(|target| *target != Path::new("-")));
}

/// Everything that a pipeline's sinks write.
pub fn targets(pipeline: &Pipeline) -> Vec<PathBuf> {
    let of = |part: &Part| if let Part::Sink(sink) = part { sink.targets() } else { Vec::new() };
    pipeline.nodes.iter().flat_map(|node| of(&node.part)).collect()
}

fn inputs(pipeline: &Pipeline) -> Result<Vec<Input>, Error> {
    let sources = pipeline.nodes.iter().filter_map(|node| match &node.part {
        Part::Source(source) => Some(source.files()),
        _ => None,
    });
    Ok(sources.collect::<Result<Vec<_>, Error>>()?.concat())
}

fn read(folder: &Path) -> Option<Manifest> {
    let text = files::read(&folder.join(MANIFEST)).ok()?;
    serde_json::from_slice(&text).ok()
}

fn claim(manifest: &Manifest) -> Claim<'_> {
    Claim {
        pipeline: &manifest.pipeline,
        sluice: &manifest.sluice,
        plugins: &manifest.plugins,
        inputs: &manifest.inputs,
        files: &manifest.files,
        partial: manifest.partial,
    }
}
