//! One open input, readable at any position.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::hash::{InputHash, InputHashes, PIECE, SHORTEST_READ};
use super::identity::FileIdentity;
use super::object_reader::ObjectReader;
use super::stream::{StopCheck, Stream};
use crate::Error;

/// A log that can be read at any position: a file, an object of a store, or a stream with a window
/// of buffered bytes.
pub struct LogFile {
    path: PathBuf,
    backend: Backend,
    /// To which what is read is added.
    hash: Option<Arc<InputHash>>,
    /// Whether to stop reading.
    stop: Arc<StopCheck>,
}

enum Backend {
    /// A file, and how much of it is read: nothing that was added after it was opened.
    File(File, u64),
    Object(ObjectReader),
    Stream(Stream),
}

/// How much of a file is read at first if its beginning is asked for.
const FIRST_READ: usize = 64 << 10;

impl std::fmt::Debug for LogFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("LogFile").field(&self.path).finish()
    }
}

impl LogFile {
    /// A file, of which `len` bytes are read.
    pub(super) fn from_file(path: &Path, file: File, len: u64) -> Self {
        Self::with_backend(path, Backend::File(file, len))
    }

    /// An object, as it is.
    pub(super) fn from_object(path: &Path, object: ObjectReader) -> Self {
        Self::with_backend(path, Backend::Object(object))
    }

    pub(super) fn from_stream(path: &Path, stream: Stream) -> Self {
        let stop = Arc::clone(&stream.stop);
        Self { stop, ..Self::with_backend(path, Backend::Stream(stream)) }
    }

    fn with_backend(path: &Path, backend: Backend) -> Self {
        Self { path: path.to_owned(), backend, hash: None, stop: Arc::default() }
    }

    /// The same log by another name.
    pub(super) fn with_path(self, path: &Path) -> Self {
        Self { path: path.to_owned(), ..self }
    }

    /// The path as the user named it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether any position can be read repeatedly.
    pub fn is_seekable(&self) -> bool {
        matches!(self.backend, Backend::File(..) | Backend::Object(_))
    }

    /// The smallest distance in bytes for which seeking is cheaper than reading on; `None` if the
    /// log cannot seek.
    pub fn min_seek_distance(&self) -> Option<u64> {
        match &self.backend {
            Backend::File(..) => Some(4 << 10),
            Backend::Object(_) => Some(4 << 20),
            Backend::Stream(_) => None,
        }
    }

    /// How much of it can be read now, if known. Less than at first if a file became shorter.
    pub fn len(&self) -> Option<u64> {
        match &self.backend {
            Backend::File(_, most) => self.file_len().map(|len| len.min(*most)),
            Backend::Object(ranges) => Some(ranges.len()),
            Backend::Stream(_) => None,
        }
    }

    /// Whether it is shorter than this by now. A file that is longer than what is read of it is
    /// not.
    pub fn is_shorter_than(&self, expected: u64) -> bool {
        self.file_len().or_else(|| self.len()).is_some_and(|len| len < expected)
    }

    fn file_len(&self) -> Option<u64> {
        match &self.backend {
            Backend::File(file, _) => file.metadata().ok().map(|meta| meta.len()),
            Backend::Object(_) | Backend::Stream(_) => None,
        }
    }

    /// Which file it is; `None` for anything else.
    pub(super) fn identity(&self) -> Option<FileIdentity> {
        match &self.backend {
            Backend::File(file, _) => FileIdentity::from_metadata(&file.metadata().ok()?),
            Backend::Object(_) | Backend::Stream(_) => None,
        }
    }

    /// The version of an object; `None` for anything else.
    pub fn version(&self) -> Option<&str> {
        match &self.backend {
            Backend::Object(ranges) => Some(ranges.version()),
            Backend::File(..) | Backend::Stream(_) => None,
        }
    }

    /// Whether it is known to be empty.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Fills `buffer` from `position`; returns fewer bytes only at the end of the log.
    ///
    /// A stream buffers everything from the last [`forget`](Self::forget) on; earlier positions
    /// cannot be read.
    pub fn read_at(&mut self, position: u64, buffer: &mut [u8]) -> Result<usize, Error> {
        match &self.hash {
            Some(hash) if buffer.len() >= SHORTEST_READ => {
                let hash = Arc::clone(hash);
                self.read_hashed(position, buffer, &hash)
            }
            _ => self.read(position, buffer, buffer.len()),
        }
    }

    /// Like [`read_at`](Self::read_at), but returns what a stream has, at least `least` bytes, if
    /// nothing comes for a moment: its reader need not wait with what it has.
    pub fn read_arrived(
        &mut self,
        position: u64,
        buffer: &mut [u8],
        least: usize,
    ) -> Result<usize, Error> {
        match self.is_seekable() {
            true => self.read_at(position, buffer),
            false => self.read(position, buffer, least),
        }
    }

    /// The end of a stream, once reading has reached it.
    pub fn stream_end(&self) -> Option<u64> {
        match &self.backend {
            Backend::Stream(stream) => stream.end(),
            Backend::File(..) | Backend::Object(_) => None,
        }
    }

    /// Whether more of a stream may come behind `position`, up to which it was read.
    pub fn awaits_more(&self, position: u64) -> bool {
        let is_stream = matches!(self.backend, Backend::Stream(_));
        is_stream && self.stream_end().is_none_or(|end| position < end)
    }

    /// Adds what is read from now on to the log's hash, if these have it.
    pub fn hash_reads(&mut self, hashes: &InputHashes) {
        self.hash = hashes.of(&self.path).filter(|_| self.is_seekable()).cloned();
    }

