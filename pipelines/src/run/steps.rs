//! Steps: a source's splits read ahead on the pool, handed over one after another, in order.
//!
//! Splits of known, small size are read and run through the source's segment by one task each. Others
//! (pipes, compressed files, live inputs) are read by a thread of their own that hands over batches
//! through a bounded channel, and each batch is a task. Where a task guessed the place of its first
//! event wrong, its split is read again from where the one before really ended.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use rayon::ThreadPool;
use sluice_core::{
    Batch, Damage, Error, LossLog, Query, ReadContext, Seam, Source, Split, SplitStart,
};

use super::delivered::Delivered;
use super::segment::{Branch, Outcome, Shared};
use super::topology::SourceNode;

/// Batches that a reading thread may be ahead.
const AHEAD: usize = 4;

/// How long to wait for a reading thread before looking whether the run is to end.
const PATIENCE: Duration = Duration::from_millis(100);

/// How long a live input may go without being asked.
const UNASKED: Duration = Duration::from_millis(100);

/// What one step of a source gave.
#[derive(Default)]
pub(crate) struct Step {
    pub(crate) outcome: Outcome,
    pub(crate) damage: Vec<Damage>,
    seam: Seam,
}

/// A source being read.
pub(crate) struct Steps {
    node: usize,
    source: Arc<dyn Source>,
    segment: Arc<Vec<Branch>>,
    context: ReadContext,
    shared: Shared,
    pool: Arc<ThreadPool>,
    splits: Vec<Split>,
    /// The next split to start on.
    next: usize,
    started: VecDeque<Started>,
    /// The split handed over last, and where reading it ended.
    last: Option<(usize, Option<u64>)>,
    /// The split of which the last step was.
    current: usize,
    limits: Limits,
    delivered: Arc<Delivered>,
    /// When it was asked last.
    asked: Instant,
}

/// How far a source may be read ahead.
pub(crate) struct Limits {
    /// Steps in the making.
    pub(crate) window: usize,
    /// Splits up to this size are read by a task.
    pub(crate) task_bytes: u64,
    /// Bytes of blocks in use.
    pub(crate) most_lent: usize,
}

enum Started {
    Task {
        split: usize,
        result: Receiver<Result<Step, Error>>,
    },
    Stream {
        split: usize,
        live: bool,
        batches: Receiver<Result<Piece, Error>>,
        tasks: VecDeque<Receiver<Result<Step, Error>>>,
        _listening: Listening,
    },
}

/// As long as it is there, somebody listens to a reading thread. One that waits for a program cannot tell
/// otherwise.
struct Listening(Arc<AtomicBool>);

impl Drop for Listening {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// What a reading thread hands over.
struct Piece {
    batch: Option<Batch>,
    said: Said,
}

/// What a reader said while it read.
struct Said {
    damage: Vec<Damage>,
    /// What belongs into the report, once. Of live inputs the driver hears it at once.
    notes: Vec<(String, u64)>,
}

impl Said {
    fn take(context: &ReadContext, live: bool) -> Self {
        let notes = if live { Vec::new() } else { context.losses.take_notes() };
        Self { damage: context.damage.take(), notes }
    }
}

impl Steps {
    pub(crate) fn new(
        source: &SourceNode,
        splits: Vec<Split>,
        context: ReadContext,
        (shared, pool): (Shared, Arc<ThreadPool>),
        limits: Limits,
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
            started: VecDeque::new(),
            last: None,
            current: 0,
            limits,
            delivered: Arc::default(),
            asked: Instant::now(),
        }
    }

    /// Whether it goes on until somebody ends it.
    pub(crate) fn is_live(&self) -> bool {
        self.splits.iter().any(|split| split.live)
    }

    /// Whether something has come, or might have: asking it will not be in vain. Of a source that is not
    /// live, always.
    pub(crate) fn has_news(&self) -> bool {
        match self.started.front() {
            Some(Started::Stream { live: true, batches, tasks, .. }) => {
                !tasks.is_empty() || !batches.is_empty() || self.asked.elapsed() >= UNASKED
            }
            _ => true,
        }
    }

    /// The split that the last step is a part of.
    pub(crate) fn current(&self) -> usize {
        self.current
    }

    /// What the source says it lost, and what else it says.
    pub(crate) fn losses(&self) -> &LossLog {
        &self.context.losses
    }

    /// Begins anew with these splits, which were made for `query`.
    pub(crate) fn begin_again(&mut self, splits: Vec<Split>, query: Query) {
        self.started.clear();
        self.context.losses.begin_again();
        (self.next, self.last) = (0, None);
        (self.splits, self.context.query) = (splits, query);
    }

