//! Makes rows that no payload decodes to: tables are input, and their columns may hold anything.
//! Checks nothing.

use std::sync::Arc;

use arrow_array::types::{
    ArrowPrimitiveType, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, BooleanArray, FixedSizeListArray, Int64Array, ListArray, PrimitiveArray,
    RecordBatch, RecordBatchOptions, StringArray, new_null_array,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field, FieldRef, Fields, Schema};

/// The length of lists that are longer than length fields can say.
const LONG: usize = 70_000;

/// Invalid variants of a row, each with a description: a column that is missing, of another type,
/// null, too long, or with impossible numbers.
pub(super) fn invalid_rows(row: &RecordBatch) -> Vec<(String, RecordBatch)> {
    let schema = row.schema();
    let each = schema.fields().iter().enumerate().flat_map(|(at, field)| {
        let column = row.column(at);
        let name = field.name();
        let mut ways = vec![
            (format!("`{name}` missing"), None),
            (format!("`{name}` null"), Some(new_null_array(column.data_type(), row.num_rows()))),
            (format!("`{name}` of another type"), Some(wrong_type(column))),
        ];
        let long = longer(column).map(|column| (format!("`{name}` too long"), Some(column)));
        let odd =
            wrong_number(column).map(|column| (format!("`{name}` another number"), Some(column)));
        ways.extend(long.into_iter().chain(odd));
        ways.into_iter()
            .filter_map(move |(what, column)| Some((what, replace_column(row, at, column)?)))
    });
    each.collect()
}

/// The row with one column replaced or removed.
fn replace_column(row: &RecordBatch, at: usize, column: Option<ArrayRef>) -> Option<RecordBatch> {
    let schema = row.schema();
    let mut fields: Vec<FieldRef> = schema.fields().iter().map(Arc::clone).collect();
    let mut columns = row.columns().to_vec();
    match column {
        Some(column) => {
            let field = Field::clone(fields.get(at)?);
            let field = field.with_data_type(column.data_type().clone()).with_nullable(true);
            *fields.get_mut(at)? = Arc::new(field);
            *columns.get_mut(at)? = column;
        }
        None => {
            fields.remove(at);
            columns.remove(at);
        }
    }
    let schema = Schema::new_with_metadata(Fields::from(fields), schema.metadata().clone());
    let options = RecordBatchOptions::new().with_row_count(Some(row.num_rows()));
    RecordBatch::try_new_with_options(Arc::new(schema), columns, &options).ok()
}

fn wrong_type(column: &ArrayRef) -> ArrayRef {
    match column.data_type() {
        DataType::Boolean => Arc::new(Int64Array::from(vec![7; column.len()])),
        _ => Arc::new(BooleanArray::from(vec![true; column.len()])),
    }
}

/// Texts and lists that are too long for a payload.
fn longer(column: &ArrayRef) -> Option<ArrayRef> {
    if column.len() != 1 {
        return None;
    }
    match column.data_type() {
        DataType::Utf8 => {
            Some(Arc::new(StringArray::from(vec![format!("a\0{}", "b".repeat(LONG))])))
        }
        DataType::List(field) => {
            let (field, values) = nulls(field);
            let offsets = OffsetBuffer::from_lengths([LONG]);
            Some(Arc::new(ListArray::try_new(field, offsets, values, None).ok()?))
        }
        DataType::FixedSizeList(field, _) => {
            let (field, values) = nulls(field);
            let list = FixedSizeListArray::try_new(field, LONG as i32, values, None);
            Some(Arc::new(list.ok()?))
        }
        _ => None,
    }
}

/// The values of a list of nulls.
fn nulls(field: &FieldRef) -> (FieldRef, ArrayRef) {
    let values = new_null_array(field.data_type(), LONG);
    (Arc::new(Field::clone(field).with_nullable(true)), values)
}

/// A number that does not match the lengths of lists next to it.
fn wrong_number(column: &ArrayRef) -> Option<ArrayRef> {
    fn all<T: ArrowPrimitiveType>(number: T::Native, len: usize) -> Option<ArrayRef> {
        Some(Arc::new(PrimitiveArray::<T>::from_value(number, len)))
    }
    let len = column.len();
    match column.data_type() {
        DataType::Int8 => all::<Int8Type>(-1, len),
        DataType::Int16 => all::<Int16Type>(-1, len),
        DataType::Int32 => all::<Int32Type>(i32::MAX, len),
        DataType::Int64 => all::<Int64Type>(i64::MAX, len),
        DataType::UInt8 => all::<UInt8Type>(u8::MAX, len),
        DataType::UInt16 => all::<UInt16Type>(u16::MAX, len),
        DataType::UInt32 => all::<UInt32Type>(u32::MAX, len),
        DataType::UInt64 => all::<UInt64Type>(u64::MAX, len),
        _ => None,
    }
}
