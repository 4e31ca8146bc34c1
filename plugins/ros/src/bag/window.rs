//! The records of an open bag, at any position, and the search for the next one behind damage.

#![warn(clippy::indexing_slicing)]

use bytes::Bytes;
use memchr::memmem::Finder;
use sluice_io::LogWindow;
use sluice_io::files::LogFile;
use sluice_kit::gap;
use sluice_model::Error;

use super::wire::{MAGIC, MAX_HEADER, NoRecord, OP_FIELD, Record, RecordHeader};

/// What is read at once.
const WINDOW: usize = 64 << 10;
/// The most bytes kept of one damaged range of a stream.
const MAX_KEPT: u64 = 64 << 20;
/// How far before the field `op` a record may begin, if it is found by that.
const MAX_BEFORE_OP: usize = 128;

/// An open bag.
pub(crate) struct BagWindow {
    log: LogFile,
    window: LogWindow,
    /// The longest record that is believed.
    max_record: u64,
    /// Whether the bytes of damaged ranges are kept.
    keeps_bytes: bool,
    /// Whether chunks are compressed, so that messages are only in them.
    is_packed: bool,
}

/// What is at a position.
pub(crate) enum FoundAt {
    End,
    /// The start of a bag.
    Magic,
    Record(Record),
    /// The bag ends in the header of a record.
    Cut,
    Garbage(&'static str),
}

impl BagWindow {
    pub(crate) fn new(log: LogFile, max_record: u64) -> Self {
        Self { log, window: LogWindow::default(), max_record, keeps_bytes: false, is_packed: false }
    }

    /// Says whether chunks are compressed. Their bytes may look like messages, since parts of them
    /// can be uncompressed, so a search does not find any.
    pub(crate) fn set_packed(&mut self, is_packed: bool) {
        self.is_packed = is_packed;
    }

    /// Keeps the bytes of damaged ranges of a stream, as far as they are not too long.
    pub(crate) fn keeping_bytes(mut self, keeps: bool) -> Self {
        self.keeps_bytes = keeps && !self.is_seekable();
        self
    }

    /// The bytes of a damaged range, if they are kept.
    pub(crate) fn kept_bytes(&mut self, at: u64, len: u64) -> Vec<Bytes> {
        if !self.keeps_bytes {
            return Vec::new();
        }
        let mut bytes = vec![0; usize::try_from(len.min(MAX_KEPT)).unwrap_or_default()];
        let read = self.log.read_at(at, &mut bytes).unwrap_or_default();
        bytes.truncate(read);
        vec![bytes.into()]
    }

    pub(crate) fn is_seekable(&self) -> bool {
        self.log.is_seekable()
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.log.is_cancelled()
    }

    /// Whether the end of a stream is where the run was cancelled.
    pub(crate) fn was_stopped(&self) -> bool {
        self.log.was_stopped()
    }

    pub(crate) fn decompression_error(&self) -> Option<&str> {
        self.log.decompression_error()
    }

    /// The same, with where the compressed bytes are that were passed to resume.
    pub(crate) fn gap_reason(&mut self, reason: String) -> String {
        gap::reason_with_place(reason, &mut self.log)
    }

    /// Whether the first bytes of a compressed bag may be wrong.
    pub(crate) fn has_damaged_start(&mut self) -> Result<bool, Error> {
        self.log.has_damaged_start()
    }

    /// Goes on behind the damage that ended a compressed bag. Returns where what follows begins,
    /// anywhere in a record: one byte behind the end.
    pub(crate) fn resume(&mut self) -> Result<Option<u64>, Error> {
        let from = self.log.resume()?;
        if from.is_some() {
            self.window = LogWindow::default();
        }
        Ok(from)
    }

    /// Fills a buffer from a position. Returns fewer bytes only at the end of the bag.
    pub(crate) fn read(&mut self, at: u64, to: &mut [u8]) -> Result<usize, Error> {
        self.log.read_at(at, to)
    }

