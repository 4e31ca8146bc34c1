//! The types with which the columns of a file are read.

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};

use crate::fixed_lists::with_plain_lists;

/// The schema with types that the Parquet library reads: without dictionaries of what it does not
/// read as such.
pub(super) fn readable(schema: &Schema) -> SchemaRef {
    map_types(schema, &|data_type| match data_type {
        DataType::Dictionary(_, value) => match **value {
            DataType::Boolean
            | DataType::Float16
            | DataType::Decimal32(..)
            | DataType::Decimal64(..)
            | DataType::Decimal128(..)
            | DataType::Decimal256(..)
            | DataType::FixedSizeBinary(_) => DataType::clone(value),
            _ => data_type.clone(),
        },
        _ => data_type.clone(),
    })
}

/// The schema with types of which rows share what is stored once: views, and dictionaries for the
/// columns in `words`. Lists are plain, of which missing ones take no memory.
pub(super) fn shared(schema: &Schema, words: &[&str]) -> SchemaRef {
    let view = |data_type: &DataType| match data_type {
        DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        DataType::Binary | DataType::LargeBinary => DataType::BinaryView,
        _ => data_type.clone(),
    };
    let is_word = |field: &Field| {
        *field.data_type() == DataType::Utf8 && words.contains(&field.name().as_str())
    };
    with_fields(schema, |field| match is_word(field) {
        true => Arc::new(Field::clone(field).with_data_type(word_dictionary())),
        false => with_types(&with_plain_lists(field), &view),
    })
}

pub(crate) fn word_dictionary() -> DataType {
    DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8))
}

/// The schema with what `of` gives for the types of leaves in it.
pub(super) fn map_types(schema: &Schema, of: &dyn Fn(&DataType) -> DataType) -> SchemaRef {
    with_fields(schema, |field| with_types(field, of))
}

fn with_fields(schema: &Schema, of: impl Fn(&FieldRef) -> FieldRef) -> SchemaRef {
    let fields: Vec<FieldRef> = schema.fields().iter().map(of).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// The field with the type that `of` gives for its own, also for those inside of it.
fn with_types(field: &FieldRef, of: &dyn Fn(&DataType) -> DataType) -> FieldRef {
    Arc::new(Field::clone(field).with_data_type(map_leaves(field.data_type(), of)))
}

/// The type with what `of` gives for the types of leaves in it. What Parquet does not have, such as
/// dictionaries, views of lists and structs without members, counts as a leaf.
pub(crate) fn map_leaves(data_type: &DataType, of: &dyn Fn(&DataType) -> DataType) -> DataType {
    let inner = |field: &FieldRef| with_types(field, of);
    match data_type {
        DataType::List(item) => DataType::List(inner(item)),
        DataType::LargeList(item) => DataType::LargeList(inner(item)),
        DataType::FixedSizeList(item, len) => DataType::FixedSizeList(inner(item), *len),
        DataType::Struct(fields) if !fields.is_empty() => {
            DataType::Struct(fields.iter().map(inner).collect())
        }
        DataType::Map(entry, is_sorted) => DataType::Map(inner(entry), *is_sorted),
        other => of(other),
    }
}
