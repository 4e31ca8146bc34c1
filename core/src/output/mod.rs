//! Output files: written under a temporary name beside the target, and published all together.
//!
//! A file under its final name is always whole: it was written, synced and renamed after every sink of
//! the run had finished. What a killed run leaves are files named `.NAME.*.sluice-tmp`, which the next
//! run with the same target removes.
//!
//! Many small files are kept in a hidden folder beside their places until then, see [`many`].
//!
//! Objects of a [store](crate::store) are written to local temporary files and put when they are published.
//!
//! A process that leaves publishing to another one puts its outputs into a room of its own, see [`staging`].
//!
//! Recordings are the exception: their files grow under their final names ([`Outputs::in_place`]), so
//! that what they have is there whatever happens.

mod atomic;
mod create;
pub mod faults;
mod file;
mod litter;
pub mod many;
mod objects;
mod publish;
mod renames;
mod replace;
pub mod staging;
mod targets;
mod temporary;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::files::{FileIdentity, is_special};
use crate::tasks::InlineTasks;
use crate::{Error, Tasks};

use atomic::temporary_path;
use faults::{FaultInjector, OutputStep, ask};
use litter::{live, remove_any, remove_stale};
use many::StagedFolder;
use objects::holds_objects;
use replace::{files_in_manifest, holds_batch};
use staging::StagingDir;
use targets::{real_path, resolve_link};

pub use atomic::{remove_file, replace_file, sync_folder};
pub use file::OutputFile;
pub use litter::{ListedLitter, is_used, remove_unfinished_manifest, sweep};
pub use many::OutputFiles;
pub use objects::remove_objects;

const TEMPORARY: &str = ".sluice-tmp";

/// The file that describes an output folder.
pub const MANIFEST: &str = "_manifest.json";

/// What becomes of a target that exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overwrite {
    /// The run is refused.
    #[default]
    Refuse,
    /// It is replaced when the run has succeeded.
    Replace,
    /// It is replaced, too, but nothing is continued: what is there may be this run's own work, from
    /// before it was interrupted.
    Redo,
}

/// A file that was published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedFile {
    /// Where it is.
    pub path: PathBuf,
    /// How many events or rows it has.
    pub rows: u64,
    /// How many bytes it has.
    pub bytes: u64,
    /// Its BLAKE3 hash in hex, where the run was to know it.
    pub blake3: Option<String>,
}

/// The outputs of a run: makes files under temporary names, and publishes them.
#[derive(Debug)]
pub struct Outputs {
    overwrite: Overwrite,
    hash: bool,
    inputs: BTreeSet<FileIdentity>,
    /// What others read that belong to the same batch.
    other_inputs: Arc<BTreeSet<FileIdentity>>,
    /// What killed runs left, as far as the whole batch has looked for it.
    litter: Arc<ListedLitter>,
    tasks: Arc<dyn Tasks>,
    in_place: bool,
    /// The names that files of targets have instead.
    names: BTreeMap<PathBuf, PathBuf>,
    /// Where they are put instead, by a process that leaves publishing to another one.
    staging: Option<Arc<StagingDir>>,
    /// How tests let it fail; nothing in any other run.
    faults: Option<Arc<FaultInjector>>,
    /// Bytes written so far.
    written: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Files that grow under their final names.
    growing: BTreeMap<PathBuf, Arc<File>>,
    /// Those of them that were not there before.
    fresh: BTreeSet<PathBuf>,
    /// Temporary files in the making, and rooms for many, by target.
    open: BTreeMap<PathBuf, PathBuf>,
    /// The places of all targets so far, however they were written.
    claimed: BTreeSet<PathBuf>,
    /// Files that are complete.
    staged: Vec<StagedOutput>,
    /// Many small files that are complete.
    staged_folders: Vec<StagedFolder>,
    /// Folders that get a manifest.
    folders: Vec<PathBuf>,
    /// Folders that were made for this run; removed again, if empty, when it fails.
    made: Vec<PathBuf>,
}

#[derive(Debug)]
struct StagedOutput {
    temporary: Option<PathBuf>,
    /// Where it is put: under its final name, unless outputs are staged.
    at: PathBuf,
    file: PublishedFile,
    /// Whether the run knew of a file that has the final name, and may replace it.
    replaces: bool,
}

impl Outputs {
    /// The outputs of a run that reads `inputs`, none of which may be written. Hashes are worked out
    /// only if `hash` says so.
    pub fn new(overwrite: Overwrite, hash: bool, inputs: &[PathBuf]) -> Self {
        let inputs = inputs.iter().filter_map(|path| FileIdentity::read(path)).collect();
        Self {
            overwrite,
            hash,
            inputs,
            other_inputs: Arc::default(),
            litter: Arc::default(),
            tasks: Arc::new(InlineTasks),
            in_place: false,
            names: BTreeMap::new(),
            staging: None,
            faults: None,
            written: AtomicU64::new(0),
            state: Mutex::default(),
        }
    }

    /// The same outputs, none of which may be written to these inputs of others either.
    pub fn with_protected_inputs(mut self, inputs: Arc<BTreeSet<FileIdentity>>) -> Self {
        self.other_inputs = inputs;
        self
    }

