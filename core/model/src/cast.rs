//! Casts columns of other programs back to the types they were decoded as.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BinaryArray, RecordBatch};
use arrow_cast::cast;
use arrow_schema::{DataType, Field, FieldRef, Fields};

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
    // A null in the wrong place is found when its row is written.
    let data_type = &nullable(data_type);
    check_lists(column, data_type)?;
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
fn nullable(data_type: &DataType) -> DataType {
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
