//! The sink trait, and the contexts for opening and preparing.

use std::any::Any;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;
use serde::ser::Error as _;
use sluice_io::escape::printable;
use sluice_io::files::InputHash;
use sluice_io::tasks::Job;

use crate::{
    Batch, BlockPool, Channel, ChannelId, ChannelSet, Channels, Clock, Encoding, Error, Input,
    Outputs, Overwrite, RunDamage, RunHandle, UnmetExpectation,
};

/// The context for opening an output.
#[derive(Clone, Debug)]
pub struct SinkContext {
    /// Creates files, and publishes them when the whole run has succeeded.
    pub outputs: Arc<Outputs>,
    /// Every channel of the run.
    pub channels: Arc<Channels>,
    /// The memory budget for buffered events in bytes. It determines the size of row groups and the
    /// like, so it does not depend on the number of threads.
    pub memory: usize,
    /// A description of the run, for sinks that record it.
    pub origin: Arc<RunOrigin>,
    /// The connection to the run. Sinks that wait must check whether it is cancelled.
    pub run: RunHandle,
    /// Whether the run is cut into several outputs, as recordings are. Batches are prepared ahead,
    /// so some that are prepared before this call are gathered after it.
    pub is_piece: bool,
}

impl SinkContext {
    /// A context for tests and small tools.
    pub fn standalone() -> Self {
        Self {
            outputs: Arc::new(Outputs::new(Overwrite::Refuse, false, &[])),
            channels: Arc::default(),
            memory: 256 << 20,
            origin: Arc::default(),
            run: RunHandle::default(),
            is_piece: false,
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
    /// The damage found so far.
    pub damage: RunDamage,
}

/// An input of a run.
#[derive(Debug, Serialize)]
pub struct RunInput {
    /// Its path, as given by the user.
    #[serde(serialize_with = "sluice_io::escape::path_as_text")]
    pub path: PathBuf,
    /// Its length in bytes, if it has one.
    pub bytes: Option<u64>,
    /// The BLAKE3 hash of its bytes, if a node wants it and the input can be read twice. Asking for
    /// it reads what has not been read yet.
    #[serde(rename = "blake3", serialize_with = "serialize_hash")]
    pub hash: Option<Arc<InputHash>>,
}

impl RunInput {
    /// An input without a hash.
    pub fn unhashed(input: &Input) -> Self {
        let Input { path, bytes } = input.clone();
        Self { path, bytes, hash: None }
    }

    /// Its hash in hex; `None` if it has none, or is no longer there in full. `Err` if reading it
    /// fails.
    pub fn blake3(&self) -> Result<Option<&str>, Error> {
        self.hash.as_ref().map_or(Ok(None), |hash| hash.hex())
    }
}

fn serialize_hash<S: serde::Serializer>(
    hash: &Option<Arc<InputHash>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let hex = hash.as_ref().map_or(Ok(None), |hash| hash.hex());
    hex.map_err(S::Error::custom)?.serialize(serializer)
}

/// The context for preparing a batch.
#[derive(Debug)]
pub struct PrepareContext<'r> {
    /// Every channel of the run.
    pub channels: &'r Channels,
    /// Buffers to encode into.
    pub buffers: &'r BlockPool,
    /// What the sink reports about the batch.
    pub report: PrepareReport,
}

/// What a sink reports about a batch that it prepares.
#[derive(Debug, Default)]
pub struct PrepareReport {
    /// Events that the format cannot store, by position in the batch, with the reason.
    pub refused: Vec<(u32, String)>,
    /// What the format loses of events it does store: reported once.
    pub losses: BTreeSet<&'static str>,
    /// Events, by position in the batch, whose time was clamped.
    pub clamped: Vec<u32>,
    /// Channels whose names are stored but not their sources. Whether that loses anything is known
    /// at the end of the run: see [`SOURCES_LOST`].
    pub without_sources: ChannelSet,
}

/// The note for outputs that have events of several sources, but do not store sources.
pub const SOURCES_LOST: &str = "the sources of channels are not written";

/// The note about schemas that an output does not store.
const SCHEMAS_LOST: &str = "the schemas of channels are not written, so that their types cannot be \
                            decoded from this output; tables, `.mcap` and `.arrow.zst` keep them";

/// The note about clamped times, once per channel.
pub fn times_clamped(channel: &Channel) -> String {
    format!(
        "{}: times outside the range of 64-bit nanoseconds (years 1677 to 2262) were clamped",
        printable(channel.name.text())
    )
}

impl<'r> PrepareContext<'r> {
    /// An empty context.
    pub fn new(channels: &'r Channels, buffers: &'r BlockPool) -> Self {
        Self { channels, buffers, report: PrepareReport::default() }
    }

