//! The instances of a record as they lie in it, one behind another.

use std::ops::Range;

use super::{IDS, LEFT, LENGTH, LONGEST_SIZE, NO_KIND, NO_LENGTH, NO_NAME, NO_NUMBER, NUMBERED};
use super::{ROOT, SPELLED};
use crate::wire::{Reader, Reason};

/// The slice of an instance, as it lies in a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sliced<'r> {
    pub(super) name: &'r [u8],
    pub(super) body: &'r [u8],
}

impl Sliced<'_> {
    /// How many bytes it takes at most with its name spelled out.
    pub(super) fn spelled(&self) -> usize {
        const AROUND: usize = 1 + LONGEST_SIZE + LENGTH;
        self.name.len().saturating_add(self.body.len()).saturating_add(AROUND)
    }
}

/// The instances of a record, in the order in which they lie there.
#[derive(Debug, Default)]
pub(super) struct Instances<'r> {
    pub(super) names: Vec<&'r [u8]>,
    pub(super) slices: Vec<Sliced<'r>>,
    /// For each, its id and its slices.
    pub(super) each: Vec<(i32, Range<usize>)>,
    /// Whether a class was given by its number.
    pub(super) has_numbers: bool,
}

impl<'r> Instances<'r> {
    /// The whole list, up to its end, which has to be the record's.
    pub(super) fn read_all(reader: &mut Reader<'r>) -> Result<Self, Reason> {
        let mut all = Self::default();
        loop {
            match reader.size()? {
                0 => break,
                count => (0..count).try_for_each(|_| all.read(reader))?,
            }
        }
        if reader.rest().is_empty() { Ok(all) } else { Err(LEFT) }
    }

    pub(super) fn read(&mut self, reader: &mut Reader<'r>) -> Result<(), Reason> {
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
    pub(super) fn places(&self) -> Result<Vec<usize>, Reason> {
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
pub(super) fn body<'r>(reader: &mut Reader<'r>) -> Result<&'r [u8], Reason> {
    let length = usize::try_from(reader.int()?).map_err(|_| NO_LENGTH)?;
    reader.take(length.checked_sub(LENGTH).ok_or(NO_LENGTH)?)
}
