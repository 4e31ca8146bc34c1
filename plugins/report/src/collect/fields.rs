//! The values of numeric fields: least, greatest, mean, and their course over time.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use arrow_array::{Array, Float64Array};

use super::grid::{BucketValue, BucketWidth, Buckets};
use super::row_types::RowType;
use super::sum::ExactSum;
use super::type_rows::{ChannelRows, TypeRows};
use crate::{FieldFigures, TimeGrid};

/// The values of a field, but for their course.
#[derive(Clone, Debug, Default, PartialEq)]
struct FieldValues {
    count: u64,
    nulls: u64,
    not_finite: u64,
    min: Option<Extreme>,
    max: Option<Extreme>,
    sum: ExactSum,
}

/// A value, and the earliest time of it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Extreme {
    value: f64,
    time: i64,
}

impl Extreme {
    /// Of these values with their times, the earliest that is equal to `value`.
    fn find(value: f64, of: &FiniteValues<'_>) -> Self {
        let equal = of.values.iter().zip(of.times).filter(|(other, _)| **other == value);
        let mut times = equal.map(|(_, time)| *time);
        let time = if of.is_in_order { times.next() } else { times.min() };
        Self { value, time: time.unwrap_or_default() }
    }

    /// The one that is first by an order of values.
    fn or(self, other: Self, is_better: bool) -> Self {
        let is_earlier = other.value == self.value && other.time < self.time;
        if is_better || is_earlier { other } else { self }
    }
}

/// The least and the greatest value.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ValueRange {
    min: f64,
    max: f64,
}

impl ValueRange {
    /// The range of finite values; `None` if there are none.
    fn of(values: &[f64]) -> Option<Self> {
        let first = values.first()?;
        let range = Self { min: *first, max: *first };
        Some(values.iter().fold(range, |range, value| {
            // Comparisons rather than `f64::min`, which is slower because of NaN.
            let min = if *value < range.min { *value } else { range.min };
            Self { min, max: if *value > range.max { *value } else { range.max } }
        }))
    }
}

impl BucketValue for ValueRange {
    fn append(&mut self, next: Self) {
        if next.min < self.min {
            self.min = next.min;
        }
        if next.max > self.max {
            self.max = next.max;
        }
    }
}

impl FieldValues {
    /// Adds others. Order does not matter.
    fn append(&mut self, next: &Self) {
        self.count += next.count;
        self.nulls += next.nulls;
        self.not_finite += next.not_finite;
        if let (Some(low), Some(high)) = (next.min, next.max) {
            self.min = Some(self.min.map_or(low, |min| min.or(low, low.value < min.value)));
            self.max = Some(self.max.map_or(high, |max| max.or(high, high.value > max.value)));
        }
        self.sum.append(&next.sum);
    }
}

/// The values of the numeric fields of a batch.
#[derive(Clone, Debug, Default)]
pub(super) struct BatchFields {
    /// In order of their first event.
    channels: Vec<ChannelFields>,
    /// The leaf of the type that each field is, and its values.
    fields: Vec<(u32, FieldValues)>,
    /// Of each channel, the buckets of its runs.
    buckets: Vec<i64>,
    /// Of each field, the range of its values in each of the channel's runs.
    ranges: Vec<Option<ValueRange>>,
}

/// The fields of one channel and type: which of those of the batch are its own.
#[derive(Clone, Debug)]
struct ChannelFields {
    /// The channel's number.
    channel: u32,
    first: u32,
    of: Arc<RowType>,
    fields: Range<usize>,
    buckets: Range<usize>,
    /// Where the ranges of its first field start.
    ranges: usize,
}

/// The finite values of a field, with their times.
struct FiniteValues<'f> {
    values: &'f [f64],
    times: &'f [i64],
    /// Whether no time is before the one that precedes it.
    is_in_order: bool,
    /// The end of each run.
    ends: &'f [usize],
    /// The number of rows without a value.
    nulls: u64,
}

/// Room for the values that are not beside each other in their column. Reused.
#[derive(Default)]
struct FieldBuffer {
    values: Vec<f64>,
    times: Vec<i64>,
    ends: Vec<usize>,
}

