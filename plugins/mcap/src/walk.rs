//! Steps through a file from record to record; `search` finds the next one after damage. Reads
//! heads only; `reader` reads contents.
//!
//! Records have no checksum of their own. What looks like a record is believed if what follows
//! looks like one, too.

#![warn(clippy::indexing_slicing)]

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use sluice_io::files::LogFile;
use sluice_kit::gap;
use sluice_model::options::ByteSize;
use sluice_model::{BlockPool, Error, RunHandle};

use crate::wire::{CHUNK_HEAD, HEAD, Head, MAGIC, min_len, op, record_name};

mod search;
mod shape;
mod stream;

use shape::{MAX_CUT, fields_len, has_fields_len, may_be_cut, may_follow};
pub(crate) use shape::{MAX_DATA_END, implausible, refers_back};

/// As many bytes as decide what a record looks like.
const LOOK: usize = HEAD as usize + CHUNK_HEAD;
/// How many records have to follow what a search finds.
const CHAIN: u32 = 2;
/// How many records of unknown kinds may precede one of another.
const MAX_UNKNOWN: u32 = 4;
/// The first kind of records that are private to their writers.
const PRIVATE: u8 = 0x80;
/// The most bytes kept of one damaged range of a stream.
const MAX_KEPT: u64 = 64 << 20;
/// As many bytes as usually have the fields of a record that lengths depend on.
const FIELDS: u64 = 512;
/// The bytes of a stream that are read at a time.
const STREAM_STEP: usize = 256 << 10;

/// What is at a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FoundAt {
    /// The end of the file.
    End,
    /// What looks like a whole record. Its length may be wrong: see [`Walk::end_of`].
    Record(Head),
    /// What looks like the start of a record that the end of the file cuts off.
    Cut(Head),
    /// Magic bytes.
    Magic,
    /// Anything else, and why it is no record.
    Garbage(String),
}

/// A file that is walked through.
pub(crate) struct Walk {
    log: LogFile,
    blocks: BlockPool,
    run: RunHandle,
    /// The block read last, and its position.
    block: Bytes,
    base: u64,
    /// The length of the file; `None` while it is unknown.
    len: Option<u64>,
    /// Starts of chunks that the index lists and that are there, rising: no record leads past one.
    anchors: Arc<[u64]>,
    /// The longest chunk or message of a stream.
    max_record: u64,
    /// The place examined last.
    last: Option<(u64, FoundAt)>,
    /// Whether the bytes of damaged ranges are kept.
    keeps_bytes: bool,
    /// Nothing before this is needed any more.
    forgotten: u64,
    /// What is behind this is mostly not needed.
    needed_to: u64,
}

impl Walk {
    pub(crate) fn new(
        log: LogFile,
        anchors: Arc<[u64]>,
        max_chunk: ByteSize,
        (blocks, run): (BlockPool, RunHandle),
    ) -> Self {
        let len = if log.is_seekable() { log.len() } else { None };
        let max_record = max_chunk.0.saturating_add(max_chunk.0 / 8).saturating_add(1 << 20);
        Self {
            log,
            blocks,
            run,
            block: Bytes::new(),
            base: 0,
            len,
            anchors,
            max_record,
            last: None,
            keeps_bytes: false,
            forgotten: 0,
            needed_to: u64::MAX,
        }
    }

    /// Reads no more than has to be behind this position.
    pub(crate) fn needed_to(self, needed_to: Option<u64>) -> Self {
        Self { needed_to: needed_to.unwrap_or(u64::MAX), ..self }
    }

    /// Keeps the bytes of damaged ranges of a stream, as far as they are not too long.
    pub(crate) fn keeping_bytes(mut self, keeps: bool) -> Self {
        self.keeps_bytes = keeps && !self.is_seekable();
        self
    }

    pub(crate) fn path(&self) -> &Path {
        self.log.path()
    }

    pub(crate) fn is_seekable(&self) -> bool {
        self.log.is_seekable()
    }

