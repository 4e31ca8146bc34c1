//! Columns: vectors that become Arrow buffers, and return to a pool when the last reference is
//! dropped.
//!
//! The columns of a batch take some hundred kilobytes. Allocating them each time costs more in page
//! faults than filling them. Knows nothing of events.

use std::sync::{Mutex, PoisonError};

use arrow_buffer::{ArrowNativeType, Buffer, ScalarBuffer, ToByteSlice};
use bytes::Bytes;

/// Shorter vectors are left to the allocator.
const MIN_POOLED_BYTES: usize = 32 << 10;
/// Longer vectors are rare, and returned to the system.
const MAX_POOLED_BYTES: usize = 4 << 20;
/// The most unused vectors of one type that are kept.
const MAX_POOLED: usize = 16;

/// The unused vectors of one type.
pub(crate) struct VectorPool<T>(Mutex<Vec<Vec<T>>>);

/// A type of column elements.
pub(crate) trait Element: ArrowNativeType + ToByteSlice {
    fn pool() -> &'static VectorPool<Self>;
}

macro_rules! element {
    ($type:ty) => {
        impl Element for $type {
            fn pool() -> &'static VectorPool<Self> {
                static POOL: VectorPool<$type> = VectorPool(Mutex::new(Vec::new()));
                &POOL
            }
        }
    };
}

element!(i64);
element!(u32);
element!(u128);
element!(i128);

/// An empty vector with this capacity, from the pool if it is long enough to be pooled.
pub(crate) fn vector<T: Element>(capacity: usize) -> Vec<T> {
    let used = if capacity * size_of::<T>() >= MIN_POOLED_BYTES {
        T::pool().0.lock().unwrap_or_else(PoisonError::into_inner).pop()
    } else {
        None
    };
    let mut vector = used.unwrap_or_default();
    vector.reserve(capacity);
    vector
}

/// The vector as a column, without copying unless it is nearly empty: batches may be kept for long,
/// and few events must not keep room for many.
pub(crate) fn column<T: Element>(vector: Vec<T>) -> ScalarBuffer<T> {
    if vector.len() < vector.capacity() / 8 {
        let few = vector.as_slice().to_vec();
        recycle(vector);
        return few.into();
    }
    if !is_poolable(&vector) {
        return vector.into();
    }
    let len = vector.len();
    ScalarBuffer::new(Buffer::from(Bytes::from_owner(PooledVector(vector))), 0, len)
}

/// Returns a vector to the pool that did not become a column.
pub(crate) fn recycle<T: Element>(mut vector: Vec<T>) {
    if is_poolable(&vector) {
        vector.clear();
        let mut stock = T::pool().0.lock().unwrap_or_else(PoisonError::into_inner);
        if stock.len() < MAX_POOLED {
            stock.push(vector);
        }
    }
}

fn is_poolable<T>(vector: &Vec<T>) -> bool {
    (MIN_POOLED_BYTES..=MAX_POOLED_BYTES).contains(&(vector.capacity() * size_of::<T>()))
}

struct PooledVector<T: Element>(Vec<T>);

impl<T: Element> AsRef<[u8]> for PooledVector<T> {
    fn as_ref(&self) -> &[u8] {
        self.0.as_slice().to_byte_slice()
    }
}

impl<T: Element> Drop for PooledVector<T> {
    fn drop(&mut self) {
        recycle(std::mem::take(&mut self.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_holds_what_its_vector_did_whatever_its_length() {
        for len in [0, 1, 100, 10_000, 1_000_000] {
            let values: Vec<u128> = (0..len).collect();
            assert_eq!(*column(values.clone()), values[..]);
        }
    }

    #[test]
    fn a_short_column_keeps_no_long_vector() {
        let mut vector = vector::<i128>(40_000);
        vector.push(7);
        let column = column(vector);
        assert_eq!((column[..].to_vec(), column.inner().capacity()), (vec![7], size_of::<i128>()));
    }

    #[test]
    fn a_recycled_vector_is_empty_and_has_capacity() {
        drop(column((0..50_000i64).collect()));
        let again = vector::<i64>(40_000);
        assert!(again.is_empty() && again.capacity() >= 40_000);
    }
}
