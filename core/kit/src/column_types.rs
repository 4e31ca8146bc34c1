//! Compares types of columns whichever program wrote them. Converts nothing.

use arrow_schema::DataType;

/// Whether columns of two types have the same values: programs store lists, texts, bytes and
/// repeated values in several ways, and lose the lengths of lists. The names and the order of
/// list items and members do not count, nor whether values may be null.
pub fn have_same_values(a: &DataType, b: &DataType) -> bool {
    match (a, b) {
        (DataType::Dictionary(_, values), other) | (other, DataType::Dictionary(_, values)) => {
            have_same_values(values, other)
        }
        (DataType::Struct(members), DataType::Struct(others)) => {
            let same = |name: &str, data_type: &DataType| {
                let other = others.find(name);
                other.is_some_and(|(_, other)| have_same_values(data_type, other.data_type()))
            };
            members.len() == others.len()
                && members.iter().all(|member| same(member.name(), member.data_type()))
        }
        _ => match (element_type(a), element_type(b)) {
            (Some(a), Some(b)) => have_same_values(a, b),
            (None, None) => {
                a == b || (a.is_string() && b.is_string()) || (a.is_binary() && b.is_binary())
            }
            _ => false,
        },
    }
}

/// The type of a list's elements; `None` for other types.
fn element_type(data_type: &DataType) -> Option<&DataType> {
    match data_type {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::ListView(item)
        | DataType::LargeListView(item) => Some(item.data_type()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_schema::{Field, FieldRef};

    use super::*;

    #[test]
    fn lists_texts_and_bytes_of_any_kind_are_the_same() {
        let field = |name: &str, of: &DataType, is_null| -> FieldRef {
            Arc::new(Field::new(name, of.clone(), is_null))
        };
        let structs = |text: &DataType, list: &DataType| {
            DataType::Struct(vec![field("a", text, true), field("b", list, false)].into())
        };
        let float = DataType::Float32;
        let fixed = DataType::FixedSizeList(field("item", &float, false), 3);
        let large = DataType::LargeList(field("element", &float, true));
        let word = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::LargeUtf8));
        let bytes = DataType::FixedSizeBinary(4);
        assert!(have_same_values(&bytes, &DataType::BinaryView));
        assert!(have_same_values(&structs(&word, &fixed), &structs(&DataType::Utf8View, &large)));
        let doubles = DataType::List(field("item", &DataType::Float64, false));
        assert!(!have_same_values(&structs(&word, &fixed), &structs(&word, &doubles)));
        assert!(!have_same_values(&structs(&word, &fixed), &structs(&bytes, &fixed)));
        assert!(!have_same_values(&fixed, &float));
        let one = DataType::Struct(vec![field("a", &word, true)].into());
        assert!(!have_same_values(&structs(&word, &fixed), &one));
        assert!(!have_same_values(&one, &structs(&word, &fixed)));
    }
}
