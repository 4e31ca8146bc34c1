//! Lists of fixed length as lists of any, and the other way round: a table may not know lengths
//! that another table of the same messages knows.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, BooleanArray, FixedSizeListArray, ListArray, RecordBatch, RecordBatchOptions,
    StructArray, UInt32Array,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields, SchemaRef};
use arrow_select::filter::filter;
use arrow_select::take::take;

/// The columns with these types, which may differ from theirs in whether the lengths of lists are
/// fixed. `None` if they differ in more, or a list has another length.
pub fn rows_with_list_lengths(columns: &RecordBatch, schema: &SchemaRef) -> Option<RecordBatch> {
    let (fields, wanted) = (columns.schema_ref().fields(), schema.fields());
    if !are_same_but_lengths(fields, wanted) {
        return None;
    }
    let converted = columns.columns().iter().zip(wanted);
    let converted =
        converted.map(|(column, field)| with_list_lengths(column, field.data_type(), None));
    let converted = converted.collect::<Result<Vec<ArrayRef>, _>>().ok()?;
    let options = RecordBatchOptions::new().with_row_count(Some(columns.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), converted, &options).ok()
}

fn are_same_but_lengths(fields: &Fields, others: &Fields) -> bool {
    let is_same = |(field, other): (&FieldRef, &FieldRef)| {
        is_same_but_lengths(field.data_type(), other.data_type())
            && Field::clone(field).with_data_type(other.data_type().clone()) == **other
    };
    fields.len() == others.len() && fields.iter().zip(others).all(is_same)
}

fn is_same_but_lengths(data_type: &DataType, other: &DataType) -> bool {
    let is_same = |item: &FieldRef, other: &FieldRef| {
        are_same_but_lengths(&vec![Arc::clone(item)].into(), &vec![Arc::clone(other)].into())
    };
    match (data_type, other) {
        (DataType::FixedSizeList(item, len), DataType::FixedSizeList(other, other_len)) => {
            len == other_len && is_same(item, other)
        }
        (
            DataType::List(item) | DataType::FixedSizeList(item, _),
            DataType::List(other) | DataType::FixedSizeList(other, _),
        ) => is_same(item, other),
        (DataType::Struct(fields), DataType::Struct(others)) => {
            are_same_but_lengths(fields, others)
        }
        (data_type, other) => data_type == other,
    }
}

/// The column with this type, which may differ from its own in whether the lengths of lists are
/// fixed, where rows may be missing because what is around them is. `Err` if a list has another
/// length.
fn with_list_lengths(
    column: &ArrayRef,
    data_type: &DataType,
    around: Option<&NullBuffer>,
) -> Result<ArrayRef, ArrowError> {
    if column.data_type() == data_type {
        return Ok(Arc::clone(column));
    }
    let nulls = NullBuffer::union(column.nulls(), around).filter(|nulls| nulls.null_count() > 0);
    Ok(match (data_type, column.data_type()) {
        (DataType::FixedSizeList(item, len), DataType::List(_)) => {
            let size = *len as usize;
            let elements = elements_of_lists(column.as_list(), size, nulls.as_ref())?;
            let missing = nulls.as_ref().map(|nulls| nulls.expand(size));
            let elements = with_list_lengths(&elements, item.data_type(), missing.as_ref())?;
            let item = retyped(item, &elements);
            let rows = column.len();
            Arc::new(FixedSizeListArray::try_new_with_length(item, *len, elements, nulls, rows)?)
        }
        (DataType::List(item), DataType::FixedSizeList(_, len)) => {
            let elements = elements_of_fixed(column.as_fixed_size_list(), nulls.as_ref())?;
            let elements = with_list_lengths(&elements, item.data_type(), None)?;
            let is_there = |row: usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
            let lens = (0..column.len()).map(|row| if is_there(row) { *len as usize } else { 0 });
            i32::try_from(elements.len())
                .map_err(|_| ArrowError::OffsetOverflowError(elements.len()))?;
            let offsets = OffsetBuffer::from_lengths(lens);
            let nulls = column.nulls().cloned();
            Arc::new(ListArray::try_new(retyped(item, &elements), offsets, elements, nulls)?)
        }
        (DataType::FixedSizeList(item, len), DataType::FixedSizeList(..)) => {
            let lists = column.as_fixed_size_list();
            let missing = nulls.as_ref().map(|nulls| nulls.expand(*len as usize));
            let elements = with_list_lengths(lists.values(), item.data_type(), missing.as_ref())?;
            let (item, rows) = (retyped(item, &elements), lists.len());
            Arc::new(FixedSizeListArray::try_new_with_length(item, *len, elements, nulls, rows)?)
        }
        (DataType::List(item), DataType::List(_)) => {
            let lists = column.as_list::<i32>();
            let elements = with_list_lengths(lists.values(), item.data_type(), None)?;
            let (offsets, nulls) = (lists.offsets().clone(), lists.nulls().cloned());
            Arc::new(ListArray::try_new(retyped(item, &elements), offsets, elements, nulls)?)
        }
        (DataType::Struct(fields), DataType::Struct(_)) => {
            let members = column.as_struct();
            let columns = fields.iter().zip(members.columns());
            let columns = columns
                .map(|(field, column)| with_list_lengths(column, field.data_type(), nulls.as_ref()))
                .collect::<Result<Vec<ArrayRef>, _>>()?;
            let fields = fields.iter().zip(&columns).map(|(field, column)| retyped(field, column));
            let (fields, rows): (Fields, usize) = (fields.collect(), members.len());
            Arc::new(StructArray::try_new_with_length(fields, columns, nulls, rows)?)
        }
        _ => Arc::clone(column),
    })
}

