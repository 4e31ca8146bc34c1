//! Small files, read whole: manifests, and what options name: tables, descriptions, types,
//! expectations.

use std::fs;
use std::io;
use std::path::Path;

use super::identity::stream_identity;
use super::log::LogFile;
use super::objects::read_object;
use crate::Error;
use crate::store::StorePath;

/// All bytes of a small file or object, as they are. [`read_small`] reads what options name.
pub fn read(path: &Path) -> Result<Vec<u8>, Error> {
    match StorePath::parse(path)? {
        Some(place) => match read_object(&place) {
            Ok((_, bytes)) => Ok(bytes.to_vec()),
            Err(error) => Err(Error::io("read", path, error)),
        },
        None => fs::read(path).map_err(|error| Error::io("read", path, error)),
    }
}

/// Like [`read`], but `None` if there is nothing.
pub fn read_if_exists(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    match read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.is_missing() => Ok(None),
        Err(error) => Err(error),
    }
}

/// All bytes of a small file, decompressed if necessary. Of one that is longer than `most`, more
/// than that, but not all.
///
/// `Err` for standard input as `-`, for a pipe in which nothing is left, and if not all of it can
/// be decompressed.
pub fn read_small(path: &Path, most: usize) -> Result<Vec<u8>, Error> {
    if path == Path::new("-") {
        let what = "expected a file here; save the input to a file, and name that";
        return Err(Error::io("read", path, io::Error::new(io::ErrorKind::NotFound, what)));
    }
    let mut log = LogFile::open(path)?;
    let bytes = log.first_bytes(most.saturating_add(1))?;
    if let Some(why) = log.decompression_error() {
        return Err(Error::refused(format!("{why}: {}", path.display())));
    }
    // Nothing comes from a pipe that was read before, unless it has a name and is written again.
    if bytes.is_empty() && stream_identity(path).is_some() {
        return Err(Error::refused(format!(
            "this pipe is empty, or was read before: a pipe can be read only once; save it to a \
             file, and name that: {}",
            path.display()
        )));
    }
    Ok(bytes)
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
        assert!(again.contains("pipe is empty, or was read before"), "{again}");
        assert!(again.contains("save it to a file") && again.ends_with(&path), "{again}");
    }

    #[test]
    fn a_named_pipe_is_read_as_often_as_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table");
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
        rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
        for text in ["one", "two", "two"] {
            std::thread::scope(|threads| {
                threads.spawn(|| fs::write(&path, text).unwrap());
                assert_eq!(read_small(&path, 10).unwrap(), text.as_bytes());
            });
        }
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