    /// The same outputs, as some of a batch: their folders are searched for what killed runs left once
    /// for the whole batch.
    pub fn with_litter(mut self, litter: Arc<ListedLitter>) -> Self {
        self.litter = litter;
        self
    }

    /// The same outputs, whose files grow under their final names.
    pub fn in_place(mut self, in_place: bool) -> Self {
        self.in_place = in_place;
        self
    }

    /// The same outputs, of which this target has another name. Of a folder, so does what is in it.
    pub fn with_name(mut self, target: &Path, name: PathBuf) -> Self {
        self.names.insert(target.to_owned(), name);
        self
    }

    /// The same outputs, which compress by these tasks.
    pub fn with_tasks(mut self, tasks: Arc<dyn Tasks>) -> Self {
        self.tasks = tasks;
        self
    }

    /// The same outputs, which fail as these faults say. For tests.
    pub fn with_faults(mut self, faults: Arc<FaultInjector>) -> Self {
        self.faults = Some(faults);
        self
    }

    /// How many bytes have been written so far.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// The files that grow under their final names, to be synced by whoever has the time.
    pub fn growing(&self) -> Vec<(PathBuf, Arc<File>)> {
        let state = self.state();
        state.growing.iter().map(|(path, file)| (path.clone(), Arc::clone(file))).collect()
    }

    /// The name that the file or folder for this target has: mostly its own.
    pub fn actual_path(&self, target: &Path) -> PathBuf {
        let inside = |(from, to): (&PathBuf, &PathBuf)| {
            let rest = target.strip_prefix(from).ok()?;
            // Joining nothing would make a folder of a file.
            Some(if rest.as_os_str().is_empty() { to.clone() } else { to.join(rest) })
        };
        self.names.iter().find_map(inside).unwrap_or_else(|| target.to_owned())
    }

    /// Declares a folder whose files are to be described by a manifest. It must be empty or new, and lie
    /// neither in nor around another one of the run: each manifest would have to describe the other.
    pub fn folder(&self, folder: &Path) -> Result<(), Error> {
        let folder = &self.actual_path(folder);
        let at = self.folder_at(folder)?;
        // Before it is judged, as for files.
        self.make_folder(&at)?;
        self.check_disjoint(folder)?;
        if self.overwrite == Overwrite::Refuse
            && holds_objects(folder)?.unwrap_or_else(|| is_used(folder))
        {
            return Err(Error::refused(format!(
                "the output folder exists and is not empty; --overwrite replaces it: {}",
                folder.display()
            )));
        }
        if holds_batch(folder) {
            return Err(Error::refused(format!(
                "the output folder holds the record of a batch; write elsewhere: {}",
                folder.display()
            )));
        }
        let mut replaced = files_in_manifest(folder).into_iter().chain([folder.join(MANIFEST)]);
        replaced.try_for_each(|path| self.check_not_input(&path))?;
        // Once, and not for each of what may be thousands of files.
        remove_stale(&at, None);
        self.state().folders.push(folder.to_owned());
        Ok(())
    }

    /// Notes that a target is written; no other file may have its name.
    fn claim(&self, target: &Path) -> Result<(), Error> {
        if self.state().claimed.insert(canonical_path(target)) {
            return Ok(());
        }
        Err(written_twice(target))
    }

    fn ask(&self, step: OutputStep) -> io::Result<()> {
        ask(self.faults.as_deref(), step)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The folder of a target, as something that can be opened.
fn folder_of(target: &Path) -> &Path {
    target.parent().filter(|f| !f.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Where a target in a folder that exists really lies: the same for every way to write it.
pub fn canonical_path(target: &Path) -> PathBuf {
    let folder = folder_of(target);
    let real = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    real.join(target.file_name().unwrap_or_default())
}

/// Whether something of this name is what a run keeps until it publishes it, and not an output.
pub(crate) fn is_litter(name: &str) -> bool {
    name.starts_with('.') && name.ends_with(TEMPORARY)
}

/// Whether several sinks may write there.
fn is_shared(target: &Path) -> bool {
    target == Path::new("-") || is_special(target)
}

fn written_twice(target: &Path) -> Error {
    Error::refused(format!("two sinks write to one file: {}", target.display()))
}

impl Drop for Outputs {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let staged = state.staged.iter().filter_map(|staged| staged.temporary.as_ref());
        let rooms = state.staged_folders.iter().filter_map(StagedFolder::path);
        for temporary in state.open.values().chain(staged).chain(rooms) {
            remove_any(temporary);
            live().remove(temporary);
        }
        // What was to grow and never did would only be in the way the next time.
        for (path, file) in &state.growing {
            if state.fresh.contains(path) && file.metadata().is_ok_and(|meta| meta.len() == 0) {
                drop(fs::remove_file(path));
            }
        }
        // What is below a folder sorts behind it: innermost first. Those that hold something stay.
        let made: BTreeSet<&PathBuf> = state.made.iter().collect();
        for folder in made.into_iter().rev() {
            drop(fs::remove_dir(folder));
        }
    }
}