    /// Records all events whose timestamp is clamped.
    pub fn note_clamped_times(&mut self, batch: &Batch) {
        if batch.wide_times().is_some() {
            let rows = 0..batch.len() as u32;
            self.report.clamped.extend(rows.filter(|row| batch.wide_time(*row as usize).is_some()));
        }
    }

    /// Records that the schemas of channels are not stored.
    pub fn note_schemas_lost(&mut self, batch: &Batch) {
        let all = self.channels.all();
        if batch.channels().iter().any(|id| all[*id as usize].schema.is_some()) {
            self.report.losses.insert(SCHEMAS_LOST);
        }
    }

    /// Records what is lost if only the names of channels are stored and all payloads are assumed
    /// to have `encoding`.
    pub fn note_names_only(&mut self, batch: &Batch, encoding: &Encoding) {
        let all = self.channels.all();
        for id in batch.channels().iter().map(|id| ChannelId(*id)) {
            if !self.report.without_sources.insert(id) {
                continue;
            }
            let channel = &all[id.index()];
            // Unknown encodings and text can be recognized without being stored.
            let is_recognizable = matches!(channel.encoding, Encoding::Unknown | Encoding::Text)
                || channel.encoding == *encoding;
            if !is_recognizable || !channel.metadata.is_empty() {
                self.report.losses.insert("encodings and versions of payloads are not written");
            }
            if channel.schema.is_some() {
                self.report.losses.insert(SCHEMAS_LOST);
            }
            if channel.clock == Clock::Relative {
                self.report
                    .losses
                    .insert("times relative to the start of a log are written unchanged");
            }
        }
    }
}

/// What the engine must know of a sink before a run.
#[derive(Clone, Debug)]
pub struct SinkTraits {
    /// The files or folders it will write; `-` is standard output.
    pub targets: Vec<PathBuf>,
    /// Whether it buffers events, up to [`SinkContext::memory`], before it writes them.
    pub buffers_events: bool,
    /// Whether it stores the hashes of the inputs.
    pub wants_hashes: bool,
    /// Whether it can write events that have decoded rows but no payload. Other sinks do not
    /// receive such events.
    pub accepts_rows: bool,
    /// Why it does not write decoded rows, with advice; `None` if it does.
    pub rows_unwritten: Option<Cow<'static, str>>,
    /// Whether it handles [`Batch::wide_times`] itself. For other sinks, clamped times are
    /// reported.
    pub accepts_wide_times: bool,
    /// Whether an unfinished output is readable up to the last flush. Recordings of other sinks
    /// only appear when they are complete.
    pub is_readable_unfinished: bool,
    /// How many times the sources are read in sequence.
    pub rounds: u64,
    /// Whether it sends events while the run goes on and stores nothing. If all sinks do, inputs
    /// are read from front to back and only a little ahead: sending takes longer, and what was read
    /// recently is still in a core's cache. A stop request then ends the run early; otherwise it
    /// discards a run whose inputs can be read again, also one whose sinks write no files.
    pub is_live: bool,
}

impl Default for SinkTraits {
    /// The traits of a sink that writes payloads, and no file.
    fn default() -> Self {
        Self {
            targets: Vec::new(),
            buffers_events: false,
            wants_hashes: false,
            accepts_rows: false,
            rows_unwritten: Some(Cow::Borrowed(NO_FIELDS_WRITTEN)),
            accepts_wide_times: false,
            is_readable_unfinished: false,
            rounds: 1,
            is_live: false,
        }
    }
}

impl SinkTraits {
    /// The traits of a sink that writes payloads to this file or folder.
    pub fn writing(target: impl AsRef<Path>) -> Self {
        Self { targets: vec![target.as_ref().to_owned()], ..Self::default() }
    }

