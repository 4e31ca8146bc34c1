//! Keeps the record of a batch while it runs: a journal, and the manifest at the end.

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sluice_core::files::FileIdentity;
use sluice_core::output::{MANIFEST, remove_file, remove_unfinished_manifest, replace_file};
use sluice_core::store::is_address;
use sluice_core::{Error, files};

use super::journal::Journal;
use super::record::{
    BatchManifest, JOURNAL, Record, UnitLeft, UnitRecord, has_length, is_as_written,
};
use super::shard::{Heading, Locked, Part, ShardRecord};
use crate::manifest::{OutputFile, VERSION};

/// The record of a batch that is going on. Only one batch at a time has that of a folder; of one that is run in
/// parts, each has its own.
pub(crate) struct Book {
    folder: PathBuf,
    before: Record,
    /// Folders that were made for it, innermost first; removed again if nothing comes into them.
    made: Vec<PathBuf>,
    journal: Journal,
    /// What it is a part of, if it is one.
    heading: Option<Heading>,
    /// What is read, and never removed.
    inputs: Arc<BTreeSet<FileIdentity>>,
    /// Hold the locks.
    _folder: Option<FolderLock>,
    _shard: Option<Locked>,
}

impl Book {
    /// Goes on with the record of a folder, which is made if it is not there.
    ///
    /// `Err` if another batch is going on there, or what is there is no record of a batch.
    pub(crate) fn open(folder: &Path, heading: Option<Heading>) -> Result<Self, Error> {
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
        // Where folders cannot be opened or locked, two batches at once are only not noticed.
        let lock = File::open(here).ok();
        // Parts of a batch go beside each other, but not beside a whole one.
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
        Ok(Self {
            folder: here.to_owned(),
            // Now that nobody writes it: a batch that ended a moment ago is in it.
            before: Record::to_continue(folder)?,
            made: missing,
            journal: journal_of(here, heading.as_ref()),
            heading,
            inputs: Arc::default(),
            _folder: lock.map(FolderLock),
            _shard: shard,
        })
    }

    /// In an object store nothing has to be made, and nothing can be locked: two batches at once are only not
    /// noticed.
    fn unlocked(folder: &Path, heading: Option<Heading>) -> Result<Self, Error> {
        if heading.is_some() {
            return Err(Error::refused(format!(
                "a batch can be run in parts only where its outputs are files: {}",
                folder.display()
            )));
        }
        let before = Record::to_continue(folder)?;
        let (folder, journal) = (folder.to_owned(), journal_of(folder, None));
        let (made, _folder, _shard) = (Vec::new(), None, None);
        let inputs = Arc::default();
        Ok(Self { folder, before, made, journal, heading, inputs, _folder, _shard })
    }

    /// The same record, of a batch that reads these files.
    pub(super) fn sparing(mut self, inputs: Arc<BTreeSet<FileIdentity>>) -> Self {
        self.inputs = inputs;
        self
    }

    /// What was there before.
    pub(crate) fn before(&self) -> &Record {
        &self.before
    }

    /// Begins the journal, so that it can be seen that a batch was begun. Called again, does nothing.
    pub(crate) fn begin(&self) -> Result<(), Error> {
        self.journal.begin()
    }

    /// Adds a unit to the journal, so that it lasts. To be called before its files appear: what is found
    /// of them after a kill is then known.
    pub(crate) fn note(&self, unit: &UnitRecord) -> Result<(), Error> {
        let mut line = serde_json::to_vec(unit).map_err(|e| Error::internal(e.to_string()))?;
        line.push(b'\n');
        self.journal.add(&line)
    }

    /// Removes what earlier runs of the same unit wrote and this one did not, if it is still as it was
    /// written.
    pub(crate) fn clear(&self, unit: &UnitRecord) -> Result<(), Error> {
        let outputs: BTreeSet<&PathBuf> = unit.outputs.iter().collect();
        let kept: BTreeSet<&PathBuf> = unit.files.iter().map(|file| &file.path).collect();
        for earlier in self.before.of(&unit.outputs) {
            if !earlier.outputs.iter().all(|output| outputs.contains(output)) {
                continue;
            }
            let stale = earlier.files.iter().filter(|file| !kept.contains(&file.path));
            for file in stale.filter(|file| is_ours(&self.folder, file)) {
                let path = self.folder.join(&file.path);
                if !FileIdentity::read(&path)
                    .is_some_and(|identity| self.inputs.contains(&identity))
                {
                    remove_file(&path)?;
                }
            }
        }
        Ok(())
    }

    /// Writes the manifest: the units that are done now, those that are left over, and what was there before beside
    /// them. Then the journal goes. Of a part, its own record is written.
    pub(crate) fn close(self, done: Vec<UnitRecord>, left: Vec<UnitLeft>) -> Result<(), Error> {
        match &self.heading {
            Some(heading) => self.close_part(heading, done)?,
            None => self.close_whole(done, left)?,
        }
        self.journal.remove()?;
        // Those that hold something stay.
        self.made.iter().for_each(|folder| drop(fs::remove_dir(folder)));
        Ok(())
    }

