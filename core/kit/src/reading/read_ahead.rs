//! The loop over splits: starts tasks and readers, delivers their results in order, and reads a
//! split again if it did not begin where the previous one ended.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Select, bounded};

use super::batches::{
    AbandonGuard, BatchReceiver, ReadBatch, Reply, Wake, detached, received, send_batches,
};
use super::limits::SplitMeter;
use super::{ReadLimits, StepSizes};
use sluice_model::{
    Batch, DamageList, Error, LossLog, Query, ReadContext, Seam, Source, Split, SplitStart,
};

/// The batches that a reader on its own thread may be ahead.
const MAX_BATCHES_AHEAD: usize = 4;
/// How long a reader may take after a stop request for what it sends next.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// Work that a [`ReadAhead`] has its consumer run.
pub enum ReadTask<'a> {
    /// Takes a while and never waits for another. Run it soon, or at once.
    Step(Box<dyn FnOnce() + Send + 'a>),
    /// May wait for its input and for the consumer. Run it on a thread of its own.
    Reader(Box<dyn FnOnce() + Send + 'a>),
}

/// What is made of a split, or of one batch of a split that is not read by a task.
#[derive(Debug, Default)]
pub struct ReadStep<O> {
    /// The split, as an index.
    pub split: usize,
    /// What the consumer makes of the batches.
    pub output: O,
    /// The bytes of memory that the output takes, for the budget. The consumer counts them.
    pub memory: usize,
    /// Set by the consumer if it needs no more than this, so that the rest of the split is not
    /// read.
    pub is_enough: bool,
    /// The damage found, in order.
    pub damage: DamageList,
    /// Notes of the reader, with counts. Those of live splits are in the context at once.
    pub notes: Vec<(String, u64)>,
    seam: Seam,
    /// Whether the split is too large for a task, and has to be read by a reader from its start.
    is_too_large: bool,
}

/// Reads splits of a source ahead, and returns what the consumer makes of them, in order.
///
/// # How a split is read
///
/// A split of known, small size is read by one task, which searches for the first event unless the
/// split is the first of its input. If it turns out not to begin where the previous split ended, it
/// is read again from there. Other splits (pipes, compressed files, and those that turn out far
/// larger than they state, unless they adjoin others) are read by a reader on its own thread, and
/// live splits send their batches by themselves; each batch is then a task.
///
/// # Limits
///
/// At most [`ReadLimits::window`] splits are in progress, and as many steps as fit into the
/// `budget` of [`poll`](Self::poll), judged by the latest ones. One step is always allowed.
///
/// # Stopping
///
/// After [`RunHandle::is_cancelled`](sluice_model::RunHandle::is_cancelled) no split is started,
/// and none follows the one in progress. A live split, and one that is read from a pipe, ends by
/// itself, once it has sent all that it received; a reader is left that sends nothing for a second,
/// reads on for two, or sends more than it could hold. Dropping this abandons what is in progress.
///
/// # Example
///
/// ```
/// use sluice_kit::reading::{ReadAhead, ReadStep};
/// use sluice_model::{Batch, Error, Query, ReadContext, Source};
///
/// fn count(source: &dyn Source) -> Result<usize, Error> {
///     let splits = source.splits(1 << 20, &Query::default())?;
///     let count = |batch: Batch, step: &mut ReadStep<usize>| {
///         step.output += batch.len();
///         Ok(())
///     };
///     let context = ReadContext::standalone("log");
///     ReadAhead::in_turn(source, splits, context, count).map(|step| Ok(step?.output)).sum()
/// }
/// ```
pub struct ReadAhead<'a, O> {
    work: Arc<Work<'a, O>>,
    executor: Box<dyn Fn(ReadTask<'a>) -> Result<(), Error> + Send + 'a>,
    wake: Wake,
    context: ReadContext,
    limits: ReadLimits,
    splits: Vec<Split>,
    /// The next split to start.
    next: usize,
    active: VecDeque<ActiveSplit<O>>,
    /// The last finished split, and where reading it ended.
    last: Option<(usize, Option<u64>)>,
    sizes: Arc<StepSizes>,
    /// Since when a reader has sent nothing after a stop request.
    ending: Option<Instant>,
}

/// What all tasks share: the source, and what is done with its batches.
struct Work<'a, O> {
    source: Box<dyn Deref<Target = dyn Source + 'a> + Send + Sync + 'a>,
    add: Box<AddBatch<'a, O>>,
}

/// Adds a batch to a step.
type AddBatch<'a, O> = dyn Fn(Batch, &mut ReadStep<O>) -> Result<(), Error> + Send + Sync + 'a;

struct ActiveSplit<O> {
    split: usize,
    progress: SplitProgress<O>,
    _guard: AbandonGuard,
}

