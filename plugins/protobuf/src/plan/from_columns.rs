//! The plan of a message that holds columns of any type, so that nothing of them is lost.
//!
//! | column | field |
//! |---|---|
//! | signed integers | `sint32`, `sint64` |
//! | unsigned integers | `uint32`, `uint64` |
//! | floats, booleans, text, binary | the same |
//! | times, dates, durations | `sint32`, `sint64`; restored by the carried column types |
//! | decimals | text |
//! | nothing but nulls | an optional boolean that is never set |
//! | struct | message, always set |
//! | list | repeated; packed if it can be |
//! | list in a list, null in a list | repeated messages of one field |
//! | nullable scalar | optional |
//! | nullable list | a message of one field |

use std::collections::HashSet;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};

use super::{ColumnBudget, FieldPlan, MessagePlan, Presence, Scalar, Storage, ValuePlan};
use crate::descriptor::{identifier, json_name};

/// The plan of a message with these columns, in order. `Err` names a column that no message can
/// hold.
///
/// The columns must be [`stored_as`] what plans know.
pub(crate) fn compile_columns(columns: &Schema) -> Result<MessagePlan, String> {
    let mut budget = ColumnBudget::default();
    message(columns.fields(), 0, &mut budget)
}

/// The columns with types that plans know, to which the others are cast.
pub(crate) fn stored_as(columns: &SchemaRef) -> Result<SchemaRef, String> {
    columns_as(columns, |of| match of {
        DataType::Date32 | DataType::Time32(_) => DataType::Int32,
        _ => DataType::Int64,
    })
}

/// The columns as they are restored: with types that plans know, and times, to which the stored
/// columns are cast.
pub(crate) fn restored_as(columns: &SchemaRef) -> Result<SchemaRef, String> {
    columns_as(columns, DataType::clone)
}

/// What becomes of the types of times, dates and durations.
type TimesAs = fn(&DataType) -> DataType;

fn columns_as(columns: &SchemaRef, times: TimesAs) -> Result<SchemaRef, String> {
    let fields = columns.fields().iter().map(|field| stored_field(field, times));
    let fields = fields.collect::<Result<Vec<_>, String>>()?;
    match fields.iter().zip(columns.fields()).all(|(stored, field)| stored == field) {
        true => Ok(Arc::clone(columns)),
        false => Ok(Arc::new(Schema::new(fields))),
    }
}

fn stored_field(field: &FieldRef, times: TimesAs) -> Result<FieldRef, String> {
    let stored = stored_type(field.data_type(), times);
    let stored = stored.map_err(|reason| format!("column `{}`: {reason}", field.name()))?;
    match stored == *field.data_type() {
        true => Ok(Arc::clone(field)),
        false => Ok(Arc::new(field.as_ref().clone().with_data_type(stored))),
    }
}

fn stored_type(of: &DataType, times: TimesAs) -> Result<DataType, String> {
    use DataType::*;
    Ok(match of {
        Boolean | Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64 | Float32
        | Float64 | Utf8 | Binary | FixedSizeBinary(_) => of.clone(),
        Float16 => Float32,
        Timestamp(..) | Date32 | Date64 | Time32(_) | Time64(_) | Duration(_) => times(of),
        // Only in tables of other programs. Nulls are an optional field that is never set.
        Null => Boolean,
        Decimal32(..) | Decimal64(..) | Decimal128(..) | Decimal256(..) => Utf8,
        LargeUtf8 | Utf8View => Utf8,
        LargeBinary | BinaryView => Binary,
        Dictionary(_, values) => stored_type(values, times)?,
        List(item) | LargeList(item) => List(stored_field(item, times)?),
        FixedSizeList(item, len) => FixedSizeList(stored_field(item, times)?, *len),
        Struct(fields) => {
            let fields = fields.iter().map(|field| stored_field(field, times));
            Struct(fields.collect::<Result<Vec<_>, String>>()?.into())
        }
        other => return Err(format!("{other} has no form in protobuf")),
    })
}

fn message(
    columns: &arrow_schema::Fields,
    depth: usize,
    budget: &mut ColumnBudget,
) -> Result<MessagePlan, String> {
    let names = names(columns);
    let numbered = names.into_iter().zip((1..19_000).chain(20_000..)).zip(columns);
    let fields = numbered.map(|(identity, column)| field(identity, column, depth, budget));
    let fields = fields.collect::<Result<_, String>>()?;
    Ok(MessagePlan { fields, ..MessagePlan::default() })
}

