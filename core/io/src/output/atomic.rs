//! Atomic replacement of single files, and syncing of folders. Used by publishing and by journals.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::faults::{FaultInjector, OutputStep, flush, inject, write_all};
use super::{TEMPORARY, folder_of, objects};
use crate::Error;

/// The temporary name for replacing a file with a single writer.
pub(super) fn temporary_path(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}{TEMPORARY}"))
}

/// Replaces a file atomically: readers see the old or the new contents. Only one writer at a time
/// may do so.
pub fn replace_file(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    replace_with(None, path, bytes)
}

/// Removes a file or an object.
pub fn remove_file(path: &Path) -> Result<(), Error> {
    if objects::remove(path)? {
        return Ok(());
    }
    fs::remove_file(path).map_err(|e| Error::io("remove", path, e))
}

/// [`replace_file`] with fault injection.
pub(super) fn replace_with(
    faults: Option<&FaultInjector>,
    path: &Path,
    bytes: &[u8],
) -> Result<(), Error> {
    if objects::write(path, bytes, faults)? {
        return Ok(());
    }
    let temporary = temporary_path(path);
    let write = || -> io::Result<()> {
        inject(faults, OutputStep::Create)?;
        let mut file = create_temporary(&temporary)?;
        write_all(faults, &mut file, bytes)?;
        flush(faults, || file.sync_all())?;
        inject(faults, OutputStep::Rename)?;
        fs::rename(&temporary, path)
    };
    write().map_err(|e| {
        drop(fs::remove_file(&temporary));
        Error::io("write", path, e)
    })?;
    if faults.is_none() {
        sync_folder(folder_of(path));
    }
    Ok(())
}

/// Creates the file at a [`temporary_path`], locked: other programs leave it alone.
pub(super) fn create_temporary(path: &Path) -> io::Result<File> {
    let file = File::create(path)?;
    // Some file systems have no locks.
    drop(file.try_lock());
    Ok(file)
}

/// Makes renames and removals in a folder durable.
pub fn sync_folder(folder: &Path) {
    // Some file systems cannot sync folders; the files themselves are synced.
    if let Ok(handle) = File::open(folder) {
        drop(handle.sync_all());
    }
}

/// [`sync_folder`] for several folders in parallel: each only waits for the disk or the network.
pub(super) fn sync_folders<'f>(folders: impl IntoIterator<Item = &'f Path>) {
    let folders: Vec<&Path> = folders.into_iter().collect();
    match folders[..] {
        [] => {}
        [folder] => sync_folder(folder),
        // A failure to sync is ignored.
        _ => drop(objects::in_parallel(folders, |folder| {
            sync_folder(folder);
            Ok(())
        })),
    }
}
