//! Converts a record to its linear form and back. Makes no columns.
//!
//! In the linear form, described in [`plan`](crate::plan), instances replace the references to
//! them. Converting there and back restores the same bytes, or there is no linear form.

use crate::plan::{FlatPart, PlanRoot};
use crate::wire::{Booleans, IceReader, RecordFault, TOO_SHORT, put_length_since, put_size};

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
const FIRST_INSTANCE: i32 = -1;
/// The kind of a slice whose class is spelled out instead of numbered.
const SPELLED: u8 = 0;
const NUMBERED: u8 = 1;
/// The size of a slice's length field, which counts itself.
const LENGTH: usize = 4;
/// The maximum length of a size.
const LONGEST_SIZE: usize = 5;

const TRAILING_BYTES: RecordFault = "it has trailing bytes";
const NO_EMPTY_LIST: RecordFault = "it does not end with an empty list of instances";
const UNKNOWN_ENUM_VALUE: RecordFault = "an enum has an undeclared value";
const NO_FIRST_REFERENCE: RecordFault = "it does not start with a reference to its first instance";
const DANGLING_REFERENCE: RecordFault = "a reference leads to a missing instance";
const REFERENCE_COUNT: RecordFault = "expected as many ids as references, or none";
const DIFFERENT_COPIES: RecordFault = "an instance with several references differs between them";
const UNREFERENCED_INSTANCE: RecordFault = "no reference leads to an instance";
const BAD_INSTANCE_IDS: RecordFault = "the ids of instances are not 1, 2, 3 …";
const EMPTY_CLASS_NAME: RecordFault = "a class has no name";
const UNKNOWN_CLASS_NUMBER: RecordFault = "a class number is used before its class is named";
const BAD_SLICE_KIND: RecordFault = "the class of a slice is neither named nor numbered";
const BAD_SLICE_LENGTH: RecordFault = "the length of a slice is less than its own size";
const UNDECLARED_CLASS: RecordFault = "an instance has a class that is not declared for its place";
const WRONG_BASES: RecordFault = "an instance has other base classes than declared";
const TRAILING_SLICE_BYTES: RecordFault = "a slice has trailing bytes";
const NOT_CANONICAL: RecordFault = "it is not encoded as Ice does it";
const TOO_LARGE: RecordFault = "it would grow too much: it repeats shared instances, or long names \
    of undeclared classes";

/// The maximum length of a linear form is `MAX_GROWTH` times that of its record plus
/// `GROWTH_ALLOWANCE`: instances are repeated for each reference, and so are names of undeclared
/// classes.
const MAX_GROWTH: usize = 16;
const GROWTH_ALLOWANCE: usize = 4 << 10;

/// The linear form of a record, in `scratch` unless the record contains it as it is.
pub(crate) fn to_linear<'r>(
    top: &PlanRoot,
    record: &'r [u8],
    scratch: &'r mut Vec<u8>,
) -> Result<&'r [u8], RecordFault> {
    to_linear_with(top, record, Booleans::Any, scratch)
}

fn to_linear_with<'r>(
    top: &PlanRoot,
    record: &'r [u8],
    booleans: Booleans,
    scratch: &'r mut Vec<u8>,
) -> Result<&'r [u8], RecordFault> {
    match top {
        PlanRoot::Flat(plain) => flat_form(plain, record, booleans),
        _ => {
            scratch.clear();
            let is_certain = unfold(top, record, booleans, scratch)?;
            if !is_certain {
                let mut again = Vec::with_capacity(record.len());
                fold(top, scratch, &mut again)?;
                if again != record {
                    return Err(NOT_CANONICAL);
                }
            }
            Ok(scratch)
        }
    }
}

/// The linear forms of many records.
pub(crate) struct LinearForms<'r> {
    /// Those that are not part of their records, one behind the other.
    unfolded: Vec<u8>,
    /// For each record its linear form in itself, or where it ends in `unfolded`, or why it has
    /// none.
    forms: Vec<Result<LinearForm<'r>, RecordFault>>,
}

enum LinearForm<'r> {
    InRecord(&'r [u8]),
    UnfoldedTo(usize),
}

