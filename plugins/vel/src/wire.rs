//! The bytes of the file head and of one message: size, marker, type, version, time, payload.
//!
//! It does not decide whether a message is plausible; [`scan`](crate::scan) does. All numbers are
//! little-endian, without padding.

#![warn(clippy::indexing_slicing)]

/// The four bytes at the start of every file.
pub(crate) const MAGIC: [u8; 4] = [0xA4, b'V', b'E', b'L'];

/// Bytes of a file before its index.
pub(crate) const HEAD_LEN: usize = 12;

/// Bytes of one entry of the index.
pub(crate) const ENTRY_LEN: usize = 8;

/// An index entry without a position.
pub const UNUSED: i64 = -1;

/// Bytes of a message before its payload, including the size.
pub(crate) const HEADER_LEN: usize = 21;

/// Bytes of the size field, which the size does not count.
pub(crate) const SIZE_LEN: usize = 4;

/// The smallest size: a message without payload.
pub(crate) const MIN_SIZE: u32 = (HEADER_LEN - SIZE_LEN) as u32;

/// The marker of a message that has not been deleted.
pub const MARKER: u8 = 0x31;

/// In place of a size: nothing follows.
pub(crate) const END_MARK: u32 = u32::MAX;

/// The version of files written by Sluice.
pub(crate) const VERSION: (u16, u16) = (1, 1);

/// The head of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileHead {
    /// The version that readers have to know.
    pub major: u16,
    /// The version that readers need not know.
    pub minor: u16,
    /// Number of index entries.
    pub entries: u32,
}

impl FileHead {
    /// The head of a new file.
    pub fn new(entries: u32) -> Self {
        Self { major: VERSION.0, minor: VERSION.1, entries }
    }

    /// Parses a head, and the four bytes in place of `MAGIC`.
    pub fn parse(bytes: &[u8; HEAD_LEN]) -> Option<([u8; 4], Self)> {
        let (magic, rest) = bytes.split_first_chunk()?;
        let (major, rest) = rest.split_first_chunk()?;
        let (minor, rest) = rest.split_first_chunk()?;
        let (entries, _) = rest.split_first_chunk()?;
        let head = Self {
            major: u16::from_le_bytes(*major),
            minor: u16::from_le_bytes(*minor),
            entries: u32::from_le_bytes(*entries),
        };
        Some((*magic, head))
    }

    /// Start of the first message.
    pub fn body(&self) -> u64 {
        HEAD_LEN as u64 + u64::from(self.entries) * ENTRY_LEN as u64
    }

    /// The bytes of the head, magic number first.
    pub fn write(&self) -> [u8; HEAD_LEN] {
        let mut bytes = [0; HEAD_LEN];
        let rest = put(&mut bytes, MAGIC);
        let rest = put(rest, self.major.to_le_bytes());
        let rest = put(rest, self.minor.to_le_bytes());
        put(rest, self.entries.to_le_bytes());
        bytes
    }
}

/// The header of a message, unchecked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MessageHeader {
    /// Bytes of the message after the size.
    pub size: u32,
    /// [`MARKER`]; anything else in a deleted message.
    pub marker: u8,
    /// The type: [`simple_hash`](crate::hash::simple_hash) of the message's name.
    pub type_id: u32,
    /// The version of the payload's layout.
    pub version: i32,
    /// Milliseconds since the program that wrote the file was started.
    pub ms: f64,
}

/// A payload too long for the 32-bit size of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "payload of {0} bytes is longer than the {max} a vel message can hold",
    max = END_MARK - 1 - MIN_SIZE
)]
pub struct TooLong(pub usize);

impl MessageHeader {
    /// The header for a payload of this length.
    pub fn new(
        marker: u8,
        (type_id, version): (u32, i32),
        ms: f64,
        payload_len: usize,
    ) -> Result<Self, TooLong> {
        let size = u32::try_from(payload_len).ok().and_then(|len| len.checked_add(MIN_SIZE));
        let size = size.filter(|size| *size != END_MARK).ok_or(TooLong(payload_len))?;
        Ok(Self { size, marker, type_id, version, ms })
    }

    /// Parses a header.
    #[inline]
    pub fn parse(bytes: &[u8; HEADER_LEN]) -> Option<Self> {
        let (size, rest) = bytes.split_first_chunk()?;
        let (marker, rest) = rest.split_first()?;
        let (type_id, rest) = rest.split_first_chunk()?;
        let (version, rest) = rest.split_first_chunk()?;
        let (ms, _) = rest.split_first_chunk()?;
        Some(Self {
            size: u32::from_le_bytes(*size),
            marker: *marker,
            type_id: u32::from_le_bytes(*type_id),
            version: i32::from_le_bytes(*version),
            ms: f64::from_le_bytes(*ms),
        })
    }

