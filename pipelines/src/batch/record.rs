//! The record of a batch: which outputs each unit made from which inputs. Reads and compares;
//! writes nothing.
//!
//! A finished batch has its record in `_manifest.json`; one that is running or was killed has its
//! latest units in `_units.jsonl`.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf, absolute};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_io::files::{self, PathKind};
use sluice_io::output::{MANIFEST, PublishedFile};
use sluice_io::store::is_address;
use sluice_model::{Error, Input, RunOrigin};

use super::shard::{self, ShardFiles};
use super::{Status, journal};
use crate::manifest::{self, InputFile, OutputFile, RunEnd, VERSION, is_false};

/// The journal of an unfinished batch: one JSON object per line.
pub const JOURNAL: &str = "_units.jsonl";

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
    /// The files written, with paths relative to the record's folder, or absolute.
    pub files: Vec<OutputFile>,
    /// The exit code: 3 if there were losses.
    pub exit: u8,
    /// Whether the run was interrupted before it had read everything.
    #[serde(default, skip_serializing_if = "is_false")]
    pub partial: bool,
}

/// The content of a batch's `_manifest.json`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct BatchManifest {
    pub(super) sluice: String,
    pub(super) units: Vec<UnitRecord>,
    /// Units that a finished batch has not done; empty if it is complete.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) left: Vec<UnfinishedUnit>,
}

/// A unit of a batch that has no outputs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnfinishedUnit {
    /// The input.
    #[serde(serialize_with = "sluice_io::escape::path_as_text")]
    pub input: PathBuf,
    /// Its outputs, as records name them.
    pub outputs: Vec<PathBuf>,
    /// Its status: failed, interrupted or not started.
    pub status: Status,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The record in a folder.
#[derive(Debug, Default)]
pub struct BatchRecord {
    /// The units of the manifest, sorted by their outputs.
    pub units: Vec<UnitRecord>,
    /// The units that the manifest lists as not done.
    pub left: Vec<UnfinishedUnit>,
    /// The units of an unfinished batch, in completion order. The files of the last ones may be
    /// missing.
    pub journal: Vec<UnitRecord>,
    /// Whether a batch is unfinished.
    pub is_open: bool,
    /// The records of shards that have not been merged.
    pub(super) shards: Vec<ShardFiles>,
}

impl BatchRecord {
    /// Reads the record in a folder; `None` if there is none. A truncated last line is ignored.
    ///
    /// `Err` if it cannot be read.
    pub fn read(folder: &Path) -> Result<Option<Self>, Error> {
        let manifest = read_manifest(folder)?.and_then(Result::ok);
        let journal = journal::read(folder)?;
        let parts = if is_address(folder) { Vec::new() } else { ShardFiles::all(folder)? };
        if manifest.is_none() && journal.is_none() && parts.is_empty() {
            return Ok(None);
        }
        let is_open = journal.is_some();
        let journal = parse_journal(&journal.unwrap_or_default());
        let (units, left) =
            manifest.map(|manifest| (manifest.units, manifest.left)).unwrap_or_default();
        Ok(Some(Self { units, left, journal, is_open, shards: parts }))
    }

    /// The record that a batch in this folder continues.
    ///
    /// `Err` if the folder's manifest is not that of a batch.
    pub(super) fn to_continue(folder: &Path) -> Result<Self, Error> {
        if let Some(Err(reason)) = read_manifest(folder)? {
            return Err(Error::refused(format!(
                "{reason}; write the batch elsewhere: {}",
                folder.join(MANIFEST).display()
            )));
        }
        Ok(Self::read(folder)?.unwrap_or_default())
    }

    /// The units with one of these outputs, latest first.
    pub(crate) fn with_outputs<'r>(
        &'r self,
        outputs: &'r [PathBuf],
    ) -> impl Iterator<Item = &'r UnitRecord> {
        let outputs: BTreeSet<&PathBuf> = outputs.iter().collect();
        let meets =
            move |unit: &&UnitRecord| unit.outputs.iter().any(|path| outputs.contains(path));
        self.latest_first().filter(meets)
    }

    /// All units, latest first.
    pub fn latest_first(&self) -> impl Iterator<Item = &UnitRecord> {
        let parts = self.shards.iter().flat_map(ShardFiles::latest_first);
        parts.chain(self.journal.iter().rev()).chain(&self.units)
    }

    /// The valid record of each output: the latest one, except journal entries whose files have not
    /// appeared.
    pub fn current(&self, folder: &Path) -> Vec<&UnitRecord> {
        let of_parts = self.shards.iter().flat_map(|part| {
            let journaled = part.journal.iter().rev().map(|unit| (unit, true));
            journaled.chain(part.recorded_units().map(|unit| (unit, false)))
        });
        let journaled = self.journal.iter().rev().map(|unit| (unit, true));
        let recorded = self.units.iter().map(|unit| (unit, false));
        let (mut taken, mut current) = (BTreeSet::new(), Vec::new());
        for (unit, is_journaled) in of_parts.chain(journaled).chain(recorded) {
            let has_appeared =
                !is_journaled || unit.files.iter().all(|file| has_recorded_length(folder, file));
            let is_older = unit.outputs.iter().any(|output| taken.contains(output));
            if is_older || !has_appeared {
                continue;
            }
            taken.extend(&unit.outputs);
            current.push(unit);
        }
        current.sort_by(|a, b| a.outputs.cmp(&b.outputs));
        current
    }

    /// Messages about unmerged shards: how many there are and what is missing.
    pub fn shard_notes(&self) -> Vec<String> {
        shard::shard_notes(&self.shards)
    }
}

