//! Renames files to their final names, and rolls back if one fails. Does not decide which file has
//! which name.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
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
struct Rename {
    name: PathBuf,
    /// What was given this name: its device and inode.
    put: (u64, u64),
    /// Where the file is that had this name; `None` if it was free.
    old: Option<PathBuf>,
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
        let put = node(from)?;
        rename_new(from, to)?;
        self.renames.push(Rename { name: to.to_owned(), put, old: None });
        Ok(())
    }

    /// Exchanges `from` and `to`.
    pub(super) fn swap(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        if fs::symlink_metadata(to)?.is_dir() || from.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let put = node(from)?;
        if exchange(from, to)? {
            let old = Some(from.to_owned());
            self.renames.push(Rename { name: to.to_owned(), put, old });
            return Ok(());
        }
        fs::rename(from, to)
    }

    /// Undoes all renames in reverse order, except for names that another run has given to files
    /// of its own since.
    pub(super) fn roll_back(self) {
        let is_as_put = |rename: &Rename| node(&rename.name).is_ok_and(|now| now == rename.put);
        // Further errors are ignored: the first one is reported.
        for rename in self.renames.into_iter().rev().filter(is_as_put) {
            match rename.old {
                None => remove_any(&rename.name),
                Some(old) => drop(exchange(&old, &rename.name)),
            }
        }
    }
}

/// The device and inode of what is at `path`.
fn node(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|meta| (meta.dev(), meta.ino()))
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
        "the output has appeared since the run began; to replace it, run again with --overwrite: \
         {}",
        target.display()
    ))
}
