//! Whether a run without placeholders has already been done, judging by the manifests of its output
//! folders.

use std::path::{Path, PathBuf};

use sluice_io::files;
use sluice_io::output::{MANIFEST, sweep};
use sluice_model::{Error, Query};

use crate::batch::{PlannedRun, RecordedRun};
use crate::manifest::{self, Manifest, RunEnd};
use crate::resolved;
use crate::run::{self, Options};
use crate::spec::{OnDamage, Pipeline, PipelineNode, PluginInstance};

/// An earlier run.
#[derive(Debug)]
pub struct EarlierRun {
    /// Its output folders.
    pub folders: Vec<PathBuf>,
    /// The number of files in them.
    pub files: u64,
    /// How it ended.
    pub ended: RunEnd,
}

/// The earlier run that did exactly what this pipeline would do, if all its inputs and outputs are
/// unchanged. Reads them in full.
///
/// Only folders have a manifest; a run with any other output has to be repeated.
pub fn earlier_run(pipeline: &Pipeline, options: &Options) -> Result<Option<EarlierRun>, Error> {
    let folders = targets(pipeline);
    let quarantines = |damage: &OnDamage| matches!(damage, OnDamage::Quarantine(_));
    let has_manifests =
        folders.iter().all(|target| target.as_os_str().as_encoded_bytes().ends_with(b"/"));
    if folders.is_empty()
        || !has_manifests
        || pipeline.nodes.iter().any(|node| quarantines(&node.damage))
    {
        return Ok(None);
    }
    let inputs = pipeline.input_files()?;
    let text = resolved::text(pipeline, run::memory_cap(options, pipeline.memory));
    let plugins = manifest::plugin_names(&pipeline.nodes);
    let due = PlannedRun { pipeline: &text, plugins: &plugins, inputs: &inputs };
    let mut earlier = EarlierRun { folders, files: 0, ended: RunEnd::default() };
    for folder in &earlier.folders {
        let Some(manifest) = read(folder) else { return Ok(None) };
        if !recorded_run(&manifest).matches(&due, folder) {
            return Ok(None);
        }
        earlier.files += manifest.files.len() as u64;
        earlier.ended = manifest.ended;
    }
    Ok(Some(earlier))
}

/// Whether another pipeline made the outputs, so that a resumed run makes them again.
pub fn is_of_other_pipeline(pipeline: &Pipeline, options: &Options) -> bool {
    let text = resolved::text(pipeline, run::memory_cap(options, pipeline.memory));
    targets(pipeline).iter().filter_map(|target| read(target)).any(|made| made.pipeline != text)
}

/// An input that cannot be read again, if there is one: a live one, standard input, or a pipe. Only
/// the outputs have what an earlier run read from it.
pub fn input_read_once(pipeline: &Pipeline) -> Result<Option<PathBuf>, Error> {
    for node in &pipeline.nodes {
        let PluginInstance::Source(source) = &node.instance else { continue };
        let inputs = source.inputs()?;
        if let Some(stream) = inputs.iter().find(|input| files::is_stream(&input.path)) {
            return Ok(Some(stream.path.clone()));
        }
        // Files have no live splits; finding theirs would read them.
        if inputs.iter().all(|input| input.bytes.is_none()) {
            let splits = source.splits(u64::MAX, &Query::default())?;
            if let Some(live) = splits.into_iter().find(|split| split.live) {
                return Ok(Some(live.input));
            }
        }
    }
    Ok(None)
}

/// Removes temporary files of killed runs next to a pipeline's outputs. Must not run while another
/// run writes there.
pub fn sweep_outputs(targets: &[PathBuf]) {
    sweep(targets.iter().map(PathBuf::as_path).filter(|target| *target != Path::new("-")));
}

/// All targets of a pipeline's sinks.
pub fn targets(pipeline: &Pipeline) -> Vec<PathBuf> {
    pipeline.nodes.iter().flat_map(PipelineNode::targets).cloned().collect()
}

fn read(folder: &Path) -> Option<Manifest> {
    let text = files::read(&folder.join(MANIFEST)).ok()?;
    serde_json::from_slice(&text).ok()
}

fn recorded_run(manifest: &Manifest) -> RecordedRun<'_> {
    RecordedRun {
        pipeline: &manifest.pipeline,
        sluice: &manifest.sluice,
        plugins: &manifest.plugins,
        inputs: &manifest.inputs,
        files: &manifest.files,
        partial: manifest.ended.partial,
    }
}
