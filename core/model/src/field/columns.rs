//! The values that field paths lead to in Arrow columns.

use std::sync::Arc;

use arrow_array::builder::UInt8Builder;
use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayAccessor, ArrayRef, BooleanArray, OffsetSizeTrait, RecordBatch, UInt64Array,
    new_null_array,
};
use arrow_buffer::{ArrowNativeType, NullBuffer};
use arrow_schema::{DataType, Field, Fields, Schema};
use arrow_select::nullif::nullif;
use arrow_select::take::take;

use super::{FieldPath, PathStep};
use crate::raw::is_raw;

/// Fixed-size lists with more elements, counting nested ones, stay one leaf.
const MAX_EXPANDED: usize = 64;

impl FieldPath {
    /// The values it leads to, one per row; null where a parent is null or a list too short.
    ///
    /// An element of a binary value is a byte; dictionaries are resolved. `None` if the columns
    /// have no such value by type.
    pub fn resolve(&self, columns: &RecordBatch) -> Option<ArrayRef> {
        let column = columns.column_by_name(&self.column).cloned()?;
        self.steps.iter().try_fold(without_dictionary(column)?, |array, step| {
            without_dictionary(match step {
                PathStep::Name(name) => member(&array, name)?,
                PathStep::Index(index) => element(&array, *index)?,
            })
        })
    }

    /// The paths of all leaves of these columns, in order: members of structs, and elements of
    /// fixed-size lists of at most 64 elements. Longer and variable-size lists are one leaf.
    pub fn leaves(schema: &Schema) -> Vec<Self> {
        let mut leaves = Vec::new();
        for field in schema.fields().iter().filter(|field| !is_raw(field)) {
            push_leaves(Self::column(field.name().as_str()), field, MAX_EXPANDED, &mut leaves);
        }
        leaves
    }
}

fn push_leaves(path: FieldPath, field: &Field, most: usize, leaves: &mut Vec<FieldPath>) {
    match field.data_type() {
        DataType::Struct(members) => push_members(&path, members, most, leaves),
        DataType::FixedSizeList(element, len) if expands(field, most) => {
            for index in 0..*len {
                let path = path.then(PathStep::Index(i64::from(index)));
                push_leaves(path, element, most / len.as_usize(), leaves);
            }
        }
        _ => leaves.push(path),
    }
}

fn push_members(path: &FieldPath, members: &Fields, most: usize, leaves: &mut Vec<FieldPath>) {
    for member in members {
        push_leaves(path.then(PathStep::Name(member.name().as_str().into())), member, most, leaves);
    }
}

/// Whether a fixed list has at most `most` elements, and at least one.
fn expands(list: &Field, most: usize) -> bool {
    let elements = elements(list.data_type());
    (1..=most).contains(&elements)
}

fn elements(data_type: &DataType) -> usize {
    match data_type {
        DataType::FixedSizeList(element, len) => {
            len.as_usize().saturating_mul(elements(element.data_type()))
        }
        _ => 1,
    }
}

fn without_dictionary(array: ArrayRef) -> Option<ArrayRef> {
    let Some(dictionary) = array.as_any_dictionary_opt() else { return Some(array) };
    take_or_null(dictionary.values(), dictionary.keys())
}

fn member(array: &ArrayRef, name: &str) -> Option<ArrayRef> {
    let parent = array.as_struct_opt()?;
    let member = parent.column_by_name(name)?;
    let Some(nulls) = parent.nulls().filter(|nulls| nulls.null_count() > 0) else {
        return Some(Arc::clone(member));
    };
    // A member of a null struct may have any value.
    match member.data_type() {
        // These have no validity bitmap.
        DataType::Union(..) | DataType::RunEndEncoded(..) => None,
        _ => nullif(member, &BooleanArray::new(!nulls.inner(), None)).ok(),
    }
}

fn element(array: &ArrayRef, index: i64) -> Option<ArrayRef> {
    match array.data_type() {
        DataType::FixedSizeList(_, len) => fixed_element(array, in_list(len.as_usize(), index)?),
        DataType::List(_) => list_element::<i32>(array, index),
        DataType::LargeList(_) => list_element::<i64>(array, index),
        DataType::FixedSizeBinary(len) => {
            in_list(len.as_usize(), index)?;
            Some(byte(array.as_fixed_size_binary(), index))
        }
        DataType::Binary => Some(byte(array.as_binary::<i32>(), index)),
        DataType::LargeBinary => Some(byte(array.as_binary::<i64>(), index)),
        DataType::BinaryView => Some(byte(array.as_binary_view(), index)),
        _ => None,
    }
}

/// The position that an index means in a list of that length.
fn in_list(len: usize, index: i64) -> Option<usize> {
    let from_start = match index < 0 {
        true => i64::try_from(len).ok()?.checked_add(index)?,
        false => index,
    };
    usize::try_from(from_start).ok().filter(|at| *at < len)
}

