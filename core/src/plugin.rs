//! The four kinds of plugin, and what the engine hands them. Knows no plugin and runs nothing.
//!
//! A plugin is one type that holds its options and implements one of these traits. Making one reads
//! options and nothing else: inputs are opened by [`Source::splits`] and [`Source::read`], outputs by
//! [`Sink::open`].

use std::any::Any;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

use crate::tasks::Inline;
use crate::{Batch, BlockPool, Channels, DamageLog, Error, Outputs, Overwrite, Patterns, Tasks};

/// A file (or the like) that a source reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Input {
    /// Its path, as the user named it; `-` is standard input.
    pub path: PathBuf,
    /// Its length, where it has one.
    pub bytes: Option<u64>,
}

/// A piece of a source's input that can be read without the others. Plain data: it is printed by
/// `plan`, compared by tests, and sent to other machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// The input it is a piece of.
    pub input: PathBuf,
    /// Where it begins. An event belongs to the split in which its first byte lies.
    pub start: u64,
    /// Where it ends; nothing, if it goes on to the end of the input.
    pub end: Option<u64>,
    /// How many bytes it is likely to be; nothing for live and compressed inputs, which are then read
    /// by a thread of their own.
    pub bytes: Option<u64>,
}

impl Split {
    /// A whole input, read in one go.
    pub fn whole(input: impl Into<PathBuf>, bytes: Option<u64>) -> Self {
        Self { input: input.into(), start: 0, end: None, bytes }
    }

    /// Whether `next` begins where this one ends.
    pub fn is_followed_by(&self, next: &Self) -> bool {
        self.input == next.input && self.end == Some(next.start)
    }
}

/// Where reading a split begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// At the first event the reader finds in the split.
    Search,
    /// Exactly here: the split before it ended here. May lie beyond the split's end, which then has
    /// nothing of its own.
    At(u64),
}

/// Where a reader really began, and where it stopped. Two neighbouring splits were cut right if one
/// began where the other stopped; otherwise the engine has the second one read again from there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seam {
    /// The position of the first event, or of the first byte that follows the damage before it.
    pub began: Option<u64>,
    /// The position right behind the last event.
    pub ended: Option<u64>,
}

/// What of a source is wanted. A source may use it to read less; stages drop what is left over, so
/// ignoring it is correct.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// Only events at or after this time.
    pub start: Option<i64>,
    /// Only events before this time.
    pub end: Option<i64>,
    /// Only events of these channels.
    pub channels: ChannelQuery,
}

impl Query {
    /// Whether it asks for everything.
    pub fn is_all(&self) -> bool {
        self.start.is_none() && self.end.is_none() && self.channels.is_all()
    }

    /// Whether any time from `first` to `last` is asked for.
    pub fn wants_times(&self, first: i64, last: i64) -> bool {
        self.start.is_none_or(|start| last >= start) && self.end.is_none_or(|end| first < end)
    }

    /// What this query or the other wants; as little more as can be said.
    pub fn or(self, other: Self) -> Self {
        Self {
            start: self.start.zip(other.start).map(|(a, b)| a.min(b)),
            end: self.end.zip(other.end).map(|(a, b)| a.max(b)),
            channels: self.channels.or(other.channels),
        }
    }
}

/// Which channels are wanted. Says yes where it cannot tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChannelQuery(
    /// A channel is wanted if one of these lists wants it, and a list does if each of its choices does.
    /// No list wants every channel.
    Vec<Vec<Choice>>,
);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Choice {
    channels: Patterns,
    exclude: Patterns,
    source: Patterns,
}

impl ChannelQuery {
    /// The channels that one of `channels` matches and none of `exclude`, and whose source one of
    /// `source` matches. Where `channels` or `source` is empty, it matches all.
    pub fn of(channels: &Patterns, exclude: &Patterns, source: &Patterns) -> Self {
        if channels.is_empty() && exclude.is_empty() && source.is_empty() {
            return Self::default();
        }
        let (channels, exclude, source) = (channels.clone(), exclude.clone(), source.clone());
        Self(vec![vec![Choice { channels, exclude, source }]])
    }

