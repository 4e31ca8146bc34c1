//! Steps: a log's splits read ahead by blocking tasks, handed over one after another, in order.
//!
//! It is what the engine does, for who waits without a thread. Splits of known, small size are read, decoded
//! and filtered by a task each. Others (pipes, compressed files) are read by a thread of their own that
//! hands over batches through a bounded channel, and each batch is a task. Where a task guessed the place
//! of its first event wrong, its split is read again from where the one before really ended.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_array::RecordBatch;
use datafusion::common::runtime::SpawnedTask;
use datafusion::error::Result;
use sluice_core::{Batch, Damage, Error, LossLog, ReadContext, Seam, Split, SplitStart};
use tokio::sync::mpsc;

use super::resources::ReadResources;
use super::scan_task::{ScanOutput, ScanTask, external};

/// Batches that a reading thread may be ahead.
const STREAM_AHEAD: usize = 4;

/// Splits up to so many times the usual size are read by a task.
const MAX_TASK_SPLITS: u64 = 4;

/// A log being read for one scan.
pub(super) struct ReadAhead {
    task: Arc<ScanTask>,
    resources: Arc<ReadResources>,
    context: ReadContext,
    splits: Vec<Split>,
    /// The next split to start on.
    next: usize,
    active: VecDeque<ActiveSplit>,
    /// The split handed over last, and where reading it ended.
    last: Option<(usize, Option<u64>)>,
    /// What is there and was not asked for yet.
    ready: VecDeque<RecordBatch>,
    /// How many rows are still wanted, if not all.
    rows_left: Option<usize>,
    /// How many steps were taken.
    steps_done: u32,
    /// About how much memory a step takes, as the last ones did.
    step_memory: usize,
    left_out: BTreeMap<String, u64>,
    notes: BTreeMap<String, u64>,
}

/// What came of a split, or of a batch of a split that is read in one go.
#[derive(Default)]
struct ReadStep {
    output: ScanOutput,
    damage: Vec<Damage>,
    notes: Vec<(String, u64)>,
    seam: Seam,
}

enum ActiveSplit {
    Task {
        split: usize,
        entry: SplitStart,
        step: SpawnedTask<Result<ReadStep>>,
    },
    Stream {
        batches: mpsc::Receiver<std::result::Result<StreamBatch, Error>>,
        steps: VecDeque<SpawnedTask<Result<ReadStep>>>,
    },
}

/// What a reading thread hands over.
struct StreamBatch {
    batch: Option<Batch>,
    damage: Vec<Damage>,
    notes: Vec<(String, u64)>,
}

impl ReadAhead {
    /// For these splits, made for the work's query. At most `limit` rows come of it.
    pub(super) fn new(
        task: Arc<ScanTask>,
        resources: Arc<ReadResources>,
        splits: Vec<Split>,
        limit: Option<usize>,
    ) -> Self {
        let context = task.log.context(task.pushdown.query(), resources.blocks.clone());
        let context = ReadContext { abandoned: Arc::<AtomicBool>::default(), ..context };
        Self {
            task,
            resources,
            context,
            splits,
            next: 0,
            active: VecDeque::new(),
            last: None,
            ready: VecDeque::new(),
            rows_left: limit,
            steps_done: 0,
            step_memory: 0,
            left_out: BTreeMap::new(),
            notes: BTreeMap::new(),
        }
    }