    fn close_whole(&self, done: Vec<UnitRecord>, left: Vec<UnitLeft>) -> Result<(), Error> {
        let Record { units, journal, parts, .. } = &self.before;
        let left = self.still_left(&done, left);
        let of_parts =
            parts.iter().flat_map(|part| self.there(&part.journal).chain(part.recorded()));
        let earlier = of_parts.chain(self.there(journal)).chain(units);
        let mut units = apart(done, earlier);
        units.sort_by(|a, b| a.outputs.cmp(&b.outputs));
        self.write(units, left)?;
        // All that they say is in it.
        parts.iter().try_for_each(|part| part.remove(&self.folder))
    }

    /// What is left over now, and what an earlier batch left over that this one had nothing to do with, as far as it
    /// can still be done: an input that is gone is missed by nobody.
    fn still_left(&self, done: &[UnitRecord], left: Vec<UnitLeft>) -> Vec<UnitLeft> {
        let ours = done.iter().map(|unit| &unit.outputs);
        let ours: BTreeSet<&PathBuf> =
            ours.chain(left.iter().map(|unit| &unit.outputs)).flatten().collect();
        let is_other = |unit: &&UnitLeft| !unit.outputs.iter().any(|path| ours.contains(path));
        let is_there = |unit: &&UnitLeft| files::exists(&unit.input);
        let earlier = self.before.left.iter().filter(is_other).filter(is_there);
        let earlier: Vec<UnitLeft> = earlier.cloned().collect();
        let mut all: Vec<UnitLeft> = left.into_iter().chain(earlier).collect();
        all.sort_by(|a, b| a.outputs.cmp(&b.outputs));
        all
    }

    fn close_part(&self, heading: &Heading, done: Vec<UnitRecord>) -> Result<(), Error> {
        let ours = |part: &&Part| part.is(heading.shard);
        let ours = self.before.parts.iter().filter(ours);
        let earlier = ours.flat_map(|part| self.there(&part.journal).chain(part.recorded()));
        let count = done.len();
        let mut units = apart(done, earlier);
        let earlier = units.split_off(count);
        let record = ShardRecord::of(heading, units, earlier);
        let text =
            serde_json::to_string_pretty(&record).map_err(|e| Error::internal(e.to_string()))?;
        replace_file(&self.folder.join(heading.shard.record()), text.as_bytes())
    }

    /// The units of a journal whose files have appeared, the latest first.
    fn there<'u>(&'u self, journal: &'u [UnitRecord]) -> impl Iterator<Item = &'u UnitRecord> {
        let there =
            |unit: &&UnitRecord| unit.files.iter().all(|file| has_length(&self.folder, file));
        journal.iter().rev().filter(there)
    }

    /// Leaves everything as it was before; to be called where nothing was noted.
    pub(crate) fn abandon(self) {
        self.made.iter().for_each(|folder| drop(fs::remove_dir(folder)));
    }

    /// Leaves the manifest alone where nothing has changed.
    fn write(&self, units: Vec<UnitRecord>, left: Vec<UnitLeft>) -> Result<(), Error> {
        remove_unfinished_manifest(&self.folder);
        if units.is_empty() {
            return Ok(());
        }
        let manifest = BatchManifest { sluice: VERSION.to_owned(), units, left };
        let text =
            serde_json::to_string_pretty(&manifest).map_err(|e| Error::internal(e.to_string()))?;
        let path = self.folder.join(MANIFEST);
        if files::read(&path).is_ok_and(|before| before == text.as_bytes()) {
            return Ok(());
        }
        replace_file(&path, text.as_bytes())
    }
}

fn journal_of(folder: &Path, heading: Option<&Heading>) -> Journal {
    let of_part = heading.map(|heading| heading.shard.journal());
    Journal::of(folder, of_part.as_deref().unwrap_or(JOURNAL))
}

/// What is done now, and then what was done earlier of other outputs. Of two records of one thing the later counts.
fn apart<'u>(
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
    has_length(folder, file) && is_as_written(folder, file)
}

/// A folder that is locked. It is unlocked in any case when this is dropped: a program that is being started at that
/// moment has a copy of the file, with the lock, until it runs.
#[derive(Debug)]
struct FolderLock(File);

impl Drop for FolderLock {
    fn drop(&mut self) {
        // Where locks do not work, there was none.
        drop(self.0.unlock());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_book_goes_on_with_what_the_one_before_it_has_recorded() {
        let folder = tempfile::tempdir().unwrap();
        let unit = UnitRecord {
            pipeline: "p".into(),
            name: None,
            sluice: VERSION.into(),
            plugins: Vec::new(),
            inputs: Vec::new(),
            outputs: vec!["a".into()],
            files: Vec::new(),
            exit: 0,
            partial: false,
        };
        let first = Book::open(folder.path(), None).unwrap();
        assert!(Book::open(folder.path(), None).is_err());
        // What a program has that is being started meanwhile.
        let _copy = first._folder.as_ref().unwrap().0.try_clone().unwrap();
        first.close(vec![unit.clone()], Vec::new()).unwrap();
        let second = Book::open(folder.path(), None).unwrap();
        assert_eq!(second.before().units, [unit]);
    }
}
