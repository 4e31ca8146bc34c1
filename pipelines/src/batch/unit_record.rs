//! The record of a unit: what it read and wrote, and whether that is still so. Writes nothing.

use std::path::{Component, Path, PathBuf, absolute};

use serde::{Deserialize, Serialize};
use sluice_io::files::{self, PathKind};
use sluice_io::output::PublishedFile;
use sluice_io::store::is_address;
use sluice_model::{Error, Input, RunOrigin};

use crate::manifest::{self, InputFile, OutputFile, RunEnd, VERSION};

/// How a unit ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It was run.
    Done,
    /// An earlier run had done it.
    Skipped,
    /// It failed and published nothing.
    Failed,
    /// It was interrupted and published nothing.
    Interrupted,
    /// It was not run.
    #[serde(rename = "not started")]
    NotStarted,
}

/// What one unit read and wrote.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitRecord {
    /// The pipeline file that ran, without variables and placeholders.
    pub pipeline: String,
    /// The pipeline's name.
    pub name: Option<String>,
    /// The version of Sluice that ran it.
    pub sluice: String,
    /// The plugins that took part.
    pub plugins: Vec<String>,
    /// What was read.
    pub inputs: Vec<InputFile>,
    /// The unit's outputs: files and folders that no other unit may write.
    pub outputs: Vec<PathBuf>,
    /// The files written, with paths relative to the record's folder, absolute ones, or addresses;
    /// [`actual_path`] finds them.
    pub files: Vec<OutputFile>,
    /// How the run ended.
    #[serde(flatten)]
    pub ended: RunEnd,
}

impl UnitRecord {
    /// The record of a run whose files are about to be published. Waits for the hashes of its
    /// inputs.
    pub(crate) fn from_run(
        origin: &RunOrigin,
        (plugins, ended): (&[String], &RunEnd),
        outputs: &[PathBuf],
        files: &[PublishedFile],
        folder: &Path,
    ) -> Result<Self, Error> {
        let each = files.iter().filter(|file| file.path != Path::new("-")).map(|file| {
            let path = recorded_path(&file.path, folder)?;
            Ok(OutputFile { path, rows: file.rows, bytes: file.bytes, blake3: file.blake3.clone() })
        });
        let mut files = each.collect::<Result<Vec<_>, Error>>()?;
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self {
            pipeline: origin.pipeline.clone(),
            name: origin.name.clone(),
            sluice: VERSION.to_owned(),
            plugins: plugins.to_vec(),
            inputs: manifest::hashed_inputs(origin)?,
            outputs: recorded_paths(outputs, folder)?,
            files,
            ended: ended.clone(),
        })
    }

    /// Whether these files have the content that the record states.
    pub(crate) fn describes(&self, files: &[PublishedFile]) -> bool {
        let mut ours: Vec<_> = self.files.iter().map(|file| (file.bytes, &file.blake3)).collect();
        let mut theirs: Vec<_> = files.iter().map(|file| (file.bytes, &file.blake3)).collect();
        ours.sort();
        theirs.sort();
        ours == theirs
    }

    /// Whether this and another record are of runs of the same pipeline for the same outputs.
    pub(super) fn is_run_of(&self, other: &Self) -> bool {
        (&self.pipeline, &self.sluice, &self.plugins, &self.outputs)
            == (&other.pipeline, &other.sluice, &other.plugins, &other.outputs)
    }

    /// Whether its files are there, with the recorded lengths.
    pub(super) fn has_appeared(&self, folder: &Path) -> bool {
        self.files.iter().all(|file| has_recorded_length(folder, file))
    }

    /// The run that this record describes.
    pub(super) fn recorded_run(&self) -> RecordedRun<'_> {
        RecordedRun {
            pipeline: &self.pipeline,
            sluice: &self.sluice,
            plugins: &self.plugins,
            inputs: &self.inputs,
            files: &self.files,
            partial: self.ended.partial,
        }
    }
}

/// A run as a record or manifest describes it.
#[derive(Clone, Copy)]
pub(crate) struct RecordedRun<'c> {
    pub(crate) pipeline: &'c str,
    pub(crate) sluice: &'c str,
    pub(crate) plugins: &'c [String],
    pub(crate) inputs: &'c [InputFile],
    pub(crate) files: &'c [OutputFile],
    pub(crate) partial: bool,
}

/// A run that an earlier one may have done.
pub(crate) struct PlannedRun<'d> {
    pub(crate) pipeline: &'d str,
    pub(crate) plugins: &'d [String],
    pub(crate) inputs: &'d [Input],
}

impl RecordedRun<'_> {
    /// Whether this is the planned run and all files are unchanged. Reads them in full.
    pub(crate) fn matches(&self, due: &PlannedRun<'_>, folder: &Path) -> bool {
        // Lengths are cheap to compare and reveal most differences.
        self.matches_by_length(due, folder)
            && self.files.iter().all(|file| has_recorded_hash(folder, file))
            && self.inputs.iter().all(|input| {
                input.blake3.is_some() && files::hash_file(&input.path).ok() == input.blake3
            })
    }

    /// Whether this is the planned run and all files have the lengths that they had.
    pub(crate) fn matches_by_length(&self, due: &PlannedRun<'_>, folder: &Path) -> bool {
        let same = self.pipeline == due.pipeline
            && self.sluice == VERSION
            && self.plugins == due.plugins
            && !self.partial;
        same && self.inputs.len() == due.inputs.len()
            && self.inputs.iter().zip(due.inputs).all(|(then, now)| {
                then.path == now.path && now.bytes.is_some() && then.bytes == now.bytes
            })
            && self.files.iter().all(|file| has_recorded_length(folder, file))
    }
}

/// Whether the file exists with the recorded length.
pub(super) fn has_recorded_length(folder: &Path, file: &OutputFile) -> bool {
    let found = files::path_kind(&actual_path(folder, &file.path));
    found.is_ok_and(|found| found == Some(PathKind::File(file.bytes)))
}

/// Whether the file has the recorded hash.
pub(super) fn has_recorded_hash(folder: &Path, file: &OutputFile) -> bool {
    file.blake3.is_some() && files::hash_file(&actual_path(folder, &file.path)).ok() == file.blake3
}

/// The path that a record in `folder` names so: see [`UnitRecord::files`].
pub fn actual_path(folder: &Path, recorded: &Path) -> PathBuf {
    // An address is no absolute path, which joining would keep.
    if is_address(recorded) { recorded.to_owned() } else { folder.join(recorded) }
}

/// A path as a record in `folder` names it: relative inside the folder, otherwise absolute.
pub(super) fn recorded_path(path: &Path, folder: &Path) -> Result<PathBuf, Error> {
    let inside = path.strip_prefix(folder).ok().filter(|inside| {
        inside.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
    });
    match inside {
        // Drops trailing slashes and `./`.
        Some(inside) => Ok(inside.components().filter(|c| *c != Component::CurDir).collect()),
        None if is_address(path) => Ok(path.to_owned()),
        None => absolute(path).map_err(|e| Error::io("find", path, e)),
    }
}

pub(crate) fn recorded_paths(paths: &[PathBuf], folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut all =
        paths.iter().map(|path| recorded_path(path, folder)).collect::<Result<Vec<_>, _>>()?;
    all.sort();
    Ok(all)
}
