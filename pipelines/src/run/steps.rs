//! Steps: a source's splits, read ahead on the pool and delivered in order.
//!
//! A small split of known size is read and run through the source's segment by one task. Others
//! (pipes, compressed files, live inputs) are read by a separate thread that passes batches through
//! a bounded channel, and each batch is a task. If a task guessed the first event of its split
//! wrong, the split is read again from where the previous one really ended.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use rayon::ThreadPool;
use sluice_model::{
    Batch, Damage, Error, LossLog, Query, ReadContext, RunHandle, Seam, Source, Split, SplitStart,
};

use super::segment::{Branch, SegmentOutcome, TaskContext};
use super::step_sizes::StepSizes;
use super::topology::SourceNode;

/// The batches that a reading thread may be ahead.
const MAX_BATCHES_AHEAD: usize = 4;

/// How long to wait for a reading thread before checking whether the run was stopped.
const STREAM_TIMEOUT: Duration = Duration::from_millis(100);

/// How long a live input may go without being polled.
const MAX_POLL_GAP: Duration = Duration::from_millis(100);

/// One step of a source.
#[derive(Default)]
pub(crate) struct SourceStep {
    pub(crate) outcome: SegmentOutcome,
    pub(crate) damage: Vec<Damage>,
    seam: Seam,
}

/// A source being read.
pub(crate) struct SourceSteps {
    node: usize,
    source: Arc<dyn Source>,
    segment: Arc<Vec<Branch>>,
    context: ReadContext,
    shared: TaskContext,
    pool: Arc<ThreadPool>,
    splits: Vec<Split>,
    /// The next split to start.
    next: usize,
    pending: VecDeque<PendingSplit>,
    /// The last delivered split, and where reading it ended.
    last: Option<(usize, Option<u64>)>,
    /// The split of the last step.
    current: usize,
    limits: ReadAheadLimits,
    step_sizes: Arc<StepSizes>,
    /// When it was last polled.
    last_polled: Instant,
}

/// Limits on reading ahead.
pub(crate) struct ReadAheadLimits {
    /// Steps in flight.
    pub(crate) window: usize,
    /// The maximum size of splits that a task reads.
    pub(crate) task_bytes: u64,
    /// The maximum bytes of blocks in use.
    pub(crate) max_lent_bytes: usize,
}

enum PendingSplit {
    Task {
        split: usize,
        result: Receiver<Result<SourceStep, Error>>,
    },
    Stream {
        split: usize,
        live: bool,
        batches: Receiver<Result<ReaderOutput, Error>>,
        tasks: VecDeque<Receiver<Result<SourceStep, Error>>>,
        _guard: ReaderGuard,
    },
}

/// Marks a reading thread as abandoned on drop. A reader that waits for a program could not notice
/// otherwise.
struct ReaderGuard(RunHandle);

impl Drop for ReaderGuard {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// One message of a reading thread.
struct ReaderOutput {
    batch: Option<Batch>,
    log: ReaderLog,
}

/// What a reader reported while it read.
struct ReaderLog {
    damage: Vec<Damage>,
    /// Notes for the report. Those of live inputs go to the driver at once.
    notes: Vec<(String, u64)>,
}

impl ReaderLog {
    fn take(context: &ReadContext, live: bool) -> Self {
        let notes = if live { Vec::new() } else { context.losses.take_notes() };
        Self { damage: context.damage.take(), notes }
    }
}

impl SourceSteps {
    pub(crate) fn new(
        source: &SourceNode,
        splits: Vec<Split>,
        context: ReadContext,
        (shared, pool): (TaskContext, Arc<ThreadPool>),
        limits: ReadAheadLimits,
    ) -> Self {
        Self {
            node: source.node,
            source: Arc::clone(&source.source),
            segment: Arc::clone(&source.segment),
            context,
            shared,
            pool,
            splits,
            next: 0,
            pending: VecDeque::new(),
            last: None,
            current: 0,
            limits,
            step_sizes: Arc::default(),
            last_polled: Instant::now(),
        }
    }

    /// Whether the source is live.
    pub(crate) fn is_live(&self) -> bool {
        self.splits.iter().any(|split| split.live)
    }

    /// Whether polling it may yield something. Always true if it is not live.
    pub(crate) fn has_data(&self) -> bool {
        match self.pending.front() {
            Some(PendingSplit::Stream { live: true, batches, tasks, .. }) => {
                !tasks.is_empty()
                    || !batches.is_empty()
                    || self.last_polled.elapsed() >= MAX_POLL_GAP
            }
            _ => true,
        }
    }

    /// The split of the last step.
    pub(crate) fn current(&self) -> usize {
        self.current
    }

    /// The losses and notes that the source reports.
    pub(crate) fn losses(&self) -> &LossLog {
        &self.context.losses
    }

    /// Restarts with these splits, which were made for `query`.
    pub(crate) fn restart(&mut self, splits: Vec<Split>, query: Query) {
        self.pending.clear();
        self.context.losses.begin_again();
        (self.next, self.last) = (0, None);
        (self.splits, self.context.query) = (splits, query);
    }

