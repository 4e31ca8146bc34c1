//! Reads a split of an archive whose foot is there: some frames, each where the seek table says.
//!
//! A frame that cannot be read is damage of exactly that frame.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use sluice_core::files::LogFile;
use sluice_core::frames::{FrameSpan, compress_bound};
use sluice_core::{Batch, Error, Query, Reader, Seam, Split, time};

use crate::foot::Foot;
use crate::frame::{Unpacker, room};

/// What is wrong with a split that is not of this archive.
pub(crate) const CHANGED: &str = "the archive has changed since it was looked at";

/// Gives the events of a split's frames.
pub(crate) struct FrameReader<'s> {
    log: LogFile,
    foot: Arc<Foot>,
    unpacker: Unpacker<'s>,
    /// The frames that are still to be read.
    frames: VecDeque<usize>,
    ready: VecDeque<Batch>,
    seam: Seam,
}

/// The frames of an archive that lie in a split; nothing if the split is not of this archive.
fn frames_of(foot: &Foot, split: &Split) -> Option<Range<usize>> {
    let end = split.end?;
    let first = foot.spans.partition_point(|span| span.start < split.start);
    let behind = foot.spans.partition_point(|span| span.start < end);
    let starts = foot.spans.get(first)?.start == split.start;
    let ends = foot.spans.get(behind.checked_sub(1)?)?.end() == end;
    (starts && ends && first < behind).then_some(first..behind)
}

impl<'s> FrameReader<'s> {
    pub(crate) fn new(
        log: LogFile,
        foot: Arc<Foot>,
        split: &Split,
        unpacker: Unpacker<'s>,
    ) -> Self {
        let context = unpacker.context();
        let frames = frames_of(&foot, split);
        if frames.is_none() {
            let end = split.end.unwrap_or(split.start);
            unpacker.miss(split.start, end, CHANGED);
        }
        let frames = frames.into_iter().flatten();
        let frames = wanted(&foot, frames, &context.query, Some(&context.source)).collect();
        let seam = Seam { began: Some(split.start), ended: split.end };
        Self { log, foot, unpacker, frames, ready: VecDeque::new(), seam }
    }

    /// Reads the next frames, as many as fit into a block, but at least one.
    fn fill(&mut self) -> Result<(), Error> {
        let run = self.next_run();
        let judged: Vec<_> = run.iter().map(|(_, span)| self.judge(span)).collect();
        let sound = || run.iter().zip(&judged).filter(|(_, judged)| judged.is_ok());
        let all: usize = sound().map(|((_, span), _)| span.compressed_len as usize).sum();
        let mut packed = self.unpacker.context().blocks.block_with_len(all);
        let (mut rest, mut frames) = (packed.as_mut_slice(), Vec::new());
        for ((_, span), _) in sound() {
            let (frame, behind) = rest.split_at_mut(span.compressed_len as usize);
            rest = behind;
            let read = self.log.read_at(span.start, frame)?;
            frames.push((frame.get(..read).unwrap_or_default(), span.content_len as usize));
        }
        let mut unpacked = self.unpacker.unpack(&frames).into_iter();
        drop(packed);
        for ((frame, span), judged) in run.into_iter().zip(judged) {
            let next = |()| unpacked.next().unwrap_or_else(|| Err("it was not read".into()));
            let plain = match judged.and_then(next) {
                Err(reason) => self.unpack_by_its_own_word(&span)?.ok_or(reason),
                plain => plain,
            };
            let batches = match (plain, self.foot.note(frame)) {
                (Ok(plain), Some(_)) => self.unpacker.decode(self.foot.format, plain)?,
                // A head or a tail has no events. That it could be unpacked is all there is to say.
                (plain, _) => plain.map(|_| Vec::new()),
            };
            match batches {
                Ok(batches) => self.ready.extend(batches),
                Err(reason) => self.miss(frame, &reason),
            }
        }
        Ok(())
    }

    /// What a frame holds that does not hold what the seek table says, because that is wrong: frames have
    /// checksums, and the table has none.
    fn unpack_by_its_own_word(&mut self, span: &FrameSpan) -> Result<Option<Bytes>, Error> {
        if u64::from(span.compressed_len) > compress_bound(self.unpacker.most()) {
            return Ok(None);
        }
        let mut block = self.unpacker.context().blocks.block_with_len(span.compressed_len as usize);
        // A block may be longer than was asked for.
        let frame = block.get_mut(..span.compressed_len as usize).unwrap_or_default();
        let read = self.log.read_at(span.start, frame)?;
        let frame = frame.get(..read).unwrap_or_default();
        let plain =
            self.unpacker.judge(frame).ok().filter(|plain| *plain != span.content_len as usize);
        let Some(plain) = plain else { return Ok(None) };
        Ok(self.unpacker.unpack(&[(frame, plain)]).pop().and_then(Result::ok))
    }

    fn next_run(&mut self) -> Vec<(usize, FrameSpan)> {
        let (mut run, mut left) = (Vec::new(), self.unpacker.context().blocks.block_len());
        while let Some(frame) = self.frames.front().copied() {
            let Some(span) = self.foot.spans.get(frame).copied() else { break };
            let needed = room(span.content_len as usize);
            if !run.is_empty() && needed > left {
                break;
            }
            left = left.saturating_sub(needed);
            run.push((frame, span));
            self.frames.pop_front();
        }
        run
    }

    /// Whether what the seek table says of a frame can be: it is read into memory then.
    fn judge(&self, span: &FrameSpan) -> Result<(), String> {
        let plain = u64::from(span.content_len);
        self.unpacker.judge_len(plain)?;
        if u64::from(span.compressed_len) > compress_bound(plain) {
            return Err(format!(
                "{} bytes are too many for {plain} compressed ones",
                span.compressed_len
            ));
        }
        Ok(())
    }

    fn miss(&self, frame: usize, reason: &str) {
        let Some(span) = self.foot.spans.get(frame) else { return };
        let (number, all) = (frame + 1, self.foot.spans.len());
        let held = match self.foot.note(frame) {
            Some(note) => {
                let (first, last) = (time::format(note.first), time::format(note.last));
                format!("{} events from {first} to {last}", note.events)
            }
            None => "no events".into(),
        };
        let reason = format!("frame {number} of {all}, with {held}: {reason}");
        self.unpacker.miss(span.start, span.end(), reason);
    }
}

/// Those of the frames that a query wants: all for a query that wants all, also those without events.
pub(crate) fn wanted<'f>(
    foot: &'f Foot,
    frames: impl Iterator<Item = usize> + 'f,
    query: &'f Query,
    source: Option<&str>,
) -> impl Iterator<Item = usize> + 'f {
    let wanted = foot.index.wanted(query, source);
    frames.filter(move |frame| match foot.note(*frame) {
        _ if query.is_all() => true,
        Some(note) => wanted.has(note),
        None => false,
    })
}

impl Reader for FrameReader<'_> {
    fn next_batch(&mut self) -> Result<Option<Batch>, Error> {
        while self.ready.is_empty() {
            if self.frames.is_empty() || self.unpacker.context().is_cancelled() {
                return Ok(None);
            }
            self.fill()?;
        }
        Ok(self.ready.pop_front())
    }

    fn seam(&self) -> Seam {
        self.seam
    }
}
