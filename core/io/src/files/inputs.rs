//! Notices that another file takes the place of an input while it is read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::{FileIdentity, LogFile};
use crate::Error;

/// The inputs of a run: by path, the file that was there at its beginning.
#[derive(Debug, Default)]
pub struct InputFiles(Mutex<BTreeMap<PathBuf, FileIdentity>>);

impl InputFiles {
    /// Notes the file at `path`, if there is one.
    pub fn note(&self, path: &Path) {
        if let Some(identity) = FileIdentity::read(path) {
            let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            files.insert(path.to_owned(), identity);
        }
    }

    /// `Err` if this is another file than the one that was noted: the parts of an input that are
    /// read at different times would be of two files.
    pub fn check(&self, log: &LogFile) -> Result<(), Error> {
        let files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let pair = files.get(log.path()).copied().zip(log.identity());
        if pair.is_none_or(|(noted, opened)| noted == opened) {
            return Ok(());
        }
        Err(Error::refused(format!(
            "the input was replaced by another file while it was read; run again: {}",
            log.path().display()
        )))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_that_takes_the_place_of_an_input_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("log"), folder.path().join("other"));
        fs::write(&path, "one").unwrap();
        let inputs = InputFiles::default();
        let check = || inputs.check(&LogFile::open(&path).unwrap());
        check().unwrap();
        inputs.note(&path);
        // A file may grow, and be written again in place.
        fs::write(&path, "longer").unwrap();
        check().unwrap();
        fs::write(&other, "longer").unwrap();
        inputs.check(&LogFile::open(&other).unwrap()).unwrap();
        fs::rename(&other, &path).unwrap();
        let reason = check().unwrap_err().to_string();
        assert!(reason.contains("replaced by another file") && reason.ends_with("log"), "{reason}");
    }
}
