//! The engine: runs a pipeline on this machine.
//!
//! One thread, the driver, polls sources for steps in order, hands prepared blocks to the sinks,
//! writes the units they make of them, and runs whatever needs order (folds and merges). Reading,
//! maps, preparing and encoding are tasks on a rayon pool. The driver's decisions depend only on the events, never on which task finishes
//! first, so the output is the same for any number of threads.

mod driver;
mod hashing;
mod milestone;
mod observed;
mod programs;
mod publisher;
mod pushdown;
mod quarantine;
mod recording;
mod segment;
mod setup;
mod step_sizes;
mod steps;
mod stop;
mod tally;
mod topology;
mod writers;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use rayon::{ThreadPool, ThreadPoolBuilder};
use sluice_io::files::FileIdentity;
use sluice_io::output::faults::FaultInjector;
use sluice_io::output::staging::StagingDir;
use sluice_io::output::{ListedLitter, PublishedFile};
use sluice_kit::Playback;
use sluice_model::options::ByteSize;
use sluice_model::{DamageLog, DynSink, Error, Input, Outputs, Overwrite, Query, RunOrigin, Split};

use crate::manifest::{self, RunEnd};
use crate::names::NodeNames;
use crate::report::Report;
use crate::spec::{OnDamage, Pipeline, PipelineNode, PluginInstance};
use crate::{resolved, source_name, unused_rows};
pub(crate) use driver::FinishedRun;
pub use milestone::Milestone;
pub use programs::check_programs_allowed;
pub(crate) use quarantine::quarantine_path as quarantine_of;
pub use recording::{PiecePolicy, PieceProgress, Recording};
pub use stop::Stop;
pub(crate) use tally::{NodeTally, RunTally};

use driver::RunDriver;
use observed::NamingNodes;
use publisher::Publisher;
use pushdown::Pushdown;
use setup::Setup;
use stop::Interruption;
use topology::Topology;

/// The default memory cap.
pub const DEFAULT_MEMORY: ByteSize = ByteSize(512 << 20);

/// How to run a pipeline.
#[derive(Clone, Default)]
pub struct Options {
    /// Number of threads; `None` means one per core.
    pub jobs: Option<usize>,
    /// Overrides the pipeline's memory cap.
    pub memory: Option<ByteSize>,
    /// How to treat existing outputs.
    pub overwrite: Overwrite,
    /// Whether the report includes the hashes of outputs.
    pub hash: bool,
    /// Stops the run from outside.
    pub stop: Arc<Stop>,
    /// Progress listener.
    pub progress: Option<Arc<dyn Progress>>,
    /// Controls sinks that play events in real time.
    pub playback: Arc<Playback>,
    /// Whether nodes may run programs. Programs have the rights of the user, so a pipeline that
    /// runs any is refused otherwise.
    pub allow_exec: bool,
    /// Set if the run is a recording.
    pub recording: Option<Recording>,
    /// Whether a name in an option that matches nothing keeps the run from publishing; see
    /// [`Report::refused`].
    pub strict: bool,
    /// Injected output failures, for tests.
    pub faults: Option<Arc<FaultInjector>>,
}

impl Options {
    fn report_milestone(&self, milestone: &Milestone<'_>) {
        if let Some(progress) = &self.progress {
            progress.milestone(milestone);
        }
    }
}

/// A snapshot of a run's progress.
#[derive(Clone, Copy, Debug, Default)]
pub struct Snapshot {
    /// Bytes of input read.
    pub bytes: u64,
    /// Total bytes of input, if known.
    pub total_bytes: Option<u64>,
    /// Events read.
    pub events: u64,
    /// Damaged ranges so far.
    pub damage: u64,
    /// Messages lost from live inputs.
    pub lost: u64,
    /// Whether no input has a known length: all of it is made up or received.
    pub without_bytes: bool,
    /// Finished inputs of a batch.
    pub units_done: u64,
    /// Total inputs of a batch.
    pub units: u64,
}

/// Receives the progress of a run after every step, from one thread at a time.
pub trait Progress: Send + Sync {
    /// Called at most a few hundred times a second; must not block.
    fn update(&self, snapshot: &Snapshot);

    /// The losses of a live input so far, by reason; at most ten times a second, and at the end.
    fn losses(&self, node: &str, losses: &BTreeMap<String, u64>) {
        let _ = (node, losses);
    }

    /// A line of output from a program that runs for a node, as it appears. Must not block.
    fn program_output(&self, node: &str, line: &str) {
        let _ = (node, line);
    }

    /// A note of a live input, as it appears.
    fn note(&self, node: &str, what: &str) {
        let _ = (node, what);
    }

    /// A milestone of the run: plan, inputs, outputs. Must not block.
    fn milestone(&self, milestone: &Milestone<'_>) {
        let _ = milestone;
    }
}

/// Runs a pipeline.
///
/// `Err` means that the run failed and nothing was published. Damage and events that could not be
/// written are in the report. A pipeline that runs programs is refused upfront, unless the options
/// allow it.
pub fn run(pipeline: Pipeline, options: &Options) -> Result<Report, Error> {
    run_in_parent(pipeline, options, None)
}

