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
pub(super) struct Waiters {
    /// Whoever waits for the plan to want something.
    pub(super) driver: AtomicWaker,
    /// How much waits in queues, and may.
    bytes: AtomicUsize,
    most: usize,
    /// How often rows were taken.
    taken: AtomicUsize,
}

impl Waiters {
    pub(super) fn within(most: usize) -> Arc<Self> {
        let (bytes, taken) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { driver: AtomicWaker::new(), bytes, most, taken })
    }

    /// How often rows were taken of any queue.
    pub(super) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

/// Rows that wait to be taken.
#[derive(Debug)]
pub(super) struct Queue {
    waiters: Arc<Waiters>,
    state: Mutex<State>,
    taker: AtomicWaker,
}

#[derive(Debug, Default)]
struct State {
    rows: VecDeque<(RecordBatch, usize)>,
    /// Whether somebody has asked for more than there was.
    is_wanted: bool,
    is_ended: bool,
    /// Whether nobody takes anything any more.
    is_closed: bool,
}

impl Queue {
    fn new(waiters: &Arc<Waiters>) -> Arc<Self> {
        let (state, taker) = (Mutex::default(), AtomicWaker::new());
        Arc::new(Self { waiters: Arc::clone(waiters), state, taker })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts rows behind those that wait. `Err` if too much waits.
    fn put(&self, rows: RecordBatch) -> Result<()> {
        let bytes = rows.get_array_memory_size();
        {
            let mut state = self.state();
            if state.is_closed {
                return Ok(());
            }
            let before = self.waiters.bytes.fetch_add(bytes, Ordering::Relaxed);
            if before > 0 && before.saturating_add(bytes) > self.waiters.most {
                let what = format!(
                    "more than {} bytes of rows wait for others that the query reads first",
                    self.waiters.most
                );
                return Err(DataFusionError::ResourcesExhausted(what));
            }
            state.rows.push_back((rows, bytes));
            state.is_wanted = false;
        }
        self.taker.wake();
        Ok(())
    }

    fn end(&self) {
        let mut state = self.state();
        (state.is_ended, state.is_wanted) = (true, false);
        drop(state);
        self.taker.wake();
    }

    fn is_wanted(&self) -> bool {
        self.state().is_wanted
    }
}

/// A place where a plan reads a table: some of its columns, in batches of one size whatever they come in, so that
/// what is worked out depends on rows only.
pub(super) struct Scan {
    table: usize,
    columns: Vec<usize>,
    same_size: Option<BatchCoalescer>,
    /// Rows that are not in the queue yet.
    begun: usize,
    batch_rows: usize,
    schema: SchemaRef,
    queue: Arc<Queue>,
}

impl std::fmt::Debug for Scan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Scan({}, {:?})", self.table, self.columns)
    }
}

impl Scan {
    /// The scan of these columns of a table, which have this schema; and what the plan reads instead.
    pub(super) fn new(
        table: usize,
        columns: Vec<usize>,
        schema: &SchemaRef,
        batch_rows: usize,
        waiters: &Arc<Waiters>,
    ) -> (Self, Arc<dyn PartitionStream>) {
        let queue = Queue::new(waiters);
        // Rows without columns are only counted.
        let same_size =
            (!columns.is_empty()).then(|| BatchCoalescer::new(Arc::clone(schema), batch_rows));
        let feed = Feed { schema: Arc::clone(schema), queue: Arc::clone(&queue) };
        let schema = Arc::clone(schema);
        (Self { table, columns, same_size, begun: 0, batch_rows, schema, queue }, Arc::new(feed))
    }

    /// How many rows of a table it takes until it has as many as go to the plan together.
    pub(super) fn lacks(&self, table: usize) -> Option<usize> {
        (table == self.table).then(|| self.batch_rows - self.begun)
    }

    /// Takes rows of a table, if it is this one; no more than it lacks.
    pub(super) fn give(&mut self, table: usize, rows: &RecordBatch) -> Result<()> {
        if table != self.table {
            return Ok(());
        }
        self.begun += rows.num_rows();
        if let Some(same_size) = &mut self.same_size {
            same_size.push_batch(rows.project(&self.columns)?)?;
        }
        if self.begun >= self.batch_rows { self.put() } else { Ok(()) }
    }

    /// Lets the plan have what there is.
    fn put(&mut self) -> Result<()> {
        let begun = std::mem::take(&mut self.begun);
        let Some(same_size) = &mut self.same_size else {
            let options = RecordBatchOptions::new().with_row_count(Some(begun));
            let none =
                RecordBatch::try_new_with_options(Arc::clone(&self.schema), Vec::new(), &options);
            return self.queue.put(none?);
        };
        same_size.finish_buffered_batch()?;
        while let Some(rows) = same_size.next_completed_batch() {
            self.queue.put(rows)?;
        }
        Ok(())
    }

    /// Says that there are no more rows.
    pub(super) fn end(&mut self) -> Result<()> {
        if self.begun > 0 {
            self.put()?;
        }
        self.queue.end();
        Ok(())
    }

    /// Whether the plan has asked for more than there was.
    pub(super) fn is_wanted(&self) -> bool {
        self.queue.is_wanted()
    }
}

/// What a plan reads of a queue.
#[derive(Debug)]
struct Feed {
    schema: SchemaRef,
    queue: Arc<Queue>,
}

impl PartitionStream for Feed {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        Box::pin(Taker { schema: Arc::clone(&self.schema), queue: Arc::clone(&self.queue) })
    }
}

struct Taker {
    schema: SchemaRef,
    queue: Arc<Queue>,
}

impl Stream for Taker {
    type Item = Result<RecordBatch>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.queue.taker.register(context.waker());
        let mut state = self.queue.state();
        if let Some((rows, bytes)) = state.rows.pop_front() {
            self.queue.waiters.bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.queue.waiters.taken.fetch_add(1, Ordering::Relaxed);
            return Poll::Ready(Some(Ok(rows)));
        }
        if state.is_ended {
            return Poll::Ready(None);
        }
        state.is_wanted = true;
        drop(state);
        self.queue.waiters.driver.wake();
        Poll::Pending
    }
}

impl RecordBatchStream for Taker {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}

impl Drop for Taker {
    fn drop(&mut self) {
        let mut state = self.queue.state();
        (state.is_closed, state.is_wanted) = (true, false);
        let left: usize = state.rows.drain(..).map(|(_, bytes)| bytes).sum();
        self.queue.waiters.bytes.fetch_sub(left, Ordering::Relaxed);
    }
}
