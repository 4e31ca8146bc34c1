//! How a command ended, and the exit code that says so. Prints failures, each once.

use std::io;
use std::path::Path;

use sluice_core::{Error, ErrorKind};
use sluice_pipeline::Mistakes;

use crate::shell::Shell;

/// The exit code of a command that did all it was asked to.
pub(crate) const DONE: u8 = 0;
/// The exit code of a command that failed and published nothing.
pub(crate) const FAILED: u8 = 1;
/// The exit code of wrong use, and of wrong pipeline files.
pub(crate) const WRONG_USE: u8 = 2;
/// The exit code of a command that is done, with losses that were reported.
pub(crate) const LOSSES: u8 = 3;

/// What a command comes to.
pub(crate) type Outcome = Result<Ending, Failure>;

/// How a command ended that went through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Ending {
    /// Nothing was lost.
    Done,
    /// Input was damaged, or events could not be carried.
    Losses,
    /// Something is not as it should be, and that has been said.
    Wrong,
    /// Pipeline files are wrong, and that has been said.
    WrongFiles,
}

impl Ending {
    /// The exit code.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Done => DONE,
            Self::Losses => LOSSES,
            Self::Wrong => FAILED,
            Self::WrongFiles => WRONG_USE,
        }
    }
}

/// Why a command did not go through.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command cannot be understood or is not possible.
    WrongUse(String),
    /// A pipeline file is wrong.
    Mistakes(Mistakes),
    /// It was tried and failed.
    Failed(String),
    /// Whoever read standard output has seen enough.
    Closed,
}

impl Failure {
    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::WrongUse(_) | Self::Mistakes(_) => WRONG_USE,
            Self::Failed(_) => FAILED,
            Self::Closed => DONE,
        }
    }

    /// Says what is wrong.
    pub(crate) fn tell(&self, shell: &Shell) {
        match self {
            Self::WrongUse(message) | Self::Failed(message) => shell.error(message),
            Self::Mistakes(mistakes) => shell.mistakes(mistakes),
            Self::Closed => {}
        }
    }

    /// The same failure, where it is no success that nobody reads standard output any more.
    pub(crate) fn not_closed(self) -> Self {
        match self {
            Self::Closed => {
                Self::Failed("standard output was closed; nothing was published".into())
            }
            other => other,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::Io { path, source, .. }
                if path == Path::new("-") && source.kind() == io::ErrorKind::BrokenPipe =>
            {
                Self::Closed
            }
            ErrorKind::NotAllowed(what) => Self::WrongUse(what.clone()),
            _ => Self::Failed(error.to_string()),
        }
    }
}

/// Only writing to standard output gives bare I/O errors here.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Error::io("write", "-", error).into(),
        }
    }
}

impl From<Mistakes> for Failure {
    fn from(mistakes: Mistakes) -> Self {
        Self::Mistakes(mistakes)
    }
}
