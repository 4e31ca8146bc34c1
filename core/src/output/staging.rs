//! Staging: outputs put together in a room of their own, by a process that leaves publishing them to another one; and
//! adopting what such a process made.
//!
//! Sinks know nothing of it: they name their outputs as ever, and look at what is there under these names. Only
//! what is created lies in the room.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};

use super::faults::{OutputStep, ask};
use super::{Outputs, Overwrite, PublishedFile, StagedOutput, folder_of, live, real_path};
use crate::Error;
use crate::files::is_special;
use crate::store::{StorePath, is_address};

/// Where outputs are put until somebody publishes them: for every place in the folders around some targets, one
/// below a room. What lies in one folder there lies in one folder here.
#[derive(Debug)]
pub struct StagingDir {
    root: PathBuf,
    /// The folders in which, and below which, outputs may be.
    around: BTreeSet<PathBuf>,
    /// What all of them lie in; the room stands for it.
    common: PathBuf,
    put: Mutex<Vec<StagedFile>>,
}

/// A file that was put into a room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagedFile {
    /// Where it is.
    pub place: PathBuf,
    /// What it is to be.
    pub file: PublishedFile,
}

impl StagingDir {
    /// Room for the files that sinks with these targets may write: the targets, and what is beside or below them.
    /// Relative targets are relative to the current folder.
    pub fn new(room: PathBuf, targets: &[PathBuf]) -> Self {
        let is_folder = |target: &Path| target.as_os_str().as_encoded_bytes().ends_with(b"/");
        let folder = |target: &PathBuf| match is_folder(target) || target.file_name().is_none() {
            true => real_path(target),
            false => real_path(folder_of(target)),
        };
        let around: BTreeSet<PathBuf> = targets.iter().map(folder).collect();
        // With a name of their own in the room, folders can be told apart by those who look.
        // Above a bucket there is nothing.
        let parent = |folder: &'_ PathBuf| {
            let parent = folder.parent().filter(|parent| is_address(parent) == is_address(folder));
            parent.unwrap_or(folder).to_owned()
        };
        let parents = around.iter().map(parent);
        let common = parents.reduce(|a, b| shared(&a, &b)).unwrap_or_default();
        Self { root: room, around, common, put: Mutex::default() }
    }

    /// Where the file for this target is put.
    ///
    /// `Err` if it is not in or below the folder of a target: it could not be published.
    pub fn place(&self, target: &Path) -> Result<PathBuf, Error> {
        let name = target.file_name().ok_or_else(|| self.outside(target))?;
        let folder =
            self.below(&real_path(folder_of(target))).ok_or_else(|| self.outside(target))?;
        Ok(folder.join(name))
    }

    /// Where what is in this folder is put.
    ///
    /// `Err` as for [`place`](Self::place).
    pub fn folder(&self, folder: &Path) -> Result<PathBuf, Error> {
        self.below(&real_path(folder)).ok_or_else(|| self.outside(folder))
    }

    /// The target of a file in the room: the whole path of where it is to be; nothing for a path that is not in
    /// the room, or that no target has.
    pub fn target(&self, place: &Path) -> Option<PathBuf> {
        let target = self.common.join(place.strip_prefix(&self.root).ok()?);
        self.below(folder_of(&target)).map(|_| target)
    }

    /// What was put into the room so far, manifests of folders last.
    pub fn put(&self) -> Vec<StagedFile> {
        self.list().clone()
    }

    /// Makes a folder of the room, and those it lies in. `Err` if what the room lies in is not there: it is not made anew.
    pub(super) fn make_all(&self, folder: &Path) -> io::Result<()> {
        make_below(&self.root, folder)
    }

    pub(super) fn note(&self, put: impl IntoIterator<Item = StagedFile>) {
        self.list().extend(put);
    }

    fn list(&self) -> MutexGuard<'_, Vec<StagedFile>> {
        self.put.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The folder in the room for a real one.
    fn below(&self, folder: &Path) -> Option<PathBuf> {
        let is_covered = folder.ancestors().any(|around| self.around.contains(around));
        let inner = folder.strip_prefix(&self.common).ok().filter(|_| is_covered)?;
        // Joining nothing would add a slash.
        Some(if inner.as_os_str().is_empty() { self.root.clone() } else { self.root.join(inner) })
    }

    fn outside(&self, target: &Path) -> Error {
        Error::refused(format!(
            "a sink writes a file beside none of its outputs, which only a run on this machine can have: {}",
            target.display()
        ))
    }
}