    /// The same for a sink that writes decoded rows, if `accepts_rows`.
    pub fn with_rows(self, accepts_rows: bool) -> Self {
        let rows_unwritten = self.rows_unwritten.filter(|_| !accepts_rows);
        Self { accepts_rows, rows_unwritten, ..self }
    }
}

/// What [`Sink::gather`] is told.
#[derive(Debug)]
pub enum SinkInput<B> {
    /// The next prepared batch, in the order of the events.
    Block(B),
    /// Everything gathered so far must be written now. Only recordings are flushed.
    Flush,
    /// No block follows.
    End,
}

/// What became of events that a sink was given.
#[derive(Debug, Default)]
pub struct Written {
    /// The number of events written.
    pub events: u64,
    /// The original channels of events that were skipped, such as by a seek during playback.
    pub skipped: Vec<u32>,
    /// Notes for the report, with counts; 0 if a count is meaningless.
    pub notes: Vec<(String, u64)>,
    /// The expectations that the events do not meet.
    pub unmet: Vec<UnmetExpectation>,
}

impl Written {
    /// This many events were written.
    pub fn events(events: u64) -> Self {
        Self { events, ..Self::default() }
    }

    /// Adds what was written later.
    pub fn add(&mut self, later: Self) {
        self.events += later.events;
        self.skipped.extend(later.skipped);
        self.notes.extend(later.notes);
        self.unmet.extend(later.unmet);
    }
}

/// Writes one kind of output: a format of files, or a stream.
///
/// # How it is used
///
/// 1. [`traits`](Self::traits) is asked before the run starts.
/// 2. [`open`](Self::open) is called once per output. Files are created through
///    [`SinkContext::outputs`], so they appear under their final names only if the whole run
///    succeeds.
/// 3. [`prepare`](Self::prepare) is called for every batch, on any thread, in any order and for
///    several batches at the same time. It must depend on the batch only.
/// 4. [`gather`](Self::gather) receives the prepared batches in the order of the events, cuts them
///    into units, and returns a [`Job`] for each: the work of encoding it. The engine runs jobs on
///    any thread, a few at a time, within [`SinkContext::memory`].
/// 5. [`write`](Self::write) receives the encoded units in the order of their jobs.
/// 6. [`finish`](Self::finish) is called once, after the last `write`.
///
/// Steps 4 to 6 run on one thread at a time and have the open output.
///
/// A sink whose units are the batches themselves encodes in `prepare` and leaves `gather` out: its
/// [`Unit`](Self::Unit) is its [`Block`](Self::Block). A sink that needs several batches at once,
/// such as for a row group, sorts or measures in `prepare`, and encodes in jobs.
///
/// # What is guaranteed
///
/// The output depends on the events and on [`SinkContext::memory`], never on the number of threads
/// or the time. Every event is either counted in a [`Written`] or listed in
/// [`PrepareReport::refused`].
///
/// # Errors
///
/// `Err` ends the run, and nothing of the output is published. An event that the format cannot hold
/// is not an error: list it in [`PrepareReport::refused`] with a reason.
///
/// # Example
///
/// ```
/// use std::path::{Path, PathBuf};
/// use std::sync::Arc;
///
/// use sluice_io::tasks::TaskPool;
/// use sluice_model::{
///     Batch, BatchBuilder, BlockPool, ChannelId, DynSink, PrepareContext, Error, OutputFile, Sink,
///     SinkContext, SinkTraits, Written,
/// };
///
/// /// Writes the timestamps of events, one per line.
/// struct Timestamps {
///     path: PathBuf,
/// }
///
/// impl Sink for Timestamps {
///     type Block = Vec<String>;
///     type Unit = Vec<String>;
///     type Output = (OutputFile, u64);
///
///     fn traits(&self) -> SinkTraits {
///         SinkTraits::writing(&self.path)
///     }
///
///     fn open(&self, context: &SinkContext) -> Result<Self::Output, Error> {
///         Ok((context.outputs.create(&self.path)?, 0))
///     }
///
///     fn prepare(&self, batch: Batch, _: &mut PrepareContext<'_>) -> Result<Vec<String>, Error> {
///         Ok(batch.timestamps().iter().map(|time| format!("{time}\n")).collect())
///     }
///
///     fn write(&self, output: &mut Self::Output, lines: Vec<String>) -> Result<Written, Error> {
///         output.0.write(lines.concat().as_bytes())?;
///         output.1 += lines.len() as u64;
///         Ok(Written::events(lines.len() as u64))
///     }
///
///     fn finish(&self, (file, events): Self::Output) -> Result<Written, Error> {
///         file.finish(events)?;
///         Ok(Written::default()) // nothing was held back
///     }
/// }
///
/// let folder = tempfile::tempdir().unwrap();
/// let path = folder.path().join("times.txt");
/// let sink = DynSink::new(Timestamps { path: path.clone() });
/// let (context, buffers) = (SinkContext::standalone(), BlockPool::new(1 << 16, 1));
/// let mut batch = BatchBuilder::default();
/// batch.push_copy(7, 0, ChannelId(0), b"payload");
///
/// let mut output = sink.open(&context, &TaskPool::default())?;
/// let mut preparing = PrepareContext::new(&context.channels, &buffers);
/// let block = sink.prepare(batch.finish(), &mut preparing)?;
/// assert_eq!(output.push(block)?.events, 1);
/// output.finish()?;
/// context.outputs.publish(|_, _| Ok(String::new()))?;
/// assert_eq!(std::fs::read_to_string(&path).unwrap(), "7\n");
/// # Ok::<(), Error>(())
/// ```
pub trait Sink: Send + Sync + 'static {
    /// A prepared batch, passed from `prepare` to `gather`.
    type Block: Send + 'static;
    /// An encoded unit, passed from a job to `write`.
    type Unit: Send + 'static;
    /// The open output.
    type Output: Send + 'static;

