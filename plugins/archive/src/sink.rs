//! Sink `archive`: cuts events into frames, which jobs encode and compress.
//!
//! The cuts depend only on the events, and not on batches, threads or memory.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de::Error as _};
use sluice_io::frames::{self, DEFAULT_LEN};
use sluice_io::level::FrameLevels;
use sluice_io::seek_table::SeekTableBuilder;
use sluice_model::options::{self, ByteSize, OutPath};
use sluice_model::{
    Batch, ByteFormat, ChannelId, Channels, DynSink, Error, Job, OutputFile, PluginFactory,
    PrepareContext, Sink, SinkContext, SinkInput, SinkTraits, Written,
};

use crate::format::FormatOption;
use crate::index::{FrameSummary, IndexWriter, IndexedChannel};
use crate::source::DEFAULT_MAX_FRAME;

/// Writes an archive: a zstd file that can be read by time and by channel.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ArchiveSink {
    /// The archive, under any name; `-` is standard output.
    #[serde(deserialize_with = "OutPath::without_folder")]
    path: OutPath,
    /// The compression level, from 1 (fast) to 22 (small). With the default, frames have a lower
    /// level where that is as small.
    #[serde(default = "frames::default_level", deserialize_with = "frames::level_option")]
    #[schemars(range(min = 1, max = 22))]
    level: i32,
    /// The bytes of the plain log per frame: the least that has to be read for one event.
    #[serde(default = "default_frame", deserialize_with = "frame")]
    frame: ByteSize,
    /// The format of the content: `lcm-log`, `vel`, or `arrow`, which holds any event without loss.
    #[serde(default)]
    #[schemars(with = "String")]
    format: FormatOption,
    /// The maximum frame that readers accept by default.
    #[serde(skip, default = "reader_max_frame")]
    #[schemars(skip)]
    reader_max_frame: u64,
}

fn reader_max_frame() -> u64 {
    DEFAULT_MAX_FRAME
}

sluice_model::register! {
    sink "archive": ArchiveSink,
    make: PluginFactory::Sink(|value, registry| {
        let sink: ArchiveSink = options::read(value)?;
        Ok(DynSink::new(ArchiveSink { format: sink.format.resolved(registry)?, ..sink }))
    }),
    about: "writes a log as a zstd file that can be read by time and by channel",
    sample: include_str!("../samples/archive-sink.toml"),
    default_for: &[sluice_model::DefaultRole::Archive],
    inner_extensions: &["arrow"],
}

fn default_frame() -> ByteSize {
    ByteSize(DEFAULT_LEN as u64)
}

/// The maximum `frame` option: well below the default limit of readers, even with a format's
/// overhead.
const MAX_FRAME_OPTION: u64 = DEFAULT_MAX_FRAME / 2;
/// The maximum frame of a single event, as in other programs that read seekable files.
const MAX_SINGLE_EVENT: u64 = 1 << 30;

fn frame<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ByteSize, D::Error> {
    let frame = ByteSize::deserialize(deserializer)?;
    if (1..=MAX_FRAME_OPTION).contains(&frame.0) {
        return Ok(frame);
    }
    let most = ByteSize(MAX_FRAME_OPTION);
    Err(D::Error::custom(format!(
        "expected a frame length of at least 1 byte and at most {most}, which every reader \
         accepts, found {frame}"
    )))
}

/// Events with the approximate encoded length of each.
pub(crate) struct MeasuredBatch {
    batch: Batch,
    lengths: Vec<u32>,
}

/// An archive being written.
pub(crate) struct ArchiveWriter {
    file: OutputFile,
    encoder: FrameEncoder,
    /// The events of the next frame, and their approximate length.
    next: Vec<Batch>,
    next_len: u64,
    levels: FrameLevels,
    table: SeekTableBuilder,
    /// Whether every frame so far has been written completely.
    is_complete: bool,
    index: IndexWriter,
    /// The channels' numbers in the index.
    numbers: HashMap<ChannelId, u32>,
    events: u64,
    /// The approximate length of the longest event.
    longest: u64,
}

