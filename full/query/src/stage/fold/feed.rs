//! Queues between those who bring rows and the plan that takes them: one for each place where the plan reads a
//! table. Bounded by what all of them may hold together.

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

/// What all queues of a plan share.
#[derive(Debug)]
pub(super) struct QueueBudget {
    /// Whoever waits for the plan to want something.
    pub(super) driver: AtomicWaker,
    /// How much waits in queues, and may.
    bytes: AtomicUsize,
    max_bytes: usize,
    /// How often rows were taken.
    batches_taken: AtomicUsize,
}

impl QueueBudget {
    pub(super) fn new(max_bytes: usize) -> Arc<Self> {
        let (bytes, batches_taken) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { driver: AtomicWaker::new(), bytes, max_bytes, batches_taken })
    }

    /// How often rows were taken of any queue.
    pub(super) fn batches_taken(&self) -> usize {
        self.batches_taken.load(Ordering::Relaxed)
    }
}

/// Rows that wait to be taken.
#[derive(Debug)]
pub(super) struct RowQueue {
    budget: Arc<QueueBudget>,
    state: Mutex<QueueState>,
    consumer: AtomicWaker,
}

#[derive(Debug, Default)]
struct QueueState {
    rows: VecDeque<(RecordBatch, usize)>,
    /// Whether somebody has asked for more than there was.
    needs_rows: bool,
    is_ended: bool,
    /// Whether nobody takes anything any more.
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

    /// Puts rows behind those that wait. `Err` if too much waits.
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
                    "more than {} bytes of rows wait for others that the query reads first",
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

/// A place where a plan reads a table: some of its columns, in batches of one size whatever they come in, so that
/// what is worked out depends on rows only.
pub(super) struct ScanFeed {
    table: usize,
    columns: Vec<usize>,
    coalescer: Option<BatchCoalescer>,
    /// Rows that are not in the queue yet.
    buffered_rows: usize,
    batch_rows: usize,
    schema: SchemaRef,
    queue: Arc<RowQueue>,
}

impl std::fmt::Debug for ScanFeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Scan({}, {:?})", self.table, self.columns)
    }
}

impl ScanFeed {
    /// The scan of these columns of a table, which have this schema; and what the plan reads instead.
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

    /// How many rows of a table it takes until it has as many as go to the plan together.
    pub(super) fn rows_needed(&self, table: usize) -> Option<usize> {
        (table == self.table).then(|| self.batch_rows - self.buffered_rows)
    }

    /// Takes rows of a table, if it is this one; no more than it lacks.
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

    /// Lets the plan have what there is.
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

    /// Says that there are no more rows.
    pub(super) fn end(&mut self) -> Result<()> {
        if self.buffered_rows > 0 {
            self.flush()?;
        }
        self.queue.end();
        Ok(())
    }

    /// Whether the plan has asked for more than there was.
    pub(super) fn needs_rows(&self) -> bool {
        self.queue.needs_rows()
    }
}

/// What a plan reads of a queue.
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