    /// The estimated bytes of steps in flight.
    pub(crate) fn estimated_bytes(&self) -> usize {
        self.step_sizes.estimated_bytes(self.in_flight())
    }

    /// The next step in order; `None` when the source is at its end, or drained after a stop
    /// request. A silent live source returns an empty step after `patience`. Steps in flight are
    /// kept within `budget` bytes.
    pub(crate) fn next_step(
        &mut self,
        patience: Duration,
        budget: usize,
    ) -> Result<Option<SourceStep>, Error> {
        self.last_polled = Instant::now();
        loop {
            self.start_ahead(budget)?;
            let Some(front) = self.pending.front_mut() else { return Ok(None) };
            match front {
                PendingSplit::Task { split, result } => {
                    let (split, step) = (*split, await_step(result)?);
                    self.current = split;
                    self.pending.pop_front();
                    self.stop_here_if_cancelled();
                    return self.fix_seam(split, step).map(Some);
                }
                PendingSplit::Stream { split, live, batches, tasks, .. } => {
                    self.current = *split;
                    if let Some(task) = tasks.pop_front() {
                        return await_step(&task).map(Some);
                    }
                    let live = *live;
                    match batches.recv_timeout(if live { patience } else { STREAM_TIMEOUT }) {
                        Ok(piece) => return self.run_now(piece?).map(Some),
                        // A live reader ends by itself once it has passed on all it received.
                        Err(RecvTimeoutError::Timeout) if live => {
                            return Ok(Some(SourceStep::default()));
                        }
                        // A reader that blocks on input cannot notice a stop request.
                        Err(RecvTimeoutError::Timeout) if !self.context.run.is_cancelled() => {}
                        Err(_) => {
                            self.pending.pop_front();
                            self.stop_here_if_cancelled();
                        }
                    }
                }
            }
        }
    }

    /// After a stop request the last split may be incomplete: nothing may follow it, however much
    /// has been read ahead.
    fn stop_here_if_cancelled(&mut self) {
        if self.context.run.is_cancelled() {
            self.pending.clear();
        }
    }

    /// Starts tasks for splits and for arrived batches, as far as the window allows.
    fn start_ahead(&mut self, budget: usize) -> Result<(), Error> {
        self.start_arrived(budget)?;
        while self.next < self.splits.len() && self.may_start(budget) {
            let split = self.next;
            self.next += 1;
            let small =
                self.splits[split].bytes.is_some_and(|bytes| bytes <= self.limits.task_bytes);
            let started = if small {
                self.start_task(split, SplitStart::Search)
            } else {
                self.start_stream(split)?
            };
            self.pending.push_back(started);
        }
        Ok(())
    }

    fn may_start(&self, budget: usize) -> bool {
        let full = self.pending.len() >= self.limits.window;
        // With any amount of memory, one step at a time always runs.
        let short = self.context.blocks.lent_bytes() >= self.limits.max_lent_bytes
            || self.in_flight() >= self.step_sizes.max_steps(budget);
        !self.context.run.is_cancelled() && !full && (self.pending.is_empty() || !short)
    }

    /// Steps that are running or done but not delivered.
    fn in_flight(&self) -> usize {
        let steps = self.pending.iter().map(|started| match started {
            PendingSplit::Task { .. } => 1,
            PendingSplit::Stream { tasks, .. } => tasks.len(),
        });
        steps.sum()
    }

    fn start_arrived(&mut self, budget: usize) -> Result<(), Error> {
        let Some(PendingSplit::Stream { .. }) = self.pending.front() else { return Ok(()) };
        loop {
            let Some(PendingSplit::Stream { batches, tasks, .. }) = self.pending.front() else {
                return Ok(());
            };
            if tasks.len() >= self.limits.window.min(self.step_sizes.max_steps(budget)) {
                return Ok(());
            }
            let Ok(piece) = batches.try_recv() else { return Ok(()) };
            let task = self.start_batch(piece?);
            if let Some(PendingSplit::Stream { tasks, .. }) = self.pending.front_mut() {
                tasks.push_back(task);
            }
        }
    }

    fn start_task(&self, split: usize, entry: SplitStart) -> PendingSplit {
        let (sender, result) = bounded(1);
        let (source, segment, node) =
            (Arc::clone(&self.source), Arc::clone(&self.segment), self.node);
        let (context, shared) = (self.context.with_own_logs(), self.shared.clone());
        let (piece, delivered) = (self.splits[split].clone(), Arc::clone(&self.step_sizes));
        let first = split == 0 || !self.splits[split - 1].is_followed_by(&piece);
        // The first split of an input starts where the input does: nothing to search for.
        let entry =
            if first && entry == SplitStart::Search { SplitStart::At(piece.start) } else { entry };
        self.pool.spawn(move || {
            let step = read_split(&*source, &piece, entry, &context, (&shared, &segment, node));
            note_memory(&delivered, &step);
            // The receiver is gone if the run has failed elsewhere.
            drop(sender.send(step));
        });
        PendingSplit::Task { split, result }
    }

