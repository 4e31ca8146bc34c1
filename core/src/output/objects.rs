//! Outputs in object stores: written to local temporary files, and put under their keys when they are published,
//! several at a time. What was put is taken back if not all can be.
//!
//! An object appears whole or not at all, but not all of them in one moment; a folder's manifest comes last.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use super::faults::{FaultInjector, OutputStep, ask};
use super::litter::{live, remove_any};
use super::renames::appeared_error;
use super::{MANIFEST, Outputs, Overwrite, TEMPORARY, is_litter};
use crate::Error;
use crate::files::{self, forget};
use crate::store::{self, ListDepth, ObjectState, StorePath, is_address};

/// How many objects are put at a time: many are small, and each takes as long as the way to the store and back.
const PARALLEL_PUTS: usize = 8;

/// Where what will be at a place is written until it is published: beside it, but for objects in the folder that
/// this machine has for temporary files (`TMPDIR`).
pub(super) fn temporary_dir_for(folder: &Path) -> PathBuf {
    if is_address(folder) { std::env::temp_dir() } else { folder.to_owned() }
}

impl Outputs {
    /// Judges an object that is to be written.
    pub(super) fn check_object(&self, target: &Path, place: &StorePath) -> Result<(), Error> {
        self.check_not_input(target)?;
        let key = place.at.key();
        if key.is_empty() || key.ends_with('/') {
            return Err(Error::refused(format!(
                "the output must be an object, and this is a folder: {}",
                target.display()
            )));
        }
        // A folder was looked at as a whole, and putting looks again.
        let is_declared = || self.state().folders.iter().any(|folder| target.starts_with(folder));
        if self.overwrite != Overwrite::Refuse || is_declared() {
            return Ok(());
        }
        match place.store.stat(&place.at) {
            Ok(_) => Err(Error::refused(format!(
                "the output exists; --overwrite replaces it: {}",
                target.display()
            ))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(Error::io("look at", target, error)),
        }
    }

    /// Refuses what cannot be done with objects.
    pub(super) fn expect_new(&self, target: &Path, is_continued: bool) -> Result<(), Error> {
        if !is_address(target) {
            return Ok(());
        }
        let path = target.display();
        if self.in_place {
            return Err(Error::refused(format!(
                "a recording grows while it is written, and an object cannot; record into a file, and copy that \
                 into the store: {path}"
            )));
        }
        if is_continued {
            return Err(Error::refused(format!(
                "an object cannot be continued, only written as a whole: {path}"
            )));
        }
        Ok(())
    }
}

/// Whether there are objects in a folder but what killed runs left; nothing if the folder is no address.
pub(super) fn holds_objects(folder: &Path) -> Result<Option<bool>, Error> {
    // Litter is rare: looking at the first few is mostly enough to find something else.
    const LOOKED_AT: usize = 1000;
    let Some(place) = StorePath::parse(folder)? else { return Ok(None) };
    let place = place.folder();
    let is_output = |key: &str| {
        let inside = key.strip_prefix(place.at.key()).unwrap_or(key);
        !inside.split('/').any(is_litter)
    };
    let listed = |most| {
        let found = place.store.list(&place.at, ListDepth::All, most);
        let found = found.map_err(|e| Error::io("list", folder, e))?;
        Ok((found.iter().any(|(key, _)| is_output(key)), found.len()))
    };
    match listed(LOOKED_AT)? {
        (false, LOOKED_AT) => listed(usize::MAX).map(|(holds, _)| Some(holds)),
        (holds, _) => Ok(Some(holds)),
    }
}

/// A file that is to be put.
#[derive(Debug)]
pub(super) struct Upload {
    /// The local file, or another object, which stays.
    pub(super) from: PathBuf,
    /// The address.
    pub(super) to: PathBuf,
    /// Whether what has that address may be replaced.
    pub(super) replaces: bool,
}

/// What was put, and what can be put back.
#[derive(Debug, Default)]
pub(super) struct PublishedObjects(Vec<PublishedObject>);

#[derive(Debug)]
struct PublishedObject {
    place: StorePath,
    before: PreviousObject,
}

#[derive(Debug)]
enum PreviousObject {
    /// There was nothing.
    Absent,
    /// What was there is here now.
    Kept(StorePath),
    /// What was there could not be kept.
    Lost,
}

impl PublishedObjects {
    /// Puts all of them, several at a time. If one cannot be put, those that were are taken back.
    pub(super) fn publish(
        uploads: Vec<Upload>,
        faults: Option<&FaultInjector>,
    ) -> Result<Self, Error> {
        let (done, failed) = in_parallel(uploads, |upload| put(&upload, faults));
        match failed {
            Some(error) => Err(Self(done).roll_back(error)),
            None => Ok(Self(done)),
        }
    }

