//! Reads the summary at the end of a file. Reads nothing else of it.

#![warn(clippy::indexing_slicing)]

use std::collections::HashSet;
use std::sync::Arc;

use sluice_io::files::LogFile;
use sluice_model::Error;

use crate::channel::StoredChannel;
use crate::table::Declarations;
use crate::walk::MAX_DATA_END;
use crate::wire::{
    AttachmentHead, ChannelRecord, ChunkIndexRecord, DATA_END, FOOTER, HEAD, Head, MAGIC,
    RecordFields, SchemaRecord, Statistics, op, record_name,
};

/// The longest summary that is read.
pub(crate) const MAX_SUMMARY: u64 = 128 << 20;
/// The bytes before a footer that are searched for a summary.
const MAX_SEARCHED: u64 = 16 << 20;
/// How many places are tried.
const MAX_TRIES: usize = 16;
/// The length of a footer with its head.
pub(crate) const FOOTER_RECORD: u64 = HEAD + FOOTER;
/// The length of the checksum at the end of a footer.
const CRC_LEN: usize = 4;

/// Where an attachment or a metadata record is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) at: u64,
    /// With the head of the record.
    pub(crate) len: u64,
    pub(crate) name: String,
    /// The checksum of what the index repeats of the record.
    pub(crate) crc: u32,
}

/// What a summary says.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    /// Its first byte.
    pub(crate) start: u64,
    pub(crate) declarations: Declarations,
    /// By their starts.
    pub(crate) chunks: Vec<ChunkIndexRecord>,
    pub(crate) attachments: Vec<Listed>,
    pub(crate) metadata: Vec<Listed>,
    pub(crate) statistics: Option<Statistics>,
    /// Whether a checksum says that it is intact.
    pub(crate) has_crc: bool,
    /// Whether it is not where the footer says.
    pub(crate) is_misplaced: bool,
    /// Where its file may begin at the earliest, if no bytes were added to that.
    pub(crate) file_from: u64,
}

/// What is at the end of a file.
#[derive(Debug)]
pub(crate) enum FileEnd {
    /// No footer: the file is unfinished, or cut off.
    Unfinished,
    /// A footer that names no summary.
    NoSummary,
    /// A summary that cannot be used, and why.
    Broken(String),
    /// An intact summary.
    Summary(Box<Summary>),
}

impl FileEnd {
    /// Reads the end of a file of `len` bytes.
    pub(crate) fn read(log: &mut LogFile, len: u64) -> Result<Self, Error> {
        let magic = MAGIC.len() as u64;
        let at = len.checked_sub(FOOTER_RECORD + magic).filter(|at| *at >= magic);
        let Some(at) = at else { return Ok(Self::Unfinished) };
        let mut tail = vec![0; (FOOTER_RECORD + magic) as usize];
        let read = log.read_at(at, &mut tail)?;
        let is_footer = Head::parse(&tail) == Some(Head { opcode: op::FOOTER, len: FOOTER });
        if read < tail.len() || !is_footer || !tail.ends_with(&MAGIC) {
            return Ok(Self::Unfinished);
        }
        let footer = tail.get(..FOOTER_RECORD as usize).unwrap_or_default();
        let end = match summary_start(footer, at) {
            Ok(None) => return Ok(Self::NoSummary),
            Err(why) => Self::Broken(why),
            Ok(Some(start)) => {
                let mut bytes = vec![0; at.saturating_sub(start) as usize];
                if log.read_at(start, &mut bytes)? < bytes.len() {
                    return Ok(Self::Unfinished);
                }
                Self::parse(start, &bytes, footer)
            }
        };
        match end {
            Self::Broken(why) => Self::search(log, (at, footer), why),
            end => Ok(end),
        }
    }

    /// Searches for the summary before the footer at `at`, behind the record DataEnd: it is not
    /// where the footer says, for this reason, if bytes before it were lost.
    fn search(log: &mut LogFile, (at, footer): (u64, &[u8]), why: String) -> Result<Self, Error> {
        let from = at.saturating_sub(MAX_SEARCHED);
        let mut bytes = vec![0; (at - from) as usize];
        let read = log.read_at(from, &mut bytes)?;
        bytes.truncate(read);
        let ends_data = |head: &Head| {
            head.opcode == op::DATA_END && (DATA_END..=MAX_DATA_END).contains(&head.len)
        };
        let ends = bytes.windows(HEAD as usize).enumerate().rev().filter_map(|(place, window)| {
            let head = Head::parse(window).filter(ends_data)?;
            Some(place + head.record_len() as usize)
        });
        for place in ends.take(MAX_TRIES) {
            let rest = bytes.get(place..).unwrap_or_default();
            if let Some(summary) = Self::parse_misplaced(from + place as u64, rest, footer) {
                let mut first = [0; MAGIC.len()];
                let read = log.read_at(summary.file_from, &mut first)?;
                // Of a file that was appended to another, positions count from its own start.
                if summary.file_from > 0 && first.get(..read) == Some(&MAGIC[..]) {
                    break;
                }
                return Ok(Self::Summary(summary));
            }
        }
        Ok(Self::Broken(why))
    }

    /// The summary that starts at `start`, which is not where this footer record says; `None` if
    /// there is none.
    pub(crate) fn parse_misplaced(start: u64, bytes: &[u8], footer: &[u8]) -> Option<Box<Summary>> {
        let Self::Summary(mut summary) = Self::parse(start, bytes, footer) else { return None };
        let named = RecordFields(footer.get(HEAD as usize..).unwrap_or_default()).u64();
        summary.is_misplaced = true;
        summary.file_from = start.saturating_sub(named.unwrap_or_default());
        (!bytes.is_empty()).then_some(summary)
    }

