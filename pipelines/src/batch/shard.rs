//! Shards: a batch split among processes that share nothing but a folder. Each shard keeps a
//! record; [`merge`] combines them.
//!
//! Shard I of N has the inputs I, I + N, I + 2 N, … of the list. The assignment depends only on the
//! list, not on file lengths, which may change between the start of two shards; and logs of one
//! day, which are neighbours, are spread evenly.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize, Serializer};
use sluice_io::escape::path_text;
use sluice_io::files::TEMPORARY;
use sluice_io::output::replace_file;
use sluice_model::Error;

use super::journal::not_opened;
use super::journal_record::{JournalRecord, UnfinishedUnit};
use super::unit_record::UnitRecord;
use crate::manifest::{VERSION, is_false};

/// One shard of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shard {
    /// Its number, from 1.
    number: usize,
    total: usize,
}

/// The maximum number of shards.
const MAX_SHARDS: usize = 1_000_000;

impl Shard {
    /// Parses `I/N`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("`{text}` is not a shard: write I/N, such as 1/4 for the first of four");
        let (number, of) = text.split_once('/').ok_or_else(wrong)?;
        let parse =
            |text: &str| text.trim().parse::<usize>().ok().filter(|n| (1..=MAX_SHARDS).contains(n));
        let (number, of) = (parse(number).ok_or_else(wrong)?, parse(of).ok_or_else(wrong)?);
        if number > of {
            return Err(format!("there is no shard {number} of {of}: shards count from 1"));
        }
        Ok(Self { number, total: of })
    }

    /// Whether the shard has the input at this index, from 0.
    pub(super) fn contains(self, place: usize) -> bool {
        place % self.total == self.number - 1
    }

    /// The file name of its record.
    pub(super) fn record_name(self) -> String {
        format!("{NAME_PREFIX}{}-of-{}.json", self.number, self.total)
    }

    /// The file name of its journal.
    pub(super) fn journal_name(self) -> String {
        format!("{NAME_PREFIX}{}-of-{}.units.jsonl", self.number, self.total)
    }

    /// Locks the shard, so that no other process runs it while the lock lives.
    ///
    /// `Err` if another process holds the lock. Goes unnoticed on file systems without locks.
    pub(super) fn lock(self, folder: &Path) -> Result<ShardLock, Error> {
        let path =
            folder.join(format!("{LOCK_PREFIX}{}-of-{}{TEMPORARY}", self.number, self.total));
        loop {
            let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
            let file = file.map_err(|error| not_opened(&path, error))?;
            if let Err(TryLockError::WouldBlock) = file.try_lock() {
                return Err(Error::refused(format!(
                    "shard {self} of this batch is running; wait for it to end: {}",
                    folder.display()
                )));
            }
            // The previous owner may have removed the file meanwhile; then the lock is on an
            // unlinked file.
            if is_same_file(&file, &path) {
                return Ok(ShardLock { path, _file: file });
            }
        }
    }

    /// The shard whose record or journal has this name.
    fn from_file_name(name: &str) -> Option<Self> {
        let rest = name.strip_prefix(NAME_PREFIX)?;
        let rest = rest.strip_suffix(".json").or_else(|| rest.strip_suffix(".units.jsonl"))?;
        Self::parse(&rest.replacen("-of-", "/", 1)).ok()
    }
}

/// The prefix of shard file names.
const NAME_PREFIX: &str = "_shard-";

/// The prefix of the names of lock files, which outputs never have.
const LOCK_PREFIX: &str = ".shard-";

/// Removes the lock files of shards that were killed.
pub(super) fn remove_stale_locks(folder: &Path) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_lock = |name: &str| name.starts_with(LOCK_PREFIX) && name.ends_with(TEMPORARY);
    let locks = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_lock));
    for path in locks.map(|entry| entry.path()) {
        let is_free = |file: File| file.try_lock().is_ok() && is_same_file(&file, &path);
        if File::open(&path).is_ok_and(is_free) {
            drop(fs::remove_file(&path));
        }
    }
}

/// Whether a file name is that of a shard's record or journal.
pub(super) fn is_shard_record(name: &str) -> bool {
    Shard::from_file_name(name).is_some()
}

fn is_same_file(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let (Ok(file), Ok(path)) = (file.metadata(), fs::metadata(path)) else { return false };
    (file.dev(), file.ino()) == (path.dev(), path.ino())
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.total)
    }
}

/// The lock on a shard.
#[derive(Debug)]
pub(super) struct ShardLock {
    path: PathBuf,
    _file: File,
}

impl Drop for ShardLock {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.path));
    }
}

