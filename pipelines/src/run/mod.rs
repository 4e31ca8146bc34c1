//! The engine: runs a pipeline on this machine.
//!
//! One thread, the driver, asks sources for steps in order, appends what tasks encoded to the sinks, and
//! runs whatever needs order (stages with memory, merges). Reading, stages without memory and encoding
//! are tasks on a rayon pool. What the driver does depends on the events alone and never on which task
//! was done first, so the output is the same for any number of threads.

mod delivered;
mod driver;
mod hashing;
mod met;
mod milestone;
mod programs;
mod publisher;
mod quarantine;
mod recording;
mod segment;
mod steps;
mod stop;
mod tally;
mod tasks;
mod topology;
mod wanted;
mod writers;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use rayon::{ThreadPool, ThreadPoolBuilder};
use sluice_core::files::FileIdentity;
use sluice_core::options::ByteSize;
use sluice_core::output::faults::FaultInjector;
use sluice_core::output::staging::StagingDir;
use sluice_core::output::{ListedLitter, PublishedFile};
use sluice_core::programs::RunHandle;
use sluice_core::{
    BlockPool, ChannelLog, Channels, DynSink, Error, Input, Outputs, Overwrite, Playback, Query,
    ReadContext, RunOrigin, Source, Split, SplitStart, StageContext, Tasks,
};

use crate::manifest::{self, Ended};
use crate::names::{Facts, NameReport, NodeNames, judge};
use crate::report::Report;
use crate::spec::{Node, OnDamage, Part, Pipeline};
use crate::{resolved, source_name, unwritten};
pub(crate) use driver::Finished;
pub use milestone::Milestone;
pub use programs::allowed;
pub(crate) use quarantine::path_of as quarantine_of;
pub use recording::{Piece, Pieces, Recording};
pub use stop::Stop;
pub(crate) use tally::{NodeTally, Tally};

use driver::Driver;
use met::NamingNodes;
use publisher::Publisher;
use segment::Shared;
use stop::Interruption;
use topology::{FoldNode, Topology};
use wanted::Wanted;

/// The cap on memory where a pipeline does not set one.
pub const DEFAULT_MEMORY: ByteSize = ByteSize(512 << 20);

/// How to run a pipeline.
#[derive(Clone, Default)]
pub struct Options {
    /// Threads; nothing means one a core.
    pub jobs: Option<usize>,
    /// Overrides the pipeline's cap on memory.
    pub memory: Option<ByteSize>,
    /// What becomes of outputs that exist.
    pub overwrite: Overwrite,
    /// Whether the report is to hold the hashes of outputs.
    pub hash: bool,
    /// How the run is stopped from outside.
    pub stop: Arc<Stop>,
    /// Who is told how it goes.
    pub progress: Option<Arc<dyn Progress>>,
    /// Who steers sinks that play events by their times.
    pub playback: Arc<Playback>,
    /// Whether nodes may run programs. These run with the rights of whoever starts the run, so a pipeline
    /// that runs some is refused otherwise.
    pub allow_exec: bool,
    /// That it records, and how.
    pub recording: Option<Recording>,
    /// Whether a name in an option that nothing matched keeps the run from publishing anything: see
    /// [`Report::refused`].
    pub strict: bool,
    /// How outputs fail; for tests. Nothing fails in a run without them that does not fail by itself.
    pub faults: Option<Arc<FaultInjector>>,
}

impl Options {
    fn tell(&self, milestone: &Milestone<'_>) {
        if let Some(progress) = &self.progress {
            progress.milestone(milestone);
        }
    }
}

/// How far a run is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Snapshot {
    /// Bytes of input read.
    pub bytes: u64,
    /// Bytes of input in all, where that is known.
    pub total_bytes: Option<u64>,
    /// Events read.
    pub events: u64,
    /// Damaged ranges met.
    pub damage: u64,
    /// Messages of live inputs that were lost.
    pub lost: u64,
    /// Whether no input has bytes that anybody knows of: what is read is made up, or received.
    pub without_bytes: bool,
    /// Inputs that are done, in a batch.
    pub units_done: u64,
    /// Inputs in all, in a batch.
    pub units: u64,
}

/// Is told how a run goes, from one thread at a time, after every step.
pub trait Progress: Send + Sync {
    /// Called a few hundred times a second at most; must not block.
    fn update(&self, snapshot: &Snapshot);

