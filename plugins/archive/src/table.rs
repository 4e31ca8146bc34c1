//! Compares the seek table of an archive with its frames, one by one. Reads nothing.

use sluice_io::seek_table::FrameSpan;

/// What the seek table at the end of an archive has, as far as it was compared.
///
/// Tables before the last one, of archives that were appended to, are not compared: no reader uses
/// them.
pub(crate) struct TableCheck {
    /// The frames in the table, by position from `base`; `None` if it cannot be read.
    spans: Option<Vec<FrameSpan>>,
    /// What positions in the table count from: the start of the archive that the table belongs to,
    /// shifted by bytes that were lost or added. Wraps.
    base: u64,
    /// The next frame in the table.
    next: usize,
    /// Whether frames may be missing here, or bytes were added.
    is_after_damage: bool,
    /// The first difference.
    difference: Option<String>,
    /// The uncompressed length of the archive, if the index contradicts the table.
    content_len: Option<u64>,
}

/// The number of entries searched for a frame behind damage that is not in its place: a file may
/// have any number of tables, and the search starts over behind each.
const MAX_MISSING_FRAMES: usize = 4096;

impl TableCheck {
    /// Compares with these frames; `content_len` is that of an index that contradicts them.
    pub(crate) fn new(spans: Option<Vec<FrameSpan>>, content_len: Option<u64>) -> Self {
        let (next, is_after_damage, difference) = (0, false, None);
        Self { spans, base: 0, next, is_after_damage, difference, content_len }
    }

    /// Compares a frame, which holds `content_len` bytes.
    pub(crate) fn compare(&mut self, start: u64, len: u64, content_len: u64) {
        if self.difference.is_some() {
            return;
        }
        if std::mem::take(&mut self.is_after_damage) {
            self.find(start, len, content_len);
        }
        let start = start.wrapping_sub(self.base);
        let lengths =
            |span: &FrameSpan| [span.start, span.compressed_len.into(), span.content_len.into()];
        let (found, expected) = ([start, len, content_len], self.span().map(lengths));
        let number = self.next + 1;
        if expected != Some(found) {
            let frame = |[start, len, content_len]: [u64; 3]| {
                format!("at byte {start}, {len} bytes long, {content_len} uncompressed")
            };
            let has = expected.map_or("is missing in the table".to_owned(), |expected| {
                format!("is {} in the table", frame(expected))
            });
            self.difference = Some(format!("frame {number}, {}, {has}", frame(found)));
        }
        self.next = number;
    }

    /// Finds the frame behind damage in the table, at its position if possible.
    fn find(&mut self, start: u64, len: u64, content_len: u64) {
        let left = self.spans.as_deref().unwrap_or_default().get(self.next..).unwrap_or_default();
        let is_alike = |span: &FrameSpan| {
            (u64::from(span.compressed_len), u64::from(span.content_len)) == (len, content_len)
        };
        let expected = start.wrapping_sub(self.base);
        // Of frames that start at the same byte, all but the last one are empty.
        let in_place = left.partition_point(|span| span.start <= expected).checked_sub(1);
        let in_place = in_place.filter(|at| {
            left.get(*at).is_some_and(|span| span.start == expected && is_alike(span))
        });
        let alike = || left.iter().take(MAX_MISSING_FRAMES).position(is_alike);
        let found = in_place.or_else(alike);
        if let Some((at, span)) = found.and_then(|at| Some((at, left.get(at)?))) {
            (self.next, self.base) = (self.next + at, start.wrapping_sub(span.start));
        }
    }

    /// Passes a skippable frame, which a table may have as one without content.
    pub(crate) fn skip(&mut self, start: u64, len: u64) {
        let start = start.wrapping_sub(self.base);
        let is_listed = self.span().is_some_and(|span| {
            (span.start, u64::from(span.compressed_len), span.content_len) == (start, len, 0)
        });
        self.next += usize::from(is_listed);
    }

    /// Passes damage, whose frames cannot be compared.
    pub(crate) fn pass_damage(&mut self) {
        self.is_after_damage = true;
    }

    /// Passes a seek table that ends at `end`, where another archive begins.
    pub(crate) fn restart(&mut self, end: u64) {
        *self = Self { base: end, ..Self::new(self.spans.take(), self.content_len) };
    }

    /// What is wrong with the table, once all frames are compared.
    pub(crate) fn fault(&self) -> Option<String> {
        let Some(spans) = &self.spans else { return Some("it cannot be read".to_owned()) };
        let (found, listed) = (self.next, spans.len());
        let surplus = || format!("it has {listed} frames, and the archive {found}");
        let is_surplus = found < listed && !self.is_after_damage;
        let contradiction = |len| {
            let listed = spans.last().map_or(0, FrameSpan::content_end);
            format!("its frames have {listed} bytes uncompressed, and {len} in the index")
        };
        let difference = self.difference.clone().or_else(|| is_surplus.then(surplus));
        difference.or_else(|| self.content_len.map(contradiction))
    }

    fn span(&self) -> Option<&FrameSpan> {
        self.spans.as_ref()?.get(self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table of `count` frames of ten bytes that have 20 bytes uncompressed.
    fn table(count: u64) -> TableCheck {
        let span = |n| FrameSpan {
            start: 10 * n,
            compressed_len: 10,
            content_len: 20,
            content_start: 20 * n,
        };
        TableCheck::new(Some((0..count).map(span).collect()), None)
    }

    /// Both loops would take very long if a frame were compared with all entries.
    #[test]
    fn frames_behind_damage_are_found_without_comparing_all_entries() {
        let mut check = table(1 << 20);
        for n in 0..1 << 17 {
            // One more byte in front of each frame: none is in its place.
            check.pass_damage();
            check.compare(11 * n + 1, 10, 20);
        }
        assert_eq!((check.next, check.difference.take()), (1 << 17, None));
        for n in 0..1 << 12 {
            check.restart(n);
            check.pass_damage();
            check.compare(n + 3, 10, 21);
        }
        assert!(check.fault().is_some());
    }
}
