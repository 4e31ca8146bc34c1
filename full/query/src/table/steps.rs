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

use super::reading::Reading;
use super::work::{Made, Work, external};

/// Batches that a reading thread may be ahead.
const AHEAD: usize = 4;

/// Splits up to so many times the usual size are read by a task.
const TASK_PIECES: u64 = 4;

/// A log being read for one scan.
pub(super) struct Steps {
    work: Arc<Work>,
    reading: Arc<Reading>,
    context: ReadContext,
    splits: Vec<Split>,
    /// The next split to start on.
    next: usize,
    started: VecDeque<Started>,
    /// The split handed over last, and where reading it ended.
    last: Option<(usize, Option<u64>)>,
    /// What is there and was not asked for yet.
    ready: VecDeque<RecordBatch>,
    /// How many rows are still wanted, if not all.
    left: Option<usize>,
    /// How many steps were taken.
    taken: u32,
    /// About how much memory a step takes, as the last ones did.
    likely: usize,
    left_out: BTreeMap<String, u64>,
    notes: BTreeMap<String, u64>,
}

/// What came of a split, or of a batch of a split that is read in one go.
#[derive(Default)]
struct Step {
    made: Made,
    damage: Vec<Damage>,
    said: Vec<(String, u64)>,
    seam: Seam,
}

enum Started {
    Task {
        split: usize,
        entry: SplitStart,
        step: SpawnedTask<Result<Step>>,
    },
    Stream {
        pieces: mpsc::Receiver<std::result::Result<Piece, Error>>,
        steps: VecDeque<SpawnedTask<Result<Step>>>,
    },
}

/// What a reading thread hands over.
struct Piece {
    batch: Option<Batch>,
    damage: Vec<Damage>,
    said: Vec<(String, u64)>,
}

