//! The exchange directory of a driver and its workers: a hidden folder next to the batch record.
//!
//! `driver` is the driver's heartbeat file; `unit-000012/ATTEMPT/` is where a worker stages a unit;
//! `unit-000012.ATTEMPT.json` is a delivery. Ages are computed from file system timestamps, never
//! from local clocks, which differ between machines.
//!
//! In an object store it is made of [`exchange_objects`](super::exchange_objects).

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf, absolute};
use std::time::{Duration, SystemTime};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sluice_io::files;
use sluice_io::output::{is_running, process_start};
use sluice_io::store::is_address;
use sluice_model::Error;

use super::exchange_names::{DIR_NAME, DRIVER, REMOVE_ATTEMPTS, host, unique, unique_hash};
use super::exchange_objects::{self, ExchangeObjects};

/// Suffix of a directory that is being removed.
const REMOVED_SUFFIX: &str = ".gone.sluice-tmp";

/// A driver without a heartbeat for this long is considered dead.
const DRIVER_TIMEOUT: Duration = Duration::from_secs(60);

/// The path of an exchange directory, as all processes see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct ExchangePath(PathBuf);

/// The exchange directory of a run, removed on drop.
#[derive(Debug)]
pub(super) struct ExchangeDir {
    site: ExchangePath,
    /// Folders created for it, innermost first.
    made: Vec<PathBuf>,
}

/// Identifies the driver process.
#[derive(Debug, Serialize, Deserialize)]
struct DriverIdentity {
    /// The scope of its process id: host, boot and PID namespace. Differs between containers and
    /// between machines of the same name.
    home: String,
    process: u32,
    /// When the process started, as its id may be used again.
    #[serde(default)]
    started: String,
}

impl ExchangeDir {
    /// Creates an exchange directory in this folder, and the folder if it is missing. Removes those
    /// of dead drivers.
    pub(super) fn create(folder: &Path) -> Result<Self, Error> {
        if is_address(folder) {
            return Self::create_in_store(folder);
        }
        let folder = absolute(if folder.as_os_str().is_empty() { Path::new(".") } else { folder })
            .map_err(|e| Error::io("find", folder, e))?;
        let missing = folder.ancestors().take_while(|folder| !folder.exists());
        let made = missing.map(Path::to_owned).collect();
        fs::create_dir_all(&folder).map_err(|e| Error::io("create", &folder, e))?;
        remove_abandoned(&folder);
        let path = folder.join(format!("{}{}{}", DIR_NAME.0, unique_hash(), DIR_NAME.1));
        let exchange = Self { site: ExchangePath(path), made };
        fs::create_dir(exchange.path()).map_err(|e| Error::io("create", exchange.path(), e))?;
        exchange.touch()?;
        Ok(exchange)
    }

    fn create_in_store(folder: &Path) -> Result<Self, Error> {
        remove_abandoned(folder);
        let path = folder.join(format!("{}{}{}", DIR_NAME.0, unique_hash(), DIR_NAME.1));
        let exchange = Self { site: ExchangePath(path), made: Vec::new() };
        exchange.touch()?;
        Ok(exchange)
    }

    /// `Err` if another driver is active in the same folder of a store, where no lock would show
    /// it.
    pub(super) fn refuse_second_driver(&self) -> Result<(), Error> {
        let Some(folder) = self.path().parent() else { return Ok(()) };
        let dirs = exchange_objects::exchange_dirs(folder)?;
        if dirs.iter().all(|exchange| exchange == self.path() || is_abandoned(exchange)) {
            return Ok(());
        }
        Err(Error::refused(format!(
            "another run on a cluster is writing to this folder; wait for it to end: {}",
            folder.display()
        )))
    }

    pub(super) fn site(&self) -> &ExchangePath {
        &self.site
    }

    fn path(&self) -> &Path {
        self.site.path()
    }

