//! Reads the events of a split: walks from record to record, and reports what is damaged.

#![warn(clippy::indexing_slicing)]

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use sluice_io::files::InputContent;
use sluice_model::options::ByteSize;
use sluice_model::{
    Batch, BatchBuilder, Damage, Error, PayloadOffset, ReadContext, Reader, Seam, Split, SplitStart,
};

use super::chunk::{Unpacked, unpack};
use super::connections::{BagChannels, Connections, MAX_DESCRIPTION};
use super::index::BagIndex;
use super::skip;
use super::window::{BagWindow, FoundAt};
use super::wire::{
    BagCompression, MAGIC, Record, RecordHeader, is_chain, max_packed, whole_record,
};

/// The most events of a batch.
const BATCH_EVENTS: usize = 4096;
/// The most bytes of messages outside of chunks in a batch.
const BATCH_BYTES: usize = 1 << 20;

/// Reads one split.
pub(crate) struct BagReader {
    window: BagWindow,
    context: ReadContext,
    input: Arc<str>,
    index: Option<Arc<BagIndex>>,
    max_chunk: ByteSize,
    connections: Connections,
    channels: BagChannels,
    at: u64,
    /// The end of the split.
    end: Option<u64>,
    /// Where the head says that the index begins, and how many chunks are before it; 0 if it does
    /// not.
    index_at: u64,
    chunks_expected: u32,
    chunks_found: u32,
    /// Whether chunks are described: no message of this bag follows.
    is_summary: bool,
    /// The end of the last damage.
    damaged_to: u64,
    /// The number of the next message.
    number: i64,
    /// The number of the first message behind the last chunk, by the records that index it: without
    /// an index of the bag, only they tell how many a damaged chunk had.
    indexed: i64,
    unit: Option<Unit>,
    /// Messages outside of chunks.
    loose: BatchBuilder,
    loose_bytes: usize,
    seam: Seam,
}

/// The records of a chunk, and how far they are read.
struct Unit {
    plain: Bytes,
    pos: usize,
    /// The chunk in the bag.
    at: u64,
    len: u64,
    /// Where its records are in the bag, if they are not compressed.
    plain_at: Option<u64>,
    /// Messages of connections that are not declared.
    undeclared: u64,
    /// What is wrong with it.
    fault: Option<String>,
}

impl BagReader {
    pub(crate) fn open(
        path: &Path,
        (split, entry): (&Split, SplitStart),
        index: Option<Arc<BagIndex>>,
        max_chunk: ByteSize,
        context: &ReadContext,
    ) -> Result<Self, Error> {
        let log = context.open_log(path, InputContent::Any)?;
        let max_record = max_packed(max_chunk);
        let at = match entry {
            SplitStart::At(at) => at,
            SplitStart::Search => split.start,
        };
        let mut reader = Self {
            window: BagWindow::new(log, max_record).keeping_bytes(context.damage.keeps_bytes()),
            context: context.clone(),
            input: path.to_string_lossy().into(),
            index: index.filter(|index| index.usable().is_some()),
            max_chunk,
            connections: Connections::default(),
            channels: BagChannels::default(),
            at,
            end: split.end,
            index_at: 0,
            chunks_expected: 0,
            chunks_found: 0,
            is_summary: false,
            damaged_to: 0,
            number: 0,
            indexed: 0,
            unit: None,
            loose: BatchBuilder::default(),
            loose_bytes: 0,
            seam: Seam { began: Some(at), ended: None },
        };
        if at == 0 {
            reader.check_start(path)?;
        }
        Ok(reader)
    }

    /// `Err` if the file has another format.
    fn check_start(&mut self, path: &Path) -> Result<(), Error> {
        let mut head = [0; MAGIC.len()];
        let read = self.window.read(0, &mut head)?;
        let head = head.get(..read).unwrap_or_default();
        // Damage in the first bytes of compressed data speaks for itself.
        if head == MAGIC || self.window.has_damaged_start()? {
            return Ok(());
        }
        if MAGIC.starts_with(head) {
            let reason = match read {
                0 => "the file is empty: expected at least a header",
                _ => "the file is cut off in its first bytes",
            };
            self.report(0, read as u64, reason);
            self.at = read as u64;
            return Ok(());
        }
        let path = path.display();
        let text = printable(head);
        Err(Error::refused(match head.starts_with(b"#ROS") {
            true => format!(
                "{path}: expected a bag of version 2.0, found `{text}`; `rosbag fix` and \
                 `rosbag migrate` convert older ones"
            ),
            false => format!("{path}: not a bag: expected `#ROSBAG V2.0`, found `{text}`"),
        }))
    }

