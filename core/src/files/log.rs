//! One input that is read: at any place, whatever it really is.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::object_reader::ObjectReader;
use super::stream::Stream;
use super::{ZSTD_MAGIC, fill, is_zstd, open};
use crate::Error;

/// A log that can be read at any place: a file, an object of a store, or a stream of which what is still needed is
/// kept.
#[derive(Debug)]
pub struct LogFile {
    path: PathBuf,
    backend: Backend,
}

enum Backend {
    File(File),
    Object(ObjectReader),
    Stream(Stream),
}

impl std::fmt::Debug for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::File(_) => "File",
            Self::Object(_) => "Object",
            Self::Stream(_) => "Stream",
        })
    }
}

impl LogFile {
    /// Opens a file, an object, a pipe, or standard input (`-`). What is compressed with zstd reads as what
    /// it holds.
    pub fn open(path: &Path) -> Result<Self, Error> {
        if path == Path::new("-") {
            return Self::stream(path, Box::new(io::stdin()));
        }
        if let Some(ranges) = ObjectReader::open(path)? {
            return Self::object(path, ranges);
        }
        let file = open(path)?;
        let kind = file.metadata().map_err(|e| Error::io("open", path, e))?;
        if kind.is_dir() {
            return Err(Error::io("read", path, io::ErrorKind::IsADirectory.into()));
        }
        if !kind.is_file() {
            return Self::stream(path, Box::new(file));
        }
        if is_zstd(path)? {
            return Ok(Self {
                path: path.to_owned(),
                backend: Backend::Stream(Stream::packed(decompressed(path, file)?)),
            });
        }
        Ok(Self { path: path.to_owned(), backend: Backend::File(file) })
    }

    fn object(path: &Path, mut ranges: ObjectReader) -> Result<Self, Error> {
        let is_packed = ranges.is_zstd().map_err(|e| Error::io("read", path, e))?;
        let form = match is_packed {
            true => Backend::Stream(Stream::packed(decompressed(path, ranges)?)),
            false => Backend::Object(ranges),
        };
        Ok(Self { path: path.to_owned(), backend: form })
    }

    /// Opens a file or an object as it is, compressed or not.
    pub fn open_plain(path: &Path) -> Result<Self, Error> {
        if let Some(ranges) = ObjectReader::open(path)? {
            return Ok(Self { path: path.to_owned(), backend: Backend::Object(ranges) });
        }
        Ok(Self { path: path.to_owned(), backend: Backend::File(open(path)?) })
    }

    /// Reads `stream`, uncompressed if it is compressed, as the log that the user knows as `path`.
    pub fn stream(path: &Path, stream: Box<dyn Read + Send>) -> Result<Self, Error> {
        let mut stream = Stream::new(stream);
        let mut magic = [0; 4];
        let found = stream.read_at(0, &mut magic).map_err(|e| Error::io("read", path, e))?;
        if found == 4 && magic == ZSTD_MAGIC {
            stream = Stream::packed(decompressed(path, stream)?);
        }
        Ok(Self { path: path.to_owned(), backend: Backend::Stream(stream) })
    }

    /// The path as the user named it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether any place can be read at any time, also again.
    pub fn is_seekable(&self) -> bool {
        matches!(self.backend, Backend::File(_) | Backend::Object(_))
    }

    /// How many bytes have to lie between two places for reading both to cost less than reading on from one
    /// to the other; nothing where the way leads through them all.
    pub fn min_seek_distance(&self) -> Option<u64> {
        match &self.backend {
            Backend::File(_) => Some(4 << 10),
            Backend::Object(_) => Some(4 << 20),
            Backend::Stream(_) => None,
        }
    }

    /// How long it is now, where that can be known.
    pub fn len(&self) -> Option<u64> {
        match &self.backend {
            Backend::File(file) => file.metadata().ok().map(|meta| meta.len()),
            Backend::Object(ranges) => Some(ranges.len()),
            Backend::Stream(_) => None,
        }
    }

    /// What tells this state of an object from others; nothing of what is no object.
    pub fn version(&self) -> Option<&str> {
        match &self.backend {
            Backend::Object(ranges) => Some(ranges.version()),
            Backend::File(_) | Backend::Stream(_) => None,
        }
    }

    /// Whether it is known to be empty.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Fills as much of `buffer` as the log has at `position`: less only at its end.
    ///
    /// A stream keeps everything from the last [`forget`](Self::forget) on; places before are gone.
    pub fn read_at(&mut self, position: u64, buffer: &mut [u8]) -> Result<usize, Error> {
        let read = match &mut self.backend {
            Backend::File(file) => fill(|buf, at| file.read_at(buf, at), position, buffer),
            Backend::Object(ranges) => ranges.read_at(position, buffer),
            Backend::Stream(stream) => stream.read_at(position, buffer),
        };
        read.map_err(|e| Error::io("read", &self.path, e))
    }

    /// What is wrong with a compressed log that could only be read up to here. Known once reading has
    /// come to its end.
    pub fn decompression_error(&self) -> Option<&str> {
        match &self.backend {
            Backend::File(_) | Backend::Object(_) => None,
            Backend::Stream(stream) => stream.broken.as_deref(),
        }
    }

    /// Says that nothing before `position` will be asked for again.
    pub fn forget(&mut self, position: u64) {
        if let Backend::Stream(stream) = &mut self.backend {
            stream.forget(position);
        }
    }
}

/// What a compressed input holds.
fn decompressed(
    path: &Path,
    from: impl Read + Send + 'static,
) -> Result<Box<dyn Read + Send>, Error> {
    let decoder = zstd::stream::read::Decoder::new(from).map_err(|e| Error::io("read", path, e))?;
    Ok(Box::new(decoder))
}
