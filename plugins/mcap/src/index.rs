//! Where the chunks of a file are, and which channels it has, as far as its summary is right.
//!
//! The summary is only a hint: what it says of a chunk is compared with the chunk's own head.

#![warn(clippy::indexing_slicing)]

use std::path::Path;
use std::sync::Arc;

use sluice_io::files::{self, FileCache, InputFiles, LogFile};
use sluice_model::Error;

use crate::summary::{FileEnd, Summary};
use crate::table::Declarations;
use crate::wire::{CHUNK_HEAD, ChunkHead, ChunkIndexRecord, HEAD, Head, op};

/// The bytes by which a chunk is compared with its entry in the index.
pub(crate) const CHUNK_START: usize = HEAD as usize + CHUNK_HEAD;
/// Up to this distance, seeking to every chunk is cheap.
const CHEAP_SEEK: u64 = 64 << 10;

/// What is known of a file before its messages are read.
#[derive(Debug)]
pub(crate) struct FileIndex {
    pub(crate) len: u64,
    pub(crate) end: FileEnd,
    /// The starts of the chunks that the summary lists and that are there, rising.
    pub(crate) anchors: Arc<[u64]>,
    /// Whether the summary's checksum alone says that they are there.
    pub(crate) are_believed: bool,
    /// The channels that the summary has; `None` if it cannot be read.
    declarations: Option<Arc<Declarations>>,
    /// Whether these are all channels of the file.
    are_complete: bool,
    /// What is wrong with the summary, one sentence each.
    pub(crate) faults: Vec<String>,
}

impl FileIndex {
    /// The index of a file, of which as much is read as these inputs have; `None` for inputs that
    /// cannot be read at any position.
    pub(crate) fn cached(
        cache: &IndexCache,
        path: &Path,
        inputs: &InputFiles,
    ) -> Result<Option<Arc<Self>>, Error> {
        if path == Path::new("-") || !files::is_address_or_file(path) || files::is_zstd(path)? {
            return Ok(None);
        }
        cache.get(inputs.open_plain(path)?, |mut log| Self::read(&mut log).map(Arc::new)).map(Some)
    }

    fn read(log: &mut LogFile) -> Result<Self, Error> {
        let is_cheap = is_seeking_cheap(log);
        Self::read_seeking(log, is_cheap)
    }

    /// Where seeking is not cheap, the checksum of the summary has to do.
    fn read_seeking(log: &mut LogFile, is_cheap: bool) -> Result<Self, Error> {
        let len = log.len().unwrap_or_default();
        let end = FileEnd::read(log, len)?;
        let is_certain = end.summary().is_some_and(Summary::is_certain);
        Self::new(
            len,
            end,
            !is_cheap,
            |entry| {
                if is_cheap { is_chunk(log, entry) } else { Ok(is_certain) }
            },
        )
    }

    /// The index of a file of `len` bytes that has been read; `is_chunk` says whether the chunk of
    /// an entry is there.
    pub(crate) fn of_stream(
        len: u64,
        end: FileEnd,
        is_chunk: impl Fn(&ChunkIndexRecord) -> bool,
    ) -> Result<Self, Error> {
        Self::new(len, end, false, |entry| Ok(is_chunk(entry)))
    }

    /// `is_chunk` says whether the chunk of an entry is there.
    fn new(
        len: u64,
        end: FileEnd,
        are_believed: bool,
        is_chunk: impl FnMut(&ChunkIndexRecord) -> Result<bool, Error>,
    ) -> Result<Self, Error> {
        let (anchors, mut faults) = match &end {
            FileEnd::Summary(summary) => anchors(summary, is_chunk)?,
            FileEnd::Broken(why) => {
                (Vec::new(), vec![format!("the summary cannot be used: {why}")])
            }
            FileEnd::Unfinished | FileEnd::NoSummary => (Vec::new(), Vec::new()),
        };
        let summary = end.summary();
        if summary.is_some_and(|summary| summary.is_misplaced) {
            faults.insert(0, "the summary is not where the footer says".to_owned());
        }
        let missing = summary.map(missing_channels);
        let are_complete = matches!(missing, Some(Ok(())));
        faults.extend(missing.and_then(Result::err).flatten());
        let declarations = summary.map(|summary| Arc::new(summary.declarations.clone()));
        let anchors = anchors.into();
        Ok(Self { len, end, anchors, are_believed, declarations, are_complete, faults })
    }