    /// Whether every channel is wanted.
    pub fn is_all(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a channel of that name and source is wanted.
    pub fn wants(&self, name: &str, source: &str) -> bool {
        self.is_all()
            || self.0.iter().any(|list| list.iter().all(|choice| choice.wants(name, source)))
    }

    /// Whether a channel of that name is wanted where its source is not known yet.
    pub fn may_want(&self, name: &str) -> bool {
        self.is_all() || self.0.iter().any(|list| list.iter().all(|choice| choice.names(name)))
    }

    /// What both want.
    pub fn and(&self, other: &Self) -> Self {
        if self.is_all() || other.is_all() {
            return Self(self.0.iter().chain(&other.0).cloned().collect());
        }
        let both = |a: &Vec<Choice>, b: &Vec<Choice>| a.iter().chain(b).cloned().collect();
        Self(self.0.iter().flat_map(|a| other.0.iter().map(move |b| both(a, b))).collect())
    }

    /// What one of them wants.
    pub fn or(self, other: Self) -> Self {
        if self.is_all() || other.is_all() {
            return Self::default();
        }
        Self(self.0.into_iter().chain(other.0).collect())
    }
}

impl Choice {
    fn wants(&self, name: &str, source: &str) -> bool {
        self.names(name) && (self.source.is_empty() || self.source.matches(source))
    }

    fn names(&self, name: &str) -> bool {
        let channels = self.channels.is_empty() || self.channels.matches(name);
        channels && !self.exclude.matches(name)
    }
}

/// What reading needs from its run. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ReadContext {
    /// The source's name in the pipeline: the events' source where the format has none of its own.
    pub source: Arc<str>,
    /// Every channel of the run.
    pub channels: Arc<Channels>,
    /// Where damage goes.
    pub damage: Arc<DamageLog>,
    /// Whether damaged bytes of inputs that cannot be read twice are to be kept with their damage.
    pub keep_damaged_bytes: bool,
    /// What of the source is wanted: the same as its splits were made for.
    pub query: Query,
    /// Buffers to read into.
    pub blocks: BlockPool,
    /// Raised when the run ends early. Readers that wait, or read long, look at it.
    pub cancelled: Arc<AtomicBool>,
    /// Bytes of input read so far, for progress.
    pub bytes_read: Arc<AtomicU64>,
}

impl ReadContext {
    /// A context with everything at its default; for tests and small tools.
    pub fn standalone(source: &str) -> Self {
        Self {
            source: source.into(),
            channels: Arc::default(),
            damage: Arc::default(),
            keep_damaged_bytes: false,
            query: Query::default(),
            blocks: BlockPool::new(1 << 20, 4),
            cancelled: Arc::default(),
            bytes_read: Arc::default(),
        }
    }

    /// The same context with a damage log of its own.
    pub fn with_own_damage(&self) -> Self {
        Self { damage: Arc::default(), ..self.clone() }
    }

    /// Whether the run ends early.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    /// Counts input that was read.
    pub fn count_read(&self, bytes: u64) {
        self.bytes_read.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Reads one kind of input.
///
/// The engine asks once for [`splits`](Self::splits), then reads them on any thread in any order, and
/// commits what they give in the order of the list. Reading all splits must give what reading the
/// inputs from front to back would: events, damage and order.
pub trait Source: Send + Sync {
    /// The inputs, in reading order. Looks at names and lengths, and opens nothing.
    fn inputs(&self) -> Result<Vec<Input>, Error>;

    /// Pieces of about `target` bytes that cover the inputs once, in order, less what `query` lets the
    /// source skip. An input that cannot be cut is one split: that is the default.
    fn splits(&self, target: u64, query: &Query) -> Result<Vec<Split>, Error> {
        let _ = (target, query);
        Ok(self.inputs()?.into_iter().map(|input| Split::whole(input.path, input.bytes)).collect())
    }

    /// How many events an input holds, where the file says so by itself: told from what was written at
    /// its end, without reading events.
    fn events_in(&self, input: &Path) -> Result<Option<u64>, Error> {
        let _ = input;
        Ok(None)
    }

    /// Reads a split in order. Damage that can be stepped over goes to `context.damage`; `Err` means
    /// that the run cannot go on.
    fn read<'s>(
        &'s self,
        split: &Split,
        entry: Entry,
        context: &ReadContext,
    ) -> Result<Box<dyn Reader + 's>, Error>;
}

/// Gives a split's batches one after another.
pub trait Reader: Send {
    /// The next batch, or nothing at the end of the split.
    fn next_batch(&mut self) -> Result<Option<Batch>, Error>;

