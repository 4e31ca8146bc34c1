//! Reads the splits of a log ahead, on blocking tasks, and returns their rows in order, without
//! blocking.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use arrow_array::RecordBatch;
use datafusion::error::Result;
use sluice_kit::reading::{ReadAhead, ReadStep, ReadTask};
use sluice_model::{Batch, Split};
use tokio::sync::{Notify, Semaphore};

use super::collector::TableCollector;
use super::resources::ReadResources;
use super::scan_task::{ScanOutput, ScanTask, external};

/// The rows of one scan.
pub(super) struct ScanRows {
    task: Arc<ScanTask>,
    resources: Arc<ReadResources>,
    /// `None` once enough was read.
    reading: Option<ReadAhead<'static, ScanOutput>>,
    /// Notified of each result.
    news: Arc<Notify>,
    /// Rows to return.
    ready: VecDeque<RecordBatch>,
    /// How many rows are left before the limit.
    rows_left: Option<usize>,
    /// How many steps are finished.
    steps_done: u32,
    left_out: BTreeMap<String, u64>,
    notes: BTreeMap<String, u64>,
    /// Stores the rows in the cache.
    collector: Option<TableCollector>,
}

/// Runs a task on a blocking thread, once there is a permit. Readers take none: they wait for the
/// consumer.
fn run_task(permits: &Arc<Semaphore>, task: ReadTask<'static>) {
    match task {
        ReadTask::Step(step) => {
            let permit = Arc::clone(permits).acquire_owned();
            drop(tokio::spawn(async move {
                let permit = permit.await;
                drop(tokio::task::spawn_blocking(move || {
                    let _permit = permit;
                    step();
                }));
            }));
        }
        ReadTask::Reader(reader) => drop(tokio::task::spawn_blocking(reader)),
    }
}

impl ScanRows {
    /// Reads these splits, which must be made for the task's pushdown. Returns at most `limit`
    /// rows. Stores them under `cache_key` if they are the whole table.
    pub(super) fn new(
        task: Arc<ScanTask>,
        resources: Arc<ReadResources>,
        splits: Vec<Split>,
        limit: Option<usize>,
        cache_key: Option<&str>,
    ) -> Self {
        let context = task.log.context(task.pushdown.query(), resources.blocks.clone());
        let collector = cache_key
            .filter(|_| limit.is_none())
            .and_then(|key| TableCollector::new(&task, key, resources.max_cached_bytes));
        let (scan, stores) = (Arc::clone(&task), collector.is_some());
        let enough = limit.unwrap_or(usize::MAX);
        let add = move |batch: Batch, step: &mut ReadStep<ScanOutput>| {
            // DataFusion's errors are returned in order with the rows.
            let failed = scan.add(batch, stores, &mut step.output).err();
            step.memory = step.output.memory;
            step.is_enough = step.output.rows >= enough || failed.is_some();
            step.output.failed = failed;
            Ok(())
        };
        let permits = Arc::clone(&resources.permits);
        let executor = move |task| {
            run_task(&permits, task);
            Ok(())
        };
        let (source, limits) = (Arc::clone(&task.log.source), resources.limits);
        let news = Arc::<Notify>::default();
        let notified = Arc::clone(&news);
        let reading = ReadAhead::new(source, splits, context, add, executor, limits)
            .waking(Arc::new(move || notified.notify_one()));
        Self {
            task,
            resources,
            reading: Some(reading),
            news,
            ready: VecDeque::new(),
            rows_left: limit,
            steps_done: 0,
            left_out: BTreeMap::new(),
            notes: BTreeMap::new(),
            collector,
        }
    }

    /// The next rows in order; `None` at the end. Cancel safe.
    pub(super) async fn next_rows(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(rows) = self.ready.pop_front() {
                return Ok(Some(rows));
            }
            if self.rows_left == Some(0) {
                self.reading = None;
            }
            let window = self.window();
            let Some(reading) = &mut self.reading else { return Ok(None) };
            reading.set_window(window);
            match reading.poll(Duration::ZERO, self.resources.queue_bytes) {
                Ok(Poll::Ready(Some(step))) => self.finish_step(step)?,
                Ok(Poll::Pending) => self.news.notified().await,
                Ok(Poll::Ready(None)) => {
                    self.reading = None;
                    if let Some(collector) = self.collector.take() {
                        collector.finish(&self.left_out, &self.notes);
                    }
                }
                Err(error) => {
                    self.reading = None;
                    return Err(external(error));
                }
            }
        }
    }

    fn finish_step(&mut self, step: ReadStep<ScanOutput>) -> Result<()> {
        if let Some(error) = step.output.failed {
            self.reading = None;
            return Err(error);
        }
        self.steps_done = self.steps_done.saturating_add(1);
        if let Some(collector) = &mut self.collector
            && collector.add(&step.output.stored, &step.output.channels, &step.damage).is_none()
        {
            self.collector = None;
        }
        self.task.log.findings.add_damage(step.damage);
        self.task.log.add_channels(&step.output.channels);
        self.count(step.output.left_out, step.output.notes.into_iter().chain(step.notes));
        for rows in step.output.batches {
            let rows = match &mut self.rows_left {
                None => rows,
                Some(0) => break,
                Some(left) => {
                    let rows = rows.slice(0, rows.num_rows().min(*left));
                    *left -= rows.num_rows();
                    rows
                }
            };
            self.ready.push_back(rows);
        }
        Ok(())
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

    /// The most splits in progress. With a limit, start with few: more are rarely needed.
    fn window(&self) -> usize {
        let window = self.resources.limits.window;
        self.rows_left.map_or(window, |_| window.min(1 << self.steps_done.min(16)))
    }
}

fn add(all: &mut BTreeMap<String, u64>, more: impl IntoIterator<Item = (String, u64)>) {
    for (what, count) in more {
        *all.entry(what).or_default() += count;
    }
}
