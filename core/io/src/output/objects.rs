//! Outputs in object stores: written to local temporary files, and uploaded on publication, several
//! at a time. If one upload fails, all are rolled back.
//!
//! Each object appears atomically, but not all at the same time; a folder's manifest is written
//! last.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use super::faults::{FaultInjector, OutputStep, inject};
use super::litter::remove_any;
use super::renames::appeared_error;
use super::temporary_names::owner;
use super::{MANIFEST, Outputs, Overwrite, TEMPORARY};
use crate::Error;
use crate::files::{forget, is_litter, read_object};
use crate::store::{self, ListDepth, ObjectState, StorePath, is_address};

/// Uploads at a time: many objects are small, and each takes a round trip.
const PARALLEL_PUTS: usize = 8;

impl Outputs {
    /// Checks an object that is to be written.
    pub(super) fn check_object(&self, target: &Path, place: &StorePath) -> Result<(), Error> {
        self.check_not_input(target)?;
        let key = place.at.key();
        if key.is_empty() || key.ends_with('/') {
            return Err(Error::refused(format!(
                "the output must be an object, not a folder: {}",
                target.display()
            )));
        }
        // Declared folders have been checked as a whole, and uploading checks again.
        if self.state().folders.iter().any(|folder| target.starts_with(folder)) {
            return Ok(());
        }
        // A batch has listed its outputs, all at once.
        if self.other_inputs.is_empty() {
            refuse_folder(target, place)?;
        }
        if self.overwrite != Overwrite::Refuse {
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

    /// Refuses what is impossible with objects.
    pub(super) fn expect_new(&self, target: &Path, is_continued: bool) -> Result<(), Error> {
        if !is_address(target) {
            return Ok(());
        }
        let path = target.display();
        if self.in_place {
            return Err(Error::refused(format!(
                "a recording grows while it is written, but an object cannot; record to a file, \
                 then copy it to the store: {path}"
            )));
        }
        if is_continued {
            return Err(Error::refused(format!(
                "an object cannot be continued, only replaced: {path}"
            )));
        }
        Ok(())
    }
}

/// Refuses an object with the name of a folder of objects, or in a bucket that does not exist,
/// which would otherwise be found only when it is uploaded.
fn refuse_folder(target: &Path, place: &StorePath) -> Result<(), Error> {
    match place.store.list(&place.folder().at, ListDepth::All, 1) {
        Ok(inside) if inside.is_empty() => Ok(()),
        Ok(_) => Err(Error::refused(format!(
            "a folder of objects has the name of the output; write elsewhere, or end the name with \
             a slash to write into it: {}",
            target.display()
        ))),
        // Not everybody who may write may list.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        Err(error) => Err(Error::io("look at", target, error)),
    }
}

/// Whether a folder contains objects other than litter; `None` if it is not an address.
pub(super) fn holds_objects(folder: &Path) -> Result<Option<bool>, Error> {
    // Litter is rare: the first few objects mostly suffice.
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

/// A file to upload.
#[derive(Debug)]
pub(super) struct Upload {
    /// A local file, or another object, which is kept.
    pub(super) from: PathBuf,
    /// The address.
    pub(super) to: PathBuf,
    /// Whether it may replace an existing object.
    pub(super) replaces: bool,
}

/// Uploaded objects, and how to undo that.
#[derive(Debug, Default)]
pub(super) struct PublishedObjects(Vec<PublishedObject>);

#[derive(Debug)]
struct PublishedObject {
    place: StorePath,
    before: PreviousObject,
}

#[derive(Debug)]
enum PreviousObject {
    /// There was no object.
    Absent,
    /// The previous object was copied here.
    Kept(StorePath),
    /// The previous object could not be backed up.
    Lost,
}

impl PublishedObjects {
    /// Uploads all files, several at a time. On failure, all are rolled back.
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

    /// Rolls back all uploads after an error, and adds the outcome to its message.
    pub(super) fn roll_back(self, error: Error) -> Error {
        let count = self.0.len();
        if count == 0 {
            return error;
        }
        let (left, _) = in_parallel(self.0, |done| Ok(done.roll_back().err()));
        let left: Vec<String> = left.into_iter().flatten().collect();
        let what = match left.first() {
            None => format!("{count} earlier uploads were rolled back"),
            Some(first) => format!(
                "{} of {count} earlier uploads could not be rolled back, such as this: {first}",
                left.len(),
            ),
        };
        error.with_detail(&what)
    }

    /// Removes the backups of replaced objects.
    pub(super) fn commit(self) {
        for done in self.0 {
            if let PreviousObject::Kept(kept) = done.before {
                // A failure leaves litter, which no run reads.
                drop(kept.store.remove(&kept.at));
            }
        }
    }
}

/// Processes items in parallel until one fails. Returns the results in any order, and the first
/// error.
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

/// The store path of an output.
fn place_of(path: &Path) -> Result<StorePath, Error> {
    StorePath::parse(path)?
        .ok_or_else(|| Error::internal(format!("{} is not an address", path.display())))
}

fn put(upload: &Upload, faults: Option<&FaultInjector>) -> Result<PublishedObject, Error> {
    let Upload { from, to, replaces } = upload;
    let place = place_of(to)?;
    let fail = |e: io::Error| match e.kind() {
        io::ErrorKind::AlreadyExists => appeared_error(to),
        _ => Error::io("publish", to, e),
    };
    inject(faults, OutputStep::Rename).map_err(fail)?;
    let before = if *replaces { back_up(&place).map_err(fail)? } else { PreviousObject::Absent };
    let how = if *replaces { store::PutMode::Replace } else { store::PutMode::New };
    let put = put_from(from, &place, how);
    forget(&place.at);
    let object = PublishedObject { place, before };
    match put {
        Ok(()) => Ok(object),
        // It may have been replaced all the same.
        Err(error) if matches!(object.before, PreviousObject::Kept(_)) => {
            let error = fail(error);
            Err(match object.roll_back() {
                Ok(()) => error,
                Err(left) => error.with_detail(&left),
            })
        }
        Err(error) => Err(fail(error)),
    }
}

/// Uploads a local file, or copies another object.
fn put_from(from: &Path, to: &StorePath, how: store::PutMode) -> io::Result<()> {
    let Some(object) = StorePath::parse(from).map_err(io::Error::other)? else {
        return to.store.put_file(&to.at, from, how);
    };
    let state = object.store.stat(&object.at)?;
    if state.len > MAX_COPIED || object.with_key("").at != to.with_key("").at {
        return copy_via_file(&object, &state, to, how);
    }
    // A copy replaces the destination, so check right before.
    if how == store::PutMode::New {
        match to.store.stat(&to.at) {
            Ok(_) => return Err(io::ErrorKind::AlreadyExists.into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    to.store.copy(&object.at, &to.at)
}

/// The largest object that stores copy in one request: 5 GiB.
const MAX_COPIED: u64 = 5 << 30;

/// Bytes read at a time when copying through a file.
const COPY_STEP: u64 = 8 << 20;

/// Copies an object through a local file.
fn copy_via_file(
    from: &StorePath,
    state: &ObjectState,
    to: &StorePath,
    how: store::PutMode,
) -> io::Result<()> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = format!(".carried.{}-{number}{TEMPORARY}", owner());
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
    let put = read().and_then(|()| to.store.put_file(&to.at, &path, how));
    remove_any(&path);
    put
}

/// Backs up an object next to it.
fn back_up(place: &StorePath) -> io::Result<PreviousObject> {
    match copy_aside(place) {
        Ok(kept) => Ok(PreviousObject::Kept(kept)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(PreviousObject::Absent),
        // Stores cannot copy every object; the upload may still succeed.
        Err(_) => Ok(PreviousObject::Lost),
    }
}

/// Copies an object to a temporary name next to it.
fn copy_aside(place: &StorePath) -> io::Result<StorePath> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let key = place.at.key();
    let (folder, name) = key.rsplit_once('/').map_or(("", key), |(folder, name)| (folder, name));
    let slash = if folder.is_empty() { "" } else { "/" };
    let name: String = name.chars().take(48).collect();
    let aside = place.with_key(format!("{folder}{slash}.{name}.{}-{number}{TEMPORARY}", owner()));
    place.store.copy(&place.at, &aside.at).map(|()| aside)
}

impl PublishedObject {
    /// `Err` says what is left to do.
    fn roll_back(self) -> Result<(), String> {
        let Self { place, before } = self;
        let done = match before {
            PreviousObject::Absent => {
                let removed = place.store.remove(&place.at);
                removed.map_err(|error| format!("{} could not be removed ({error})", place.at))
            }
            PreviousObject::Kept(kept) => restore(&place, &kept).map_err(|error| {
                let (at, kept) = (&place.at, &kept.at);
                format!("{at} could not be restored ({error}); copy {kept} to it")
            }),
            PreviousObject::Lost => Err(format!("{} could not be restored", place.at)),
        };
        forget(&place.at);
        done
    }
}

/// Copies an object back from its backup, which then is removed.
fn restore(place: &StorePath, kept: &StorePath) -> io::Result<()> {
    let is_unchanged = || {
        // If the store is gone, do not wait for it twice.
        let Ok(now) = place.store.stat(&place.at) else { return false };
        kept.store.stat(&kept.at).is_ok_and(|before| now == before)
    };
    place.store.copy(&kept.at, &place.at).or_else(|error| match is_unchanged() {
        true => Ok(()),
        false => Err(error),
    })?;
    // A failure leaves litter, which no run reads.
    drop(kept.store.remove(&kept.at));
    Ok(())
}

/// Outdated manifests in a store, moved aside until the new ones are written.
#[derive(Debug, Default)]
pub(super) struct OldManifests(Vec<PublishedObject>);

impl OldManifests {
    /// Moves the manifests of those folders aside that are in a store.
    pub(super) fn move_aside(folders: &[PathBuf]) -> Result<Self, Error> {
        let mut old = Self::default();
        for folder in folders.iter().filter(|folder| is_address(folder)) {
            let path = folder.join(MANIFEST);
            if let Err(error) = old.move_one_aside(&path) {
                return Err(old.restore(error));
            }
        }
        Ok(old)
    }

    fn move_one_aside(&mut self, path: &Path) -> Result<(), Error> {
        let fail = |error| Error::io("replace", path, error);
        let place = place_of(path)?;
        let kept = match copy_aside(&place) {
            Ok(kept) => kept,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(fail(error)),
        };
        self.0.push(PublishedObject { place: place.clone(), before: PreviousObject::Kept(kept) });
        forget(&place.at);
        place.store.remove(&place.at).map_err(fail)
    }

    /// Restores them after an error, and adds to its message what could not be restored.
    pub(super) fn restore(self, error: Error) -> Error {
        let left = self.0.into_iter().filter_map(|old| old.roll_back().err());
        left.fold(error, |error, left| error.with_detail(&left))
    }

    /// Removes them.
    pub(super) fn discard(self) {
        PublishedObjects(self.0).commit();
    }
}

/// Writes a small object; returns whether the path is an address.
pub(super) fn write(
    path: &Path,
    bytes: &[u8],
    faults: Option<&FaultInjector>,
) -> Result<bool, Error> {
    let Some(place) = StorePath::parse(path)? else { return Ok(false) };
    let put = inject(faults, OutputStep::Write)
        .and_then(|()| place.store.put(&place.at, bytes.to_vec().into(), store::PutMode::Replace));
    forget(&place.at);
    put.map(|()| true).map_err(|e| Error::io("write", path, e))
}

/// Replaces a small object if `is_current` says that its bytes are what the new ones follow from;
/// `None` is no object. `false` if they are not, or the object changed meanwhile.
pub fn replace_object(
    path: &Path,
    bytes: &[u8],
    is_current: impl Fn(Option<&[u8]>) -> bool,
) -> Result<bool, Error> {
    let place = place_of(path)?;
    let how = match read_object(&place) {
        Ok((state, before)) if is_current(Some(&before)) => store::PutMode::Update(state),
        Err(error) if error.kind() == io::ErrorKind::NotFound && is_current(None) => {
            store::PutMode::New
        }
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(Error::io("read", path, error));
        }
        _ => return Ok(false),
    };
    let put = place.store.put(&place.at, bytes.to_vec().into(), how);
    forget(&place.at);
    match put {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(Error::io("write", path, error)),
    }
}

/// Removes an object; returns whether the path is an address.
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
