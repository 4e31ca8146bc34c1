//! Staging: outputs written to a staging directory by one process, and adopted and published by
//! another one.
//!
//! Sinks are unaware of it: they use the final names of their outputs. Only newly created files are
//! in the staging directory.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use super::faults::OutputStep;
use super::{Outputs, Overwrite, PublishedFile, StagedOutput, folder_of, real_path};
use crate::Error;
use crate::files::is_stream;
use crate::store::{StorePath, is_address};

/// A staging directory: maps every path in the folders of some targets to a path below `root`.
/// Files in the same folder stay in the same folder.
#[derive(Debug)]
pub struct StagingDir {
    root: PathBuf,
    /// The folders in or below which outputs may be.
    around: BTreeSet<PathBuf>,
    /// Their common parent, which is mapped to `root`.
    common: PathBuf,
    put: Mutex<Vec<StagedFile>>,
}

/// A file in a staging directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagedFile {
    /// Where it is.
    pub place: PathBuf,
    /// The file it will be published as.
    pub file: PublishedFile,
    /// Whether it is an [index](Outputs::create_index).
    pub is_index: bool,
}

impl StagingDir {
    /// A staging directory for sinks with these targets, which may also write next to or below
    /// them. Relative targets are relative to the current folder.
    pub fn new(root: PathBuf, targets: &[PathBuf]) -> Self {
        let is_folder = |target: &Path| target.as_os_str().as_encoded_bytes().ends_with(b"/");
        let folder = |target: &PathBuf| match is_folder(target) || target.file_name().is_none() {
            true => real_path(target),
            false => real_path(folder_of(target)),
        };
        let around: BTreeSet<PathBuf> = targets.iter().map(folder).collect();
        // Each folder keeps its own name below the root, for readability. A bucket has no parent.
        let parent = |folder: &'_ PathBuf| {
            let parent = folder.parent().filter(|parent| is_address(parent) == is_address(folder));
            parent.unwrap_or(folder).to_owned()
        };
        let parents = around.iter().map(parent);
        let common = parents.reduce(|a, b| shared(&a, &b)).unwrap_or_default();
        Self { root, around, common, put: Mutex::default() }
    }

    /// The staged path of a target.
    ///
    /// `Err` if it is not in or below the folder of a target.
    pub fn place(&self, target: &Path) -> Result<PathBuf, Error> {
        let name = target.file_name().ok_or_else(|| self.outside(target))?;
        let folder =
            self.below(&real_path(folder_of(target))).ok_or_else(|| self.outside(target))?;
        Ok(folder.join(name))
    }

    /// The staged path of a folder.
    ///
    /// `Err` as for [`place`](Self::place).
    pub fn folder(&self, folder: &Path) -> Result<PathBuf, Error> {
        self.below(&real_path(folder)).ok_or_else(|| self.outside(folder))
    }

    /// The target of a staged file as an absolute path; `None` for a path that is not staged.
    pub fn target(&self, place: &Path) -> Option<PathBuf> {
        let target = self.common.join(place.strip_prefix(&self.root).ok()?);
        self.below(folder_of(&target)).map(|_| target)
    }

    /// The files staged so far, manifests last.
    pub fn put(&self) -> Vec<StagedFile> {
        self.list().clone()
    }

    /// Creates a folder below the root, and its parents. `Err` if the parent of the root does not
    /// exist.
    pub(super) fn make_all(&self, folder: &Path) -> io::Result<()> {
        make_below(&self.root, folder)
    }

    pub(super) fn note(&self, put: impl IntoIterator<Item = StagedFile>) {
        self.list().extend(put);
    }

    fn list(&self) -> MutexGuard<'_, Vec<StagedFile>> {
        self.put.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The staged path of a canonical folder.
    fn below(&self, folder: &Path) -> Option<PathBuf> {
        let is_covered = folder.ancestors().any(|around| self.around.contains(around));
        let inner = folder.strip_prefix(&self.common).ok().filter(|_| is_covered)?;
        // Joining an empty path would append a slash.
        Some(if inner.as_os_str().is_empty() { self.root.clone() } else { self.root.join(inner) })
    }

    fn outside(&self, target: &Path) -> Error {
        Error::refused(format!(
            "a sink writes outside the folders of its outputs, which only a run on this machine \
             can do: {}",
            target.display()
        ))
    }
}

/// Creates a folder and its parents down from `root`, whose own parent must exist.
pub(super) fn make_below(root: &Path, folder: &Path) -> io::Result<()> {
    let inner = folder.strip_prefix(root).unwrap_or(folder);
    let mut path = root.to_owned();
    make_one(&path)?;
    for part in inner.components() {
        path.push(part);
        make_one(&path)?;
    }
    Ok(())
}

