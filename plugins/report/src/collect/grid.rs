//! Buckets of time with power-of-two widths and absolute starts, which add up exactly.

use smallvec::SmallVec;

use crate::TimeGrid;

/// The most buckets.
pub(super) const MAX_BUCKETS: usize = 1_000;

/// The width of buckets, as a power of two of nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct BucketWidth(u32);

impl BucketWidth {
    /// The least width that covers these times with at most 1,000 buckets. More times never need
    /// a lesser one.
    pub(super) fn for_times(earliest: i64, latest: i64) -> Self {
        let buckets = |shift: u32| i128::from(latest >> shift) - i128::from(earliest >> shift) + 1;
        // A shift by 63 leaves two buckets: times before 1970, and after.
        Self((0..63).find(|shift| buckets(*shift) <= MAX_BUCKETS as i128).unwrap_or(63))
    }

    /// The width of two of these.
    fn doubled(self) -> Self {
        Self((self.0 + 1).min(63))
    }

    /// The first and the last time of a bucket.
    fn times(self, bucket: i64) -> (i64, i64) {
        let first = bucket << self.0;
        (first, first | ((1 << self.0) - 1))
    }

    /// The bucket of a time.
    pub(super) fn bucket(self, time: i64) -> i64 {
        time >> self.0
    }

    /// The bucket of another width, at least this one, in which a bucket lies.
    pub(super) fn widened(self, bucket: i64, to: Self) -> i64 {
        bucket >> to.0.saturating_sub(self.0)
    }

    /// All buckets of these times.
    pub(super) fn grid(self, earliest: i64, latest: i64) -> TimeGrid {
        let (first, last) = (self.bucket(earliest), self.bucket(latest));
        let buckets = usize::try_from(last.abs_diff(first)).unwrap_or(0) + 1;
        TimeGrid { start: first << self.0, width: 1 << self.0, buckets }
    }
}

/// What a bucket holds.
pub(super) trait BucketValue: Clone {
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
    pub(super) fn append(&mut self, next: &Self) {
        next.0.iter().for_each(|(bucket, value)| self.add(*bucket, value.clone()));
    }

    /// Makes buckets wider.
    ///
    /// The values of a wider bucket are added in order of time, which must not matter to them.
    pub(super) fn widen(&mut self, from: BucketWidth, to: BucketWidth) {
        if to <= from {
            return;
        }
        for (bucket, value) in std::mem::take(&mut self.0) {
            self.add(from.widened(bucket, to), value);
        }
    }

    /// The number of buckets that are not empty.
    fn len(&self) -> usize {
        self.0.len()
    }

    /// The values of the buckets that are not empty.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, value)| value)
    }

    /// The buckets that are not empty, with their values.
    pub(super) fn entries(&self) -> impl DoubleEndedIterator<Item = (i64, &T)> {
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
            // Few lie outside: before the grid, or beyond its end.
            let place = bucket.checked_sub(first).and_then(|place| usize::try_from(place).ok());
            if let Some(place) = place.and_then(|at| dense.get_mut(at)) {
                *place = to(value);
            }
        }
        dense
    }
}

/// The number of events in each bucket of time, at the least width at which at most `MOST` buckets
/// have any.
///
/// A few absurd times therefore cost a few buckets, and not the width of all others. As more times
/// never need a lesser width, it does not matter how they are grouped.
#[derive(Clone, Debug, Default)]
pub(super) struct OccupiedBuckets<const MOST: usize> {
    width: BucketWidth,
    events: Buckets<u64>,
}

/// The times that an axis shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Axis {
    pub(super) start: i64,
    pub(super) end: i64,
    /// The number of events outside.
    pub(super) outside: u64,
}

/// The share of events that may be off the axis, at either end: one in so many.
const MOST_OUTSIDE: u64 = 20;
/// Events are off the axis if they are farther from the others than these last, so many times.
const FAR: i128 = 10;
/// Nearer events are never off the axis: a day in nanoseconds.
const NEAR: i128 = 86_400_000_000_000;

impl<const MOST: usize> OccupiedBuckets<MOST> {
    /// The buckets of these times, at least so wide.
    pub(super) fn from_times(times: &[i64], least: BucketWidth) -> Self {
        let mut occupied = Self { width: least, events: Buckets::default() };
        let mut left = times;
        while let Some(first) = left.first() {
            let (width, bucket) = (occupied.width, occupied.width.bucket(*first));
            let run = left.iter().take_while(|time| width.bucket(**time) == bucket).count();
            occupied.events.add(bucket, run as u64);
            occupied.fit();
            left = left.get(run..).unwrap_or_default();
        }
        occupied
    }

