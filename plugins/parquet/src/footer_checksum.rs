//! The checksum of the page index and the footer of a table, for which Parquet has no field: 20
//! bytes between the two, where readers of other programs do not look.

/// Marks the checksum.
const MAGIC: [u8; 8] = *b"SluiceCk";

/// What is checked: the bytes from `start` to this checksum, and the footer after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FooterChecksum {
    /// The offset of the page index.
    pub(crate) start: u64,
    /// The CRC-32.
    pub(crate) crc32: u32,
}

impl FooterChecksum {
    /// Its length in a file.
    pub(crate) const LEN: usize = 20;

    /// Its bytes in a file.
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        [&MAGIC[..], &self.start.to_le_bytes(), &self.crc32.to_le_bytes()].concat()
    }

    /// Reads it; `None` if these are other bytes.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (start, crc32) = bytes.strip_prefix(&MAGIC)?.split_first_chunk()?;
        let crc32 = u32::from_le_bytes(crc32.try_into().ok()?);
        Some(Self { start: u64::from_le_bytes(*start), crc32 })
    }
}
