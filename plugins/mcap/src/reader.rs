//! Reads the events of a split: walks from record to record, and reports what is damaged.

#![warn(clippy::indexing_slicing)]

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use sluice_io::escape::escaped_path;
use sluice_io::files::{InputContent, InputFiles};
use sluice_kit::InputFaults;
use sluice_model::options::ByteSize;
use sluice_model::{Batch, Damage, Error, ReadContext, Reader, Seam, Split};

use crate::chunk;
use crate::index::FileIndex;
use crate::skip;
use crate::summary::Summary;
use crate::table::{ChannelTable, Declarations};
use crate::unit::{Batcher, Unit, looks_like_message, may_be_message};
use crate::walk::{FoundAt, Walk, refers_back};
use crate::wire::{
    CHUNK_HEAD, HEAD, Head, looks_like_channel, looks_like_message_index, min_len, op, record_name,
};

mod boundaries;
mod chunks;
mod missing_chunks;
mod offsets;
mod recount;
mod stream_checks;
mod uncopied;

use chunks::ChunkPlace;
use missing_chunks::MissingChunks;
use stream_checks::StreamChecks;
use uncopied::Uncopied;

/// The note about what events cannot hold.
const PUBLISHED: &str = "times of publishing that differ from times of logging are not kept";

/// The longest profile that is noted.
const MAX_PROFILE: u64 = 1 << 10;