/// Encodes frames on any thread.
#[derive(Clone)]
struct FrameEncoder {
    format: &'static dyn ByteFormat,
    /// The level of frames without events.
    level: i32,
    channels: Arc<Channels>,
    target: PathBuf,
}

/// A frame with events.
pub(crate) struct EncodedFrame {
    packed: Vec<u8>,
    plain: usize,
    summary: FrameSummary,
    /// Its channels in the order of their first events, with event counts.
    channels: Vec<(ChannelId, u32)>,
}

impl Sink for ArchiveSink {
    type Block = MeasuredBatch;
    type Unit = EncodedFrame;
    type Output = ArchiveWriter;

    fn traits(&self) -> SinkTraits {
        SinkTraits {
            accepts_wide_times: true,
            is_readable_unfinished: true,
            ..SinkTraits::writing(&self.path.0)
        }
    }

    fn open(&self, context: &SinkContext) -> Result<ArchiveWriter, Error> {
        let encoder = FrameEncoder {
            format: self.format.format()?,
            level: self.level,
            channels: Arc::clone(&context.channels),
            target: self.path.0.clone(),
        };
        let index = IndexWriter::new(self.format.name()).map_err(|e| encoder.compress_error(e))?;
        let mut archive = ArchiveWriter {
            file: context.outputs.create_as_is(&self.path.0)?,
            next: Vec::new(),
            next_len: 0,
            levels: FrameLevels::new(self.level),
            table: SeekTableBuilder::default(),
            is_complete: true,
            index,
            numbers: HashMap::new(),
            events: 0,
            longest: 0,
            encoder,
        };
        let head = archive.encoder.format.head()?;
        if !head.is_empty() {
            archive.write_plain(&head)?;
        }
        Ok(archive)
    }

    fn prepare(
        &self,
        batch: Batch,
        context: &mut PrepareContext<'_>,
    ) -> Result<MeasuredBatch, Error> {
        let mut batch = batch.with_rows(Vec::new());
        let format = self.format.format()?;
        if !format.accepts_wide_times() {
            context.note_clamped_times(&batch);
        }
        let mut lengths = format.lengths(&batch, context)?;
        refuse_too_long(&lengths, context);
        if !context.report.refused.is_empty() {
            let mut keep = vec![true; batch.len()];
            context.report.refused.iter().for_each(|(row, _)| keep[*row as usize] = false);
            batch = batch.retain(|row| keep[row]);
            let mut kept = keep.into_iter();
            lengths.retain(|_| kept.next().unwrap_or(true));
        }
        Ok(MeasuredBatch { batch: batch.gathered_into(self.frame.0), lengths })
    }

    fn gather(
        &self,
        archive: &mut ArchiveWriter,
        input: SinkInput<MeasuredBatch>,
    ) -> Result<Vec<Job<EncodedFrame>>, Error> {
        let SinkInput::Block(MeasuredBatch { batch, lengths }) = input else {
            return Ok(archive.cut_frame().into_iter().collect());
        };
        let (mut frames, mut start) = (Vec::new(), 0);
        for (row, len) in lengths.iter().map(|len| u64::from(*len)).enumerate() {
            if starts_new_frame(archive.next_len, len, self.reader_max_frame / 2) {
                archive.add_events(&batch, start, row);
                frames.extend(archive.cut_frame());
                start = row;
            }
            archive.next_len += len;
            archive.longest = archive.longest.max(len);
            if archive.next_len >= self.frame.0 {
                archive.add_events(&batch, start, row + 1);
                frames.extend(archive.cut_frame());
                start = row + 1;
            }
        }
        archive.add_events(&batch, start, batch.len());
        Ok(frames)
    }

    fn write(&self, archive: &mut ArchiveWriter, frame: EncodedFrame) -> Result<Written, Error> {
        let events = frame.summary.events;
        archive.write_encoded(frame)?;
        archive.events += events;
        archive.file.set_rows(archive.events, archive.events);
        Ok(Written::events(events))
    }