/// Names for columns that descriptors may use side by side.
fn names(columns: &arrow_schema::Fields) -> Vec<String> {
    let mut taken = HashSet::new();
    let name = |column: &FieldRef| {
        let base = identifier(column.name());
        let (mut name, mut count) = (base.clone(), 1);
        // A field may need a oneof called `_name`, and its name in JSON is unique as well.
        let all =
            |name: &str| [format!("_{name}"), format!("/{}", json_name(name)), name.to_owned()];
        while all(&name).iter().any(|name| taken.contains(name)) {
            count += 1;
            name = format!("{base}_{count}");
        }
        taken.extend(all(&name));
        name
    };
    columns.iter().map(name).collect()
}

fn field(
    identity: (String, u32),
    column: &FieldRef,
    depth: usize,
    budget: &mut ColumnBudget,
) -> Result<FieldPlan, String> {
    budget.spend(depth)?;
    let (item, len) = match column.data_type() {
        DataType::List(item) => (item, None),
        DataType::FixedSizeList(item, len) => (item, Some(*len as usize)),
        _ => {
            let presence = match (column.is_nullable(), column.data_type()) {
                (true, _) => Presence::Optional,
                // Unset would be a different message.
                (false, DataType::Struct(_)) => Presence::Always,
                // Its zero has a length.
                (false, DataType::FixedSizeBinary(len)) if *len > 0 => Presence::Always,
                (false, _) => Presence::Implicit,
            };
            let value = value(column, depth, budget)?;
            return Ok(FieldPlan::new(identity, presence, value, Arc::clone(column)));
        }
    };
    if column.is_nullable() {
        let inner = Arc::new(column.as_ref().clone().with_nullable(false));
        let value = wrapper(&inner, depth, budget)?;
        return Ok(FieldPlan::new(identity, Presence::Optional, value, Arc::clone(column)));
    }
    let is_wrapped = item.is_nullable()
        || matches!(item.data_type(), DataType::List(_) | DataType::FixedSizeList(..));
    let value = match is_wrapped {
        true => wrapper(item, depth, budget)?,
        false => value(item, depth, budget)?,
    };
    let is_packed = matches!(&value, ValuePlan::Scalar(scalar, _) if scalar.is_packable());
    let presence = Presence::List { is_packed, len };
    Ok(FieldPlan::new(identity, presence, value, Arc::clone(column)))
}

/// A message of one field for this column.
fn wrapper(
    column: &FieldRef,
    depth: usize,
    budget: &mut ColumnBudget,
) -> Result<ValuePlan, String> {
    let inner = field(("v".to_owned(), 1), column, depth + 1, budget)?;
    Ok(ValuePlan::Wrapper(Box::new(inner)))
}

/// The value of a column that is no list.
fn value(column: &Field, depth: usize, budget: &mut ColumnBudget) -> Result<ValuePlan, String> {
    let (scalar, storage) = match column.data_type() {
        DataType::Struct(fields) => {
            return Ok(ValuePlan::Message(message(fields, depth + 1, budget)?));
        }
        DataType::Boolean => (Scalar::Bool, Storage::Bool),
        DataType::Int8 => (Scalar::SInt32, Storage::I8),
        DataType::Int16 => (Scalar::SInt32, Storage::I16),
        DataType::Int32 => (Scalar::SInt32, Storage::I32),
        DataType::Int64 => (Scalar::SInt64, Storage::I64),
        DataType::UInt8 => (Scalar::UInt32, Storage::U8),
        DataType::UInt16 => (Scalar::UInt32, Storage::U16),
        DataType::UInt32 => (Scalar::UInt32, Storage::U32),
        DataType::UInt64 => (Scalar::UInt64, Storage::U64),
        DataType::Float32 => (Scalar::Float, Storage::F32),
        DataType::Float64 => (Scalar::Double, Storage::F64),
        DataType::Utf8 => (Scalar::Text, Storage::Text),
        DataType::Binary => (Scalar::Bytes, Storage::Bytes),
        DataType::FixedSizeBinary(len) => (Scalar::Bytes, Storage::FixedBytes(*len as usize)),
        other => return Err(format!("column `{}`: {other} is not stored", column.name())),
    };
    Ok(ValuePlan::Scalar(scalar, storage))
}