/// What a run gets from the batch or worker that embeds it.
pub(crate) struct ParentRun<'b> {
    /// A shared thread pool; `None` if the run starts its own.
    pub(crate) pool: Option<Arc<ThreadPool>>,
    /// Whether to hash inputs and outputs, as a record needs.
    pub(crate) hash: bool,
    /// Files that other units read, which must not be replaced.
    pub(crate) spared: Arc<BTreeSet<FileIdentity>>,
    /// Temporary files of killed runs in the output folders.
    pub(crate) litter: Arc<ListedLitter>,
    /// Where to stage outputs that the driver of a cluster run publishes.
    pub(crate) staging: Option<Arc<StagingDir>>,
    /// Called with the run's end and all files about to be published. If it fails, none are.
    pub(crate) announce: &'b AnnounceFn<'b>,
}

pub(crate) type AnnounceFn<'b> =
    dyn Fn(&RunOrigin, RunEnd, &[PublishedFile]) -> Result<(), Error> + 'b;

/// Like [`run`], for a run embedded in a batch or worker.
pub(crate) fn run_in_parent(
    pipeline: Pipeline,
    options: &Options,
    within: Option<&ParentRun<'_>>,
) -> Result<Report, Error> {
    let started = Instant::now();
    check_programs_allowed(&pipeline, options)?;
    let pool = within.and_then(|within| within.pool.clone());
    let mut setup = Setup::new(options, pipeline.memory, holding_sinks(&pipeline.nodes), pool);
    let reading = setup.prepare(&pipeline.nodes)?;
    let is_recording = options.recording.is_some();
    setup.shared.naming = NamingNodes::from_nodes(&pipeline.nodes);
    setup.interruption = Interruption::from_plan(&reading, &pipeline.nodes, is_recording);
    let ran = run_prepared(pipeline, reading, &setup, options, within);
    let mut report = ran.map_err(|error| match setup.check() {
        // A failure during shutdown does not matter: nothing would have been published.
        Err(given_up) => given_up,
        Ok(()) => error,
    })?;
    report.seconds = started.elapsed().as_secs_f64();
    Ok(report)
}

/// Runs a pipeline whose inputs have been planned.
fn run_prepared(
    pipeline: Pipeline,
    reading: ReadPlan,
    setup: &Setup,
    options: &Options,
    within: Option<&ParentRun<'_>>,
) -> Result<Report, Error> {
    let started = Instant::now();
    let text = resolved::text(&pipeline, memory_cap(options, pipeline.memory));
    let Pipeline { name, nodes, .. } = pipeline;
    let hashes = within.is_some_and(|within| within.hash);
    let inputs: Vec<Input> = reading.inputs().cloned().collect();
    for source in &reading.sources {
        let name = nodes.get(source.node).map_or("", |node| &node.name);
        options.report_milestone(&Milestone::planned(name, source));
    }
    let wants_hashes =
        hashes || writes_folder(&nodes) || sinks(&nodes).any(|sink| sink.traits().wants_hashes);
    let hashing = wants_hashes.then(|| setup.pool()).transpose()?;
    let publisher = Publisher {
        setup,
        options,
        parent: within,
        origin: hashing::origin(name, text, &inputs, hashing),
        plugins: manifest::plugin_names(&nodes),
        inputs: inputs.iter().map(|input| input.path.clone()).collect(),
        targets: sinks(&nodes).flat_map(|sink| sink.traits().targets).collect(),
        grows: sinks(&nodes).all(|sink| sink.traits().is_readable_unfinished),
        hash: options.hash || hashes || writes_folder(&nodes),
    };
    let open = publisher.open_outputs()?;
    let quarantines = quarantine::open(&nodes, &open.outputs)?;
    let names: Vec<NodeNames> = nodes.iter().map(NodeNames::from_node).collect();
    let is_windowed = reading.is_windowed();
    let labels =
        nodes.iter().map(|node| (node.name.clone(), node.from.clone())).collect::<Vec<_>>();
    let notes = initial_notes(&nodes, &reading);
    let topology =
        Topology::build(nodes, &reading.origins, &reading.pushdown, setup.merge_limit())?;
    let is_live = reading.sources.iter().all(SourcePlan::is_live);
    let mut driver = RunDriver::new(topology, reading, &publisher, (open, quarantines))?;
    notes.iter().for_each(|(node, what)| driver.note(*node, &labels[*node].0, what));
    let (finished, outputs) = driver.drive()?;
    let names = setup.match_names(&names, is_windowed, &finished);
    let mut report =
        Report::from_run(&labels, finished, &inputs, setup.channels())?.with_names(names);
    setup.check()?;
    if setup.stop.is_requested() {
        report.interrupted = setup.interruption == Interruption::Truncates;
        if setup.interruption == Interruption::Completes && !is_live {
            report.note_early_end(&labels);
        }
    }
    publish_outputs(report, &outputs, &publisher, started)
}

