//! The result of a command and its exit code. Prints each failure once.

use std::fmt;
use std::io;
use std::path::Path;

use serde_json::{Value, json};
use sluice_io::escape::path_text;
use sluice_model::{Error, ErrorKind};
use sluice_pipeline::Mistakes;
use sluice_pipeline::run::Stop;

use crate::shell::Shell;

/// The command succeeded.
pub(crate) const EXIT_OK: u8 = 0;
/// The command failed and published nothing.
pub(crate) const EXIT_FAILED: u8 = 1;
/// The command line or a pipeline file is invalid.
pub(crate) const EXIT_USAGE: u8 = 2;
/// The command succeeded with losses, all of them reported.
pub(crate) const EXIT_LOSSES: u8 = 3;
/// The command succeeded, and an expectation is not met.
pub(crate) const EXIT_UNMET: u8 = 4;
/// The command was interrupted, and no signal gives another code.
const EXIT_INTERRUPTED: u8 = 130;

/// The result of a command.
pub type CommandResult = Result<ExitStatus, Failure>;

/// How a command ended that ran to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExitStatus {
    /// Nothing was lost.
    Done,
    /// Input was damaged, or events could not be converted.
    Losses,
    /// An expectation is not met, which has been printed.
    Unmet,
    /// A check failed; the reason has been printed.
    Failed,
    /// Pipeline files are invalid; the mistakes have been printed.
    InvalidPipelines,
    /// A signal stopped it before everything was done, which has been printed. Holds the exit code
    /// of that signal.
    Interrupted(u8),
    /// A name in an option matched nothing, and `--strict` was given.
    Unmatched,
}

impl ExitStatus {
    /// The exit code.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Done => EXIT_OK,
            Self::Losses => EXIT_LOSSES,
            Self::Unmet => EXIT_UNMET,
            Self::Failed => EXIT_FAILED,
            Self::InvalidPipelines | Self::Unmatched => EXIT_USAGE,
            Self::Interrupted(code) => code,
        }
    }
}

/// Why a command did not run to its end.
#[derive(Debug)]
pub enum Failure {
    /// The command line is invalid, or asks for something that is not possible.
    Usage(String),
    /// Options of the command line are invalid, as the pipeline generated from them shows.
    Options(String),
    /// The file that describes the format of the inputs is invalid.
    Description(Box<Mistakes>),
    /// An input is no log that this program reads, unless the command line says how.
    NotALog(String),
    /// A pipeline file is invalid.
    Mistakes(Mistakes),
    /// It failed.
    Failed(String),
    /// A signal interrupted it.
    Interrupted {
        /// What was written so far, and how to continue.
        what: String,
        /// The exit code of that signal.
        code: u8,
    },
    /// It failed with an error that may name a file and a position.
    Error(Error),
    /// The reader of standard output closed it.
    StdoutClosed,
}

