//! Files that are removed with the last who reads them. Writes none.

use std::fs;
use std::path::PathBuf;
use std::process;

/// A file that is removed with its folder when this is dropped, unless by a fork.
#[derive(Debug)]
pub(crate) struct TemporaryFile {
    path: PathBuf,
    /// The process that it belongs to.
    process: u32,
}

impl TemporaryFile {
    /// Takes over a file of this process, in a folder of its own.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, process: process::id() }
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        if self.process == process::id() {
            // Nobody can be told if it is gone already.
            drop(fs::remove_file(&self.path));
            drop(self.path.parent().map(fs::remove_dir));
        }
    }
}
