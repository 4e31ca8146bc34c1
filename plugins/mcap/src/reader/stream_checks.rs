//! What can be wrong with a file besides its messages: its checksums and its summary, which are
//! verified while it is read from front to back, as `verify` reads files and pipes. Behind damage,
//! only attachments are verified.

#![warn(clippy::indexing_slicing)]

use std::sync::Arc;

use sluice_kit::InputFaults;
use sluice_model::Error;

use super::RecordReader;
use super::offsets::offset_faults;
use super::recount::Recount;
use crate::carry::MAX_NAMES;
use crate::checksums::{StoredCrc, attachment_fault, data_section_fault};
use crate::index::{CHUNK_START, FileIndex};
use crate::inspect;
use crate::summary::{FOOTER_RECORD, FileEnd, MAX_SUMMARY, summary_start};
use crate::wire::{AttachmentHead, HEAD, Head, MAGIC, MESSAGE_HEAD, op};

/// The bytes read at a time.
const STEP: u64 = 64 << 10;

/// What was read of a file, for its checksums.
pub(super) struct StreamChecks {
    faults: Arc<InputFaults>,
    data: crc32fast::Hasher,
    /// The position of what follows the data section, and its bytes.
    summary: Option<(u64, Vec<u8>)>,
    recount: Recount,
}

impl StreamChecks {
    /// For a file that starts with the magic bytes.
    pub(super) fn new(faults: Arc<InputFaults>) -> Self {
        let mut data = crc32fast::Hasher::new();
        data.update(&MAGIC);
        Self { faults, data, summary: None, recount: Recount::default() }
    }

    /// Counts the records of the chunk at `at`.
    pub(super) fn count_chunk(&mut self, at: u64, plain: &[u8]) {
        self.recount.add_chunk(at, plain);
    }

    fn add(&mut self, part: &[u8]) {
        match &mut self.summary {
            None => self.data.update(part),
            // A longer one is not used.
            Some((_, bytes)) if bytes.len() as u64 <= MAX_SUMMARY => bytes.extend(part),
            Some(_) => {}
        }
    }

    /// Ends the data section before a DataEnd record, given whole, that ends at `end`.
    fn end_data(&mut self, record: &[u8], end: u64) {
        let data = std::mem::take(&mut self.data);
        let fields = record.get(HEAD as usize..).unwrap_or_default();
        self.faults.add(data_section_fault(data, fields));
        self.summary = Some((end, Vec::new()));
    }

    /// Compares the summary with the footer record at `at`.
    fn end_file(&mut self, footer: &[u8], at: u64) -> Result<(), Error> {
        let (begin, bytes) = self.summary.take().unwrap_or((at, Vec::new()));
        let end = match summary_start(footer, at) {
            Ok(None) => return Ok(()),
            Err(why) => Some(FileEnd::Broken(why)),
            Ok(Some(start)) => {
                let skipped = start.checked_sub(begin).and_then(|len| usize::try_from(len).ok());
                let summary = skipped.and_then(|len| bytes.get(len..));
                summary.map(|summary| FileEnd::parse(start, summary, footer))
            }
        };
        let end = match end {
            Some(FileEnd::Broken(_)) | None => {
                FileEnd::parse_misplaced(begin, &bytes, footer).map(FileEnd::Summary).or(end)
            }
            end => end,
        };
        // Without a record DataEnd, nothing tells where to begin.
        let Some(end) = end else { return Ok(()) };
        let len = at + FOOTER_RECORD + MAGIC.len() as u64;
        let recount = std::mem::take(&mut self.recount);
        let index = FileIndex::of_stream(len, end, |entry| recount.has_chunk(entry))?;
        self.faults.add(inspect::faults(&index));
        if let Some(summary) = index.summary() {
            self.faults.add(recount.faults(summary));
            let skipped =
                usize::try_from(summary.start.saturating_sub(begin)).unwrap_or(usize::MAX);
            let bytes = bytes.get(skipped..).filter(|_| !summary.is_misplaced);
            let offsets = bytes.map(|bytes| offset_faults((summary.start, bytes), footer));
            self.faults.add(offsets.into_iter().flatten());
        }
        Ok(())
    }
}

impl RecordReader {
    /// Adds a whole record to what is verified.
    pub(super) fn check_record(&mut self, at: u64, head: Head) -> Result<(), Error> {
        let Some(checks) = &mut self.checks else { return Ok(()) };
        match head.opcode {
            op::CHUNK => {
                let start = self.walk.read(at, CHUNK_START as u64)?;
                checks.recount.add_chunk_start(at, start);
            }
            op::DATA_END if checks.summary.is_none() => {
                let record = self.walk.read(at, head.record_len())?;
                checks.end_data(&record, at.saturating_add(head.record_len()));
                return Ok(());
            }
            op::FOOTER => {
                let record = self.walk.read(at, head.record_len())?;
                return checks.end_file(&record, at);
            }
            _ if checks.summary.is_none() => {
                let most = match head.opcode {
                    op::MESSAGE => MESSAGE_HEAD as u64,
                    op::METADATA => MAX_NAMES,
                    op::SCHEMA | op::CHANNEL | op::MESSAGE_INDEX => MAX_SUMMARY,
                    _ => 0,
                };
                let content = self.walk.read(at + HEAD, head.len.min(most))?;
                checks.recount.add(at, head, &content);
            }
            _ => {}
        }
        let (mut done, len) = (0, head.record_len());
        while done < len {
            let part = self.walk.read(at + done, STEP.min(len - done))?;
            if part.is_empty() {
                break;
            }
            checks.add(&part);
            done += part.len() as u64;
        }
        Ok(())
    }

    /// Passes a record that may be longer than memory, and verifies it. Returns its end, or that of
    /// the file.
    pub(super) fn pass_record(&mut self, at: u64, head: Head) -> Result<u64, Error> {
        let end = at.saturating_add(head.record_len());
        let Some(faults) = &self.faults else { return self.walk.skip(at, end) };
        let front = self.walk.read(at + HEAD, head.len.min(MAX_NAMES))?;
        let attachment = AttachmentHead::parse(&front).filter(|_| head.opcode == op::ATTACHMENT);
        self.checks.iter_mut().for_each(|checks| checks.recount.add(at, head, &front));
        let mut crc = attachment.as_ref().map(StoredCrc::of_attachment);
        let mut done = at;
        while done < end {
            let part = self.walk.read(done, STEP.min(end - done))?;
            if part.is_empty() {
                return Ok(done);
            }
            self.checks.iter_mut().for_each(|checks| checks.add(&part));
            crc.iter_mut().for_each(|crc| crc.add(&part));
            done += part.len() as u64;
            self.walk.forget(done);
        }
        if let Some((attachment, crc)) = attachment.zip(crc) {
            faults.add(crc.fault().map(|why| attachment_fault(&attachment.name, &why)));
        }
        Ok(end)
    }
}