/// Reads one split.
pub(crate) struct RecordReader {
    walk: Walk,
    table: ChannelTable,
    /// What the summary declares that may be wrong or incomplete, up to the position from which on
    /// it counts.
    hints: Option<(u64, Arc<Declarations>)>,
    batcher: Batcher,
    context: ReadContext,
    input: Arc<str>,
    index: Option<Arc<FileIndex>>,
    max_chunk: ByteSize,
    at: u64,
    /// The end of the split.
    end: Option<u64>,
    /// How long the file is at least, unless it becomes shorter; 0 if that is unknown.
    expected: u64,
    /// The chunk that is being read.
    chunk: Option<(Unit, ChunkPlace)>,
    /// Whether what follows describes the file, and is not needed.
    is_summary: bool,
    /// Whether damage in a summary precedes: declarations may be the rest of it, until a message
    /// follows.
    may_be_summary: bool,
    /// What is wrong with the first such declaration that is wrong: nothing, if it is of a summary.
    held_report: Option<(u64, u64, String)>,
    /// Whether the footer was the last record.
    is_after_footer: bool,
    /// Whether nothing is known to be missing at the present end: the file is complete, or it is
    /// reported to be cut.
    has_ended: bool,
    /// Whether the file has chunks.
    is_chunked: bool,
    /// Where the summary begins, behind the record DataEnd, if that was met.
    summary_at: Option<u64>,
    /// Where it begins at the earliest: the start of the file, or damage or a footer before it.
    summary_from: u64,
    /// The part of a summary that was walked through, and whether that is wrong by its checksum.
    walked_summary: Option<(Range<u64>, bool)>,
    /// Whether the last record was a chunk, or one of its message indexes.
    follows_chunk: bool,
    /// Whether the header of the file comes next.
    is_start: bool,
    /// Whether bytes are missing, so that positions are not those that records name.
    has_gap: bool,
    uncopied: Uncopied,
    /// What is wrong with an input without an index besides damage, if anybody wants to know.
    faults: Option<Arc<InputFaults>>,
    /// What is verified of it as a whole, until damage is found.
    checks: Option<StreamChecks>,
    /// The chunks that may be missing, until damage is found.
    missing: Option<MissingChunks>,
    seam: Seam,
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
        // Of a file that is decompressed, the decompressed length is unknown.
        let opened = log.len().filter(|_| log.is_seekable());
        let noted = context.run.shared::<InputFiles>().noted_len(path);
        let expected = opened.map_or(0, |opened| split.end.or(noted).unwrap_or(opened));
        let anchors = index.as_ref().map(|index| Arc::clone(&index.anchors)).unwrap_or_default();
        let tools = (context.blocks.clone(), context.run.clone());
        let declarations = index.as_ref().and_then(|index| index.sure_declarations().cloned());
        let hints = index.as_ref().and_then(|index| index.hints());
        let hints = hints.map(|(from, hints)| (from, Arc::clone(hints)));
        let is_chunked = !anchors.is_empty();
        let uncopied = Uncopied::new(path, split, index.as_deref(), context);
        let missing = index.as_ref().and_then(|index| MissingChunks::new(index, split, context));
        if let Some(summary) = index.as_ref().and_then(|index| index.summary())
            && split.start == 0
        {
            note_silent(summary, context);
        }
        let faults = Some(context.run.shared::<InputFaults>())
            .filter(|faults| index.is_none() && faults.is_collecting());
        let checks = faults.clone().map(StreamChecks::new);
        let mut reader = Self {
            walk: Walk::new(log, anchors, max_chunk, tools)
                .needed_to(split.end)
                .keeping_bytes(context.damage.keeps_bytes()),
            table: ChannelTable::new(context, declarations),
            hints,
            batcher: Batcher::new(context.query.window()),
            context: context.clone(),
            input: escaped_path(path).into(),
            index,
            max_chunk,
            at: split.start,
            end: split.end,
            expected,
            chunk: None,
            is_summary: false,
            may_be_summary: false,
            held_report: None,
            is_after_footer: false,
            has_ended: false,
            is_chunked,
            summary_at: None,
            summary_from: 0,
            walked_summary: None,
            follows_chunk: false,
            is_start: split.start == 0,
            has_gap: false,
            uncopied,
            faults,
            checks,
            missing,
            seam: Seam { began: Some(split.start), ended: split.end },
        };
        if split.start == 0 {
            reader.read_magic(path)?;
        }
        Ok(reader)
    }

    fn report(&mut self, at: u64, len: u64, reason: impl Into<String>) {
        // The rest of it would have come.
        if self.walk.was_stopped() && at.saturating_add(len) >= self.walk.end() {
            return;
        }
        // What was held precedes this. If the rest of a summary followed, it is of that.
        if let Some((at, len, reason)) = self.held_report.take()
            && !self.is_summary
        {
            self.report(at, len, reason);
        }
        (self.checks, self.missing) = (None, None);
        let bytes = self.walk.kept_bytes(at, len);
        self.context.damage.report(Damage { bytes, ..Damage::new(&self.input, at, len, reason) });
    }

    /// The next record that can be believed, from `from` on.
    fn search(&mut self, from: u64) -> Result<u64, Error> {
        let (table, hints) = (&self.table, &self.hints);
        // What is found may be where they count.
        let is_hinted =
            |id| hints.as_ref().is_some_and(|(_, hints)| hints.channels.contains_key(&id));
        let has_channel: &dyn Fn(u16) -> bool = &|id| table.has_channel(id) || is_hinted(id);
        let is_channel = (!self.is_chunked).then_some(has_channel);
        self.walk.search(from, is_channel)
    }

    /// Reports damage at `at` up to the next record that is found from `from` on.
    fn recover(&mut self, at: u64, from: u64, reason: &str) -> Result<(), Error> {
        let next = self.search(from)?.max(at);
        self.report(at, next - at, reason);
        self.doubt_channels();
        self.at = next;
        Ok(())
    }

    /// Reports the record at `at`, which is not what it says. If one of an unknown kind leads to
    /// another record, only its kind is wrong.
    fn pass_suspicious(&mut self, at: u64, head: Head, reason: &str) -> Result<(), Error> {
        let end = at.saturating_add(head.record_len());
        let is_whole = self.walk.goes_on(end)? && self.walk.is_whole(at, head)?;
        if min_len(head.opcode).is_some() || !is_whole {
            return self.recover(at, at + 1, reason);
        }
        self.report(at, end - at, reason);
        self.doubt_channels();
        self.at = end;
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
            let entry = self.index.as_ref().and_then(|index| index.entry(at));
            self.batcher.start_chunk(entry.map(|entry| entry.start_time));
        }
        if let Some((_, hints)) = self.hints.take_if(|(from, _)| *from <= at) {
            self.table.add_hints(hints);
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
                    Some(reason) => self.pass_suspicious(at, head, &reason)?,
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
                    if self.index.as_ref().is_some_and(|index| index.lists_chunk(at)) {
                        let kind = format!("a record of the unknown kind {opcode:02x}");
                        return Ok(Some(format!("{kind} is where the index has a chunk")));
                    }
                    let times = self.batcher.likely_times(&content);
                    if may_be_message(opcode) && looks_like_message(&self.table, &content, &times) {
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
        let end = self.walk.end_of(at, head)?;
        if !self.walk.is_whole(at, head)? {
            let name = record_name(head.opcode);
            let reason =
                format!("a record is in the head of a {name} record of {} bytes", head.len);
            return self.recover(at, at + 1, &reason);
        }
        let right_head = Head { len: end.saturating_sub(at + HEAD), ..head };
        self.follows_chunk = matches!(head.opcode, op::CHUNK | op::MESSAGE_INDEX);
        self.uncopied.count(right_head);
        if head.opcode != op::ATTACHMENT {
            self.check_record(at, right_head)?;
        }
        match head.opcode {
            op::CHUNK => {
                self.leave_summary();
                return self.read_chunk(at, head, end);
            }
            op::DATA_END => (self.is_summary, self.summary_at) = (true, Some(end)),
            op::CHUNK_INDEX
            | op::ATTACHMENT_INDEX
            | op::STATISTICS
            | op::METADATA_INDEX
            | op::SUMMARY_OFFSET => self.is_summary = true,
            op::FOOTER => {
                (self.is_summary, self.is_after_footer) = (true, true);
                (self.summary_at, self.summary_from) = (None, end);
            }
            op::HEADER => {
                let content = self.walk.read(at + HEAD, head.len.min(MAX_PROFILE))?;
                self.uncopied.note_header(&content);
            }
            op::MESSAGE_INDEX | op::METADATA => self.report_length(at, head, end),
            op::SCHEMA | op::CHANNEL if self.is_summary => self.compare_summary(at, head)?,
            // Nothing else tells whether these records are right.
            _ if !self.walk.goes_on(end)? => {
                let name = record_name(head.opcode);
                let reason = format!("no record follows a {name} record of {} bytes", head.len);
                return self.recover(at, at + 1, &reason);
            }
            op::MESSAGE | op::SCHEMA | op::CHANNEL => return self.read_content(at, head),
            _ => {
                self.report_length(at, head, end);
                let passed = match head.opcode {
                    op::ATTACHMENT => self.pass_record(at, right_head)?,
                    _ => self.walk.skip(at, end)?,
                };
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
        if head.opcode == op::MESSAGE {
            self.leave_summary();
        }
        self.at = at.saturating_add(head.record_len());
        let is_too_long = head.len > self.max_chunk.0;
        let read = if is_too_long {
            Err(self.too_long(head))
        } else {
            let (block, start) = self.walk.block_with(at, head.record_len())?;
            let (start, len) = (start + HEAD as usize, head.len as usize);
            let content = block.get(start..start.saturating_add(len)).unwrap_or_default();
            match head.opcode {
                op::MESSAGE if looks_like_channel(content) => {
                    Err("a Message record looks like a Channel record".to_owned())
                }
                op::MESSAGE => self.batcher.add(&mut self.table, &block, start, len)?,
                opcode => self.table.declare(opcode, content),
            }
        };
        match read {
            Err(reason) if self.may_be_summary => {
                self.held_report.get_or_insert((at, head.record_len(), reason));
            }
            Err(reason) if !is_too_long && self.walk.hides_record(at)? => {
                return self.recover(at, at + 1, &reason);
            }
            Err(reason) => self.report(at, head.record_len(), reason),
            Ok(()) => {}
        }
        Ok(())
    }

    /// The content of the record of `len` bytes at `at`; less of it if the file became shorter.
    fn content(&mut self, at: u64, len: u64) -> Result<Bytes, Error> {
        let record = self.walk.view(at, len)?;
        Ok(record.slice(record.len().min(HEAD as usize)..))
    }

    /// Why a record is not read.
    fn too_long(&self, head: Head) -> String {
        let (name, len, max) = (record_name(head.opcode), head.record_len(), self.max_chunk);
        format!(
            "a {name} record of {len} bytes exceeds `max_chunk` ({max}); raise that if the length \
             is right"
        )
    }

    /// Reports the length of a record that ends at `end`, if it is wrong.
    fn report_length(&mut self, at: u64, head: Head, end: u64) {
        if end != at.saturating_add(head.record_len()) {
            let (name, right) = (record_name(head.opcode), end - at - HEAD);
            let reason = format!("the length of a {name} record, {}, should be {right}", head.len);
            self.report(at, HEAD, reason);
        }
    }
}

/// Asks for the channels without messages: they exist.
fn note_silent(summary: &Summary, context: &ReadContext) {
    for channel in summary.silent_channels() {
        let channel = channel.to_channel(None, &context.source);
        context.query.channels.may_want(channel.name.text());
    }
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
            if self.chunk.is_none()
                && let Some(reason) = self.table.take_contradiction()
            {
                self.report(self.at, 0, reason);
            }
            if let Some(topic) = self.batcher.compressed.take() {
                return Err(Error::refused(format!(
                    "{}: messages of {topic} are compressed one by one, which is not supported; \
                     convert the bag with ros2 bag convert",
                    self.input
                )));
            }
            let is_full =
                self.batcher.is_full() || self.chunk.is_none() && self.batcher.keeps_enough();
            if (is_full || has_more && self.would_wait()?)
                && let Some(batch) = self.batcher.take()
            {
                return Ok(Some(batch));
            }
            // Without events between it, damage may be any number of ranges.
            if has_more && self.context.damage.is_full() {
                return Ok(Some(self.batcher.take().unwrap_or_default()));
            }
            if !has_more {
                self.report_missing_chunks();
                self.note_unsure_messages();
                let published = std::mem::take(&mut self.batcher.published);
                let published = (published > 0).then(|| (PUBLISHED.to_owned(), published));
                let profile = self.uncopied.take_profile_note();
                let uncopied = self.uncopied.take_note(&self.input);
                for (note, count) in published.into_iter().chain(profile).chain(uncopied) {
                    self.context.losses.note(note, count);
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
