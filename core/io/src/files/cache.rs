//! Remembers what was read from the last files, so that not every split reads it again.

use std::borrow::Borrow;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use super::log::LogFile;
use crate::Error;

/// What was read from the last files, such as their indexes.
#[derive(Debug)]
pub struct FileCache<T> {
    files: Mutex<Vec<CachedFile<T>>>,
    capacity: usize,
    /// Whether a file has changed if it was written to.
    is_by_time: bool,
}

#[derive(Debug)]
struct CachedFile<T> {
    path: PathBuf,
    /// Of the file, and of those that belong to it.
    stamps: Vec<FileStamp>,
    content: T,
}

/// Identifies the state of a file: by its length, and its modification time or object version.
#[derive(Debug, PartialEq, Eq)]
struct FileStamp {
    path: PathBuf,
    len: u64,
    modified: Option<SystemTime>,
    version: Option<String>,
}

impl FileStamp {
    fn of(log: &LogFile, is_by_time: bool) -> Self {
        let path = log.path().to_owned();
        let meta = is_by_time.then(|| std::fs::metadata(&path).ok()).flatten();
        let modified = meta.and_then(|meta| meta.modified().ok());
        let version = log.version().map(str::to_owned);
        Self { path, len: log.len().unwrap_or_default(), modified, version }
    }
}

impl<T> Default for FileCache<T> {
    fn default() -> Self {
        // Files are read one after another.
        Self { files: Mutex::default(), capacity: 4, is_by_time: true }
    }
}

impl<T: Clone> FileCache<T> {
    /// Remembers all files: for what is small and takes long to read.
    pub fn of_all() -> Self {
        Self { capacity: usize::MAX, ..Self::default() }
    }

    /// Remembers all files, also if they are written to meanwhile, but of the same length: for
    /// those of which all splits have to be of one state. Whoever reads them finds out whether they
    /// still are.
    pub fn of_one_state() -> Self {
        Self { is_by_time: false, ..Self::of_all() }
    }

    /// What `read` returns for this open file, which is read again if it is not in the cache or has
    /// changed.
    pub fn get(
        &self,
        log: LogFile,
        read: impl FnOnce(LogFile) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.get_with(log, &[], read)
    }

    /// The same of a file and others that belong to it, of which none may have changed.
    pub fn get_with<L: Borrow<LogFile>>(
        &self,
        log: L,
        others: &[&LogFile],
        read: impl FnOnce(L) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let path = log.borrow().path().to_owned();
        let logs = [log.borrow()].into_iter().chain(others.iter().copied());
        let stamps: Vec<_> = logs.map(|log| FileStamp::of(log, self.is_by_time)).collect();
        let is_it = |cached: &&CachedFile<T>| cached.path == path && cached.stamps == stamps;
        if let Some(CachedFile { content, .. }) = self.lock().iter().find(is_it) {
            return Ok(content.clone());
        }
        // Two threads may read the same file: that is cheaper than waiting.
        let content = read(log)?;
        let mut cached = self.lock();
        if let Some(CachedFile { content, .. }) = cached.iter().find(is_it) {
            return Ok(content.clone());
        }
        cached.retain(|cached| cached.path != path);
        cached.insert(0, CachedFile { path, stamps, content: content.clone() });
        cached.truncate(self.capacity);
        Ok(content)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<CachedFile<T>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;

    use super::*;

    #[test]
    fn a_file_is_read_again_if_it_has_changed_or_others_were_read_since() {
        let dir = tempfile::tempdir().unwrap();
        let (cache, reads) = (FileCache::default(), Cell::new(0));
        let get = |name: &str| {
            let read = |log: LogFile| {
                reads.set(reads.get() + 1);
                Ok(log.len())
            };
            cache.get(LogFile::open_plain(&dir.path().join(name)).unwrap(), read).unwrap()
        };
        fs::write(dir.path().join("a"), "one").unwrap();
        assert_eq!((get("a"), get("a"), reads.get()), (Some(3), Some(3), 1));
        fs::write(dir.path().join("a"), "three").unwrap();
        assert_eq!((get("a"), reads.get()), (Some(5), 2));
        for name in ["b", "c", "d", "e"] {
            fs::write(dir.path().join(name), name).unwrap();
            get(name);
        }
        get("e");
        assert_eq!(reads.get(), 6);
        get("a");
        assert_eq!(reads.get(), 7);
    }

    #[test]
    fn a_file_is_read_again_if_one_that_belongs_to_it_has_changed() {
        let dir = tempfile::tempdir().unwrap();
        let [path, other] = ["log", "other"].map(|name| dir.path().join(name));
        fs::write(&path, "one").unwrap();
        fs::write(&other, "two").unwrap();
        let (cache, reads) = (FileCache::default(), Cell::new(0));
        let get = |others: &[&LogFile]| {
            let read = |_| {
                reads.set(reads.get() + 1);
                Ok(())
            };
            cache.get_with(LogFile::open_plain(&path).unwrap(), others, read).unwrap();
            reads.get()
        };
        let open = || LogFile::open_plain(&other).unwrap();
        assert_eq!([get(&[]), get(&[&open()]), get(&[&open()])], [1, 2, 2]);
        fs::write(&other, "longer").unwrap();
        assert_eq!([get(&[&open()]), get(&[&open()]), get(&[])], [3, 3, 4]);
    }

    #[test]
    fn of_a_file_that_is_written_to_the_first_state_is_kept_if_all_parts_have_to_be_of_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let cache = FileCache::of_one_state();
        let get = |content: &str| {
            fs::write(&path, content).unwrap();
            let read = |_| Ok(fs::read_to_string(&path).unwrap());
            cache.get(LogFile::open_plain(&path).unwrap(), read).unwrap()
        };
        assert_eq!([get("one"), get("two"), get("three")], ["one", "one", "three"]);
    }

    #[test]
    fn what_cannot_be_read_is_not_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        fs::write(&path, "one").unwrap();
        let cache = FileCache::default();
        let open = || LogFile::open_plain(&path).unwrap();
        cache.get(open(), |_| Err::<u32, _>(Error::refused("unreadable"))).unwrap_err();
        assert_eq!(cache.get(open(), |_| Ok(7)).unwrap(), 7);
    }
}
