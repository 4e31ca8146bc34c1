//! Estimates the memory of the rows of single events, event by event, so that batch boundaries do
//! not matter. Counts no payloads.

use arrow_array::cast::AsArray;
use arrow_array::types::ByteViewType;
use arrow_array::{Array, GenericByteViewArray};
use arrow_buffer::{ArrowNativeType, OffsetBuffer};
use arrow_schema::DataType;
use sluice_model::Batch;

/// Assumed size of a value of a type without a width.
const DEFAULT_VALUE_BYTES: usize = 16;

/// The bytes of the decoded values of each event.
pub(crate) fn row_bytes(batch: &Batch) -> Vec<usize> {
    let mut bytes = vec![0; batch.len()];
    for rows in batch.rows() {
        for column in rows.columns.columns() {
            for (row, event) in rows.events.iter().enumerate() {
                bytes[*event as usize] += value_bytes(column, row, row + 1);
            }
        }
    }
    bytes
}

/// The bytes of the values from `start` to below `end`. Recursion is bounded by the type.
fn value_bytes(array: &dyn Array, start: usize, end: usize) -> usize {
    let members = |members: &[arrow_array::ArrayRef], start, end| {
        members.iter().map(|member| value_bytes(member, start, end)).sum::<usize>()
    };
    match array.data_type() {
        DataType::Struct(_) => members(array.as_struct().columns(), start, end),
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            let (first, last) = between(list.offsets(), start, end);
            (end - start) * 4 + value_bytes(list.values(), first, last)
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            let (first, last) = between(list.offsets(), start, end);
            (end - start) * 8 + value_bytes(list.values(), first, last)
        }
        DataType::Map(..) => {
            let map = array.as_map();
            let (first, last) = between(map.offsets(), start, end);
            (end - start) * 4 + members(map.entries().columns(), first, last)
        }
        DataType::FixedSizeList(_, width) => {
            let (list, width) = (array.as_fixed_size_list(), usize::try_from(*width).unwrap_or(0));
            value_bytes(list.values(), start * width, end * width)
        }
        DataType::Null => 0,
        DataType::Boolean => (end - start).div_ceil(8),
        // Rows share the values.
        DataType::Dictionary(key, _) => (end - start) * key.primitive_width().unwrap_or_default(),
        DataType::FixedSizeBinary(width) => (end - start) * usize::try_from(*width).unwrap_or(0),
        DataType::Utf8 => text_bytes(array.as_string::<i32>().offsets(), start, end),
        DataType::LargeUtf8 => text_bytes(array.as_string::<i64>().offsets(), start, end),
        DataType::Binary => text_bytes(array.as_binary::<i32>().offsets(), start, end),
        DataType::LargeBinary => text_bytes(array.as_binary::<i64>().offsets(), start, end),
        DataType::Utf8View => view_bytes(array.as_string_view(), start, end),
        DataType::BinaryView => view_bytes(array.as_binary_view(), start, end),
        other => (end - start) * other.primitive_width().unwrap_or(DEFAULT_VALUE_BYTES),
    }
}

fn between<O: ArrowNativeType>(
    offsets: &OffsetBuffer<O>,
    start: usize,
    end: usize,
) -> (usize, usize) {
    (offsets[start].as_usize(), offsets[end].as_usize())
}

fn text_bytes<O: ArrowNativeType>(offsets: &OffsetBuffer<O>, start: usize, end: usize) -> usize {
    let (first, last) = between(offsets, start, end);
    (end - start) * size_of::<O>() + last - first
}

fn view_bytes<T: ByteViewType>(array: &GenericByteViewArray<T>, start: usize, end: usize) -> usize {
    let views = &array.views()[start..end];
    // The low half of a view is the length.
    views.iter().map(|view| size_of_val(view) + *view as u32 as usize).sum()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::{Int16Type, Int32Type};
    use arrow_array::{
        ArrayRef, BinaryArray, BooleanArray, DictionaryArray, FixedSizeListArray, Int64Array,
        LargeStringArray, ListArray, NullArray, RecordBatch, StringArray, StringViewArray,
        StructArray,
    };
    use arrow_schema::Field;

    use super::*;
    use crate::testing::{StageRunner, rows};

    #[test]
    fn values_count_by_event_whatever_their_type_and_batch() {
        let texts = ["", "four", "a text of 22 characters"];
        let lists = [0, 1, 5].map(|len| Some((0..len).map(Some).collect::<Vec<_>>()));
        let flags: ArrayRef = Arc::new(BooleanArray::from(vec![true; 60]));
        let flag = Arc::new(Field::new("item", DataType::Boolean, true));
        let words: DictionaryArray<Int16Type> = texts.into_iter().collect();
        let columns: [(&str, ArrayRef, [usize; 3]); 10] = [
            ("whole", Arc::new(Int64Array::from(vec![1, 2, 3])), [8, 8, 8]),
            ("text", Arc::new(StringArray::from(texts.to_vec())), [4, 8, 27]),
            ("large", Arc::new(LargeStringArray::from(texts.to_vec())), [8, 12, 31]),
            ("view", Arc::new(StringViewArray::from(texts.to_vec())), [16, 20, 39]),
            ("bytes", Arc::new(BinaryArray::from_iter_values(texts)), [4, 8, 27]),
            (
                "list",
                Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists)),
                [4, 8, 24],
            ),
            ("null", Arc::new(NullArray::new(3)), [0, 0, 0]),
            ("flag", flags.slice(0, 3), [1, 1, 1]),
            ("flags", Arc::new(FixedSizeListArray::new(flag, 20, flags, None)), [3, 3, 3]),
            ("word", Arc::new(words), [2, 2, 2]),
        ];
        for (name, column, wanted) in columns {
            let member = RecordBatch::try_from_iter([(name, Arc::clone(&column))]).unwrap();
            let both: [ArrayRef; 2] = [column, Arc::new(StructArray::from(member))];
            for column in both {
                let mut run = StageRunner::new("limit", serde_json::json!({ "events": 1 }));
                let batch = run.batch(&[("A", 0), ("B", 1), ("A", 2), ("A", 3)]);
                let batch = batch.with_rows(vec![rows("t", &[0, 2, 3], vec![(name, column)])]);
                let [first, second, third] = wanted;
                assert_eq!(row_bytes(&batch), [first, 0, second, third], "{name}");
                assert_eq!(row_bytes(&batch.slice(1, 2)), [0, second], "{name}");
            }
        }
    }
}
