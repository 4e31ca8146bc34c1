//! The values of a field in the form in which they are aligned: numbers to compute with, lists of
//! fixed length, quaternions. Knows no times.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, Float64Array, GenericListArray, OffsetSizeTrait,
    StructArray, UInt64Array, new_null_array,
};
use arrow_buffer::NullBuffer;
use arrow_schema::{DataType, Field};
use arrow_select::take::take;
use sluice_model::cast::cast;
use sluice_model::{Error, StageContext};

use super::options::{Method, QuaternionOrder};
use super::plan::TrackPlan;

/// The values as the track needs them; null where there is none that it can use.
///
/// `Err` if it cannot use any value of their type.
pub(super) fn track_values(
    track: &TrackPlan,
    values: &ArrayRef,
    context: &mut StageContext<'_>,
) -> Result<ArrayRef, Error> {
    let nulls = values.logical_null_count();
    let found = converted(track, values).ok_or_else(|| unusable(track, values.data_type()))?;
    let lost = found.null_count().saturating_sub(nulls);
    if lost > 0 {
        let what = match (track.method, track.length) {
            (Method::Slerp, _) => "that are no quaternions".to_owned(),
            (_, Some(length)) => format!("that are not {length} numbers long"),
            _ => "in which an element is missing".to_owned(),
        };
        context.note(format!("`{}`: values {what}, which are not used", track.label), lost as u64);
    }
    Ok(found)
}

fn converted(track: &TrackPlan, values: &ArrayRef) -> Option<ArrayRef> {
    if *values.data_type() == DataType::Null {
        return Some(Arc::clone(values));
    }
    if track.method == Method::Slerp {
        return quaternions(values, track.quaternion);
    }
    let fixed = match track.length {
        Some(length) => with_length(values, i32::try_from(length).ok()?)?,
        None => Arc::clone(values),
    };
    match (track.method, track.is_part) {
        (Method::Linear, _) => floats(&fixed),
        (_, true) => numbers(&fixed),
        _ => Some(fixed),
    }
}

fn unusable(track: &TrackPlan, kind: &DataType) -> Error {
    let label = &track.label;
    let advice = match track.method {
        Method::Slerp => "`slerp` needs quaternions: lists of four numbers, or x, y, z and w",
        _ if track.length.is_some() => "`length` is for lists of numbers",
        Method::Linear => "`linear` needs numbers; choose `last` or `nearest`",
        _ => "a vector has numbers only; give it a field of its own",
    };
    Error::invalid(format!("`{label}` is {}: {advice}", describe(kind)))
}

/// A type in words.
pub(super) fn describe(kind: &DataType) -> String {
    match kind {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "text".to_owned(),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => "bytes".to_owned(),
        DataType::List(_) | DataType::LargeList(_) => "a list of any length".to_owned(),
        DataType::FixedSizeList(_, length) => format!("a list of {length}"),
        DataType::Struct(_) => "a structure".to_owned(),
        other => format!("{other}"),
    }
}

fn is_list(kind: &DataType) -> bool {
    matches!(kind, DataType::List(_) | DataType::LargeList(_))
}

/// Numbers, or lists of numbers without inner lists. `None` for anything else.
fn numbers(values: &ArrayRef) -> Option<ArrayRef> {
    with_elements(values, &|elements| {
        let kind = elements.data_type();
        (kind.is_numeric() || *kind == DataType::Boolean).then(|| Arc::clone(elements))
    })
}

/// The same as floating-point numbers.
fn floats(values: &ArrayRef) -> Option<ArrayRef> {
    with_elements(values, &|elements| match elements.data_type() {
        DataType::Float32 | DataType::Float64 => Some(Arc::clone(elements)),
        kind if kind.is_numeric() => cast(elements, &DataType::Float64).ok(),
        _ => None,
    })
}

/// The values with their innermost elements changed, and inner lists of fixed length joined. Lists
/// without an element are null.
fn with_elements(
    values: &ArrayRef,
    change: &dyn Fn(&ArrayRef) -> Option<ArrayRef>,
) -> Option<ArrayRef> {
    if let Some(list) = values.as_fixed_size_list_opt() {
        let inner = with_elements(list.values(), change)?;
        let (length, inner) = match inner.as_fixed_size_list_opt() {
            Some(inner) => {
                let length = list.value_length().checked_mul(inner.value_length())?;
                (length, with_inner_nulls(inner))
            }
            None if is_list(inner.data_type()) => return None,
            None => (list.value_length(), inner),
        };
        return fixed_list(length, inner, list.nulls());
    }
    if let Some(list) = values.as_list_opt::<i32>() {
        return with_list_elements(list, change);
    }
    if let Some(list) = values.as_list_opt::<i64>() {
        return with_list_elements(list, change);
    }
    change(values)
}

