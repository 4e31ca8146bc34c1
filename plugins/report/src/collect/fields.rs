//! The values of numeric fields: least, greatest, mean, and their course over time.

use std::sync::Arc;

use arrow_array::{Array, Float64Array};
use sluice_model::{Batch, Rows};

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

    /// Its values, leaving none.
    pub(super) fn take(&mut self) -> Self {
        let path = Arc::clone(&self.path);
        std::mem::replace(self, Self::new(path))
    }

    /// Adds a run of numbers, all finite.
    fn add_run(&mut self, values: &[f64], run: &Run, times: &[i64]) {
        let Some(first) = values.first() else { return };
        let range =
            (values.iter()).fold(ValueRange { min: *first, max: *first }, |range, value| {
                // Comparisons rather than `f64::min`, which is slower because of NaN.
                let min = if *value < range.min { *value } else { range.min };
                ValueRange { min, max: if *value > range.max { *value } else { range.max } }
            });
        let earliest = |extreme: f64| {
            let at = values.iter().zip(times).filter(|(value, _)| **value == extreme);
            at.map(|(_, time)| *time).min().unwrap_or(run.earliest)
        };
        let beats = |known: Option<Extreme>, value: f64, is_better: fn(&f64, &f64) -> bool| {
            known.is_none_or(|known| {
                let is_earlier = value == known.value && run.earliest < known.time;
                is_better(&value, &known.value) || is_earlier
            })
        };
        if beats(self.min, range.min, f64::lt) {
            let low = Extreme { value: range.min, time: earliest(range.min) };
            self.min = Some(self.min.map_or(low, |min| min.or(low, low.value < min.value)));
        }
        if beats(self.max, range.max, f64::gt) {
            let high = Extreme { value: range.max, time: earliest(range.max) };
            self.max = Some(self.max.map_or(high, |max| max.or(high, high.value > max.value)));
        }
        self.count += values.len() as u64;
        self.sum.add_all(values);
        self.series.add(run.bucket, range);
    }

    fn add_extremes(&mut self, low: Extreme, high: Extreme) {
        self.min = Some(self.min.map_or(low, |min| min.or(low, low.value < min.value)));
        self.max = Some(self.max.map_or(high, |max| max.or(high, high.value > max.value)));
    }

    /// Adds other values, in buckets of the same width. Order does not matter.
    pub(super) fn append(&mut self, next: &Self) {
        self.count += next.count;
        self.nulls += next.nulls;
        self.not_finite += next.not_finite;
        if let (Some(min), Some(max)) = (next.min, next.max) {
            self.add_extremes(min, max);
        }
        self.sum.append(&next.sum);
        self.series.append(&next.series);
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

/// The rows of a channel among those of a type.
pub(super) struct ChannelRows {
    /// The place of the channel in the part.
    pub(super) place: usize,
    /// Its first event that has a row.
    pub(super) first: u32,
    rows: Vec<u32>,
    times: Vec<i64>,
    runs: Vec<Run>,
}

/// Rows that follow each other in the same bucket of time.
struct Run {
    bucket: i64,
    /// Their earliest time.
    earliest: i64,
    /// The end of the rows, among those of the channel.
    end: usize,
}

impl ChannelRows {
    /// The rows of one type, by channel in order of their first events. `place` has the place of
    /// each event's channel.
    pub(super) fn by_channel(
        batch: &Batch,
        rows: &Rows,
        width: BucketWidth,
        place: impl Fn(u32) -> Option<usize>,
    ) -> Vec<Self> {
        let place = |event: &u32| place(*event).unwrap_or(0);
        let mut counts: Vec<usize> = Vec::new();
        for event in &rows.events {
            let place = place(event);
            if counts.len() <= place {
                counts.resize(place + 1, 0);
            }
            counts[place] += 1;
        }
        let mut channels: Vec<Self> = Vec::new();
        let mut known: Vec<u32> = vec![u32::MAX; counts.len()];
        for (row, event) in (0..).zip(&rows.events) {
            let place = place(event);
            if known[place] == u32::MAX {
                known[place] = channels.len() as u32;
                channels.push(Self::with_capacity(place, *event, counts[place]));
            }
            let channel = &mut channels[known[place] as usize];
            channel.push(row, batch.timestamps()[*event as usize], width);
        }
        channels
    }

    fn with_capacity(place: usize, first: u32, rows: usize) -> Self {
        let (times, rows) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
        Self { place, first, rows, times, runs: Vec::new() }
    }

    fn push(&mut self, row: u32, time: i64, width: BucketWidth) {
        self.rows.push(row);
        self.times.push(time);
        let (bucket, end) = (width.bucket(time), self.rows.len());
        match self.runs.last_mut() {
            Some(run) if run.bucket == bucket => {
                run.end = end;
                run.earliest = run.earliest.min(time);
            }
            _ => self.runs.push(Run { bucket, earliest: time, end }),
        }
    }

    /// The rows and times of its events.
    pub(super) fn events(&self) -> impl ExactSizeIterator<Item = (usize, i64)> {
        self.rows.iter().zip(&self.times).map(|(row, time)| (*row as usize, *time))
    }

    /// The values of a field.
    pub(super) fn values(&self, path: &Arc<str>, of: &Float64Array) -> FieldPart {
        let mut part = FieldPart::new(Arc::clone(path));
        let nulls = of.nulls().filter(|nulls| nulls.null_count() > 0);
        let picked: Vec<f64>;
        let values = match self.rows.len() == of.len() {
            true => &of.values()[..],
            false => {
                let all = of.values();
                picked = self.rows.iter().map(|row| all[*row as usize]).collect();
                &picked[..]
            }
        };
        if nulls.is_none() && values.iter().all(|value| value.is_finite()) {
            let mut start = 0;
            for run in &self.runs {
                part.add_run(&values[start..run.end], run, &self.times[start..run.end]);
                start = run.end;
            }
            return part;
        }
        let mut runs = self.runs.iter().peekable();
        for (at, (row, value)) in self.rows.iter().zip(values).enumerate() {
            runs.next_if(|run| run.end <= at);
            let bucket = runs.peek().map_or(0, |run| run.bucket);
            match nulls.is_some_and(|nulls| nulls.is_null(*row as usize)) {
                true => part.nulls += 1,
                false if !value.is_finite() => part.not_finite += 1,
                false => {
                    let run = Run { bucket, earliest: self.times[at], end: at + 1 };
                    part.add_run(&[*value], &run, &self.times[at..=at]);
                }
            }
        }
        part
    }
}