    /// Takes all of them back because of an error, which then says what became of them.
    pub(super) fn roll_back(self, error: Error) -> Error {
        let count = self.0.len();
        if count == 0 {
            return error;
        }
        let left = self.0.into_iter().filter_map(|done| done.roll_back().err());
        let left: Vec<PathBuf> = left.collect();
        let what = match left.first() {
            None => format!("{count} put before it were taken back"),
            Some(first) => format!(
                "of {count} put before it, {} could not be taken back, such as {}",
                left.len(),
                first.display()
            ),
        };
        error.with_detail(&what)
    }

    /// Removes what was replaced, for good.
    pub(super) fn commit(self) {
        for done in self.0 {
            if let PreviousObject::Kept(kept) = done.before {
                // It is litter, which no run looks at.
                drop(kept.store.remove(&kept.at));
            }
        }
    }
}

/// Does something with each of these, several at a time, until it fails for one. Gives what came of them, in no order,
/// and the first failure.
pub(super) fn in_parallel<T: Send, D: Send>(
    all: Vec<T>,
    act: impl Fn(T) -> Result<D, Error> + Sync,
) -> (Vec<D>, Option<Error>) {
    let threads = all.len().min(PARALLEL_PUTS);
    let (queue, done) = (Mutex::new(VecDeque::from(all)), Mutex::new(Vec::new()));
    let failed = Mutex::new(None);
    let next = || locked(&failed).is_none().then(|| locked(&queue).pop_front()).flatten();
    let work = || {
        while let Some(one) = next() {
            match act(one) {
                Ok(one) => locked(&done).push(one),
                Err(error) => drop(locked(&failed).get_or_insert(error)),
            }
        }
    };
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    (done.into_inner().unwrap_or_else(PoisonError::into_inner), failed)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The place of an output that has an address.
fn place_of(path: &Path) -> Result<StorePath, Error> {
    StorePath::parse(path)?
        .ok_or_else(|| Error::internal(format!("{} is no address", path.display())))
}

fn put(upload: &Upload, faults: Option<&FaultInjector>) -> Result<PublishedObject, Error> {
    let Upload { from, to, replaces } = upload;
    let place = place_of(to)?;
    let fail = |e: io::Error| match e.kind() {
        io::ErrorKind::AlreadyExists => appeared_error(to),
        _ => Error::io("publish", to, e),
    };
    ask(faults, OutputStep::Rename).map_err(fail)?;
    let before = if *replaces { back_up(&place).map_err(fail)? } else { PreviousObject::Absent };
    let how = if *replaces { store::PutMode::Replace } else { store::PutMode::New };
    let put = put_from(from, &place, how);
    forget(&place.at);
    if put.is_err()
        && let PreviousObject::Kept(kept) = &before
    {
        drop(kept.store.remove(&kept.at));
    }
    put.map_err(fail)?;
    Ok(PublishedObject { place, before })
}

/// Puts a local file, or what is in another object.
fn put_from(from: &Path, to: &StorePath, how: store::PutMode) -> io::Result<()> {
    let Some(object) = StorePath::parse(from).map_err(io::Error::other)? else {
        return to.store.put_file(&to.at, from, how);
    };
    let state = object.store.stat(&object.at)?;
    if state.len > MOST_COPIED || object.with_key("").at != to.with_key("").at {
        return copy_via_file(&object, &state, to, how);
    }
    // Copying replaces what is there, so it is looked at last thing.
    if how == store::PutMode::New {
        match to.store.stat(&to.at) {
            Ok(_) => return Err(io::ErrorKind::AlreadyExists.into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    to.store.copy(&object.at, &to.at)
}

/// What stores copy by themselves in one request: 5 GiB.
const MOST_COPIED: u64 = 5 << 30;

/// How much is read at a time of an object that is carried.
const COPY_STEP: u64 = 8 << 20;

/// Takes an object to another place by way of a local file.
fn copy_via_file(
    from: &StorePath,
    state: &ObjectState,
    to: &StorePath,
    how: store::PutMode,
) -> io::Result<()> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!(".carried.{}-{number}{TEMPORARY}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let read = || -> io::Result<()> {
        let (mut file, mut at) = (File::create_new(&path)?, 0);
        while at < state.len {
            let end = state.len.min(at + COPY_STEP);
            file.write_all(&from.store.read(&from.at, state, at..end).wait()?)?;
            at = end;
        }
        file.sync_all()
    };
    live().insert(path.clone());
    let put = read().and_then(|()| to.store.put_file(&to.at, &path, how));
    remove_any(&path);
    live().remove(&path);
    put
}

/// Keeps what is at a place, under a name beside it.
fn back_up(place: &StorePath) -> io::Result<PreviousObject> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let key = place.at.key();
    let (folder, name) = key.rsplit_once('/').map_or(("", key), |(folder, name)| (folder, name));
    let slash = if folder.is_empty() { "" } else { "/" };
    let name: String = name.chars().take(48).collect();
    let aside = format!("{folder}{slash}.{name}.{}-{number}{TEMPORARY}", std::process::id());
    let kept = place.with_key(aside);
    match place.store.copy(&place.at, &kept.at) {
        Ok(()) => Ok(PreviousObject::Kept(kept)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(PreviousObject::Absent),
        // Stores do not copy everything; then whether it can be put decides.
        Err(_) => Ok(PreviousObject::Lost),
    }
}

impl PublishedObject {
    /// `Err` with its address if that fails.
    fn roll_back(self) -> Result<(), PathBuf> {
        let Self { place, before } = self;
        let done = match before {
            PreviousObject::Absent => place.store.remove(&place.at),
            PreviousObject::Kept(kept) => {
                place.store.copy(&kept.at, &place.at).and_then(|()| kept.store.remove(&kept.at))
            }
            PreviousObject::Lost => Err(io::ErrorKind::NotFound.into()),
        };
        forget(&place.at);
        done.map_err(|_| place.at.path())
    }
}

/// The manifests of an earlier run in a store, which are true no more: taken away until the new ones are there.
#[derive(Debug, Default)]
pub(super) struct OldManifests(Vec<(StorePath, Vec<u8>)>);

impl OldManifests {
    /// Takes away the manifests of these folders that lie in a store.
    pub(super) fn remove(folders: &[PathBuf]) -> Result<Self, Error> {
        let mut old = Self::default();
        for folder in folders.iter().filter(|folder| is_address(folder)) {
            let path = folder.join(MANIFEST);
            let Some(text) = files::read_if_exists(&path)? else { continue };
            let place = place_of(&path)?;
            if let Err(error) = place.store.remove(&place.at) {
                old.restore();
                return Err(Error::io("replace", path, error));
            }
            old.0.push((place, text));
        }
        Ok(old)
    }

    /// Puts them back. A second failure changes nothing about the first, which is reported.
    pub(super) fn restore(self) {
        for (place, text) in self.0 {
            drop(place.store.put(&place.at, text.into(), store::PutMode::Replace));
        }
    }
}

/// Writes a small object whole; gives whether the path is an address.
pub(super) fn write(
    path: &Path,
    bytes: &[u8],
    faults: Option<&FaultInjector>,
) -> Result<bool, Error> {
    let Some(place) = StorePath::parse(path)? else { return Ok(false) };
    let put = ask(faults, OutputStep::Write)
        .and_then(|()| place.store.put(&place.at, bytes.to_vec().into(), store::PutMode::Replace));
    forget(&place.at);
    put.map(|()| true).map_err(|e| Error::io("write", path, e))
}

/// Removes an object; gives whether the path is an address.
pub(super) fn remove(path: &Path) -> Result<bool, Error> {
    let Some(place) = StorePath::parse(path)? else { return Ok(false) };
    forget(&place.at);
    place.store.remove(&place.at).map(|()| true).map_err(|e| Error::io("remove", path, e))
}

/// Removes objects, several at a time.
pub fn remove_objects(paths: Vec<PathBuf>) -> Result<(), Error> {
    let (_, failed) = in_parallel(paths, |path| remove(&path).map(drop));
    failed.map_or(Ok(()), Err)
}
