//! Files with every combination of what the format leaves to writers, as in its own conformance
//! tests: none of them is damaged.

use std::sync::Arc;

use sluice_kit::InputFaults;
use sluice_kit::contract::{frames, gather_with, sample_positions};
use sluice_model::{Query, ReadContext, Split};

use crate::kit::{Fields, Folder, MAGIC, fields, read, source};

/// What the files contain.
const CONTENTS: [&[Content]; 7] = [
    &[],
    &[Content::Message(2, 1)],
    &[Content::Message(0, 1)],
    &[Content::Attachment],
    &[Content::Metadata],
    &[
        Content::Message(0, 0),
        Content::Message(0, 2),
        Content::Message(0, 1),
        Content::Message(0, 3),
        Content::Message(0, 3),
        Content::Message(0, 5),
        Content::Message(0, 4),
        Content::Message(0, 7),
        Content::Message(0, 8),
        Content::Message(0, 9),
    ],
    &[Content::Metadata, Content::Message(2, 1), Content::Attachment, Content::Message(2, 2)],
];

#[derive(Clone, Copy)]
enum Content {
    /// With this schema, at this time.
    Message(u16, u64),
    Attachment,
    Metadata,
}

/// What a writer adds.
#[derive(Clone, Copy, Debug)]
struct Variant {
    chunks: bool,
    message_index: bool,
    statistics: bool,
    repeated_schemas: bool,
    repeated_channels: bool,
    attachment_index: bool,
    metadata_index: bool,
    chunk_index: bool,
    offsets: bool,
    padding: bool,
}

impl Variant {
    fn all() -> impl Iterator<Item = Self> {
        (0..1 << 10).map(|bits: u32| {
            let has = |bit: u32| bits >> bit & 1 == 1;
            Self {
                chunks: has(0),
                message_index: has(1),
                statistics: has(2),
                repeated_schemas: has(3),
                repeated_channels: has(4),
                attachment_index: has(5),
                metadata_index: has(6),
                chunk_index: has(7),
                offsets: has(8),
                padding: has(9),
            }
        })
    }

    /// A record that may have more fields than are known.
    fn record(self, fields: Fields, opcode: u8) -> Vec<u8> {
        let fields = if self.padding { fields.raw(&[1, 0xff, 0xff]) } else { fields };
        fields.record(opcode)
    }

    fn schema(self, id: u16) -> Vec<u8> {
        if id == 0 {
            return Vec::new();
        }
        self.record(fields().u16(id).bytes(b"Example").bytes(b"c").bytes(&[4, 5, 6]), 3)
    }

    fn channel(self, schema: u16) -> Vec<u8> {
        let map = fields().bytes(b"foo").bytes(b"bar").0;
        let record = fields().u16(1).u16(schema).bytes(b"example").bytes(b"a").bytes(&map);
        self.record(record, 4)
    }

    /// A chunk of records, its message index, and its entry in the index of chunks at `at`.
    fn chunk(self, at: u64, records: &[u8], times: &[(u64, u64)]) -> (Vec<u8>, Vec<u8>) {
        let first = times.iter().map(|(time, _)| *time).min().unwrap_or(0);
        let last = times.iter().map(|(time, _)| *time).max().unwrap_or(0);
        let (len, crc) = (records.len() as u64, crc32fast::hash(records));
        let head = fields().u64(first).u64(last).u64(len).u32(crc).bytes(b"").u64(len);
        let mut chunk = self.record(head.raw(records), 6);
        let chunk_len = chunk.len() as u64;
        let mut offsets = fields();
        if self.message_index && !times.is_empty() {
            offsets = offsets.u16(1).u64(at + chunk_len);
            let pairs = times.iter().fold(fields(), |f, (time, place)| f.u64(*time).u64(*place));
            chunk.extend(self.record(fields().u16(1).bytes(&pairs.0), 7));
        }
        let index_len = chunk.len() as u64 - chunk_len;
        let entry = fields().u64(first).u64(last).u64(at).u64(chunk_len).bytes(&offsets.0);
        let entry = entry.u64(index_len).bytes(b"").u64(len).u64(len);
        (chunk, self.record(entry, 8))
    }

