//! Histograms of lengths of time with fixed bins: 64 to a factor of two.

use crate::{Histogram, HistogramBin};

/// Bits of a value that are kept, besides the highest.
const BITS: u32 = 6;
const PER_OCTAVE: u64 = 1 << BITS;

/// How many values lie in each bin that is not empty, and their sum.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bins(Vec<Bin>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bin {
    number: u16,
    count: u64,
    sum: u128,
}

/// The bin of a value. Below 128, each value has its own.
fn number(value: u64) -> u16 {
    let shift = (u64::BITS - value.leading_zeros()).saturating_sub(BITS + 1);
    // At most 57 times 64, and 127.
    (u64::from(shift) * PER_OCTAVE + (value >> shift)) as u16
}

/// The least value of a bin.
fn least(number: u16) -> u128 {
    let number = u128::from(number);
    let per_octave = u128::from(PER_OCTAVE);
    if number < 2 * per_octave {
        return number;
    }
    let shift = number / per_octave - 1;
    (number - shift * per_octave) << shift
}

/// Sorts values into bins. Reused, since it has room for every bin.
#[derive(Debug)]
pub(super) struct BinCounter {
    /// The number of values in each bin, and their sum.
    bins: Vec<(u64, u128)>,
    filled: Vec<u16>,
}

impl Default for BinCounter {
    fn default() -> Self {
        Self { bins: vec![(0, 0); usize::from(number(u64::MAX)) + 1], filled: Vec::new() }
    }
}

impl BinCounter {
    /// The bins of these values, in any order.
    pub(super) fn bins(&mut self, values: impl IntoIterator<Item = u64>) -> Bins {
        for value in values {
            let number = number(value);
            let (count, sum) = &mut self.bins[usize::from(number)];
            if *count == 0 {
                self.filled.push(number);
            }
            *count += 1;
            *sum += u128::from(value);
        }
        self.filled.sort_unstable();
        let each = self.filled.drain(..).map(|number| {
            let (count, sum) = std::mem::take(&mut self.bins[usize::from(number)]);
            Bin { number, count, sum }
        });
        Bins(each.collect())
    }
}

impl Bins {
    /// Adds a value.
    pub(super) fn add(&mut self, value: u64) {
        self.add_bin(Bin { number: number(value), count: 1, sum: u128::from(value) });
    }

    pub(super) fn append(&mut self, next: &Self) {
        next.0.iter().for_each(|bin| self.add_bin(*bin));
    }

    fn add_bin(&mut self, bin: Bin) {
        match self.0.binary_search_by_key(&bin.number, |bin| bin.number) {
            Ok(at) => {
                self.0[at].count += bin.count;
                self.0[at].sum += bin.sum;
            }
            Err(at) => self.0.insert(at, bin),
        }
    }

    /// The number of values.
    pub(super) fn count(&self) -> u64 {
        self.0.iter().map(|bin| bin.count).sum()
    }

    /// The mean of the bin with the value that this share of values does not exceed; `None` without
    /// values.
    pub(super) fn percentile(&self, percent: u64) -> Option<u64> {
        let rank = (u128::from(self.count()) * u128::from(percent)).div_ceil(100);
        self.at_rank(u64::try_from(rank).ok()?.max(1))
    }

    /// The mean of the bin with the value of this rank, from 1; `None` if there are fewer.
    pub(super) fn at_rank(&self, rank: u64) -> Option<u64> {
        let mut met = 0;
        let bin = self.0.iter().find(|bin| {
            met += bin.count;
            met >= rank
        })?;
        Some(u64::try_from(bin.sum / u128::from(bin.count)).unwrap_or(u64::MAX))
    }

    /// The number of values in bins above that of `value`.
    pub(super) fn count_above(&self, value: u64) -> u64 {
        let above = self.0.partition_point(|bin| bin.number <= number(value));
        self.0.iter().skip(above).map(|bin| bin.count).sum()
    }

    /// Whether `value` lies in a bin above that of `limit`.
    pub(super) fn is_above(value: u64, limit: u64) -> bool {
        number(value) > number(limit)
    }

    pub(super) fn histogram(&self) -> Histogram {
        let bins = self.0.iter().map(|bin| HistogramBin {
            from: least(bin.number) as f64,
            to: least(bin.number + 1) as f64,
            count: bin.count,
        });
        Histogram { bins: bins.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_lies_in_its_bin() {
        let shifted =
            (0..64).flat_map(|shift| [1u64 << shift, (1 << shift) + 1, u64::MAX >> shift]);
        for value in shifted.chain(0..1000) {
            let (bin, wide) = (number(value), u128::from(value));
            assert!((least(bin)..least(bin + 1)).contains(&wide), "{value} in {bin}");
            assert!((least(bin + 1) - least(bin)) * 64 <= wide.max(64), "{value} in {bin}");
        }
    }

    #[test]
    fn equal_values_have_an_exact_median() {
        let mut values = [10_000_000; 100];
        values[7] = 30_000_000;
        let mut counter = BinCounter::default();
        assert_eq!(counter.bins([5, u64::MAX]).count(), 2);
        let bins = counter.bins(values);
        let percentiles = [1, 50, 99, 100].map(|percent| bins.percentile(percent));
        assert_eq!(percentiles, [10_000_000, 10_000_000, 10_000_000, 30_000_000].map(Some));
        assert_eq!((bins.count_above(20_000_000), bins.count_above(30_000_000)), (1, 0));
        assert_eq!(Bins::default().percentile(50), None);
    }
}
