//! Casts of columns: Arrow's, right for slices too, and those of columns of other programs back to
//! the types they were decoded as.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, BinaryArray, FixedSizeListArray, GenericListArray, ListArray, OffsetSizeTrait,
    RecordBatch, StructArray,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_cast::CastOptions;
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields};

mod list_lengths;

pub use list_lengths::{elements_of_lists, rows_with_list_lengths};

/// Arrow's cast, with null for what does not fit. It is right for slices of lists, too, which
/// Arrow's own gives the values of rows before them.
pub fn cast(column: &dyn Array, data_type: &DataType) -> Result<ArrayRef, ArrowError> {
    cast_with_options(column, data_type, &CastOptions::default())
}

/// Like [`cast()`], with an error for what does not fit.
pub fn cast_exact(column: &dyn Array, data_type: &DataType) -> Result<ArrayRef, ArrowError> {
    cast_with_options(column, data_type, &CastOptions { safe: false, ..CastOptions::default() })
}

#[expect(clippy::disallowed_methods, reason = "the place that makes it right for slices")]
fn cast_with_options(
    column: &dyn Array,
    data_type: &DataType,
    options: &CastOptions<'_>,
) -> Result<ArrayRef, ArrowError> {
    if !has_fixed_list(data_type) {
        return arrow_cast::cast_with_options(column, data_type, options);
    }
    let column = from_first_value(&column.slice(0, column.len()));
    arrow_cast::cast_with_options(&column, data_type, options)
}

fn has_fixed_list(data_type: &DataType) -> bool {
    match data_type {
        DataType::FixedSizeList(..) => true,
        DataType::List(item) | DataType::LargeList(item) => has_fixed_list(item.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| has_fixed_list(field.data_type())),
        _ => false,
    }
}

/// Casts a column back to the type it was decoded as: other programs write lists and numbers
/// differently. Rows that the cast would change are marked in `unfit`.
pub fn as_type(
    column: &ArrayRef,
    data_type: &DataType,
    unfit: &mut [bool],
) -> Result<ArrayRef, String> {
    if column.data_type() == data_type {
        return Ok(Arc::clone(column));
    }
    let column = &with_empty_structs(column, data_type);
    // A null in the wrong place is found when its row is written.
    let data_type = &nullable(data_type);
    check_lists(&from_first_value(column), data_type)?;
    let there = cast(column, data_type).map_err(|e| e.to_string())?;
    let back = cast(&there, &nullable(column.data_type())).map_err(|e| e.to_string())?;
    let column = cast(column, back.data_type()).map_err(|e| e.to_string())?;
    if *back != *column {
        for (row, unfit) in unfit.iter_mut().enumerate() {
            *unfit |= *back.slice(row, 1) != *column.slice(row, 1);
        }
    }
    Ok(there)
}

/// The column with structs for the booleans that stand for structs without members, which Parquet
/// does not have: whether they are there.
fn with_empty_structs(column: &ArrayRef, wanted: &DataType) -> ArrayRef {
    let items = |values: &ArrayRef, item: &FieldRef, wanted: &FieldRef| {
        let values = with_empty_structs(values, wanted.data_type());
        let item = item.as_ref().clone().with_data_type(values.data_type().clone());
        (Arc::new(item.with_nullable(true)), values)
    };
    match (column.data_type(), wanted) {
        (DataType::Boolean, DataType::Struct(fields)) if fields.is_empty() => {
            let is_there = NullBuffer::new(column.as_boolean().values().clone());
            let nulls = NullBuffer::union(column.nulls(), Some(&is_there));
            Arc::new(StructArray::new_empty_fields(column.len(), nulls))
        }
        (DataType::List(item), DataType::List(wanted)) => {
            let lists = column.as_list::<i32>();
            let (item, values) = items(lists.values(), item, wanted);
            Arc::new(ListArray::new(item, lists.offsets().clone(), values, lists.nulls().cloned()))
        }
        (DataType::FixedSizeList(item, len), DataType::FixedSizeList(wanted, _)) => {
            let lists = column.as_fixed_size_list();
            let (item, values) = items(lists.values(), item, wanted);
            let nulls = lists.nulls().cloned();
            let made =
                FixedSizeListArray::try_new_with_length(item, *len, values, nulls, lists.len());
            made.map_or_else(|_| Arc::clone(column), |lists| Arc::new(lists))
        }
        (DataType::Struct(fields), DataType::Struct(wanted)) if !fields.is_empty() => {
            let members = fields.iter().zip(column.as_struct().columns());
            let members = members.map(|(field, member)| match wanted.find(field.name()) {
                Some((_, wanted)) => items(member, field, wanted),
                None => (Arc::clone(field), Arc::clone(member)),
            });
            let (fields, columns): (Vec<_>, Vec<_>) = members.unzip();
            Arc::new(StructArray::new(fields.into(), columns, column.nulls().cloned()))
        }
        _ => Arc::clone(column),
    }
}

