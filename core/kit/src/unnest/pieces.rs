//! Pieces of a batch that unnest to a bounded number of rows and bytes each.

use std::ops::Range;

use arrow_array::Array;
use sluice_model::{Batch, Error, FieldPath, array_bytes};

use super::rows::{lists_at, other_columns, value_bytes};
use super::{UnnestedBatch, count, unnest_within};

/// Some events of a batch, or some elements of one event's list.
#[derive(Clone, Debug)]
pub struct UnnestPiece {
    events: Batch,
    /// The indices of the elements; `None` for all.
    numbers: Option<Range<usize>>,
}

impl UnnestPiece {
    /// Whole events.
    pub fn whole(events: Batch) -> Self {
        Self { events, numbers: None }
    }

    /// The elements with these indices of the lists of these events (mostly one).
    pub fn elements(events: Batch, numbers: Range<usize>) -> Self {
        Self { events, numbers: Some(numbers) }
    }

    /// The events, with complete lists.
    pub fn batch(&self) -> &Batch {
        &self.events
    }

    /// The number of events that start in it: each event is counted in exactly one piece.
    pub fn events(&self) -> u64 {
        match &self.numbers {
            Some(numbers) if numbers.start > 0 => 0,
            _ => self.events.len() as u64,
        }
    }

    /// Unnests the lists at `path`: see [`unnest`](super::unnest).
    pub fn unnest(&self, path: &FieldPath) -> Result<UnnestedBatch, Error> {
        unnest_within(&self.events, path, self.numbers.as_ref())
    }
}

/// Cuts a batch into pieces that unnest to at most 65 536 rows and a few megabytes each.
///
/// A larger row is a piece of its own. The pieces contain all rows in order, and are made lazily.
#[derive(Debug)]
pub struct UnnestPieces {
    batch: Batch,
    sizes: Vec<EventSize>,
    /// The next event.
    event: usize,
    /// The event before it, if its list is longer than a piece, and its next element.
    long: Option<(Batch, EventSize, usize)>,
}

/// The size of an event after unnesting.
#[derive(Clone, Copy, Debug)]
struct EventSize {
    rows: usize,
    /// Bytes per row.
    row: usize,
}

impl EventSize {
    fn bytes(self) -> usize {
        self.rows.saturating_mul(self.row)
    }

    /// The number of its rows that fit into a piece.
    fn rows_per_piece(self) -> usize {
        (PIECE_BYTES / self.row.max(1)).clamp(1, PIECE_ROWS)
    }
}

/// The most rows of a piece.
pub(super) const PIECE_ROWS: usize = 64 << 10;
/// The most bytes of a piece with more than one row.
const PIECE_BYTES: usize = 8 << 20;
/// The minimum size of a row: times, sequence numbers, channels.
const ROW_BYTES: usize = 64;

impl UnnestPieces {
    /// Cuts a batch whose lists at `path` are to be unnested. Without a path no lists are.
    pub fn new(batch: Batch, path: Option<&FieldPath>) -> Result<Self, Error> {
        let sizes = sizes(&batch, path)?;
        Ok(Self { batch, sizes, event: 0, long: None })
    }

    /// The number of next events that fit into a piece.
    fn fitting(&self) -> usize {
        let (mut rows, mut bytes) = (0usize, 0usize);
        let next = self.sizes.get(self.event..).unwrap_or_default().iter();
        let fitting = next.take_while(|size| {
            rows = rows.saturating_add(size.rows);
            bytes = bytes.saturating_add(size.bytes());
            rows <= PIECE_ROWS && bytes <= PIECE_BYTES
        });
        fitting.count()
    }

    /// The next elements of an event that has too many for one piece.
    fn next_elements(&mut self) -> Option<UnnestPiece> {
        let (event, size, start) = self.long.as_mut()?;
        let end = start.saturating_add(size.rows_per_piece()).min(size.rows);
        let piece = UnnestPiece::elements(event.clone(), *start..end);
        *start = end;
        if end == size.rows {
            self.long = None;
        }
        Some(piece)
    }
}

impl Iterator for UnnestPieces {
    type Item = UnnestPiece;

    fn next(&mut self) -> Option<UnnestPiece> {
        if let Some(piece) = self.next_elements() {
            return Some(piece);
        }
        let (start, count) = (self.event, self.fitting());
        let first = *self.sizes.get(start)?;
        let events = self.batch.slice(start, count.max(1));
        self.event += count.max(1);
        if count == 0 && first.rows > 1 {
            self.long = Some((events, first, 0));
            return self.next_elements();
        }
        Some(UnnestPiece::whole(events))
    }
}

fn sizes(batch: &Batch, path: Option<&FieldPath>) -> Result<Vec<EventSize>, Error> {
    let alone = |event| EventSize { rows: 1, row: ROW_BYTES + batch.payload_len(event) };
    let mut sizes: Vec<EventSize> = (0..batch.len()).map(alone).collect();
    for rows in batch.rows() {
        let lists = path.and_then(|path| Some((path, lists_at(rows, path)?)));
        let Some((path, lists)) = lists else {
            let each = rows.memory() / rows.events.len().max(1);
            rows.events.iter().for_each(|event| sizes[*event as usize].row += each);
            continue;
        };
        let mut counts = vec![1; batch.len()];
        count(rows, &lists, path, &mut counts)?;
        let element = array_bytes(&lists.elements) / lists.elements.len().max(1);
        let beside = other_columns(rows, path)?;
        for (row, event) in rows.events.iter().enumerate() {
            let bytes = beside.iter().map(|(_, array)| value_bytes(array, row));
            let row = bytes.fold(ROW_BYTES + element, usize::saturating_add);
            sizes[*event as usize] = EventSize { rows: counts[*event as usize] as usize, row };
        }
    }
    Ok(sizes)
}
