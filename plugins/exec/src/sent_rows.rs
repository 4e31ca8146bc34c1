//! Keeps the decoded fields of events that a stage sent to its program, until these return with the
//! payloads they were sent with. Bounded in memory.

use std::collections::VecDeque;

use arrow_array::Int64Array;
use sluice_model::{Batch, Payloads, Rows};

/// The maximum memory of what has not returned, except for the last batch.
const MAX_BYTES: usize = 128 << 20;

/// The decoded events that were sent to a program.
#[derive(Debug, Default)]
pub(crate) struct SentRows {
    /// In the order of their numbers.
    batches: VecDeque<SentBatch>,
    bytes: usize,
    /// Events below this number may have been dropped.
    dropped_below: i64,
}

/// A batch with decoded events.
#[derive(Debug)]
struct SentBatch {
    /// The number of the first event.
    first: i64,
    /// The events, with those rows whose payloads the program got.
    batch: Batch,
    is_decoded: Vec<bool>,
    /// How many events have not returned.
    left: usize,
    bytes: usize,
}

/// The decoded fields of events that returned.
#[derive(Debug, Default)]
pub(crate) struct ReturnedRows {
    pub(crate) rows: Vec<Rows>,
    /// How many events lost their fields because the program changed the payload.
    pub(crate) changed: u64,
    /// How many events returned too late to have their fields, if they had any.
    pub(crate) late: u64,
}

impl SentRows {
    /// Records events that are sent. `first` is the number of the first.
    pub(crate) fn send(&mut self, first: i64, batch: &Batch) {
        if batch.rows().is_empty() {
            return;
        }
        let kept = batch.rows().iter().filter(|rows| rows.payloads == Payloads::Kept);
        let (is_decoded, left) = (batch.decoded_mask(), batch.len());
        let batch = batch.clone().with_rows(kept.cloned().collect()).owned();
        let bytes = batch.memory();
        self.batches.push_back(SentBatch { first, batch, is_decoded, left, bytes });
        self.bytes += bytes;
        while self.bytes > MAX_BYTES && self.batches.len() > 1 {
            let Some(oldest) = self.batches.pop_front() else { break };
            self.bytes -= oldest.bytes;
            self.dropped_below = oldest.first.saturating_add(oldest.batch.len() as i64);
        }
    }

    /// The rows of the events of `batch`, which a program returned with these numbers. `is_known`
    /// tells which of them were sent and return for the first time.
    pub(crate) fn take(
        &mut self,
        batch: &Batch,
        numbers: &Int64Array,
        is_known: impl Fn(usize) -> bool,
    ) -> ReturnedRows {
        let (mut returned, mut decoded) = (ReturnedRows::default(), 0);
        let (mut picks, mut events) = (Vec::new(), Vec::new());
        for event in (0..batch.len()).filter(|event| is_known(*event)) {
            let number = numbers.value(event);
            let Some((at, row)) = self.find(number) else {
                returned.late += u64::from(number < self.dropped_below);
                continue;
            };
            let Some(sent) = self.batches.get_mut(at) else { continue };
            sent.left -= 1;
            if !sent.is_decoded.get(row).copied().unwrap_or_default() {
                continue;
            }
            decoded += 1;
            if sent.batch.payload(row) == batch.payload(event) {
                picks.push((at as u32, row as u32));
                events.push(event as u32);
            }
        }
        if !picks.is_empty() {
            let sent: Vec<Batch> = self.batches.iter().map(|sent| sent.batch.clone()).collect();
            let picked = Batch::interleave(&sent, &picks);
            let back = |rows: &Rows| {
                let place = |pick: &u32| events.get(*pick as usize).copied();
                Rows { events: rows.events.iter().filter_map(place).collect(), ..rows.clone() }
            };
            returned.rows = picked.rows().iter().map(back).collect();
        }
        let kept: usize = returned.rows.iter().map(|rows| rows.events.len()).sum();
        returned.changed = (decoded - kept) as u64;
        let bytes = &mut self.bytes;
        self.batches.retain(|sent| {
            *bytes -= if sent.left == 0 { sent.bytes } else { 0 };
            sent.left > 0
        });
        returned
    }

    /// The batch with the event of this number, and its index there.
    fn find(&self, number: i64) -> Option<(usize, usize)> {
        let at = self.batches.partition_point(|sent| sent.first <= number).checked_sub(1)?;
        let sent = self.batches.get(at)?;
        let row = usize::try_from(number - sent.first).ok()?;
        (row < sent.batch.len()).then_some((at, row))
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
        let first = sent.take(&returned(&[b"dddd", b"bb", b"a", b"bb"]), &numbers, |at| at != 1);
        assert_eq!((fields(&first.rows), first.changed), (vec![(0, 4), (3, 2)], 0));
        assert_eq!(sent.batches.len(), 1, "what has returned is not kept");
        let numbers = Int64Array::from(vec![3, 0]);
        let rest = sent.take(&returned(&[b"ccc", b"new"]), &numbers, |_| true);
        assert_eq!((rest.rows.len(), rest.changed, rest.late), (0, 1, 0));
        assert_eq!((sent.batches.len(), sent.bytes), (0, 0));
    }

    #[test]
    fn events_without_payloads_lose_their_fields() {
        let mut sent = SentRows::default();
        sent.send(0, &batch(&[b"", b""], Payloads::Gone));
        let back = sent.take(&returned(&[b"", b""]), &Int64Array::from(vec![0, 1]), |_| true);
        assert_eq!((back.rows.len(), back.changed), (0, 1));
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
