//! The checksums that reading events does not need: of the data section, and of attachments. Those
//! of chunks and of the summary are verified where these are read.

#![warn(clippy::indexing_slicing)]

use std::ops::Range;
use std::path::Path;

use sluice_io::files::LogFile;
use sluice_model::Error;

use crate::index::FileIndex;
use crate::summary::{FOOTER_RECORD, FileEnd};
use crate::walk::MAX_DATA_END;
use crate::wire::{AttachmentHead, DATA_END, HEAD, Head, MAGIC, op, shown};

/// The length of a checksum.
const CRC_LEN: u64 = 4;
/// The bytes read at a time.
const STEP: usize = 1 << 20;

/// Compares a part of some bytes with the checksum that is stored after it. 0 stands for none.
pub(crate) struct StoredCrc {
    hashed: Range<u64>,
    stored_at: u64,
    at: u64,
    hasher: crc32fast::Hasher,
    stored: Vec<u8>,
}

impl StoredCrc {
    fn new(hashed: Range<u64>, stored_at: u64) -> Self {
        Self { hashed, stored_at, at: 0, hasher: crc32fast::Hasher::new(), stored: Vec::new() }
    }

    /// For an attachment with this head. Fields that a later version adds may follow its checksum.
    pub(crate) fn of_attachment(head: &AttachmentHead) -> Self {
        let end = HEAD.saturating_add(head.len()).saturating_add(head.data_len);
        Self::new(HEAD..end, end)
    }

    /// Adds the next bytes.
    pub(crate) fn add(&mut self, part: &[u8]) {
        let (start, len) = (self.at, part.len() as u64);
        let clip = |at: u64| at.saturating_sub(start).min(len) as usize;
        let hashed = clip(self.hashed.start)..clip(self.hashed.end);
        self.hasher.update(part.get(hashed).unwrap_or_default());
        let stored = clip(self.stored_at)..clip(self.stored_at.saturating_add(CRC_LEN));
        self.stored.extend(part.get(stored).unwrap_or_default());
        self.at += len;
    }

    /// Why the bytes are wrong; `None` if they are right, or have no checksum.
    pub(crate) fn fault(self) -> Option<String> {
        let stored = u32::from_le_bytes(self.stored.try_into().ok()?);
        let found = self.hasher.finalize();
        (stored != 0 && stored != found)
            .then(|| format!("expected the checksum {stored:08x}, found {found:08x}"))
    }
}

/// Why the data section of a file is wrong. Reads all of it.
pub(crate) fn data_section_fault_of(
    path: &Path,
    index: &FileIndex,
) -> Result<Option<String>, Error> {
    // What the data section ends before.
    let next = match &index.end {
        FileEnd::Summary(summary) => Some(summary.start),
        FileEnd::NoSummary => index.len.checked_sub(FOOTER_RECORD + MAGIC.len() as u64),
        FileEnd::Unfinished | FileEnd::Broken(_) => None,
    };
    let Some(next) = next else { return Ok(None) };
    let mut log = LogFile::open_plain(path)?;
    let Some(end) = data_end_before(&mut log, next)? else { return Ok(None) };
    let (mut crc, mut buffer) = (StoredCrc::new(0..end, end + HEAD), vec![0; STEP]);
    while crc.at < next {
        let read = log.read_at(crc.at, &mut buffer)?;
        if read == 0 {
            return Ok(None);
        }
        crc.add(buffer.get(..read).unwrap_or_default());
    }
    Ok(crc.fault().map(data_section))
}

/// What is wrong with an attachment.
pub(crate) fn attachment_fault(name: &[u8], why: &str) -> String {
    format!("attachment `{}`: {why}", shown(name))
}

/// What is wrong with a record that a summary lists where none is.
pub(crate) fn misplaced_record(what: &str, name: &str) -> String {
    format!("{what} `{}` is not where the index says", shown(name.as_bytes()))
}

/// Why the data section is wrong, given its hash and the fields of the record DataEnd.
pub(crate) fn data_section_fault(data: crc32fast::Hasher, data_end: &[u8]) -> Option<String> {
    let stored = data_end.get(..CRC_LEN as usize).unwrap_or_default().to_vec();
    let whole = StoredCrc { hasher: data, stored, ..StoredCrc::new(0..0, 0) };
    whole.fault().map(data_section)
}

fn data_section(why: String) -> String {
    format!("the data section: {why}")
}

/// The start of the record DataEnd that ends at `next`, if there is one.
fn data_end_before(log: &mut LogFile, next: u64) -> Result<Option<u64>, Error> {
    for len in DATA_END..=MAX_DATA_END {
        let Some(at) = next.checked_sub(HEAD + len) else { break };
        let mut bytes = [0; HEAD as usize];
        let read = log.read_at(at, &mut bytes)?;
        let head = Head::parse(bytes.get(..read).unwrap_or_default());
        if head == Some(Head { opcode: op::DATA_END, len }) {
            return Ok(Some(at));
        }
    }
    Ok(None)
}
