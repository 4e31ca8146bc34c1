//! Columns in the forms that consumers keep: texts and bytes as views, and lists with long offsets.
//!
//! Polars knows only these. It would make them of others by itself: on one thread, after the last
//! batch. Made here, they are made of each batch as it is decoded, on all threads. pyarrow and
//! DuckDB take both. So does pandas, except for lists of views and of bytes of fixed length: texts
//! and bytes in lists have long offsets, of which Polars makes views faster than of short ones.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, BinaryViewArray, FixedSizeListArray, LargeListArray, RecordBatch,
    RecordBatchOptions, StringViewArray, StructArray,
};
use arrow_buffer::{OffsetBuffer, ScalarBuffer};
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use arrow_select::take::take;
use sluice_model::cast::cast_exact;

/// The schema in the form of consumers.
pub(crate) fn schema(of: &Schema) -> SchemaRef {
    Arc::new(Schema::new_with_metadata(fields(of.fields()), of.metadata().clone()))
}

/// These rows in the form of consumers. `schema` is that form of their schema.
pub(crate) fn rows(of: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let columns = arrays(of.columns(), schema.fields())?;
    let options = RecordBatchOptions::new().with_row_count(Some(of.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
}

/// The rows with dictionaries that have each value once: joined ones have those of every part, and
/// pandas takes no categories twice.
pub(crate) fn with_unique_values(of: RecordBatch) -> Result<RecordBatch, ArrowError> {
    let is_dictionary = |field: &FieldRef| matches!(field.data_type(), DataType::Dictionary(..));
    if !of.schema_ref().fields().iter().any(is_dictionary) {
        return Ok(of);
    }
    let columns = of.columns().iter().map(|column| {
        let Some(dictionary) = column.as_any_dictionary_opt() else {
            return Ok(Arc::clone(column));
        };
        // A dictionary of the values: its keys say which of the unique ones each of them is.
        let values = cast_exact(dictionary.values(), column.data_type())?;
        match values.as_any_dictionary().values().len() == dictionary.values().len() {
            true => Ok(Arc::clone(column)),
            false => take(&values, dictionary.keys(), None),
        }
    });
    let columns = columns.collect::<Result<Vec<_>, ArrowError>>()?;
    RecordBatch::try_new(of.schema(), columns)
}

fn fields(of: &Fields) -> Fields {
    of.iter().map(|field| with_type(field, data_type(field.data_type()))).collect()
}

/// The items of a list.
fn item(of: &FieldRef) -> FieldRef {
    let kind = match of.data_type() {
        DataType::Utf8 | DataType::Utf8View => DataType::LargeUtf8,
        DataType::Binary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            DataType::LargeBinary
        }
        other => data_type(other),
    };
    with_type(of, kind)
}

fn with_type(of: &FieldRef, kind: DataType) -> FieldRef {
    if kind == *of.data_type() {
        return Arc::clone(of);
    }
    Arc::new(Field::clone(of).with_data_type(kind))
}

fn data_type(of: &DataType) -> DataType {
    match of {
        DataType::Utf8 => DataType::Utf8View,
        DataType::Binary => DataType::BinaryView,
        DataType::List(of) | DataType::LargeList(of) => DataType::LargeList(item(of)),
        DataType::FixedSizeList(of, len) => DataType::FixedSizeList(item(of), *len),
        DataType::Struct(members) => DataType::Struct(fields(members)),
        other => other.clone(),
    }
}

fn arrays(of: &[ArrayRef], fields: &Fields) -> Result<Vec<ArrayRef>, ArrowError> {
    of.iter().zip(fields).map(|(array, field)| as_consumed(array, field.data_type())).collect()
}

/// The array in the form of consumers, which `to` is.
fn as_consumed(of: &ArrayRef, to: &DataType) -> Result<ArrayRef, ArrowError> {
    Ok(match (of.data_type(), to) {
        (from, to) if from == to => Arc::clone(of),
        (DataType::Utf8, DataType::Utf8View) => {
            Arc::new(StringViewArray::from(of.as_string::<i32>()))
        }
        (DataType::Binary, DataType::BinaryView) => {
            Arc::new(BinaryViewArray::from(of.as_binary::<i32>()))
        }
        (DataType::List(_), DataType::LargeList(item)) => {
            let lists = of.as_list::<i32>();
            let offsets = lists.offsets().iter().map(|end| i64::from(*end));
            let offsets = OffsetBuffer::new(offsets.collect::<ScalarBuffer<i64>>());
            let items = as_consumed(lists.values(), item.data_type())?;
            let (item, nulls) = (Arc::clone(item), lists.nulls().cloned());
            Arc::new(LargeListArray::try_new(item, offsets, items, nulls)?)
        }
        (DataType::FixedSizeList(..), DataType::FixedSizeList(item, len)) => {
            let lists = of.as_fixed_size_list();
            let items = as_consumed(lists.values(), item.data_type())?;
            let (item, nulls, rows) = (Arc::clone(item), lists.nulls().cloned(), lists.len());
            Arc::new(FixedSizeListArray::try_new_with_length(item, *len, items, nulls, rows)?)
        }
        (DataType::Struct(_), DataType::Struct(members)) => {
            let of = of.as_struct();
            let (columns, nulls) = (arrays(of.columns(), members)?, of.nulls().cloned());
            Arc::new(StructArray::try_new_with_length(members.clone(), columns, nulls, of.len())?)
        }
        _ => cast_exact(of, to)?,
    })
}

#[cfg(test)]
mod tests {
    use arrow_array::DictionaryArray;
    use arrow_array::builder::{FixedSizeBinaryBuilder, ListBuilder, StringViewBuilder};
    use arrow_array::types::Int8Type;
    use arrow_select::concat::concat_batches;

    use super::*;

    #[test]
    fn joined_dictionaries_have_each_value_once() {
        let part = |words: [Option<&str>; 3]| {
            let words: DictionaryArray<Int8Type> = words.into_iter().collect();
            RecordBatch::try_from_iter([("gear", Arc::new(words) as ArrayRef)]).unwrap()
        };
        let parts = [
            part([Some("park"), Some("drive"), None]),
            part([Some("drive"), Some("drive"), Some("park")]),
            part([None, Some("reverse"), Some("park")]),
        ];
        let joined = concat_batches(&parts[0].schema(), &parts).unwrap();
        let made = with_unique_values(joined.clone()).unwrap();
        let gears = made.column(0).as_dictionary::<Int8Type>();
        assert_eq!(gears.values().len(), 3);
        let words = |of: &RecordBatch| {
            let gears = of.column(0).as_dictionary::<Int8Type>().clone();
            let gears = gears.downcast_dict::<arrow_array::StringArray>().unwrap();
            gears.into_iter().map(|word| word.map(str::to_owned)).collect::<Vec<_>>()
        };
        assert_eq!(words(&made), words(&joined));
    }

    #[test]
    fn texts_and_bytes_in_lists_are_no_views_and_have_no_fixed_length() {
        let mut texts = ListBuilder::new(StringViewBuilder::new());
        texts.append_value([Some("a"), None, Some("longer than a view")]);
        texts.append_null();
        let mut bytes = ListBuilder::new(FixedSizeBinaryBuilder::new(2));
        bytes.values().append_value(b"ab").unwrap();
        bytes.append(true);
        bytes.append(true);
        let columns: [(&str, ArrayRef); 2] =
            [("texts", Arc::new(texts.finish())), ("bytes", Arc::new(bytes.finish()))];
        let of = RecordBatch::try_from_iter(columns).unwrap();
        let schema = schema(&of.schema());
        // Of a slice, only its own values.
        let made = rows(&of.slice(0, 1), &schema).unwrap();
        let texts = made.column(0).as_list::<i64>().value(0);
        let texts: Vec<_> = texts.as_string::<i64>().iter().collect();
        assert_eq!(texts, [Some("a"), None, Some("longer than a view")]);
        let bytes = made.column(1).as_list::<i64>().value(0);
        assert_eq!(bytes.as_binary::<i64>().value(0), b"ab");
        assert_eq!(rows(&of, &schema).unwrap().slice(0, 1), made);
    }
}
