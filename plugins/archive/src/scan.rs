//! Reads an archive whose foot is damaged or missing: goes from frame to frame, and finds the next one
//! behind damage. Knows no index.
//!
//! What is found behind damage is believed to be a frame if its checksum is right and it holds whole
//! events. An archive that lies in the payload of a damaged frame could be taken for a part of this one;
//! where the seek table can be read, its word on where frames begin is taken instead.

use std::collections::VecDeque;
use std::path::Path;

use bytes::Bytes;
use memchr::memmem;
use sluice_core::files::LogFile;
use sluice_core::frames::{
    self, FrameSpan, MAGIC, compress_bound, content_size, frame_len, skippable_len,
};
use sluice_core::{Batch, ByteFormat, Error, ReadContext, Reader, Seam};

use crate::format;
use crate::frame::Unpacker;
use crate::index::{self, Index};

/// How much is read at a time, and looked at for the next frame.
const STEP: u64 = 1 << 20;
/// How many places that look like frames may be none, between two frames that are.
const MOST_FALSE: u32 = 10_000;
/// How far is looked for the next frame before it is known what an archive holds.
const FAR: u64 = 64 << 20;
/// How many frames are looked at to find out what an archive holds.
const MOST_TRIED: u32 = 64;

/// A stretch of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stretch {
    /// What looks like a whole frame.
    Frame(u64),
    /// A whole frame that decompressors skip.
    Skipped(u64),
    /// Neither, or cut off.
    Rubbish,
}

/// Goes through an archive, stretch by stretch.
struct Walk {
    log: LogFile,
    len: u64,
    at: u64,
    /// Where frames begin, and the last one ends, if the seek table can be read.
    known: Vec<u64>,
    /// The longest frame that is looked for.
    longest: u64,
    window: Vec<u8>,
    base: u64,
}

impl Walk {
    fn new(mut log: LogFile, max_frame: u64) -> Result<Self, Error> {
        let known = known_starts(&mut log)?;
        let (len, longest) = (log.len().unwrap_or_default(), compress_bound(max_frame));
        Ok(Self { log, len, at: 0, known, longest, window: Vec::new(), base: 0 })
    }

    /// At least `want` bytes from `at` on; fewer only at the end.
    fn bytes(&mut self, at: u64, want: u64) -> Result<&[u8], Error> {
        let want = want.min(self.len.saturating_sub(at));
        let there = |walk: &Self| {
            let start = usize::try_from(at.checked_sub(walk.base)?).ok()?;
            let rest = walk.window.len().checked_sub(start)? as u64;
            (rest >= want).then_some(start)
        };
        let start = match there(self) {
            Some(start) => start,
            None => {
                let step = want.max(STEP).min(self.len.saturating_sub(at));
                self.window.resize(usize::try_from(step).unwrap_or(usize::MAX), 0);
                let read = self.log.read_at(at, &mut self.window)?;
                self.window.truncate(read);
                self.base = at;
                0
            }
        };
        Ok(self.window.get(start..).unwrap_or_default())
    }

    /// What begins where the walk is; nothing at the end.
    fn look(&mut self) -> Result<Option<Stretch>, Error> {
        let (at, len) = (self.at, self.len);
        if at >= len {
            return Ok(None);
        }
        if let Some(skip) = skippable_len(self.bytes(at, 8)?) {
            let is_whole = skip <= len - at;
            return Ok(Some(if is_whole { Stretch::Skipped(skip) } else { Stretch::Rubbish }));
        }
        Ok(Some(self.frame_len(at)?.map_or(Stretch::Rubbish, Stretch::Frame)))
    }

    /// The length of the frame that begins at `at`, if there is one.
    fn frame_len(&mut self, at: u64) -> Result<Option<u64>, Error> {
        let (mut want, longest) = (STEP, self.longest.min(self.len.saturating_sub(at)));
        loop {
            let bytes = self.bytes(at, want)?;
            let Some(plain) = content_size(bytes) else { return Ok(None) };
            if let Some(len) = frame_len(bytes) {
                return Ok(Some(len as u64));
            }
            // What claims more than it may is not read to find its end.
            let most = compress_bound(plain).min(longest);
            if bytes.len() as u64 >= most {
                return Ok(None);
            }
            want = want.saturating_mul(2).min(most);
        }
    }

    /// Whether something begins at `at` that an archive is made of, or it ends there.
    fn is_boundary(&mut self, at: u64) -> Result<bool, Error> {
        let len = self.len;
        let bytes = self.bytes(at, 8)?;
        Ok(at == len || bytes.starts_with(&MAGIC) || skippable_len(bytes).is_some())
    }

