//! A log that is only looked into, away from reading it: for its index and for seeking. Keeps errors as
//! what they are.

use std::io;
use std::path::Path;

use sluice_core::Error;
use sluice_core::files::LogFile;
use sluice_core::window::ReadAt;

/// Looks at single places of a log.
pub(crate) struct Probe {
    log: LogFile,
    failed: Option<Error>,
}

impl Probe {
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        Ok(Self { log: LogFile::open(path)?, failed: None })
    }

    pub(crate) fn is_seekable(&self) -> bool {
        self.log.is_seekable()
    }

    /// Lets `look` look.
    pub(crate) fn look<T>(
        &mut self,
        look: impl FnOnce(&mut dyn ReadAt) -> io::Result<T>,
    ) -> Result<T, Error> {
        let looked = look(self);
        looked.map_err(|error| {
            self.failed.take().unwrap_or_else(|| Error::io("read", self.log.path(), error))
        })
    }
}

impl ReadAt for Probe {
    fn read_at(&mut self, pos: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.log.read_at(pos, buf).map_err(|error| {
            self.failed = Some(error);
            io::ErrorKind::Other.into()
        })
    }

    fn forget(&mut self, pos: u64) {
        self.log.forget(pos);
    }
}
