//! Columns in the forms that consumers keep: texts and bytes as views, and lists with long offsets.
//!
//! Polars knows only these. It would make them of others by itself: on one thread, after the last
//! batch. Made here, they are made of each batch as it is decoded, on all threads. The other
//! consumers take both.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, BinaryViewArray, FixedSizeListArray, LargeListArray, RecordBatch,
    RecordBatchOptions, StringViewArray, StructArray,
};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields, Schema, SchemaRef};

/// The schema in the form of consumers.
pub(crate) fn schema(of: &Schema) -> SchemaRef {
    Arc::new(Schema::new_with_metadata(fields(of.fields()), of.metadata().clone()))
}

/// These rows in the form of consumers. `schema` is that form of their schema.
pub(crate) fn rows(of: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let columns = of.columns().iter().map(array).collect::<Result<_, _>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(of.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
}

fn fields(of: &Fields) -> Fields {
    of.iter().map(field).collect()
}

fn field(of: &FieldRef) -> FieldRef {
    let kind = data_type(of.data_type());
    if kind == *of.data_type() {
        return Arc::clone(of);
    }
    Arc::new(Field::clone(of).with_data_type(kind))
}

fn data_type(of: &DataType) -> DataType {
    match of {
        DataType::Utf8 => DataType::Utf8View,
        DataType::Binary => DataType::BinaryView,
        DataType::List(item) => DataType::LargeList(field(item)),
        DataType::FixedSizeList(item, len) => DataType::FixedSizeList(field(item), *len),
        DataType::Struct(members) => DataType::Struct(fields(members)),
        other => other.clone(),
    }
}

fn array(of: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    Ok(match of.data_type() {
        DataType::Utf8 => Arc::new(StringViewArray::from(of.as_string::<i32>())),
        DataType::Binary => Arc::new(BinaryViewArray::from(of.as_binary::<i32>())),
        DataType::List(item) => {
            let lists = of.as_list::<i32>();
            let offsets = lists.offsets().iter().map(|end| i64::from(*end));
            let offsets = OffsetBuffer::new(offsets.collect::<ScalarBuffer<i64>>());
            let items = array(lists.values())?;
            Arc::new(LargeListArray::try_new(field(item), offsets, items, lists.nulls().cloned())?)
        }
        DataType::FixedSizeList(item, len) => {
            let lists = of.as_fixed_size_list();
            let (items, nulls) = (array(lists.values())?, lists.nulls().cloned());
            let (item, rows) = (field(item), lists.len());
            Arc::new(FixedSizeListArray::try_new_with_length(item, *len, items, nulls, rows)?)
        }
        DataType::Struct(members) => {
            let of = of.as_struct();
            let columns = of.columns().iter().map(array).collect::<Result<_, _>>()?;
            let (members, nulls) = (fields(members), of.nulls().cloned());
            Arc::new(StructArray::try_new_with_length(members, columns, nulls, of.len())?)
        }
        _ => Arc::clone(of),
    })
}
