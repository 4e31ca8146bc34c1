//! Publishing: syncs and renames all finished files and writes the manifests, all or nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::atomic::{replace_with, sync_folders};
use super::faults::FaultInjector;
use super::file::sync;
use super::many::StagedFolder;
use super::published_objects::{PublishedObjects, Upload};
use super::renames::RenameLog;
use super::replace::{MovedAside, StaleFiles, find_stale, kept_files};
use super::staging::{StagedFile, StagingDir};
use super::{
    MANIFEST, Outputs, Overwrite, PublishedFile, StagedOutput, State, folder_of, real_path,
    remove_any, written_twice,
};
use crate::Error;
use crate::files::is_stream;
use crate::store::is_address;
use crate::tasks::{Job, OrderedTasks};

/// A folder, and the text of the manifest that describes it.
type Manifest = (PathBuf, String);

impl Outputs {
    /// Publishes every finished file: renames all, then writes the manifest of each folder, made by
    /// `manifest`.
    ///
    /// On `Err` everything is as before. (On file systems that cannot exchange two files
    /// atomically, files replaced by then are lost.)
    pub fn publish(
        &self,
        manifest: impl Fn(&Path, &[PublishedFile]) -> Result<String, Error>,
    ) -> Result<Vec<PublishedFile>, Error> {
        self.publish_announced(manifest, |_| Ok(()))
    }

    /// Like [`publish`](Self::publish), but first calls `announce` with all files that are about to
    /// appear, manifests included. If that fails, nothing is published.
    pub fn publish_announced(
        &self,
        manifest: impl Fn(&Path, &[PublishedFile]) -> Result<String, Error>,
        announce: impl FnOnce(&[PublishedFile]) -> Result<(), Error>,
    ) -> Result<Vec<PublishedFile>, Error> {
        let mut state = std::mem::take(&mut *self.state());
        let staged = state.staged.iter().map(|staged| staged.file.clone());
        let mut files: Vec<PublishedFile> =
            staged.chain(state.staged_folders.iter().flat_map(StagedFolder::files)).collect();
        let synced = self.sync_all(&state.staged);
        let described = synced.and_then(|()| describe(&state, &files, manifest));
        let published = described.and_then(|manifests| {
            let count = files.len();
            files.extend(manifests.iter().map(|(folder, text)| published_manifest(folder, text)));
            check_unique(&files)?;
            announce(&files)?;
            let described = files.split_off(count);
            match &self.staging {
                Some(staging) => {
                    self.stage_all(staging, &mut state, (&files, described), manifests)
                }
                None => self.replace_all(&mut state, &files, &manifests),
            }
        });
        if let Err(error) = published {
            // Restore the state, so that unpublished files are removed on drop.
            *self.state() = state;
            return Err(error);
        }
        // What was not finished is not published.
        state.open.values().for_each(|temporary| remove_any(temporary));
        if self.staging.is_none() && self.faults.is_none() {
            let folders = changed_folders(&files, &state.folders, state.made.paths());
            sync_folders(folders);
        }
        state.made.keep();
        Ok(files)
    }

    /// Flushes every finished file to disk, several at a time.
    fn sync_all(&self, staged: &[StagedOutput]) -> Result<(), Error> {
        let mut syncs = OrderedTasks::new(&self.tasks, 4 * self.tasks.width(), usize::MAX);
        for StagedOutput { temporary, file, .. } in staged {
            let local = temporary.as_ref().filter(|temporary| !is_address(temporary));
            let Some(temporary) = local.cloned() else { continue };
            let (name, faults) = (file.path.clone(), self.faults.clone());
            let sync = Job::new(0, move || {
                let synced = File::open(temporary).and_then(|file| sync(faults.as_deref(), &file));
                synced.map_err(|e| Error::io("write", name, e))
            });
            while syncs.make_room(&sync)?.is_some() {}
            syncs.start(sync);
        }
        while syncs.take_oldest()?.is_some() {}
        Ok(())
    }

