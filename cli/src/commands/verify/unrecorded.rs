//! Files in output folders that no record names. Opens no log.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use sluice_io::escape::path_text;
use sluice_io::files::{self, FileIdentity};
use sluice_io::output::{MANIFEST, canonical_path};
use sluice_io::store::is_address;
use sluice_pipeline::batch::{BatchRecord, UnitRecord};

use super::listing::{is_inside, list, listing, names_in};
use crate::exit::Failure;

/// The files in folders `key=value` beside those of a batch that no unit has recorded, if they have
/// the extension of its files: readers of the dataset count them.
pub(super) fn unrecorded_tables(
    folder: &Path,
    units: &[&UnitRecord],
) -> Result<Vec<String>, Failure> {
    let files = units.iter().flat_map(|unit| &unit.files).map(|file| file.path.as_path());
    let known: BTreeSet<&Path> =
        files.filter(|path| path.is_relative() && is_inside(path)).collect();
    let (manifests, tables): (Vec<&Path>, Vec<&Path>) =
        known.iter().partition(|path| path.file_name().is_some_and(|name| name == MANIFEST));
    // What these manifests do not name is found where they are compared.
    let listed: BTreeSet<&Path> = manifests.iter().filter_map(|path| path.parent()).collect();
    let extensions: BTreeSet<Option<&OsStr>> = tables.iter().map(|path| path.extension()).collect();
    let keys: BTreeSet<(&Path, &str)> =
        tables.iter().filter_map(|path| outermost_partition(path)).collect();
    let datasets: BTreeSet<&Path> = keys.iter().map(|(dataset, _)| *dataset).collect();
    let mut unrecorded = Vec::new();
    for dataset in datasets {
        let names = folders_in(&folder.join(dataset))?;
        let is_partition =
            |name: &&OsString| key(name).is_some_and(|key| keys.contains(&(dataset, key)));
        for partition in names.iter().filter(is_partition).map(|name| dataset.join(name)) {
            let mut found = Vec::new();
            list(&folder.join(&partition), Path::new(""), &mut found)?;
            unrecorded.extend(found.iter().map(|path| partition.join(path)).filter(|path| {
                extensions.contains(&path.extension())
                    && !known.contains(&**path)
                    && !path.ancestors().any(|above| listed.contains(above))
            }));
        }
    }
    let inputs = || units.iter().flat_map(|unit| &unit.inputs).map(|input| &input.path);
    unrecorded.retain(|path| !FileIdentity::is_one_of(&folder.join(path), inputs()));
    let text = |path: &PathBuf| format!("{} is in no record of the batch", path_text(path));
    Ok(unrecorded.iter().map(text).collect())
}

/// The outermost folder `key=value` above a path: the folder that it is in, and the key.
fn outermost_partition(path: &Path) -> Option<(&Path, &str)> {
    let folders = path.ancestors().skip(1);
    folders.filter_map(|at| Some((at.parent()?, key(at.file_name()?)?))).last()
}

/// The key of a folder named `key=value`.
fn key(name: &OsStr) -> Option<&str> {
    name.to_str()?.split_once('=').map(|(key, _)| key)
}

/// The names of the folders in a folder, sorted, except temporary ones.
fn folders_in(folder: &Path) -> Result<Vec<OsString>, Failure> {
    let Some(objects) = files::objects_below(folder)? else {
        let is_folder = |name: &OsString| folder.join(name).is_dir();
        return Ok(names_in(folder).into_iter().filter(is_folder).collect());
    };
    let inside = objects.iter().filter_map(|object| object.path.strip_prefix(folder).ok());
    let folders = inside.filter_map(Path::parent).filter_map(|folder| folder.iter().next());
    let names: BTreeSet<OsString> = folders.map(OsStr::to_owned).collect();
    Ok(names.into_iter().collect())
}

/// The output folder of a single run that a path is in: its manifest lists every file.
pub(crate) fn output_folder_around(path: &Path) -> Result<Option<PathBuf>, Failure> {
    if files::is_stream(path) {
        return Ok(None);
    }
    let path = if is_address(path) { path.to_owned() } else { canonical_path(path) };
    for folder in path.ancestors().skip(1) {
        // An object store has nothing above its buckets.
        if is_address(&path) && !is_address(folder) {
            break;
        }
        let manifest = folder.join(MANIFEST);
        if files::exists(&manifest)
            && BatchRecord::read(folder)?.is_none()
            && listing(&manifest)?.is_some()
        {
            return Ok(Some(folder.to_owned()));
        }
    }
    Ok(None)
}
