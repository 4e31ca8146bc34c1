//! What limits reading: split size, read-ahead, memory and threads.

use std::sync::Arc;

use sluice_kit::reading::ReadLimits;
use sluice_model::BlockPool;
use tokio::sync::Semaphore;

/// The limits and buffers that all scans of a session share.
#[derive(Debug)]
pub(crate) struct ReadResources {
    /// How far each log is read ahead.
    pub(crate) limits: ReadLimits,
    /// The most bytes that wait to be taken.
    pub(crate) queue_bytes: usize,
    /// The longest table that is cached: it is held in memory while a query reads it.
    pub(crate) max_cached_bytes: usize,
    /// One permit per reading thread.
    pub(crate) permits: Arc<Semaphore>,
    /// Read buffers.
    pub(crate) blocks: BlockPool,
}

impl ReadResources {
    /// The resources for this many threads and this memory, which operators share.
    pub(crate) fn new(jobs: usize, memory: usize) -> Self {
        let limits = ReadLimits::new(memory, memory / 2, jobs);
        Self {
            // Blocks are shared by all scans: none may keep another from reading ahead.
            limits: ReadLimits { max_lent_bytes: usize::MAX, ..limits },
            queue_bytes: memory / 4,
            max_cached_bytes: memory / 8,
            permits: Arc::new(Semaphore::new(jobs)),
            blocks: limits.blocks(0),
        }
    }

    /// About the most memory that reading one log takes.
    pub(crate) fn max_memory(&self) -> usize {
        self.queue_bytes.min(self.limits.memory())
    }
}

impl Default for ReadResources {
    /// For tables outside of a session.
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self::new(cores, 512 << 20)
    }
}
