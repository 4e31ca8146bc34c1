//! Objects as inputs: expanding addresses, and pinning each object to the state in which it was
//! first seen.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use glob::Pattern;

use super::input::{Input, PathKind};
use crate::globs::{MATCH_OPTIONS, is_glob};
use crate::store::{Address, ListDepth, ObjectState, PendingRead, StorePath};
use crate::{Error, path_order};

/// An object, pinned to the state in which this process reads it.
pub(super) struct PinnedObject {
    pub(super) place: StorePath,
    pub(super) state: ObjectState,
    /// Whether it is compressed, once that is known.
    pub(super) is_zstd: OnceLock<bool>,
}

impl PinnedObject {
    fn new(place: StorePath, state: ObjectState) -> Self {
        Self { place, state, is_zstd: OnceLock::new() }
    }

    pub(super) fn request(&self, range: Range<u64>) -> Box<dyn PendingRead> {
        self.place.store.read(&self.place.at, &self.state, range)
    }
}

/// The objects this process has seen, each with its state at that time: a run that reads an object
/// several times must not read two versions.
fn pinned_objects() -> MutexGuard<'static, HashMap<Address, Arc<PinnedObject>>> {
    static SEEN: LazyLock<Mutex<HashMap<Address, Arc<PinnedObject>>>> =
        LazyLock::new(Mutex::default);
    SEEN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Forgets the pinned states, so that objects are read as they are now. For programs that do
/// several things in sequence; not during a run.
pub fn forget_states() {
    pinned_objects().clear();
}

/// Forgets the state of an object that this process has changed.
pub(crate) fn forget(at: &Address) {
    pinned_objects().remove(at);
}

/// Whether this process has seen an object of this name.
pub(super) fn is_pinned(at: &Address) -> bool {
    pinned_objects().contains_key(at)
}

/// An object in its pinned state.
pub(super) fn pin(place: &StorePath) -> io::Result<Arc<PinnedObject>> {
    if let Some(object) = pinned_objects().get(&place.at) {
        return Ok(Arc::clone(object));
    }
    let state = place.store.stat(&place.at)?;
    Ok(pin_state(place, state))
}

/// Pins the state of an object, unless it is pinned already.
fn pin_state(place: &StorePath, state: ObjectState) -> Arc<PinnedObject> {
    let object = || Arc::new(PinnedObject::new(place.clone(), state));
    Arc::clone(pinned_objects().entry(place.at.clone()).or_insert_with(object))
}

