//! Publishes objects and manifests in a store, and rolls back if that fails. Checks no target.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use super::faults::{FaultInjector, OutputStep, inject};
use super::litter::remove_any;
use super::objects::{in_parallel, into_inner, locked, place_of, put_bytes};
use super::renames::appeared_error;
use super::temporary_names::owner;
use super::{MANIFEST, Outputs, TEMPORARY};
use crate::Error;
use crate::files::{forget, read_object};
use crate::store::{self, ObjectState, StorePath, is_address};

/// A file to upload.
#[derive(Debug)]
pub(super) struct Upload {
    /// A local file, or another object, which is kept.
    pub(super) from: PathBuf,
    /// The address.
    pub(super) to: PathBuf,
    /// Whether it may replace an existing object.
    pub(super) replaces: bool,
    pub(super) is_index: bool,
}

/// Uploaded objects and replaced indexes, which manifests are, too, and how to undo that.
#[derive(Debug, Default)]
pub(super) struct PublishedObjects {
    /// The indexes of an earlier run, moved aside until the new ones are written.
    old_indexes: Vec<PublishedObject>,
    objects: Vec<PublishedObject>,
    indexes: Vec<PublishedObject>,
}

#[derive(Debug)]
struct PublishedObject {
    place: StorePath,
    before: PreviousObject,
    /// The state that copying from another object has left: copies bear no mark of this process.
    copied: Option<ObjectState>,
    /// Whether it may not have been written at all.
    is_unsure: bool,
}

#[derive(Debug)]
enum PreviousObject {
    /// There was no object.
    Absent,
    /// The previous object was copied here.
    Kept(StorePath),
    /// The previous object was copied here, and removed.
    MovedAside(StorePath),
    /// The previous object could not be backed up.
    Lost,
}

impl PublishedObjects {
    /// Moves those of the `old_indexes` aside that are in a store, uploads all files, several at a
    /// time, then the new indexes, and writes the new manifests. On failure, all is rolled back.
    pub(super) fn publish(
        outputs: &Outputs,
        old_indexes: &[PathBuf],
        uploads: Vec<Upload>,
        manifests: &[(PathBuf, String)],
    ) -> Result<Self, Error> {
        let (mut all, faults) = (Self::default(), outputs.faults.as_deref());
        let (indexes, files) = uploads.into_iter().partition(|upload: &Upload| upload.is_index);
        let done = all
            .move_aside(old_indexes)
            .and_then(|()| all.put_all(files, faults))
            .and_then(|()| all.put_indexes(indexes, faults))
            .and_then(|()| all.write_manifests(manifests, faults));
        match done {
            Ok(()) => Ok(all),
            Err(error) => Err(all.roll_back(error, &outputs.abort)),
        }
    }

    fn move_aside(&mut self, indexes: &[PathBuf]) -> Result<(), Error> {
        let moved = Mutex::new(Vec::new());
        let indexes: Vec<&PathBuf> = indexes.iter().filter(|path| is_address(path)).collect();
        let done = in_parallel(indexes, |path| {
            let fail = |error| Error::io("replace", path, error);
            let place = place_of(path)?;
            let kept = match copy_aside(&place) {
                Ok(kept) => kept,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(fail(error)),
            };
            let before = PreviousObject::MovedAside(kept);
            locked(&moved).push(PublishedObject::new(place.clone(), before));
            forget(&place.at);
            place.store.remove(&place.at).map_err(fail)
        });
        self.old_indexes = into_inner(moved);
        done
    }

    fn put_all(
        &mut self,
        uploads: Vec<Upload>,
        faults: Option<&FaultInjector>,
    ) -> Result<(), Error> {
        let objects = Mutex::new(Vec::new());
        let done = in_parallel(uploads, |upload| put(&upload, &objects, faults));
        self.objects = into_inner(objects);
        done
    }

