//! Keeps the decoded fields of events that a stage sent to its program, until these return with the
//! payloads they were sent with. Bounded in memory.

use std::collections::BTreeMap;
use std::ops::Range;

use arrow_array::Int64Array;
use sluice_model::{Batch, Payloads, Rows};

/// The maximum memory of what has not returned, except for the last batch.
const MAX_BYTES: usize = 128 << 20;

/// The decoded events that were sent to a program.
#[derive(Debug, Default)]
pub(crate) struct SentRows {
    /// By the number of their first event.
    batches: BTreeMap<i64, SentBatch>,
    bytes: usize,
}

/// The decoded events of a batch.
#[derive(Debug)]
struct SentBatch {
    /// Their indices in the batch, ascending.
    indices: Vec<u32>,
    /// They themselves, with those rows whose payloads the program got.
    decoded: Batch,
    /// Which of them have payloads.
    has_payload: Vec<bool>,
    /// How many of them have not returned.
    left: usize,
    bytes: usize,
}

/// The decoded fields of events that returned, and how many events have none.
#[derive(Debug, Default)]
pub(crate) struct ReturnedRows {
    pub(crate) rows: Vec<Rows>,
    /// How many events lost their fields because the program changed the payload.
    pub(crate) changed: u64,
    /// How many events lost their fields because they returned too late.
    pub(crate) late: u64,
    /// How many events lost their fields because they were sent without a payload.
    pub(crate) without_payload: u64,
}

impl SentRows {
    /// Records events that are sent. `first` is the number of the first.
    pub(crate) fn send(&mut self, first: i64, batch: &Batch) {
        let mask = (0..).zip(batch.decoded_mask());
        let indices: Vec<u32> = mask.filter_map(|(at, is_it)| is_it.then_some(at)).collect();
        if indices.is_empty() {
            return;
        }
        let kept = batch.rows().iter().filter(|rows| rows.payloads == Payloads::Kept);
        let decoded = batch.clone().with_rows(kept.cloned().collect());
        let decoded = decoded.take(indices.clone()).owned();
        let (has_payload, left) = (decoded.decoded_mask(), decoded.len());
        let bytes = decoded.memory() + size_of::<SentBatch>();
        self.batches.insert(first, SentBatch { indices, decoded, has_payload, left, bytes });
        self.bytes += bytes;
        while self.bytes > MAX_BYTES && self.batches.len() > 1 {
            let Some((_, oldest)) = self.batches.pop_first() else { break };
            self.bytes -= oldest.bytes;
        }
    }

    /// The rows of the events of `batch`, which a program returned with these numbers. `is_decoded`
    /// tells which of them were sent with decoded fields and return for the first time.
    pub(crate) fn take(
        &mut self,
        batch: &Batch,
        numbers: &Int64Array,
        is_decoded: impl Fn(usize) -> bool,
    ) -> ReturnedRows {
        let mut returned = ReturnedRows::default();
        let (mut picks, mut events) = (Vec::new(), Vec::new());
        let mut finished = Vec::new();
        for event in (0..batch.len()).filter(|event| is_decoded(*event)) {
            let Some((first, row, sent)) = self.find(numbers.value(event)) else {
                returned.late += 1;
                continue;
            };
            sent.left -= 1;
            if sent.left == 0 {
                finished.push(first);
            }
            if sent.has_payload.get(row) != Some(&true) {
                returned.without_payload += 1;
            } else if sent.decoded.payload(row) == batch.payload(event) {
                picks.push((first, row));
                events.push(event as u32);
            } else {
                returned.changed += 1;
            }
        }
        let place = |pick: &u32| events.get(*pick as usize).copied();
        let back =
            |rows: Rows| Rows { events: rows.events.iter().filter_map(place).collect(), ..rows };
        returned.rows = self.pick(&picks).into_iter().map(back).collect();
        for first in finished {
            self.bytes -= self.batches.remove(&first).map_or(0, |sent| sent.bytes);
        }
        returned
    }

    /// The rows of these events, given as the first number of their batch and their index there.
    fn pick(&self, picks: &[(i64, usize)]) -> Vec<Rows> {
        if picks.is_empty() {
            return Vec::new();
        }
        // Only what is between the first and the last pick of a batch is looked at: a program may
        // answer event by event.
        let mut ranges: BTreeMap<i64, Range<usize>> = BTreeMap::new();
        for (first, row) in picks {
            let range = ranges.entry(*first).or_insert(*row..*row);
            *range = range.start.min(*row)..range.end.max(*row + 1);
        }
        let slices = ranges.iter().filter_map(|(first, range)| {
            Some(self.batches.get(first)?.decoded.slice(range.start, range.len()))
        });
        let slices: Vec<Batch> = slices.collect();
        let places: BTreeMap<i64, (u32, usize)> =
            (0..).zip(&ranges).map(|(at, (first, range))| (*first, (at, range.start))).collect();
        let picks = picks.iter().filter_map(|(first, row)| {
            let (at, start) = places.get(first)?;
            Some((*at, (row - start) as u32))
        });
        Batch::interleave(&slices, &picks.collect::<Vec<_>>()).rows().to_vec()
    }

