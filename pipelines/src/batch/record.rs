//! The record of a batch: for every unit what was made of which inputs. Reads and compares; writes
//! nothing.
//!
//! A batch that is over has its record in `_manifest.json`; one that was killed, or is still going on, has
//! that of its last units in `_units.jsonl`.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf, absolute};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_core::files::{self, PathKind};
use sluice_core::output::{MANIFEST, PublishedFile};
use sluice_core::store::is_address;
use sluice_core::{Error, Input, RunOrigin};

use super::shard::{self, Part};
use super::{Status, journal};
use crate::manifest::{self, Ended, InputFile, OutputFile, VERSION, is_false};

/// The record of the units of a batch that is not over: a line of JSON each.
pub const JOURNAL: &str = "_units.jsonl";

/// What was made of one input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitRecord {
    /// What was run, as a pipeline file without variables and placeholders.
    pub pipeline: String,
    /// The pipeline's name.
    pub name: Option<String>,
    /// The version of Sluice that ran it.
    pub sluice: String,
    /// The plugins that took part.
    pub plugins: Vec<String>,
    /// What was read.
    pub inputs: Vec<InputFile>,
    /// What the unit is to write: files and folders, which no other unit may write.
    pub outputs: Vec<PathBuf>,
    /// The files that were written, with paths relative to the folder of the record, or absolute.
    pub files: Vec<OutputFile>,
    /// The exit code: 3 if there were losses.
    pub exit: u8,
    /// Whether the run was asked to end before it had read everything.
    #[serde(default, skip_serializing_if = "is_false")]
    pub partial: bool,
}

/// What `_manifest.json` says of a batch.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct BatchManifest {
    pub(super) sluice: String,
    pub(super) units: Vec<UnitRecord>,
    /// What a batch that came to its end has not done. None of it in the manifest of one that is whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) left: Vec<UnitLeft>,
}

/// An input of a batch of which there is nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitLeft {
    /// The input.
    #[serde(serialize_with = "sluice_core::name::path_as_text")]
    pub input: PathBuf,
    /// What would be written of it, as records name it.
    pub outputs: Vec<PathBuf>,
    /// How it ended: it failed, was interrupted, or was not started.
    pub status: Status,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The record in a folder.
#[derive(Debug, Default)]
pub struct Record {
    /// The units of the manifest, sorted by their outputs.
    pub units: Vec<UnitRecord>,
    /// The inputs that the manifest says have not been done.
    pub left: Vec<UnitLeft>,
    /// The units of a batch that is not over, in the order in which they were done. The files of the
    /// last ones need not be there.
    pub journal: Vec<UnitRecord>,
    /// Whether a batch is not over.
    pub is_open: bool,
    /// Those of a batch that was run in parts.
    pub(super) parts: Vec<Part>,
}

impl Record {
    /// The record in a folder; nothing if there is none. A line that was cut off is left out.
    ///
    /// `Err` if it cannot be read.
    pub fn read(folder: &Path) -> Result<Option<Self>, Error> {
        let manifest = manifest_in(folder)?.and_then(Result::ok);
        let journal = journal::read(folder)?;
        let parts = if is_address(folder) { Vec::new() } else { Part::all(folder)? };
        if manifest.is_none() && journal.is_none() && parts.is_empty() {
            return Ok(None);
        }
        let is_open = journal.is_some();
        let journal = lines(&journal.unwrap_or_default());
        let (units, left) =
            manifest.map(|manifest| (manifest.units, manifest.left)).unwrap_or_default();
        Ok(Some(Self { units, left, journal, is_open, parts }))
    }

    /// The record that a batch in this folder goes on with.
    ///
    /// `Err` if the folder's manifest is not that of a batch.
    pub(super) fn to_continue(folder: &Path) -> Result<Self, Error> {
        if let Some(Err(reason)) = manifest_in(folder)? {
            return Err(Error::refused(format!(
                "{reason}, so no batch can be written there; write elsewhere: {}",
                folder.join(MANIFEST).display()
            )));
        }
        Ok(Self::read(folder)?.unwrap_or_default())
    }

