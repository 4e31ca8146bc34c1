//! A record as its linear form, and back. Makes no columns.
//!
//! Linear forms are what [`plan`](crate::plan) says: a record whose instances stand where they are referred to.
//! Going there and back gives the same bytes, or there is no linear form.

use std::collections::HashMap;
use std::ops::Range;

use crate::plan::{Class, Part, Plain, Reference, Top};
use crate::wire::{Reader, Reason, SHORT, put_length_since, put_size, put_sized};

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
const NO_BOOL: Reason = "a boolean is neither 0 nor 1";
const NO_VALUE: Reason = "a value that its enum does not have";
const NO_FIRST: Reason = "it does not begin with a reference to its first instance";
const NO_INSTANCE: Reason = "a reference to an instance that is not there";
const TWICE: Reason = "several references to one instance";
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
const TOO_MUCH: Reason = "long names of classes that are not declared are numbered over and over";

/// How long a linear form may be, in lengths of its record and beside them: of classes that are not declared it
/// spells out each name that a record only numbers.
const MOST_TIMES: usize = 4;
const MOST_BESIDE: usize = 64 << 10;

/// The linear form of a record, in `scratch` unless it lies in the record itself.
pub(crate) fn linear_of<'r>(
    top: &Top,
    record: &'r [u8],
    scratch: &'r mut Vec<u8>,
) -> Result<&'r [u8], Reason> {
    match top {
        Top::Plain(plain) => {
            let mut reader = Reader::new(record);
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
            let is_certain = unfold(top, record, scratch)?;
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

/// Whether a record is of this type.
pub(crate) fn is_of(top: &Top, record: &[u8]) -> bool {
    linear_of(top, record, &mut Vec::new()).is_ok()
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

/// The names of the classes of a record's first instance, its own first, each as often as it is spelled out, so
/// that they are no longer together than the record; nothing if the record does not begin with one.
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
                if reader.byte()? > 1 {
                    return Err(NO_BOOL);
                }
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

/// The slice of an instance, as it lies in a record.
#[derive(Clone, Copy, Debug)]
struct Sliced<'r> {
    name: &'r [u8],
    body: &'r [u8],
}

impl Sliced<'_> {
    /// How many bytes it takes at most with its name spelled out.
    fn spelled(&self) -> usize {
        const AROUND: usize = 1 + LONGEST_SIZE + LENGTH;
        self.name.len().saturating_add(self.body.len()).saturating_add(AROUND)
    }
}

/// The instances of a record, in the order in which they lie there.
#[derive(Debug, Default)]
struct Instances<'r> {
    names: Vec<&'r [u8]>,
    slices: Vec<Sliced<'r>>,
    /// For each, its id and its slices.
    each: Vec<(i32, Range<usize>)>,
    /// Whether a class was given by its number.
    has_numbers: bool,
}

impl<'r> Instances<'r> {
    /// The whole list, up to its end, which has to be the record's.
    fn read_all(reader: &mut Reader<'r>) -> Result<Self, Reason> {
        let mut all = Self::default();
        loop {
            match reader.size()? {
                0 => break,
                count => (0..count).try_for_each(|_| all.read(reader))?,
            }
        }
        if reader.rest().is_empty() { Ok(all) } else { Err(LEFT) }
    }

    fn read(&mut self, reader: &mut Reader<'r>) -> Result<(), Reason> {
        let (id, first) = (reader.int()?, self.slices.len());
        loop {
            let slice = self.slice(reader)?;
            self.slices.push(slice);
            if slice.name == ROOT {
                break;
            }
        }
        self.each.push((id, first..self.slices.len()));
        Ok(())
    }

    fn slice(&mut self, reader: &mut Reader<'r>) -> Result<Sliced<'r>, Reason> {
        let name = match reader.byte()? {
            SPELLED => {
                let name = reader.sized()?;
                if name.is_empty() {
                    return Err(NO_NAME);
                }
                self.names.push(name);
                name
            }
            NUMBERED => {
                self.has_numbers = true;
                let number = reader.size()?.checked_sub(1).ok_or(NO_NUMBER)?;
                self.names.get(number).copied().ok_or(NO_NUMBER)?
            }
            _ => return Err(NO_KIND),
        };
        Ok(Sliced { name, body: body(reader)? })
    }

    /// For each id, counted from 1, which instance has it.
    fn places(&self) -> Result<Vec<usize>, Reason> {
        let mut places = vec![usize::MAX; self.each.len()];
        for (at, (id, _)) in self.each.iter().enumerate() {
            let place = usize::try_from(*id).ok().and_then(|id| id.checked_sub(1));
            match place.and_then(|place| places.get_mut(place)) {
                Some(free) if *free == usize::MAX => *free = at,
                _ => return Err(IDS),
            }
        }
        Ok(places)
    }
}

/// The bytes of a slice behind its length.
fn body<'r>(reader: &mut Reader<'r>) -> Result<&'r [u8], Reason> {
    let length = usize::try_from(reader.int()?).map_err(|_| NO_LENGTH)?;
    reader.take(length.checked_sub(LENGTH).ok_or(NO_LENGTH)?)
}

