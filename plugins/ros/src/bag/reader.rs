//! Reads the events of a split: walks from record to record, and reports what is damaged.

#![warn(clippy::indexing_slicing)]

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use sluice_io::escape::escaped_path;
use sluice_io::files::InputContent;
use sluice_model::options::ByteSize;
use sluice_model::{
    Batch, BatchBuilder, ChannelId, Damage, Error, ReadContext, Reader, Seam, Split, SplitStart,
};

use super::connections::{self, BagChannels, Connections, MAX_DESCRIPTION};
use super::index::BagIndex;
use super::window::{BagWindow, FoundAt};
use super::wire::{BagCompression, MAGIC, Record, RecordHeader, max_packed};

mod boundaries;
mod chunks;

use chunks::Unit;

/// The most events of a batch.
const BATCH_EVENTS: usize = 4096;
/// The most bytes of messages outside of chunks in a batch.
const BATCH_BYTES: usize = 1 << 20;

/// Why messages are wrong that had connections of another bag.
const MIXED: &str = "another bag has begun in damage before: messages between may have the \
                     connections of the bag before it";

/// Reads one split.
pub(crate) struct BagReader {
    window: BagWindow,
    context: ReadContext,
    input: Arc<str>,
    index: Option<Arc<BagIndex>>,
    /// The index whose connections are those of the bag. Damage elsewhere may make it unusable
    /// otherwise.
    declaring: Option<Arc<BagIndex>>,
    max_chunk: ByteSize,
    /// Without such an index, the connections declared so far.
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
    /// Where the chunk that was found last ends, by its length.
    last_chunk_end: u64,
    /// How many chunks are described.
    chunks_described: u32,
    /// Whether chunks are described: no message of this bag follows.
    is_summary: bool,
    /// Whether data of the bag is missing.
    has_gap: bool,
    /// Whether chunks may be in damage.
    has_unread: bool,
    /// Whether messages had connections of the bag before, which is to be reported.
    is_mixed: bool,
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
            input: escaped_path(path).into(),
            index: index.clone().filter(|index| index.usable().is_some()),
            declaring: index.filter(|index| index.declares_all),
            max_chunk,
            connections: Connections::default(),
            channels: BagChannels::default(),
            at,
            end: split.end,
            index_at: 0,
            chunks_expected: 0,
            chunks_found: 0,
            last_chunk_end: 0,
            chunks_described: 0,
            is_summary: false,
            has_gap: false,
            has_unread: false,
            is_mixed: false,
            damaged_to: 0,
            number: 0,
            indexed: 0,
            unit: None,
            loose: BatchBuilder::default(),
            loose_bytes: 0,
            seam: Seam { began: Some(at), ended: None },
        };
        reader.expect_compression();
        if at == 0 {
            reader.check_start(path)?;
        }
        Ok(reader)
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
        let is_stopped =
            self.window.was_stopped() && !self.window.reaches(next.saturating_add(1))?;
        self.pass_damage(at, next, (!is_stopped).then_some(reason));
        Ok(())
    }

    /// Goes on at `next`, behind damage at `at`, which is reported with this reason.
    fn pass_damage(&mut self, at: u64, next: u64, reason: Option<&str>) {
        if let Some(reason) = reason {
            self.report(at, next - at, reason);
        }
        self.doubt_connections(at);
        self.at = next;
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
                self.note_missing_chunks(at);
                return Ok(false);
            }
            FoundAt::Magic => {
                // Bags may have been appended to each other.
                if at > 0 {
                    self.note_missing_chunks(at);
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
            self.leave_summary();
            self.chunks_found = self.chunks_found.saturating_add(1);
            self.last_chunk_end = at.saturating_add(record.len());
            self.window.set_packed(compression != BagCompression::None);
            let is_excess = self.index_at > 0 && self.chunks_found > self.chunks_expected;
            if is_excess && self.connections.are_unsure() {
                self.leave_bag();
            }
            self.read_chunk(&record, compression, plain_len)?;
        } else {
            self.read_record(record)?;
        }
        Ok(true)
    }

    /// Reads a record that is not a chunk.
    fn read_record(&mut self, record: Record) -> Result<(), Error> {
        let (at, next) = (self.at, self.at + record.len());
        self.enter_bag(&record.header)?;
        let is_content = record.header.is_content();
        let max = if is_content { self.max_chunk.0 } else { max_packed(self.max_chunk) };
        if u64::from(record.data_len) > max {
            let reason = format!("a record exceeds `max_chunk` ({})", self.max_chunk);
            return self.recover(at, at + 1, &reason);
        }
        if !self.window.reaches(next)? {
            return self.recover(at, at + 1, "the bag ends in a record");
        }
        // Nothing else tells whether its length is right.
        if record.header.has_unsure_len() && !self.window.goes_on(next)? {
            let reason = "no record follows a message, a connection, or the head of a bag";
            return self.recover(at, at + 1, reason);
        }
        self.at = next;
        let declared = match record.header {
            RecordHeader::Message { connection, time } => {
                self.leave_summary();
                let data = self.data(at, &record)?;
                return self.add_loose(at, connection, time, data);
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
            RecordHeader::ChunkInfo { .. } => {
                self.is_summary = true;
                self.chunks_described = self.chunks_described.saturating_add(1);
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
        connections::check_form(id, description)?;
        if let Some(index) = &self.declaring {
            let checked = index.connections.check(id, &topic, description);
            if checked.is_err() {
                self.connections.note_conflict(id);
            }
            return checked;
        }
        if self.connections.is_of_another_bag(id, &topic, description) {
            self.leave_bag();
        }
        self.connections.declare(id, topic, description)
    }

    /// The channel of a message's connection, as [`BagChannels::get`] has it; `None`, too, if that
    /// was declared twice, differently.
    fn channel(&mut self, connection: u32) -> Result<Option<Option<ChannelId>>, Error> {
        if self.connections.is_conflicting(connection) {
            return Ok(None);
        }
        self.connections.note_use(connection);
        let all = self.declaring.as_ref().map_or(&self.connections, |index| &index.connections);
        self.channels.get(connection, all, &self.context)
    }

    /// Adds a message outside of chunks.
    fn add_loose(&mut self, at: u64, id: u32, time: i64, data: Bytes) -> Result<(), Error> {
        let number = self.number;
        self.number += 1;
        let Some(channel) = self.channel(id)? else {
            let len = self.at - at;
            let reason = match self.connections.is_conflicting(id) {
                true => "a message of a connection that is declared twice, differently",
                false => "a message of a connection that is not declared",
            };
            self.report(at, len, reason);
            return Ok(());
        };
        if let Some(channel) = channel.filter(|_| self.context.query.window().wants_time(time)) {
            self.loose_bytes += data.len();
            self.loose.push_copy(time, number, channel, &data);
        }
        Ok(())
    }
}

impl Reader for BagReader {
    fn next_batch(&mut self) -> Result<Option<Batch>, Error> {
        loop {
            if self.unit.is_none() && std::mem::take(&mut self.is_mixed) {
                self.report(self.at, 0, MIXED);
            }
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
                self.note_unsure_messages();
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