fn retyped(field: &Field, column: &ArrayRef) -> FieldRef {
    Arc::new(field.clone().with_data_type(column.data_type().clone()))
}

/// The elements of lists of this length, one list after the other; nulls for those that are
/// missing. `Err` if a list has another length.
pub fn elements_of_lists(
    lists: &ListArray,
    len: usize,
    missing: Option<&NullBuffer>,
) -> Result<ArrayRef, ArrowError> {
    let is_missing = |row: usize| missing.is_some_and(|nulls| nulls.is_null(row));
    let offsets = lists.value_offsets();
    let lens = offsets.windows(2).map(|pair| (pair[1] - pair[0]) as usize).enumerate();
    if let Some((_, other)) = lens.clone().find(|(row, other)| *other != len && !is_missing(*row)) {
        let what = format!("a list has {other} elements, not {len} as the others");
        return Err(ArrowError::InvalidArgumentError(what));
    }
    if missing.is_none() {
        return Ok(lists.values().slice(offsets[0] as usize, lists.len() * len));
    }
    let places = offsets.iter().take(lists.len()).enumerate().flat_map(|(row, start)| {
        (0..len as u32).map(move |n| (!is_missing(row)).then_some(*start as u32 + n))
    });
    take(lists.values(), &places.collect::<UInt32Array>(), None)
}

