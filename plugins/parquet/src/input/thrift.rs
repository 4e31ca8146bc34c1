//! Values of Thrift's compact protocol, in which Parquet has its metadata. Allocates nothing, and
//! recurses no deeper than a few structs.
//!
//! Fields are read as the Parquet library reads them: by their number, whatever type they claim.

use self::Value::{Any, Binary, Bool, Byte, Int, List, Struct};

/// The most structs and lists inside each other in a value.
const MAX_LEVELS: u8 = 8;

/// The types of elements of a list that are booleans, which take a byte there.
const BOOLEANS: [u8; 2] = [1, 2];

/// A value of Thrift's compact protocol.
pub(crate) enum Value {
    /// Part of the field's type.
    Bool,
    Byte,
    Int,
    Binary,
    /// The values of its fields, the first of which has the number 1. Also a union.
    Struct(&'static [Value]),
    /// Also a set.
    List,
    /// Of the type that the field claims.
    Any,
}

/// A struct whose fields are of the types that they claim.
pub(crate) const EMPTY: Value = Struct(&[]);

/// Reads values. `None` if they are malformed, or cut.
pub(crate) struct CompactReader<'b>(pub(crate) &'b [u8]);

impl CompactReader<'_> {
    /// The number and type of the next field of a struct; the inner `None` at its end.
    pub(crate) fn field(&mut self, last: i16) -> Option<Option<(i16, u8)>> {
        let header = self.byte()?;
        let (delta, kind) = (header >> 4, header & 0xf);
        Some(match (delta, kind) {
            (_, 0) => None,
            (0, _) => Some((i16::try_from(self.int()?).ok()?, kind)),
            _ => Some((last.checked_add(delta.into())?, kind)),
        })
    }

    /// Skips the value of a field of a struct with these fields.
    pub(crate) fn skip_field(&mut self, fields: &[Value], id: i16, kind: u8) -> Option<()> {
        self.skip(member(fields, id), kind, MAX_LEVELS)
    }

    /// Goes to the value of a field of a struct. `None` if it has no such field.
    pub(crate) fn seek(&mut self, id: i16) -> Option<()> {
        let mut last = 0;
        while let Some((next, kind)) = self.field(last)? {
            if next == id {
                return Some(());
            }
            self.skip(&Any, kind, MAX_LEVELS)?;
            last = next;
        }
        None
    }

    /// Calls a function for each field of a struct, with its number and type, to read its value.
    pub(crate) fn for_each_field(
        &mut self,
        mut read: impl FnMut(&mut Self, i16, u8) -> Option<()>,
    ) -> Option<()> {
        let mut last = 0;
        while let Some((id, kind)) = self.field(last)? {
            read(self, id, kind)?;
            last = id;
        }
        Some(())
    }

    /// The number of elements of a list, and their type.
    pub(crate) fn list(&mut self) -> Option<(u64, u8)> {
        let header = self.byte()?;
        let len = match header >> 4 {
            15 => self.varint()?,
            len => len.into(),
        };
        Some((len, header & 0xf))
    }

    fn skip_elements(&mut self, count: u64, kind: u8, levels: u8) -> Option<()> {
        match BOOLEANS.contains(&kind) {
            true => self.skip_bytes(count),
            // Each takes a byte at least.
            false => (0..count).try_for_each(|_| self.skip(&Any, kind, levels)),
        }
    }

    /// Skips a value in a field of this type, with at most this many structs and lists inside each
    /// other.
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
                let levels = levels.checked_sub(1)?;
                self.for_each_field(|reader, id, kind| {
                    reader.skip(member(members, id), kind, levels)
                })
            }
            List => {
                let (len, kind) = self.list()?;
                self.skip_elements(len, kind, levels.checked_sub(1)?)
            }
            Any => self.skip(claimed(kind)?, kind, levels),
        }
    }

    pub(crate) fn int(&mut self) -> Option<i64> {
        let zigzag = self.varint()?;
        Some((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64))
    }

    /// A number of 32 bits. The library cuts off what is longer.
    pub(crate) fn int32(&mut self) -> Option<i32> {
        self.int().map(|number| number as i32)
    }

    pub(crate) fn varint(&mut self) -> Option<u64> {
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

    pub(crate) fn byte(&mut self) -> Option<u8> {
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

/// The value in a field of this type, of those that are in footers and pages: no maps.
fn claimed(kind: u8) -> Option<&'static Value> {
    Some(match kind {
        1 | 2 => &Bool,
        3 => &Byte,
        4..=6 => &Int,
        8 => &Binary,
        9 | 10 => &List,
        12 => &EMPTY,
        _ => return None,
    })
}
