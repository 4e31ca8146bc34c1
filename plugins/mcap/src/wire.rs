//! The records of the format: opcodes, reading their fields, and appending them. Follows no offset.
//!
//! All numbers are little-endian. Readers must ignore bytes after the last field of a record.

#![warn(clippy::indexing_slicing)]

use std::collections::BTreeMap;

use sluice_io::escape::printable;

/// The first and last bytes of a file. The sixth is the major version.
pub(crate) const MAGIC: [u8; 8] = *b"\x89MCAP0\r\n";
/// The length of a record's opcode and length.
pub(crate) const HEAD: u64 = 9;
/// The length of a message before its payload.
pub(crate) const MESSAGE_HEAD: usize = 22;
/// The length of the content of a footer.
pub(crate) const FOOTER: u64 = 20;
/// The length of the content of a data end.
pub(crate) const DATA_END: u64 = 4;

pub(crate) mod op {
    //! Opcodes.
    pub(crate) const HEADER: u8 = 0x01;
    pub(crate) const FOOTER: u8 = 0x02;
    pub(crate) const SCHEMA: u8 = 0x03;
    pub(crate) const CHANNEL: u8 = 0x04;
    pub(crate) const MESSAGE: u8 = 0x05;
    pub(crate) const CHUNK: u8 = 0x06;
    pub(crate) const MESSAGE_INDEX: u8 = 0x07;
    pub(crate) const CHUNK_INDEX: u8 = 0x08;
    pub(crate) const ATTACHMENT: u8 = 0x09;
    pub(crate) const ATTACHMENT_INDEX: u8 = 0x0a;
    pub(crate) const STATISTICS: u8 = 0x0b;
    pub(crate) const METADATA: u8 = 0x0c;
    pub(crate) const METADATA_INDEX: u8 = 0x0d;
    pub(crate) const SUMMARY_OFFSET: u8 = 0x0e;
    pub(crate) const DATA_END: u8 = 0x0f;
}

/// The shortest content of a record; `None` for opcodes that the format does not define.
pub(crate) fn min_len(opcode: u8) -> Option<u64> {
    Some(match opcode {
        op::HEADER | op::METADATA => 8,
        op::FOOTER => FOOTER,
        op::SCHEMA => 14,
        op::CHANNEL => 16,
        op::MESSAGE => MESSAGE_HEAD as u64,
        op::CHUNK => 40,
        op::MESSAGE_INDEX => 6,
        op::CHUNK_INDEX => 64,
        op::ATTACHMENT => 36,
        op::ATTACHMENT_INDEX => 48,
        op::STATISTICS => 46,
        op::METADATA_INDEX => 20,
        op::SUMMARY_OFFSET => 17,
        op::DATA_END => DATA_END,
        _ => return None,
    })
}

/// The name of a record, as the format's specification has it.
pub(crate) fn record_name(opcode: u8) -> &'static str {
    match opcode {
        op::HEADER => "Header",
        op::FOOTER => "Footer",
        op::SCHEMA => "Schema",
        op::CHANNEL => "Channel",
        op::MESSAGE => "Message",
        op::CHUNK => "Chunk",
        op::MESSAGE_INDEX => "MessageIndex",
        op::CHUNK_INDEX => "ChunkIndex",
        op::ATTACHMENT => "Attachment",
        op::ATTACHMENT_INDEX => "AttachmentIndex",
        op::STATISTICS => "Statistics",
        op::METADATA => "Metadata",
        op::METADATA_INDEX => "MetadataIndex",
        op::SUMMARY_OFFSET => "SummaryOffset",
        op::DATA_END => "DataEnd",
        _ => "non-standard",
    }
}

/// Opcode and content length of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) opcode: u8,
    pub(crate) len: u64,
}

