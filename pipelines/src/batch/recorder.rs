//! Writes the record of a running batch: the journal while units finish, the manifest at the end.

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use sluice_io::files::{self, FileIdentity};
use sluice_io::output::{
    MANIFEST, remove_emptied, remove_file, remove_unfinished, replace_file, replace_object,
};
use sluice_io::store::is_address;
use sluice_model::Error;

use super::is_batch_record;
use super::journal::{JOURNAL, Journal};
use super::journal_record::{JournalHeading, JournalRecord, UnfinishedUnit};
use super::record::{BatchManifest, BatchRecord};
use super::shard::{ShardHeader, ShardLock, ShardRecord, remove_shards, remove_stale_locks};
use super::unit_record::{UnitRecord, actual_path, has_recorded_hash, has_recorded_length};
use crate::manifest::{OutputFile, VERSION};

/// The record of a running batch. A folder holds the record of one batch at a time; each shard of a
/// batch has its own record.
pub(crate) struct BatchRecorder<'b> {
    folder: PathBuf,
    previous: BatchRecord,
    /// Lists the units that the batch begins, for its journal.
    begun: Box<ListBegun<'b>>,
    /// Folders created for the record, innermost first; removed again if they stay empty.
    created: Vec<PathBuf>,
    journal: Journal,
    /// The shard this process runs, if the batch is sharded.
    header: Option<ShardHeader>,
    /// The files that units read; never removed.
    inputs: Arc<BTreeSet<FileIdentity>>,
    /// Locks, held until drop.
    _folder: Option<FolderLock>,
    _shard: Option<ShardLock>,
}

/// Lists the units that a batch begins, given the record before it.
type ListBegun<'b> = dyn Fn(&BatchRecord) -> Result<Vec<UnfinishedUnit>, Error> + Send + Sync + 'b;

impl<'b> BatchRecorder<'b> {
    /// Opens the record of a folder, and creates the folder if it is missing.
    ///
    /// `Err` if another batch is running there, or if the manifest there is not that of a batch.
    pub(crate) fn open(folder: &Path, heading: Option<ShardHeader>) -> Result<Self, Error> {
        let here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        if is_address(here) {
            return Self::unlocked(here, heading);
        }
        let missing: Vec<PathBuf> = here
            .ancestors()
            .take_while(|f| !f.as_os_str().is_empty() && !f.exists())
            .map(Path::to_owned)
            .collect();
        fs::create_dir_all(here).map_err(|e| Error::io("create", here, e))?;
        // Some file systems cannot lock folders; two concurrent batches then go unnoticed.
        let lock = File::open(here).ok();
        // Shards may share the folder with each other, but not with an unsharded batch.
        let try_lock = |folder: &File| match heading {
            Some(_) => folder.try_lock_shared(),
            None => folder.try_lock(),
        };
        if let Some(Err(TryLockError::WouldBlock)) = lock.as_ref().map(try_lock) {
            return Err(Error::refused(format!(
                "another batch is being written to this folder; wait for it to end: {}",
                here.display()
            )));
        }
        let shard = heading.as_ref().map(|heading| heading.shard.lock(here)).transpose()?;
        if shard.is_none() {
            remove_unfinished(here, |name| is_batch_record(Path::new(name)));
            remove_stale_locks(here);
        }
        Ok(Self {
            folder: here.to_owned(),
            // Read under the lock, so that a batch that has just ended is included.
            previous: BatchRecord::to_continue(folder)?,
            begun: Box::new(|_| Ok(Vec::new())),
            created: missing,
            journal: journal_for(here, heading.as_ref()),
            header: heading,
            inputs: Arc::default(),
            _folder: lock.map(FolderLock),
            _shard: shard,
        })
    }

    /// Object stores have no folders to create and no locks: two concurrent batches go unnoticed.
    fn unlocked(folder: &Path, heading: Option<ShardHeader>) -> Result<Self, Error> {
        if heading.is_some() {
            return Err(Error::refused(format!(
                "sharding needs outputs on disk, not in an object store: {}",
                folder.display()
            )));
        }
        let before = BatchRecord::to_continue(folder)?;
        let (folder, journal) = (folder.to_owned(), journal_for(folder, None));
        let (made, _folder, _shard) = (Vec::new(), None, None);
        let inputs = Arc::default();
        Ok(Self {
            folder,
            previous: before,
            begun: Box::new(|_| Ok(Vec::new())),
            created: made,
            journal,
            header: heading,
            inputs,
            _folder,
            _shard,
        })
    }

