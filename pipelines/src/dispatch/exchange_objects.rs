//! An exchange directory in an object store, made of objects with a common key prefix. Does not
//! interpret their content.
//!
//! A store cannot lock, create or remove a folder atomically. The exchange directory therefore
//! exists as long as its heartbeat object: the driver puts it first and removes it first, and a
//! worker that finds it gone removes what it has put.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sluice_io::output::{remove_file, remove_objects, replace_file};
use sluice_io::store::{ListDepth, StorePath};
use sluice_model::Error;

use super::exchange_names::{DIR_NAME, DRIVER, REMOVE_ATTEMPTS, unique};

/// Prefix of the attempt markers. Counting these avoids listing the outputs of attempts.
const ATTEMPT_PREFIX: &str = "begun/";

/// An exchange directory in a store.
pub(super) struct ExchangeObjects {
    path: PathBuf,
    place: StorePath,
}

impl ExchangeObjects {
    /// The exchange directory with this path; `None` if it is on disk.
    ///
    /// `Err` if this program was built without that store.
    pub(super) fn open(exchange: &Path) -> Result<Option<Self>, Error> {
        let place = StorePath::parse(exchange)?.map(|place| place.folder());
        Ok(place.map(|place| Self { path: exchange.to_owned(), place }))
    }

    /// Puts an object.
    pub(super) fn put(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        replace_file(&self.path.join(name), bytes)
    }

    /// The names with this prefix that have no slash after it.
    pub(super) fn names(&self, prefix: &str) -> Result<Vec<String>, Error> {
        self.list(prefix, ListDepth::One)
    }

    /// Marks an attempt as started.
    pub(super) fn begin_attempt(&self, unit: usize, attempt: &str) -> Result<(), Error> {
        self.put(&attempt_key(unit, attempt), attempt.as_bytes())
    }

    /// Removes the marker of an attempt.
    pub(super) fn forget_attempt(&self, unit: usize, attempt: &str) -> Result<(), Error> {
        remove_file(&self.path.join(attempt_key(unit, attempt)))
    }

    /// The number of started attempts at a unit.
    pub(super) fn attempts(&self, unit: usize) -> Result<usize, Error> {
        self.names(&attempt_key(unit, "")).map(|begun| begun.len())
    }

    /// Removes all objects with this prefix.
    pub(super) fn clear(&self, prefix: &str) -> Result<(), Error> {
        let names = self.list(prefix, ListDepth::All)?;
        remove_objects(names.iter().map(|name| self.path.join(name)).collect())
    }

    /// Whether the run is still active.
    pub(super) fn exists(&self) -> Result<bool, Error> {
        let driver = self.place.with_key(format!("{}{DRIVER}", self.place.at.key()));
        match driver.store.stat(&driver.at) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(Error::io("look at", driver.at.path(), error)),
        }
    }

    /// The time since the last heartbeat, by the store's clock; `None` if the driver is gone.
    pub(super) fn silence(&self) -> Result<Option<Duration>, Error> {
        let time = |name: &str| {
            let place = self.place.with_key(format!("{}{name}", self.place.at.key()));
            match place.store.put_time(&place.at) {
                Ok(time) => Ok(Some(time)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(Error::io("look at", place.at.path(), error)),
            }
        };
        let Some(last_beat) = time(DRIVER)? else { return Ok(None) };
        let probe = format!(".now.{}", unique());
        self.put(&probe, b"now")?;
        let now = time(&probe);
        remove_file(&self.path.join(&probe))?;
        Ok(now?.map(|now| now.duration_since(last_beat).unwrap_or_default()))
    }

    /// Removes the exchange directory, into which late workers may still be writing.
    pub(super) fn remove(&self) -> Result<(), Error> {
        remove_file(&self.path.join(DRIVER))?;
        for _ in 0..REMOVE_ATTEMPTS {
            self.clear("")?;
            if self.list("", ListDepth::All)?.is_empty() {
                break;
            }
        }
        Ok(())
    }

    fn list(&self, prefix: &str, depth: ListDepth) -> Result<Vec<String>, Error> {
        let root = self.place.at.key();
        let at = self.place.at.with_key(format!("{root}{prefix}"));
        let found = self.place.store.list(&at, depth, usize::MAX);
        let found = found.map_err(|e| Error::io("list", &self.path, e))?;
        let names =
            found.into_iter().filter_map(|(key, _)| Some(key.strip_prefix(root)?.to_owned()));
        Ok(names.collect())
    }
}

/// The exchange directories in a folder of a store; none if the folder is on disk.
pub(super) fn exchange_dirs(folder: &Path) -> Result<BTreeSet<PathBuf>, Error> {
    let Some(place) = StorePath::parse(folder)?.map(|place| place.folder()) else {
        return Ok(BTreeSet::new());
    };
    let root = place.at.key();
    let at = place.at.with_key(format!("{root}{}", DIR_NAME.0));
    let found = place.store.list(&at, ListDepth::All, usize::MAX);
    let found = found.map_err(|e| Error::io("list", folder, e))?;
    let exchange = |key: &str| {
        let (name, _) = key.strip_prefix(root)?.split_once('/')?;
        name.ends_with(DIR_NAME.1).then(|| folder.join(name))
    };
    Ok(found.iter().filter_map(|(key, _)| exchange(key)).collect())
}

fn attempt_key(unit: usize, attempt: &str) -> String {
    format!("{ATTEMPT_PREFIX}{unit:06}.{attempt}")
}