enum SplitProgress<O> {
    Task { entry: SplitStart, result: StepReceiver<O> },
    Batches { batches: BatchReceiver, steps: VecDeque<StepReceiver<O>> },
}

type StepReceiver<O> = Receiver<Result<ReadStep<O>, Error>>;

impl<'a, O: Default + Send + 'a> ReadAhead<'a, O> {
    /// Reads these splits of the source, which were made for the context's query. `add` adds a
    /// batch to a step, on the thread of a task; `executor` runs tasks.
    pub fn new(
        source: impl Deref<Target = dyn Source + 'a> + Send + Sync + 'a,
        splits: Vec<Split>,
        context: ReadContext,
        add: impl Fn(Batch, &mut ReadStep<O>) -> Result<(), Error> + Send + Sync + 'a,
        executor: impl Fn(ReadTask<'a>) -> Result<(), Error> + Send + 'a,
        limits: ReadLimits,
    ) -> Self {
        Self {
            work: Arc::new(Work { source: Box::new(source), add: Box::new(add) }),
            executor: Box::new(executor),
            wake: Arc::new(|| ()),
            context,
            limits,
            splits,
            next: 0,
            active: VecDeque::new(),
            last: None,
            sizes: Arc::default(),
            ending: None,
        }
    }

    /// Reads one split after another, on the thread of the consumer, when it asks for the next
    /// step.
    pub fn in_turn(
        source: impl Deref<Target = dyn Source + 'a> + Send + Sync + 'a,
        splits: Vec<Split>,
        context: ReadContext,
        add: impl Fn(Batch, &mut ReadStep<O>) -> Result<(), Error> + Send + Sync + 'a,
    ) -> Self {
        let executor = |task: ReadTask<'a>| match task {
            ReadTask::Step(step) => {
                step();
                Ok(())
            }
            ReadTask::Reader(_) => Err(Error::internal("a reader would wait for its own thread")),
        };
        Self::new(source, splits, context, add, executor, ReadLimits::in_turn())
    }

    /// Calls `wake` after each result that a task has sent, so that a consumer that does not block
    /// can [poll](Self::poll) again.
    pub fn waking(mut self, wake: Wake) -> Self {
        self.wake = wake;
        self
    }

    /// Starts again with these splits, which were made for `query`.
    pub fn restart(&mut self, splits: Vec<Split>, query: Query) {
        self.active.clear();
        self.context.losses.begin_again();
        (self.next, self.last) = (0, None);
        (self.splits, self.context.query) = (splits, query);
    }

    /// Changes the most splits in progress.
    pub fn set_window(&mut self, window: usize) {
        self.limits.window = window;
    }

    /// Whether a split is live.
    pub fn is_live(&self) -> bool {
        self.splits.iter().any(|split| split.live)
    }

    /// The losses and notes that live splits report.
    pub fn losses(&self) -> &LossLog {
        &self.context.losses
    }

    /// Starts reading; otherwise, the first [`poll`](Self::poll) does.
    pub fn begin(&mut self) -> Result<(), Error> {
        self.start_ahead(0)
    }

    /// The split that the next step belongs to, if it has been started.
    pub fn split_in_progress(&self) -> Option<usize> {
        self.active.front().map(|active| active.split)
    }

    /// Steps that are running, or done but not returned.
    pub fn in_flight(&self) -> usize {
        let steps = self.active.iter().map(|active| match &active.progress {
            SplitProgress::Task { .. } => 1,
            SplitProgress::Batches { steps, .. } => steps.len(),
        });
        steps.sum()
    }

    /// Steps in flight, and batches of live splits that have arrived.
    pub fn backlog(&self) -> usize {
        let arrived = self.active.iter().map(|active| match &active.progress {
            SplitProgress::Batches { batches: BatchReceiver::Live(batches, _), .. } => {
                batches.waiting()
            }
            _ => 0,
        });
        self.in_flight() + arrived.sum::<usize>()
    }

    /// The estimated bytes of steps in flight.
    pub fn estimated_bytes(&self) -> usize {
        self.sizes.estimated_bytes(self.in_flight())
    }

    /// Whether [`poll`](Self::poll) would return or do something without waiting.
    pub fn is_ready(&self) -> bool {
        let mut select = Select::new();
        self.add_to(&mut select);
        self.active.is_empty() || select.try_ready().is_ok()
    }

    /// Adds what the next step waits for to a selection; nothing if no split is in progress.
    pub fn add_to<'s>(&'s self, select: &mut Select<'s>) {
        let Some(front) = self.active.front() else { return };
        match &front.progress {
            SplitProgress::Task { result, .. } => select.recv(result),
            SplitProgress::Batches { batches, steps } => match (steps.front(), batches) {
                (Some(step), _) => select.recv(step),
                (None, batches) => batches.add_to(select),
            },
        };
    }

    /// The next step in order; `None` if everything has been read, or as much as a stop request
    /// allows. Waits for it up to `patience`. Keeps steps in flight within `budget` bytes.
    ///
    /// `Err` if the source or the work failed. The first error in order is returned; nothing is
    /// read after it.
    pub fn poll(
        &mut self,
        patience: Duration,
        budget: usize,
    ) -> Result<Poll<Option<ReadStep<O>>>, Error> {
        loop {
            self.start_ahead(budget)?;
            let Some(front) = self.active.front_mut() else { return Ok(Poll::Ready(None)) };
            match &mut front.progress {
                SplitProgress::Task { entry, result } => {
                    let Some(step) = received(result, patience)? else {
                        return Ok(Poll::Pending);
                    };
                    let (split, entry) = (front.split, *entry);
                    self.finish_split();
                    if step.is_too_large {
                        // After a stop request, the reader ends at once and no split follows it.
                        let again = self.start_batches(split)?;
                        self.active.push_front(again);
                        continue;
                    }
                    if let Some(step) = self.check_seam(split, entry, step)? {
                        return Ok(Poll::Ready(Some(step)));
                    }
                }
                SplitProgress::Batches { steps, .. } if !steps.is_empty() => {
                    let Some(result) = steps.front() else { continue };
                    let Some(step) = received(result, patience)? else {
                        return Ok(Poll::Pending);
                    };
                    steps.pop_front();
                    return Ok(Poll::Ready(Some(step)));
                }
                SplitProgress::Batches { batches, .. } => {
                    let is_live = matches!(batches, BatchReceiver::Live(..));
                    match batches.receive(patience) {
                        Ok(batch) => self.start_batch(batch)?,
                        Err(RecvTimeoutError::Timeout)
                            if is_live || !self.context.run.is_cancelled() =>
                        {
                            return Ok(Poll::Pending);
                        }
                        // A reader may wait where it cannot notice a stop request.
                        Err(RecvTimeoutError::Timeout)
                            if self.ending.get_or_insert_with(Instant::now).elapsed()
                                < END_PATIENCE =>
                        {
                            return Ok(Poll::Pending);
                        }
                        Err(_) => self.finish_split(),
                    }
                }
            }
        }
    }

    /// Ends the first split. After a stop request it may be incomplete: nothing may follow it,
    /// however much has been read ahead.
    fn finish_split(&mut self) {
        self.active.pop_front();
        if self.context.run.is_cancelled() {
            self.active.clear();
        }
    }

    /// The step of `split` if it began where the split before ended; otherwise restarts it there.
    fn check_seam(
        &mut self,
        split: usize,
        entry: SplitStart,
        step: ReadStep<O>,
    ) -> Result<Option<ReadStep<O>>, Error> {
        let ended = self.last.filter(|(last, _)| self.follows(*last, split));
        match ended.and_then(|(_, ended)| ended) {
            Some(due) if entry == SplitStart::Search && step.seam.began != Some(due) => {
                let again = self.start_task(split, SplitStart::At(due))?;
                self.active.push_front(again);
                Ok(None)
            }
            _ => {
                self.last = Some((split, step.seam.ended));
                Ok(Some(step))
            }
        }
    }

    fn follows(&self, before: usize, split: usize) -> bool {
        self.splits[before].is_followed_by(&self.splits[split])
    }

    /// Whether no seam joins a split to the one before or after it.
    fn is_alone(&self, split: usize) -> bool {
        let has_seam = |pair: &[Split]| pair[0].is_followed_by(&pair[1]);
        let end = self.splits.len().min(split + 2);
        !self.splits[split.saturating_sub(1)..end].windows(2).any(has_seam)
    }

    /// Starts tasks for arrived batches and for splits, as far as the limits allow.
    fn start_ahead(&mut self, budget: usize) -> Result<(), Error> {
        let most = self.limits.window.min(self.sizes.max_steps(budget));
        while let Some(ActiveSplit { progress, .. }) = self.active.front_mut()
            && let SplitProgress::Batches { batches, steps } = progress
            && steps.len() < most
            && let Ok(batch) = batches.receive(Duration::ZERO)
        {
            self.start_batch(batch)?;
        }
        while self.next < self.splits.len() && self.may_start(budget) {
            let split = self.next;
            self.next += 1;
            let max = self.limits.max_task_bytes;
            let is_task = max.is_none_or(|max| self.splits[split].bytes.is_some_and(|b| b <= max));
            let started =
                if is_task { self.start_search(split)? } else { self.start_batches(split)? };
            self.active.push_back(started);
        }
        Ok(())
    }

    fn may_start(&self, budget: usize) -> bool {
        if self.context.run.is_cancelled() || self.active.len() >= self.limits.window {
            return false;
        }
        // With any amount of memory, one step at a time always runs.
        self.active.is_empty()
            || self.context.blocks.lent_bytes() < self.limits.max_lent_bytes
                && self.in_flight() < self.sizes.max_steps(budget)
    }

    fn start_search(&self, split: usize) -> Result<ActiveSplit<O>, Error> {
        let is_first = split == 0 || !self.follows(split - 1, split);
        // The first split of an input starts where the input does: nothing to search for.
        let start = SplitStart::At(self.splits[split].start);
        self.start_task(split, if is_first { start } else { SplitStart::Search })
    }

    fn start_task(&self, split: usize, entry: SplitStart) -> Result<ActiveSplit<O>, Error> {
        let (context, guard) = detached(self.context.with_own_logs());
        let piece = self.splits[split].clone();
        // A reader on its own thread, which takes over what is too large, knows no seams.
        let mut meter =
            SplitMeter::new(self.limits.max_task_bytes.filter(|_| self.is_alone(split)));
        let result = self.spawn(split, move |work, step| {
            let mut reader = work.source.read(&piece, entry, &context)?;
            while !step.is_enough && !context.run.is_cancelled() {
                let Some(batch) = reader.next_batch()? else { break };
                if meter.is_exceeded_by(&batch) {
                    step.is_too_large = true;
                    return Ok(());
                }
                (work.add)(batch, step)?;
            }
            (step.damage, step.notes) = (context.damage.take_list(), context.losses.take_notes());
            step.seam = reader.seam();
            Ok(())
        })?;
        let progress = SplitProgress::Task { entry, result };
        Ok(ActiveSplit { split, progress, _guard: guard })
    }

    /// Starts a split whose batches arrive over a channel.
    fn start_batches(&self, split: usize) -> Result<ActiveSplit<O>, Error> {
        let piece = self.splits[split].clone();
        let (batches, guard) = if piece.live {
            let (context, guard) = detached(self.context.with_own_damage());
            let batches = self.work.source.listen(&piece, &context)?;
            (BatchReceiver::Live(batches, context.damage), guard)
        } else {
            let (context, guard) = detached(self.context.with_own_logs());
            let (sender, batches) = bounded(MAX_BATCHES_AHEAD);
            let reply = Reply::new(sender, &self.wake);
            let work = Arc::clone(&self.work);
            (self.executor)(ReadTask::Reader(Box::new(move || {
                let send = || send_batches(&**work.source, &piece, &context, &reply);
                if let Err(error) = Error::catching(send) {
                    reply.send(Err(error));
                }
            })))?;
            (BatchReceiver::Reader(batches, false), guard)
        };
        let progress = SplitProgress::Batches { batches, steps: VecDeque::new() };
        Ok(ActiveSplit { split, progress, _guard: guard })
    }

    /// Starts a step for a batch of the first split.
    fn start_batch(&mut self, batch: Result<ReadBatch, Error>) -> Result<(), Error> {
        self.ending = None;
        let Some(split) = self.active.front().map(|front| front.split) else { return Ok(()) };
        let result = self.spawn(split, move |work, step| {
            let ReadBatch { batch, damage, notes } = batch?;
            (step.damage, step.notes) = (damage, notes);
            batch.map_or(Ok(()), |batch| (work.add)(batch, step))
        })?;
        if let Some(ActiveSplit { progress: SplitProgress::Batches { steps, .. }, .. }) =
            self.active.front_mut()
        {
            steps.push_back(result);
        }
        Ok(())
    }

    /// Starts a step that `fill` completes.
    fn spawn(
        &self,
        split: usize,
        fill: impl FnOnce(&Work<'a, O>, &mut ReadStep<O>) -> Result<(), Error> + Send + 'a,
    ) -> Result<StepReceiver<O>, Error> {
        let (sender, result) = bounded(1);
        let reply = Reply::new(sender, &self.wake);
        let (work, sizes) = (Arc::clone(&self.work), Arc::clone(&self.sizes));
        (self.executor)(ReadTask::Step(Box::new(move || {
            let mut step = ReadStep { split, ..ReadStep::default() };
            let filled = Error::catching(|| fill(&work, &mut step));
            if filled.is_ok() {
                sizes.note(step.memory);
            }
            reply.send(filled.map(|()| step));
        })))?;
        Ok(result)
    }
}

/// Waits for every step, with any number of them in flight.
impl<'a, O: Default + Send + 'a> Iterator for ReadAhead<'a, O> {
    type Item = Result<ReadStep<O>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.poll(Duration::MAX, usize::MAX) {
                Ok(Poll::Ready(step)) => return step.map(Ok),
                Ok(Poll::Pending) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
