//! What stands before the messages of a file: the head and the index, as bytes.

use crate::wire::{FileHead, UNUSED};

/// The head, and an index of at least `least` entries.
pub(crate) struct HeadAndIndex<'p> {
    pub(crate) minor: u16,
    pub(crate) least: u32,
    /// Positions of the messages of the first entries, from the end of the index.
    pub(crate) positions: &'p [u64],
}

impl HeadAndIndex<'_> {
    pub(crate) fn head(&self) -> FileHead {
        let entries = u32::try_from(self.positions.len()).unwrap_or(u32::MAX).max(self.least);
        FileHead { minor: self.minor, ..FileHead::new(entries) }
    }

    /// Its bytes in chunks: there may be many.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = Vec<u8>> {
        let (head, count) = (self.head(), self.head().entries as usize);
        let starts = (0..count).step_by(CHUNK_ENTRIES);
        let entries = move |from: usize| -> Vec<u8> {
            let piece = from..count.min(from + CHUNK_ENTRIES);
            piece.flat_map(|entry| self.entry(&head, entry).to_le_bytes()).collect()
        };
        std::iter::once(head.write().to_vec()).chain(starts.map(entries))
    }

    fn entry(&self, head: &FileHead, entry: usize) -> i64 {
        self.positions.get(entry).map_or(UNUSED, |place| (head.body() + place).cast_signed())
    }

    /// All of its bytes.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.head().body() as usize);
        self.chunks().for_each(|piece| bytes.extend(piece));
        bytes
    }
}

/// Entries encoded at a time.
const CHUNK_ENTRIES: usize = 8 << 10;