    /// The next rows in order; nothing at the end. May be dropped while it waits, and called again.
    pub(super) async fn next_rows(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(rows) = self.ready.pop_front() {
                return Ok(Some(rows));
            }
            if self.rows_left == Some(0) {
                self.stop();
                return Ok(None);
            }
            match self.next_step().await {
                Ok(Some(step)) => self.finish_step(step),
                Ok(None) => return Ok(None),
                Err(error) => {
                    self.stop();
                    return Err(error);
                }
            }
        }
    }

    /// Reads no further.
    fn stop(&mut self) {
        self.context.abandoned.store(true, Ordering::Relaxed);
        self.active.clear();
        self.next = self.splits.len();
    }

    fn finish_step(&mut self, step: ReadStep) {
        self.steps_done = self.steps_done.saturating_add(1);
        self.step_memory = step.output.memory.max(self.step_memory / 4 * 3);
        self.task.log.findings.add_damage(step.damage);
        self.task.log.add_channels(&step.output.channels);
        self.count(step.output.left_out, step.output.notes.into_iter().chain(step.notes));
        for rows in step.output.batches {
            let rows = match &mut self.rows_left {
                None => rows,
                Some(0) => return,
                Some(left) => {
                    let rows = rows.slice(0, rows.num_rows().min(*left));
                    *left -= rows.num_rows();
                    rows
                }
            };
            self.ready.push_back(rows);
        }
    }

    /// Says at once what was counted: when a stream is dropped, nobody knows.
    fn count(
        &mut self,
        left_out: BTreeMap<String, u64>,
        notes: impl Iterator<Item = (String, u64)>,
    ) {
        let mut notes = notes.peekable();
        if !left_out.is_empty() || notes.peek().is_some() {
            add(&mut self.left_out, left_out);
            add(&mut self.notes, notes);
            self.task.log.findings.add_counts(&self.left_out, &self.notes);
        }
    }

    async fn next_step(&mut self) -> Result<Option<ReadStep>> {
        loop {
            self.start_ahead();
            let Some(front) = self.active.front_mut() else { return Ok(None) };
            match front {
                ActiveSplit::Task { split, entry, step } => {
                    let (split, entry) = (*split, *entry);
                    let step = joined(step.await)?;
                    self.active.pop_front();
                    if let Some(step) = self.check_seam(split, entry, step) {
                        return Ok(Some(step));
                    }
                }
                ActiveSplit::Stream { batches, steps } => {
                    if let Some(step) = steps.front_mut() {
                        let step = joined(step.await)?;
                        steps.pop_front();
                        return Ok(Some(step));
                    }
                    match batches.recv().await {
                        Some(batch) => self.start_batch(batch),
                        None => drop(self.active.pop_front()),
                    }
                }
            }
        }
    }

    /// The step of `split`, if it began where the split before it ended. Otherwise it is read again.
    fn check_seam(&mut self, split: usize, entry: SplitStart, step: ReadStep) -> Option<ReadStep> {
        let follows = |last: usize| self.splits[last].is_followed_by(&self.splits[split]);
        let expected = self.last.filter(|(last, _)| follows(*last)).and_then(|(_, ended)| ended);
        if let Some(expected) = expected
            .filter(|expected| entry == SplitStart::Search && step.seam.began != Some(*expected))
        {
            let again = self.start_task(split, SplitStart::At(expected));
            self.active.push_front(again);
            return None;
        }
        self.last = Some((split, step.seam.ended));
        Some(step)
    }

    /// Starts on splits, and on batches that have arrived, as far as memory allows.
    fn start_ahead(&mut self) {
        self.start_received();
        while self.next < self.splits.len() && self.may_start() {
            let split = self.next;
            self.next += 1;
            let most = self.resources.split_bytes.saturating_mul(MAX_TASK_SPLITS);
            let is_small = self.splits[split].bytes.is_some_and(|bytes| bytes <= most);
            let active = if is_small {
                self.start_task(split, self.entry(split))
            } else {
                self.start_stream(split)
            };
            self.active.push_back(active);
        }
    }

    fn may_start(&self) -> bool {
        // However little memory there is, one step at a time always goes through.
        let steps_in_flight = self.steps_in_flight();
        self.active.is_empty()
            || self.active.len() < self.window()
                && self.step_memory.saturating_mul(steps_in_flight + 1)
                    <= self.resources.queue_bytes
    }

    /// How many splits may be under way. Of a few rows, few are likely to be needed.
    fn window(&self) -> usize {
        match self.rows_left {
            None => self.resources.window,
            Some(_) => self.resources.window.min(1 << self.steps_done.min(16)),
        }
    }

    /// Steps that tasks are at, or have made.
    fn steps_in_flight(&self) -> usize {
        let steps = self.active.iter().map(|active| match active {
            ActiveSplit::Task { .. } => 1,
            ActiveSplit::Stream { steps, .. } => steps.len(),
        });
        steps.sum()
    }

    /// Starts on batches of a stream that have arrived.
    fn start_received(&mut self) {
        while self.step_memory.saturating_mul(self.steps_in_flight() + 1)
            <= self.resources.queue_bytes
        {
            let Some(ActiveSplit::Stream { batches, steps }) = self.active.front_mut() else {
                return;
            };
            if steps.len() >= self.resources.window {
                return;
            }
            let Ok(batch) = batches.try_recv() else { return };
            self.start_batch(batch);
        }
    }

    /// The first split of an input begins where the input does: nothing to guess.
    fn entry(&self, split: usize) -> SplitStart {
        let this = &self.splits[split];
        let is_first = split == 0 || !self.splits[split - 1].is_followed_by(this);
        if is_first { SplitStart::At(this.start) } else { SplitStart::Search }
    }

    fn start_task(&self, split: usize, entry: SplitStart) -> ActiveSplit {
        let (task, context) = (Arc::clone(&self.task), self.context.with_own_logs());
        let (range, limit) = (self.splits[split].clone(), self.rows_left);
        let step = self.spawn(move || read_split(&task, &range, entry, &context, limit));
        ActiveSplit::Task { split, entry, step }
    }

    /// Has a piece of the stream in front worked on. What went wrong is told when its turn has come.
    fn start_batch(&mut self, batch: std::result::Result<StreamBatch, Error>) {
        let task = Arc::clone(&self.task);
        let step = self.spawn(move || {
            let StreamBatch { batch, damage, notes } = batch.map_err(external)?;
            let mut output = ScanOutput::default();
            batch.map_or(Ok(()), |batch| task.add(batch, &mut output))?;
            Ok(ReadStep { output, damage, notes, seam: Seam::default() })
        });
        if let Some(ActiveSplit::Stream { steps, .. }) = self.active.front_mut() {
            steps.push_back(step);
        }
    }

    /// Has a thread do it as soon as one may.
    fn spawn(
        &self,
        task: impl FnOnce() -> Result<ReadStep> + Send + 'static,
    ) -> SpawnedTask<Result<ReadStep>> {
        let permits = Arc::clone(&self.resources.permits);
        SpawnedTask::spawn(async move {
            let permit = permits.acquire_owned().await;
            let task = SpawnedTask::spawn_blocking(move || {
                let _permit = permit;
                task()
            });
            joined(task.await)
        })
    }

    /// Has a split read by a thread of its own. It takes no permit, since it waits for whoever takes what it
    /// has read.
    fn start_stream(&self, split: usize) -> ActiveSplit {
        let (sender, batches) = mpsc::channel(STREAM_AHEAD);
        let (task, context) = (Arc::clone(&self.task), self.context.with_own_logs());
        let range = self.splits[split].clone();
        // Ends by itself when nobody listens any more.
        drop(tokio::task::spawn_blocking(move || {
            if let Err(error) = stream_batches(&task, &range, &context, &sender) {
                drop(sender.blocking_send(Err(error)));
            }
        }));
        ActiveSplit::Stream { batches, steps: VecDeque::new() }
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        self.stop();
    }
}

