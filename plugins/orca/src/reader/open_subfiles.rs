//! The subfiles that a reader holds open.

use std::collections::BTreeMap;
use std::path::Path;

use sluice_io::files::LogFile;
use sluice_model::Error;

use crate::log::open_subfile;

/// The maximum number of open subfiles.
pub(super) const MAX_OPEN: usize = 64;

/// Open subfiles: not all at once, as a log may have thousands.
#[derive(Default)]
pub(super) struct OpenSubfiles(BTreeMap<usize, LogFile>);

impl OpenSubfiles {
    /// Fills as much of the buffer as the subfile has; nothing if it cannot be opened any more.
    pub(super) fn read_at(
        &mut self,
        number: usize,
        path: &Path,
        at: u64,
        buffer: &mut [u8],
    ) -> Result<usize, Error> {
        if let Some(file) = self.0.get_mut(&number) {
            return file.read_at(at, buffer);
        }
        let Ok(mut file) = open_subfile(path) else { return Ok(0) };
        let read = file.read_at(at, buffer)?;
        if self.0.len() >= MAX_OPEN {
            self.0.clear();
        }
        self.0.insert(number, file);
        Ok(read)
    }
}
