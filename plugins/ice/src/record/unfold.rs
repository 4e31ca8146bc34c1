//! Converts a record with references to its linear form.

use super::flat::{
    DANGLING_REFERENCE, FIRST_INSTANCE, GROWTH_ALLOWANCE, MAX_GROWTH, NO_FIRST_REFERENCE,
    TRAILING_SLICE_BYTES, UNDECLARED_CLASS, WRONG_BASES,
};
use super::flat::{TOO_LARGE, UNREFERENCED_INSTANCE, put_body, put_ints, skip_flat};
use super::instances::{InstanceSlice, Instances};
use crate::plan::{ClassPlan, ClassReference, PlanPart, PlanRoot};
use crate::wire::{Booleans, IceReader, RecordFault, SPELLED, put_size, put_sized};

/// Unfolds records, one after another. It keeps the memory that each of them takes.
#[derive(Default)]
pub(super) struct Unfolder<'r> {
    instances: Instances<'r>,
    /// For each id, the index of its instance.
    places: Vec<usize>,
    /// For each id, whether there is a reference to it.
    used: Vec<bool>,
    /// The id of each instance in the linear form, in order.
    references: Vec<i32>,
}

impl<'r> Unfolder<'r> {
    /// Appends the linear form of a record with references. Returns whether its encoding is
    /// unambiguous. After `Err`, the bytes appended are undefined.
    pub(super) fn unfold(
        &mut self,
        top: &PlanRoot,
        record: &'r [u8],
        booleans: Booleans,
        out: &mut Vec<u8>,
    ) -> Result<bool, RecordFault> {
        let mut reader = IceReader::new(record).with_booleans(booleans);
        let mut reference = FIRST_INSTANCE;
        match top {
            PlanRoot::Flat(plain) => skip_flat(plain, &mut reader)?,
            PlanRoot::Struct(parts) => skip_parts(parts, &mut reader)?,
            PlanRoot::Class(_) => reference = reader.int()?,
        }
        let Self { instances, places, used, references } = self;
        instances.read_all(&mut reader)?;
        instances.places(places)?;
        if reference != FIRST_INSTANCE {
            return Err(NO_FIRST_REFERENCE);
        }
        used.clear();
        used.resize(places.len(), false);
        references.clear();
        let max_len = record.len().saturating_mul(MAX_GROWTH).saturating_add(GROWTH_ALLOWANCE);
        let mut unfolding = UnfoldState {
            instances,
            places,
            used,
            references: &mut *references,
            max_len: max_len.saturating_add(out.len()),
            out: &mut *out,
            booleans,
            has_sliced: false,
            has_shared: false,
        };
        match top {
            PlanRoot::Flat(_) => {}
            PlanRoot::Struct(parts) => unfolding.parts(parts, &mut IceReader::new(record))?,
            PlanRoot::Class(first) => unfolding.instance(first, FIRST_INSTANCE, false)?,
        }
        let UnfoldState { has_sliced, has_shared, .. } = unfolding;
        if used.contains(&false) {
            return Err(UNREFERENCED_INSTANCE);
        }
        put_order(instances, out)?;
        put_ints(if has_shared { references } else { &[] }, out)?;
        let is_simple = instances.each.len() <= 1 && !instances.has_numbers;
        Ok(is_simple && !has_sliced && !has_shared)
    }
}

/// Writes the ids in record order, or none if they rise.
fn put_order(instances: &Instances<'_>, out: &mut Vec<u8>) -> Result<(), RecordFault> {
    let is_rising = instances.each.is_sorted_by_key(|(id, _)| *id);
    let ids = instances.each.iter().map(|(id, _)| *id).filter(|_| !is_rising);
    put_ints(&ids.collect::<Vec<_>>(), out)
}

/// Skips members in a record.
fn skip_parts(parts: &[PlanPart], reader: &mut IceReader<'_>) -> Result<(), RecordFault> {
    for part in parts {
        match part {
            PlanPart::Flat(plain) => skip_flat(plain, reader)?,
            PlanPart::List(item) => {
                let count = reader.size()?;
                (0..count).try_for_each(|_| skip_parts(item, reader))?;
            }
            PlanPart::Reference(_) => {
                reader.int()?;
            }
        }
    }
    Ok(())
}

/// A linear form being built. Types bound how deep instances nest, which rules out cycles; the
/// length of the linear form bounds how often they are repeated.
struct UnfoldState<'r, 'u> {
    instances: &'u Instances<'r>,
    places: &'u [usize],
    used: &'u mut [bool],
    references: &'u mut Vec<i32>,
    out: &'u mut Vec<u8>,
    /// The maximum length of `out`.
    max_len: usize,
    booleans: Booleans,
    has_sliced: bool,
    /// Whether an instance has several references.
    has_shared: bool,
}