impl<'r> LinearForms<'r> {
    /// The linear forms of these records.
    pub(crate) fn new(top: &PlanRoot, records: impl Iterator<Item = &'r [u8]>) -> Self {
        let (mut unfolded, mut scratch) = (Vec::new(), Vec::new());
        let forms = records.map(|record| match top {
            PlanRoot::Flat(plain) => {
                flat_form(plain, record, Booleans::Any).map(LinearForm::InRecord)
            }
            _ => {
                unfolded.extend_from_slice(to_linear(top, record, &mut scratch)?);
                Ok(LinearForm::UnfoldedTo(unfolded.len()))
            }
        });
        let forms = forms.collect();
        Self { unfolded, forms }
    }

    /// Each of them, in the order of the records.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Result<&[u8], RecordFault>> {
        let mut start = 0;
        self.forms.iter().map(move |form| match form {
            Ok(LinearForm::InRecord(form)) => Ok(*form),
            Ok(LinearForm::UnfoldedTo(end)) => {
                let form = self.unfolded.get(start..*end).unwrap_or_default();
                start = *end;
                Ok(form)
            }
            Err(reason) => Err(*reason),
        })
    }
}

/// The linear form of a record without references: all but its end.
fn flat_form<'r>(
    plain: &[FlatPart],
    record: &'r [u8],
    booleans: Booleans,
) -> Result<&'r [u8], RecordFault> {
    let mut reader = IceReader::new(record).with_booleans(booleans);
    skip_flat(plain, &mut reader)?;
    match reader.rest() {
        [0] => Ok(reader.since(0)),
        [] => Err(TOO_SHORT),
        [_] => Err(NO_EMPTY_LIST),
        _ => Err(TRAILING_BYTES),
    }
}

/// Whether a record matches this plan with these booleans.
pub(crate) fn matches_plan(top: &PlanRoot, record: &[u8], booleans: Booleans) -> bool {
    to_linear_with(top, record, booleans, &mut Vec::new()).is_ok()
}

/// Appends the record with this linear form. After `Err`, the bytes appended are undefined.
pub(crate) fn from_linear(
    top: &PlanRoot,
    linear: &[u8],
    out: &mut Vec<u8>,
) -> Result<(), RecordFault> {
    let start = out.len();
    match top {
        PlanRoot::Flat(_) => {
            out.extend_from_slice(linear);
            out.push(0);
        }
        _ => fold(top, linear, out)?,
    }
    let mut scratch = Vec::new();
    let made = out.get(start..).unwrap_or_default();
    if to_linear(top, made, &mut scratch)? == linear { Ok(()) } else { Err(NOT_CANONICAL) }
}

/// The class names in a record's first instance, its own first, as often as they are spelled out,
/// so that together they are no longer than the record. `None` if the record does not start with an
/// instance.
pub(crate) fn first_instance_classes(record: &[u8]) -> Option<Vec<&[u8]>> {
    let mut reader = IceReader::new(record);
    let is_one = reader.int().ok()? == FIRST_INSTANCE && reader.byte().ok()? == 1;
    let mut instances = Instances::default();
    instances.read(&mut reader).ok().filter(|()| is_one)?;
    Some(instances.names)
}

/// Checks and skips parts without references.
fn skip_flat(plain: &[FlatPart], reader: &mut IceReader<'_>) -> Result<(), RecordFault> {
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

fn put_ints(ints: &[i32], out: &mut Vec<u8>) -> Result<(), RecordFault> {
    put_size(out, ints.len())?;
    ints.iter().for_each(|int| out.extend(int.to_le_bytes()));
    Ok(())
}

fn read_ints(reader: &mut IceReader<'_>) -> Result<Vec<i32>, RecordFault> {
    let count = reader.size()?;
    (0..count).map(|_| reader.int()).collect()
}

fn put_body(body: &[u8], out: &mut Vec<u8>) -> Result<(), RecordFault> {
    let place = out.len();
    out.extend([0; LENGTH]);
    out.extend_from_slice(body);
    put_length_since(out, place)
}
