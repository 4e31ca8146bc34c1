//! From a linear form to the record with references.

use std::collections::HashMap;

use super::instances::body;
use super::{COPIES, IDS, LEFT, LENGTH, NO_CLASS, NO_NAME, NO_REFERENCES, NUMBERED, ROOT, SPELLED};
use super::{ints, put_body, walk};
use crate::plan::{Class, Part, Reference, Top};
use crate::wire::{Reader, Reason, put_length_since, put_size, put_sized};

/// Appends the record with references that has this linear form.
pub(super) fn fold(top: &Top, linear: &[u8], out: &mut Vec<u8>) -> Result<(), Reason> {
    let (shared, mut order) = last_members(top, linear)?;
    let mut reader = Reader::new(linear);
    let mut folding = Folding { shared, ..Folding::default() };
    match top {
        Top::Plain(plain) => walk(plain, &mut reader)?,
        Top::Struct(parts) => folding.parts(parts, &mut reader, out)?,
        Top::Class(first) => {
            let class = first.0.first().ok_or(NO_CLASS)?;
            out.extend(folding.refer(class, &mut reader)?.to_le_bytes());
        }
    }
    while !folding.waiting.is_empty() {
        let waiting = order.arrange(std::mem::take(&mut folding.waiting))?;
        put_size(out, waiting.len())?;
        for instance in waiting {
            folding.instance(&instance, out)?;
        }
    }
    out.push(0);
    order.end()
}

/// What stands at the end of a linear form: which instances are shared, and their order.
fn last_members(top: &Top, linear: &[u8]) -> Result<(Shared, Order), Reason> {
    let (mut reader, mut starts) = (Reader::new(linear), Vec::new());
    let mut note = |at| starts.push(at);
    match top {
        Top::Plain(plain) => walk(plain, &mut reader)?,
        Top::Struct(parts) => pass_linear(parts, &mut reader, &mut note)?,
        Top::Class(first) => first.0.first().ok_or(NO_CLASS)?.pass(&mut reader, &mut note)?,
    }
    let order = Order::read(&mut reader)?;
    let ids = ints(&mut reader)?;
    if !reader.rest().is_empty() {
        return Err(LEFT);
    }
    if !ids.is_empty() && ids.len() != starts.len() {
        return Err(NO_REFERENCES);
    }
    Ok((Shared(starts.into_iter().zip(ids).collect()), order))
}

/// The ids of instances by where these stand in a linear form; none if each is referred to once.
#[derive(Default)]
struct Shared(Vec<(usize, i32)>);

impl Shared {
    fn id_at(&self, at: usize) -> Option<i32> {
        let place = self.0.binary_search_by_key(&at, |(start, _)| *start).ok()?;
        self.0.get(place).map(|(_, id)| *id)
    }
}

/// The order of instances, as the end of a linear form has it; none given if ids rise.
struct Order {
    ids: std::vec::IntoIter<i32>,
    is_given: bool,
}

impl Order {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Reason> {
        let ids = ints(reader)?;
        Ok(Self { is_given: !ids.is_empty(), ids: ids.into_iter() })
    }

    /// The instances of a batch, of which each has an id by one above the one before it, in their
    /// order.
    fn arrange<'a>(&mut self, batch: Vec<Waiting<'a>>) -> Result<Vec<Waiting<'a>>, Reason> {
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
            arranged.push(place.and_then(Option::take).ok_or(IDS)?);
        }
        Ok(arranged)
    }

    fn end(mut self) -> Result<(), Reason> {
        if self.ids.next().is_none() { Ok(()) } else { Err(IDS) }
    }
}

/// An instance that was referred to but not yet written.
#[derive(Debug)]
struct Waiting<'a> {
    id: i32,
    class: &'a Class,
    /// Where its linear form begins.
    linear: Reader<'a>,
}

/// A record in the making, as Ice makes it: instances get ids in the order in which they are
/// referred to, and are written in batches: those that the batch before refers to.
#[derive(Default)]
struct Folding<'a> {
    waiting: Vec<Waiting<'a>>,
    shared: Shared,
    /// The linear forms of the instances that have ids: that of 1 first.
    referred: Vec<&'a [u8]>,
    /// The numbers of classes that were named.
    numbers: HashMap<&'a [u8], usize>,
}

