//! What the manifests beside the tables of a folder say of them. Opens no table.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;
use sluice_io::escape::printable;
use sluice_io::files::{self, FileChoice, PathKind};
use sluice_io::output::MANIFEST;
use sluice_model::{Error, Input, units};

use crate::folder::{FolderFile, is_entered, is_table_below};

/// A longer file is not believed to be a manifest: a million tables take less.
const MAX_MANIFEST: u64 = 256 << 20;
/// How many tables a note names.
const MOST_NAMES: usize = 3;

#[derive(Deserialize)]
struct Manifest {
    #[serde(default)]
    plugins: Vec<String>,
    #[serde(default)]
    files: Vec<ListedFile>,
    /// The inputs of a batch, which have files each.
    #[serde(default)]
    units: Vec<ListedUnit>,
}

#[derive(Deserialize)]
struct ListedUnit {
    files: Vec<ListedFile>,
}

#[derive(Deserialize)]
struct ListedFile {
    path: Option<String>,
    bytes: Option<u64>,
}

/// Tables and their lengths.
type TableLengths = BTreeMap<PathBuf, Option<u64>>;

/// The manifest of a folder; `None` if it has none that can be understood.
fn read(folder: &Path) -> Result<Option<Manifest>, Error> {
    read_within(folder, &mut MAX_MANIFEST.clone())
}

/// Like [`read`], but `None` also if the manifest has more than `budget` bytes, else subtracts
/// them.
fn read_within(folder: &Path, budget: &mut u64) -> Result<Option<Manifest>, Error> {
    let path = folder.join(MANIFEST);
    // Of what is at an address, nothing is read before its length is known, either.
    let Some(PathKind::File(bytes)) = files::path_kind(&path)? else { return Ok(None) };
    let Some(left) = budget.checked_sub(bytes) else { return Ok(None) };
    *budget = left;
    let text = files::read_if_exists(&path)?;
    Ok(text.and_then(|text| serde_json::from_slice(&text).ok()))
}

/// Whether the manifest of a folder says that a sink `parquet` wrote no tables there.
pub(crate) fn is_empty_output(folder: &Path) -> Result<bool, Error> {
    let manifest = read(folder)?;
    Ok(manifest.is_some_and(|manifest| {
        manifest.files.is_empty() && manifest.plugins.iter().any(|plugin| plugin == "parquet")
    }))
}

/// Whether the manifest of a folder says that a run wrote tables there and nothing else, or that a
/// batch wrote folders of tables there. Tables that a batch wrote may lie beside its inputs.
/// `budget` is the number of bytes that may be read for it, and is reduced by those that were.
fn lists_only_tables(folder: &Path, budget: &mut u64) -> Result<bool, Error> {
    let Some(manifest) = read_within(folder, budget)? else { return Ok(false) };
    let Manifest { files, units, .. } = manifest;
    let of_batch = units.iter().flat_map(|unit| &unit.files);
    let of_batch: Vec<&ListedFile> = of_batch.filter(|file| !file.is_manifest()).collect();
    let is_table = |file: &ListedFile| file.table_below(folder).is_some();
    let is_in_folder = |file: &&ListedFile| {
        file.table_below(folder).is_some_and(|table| table.parent() != Some(folder))
    };
    let is_any = !files.is_empty() || !of_batch.is_empty();
    Ok(is_any && files.iter().all(is_table) && of_batch.iter().all(is_in_folder))
}

/// The manifests of the folders in which a search found other files than tables, each read once.
pub(crate) struct FolderManifests<'f> {
    root: &'f Path,
    /// Whether a folder [is below one](Self::is_below_one).
    known: HashMap<PathBuf, bool>,
    /// How many more bytes of manifests may be read.
    budget: u64,
}

impl<'f> FolderManifests<'f> {
    /// Of a search in this folder and those below it.
    pub(crate) fn new(root: &'f Path) -> Self {
        Self { root, known: HashMap::new(), budget: MAX_MANIFEST }
    }

