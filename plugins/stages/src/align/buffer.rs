//! Finished rows, until there are enough for a batch. Decides nothing about them.

use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{Field, Schema};
use sluice_model::{Batch, BatchBuilder, ChannelId, Error, MessageType, Payloads, Rows, TypeKey};

use super::columns::{TrackValues, vector};
use super::plan::AlignPlan;
use super::rows::RowTime;
use super::track::Pick;

/// The most rows of a batch.
const MAX_ROWS: usize = 4096;
/// The most bytes of their values, about.
const MAX_BYTES: u64 = 8 << 20;

/// Finished rows.
#[derive(Debug, Default)]
pub(super) struct RowBuffer {
    times: Vec<i64>,
    sequences: Vec<i64>,
    /// By track, the value of each row.
    picks: Vec<Vec<Pick>>,
    runs: Vec<TypedRun>,
    bytes: u64,
}

/// Rows one after the other whose values have the same types.
#[derive(Debug)]
struct TypedRun {
    start: usize,
    /// By track.
    kinds: Vec<usize>,
}

impl RowBuffer {
    pub(super) fn new(tracks: usize) -> Self {
        Self { picks: vec![Vec::new(); tracks], ..Self::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.times.len() >= MAX_ROWS || self.bytes >= MAX_BYTES
    }

    /// Adds a row: by track, its value and the number of its type.
    pub(super) fn push(&mut self, row: RowTime, picks: &[Pick], kinds: &[usize], bytes: u64) {
        if self.runs.last().is_none_or(|run| run.kinds != kinds) {
            self.runs.push(TypedRun { start: self.times.len(), kinds: kinds.to_vec() });
        }
        self.times.push(row.time);
        self.sequences.push(row.sequence);
        self.picks.iter_mut().zip(picks).for_each(|(all, pick)| all.push(*pick));
        self.bytes += bytes;
    }

    /// The rows as events of `channel`. `values` are those of a track that have a type.
    pub(super) fn take<'v>(
        &mut self,
        plan: &AlignPlan,
        channel: ChannelId,
        values: impl Fn(usize, usize) -> TrackValues<'v>,
    ) -> Result<Batch, Error> {
        let mut builder = BatchBuilder::with_capacity(self.times.len());
        for (time, sequence) in self.times.iter().zip(&self.sequences) {
            builder.push_copy(*time, *sequence, channel, b"");
        }
        let ends = self.runs.iter().skip(1).map(|run| run.start).chain([self.times.len()]);
        let mut rows = Vec::new();
        for (run, end) in self.runs.iter().zip(ends) {
            let column = |(track, kind): (usize, &usize)| {
                let picks = self.picks[track].get(run.start..end).unwrap_or_default();
                values(track, *kind).column(picks)
            };
            let columns = run.kinds.iter().enumerate().map(column);
            let columns = columns.collect::<Result<Vec<ArrayRef>, Error>>()?;
            rows.push(typed_rows(plan, &columns, run.start..end)?);
        }
        *self = Self::new(self.picks.len());
        Ok(builder.finish().with_rows(rows))
    }
}

fn typed_rows(
    plan: &AlignPlan,
    tracks: &[ArrayRef],
    events: std::ops::Range<usize>,
) -> Result<Rows, Error> {
    let (mut fields, mut columns) = (Vec::new(), Vec::new());
    for column in &plan.columns {
        let tracks = tracks.get(column.tracks.clone()).unwrap_or_default();
        let values = match tracks {
            [one] if !column.is_vector => Arc::clone(one),
            several => vector(several)?,
        };
        fields.push(Field::new(column.name.as_str(), values.data_type().clone(), true));
        columns.push(values);
    }
    let schema = Arc::new(Schema::new(fields));
    let form = format!("{:?}", schema.fields());
    let key = TypeKey::from_parts([plan.name.as_bytes(), form.as_bytes()]);
    let message = Arc::new(MessageType::part(plan.name.as_str(), key));
    let columns = RecordBatch::try_new(schema, columns)
        .map_err(|error| Error::internal(format!("aligned rows: {error}")))?;
    let events = events.map(|event| event as u32).collect();
    Ok(Rows { message, payloads: Payloads::Gone, events, columns })
}
