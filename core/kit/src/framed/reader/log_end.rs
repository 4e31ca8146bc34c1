//! What a reader of a framed log does where the log ends: it reports what is missing, and goes on
//! behind damage of compressed data.

use sluice_model::{Damage, Error};

use super::FramedReader;
use crate::framed::Framing;
use crate::gap::{self, GapEnd};

impl<F: Framing> FramedReader<F> {
    /// The log declares its end here, but its file continues.
    pub(super) fn note_trailing_bytes(&self, mark: u64) {
        let end = self.at.saturating_add(mark);
        let left = self.log.file.len().map_or(0, |len| len.saturating_sub(end));
        // Every split gets here; the one that contains the end reports it.
        if left > 0 && self.at >= self.start {
            let input = &self.input;
            let what = format!(
                "the log ends at byte {end}; the {left} bytes after it are not read: {input}"
            );
            self.context.losses.note(what, 0);
        }
    }

    /// The log ends before the split does: it was truncated after splitting.
    pub(super) fn report_truncation(&mut self) {
        // Each split reports its own part.
        let from = self.at.max(self.start);
        if self.was_stream && self.log.file.is_empty() {
            let reason = "the log became empty before it was read";
            self.context.damage.report(Damage::new(&self.input, 0, 0, reason));
        }
        if from >= self.expected || !self.log.file.is_shorter_than(self.expected) {
            return;
        }
        let (length, reason) = (self.expected - from, "the log became shorter while it was read");
        self.context.damage.report(Damage::new(&self.input, from, length, reason));
    }

    /// Goes on behind damage of compressed data that ended the log here, if anything follows that
    /// can be read. How much is missing is unknown.
    pub(super) fn pass_gap(&mut self) -> Result<bool, Error> {
        let Some(reason) = self.log.file.decompression_error().map(str::to_owned) else {
            return Ok(false);
        };
        let resume = |reader: &mut Self| reader.log.file.resume();
        let end = gap::pass_gap(self, self.at, resume, |reader, from| {
            let (range, framing) = (from..reader.end, &mut reader.framing);
            let next = reader.log.scan(|log| framing.find_after_gap(log, range))?.flatten();
            Ok(GapEnd { at: next.unwrap_or(from), is_found: next.is_some() })
        })?;
        let reason = gap::reason_with_place(reason, &mut self.log.file);
        self.report(end.at, reason, None);
        self.at = end.at;
        Ok(end.is_found)
    }
}
