//! The sink trait, and the contexts for opening and encoding.

use std::any::Any;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use serde::Serialize;
use sluice_io::Tasks;
use sluice_io::escape::printable;
use sluice_io::tasks::InlineTasks;

use crate::{
    Batch, BlockPool, Channel, ChannelId, Channels, Clock, Encoding, Error, Input, Outputs,
    Overwrite, RunHandle,
};

/// The context for opening an output.
#[derive(Clone, Debug)]
pub struct SinkContext {
    /// Creates files, and publishes them when the whole run has succeeded.
    pub outputs: Arc<Outputs>,
    /// Every channel of the run.
    pub channels: Arc<Channels>,
    /// Runs background work of the sink.
    pub tasks: Arc<dyn Tasks>,
    /// The memory budget for buffered events in bytes. It determines the size of row groups and the
    /// like, so it does not depend on the number of threads.
    pub memory: usize,
    /// A description of the run, for sinks that record it.
    pub origin: Arc<RunOrigin>,
    /// The connection to the run. Sinks that wait must check whether it is cancelled.
    pub run: RunHandle,
}

impl SinkContext {
    /// A context that runs tasks immediately; for tests and small tools.
    pub fn standalone() -> Self {
        Self {
            outputs: Arc::new(Outputs::new(Overwrite::Refuse, false, &[])),
            channels: Arc::default(),
            tasks: Arc::new(InlineTasks),
            memory: 256 << 20,
            origin: Arc::default(),
            run: RunHandle::default(),
        }
    }
}

/// A description of a run: its pipeline and its inputs.
#[derive(Debug, Default)]
pub struct RunOrigin {
    /// The pipeline's name.
    pub name: Option<String>,
    /// The pipeline file with its variables filled in: everything that determines the output.
    pub pipeline: String,
    /// The inputs, in reading order.
    pub inputs: Vec<RunInput>,
}

/// An input, with its hash once it is known.
#[derive(Debug, Serialize)]
pub struct RunInput {
    /// Its path, as given by the user.
    #[serde(serialize_with = "sluice_io::escape::path_as_text")]
    pub path: PathBuf,
    /// Its length in bytes, if it has one.
    pub bytes: Option<u64>,
    /// The BLAKE3 hash of its bytes, in hex. Computed in the background if the input can be read
    /// twice; a sink that needs it waits for it when it finishes.
    #[serde(serialize_with = "serialize_hash")]
    pub blake3: OnceLock<Option<String>>,
}

impl RunInput {
    /// An input without a hash.
    pub fn unhashed(input: &Input) -> Self {
        let Input { path, bytes } = input.clone();
        Self { path, bytes, blake3: OnceLock::from(None) }
    }
}

fn serialize_hash<S: serde::Serializer>(
    hash: &OnceLock<Option<String>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    hash.wait().serialize(serializer)
}

/// The context for encoding a batch.
#[derive(Debug)]
pub struct EncodeContext<'r> {
    /// Every channel of the run.
    pub channels: &'r Channels,
    /// Buffers to encode into.
    pub buffers: &'r BlockPool,
    /// Events that the format cannot store, by position in the batch, with the reason.
    pub refused: Vec<(u32, String)>,
    /// What the format loses of events it does store: reported once.
    pub losses: BTreeSet<&'static str>,
    /// Events, by position in the batch, whose time was clamped.
    pub clamped: Vec<u32>,
    /// Channels whose names are stored but not their sources. Whether that loses anything is known
    /// at the end of the run: see [`SOURCES_LOST`].
    pub without_sources: BTreeSet<ChannelId>,
}

/// The note for outputs that have events of several sources, but do not store sources.
pub const SOURCES_LOST: &str = "the sources of channels are not written";

/// The note about clamped times, once per channel.
pub fn times_clamped(channel: &Channel) -> String {
    format!(
        "{}: times outside the range of 64-bit nanoseconds (years 1677 to 2262) were clamped",
        printable(channel.name.text())
    )
}

impl<'r> EncodeContext<'r> {
    /// An empty context.
    pub fn new(channels: &'r Channels, buffers: &'r BlockPool) -> Self {
        let (losses, without_sources) = (BTreeSet::new(), BTreeSet::new());
        let (refused, clamped) = (Vec::new(), Vec::new());
        Self { channels, buffers, refused, losses, clamped, without_sources }
    }

    /// Records all events whose timestamp is clamped.
    pub fn note_clamped_times(&mut self, batch: &Batch) {
        if batch.wide_times().is_some() {
            let rows = 0..batch.len() as u32;
            self.clamped.extend(rows.filter(|row| batch.wide_time(*row as usize).is_some()));
        }
    }

