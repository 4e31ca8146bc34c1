//! What the source makes of files whose declarations are damaged, by their summaries.

use sluice_kit::contract::{SourceContents, gather_with};
use sluice_model::ReadContext;

use crate::kit::{Folder, channel, chunk, fields, header, message, read, schema, source};

/// What the summary of a file has besides its channels.
#[derive(Clone, Copy, Debug)]
struct Summary {
    is_chunked: bool,
    has_crc: bool,
    has_schemas: bool,
    /// How many channels the statistics count, if there are any.
    counted: Option<u32>,
    /// Whether chunks are listed, and their messages.
    index: Option<bool>,
}

impl Summary {
    fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for bits in 0..1 << 3 {
            for counted in [None, Some(1), Some(2)] {
                for index in [None, Some(false), Some(true)] {
                    let has = |bit: u32| bits >> bit & 1 == 1;
                    let [is_chunked, has_crc, has_schemas] = [has(0), has(1), has(2)];
                    all.push(Self { is_chunked, has_crc, has_schemas, counted, index });
                }
            }
        }
        all
    }

    /// A file of these parts with this summary, and where its parts begin.
    fn file(self, channel: &[u8], parts: &[&[u8]]) -> (Vec<u8>, Vec<usize>) {
        let (mut file, mut starts, mut entries) = (header(), Vec::new(), Vec::new());
        for part in parts {
            starts.push(file.len());
            if !self.is_chunked {
                file.extend(*part);
                continue;
            }
            let (at, len) = (file.len() as u64, part.len() as u64);
            file.extend(chunk(0, 99, part));
            let offsets = fields().u16(1).u64(0);
            let offsets = if self.index == Some(true) { offsets } else { fields() };
            let entry = fields().u64(0).u64(99).u64(at).u64(file.len() as u64 - at);
            let entry = entry.bytes(&offsets.0).u64(0).bytes(b"").u64(len).u64(len);
            entries.extend(entry.record(8));
        }
        file.extend(fields().u32(0).record(15));
        let start = file.len();
        if self.has_schemas {
            file.extend(schema(1, "t"));
        }
        file.extend(channel);
        if let Some(counted) = self.counted {
            let chunks = if self.is_chunked { parts.len() as u32 } else { 0 };
            let counts = fields().u64(6).u16(1).u32(counted).u32(0).u32(0).u32(chunks);
            file.extend(counts.u64(0).u64(5).bytes(b"").record(11));
        }
        if self.index.is_some() {
            file.extend(entries);
        }
        let footer = fields().u64(start as u64).u64(0).u32(0).record(2);
        let footer = &footer[..footer.len() - 4];
        let crc = crc32fast::hash(&[&file[start..], footer].concat());
        file.extend(footer);
        file.extend((if self.has_crc { crc } else { 0 }).to_le_bytes());
        file.extend(crate::kit::MAGIC);
        (file, starts)
    }
}

fn messages(times: std::ops::Range<u64>) -> Vec<u8> {
    times.flat_map(|n| message(1, n as u32, n, b"xyz")).collect()
}

fn topics(found: &SourceContents) -> Vec<(i64, &str)> {
    found.events.iter().map(|event| (event.timestamp, &*event.channel)).collect()
}

#[test]
fn messages_of_a_channel_whose_declaration_is_damaged_are_read_by_the_summary() {
    let declared = [schema(1, "t"), channel(1, 1, "/a")].concat();
    let first = [declared.clone(), messages(0..3)].concat();
    let behind: Vec<_> = (3..6).map(|n| (n, "/a")).collect();
    for summary in Summary::all() {
        let parts = [&first[..], &messages(3..6)];
        let (mut file, starts) = summary.file(&channel(1, 1, "/a"), &parts);
        assert_eq!((read(&file).events.len(), read(&file).damage), (6, vec![]), "{summary:?}");
        // In the chunk, or the first byte of its declarations.
        file[starts[0] + if summary.is_chunked { 70 } else { 0 }] ^= 0x40;
        let channel_at = starts[0] + schema(1, "t").len();
        if !summary.is_chunked {
            file[channel_at..channel_at + 9].fill(0);
        }
        let found = read(&file);
        let topics = topics(&found);
        assert!(topics.ends_with(&behind), "{summary:?}: {topics:?}, {:?}", found.damage);
        assert!(!found.damage.is_empty());
    }
}

#[test]
fn a_summary_that_a_declaration_contradicts_is_not_used_any_more() {
    let declared = |id, topic: &str| [schema(1, "t"), channel(id, 1, topic)].concat();
    let first = [declared(1, "/a"), channel(2, 1, "/c"), messages(0..3)].concat();
    let again = [declared(1, "/b"), messages(6..9), message(2, 0, 9, b"")].concat();
    let listed = [channel(1, 1, "/a"), channel(2, 1, "/c")].concat();
    let all = Summary::all();
    for summary in all.into_iter().filter(|summary| summary.is_chunked && !summary.has_crc) {
        let parts = [&first[..], &messages(3..6), &again];
        let (mut file, starts) = summary.file(&listed, &parts);
        file[starts[0] + 70] ^= 0x40;
        let found = read(&file);
        let expected = (3..9).map(|n| (n, if n < 6 { "/a" } else { "/b" }));
        assert_eq!(topics(&found), expected.collect::<Vec<_>>(), "{summary:?}");
        let reasons: Vec<_> = found.damage.iter().map(|(.., why)| why.as_str()).collect();
        assert!(reasons.iter().any(|why| why.contains("contradicts the summary")), "{reasons:?}");
        assert!(reasons.iter().any(|why| why.contains("channel 2, which is not")), "{reasons:?}");
    }
}

#[test]
fn a_channel_whose_type_neither_a_declaration_nor_the_summary_has_is_noted() {
    let first = [schema(1, "t"), channel(1, 1, "/a"), messages(0..3)].concat();
    for has_schemas in [true, false] {
        let summary = Summary {
            is_chunked: true,
            has_crc: true,
            has_schemas,
            counted: Some(1),
            index: Some(true),
        };
        let (mut file, starts) = summary.file(&channel(1, 1, "/a"), &[&first, &messages(3..6)]);
        let notes = |file: &[u8]| {
            let folder = Folder::new();
            let context = ReadContext::standalone("test");
            let found = gather_with(&*source(&folder.write(file)), 1, &context).unwrap();
            let notes: Vec<_> = context.losses.take_notes();
            let count = |text| notes.iter().filter(|(what, _)| what.contains(text)).count();
            (found.events.len(), count("type"), count("read by the summary"))
        };
        assert_eq!(notes(&file), (6, 0, 0));
        file[starts[0] + 70] ^= 0x40;
        let is_hint = usize::from(!has_schemas);
        assert_eq!(notes(&file), (3, is_hint, is_hint));
    }
}

#[test]
fn a_record_of_an_unknown_kind_with_zeros_is_no_damage() {
    let declared = [schema(1, "t"), channel(0, 1, "/a"), message(0, 0, 5, b"")].concat();
    let private = fields().raw(&[0; 40]).record(0x80);
    for summary in Summary::all().into_iter().filter(|summary| !summary.is_chunked) {
        let (file, _) = summary.file(&channel(0, 1, "/a"), &[&private, &declared]);
        let found = read(&file);
        assert_eq!((found.events.len(), found.damage), (1, vec![]), "{summary:?}");
    }
}
