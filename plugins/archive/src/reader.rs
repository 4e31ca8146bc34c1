//! Reads the frames of a split of an archive with a footer, at the positions in the seek table.
//!
//! A frame that is not there is read where the headers of all frames say that it is. One that
//! cannot be read is damage of exactly that frame.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use sluice_io::files::{InputFiles, LogFile};
use sluice_io::frames::{MAGIC, compress_bound, content_size, frame_len, skippable_len};
use sluice_io::seek_table::FrameSpan;
use sluice_model::{Batch, Error, Query, Reader, Seam, Split, time};

use crate::footer::ArchiveFooter;
use crate::frame::{Unpacker, aligned_len};

/// The reason for damage if a split does not match the archive.
pub(crate) const CHANGED: &str = "the archive changed while it was being read";

/// What a wrong length in the seek table means for events behind the frame.
const UNKNOWN_POSITIONS: &str = "later event numbers that are positions may be wrong";

/// Reads the events of a split's frames.
pub(crate) struct FrameReader<'s> {
    log: LogFile,
    footer: Arc<ArchiveFooter>,
    unpacker: Unpacker<'s>,
    /// The frames still to be read.
    frames: VecDeque<usize>,
    ready: VecDeque<Batch>,
    seam: Seam,
}

/// The frames of a split; `None` if the split does not match the archive.
fn frames_of(footer: &ArchiveFooter, split: &Split) -> Option<Range<usize>> {
    let end = split.end?;
    let first = footer.spans.partition_point(|span| span.start < split.start);
    let end_frame = footer.spans.partition_point(|span| span.start < end);
    let starts = footer.spans.get(first)?.start == split.start;
    let ends = footer.spans.get(end_frame.checked_sub(1)?)?.end() == end;
    (starts && ends && first < end_frame).then_some(first..end_frame)
}

impl<'s> FrameReader<'s> {
    pub(crate) fn new(
        log: LogFile,
        footer: Arc<ArchiveFooter>,
        split: &Split,
        unpacker: Unpacker<'s>,
    ) -> Self {
        let context = unpacker.context();
        let frames = frames_of(&footer, split);
        if frames.is_none() {
            let end = split.end.unwrap_or(split.start);
            unpacker.report_damage(split.start, end, CHANGED);
        }
        let frames = frames.into_iter().flatten();
        let frames =
            matching_frames(&footer, frames, &context.query, Some(&context.source)).collect();
        let seam = Seam { began: Some(split.start), ended: split.end };
        Self { log, footer, unpacker, frames, ready: VecDeque::new(), seam }
    }

    /// Reads as many frames as fit into a block, at least one.
    fn read_run(&mut self) -> Result<(), Error> {
        let run = self.next_run();
        let checked: Vec<_> = run.iter().map(|(_, span)| self.check_span(span)).collect();
        let sound = || run.iter().zip(&checked).filter(|(_, checked)| checked.is_ok());
        let all: usize = sound().map(|((_, span), _)| span.compressed_len as usize).sum();
        let mut packed = self.unpacker.context().blocks.block_with_len(all);
        let (mut rest, mut frames) = (packed.as_mut_slice(), Vec::new());
        for ((_, span), _) in sound() {
            let (frame, remaining) = rest.split_at_mut(span.compressed_len as usize);
            rest = remaining;
            let read = self.log.read_at(span.start, frame)?;
            frames.push((frame.get(..read).unwrap_or_default(), span.content_len as usize));
        }
        let mut unpacked = self.unpacker.unpack(&frames).into_iter();
        drop(packed);
        for ((frame, span), checked) in run.into_iter().zip(checked) {
            let next = |()| unpacked.next().unwrap_or_else(|| Err("it was not read".into()));
            let plain = match checked.and_then(next) {
                Err(reason) => self.unpack_ignoring_table(frame, &span)?.ok_or(reason),
                Ok(plain) => Ok((plain, span.content_start)),
            };
            let batches = match (plain, self.footer.frame_summary(frame)) {
                (Ok((plain, position)), Some(_)) => {
                    self.unpacker.decode(self.footer.format, plain, position)?
                }
                // A head or tail has no events; it only has to be intact.
                (plain, _) => plain.map(|_| Vec::new()),
            };
            match batches {
                Ok(batches) => self.ready.extend(batches),
                // The frame may be elsewhere, but the search for it has ended early.
                Err(_) if self.unpacker.context().run.is_cancelled() => return Ok(()),
                Err(reason) => self.report_damage(frame, &reason),
            }
        }
        Ok(())
    }

    /// Unpacks a frame whose position or lengths in the seek table are wrong: frames have
    /// checksums, the table has none. Returns the position in the uncompressed log, too.
    fn unpack_ignoring_table(
        &mut self,
        frame: usize,
        listed: &FrameSpan,
    ) -> Result<Option<(Bytes, u64)>, Error> {
        let Some(span) = self.actual_span(frame, listed)?.filter(|span| span != listed) else {
            return Ok(None);
        };
        let (bytes, plain) = (self.read_span(&span)?, span.content_len as usize);
        if self.unpacker.checked_len(&bytes) != Ok(plain) {
            return Ok(None);
        }
        let unpacked = self.unpacker.unpack(&[(&bytes, plain)]).pop().and_then(Result::ok);
        if unpacked.is_some() {
            self.report_table(frame, listed, &span);
        }
        Ok(unpacked.map(|unpacked| (unpacked, span.content_start)))
    }