    fn file(self, contents: &[Content]) -> Vec<u8> {
        let mut file = MAGIC.to_vec();
        file.extend(self.record(fields().bytes(b"").bytes(b""), 1));
        let (mut records, mut times, mut schema) = (Vec::new(), Vec::new(), None);
        let (mut attachments, mut metadata) = (Vec::new(), Vec::new());
        for content in contents {
            match content {
                Content::Message(id, time) => {
                    if schema.replace(*id).is_none() {
                        records.extend(self.schema(*id));
                        records.extend(self.channel(*id));
                    }
                    times.push((*time, records.len() as u64));
                    let message = fields().u16(1).u32(10).u64(*time).u64(2).raw(&[1, 2, 3]);
                    records.extend(message.record(5));
                }
                Content::Attachment => {
                    let content = fields().u64(2).u64(1).bytes(b"myFile").bytes(b"a/b");
                    let content = content.u64(3).raw(&[1, 2, 3]);
                    let crc = crc32fast::hash(&content.0);
                    let record = self.record(content.u32(crc), 9);
                    let index = fields().u64(file.len() as u64).u64(record.len() as u64);
                    let index = index.u64(2).u64(1).u64(3).bytes(b"myFile").bytes(b"a/b");
                    attachments.extend(self.record(index, 10));
                    file.extend(record);
                }
                Content::Metadata => {
                    let map = fields().bytes(b"foo").bytes(b"bar").0;
                    let record = self.record(fields().bytes(b"myMetadata").bytes(&map), 12);
                    let index = fields().u64(file.len() as u64).u64(record.len() as u64);
                    metadata.extend(self.record(index.bytes(b"myMetadata"), 13));
                    file.extend(record);
                }
            }
        }
        let mut chunk_index = Vec::new();
        if self.chunks && !records.is_empty() {
            let (chunk, entry) = self.chunk(file.len() as u64, &records, &times);
            (records, chunk_index) = (chunk, entry);
        }
        file.extend(records);
        file.extend(self.record(fields().u32(crc32fast::hash(&file)), 15));
        let count = times.len() as u64;
        let kinds = [attachments.len(), metadata.len(), chunk_index.len()].map(|n| n.min(1) as u32);
        let counts = fields().u16(1).u64(count).0;
        let counts = if count > 0 { counts } else { Vec::new() };
        let statistics = fields().u64(count).u16(schema.unwrap_or(0).min(1));
        let statistics = statistics.u32(count.min(1) as u32).u32(kinds[0]).u32(kinds[1]);
        let statistics = statistics.u32(kinds[2]).u64(0).u64(9).bytes(&counts);
        let groups = [
            (3, self.repeated_schemas, schema.map(|id| self.schema(id)).unwrap_or_default()),
            (4, self.repeated_channels, schema.map(|id| self.channel(id)).unwrap_or_default()),
            (11, self.statistics, self.record(statistics, 11)),
            (8, self.chunk_index, chunk_index),
            (10, self.attachment_index, attachments),
            (13, self.metadata_index, metadata),
        ];
        self.finish(file, &groups)
    }

    /// Adds the summary and the footer.
    fn finish(self, mut file: Vec<u8>, groups: &[(u8, bool, Vec<u8>)]) -> Vec<u8> {
        let (start, mut offsets) = (file.len() as u64, Vec::new());
        for (opcode, _, group) in groups.iter().filter(|(_, is_in, g)| *is_in && !g.is_empty()) {
            let place = fields().raw(&[*opcode]).u64(file.len() as u64).u64(group.len() as u64);
            offsets.extend(self.record(place, 14));
            file.extend(group);
        }
        let is_empty = file.len() as u64 == start;
        let offsets_start = if self.offsets && !is_empty { file.len() as u64 } else { 0 };
        if offsets_start > 0 {
            file.extend(offsets);
        }
        let start = if is_empty { 0 } else { start };
        let footer = fields().u64(start).u64(offsets_start).u32(0).record(2);
        let mut crc = crc32fast::Hasher::new();
        if !is_empty {
            crc.update(&file[start as usize..]);
        }
        crc.update(&footer[..footer.len() - 4]);
        file.extend(&footer[..footer.len() - 4]);
        file.extend(crc.finalize().to_le_bytes());
        file.extend(MAGIC);
        file
    }
}

