//! What limits reading: split size, read-ahead, memory and threads.

use std::sync::Arc;

use sluice_model::BlockPool;
use tokio::sync::Semaphore;

/// The limits and buffers that all scans of a session share.
#[derive(Debug)]
pub(crate) struct ReadResources {
    /// The size of splits.
    pub(crate) split_bytes: u64,
    /// The most splits that are read ahead or wait to be taken.
    pub(crate) window: usize,
    /// The most bytes that wait to be taken.
    pub(crate) queue_bytes: usize,
    /// One permit per reading thread.
    pub(crate) permits: Arc<Semaphore>,
    /// Read buffers.
    pub(crate) blocks: BlockPool,
}

impl ReadResources {
    /// The resources for this many threads and this memory, which operators share.
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

    /// About the most memory that reading one log takes.
    pub(crate) fn max_memory(&self) -> usize {
        self.queue_bytes.min(self.window * self.split_bytes as usize * 4)
    }
}

impl Default for ReadResources {
    /// For tables outside of a session.
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self::new(cores, 512 << 20)
    }
}
