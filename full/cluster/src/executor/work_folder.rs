//! The temporary folder of an executor, and those that killed executors left behind.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sluice_model::Error;
use tempfile::TempDir;

const PREFIX: &str = "sluice-executor-";

/// A folder younger than this may belong to an executor that has not locked it yet.
const MIN_AGE: Duration = Duration::from_secs(60);

/// The folder that an executor works in.
pub(super) enum WorkFolder {
    /// One that the user chose, which is kept.
    Chosen(PathBuf),
    /// Locked as long as the executor lives, and removed afterwards.
    Temporary { folder: TempDir, _lock: File },
}

impl WorkFolder {
    /// Creates the folder if it does not exist. Removes temporary folders of executors that were
    /// killed.
    pub(super) fn create(chosen: Option<&Path>) -> Result<Self, Error> {
        if let Some(path) = chosen {
            fs::create_dir_all(path).map_err(|e| Error::io("create", path, e))?;
            return Ok(Self::Chosen(path.to_owned()));
        }
        let parent = std::env::temp_dir();
        // Whoever cannot remove them works all the same.
        drop(remove_abandoned(&parent, MIN_AGE));
        Self::temporary_in(&parent)
            .map_err(|e| Error::io("create", parent.join("sluice-executor"), e))
    }

    fn temporary_in(parent: &Path) -> io::Result<Self> {
        let folder = TempDir::with_prefix_in(PREFIX, parent)?;
        let lock = File::open(folder.path())?;
        // File systems without locks keep what a killed executor leaves.
        drop(lock.try_lock());
        Ok(Self::Temporary { folder, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Chosen(path) => path,
            Self::Temporary { folder, .. } => folder.path(),
        }
    }
}

/// Removes the folders of this user's executors that nobody has locked.
fn remove_abandoned(parent: &Path, min_age: Duration) -> io::Result<()> {
    let user = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(parent)?.flatten() {
        // Of the entry itself: a link that somebody placed there is not followed.
        let Ok(meta) = entry.metadata() else { continue };
        let is_old =
            || meta.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age >= min_age));
        let is_ours = entry.file_name().to_string_lossy().starts_with(PREFIX)
            && meta.is_dir()
            && meta.uid() == user;
        let is_free = || File::open(entry.path()).is_ok_and(|folder| folder.try_lock().is_ok());
        if is_ours && is_old() && is_free() {
            drop(fs::remove_dir_all(entry.path()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_that_nobody_uses_are_removed() {
        let parent = tempfile::tempdir().unwrap();
        let at = |name: &str| parent.path().join(name);
        let used = WorkFolder::temporary_in(parent.path()).unwrap();
        for name in ["sluice-executor-abc", "another-abc", "sluice-executor-linked"] {
            fs::create_dir_all(at(name).join("inner")).unwrap();
        }
        fs::rename(at("sluice-executor-linked"), at("target")).unwrap();
        std::os::unix::fs::symlink(at("target"), at("sluice-executor-linked")).unwrap();
        remove_abandoned(parent.path(), MIN_AGE).unwrap();
        assert!(at("sluice-executor-abc").exists());
        remove_abandoned(parent.path(), Duration::ZERO).unwrap();
        assert!(!at("sluice-executor-abc").exists());
        assert!(used.path().exists() && at("another-abc").exists());
        assert!(at("sluice-executor-linked").join("inner").exists());
        let path = used.path().to_owned();
        drop(used);
        assert!(!path.exists());
    }
}