    /// Records what is lost if only the names of channels are stored and all payloads are assumed
    /// to have `encoding`.
    pub fn note_names_only(&mut self, batch: &Batch, encoding: &Encoding) {
        let mut met = Vec::new();
        let mut last = None;
        for id in batch.channels() {
            if last.replace(*id) == Some(*id) {
                continue;
            }
            if met.len() <= *id as usize {
                met.resize(*id as usize + 1, false);
            }
            if std::mem::replace(&mut met[*id as usize], true) {
                continue;
            }
            let channel = self.channels.get(ChannelId(*id));
            // Unknown encodings and text can be recognized without being stored.
            let is_recognizable = matches!(channel.encoding, Encoding::Unknown | Encoding::Text)
                || channel.encoding == *encoding;
            if !is_recognizable || !channel.metadata.is_empty() {
                self.losses.insert("encodings and versions of payloads are not written");
            }
            if channel.clock == Clock::Relative {
                self.losses.insert("times relative to the start of a log are written unchanged");
            }
            self.without_sources.insert(ChannelId(*id));
        }
    }
}

/// Writes one kind of output: a format of files, or a stream.
///
/// # How it is used
///
/// 1. [`targets`](Self::targets) and the capabilities (`accepts_*`, `buffers_events`,
///    `wants_hashes`) are asked before the run starts.
/// 2. [`open`](Self::open) is called once per run. Files are created through
///    [`SinkContext::outputs`], so they appear under their final names only if the whole run
///    succeeds.
/// 3. [`encode`](Self::encode) is called for every batch, on any thread, in any order and for
///    several batches at the same time. It must depend on the batch only.
/// 4. [`append`](Self::append) receives the encoded blocks in the order of the events, on one
///    thread at a time.
/// 5. [`finish`](Self::finish) is called once, after the last `append`.
///
/// Put the work into `encode`: `append` is sequential. Work that needs several batches at once,
/// such as compressing a row group, is started from `append` through [`SinkContext::tasks`], for
/// instance with [`OrderedTasks`](sluice_io::OrderedTasks).
///
/// # What is guaranteed
///
/// The output depends on the events and on [`SinkContext::memory`], never on the number of threads
/// or the time. Every event is either counted by `append` and `finish`, listed in
/// [`EncodeContext::refused`], or returned by [`take_skipped`](Self::take_skipped).
///
/// # Errors
///
/// `Err` ends the run, and nothing is published. An event that the format cannot hold is not an
/// error: list it in [`EncodeContext::refused`] with a reason.
///
/// # Example
///
/// ```
/// use std::path::PathBuf;
///
/// use sluice_model::{
///     Batch, BatchBuilder, BlockPool, ChannelId, EncodeContext, Error, OutputFile, Sink,
///     SinkContext,
/// };
///
/// /// Writes the timestamps of events, one per line.
/// struct Timestamps {
///     path: PathBuf,
/// }
///
/// impl Sink for Timestamps {
///     type Block = (String, u64);
///     type Output = (OutputFile, u64);
///
///     fn targets(&self) -> Vec<PathBuf> {
///         vec![self.path.clone()]
///     }
///
///     fn open(&self, context: &SinkContext) -> Result<Self::Output, Error> {
///         Ok((context.outputs.create(&self.path)?, 0))
///     }
///
///     fn encode(&self, batch: Batch, _: &mut EncodeContext<'_>) -> Result<Self::Block, Error> {
///         let lines = batch.timestamps().iter().map(|time| format!("{time}\n")).collect();
///         Ok((lines, batch.len() as u64))
///     }
///
///     fn append(&self, output: &mut Self::Output, block: Self::Block) -> Result<u64, Error> {
///         output.0.write(block.0.as_bytes())?;
///         output.1 += block.1;
///         Ok(block.1)
///     }
///
///     fn finish(&self, (file, events): Self::Output) -> Result<u64, Error> {
///         file.finish(events)?;
///         Ok(0) // nothing was held back
///     }
/// }
///
/// let folder = tempfile::tempdir().unwrap();
/// let sink = Timestamps { path: folder.path().join("times.txt") };
/// let (context, buffers) = (SinkContext::standalone(), BlockPool::new(1 << 16, 1));
/// let mut batch = BatchBuilder::default();
/// batch.push_copy(7, 0, ChannelId(0), b"payload");
///
/// let mut output = sink.open(&context)?;
/// let mut encoding = EncodeContext::new(&context.channels, &buffers);
/// let block = sink.encode(batch.finish(), &mut encoding)?;
/// assert_eq!(sink.append(&mut output, block)?, 1);
/// sink.finish(output)?;
/// context.outputs.publish(|_, _| Ok(String::new()))?;
/// assert_eq!(std::fs::read_to_string(&sink.path).unwrap(), "7\n");
/// # Ok::<(), Error>(())
/// ```
pub trait Sink: Send + Sync + 'static {
    /// An encoded piece of output, passed from `encode` to `append`.
    type Block: Send + 'static;
    /// The open output.
    type Output: Send + 'static;

    /// The files or folders it will write; `-` is standard output.
    fn targets(&self) -> Vec<PathBuf>;

    /// Whether it buffers events, up to [`SinkContext::memory`], before it writes them.
    fn buffers_events(&self) -> bool {
        false
    }

    /// Whether it stores the hashes of the inputs.
    fn wants_hashes(&self) -> bool {
        false
    }

    /// Whether it can write events that have decoded rows but no payload. Other sinks do not
    /// receive such events.
    fn accepts_rows(&self) -> bool {
        false
    }

    /// Why it does not write decoded rows, with advice; `None` if it does.
    fn rows_unwritten(&self) -> Option<String> {
        (!self.accepts_rows()).then(|| NO_FIELDS_WRITTEN.to_owned())
    }

    /// Whether it handles [`Batch::wide_times`] itself. For other sinks, clamped times are
    /// reported.
    fn accepts_wide_times(&self) -> bool {
        false
    }

    /// Opens the output through `context.outputs`.
    fn open(&self, context: &SinkContext) -> Result<Self::Output, Error>;

    /// Encodes a batch. Called on any thread, in any order.
    fn encode(&self, batch: Batch, context: &mut EncodeContext<'_>) -> Result<Self::Block, Error>;

    /// Appends a block. Called in the order of the events. Returns the number of events written.
    fn append(&self, output: &mut Self::Output, block: Self::Block) -> Result<u64, Error>;

    /// Notes about the whole output, with counts; 0 if a count is meaningless. Called once, before
    /// [`finish`](Self::finish).
    fn notes(&self, output: &Self::Output) -> Vec<(String, u64)> {
        let _ = output;
        Vec::new()
    }

    /// Makes everything appended so far visible to readers of the unfinished output. Called
    /// regularly for recordings.
    fn flush(&self, output: &mut Self::Output) -> Result<(), Error> {
        let _ = output;
        Ok(())
    }

    /// Whether an unfinished output is readable up to the last flush. Recordings of other sinks
    /// only appear when they are complete.
    fn is_readable_unfinished(&self) -> bool {
        false
    }

    /// How many times the sources are read in sequence.
    fn rounds(&self) -> u64 {
        1
    }

    /// The channels of events that were appended but skipped since the last call, such as by a seek
    /// during playback.
    fn take_skipped(&self, output: &mut Self::Output) -> Vec<u32> {
        let _ = output;
        Vec::new()
    }

    /// Completes the output. Returns the number of events written only now.
    fn finish(&self, output: Self::Output) -> Result<u64, Error>;
}