    /// At most `len` bytes at a position.
    pub(crate) fn bytes(&mut self, at: u64, len: u32) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; len as usize];
        let read = self.read(at, &mut bytes)?;
        bytes.truncate(read);
        Ok(bytes)
    }

    /// Declares that nothing before a position is read again.
    pub(crate) fn forget(&mut self, at: u64) {
        // The window may begin before, and is read again from its start.
        let start = self.window.start();
        self.log.forget(at.min(start.max(at.saturating_sub(MAX_BEFORE_OP as u64))));
    }

    /// The bytes at a position: at least `least` if the bag has as many.
    fn view(&mut self, at: u64, least: usize) -> Result<&[u8], Error> {
        self.window.view(at, least, least.max(WINDOW), |space| self.log.read_at(at, space))
    }

    /// Whether the bag has a byte at this position, or ends there.
    pub(crate) fn reaches(&mut self, at: u64) -> Result<bool, Error> {
        match self.log.len() {
            Some(len) => Ok(at <= len),
            None => Ok(at == 0 || self.log.read_at(at - 1, &mut [0])? == 1),
        }
    }

    pub(crate) fn place(&mut self, at: u64) -> Result<FoundAt, Error> {
        // Nearly all headers are short.
        for least in [512, MAX_HEADER + 8] {
            let bytes = self.view(at, least)?;
            if bytes.is_empty() {
                return Ok(FoundAt::End);
            }
            if bytes.starts_with(MAGIC) {
                return Ok(FoundAt::Magic);
            }
            match Record::parse(bytes) {
                Ok(record) => return Ok(FoundAt::Record(record)),
                Err(NoRecord::Wrong(why)) => return Ok(FoundAt::Garbage(why)),
                Err(NoRecord::Short) if bytes.len() < least => break,
                Err(NoRecord::Short) => {}
            }
        }
        Ok(FoundAt::Cut)
    }

    /// Whether a record, even one that is cut off, or the end of the bag is at a position.
    pub(crate) fn goes_on(&mut self, at: u64) -> Result<bool, Error> {
        if !self.reaches(at)? {
            return Ok(false);
        }
        Ok(!matches!(self.place(at)?, FoundAt::Garbage(_)))
    }

    /// Whether these positions are the bounds of whole records of an uncompressed chunk.
    pub(crate) fn is_chain(&mut self, mut at: u64, end: u64) -> Result<bool, Error> {
        while at < end {
            match self.place(at)? {
                FoundAt::Record(record) if record.header.is_content() => at += record.len(),
                _ => return Ok(false),
            }
        }
        Ok(at == end)
    }

    /// The position of the next record from `from` on that another one follows, or the end of the
    /// bag. No message if chunks [are compressed](Self::set_packed).
    pub(crate) fn search(&mut self, from: u64) -> Result<u64, Error> {
        self.search_to(from, u64::MAX)
    }

    /// The same, or where the search ended: not far behind `to`.
    pub(crate) fn search_to(&mut self, from: u64, to: u64) -> Result<u64, Error> {
        let finder = Finder::new(OP_FIELD);
        let mut at = from;
        loop {
            if self.is_cancelled() || at > to {
                return Ok(at);
            }
            let bytes = self.view(at, WINDOW)?;
            let len = bytes.len() as u64;
            let hits: Vec<u64> = finder.find_iter(bytes).map(|hit| at + hit as u64).collect();
            for hit in hits {
                let first = hit.saturating_sub(MAX_BEFORE_OP as u64).max(from);
                for start in first..=hit.saturating_sub(4).max(first) {
                    if self.is_record(start, hit)? {
                        return Ok(start);
                    }
                }
            }
            if len < WINDOW as u64 {
                return Ok(at + len);
            }
            // A hit may lie across the end of what was searched.
            at += len - OP_FIELD.len() as u64;
            if !self.keeps_bytes || at.saturating_sub(from) > MAX_KEPT {
                self.forget(at.saturating_sub(MAX_BEFORE_OP as u64));
            }
        }
    }

    /// Whether a record begins at `start`, has its operation at `hit`, and another one behind it.
    fn is_record(&mut self, start: u64, hit: u64) -> Result<bool, Error> {
        let least = usize::try_from(hit - start).unwrap_or(0) + 256;
        let Ok(record) = Record::parse(self.view(start, least)?) else { return Ok(false) };
        if start + record.data_at as u64 <= hit || record.len() > self.max_record {
            return Ok(false);
        }
        let next = start + record.len();
        match record.header {
            RecordHeader::Message { .. } if self.is_packed => Ok(false),
            // Behind the last chunk, others follow, or what the bag says of its chunks.
            RecordHeader::Connection { .. } if self.is_packed => {
                let FoundAt::Record(next) = self.place(next)? else { return Ok(false) };
                Ok(matches!(
                    next.header,
                    RecordHeader::Connection { .. } | RecordHeader::ChunkInfo { .. }
                ))
            }
            _ => self.goes_on(next),
        }
    }
}