    /// Is told what a live input has lost so far, by reason: ten times a second at most, and at the end.
    fn losses(&self, node: &str, losses: &BTreeMap<String, u64>) {
        let _ = (node, losses);
    }

    /// Is told at once what a program that works for a node says. Must not block.
    fn said(&self, node: &str, line: &str) {
        let _ = (node, line);
    }

    /// Is told at once what a live input has to say about itself.
    fn note(&self, node: &str, what: &str) {
        let _ = (node, what);
    }

    /// Is told at once what the run has come to: its plan, inputs, outputs. Must not block.
    fn milestone(&self, milestone: &Milestone<'_>) {
        let _ = milestone;
    }
}

/// Runs a pipeline.
///
/// `Err` means that it failed and that nothing was published. Damage and events that could not be
/// carried are in the report. A pipeline that runs programs is refused before anything is done, unless
/// the options allow it.
pub fn run(pipeline: Pipeline, options: &Options) -> Result<Report, Error> {
    run_within(pipeline, options, None)
}

/// What a run that is a part of something larger gets from there.
pub(crate) struct Within<'b> {
    /// The threads of the whole; nothing if the run is to start its own.
    pub(crate) pool: Option<Arc<ThreadPool>>,
    /// Whether inputs and outputs are hashed in any case, as a record needs it.
    pub(crate) hash: bool,
    /// What the others of the whole read, which is not to be replaced either.
    pub(crate) spared: Arc<BTreeSet<FileIdentity>>,
    /// What killed runs left where the whole writes.
    pub(crate) litter: Arc<ListedLitter>,
    /// Where outputs are put, if somebody else publishes them.
    pub(crate) staging: Option<Arc<StagingDir>>,
    /// Is told how the run ended, and of all files that are about to appear. If it fails, none do.
    pub(crate) announce: &'b Announce<'b>,
}

pub(crate) type Announce<'b> =
    dyn Fn(&RunOrigin, Ended, &[PublishedFile]) -> Result<(), Error> + 'b;

/// As [`run`], as a part of something larger.
pub(crate) fn run_within(
    pipeline: Pipeline,
    options: &Options,
    within: Option<&Within<'_>>,
) -> Result<Report, Error> {
    let started = Instant::now();
    allowed(&pipeline, options)?;
    let pool = within.and_then(|within| within.pool.clone());
    let mut setup = Setup::new(options, pipeline.memory, holders(&pipeline.nodes), pool);
    let reading = setup.prepare(&pipeline.nodes)?;
    let is_recording = options.recording.is_some();
    setup.shared.naming = NamingNodes::of(&pipeline.nodes);
    setup.interruption = Interruption::of(&reading, &pipeline.nodes, is_recording);
    let ran = run_prepared(pipeline, reading, &setup, options, within);
    let mut report = ran.map_err(|error| match setup.check() {
        // Whatever failed while it was left: it would not have been published.
        Err(given_up) => given_up,
        Ok(()) => error,
    })?;
    report.seconds = started.elapsed().as_secs_f64();
    Ok(report)
}

/// Runs a pipeline whose inputs have been looked at.
fn run_prepared(
    pipeline: Pipeline,
    reading: Reading,
    setup: &Setup,
    options: &Options,
    within: Option<&Within<'_>>,
) -> Result<Report, Error> {
    let started = Instant::now();
    let text = resolved::text(&pipeline, memory(options, pipeline.memory));
    let Pipeline { name, nodes, .. } = pipeline;
    let hashes = within.is_some_and(|within| within.hash);
    let inputs: Vec<Input> = reading.inputs().cloned().collect();
    for source in &reading.sources {
        let name = nodes.get(source.node).map_or("", |node| &node.name);
        options.tell(&Milestone::planned(name, source));
    }
    let wants_hashes =
        hashes || writes_folder(&nodes) || sinks(&nodes).any(|sink| sink.wants_hashes());
    let hashing = wants_hashes.then(|| setup.pool()).transpose()?;
    let publisher = Publisher {
        setup,
        options,
        within,
        origin: hashing::origin(name, text, &inputs, hashing),
        plugins: manifest::plugins(&nodes),
        inputs: inputs.iter().map(|input| input.path.clone()).collect(),
        targets: sinks(&nodes).flat_map(DynSink::targets).collect(),
        grows: sinks(&nodes).all(DynSink::is_readable_unfinished),
        hash: options.hash || hashes || writes_folder(&nodes),
    };
    let room = publisher.room()?;
    let quarantines = quarantine::open(&nodes, &room.outputs)?;
    let names: Vec<NodeNames> = nodes.iter().map(NodeNames::of).collect();
    let is_windowed = reading.is_windowed();
    let labels =
        nodes.iter().map(|node| (node.name.clone(), node.from.clone())).collect::<Vec<_>>();
    let notes = notes_before(&nodes, &reading);
    let topology = Topology::of(nodes, &reading.origins, &reading.wanted, setup.merge_limit())?;
    let is_live = reading.sources.iter().all(SourceReading::is_live);
    let mut driver = Driver::new(topology, reading, &publisher, (room, quarantines))?;
    notes.iter().for_each(|(node, what)| driver.note(*node, &labels[*node].0, what));
    let (finished, outputs) = driver.drive()?;
    let names = setup.names_found(&names, is_windowed, &finished);
    let mut report = Report::of(&labels, finished, &inputs, setup.channels())?.with_names(names);
    setup.check()?;
    if setup.stop.is_requested() {
        report.interrupted = setup.interruption == Interruption::Truncates;
        if setup.interruption == Interruption::IsTheEnd && !is_live {
            report.note_early_end(&labels);
        }
    }
    published(report, &outputs, &publisher, started)
}

