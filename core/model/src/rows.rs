//! Decoded rows: the Arrow columns of a batch's payloads of one type. They travel with their batch.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, UInt32Array, make_array};
use arrow_data::ArrayData;
use arrow_data::transform::MutableArrayData;
use arrow_select::interleave::interleave;
use arrow_select::take::take_arrays;

use crate::MessageType;

mod bytes;

pub use bytes::array_bytes;

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
    /// An estimate of the memory of the columns, in bytes. Of columns that are slices, only that of
    /// these rows.
    pub fn memory(&self) -> usize {
        self.columns.columns().iter().map(array_bytes).sum()
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

    /// The columns of these rows. Most selections are of all rows of a type, and are not copied;
    /// a few rows are, so that they do not keep all others alive.
    fn take_rows(&self, rows: Vec<u32>) -> Vec<ArrayRef> {
        if let Some(run) = contiguous(&rows).filter(|run| run.len() >= self.events.len() / 2) {
            let slice = |column: &ArrayRef| column.slice(run.start, run.len());
            return self.columns.columns().iter().map(slice).collect();
        }
        let columns = self.columns.columns();
        let numbers = UInt32Array::from(rows);
        match take_arrays(columns, &numbers, None) {
            Ok(taken) if taken.iter().all(|column| column.len() == numbers.len()) => taken,
            _ => {
                let picks: Vec<_> = numbers.values().iter().map(|row| (0, *row as usize)).collect();
                columns.iter().map(|column| copied(&[column], &picks)).collect()
            }
        }
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

    /// The rows of a range of events, without copying columns; `None` if there are none.
    pub(crate) fn slice(&self, events: Range<usize>) -> Option<Self> {
        let place = |event: usize| self.events.partition_point(|at| (*at as usize) < event);
        let rows = place(events.start)..place(events.end);
        if rows.is_empty() {
            return None;
        }
        let first = events.start as u32;
        Some(Self {
            message: Arc::clone(&self.message),
            payloads: self.payloads,
            events: self.events[rows.clone()].iter().map(|event| event - first).collect(),
            columns: self.columns.slice(rows.start, rows.len()),
        })
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
            match interleave(&parts, &indices) {
                Ok(column) if column.len() == indices.len() => column,
                _ => copied(&parts, &indices),
            }
        };
        let columns = (0..self.columns.num_columns()).map(column).collect();
        Some(self.with(events, columns))
    }

    fn places(&self, events: usize) -> RowPlaces {
        let is_each = self.events.iter().copied().eq(0..events as u32);
        if is_each { RowPlaces::Same } else { RowPlaces::OfEvent(self.row_of_event(events)) }
    }
}

/// Rows of these arrays, each given as its array and its row.
///
/// Slower than Arrow's own functions, which refuse nulls of a struct in a list whose fields cannot
/// be null, and lose the number of lists that all have the length 0.
fn copied(parts: &[&dyn Array], picks: &[(usize, usize)]) -> ArrayRef {
    let data: Vec<ArrayData> = parts.iter().map(|part| part.to_data()).collect();
    let mut all = MutableArrayData::new(data.iter().collect(), true, picks.len());
    for (part, row) in picks {
        all.try_extend(*part, *row, *row + 1).expect("a batch has less than 2 GiB");
    }
    make_array(all.freeze())
}

/// The range that these indices are, if each is one more than the one before.
fn contiguous(rows: &[u32]) -> Option<Range<usize>> {
    let start = *rows.first()?;
    let is_run = rows.iter().copied().eq(start..start + rows.len() as u32);
    is_run.then(|| start as usize..start as usize + rows.len())
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
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int32Type;
    use arrow_array::{Int32Array, ListArray, StructArray};
    use arrow_buffer::{NullBuffer, OffsetBuffer};
    use arrow_schema::{DataType, Field, Fields};

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
        assert!(all.slice(1, 1).rows().is_empty());
        let two = [all, batch(&[None, Some(21)])];
        assert_eq!(values(&Batch::interleave(&two, &[(1, 1), (0, 1), (0, 2)])), [(0, 21), (2, 12)]);
    }

    #[test]
    fn rows_are_copied_only_if_they_are_few_or_in_another_order() {
        let all = batch(&[Some(10), Some(11), None, Some(13), Some(14)]);
        let start = |batch: &Batch| {
            let column = batch.rows()[0].columns.column(0).to_data();
            column.buffers()[0].as_ptr() as usize - column.offset() * 4
        };
        let shares = |part: &Batch| (start(&all)..start(&all) + 16).contains(&start(part));
        assert!(shares(&all.slice(4, 1)) && shares(&all.take(vec![1, 2, 3])));
        assert!(shares(&all.retain(|row| row != 2)));
        assert!(!shares(&all.take(vec![4])) && !shares(&all.take(vec![0, 3])));
        assert_eq!(values(&all.take(vec![1, 2, 3])), [(0, 11), (2, 13)]);
        assert_eq!(values(&all.slice(2, 3)), [(1, 13), (2, 14)]);
    }

    #[test]
    fn columns_that_arrow_refuses_are_picked() {
        let member = Arc::new(Field::new("m", DataType::Int32, false));
        let fields = Fields::from(vec![member]);
        let inner = StructArray::new_null(fields.clone(), 3);
        let outer = Fields::from(vec![Field::new("s", DataType::Struct(fields), false)]);
        let nulls = Some(NullBuffer::new_null(3));
        let outer = StructArray::new(outer.clone(), vec![Arc::new(inner)], nulls);
        let item = Arc::new(Field::new("item", outer.data_type().clone(), true));
        let offsets = OffsetBuffer::from_lengths([1, 0, 2]);
        let lists = ListArray::new(item, offsets, Arc::new(outer), None);
        let empty = ArrayData::builder(DataType::FixedSizeList(
            Arc::new(Field::new("item", DataType::Int32, true)),
            0,
        ));
        let empty = empty.len(3).add_child_data(Int32Array::from(vec![0; 0]).to_data());
        let columns: [(&str, ArrayRef); 2] =
            [("lists", Arc::new(lists)), ("empty", make_array(empty.build().unwrap()))];
        let columns = RecordBatch::try_from_iter(columns).unwrap();
        let message = MessageType::named("t", TypeKey(7)).into();
        let rows = Rows { message, payloads: Payloads::Kept, events: vec![0, 1, 2], columns };
        let mut builder = BatchBuilder::default();
        (0..3).for_each(|n| builder.push_copy(n, n, ChannelId(0), b""));
        let batch = builder.finish().with_rows(vec![rows]);
        let mixed = Batch::interleave(&[batch.clone(), batch.clone()], &[(0, 2), (1, 0), (0, 1)]);
        for picked in [mixed, batch.take(vec![2, 0, 1])] {
            let columns = &picked.rows()[0].columns;
            let lists = columns.column(0).as_list::<i32>();
            assert_eq!(lists.offsets()[..], [0, 2, 3, 3]);
            assert_eq!((lists.values().null_count(), columns.column(1).len()), (3, 3));
        }
    }
}
