//! Output files: written under a temporary name beside the target, and published all together.
//!
//! A file under its final name is always complete: it was written, synced and renamed after every
//! sink of the run had finished. A killed run leaves files named `.NAME.*.sluice-tmp`, which the
//! next run with the same target removes.
//!
//! An index, which names the other files of an output, is published last: see
//! [`Outputs::create_index`].
//!
//! Many small files are staged in a hidden folder next to their targets, see [`many`].
//!
//! Objects of a [store](crate::store) are written to local temporary files and uploaded on
//! publication.
//!
//! A process whose outputs are published by another one writes to a staging directory, see
//! [`staging`].
//!
//! Recordings are the exception: their files grow under their final names ([`Outputs::in_place`]),
//! so that nothing is lost whatever happens.

mod atomic;
mod create;
mod disk_file;
pub mod faults;
mod file;
mod free_space;
mod litter;
pub mod many;
mod new_folders;
mod objects;
mod publish;
mod published_objects;
mod renames;
mod replace;
mod shared;
pub mod staging;
mod sync_thread;
mod targets;
mod temporary;
mod temporary_names;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::files::{FileIdentity, TEMPORARY};
use crate::store::is_address;
use crate::tasks::TaskPool;

use faults::{FaultInjector, OutputStep, flush_in_background, inject};
use litter::{remove_abandoned, remove_any, remove_stale};
use many::StagedFolder;
use objects::holds_objects;
use replace::{files_in_manifest, holds_batch};
use staging::StagingDir;
use targets::real_path;

pub use atomic::{remove_file, replace_file, sync_folder};
pub use file::OutputFile;
pub use free_space::free_space;
pub use litter::{
    ListedLitter, ReservedName, is_being_written, is_used, remove_unfinished, sweep, sweep_folder,
};
pub use many::OutputFiles;
pub use new_folders::{NewFolders, remove_emptied};
pub use objects::{remove_objects, replace_object};
pub use shared::SharedOutput;
pub use sync_thread::SyncThread;
pub use temporary_names::{is_running, process_start};

/// The file that describes an output folder.
pub const MANIFEST: &str = "_manifest.json";

/// What to do if a target exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overwrite {
    /// Refuse the run.
    #[default]
    Refuse,
    /// Replace it when the run succeeds.
    Replace,
    /// Replace it, but never continue it: it may be this run's own output from before an
    /// interruption.
    Redo,
}

/// A published file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedFile {
    /// Where it is.
    pub path: PathBuf,
    /// The number of its events or rows.
    pub rows: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// Its BLAKE3 hash in hex, if the run computes hashes.
    pub blake3: Option<String>,
}

/// How others changed a file that grew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Displacement {
    /// They moved it, or one of its names.
    Moved,
    /// They removed it, and it has no other name.
    Removed,
    /// They truncated it, and perhaps moved it, too.
    Truncated,
}

