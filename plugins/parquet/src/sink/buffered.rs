//! Events that wait for their row group.

use arrow_schema::DataType;
use sluice_kit::unnest::UnnestPiece;
use sluice_model::Batch;

/// What each array of a piece takes beside its values.
const ARRAY_BYTES: usize = 208;

/// As many pieces may remain where memory is short.
const FEW_PIECES: usize = 2;

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

    /// Merges the last pieces, up to one that has more rows than those behind it. Called after each
    /// piece, it copies a row when its piece becomes twice as long at least, and leaves as many
    /// pieces as the number of rows has binary digits.
    ///
    /// A message among those of many channels is a piece by itself: the arrays of its columns take
    /// twenty times as much as their values.
    pub(super) fn merge_last(&mut self) {
        let (mut start, mut rows) = (self.pieces.len(), 0);
        for (piece, events) in self.pieces.iter().zip(&self.events).rev() {
            let len = piece.batch().len();
            if events.is_none() || (rows > 0 && len > rows) {
                break;
            }
            (start, rows) = (start - 1, rows + len);
        }
        self.merge_from(start);
    }

    /// Merges the last pieces of whole events if there are more than a few, for which rows are
    /// copied more often.
    pub(super) fn merge_many(&mut self) {
        let start = self.events.iter().rposition(Option::is_none).map_or(0, |partial| partial + 1);
        if self.pieces.len() - start > FEW_PIECES {
            self.merge_from(start);
        }
    }

    fn merge_from(&mut self, start: usize) {
        if self.pieces.len() - start < 2 {
            return;
        }
        let batches: Vec<Batch> =
            self.pieces.drain(start..).map(|piece| piece.batch().clone()).collect();
        let picks = (0..).zip(&batches);
        let picks = picks.flat_map(|(n, batch)| (0..batch.len() as u32).map(move |row| (n, row)));
        let merged = Batch::interleave(&batches, &picks.collect::<Vec<(u32, u32)>>());
        self.overhead -= batches.iter().map(overhead_of).sum::<usize>();
        self.overhead += overhead_of(&merged);
        self.pieces.push(UnnestPiece::whole(merged));
        let events = self.events.drain(start..).flatten().flatten().collect();
        self.events.push(Some(events));
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use arrow_array::types::Int64Type;
    use arrow_array::{ArrayRef, Float64Array, ListArray, RecordBatch, StringArray};
    use sluice_model::{BatchBuilder, ChannelId, MessageType, Payloads, Rows, TypeKey};

    /// Events from number `first` on with a number, a text and a list each.
    fn events(first: i64, count: i64) -> Batch {
        let mut builder = BatchBuilder::default();
        let numbers = first..first + count;
        for n in numbers.clone() {
            builder.push_copy(n * 10, n, ChannelId(0), &n.to_le_bytes());
        }
        let texts = numbers.clone().map(|n| (n % 3 > 0).then(|| format!("text {n}")));
        let lists = numbers.clone().map(|n| Some((0..n % 4).map(Some).collect::<Vec<_>>()));
        let columns: [ArrayRef; 3] = [
            Arc::new(Float64Array::from_iter_values(numbers.map(|n| n as f64))),
            Arc::new(texts.collect::<StringArray>()),
            Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists)),
        ];
        let columns = ["a", "b", "c"].into_iter().zip(columns).map(|(n, a)| (n, a, true));
        let rows = Rows {
            message: MessageType::named("t", TypeKey(1)).into(),
            payloads: Payloads::Kept,
            events: (0..count as u32).collect(),
            columns: RecordBatch::try_from_iter_with_nullable(columns).unwrap(),
        };
        builder.finish().with_rows(vec![rows])
    }

    /// The numbers, payloads and columns of some pieces.
    fn contents(pieces: &[UnnestPiece]) -> Vec<(Vec<i64>, Vec<Vec<u8>>, RecordBatch)> {
        let batches = pieces.iter().map(UnnestPiece::batch);
        let contents = batches.map(|batch| {
            let payloads = (0..batch.len()).map(|row| batch.payload(row).to_vec()).collect();
            (batch.sequences().to_vec(), payloads, batch.rows()[0].columns.clone())
        });
        contents.collect()
    }

    #[test]
    fn merged_pieces_are_those_that_were_added_once_they_are_encoded() {
        let (mut merged, mut apart) = (BufferedPieces::default(), BufferedPieces::default());
        let mut first = 0;
        for (count, pieces) in [(1, 1), (2, 1), (1, 2), (5, 1), (1, 2), (1, 2)] {
            merged.push(UnnestPiece::whole(events(first, count)), true);
            merged.merge_last();
            apart.push(UnnestPiece::whole(events(first, count)), true);
            first += count;
            assert_eq!(merged.as_slice().len(), pieces);
            // Three columns and the items of the list.
            assert_eq!(merged.overhead(), pieces * 4 * ARRAY_BYTES);
        }
        assert_eq!(apart.overhead(), 6 * 4 * ARRAY_BYTES);
        let (merged, apart) = (contents(&merged.into_pieces()), contents(&apart.into_pieces()));
        assert_eq!(merged.len(), 6);
        assert_eq!(merged, apart);
    }

    #[test]
    fn a_row_is_copied_as_often_as_its_piece_doubles() {
        let (mut pieces, mut copies) = (BufferedPieces::default(), 0);
        for n in 0..1_000 {
            pieces.push(UnnestPiece::whole(events(n, 1)), true);
            let before = pieces.as_slice().len();
            pieces.merge_last();
            let now = pieces.as_slice();
            let is_merged = now.len() < before;
            copies += now.last().filter(|_| is_merged).map_or(0, |last| last.batch().len());
            assert!(now.len() <= 10, "{}", now.len());
        }
        assert!(copies <= 10 * 1_000, "{copies}");
        let apart = contents(&pieces.into_pieces()).into_iter().map(|(numbers, ..)| numbers);
        assert!(apart.eq((0..1_000).map(|n| vec![n])));
    }

    #[test]
    fn few_pieces_remain_if_memory_is_short() {
        let mut pieces = BufferedPieces::default();
        for n in 0..40 {
            pieces.push(UnnestPiece::whole(events(n, 1)), true);
            pieces.merge_last();
            pieces.merge_many();
            assert!(pieces.as_slice().len() <= FEW_PIECES);
        }
        let apart = contents(&pieces.into_pieces()).into_iter().map(|(numbers, ..)| numbers);
        assert!(apart.eq((0..40).map(|n| vec![n])));
    }

    #[test]
    fn pieces_of_a_single_event_stay() {
        let mut pieces = BufferedPieces::default();
        pieces.push(UnnestPiece::elements(events(3, 1), 0..2), false);
        pieces.push(UnnestPiece::elements(events(3, 1), 2..3), false);
        pieces.merge_last();
        assert_eq!(pieces.as_slice().len(), 2);
        assert_eq!(pieces.into_pieces().iter().map(UnnestPiece::events).sum::<u64>(), 1);
    }
}
