//! Events that wait for their row group.

use arrow_schema::DataType;
use sluice_kit::unnest::UnnestPiece;
use sluice_model::Batch;

/// What each array of a piece takes beside its values.
const ARRAY_BYTES: usize = 208;

/// The pieces of a row group, in order.
#[derive(Default)]
pub(super) struct BufferedPieces {
    pieces: Vec<UnnestPiece>,
    /// For each, the numbers of events in the pieces of which it consists. `None` if it has only
    /// some rows of its events.
    events: Vec<Option<Vec<usize>>>,
    /// What their arrays take beside the values.
    overhead: usize,
}

impl BufferedPieces {
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// The pieces, some of them merged.
    pub(super) fn as_slice(&self) -> &[UnnestPiece] {
        &self.pieces
    }

    /// The bytes that its arrays take beside their values.
    pub(super) fn overhead(&self) -> usize {
        self.overhead
    }

    /// Adds a piece, which has all rows of its events if it is `whole`.
    pub(super) fn push(&mut self, piece: UnnestPiece, whole: bool) {
        self.overhead += overhead_of(piece.batch());
        self.events.push(whole.then(|| vec![piece.batch().len()]));
        self.pieces.push(piece);
    }

    /// Makes all pieces one.
    ///
    /// A message among those of many channels is a piece by itself: the arrays of its columns take
    /// twenty times as much as their values.
    pub(super) fn merge(&mut self) {
        if self.pieces.len() < 2 || self.events.iter().any(Option::is_none) {
            return;
        }
        let batches: Vec<Batch> =
            self.pieces.drain(..).map(|piece| piece.batch().clone()).collect();
        let rows = (0..).zip(&batches);
        let rows: Vec<(u32, u32)> =
            rows.flat_map(|(n, batch)| (0..batch.len() as u32).map(move |row| (n, row))).collect();
        let merged = Batch::interleave(&batches, &rows);
        self.overhead = overhead_of(&merged);
        self.pieces.push(UnnestPiece::whole(merged));
        self.events = vec![Some(self.events.drain(..).flatten().flatten().collect())];
    }

    /// The pieces as they were added: where one ends may decide where a page ends.
    pub(super) fn into_pieces(self) -> Vec<UnnestPiece> {
        let mut all = Vec::new();
        for (piece, events) in self.pieces.into_iter().zip(self.events) {
            match events.as_deref() {
                None | Some([_]) => all.push(piece),
                Some(events) => {
                    let mut start = 0;
                    for len in events {
                        all.push(UnnestPiece::whole(piece.batch().slice(start, *len)));
                        start += len;
                    }
                }
            }
        }
        all
    }
}

fn overhead_of(batch: &Batch) -> usize {
    let columns = batch.rows().iter().flat_map(|rows| rows.columns.columns());
    columns.map(|column| arrays_in(column.data_type())).sum::<usize>() * ARRAY_BYTES
}

/// The number of arrays that make one of this type.
fn arrays_in(data_type: &DataType) -> usize {
    1 + match data_type {
        DataType::Struct(members) => {
            members.iter().map(|member| arrays_in(member.data_type())).sum()
        }
        DataType::List(items)
        | DataType::LargeList(items)
        | DataType::FixedSizeList(items, _)
        | DataType::Map(items, _) => arrays_in(items.data_type()),
        DataType::Dictionary(_, values) => arrays_in(values),
        _ => 0,
    }
}
