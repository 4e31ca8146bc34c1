//! Bounded queues that feed rows to the table scans of a plan. One budget bounds all queues of a
//! plan.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use arrow_array::{RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;
use arrow_select::coalesce::BatchCoalescer;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::streaming::PartitionStream;
use futures::Stream;
use futures::task::AtomicWaker;

/// Shared by all queues of a plan.
#[derive(Debug)]
pub(super) struct QueueBudget {
    /// Woken when the plan needs rows.
    pub(super) driver: AtomicWaker,
    /// The bytes in all queues, and their limit.
    bytes: AtomicUsize,
    max_bytes: usize,
    /// How many batches were taken from all queues.
    batches_taken: AtomicUsize,
}

impl QueueBudget {
    pub(super) fn new(max_bytes: usize) -> Arc<Self> {
        let (bytes, batches_taken) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { driver: AtomicWaker::new(), bytes, max_bytes, batches_taken })
    }

    /// How many batches were taken from all queues.
    pub(super) fn batches_taken(&self) -> usize {
        self.batches_taken.load(Ordering::Relaxed)
    }
}

/// Rows that wait for a table scan.
#[derive(Debug)]
pub(super) struct RowQueue {
    budget: Arc<QueueBudget>,
    state: Mutex<QueueState>,
    consumer: AtomicWaker,
}

#[derive(Debug, Default)]
struct QueueState {
    rows: VecDeque<(RecordBatch, usize)>,
    /// Whether the scan has asked for more rows than there were.
    needs_rows: bool,
    is_ended: bool,
    /// Whether the scan was dropped.
    is_closed: bool,
}

impl RowQueue {
    fn new(budget: &Arc<QueueBudget>) -> Arc<Self> {
        let (state, consumer) = (Mutex::default(), AtomicWaker::new());
        Arc::new(Self { budget: Arc::clone(budget), state, consumer })
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends rows. `Err` if the budget is exceeded.
    fn push(&self, rows: RecordBatch) -> Result<()> {
        let bytes = rows.get_array_memory_size();
        {
            let mut state = self.state();
            if state.is_closed {
                return Ok(());
            }
            let before = self.budget.bytes.fetch_add(bytes, Ordering::Relaxed);
            if before > 0 && before.saturating_add(bytes) > self.budget.max_bytes {
                let what = format!(
                    "more than {} bytes of rows wait for rows that the query reads first",
                    self.budget.max_bytes
                );
                return Err(DataFusionError::ResourcesExhausted(what));
            }
            state.rows.push_back((rows, bytes));
            state.needs_rows = false;
        }
        self.consumer.wake();
        Ok(())
    }

    fn end(&self) {
        let mut state = self.state();
        (state.is_ended, state.needs_rows) = (true, false);
        drop(state);
        self.consumer.wake();
    }

    fn needs_rows(&self) -> bool {
        self.state().needs_rows
    }
}

/// Feeds one table scan: selects its columns, and regroups rows into batches of a fixed size, so
/// that results do not depend on how input is split.
pub(super) struct ScanFeed {
    table: usize,
    columns: Vec<usize>,
    coalescer: Option<BatchCoalescer>,
    /// Rows in the coalescer.
    buffered_rows: usize,
    batch_rows: usize,
    schema: SchemaRef,
    queue: Arc<RowQueue>,
}

impl std::fmt::Debug for ScanFeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ScanFeed({}, {:?})", self.table, self.columns)
    }
}

impl ScanFeed {
    /// A feed for these columns of a table, and the stream that replaces the scan.
    pub(super) fn new(
        table: usize,
        columns: Vec<usize>,
        schema: &SchemaRef,
        batch_rows: usize,
        budget: &Arc<QueueBudget>,
    ) -> (Self, Arc<dyn PartitionStream>) {
        let queue = RowQueue::new(budget);
        // Rows without columns are only counted.
        let coalescer =
            (!columns.is_empty()).then(|| BatchCoalescer::new(Arc::clone(schema), batch_rows));
        let feed = QueuePartition { schema: Arc::clone(schema), queue: Arc::clone(&queue) };
        let schema = Arc::clone(schema);
        (
            Self { table, columns, coalescer, buffered_rows: 0, batch_rows, schema, queue },
            Arc::new(feed),
        )
    }

    /// How many rows of a table complete the current batch.
    pub(super) fn rows_needed(&self, table: usize) -> Option<usize> {
        (table == self.table).then(|| self.batch_rows - self.buffered_rows)
    }

    /// Adds rows if they belong to its table, at most as many as `rows_needed`.
    pub(super) fn push(&mut self, table: usize, rows: &RecordBatch) -> Result<()> {
        if table != self.table {
            return Ok(());
        }
        self.buffered_rows += rows.num_rows();
        if let Some(coalescer) = &mut self.coalescer {
            coalescer.push_batch(rows.project(&self.columns)?)?;
        }
        if self.buffered_rows >= self.batch_rows { self.flush() } else { Ok(()) }
    }

    /// Moves the buffered rows to the queue.
    fn flush(&mut self) -> Result<()> {
        let buffered_rows = std::mem::take(&mut self.buffered_rows);
        let Some(coalescer) = &mut self.coalescer else {
            let options = RecordBatchOptions::new().with_row_count(Some(buffered_rows));
            let none =
                RecordBatch::try_new_with_options(Arc::clone(&self.schema), Vec::new(), &options);
            return self.queue.push(none?);
        };
        coalescer.finish_buffered_batch()?;
        while let Some(rows) = coalescer.next_completed_batch() {
            self.queue.push(rows)?;
        }
        Ok(())
    }

    /// Ends the input.
    pub(super) fn end(&mut self) -> Result<()> {
        if self.buffered_rows > 0 {
            self.flush()?;
        }
        self.queue.end();
        Ok(())
    }

    /// Whether the scan waits for rows.
    pub(super) fn needs_rows(&self) -> bool {
        self.queue.needs_rows()
    }
}

/// The queue as a partition of a table.
#[derive(Debug)]
struct QueuePartition {
    schema: SchemaRef,
    queue: Arc<RowQueue>,
}

impl PartitionStream for QueuePartition {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        Box::pin(QueueStream { schema: Arc::clone(&self.schema), queue: Arc::clone(&self.queue) })
    }
}

struct QueueStream {
    schema: SchemaRef,
    queue: Arc<RowQueue>,
}

impl Stream for QueueStream {
    type Item = Result<RecordBatch>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.queue.consumer.register(context.waker());
        let mut state = self.queue.state();
        if let Some((rows, bytes)) = state.rows.pop_front() {
            self.queue.budget.bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.queue.budget.batches_taken.fetch_add(1, Ordering::Relaxed);
            return Poll::Ready(Some(Ok(rows)));
        }
        if state.is_ended {
            return Poll::Ready(None);
        }
        state.needs_rows = true;
        drop(state);
        self.queue.budget.driver.wake();
        Poll::Pending
    }
}

impl RecordBatchStream for QueueStream {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

impl Drop for QueueStream {
    fn drop(&mut self) {
        let mut state = self.queue.state();
        (state.is_closed, state.needs_rows) = (true, false);
        let left: usize = state.rows.drain(..).map(|(_, bytes)| bytes).sum();
        self.queue.budget.bytes.fetch_sub(left, Ordering::Relaxed);
    }
}
