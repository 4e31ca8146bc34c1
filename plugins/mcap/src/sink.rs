//! Sink `mcap`: cuts events into chunks, which jobs encode, and writes them in order.
//!
//! The cuts depend only on the events, and not on batches, threads or memory.

use std::path::PathBuf;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::{Map, Value};
use sluice_io::escape::printable;
use sluice_io::frames::{self, LEVELS};
use sluice_io::level::FrameLevels;
use sluice_model::options::{ByteSize, OutPath};
use sluice_model::{
    Batch, Channels, CompanionSink, ConversionNodes, ConversionStage, DynSink, Error, Job,
    OptionsError, PluginFactory, PrepareContext, RunHandle, RunOrigin, Sink, SinkContext,
    SinkInput, SinkTraits, Written,
};

use crate::carry;
use crate::chunk::{ChunkCompression, DEFAULT_MAX_CHUNK};
use crate::declare::Numbering;
use crate::encode::{ChunkPlan, record_len};
use crate::finish::{ChunkBytes, McapFile};

/// Writes an MCAP file with all its indexes.
///
/// Metadata and attachments of MCAP files that the run reads are copied, as are their channels
/// without messages, unless they are left out by name.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct McapSink {
    /// The file; `-` is standard output, and a name ending in `.zst` is compressed as a whole.
    #[serde(deserialize_with = "OutPath::without_folder")]
    path: OutPath,
    /// The profile that the header names. Default: that of the MCAP files that the run reads, or
    /// none.
    profile: Option<String>,
    /// How chunks are compressed: `zstd`, `lz4` or `none`.
    #[serde(default)]
    compression: ChunkCompression,
    /// The compression level of zstd, from 1 (fast) to 22 (small). With the default, chunks have a
    /// lower level where that is as small.
    #[serde(default = "frames::default_level", deserialize_with = "frames::level_option")]
    #[schemars(range(min = 1, max = 22))]
    level: i32,
    /// The uncompressed bytes of a chunk: the least that has to be read for one event.
    #[serde(default = "default_chunk", deserialize_with = "chunk")]
    chunk: ByteSize,
}

sluice_model::register! {
    sink "mcap": McapSink,
    make: PluginFactory::Sink(|value, _| {
        let sink: McapSink = sluice_model::options::read(value)?;
        match sink.compression != ChunkCompression::Zstd && sink.level != frames::default_level() {
            true => Err(OptionsError::needs("level", "compression = \"zstd\"")),
            false => Ok(DynSink::new(sink)),
        }
    }),
    about: "writes MCAP files with all their indexes, for Foxglove, Rerun, ROS and others",
    sample: include_str!("../samples/mcap-sink.toml"),
    extensions: &["mcap"],
    conversion: conversion,
}

/// The stages by which viewers show messages of any format, and a layout beside the file.
/// `view = "none"` leaves out what is added for showing, `view = "auto"` does not.
fn conversion(options: &mut Map<String, Value>) -> Result<ConversionNodes, OptionsError> {
    let [typed, view] = ["to-protobuf", "foxglove"].map(ConversionStage::named);
    let layout = CompanionSink { plugin: "foxglove-layout", extension: ".foxglove.json" };
    let views = match options.remove("view") {
        Some(Value::String(views)) => views,
        views => views.map_or_else(|| "auto".to_owned(), |views| views.to_string()),
    };
    match views.as_str() {
        "auto" => Ok(ConversionNodes { stages: vec![typed, view], sinks: vec![layout] }),
        "none" => Ok(ConversionNodes { stages: vec![typed], sinks: Vec::new() }),
        _ => {
            let message = format!("expected `auto` or `none`, found `{views}`");
            Err(OptionsError::at("view", message))
        }
    }
}

/// The usual size of chunks, as other writers have it.
const DEFAULT_CHUNK: u64 = 1 << 20;
/// The largest size of chunks: well below what readers accept by default.
const MAX_CHUNK: u64 = 128 << 20;

const BEFORE_1970: &str = "MCAP has no times before 1970";
const AFTER_2262: &str = "MCAP files with times after the year 2262 cannot be read";
const LONG_SEQUENCES: &str = "numbers of events below 0 or beyond 32 bits are written as 0";

