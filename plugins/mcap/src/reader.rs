//! Reads the events of a split: walks from record to record, and reports what is damaged.

#![warn(clippy::indexing_slicing)]

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use sluice_io::files::{self, InputContent};
use sluice_model::options::ByteSize;
use sluice_model::{Batch, Damage, Error, ReadContext, Reader, Seam, Split};

use crate::chunk;
use crate::index::FileIndex;
use crate::inspect::{NO_FOOTER, not_an_mcap_file};
use crate::salvage::CutChunk;
use crate::skip;
use crate::table::ChannelTable;
use crate::unit::{Batcher, Unit};
use crate::walk::{FoundAt, Walk, refers_back};
use crate::wire::{
    CHUNK_HEAD, ChunkHead, HEAD, Head, MAGIC, looks_like_message_index, min_len, op, record_name,
};

/// The note about what events cannot hold.
const PUBLISHED: &str = "times of publishing that differ from times of logging are not kept";

/// The note about what else a stream has.
const UNCOPIED: &str = "metadata and attachments of a stream are not copied; a file's are, if it \
                        is saved first";

/// Reads one split.
pub(crate) struct RecordReader {
    walk: Walk,
    table: ChannelTable,
    batcher: Batcher,
    context: ReadContext,
    input: Arc<str>,
    index: Option<Arc<FileIndex>>,
    max_chunk: ByteSize,
    at: u64,
    /// The end of the split.
    end: Option<u64>,
    /// The chunk that is being read.
    chunk: Option<(Unit, ChunkPlace)>,
    /// Whether what follows describes the file, and is not needed.
    is_summary: bool,
    /// Whether the footer was the last record.
    is_after_footer: bool,
    /// Whether nothing is known to be missing at the present end: the file is complete, or it is
    /// reported to be cut.
    has_ended: bool,
    /// Whether the file has chunks.
    is_chunked: bool,
    /// Whether the last record was a chunk, or one of its message indexes.
    follows_chunk: bool,
    /// Whether the header of the file comes next.
    is_start: bool,
    /// Whether bytes are missing, so that positions are not those that records name.
    has_gap: bool,
    /// The metadata and attachments of a stream, which sinks cannot copy.
    uncopied: Option<u64>,
    seam: Seam,
}

/// Where a chunk is in its file.
#[derive(Clone, Copy)]
struct ChunkPlace {
    at: u64,
    len: u64,
    /// Where its records are, if they are not compressed.
    records: Option<u64>,
}

impl RecordReader {
    pub(crate) fn open(
        path: &Path,
        split: &Split,
        index: Option<Arc<FileIndex>>,
        max_chunk: ByteSize,
        context: &ReadContext,
    ) -> Result<Self, Error> {
        let log = context.open_log(path, InputContent::Any)?;
        let anchors = index.as_ref().map(|index| Arc::clone(&index.anchors)).unwrap_or_default();
        let tools = (context.blocks.clone(), context.run.clone());
        let declarations = index.as_ref().and_then(|index| index.sure_declarations().cloned());
        let hints = index.as_ref().and_then(|index| index.hints().cloned());
        let is_chunked = !anchors.is_empty();
        let mut reader = Self {
            walk: Walk::new(log, anchors, max_chunk, tools)
                .keeping_bytes(context.damage.keeps_bytes()),
            table: ChannelTable::new(context, declarations).with_hints(hints),
            batcher: Batcher::new(context.query.window()),
            context: context.clone(),
            input: path.to_string_lossy().into(),
            index,
            max_chunk,
            at: split.start,
            end: split.end,
            chunk: None,
            is_summary: false,
            is_after_footer: false,
            has_ended: false,
            is_chunked,
            follows_chunk: false,
            is_start: split.start == 0,
            has_gap: false,
            uncopied: files::is_stream(path).then_some(0),
            seam: Seam { began: Some(split.start), ended: split.end },
        };
        if split.start == 0 {
            reader.read_magic(path)?;
        }
        Ok(reader)
    }