    /// Bytes of the whole message, its size included.
    #[inline]
    pub fn message_len(&self) -> u64 {
        u64::from(self.size) + SIZE_LEN as u64
    }

    /// Bytes of the payload; 0 if the size is too small for the header.
    #[inline]
    pub fn payload_len(&self) -> u64 {
        u64::from(self.size.saturating_sub(MIN_SIZE))
    }

    /// The bytes of the header, size first.
    #[inline]
    pub fn write(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        let rest = put(&mut bytes, self.size.to_le_bytes());
        let rest = put(rest, [self.marker]);
        let rest = put(rest, self.type_id.to_le_bytes());
        let rest = put(rest, self.version.to_le_bytes());
        put(rest, self.ms.to_le_bytes());
        bytes
    }
}

/// Offset of the time in a message.
pub(crate) const TIME_AT: usize = HEADER_LEN - 8;

/// Appends one message to `out`.
///
/// `Err` if the payload does not fit the format; `out` is then unchanged.
pub fn append_message(
    out: &mut Vec<u8>,
    marker: u8,
    type_and_version: (u32, i32),
    ms: f64,
    payload: &[u8],
) -> Result<(), TooLong> {
    let header = MessageHeader::new(marker, type_and_version, ms, payload.len())?;
    out.reserve(HEADER_LEN + payload.len());
    out.extend_from_slice(&header.write());
    out.extend_from_slice(payload);
    Ok(())
}

/// Reads the string at the start of these bytes. Returns it and the rest; `None` if it is cut off.
pub(crate) fn read_string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(usize::try_from(u32::from_le_bytes(*len)).ok()?)
}

/// Writes `bytes` to the front of `to` and returns the rest. Writes nothing if `to` is too short.
#[inline]
fn put<const N: usize>(to: &mut [u8], bytes: [u8; N]) -> &mut [u8] {
    let Some((front, rest)) = to.split_first_chunk_mut() else { return &mut [] };
    *front = bytes;
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_head_is_laid_out_as_the_format_says() {
        let bytes = FileHead::new(0x0102).write();
        assert_eq!(bytes, [0xA4, 0x56, 0x45, 0x4C, 1, 0, 1, 0, 2, 1, 0, 0]);
        assert_eq!(FileHead::parse(&bytes), Some((MAGIC, FileHead::new(0x0102))));
    }

    #[test]
    fn the_largest_index_does_not_overflow() {
        assert_eq!(FileHead::new(u32::MAX).body(), 12 + 8 * 0xffff_ffff);
    }

    #[test]
    fn a_message_is_laid_out_as_the_format_says() {
        let mut file = Vec::new();
        append_message(&mut file, MARKER, (0x0001_8D07, 102), 10000.0, &[7, 8, 9]).unwrap();
        let expected = [
            &[20, 0, 0, 0, 0x31][..],
            &[0x07, 0x8D, 0x01, 0x00],
            &[102, 0, 0, 0],
            &[0, 0, 0, 0, 0, 0x88, 0xC3, 0x40],
            &[7, 8, 9],
        ];
        assert_eq!(file, expected.concat());
    }

    #[test]
    fn a_payload_whose_size_would_be_the_end_mark_is_too_long() {
        let most = (END_MARK - 1 - MIN_SIZE) as usize;
        assert_eq!(MessageHeader::new(MARKER, (0, 0), 0.0, most).unwrap().size, END_MARK - 1);
        let error = MessageHeader::new(MARKER, (0, 0), 0.0, most + 1).unwrap_err();
        assert!(
            error.to_string().contains("4294967278 bytes is longer than the 4294967277"),
            "{error}"
        );
    }

    #[test]
    fn a_string_that_does_not_fit_is_none() {
        assert_eq!(read_string(b"\x02\0\0\0abc"), Some((&b"ab"[..], &b"c"[..])));
        assert_eq!(read_string(b"\x04\0\0\0abc"), None);
        assert_eq!(read_string(b"\xff\xff\xff\xffabc"), None);
        assert_eq!(read_string(b"\0\0\0"), None);
    }

    proptest! {
        #[test]
        fn a_header_survives_writing_and_parsing(bytes: [u8; HEADER_LEN]) {
            // Bytes, not values: a time may be any NaN.
            prop_assert_eq!(MessageHeader::parse(&bytes).map(|header| header.write()), Some(bytes));
        }

        #[test]
        fn a_string_is_a_part_of_what_it_is_read_from(
            bytes in proptest::collection::vec(prop_oneof![0u8..8, any::<u8>()], 0..24),
        ) {
            if let Some((text, rest)) = read_string(&bytes) {
                prop_assert_eq!(4 + text.len() + rest.len(), bytes.len());
            }
        }
    }
}
