//! Replaces the outputs of an earlier run in a folder: they are found in its manifest, moved aside,
//! and removed once the new files are published. Touches nothing that no manifest lists.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::faults::OutputStep;
use super::new_folders::remove_emptied;
use super::renames::rename_new;
use super::temporary_names::INDEX;
use super::{MANIFEST, Outputs, PublishedFile, folder_of, objects, remove_any};
use crate::store::is_address;
use crate::{Error, files};

/// The part of an old manifest that matters here.
#[derive(Deserialize)]
struct OldManifest {
    units: Option<IgnoredAny>,
    #[serde(default)]
    files: Vec<OldManifestFile>,
}

#[derive(Deserialize)]
struct OldManifestFile {
    path: Option<String>,
    #[serde(default)]
    rows: u64,
    #[serde(default)]
    bytes: u64,
    #[serde(default)]
    blake3: Option<String>,
}

impl OldManifest {
    fn read(folder: &Path) -> Option<Self> {
        serde_json::from_slice(&files::read(&folder.join(MANIFEST)).ok()?).ok()
    }
}

/// Whether a folder holds the record of a batch.
pub(super) fn holds_batch(folder: &Path) -> bool {
    OldManifest::read(folder).is_some_and(|manifest| manifest.units.is_some())
}

/// The files listed in a folder's manifest, which a new run replaces or removes.
pub(super) fn files_in_manifest(folder: &Path) -> Vec<PathBuf> {
    let files = OldManifest::read(folder).map(|old| old.files).unwrap_or_default();
    let names = files.into_iter().filter_map(|file| file.path).filter(is_plain);
    names.map(|name| folder.join(name)).collect()
}

/// The files listed in the manifest of a folder that is extended, without those that new files
/// replace.
pub(super) fn kept_files(folder: &Path, files: &[PublishedFile]) -> Vec<PublishedFile> {
    let replaced: BTreeSet<&Path> = files.iter().map(|file| &*file.path).collect();
    let listed = OldManifest::read(folder).map(|old| old.files).unwrap_or_default();
    let kept = listed.into_iter().filter_map(|file| {
        let OldManifestFile { path, rows, bytes, blake3 } = file;
        let path = folder.join(path.filter(is_plain)?);
        (!replaced.contains(&*path)).then_some(PublishedFile { path, rows, bytes, blake3 })
    });
    kept.collect()
}

/// A run only removes files in the folder, whatever the manifest says.
fn is_plain(name: &String) -> bool {
    Path::new(name).components().all(|part| matches!(part, Component::Normal(_)))
}

/// The files of an earlier run in one folder that no new file replaces.
#[derive(Debug)]
pub(super) struct StaleFiles<'f> {
    folder: &'f Path,
    paths: Vec<PathBuf>,
}

/// The files in the manifests of `folders` that `files` does not replace. Those of `extended`
/// folders stay.
pub(super) fn find_stale<'f>(
    folders: &'f [PathBuf],
    extended: &BTreeSet<PathBuf>,
    files: &[PublishedFile],
) -> Vec<StaleFiles<'f>> {
    let known: BTreeSet<&Path> = files.iter().map(|file| &*file.path).collect();
    let of_folder = |folder: &'f PathBuf| {
        if extended.contains(folder) {
            return StaleFiles { folder, paths: Vec::new() };
        }
        let mut paths = files_in_manifest(folder);
        paths.retain(|path| !known.contains(&**path));
        StaleFiles { folder, paths }
    };
    folders.iter().map(of_folder).collect()
}

impl StaleFiles<'_> {
    /// Removes the files that still exist, and subfolders that are empty then.
    pub(super) fn remove(&self) {
        // The new files are published: files that cannot be removed are just no longer part of the
        // output.
        if is_address(self.folder) {
            drop(objects::remove_objects(self.paths.clone()));
            return;
        }
        self.paths.iter().filter(|path| is_file(path)).for_each(|path| drop(fs::remove_file(path)));
        remove_emptied(self.folder, &self.paths);
    }

    /// All of them.
    pub(super) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.paths.iter().map(PathBuf::as_path)
    }

    /// Those that are in the way of a new file or its folder.
    fn in_the_way<'s>(&'s self, places: &'s NewPaths<'_>) -> impl Iterator<Item = &'s Path> {
        let below = |path: &&Path| path.ancestors().skip(1).any(|a| places.files.contains(a));
        let blocks = move |path: &&Path| places.folders.contains(path) || below(path);
        self.paths.iter().map(PathBuf::as_path).filter(blocks)
    }
}

