//! Opens logs: files, objects, and streams, whose first bytes may be looked at before they are
//! read.

use std::collections::BTreeMap;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use super::identity::{StreamIdentity, stream_identity};
use super::log::{LogFile, fill};
use super::object_reader::ObjectReader;
use super::stream::{PolledFile, StopCheck, Stream};
use crate::Error;
use crate::frames::{is_magic, is_start_of_zstd};
use crate::store;

impl LogFile {
    /// Opens a file, an object, a pipe, or standard input (`-`). Input compressed with zstd is
    /// decompressed.
    ///
    /// Of a file, what is there now is read, and nothing that is added meanwhile.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Self::open_up_to(path, u64::MAX)
    }

    /// Like [`open`](Self::open), but of a file only the first `most` bytes.
    pub(super) fn open_up_to(path: &Path, most: u64) -> Result<Self, Error> {
        if let Some(log) = take_peeked(path) {
            return Ok(log.with_path(path));
        }
        if path == Path::new("-") {
            let stdin = io::stdin().as_fd().try_clone_to_owned();
            let stdin = stdin.map_err(|e| Error::io("open", path, e))?;
            return Self::polled(path, stdin.into());
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
            return Self::polled(path, file);
        }
        let len = readable_len(&kind, most);
        if is_zstd(path)? {
            return Self::decompressed(path, file.take(len), &Arc::default());
        }
        Ok(Self::from_file(path, file, len))
    }

    fn object(path: &Path, mut ranges: ObjectReader) -> Result<Self, Error> {
        let is_packed = ranges.is_zstd().map_err(|e| Error::io("read", path, e))?;
        if !is_packed {
            return Ok(Self::from_object(path, ranges));
        }
        Self::decompressed(path, ranges, &Arc::default())
    }

    fn decompressed(
        path: &Path,
        from: impl Read + Send + 'static,
        stop: &Arc<StopCheck>,
    ) -> Result<Self, Error> {
        let stream =
            Stream::packed(Box::new(from), stop).map_err(|e| Error::io("read", path, e))?;
        Ok(Self::from_stream(path, stream))
    }

    /// Opens a file or an object without decompressing it.
    pub fn open_plain(path: &Path) -> Result<Self, Error> {
        Self::open_plain_up_to(path, u64::MAX)
    }

    /// Like [`open_plain`](Self::open_plain), but of a file only the first `most` bytes.
    pub(super) fn open_plain_up_to(path: &Path, most: u64) -> Result<Self, Error> {
        if let Some(ranges) = ObjectReader::open(path)? {
            return Ok(Self::from_object(path, ranges));
        }
        let file = open(path)?;
        let meta = file.metadata().map_err(|e| Error::io("open", path, e))?;
        Ok(Self::from_file(path, file, readable_len(&meta, most)))
    }

    /// Reads `stream`, decompressing it if necessary, as the log that the user calls `path`.
    pub fn stream(path: &Path, stream: Box<dyn Read + Send>) -> Result<Self, Error> {
        Self::sniffed(path, Stream::new(stream, &Arc::default()))
    }

    fn polled(path: &Path, file: File) -> Result<Self, Error> {
        let stop = Arc::default();
        let file = PolledFile { file, stop: Arc::clone(&stop) };
        Self::sniffed(path, Stream::new(Box::new(file), &stop))
    }

    /// A stream, decompressed if necessary.
    fn sniffed(path: &Path, mut stream: Stream) -> Result<Self, Error> {
        let stop = Arc::clone(&stream.stop);
        let mut magic = [0; 4];
        let found = stream.read_at(0, &mut magic, 4).map_err(|e| Error::io("read", path, e))?;
        if found == magic.len() && is_magic(magic) {
            return Self::decompressed(path, stream, &stop);
        }
        Ok(Self::from_stream(path, stream))
    }
}

/// How much of a file there is to read, at most `most`. Devices, and virtual files as in `/proc`,
/// do not tell their length.
fn readable_len(meta: &Metadata, most: u64) -> u64 {
    if meta.len() == 0 { u64::MAX } else { meta.len().min(most) }
}

/// The first `len` bytes of a file, decompressed if necessary; fewer if the file is shorter.
///
/// Returns nothing for pipes, and does not consume them.
pub fn head(path: &Path, len: usize) -> Result<Vec<u8>, Error> {
    if !store::is_address(path)
        && !fs::metadata(path).map_err(|e| Error::io("open", path, e))?.is_file()
    {
        return Ok(Vec::new());
    }
    let mut log = LogFile::open(path)?;
    log.skip_checksums();
    log.first_bytes(len)
}

/// Whether a file is compressed with zstd, judging by its first bytes; by its name, if it ends
/// before them.
pub fn is_zstd(path: &Path) -> Result<bool, Error> {
    if let Some(mut ranges) = ObjectReader::open(path)? {
        return ranges.is_zstd().map_err(|e| Error::io("read", path, e));
    }
    let mut magic = [0; 4];
    let file = open(path)?;
    let found = fill(|buf, at| file.read_at(buf, at), 0, &mut magic)
        .map_err(|e| Error::io("read", path, e))?;
    Ok(is_start_of_zstd(path, magic.get(..found).unwrap_or_default()))
}

pub(super) fn open(path: &Path) -> Result<File, Error> {
    File::open(path).map_err(|e| Error::io("open", path, e))
}

/// The streams that were opened to look at their first bytes, and not been read yet.
static PEEKED: Mutex<BTreeMap<StreamIdentity, LogFile>> = Mutex::new(BTreeMap::new());

/// Looks at the first bytes of a stream, decompressed if necessary: waits for as many as are
/// `enough`, at most for `most`. They can still be read, by the next [`LogFile::open`]. `None` if
/// `path` is no stream.
pub fn stream_head(
    path: &Path,
    most: usize,
    enough: impl Fn(&[u8]) -> bool,
) -> Result<Option<Vec<u8>>, Error> {
    let Some(identity) = stream_identity(path) else { return Ok(None) };
    let mut log = LogFile::open(path)?;
    let head = log.head(most, enough)?.to_vec();
    peeked().insert(identity, log);
    Ok(Some(head))
}

/// Whether the first frame of a compressed file or stream is damaged: then its first bytes may be
/// missing or wrong. Of a stream, all can still be read.
pub fn has_damaged_start(path: &Path) -> Result<bool, Error> {
    let identity = stream_identity(path);
    let mut log = LogFile::open(path)?;
    let is_damaged = log.has_damaged_start()?;
    if let Some(identity) = identity {
        peeked().insert(identity, log);
    }
    Ok(is_damaged)
}

/// The stream at `path`, if it was looked at.
fn take_peeked(path: &Path) -> Option<LogFile> {
    // Most inputs are files, which need not be asked for their identity.
    if peeked().is_empty() {
        return None;
    }
    let identity = stream_identity(path)?;
    peeked().remove(&identity)
}

fn peeked() -> std::sync::MutexGuard<'static, BTreeMap<StreamIdentity, LogFile>> {
    PEEKED.lock().unwrap_or_else(PoisonError::into_inner)
}
