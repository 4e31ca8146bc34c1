//! Atomic replacement of single files, and syncing of folders. Used by publishing and by journals.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::faults::{FaultInjector, OutputStep, flush, inject, write_all};
use super::temporary_names::{owner, short};
use super::{TEMPORARY, folder_of, objects};
use crate::Error;

/// A temporary name for replacing a file. It is litter when this process has ended.
fn temporary_path(path: &Path) -> PathBuf {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = short(&path.file_name().unwrap_or_default().to_string_lossy());
    path.with_file_name(format!(".{name}.{}-{number}{TEMPORARY}", owner()))
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
        let mut file = File::create_new(&temporary)?;
        // For processes in other containers. Some file systems have no locks.
        drop(file.try_lock());
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
