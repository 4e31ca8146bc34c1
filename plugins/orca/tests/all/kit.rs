//! Logs to read, events to write.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use sluice_io::tasks::TaskPool;
use sluice_kit::contract::{SourceContents, gather_with};
use sluice_model::{
    Batch, BatchBuilder, BlockPool, Channel, Channels, DynSink, Encoding, Name, PrepareContext,
    ReadContext, Registry, SinkContext, Source,
};
use sluice_orca as _;

pub(crate) fn source_with(path: &Path, more: &Value) -> Box<dyn Source> {
    let registry = Registry::linked();
    let mut options = json!({ "path": path });
    options.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    registry.source("orca", options).unwrap()
}

pub(crate) fn source(path: &Path) -> Box<dyn Source> {
    source_with(path, &json!({}))
}

pub(crate) fn sink(options: Value) -> DynSink {
    let registry = Registry::linked();
    registry.sink("orca", options).unwrap()
}

/// The masters of all cases, but for compressed ones and those in digits.
pub(crate) fn masters() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let cases = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut masters: Vec<PathBuf> =
        cases.flat_map(|case| ["master.log", "master.orca"].map(|name| case.join(name))).collect();
    masters.retain(|path| path.exists());
    masters.sort();
    masters
}

pub(crate) fn case(name: &str) -> PathBuf {
    masters().into_iter().find(|path| path.parent().unwrap().ends_with(name)).unwrap()
}

/// Reads everything with a context and returns the channels.
pub(crate) fn channels_of(path: &Path) -> (SourceContents, Vec<Arc<Channel>>) {
    let context = ReadContext::standalone("test");
    let all = gather_with(&*source(path), u64::MAX, &context).unwrap();
    (all, context.channels.since(0))
}

/// An event before it is written: time, channel, payload.
pub(crate) type TestEvent = (i64, Channel, Vec<u8>);

/// An event and its number.
pub(crate) type NumberedEvent = (i64, TestEvent);

pub(crate) fn in_order(events: &[TestEvent]) -> Vec<NumberedEvent> {
    (0..).zip(events.iter().cloned()).collect()
}

pub(crate) fn batch(events: &[NumberedEvent], channels: &Channels) -> Batch {
    let mut batch = BatchBuilder::default();
    for (number, (time, channel, payload)) in events {
        let id = channels.intern(channel.clone()).unwrap();
        batch.push_copy(*time, *number, id, payload);
    }
    batch.finish()
}

/// Notes, losses, and how many events were refused.
pub(crate) type SinkReport = (Vec<(String, u64)>, Vec<&'static str>, usize);

/// Writes events in batches of this many.
pub(crate) fn write(options: Value, events: &[TestEvent], cut: usize) -> SinkReport {
    write_numbered(options, &in_order(events), cut)
}

pub(crate) fn write_numbered(options: Value, events: &[NumberedEvent], cut: usize) -> SinkReport {
    write_with(&SinkContext::standalone(), options, events, cut)
}

pub(crate) fn write_with(
    context: &SinkContext,
    options: Value,
    events: &[NumberedEvent],
    cut: usize,
) -> SinkReport {
    let sink = sink(options);
    let mut output = sink.open(context, &TaskPool::default()).unwrap();
    let (mut losses, mut refused) = (Vec::new(), 0);
    let buffers = BlockPool::new(1 << 10, 2);
    for some in events.chunks(cut) {
        let mut encoding = PrepareContext::new(&context.channels, &buffers);
        let block = sink.prepare(batch(some, &context.channels), &mut encoding).unwrap();
        losses.extend(encoding.report.losses);
        refused += encoding.report.refused.len();
        output.push(block).unwrap();
    }
    let notes = output.finish().unwrap().notes;
    context.outputs.publish(|_, _| Ok(String::new())).unwrap();
    (notes, losses, refused)
}

pub(crate) fn lcm(name: &[u8], source: &str) -> Channel {
    Channel::new(Name::from_bytes(name), source, Encoding::Lcm)
}

/// The channel of the configuration of a channel's objects.
pub(crate) fn config_of(channel: &Channel) -> Channel {
    let mut config = channel.clone();
    config.name = Name::from_bytes(&[channel.name.as_bytes(), b".config"].concat());
    config.metadata.insert("ice.config".into(), "true".into());
    config
}

pub(crate) fn object(name: &str) -> Channel {
    let mut channel = lcm(name.as_bytes(), "x");
    channel.encoding = Encoding::Ice;
    channel
}
