//! The records of bags, version 2.0: a header of named fields, and data. Reads no file.

#![warn(clippy::indexing_slicing)]

use std::collections::BTreeMap;

use sluice_model::options::ByteSize;

/// The first bytes of a bag.
pub(crate) const MAGIC: &[u8] = b"#ROSBAG V2.0\n";
/// The longest header of a record that is accepted. Their longest field is a topic.
pub(crate) const MAX_HEADER: usize = 16 << 10;
/// Bytes of a length.
pub(crate) const LENGTH: usize = 4;

/// How the messages of a chunk are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum BagCompression {
    None,
    Bz2,
    Lz4,
    /// One that cannot be read.
    Other(CompressionName),
}

/// The name of a compression in a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CompressionName {
    bytes: [u8; 16],
    len: usize,
}

impl CompressionName {
    /// `None` if it is none: too long, or of other characters than names have.
    fn parse(name: &[u8]) -> Option<Self> {
        let mut bytes = [0; 16];
        bytes.get_mut(..name.len())?.copy_from_slice(name);
        let is_word = !name.is_empty() && name.iter().all(u8::is_ascii_alphanumeric);
        is_word.then_some(Self { bytes, len: name.len() })
    }
}

impl BagCompression {
    const SUPPORTED: [Self; 3] = [Self::None, Self::Bz2, Self::Lz4];

    /// Its name in chunks.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::None => "none",
            Self::Bz2 => "bz2",
            Self::Lz4 => "lz4",
            Self::Other(CompressionName { bytes, len }) => {
                bytes.get(..*len).and_then(|name| str::from_utf8(name).ok()).unwrap_or_default()
            }
        }
    }

    /// `None` for what is no name, or that of a supported one with a wrong byte.
    fn parse(name: &[u8]) -> Option<Self> {
        let wrong_bytes = |supported: &Self| {
            let bytes = supported.name().as_bytes();
            let is_as_long = bytes.len() == name.len();
            is_as_long.then(|| bytes.iter().zip(name).filter(|(byte, other)| byte != other).count())
        };
        let nearest = Self::SUPPORTED.into_iter().filter_map(|it| Some((wrong_bytes(&it)?, it)));
        match nearest.min() {
            Some((0, supported)) => Some(supported),
            Some((1, _)) => None,
            _ => CompressionName::parse(name).map(Self::Other),
        }
    }
}

/// The header of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RecordHeader {
    /// The first record of a bag.
    Bag {
        /// Where the index is; 0 if the bag was not closed.
        index_at: u64,
        connections: u32,
        chunks: u32,
        /// What its chunks and connections are encrypted by; empty if they are not.
        encryptor: Vec<u8>,
    },
    Chunk {
        compression: BagCompression,
        /// The bytes of its records.
        plain_len: u32,
    },
    Connection {
        id: u32,
        topic: Vec<u8>,
    },
    Message {
        connection: u32,
        /// Nanoseconds.
        time: i64,
    },
    /// Where the messages of a connection are in the chunk before.
    Index {
        connection: u32,
        messages: u32,
    },
    /// What a chunk has: how many messages of how many connections.
    ChunkInfo {
        summary: ChunkSummary,
        connections: u32,
    },
}

/// What the end of a bag says of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkSummary {
    pub(crate) chunk_at: u64,
    /// The times of the first and the last of its messages.
    pub(crate) times: (i64, i64),
}

const MESSAGE: u8 = 2;
const BAG: u8 = 3;
const INDEX: u8 = 4;
const CHUNK: u8 = 5;
const CHUNK_INFO: u8 = 6;
const CONNECTION: u8 = 7;

/// What a bag says that is not encrypted, if it says anything.
const NO_ENCRYPTOR: &[u8] = b"rosbag/NoEncryptor";

/// The field `op` as it is in every header, without its value.
pub(crate) const OP_FIELD: &[u8] = b"\x04\0\0\0op=";

