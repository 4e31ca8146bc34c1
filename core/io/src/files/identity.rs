//! The identity of files and streams, whatever their names.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::SystemTime;

use super::input::Input;
use crate::Error;
use crate::escape::printable;
use crate::store::StorePath;

/// The identity of a file: the same for all its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileIdentity(IdentityKey);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum IdentityKey {
    File {
        device: u64,
        inode: u64,
        /// Where the file system knows it: a new file can get the inode of one that was removed.
        created: Option<SystemTime>,
    },
    /// The hash of its address.
    Object([u8; blake3::OUT_LEN]),
}

impl FileIdentity {
    /// The identity of the regular file at `path`, following links; `None` if there is none. An
    /// address has one whether or not the object exists.
    pub fn read(path: &Path) -> Option<Self> {
        if let Some(place) = StorePath::parse(path).ok()? {
            return Some(Self(IdentityKey::Object(
                *blake3::hash(place.at.to_string().as_bytes()).as_bytes(),
            )));
        }
        Self::from_metadata(&fs::metadata(path).ok()?)
    }

    pub(super) fn from_metadata(meta: &fs::Metadata) -> Option<Self> {
        meta.is_file().then(|| {
            Self(IdentityKey::File {
                device: meta.dev(),
                inode: meta.ino(),
                created: meta.created().ok(),
            })
        })
    }

    /// The identity of the regular file that is read as the input `path`: that of standard input
    /// for `-`, which may be a file.
    pub fn of_input(path: &Path) -> Option<Self> {
        match path == Path::new("-") {
            true => Self::from_metadata(&standard_input()?),
            false => Self::read(path),
        }
    }

    /// Whether a regular file is at `path`, and one of these inputs is another name of it.
    pub fn is_one_of<P: AsRef<Path>>(path: &Path, inputs: impl IntoIterator<Item = P>) -> bool {
        let Some(identity) = Self::read(path) else { return false };
        inputs.into_iter().any(|input| Self::of_input(input.as_ref()) == Some(identity))
    }
}

/// Refuses inputs that name a stream twice: standard input, a named pipe or a socket. Two readers
/// would each get parts of it.
pub fn refuse_repeated_streams<'i>(
    inputs: impl IntoIterator<Item = &'i Input>,
) -> Result<(), Error> {
    let mut seen = BTreeSet::new();
    for path in inputs.into_iter().filter(|input| input.bytes.is_none()).map(|input| &input.path) {
        if stream_identity(path).is_some_and(|identity| !seen.insert(identity)) {
            let is_stdin = path == Path::new("-");
            let name = if is_stdin { "standard input".into() } else { path.to_string_lossy() };
            return Err(Error::refused(format!(
                "{} is an input twice, and a stream can only be read once; name it once, or save \
                 it to a file first",
                printable(&name)
            )));
        }
    }
    Ok(())
}

fn standard_input() -> Option<fs::Metadata> {
    fs::File::from(io::stdin().as_fd().try_clone_to_owned().ok()?).metadata().ok()
}

/// The identity of a stream: the same for all its names.
pub(super) type StreamIdentity = (u64, u64);

/// The identity of standard input (`-`), a named pipe or a socket; `None` for anything else.
pub(super) fn stream_identity(path: &Path) -> Option<StreamIdentity> {
    let is_stdin = path == Path::new("-");
    let meta = match is_stdin {
        true => standard_input(),
        false => fs::metadata(path).ok(),
    }?;
    let kind = meta.file_type();
    (is_stdin || kind.is_fifo() || kind.is_socket()).then(|| (meta.dev(), meta.ino()))
}
