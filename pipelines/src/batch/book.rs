//! Keeps the record of a batch while it runs: a journal, and the manifest at the end.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sluice_core::Error;
use sluice_core::output::{MANIFEST, remove_unfinished_manifest, replace_file, sync_folder};

use super::record::{BatchManifest, JOURNAL, Record, UnitRecord, has_length, is_as_written};
use crate::manifest::{OutputFile, VERSION};

/// The record of a batch that is going on. Only one batch at a time has that of a folder.
pub(crate) struct Book {
    folder: PathBuf,
    before: Record,
    /// Folders that were made for it, innermost first; removed again if nothing comes into them.
    made: Vec<PathBuf>,
    journal: Mutex<Option<File>>,
    /// Holds the lock.
    _folder: Option<File>,
}

impl Book {
    /// Goes on with the record `before` of a folder, which is made if it is not there.
    ///
    /// `Err` if another batch is going on there.
    pub(crate) fn open(folder: &Path, before: Record) -> Result<Self, Error> {
        let here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let missing: Vec<PathBuf> = here
            .ancestors()
            .take_while(|f| !f.as_os_str().is_empty() && !f.exists())
            .map(Path::to_owned)
            .collect();
        fs::create_dir_all(here).map_err(|e| Error::io("create", here, e))?;
        // Where folders cannot be opened or locked, two batches at once are only not noticed.
        let lock = File::open(here).ok();
        if let Some(Err(TryLockError::WouldBlock)) = lock.as_ref().map(File::try_lock) {
            return Err(Error::refused(format!(
                "another batch is being written to this folder; wait for it to end: {}",
                here.display()
            )));
        }
        Ok(Self {
            folder: here.to_owned(),
            before,
            made: missing,
            journal: Mutex::default(),
            _folder: lock,
        })
    }

    /// What was there before.
    pub(crate) fn before(&self) -> &Record {
        &self.before
    }

    /// Begins the journal, so that it can be seen that a batch was begun. Called again, does nothing.
    pub(crate) fn begin(&self) -> Result<(), Error> {
        self.journal_file().map(drop)
    }

    /// Adds a unit to the journal, so that it lasts. To be called before its files appear: what is found
    /// of them after a kill is then known.
    pub(crate) fn note(&self, unit: &UnitRecord) -> Result<(), Error> {
        let mut line = serde_json::to_vec(unit).map_err(|e| Error::broken(e.to_string()))?;
        line.push(b'\n');
        let mut journal = self.journal_file()?;
        let Some(file) = journal.as_mut() else { return Ok(()) };
        // A line that was not written whole must not be glued to the next one.
        let end = file.stream_position();
        let written = file.write_all(&line).and_then(|()| file.sync_data());
        if written.is_err()
            && let Ok(end) = end
        {
            drop(file.set_len(end).and_then(|()| file.seek(SeekFrom::Start(end))));
        }
        written.map_err(|e| Error::io("write", self.journal_path(), e))
    }

    fn journal_path(&self) -> PathBuf {
        self.folder.join(JOURNAL)
    }

    fn journal_file(&self) -> Result<MutexGuard<'_, Option<File>>, Error> {
        let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        if journal.is_none() {
            let path = self.journal_path();
            *journal = Some(open_journal(&path).map_err(|e| Error::io("open", &path, e))?);
            sync_folder(&self.folder);
        }
        Ok(journal)
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
                fs::remove_file(&path).map_err(|e| Error::io("remove", path, e))?;
            }
        }
        Ok(())
    }

    /// Writes the manifest: the units that are done now, and what was there before beside them. Then the
    /// journal goes.
    pub(crate) fn close(self, done: Vec<UnitRecord>) -> Result<(), Error> {
        // Of two records of one thing the later counts, unless its files never appeared.
        let there =
            |unit: &&UnitRecord| unit.files.iter().all(|file| has_length(&self.folder, file));
        let earlier = self.before.journal.iter().rev().filter(there).chain(&self.before.units);
        let (mut units, mut taken) = (Vec::new(), BTreeSet::new());
        for unit in done.iter().chain(earlier) {
            if !unit.outputs.iter().any(|output| taken.contains(output)) {
                taken.extend(unit.outputs.iter().cloned());
                units.push(unit.clone());
            }
        }
        units.sort_by(|a, b| a.outputs.cmp(&b.outputs));
        self.write(units)?;
        match fs::remove_file(self.journal_path()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Error::io("remove", self.journal_path(), error));
            }
            Ok(()) => sync_folder(&self.folder),
            Err(_) => {}
        }
        // Those that hold something stay.
        self.made.iter().for_each(|folder| drop(fs::remove_dir(folder)));
        Ok(())
    }

    /// Leaves everything as it was before; to be called where nothing was noted.
    pub(crate) fn abandon(self) {
        self.made.iter().for_each(|folder| drop(fs::remove_dir(folder)));
    }

    /// Leaves the manifest alone where nothing has changed.
    fn write(&self, units: Vec<UnitRecord>) -> Result<(), Error> {
        remove_unfinished_manifest(&self.folder);
        if units.is_empty() {
            return Ok(());
        }
        let manifest = BatchManifest { sluice: VERSION.to_owned(), units };
        let text =
            serde_json::to_string_pretty(&manifest).map_err(|e| Error::broken(e.to_string()))?;
        let path = self.folder.join(MANIFEST);
        if fs::read(&path).is_ok_and(|before| before == text.as_bytes()) {
            return Ok(());
        }
        replace_file(&path, text.as_bytes())
    }
}

fn is_ours(folder: &Path, file: &OutputFile) -> bool {
    has_length(folder, file) && is_as_written(folder, file)
}

/// Opens a journal to add to it, behind its last whole line.
fn open_journal(path: &Path) -> io::Result<File> {
    let whole = match fs::read(path) {
        Ok(text) => text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1),
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(error),
    };
    let mut file = OpenOptions::new().create(true).write(true).truncate(false).open(path)?;
    file.set_len(whole as u64)?;
    file.seek(SeekFrom::End(0))?;
    Ok(file)
}
