//! The wire format: tags, varints, and values of known length. Knows no descriptor.

/// Why a payload or row is refused: a fixed text, so that refusals can be counted.
pub(crate) type PayloadFault = &'static str;

pub(crate) const CUT: PayloadFault = "it ends inside a field";
pub(crate) const BAD_VARINT: PayloadFault = "a number is longer than ten bytes";
pub(crate) const BAD_TAG: PayloadFault = "a field has no valid number or wire type";

/// How a value is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WireType {
    Varint,
    Fixed64,
    Len,
    Start,
    End,
    Fixed32,
}

impl WireType {
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::Varint => 0,
            Self::Fixed64 => 1,
            Self::Len => 2,
            Self::Start => 3,
            Self::End => 4,
            Self::Fixed32 => 5,
        }
    }

    fn from_tag(tag: u32) -> Option<Self> {
        Some(match tag & 7 {
            0 => Self::Varint,
            1 => Self::Fixed64,
            2 => Self::Len,
            3 => Self::Start,
            4 => Self::End,
            5 => Self::Fixed32,
            _ => return None,
        })
    }
}

/// The highest number of a field.
pub(crate) const MAX_FIELD: u32 = (1 << 29) - 1;

/// A tag: the number of a field and the wire type of its value.
pub(crate) fn tag(field: u32, wire_type: WireType) -> u32 {
    field << 3 | wire_type.number()
}

/// Reads a message from its start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WireCursor<'b> {
    rest: &'b [u8],
    /// Whether all varints so far were as short as possible.
    is_minimal: bool,
}

/// A value as its wire type delimits it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WireValue<'b> {
    /// A varint, or a fixed number of 32 or 64 bits.
    Number(u64),
    Bytes(&'b [u8]),
    /// A group, which no plan has.
    Group,
}

impl<'b> WireCursor<'b> {
    pub(crate) fn new(bytes: &'b [u8]) -> Self {
        Self { rest: bytes, is_minimal: true }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn is_minimal(&self) -> bool {
        self.is_minimal
    }

    #[inline]
    pub(crate) fn varint(&mut self) -> Result<u64, PayloadFault> {
        if let Some((first, rest)) = self.rest.split_first().filter(|(first, _)| **first < 0x80) {
            self.rest = rest;
            return Ok(u64::from(*first));
        }
        self.long_varint()
    }

    fn long_varint(&mut self) -> Result<u64, PayloadFault> {
        let mut value = 0;
        for (at, byte) in self.rest.iter().enumerate() {
            // The tenth byte has one bit left.
            if at == 9 && *byte > 1 {
                return Err(BAD_VARINT);
            }
            value |= u64::from(byte & 0x7f) << (7 * at);
            if *byte < 0x80 {
                self.is_minimal &= *byte != 0 || at == 0;
                self.rest = self.rest.get(at + 1..).unwrap_or_default();
                return Ok(value);
            }
        }
        Err(CUT)
    }

    #[inline]
    pub(crate) fn fixed32(&mut self) -> Result<u32, PayloadFault> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(CUT)?;
        self.rest = rest;
        Ok(u32::from_le_bytes(*bytes))
    }

    #[inline]
    pub(crate) fn fixed64(&mut self) -> Result<u64, PayloadFault> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(CUT)?;
        self.rest = rest;
        Ok(u64::from_le_bytes(*bytes))
    }

    #[inline]
    pub(crate) fn bytes(&mut self) -> Result<&'b [u8], PayloadFault> {
        let len = usize::try_from(self.varint()?).map_err(|_| CUT)?;
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(CUT)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// The tag of the next field.
    #[inline]
    pub(crate) fn tag(&mut self) -> Result<u32, PayloadFault> {
        let tag = u32::try_from(self.varint()?).map_err(|_| BAD_TAG)?;
        if tag >> 3 == 0 { Err(BAD_TAG) } else { Ok(tag) }
    }

    /// Steps over the next tag if it is this one.
    #[inline]
    pub(crate) fn tag_is(&mut self, tag: u32) -> Result<bool, PayloadFault> {
        if self.is_empty() {
            return Ok(false);
        }
        let mut ahead = *self;
        let is_it = ahead.tag()? == tag;
        if is_it {
            *self = ahead;
        }
        Ok(is_it)
    }

    /// The value of a field with this tag.
    pub(crate) fn value(&mut self, tag: u32) -> Result<WireValue<'b>, PayloadFault> {
        Ok(match WireType::from_tag(tag).ok_or(BAD_TAG)? {
            WireType::Varint => WireValue::Number(self.varint()?),
            WireType::Fixed64 => WireValue::Number(self.fixed64()?),
            WireType::Fixed32 => WireValue::Number(u64::from(self.fixed32()?)),
            WireType::Len => WireValue::Bytes(self.bytes()?),
            WireType::Start => {
                self.skip_group(tag >> 3)?;
                WireValue::Group
            }
            WireType::End => return Err(BAD_TAG),
        })
    }

    /// Steps behind the end of a group. Groups in it need no recursion: only their numbers count.
    fn skip_group(&mut self, field: u32) -> Result<(), PayloadFault> {
        let mut open = vec![field];
        while let Some(inner) = open.last().copied() {
            let tag = self.tag()?;
            match WireType::from_tag(tag).ok_or(BAD_TAG)? {
                WireType::Start => open.push(tag >> 3),
                WireType::End if tag >> 3 == inner => drop(open.pop()),
                WireType::End => return Err(BAD_TAG),
                _ => drop(self.value(tag)?),
            }
        }
        Ok(())
    }
}

/// A signed number as zigzag.
#[inline]
pub(crate) fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63).cast_unsigned()
}

/// The signed number of a zigzag.
#[inline]
pub(crate) fn unzigzag(word: u64) -> i64 {
    (word >> 1).cast_signed() ^ -(word & 1).cast_signed()
}

#[inline]
pub(crate) fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

pub(crate) fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Writes what `write` writes, with its length in front.
pub(crate) fn put_delimited<E>(
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
) -> Result<(), E> {
    let start = out.len();
    // The length is seldom longer than a byte; if it is, the content moves.
    out.push(0);
    write(out)?;
    let len = out.len() - start - 1;
    let mut prefix = Vec::with_capacity(5);
    if len < 0x80 {
        if let Some(first) = out.get_mut(start) {
            *first = len as u8;
        }
        return Ok(());
    }
    put_varint(len as u64, &mut prefix);
    out.splice(start..=start, prefix);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back(value: u64, signed: i64) {
            let mut out = Vec::new();
            put_varint(value, &mut out);
            put_varint(zigzag(signed), &mut out);
            let mut cursor = WireCursor::new(&out);
            prop_assert_eq!(cursor.varint(), Ok(value));
            prop_assert_eq!(cursor.varint().map(unzigzag), Ok(signed));
            prop_assert!(cursor.is_empty() && cursor.is_minimal());
        }

        #[test]
        fn any_bytes_are_read_to_their_end_or_refused(bytes: Vec<u8>) {
            let mut cursor = WireCursor::new(&bytes);
            while !cursor.is_empty() {
                let Ok(tag) = cursor.tag() else { break };
                if cursor.value(tag).is_err() {
                    break;
                }
            }
        }
    }

    #[test]
    fn a_longer_form_of_a_number_is_not_minimal() {
        let mut cursor = WireCursor::new(&[0x81, 0x00]);
        assert_eq!(cursor.varint(), Ok(1));
        assert!(!cursor.is_minimal());
    }
}
