//! Writing records by hand, writing files with the sink, and reading files.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sluice_io::tasks::TaskPool;
use sluice_kit::contract::{PlainEvent, SourceContents, gather, overwrite};
use sluice_model::{
    BatchBuilder, BlockPool, Channel, Encoding, Error, Name, PrepareContext, Registry, SinkContext,
    Source, Written,
};

pub(crate) const MAGIC: &[u8] = b"\x89MCAP0\r\n";

/// Appends fields.
#[derive(Default)]
pub(crate) struct Fields(pub(crate) Vec<u8>);

impl Fields {
    pub(crate) fn u16(mut self, value: u16) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }

    pub(crate) fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend((bytes.len() as u32).to_le_bytes());
        self.0.extend(bytes);
        self
    }

    pub(crate) fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    /// The record with these fields.
    pub(crate) fn record(self, opcode: u8) -> Vec<u8> {
        [&[opcode][..], &(self.0.len() as u64).to_le_bytes(), &self.0].concat()
    }
}

pub(crate) fn fields() -> Fields {
    Fields::default()
}

pub(crate) fn header() -> Vec<u8> {
    [MAGIC, &fields().bytes(b"").bytes(b"test").record(1)].concat()
}

pub(crate) fn schema(id: u16, name: &str) -> Vec<u8> {
    fields().u16(id).bytes(name.as_bytes()).bytes(b"ros2msg").bytes(b"int32 x").record(3)
}

pub(crate) fn channel(id: u16, schema: u16, topic: &str) -> Vec<u8> {
    fields().u16(id).u16(schema).bytes(topic.as_bytes()).bytes(b"cdr").bytes(b"").record(4)
}

pub(crate) fn message(channel: u16, sequence: u32, time: u64, payload: &[u8]) -> Vec<u8> {
    fields().u16(channel).u32(sequence).u64(time).u64(time).raw(payload).record(5)
}

/// A chunk of these records, uncompressed, with its checksum.
pub(crate) fn chunk(start: u64, end: u64, records: &[u8]) -> Vec<u8> {
    let len = records.len() as u64;
    let crc = crc32fast::hash(records);
    chunk_with(start, end, (len, crc), "", records)
}

/// A chunk with this length and checksum.
pub(crate) fn chunk_with(
    start: u64,
    end: u64,
    (len, crc): (u64, u32),
    compression: &str,
    packed: &[u8],
) -> Vec<u8> {
    let head = fields().u64(start).u64(end).u64(len).u32(crc).bytes(compression.as_bytes());
    head.u64(packed.len() as u64).raw(packed).record(6)
}

/// The end of a file without a summary.
pub(crate) fn end() -> Vec<u8> {
    let footer = fields().u64(0).u64(0).u32(0).record(2);
    [fields().u32(0).record(15), footer, MAGIC.to_vec()].concat()
}

pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, bytes: &[u8]) -> PathBuf {
        let path = self.at("in.mcap");
        overwrite(&path, bytes).unwrap();
        path
    }
}

pub(crate) fn source(path: &Path) -> Box<dyn Source> {
    let options = json!({ "path": path, "max_chunk": "2MiB" });
    Registry::linked().source("mcap", options).unwrap()
}

/// Everything read from these bytes, whole and in splits.
pub(crate) fn read(bytes: &[u8]) -> SourceContents {
    let folder = Folder::new();
    let source = source(&folder.write(bytes));
    let whole = gather(&*source, u64::MAX).unwrap();
    assert_eq!(gather(&*source, 1).unwrap(), whole);
    whole
}

/// The times of the events in these bytes, which are not damaged.
#[track_caller]
pub(crate) fn times(bytes: &[u8]) -> Vec<i64> {
    let contents = read(bytes);
    assert_eq!(contents.damage, []);
    contents.events.iter().map(|event| event.timestamp).collect()
}

/// An event of these tests: time, number, channel, payload.
#[derive(Clone, Debug)]
pub(crate) struct TestEvent {
    pub(crate) time: i64,
    pub(crate) number: i64,
    pub(crate) channel: Channel,
    pub(crate) payload: Vec<u8>,
}

/// An event on a channel of which only the name matters.
pub(crate) fn event(time: i64, name: &str, payload: &[u8]) -> TestEvent {
    let channel = Channel::new(Name::from_text(name), "log", Encoding::Cdr);
    TestEvent { time, number: time, channel, payload: payload.to_owned() }
}

impl TestEvent {
    pub(crate) fn plain(&self) -> PlainEvent {
        PlainEvent {
            timestamp: self.time,
            sequence: self.number,
            source: self.channel.source.to_string(),
            channel: self.channel.name.text().to_owned(),
            payload: self.payload.clone(),
        }
    }
}

/// What the sink makes of these events.
pub(crate) struct WrittenFile {
    pub(crate) bytes: Vec<u8>,
    pub(crate) written: Written,
    pub(crate) refused: Vec<String>,
}

/// Writes events with these options besides `path`, in batches of `batch` events.
pub(crate) fn write_with(
    events: &[TestEvent],
    options: Value,
    tools: (usize, &TaskPool, &SinkContext),
) -> WrittenFile {
    try_write_with(events, options, tools).unwrap()
}

/// The same, unless the sink cannot.
pub(crate) fn try_write_with(
    events: &[TestEvent],
    mut options: Value,
    (batch, tasks, context): (usize, &TaskPool, &SinkContext),
) -> Result<WrittenFile, Error> {
    let folder = Folder::new();
    let path = folder.at("out.mcap");
    options["path"] = json!(path);
    let sink = Registry::linked().sink("mcap", options).unwrap();
    let mut output = sink.open(context, tasks).unwrap();
    let (buffers, mut refused) = (BlockPool::new(1 << 10, 4), Vec::new());
    let mut written = Written::default();
    for events in events.chunks(batch) {
        let mut builder = BatchBuilder::default();
        for event in events {
            let id = context.channels.intern(event.channel.clone()).unwrap();
            builder.push_copy(event.time, event.number, id, &event.payload);
        }
        let mut preparing = PrepareContext::new(&context.channels, &buffers);
        let block = sink.prepare(builder.finish(), &mut preparing).unwrap();
        refused.extend(preparing.report.refused.into_iter().map(|(_, reason)| reason));
        written.add(output.push(block)?);
    }
    written.add(output.finish()?);
    context.outputs.publish(|_, _| Ok(String::new())).unwrap();
    Ok(WrittenFile { bytes: std::fs::read(path).unwrap(), written, refused })
}

/// The bytes of a file of these events.
pub(crate) fn write(events: &[TestEvent], options: Value) -> Vec<u8> {
    let context = SinkContext::standalone();
    write_with(events, options, (7, &TaskPool::default(), &context)).bytes
}
