//! A record as its linear form, and back. Makes no columns.
//!
//! Linear forms are what [`plan`](crate::plan) says: a record whose instances stand where they are
//! referred to. Going there and back gives the same bytes, or there is no linear form.

use crate::plan::{Plain, Top};
use crate::wire::{Booleans, Reader, Reason, SHORT, put_length_since, put_size};

mod fold;
mod instances;
mod unfold;

#[cfg(test)]
mod tests;

use fold::fold;
use instances::Instances;
use unfold::unfold;

/// The name of the last slice of every instance.
const ROOT: &[u8] = b"::Ice::Object";
/// A reference to the first instance.
const FIRST: i32 = -1;
/// The kind of a slice whose class is named by a text, not by a number.
const SPELLED: u8 = 0;
const NUMBERED: u8 = 1;
/// What comes after the kind and class of a slice counts itself.
const LENGTH: usize = 4;
/// What a size takes at most.
const LONGEST_SIZE: usize = 5;

const LEFT: Reason = "bytes are left over";
const NO_END: Reason = "it does not end with an empty list of instances";
const NO_VALUE: Reason = "a value that its enum does not have";
const NO_FIRST: Reason = "it does not begin with a reference to its first instance";
const NO_INSTANCE: Reason = "a reference to an instance that is not there";
const NO_REFERENCES: Reason = "as many ids as there are references are needed, or none";
const COPIES: Reason = "an instance that is referred to several times is not the same each time";
const UNUSED: Reason = "an instance that nothing refers to";
const IDS: Reason = "the ids of instances are not 1, 2, 3 …";
const NO_NAME: Reason = "a class without a name";
const NO_NUMBER: Reason = "the number of a class that was not named before";
const NO_KIND: Reason = "the class of a slice is neither named nor numbered";
const NO_LENGTH: Reason = "the length of a slice is less than it takes itself";
const NO_CLASS: Reason = "an instance of a class that is not declared for its place";
const NO_LINE: Reason = "an instance of a class that extends others than was declared";
const SLICE_LEFT: Reason = "bytes are left over in a slice";
const OTHERWISE: Reason = "it is not written as Ice writes it";
const TOO_MUCH: Reason = "it would grow too much: instances are shared, or long names of undeclared classes numbered, over and over";

/// How long a linear form may be, in lengths of its record and beside them: instances stand there
/// as often as they are referred to, and so do names of classes that are not declared.
const MOST_TIMES: usize = 16;
const MOST_BESIDE: usize = 4 << 10;

/// The linear form of a record, in `scratch` unless it lies in the record itself.
pub(crate) fn linear_of<'r>(
    top: &Top,
    record: &'r [u8],
    scratch: &'r mut Vec<u8>,
) -> Result<&'r [u8], Reason> {
    linear_with(top, record, Booleans::Any, scratch)
}

fn linear_with<'r>(
    top: &Top,
    record: &'r [u8],
    booleans: Booleans,
    scratch: &'r mut Vec<u8>,
) -> Result<&'r [u8], Reason> {
    match top {
        Top::Plain(plain) => {
            let mut reader = Reader::new(record).with_booleans(booleans);
            walk(plain, &mut reader)?;
            match reader.rest() {
                [0] => Ok(reader.since(0)),
                [] => Err(SHORT),
                [_] => Err(NO_END),
                _ => Err(LEFT),
            }
        }
        _ => {
            scratch.clear();
            let is_certain = unfold(top, record, booleans, scratch)?;
            if !is_certain {
                let mut again = Vec::with_capacity(record.len());
                fold(top, scratch, &mut again)?;
                if again != record {
                    return Err(OTHERWISE);
                }
            }
            Ok(scratch)
        }
    }
}

/// Whether a record is of this type, if these bytes are booleans.
pub(crate) fn is_of(top: &Top, record: &[u8], booleans: Booleans) -> bool {
    linear_with(top, record, booleans, &mut Vec::new()).is_ok()
}

/// Appends the record with this linear form. `Err` leaves `out` in any state behind its end.
pub(crate) fn record_of(top: &Top, linear: &[u8], out: &mut Vec<u8>) -> Result<(), Reason> {
    let start = out.len();
    match top {
        Top::Plain(_) => {
            out.extend_from_slice(linear);
            out.push(0);
        }
        _ => fold(top, linear, out)?,
    }
    let mut scratch = Vec::new();
    let made = out.get(start..).unwrap_or_default();
    if linear_of(top, made, &mut scratch)? == linear { Ok(()) } else { Err(OTHERWISE) }
}

/// The names of the classes of a record's first instance, its own first, each as often as it is
/// spelled out, so that they are no longer together than the record; nothing if the record does not
/// begin with one.
pub(crate) fn classes(record: &[u8]) -> Option<Vec<&[u8]>> {
    let mut reader = Reader::new(record);
    let is_one = reader.int().ok()? == FIRST && reader.byte().ok()? == 1;
    let mut instances = Instances::default();
    instances.read(&mut reader).ok().filter(|()| is_one)?;
    Some(instances.names)
}

/// Goes over what holds no references.
fn walk(plain: &[Plain], reader: &mut Reader<'_>) -> Result<(), Reason> {
    for one in plain {
        match one {
            Plain::Bytes(count) => {
                reader.take(*count)?;
            }
            Plain::Bool => {
                reader.boolean()?;
            }
            Plain::Enum { width, values } => {
                let mut value = [0; 4];
                value.iter_mut().zip(reader.take(*width)?).for_each(|(to, from)| *to = *from);
                if values.binary_search(&i32::from_le_bytes(value)).is_err() {
                    return Err(NO_VALUE);
                }
            }
            Plain::List(item) => {
                let count = reader.size()?;
                match item.as_slice() {
                    [Plain::Bytes(width)] => {
                        reader.take(count.checked_mul(*width).ok_or(SHORT)?)?;
                    }
                    _ => (0..count).try_for_each(|_| walk(item, reader))?,
                }
            }
        }
    }
    Ok(())
}

fn put_ints(ints: &[i32], out: &mut Vec<u8>) -> Result<(), Reason> {
    put_size(out, ints.len())?;
    ints.iter().for_each(|int| out.extend(int.to_le_bytes()));
    Ok(())
}

fn ints(reader: &mut Reader<'_>) -> Result<Vec<i32>, Reason> {
    let count = reader.size()?;
    (0..count).map(|_| reader.int()).collect()
}

fn put_body(body: &[u8], out: &mut Vec<u8>) -> Result<(), Reason> {
    let place = out.len();
    out.extend([0; LENGTH]);
    out.extend_from_slice(body);
    put_length_since(out, place)
}
