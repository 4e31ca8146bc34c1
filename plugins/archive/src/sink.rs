//! Sink `archive`: cuts events into frames, and has the run's threads encode and compress them.
//!
//! Where frames are cut depends on the events alone: not on how they came in batches, nor on threads or
//! memory.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de::Error as _};
use sluice_core::frames::{self, DEFAULT_LEN, DEFAULT_LEVEL, LEVELS, SeekTableBuilder};
use sluice_core::options::{ByteSize, OutPath};
use sluice_core::{
    Batch, ByteFormat, ChannelId, Channels, EncodeContext, Error, OrderedTasks, OutputFile, Sink,
    SinkContext,
};

use crate::format::Chosen;
use crate::index::{IndexWriter, Known, Note};
use crate::source::DEFAULT_MAX_FRAME;

/// Writes an archive: a zstd file that can be read by time and by channel.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ArchiveSink {
    /// The archive, by any name; `-` is standard output.
    path: OutPath,
    /// How hard to compress, from 1 (fast) to 22 (small).
    #[serde(default = "default_level", deserialize_with = "level")]
    #[schemars(range(min = 1, max = 22))]
    level: i32,
    /// How many bytes of the plain log a frame holds: the least that is read again for one event.
    #[serde(default = "default_frame", deserialize_with = "frame")]
    frame: ByteSize,
    /// What it is an archive of: `lcm-log`, or another log that this program reads, or `arrow`, which
    /// holds any event without loss.
    #[serde(default)]
    #[schemars(with = "String")]
    format: Chosen,
    /// The longest frame that readers take unless they are told to take more.
    #[serde(skip, default = "readers_take")]
    #[schemars(skip)]
    readers_take: u64,
}

fn readers_take() -> u64 {
    DEFAULT_MAX_FRAME
}

sluice_core::register! {
    sink "archive": ArchiveSink,
    about: "writes a log as a zstd file that can be read by time and by channel",
    sample: include_str!("../samples/archive-sink.toml"),
}

fn default_level() -> i32 {
    DEFAULT_LEVEL
}

fn default_frame() -> ByteSize {
    ByteSize(DEFAULT_LEN as u64)
}

fn level<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i32, D::Error> {
    let level = i64::deserialize(deserializer)?;
    let known = i32::try_from(level).ok().filter(|level| LEVELS.contains(level));
    let (first, last) = (LEVELS.start(), LEVELS.end());
    known.ok_or_else(|| {
        D::Error::custom(format!("zstd has the levels {first} to {last}, not {level}"))
    })
}

/// The longest frame that is made on purpose: with all that a format adds, well below what the source takes
/// unless it is told to take more.
const LONGEST_CHOSEN: u64 = DEFAULT_MAX_FRAME / 2;
/// The longest frame of a single event: what other programs that read seekable files allow.
const MOST_FRAME: u64 = 1 << 30;

fn frame<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ByteSize, D::Error> {
    let frame = ByteSize::deserialize(deserializer)?;
    if (1..=LONGEST_CHOSEN).contains(&frame.0) {
        return Ok(frame);
    }
    let most = ByteSize(LONGEST_CHOSEN);
    Err(D::Error::custom(format!(
        "a frame holds more than nothing and at most {most}, which every reader takes, not {frame}"
    )))
}

/// Frames from this size on are made of copies, so that the run's blocks are not kept from reading.
const LARGE: u64 = 8 << 20;
/// How many plain bytes may be in the hands of tasks.
const MOST_IN_FLIGHT: u64 = 64 << 20;

/// Events, with about how many bytes each will take.
pub struct Measured {
    batch: Batch,
    lengths: Vec<u32>,
}

/// An archive in the making.
pub struct Archive {
    file: OutputFile,
    making: Making,
    /// What the next frame will hold, and about how many bytes that is.
    next: Vec<Batch>,
    next_len: u64,
    frames: OrderedTasks<Frame>,
    in_flight: u64,
    table: SeekTableBuilder,
    /// Whether every frame that was given to the file is in it.
    whole: bool,
    index: IndexWriter,
    /// The channels' numbers in the index.
    numbers: HashMap<ChannelId, u32>,
    events: u64,
    /// About how many bytes the longest event takes.
    longest: u64,
}