    fn start_stream(&self, split: usize) -> Result<PendingSplit, Error> {
        let (sender, batches) = bounded(MAX_BATCHES_AHEAD);
        let live = self.splits[split].live;
        let own = ReadContext::with_own_logs;
        let context = if live { self.context.with_own_damage() } else { own(&self.context) };
        let context = ReadContext { run: context.run.detached(), ..context };
        let _guard = ReaderGuard(context.run.clone());
        let source = Arc::clone(&self.source);
        let piece = self.splits[split].clone();
        let reader = std::thread::Builder::new().name("sluice-reader".into());
        let spawned = reader.spawn(move || {
            if let Err(error) = hand_over(&*source, &piece, &context, &sender) {
                drop(sender.send(Err(error)));
            }
        });
        spawned.map_err(|e| Error::io("start a thread to read", &self.splits[split].input, e))?;
        Ok(PendingSplit::Stream { split, live, batches, tasks: VecDeque::new(), _guard })
    }

    fn start_batch(&self, piece: ReaderOutput) -> Receiver<Result<SourceStep, Error>> {
        let (sender, result) = bounded(1);
        let (shared, segment, node) = (self.shared.clone(), Arc::clone(&self.segment), self.node);
        let delivered = Arc::clone(&self.step_sizes);
        self.pool.spawn(move || {
            let step = run_batch(&shared, &segment, node, piece);
            note_memory(&delivered, &step);
            drop(sender.send(step));
        });
        result
    }

    fn run_now(&self, piece: ReaderOutput) -> Result<SourceStep, Error> {
        await_step(&self.start_batch(piece))
    }

    /// The step of `split`, read again if it did not start where the previous split ended.
    fn fix_seam(&mut self, split: usize, step: SourceStep) -> Result<SourceStep, Error> {
        let follows = |last: usize| self.splits[last].is_followed_by(&self.splits[split]);
        let due = self.last.filter(|(last, _)| follows(*last)).and_then(|(_, ended)| ended);
        let step = match due {
            Some(due) if step.seam.began != Some(due) => {
                let PendingSplit::Task { result, .. } = self.start_task(split, SplitStart::At(due))
                else {
                    return Err(Error::internal("a task was asked for"));
                };
                await_step(&result)?
            }
            _ => step,
        };
        self.last = Some((split, step.seam.ended));
        Ok(step)
    }
}

fn await_step(result: &Receiver<Result<SourceStep, Error>>) -> Result<SourceStep, Error> {
    result.recv().unwrap_or_else(|_| Err(Error::internal("a task panicked; its message is above")))
}

fn note_memory(delivered: &StepSizes, step: &Result<SourceStep, Error>) {
    if let Ok(step) = step {
        delivered.note(step.outcome.memory);
    }
}

fn read_split(
    source: &dyn Source,
    split: &Split,
    entry: SplitStart,
    context: &ReadContext,
    (shared, segment, node): (&TaskContext, &[Branch], usize),
) -> Result<SourceStep, Error> {
    let mut reader = source.read(split, entry, context)?;
    let mut step = SourceStep::default();
    while let Some(batch) = reader.next_batch()? {
        shared.run(segment, Some(node), batch, &mut step.outcome)?;
    }
    step.seam = reader.seam();
    note(ReaderLog::take(context, false), node, &mut step);
    Ok(step)
}

fn hand_over(
    source: &dyn Source,
    split: &Split,
    context: &ReadContext,
    sender: &Sender<Result<ReaderOutput, Error>>,
) -> Result<(), Error> {
    let mut reader = source.read(split, SplitStart::At(split.start), context)?;
    while let Some(batch) = reader.next_batch()? {
        let piece = ReaderOutput { batch: Some(batch), log: ReaderLog::take(context, split.live) };
        if sender.send(Ok(piece)).is_err() || context.run.is_cancelled() && !split.live {
            return Ok(());
        }
    }
    drop(sender.send(Ok(ReaderOutput { batch: None, log: ReaderLog::take(context, split.live) })));
    Ok(())
}

fn run_batch(
    shared: &TaskContext,
    segment: &[Branch],
    node: usize,
    piece: ReaderOutput,
) -> Result<SourceStep, Error> {
    let mut step = SourceStep::default();
    if let Some(batch) = piece.batch {
        shared.run(segment, Some(node), batch, &mut step.outcome)?;
    }
    note(piece.log, node, &mut step);
    Ok(step)
}

/// Records notes and damage; damage that was one event of a known channel is counted there.
fn note(said: ReaderLog, node: usize, step: &mut SourceStep) {
    let tally = step.outcome.tally.node(node);
    for channel in said.damage.iter().filter_map(|damage| damage.channel) {
        tally.damaged.add_one(channel.0);
    }
    for (what, count) in said.notes {
        tally.note(&what, count);
    }
    step.damage = said.damage;
}
