//! Statistics of features, as LeRobot's own writer computes them: of an episode, and of all
//! episodes together. Decodes nothing.

use serde_json::{Value, json};

/// The quantiles of every feature, by their names.
pub(crate) const QUANTILES: [(&str, f64); 5] =
    [("q01", 0.01), ("q10", 0.1), ("q50", 0.5), ("q90", 0.9), ("q99", 0.99)];

/// The bins of the histogram that quantiles come from.
const BINS: usize = 5000;
/// How far the histogram extends beyond the least and the greatest value.
const MARGIN: f64 = 1e-10;

/// Statistics of a feature, each with one number per dimension.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct FeatureStats {
    /// Frames.
    pub(crate) count: u64,
    pub(crate) min: Vec<f64>,
    pub(crate) max: Vec<f64>,
    pub(crate) mean: Vec<f64>,
    /// The population's.
    pub(crate) std: Vec<f64>,
    /// In the order of [`QUANTILES`].
    pub(crate) quantiles: [Vec<f64>; 5],
}

impl FeatureStats {
    /// Of `rows` values of `width` numbers each; `value` returns the n-th of all numbers.
    ///
    /// Throws leading axes together: of values of several axes, `width` is the length of the last
    /// one, and `count` the number of frames.
    pub(crate) fn from_values(
        count: u64,
        rows: usize,
        width: usize,
        value: impl Fn(usize) -> f64,
    ) -> Self {
        let mut stats = Self { count, ..Self::default() };
        let (mut column, mut histogram) = (vec![0.0; rows], Histogram::default());
        for dimension in 0..width {
            for (row, place) in column.iter_mut().enumerate() {
                *place = value(row * width + dimension);
            }
            stats.push_column(&column, &mut histogram);
        }
        stats
    }

    fn push_column(&mut self, column: &[f64], histogram: &mut Histogram) {
        let rows = column.len() as f64;
        let (min, max) = bounds(column.iter().copied());
        let scale = scale_of_squares([min, max]);
        let scaled = || column.iter().map(|value| value * scale);
        let scaled_mean = scaled().sum::<f64>() / rows;
        let variance = scaled().map(|value| (value - scaled_mean).powi(2)).sum::<f64>() / rows;
        let (mean, std) = (scaled_mean / scale, variance.sqrt() / scale);
        let quantiles = match column.len() {
            1 => [mean; 5],
            _ => histogram.quantiles(min, max, column.iter().map(|value| (*value, 1))),
        };
        self.push([min, max, mean, std], quantiles);
    }

    /// Of images of which each channel has these counts of the values 0 to 255, as numbers from 0
    /// to 1.
    pub(crate) fn from_counts(frames: u64, channels: &[[u64; 256]]) -> Self {
        let (mut stats, mut histogram) =
            (Self { count: frames, ..Self::default() }, Histogram::default());
        for counts in channels {
            let values = || (0u8..=255).zip(counts).filter(|(_, count)| **count > 0);
            let values = || values().map(|(value, count)| (f64::from(value), *count));
            let all = counts.iter().sum::<u64>() as f64;
            let sum = |of: &dyn Fn(f64) -> f64| {
                values().map(|(value, count)| of(value) * count as f64).sum::<f64>() / all
            };
            let (min, max) = bounds(values().map(|(value, _)| value));
            let mean = sum(&|value| value);
            let std = sum(&|value| (value - mean).powi(2)).sqrt();
            let quantiles = histogram.quantiles(min, max, values());
            let of_one = |value: f64| value / 255.0;
            stats.push([min, max, mean, std].map(of_one), quantiles.map(of_one));
        }
        stats
    }

    fn push(&mut self, [min, max, mean, std]: [f64; 4], quantiles: [f64; 5]) {
        self.min.push(min);
        self.max.push(max);
        self.mean.push(mean);
        self.std.push(std);
        self.quantiles.iter_mut().zip(quantiles).for_each(|(all, one)| all.push(one));
    }