fn fixed_element(array: &ArrayRef, at: usize) -> Option<ArrayRef> {
    let list = array.as_fixed_size_list();
    let len = list.value_length().as_usize();
    let place = |row: usize| row * len + at;
    let places = match array.nulls() {
        Some(_) => places(array, |row| Some(place(row))),
        None => UInt64Array::from_iter_values((0..array.len()).map(|row| place(row) as u64)),
    };
    take_or_null(list.values(), &places)
}

fn list_element<O: OffsetSizeTrait>(array: &ArrayRef, index: i64) -> Option<ArrayRef> {
    let list = array.as_list::<O>();
    let offsets = list.value_offsets();
    let place = |row: usize| {
        let start = offsets.get(row)?.as_usize();
        let len = offsets.get(row + 1)?.as_usize() - start;
        in_list(len, index).map(|at| start + at)
    };
    take_or_null(list.values(), &places(array, place))
}

/// The result of `place` for each row of `array` that is not null.
fn places(array: &ArrayRef, place: impl Fn(usize) -> Option<usize>) -> UInt64Array {
    let nulls = array.nulls();
    let place = |row: usize| {
        let is_there = nulls.is_none_or(|nulls: &NullBuffer| nulls.is_valid(row));
        is_there.then(|| place(row)).flatten().map(|at| at as u64)
    };
    (0..array.len()).map(place).collect()
}

fn take_or_null(values: &ArrayRef, places: &dyn Array) -> Option<ArrayRef> {
    if values.is_empty() {
        return Some(new_null_array(values.data_type(), places.len()));
    }
    take(values, places, None).ok()
}

fn byte<'a>(array: impl ArrayAccessor<Item = &'a [u8]>, index: i64) -> ArrayRef {
    let mut bytes = UInt8Builder::with_capacity(array.len());
    for row in 0..array.len() {
        let value = array.is_valid(row).then(|| array.value(row));
        let at = |value: &[u8]| value.get(in_list(value.len(), index)?).copied();
        bytes.append_option(value.and_then(at));
    }
    Arc::new(bytes.finish())
}

#[cfg(test)]
mod tests {
    use arrow_array::builder::{FixedSizeBinaryBuilder, ListBuilder, StringBuilder};
    use arrow_array::types::{Float64Type, Int8Type, Int32Type, UInt8Type};
    use arrow_array::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::tests::path;
    use super::*;

    fn columns(named: Vec<(&str, ArrayRef)>) -> RecordBatch {
        RecordBatch::try_from_iter_with_nullable(named.into_iter().map(|(n, a)| (n, a, true)))
            .unwrap()
    }

    fn ints(array: &ArrayRef) -> Vec<Option<i32>> {
        array.as_primitive::<Int32Type>().iter().collect()
    }

    fn lists(rows: &[Option<Vec<Option<i32>>>]) -> ListArray {
        ListArray::from_iter_primitive::<Int32Type, _, _>(rows.iter().cloned())
    }

    #[test]
    fn elements_of_lists_that_are_too_short_are_null() {
        let rows = [Some(vec![Some(1), None]), None, Some(vec![]), Some(vec![Some(4)])];
        let found = |path_: &str| {
            ints(&path(path_).resolve(&columns(vec![("v", Arc::new(lists(&rows)))])).unwrap())
        };
        assert_eq!(found("v[0]"), [Some(1), None, None, Some(4)]);
        assert_eq!(found("v[-1]"), [None, None, None, Some(4)]);
        assert_eq!(found("v[7]"), [None; 4]);
    }

    #[test]
    fn fixed_lists_have_the_elements_their_type_says() {
        let rows = [Some([1, 2]), None, Some([5, 6])].map(|row| row.map(|row| row.map(Some)));
        let fixed = FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>(rows, 2);
        let columns = columns(vec![("v", Arc::new(fixed.slice(1, 2)))]);
        assert_eq!(ints(&path("v[-2]").resolve(&columns).unwrap()), [None, Some(5)]);
        assert!(path("v[2]").resolve(&columns).is_none());
        assert!(path("v[-3]").resolve(&columns).is_none());
    }

