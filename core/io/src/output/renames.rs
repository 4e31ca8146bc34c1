//! Renames files to their final names, and rolls back if one fails. Does not decide which file has
//! which name.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::faults::{FaultInjector, OutputStep, inject};
use super::remove_any;
use crate::Error;

/// The renames done so far.
#[derive(Debug)]
pub(super) struct RenameLog<'f> {
    faults: Option<&'f FaultInjector>,
    renames: Vec<Rename>,
}

#[derive(Debug)]
enum Rename {
    /// The name was free.
    Fresh(PathBuf),
    /// The two files were exchanged.
    Swapped { old: PathBuf, name: PathBuf },
}

impl<'f> RenameLog<'f> {
    pub(super) fn new(faults: Option<&'f FaultInjector>) -> Self {
        Self { faults, renames: Vec::new() }
    }

    /// Renames `from` to `to`. If `to` exists and may be replaced, the two are exchanged, if the
    /// file system supports it.
    pub(super) fn rename(&mut self, from: &Path, to: &Path, replaces: bool) -> Result<(), Error> {
        match self.rename_new(from, to) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(publish_error(to, error))
            }
            Err(_) if !replaces => Err(appeared_error(to)),
            Err(_) => self.swap(from, to).map_err(|error| publish_error(to, error)),
            Ok(()) => Ok(()),
        }
    }

    /// Renames `from` to a free name.
    pub(super) fn rename_new(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        inject(self.faults, OutputStep::Rename)?;
        rename_new(from, to)?;
        self.renames.push(Rename::Fresh(to.to_owned()));
        Ok(())
    }

    /// Exchanges `from` and `to`.
    pub(super) fn swap(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        if fs::symlink_metadata(to)?.is_dir() || from.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        if exchange(from, to)? {
            self.renames.push(Rename::Swapped { old: from.to_owned(), name: to.to_owned() });
            return Ok(());
        }
        fs::rename(from, to)
    }

    /// Undoes all renames in reverse order.
    pub(super) fn roll_back(self) {
        // Further errors are ignored: the first one is reported.
        for rename in self.renames.into_iter().rev() {
            match rename {
                Rename::Fresh(name) => remove_any(&name),
                Rename::Swapped { old, name } => drop(exchange(&old, &name)),
            }
        }
    }
}

/// Exchanges two files; returns whether the file system supports it.
fn exchange(one: &Path, other: &Path) -> io::Result<bool> {
    match renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE) {
        Err(error) if is_unknown(error) => Ok(false),
        other => other.map(|()| true).map_err(io::Error::from),
    }
}

/// Renames without replacing anything.
pub(super) fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Not every file system supports this atomically.
        Err(error) if is_unknown(error) && fs::symlink_metadata(to).is_ok() => {
            Err(io::ErrorKind::AlreadyExists.into())
        }
        Err(error) if is_unknown(error) => fs::rename(from, to),
        other => Ok(other?),
    }
}

/// Whether the file system does not support this kind of rename.
fn is_unknown(error: Errno) -> bool {
    matches!(error, Errno::INVAL | Errno::NOSYS | Errno::NOTSUP)
}

/// The error for a target that cannot be replaced.
pub(super) fn publish_error(target: &Path, error: io::Error) -> Error {
    use io::ErrorKind::{AlreadyExists, DirectoryNotEmpty, IsADirectory, NotADirectory};
    if !matches!(error.kind(), AlreadyExists | DirectoryNotEmpty | IsADirectory | NotADirectory) {
        return Error::io("publish", target, error);
    }
    Error::refused(format!(
        "a folder is in the way of a file, or a file in the way of a folder; remove it, or write \
         elsewhere: {}",
        target.display()
    ))
}

pub(super) fn appeared_error(target: &Path) -> Error {
    Error::refused(format!(
        "the output has appeared since the run began; --overwrite replaces it: {}",
        target.display()
    ))
}
