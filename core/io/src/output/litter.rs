//! Litter: temporary files and folders of killed runs. Distinguishes them from files in use, and
//! removes them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::new_folders::remove_emptied;
use super::temporary_names::{
    inner_name, is_of_index, is_running, owner, short, short_target, split_owner, temporary_dir_for,
};
use super::{TEMPORARY, folder_of};
use crate::store::is_address;

/// The litter in the folders that a batch writes to. Each folder is listed only once.
#[derive(Debug, Default)]
pub struct ListedLitter(Mutex<BTreeMap<PathBuf, Arc<[String]>>>);

impl ListedLitter {
    /// Removes the litter of targets whose short name is `short`.
    pub(super) fn remove(&self, folder: &Path, short: &str) {
        self.names(folder).iter().for_each(|name| remove_if_stale(folder, name, Some(short)));
    }

    /// The litter of targets whose short name is `short`; sorted.
    pub(super) fn of(&self, folder: &Path, short: &str) -> Vec<PathBuf> {
        let names = self.names(folder);
        let stale = names.iter().filter(|name| is_stale(folder, name, Some(short)));
        let mut paths: Vec<PathBuf> = stale.map(|name| folder.join(name)).collect();
        paths.sort_unstable();
        paths
    }

    fn names(&self, folder: &Path) -> Arc<[String]> {
        let mut listed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(names) = listed.get(folder) {
            return Arc::clone(names);
        }
        let names: Arc<[String]> = temporary_names(folder).collect();
        listed.insert(folder.to_owned(), Arc::clone(&names));
        names
    }
}

/// Removes the litter of targets in `folder`, or of those whose short name is `short`. Errors are
/// ignored: it is only litter.
///
/// An index without another in its place stays unless it is that of such a target: the next run
/// that writes it removes it. It may be the only one of a whole output, whose files no other names.
pub(super) fn remove_stale(folder: &Path, short: Option<&str>) {
    let names = temporary_names(folder);
    names
        .filter(|name| short.is_some() || !is_of_index(name) || has_target(folder, name))
        .for_each(|name| remove_if_stale(folder, &name, short));
}

/// Whether the target of this litter exists.
fn has_target(folder: &Path, name: &str) -> bool {
    let Some(target) = short_target(name) else { return false };
    // Of a long name, only a part is known.
    let is_target = |entry: fs::DirEntry| {
        entry.file_name().to_str().is_some_and(|name| short(name) == target)
            && entry.path().is_file()
    };
    fs::read_dir(folder).is_ok_and(|entries| entries.flatten().any(is_target))
}

/// How old the litter of a process must be that may run in another container.
const MIN_AGE: Duration = Duration::from_secs(24 * 3600);

/// Removes old litter in the folder for temporary files, which other machines and containers may
/// share.
pub(super) fn remove_abandoned(folder: &Path) {
    let is_old = |name: &String| {
        let changed = fs::symlink_metadata(folder.join(name)).and_then(|meta| meta.modified());
        changed.is_ok_and(|at| at.elapsed().is_ok_and(|age| age >= MIN_AGE))
    };
    temporary_names(folder).filter(is_old).for_each(|name| remove_if_stale(folder, &name, None));
}

fn temporary_names(folder: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.ends_with(TEMPORARY))
}

fn remove_if_stale(folder: &Path, name: &str, short: Option<&str>) {
    if is_stale(folder, name, short) {
        remove_any(&folder.join(name));
    }
}

/// Whether it is the litter of a target, or of the one whose short name is `short`.
fn is_stale(folder: &Path, name: &str, short: Option<&str>) -> bool {
    // A dot would mean another target whose name starts with this one's.
    let owner = inner_name(name, short).and_then(split_owner);
    // A running process may still publish it: it may have closed the file, or locks may not be
    // shared between machines.
    owner.is_some_and(|(process, started)| {
        is_free(&folder.join(name)) && !is_running(process, started)
    })
}

/// A temporary file of a target, other than `own`, that a run uses or may still publish. Not of
/// objects.
pub(super) fn used_temporary(target: &Path, own: &Path) -> Option<PathBuf> {
    let (folder, short) = (folder_of(target), own_short(target)?);
    let is_own = |temporary: &str| {
        folder.join(temporary) == own || temporary.ends_with(&format!(".{}", reserved_by_this()))
    };
    let is_used = |temporary: &String| {
        let owner = inner_name(temporary, Some(&short)).and_then(split_owner);
        owner.is_some_and(|(process, started)| {
            is_running(process, started) || is_locked(&folder.join(temporary))
        })
    };
    let mut others = temporary_names(folder).filter(|temporary| !is_own(temporary));
    others.find(is_used).map(|temporary| folder.join(temporary))
}

/// The end of a name that this process has reserved.
fn reserved_by_this() -> String {
    format!("{}-name{TEMPORARY}", owner())
}

/// The short name of a target on this machine, if it can be told from all others.
pub(super) fn own_short(target: &Path) -> Option<String> {
    target.file_name().filter(|_| !is_address(target))?.to_str().map(short)
}