    /// Those of runs that end at the same time are not replaced.
    fn put_indexes(
        &mut self,
        uploads: Vec<Upload>,
        faults: Option<&FaultInjector>,
    ) -> Result<(), Error> {
        for upload in uploads {
            let (place, done) = (place_of(&upload.to)?, Mutex::new(Vec::new()));
            let put = put(&Upload { replaces: false, ..upload }, &done, faults);
            let unanswered =
                put.is_err().then(|| PublishedObject::new(place, PreviousObject::Absent));
            // It may be there all the same.
            self.indexes.extend(into_inner(done).into_iter().chain(unanswered));
            put?;
        }
        Ok(())
    }

    /// Those of runs that end at the same time are not replaced.
    fn write_manifests(
        &mut self,
        manifests: &[(PathBuf, String)],
        faults: Option<&FaultInjector>,
    ) -> Result<(), Error> {
        for (folder, text) in manifests.iter().filter(|(folder, _)| is_address(folder)) {
            let path = folder.join(MANIFEST);
            let place = place_of(&path)?;
            let put = put_bytes(&place, text.as_bytes(), store::PutMode::New, faults);
            let is_refused = put.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::AlreadyExists);
            if is_refused && !place.store.is_own(&place.at).unwrap_or(false) {
                return Err(Error::refused(format!(
                    "another run has written into this folder since this one began: {}",
                    folder.display()
                )));
            }
            // It may be there all the same.
            self.indexes.push(PublishedObject::new(place, PreviousObject::Absent));
            if !is_refused {
                put.map_err(|error| Error::io("write", path, error))?;
            }
        }
        Ok(())
    }

    /// Rolls back everything after an error, and adds the outcome to its message.
    pub(super) fn roll_back(self, error: Error, abort: &AtomicBool) -> Error {
        let Self { old_indexes, objects, indexes } = self;
        let (count, given_up) = (objects.len(), OnceLock::new());
        // An index names other objects: it goes first and comes back last.
        let left_indexes = roll_back_all(indexes, abort, &given_up).left;
        let RolledBack { left: left_objects, others, mut copies } =
            roll_back_all(objects, abort, &given_up);
        let mut old = roll_back_all(old_indexes, abort, &given_up);
        copies.append(&mut old.copies);
        let error = match (left_objects.first(), count - others.len()) {
            (None, 0) => error,
            (None, count) => {
                error.with_detail(&format!("{count} earlier uploads were rolled back"))
            }
            (Some(first), _) => error.with_detail(&format!(
                "{} of {count} uploads could not be rolled back, such as this: {first}",
                left_objects.len(),
            )),
        };
        let error = match others.first() {
            None => error,
            Some(first) => error.with_detail(&format!(
                "{} of {count} uploads were left as they are: another program has written there \
                 since, such as to {first}",
                others.len(),
            )),
        };
        let left = left_indexes.into_iter().chain(old.left).chain(left_copies(copies));
        left.fold(error, |error, left| error.with_detail(&left))
    }

    /// Removes the copies of replaced objects; says which could not be removed.
    pub(super) fn commit(self) -> Option<String> {
        let left = Mutex::new(Vec::new());
        let all = self.old_indexes.into_iter().chain(self.objects);
        let removed = in_parallel(all.collect(), |object| {
            object.remove_copy(&left);
            Ok(())
        });
        // It never fails.
        drop(removed);
        left_copies(into_inner(left))
    }
}

/// A copy that could not be removed, and why.
type LeftCopy = (String, io::Error);

fn left_copies(mut left: Vec<LeftCopy>) -> Option<String> {
    left.sort_by(|(one, _), (other, _)| one.cmp(other));
    let (first, why) = left.first()?;
    let what = match left.len() {
        1 => "this copy of a replaced object".to_owned(),
        count => format!("this and {} more copies of replaced objects", count - 1),
    };
    Some(format!("{first}: {what} could not be removed, and no later run does it ({why})"))
}

/// What became of objects that were rolled back; each sorted.
struct RolledBack {
    /// What is left to do.
    left: Vec<String>,
    /// The addresses that another program has written to since.
    others: Vec<String>,
    copies: Vec<LeftCopy>,
}

