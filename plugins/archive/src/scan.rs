//! Reads an archive without an intact footer: frame by frame, searching for the next frame after
//! damage. Does not use the index.
//!
//! A match after damage is accepted as a frame if its checksum is right and it holds whole events.
//! An archive inside the payload of a damaged frame could be mistaken for a part of this one; if
//! the seek table is readable, it determines where frames start instead.

use std::collections::VecDeque;
use std::path::Path;

use bytes::Bytes;
use memchr::memmem;
use sluice_io::LogWindow;
use sluice_io::files::LogFile;
use sluice_io::frames::{self, MAGIC, compress_bound, content_size, frame_len, skippable_len};
use sluice_io::seek_table::{self, FrameSpan};
use sluice_model::{Batch, ByteFormat, Error, ReadContext, Reader, Registry, Seam};

use crate::format;
use crate::frame::Unpacker;
use crate::index::{self, ArchiveIndex};
use crate::table::TableCheck;

/// The bytes read and searched at a time.
const READ_LEN: u64 = 1 << 20;
/// The maximum number of false matches between two frames.
const MAX_FALSE_MATCHES: u32 = 10_000;
/// The maximum distance to the next frame while the format is unknown.
const MAX_DETECT_DISTANCE: u64 = 64 << 20;
/// The maximum number of frames examined to detect the format.
const MAX_DETECT_FRAMES: u32 = 64;
/// What damage without a known uncompressed length means for events behind it.
const UNKNOWN_LENGTH: &str = "how many bytes of the log are missing is unknown: later event \
                              numbers that are positions may be wrong";

/// What is at a position of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScanSegment {
    /// What looks like a whole frame.
    Frame(u64),
    /// A whole skippable frame.
    Skippable(u64),
    /// Anything else, or a frame that is cut off.
    Garbage,
}

/// Walks through an archive segment by segment.
struct FrameWalk {
    log: LogFile,
    len: u64,
    at: u64,
    /// The frames and, without a length, the end of the last one, if the seek table is readable.
    known_frames: Vec<FrameSpan>,
    /// Whether the index contradicts the uncompressed lengths in the seek table.
    is_length_wrong: bool,
    /// The maximum length of a frame.
    longest: u64,
    window: LogWindow,
}

impl FrameWalk {
    fn new(log: LogFile, max_frame: u64) -> Self {
        let (len, longest) = (log.len().unwrap_or_default(), compress_bound(max_frame));
        let (known_frames, window) = (Vec::new(), LogWindow::default());
        Self { log, len, at: 0, known_frames, is_length_wrong: false, longest, window }
    }

    /// Reads the seek table, which determines where frames are after damage.
    fn read_table(&mut self) -> Result<TableCheck, Error> {
        let Some((spans, table)) = seek_table::read(&mut self.log)? else {
            return Ok(TableCheck::new(None, None));
        };
        let (start, content_start) =
            spans.last().map_or((0, 0), |last| (last.end(), last.content_end()));
        let index = ArchiveIndex::between(&mut self.log, start, table)?;
        let index_len = index.and_then(|index| index.content_len);
        let contradicting_len = index_len.filter(|len| *len != content_start);
        self.is_length_wrong = contradicting_len.is_some();
        // Only one skippable frame may follow the last frame.
        if start == table || skippable_len(self.bytes(start, 8)?) == Some(table - start) {
            let end = FrameSpan { start, compressed_len: 0, content_len: 0, content_start };
            self.known_frames = spans.iter().copied().chain([end]).collect();
        }
        Ok(TableCheck::new(Some(spans), contradicting_len))
    }

    /// At least `want` bytes from `at` on; fewer only at the end.
    fn bytes(&mut self, at: u64, want: u64) -> Result<&[u8], Error> {
        let left = self.len.saturating_sub(at);
        let [least, most] = [want, want.max(READ_LEN)]
            .map(|len| usize::try_from(len.min(left)).unwrap_or(usize::MAX));
        self.window.view(at, least, most, |space| self.log.read_at(at, space))
    }