/// Makes a folder and those it lies in, as far as they are `root` or below it: what `root` lies in has to be there.
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

/// What two paths begin with.
fn shared(one: &Path, other: &Path) -> PathBuf {
    // Putting one together from its parts would make a path of an address.
    one.ancestors().find(|above| other.starts_with(above)).unwrap_or(Path::new("")).to_owned()
}

impl Outputs {
    /// The same outputs, put into a room when they are published. What is continued has to be new.
    pub fn staged(mut self, staging: std::sync::Arc<StagingDir>) -> Self {
        self.staging = Some(staging);
        self
    }

    /// Where the file for this target is put: mostly just there.
    pub(super) fn place_of(&self, target: &Path) -> Result<PathBuf, Error> {
        self.staging.as_ref().map_or_else(|| Ok(target.to_owned()), |staging| staging.place(target))
    }

    /// Where what is in this folder is put: mostly just there.
    pub(super) fn folder_at(&self, folder: &Path) -> Result<PathBuf, Error> {
        let staging = self.staging.as_ref();
        staging.map_or_else(|| Ok(folder.to_owned()), |staging| staging.folder(folder))
    }

    /// Takes over a complete file at `place`, which another process has synced: it will be published as `file`
    /// says, with the others. Goes with these outputs if they are not published.
    ///
    /// The target is judged as one that is [created](Self::create). Between file systems the file is copied; an
    /// object is copied when it is published, and stays.
    /// `Err` if it is not there as it was said to be.
    pub fn adopt(&self, place: &Path, file: PublishedFile) -> Result<(), Error> {
        let target = &file.path;
        if target == Path::new("-") || is_special(target) {
            return Err(Error::refused(format!(
                "only files can be handed on, and this is a device: {}",
                target.display()
            )));
        }
        check_length(place, file.bytes)?;
        self.make_folder(folder_of(target))?;
        self.check_not_input(target)?;
        self.check_target(target)?;
        let target = super::resolve_link(target)?;
        let folder = folder_of(&target);
        self.claim(&target)?;
        let moves =
            || mount_id(folder_of(place)).is_some_and(|here| mount_id(folder) == Some(here));
        let temporary = match (is_address(place), is_address(&target)) {
            (true, true) => place.to_owned(),
            (false, false) if moves() => place.to_owned(),
            (false, false) => self.copy_beside(place, &target)?,
            _ => {
                return Err(Error::internal("an output was put together in another kind of place"));
            }
        };
        let replaces = self.overwrite != Overwrite::Refuse;
        let file = PublishedFile { path: target.clone(), ..file };
        self.state().staged.push(StagedOutput {
            temporary: Some(temporary),
            at: target,
            file,
            replaces,
        });
        Ok(())
    }

    /// A copy of a file under a temporary name beside a target.
    fn copy_beside(&self, place: &Path, target: &Path) -> Result<PathBuf, Error> {
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let (temporary, mut to) = self.temporary(folder_of(target), &name)?;
        let mut copy = || -> io::Result<()> {
            self.ask(OutputStep::Write)?;
            io::copy(&mut fs::File::open(place)?, &mut to)?;
            ask(self.faults.as_deref(), OutputStep::Sync)?;
            to.sync_all()
        };
        if let Err(error) = copy() {
            super::remove_any(&temporary);
            live().remove(&temporary);
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
        "this file was handed on as one of {bytes} bytes, and is not: {}",
        place.display()
    )))
}

/// What files can be renamed within. Nothing, where the system does not say.
fn mount_id(folder: &Path) -> Option<(u32, u32, Option<u64>)> {
    let found = statx(CWD, folder, AtFlags::empty(), StatxFlags::MNT_ID).ok()?;
    let told = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::MNT_ID);
    Some((found.stx_dev_major, found.stx_dev_minor, told.then_some(found.stx_mnt_id)))
}