/// Identifies a shard and its batch.
#[derive(Clone, Debug)]
pub(crate) struct ShardHeader {
    pub(super) shard: Shard,
    /// The batch's identity: a hash of pipeline, memory, version, inputs and outputs.
    pub(super) batch: String,
    /// The number of inputs of the whole batch.
    pub(super) inputs: usize,
    /// The outputs of the whole batch, as records name them.
    pub(super) outputs: Vec<PathBuf>,
}

impl ShardHeader {
    /// Whether the units `merged` are those of the whole batch: they have all its outputs, and had
    /// the pipeline of the units of this shard that are done.
    fn is_merged(&self, merged: &[UnitRecord], done: &[UnitRecord]) -> bool {
        let merged: BTreeMap<&PathBuf, &UnitRecord> = merged
            .iter()
            .flat_map(|unit| unit.outputs.iter().map(move |out| (out, unit)))
            .collect();
        let has_run = |unit: &UnitRecord| {
            let first = unit.outputs.first().and_then(|output| merged.get(output));
            first.is_some_and(|before| before.is_run_of(unit))
        };
        let has_all = self.outputs.iter().all(|output| merged.contains_key(output));
        has_all && done.iter().all(has_run)
    }
}

/// The content of a shard's record.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ShardRecord {
    pub(super) sluice: String,
    pub(super) shard: usize,
    pub(super) of: usize,
    pub(super) batch: String,
    /// The number of inputs of the whole batch.
    pub(super) inputs: usize,
    /// Whether the manifest has the other shards: they were merged, and this one has run again or
    /// is about to be removed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) is_rerun: bool,
    /// Inputs of the shard that are not done.
    #[serde(serialize_with = "paths_as_text")]
    pub(super) left: Vec<PathBuf>,
    /// The units of these inputs. Records of earlier versions do not have them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) unfinished: Vec<UnfinishedUnit>,
    pub(super) units: Vec<UnitRecord>,
    /// Units of the previous record that belong to another batch or could not be redone.
    pub(super) earlier: Vec<UnitRecord>,
}

fn paths_as_text<S: Serializer>(paths: &[PathBuf], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(paths.iter().map(|path| path_text(path)))
}

impl ShardRecord {
    /// The record of a shard with these finished units and those left over, in a folder whose
    /// manifest has the units `merged`.
    pub(super) fn new(
        heading: &ShardHeader,
        (mut done, unfinished): (Vec<UnitRecord>, Vec<UnfinishedUnit>),
        earlier: Vec<UnitRecord>,
        merged: &[UnitRecord],
    ) -> Self {
        done.sort_by(|a, b| a.outputs.cmp(&b.outputs));
        let ShardHeader { shard, batch, inputs, .. } = heading;
        Self {
            sluice: VERSION.to_owned(),
            shard: shard.number,
            of: shard.total,
            batch: batch.clone(),
            inputs: *inputs,
            is_rerun: heading.is_merged(merged, &done),
            left: unfinished.iter().map(|unit| unit.input.clone()).collect(),
            unfinished,
            units: done,
            earlier,
        }
    }

    /// Writes it to the folder.
    pub(super) fn write(&self, folder: &Path, shard: Shard) -> Result<(), Error> {
        let text =
            serde_json::to_string_pretty(self).map_err(|e| Error::internal(e.to_string()))?;
        replace_file(&folder.join(shard.record_name()), text.as_bytes())
    }

    /// Whether it adds nothing to a manifest that has the units `merged`.
    pub(super) fn is_in_manifest(&self, merged: &[UnitRecord]) -> bool {
        let is_same = |unit: &UnitRecord| merged.contains(unit);
        self.is_rerun
            && self.left.is_empty()
            && self.earlier.is_empty()
            && self.units.iter().all(is_same)
    }
}

/// The files of one shard in a folder.
#[derive(Debug)]
pub(super) struct ShardFiles {
    pub(super) shard: Shard,
    /// `None` if the shard never finished.
    pub(super) record: Option<ShardRecord>,
    /// The journal of an unfinished shard.
    pub(super) journal: JournalRecord,
    /// Whether the shard is unfinished.
    pub(super) is_open: bool,
}

impl ShardFiles {
    /// The shards in a folder, in order.
    pub(super) fn all(folder: &Path) -> Result<Vec<Self>, Error> {
        let here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let entries = match fs::read_dir(here) {
            Ok(entries) => entries,
            // Whoever needs the folder reports the error.
            Err(_) => return Ok(Vec::new()),
        };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut shards: Vec<Shard> =
            names.filter_map(|name| Shard::from_file_name(&name)).collect();
        shards.sort_by_key(|shard| (shard.total, shard.number));
        shards.dedup();
        shards.into_iter().map(|shard| Self::read(here, shard)).collect()
    }

