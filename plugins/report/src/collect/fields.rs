//! The values of numeric fields: least, greatest, mean, and their course over time.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, Float64Array, RecordBatch};
use arrow_cast::cast;
use arrow_schema::DataType;
use sluice_model::{Batch, FieldPath, Rows};

use super::grid::{BucketValue, BucketWidth, Buckets};
use super::sum::ExactSum;
use crate::{FieldFigures, TimeGrid};

/// The values of one field of a channel.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FieldPart {
    pub(super) path: Arc<str>,
    count: u64,
    nulls: u64,
    not_finite: u64,
    min: Option<Extreme>,
    max: Option<Extreme>,
    sum: ExactSum,
    series: Buckets<ValueRange>,
}

/// A value, and the earliest time of it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Extreme {
    value: f64,
    time: i64,
}

impl Extreme {
    /// The one that is first by an order of values.
    fn or(self, other: Self, is_better: bool) -> Self {
        let is_earlier = other.value == self.value && other.time < self.time;
        if is_better || is_earlier { other } else { self }
    }
}

/// The least and the greatest value in a bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ValueRange {
    min: f64,
    max: f64,
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

impl FieldPart {
    pub(super) fn new(path: Arc<str>) -> Self {
        Self {
            path,
            count: 0,
            nulls: 0,
            not_finite: 0,
            min: None,
            max: None,
            sum: ExactSum::default(),
            series: Buckets::default(),
        }
    }

    /// Adds the value of the next event.
    fn add(&mut self, value: Option<f64>, time: i64, width: BucketWidth) {
        let Some(value) = value else {
            self.nulls += 1;
            return;
        };
        if !value.is_finite() {
            self.not_finite += 1;
            return;
        }
        // Of zero and minus zero, the order would decide.
        let value = value + 0.0;
        self.count += 1;
        self.sum.add(value);
        let here = Extreme { value, time };
        self.add_extremes(here, here);
        self.series.add(width.bucket(time), ValueRange { min: value, max: value });
    }

    fn add_extremes(&mut self, low: Extreme, high: Extreme) {
        self.min = Some(self.min.map_or(low, |min| min.or(low, low.value < min.value)));
        self.max = Some(self.max.map_or(high, |max| max.or(high, high.value > max.value)));
    }

    /// Adds other values, in buckets of the same width. Order does not matter.
    pub(super) fn append(&mut self, next: Self) {
        self.count += next.count;
        self.nulls += next.nulls;
        self.not_finite += next.not_finite;
        if let (Some(min), Some(max)) = (next.min, next.max) {
            self.add_extremes(min, max);
        }
        self.sum.append(&next.sum);
        self.series.append(next.series);
    }

    pub(super) fn widen(&mut self, from: BucketWidth, to: BucketWidth) {
        self.series.widen(from, to);
    }

    /// Its figures, with a series if it is plotted.
    pub(super) fn figures(&self, plot: Option<&TimeGrid>, width: BucketWidth) -> FieldFigures {
        let range = |range: &ValueRange| Some([range.min, range.max]);
        FieldFigures {
            path: self.path.to_string(),
            count: self.count,
            nulls: self.nulls,
            not_finite: self.not_finite,
            min: self.min.map(|min| min.value),
            min_at: self.min.map_or(0, |min| min.time),
            max: self.max.map(|max| max.value),
            max_at: self.max.map_or(0, |max| max.time),
            mean: self.sum.mean(self.count),
            series: plot.map(|grid| self.series.dense(grid, width, range)).unwrap_or_default(),
        }
    }

    /// Whether a plot of it shows anything: its values differ.
    pub(super) fn varies(&self) -> bool {
        self.min.zip(self.max).is_some_and(|(min, max)| min.value < max.value)
    }
}

/// The rows of one type, by channel.
pub(super) struct ChannelRows<'b> {
    batch: &'b Batch,
    rows: &'b Rows,
    /// The channels that have rows.
    channels: Vec<RowsChannel>,
    /// For each row, its channel among these.
    owners: Vec<u32>,
}

/// A channel that has rows.
#[derive(Clone, Copy)]
pub(super) struct RowsChannel {
    /// Its place in the part.
    pub(super) place: usize,
    /// Its first event that has a row.
    pub(super) first: u32,
}

impl<'b> ChannelRows<'b> {
    /// `place` has the place of each event's channel.
    pub(super) fn new(
        batch: &'b Batch,
        rows: &'b Rows,
        place: impl Fn(u32) -> Option<usize>,
    ) -> Self {
        let mut channels: Vec<RowsChannel> = Vec::new();
        let mut known: Vec<u32> = Vec::new();
        let mut owners = Vec::with_capacity(rows.events.len());
        for event in &rows.events {
            let place = place(*event).unwrap_or(0);
            if known.len() <= place {
                known.resize(place + 1, u32::MAX);
            }
            if known[place] == u32::MAX {
                known[place] = channels.len() as u32;
                channels.push(RowsChannel { place, first: *event });
            }
            owners.push(known[place]);
        }
        Self { batch, rows, channels, owners }
    }

    /// The channels that have rows, with the rows and times of their events.
    pub(super) fn by_channel(&self) -> Vec<(RowsChannel, Vec<(usize, i64)>)> {
        let none = |channel: &RowsChannel| (*channel, Vec::new());
        let mut each: Vec<(RowsChannel, Vec<(usize, i64)>)> =
            self.channels.iter().map(none).collect();
        let times = self.batch.timestamps();
        for (row, (event, owner)) in self.rows.events.iter().zip(&self.owners).enumerate() {
            each[*owner as usize].1.push((row, times[*event as usize]));
        }
        each
    }

    /// The paths that may lead to numbers, in order: elements of fixed-size lists are fields of
    /// their own if they are at most 64, other lists have none.
    pub(super) fn paths(&self) -> Vec<FieldPath> {
        FieldPath::leaves(&self.rows.columns.schema())
    }

    /// The values of a field by channel; none if they are no numbers.
    pub(super) fn values(
        &self,
        path: &FieldPath,
        width: BucketWidth,
    ) -> impl Iterator<Item = (RowsChannel, FieldPart)> {
        let name: Arc<str> = path.to_string().into();
        let values = doubles(path, &self.rows.columns);
        let channels = if values.is_some() { self.channels.as_slice() } else { &[] };
        let mut parts: Vec<FieldPart> =
            channels.iter().map(|_| FieldPart::new(Arc::clone(&name))).collect();
        let times = self.batch.timestamps();
        if let Some(values) = values {
            for (row, (event, owner)) in self.rows.events.iter().zip(&self.owners).enumerate() {
                let value = values.is_valid(row).then(|| values.value(row));
                parts[*owner as usize].add(value, times[*event as usize], width);
            }
        }
        channels.iter().copied().zip(parts)
    }
}

fn doubles(path: &FieldPath, columns: &RecordBatch) -> Option<Float64Array> {
    let array = path.resolve(columns)?;
    if !array.data_type().is_numeric() {
        return None;
    }
    let doubles = cast(&array, &DataType::Float64).ok()?;
    Some(doubles.as_primitive::<Float64Type>().clone())
}
