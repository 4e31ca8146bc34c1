//! The encoding of records, shared by both directions: limits, faults, and parts without
//! references.

use crate::plan::FlatPart;
use crate::wire::{IceReader, RecordFault, TOO_SHORT, put_length_since, put_size};

/// The name of the last slice of every instance.
pub(super) const ROOT: &[u8] = b"::Ice::Object";
/// A reference to the first instance.
pub(super) const FIRST_INSTANCE: i32 = -1;
/// The kind of a slice whose class is numbered instead of spelled out.
pub(super) const NUMBERED: u8 = 1;
/// The size of a slice's length field, which counts itself.
pub(super) const LENGTH: usize = 4;
/// The maximum length of a size.
pub(super) const LONGEST_SIZE: usize = 5;

pub(super) const TRAILING_BYTES: RecordFault = "it has trailing bytes";
pub(super) const NO_EMPTY_LIST: RecordFault = "it does not end with an empty list of instances";
pub(super) const UNKNOWN_ENUM_VALUE: RecordFault = "an enum has an undeclared value";
pub(super) const NO_FIRST_REFERENCE: RecordFault =
    "it does not start with a reference to its first instance";
pub(super) const DANGLING_REFERENCE: RecordFault = "a reference leads to a missing instance";
pub(super) const REFERENCE_COUNT: RecordFault = "expected as many ids as references, or none";
pub(super) const DIFFERENT_COPIES: RecordFault =
    "an instance with several references differs between them";
pub(super) const UNREFERENCED_INSTANCE: RecordFault = "no reference leads to an instance";
pub(super) const BAD_INSTANCE_IDS: RecordFault = "the ids of instances are not 1, 2, 3 …";
pub(super) const EMPTY_CLASS_NAME: RecordFault = "a class has no name";
pub(super) const UNKNOWN_CLASS_NUMBER: RecordFault =
    "a class number is used before its class is named";
pub(super) const BAD_SLICE_KIND: RecordFault = "the class of a slice is neither named nor numbered";
pub(super) const BAD_SLICE_LENGTH: RecordFault = "the length of a slice is less than its own size";
pub(super) const UNDECLARED_CLASS: RecordFault =
    "an instance has a class that is not declared for its place";
pub(super) const WRONG_BASES: RecordFault = "an instance has other base classes than declared";
pub(super) const TRAILING_SLICE_BYTES: RecordFault = "a slice has trailing bytes";
pub(super) const NOT_CANONICAL: RecordFault = "it is not encoded as Ice does it";
pub(super) const TOO_LARGE: RecordFault = "it would grow too much: it repeats shared instances, or long names \
    of undeclared classes";

/// The maximum length of a linear form is `MAX_GROWTH` times that of its record plus
/// `GROWTH_ALLOWANCE`: instances are repeated for each reference, and so are names of undeclared
/// classes.
pub(super) const MAX_GROWTH: usize = 16;
pub(super) const GROWTH_ALLOWANCE: usize = 4 << 10;

/// Checks and skips parts without references.
pub(super) fn skip_flat(plain: &[FlatPart], reader: &mut IceReader<'_>) -> Result<(), RecordFault> {
    for one in plain {
        match one {
            FlatPart::Bytes(count) => {
                reader.take(*count)?;
            }
            FlatPart::Bool => {
                reader.boolean()?;
            }
            FlatPart::Enum { width, values } => {
                let mut value = [0; 4];
                value.iter_mut().zip(reader.take(*width)?).for_each(|(to, from)| *to = *from);
                if values.binary_search(&i32::from_le_bytes(value)).is_err() {
                    return Err(UNKNOWN_ENUM_VALUE);
                }
            }
            FlatPart::List(item) => {
                let count = reader.size()?;
                match item.as_slice() {
                    [FlatPart::Bytes(width)] => {
                        reader.take(count.checked_mul(*width).ok_or(TOO_SHORT)?)?;
                    }
                    _ => (0..count).try_for_each(|_| skip_flat(item, reader))?,
                }
            }
        }
    }
    Ok(())
}

pub(super) fn put_ints(ints: &[i32], out: &mut Vec<u8>) -> Result<(), RecordFault> {
    put_size(out, ints.len())?;
    ints.iter().for_each(|int| out.extend(int.to_le_bytes()));
    Ok(())
}

pub(super) fn read_ints(reader: &mut IceReader<'_>) -> Result<Vec<i32>, RecordFault> {
    let count = reader.size()?;
    (0..count).map(|_| reader.int()).collect()
}

pub(super) fn put_body(body: &[u8], out: &mut Vec<u8>) -> Result<(), RecordFault> {
    let place = out.len();
    out.extend([0; LENGTH]);
    out.extend_from_slice(body);
    put_length_since(out, place)
}