/// The outputs of a run: creates files under temporary names, and publishes them together.
#[derive(Debug)]
pub struct Outputs {
    overwrite: Overwrite,
    hash: bool,
    inputs: BTreeSet<FileIdentity>,
    /// The inputs of other runs of the same batch.
    other_inputs: Arc<BTreeSet<FileIdentity>>,
    /// The litter that the batch has listed so far.
    litter: Arc<ListedLitter>,
    tasks: TaskPool,
    in_place: bool,
    /// The folders into which runs at the same time write files.
    shared_folders: Vec<PathBuf>,
    /// Targets that are renamed.
    names: BTreeMap<PathBuf, PathBuf>,
    /// The staging directory, if another process publishes.
    staging: Option<Arc<StagingDir>>,
    /// Whether nothing is to be waited for any longer.
    abort: Arc<AtomicBool>,
    /// Faults injected by tests.
    faults: Option<Arc<FaultInjector>>,
    /// Bytes written so far.
    written: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Files that grow under their final names.
    growing: BTreeMap<PathBuf, Arc<File>>,
    /// The events in each of them.
    events_in_growing: BTreeMap<PathBuf, Arc<AtomicU64>>,
    /// Those of them that this run created.
    fresh: BTreeSet<PathBuf>,
    /// Those that others changed before they were complete.
    displaced: Vec<(PathBuf, Displacement)>,
    /// Open temporary files and staging directories, by target.
    open: BTreeMap<PathBuf, PathBuf>,
    /// The canonical paths of all targets so far.
    claimed: BTreeSet<PathBuf>,
    /// Those of the targets that are indexes, by the paths they are renamed to.
    indexes: BTreeSet<PathBuf>,
    /// Files that are complete.
    staged: Vec<StagedOutput>,
    /// Staging directories that are complete.
    staged_folders: Vec<StagedFolder>,
    /// Folders that get a manifest.
    folders: Vec<PathBuf>,
    /// Those of them whose files stay.
    extended: BTreeSet<PathBuf>,
    /// Folders created for this run; removed again, if empty, when it fails.
    made: NewFolders,
    /// What is said of copies that could not be removed.
    leftover: Option<String>,
}

#[derive(Debug)]
struct StagedOutput {
    temporary: Option<PathBuf>,
    /// The path it is renamed to: its final name, unless outputs are staged.
    at: PathBuf,
    file: PublishedFile,
    /// Whether it may replace a file of that name.
    replaces: bool,
}

impl State {
    fn is_index(&self, staged: &StagedOutput) -> bool {
        self.indexes.contains(&staged.at)
    }

    /// Files on this machine that are complete, the indexes among them or the others: their
    /// temporary names, and themselves.
    fn local(&self, indexes: bool) -> impl Iterator<Item = (&PathBuf, &StagedOutput)> {
        let is_local = move |staged: &&StagedOutput| {
            self.is_index(staged) == indexes && !is_address(&staged.at)
        };
        let staged = self.staged.iter().filter(is_local);
        staged.filter_map(|staged| Some((staged.temporary.as_ref()?, staged)))
    }

    /// Removes a growing file that is still empty: it would only block the next run.
    fn remove_if_empty(&self, path: &Path) {
        let is_empty = |file: &Arc<File>| file.metadata().is_ok_and(|meta| meta.len() == 0);
        if self.fresh.contains(path) && self.growing.get(path).is_some_and(is_empty) {
            drop(fs::remove_file(path));
        }
    }
}

impl Outputs {
    /// The outputs of a run that reads `inputs`, which must not be overwritten. Hashes are computed
    /// only if `hash` is set.
    pub fn new(overwrite: Overwrite, hash: bool, inputs: &[PathBuf]) -> Self {
        let inputs = inputs.iter().filter_map(|path| FileIdentity::of_input(path)).collect();
        Self {
            overwrite,
            hash,
            inputs,
            other_inputs: Arc::default(),
            litter: Arc::default(),
            tasks: TaskPool::default(),
            in_place: false,
            shared_folders: Vec::new(),
            names: BTreeMap::new(),
            staging: None,
            abort: Arc::default(),
            faults: None,
            written: AtomicU64::new(0),
            state: Mutex::default(),
        }
    }

    /// Protects these inputs of other runs from being overwritten, too.
    pub fn with_protected_inputs(mut self, inputs: Arc<BTreeSet<FileIdentity>>) -> Self {
        self.other_inputs = inputs;
        self
    }

    /// Shares the list of litter with other runs of a batch, so that folders are searched only
    /// once.
    pub fn with_litter(mut self, litter: Arc<ListedLitter>) -> Self {
        self.litter = litter;
        self
    }

    /// Makes files grow under their final names.
    pub fn in_place(mut self, in_place: bool) -> Self {
        self.in_place = in_place;
        self
    }

    /// Says into which folders runs at the same time write files, by their canonical paths.
    pub fn in_shared_folders(mut self, folders: &[PathBuf]) -> Self {
        self.shared_folders = folders.to_vec();
        self
    }

