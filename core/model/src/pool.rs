//! A pool of large buffers that are filled, shared as bytes, and reused when the last share is
//! dropped.
//!
//! The page faults of a fresh megabyte cost as much as parsing it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// A shared pool of blocks of one size.
#[derive(Clone, Debug)]
pub struct BlockPool(Arc<PoolState>);

#[derive(Debug)]
struct PoolState {
    block_len: usize,
    keep: usize,
    free: Mutex<FreeList>,
    lent_bytes: AtomicUsize,
}

/// The unused blocks.
#[derive(Debug, Default)]
struct FreeList {
    /// Of full length: can be read into without being zeroed again.
    blocks: Vec<Vec<u8>>,
    /// Empty, with full capacity: for writing.
    buffers: Vec<Vec<u8>>,
    /// Of full length, more than twice the usual one; the latest last.
    long: Vec<Vec<u8>>,
}

/// The most unused blocks of more than twice the usual length, and their bytes in multiples of the
/// usual length.
const MAX_LONG: usize = 4;
const MAX_LONG_LENS: usize = 8;

impl FreeList {
    /// A block of `len` bytes, which is more than usual, or of up to twice as many.
    fn take_long(&mut self, len: usize) -> Option<Vec<u8>> {
        let fits = |block: &Vec<u8>| (len..=len.saturating_mul(2)).contains(&block.len());
        if let Some(at) = self.blocks.iter().rposition(fits) {
            return Some(self.blocks.remove(at));
        }
        let at = self.long.iter().rposition(fits)?;
        Some(self.long.remove(at))
    }

    /// Keeps a long block instead of the oldest ones.
    fn keep_long(&mut self, bytes: Vec<u8>, block_len: usize) {
        let most = block_len.saturating_mul(MAX_LONG_LENS);
        // A truncated block would have to be zeroed again.
        if bytes.len() <= block_len || bytes.capacity() > most {
            return;
        }
        self.long.push(bytes);
        let bytes_of = |blocks: &[Vec<u8>]| blocks.iter().map(Vec::capacity).sum::<usize>();
        while self.long.len() > MAX_LONG || bytes_of(&self.long) > most {
            self.long.remove(0);
        }
    }
}

/// A buffer that returns to its pool when dropped.
#[derive(Debug)]
pub struct PooledBlock {
    bytes: Vec<u8>,
    pool: Arc<PoolState>,
    counted: usize,
}

impl BlockPool {
    /// A pool of blocks of `block_len` bytes that keeps at most `keep` unused ones.
    pub fn new(block_len: usize, keep: usize) -> Self {
        let (free, lent) = (Mutex::default(), AtomicUsize::new(0));
        Self(Arc::new(PoolState { block_len, keep, free, lent_bytes: lent }))
    }

    /// The usual length of a block.
    pub fn block_len(&self) -> usize {
        self.0.block_len
    }

    /// The bytes currently in use.
    pub fn lent_bytes(&self) -> usize {
        self.0.lent_bytes.load(Ordering::Relaxed)
    }

    /// A block of at least the usual length, with arbitrary contents.
    pub fn block(&self) -> PooledBlock {
        self.block_with_len(self.0.block_len)
    }

    /// A block of at least `len` bytes. Of blocks longer than usual, only a few are kept.
    pub fn block_with_len(&self, len: usize) -> PooledBlock {
        let mut free = self.free();
        let old = if len <= self.0.block_len { free.blocks.pop() } else { free.take_long(len) };
        drop(free);
        self.lend(old.unwrap_or_else(|| vec![0; len.max(self.0.block_len)]))
    }

    /// An empty buffer with the usual capacity, for writing.
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
    /// Shares the bytes; the block returns to the pool when the last share is dropped.
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
        if bytes.capacity() < self.pool.block_len {
            return;
        }
        let mut free = self.pool.free.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes.capacity() > self.pool.block_len * 2 {
            free.keep_long(bytes, self.pool.block_len);
            return;
        }
        if free.blocks.len() + free.buffers.len() >= self.pool.keep {
            return;
        }
        // A truncated block would have to be zeroed again: reuse it as a buffer.
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
    fn a_few_long_blocks_are_kept_for_lengths_like_theirs() {
        let pool = BlockPool::new(16, 4);
        let place = pool.block_with_len(100).as_ptr();
        assert_eq!((pool.lent_bytes(), pool.free().blocks.len()), (0, 0));
        assert_eq!(pool.block_with_len(20).len(), 20, "a much longer block is not wasted on it");
        let again = pool.block_with_len(90);
        assert_eq!((again.as_ptr(), again.len()), (place, 100));
        drop(again);
        assert_eq!(pool.block_with_len(1000).len(), 1000);
        let kept = pool.free().long.iter().map(Vec::len).sum::<usize>();
        assert!(kept <= 16 * MAX_LONG_LENS, "{kept} bytes");
    }
}
