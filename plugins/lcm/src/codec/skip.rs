//! Skips values that are kept as bytes. Keeps no state.

#![warn(clippy::indexing_slicing)]

use sluice_kit::columns::{Faults, PayloadCursor, PayloadFault};

use crate::types::syntax::{Dimension, Primitive, StructMember, TypeBody, TypeName};
use crate::types::{Library, TypeId};

/// Why a message does not match its type.
pub(super) const FAULTS: Faults = Faults {
    short: "the payload ends before its message does",
    left_over: "bytes are left over after the message",
    too_many: "a length field says more than the payload holds",
    negative: "a length field is negative",
    full: "the column of its batch is full (2 GiB)",
    other_length: "a list and its length field differ",
    too_long: "a text is longer than 2 GiB",
};

const DEEP: PayloadFault = "it holds itself deeper than 256 levels";

const MAX_DEPTH: usize = 256;

/// Skips a value.
pub(crate) fn skip(
    cursor: &mut PayloadCursor<'_>,
    library: &Library,
    of: TypeId,
) -> Result<(), PayloadFault> {
    skip_value(cursor, library, of, 0)
}

fn skip_value(
    cursor: &mut PayloadCursor<'_>,
    library: &Library,
    of: TypeId,
    depth: usize,
) -> Result<(), PayloadFault> {
    if library.takes_no_bytes(of) {
        return Ok(());
    }
    if depth == MAX_DEPTH {
        return Err(DEEP);
    }
    let declared = library.get(of);
    let TypeBody::Struct { members, .. } = &declared.declaration.body else {
        return cursor.take(4).map(drop);
    };
    let mut counts = vec![0; members.len()];
    for (place, member) in members.iter().enumerate() {
        let mut elements = 1_usize;
        for dimension in &member.dimensions {
            let size = match dimension {
                Dimension::Fixed { size, .. } => i64::from(*size),
                Dimension::Counted(place) => counts.get(*place).copied().unwrap_or_default(),
            };
            let size = usize::try_from(size).map_err(|_| FAULTS.negative)?;
            elements = elements.checked_mul(size).ok_or(FAULTS.too_many)?;
        }
        let used = declared.uses.get(place).copied().flatten();
        let number = skip_elements(cursor, library, member, used, elements, depth)?;
        if let Some(count) = counts.get_mut(place) {
            *count = number;
        }
    }
    Ok(())
}

/// Skips the elements of a member. Returns its value if it is a single integer.
fn skip_elements(
    cursor: &mut PayloadCursor<'_>,
    library: &Library,
    member: &StructMember,
    used: Option<TypeId>,
    elements: usize,
    depth: usize,
) -> Result<i64, PayloadFault> {
    match (&member.of, used) {
        (TypeName::Primitive(Primitive::String), _) => {
            cursor.check(elements, 1)?;
            for _ in 0..elements {
                cursor.text()?;
            }
        }
        (TypeName::Primitive(of), _) => {
            let width = width(*of);
            cursor.check(elements, width)?;
            let bytes = cursor.take(elements * width)?;
            if member.dimensions.is_empty() {
                return Ok(integer(bytes));
            }
        }
        (TypeName::Declared(_), Some(used)) if !library.takes_no_bytes(used) => {
            if !member.dimensions.is_empty() {
                cursor.check(elements, 1)?;
            }
            for _ in 0..elements {
                skip_value(cursor, library, used, depth + 1)?;
            }
        }
        (TypeName::Declared(_), _) => {}
    }
    Ok(0)
}

/// Bytes of one value; 0 for strings.
fn width(of: Primitive) -> usize {
    match of {
        Primitive::Int8 | Primitive::Byte | Primitive::Boolean => 1,
        Primitive::Int16 => 2,
        Primitive::Int32 | Primitive::Float => 4,
        Primitive::Int64 | Primitive::Double => 8,
        Primitive::String => 0,
    }
}

/// Reads a signed integer of 1, 2, 4 or 8 bytes; 0 for other lengths.
fn integer(bytes: &[u8]) -> i64 {
    match *bytes {
        [a] => i64::from(i8::from_be_bytes([a])),
        [a, b] => i64::from(i16::from_be_bytes([a, b])),
        [a, b, c, d] => i64::from(i32::from_be_bytes([a, b, c, d])),
        [a, b, c, d, e, f, g, h] => i64::from_be_bytes([a, b, c, d, e, f, g, h]),
        _ => 0,
    }
}