    /// The summary, if it is intact.
    pub(crate) fn summary(&self) -> Option<&Summary> {
        self.end.summary()
    }

    /// All channels of the file, if the summary has them and a checksum: then reading can start at
    /// any chunk. Without a checksum, a changed byte could give messages another channel.
    pub(crate) fn sure_declarations(&self) -> Option<&Arc<Declarations>> {
        let is_sure = self.are_complete && self.summary().is_some_and(Summary::is_certain);
        self.declarations.as_ref().filter(|_| is_sure)
    }

    /// The channels of a summary that has not all of them, no checksum, or another place than the
    /// footer says: for messages whose declarations are damaged, from this position on. Before it
    /// is another file.
    pub(crate) fn hints(&self) -> Option<(u64, &Arc<Declarations>)> {
        let hints = self.declarations.as_ref().filter(|_| self.sure_declarations().is_none());
        Some(self.summary()?.file_from).zip(hints)
    }

    /// Whether a chunk is at this position by the checksum of the summary.
    pub(crate) fn lists_chunk(&self, at: u64) -> bool {
        self.summary().is_some_and(Summary::is_certain) && self.entry(at).is_some()
    }

    /// The entry of the chunk at this position.
    pub(crate) fn entry(&self, at: u64) -> Option<&ChunkIndexRecord> {
        let chunks = &self.summary()?.chunks;
        let found = chunks.partition_point(|chunk| chunk.chunk_start < at);
        chunks.get(found).filter(|chunk| chunk.chunk_start == at)
    }
}

/// Whether a summary has all channels that messages need. `Err` if not, with the fault if that is
/// one.
fn missing_channels(summary: &Summary) -> Result<(), Option<String>> {
    let Declarations { schemas, channels, .. } = &summary.declarations;
    if channels.is_empty() {
        return Err(None);
    }
    let counted = summary.statistics.as_ref().map(|statistics| statistics.channels);
    if counted.is_some_and(|count| count as usize != channels.len()) {
        let (count, found) = (counted.unwrap_or_default(), channels.len());
        return Err(Some(format!(
            "the statistics count {count} channels, but the summary has {found}"
        )));
    }
    let is_indexed = |chunk: &ChunkIndexRecord| !chunk.message_indexes.is_empty();
    if counted.is_none() && !summary.chunks.iter().all(is_indexed) {
        return Err(None);
    }
    let mut used = summary.chunks.iter().flat_map(|chunk| &chunk.message_indexes);
    if let Some((id, _)) = used.find(|(id, _)| !channels.contains_key(id)) {
        return Err(Some(format!("the index names channel {id}, which the summary lacks")));
    }
    let lacks = |schema: u16| schema != 0 && !schemas.contains_key(&schema);
    // Writers may leave schemas out.
    let is_complete = !channels.values().any(|channel| lacks(channel.schema));
    if is_complete { Ok(()) } else { Err(None) }
}

/// The chunks of the index that are there, and what is wrong with the others.
fn anchors(
    summary: &Summary,
    mut is_chunk: impl FnMut(&ChunkIndexRecord) -> Result<bool, Error>,
) -> Result<(Vec<u64>, Vec<String>), Error> {
    let (mut anchors, mut wrong, mut end) = (Vec::new(), 0u64, 0);
    for entry in &summary.chunks {
        let entry_end = entry.chunk_start.saturating_add(entry.chunk_len);
        let fits = entry.chunk_start >= end && entry_end <= summary.start;
        let is_there = fits && is_chunk(entry)?;
        if is_there {
            anchors.push(entry.chunk_start);
            end = entry_end;
        } else {
            wrong += 1;
        }
    }
    let mut faults = Vec::new();
    if wrong > 0 {
        let all = summary.chunks.len();
        faults.push(format!("{wrong} of {all} entries of the chunk index match no chunk"));
    }
    let counted = summary.statistics.as_ref().map(|statistics| statistics.chunks as usize);
    if let Some(counted) = counted.filter(|counted| *counted != summary.chunks.len()) {
        let listed = summary.chunks.len();
        if listed > 0 {
            faults.push(format!("the statistics count {counted} chunks, the index has {listed}"));
        }
    }
    Ok((anchors, faults))
}