    /// The first place from `from` on where a frame begins that `believes` takes for one; `until` if
    /// there is none before.
    fn next_frame(
        &mut self,
        (from, until): (u64, u64),
        believes: &dyn Fn(&[u8]) -> bool,
    ) -> Result<u64, Error> {
        if let Some(start) = self.known.iter().find(|start| **start >= from) {
            return Ok(*start);
        }
        let (mut at, mut left) = (from, MOST_FALSE);
        while at < until && left > 0 {
            let bytes = self.bytes(at, STEP)?;
            let seen = bytes.len().saturating_sub(MAGIC.len() - 1).max(1) as u64;
            let Some(found) = memmem::find(bytes, &MAGIC) else {
                at += seen;
                continue;
            };
            at += found as u64;
            if let Some(len) = self.frame_len(at)? {
                let frame = self.bytes(at, len)?;
                let frame = usize::try_from(len).ok().and_then(|len| frame.get(..len));
                if frame.is_some_and(believes) {
                    return Ok(at);
                }
            }
            (at, left) = (at + 1, left - 1);
        }
        Ok(until)
    }
}

/// Where frames begin, and the last one ends, by the word of a seek table that adds up: behind its last
/// frame there is only one that decompressors skip.
fn known_starts(log: &mut LogFile) -> Result<Vec<u64>, Error> {
    let Some((spans, table)) = frames::seek_table(log)? else { return Ok(Vec::new()) };
    let end = spans.last().map_or(0, FrameSpan::end);
    let mut header = [0; 8];
    let read = log.read_at(end, &mut header)?;
    let skipped = header.get(..read).and_then(skippable_len);
    let adds_up = end == table || skipped == Some(table - end);
    let starts = spans.iter().map(|span| span.start).chain([end]);
    Ok(if adds_up { starts.collect() } else { Vec::new() })
}

/// Reads an archive from its first frame to its last.
pub(crate) struct Scan<'s> {
    walk: Walk,
    format: &'static dyn ByteFormat,
    unpacker: Unpacker<'s>,
    /// What a format's head and tail are: frames with these have no events.
    plain: [Vec<u8>; 2],
    ready: VecDeque<Batch>,
    /// Whether a seek table was seen at the end, or damage reaches it.
    is_told: bool,
    is_done: bool,
}

impl<'s> Scan<'s> {
    /// A scan of this file, if its frames have whole events of some format.
    pub(crate) fn of(
        log: LogFile,
        unpacker: Unpacker<'s>,
        max_frame: u64,
        doubt: Doubt,
    ) -> Result<Result<Self, NoArchive>, Error> {
        let mut walk = Walk::new(log, max_frame)?;
        let format = match format_of(&mut walk, &unpacker, doubt)? {
            Ok(format) => format,
            Err(other) => return Ok(Err(other)),
        };
        walk.at = 0;
        let (plain, ready) = ([format.head()?, format.tail()?], VecDeque::new());
        Ok(Ok(Self { walk, format, unpacker, plain, ready, is_told: false, is_done: false }))
    }

    fn step(&mut self) -> Result<(), Error> {
        let at = self.walk.at;
        match self.walk.look()? {
            None => {
                self.is_done = true;
                if !self.is_told {
                    self.unpacker.miss(at, at, "the archive is cut off: its seek table is missing");
                }
            }
            Some(Stretch::Skipped(len)) => {
                self.skip(len)?;
                self.walk.at = at + len;
            }
            Some(Stretch::Frame(len)) => {
                if let Err(reason) = self.read(len)? {
                    let end = at + len;
                    // The length of a damaged frame may be wrong, too.
                    let is_end = self.walk.is_boundary(end)?;
                    let end = if is_end { end } else { self.next_frame(at + 1)? };
                    self.miss(end, format!("a frame cannot be read: {reason}"));
                } else {
                    self.walk.at = at + len;
                }
            }
            Some(Stretch::Rubbish) => {
                let end = self.next_frame(at + 1)?;
                let cut = if end == self.walk.len { ", or the archive is cut off" } else { "" };
                self.miss(end, format!("no frame begins where one is due{cut}"));
            }
        }
        Ok(())
    }

    fn miss(&mut self, end: u64, reason: String) {
        self.unpacker.miss(self.walk.at, end, reason);
        self.is_told |= end == self.walk.len;
        self.walk.at = end;
    }

    /// Looks at a frame that decompressors skip: an index that cannot be read is damage.
    fn skip(&mut self, len: u64) -> Result<(), Error> {
        let at = self.walk.at;
        let is_last = at + len == self.walk.len;
        let bytes = self.walk.bytes(at, len.min(self.walk.longest))?;
        let Some(frame) = usize::try_from(len).ok().and_then(|len| bytes.get(..len)) else {
            return Ok(());
        };
        if !is_last && index::is_marked(frame) && Index::read(frame).is_none() {
            self.unpacker.miss(at, at + len, "the index of the archive cannot be read");
        }
        self.is_told |= is_last && frames::is_table(frame);
        Ok(())
    }

    fn read(&mut self, len: u64) -> Result<Result<(), String>, Error> {
        let bytes = self.walk.bytes(self.walk.at, len)?;
        let frame = usize::try_from(len).ok().and_then(|len| bytes.get(..len));
        let frame = frame.unwrap_or_default();
        let plain = match self.unpacker.judge(frame) {
            Ok(plain) => self.unpacker.unpack(&[(frame, plain)]).pop(),
            Err(reason) => return Ok(Err(reason)),
        };
        let plain = match plain.unwrap_or_else(|| Err("it was not read".into())) {
            Ok(plain) => plain,
            Err(reason) => return Ok(Err(reason)),
        };
        if self.plain.iter().any(|known| *known == *plain) {
            return Ok(Ok(()));
        }
        let batches = self.unpacker.decode(self.format, plain)?;
        Ok(batches.map(|batches| self.ready.extend(batches)))
    }

