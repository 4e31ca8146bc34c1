//! Reads manifests and reports, and lists folders. Compares nothing.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;
use sluice_io::escape::path_from_text;
use sluice_io::files;
use sluice_io::output::MANIFEST;
use sluice_model::Error;
use sluice_pipeline::batch::Status;

use super::result::RecordedFile;
use crate::exit::Failure;

/// The part of manifests and reports that is verified.
#[derive(Debug, Deserialize)]
pub(super) struct FileListing {
    pub(super) files: Option<Vec<RecordedFile>>,
    /// The error of a failed run.
    pub(super) error: Option<String>,
    #[serde(default)]
    pub(super) partial: bool,
    /// In reports: whether the run was interrupted.
    #[serde(default)]
    pub(super) interrupted: bool,
    /// In reports of batches: the result of each input.
    #[serde(default)]
    pub(super) units: Vec<ReportedUnit>,
}

/// The result of an input in the report of a batch.
#[derive(Debug, Deserialize)]
pub(super) struct ReportedUnit {
    #[serde(deserialize_with = "path_from_text")]
    pub(super) input: PathBuf,
    pub(super) status: Status,
    pub(super) error: Option<String>,
}

/// Reads a manifest or a report; `None` if the file is neither.
pub(super) fn listing(path: &Path) -> Result<Option<FileListing>, Failure> {
    let bytes = files::read(path)?;
    let listing: Option<FileListing> = serde_json::from_slice(&bytes).ok();
    Ok(listing.filter(|listing| listing.files.is_some() || listing.error.is_some()))
}

/// The names of what is in a folder, sorted, except temporary files.
pub(super) fn names_in(folder: &Path) -> Vec<OsString> {
    let names = fs::read_dir(folder).into_iter().flatten().flatten().map(|file| file.file_name());
    let mut names: Vec<OsString> = names.filter(|name| !is_litter(name)).collect();
    names.sort();
    names
}

/// Whether a path leads to something inside of a folder.
pub(super) fn is_inside(path: &Path) -> bool {
    path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
}

/// Lists all files below `folder`, sorted, except the manifest and temporary files of killed runs.
pub(super) fn list(folder: &Path, below: &Path, found: &mut Vec<PathBuf>) -> Result<(), Failure> {
    if let Some(objects) = files::objects_below(folder)? {
        let inside = objects.iter().filter_map(|object| object.path.strip_prefix(folder).ok());
        let is_output = |path: &&Path| !path.iter().any(is_litter) && *path != Path::new(MANIFEST);
        found.extend(inside.filter(is_output).map(Path::to_owned));
        return Ok(());
    }
    let here = folder.join(below);
    let fail = |e| Error::io("list", &here, e);
    let mut inside = Vec::new();
    for file in fs::read_dir(&here).map_err(fail)? {
        let file = file.map_err(fail)?;
        inside.push((file.file_name(), file.file_type().map_err(fail)?.is_dir()));
    }
    inside.sort();
    for (name, is_folder) in inside {
        let path = below.join(&name);
        if is_litter(&name) || path == Path::new(MANIFEST) {
            continue;
        }
        if is_folder {
            list(folder, &path, found)?;
        } else {
            found.push(path);
        }
    }
    Ok(())
}

/// Whether the name is that of a temporary file or folder that a killed run left.
fn is_litter(name: &OsStr) -> bool {
    let bytes = name.as_encoded_bytes();
    bytes.starts_with(b".") && bytes.ends_with(b".sluice-tmp")
}
