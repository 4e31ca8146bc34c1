//! How deep the columns of a table nest, according to the schema in its footer, and those of a
//! table to be written. Checks nothing else.
//!
//! The Parquet library recurses once per level when it parses a schema, builds its readers and
//! drops them, so a footer of a few kilobytes could overflow the stack. The list of schema elements
//! is therefore walked beforehand, without recursion. What is written is checked as well: a table
//! of ours can be read back.

use arrow_schema::{DataType, FieldRef};

use super::thrift::Value::{Any, Binary, Bool, Byte, Int, Struct};
use super::thrift::{CompactReader, EMPTY, Value};

/// The most levels of a column; a repeated group has two, as it is read as a list of structs.
///
/// To read, the library needs up to 7 kB of stack per level, and 18 kB if it is not optimised; to
/// write, 12 and 42 kB for each struct or list. Threads have 2 MiB, so a program that is not
/// optimised writes no more than 45 structs inside each other. LCM types have up to 64, those of
/// other formats 32.
const MAX_NESTING: usize = 80;

/// The fields of `FileMetaData` that precede the schema, and the schema.
const VERSION: i16 = 1;
const SCHEMA: i16 = 2;

/// Fields of `SchemaElement`.
const REPETITION_TYPE: i16 = 3;
const NUM_CHILDREN: i16 = 5;

/// The `FieldRepetitionType` of lists.
const REPEATED: i32 = 2;

/// Why a schema is not given to the library.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SchemaFault {
    Malformed(String),
    /// It is sound, but nests too deep.
    TooDeep(String),
}

/// An element of a schema: a group or a column.
struct SchemaElement {
    children: u64,
    is_repeated: bool,
}

/// A group around the next element.
struct OpenGroup {
    /// The children that are still to come.
    children: u64,
    /// The levels down to it.
    levels: usize,
}

const DECIMAL: Value = Struct(&[Int, Int]);
const TIME: Value = Struct(&[Bool, Struct(&[EMPTY, EMPTY, EMPTY])]);
const INTEGER: Value = Struct(&[Byte, Bool]);
const VARIANT: Value = Struct(&[Byte]);
const GEOMETRY: Value = Struct(&[Binary]);
const GEOGRAPHY: Value = Struct(&[Binary, Int]);
const LOGICAL_TYPE: Value = Struct(&[
    EMPTY, EMPTY, EMPTY, EMPTY, DECIMAL, EMPTY, TIME, TIME, Any, INTEGER, EMPTY, EMPTY, EMPTY,
    EMPTY, EMPTY, VARIANT, GEOMETRY, GEOGRAPHY,
]);
const SCHEMA_FIELDS: &[Value] = &[Int, Int, Int, Binary, Int, Int, Int, Int, Int, LOGICAL_TYPE];

