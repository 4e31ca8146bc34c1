//! The subfiles that a reader holds open.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use sluice_io::files::{InputFiles, InputHashes, LogFile};
use sluice_model::{Error, RunHandle};

use crate::log::open_subfile;

/// The maximum number of open subfiles.
pub(super) const MAX_OPEN: usize = 64;

/// Open subfiles: not all at once, as a log may have thousands.
pub(super) struct OpenSubfiles {
    by_number: BTreeMap<usize, LogFile>,
    inputs: Arc<InputFiles>,
    hashes: Arc<InputHashes>,
}

impl OpenSubfiles {
    /// None yet. What is read of them is hashed for the run.
    pub(super) fn new(run: &RunHandle) -> Self {
        Self { by_number: BTreeMap::new(), inputs: run.shared(), hashes: run.shared() }
    }

    /// The inputs of the run.
    pub(super) fn inputs(&self) -> &InputFiles {
        &self.inputs
    }

    /// Fills as much of the buffer as the subfile has; nothing if it cannot be opened any more.
    pub(super) fn read_at(
        &mut self,
        number: usize,
        path: &Path,
        at: u64,
        buffer: &mut [u8],
    ) -> Result<usize, Error> {
        if let Some(file) = self.by_number.get_mut(&number) {
            return file.read_at(at, buffer);
        }
        let Ok(mut file) = open_subfile(&self.inputs, path) else { return Ok(0) };
        file.hash_reads(&self.hashes);
        let read = file.read_at(at, buffer)?;
        if self.by_number.len() >= MAX_OPEN {
            self.by_number.clear();
        }
        self.by_number.insert(number, file);
        Ok(read)
    }
}