    fn read(folder: &Path, shard: Shard) -> Result<Self, Error> {
        let path = folder.join(shard.record_name());
        let record = read_optional(&path)?.map(|text| serde_json::from_slice(&text));
        let record = record.transpose().map_err(|e| {
            Error::refused(format!("this shard record is not valid: {e}: {}", path.display()))
        })?;
        let journal = read_optional(&folder.join(shard.journal_name()))?;
        let is_open = journal.is_some();
        let journal = JournalRecord::parse(&journal.unwrap_or_default());
        Ok(Self { shard, record, journal, is_open })
    }

    /// Whether these are the files of this shard.
    pub(super) fn is_of(&self, shard: Shard) -> bool {
        self.shard == shard
    }

    /// The finished units of its record.
    pub(super) fn recorded_units(&self) -> impl Iterator<Item = &UnitRecord> {
        self.record.iter().flat_map(|record| record.units.iter().chain(&record.earlier))
    }

    /// All units, latest first.
    pub(super) fn latest_first(&self) -> impl Iterator<Item = &UnitRecord> {
        self.journal.units.iter().rev().chain(self.recorded_units())
    }

    /// The units that it began and has not finished.
    pub(super) fn unfinished(&self, folder: &Path) -> Vec<UnfinishedUnit> {
        let is_left = |unit: &&UnfinishedUnit| {
            let mut since = self.journal.units.iter();
            !since.any(|done| done.outputs == unit.outputs && done.has_appeared(folder))
        };
        let left = self.record.iter().flat_map(|record| &record.unfinished).filter(is_left);
        left.cloned().chain(self.journal.unfinished(folder)).collect()
    }