    /// Reads the first bytes of a file. `Err` if it has another format.
    fn read_magic(&mut self, path: &Path) -> Result<(), Error> {
        let len = MAGIC.len() as u64;
        let found = self.walk.view(0, len)?;
        if found == MAGIC.as_slice() {
            self.at = len;
        } else if self.walk.has_damaged_start()? {
            // Damage in the first bytes of compressed data speaks for itself.
        } else if found.is_empty() {
            self.report(0, 0, "the file is empty: expected at least a header");
        } else if found.len() < MAGIC.len() && MAGIC.starts_with(&found) {
            self.report(0, found.len() as u64, "the file is cut off in its first bytes");
            self.at = found.len() as u64;
        } else if let Some(error) = not_an_mcap_file(path, &found) {
            return Err(error);
        } else if self.walk.is_header(len)? {
            let found = hex(&found);
            self.report(0, len, format!("expected {}, found {found}", hex(&MAGIC)));
            self.at = len;
        } else {
            return Err(Error::refused(format!(
                "{}: not an MCAP file: expected {}, found {}",
                path.display(),
                hex(&MAGIC),
                hex(&found)
            )));
        }
        Ok(())
    }

    fn report(&mut self, at: u64, len: u64, reason: impl Into<String>) {
        // The rest of it would have come.
        if self.walk.was_stopped() && at.saturating_add(len) >= self.walk.end() {
            return;
        }
        let bytes = self.walk.kept_bytes(at, len);
        self.context.damage.report(Damage { bytes, ..Damage::new(&self.input, at, len, reason) });
    }

    /// The next record that can be believed, from `from` on.
    fn search(&mut self, from: u64) -> Result<u64, Error> {
        let table = &self.table;
        let has_channel: &dyn Fn(u16) -> bool = &|id| table.has_channel(id);
        let is_channel = (!self.is_chunked).then_some(has_channel);
        self.walk.search(from, is_channel)
    }

    /// Reports damage at `at` up to the next record that is found from `from` on.
    fn recover(&mut self, at: u64, from: u64, reason: &str) -> Result<(), Error> {
        let next = self.search(from)?.max(at);
        self.report(at, next - at, reason);
        self.at = next;
        Ok(())
    }

    /// Whether a slow stream has not brought what comes next, for which events should not wait.
    fn would_wait(&mut self) -> Result<bool, Error> {
        let is_between = self.chunk.is_none() && !self.batcher.is_empty();
        Ok(is_between && !self.walk.is_end_known() && self.walk.would_wait(self.at)?)
    }

    /// Reads what is at the current position. Returns whether there may be more.
    fn step(&mut self) -> Result<bool, Error> {
        let at = self.at;
        if self.end.is_some_and(|end| at >= end) {
            return Ok(false);
        }
        if self.walk.is_anchor(at) {
            self.table.start_chunk();
        }
        self.walk.forget(at);
        let is_start = std::mem::take(&mut self.is_start);
        match self.walk.place(at)? {
            FoundAt::End => return self.pass_gap(at),
            FoundAt::Magic => self.pass_magic(at),
            FoundAt::Record(head) => {
                (self.is_after_footer, self.has_ended) = (false, false);
                self.is_chunked |= head.opcode == op::CHUNK;
                match self.suspicion(at, head, is_start)? {
                    Some(reason) => self.recover(at, at + 1, &reason)?,
                    None => self.read_record(at, head)?,
                }
            }
            FoundAt::Cut(head) => {
                self.is_chunked |= head.opcode == op::CHUNK;
                self.has_ended = true;
                self.read_cut(at, head)?;
            }
            FoundAt::Garbage(reason) => self.recover(at, at + 1, &reason)?,
        }
        Ok(true)
    }

    /// Goes on behind damage of compressed data that ended the file at `at`, if anything follows
    /// that can be read. How much is missing is unknown.
    fn pass_gap(&mut self, at: u64) -> Result<bool, Error> {
        let Some(reason) = self.walk.decompression_error().map(str::to_owned) else {
            if !self.has_ended && !self.walk.was_stopped() {
                self.context.losses.note(format!("{}: {NO_FOOTER}", self.input), 0);
            }
            return Ok(false);
        };
        // Whatever follows the messages of a file may belong to another one.
        if self.is_summary {
            self.start_file();
        }
        (self.has_gap, self.is_after_footer, self.follows_chunk) = (true, false, false);
        let (mut next, mut is_found) = (at, false);
        while !is_found && let Some(from) = self.walk.resume()? {
            self.at = self.search(from)?;
            is_found = self.at < self.walk.end();
            if self.at > from || is_found {
                next = self.at;
            }
        }
        // Of what follows in a stopped stream, the rest would have come. The gap would be there.
        let end = if is_found || !self.walk.was_stopped() { next } else { at };
        self.report(at, end - at, reason);
        Ok(is_found)
    }