/// Appends the linear form of a record with references. Gives whether its bytes cannot be any other.
fn unfold(top: &Top, record: &[u8], out: &mut Vec<u8>) -> Result<bool, Reason> {
    let mut reader = Reader::new(record);
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
    let used = vec![false; places.len()];
    let most = record.len().saturating_mul(MOST_TIMES).saturating_add(MOST_BESIDE);
    let mut unfolding =
        Unfolding { instances: &instances, places, used, out, most, has_sliced: false };
    match top {
        Top::Plain(_) => {}
        Top::Struct(parts) => unfolding.parts(parts, &mut Reader::new(record))?,
        Top::Class(first) => unfolding.instance(first, FIRST, false)?,
    }
    if unfolding.used.contains(&false) {
        return Err(UNUSED);
    }
    let has_sliced = unfolding.has_sliced;
    put_order(&instances, out)?;
    Ok(instances.each.len() <= 1 && !instances.has_numbers && !has_sliced)
}

/// The ids as they lie in the record; nothing where they rise.
fn put_order(instances: &Instances<'_>, out: &mut Vec<u8>) -> Result<(), Reason> {
    if instances.each.is_sorted_by_key(|(id, _)| *id) {
        return put_size(out, 0);
    }
    put_size(out, instances.each.len())?;
    instances.each.iter().for_each(|(id, _)| out.extend(id.to_le_bytes()));
    Ok(())
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

/// A linear form in the making. How deep instances hold each other is bounded by their types.
struct Unfolding<'r, 'u> {
    instances: &'u Instances<'r>,
    places: Vec<usize>,
    /// For each id, whether something refers to it.
    used: Vec<bool>,
    out: &'u mut Vec<u8>,
    /// How long the linear form may be.
    most: usize,
    has_sliced: bool,
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

    /// Appends the instance that `id`, below 0, refers to; with its class in front if that is not certain.
    fn instance(&mut self, reference: &Reference, id: i32, has_class: bool) -> Result<(), Reason> {
        let place = id.checked_neg().and_then(|id| usize::try_from(id).ok());
        let place = place.and_then(|id| id.checked_sub(1)).ok_or(NO_INSTANCE)?;
        let used = self.used.get_mut(place).ok_or(NO_INSTANCE)?;
        if std::mem::replace(used, true) {
            return Err(TWICE);
        }
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
            let mut reader = Reader::new(slice.body);
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
    /// Which class an instance with these slices has here, by its number and itself, and how many slices
    /// in front of it are not known.
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

/// Appends the record with references that has this linear form.
fn fold(top: &Top, linear: &[u8], out: &mut Vec<u8>) -> Result<(), Reason> {
    let mut reader = Reader::new(linear);
    let mut folding = Folding::default();
    match top {
        Top::Plain(plain) => walk(plain, &mut reader)?,
        Top::Struct(parts) => folding.parts(parts, &mut reader, out)?,
        Top::Class(first) => {
            let class = first.0.first().ok_or(NO_CLASS)?;
            out.extend(folding.refer(class, &mut reader)?.to_le_bytes());
        }
    }
    let mut order = Order::read(&mut reader)?;
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

/// The order of instances, as the end of a linear form has it; none given if ids rise.
struct Order {
    ids: std::vec::IntoIter<i32>,
    is_given: bool,
}

impl Order {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Reason> {
        let count = reader.size()?;
        let ids: Vec<i32> = (0..count).map(|_| reader.int()).collect::<Result<_, _>>()?;
        let order = Self { is_given: count > 0, ids: ids.into_iter() };
        if reader.rest().is_empty() { Ok(order) } else { Err(LEFT) }
    }

    /// The instances of a batch, of which each has an id by one above the one before it, in their order.
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

/// A record in the making, as Ice makes it: instances get ids in the order in which they are referred to,
/// and are written in batches: those that the batch before refers to.
#[derive(Default)]
struct Folding<'a> {
    waiting: Vec<Waiting<'a>>,
    last_id: i32,
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
        self.last_id = self.last_id.checked_add(1).ok_or(IDS)?;
        self.waiting.push(Waiting { id: self.last_id, class, linear: reader.clone() });
        class.pass(reader)?;
        Ok(-self.last_id)
    }

    fn instance(&mut self, instance: &Waiting<'a>, out: &mut Vec<u8>) -> Result<(), Reason> {
        out.extend(instance.id.to_le_bytes());
        let (mut reader, mut starts) = (instance.linear.clone(), Vec::new());
        for slice in instance.class.0.iter().rev() {
            starts.push(reader.clone());
            pass_linear(&slice.parts, &mut reader)?;
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

fn put_body(body: &[u8], out: &mut Vec<u8>) -> Result<(), Reason> {
    let place = out.len();
    out.extend([0; LENGTH]);
    out.extend_from_slice(body);
    put_length_since(out, place)
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
    /// Goes over an instance in a linear form.
    fn pass(&self, reader: &mut Reader<'_>) -> Result<(), Reason> {
        self.0.iter().rev().try_for_each(|slice| pass_linear(&slice.parts, reader))?;
        reader.sized().map(|_| ())
    }
}

/// Goes over members in a linear form.
fn pass_linear(parts: &[Part], reader: &mut Reader<'_>) -> Result<(), Reason> {
    for part in parts {
        match part {
            Part::Plain(plain) => walk(plain, reader)?,
            Part::List(item) => {
                let count = reader.size()?;
                (0..count).try_for_each(|_| pass_linear(item, reader))?;
            }
            Part::Reference(reference) => {
                if let Some(class) = reference.numbered(reader.byte()?)? {
                    class.pass(reader)?;
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::plan::compile;
    use crate::slice::{Library, TypeFile};

    const LASER: &str = "module orca {
        struct Time { int seconds; int useconds; };
        class OrcaObject { Time timeStamp; };
        sequence<float> Ranges;
        sequence<byte> Bytes;
        class RangeScannerData extends OrcaObject {
            Ranges ranges; float startAngle; float angleIncrement;
        };
        class LaserData extends RangeScannerData { Bytes intensities; };
    };";

    fn top(text: &str, name: &str) -> Top {
        let library = Library::of(vec![TypeFile { path: "t.ice".into(), text: text.to_owned() }]);
        assert!(library.mistakes().is_empty(), "{:?}", library.mistakes());
        let id = library.ids().find(|id| library.name(*id) == name).unwrap();
        compile(&library, id).unwrap().top
    }

    fn named(name: &str, body: &[u8]) -> Vec<u8> {
        let mut out = vec![SPELLED];
        put_sized(&mut out, name.as_bytes()).unwrap();
        put_body(body, &mut out).unwrap();
        out
    }

    fn numbered(number: u8, body: &[u8]) -> Vec<u8> {
        let mut out = vec![NUMBERED, number];
        put_body(body, &mut out).unwrap();
        out
    }

    /// A laser scan without beams.
    fn scan() -> Vec<u8> {
        let angles = [&[0][..], &1.5_f32.to_le_bytes(), &0.5_f32.to_le_bytes()].concat();
        let stamp = [7_i32.to_le_bytes(), 9_i32.to_le_bytes()].concat();
        [
            &[255, 255, 255, 255, 1, 1, 0, 0, 0][..],
            &named("::orca::LaserData", &[0]),
            &named("::orca::RangeScannerData", &angles),
            &named("::orca::OrcaObject", &stamp),
            &named("::Ice::Object", &[0]),
            &[0],
        ]
        .concat()
    }

    fn refused(top: &Top, record: &[u8]) -> Reason {
        linear_of(top, record, &mut Vec::new()).unwrap_err()
    }

    fn there_and_back(top: &Top, record: &[u8]) -> Vec<u8> {
        let mut scratch = Vec::new();
        let linear = linear_of(top, record, &mut scratch).unwrap().to_vec();
        let mut again = vec![5];
        record_of(top, &linear, &mut again).unwrap();
        assert_eq!(&again[1..], record);
        linear
    }

    #[test]
    fn an_instance_becomes_its_members_with_those_of_the_root_first() {
        let (scan, laser) = (scan(), top(LASER, "::orca::LaserData"));
        assert_eq!(scan.len(), 125);
        let linear = there_and_back(&laser, &scan);
        let mut expected = [7_i32.to_le_bytes(), 9_i32.to_le_bytes()].concat();
        expected.extend([0, 0, 0, 0xc0, 0x3f, 0, 0, 0, 0x3f, 0, 0, 0]);
        assert_eq!(linear, expected);
        let names = classes(&scan).unwrap();
        assert_eq!(names[0], b"::orca::LaserData");
        assert_eq!(names[3], ROOT);
    }

    #[test]
    fn a_slice_that_nobody_declared_is_kept_with_its_name() {
        let (scan, base) = (scan(), top(LASER, "::orca::RangeScannerData"));
        let linear = there_and_back(&base, &scan);
        let sliced = named("::orca::LaserData", &[0]);
        assert_eq!(linear[17] as usize, sliced.len());
        assert_eq!(linear[18..linear.len() - 1], sliced);
        assert_eq!(refused(&top("class Other { int i; };", "::Other"), &scan), NO_CLASS);
    }

    /// A record that numbers a class of a long name over and over.
    fn bomb(name: usize, times: usize) -> Vec<u8> {
        let scan = scan();
        let (head, known) = scan.split_at(9);
        let own = named(&"x".repeat(name), &[]);
        [head, &own, &numbered(1, &[]).repeat(times), known].concat()
    }

    #[test]
    fn a_record_that_would_grow_far_beyond_its_length_is_refused_before_it_does() {
        let laser = top(LASER, "::orca::LaserData");
        let (mut scratch, record) = (Vec::new(), bomb(60_000, 10_000));
        assert_eq!(linear_of(&laser, &record, &mut scratch).unwrap_err(), TOO_MUCH);
        assert!(scratch.capacity() <= MOST_TIMES * record.len() + MOST_BESIDE);
        there_and_back(&laser, &bomb(300, 10));
    }

    #[test]
    fn names_of_classes_are_no_longer_together_than_their_record() {
        let record = bomb(60_000, 10_000);
        let names = classes(&record).unwrap();
        assert_eq!(names.len(), 5);
        assert!(names.iter().map(|name| name.len()).sum::<usize>() < record.len());
    }

    #[test]
    fn a_record_that_is_cut_off_or_too_long_is_refused() {
        let (scan, laser) = (scan(), top(LASER, "::orca::LaserData"));
        for end in 0..scan.len() {
            refused(&laser, &scan[..end]);
        }
        assert_eq!(refused(&laser, &[&scan[..], &[0]].concat()), LEFT);
    }

    #[test]
    fn what_ice_would_not_write_is_refused() {
        let (scan, laser) = (scan(), top(LASER, "::orca::LaserData"));
        let with = |at: usize, byte: u8| {
            let mut other = scan.clone();
            other[at] = byte;
            refused(&laser, &other)
        };
        assert_eq!(with(0, 254), NO_FIRST);
        assert_eq!(with(5, 2), IDS);
        assert_eq!(with(9, 2), NO_KIND);
        assert_eq!(with(9, 1), NO_NUMBER);
        assert_eq!(with(10, 0), NO_NAME);
        assert_eq!(with(28, 3), NO_LENGTH);
        assert_eq!(with(28, 4), NO_NAME);
        assert_eq!(with(123, 1), NO_LINE);
        // An instance that nothing refers to.
        let second = [&[1, 2, 0, 0, 0][..], &numbered(4, &[0]), &[0]].concat();
        assert_eq!(refused(&laser, &[&scan[..124], &second].concat()), UNUSED);
    }

    const TREE: &str = "
        class Leaf { byte kind; };
        class Odd extends Leaf { bool is; Leaf inner; };
        class Pair { Leaf a; Leaf b; };
        sequence<Pair> Pairs;
        dictionary<string, Leaf> Named;
        enum Colour { red, green };
        struct All { Colour colour; Pairs pairs; Named named; };
    ";

    fn all(text: &str) -> (Top, Top) {
        // `Odd` holds `Leaf`, which it extends: so it may hold itself.
        (top(text, "::Pair"), top(text, "::All"))
    }

    #[test]
    fn instances_come_back_in_the_order_in_which_they_lay() {
        let (pair, all) = all(&TREE.replace("Leaf inner;", ""));
        let leaf = |id: u8, kind: u8, first: bool| {
            let own = if first { named("::Leaf", &[kind]) } else { numbered(3, &[kind]) };
            [&[id, 0, 0, 0][..], &own, &numbered(2, &[0])].concat()
        };
        let head = [&[255, 255, 255, 255, 1, 1, 0, 0, 0][..]].concat();
        let own = [
            named("::Pair", &[254, 255, 255, 255, 253, 255, 255, 255]),
            named("::Ice::Object", &[0]),
        ];
        let rising = [&head[..], &own.concat(), &[2], &leaf(2, 7, true), &leaf(3, 8, false), &[0]];
        let falling = [&head[..], &own.concat(), &[2], &leaf(3, 8, true), &leaf(2, 7, false), &[0]];
        assert_eq!(there_and_back(&pair, &rising.concat()), [1, 7, 0, 1, 8, 0, 0, 0]);
        let order = [3, 1, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0];
        let linear = there_and_back(&pair, &falling.concat());
        assert_eq!(linear, [&[1, 7, 0, 1, 8, 0, 0][..], &order].concat());
        // Batches that Ice would not make.
        let apart =
            [&head[..], &own.concat(), &[1], &leaf(2, 7, true), &[1], &leaf(3, 8, false), &[0]];
        assert_eq!(refused(&pair, &apart.concat()), OTHERWISE);
        // A null reference in a struct, and one to an instance that is not there.
        let record = |id: u8, tail: &[u8]| [&[1, 0, 1, 1, b'x', id, 0, 0, 0], tail].concat();
        assert_eq!(there_and_back(&all, &record(0, &[0])), [1, 0, 1, 1, b'x', 0, 0]);
        assert_eq!(refused(&all, &record(1, &[0])), NO_INSTANCE);
    }

    #[test]
    fn one_instance_in_two_places_is_refused() {
        let (pair, _) = all(&TREE.replace("Leaf inner;", ""));
        let leaf = [&[2, 0, 0, 0][..], &named("::Leaf", &[7]), &numbered(2, &[0])].concat();
        let record = [
            &[255, 255, 255, 255, 1, 1, 0, 0, 0][..],
            &named("::Pair", &[254, 255, 255, 255, 254, 255, 255, 255]),
            &named("::Ice::Object", &[0]),
            &[1],
            &leaf,
            &[0],
        ];
        assert_eq!(refused(&pair, &record.concat()), TWICE);
    }

    #[test]
    fn a_class_that_may_hold_itself_has_no_form() {
        let library = Library::of(vec![TypeFile { path: "t.ice".into(), text: TREE.to_owned() }]);
        let id = library.ids().find(|id| library.name(*id) == "::Pair").unwrap();
        assert!(compile(&library, id).unwrap_err().contains("may hold another one"));
    }

    #[test]
    fn a_struct_is_checked_to_its_last_byte() {
        let text = "enum E { a, b = 4 }; struct S { bool is; E e; string text; };";
        let top = top(text, "::S");
        assert_eq!(there_and_back(&top, &[1, 4, 1, b'x', 0]), [1, 4, 1, b'x']);
        assert_eq!(refused(&top, &[2, 4, 1, b'x', 0]), NO_BOOL);
        assert_eq!(refused(&top, &[1, 3, 1, b'x', 0]), NO_VALUE);
        assert_eq!(refused(&top, &[1, 4, 2, b'x']), SHORT);
        assert_eq!(refused(&top, &[1, 4, 1, b'x']), SHORT);
        assert_eq!(refused(&top, &[1, 4, 1, b'x', 1]), NO_END);
        assert_eq!(refused(&top, &[1, 4, 1, b'x', 0, 0]), LEFT);
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_much(
            flips in prop::collection::vec((0..125_usize, any::<u8>()), 0..6),
            tail in prop::collection::vec(any::<u8>(), 0..20),
        ) {
            let (pair, all) = all(&TREE.replace("Leaf inner;", ""));
            let laser = top(LASER, "::orca::LaserData");
            let mut record = scan();
            flips.into_iter().for_each(|(at, byte)| record[at] = byte);
            record.extend(&tail);
            for top in [&laser, &pair, &all] {
                for bytes in [&record, &tail] {
                    let mut scratch = Vec::new();
                    let Ok(linear) = linear_of(top, bytes, &mut scratch) else { continue };
                    let mut again = Vec::new();
                    prop_assert_eq!(record_of(top, linear, &mut again), Ok(()));
                    prop_assert_eq!(&again, bytes);
                }
                // A linear form that anybody made gives a record that comes back, or none.
                let mut made = Vec::new();
                if record_of(top, &tail, &mut made).is_ok() {
                    prop_assert!(is_of(top, &made));
                }
            }
        }
    }
}