    #[test]
    fn members_of_null_structs_are_null() {
        let x: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), Some(2), None]));
        let fields = vec![Field::new("x", DataType::Int32, true)].into();
        let valid = NullBuffer::from(vec![true, false, true]);
        let inner = StructArray::new(fields, vec![x], Some(valid));
        let columns = columns(vec![("s", Arc::new(inner))]);
        assert_eq!(ints(&path("s.x").resolve(&columns).unwrap()), [Some(1), None, None]);
        assert!(path("s.y").resolve(&columns).is_none());
        assert!(path("t").resolve(&columns).is_none() && path("s[0]").resolve(&columns).is_none());
    }

    #[test]
    fn elements_of_binary_values_are_bytes() {
        let mut fixed = FixedSizeBinaryBuilder::new(2);
        fixed.append_value([1, 2]).unwrap();
        fixed.append_null();
        let variable = BinaryArray::from(vec![Some(&[9u8][..]), Some(&[])]);
        let columns = columns(vec![("f", Arc::new(fixed.finish())), ("b", Arc::new(variable))]);
        let found = |text: &str| -> Vec<Option<u8>> {
            path(text).resolve(&columns).unwrap().as_primitive::<UInt8Type>().iter().collect()
        };
        assert_eq!(found("f[1]"), [Some(2), None]);
        assert_eq!(found("b[-1]"), [Some(9), None]);
        assert!(path("f[2]").resolve(&columns).is_none());
    }

    #[test]
    fn dictionaries_are_looked_through() {
        let values: ArrayRef = Arc::new(lists(&[Some(vec![Some(7)]), Some(vec![])]));
        let keys = Int8Array::from(vec![Some(1), Some(0), None]);
        let words = DictionaryArray::<Int8Type>::new(keys, values);
        let columns = columns(vec![("d", Arc::new(words))]);
        assert_eq!(ints(&path("d[0]").resolve(&columns).unwrap()), [None, Some(7), None]);
    }

    fn fixed(field: Field, len: i32) -> DataType {
        DataType::FixedSizeList(Arc::new(field), len)
    }

    #[test]
    fn leaves_are_what_a_table_can_hold() {
        let double = |name: &str| Field::new(name, DataType::Float64, false);
        let leg = DataType::Struct(
            vec![double("angle"), Field::new("m", fixed(double("e"), 30), false)].into(),
        );
        let schema = Schema::new(vec![
            Field::new("utime", DataType::Int64, false),
            Field::new("pos", fixed(double("e"), 2), false),
            Field::new("m", fixed(Field::new("e", fixed(double("e"), 2), false), 2), false),
            Field::new("big", fixed(Field::new("e", fixed(double("e"), 9), false), 9), false),
            Field::new("legs", fixed(Field::new("e", leg, false), 3), false),
            Field::new("names", DataType::new_list(DataType::Utf8, false), false),
            Field::new("none", fixed(double("e"), 0), false),
        ]);
        let leaves: Vec<_> = FieldPath::leaves(&schema).iter().map(FieldPath::to_string).collect();
        let wanted = "utime pos[0] pos[1] m[0][0] m[0][1] m[1][0] m[1][1] big legs[0].angle \
                      legs[0].m \
            legs[1].angle legs[1].m legs[2].angle legs[2].m names none";
        assert_eq!(leaves.join(" "), wanted);
    }

    #[test]
    fn structs_in_lists_are_reached() {
        let x: ArrayRef = Arc::new(Float64Array::from(vec![1.5, 2.5, 3.5]));
        let field = Arc::new(Field::new("x", DataType::Float64, true));
        let inner: ArrayRef = Arc::new(StructArray::from(vec![(field, x)]));
        let offsets = arrow_buffer::OffsetBuffer::from_lengths([2, 1]);
        let element = Arc::new(Field::new("e", inner.data_type().clone(), true));
        let list = ListArray::new(element, offsets, inner, None);
        let found = path("l[1].x").resolve(&columns(vec![("l", Arc::new(list))])).unwrap();
        let found: Vec<_> = found.as_primitive::<Float64Type>().iter().collect();
        assert_eq!(found, [Some(2.5), None]);
    }

    #[test]
    fn lists_of_strings_are_reached_though_no_list_has_any() {
        let mut names = ListBuilder::new(StringBuilder::new());
        names.append_null();
        names.append(true);
        let columns = columns(vec![("n", Arc::new(names.finish()))]);
        assert_eq!(path("n[0]").resolve(&columns).unwrap().null_count(), 2);
    }

    proptest! {
        #[test]
        fn elements_are_those_of_the_rows(
            rows in vec(proptest::option::of(vec(proptest::option::of(any::<i32>()), 0..4)), 0..20),
            cut in 0usize..20, index in -5i64..5)
        {
            let start = cut.min(rows.len());
            let list = lists(&rows).slice(start, rows.len() - start);
            let found = FieldPath::column("v").then(PathStep::Index(index))
                .resolve(&columns(vec![("v", Arc::new(list))])).unwrap();
            let wanted: Vec<Option<i32>> = rows[start..].iter().map(|row| {
                let row = row.as_ref()?;
                let at = if index < 0 { row.len() as i64 + index } else { index };
                row.get(usize::try_from(at).ok()?).copied().flatten()
            }).collect();
            prop_assert_eq!(ints(&found), wanted);
        }
    }
}
