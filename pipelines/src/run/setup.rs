//! What a run sets up from its options before any file is opened: memory budgets, the thread pool,
//! contexts for plugins, and the read plan.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use rayon::{ThreadPool, ThreadPoolBuilder};
use sluice_io::files::{InputFiles, refuse_repeated_streams};
use sluice_io::tasks::TaskPool;
use sluice_kit::reading::{ReadAhead, ReadLimits, ReadStep, ReadTask};
use sluice_kit::{InputFaults, KeptNames, Playback, SinkPlugins, WantedChannels};
use sluice_model::options::ByteSize;
use sluice_model::{
    Batch, ChannelLog, Channels, DamageLog, DynSink, Error, Query, ReadContext, RunHandle,
    RunOrigin, Source, StageContext, TimeWindow,
};

use super::node_calls::NodeCalls;
use super::observed::NamingNodes;
use super::programs::NodeHost;
use super::pushdown::Pushdown;
use super::segment::TaskContext;
use super::stop::{Interruption, Stop, first_read_once};
use super::topology::FoldNode;
use super::{Options, Progress, ReadPlan, RunResults, SourcePlan, memory_cap, thread_count};
use crate::names::{NameReport, NodeNames, RunFacts, match_names};
use crate::spec::{PipelineNode, PluginInstance};

/// What follows from the options, before any file is opened.
pub(super) struct Setup {
    pub(super) memory: usize,
    /// The number of sinks that buffer events.
    pub(super) holders: usize,
    /// How far sources together are read ahead.
    pub(super) limits: ReadLimits,
    /// The memory budget for what steps deliver.
    pub(super) step_budget: usize,
    pub(super) shared: TaskContext,
    pub(super) pool: Result<Arc<ThreadPool>, String>,
    pub(super) stop: Arc<Stop>,
    /// What a stop request does to the run. Known once its inputs are.
    pub(super) interruption: Interruption,
    /// Whether everything is sent live and nothing stored.
    pub(super) is_sent_live: bool,
    pub(super) progress: Option<Arc<dyn Progress>>,
    playback: Arc<Playback>,
    input_faults: Arc<InputFaults>,
    /// Shared with the sources, which read their inputs in parts.
    pub(super) input_files: Arc<InputFiles>,
    names: Arc<KeptNames>,
    sinks: Arc<SinkPlugins>,
    wanted_channels: Arc<WantedChannels>,
    pub(super) bytes_read: Arc<AtomicU64>,
    /// The channels that sources were asked to skip.
    pub(super) left_out: ChannelLog,
}

/// The steps in progress if everything is sent live: the next one is done when one has been sent.
const LIVE_WINDOW: usize = 2;

impl Setup {
    pub(super) fn new(
        options: &Options,
        from_file: Option<ByteSize>,
        holders: usize,
        pool: Option<Arc<ThreadPool>>,
    ) -> Self {
        let memory = memory_cap(options, from_file).0 as usize;
        let jobs = thread_count(options, from_file);
        // Half of the memory is for sinks that buffer events, if there are any.
        let for_reading = if holders > 0 { memory / 2 } else { memory };
        let mut limits = ReadLimits::new(memory, for_reading, jobs);
        let for_sinks = memory - for_reading;
        limits.max_lent_bytes += for_sinks;
        let pool = pool.map_or_else(|| start_pool(jobs), Ok);
        let channels = Arc::<Channels>::default();
        let names = Arc::new(KeptNames::of(&channels));
        Self {
            memory,
            holders,
            limits,
            // The rest is for delivered events that are being processed.
            step_budget: for_reading / 4 * 3,
            shared: TaskContext {
                channels,
                naming: NamingNodes::default(),
                labels: NodeCalls::default(),
                run: RunHandle::default(),
                is_recording: options.recording.is_some(),
                blocks: limits.blocks((for_sinks / limits.split_bytes).min(64)),
            },
            pool: pool.map_err(|e| e.to_string()),
            stop: Arc::clone(&options.stop),
            interruption: Interruption::Truncates,
            is_sent_live: false,
            progress: options.progress.clone(),
            playback: Arc::clone(&options.playback),
            input_faults: Arc::clone(&options.input_faults),
            input_files: Arc::default(),
            names,
            sinks: Arc::default(),
            wanted_channels: Arc::default(),
            bytes_read: Arc::default(),
            left_out: ChannelLog::default(),
        }
    }