/// The elements of lists; those of null lists are null.
fn with_inner_nulls(list: &FixedSizeListArray) -> ArrayRef {
    let Some(nulls) = list.nulls() else { return Arc::clone(list.values()) };
    let length = usize::try_from(list.value_length()).unwrap_or(0);
    let valid = nulls.iter().flat_map(|valid| std::iter::repeat_n(valid, length));
    let places: UInt64Array = (0u64..).zip(valid).map(|(at, valid)| valid.then_some(at)).collect();
    take(list.values(), &places, None).unwrap_or_else(|_| Arc::clone(list.values()))
}

fn with_list_elements<O: OffsetSizeTrait>(
    list: &GenericListArray<O>,
    change: &dyn Fn(&ArrayRef) -> Option<ArrayRef>,
) -> Option<ArrayRef> {
    let inner = change(list.values())?;
    let offsets = list.value_offsets();
    let nulls = match inner.logical_nulls().filter(|nulls| nulls.null_count() > 0) {
        None => list.nulls().cloned(),
        Some(missing) => {
            let whole = offsets.windows(2).enumerate().map(|(row, bounds)| {
                let mut elements = bounds[0].as_usize()..bounds[1].as_usize();
                list.is_valid(row) && elements.all(|at| missing.is_valid(at))
            });
            Some(whole.collect::<NullBuffer>())
        }
    };
    let field = Arc::new(Field::new_list_field(inner.data_type().clone(), true));
    let list = GenericListArray::<O>::try_new(field, list.offsets().clone(), inner, nulls);
    list.ok().map(|list| Arc::new(list) as ArrayRef)
}

/// Lists of this length; null where an element is missing.
fn fixed_list(length: i32, elements: ArrayRef, nulls: Option<&NullBuffer>) -> Option<ArrayRef> {
    let missing = elements.logical_nulls().filter(|missing| missing.null_count() > 0);
    let nulls = match missing {
        None => nulls.cloned(),
        Some(missing) => {
            let length = usize::try_from(length).ok().filter(|length| *length > 0)?;
            let rows = elements.len() / length;
            let whole = (0..rows).map(|row| {
                let mut own = row * length..(row + 1) * length;
                nulls.is_none_or(|nulls| nulls.is_valid(row)) && own.all(|at| missing.is_valid(at))
            });
            Some(whole.collect())
        }
    };
    let field = Arc::new(Field::new_list_field(elements.data_type().clone(), true));
    let list = FixedSizeListArray::try_new(field, length, elements, nulls);
    list.ok().map(|list| Arc::new(list) as ArrayRef)
}

/// Lists of exactly this length; the others are null. `None` if they are no lists.
fn with_length(values: &ArrayRef, length: i32) -> Option<ArrayRef> {
    if let Some(list) = values.as_list_opt::<i32>() {
        return with_list_length(list, length);
    }
    if let Some(list) = values.as_list_opt::<i64>() {
        return with_list_length(list, length);
    }
    let list = values.as_fixed_size_list_opt()?;
    match list.value_length() == length {
        true => Some(Arc::clone(values)),
        // Their type says that none has this length.
        false => Some(new_null_array(&list_kind(list.values().data_type()), list.len())),
    }
}

fn list_kind(element: &DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(element.clone(), true)))
}

fn with_list_length<O: OffsetSizeTrait>(
    list: &GenericListArray<O>,
    length: i32,
) -> Option<ArrayRef> {
    let has_length = |(row, bounds): (usize, &[O])| {
        let found = bounds[1].as_usize() - bounds[0].as_usize();
        list.is_valid(row) && i32::try_from(found) == Ok(length)
    };
    let valid: NullBuffer = list.value_offsets().windows(2).enumerate().map(has_length).collect();
    let field = Arc::new(Field::new_list_field(list.value_type(), true));
    let (offsets, elements) = (list.offsets().clone(), Arc::clone(list.values()));
    let list = GenericListArray::<O>::try_new(field, offsets, elements, Some(valid));
    list.ok().map(|list| Arc::new(list) as ArrayRef)
}