impl Failure {
    /// The exit code.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Usage(_)
            | Self::Options(_)
            | Self::NotALog(_)
            | Self::Description(_)
            | Self::Mistakes(_) => EXIT_USAGE,
            Self::Failed(_) | Self::Error(_) => EXIT_FAILED,
            Self::Interrupted { code, .. } => *code,
            Self::StdoutClosed => EXIT_OK,
        }
    }

    /// Prints the failure.
    pub fn report(&self, shell: &Shell) {
        match self {
            Self::Usage(message) | Self::Options(message) | Self::NotALog(message) => {
                shell.error_with_fields("usage", message, json!({}));
            }
            Self::Failed(message) => shell.error(message),
            Self::Error(error) => {
                shell.error_with_fields("failure", &error.to_string(), error_location(error))
            }
            Self::Description(mistakes) => shell.mistakes(mistakes),
            Self::Mistakes(mistakes) => shell.mistakes(mistakes),
            Self::Interrupted { what, code } => {
                shell.warn_with_fields("interrupted", what, json!({ "exit": code }));
            }
            Self::StdoutClosed => {}
        }
    }

    /// The message, without colors.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Usage(message)
            | Self::Options(message)
            | Self::NotALog(message)
            | Self::Failed(message)
            | Self::Interrupted { what: message, .. } => message.clone(),
            Self::Error(error) => error.to_string(),
            Self::Description(mistakes) => mistakes.to_string(),
            Self::Mistakes(mistakes) => mistakes.to_string(),
            Self::StdoutClosed => "standard output was closed".to_owned(),
        }
    }

    /// Sets the exit code of an interruption to that of the signal `stop` received.
    pub fn with_exit_code_of(self, stop: &Stop) -> Self {
        match self {
            Self::Interrupted { what, .. } => Self::Interrupted { what, code: stop.exit() },
            other => other,
        }
    }

    /// Adds to an interruption how to start again.
    pub(crate) fn with_retry_hint(self) -> Self {
        match self {
            Self::Interrupted { what, code } => Self::Interrupted {
                what: format!("{what}; the same command starts again from the beginning"),
                code,
            },
            other => other,
        }
    }

    /// Turns a closed standard output into a failure, for commands whose output is not what they
    /// print.
    pub(crate) fn stdout_closed_is_failure(self) -> Self {
        match self {
            Self::StdoutClosed => Self::Failed("standard output was closed before the end".into()),
            other => other,
        }
    }

    /// What an abort means for a recording, whose files stay.
    pub(crate) fn of_recording(self) -> Self {
        match self {
            Self::Interrupted { code, .. } => {
                let what = "aborted; the messages received last may be missing".into();
                Self::Interrupted { what, code }
            }
            other => other.stdout_closed_is_failure(),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message())
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // The message of an error is that of its kind, so its cause comes next.
        match self {
            Self::Error(error) => std::error::Error::source(error),
            _ => None,
        }
    }
}

/// The file and the offset of an error, as fields of the log.
fn error_location(error: &Error) -> Value {
    match error.kind() {
        ErrorKind::Io { path, .. } | ErrorKind::Internal { input: Some(path), .. } => {
            json!({ "file": path_text(path) })
        }
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
                Self::StdoutClosed
            }
            ErrorKind::NotAllowed(what) => Self::Usage(what.clone()),
            ErrorKind::Interrupted | ErrorKind::Aborted => {
                Self::Interrupted { what: error.to_string(), code: EXIT_INTERRUPTED }
            }
            ErrorKind::Io { .. }
            | ErrorKind::Malformed { .. }
            | ErrorKind::Damaged(_)
            | ErrorKind::Refused(_)
            | ErrorKind::Raised { .. }
            | ErrorKind::Internal { .. } => Self::Error(error),
            _ => Self::Failed(error.to_string()),
        }
    }
}

/// Bare I/O errors only come from writing to standard output.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Self::StdoutClosed,
            _ => Error::io("write", "-", error).into(),
        }
    }
}

impl From<Mistakes> for Failure {
    fn from(mistakes: Mistakes) -> Self {
        Self::Mistakes(mistakes)
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn failures_name_files_so_that_their_names_can_be_told_apart() {
        let file = |name: &[u8]| {
            let path = PathBuf::from(OsStr::from_bytes(name));
            let io = Error::io("open", &path, io::ErrorKind::NotFound.into());
            let bug = ErrorKind::Internal { what: "a task panicked".into(), input: Some(path) };
            [io, bug.into()].map(|error| match Failure::from(error) {
                Failure::Error(error) => error_location(&error),
                other => panic!("{other:?}"),
            })
        };
        for (name, text) in [(&b"a.lcm"[..], "a.lcm"), (b"\xff", "\\xff"), (b"\xfe", "\\xfe")] {
            assert_eq!(file(name), [json!({ "file": text }), json!({ "file": text })]);
        }
        let no_input = error_location(&Error::internal("a promise was broken"));
        assert_eq!(no_input, json!({}));
    }

    #[test]
    fn an_aborted_recording_does_not_say_that_nothing_was_published() {
        let failure = Failure::from(Error::from(ErrorKind::Aborted));
        assert!(failure.message().contains("nothing was published"));
        let failure = failure.of_recording();
        assert_eq!(failure.message(), "aborted; the messages received last may be missing");
        assert!(matches!(failure, Failure::Interrupted { code: EXIT_INTERRUPTED, .. }));
    }
}