    /// Moves every file and manifest to the staging directory, where nothing can be in the way.
    fn stage_all(
        &self,
        staging: &StagingDir,
        state: &mut State,
        (files, described): (&[PublishedFile], Vec<PublishedFile>),
        manifests: Vec<Manifest>,
    ) -> Result<(), Error> {
        let folders_staged = state.staged_folders.iter().flat_map(StagedFolder::places);
        let places = state.staged.iter().map(|staged| staged.at.clone()).chain(folders_staged);
        let places: Vec<PathBuf> = places.collect();
        let is_index = |place: &PathBuf| state.indexes.contains(place);
        let are_indexes: Vec<bool> = places.iter().map(is_index).collect();
        let at = |(folder, text): Manifest| Ok((staging.folder(&folder)?, text));
        let manifests = manifests.into_iter().map(at).collect::<Result<Vec<_>, Error>>()?;
        rename_all(state, &mut RenameLog::new(self.faults.as_deref()))?;
        let fresh = uploads(state).into_iter().map(|upload| Upload { replaces: false, ..upload });
        // They replace nothing, so that nothing is left to remove.
        PublishedObjects::publish(self, &[], fresh.collect(), &manifests)?;
        write_files(&manifests, self.faults.as_deref())?;
        let mut changed: BTreeSet<&Path> = places.iter().map(|place| folder_of(place)).collect();
        changed.extend(state.made.paths().iter().map(|folder| folder_of(folder)));
        if self.faults.is_none() {
            sync_folders(changed);
        }
        let texts = manifests.iter().map(|(folder, _)| folder.join(MANIFEST));
        let all = files.iter().cloned().chain(described);
        let put = all.zip(places.iter().cloned().chain(texts));
        let are_indexes = are_indexes.into_iter().chain(std::iter::repeat(false));
        let put = put.zip(are_indexes);
        staging.note(put.map(|((file, place), is_index)| StagedFile { place, file, is_index }));
        discard_all(&mut state.staged, &mut state.staged_folders);
        Ok(())
    }

    /// Renames every file, replacing all files of an earlier run.
    fn replace_all(
        &self,
        state: &mut State,
        files: &[PublishedFile],
        manifests: &[Manifest],
    ) -> Result<(), Error> {
        let faults = self.faults.as_deref();
        let stale = find_stale(&state.folders, &state.extended, files);
        // Targets checked when they were opened may have changed since.
        let replaced = files.iter().map(|file| &*file.path);
        let mut replaced = replaced.chain(stale.iter().flat_map(StaleFiles::paths));
        replaced.try_for_each(|path| self.check_not_input(path))?;
        let indexes = state.local(true).map(|(_, staged)| staged).filter(|staged| staged.replaces);
        let indexes = indexes.map(|staged| &*staged.at).collect();
        let aside = MovedAside::move_aside(self, (&stale, indexes), files)?;
        let mut names = RenameLog::new(faults);
        let renamed =
            rename_all(state, &mut names).and_then(|()| self.put_objects(state, manifests));
        if let Err(error) = renamed {
            let written = manifests.iter().map(|(folder, _)| folder.join(MANIFEST));
            written.for_each(|manifest| drop(fs::remove_file(manifest)));
            names.roll_back();
            aside.restore();
            return Err(error);
        }
        aside.discard();
        stale.iter().for_each(|stale| stale.remove());
        let old = state.local(true).flat_map(|(_, staged)| self.abandoned_indexes(&staged.at));
        old.for_each(|index| remove_any(&index));
        discard_all(&mut state.staged, &mut state.staged_folders);
        Ok(())
    }

    /// Uploads objects, then writes the manifests. On failure, uploads are rolled back.
    fn put_objects(&self, state: &State, manifests: &[Manifest]) -> Result<(), Error> {
        let uploads = uploads(state);
        let replaced: Vec<PathBuf> = match self.overwrite {
            // Their folders were empty.
            Overwrite::Refuse => Vec::new(),
            Overwrite::Replace | Overwrite::Redo => {
                let indexes = uploads.iter().filter(|upload| upload.is_index);
                let manifests = state.folders.iter().map(|folder| folder.join(MANIFEST));
                manifests.chain(indexes.map(|upload| upload.to.clone())).collect()
            }
        };
        let puts = PublishedObjects::publish(self, &replaced, uploads, manifests)?;
        match write_files(manifests, self.faults.as_deref()) {
            Ok(()) => self.state().leftover = puts.commit(),
            Err(error) => return Err(puts.roll_back(error, &self.abort)),
        }
        Ok(())
    }
}

fn rename_all(state: &State, names: &mut RenameLog<'_>) -> Result<(), Error> {
    for (temporary, staged) in state.local(false) {
        names.rename(temporary, &staged.at, staged.replaces)?;
    }
    state.staged_folders.iter().try_for_each(|folder| folder.publish(names))?;
    for (temporary, staged) in state.local(true) {
        // Those that were to be replaced have been taken away: one that is there is new.
        names.rename(temporary, &staged.at, false)?;
    }
    Ok(())
}

