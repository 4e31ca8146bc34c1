//! Errors: what was expected, what was found, where, and what to do.
//!
//! An [`Error`] ends a run. Damage that can be skipped is not an error: it is reported, and
//! the run goes on.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// Why a run cannot continue. The size of a pointer.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct Error(Box<ErrorKind>);

/// The kinds of [`Error`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A system call failed.
    #[error(
        "cannot {action} {path}: {what}",
        path = display_path(path, action),
        what = explain(source)
    )]
    Io {
        /// The action that failed, as a verb: `open`, `read`, `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// An input violates its format, and the damage cannot be skipped.
    #[error("{path}: at byte {at}: {what}")]
    Malformed {
        /// The input.
        path: String,
        /// The byte offset in it.
        at: u64,
        /// What was expected and found.
        what: String,
    },
    /// A run that stops at the first damage found some.
    #[error("{0}; `on_damage = \"skip\"` would report it and go on")]
    Damaged(String),
    /// An input or output that the run may not use: it exists, is a folder, or is also an input.
    #[error("{0}")]
    Refused(String),
    /// The run needs a permission that was not given. Nothing was done.
    #[error("{0}")]
    NotAllowed(String),
    /// Options or data that turn out to be invalid once the input is known.
    #[error("{0}")]
    Invalid(String),
    /// The same, at a node of a pipeline.
    #[error("{node}: {what}")]
    InvalidAt {
        /// The node, and where it is written if that is known.
        node: String,
        /// What is invalid.
        what: String,
    },
    /// A plugin that is not in Rust raised an exception.
    #[error("{what}")]
    Raised {
        /// The plugin, what it raised, and where.
        what: String,
        /// The exception.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The run was interrupted before it had a complete output.
    #[error("interrupted; nothing was published")]
    Interrupted,
    /// The run was aborted.
    #[error("aborted; nothing was published")]
    Aborted,
    /// A plugin or the engine broke its contract.
    #[error("internal: {what}; this is a bug in the program, not a problem with the input")]
    Internal {
        /// What happened.
        what: String,
        /// The input that was being read, if it is known.
        input: Option<PathBuf>,
    },
}

/// The message of a panic.
pub fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref().map(String::as_str)).unwrap_or("without a message")
}

impl Error {
    /// A system call to `action` the file at `path` failed.
    pub fn io(action: &'static str, path: impl AsRef<Path>, source: io::Error) -> Self {
        ErrorKind::Io { action, path: path.as_ref().to_owned(), source }.into()
    }

    /// The input at `path` violates its format at byte `at`.
    pub fn malformed(path: impl Into<String>, at: u64, what: impl Into<String>) -> Self {
        ErrorKind::Malformed { path: path.into(), at, what: what.into() }.into()
    }

    /// The run may not use this input or output.
    pub fn refused(what: impl Into<String>) -> Self {
        ErrorKind::Refused(what.into()).into()
    }

    /// Options or data are invalid.
    pub fn invalid(what: impl Into<String>) -> Self {
        ErrorKind::Invalid(what.into()).into()
    }

    /// A contract inside the program was broken: a bug.
    pub fn internal(what: impl Into<String>) -> Self {
        ErrorKind::Internal { what: what.into(), input: None }.into()
    }

    /// Code that the run called on one of its threads panicked, which the panic hook has reported.
    pub fn panicked() -> Self {
        Self::internal("a task panicked; its message is above")
    }

