//! Final names: gives them to files, and takes them back when one cannot be given. Decides nothing about
//! which file has which name.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::faults::{FaultInjector, OutputStep, ask};
use super::remove_any;
use crate::Error;

/// The names that were given so far.
#[derive(Debug)]
pub(super) struct RenameLog<'f> {
    faults: Option<&'f FaultInjector>,
    renames: Vec<Rename>,
}

#[derive(Debug)]
enum Rename {
    /// Nothing had the name before.
    Fresh(PathBuf),
    /// What had the name before has the old name of what has it now.
    Swapped { old: PathBuf, name: PathBuf },
}

impl<'f> RenameLog<'f> {
    pub(super) fn new(faults: Option<&'f FaultInjector>) -> Self {
        Self { faults, renames: Vec::new() }
    }

    /// Gives what is called `from` the name `to`. What has that name, and may be replaced, is called `from`
    /// then, where the file system can do that.
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

    /// Gives what is called `from` a name that nothing has.
    pub(super) fn rename_new(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        ask(self.faults, OutputStep::Rename)?;
        rename_new(from, to)?;
        self.renames.push(Rename::Fresh(to.to_owned()));
        Ok(())
    }

    /// Lets a file change names with the one that has the name `to`.
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

    /// Takes all of them back, the last one first.
    pub(super) fn roll_back(self) {
        // A second failure here changes nothing about the first, which is reported.
        for given in self.renames.into_iter().rev() {
            match given {
                Rename::Fresh(name) => remove_any(&name),
                Rename::Swapped { old, name } => drop(exchange(&old, &name)),
            }
        }
    }
}

/// Lets two files change names; gives whether the file system can.
fn exchange(one: &Path, other: &Path) -> io::Result<bool> {
    match renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE) {
        Err(error) if is_unknown(error) => Ok(false),
        other => other.map(|()| true).map_err(io::Error::from),
    }
}

/// Renames without replacing anything.
pub(super) fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Not every file system can do it in one step.
        Err(error) if is_unknown(error) && fs::symlink_metadata(to).is_ok() => {
            Err(io::ErrorKind::AlreadyExists.into())
        }
        Err(error) if is_unknown(error) => fs::rename(from, to),
        other => Ok(other?),
    }
}

/// Whether it says that a file system lacks a way to rename.
fn is_unknown(error: Errno) -> bool {
    matches!(error, Errno::INVAL | Errno::NOSYS | Errno::NOTSUP)
}

/// What keeps a new file from its name, where what is there may be replaced.
pub(super) fn publish_error(target: &Path, error: io::Error) -> Error {
    use io::ErrorKind::{AlreadyExists, DirectoryNotEmpty, IsADirectory, NotADirectory};
    if !matches!(error.kind(), AlreadyExists | DirectoryNotEmpty | IsADirectory | NotADirectory) {
        return Error::io("publish", target, error);
    }
    Error::refused(format!(
        "a file must be where a folder is, or a folder where a file is; remove it, or write elsewhere: {}",
        target.display()
    ))
}

pub(super) fn appeared_error(target: &Path) -> Error {
    Error::refused(format!(
        "the output has appeared since the run began; --overwrite replaces it: {}",
        target.display()
    ))
}