impl FieldBuffer {
    /// The finite values among those of these rows.
    fn finite<'f>(
        &'f mut self,
        rows: &'f ChannelRows<'_>,
        of: &'f Float64Array,
    ) -> FiniteValues<'f> {
        self.ends.clear();
        let (times, is_in_order) = (rows.times, rows.is_in_order);
        let plain = rows.adjoining().filter(|_| of.null_count() == 0);
        let plain = plain.map(|these| &of.values()[these]);
        // Without a branch for each value.
        let is_finite = |values: &&[f64]| values.iter().fold(true, |all, v| all & v.is_finite());
        if let Some(values) = plain.filter(is_finite) {
            self.ends.extend(rows.runs.iter().map(|run| run.end));
            return FiniteValues { values, times, is_in_order, ends: &self.ends, nulls: 0 };
        }
        self.values.clear();
        self.times.clear();
        let (mut start, mut nulls) = (0, 0);
        for run in rows.runs {
            for (row, time) in rows.rows[start..run.end].iter().zip(&times[start..run.end]) {
                let value = of.values()[*row as usize];
                if of.is_null(*row as usize) {
                    nulls += 1;
                } else if value.is_finite() {
                    self.values.push(value);
                    self.times.push(*time);
                }
            }
            self.ends.push(self.values.len());
            start = run.end;
        }
        let Self { values, times, ends } = self;
        FiniteValues { values, times, is_in_order, ends, nulls }
    }
}

impl BatchFields {
    /// The fields of these rows. `number` has the number of the channel at each place.
    pub(super) fn from_rows(by_type: &[TypeRows<'_>], number: impl Fn(usize) -> u32) -> Self {
        let (mut batch, mut buffer) = (Self::default(), FieldBuffer::default());
        batch.channels.reserve_exact(by_type.iter().map(|rows| rows.channels().len()).sum());
        for rows in by_type {
            let leaves = (0..).zip(&rows.of.leaves);
            let numbers: Vec<(u32, Float64Array)> = leaves
                .filter_map(|(leaf, path)| Some((leaf, path.numbers(&rows.rows.columns)?)))
                .collect();
            batch.fields.reserve(numbers.len() * rows.channels().len());
            for channel in rows.channels() {
                let starts = (batch.fields.len(), batch.buckets.len(), batch.ranges.len());
                batch.buckets.extend(channel.runs.iter().map(|run| run.bucket));
                for (leaf, numbers) in &numbers {
                    let finite = buffer.finite(&channel, numbers);
                    let values = batch.values(&finite, channel.rows.len());
                    batch.fields.push((*leaf, values));
                }
                batch.channels.push(ChannelFields {
                    channel: number(channel.place),
                    first: channel.first,
                    of: Arc::clone(&rows.of),
                    fields: starts.0..batch.fields.len(),
                    buckets: starts.1..batch.buckets.len(),
                    ranges: starts.2,
                });
            }
        }
        batch.channels.sort_by_key(|channel| channel.first);
        batch
    }

    /// Adds the ranges of a field's values in so many rows, and returns the rest.
    fn values(&mut self, of: &FiniteValues<'_>, rows: usize) -> FieldValues {
        let first = self.ranges.len();
        let mut start = 0;
        for end in of.ends {
            self.ranges.push(ValueRange::of(&of.values[start..*end]));
            start = *end;
        }
        let range = self.ranges[first..].iter().flatten().copied().reduce(|mut all, next| {
            all.append(next);
            all
        });
        let count = of.values.len() as u64;
        let mut sum = ExactSum::default();
        sum.add_all(of.values);
        FieldValues {
            count,
            nulls: of.nulls,
            not_finite: rows as u64 - count - of.nulls,
            min: range.map(|range| Extreme::find(range.min, of)),
            max: range.map(|range| Extreme::find(range.max, of)),
            sum,
        }
    }

    /// Makes the buckets wider.
    pub(super) fn widen(&mut self, from: BucketWidth, to: BucketWidth) {
        self.buckets.iter_mut().for_each(|bucket| *bucket = from.widened(*bucket, to));
    }
}

/// A field of a channel.
#[derive(Debug)]
pub(super) struct Field {
    pub(super) path: Arc<str>,
    values: FieldValues,
    course: Buckets<ValueRange>,
}

impl Field {
    fn append(&mut self, values: &FieldValues, course: impl Iterator<Item = (i64, ValueRange)>) {
        self.values.append(values);
        course.for_each(|(bucket, range)| self.course.add(bucket, range));
    }

    /// Its figures, with a series if it is plotted.
    pub(super) fn figures(&self, plot: Option<&TimeGrid>, width: BucketWidth) -> FieldFigures {
        let range = |range: &ValueRange| Some([range.min, range.max]);
        let FieldValues { count, nulls, not_finite, min, max, sum } = &self.values;
        FieldFigures {
            path: self.path.to_string(),
            count: *count,
            nulls: *nulls,
            not_finite: *not_finite,
            min: min.map(|min| min.value),
            min_at: min.map_or(0, |min| min.time),
            max: max.map(|max| max.value),
            max_at: max.map_or(0, |max| max.time),
            mean: sum.mean(*count),
            series: plot.map(|grid| self.course.dense(grid, width, range)).unwrap_or_default(),
        }
    }