impl<'a> Folding<'a> {
    fn parts(
        &mut self,
        parts: &'a [Part],
        reader: &mut Reader<'a>,
        out: &mut Vec<u8>,
    ) -> Result<(), Reason> {
        for part in parts {
            match part {
                Part::Plain(plain) => {
                    let start = reader.at();
                    walk(plain, reader)?;
                    out.extend_from_slice(reader.since(start));
                }
                Part::List(item) => {
                    let count = reader.size()?;
                    put_size(out, count)?;
                    (0..count).try_for_each(|_| self.parts(item, reader, out))?;
                }
                Part::Reference(reference) => {
                    let id = match reference.numbered(reader.byte()?)? {
                        None => 0,
                        Some(class) => self.refer(class, reader)?,
                    };
                    out.extend(id.to_le_bytes());
                }
            }
        }
        Ok(())
    }

    /// Notes the instance that comes next, goes over it, and gives the reference to it.
    fn refer(&mut self, class: &'a Class, reader: &mut Reader<'a>) -> Result<i32, Reason> {
        let linear = reader.clone();
        class.pass(reader, &mut |_| ())?;
        let bytes = reader.since(linear.at());
        let next = i32::try_from(self.referred.len() + 1).map_err(|_| IDS)?;
        let id = self.shared.id_at(linear.at()).unwrap_or(next);
        if id == next {
            self.referred.push(bytes);
            self.waiting.push(Waiting { id, class, linear });
            return Ok(-id);
        }
        let place = usize::try_from(id).ok().and_then(|id| id.checked_sub(1)).ok_or(IDS)?;
        let first = self.referred.get(place).ok_or(IDS)?;
        if *first == bytes { Ok(-id) } else { Err(COPIES) }
    }

    fn instance(&mut self, instance: &Waiting<'a>, out: &mut Vec<u8>) -> Result<(), Reason> {
        out.extend(instance.id.to_le_bytes());
        let (mut reader, mut starts) = (instance.linear.clone(), Vec::new());
        for slice in instance.class.0.iter().rev() {
            starts.push(reader.clone());
            pass_linear(&slice.parts, &mut reader, &mut |_| ())?;
        }
        self.sliced(Reader::new(reader.sized()?), out)?;
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

    /// The slices of classes that are not known.
    fn sliced(&mut self, mut reader: Reader<'a>, out: &mut Vec<u8>) -> Result<(), Reason> {
        while !reader.rest().is_empty() {
            if reader.byte()? != SPELLED {
                return Err(NO_NAME);
            }
            self.name(reader.sized()?, out)?;
            put_body(body(&mut reader)?, out)?;
        }
        Ok(())
    }

    /// The name of a class where it comes for the first time, and its number afterwards.
    fn name(&mut self, name: &'a [u8], out: &mut Vec<u8>) -> Result<(), Reason> {
        if let Some(number) = self.numbers.get(name) {
            out.push(NUMBERED);
            return put_size(out, *number);
        }
        self.numbers.insert(name, self.numbers.len() + 1);
        out.push(SPELLED);
        put_sized(out, name)
    }
}

impl Reference {
    /// The class of that number, or none for 0.
    fn numbered(&self, number: u8) -> Result<Option<&Class>, Reason> {
        match usize::from(number).checked_sub(1) {
            None => Ok(None),
            Some(at) => self.0.get(at).map(Some).ok_or(NO_CLASS),
        }
    }
}

impl Class {
    /// Goes over an instance in a linear form, and notes where it and those that it holds begin.
    fn pass(&self, reader: &mut Reader<'_>, note: &mut dyn FnMut(usize)) -> Result<(), Reason> {
        note(reader.at());
        self.0.iter().rev().try_for_each(|slice| pass_linear(&slice.parts, reader, note))?;
        reader.sized().map(|_| ())
    }
}

/// Goes over members in a linear form, and notes where instances begin.
fn pass_linear(
    parts: &[Part],
    reader: &mut Reader<'_>,
    note: &mut dyn FnMut(usize),
) -> Result<(), Reason> {
    for part in parts {
        match part {
            Part::Plain(plain) => walk(plain, reader)?,
            Part::List(item) => {
                let count = reader.size()?;
                (0..count).try_for_each(|_| pass_linear(item, reader, note))?;
            }
            Part::Reference(reference) => {
                if let Some(class) = reference.numbered(reader.byte()?)? {
                    class.pass(reader, note)?;
                }
            }
        }
    }
    Ok(())
}
