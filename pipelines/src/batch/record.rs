//! The record of a batch: which outputs each unit made from which inputs. Reads and compares;
//! writes nothing.
//!
//! A finished batch has its record in `_manifest.json`; one that is running or was killed has its
//! latest units in `_units.jsonl`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sluice_io::files;
use sluice_io::output::MANIFEST;
use sluice_io::store::is_address;
use sluice_model::Error;

use super::journal::{self, JournalText};
use super::journal_record::{JournalRecord, UnfinishedUnit};
use super::shard::{self, ShardFiles};
use super::unit_record::UnitRecord;

/// The content of a batch's `_manifest.json`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct BatchManifest {
    pub(super) sluice: String,
    pub(super) units: Vec<UnitRecord>,
    /// Units that a finished batch has not done; empty if it is complete.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) left: Vec<UnfinishedUnit>,
}

/// The record in a folder.
#[derive(Debug, Default)]
pub struct BatchRecord {
    /// The units of the manifest, sorted by their outputs.
    pub units: Vec<UnitRecord>,
    /// The units that the manifest lists as not done.
    pub left: Vec<UnfinishedUnit>,
    /// The journal of an unfinished batch.
    pub journal: JournalRecord,
    /// The objects of the journal, if the folder is in a store.
    pub(super) journal_objects: Vec<PathBuf>,
    /// The bytes of the manifest.
    pub(super) manifest: Option<Vec<u8>>,
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
        Self::from_manifest(folder, files::read_if_exists(&folder.join(MANIFEST))?)
    }

    /// Reads the rest of the record in a folder with this manifest.
    fn from_manifest(folder: &Path, text: Option<Vec<u8>>) -> Result<Option<Self>, Error> {
        let manifest = text.as_deref().map(parse_manifest).and_then(Result::ok);
        let journal = journal::read(folder)?;
        let parts = if is_address(folder) { Vec::new() } else { ShardFiles::all(folder)? };
        if manifest.is_none() && journal.is_none() && parts.is_empty() {
            return Ok(None);
        }
        let is_open = journal.is_some();
        let JournalText { bytes, objects } = journal.unwrap_or_default();
        let (units, left) =
            manifest.map(|manifest| (manifest.units, manifest.left)).unwrap_or_default();
        Ok(Some(Self {
            units,
            left,
            journal: JournalRecord::parse(&bytes),
            journal_objects: objects,
            manifest: text,
            is_open,
            shards: parts,
        }))
    }

    /// The record that a batch in this folder continues.
    ///
    /// `Err` if the folder's manifest is not that of a batch.
    pub(super) fn to_continue(folder: &Path) -> Result<Self, Error> {
        let text = files::read_if_exists(&folder.join(MANIFEST))?;
        if let Some(Err(reason)) = text.as_deref().map(parse_manifest) {
            return Err(Error::refused(format!("{reason}: {}", folder.join(MANIFEST).display())));
        }
        Ok(Self::from_manifest(folder, text)?.unwrap_or_default())
    }

    /// The units with one of these outputs, latest first.
    pub(crate) fn with_outputs<'r>(
        &'r self,
        outputs: &'r [PathBuf],
    ) -> impl Iterator<Item = &'r UnitRecord> {
        self.latest_first().filter(having(outputs))
    }

    /// The journaled units that have one of these outputs.
    pub(super) fn journaled<'r>(
        &'r self,
        outputs: &'r [PathBuf],
    ) -> impl Iterator<Item = &'r UnitRecord> {
        let parts = self.shards.iter().flat_map(|part| &part.journal.units);
        parts.chain(&self.journal.units).filter(having(outputs))
    }

    /// All units, latest first.
    pub fn latest_first(&self) -> impl Iterator<Item = &UnitRecord> {
        let parts = self.shards.iter().flat_map(ShardFiles::latest_first);
        parts.chain(self.journal.units.iter().rev()).chain(&self.units)
    }

    /// The valid record of each output: the latest one, except journal entries whose files have not
    /// appeared.
    pub fn current(&self, folder: &Path) -> Vec<&UnitRecord> {
        let of_parts = self.shards.iter().flat_map(|part| {
            let journaled = part.journal.units.iter().rev().map(|unit| (unit, true));
            journaled.chain(part.recorded_units().map(|unit| (unit, false)))
        });
        let journaled = self.journal.units.iter().rev().map(|unit| (unit, true));
        let recorded = self.units.iter().map(|unit| (unit, false));
        let (mut taken, mut current) = (BTreeSet::new(), Vec::new());
        for (unit, is_journaled) in of_parts.chain(journaled).chain(recorded) {
            let has_appeared = !is_journaled || unit.has_appeared(folder);
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
        shard::shard_notes(&self.shards, &self.units)
    }
}

/// Whether a unit has one of these outputs.
fn having(outputs: &[PathBuf]) -> impl Fn(&&UnitRecord) -> bool {
    let outputs: BTreeSet<&PathBuf> = outputs.iter().collect();
    move |unit| unit.outputs.iter().any(|path| outputs.contains(path))
}

/// The batch manifest with this text; `Err` says why it is not one.
fn parse_manifest(text: &[u8]) -> Result<BatchManifest, &'static str> {
    let Ok(value) = serde_json::from_slice::<Value>(text) else {
        return Err(
            "this manifest is not valid JSON; delete it, and --resume makes all outputs again",
        );
    };
    if value.get("units").is_none() {
        return Err("this is the manifest of a single run; write the batch elsewhere");
    }
    serde_json::from_value(value).map_err(
        |_| "this batch record is not valid; delete it, and --resume makes all outputs again",
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::journal::JOURNAL;
    use super::super::unit_record::recorded_path;
    use super::*;
    use crate::manifest::{RunEnd, VERSION};

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
            ended: RunEnd { exit: 3, losses: true, ..RunEnd::default() },
        };
        let line = serde_json::to_string(&unit).unwrap();
        let folder = tempfile::tempdir().unwrap();
        assert!(BatchRecord::read(folder.path()).unwrap().is_none());
        fs::write(folder.path().join(JOURNAL), format!("{line}\n{line}\n{}", &line[..20])).unwrap();
        let record = BatchRecord::read(folder.path()).unwrap().unwrap();
        assert_eq!((record.journal.units, record.is_open), (vec![unit.clone(), unit], true));
    }

    #[test]
    fn the_manifest_of_a_single_run_is_no_record() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(MANIFEST), r#"{"files": []}"#).unwrap();
        assert!(BatchRecord::read(folder.path()).unwrap().is_none());
        let refused = BatchRecord::to_continue(folder.path()).unwrap_err().to_string();
        assert!(refused.contains("single run; write the batch elsewhere: "), "{refused}");
        for text in ["{", r#"{"units": 3}"#] {
            fs::write(folder.path().join(MANIFEST), text).unwrap();
            let refused = BatchRecord::to_continue(folder.path()).unwrap_err().to_string();
            assert!(refused.contains("delete it, and --resume makes all"), "{refused}");
        }
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
