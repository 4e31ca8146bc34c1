//! The primitives of encoding 1.0: checked reading of numbers, sizes and names, and writing of
//! sizes. Knows no types.

#![warn(clippy::indexing_slicing)]

use sluice_model::raw::ODD_BOOLEAN;

/// The reason a record is invalid. Reasons are static: they contain nothing of the record.
pub(crate) type RecordFault = &'static str;

/// The kind of a slice whose class is spelled out instead of numbered.
pub(crate) const SPELLED: u8 = 0;

/// The record ends too early.
pub(crate) const TOO_SHORT: RecordFault = "it ends too early";
const OVERLONG_SIZE: RecordFault = "a size is not in its shortest form";
const NEGATIVE_SIZE: RecordFault = "a size is negative";
const TOO_LONG: RecordFault = "it is longer than a size can express";

/// Reads bytes from front to back.
#[derive(Clone, Debug)]
pub(crate) struct IceReader<'b> {
    bytes: &'b [u8],
    at: usize,
    booleans: Booleans,
}

/// Which bytes are valid booleans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Booleans {
    /// Any: all but 0 are true, as in Ice.
    #[default]
    Any,
    /// Only 0 and 1, which is what Ice writes.
    ZeroOrOne,
}

impl<'b> IceReader<'b> {
    /// Reads from the first of these bytes.
    pub(crate) fn new(bytes: &'b [u8]) -> Self {
        Self { bytes, at: 0, booleans: Booleans::Any }
    }

    /// Sets which bytes are valid booleans.
    pub(crate) fn with_booleans(mut self, booleans: Booleans) -> Self {
        self.booleans = booleans;
        self
    }

    /// Reads the next byte as a boolean.
    pub(crate) fn boolean(&mut self) -> Result<(), RecordFault> {
        match self.byte()? {
            2.. if self.booleans == Booleans::ZeroOrOne => Err(ODD_BOOLEAN),
            _ => Ok(()),
        }
    }

    /// The number of bytes read.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// The bytes read since `start`.
    pub(crate) fn since(&self, start: usize) -> &'b [u8] {
        self.bytes.get(start..self.at).unwrap_or_default()
    }

    /// The remaining bytes.
    pub(crate) fn rest(&self) -> &'b [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// The next bytes.
    pub(crate) fn take(&mut self, length: usize) -> Result<&'b [u8], RecordFault> {
        let taken = self.rest().get(..length).ok_or(TOO_SHORT)?;
        self.at += length;
        Ok(taken)
    }

    /// The next byte.
    pub(crate) fn byte(&mut self) -> Result<u8, RecordFault> {
        let byte = *self.rest().first().ok_or(TOO_SHORT)?;
        self.at += 1;
        Ok(byte)
    }

    /// The next four bytes as a number.
    pub(crate) fn int(&mut self) -> Result<i32, RecordFault> {
        let bytes = *self.rest().first_chunk().ok_or(TOO_SHORT)?;
        self.at += 4;
        Ok(i32::from_le_bytes(bytes))
    }

    /// The next size: the bytes of a string, or the elements of a list, which take at least a byte
    /// each. Never more than the remaining bytes.
    pub(crate) fn size(&mut self) -> Result<usize, RecordFault> {
        let size = match self.byte()? {
            u8::MAX => {
                let size = usize::try_from(self.int()?).map_err(|_| NEGATIVE_SIZE)?;
                if size < usize::from(u8::MAX) {
                    return Err(OVERLONG_SIZE);
                }
                size
            }
            small => usize::from(small),
        };
        if size > self.rest().len() { Err(TOO_SHORT) } else { Ok(size) }
    }

    /// The next size, and as many bytes.
    pub(crate) fn sized(&mut self) -> Result<&'b [u8], RecordFault> {
        let size = self.size()?;
        self.take(size)
    }
}

/// Appends a size in its shortest form.
pub(crate) fn put_size(out: &mut Vec<u8>, size: usize) -> Result<(), RecordFault> {
    match u8::try_from(size) {
        Ok(small) if small < u8::MAX => out.push(small),
        _ => {
            out.push(u8::MAX);
            out.extend(i32::try_from(size).map_err(|_| TOO_LONG)?.to_le_bytes());
        }
    }
    Ok(())
}

/// Appends a size and as many bytes.
pub(crate) fn put_sized(out: &mut Vec<u8>, bytes: &[u8]) -> Result<(), RecordFault> {
    put_size(out, bytes.len())?;
    out.extend_from_slice(bytes);
    Ok(())
}

/// Replaces the four bytes at `place` by the number of bytes from there on.
pub(crate) fn put_length_since(out: &mut [u8], place: usize) -> Result<(), RecordFault> {
    let length =
        out.len().checked_sub(place).and_then(|n| i32::try_from(n).ok()).ok_or(TOO_LONG)?;
    let bytes = out.get_mut(place..).and_then(<[u8]>::first_chunk_mut).ok_or(TOO_LONG)?;
    *bytes = length.to_le_bytes();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_as_short_as_they_can_be() {
        for size in [0, 1, 254, 255, 256, 70_000] {
            let mut out = Vec::new();
            put_size(&mut out, size).unwrap();
            assert_eq!(out.len(), if size < 255 { 1 } else { 5 });
            out.resize(out.len() + size, 0);
            let mut reader = IceReader::new(&out);
            assert_eq!(reader.size(), Ok(size));
            assert_eq!(reader.rest().len(), size);
        }
        let mut long = vec![255, 254, 0, 0, 0];
        long.resize(300, 0);
        assert_eq!(IceReader::new(&long).size(), Err(OVERLONG_SIZE));
    }

    #[test]
    fn a_size_is_never_more_than_the_remaining_bytes() {
        for bytes in [&[][..], &[1], &[255, 255, 0], &[255, 255, 255, 255, 127]] {
            assert_eq!(IceReader::new(bytes).size(), Err(TOO_SHORT));
        }
        assert_eq!(IceReader::new(&[255, 255, 255, 255, 255]).size(), Err(NEGATIVE_SIZE));
    }
}
