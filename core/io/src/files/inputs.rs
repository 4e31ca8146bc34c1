//! Keeps what is read of the inputs of a run to what was there at its beginning. Notices that they
//! grow, that they are overwritten, and that another file takes the place of one.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use super::identity::FileIdentity;
use super::input::Input;
use super::log::{LogFile, fill};
use super::open::open;
use crate::Error;

/// The inputs of a run: by path, the file that was there at its beginning.
#[derive(Debug, Default)]
pub struct InputFiles(Mutex<BTreeMap<PathBuf, InputFile>>);

#[derive(Clone, Copy, Debug)]
struct InputFile {
    identity: FileIdentity,
    /// How much of it is read.
    len: u64,
    /// `None` for what is no plain file.
    state: Option<FileState>,
}

/// What tells whether a file was overwritten.
#[derive(Clone, Copy, Debug)]
struct FileState {
    modified: SystemTime,
    sample: blake3::Hash,
}

impl FileState {
    fn read(path: &Path, len: u64) -> Option<Self> {
        let meta = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
        Some(Self { modified: meta.modified().ok()?, sample: sample(path, len)? })
    }
}

/// A hash of bytes in the middle of the first `len` of a file. Writers that grow a file may change
/// its start and its end.
fn sample(path: &Path, len: u64) -> Option<blake3::Hash> {
    const SAMPLE: u64 = 4 << 10;
    let file = open(path).ok()?;
    let mut bytes = vec![0; len.min(SAMPLE) as usize];
    let start = (len - bytes.len() as u64) / 2;
    let read = fill(|buffer, at| file.read_at(buffer, at), start, &mut bytes).ok()?;
    bytes.get(..read).map(blake3::hash)
}

impl InputFiles {
    /// Notes the file of an input, if there is one, and that no more than its length is read.
    pub fn note(&self, input: &Input) {
        if let Some(identity) = FileIdentity::read(&input.path) {
            let state = input.bytes.and_then(|len| FileState::read(&input.path, len));
            let file = InputFile { identity, len: input.bytes.unwrap_or(u64::MAX), state };
            let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            files.insert(input.path.clone(), file);
        }
    }

    /// Opens a log like [`LogFile::open`]. Of an input, what was noted is read.
    ///
    /// `Err` if the file that was noted is gone, or this is another one: the parts of an input that
    /// are read at different times would be of two files.
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
        let log = match open(noted.map_or(u64::MAX, |file| file.len)) {
            Err(error) if noted.is_some() && error.is_missing() => {
                return Err(Error::refused(format!(
                    "the input was removed while it was read; put it back and run again: {}",
                    path.display()
                )));
            }
            opened => opened?,
        };
        let pair = noted.zip(log.identity());
        if pair.is_none_or(|(noted, opened)| noted.identity == opened) {
            return Ok(log);
        }
        Err(Error::refused(format!(
            "the input was replaced by another file while it was read; run again: {}",
            path.display()
        )))
    }

    /// The length of an input when it was noted, if it had one.
    pub fn noted_len(&self, path: &Path) -> Option<u64> {
        self.noted(path).map(|noted| noted.len).filter(|len| *len < u64::MAX)
    }

    /// A sentence about an input that has become longer since it was noted, or was written to. One
    /// that was empty may be a device or a virtual file, which is read to its end. Whoever reads
    /// one that became shorter reports that.
    ///
    /// `Err` if it was overwritten: what was read of it may be of two files.
    pub fn change(&self, path: &Path) -> Result<Option<String>, Error> {
        let noted = self.noted(path).filter(|noted| noted.len > 0);
        let Some((noted, now)) = noted.zip(fs::metadata(path).ok()) else { return Ok(None) };
        if FileIdentity::from_metadata(&now) != Some(noted.identity) {
            return Ok(None);
        }
        let Some(more) = now.len().checked_sub(noted.len) else { return Ok(None) };
        let path_text = path.display();
        let written = noted.state.filter(|state| now.modified().ok() != Some(state.modified));
        if written.is_some_and(|state| sample(path, noted.len) != Some(state.sample)) {
            return Err(Error::refused(format!(
                "the input was overwritten while it was read; run again: {path_text}"
            )));
        }
        Ok(match more {
            0 if written.is_none() => None,
            0 => Some(format!(
                "the input was written to while it was read, and what is read may be from before \
                 or after that: {path_text}"
            )),
            more => Some(format!(
                "the input grew while it was read; the {more} bytes added after byte {} are not \
                 read: {path_text}",
                noted.len
            )),
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
        assert_eq!(inputs.change(&path).unwrap(), None);
    }

    #[test]
    fn an_input_that_is_gone_is_told_from_one_that_was_never_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        fs::write(&path, "one").unwrap();
        let inputs = noted(&path);
        fs::remove_file(&path).unwrap();
        let reason = |inputs: &InputFiles| inputs.open(&path).unwrap_err().to_string();
        assert!(reason(&inputs).contains("was removed while it was read; put it back"));
        assert!(reason(&InputFiles::default()).contains("no such file"));
        fs::remove_dir_all(folder.path()).unwrap();
        assert!(reason(&inputs).contains("was removed while it was read; put it back"));
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
        assert_eq!(inputs.change(&path).unwrap(), None);
    }

    #[test]
    fn an_input_that_is_overwritten_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let (log, other) = (vec![1; 10_000], vec![2; 10_000]);
        let write = |bytes: &[u8]| {
            let before = fs::metadata(&path).and_then(|meta| meta.modified()).ok();
            // The clock of file systems has ticks of some milliseconds.
            while fs::metadata(&path).and_then(|meta| meta.modified()).ok() == before {
                fs::write(&path, bytes).unwrap();
            }
        };
        for (after, len) in [(&log, 10_000), (&other, 10_000), (&other, 20_000), (&other, 9_999)] {
            fs::write(&path, &log).unwrap();
            let inputs = noted(&path);
            assert_eq!(inputs.change(&path).unwrap(), None);
            let mut after = after.clone();
            after.resize(len, 2);
            write(&after);
            let change = inputs.change(&path);
            if after == log {
                assert!(change.unwrap().unwrap().contains("was written to while"));
            } else if len < log.len() {
                assert_eq!(change.unwrap(), None, "whoever reads it reports that");
            } else {
                let error = change.unwrap_err().to_string();
                assert!(error.contains("overwritten while") && error.ends_with("log"), "{error}");
            }
        }
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
            assert_eq!(inputs.change(&path).unwrap(), None);
            fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(&bytes).unwrap();
            assert_eq!(read(inputs.open(&path)), b"one", "{name}");
            assert_eq!(read(inputs.open_plain(&path)), bytes, "{name}");
            assert_eq!(early.read_at(0, &mut [0; 64]).unwrap(), 3);
            let len = bytes.len();
            let told = inputs.change(&path).unwrap().unwrap();
            assert!(told.contains(&format!("the {len} bytes added after byte {len}")), "{told}");
            assert_eq!(read(LogFile::open(&path)), b"oneone", "{name}");
        }
    }
}
