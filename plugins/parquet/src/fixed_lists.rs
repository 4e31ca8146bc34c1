//! Lists of fixed length, which Parquet does not have: a table has plain lists, and its footer
//! their lengths, [`ListLengths`]. They are read by [`with_lengths`] and [`as_fixed_lists`].

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, FixedSizeListArray, ListArray, StructArray, UInt32Array};
use arrow_buffer::NullBuffer;
use arrow_schema::{ArrowError, DataType, Field, FieldRef, Fields};
use arrow_select::take::take;
use serde::{Deserialize, Serialize};

use crate::input::retyped;

/// The lengths of the lists in a column.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ListLengths {
    /// That of the list, if the column is one and it is fixed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    length: Option<u32>,
    /// Those of the lists in its elements.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    elements: Option<Box<ListLengths>>,
    /// Those of the lists in the members of a struct, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    members: BTreeMap<String, ListLengths>,
}

impl ListLengths {
    /// `None` for a column without lists of fixed length.
    pub(crate) fn of(data_type: &DataType) -> Option<Self> {
        let elements = |item: &Field| Self::of(item.data_type()).map(Box::new);
        match data_type {
            DataType::FixedSizeList(item, len) => {
                let length = u32::try_from(*len).ok();
                Some(Self { length, elements: elements(item), ..Self::default() })
            }
            DataType::List(item) | DataType::LargeList(item) => {
                let elements = Some(elements(item)?);
                Some(Self { elements, ..Self::default() })
            }
            DataType::Struct(fields) => {
                let members = fields
                    .iter()
                    .filter_map(|field| Some((field.name().clone(), Self::of(field.data_type())?)));
                let members: BTreeMap<_, _> = members.collect();
                (!members.is_empty()).then(|| Self { members, ..Self::default() })
            }
            _ => None,
        }
    }
}

/// How many values of a row may still be of lists that can be missing. Missing lists take no bytes
/// in a file, whose footer could claim any length, but as many as others in memory.
pub(crate) struct MissingValues(usize);

impl Default for MissingValues {
    fn default() -> Self {
        Self(256)
    }
}

/// The field of a table with these lengths of its lists, except for those that may be missing and
/// are too long.
pub(crate) fn with_lengths(
    field: &Field,
    lengths: &ListLengths,
    left: &mut MissingValues,
) -> Field {
    with_lengths_in(field, lengths, FieldPlace { per_row: 1, may_lack: false }, left)
}

/// Where a field is.
#[derive(Clone, Copy)]
struct FieldPlace {
    /// How many of it a row has at most.
    per_row: usize,
    /// Whether what is around it may be missing.
    may_lack: bool,
}

fn with_lengths_in(
    field: &Field,
    lengths: &ListLengths,
    FieldPlace { per_row, may_lack }: FieldPlace,
    left: &mut MissingValues,
) -> Field {
    let may_lack = may_lack || field.is_nullable();
    let data_type = match field.data_type() {
        DataType::List(item) => {
            let elements = |len: i32| per_row.saturating_mul(len as usize);
            let len = lengths.length.and_then(|len| i32::try_from(len).ok());
            let len = len.filter(|len| !may_lack || left.spend(elements(*len), item));
            let place = match len {
                Some(len) => FieldPlace { per_row: elements(len), may_lack },
                // All that there are may be empty, and an element be taken of them.
                None => FieldPlace { per_row: 1, may_lack: true },
            };
            let item = match &lengths.elements {
                Some(lengths) => Arc::new(with_lengths_in(item, lengths, place, left)),
                None => Arc::clone(item),
            };
            match len {
                Some(len) => DataType::FixedSizeList(item, len),
                None => DataType::List(item),
            }
        }
        DataType::Struct(fields) => {
            let place = FieldPlace { per_row, may_lack };
            let member = |field: &FieldRef| match lengths.members.get(field.name()) {
                Some(lengths) => Arc::new(with_lengths_in(field, lengths, place, left)),
                None => Arc::clone(field),
            };
            DataType::Struct(fields.iter().map(member).collect())
        }
        other => other.clone(),
    };
    field.clone().with_data_type(data_type)
}

impl MissingValues {
    /// Whether so many of these may be missing, which are counted then.
    fn spend(&mut self, count: usize, item: &Field) -> bool {
        let left = self.0.checked_sub(count.saturating_mul(values_in(item.data_type())));
        left.map(|left| self.0 = left).is_some()
    }
}