    /// Adds the statistics of further frames. Exact but for the quantiles, which become the mean of
    /// both, weighted by frames, as in LeRobot 0.6.1.
    pub(crate) fn add(&mut self, other: &Self) {
        if self.count == 0 || other.count == 0 {
            if self.count == 0 {
                self.clone_from(other);
            }
            return;
        }
        let all = (self.count + other.count) as f64;
        let (ours, theirs) = (self.count as f64 / all, other.count as f64 / all);
        let pairs = self.std.iter_mut().zip(&other.std);
        let means = self.mean.iter().zip(&other.mean);
        for ((std, more), (mean, next)) in pairs.zip(means) {
            let scale = scale_of_squares([*std, *more, *mean, *next]);
            let square = |number: f64| (number * scale).powi(2);
            let apart = (next * scale - mean * scale).powi(2);
            let variance = square(*std) * ours + square(*more) * theirs + apart * ours * theirs;
            *std = variance.sqrt() / scale;
        }
        join(&mut self.min, &other.min, f64::min);
        join(&mut self.max, &other.max, f64::max);
        join(&mut self.mean, &other.mean, |a, b| a * ours + b * theirs);
        for (quantile, more) in self.quantiles.iter_mut().zip(&other.quantiles) {
            join(quantile, more, |a, b| a * ours + b * theirs);
        }
        self.count += other.count;
    }

    /// The statistics by name, in the order of the columns of episodes.
    pub(crate) fn named(&self) -> [(&'static str, Vec<f64>); 9] {
        let [q01, q10, q50, q90, q99] = self.quantiles.clone();
        let [(n01, _), (n10, _), (n50, _), (n90, _), (n99, _)] = QUANTILES;
        let (min, max) = (self.min.clone(), self.max.clone());
        let (mean, std) = (self.mean.clone(), self.std.clone());
        [
            ("min", min),
            ("max", max),
            ("mean", mean),
            ("std", std),
            (n01, q01),
            (n10, q10),
            (n50, q50),
            (n90, q90),
            (n99, q99),
        ]
    }

    /// Its entry in `stats.json`. The numbers of an image have an axis each for rows and columns.
    pub(crate) fn to_json(&self, is_image: bool) -> Value {
        let list = |numbers: Vec<f64>| match is_image {
            true => Value::Array(numbers.into_iter().map(|number| json!([[number]])).collect()),
            false => json!(numbers),
        };
        let mut entry: serde_json::Map<_, _> =
            self.named().into_iter().map(|(name, all)| (name.to_owned(), list(all))).collect();
        entry.insert("count".to_owned(), json!([self.count]));
        Value::Object(entry)
    }

    /// Reads an entry of `stats.json` with `width` numbers; `None` if it is not complete.
    pub(crate) fn from_json(entry: &Value, width: usize) -> Option<Self> {
        let list = |name: &str| {
            let mut numbers = Vec::new();
            flatten(entry.get(name)?, &mut numbers)?;
            (numbers.len() == width).then_some(numbers)
        };
        let count = entry.get("count")?;
        let count = count.as_u64().or_else(|| count.get(0)?.as_u64())?;
        let [q01, q10, q50, q90, q99] = QUANTILES.map(|(name, _)| list(name));
        Some(Self {
            count,
            min: list("min")?,
            max: list("max")?,
            mean: list("mean")?,
            std: list("std")?,
            quantiles: [q01?, q10?, q50?, q90?, q99?],
        })
    }
}

/// The factor with which the squares of these numbers, and sums of them, are finite: a power of
/// two, which changes no digit.
fn scale_of_squares<const N: usize>(numbers: [f64; N]) -> f64 {
    let most = numbers.into_iter().map(f64::abs).fold(0.0, f64::max);
    if most < 1e140 { 1.0 } else { 2f64.powi(-600) }
}

fn join(ours: &mut [f64], theirs: &[f64], with: impl Fn(f64, f64) -> f64) {
    ours.iter_mut().zip(theirs).for_each(|(ours, theirs)| *ours = with(*ours, *theirs));
}

fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(min, max), value| {
        (min.min(value), max.max(value))
    })
}

