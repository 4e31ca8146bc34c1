//! Converts a record to its linear form and back. Makes no columns.
//!
//! In the linear form, described in [`plan`](crate::plan), instances replace the references to
//! them. Converting there and back restores the same bytes, or there is no linear form.

use crate::plan::{FlatPart, PlanRoot};
use crate::wire::{Booleans, IceReader, RecordFault, TOO_SHORT};

mod flat;
mod fold;
mod instances;
mod unfold;

#[cfg(test)]
mod tests;

use flat::{FIRST_INSTANCE, NO_EMPTY_LIST, NOT_CANONICAL, TRAILING_BYTES, skip_flat};
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

/// The linear forms of many records.
pub(crate) struct LinearForms<'r> {
    /// Those that are not part of their records, one behind the other.
    unfolded: Vec<u8>,
    /// For each record its linear form in itself, or where it ends in `unfolded`, or why it has
    /// none.
    forms: Vec<Result<LinearForm<'r>, RecordFault>>,
    /// Their bytes in all.
    len: usize,
}

enum LinearForm<'r> {
    InRecord(&'r [u8]),
    UnfoldedTo(usize),
}

impl<'r> LinearForms<'r> {
    /// The linear forms of these records.
    pub(crate) fn new(
        top: &PlanRoot,
        records: impl ExactSizeIterator<Item = &'r [u8]> + Clone,
    ) -> Self {
        let (mut unfolded, mut unfolder) = (Vec::new(), Unfolder::default());
        let (mut forms, mut in_records) = (Vec::with_capacity(records.len()), 0);
        if !matches!(top, PlanRoot::Flat(_)) {
            unfolded.reserve(records.clone().map(<[u8]>::len).sum());
        }
        for record in records {
            forms.push(match top {
                PlanRoot::Flat(plain) => flat_form(plain, record, Booleans::Any).map(|form| {
                    in_records += form.len();
                    LinearForm::InRecord(form)
                }),
                _ => {
                    let start = unfolded.len();
                    append_linear(top, record, Booleans::Any, &mut unfolder, &mut unfolded)
                        .inspect_err(|_| unfolded.truncate(start))
                        .map(|()| LinearForm::UnfoldedTo(unfolded.len()))
                }
            });
        }
        let len = in_records + unfolded.len();
        Self { unfolded, forms, len }
    }

    /// Their bytes in all.
    pub(crate) fn total_len(&self) -> usize {
        self.len
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