fn make_one(folder: &Path) -> io::Result<()> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// The common prefix of two paths.
fn shared(one: &Path, other: &Path) -> PathBuf {
    // Joining components would turn an address into a path.
    one.ancestors().find(|above| other.starts_with(above)).unwrap_or(Path::new("")).to_owned()
}

impl Outputs {
    /// Stages the outputs instead of publishing them. Existing outputs cannot be continued.
    pub fn staged(mut self, staging: std::sync::Arc<StagingDir>) -> Self {
        self.staging = Some(staging);
        self
    }

    /// The path a target is written to: the target, unless outputs are staged.
    pub(super) fn place_of(&self, target: &Path) -> Result<PathBuf, Error> {
        self.staging.as_ref().map_or_else(|| Ok(target.to_owned()), |staging| staging.place(target))
    }

    /// The path a folder is written to: the folder, unless outputs are staged.
    pub(super) fn folder_at(&self, folder: &Path) -> Result<PathBuf, Error> {
        let staging = self.staging.as_ref();
        staging.map_or_else(|| Ok(folder.to_owned()), |staging| staging.folder(folder))
    }

    /// Adopts a complete file, synced by another process, to be published. It is removed if these
    /// outputs are not published.
    ///
    /// The target is checked as by [`create`](Self::create). The file is copied if it is on another
    /// file system; an object is copied on publication, and kept. `Err` if the file does not have
    /// the declared length.
    pub fn adopt(&self, staged: StagedFile) -> Result<(), Error> {
        let StagedFile { place, file, is_index } = staged;
        let (place, target) = (&*place, &file.path);
        if is_stream(target) {
            return Err(Error::refused(format!(
                "expected a file to publish, found a device: {}",
                target.display()
            )));
        }
        check_length(place, file.bytes)?;
        self.make_folder(folder_of(target))?;
        self.check_not_input(target)?;
        self.check_target(target)?;
        let target = self.follow(target, is_index)?;
        let folder = folder_of(&target);
        self.claim(&target)?;
        let moves =
            || mount_id(folder_of(place)).is_some_and(|here| mount_id(folder) == Some(here));
        let temporary = match (is_address(place), is_address(&target)) {
            (true, true) => place.to_owned(),
            (false, false) if moves() => place.to_owned(),
            (false, false) => self.copy_beside(place, &target)?,
            _ => {
                return Err(Error::internal("an output was staged in another kind of storage"));
            }
        };
        let replaces = self.overwrite != Overwrite::Refuse;
        let file = PublishedFile { path: target.clone(), ..file };
        let mut state = self.state();
        if is_index {
            state.indexes.insert(target.clone());
        }
        state.staged.push(StagedOutput { temporary: Some(temporary), at: target, file, replaces });
        Ok(())
    }

    /// Copies a file to a temporary name next to a target.
    fn copy_beside(&self, place: &Path, target: &Path) -> Result<PathBuf, Error> {
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let (temporary, mut to) = self.temporary(folder_of(target), &name)?;
        let mut copy = || -> io::Result<()> {
            self.inject(OutputStep::Write)?;
            io::copy(&mut fs::File::open(place)?, &mut to).map(drop)
        };
        if let Err(error) = copy() {
            super::remove_any(&temporary);
            return Err(Error::io("copy", place, error));
        }
        Ok(temporary)
    }
}

fn check_length(place: &Path, bytes: u64) -> Result<(), Error> {
    let fail = |e| Error::io("take over", place, e);
    let len = match StorePath::parse(place)? {
        Some(place) => Some(place.store.stat(&place.at).map_err(fail)?.len),
        None => {
            let meta = fs::symlink_metadata(place).map_err(fail)?;
            meta.is_file().then_some(meta.len())
        }
    };
    if len == Some(bytes) {
        return Ok(());
    }
    Err(Error::refused(format!(
        "this file does not have the declared length of {bytes} bytes: {}",
        place.display()
    )))
}

/// An identifier of the mount that a folder is on; `None` if unknown.
fn mount_id(folder: &Path) -> Option<(u32, u32, Option<u64>)> {
    let found = statx(CWD, folder, AtFlags::empty(), StatxFlags::MNT_ID).ok()?;
    let has_id = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::MNT_ID);
    Some((found.stx_dev_major, found.stx_dev_minor, has_id.then_some(found.stx_mnt_id)))
}