/// The values in one of this type, in units of 8 bytes.
fn values_in(data_type: &DataType) -> usize {
    match data_type {
        DataType::Struct(fields) => fields.iter().map(|field| values_in(field.data_type())).sum(),
        DataType::FixedSizeBinary(len) => (*len as usize).div_ceil(8),
        _ => 1,
    }
}

/// A column of a table with the type that it has [`with_lengths`]. `Err` if a list has another
/// length.
pub(crate) fn as_fixed_lists(
    column: &ArrayRef,
    data_type: &DataType,
) -> Result<ArrayRef, ArrowError> {
    as_fixed(column, data_type, None)
}

/// The same where rows may be missing because what is around them is.
fn as_fixed(
    column: &ArrayRef,
    data_type: &DataType,
    around: Option<&NullBuffer>,
) -> Result<ArrayRef, ArrowError> {
    if column.data_type() == data_type {
        return Ok(Arc::clone(column));
    }
    let nulls = NullBuffer::union(column.nulls(), around).filter(|nulls| nulls.null_count() > 0);
    Ok(match (data_type, column.data_type()) {
        (DataType::FixedSizeList(item, len), DataType::List(_)) => {
            let size = *len as usize;
            let elements = elements(column.as_list(), size, nulls.as_ref())?;
            let missing = nulls.as_ref().map(|nulls| nulls.expand(size));
            let elements = as_fixed(&elements, item.data_type(), missing.as_ref())?;
            let item = retyped(item, &elements);
            let rows = column.len();
            Arc::new(FixedSizeListArray::try_new_with_length(item, *len, elements, nulls, rows)?)
        }
        (DataType::List(item), DataType::List(_)) => {
            let lists = column.as_list::<i32>();
            let elements = as_fixed(lists.values(), item.data_type(), None)?;
            let (offsets, nulls) = (lists.offsets().clone(), lists.nulls().cloned());
            Arc::new(ListArray::try_new(retyped(item, &elements), offsets, elements, nulls)?)
        }
        (DataType::Struct(fields), DataType::Struct(_)) => {
            let members = column.as_struct();
            let columns = fields.iter().zip(members.columns());
            let columns = columns
                .map(|(field, column)| as_fixed(column, field.data_type(), nulls.as_ref()))
                .collect::<Result<Vec<ArrayRef>, _>>()?;
            let fields = fields.iter().zip(&columns).map(|(field, column)| retyped(field, column));
            let (fields, rows): (Fields, usize) = (fields.collect(), members.len());
            let nulls = members.nulls().cloned();
            Arc::new(StructArray::try_new_with_length(fields, columns, nulls, rows)?)
        }
        _ => Arc::clone(column),
    })
}

/// The elements of lists of this length, one list after the other; nulls for those that are
/// missing.
fn elements(
    lists: &ListArray,
    len: usize,
    missing: Option<&NullBuffer>,
) -> Result<ArrayRef, ArrowError> {
    let is_missing = |row: usize| missing.is_some_and(|nulls| nulls.is_null(row));
    let offsets = lists.value_offsets();
    let lens = offsets.windows(2).map(|pair| (pair[1] - pair[0]) as usize).enumerate();
    if let Some((_, other)) = lens.clone().find(|(row, other)| *other != len && !is_missing(*row)) {
        let what = format!("a list has {other} elements, not {len} as the others");
        return Err(ArrowError::InvalidArgumentError(what));
    }
    if missing.is_none() {
        return Ok(lists.values().slice(offsets[0] as usize, lists.len() * len));
    }
    let places = offsets.iter().take(lists.len()).enumerate().flat_map(|(row, start)| {
        (0..len as u32).map(move |n| (!is_missing(row)).then_some(*start as u32 + n))
    });
    take(lists.values(), &places.collect::<UInt32Array>(), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_that_may_all_be_missing_get_no_length_that_takes_memory() {
        let list = |item: Field| Field::new_list("a", Arc::new(item), false);
        let lists = list(list(Field::new("item", DataType::Int32, false)));
        let lengths = |length: u32| -> ListLengths {
            serde_json::from_value(serde_json::json!({ "elements": { "length": length } })).unwrap()
        };
        let read = |length| with_lengths(&lists, &lengths(length), &mut MissingValues::default());
        assert_eq!(read(i32::MAX as u32), lists);
        assert_eq!(read(20_000), lists);
        let DataType::List(item) = read(3).data_type().clone() else { panic!() };
        assert!(matches!(item.data_type(), DataType::FixedSizeList(_, 3)));
    }
}
