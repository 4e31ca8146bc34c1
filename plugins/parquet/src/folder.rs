//! Which folders are read as tables, and which files below them. Opens no table.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use sluice_io::files::{self, FileChoice};
use sluice_model::{Error, Input, SniffResult};

use crate::manifest::{is_empty_output, lists_only_tables};

/// The names, without extensions, of files that describe tables.
const SIDE_NAMES: &[&str] = &["changelog", "license", "licence", "notice", "readme"];
/// The extensions of files that describe tables or how they are loaded, and of their checksums. No
/// log has them.
const SIDE_EXTENSIONS: &[&str] = &["crc", "html", "md", "sql", "toml", "txt", "yaml", "yml"];

/// What a file below a folder of tables is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum FolderFile {
    Table,
    /// It describes the tables, or is hidden: its name starts with a dot or an underscore.
    Side,
    Other,
}

impl FolderFile {
    pub(crate) fn from_path(path: &Path) -> Self {
        let extension = path.extension().unwrap_or_default();
        let is_one_of = |text: &OsStr, list: &[&str]| {
            list.iter().any(|listed| text.eq_ignore_ascii_case(listed))
        };
        if !path.file_name().is_some_and(is_plain) {
            Self::Side
        } else if extension.eq_ignore_ascii_case("parquet") {
            Self::Table
        } else if is_one_of(extension, SIDE_EXTENSIONS)
            || extension.is_empty() && path.file_name().is_some_and(|n| is_one_of(n, SIDE_NAMES))
        {
            Self::Side
        } else {
            Self::Other
        }
    }
}

/// Recognises a folder with tables and nothing but what describes them, or one to which a run
/// without events wrote none. Beside the tables that a manifest lists may be other files.
///
/// `Err` if it has tables, but must not be read without the other files in it.
pub(crate) fn sniff_path(path: &Path) -> Result<SniffResult, Error> {
    if !files::is_folder(path) {
        return Ok(SniffResult::No);
    }
    let mut other = None;
    // The folder looked at last, as a folder may have many other files.
    let mut listed: Option<(PathBuf, bool)> = None;
    let tables = files::below(path, is_plain, |file| match FolderFile::from_path(file) {
        FolderFile::Table => FileChoice::Take,
        FolderFile::Side => FileChoice::Skip,
        FolderFile::Other => {
            let folder = file.parent().unwrap_or(path);
            let known = listed.take().filter(|(last, _)| last == folder);
            let (_, is_listed) = listed.insert(
                known.unwrap_or_else(|| (folder.to_owned(), is_below_manifest(folder, path))),
            );
            if *is_listed {
                return FileChoice::Skip;
            }
            other = Some(file.to_owned());
            FileChoice::Stop
        }
    })?;
    match other {
        Some(_) if tables.is_empty() => Ok(SniffResult::No),
        Some(other) => Err(Error::refused(format!(
            "expected a folder of Parquet tables, found other files beside them, such as {}: pass \
             its files, such as {}, or only its tables, such as '{}'",
            other.display(),
            path.join("*").display(),
            path.join("**/*.parquet").display()
        ))),
        None if !tables.is_empty() || is_empty_output(path)? => Ok(SniffResult::Yes),
        None => Ok(SniffResult::No),
    }
}

/// Whether this folder, or one around it up to `root`, has a manifest of tables.
fn is_below_manifest(folder: &Path, root: &Path) -> bool {
    let mut around = folder.ancestors().take_while(|around| around.starts_with(root));
    around.any(|around| lists_only_tables(around).unwrap_or(false))
}

/// Every table below a folder, by path.
pub(crate) fn tables_below(folder: &Path) -> Result<Vec<Input>, Error> {
    files::below(folder, is_plain, |file| match FolderFile::from_path(file) {
        FolderFile::Table => FileChoice::Take,
        FolderFile::Side | FolderFile::Other => FileChoice::Skip,
    })
}

/// Whether a file is a table, and no part of its path below the folder is hidden.
pub(crate) fn is_table_below(folder: &Path, file: &Path) -> bool {
    file.strip_prefix(folder).unwrap_or(file).iter().all(is_plain)
        && FolderFile::from_path(file) == FolderFile::Table
}

pub(crate) fn is_plain(name: &OsStr) -> bool {
    !name.as_encoded_bytes().starts_with(b".") && !name.as_encoded_bytes().starts_with(b"_")
}
