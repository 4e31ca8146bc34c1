//! What lies beside a file of a log: the master of a subfile, and what may be meant by a subfile
//! that is missing. Reads no events.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use sluice_io::escape::{escaped, folded};
use sluice_io::files;
use sluice_io::output::folder_of;
use sluice_io::store::is_address;

use crate::display::display_name;
use crate::master::{self, MasterHeader};

/// In a folder with more files, nothing is searched.
const MOST_FILES: usize = 10_000;
/// The bytes by which a master is recognized.
const HEAD: usize = 16 << 10;

/// The master that names the subfile at `path`, or the first one in the folder `path`.
pub(crate) fn master_of(path: &Path) -> Option<PathBuf> {
    if is_address(path) {
        return None;
    }
    if files::is_folder(path) {
        let masters = names_in(path).into_iter().map(|name| path.join(name));
        return masters.into_iter().find(|master| looks_like_master(master, true));
    }
    let (name, folder) = (path.file_name().filter(|_| files::is_file(path))?, folder_of(path));
    let others = names_in(folder).into_iter().filter(|other| other != name);
    // Keeps the folder as the user has written it.
    let mut masters = others.map(|other| path.with_file_name(other));
    masters
        .find(|master| looks_like_master(master, false) && names_subfile(master, name.as_bytes()))
}

/// The subfiles of all masters in `folder` but those named as `left_out`: the
/// [keys](name_key) of their names.
pub(crate) fn subfiles_in(folder: &Path, left_out: &[PathBuf]) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_left_out =
        |name: &OsString| left_out.iter().any(|path| path.file_name() == Some(name.as_os_str()));
    let names = entries.map(|entry| entry.file_name()).filter(|name| !is_left_out(name));
    let paths = names.map(|name| folder.join(name));
    let masters = paths.filter(|path| looks_like_master(path, false));
    masters.flat_map(|path| subfile_names(&path)).map(|name| name_key(&name)).collect()
}

/// The reason that a missing subfile is not read, with what is there instead.
pub(super) fn missing_reason(path: &Path) -> String {
    let at = display_name(path.as_os_str().as_bytes());
    if with_zst(path).is_file() {
        return format!(
            "the subfile is compressed, which is not supported; decompress it beside the master: \
             {}",
            display_name(with_zst(path).as_os_str().as_bytes())
        );
    }
    match nearly_named(path) {
        Some(other) => format!(
            "the subfile is missing: {at}; the name of {} differs in case: rename it",
            display_name(other.as_bytes())
        ),
        None => format!("the subfile is missing: {at}"),
    }
}

fn with_zst(path: &Path) -> PathBuf {
    let mut name = path.to_owned().into_os_string();
    name.push(".zst");
    name.into()
}

/// The name of a file beside a missing subfile that differs from its name only in case.
fn nearly_named(path: &Path) -> Option<OsString> {
    let name = path.file_name()?;
    let is_near = |other: &OsString| {
        // A link that leads nowhere is missing, too.
        other != name && folded(&other.to_string_lossy()) == folded(&name.to_string_lossy())
    };
    names_in(folder_of(path)).into_iter().find(is_near)
}

/// The names in a folder, sorted.
fn names_in(folder: &Path) -> Vec<OsString> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<OsString> =
        entries.map(|entry| entry.file_name()).take(MOST_FILES + 1).collect();
    names.sort_unstable();
    if names.len() > MOST_FILES { Vec::new() } else { names }
}

/// Whether a file surely, or else possibly is a master.
fn looks_like_master(path: &Path, surely: bool) -> bool {
    if !files::is_file(path) {
        return false;
    }
    let (is_sure, may_be) =
        files::head(path, HEAD).map_or((false, false), |head| master::looks_like_master(&head));
    is_sure || may_be && !surely
}

fn names_subfile(master: &Path, name: &[u8]) -> bool {
    subfile_names(master).iter().any(|subfile| name_key(subfile) == name_key(name))
}

/// The subfile names in a master; none if it is not readable.
fn subfile_names(master: &Path) -> Vec<Vec<u8>> {
    let header = master::open(master).and_then(|mut lines| MasterHeader::read(&mut lines));
    header.into_iter().flat_map(|header| header.files).map(|file| file.name).collect()
}

/// Equal for names that may be those of one file.
pub(crate) fn name_key(name: &[u8]) -> String {
    folded(&escaped(name))
}