/// The paths of new files, and of their folders below the roots with manifests.
#[derive(Default)]
struct NewPaths<'p> {
    files: BTreeSet<&'p Path>,
    folders: BTreeSet<&'p Path>,
}

impl<'p> NewPaths<'p> {
    fn new(files: &'p [PublishedFile], roots: &[&Path]) -> Self {
        let paths = || files.iter().map(|file| &*file.path);
        let is_below =
            |folder: &&Path| roots.iter().any(|root| folder != root && folder.starts_with(root));
        let mut folders = BTreeSet::new();
        for path in paths() {
            for folder in path.ancestors().skip(1).take_while(is_below) {
                // The parents of a known folder are known, too.
                if !folders.insert(folder) {
                    break;
                }
            }
        }
        Self { files: paths().collect(), folders }
    }
}

/// Files of an earlier run that are in the way, its manifests and its indexes: moved aside until
/// the new files are published.
#[derive(Debug, Default)]
pub(super) struct MovedAside {
    /// Their original and current paths.
    moved: Vec<(PathBuf, PathBuf)>,
    /// Folders that became empty, innermost first.
    removed: Vec<PathBuf>,
    dirs: Vec<(PathBuf, File)>,
}

impl MovedAside {
    /// Moves aside the manifests, these indexes, and everything in the way of `files`. On failure,
    /// restores all.
    pub(super) fn move_aside(
        outputs: &Outputs,
        (stale, indexes): (&[StaleFiles<'_>], Vec<&Path>),
        files: &[PublishedFile],
    ) -> Result<Self, Error> {
        let mut aside = Self::default();
        for index in indexes.into_iter().filter(|index| is_file(index)) {
            if let Err(error) = aside.put_index(outputs, index) {
                aside.restore();
                return Err(error);
            }
        }
        let named = stale.iter().filter(|stale| !stale.paths.is_empty());
        let roots: Vec<&Path> = named.map(|stale| stale.folder).collect();
        let places =
            if roots.is_empty() { NewPaths::default() } else { NewPaths::new(files, &roots) };
        for stale in stale {
            let manifest = stale.folder.join(MANIFEST);
            let paths = stale.in_the_way(&places).chain([&*manifest]);
            let paths: Vec<&Path> = paths.filter(|path| is_file(path)).collect();
            if let Err(error) = aside.put(outputs, stale.folder, &paths) {
                aside.restore();
                return Err(error);
            }
        }
        Ok(aside)
    }

    /// Moves an index aside, to a name by which it can be told what it was.
    fn put_index(&mut self, outputs: &Outputs, index: &Path) -> Result<(), Error> {
        let name = index.file_name().unwrap_or_default().to_string_lossy();
        let aside = |temporary: &Path| rename_new(index, temporary);
        let (place, ()) = outputs.reserve(folder_of(index), (&name, INDEX), aside)?;
        self.moved.push((index.to_owned(), place));
        Ok(())
    }

    fn put(&mut self, outputs: &Outputs, folder: &Path, paths: &[&Path]) -> Result<(), Error> {
        if paths.is_empty() {
            return Ok(());
        }
        let (dir, lock) = outputs.temporary_folder(folder)?;
        self.dirs.push((dir.clone(), lock));
        for (number, path) in paths.iter().enumerate() {
            let place = dir.join(number.to_string());
            let moved = outputs.inject(OutputStep::Rename).and_then(|()| fs::rename(path, &place));
            moved.map_err(|e| Error::io("replace", *path, e))?;
            self.moved.push(((*path).to_owned(), place));
        }
        self.removed.extend(remove_emptied(folder, paths));
        Ok(())
    }

    /// Restores everything.
    pub(super) fn restore(self) {
        // Further errors are ignored: the first one is reported. What cannot be restored stays
        // where it is.
        self.removed.iter().rev().for_each(|folder| drop(fs::create_dir(folder)));
        self.moved.iter().for_each(|(was, is)| drop(rename_new(is, was)));
        for (dir, _lock) in self.dirs {
            drop(fs::remove_dir(&dir));
        }
    }

    /// Removes the files permanently.
    pub(super) fn discard(self) {
        self.moved.iter().for_each(|(_, place)| remove_any(place));
        for (dir, _lock) in self.dirs {
            remove_any(&dir);
        }
    }
}

/// Whether something other than a folder is there, without following links.
fn is_file(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| !meta.is_dir())
}