/// The column with lists whose values begin with those of the first row, also inside of others.
///
/// Of a slice that keeps those of others, Arrow's cast to lists of a fixed length takes the values
/// of the rows before it.
pub fn from_first_value(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::List(item) => list_from_first_value::<i32>(column, item),
        DataType::LargeList(item) => list_from_first_value::<i64>(column, item),
        DataType::FixedSizeList(item, len) => {
            let lists = column.as_fixed_size_list();
            let values = from_first_value(lists.values());
            let nulls = lists.nulls().cloned();
            let made = FixedSizeListArray::try_new_with_length(
                Arc::clone(item),
                *len,
                values,
                nulls,
                lists.len(),
            );
            made.map_or_else(|_| Arc::clone(column), |lists| Arc::new(lists))
        }
        DataType::Struct(fields) => {
            let members = column.as_struct();
            let columns = members.columns().iter().map(from_first_value).collect();
            let nulls = members.nulls().cloned();
            let made =
                StructArray::try_new_with_length(fields.clone(), columns, nulls, members.len());
            made.map_or_else(|_| Arc::clone(column), |members| Arc::new(members))
        }
        _ => Arc::clone(column),
    }
}

fn list_from_first_value<O: OffsetSizeTrait>(column: &ArrayRef, item: &FieldRef) -> ArrayRef {
    let lists = column.as_list::<O>();
    let offsets = lists.value_offsets();
    let (start, end) = (offsets[0], offsets[lists.len()]);
    let values = lists.values().slice(start.as_usize(), (end - start).as_usize());
    let moved: Vec<O> = offsets.iter().map(|offset| *offset - start).collect();
    Arc::new(GenericListArray::new(
        Arc::clone(item),
        OffsetBuffer::new(moved.into()),
        from_first_value(&values),
        lists.nulls().cloned(),
    ))
}

/// The columns of these names, each [as the type](as_type) of its field.
pub fn as_fields(
    columns: &RecordBatch,
    fields: &Fields,
    unfit: &mut [bool],
) -> Result<Vec<ArrayRef>, String> {
    let as_field = |field: &FieldRef| {
        let name = field.name();
        let column = columns.column_by_name(name);
        let column = column.ok_or_else(|| format!("there is no column `{name}`"))?;
        as_type(column, field.data_type(), unfit)
            .map_err(|reason| format!("column `{name}`: {reason}"))
    };
    fields.iter().map(as_field).collect()
}

/// The column of this name, as bytes.
pub fn binary_column(columns: &RecordBatch, name: &str) -> Result<BinaryArray, String> {
    let field = Arc::new(Field::new(name, DataType::Binary, true));
    let mut unfit = vec![false; columns.num_rows()];
    let column = as_fields(columns, &Fields::from(vec![field]), &mut unfit)?;
    Ok(column[0].as_binary::<i32>().clone())
}

/// The type with everything in it nullable.
pub fn nullable(data_type: &DataType) -> DataType {
    let loose = |field: &FieldRef| {
        let inner = nullable(field.data_type());
        Arc::new(field.as_ref().clone().with_data_type(inner).with_nullable(true))
    };
    match data_type {
        DataType::List(item) => DataType::List(loose(item)),
        DataType::LargeList(item) => DataType::LargeList(loose(item)),
        DataType::FixedSizeList(item, size) => DataType::FixedSizeList(loose(item), *size),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(loose).collect()),
        other => other.clone(),
    }
}

/// How far a cast to fixed-size lists may grow a column: factor and allowance in elements. The size
/// may come from an untrusted file.
const MAX_GROWTH: (usize, usize) = (2, 64 << 10);