/// What is at an address at the moment.
pub(super) fn path_kind(place: &StorePath) -> io::Result<Option<PathKind>> {
    if !place.at.key().is_empty() && !place.at.key().ends_with('/') {
        match place.store.stat(&place.at) {
            Ok(state) => return Ok(Some(PathKind::File(state.len))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    let folder = place.folder();
    let found = folder.store.list(&folder.at, ListDepth::All, 1)?;
    Ok((!found.is_empty()).then_some(PathKind::Folder))
}

/// The current state of a small object, and all its bytes.
pub(crate) fn read_object(place: &StorePath) -> io::Result<(ObjectState, Bytes)> {
    /// How often it may be replaced while it is read.
    const MOST_CHANGES: usize = 10;
    let (mut state, mut changes) = (place.store.stat(&place.at)?, 0);
    loop {
        // Stores cannot read an empty range.
        if state.len == 0 {
            return Ok((state, Bytes::new()));
        }
        let error = match place.store.read(&place.at, &state, 0..state.len).wait() {
            Ok(bytes) => return Ok((state, bytes)),
            Err(error) => error,
        };
        let now = place.store.stat(&place.at)?;
        if now == state || changes == MOST_CHANGES {
            return Err(error);
        }
        (state, changes) = (now, changes + 1);
    }
}

/// All objects below an address, sorted by path; `None` if the path is not an address.
pub fn objects_below(folder: &Path) -> Result<Option<Vec<Input>>, Error> {
    let place = StorePath::parse(folder)?;
    place.map(|place| below(folder, &place, usize::MAX)).transpose()
}

/// At most this many objects below an address, sorted by path.
pub(super) fn below(folder: &Path, place: &StorePath, most: usize) -> Result<Vec<Input>, Error> {
    let place = place.folder();
    let found = place.store.list(&place.at, ListDepth::All, most);
    let found = found.map_err(|e| Error::io("list", folder, e))?;
    Ok(inputs(&place, found, |_| true))
}

/// The inputs that an address means: the object, or else those that match it as a glob.
pub(super) fn expand(name: &Path, place: &StorePath, inputs: &mut Vec<Input>) -> Result<(), Error> {
    let missing = match pin(place) {
        Ok(object) => {
            inputs.push(Input { path: name.to_owned(), bytes: Some(object.state.len) });
            return Ok(());
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => error,
        Err(error) => return Err(Error::io("open", name, error)),
    };
    if is_glob(name.as_os_str()) {
        inputs.append(&mut matches(name, place)?);
        return Ok(());
    }
    match path_kind(&place.folder()) {
        Ok(Some(_)) => Err(Error::refused(format!(
            "expected an object, found a folder of objects: pass its objects, such as {}",
            name.join("*").display()
        ))),
        Ok(None) => Err(Error::io("open", name, missing)),
        // There may be no such bucket.
        Err(error) => Err(Error::io("open", name, error)),
    }
}

/// The objects that match a glob, sorted by path.
fn matches(name: &Path, place: &StorePath) -> Result<Vec<Input>, Error> {
    let (pattern, found) = list_for_glob(name, place)?;
    let inputs =
        inputs(place, found, |key| pattern.matches_with(key, MATCH_OPTIONS) && !is_litter(key));
    if inputs.is_empty() {
        return Err(Error::refused(format!("no object matches `{}`", name.display())));
    }
    Ok(inputs)
}

/// The folders of objects that match a glob, sorted by path, if it ends with a slash and nothing
/// has its name; `None` if there are none.
pub(super) fn matching_folders(
    name: &Path,
    place: &StorePath,
) -> Result<Option<Vec<PathBuf>>, Error> {
    let is_glob_of_folders = is_glob(place.at.key().as_ref()) && place.at.key().ends_with('/');
    if !is_glob_of_folders || matches!(path_kind(place), Ok(Some(_))) {
        return Ok(None);
    }
    let (pattern, found) = list_for_glob(name, place)?;
    let mut folders = BTreeSet::new();
    for (key, _) in found.iter().filter(|(key, _)| !is_litter(key)) {
        // With the slash at its end.
        let ends = key.match_indices('/').map(|(slash, _)| &key[..=slash]);
        folders.extend(ends.filter(|folder| {
            is_addressable(folder) && pattern.matches_with(folder, MATCH_OPTIONS)
        }));
    }
    let mut folders: Vec<PathBuf> =
        folders.into_iter().map(|folder| place.with_key(folder).at.path()).collect();
    folders.sort_by(|a, b| path_order::compare(a, b));
    Ok(Some(folders).filter(|folders| !folders.is_empty()))
}

/// Whether a folder, with the slash at its end, can be an address: `runs//` would mean its parent.
fn is_addressable(folder: &str) -> bool {
    let folder = folder.strip_suffix('/').unwrap_or(folder);
    !folder.split('/').any(|part| matches!(part, "" | "." | ".."))
}

/// Unpublished objects of a run are not inputs.
fn is_litter(key: &str) -> bool {
    key.split('/').any(super::is_litter)
}

/// A glob, and all objects whose keys have its literal prefix.
fn list_for_glob(
    name: &Path,
    place: &StorePath,
) -> Result<(Pattern, Vec<(String, ObjectState)>), Error> {
    let key = place.at.key();
    let Some(fixed) = key.find(['*', '?', '[']) else {
        return Err(Error::refused(format!(
            "expected the name of a bucket, found a glob: {}",
            name.display()
        )));
    };
    let pattern = Pattern::new(key)
        .map_err(|e| Error::invalid(format!("`{}` is not a glob: {e}", name.display())))?;
    let (prefix, open) = key.split_at(fixed);
    let depth =
        if open.contains('/') || open.contains("**") { ListDepth::All } else { ListDepth::One };
    let found = place.store.list(&place.at.with_key(prefix), depth, usize::MAX);
    Ok((pattern, found.map_err(|e| Error::io("list", name, e))?))
}

/// Listed objects as inputs, pinned to the state in the listing. Directory markers and keys that
/// cannot be addresses are skipped.
fn inputs(
    place: &StorePath,
    found: Vec<(String, ObjectState)>,
    wanted: impl Fn(&str) -> bool,
) -> Vec<Input> {
    let mut inputs = Vec::new();
    for (key, state) in found {
        let address = place.with_key(&*key);
        let path: PathBuf = address.at.path();
        let is_plain = !key.ends_with('/') && matches!(StorePath::parse(&path), Ok(Some(_)));
        if is_plain && wanted(&key) {
            let listed = state.len;
            let has_version = !state.version.is_empty();
            let bytes = if has_version { pin_state(&address, state).state.len } else { listed };
            inputs.push(Input { path, bytes: Some(bytes) });
        }
    }
    inputs.sort_by(|a, b| path_order::compare(&a.path, &b.path));
    inputs
}