    /// Every unit that has one of these outputs, the latest first.
    pub(crate) fn of<'r>(&'r self, outputs: &'r [PathBuf]) -> impl Iterator<Item = &'r UnitRecord> {
        let outputs: BTreeSet<&PathBuf> = outputs.iter().collect();
        let meets =
            move |unit: &&UnitRecord| unit.outputs.iter().any(|path| outputs.contains(path));
        self.latest_first().filter(meets)
    }

    /// Every unit, the latest first.
    pub fn latest_first(&self) -> impl Iterator<Item = &UnitRecord> {
        let parts = self.parts.iter().flat_map(Part::latest_first);
        parts.chain(self.journal.iter().rev()).chain(&self.units)
    }

    /// What counts of each output, by the folder of the record: of several records of one thing the latest, but for
    /// those of a journal whose files have not appeared.
    pub fn current(&self, folder: &Path) -> Vec<&UnitRecord> {
        let of_parts = self.parts.iter().flat_map(|part| {
            let journaled = part.journal.iter().rev().map(|unit| (unit, true));
            journaled.chain(part.recorded().map(|unit| (unit, false)))
        });
        let journaled = self.journal.iter().rev().map(|unit| (unit, true));
        let recorded = self.units.iter().map(|unit| (unit, false));
        let (mut taken, mut current) = (BTreeSet::new(), Vec::new());
        for (unit, is_journaled) in of_parts.chain(journaled).chain(recorded) {
            let has_appeared =
                !is_journaled || unit.files.iter().all(|file| has_length(folder, file));
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

    /// Sentences on a batch that was run in parts, whose records have not been put together: what is missing of it.
    pub fn in_parts(&self) -> Vec<String> {
        shard::told(&self.parts)
    }
}

impl UnitRecord {
    /// The record of a run whose files are about to appear. Waits for the hashes of its inputs.
    pub(crate) fn of(
        origin: &RunOrigin,
        (plugins, ended): (&[String], Ended),
        outputs: &[PathBuf],
        files: &[PublishedFile],
        folder: &Path,
    ) -> Result<Self, Error> {
        let each = files.iter().filter(|file| file.path != Path::new("-")).map(|file| {
            let path = relative(&file.path, folder)?;
            Ok(OutputFile { path, rows: file.rows, bytes: file.bytes, blake3: file.blake3.clone() })
        });
        let mut files = each.collect::<Result<Vec<_>, Error>>()?;
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(Self {
            pipeline: origin.pipeline.clone(),
            name: origin.name.clone(),
            sluice: VERSION.to_owned(),
            plugins: plugins.to_vec(),
            inputs: manifest::inputs(origin),
            outputs: relative_all(outputs, folder)?,
            files,
            exit: ended.exit,
            partial: ended.partial,
        })
    }

    /// Whether these are the files that it names, by what is in them.
    pub(crate) fn names(&self, files: &[PublishedFile]) -> bool {
        let mut ours: Vec<_> = self.files.iter().map(|file| (file.bytes, &file.blake3)).collect();
        let mut theirs: Vec<_> = files.iter().map(|file| (file.bytes, &file.blake3)).collect();
        ours.sort();
        theirs.sort();
        ours == theirs
    }

    /// What it claims to be true of files on disk.
    pub(super) fn claim(&self) -> Claim<'_> {
        Claim {
            pipeline: &self.pipeline,
            sluice: &self.sluice,
            plugins: &self.plugins,
            inputs: &self.inputs,
            files: &self.files,
            partial: self.partial,
        }
    }
}

/// What a record or manifest says of a run.
#[derive(Clone, Copy)]
pub(crate) struct Claim<'c> {
    pub(crate) pipeline: &'c str,
    pub(crate) sluice: &'c str,
    pub(crate) plugins: &'c [String],
    pub(crate) inputs: &'c [InputFile],
    pub(crate) files: &'c [OutputFile],
    pub(crate) partial: bool,
}

/// A run that may have been done already.
pub(crate) struct Due<'d> {
    pub(crate) pipeline: &'d str,
    pub(crate) plugins: &'d [String],
    pub(crate) inputs: &'d [Input],
}

