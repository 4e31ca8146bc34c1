//! Values of twelve bytes that the Parquet library converts with losses: INT96 times wrap outside
//! of the years 1677 to 2262, and intervals lose their months. They are read as bytes and converted
//! here. Reads no files.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::UInt32Type;
use arrow_array::{Array, ArrayRef, Int64Array, PrimitiveArray, StructArray};
use arrow_schema::{
    ArrowError, DataType, Field, Fields, IntervalUnit, Schema, SchemaRef, TimeUnit,
};
use parquet::basic::{ConvertedType, LogicalType, Type as PhysicalType};
use parquet::errors::ParquetError;
use parquet::schema::types::{SchemaDescPtr, SchemaDescriptor, Type, TypePtr};
use sluice_model::cast::cast_exact;

use super::types::{map_leaves, map_types};

/// The length of such a value.
const LEN: i32 = 12;

/// 1970-01-01 as the day of an INT96 time.
const EPOCH: i128 = 2_440_588;

const NANOS_PER_DAY: i128 = 86_400_000_000_000;

/// The Parquet schema with bytes for INT96 times and, if the writer stored no Arrow schema, for
/// intervals; `None` for a schema without them. With an Arrow schema, intervals have a type that
/// holds what its writer had.
pub(super) fn as_bytes(
    schema: &SchemaDescriptor,
    has_arrow_schema: bool,
) -> Result<Option<SchemaDescPtr>, ParquetError> {
    let is_converted = |leaf: &Type| is_int96(leaf) || (!has_arrow_schema && is_interval(leaf));
    if !schema.columns().iter().any(|column| is_converted(column.self_type())) {
        return Ok(None);
    }
    let root = with_bytes(&schema.root_schema_ptr(), &is_converted)?;
    Ok(Some(Arc::new(SchemaDescriptor::new(root))))
}

/// The top-level columns with INT96 times.
pub(super) fn int96_columns(schema: &SchemaDescriptor) -> Vec<usize> {
    let leaves = schema.columns().iter().enumerate();
    let times = leaves.filter(|(_, leaf)| is_int96(leaf.self_type()));
    let mut roots: Vec<usize> = times.map(|(leaf, _)| schema.get_column_root_idx(leaf)).collect();
    roots.dedup();
    roots
}

fn is_int96(leaf: &Type) -> bool {
    let is_null = leaf.get_basic_info().logical_type_ref() == Some(&LogicalType::Unknown);
    leaf.get_physical_type() == PhysicalType::INT96 && !is_null
}

fn is_interval(leaf: &Type) -> bool {
    leaf.get_basic_info().converted_type() == ConvertedType::INTERVAL
        && leaf.get_physical_type() == PhysicalType::FIXED_LEN_BYTE_ARRAY
}

fn with_bytes(
    node: &TypePtr,
    is_converted: &dyn Fn(&Type) -> bool,
) -> Result<TypePtr, ParquetError> {
    let info = node.get_basic_info();
    Ok(match &**node {
        Type::GroupType { basic_info, fields } => {
            let fields = fields.iter().map(|field| with_bytes(field, is_converted));
            let fields = fields.collect::<Result<_, _>>()?;
            Arc::new(Type::GroupType { basic_info: basic_info.clone(), fields })
        }
        leaf if is_converted(leaf) => {
            let bytes = PhysicalType::FIXED_LEN_BYTE_ARRAY;
            let leaf = Type::primitive_type_builder(info.name(), bytes)
                .with_length(LEN)
                .with_repetition(info.repetition())
                .with_id(info.has_id().then(|| info.id()));
            Arc::new(leaf.build()?)
        }
        _ => Arc::clone(node),
    })
}

/// The Arrow schema with structs of three numbers for intervals, whose type the Parquet library
/// made up.
pub(super) fn with_interval_structs(schema: &Schema) -> SchemaRef {
    let part = |name| Field::new(name, DataType::UInt32, false);
    let parts: Fields = vec![part("months"), part("days"), part("milliseconds")].into();
    map_types(schema, &|leaf| match leaf {
        DataType::Interval(IntervalUnit::DayTime) => DataType::Struct(parts.clone()),
        other => other.clone(),
    })
}

/// The type with microseconds for times in nanoseconds.
pub(super) fn in_micros(data_type: &DataType) -> DataType {
    map_leaves(data_type, &|leaf| match leaf {
        DataType::Timestamp(TimeUnit::Nanosecond, zone) => {
            DataType::Timestamp(TimeUnit::Microsecond, zone.clone())
        }
        other => other.clone(),
    })
}

/// INT96 times in this unit, as numbers: null where it does not hold them exactly.
pub(crate) fn int96_times(column: &ArrayRef, unit: TimeUnit) -> Int64Array {
    let nanos_per_unit = match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    };
    let time = |bytes: &[u8]| {
        let (nanos, day) = bytes.split_first_chunk()?;
        let day = u32::from_le_bytes(day.try_into().ok()?);
        let nanos = i128::from(i64::from_le_bytes(*nanos));
        let nanos = (i128::from(day) - EPOCH) * NANOS_PER_DAY + nanos;
        (nanos % nanos_per_unit == 0).then_some(nanos / nanos_per_unit)?.try_into().ok()
    };
    column.as_fixed_size_binary().iter().map(|bytes| bytes.and_then(time)).collect()
}

/// INT96 times as a column of this type. `Err` if it does not hold all of them exactly.
pub(super) fn times(
    column: &ArrayRef,
    unit: TimeUnit,
    stored: &DataType,
) -> Result<ArrayRef, ArrowError> {
    let times = int96_times(column, unit);
    if times.null_count() > column.null_count() {
        return Err(ArrowError::CastError(format!(
            "{stored} does not hold all of its INT96 times; write it with times in microseconds, \
             or within the years 1677 to 2262 if they have nanoseconds"
        )));
    }
    cast_exact(&times, stored)
}

/// Intervals as structs of their months, days and milliseconds.
pub(super) fn intervals(column: &ArrayRef, parts: &Fields) -> Result<ArrayRef, ArrowError> {
    let intervals = column.as_fixed_size_binary();
    let part = |at: usize| -> ArrayRef {
        let values = intervals.iter().map(|bytes| {
            let part = bytes.and_then(|bytes| bytes.as_chunks().0.get(at).copied());
            part.map_or(0, u32::from_le_bytes)
        });
        Arc::new(PrimitiveArray::<UInt32Type>::from_iter_values(values))
    };
    let columns = (0..parts.len()).map(part).collect();
    let nulls = column.nulls().cloned();
    Ok(Arc::new(StructArray::try_new_with_length(parts.clone(), columns, nulls, column.len())?))
}