    /// Sets the files that the batch reads, which are never removed.
    pub(super) fn with_inputs(mut self, inputs: Arc<BTreeSet<FileIdentity>>) -> Self {
        self.inputs = inputs;
        self
    }

    /// Sets the units that the batch begins, which its journal lists. A batch that finds all done
    /// has none, and need not list any.
    pub(super) fn with_begun(
        mut self,
        begun: impl Fn(&BatchRecord) -> Result<Vec<UnfinishedUnit>, Error> + Send + Sync + 'b,
    ) -> Self {
        self.begun = Box::new(begun);
        self
    }

    /// The record as it was before this batch.
    pub(crate) fn previous(&self) -> &BatchRecord {
        &self.previous
    }

    /// Creates the journal, which marks the batch as started. Idempotent.
    pub(crate) fn begin(&self) -> Result<(), Error> {
        self.journal.begin(|| line_of(&JournalHeading { begun: (self.begun)(&self.previous)? }))
    }

    /// Appends a unit to the journal and syncs it. Call it before the unit's files appear, so that
    /// a later run can identify them after a kill.
    pub(crate) fn append(&self, unit: &UnitRecord) -> Result<(), Error> {
        self.begin()?;
        self.journal.append(&line_of(unit)?)
    }

    /// Removes the published files of units with these outputs that were killed before all of
    /// theirs were published: a sink of several files would take them for those of others. Those in
    /// an output folder stay until new ones are there.
    pub(super) fn remove_partial_units(&self, outputs: &[PathBuf]) -> Result<(), Error> {
        let journaled = self.previous.journaled(outputs);
        for unit in journaled.filter(|unit| !unit.has_appeared(&self.folder)) {
            let is_in_folder = |file: &OutputFile| {
                unit.outputs
                    .iter()
                    .any(|output| file.path != *output && file.path.starts_with(output))
            };
            self.remove_files(unit.files.iter().filter(|file| !is_in_folder(file)))?;
        }
        Ok(())
    }

