//! Sinks: what writes events, and what the engine gives it.

use std::any::Any;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use serde::Serialize;

use super::Input;
use crate::name::printable;
use crate::programs::RunHandle;
use crate::tasks::InlineTasks;
use crate::{
    Batch, BlockPool, Channel, ChannelId, Channels, Clock, Encoding, Error, Outputs, Overwrite,
    Playback, Tasks,
};

/// What a sink needs when it opens its output.
#[derive(Clone, Debug)]
pub struct SinkContext {
    /// Makes the files, and publishes them when the whole run has succeeded.
    pub outputs: Arc<Outputs>,
    /// Every channel of the run.
    pub channels: Arc<Channels>,
    /// Runs what a sink has to do beside everything else.
    pub tasks: Arc<dyn Tasks>,
    /// How many bytes of events a sink may hold. Decides the size of what it writes, so it must not
    /// depend on the number of threads.
    pub memory: usize,
    /// What is being run, for sinks that write it down.
    pub origin: Arc<RunOrigin>,
    /// Who steers sinks that play events by their times.
    pub playback: Arc<Playback>,
    /// Raised when the run ends early. Sinks that wait look at it.
    pub cancelled: Arc<AtomicBool>,
    /// What the sink has to do with its run while it waits for a program.
    pub run_handle: RunHandle,
}

impl SinkContext {
    /// A context in which tasks run at once; for tests and small tools.
    pub fn standalone() -> Self {
        Self {
            outputs: Arc::new(Outputs::new(Overwrite::Refuse, false, &[])),
            channels: Arc::default(),
            tasks: Arc::new(InlineTasks),
            memory: 256 << 20,
            origin: Arc::default(),
            playback: Arc::default(),
            cancelled: Arc::default(),
            run_handle: RunHandle::default(),
        }
    }
}

/// What a run is: its pipeline and what it reads.
#[derive(Debug, Default)]
pub struct RunOrigin {
    /// The pipeline's name.
    pub name: Option<String>,
    /// All that decides what is written: the pipeline file with its variables filled in.
    pub pipeline: String,
    /// The inputs, in reading order.
    pub inputs: Vec<RunInput>,
}

/// An input, with its hash once that is known.
#[derive(Debug, Serialize)]
pub struct RunInput {
    /// Its path, as the user named it.
    #[serde(serialize_with = "crate::name::path_as_text")]
    pub path: PathBuf,
    /// Its length, where it has one.
    pub bytes: Option<u64>,
    /// The BLAKE3 hash of its bytes, in hex. Worked out beside the run, where it can be read twice; a
    /// sink that wants it waits for it when it finishes.
    #[serde(serialize_with = "serialize_hash")]
    pub blake3: OnceLock<Option<String>>,
}

impl RunInput {
    /// An input of which no hash will be known.
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

/// What encoding needs from its run.
#[derive(Debug)]
pub struct EncodeContext<'r> {
    /// Every channel of the run.
    pub channels: &'r Channels,
    /// Buffers to encode into.
    pub buffers: &'r BlockPool,
    /// Events that the format cannot hold at all, by position in the batch, with the reason.
    pub refused: Vec<(u32, String)>,
    /// What the format cannot hold of events that it does hold: said once in the report.
    pub losses: BTreeSet<&'static str>,
    /// Events, by position in the batch, that are written with the nearest time there is, because theirs
    /// lies beyond it.
    pub clamped: Vec<u32>,
    /// Channels of which the format keeps the names and not the sources. Whether that loses anything only the whole run
    /// can tell: see [`SOURCES_LOST`].
    pub without_sources: BTreeSet<ChannelId>,
}

/// What is said in the report where events of several sources were written without these.
pub const SOURCES_LOST: &str = "the sources of channels are not written";

/// What is said in the report, once a channel, of events whose time is not the one that is written.
pub fn times_clamped(channel: &Channel) -> String {
    format!(
        "{}: times beyond what 64 bits of nanoseconds hold (years 1677 to 2262) became the nearest ones \
         that these hold",
        printable(channel.name.text())
    )
}

impl<'r> EncodeContext<'r> {
    /// A context in which nothing has happened yet.
    pub fn new(channels: &'r Channels, buffers: &'r BlockPool) -> Self {
        let (losses, without_sources) = (BTreeSet::new(), BTreeSet::new());
        let (refused, clamped) = (Vec::new(), Vec::new());
        Self { channels, buffers, refused, losses, clamped, without_sources }
    }

    /// Says of all events of which the timestamp is not the time that they are written with it.
    pub fn note_clamped_times(&mut self, batch: &Batch) {
        if batch.wide_times().is_some() {
            let rows = 0..batch.len() as u32;
            self.clamped.extend(rows.filter(|row| batch.wide_time(*row as usize).is_some()));
        }
    }

