//! Checks files as `mcap doctor` does.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::json;
use sluice_io::tasks::TaskPool;
use sluice_model::{Clock, EmbeddedSchema, Encoding, SinkContext};

use crate::kit::{MAGIC, TestEvent, event, read, write_with};

/// A record: its position, opcode and content.
type Record<'b> = (u64, u8, &'b [u8]);

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// The records that fill these bytes.
fn records(mut bytes: &[u8], mut at: u64) -> Vec<Record<'_>> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let len = u64_at(bytes, 1) as usize;
        all.push((at, bytes[0], &bytes[9..9 + len]));
        bytes = &bytes[9 + len..];
        at += 9 + len as u64;
    }
    all
}

/// What was declared, and is counted.
#[derive(Default)]
struct Checkup {
    schemas: BTreeMap<u16, Vec<u8>>,
    channels: BTreeMap<u16, Vec<u8>>,
    counts: BTreeMap<u16, u64>,
    times: Option<(u64, u64)>,
    /// The entries that the index of chunks should have.
    chunks: Vec<Vec<u8>>,
}

impl Checkup {
    fn declare(&mut self, opcode: u8, content: &[u8]) {
        let id = u16_at(content, 0);
        if opcode == 4 {
            let schema = u16_at(content, 2);
            assert!(schema == 0 || self.schemas.contains_key(&schema), "a schema comes first");
        } else {
            assert_ne!(id, 0, "a schema has a number");
        }
        let all = if opcode == 3 { &mut self.schemas } else { &mut self.channels };
        let known = all.entry(id).or_insert_with(|| content.to_vec());
        assert_eq!(known, content, "a number means one thing");
    }

    /// Checks a chunk, and the message indexes behind it.
    fn chunk(&mut self, chunk: Record<'_>, indexes: &[Record<'_>]) {
        let (at, _, content) = chunk;
        let (start, end, len) = (u64_at(content, 0), u64_at(content, 8), u64_at(content, 16));
        let (crc, name_len) = (u32_at(content, 24), u32_at(content, 28) as usize);
        let name = &content[32..32 + name_len];
        let packed = &content[40 + name_len..];
        assert_eq!(u64_at(content, 32 + name_len), packed.len() as u64);
        let plain = match name {
            b"zstd" => zstd::bulk::decompress(packed, len as usize).unwrap(),
            b"lz4" => {
                let mut plain = Vec::new();
                let mut from = lz4_flex::frame::FrameDecoder::new(packed);
                std::io::copy(&mut from, &mut plain).unwrap();
                plain
            }
            name => {
                assert_eq!(name, b"");
                packed.to_vec()
            }
        };
        assert_eq!((plain.len() as u64, crc32fast::hash(&plain)), (len, crc));
        let mut by_channel = BTreeMap::<u16, Vec<u8>>::new();
        let (mut first, mut last) = (u64::MAX, 0);
        for (place, opcode, content) in records(&plain, 0) {
            if opcode != 5 {
                assert!(opcode == 3 || opcode == 4, "only declarations and messages");
                self.declare(opcode, content);
                continue;
            }
            let (id, time) = (u16_at(content, 0), u64_at(content, 6));
            assert!(self.channels.contains_key(&id), "a channel comes first");
            *self.counts.entry(id).or_default() += 1;
            (first, last) = (first.min(time), last.max(time));
            let pairs = by_channel.entry(id).or_default();
            pairs.extend([time, place].iter().flat_map(|n| n.to_le_bytes()));
        }
        assert_eq!((start, end), (first, last));
        let times = self.times.get_or_insert((first, last));
        *times = (times.0.min(first), times.1.max(last));
        let mut offsets = Vec::new();
        for (at, _, content) in indexes {
            let id = u16_at(content, 0);
            assert_eq!(by_channel.remove(&id).unwrap(), content[6..]);
            offsets.extend(id.to_le_bytes().into_iter().chain(at.to_le_bytes()));
        }
        assert!(by_channel.is_empty(), "every channel has an index");
        let indexes_len: u64 = indexes.iter().map(|(_, _, content)| content.len() as u64 + 9).sum();
        let mut entry = Vec::new();
        for number in [start, end, at, content.len() as u64 + 9] {
            entry.extend(number.to_le_bytes());
        }
        entry.extend((offsets.len() as u32).to_le_bytes().into_iter().chain(offsets));
        entry.extend(indexes_len.to_le_bytes());
        entry.extend((name_len as u32).to_le_bytes().iter().chain(name));
        entry.extend((packed.len() as u64).to_le_bytes());
        entry.extend(len.to_le_bytes());
        self.chunks.push(entry);
    }

    /// Checks the summary, up to the footer.
    fn summary(&self, summary: &[Record<'_>]) {
        let groups: Vec<u8> = summary.iter().map(|(_, opcode, _)| *opcode).collect();
        let mut once = groups.clone();
        once.dedup();
        assert_eq!(once.iter().collect::<BTreeSet<_>>().len(), once.len(), "grouped: {groups:?}");
        let of = |opcode: u8| {
            let found = summary.iter().filter(move |(_, found, _)| *found == opcode);
            found.map(|(_, _, content)| content.to_vec()).collect::<Vec<_>>()
        };
        assert_eq!(of(3), self.schemas.values().cloned().collect::<Vec<_>>());
        assert_eq!(of(4), self.channels.values().cloned().collect::<Vec<_>>());
        assert_eq!(of(8), self.chunks);
        let [statistics] = &of(11)[..] else { panic!("there is one") };
        assert_eq!(u64_at(statistics, 0), self.counts.values().sum::<u64>());
        assert_eq!(usize::from(u16_at(statistics, 8)), self.schemas.len());
        assert_eq!(u32_at(statistics, 10) as usize, self.channels.len());
        assert_eq!(u32_at(statistics, 22) as usize, self.chunks.len());
        let times = (u64_at(statistics, 26), u64_at(statistics, 34));
        assert_eq!(times, self.times.unwrap_or_default());
        let counts = statistics[46..].chunks(10).map(|pair| (u16_at(pair, 0), u64_at(pair, 2)));
        assert_eq!(counts.collect::<BTreeMap<_, _>>(), self.counts);
        for offset in of(14) {
            let (start, len) = (u64_at(&offset, 1), u64_at(&offset, 9));
            let group = summary.iter().filter(|(_, opcode, _)| *opcode == offset[0]);
            let first = group.clone().map(|(at, ..)| *at).min();
            let sum: u64 = group.map(|(_, _, content)| content.len() as u64 + 9).sum();
            assert_eq!((first, sum), (Some(start), len));
        }
    }
}

