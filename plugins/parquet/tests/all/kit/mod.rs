//! Shared test code: events, a sink that is run by hand, and reading with the source.

#![allow(dead_code, clippy::allow_attributes, reason = "each test uses a part of it")]

pub(crate) mod nested;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use parquet::file::reader::SerializedFileReader;
use serde_json::{Value, json};
use sluice_io::tasks::TaskPool;
use sluice_kit::contract::{PlainEvent, SourceContents, gather};
use sluice_model::{
    Batch, BatchBuilder, BlockPool, Channel, Channels, Encoding, Error, Name, Outputs, Overwrite,
    PrepareContext, Registry, SinkContext, Source, Written,
};
use sluice_parquet as _;

/// An event of the tests.
pub(crate) fn event(timestamp: i64, sequence: i64, channel: &str, payload: &[u8]) -> PlainEvent {
    let (source, channel, payload) = ("log".to_owned(), channel.to_owned(), payload.to_vec());
    PlainEvent { timestamp, sequence, source, channel, payload }
}

/// `count` events on the channels `A` to `E`, with rising numbers and payloads of various lengths.
pub(crate) fn drive(count: i64) -> Vec<PlainEvent> {
    let mut dice = 7u64;
    let mut below = |limit: u64| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) % limit
    };
    let each = (0..count).map(|n| {
        let channel = char::from(b'A' + below(5) as u8).to_string();
        let payload: Vec<u8> = (0..below(60)).map(|_| below(256) as u8).collect();
        event((1_000_000 + n * 10 + below(30) as i64) * 1_000, n, &channel, &payload)
    });
    each.collect()
}

/// The events as one batch.
pub(crate) fn batch(events: &[PlainEvent], channels: &Channels) -> Batch {
    let mut builder = BatchBuilder::default();
    for event in events {
        let name = Name::from_text(&event.channel);
        let channel = Channel::new(name, event.source.as_str(), Encoding::Lcm);
        let id = channels.intern(channel).unwrap();
        builder.push_copy(event.timestamp, event.sequence, id, &event.payload);
    }
    builder.finish()
}

/// The context of a run with this much memory for sinks.
pub(crate) fn context(memory: usize) -> SinkContext {
    let outputs = Arc::new(Outputs::new(Overwrite::Replace, true, &[]));
    SinkContext { outputs, memory, ..SinkContext::standalone() }
}

/// Writes batches through the sink with these options.
pub(crate) fn write(
    options: Value,
    batches: Vec<Batch>,
    context: &SinkContext,
) -> Result<u64, Error> {
    write_with_notes(options, batches, context).map(|(written, _)| written)
}

/// The same, with the sink's notes.
pub(crate) fn write_with_notes(
    options: Value,
    batches: Vec<Batch>,
    context: &SinkContext,
) -> Result<(u64, Vec<(String, u64)>), Error> {
    write_on(&TaskPool::default(), options, batches, context)
}

/// The same with these tasks.
pub(crate) fn write_on(
    tasks: &TaskPool,
    options: Value,
    batches: Vec<Batch>,
    context: &SinkContext,
) -> Result<(u64, Vec<(String, u64)>), Error> {
    let registry = Registry::linked();
    let sink = registry.sink("parquet", options).unwrap();
    let mut output = sink.open(context, tasks)?;
    let (buffers, mut written) = (BlockPool::new(64, 2), Written::default());
    for batch in batches {
        let mut encode = PrepareContext::new(&context.channels, &buffers);
        let block = sink.prepare(batch, &mut encode)?;
        written.add(output.push(block)?);
    }
    written.add(output.finish()?);
    context.outputs.publish(|_, _| Ok("{}".to_owned()))?;
    Ok((written.events, written.notes))
}

/// Writes events in batches of `cut` as a table of all.
pub(crate) fn write_single(path: &Path, events: &[PlainEvent], cut: usize, more: Value) {
    let context = context(64 << 20);
    let batches = events.chunks(cut).map(|some| batch(some, &context.channels)).collect();
    let mut options = json!({ "path": path });
    options.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    assert_eq!(write(options, batches, &context).unwrap(), events.len() as u64);
}

/// The source of this path.
pub(crate) fn source(path: &Path) -> Box<dyn Source> {
    source_of(&[path])
}

/// The source of these paths.
pub(crate) fn source_of(paths: &[&Path]) -> Box<dyn Source> {
    Registry::linked().source("parquet", json!({ "path": paths })).unwrap()
}

/// Everything read from this path.
pub(crate) fn read(path: &Path) -> Result<SourceContents, Error> {
    gather(&*source(path), 1 << 20)
}

/// The footer of a table.
pub(crate) fn footer(path: &Path) -> SerializedFileReader<fs::File> {
    SerializedFileReader::new(fs::File::open(path).unwrap()).unwrap()
}

/// Every file below a folder.
pub(crate) fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            found.extend(
                files(&path).into_iter().map(|(below, bytes)| (format!("{name}/{below}"), bytes)),
            );
        } else {
            found.insert(name, fs::read(&path).unwrap());
        }
    }
    found
}