    /// The segment at the current position; `None` at the end.
    fn peek(&mut self) -> Result<Option<ScanSegment>, Error> {
        let (at, len) = (self.at, self.len);
        if at >= len {
            return Ok(None);
        }
        if let Some(skip) = skippable_len(self.bytes(at, 8)?) {
            let is_whole = skip <= len - at;
            return Ok(Some(if is_whole {
                ScanSegment::Skippable(skip)
            } else {
                ScanSegment::Garbage
            }));
        }
        Ok(Some(self.frame_len(at)?.map_or(ScanSegment::Garbage, ScanSegment::Frame)))
    }

    /// The length of the frame at `at`, if there is one.
    fn frame_len(&mut self, at: u64) -> Result<Option<u64>, Error> {
        let (mut want, longest) = (READ_LEN, self.longest.min(self.len.saturating_sub(at)));
        loop {
            let bytes = self.bytes(at, want)?;
            let Some(plain) = content_size(bytes) else { return Ok(None) };
            if let Some(len) = frame_len(bytes) {
                return Ok(Some(len as u64));
            }
            // Do not read beyond the limit to find the end.
            let most = compress_bound(plain).min(longest);
            if bytes.len() as u64 >= most {
                return Ok(None);
            }
            want = want.saturating_mul(2).min(most);
        }
    }

    /// Whether a frame of any kind starts at `at`, or the archive ends there.
    fn is_boundary(&mut self, at: u64) -> Result<bool, Error> {
        let len = self.len;
        let bytes = self.bytes(at, 8)?;
        Ok(at == len || bytes.starts_with(&MAGIC) || skippable_len(bytes).is_some())
    }

    /// The uncompressed length of the frames from `from` to `end`, if the seek table has both, and
    /// the index does not contradict it.
    fn known_len(&self, from: u64, end: u64) -> Option<u64> {
        if self.is_length_wrong {
            return None;
        }
        let frames = &self.known_frames;
        let [from, end] = [from, end].map(|at| {
            let found = frames.binary_search_by_key(&at, |span| span.start).ok()?;
            frames.get(found).map(|span| span.content_start)
        });
        end?.checked_sub(from?)
    }

