//! Many small files below one folder: written whole, one after another, into a hidden room in the folder, and
//! given their final names all together. Holds about a hundred bytes of each, no descriptor, and syncs them
//! together.
//!
//! The room is a folder named as temporary files are, locked while it is used, so it is litter when its run is
//! killed. [`OutputFile`](super::OutputFile) is for the few large outputs of a run.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::faults::{OutputStep, ask, write_all};
use super::litter::live;
use super::objects::{Upload, temporary_dir_for};
use super::renames::{RenameLog, appeared_error, publish_error};
use super::staging::make_below;
use super::{Outputs, Overwrite, PublishedFile, folder_of, remove_any};
use crate::Error;
use crate::store::is_address;

/// Many small files in the making. Dropped without [`finish`](Self::finish), none will be published.
#[derive(Debug)]
pub struct OutputFiles {
    outputs: Arc<Outputs>,
    folder: PathBuf,
    /// The folder that they are put into: mostly that one.
    at: PathBuf,
    /// Where they are until they are published.
    staging: PathBuf,
    /// Tells other runs that the room is in use.
    lock: File,
    files: FileTable,
    /// Whether all files that were to be written were.
    whole: bool,
}

/// What is known of many files, in few bytes each.
#[derive(Debug, Default)]
struct FileTable {
    /// Their names, one behind the other.
    names: String,
    each: Vec<FileRecord>,
    /// One a file, where hashes are worked out.
    hashes: Vec<[u8; blake3::OUT_LEN]>,
}

#[derive(Clone, Copy, Debug)]
struct FileRecord {
    name_end: usize,
    rows: u64,
    bytes: u64,
}

/// Many files that are complete.
#[derive(Debug)]
pub(super) struct StagedFolder {
    folder: PathBuf,
    /// The folder that they are put into: mostly that one.
    at: PathBuf,
    /// Where they are now; nothing once they are published.
    staging: Option<PathBuf>,
    files: FileTable,
    replaces: bool,
    /// Held until they are published.
    _lock: File,
}

/// Up to so many files are synced one by one; more by syncing their whole file system, which may have other
/// things to write.
const SYNCED_EACH: usize = 256;

impl Outputs {
    /// Makes room for many small files below `folder`, which was declared by [`folder`](Self::folder).
    pub fn many(self: &Arc<Self>, folder: &Path) -> Result<OutputFiles, Error> {
        let folder = self.actual_path(folder);
        let at = self.folder_at(&folder)?;
        self.make_folder(&at)?;
        // Two that write there would take each other's names.
        self.claim(&at)?;
        let (room, lock) = self.temporary_folder(&temporary_dir_for(&at))?;
        self.state().open.insert(room.clone(), room.clone());
        let (outputs, files) = (Arc::clone(self), FileTable::default());
        Ok(OutputFiles { outputs, folder, at, staging: room, lock, files, whole: true })
    }
}

impl OutputFiles {
    /// Writes a file that will be published as `name`, a path below the folder, and is said to hold `rows`.
    ///
    /// `Err` if there is a file of that name already, or the name is no plain path below the folder.
    pub fn write(&mut self, name: &str, bytes: &[u8], rows: u64) -> Result<(), Error> {
        let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
        if name.is_empty() || !Path::new(name).components().all(is_plain) {
            return Err(Error::internal(format!("`{name}` is no name for a file in a folder")));
        }
        let path = self.staging.join(name);
        let faults = self.outputs.faults.as_deref();
        let created = ask(faults, OutputStep::Create).and_then(|()| create(&self.staging, &path));
        let written = created.and_then(|mut file| write_all(faults, &mut file, bytes));
        self.whole &= written.is_ok();
        written.map_err(|e| Error::io("write", self.folder.join(name), e))?;
        self.files.names.push_str(name);
        let (name_end, bytes_len) = (self.files.names.len(), bytes.len() as u64);
        self.files.each.push(FileRecord { name_end, rows, bytes: bytes_len });
        if self.outputs.hash {
            self.files.hashes.push(*blake3::hash(bytes).as_bytes());
        }
        self.outputs.written.fetch_add(bytes_len, Ordering::Relaxed);
        Ok(())
    }

