//! Litter: temporary files and folders of killed runs. Tells them from files that are in use, and removes them.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{MANIFEST, TEMPORARY, beside, folder_of};
use crate::store::is_address;

/// The temporary files of this process.
pub(super) fn live() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    static LIVE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes what killed runs left for targets in `folder`, or for the one whose name begins so. What
/// cannot be removed is left: it is only litter.
pub(super) fn remove_stale(folder: &Path, short: Option<&str>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let found = entry.file_name();
        let Some(inner) = found.to_str().and_then(|name| inner_name(name, short)) else { continue };
        // A dot would make it the file of another target, whose name begins as this one's does.
        let Some((process, _)) = inner.split_once('-') else { continue };
        let Ok(process) = process.parse::<u32>() else { continue };
        let path = entry.path();
        if is_free(&path) && !is_in_use(process, &path) {
            remove_any(&path);
        }
    }
}

/// Removes a file, or a folder with all that is in it, if that is possible.
pub(super) fn remove_any(path: &Path) {
    // An object that another process put together goes with its room.
    if is_address(path) {
        return;
    }
    if fs::remove_file(path).is_err() {
        drop(fs::remove_dir_all(path));
    }
}

/// What stands behind a target's name in that of a temporary file.
fn inner_name<'n>(name: &'n str, short: Option<&str>) -> Option<&'n str> {
    let inner = name.strip_prefix('.')?.strip_suffix(TEMPORARY)?;
    match short {
        Some(short) => inner.strip_prefix(short)?.strip_prefix('.'),
        None => inner.rsplit_once('.').map(|(_, behind)| behind),
    }
}

/// Whether nobody writes it.
fn is_free(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| file.try_lock().is_ok())
}

/// Whether the process that made it may still publish it: it may have closed the file, or be on a
/// machine whose locks are not seen here.
fn is_in_use(process: u32, path: &Path) -> bool {
    if process == std::process::id() {
        return live().contains(path);
    }
    Path::new("/proc").join(process.to_string()).exists()
}

/// Removes what killed runs left at the places of these outputs, and in the folders among them.
///
/// In folders among them, manifests in the making go, too: nobody else may be writing there.
pub fn sweep<'p>(targets: impl IntoIterator<Item = &'p Path>) {
    let mut folders = BTreeSet::new();
    for target in targets {
        if target.is_dir() {
            folders_below(target, &mut folders);
        } else {
            folders.insert(folder_of(target).to_owned());
        }
    }
    folders.iter().for_each(|folder| remove_stale(folder, None));
}

/// Removes a folder's manifest in the making. Nobody else may be writing it.
pub fn remove_unfinished_manifest(folder: &Path) {
    drop(fs::remove_file(beside(&folder.join(MANIFEST))));
}

fn folders_below(folder: &Path, folders: &mut BTreeSet<PathBuf>) {
    folders.insert(folder.to_owned());
    remove_unfinished_manifest(folder);
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        // Links may lead anywhere, also in circles.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            folders_below(&entry.path(), folders);
        }
    }
}

/// Whether anything is in a folder but what killed runs left.
pub fn is_used(folder: &Path) -> bool {
    fs::read_dir(folder).is_ok_and(|entries| {
        entries.flatten().any(|e| !e.file_name().as_encoded_bytes().ends_with(TEMPORARY.as_bytes()))
    })
}