    /// Removes files that a unit has written, unless they changed since or are inputs.
    fn remove_files<'f>(&self, files: impl Iterator<Item = &'f OutputFile>) -> Result<(), Error> {
        for file in files.filter(|file| is_ours(&self.folder, file)) {
            let path = actual_path(&self.folder, &file.path);
            let identity = FileIdentity::read(&path);
            if !identity.is_some_and(|identity| self.inputs.contains(&identity)) {
                remove_file(&path)?;
            }
        }
        Ok(())
    }

    /// Removes files that earlier runs of this unit wrote and this run did not, unless they changed
    /// since, and the folders among its outputs that are empty without them.
    pub(crate) fn remove_stale_files(&self, unit: &UnitRecord) -> Result<(), Error> {
        let outputs: BTreeSet<&PathBuf> = unit.outputs.iter().collect();
        let kept: BTreeSet<&PathBuf> = unit.files.iter().map(|file| &file.path).collect();
        for earlier in self.previous.with_outputs(&unit.outputs) {
            if !earlier.outputs.iter().all(|output| outputs.contains(output)) {
                continue;
            }
            let stale = || earlier.files.iter().filter(|file| !kept.contains(&file.path));
            self.remove_files(stale())?;
            // Also of those that a killed run has removed.
            let paths: Vec<PathBuf> =
                stale().map(|file| actual_path(&self.folder, &file.path)).collect();
            for output in &earlier.outputs {
                remove_emptied(&actual_path(&self.folder, output), &paths);
            }
        }
        Ok(())
    }

    /// Writes the manifest (units done now, units left over, units of earlier batches) and removes
    /// the journal. A shard writes its own record instead.
    ///
    /// The folder stays locked until this is dropped.
    pub(crate) fn close(
        &mut self,
        done: Vec<UnitRecord>,
        left: Vec<UnfinishedUnit>,
    ) -> Result<(), Error> {
        match &self.header {
            Some(heading) => self.close_shard(heading, done, left)?,
            None => self.close_batch(done, left)?,
        }
        self.journal.remove(&self.previous.journal_objects)?;
        // Folders that are not empty stay.
        self.created.iter().for_each(|folder| drop(fs::remove_dir(folder)));
        Ok(())
    }

    fn close_batch(
        &mut self,
        done: Vec<UnitRecord>,
        left: Vec<UnfinishedUnit>,
    ) -> Result<(), Error> {
        /// How many other batches may change the record while this one writes it.
        const MOST_CHANGES: usize = 50;
        /// How often the store may refuse to replace a record that nobody seems to change.
        const MOST_REFUSALS: usize = 5;
        if !is_address(&self.folder) {
            // It is locked.
            return self.try_close_batch(done, left).map(drop);
        }
        let mut unchanged = 0;
        for _ in 0..MOST_CHANGES {
            if self.try_close_batch(done.clone(), left.clone())? {
                return Ok(());
            }
            let before = self.previous.manifest.take();
            self.previous = BatchRecord::to_continue(&self.folder)?;
            unchanged = if self.previous.manifest == before { unchanged + 1 } else { 0 };
            if unchanged == MOST_REFUSALS {
                return Err(Error::refused(format!(
                    "the store refuses to replace this record, which has not changed; with \
                     AWS_CONDITIONAL_PUT=disabled, it is replaced without a condition: {}",
                    self.folder.join(MANIFEST).display()
                )));
            }
        }
        Err(Error::refused(format!(
            "other batches keep changing this record; when they have ended, run again with \
             --resume: {}",
            self.folder.join(MANIFEST).display()
        )))
    }

    /// `false` if a concurrent batch has changed the record, which a store cannot prevent.
    fn try_close_batch(
        &mut self,
        done: Vec<UnitRecord>,
        left: Vec<UnfinishedUnit>,
    ) -> Result<bool, Error> {
        let BatchRecord { units, journal, shards: parts, .. } = &self.previous;
        let of_parts: Vec<&UnitRecord> = parts
            .iter()
            .flat_map(|part| self.published_units(&part.journal).chain(part.recorded_units()))
            .collect();
        let journaled: Vec<&UnitRecord> = self.published_units(journal).collect();
        let left = self.merge_left_over(&done, of_parts.iter().chain(&journaled).copied(), left);
        let earlier = of_parts.into_iter().chain(journaled).chain(units);
        let mut all = newest_per_output(done, earlier);
        all.sort_by(|a, b| a.outputs.cmp(&b.outputs));
        let is_empty = all.is_empty();
        if !self.write(all, left)? {
            return Ok(false);
        }
        // The manifest now holds everything that the shards recorded.
        remove_shards(parts, units, &self.folder)?;
        if is_empty {
            // Nothing was written: what a concurrent batch has begun stays.
            self.previous.journal_objects.clear();
        }
        Ok(true)
    }

    /// The units left over by this batch, and those left over by earlier batches that were not done
    /// since and whose input still exists: those that the manifest lists, unless they are among
    /// `earlier`, and those that killed batches and shards began.
    fn merge_left_over<'u>(
        &'u self,
        done: &'u [UnitRecord],
        earlier: impl Iterator<Item = &'u UnitRecord>,
        left: Vec<UnfinishedUnit>,
    ) -> Vec<UnfinishedUnit> {
        let ours = done.iter().map(|unit| &unit.outputs);
        let mut ours: BTreeSet<PathBuf> =
            ours.chain(left.iter().map(|unit| &unit.outputs)).flatten().cloned().collect();
        let is_other = |unit: &UnfinishedUnit, ours: &BTreeSet<PathBuf>| {
            !unit.outputs.iter().any(|path| ours.contains(path)) && files::exists(&unit.input)
        };
        let BatchRecord { journal, shards, left: listed, .. } = &self.previous;
        let of_parts = shards.iter().flat_map(|part| part.unfinished(&self.folder));
        let killed = of_parts.chain(journal.unfinished(&self.folder));
        let mut all = left;
        all.extend(killed.filter(|unit| is_other(unit, &ours)));
        ours.extend(earlier.flat_map(|unit| &unit.outputs).cloned());
        all.extend(listed.iter().filter(|unit| is_other(unit, &ours)).cloned());
        all.sort_by(|a, b| a.outputs.cmp(&b.outputs));
        // Units without outputs differ by their inputs.
        all.dedup_by(|a, b| {
            a.outputs == b.outputs && (!a.outputs.is_empty() || a.input == b.input)
        });
        all
    }

    fn close_shard(
        &self,
        heading: &ShardHeader,
        done: Vec<UnitRecord>,
        left: Vec<UnfinishedUnit>,
    ) -> Result<(), Error> {
        let BatchRecord { units: merged, shards, .. } = &self.previous;
        let mut ours = shards.iter().filter(|part| part.is_of(heading.shard));
        let earlier = ours
            .clone()
            .flat_map(|part| self.published_units(&part.journal).chain(part.recorded_units()));
        let count = done.len();
        let mut units = newest_per_output(done, earlier);
        let earlier = units.split_off(count);
        let record = ShardRecord::new(heading, (units, left), earlier, merged);
        if record.is_in_manifest(merged) {
            return ours.try_for_each(|part| part.remove(&self.folder));
        }
        record.write(&self.folder, heading.shard)
    }

    /// The units of a journal whose files exist, latest first.
    fn published_units<'u>(
        &'u self,
        journal: &'u JournalRecord,
    ) -> impl Iterator<Item = &'u UnitRecord> {
        journal.units.iter().rev().filter(|unit| unit.has_appeared(&self.folder))
    }

    /// Undoes [`open`](Self::open). Only valid if no unit was appended.
    pub(crate) fn abandon(self) {
        self.created.iter().for_each(|folder| drop(fs::remove_dir(folder)));
    }

    /// Writes the manifest, unless its content stays the same. `false` if it is no longer the one
    /// that was read.
    fn write(&self, units: Vec<UnitRecord>, left: Vec<UnfinishedUnit>) -> Result<bool, Error> {
        if units.is_empty() {
            return Ok(true);
        }
        let manifest = BatchManifest { sluice: VERSION.to_owned(), units, left };
        let text =
            serde_json::to_string_pretty(&manifest).map_err(|e| Error::internal(e.to_string()))?;
        let path = self.folder.join(MANIFEST);
        if is_address(&path) {
            let before = self.previous.manifest.as_deref();
            return match before == Some(text.as_bytes()) {
                true => Ok(true),
                false => replace_object(&path, text.as_bytes(), |now| now == before),
            };
        }
        if files::read(&path).is_ok_and(|before| before == text.as_bytes()) {
            return Ok(true);
        }
        replace_file(&path, text.as_bytes()).map(|()| true)
    }
}

