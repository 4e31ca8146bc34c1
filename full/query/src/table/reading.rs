//! How logs are read for queries: in pieces of which size, how many at a time. Reads nothing.

use std::sync::Arc;

use sluice_core::BlockPool;
use tokio::sync::Semaphore;

/// What all readings of a session share.
#[derive(Debug)]
pub(crate) struct Reading {
    /// The size of the pieces that files are read in.
    pub(crate) piece: u64,
    /// How many pieces are read ahead, or wait to be taken.
    pub(crate) window: usize,
    /// How many bytes may wait to be taken.
    pub(crate) room: usize,
    /// One for each thread that may read.
    pub(crate) permits: Arc<Semaphore>,
    /// Buffers to read into.
    pub(crate) blocks: BlockPool,
}

impl Reading {
    /// For so many threads and, with operators, so much memory.
    pub(crate) fn new(jobs: usize, memory: usize) -> Self {
        let piece = (memory / 256).clamp(64 << 10, 2 << 20);
        let window = (memory / 2 / (piece * 4)).clamp(1, 2 * jobs + 1);
        Self {
            piece: piece as u64,
            window,
            room: memory / 4,
            permits: Arc::new(Semaphore::new(jobs)),
            blocks: BlockPool::new(piece + (64 << 10), window * 3),
        }
    }

    /// The memory that reading one log usually takes at most.
    pub(crate) fn most_memory(&self) -> usize {
        self.room.min(self.window * self.piece as usize * 4)
    }
}

impl Default for Reading {
    /// For tables that are used without a session of ours.
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self::new(cores, 512 << 20)
    }
}