    /// About how many bytes what is under way takes at most.
    pub(crate) fn likely(&self) -> usize {
        self.delivered.likely(self.under_way())
    }

    /// The next step in order; nothing when the source is at its end, or drained after a request to stop.
    /// A live source that is silent gives an empty step every now and then.
    /// It is waited for that long. What is under way is to fit into `room` bytes.
    pub(crate) fn next_step(
        &mut self,
        patience: Duration,
        room: usize,
    ) -> Result<Option<Step>, Error> {
        self.asked = Instant::now();
        loop {
            self.start_ahead(room)?;
            let Some(front) = self.started.front_mut() else { return Ok(None) };
            match front {
                Started::Task { split, result } => {
                    let (split, step) = (*split, received(result)?);
                    self.current = split;
                    self.started.pop_front();
                    self.stop_here_if_cancelled();
                    return self.seamless(split, step).map(Some);
                }
                Started::Stream { split, live, batches, tasks, .. } => {
                    self.current = *split;
                    if let Some(task) = tasks.pop_front() {
                        return received(&task).map(Some);
                    }
                    let live = *live;
                    match batches.recv_timeout(if live { patience } else { PATIENCE }) {
                        Ok(piece) => return self.run_now(piece?).map(Some),
                        // A live reader ends by itself when it has given all it received.
                        Err(RecvTimeoutError::Timeout) if live => return Ok(Some(Step::default())),
                        // A reader that waits for input cannot see that the run is to end.
                        Err(RecvTimeoutError::Timeout) if !self.context.is_cancelled() => {}
                        Err(_) => {
                            self.started.pop_front();
                            self.stop_here_if_cancelled();
                        }
                    }
                }
            }
        }
    }

    /// What was read when the run was asked to end may have been left unfinished: nothing may follow it,
    /// however much of that has been read already.
    fn stop_here_if_cancelled(&mut self) {
        if self.context.is_cancelled() {
            self.started.clear();
        }
    }

    /// Starts on splits, and on batches that have arrived, as far as the window allows.
    fn start_ahead(&mut self, room: usize) -> Result<(), Error> {
        self.start_arrived(room)?;
        while self.next < self.splits.len() && self.may_start(room) {
            let split = self.next;
            self.next += 1;
            let small =
                self.splits[split].bytes.is_some_and(|bytes| bytes <= self.limits.task_bytes);
            let started = if small {
                self.start_task(split, SplitStart::Search)
            } else {
                self.start_stream(split)?
            };
            self.started.push_back(started);
        }
        Ok(())
    }

    fn may_start(&self, room: usize) -> bool {
        let full = self.started.len() >= self.limits.window;
        // However little memory there is, one step at a time always goes through.
        let short = self.context.blocks.lent_bytes() >= self.limits.most_lent
            || self.under_way() >= self.delivered.steps_within(room);
        !self.context.is_cancelled() && !full && (self.started.is_empty() || !short)
    }

    /// Steps that tasks are at, or have made.
    fn under_way(&self) -> usize {
        let steps = self.started.iter().map(|started| match started {
            Started::Task { .. } => 1,
            Started::Stream { tasks, .. } => tasks.len(),
        });
        steps.sum()
    }

    fn start_arrived(&mut self, room: usize) -> Result<(), Error> {
        let Some(Started::Stream { .. }) = self.started.front() else { return Ok(()) };
        loop {
            let Some(Started::Stream { batches, tasks, .. }) = self.started.front() else {
                return Ok(());
            };
            if tasks.len() >= self.limits.window.min(self.delivered.steps_within(room)) {
                return Ok(());
            }
            let Ok(piece) = batches.try_recv() else { return Ok(()) };
            let task = self.start_piece(piece?);
            if let Some(Started::Stream { tasks, .. }) = self.started.front_mut() {
                tasks.push_back(task);
            }
        }
    }

    fn start_task(&self, split: usize, entry: SplitStart) -> Started {
        let (sender, result) = bounded(1);
        let (source, segment, node) =
            (Arc::clone(&self.source), Arc::clone(&self.segment), self.node);
        let (context, shared) = (self.context.with_own_logs(), self.shared.clone());
        let (piece, delivered) = (self.splits[split].clone(), Arc::clone(&self.delivered));
        let first = split == 0 || !self.splits[split - 1].is_followed_by(&piece);
        // The first split of an input begins where the input does: nothing to guess.
        let entry =
            if first && entry == SplitStart::Search { SplitStart::At(piece.start) } else { entry };
        self.pool.spawn(move || {
            let step = read_split(&*source, &piece, entry, &context, (&shared, &segment, node));
            note_memory(&delivered, &step);
            // Nobody listens any more when the run has failed elsewhere.
            drop(sender.send(step));
        });
        Started::Task { split, result }
    }