    fn finish(&self, archive: ArchiveWriter) -> Result<Written, Error> {
        if !archive.can_finish() {
            let what = std::io::Error::other("an earlier frame could not be written");
            return Err(Error::io("complete", &self.path.0, what));
        }
        let note = long_frame_note(archive.longest, self.reader_max_frame);
        archive.complete()?;
        let notes = note.into_iter().map(|what| (what, 0)).collect();
        Ok(Written { notes, ..Written::default() })
    }
}

/// Whether an event starts a new frame because the current one has `waiting` bytes: only a single
/// event may make a frame longer than `chosen`.
fn starts_new_frame(waiting: u64, len: u64, chosen: u64) -> bool {
    waiting > 0 && waiting + len > chosen
}

/// A note if the frame of the longest event exceeds `reader_max_frame`, the readers' default limit.
fn long_frame_note(longest: u64, readers_take: u64) -> Option<String> {
    // The overhead of a format is small compared to such an event.
    const ADDED: u64 = 1 << 20;
    let needed = (longest + ADDED).next_multiple_of(1 << 20);
    (needed > readers_take).then(|| {
        let (needed, most) = (ByteSize(needed), ByteSize(readers_take));
        format!(
            "an event makes a frame longer than the {most} that the source `archive` accepts by \
             default: read the archive with max_frame = \"{needed}\""
        )
    })
}

/// Refuses events that are too long for any frame, unless the format refused them already.
fn refuse_too_long(lengths: &[u32], context: &mut PrepareContext<'_>) {
    let refused: Vec<u32> = context.report.refused.iter().map(|(row, _)| *row).collect();
    for (row, len) in (0..).zip(lengths) {
        if u64::from(*len) > MAX_SINGLE_EVENT && !refused.contains(&row) {
            let most = ByteSize(MAX_SINGLE_EVENT);
            let reason =
                format!("an event of {len} bytes is longer than the {most} that a frame can hold");
            context.report.refused.push((row, reason));
        }
    }
}

impl FrameEncoder {
    fn compress_error(&self, error: std::io::Error) -> Error {
        Error::io("compress", &self.target, error)
    }

    /// The contents of a frame with these events.
    fn plain(&self, events: &[Batch], len: u64) -> Result<Vec<u8>, Error> {
        let mut plain = Vec::with_capacity(usize::try_from(len).unwrap_or_default());
        self.format.encode(events, &self.channels, &mut plain)?;
        Ok(plain)
    }

    /// Encodes and compresses these events.
    fn encode_frame(&self, events: &[Batch], len: u64, level: i32) -> Result<EncodedFrame, Error> {
        let plain = self.plain(events, len)?;
        let packed = frames::compress(&plain, level).map_err(|e| self.compress_error(e))?;
        let (note, channels) = self.summarize(events);
        Ok(EncodedFrame { packed, plain: plain.len(), summary: note, channels })
    }

    fn summarize(&self, events: &[Batch]) -> (FrameSummary, Vec<(ChannelId, u32)>) {
        let times = || events.iter().flat_map(|batch| batch.timestamps());
        // As decoded by readers.
        let first = times().min().map_or(0, |time| self.format.stored_time(*time));
        let last = times().max().map_or(0, |time| self.format.stored_time(*time));
        let (mut counts, mut order) = (vec![0u32; self.channels.len()], Vec::new());
        for channel in events.iter().flat_map(|batch| batch.channels()) {
            let count = &mut counts[*channel as usize];
            if *count == 0 {
                order.push(ChannelId(*channel));
            }
            *count += 1;
        }
        let channels = order.into_iter().map(|id| (id, counts[id.index()])).collect();
        let events = events.iter().map(|batch| batch.len() as u64).sum();
        (FrameSummary { first, last, events, channels: None }, channels)
    }
}

impl ArchiveWriter {
    /// Adds events `start..end` to the next frame.
    fn add_events(&mut self, batch: &Batch, start: usize, end: usize) {
        if start < end {
            self.next.push(batch.slice(start, end - start));
        }
    }

