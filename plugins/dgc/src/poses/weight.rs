//! Estimates the memory of pending events, event by event, so that batch boundaries do not matter.

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_schema::DataType;
use sluice_model::{Batch, Rows};

use crate::points::Points;

/// Approximate size of an event without payload and rows.
const EVENT_BYTES: u64 = 64;
/// Approximate size of a point, including overhead.
const POINT_BYTES: u64 = 64;

/// Approximate size of each event: its payload and its rows, whether or not these replace the
/// payload.
pub(super) fn event_weights(batch: &Batch) -> Vec<u64> {
    let mut event_weights: Vec<u64> =
        (0..batch.len()).map(|event| EVENT_BYTES + batch.payload_len(event) as u64).collect();
    for rows in batch.rows() {
        let points = Points::from_rows(rows);
        for (row, event) in rows.events.iter().enumerate() {
            let points = points.as_ref().map_or(0, |points| points.range(row).len() as u64);
            event_weights[*event as usize] += (POINT_BYTES * points).max(row_bytes(rows, row));
        }
    }
    event_weights
}

fn row_bytes(rows: &Rows, row: usize) -> u64 {
    rows.columns.columns().iter().map(|column| array_bytes(column, row, row + 1)).sum()
}

/// Approximate size of the values of an array from `start` to below `end`. Recursion is bounded by
/// the type.
fn array_bytes(array: &dyn Array, start: usize, end: usize) -> u64 {
    let count = end.saturating_sub(start);
    let between = |offsets: &[i32]| (offsets[end] - offsets[start]) as u64;
    match array.data_type() {
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let (first, last) = (list.offsets()[start] as usize, list.offsets()[end] as usize);
            4 + array_bytes(list.values(), first, last)
        }
        DataType::FixedSizeList(_, width) => {
            let (list, width) = (array.as_fixed_size_list(), *width as usize);
            array_bytes(list.values(), start * width, end * width)
        }
        DataType::Struct(_) => {
            array.as_struct().columns().iter().map(|member| array_bytes(member, start, end)).sum()
        }
        DataType::Binary => 4 + between(array.as_binary::<i32>().value_offsets()),
        DataType::Utf8 => 4 + between(array.as_string::<i32>().value_offsets()),
        other => (other.primitive_width().unwrap_or(DEFAULT_VALUE_BYTES) * count) as u64,
    }
}

/// Assumed size of a value of unknown width.
const DEFAULT_VALUE_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, RecordBatch, StringArray};
    use sluice_model::{BatchBuilder, ChannelId, MessageType, Payloads, TypeKey};

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
