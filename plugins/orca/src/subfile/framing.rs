//! How the records of a subfile are delimited. Reads no file.

use std::ops::Range;

use serde::Deserialize;

/// The length of the longest prefix: an id, and a length of eight bytes.
pub(super) const LONGEST_PREFIX: usize = 9;

/// The prefix of each record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecordPrefix {
    /// Whether there is an id byte, the kind of object.
    pub(crate) id: bool,
    /// Whether the length has eight bytes instead of four.
    pub(crate) wide: bool,
    /// Whether the first record has no id although the others have one.
    pub(crate) first_lacks_id: bool,
}

impl RecordPrefix {
    /// All prefixes, in order of preference. Only one interface uses the last two.
    pub(crate) const ALL: [Self; 6] = [
        Self { id: false, wide: false, first_lacks_id: false },
        Self { id: false, wide: true, first_lacks_id: false },
        Self { id: true, wide: false, first_lacks_id: false },
        Self { id: true, wide: true, first_lacks_id: false },
        Self { id: true, wide: false, first_lacks_id: true },
        Self { id: true, wide: true, first_lacks_id: true },
    ];

    /// The name in options and comments.
    pub(crate) fn word(self) -> &'static str {
        match (self.id, self.wide) {
            (false, false) => "u32",
            (false, true) => "u64",
            (true, false) => "id-u32",
            (true, true) => "id-u64",
        }
    }

    /// The prefix of that name.
    pub(crate) fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|prefix| prefix.word() == word)
    }

    pub(super) fn has_id(self, record: u64) -> bool {
        self.id && !(self.first_lacks_id && record == 0)
    }

    /// The length of a record's prefix in bytes.
    pub(crate) fn len(self, record: u64) -> usize {
        usize::from(self.has_id(record)) + if self.wide { 8 } else { 4 }
    }

    /// The id, and the length of the record.
    pub(super) fn parse(self, record: u64, bytes: &[u8], order: ByteOrder) -> Option<(u8, u64)> {
        let (id, length) = match bytes.split_first() {
            Some((id, rest)) if self.has_id(record) => (*id, rest),
            _ => (0, bytes),
        };
        let length = match (self.wide, order) {
            (false, ByteOrder::Little) => u32::from_le_bytes(*length.first_chunk()?).into(),
            (false, ByteOrder::Big) => u32::from_be_bytes(*length.first_chunk()?).into(),
            (true, ByteOrder::Little) => u64::from_le_bytes(*length.first_chunk()?),
            (true, ByteOrder::Big) => u64::from_be_bytes(*length.first_chunk()?),
        };
        Some((id, length))
    }
}

/// The byte order of lengths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(crate) enum ByteOrder {
    /// Little-endian, as on x86.
    #[default]
    Little,
    /// Big-endian.
    Big,
}

/// How the records of a subfile are delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordFraming {
    /// Length-prefixed records.
    Framed {
        /// The prefix of each record.
        prefix: RecordPrefix,
        /// The byte order of lengths.
        order: ByteOrder,
        /// Whether records may be empty: objects never are, other payloads can be.
        may_be_empty: bool,
    },
    /// One record per line.
    Lines,
}

impl RecordFraming {
    /// The id of a record, and the range of its payload in its bytes. `None` if these are not the
    /// bytes of one record.
    pub(crate) fn payload(self, record: u64, bytes: &[u8]) -> Option<(u8, Range<usize>)> {
        match self {
            Self::Framed { prefix, order, .. } => {
                let (id, len) = prefix.parse(record, bytes, order)?;
                let from = prefix.len(record);
                let to = from.checked_add(usize::try_from(len).ok()?)?;
                (to == bytes.len()).then_some((id, from..to))
            }
            Self::Lines => {
                let text = bytes.strip_suffix(b"\n").unwrap_or(bytes);
                let text = text.strip_suffix(b"\r").unwrap_or(text);
                (memchr::memchr(b'\n', text).is_none()).then_some((0, 0..text.len()))
            }
        }
    }
}
