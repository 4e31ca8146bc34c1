//! What the journal of a batch says: its units, and those that killed batches began.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::unit_record::{Status, UnitRecord};

/// A unit of a batch that has no outputs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnfinishedUnit {
    /// The input.
    #[serde(
        serialize_with = "sluice_io::escape::path_as_text",
        deserialize_with = "sluice_io::escape::path_from_text"
    )]
    pub input: PathBuf,
    /// Its outputs, as records name them.
    pub outputs: Vec<PathBuf>,
    /// Its status: failed, interrupted or not started.
    pub status: Status,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// The first line of a journal: the units that a batch begins.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct JournalHeading {
    pub(super) begun: Vec<UnfinishedUnit>,
}

/// The content of a journal.
#[derive(Debug, Default)]
pub struct JournalRecord {
    /// The units, in completion order. The files of the last ones may be missing.
    pub units: Vec<UnitRecord>,
    /// What each killed batch began, after this number of units.
    begun: Vec<(usize, Vec<UnfinishedUnit>)>,
}

impl JournalRecord {
    /// Reads a journal. A truncated line has no newline and is skipped.
    pub(super) fn parse(text: &[u8]) -> Self {
        let lines = text.split_inclusive(|byte| *byte == b'\n');
        let mut journal = Self::default();
        for line in lines.filter(|line| line.ends_with(b"\n")) {
            if let Ok(unit) = serde_json::from_slice(line) {
                journal.units.push(unit);
            } else if let Ok(JournalHeading { begun }) = serde_json::from_slice(line) {
                journal.begun.push((journal.units.len(), begun));
            }
        }
        journal
    }

    /// The units that were begun and whose files did not appear.
    pub(super) fn unfinished(&self, folder: &Path) -> Vec<UnfinishedUnit> {
        let of_batch = |(before, begun): &(usize, Vec<UnfinishedUnit>)| {
            let ended = self.units.iter().skip(*before).filter(|unit| unit.has_appeared(folder));
            let ended: BTreeSet<&[PathBuf]> = ended.map(|unit| &*unit.outputs).collect();
            let is_left = |unit: &&UnfinishedUnit| !ended.contains(&*unit.outputs);
            begun.iter().filter(is_left).cloned().collect::<Vec<_>>()
        };
        self.begun.iter().flat_map(of_batch).collect()
    }
}
