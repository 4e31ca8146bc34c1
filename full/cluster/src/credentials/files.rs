//! Reads the files of credentials. What is private must be readable by its owner only.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use sluice_model::{Error, ErrorKind};

/// The most that is read of a file.
const MAX_FILE: u64 = 1 << 20;

/// Permission bits that a private file must not have: all of others, and writing of the group. Its
/// group may read it: Kubernetes mounts secrets so.
const FORBIDDEN_MODE: u32 = 0o027;

/// The text of a file.
pub(super) fn read(path: &Path) -> Result<String, Error> {
    read_with_metadata(path).map(|(text, _)| text).map_err(|e| io_error(path, &e))
}

/// The text of a file that only its owner may read. `Err` if others may, or may change it.
pub(super) fn read_private(path: &Path) -> Result<String, Error> {
    let (text, metadata) = read_with_metadata(path).map_err(|e| io_error(path, &e))?;
    let mode = metadata.permissions().mode() & 0o777;
    // A pipe that a shell opened has no such mode.
    if metadata.is_file() && mode & FORBIDDEN_MODE != 0 {
        return Err(not_allowed(format!(
            "{}: other users may read or change this file (mode {mode:03o}); restrict it with \
             `chmod 600`, and replace its content if others have seen it",
            path.display()
        )));
    }
    Ok(text)
}

fn read_with_metadata(path: &Path) -> io::Result<(String, Metadata)> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    let mut text = String::new();
    file.take(MAX_FILE).read_to_string(&mut text)?;
    Ok((text, metadata))
}

fn io_error(path: &Path, error: &io::Error) -> Error {
    not_allowed(format!("{}: cannot read these credentials: {error}", path.display()))
}

/// An error in the use of the program.
pub(super) fn not_allowed(what: String) -> Error {
    ErrorKind::NotAllowed(what).into()
}
