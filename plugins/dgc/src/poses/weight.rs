//! Estimates the memory of pending events, event by event, so that batch boundaries do not matter.

use sluice_model::Batch;

use crate::points::Points;

/// Approximate size of an event without payload and rows.
const EVENT_BYTES: usize = 64;
/// Approximate size of a point, including overhead.
const POINT_BYTES: usize = 64;

/// Approximate size of each event: its payload and its rows, whether or not these replace the
/// payload.
pub(super) fn event_weights(batch: &Batch) -> Vec<u64> {
    let mut row_bytes = batch.row_bytes();
    for rows in batch.rows() {
        let Some(points) = Points::from_rows(rows) else { continue };
        for (row, event) in rows.events.iter().enumerate() {
            let bytes = &mut row_bytes[*event as usize];
            *bytes = (POINT_BYTES * points.range(row).len()).max(*bytes);
        }
    }
    let events = row_bytes.into_iter().enumerate();
    events.map(|(event, bytes)| (EVENT_BYTES + batch.payload_len(event) + bytes) as u64).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, RecordBatch, StringArray};
    use sluice_model::{BatchBuilder, ChannelId, MessageType, Payloads, Rows, TypeKey};

    use super::*;
    use crate::points::{CloudBuilder, PointFrame};
    use crate::poses::rows::list_column;

    fn batch(sizes: &[usize]) -> Batch {
        let mut builder = BatchBuilder::default();
        sizes.iter().for_each(|size| builder.push_copy(0, 0, ChannelId(0), &vec![0; *size]));
        builder.finish()
    }

    #[test]
    fn kept_payloads_and_rows_both_count_whatever_the_batches() {
        let words: ArrayRef = Arc::new(StringArray::from(vec!["", "four", "nothing"]));
        let (_, places) = list_column("pos", &[[0.0; 3]; 3]);
        let columns = RecordBatch::try_from_iter([("words", words), ("pos", places)]).unwrap();
        let message = Arc::new(MessageType::named("pose_t", TypeKey(1)));
        let rows = Rows { message, payloads: Payloads::Kept, events: vec![0, 1, 2], columns };
        let batch = batch(&[100, 200, 0]).with_rows(vec![rows]);
        let all = event_weights(&batch);
        assert_eq!(all, [64 + 100 + 4 + 24, 64 + 200 + 8 + 24, 64 + 11 + 24]);
        assert_eq!(event_weights(&batch.retain(|row| row > 0)), all[1..]);
    }

    #[test]
    fn points_weigh_at_least_64_bytes_each() {
        let mut cloud = CloudBuilder::default();
        for count in [0, 3] {
            let many = |values: &mut Vec<f64>| values.extend(vec![1.0; count]);
            [&mut cloud.x, &mut cloud.y, &mut cloud.z].into_iter().for_each(many);
            cloud.intensity.extend(vec![0.0; count]);
            cloud.laser.extend(vec![0; count]);
            cloud.azimuth.extend(vec![0.0; count]);
            cloud.time.extend(vec![0; count]);
            let event = if count == 0 { 0 } else { 1 };
            cloud.end_event(event, 0, true).unwrap();
        }
        let batch = batch(&[0, 0]).with_rows(vec![cloud.finish(PointFrame::Body)]);
        assert_eq!(event_weights(&batch), [64 + 12, 64 + 3 * 64]);
    }
}