    /// The next frame from `from` on that `believes` accepts; `until` if there is none before.
    fn next_frame(
        &mut self,
        (from, until): (u64, u64),
        believes: &dyn Fn(&[u8]) -> bool,
    ) -> Result<u64, Error> {
        let known = self.known_frames.partition_point(|frame| frame.start < from);
        if let Some(frame) = self.known_frames.get(known) {
            return Ok(frame.start);
        }
        let (mut at, mut left) = (from, MAX_FALSE_MATCHES);
        while at < until && left > 0 {
            let bytes = self.bytes(at, READ_LEN)?;
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

/// Where the frames of an archive are, from their own headers: `None` unless there are `count` of
/// them, one right after the other, up to `end`.
///
/// Reads everything up to `end`.
pub(crate) fn actual_spans(
    log: LogFile,
    unpacker: &Unpacker<'_>,
    (count, end): (usize, u64),
) -> Result<Option<Vec<FrameSpan>>, Error> {
    let mut walk = FrameWalk::new(log, unpacker.max_frame());
    let (mut spans, mut content_start) = (Vec::new(), 0);
    while walk.at < end && spans.len() < count && !unpacker.context().run.is_cancelled() {
        let (start, found) = (walk.at, walk.peek()?);
        let Some(ScanSegment::Frame(len)) = found else { return Ok(None) };
        let plain = content_size(walk.bytes(start, len)?).and_then(|len| u32::try_from(len).ok());
        let (Ok(compressed_len), Some(content_len)) = (u32::try_from(len), plain) else {
            return Ok(None);
        };
        let span = FrameSpan { start, compressed_len, content_len, content_start };
        (walk.at, content_start) = (span.end(), span.content_end());
        spans.push(span);
    }
    Ok((spans.len() == count && walk.at == end).then_some(spans))
}

/// Reads an archive from its first frame to its last.
pub(crate) struct FrameScan<'s> {
    walk: FrameWalk,
    format: &'static dyn ByteFormat,
    unpacker: Unpacker<'s>,
    table: TableCheck,
    /// The format's head and tail: frames with these have no events.
    head_and_tail: [Vec<u8>; 2],
    ready: VecDeque<Batch>,
    /// The uncompressed length of the log so far, where damage has the length that it declares.
    position: u64,
    /// Whether there is a seek table at the end, or damage up to the end has been reported.
    has_reported_end: bool,
    is_done: bool,
}

impl<'s> FrameScan<'s> {
    /// Opens a scan of this file, if its frames have whole events of some format.
    pub(crate) fn open(
        log: LogFile,
        unpacker: Unpacker<'s>,
        max_frame: u64,
        doubt: AmbiguousFile,
        registry: &Registry,
    ) -> Result<Result<Self, ScanRefusal>, Error> {
        let formats = format::format_names(registry).into_iter();
        let formats: Vec<&'static dyn ByteFormat> =
            formats.filter_map(|name| format::find_format(name, registry)).collect();
        let mut walk = FrameWalk::new(log, max_frame);
        let table = walk.read_table()?;
        let format = match detect_format(&mut walk, &unpacker, &formats, doubt)? {
            Ok(format) => format,
            Err(other) => return Ok(Err(other)),
        };
        walk.at = 0;
        let (head_and_tail, ready) = ([format.head()?, format.tail()?], VecDeque::new());
        Ok(Ok(Self {
            walk,
            format,
            unpacker,
            table,
            head_and_tail,
            ready,
            position: 0,
            has_reported_end: false,
            is_done: false,
        }))
    }

    fn step(&mut self) -> Result<(), Error> {
        let at = self.walk.at;
        match self.walk.peek()? {
            None => {
                self.is_done = true;
                if !self.has_reported_end {
                    self.unpacker.report_damage(
                        at,
                        at,
                        "the archive is cut off: its seek table is missing",
                    );
                }
            }
            Some(ScanSegment::Skippable(len)) => {
                self.skip(len)?;
                self.walk.at = at + len;
            }
            Some(ScanSegment::Frame(len)) => {
                let position = self.position;
                if let Err(reason) = self.read(len)? {
                    let end = at + len;
                    // The length of a damaged frame may be wrong, too.
                    let is_end = self.walk.is_boundary(end)?;
                    let end = if is_end { end } else { self.next_frame(at + 1)? };
                    self.report_damage(position, end, format!("a frame cannot be read: {reason}"));
                } else {
                    self.table.compare(at, len, self.position - position);
                    self.walk.at = at + len;
                }
            }
            Some(ScanSegment::Garbage) => {
                let end = self.next_frame(at + 1)?;
                let cut = if end == self.walk.len { "; the archive may be cut off" } else { "" };
                self.report_damage(self.position, end, format!("expected a frame here{cut}"));
            }
        }
        Ok(())
    }

    /// Reports damage up to `end` that begins at `position` of the uncompressed log. Only a seek
    /// table tells its length there.
    fn report_damage(&mut self, position: u64, end: u64, mut reason: String) {
        match self.walk.known_len(self.walk.at, end) {
            Some(len) => self.position = position.saturating_add(len),
            None if end == self.walk.len => {}
            None => reason = format!("{reason}; {UNKNOWN_LENGTH}"),
        }
        self.unpacker.report_damage(self.walk.at, end, reason);
        self.table.pass_damage();
        self.has_reported_end |= end == self.walk.len;
        self.walk.at = end;
    }

    /// Checks a skippable frame: an unreadable index is damage, and so is a seek table at the end
    /// that does not match the frames.
    fn skip(&mut self, len: u64) -> Result<(), Error> {
        let at = self.walk.at;
        let is_last = at + len == self.walk.len;
        let rest = self.walk.len - (at + len);
        let is_before_last = skippable_len(self.walk.bytes(at + len, 8)?) == Some(rest);
        let bytes = self.walk.bytes(at, len.min(self.walk.longest))?;
        let Some(frame) = usize::try_from(len).ok().and_then(|len| bytes.get(..len)) else {
            return Ok(());
        };
        // Only an index is a compressed frame inside a skippable one, in front of the seek table.
        let contents = frames::skippable_content(frame).unwrap_or_default();
        let is_index =
            index::is_marked(frame) || (is_before_last && index::starts_like_index(contents));
        if !is_last && is_index && ArchiveIndex::read(frame).is_none() {
            self.unpacker.report_damage(at, at + len, "the index of the archive cannot be read");
        }
        let is_table = seek_table::is_table(frame);
        self.has_reported_end |= is_last && is_table;
        if !is_table {
            self.table.skip(at, len);
        } else if !is_last {
            self.table.restart(at + len);
        } else if let Some(fault) = self.table.fault() {
            let reason = format!("the seek table of the archive is damaged: {fault}");
            self.unpacker.report_damage(at, at + len, reason);
        }
        Ok(())
    }

    fn read(&mut self, len: u64) -> Result<Result<(), String>, Error> {
        let at = self.walk.at;
        // If its flag was lost, the bytes of the checksum are between the frame and the next one.
        if !frames::has_checksum(self.walk.bytes(at, len)?)
            && !self.walk.is_boundary(at + len)?
            && self.walk.is_boundary(at + len + frames::CHECKSUM_LEN)?
        {
            return Ok(Err("the flag for its checksum is missing".into()));
        }
        let bytes = self.walk.bytes(at, len)?;
        let frame = usize::try_from(len).ok().and_then(|len| bytes.get(..len));
        let frame = frame.unwrap_or_default();
        let position = self.position;
        let plain = match self.unpacker.checked_len(frame) {
            Ok(plain) => {
                self.position = position.saturating_add(plain as u64);
                self.unpacker.unpack(&[(frame, plain)]).pop()
            }
            Err(reason) => return Ok(Err(reason)),
        };
        let plain = match plain.unwrap_or_else(|| Err("it was not read".into())) {
            Ok(plain) => plain,
            Err(reason) => return Ok(Err(reason)),
        };
        if self.head_and_tail.iter().any(|expected| *expected == *plain) {
            return Ok(Ok(()));
        }
        let batches = self.unpacker.decode(self.format, plain, position)?;
        Ok(batches.map(|batches| self.ready.extend(batches)))
    }

    fn next_frame(&mut self, from: u64) -> Result<u64, Error> {
        let (unpacker, format) = (&self.unpacker, self.format);
        let range = (from, self.walk.len);
        self.walk.next_frame(range, &|frame| unpacks_as(unpacker, frame, format))
    }
}

impl Reader for FrameScan<'_> {
    fn next_batch(&mut self) -> Result<Option<Batch>, Error> {
        while self.ready.is_empty() && !self.is_done && !self.unpacker.context().run.is_cancelled()
        {
            self.step()?;
        }
        Ok(self.ready.pop_front())
    }

    fn seam(&self) -> Seam {
        Seam { began: Some(0), ended: Some(self.walk.at) }
    }
}

/// How to treat a file that another program may have made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum AmbiguousFile {
    /// As no archive: another source may read it.
    NotArchive,
    /// As a damaged archive: no other source reads it.
    DamagedArchive,
}

