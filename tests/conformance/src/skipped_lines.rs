//! Lines of a text log that are no events, such as comments. A change may silently turn an event into
//! such a line, or join it to one: nothing in the format can show that.

use std::ops::Range;

use crate::extents::EventExtents;
use crate::hostile::ByteChange;

/// How the lines that are no events start.
#[derive(Debug, Default)]
pub(crate) struct SkippedLines {
    /// Their first bytes.
    starts: Vec<u8>,
}

impl SkippedLines {
    /// Those in front of events whose places are known exactly.
    pub(crate) fn between(bytes: &[u8], extents: &EventExtents) -> Self {
        let mut starts = Vec::new();
        for (event, place) in extents.exact_places() {
            let Some(place) = bytes.get(place) else { continue };
            // What comes first is the end of the line of the event before.
            let lines = place.split(|byte| *byte == b'\n').skip(usize::from(event > 0));
            let lines: Vec<&[u8]> = lines.collect();
            let skipped = lines.split_last().map_or(&[][..], |(_event, skipped)| skipped);
            starts.extend(skipped.iter().filter_map(|line| line.first()));
        }
        Self { starts }
    }

    /// Whether one of the lines that a change makes starts like these.
    pub(crate) fn may_come_from(&self, bytes: &[u8], change: &ByteChange) -> bool {
        let changed = change.apply(bytes);
        let lines =
            lines_at(&changed, change.range.start..change.range.start + change.replacement.len());
        changed.get(lines).is_some_and(|lines| {
            let mut lines = lines.split(|byte| *byte == b'\n');
            lines.any(|line| line.first().is_some_and(|first| self.starts.contains(first)))
        })
    }
}

/// The lines that contain these bytes, or this position between two.
fn lines_at(bytes: &[u8], range: Range<usize>) -> Range<usize> {
    let before = bytes.get(..range.start).unwrap_or(bytes);
    let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let behind = bytes.get(range.end..).unwrap_or_default();
    let end =
        behind.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |at| range.end + at);
    start..end
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extents::{CutResult, CutResults};

    const LOG: &[u8] = b"# a\n1 x\n; b\n\n2 y\n3 z\n";

    fn skipped_lines() -> SkippedLines {
        let mut cuts = CutResults::default();
        for at in 0..=LOG.len() {
            let events = [7, 16, 20].iter().filter(|end| **end <= at).count();
            cuts.add(at, CutResult { events, reported: false, failed: false, ends_damaged: false });
        }
        SkippedLines::between(LOG, &cuts.extents(3, LOG.len()).unwrap())
    }

    #[test]
    fn lines_between_events_are_known_by_their_first_bytes() {
        assert_eq!(skipped_lines().starts, b"#;");
    }

    #[test]
    fn a_change_that_makes_such_a_line_may_hide_an_event() {
        let hides = |change: ByteChange| skipped_lines().may_come_from(LOG, &change);
        assert!(hides(ByteChange::set(2, b"??".to_vec())));
        assert!(hides(ByteChange::delete(3..4)));
        assert!(hides(ByteChange::set(17, b"#".to_vec())));
        assert!(!hides(ByteChange::set(4, b"??".to_vec())));
        assert!(!hides(ByteChange::set(18, b"#".to_vec())));
        assert!(!hides(ByteChange::delete(5..7)));
    }
}
