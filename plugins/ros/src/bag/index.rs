//! What is known of a bag before its messages are read: where its chunks are, and its connections.
//!
//! Bags describe both at their end. That is compared with a walk over the heads of all records,
//! and with what the chunks declare, and used only if they agree.

#![warn(clippy::indexing_slicing)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use sluice_io::files::{self, InputFiles, LogFile};
use sluice_model::options::ByteSize;
use sluice_model::{BlockPool, Error};

use super::checks;
use super::chunk::unpack;
use super::connections::{Connections, MAX_DESCRIPTION};
use super::skip::bytes;
use super::window::{BagWindow, FoundAt};
use super::wire::{BagCompression, ChunkSummary, RecordHeader, max_packed, whole_records};

/// A chunk of a bag.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChunkEntry {
    pub(crate) at: u64,
    pub(crate) plain_len: u32,
    pub(crate) compression: BagCompression,
    /// The messages of the chunks before.
    pub(crate) messages_before: u64,
    /// What the end of the bag says of it.
    pub(crate) summary: Option<SummaryPlace>,
}

impl ChunkEntry {
    /// The records of the chunk, and where it ends; `None` if it cannot be read.
    pub(crate) fn unpack(
        &self,
        window: &mut BagWindow,
        (blocks, max_chunk): (&BlockPool, ByteSize),
    ) -> Result<Option<(Bytes, u64)>, Error> {
        let FoundAt::Record(record) = window.place(self.at)? else { return Ok(None) };
        if u64::from(record.data_len) > max_packed(max_chunk) {
            return Ok(None);
        }
        let packed = bytes(window, self.at + record.data_at as u64, record.data_len)?;
        let limits = (blocks, max_chunk);
        let unpacked = unpack(self.compression, packed.into(), self.plain_len, false, limits);
        let end = self.at.saturating_add(record.len());
        Ok(unpacked.ok().map(|unpacked| (unpacked.plain, end)))
    }
}

/// The times of a chunk's messages, and where their numbers by connection are: a position and a
/// length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SummaryPlace {
    pub(crate) times: (i64, i64),
    pub(crate) counts: (u64, u32),
}

/// The records of a bag.
#[derive(Debug, Default)]
pub(crate) struct BagIndex {
    pub(crate) len: u64,
    pub(crate) chunks: Vec<ChunkEntry>,
    pub(crate) messages: u64,
    /// The connections declared behind the chunks.
    pub(crate) connections: Connections,
    /// Whether the end of the bag contradicts a chunk in which a connection has its first message:
    /// then no chunk can be skipped.
    pub(crate) has_wrong_summary: bool,
    /// Why the index cannot be used.
    pub(crate) fault: Option<String>,
}

impl BagIndex {
    /// Walks over the heads of all records. `None` for streams.
    fn read(log: LogFile, max_chunk: ByteSize) -> Result<Option<Self>, Error> {
        let mut window = BagWindow::new(log, u64::MAX);
        if !window.is_seekable() {
            return Ok(None);
        }
        let mut index = Self::default();
        index.fault = index.walk(&mut window, max_chunk)?;
        Ok(Some(index))
    }

    /// Returns what is wrong with the bag or its index.
    fn walk(
        &mut self,
        window: &mut BagWindow,
        max_chunk: ByteSize,
    ) -> Result<Option<String>, Error> {
        let (mut at, mut expected, mut counted) = (0, None, 0);
        // The connections that have messages, and the chunks in which they have their first.
        let (mut used, mut first_uses) = (BTreeSet::new(), BTreeSet::new());
        let wrong = |what: &str| Ok(Some(what.to_owned()));
        loop {
            self.len = at;
            let record = match window.place(at)? {
                FoundAt::End => break,
                FoundAt::Magic if at == 0 => {
                    at += super::wire::MAGIC.len() as u64;
                    continue;
                }
                FoundAt::Magic => return wrong("another bag was appended"),
                FoundAt::Garbage(why) => return wrong(why),
                FoundAt::Cut => return wrong("it ends in a record"),
                FoundAt::Record(record) => record,
            };
            let next = at + record.len();
            if !window.reaches(next)? {
                return wrong("it ends in a record");
            }
            match record.header {
                RecordHeader::Bag { index_at: 0, .. } => {
                    return wrong("it was not closed, so it has none");
                }
                RecordHeader::Bag { connections, chunks, .. } => {
                    expected = Some((chunks as usize, connections as usize));
                }
                RecordHeader::Chunk { compression, plain_len } => {
                    if counted < self.chunks.len() {
                        return wrong("a chunk is not followed by its index");
                    }
                    self.add_chunk(at, plain_len, compression);
                }
                RecordHeader::Index { connection, messages } => {
                    counted = self.chunks.len();
                    if used.insert(connection) {
                        first_uses.insert(counted.saturating_sub(1));
                    }
                    self.messages += u64::from(messages);
                }
                RecordHeader::Connection { id, topic } => {
                    let data = (at + record.data_at as u64, record.data_len);
                    if let Some(why) = self.add_connection(id, topic, window, data)? {
                        return Ok(Some(why));
                    }
                }
                RecordHeader::Message { .. } => return wrong("it has messages outside of chunks"),
                RecordHeader::ChunkInfo(summary) => {
                    let counts = (at + record.data_at as u64, record.data_len);
                    self.note_summary(summary, counts);
                }
            }
            at = next;
        }
        match self.count_fault(&used, expected) {
            None => self.check_declarations(window, &first_uses, max_chunk),
            fault => Ok(fault),
        }
    }