    /// The job of encoding the next frame, unless it is empty.
    fn cut_frame(&mut self) -> Option<Job<EncodedFrame>> {
        let (events, len) = (std::mem::take(&mut self.next), std::mem::take(&mut self.next_len));
        if events.is_empty() {
            return None;
        }
        let (encoder, bytes) = (self.encoder.clone(), usize::try_from(len).unwrap_or(usize::MAX));
        let (sampler, sampled) = (self.encoder.clone(), events.clone());
        let level = self.levels.next(len, move || sampler.plain(&sampled, len).ok());
        Some(Job::new(bytes, move || encoder.encode_frame(&events, len, level.get())))
    }

    /// Writes an encoded frame in its turn.
    fn write_encoded(&mut self, mut frame: EncodedFrame) -> Result<(), Error> {
        let mut channels: Vec<(u32, u32)> =
            frame.channels.iter().map(|(id, events)| (self.channel_number(*id), *events)).collect();
        channels.sort_unstable();
        // Channels of one name may differ in what the index does not have.
        channels.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            kept.1 += if same { next.1 } else { 0 };
            same
        });
        frame.summary.channels = Some(channels.into_iter().flat_map(<[u32; 2]>::from).collect());
        self.write(&frame.packed, frame.plain)?;
        self.index.add(frame.summary).map_err(|e| self.encoder.compress_error(e))
    }

    fn channel_number(&mut self, id: ChannelId) -> u32 {
        let Self { numbers, encoder, index, .. } = self;
        *numbers.entry(id).or_insert_with(|| {
            let channel = encoder.channels.get(id);
            let keeps_channels = encoder.format.keeps_sources();
            let source = keeps_channels.then(|| channel.source.to_string());
            match encoder.format.encoding() {
                Some(encoding) => drop(index.encodings.insert(encoding)),
                None if keeps_channels => {
                    index.declares_types |= channel.may_declare_type();
                    index.encodings.insert(channel.encoding.clone());
                }
                None => {}
            }
            index.channel_number(IndexedChannel { name: channel.name.text().to_owned(), source })
        })
    }

    /// Writes a frame without events.
    fn write_plain(&mut self, plain: &[u8]) -> Result<(), Error> {
        let packed = frames::compress(plain, self.encoder.level);
        let packed = packed.map_err(|e| self.encoder.compress_error(e))?;
        self.write(&packed, plain.len())
    }

    fn write(&mut self, packed: &[u8], plain: usize) -> Result<(), Error> {
        let written = self.file.write_binary(packed);
        // A failed write loses a frame: the archive is incomplete then.
        self.is_complete &= written.is_ok();
        written?;
        self.table.push(packed.len(), plain).map_err(|e| self.encoder.compress_error(e))
    }

    /// Whether the archive can be completed after a write that failed: a file that grows under its
    /// final name ends with the frames before.
    fn can_finish(&self) -> bool {
        self.is_complete || self.file.is_growing()
    }

    /// Writes the tail, the index and the seek table, and completes the file.
    ///
    /// If a file that grows has no room for them, it is completed without its index, or without any
    /// of them, and this is `Err`.
    fn complete(mut self) -> Result<(), Error> {
        if self.table.is_empty() && self.encoder.format.tail()?.is_empty() {
            // A file without frames would not be a valid zstd file.
            self.write_plain(&[])?;
            let nothing = FrameSummary { channels: Some(Vec::new()), ..FrameSummary::default() };
            self.index.add(nothing).map_err(|e| self.encoder.compress_error(e))?;
        }
        let Self { mut file, encoder, mut table, mut index, events, .. } = self;
        let packed = |e| encoder.compress_error(e);
        let (tail, mut end) = (encoder.format.tail()?, Vec::new());
        if !tail.is_empty() {
            end = frames::compress(&tail, encoder.level).map_err(packed)?;
            table.push(end.len(), tail.len()).map_err(packed)?;
        }
        index.content_len = table.content_len();
        let (index, table) = (index.finish().map_err(packed)?.unwrap_or_default(), table.finish());
        let written = file.write_binary(&[&*end, &*index, &*table].concat());
        if written.is_err() && file.is_growing() {
            // What matters is the first error.
            drop(file.write_binary(&[end, table].concat()));
        }
        written.and(file.finish(events))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Value, json};
    use sluice_io::tasks::TaskPool;
    use sluice_kit::contract::gather;
    use sluice_model::{BatchBuilder, BlockPool, Channel, DynSink, Encoding, Name, options};

    use super::*;
    use crate::source;

    #[test]
    fn only_a_single_event_makes_a_frame_over_the_default_limit() {
        // Frames up to the option's maximum, and then an event of any length.
        let longest_of_several = |len: u64| {
            let waiting = MAX_FRAME_OPTION - 1;
            if starts_new_frame(waiting, len, MAX_FRAME_OPTION) {
                waiting.max(len)
            } else {
                waiting + len
            }
        };
        for len in [1, 2, MAX_FRAME_OPTION] {
            assert!(longest_of_several(len) <= MAX_FRAME_OPTION, "{len}");
        }
        assert!(!starts_new_frame(0, MAX_SINGLE_EVENT, MAX_FRAME_OPTION));
        assert_eq!(long_frame_note(MAX_FRAME_OPTION, DEFAULT_MAX_FRAME), None);
        let note = long_frame_note(DEFAULT_MAX_FRAME, DEFAULT_MAX_FRAME).unwrap();
        assert!(note.contains("max_frame = \"257MiB\""), "{note}");
        let note = long_frame_note(MAX_SINGLE_EVENT - 1, DEFAULT_MAX_FRAME).unwrap();
        let noted = note.split('"').nth(1).and_then(|size| ByteSize::parse(size).ok()).unwrap();
        assert!(noted.0 >= MAX_SINGLE_EVENT, "{note}");
    }

    /// Writes an archive for readers that accept frames of `reader_max_frame`; returns the notes.
    fn write(path: &Path, lengths: &[usize], reader_max_frame: u64) -> Vec<String> {
        let options = json!({ "path": path, "format": "arrow", "frame": 300 });
        let sink: ArchiveSink = options::read(options).unwrap();
        let format = sink.format.resolved(&sluice_model::Registry::default()).unwrap();
        let sink = ArchiveSink { reader_max_frame, format, ..sink };
        let context = SinkContext::standalone();
        let mut events = BatchBuilder::default();
        let channel = Channel::new(Name::from_text("A"), "test", Encoding::Unknown);
        let channel = context.channels.intern(channel).unwrap();
        for (n, len) in (0i64..).zip(lengths) {
            events.push_copy(n, n, channel, &vec![n as u8; *len]);
        }
        let tasks = TaskPool::default();
        let sink = DynSink::new(sink);
        let mut archive = sink.open(&context, &tasks).unwrap();
        let buffers = BlockPool::new(1 << 10, 4);
        let mut encoding = PrepareContext::new(&context.channels, &buffers);
        let block = sink.prepare(events.finish(), &mut encoding).unwrap();
        archive.push(block).unwrap();
        let notes = archive.finish().unwrap().notes;
        context.outputs.publish(|_, _| Ok(String::new())).unwrap();
        notes.into_iter().map(|(what, _)| what).collect()
    }

    #[test]
    fn an_event_over_the_default_limit_is_read_with_the_noted_option() {
        // Stands in for the default of 256 MiB: the note counts whole MiB.
        let default = 1 << 20;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.zst");
        let lengths = [100, 100, 3 << 20, 100];
        let notes = write(&path, &lengths, default);
        let [note] = &notes[..] else { panic!("{notes:?}") };
        assert!(note.contains("longer than the 1MiB that"), "{note}");
        let noted = note.split('"').nth(1).unwrap();
        let read = |max_frame: Value| {
            let options = json!({ "path": path, "max_frame": max_frame });
            let source: source::Archive = options::read(options).unwrap();
            let all = gather(&source, u64::MAX).unwrap();
            let lengths: Vec<usize> = all.events.iter().map(|event| event.payload.len()).collect();
            (lengths, all.damage)
        };
        let (short, damage) = read(default.into());
        assert_eq!(short, [100, 100, 100]);
        assert!(damage[0].2.contains("`max_frame` (1MiB)"), "{damage:?}");
        assert_eq!(read(noted.into()), (lengths.to_vec(), Vec::new()));
        // An archive of short events needs no note.
        assert!(write(&folder.path().join("short.zst"), &[100; 9], 4 << 20).is_empty());
    }
}
