//! What the manifest beside the tables of a folder says of them. Opens no table.

use std::collections::HashSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;
use sluice_io::escape::printable;
use sluice_io::files;
use sluice_io::output::MANIFEST;
use sluice_model::{Error, units};

use crate::source::{NAME, is_table_below, tables_below};

/// A longer file is not believed to be a manifest: a million tables take less.
const MAX_MANIFEST: u64 = 256 << 20;
/// How many missing tables a note names.
const MOST_NAMES: usize = 3;

#[derive(Deserialize)]
struct Manifest {
    #[serde(default)]
    plugins: Vec<String>,
    files: Vec<ListedFile>,
}

#[derive(Deserialize)]
struct ListedFile {
    path: Option<String>,
}

/// The manifest of a folder; `None` if it has none that can be understood.
fn read(folder: &Path) -> Result<Option<Manifest>, Error> {
    let path = folder.join(MANIFEST);
    if fs::metadata(&path).is_ok_and(|meta| !meta.is_file() || meta.len() > MAX_MANIFEST) {
        return Ok(None);
    }
    let text = files::read_if_exists(&path)?;
    Ok(text.and_then(|text| serde_json::from_slice(&text).ok()))
}

/// Whether the manifest of a folder says that a sink `parquet` wrote no tables there.
pub(crate) fn is_empty_output(folder: &Path) -> Result<bool, Error> {
    let manifest = read(folder)?;
    Ok(manifest.is_some_and(|manifest| {
        manifest.files.is_empty() && manifest.plugins.iter().any(|plugin| plugin == NAME)
    }))
}

/// A note about the tables that the manifest of a folder lists and that are not there: a copy may
/// be incomplete, or somebody removed them.
pub(crate) fn missing_tables(folder: &Path) -> Option<String> {
    let listed = read(folder).ok()??.files.into_iter().filter_map(|file| file.path);
    let is_plain =
        |name: &str| Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
    let is_table = |name: &String| is_plain(name) && is_table_below(folder, &folder.join(name));
    let listed: Vec<String> = listed.filter(is_table).collect();
    if listed.is_empty() {
        return None;
    }
    let found: HashSet<PathBuf> =
        tables_below(folder).ok()?.into_iter().map(|input| input.path).collect();
    let all = listed.len();
    let mut missing = listed;
    missing.retain(|name| !found.contains(&folder.join(name)));
    if missing.is_empty() {
        return None;
    }
    let names = missing.iter().take(MOST_NAMES).map(|name| printable(name));
    let names = names.collect::<Vec<_>>().join(", ");
    let such_as = if missing.len() > MOST_NAMES { ", such as " } else { ": " };
    Some(format!(
        "{} lists {}, {} of them missing{such_as}{names}; `sluice verify` checks the folder",
        folder.join(MANIFEST).display(),
        units::pluralize(all as u64, "table"),
        units::count(missing.len() as u64),
    ))
}