impl UnitRecord {
    /// The record of a run whose files are about to be published. Waits for the hashes of its
    /// inputs.
    pub(crate) fn from_run(
        origin: &RunOrigin,
        (plugins, ended): (&[String], RunEnd),
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
            inputs: manifest::hashed_inputs(origin),
            outputs: recorded_paths(outputs, folder)?,
            files,
            exit: ended.exit,
            partial: ended.partial,
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

    /// The run that this record describes.
    pub(super) fn recorded_run(&self) -> RecordedRun<'_> {
        RecordedRun {
            pipeline: &self.pipeline,
            sluice: &self.sluice,
            plugins: &self.plugins,
            inputs: &self.inputs,
            files: &self.files,
            partial: self.partial,
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
        let same = self.pipeline == due.pipeline
            && self.sluice == VERSION
            && self.plugins == due.plugins
            && !self.partial;
        // Lengths are cheap to compare and reveal most differences.
        same && self.inputs.len() == due.inputs.len()
            && self.inputs.iter().zip(due.inputs).all(|(then, now)| {
                then.path == now.path && now.bytes.is_some() && then.bytes == now.bytes
            })
            && self.files.iter().all(|file| has_recorded_length(folder, file))
            && self.files.iter().all(|file| has_recorded_hash(folder, file))
            && self.inputs.iter().all(|input| {
                input.blake3.is_some() && manifest::hash_file(&input.path).ok() == input.blake3
            })
    }
}

/// Whether the file exists with the recorded length.
pub(super) fn has_recorded_length(folder: &Path, file: &OutputFile) -> bool {
    let found = files::path_kind(&folder.join(&file.path));
    found.is_ok_and(|found| found == Some(PathKind::File(file.bytes)))
}

/// Whether the file has the recorded hash.
pub(super) fn has_recorded_hash(folder: &Path, file: &OutputFile) -> bool {
    file.blake3.is_some() && manifest::hash_file(&folder.join(&file.path)).ok() == file.blake3
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

/// A folder's batch manifest; the inner `Err` says why it is not one, `None` if there is none.
fn read_manifest(folder: &Path) -> Result<Option<Result<BatchManifest, &'static str>>, Error> {
    let Some(text) = files::read_if_exists(&folder.join(MANIFEST))? else { return Ok(None) };
    let Ok(value) = serde_json::from_slice::<Value>(&text) else {
        return Ok(Some(Err("this manifest is not valid JSON")));
    };
    if value.get("units").is_none() {
        return Ok(Some(Err("this is the manifest of a single run")));
    }
    let read = serde_json::from_value::<BatchManifest>(value);
    Ok(Some(read.map_err(|_| "this batch record is not valid")))
}

/// The units of a journal. A truncated line has no newline and is skipped.
pub(super) fn parse_journal(text: &[u8]) -> Vec<UnitRecord> {
    let whole = text.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n"));
    whole.filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_line_that_was_cut_is_left_out() {
        let unit = UnitRecord {
            pipeline: "p".into(),
            name: None,
            sluice: VERSION.into(),
            plugins: vec!["x".into()],
            inputs: Vec::new(),
            outputs: vec!["a".into()],
            files: Vec::new(),
            exit: 3,
            partial: false,
        };
        let line = serde_json::to_string(&unit).unwrap();
        let folder = tempfile::tempdir().unwrap();
        assert!(BatchRecord::read(folder.path()).unwrap().is_none());
        fs::write(folder.path().join(JOURNAL), format!("{line}\n{line}\n{}", &line[..20])).unwrap();
        let record = BatchRecord::read(folder.path()).unwrap().unwrap();
        assert_eq!((record.journal, record.is_open), (vec![unit.clone(), unit], true));
    }

    #[test]
    fn the_manifest_of_a_single_run_is_no_record() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(MANIFEST), r#"{"files": []}"#).unwrap();
        assert!(BatchRecord::read(folder.path()).unwrap().is_none());
        let refused = BatchRecord::to_continue(folder.path()).unwrap_err().to_string();
        assert!(refused.contains("single run"), "{refused}");
    }

    #[test]
    fn paths_outside_of_the_folder_are_absolute() {
        let relative = |path: &str, folder: &str| {
            recorded_path(Path::new(path), Path::new(folder)).unwrap().to_str().unwrap().to_owned()
        };
        assert_eq!(relative("out/a/b", "out"), "a/b");
        assert_eq!(relative("./out/a/", "./out"), "a");
        assert_eq!(relative("a.lcm", ""), "a.lcm");
        assert!(relative("../a.lcm", "").starts_with('/'));
        assert_eq!(relative("/y/a", "/x"), "/y/a");
    }
}