    /// Why a compressed file ended early, once that is known.
    pub(crate) fn decompression_error(&self) -> Option<&str> {
        self.log.decompression_error()
    }

    /// The same, with where the compressed bytes are that were passed to resume.
    pub(crate) fn gap_reason(&mut self, reason: String) -> String {
        gap::reason_with_place(reason, &mut self.log)
    }

    /// Goes on behind the damage that ended a compressed file. Returns where what follows begins,
    /// anywhere in a record: one byte behind the end.
    pub(crate) fn resume(&mut self) -> Result<Option<u64>, Error> {
        let from = self.log.resume()?;
        if let Some(from) = from {
            (self.block, self.base, self.len, self.last) = (Bytes::new(), from, None, None);
        }
        Ok(from)
    }

    /// Whether the first bytes of a compressed file may be wrong.
    pub(crate) fn has_damaged_start(&mut self) -> Result<bool, Error> {
        self.log.has_damaged_start()
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.log.is_cancelled()
    }

    /// Whether the end of a stream is where the run was cancelled.
    pub(crate) fn was_stopped(&self) -> bool {
        self.log.was_stopped()
    }

    /// The end of the file, or of what was read of it so far.
    pub(crate) fn end(&self) -> u64 {
        self.len.unwrap_or(self.base + self.block.len() as u64)
    }

    /// Whether the file is shorter than this by now.
    pub(crate) fn is_shorter_than(&self, expected: u64) -> bool {
        self.log.is_shorter_than(expected)
    }

    /// Whether that is the end of the file.
    pub(crate) fn is_end_known(&self) -> bool {
        self.len.is_some()
    }

    /// At most `want` bytes at `at`; fewer only at the end of the file.
    pub(crate) fn view(&mut self, at: u64, want: u64) -> Result<Bytes, Error> {
        let want = self.len.map_or(want, |len| want.min(len.saturating_sub(at)));
        let want = usize::try_from(want).unwrap_or(usize::MAX);
        if let Some(view) = self.buffered(at, want) {
            return Ok(view);
        }
        let mut block = self.blocks.block_with_len(want);
        let mut read_len = block.len();
        if let Some(len) = self.len {
            let rest = len.min(self.needed_to).saturating_sub(at);
            read_len = read_len.min(usize::try_from(rest).unwrap_or(usize::MAX).max(want));
        } else {
            // A stream gives what is there: waiting for more would delay it.
            read_len = read_len.min(want.max(STREAM_STEP));
        }
        let space = block.get_mut(..read_len).unwrap_or_default();
        let read = self.log.read_arrived(at, space, want)?;
        self.len = self.len.or(self.log.stream_end().filter(|_| read < read_len));
        self.run.count_read(read as u64);
        (self.block, self.base) = (block.freeze().slice(..read), at);
        Ok(self.block.slice(..want.min(read)))
    }

    /// The block with `len` bytes at `at`, and where they are in it. Fewer bytes only at the end of
    /// the file.
    pub(crate) fn block_with(&mut self, at: u64, len: u64) -> Result<(Bytes, usize), Error> {
        self.view(at, len)?;
        let start = usize::try_from(at.saturating_sub(self.base)).unwrap_or(usize::MAX);
        Ok((self.block.clone(), start))
    }

    /// The bytes of a damaged range, if they are kept.
    pub(crate) fn kept_bytes(&mut self, at: u64, len: u64) -> Vec<Bytes> {
        if !self.keeps_bytes {
            return Vec::new();
        }
        self.read(at, len.min(MAX_KEPT)).map_or(Vec::new(), |bytes| vec![bytes.into()])
    }

    /// At most `len` bytes at `at`, read by themselves.
    pub(crate) fn read(&mut self, at: u64, len: u64) -> Result<Vec<u8>, Error> {
        let len = self.len.map_or(len, |end| len.min(end.saturating_sub(at)));
        let mut bytes = vec![0; usize::try_from(len).unwrap_or_default()];
        let read = self.peek(at, &mut bytes)?.len();
        bytes.truncate(read);
        Ok(bytes)
    }