    /// Whether runs at the same time write files into the folder of a target. The name of a file
    /// beside it must then follow from that of the target: whether another name is free depends on
    /// what the others have published so far.
    pub fn shares_folder_of(&self, target: &Path) -> bool {
        let folder = canonical_path(target);
        self.shared_folders.iter().any(|shared| Some(&**shared) == folder.parent())
    }

    /// Renames a target, and everything in it if it is a folder.
    pub fn with_name(mut self, target: &Path, name: PathBuf) -> Self {
        self.names.insert(target.to_owned(), name);
        self
    }

    /// Compresses and syncs on this pool.
    pub fn with_tasks(mut self, tasks: TaskPool) -> Self {
        self.tasks = tasks;
        self
    }

    /// Ends rolling back in a store when this is raised; what is left then is in the error.
    pub fn with_abort(mut self, abort: Arc<AtomicBool>) -> Self {
        self.abort = abort;
        self
    }

    /// Injects faults. For tests.
    pub fn with_faults(mut self, faults: Arc<FaultInjector>) -> Self {
        self.faults = Some(faults);
        self
    }

    /// The number of bytes written so far.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// The files that grow under their final names.
    pub fn growing(&self) -> Vec<PathBuf> {
        self.state().growing.keys().cloned().collect()
    }

    /// The number of events in a file that grows, as far as its sink [says](OutputFile::set_rows),
    /// which rises while it is written; `None` for other targets.
    pub fn events_in_growing(&self, target: &Path) -> Option<Arc<AtomicU64>> {
        self.state().events_in_growing.get(&self.actual_path(target)).cloned()
    }

    /// Brings what has been written to these files so far to disk when it is called, on any thread.
    pub fn growing_sync(&self) -> impl FnOnce() -> Result<(), Error> + Send + use<> {
        let (growing, faults) = (self.state().growing.clone(), self.faults.clone());
        move || {
            growing.into_iter().try_for_each(|(path, file)| {
                let synced = flush_in_background(faults.as_deref(), || file.sync_data());
                synced.map_err(|error| Error::io("write", path, error))
            })
        }
    }

    /// The complete files that grew, and that others changed meanwhile.
    pub fn displaced(&self) -> Vec<(PathBuf, Displacement)> {
        self.state().displaced.clone()
    }

    /// A sentence about copies of replaced objects that publishing could not remove, if any.
    pub fn leftover(&self) -> Option<String> {
        self.state().leftover.clone()
    }

    /// The actual path of a target: mostly its own.
    pub fn actual_path(&self, target: &Path) -> PathBuf {
        let inside = |(from, to): (&PathBuf, &PathBuf)| {
            let rest = target.strip_prefix(from).ok()?;
            // Joining an empty path would append a slash.
            Some(if rest.as_os_str().is_empty() { to.clone() } else { to.join(rest) })
        };
        self.names.iter().find_map(inside).unwrap_or_else(|| target.to_owned())
    }

    /// The paths of all files that are complete.
    pub fn complete(&self) -> BTreeSet<PathBuf> {
        let state = self.state();
        let folders = state.staged_folders.iter().flat_map(StagedFolder::files);
        state
            .staged
            .iter()
            .map(|staged| staged.file.clone())
            .chain(folders)
            .map(|f| f.path)
            .collect()
    }

    /// Drops everything but what is in these targets: of the sinks that are complete although the
    /// run has failed.
    pub fn keep_only(&self, targets: &[PathBuf]) {
        let targets: Vec<PathBuf> = targets.iter().map(|target| self.actual_path(target)).collect();
        let is_kept = |path: &Path| targets.iter().any(|target| path.starts_with(target));
        let mut state = self.state();
        for staged in state.staged.extract_if(.., |staged| !is_kept(&staged.file.path)) {
            staged.temporary.iter().for_each(|temporary| remove_any(temporary));
        }
        for mut staged in state.staged_folders.extract_if(.., |staged| !is_kept(staged.folder())) {
            staged.discard();
        }
        state.folders.retain(|folder| is_kept(folder));
    }

