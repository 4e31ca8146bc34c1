//! Many small files below one folder: written one after another to a hidden staging directory in
//! the folder, and renamed together. Needs about a hundred bytes of memory per file and no
//! descriptor, and syncs them together.
//!
//! The staging directory is named like a temporary file and locked while in use, so it is
//! recognized as litter when its run is killed. Use [`OutputFile`](super::OutputFile) for the few
//! large outputs of a run.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::faults::{OutputStep, flush, inject, write_all};
use super::published_objects::Upload;
use super::renames::{RenameLog, appeared_error, publish_error};
use super::staging::make_below;
use super::temporary_names::temporary_dir_for;
use super::{Outputs, Overwrite, PublishedFile, folder_of, remove_any};
use crate::Error;
use crate::store::is_address;

/// Many small files that are being written. If it is dropped without [`finish`](Self::finish), none
/// is published.
#[derive(Debug)]
pub struct OutputFiles {
    outputs: Arc<Outputs>,
    folder: PathBuf,
    /// The folder they are renamed into: mostly the same.
    at: PathBuf,
    /// The staging directory.
    staging: PathBuf,
    /// Locks the staging directory.
    lock: File,
    files: FileTable,
    /// Whether all writes succeeded.
    whole: bool,
}

/// A compact table of many files.
#[derive(Debug, Default)]
struct FileTable {
    /// Their concatenated names.
    names: String,
    each: Vec<FileRecord>,
    /// One per file, if hashes are computed.
    hashes: Vec<[u8; blake3::OUT_LEN]>,
}

#[derive(Clone, Copy, Debug)]
struct FileRecord {
    name_end: usize,
    rows: u64,
    bytes: u64,
}

/// A staging directory of complete files.
#[derive(Debug)]
pub(super) struct StagedFolder {
    folder: PathBuf,
    /// The folder they are renamed into: mostly the same.
    at: PathBuf,
    /// The staging directory; `None` once the files are published.
    staging: Option<PathBuf>,
    files: FileTable,
    replaces: bool,
    /// The lock, held until publication.
    _lock: File,
}

/// Up to this many files are synced individually; for more, the whole file system is synced.
const SYNCED_EACH: usize = 256;

impl Outputs {
    /// Starts writing many small files below `folder`, which was declared with
    /// [`folder`](Self::folder).
    pub fn many(self: &Arc<Self>, folder: &Path) -> Result<OutputFiles, Error> {
        let folder = self.actual_path(folder);
        let at = self.folder_at(&folder)?;
        self.make_folder(&at)?;
        // Two writers could use the same names.
        self.claim(&at)?;
        let (staging, lock) = self.temporary_folder(&temporary_dir_for(&at))?;
        self.state().open.insert(staging.clone(), staging.clone());
        let (outputs, files) = (Arc::clone(self), FileTable::default());
        Ok(OutputFiles { outputs, folder, at, staging, lock, files, whole: true })
    }
}