    fn next_frame(&mut self, from: u64) -> Result<u64, Error> {
        let (unpacker, format) = (&self.unpacker, self.format);
        let range = (from, self.walk.len);
        self.walk.next_frame(range, &|frame| holds(unpacker, frame, format))
    }
}

impl Reader for Scan<'_> {
    fn next_batch(&mut self) -> Result<Option<Batch>, Error> {
        while self.ready.is_empty() && !self.is_done && !self.unpacker.context().is_cancelled() {
            self.step()?;
        }
        Ok(self.ready.pop_front())
    }

    fn seam(&self) -> Seam {
        Seam { began: Some(0), ended: Some(self.walk.at) }
    }
}

/// What becomes of a file that looks as if another program had made it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// It is no archive: who reads such files may have it.
    Other,
    /// It is a damaged archive: nobody else reads it.
    Archive,
}

/// What a compressed file is that is not read as an archive.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoArchive {
    /// What it holds is something else.
    Other,
    /// Nothing in it can be read.
    Damaged,
}

/// Finds out by a file's first frames what it is an archive of.
///
/// A single frame, one that is too long, and one that does not say how long it is may be of another
/// program: a compressed log like any other need not fit into memory.
fn format_of(
    walk: &mut Walk,
    unpacker: &Unpacker<'_>,
    doubt: Doubt,
) -> Result<Result<&'static dyn ByteFormat, NoArchive>, Error> {
    let formats: Vec<&'static dyn ByteFormat> =
        format::names().into_iter().filter_map(format::find).collect();
    let mut else_it_is = NoArchive::Damaged;
    for _ in 0..MOST_TRIED {
        let at = walk.at;
        let Some(stretch) = walk.look()? else { break };
        let is_alone = stretch == Stretch::Frame(walk.len);
        if at == 0 && (is_alone || is_foreign(walk.bytes(0, STEP)?, unpacker)) {
            else_it_is = NoArchive::Other;
            if doubt == Doubt::Other {
                break;
            }
        }
        walk.at = match stretch {
            Stretch::Skipped(len) => at + len,
            Stretch::Rubbish => next_of_any(walk, unpacker, &formats)?,
            Stretch::Frame(len) => {
                let bytes = walk.bytes(at, len)?;
                let frame = usize::try_from(len).ok().and_then(|len| bytes.get(..len));
                if let Some(plain) = frame.and_then(|frame| plain(unpacker, frame)) {
                    if let Some(format) = formats.iter().find(|format| is_of(**format, &plain)) {
                        return Ok(Ok(*format));
                    }
                    else_it_is = NoArchive::Other;
                }
                let is_end = walk.is_boundary(at + len)?;
                if is_end { at + len } else { next_of_any(walk, unpacker, &formats)? }
            }
        };
    }
    Ok(Err(else_it_is))
}

/// The longest header of a frame, with its magic.
const MOST_HEADER: usize = 18;

fn is_foreign(frame: &[u8], unpacker: &Unpacker<'_>) -> bool {
    let is_frame = frame.len() >= MOST_HEADER && frame.starts_with(&MAGIC);
    is_frame && unpacker.judge(frame).is_err()
}

fn next_of_any(
    walk: &mut Walk,
    unpacker: &Unpacker<'_>,
    formats: &[&'static dyn ByteFormat],
) -> Result<u64, Error> {
    let range = (walk.at + 1, walk.len.min(walk.at + FAR));
    walk.next_frame(range, &|frame| formats.iter().any(|format| holds(unpacker, frame, *format)))
}

/// Whether a frame can be unpacked, and belongs into an archive of this format.
fn holds(unpacker: &Unpacker<'_>, frame: &[u8], format: &dyn ByteFormat) -> bool {
    plain(unpacker, frame).is_some_and(|plain| is_of(format, &plain))
}

/// Whether these bytes are what an archive of this format has in a frame. What is empty tells nothing.
fn is_of(format: &dyn ByteFormat, plain: &Bytes) -> bool {
    let ends = [format.head(), format.tail()];
    let is_end = ends.iter().any(|end| end.as_ref().is_ok_and(|end| *end == *plain));
    !plain.is_empty() && (is_end || reads(format, plain.clone()))
}

/// What a frame holds, if it can be unpacked.
fn plain(unpacker: &Unpacker<'_>, frame: &[u8]) -> Option<Bytes> {
    let mut plain = vec![0; unpacker.judge(frame).ok()?];
    frames::decompress(frame, &mut plain).ok()?;
    Some(plain.into())
}

/// Whether these bytes are whole events of this format.
fn reads(format: &dyn ByteFormat, plain: Bytes) -> bool {
    let context = ReadContext::standalone("");
    matches!(format.decode(plain, Path::new(""), &context), Ok(Ok(_)))
}