    /// Forgets what was read, which is of another file.
    fn start_file(&mut self) {
        (self.is_summary, self.is_start, self.is_chunked) = (false, true, false);
        self.table.start_file();
    }

    /// Passes the end of a file, or the start of another one that was appended.
    fn pass_magic(&mut self, at: u64) {
        self.has_ended = std::mem::take(&mut self.is_after_footer);
        if !self.has_ended {
            self.start_file();
        }
        self.at = at + MAGIC.len() as u64;
    }

    /// Why what looks like a record cannot be one: it is not needed, so nobody would miss it.
    fn suspicion(&mut self, at: u64, head: Head, is_start: bool) -> Result<Option<String>, Error> {
        let name = record_name(head.opcode);
        let reason = match head.opcode {
            op::HEADER if !is_start => format!("a {name} record is not at the start of a file"),
            op::MESSAGE if self.follows_chunk => {
                let content = self.walk.read(at + HEAD, head.len.min(skip::MAX_INDEXES))?;
                if !looks_like_message_index(&content, head.len) {
                    return Ok(None);
                }
                format!("a {name} record behind a chunk looks like a MessageIndex record")
            }
            op::CHUNK | op::MESSAGE | op::SCHEMA | op::CHANNEL | op::DATA_END => return Ok(None),
            _ if self.is_summary => return Ok(None),
            opcode => {
                let content = self.walk.read(at + HEAD, head.len.min(CHUNK_HEAD as u64))?;
                let looks_like = |kind: &str| {
                    format!("a record of the unknown kind {opcode:02x} looks like a {kind}")
                };
                if min_len(opcode).is_none() {
                    if self.batcher.looks_like_message(&self.table, &content) {
                        looks_like("message")
                    } else if chunk::looks_like_chunk(&content, head.len) {
                        looks_like("chunk")
                    } else {
                        return Ok(None);
                    }
                } else if self.has_gap || refers_back(opcode, &content, at) {
                    return Ok(None);
                } else {
                    format!("a {name} record names bytes that do not precede it")
                }
            }
        };
        Ok(Some(reason))
    }

    fn read_record(&mut self, at: u64, head: Head) -> Result<(), Error> {
        let end = at.saturating_add(head.record_len());
        self.follows_chunk = matches!(head.opcode, op::CHUNK | op::MESSAGE_INDEX);
        if let (op::METADATA | op::ATTACHMENT, Some(count)) = (head.opcode, &mut self.uncopied) {
            *count += 1;
        }
        match head.opcode {
            op::CHUNK => {
                self.is_summary = false;
                return self.read_chunk(at, head);
            }
            op::DATA_END
            | op::CHUNK_INDEX
            | op::ATTACHMENT_INDEX
            | op::STATISTICS
            | op::METADATA_INDEX
            | op::SUMMARY_OFFSET => self.is_summary = true,
            op::FOOTER => (self.is_summary, self.is_after_footer) = (true, true),
            op::HEADER => {}
            op::MESSAGE_INDEX | op::METADATA => {
                self.at = self.actual_end(at, head)?;
                return Ok(());
            }
            op::SCHEMA | op::CHANNEL if self.is_summary => self.compare_summary(at, head)?,
            // Nothing else tells whether these records are right.
            _ if !self.walk.goes_on(end)? => {
                let name = record_name(head.opcode);
                let reason = format!("no record follows a {name} record of {} bytes", head.len);
                return self.recover(at, at + 1, &reason);
            }
            op::MESSAGE | op::SCHEMA | op::CHANNEL => self.read_content(at, head)?,
            _ => {
                let end = self.actual_end(at, head)?;
                let passed = self.walk.skip(at, end)?;
                if passed < end {
                    let name = record_name(head.opcode);
                    self.report(
                        at,
                        passed.saturating_sub(at),
                        format!("a {name} record is cut off"),
                    );
                }
                self.at = passed;
                return Ok(());
            }
        }
        self.at = end;
        Ok(())
    }

