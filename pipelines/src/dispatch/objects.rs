//! A room in an object store: what a folder is to driver and workers, made of objects whose keys begin alike. Knows
//! nothing of what they say to each other.
//!
//! Nothing in a store can be locked, made beforehand, or taken away at once. So a room is there as long as the object
//! is by which its driver shows that it lives: that is put first and removed first, and whoever finds it gone takes
//! away what it has put.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sluice_core::Error;
use sluice_core::output::{remove_file, remove_objects, replace_file};
use sluice_core::store::{ListDepth, StorePath};

use super::room::{DRIVER, NAME, REMOVALS, unique};

/// Where attempts are counted. Their outputs may be many, and are not to be listed for that.
const BEGUN: &str = "begun/";

/// A room in a store.
pub(super) struct Objects {
    path: PathBuf,
    place: StorePath,
}

impl Objects {
    /// The room with this path; nothing if it is a folder.
    ///
    /// `Err` if this program does not have the store.
    pub(super) fn of(room: &Path) -> Result<Option<Self>, Error> {
        let place = StorePath::parse(room)?.map(|place| place.folder());
        Ok(place.map(|place| Self { path: room.to_owned(), place }))
    }

    /// Puts an object.
    pub(super) fn put(&self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        replace_file(&self.path.join(name), bytes)
    }

    /// The names in the room that begin so, as far as they have no slash behind that.
    pub(super) fn names(&self, prefix: &str) -> Result<Vec<String>, Error> {
        self.list(prefix, ListDepth::One)
    }

    /// Notes that an attempt is begun.
    pub(super) fn begin(&self, unit: usize, attempt: &str) -> Result<(), Error> {
        self.put(&begun(unit, attempt), attempt.as_bytes())
    }

    /// Forgets an attempt.
    pub(super) fn forget(&self, unit: usize, attempt: &str) -> Result<(), Error> {
        remove_file(&self.path.join(begun(unit, attempt)))
    }

    /// How many attempts at a unit were begun.
    pub(super) fn attempts(&self, unit: usize) -> Result<usize, Error> {
        self.names(&begun(unit, "")).map(|begun| begun.len())
    }

    /// Removes all objects whose names begin so.
    pub(super) fn clear(&self, prefix: &str) -> Result<(), Error> {
        let names = self.list(prefix, ListDepth::All)?;
        remove_objects(names.iter().map(|name| self.path.join(name)).collect())
    }

    /// Whether the run is not over.
    pub(super) fn is_there(&self) -> Result<bool, Error> {
        let driver = self.place.with_key(format!("{}{DRIVER}", self.place.at.key()));
        match driver.store.stat(&driver.at) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(Error::io("look at", driver.at.path(), error)),
        }
    }

    /// For how long the driver has said nothing, by the store's clock; nothing if it is gone.
    pub(super) fn silence(&self) -> Result<Option<Duration>, Error> {
        let time = |name: &str| {
            let place = self.place.with_key(format!("{}{name}", self.place.at.key()));
            match place.store.put_time(&place.at) {
                Ok(time) => Ok(Some(time)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(Error::io("look at", place.at.path(), error)),
            }
        };
        let Some(heard) = time(DRIVER)? else { return Ok(None) };
        let probe = format!(".now.{}", unique());
        self.put(&probe, b"now")?;
        let now = time(&probe);
        remove_file(&self.path.join(&probe))?;
        Ok(now?.map(|now| now.duration_since(heard).unwrap_or_default()))
    }

    /// Removes the room, into which workers that come late may still be putting things.
    pub(super) fn remove(&self) -> Result<(), Error> {
        remove_file(&self.path.join(DRIVER))?;
        for _ in 0..REMOVALS {
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

/// The rooms in a folder of a store; none if it is a folder of this machine.
pub(super) fn rooms(folder: &Path) -> Result<BTreeSet<PathBuf>, Error> {
    let Some(place) = StorePath::parse(folder)?.map(|place| place.folder()) else {
        return Ok(BTreeSet::new());
    };
    let root = place.at.key();
    let at = place.at.with_key(format!("{root}{}", NAME.0));
    let found = place.store.list(&at, ListDepth::All, usize::MAX);
    let found = found.map_err(|e| Error::io("list", folder, e))?;
    let room = |key: &str| {
        let (name, _) = key.strip_prefix(root)?.split_once('/')?;
        name.ends_with(NAME.1).then(|| folder.join(name))
    };
    Ok(found.iter().filter_map(|(key, _)| room(key)).collect())
}

fn begun(unit: usize, attempt: &str) -> String {
    format!("{BEGUN}{unit:06}.{attempt}")
}
