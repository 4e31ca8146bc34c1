//! A log-scaled histogram of durations, in little memory.

/// A histogram of durations. Buckets are at most an eighth of their value wide.
#[derive(Clone, Debug, Default)]
pub(crate) struct Histogram(Vec<Bucket>);

/// Durations that differ by at most an eighth.
#[derive(Clone, Debug)]
struct Bucket {
    number: u16,
    count: u64,
    sum: i128,
}

impl Bucket {
    fn mean(&self) -> i64 {
        let mean = self.sum / i128::from(self.count.max(1));
        i64::try_from(mean).unwrap_or(i64::MAX)
    }
}

impl Histogram {
    /// Adds a duration; negative ones count as 0.
    pub(crate) fn push(&mut self, nanos: i64) {
        let nanos = nanos.max(0);
        let number = bucket_of(nanos.unsigned_abs());
        let at = self.0.binary_search_by_key(&number, |bucket| bucket.number);
        match at {
            Ok(at) => {
                self.0[at].count += 1;
                self.0[at].sum += i128::from(nanos);
            }
            Err(at) => self.0.insert(at, Bucket { number, count: 1, sum: i128::from(nanos) }),
        }
    }

    /// How many are longer than `nanos`, to within a bucket.
    pub(crate) fn longer_than(&self, nanos: i64) -> u64 {
        self.0.iter().filter(|bucket| bucket.mean() > nanos).map(|bucket| bucket.count).sum()
    }

    /// The number of durations.
    pub(crate) fn count(&self) -> u64 {
        self.0.iter().map(|bucket| bucket.count).sum()
    }

    /// The percentile of two histograms merged, of which `long` has the longer durations; `None` if
    /// both are empty.
    pub(crate) fn percentile(short: &Self, long: &Self, percent: u128) -> Option<i64> {
        let all = u128::from(short.count()) + u128::from(long.count());
        let (mut before, wanted) = (0, (all * percent).div_ceil(100));
        let found = short.0.iter().chain(&long.0).find(|bucket| {
            before += u128::from(bucket.count);
            before >= wanted
        });
        found.map(Bucket::mean)
    }
}

/// The number of the bucket for a duration: eight per doubling.
fn bucket_of(nanos: u64) -> u16 {
    let Some(octave) = nanos.checked_ilog2().filter(|octave| *octave >= 3) else {
        return nanos as u16;
    };
    let eighth = (nanos >> (octave - 3)) & 7;
    (octave * 8) as u16 + eighth as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn longer_intervals_are_never_in_earlier_buckets(a in any::<u64>(), b in any::<u64>()) {
            let (shorter, longer) = (a.min(b), a.max(b));
            prop_assert!(bucket_of(shorter) <= bucket_of(longer));
            let alike = bucket_of(shorter) == bucket_of(longer);
            prop_assert!(!alike || longer - shorter <= shorter / 8);
        }

        #[test]
        fn the_usual_interval_is_near_the_one_in_the_middle(
            mut lengths in proptest::collection::vec(0..i64::MAX, 1..50),
            from in 0..i64::MAX,
        ) {
            let (mut short, mut long) = (Histogram::default(), Histogram::default());
            for length in &lengths {
                if *length > from { long.push(*length) } else { short.push(*length) }
            }
            lengths.sort_unstable();
            let middle = lengths[(lengths.len() - 1) / 2];
            let usual = Histogram::percentile(&short, &long, 50).unwrap();
            prop_assert!(usual.abs_diff(middle) <= middle.unsigned_abs() / 8, "{usual} {middle}");
            let longer = lengths.iter().filter(|length| **length > from).count() as u64;
            prop_assert_eq!(long.longer_than(from), longer);
        }
    }
}
