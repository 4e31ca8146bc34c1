//! Columns of maps, which no log has, as lists of their entries.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, GenericListArray, OffsetSizeTrait, StructArray,
};
use arrow_schema::{DataType, Field, FieldRef, Fields};

/// The column, with maps at any depth as lists of `key` and `value`.
pub(super) fn with_lists(column: &ArrayRef) -> ArrayRef {
    if !has_map(column.data_type()) {
        return Arc::clone(column);
    }
    match column.data_type() {
        DataType::Map(entry, _) => {
            let map = column.as_map();
            let entries = with_lists(&(Arc::new(map.entries().clone()) as ArrayRef));
            let item = retyped(entry, &entries);
            let (offsets, nulls) = (map.offsets().clone(), map.nulls().cloned());
            Arc::new(GenericListArray::new(item, offsets, entries, nulls))
        }
        DataType::List(item) => list::<i32>(item, column),
        DataType::LargeList(item) => list::<i64>(item, column),
        DataType::FixedSizeList(item, len) => {
            let lists = column.as_fixed_size_list();
            let values = with_lists(lists.values());
            let item = retyped(item, &values);
            Arc::new(FixedSizeListArray::new(item, *len, values, lists.nulls().cloned()))
        }
        DataType::Struct(fields) => {
            let members = column.as_struct();
            let columns: Vec<ArrayRef> = members.columns().iter().map(with_lists).collect();
            let fields = fields.iter().zip(&columns).map(|(field, column)| retyped(field, column));
            let fields: Fields = fields.collect();
            Arc::new(StructArray::new(fields, columns, members.nulls().cloned()))
        }
        _ => Arc::clone(column),
    }
}

fn list<O: OffsetSizeTrait>(item: &FieldRef, column: &ArrayRef) -> ArrayRef {
    let lists = column.as_list::<O>();
    let values = with_lists(lists.values());
    let (offsets, nulls) = (lists.offsets().clone(), lists.nulls().cloned());
    Arc::new(GenericListArray::new(retyped(item, &values), offsets, values, nulls))
}

/// The field with the type of its column.
pub(super) fn retyped(field: &Field, column: &ArrayRef) -> FieldRef {
    Arc::new(field.clone().with_data_type(column.data_type().clone()))
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