/// A line of a journal.
fn line_of(content: &impl Serialize) -> Result<Vec<u8>, Error> {
    let mut line = serde_json::to_vec(content).map_err(|e| Error::internal(e.to_string()))?;
    line.push(b'\n');
    Ok(line)
}

fn journal_for(folder: &Path, heading: Option<&ShardHeader>) -> Journal {
    let of_part = heading.map(|heading| heading.shard.journal_name());
    Journal::new(folder, of_part.as_deref().unwrap_or(JOURNAL))
}

/// The units done now, then earlier units with other outputs: per output, the latest record wins.
fn newest_per_output<'u>(
    done: Vec<UnitRecord>,
    earlier: impl Iterator<Item = &'u UnitRecord>,
) -> Vec<UnitRecord> {
    let mut taken: BTreeSet<PathBuf> =
        done.iter().flat_map(|unit| &unit.outputs).cloned().collect();
    let mut units = done;
    for unit in earlier {
        if !unit.outputs.iter().any(|output| taken.contains(output)) {
            taken.extend(unit.outputs.iter().cloned());
            units.push(unit.clone());
        }
    }
    units
}

fn is_ours(folder: &Path, file: &OutputFile) -> bool {
    has_recorded_length(folder, file) && has_recorded_hash(folder, file)
}

/// A locked folder. Dropping it unlocks explicitly: a child process that is just being started
/// holds a copy of the file, and with it the lock, until it calls `exec`.
#[derive(Debug)]
struct FolderLock(File);

impl Drop for FolderLock {
    fn drop(&mut self) {
        // Fails only where locks are not supported.
        drop(self.0.unlock());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::RunEnd;

    #[test]
    fn a_recorder_continues_the_previous_record() {
        let folder = tempfile::tempdir().unwrap();
        let unit = UnitRecord {
            pipeline: "p".into(),
            name: None,
            sluice: VERSION.into(),
            plugins: Vec::new(),
            inputs: Vec::new(),
            outputs: vec!["a".into()],
            files: Vec::new(),
            ended: RunEnd::default(),
        };
        let mut first = BatchRecorder::open(folder.path(), None).unwrap();
        assert!(BatchRecorder::open(folder.path(), None).is_err());
        // A child process that is being started holds such a copy.
        let _copy = first._folder.as_ref().unwrap().0.try_clone().unwrap();
        first.close(vec![unit.clone()], Vec::new()).unwrap();
        drop(first);
        let second = BatchRecorder::open(folder.path(), None).unwrap();
        assert_eq!(second.previous().units, [unit]);
    }
}
