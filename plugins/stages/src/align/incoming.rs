//! The events of incoming batches, one after the other, with their times. Keeps no values.

use std::collections::VecDeque;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array};
use sluice_model::{Batch, Rows};

use super::guard::Arrival;
use super::plan::AlignPlan;
use super::select::{time_column, value_column};
use super::track::Place;

/// The number of no chunk: the event has no values.
pub(super) const NO_CHUNK: u64 = u64::MAX;

/// Batches whose events are taken one after the other.
#[derive(Default)]
pub(super) struct IncomingEvents(VecDeque<IncomingBatch>);

struct IncomingBatch {
    batch: Batch,
    /// By event: the number of its rows in `rows`, and its row.
    row_of: Vec<Option<(u32, u32)>>,
    rows: Vec<IncomingRows>,
    /// The next event, and the next of its channel's inputs.
    next: (usize, usize),
}

/// By input of the channel, its own times, and the number of its chunk.
struct IncomingRows(Vec<(Option<Int64Array>, u64)>);

/// What comes next.
pub(super) enum Incoming {
    Arrival(Arrival),
    /// An event of this input without the time that it should have.
    Untimed(usize),
}

impl IncomingEvents {
    /// Adds a batch. `channels` are those of the plan, by channel id. `keep` takes the values of an
    /// input's tracks, and returns the number of their chunk.
    pub(super) fn push(
        &mut self,
        batch: Batch,
        plan: &AlignPlan,
        channels: &[Option<usize>],
        mut keep: impl FnMut(usize, Vec<Option<ArrayRef>>) -> u64,
    ) {
        let mut row_of = vec![None; batch.len()];
        let mut rows = Vec::with_capacity(batch.rows().len());
        for (number, of) in (0u32..).zip(batch.rows()) {
            for (row, event) in (0u32..).zip(&of.events) {
                row_of[*event as usize] = Some((number, row));
            }
            let channel = of.events.first().map(|event| batch.channels()[*event as usize]);
            let channel = channel.and_then(|id| channels.get(id as usize).copied().flatten());
            rows.push(IncomingRows::new(of, plan, channel, &mut keep));
        }
        let batch = batch.with_rows(Vec::new());
        self.0.push_back(IncomingBatch { batch, row_of, rows, next: (0, 0) });
    }

    /// The next event, once for each input of its channel; `None` after the last one.
    pub(super) fn next(
        &mut self,
        plan: &AlignPlan,
        channels: &[Option<usize>],
    ) -> Option<Incoming> {
        loop {
            let of = self.0.front_mut()?;
            let (event, at) = of.next;
            let Some(channel) = of.batch.channels().get(event) else {
                self.0.pop_front();
                continue;
            };
            let channel = channels.get(*channel as usize).copied().flatten();
            let inputs = channel.map(|at| plan.channels[at].inputs.as_slice()).unwrap_or_default();
            if let Some(input) = inputs.get(at) {
                of.next = (event, at + 1);
                return Some(of.incoming(event, at, *input, plan));
            }
            of.next = (event + 1, 0);
        }
    }
}

impl IncomingBatch {
    fn incoming(&self, event: usize, at: usize, input: usize, plan: &AlignPlan) -> Incoming {
        let place = self.row_of[event];
        let rows = place.and_then(|(number, _)| self.rows[number as usize].0.get(at));
        let row = place.map_or(0, |(_, row)| row);
        let time = match (&plan.inputs[input].time, rows) {
            (None, _) => self.batch.timestamps()[event],
            (Some(_), Some((Some(times), _))) if times.is_valid(row as usize) => {
                times.value(row as usize)
            }
            (Some(_), _) => return Incoming::Untimed(input),
        };
        let place = Place { chunk: rows.map_or(NO_CHUNK, |(_, chunk)| *chunk), row };
        let sequence = self.batch.sequences()[event];
        Incoming::Arrival(Arrival { time, input, sequence, place })
    }
}

impl IncomingRows {
    fn new(
        of: &Rows,
        plan: &AlignPlan,
        channel: Option<usize>,
        keep: &mut impl FnMut(usize, Vec<Option<ArrayRef>>) -> u64,
    ) -> Self {
        let inputs = channel.map(|at| plan.channels[at].inputs.as_slice()).unwrap_or_default();
        let each = inputs.iter().map(|input| {
            let times = of.columns.column_by_name(&time_column(*input));
            let times = times.and_then(|times| times.as_primitive_opt::<Int64Type>()).cloned();
            let tracks = plan.inputs[*input].tracks.iter();
            let values =
                tracks.map(|track| of.columns.column_by_name(&value_column(*track)).cloned());
            (times, keep(*input, values.collect()))
        });
        Self(each.collect())
    }
}
