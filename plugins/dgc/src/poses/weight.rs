//! How much memory events take while they wait, each by itself: how they are cut into batches does not matter.

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_schema::DataType;
use sluice_core::{Batch, Rows};

use crate::points::Points;

/// About what an event takes without its payload and what is decoded of it.
const EVENT: u64 = 64;
/// About what a point takes, with what a batch of them takes beside.
const POINT: u64 = 64;

/// About what each event of a batch takes: its payload, and its rows whether they keep that or not.
pub(super) fn weights(batch: &Batch) -> Vec<u64> {
    let mut weights: Vec<u64> =
        (0..batch.len()).map(|event| EVENT + batch.payload_len(event) as u64).collect();
    for rows in batch.rows() {
        let points = Points::of(rows);
        for (row, event) in rows.events.iter().enumerate() {
            let points = points.as_ref().map_or(0, |points| points.range(row).len() as u64);
            weights[*event as usize] += (POINT * points).max(row_bytes(rows, row));
        }
    }
    weights
}

fn row_bytes(rows: &Rows, row: usize) -> u64 {
    rows.columns.columns().iter().map(|column| bytes(column, row, row + 1)).sum()
}

/// About how many bytes the values of an array from `start` to below `end` take. As deep as its type.
fn bytes(array: &dyn Array, start: usize, end: usize) -> u64 {
    let count = end.saturating_sub(start);
    let between = |offsets: &[i32]| (offsets[end] - offsets[start]) as u64;
    match array.data_type() {
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let (first, last) = (list.offsets()[start] as usize, list.offsets()[end] as usize);
            4 + bytes(list.values(), first, last)
        }
        DataType::FixedSizeList(_, width) => {
            let (list, width) = (array.as_fixed_size_list(), *width as usize);
            bytes(list.values(), start * width, end * width)
        }
        DataType::Struct(_) => {
            array.as_struct().columns().iter().map(|member| bytes(member, start, end)).sum()
        }
        DataType::Binary => 4 + between(array.as_binary::<i32>().value_offsets()),
        DataType::Utf8 => 4 + between(array.as_string::<i32>().value_offsets()),
        other => (other.primitive_width().unwrap_or(OTHER) * count) as u64,
    }
}

/// What is taken for a value of which it is not known how much it takes.
const OTHER: usize = 16;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, RecordBatch, StringArray};
    use sluice_core::{BatchBuilder, ChannelId, MessageType, Payloads, TypeKey};

    use super::*;
    use crate::points::{Cloud, Frame};
    use crate::poses::rows::lists;

    fn batch(sizes: &[usize]) -> Batch {
        let mut builder = BatchBuilder::default();
        sizes.iter().for_each(|size| builder.push_copy(0, 0, ChannelId(0), &vec![0; *size]));
        builder.finish()
    }

    #[test]
    fn rows_that_keep_their_payloads_weigh_beside_them_however_they_are_cut() {
        let words: ArrayRef = Arc::new(StringArray::from(vec!["", "four", "nothing"]));
        let (_, places) = lists("pos", &[[0.0; 3]; 3]);
        let columns = RecordBatch::try_from_iter([("words", words), ("pos", places)]).unwrap();
        let message = Arc::new(MessageType::named("pose_t", TypeKey(1)));
        let rows = Rows { message, payloads: Payloads::Kept, events: vec![0, 1, 2], columns };
        let batch = batch(&[100, 200, 0]).with_rows(vec![rows]);
        let all = weights(&batch);
        assert_eq!(all, [64 + 100 + 4 + 24, 64 + 200 + 8 + 24, 64 + 11 + 24]);
        assert_eq!(weights(&batch.retain(|row| row > 0)), all[1..]);
    }

    #[test]
    fn points_weigh_at_least_64_bytes_each() {
        let mut cloud = Cloud::default();
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
        let batch = batch(&[0, 0]).with_rows(vec![cloud.finish(Frame::Body)]);
        assert_eq!(weights(&batch), [64 + 12, 64 + 3 * 64]);
    }
}