fn default_chunk() -> ByteSize {
    ByteSize(DEFAULT_CHUNK)
}

fn chunk<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ByteSize, D::Error> {
    let chunk = ByteSize::deserialize(deserializer)?;
    if (1..=MAX_CHUNK).contains(&chunk.0) {
        return Ok(chunk);
    }
    let most = ByteSize(MAX_CHUNK);
    Err(D::Error::custom(format!(
        "expected a chunk length of at least 1 byte and at most {most}, found {chunk}"
    )))
}

/// A file that is being written.
#[derive(Debug)]
pub struct McapWriter {
    file: McapFile,
    target: PathBuf,
    channels: Arc<Channels>,
    origin: Arc<RunOrigin>,
    run: RunHandle,
    numbering: Numbering,
    /// The events of the next chunk, its declarations, and about as many bytes as it will have.
    next: Vec<Batch>,
    declarations: Vec<u8>,
    next_len: usize,
    levels: FrameLevels,
    /// The length of the longest event.
    longest: usize,
}

/// An encoded chunk, ready to be written.
pub struct McapUnit(ChunkBytes);

impl McapWriter {
    /// Adds events `start..end` to the next chunk.
    fn add_events(&mut self, batch: &Batch, start: usize, end: usize) {
        if start < end {
            self.next.push(batch.slice(start, end - start));
        }
    }

    /// The job of encoding the next chunk, unless it is empty.
    fn cut_chunk(&mut self, sink: &McapSink) -> Option<Job<McapUnit>> {
        let (events, len) = (std::mem::take(&mut self.next), std::mem::take(&mut self.next_len));
        if events.is_empty() {
            return None;
        }
        let declarations = std::mem::take(&mut self.declarations);
        let len = len + declarations.len();
        let plan = ChunkPlan { declarations, numbers: self.numbering.numbers(), events, len };
        let (compression, target, sampled) = (sink.compression, self.target.clone(), plan.clone());
        let level = self.levels.next(len as u64, move || Some(sampled.records().plain));
        Some(Job::new(2 * len, move || {
            let chunk = plan.records().pack(compression, &level);
            let chunk = chunk.map_err(|e| Error::io("compress", &target, e))?;
            Ok(McapUnit(ChunkBytes::from_chunk(chunk)))
        }))
    }

    /// Copies what inputs have besides messages. Returns notes about what was not copied.
    fn copy_from_inputs(&mut self) -> Result<Vec<(String, u64)>, Error> {
        let origin = Arc::clone(&self.origin);
        let mut notes = Vec::new();
        for path in carry::mcap_inputs(&origin.inputs) {
            let to = (&mut self.numbering, &mut self.file);
            match carry::copy(path, &self.run, to, &mut notes) {
                Ok(()) => {}
                Err(error) if !self.file.is_complete() => return Err(error),
                Err(error) => {
                    let path = path.to_string_lossy();
                    let path = printable(&path);
                    let what = format!("metadata and attachments of {path} are missing: {error}");
                    notes.push((what, 0));
                }
            }
        }
        Ok(notes)
    }
}

impl McapSink {
    fn profile(&self, context: &SinkContext) -> String {
        if let Some(profile) = &self.profile {
            return profile.clone();
        }
        let mut profiles = carry::mcap_inputs(&context.origin.inputs).map(carry::profile);
        let first = profiles.next().flatten().unwrap_or_default();
        let all_agree = profiles.all(|profile| profile.as_ref() == Some(&first));
        if all_agree { first } else { String::new() }
    }
}

impl Sink for McapSink {
    type Block = Batch;
    type Unit = McapUnit;
    type Output = McapWriter;

    fn traits(&self) -> SinkTraits {
        SinkTraits {
            accepts_wide_times: true,
            is_readable_unfinished: true,
            ..SinkTraits::writing(&self.path.0)
        }
    }

