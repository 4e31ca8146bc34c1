//! Single files that are replaced as a whole, and folders that are synced: what publishing is made of, and
//! what journals use by themselves.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::faults::{FaultInjector, OutputStep, ask, write_all};
use super::objects::in_parallel as beside_each_other;
use super::{TEMPORARY, folder_of, objects};
use crate::Error;

/// The name under which a file is written that one writer at a time replaces.
pub(super) fn temporary_path(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}{TEMPORARY}"))
}

/// Writes a file so that its name always stands for a whole one: the old or the new. Only one writer at
/// a time may do so.
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

/// [`replace_file`], with faults.
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
        ask(faults, OutputStep::Create)?;
        let mut file = File::create(&temporary)?;
        write_all(faults, &mut file, bytes)?;
        ask(faults, OutputStep::Sync)?;
        file.sync_all()?;
        ask(faults, OutputStep::Rename)?;
        fs::rename(&temporary, path)
    };
    write().map_err(|e| {
        drop(fs::remove_file(&temporary));
        Error::io("write", path, e)
    })?;
    sync_folder(folder_of(path));
    Ok(())
}

/// Makes what was renamed or removed in a folder last through a power cut.
pub fn sync_folder(folder: &Path) {
    // Some file systems refuse to sync a folder; the files themselves are synced.
    if let Ok(handle) = File::open(folder) {
        drop(handle.sync_all());
    }
}

/// [`sync_folder`] for each of these, several at a time: each waits for the disk, or for a network, and does nothing
/// else.
pub(super) fn sync_folders<'f>(folders: impl IntoIterator<Item = &'f Path>) {
    let folders: Vec<&Path> = folders.into_iter().collect();
    match folders[..] {
        [] => {}
        [folder] => sync_folder(folder),
        // What cannot be synced is no failure.
        _ => drop(beside_each_other(folders, |folder| {
            sync_folder(folder);
            Ok(())
        })),
    }
}
