//! The room where a driver and its workers meet: a hidden folder beside the record of the batch.
//!
//! `driver` is touched by the driver as long as it lives; `unit-000012/ATTEMPT/` is where a worker puts a unit
//! together; `unit-000012.ATTEMPT.json` is a delivery. Times are compared as the file system gives them, never with
//! a clock: machines disagree.
//!
//! Beside a record in an object store, it is made of [`objects`](super::objects).

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf, absolute};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sluice_core::store::is_address;
use sluice_core::{Error, files};

use super::objects::{self, Objects};

/// The beginning and the end of a room's name. What ends so is nobody's output.
pub(super) const NAME: (&str, &str) = (".cluster.", ".sluice-tmp");

/// How the name ends of a room that is being removed.
const GONE: &str = ".gone.sluice-tmp";

/// How often it is tried to remove a room into which late workers still write.
pub(super) const REMOVALS: usize = 100;

/// The file by which a driver shows that it lives.
pub(super) const DRIVER: &str = "driver";

/// A driver that has not been heard of for so long is taken for dead.
const SILENCE: Duration = Duration::from_secs(60);

/// Where a room is, as everybody knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Site(PathBuf);

/// A room that was made for a run, which goes with it.
#[derive(Debug)]
pub(super) struct Room {
    site: Site,
    /// Folders that were made for it, innermost first.
    made: Vec<PathBuf>,
}

/// Who drives a run.
#[derive(Debug, Serialize, Deserialize)]
struct Driving {
    /// Where its process number counts: this run of this machine, and the processes that can be seen from there.
    /// Containers and machines of one name differ in it.
    home: String,
    process: u32,
}

/// The rooms of this process.
fn ours() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    static OURS: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    OURS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Room {
    /// Makes a room in this folder, which is made, too, if it is not there. Rooms of drivers that died are removed.
    pub(super) fn make(folder: &Path) -> Result<Self, Error> {
        if is_address(folder) {
            return Self::make_in_store(folder);
        }
        let folder = absolute(if folder.as_os_str().is_empty() { Path::new(".") } else { folder })
            .map_err(|e| Error::io("find", folder, e))?;
        let missing = folder.ancestors().take_while(|folder| !folder.exists());
        let made = missing.map(Path::to_owned).collect();
        fs::create_dir_all(&folder).map_err(|e| Error::io("create", &folder, e))?;
        remove_deserted(&folder);
        let path = folder.join(format!("{}{}{}", NAME.0, unique_hash(), NAME.1));
        let room = Self { site: Site(path), made };
        ours().insert(room.path().to_owned());
        fs::create_dir(room.path()).map_err(|e| Error::io("create", room.path(), e))?;
        room.touch()?;
        Ok(room)
    }

    fn make_in_store(folder: &Path) -> Result<Self, Error> {
        remove_deserted(folder);
        let path = folder.join(format!("{}{}{}", NAME.0, unique_hash(), NAME.1));
        ours().insert(path.clone());
        let room = Self { site: Site(path), made: Vec::new() };
        room.touch()?;
        Ok(room)
    }

    /// `Err` if another driver has a room beside this one in a store, where nothing else tells of it.
    pub(super) fn expect_alone(&self) -> Result<(), Error> {
        let Some(folder) = self.path().parent() else { return Ok(()) };
        let rooms = objects::rooms(folder)?;
        if rooms.iter().all(|room| room == self.path() || is_dead(room)) {
            return Ok(());
        }
        Err(Error::refused(format!(
            "another run on a cluster is writing to this folder; wait for it to end: {}",
            folder.display()
        )))
    }

    pub(super) fn site(&self) -> &Site {
        &self.site
    }

    fn path(&self) -> &Path {
        self.site.path()
    }

    /// Shows that the driver lives. A new file under the old name also tells network file systems that the folder
    /// has changed, so that they look again what is in it.
    pub(super) fn touch(&self) -> Result<(), Error> {
        let (path, beside) = (self.path().join(DRIVER), self.path().join(".driver"));
        let driving = Driving { home: home(), process: std::process::id() };
        let text = serde_json::to_vec(&driving).map_err(|e| Error::internal(e.to_string()))?;
        if let Some(objects) = Objects::of(self.path())? {
            return objects.put(DRIVER, &text);
        }
        let touched = fs::write(&beside, text).and_then(|()| fs::rename(&beside, &path));
        touched.map_err(|e| Error::io("write", path, e))
    }

    /// The deliveries that are there, sorted by name, with the numbers of their units.
    pub(super) fn deliveries(&self) -> Result<Vec<(usize, PathBuf)>, Error> {
        if let Some(objects) = Objects::of(self.path())? {
            let names = objects.names("unit-")?.into_iter();
            let unit = |name: String| Some((unit_of_delivery(&name)?, self.path().join(name)));
            let mut found: Vec<_> = names.filter_map(unit).collect();
            found.sort();
            return Ok(found);
        }
        let fail = |e| Error::io("list", self.path(), e);
        let mut found = Vec::new();
        for entry in fs::read_dir(self.path()).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let name = entry.file_name();
            if let Some(unit) = name.to_str().and_then(unit_of_delivery) {
                found.push((unit, entry.path()));
            }
        }
        found.sort();
        Ok(found)
    }

    /// Removes everything that was made of a unit. What cannot be removed goes with the room.
    pub(super) fn clear(&self, unit: usize) {
        self.site.clear(&self.site.unit(unit));
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        remove(self.path());
        ours().remove(self.path());
        // Those that hold something stay.
        self.made.iter().for_each(|folder| drop(fs::remove_dir(folder)));
    }
}