/// What it takes to make a frame.
#[derive(Clone)]
struct Making {
    format: &'static dyn ByteFormat,
    level: i32,
    channels: Arc<Channels>,
    target: PathBuf,
}

/// A frame with events.
struct Frame {
    packed: Vec<u8>,
    plain: usize,
    /// What it was reckoned to hold.
    len: u64,
    note: Note,
    /// Its channels in the order of their first events, with the number of events.
    channels: Vec<(ChannelId, u32)>,
}

impl Sink for ArchiveSink {
    type Block = Measured;
    type Output = Archive;

    fn targets(&self) -> Vec<PathBuf> {
        vec![self.path.0.clone()]
    }

    fn open(&self, context: &SinkContext) -> Result<Archive, Error> {
        let making = Making {
            format: self.format.format()?,
            level: self.level,
            channels: Arc::clone(&context.channels),
            target: self.path.0.clone(),
        };
        let index = IndexWriter::new(self.format.name()).map_err(|e| making.failed(e))?;
        let mut archive = Archive {
            file: context.outputs.create_as_is(&self.path.0)?,
            next: Vec::new(),
            next_len: 0,
            frames: OrderedTasks::new(&context.tasks, context.tasks.width() + 2),
            in_flight: 0,
            table: SeekTableBuilder::default(),
            whole: true,
            index,
            numbers: HashMap::new(),
            events: 0,
            longest: 0,
            making,
        };
        let head = archive.making.format.head()?;
        if !head.is_empty() {
            archive.write_plain(&head)?;
        }
        Ok(archive)
    }

    fn accepts_wide_times(&self) -> bool {
        true
    }

    fn encode(&self, batch: Batch, context: &mut EncodeContext<'_>) -> Result<Measured, Error> {
        let mut batch = batch.with_rows(Vec::new());
        let format = self.format.format()?;
        if !format.accepts_wide_times() {
            context.note_clamped_times(&batch);
        }
        let mut lengths = format.lengths(&batch, context)?;
        refuse_too_long(&lengths, context);
        if !context.refused.is_empty() {
            let mut keep = vec![true; batch.len()];
            context.refused.iter().for_each(|(row, _)| keep[*row as usize] = false);
            batch = batch.retain(|row| keep[row]);
            let mut kept = keep.into_iter();
            lengths.retain(|_| kept.next().unwrap_or(true));
        }
        let batch = if self.frame.0 >= LARGE { batch.owned() } else { batch.compact() };
        Ok(Measured { batch, lengths })
    }

    fn append(&self, archive: &mut Archive, block: Measured) -> Result<u64, Error> {
        let Measured { batch, lengths } = block;
        let mut start = 0;
        for (row, len) in lengths.iter().map(|len| u64::from(*len)).enumerate() {
            if needs_own_frame(archive.next_len, len, self.readers_take / 2) {
                archive.take(&batch, start, row);
                archive.cut()?;
                start = row;
            }
            archive.next_len += len;
            archive.longest = archive.longest.max(len);
            if archive.next_len >= self.frame.0 {
                archive.take(&batch, start, row + 1);
                archive.cut()?;
                start = row + 1;
            }
        }
        archive.take(&batch, start, batch.len());
        archive.events += batch.len() as u64;
        Ok(batch.len() as u64)
    }

    fn flush(&self, archive: &mut Archive) -> Result<(), Error> {
        archive.cut()?;
        archive.settle()
    }

    fn is_readable_unfinished(&self) -> bool {
        true
    }

    fn notes(&self, archive: &Archive) -> Vec<(String, u64)> {
        long_frame(archive.longest, self.readers_take).into_iter().map(|what| (what, 0)).collect()
    }

    fn finish(&self, mut archive: Archive) -> Result<u64, Error> {
        let whole = archive.whole;
        archive.cut()?;
        archive.complete()?;
        if whole {
            return Ok(0);
        }
        let what = std::io::Error::other("a frame before could not be written");
        Err(Error::io("complete", &self.path.0, what))
    }
}

/// Whether an event is too long for the frame in which `waiting` bytes wait: it begins the next one, so that no frame
/// is longer than `chosen` but for the sake of a single event.
fn needs_own_frame(waiting: u64, len: u64, chosen: u64) -> bool {
    waiting > 0 && waiting + len > chosen
}