    /// Reads a message or a declaration outside of chunks.
    fn read_content(&mut self, at: u64, head: Head) -> Result<(), Error> {
        self.is_summary = false;
        let most = self.max_chunk;
        let read = if head.len > most.0 {
            Err(format!(
                "a record of {} bytes exceeds `max_chunk` ({most}); raise that if the length is \
                 right",
                head.len
            ))
        } else {
            let (block, start) = self.walk.block_with(at, head.record_len())?;
            let (start, len) = (start + HEAD as usize, head.len as usize);
            let content = block.get(start..start.saturating_add(len)).unwrap_or_default();
            match head.opcode {
                op::MESSAGE => self.batcher.add(&mut self.table, &block, start, len)?,
                op::SCHEMA => self.table.declare_schema(content),
                _ => self.table.declare_channel(content),
            }
        };
        if let Err(reason) = read {
            self.report(at, head.record_len(), reason);
        }
        Ok(())
    }

    /// Compares a declaration in the summary with what was declared, if data is missing before it:
    /// where one file ends and another starts may be in there.
    fn compare_summary(&mut self, at: u64, head: Head) -> Result<(), Error> {
        if !self.has_gap || head.len > self.max_chunk.0 {
            return Ok(());
        }
        let content = self.walk.view(at, head.record_len())?.split_off(HEAD as usize);
        if let Err(reason) = self.table.compare_summary(head.opcode, &content) {
            self.report(at, head.record_len(), reason);
        }
        Ok(())
    }

    /// Where a record ends, which its length may say wrongly.
    fn actual_end(&mut self, at: u64, head: Head) -> Result<u64, Error> {
        let end = self.walk.end_of(at, head)?;
        if end != at.saturating_add(head.record_len()) {
            let (name, right) = (record_name(head.opcode), end - at - HEAD);
            let reason = format!("the length of a {name} record, {}, should be {right}", head.len);
            self.report(at, HEAD, reason);
        }
        Ok(end)
    }

    /// The longest chunk that is read, compressed: what cannot be compressed becomes longer.
    fn longest_chunk(&self) -> u64 {
        self.max_chunk.0.saturating_add(self.max_chunk.0 / 8).saturating_add(1 << 16)
    }

    fn read_chunk(&mut self, at: u64, head: Head) -> Result<(), Error> {
        let len = head.record_len();
        let end = at.saturating_add(len);
        if self.may_skip(at, head)? {
            self.at = end;
            return Ok(());
        }
        if head.len > self.longest_chunk() {
            let max = self.max_chunk;
            let reason = format!(
                "a Chunk record of {} bytes exceeds `max_chunk` ({max}); raise that if the length \
                 is right",
                head.len
            );
            self.report(at, len, reason);
            self.at = end;
            return Ok(());
        }
        let content = self.walk.view(at, len)?.split_off(HEAD as usize);
        let Some(chunk) = ChunkHead::parse(&content) else {
            return self.recover(at, at + 1, "the head of a chunk cannot be read");
        };
        let (from, to) = (chunk.records_at as usize, chunk.content_len() as usize);
        let packed = content.slice(from.min(content.len())..to.min(content.len()));
        let goes_on = self.walk.goes_on(end)?;
        match chunk::unpack(&chunk, packed, &self.context.blocks, self.max_chunk) {
            Ok(plain) => {
                let is_plain = chunk.compression.is_empty();
                let records = is_plain.then_some(at + HEAD + chunk.records_at);
                self.at = self.actual_end(at, head)?;
                let len = self.at - at;
                self.chunk = Some((Unit::new(plain), ChunkPlace { at, len, records }));
                Ok(())
            }
            Err(reason) if goes_on => {
                self.report(at, len, format!("a chunk cannot be read: {reason}"));
                self.at = end;
                Ok(())
            }
            Err(reason) => self.recover(at, at + 1, &format!("a chunk cannot be read: {reason}")),
        }
    }