/// Rolls back objects, several at a time. Ends with the first that fails because the store does not
/// answer any longer, or when the run is aborted, which then is `given_up`.
fn roll_back_all(
    objects: Vec<PublishedObject>,
    abort: &AtomicBool,
    given_up: &OnceLock<&'static str>,
) -> RolledBack {
    let (left, others) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let copies = Mutex::new(Vec::new());
    let rolled_back = in_parallel(objects, |object| {
        if abort.load(Ordering::Relaxed) {
            given_up.get_or_init(|| "the run was aborted");
        }
        let rolled_back = object.roll_back(given_up.get().copied());
        if rolled_back.is_ok() {
            object.remove_copy(&copies);
        }
        match rolled_back {
            Ok(true) => {}
            Ok(false) => locked(&others).push(object.place.at.to_string()),
            Err(error) => {
                locked(&left).push(object.left(&error));
                if object.place.store.is_gone(&object.place.at) {
                    given_up.get_or_init(|| "the store does not answer any longer");
                }
            }
        }
        Ok(())
    });
    // It never fails.
    drop(rolled_back);
    let (mut left, mut others) = (into_inner(left), into_inner(others));
    left.sort_unstable();
    others.sort_unstable();
    RolledBack { left, others, copies: into_inner(copies) }
}

/// Uploads a file, and notes in `done` what may have been replaced or is new.
fn put(
    upload: &Upload,
    done: &Mutex<Vec<PublishedObject>>,
    faults: Option<&FaultInjector>,
) -> Result<(), Error> {
    let Upload { from, to, replaces, is_index } = upload;
    let place = place_of(to)?;
    let fail = |e: io::Error| match e.kind() {
        io::ErrorKind::AlreadyExists => appeared_error(to),
        _ => Error::io("publish", to, e),
    };
    inject(faults, OutputStep::Rename).map_err(fail)?;
    let before = if *replaces { back_up(&place).map_err(fail)? } else { PreviousObject::Absent };
    let how = if *replaces { store::PutMode::Replace } else { store::PutMode::New };
    let put = put_from((from, *is_index), &place, how);
    forget(&place.at);
    // It may have been replaced all the same.
    if put.is_ok() || matches!(before, PreviousObject::Kept(_)) {
        let copied = if is_address(from) { place.store.stat(&place.at).ok() } else { None };
        let is_unsure = put.is_err();
        locked(done).push(PublishedObject { place, before, copied, is_unsure });
    }
    put.map_err(fail)
}

/// Uploads a local file, or copies another object. An index is not copied by the store: copies bear
/// no mark of this process, so one without an answer could not be told from that of another run.
fn put_from(
    (from, is_index): (&Path, bool),
    to: &StorePath,
    how: store::PutMode,
) -> io::Result<()> {
    let Some(object) = StorePath::parse(from).map_err(io::Error::other)? else {
        return to.store.put_file(&to.at, from, how);
    };
    let state = object.store.stat(&object.at)?;
    let is_elsewhere = object.with_key("").at != to.with_key("").at;
    // Stores copy no part of an empty object.
    if is_index || is_elsewhere || state.len > MAX_COPIED || state.len == 0 {
        return copy_via_file(&object, &state, to, how);
    }
    match how {
        store::PutMode::New => to.store.copy_new(&object.at, &to.at),
        store::PutMode::Replace | store::PutMode::Update(_) => to.store.copy(&object.at, &to.at),
    }
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
    let Err(error) = place.store.copy(&place.at, &aside.at) else { return Ok(aside) };
    if error.kind() == io::ErrorKind::NotFound {
        return Err(error);
    }
    // It may be there all the same, if only the answer was lost.
    if is_same(place, &aside) {
        return Ok(aside);
    }
    if !place.store.is_gone(&place.at) {
        drop(place.store.remove(&aside.at));
    }
    Err(error)
}