/// The object-safe form of [`Sink`], implemented for every sink.
pub trait DynSink: Send + Sync {
    /// See [`Sink::targets`].
    fn targets(&self) -> Vec<PathBuf>;
    /// See [`Sink::buffers_events`].
    fn buffers_events(&self) -> bool;
    /// See [`Sink::wants_hashes`].
    fn wants_hashes(&self) -> bool;
    /// See [`Sink::accepts_rows`].
    fn accepts_rows(&self) -> bool;
    /// See [`Sink::rows_unwritten`].
    fn rows_unwritten(&self) -> Option<String>;
    /// See [`Sink::open`].
    fn open(&self, context: &SinkContext) -> Result<Box<dyn Any + Send>, Error>;
    /// See [`Sink::encode`].
    fn encode(
        &self,
        batch: Batch,
        context: &mut EncodeContext<'_>,
    ) -> Result<Box<dyn Any + Send>, Error>;
    /// See [`Sink::append`].
    fn append(&self, output: &mut dyn Any, block: Box<dyn Any + Send>) -> Result<u64, Error>;
    /// See [`Sink::notes`].
    fn notes(&self, output: &dyn Any) -> Vec<(String, u64)>;
    /// See [`Sink::flush`].
    fn flush(&self, output: &mut dyn Any) -> Result<(), Error>;
    /// See [`Sink::is_readable_unfinished`].
    fn is_readable_unfinished(&self) -> bool;
    /// See [`Sink::rounds`].
    fn rounds(&self) -> u64;
    /// See [`Sink::take_skipped`].
    fn take_skipped(&self, output: &mut dyn Any) -> Vec<u32>;
    /// See [`Sink::finish`].
    fn finish(&self, output: Box<dyn Any + Send>) -> Result<u64, Error>;
}