    fn report(&mut self, at: u64, len: u64, reason: impl Into<String>) {
        let bytes = self.window.kept_bytes(at, len);
        self.damaged_to = at.saturating_add(len);
        self.context.damage.report(Damage { bytes, ..Damage::new(&self.input, at, len, reason) });
    }

    /// Reports damage at `at` up to the next record that is found from `from` on.
    fn recover(&mut self, at: u64, from: u64, reason: &str) -> Result<(), Error> {
        let next = self.window.search(from)?.max(from);
        // The rest of it would have come.
        if !self.window.was_stopped() || self.window.reaches(next.saturating_add(1))? {
            self.report(at, next - at, reason);
        }
        self.at = next;
        Ok(())
    }

    /// Reads what is at the current position. Returns whether there may be more.
    fn step(&mut self) -> Result<bool, Error> {
        let at = self.at;
        if self.end.is_some_and(|end| at >= end) {
            return Ok(false);
        }
        self.window.forget(at);
        let record = match self.window.place(at)? {
            FoundAt::End => {
                if let Some(reason) = self.window.decompression_error().map(str::to_owned) {
                    return self.pass_gap(at, reason);
                }
                if self.is_cut_off(at) {
                    let (expected, found) = (self.chunks_expected, self.chunks_found);
                    let reason = format!("the bag is cut off: it has {found} of {expected} chunks");
                    self.report(at, 0, reason);
                }
                return Ok(false);
            }
            FoundAt::Magic => {
                // Bags may have been appended to each other.
                if at > 0 {
                    self.start_bag();
                }
                self.at = at + MAGIC.len() as u64;
                return Ok(true);
            }
            FoundAt::Garbage(reason) => {
                self.recover(at, at + 1, reason)?;
                return Ok(true);
            }
            FoundAt::Cut => {
                self.recover(at, at + 1, "the bag ends in the header of a record")?;
                return Ok(true);
            }
            FoundAt::Record(record) => record,
        };
        if let RecordHeader::Chunk { compression, plain_len } = record.header {
            self.chunks_found = self.chunks_found.saturating_add(1);
            self.is_summary = false;
            self.read_chunk(&record, compression, plain_len)?;
        } else {
            self.read_record(record)?;
        }
        Ok(true)
    }

    /// Forgets what was read, which is of another bag.
    fn start_bag(&mut self) {
        (self.connections, self.channels) = Default::default();
        (self.index_at, self.chunks_expected, self.chunks_found) = (0, 0, 0);
        self.is_summary = false;
    }

    /// Goes on behind damage of compressed data that ended the bag at `at`, if anything follows
    /// that can be read. How much is missing is unknown.
    fn pass_gap(&mut self, at: u64, reason: String) -> Result<bool, Error> {
        let (mut next, mut is_found) = (at, false);
        while !is_found && let Some(from) = self.window.resume()? {
            self.at = self.window.search(from)?;
            is_found = self.window.reaches(self.at.saturating_add(1))?;
            if self.at > from || is_found {
                next = self.at;
            }
        }
        self.report(at, next - at, reason);
        // Whatever follows the messages of a bag may belong to another one.
        if self.is_summary {
            self.start_bag();
        }
        // Chunks may be missing, and positions are not those that the head says.
        self.chunks_expected = 0;
        Ok(is_found)
    }

    /// Whether the bag ends at `at`, between two chunks that its head says it has. Not if there is
    /// damage, which says so.
    fn is_cut_off(&self, at: u64) -> bool {
        let is_short = at < self.index_at && self.chunks_found < self.chunks_expected;
        is_short && self.damaged_to < at && !self.window.was_stopped()
    }

    /// Reads a record that is not a chunk.
    fn read_record(&mut self, record: Record) -> Result<(), Error> {
        let (at, next) = (self.at, self.at + record.len());
        let is_content =
            matches!(record.header, RecordHeader::Message { .. } | RecordHeader::Connection { .. });
        let max = if is_content { self.max_chunk.0 } else { max_packed(self.max_chunk) };
        if u64::from(record.data_len) > max {
            let reason = format!("a record exceeds `max_chunk` ({})", self.max_chunk);
            return self.recover(at, at + 1, &reason);
        }
        if !self.window.reaches(next)? {
            return self.recover(at, at + 1, "the bag ends in a record");
        }
        // Nothing else tells whether its data are right.
        if is_content && !self.window.goes_on(next)? {
            return self.recover(at, at + 1, "no record follows a message or connection");
        }
        self.at = next;
        let declared = match record.header {
            RecordHeader::Message { connection, time } => {
                let data = self.data(at, &record)?;
                return self.add_loose(at, connection, time, data);
            }
            RecordHeader::Bag { index_at, chunks, .. } => {
                (self.index_at, self.chunks_expected) = (index_at, chunks);
                Ok(())
            }
            RecordHeader::Index { messages, .. } if self.index.is_none() => {
                self.indexed = self.indexed.saturating_add(messages.into());
                self.number = self.number.max(self.indexed);
                Ok(())
            }
            RecordHeader::Connection { .. } if record.data_len > MAX_DESCRIPTION => {
                Err("the description of a connection is too long".to_owned())
            }
            RecordHeader::Connection { id, ref topic } => {
                let data = self.data(at, &record)?;
                self.declare(id, topic.clone(), &data)
            }
            RecordHeader::ChunkInfo(_) => {
                self.is_summary = true;
                Ok(())
            }
            _ => Ok(()),
        };
        if let Err(reason) = declared {
            self.report(at, next - at, reason);
        }
        Ok(())
    }