    /// Where a frame is that cannot be read where the seek table has it.
    fn actual_span(
        &mut self,
        frame: usize,
        listed: &FrameSpan,
    ) -> Result<Option<FrameSpan>, Error> {
        let (bytes, mut next) = (self.read_span(listed)?, [0; 8]);
        let read = self.log.read_at(listed.end(), &mut next)?;
        let next = next.get(..read).unwrap_or_default();
        let is_in_place = bytes.starts_with(&MAGIC)
            && match frame_len(&bytes) {
                Some(len) => len == bytes.len(),
                None => next.starts_with(&MAGIC) || skippable_len(next).is_some(),
            };
        if is_in_place {
            let content_len = content_size(&bytes).and_then(|len| u32::try_from(len).ok());
            return Ok(content_len.map(|content_len| FrameSpan { content_len, ..*listed }));
        }
        let inputs = self.unpacker.context().run.shared::<InputFiles>();
        let path = self.log.path();
        self.footer.actual_span(frame, || inputs.open_plain(path), &self.unpacker)
    }

    /// The bytes of a frame; none if it is longer than a frame may be.
    fn read_span(&mut self, span: &FrameSpan) -> Result<Bytes, Error> {
        let len = span.compressed_len as usize;
        if len as u64 > compress_bound(self.unpacker.max_frame()) {
            return Ok(Bytes::new());
        }
        let mut block = self.unpacker.context().blocks.block_with_len(len);
        // A block may be longer than requested.
        let bytes = block.get_mut(..len).unwrap_or_default();
        let read = self.log.read_at(span.start, bytes)?;
        Ok(block.freeze().slice(..read))
    }

    /// Reports a wrong length in the seek table. A wrong position follows from a wrong length of
    /// another frame.
    fn report_table(&self, frame: usize, listed: &FrameSpan, span: &FrameSpan) {
        let (number, table) = (frame + 1, &self.footer.table);
        let damage = if span.content_len != listed.content_len {
            let (actual, listed) = (span.content_len, listed.content_len);
            format!(
                "frame {number} has {actual} bytes uncompressed, and not {listed}; \
                 {UNKNOWN_POSITIONS}"
            )
        } else if span.compressed_len != listed.compressed_len {
            let (actual, listed) = (span.compressed_len, listed.compressed_len);
            format!("frame {number} is {actual} bytes long, and not {listed}")
        } else {
            return;
        };
        let reason = format!("the seek table of the archive is damaged: {damage}");
        self.unpacker.report_damage(table.start, table.end, reason);
    }

    fn next_run(&mut self) -> Vec<(usize, FrameSpan)> {
        let (mut run, mut left) = (Vec::new(), self.unpacker.context().blocks.block_len());
        while let Some(frame) = self.frames.front().copied() {
            let Some(span) = self.footer.spans.get(frame).copied() else { break };
            let needed = aligned_len(span.content_len as usize);
            if !run.is_empty() && needed > left {
                break;
            }
            left = left.saturating_sub(needed);
            run.push((frame, span));
            self.frames.pop_front();
        }
        run
    }

    /// Checks the lengths in the seek table before memory is allocated for them.
    fn check_span(&self, span: &FrameSpan) -> Result<(), String> {
        let plain = u64::from(span.content_len);
        self.unpacker.check_len(plain)?;
        if u64::from(span.compressed_len) > compress_bound(plain) {
            return Err(format!(
                "{} compressed bytes are too many for {plain} uncompressed ones",
                span.compressed_len
            ));
        }
        Ok(())
    }

    fn report_damage(&self, frame: usize, reason: &str) {
        let Some(span) = self.footer.spans.get(frame) else { return };
        let (number, all) = (frame + 1, self.footer.spans.len());
        let content = match self.footer.frame_summary(frame) {
            Some(note) => {
                let (first, last) = (time::format(note.first), time::format(note.last));
                format!("{} events from {first} to {last}", note.events)
            }
            None => "no events".into(),
        };
        let reason = format!("frame {number} of {all}, with {content}: {reason}");
        self.unpacker.report_damage(span.start, span.end(), reason);
    }
}

/// The frames that may match a query: every frame, even without events, if it matches everything.
pub(crate) fn matching_frames<'f>(
    footer: &'f ArchiveFooter,
    frames: impl Iterator<Item = usize> + 'f,
    query: &'f Query,
    source: Option<&str>,
) -> impl Iterator<Item = usize> + 'f {
    let pushdown = footer.index.pushdown(query, source);
    frames.filter(move |frame| match footer.frame_summary(*frame) {
        _ if query.is_all() => true,
        Some(note) => pushdown.may_match(note),
        None => false,
    })
}

impl Reader for FrameReader<'_> {
    fn next_batch(&mut self) -> Result<Option<Batch>, Error> {
        while self.ready.is_empty() {
            if self.frames.is_empty() || self.unpacker.context().run.is_cancelled() {
                return Ok(None);
            }
            self.read_run()?;
        }
        Ok(self.ready.pop_front())
    }

    fn seam(&self) -> Seam {
        self.seam
    }
}