    fn start_stream(&self, split: usize) -> Result<Started, Error> {
        let (sender, batches) = bounded(AHEAD);
        let live = self.splits[split].live;
        let own = ReadContext::with_own_logs;
        let context = if live { self.context.with_own_damage() } else { own(&self.context) };
        let abandoned = Arc::<AtomicBool>::default();
        let _listening = Listening(Arc::clone(&abandoned));
        let context = ReadContext { abandoned, ..context };
        let source = Arc::clone(&self.source);
        let piece = self.splits[split].clone();
        let reader = std::thread::Builder::new().name("sluice-reader".into());
        let spawned = reader.spawn(move || {
            if let Err(error) = hand_over(&*source, &piece, &context, &sender) {
                drop(sender.send(Err(error)));
            }
        });
        spawned.map_err(|e| Error::io("start a thread to read", &self.splits[split].input, e))?;
        Ok(Started::Stream { split, live, batches, tasks: VecDeque::new(), _listening })
    }

    fn start_piece(&self, piece: Piece) -> Receiver<Result<Step, Error>> {
        let (sender, result) = bounded(1);
        let (shared, segment, node) = (self.shared.clone(), Arc::clone(&self.segment), self.node);
        let delivered = Arc::clone(&self.delivered);
        self.pool.spawn(move || {
            let step = run_piece(&shared, &segment, node, piece);
            note_memory(&delivered, &step);
            drop(sender.send(step));
        });
        result
    }

    fn run_now(&self, piece: Piece) -> Result<Step, Error> {
        received(&self.start_piece(piece))
    }

    /// The step of `split`, read again if it did not begin where the split before it ended.
    fn seamless(&mut self, split: usize, step: Step) -> Result<Step, Error> {
        let follows = |last: usize| self.splits[last].is_followed_by(&self.splits[split]);
        let due = self.last.filter(|(last, _)| follows(*last)).and_then(|(_, ended)| ended);
        let step = match due {
            Some(due) if step.seam.began != Some(due) => {
                let Started::Task { result, .. } = self.start_task(split, SplitStart::At(due))
                else {
                    return Err(Error::internal("a task was asked for"));
                };
                received(&result)?
            }
            _ => step,
        };
        self.last = Some((split, step.seam.ended));
        Ok(step)
    }
}

fn received(result: &Receiver<Result<Step, Error>>) -> Result<Step, Error> {
    result.recv().unwrap_or_else(|_| Err(Error::internal("a task panicked; what it said is above")))
}

fn note_memory(delivered: &Delivered, step: &Result<Step, Error>) {
    if let Ok(step) = step {
        delivered.note(step.outcome.memory);
    }
}

fn read_split(
    source: &dyn Source,
    split: &Split,
    entry: SplitStart,
    context: &ReadContext,
    (shared, segment, node): (&Shared, &[Branch], usize),
) -> Result<Step, Error> {
    let mut reader = source.read(split, entry, context)?;
    let mut step = Step::default();
    while let Some(batch) = reader.next_batch()? {
        shared.run(segment, Some(node), batch, &mut step.outcome)?;
    }
    step.seam = reader.seam();
    note(Said::take(context, false), node, &mut step);
    Ok(step)
}

fn hand_over(
    source: &dyn Source,
    split: &Split,
    context: &ReadContext,
    sender: &Sender<Result<Piece, Error>>,
) -> Result<(), Error> {
    let mut reader = source.read(split, SplitStart::At(split.start), context)?;
    while let Some(batch) = reader.next_batch()? {
        let piece = Piece { batch: Some(batch), said: Said::take(context, split.live) };
        if sender.send(Ok(piece)).is_err() || context.is_cancelled() && !split.live {
            return Ok(());
        }
    }
    drop(sender.send(Ok(Piece { batch: None, said: Said::take(context, split.live) })));
    Ok(())
}

fn run_piece(
    shared: &Shared,
    segment: &[Branch],
    node: usize,
    piece: Piece,
) -> Result<Step, Error> {
    let mut step = Step::default();
    if let Some(batch) = piece.batch {
        shared.run(segment, Some(node), batch, &mut step.outcome)?;
    }
    note(piece.said, node, &mut step);
    Ok(step)
}

/// Notes what was said, and counts the damage that was one event of a known channel.
fn note(said: Said, node: usize, step: &mut Step) {
    let tally = step.outcome.tally.node(node);
    for channel in said.damage.iter().filter_map(|damage| damage.channel) {
        tally.damaged.add_one(channel.0);
    }
    for (what, count) in said.notes {
        tally.note(&what, count);
    }
    step.damage = said.damage;
}
