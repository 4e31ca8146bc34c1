//! Decoded rows: the Arrow columns of a batch's payloads of one type. They travel with their batch.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array};
use arrow_select::interleave::interleave;
use arrow_select::take::take_arrays;

use crate::MessageType;

const GONE: u32 = u32::MAX;

/// The decoded messages of one type in a batch.
#[derive(Clone, Debug)]
pub struct Rows {
    /// The messages' type.
    pub message: Arc<MessageType>,
    /// Whether the events still have their payloads.
    pub payloads: Payloads,
    /// The event of each row, as its index in the batch, ascending.
    pub events: Vec<u32>,
    /// The columns, with one row per entry of `events`.
    pub columns: RecordBatch,
}

/// Whether the payloads that rows were decoded from travel with them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payloads {
    /// The events have their payloads.
    Kept,
    /// The events have only rows. Their payloads are empty and must be encoded before use.
    Gone,
}

impl Rows {
    /// An estimate of the memory of the columns, in bytes.
    pub fn memory(&self) -> usize {
        self.columns.get_array_memory_size()
    }

    /// Selects rows by index, ascending.
    ///
    /// # Panics
    ///
    /// If a number is out of range.
    pub fn pick(&self, rows: &[u32]) -> Self {
        let events = rows.iter().map(|row| self.events[*row as usize]).collect();
        self.with(events, self.take_rows(rows.to_vec()))
    }

    /// The rows of the events that `is_selected` accepts; `None` if there are none.
    pub fn pick_events(&self, is_selected: impl Fn(u32) -> bool) -> Option<Self> {
        let picked = (0..).zip(&self.events).filter(|(_, event)| is_selected(**event));
        let picked: Vec<u32> = picked.map(|(row, _)| row).collect();
        match picked.len() {
            0 => None,
            len if len == self.events.len() => Some(self.clone()),
            _ => Some(self.pick(&picked)),
        }
    }

    fn take_rows(&self, rows: Vec<u32>) -> Vec<ArrayRef> {
        take_arrays(self.columns.columns(), &UInt32Array::from(rows), None)
            .expect("rows are numbered as the columns are long")
    }

    /// The rows of the events at `positions` of a batch of `len` events; `None` if there are none.
    pub(crate) fn take(&self, positions: &[u32], len: usize) -> Option<Self> {
        let row_of = self.row_of_event(len);
        let kept = positions.iter().enumerate().filter_map(|(new, old)| {
            let row = *row_of.get(*old as usize)?;
            (row != GONE).then_some((new as u32, row))
        });
        let (events, rows): (Vec<u32>, Vec<u32>) = kept.unzip();
        if rows.is_empty() {
            return None;
        }
        Some(self.with(events, self.take_rows(rows)))
    }

    /// Replaces events and columns.
    fn with(&self, events: Vec<u32>, columns: Vec<ArrayRef>) -> Self {
        // A message without fields has rows but no columns, so the row count is explicit.
        let options = RecordBatchOptions::new().with_row_count(Some(events.len()));
        let columns = RecordBatch::try_new_with_options(self.columns.schema(), columns, &options)
            .expect("columns keep their types when rows are picked");
        Self { message: Arc::clone(&self.message), payloads: self.payloads, events, columns }
    }

    fn row_of_event(&self, len: usize) -> Vec<u32> {
        let mut row_of = vec![GONE; len];
        for (row, event) in self.events.iter().enumerate() {
            row_of[*event as usize] = row as u32;
        }
        row_of
    }

    /// The rows of events picked from several batches, each given as its rows and its number of
    /// events, by type in order of appearance.
    pub(crate) fn interleave(batches: &[(&[Self], usize)], picks: &[(u32, u32)]) -> Vec<Self> {
        let mut kinds: Vec<&Self> = Vec::new();
        for rows in batches.iter().flat_map(|(rows, _)| *rows) {
            let known = kinds.iter().any(|k| k.is_like(rows));
            if !known {
                kinds.push(rows);
            }
        }
        kinds.into_iter().filter_map(|kind| kind.interleave_kind(batches, picks)).collect()
    }