/// What is to be said of the frame of the longest event, if the source has to be told to take it:
/// more than `readers_take`.
fn long_frame(longest: u64, readers_take: u64) -> Option<String> {
    // What a format adds to an event is little beside one as long as that.
    const ADDED: u64 = 1 << 20;
    let needed = (longest + ADDED).next_multiple_of(1 << 20);
    (needed > readers_take).then(|| {
        let (needed, most) = (ByteSize(needed), ByteSize(readers_take));
        format!(
            "an event makes a frame longer than the {most} that the source `archive` takes: read it with \
             max_frame = \"{needed}\""
        )
    })
}

/// Refuses the events that no frame can hold, and that the format did not refuse.
fn refuse_too_long(lengths: &[u32], context: &mut EncodeContext<'_>) {
    let known: Vec<u32> = context.refused.iter().map(|(row, _)| *row).collect();
    for (row, len) in (0..).zip(lengths) {
        if u64::from(*len) > MOST_FRAME && !known.contains(&row) {
            let most = ByteSize(MOST_FRAME);
            let reason = format!("an event of {len} bytes is longer than the {most} a frame holds");
            context.refused.push((row, reason));
        }
    }
}

impl Making {
    fn failed(&self, error: std::io::Error) -> Error {
        Error::io("compress", &self.target, error)
    }

    /// A frame with these events.
    fn frame(&self, events: &[Batch], len: u64) -> Result<Frame, Error> {
        let mut plain = Vec::with_capacity(usize::try_from(len).unwrap_or_default());
        self.format.encode(events, &self.channels, &mut plain)?;
        let packed = frames::compress(&plain, self.level).map_err(|e| self.failed(e))?;
        let (note, channels) = self.noted(events);
        Ok(Frame { packed, plain: plain.len(), len, note, channels })
    }

    fn noted(&self, events: &[Batch]) -> (Note, Vec<(ChannelId, u32)>) {
        let times = || events.iter().flat_map(|batch| batch.timestamps());
        // As a reader will find them.
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
        (Note { first, last, events, channels: None }, channels)
    }
}

impl Archive {
    /// Puts events `start..end` into the next frame.
    fn take(&mut self, batch: &Batch, start: usize, end: usize) {
        if start < end {
            self.next.push(batch.slice(start, end - start));
        }
    }

    /// Hands over the next frame, if anything is in it.
    fn cut(&mut self) -> Result<(), Error> {
        let (events, len) = (std::mem::take(&mut self.next), std::mem::take(&mut self.next_len));
        if events.is_empty() {
            return Ok(());
        }
        while self.in_flight + len > MOST_IN_FLIGHT
            && let Some(frame) = self.frames.take_oldest()?
        {
            self.put(frame)?;
        }
        self.in_flight += len;
        let making = self.making.clone();
        match self.frames.push(move || making.frame(&events, len))? {
            Some(frame) => self.put(frame),
            None => Ok(()),
        }
    }