/// All numbers of nested lists, in order. `None` if there is anything else.
fn flatten(value: &Value, numbers: &mut Vec<f64>) -> Option<()> {
    match value {
        Value::Array(list) => list.iter().try_for_each(|inner| flatten(inner, numbers)),
        other => other.as_f64().map(|number| numbers.push(number)),
    }
}

/// Counts values by bins of equal width.
#[derive(Default)]
struct Histogram {
    counts: Vec<u64>,
}

impl Histogram {
    /// The quantiles of values between `min` and `max`, each with how often it occurs. Linear in a
    /// bin; the lower end of the first.
    fn quantiles(
        &mut self,
        min: f64,
        max: f64,
        values: impl Iterator<Item = (f64, u64)>,
    ) -> [f64; 5] {
        let (low, high) = (min - MARGIN, max + MARGIN);
        let step = (high - low) / BINS as f64;
        // Large numbers have no others that close.
        if !(step > 0.0 && step.is_finite()) || low + step == low {
            return [min; 5];
        }
        let edge = |bin: usize| if bin == BINS { high } else { low + bin as f64 * step };
        self.counts.clear();
        self.counts.resize(BINS, 0);
        let mut all = 0;
        for (value, count) in values {
            let mut bin = (((value - low) / step) as usize).min(BINS - 1);
            // What division rounds to the wrong side of an edge.
            while bin > 0 && value < edge(bin) {
                bin -= 1;
            }
            while bin + 1 < BINS && value >= edge(bin + 1) {
                bin += 1;
            }
            self.counts[bin] += count;
            all += count;
        }
        QUANTILES.map(|(_, quantile)| {
            let target = quantile * all as f64;
            let mut before = 0;
            for (bin, count) in self.counts.iter().enumerate() {
                if (before + count) as f64 >= target {
                    let part = (target - before as f64) / (*count).max(1) as f64;
                    let is_first = bin == 0 || *count == 0;
                    return if is_first {
                        edge(bin)
                    } else {
                        edge(bin) + part * (edge(bin + 1) - edge(bin))
                    };
                }
                before += count;
            }
            high
        })
    }
}

/// The frames of an episode whose images are sampled, spread evenly.
pub(crate) fn sampled_frames(frames: usize) -> Vec<usize> {
    let most = (frames as f64).powf(0.75) as usize;
    let count = 100.min(frames).max(most.min(10_000));
    let last = frames.saturating_sub(1) as f64;
    let parts = count.saturating_sub(1).max(1) as f64;
    // Halves round to even, as in Python.
    (0..count).map(|n| (n as f64 * (last / parts)).round_ties_even() as usize).collect()
}