impl Head {
    /// The head at the start of these bytes; `None` if they are fewer than one has.
    #[inline]
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let (opcode, rest) = bytes.split_first()?;
        let (len, _) = rest.split_first_chunk()?;
        Some(Self { opcode: *opcode, len: u64::from_le_bytes(*len) })
    }

    pub(crate) fn bytes(self) -> Vec<u8> {
        [&[self.opcode][..], &self.len.to_le_bytes()].concat()
    }

    /// The length of the whole record.
    pub(crate) fn record_len(self) -> u64 {
        self.len.saturating_add(HEAD)
    }

    /// Whether it is that of a chunk whose writer fills in its length when the chunk is complete.
    pub(crate) fn is_unfinished_chunk(self) -> bool {
        self.opcode == op::CHUNK && self.len == u64::MAX
    }
}

/// Reads the fields of a record in order. Every method is `None` beyond the end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordFields<'b>(pub(crate) &'b [u8]);

impl<'b> RecordFields<'b> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn take(&mut self, len: u64) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(len).ok()?)?;
        self.0 = rest;
        Some(taken)
    }

    /// Bytes after a 32-bit length: a string, a map or an array.
    pub(crate) fn bytes(&mut self) -> Option<&'b [u8]> {
        let len = self.u32()?;
        self.take(len.into())
    }

    pub(crate) fn text(&mut self) -> Option<&'b str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    /// A map of strings. The last of several values of a key counts.
    pub(crate) fn map(&mut self) -> Option<BTreeMap<String, String>> {
        let (mut pairs, mut map) = (RecordFields(self.bytes()?), BTreeMap::new());
        while !pairs.0.is_empty() {
            let (key, value) = (pairs.text()?, pairs.text()?);
            map.insert(key.to_owned(), value.to_owned());
        }
        Some(map)
    }
}

/// The most characters of a value that are shown.
const MAX_SHOWN: usize = 80;

/// The text of a field, safe to print, and not too long.
pub(crate) fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let short: String = text.chars().take(MAX_SHOWN).collect();
    let dots = if short.len() < text.len() { "…" } else { "" };
    format!("{}{dots}", printable(&short))
}

/// The declaration of a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SchemaRecord<'b> {
    pub(crate) id: u16,
    pub(crate) name: &'b str,
    pub(crate) encoding: &'b str,
    pub(crate) data: &'b [u8],
}

impl<'b> SchemaRecord<'b> {
    pub(crate) fn parse(content: &'b [u8]) -> Option<Self> {
        let mut fields = RecordFields(content);
        let (id, name, encoding) = (fields.u16()?, fields.text()?, fields.text()?);
        Some(Self { id, name, encoding, data: fields.bytes()? })
    }
}

/// The declaration of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChannelRecord<'b> {
    pub(crate) id: u16,
    /// 0 for none.
    pub(crate) schema: u16,
    pub(crate) topic: &'b [u8],
    pub(crate) encoding: &'b str,
    pub(crate) metadata: BTreeMap<String, String>,
}

impl<'b> ChannelRecord<'b> {
    pub(crate) fn parse(content: &'b [u8]) -> Option<Self> {
        let mut fields = RecordFields(content);
        let (id, schema, topic) = (fields.u16()?, fields.u16()?, fields.bytes()?);
        Some(Self { id, schema, topic, encoding: fields.text()?, metadata: fields.map()? })
    }
}

/// A message without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MessageHead {
    pub(crate) channel: u16,
    pub(crate) sequence: u32,
    pub(crate) log_time: u64,
    pub(crate) publish_time: u64,
}

impl MessageHead {
    /// The head and the payload.
    #[inline]
    pub(crate) fn parse(content: &[u8]) -> Option<(Self, &[u8])> {
        let mut fields = RecordFields(content);
        let head = Self {
            channel: fields.u16()?,
            sequence: fields.u32()?,
            log_time: fields.u64()?,
            publish_time: fields.u64()?,
        };
        Some((head, fields.0))
    }
}

/// A chunk without its records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChunkHead {
    pub(crate) start_time: u64,
    pub(crate) end_time: u64,
    pub(crate) plain_len: u64,
    /// 0 if it was not computed.
    pub(crate) crc: u32,
    pub(crate) compression: Vec<u8>,
    /// Where the records are in the content, and their length there.
    pub(crate) records_at: u64,
    pub(crate) packed_len: u64,
}

