//! Blocks: large buffers that are filled, shared out as bytes, and used again when nobody looks any more.
//!
//! A fresh megabyte costs as much in page faults as parsing it does; a block that comes back costs nothing.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// A shared stock of blocks of one usual size.
#[derive(Clone, Debug)]
pub struct BlockPool(Arc<PoolState>);

#[derive(Debug)]
struct PoolState {
    block_len: usize,
    keep: usize,
    free: Mutex<FreeList>,
    lent_bytes: AtomicUsize,
}

/// What nobody uses.
#[derive(Debug, Default)]
struct FreeList {
    /// As long as usual: to be read into without being filled with zeros again.
    blocks: Vec<Vec<u8>>,
    /// Empty, with the usual capacity: to be written into.
    buffers: Vec<Vec<u8>>,
}

/// A buffer of a pool: goes back to it when dropped.
#[derive(Debug)]
pub struct PooledBlock {
    bytes: Vec<u8>,
    pool: Arc<PoolState>,
    counted: usize,
}

impl BlockPool {
    /// A pool of blocks of `usual` bytes that keeps at most `keep` of them while nobody uses them.
    pub fn new(usual: usize, keep: usize) -> Self {
        let (free, lent) = (Mutex::default(), AtomicUsize::new(0));
        Self(Arc::new(PoolState { block_len: usual, keep, free, lent_bytes: lent }))
    }

    /// The length of the blocks it usually gives.
    pub fn block_len(&self) -> usize {
        self.0.block_len
    }

    /// The bytes that are lent out now.
    pub fn lent_bytes(&self) -> usize {
        self.0.lent_bytes.load(Ordering::Relaxed)
    }

    /// A block of at least the usual length; its bytes are whatever they were.
    pub fn block(&self) -> PooledBlock {
        self.block_with_len(self.0.block_len)
    }

    /// A block of at least `len` bytes. Longer ones than usual are not kept for others.
    pub fn block_with_len(&self, len: usize) -> PooledBlock {
        let old = if len <= self.0.block_len { self.free().blocks.pop() } else { None };
        self.lend(old.unwrap_or_else(|| vec![0; len.max(self.0.block_len)]))
    }

    /// An empty buffer with the usual capacity, for output that is built up.
    pub fn buffer(&self) -> PooledBlock {
        let old = self.free().buffers.pop();
        self.lend(old.unwrap_or_else(|| Vec::with_capacity(self.0.block_len)))
    }

    fn lend(&self, bytes: Vec<u8>) -> PooledBlock {
        let counted = bytes.capacity();
        self.0.lent_bytes.fetch_add(counted, Ordering::Relaxed);
        PooledBlock { bytes, pool: Arc::clone(&self.0), counted }
    }

    fn free(&self) -> std::sync::MutexGuard<'_, FreeList> {
        self.0.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PooledBlock {
    /// The bytes, shared; the block goes back when the last share is gone.
    pub fn freeze(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for PooledBlock {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl std::ops::Deref for PooledBlock {
    type Target = Vec<u8>;
    fn deref(&self) -> &Vec<u8> {
        &self.bytes
    }
}

impl std::ops::DerefMut for PooledBlock {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}

impl Drop for PooledBlock {
    fn drop(&mut self) {
        self.pool.lent_bytes.fetch_sub(self.counted, Ordering::Relaxed);
        let mut bytes = std::mem::take(&mut self.bytes);
        if bytes.capacity() < self.pool.block_len || bytes.capacity() > self.pool.block_len * 2 {
            return;
        }
        let mut free = self.pool.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.blocks.len() + free.buffers.len() >= self.pool.keep {
            return;
        }
        // A block that was cut short would have to be filled again: it serves as a buffer.
        if bytes.len() >= self.pool.block_len {
            free.blocks.push(bytes);
        } else {
            bytes.clear();
            free.buffers.push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_comes_back_when_its_last_share_is_dropped() {
        let pool = BlockPool::new(16, 4);
        let share = pool.block().freeze().slice(3..5);
        assert_eq!((pool.lent_bytes(), pool.free().blocks.len()), (16, 0));
        drop(share);
        assert_eq!((pool.lent_bytes(), pool.free().blocks.len()), (0, 1));
        assert_eq!((pool.buffer().len(), pool.block().len()), (0, 16));
        let mut written = pool.buffer();
        written.extend([1; 10]);
        drop(written);
        assert_eq!(pool.free().buffers.len(), 1);
        assert!(pool.buffer().is_empty());
    }

    #[test]
    fn long_blocks_are_given_but_not_kept() {
        let pool = BlockPool::new(16, 4);
        assert_eq!(pool.block_with_len(100).len(), 100);
        assert_eq!((pool.lent_bytes(), pool.free().blocks.len()), (0, 0));
    }
}
