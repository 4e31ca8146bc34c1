//! Steps through a file from record to record, and searches for the next one after damage. Reads
//! heads only; `reader` reads contents.
//!
//! Records have no checksum of their own. What looks like a record is believed if what follows
//! looks like one, too.

#![warn(clippy::indexing_slicing)]

use std::sync::Arc;

use bytes::Bytes;
use sluice_io::files::LogFile;
use sluice_model::options::ByteSize;
use sluice_model::{BlockPool, Error, RunHandle};

use crate::wire::{
    AttachmentHead, CHUNK_HEAD, ChunkHead, DATA_END, FOOTER, HEAD, Head, MAGIC, RecordFields,
    min_len, op, record_name,
};

/// As many bytes as decide what a record looks like.
const LOOK: usize = HEAD as usize + CHUNK_HEAD;
/// How many records have to follow what a search finds.
const CHAIN: u32 = 2;
/// The most bytes kept of one damaged range of a stream.
const MAX_KEPT: u64 = 64 << 20;
/// The longest record of a cut file: a longer one has a wrong length.
const MAX_CUT: u64 = 1 << 40;

/// What is at a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FoundAt {
    /// The end of the file.
    End,
    /// What looks like a whole record.
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
        let (block, base, last) = (Bytes::new(), 0, None);
        let keeps_bytes = false;
        Self { log, blocks, run, block, base, len, anchors, max_record, last, keeps_bytes }
    }

    /// Keeps the bytes of damaged ranges of a stream, as far as they are not too long.
    pub(crate) fn keeping_bytes(mut self, keeps: bool) -> Self {
        self.keeps_bytes = keeps && !self.is_seekable();
        self
    }

    pub(crate) fn is_seekable(&self) -> bool {
        self.log.is_seekable()
    }

    /// Why a compressed file ended early, once that is known.
    pub(crate) fn decompression_error(&self) -> Option<&str> {
        self.log.decompression_error()
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
            let rest = usize::try_from(len.saturating_sub(at)).unwrap_or(usize::MAX);
            read_len = read_len.min(rest);
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
        let mut at = from;
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

    /// Whether reading the record at `at` would wait for more of a stream.
    pub(crate) fn would_wait(&mut self, mut at: u64) -> Result<bool, Error> {
        // Outside of chunks, a record is believed once the next one is there.
        for _ in 0..2 {
            if self.awaits(at.saturating_add(LOOK as u64 - 1))? {
                return Ok(true);
            }
            let mut look = [0; LOOK];
            let head = Head::parse(self.peek(at, &mut look)?);
            // Longer records are damage, or are not waited for.
            let Some(head) = head.filter(|head| head.record_len() <= self.max_record) else {
                return Ok(false);
            };
            at = at.saturating_add(head.record_len());
            if self.awaits(at - 1)? {
                return Ok(true);
            }
            if head.opcode == op::CHUNK {
                break;
            }
        }
        Ok(false)
    }

    /// Whether the byte at `position` of a stream has not arrived yet.
    fn awaits(&mut self, position: u64) -> Result<bool, Error> {
        if self.len.is_some() || self.buffered(position, 1).is_some() {
            return Ok(false);
        }
        let has_arrived = self.log.read_arrived(position, &mut [0], 0)? > 0;
        Ok(!has_arrived && self.log.awaits_more(position))
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

    /// What is at a position.
    pub(crate) fn place(&mut self, at: u64) -> Result<FoundAt, Error> {
        if let Some((_, place)) = self.last.as_ref().filter(|(last, _)| *last == at) {
            return Ok(place.clone());
        }
        let place = self.examine(at)?;
        self.last = Some((at, place.clone()));
        Ok(place)
    }

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
        if let Some(anchor) = self.next_anchor(at).filter(|anchor| *anchor < end) {
            return Ok(FoundAt::Garbage(format!(
                "the length of a {} record, {}, leads past the chunk at byte {anchor}",
                record_name(head.opcode),
                head.len
            )));
        }
        if self.reaches(head, end)? {
            return Ok(FoundAt::Record(head));
        }
        Ok(if head.len <= MAX_CUT || head.is_unfinished_chunk() {
            FoundAt::Cut(head)
        } else {
            FoundAt::Garbage(format!(
                "the length of a {} record, {}, leads past the end of the file",
                record_name(head.opcode),
                head.len
            ))
        })
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
            FoundAt::End | FoundAt::Magic | FoundAt::Record(_) | FoundAt::Cut(_) => true,
            FoundAt::Garbage(_) => self.len.is_some_and(|len| len.saturating_sub(at) < HEAD),
        })
    }

    /// Whether the header of a file and a further record are here.
    pub(crate) fn is_header(&mut self, at: u64) -> Result<bool, Error> {
        let is_header =
            matches!(self.examine(at)?, FoundAt::Record(head) if head.opcode == op::HEADER);
        Ok(is_header && self.leads_on(at, CHAIN)?)
    }

    /// Where the record at `at` ends: after its fields, if its length is longer, but records follow
    /// there. Fields that are not known may follow those that are, and no record looks like them.
    pub(crate) fn end_of(&mut self, at: u64, head: Head) -> Result<u64, Error> {
        let end = at.saturating_add(head.record_len());
        let content = self.read(at + HEAD, head.len.min(FIELDS))?;
        let exact = fields_len(head.opcode, &content).unwrap_or(head.len);
        if exact >= head.len {
            return Ok(end);
        }
        let exact = at + HEAD + exact;
        let is_record = matches!(self.examine(exact)?, FoundAt::Record(head) if may_follow(head));
        Ok(if is_record && self.leads_on(exact, CHAIN)? { exact } else { end })
    }

    /// Whether records lead from here to the end of the file, even in a chunk, or on by so many.
    fn leads_on(&mut self, mut at: u64, chain: u32) -> Result<bool, Error> {
        for _ in 0..chain {
            match self.examine(at)? {
                FoundAt::End | FoundAt::Magic => return Ok(true),
                FoundAt::Cut(head) if head.opcode == op::CHUNK => return Ok(true),
                // What is behind an attachment of any length is not waited for.
                FoundAt::Record(head) if self.is_too_long(head) => return Ok(false),
                FoundAt::Record(head) if min_len(head.opcode).is_some() => {
                    at = at.saturating_add(head.record_len());
                }
                _ => return Ok(false),
            }
        }
        Ok(true)
    }

    /// The next position from `from` on where a record can be believed; the end of the file if
    /// there is none. `is_channel` knows the channels of messages outside of chunks; without it,
    /// messages and declarations are taken for the contents of a broken chunk, and not believed.
    pub(crate) fn search(
        &mut self,
        from: u64,
        is_channel: Option<&dyn Fn(u16) -> bool>,
    ) -> Result<u64, Error> {
        let mut at = from;
        // Nothing leads past a chunk that is known to be there.
        let stop = if self.is_anchor(from) { Some(from) } else { self.next_anchor(from) };
        loop {
            let view = self.view(at, SEARCH_STEP)?;
            if view.is_empty() || self.is_cancelled() {
                return Ok(stop.unwrap_or(u64::MAX).min(self.end()));
            }
            for (offset, window) in view.windows(HEAD as usize).enumerate() {
                let here = at + offset as u64;
                if stop.is_some_and(|stop| here >= stop) {
                    return Ok(stop.unwrap_or(here));
                }
                if may_start(window) && self.is_believable(here, is_channel)? {
                    return Ok(here);
                }
            }
            if !self.keeps_bytes || at.saturating_sub(from) > MAX_KEPT {
                self.forget(at);
            }
            let done = (view.len() as u64 + 1).saturating_sub(HEAD);
            at += if done == 0 { view.len() as u64 } else { done };
        }
    }

    fn is_believable(
        &mut self,
        at: u64,
        is_channel: Option<&dyn Fn(u16) -> bool>,
    ) -> Result<bool, Error> {
        let head = match self.examine(at)? {
            FoundAt::Magic => return self.leads_on(at + MAGIC.len() as u64, CHAIN),
            FoundAt::Record(head) if !self.is_too_long(head) => head,
            _ => return Ok(false),
        };
        match (head.opcode, is_channel) {
            (op::MESSAGE | op::SCHEMA | op::CHANNEL, None) => return Ok(false),
            (op::MESSAGE, Some(is_channel)) => {
                let mut id = [0; 2];
                self.peek(at + HEAD, &mut id)?;
                if !is_channel(u16::from_le_bytes(id)) {
                    return Ok(false);
                }
            }
            _ => {}
        }
        self.leads_on(at.saturating_add(head.record_len()), CHAIN)
    }
}

