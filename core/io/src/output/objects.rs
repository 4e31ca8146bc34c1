//! Outputs in object stores: written to local temporary files, and uploaded on publication, several
//! at a time. If one upload fails, all are rolled back.
//!
//! Each object appears atomically, but not all at the same time; a folder's manifest is written
//! last.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use super::faults::{FaultInjector, OutputStep, inject};
use super::{Outputs, Overwrite};
use crate::Error;
use crate::files::{forget, is_litter, read_object};
use crate::store::{self, ListDepth, StorePath, is_address};

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

/// Processes items in parallel until one fails; returns the first error.
pub(super) fn in_parallel<T: Send>(
    all: Vec<T>,
    act: impl Fn(T) -> Result<(), Error> + Sync,
) -> Result<(), Error> {
    let threads = all.len().min(PARALLEL_PUTS);
    let (queue, failed) = (Mutex::new(VecDeque::from(all)), Mutex::new(None));
    let next = || locked(&failed).is_none().then(|| locked(&queue).pop_front()).flatten();
    let work = || {
        while let Some(one) = next() {
            if let Err(error) = act(one) {
                locked(&failed).get_or_insert(error);
            }
        }
    };
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    into_inner(failed).map_or(Ok(()), Err)
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn into_inner<T>(mutex: Mutex<T>) -> T {
    mutex.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// The store path of an output.
pub(super) fn place_of(path: &Path) -> Result<StorePath, Error> {
    StorePath::parse(path)?
        .ok_or_else(|| Error::internal(format!("{} is not an address", path.display())))
}

/// Writes a small object; returns whether the path is an address.
pub(super) fn write(
    path: &Path,
    bytes: &[u8],
    faults: Option<&FaultInjector>,
) -> Result<bool, Error> {
    let Some(place) = StorePath::parse(path)? else { return Ok(false) };
    let put = put_bytes(&place, bytes, store::PutMode::Replace, faults);
    put.map(|()| true).map_err(|e| Error::io("write", path, e))
}

pub(super) fn put_bytes(
    place: &StorePath,
    bytes: &[u8],
    how: store::PutMode,
    faults: Option<&FaultInjector>,
) -> io::Result<()> {
    let put = inject(faults, OutputStep::Write)
        .and_then(|()| place.store.put(&place.at, bytes.to_vec().into(), how));
    forget(&place.at);
    put
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
    match put_bytes(&place, bytes, how, None) {
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
    in_parallel(paths, |path| remove(&path).map(drop))
}