    fn add_chunk(&mut self, at: u64, plain_len: u32, compression: BagCompression) {
        let messages_before = self.messages;
        let entry = ChunkEntry { at, plain_len, compression, messages_before, summary: None };
        self.chunks.push(entry);
    }

    /// Notes what the end of the bag says of a chunk.
    fn note_summary(&mut self, summary: Option<ChunkSummary>, counts: (u64, u32)) {
        let Some(ChunkSummary { chunk_at, times }) = summary else { return };
        let found = self.position(chunk_at).and_then(|found| self.chunks.get_mut(found));
        if let Some(chunk) = found {
            chunk.summary = Some(SummaryPlace { times, counts });
        }
    }

    /// Adds a connection, whose description is at `data`: a position and a length. Returns what is
    /// wrong with it.
    fn add_connection(
        &mut self,
        id: u32,
        topic: Vec<u8>,
        window: &mut BagWindow,
        (at, len): (u64, u32),
    ) -> Result<Option<String>, Error> {
        if len > MAX_DESCRIPTION {
            return Ok(Some("the description of a connection is too long".to_owned()));
        }
        let mut description = vec![0; len as usize];
        window.read(at, &mut description)?;
        Ok(self.connections.declare(id, topic, &description).err())
    }

    /// What is wrong with the numbers of chunks and connections, which the head says.
    fn count_fault(
        &self,
        used: &BTreeSet<u32>,
        expected: Option<(usize, usize)>,
    ) -> Option<String> {
        if let Some(id) = used.iter().find(|id| !self.connections.all.contains_key(id)) {
            return Some(format!("it lacks the connection {id}"));
        }
        let found = (self.chunks.len(), self.connections.all.len());
        match expected {
            Some(expected) if expected == found => None,
            Some((chunks, connections)) => Some(format!(
                "expected {chunks} chunks and {connections} connections, found {} and {}",
                found.0, found.1
            )),
            None => Some("it has no head".to_owned()),
        }
    }

    /// Compares the connections with what these chunks declare, and what the end of the bag says of
    /// the chunks with their messages. Returns what is wrong with the connections. A chunk that
    /// cannot be read contradicts nothing.
    fn check_declarations(
        &mut self,
        window: &mut BagWindow,
        chunks: &BTreeSet<usize>,
        max_chunk: ByteSize,
    ) -> Result<Option<String>, Error> {
        let blocks = BlockPool::new(1 << 20, 2);
        for chunk in chunks.iter().filter_map(|chunk| self.chunks.get(*chunk)) {
            let Some((plain, _)) = chunk.unpack(window, (&blocks, max_chunk))? else { continue };
            for (_, record, data) in whole_records(&plain) {
                if let RecordHeader::Connection { id, topic } = &record.header
                    && let Err(why) = self.connections.check(*id, topic, data)
                {
                    return Ok(Some(why));
                }
            }
            if let Some(messages) = checks::messages(&plain) {
                self.has_wrong_summary |= !checks::is_described(window, chunk, &messages)?;
            }
        }
        Ok(None)
    }

    /// The index, if it can be used.
    pub(crate) fn usable(&self) -> Option<&Self> {
        self.fault.is_none().then_some(self)
    }

    fn position(&self, at: u64) -> Option<usize> {
        self.chunks.binary_search_by_key(&at, |chunk| chunk.at).ok()
    }

    /// The chunk at this position.
    pub(crate) fn chunk(&self, at: u64) -> Option<&ChunkEntry> {
        self.chunks.get(self.position(at)?)
    }

    /// How many chunks have each compression.
    pub(crate) fn compressions(&self) -> BTreeMap<BagCompression, usize> {
        let mut counts = BTreeMap::new();
        for chunk in &self.chunks {
            *counts.entry(chunk.compression).or_default() += 1;
        }
        counts
    }
}

/// The indexes of a source's bags, each read once.
#[derive(Debug, Default)]
pub(crate) struct IndexCache(Mutex<BTreeMap<PathBuf, Option<Arc<BagIndex>>>>);

impl IndexCache {
    /// The index of a bag, of which as much is read as these inputs have; `None` for a stream.
    pub(crate) fn get(
        &self,
        path: &Path,
        inputs: &InputFiles,
        max_chunk: ByteSize,
    ) -> Result<Option<Arc<BagIndex>>, Error> {
        if path == Path::new("-") || files::is_special(path) {
            return Ok(None);
        }
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(path) {
            return Ok(known.clone());
        }
        let index = BagIndex::read(inputs.open(path)?, max_chunk)?.map(Arc::new);
        Ok(lock().entry(path.to_owned()).or_insert(index).clone())
    }
}