/// The bytes searched at a time.
const SEARCH_STEP: u64 = 64 << 10;
/// The bytes of a stream that are read at a time.
const STREAM_STEP: usize = 256 << 10;

/// As many bytes as usually have the fields of a record that lengths depend on.
const FIELDS: u64 = 512;

fn may_follow(head: Head) -> bool {
    head.opcode > op::HEADER && head.opcode <= op::DATA_END
}

/// The length of the fields of a record whose content starts with these bytes, if it is known.
fn fields_len(opcode: u8, content: &[u8]) -> Option<u64> {
    let mut fields = RecordFields(content);
    match opcode {
        op::CHUNK => Some(ChunkHead::parse(content)?.content_len()),
        op::MESSAGE_INDEX => {
            fields.take(2)?;
            Some(6 + u64::from(fields.u32()?))
        }
        op::METADATA => {
            let name = fields.bytes()?.len() as u64;
            Some(8 + name + u64::from(fields.u32()?))
        }
        op::ATTACHMENT => {
            let head = AttachmentHead::parse(content)?;
            let names = (head.name.len() + head.media_type.len()) as u64;
            (36 + names).checked_add(head.data_len)
        }
        _ => None,
    }
}

/// Whether a record that a search may find can start with these bytes: one of the format, whose
/// length is below a terabyte; or magic bytes.
fn may_start(bytes: &[u8]) -> bool {
    let Some(head) = Head::parse(bytes) else { return false };
    bytes.starts_with(&MAGIC)
        || head.opcode > op::HEADER && head.opcode <= op::DATA_END && head.len <= MAX_CUT
}