    /// Writes the heartbeat. Replacing the file also makes network file systems refresh their
    /// cached listing of the folder.
    pub(super) fn touch(&self) -> Result<(), Error> {
        let (path, beside) = (self.path().join(DRIVER), self.path().join(".driver"));
        let process = std::process::id();
        let started = process_start(process).unwrap_or_default();
        let driver = DriverIdentity { home: process_space(), process, started };
        let text = serde_json::to_vec(&driver).map_err(|e| Error::internal(e.to_string()))?;
        if let Some(objects) = ExchangeObjects::open(self.path())? {
            return objects.put(DRIVER, &text);
        }
        let touched = fs::write(&beside, text).and_then(|()| fs::rename(&beside, &path));
        touched.map_err(|e| Error::io("write", path, e))
    }

    /// The deliveries so far, sorted by name, with their unit numbers.
    pub(super) fn deliveries(&self) -> Result<Vec<(usize, PathBuf)>, Error> {
        if let Some(objects) = ExchangeObjects::open(self.path())? {
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

    /// Removes everything that belongs to a unit. Leftovers go with the exchange directory.
    pub(super) fn clear(&self, unit: usize) {
        self.site.clear(&self.site.unit(unit));
    }
}

impl Drop for ExchangeDir {
    fn drop(&mut self) {
        remove(self.path());
        // Folders that are not empty stay.
        self.made.iter().for_each(|folder| drop(fs::remove_dir(folder)));
    }
}

impl ExchangePath {
    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// The folder for attempts at a unit.
    pub(super) fn unit(&self, unit: usize) -> PathBuf {
        self.0.join(format!("unit-{unit:06}"))
    }

    /// Removes everything in a folder of the exchange directory.
    pub(super) fn clear(&self, folder: &Path) {
        match ExchangeObjects::open(&self.0) {
            Ok(Some(objects)) => {
                let inside = folder.strip_prefix(&self.0).ok().and_then(Path::to_str);
                drop(inside.map(|inside| objects.clear(&format!("{inside}/"))));
            }
            _ => drop(fs::remove_dir_all(folder)),
        }
    }

    /// Whether it is visible here; the run may be over.
    pub(super) fn exists(&self) -> bool {
        match ExchangeObjects::open(&self.0) {
            Ok(None) => self.0.is_dir(),
            // The next real access reports errors of the store.
            Ok(Some(objects)) => objects.exists().unwrap_or(true),
            Err(_) => true,
        }
    }

    /// The path of a delivery.
    pub(super) fn delivery(&self, unit: usize, attempt: &str) -> PathBuf {
        self.0.join(format!("unit-{unit:06}.{attempt}.json"))
    }

    /// The number of attempts at a unit.
    pub(super) fn attempts(&self, unit: usize) -> Result<usize, Error> {
        if let Some(objects) = ExchangeObjects::open(&self.0)? {
            return objects.attempts(unit);
        }
        let folder = self.unit(unit);
        match fs::read_dir(&folder) {
            Ok(entries) => Ok(entries.filter_map(Result::ok).count()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            Err(error) => Err(Error::io("list", folder, error)),
        }
    }

    /// Reads a JSON file from the exchange directory.
    pub(super) fn read_json<T: DeserializeOwned>(&self, name: &str) -> Result<T, Error> {
        let path = self.0.join(name);
        let text = files::read(&path)?;
        serde_json::from_slice(&text).map_err(|e| {
            Error::refused(format!("this file of the run is not valid: {e}: {}", path.display()))
        })
    }

    /// Why the run no longer waits for deliveries; `None` if it does.
    pub(super) fn abandoned_reason(&self) -> Result<Option<String>, Error> {
        if let Some(objects) = ExchangeObjects::open(&self.0)? {
            return Ok(objects
                .silence()?
                .map_or_else(|| Some(self.invisible_note()), silence_note));
        }
        let last_beat = match fs::metadata(self.0.join(DRIVER)).and_then(|meta| meta.modified()) {
            Ok(last_beat) => last_beat,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Some(self.invisible_note()));
            }
            Err(error) => return Err(Error::io("look at", self.0.join(DRIVER), error)),
        };
        let silent = now(&self.0)?.duration_since(last_beat).unwrap_or_default();
        Ok(silence_note(silent))
    }

    fn invisible_note(&self) -> String {
        format!("the run is over, or its folder is not visible here: {}", self.0.display())
    }
}

/// The message for a driver that has been silent for too long; `None` before the timeout.
fn silence_note(silent: Duration) -> Option<String> {
    (silent > DRIVER_TIMEOUT)
        .then(|| format!("the driver of the run has been silent for {} s", silent.as_secs()))
}

/// The current time of the folder's file system, taken from a new file.
fn now(folder: &Path) -> Result<SystemTime, Error> {
    let path = folder.join(format!(".now.{}", unique()));
    let time = File::create_new(&path).and_then(|file| file.metadata()?.modified());
    drop(fs::remove_file(&path));
    time.map_err(|e| Error::io("write", path, e))
}

/// Removes the exchange directories of dead drivers.
pub(crate) fn remove_abandoned(folder: &Path) {
    if is_address(folder) {
        // A later run removes what cannot be inspected now.
        let dirs = exchange_objects::exchange_dirs(folder).unwrap_or_default();
        dirs.iter().filter(|exchange| is_abandoned(exchange)).for_each(|exchange| remove(exchange));
        return;
    }
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if is_exchange_dir(&entry.file_name()) && path.is_dir() && is_abandoned(&path) {
            remove(&path);
        }
    }
}

