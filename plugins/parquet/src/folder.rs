//! Which files below a folder are tables, and which describe them. Opens no file.

use std::ffi::OsStr;
use std::path::Path;

use sluice_io::files::{self, FileChoice};
use sluice_model::{Error, Input};

/// The names of files that describe tables, list their checksums, or are left by file managers.
const SIDE_NAMES: &[&str] = &[
    "changelog",
    "citation.cff",
    "dataset_info.json",
    "dataset_infos.json",
    "desktop.ini",
    "licence",
    "license",
    "md5sums",
    "metadata.json",
    "notice",
    "readme",
    "schema.json",
    "sha1sums",
    "sha256sums",
    "sha512sums",
    "state.json",
    "thumbs.db",
];
/// The extensions of files that describe tables or how they are loaded, and of their checksums. No
/// log has them.
const SIDE_EXTENSIONS: &[&str] =
    &["crc", "html", "md", "md5", "sha1", "sha256", "sha512", "sql", "toml", "txt", "yaml", "yml"];

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
        let name = path.file_name().unwrap_or_default();
        let extension = path.extension().unwrap_or_default();
        let is_one_of = |text: &OsStr, list: &[&str]| {
            list.iter().any(|listed| text.eq_ignore_ascii_case(listed))
        };
        if !is_plain(name) {
            Self::Side
        } else if extension.eq_ignore_ascii_case("parquet") {
            Self::Table
        } else if is_one_of(extension, SIDE_EXTENSIONS) || is_one_of(name, SIDE_NAMES) {
            Self::Side
        } else {
            Self::Other
        }
    }
}

/// Every table below a folder, by path.
pub(crate) fn tables_below(folder: &Path) -> Result<Vec<Input>, Error> {
    files::below(folder, is_entered, |file| match FolderFile::from_path(file) {
        FolderFile::Table => FileChoice::Take,
        FolderFile::Side | FolderFile::Other => FileChoice::Skip,
    })
}

/// Whether a file is a table, and no part of its path below the folder is hidden.
pub(crate) fn is_table_below(folder: &Path, file: &Path) -> bool {
    file.strip_prefix(folder).unwrap_or(file).iter().all(is_plain)
        && FolderFile::from_path(file) == FolderFile::Table
}

/// Whether tables are looked for in a folder.
pub(crate) fn is_entered(folder: &Path) -> bool {
    folder.file_name().is_some_and(is_plain)
}

/// Whether nothing hides what has this name.
pub(crate) fn is_plain(name: &OsStr) -> bool {
    !name.as_encoded_bytes().starts_with(b".") && !name.as_encoded_bytes().starts_with(b"_")
}