    /// The same times in at most `FEWER` buckets, at least so wide.
    pub(super) fn coarser<const FEWER: usize>(&self, least: BucketWidth) -> OccupiedBuckets<FEWER> {
        let mut coarser = OccupiedBuckets { width: self.width, events: self.events.clone() };
        coarser.widen(least);
        coarser.fit();
        coarser
    }

    pub(super) fn width(&self) -> BucketWidth {
        self.width
    }

    pub(super) fn append(&mut self, mut next: Self) {
        self.widen(next.width);
        next.widen(self.width);
        self.events.append(&next.events);
        self.fit();
    }

    fn fit(&mut self) {
        // The widest buckets are two.
        while self.events.len() > MOST.max(2) {
            self.widen(self.width.doubled());
        }
    }

    fn widen(&mut self, to: BucketWidth) {
        let from = self.width;
        self.width = from.max(to);
        self.events.widen(from, self.width);
    }

    /// The axis of times from `earliest` to `latest`, without those that are far from all others.
    pub(super) fn axis(&self, earliest: i64, latest: i64) -> Axis {
        let whole = Axis { start: earliest, end: latest, outside: 0 };
        let all: u64 = self.events.iter().sum();
        let core = |(bucket, sum): (i64, u64)| (sum > all / MOST_OUTSIDE).then_some(bucket);
        let first = running_sums(self.events.entries()).find_map(core);
        let last = running_sums(self.events.entries().rev()).find_map(core);
        let Some((first, last)) = first.zip(last) else { return whole };
        let [first, last] = [self.width.times(first).0, self.width.times(last).1].map(i128::from);
        let reach = (FAR * (last - first)).max(NEAR);
        let is_near = |bucket: i64| {
            let (from, to) = self.width.times(bucket);
            i128::from(from) >= first - reach && i128::from(to) <= last + reach
        };
        let mut near = self.events.entries().filter(|(bucket, _)| is_near(*bucket));
        let Some(first) = near.next() else { return whole };
        let (last, inside) = near
            .fold((first.0, *first.1), |(_, inside), (bucket, events)| (bucket, inside + events));
        // The first and the last event have their own times.
        let start = self.width.times(first.0).0.max(earliest);
        let end = self.width.times(last).1.min(latest);
        Axis { start, end, outside: all - inside }
    }
}

/// The number of events up to each bucket.
fn running_sums<'e>(
    entries: impl Iterator<Item = (i64, &'e u64)>,
) -> impl Iterator<Item = (i64, u64)> {
    entries.scan(0, |sum, (bucket, events)| {
        *sum += events;
        Some((bucket, *sum))
    })
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

    fn occupied(times: &[i64]) -> OccupiedBuckets<1_000> {
        OccupiedBuckets::from_times(times, BucketWidth::default())
    }

    #[test]
    fn a_few_times_far_away_are_off_the_axis() {
        let second = 1_000_000_000;
        let drive: Vec<i64> =
            (0..3_000).map(|n| 1_600_000_000 * second + n * second / 10).collect();
        let (first, last) = (drive[0], drive[2_999]);
        let whole = Axis { start: first, end: last, outside: 0 };
        assert_eq!(occupied(&drive).axis(first, last), whole);
        let mut odd = drive.clone();
        odd.splice(700..700, [0, i64::MAX, i64::MIN]);
        let axis = occupied(&odd).axis(i64::MIN, i64::MAX);
        assert_eq!(axis.outside, 3);
        let slack = 2 * second;
        assert!((first - slack..=first).contains(&axis.start), "{axis:?}");
        assert!((last..=last + slack).contains(&axis.end), "{axis:?}");
        // Much of a log is no exception, however far it is from the rest.
        let later: Vec<i64> = drive.iter().map(|time| time + 40_000_000 * second).collect();
        let both = [drive.as_slice(), later.as_slice()].concat();
        let axis = occupied(&both).axis(first, later[2_999]);
        assert_eq!(axis, Axis { start: first, end: later[2_999], outside: 0 });
    }

    #[test]
    fn a_pause_within_a_day_is_on_the_axis() {
        let mut times: Vec<i64> = (0..100).collect();
        times.push(86_000_000_000_000);
        let axis = occupied(&times).axis(0, 86_000_000_000_000);
        assert_eq!(axis, Axis { start: 0, end: 86_000_000_000_000, outside: 0 });
    }

    #[test]
    fn coarser_buckets_are_those_of_the_times_themselves() {
        let times: Vec<i64> = (0..5_000).map(|n| n * n * 977).chain([-3, i64::MAX]).collect();
        for least in [0, 20, 50] {
            let coarser = occupied(&times).coarser::<23>(BucketWidth(least));
            let direct = OccupiedBuckets::<23>::from_times(&times, BucketWidth(least));
            assert_eq!((coarser.width, coarser.events), (direct.width, direct.events));
        }
    }
}