impl RecordHeader {
    /// Parses the fields of a header. `None` if it is not one that bags have.
    pub(crate) fn parse(header: &[u8]) -> Option<Self> {
        let field = |name: &[u8]| find(header, name);
        let number = |name: &[u8]| u32_of(field(name)?);
        let [op] = field(b"op")? else { return None };
        Some(match *op {
            MESSAGE => {
                Self::Message { connection: number(b"conn")?, time: time_of(field(b"time")?)? }
            }
            BAG => Self::Bag {
                index_at: field(b"index_pos")?.try_into().ok().map(u64::from_le_bytes)?,
                connections: number(b"conn_count")?,
                chunks: number(b"chunk_count")?,
                encryptor: field(b"encryptor")
                    .filter(|name| *name != NO_ENCRYPTOR)
                    .unwrap_or_default()
                    .to_owned(),
            },
            INDEX => Self::Index { connection: number(b"conn")?, messages: number(b"count")? },
            CHUNK => Self::Chunk {
                compression: BagCompression::parse(field(b"compression")?)?,
                plain_len: number(b"size")?,
            },
            CHUNK_INFO => Self::ChunkInfo {
                summary: ChunkSummary::parse(header)?,
                connections: number(b"count")?,
            },
            CONNECTION => {
                Self::Connection { id: number(b"conn")?, topic: field(b"topic")?.to_owned() }
            }
            _ => return None,
        })
    }

    /// Whether it is one of those in chunks.
    pub(crate) fn is_content(&self) -> bool {
        matches!(self, Self::Message { .. } | Self::Connection { .. })
    }

    /// Whether only the record behind it tells whether the length of its data is right.
    pub(crate) fn has_unsure_len(&self) -> bool {
        self.entries_len().is_none()
    }

    /// The bytes of the entries in its data, if it says how many there are.
    fn entries_len(&self) -> Option<u64> {
        match self {
            Self::Index { messages, .. } => Some(u64::from(*messages) * INDEX_ENTRY as u64),
            Self::ChunkInfo { connections, .. } => Some(u64::from(*connections) * COUNT as u64),
            _ => None,
        }
    }
}

impl ChunkSummary {
    fn parse(header: &[u8]) -> Option<Self> {
        let time = |name: &[u8]| time_of(find(header, name)?);
        let chunk_at = find(header, b"chunk_pos")?.try_into().ok().map(u64::from_le_bytes)?;
        Some(Self { chunk_at, times: (time(b"start_time")?, time(b"end_time")?) })
    }
}

/// The bytes of an entry of an index: a time and an offset.
const INDEX_ENTRY: usize = 12;
/// The bytes of a connection and the number of its messages.
const COUNT: usize = 8;

/// The entries of an index: times, and places in the records of its chunk. `None` if it is not
/// whole.
pub(crate) fn index_entries(data: &[u8]) -> Option<Vec<(i64, u32)>> {
    let (entries, rest) = data.as_chunks::<INDEX_ENTRY>();
    let entry = |bytes: &[u8; INDEX_ENTRY]| time_of(bytes.get(..8)?).zip(u32_of(bytes.get(8..)?));
    rest.is_empty().then(|| entries.iter().map(entry).collect())?
}

/// Numbers of messages by connection, as the end of a bag lists them for a chunk.
pub(crate) fn message_counts(data: &[u8]) -> Option<BTreeMap<u32, u32>> {
    let (pairs, rest) = data.as_chunks::<COUNT>();
    let number = |pair: &[u8; COUNT], at: usize| u32_of(pair.get(at..at + 4)?);
    let counts: BTreeMap<u32, u32> =
        pairs.iter().map(|pair| number(pair, 0).zip(number(pair, 4))).collect::<Option<_>>()?;
    (rest.is_empty() && counts.len() == pairs.len()).then_some(counts)
}

fn u32_of(bytes: &[u8]) -> Option<u32> {
    bytes.try_into().ok().map(u32::from_le_bytes)
}

/// Seconds and nanoseconds.
fn time_of(bytes: &[u8]) -> Option<i64> {
    let (seconds, nanoseconds) = bytes.split_at_checked(4)?;
    let [seconds, nanoseconds] = [u32_of(seconds)?, u32_of(nanoseconds)?];
    Some(i64::from(seconds) * 1_000_000_000 + i64::from(nanoseconds))
}

