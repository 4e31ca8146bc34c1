//! Checks targets: whether a run may write there. Changes nothing.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use super::litter::{own_short, used_temporary};
use super::{Outputs, Overwrite, canonical_path, folder_of};
use crate::Error;
use crate::files::{FileIdentity, is_stream};
use crate::store::{StorePath, is_address};

impl Outputs {
    /// Checks a target before anything is done, as [`create`](Self::create) does.
    pub fn check_target(&self, target: &Path) -> Result<(), Error> {
        if is_stream(target) {
            return Ok(());
        }
        if let Some(place) = StorePath::parse(target)? {
            return self.check_object(target, &place);
        }
        let Ok(meta) = fs::metadata(target) else { return Ok(()) };
        let path = target.display();
        self.check_not_input(target)?;
        if meta.is_dir() {
            return Err(Error::refused(format!("the output must be a file, not a folder: {path}")));
        }
        if self.overwrite == Overwrite::Refuse {
            return Err(Error::refused(format!(
                "the output exists; --overwrite replaces it: {path}"
            )));
        }
        Ok(())
    }

    pub(super) fn check_disjoint(&self, folder: &Path) -> Result<(), Error> {
        let ours = real_path(folder);
        let meets = |other: &&PathBuf| {
            let other = real_path(other);
            ours.starts_with(&other) || other.starts_with(&ours)
        };
        let state = self.state();
        let Some(other) = state.folders.iter().find(meets) else { return Ok(()) };
        let (folder, other) = (folder.display(), other.display());
        Err(Error::refused(format!(
            "two sinks write into one folder; give each sink its own folder: {folder} and {other}"
        )))
    }

    /// What killed runs have left of an index: those that they wrote, and those that they had
    /// taken away; sorted. Nothing of objects.
    pub fn abandoned_indexes(&self, target: &Path) -> Vec<PathBuf> {
        self.abandoned_at(&self.follow(target, true).unwrap_or_else(|_| target.to_owned()))
    }

    fn abandoned_at(&self, target: &Path) -> Vec<PathBuf> {
        own_short(target).map_or_else(Vec::new, |name| self.litter.of(folder_of(target), &name))
    }

    /// [Resolves a link](resolve_link), to an index also where a killed run has taken that away.
    pub(super) fn follow(&self, target: &Path, is_index: bool) -> Result<PathBuf, Error> {
        let resolved = resolve_link(target);
        if !is_index {
            return resolved;
        }
        resolved.or_else(|error| {
            let mut at = target.to_owned();
            // As many as the system follows.
            for _ in 0..40 {
                let Ok(next) = at.read_link() else { break };
                at = canonical_path(&folder_of(&at).join(next));
            }
            match at.is_symlink() || self.abandoned_at(&at).is_empty() {
                true => Err(error),
                false => Ok(at),
            }
        })
    }

    /// Refuses to write an index at the same time as another run, after its temporary file has been
    /// created: of two runs that begin together, at most one continues.
    pub(super) fn expect_alone(&self, index: &Path, temporary: &Path) -> Result<(), Error> {
        // A batch has locked its folder, in which each of its many runs would list the files of
        // all others.
        if self.shares_folder_of(index) {
            return Ok(());
        }
        let Some(used) = used_temporary(index, temporary) else { return Ok(()) };
        Err(Error::refused(format!(
            "another run is writing this output; wait until it has ended, or write elsewhere; if \
             there is none, remove {}: {}",
            used.display(),
            index.display()
        )))
    }

    /// Refuses to replace or remove an input. Needs the target's folder to exist.
    pub(super) fn check_not_input(&self, target: &Path) -> Result<(), Error> {
        if !self.is_input(target) {
            return Ok(());
        }
        let path = target.display();
        Err(Error::refused(format!("the output is also an input; write elsewhere: {path}")))
    }

    /// Whether a path is an input of this run or of its batch.
    fn is_input(&self, path: &Path) -> bool {
        let inputs = [&self.inputs, &*self.other_inputs];
        FileIdentity::read(path)
            .is_some_and(|identity| inputs.iter().any(|inputs| inputs.contains(&identity)))
    }
}

/// Refuses a name that is longer than its file system allows, which only renaming the complete file
/// would find. Needs the target's folder to exist.
pub(super) fn check_name_length(target: &Path) -> Result<(), Error> {
    let is_too_long = || {
        let found = fs::symlink_metadata(target);
        found.is_err_and(|error| error.kind() == io::ErrorKind::InvalidFilename)
    };
    if is_address(target) || !is_too_long() {
        return Ok(());
    }
    let len = target.file_name().map_or(0, |name| name.len());
    let most = rustix::fs::statvfs(folder_of(target)).map(|fs| fs.f_namemax).ok();
    let most = most.filter(|most| *most < len as u64);
    let limit = most.map_or_else(
        || "the path is longer than the system allows".to_owned(),
        |most| format!("a name has at most {most} bytes here, this one has {len}"),
    );
    Err(Error::refused(format!("{limit}; choose a shorter one: {}", target.display())))
}

/// Resolves a link: its destination is replaced, and the link stays.
fn resolve_link(target: &Path) -> Result<PathBuf, Error> {
    if !target.is_symlink() {
        return Ok(target.to_owned());
    }
    target.canonicalize().map_err(|error| {
        let error = Error::io("follow the link", target, error);
        match error.is_missing().then(|| target.read_link()) {
            Some(Ok(missing)) => error.with_detail(&format!(
                "it points to {}, and Sluice creates no files through links: remove the link, or \
                 create its target",
                missing.display()
            )),
            _ => error,
        }
    })
}

/// The canonical path of a folder that may not exist yet.
pub(super) fn real_path(folder: &Path) -> PathBuf {
    if is_address(folder) {
        // An address can be spelled in several ways.
        let place = StorePath::parse(folder).ok().flatten();
        return place.map_or_else(|| folder.to_owned(), |place| place.folder().at.path());
    }
    let here =
        |folder: &Path| if folder.as_os_str().is_empty() { ".".into() } else { folder.to_owned() };
    let found =
        folder.ancestors().find_map(|there| Some((there, here(there).canonicalize().ok()?)));
    let Some((there, mut real)) = found else { return folder.to_owned() };
    for part in folder.strip_prefix(there).unwrap_or(Path::new("")).components() {
        match part {
            Component::ParentDir => drop(real.pop()),
            part => real.push(part),
        }
    }
    real
}