    /// The data of a record.
    fn data(&mut self, at: u64, record: &Record) -> Result<Bytes, Error> {
        let len = record.data_len as usize;
        let mut block = self.context.blocks.block_with_len(len);
        let to = block.get_mut(..len).unwrap_or_default();
        let read = self.window.read(at + record.data_at as u64, to)?;
        self.context.run.count_read(read as u64);
        Ok(block.freeze().slice(..read))
    }

    fn declare(&mut self, id: u32, topic: Vec<u8>, description: &[u8]) -> Result<(), String> {
        match &self.index {
            Some(index) => index.connections.check(id, &topic, description),
            None => self.connections.declare(id, topic, description),
        }
    }

    /// Adds a message outside of chunks.
    fn add_loose(&mut self, at: u64, id: u32, time: i64, data: Bytes) -> Result<(), Error> {
        let number = self.number;
        self.number += 1;
        let all = self.index.as_ref().map_or(&self.connections, |index| &index.connections);
        let Some(channel) = self.channels.get(id, all, &self.context)? else {
            let len = self.at - at;
            self.report(at, len, "a message of a connection that is not declared");
            return Ok(());
        };
        if let Some(channel) = channel.filter(|_| self.context.query.window().wants_time(time)) {
            self.loose_bytes += data.len();
            self.loose.push_copy(time, number, channel, &data);
        }
        Ok(())
    }

    /// Whether nothing in the chunk at `at` is needed, by the index.
    fn may_skip(&mut self, at: u64, next: u64) -> Result<bool, Error> {
        let Some(index) = self.index.clone().filter(|_| !self.context.query.is_all()) else {
            return Ok(false);
        };
        let Some(chunk) = index.chunk(at) else { return Ok(false) };
        let Self { window, channels, context, .. } = self;
        let is_needed = |id| -> Result<bool, Error> {
            let channel = channels.get(id, &index.connections, context)?;
            Ok(!matches!(channel, Some(None)))
        };
        skip::needs_nothing(window, (chunk, next), &context.query, is_needed)
    }

    fn read_chunk(
        &mut self,
        record: &Record,
        compression: BagCompression,
        plain_len: u32,
    ) -> Result<(), Error> {
        let (at, data_at) = (self.at, self.at + record.data_at as u64);
        let next = at + record.len();
        self.indexed = self.number;
        if self.may_skip(at, next)? {
            self.at = next;
            return Ok(());
        }
        let max = self.max_chunk;
        if u64::from(record.data_len) > max_packed(max) {
            let reason = format!(
                "a chunk of {} bytes exceeds `max_chunk` ({max}); raise that if the length is right",
                record.data_len
            );
            return self.recover(at, data_at, &reason);
        }
        let goes_on = self.window.goes_on(next)?;
        let reaches = self.window.reaches(next)?;
        if !goes_on && compression == BagCompression::None {
            let is_whole = reaches && is_chain(&self.data(at, record)?);
            if !is_whole {
                let reason = "the length of a chunk is wrong, or the bag ends in it";
                if !self.window.was_stopped() {
                    self.report(at, data_at - at, reason);
                }
                self.at = data_at;
                return Ok(());
            }
        }
        let end = if reaches { next } else { self.window.search(data_at)?.min(next) };
        let len = u32::try_from(end.saturating_sub(data_at)).unwrap_or(record.data_len);
        let there = Record { header: RecordHeader::ChunkInfo(None), data_len: len, ..*record };
        let packed = self.data(at, &there)?;
        let limits = (&self.context.blocks, max);
        match unpack(compression, packed, plain_len, !reaches, limits) {
            Ok(Unpacked { plain, cut }) => {
                if let Some(chunk) = self.index.as_ref().and_then(|index| index.chunk(at)) {
                    self.number = i64::try_from(chunk.messages_before).unwrap_or(i64::MAX);
                }
                let plain_at = (compression == BagCompression::None).then_some(data_at);
                // The rest of it would have come.
                let cut = cut.filter(|_| reaches || !self.window.was_stopped());
                let fault = cut.map(|why| format!("a chunk is not complete: {why}"));
                let len = end - at;
                self.unit = Some(Unit { plain, pos: 0, at, len, plain_at, undeclared: 0, fault });
                self.at = end;
            }
            Err(why) => {
                let reason = format!("a chunk cannot be read: {why}");
                if !goes_on {
                    return self.recover(at, at + 1, &reason);
                }
                self.report(at, next - at, reason);
                self.at = next;
            }
        }
        Ok(())
    }

