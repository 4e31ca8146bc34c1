//! Values of a field as bytes, unchanged.

use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, UInt8Type};
use arrow_array::{Array, ArrayRef, OffsetSizeTrait};
use arrow_schema::DataType;

/// The values of a field of bytes: strings, binary, and lists of bytes.
#[derive(Clone, Debug)]
pub(crate) struct ByteValues(ArrayRef);

impl ByteValues {
    /// The values of an array. `None` if they are not bytes.
    pub(crate) fn from_array(array: ArrayRef) -> Option<Self> {
        use DataType::{
            Binary, BinaryView, FixedSizeBinary, FixedSizeList, LargeBinary, LargeList, LargeUtf8,
            List, Utf8, Utf8View,
        };
        let is_bytes = match array.data_type() {
            Binary | BinaryView | FixedSizeBinary(_) | LargeBinary => true,
            LargeUtf8 | Utf8 | Utf8View => true,
            List(element) | LargeList(element) | FixedSizeList(element, _) => {
                matches!(element.data_type(), DataType::UInt8 | DataType::Int8)
            }
            _ => false,
        };
        is_bytes.then_some(Self(array))
    }

    /// The bytes of a value. `None` if it is null or has a null element.
    pub(crate) fn bytes(&self, row: usize) -> Option<&[u8]> {
        let Self(array) = self;
        if array.is_null(row) {
            return None;
        }
        match array.data_type() {
            DataType::Binary => Some(array.as_binary::<i32>().value(row)),
            DataType::LargeBinary => Some(array.as_binary::<i64>().value(row)),
            DataType::BinaryView => Some(array.as_binary_view().value(row)),
            DataType::FixedSizeBinary(_) => Some(array.as_fixed_size_binary().value(row)),
            DataType::Utf8 => Some(array.as_string::<i32>().value(row).as_bytes()),
            DataType::LargeUtf8 => Some(array.as_string::<i64>().value(row).as_bytes()),
            DataType::Utf8View => Some(array.as_string_view().value(row).as_bytes()),
            DataType::List(_) => list::<i32>(array, row),
            DataType::LargeList(_) => list::<i64>(array, row),
            DataType::FixedSizeList(_, _) => {
                let list = array.as_fixed_size_list();
                let (start, len) = (list.value_offset(row), list.value_length());
                elements(list.values(), start as usize, (start + len) as usize)
            }
            _ => None,
        }
    }
}

fn list<O: OffsetSizeTrait>(array: &ArrayRef, row: usize) -> Option<&[u8]> {
    let list = array.as_list::<O>();
    let (start, end) = (list.value_offsets().get(row)?, list.value_offsets().get(row + 1)?);
    elements(list.values(), start.as_usize(), end.as_usize())
}

fn elements(values: &ArrayRef, start: usize, end: usize) -> Option<&[u8]> {
    if values.nulls().is_some_and(|nulls| nulls.slice(start, end - start).null_count() > 0) {
        return None;
    }
    let bytes = match values.data_type() {
        DataType::UInt8 => values.as_primitive::<UInt8Type>().values().inner(),
        _ => values.as_primitive::<Int8Type>().values().inner(),
    };
    bytes.as_slice().get(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::*;
    use std::sync::Arc;

    #[test]
    fn bytes_are_read_from_all_types_of_bytes() {
        let bytes = [Some(&b"ab"[..]), None, Some(b"cd")];
        let texts = [Some("ab"), None, Some("cd")];
        let lists = || [Some([Some(97u8), Some(98)]), None, Some([Some(99), Some(100)])];
        let signed = lists().map(|list| list.map(|list| list.map(|byte| byte.map(|b| b as i8))));
        let arrays: Vec<ArrayRef> = vec![
            Arc::new(BinaryArray::from(bytes.to_vec())),
            Arc::new(LargeBinaryArray::from(bytes.to_vec())),
            Arc::new(BinaryViewArray::from_iter(bytes)),
            Arc::new(
                FixedSizeBinaryArray::try_from_sparse_iter_with_size(bytes.into_iter(), 2).unwrap(),
            ),
            Arc::new(StringArray::from(texts.to_vec())),
            Arc::new(LargeStringArray::from(texts.to_vec())),
            Arc::new(StringViewArray::from_iter(texts)),
            Arc::new(ListArray::from_iter_primitive::<types::UInt8Type, _, _>(lists())),
            Arc::new(LargeListArray::from_iter_primitive::<types::Int8Type, _, _>(signed)),
            Arc::new(FixedSizeListArray::from_iter_primitive::<types::UInt8Type, _, _>(lists(), 2)),
        ];
        for array in arrays {
            let kind = array.data_type().clone();
            let values = ByteValues::from_array(Arc::clone(&array)).unwrap();
            let found = [0, 1, 2].map(|row| values.bytes(row));
            assert_eq!(found, bytes, "{kind}");
            let sliced = ByteValues::from_array(array.slice(1, 2)).unwrap();
            assert_eq!([0, 1].map(|row| sliced.bytes(row)), bytes[1..], "{kind}");
        }
    }

    #[test]
    fn numbers_are_not_bytes_and_a_list_with_a_null_has_none() {
        assert!(ByteValues::from_array(Arc::new(Int32Array::from(vec![1]))).is_none());
        let list =
            ListArray::from_iter_primitive::<types::UInt8Type, _, _>([Some([Some(1), None])]);
        assert_eq!(ByteValues::from_array(Arc::new(list)).unwrap().bytes(0), None);
    }
}
