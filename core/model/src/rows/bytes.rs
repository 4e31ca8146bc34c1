//! Estimates the memory of Arrow arrays, and of the rows of single events. Counts no payloads.

use std::ops::Range;

use arrow_array::cast::AsArray;
use arrow_array::types::ByteViewType;
use arrow_array::{Array, ArrayRef, GenericByteViewArray};
use arrow_buffer::{ArrowNativeType, OffsetBuffer};
use arrow_schema::DataType;

use crate::Batch;

/// Assumed size of a value of a type without a width.
const DEFAULT_VALUE_BYTES: usize = 16;

/// What counts in a range of values.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counted {
    /// The values alone, so that the rows of a column add up to it, but for the bits of booleans.
    Values,
    /// Also bitmaps of nulls, the end of offsets, and values that rows share.
    Everything,
}

/// The bytes that the values of an array take. Of an array that is a slice of another one, only
/// those in it.
pub fn array_bytes(array: &ArrayRef) -> usize {
    bytes_in(array, 0..array.len(), Counted::Everything)
}

impl Batch {
    /// The bytes of the decoded values of each event, which do not depend on the other events of
    /// the batch.
    pub fn row_bytes(&self) -> Vec<usize> {
        let mut bytes = vec![0; self.len()];
        for rows in self.rows() {
            for column in rows.columns.columns() {
                for (row, event) in rows.events.iter().enumerate() {
                    bytes[*event as usize] += bytes_in(column, row..row + 1, Counted::Values);
                }
            }
        }
        bytes
    }
}

/// Recursion is bounded by the type.
fn bytes_in(array: &dyn Array, rows: Range<usize>, counted: Counted) -> usize {
    let count = rows.len();
    let values = match array.data_type() {
        DataType::Struct(_) => {
            let members = array.as_struct().columns().iter();
            members.map(|member| bytes_in(member, rows.clone(), counted)).sum()
        }
        DataType::List(_) => {
            let list = array.as_list::<i32>();
            elements_bytes(list.offsets(), list.values(), rows, counted)
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>();
            elements_bytes(list.offsets(), list.values(), rows, counted)
        }
        DataType::Map(..) => {
            let map = array.as_map();
            elements_bytes(map.offsets(), map.entries(), rows, counted)
        }
        DataType::FixedSizeList(_, width) => {
            let (list, width) = (array.as_fixed_size_list(), usize::try_from(*width).unwrap_or(0));
            bytes_in(list.values(), rows.start * width..rows.end * width, counted)
        }
        DataType::Utf8View => view_bytes(array.as_string_view(), rows),
        DataType::BinaryView => view_bytes(array.as_binary_view(), rows),
        _ if counted == Counted::Everything => {
            let slice = array.slice(rows.start, count).to_data();
            return slice.get_slice_memory_size().unwrap_or_default();
        }
        DataType::Null => 0,
        DataType::Boolean => count.div_ceil(8),
        DataType::Dictionary(key, _) => count * key.primitive_width().unwrap_or_default(),
        DataType::FixedSizeBinary(width) => count * usize::try_from(*width).unwrap_or(0),
        DataType::Utf8 => text_bytes(array.as_string::<i32>().offsets(), rows),
        DataType::LargeUtf8 => text_bytes(array.as_string::<i64>().offsets(), rows),
        DataType::Binary => text_bytes(array.as_binary::<i32>().offsets(), rows),
        DataType::LargeBinary => text_bytes(array.as_binary::<i64>().offsets(), rows),
        other => count * other.primitive_width().unwrap_or(DEFAULT_VALUE_BYTES),
    };
    let has_bitmap = counted == Counted::Everything && array.nulls().is_some();
    values + if has_bitmap { count.div_ceil(8) } else { 0 }
}

/// The bytes of the offsets of lists and of their elements.
fn elements_bytes<O: ArrowNativeType>(
    offsets: &OffsetBuffer<O>,
    elements: &dyn Array,
    rows: Range<usize>,
    counted: Counted,
) -> usize {
    let offset_count = rows.len() + usize::from(counted == Counted::Everything);
    let range = offsets[rows.start].as_usize()..offsets[rows.end].as_usize();
    offset_count * size_of::<O>() + bytes_in(elements, range, counted)
}

fn text_bytes<O: ArrowNativeType>(offsets: &OffsetBuffer<O>, rows: Range<usize>) -> usize {
    let text = offsets[rows.end].as_usize() - offsets[rows.start].as_usize();
    rows.len() * size_of::<O>() + text
}

fn view_bytes<T: ByteViewType>(array: &GenericByteViewArray<T>, rows: Range<usize>) -> usize {
    // The low half of a view is the length.
    array.views()[rows].iter().map(|view| size_of_val(view) + *view as u32 as usize).sum()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::{Int16Type, Int32Type};
    use arrow_array::{
        BinaryArray, BooleanArray, DictionaryArray, FixedSizeListArray, Int64Array,
        LargeStringArray, ListArray, NullArray, RecordBatch, StringArray, StringViewArray,
        StructArray,
    };
    use arrow_schema::Field;

    use super::*;
    use crate::{BatchBuilder, ChannelId, MessageType, Payloads, Rows, TypeKey};

    #[test]
    fn slices_count_only_their_own_values() {
        let numbers = (0..1000).map(|n| Some(vec![Some(n); 8]));
        let lists: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(numbers));
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["a text of 22 characters"; 1000]));
        let views: ArrayRef =
            Arc::new(StringViewArray::from(vec!["a text of 22 characters"; 1000]));
        let fields = [("lists", lists), ("texts", texts), ("views", views)];
        let both: ArrayRef =
            Arc::new(StructArray::from(RecordBatch::try_from_iter(fields).unwrap()));
        for rows in [1, 10, 1000] {
            let bytes = array_bytes(&both.slice(1000 - rows, rows));
            let wanted = rows * (8 * 4 + 4 + 22 + 4 + 22 + 16);
            assert!(
                (wanted..wanted + 16 * rows + 16).contains(&bytes),
                "{rows}: {bytes}, {wanted}"
            );
        }
    }

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
                let mut builder = BatchBuilder::default();
                (0..4).for_each(|n| builder.push_copy(n, n, ChannelId(0), b""));
                let columns = RecordBatch::try_from_iter([(name, column)]).unwrap();
                let message = MessageType::named("t", TypeKey(7)).into();
                let payloads = Payloads::Kept;
                let rows = Rows { message, payloads, events: vec![0, 2, 3], columns };
                let batch = builder.finish().with_rows(vec![rows]);
                let [first, second, third] = wanted;
                assert_eq!(batch.row_bytes(), [first, 0, second, third], "{name}");
                assert_eq!(batch.slice(1, 2).row_bytes(), [0, second], "{name}");
            }
        }
    }
}
