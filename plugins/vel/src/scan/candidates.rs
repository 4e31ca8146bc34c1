//! Searches for positions where a message may start. Whether one does, [`scan`](super) decides.

use std::ops::Range;

use sluice_kit::window::{ReadAt, Search};
use sluice_model::Error;

use crate::rules::Rules;
use crate::wire::{MARKER, MIN_SIZE, SIZE_LEN};

/// Searches a range for positions where a message may start, front to back: with a possible size
/// before a marker.
pub(super) struct CandidateSearch {
    pub(super) search: Search,
    max_message: u64,
}

impl CandidateSearch {
    pub(super) fn new(range: Range<u64>, rules: &Rules) -> Self {
        Self { search: Search::new(range, SIZE_LEN), max_message: rules.max_message }
    }

    /// The next candidate.
    pub(super) fn next(&mut self, log: &mut dyn ReadAt) -> Result<Option<u64>, Error> {
        self.search.next(log, |bytes| find_candidate(bytes, self.max_message))
    }
}

/// The first candidate in these bytes, and how many of them have then been searched.
fn find_candidate(bytes: &[u8], max_message: u64) -> Option<(usize, usize)> {
    let mut at = 0;
    loop {
        let rest = bytes.get(at..)?;
        at += memchr::memchr(MARKER, rest.get(SIZE_LEN..)?)?;
        let (size, _) = bytes.get(at..)?.split_first_chunk()?;
        let size = u32::from_le_bytes(*size);
        if size >= MIN_SIZE && u64::from(size) <= max_message {
            return Some((at, at + 1));
        }
        at += 1;
    }
}
