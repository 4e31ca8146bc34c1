//! The rows of one type, by channel.

use std::ops::Range;
use std::sync::Arc;

use sluice_model::{Batch, Rows};

use super::grid::BucketWidth;
use super::row_types::RowType;

/// The rows of one type in a batch, grouped by channel.
pub(super) struct TypeRows<'b> {
    pub(super) rows: &'b Rows,
    pub(super) of: Arc<RowType>,
    /// The places of the rows, channel after channel.
    order: Vec<u32>,
    /// The times of their events.
    times: Vec<i64>,
    runs: Vec<Run>,
    channels: Vec<ChannelRange>,
}

/// A channel, and which rows and runs are its own.
struct ChannelRange {
    place: usize,
    first: u32,
    rows: Range<usize>,
    runs: Range<usize>,
    is_in_order: bool,
}

/// Rows of a channel that follow each other in the same bucket of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Run {
    pub(super) bucket: i64,
    /// Their end among the rows of the channel.
    pub(super) end: usize,
}

/// The rows of a channel among those of a type.
#[derive(Clone, Copy)]
pub(super) struct ChannelRows<'t> {
    /// The place of the channel in the part.
    pub(super) place: usize,
    /// Its first event that has a row.
    pub(super) first: u32,
    pub(super) rows: &'t [u32],
    pub(super) times: &'t [i64],
    /// Whether no time is before the one that precedes it.
    pub(super) is_in_order: bool,
    pub(super) runs: &'t [Run],
}

impl<'b> TypeRows<'b> {
    /// `place` has the place of each event's channel.
    pub(super) fn new(
        batch: &Batch,
        (rows, of): (&'b Rows, Arc<RowType>),
        width: BucketWidth,
        place: impl Fn(u32) -> Option<usize>,
    ) -> Self {
        let place = |event: &u32| place(*event).unwrap_or(0);
        let mut channels: Vec<ChannelRange> = Vec::new();
        // The channel's number in `channels`, by its place.
        let mut known: Vec<u32> = Vec::new();
        for event in &rows.events {
            let place = place(event);
            if known.len() <= place {
                known.resize(place + 1, u32::MAX);
            }
            if known[place] == u32::MAX {
                known[place] = channels.len() as u32;
                channels.push(ChannelRange {
                    place,
                    first: *event,
                    rows: 0..0,
                    runs: 0..0,
                    is_in_order: true,
                });
            }
            channels[known[place] as usize].rows.end += 1;
        }
        let mut start = 0;
        for channel in &mut channels {
            let end = start + channel.rows.end;
            // The end grows again with every row that is put in its place.
            channel.rows = start..start;
            start = end;
        }
        let (mut order, mut times) = (vec![0; start], vec![0; start]);
        for (row, event) in (0..).zip(&rows.events) {
            let channel = &mut channels[known[place(event)] as usize];
            order[channel.rows.end] = row;
            times[channel.rows.end] = batch.timestamps()[*event as usize];
            channel.rows.end += 1;
        }
        let mut runs = Vec::new();
        for channel in &mut channels {
            let first = runs.len();
            let times = &times[channel.rows.clone()];
            channel.is_in_order = times.is_sorted();
            add_runs(times, width, &mut runs);
            channel.runs = first..runs.len();
        }
        Self { rows, of, order, times, runs, channels }
    }

    /// The rows of each channel, in order of their first events.
    pub(super) fn channels(&self) -> impl ExactSizeIterator<Item = ChannelRows<'_>> {
        self.channels.iter().map(|channel| ChannelRows {
            place: channel.place,
            first: channel.first,
            rows: &self.order[channel.rows.clone()],
            times: &self.times[channel.rows.clone()],
            is_in_order: channel.is_in_order,
            runs: &self.runs[channel.runs.clone()],
        })
    }
}

fn add_runs(times: &[i64], width: BucketWidth, to: &mut Vec<Run>) {
    let first = to.len();
    for (time, end) in times.iter().zip(1..) {
        let bucket = width.bucket(*time);
        match to.get_mut(first..).and_then(<[Run]>::last_mut) {
            Some(run) if run.bucket == bucket => run.end = end,
            _ => to.push(Run { bucket, end }),
        }
    }
}

impl ChannelRows<'_> {
    /// The rows and times of its events.
    pub(super) fn events(&self) -> impl ExactSizeIterator<Item = (usize, i64)> {
        self.rows.iter().zip(self.times).map(|(row, time)| (*row as usize, *time))
    }

    /// Its rows, if there are no others between them.
    pub(super) fn adjoining(&self) -> Option<Range<usize>> {
        let (first, last) = (*self.rows.first()? as usize, *self.rows.last()? as usize);
        (last - first + 1 == self.rows.len()).then_some(first..last + 1)
    }
}
