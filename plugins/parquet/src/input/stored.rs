//! Gives columns the types that the file has, after they were read with types of which rows share
//! values, or before they are written. Maps, which no log has, become lists of their entries.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    BinaryType, BinaryViewType, ByteArrayType, ByteViewType, LargeBinaryType, LargeUtf8Type,
    StringViewType, Utf8Type,
};
use arrow_array::{
    Array, ArrayRef, BooleanArray, FixedSizeListArray, GenericByteArray, GenericByteViewArray,
    GenericListArray, OffsetSizeTrait, StructArray,
};
use arrow_buffer::{ArrowNativeType, BooleanBuffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields};
use sluice_model::cast::{elements_of_lists, from_first_value};

use super::twelve_bytes;

/// The column with this type of the file. `Err` if values do not fit into it.
pub(crate) fn as_stored(column: &ArrayRef, stored: &DataType) -> Result<ArrayRef, ArrowError> {
    in_missing(column, stored, None)
}

/// The same where rows may be missing because what is around them is. There, the Parquet library
/// leaves values without a null that cannot be missing by themselves, but their parts with one,
/// which Arrow refuses.
fn in_missing(
    column: &ArrayRef,
    stored: &DataType,
    around: Option<&NullBuffer>,
) -> Result<ArrayRef, ArrowError> {
    let hides_nulls = around.is_some() && has_parts(stored)
        || hides_nulls_inside(stored, column.nulls().is_some());
    if column.data_type() == stored && !has_map(stored) && !hides_nulls {
        return Ok(Arc::clone(column));
    }
    Ok(match (stored, column.data_type()) {
        (DataType::Utf8, DataType::Utf8View) => texts::<Utf8Type, StringViewType>(column)?,
        (DataType::LargeUtf8, DataType::Utf8View) => {
            texts::<LargeUtf8Type, StringViewType>(column)?
        }
        (DataType::Binary, DataType::BinaryView) => texts::<BinaryType, BinaryViewType>(column)?,
        (DataType::LargeBinary, DataType::BinaryView) => {
            texts::<LargeBinaryType, BinaryViewType>(column)?
        }
        (DataType::Timestamp(unit, _), DataType::FixedSizeBinary(_)) => {
            twelve_bytes::times(column, *unit, stored)?
        }
        (DataType::Dictionary(_, values), DataType::FixedSizeBinary(_)) => {
            as_stored(column, values)?
        }
        (DataType::Struct(parts), DataType::FixedSizeBinary(_)) => {
            twelve_bytes::intervals(column, parts)?
        }
        // Whether a struct without members is there.
        (DataType::Boolean, DataType::Struct(_)) => {
            let values = BooleanBuffer::new_set(column.len());
            Arc::new(BooleanArray::new(values, column.nulls().cloned()))
        }
        (DataType::Map(entry, _), DataType::Map(read, _)) => {
            let map = column.as_map();
            let entries: ArrayRef = Arc::new(map.entries().clone());
            let (offsets, nulls) = (map.offsets().clone(), map.nulls().cloned());
            let lists = GenericListArray::try_new(Arc::clone(read), offsets, entries, nulls)?;
            list::<i32>(&(Arc::new(lists) as ArrayRef), entry)?
        }
        (DataType::List(item), DataType::List(_)) => list::<i32>(column, item)?,
        (DataType::LargeList(item), DataType::LargeList(_)) => list::<i64>(column, item)?,
        (DataType::FixedSizeList(item, len), DataType::List(_)) => {
            let nulls = NullBuffer::union(column.nulls(), around);
            let nulls = nulls.filter(|nulls| nulls.null_count() > 0);
            // First, as taking elements for those that are missing needs their nulls.
            let lists = list::<i32>(column, item)?;
            let values = elements_of_lists(lists.as_list(), *len as usize, nulls.as_ref())?;
            let (item, rows) = (retyped(item, &values), column.len());
            Arc::new(FixedSizeListArray::try_new_with_length(item, *len, values, nulls, rows)?)
        }
        (DataType::FixedSizeList(item, len), DataType::FixedSizeList(..)) => {
            let lists = column.as_fixed_size_list();
            let nulls = NullBuffer::union(lists.nulls(), around);
            let missing = nulls.as_ref().map(|nulls| nulls.expand(*len as usize));
            let values = in_missing(lists.values(), item.data_type(), missing.as_ref())?;
            let item = retyped(item, &values);
            Arc::new(FixedSizeListArray::try_new_with_length(
                item,
                *len,
                values,
                nulls,
                lists.len(),
            )?)
        }
        (DataType::Struct(fields), DataType::Struct(_)) => {
            let members = column.as_struct();
            let nulls = NullBuffer::union(members.nulls(), around);
            let columns = fields.iter().zip(members.columns());
            let columns: Vec<ArrayRef> = columns
                .map(|(field, column)| in_missing(column, field.data_type(), nulls.as_ref()))
                .collect::<Result<_, _>>()?;
            let fields = fields.iter().zip(&columns).map(|(field, column)| retyped(field, column));
            let fields: Fields = fields.collect();
            Arc::new(StructArray::try_new_with_length(fields, columns, nulls, members.len())?)
        }
        _ => Arc::clone(column),
    })
}

