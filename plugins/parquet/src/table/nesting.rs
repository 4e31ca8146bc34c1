//! How deep the columns of a table nest, according to the schema in its footer. Checks nothing else
//! of the footer.
//!
//! The Parquet library recurses once per level when it parses a schema, builds its readers and
//! drops them, so a footer of a few kilobytes could overflow the stack. The list of schema elements
//! is therefore walked beforehand, without recursion. Fields are read as the library reads them: by
//! their number, whatever type they claim.

use parquet::file::metadata::FooterTail;
use parquet::file::reader::{ChunkReader, Length};

use self::Value::{Any, Binary, Bool, Byte, Int, Struct};
use crate::bytes::TableBytes;

/// The most levels of a column; a repeated group has two, as it is read as a list of structs.
///
/// The library needs up to 7 kB of stack per level, and 18 kB if it is not optimised; threads have
/// 2 MiB. LCM types have up to 64 structs inside each other, those of other formats 32.
const MAX_NESTING: usize = 80;

/// The bytes of a file after its footer.
const TAIL_LEN: u64 = 8;

/// The fields of `FileMetaData` that precede the schema, and the schema.
const VERSION: i16 = 1;
const SCHEMA: i16 = 2;

/// Fields of `SchemaElement`.
const REPETITION_TYPE: i16 = 3;
const NUM_CHILDREN: i16 = 5;

/// The `FieldRepetitionType` of lists.
const REPEATED: i64 = 2;

/// The most structs inside each other in a schema element.
const MAX_STRUCTS: u8 = 8;

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

/// A value of Thrift's compact protocol.
enum Value {
    /// Part of the field's type.
    Bool,
    Byte,
    Int,
    Binary,
    /// The values of its fields, the first of which has the number 1. Also a union.
    Struct(&'static [Value]),
    /// Of the type that the field claims.
    Any,
}

const EMPTY: Value = Struct(&[]);
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

/// Checks that the columns of a table do not nest too deep for the library. A file without a footer
/// passes: the library says what is wrong with it.
pub(super) fn check(bytes: &TableBytes) -> Result<(), String> {
    footer(bytes).map_or(Ok(()), |footer| check_footer(&footer))
}

/// The footer of a file. `None` if it has none that is complete.
fn footer(bytes: &TableBytes) -> Option<bytes::Bytes> {
    let end = bytes.len().checked_sub(TAIL_LEN)?;
    let tail = bytes.get_bytes(end, TAIL_LEN as usize).ok()?;
    let len = FooterTail::try_from(&tail[..]).ok()?.metadata_length();
    bytes.get_bytes(end.checked_sub(len as u64)?, len).ok()
}

fn check_footer(footer: &[u8]) -> Result<(), String> {
    let malformed = || "the schema in its footer is malformed".to_owned();
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
            return Err(format!("its columns nest deeper than {MAX_NESTING} levels"));
        }
        open.push(OpenGroup { children, levels });
    }
    Ok(())
}

/// Reads values of Thrift's compact protocol. `None` if they are malformed.
struct CompactReader<'b>(&'b [u8]);

impl CompactReader<'_> {
    /// Skips what precedes the schema elements, and returns how many there are.
    fn schema_elements(&mut self) -> Option<u64> {
        let mut field = self.field(0)?;
        while let Some((VERSION, _)) = field {
            self.varint()?;
            field = self.field(VERSION)?;
        }
        let Some((SCHEMA, _)) = field else { return None };
        match self.byte()? >> 4 {
            15 => self.varint(),
            elements => Some(elements.into()),
        }
    }

    fn schema_element(&mut self) -> Option<SchemaElement> {
        let (mut element, mut last) = (SchemaElement { children: 0, is_repeated: false }, 0);
        while let Some((id, kind)) = self.field(last)? {
            match id {
                NUM_CHILDREN => element.children = u64::try_from(self.int()?).ok()?,
                REPETITION_TYPE => element.is_repeated = self.int()? == REPEATED,
                _ => self.skip(member(SCHEMA_FIELDS, id), kind, MAX_STRUCTS)?,
            }
            last = id;
        }
        Some(element)
    }

    /// The number and type of the next field of a struct; the inner `None` at its end.
    fn field(&mut self, last: i16) -> Option<Option<(i16, u8)>> {
        let header = self.byte()?;
        let (delta, kind) = (header >> 4, header & 0xf);
        Some(match (delta, kind) {
            (_, 0) => None,
            (0, _) => Some((i16::try_from(self.int()?).ok()?, kind)),
            _ => Some((last.checked_add(delta.into())?, kind)),
        })
    }

    /// Skips a value in a field of this type, with at most this many structs inside each other.
    fn skip(&mut self, value: &Value, kind: u8, levels: u8) -> Option<()> {
        match value {
            Bool => Some(()),
            Byte => self.skip_bytes(1),
            Int => self.varint().map(drop),
            Binary => {
                let len = self.varint()?;
                self.skip_bytes(len)
            }
            Struct(members) => {
                let (mut last, levels) = (0, levels.checked_sub(1)?);
                while let Some((id, kind)) = self.field(last)? {
                    self.skip(member(members, id), kind, levels)?;
                    last = id;
                }
                Some(())
            }
            Any => self.skip(claimed(kind)?, kind, levels),
        }
    }

    fn int(&mut self) -> Option<i64> {
        let zigzag = self.varint()?;
        Some((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64))
    }

    fn varint(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn skip_bytes(&mut self, len: u64) -> Option<()> {
        self.0 = self.0.get(usize::try_from(len).ok()?..)?;
        Some(())
    }
}

/// The value of a field of a struct.
fn member(members: &[Value], id: i16) -> &Value {
    let place = usize::try_from(id).ok().and_then(|id| id.checked_sub(1));
    place.and_then(|place| members.get(place)).unwrap_or(&Any)
}

/// The value in a field of this type, of those that can be in a schema: no lists and maps.
fn claimed(kind: u8) -> Option<&'static Value> {
    Some(match kind {
        1 | 2 => &Bool,
        3 => &Byte,
        4..=6 => &Int,
        8 => &Binary,
        12 => &EMPTY,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
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
        let reason = check_footer(&footer(&nested(MAX_NESTING + 1))).unwrap_err();
        assert_eq!(reason, "its columns nest deeper than 80 levels");
    }

    #[test]
    fn columns_side_by_side_do_not_nest() {
        let columns = [vec![2], vec![60], [1, 0].repeat(60), vec![60], vec![0; 60]].concat();
        assert_eq!(check_footer(&footer(&columns)), Ok(()));
    }

    #[test]
    fn children_that_are_not_there_are_refused() {
        let reason = check_footer(&footer(&[3, 0, 0])).unwrap_err();
        assert_eq!(reason, "the schema in its footer is malformed");
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