/// Refuses casts that would make lists far longer.
fn check_lists(array: &ArrayRef, wanted: &DataType) -> Result<(), String> {
    let items = match array.data_type() {
        DataType::List(_) => array.as_list::<i32>().values(),
        DataType::LargeList(_) => array.as_list::<i64>().values(),
        DataType::FixedSizeList(..) => array.as_fixed_size_list().values(),
        DataType::Struct(_) => {
            let DataType::Struct(fields) = wanted else { return Ok(()) };
            let mut both = array.as_struct().columns().iter().zip(fields);
            return both.try_for_each(|(column, field)| check_lists(column, field.data_type()));
        }
        _ => return Ok(()),
    };
    match wanted {
        DataType::FixedSizeList(field, size) => {
            let needs = array.len().saturating_mul(size.unsigned_abs() as usize);
            if needs > items.len().saturating_mul(MAX_GROWTH.0).saturating_add(MAX_GROWTH.1) {
                return Err(format!("its lists do not have {size} elements"));
            }
            check_lists(items, field.data_type())
        }
        DataType::List(field) | DataType::LargeList(field) => check_lists(items, field.data_type()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::types::Int32Type;
    use arrow_array::{BooleanArray, Float64Array};

    use super::*;

    fn fixed(item: DataType, len: i32) -> DataType {
        DataType::FixedSizeList(Arc::new(Field::new_list_field(item, true)), len)
    }

    /// Lists of two lists of three numbers each, all of them different; the fourth is null.
    fn nested() -> ArrayRef {
        let numbers: Float64Array = (0..48).map(f64::from).collect::<Vec<f64>>().into();
        let field = |item: &DataType| Arc::new(Field::new_list_field(item.clone(), true));
        let lists = |values: ArrayRef, len: usize, nulls: Option<NullBuffer>| -> ArrayRef {
            let offsets = OffsetBuffer::from_lengths(vec![len; values.len() / len]);
            Arc::new(ListArray::new(field(values.data_type()), offsets, values, nulls))
        };
        let nulls = NullBuffer::from_iter((0..8).map(|row| row != 3));
        lists(lists(Arc::new(numbers), 3, None), 2, Some(nulls))
    }

    #[test]
    fn a_slice_is_cast_like_the_whole_column() {
        let (all, to) = (nested(), fixed(fixed(DataType::Float64, 3), 2));
        let whole = cast(&all, &to).unwrap();
        for start in 0..all.len() {
            let part = cast(&all.slice(start, 1), &to).unwrap();
            assert_eq!(*part, *whole.slice(start, 1), "{start}");
        }
        let numbers = cast(&Float64Array::from(vec![1.5, 2.0]).slice(1, 1), &DataType::Int8);
        assert_eq!(numbers.unwrap().as_primitive::<arrow_array::types::Int8Type>().values(), &[2]);
    }

    #[test]
    fn slices_of_lists_are_cast_with_their_own_values() {
        let (all, to) = (nested(), fixed(fixed(DataType::Float64, 3), 2));
        let in_struct = |column: &ArrayRef| -> ArrayRef {
            Arc::new(StructArray::from(vec![(
                Arc::new(Field::new("lists", column.data_type().clone(), true)),
                Arc::clone(column),
            )]))
        };
        let struct_to =
            |to: &DataType| DataType::Struct(vec![Field::new("lists", to.clone(), true)].into());
        let cast_all = |column: &ArrayRef, to: &DataType| {
            let mut unfit = vec![false; column.len()];
            let there = as_type(column, to, &mut unfit).unwrap();
            assert_eq!(unfit, vec![false; column.len()]);
            there
        };
        for (all, to) in [(in_struct(&all), struct_to(&to)), (all, to)] {
            let whole = cast_all(&all, &to);
            for start in 0..all.len() {
                for len in 1..=all.len() - start {
                    let part = cast_all(&all.slice(start, len), &to);
                    assert_eq!(*part, *whole.slice(start, len), "{start} {len}");
                }
            }
        }
    }

    #[test]
    fn booleans_are_cast_to_the_empty_structs_that_they_stand_for() {
        let there: ArrayRef = Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)]));
        let lists = |values: ArrayRef| -> ArrayRef {
            let item = Arc::new(Field::new_list_field(values.data_type().clone(), true));
            Arc::new(ListArray::new(item, OffsetBuffer::from_lengths([2, 0, 1]), values, None))
        };
        let within = |column: ArrayRef| -> ArrayRef {
            let field = Arc::new(Field::new("one", column.data_type().clone(), true));
            Arc::new(StructArray::from(vec![(field, column)]))
        };
        let nulls = NullBuffer::from(vec![true, false, false]);
        let structs: ArrayRef = Arc::new(StructArray::new_empty_fields(3, Some(nulls)));
        let both = [
            (Arc::clone(&there), Arc::clone(&structs)),
            (within(lists(there)), within(lists(structs))),
        ];
        for (column, wanted) in both {
            let mut unfit = vec![false; 3];
            let made = as_type(&column, wanted.data_type(), &mut unfit).unwrap();
            assert_eq!((*made == *wanted, unfit), (true, vec![false; 3]));
        }
    }

    #[test]
    fn a_list_of_another_length_in_a_slice_is_unfit() {
        let rows =
            [Some(vec![Some(1), Some(2)]), Some(vec![Some(3), Some(4)]), Some(vec![Some(5)])];
        let lists = ListArray::from_iter_primitive::<Int32Type, _, _>(rows);
        let lists = (Arc::new(lists) as ArrayRef).slice(1, 2);
        let mut unfit = [false; 2];
        let there = as_type(&lists, &fixed(DataType::Int32, 2), &mut unfit).unwrap();
        assert_eq!(unfit, [false, true]);
        let first = there.as_fixed_size_list().value(0);
        assert_eq!(first.as_primitive::<Int32Type>().values(), &[3, 4]);
    }
}