impl OutputFiles {
    /// Writes a file that is published as `name`, a path below the folder. `rows` is its row count
    /// in the report, as for [`OutputFile::finish`](super::OutputFile::finish).
    ///
    /// `Err` if the name exists already, or is not a plain path below the folder.
    pub fn write(&mut self, name: &str, bytes: &[u8], rows: u64) -> Result<(), Error> {
        let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
        if name.is_empty() || !Path::new(name).components().all(is_plain) {
            return Err(Error::internal(format!("`{name}` is not a path below a folder")));
        }
        let path = self.staging.join(name);
        let faults = self.outputs.faults.as_deref();
        let created =
            inject(faults, OutputStep::Create).and_then(|()| create(&self.staging, &path));
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

    /// Completes the files, which are published with the other outputs.
    pub fn finish(self) -> Result<(), Error> {
        let Self { outputs, folder, at, staging, lock, files, whole } = self;
        if !whole {
            let what = "an earlier file could not be written";
            return Err(Error::io("complete", &folder, io::Error::other(what)));
        }
        let faults = outputs.faults.as_deref();
        let synced = match files.each.len() {
            0..=SYNCED_EACH => files
                .names()
                .try_for_each(|name| flush(faults, || File::open(staging.join(name))?.sync_all())),
            _ => flush(faults, || rustix::fs::syncfs(&lock).map_err(io::Error::from)),
        };
        synced.map_err(|e| Error::io("write", &folder, e))?;
        let replaces = outputs.overwrite != Overwrite::Refuse;
        let mut state = outputs.state();
        state.open.remove(&staging);
        state.staged_folders.push(StagedFolder {
            folder,
            at,
            staging: Some(staging),
            files,
            replaces,
            _lock: lock,
        });
        Ok(())
    }
}

/// Creates a file below an existing folder, creating folders between them if necessary.
fn create(staging: &Path, path: &Path) -> io::Result<File> {
    let open = || OpenOptions::new().write(true).create_new(true).open(path);
    match open() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make_below(staging, folder_of(path))?;
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
    /// The files under their final names.
    pub(super) fn files(&self) -> impl Iterator<Item = PublishedFile> {
        let FileTable { each, hashes, .. } = &self.files;
        self.files.names().zip(each).enumerate().map(|(n, (name, known))| PublishedFile {
            path: self.folder.join(name),
            rows: known.rows,
            bytes: known.bytes,
            blake3: hashes.get(n).map(|hash| blake3::Hash::from_bytes(*hash).to_hex().to_string()),
        })
    }

    /// The path each file is renamed to.
    pub(super) fn places(&self) -> impl Iterator<Item = PathBuf> {
        self.files.names().map(|name| self.at.join(name))
    }

    /// The staging directory, until publication.
    pub(super) fn path(&self) -> Option<&PathBuf> {
        self.staging.as_ref()
    }

    /// The files to upload to a store.
    pub(super) fn uploads(&self) -> Vec<Upload> {
        let Some(staging) = self.staging.as_ref().filter(|_| is_address(&self.at)) else {
            return Vec::new();
        };
        let upload = |name: &str| Upload {
            from: staging.join(name),
            to: self.at.join(name),
            replaces: self.replaces,
            is_index: false,
        };
        self.files.names().map(upload).collect()
    }

    /// Renames the files, moving whole folders where possible. Files for a store are uploaded
    /// instead.
    pub(super) fn publish(&self, names: &mut RenameLog<'_>) -> Result<(), Error> {
        if is_address(&self.at) {
            return Ok(());
        }
        self.staging
            .as_ref()
            .map_or(Ok(()), |staging| move_all(staging, &self.at, self.replaces, names))
    }

    /// The folder they belong to.
    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Removes the staging directory with empty folders and replaced files.
    pub(super) fn discard(&mut self) {
        if let Some(staging) = self.staging.take() {
            remove_any(&staging);
        }
    }
}

/// Moves the contents of a folder into another one.
fn move_all(
    from: &Path,
    to: &Path,
    replaces: bool,
    renames: &mut RenameLog<'_>,
) -> Result<(), Error> {
    let fail = |e| Error::io("publish", to, e);
    // List all names first: moving entries while reading a folder may skip others.
    let names = fs::read_dir(from).and_then(|entries| {
        entries.map(|entry| entry.map(|entry| entry.file_name())).collect::<io::Result<Vec<_>>>()
    });
    for name in names.map_err(fail)? {
        let (old, new) = (from.join(&name), to.join(&name));
        match renames.rename_new(&old, &new) {
            Ok(()) => {}
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(Error::io("publish", new, error));
            }
            Err(_) if old.is_dir() && new.is_dir() => move_all(&old, &new, replaces, renames)?,
            Err(_) if replaces => {
                renames.swap(&old, &new).map_err(|error| publish_error(&new, error))?;
            }
            Err(_) => return Err(appeared_error(&new)),
        }
    }
    Ok(())
}