/// Why these cannot be the head and the first bytes of a record; `None` if they can.
fn implausible(head: Head, content: &[u8]) -> Option<String> {
    let Head { opcode, len } = head;
    if opcode == 0 {
        return Some("no record starts with a zero".to_owned());
    }
    let name = record_name(opcode);
    let min = min_len(opcode)?;
    let is_exact = match opcode {
        op::FOOTER => len == FOOTER,
        op::DATA_END => len == DATA_END,
        _ => true,
    };
    if len < min || !is_exact {
        let expected = if is_exact { "at least " } else { "" };
        return Some(format!("expected {expected}{min} bytes in a {name} record, found {len}"));
    }
    let content = content.get(..usize::try_from(len).unwrap_or(usize::MAX)).unwrap_or(content);
    let is_all = content.len() as u64 == len;
    let inside = fits(opcode, content, len).unwrap_or(!is_all);
    (!inside).then(|| format!("the fields of a {name} record contradict its length, {len}"))
}

/// Whether the fields of a record, whose content starts with these bytes, fit into its length;
/// `None` if the bytes do not reach as far as its fields.
fn fits(opcode: u8, content: &[u8], len: u64) -> Option<bool> {
    let mut fields = RecordFields(content);
    let mut left = len.checked_sub(min_len(opcode)?)?;
    // The length of what a 32-bit length precedes, if it fits.
    let mut array = |fields: &mut RecordFields<'_>| {
        let array = u64::from(fields.u32()?);
        let rest = left.checked_sub(array);
        left = rest.unwrap_or(left);
        Some(rest.map(|_| array))
    };
    let fits = match opcode {
        op::HEADER | op::METADATA => match array(&mut fields)? {
            Some(name) => fields.take(name).is_none() || array(&mut fields)?.is_some(),
            None => false,
        },
        op::SCHEMA => {
            fields.take(2)?;
            array(&mut fields)?.is_some()
        }
        op::CHANNEL => {
            fields.take(4)?;
            array(&mut fields)?.is_some()
        }
        op::MESSAGE_INDEX => {
            fields.take(2)?;
            array(&mut fields)?.is_some_and(|array| array.is_multiple_of(16))
        }
        op::ATTACHMENT => {
            fields.take(16)?;
            let name = array(&mut fields)?;
            match name.map(|name| fields.take(name)) {
                Some(Some(_)) => array(&mut fields)?.is_some(),
                Some(None) => true,
                None => false,
            }
        }
        op::CHUNK => {
            let chunk = ChunkHead::parse(content)?;
            // The least and the greatest of no times, as writers start with them.
            let has_no_times = chunk.end_time == 0 && chunk.start_time >= i64::MAX as u64;
            let are_times = has_no_times || chunk.start_time <= chunk.end_time;
            are_times && chunk.content_len() <= len
        }
        _ => true,
    };
    // Fields that are not known are short: more of them than of others is another record.
    let is_skipped = opcode != op::CHUNK && opcode != op::HEADER;
    let known = fields_len(opcode, content).filter(|_| is_skipped);
    let is_likely = known.is_none_or(|known| (known..=known.saturating_mul(2)).contains(&len));
    Some(fits && is_likely)
}

/// Whether a record that belongs into a summary, at `at`, whose content starts with these bytes,
/// refers to what precedes it only.
pub(crate) fn refers_back(opcode: u8, content: &[u8], at: u64) -> bool {
    let mut fields = RecordFields(content);
    let mut u64s = |skipped: u64| {
        fields.take(skipped)?;
        fields.u64().zip(fields.u64())
    };
    let range = match opcode {
        op::CHUNK_INDEX => u64s(16),
        op::ATTACHMENT_INDEX | op::METADATA_INDEX => u64s(0),
        op::SUMMARY_OFFSET => u64s(1),
        op::FOOTER => return u64s(0).is_some_and(|(start, offsets)| start.max(offsets) <= at),
        op::STATISTICS => return u64s(26).is_some_and(|(start, end)| start <= end),
        _ => return true,
    };
    range.is_some_and(|(start, len)| start.saturating_add(len) <= at)
}