    /// Stops reading once `stop` returns true: a stream then ends behind what has arrived, and
    /// [`is_cancelled`](Self::is_cancelled) tells the readers of other logs.
    pub fn stop_when(&mut self, stop: impl Fn() -> bool + Send + Sync + 'static) {
        self.stop.set(stop);
    }

    /// Whether to read no further. Never true of a stream, which ends by itself.
    pub fn is_cancelled(&self) -> bool {
        self.is_seekable() && self.stop.is_true()
    }

    /// Whether the log ends because it was [stopped](Self::stop_when): what its last bytes start
    /// may be incomplete. Known once reading has reached that point.
    pub fn was_stopped(&self) -> bool {
        matches!(&self.backend, Backend::Stream(stream) if stream.was_stopped)
    }

    /// Hashes each piece while it is in the core's cache.
    fn read_hashed(
        &mut self,
        position: u64,
        buffer: &mut [u8],
        hash: &InputHash,
    ) -> Result<usize, Error> {
        let (mut at, mut rest) = (position, buffer);
        while !rest.is_empty() {
            let to_next = usize::try_from(PIECE - at % PIECE).unwrap_or(usize::MAX);
            let len = to_next.min(rest.len());
            let (piece, after) = rest.split_at_mut(len);
            let read = self.read(at, piece, len)?;
            hash.add(at, piece.get(..read).unwrap_or_default());
            at += read as u64;
            if read < len {
                break;
            }
            rest = after;
        }
        Ok((at - position) as usize)
    }

    fn read(&mut self, position: u64, buffer: &mut [u8], least: usize) -> Result<usize, Error> {
        let read = match &mut self.backend {
            Backend::File(file, most) => {
                let left = usize::try_from(most.saturating_sub(position)).unwrap_or(usize::MAX);
                let (wanted, _) = buffer.split_at_mut(left.min(buffer.len()));
                fill(|buf, at| file.read_at(buf, at), position, wanted)
            }
            Backend::Object(ranges) => ranges.read_at(position, buffer),
            Backend::Stream(stream) => stream.read_at(position, buffer, least),
        };
        read.map_err(|e| Error::io("read", &self.path, e))
    }

    /// Why a compressed log could not be decompressed to its end. Known once reading has reached
    /// that point.
    pub fn decompression_error(&self) -> Option<&str> {
        match &self.backend {
            Backend::File(..) | Backend::Object(_) => None,
            Backend::Stream(stream) => stream.broken.as_deref(),
        }
    }

    /// Whether the first frame of a compressed log is damaged: then its first bytes may be wrong,
    /// and say nothing of its format. To be asked before anything is forgotten.
    pub fn has_damaged_start(&mut self) -> Result<bool, Error> {
        match &mut self.backend {
            Backend::File(..) | Backend::Object(_) => Ok(false),
            Backend::Stream(stream) => {
                stream.has_damaged_start().map_err(|e| Error::io("read", &self.path, e))
            }
        }
    }

    /// Reads compressed frames without waiting for their checksums: for who looks at the first
    /// bytes only, and need not read more.
    pub(super) fn skip_checksums(&mut self) {
        if let Backend::Stream(stream) = &mut self.backend {
            stream.skip_checksums();
        }
    }

    /// Goes on behind the damage that ended a [compressed](Self::decompression_error) stream, with
    /// its next frame if there is one, and returns the position where that begins: one byte of zero
    /// behind the end, so that nobody takes what precedes the gap for what precedes the position.
    ///
    /// How much is missing is unknown, and the frame may begin anywhere in a record.
    pub fn resume(&mut self) -> Result<Option<u64>, Error> {
        match &mut self.backend {
            Backend::File(..) | Backend::Object(_) => Ok(None),
            Backend::Stream(stream) => {
                stream.resume().map_err(|e| Error::io("read", &self.path, e))
            }
        }
    }

    /// Which bytes of a compressed log were passed to [resume](Self::resume) reading, since this
    /// was last asked for: up to the frame whose contents were read next, or to the end.
    pub fn take_passed(&mut self) -> Option<Range<u64>> {
        match &mut self.backend {
            Backend::File(..) | Backend::Object(_) => None,
            Backend::Stream(stream) => stream.take_passed(),
        }
    }

    /// The first bytes of a stream: as many as are `enough`, at most `most` or a few more, or all.
    /// None of a file.
    pub(super) fn head(
        &mut self,
        most: usize,
        enough: impl Fn(&[u8]) -> bool,
    ) -> Result<&[u8], Error> {
        match &mut self.backend {
            Backend::File(..) | Backend::Object(_) => Ok(&[]),
            Backend::Stream(stream) => {
                stream.head(most, enough).map_err(|e| Error::io("read", &self.path, e))
            }
        }
    }

    /// The first `len` bytes; fewer if it is shorter.
    pub(super) fn first_bytes(&mut self, len: usize) -> Result<Vec<u8>, Error> {
        let mut bytes = Vec::new();
        while bytes.len() < len {
            let from = bytes.len();
            // Most files are far shorter than what a caller accepts, and zeroing that would take
            // longer than reading them.
            bytes.resize(len.min((from * 2).max(FIRST_READ)), 0);
            let found = from + self.read_at(from as u64, &mut bytes[from..])?;
            if found < bytes.len() {
                bytes.truncate(found);
                break;
            }
        }
        Ok(bytes)
    }

    /// Declares that nothing before `position` will be read again.
    pub fn forget(&mut self, position: u64) {
        if let Backend::Stream(stream) = &mut self.backend {
            stream.forget(position);
        }
    }
}

/// Reads until `buffer` is full or the end is reached.
pub(super) fn fill(
    mut read: impl FnMut(&mut [u8], u64) -> io::Result<usize>,
    position: u64,
    buffer: &mut [u8],
) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match read(&mut buffer[filled..], position + filled as u64) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
