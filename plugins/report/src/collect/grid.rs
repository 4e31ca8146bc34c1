//! Buckets of time with power-of-two widths and absolute starts, which add up exactly.

use smallvec::SmallVec;

use crate::TimeGrid;

/// The most buckets.
const MAX_BUCKETS: i128 = 1_000;

/// The width of buckets, as a power of two of nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BucketWidth(u32);

impl BucketWidth {
    /// The least width that covers these times with at most 1,000 buckets. More times never need
    /// a lesser one.
    pub(super) fn for_times(earliest: i64, latest: i64) -> Self {
        Self::for_buckets(earliest, latest, MAX_BUCKETS)
    }

    /// The same with at most `most` buckets, which are at least two.
    pub(super) fn for_buckets(earliest: i64, latest: i64, most: i128) -> Self {
        let buckets = |shift: u32| i128::from(latest >> shift) - i128::from(earliest >> shift) + 1;
        // A shift by 63 leaves two buckets: times before 1970, and after.
        Self((0..63).find(|shift| buckets(*shift) <= most).unwrap_or(63))
    }

    /// The bucket of a time.
    pub(super) fn bucket(self, time: i64) -> i64 {
        time >> self.0
    }

    /// All buckets of these times.
    pub(super) fn grid(self, earliest: i64, latest: i64) -> TimeGrid {
        let (first, last) = (self.bucket(earliest), self.bucket(latest));
        let buckets = usize::try_from(last.abs_diff(first)).unwrap_or(0) + 1;
        TimeGrid { start: first << self.0, width: 1 << self.0, buckets }
    }
}

/// What a bucket holds.
pub(super) trait BucketValue {
    /// Adds what follows in the order of the log.
    fn append(&mut self, next: Self);
}

impl BucketValue for u64 {
    fn append(&mut self, next: Self) {
        *self += next;
    }
}

/// The buckets that are not empty, in ascending order. A batch has few.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Buckets<T>(SmallVec<[(i64, T); 2]>);

impl<T> Default for Buckets<T> {
    fn default() -> Self {
        Self(SmallVec::new())
    }
}

impl<T: BucketValue> Buckets<T> {
    /// Adds what follows in the order of the log.
    pub(super) fn add(&mut self, bucket: i64, value: T) {
        let Self(all) = self;
        match all.last_mut() {
            Some((last, present)) if *last == bucket => present.append(value),
            Some((last, _)) if *last > bucket => self.insert(bucket, value),
            _ => all.push((bucket, value)),
        }
    }

    /// Times step back: some bucket before the last.
    fn insert(&mut self, bucket: i64, value: T) {
        match self.0.binary_search_by_key(&bucket, |(at, _)| *at) {
            Ok(at) => self.0[at].1.append(value),
            Err(at) => self.0.insert(at, (bucket, value)),
        }
    }

    /// Adds the buckets of what follows, of the same width.
    pub(super) fn append(&mut self, next: Self) {
        next.0.into_iter().for_each(|(bucket, value)| self.add(bucket, value));
    }

    /// Makes buckets wider.
    ///
    /// The values of a wider bucket are added in order of time, which must not matter to them.
    pub(super) fn widen(&mut self, from: BucketWidth, to: BucketWidth) {
        let by = to.0.saturating_sub(from.0);
        if by == 0 {
            return;
        }
        for (bucket, value) in std::mem::take(&mut self.0) {
            self.add(bucket >> by, value);
        }
    }

    /// The values of the buckets that are not empty.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, value)| value)
    }

    /// The buckets that are not empty, with their values.
    pub(super) fn entries(&self) -> impl Iterator<Item = (i64, &T)> {
        self.0.iter().map(|(bucket, value)| (*bucket, value))
    }

    /// The value of a bucket; `None` if it is empty.
    pub(super) fn get(&self, bucket: i64) -> Option<&T> {
        let at = self.0.binary_search_by_key(&bucket, |(at, _)| *at).ok()?;
        self.0.get(at).map(|(_, value)| value)
    }

    /// One value per bucket of the grid, which must have the same width.
    pub(super) fn dense<U: Clone + Default>(
        &self,
        grid: &TimeGrid,
        width: BucketWidth,
        to: impl Fn(&T) -> U,
    ) -> Vec<U> {
        let first = width.bucket(grid.start);
        let mut dense = vec![U::default(); grid.buckets];
        for (bucket, value) in &self.0 {
            let place = usize::try_from(bucket.abs_diff(first)).ok();
            if let Some(place) = place.and_then(|at| dense.get_mut(at)) {
                *place = to(value);
            }
        }
        dense
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_times_fit_into_a_thousand_buckets() {
        for (earliest, latest) in
            [(0, 0), (0, 999), (0, 1_000), (-1, 0), (i64::MIN, i64::MAX), (i64::MAX, i64::MAX)]
        {
            let width = BucketWidth::for_times(earliest, latest);
            let grid = width.grid(earliest, latest);
            assert!((1..=1_000).contains(&grid.buckets), "{earliest} to {latest}: {grid:?}");
            assert!(grid.start <= earliest);
        }
        assert_eq!(BucketWidth::for_times(0, 999), BucketWidth(0));
        assert_eq!(BucketWidth::for_times(0, 1_000), BucketWidth(1));
    }

    #[test]
    fn wider_buckets_have_the_same_sum() {
        let mut buckets = Buckets::<u64>::default();
        [5, 6, 9, 6, -1].into_iter().for_each(|bucket| buckets.add(bucket, 1));
        buckets.widen(BucketWidth(3), BucketWidth(4));
        assert_eq!(buckets, Buckets(smallvec::smallvec![(-1, 1), (2, 1), (3, 2), (4, 1)]));
    }
}
