//! Small logs, archives of them, and reading these.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sluice_archive::fuzzing::Archive;
use sluice_io::files::LogFile;
use sluice_io::seek_table::{self, FrameSpan};
use sluice_io::tasks::TaskPool;
use sluice_kit::contract::{PlainEvent, SourceContents, gather, overwrite};
use sluice_model::{
    Batch, BatchBuilder, BlockPool, Channel, Channels, DynSink, Encoding, Error, Name,
    OptionsError, PrepareContext, Registry, SinkContext,
};

/// An event of these tests: microseconds, channel, payload.
pub(crate) type TestEvent = (i64, String, Vec<u8>);

/// `count` events, a millisecond apart, on the channels `A` to `D`, with incompressible payloads.
pub(crate) fn log(count: i64) -> Vec<TestEvent> {
    let mut state = 7u32;
    let mut dice = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16) as u8
    };
    let each = (0..count).map(|n| {
        let payload: Vec<u8> = (0..dice() % 40).map(|_| dice()).collect();
        (n * 1_000, char::from(b'A' + dice() % 4).to_string(), payload)
    });
    each.collect()
}

pub(crate) fn batch(events: &[TestEvent], first: usize, channels: &Channels) -> Batch {
    let mut batch = BatchBuilder::default();
    for ((time, name, payload), number) in events.iter().zip(first as i64..) {
        let channel = Channel::new(Name::from_text(name), "test", Encoding::Unknown);
        batch.push_copy(time * 1_000, number, channels.intern(channel).unwrap(), payload);
    }
    batch.finish()
}

/// The events of an undamaged log as read.
pub(crate) fn plain(events: &[TestEvent]) -> Vec<PlainEvent> {
    let each = events.iter().zip(0..).map(|((time, name, payload), number)| PlainEvent {
        timestamp: time * 1_000,
        sequence: number,
        source: "test".into(),
        channel: name.clone(),
        payload: payload.clone(),
    });
    each.collect()
}

pub(crate) fn sink(options: Value) -> Result<DynSink, OptionsError> {
    Registry::linked().sink("archive", options)
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
        let path = self.at("in.zst");
        overwrite(&path, bytes).unwrap();
        path
    }
}

/// Builds archives.
pub(crate) struct ArchiveBuilder {
    pub(crate) format: &'static str,
    pub(crate) frame: u64,
    /// Events in a batch.
    pub(crate) batch: usize,
    pub(crate) tasks: TaskPool,
}

impl ArchiveBuilder {
    pub(crate) fn new(format: &'static str) -> Self {
        Self { format, frame: 200, batch: 7, tasks: TaskPool::default() }
    }

    /// The bytes of an archive of these events.
    pub(crate) fn archive(&self, events: &[TestEvent]) -> Vec<u8> {
        self.try_archive(events, &mut Vec::new()).unwrap()
    }

    pub(crate) fn try_archive(
        &self,
        events: &[TestEvent],
        refused: &mut Vec<String>,
    ) -> Result<Vec<u8>, Error> {
        let folder = Folder::new();
        let path = folder.at("out");
        let sink =
            sink(json!({ "path": path, "format": self.format, "frame": self.frame })).unwrap();
        let context = SinkContext::standalone();
        let mut output = sink.open(&context, &self.tasks)?;
        let buffers = BlockPool::new(1 << 10, 4);
        for (n, events) in events.chunks(self.batch).enumerate() {
            let batch = batch(events, n * self.batch, &context.channels);
            let mut encoding = PrepareContext::new(&context.channels, &buffers);
            let block = sink.prepare(batch, &mut encoding)?;
            refused.extend(encoding.report.refused.into_iter().map(|(_, reason)| reason));
            output.push(block)?;
        }
        output.finish()?;
        context.outputs.publish(|_, _| Ok(String::new()))?;
        Ok(std::fs::read(path).unwrap())
    }
}

pub(crate) fn source(path: &Path) -> Archive {
    Archive::new(json!({ "path": path }), &Registry::linked()).unwrap()
}

/// Everything read from these bytes as an archive.
pub(crate) fn read(folder: &Folder, bytes: &[u8]) -> SourceContents {
    let all = gather(&source(&folder.write(bytes)), 300);
    all.unwrap_or_else(|e| panic!("an archive of {} bytes: {e}", bytes.len()))
}

/// The positions of an archive's frames.
pub(crate) fn spans(folder: &Folder, bytes: &[u8]) -> Vec<FrameSpan> {
    let mut log = LogFile::open_plain(&folder.write(bytes)).unwrap();
    seek_table::read(&mut log).unwrap().unwrap().0
}

/// The content of a compressed file for any program.
pub(crate) fn unpacked(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    zstd::stream::copy_decode(bytes, &mut plain).unwrap();
    plain
}

/// Whether all of `some` are in `all`, in their order.
pub(crate) fn are_among(some: &[PlainEvent], all: &[PlainEvent]) -> bool {
    let mut rest = all.iter();
    some.iter().all(|event| rest.any(|other| other == event))
}

pub(crate) const FORMATS: [&str; 2] = ["toy", "arrow"];