    fn open(&self, context: &SinkContext) -> Result<McapWriter, Error> {
        let file = context.outputs.create(&self.path.0)?;
        // Other compressions have no level, so nothing has to be kept for a sample.
        let is_zstd = self.compression == ChunkCompression::Zstd;
        let level = if is_zstd { self.level } else { *LEVELS.start() };
        Ok(McapWriter {
            file: McapFile::start(file, &self.profile(context))?,
            target: self.path.0.clone(),
            channels: Arc::clone(&context.channels),
            origin: Arc::clone(&context.origin),
            run: context.run.clone(),
            numbering: Numbering::default(),
            next: Vec::new(),
            declarations: Vec::new(),
            next_len: 0,
            levels: FrameLevels::new(level),
            longest: 0,
        })
    }

    fn prepare(&self, batch: Batch, context: &mut PrepareContext<'_>) -> Result<Batch, Error> {
        let batch = batch.with_rows(Vec::new());
        let reason = |row: usize| match batch.wide_time(row) {
            Some(time) if time > 0 => Some(AFTER_2262),
            Some(_) => Some(BEFORE_1970),
            None => (batch.timestamps()[row] < 0).then_some(BEFORE_1970),
        };
        let refused =
            (0..batch.len()).filter_map(|row| Some((row as u32, reason(row)?.to_owned())));
        context.report.refused.extend(refused);
        let is_long = |sequence: &i64| u32::try_from(*sequence).is_err();
        if batch.sequences().iter().any(is_long) {
            context.report.losses.insert(LONG_SEQUENCES);
        }
        Ok(batch.retain(|row| reason(row).is_none()).gathered_into(self.chunk.0))
    }

    fn gather(
        &self,
        writer: &mut McapWriter,
        input: SinkInput<Batch>,
    ) -> Result<Vec<Job<McapUnit>>, Error> {
        let SinkInput::Block(batch) = input else {
            return Ok(writer.cut_chunk(self).into_iter().collect());
        };
        let (mut chunks, mut start) = (Vec::new(), 0);
        for (row, event) in batch.iter().enumerate() {
            let len = record_len(event.payload.len());
            if writer.next_len > 0 && (writer.next_len + len) as u64 > MAX_CHUNK {
                writer.add_events(&batch, start, row);
                chunks.extend(writer.cut_chunk(self));
                start = row;
            }
            let McapWriter { numbering, channels, declarations, target, .. } = writer;
            numbering
                .number(event.channel, channels, declarations)
                .map_err(|error| error.with_detail(&target.display().to_string()))?;
            writer.next_len += len;
            writer.longest = writer.longest.max(len);
            if (writer.next_len + writer.declarations.len()) as u64 >= self.chunk.0 {
                writer.add_events(&batch, start, row + 1);
                chunks.extend(writer.cut_chunk(self));
                start = row + 1;
            }
        }
        writer.add_events(&batch, start, batch.len());
        Ok(chunks)
    }

    fn write(&self, writer: &mut McapWriter, unit: McapUnit) -> Result<Written, Error> {
        let McapUnit(chunk) = unit;
        writer.file.write_chunk(&chunk)?;
        Ok(Written::events(chunk.events()))
    }

    fn flush(&self, writer: &mut McapWriter) -> Result<(), Error> {
        writer.file.flush()
    }

    fn finish(&self, mut writer: McapWriter) -> Result<Written, Error> {
        if !writer.file.can_finish() {
            let what = std::io::Error::other("an earlier chunk could not be written");
            return Err(Error::io("complete", &self.path.0, what));
        }
        let copied = match writer.file.is_complete() {
            true => writer.copy_from_inputs(),
            false => Ok(Vec::new()),
        };
        let McapWriter { file, numbering, longest, .. } = writer;
        let finished = if file.can_finish() { file.finish(&numbering) } else { Ok(()) };
        let mut notes = copied?;
        finished?;
        if longest as u64 > DEFAULT_MAX_CHUNK.0 {
            notes.push((
                format!(
                    "an event makes a chunk longer than the {DEFAULT_MAX_CHUNK} that the source \
                     `mcap` accepts by default: read the file with a larger `max_chunk`"
                ),
                0,
            ));
        }
        Ok(Written { notes, ..Written::default() })
    }
}
