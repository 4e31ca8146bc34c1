//! Temporary files and folders, and the folders on the way to a target.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::faults::OutputStep;
use super::temporary_names::{owner, short};
use super::{NewFolders, Outputs, TEMPORARY, folder_of};
use crate::Error;

impl Outputs {
    /// Creates a temporary file in `folder` for a target of that name.
    pub(super) fn temporary(&self, folder: &Path, name: &str) -> Result<(PathBuf, File), Error> {
        self.temporary_of(folder, name, "")
    }

    /// [`temporary`](Self::temporary) of this [kind](Self::reserve).
    pub(super) fn temporary_of(
        &self,
        folder: &Path,
        name: &str,
        kind: &str,
    ) -> Result<(PathBuf, File), Error> {
        let (temporary, file) = self.reserve(folder, (name, kind), |temporary| {
            OpenOptions::new().read(true).write(true).create_new(true).open(temporary)
        })?;
        // The lock tells other runs that this file is in use. Failing to lock is harmless.
        drop(file.try_lock());
        Ok((temporary, file))
    }

    /// Creates a temporary folder in `folder`, and opens it.
    pub(super) fn temporary_folder(&self, folder: &Path) -> Result<(PathBuf, File), Error> {
        let (temporary, ()) =
            self.reserve(folder, ("many", ""), |temporary| fs::create_dir(temporary))?;
        let opened = File::open(&temporary).map_err(|e| Error::io("open", &temporary, e))?;
        drop(opened.try_lock());
        Ok((temporary, opened))
    }

    /// Creates something in `folder` under an unused temporary name of this kind:
    /// [`INDEX`](super::temporary_names::INDEX) or none.
    pub(super) fn reserve<T>(
        &self,
        folder: &Path,
        (name, kind): (&str, &str),
        make: impl Fn(&Path) -> io::Result<T>,
    ) -> Result<(PathBuf, T), Error> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let short = short(name);
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let temporary = folder.join(format!(".{short}.{}-{kind}{number}{TEMPORARY}", owner()));
            match self.inject(OutputStep::Create).and_then(|()| make(&temporary)) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                // A concurrent run created the folder, failed, and removed it again.
                Err(error) if error.kind() == io::ErrorKind::NotFound && !folder.exists() => {
                    self.make_all(folder).map_err(|e| Error::io("create", folder, e))?;
                }
                Err(error) => {
                    return Err(Error::io("create", folder.join(name), error));
                }
                Ok(made) => return Ok((temporary, made)),
            }
        }
    }

    /// Creates the parent folders of a target. Done before the target is checked, since links
    /// cannot be resolved through missing folders. Returns the staged path, if outputs are staged.
    pub(super) fn prepare_parent(&self, target: &Path) -> Result<Option<PathBuf>, Error> {
        if target == Path::new("-") {
            return Ok(None);
        }
        let staged = self.staging.is_some().then(|| self.place_of(target)).transpose()?;
        self.make_folder(folder_of(staged.as_deref().unwrap_or(target)))?;
        Ok(staged)
    }

    pub(super) fn make_folder(&self, folder: &Path) -> Result<(), Error> {
        let mut new = NewFolders::default();
        let made = new.create_by(folder, || {
            self.inject(OutputStep::Create).and_then(|()| self.make_all(folder))
        });
        // Folders created before a failure belong to this run, too.
        self.state().made.append(new);
        made.map_err(|e| match e.kind() {
            // A file of that name.
            io::ErrorKind::AlreadyExists => {
                Error::io("create", folder, io::ErrorKind::NotADirectory.into())
            }
            _ => Error::io("create", folder, e),
        })
    }

    /// Creates a folder and its parents, but not a staging directory: if that is gone, it was
    /// removed on purpose.
    fn make_all(&self, folder: &Path) -> io::Result<()> {
        let staging = self.staging.as_ref();
        staging.map_or_else(|| fs::create_dir_all(folder), |staging| staging.make_all(folder))
    }
}