    /// Calls code of plugins. `Err` also if it panics, with the message, as a program may have a
    /// panic hook of its own: what it changed must not be used then.
    pub fn catching<T>(call: impl FnOnce() -> Result<T, Self>) -> Result<T, Self> {
        catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
            Err(Self::internal(format!("a task panicked: {}", panic_message(&*panic))))
        })
    }

    /// There are more channels than a run may have.
    pub fn too_many_channels(limit: usize) -> Self {
        Self::refused(format!(
            "more than {limit} channel{s}: the input is damaged, or gives every event its own \
             channel; {FEWER_CHANNELS}",
            s = if limit == 1 { "" } else { "s" }
        ))
    }

    /// Appends more text to the message.
    #[must_use]
    pub fn with_detail(self, more: &str) -> Self {
        match *self.0 {
            ErrorKind::Io { action, path, source } => {
                let message = format!("{}; {more}", explain(&source));
                Self::io(action, path, io::Error::new(source.kind(), message))
            }
            ErrorKind::Refused(message) => Self::refused(format!("{message}; {more}")),
            other => other.into(),
        }
    }

    /// Names the node of a pipeline whose options or data are invalid, unless one is named already.
    #[must_use]
    pub fn at_node(self, node: &str) -> Self {
        match *self.0 {
            ErrorKind::Invalid(what) => ErrorKind::InvalidAt { node: node.to_owned(), what }.into(),
            other => other.into(),
        }
    }

    /// Whether it means that a file or object does not exist.
    pub fn is_missing(&self) -> bool {
        match self.kind() {
            ErrorKind::Io { source, .. } => source.kind() == io::ErrorKind::NotFound,
            _ => false,
        }
    }

    /// The kind of error.
    pub fn kind(&self) -> &ErrorKind {
        &self.0
    }
}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Self {
        Self(Box::new(kind))
    }
}

/// Advice for inputs with too many channels. Not every source can skip what lies outside a time
/// window.
pub const FEWER_CHANNELS: &str = "read a much shorter time range (--start, --end), if its \
                                         format can skip the rest, or cut the input into shorter \
                                         files";

/// A path as shown to users: `-` is a standard stream.
fn display_path<'p>(path: &'p Path, action: &str) -> std::borrow::Cow<'p, str> {
    match (path == Path::new("-"), action) {
        (true, "read") => "standard input".into(),
        (true, _) => "standard output".into(),
        (false, _) => abbreviated(path.to_string_lossy()),
    }
}

/// Shortens a path: names from inputs may be megabytes long.
fn abbreviated(path: std::borrow::Cow<'_, str>) -> std::borrow::Cow<'_, str> {
    const MAX_SHOWN: usize = 1024;
    if path.len() <= MAX_SHOWN {
        return path;
    }
    let (head, tail): (String, Vec<char>) = (
        path.chars().take(MAX_SHOWN / 4).collect(),
        path.chars().rev().take(MAX_SHOWN / 4).collect(),
    );
    format!("{head}…{}", tail.into_iter().rev().collect::<String>()).into()
}

/// The system's error code for too many open files.
const TOO_MANY_OPEN: i32 = rustix::io::Errno::MFILE.raw_os_error();

/// The system's message, with advice if there is any.
fn explain(error: &io::Error) -> String {
    // A custom message says more than the kind does.
    if error.get_ref().is_some() {
        return error.to_string();
    }
    let advice = match error.kind() {
        io::ErrorKind::NotFound => "no such file or folder",
        io::ErrorKind::PermissionDenied => "permission denied",
        io::ErrorKind::StorageFull => "no space left on the device; free some or write elsewhere",
        io::ErrorKind::BrokenPipe => "whoever reads it has closed it before the end",
        io::ErrorKind::QuotaExceeded => "the disk quota is used up",
        io::ErrorKind::IsADirectory => "expected a file, found a folder",
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

/// An error in a plugin's options: the key, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct OptionsError {
    /// The keys and list indices that lead to the value, outermost first; empty for the whole
    /// table.
    pub path: Vec<String>,
    /// What is wrong.
    pub message: String,
}

impl OptionsError {
    /// An error in the value of `key`.
    pub fn at(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: vec![key.into()], message: message.into() }
    }

    /// `key` has no effect without another option, such as `sort` or `choose = "at"`.
    pub fn needs(key: &str, other: &str) -> Self {
        Self::at(key, format!("`{key}` needs `{other}`"))
    }

    /// An error in an entry of the list or table `key`.
    pub fn in_entry(key: &str, entry: impl std::fmt::Display, message: impl Into<String>) -> Self {
        Self { path: vec![key.to_owned(), entry.to_string()], message: message.into() }
    }
}

const _: () = assert!(size_of::<Error>() == size_of::<usize>());
