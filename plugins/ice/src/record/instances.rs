//! The instances of a record, in record order.

use std::ops::Range;

use super::flat::ROOT;
use super::flat::{
    BAD_INSTANCE_IDS, BAD_SLICE_KIND, BAD_SLICE_LENGTH, EMPTY_CLASS_NAME, LENGTH, LONGEST_SIZE,
    NUMBERED, TRAILING_BYTES, UNKNOWN_CLASS_NUMBER,
};
use crate::wire::{IceReader, RecordFault, SPELLED};

/// A slice of an instance in a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct InstanceSlice<'r> {
    pub(super) name: &'r [u8],
    pub(super) body: &'r [u8],
}

impl InstanceSlice<'_> {
    /// The maximum length with its name spelled out.
    pub(super) fn max_spelled_len(&self) -> usize {
        const AROUND: usize = 1 + LONGEST_SIZE + LENGTH;
        self.name.len().saturating_add(self.body.len()).saturating_add(AROUND)
    }
}

/// The instances of a record, in record order.
#[derive(Debug, Default)]
pub(super) struct Instances<'r> {
    pub(super) names: Vec<&'r [u8]>,
    pub(super) slices: Vec<InstanceSlice<'r>>,
    /// The id and the slices of each.
    pub(super) each: Vec<(i32, Range<usize>)>,
    /// Whether a class is given by its number.
    pub(super) has_numbers: bool,
}

impl<'r> Instances<'r> {
    /// Reads the whole list of a record, which must end with it, in place of those before.
    pub(super) fn read_all(&mut self, reader: &mut IceReader<'r>) -> Result<(), RecordFault> {
        self.names.clear();
        self.slices.clear();
        self.each.clear();
        self.has_numbers = false;
        loop {
            match reader.size()? {
                0 => break,
                count => (0..count).try_for_each(|_| self.read(reader))?,
            }
        }
        if reader.rest().is_empty() { Ok(()) } else { Err(TRAILING_BYTES) }
    }

    pub(super) fn read(&mut self, reader: &mut IceReader<'r>) -> Result<(), RecordFault> {
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

    fn slice(&mut self, reader: &mut IceReader<'r>) -> Result<InstanceSlice<'r>, RecordFault> {
        let name = match reader.byte()? {
            SPELLED => {
                let name = reader.sized()?;
                if name.is_empty() {
                    return Err(EMPTY_CLASS_NAME);
                }
                self.names.push(name);
                name
            }
            NUMBERED => {
                self.has_numbers = true;
                let number = reader.size()?.checked_sub(1).ok_or(UNKNOWN_CLASS_NUMBER)?;
                self.names.get(number).copied().ok_or(UNKNOWN_CLASS_NUMBER)?
            }
            _ => return Err(BAD_SLICE_KIND),
        };
        Ok(InstanceSlice { name, body: slice_body(reader)? })
    }

    /// Makes `places` say for each id, counted from 1, what the index of its instance is.
    pub(super) fn places(&self, places: &mut Vec<usize>) -> Result<(), RecordFault> {
        places.clear();
        places.resize(self.each.len(), usize::MAX);
        for (at, (id, _)) in self.each.iter().enumerate() {
            let place = usize::try_from(*id).ok().and_then(|id| id.checked_sub(1));
            match place.and_then(|place| places.get_mut(place)) {
                Some(free) if *free == usize::MAX => *free = at,
                _ => return Err(BAD_INSTANCE_IDS),
            }
        }
        Ok(())
    }
}

/// The bytes of a slice after its length.
pub(super) fn slice_body<'r>(reader: &mut IceReader<'r>) -> Result<&'r [u8], RecordFault> {
    let length = usize::try_from(reader.int()?).map_err(|_| BAD_SLICE_LENGTH)?;
    reader.take(length.checked_sub(LENGTH).ok_or(BAD_SLICE_LENGTH)?)
}
