//! The journal of a batch: a line for each unit, before its files appear. A file that grows; in an object store, where
//! nothing grows, an object for each line.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use sluice_core::output::{remove_objects, replace_file, sync_folder};
use sluice_core::store::is_address;
use sluice_core::{Error, files};

use super::record::JOURNAL;

/// The journal in a folder, to be added to. Made when the first line is.
pub(super) struct Journal {
    /// Where it is.
    path: PathBuf,
    kind: Kind,
}

enum Kind {
    File(Mutex<Option<File>>),
    Objects(Lines),
}

/// Lines that are objects.
struct Lines {
    /// Sorts them behind those of earlier batches, and apart from those of one beside this.
    prefix: String,
    next: AtomicU64,
}

impl Journal {
    /// The journal of this name.
    pub(super) fn of(folder: &Path, name: &str) -> Self {
        let kind = if is_address(folder) {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let prefix = format!("{:016x}-{}", since.as_micros(), std::process::id());
            Kind::Objects(Lines { prefix, next: AtomicU64::new(0) })
        } else {
            Kind::File(Mutex::default())
        };
        Self { path: folder.join(name), kind }
    }

    /// Makes it, so that it can be seen that a batch was begun. Called again, does nothing.
    pub(super) fn begin(&self) -> Result<(), Error> {
        match &self.kind {
            Kind::File(file) => self.file(file).map(drop),
            Kind::Objects(lines) if lines.next.load(Ordering::Relaxed) == 0 => self.put(lines, b""),
            Kind::Objects(_) => Ok(()),
        }
    }

    /// Adds a line, which has its end, so that it lasts.
    pub(super) fn add(&self, line: &[u8]) -> Result<(), Error> {
        match &self.kind {
            Kind::File(file) => {
                let mut file = self.file(file)?;
                let Some(file) = file.as_mut() else { return Ok(()) };
                append(file, line).map_err(|e| Error::io("write", &self.path, e))
            }
            Kind::Objects(lines) => self.put(lines, line),
        }
    }

    fn put(&self, lines: &Lines, line: &[u8]) -> Result<(), Error> {
        let number = lines.next.fetch_add(1, Ordering::Relaxed);
        replace_file(&self.path.join(format!("{}-{number:08}", lines.prefix)), line)
    }

    fn file<'f>(
        &self,
        file: &'f Mutex<Option<File>>,
    ) -> Result<MutexGuard<'f, Option<File>>, Error> {
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        if file.is_none() {
            *file = Some(open(&self.path).map_err(|e| Error::io("open", &self.path, e))?);
            self.path.parent().into_iter().for_each(sync_folder);
        }
        Ok(file)
    }

    /// Removes it: all that it says is in the manifest.
    pub(super) fn remove(&self) -> Result<(), Error> {
        if let Some(lines) = files::objects_below(&self.path)? {
            return remove_objects(lines.into_iter().map(|line| line.path).collect());
        }
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Error::io("remove", &self.path, error));
            }
            Ok(()) => self.path.parent().into_iter().for_each(sync_folder),
            Err(_) => {}
        }
        Ok(())
    }
}

/// The lines of the journal in a folder; nothing if there is none.
pub(super) fn read(folder: &Path) -> Result<Option<Vec<u8>>, Error> {
    let path = folder.join(JOURNAL);
    let Some(lines) = files::objects_below(&path)? else { return files::read_if_exists(&path) };
    if lines.is_empty() {
        return Ok(None);
    }
    let mut all = Vec::new();
    for line in lines {
        // Another batch may be done with it by now.
        all.extend(files::read_if_exists(&line.path)?.unwrap_or_default());
    }
    Ok(Some(all))
}

/// Adds a line to a file. One that was not written whole must not be glued to the next one.
fn append(file: &mut File, line: &[u8]) -> io::Result<()> {
    let end = file.stream_position();
    let written = file.write_all(line).and_then(|()| file.sync_data());
    if written.is_err()
        && let Ok(end) = end
    {
        drop(file.set_len(end).and_then(|()| file.seek(SeekFrom::Start(end))));
    }
    written
}

/// Opens a journal to add to it, behind its last whole line.
fn open(path: &Path) -> io::Result<File> {
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