    /// Where reading began and ended; asked at the end. Sources that cut files must say it.
    fn seam(&self) -> Seam {
        Seam::default()
    }
}

impl<I: Iterator<Item = Result<Batch, Error>> + Send> Reader for I {
    fn next_batch(&mut self) -> Result<Option<Batch>, Error> {
        self.next().transpose()
    }
}

/// A stage says by its kind how it may be run; there is no flag to get wrong.
pub enum Stage {
    /// Treats each batch alone: any thread, any order.
    Map(Box<dyn Map>),
    /// Has a memory: one thread, in order.
    Fold(Box<dyn Fold>),
}

impl std::fmt::Debug for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if matches!(self, Self::Map(_)) { "Map" } else { "Fold" })
    }
}

/// What a stage needs from its run, and where it says what became of events.
///
/// The engine counts the events that go in and come out; a stage that does not account for the
/// difference fails the run.
#[derive(Debug)]
pub struct StageContext<'r> {
    /// Every channel of the run.
    pub channels: &'r Channels,
    /// When the first event of the run's sources happened, where that is known.
    pub origin: Option<i64>,
    /// Events left out because that is what the stage is for.
    pub filtered: u64,
    /// Events whose payload could not be decoded or encoded and that went on as they were: for each,
    /// its number in [`Batch::origins`].
    pub undecoded: Vec<u32>,
    /// Things worth telling once, with how often they happened.
    pub notes: Vec<(String, u64)>,
}

impl<'r> StageContext<'r> {
    /// A context in which nothing has happened yet.
    pub fn new(channels: &'r Channels, origin: Option<i64>) -> Self {
        Self { channels, origin, filtered: 0, undecoded: Vec::new(), notes: Vec::new() }
    }

    /// Says something that belongs into the report, once, with a count.
    pub fn note(&mut self, what: impl Into<String>, count: u64) {
        self.notes.push((what.into(), count));
    }
}

/// A stage without memory.
pub trait Map: Send + Sync {
    /// Turns a batch into a batch. How events are cut into batches must not matter.
    fn apply(&self, batch: Batch, context: &mut StageContext<'_>) -> Result<Batch, Error>;

    /// What the stage lets through, if that can be said without seeing events: lets a source skip.
    fn query(&self) -> MapQuery {
        MapQuery::default()
    }

    /// Whether it has to know when the first event happened. Finding out may mean waiting for it.
    fn needs_origin(&self) -> bool {
        false
    }

    /// What beside its options decides what it does, as a line of text: the contents of files they name.
    /// Outputs made with another one are made again under `--resume`.
    fn beside_options(&self) -> Option<String> {
        None
    }
}

/// What a stage lets through, as far as times and channels go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapQuery {
    /// Only events at or after this time pass.
    pub start: Option<crate::time::When>,
    /// Only events before this time pass.
    pub end: Option<crate::time::When>,
    /// Only events of these channels pass.
    pub channels: ChannelQuery,
    /// The stage leaves timestamps as they are, so that what stages after it want can be passed on.
    pub keeps_times: bool,
    /// The stage leaves channels as they are.
    pub keeps_channels: bool,
}

/// A stage with memory.
pub trait Fold: Send {
    /// Takes the next batch; gives what is ready.
    fn push(&mut self, batch: Batch, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error>;

    /// Gives what is left.
    fn finish(&mut self, context: &mut StageContext<'_>) -> Result<Vec<Batch>, Error> {
        let _ = context;
        Ok(Vec::new())
    }

    /// Whether it has to know when the first event happened. Finding out may mean waiting for it.
    fn needs_origin(&self) -> bool {
        false
    }

    /// Whether nothing more will come out, whatever goes in: reading may stop.
    fn is_done(&self) -> bool {
        false
    }
}

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
    pub origin: Arc<Origin>,
}

impl SinkContext {
    /// A context in which tasks run at once; for tests and small tools.
    pub fn standalone() -> Self {
        Self {
            outputs: Arc::new(Outputs::new(Overwrite::Refuse, false, &[])),
            channels: Arc::default(),
            tasks: Arc::new(Inline),
            memory: 256 << 20,
            origin: Arc::default(),
        }
    }
}

/// What a run is: its pipeline and what it reads.
#[derive(Debug, Default)]
pub struct Origin {
    /// The pipeline's name.
    pub name: Option<String>,
    /// All that decides what is written: the pipeline file with its variables filled in.
    pub pipeline: String,
    /// The inputs, in reading order.
    pub inputs: Vec<OriginInput>,
}

