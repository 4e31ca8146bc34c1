//! Reading the splits of a source: ahead of the consumer, on threads that it provides, with results
//! in order.
//!
//! [`ReadAhead`] is the only loop over splits. Runs, queries and the contract tests use it; each
//! says what is done with a batch ([`SplitWork`]), who runs tasks ([`Executor`]), and how far to
//! read ahead ([`ReadLimits`]). It knows no thread pool and no async runtime.

mod batches;
mod read_ahead;
mod step_sizes;

use std::sync::Arc;

pub use read_ahead::{NextStep, ReadAhead, ReadStep};
pub use step_sizes::StepSizes;

use sluice_model::{Batch, BlockPool, Error, Source};

/// What is done with the batches of a source. Shared by all tasks.
pub trait SplitWork: Send + Sync {
    /// The result for some batches, in their order.
    type Output: Default + Send;

    /// The source that is read.
    fn source(&self) -> &dyn Source;

    /// Adds a batch to a result. Called on the thread of a task.
    fn add(&self, batch: Batch, output: &mut Self::Output) -> Result<(), Error>;

    /// The bytes of memory that a result takes, for the budget.
    fn memory(&self, output: &Self::Output) -> usize {
        let _ = output;
        0
    }

    /// Whether the consumer needs no more than this result, so that the rest of its split is not
    /// read.
    fn is_enough(&self, output: &Self::Output) -> bool {
        let _ = output;
        false
    }
}

/// A task of a [`ReadAhead`].
pub type ReadTask<'a> = Box<dyn FnOnce() + Send + 'a>;

/// Wakes the consumer of a [`ReadAhead`].
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// Runs the tasks of a [`ReadAhead`].
pub trait Executor<'a>: Send {
    /// Runs a task soon, or at once. Tasks take a while and never wait for each other.
    fn spawn(&self, task: ReadTask<'a>);

    /// Runs a task that may wait for its input and for the consumer, on a thread of its own.
    fn spawn_reader(&self, task: ReadTask<'a>) -> Result<(), Error>;

    /// Called after each result that a task or reader has sent, so that a consumer that does not
    /// block can call [`ReadAhead::next`] again.
    fn waker(&self) -> Wake {
        Arc::new(|| ())
    }
}

/// Runs every task at once, on the thread of the consumer. For [`ReadLimits::in_turn`].
#[derive(Clone, Copy, Debug, Default)]
pub struct InlineExecutor;

impl<'a> Executor<'a> for InlineExecutor {
    fn spawn(&self, task: ReadTask<'a>) {
        task();
    }

    fn spawn_reader(&self, _: ReadTask<'a>) -> Result<(), Error> {
        Err(Error::internal("a reader would wait for its own thread"))
    }
}

/// How far to read ahead.
#[derive(Clone, Copy, Debug)]
pub struct ReadLimits {
    /// The size of splits of files. It decides how events are batched, so it depends on the memory
    /// alone.
    pub split_bytes: usize,
    /// The most splits in progress.
    pub window: usize,
    /// The largest split that a task reads; `None` for any. Others get a reader on its own thread.
    pub max_task_bytes: Option<u64>,
    /// The bytes of blocks in use above which only one split is in progress.
    pub max_lent_bytes: usize,
}

/// The largest split that a task reads, in multiples of the usual size.
const MAX_TASK_SPLITS: usize = 4;

/// The blocks of a split in progress.
const BLOCKS_PER_SPLIT: usize = 3;

/// How much longer than a split a block is: its last event ends in the next one.
const BLOCK_MARGIN: usize = 64 << 10;

impl ReadLimits {
    /// The limits for this memory, of which `for_reading` is for reading, and this many threads.
    pub fn new(memory: usize, for_reading: usize, jobs: usize) -> Self {
        let split_bytes = (memory / 256).clamp(64 << 10, 2 << 20);
        let window = (for_reading / (split_bytes * MAX_TASK_SPLITS)).clamp(1, 2 * jobs + 1);
        Self {
            split_bytes,
            window,
            max_task_bytes: Some((split_bytes * MAX_TASK_SPLITS) as u64),
            max_lent_bytes: window * BLOCKS_PER_SPLIT * (split_bytes + BLOCK_MARGIN),
        }
    }

    /// One split after another, each read by one task, whatever its size.
    pub fn in_turn() -> Self {
        Self {
            split_bytes: usize::MAX,
            window: 1,
            max_task_bytes: None,
            max_lent_bytes: usize::MAX,
        }
    }

    /// The most memory of splits in progress.
    pub fn memory(&self) -> usize {
        self.window.saturating_mul(self.split_bytes * MAX_TASK_SPLITS)
    }

    /// The blocks to read into, with `more` beyond those of splits in progress.
    pub fn blocks(&self, more: usize) -> BlockPool {
        BlockPool::new(self.split_bytes + BLOCK_MARGIN, self.window * BLOCKS_PER_SPLIT + more)
    }
}
