//! How a command ended, and the exit code that says so. Prints failures, each once.

use std::io;
use std::path::Path;

use serde_json::{Value, json};
use sluice_core::{Error, ErrorKind};
use sluice_pipeline::Mistakes;
use sluice_pipeline::run::Stop;

use crate::shell::Shell;

/// The exit code of a command that did all it was asked to.
pub(crate) const DONE: u8 = 0;
/// The exit code of a command that failed and published nothing.
pub(crate) const FAILED: u8 = 1;
/// The exit code of wrong use, and of wrong pipeline files.
pub(crate) const WRONG_USE: u8 = 2;
/// The exit code of a command that is done, with losses that were reported.
pub(crate) const LOSSES: u8 = 3;
/// The exit code of a command that was given up, where no signal says otherwise.
const INTERRUPTED: u8 = 130;

/// What a command comes to.
pub type Outcome = Result<Ending, Failure>;

/// How a command ended that went through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ending {
    /// Nothing was lost.
    Done,
    /// Input was damaged, or events could not be carried.
    Losses,
    /// Something is not as it should be, and that has been said.
    Wrong,
    /// Pipeline files are wrong, and that has been said.
    WrongFiles,
    /// A signal left some of it undone, and that has been said: the exit code of that signal.
    Interrupted(u8),
    /// A name in an option matched nothing, and `--strict` asked for more.
    Unmatched,
}

impl Ending {
    /// The exit code.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Done => DONE,
            Self::Losses => LOSSES,
            Self::Wrong => FAILED,
            Self::WrongFiles | Self::Unmatched => WRONG_USE,
            Self::Interrupted(code) => code,
        }
    }
}

/// Why a command did not go through.
#[derive(Debug)]
pub enum Failure {
    /// The command cannot be understood or is not possible.
    WrongUse(String),
    /// A pipeline file is wrong.
    Mistakes(Mistakes),
    /// It was tried and failed.
    Failed(String),
    /// It was given up, since a signal asked for it.
    Interrupted {
        /// What is there, and how to go on.
        what: String,
        /// The exit code of that signal.
        code: u8,
    },
    /// It was tried and failed at a place in a file.
    Error(Error),
    /// Whoever read standard output has seen enough.
    Closed,
}

impl Failure {
    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::WrongUse(_) | Self::Mistakes(_) => WRONG_USE,
            Self::Failed(_) | Self::Error(_) => FAILED,
            Self::Interrupted { code, .. } => *code,
            Self::Closed => DONE,
        }
    }

    /// Says what is wrong.
    pub fn tell(&self, shell: &Shell) {
        match self {
            Self::WrongUse(message) => shell.error_of("usage", message, json!({})),
            Self::Failed(message) => shell.error(message),
            Self::Error(error) => shell.error_of("failure", &error.to_string(), place(error)),
            Self::Mistakes(mistakes) => shell.mistakes(mistakes),
            Self::Interrupted { what, code } => {
                shell.warn_of("interrupted", what, json!({ "exit": code }));
            }
            Self::Closed => {}
        }
    }

    /// What is wrong, without colours.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::WrongUse(message)
            | Self::Failed(message)
            | Self::Interrupted { what: message, .. } => message.clone(),
            Self::Error(error) => error.to_string(),
            Self::Mistakes(mistakes) => mistakes.to_string(),
            Self::Closed => "standard output was closed".to_owned(),
        }
    }

    /// The same failure, with the exit code of the signal that asked for it, if one did.
    pub fn by(self, stop: &Stop) -> Self {
        match self {
            Self::Interrupted { what, .. } => Self::Interrupted { what, code: stop.exit() },
            other => other,
        }
    }

    /// The same failure, with advice on how to go on if it was given up.
    pub(crate) fn with_way_on(self) -> Self {
        match self {
            Self::Interrupted { what, code } => Self::Interrupted {
                what: format!("{what}; the same command does it again, from the beginning"),
                code,
            },
            other => other,
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

/// Where something went wrong, for programs.
fn place(error: &Error) -> Value {
    match error.kind() {
        ErrorKind::Io { path, .. } => json!({ "file": path.to_string_lossy() }),
        ErrorKind::Malformed { path, at, .. } => json!({ "file": path, "offset": at }),
        _ => json!({}),
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
            ErrorKind::Interrupted | ErrorKind::Aborted => {
                Self::Interrupted { what: error.to_string(), code: INTERRUPTED }
            }
            ErrorKind::Io { .. } | ErrorKind::Malformed { .. } => Self::Error(error),
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