    /// Moves a stream from `from` to `to` without keeping what is between. Returns where it ended.
    pub(crate) fn skip(&mut self, from: u64, to: u64) -> Result<u64, Error> {
        let mut at = from.max(self.forgotten);
        while !self.is_seekable() && at < to {
            let next = to.min(at + STREAM_STEP as u64);
            if self.peek(next - 1, &mut [0])?.is_empty() {
                return Ok(self.end());
            }
            self.forget(next);
            at = next;
        }
        Ok(to)
    }

    fn buffered(&self, at: u64, want: usize) -> Option<Bytes> {
        let start = usize::try_from(at.checked_sub(self.base)?).ok()?;
        let end = start.checked_add(want)?;
        (end <= self.block.len()).then(|| self.block.slice(start..end))
    }

    /// Fills `to` from `at`, without reading a block; fewer bytes only at the end of the file.
    fn peek<'b>(&mut self, at: u64, to: &'b mut [u8]) -> Result<&'b [u8], Error> {
        let want = self.len.map_or(to.len() as u64, |len| len.saturating_sub(at));
        let want = usize::try_from(want).unwrap_or(usize::MAX).min(to.len());
        let to = to.get_mut(..want).unwrap_or_default();
        if let Some(view) = self.buffered(at, want) {
            to.copy_from_slice(&view);
            return Ok(to);
        }
        let read = self.log.read_at(at, to)?;
        // `at` may be far behind the end.
        self.len = self.len.or(self.log.stream_end().filter(|_| read < want));
        Ok(to.get(..read).unwrap_or_default())
    }

    /// Declares that nothing before `at` is needed any more.
    pub(crate) fn forget(&mut self, at: u64) {
        self.forgotten = self.forgotten.max(at);
        self.log.forget(at);
    }

    /// The next start of a chunk that is known, after `at`.
    fn next_anchor(&self, at: u64) -> Option<u64> {
        self.anchors.get(self.anchors.partition_point(|anchor| *anchor <= at)).copied()
    }

    /// Whether a known chunk starts here.
    pub(crate) fn is_anchor(&self, at: u64) -> bool {
        self.anchors.binary_search(&at).is_ok()
    }

    /// The end of a record that starts at `at`: not behind the start of the next known chunk.
    fn before_anchor(&self, at: u64, end: u64) -> u64 {
        self.next_anchor(at).map_or(end, |anchor| anchor.min(end))
    }

    /// What is at a position.
    pub(crate) fn place(&mut self, at: u64) -> Result<FoundAt, Error> {
        if let Some((_, place)) = self.last.as_ref().filter(|(last, _)| *last == at) {
            return Ok(place.clone());
        }
        let place = match self.examine(at)? {
            FoundAt::Cut(head) if self.end_of(at, head)? < at.saturating_add(head.record_len()) => {
                FoundAt::Record(head)
            }
            FoundAt::Cut(head) if !may_be_cut(head) => FoundAt::Garbage(format!(
                "the length of a {} record, {}, leads past the end of the file",
                record_name(head.opcode),
                head.len
            )),
            place => place,
        };
        self.last = Some((at, place.clone()));
        Ok(place)
    }

    /// What is at a position, if the length of a record counts more than what follows its fields.
    fn examine(&mut self, at: u64) -> Result<FoundAt, Error> {
        let mut look = [0; LOOK];
        let bytes = self.peek(at, &mut look)?;
        let Some(head) = Head::parse(bytes) else {
            let few = bytes.len();
            let cut =
                || FoundAt::Garbage(format!("the file is cut off: {few} bytes are no record"));
            return Ok(if few == 0 {
                FoundAt::End
            } else if bytes == MAGIC {
                FoundAt::Magic
            } else {
                cut()
            });
        };
        if bytes.starts_with(&MAGIC) {
            return Ok(FoundAt::Magic);
        }
        let content = bytes.get(HEAD as usize..).unwrap_or_default();
        if let Some(reason) = implausible(head, content) {
            return Ok(FoundAt::Garbage(reason));
        }
        let end = at.saturating_add(head.record_len());
        let anchor = self.next_anchor(at).filter(|anchor| *anchor < end);
        // Fields that end before that chunk are right, the length is not: see `end_of`.
        let exact = fields_len(head.opcode, content).filter(|exact| *exact < head.len);
        let exact_end = exact.map(|exact| at.saturating_add(HEAD).saturating_add(exact));
        if let Some(anchor) = anchor
            && exact_end.is_none_or(|exact_end| exact_end > anchor)
        {
            return Ok(FoundAt::Garbage(format!(
                "the length of a {} record, {}, leads past the chunk at byte {anchor}",
                record_name(head.opcode),
                head.len
            )));
        }
        let is_whole = anchor.is_some() || self.reaches(head, end)?;
        Ok(if is_whole { FoundAt::Record(head) } else { FoundAt::Cut(head) })
    }

    /// Whether the file has all bytes before `end`, the end of a record. Long attachments of
    /// streams are not waited for.
    fn reaches(&mut self, head: Head, end: u64) -> Result<bool, Error> {
        if let Some(len) = self.len {
            return Ok(end <= len);
        }
        if self.is_too_long(head) {
            return Ok(head.opcode == op::ATTACHMENT && head.len <= MAX_CUT);
        }
        let mut last = [0];
        Ok(!self.peek(end.saturating_sub(1), &mut last)?.is_empty())
    }

    /// Whether a record of a stream is too long to wait for its end.
    fn is_too_long(&self, head: Head) -> bool {
        self.len.is_none() && head.len > self.max_record
    }

    /// Whether something plausible is at `at`, the end of a record: another record, even if it is
    /// cut off, or the end of the file.
    pub(crate) fn goes_on(&mut self, at: u64) -> Result<bool, Error> {
        // Do not wait for what follows a long record of a stream.
        if self.len.is_none() && at > self.end().saturating_add(self.max_record) {
            return Ok(true);
        }
        Ok(match self.place(at)? {
            FoundAt::End | FoundAt::Magic => true,
            FoundAt::Record(head) | FoundAt::Cut(head) if min_len(head.opcode).is_some() => true,
            FoundAt::Garbage(_) if self.len.is_some_and(|len| len.saturating_sub(at) < HEAD) => {
                true
            }
            _ => self.leads_past(at)?,
        })
    }

    /// Whether what is at `at` is a record of another kind than its content shows, or of a kind
    /// that is unknown: one whose length leads to records.
    fn leads_past(&mut self, mut at: u64) -> Result<bool, Error> {
        for _ in 0..MAX_UNKNOWN {
            let mut look = [0; HEAD as usize];
            let head = Head::parse(self.peek(at, &mut look)?).filter(|head| head.opcode != 0);
            let Some(head) = head.filter(|head| !self.is_too_long(*head)) else {
                return Ok(false);
            };
            let end = at.saturating_add(head.record_len());
            if !self.reaches(head, end)? {
                // One that is private to the writer may be cut off.
                let may_be_last = head.opcode >= PRIVATE && may_be_cut(head);
                return Ok(may_be_last && self.is_rest(at)?);
            }
            if self.before_anchor(at, end) < end {
                return Ok(false);
            }
            match self.examine(end)? {
                FoundAt::Record(head) | FoundAt::Cut(head) if min_len(head.opcode).is_none() => {
                    at = end;
                }
                FoundAt::Cut(head) => return Ok(may_be_cut(head)),
                next => return Ok(!matches!(next, FoundAt::Garbage(_))),
            }
        }
        Ok(true)
    }

    /// Whether the header of a file and a further record are here.
    pub(crate) fn is_header(&mut self, at: u64) -> Result<bool, Error> {
        let is_header =
            matches!(self.examine(at)?, FoundAt::Record(head) if head.opcode == op::HEADER);
        Ok(is_header && self.leads_on(at, CHAIN)?)
    }

    /// Where the record at `at` ends: after its fields, if its length is longer, but records follow
    /// there, or a chunk that is known starts before the end that the length tells. Fields that are
    /// not known may follow those that are, and no record looks like them.
    pub(crate) fn end_of(&mut self, at: u64, head: Head) -> Result<u64, Error> {
        let end = at.saturating_add(head.record_len());
        if !has_fields_len(head.opcode) {
            return Ok(end);
        }
        let content = self.read(at + HEAD, head.len.min(FIELDS))?;
        let len = fields_len(head.opcode, &content).unwrap_or(head.len);
        if len >= head.len || self.is_too_long(Head { len, ..head }) {
            return Ok(end);
        }
        let exact = at.saturating_add(HEAD).saturating_add(len);
        if !self.reaches(Head { len, ..head }, exact)? {
            return Ok(end);
        }
        if self.before_anchor(at, end) < end {
            return Ok(exact);
        }
        let may_end = match self.examine(exact)? {
            FoundAt::Record(head) => may_follow(head),
            found => matches!(found, FoundAt::End),
        };
        Ok(if may_end && self.leads_on(exact, CHAIN)? { exact } else { end })
    }

    /// Whether records lead from here to the end of the file, even in a chunk, or on by so many of
    /// known kinds.
    fn leads_on(&mut self, mut at: u64, chain: u32) -> Result<bool, Error> {
        let (mut known, mut unknown) = (0, 0);
        while known < chain {
            match self.examine(at)? {
                FoundAt::End | FoundAt::Magic => return Ok(true),
                FoundAt::Cut(head) if head.opcode == op::CHUNK => return Ok(may_be_cut(head)),
                // What is behind an attachment of any length is not waited for.
                FoundAt::Record(head) if self.is_too_long(head) => return Ok(false),
                FoundAt::Record(head) => {
                    let is_known = min_len(head.opcode).is_some();
                    (known, unknown) = if is_known { (known + 1, 0) } else { (known, unknown + 1) };
                    let end = at.saturating_add(head.record_len());
                    if unknown > MAX_UNKNOWN || self.before_anchor(at, end) < end {
                        return Ok(false);
                    }
                    at = end;
                }
                _ => return Ok(false),
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read};
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::wire::Append;

    /// A stream of which is counted what is read.
    struct CountedRead<R>(R, Arc<AtomicU64>);

    impl<R: Read> Read for CountedRead<R> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let read = self.0.read(buffer)?;
            self.1.fetch_add(read as u64, Ordering::Relaxed);
            Ok(read)
        }
    }

    #[test]
    fn what_follows_the_fields_of_a_long_attachment_of_a_stream_is_not_waited_for() {
        let data_len = 1u64 << 28;
        let mut record = vec![op::ATTACHMENT];
        // One byte more than its fields have.
        record.u64(37 + data_len);
        record.extend([0; 24]);
        record.u64(data_len);
        let count = Arc::new(AtomicU64::new(0));
        let endless = io::Cursor::new(record).chain(io::repeat(0));
        let stream = Box::new(CountedRead(endless, Arc::clone(&count)));
        let log = LogFile::stream(Path::new("-"), stream).unwrap();
        let tools = (BlockPool::new(1 << 10, 1), RunHandle::default());
        let mut walk = Walk::new(log, Arc::default(), ByteSize(1 << 20), tools);
        let FoundAt::Record(head) = walk.place(0).unwrap() else { panic!("no record") };
        assert_eq!(walk.end_of(0, head).unwrap(), head.record_len());
        assert!(count.load(Ordering::Relaxed) < 4 << 20, "{count:?}");
    }
}