    /// Tells sources which sinks write files.
    pub(super) fn note_sinks(&mut self, nodes: &[PipelineNode]) {
        let writes_file = |sink: &DynSink| sink.traits().targets.iter().any(|to| *to != *"-");
        let sinks = nodes.iter().filter(|node| node.sink().is_some_and(writes_file));
        self.sinks = Arc::new(SinkPlugins(sinks.map(|node| node.plugin).collect()));
    }

    /// The size of splits of files: none if everything is sent live, which is slower than reading.
    pub(super) fn split_bytes(&self) -> u64 {
        if self.is_sent_live { u64::MAX } else { self.limits.split_bytes as u64 }
    }

    /// How far to read ahead in each of this many sources.
    pub(super) fn read_limits(&self, sources: usize) -> ReadLimits {
        let window = if self.is_sent_live { LIVE_WINDOW } else { self.limits.window };
        ReadLimits { window: (window / sources.max(1)).max(1), ..self.limits }
    }

    /// The bytes that may wait at merges for another stream.
    pub(super) fn merge_limit(&self) -> usize {
        self.memory / 4
    }

    /// The bytes of events that each buffering sink may hold.
    pub(super) fn sink_memory(&self) -> usize {
        self.memory / 2 / self.holders.max(1)
    }

    /// Matches the names in options against what the run observed.
    pub(super) fn match_names(
        &self,
        names: &[NodeNames],
        (is_windowed, empty_windows): (bool, BTreeMap<usize, Vec<i64>>),
        finished: &RunResults,
    ) -> Vec<NameReport> {
        let facts = RunFacts {
            channels: self.channels(),
            left_out: self.left_out.names(),
            tally: &finished.tally,
            empty_windows,
            is_windowed,
            is_complete: finished.is_complete,
        };
        match_names(names, &facts)
    }

    /// Runs tasks of outputs and sinks on the thread pool.
    pub(super) fn tasks(&self) -> Result<TaskPool, Error> {
        let pool = self.pool()?;
        Ok(TaskPool::new(pool.current_num_threads(), move |task| pool.spawn(task)))
    }

    pub(super) fn channels(&self) -> &Channels {
        &self.shared.channels
    }

    pub(super) fn pool(&self) -> Result<Arc<ThreadPool>, Error> {
        self.pool.clone().map_err(Error::refused)
    }

    pub(super) fn context(&self, source: &str, damage: DamageLog) -> ReadContext {
        ReadContext {
            source: source.into(),
            channels: Arc::clone(&self.shared.channels),
            damage: Arc::new(damage),
            losses: Arc::default(),
            query: Query::default(),
            blocks: self.shared.blocks.clone(),
            run: self.run_handle(source).counting_in(Arc::clone(&self.bytes_read)),
        }
    }

