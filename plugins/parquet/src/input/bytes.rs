//! The bytes of a table in a file or an object store, as the Parquet library reads them. Knows
//! nothing about their content.

use std::fs::{self, File};
use std::io::{self, BufReader, ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use parquet::errors::Result as ParquetResult;
use parquet::file::reader::{ChunkReader, Length};
use sluice_io::files::LogFile;
use sluice_io::store::is_address;
use sluice_model::Error;

/// The longest row group of an object that is fetched at once: a request takes as long as reading a
/// megabyte.
const MAX_PREFETCH: u64 = 128 << 20;

/// A file, or an object of a store, read at any offset. Clones share it.
#[derive(Clone)]
pub struct TableBytes {
    store: ByteStore,
    len: u64,
    /// A range that has been fetched already, and its offset.
    prefetched: Option<(u64, Bytes)>,
    failure: ReadFailure,
}

#[derive(Clone)]
enum ByteStore {
    File(Arc<File>),
    Object(Arc<Mutex<LogFile>>),
}

/// The reason an object could not be read, which the Parquet library reports as a fault of the
/// table.
#[derive(Clone, Default)]
pub(crate) struct ReadFailure(Arc<Mutex<Option<Error>>>);

impl ReadFailure {
    /// Returns `Err` once if the object could not be read.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let error = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        error.map_or(Ok(()), Err)
    }

    fn record(&self, error: Error) -> io::Error {
        let io_error = io::Error::other(error.to_string());
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        io_error
    }
}

impl TableBytes {
    /// Opens a file or object.
    ///
    /// `Err` for something without an end, such as a pipe.
    pub(super) fn open(path: &Path) -> Result<Self, Error> {
        if is_address(path) {
            return Ok(Self::object(LogFile::open_plain(path)?, None));
        }
        let fail = |e| Error::io("open", path, e);
        // Opening a pipe would wait for its writer.
        let meta = fs::metadata(path).map_err(fail)?;
        if !meta.is_file() {
            return Err(Error::refused(format!(
                "a Parquet file has to be a regular file, as it is read from its end; copy it to a \
                 file first: {}",
                path.display()
            )));
        }
        let file = File::open(path).map_err(fail)?;
        let meta = file.metadata().map_err(fail)?;
        let from = ByteStore::File(Arc::new(file));
        Ok(Self { store: from, len: meta.len(), prefetched: None, failure: ReadFailure::default() })
    }

    fn object(log: LogFile, prefetched: Option<(u64, Bytes)>) -> Self {
        let len = log.len().unwrap_or_default();
        let from = ByteStore::Object(Arc::new(Mutex::new(log)));
        Self { store: from, len, prefetched, failure: ReadFailure::default() }
    }

    /// The same bytes for a reader of `start..end`, prefetched if that saves requests. Each reader
    /// of an object has a connection of its own.
    pub(super) fn prefetch(&self, start: u64, end: u64) -> Result<Self, Error> {
        let ByteStore::Object(log) = &self.store else { return Ok(self.clone()) };
        let path = log.lock().unwrap_or_else(PoisonError::into_inner).path().to_owned();
        let mut log = LogFile::open_plain(&path)?;
        let len = end.min(self.len).saturating_sub(start);
        if len > MAX_PREFETCH {
            return Ok(Self::object(log, None));
        }
        let mut bytes = vec![0; len as usize];
        let read = log.read_at(start, &mut bytes)?;
        bytes.truncate(read);
        // The bytes that the first reader buffered are not kept twice.
        Ok(Self::object(LogFile::open_plain(&path)?, Some((start, bytes.into()))))
    }

    /// The same bytes, of which these are in memory.
    pub(super) fn fetched(&self, start: u64, len: usize) -> ParquetResult<Self> {
        let prefetched = Some((start, self.get_bytes(start, len)?));
        Ok(Self { prefetched, ..self.clone() })
    }

    /// Whether reading them takes requests to a store.
    pub(super) fn is_remote(&self) -> bool {
        matches!(self.store, ByteStore::Object(_)) && self.prefetched.is_none()
    }

    /// A handle that tells whether reading these bytes failed, also later.
    pub(crate) fn failure(&self) -> ReadFailure {
        self.failure.clone()
    }

    /// Reads some bytes at `position` into `buffer`; 0 only at the end.
    pub(crate) fn read_at(&self, position: u64, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(prefetched) = self.prefetched_from(position) {
            let len = prefetched.len().min(buffer.len());
            buffer[..len].copy_from_slice(&prefetched[..len]);
            return Ok(len);
        }
        match &self.store {
            ByteStore::File(file) => file.read_at(buffer, position),
            ByteStore::Object(log) => {
                let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
                log.read_at(position, buffer).map_err(|error| self.failure.record(error))
            }
        }
    }

    /// Reads `len` bytes from `position` on; fewer only at the end.
    pub(super) fn read_up_to(&self, position: u64, len: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(len);
        let reader = TableByteReader { bytes: self.clone(), at: position };
        reader.take(len as u64).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn prefetched_from(&self, position: u64) -> Option<&[u8]> {
        let (start, bytes) = self.prefetched.as_ref()?;
        let skip = usize::try_from(position.checked_sub(*start)?).ok()?;
        bytes.get(skip..).filter(|prefetched| !prefetched.is_empty())
    }
}

impl Length for TableBytes {
    fn len(&self) -> u64 {
        self.len
    }
}

impl ChunkReader for TableBytes {
    type T = BufReader<TableByteReader>;

    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        Ok(BufReader::new(TableByteReader { bytes: self.clone(), at: start }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        let end = start.checked_add(length as u64).filter(|end| *end <= self.len);
        if end.is_none() {
            return Err(io::Error::from(ErrorKind::UnexpectedEof).into());
        }
        if let Some((begin, bytes)) = &self.prefetched
            && let Some(skip) =
                start.checked_sub(*begin).and_then(|skip| usize::try_from(skip).ok())
            && skip.checked_add(length).is_some_and(|end| end <= bytes.len())
        {
            return Ok(bytes.slice(skip..skip + length));
        }
        let mut bytes = vec![0; length];
        TableByteReader { bytes: self.clone(), at: start }.read_exact(&mut bytes)?;
        Ok(bytes.into())
    }
}

/// Reads sequentially from an offset.
pub struct TableByteReader {
    bytes: TableBytes,
    at: u64,
}

impl Read for TableByteReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.bytes.read_at(self.at, buffer)?;
        self.at += read as u64;
        Ok(read)
    }
}