    /// Whether a plot of it shows anything: its values differ.
    pub(super) fn varies(&self) -> bool {
        self.values.min.zip(self.values.max).is_some_and(|(min, max)| min.value < max.value)
    }
}

/// The most fields that are remembered as left out.
const MAX_LEFT_OUT: usize = 10_000;

/// The fields collected so far, within limits: those that come first in the log.
#[derive(Debug)]
pub(super) struct Fields {
    /// By the place of the channel.
    channels: Vec<FieldsOfChannel>,
    /// How many more are kept, of all channels.
    left: usize,
    /// How many are kept of each channel.
    of_channel: usize,
    /// The paths of fields that are kept in any case.
    kept: BTreeSet<String>,
    /// Fields beyond the limits, by the place of the channel and their path.
    left_out: BTreeSet<(usize, Arc<str>)>,
}

/// The fields of a channel, in order of their first event.
#[derive(Debug, Default)]
struct FieldsOfChannel {
    fields: Vec<Field>,
    /// The places in `fields` by path.
    by_path: BTreeMap<Arc<str>, usize>,
    /// The type of the rows added last, and the places of its leaves, as far as they are known.
    last_type: Option<(Arc<RowType>, Vec<Option<usize>>)>,
}

impl Fields {
    /// At most `left` fields, and `of_channel` of each channel.
    pub(super) fn limited(left: usize, of_channel: usize, kept: BTreeSet<String>) -> Self {
        Self { channels: Vec::new(), left, of_channel, kept, left_out: BTreeSet::new() }
    }

    /// The fields of the channel at this place.
    pub(super) fn of(&self, place: usize) -> &[Field] {
        self.channels.get(place).map_or(&[], |channel| &channel.fields)
    }

    /// The number of fields that are left out.
    pub(super) fn left_out(&self) -> usize {
        self.left_out.len()
    }

    pub(super) fn widen(&mut self, from: BucketWidth, to: BucketWidth) {
        let fields = self.channels.iter_mut().flat_map(|channel| &mut channel.fields);
        fields.for_each(|field| field.course.widen(from, to));
    }

    /// Adds those of the batch that follows, whose buckets have the same width. `place` has the
    /// place of each channel that is kept, by its number.
    pub(super) fn append(&mut self, next: &BatchFields, place: impl Fn(u32) -> Option<usize>) {
        for from in &next.channels {
            let Some(to) = place(from.channel) else { continue };
            if self.channels.len() <= to {
                self.channels.resize_with(to + 1, FieldsOfChannel::default);
            }
            let buckets = &next.buckets[from.buckets.clone()];
            self.channels[to].expect_type(&from.of);
            for (nth, (leaf, values)) in next.fields[from.fields.clone()].iter().enumerate() {
                let Some(field) = self.field(to, &from.of, *leaf as usize) else { continue };
                let ranges = from.ranges + nth * buckets.len();
                let ranges = next.ranges[ranges..].iter().zip(buckets);
                field.append(values, ranges.filter_map(|(range, at)| Some((*at, (*range)?))));
            }
        }
    }

    /// The field of a channel at a leaf of the type that is expected; `None` if it is left out.
    fn field(&mut self, place: usize, of: &RowType, leaf: usize) -> Option<&mut Field> {
        let channel = self.channels.get(place)?;
        let at = match channel.last_type.as_ref()?.1[leaf] {
            Some(at) => at,
            None => {
                let path = &of.leaves.get(leaf)?.text;
                let known = channel.by_path.get(path).copied();
                let at = known.or_else(|| self.add_field(place, path))?;
                let (_, places) = self.channels[place].last_type.as_mut()?;
                places[leaf] = Some(at);
                at
            }
        };
        self.channels[place].fields.get_mut(at)
    }

    /// Adds a field to a channel that does not have it, and returns its place; `None` if it is left
    /// out.
    fn add_field(&mut self, place: usize, path: &Arc<str>) -> Option<usize> {
        let channel = self.channels.get_mut(place)?;
        let is_within = channel.fields.len() < self.of_channel && self.left > 0;
        if !is_within && !self.kept.contains(&**path) {
            if self.left_out.len() < MAX_LEFT_OUT {
                self.left_out.insert((place, Arc::clone(path)));
            }
            return None;
        }
        self.left = self.left.saturating_sub(1);
        let at = channel.fields.len();
        channel.by_path.insert(Arc::clone(path), at);
        let (values, course) = (FieldValues::default(), Buckets::default());
        channel.fields.push(Field { path: Arc::clone(path), values, course });
        Some(at)
    }
}

impl FieldsOfChannel {
    /// Prepares for rows of this type.
    fn expect_type(&mut self, of: &Arc<RowType>) {
        if !self.last_type.as_ref().is_some_and(|(last, _)| Arc::ptr_eq(last, of)) {
            self.last_type = Some((Arc::clone(of), vec![None; of.leaves.len()]));
        }
    }
}
