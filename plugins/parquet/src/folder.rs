//! Which folders are read as tables, and which files below them. Opens no table.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use sluice_io::files::{self, FileChoice};
use sluice_model::{Error, Input, SniffResult};

use crate::manifest::{MAX_MANIFEST, is_empty_output, lists_only_tables};

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

/// Recognises a folder with tables and nothing but what describes them, or one to which a run
/// without events wrote none. Beside the tables that a manifest lists may be other files.
///
/// `Err` if it has tables, but must not be read without the other files in it.
pub(crate) fn sniff_path(path: &Path) -> Result<SniffResult, Error> {
    if !files::is_folder(path) {
        return Ok(SniffResult::No);
    }
    let (mut other, mut manifests) = (None, FolderManifests::new(path));
    let tables = files::below(path, is_entered, |file| match FolderFile::from_path(file) {
        FolderFile::Table => FileChoice::Take,
        FolderFile::Side => FileChoice::Skip,
        FolderFile::Other if manifests.is_below_one(file.parent().unwrap_or(path)) => {
            FileChoice::Skip
        }
        FolderFile::Other => {
            other = Some(file.to_owned());
            FileChoice::Stop
        }
    })?;
    match other {
        Some(_) if tables.is_empty() && !has_partition_table(path)? => Ok(SniffResult::No),
        Some(other) => Err(Error::refused(format!(
            "expected a folder of Parquet tables, found other files beside them, such as {}: pass \
             its files, such as {}, and the tables in folders below it, such as '{}'",
            other.display(),
            path.join("*").display(),
            path.join("**/*.parquet").display()
        ))),
        None if !tables.is_empty() || is_empty_output(path)? => Ok(SniffResult::Yes),
        None => Ok(SniffResult::No),
    }
}

/// Whether a table is directly in a folder or in its partitions, whatever other files come first.
fn has_partition_table(folder: &Path) -> Result<bool, Error> {
    let is_partition = |folder: &Path| {
        folder
            .file_name()
            .is_some_and(|name| is_plain(name) && name.as_encoded_bytes().contains(&b'='))
    };
    let mut is_table = false;
    files::below(folder, is_partition, |file| {
        is_table = FolderFile::from_path(file) == FolderFile::Table;
        if is_table { FileChoice::Stop } else { FileChoice::Skip }
    })?;
    Ok(is_table)
}

/// The manifests of the folders in which a search found other files than tables, each read once.
struct FolderManifests<'f> {
    root: &'f Path,
    /// Whether there is a manifest of tables in this folder, or in one around it up to the root.
    known: HashMap<PathBuf, bool>,
    /// How many more bytes of manifests may be read.
    budget: u64,
}

impl<'f> FolderManifests<'f> {
    fn new(root: &'f Path) -> Self {
        Self { root, known: HashMap::new(), budget: MAX_MANIFEST }
    }

    fn is_below_one(&mut self, folder: &Path) -> bool {
        let above = folder.ancestors().take_while(|above| above.starts_with(self.root));
        let unknown: Vec<&Path> =
            above.take_while(|above| !self.known.contains_key(*above)).collect();
        // From the root downwards.
        for folder in unknown.into_iter().rev() {
            let above = folder.parent().and_then(|above| self.known.get(above));
            let is_below = above == Some(&true)
                || lists_only_tables(folder, &mut self.budget).unwrap_or(false);
            self.known.insert(folder.to_owned(), is_below);
        }
        self.known.get(folder) == Some(&true)
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

fn is_plain(name: &OsStr) -> bool {
    !name.as_encoded_bytes().starts_with(b".") && !name.as_encoded_bytes().starts_with(b"_")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_manifest_of_a_folder_is_read_once_for_all_folders_below() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("_manifest.json");
        for (table, is_listed) in [("a.parquet", true), ("a.lcm", false)] {
            let text = format!(r#"{{ "files": [{{ "path": "{table}" }}] }}"#);
            fs::write(&path, &text).unwrap();
            let mut manifests = FolderManifests::new(root.path());
            for n in 0..9 {
                let folder = root.path().join(format!("b/{n}/c"));
                assert_eq!(manifests.is_below_one(&folder), is_listed);
                assert_eq!(manifests.budget, MAX_MANIFEST - text.len() as u64);
            }
            let mut manifests = FolderManifests::new(root.path());
            manifests.budget = text.len() as u64 - 1;
            assert!(!manifests.is_below_one(root.path()));
        }
    }
}
