//! Streams whose first bytes are looked at before they are read: standard input and pipes.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use super::LogFile;
use crate::Error;

/// The identity of a stream: the same for all its names.
type StreamIdentity = (u64, u64);

/// The streams that were opened to look at their first bytes, and not been read yet.
static PEEKED: Mutex<BTreeMap<StreamIdentity, LogFile>> = Mutex::new(BTreeMap::new());

/// The identity of standard input (`-`), a named pipe or a socket; `None` for anything else.
pub(super) fn stream_identity(path: &Path) -> Option<StreamIdentity> {
    let is_stdin = path == Path::new("-");
    let meta = match is_stdin {
        true => fs::File::from(io::stdin().as_fd().try_clone_to_owned().ok()?).metadata(),
        false => fs::metadata(path),
    };
    let meta = meta.ok()?;
    let kind = meta.file_type();
    (is_stdin || kind.is_fifo() || kind.is_socket()).then(|| (meta.dev(), meta.ino()))
}

/// Looks at the first bytes of a stream, decompressed if necessary: waits for as many as are
/// `enough`, at most for `most`. They can still be read, by the next [`LogFile::open`]. `None` if
/// `path` is no stream.
pub fn stream_head(
    path: &Path,
    most: usize,
    enough: impl Fn(&[u8]) -> bool,
) -> Result<Option<Vec<u8>>, Error> {
    let Some(identity) = stream_identity(path) else { return Ok(None) };
    let mut log = LogFile::open(path)?;
    let head = log.head(most, enough)?.to_vec();
    peeked().insert(identity, log);
    Ok(Some(head))
}

/// Whether the first frame of a compressed file or stream is damaged: then its first bytes may be
/// missing or wrong. Of a stream, all can still be read.
pub fn has_damaged_start(path: &Path) -> Result<bool, Error> {
    let identity = stream_identity(path);
    let mut log = LogFile::open(path)?;
    let is_damaged = log.has_damaged_start()?;
    if let Some(identity) = identity {
        peeked().insert(identity, log);
    }
    Ok(is_damaged)
}

/// The stream at `path`, if it was looked at.
pub(super) fn take_peeked(path: &Path) -> Option<LogFile> {
    // Most inputs are files, which need not be asked for their identity.
    if peeked().is_empty() {
        return None;
    }
    let identity = stream_identity(path)?;
    peeked().remove(&identity)
}

fn peeked() -> std::sync::MutexGuard<'static, BTreeMap<StreamIdentity, LogFile>> {
    PEEKED.lock().unwrap_or_else(PoisonError::into_inner)
}