/// The longest name of a compression that a chunk may have.
const MAX_COMPRESSION: usize = 64;
/// As many leading bytes of a chunk's content as are needed for its head.
pub(crate) const CHUNK_HEAD: usize = 40 + MAX_COMPRESSION;

impl ChunkHead {
    /// The head of a chunk whose content starts with these bytes.
    pub(crate) fn parse(content: &[u8]) -> Option<Self> {
        let mut fields = RecordFields(content);
        let (start_time, end_time) = (fields.u64()?, fields.u64()?);
        let (plain_len, crc) = (fields.u64()?, fields.u32()?);
        let compression = fields.bytes().filter(|name| name.len() <= MAX_COMPRESSION)?.to_vec();
        let packed_len = fields.u64()?;
        let records_at = (content.len() - fields.0.len()) as u64;
        Some(Self { start_time, end_time, plain_len, crc, compression, records_at, packed_len })
    }

    /// The length of the content that the head accounts for.
    pub(crate) fn content_len(&self) -> u64 {
        self.records_at.saturating_add(self.packed_len)
    }
}

/// An entry of the index of chunks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChunkIndexRecord {
    pub(crate) start_time: u64,
    pub(crate) end_time: u64,
    pub(crate) chunk_start: u64,
    /// With the head of the record.
    pub(crate) chunk_len: u64,
    /// Where the message index of each channel is.
    pub(crate) message_indexes: Vec<(u16, u64)>,
    pub(crate) message_indexes_len: u64,
    pub(crate) compression: Vec<u8>,
    pub(crate) packed_len: u64,
    pub(crate) plain_len: u64,
}

impl ChunkIndexRecord {
    pub(crate) fn parse(content: &[u8]) -> Option<Self> {
        let mut fields = RecordFields(content);
        let (start_time, end_time) = (fields.u64()?, fields.u64()?);
        let (chunk_start, chunk_len) = (fields.u64()?, fields.u64()?);
        let (mut entries, mut message_indexes) = (RecordFields(fields.bytes()?), Vec::new());
        while !entries.0.is_empty() {
            message_indexes.push((entries.u16()?, entries.u64()?));
        }
        Some(Self {
            start_time,
            end_time,
            chunk_start,
            chunk_len,
            message_indexes,
            message_indexes_len: fields.u64()?,
            compression: fields.bytes()?.to_vec(),
            packed_len: fields.u64()?,
            plain_len: fields.u64()?,
        })
    }
}

/// The times and places of a channel's messages in a chunk, as pairs.
pub(crate) fn parse_message_index(content: &[u8]) -> Option<(u16, Vec<(u64, u64)>)> {
    let mut fields = RecordFields(content);
    let (channel, mut entries) = (fields.u16()?, RecordFields(fields.bytes()?));
    let mut pairs = Vec::with_capacity(entries.0.len() / 16);
    while !entries.0.is_empty() {
        pairs.push((entries.u64()?, entries.u64()?));
    }
    Some((channel, pairs))
}

/// Whether the content of a message, of this length, reads as that of a message index: one wrong
/// bit turns the one record into the other.
pub(crate) fn looks_like_message_index(content: &[u8], len: u64) -> bool {
    let Some((_, pairs)) = parse_message_index(content) else { return false };
    let is_whole = len == 6 + 16 * pairs.len() as u64;
    let is_in_chunk = |(_, place): &(u64, u64)| *place <= u64::from(u32::MAX);
    !pairs.is_empty() && is_whole && pairs.iter().all(is_in_chunk)
}

/// Whether the content of a message reads as that of a channel: one wrong bit turns the one record
/// into the other.
pub(crate) fn looks_like_channel(content: &[u8]) -> bool {
    ChannelRecord::parse(content).is_some_and(|record| {
        let ChannelRecord { topic, encoding, .. } = record;
        let is_text = |text: &str| !text.contains(char::is_control);
        let topic = std::str::from_utf8(topic).unwrap_or("\0");
        // A topic and an encoding are rarely the bytes of a number and a time.
        !topic.is_empty() && is_text(topic) && is_text(encoding)
    })
}