/// Checks a file that the sink has written.
pub(crate) fn check(file: &[u8]) {
    assert!(file.starts_with(MAGIC) && file.ends_with(MAGIC));
    let all = records(&file[8..file.len() - 8], 8);
    assert_eq!(all[0].1, 1);
    assert!(all[0].2.ends_with(concat!("sluice ", env!("CARGO_PKG_VERSION")).as_bytes()));
    let (mut checkup, mut at) = (Checkup::default(), 1);
    while all[at].1 != 15 {
        let (chunk, mut next) = (all[at], at + 1);
        // Channels without messages are not in chunks.
        if chunk.1 == 3 || chunk.1 == 4 {
            checkup.declare(chunk.1, chunk.2);
            at = next;
            continue;
        }
        assert_eq!(chunk.1, 6, "only chunks hold messages");
        while all[next].1 == 7 {
            next += 1;
        }
        checkup.chunk(chunk, &all[at + 1..next]);
        at = next;
    }
    let data_end = all[at];
    assert_eq!(u32_at(data_end.2, 0), crc32fast::hash(&file[..data_end.0 as usize]));
    let footer = all[all.len() - 1];
    assert_eq!((footer.1, footer.2.len()), (2, 20));
    checkup.summary(&all[at + 1..all.len() - 1]);
    assert_eq!(u64_at(footer.2, 0), all[at + 1].0);
    let summary = &file[all[at + 1].0 as usize..file.len() - 12];
    assert_eq!(u32_at(footer.2, 16), crc32fast::hash(summary));
}

fn channels() -> impl Strategy<Value = TestEvent> {
    let schema = prop_oneof![Just(None), Just(Some("a")), Just(Some("b"))];
    let encoding = prop_oneof![Just(Encoding::Cdr), Just(Encoding::Lcm), Just(Encoding::Unknown)];
    ("[a-c]", "log|x", schema, encoding, any::<bool>()).prop_map(|fields| {
        let (name, source, schema, encoding, is_relative) = fields;
        let mut event = event(0, &name, b"");
        event.channel.source = source.into();
        event.channel.encoding = encoding;
        event.channel.type_name = schema.map(Into::into);
        event.channel.schema = schema
            .map(|data| EmbeddedSchema { encoding: "x".into(), data: data.as_bytes().into() });
        event.channel.clock = if is_relative { Clock::Relative } else { Clock::Utc };
        event
    })
}

fn events() -> impl Strategy<Value = Vec<TestEvent>> {
    let payload = proptest::collection::vec(any::<u8>(), 0..60);
    let one = (channels(), 0..i64::MAX, any::<u32>(), payload);
    let one = one.prop_map(|(event, time, number, payload)| TestEvent {
        time,
        number: number.into(),
        payload,
        ..event
    });
    proptest::collection::vec(one, 0..60)
}

proptest! {
    #[test]
    fn what_is_written_is_healthy_and_comes_back(
        events in events(),
        chunk in 1u64..2_000,
        compression in prop_oneof![Just("zstd"), Just("lz4"), Just("none")],
        batch in 1usize..20,
    ) {
        let options = json!({ "chunk": chunk, "compression": compression });
        let write = |batch: usize, tasks: &TaskPool| {
            let context = SinkContext::standalone();
            write_with(&events, options.clone(), (batch, tasks, &context))
        };
        let file = write(batch, &TaskPool::default());
        check(&file.bytes);
        prop_assert_eq!(file.written.events, events.len() as u64);
        let threads = TaskPool::thread_per_task(4);
        prop_assert_eq!(&write(events.len().max(1), &threads).bytes, &file.bytes);
        // The source of these channels is called `test` when they are read.
        let expected: Vec<_> = events.iter().map(|event| {
            let mut plain = event.plain();
            if plain.source == "log" {
                plain.source = "test".into();
            }
            plain
        }).collect();
        let read = read(&file.bytes);
        prop_assert_eq!(read.damage, vec![]);
        prop_assert_eq!(read.events, expected);
    }
}
