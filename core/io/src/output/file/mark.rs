//! Takes back what was appended to a file that grows. Other files are discarded when a write fails.

use std::fs::File;
use std::io::{Seek, SeekFrom};

use super::{Destination, FrameWriter, OutputFile};
use crate::Error;
use crate::frames::SeekTableBuilder;

/// A place in a file that grows.
#[derive(Debug)]
pub struct FileMark {
    bytes: u64,
    bytes_on_disk: u64,
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
        let (bytes_on_disk, hasher, table) = match &self.destination {
            Destination::Packed(packed) => {
                (packed.file.bytes, packed.file.hasher.clone(), packed.table.clone())
            }
            Destination::Plain(_) | Destination::Direct(_) => {
                (self.bytes, self.hasher.clone(), None)
            }
        };
        Ok(Some(FileMark { bytes: self.bytes, bytes_on_disk, hasher, table }))
    }

    /// Takes back what was appended since, whether or not that succeeded; writing can go on.
    pub fn roll_back(&mut self, mark: FileMark) {
        let FileMark { bytes, bytes_on_disk, hasher, table } = mark;
        let len = self.base.unwrap_or(0) + bytes_on_disk;
        let truncate = |file: &mut File| {
            file.set_len(len).and_then(|()| file.seek(SeekFrom::Start(len))).is_ok()
        };
        match &mut self.destination {
            Destination::Packed(packed) => {
                packed.discard_frames();
                (packed.file.bytes, packed.file.hasher, packed.table) =
                    (bytes_on_disk, hasher, table);
                packed.whole = truncate(&mut packed.file.disk.file);
            }
            Destination::Plain(disk) => {
                self.hasher = hasher;
                // The error that led here is reported: a file with a remainder is never complete.
                self.whole &= truncate(&mut disk.file);
            }
            Destination::Direct(_) => {}
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
