//! Events that the stage adds to a batch, and how they are placed among the others.

use sluice_model::{Batch, BatchBuilder, ChannelId, PayloadOffset, Rows, StageContext};

/// Larger payloads are not copied together.
const OWN_SEGMENT: usize = 1 << 12;

/// Events to be added to a batch.
#[derive(Debug, Default)]
pub(crate) struct AddedEvents {
    builder: BatchBuilder,
    /// For each, the number of the batch's own events before it; ascending.
    places: Vec<u32>,
}

impl AddedEvents {
    /// Adds an event behind the first `place` events of the batch. Places may come in any order;
    /// events at one place keep theirs.
    pub(crate) fn push(
        &mut self,
        place: usize,
        (timestamp, sequence): (i64, i64),
        channel: ChannelId,
        payload: Vec<u8>,
    ) {
        self.places.push(place as u32);
        if payload.len() < OWN_SEGMENT {
            self.builder.push_copy(timestamp, sequence, channel, &payload);
            return;
        }
        let payload = bytes::Bytes::from(payload);
        let place = PayloadOffset { segment: self.builder.segment(payload.clone()), offset: 0 };
        self.builder.push(timestamp, sequence, channel, &payload, place);
    }

    /// The batch with the added events, which are counted. Neither payloads nor rows are copied.
    pub(crate) fn merge_into(self, batch: Batch, context: &mut StageContext<'_>) -> Batch {
        if self.places.is_empty() {
            return batch;
        }
        let (added, places) = (self.builder.finish(), self.places);
        context.report.added.extend_from_slice(added.channels());
        let mut order: Vec<u32> = (0..places.len() as u32).collect();
        order.sort_by_key(|at| places[*at as usize]);
        let mut picks = Vec::with_capacity(batch.len() + added.len());
        let mut positions = Vec::with_capacity(batch.len());
        let mut next = order.into_iter().peekable();
        for event in 0..batch.len() as u32 {
            while let Some(at) = next.next_if(|at| places[*at as usize] <= event) {
                picks.push((1, at));
            }
            positions.push(picks.len() as u32);
            picks.push((0, event));
        }
        picks.extend(next.map(|at| (1, at)));
        let moved = |rows: &Rows| {
            let events = rows.events.iter().map(|event| positions[*event as usize]).collect();
            Rows { events, ..rows.clone() }
        };
        let rows = batch.rows().iter().map(moved).collect();
        Batch::interleave(&[batch.with_rows(Vec::new()), added], &picks).with_rows(rows)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int32Array, RecordBatch};
    use sluice_model::{Channels, MessageType, Payloads, TypeKey};

    use super::*;

    #[test]
    fn added_events_lie_where_they_belong_and_rows_follow_their_events() {
        let mut builder = BatchBuilder::default();
        (0..3).for_each(|n| builder.push_copy(n, n, ChannelId(0), b"own"));
        let column: ArrayRef = Arc::new(Int32Array::from(vec![10, 12]));
        let columns = RecordBatch::try_from_iter([("v", column)]).unwrap();
        let message = MessageType::named("t", TypeKey(7)).into();
        let rows = Rows { message, payloads: Payloads::Kept, events: vec![0, 2], columns };
        let batch = builder.finish().with_rows(vec![rows]);

        let mut added = AddedEvents::default();
        added.push(3, (2, 100), ChannelId(1), vec![7; 1 << 13]);
        added.push(0, (0, 101), ChannelId(1), b"first".to_vec());
        added.push(2, (1, 102), ChannelId(1), b"second".to_vec());
        let channels = Channels::default();
        let mut context = StageContext::new(&channels, None);
        let batch = added.merge_into(batch, &mut context);

        assert_eq!(batch.sequences(), [101, 0, 1, 102, 2, 100]);
        assert_eq!((batch.payload(3), batch.payload(5).len()), (&b"second"[..], 1 << 13));
        assert_eq!(batch.rows()[0].events, [1, 4]);
        assert_eq!(context.report.added, [1, 1, 1]);
    }
}