    /// Declares a folder that gets a manifest. It must be empty or new, and must not contain, or be
    /// contained in, another such folder of the run.
    pub fn folder(&self, folder: &Path) -> Result<(), Error> {
        let folder = &self.actual_path(folder);
        let at = self.folder_at(folder)?;
        // Before it is checked, as for files.
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
        // Once per folder, not per file.
        match is_address(&at) {
            true => remove_abandoned(&std::env::temp_dir()),
            false => remove_stale(&at, None),
        }
        self.state().folders.push(folder.to_owned());
        Ok(())
    }

    /// Whether the run replaces outputs.
    pub fn replaces(&self) -> bool {
        self.overwrite == Overwrite::Replace
    }

    /// Declares a folder whose files stay, and to which others are added. New files must have free
    /// names, except for those of [`replace`](Self::replace). Its manifest lists the files that it
    /// listed before, too.
    ///
    /// `Err` if the run replaces outputs, resumes after an interruption (the folder may have the
    /// events already), or is published by another process.
    pub fn extend_folder(&self, folder: &Path) -> Result<(), Error> {
        let folder = &self.actual_path(folder);
        let refused = |what: &str| Error::refused(format!("{what}: {}", folder.display()));
        if is_address(folder) {
            return Err(refused("only a folder on this machine can be extended"));
        }
        match self.overwrite {
            Overwrite::Refuse if self.staging.is_none() => {}
            Overwrite::Refuse => {
                return Err(refused("only a run on this machine can extend an output"));
            }
            Overwrite::Replace => {
                return Err(refused(
                    "the output is extended, and cannot be replaced as well; leave out --overwrite",
                ));
            }
            Overwrite::Redo => {
                return Err(refused(
                    "cannot tell whether the output to extend already has these events; run \
                     without --resume",
                ));
            }
        }
        self.check_disjoint(folder)?;
        if holds_batch(folder) {
            return Err(refused("the output folder holds the record of a batch; write elsewhere"));
        }
        self.check_not_input(&folder.join(MANIFEST))?;
        remove_stale(folder, None);
        let mut state = self.state();
        state.folders.push(folder.to_owned());
        state.extended.insert(folder.to_owned());
        Ok(())
    }

    /// Claims a target; no other file may have its name.
    fn claim(&self, target: &Path) -> Result<(), Error> {
        if self.state().claimed.insert(canonical_path(target)) {
            return Ok(());
        }
        Err(written_twice(target))
    }

    fn inject(&self, step: OutputStep) -> io::Result<()> {
        inject(self.faults.as_deref(), step)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The folder of a target, `.` if it has none.
pub fn folder_of(target: &Path) -> &Path {
    target.parent().filter(|f| !f.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The canonical path of a target, as far as its folders exist.
pub fn canonical_path(target: &Path) -> PathBuf {
    let folder = folder_of(target);
    let real = |existing: &Path| {
        let here = if existing.as_os_str().is_empty() { Path::new(".") } else { existing };
        let missing = folder.strip_prefix(existing).ok()?;
        Some(here.canonicalize().ok()?.join(missing))
    };
    let real = folder.ancestors().find_map(real).unwrap_or_else(|| folder.to_owned());
    real.join(target.file_name().unwrap_or_default())
}

fn written_twice(target: &Path) -> Error {
    Error::refused(format!("two sinks write to one file: {}", target.display()))
}

impl Drop for Outputs {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let staged = state.staged.iter().filter_map(|staged| staged.temporary.as_ref());
        let folders = state.staged_folders.iter().filter_map(StagedFolder::path);
        for temporary in state.open.values().chain(staged).chain(folders) {
            remove_any(temporary);
        }
        state.growing.keys().for_each(|path| state.remove_if_empty(path));
    }
}