    /// Whether there is a manifest of tables in this folder, or in one around it up to the root.
    pub(crate) fn is_below_one(&mut self, folder: &Path) -> bool {
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

/// Notes about how the tables below a folder differ in name or length from those that manifests
/// there list, as a copy may be incomplete, or somebody removed, replaced or added some; about
/// folders without a manifest beside those with one; and about other files there.
pub(crate) fn differences(folder: &Path) -> Result<Vec<String>, Error> {
    let mut others = Vec::new();
    let files = files::below(folder, is_entered, |path| match FolderFile::from_path(path) {
        FolderFile::Table => FileChoice::Take,
        FolderFile::Side if is_manifest(path) => FileChoice::Take,
        FolderFile::Side => FileChoice::Skip,
        FolderFile::Other => {
            others.push(path.to_owned());
            FileChoice::Skip
        }
    })?;
    let (manifests, tables): (Vec<Input>, Vec<Input>) =
        files.into_iter().partition(|file| is_manifest(&file.path));
    let found: TableLengths = tables.into_iter().map(|table| (table.path, table.bytes)).collect();
    let folders = manifests.iter().filter_map(|manifest| manifest.path.parent());
    let listed: BTreeMap<&Path, TableLengths> = folders
        .map(|folder| (folder, listed_tables(folder)))
        .filter(|(_, tables)| !tables.is_empty())
        .collect();
    let all: HashSet<&PathBuf> = listed.values().flat_map(BTreeMap::keys).collect();
    let mut added: BTreeMap<&Path, Vec<&PathBuf>> = BTreeMap::new();
    let complete: HashSet<(&Path, &str)> = listed.keys().filter_map(|at| partition(at)).collect();
    let mut unfinished: BTreeMap<&Path, u64> = BTreeMap::new();
    for table in found.keys().filter(|table| !all.contains(table)) {
        // Its own folder is the nearest one with a manifest.
        if let Some(folder) = table.ancestors().find(|above| listed.contains_key(above)) {
            added.entry(folder).or_default().push(table);
            continue;
        }
        let is_beside = |at: &&Path| partition(at).is_some_and(|at| complete.contains(&at));
        if let Some(at) = table.ancestors().skip(1).find(is_beside) {
            *unfinished.entry(at).or_default() += 1;
        }
    }
    let note = |(at, tables): (&&Path, &u64)| {
        format!(
            "{} has {} and no {MANIFEST}, unlike the folders beside it: the run that wrote it is \
             not complete, or was killed, and tables may be missing; `sluice verify` checks the \
             folder",
            at.display(),
            units::pluralize(*tables, "table")
        )
    };
    let mut notes: Vec<String> = unfinished.iter().map(note).collect();
    for (folder, tables) in &listed {
        let missing = tables.keys().filter(|table| !found.contains_key(*table)).collect();
        let has_other_length = |(table, length): &(&PathBuf, &Option<u64>)| {
            let found = found.get(*table).copied().flatten();
            found.zip(**length).is_some_and(|(found, listed)| found != listed)
        };
        let changed = tables.iter().filter(has_other_length).map(|(table, _)| table).collect();
        let added = added.remove(folder).unwrap_or_default();
        let count = |tables: &Vec<&PathBuf>| units::count(tables.len() as u64);
        for (what, of) in [
            (format!("{} of them missing", count(&missing)), missing),
            (format!("{} of them with another length", count(&changed)), changed),
            (format!("and {} more in the folder", count(&added)), added),
        ] {
            notes.extend(difference(folder, tables.len(), &what, &of));
        }
    }
    if !others.is_empty() {
        notes.push(format!(
            "{} also has {}, not read{}; logs among these are inputs of their own",
            folder.display(),
            units::pluralize(others.len() as u64, "other file"),
            names(folder, &others.iter().collect::<Vec<_>>()),
        ));
    }
    Ok(notes)
}

/// The folder around one that is called `key=value`, and the key: other values may lie beside it.
fn partition(folder: &Path) -> Option<(&Path, &str)> {
    let (key, _) = folder.file_name()?.to_str()?.split_once('=')?;
    Some((folder.parent()?, key))
}

fn is_manifest(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == MANIFEST)
}

/// The tables that the manifest of a folder lists.
fn listed_tables(folder: &Path) -> TableLengths {
    let Ok(Some(manifest)) = read(folder) else { return TableLengths::new() };
    let tables = manifest.files.iter();
    tables.filter_map(|file| Some((file.table_below(folder)?, file.bytes))).collect()
}

impl ListedFile {
    fn is_manifest(&self) -> bool {
        self.path.as_ref().is_some_and(|path| is_manifest(Path::new(path)))
    }

    /// Its path, if it is a table below the folder of the manifest.
    fn table_below(&self, folder: &Path) -> Option<PathBuf> {
        let name = Path::new(self.path.as_ref()?);
        let is_plain = name.components().all(|part| matches!(part, Component::Normal(_)));
        let path = folder.join(name);
        (is_plain && is_table_below(folder, &path)).then_some(path)
    }
}

/// A note about some tables, if there are any, below a folder whose manifest lists `listed`.
fn difference(folder: &Path, listed: usize, what: &str, tables: &[&PathBuf]) -> Option<String> {
    if tables.is_empty() {
        return None;
    }
    Some(format!(
        "{} lists {}, {what}{}; `sluice verify` checks the folder",
        folder.join(MANIFEST).display(),
        units::pluralize(listed as u64, "table"),
        names(folder, tables),
    ))
}

/// `: ` or `, such as `, and the names of the first few files below a folder.
fn names(folder: &Path, files: &[&PathBuf]) -> String {
    let name = |file: &&PathBuf| {
        printable(&file.strip_prefix(folder).unwrap_or(file).to_string_lossy()).to_string()
    };
    let names = files.iter().take(MOST_NAMES).map(name).collect::<Vec<_>>().join(", ");
    let such_as = if files.len() > MOST_NAMES { ", such as " } else { ": " };
    format!("{such_as}{names}")
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