/// The fields of a header, as name and value; ends with `None` if they are not whole.
pub(crate) fn fields(mut header: &[u8]) -> impl Iterator<Item = Option<(&[u8], &[u8])>> {
    std::iter::from_fn(move || {
        if header.is_empty() {
            return None;
        }
        let field = take_bytes(&mut header).and_then(|field| {
            let end = memchr::memchr(b'=', field)?;
            Some((field.get(..end)?, field.get(end + 1..)?))
        });
        if field.is_none() {
            header = &[];
        }
        Some(field)
    })
}

/// Whether a header of this length may begin with these bytes: none of its fields is longer.
fn may_begin_header(mut bytes: &[u8], mut len: usize) -> bool {
    while let Some((field, rest)) = bytes.split_first_chunk() {
        let field = usize::try_from(u32::from_le_bytes(*field)).unwrap_or(usize::MAX);
        let Some(left) = len.checked_sub(field.saturating_add(LENGTH)) else { return false };
        (bytes, len) = (rest.get(field..).unwrap_or_default(), left);
    }
    true
}

fn find<'h>(header: &'h [u8], name: &[u8]) -> Option<&'h [u8]> {
    let mut found = None;
    for field in fields(header) {
        let (key, value) = field?;
        if key == name {
            found = Some(value);
        }
    }
    found
}

/// Takes a length and that many bytes.
fn take_bytes<'b>(rest: &mut &'b [u8]) -> Option<&'b [u8]> {
    let (len, after) = rest.split_first_chunk()?;
    let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
    let (taken, after) = after.split_at_checked(len)?;
    *rest = after;
    Some(taken)
}

/// A record in memory.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) header: RecordHeader,
    /// Where its data begins, from its first byte on.
    pub(crate) data_at: usize,
    pub(crate) data_len: u32,
}

/// Why bytes are not the start of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRecord {
    /// They are too few.
    Short,
    Wrong(&'static str),
}

impl Record {
    /// The record that begins here. Its data need not be there.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, NoRecord> {
        let (len, rest) = bytes.split_first_chunk().ok_or(NoRecord::Short)?;
        let len = usize::try_from(u32::from_le_bytes(*len)).unwrap_or(usize::MAX);
        if len > MAX_HEADER {
            return Err(NoRecord::Wrong("the header of a record is too long"));
        }
        let wrong = NoRecord::Wrong("the header of a record is not valid");
        let Some((header, rest)) = rest.split_at_checked(len) else {
            return Err(if may_begin_header(rest, len) { NoRecord::Short } else { wrong });
        };
        let header = RecordHeader::parse(header).ok_or(wrong)?;
        let data_len = rest.first_chunk().ok_or(NoRecord::Short)?;
        let (data_at, data_len) = (2 * LENGTH + len, u32::from_le_bytes(*data_len));
        if header.entries_len().is_some_and(|len| len != u64::from(data_len)) {
            return Err(NoRecord::Wrong("a record says two lengths of its data"));
        }
        Ok(Self { header, data_at, data_len })
    }

    /// Where the next record begins, from its first byte on.
    pub(crate) fn len(&self) -> u64 {
        self.data_at as u64 + u64::from(self.data_len)
    }
}

/// The records at the start of a chunk, with their places and data, up to the first one that is not
/// whole, or not one of those in chunks.
pub(crate) fn whole_records(bytes: &[u8]) -> impl Iterator<Item = (usize, Record, &[u8])> {
    let mut next = 0;
    std::iter::from_fn(move || {
        let at = next;
        let (record, data) = whole_record(bytes.get(at..)?)?;
        next = at + record.data_at + data.len();
        Some((at, record, data))
    })
}

/// The record of a chunk at the start of these bytes, and its data.
pub(crate) fn whole_record(bytes: &[u8]) -> Option<(Record, &[u8])> {
    let record = Record::parse(bytes).ok().filter(|record| record.header.is_content())?;
    let end = record.data_at.checked_add(record.data_len as usize)?;
    let data = bytes.get(record.data_at..end)?;
    Some((record, data))
}

/// The most packed bytes of a chunk of this length: packing may make it a little longer.
pub(crate) fn max_packed(max_chunk: ByteSize) -> u64 {
    max_chunk.0.saturating_add(max_chunk.0 / 8).saturating_add(1 << 16)
}
