//! Converts a linear form to a record with references.

use std::collections::HashMap;

use super::flat::{
    BAD_INSTANCE_IDS, DIFFERENT_COPIES, EMPTY_CLASS_NAME, LENGTH, NUMBERED, REFERENCE_COUNT, ROOT,
    TRAILING_BYTES, UNDECLARED_CLASS,
};
use super::flat::{put_body, read_ints, skip_flat};
use super::instances::slice_body;
use crate::plan::{ClassPlan, ClassReference, PlanPart, PlanRoot};
use crate::wire::{IceReader, RecordFault, SPELLED, put_length_since, put_size, put_sized};

/// Appends the record with references for this linear form.
pub(super) fn fold(top: &PlanRoot, linear: &[u8], out: &mut Vec<u8>) -> Result<(), RecordFault> {
    let (shared, mut order) = read_trailer(top, linear)?;
    let mut reader = IceReader::new(linear);
    let mut folding = FoldState { shared, ..FoldState::default() };
    match top {
        PlanRoot::Flat(plain) => skip_flat(plain, &mut reader)?,
        PlanRoot::Struct(parts) => folding.parts(parts, &mut reader, out)?,
        PlanRoot::Class(first) => {
            let class = first.0.first().ok_or(UNDECLARED_CLASS)?;
            out.extend(folding.refer(class, &mut reader)?.to_le_bytes());
        }
    }
    while !folding.pending.is_empty() {
        let waiting = order.arrange(std::mem::take(&mut folding.pending))?;
        put_size(out, waiting.len())?;
        for instance in waiting {
            folding.instance(&instance, out)?;
        }
    }
    out.push(0);
    order.end()
}

/// Reads the last members of a linear form: the shared instances and the order.
fn read_trailer(top: &PlanRoot, linear: &[u8]) -> Result<(SharedIds, InstanceOrder), RecordFault> {
    let (mut reader, mut starts) = (IceReader::new(linear), Vec::new());
    let mut note = |at| starts.push(at);
    match top {
        PlanRoot::Flat(plain) => skip_flat(plain, &mut reader)?,
        PlanRoot::Struct(parts) => skip_linear(parts, &mut reader, &mut note)?,
        PlanRoot::Class(first) => {
            first.0.first().ok_or(UNDECLARED_CLASS)?.skip(&mut reader, &mut note)?
        }
    }
    let order = InstanceOrder::read(&mut reader)?;
    let ids = read_ints(&mut reader)?;
    if !reader.rest().is_empty() {
        return Err(TRAILING_BYTES);
    }
    if !ids.is_empty() && ids.len() != starts.len() {
        return Err(REFERENCE_COUNT);
    }
    Ok((SharedIds(starts.into_iter().zip(ids).collect()), order))
}

/// The ids of instances by their offset in a linear form; empty if none is shared.
#[derive(Default)]
struct SharedIds(Vec<(usize, i32)>);

impl SharedIds {
    fn id_at(&self, at: usize) -> Option<i32> {
        let place = self.0.binary_search_by_key(&at, |(start, _)| *start).ok()?;
        self.0.get(place).map(|(_, id)| *id)
    }
}

/// The order of instances from the end of a linear form; not given if ids rise.
struct InstanceOrder {
    ids: std::vec::IntoIter<i32>,
    is_given: bool,
}

impl InstanceOrder {
    fn read(reader: &mut IceReader<'_>) -> Result<Self, RecordFault> {
        let ids = read_ints(reader)?;
        Ok(Self { is_given: !ids.is_empty(), ids: ids.into_iter() })
    }

    /// Puts the instances of a batch, whose ids are consecutive, into order.
    fn arrange<'a>(
        &mut self,
        batch: Vec<PendingInstance<'a>>,
    ) -> Result<Vec<PendingInstance<'a>>, RecordFault> {
        if !self.is_given {
            return Ok(batch);
        }
        let first = batch.first().map_or(0, |instance| instance.id);
        let mut places: Vec<_> = batch.into_iter().map(Some).collect();
        let place_of = |id: i32| usize::try_from(id.checked_sub(first)?).ok();
        let count = places.len();
        let mut arranged = Vec::with_capacity(count);
        for _ in 0..count {
            let place = self.ids.next().and_then(place_of).and_then(|at| places.get_mut(at));
            arranged.push(place.and_then(Option::take).ok_or(BAD_INSTANCE_IDS)?);
        }
        Ok(arranged)
    }

    fn end(mut self) -> Result<(), RecordFault> {
        if self.ids.next().is_none() { Ok(()) } else { Err(BAD_INSTANCE_IDS) }
    }
}

/// An instance with a reference to it that has not been written yet.
#[derive(Debug)]
struct PendingInstance<'a> {
    id: i32,
    class: &'a ClassPlan,
    /// The start of its linear form.
    linear: IceReader<'a>,
}

/// A record being written as Ice does it: instances get ids in the order of references to them, and
/// are written in batches, each with the instances that the previous one refers to.
#[derive(Default)]
struct FoldState<'a> {
    pending: Vec<PendingInstance<'a>>,
    shared: SharedIds,
    /// The linear forms of the instances with ids, from id 1 on.
    referred: Vec<&'a [u8]>,
    /// The numbers of classes already named.
    numbers: HashMap<&'a [u8], usize>,
}

