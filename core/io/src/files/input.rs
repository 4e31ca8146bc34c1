//! Inputs, and kinds of paths. Looks at nothing.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A file or stream that a source reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// Its path, as given by the user; `-` is standard input.
    #[serde(
        serialize_with = "crate::escape::path_as_text",
        deserialize_with = "crate::escape::path_from_text"
    )]
    pub path: PathBuf,
    /// Its length in bytes, if it has one.
    pub bytes: Option<u64>,
}

/// The kind of thing at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathKind {
    /// A file or an object of this length.
    File(u64),
    /// A folder, or a prefix of objects in a store.
    Folder,
    /// A device, a pipe or a socket.
    Special,
}