    fn is_like(&self, other: &Self) -> bool {
        let same = Arc::ptr_eq(&self.message, &other.message) || self.message == other.message;
        same && self.payloads == other.payloads && self.columns.schema() == other.columns.schema()
    }

    fn interleave_kind(&self, batches: &[(&[Self], usize)], picks: &[(u32, u32)]) -> Option<Self> {
        let mut parts: Vec<&Self> = Vec::new();
        // For each batch the part that has its rows of this kind, and where they are in it.
        let places: Vec<Option<(usize, RowPlaces)>> = batches
            .iter()
            .map(|(rows, events)| {
                let rows = rows.iter().find(|rows| self.is_like(rows))?;
                parts.push(rows);
                Some((parts.len() - 1, rows.places(*events)))
            })
            .collect();
        let (mut events, mut indices) = (Vec::new(), Vec::new());
        for (event, (batch, row)) in picks.iter().enumerate() {
            let Some((part, places)) = &places[*batch as usize] else { continue };
            if let Some(row) = places.row_of(*row) {
                events.push(event as u32);
                indices.push((*part, row));
            }
        }
        if events.is_empty() {
            return None;
        }
        let column = |at: usize| {
            let parts: Vec<&dyn Array> =
                parts.iter().map(|part| part.columns.column(at).as_ref()).collect();
            interleave(&parts, &indices).expect("only columns of one schema are interleaved")
        };
        let columns = (0..self.columns.num_columns()).map(column).collect();
        Some(self.with(events, columns))
    }

    fn places(&self, events: usize) -> RowPlaces {
        let is_each = self.events.iter().copied().eq(0..events as u32);
        if is_each { RowPlaces::Same } else { RowPlaces::OfEvent(self.row_of_event(events)) }
    }
}

/// The rows of the events of a batch.
enum RowPlaces {
    /// Every event has one, at its own place.
    Same,
    /// By event.
    OfEvent(Vec<u32>),
}

impl RowPlaces {
    fn row_of(&self, event: u32) -> Option<usize> {
        let row = match self {
            Self::Same => event,
            Self::OfEvent(rows) => *rows.get(event as usize)?,
        };
        (row != GONE).then_some(row as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Batch, BatchBuilder, ChannelId, TypeKey};
    use arrow_array::{ArrayRef, Int32Array, cast::AsArray, types::Int32Type};

    fn batch(values: &[Option<i32>]) -> Batch {
        let mut builder = BatchBuilder::default();
        for n in 0..values.len() {
            builder.push_copy(n as i64, n as i64, ChannelId(0), b"");
        }
        let (events, values): (Vec<u32>, Vec<i32>) =
            values.iter().enumerate().filter_map(|(n, v)| Some((n as u32, (*v)?))).unzip();
        let column: ArrayRef = Arc::new(Int32Array::from(values));
        let columns = RecordBatch::try_from_iter([("v", column)]).unwrap();
        let message = MessageType::named("t", TypeKey(7)).into();
        let rows = Rows { message, payloads: Payloads::Kept, events, columns };
        builder.finish().with_rows(vec![rows])
    }

    fn values(batch: &Batch) -> Vec<(u32, i32)> {
        let Some(rows) = batch.rows().first() else { return Vec::new() };
        let column = rows.columns.column(0).as_primitive::<Int32Type>();
        rows.events.iter().copied().zip(column.values().iter().copied()).collect()
    }

    #[test]
    fn rows_follow_their_events() {
        let all = batch(&[Some(10), None, Some(12), Some(13)]);
        assert_eq!(values(&all.take(vec![3, 1, 0])), [(0, 13), (2, 10)]);
        assert_eq!(values(&all.slice(1, 2)), [(1, 12)]);
        assert!(all.take(vec![1]).rows().is_empty());
        let two = [all, batch(&[None, Some(21)])];
        assert_eq!(values(&Batch::interleave(&two, &[(1, 1), (0, 1), (0, 2)])), [(0, 21), (2, 12)]);
    }
}