    /// Says what is lost of the channels of these events where nothing of them is kept but their names,
    /// and their payloads are taken for messages of `encoding`.
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
            // What is not known, or is text, can be told as well without being said.
            let is_told = matches!(channel.encoding, Encoding::Unknown | Encoding::Text)
                || channel.encoding == *encoding;
            if !is_told || !channel.metadata.is_empty() {
                self.losses.insert("how payloads are encoded, and their versions, are not written");
            }
            if channel.clock == Clock::Relative {
                self.losses
                    .insert("times that count from the start of a log are written as they are");
            }
            self.without_sources.insert(ChannelId(*id));
        }
    }
}

/// Writes one kind of output, in two halves: `encode` on all cores, `append` in order on one.
pub trait Sink: Send + Sync + 'static {
    /// A finished piece of output: encoded events, a compressed frame.
    type Block: Send + 'static;
    /// The open output.
    type Output: Send + 'static;

    /// The files or folders that will be there at the end; `-` is standard output.
    fn targets(&self) -> Vec<PathBuf>;

    /// Whether it keeps events, as many as [`SinkContext::memory`] lets it, before it writes them.
    fn buffers_events(&self) -> bool {
        false
    }

    /// Whether it writes down the hashes of the inputs.
    fn wants_hashes(&self) -> bool {
        false
    }

    /// Whether it can write events of which only decoded rows are there. Others are not given such
    /// events.
    fn accepts_rows(&self) -> bool {
        false
    }

    /// Why it writes nothing of the rows that it is given, and how to have them written; nothing if
    /// it does.
    fn rows_unwritten(&self) -> Option<String> {
        (!self.accepts_rows()).then(|| NO_FIELDS_WRITTEN.to_owned())
    }

    /// Whether it writes [`Batch::wide_times`], or no times at all, or says itself which it cannot write. Of
    /// other sinks it is said that they write the timestamps.
    fn accepts_wide_times(&self) -> bool {
        false
    }

    /// Opens the output under temporary names, through `context.outputs`.
    fn open(&self, context: &SinkContext) -> Result<Self::Output, Error>;

    /// Encodes a batch. Any thread, any order.
    fn encode(&self, batch: Batch, context: &mut EncodeContext<'_>) -> Result<Self::Block, Error>;

    /// Appends a block; called in the order of the events. Gives the number of events written.
    fn append(&self, output: &mut Self::Output, block: Self::Block) -> Result<u64, Error>;

    /// What the output lacks that only the whole run could tell, with how often; 0 where that does not
    /// count. Asked once, before the output is completed.
    fn notes(&self, output: &Self::Output) -> Vec<(String, u64)> {
        let _ = output;
        Vec::new()
    }

    /// Brings what was appended to where whoever reads the unfinished output finds it. Asked of
    /// recordings every now and then.
    fn flush(&self, output: &mut Self::Output) -> Result<(), Error> {
        let _ = output;
        Ok(())
    }

    /// Whether an output that is cut off anywhere still gives what was flushed into it. Recordings of
    /// others appear only when they are complete.
    fn is_readable_unfinished(&self) -> bool {
        false
    }

    /// How often the sources are to be read, one time after another.
    fn rounds(&self) -> u64 {
        1
    }

    /// The channels of events that were appended but left out since the last call, because the output
    /// had no use for them: what a player was told to skip.
    fn take_skipped(&self, output: &mut Self::Output) -> Vec<u32> {
        let _ = output;
        Vec::new()
    }

    /// Completes the output. What was held back until now is counted in what it gives.
    fn finish(&self, output: Self::Output) -> Result<u64, Error>;
}

/// [`Sink`] with its types hidden, so that the engine can hold any of them.
pub trait DynSink: Send + Sync {
    /// See [`Sink::targets`].
    fn targets(&self) -> Vec<PathBuf>;
    /// See [`Sink::holds_events`].
    fn buffers_events(&self) -> bool;
    /// See [`Sink::wants_hashes`].
    fn wants_hashes(&self) -> bool;
    /// See [`Sink::takes_rows`].
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
    /// See [`Sink::left_out`].
    fn take_skipped(&self, output: &mut dyn Any) -> Vec<u32>;
    /// See [`Sink::finish`].
    fn finish(&self, output: Box<dyn Any + Send>) -> Result<u64, Error>;
}

const NO_FIELDS_WRITTEN: &str = "decoded fields are not written, since this format holds payloads; tables \
    (`tables/`), `.csv` and `.jsonl` have fields";

const NO_PAYLOAD: &str =
    "only decoded fields are there and no payload; put the stage `encode` before the sink";

const NO_WHOLE_MESSAGE: &str =
    "only elements or chosen fields of messages are there: messages cannot be made of them";

/// Why a sink of payloads cannot take an event of which only these rows are left.
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
