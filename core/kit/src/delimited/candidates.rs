//! The positions at which events may start: at their markers, or anywhere. Parses nothing.

#![warn(clippy::indexing_slicing)]

use std::ops::Range;

use sluice_model::Error;

use super::EventMarker;
use crate::window::{ReadAt, Search};

/// The positions at which events may start, in order.
pub(super) struct CandidateStarts<'m> {
    /// No position is before this.
    pub(super) from: u64,
    pub(super) search: Search,
    mark: EventMarker<'m>,
}

impl<'m> CandidateStarts<'m> {
    /// Positions in this range of a log that can be read at any position.
    pub(super) fn within(mark: EventMarker<'m>, range: Range<u64>) -> Self {
        let before = match mark {
            EventMarker::Ends(mark) => mark.len() as u64,
            EventMarker::Begins(_) | EventMarker::None => 0,
        };
        let marks = range.start.saturating_sub(before)..range.end.saturating_sub(before);
        Self { from: marks.start, search: Search::new(marks, overlap(mark)), mark }
    }

    /// Positions after `pos` and before `end`; nothing before `pos` is read.
    pub(super) fn after(mark: EventMarker<'m>, pos: u64, end: u64) -> Self {
        let from = match mark {
            EventMarker::Ends(_) => pos,
            EventMarker::Begins(_) | EventMarker::None => pos.saturating_add(1),
        };
        Self { from, search: Search::new(from..end, overlap(mark)), mark }
    }

    /// The next position.
    pub(super) fn next(&mut self, log: &mut dyn ReadAt) -> Result<Option<u64>, Error> {
        let first = |mark: &[u8], bytes: &[u8]| {
            memchr::memmem::find(bytes, mark).map(|at| (at, at.saturating_add(1)))
        };
        let found = match self.mark {
            EventMarker::None => {
                self.search.next(log, |bytes| (!bytes.is_empty()).then_some((0, 1)))?
            }
            EventMarker::Begins(mark) | EventMarker::Ends(mark) => {
                self.search.next(log, |bytes| first(mark, bytes))?
            }
        };
        let behind = match self.mark {
            EventMarker::Ends(mark) => mark.len() as u64,
            EventMarker::Begins(_) | EventMarker::None => 0,
        };
        Ok(found.map(|at| at.saturating_add(behind)))
    }
}

/// The length of a marker, less its first byte.
fn overlap(mark: EventMarker<'_>) -> usize {
    match mark {
        EventMarker::None => 0,
        EventMarker::Begins(mark) | EventMarker::Ends(mark) => mark.len().saturating_sub(1),
    }
}