fn has_map(data_type: &DataType) -> bool {
    match data_type {
        DataType::Map(..) => true,
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            has_map(item.data_type())
        }
        DataType::Struct(fields) => fields.iter().any(|field| has_map(field.data_type())),
        _ => false,
    }
}

/// Whether a value has parts that are missing with it.
fn has_parts(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Struct(_) | DataType::FixedSizeList(..))
}

/// Whether a value with parts inside of one of this type, which may be missing, cannot be so by
/// itself, but with what is around it.
fn hides_nulls_inside(data_type: &DataType, is_optional: bool) -> bool {
    let hides_nulls = |field: &FieldRef, is_optional: bool| {
        let is_hidden = is_optional && !field.is_nullable() && has_parts(field.data_type());
        is_hidden || hides_nulls_inside(field.data_type(), is_optional || field.is_nullable())
    };
    match data_type {
        DataType::List(item) | DataType::LargeList(item) => hides_nulls(item, false),
        DataType::FixedSizeList(item, _) => hides_nulls(item, is_optional),
        DataType::Struct(fields) => fields.iter().any(|field| hides_nulls(field, is_optional)),
        _ => false,
    }
}

/// The field with the type of its column.
pub(crate) fn retyped(field: &Field, column: &ArrayRef) -> FieldRef {
    Arc::new(field.clone().with_data_type(column.data_type().clone()))
}

fn list<O: OffsetSizeTrait>(column: &ArrayRef, item: &Field) -> Result<ArrayRef, ArrowError> {
    let lists = column.as_list::<O>();
    let used = lists.value_offsets()[lists.len()] - lists.value_offsets()[0];
    if used.as_usize() < lists.values().len() {
        // Without the values of other slices, which would be expanded with each of them.
        return list::<O>(&from_first_value(column), item);
    }
    let values = as_stored(lists.values(), item.data_type())?;
    let (offsets, nulls) = (lists.offsets().clone(), lists.nulls().cloned());
    Ok(Arc::new(GenericListArray::try_new(retyped(item, &values), offsets, values, nulls)?))
}

/// Each view's bytes, one after the other. With Arrow's cast, which appends them one by one,
/// reading a table of texts takes twice as long.
fn texts<T: ByteArrayType, V: ByteViewType>(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let views: &GenericByteViewArray<V> = column.as_byte_view();
    let bytes = views.lengths().map(|len| len as usize).sum();
    let too_long = || ArrowError::OffsetOverflowError(bytes);
    T::Offset::from_usize(bytes).ok_or_else(too_long)?;
    let mut values: Vec<u8> = Vec::with_capacity(bytes);
    let mut offsets: Vec<T::Offset> = Vec::with_capacity(views.len() + 1);
    offsets.push(T::Offset::default());
    for row in 0..views.len() {
        let value: &[u8] = views.value(row).as_ref();
        values.extend_from_slice(value);
        offsets.push(T::Offset::usize_as(values.len()));
    }
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    let nulls = views.nulls().cloned();
    Ok(Arc::new(GenericByteArray::<T>::try_new(offsets, values.into(), nulls)?))
}