/// Publishes the outputs of a run that came to its end, unless it is strict and a name in an option
/// matched nothing.
fn published(
    mut report: Report,
    outputs: &Arc<Outputs>,
    publisher: &Publisher<'_>,
    started: Instant,
) -> Result<Report, Error> {
    let options = publisher.options;
    // Units of a batch are judged together.
    let is_judged = options.strict && publisher.within.is_none();
    report.refused = is_judged && report.unmatched().next().is_some();
    if report.refused {
        return Ok(report);
    }
    let ended = Ended { exit: report.exit(), partial: report.interrupted };
    options.tell(&Milestone::Publishing { seconds: started.elapsed().as_secs_f64() });
    report.files.extend(publisher.publish(outputs, ended)?);
    for PublishedFile { path, rows, bytes, .. } in &report.files {
        options.tell(&Milestone::Output { path, rows: *rows, bytes: *bytes });
    }
    Ok(report)
}

/// What there is to say before any event, by the nodes' places in the pipeline.
fn notes_before(nodes: &[Node], reading: &Reading) -> Vec<(usize, String)> {
    let notes = |(place, node): (usize, &Node)| {
        node.notes().into_iter().map(move |what| (place, what)).collect::<Vec<_>>()
    };
    let mut all: Vec<_> = nodes.iter().enumerate().flat_map(notes).collect();
    all.append(&mut unwritten::notes(nodes));
    all.append(&mut source_name::notes(nodes, &reading.sources));
    all
}

/// What would be read: a source's inputs and splits.
#[derive(Debug)]
pub struct Reading {
    /// For each source, by its place in the pipeline: inputs, query and splits.
    pub sources: Vec<SourceReading>,
    origins: Vec<Option<i64>>,
    wanted: Wanted,
}

/// What would be read from one source.
#[derive(Debug)]
pub struct SourceReading {
    /// The source's place in the pipeline.
    pub node: usize,
    /// Its inputs.
    pub inputs: Vec<Input>,
    /// What is wanted of it.
    pub query: Query,
    /// The pieces it will be read in.
    pub splits: Vec<Split>,
}

impl SourceReading {
    /// Whether it goes on until somebody ends it.
    fn is_live(&self) -> bool {
        self.splits.iter().any(|split| split.live)
    }

    /// Whether it is read from files or streams, and neither made up nor received.
    fn has_files(&self) -> bool {
        !self.is_live() && !self.inputs.is_empty()
    }
}

impl Reading {
    /// Whether something that ends by itself is read only as far as a window of time goes.
    fn is_windowed(&self) -> bool {
        let is_windowed = |source: &SourceReading| {
            !source.is_live() && (source.query.start.is_some() || source.query.end.is_some())
        };
        self.sources.iter().any(is_windowed)
    }

    fn inputs(&self) -> impl Iterator<Item = &Input> {
        self.sources.iter().flat_map(|source| &source.inputs)
    }
}

/// Finds out what running this pipeline would read, without reading more than that takes.
pub fn plan(pipeline: &Pipeline, options: &Options) -> Result<Reading, Error> {
    Setup::new(options, pipeline.memory, holders(&pipeline.nodes), None).prepare(&pipeline.nodes)
}

/// The cap on memory.
pub(crate) fn memory(options: &Options, from_file: Option<ByteSize>) -> ByteSize {
    options.memory.or(from_file).unwrap_or(DEFAULT_MEMORY)
}

