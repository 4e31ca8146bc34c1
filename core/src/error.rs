//! What can go wrong, and how it is told: what was expected, what was found, where, and what to do.
//!
//! An [`Error`] ends a run. Damage that can be stepped over is no error: see [`crate::damage`].

use std::io;
use std::path::{Path, PathBuf};

/// Why a run cannot go on. One word wide.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Error(Box<ErrorKind>);

/// The kinds of [`Error`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The system refused something.
    #[error("cannot {action} {path}: {what}", path = display_path(path, action), what = explain(source))]
    Io {
        /// What was tried, as a verb: `open`, `read`, `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// An input holds what its format does not allow, and it cannot be stepped over.
    #[error("{path}: at byte {at}: {what}")]
    Malformed {
        /// The input.
        path: String,
        /// The byte offset in it.
        at: u64,
        /// What was expected and found.
        what: String,
    },
    /// A run was asked to stop at the first damage, and there was some.
    #[error("{0}; `on_damage = \"skip\"` would report it and go on")]
    Damaged(String),
    /// An output or input is not what the run may use: it exists, it is a folder, it is the input.
    #[error("{0}")]
    Refused(String),
    /// What the run would do has to be allowed, and was not. Nothing was done.
    #[error("{0}")]
    NotAllowed(String),
    /// Options that can only be judged with the input at hand.
    #[error("{0}")]
    Invalid(String),
    /// The run was asked to end before it was done, and could not leave anything whole.
    #[error("interrupted; nothing was published")]
    Interrupted,
    /// The run was aborted.
    #[error("aborted; nothing was published")]
    Aborted,
    /// A plugin or the engine broke its own contract.
    #[error("internal: {0}; this is a fault in the program, not in the input")]
    Internal(String),
}

impl Error {
    /// The system refused to `action` the file at `path`.
    pub fn io(action: &'static str, path: impl AsRef<Path>, source: io::Error) -> Self {
        ErrorKind::Io { action, path: path.as_ref().to_owned(), source }.into()
    }

    /// The input at `path` holds something it must not, at byte `at`.
    pub fn malformed(path: impl Into<String>, at: u64, what: impl Into<String>) -> Self {
        ErrorKind::Malformed { path: path.into(), at, what: what.into() }.into()
    }

    /// The run may not use this input or output.
    pub fn refused(what: impl Into<String>) -> Self {
        ErrorKind::Refused(what.into()).into()
    }

    /// An option does not fit the input.
    pub fn invalid(what: impl Into<String>) -> Self {
        ErrorKind::Invalid(what.into()).into()
    }

    /// A contract inside the program was broken.
    pub fn internal(what: impl Into<String>) -> Self {
        ErrorKind::Internal(what.into()).into()
    }

    /// More channels than a run may have.
    pub fn too_many_channels(limit: usize) -> Self {
        Self::refused(format!(
            "more than {limit} channel{s}: the input is damaged, or names every event anew; {FEWER_CHANNELS}",
            s = if limit == 1 { "" } else { "s" }
        ))
    }

    /// The same error, which says something more.
    pub(crate) fn with_detail(self, more: &str) -> Self {
        match *self.0 {
            ErrorKind::Io { action, path, source } => {
                let told = format!("{}; {more}", explain(&source));
                Self::io(action, path, io::Error::new(source.kind(), told))
            }
            ErrorKind::Refused(told) => Self::refused(format!("{told}; {more}")),
            other => other.into(),
        }
    }

    /// Whether it says that there is no such file or object.
    pub fn is_missing(&self) -> bool {
        matches!(self.kind(), ErrorKind::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }

    /// What kind of error it is.
    pub fn kind(&self) -> &ErrorKind {
        &self.0
    }
}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Self {
        Self(Box::new(kind))
    }
}

/// What to do where an input has too many channels. What lies close beside a window is read as well, and
/// not every source can leave anything out.
pub(crate) const FEWER_CHANNELS: &str = "read far less of its time (--start, --end), which helps \
    where its format lets the rest be skipped, or cut it into shorter files";

/// A path as a user knows it: `-` is a stream.
fn display_path<'p>(path: &'p Path, action: &str) -> std::borrow::Cow<'p, str> {
    match (path == Path::new("-"), action) {
        (true, "read") => "standard input".into(),
        (true, _) => "standard output".into(),
        (false, _) => abbreviated(path.to_string_lossy()),
    }
}

/// A path's beginning and end: names out of inputs may be megabytes long.
fn abbreviated(path: std::borrow::Cow<'_, str>) -> std::borrow::Cow<'_, str> {
    const MOST: usize = 1024;
    if path.len() <= MOST {
        return path;
    }
    let (head, tail): (String, Vec<char>) =
        (path.chars().take(MOST / 4).collect(), path.chars().rev().take(MOST / 4).collect());
    format!("{head}…{}", tail.into_iter().rev().collect::<String>()).into()
}

/// What the system says where a program may not open any more files.
const TOO_MANY_OPEN: i32 = rustix::io::Errno::MFILE.raw_os_error();

/// The system's words, with what to do where that is known.
fn explain(error: &io::Error) -> String {
    // Who made words of its own for it said more than the kind does.
    if error.get_ref().is_some() {
        return error.to_string();
    }
    let advice = match error.kind() {
        io::ErrorKind::NotFound => "no such file or folder",
        io::ErrorKind::PermissionDenied => "permission denied",
        io::ErrorKind::StorageFull => "no space left on the device; free some or write elsewhere",
        io::ErrorKind::QuotaExceeded => "the disk quota is used up",
        io::ErrorKind::IsADirectory => "it is a folder, and a file is needed",
        io::ErrorKind::NotADirectory => "a part of the path is a file, not a folder",
        io::ErrorKind::FileTooLarge => "the file would become larger than the system allows",
        io::ErrorKind::ReadOnlyFilesystem => "the file system is read-only",
        io::ErrorKind::InvalidFilename => "a part of the path is longer than the system allows",
        _ if error.raw_os_error() == Some(TOO_MANY_OPEN) => {
            "too many files are open; allow more with `ulimit -n`, or write fewer at a time"
        }
        _ => return error.to_string(),
    };
    advice.to_owned()
}

/// A mistake in a plugin's options: which key, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct OptionsError {
    /// The keys and list positions that lead to the value, outermost first; empty for the whole table.
    pub path: Vec<String>,
    /// What is wrong.
    pub message: String,
}

impl OptionsError {
    /// A mistake in the value of `key`.
    pub fn at(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: vec![key.into()], message: message.into() }
    }
}

const _: () = assert!(size_of::<Error>() == size_of::<usize>());