/// Why a compressed file is not read as an archive.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScanRefusal {
    /// Its content is something else.
    Other,
    /// Nothing in it can be read.
    Damaged,
}

/// Detects the format of an archive from its first frames.
///
/// A single frame, a frame that is too long, and one that does not declare its length may come from
/// another program: an ordinary compressed log need not fit into memory.
fn detect_format(
    walk: &mut FrameWalk,
    unpacker: &Unpacker<'_>,
    formats: &[&'static dyn ByteFormat],
    doubt: AmbiguousFile,
) -> Result<Result<&'static dyn ByteFormat, ScanRefusal>, Error> {
    let mut refusal = ScanRefusal::Damaged;
    for _ in 0..MAX_DETECT_FRAMES {
        let at = walk.at;
        let Some(stretch) = walk.peek()? else { break };
        let is_alone = stretch == ScanSegment::Frame(walk.len);
        if at == 0 && (is_alone || is_unsupported(walk.bytes(0, READ_LEN)?, unpacker)) {
            refusal = ScanRefusal::Other;
            if doubt == AmbiguousFile::NotArchive {
                break;
            }
        }
        walk.at = match stretch {
            ScanSegment::Skippable(len) => at + len,
            ScanSegment::Garbage => next_frame_of_any(walk, unpacker, formats)?,
            ScanSegment::Frame(len) => {
                let bytes = walk.bytes(at, len)?;
                let frame = usize::try_from(len).ok().and_then(|len| bytes.get(..len));
                if let Some(plain) = frame.and_then(|frame| unpack(unpacker, frame)) {
                    if let Some(format) = formats.iter().find(|format| belongs_to(**format, &plain))
                    {
                        return Ok(Ok(*format));
                    }
                    refusal = ScanRefusal::Other;
                }
                let is_end = walk.is_boundary(at + len)?;
                if is_end { at + len } else { next_frame_of_any(walk, unpacker, formats)? }
            }
        };
    }
    Ok(Err(refusal))
}