/// Removes an exchange directory that late workers may still write to: after the rename, no new
/// attempt starts in it. The next run removes leftovers.
fn remove(exchange: &Path) {
    if let Ok(Some(objects)) = ExchangeObjects::open(exchange) {
        drop(objects.remove());
        return;
    }
    let gone = exchange.with_file_name(format!("{}{}{REMOVED_SUFFIX}", DIR_NAME.0, unique_hash()));
    if fs::rename(exchange, &gone).is_err() {
        return;
    }
    for _ in 0..REMOVE_ATTEMPTS {
        match fs::remove_dir_all(&gone) {
            // A worker has just written into a folder that is being removed.
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            _ => return,
        }
    }
}

/// Whether this is an exchange directory that is being removed.
fn is_being_removed(exchange: &Path) -> bool {
    exchange.as_os_str().as_encoded_bytes().ends_with(REMOVED_SUFFIX.as_bytes())
}

fn is_exchange_dir(name: &OsStr) -> bool {
    let bytes = name.as_encoded_bytes();
    bytes.starts_with(DIR_NAME.0.as_bytes()) && bytes.ends_with(DIR_NAME.1.as_bytes())
}

/// Whether the driver of this exchange directory is gone.
fn is_abandoned(exchange: &Path) -> bool {
    if is_being_removed(exchange) {
        return true;
    }
    let heartbeat = exchange.join(DRIVER);
    let Ok(text) = files::read_if_exists(&heartbeat) else { return false };
    let in_store = is_address(exchange);
    let driver: Option<DriverIdentity> = text.and_then(|text| serde_json::from_slice(&text).ok());
    match driver {
        // In a store, the heartbeat is the first object put.
        None if in_store => true,
        Some(driver) if driver.home == process_space() => {
            !is_running(driver.process, &driver.started)
        }
        Some(_) if in_store => is_silent(exchange),
        // A directory that is being created has no heartbeat yet.
        _ => {
            let last_beat = fs::metadata(&heartbeat).or_else(|_| fs::metadata(exchange));
            let last_beat = last_beat.and_then(|meta| meta.modified());
            let Ok((last_beat, now)) =
                last_beat.map_err(|_| ()).and_then(|h| Ok((h, now(exchange).map_err(|_| ())?)))
            else {
                return false;
            };
            now.duration_since(last_beat).unwrap_or_default() > DRIVER_TIMEOUT
        }
    }
}

/// Whether the heartbeat in a store has timed out or is gone.
fn is_silent(exchange: &Path) -> bool {
    let Ok(Some(objects)) = ExchangeObjects::open(exchange) else { return false };
    match objects.silence() {
        Ok(silent) => silent.is_none_or(|silent| silent > DRIVER_TIMEOUT),
        Err(_) => false,
    }
}

fn unit_of_delivery(name: &str) -> Option<usize> {
    let (unit, _) = name.strip_suffix(".json")?.strip_prefix("unit-")?.split_once('.')?;
    unit.parse().ok()
}

/// The scope in which a process id is unique; see [`DriverIdentity`].
fn process_space() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let processes = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    format!("{} {} {}", host(), boot.trim(), processes.display())
}
