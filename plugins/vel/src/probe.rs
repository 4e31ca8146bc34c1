//! Random access to a log besides reading it: to check its index and to seek. Keeps the original
//! I/O errors.

use std::io;
use std::path::Path;

use sluice_io::files::LogFile;
use sluice_kit::window::ReadAt;
use sluice_model::Error;

/// A log with random access.
pub(crate) struct LogProbe {
    log: LogFile,
    error: Option<Error>,
}

impl LogProbe {
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        Ok(Self { log: LogFile::open(path)?, error: None })
    }

    pub(crate) fn is_seekable(&self) -> bool {
        self.log.is_seekable()
    }

    /// Runs `look` on the log.
    pub(crate) fn with_log<T>(
        &mut self,
        look: impl FnOnce(&mut dyn ReadAt) -> io::Result<T>,
    ) -> Result<T, Error> {
        let looked = look(self);
        looked.map_err(|error| {
            self.error.take().unwrap_or_else(|| Error::io("read", self.log.path(), error))
        })
    }
}

impl ReadAt for LogProbe {
    fn read_at(&mut self, pos: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.log.read_at(pos, buf).map_err(|error| {
            self.error = Some(error);
            io::ErrorKind::Other.into()
        })
    }

    fn forget(&mut self, pos: u64) {
        self.log.forget(pos);
    }
}
