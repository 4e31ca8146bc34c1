//! Lists of fixed length, which Parquet does not have: a table has plain lists, and its footer
//! their lengths: [`ListLengths`], or an Arrow schema. Fields get these lengths, [`with_lengths`],
//! but columns are read as plain lists first: those of fixed length that are missing would take
//! memory that a footer claims.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use serde::{Deserialize, Serialize};

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
            DataType::List(item) | DataType::LargeList(item) | DataType::Map(item, _) => {
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
/// in a file, whose footer could claim any length, but as many as others in memory, and time.
pub(crate) struct MissingValues(usize);

impl Default for MissingValues {
    fn default() -> Self {
        Self(256)
    }
}

/// The schema that another program has stored, without the lengths of lists that may be missing and
/// are so long that nobody meant them.
pub(crate) fn without_long_lists(schema: &Schema) -> SchemaRef {
    let mut left = MissingValues(64 << 10);
    let fields = schema.fields().iter().map(|field| match ListLengths::of(field.data_type()) {
        Some(lengths) => Arc::new(with_lengths(&with_plain_lists(field), &lengths, &mut left)),
        None => Arc::clone(field),
    });
    Arc::new(Schema::new_with_metadata(fields.collect::<Fields>(), schema.metadata().clone()))
}

/// The field with plain lists in place of those of fixed length.
pub(crate) fn with_plain_lists(field: &FieldRef) -> FieldRef {
    let data_type = match field.data_type() {
        DataType::FixedSizeList(item, _) | DataType::List(item) => {
            DataType::List(with_plain_lists(item))
        }
        DataType::LargeList(item) => DataType::LargeList(with_plain_lists(item)),
        DataType::Map(entry, is_sorted) => DataType::Map(with_plain_lists(entry), *is_sorted),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(with_plain_lists).collect()),
        _ => return Arc::clone(field),
    };
    Arc::new(field.as_ref().clone().with_data_type(data_type))
}

/// Whether there are lists of fixed length in this type.
pub(crate) fn has_fixed_lists(data_type: &DataType) -> bool {
    ListLengths::of(data_type).is_some()
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
    // All lists that there are may be empty, and an element be taken of them.
    let counted = FieldPlace { per_row: 1, may_lack: true };
    let elements_in = |item: &FieldRef, place, left: &mut MissingValues| match &lengths.elements {
        Some(lengths) => Arc::new(with_lengths_in(item, lengths, place, left)),
        None => Arc::clone(item),
    };
    let data_type = match field.data_type() {
        DataType::LargeList(item) => DataType::LargeList(elements_in(item, counted, left)),
        DataType::Map(entry, is_sorted) => {
            DataType::Map(elements_in(entry, counted, left), *is_sorted)
        }
        DataType::List(item) => {
            let elements = |len: i32| per_row.saturating_mul(len as usize);
            let len = lengths.length.and_then(|len| i32::try_from(len).ok());
            let len = len.filter(|len| !may_lack || left.spend(elements(*len), item));
            let place = match len {
                Some(len) => FieldPlace { per_row: elements(len), may_lack },
                None => counted,
            };
            let item = elements_in(item, place, left);
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
