//! Reads one split of a file of JSON lines into batches, and reports damage.

use std::path::Path;
use std::sync::Arc;

use sluice_io::escape::escaped_path;
use sluice_io::files::InputContent;
use sluice_kit::framed::LIKELY_EVENTS;
use sluice_kit::gap;
use sluice_kit::lines::{LineReader, LineSpan};
use sluice_model::{
    Batch, BatchBuilder, ChannelId, Damage, Error, PayloadOffset, ReadContext, Reader, Seam, Split,
    SplitStart,
};

use super::event::{EventHead, EventLines, LineContent};
use crate::{seek_table, without_mark};

/// Reads one split of a file of JSON lines.
#[derive(Debug)]
pub(crate) struct JsonLineReader {
    lines: LineReader,
    events: EventLines,
    context: ReadContext,
    input: Arc<str>,
    max_len: usize,
    start: u64,
    /// Lines that start here or later belong to the next split.
    end: u64,
    /// The known end of the split in the file.
    expected: u64,
    began: Option<u64>,
    /// Whether compressed data was damaged.
    has_gap: bool,
    done: bool,
}

impl JsonLineReader {
    /// Opens a file at a split. Lines longer than `max_len` bytes are damage.
    pub(crate) fn open(
        path: &Path,
        split: &Split,
        entry: SplitStart,
        max_len: usize,
        context: &ReadContext,
    ) -> Result<Self, Error> {
        let end = split.end.unwrap_or(u64::MAX);
        let at = match entry {
            SplitStart::At(at) => at,
            // Starting one byte earlier finds a line that starts exactly at the split.
            SplitStart::Search => split.start.saturating_sub(1),
        };
        let log = context.open_log(path, InputContent::Marked)?;
        let mut lines = LineReader::new(log, at, max_len).until(end);
        let is_placed = matches!(entry, SplitStart::At(_)) || split.start == 0;
        let began = (is_placed || lines.skip_line(end)?).then(|| lines.position());
        let expected = split.bytes.map_or(0, |bytes| split.start.saturating_add(bytes));
        Ok(Self {
            lines,
            events: EventLines::new(Arc::clone(&context.channels)),
            context: context.clone(),
            input: escaped_path(path).into(),
            max_len,
            start: split.start,
            end,
            expected: split.end.unwrap_or(expected),
            began,
            has_gap: false,
            done: began.is_none(),
        })
    }

    /// Reads events until they fill a block or the split ends.
    fn fill(&mut self) -> Result<Batch, Error> {
        let (mut batch, from) = (BatchBuilder::with_capacity(LIKELY_EVENTS), self.lines.position());
        let mut payloads = self.context.blocks.buffer();
        let enough = from.saturating_add(self.context.blocks.block_len() as u64).min(self.end);
        while self.lines.position() < enough && (batch.is_empty() || !self.lines.would_wait()) {
            let Some(line) = self.lines.step()? else {
                if self.pass_gap()? {
                    continue;
                }
                self.end_early()?;
                break;
            };
            if let Some(head) = self.event(line, &mut payloads)? {
                let EventHead { timestamp, sequence, channel, payload } = head;
                let place = PayloadOffset { segment: 0, offset: payload.start as u32 };
                let payload = payloads.get(payload).unwrap_or_default();
                batch.push(timestamp, sequence, channel, payload, place);
            }
        }
        self.done |= self.lines.position() >= self.end;
        self.context.run.count_read(self.lines.position() - from);
        if let Some(word) = self.events.take_unknown_encoding() {
            self.note_unknown_encoding(&word);
        }
        if !batch.is_empty() {
            batch.segment(payloads.freeze());
        }
        Ok(batch.finish())
    }

    /// The event of a line, if it has one. Appends its payload to `payloads`.
    fn event(
        &mut self,
        line: LineSpan,
        payloads: &mut Vec<u8>,
    ) -> Result<Option<EventHead>, Error> {
        if !line.is_complete {
            self.report(line, format!("the line is longer than {} bytes", self.max_len), None);
            return Ok(None);
        }
        let text = self.lines.bytes(line);
        let text = if line.at == 0 { without_mark(text) } else { text };
        match self.events.read(text, payloads)? {
            LineContent::Event(head) => return Ok(Some(head)),
            LineContent::Blank => {}
            LineContent::Damage(reason, channel) => self.report(line, reason, channel),
        }
        Ok(None)
    }

    fn note_unknown_encoding(&self, word: &str) {
        let input = &self.input;
        let what = format!(
            "unknown `encoding` `{word}` in lines; their payloads are kept as they are: {input}"
        );
        self.context.losses.note(what, 0);
    }

    fn report(&self, line: LineSpan, reason: String, channel: Option<ChannelId>) {
        let mut damage = Damage::new(&self.input, line.at, line.end - line.at, reason);
        damage.channel = channel;
        if self.context.damage.keeps_bytes() && line.is_complete && !self.lines.log().is_seekable()
        {
            damage.bytes = vec![self.lines.bytes(line).to_vec().into()];
        }
        self.context.damage.report(damage);
    }

    /// Goes on behind damage of compressed data that ended the file here, if anything follows. How
    /// much is missing is unknown, and of the line that follows first the start may be: no such
    /// line is an event.
    fn pass_gap(&mut self) -> Result<bool, Error> {
        let Some(reason) = self.lines.log().decompression_error().map(str::to_owned) else {
            return Ok(false);
        };
        self.has_gap = true;
        let (at, mut is_found) = (self.lines.position(), false);
        while !is_found && self.lines.resume()? {
            is_found = !self.lines.is_at_end()?;
        }
        let reason = gap::reason_with_place(reason, self.lines.log_mut());
        self.context.damage.report(Damage::new(&self.input, at, 0, reason));
        Ok(is_found)
    }

    /// Handles a file that ends before the split does, and cancellation.
    fn end_early(&mut self) -> Result<(), Error> {
        self.done = true;
        if self.lines.log().is_cancelled() {
            return Ok(());
        }
        let at = self.lines.position();
        if !self.has_gap && !self.lines.log().is_seekable() {
            seek_table::report_fault(self.lines.log().path(), at, &self.context)?;
        }
        // Each split reports its own part.
        let from = at.max(self.start);
        if from < self.expected && self.lines.log().is_shorter_than(self.expected) {
            let (length, reason) =
                (self.expected - from, "the file became shorter while it was read");
            self.context.damage.report(Damage::new(&self.input, from, length, reason));
        }
        Ok(())
    }
}

impl Reader for JsonLineReader {
    fn next_batch(&mut self) -> Result<Option<Batch>, Error> {
        while !self.done && !self.lines.log().is_cancelled() {
            let batch = self.fill()?;
            // Without events between it, damage may be any number of ranges.
            if !batch.is_empty() || self.context.damage.is_full() {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    fn seam(&self) -> Seam {
        Seam { began: self.began, ended: self.began.map(|_| self.lines.position()) }
    }
}