    /// Completes them: they will be published with the other outputs.
    pub fn finish(self) -> Result<(), Error> {
        let Self { outputs, folder, at, staging: room, lock, files, whole } = self;
        if !whole {
            let what = "a file before could not be written";
            return Err(Error::io("complete", &folder, io::Error::other(what)));
        }
        let asked = || ask(outputs.faults.as_deref(), OutputStep::Sync);
        let synced = match files.each.len() {
            0..=SYNCED_EACH => files.names().try_for_each(|name| {
                asked().and_then(|()| File::open(room.join(name))?.sync_all())
            }),
            _ => asked().and_then(|()| rustix::fs::syncfs(&lock).map_err(io::Error::from)),
        };
        synced.map_err(|e| Error::io("write", &folder, e))?;
        let replaces = outputs.overwrite != Overwrite::Refuse;
        let mut state = outputs.state();
        state.open.remove(&room);
        state.staged_folders.push(StagedFolder {
            folder,
            at,
            staging: Some(room),
            files,
            replaces,
            _lock: lock,
        });
        Ok(())
    }
}

/// Opens a new file somewhere below a folder that is there; those between may have to be made.
fn create(room: &Path, path: &Path) -> io::Result<File> {
    let open = || OpenOptions::new().write(true).create_new(true).open(path);
    match open() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make_below(room, folder_of(path))?;
            open()
        }
        other => other,
    }
}

impl FileTable {
    fn names(&self) -> impl Iterator<Item = &str> {
        let mut start = 0;
        self.each.iter().map(move |known| {
            let name = self.names.get(start..known.name_end).unwrap_or_default();
            start = known.name_end;
            name
        })
    }
}

impl StagedFolder {
    /// The files as they will be.
    pub(super) fn files(&self) -> impl Iterator<Item = PublishedFile> {
        let FileTable { each, hashes, .. } = &self.files;
        self.files.names().zip(each).enumerate().map(|(n, (name, known))| PublishedFile {
            path: self.folder.join(name),
            rows: known.rows,
            bytes: known.bytes,
            blake3: hashes.get(n).map(|hash| blake3::Hash::from_bytes(*hash).to_hex().to_string()),
        })
    }

    /// Where each of the files is put.
    pub(super) fn places(&self) -> impl Iterator<Item = PathBuf> {
        self.files.names().map(|name| self.at.join(name))
    }

    /// Where its files are until they are published.
    pub(super) fn path(&self) -> Option<&PathBuf> {
        self.staging.as_ref()
    }

    /// What is to be put into a store.
    pub(super) fn uploads(&self) -> Vec<Upload> {
        let Some(room) = self.staging.as_ref().filter(|_| is_address(&self.at)) else {
            return Vec::new();
        };
        let upload = |name: &str| Upload {
            from: room.join(name),
            to: self.at.join(name),
            replaces: self.replaces,
        };
        self.files.names().map(upload).collect()
    }

    /// Gives the files their final names: whole folders at once, where there are none of their names. What goes
    /// into a store stays.
    pub(super) fn publish(&self, names: &mut RenameLog<'_>) -> Result<(), Error> {
        if is_address(&self.at) {
            return Ok(());
        }
        self.staging.as_ref().map_or(Ok(()), |room| move_all(room, &self.at, self.replaces, names))
    }

    /// Removes what is left once the files have their names: empty folders, and what they replaced.
    pub(super) fn discard(&mut self) {
        if let Some(room) = self.staging.take() {
            remove_any(&room);
            live().remove(&room);
        }
    }
}

/// Moves what is in a folder into another one.
fn move_all(
    from: &Path,
    to: &Path,
    replaces: bool,
    given: &mut RenameLog<'_>,
) -> Result<(), Error> {
    let fail = |e| Error::io("publish", to, e);
    // All names first: what is moved away while a folder is read may make it skip others.
    let names = fs::read_dir(from).and_then(|entries| {
        entries.map(|entry| entry.map(|entry| entry.file_name())).collect::<io::Result<Vec<_>>>()
    });
    for name in names.map_err(fail)? {
        let (old, new) = (from.join(&name), to.join(&name));
        match given.rename_new(&old, &new) {
            Ok(()) => {}
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(Error::io("publish", new, error));
            }
            Err(_) if old.is_dir() && new.is_dir() => move_all(&old, &new, replaces, given)?,
            Err(_) if replaces => {
                given.swap(&old, &new).map_err(|error| publish_error(&new, error))?;
            }
            Err(_) => return Err(appeared_error(&new)),
        }
    }
    Ok(())
}