impl Site {
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Where attempts at a unit are made.
    pub(super) fn unit(&self, unit: usize) -> PathBuf {
        self.0.join(format!("unit-{unit:06}"))
    }

    /// Removes everything in a folder of the room.
    pub(super) fn clear(&self, folder: &Path) {
        match Objects::of(&self.0) {
            Ok(Some(objects)) => {
                let inside = folder.strip_prefix(&self.0).ok().and_then(Path::to_str);
                drop(inside.map(|inside| objects.clear(&format!("{inside}/"))));
            }
            _ => drop(fs::remove_dir_all(folder)),
        }
    }

    /// Whether it can be seen here: the run may be over.
    pub(super) fn is_there(&self) -> bool {
        match Objects::of(&self.0) {
            Ok(None) => self.0.is_dir(),
            // What keeps a store from answering is told by whoever needs more of it.
            Ok(Some(objects)) => objects.is_there().unwrap_or(true),
            Err(_) => true,
        }
    }

    /// Where a delivery appears.
    pub(super) fn delivery(&self, unit: usize, attempt: &str) -> PathBuf {
        self.0.join(format!("unit-{unit:06}.{attempt}.json"))
    }

    /// How many attempts at a unit there have been.
    pub(super) fn attempts(&self, unit: usize) -> Result<usize, Error> {
        if let Some(objects) = Objects::of(&self.0)? {
            return objects.attempts(unit);
        }
        let folder = self.unit(unit);
        match fs::read_dir(&folder) {
            Ok(entries) => Ok(entries.filter_map(Result::ok).count()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(Error::io("list", folder, error)),
        }
    }

    /// What a file in the room says.
    pub(super) fn read_json<T: DeserializeOwned>(&self, name: &str) -> Result<T, Error> {
        let path = self.0.join(name);
        let text = files::read(&path)?;
        serde_json::from_slice(&text).map_err(|e| {
            Error::refused(format!(
                "this file of a run cannot be understood: {e}: {}",
                path.display()
            ))
        })
    }

    /// Why nobody waits for what would be brought here; nothing if somebody does.
    pub(super) fn is_deserted(&self) -> Result<Option<String>, Error> {
        if let Some(objects) = Objects::of(&self.0)? {
            return Ok(objects.silence()?.map_or_else(|| Some(self.unseen()), told));
        }
        let heard = match fs::metadata(self.0.join(DRIVER)).and_then(|meta| meta.modified()) {
            Ok(heard) => heard,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Some(self.unseen()));
            }
            Err(error) => return Err(Error::io("look at", self.0.join(DRIVER), error)),
        };
        let silent = now(&self.0)?.duration_since(heard).unwrap_or_default();
        Ok(told(silent))
    }

    fn unseen(&self) -> String {
        format!("the run is over, or its folder cannot be seen here: {}", self.0.display())
    }
}

/// What is to be said of a driver that has been silent for so long; nothing if that says nothing.
fn told(silent: Duration) -> Option<String> {
    (silent > SILENCE)
        .then(|| format!("the driver of the run has been silent for {} s", silent.as_secs()))
}