/// An input, with its hash once that is known.
#[derive(Debug, Serialize)]
pub struct OriginInput {
    /// Its path, as the user named it.
    pub path: PathBuf,
    /// Its length, where it has one.
    pub bytes: Option<u64>,
    /// The BLAKE3 hash of its bytes, in hex. Worked out beside the run, where it can be read twice; a
    /// sink that wants it waits for it when it finishes.
    #[serde(serialize_with = "known")]
    pub blake3: OnceLock<Option<String>>,
}

impl OriginInput {
    /// An input of which no hash will be known.
    pub fn unhashed(input: &Input) -> Self {
        let Input { path, bytes } = input.clone();
        Self { path, bytes, blake3: OnceLock::from(None) }
    }
}

fn known<S: serde::Serializer>(
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
}

impl<'r> EncodeContext<'r> {
    /// A context in which nothing has happened yet.
    pub fn new(channels: &'r Channels, buffers: &'r BlockPool) -> Self {
        Self { channels, buffers, refused: Vec::new(), losses: BTreeSet::new() }
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
    fn holds_events(&self) -> bool {
        false
    }

    /// Whether it writes down the hashes of the inputs.
    fn wants_hashes(&self) -> bool {
        false
    }

    /// Whether it can write events of which only decoded rows are there. Others are not given such
    /// events.
    fn takes_rows(&self) -> bool {
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

    /// Completes the output. What was held back until now is counted in what it gives.
    fn finish(&self, output: Self::Output) -> Result<u64, Error>;
}

/// [`Sink`] with its types hidden, so that the engine can hold any of them.
pub trait DynSink: Send + Sync {
    /// See [`Sink::targets`].
    fn targets(&self) -> Vec<PathBuf>;
    /// See [`Sink::holds_events`].
    fn holds_events(&self) -> bool;
    /// See [`Sink::wants_hashes`].
    fn wants_hashes(&self) -> bool;
    /// See [`Sink::takes_rows`].
    fn takes_rows(&self) -> bool;
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
    /// See [`Sink::finish`].
    fn finish(&self, output: Box<dyn Any + Send>) -> Result<u64, Error>;
}

const ROWS_ALONE: &str =
    "only decoded fields are there and no payload; put the stage `encode` before the sink";

const OWN_TYPES: &str = "a sink is only given the blocks and outputs it made";

impl<S: Sink> DynSink for S {
    fn targets(&self) -> Vec<PathBuf> {
        Sink::targets(self)
    }

    fn holds_events(&self) -> bool {
        Sink::holds_events(self)
    }

    fn wants_hashes(&self) -> bool {
        Sink::wants_hashes(self)
    }

    fn takes_rows(&self) -> bool {
        Sink::takes_rows(self)
    }

    fn open(&self, context: &SinkContext) -> Result<Box<dyn Any + Send>, Error> {
        Ok(Box::new(Sink::open(self, context)?))
    }

    fn encode(
        &self,
        batch: Batch,
        context: &mut EncodeContext<'_>,
    ) -> Result<Box<dyn Any + Send>, Error> {
        let given = if Sink::takes_rows(self) { None } else { batch.without_rows_alone() };
        let Some((batch, alone)) = given else {
            return Ok(Box::new(Sink::encode(self, batch, context)?));
        };
        let mut own = EncodeContext::new(context.channels, context.buffers);
        let places: Vec<u32> = (0..batch.len() + alone.len())
            .map(|row| row as u32)
            .filter(|row| alone.binary_search(row).is_err())
            .collect();
        let block = Sink::encode(self, batch, &mut own)?;
        context.losses.append(&mut own.losses);
        let refused = own.refused.into_iter().map(|(row, why)| (places[row as usize], why));
        context.refused.extend(refused);
        context.refused.extend(alone.into_iter().map(|row| (row, ROWS_ALONE.to_owned())));
        Ok(Box::new(block))
    }

    fn append(&self, output: &mut dyn Any, block: Box<dyn Any + Send>) -> Result<u64, Error> {
        let block = block.downcast::<S::Block>().expect(OWN_TYPES);
        Sink::append(self, output.downcast_mut().expect(OWN_TYPES), *block)
    }

    fn notes(&self, output: &dyn Any) -> Vec<(String, u64)> {
        Sink::notes(self, output.downcast_ref().expect(OWN_TYPES))
    }

    fn finish(&self, output: Box<dyn Any + Send>) -> Result<u64, Error> {
        Sink::finish(self, *output.downcast().expect(OWN_TYPES))
    }
}