/// Every how many pixels of an image of these sides count.
pub(crate) fn sampled_step(height: usize, width: usize) -> usize {
    let longer = height.max(width);
    if longer < 300 { 1 } else { (longer as f64 / 150.0) as usize }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stats(values: &[f64]) -> FeatureStats {
        FeatureStats::from_values(values.len() as u64, values.len(), 1, |n| values[n])
    }

    #[test]
    fn statistics_are_those_of_the_reference_writer() {
        let values: Vec<f64> = (0..100).map(f64::from).collect();
        let found = stats(&values);
        assert_eq!((found.min[0], found.max[0], found.mean[0]), (0.0, 99.0, 49.5));
        assert!((found.std[0].powi(2) - 833.25).abs() < 1e-9);
        // The first bin gives its lower end.
        assert_eq!(found.quantiles[0][0], -1e-10);
        // The 50th value is 49, near the middle of its bin.
        assert!((found.quantiles[2][0] - 49.0).abs() < 99.0 / 5000.0);
    }

    #[test]
    fn quantiles_of_one_value_are_that_value_and_those_of_a_constant_are_near_it() {
        assert_eq!(stats(&[7.5]).quantiles.concat(), [7.5; 5]);
        for quantile in stats(&[3.0; 10]).quantiles.concat() {
            assert!((quantile - 3.0).abs() < 2e-10);
        }
        assert_eq!(stats(&[1e18; 4]).quantiles.concat(), [1e18; 5]);
    }

    #[test]
    fn axes_are_separate_dimensions() {
        let values = [1.0, 10.0, 2.0, 20.0, 3.0, 30.0];
        let found = FeatureStats::from_values(3, 3, 2, |n| values[n]);
        assert_eq!(found.mean, [2.0, 20.0]);
        assert_eq!(found.max, [3.0, 30.0]);
    }

    #[test]
    fn images_are_counted_from_0_to_1() {
        let mut counts = [[0; 256]; 1];
        counts[0][0] = 1;
        counts[0][255] = 1;
        let found = FeatureStats::from_counts(4, &counts);
        assert_eq!((found.count, found.min[0], found.max[0], found.mean[0]), (4, 0.0, 1.0, 0.5));
        assert!((found.std[0].powi(2) - 0.25).abs() < 1e-12);
        assert_eq!(found.to_json(true)["mean"], json!([[[0.5]]]));
    }

    #[test]
    fn sampling_is_that_of_the_reference_writer() {
        assert_eq!(sampled_frames(1), [0]);
        assert_eq!(sampled_frames(100), (0..100).collect::<Vec<_>>());
        let thousand = sampled_frames(1000);
        assert_eq!((thousand.len(), thousand[0], thousand[176]), (177, 0, 999));
        assert_eq!((sampled_step(299, 1), sampled_step(480, 640), sampled_step(300, 1)), (1, 4, 2));
    }

    #[test]
    fn statistics_of_large_numbers_are_finite() {
        let large = [1.0, 1.0, 1e160, 1.0, 1.0];
        let found = stats(&large);
        assert!((found.mean[0] / 2e159 - 1.0).abs() < 1e-12, "{found:?}");
        assert!((found.std[0] / 4e159 - 1.0).abs() < 1e-12, "{found:?}");
        let extreme = stats(&[f64::MAX, -f64::MAX, f64::MAX, -f64::MAX]);
        assert_eq!((extreme.mean[0], extreme.std[0]), (0.0, f64::MAX));
        let mut joined = stats(&[1e160]);
        joined.add(&stats(&[-1e160]));
        assert!(joined.mean[0] == 0.0 && (joined.std[0] / 1e160 - 1.0).abs() < 1e-12);
        for stats in [found, extreme, joined] {
            let read = FeatureStats::from_json(&stats.to_json(false), 1);
            assert_eq!(read, Some(stats));
        }
    }

    proptest! {
        #[test]
        fn joined_statistics_are_those_of_all_values(
            one in prop::collection::vec(-1e6f64..1e6, 1..50),
            other in prop::collection::vec(-1e6f64..1e6, 1..50))
        {
            let mut joined = stats(&one);
            joined.add(&stats(&other));
            let all = stats(&[&one[..], &other[..]].concat());
            prop_assert_eq!((joined.count, joined.min[0], joined.max[0]), (all.count, all.min[0], all.max[0]));
            prop_assert!((joined.mean[0] - all.mean[0]).abs() < 1e-6);
            let (variance, of_all) = (joined.std[0].powi(2), all.std[0].powi(2));
            prop_assert!((variance - of_all).abs() <= 1e-9 * of_all.max(1.0));
            let read = FeatureStats::from_json(&joined.to_json(false), 1).unwrap();
            prop_assert_eq!(read, joined);
        }

        #[test]
        fn quantiles_rise_and_lie_between_the_bounds(values in prop::collection::vec(-1e9f64..1e9, 2..80)) {
            let found = stats(&values);
            let quantiles = found.quantiles.concat();
            prop_assert!(quantiles.is_sorted());
            prop_assert!(quantiles[0] >= found.min[0] - 1e-9 && quantiles[4] <= found.max[0] + 1e-9);
        }
    }
}
