//! Finds whole chunks that a file has lost, by its summary. Looks at heads of chunks only.
//!
//! Bytes that are cut out between records leave no damage where they were, but every position
//! behind them is wrong.

#![warn(clippy::indexing_slicing)]

use std::collections::BTreeMap;

use sluice_model::{Error, ReadContext, Split};

use super::RecordReader;
use crate::index::{CHUNK_START, FileIndex};
use crate::wire::{ChunkHead, HEAD};

/// The first and last time of a chunk, and its lengths, uncompressed and compressed.
type ChunkKey = (u64, u64, u64, u64);

/// The chunks that a summary lists, and that have not been met.
pub(super) struct MissingChunks {
    unmet: BTreeMap<ChunkKey, usize>,
    listed: usize,
    /// The messages that the statistics count.
    messages: u64,
    summary_at: u64,
}

impl MissingChunks {
    /// Those of a file of which everything is read, if its summary is right by its checksum, and
    /// lists chunks where none are. Some writers count wrongly, so both have to tell that something
    /// is missing.
    pub(super) fn new(index: &FileIndex, split: &Split, context: &ReadContext) -> Option<Self> {
        let is_all = split.start == 0 && split.end.is_none() && context.query.is_all();
        let summary = index.summary().filter(|summary| is_all && summary.has_crc)?;
        // Some list a chunk twice; the entries are in order.
        let mut chunks: Vec<_> = summary.chunks.iter().collect();
        chunks.dedup_by_key(|entry| entry.chunk_start);
        let listed = chunks.len();
        let messages = summary.statistics.as_ref()?.messages;
        let mut unmet = BTreeMap::new();
        for entry in chunks.into_iter().filter(|_| index.anchors.len() < listed) {
            let lens = (entry.plain_len, entry.packed_len);
            *unmet.entry((entry.start_time, entry.end_time, lens.0, lens.1)).or_default() += 1;
        }
        let summary_at = summary.start;
        (!unmet.is_empty()).then_some(Self { unmet, listed, messages, summary_at })
    }

    /// The chunk with this head is there.
    fn meet(&mut self, head: &ChunkHead) {
        let key = (head.start_time, head.end_time, head.plain_len, head.packed_len);
        self.unmet.entry(key).and_modify(|count| *count = count.saturating_sub(1));
    }

    /// What is missing in a file in which so many messages were read.
    fn fault(&self, messages: u64) -> Option<String> {
        let (unmet, listed) = (self.unmet.values().sum::<usize>(), self.listed);
        (unmet > 0 && messages < self.messages).then(|| {
            format!(
                "{unmet} of {listed} chunks that the summary lists are missing: the file has \
                 {messages} of {} messages",
                self.messages
            )
        })
    }
}

impl RecordReader {
    /// Takes note of the chunk at `at`.
    pub(super) fn meet_chunk(&mut self, at: u64) -> Result<(), Error> {
        let Some(missing) = &mut self.missing else { return Ok(()) };
        let start = self.walk.read(at, CHUNK_START as u64)?;
        let head = ChunkHead::parse(start.get(HEAD as usize..).unwrap_or_default());
        head.iter().for_each(|head| missing.meet(head));
        Ok(())
    }

    /// Reports chunks that are missing at the end of a file, unless damage tells of them.
    pub(super) fn report_missing_chunks(&mut self) {
        if let Some(missing) = self.missing.take()
            && let Some(reason) = missing.fault(self.batcher.count())
        {
            self.report(missing.summary_at, 0, reason);
        }
    }
}
