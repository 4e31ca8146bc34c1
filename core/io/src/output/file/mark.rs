//! Takes back what was appended to a file that grows. Other files are discarded when a write fails.

use super::{Destination, FrameWriter, HashingFile, OutputFile};
use crate::Error;
use crate::seek_table::SeekTableBuilder;

/// A place in a file that grows.
#[derive(Debug)]
pub struct FileMark {
    bytes: u64,
    /// The bytes appended to the file, and where it ended.
    appended: u64,
    end: u64,
    hasher: Option<blake3::Hasher>,
    table: Option<SeekTableBuilder>,
}

impl OutputFile {
    /// The current end of a file that grows, for [`roll_back`](Self::roll_back). Ends the current
    /// frame if it is compressed.
    ///
    /// What is appended after it is on the disk only after [`flush`](Self::flush), which may fail
    /// because of it. `None` for other files.
    pub fn mark(&mut self) -> Result<Option<FileMark>, Error> {
        if !self.is_growing() {
            return Ok(None);
        }
        self.flush()?;
        let bytes = self.bytes;
        Ok(match &self.destination {
            Destination::Packed(packed) => {
                let HashingFile { disk, hasher, bytes: appended } = &packed.file;
                let (hasher, table) = (hasher.clone(), packed.table.clone());
                Some(FileMark { bytes, appended: *appended, end: disk.end(), hasher, table })
            }
            Destination::Plain(disk) => {
                let hasher = self.hasher.clone();
                Some(FileMark { bytes, appended: bytes, end: disk.end(), hasher, table: None })
            }
            Destination::Direct { .. } => None,
        })
    }

    /// Takes back what was appended since, whether or not that succeeded; writing can go on.
    pub fn roll_back(&mut self, mark: FileMark) {
        let FileMark { bytes, appended, end, hasher, table } = mark;
        match &mut self.destination {
            Destination::Packed(packed) => {
                packed.discard_frames();
                (packed.file.bytes, packed.file.hasher, packed.table) = (appended, hasher, table);
                packed.whole = packed.file.disk.cut(end);
            }
            Destination::Plain(disk) => {
                self.hasher = hasher;
                // The error that led here is reported: a file with a remainder is never complete.
                self.whole &= disk.cut(end);
            }
            Destination::Direct { .. } => {}
        }
        self.bytes = bytes;
    }
}

impl FrameWriter {
    /// Discards what is not in the file, so that writing can go on.
    fn discard_frames(&mut self) {
        self.plain.clear();
        // It does not matter whether they could be compressed.
        while !matches!(self.frames.take_oldest(), Ok(None)) {}
    }
}