    /// Reads what is there of a record that the end of the file cuts off, unless its length is
    /// wrong.
    fn read_cut(&mut self, at: u64, head: Head) -> Result<(), Error> {
        let (end, name) = (self.walk.end(), record_name(head.opcode));
        let there = end.saturating_sub(at);
        let is_chunk = head.opcode == op::CHUNK && self.walk.is_end_known();
        let content = match is_chunk && there <= self.longest_chunk() {
            true => self.walk.view(at, there)?.slice(HEAD as usize..),
            false => Bytes::new(),
        };
        let next = self.search(at + 1)?.max(at);
        let reason = match head.is_unfinished_chunk() {
            true => format!("a {name} record is not finished"),
            false => {
                let all = head.record_len();
                format!("a {name} record is cut off: {there} of its {all} bytes are there")
            }
        };
        self.at = next;
        // Something behind it shows that its length is wrong.
        let chunk = ChunkHead::parse(&content).filter(|_| next >= end);
        let Some(chunk) = chunk else {
            self.report(at, next - at, reason);
            return Ok(());
        };
        let (blocks, max) = (&self.context.blocks, self.max_chunk);
        let cut = CutChunk::new((at, head), (&chunk, &content), (blocks, max), reason);
        let place = ChunkPlace { at, len: there, records: None };
        self.chunk = Some((Unit::unverified(cut), place));
        Ok(())
    }

    /// Whether nothing in the chunk at `at` is needed, by its index, if that proves right.
    fn may_skip(&mut self, at: u64, head: Head) -> Result<bool, Error> {
        let query = &self.context.query;
        let Some(index) = self.index.as_ref().filter(|index| index.sure_declarations().is_some())
        else {
            return Ok(false);
        };
        let entry = index.entry(at).filter(|_| self.walk.is_anchor(at) && !query.is_all());
        let Some(entry) = entry.filter(|entry| entry.chunk_len == head.record_len()) else {
            return Ok(false);
        };
        skip::needs_nothing(&mut self.walk, entry, &mut self.table, query)
    }

    /// Reports what was wrong in a chunk.
    fn report_chunk(&mut self, unit: Unit, place: ChunkPlace) {
        if let Some((from, reason)) = unit.cut_off() {
            let end = place.at + place.len;
            return self.report(from, end.saturating_sub(from), reason);
        }
        let (problems, more) = unit.problems();
        if let Some(records) = place.records {
            let last = problems.len().saturating_sub(1);
            for (number, problem) in problems.into_iter().enumerate() {
                let others = if number == last { more } else { 0 };
                let reason = and_others(problem.reason, others);
                self.report(records + problem.at, problem.len, reason);
            }
            return;
        }
        let count = problems.len() as u64 + more;
        if let Some(first) = problems.into_iter().next() {
            let reason = and_others(format!("in a chunk: {}", first.reason), count - 1);
            // What is wrong with its head may have been reported.
            self.report(place.at + HEAD, place.len - HEAD, reason);
        }
    }
}

fn and_others(reason: String, others: u64) -> String {
    if others == 0 { reason } else { format!("{reason} (and {others} more)") }
}

/// Bytes as hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

impl Reader for RecordReader {
    fn next_batch(&mut self) -> Result<Option<Batch>, Error> {
        while !self.walk.is_cancelled() {
            let mut has_more = true;
            match &mut self.chunk {
                Some((unit, _)) => {
                    if unit.read(&mut self.batcher, &mut self.table)?
                        && let Some((unit, place)) = self.chunk.take()
                    {
                        self.report_chunk(unit, place);
                    }
                }
                None => has_more = self.step()?,
            }
            if (self.batcher.is_full() || has_more && self.would_wait()?)
                && let Some(batch) = self.batcher.take()
            {
                return Ok(Some(batch));
            }
            // Without events between it, damage may be any number of ranges.
            if has_more && self.context.damage.is_full() {
                return Ok(Some(self.batcher.take().unwrap_or_default()));
            }
            if !has_more {
                let published = std::mem::take(&mut self.batcher.published);
                let uncopied = self.uncopied.take().unwrap_or_default();
                for (note, count) in [(PUBLISHED, published), (UNCOPIED, uncopied)] {
                    if count > 0 {
                        self.context.losses.note(note, count);
                    }
                }
                return Ok(self.batcher.take());
            }
        }
        Ok(None)
    }

    fn seam(&self) -> Seam {
        Seam { ended: self.seam.ended.or(Some(self.at)), ..self.seam }
    }
}
