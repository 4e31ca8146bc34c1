//! Small files that options name: tables, descriptions, types, expectations.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use super::LogFile;
use super::peek::{StreamIdentity, stream_identity};
use crate::Error;

/// The streams that were read here. Whoever reads one again gets nothing, or waits.
static READ: Mutex<BTreeSet<StreamIdentity>> = Mutex::new(BTreeSet::new());

/// All bytes of a small file, decompressed if necessary. Of one that is longer than `most`, more
/// than that, but not all.
///
/// `Err` for standard input as `-`, for a stream that was read before, and if not all of it can be
/// decompressed.
pub fn read_small(path: &Path, most: usize) -> Result<Vec<u8>, Error> {
    if path == Path::new("-") {
        let what = "expected a file here; save the input to a file, and name that";
        return Err(Error::io("read", path, io::Error::new(io::ErrorKind::NotFound, what)));
    }
    if stream_identity(path).is_some_and(|identity| !is_new(identity)) {
        return Err(Error::refused(format!(
            "this is a pipe, which can be read only once, and is needed more than once; save it to \
             a file, and name that: {}",
            path.display()
        )));
    }
    let mut log = LogFile::open(path)?;
    let bytes = log.first_bytes(most.saturating_add(1))?;
    match log.decompression_error() {
        Some(why) => Err(Error::refused(format!("{why}: {}", path.display()))),
        None => Ok(bytes),
    }
}

fn is_new(stream: StreamIdentity) -> bool {
    READ.lock().unwrap_or_else(PoisonError::into_inner).insert(stream)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_pipe_is_read_once_and_then_refused() {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"table").unwrap();
        drop(writer);
        let path = format!("/dev/fd/{}", reader.as_raw_fd());
        assert_eq!(read_small(Path::new(&path), 10).unwrap(), b"table");
        let again = read_small(Path::new(&path), 10).unwrap_err().to_string();
        assert!(again.contains("is a pipe") && again.contains("save it to a file"), "{again}");
        assert!(again.ends_with(&path), "{again}");
    }

    #[test]
    fn files_are_read_whole_unless_they_are_too_long() {
        let folder = tempfile::tempdir().unwrap();
        let (plain, packed) = (folder.path().join("a.toml"), folder.path().join("a.toml.zst"));
        let text = b"start,end\n".repeat(20_000);
        let bytes = zstd::encode_all(&text[..], 1).unwrap();
        fs::write(&plain, &text).unwrap();
        fs::write(&packed, &bytes).unwrap();
        for path in [&plain, &packed] {
            for _ in 0..2 {
                assert_eq!(read_small(path, text.len()).unwrap(), text);
            }
            assert!(read_small(path, 100).unwrap().len() > 100);
        }
        fs::write(&packed, &bytes[..bytes.len() - 5]).unwrap();
        let error = read_small(&packed, text.len()).unwrap_err().to_string();
        assert!(error.ends_with("a.toml.zst"), "{error}");
        let error = read_small(Path::new("-"), 1).unwrap_err().to_string();
        assert!(error.contains("save the input to a file"), "{error}");
        assert!(read_small(folder.path(), 1).is_err());
    }
}