impl PublishedObject {
    fn new(place: StorePath, before: PreviousObject) -> Self {
        Self { place, before, copied: None, is_unsure: false }
    }

    /// Rolls it back, unless that is given up; `false` if another program has written there since,
    /// which is left alone.
    fn roll_back(&self, given_up: Option<&'static str>) -> io::Result<bool> {
        let Self { place, before, .. } = self;
        if let Some(why) = given_up {
            return Err(io::Error::other(why));
        }
        if !matches!(before, PreviousObject::MovedAside(_)) && !self.is_as_left()? {
            return self.leave();
        }
        let done = match before {
            PreviousObject::Absent => place.store.remove(&place.at),
            PreviousObject::Kept(kept) => restore(place, kept),
            PreviousObject::MovedAside(kept) => move_back(place, kept),
            PreviousObject::Lost => Err(io::Error::other("the store did not copy it")),
        };
        forget(&place.at);
        done.map(|()| true)
    }

    /// Whether the object is the one that this run has put or copied there.
    fn is_as_left(&self) -> io::Result<bool> {
        let Self { place, copied, .. } = self;
        match copied {
            Some(copied) => state_of(place).map(|now| now.as_ref() == Some(copied)),
            None => place.store.is_own(&place.at),
        }
    }

    /// Leaves alone what is not from this run; `false` if another program has written there.
    fn leave(&self) -> io::Result<bool> {
        Ok(self.is_unsure || state_of(&self.place)?.is_none())
    }

    /// Removes the copy of what was there before, or notes in `left` that it stays. Once the store
    /// is gone, it is not asked.
    fn remove_copy(&self, left: &Mutex<Vec<LeftCopy>>) {
        let (PreviousObject::Kept(copy) | PreviousObject::MovedAside(copy)) = &self.before else {
            return;
        };
        forget(&copy.at);
        let removed = match copy.store.is_gone(&copy.at) {
            true => Err(io::Error::other("the store does not answer any longer")),
            false => copy.store.remove(&copy.at),
        };
        if let Err(error) = removed {
            locked(left).push((copy.at.to_string(), error));
        }
    }

    /// What is left to do if it cannot be rolled back.
    fn left(&self, error: &io::Error) -> String {
        let at = &self.place.at;
        match &self.before {
            PreviousObject::Absent => format!("{at} could not be removed ({error})"),
            PreviousObject::Kept(kept) | PreviousObject::MovedAside(kept) => {
                let kept = &kept.at;
                format!("{at} could not be restored ({error}); copy {kept} to it")
            }
            PreviousObject::Lost => format!("{at} could not be restored ({error})"),
        }
    }
}

/// The state of an object, if there is one.
fn state_of(place: &StorePath) -> io::Result<Option<ObjectState>> {
    match place.store.stat(&place.at) {
        Ok(state) => Ok(Some(state)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Copies an object back from its backup.
fn restore(place: &StorePath, kept: &StorePath) -> io::Result<()> {
    let restored = place.store.copy(&kept.at, &place.at);
    restored.or_else(|error| if is_same(place, kept) { Ok(()) } else { Err(error) })
}

/// Whether one of two objects is a copy of the other; `false` on errors.
fn is_same(one: &StorePath, other: &StorePath) -> bool {
    // If the store is gone, do not wait for it twice.
    if one.store.is_gone(&one.at) {
        return false;
    }
    let Ok(state) = one.store.stat(&one.at) else { return false };
    other.store.stat(&other.at).is_ok_and(|copy| copy == state)
}

/// Moves a small object back from where it was moved aside, unless another run has written one.
fn move_back(place: &StorePath, kept: &StorePath) -> io::Result<()> {
    let (_, bytes) = read_object(kept)?;
    match place.store.put(&place.at, bytes.clone(), store::PutMode::New) {
        // The one of this run may have come after it was removed.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if place.store.is_own(&place.at)? {
                place.store.put(&place.at, bytes, store::PutMode::Replace)?;
            }
        }
        put => put?,
    }
    Ok(())
}
