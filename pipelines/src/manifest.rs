//! The manifest of an output folder: its files, and what they were made from.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sluice_io::output::PublishedFile;
use sluice_model::{Error, RunInput, RunOrigin};

use crate::names::NameReport;
use crate::report::Report;
use crate::spec::PipelineNode;

/// The version of Sluice that writes manifests.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The content of a manifest.
#[derive(Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// The version of Sluice that wrote it.
    pub sluice: String,
    /// The pipeline's name.
    pub name: Option<String>,
    /// The pipeline file that ran, without variables.
    pub pipeline: String,
    /// The plugins that took part.
    pub plugins: Vec<String>,
    /// The inputs.
    pub inputs: Vec<InputFile>,
    /// The files written, with paths relative to the folder.
    pub files: Vec<OutputFile>,
    /// How the run ended.
    #[serde(flatten)]
    pub ended: RunEnd,
}

pub(crate) fn is_false(value: &bool) -> bool {
    !value
}

/// An input in a manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputFile {
    /// Its path as the user gave it.
    #[serde(
        serialize_with = "sluice_io::escape::path_as_text",
        deserialize_with = "sluice_io::escape::path_from_text"
    )]
    pub path: PathBuf,
    /// Its length; `None` for streams.
    pub bytes: Option<u64>,
    /// The hash of its bytes; `None` if it cannot be read twice.
    pub blake3: Option<String>,
}

/// An output in a manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputFile {
    /// Its path in the folder.
    pub path: PathBuf,
    /// Events or rows in it.
    pub rows: u64,
    /// Its length.
    pub bytes: u64,
    /// The hash of its bytes.
    pub blake3: Option<String>,
}

/// The part of a manifest that is the same for every folder of a run.
pub(crate) struct ManifestBase<'r> {
    pub(crate) origin: &'r RunOrigin,
    pub(crate) plugins: &'r [String],
    pub(crate) ended: &'r RunEnd,
}

/// How a run ended that has published its files, or is about to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnd {
    /// The exit code: 3 if there were losses, 4 if expectations are not met.
    #[serde(default)]
    pub exit: u8,
    /// Whether there were losses, which exit code 4 does not tell.
    #[serde(default, skip_serializing_if = "is_false")]
    pub losses: bool,
    /// Whether the run was interrupted before it had read everything.
    #[serde(default, skip_serializing_if = "is_false")]
    pub partial: bool,
    /// The names in options that matched nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmatched: Vec<NameReport>,
}

impl RunEnd {
    /// The end of a run that has failed, and publishes what it has received.
    pub(crate) fn failed() -> Self {
        Self { exit: 1, losses: true, partial: true, unmatched: Vec::new() }
    }

    /// The end of a run with this report.
    pub(crate) fn from_report(report: &Report) -> Self {
        let losses = !report.is_complete();
        let unmatched = report.unmatched().cloned().collect();
        Self { exit: report.exit(), losses, partial: report.interrupted, unmatched }
    }
}

/// The plugins that take part, sorted, each once.
pub(crate) fn plugin_names(nodes: &[PipelineNode]) -> Vec<String> {
    let names: BTreeSet<&str> = nodes.iter().map(|node| node.plugin).collect();
    names.into_iter().map(str::to_owned).collect()
}

impl ManifestBase<'_> {
    pub(crate) fn manifest_text(
        &self,
        folder: &Path,
        files: &[PublishedFile],
    ) -> Result<String, Error> {
        let files = files.iter().map(|file| {
            let path = file.path.strip_prefix(folder).unwrap_or(&file.path).to_owned();
            OutputFile { path, rows: file.rows, bytes: file.bytes, blake3: file.blake3.clone() }
        });
        let manifest = Manifest {
            sluice: VERSION.to_owned(),
            name: self.origin.name.clone(),
            pipeline: self.origin.pipeline.clone(),
            plugins: self.plugins.to_vec(),
            inputs: hashed_inputs(self.origin)?,
            files: files.collect(),
            ended: self.ended.clone(),
        };
        serde_json::to_string_pretty(&manifest).map_err(|e| Error::internal(e.to_string()))
    }
}

/// The inputs of a run. Waits for their hashes.
pub(crate) fn hashed_inputs(origin: &RunOrigin) -> Result<Vec<InputFile>, Error> {
    origin.inputs.iter().map(input_file).collect()
}

fn input_file(input: &RunInput) -> Result<InputFile, Error> {
    let blake3 = input.blake3()?.map(str::to_owned);
    Ok(InputFile { path: input.path.clone(), bytes: input.bytes, blake3 })
}