/// How many threads there are to be.
pub(crate) fn jobs(options: &Options) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    options.jobs.filter(|jobs| *jobs > 0).unwrap_or(cores)
}

/// Starts the threads that run tasks.
pub(crate) fn start_pool(jobs: usize) -> Result<Arc<ThreadPool>, Error> {
    let pool = ThreadPoolBuilder::new()
        .num_threads(jobs)
        .thread_name(|n| format!("sluice-{n}"))
        // The driver sees that the task's result never came, and fails the run.
        .panic_handler(|_| {})
        .build();
    pool.map(Arc::new).map_err(|e| Error::refused(format!("cannot start worker threads: {e}")))
}

/// What follows from the options, before anything is opened.
struct Setup {
    memory: usize,
    /// How many sinks hold events.
    holders: usize,
    /// How large the pieces are that files are read in. Must not depend on the number of threads: it
    /// decides how events are cut into batches.
    piece: usize,
    window: usize,
    /// How many bytes may be taken by what steps deliver.
    room: usize,
    shared: Shared,
    pool: Result<Arc<ThreadPool>, String>,
    stop: Arc<Stop>,
    /// What being asked to end does to the run. Known once its inputs are.
    interruption: Interruption,
    progress: Option<Arc<dyn Progress>>,
    bytes_read: Arc<AtomicU64>,
    /// The channels that sources are asked to leave out, or not.
    left_out: ChannelLog,
}

impl Setup {
    fn new(
        options: &Options,
        from_file: Option<ByteSize>,
        holders: usize,
        pool: Option<Arc<ThreadPool>>,
    ) -> Self {
        let memory = memory(options, from_file).0 as usize;
        let jobs = jobs(options);
        let piece = (memory / 256).clamp(64 << 10, 2 << 20);
        // Half of the memory is for sinks that hold events, if there are any.
        let for_reading = if holders > 0 { memory / 2 } else { memory };
        let window = (for_reading / (piece * 4)).clamp(1, 2 * jobs + 1);
        let held = (memory - for_reading) / piece;
        let pool = pool.map_or_else(|| start_pool(jobs), Ok);
        Self {
            memory,
            holders,
            piece,
            window,
            // What is left is for what has been delivered and is being looked at.
            room: for_reading / 4 * 3,
            shared: Shared {
                channels: Arc::default(),
                naming: NamingNodes::default(),
                blocks: BlockPool::new(piece + (64 << 10), window * 3 + held.min(64)),
            },
            pool: pool.map_err(|e| e.to_string()),
            stop: Arc::clone(&options.stop),
            interruption: Interruption::Truncates,
            progress: options.progress.clone(),
            bytes_read: Arc::default(),
            left_out: ChannelLog::default(),
        }
    }

    /// How many bytes may wait at a merge for another stream, before that is too much.
    fn merge_limit(&self) -> usize {
        self.memory / 4
    }

    /// How many bytes of events each sink that holds some may hold.
    fn sink_memory(&self) -> usize {
        self.memory / 2 / self.holders.max(1)
    }

    /// How many bytes of blocks may be in use before reading waits for some to come back.
    fn most_lent(&self) -> usize {
        let held = if self.holders > 0 { self.memory / 2 } else { 0 };
        self.window * 3 * self.shared.blocks.block_len() + held
    }

    /// What a run that read everything it was to read had of the names in options.
    fn names_found(
        &self,
        names: &[NodeNames],
        is_windowed: bool,
        finished: &Finished,
    ) -> Vec<NameReport> {
        let facts = Facts {
            channels: self.channels(),
            left_out: self.left_out.names(),
            tally: &finished.tally,
            is_windowed,
            is_complete: finished.is_complete,
        };
        judge(names, &facts)
    }

    fn tasks(&self) -> Result<Arc<dyn Tasks>, Error> {
        Ok(Arc::new(tasks::OnPool(self.pool()?)))
    }

    fn channels(&self) -> &Channels {
        &self.shared.channels
    }

    fn pool(&self) -> Result<Arc<ThreadPool>, Error> {
        self.pool.clone().map_err(Error::refused)
    }

