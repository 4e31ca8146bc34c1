//! The values that rows may still need, by input: the columns of one batch after the other. Knows
//! no times.

use std::collections::VecDeque;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_buffer::NullBuffer;
use arrow_schema::DataType;
use sluice_model::array_bytes;

use super::track::Place;

/// The values of one input.
#[derive(Debug, Default)]
pub(super) struct InputChunks {
    /// The number of the first chunk that is kept.
    first: u64,
    chunks: VecDeque<Vec<Option<ChunkColumn>>>,
    /// By track of the input, the number of the first chunk whose column is kept.
    first_columns: Vec<u64>,
    /// Bytes of the columns that are kept.
    bytes: u64,
}

/// The values of one track in a chunk.
#[derive(Clone, Debug)]
pub(super) struct ChunkColumn {
    pub(super) values: ArrayRef,
    /// Which of them are no values, also where their type says so.
    nulls: Option<NullBuffer>,
    /// The number of their type, among those of the track.
    pub(super) kind: usize,
    /// About how much memory a value takes.
    pub(super) row_bytes: u32,
    bytes: u64,
}

impl ChunkColumn {
    pub(super) fn new(values: ArrayRef, kind: usize) -> Self {
        let bytes = array_bytes(&values);
        let row_bytes = u32::try_from(bytes / values.len().max(1)).unwrap_or(u32::MAX);
        let nulls = values.logical_nulls();
        Self { values, nulls, kind, row_bytes, bytes: bytes as u64 }
    }

    pub(super) fn is_null(&self, row: u32) -> bool {
        self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row as usize))
    }

    /// The number of elements in a row, if the values are lists of any length.
    pub(super) fn list_length(&self, row: u32) -> Option<i64> {
        let list = self.values.as_list_opt::<i32>().map(|list| list.value_length(row as usize));
        let long = || self.values.as_list_opt::<i64>().map(|list| list.value_length(row as usize));
        list.map(i64::from).or_else(long)
    }

    /// Whether the values of two rows can be combined number by number.
    pub(super) fn combines(&self, row: u32, other: &Self, other_row: u32) -> bool {
        self.kind == other.kind && self.list_length(row) == other.list_length(other_row)
    }
}

impl InputChunks {
    /// Adds the columns of a batch, by track of the input, and returns their number.
    pub(super) fn push(&mut self, columns: Vec<Option<ChunkColumn>>) -> u64 {
        self.first_columns.resize(columns.len(), self.first);
        self.bytes += columns.iter().flatten().map(|column| column.bytes).sum::<u64>();
        self.chunks.push_back(columns);
        self.first + self.chunks.len() as u64 - 1
    }

    /// A column of a chunk that is kept.
    pub(super) fn column(&self, place: Place, slot: usize) -> Option<&ChunkColumn> {
        self.chunk(place.chunk)?.get(slot)?.as_ref()
    }

    pub(super) fn chunk(&self, chunk: u64) -> Option<&Vec<Option<ChunkColumn>>> {
        self.chunks.get(usize::try_from(chunk.checked_sub(self.first)?).ok()?)
    }

    /// The number of the first chunk, and the columns of a track in all chunks.
    pub(super) fn columns(&self, slot: usize) -> (u64, Vec<Option<&ChunkColumn>>) {
        let columns = self.chunks.iter().map(|chunk| chunk.get(slot)?.as_ref());
        (self.first, columns.collect())
    }

    /// Bytes of the columns that are kept.
    pub(super) fn memory(&self) -> u64 {
        self.bytes
    }

    /// Drops the columns of a track in the chunks before this one, or in all.
    pub(super) fn keep_column_from(&mut self, slot: usize, chunk: Option<u64>) {
        let end = self.first + self.chunks.len() as u64;
        let Some(kept) = self.first_columns.get_mut(slot) else { return };
        let first = chunk.unwrap_or(end).clamp(*kept, end);
        let gone = (*kept - self.first) as usize..(first - self.first) as usize;
        *kept = first;
        for columns in self.chunks.range_mut(gone) {
            self.bytes -= columns[slot].take().map_or(0, |column| column.bytes);
        }
    }

    /// Drops the chunks of which no column is kept.
    pub(super) fn trim(&mut self) {
        let end = self.first + self.chunks.len() as u64;
        let first = self.first_columns.iter().copied().min().unwrap_or(end);
        self.chunks.drain(..(first - self.first) as usize);
        self.first = first;
    }
}

/// The types that the values of a track have had.
#[derive(Debug, Default)]
pub(super) struct ValueKinds(Vec<DataType>);

impl ValueKinds {
    /// The number of a type.
    pub(super) fn number(&mut self, kind: &DataType) -> usize {
        if let Some(at) = self.0.iter().position(|other| other == kind) {
            return at;
        }
        self.0.push(kind.clone());
        self.0.len() - 1
    }

    pub(super) fn get(&self, kind: usize) -> DataType {
        self.0.get(kind).cloned().unwrap_or(DataType::Null)
    }
}