/// The maximum length of a frame header, magic included.
pub(crate) const MAX_FRAME_HEADER: usize = 18;

fn is_unsupported(frame: &[u8], unpacker: &Unpacker<'_>) -> bool {
    let is_frame = frame.len() >= MAX_FRAME_HEADER && frame.starts_with(&MAGIC);
    is_frame && unpacker.checked_len(frame).is_err()
}

fn next_frame_of_any(
    walk: &mut FrameWalk,
    unpacker: &Unpacker<'_>,
    formats: &[&'static dyn ByteFormat],
) -> Result<u64, Error> {
    let range = (walk.at + 1, walk.len.min(walk.at + MAX_DETECT_DISTANCE));
    walk.next_frame(range, &|frame| {
        formats.iter().any(|format| unpacks_as(unpacker, frame, *format))
    })
}

/// Whether a frame can be unpacked, and its content is of this format.
fn unpacks_as(unpacker: &Unpacker<'_>, frame: &[u8], format: &dyn ByteFormat) -> bool {
    unpack(unpacker, frame).is_some_and(|plain| belongs_to(format, &plain))
}

/// Whether an archive of this format has such content in a frame. Empty content proves nothing.
fn belongs_to(format: &dyn ByteFormat, plain: &Bytes) -> bool {
    let ends = [format.head(), format.tail()];
    let is_end = ends.iter().any(|end| end.as_ref().is_ok_and(|end| *end == *plain));
    !plain.is_empty() && (is_end || decodes(format, plain.clone()))
}

/// The content of a frame, if it can be unpacked.
fn unpack(unpacker: &Unpacker<'_>, frame: &[u8]) -> Option<Bytes> {
    let mut plain = vec![0; unpacker.checked_len(frame).ok()?];
    frames::decompress(frame, &mut plain).ok()?;
    Some(plain.into())
}

/// Whether these bytes are whole events of this format.
fn decodes(format: &dyn ByteFormat, plain: Bytes) -> bool {
    let context = ReadContext::standalone("");
    matches!(format.decode(plain, 0, Path::new(""), &context), Ok(Ok(_)))
}