impl Claim<'_> {
    /// Whether it says that the run has been done, and all files are as it says: reads them whole.
    pub(crate) fn settles(&self, due: &Due<'_>, folder: &Path) -> bool {
        let same = self.pipeline == due.pipeline
            && self.sluice == VERSION
            && self.plugins == due.plugins
            && !self.partial;
        // Lengths are cheap to look at; most of what differs shows there.
        same && self.inputs.len() == due.inputs.len()
            && self.inputs.iter().zip(due.inputs).all(|(then, now)| {
                then.path == now.path && now.bytes.is_some() && then.bytes == now.bytes
            })
            && self.files.iter().all(|file| has_length(folder, file))
            && self.files.iter().all(|file| is_as_written(folder, file))
            && self.inputs.iter().all(|input| {
                input.blake3.is_some() && manifest::hash_file(&input.path).ok() == input.blake3
            })
    }
}

/// Whether a file is there, as long as it was.
pub(super) fn has_length(folder: &Path, file: &OutputFile) -> bool {
    let found = files::path_kind(&folder.join(&file.path));
    found.is_ok_and(|found| found == Some(PathKind::File(file.bytes)))
}

/// Whether a file is there as it was written.
pub(super) fn is_as_written(folder: &Path, file: &OutputFile) -> bool {
    file.blake3.is_some() && manifest::hash_file(&folder.join(&file.path)).ok() == file.blake3
}

/// A path as a record in `folder` names it: what lies elsewhere is absolute.
pub(super) fn relative(path: &Path, folder: &Path) -> Result<PathBuf, Error> {
    let inside = path.strip_prefix(folder).ok().filter(|inside| {
        inside.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
    });
    match inside {
        // Without a slash at the end of folders, and without `./`.
        Some(inside) => Ok(inside.components().filter(|c| *c != Component::CurDir).collect()),
        None if is_address(path) => Ok(path.to_owned()),
        None => absolute(path).map_err(|e| Error::io("find", path, e)),
    }
}

pub(crate) fn relative_all(paths: &[PathBuf], folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut all = paths.iter().map(|path| relative(path, folder)).collect::<Result<Vec<_>, _>>()?;
    all.sort();
    Ok(all)
}

/// A folder's manifest, or what else it is; nothing if there is none.
fn manifest_in(folder: &Path) -> Result<Option<Result<BatchManifest, &'static str>>, Error> {
    let Some(text) = files::read_if_exists(&folder.join(MANIFEST))? else { return Ok(None) };
    let Ok(value) = serde_json::from_slice::<Value>(&text) else {
        return Ok(Some(Err("this manifest cannot be understood")));
    };
    if value.get("units").is_none() {
        return Ok(Some(Err("this is the manifest of a single run")));
    }
    let read = serde_json::from_value::<BatchManifest>(value);
    Ok(Some(read.map_err(|_| "this record of a batch cannot be understood")))
}

/// The units of a journal. What a kill cut off has no end of line, and is left out.
pub(super) fn lines(text: &[u8]) -> Vec<UnitRecord> {
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
        assert!(Record::read(folder.path()).unwrap().is_none());
        fs::write(folder.path().join(JOURNAL), format!("{line}\n{line}\n{}", &line[..20])).unwrap();
        let record = Record::read(folder.path()).unwrap().unwrap();
        assert_eq!((record.journal, record.is_open), (vec![unit.clone(), unit], true));
    }

    #[test]
    fn the_manifest_of_a_single_run_is_no_record() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(MANIFEST), r#"{"files": []}"#).unwrap();
        assert!(Record::read(folder.path()).unwrap().is_none());
        let refused = Record::to_continue(folder.path()).unwrap_err().to_string();
        assert!(refused.contains("single run"), "{refused}");
    }

    #[test]
    fn paths_outside_of_the_folder_are_absolute() {
        let relative = |path: &str, folder: &str| {
            relative(Path::new(path), Path::new(folder)).unwrap().to_str().unwrap().to_owned()
        };
        assert_eq!(relative("out/a/b", "out"), "a/b");
        assert_eq!(relative("./out/a/", "./out"), "a");
        assert_eq!(relative("a.lcm", ""), "a.lcm");
        assert!(relative("../a.lcm", "").starts_with('/'));
        assert_eq!(relative("/y/a", "/x"), "/y/a");
    }
}