/// The time of the file system that has this folder: that of a file made just now.
fn now(folder: &Path) -> Result<SystemTime, Error> {
    let path = folder.join(format!(".now.{}", unique()));
    let time = File::create_new(&path).and_then(|file| file.metadata()?.modified());
    drop(fs::remove_file(&path));
    time.map_err(|e| Error::io("write", path, e))
}

/// Removes the rooms of drivers that are no more.
pub(crate) fn remove_deserted(folder: &Path) {
    if is_address(folder) {
        // What cannot be looked at now, a later run removes.
        let rooms = objects::rooms(folder).unwrap_or_default();
        rooms.iter().filter(|room| is_dead(room)).for_each(|room| remove(room));
        return;
    }
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if is_room(&entry.file_name()) && path.is_dir() && is_dead(&path) {
            remove(&path);
        }
    }
}

/// Removes a room in which workers that come late may still be writing: under another name nobody begins anything
/// in it. What cannot be removed now, the next run takes for deserted.
fn remove(room: &Path) {
    if let Ok(Some(objects)) = Objects::of(room) {
        drop(objects.remove());
        return;
    }
    let gone = room.with_file_name(format!("{}{}{GONE}", NAME.0, unique_hash()));
    if fs::rename(room, &gone).is_err() {
        return;
    }
    for _ in 0..REMOVALS {
        match fs::remove_dir_all(&gone) {
            // Somebody has just put something into a folder that was being removed.
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            _ => return,
        }
    }
}

/// Whether this is what is left of a room that was removed.
fn is_gone(room: &Path) -> bool {
    room.as_os_str().as_encoded_bytes().ends_with(GONE.as_bytes())
}

fn is_room(name: &OsStr) -> bool {
    let bytes = name.as_encoded_bytes();
    bytes.starts_with(NAME.0.as_bytes()) && bytes.ends_with(NAME.1.as_bytes())
}

/// Whether nobody drives the run of this room any more.
fn is_dead(room: &Path) -> bool {
    if is_gone(room) {
        return true;
    }
    let driver = room.join(DRIVER);
    let Ok(text) = files::read_if_exists(&driver) else { return false };
    let in_store = is_address(room);
    let driving: Option<Driving> = text.and_then(|text| serde_json::from_slice(&text).ok());
    match driving {
        // There, the driver is what is put first.
        None if in_store => true,
        Some(driving) if driving.home == home() && driving.process == std::process::id() => {
            !ours().contains(room)
        }
        Some(driving) if driving.home == home() => {
            !Path::new("/proc").join(driving.process.to_string()).exists()
        }
        Some(_) if in_store => is_silent(room),
        // One that is being made has no such file yet.
        _ => {
            let heard = fs::metadata(&driver).or_else(|_| fs::metadata(room));
            let heard = heard.and_then(|meta| meta.modified());
            let Ok((heard, now)) =
                heard.map_err(|_| ()).and_then(|h| Ok((h, now(room).map_err(|_| ())?)))
            else {
                return false;
            };
            now.duration_since(heard).unwrap_or_default() > SILENCE
        }
    }
}

/// Whether nobody has been heard for long in a room of a store, or nobody is there.
fn is_silent(room: &Path) -> bool {
    let Ok(Some(objects)) = Objects::of(room) else { return false };
    match objects.silence() {
        Ok(silent) => silent.is_none_or(|silent| silent > SILENCE),
        Err(_) => false,
    }
}

fn unit_of_delivery(name: &str) -> Option<usize> {
    let (unit, _) = name.strip_suffix(".json")?.strip_prefix("unit-")?.split_once('.')?;
    unit.parse().ok()
}

/// Where a number of a process means one process: see [`Driving`].
fn home() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let processes = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    format!("{} {} {}", host(), boot.trim(), processes.display())
}

/// What this machine calls itself, in letters that go into any name.
pub(super) fn host() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let name: String = name.trim().chars().map(plain).take(40).collect();
    if name.is_empty() { "host".to_owned() } else { name }
}

/// A name that nobody else gives: by machine, process, time and count.
pub(super) fn unique() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    format!("{}-{}-{time:x}-{count}", host(), std::process::id())
}

fn unique_hash() -> String {
    blake3::hash(unique().as_bytes()).to_hex().chars().take(16).collect()
}