impl Steps {
    /// For these splits, made for the work's query. At most `limit` rows come of it.
    pub(super) fn new(
        work: Arc<Work>,
        reading: Arc<Reading>,
        splits: Vec<Split>,
        limit: Option<usize>,
    ) -> Self {
        let context = work.log.context(work.wanted.query(), reading.blocks.clone());
        let context = ReadContext { abandoned: Arc::<AtomicBool>::default(), ..context };
        Self {
            work,
            reading,
            context,
            splits,
            next: 0,
            started: VecDeque::new(),
            last: None,
            ready: VecDeque::new(),
            left: limit,
            taken: 0,
            likely: 0,
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
            if self.left == Some(0) {
                self.stop();
                return Ok(None);
            }
            match self.next_step().await {
                Ok(Some(step)) => self.take(step),
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
        self.started.clear();
        self.next = self.splits.len();
    }

    fn take(&mut self, step: Step) {
        self.taken = self.taken.saturating_add(1);
        self.likely = step.made.memory.max(self.likely / 4 * 3);
        self.work.log.findings.add_damage(step.damage);
        self.work.log.meet(&step.made.met);
        self.count(step.made.left_out, step.made.notes.into_iter().chain(step.said));
        for rows in step.made.batches {
            let rows = match &mut self.left {
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
            self.work.log.findings.add_counts(&self.left_out, &self.notes);
        }
    }

    async fn next_step(&mut self) -> Result<Option<Step>> {
        loop {
            self.start_ahead();
            let Some(front) = self.started.front_mut() else { return Ok(None) };
            match front {
                Started::Task { split, entry, step } => {
                    let (split, entry) = (*split, *entry);
                    let step = joined(step.await)?;
                    self.started.pop_front();
                    if let Some(step) = self.seamless(split, entry, step) {
                        return Ok(Some(step));
                    }
                }
                Started::Stream { pieces, steps } => {
                    if let Some(step) = steps.front_mut() {
                        let step = joined(step.await)?;
                        steps.pop_front();
                        return Ok(Some(step));
                    }
                    match pieces.recv().await {
                        Some(piece) => self.start_piece(piece),
                        None => drop(self.started.pop_front()),
                    }
                }
            }
        }
    }

    /// The step of `split`, if it began where the split before it ended. Otherwise it is read again.
    fn seamless(&mut self, split: usize, entry: SplitStart, step: Step) -> Option<Step> {
        let follows = |last: usize| self.splits[last].is_followed_by(&self.splits[split]);
        let due = self.last.filter(|(last, _)| follows(*last)).and_then(|(_, ended)| ended);
        if let Some(due) =
            due.filter(|due| entry == SplitStart::Search && step.seam.began != Some(*due))
        {
            let again = self.start_task(split, SplitStart::At(due));
            self.started.push_front(again);
            return None;
        }
        self.last = Some((split, step.seam.ended));
        Some(step)
    }

    /// Starts on splits, and on batches that have arrived, as far as memory allows.
    fn start_ahead(&mut self) {
        self.start_arrived();
        while self.next < self.splits.len() && self.may_start() {
            let split = self.next;
            self.next += 1;
            let most = self.reading.piece.saturating_mul(TASK_PIECES);
            let is_small = self.splits[split].bytes.is_some_and(|bytes| bytes <= most);
            let started = if is_small {
                self.start_task(split, self.entry(split))
            } else {
                self.start_stream(split)
            };
            self.started.push_back(started);
        }
    }

    fn may_start(&self) -> bool {
        // However little memory there is, one step at a time always goes through.
        let under_way = self.under_way();
        self.started.is_empty()
            || self.started.len() < self.window()
                && self.likely.saturating_mul(under_way + 1) <= self.reading.room
    }

    /// How many splits may be under way. Of a few rows, few are likely to be needed.
    fn window(&self) -> usize {
        match self.left {
            None => self.reading.window,
            Some(_) => self.reading.window.min(1 << self.taken.min(16)),
        }
    }

    /// Steps that tasks are at, or have made.
    fn under_way(&self) -> usize {
        let steps = self.started.iter().map(|started| match started {
            Started::Task { .. } => 1,
            Started::Stream { steps, .. } => steps.len(),
        });
        steps.sum()
    }

    /// Starts on batches of a stream that have arrived.
    fn start_arrived(&mut self) {
        while self.likely.saturating_mul(self.under_way() + 1) <= self.reading.room {
            let Some(Started::Stream { pieces, steps }) = self.started.front_mut() else { return };
            if steps.len() >= self.reading.window {
                return;
            }
            let Ok(piece) = pieces.try_recv() else { return };
            self.start_piece(piece);
        }
    }

    /// The first split of an input begins where the input does: nothing to guess.
    fn entry(&self, split: usize) -> SplitStart {
        let piece = &self.splits[split];
        let is_first = split == 0 || !self.splits[split - 1].is_followed_by(piece);
        if is_first { SplitStart::At(piece.start) } else { SplitStart::Search }
    }

    fn start_task(&self, split: usize, entry: SplitStart) -> Started {
        let (work, context) = (Arc::clone(&self.work), self.context.with_own_logs());
        let (piece, limit) = (self.splits[split].clone(), self.left);
        let step = self.spawn(move || read_split(&work, &piece, entry, &context, limit));
        Started::Task { split, entry, step }
    }

    /// Has a piece of the stream in front worked on. What went wrong is told when its turn has come.
    fn start_piece(&mut self, piece: std::result::Result<Piece, Error>) {
        let work = Arc::clone(&self.work);
        let step = self.spawn(move || {
            let Piece { batch, damage, said } = piece.map_err(external)?;
            let mut made = Made::default();
            batch.map_or(Ok(()), |batch| work.add(batch, &mut made))?;
            Ok(Step { made, damage, said, seam: Seam::default() })
        });
        if let Some(Started::Stream { steps, .. }) = self.started.front_mut() {
            steps.push_back(step);
        }
    }

    /// Has a thread do it as soon as one may.
    fn spawn(
        &self,
        task: impl FnOnce() -> Result<Step> + Send + 'static,
    ) -> SpawnedTask<Result<Step>> {
        let permits = Arc::clone(&self.reading.permits);
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
    fn start_stream(&self, split: usize) -> Started {
        let (sender, pieces) = mpsc::channel(AHEAD);
        let (work, context) = (Arc::clone(&self.work), self.context.with_own_logs());
        let piece = self.splits[split].clone();
        // Ends by itself when nobody listens any more.
        drop(tokio::task::spawn_blocking(move || {
            if let Err(error) = hand_over(&work, &piece, &context, &sender) {
                drop(sender.blocking_send(Err(error)));
            }
        }));
        Started::Stream { pieces, steps: VecDeque::new() }
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        self.stop();
    }
}

fn joined(step: std::result::Result<Result<Step>, tokio::task::JoinError>) -> Result<Step> {
    let panicked = |_| external(Error::broken("a task panicked; what it said is above"));
    step.map_err(panicked)?
}

fn add(all: &mut BTreeMap<String, u64>, more: impl IntoIterator<Item = (String, u64)>) {
    for (what, count) in more {
        *all.entry(what).or_default() += count;
    }
}

/// Reads a split, until it has given `limit` rows.
fn read_split(
    work: &Work,
    split: &Split,
    entry: SplitStart,
    context: &ReadContext,
    limit: Option<usize>,
) -> Result<Step> {
    let mut reader = work.log.source.read(split, entry, context).map_err(external)?;
    let mut made = Made::default();
    while limit.is_none_or(|limit| made.rows < limit) && !context.is_cancelled() {
        match reader.next_batch().map_err(external)? {
            Some(batch) => work.add(batch, &mut made)?,
            None => break,
        }
    }
    let seam = reader.seam();
    Ok(Step { made, damage: context.damage.take(), said: context.losses.take_notes(), seam })
}

fn hand_over(
    work: &Work,
    split: &Split,
    context: &ReadContext,
    sender: &mpsc::Sender<std::result::Result<Piece, Error>>,
) -> std::result::Result<(), Error> {
    let said = |batch| Piece {
        batch,
        damage: context.damage.take(),
        said: LossLog::take_notes(&context.losses),
    };
    let mut reader = work.log.source.read(split, SplitStart::At(split.start), context)?;
    while let Some(batch) = reader.next_batch()? {
        if sender.blocking_send(Ok(said(Some(batch)))).is_err() || context.is_cancelled() {
            return Ok(());
        }
    }
    // Nobody listens any more when enough has been read.
    drop(sender.blocking_send(Ok(said(None))));
    Ok(())
}
