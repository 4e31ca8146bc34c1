//! Compares the seek table of an archive with its frames, one by one. Reads nothing.

use sluice_io::frames::FrameSpan;

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
}

impl TableCheck {
    pub(crate) fn new(spans: Option<Vec<FrameSpan>>) -> Self {
        Self { spans, base: 0, next: 0, is_after_damage: false, difference: None }
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
        let left = self.spans.as_deref().unwrap_or_default().iter().enumerate().skip(self.next);
        let mut alike = left.filter(|(_, span)| {
            (u64::from(span.compressed_len), u64::from(span.content_len)) == (len, content_len)
        });
        let expected = start.wrapping_sub(self.base);
        let in_place = alike.clone().find(|(_, span)| span.start == expected);
        if let Some((at, span)) = in_place.or_else(|| alike.next()) {
            (self.next, self.base) = (at, start.wrapping_sub(span.start));
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
        *self = Self { base: end, ..Self::new(self.spans.take()) };
    }

    /// What is wrong with the table, once all frames are compared.
    pub(crate) fn fault(&self) -> Option<String> {
        let Some(spans) = &self.spans else { return Some("it cannot be read".to_owned()) };
        let (found, listed) = (self.next, spans.len());
        let surplus = || format!("it has {listed} frames, and the archive {found}");
        let is_surplus = found < listed && !self.is_after_damage;
        self.difference.clone().or_else(|| is_surplus.then(surplus))
    }

    fn span(&self) -> Option<&FrameSpan> {
        self.spans.as_ref()?.get(self.next)
    }
}