    /// The summary, if it is intact.
    pub(crate) fn summary(&self) -> Option<&Summary> {
        match self {
            Self::Summary(summary) => Some(summary),
            _ => None,
        }
    }

    /// The end of a file with this summary, which starts at `start`, and this footer record.
    pub(crate) fn parse(start: u64, summary: &[u8], footer: &[u8]) -> Self {
        let (hashed, crc) = footer.split_last_chunk::<CRC_LEN>().unwrap_or((&[], &[0; CRC_LEN]));
        let crc = u32::from_le_bytes(*crc);
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(summary);
        hasher.update(hashed);
        let found = hasher.finalize();
        if crc != 0 && crc != found {
            return Self::Broken(format!("expected the checksum {crc:08x}, found {found:08x}"));
        }
        let mut parsed = Summary { start, has_crc: crc != 0, ..Summary::default() };
        match parsed.parse(summary) {
            Ok(()) => Self::Summary(Box::new(parsed)),
            Err(why) => Self::Broken(why),
        }
    }
}

/// Where the summary starts that the footer record at `at` names; `None` if it names none. `Err`
/// says why it cannot be used.
pub(crate) fn summary_start(footer: &[u8], at: u64) -> Result<Option<u64>, String> {
    let start = RecordFields(footer.get(HEAD as usize..).unwrap_or_default()).u64();
    let start = start.unwrap_or_default();
    match at.checked_sub(start).filter(|_| start >= MAGIC.len() as u64) {
        _ if start == 0 => Ok(None),
        None => Err(format!("it starts at byte {start}, which is not before the footer")),
        Some(len) if len > MAX_SUMMARY => {
            Err(format!("it is longer than {} MiB", MAX_SUMMARY >> 20))
        }
        Some(_) => Ok(Some(start)),
    }
}

impl Summary {
    /// Whether its checksum says that it is right, also about where chunks are.
    pub(crate) fn is_certain(&self) -> bool {
        self.has_crc && !self.is_misplaced
    }

    /// The channels without messages, as far as the statistics tell, or the indexes of chunks if
    /// there are none.
    pub(crate) fn silent_channels(&self) -> impl Iterator<Item = &Arc<StoredChannel>> {
        let used = self.used_channels();
        let channels = self.declarations.channels.iter();
        channels.filter_map(move |(id, channel)| {
            used.as_ref().is_some_and(|used| !used.contains(id)).then_some(channel)
        })
    }

    /// The channels that have messages, if that is known.
    fn used_channels(&self) -> Option<HashSet<u16>> {
        let Some(known) = &self.statistics else {
            let is_indexed = |chunk: &ChunkIndexRecord| !chunk.message_indexes.is_empty();
            let is_known = !self.chunks.is_empty() && self.chunks.iter().all(is_indexed);
            let indexes = self.chunks.iter().flat_map(|chunk| &chunk.message_indexes);
            return is_known.then(|| indexes.map(|(id, _)| *id).collect());
        };
        let used = known.counts.iter().filter(|(_, count)| **count > 0);
        (known.messages == 0 || !known.counts.is_empty()).then(|| used.map(|(id, _)| *id).collect())
    }

    fn parse(&mut self, mut bytes: &[u8]) -> Result<(), String> {
        while !bytes.is_empty() {
            let head = Head::parse(bytes).ok_or("it ends in the head of a record")?;
            let name = record_name(head.opcode);
            let content = bytes.get(HEAD as usize..).unwrap_or_default();
            let split = usize::try_from(head.len).ok().and_then(|n| content.split_at_checked(n));
            let (content, rest) = split.ok_or_else(|| format!("it ends in a {name} record"))?;
            self.add(head.opcode, content)
                .ok_or_else(|| format!("a {name} record in it cannot be read"))??;
            bytes = rest;
        }
        self.chunks.sort_by_key(|chunk| chunk.chunk_start);
        Ok(())
    }

    /// Adds a record; `None` if its fields cannot be read.
    fn add(&mut self, opcode: u8, content: &[u8]) -> Option<Result<(), String>> {
        let all = &mut self.declarations;
        match opcode {
            op::SCHEMA => {
                let record = SchemaRecord::parse(content)?;
                if record.id != 0
                    && !all.schemas.get(&record.id).is_some_and(|known| known.is_record(&record))
                {
                    return Some(all.add_schema(&record));
                }
            }
            op::CHANNEL => {
                let record = ChannelRecord::parse(content)?;
                let stored = StoredChannel::from_record(record.clone());
                return Some(all.add_channel(record.id, stored));
            }
            op::CHUNK_INDEX => self.chunks.push(ChunkIndexRecord::parse(content)?),
            op::STATISTICS => self.statistics = Some(Statistics::parse(content)?),
            op::ATTACHMENT_INDEX => {
                let mut fields = RecordFields(content);
                let (at, len) = (fields.u64()?, fields.u64()?);
                let (log_time, create_time) = (fields.u64()?, fields.u64()?);
                let (data_len, name) = (fields.u64()?, fields.bytes()?.to_vec());
                // A name suffices to find it.
                let media_type = fields.bytes().unwrap_or_default().to_vec();
                let head = AttachmentHead { log_time, create_time, name, media_type, data_len };
                let (name, crc) = (lossy(&head.name), head.crc());
                self.attachments.push(Listed { at, len, name, crc });
            }
            op::METADATA_INDEX => {
                let mut fields = RecordFields(content);
                let (at, len, name) = (fields.u64()?, fields.u64()?, fields.bytes()?);
                let crc = crc32fast::hash(name);
                self.metadata.push(Listed { at, len, name: lossy(name), crc });
            }
            _ => {}
        }
        Some(Ok(()))
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