    /// Writes a frame whose turn has come.
    fn put(&mut self, mut frame: Frame) -> Result<(), Error> {
        self.in_flight -= frame.len;
        let mut channels: Vec<(u32, u32)> =
            frame.channels.iter().map(|(id, events)| (self.number(*id), *events)).collect();
        channels.sort_unstable();
        // Channels of one name may differ in what the index does not say.
        channels.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            kept.1 += if same { next.1 } else { 0 };
            same
        });
        frame.note.channels = Some(channels.into_iter().flat_map(<[u32; 2]>::from).collect());
        self.write(&frame.packed, frame.plain)?;
        self.index.add(frame.note).map_err(|e| self.making.failed(e))
    }

    fn number(&mut self, id: ChannelId) -> u32 {
        let Self { numbers, making, index, .. } = self;
        *numbers.entry(id).or_insert_with(|| {
            let channel = making.channels.get(id);
            let source = making.format.keeps_sources().then(|| channel.source.to_string());
            index.number(Known { name: channel.name.text().to_owned(), source })
        })
    }

    /// Writes a frame without events.
    fn write_plain(&mut self, plain: &[u8]) -> Result<(), Error> {
        let packed = frames::compress(plain, self.making.level);
        let packed = packed.map_err(|e| self.making.failed(e))?;
        self.write(&packed, plain.len())
    }

    fn write(&mut self, packed: &[u8], plain: usize) -> Result<(), Error> {
        // A frame that could not be written is lost: what is completed then is not whole.
        self.whole = false;
        self.file.write_binary(packed)?;
        self.whole = true;
        self.table.push(packed.len(), plain).map_err(|e| self.making.failed(e))
    }

    /// Writes every frame that is in the making.
    fn settle(&mut self) -> Result<(), Error> {
        while let Some(frame) = self.frames.take_oldest()? {
            self.put(frame)?;
        }
        Ok(())
    }

    /// Writes what stands behind the frames.
    fn complete(mut self) -> Result<(), Error> {
        self.settle()?;
        let tail = self.making.format.tail()?;
        if !tail.is_empty() {
            self.write_plain(&tail)?;
        }
        if self.table.is_empty() {
            // A file without any frame would not be a compressed file.
            self.write_plain(&[])?;
            let nothing = Note { channels: Some(Vec::new()), ..Note::default() };
            self.index.add(nothing).map_err(|e| self.making.failed(e))?;
        }
        let Self { mut file, making, table, index, events, .. } = self;
        if let Some(index) = index.finish().map_err(|e| making.failed(e))? {
            file.write(&index)?;
        }
        file.write(&table.finish())?;
        file.finish(events)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Value, json};
    use sluice_core::contract::gather;
    use sluice_core::{BatchBuilder, BlockPool, Channel, Encoding, Name, options};

    use super::*;
    use crate::source;

    #[test]
    fn only_a_single_event_makes_a_frame_that_readers_have_to_be_told_of() {
        // Frames up to what may be chosen, and then an event of any length.
        let longest_of_several = |len: u64| {
            let waiting = LONGEST_CHOSEN - 1;
            if needs_own_frame(waiting, len, LONGEST_CHOSEN) {
                waiting.max(len)
            } else {
                waiting + len
            }
        };
        for len in [1, 2, LONGEST_CHOSEN] {
            assert!(longest_of_several(len) <= LONGEST_CHOSEN, "{len}");
        }
        assert!(!needs_own_frame(0, MOST_FRAME, LONGEST_CHOSEN));
        assert_eq!(long_frame(LONGEST_CHOSEN, DEFAULT_MAX_FRAME), None);
        let told = long_frame(DEFAULT_MAX_FRAME, DEFAULT_MAX_FRAME).unwrap();
        assert!(told.contains("max_frame = \"257MiB\""), "{told}");
        let told = long_frame(MOST_FRAME - 1, DEFAULT_MAX_FRAME).unwrap();
        let said = told.split('"').nth(1).and_then(|size| ByteSize::parse(size).ok()).unwrap();
        assert!(said.0 >= MOST_FRAME, "{told}");
    }

    /// An archive of events of these lengths for readers that take frames of `readers_take`; gives
    /// what was noted.
    fn write(path: &Path, lengths: &[usize], readers_take: u64) -> Vec<String> {
        let options = json!({ "path": path, "format": "arrow", "frame": 300 });
        let sink = ArchiveSink { readers_take, ..options::read(options).unwrap() };
        let context = SinkContext::standalone();
        let mut events = BatchBuilder::default();
        let channel = Channel::new(Name::from_text("A"), "test", Encoding::Unknown);
        let channel = context.channels.intern(channel).unwrap();
        for (n, len) in (0i64..).zip(lengths) {
            events.push_copy(n, n, channel, &vec![n as u8; *len]);
        }
        let mut archive = sink.open(&context).unwrap();
        let buffers = BlockPool::new(1 << 10, 4);
        let mut encoding = EncodeContext::new(&context.channels, &buffers);
        let block = sink.encode(events.finish(), &mut encoding).unwrap();
        sink.append(&mut archive, block).unwrap();
        let notes = sink.notes(&archive);
        sink.finish(archive).unwrap();
        context.outputs.publish(|_, _| Ok(String::new())).unwrap();
        notes.into_iter().map(|(what, _)| what).collect()
    }

    #[test]
    fn an_event_above_what_readers_take_is_read_with_what_the_note_says() {
        // What stands for the default of 256 MiB here: the note speaks of whole MiB.
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
        // An archive of short events needs to be told nothing.
        assert!(write(&folder.path().join("short.zst"), &[100; 9], 4 << 20).is_empty());
    }
}