fn joined(step: std::result::Result<Result<ReadStep>, tokio::task::JoinError>) -> Result<ReadStep> {
    let panicked = |_| external(Error::internal("a task panicked; what it said is above"));
    step.map_err(panicked)?
}

fn add(all: &mut BTreeMap<String, u64>, more: impl IntoIterator<Item = (String, u64)>) {
    for (what, count) in more {
        *all.entry(what).or_default() += count;
    }
}

/// Reads a split, until it has given `limit` rows.
fn read_split(
    task: &ScanTask,
    split: &Split,
    entry: SplitStart,
    context: &ReadContext,
    limit: Option<usize>,
) -> Result<ReadStep> {
    let mut reader = task.log.source.read(split, entry, context).map_err(external)?;
    let mut output = ScanOutput::default();
    while limit.is_none_or(|limit| output.rows < limit) && !context.is_cancelled() {
        match reader.next_batch().map_err(external)? {
            Some(batch) => task.add(batch, &mut output)?,
            None => break,
        }
    }
    let seam = reader.seam();
    Ok(ReadStep { output, damage: context.damage.take(), notes: context.losses.take_notes(), seam })
}

fn stream_batches(
    task: &ScanTask,
    split: &Split,
    context: &ReadContext,
    sender: &mpsc::Sender<std::result::Result<StreamBatch, Error>>,
) -> std::result::Result<(), Error> {
    let with_findings = |batch| StreamBatch {
        batch,
        damage: context.damage.take(),
        notes: LossLog::take_notes(&context.losses),
    };
    let mut reader = task.log.source.read(split, SplitStart::At(split.start), context)?;
    while let Some(batch) = reader.next_batch()? {
        if sender.blocking_send(Ok(with_findings(Some(batch)))).is_err() || context.is_cancelled() {
            return Ok(());
        }
    }
    // Nobody listens any more when enough has been read.
    drop(sender.blocking_send(Ok(with_findings(None))));
    Ok(())
}
