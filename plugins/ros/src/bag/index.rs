//! What is known of a bag before its messages are read: where its chunks are, and its connections.
//!
//! Bags describe both at their end. That is compared with a walk over the heads of all records,
//! and with what the chunks declare, and used only if they agree. If chunks are damaged or missing,
//! only the connections are used, and only if nothing else contradicts them.

#![warn(clippy::indexing_slicing)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use sluice_io::files::{self, FileCache, InputFiles, LogFile};
use sluice_model::options::ByteSize;
use sluice_model::{BlockPool, Error};

use super::checks;
use super::chunk::{ChunkEntry, SummaryPlace};
use super::connections::{self, Connections, MAX_DESCRIPTION};
use super::window::{BagWindow, FoundAt};
use super::wire::{
    BagCompression, ChunkSummary, MAGIC, Record, RecordHeader, max_packed, whole_records,
};

/// The records of a bag.
#[derive(Debug, Default)]
pub(crate) struct BagIndex {
    pub(crate) len: u64,
    pub(crate) chunks: Vec<ChunkEntry>,
    pub(crate) messages: u64,
    /// The connections declared behind the chunks.
    pub(crate) connections: Connections,
    /// Whether these are all connections of the bag, even if the index cannot be used otherwise.
    pub(crate) declares_all: bool,
    /// Whether the end of the bag contradicts a chunk in which a connection has its first message:
    /// then no chunk can be skipped.
    pub(crate) has_wrong_summary: bool,
    /// Why the index cannot be used.
    pub(crate) fault: Option<String>,
}

/// Why an index cannot be used.
const APPENDED: &str = "another bag was appended";
const CUT: &str = "it ends in a record";

/// The head of a bag: where its data begin, and what it says: where the index begins, and how many
/// chunks and connections there are.
struct BagHead {
    data_at: u64,
    index_at: u64,
    chunks: usize,
    connections: usize,
}

/// What a walk over the records of a bag finds, besides its index.
#[derive(Default)]
struct BagWalk {
    head: Option<BagHead>,
    /// How many chunks precede the last index of one.
    counted: usize,
    /// The connections that have messages, and the chunks in which they have their first.
    used: BTreeSet<u32>,
    first_uses: BTreeSet<usize>,
    /// Where the connections behind the chunks begin.
    end_at: Option<u64>,
    /// The positions of the chunks that the end of the bag describes.
    described: BTreeSet<u64>,
    /// What is wrong first. The walk goes on behind it.
    fault: Option<String>,
}

impl BagWalk {
    fn note(&mut self, why: &str) {
        self.fault.get_or_insert_with(|| why.to_owned());
    }
}

/// What is wrong with the length of the record at `at`.
fn length_fault(
    window: &mut BagWindow,
    at: u64,
    record: &Record,
) -> Result<Option<&'static str>, Error> {
    let next = at + record.len();
    if !window.reaches(next)? {
        return Ok(Some(CUT));
    }
    if !record.header.has_unsure_len() {
        return Ok(None);
    }
    let found = window.place(next)?;
    Ok(if let FoundAt::Garbage(why) = found { Some(why) } else { None })
}

impl BagIndex {
    /// Walks over the heads of all records. `None` for streams.
    fn read(log: LogFile, max_chunk: ByteSize) -> Result<Option<Self>, Error> {
        let mut window = BagWindow::new(log, max_packed(max_chunk));
        if !window.is_seekable() {
            return Ok(None);
        }
        // A search behind damage needs no messages.
        window.set_packed(true);
        let (mut index, mut walk) = (Self::default(), BagWalk::default());
        let stopped = index.walk(&mut walk, &mut window)?;
        let has_end = stopped.is_none() && index.has_complete_end(&walk);
        index.fault = walk.fault.take().or(stopped).or_else(|| index.count_fault(&walk));
        if index.fault.is_none() || has_end {
            let wrong = index.check_declarations(&mut window, &walk, max_chunk)?;
            index.declares_all = wrong.is_none();
            index.fault = index.fault.or(wrong);
        }
        Ok(Some(index))
    }

    /// Walks to the end, or returns why what follows is of no use.
    fn walk(
        &mut self,
        walk: &mut BagWalk,
        window: &mut BagWindow,
    ) -> Result<Option<String>, Error> {
        let mut at = 0;
        while !window.is_cancelled() {
            self.len = at;
            let wrong = match window.place(at)? {
                FoundAt::End => return Ok(None),
                FoundAt::Magic if at == 0 => {
                    at += MAGIC.len() as u64;
                    continue;
                }
                FoundAt::Magic => return Ok(Some(APPENDED.to_owned())),
                FoundAt::Garbage(why) if walk.head.is_none() => return Ok(Some(why.to_owned())),
                FoundAt::Garbage(why) => why,
                FoundAt::Cut => CUT,
                FoundAt::Record(record) => {
                    let (next, wrong) = (at + record.len(), length_fault(window, at, &record)?);
                    // What the head says does not depend on its data.
                    let is_known = matches!(record.header, RecordHeader::Bag { .. });
                    if (wrong.is_none() || is_known)
                        && let Some(why) = self.add_record(walk, window, (at, record))?
                    {
                        return Ok(Some(why));
                    }
                    let Some(why) = wrong else {
                        at = next;
                        continue;
                    };
                    why
                }
            };
            walk.note(wrong);
            at = window.search(at + 1)?;
        }
        Ok(Some("it was not read to its end".to_owned()))
    }