impl UnfoldState<'_, '_> {
    fn parts(&mut self, parts: &[PlanPart], reader: &mut IceReader<'_>) -> Result<(), RecordFault> {
        for part in parts {
            match part {
                PlanPart::Flat(plain) => {
                    let start = reader.at();
                    skip_flat(plain, reader)?;
                    self.out.extend_from_slice(reader.since(start));
                }
                PlanPart::List(item) => {
                    let count = reader.size()?;
                    put_size(self.out, count)?;
                    (0..count).try_for_each(|_| self.parts(item, reader))?;
                }
                PlanPart::Reference(reference) => match reader.int()? {
                    0 => self.out.push(0),
                    id => self.instance(reference, id, true)?,
                },
            }
        }
        Ok(())
    }

    /// Appends the instance that the negative `id` refers to, preceded by its class if that is not
    /// certain.
    fn instance(
        &mut self,
        reference: &ClassReference,
        id: i32,
        has_class: bool,
    ) -> Result<(), RecordFault> {
        if self.out.len() > self.max_len {
            return Err(TOO_LARGE);
        }
        let id = id.checked_neg().ok_or(DANGLING_REFERENCE)?;
        let place = usize::try_from(id).ok();
        let place = place.and_then(|id| id.checked_sub(1)).ok_or(DANGLING_REFERENCE)?;
        let used = self.used.get_mut(place).ok_or(DANGLING_REFERENCE)?;
        self.has_shared |= std::mem::replace(used, true);
        self.references.push(id);
        let instances = self.instances;
        let (_, slices) = self
            .places
            .get(place)
            .and_then(|at| instances.each.get(*at))
            .ok_or(DANGLING_REFERENCE)?;
        let slices = instances.slices.get(slices.clone()).ok_or(DANGLING_REFERENCE)?;
        let (number, class, unknown) = reference.known_class(slices).ok_or(UNDECLARED_CLASS)?;
        let (unknown, known) = slices.split_at_checked(unknown).ok_or(UNDECLARED_CLASS)?;
        if has_class {
            self.out.push(number);
        }
        self.members(class, known)?;
        self.undeclared_slices(unknown)
    }

    fn members(
        &mut self,
        class: &ClassPlan,
        slices: &[InstanceSlice<'_>],
    ) -> Result<(), RecordFault> {
        let Some((root, slices)) = slices.split_last() else { return Err(WRONG_BASES) };
        let is_line = slices.len() == class.0.len() && root.body == [0];
        if !is_line {
            return Err(WRONG_BASES);
        }
        for (declared, slice) in class.0.iter().zip(slices).rev() {
            if declared.name.as_bytes() != slice.name {
                return Err(WRONG_BASES);
            }
            let mut reader = IceReader::new(slice.body).with_booleans(self.booleans);
            self.parts(&declared.parts, &mut reader)?;
            if !reader.rest().is_empty() {
                return Err(TRAILING_SLICE_BYTES);
            }
        }
        Ok(())
    }

    /// Writes the slices of undeclared classes with their names.
    fn undeclared_slices(&mut self, slices: &[InstanceSlice<'_>]) -> Result<(), RecordFault> {
        self.has_sliced |= !slices.is_empty();
        let length =
            slices.iter().fold(0_usize, |sum, slice| sum.saturating_add(slice.max_spelled_len()));
        if self.out.len().saturating_add(length) > self.max_len {
            return Err(TOO_LARGE);
        }
        let mut bytes = Vec::with_capacity(length);
        for slice in slices {
            bytes.push(SPELLED);
            put_sized(&mut bytes, slice.name)?;
            put_body(slice.body, &mut bytes)?;
        }
        put_sized(self.out, &bytes)
    }
}

impl ClassReference {
    /// The class of an instance with these slices, with its number, and the number of undeclared
    /// slices in front of it.
    fn known_class(&self, slices: &[InstanceSlice<'_>]) -> Option<(u8, &ClassPlan, usize)> {
        slices.iter().enumerate().find_map(|(unknown, slice)| {
            let is_it = |class: &&ClassPlan| {
                class.0.first().is_some_and(|own| own.name.as_bytes() == slice.name)
            };
            let mut numbered = (1..=u8::MAX).zip(&self.0);
            let (number, class) = numbered.find(|(_, class)| is_it(class))?;
            Some((number, class, unknown))
        })
    }
}
