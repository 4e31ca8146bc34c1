//! Converts a record to its linear form and back. Makes no columns.
//!
//! In the linear form, described in [`plan`](crate::plan), instances replace the references to
//! them. Converting there and back restores the same bytes, or there is no linear form.

use std::cell::OnceCell;

use crate::plan::{ClassReference, FlatPart, PlanRoot};
use crate::wire::{Booleans, IceReader, RecordFault, TOO_SHORT};

mod bodies;
mod flat;
mod fold;
mod instances;
mod unfold;

#[cfg(test)]
mod tests;

use bodies::push_parts;
use flat::{NO_EMPTY_LIST, NOT_CANONICAL, TOO_LARGE, TRAILING_BYTES, skip_flat};
use fold::fold;
use instances::Instances;
use unfold::Unfolder;

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
            append_linear(top, record, booleans, &mut Unfolder::default(), scratch)?;
            Ok(scratch)
        }
    }
}

/// Appends the linear form of a record with references. After `Err`, the bytes appended are
/// undefined.
fn append_linear<'r>(
    top: &PlanRoot,
    record: &'r [u8],
    booleans: Booleans,
    unfolder: &mut Unfolder<'r>,
    out: &mut Vec<u8>,
) -> Result<(), RecordFault> {
    let start = out.len();
    let is_certain = unfolder.unfold(top, record, booleans, out)?;
    if !is_certain {
        let mut again = Vec::with_capacity(record.len());
        fold(top, out.get(start..).unwrap_or_default(), &mut again)?;
        if again != record {
            return Err(NOT_CANONICAL);
        }
    }
    Ok(())
}

/// The linear forms of a batch of records, one after another. Only those that are not in their
/// records take memory.
pub(crate) struct LinearForms<'r, 'f> {
    unfolder: Unfolder<'r>,
    scratch: Vec<u8>,
    unfolded: &'f UnfoldedForms,
    next: usize,
}

/// Room for the linear forms that are not in their records.
pub(crate) struct UnfoldedForms(Vec<OnceCell<Box<[u8]>>>);

impl UnfoldedForms {
    /// Room for those of so many records.
    pub(crate) fn new(top: &PlanRoot, records: usize) -> Self {
        let is_flat = matches!(top, PlanRoot::Flat(_));
        Self((0..if is_flat { 0 } else { records }).map(|_| OnceCell::new()).collect())
    }
}

impl<'r: 'f, 'f> LinearForms<'r, 'f> {
    /// None yet. Those that are not in their records are kept in `unfolded`.
    pub(crate) fn new(unfolded: &'f UnfoldedForms) -> Self {
        Self { unfolder: Unfolder::default(), scratch: Vec::new(), unfolded, next: 0 }
    }

    /// The linear form of the next record, or its first part. Pushes the others, the last one
    /// first.
    pub(crate) fn next(
        &mut self,
        top: &PlanRoot,
        record: &'r [u8],
        later: &mut Vec<&'f [u8]>,
    ) -> Result<&'f [u8], RecordFault> {
        match top {
            PlanRoot::Flat(plain) => return flat_form(plain, record, Booleans::Any),
            PlanRoot::Class(ClassReference(classes)) => {
                if let [class] = classes.as_slice()
                    && let Some(first) = push_parts(class, record, later)
                {
                    return Ok(first);
                }
            }
            PlanRoot::Struct(_) => {}
        }
        self.scratch.clear();
        append_linear(top, record, Booleans::Any, &mut self.unfolder, &mut self.scratch)?;
        let place = self.unfolded.0.get(self.next).ok_or(TOO_LARGE)?;
        self.next += 1;
        Ok(place.get_or_init(|| self.scratch.as_slice().into()))
    }
}

/// About how long the linear form of a record is.
pub(crate) fn linear_len(top: &PlanRoot, record_len: usize) -> usize {
    match top {
        PlanRoot::Class(ClassReference(classes)) => {
            record_len.saturating_sub(classes.first().map_or(0, bodies::len_around))
        }
        PlanRoot::Flat(_) | PlanRoot::Struct(_) => record_len,
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
    let is_one = reader.int().ok()? < 0 && reader.byte().ok()? == 1;
    let mut instances = Instances::default();
    instances.read(&mut reader).ok().filter(|()| is_one)?;
    Some(instances.names)
}