    /// Adds a record. Returns why those behind it are of no use.
    fn add_record(
        &mut self,
        walk: &mut BagWalk,
        window: &mut BagWindow,
        (at, record): (u64, Record),
    ) -> Result<Option<String>, Error> {
        let data = (at + record.data_at as u64, record.data_len);
        match record.header {
            RecordHeader::Bag { index_at: 0, .. } => {
                return Ok(Some("it was not closed, so it has none".to_owned()));
            }
            RecordHeader::Bag { .. } if walk.head.is_some() => {
                return Ok(Some(APPENDED.to_owned()));
            }
            RecordHeader::Bag { index_at, connections, chunks, .. } => {
                let (chunks, connections) = (chunks as usize, connections as usize);
                walk.head = Some(BagHead { data_at: data.0, index_at, chunks, connections });
            }
            RecordHeader::Chunk { compression, plain_len } => {
                if walk.counted < self.chunks.len() {
                    walk.note("a chunk is not followed by its index");
                }
                self.leave_end(walk);
                self.add_chunk(at, plain_len, compression);
            }
            RecordHeader::Index { connection, messages } => {
                self.leave_end(walk);
                walk.counted = self.chunks.len();
                if walk.used.insert(connection) {
                    walk.first_uses.insert(walk.counted.saturating_sub(1));
                }
                self.messages += u64::from(messages);
            }
            RecordHeader::Connection { id, topic } => {
                walk.end_at.get_or_insert(at);
                return self.add_connection(id, topic, window, data);
            }
            RecordHeader::Message { .. } => walk.note("it has messages outside of chunks"),
            RecordHeader::ChunkInfo { summary, .. } => {
                walk.described.insert(summary.chunk_at);
                self.note_summary(summary, data);
            }
        }
        Ok(None)
    }

    /// What came before was not the end: a chunk follows, or is damaged.
    fn leave_end(&mut self, walk: &mut BagWalk) {
        if walk.end_at.take().is_some() {
            self.connections = Connections::default();
            walk.described.clear();
        }
    }

    /// Whether the bag has one end, which belongs to its head and its chunks: it describes as many
    /// as the head says, among them all that were found, which may have moved by as many bytes as
    /// are missing, or were added.
    fn has_complete_end(&self, walk: &BagWalk) -> bool {
        let (Some(head), Some(end_at)) = (&walk.head, walk.end_at) else { return false };
        // Behind its own end, another bag may have begun in damage, and have one just like it. The
        // start of one is longer than the bytes that were added.
        let added = end_at.saturating_sub(head.index_at);
        if added >= head.data_at {
            return false;
        }
        let moved = head.index_at.wrapping_sub(end_at);
        let is_described = |chunk: &ChunkEntry| {
            let places = [chunk.at, chunk.at.wrapping_add(moved)];
            places.iter().any(|place| walk.described.contains(place))
        };
        (head.chunks, head.connections) == (walk.described.len(), self.connections.all.len())
            && (moved == 0 || !self.chunks.is_empty())
            && self.chunks.iter().all(is_described)
    }

    fn add_chunk(&mut self, at: u64, plain_len: u32, compression: BagCompression) {
        let messages_before = self.messages;
        let entry = ChunkEntry { at, plain_len, compression, messages_before, summary: None };
        self.chunks.push(entry);
    }

    /// Notes what the end of the bag says of a chunk.
    fn note_summary(&mut self, summary: ChunkSummary, counts: (u64, u32)) {
        let ChunkSummary { chunk_at, times } = summary;
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
    fn count_fault(&self, walk: &BagWalk) -> Option<String> {
        if let Some(id) = walk.used.iter().find(|id| !self.connections.all.contains_key(id)) {
            return Some(format!("it lacks the connection {id}"));
        }
        let found = (self.chunks.len(), self.connections.all.len());
        match walk.head {
            Some(BagHead { chunks, connections, .. }) if (chunks, connections) == found => None,
            Some(BagHead { chunks, connections, .. }) => Some(format!(
                "expected {chunks} chunks and {connections} connections, found {} and {}",
                found.0, found.1
            )),
            None => Some("it has no head".to_owned()),
        }
    }

    /// Compares the connections with what these chunks declare, and what the end of the bag says of
    /// the chunks with their messages. Returns what is wrong with the connections. What cannot be
    /// read contradicts nothing, nor does a number that only a chunk's declaration has.
    fn check_declarations(
        &mut self,
        window: &mut BagWindow,
        walk: &BagWalk,
        max_chunk: ByteSize,
    ) -> Result<Option<String>, Error> {
        let blocks = BlockPool::new(1 << 20, 2);
        for chunk in walk.first_uses.iter().filter_map(|chunk| self.chunks.get(*chunk)) {
            let Some((plain, _)) = chunk.unpack(window, (&blocks, max_chunk))? else { continue };
            for (_, record, data) in whole_records(&plain) {
                if let RecordHeader::Connection { id, topic } = &record.header
                    && (self.connections.all.contains_key(id) || walk.used.contains(id))
                    && connections::check_form(*id, data).is_ok()
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

/// The indexes of a source's bags, each read once if the bag does not change.
#[derive(Debug)]
pub(crate) struct IndexCache(FileCache<Option<Arc<BagIndex>>>);

impl Default for IndexCache {
    fn default() -> Self {
        Self(FileCache::of_all())
    }
}

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
        let read = |log| Ok(BagIndex::read(log, max_chunk)?.map(Arc::new));
        self.0.get(inputs.open(path)?, read)
    }
}