const NO_FIELDS_WRITTEN: &str = "decoded fields are not written, since this format stores \
                                 payloads; use tables (`tables/`), `.csv` or `.jsonl` for fields";

const NO_PAYLOAD: &str =
    "the event has decoded fields but no payload; put the stage `encode` before the sink";

const NO_WHOLE_MESSAGE: &str =
    "the event has only elements or selected fields of a message, which cannot be encoded";

/// Why a sink of payloads cannot write an event that has only decoded rows.
fn why_refused(batch: &Batch, event: u32) -> String {
    let parts = batch.rows().iter().filter(|rows| rows.message.is_part());
    let is_part = parts.into_iter().any(|rows| rows.events.binary_search(&event).is_ok());
    if is_part { NO_WHOLE_MESSAGE } else { NO_PAYLOAD }.to_owned()
}

const FOREIGN_TYPE: &str = "a sink is only given the blocks and outputs it made";

impl<S: Sink> DynSink for S {
    fn targets(&self) -> Vec<PathBuf> {
        Sink::targets(self)
    }

    fn buffers_events(&self) -> bool {
        Sink::buffers_events(self)
    }

    fn wants_hashes(&self) -> bool {
        Sink::wants_hashes(self)
    }

    fn accepts_rows(&self) -> bool {
        Sink::accepts_rows(self)
    }

    fn rows_unwritten(&self) -> Option<String> {
        Sink::rows_unwritten(self)
    }

    fn open(&self, context: &SinkContext) -> Result<Box<dyn Any + Send>, Error> {
        Ok(Box::new(Sink::open(self, context)?))
    }

    fn encode(
        &self,
        batch: Batch,
        context: &mut EncodeContext<'_>,
    ) -> Result<Box<dyn Any + Send>, Error> {
        if !Sink::accepts_wide_times(self) {
            context.note_clamped_times(&batch);
        }
        let given = if Sink::accepts_rows(self) { None } else { batch.split_off_decoded_only() };
        let Some((kept, alone)) = given else {
            return Ok(Box::new(Sink::encode(self, batch, context)?));
        };
        let mut own = EncodeContext::new(context.channels, context.buffers);
        let places: Vec<u32> = (0..batch.len())
            .map(|row| row as u32)
            .filter(|row| alone.binary_search(row).is_err())
            .collect();
        let block = Sink::encode(self, kept, &mut own)?;
        context.losses.append(&mut own.losses);
        context.without_sources.append(&mut own.without_sources);
        let refused = own.refused.into_iter().map(|(row, why)| (places[row as usize], why));
        context.refused.extend(refused);
        context.clamped.extend(own.clamped.into_iter().map(|row| places[row as usize]));
        context.refused.extend(alone.into_iter().map(|row| (row, why_refused(&batch, row))));
        Ok(Box::new(block))
    }

    fn append(&self, output: &mut dyn Any, block: Box<dyn Any + Send>) -> Result<u64, Error> {
        let block = block.downcast::<S::Block>().expect(FOREIGN_TYPE);
        Sink::append(self, output.downcast_mut().expect(FOREIGN_TYPE), *block)
    }

    fn notes(&self, output: &dyn Any) -> Vec<(String, u64)> {
        Sink::notes(self, output.downcast_ref().expect(FOREIGN_TYPE))
    }

    fn flush(&self, output: &mut dyn Any) -> Result<(), Error> {
        Sink::flush(self, output.downcast_mut().expect(FOREIGN_TYPE))
    }

    fn is_readable_unfinished(&self) -> bool {
        Sink::is_readable_unfinished(self)
    }

    fn rounds(&self) -> u64 {
        Sink::rounds(self)
    }

    fn take_skipped(&self, output: &mut dyn Any) -> Vec<u32> {
        Sink::take_skipped(self, output.downcast_mut().expect(FOREIGN_TYPE))
    }

    fn finish(&self, output: Box<dyn Any + Send>) -> Result<u64, Error> {
        Sink::finish(self, *output.downcast().expect(FOREIGN_TYPE))
    }
}