    fn context(&self, source: &str, keep_damaged_bytes: bool) -> ReadContext {
        ReadContext {
            source: source.into(),
            channels: Arc::clone(&self.shared.channels),
            damage: Arc::default(),
            losses: Arc::default(),
            keep_damaged_bytes,
            query: Query::default(),
            blocks: self.shared.blocks.clone(),
            cancelled: Arc::clone(&self.stop.drain),
            abandoned: Arc::default(),
            run_handle: self.talk(source),
            bytes_read: Arc::clone(&self.bytes_read),
        }
    }

    /// `Err` if the run is aborted, or given up.
    fn check(&self) -> Result<(), Error> {
        self.interruption.check(&self.stop)
    }

    /// What a node of this name has to do with the run while it waits for a program.
    fn talk(&self, node: &str) -> RunHandle {
        let (stop, progress) = (Arc::clone(&self.stop), self.progress.clone());
        let interruption = self.interruption;
        RunHandle::new(node, Arc::new(programs::Host { stop, interruption, progress }))
    }

    fn stage_context(&self, fold: &FoldNode) -> StageContext<'_> {
        let context = StageContext::new(&self.shared.channels, fold.origin).within(fold.wanted);
        StageContext { run_handle: self.talk(&fold.name), ..context }
    }

    fn prepare(&self, nodes: &[Node]) -> Result<Reading, Error> {
        let origins = self.origins(nodes)?;
        let wanted = Wanted::of(nodes, &origins);
        let mut sources = Vec::new();
        for (node, spec) in nodes.iter().enumerate() {
            let Part::Source(source) = &spec.part else { continue };
            let query = wanted.of_node(node);
            let channels = query.channels.with_log(self.left_out.clone());
            let query = Query { channels, ..query };
            let inputs = source.files()?;
            let splits = source.splits(self.piece as u64, &query)?;
            sources.push(SourceReading { node, inputs, query, splits });
        }
        Ok(Reading { sources, origins, wanted })
    }

    /// For each node, the time of the first event of the sources it hears, where a stage needs it.
    fn origins(&self, nodes: &[Node]) -> Result<Vec<Option<i64>>, Error> {
        let mut origins = vec![None; nodes.len()];
        let needed = nodes
            .iter()
            .any(|node| matches!(&node.part, Part::Stage(stage) if stage.needs_origin()));
        if !needed {
            return Ok(origins);
        }
        for (node, spec) in nodes.iter().enumerate() {
            if let Part::Source(source) = &spec.part {
                origins[node] = self.first_timestamp(&**source, &spec.name)?;
            }
        }
        // Nodes may stand in any order in the file; a few rounds settle them all.
        for _ in 0..nodes.len() {
            for (node, spec) in nodes.iter().enumerate().filter(|(_, spec)| !spec.from.is_empty()) {
                origins[node] = spec.from.iter().filter_map(|from| origins[*from]).min();
            }
        }
        Ok(origins)
    }

    fn first_timestamp(&self, source: &dyn Source, name: &str) -> Result<Option<i64>, Error> {
        let mut context = self.context(name, false);
        context.bytes_read = Arc::default();
        for split in source.splits(self.piece as u64, &Query::default())? {
            let Some(_) = split.bytes else {
                return Err(Error::invalid(format!(
                    "a time relative to the first event (+…) needs an input that can be read twice, and \
                     `{}` cannot: give absolute times",
                    split.input.display()
                )));
            };
            let mut reader = source.read(&split, SplitStart::At(split.start), &context)?;
            while let Some(batch) = reader.next_batch()? {
                // A time beyond the range tells no distance to others.
                let mut times = batch.timestamps().iter().enumerate();
                if let Some((_, first)) = times.find(|(row, _)| batch.wide_time(*row).is_none()) {
                    return Ok(Some(*first));
                }
            }
        }
        Ok(None)
    }
}

fn sinks(nodes: &[Node]) -> impl Iterator<Item = &dyn DynSink> {
    nodes.iter().filter_map(|node| match &node.part {
        Part::Sink(sink) => Some(&**sink),
        _ => None,
    })
}

/// How many sinks hold events.
fn holders(nodes: &[Node]) -> usize {
    sinks(nodes).filter(|sink| sink.buffers_events()).count()
}

/// Whether a sink makes a folder, whose manifest holds hashes.
fn writes_folder(nodes: &[Node]) -> bool {
    let mut targets = sinks(nodes).flat_map(DynSink::targets);
    targets.any(|target| target.as_os_str().as_encoded_bytes().ends_with(b"/"))
}

/// Whether damage of a source is to be kept with its bytes.
fn keeps_bytes(damage: &OnDamage) -> bool {
    matches!(damage, OnDamage::Quarantine(_))
}