    /// `Err` if the run is aborted or discarded.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.interruption.check(&self.stop)
    }

    /// The connection of the node with this name to the run.
    pub(super) fn run_handle(&self, node: &str) -> RunHandle {
        self.handle_until(&self.stop.drain, node)
    }

    /// The connection of the sink with this name to the run. What live sources have received goes
    /// through a sink before the run ends.
    pub(super) fn sink_handle(&self, node: &str) -> RunHandle {
        let is_drained = self.interruption == Interruption::Completes;
        let end = if is_drained { &self.stop.abort } else { &self.stop.drain };
        self.handle_until(end, node)
    }

    fn handle_until(&self, end: &Arc<AtomicBool>, node: &str) -> RunHandle {
        let (stop, progress) = (Arc::clone(&self.stop), self.progress.clone());
        let interruption = self.interruption;
        let host = NodeHost { stop, interruption, progress };
        RunHandle::new(node, Arc::new(host), Arc::clone(end))
            .sharing(&self.playback)
            .sharing(&self.input_faults)
            .sharing(&self.names)
            .sharing(&self.sinks)
            .sharing(&self.wanted_channels)
            .sharing(&self.input_files)
    }

    pub(super) fn stage_context(
        &self,
        fold: &FoldNode,
        run_origin: &Arc<RunOrigin>,
    ) -> StageContext<'_> {
        let context = StageContext::new(&self.shared.channels, fold.origin).within(fold.window);
        let run_origin = Some(Arc::clone(run_origin));
        StageContext { run: self.run_handle(&fold.name), run_origin, ..context }
    }

    pub(super) fn prepare(&self, nodes: &[PipelineNode]) -> Result<ReadPlan, Error> {
        let mut files = Vec::new();
        for (node, spec) in nodes.iter().enumerate() {
            if let PluginInstance::Source(source) = &spec.instance {
                let inputs = self.shared.labels.call(node, || source.files())?;
                files.push((node, source, inputs));
            }
        }
        refuse_repeated_streams(files.iter().flat_map(|(_, _, inputs)| inputs))?;
        let inputs = files.iter().flat_map(|(_, _, inputs)| inputs);
        inputs.for_each(|input| self.input_files.note(input));
        let origins = self.origins(nodes)?;
        let wanted = Pushdown::compute(nodes, &origins, &self.shared.labels)?;
        let mut sources = Vec::new();
        for (node, source, inputs) in files {
            let query = wanted.query_for(node);
            let channels = query.channels.with_log(self.left_out.clone());
            let query = Query { channels, ..query };
            inputs.iter().for_each(|input| self.wanted_channels.add(&input.path, &query.channels));
            let splits = || source.splits(self.split_bytes(), &query);
            let splits = self.shared.labels.call(node, splits)?;
            sources.push(SourcePlan { node, inputs, query, splits });
        }
        Ok(ReadPlan { sources, origins, pushdown: wanted })
    }

    /// For each node, the time of the first event of its sources, shifted by the stages between, if
    /// a stage needs it. Of several inputs, the earliest counts.
    pub(super) fn origins(&self, nodes: &[PipelineNode]) -> Result<Vec<Option<i64>>, Error> {
        let mut origins = vec![None; nodes.len()];
        let needed = nodes.iter().any(
            |node| matches!(&node.instance, PluginInstance::Stage(stage) if stage.needs_origin()),
        );
        if !needed {
            return Ok(origins);
        }
        for (node, spec) in nodes.iter().enumerate() {
            if let PluginInstance::Source(source) = &spec.instance {
                let first = || self.first_timestamp(&**source, &spec.name);
                origins[node] = self.shared.labels.call(node, first)?;
            }
        }
        let after = |from: usize, before: Option<i64>| match &nodes[from].instance {
            PluginInstance::Stage(stage) => stage.origins(before).pop().flatten(),
            PluginInstance::Source(_) | PluginInstance::Sink(_) => before,
        };
        // Nodes may be in any order in the file; a few rounds settle them all.
        for _ in 0..nodes.len() {
            for (node, spec) in nodes.iter().enumerate().filter(|(_, spec)| !spec.from.is_empty()) {
                let inputs = spec.from.iter().filter_map(|from| after(*from, origins[*from]));
                origins[node] = inputs.min();
            }
        }
        Ok(origins)
    }

    pub(super) fn first_timestamp(
        &self,
        source: &dyn Source,
        name: &str,
    ) -> Result<Option<i64>, Error> {
        let mut context = self.context(name, DamageLog::default());
        context.run = context.run.counting_in(Arc::default());
        let mut splits = source.splits(self.limits.split_bytes as u64, &Query::default())?;
        let once = first_read_once(&splits, &source.files()?);
        let once = once.and_then(|place| splits.drain(place..).next());
        let add = |batch: Batch, step: &mut _| add_first_time(batch, TimeWindow::default(), step);
        for step in ReadAhead::in_turn(source, splits, context, add) {
            if let Some(first) = step?.output {
                return Ok(Some(first));
            }
        }
        once.map_or(Ok(None), |split| {
            Err(Error::invalid(format!(
                "a time relative to the first event (+…) needs an input that can be read twice, \
                 and `{}` cannot: give absolute times",
                split.input.display()
            )))
        })
    }
}

/// Finds the first time in a window that is within the range of times: others are no reference.
pub(super) fn add_first_time(
    batch: Batch,
    window: TimeWindow,
    step: &mut ReadStep<Option<i64>>,
) -> Result<(), Error> {
    let mut times = batch.timestamps().iter().enumerate();
    let is_in = |row: usize, time: i64| window.wants_time(time) && batch.wide_time(row).is_none();
    let in_range = times.find(|(row, time)| is_in(*row, **time));
    step.output = step.output.or(in_range.map(|(_, time)| *time));
    step.is_enough = step.output.is_some();
    Ok(())
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

/// Runs a task on the run's pool, or a reader on a thread of its own.
pub(super) fn run_task(pool: &ThreadPool, task: ReadTask<'static>) -> Result<(), Error> {
    match task {
        ReadTask::Step(step) => pool.spawn(step),
        ReadTask::Reader(reader) => {
            let started = std::thread::Builder::new().name("sluice-reader".into()).spawn(reader);
            started.map_err(|e| Error::refused(format!("cannot start a thread to read: {e}")))?;
        }
    }
    Ok(())
}
