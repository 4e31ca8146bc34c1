//! Reads the splits of a log ahead, on blocking tasks, and returns their rows in order.
//!
//! The async counterpart of the engine's read loop. Each split of a known, small size is one task,
//! which reads, decodes and filters it. Other splits (pipes, compressed files) are read by a
//! dedicated thread, which sends batches through a bounded channel; each batch is then a task. If a
//! task has guessed a wrong start position, its split is read again from where the split before
//! ended.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use arrow_array::RecordBatch;
use datafusion::common::runtime::SpawnedTask;
use datafusion::error::Result;
use sluice_model::{Batch, Damage, Error, LossLog, ReadContext, Seam, Split, SplitStart};
use tokio::sync::mpsc;

use super::resources::ReadResources;
use super::scan_task::{ScanOutput, ScanTask, external};

/// How many batches a reading thread may be ahead.
const STREAM_AHEAD: usize = 4;

/// Splits up to this multiple of the usual size are read by a task.
const MAX_TASK_SPLITS: u64 = 4;

/// The read-ahead of one scan.
pub(super) struct ReadAhead {
    task: Arc<ScanTask>,
    resources: Arc<ReadResources>,
    context: ReadContext,
    splits: Vec<Split>,
    /// The next split to start.
    next: usize,
    active: VecDeque<ActiveSplit>,
    /// The last finished split, and where reading it ended.
    last: Option<(usize, Option<u64>)>,
    /// Rows to return.
    ready: VecDeque<RecordBatch>,
    /// How many rows are left before the limit.
    rows_left: Option<usize>,
    /// How many steps are finished.
    steps_done: u32,
    /// The estimated memory of a step, from the last ones.
    step_memory: usize,
    left_out: BTreeMap<String, u64>,
    notes: BTreeMap<String, u64>,
}

/// The output of a split, or of one batch of a stream.
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

/// A batch from a reading thread.
struct StreamBatch {
    batch: Option<Batch>,
    damage: Vec<Damage>,
    notes: Vec<(String, u64)>,
}

impl ReadAhead {
    /// Reads these splits, which must be made for the task's pushdown. Returns at most `limit`
    /// rows.
    pub(super) fn new(
        task: Arc<ScanTask>,
        resources: Arc<ReadResources>,
        splits: Vec<Split>,
        limit: Option<usize>,
    ) -> Self {
        let context = task.log.context(task.pushdown.query(), resources.blocks.clone());
        let context = ReadContext { run: context.run.detached(), ..context };
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

    /// The next rows in order; `None` at the end. Cancel safe.
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

    /// Stops reading.
    fn stop(&mut self) {
        self.context.run.abandon();
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

    /// Publishes counts at once: a dropped stream has no other chance.
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

    /// The step of `split` if it started where the split before ended; otherwise restarts it there.
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

    /// Starts splits and received batches, as far as memory allows.
    fn start_ahead(&mut self) {
        self.start_received();
        while self.next < self.splits.len() && self.may_start() {
            let split = self.next;
            self.next += 1;
            let max_bytes = self.resources.split_bytes.saturating_mul(MAX_TASK_SPLITS);
            let is_small = self.splits[split].bytes.is_some_and(|bytes| bytes <= max_bytes);
            let active = if is_small {
                self.start_task(split, self.entry(split))
            } else {
                self.start_stream(split)
            };
            self.active.push_back(active);
        }
    }

    fn may_start(&self) -> bool {
        // Always allow one step, however little memory there is.
        let steps_in_flight = self.steps_in_flight();
        self.active.is_empty()
            || self.active.len() < self.window()
                && self.step_memory.saturating_mul(steps_in_flight + 1)
                    <= self.resources.queue_bytes
    }

    /// The most active splits. With a limit, start with few: more are rarely needed.
    fn window(&self) -> usize {
        match self.rows_left {
            None => self.resources.window,
            Some(_) => self.resources.window.min(1 << self.steps_done.min(16)),
        }
    }

    /// Steps that are running or wait to be returned.
    fn steps_in_flight(&self) -> usize {
        let steps = self.active.iter().map(|active| match active {
            ActiveSplit::Task { .. } => 1,
            ActiveSplit::Stream { steps, .. } => steps.len(),
        });
        steps.sum()
    }

    /// Starts steps for batches that a stream has sent.
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

    /// The first split of an input starts at a known position; others search.
    fn entry(&self, split: usize) -> SplitStart {
        let this = &self.splits[split];
        let is_first = split == 0 || !self.splits[split - 1].is_followed_by(this);
        if is_first { SplitStart::At(this.start) } else { SplitStart::Search }
    }

    fn start_task(&self, split: usize, entry: SplitStart) -> ActiveSplit {
        let (task, context) = (Arc::clone(&self.task), self.context.with_own_logs());
        let (to_read, limit) = (self.splits[split].clone(), self.rows_left);
        let step = self.spawn(move || read_split(&task, &to_read, entry, &context, limit));
        ActiveSplit::Task { split, entry, step }
    }

    /// Starts a step for a batch of the first stream. Errors are returned in order.
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

    /// Runs a step on a blocking thread, once there is a permit.
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

    /// Reads a split on a dedicated thread. It takes no permit, as it may wait for the consumer.
    fn start_stream(&self, split: usize) -> ActiveSplit {
        let (sender, batches) = mpsc::channel(STREAM_AHEAD);
        let (task, context) = (Arc::clone(&self.task), self.context.with_own_logs());
        let to_read = self.splits[split].clone();
        // Exits when the receiver is dropped.
        drop(tokio::task::spawn_blocking(move || {
            if let Err(error) = stream_batches(&task, &to_read, &context, &sender) {
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
    let panicked = |_| external(Error::internal("a task panicked; see the message above"));
    step.map_err(panicked)?
}

fn add(all: &mut BTreeMap<String, u64>, more: impl IntoIterator<Item = (String, u64)>) {
    for (what, count) in more {
        *all.entry(what).or_default() += count;
    }
}

/// Reads a split, up to `limit` rows.
fn read_split(
    task: &ScanTask,
    split: &Split,
    entry: SplitStart,
    context: &ReadContext,
    limit: Option<usize>,
) -> Result<ReadStep> {
    let mut reader = task.log.source.read(split, entry, context).map_err(external)?;
    let mut output = ScanOutput::default();
    while limit.is_none_or(|limit| output.rows < limit) && !context.run.is_cancelled() {
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
        if sender.blocking_send(Ok(with_findings(Some(batch)))).is_err()
            || context.run.is_cancelled()
        {
            return Ok(());
        }
    }
    // The receiver is dropped if enough was read.
    drop(sender.blocking_send(Ok(with_findings(None))));
    Ok(())
}
