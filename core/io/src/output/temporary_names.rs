//! The names of temporary files: their folder, the target of each, and the process that owns it,
//! which may still run.

use std::fs;
use std::path::{Path, PathBuf};

use super::TEMPORARY;
use crate::store::is_address;

/// The most bytes of a target's name in that of a temporary file. The rest, with two numbers of a
/// process and one of a file, is shorter, and some file systems allow only 143 bytes.
const MAX_SHORT_NAME: usize = 48;

/// What comes before the number of a temporary file that is or was an index.
pub(super) const INDEX: &str = "index";

/// This process as part of the names of temporary files: its id and when it started.
pub(super) fn owner() -> String {
    let process = std::process::id();
    format!("{process}-{}", process_start(process).unwrap_or_default())
}

/// The process that owns a temporary file, and when it started: from the end of the file's name.
pub(super) fn split_owner(inner: &str) -> Option<(u32, &str)> {
    let (owner, _) = inner.rsplit_once('-')?;
    let (process, started) = owner.split_once('-').unwrap_or((owner, ""));
    Some((process.parse().ok()?, started))
}

/// Whether it is the name of a temporary file that is or was an index.
pub(super) fn is_of_index(name: &str) -> bool {
    let number = inner_name(name, None).and_then(|inner| inner.rsplit_once('-'));
    number.is_some_and(|(_, number)| number.starts_with(INDEX))
}

/// When a process started, in clock ticks since the machine did: ids are used again. `None` if
/// there is none, or the system does not say.
pub fn process_start(process: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name of the program, in parentheses, may contain anything.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19).map(str::to_owned)
}

/// Whether the process with this id, which [started](process_start) then, is running. Without a
/// start, any process but this one counts.
pub fn is_running(process: u32, started: &str) -> bool {
    match process_start(process) {
        None => process == std::process::id() && started.is_empty(),
        Some(start) => start == started || (started.is_empty() && process != std::process::id()),
    }
}

/// A name, if it is long cut and told apart by a hash, so that temporary names are no longer than
/// file systems allow.
pub(super) fn short(name: &str) -> String {
    if name.len() <= MAX_SHORT_NAME {
        return name.to_owned();
    }
    let hash = &blake3::hash(name.as_bytes()).to_hex()[..16];
    let end = name.floor_char_boundary(MAX_SHORT_NAME - 1 - hash.len());
    format!("{}-{hash}", &name[..end])
}

/// The part of a temporary file's name after the target's name.
pub(super) fn inner_name<'n>(name: &'n str, short: Option<&str>) -> Option<&'n str> {
    match short {
        Some(short) => plain_name(name)?.strip_prefix(short)?.strip_prefix('.'),
        None => plain_name(name)?.rsplit_once('.').map(|(_, behind)| behind),
    }
}

/// The [short](short) name of a temporary file's target.
pub(super) fn short_target(name: &str) -> Option<&str> {
    plain_name(name)?.rsplit_once('.').map(|(target, _)| target)
}

/// A temporary file's name without what all have in common.
fn plain_name(name: &str) -> Option<&str> {
    name.strip_prefix('.')?.strip_suffix(TEMPORARY)
}

/// The folder for temporary files of targets in `folder`: the same folder, or `TMPDIR` for objects.
pub(super) fn temporary_dir_for(folder: &Path) -> PathBuf {
    if is_address(folder) { std::env::temp_dir() } else { folder.to_owned() }
}
