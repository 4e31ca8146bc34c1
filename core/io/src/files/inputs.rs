//! Keeps what is read of the inputs of a run to what was there at its beginning. Notices that they
//! grow, and that another file takes the place of one.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::{FileIdentity, Input, LogFile};
use crate::Error;

/// The inputs of a run: by path, the file that was there at its beginning.
#[derive(Debug, Default)]
pub struct InputFiles(Mutex<BTreeMap<PathBuf, InputFile>>);

#[derive(Clone, Copy, Debug)]
struct InputFile {
    identity: FileIdentity,
    /// How much of it is read.
    len: u64,
}

impl InputFiles {
    /// Notes the file of an input, if there is one, and that no more than its length is read.
    pub fn note(&self, input: &Input) {
        if let Some(identity) = FileIdentity::read(&input.path) {
            let file = InputFile { identity, len: input.bytes.unwrap_or(u64::MAX) };
            let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            files.insert(input.path.clone(), file);
        }
    }

    /// Opens a log like [`LogFile::open`]. Of an input, what was noted is read.
    ///
    /// `Err` if this is another file than the one that was noted: the parts of an input that are
    /// read at different times would be of two files.
    pub fn open(&self, path: &Path) -> Result<LogFile, Error> {
        self.checked(path, |len| LogFile::open_up_to(path, len))
    }

    /// The same without decompressing it.
    pub fn open_plain(&self, path: &Path) -> Result<LogFile, Error> {
        self.checked(path, |len| LogFile::open_plain_up_to(path, len))
    }

    fn checked(
        &self,
        path: &Path,
        open: impl FnOnce(u64) -> Result<LogFile, Error>,
    ) -> Result<LogFile, Error> {
        let noted = self.noted(path);
        let log = open(noted.map_or(u64::MAX, |file| file.len))?;
        let pair = noted.zip(log.identity());
        if pair.is_none_or(|(noted, opened)| noted.identity == opened) {
            return Ok(log);
        }
        Err(Error::refused(format!(
            "the input was replaced by another file while it was read; run again: {}",
            path.display()
        )))
    }

    /// A sentence about an input that has become longer since it was noted. One that was empty may
    /// be a device or a virtual file, which is read to its end.
    pub fn growth(&self, path: &Path) -> Option<String> {
        let noted = self.noted(path).filter(|noted| noted.len > 0)?;
        let now = fs::metadata(path).ok()?;
        let more = now.len().checked_sub(noted.len).filter(|more| *more > 0)?;
        (FileIdentity::from_metadata(&now) == Some(noted.identity)).then(|| {
            format!(
                "the input grew while it was read; the {more} bytes added after byte {} are not \
                 read: {}",
                noted.len,
                path.display()
            )
        })
    }

    fn noted(&self, path: &Path) -> Option<InputFile> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(path).copied()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn noted(path: &Path) -> InputFiles {
        let inputs = InputFiles::default();
        inputs
            .note(&Input { path: path.to_owned(), bytes: Some(fs::metadata(path).unwrap().len()) });
        inputs
    }

    #[test]
    fn a_file_that_takes_the_place_of_an_input_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("log"), folder.path().join("other"));
        fs::write(&path, "one").unwrap();
        InputFiles::default().open(&path).unwrap();
        let inputs = noted(&path);
        // A file may grow, and be written again in place.
        fs::write(&path, "longer").unwrap();
        inputs.open(&path).unwrap();
        fs::write(&other, "longer").unwrap();
        inputs.open(&other).unwrap();
        fs::rename(&other, &path).unwrap();
        let reason = inputs.open(&path).unwrap_err().to_string();
        assert!(reason.contains("replaced by another file") && reason.ends_with("log"), "{reason}");
        assert_eq!(inputs.growth(&path), None);
    }

    #[test]
    fn a_new_file_with_the_inode_of_an_input_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        fs::write(&path, "one").unwrap();
        let created = || fs::metadata(&path).unwrap().created().ok();
        let Some(first) = created() else {
            println!("skipped: the file system does not know when a file was created");
            return;
        };
        let inputs = noted(&path);
        // The clock of file systems has ticks of some milliseconds.
        while created() == Some(first) {
            fs::remove_file(&path).unwrap();
            fs::write(&path, "two").unwrap();
        }
        let reason = inputs.open(&path).unwrap_err().to_string();
        assert!(reason.contains("replaced by another file"), "{reason}");
        assert_eq!(inputs.growth(&path), None);
    }

    #[test]
    fn what_is_added_to_an_input_is_told_and_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let read = |log: Result<LogFile, Error>| {
            let (mut log, mut buffer) = (log.unwrap(), [0; 64]);
            let read = log.read_at(0, &mut buffer).unwrap();
            buffer[..read].to_vec()
        };
        let packed = zstd::encode_all(&b"one"[..], 0).unwrap();
        for (name, bytes) in [("log", b"one".to_vec()), ("log.zst", packed)] {
            let path = folder.path().join(name);
            fs::write(&path, &bytes).unwrap();
            let inputs = noted(&path);
            let mut early = inputs.open(&path).unwrap();
            assert_eq!(inputs.growth(&path), None);
            fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(&bytes).unwrap();
            assert_eq!(read(inputs.open(&path)), b"one", "{name}");
            assert_eq!(read(inputs.open_plain(&path)), bytes, "{name}");
            assert_eq!(early.read_at(0, &mut [0; 64]).unwrap(), 3);
            let len = bytes.len();
            let told = inputs.growth(&path).unwrap();
            assert!(told.contains(&format!("the {len} bytes added after byte {len}")), "{told}");
            assert_eq!(read(LogFile::open(&path)), b"oneone", "{name}");
        }
    }
}