    /// The next events of a chunk.
    fn read_unit(&mut self, mut unit: Unit) -> Result<Batch, Error> {
        let mut batch = BatchBuilder::default();
        let plain = unit.plain.clone();
        let segment = batch.segment(plain.clone());
        let window = self.context.query.window();
        while batch.len() < BATCH_EVENTS {
            let rest = plain.get(unit.pos..).unwrap_or_default();
            if rest.is_empty() {
                self.finish_unit(unit);
                return Ok(batch.finish());
            }
            let Some((record, data)) = whole_record(rest) else {
                self.leave_unit(unit)?;
                return Ok(batch.finish());
            };
            let data_at = unit.pos + record.data_at;
            unit.pos += record.data_at + data.len();
            match record.header {
                RecordHeader::Message { connection, time } => {
                    let number = self.number;
                    self.number += 1;
                    let all =
                        self.index.as_ref().map_or(&self.connections, |index| &index.connections);
                    match self.channels.get(connection, all, &self.context)? {
                        None => unit.undeclared += 1,
                        Some(Some(channel)) if window.wants_time(time) => {
                            let offset = u32::try_from(data_at).unwrap_or(u32::MAX);
                            let place = PayloadOffset { segment, offset };
                            batch.push(time, number, channel, data, place);
                        }
                        Some(_) => {}
                    }
                }
                RecordHeader::Connection { id, topic } => {
                    unit.fault = self.declare(id, topic, data).err().or(unit.fault);
                }
                _ => {}
            }
        }
        self.unit = Some(unit);
        Ok(batch.finish())
    }

    /// Reports what is wrong with a chunk.
    fn finish_unit(&mut self, unit: Unit) {
        let Unit { at, len, undeclared, fault, .. } = unit;
        let undeclared = (undeclared > 0)
            .then(|| format!("messages of a chunk have undeclared connections ({undeclared})"));
        if let Some(reason) = fault.or(undeclared) {
            self.report(at, len, reason);
        }
    }

    /// Leaves a chunk at bytes that are not a record.
    fn leave_unit(&mut self, unit: Unit) -> Result<(), Error> {
        let (pos, all) = (unit.pos, unit.plain.len());
        if let Some(plain_at) = unit.plain_at {
            let at = plain_at + pos as u64;
            self.finish_unit(Unit { len: at - unit.at, ..unit });
            // The search goes on in the chunk, whose records are not compressed.
            return self.recover(at, at + 1, "a chunk has bytes that are not a record");
        }
        let fault = unit.fault.clone().unwrap_or_else(|| {
            format!("a chunk has no record at {pos} of its {all} uncompressed bytes")
        });
        self.finish_unit(Unit { fault: Some(fault), ..unit });
        Ok(())
    }
}

fn printable(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string()
}

impl Reader for BagReader {
    fn next_batch(&mut self) -> Result<Option<Batch>, Error> {
        loop {
            let is_full = self.loose.len() >= BATCH_EVENTS || self.loose_bytes >= BATCH_BYTES;
            let mut goes_on = true;
            if self.unit.is_none() && !is_full {
                goes_on = !self.window.is_cancelled() && self.step()?;
            }
            // Messages outside of chunks come before those of the chunk behind them.
            if !self.loose.is_empty() && (is_full || self.unit.is_some() || !goes_on) {
                self.loose_bytes = 0;
                return Ok(Some(std::mem::take(&mut self.loose).finish()));
            }
            if let Some(unit) = self.unit.take() {
                let batch = self.read_unit(unit)?;
                if !batch.is_empty() {
                    return Ok(Some(batch));
                }
            } else if !goes_on {
                return Ok(None);
            }
            // Without events between it, damage may be any number of ranges.
            if self.context.damage.is_full() {
                return Ok(Some(Batch::default()));
            }
        }
    }

    fn seam(&self) -> Seam {
        Seam { ended: Some(self.at), ..self.seam }
    }
}
