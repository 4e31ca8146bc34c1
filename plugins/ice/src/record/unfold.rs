//! From a record with references to its linear form.

use super::instances::{Instances, Sliced};
use super::{FIRST, MOST_BESIDE, MOST_TIMES, NO_CLASS, NO_FIRST, NO_INSTANCE, NO_LINE, SLICE_LEFT};
use super::{SPELLED, TOO_MUCH, UNUSED, put_body, put_ints, walk};
use crate::plan::{Class, Part, Reference, Top};
use crate::wire::{Booleans, Reader, Reason, put_size, put_sized};

/// Appends the linear form of a record with references. Gives whether its bytes cannot be any
/// other.
pub(super) fn unfold(
    top: &Top,
    record: &[u8],
    booleans: Booleans,
    out: &mut Vec<u8>,
) -> Result<bool, Reason> {
    let mut reader = Reader::new(record).with_booleans(booleans);
    match top {
        Top::Plain(plain) => walk(plain, &mut reader)?,
        Top::Struct(parts) => pass(parts, &mut reader)?,
        Top::Class(_) => {
            if reader.int()? != FIRST {
                return Err(NO_FIRST);
            }
        }
    }
    let instances = Instances::read_all(&mut reader)?;
    let places = instances.places()?;
    let mut unfolding = Unfolding {
        instances: &instances,
        used: vec![false; places.len()],
        places,
        references: Vec::new(),
        out,
        most: record.len().saturating_mul(MOST_TIMES).saturating_add(MOST_BESIDE),
        booleans,
        has_sliced: false,
        has_shared: false,
    };
    match top {
        Top::Plain(_) => {}
        Top::Struct(parts) => unfolding.parts(parts, &mut Reader::new(record))?,
        Top::Class(first) => unfolding.instance(first, FIRST, false)?,
    }
    if unfolding.used.contains(&false) {
        return Err(UNUSED);
    }
    let Unfolding { has_sliced, has_shared, references, .. } = unfolding;
    put_order(&instances, out)?;
    put_ints(if has_shared { &references } else { &[] }, out)?;
    let is_simple = instances.each.len() <= 1 && !instances.has_numbers;
    Ok(is_simple && !has_sliced && !has_shared)
}

/// The ids as they lie in the record; nothing where they rise.
fn put_order(instances: &Instances<'_>, out: &mut Vec<u8>) -> Result<(), Reason> {
    let is_rising = instances.each.is_sorted_by_key(|(id, _)| *id);
    let ids = instances.each.iter().map(|(id, _)| *id).filter(|_| !is_rising);
    put_ints(&ids.collect::<Vec<_>>(), out)
}

/// Goes over members as they lie in a record.
fn pass(parts: &[Part], reader: &mut Reader<'_>) -> Result<(), Reason> {
    for part in parts {
        match part {
            Part::Plain(plain) => walk(plain, reader)?,
            Part::List(item) => {
                let count = reader.size()?;
                (0..count).try_for_each(|_| pass(item, reader))?;
            }
            Part::Reference(_) => {
                reader.int()?;
            }
        }
    }
    Ok(())
}

/// A linear form in the making. How deep instances hold each other is bounded by their types, so
/// that there are no cycles; how often they stand there, by how long the linear form may be.
struct Unfolding<'r, 'u> {
    instances: &'u Instances<'r>,
    places: Vec<usize>,
    /// For each id, whether something refers to it.
    used: Vec<bool>,
    /// The id of each instance in the linear form, in order.
    references: Vec<i32>,
    out: &'u mut Vec<u8>,
    /// How long the linear form may be.
    most: usize,
    booleans: Booleans,
    has_sliced: bool,
    /// Whether an instance is referred to more than once.
    has_shared: bool,
}

impl Unfolding<'_, '_> {
    fn parts(&mut self, parts: &[Part], reader: &mut Reader<'_>) -> Result<(), Reason> {
        for part in parts {
            match part {
                Part::Plain(plain) => {
                    let start = reader.at();
                    walk(plain, reader)?;
                    self.out.extend_from_slice(reader.since(start));
                }
                Part::List(item) => {
                    let count = reader.size()?;
                    put_size(self.out, count)?;
                    (0..count).try_for_each(|_| self.parts(item, reader))?;
                }
                Part::Reference(reference) => match reader.int()? {
                    0 => self.out.push(0),
                    id => self.instance(reference, id, true)?,
                },
            }
        }
        Ok(())
    }

    /// Appends the instance that `id`, below 0, refers to; with its class in front if that is not
    /// certain.
    fn instance(&mut self, reference: &Reference, id: i32, has_class: bool) -> Result<(), Reason> {
        if self.out.len() > self.most {
            return Err(TOO_MUCH);
        }
        let id = id.checked_neg().ok_or(NO_INSTANCE)?;
        let place = usize::try_from(id).ok();
        let place = place.and_then(|id| id.checked_sub(1)).ok_or(NO_INSTANCE)?;
        let used = self.used.get_mut(place).ok_or(NO_INSTANCE)?;
        self.has_shared |= std::mem::replace(used, true);
        self.references.push(id);
        let instances = self.instances;
        let (_, slices) =
            self.places.get(place).and_then(|at| instances.each.get(*at)).ok_or(NO_INSTANCE)?;
        let slices = instances.slices.get(slices.clone()).ok_or(NO_INSTANCE)?;
        let (number, class, unknown) = reference.class_of(slices).ok_or(NO_CLASS)?;
        let (unknown, known) = slices.split_at_checked(unknown).ok_or(NO_CLASS)?;
        if has_class {
            self.out.push(number);
        }
        self.members(class, known)?;
        self.sliced(unknown)
    }

    fn members(&mut self, class: &Class, slices: &[Sliced<'_>]) -> Result<(), Reason> {
        let Some((root, slices)) = slices.split_last() else { return Err(NO_LINE) };
        let is_line = slices.len() == class.0.len() && root.body == [0];
        if !is_line {
            return Err(NO_LINE);
        }
        for (declared, slice) in class.0.iter().zip(slices).rev() {
            if declared.name.as_bytes() != slice.name {
                return Err(NO_LINE);
            }
            let mut reader = Reader::new(slice.body).with_booleans(self.booleans);
            self.parts(&declared.parts, &mut reader)?;
            if !reader.rest().is_empty() {
                return Err(SLICE_LEFT);
            }
        }
        Ok(())
    }

    /// The slices of classes that are not known, with their names.
    fn sliced(&mut self, slices: &[Sliced<'_>]) -> Result<(), Reason> {
        self.has_sliced |= !slices.is_empty();
        let length = slices.iter().fold(0_usize, |sum, slice| sum.saturating_add(slice.spelled()));
        if self.out.len().saturating_add(length) > self.most {
            return Err(TOO_MUCH);
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

impl Reference {
    /// Which class an instance with these slices has here, by its number and itself, and how many
    /// slices in front of it are not known.
    fn class_of(&self, slices: &[Sliced<'_>]) -> Option<(u8, &Class, usize)> {
        slices.iter().enumerate().find_map(|(unknown, slice)| {
            let is_it = |class: &&Class| {
                class.0.first().is_some_and(|own| own.name.as_bytes() == slice.name)
            };
            let mut numbered = (1..=u8::MAX).zip(&self.0);
            let (number, class) = numbered.find(|(_, class)| is_it(class))?;
            Some((number, class, unknown))
        })
    }
}