    /// The batch with the decoded event of this number, its first number, and the event's index.
    fn find(&mut self, number: i64) -> Option<(i64, usize, &mut SentBatch)> {
        let (first, sent) = self.batches.range_mut(..=number).next_back()?;
        let index = u32::try_from(number - first).ok()?;
        let row = sent.indices.binary_search(&index).ok()?;
        Some((*first, row, sent))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use arrow_array::{ArrayRef, RecordBatch};
    use sluice_model::{BatchBuilder, ChannelId, MessageType, TypeKey};

    /// Events with these payloads. Every second one is decoded: its field is its payload's length.
    fn batch(payloads: &[&[u8]], kind: Payloads) -> Batch {
        let mut batch = BatchBuilder::default();
        payloads.iter().for_each(|payload| batch.push_copy(0, 0, ChannelId(0), payload));
        let events: Vec<u32> = (0..payloads.len() as u32).step_by(2).collect();
        let lens = payloads.iter().step_by(2).map(|payload| payload.len() as i64);
        let lens: ArrayRef = Arc::new(Int64Array::from_iter_values(lens));
        let columns = RecordBatch::try_from_iter([("len", lens)]).unwrap();
        let message = Arc::new(MessageType::named("t", TypeKey(1)));
        batch.finish().with_rows(vec![Rows { message, payloads: kind, events, columns }])
    }

    fn returned(payloads: &[&[u8]]) -> Batch {
        batch(payloads, Payloads::Kept).with_rows(Vec::new())
    }

    fn fields(rows: &[Rows]) -> Vec<(u32, i64)> {
        let values = |rows: &Rows| rows.columns.column(0).as_primitive::<Int64Type>().clone();
        let each = rows.iter().flat_map(|rows| {
            rows.events.iter().copied().zip(values(rows).values().to_vec()).collect::<Vec<_>>()
        });
        each.collect()
    }

    #[test]
    fn events_that_return_with_their_payloads_have_their_fields_in_any_order() {
        let mut sent = SentRows::default();
        sent.send(0, &batch(&[b"", b"a", b"bb", b"ccc"], Payloads::Kept));
        sent.send(4, &batch(&[b"dddd"], Payloads::Kept));
        let numbers = Int64Array::from(vec![Some(4), None, Some(1), Some(2)]);
        let first =
            sent.take(&returned(&[b"dddd", b"bb", b"a", b"bb"]), &numbers, |at| at % 3 == 0);
        assert_eq!((fields(&first.rows), first.changed), (vec![(0, 4), (3, 2)], 0));
        assert_eq!(sent.batches.len(), 1, "what has returned is not kept");
        let numbers = Int64Array::from(vec![3, 0]);
        let rest = sent.take(&returned(&[b"ccc", b"new"]), &numbers, |at| at == 1);
        assert_eq!((rest.rows.len(), rest.changed, rest.late), (0, 1, 0));
        assert_eq!((sent.batches.len(), sent.bytes), (0, 0));
    }

    #[test]
    fn events_without_payloads_lose_their_fields() {
        let mut sent = SentRows::default();
        sent.send(0, &batch(&[b"", b""], Payloads::Gone));
        let back = sent.take(&returned(&[b"", b""]), &Int64Array::from(vec![0, 1]), |at| at == 0);
        assert_eq!((back.rows.len(), back.changed, back.without_payload), (0, 0, 1));
        assert_eq!((sent.batches.len(), sent.bytes), (0, 0));
    }

    #[test]
    fn payloads_of_events_that_are_not_decoded_are_not_kept() {
        let mut sent = SentRows::default();
        let image = vec![7; 1 << 20];
        for number in [0, 3, 6] {
            sent.send(number, &batch(&[b"a", &image, b"bb"], Payloads::Kept));
        }
        assert!(sent.bytes < 4096, "{}", sent.bytes);
        let numbers = Int64Array::from(vec![0, 1, 2, 8]);
        let decoded = |at| at != 1;
        let back = sent.take(&returned(&[b"a", &image, b"bb", b"bb"]), &numbers, decoded);
        assert_eq!(fields(&back.rows), [(0, 1), (2, 2), (3, 2)]);
        assert_eq!((back.changed, back.late), (0, 0));
    }

    #[test]
    fn events_that_a_program_holds_back_take_bounded_memory() {
        let (mut sent, long) = (SentRows::default(), vec![7; MAX_BYTES / 3]);
        for number in 0..5 {
            sent.send(number, &batch(&[&long], Payloads::Kept));
        }
        assert!(sent.bytes <= MAX_BYTES);
        let numbers = Int64Array::from(vec![1, 4]);
        let back = sent.take(&returned(&[&long, &long]), &numbers, |_| true);
        assert_eq!((fields(&back.rows), back.late), (vec![(1, long.len() as i64)], 1));
        sent.send(5, &batch(&[&vec![7; MAX_BYTES + 1]], Payloads::Kept));
        assert_eq!(sent.batches.len(), 1, "the last batch is kept");
    }
}