fn is_seeking_cheap(log: &LogFile) -> bool {
    log.min_seek_distance().is_some_and(|distance| distance <= CHEAP_SEEK)
}

/// Whether the chunk is where the index says, and as it says.
pub(crate) fn is_chunk(log: &mut LogFile, entry: &ChunkIndexRecord) -> Result<bool, Error> {
    let mut look = [0; CHUNK_START];
    let read = log.read_at(entry.chunk_start, &mut look)?;
    Ok(starts_chunk(look.get(..read).unwrap_or_default(), entry))
}

/// Whether a record that starts with these bytes is the chunk of this entry.
pub(crate) fn starts_chunk(bytes: &[u8], entry: &ChunkIndexRecord) -> bool {
    let Some(head) = Head::parse(bytes) else { return false };
    let content = bytes.get(HEAD as usize..).unwrap_or_default();
    let len = usize::try_from(head.len).unwrap_or(usize::MAX);
    let chunk = ChunkHead::parse(content.get(..len).unwrap_or(content));
    let is_same = chunk.is_some_and(|chunk| {
        chunk.start_time == entry.start_time
            && chunk.end_time == entry.end_time
            && chunk.plain_len == entry.plain_len
            && chunk.packed_len == entry.packed_len
            && chunk.compression == entry.compression
            && chunk.content_len() <= head.len
    });
    is_same && head.opcode == op::CHUNK && head.record_len() == entry.chunk_len
}

/// The indexes of the last files.
pub(crate) type IndexCache = FileCache<Arc<FileIndex>>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Append, MAGIC};

    fn record(opcode: u8, content: &[u8]) -> Vec<u8> {
        let mut record = vec![opcode];
        record.u64(content.len() as u64);
        record.extend(content);
        record
    }

    /// A file with a chunk without records, before which this many bytes were lost.
    fn file_that_lost(lost: u64) -> Vec<u8> {
        let mut chunk = Vec::new();
        for number in [7, 8, 0] {
            chunk.u64(number);
        }
        chunk.extend([0; 16]);
        let chunk = record(op::CHUNK, &chunk);
        let start = MAGIC.len() as u64;
        let mut entry = Vec::new();
        for number in [7, 8, start + lost, chunk.len() as u64] {
            entry.u64(number);
        }
        entry.extend([0; 32]);
        let summary = record(op::CHUNK_INDEX, &entry);
        let mut file = [&MAGIC[..], &chunk, &record(op::DATA_END, &[0; 4])].concat();
        let mut footer = Vec::new();
        footer.u64(file.len() as u64 + lost);
        footer.extend([0; 12]);
        let footer = record(op::FOOTER, &footer);
        let (footer, _) = footer.split_last_chunk::<4>().unwrap();
        let hashed = [&summary[..], footer].concat();
        let crc = crc32fast::hash(&hashed).to_le_bytes();
        file.extend([&hashed[..], &crc, &MAGIC].concat());
        file
    }

    #[test]
    fn chunks_of_a_misplaced_summary_are_not_believed_even_where_seeking_is_expensive() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.mcap");
        for (lost, anchors) in [(0, &[MAGIC.len() as u64][..]), (3, &[]), (5000, &[])] {
            std::fs::write(&path, file_that_lost(lost)).unwrap();
            for is_cheap in [true, false] {
                let mut log = LogFile::open_plain(&path).unwrap();
                let index = FileIndex::read_seeking(&mut log, is_cheap).unwrap();
                assert_eq!(index.summary().unwrap().is_misplaced, lost > 0);
                assert_eq!(&index.anchors[..], anchors, "{lost} bytes lost, {is_cheap}");
            }
        }
    }
}
