//! The folders that are created on the way to outputs, and removed if nothing is published in them.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use super::atomic::sync_folders;
use super::folder_of;
use crate::store::is_address;

/// Folders that were created for outputs. When they are dropped, those that are empty are removed.
#[derive(Debug, Default)]
pub struct NewFolders(Vec<PathBuf>);

impl NewFolders {
    /// Creates a folder, if it is missing, and its parents. Stores have no folders.
    ///
    /// Folders that were created before an `Err` count, too.
    pub fn create(&mut self, folder: &Path) -> io::Result<()> {
        self.create_by(folder, || fs::create_dir_all(folder))
    }

    /// The same, where `create` creates them.
    pub(super) fn create_by(
        &mut self,
        folder: &Path,
        create: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        if is_address(folder) {
            return Ok(());
        }
        let missing = folder.ancestors().take_while(|f| !f.as_os_str().is_empty() && !f.exists());
        let missing: Vec<PathBuf> = missing.map(Path::to_owned).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let created = create();
        self.0.extend(missing.into_iter().rev().filter(|folder| folder.is_dir()));
        created
    }

    /// Adds the folders of another list.
    pub fn append(&mut self, mut others: Self) {
        self.0.append(&mut others.0);
    }

    /// Brings the names of all these folders to disk.
    pub fn sync(&self) {
        sync_folders(self.0.iter().map(|folder| folder_of(folder)));
    }

    pub(super) fn paths(&self) -> &[PathBuf] {
        &self.0
    }

    /// Keeps all of them, empty or not.
    pub(super) fn keep(&mut self) {
        self.0.clear();
    }
}

impl Drop for NewFolders {
    fn drop(&mut self) {
        // Inner folders come after those around them. Threads may have added them in any order.
        self.0.sort_unstable();
        self.0.dedup();
        self.0.iter().rev().for_each(|folder| drop(fs::remove_dir(folder)));
    }
}

/// Removes the empty folders of `paths`, from the innermost up to `folder`, which stays. Returns
/// them in that order.
///
/// Paths may be from records that others have written: only those count that are below the folder
/// as they are spelled.
pub fn remove_emptied(folder: &Path, paths: &[impl AsRef<Path>]) -> Vec<PathBuf> {
    if is_address(folder) {
        return Vec::new();
    }
    let is_below = |path: &Path| {
        let rest = path.strip_prefix(folder);
        rest.is_ok_and(|rest| rest.components().all(|part| matches!(part, Component::Normal(_))))
    };
    let parent = |path: &Path| {
        let parent = path.parent().filter(|parent| is_below(parent) && *parent != folder);
        parent.map(Path::to_owned)
    };
    let mut left: BTreeSet<PathBuf> = paths.iter().filter_map(|p| parent(p.as_ref())).collect();
    let mut removed = Vec::new();
    // Subfolders sort after their parents.
    while let Some(inner) = left.pop_last() {
        if fs::remove_dir(&inner).is_ok() {
            left.extend(parent(&inner));
            removed.push(inner);
        }
    }
    removed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_empty_folders_below_the_folder_are_removed() {
        let outside = tempfile::tempdir().unwrap();
        let folder = outside.path().join("out");
        for name in ["out/a/b", "out/c/d", "victim/deep"] {
            fs::create_dir_all(outside.path().join(name)).unwrap();
        }
        fs::write(folder.join("c/kept"), b"").unwrap();
        let paths = ["a/b/x", "c/d/x", "../victim/deep/x"].map(|path| folder.join(path));
        let removed = ["c/d", "a/b", "a"].map(|path| folder.join(path));
        assert_eq!(remove_emptied(&folder, &paths), removed);
        assert!(outside.path().join("victim/deep").exists() && folder.exists());
    }
}
