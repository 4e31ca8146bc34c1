//! How logs are read for queries: in pieces of which size, how many at a time. Reads nothing.

use std::sync::Arc;

use sluice_core::BlockPool;
use tokio::sync::Semaphore;

/// What all readings of a session share.
#[derive(Debug)]
pub(crate) struct ReadResources {
    /// The size of the pieces that files are read in.
    pub(crate) split_bytes: u64,
    /// How many pieces are read ahead, or wait to be taken.
    pub(crate) window: usize,
    /// How many bytes may wait to be taken.
    pub(crate) queue_bytes: usize,
    /// One for each thread that may read.
    pub(crate) permits: Arc<Semaphore>,
    /// Buffers to read into.
    pub(crate) blocks: BlockPool,
}

impl ReadResources {
    /// For so many threads and, with operators, so much memory.
    pub(crate) fn new(jobs: usize, memory: usize) -> Self {
        let split_bytes = (memory / 256).clamp(64 << 10, 2 << 20);
        let window = (memory / 2 / (split_bytes * 4)).clamp(1, 2 * jobs + 1);
        Self {
            split_bytes: split_bytes as u64,
            window,
            queue_bytes: memory / 4,
            permits: Arc::new(Semaphore::new(jobs)),
            blocks: BlockPool::new(split_bytes + (64 << 10), window * 3),
        }
    }

    /// The memory that reading one log usually takes at most.
    pub(crate) fn max_memory(&self) -> usize {
        self.queue_bytes.min(self.window * self.split_bytes as usize * 4)
    }
}

impl Default for ReadResources {
    /// For tables that are used without a session of ours.
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self::new(cores, 512 << 20)
    }
}
