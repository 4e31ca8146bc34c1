//! What is at a path: a file, a folder, an object, a stream, or nothing.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use super::input::PathKind;
use super::objects::{self, is_pinned};
use crate::Error;
use crate::store::{self, StorePath};

/// The kind of thing at a path, following links; `None` if nothing is there.
///
/// An address is always looked up in the store, ignoring cached states.
pub fn path_kind(path: &Path) -> Result<Option<PathKind>, Error> {
    if let Some(place) = StorePath::parse(path)? {
        return objects::path_kind(&place).map_err(|e| Error::io("look at", path, e));
    }
    match fs::metadata(path) {
        Ok(meta) if meta.is_dir() => Ok(Some(PathKind::Folder)),
        Ok(meta) if meta.is_file() => Ok(Some(PathKind::File(meta.len()))),
        Ok(_) => Ok(Some(PathKind::Special)),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(Error::io("look at", path, error)),
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Whether there is a file or an object. False on errors.
pub fn is_file(path: &Path) -> bool {
    matches!(path_kind(path), Ok(Some(PathKind::File(_))))
}

/// Like [`is_file`], but an object is looked up only if this process has not listed or opened it.
pub fn is_input_file(path: &Path) -> bool {
    match StorePath::parse(path) {
        Ok(Some(place)) => !place.at.key().ends_with('/') && objects::pin(&place).is_ok(),
        _ => is_file(path),
    }
}

/// Whether a path can be opened without waiting for a writer, as one does for a pipe: an address,
/// which is not looked up, or a file. False on errors.
pub fn is_address_or_file(path: &Path) -> bool {
    store::is_address(path) || is_file(path)
}

/// Whether there is a folder, or a prefix of objects in a store. False on errors, and for an object
/// that this process has listed or opened, which is not looked up again.
pub fn is_folder(path: &Path) -> bool {
    if StorePath::parse(path).is_ok_and(|place| place.is_some_and(|it| is_pinned(&it.at))) {
        return false;
    }
    matches!(path_kind(path), Ok(Some(PathKind::Folder)))
}

/// Whether anything is there. False on errors.
pub fn exists(path: &Path) -> bool {
    matches!(path_kind(path), Ok(Some(_)))
}

/// Whether a path is standard input (`-`), a device, a pipe or a socket.
pub fn is_stream(path: &Path) -> bool {
    path == Path::new("-") || is_special(path)
}

/// Whether a path is a device, a pipe or a socket.
pub fn is_special(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|meta| {
        let kind = meta.file_type();
        kind.is_char_device() || kind.is_fifo() || kind.is_socket() || kind.is_block_device()
    })
}
