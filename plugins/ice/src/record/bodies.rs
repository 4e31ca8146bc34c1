//! Finds the linear form of the usual record of a class without copying it: the bodies of its
//! slices are its parts.

use super::flat::{LENGTH, ROOT, skip_flat};
use super::instances::slice_body;
use crate::plan::{ClassPlan, PlanPart};
use crate::wire::IceReader;

/// What a record with a single instance starts with: a reference to it, a list of one, and its id.
const START: &[u8] = b"\xff\xff\xff\xff\x01\x01\0\0\0";
/// What it ends with: the slice [`ROOT`], and an empty list.
const END: &[u8] = b"\0\x0d::Ice::Object\x05\0\0\0\0\0";
/// The end of its linear form: no undeclared slices, no order, and no references.
const TRAILER: &[u8] = b"\0\0\0";

/// The first part of the linear form of a record whose only instance is of this very class and
/// refers to no other. Pushes the other parts, the last one first. `None` for other records, valid
/// or not.
pub(super) fn push_parts<'r>(
    class: &ClassPlan,
    record: &'r [u8],
    later: &mut Vec<&'r [u8]>,
) -> Option<&'r [u8]> {
    later.push(TRAILER);
    if push_bodies(class, record, later).is_none() {
        later.clear();
        return None;
    }
    later.pop()
}

/// The bytes around the bodies of such a record.
pub(super) fn len_around(class: &ClassPlan) -> usize {
    let heads = class.0.iter().map(|slice| slice.head.len() + LENGTH).sum::<usize>();
    heads + START.len() + END.len() - TRAILER.len()
}

/// Pushes the bodies of the slices in record order: those of the bases, whose members come first in
/// the linear form, are on top.
fn push_bodies<'r>(class: &ClassPlan, record: &'r [u8], bodies: &mut Vec<&'r [u8]>) -> Option<()> {
    let mut rest = record.strip_prefix(START)?;
    for slice in &class.0 {
        // A declared class of that name would seem to be the end of the instance.
        if slice.name.as_bytes() == ROOT {
            return None;
        }
        let mut reader = IceReader::new(rest.strip_prefix(slice.head.as_slice())?);
        let body = slice_body(&mut reader).ok()?;
        check_body(&slice.parts, body)?;
        bodies.push(body);
        rest = reader.rest();
    }
    (rest == END).then_some(())
}

/// `None` if this is not exactly what a slice with these members holds, or if one of them refers to
/// an instance.
fn check_body(parts: &[PlanPart], body: &[u8]) -> Option<()> {
    let mut reader = IceReader::new(body);
    for part in parts {
        let PlanPart::Flat(plain) = part else { return None };
        skip_flat(plain, &mut reader).ok()?;
    }
    reader.rest().is_empty().then_some(())
}