    /// Removes its files, once their content is in the manifest.
    pub(super) fn remove(&self, folder: &Path) -> Result<(), Error> {
        for name in [self.shard.record_name(), self.shard.journal_name()] {
            let path = folder.join(name);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::io("remove", path, error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Removes the files of these shards, once the manifest has their content; before that, it had the
/// units `merged`.
pub(super) fn remove_shards(
    parts: &[ShardFiles],
    merged: &[UnitRecord],
    folder: &Path,
) -> Result<(), Error> {
    // If this is interrupted, those that were removed are not missing. The others say so.
    if missing_numbers(parts, merged).is_none() {
        for ShardFiles { shard, record, .. } in parts {
            if let Some(record) = record.as_ref().filter(|record| !record.is_rerun) {
                ShardRecord { is_rerun: true, ..record.clone() }.write(folder, *shard)?;
            }
        }
    }
    parts.iter().try_for_each(|part| part.remove(folder))
}

/// Messages about the shards in a folder: how many there are, and what is missing.
pub(super) fn shard_notes(parts: &[ShardFiles], merged: &[UnitRecord]) -> Vec<String> {
    if parts.is_empty() {
        return Vec::new();
    }
    let open = parts.iter().filter(|part| part.is_open).count();
    let over = parts.len() - open;
    let running = match open {
        0 => String::new(),
        open => format!(", {open} interrupted or still running"),
    };
    let text = format!(
        "the batch ran in shards: {over} recorded{running}; merge their records with \
         `sluice merge-manifests`"
    );
    std::iter::once(text)
        .chain(missing_shards(parts, merged))
        .chain(parts.iter().filter_map(unfinished_shard))
        .collect()
}

fn read_optional(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    match fs::read(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("read", path, error)),
    }
}

/// Messages about shards of different batches.
pub(super) fn mixed_batches(parts: &[ShardFiles]) -> Vec<String> {
    let Some(first) = parts.first() else { return Vec::new() };
    if let Some(other) = parts.iter().find(|part| part.shard.total != first.shard.total) {
        return vec![format!(
            "there are records of {} and of {} shards; remove the outdated ones ({NAME_PREFIX}*)",
            first.shard.total, other.shard.total
        )];
    }
    let records = || parts.iter().filter_map(|part| Some((part.shard, part.record.as_ref()?)));
    let Some((one, record)) = records().next() else { return Vec::new() };
    let versions = records().filter(|(_, other)| other.sluice != VERSION).map(|(shard, other)| {
        format!("shard {shard} was run by Sluice {}, and this is {VERSION}", other.sluice)
    });
    let batches = records().filter(|(_, other)| other.batch != record.batch).map(|(shard, other)| {
        format!(
            "shards {one} and {shard} belong to different batches, of {} and {} inputs: pipeline, \
             options and inputs must be the same; run them again with --resume",
            record.inputs, other.inputs
        )
    });
    versions.chain(batches).collect()
}

/// A message about missing shards.
pub(super) fn missing_shards(parts: &[ShardFiles], merged: &[UnitRecord]) -> Option<String> {
    let missing = missing_numbers(parts, merged)?;
    Some(format!("shards are missing: {missing}; run them with --shard"))
}

/// A message about the shards that are missing when a batch with these outputs, by its units,
/// replaces the records of others, unless it does their inputs, too.
pub(super) fn forgotten_shards(
    parts: &[ShardFiles],
    merged: &[UnitRecord],
    units: &[Vec<PathBuf>],
) -> Option<String> {
    let missing = missing_numbers(parts, merged)?;
    let ours: BTreeSet<&PathBuf> = units.iter().flatten().collect();
    let mut outputs = parts.iter().flat_map(ShardFiles::latest_first).flat_map(|it| &it.outputs);
    let mut records = parts.iter().filter_map(|part| part.record.as_ref());
    let is_ours = outputs.all(|output| ours.contains(output))
        && records.all(|record| record.inputs <= units.len());
    (!is_ours).then(|| {
        format!(
            "another batch ran here, of which these shards did not: {missing}; its record is now \
             part of this one: to complete it, run it without --shard and with --resume"
        )
    })
}

/// Which shards are missing, unless they are among the units `merged` of the manifest. Shards
/// beyond the number of inputs have none, and need no record.
fn missing_numbers(parts: &[ShardFiles], merged: &[UnitRecord]) -> Option<String> {
    let records = || parts.iter().map(|part| part.record.as_ref());
    if !merged.is_empty() && records().flatten().any(|record| record.is_rerun) {
        return None;
    }
    let total = parts.first()?.shard.total;
    let of = records().flatten().map(|record| record.inputs.min(total)).next().unwrap_or(total);
    let is_there = |number: &usize| parts.iter().any(|part| part.shard.number == *number);
    let missing: Vec<usize> = (1..=of).filter(|number| !is_there(number)).collect();
    let shown: Vec<String> = missing
        .iter()
        .take(20)
        .map(|number| Shard { number: *number, total }.to_string())
        .collect();
    let more = match missing.len().saturating_sub(shown.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!missing.is_empty()).then(|| format!("{}{more}", shown.join(", ")))
}

pub(super) fn unfinished_shard(part: &ShardFiles) -> Option<String> {
    let ShardFiles { shard, record, is_open, .. } = part;
    if *is_open {
        return Some(format!(
            "shard {shard} was interrupted or is still running; `--shard {shard} --resume` \
             completes it"
        ));
    }
    let left = &record.as_ref()?.left;
    let first = left.first()?.display();
    let count = match left.len() {
        1 => format!("{first} is not done"),
        many => format!("{many} inputs are not done, such as {first}"),
    };
    Some(format!("shard {shard} is not complete: {count}; run it again with --resume"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_and_shown_as_they_are_written() {
        for text in ["1/1", "2/3", "1000000/1000000"] {
            assert_eq!(Shard::parse(text).unwrap().to_string(), text);
        }
        for wrong in ["", "1", "0/3", "4/3", "a/b", "1/0", "-1/3", "1/3/5", "1/1000001"] {
            Shard::parse(wrong).unwrap_err();
        }
    }

    #[test]
    fn every_input_is_in_one_part() {
        let shards: Vec<Shard> = (1..=3).map(|number| Shard { number, total: 3 }).collect();
        for place in 0..10 {
            assert_eq!(shards.iter().filter(|shard| shard.contains(place)).count(), 1, "{place}");
        }
        assert_eq!(
            (0..10).filter(|place| shards[1].contains(*place)).collect::<Vec<_>>(),
            [1, 4, 7]
        );
    }

    #[test]
    fn names_tell_which_part_they_are_of() {
        let shard = Shard { number: 2, total: 3 };
        for name in [shard.record_name(), shard.journal_name()] {
            assert_eq!(Shard::from_file_name(&name), Some(shard));
        }
        for other in ["_shard-4-of-3.json", "_shard-1-of-3", "_manifest.json", "shard-1-of-3.json"]
        {
            assert!(!is_shard_record(other), "{other}");
        }
    }

    #[test]
    fn only_lock_files_that_nobody_holds_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let shard = |text: &str| Shard::parse(text).unwrap();
        let held = shard("2/3").lock(folder.path()).unwrap();
        let left = folder.path().join(".shard-3-of-3.sluice-tmp");
        fs::write(&left, b"").unwrap();
        remove_stale_locks(folder.path());
        assert!(held.path.exists() && !left.exists());
    }
}