/// Lists that are all `length` long, or null, as lists of fixed length; others as they are.
pub(super) fn to_fixed_length(values: &ArrayRef, length: i32) -> Option<ArrayRef> {
    if let Some(list) = values.as_list_opt::<i32>() {
        return to_fixed_list(list, length);
    }
    if let Some(list) = values.as_list_opt::<i64>() {
        return to_fixed_list(list, length);
    }
    Some(Arc::clone(values))
}

fn to_fixed_list<O: OffsetSizeTrait>(list: &GenericListArray<O>, length: i32) -> Option<ArrayRef> {
    let (size, offsets) = (usize::try_from(length).ok()?, list.value_offsets());
    let places = (0..list.len()).flat_map(|row| {
        let start = offsets[row].as_usize();
        let is_valid = list.is_valid(row) && offsets[row + 1].as_usize() - start == size;
        (0..size).map(move |at| is_valid.then_some((start + at) as u64))
    });
    let places: UInt64Array = places.collect();
    let elements = match list.values().is_empty() {
        true => new_null_array(&list.value_type(), places.len()),
        false => take(list.values(), &places, None).ok()?,
    };
    let field = Arc::new(Field::new_list_field(list.value_type(), true));
    let fixed = FixedSizeListArray::try_new(field, length, elements, list.nulls().cloned());
    fixed.ok().map(|list| Arc::new(list) as ArrayRef)
}

/// Unit quaternions in the order in which they are given; null where they have no direction.
fn quaternions(values: &ArrayRef, order: QuaternionOrder) -> Option<ArrayRef> {
    let list = match values.as_struct_opt() {
        Some(parts) => quaternions_of_parts(parts, order)?,
        None => to_fixed_length(&floats(&with_length(values, 4)?)?, 4)?,
    };
    let list = list.as_fixed_size_list_opt()?;
    let numbers = cast(list.values(), &DataType::Float64).ok()?;
    let numbers = numbers.as_primitive_opt::<Float64Type>()?;
    let (mut unit, mut valid) = (Vec::with_capacity(numbers.len()), Vec::new());
    for (row, parts) in numbers.values().chunks_exact(4).enumerate() {
        let norm = parts.iter().map(|part| part * part).sum::<f64>().sqrt();
        let is_rotation = norm.is_normal() && list.is_valid(row);
        valid.push(is_rotation);
        unit.extend(parts.iter().map(|part| if is_rotation { part / norm } else { 0.0 }));
    }
    let field = Arc::new(Field::new_list_field(DataType::Float64, true));
    let unit = Arc::new(Float64Array::from(unit));
    let list = FixedSizeListArray::try_new(field, 4, unit, Some(valid.into())).ok()?;
    Some(Arc::new(list))
}

/// Lists of the members x, y, z and w.
fn quaternions_of_parts(parts: &StructArray, order: QuaternionOrder) -> Option<ArrayRef> {
    let names = match order {
        QuaternionOrder::Wxyz => ["w", "x", "y", "z"],
        QuaternionOrder::Xyzw => ["x", "y", "z", "w"],
    };
    let mut columns = Vec::new();
    for name in names {
        let part = parts.column_by_name(name).filter(|part| part.data_type().is_numeric())?;
        columns.push(cast(part, &DataType::Float64).ok()?);
    }
    let columns: Vec<&Float64Array> =
        columns.iter().map(|column| column.as_primitive::<Float64Type>()).collect();
    let whole = |row: usize| parts.is_valid(row) && columns.iter().all(|part| part.is_valid(row));
    let valid: Vec<bool> = (0..parts.len()).map(whole).collect();
    let numbers = (0..parts.len()).flat_map(|row| columns.iter().map(move |part| part.value(row)));
    let numbers: ArrayRef = Arc::new(Float64Array::from(numbers.collect::<Vec<f64>>()));
    let field = Arc::new(Field::new_list_field(DataType::Float64, true));
    let list = FixedSizeListArray::try_new(field, 4, numbers, Some(valid.into()));
    list.ok().map(|list| Arc::new(list) as ArrayRef)
}