/// All uploads.
fn uploads(state: &State) -> Vec<Upload> {
    let of_file = |staged: &StagedOutput| {
        let from = staged.temporary.clone().filter(|_| is_address(&staged.at))?;
        let is_index = state.is_index(staged);
        Some(Upload { from, to: staged.at.clone(), replaces: staged.replaces, is_index })
    };
    let files = state.staged.iter().filter_map(of_file);
    files.chain(state.staged_folders.iter().flat_map(StagedFolder::uploads)).collect()
}

/// Writes the manifests that are not in a store.
fn write_files(manifests: &[Manifest], faults: Option<&FaultInjector>) -> Result<(), Error> {
    let mut local = manifests.iter().filter(|(folder, _)| !is_address(folder));
    local.try_for_each(|(folder, text)| {
        replace_with(faults, &folder.join(MANIFEST), text.as_bytes())
    })
}

/// Removes what is left under temporary names: the replaced files.
fn discard_all(staged: &mut [StagedOutput], folders_staged: &mut [StagedFolder]) {
    for temporary in staged.iter_mut().filter_map(|staged| staged.temporary.take()) {
        remove_any(&temporary);
    }
    folders_staged.iter_mut().for_each(StagedFolder::discard);
}

/// Refuses two files with the same name.
fn check_unique<'f>(files: &'f [PublishedFile]) -> Result<(), Error> {
    let mut folders: BTreeMap<&'f Path, PathBuf> = BTreeMap::new();
    for file in files {
        let folder = folder_of(&file.path);
        if !folders.contains_key(folder) {
            folders.insert(folder, real_path(folder));
        }
    }
    let place =
        |file: &'f PublishedFile| (folders.get(folder_of(&file.path)), file.path.file_name());
    let mut places: Vec<_> = files.iter().map(|file| (place(file), &file.path)).collect();
    places.sort_unstable();
    let twice = places.windows(2).find_map(|pair| match pair {
        [(one, path), (other, _)] if one == other && !is_stream(path) => Some(path),
        _ => None,
    });
    twice.map_or(Ok(()), |path| Err(written_twice(path)))
}

/// The text of each folder's manifest.
fn describe(
    state: &State,
    files: &[PublishedFile],
    manifest: impl Fn(&Path, &[PublishedFile]) -> Result<String, Error>,
) -> Result<Vec<(PathBuf, String)>, Error> {
    let each = state.folders.iter().map(|folder| {
        let is_inside = |file: &&PublishedFile| file.path.starts_with(folder);
        if state.extended.contains(folder) {
            let mut inside = kept_files(folder, files);
            inside.extend(files.iter().filter(is_inside).cloned());
            return Ok((folder.clone(), manifest(folder, &inside)?));
        }
        // Mostly all files are inside, and there may be a million.
        if files.iter().all(|file| is_inside(&file)) {
            return Ok((folder.clone(), manifest(folder, files)?));
        }
        let inside: Vec<_> = files.iter().filter(is_inside).cloned().collect();
        Ok((folder.clone(), manifest(folder, &inside)?))
    });
    each.collect()
}

fn published_manifest(folder: &Path, text: &str) -> PublishedFile {
    PublishedFile {
        path: folder.join(MANIFEST),
        rows: 0,
        bytes: text.len() as u64,
        blake3: Some(blake3::hash(text.as_bytes()).to_hex().to_string()),
    }
}

/// The folders that have changed: those of all files up to the roots with manifests, and the
/// parents of new folders.
pub(super) fn changed_folders<'f>(
    files: &'f [PublishedFile],
    roots: &[PathBuf],
    made: &'f [PathBuf],
) -> BTreeSet<&'f Path> {
    let mut changed: BTreeSet<&Path> = made.iter().map(|folder| folder_of(folder)).collect();
    let mut seen = BTreeSet::new();
    for file in files {
        let mut folder = folder_of(&file.path);
        // The parents of a visited folder were visited, too.
        while seen.insert(folder) {
            changed.insert(folder);
            let is_below = |root: &PathBuf| folder != root && folder.starts_with(root);
            if !roots.iter().any(is_below) {
                break;
            }
            folder = folder_of(folder);
        }
    }
    changed
}