/// Checks that columns of a table that is written do not nest deeper than those that are read.
/// `Err` names the first that does.
pub(crate) fn check_fields<'f>(
    fields: impl IntoIterator<Item = &'f FieldRef>,
) -> Result<(), String> {
    for root in fields {
        let mut open: Vec<(&DataType, usize)> = vec![(root.data_type(), 1)];
        while let Some((data_type, levels)) = open.pop() {
            if levels > MAX_NESTING {
                return Err(format!(
                    "the field `{}` nests deeper than {MAX_NESTING} levels, where a list counts as \
                     three",
                    root.name()
                ));
            }
            match data_type {
                DataType::Struct(members) => {
                    open.extend(members.iter().map(|member| (member.data_type(), levels + 1)));
                }
                // Parquet has them as a repeated group in a group.
                DataType::List(item)
                | DataType::LargeList(item)
                | DataType::FixedSizeList(item, _)
                | DataType::ListView(item)
                | DataType::LargeListView(item) => open.push((item.data_type(), levels + 3)),
                // The entries are the repeated group.
                DataType::Map(entries, _) => open.push((entries.data_type(), levels + 2)),
                DataType::RunEndEncoded(_, values) => open.push((values.data_type(), levels)),
                DataType::Dictionary(_, value) => open.push((value, levels)),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Checks that the columns of a table do not nest too deep for the library, by its footer.
pub(super) fn check_footer(footer: &[u8]) -> Result<(), SchemaFault> {
    let malformed = || SchemaFault::Malformed("the schema in its footer is malformed".to_owned());
    let mut reader = CompactReader(footer);
    let elements = reader.schema_elements().ok_or_else(malformed)?;
    let mut open: Vec<OpenGroup> = Vec::new();
    for place in 0..elements {
        let SchemaElement { children, is_repeated } =
            reader.schema_element().ok_or_else(malformed)?;
        if children >= elements - place {
            return Err(malformed());
        }
        while open.pop_if(|group| group.children == 0).is_some() {}
        // The first element is the table.
        let levels = open.last_mut().map_or(0, |group| {
            group.children -= 1;
            group.levels + 1 + usize::from(is_repeated)
        });
        if levels > MAX_NESTING {
            return Err(SchemaFault::TooDeep(format!(
                "its columns nest deeper than {MAX_NESTING} levels, the most that are read: \
                 flatten them with the program that wrote it"
            )));
        }
        open.push(OpenGroup { children, levels });
    }
    Ok(())
}

impl CompactReader<'_> {
    /// Skips what precedes the schema elements, and returns how many there are.
    fn schema_elements(&mut self) -> Option<u64> {
        let mut field = self.field(0)?;
        while let Some((VERSION, _)) = field {
            self.varint()?;
            field = self.field(VERSION)?;
        }
        let Some((SCHEMA, _)) = field else { return None };
        self.list().map(|(elements, _)| elements)
    }

    fn schema_element(&mut self) -> Option<SchemaElement> {
        let (mut element, mut last) = (SchemaElement { children: 0, is_repeated: false }, 0);
        while let Some((id, kind)) = self.field(last)? {
            match id {
                NUM_CHILDREN => element.children = u64::try_from(self.int32()?).ok()?,
                REPETITION_TYPE => element.is_repeated = self.int32()? == REPEATED,
                _ => self.skip_field(SCHEMA_FIELDS, id, kind)?,
            }
            last = id;
        }
        Some(element)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_schema::{Field, Schema};
    use parquet::arrow::ArrowSchemaConverter;

    use super::*;

    /// A footer whose schema has optional elements with these child counts.
    fn footer(children: &[u8]) -> Vec<u8> {
        let mut footer = vec![0x15, 4, 0x19, 0xfc];
        let count = children.len();
        footer.extend([(count & 0x7f) as u8 | 0x80, (count >> 7) as u8]);
        for children in children {
            footer.extend([0x35, 2, 0x18, 1, b'a', 0x15, children << 1, 0]);
        }
        footer
    }

    #[test]
    fn a_column_may_nest_as_deep_as_the_limit_and_no_deeper() {
        let nested = |groups: usize| [vec![1; groups], vec![0]].concat();
        assert_eq!(check_footer(&footer(&nested(MAX_NESTING))), Ok(()));
        let fault = check_footer(&footer(&nested(MAX_NESTING + 1))).unwrap_err();
        let SchemaFault::TooDeep(reason) = fault else { panic!("{fault:?}") };
        assert!(reason.starts_with("its columns nest deeper than 80 levels, "), "{reason}");
    }

    /// A column of this many lists inside each other, and the levels that Parquet has for it.
    fn lists(count: usize) -> (FieldRef, usize) {
        let nest = |inner, _| DataType::List(Arc::new(Field::new("item", inner, true)));
        let lists = (0..count).fold(DataType::Int8, nest);
        let field = Arc::new(Field::new(
            "a",
            DataType::Struct(
                vec![Field::new("b", lists.clone(), true), Field::new("c", DataType::Int8, true)]
                    .into(),
            ),
            true,
        ));
        let schema = Schema::new(vec![Arc::clone(&field)]);
        let columns = ArrowSchemaConverter::new().convert(&schema).unwrap();
        let leaf = columns.column(0);
        (field, leaf.path().parts().len() + leaf.max_rep_level() as usize)
    }

    #[test]
    fn what_may_be_written_can_be_read() {
        // The last that is allowed has just the most levels.
        for count in [0, 1, 2, 25, 26, 27] {
            let (field, levels) = lists(count);
            assert_eq!(check_fields([&field]).is_ok(), levels <= MAX_NESTING, "{levels}");
        }
        assert_eq!(lists(26).1, MAX_NESTING);
        let reason = check_fields([&lists(27).0]).unwrap_err();
        assert!(reason.starts_with("the field `a` nests deeper than 80 levels"), "{reason}");
    }

    #[test]
    fn columns_side_by_side_do_not_nest() {
        let columns = [vec![2], vec![60], [1, 0].repeat(60), vec![60], vec![0; 60]].concat();
        assert_eq!(check_footer(&footer(&columns)), Ok(()));
    }

    #[test]
    fn children_that_are_not_there_are_refused() {
        let fault = check_footer(&footer(&[3, 0, 0])).unwrap_err();
        let malformed = "the schema in its footer is malformed".to_owned();
        assert_eq!(fault, SchemaFault::Malformed(malformed));
    }

    #[test]
    fn structs_in_unknown_fields_do_not_recurse_without_limit() {
        let element = [vec![0xbc], vec![0x1c; 100_000]].concat();
        let bytes = [vec![0x15, 4, 0x19, 0x1c], element].concat();
        assert!(check_footer(&bytes).is_err());
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_checked(
            bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..300),
        ) {
            drop(check_footer(&bytes));
            drop(check_footer(&[&[0x15, 4, 0x19, 0xfc, 0xff, 1], &bytes[..]].concat()));
        }
    }
}