/// Removes a file, or a folder with its contents, ignoring errors.
pub(super) fn remove_any(path: &Path) {
    // Staged objects of another process are removed with their staging directory.
    if is_address(path) {
        return;
    }
    if fs::remove_file(path).is_err() {
        drop(fs::remove_dir_all(path));
    }
}

/// Whether it is a file or a folder that can be opened, and that nobody has locked.
fn is_free(path: &Path) -> bool {
    open(path).is_some_and(|file| file.try_lock().is_ok())
}

/// Whether somebody has locked it. File systems without locks do not say.
fn is_locked(path: &Path) -> bool {
    open(path).is_some_and(|file| matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
}

/// Opens a file or a folder. Opening a pipe would wait.
fn open(path: &Path) -> Option<File> {
    let is_plain = fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file() || meta.is_dir());
    is_plain.then(|| File::open(path).ok())?
}

/// Shows other programs that this one will publish a file: see [`is_being_written`].
#[derive(Debug)]
pub struct ReservedName(PathBuf);

impl ReservedName {
    /// Reserves the name of `target` until dropped; `None` if its folder cannot be written to, or
    /// does not exist yet.
    pub fn reserve(target: &Path) -> Option<Self> {
        let name = target.file_name()?.to_str()?;
        let temporary = format!(".{}.{}", short(name), reserved_by_this());
        let path = temporary_dir_for(folder_of(target)).join(temporary);
        File::create_new(&path).ok()?;
        Some(Self(path))
    }
}

impl Drop for ReservedName {
    fn drop(&mut self) {
        remove_any(&self.0);
    }
}

/// Whether a running process has reserved this name, or writes a file that it will publish so.
pub fn is_being_written(target: &Path) -> bool {
    let Some(name) = target.file_name().and_then(|name| name.to_str()) else { return false };
    let folder = temporary_dir_for(folder_of(target));
    temporary_names(&folder).any(|temporary| {
        let owner = inner_name(&temporary, Some(&short(name))).and_then(split_owner);
        owner.is_some_and(|(process, started)| is_running(process, started))
    })
}

/// Removes the litter next to these outputs, in the folders among them, and the folders in those
/// that hold nothing else.
pub fn sweep<'p>(targets: impl IntoIterator<Item = &'p Path>) {
    let mut folders = BTreeSet::new();
    for target in targets {
        if target.is_dir() {
            sweep_output(target);
        } else {
            folders.insert(folder_of(target));
        }
    }
    folders.into_iter().for_each(|folder| remove_stale(folder, None));
}

fn sweep_output(target: &Path) {
    let mut folders = BTreeSet::new();
    folders_below(target, &mut folders);
    // Folders that hold nothing else go with it: mostly, a killed run had created them.
    let unpublished = folders.iter().filter(|folder| !is_used(folder));
    let litter =
        unpublished.flat_map(|folder| temporary_names(folder).map(move |name| folder.join(name)));
    let litter: Vec<PathBuf> = litter.collect();
    folders.iter().for_each(|folder| remove_stale(folder, None));
    remove_emptied(target, &litter);
}

/// Removes the litter in a folder and below, and the folders in which nothing is left. Another
/// process may be writing there, so folders that were changed within the last minute stay.
pub fn sweep_folder(folder: &Path) {
    let is_old = |folder: &Path| {
        let changed = fs::metadata(folder).and_then(|meta| meta.modified());
        changed.ok().and_then(|at| at.elapsed().ok()).is_some_and(|age| age.as_secs() > 60)
    };
    let mut folders = vec![(folder.to_owned(), is_old(folder))];
    let mut next = 0;
    while let Some((folder, _)) = folders.get(next) {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        // Links may form cycles.
        let inside = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let inside: Vec<_> = inside.map(|entry| (entry.path(), is_old(&entry.path()))).collect();
        remove_stale(folder, None);
        folders.extend(inside);
        next += 1;
    }
    // Those with anything in them stay, too.
    let old = folders.iter().rev().filter(|(_, is_old)| *is_old);
    old.for_each(|(folder, _)| drop(fs::remove_dir(folder)));
}

/// Removes what killed runs have left in a folder of targets with such names, which must be short.
pub fn remove_unfinished(folder: &Path, is_target: impl Fn(&str) -> bool) {
    let names = temporary_names(folder).filter(|name| short_target(name).is_some_and(&is_target));
    names.for_each(|name| remove_if_stale(folder, &name, None));
}

fn folders_below(folder: &Path, folders: &mut BTreeSet<PathBuf>) {
    folders.insert(folder.to_owned());
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        // Links may form cycles.
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            folders_below(&entry.path(), folders);
        }
    }
}

/// Whether a folder contains anything but litter.
pub fn is_used(folder: &Path) -> bool {
    fs::read_dir(folder).is_ok_and(|entries| {
        entries.flatten().any(|e| !e.file_name().as_encoded_bytes().ends_with(TEMPORARY.as_bytes()))
    })
}
