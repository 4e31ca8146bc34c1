//! The journal of a batch: a first line with what the batch is about to do, then one line per unit,
//! written before the unit's files appear. On disk it is one growing file; in an object store,
//! where nothing can grow, each line is an object.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use sluice_io::files;
use sluice_io::output::{remove_objects, replace_file, sync_folder};
use sluice_io::store::is_address;
use sluice_model::{Error, Input};

/// The journal of an unfinished batch: one JSON object per line.
pub const JOURNAL: &str = "_units.jsonl";

/// An append-only journal in a folder.
pub(super) struct Journal {
    /// Path of the file, or key prefix of the objects.
    path: PathBuf,
    storage: JournalStorage,
}

enum JournalStorage {
    File(Mutex<Option<File>>),
    Objects(JournalObjects),
}

/// Journal lines stored as objects.
struct JournalObjects {
    /// Sorts by its bytes after the lines of earlier batches, and differs from that of a concurrent
    /// one.
    prefix: String,
    next: AtomicU64,
    has_begun: Mutex<bool>,
}

impl JournalObjects {
    fn name(&self, number: u64) -> String {
        format!("{}-{number:08}", self.prefix)
    }
}

impl Journal {
    /// The journal with this file name.
    pub(super) fn new(folder: &Path, name: &str) -> Self {
        let storage = if is_address(folder) {
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let prefix = format!("{:016x}-{}", since.as_micros(), std::process::id());
            let next = AtomicU64::new(0);
            JournalStorage::Objects(JournalObjects { prefix, next, has_begun: Mutex::default() })
        } else {
            JournalStorage::File(Mutex::default())
        };
        Self { path: folder.join(name), storage }
    }

    /// Creates the journal, which marks the batch as started. Idempotent. `heading` makes the first
    /// line, which includes its newline.
    pub(super) fn begin(
        &self,
        heading: impl FnOnce() -> Result<Vec<u8>, Error>,
    ) -> Result<(), Error> {
        match &self.storage {
            JournalStorage::File(file) => {
                let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
                if file.is_none() {
                    let heading = heading()?;
                    let mut opened = open(&self.path).map_err(|e| not_opened(&self.path, e))?;
                    let begun = append(&mut opened, &heading);
                    begun.map_err(|e| Error::io("write", &self.path, e))?;
                    *file = Some(opened);
                    self.path.parent().into_iter().for_each(sync_folder);
                }
                Ok(())
            }
            JournalStorage::Objects(lines) => {
                let mut begun = lines.has_begun.lock().unwrap_or_else(PoisonError::into_inner);
                if !*begun {
                    self.put(lines, &heading()?)?;
                    *begun = true;
                }
                Ok(())
            }
        }
    }

    /// Appends a line, which includes its newline, and syncs it. The journal must exist.
    pub(super) fn append(&self, line: &[u8]) -> Result<(), Error> {
        match &self.storage {
            JournalStorage::File(file) => {
                let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
                let begun = file.as_mut().ok_or_else(|| Error::internal("no journal"));
                append(begun?, line).map_err(|e| Error::io("write", &self.path, e))
            }
            JournalStorage::Objects(lines) => self.put(lines, line),
        }
    }

    fn put(&self, lines: &JournalObjects, line: &[u8]) -> Result<(), Error> {
        let number = lines.next.fetch_add(1, Ordering::Relaxed);
        replace_file(&self.path.join(lines.name(number)), line)
    }

    /// Removes the journal, once the manifest holds its content. In a store, these are the lines of
    /// this batch, and those that it has `read`: a concurrent batch needs its others.
    pub(super) fn remove(&self, read: &[PathBuf]) -> Result<(), Error> {
        if let JournalStorage::Objects(lines) = &self.storage {
            let ours = 0..lines.next.load(Ordering::Relaxed);
            let ours = ours.map(|number| self.path.join(lines.name(number)));
            let all: BTreeSet<PathBuf> = ours.chain(read.iter().cloned()).collect();
            return remove_objects(all.into_iter().collect());
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

/// The lines of a journal.
#[derive(Debug, Default)]
pub(super) struct JournalText {
    pub(super) bytes: Vec<u8>,
    /// The objects that they were read from, if it is in a store.
    pub(super) objects: Vec<PathBuf>,
}

/// The journal in a folder; `None` if there is none.
pub(super) fn read(folder: &Path) -> Result<Option<JournalText>, Error> {
    let path = folder.join(JOURNAL);
    let Some(lines) = files::objects_below(&path)? else {
        let bytes = files::read_if_exists(&path)?;
        return Ok(bytes.map(|bytes| JournalText { bytes, objects: Vec::new() }));
    };
    if lines.is_empty() {
        return Ok(None);
    }
    let mut all = JournalText::default();
    for line in in_order(lines) {
        // A concurrent batch may have removed it by now.
        all.bytes.extend(files::read_if_exists(&line.path)?.unwrap_or_default());
        all.objects.push(line.path);
    }
    Ok(Some(all))
}

/// The lines in the order in which they were written. Their names begin with times in base 16, in
/// which a run of decimal digits is no number.
fn in_order(mut lines: Vec<Input>) -> Vec<Input> {
    lines.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    lines
}

/// Appends a line to a file, and truncates a partial write so that the next line starts on its own.
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

/// Opens a journal for appending, after its last complete line.
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

/// The error of opening a file of the record for writing. Where there is none yet, it names the
/// folder, which the user knows.
pub(super) fn not_opened(path: &Path, error: io::Error) -> Error {
    use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    match (error.kind(), path.parent()) {
        (PermissionDenied | ReadOnlyFilesystem, Some(folder)) if !path.exists() => {
            Error::io("write to the folder", folder, error)
                .with_detail("make it writable, or choose another folder for the outputs")
        }
        _ => Error::io("open", path, error),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn lines_of_later_batches_follow_those_of_earlier_ones() {
        let names = [
            "000654097fffffff-12-00000000",
            "000654097fffffff-12-00000001",
            "00065409f0000000-7-00000000",
            "0006540a00000000-7-00000000",
            "0006540a00000000-7-00000010",
        ];
        let input = |name: &&str| Input { path: Path::new("s3://b/j").join(name), bytes: None };
        let mut found: Vec<Input> = names.iter().map(input).collect();
        found.reverse();
        let sorted = in_order(found).into_iter().map(|line| line.path);
        assert!(sorted.eq(names.iter().map(input).map(|line| line.path)));
    }

    #[test]
    fn the_first_line_in_a_store_is_made_by_one_unit_while_others_wait() {
        let journal = Journal::new(Path::new("s3://bucket/folder"), JOURNAL);
        let is_made = AtomicBool::new(false);
        let begin = || {
            journal.begin(|| {
                assert!(!is_made.swap(true, Ordering::SeqCst));
                thread::sleep(Duration::from_millis(20));
                is_made.store(false, Ordering::SeqCst);
                Err(Error::refused("nothing is written"))
            })
        };
        thread::scope(|scope| {
            let begun: Vec<_> = (0..4).map(|_| scope.spawn(begin)).collect();
            begun.into_iter().for_each(|begun| drop(begun.join().unwrap().unwrap_err()));
        });
    }
}