/// The elements of lists of fixed length, without those of lists that are missing.
fn elements_of_fixed(
    lists: &FixedSizeListArray,
    missing: Option<&NullBuffer>,
) -> Result<ArrayRef, ArrowError> {
    let Some(nulls) = missing else { return Ok(Arc::clone(lists.values())) };
    let there = nulls.expand(lists.value_length() as usize).into_inner();
    filter(lists.values(), &BooleanArray::new(there, None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{Float64Array, Int64Array};
    use arrow_schema::Schema;

    fn numbers(count: usize) -> ArrayRef {
        Arc::new(Float64Array::from_iter_values((0..count).map(|n| n as f64)))
    }

    fn item(values: &ArrayRef) -> FieldRef {
        Arc::new(Field::new("item", values.data_type().clone(), false))
    }

    fn fixed(values: ArrayRef, len: i32, nulls: Option<NullBuffer>) -> ArrayRef {
        Arc::new(FixedSizeListArray::new(item(&values), len, values, nulls))
    }

    fn plain(values: ArrayRef, lens: &[usize], nulls: Option<NullBuffer>) -> ArrayRef {
        let offsets = OffsetBuffer::from_lengths(lens.iter().copied());
        Arc::new(ListArray::new(item(&values), offsets, values, nulls))
    }

    fn in_struct(values: ArrayRef, nulls: Option<NullBuffer>) -> ArrayRef {
        let fields = Fields::from(vec![Field::new("v", values.data_type().clone(), false)]);
        Arc::new(StructArray::new(fields, vec![values], nulls))
    }

    #[test]
    fn lists_of_fixed_length_become_others_and_others_become_them() {
        let nulls = || Some(NullBuffer::from(vec![true, false, true]));
        let pairs = |count: usize| vec![2; count];
        let both = [
            (fixed(numbers(6), 2, None), plain(numbers(6), &pairs(3), None)),
            (fixed(numbers(6), 2, nulls()), {
                let there: ArrayRef = Arc::new(Float64Array::from(vec![0., 1., 4., 5.]));
                plain(there, &[2, 0, 2], nulls())
            }),
            (
                fixed(fixed(numbers(12), 2, None), 2, None),
                plain(plain(numbers(12), &pairs(6), None), &pairs(3), None),
            ),
            (
                plain(fixed(numbers(12), 2, None), &[1, 0, 5], None),
                plain(plain(numbers(12), &pairs(6), None), &[1, 0, 5], None),
            ),
            (
                fixed(plain(numbers(6), &[0, 1, 2, 3, 0, 0], None), 2, None),
                plain(plain(numbers(6), &[0, 1, 2, 3, 0, 0], None), &pairs(3), None),
            ),
            (in_struct(fixed(numbers(6), 2, None), nulls()), {
                let there: ArrayRef = Arc::new(Float64Array::from(vec![0., 1., 4., 5.]));
                in_struct(plain(there, &[2, 0, 2], None), nulls())
            }),
            (
                in_struct(in_struct(fixed(numbers(6), 2, None), None), nulls()),
                in_struct(in_struct(plain(numbers(6), &pairs(3), None), None), nulls()),
            ),
            (fixed(numbers(0), 0, nulls()), plain(numbers(0), &[0, 0, 0], nulls())),
        ];
        for (fixed, plain) in both {
            for (from, to) in [(&fixed, &plain), (&plain, &fixed), (&fixed, &fixed)] {
                for (start, count) in [(0, 3), (0, 2), (1, 2), (2, 1)] {
                    let (from, to) = (from.slice(start, count), to.slice(start, count));
                    let made = with_list_lengths(&from, to.data_type(), None);
                    assert_eq!(*made.unwrap(), *to, "{from:?}");
                }
            }
        }
    }

    #[test]
    fn columns_that_differ_in_more_are_of_another_type() {
        let schema = |name: &str, column: &ArrayRef| -> SchemaRef {
            Arc::new(Schema::new(vec![Field::new(name, column.data_type().clone(), false)]))
        };
        let rows = |column: &ArrayRef| {
            RecordBatch::try_new(schema("a", column), vec![Arc::clone(column)]).unwrap()
        };
        let (pairs, plain) = (fixed(numbers(6), 2, None), plain(numbers(6), &[2, 2, 2], None));
        let converted = rows_with_list_lengths(&rows(&pairs), &schema("a", &plain));
        assert_eq!(converted, Some(rows(&plain)));
        let integers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
        let others = [
            schema("b", &plain),
            schema("a", &numbers(1)),
            schema("a", &in_struct(Arc::clone(&plain), None)),
            schema("a", &fixed(integers, 2, None)),
            schema("a", &fixed(numbers(6), 3, None)),
            Arc::new(Schema::new(vec![Field::new("a", plain.data_type().clone(), true)])),
            Arc::new(Schema::empty()),
        ];
        for other in others {
            assert_eq!(rows_with_list_lengths(&rows(&pairs), &other), None, "{other}");
        }
        let threes = schema("a", &fixed(numbers(6), 3, None));
        assert_eq!(rows_with_list_lengths(&rows(&plain), &threes), None);
    }
}