#[test]
fn every_variant_is_read_whole() {
    for contents in CONTENTS {
        let times = contents.iter().filter_map(|content| match content {
            Content::Message(_, time) => Some(*time as i64),
            _ => None,
        });
        let times: Vec<i64> = times.collect();
        for variant in Variant::all() {
            let read = read(&variant.file(contents));
            let found: Vec<i64> = read.events.iter().map(|event| event.timestamp).collect();
            assert_eq!((found, read.damage), (times.clone(), vec![]), "{variant:?}");
        }
    }
}

#[test]
fn no_variant_has_faults() {
    let folder = Folder::new();
    for contents in CONTENTS {
        for variant in Variant::all().filter(|variant| variant.message_index) {
            let path = folder.write(&variant.file(contents));
            let source = source(&path);
            // Times of statistics are those of all messages; one message has another.
            let faults: Vec<String> = source.faults(&path).unwrap();
            let faults = faults.iter().filter(|fault| !fault.contains("times are"));
            assert_eq!(faults.collect::<Vec<_>>(), Vec::<&String>::new(), "{variant:?}");
            assert!(!source.findings(&path).unwrap().is_empty());
        }
    }
}

#[test]
fn what_is_verified_of_streams_is_what_is_verified_of_files() {
    let folder = Folder::new();
    let all = |bytes: &[u8], is_stream| {
        let bytes = if is_stream { frames(&[bytes], &[]) } else { bytes.to_vec() };
        let path = folder.write(&bytes);
        let (source, mut context) = (source(&path), ReadContext::standalone("log"));
        let collected = Arc::new(InputFaults::collecting());
        context.run = context.run.sharing(&collected);
        let contents = gather_with(&*source, u64::MAX, &context).unwrap();
        let mut faults = [source.faults(&path).unwrap(), collected.take()].concat();
        faults.sort();
        (contents.damage.is_empty(), faults)
    };
    let both = |bytes: &[u8], what: &str| {
        let [(is_whole, plain), (_, stream)] = [false, true].map(|stream| all(bytes, stream));
        assert!(!is_whole || plain == stream, "{what}: {plain:?}, as a stream {stream:?}");
        plain.len()
    };
    for contents in CONTENTS {
        for variant in Variant::all().filter(|variant| variant.message_index && variant.offsets) {
            both(&variant.file(contents), &format!("{variant:?}"));
        }
    }
    let mut found = 0;
    for padding in [false, true] {
        let whole = Variant { padding, ..Variant::all().last().unwrap() }.file(CONTENTS[6]);
        for at in sample_positions(whole.len(), 100) {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            found += both(&changed, &format!("byte {at} of {}", whole.len()));
            both(&whole[..at], &format!("{at} bytes of {}", whole.len()));
        }
    }
    assert!(found > 50, "{found}");
}

#[test]
fn chunks_that_no_index_lists_are_not_read_at_once() {
    let folder = Folder::new();
    let contents = vec![Content::Message(2, 1); 300];
    let all = Variant::all().filter(|variant| variant.chunks && variant.message_index);
    for variant in all.filter(|variant| variant.repeated_schemas && variant.repeated_channels) {
        let source = source(&folder.write(&variant.file(&contents)));
        let splits = source.splits(1 << 20, &Query::default()).unwrap();
        let is_short = splits.iter().all(|split| split.bytes.unwrap() <= Split::MAX_TASK_BYTES);
        assert_eq!(is_short, variant.chunk_index, "{variant:?}");
    }
}
