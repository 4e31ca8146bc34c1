//! The bytes of a table, wherever it lies: what the Parquet library reads a file through. Knows nothing of what is
//! in them.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use parquet::errors::Result as ParquetResult;
use parquet::file::reader::{ChunkReader, Length};
use sluice_core::Error;
use sluice_core::files::LogFile;
use sluice_core::store::is_address;

/// Row groups of objects up to this length are brought in one go: a request takes as long as reading a megabyte.
const BROUGHT: u64 = 128 << 20;

/// A file, or an object of a store, read at any place. Clones share it.
#[derive(Clone)]
pub(crate) struct TableBytes {
    from: Whole,
    len: u64,
    /// A range that is here already, and where it begins.
    held: Option<(u64, Bytes)>,
    unread: Unread,
}

#[derive(Clone)]
enum Whole {
    File(Arc<File>),
    Object(Arc<Mutex<LogFile>>),
}

/// Why an object could not be read, which the Parquet library tells as a fault of the table.
#[derive(Clone, Default)]
pub(crate) struct Unread(Arc<Mutex<Option<Error>>>);

impl Unread {
    /// `Err` once if the object could not be read.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let error = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        error.map_or(Ok(()), Err)
    }

    fn note(&self, error: Error) -> io::Error {
        let told = io::Error::other(error.to_string());
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        told
    }
}

impl TableBytes {
    /// Opens what is to be read from its end.
    ///
    /// `Err` for what has none, such as a pipe.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        if is_address(path) {
            return Ok(Self::object(LogFile::open_plain(path)?, None));
        }
        let fail = |e| Error::io("open", path, e);
        let file = File::open(path).map_err(fail)?;
        let meta = file.metadata().map_err(fail)?;
        if !meta.is_file() {
            return Err(Error::refused(format!(
                "a Parquet file is read from its end, and this is not a file: {}",
                path.display()
            )));
        }
        let from = Whole::File(Arc::new(file));
        Ok(Self { from, len: meta.len(), held: None, unread: Unread::default() })
    }

    fn object(log: LogFile, held: Option<(u64, Bytes)>) -> Self {
        let len = log.len().unwrap_or_default();
        let from = Whole::Object(Arc::new(Mutex::new(log)));
        Self { from, len, held, unread: Unread::default() }
    }

    /// The same bytes for who reads those from `start` to `end`, which are brought now where that saves requests. Of
    /// an object they come beside what others read of it.
    pub(crate) fn with_range(&self, start: u64, end: u64) -> Result<Self, Error> {
        let Whole::Object(log) = &self.from else { return Ok(self.clone()) };
        let path = log.lock().unwrap_or_else(PoisonError::into_inner).path().to_owned();
        let mut log = LogFile::open_plain(&path)?;
        let wanted = end.min(self.len).saturating_sub(start);
        if wanted > BROUGHT {
            return Ok(Self::object(log, None));
        }
        let mut bytes = vec![0; wanted as usize];
        let read = log.read_at(start, &mut bytes)?;
        bytes.truncate(read);
        // What the reader itself still holds of it is not held twice.
        Ok(Self::object(LogFile::open_plain(&path)?, Some((start, bytes.into()))))
    }

    /// Tells whether reading these bytes failed, also later.
    pub(crate) fn unread(&self) -> Unread {
        self.unread.clone()
    }

    /// Reads some of what is at `position` into `buffer`; nothing only at the end.
    pub(crate) fn read_at(&self, position: u64, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(held) = self.held_from(position) {
            let len = held.len().min(buffer.len());
            buffer[..len].copy_from_slice(&held[..len]);
            return Ok(len);
        }
        match &self.from {
            Whole::File(file) => file.read_at(buffer, position),
            Whole::Object(log) => {
                let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
                log.read_at(position, buffer).map_err(|error| self.unread.note(error))
            }
        }
    }

    fn held_from(&self, position: u64) -> Option<&[u8]> {
        let (start, bytes) = self.held.as_ref()?;
        let skip = usize::try_from(position.checked_sub(*start)?).ok()?;
        bytes.get(skip..).filter(|held| !held.is_empty())
    }
}

impl Length for TableBytes {
    fn len(&self) -> u64 {
        self.len
    }
}

impl ChunkReader for TableBytes {
    type T = BufReader<Onward>;

    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        Ok(BufReader::new(Onward { bytes: self.clone(), at: start }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        let end = start.checked_add(length as u64).filter(|end| *end <= self.len);
        if end.is_none() {
            return Err(io::Error::from(ErrorKind::UnexpectedEof).into());
        }
        if let Some((begin, bytes)) = &self.held
            && let Some(skip) =
                start.checked_sub(*begin).and_then(|skip| usize::try_from(skip).ok())
            && skip.checked_add(length).is_some_and(|end| end <= bytes.len())
        {
            return Ok(bytes.slice(skip..skip + length));
        }
        let mut bytes = vec![0; length];
        Onward { bytes: self.clone(), at: start }.read_exact(&mut bytes)?;
        Ok(bytes.into())
    }
}

/// Reading on from a place.
pub(crate) struct Onward {
    bytes: TableBytes,
    at: u64,
}

impl Read for Onward {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.bytes.read_at(self.at, buffer)?;
        self.at += read as u64;
        Ok(read)
    }
}