/// Numbers about a whole file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Statistics {
    pub(crate) messages: u64,
    pub(crate) schemas: u16,
    pub(crate) channels: u32,
    pub(crate) attachments: u32,
    pub(crate) metadata: u32,
    pub(crate) chunks: u32,
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// By channel; empty if unknown.
    pub(crate) counts: BTreeMap<u16, u64>,
}

impl Statistics {
    pub(crate) fn parse(content: &[u8]) -> Option<Self> {
        let mut fields = RecordFields(content);
        let mut read = Self {
            messages: fields.u64()?,
            schemas: fields.u16()?,
            channels: fields.u32()?,
            attachments: fields.u32()?,
            metadata: fields.u32()?,
            chunks: fields.u32()?,
            start: fields.u64()?,
            end: fields.u64()?,
            counts: BTreeMap::new(),
        };
        let mut entries = RecordFields(fields.bytes()?);
        while !entries.0.is_empty() {
            read.counts.insert(entries.u16()?, entries.u64()?);
        }
        Some(read)
    }
}

/// An attachment without its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AttachmentHead {
    pub(crate) log_time: u64,
    pub(crate) create_time: u64,
    pub(crate) name: Vec<u8>,
    pub(crate) media_type: Vec<u8>,
    pub(crate) data_len: u64,
}

impl AttachmentHead {
    /// The length of the fields up to the data.
    pub(crate) fn len(&self) -> u64 {
        let numbers = size_of::<[u64; 3]>() + size_of::<[u32; 2]>();
        (numbers + self.name.len() + self.media_type.len()) as u64
    }

    /// A checksum of all that the index of attachments repeats.
    pub(crate) fn crc(&self) -> u32 {
        let mut fields = Vec::new();
        for number in [self.log_time, self.create_time, self.data_len] {
            fields.u64(number);
        }
        fields.bytes(&self.name);
        fields.extend_from_slice(&self.media_type);
        crc32fast::hash(&fields)
    }

    /// The head of an attachment whose content starts with these bytes.
    pub(crate) fn parse(content: &[u8]) -> Option<Self> {
        let mut fields = RecordFields(content);
        Some(Self {
            log_time: fields.u64()?,
            create_time: fields.u64()?,
            name: fields.bytes()?.to_vec(),
            media_type: fields.bytes()?.to_vec(),
            data_len: fields.u64()?,
        })
    }
}

/// Appends fields, and records made of them.
pub(crate) trait Append {
    fn u16(&mut self, value: u16);
    fn u32(&mut self, value: u32);
    fn u64(&mut self, value: u64);
    /// Bytes after their 32-bit length. Callers keep them below 4 GiB.
    fn bytes(&mut self, bytes: &[u8]);
    /// A record whose content `fill` appends.
    fn record(&mut self, opcode: u8, fill: impl FnOnce(&mut Vec<u8>));
    /// An array or map: a 32-bit length, and what `fill` appends.
    fn array(&mut self, fill: impl FnOnce(&mut Vec<u8>));
}

impl Append for Vec<u8> {
    fn u16(&mut self, value: u16) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.u32(bytes.len() as u32);
        self.extend_from_slice(bytes);
    }

    fn record(&mut self, opcode: u8, fill: impl FnOnce(&mut Vec<u8>)) {
        self.push(opcode);
        let at = self.len();
        self.u64(0);
        fill(self);
        let len = (self.len() - at - size_of::<u64>()) as u64;
        if let Some(place) = self.get_mut(at..at + size_of::<u64>()) {
            place.copy_from_slice(&len.to_le_bytes());
        }
    }

    fn array(&mut self, fill: impl FnOnce(&mut Vec<u8>)) {
        let at = self.len();
        self.u32(0);
        fill(self);
        let len = (self.len() - at - size_of::<u32>()) as u32;
        if let Some(place) = self.get_mut(at..at + size_of::<u32>()) {
            place.copy_from_slice(&len.to_le_bytes());
        }
    }
}

/// Appends a map of strings.
pub(crate) fn append_map(out: &mut Vec<u8>, map: &BTreeMap<String, String>) {
    out.array(|out| {
        for (key, value) in map {
            out.bytes(key.as_bytes());
            out.bytes(value.as_bytes());
        }
    });
}