impl<'a> FoldState<'a> {
    fn parts(
        &mut self,
        parts: &'a [PlanPart],
        reader: &mut IceReader<'a>,
        out: &mut Vec<u8>,
    ) -> Result<(), RecordFault> {
        for part in parts {
            match part {
                PlanPart::Flat(plain) => {
                    let start = reader.at();
                    skip_flat(plain, reader)?;
                    out.extend_from_slice(reader.since(start));
                }
                PlanPart::List(item) => {
                    let count = reader.size()?;
                    put_size(out, count)?;
                    (0..count).try_for_each(|_| self.parts(item, reader, out))?;
                }
                PlanPart::Reference(reference) => {
                    let id = match reference.class_numbered(reader.byte()?)? {
                        None => 0,
                        Some(class) => self.refer(class, reader)?,
                    };
                    out.extend(id.to_le_bytes());
                }
            }
        }
        Ok(())
    }

    /// Queues the next instance, skips it, and returns the reference to it.
    fn refer(
        &mut self,
        class: &'a ClassPlan,
        reader: &mut IceReader<'a>,
    ) -> Result<i32, RecordFault> {
        let linear = reader.clone();
        class.skip(reader, &mut |_| ())?;
        let bytes = reader.since(linear.at());
        let next = i32::try_from(self.referred.len() + 1).map_err(|_| BAD_INSTANCE_IDS)?;
        let id = self.shared.id_at(linear.at()).unwrap_or(next);
        if id == next {
            self.referred.push(bytes);
            self.pending.push(PendingInstance { id, class, linear });
            return Ok(-id);
        }
        let place =
            usize::try_from(id).ok().and_then(|id| id.checked_sub(1)).ok_or(BAD_INSTANCE_IDS)?;
        let first = self.referred.get(place).ok_or(BAD_INSTANCE_IDS)?;
        if *first == bytes { Ok(-id) } else { Err(DIFFERENT_COPIES) }
    }

    fn instance(
        &mut self,
        instance: &PendingInstance<'a>,
        out: &mut Vec<u8>,
    ) -> Result<(), RecordFault> {
        out.extend(instance.id.to_le_bytes());
        let (mut reader, mut starts) = (instance.linear.clone(), Vec::new());
        for slice in instance.class.0.iter().rev() {
            starts.push(reader.clone());
            skip_linear(&slice.parts, &mut reader, &mut |_| ())?;
        }
        self.undeclared_slices(IceReader::new(reader.sized()?), out)?;
        for (slice, mut reader) in instance.class.0.iter().zip(starts.into_iter().rev()) {
            self.name(slice.name.as_bytes(), out)?;
            let place = out.len();
            out.extend([0; LENGTH]);
            self.parts(&slice.parts, &mut reader, out)?;
            put_length_since(out, place)?;
        }
        self.name(ROOT, out)?;
        put_body(&[0], out)
    }

    /// Writes the slices of undeclared classes.
    fn undeclared_slices(
        &mut self,
        mut reader: IceReader<'a>,
        out: &mut Vec<u8>,
    ) -> Result<(), RecordFault> {
        while !reader.rest().is_empty() {
            if reader.byte()? != SPELLED {
                return Err(EMPTY_CLASS_NAME);
            }
            self.name(reader.sized()?, out)?;
            put_body(slice_body(&mut reader)?, out)?;
        }
        Ok(())
    }

    /// Writes the name of a class the first time, and its number afterwards.
    fn name(&mut self, name: &'a [u8], out: &mut Vec<u8>) -> Result<(), RecordFault> {
        if let Some(number) = self.numbers.get(name) {
            out.push(NUMBERED);
            return put_size(out, *number);
        }
        self.numbers.insert(name, self.numbers.len() + 1);
        out.push(SPELLED);
        put_sized(out, name)
    }
}

impl ClassReference {
    /// The class of that number, `None` for 0.
    fn class_numbered(&self, number: u8) -> Result<Option<&ClassPlan>, RecordFault> {
        match usize::from(number).checked_sub(1) {
            None => Ok(None),
            Some(at) => self.0.get(at).map(Some).ok_or(UNDECLARED_CLASS),
        }
    }
}

impl ClassPlan {
    /// Skips an instance in a linear form, and notes where it and the instances in it start.
    fn skip(
        &self,
        reader: &mut IceReader<'_>,
        note: &mut dyn FnMut(usize),
    ) -> Result<(), RecordFault> {
        note(reader.at());
        self.0.iter().rev().try_for_each(|slice| skip_linear(&slice.parts, reader, note))?;
        reader.sized().map(|_| ())
    }
}

/// Skips members in a linear form, and notes where instances start.
fn skip_linear(
    parts: &[PlanPart],
    reader: &mut IceReader<'_>,
    note: &mut dyn FnMut(usize),
) -> Result<(), RecordFault> {
    for part in parts {
        match part {
            PlanPart::Flat(plain) => skip_flat(plain, reader)?,
            PlanPart::List(item) => {
                let count = reader.size()?;
                (0..count).try_for_each(|_| skip_linear(item, reader, note))?;
            }
            PlanPart::Reference(reference) => {
                if let Some(class) = reference.class_numbered(reader.byte()?)? {
                    class.skip(reader, note)?;
                }
            }
        }
    }
    Ok(())
}