    /// What the engine must know of it.
    fn traits(&self) -> SinkTraits;

    /// Opens the output through `context.outputs`.
    fn open(&self, context: &SinkContext) -> Result<Self::Output, Error>;

    /// Prepares a batch. Called on any thread, in any order.
    fn prepare(&self, batch: Batch, context: &mut PrepareContext<'_>)
    -> Result<Self::Block, Error>;

    /// Adds a block to what it has gathered, and returns a job for each unit that is complete; at a
    /// flush and at the end, for every unit. Writes nothing.
    ///
    /// By default, each block is a unit of its own; its type must be [`Unit`](Self::Unit) then.
    fn gather(
        &self,
        output: &mut Self::Output,
        input: SinkInput<Self::Block>,
    ) -> Result<Vec<Job<Self::Unit>>, Error> {
        let _ = output;
        let SinkInput::Block(block) = input else { return Ok(Vec::new()) };
        let mut block = Some(block);
        let unit = (&mut block as &mut dyn Any).downcast_mut::<Option<Self::Unit>>();
        let unit = unit.and_then(Option::take).ok_or_else(|| {
            Error::internal("a sink whose units are not its blocks does not gather them")
        })?;
        Ok(vec![Job::done(unit)])
    }

    /// Writes a unit. Called in the order of the jobs.
    fn write(&self, output: &mut Self::Output, unit: Self::Unit) -> Result<Written, Error>;

    /// Makes everything written so far visible to readers of the unfinished output. Called after
    /// the units of [`SinkInput::Flush`] were written.
    fn flush(&self, output: &mut Self::Output) -> Result<(), Error> {
        let _ = output;
        Ok(())
    }

    /// Completes the output. Returns what is known only now, such as notes about the whole output.
    fn finish(&self, output: Self::Output) -> Result<Written, Error>;
}

const NO_FIELDS_WRITTEN: &str = "decoded fields are not written, since this format stores \
                                 payloads; use tables (`tables/`), `.csv` or `.jsonl` for fields";
