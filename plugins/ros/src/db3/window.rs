//! An open file of SQLite, and the bytes of it that were read last. Knows nothing of its format.

#![warn(clippy::indexing_slicing)]

use std::sync::Arc;

use sluice_io::escape::escaped_path;
use sluice_io::files::LogFile;
use sluice_model::Error;

/// The bytes that are read at once: behind what was read before, and elsewhere.
const NEXT: usize = 1 << 20;
const ELSEWHERE: usize = 64 << 10;

/// An open file, and the bytes of it that were read last.
pub(crate) struct Window {
    pub(crate) log: LogFile,
    /// Its name.
    pub(crate) input: Arc<str>,
    /// The length of the file.
    pub(crate) len: u64,
    bytes: Vec<u8>,
    at: u64,
    /// How much was read since that was asked for.
    read: u64,
}

impl Window {
    pub(crate) fn open(log: LogFile) -> Result<Self, Error> {
        let input: Arc<str> = escaped_path(log.path()).into();
        let len = log.len().filter(|_| log.is_seekable());
        let len = len.ok_or_else(|| {
            Error::refused(format!(
                "a SQLite file is read at many places, so it cannot be a pipe or compressed; \
                 decompress it first: {input}"
            ))
        })?;
        Ok(Self { log, input, len, bytes: Vec::new(), at: 0, read: 0 })
    }

    /// Whether to read no further.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.log.is_cancelled()
    }

    /// Bytes of the file; `None` if it does not have all of them.
    pub(crate) fn get(&mut self, at: u64, len: usize) -> Result<Option<&[u8]>, Error> {
        let end = self.at + self.bytes.len() as u64;
        if at < self.at || at + len as u64 > end {
            let is_next = (self.at..=end).contains(&at);
            self.bytes.resize(if is_next { NEXT } else { ELSEWHERE.max(len) }, 0);
            self.at = at;
            self.refill()?;
        }
        let from = (at - self.at) as usize;
        Ok(self.bytes.get(from..from + len))
    }

    /// Reads what is at a place now, whatever was read of it before.
    pub(crate) fn reread(&mut self, at: u64, len: usize) -> Result<&[u8], Error> {
        self.bytes.resize(len, 0);
        self.at = at;
        self.refill()?;
        Ok(&self.bytes)
    }

    /// How many bytes were read since the last call.
    pub(crate) fn take_read(&mut self) -> u64 {
        std::mem::take(&mut self.read)
    }

    fn refill(&mut self) -> Result<(), Error> {
        let found = self.log.read_at(self.at, &mut self.bytes)?;
        self.bytes.truncate(found);
        self.read += found as u64;
        Ok(())
    }
}