/// Publishes the outputs of a completed run, unless it is strict and a name in an option matched
/// nothing.
fn publish_outputs(
    mut report: Report,
    outputs: &Arc<Outputs>,
    publisher: &Publisher<'_>,
    started: Instant,
) -> Result<Report, Error> {
    let options = publisher.options;
    // The units of a batch are checked together.
    let is_judged = options.strict && publisher.parent.is_none();
    report.refused = is_judged && report.unmatched().next().is_some();
    if report.refused {
        return Ok(report);
    }
    let ended = RunEnd { exit: report.exit(), partial: report.interrupted };
    options.report_milestone(&Milestone::Publishing { seconds: started.elapsed().as_secs_f64() });
    report.files.extend(publisher.publish(outputs, ended)?);
    for PublishedFile { path, rows, bytes, .. } in &report.files {
        options.report_milestone(&Milestone::Output { path, rows: *rows, bytes: *bytes });
    }
    Ok(report)
}

/// Notes from before the first event, by node index.
fn initial_notes(nodes: &[PipelineNode], reading: &ReadPlan) -> Vec<(usize, String)> {
    let notes = |(place, node): (usize, &PipelineNode)| {
        node.notes().into_iter().map(move |what| (place, what)).collect::<Vec<_>>()
    };
    let mut all: Vec<_> = nodes.iter().enumerate().flat_map(notes).collect();
    all.append(&mut unused_rows::notes(nodes));
    all.append(&mut source_name::notes(nodes, &reading.sources));
    all
}

/// The read plan of a pipeline: inputs, queries and splits of its sources.
#[derive(Debug)]
pub struct ReadPlan {
    /// The plan of each source.
    pub sources: Vec<SourcePlan>,
    origins: Vec<Option<i64>>,
    pushdown: Pushdown,
}

/// The read plan of one source.
#[derive(Debug)]
pub struct SourcePlan {
    /// The index of the source's node.
    pub node: usize,
    /// Its inputs.
    pub inputs: Vec<Input>,
    /// The pushed-down query.
    pub query: Query,
    /// The splits to read.
    pub splits: Vec<Split>,
}

impl SourcePlan {
    /// Whether the source is live.
    fn is_live(&self) -> bool {
        self.splits.iter().any(|split| split.live)
    }

    /// Whether it reads files or streams, as opposed to made-up or live data.
    fn has_files(&self) -> bool {
        !self.is_live() && !self.inputs.is_empty()
    }
}

impl ReadPlan {
    /// Whether a source that is not live is limited to a time window.
    fn is_windowed(&self) -> bool {
        let is_windowed = |source: &SourcePlan| {
            !source.is_live() && (source.query.start.is_some() || source.query.end.is_some())
        };
        self.sources.iter().any(is_windowed)
    }

    fn inputs(&self) -> impl Iterator<Item = &Input> {
        self.sources.iter().flat_map(|source| &source.inputs)
    }
}

/// Plans what running this pipeline would read, with as little reading as possible.
pub fn plan(pipeline: &Pipeline, options: &Options) -> Result<ReadPlan, Error> {
    Setup::new(options, pipeline.memory, holding_sinks(&pipeline.nodes), None)
        .prepare(&pipeline.nodes)
}

/// The memory cap.
pub(crate) fn memory_cap(options: &Options, from_file: Option<ByteSize>) -> ByteSize {
    options.memory.or(from_file).unwrap_or(DEFAULT_MEMORY)
}

/// The number of threads.
pub(crate) fn thread_count(options: &Options) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    options.jobs.filter(|jobs| *jobs > 0).unwrap_or(cores)
}

/// Starts the thread pool for tasks.
pub(crate) fn start_pool(jobs: usize) -> Result<Arc<ThreadPool>, Error> {
    let pool = ThreadPoolBuilder::new()
        .num_threads(jobs)
        .thread_name(|n| format!("sluice-{n}"))
        // The driver notices the missing result and fails the run.
        .panic_handler(|_| {})
        .build();
    pool.map(Arc::new).map_err(|e| Error::refused(format!("cannot start worker threads: {e}")))
}

fn sinks(nodes: &[PipelineNode]) -> impl Iterator<Item = &dyn DynSink> {
    nodes.iter().filter_map(|node| match &node.instance {
        PluginInstance::Sink(sink) => Some(&**sink),
        _ => None,
    })
}

/// The number of sinks that buffer events.
fn holding_sinks(nodes: &[PipelineNode]) -> usize {
    sinks(nodes).filter(|sink| sink.traits().buffers_events).count()
}

/// Whether a sink writes a folder, whose manifest holds hashes.
fn writes_folder(nodes: &[PipelineNode]) -> bool {
    let mut targets = sinks(nodes).flat_map(|sink| sink.traits().targets);
    targets.any(|target| target.as_os_str().as_encoded_bytes().ends_with(b"/"))
}

/// The log for the damage of a source.
fn damage_log(damage: &OnDamage) -> DamageLog {
    match damage {
        OnDamage::Quarantine(_) => DamageLog::keeping_bytes(),
        _ => DamageLog::default(),
    }
}
