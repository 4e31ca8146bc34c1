//! Steps from record to record through a subfile, in reads that grow while it goes on.

use std::ops::Range;

use sluice_model::Error;

use super::RecordFraming;

/// The maximum length of a record.
pub(crate) const LONGEST_RECORD: u64 = 256 << 20;
/// What most objects are shorter than, and the bytes of a number in place of a length are not.
const USUAL_LENGTH: u64 = 1 << 20;
/// The maximum length of a line in a text subfile.
const LONGEST_TEXT: u64 = 16 << 20;
/// The bytes of the first read, and of each read after a jump.
const MIN_READ: usize = 512;
/// The maximum bytes per read when reading sequentially.
const MAX_READ: usize = 128 << 10;
/// The largest distance from the last read that still counts as sequential.
const MAX_GAP: u64 = 8 << 10;
/// The alignment of read buffers: the kernel copies twice as fast to a multiple of this.
pub(crate) const ALIGNMENT: usize = 64;

/// Reads a file at an offset: fills as much of the buffer as there is.
pub(crate) type ReadAtFn<'r> = &'r mut dyn FnMut(u64, &mut [u8]) -> Result<usize, Error>;

/// A file, and the part of it that was read last.
pub(super) struct ReadWindow<'r> {
    read: ReadAtFn<'r>,
    len: u64,
    at: u64,
    /// Holds the part in `span`.
    buffer: Vec<u8>,
    span: Range<usize>,
    read_len: usize,
}

impl<'r> ReadWindow<'r> {
    pub(super) fn new(read: ReadAtFn<'r>, len: u64) -> Self {
        Self { read, len, at: 0, buffer: Vec::new(), span: 0..0, read_len: MIN_READ }
    }

    /// Buffered bytes from `at` on: at least `want`, unless the file ends.
    fn bytes(&mut self, at: u64, want: usize) -> Result<&[u8], Error> {
        let held = |from: u64| at.checked_sub(from).and_then(|skip| usize::try_from(skip).ok());
        let skip = held(self.at).filter(|skip| skip.saturating_add(want) <= self.span.len());
        if let Some(skip) = skip {
            return Ok(self.buffer.get(self.span.start + skip..self.span.end).unwrap_or_default());
        }
        let end = self.at + self.span.len() as u64;
        let is_near = at >= self.at && at <= end.saturating_add(MAX_GAP);
        self.read_len = if is_near { (self.read_len * 2).min(MAX_READ) } else { MIN_READ };
        self.load(at, self.read_len.max(want))?;
        Ok(self.buffer.get(self.span.clone()).unwrap_or_default())
    }

    fn load(&mut self, at: u64, want: usize) -> Result<(), Error> {
        self.span = 0..0;
        if self.buffer.len() < want + ALIGNMENT {
            self.buffer = vec![0; want + ALIGNMENT];
        }
        let pad = self.buffer.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        let space = self.buffer.get_mut(pad..pad + want).unwrap_or_default();
        let read = (self.read)(at, space)?;
        // Ignores what was appended since the file was opened.
        let left = usize::try_from(self.len.saturating_sub(at)).unwrap_or(usize::MAX);
        (self.at, self.span) = (at, pad..pad + read.min(left));
        Ok(())
    }
}

/// The result of parsing at one position of a subfile.
pub(super) enum WalkStep {
    /// The end of a record, and whether its last byte is 0.
    Record { end: u64, is_closed: bool },
    /// The end of the file.
    End,
    /// No record, for this reason. The length that is read there tells framings apart: that of the
    /// right one is mostly below [`USUAL_LENGTH`], which it is if it is cut off itself.
    Damage { reason: String, length: u64 },
}

impl RecordFraming {
    /// Parses at one position.
    pub(super) fn step(
        self,
        file: &mut ReadWindow<'_>,
        record: u64,
        at: u64,
    ) -> Result<WalkStep, Error> {
        if at >= file.len {
            return Ok(WalkStep::End);
        }
        match self {
            Self::Framed { prefix, order, may_be_empty } => {
                let bytes = file.bytes(at, prefix.len(record))?;
                let Some((_, len)) = prefix.parse(record, bytes, order) else {
                    let reason = "the length of a record is cut off".into();
                    return Ok(WalkStep::Damage { reason, length: USUAL_LENGTH });
                };
                let begin = at + prefix.len(record) as u64;
                if len == 0 && !may_be_empty {
                    let next = file.bytes(begin, prefix.len(record + 1))?;
                    let next = prefix.parse(record + 1, next, order);
                    let next = (begin + prefix.len(record + 1) as u64, next.map(|(_, len)| len));
                    return empty_step(file, at, begin, next);
                }
                framed_step(file, begin, len)
            }
            Self::Lines => line_step(file, at),
        }
    }
}

/// A length of 0 at `at`, in front of `begin`, where objects are. It is a lost object if whole ones
/// are before and behind it; otherwise, a length before it is wrong. `next` is where the next record
/// would begin, and its length.
fn empty_step(
    file: &mut ReadWindow<'_>,
    at: u64,
    begin: u64,
    (next, len): (u64, Option<u64>),
) -> Result<WalkStep, Error> {
    let end = len.filter(|len| *len > 0).and_then(|len| next.checked_add(len));
    if let Some(end) = end.filter(|end| *end <= file.len)
        && ends_object(file, at)?
        && ends_object(file, end)?
    {
        return Ok(WalkStep::Record { end: begin, is_closed: false });
    }
    let reason = "a record has length 0: objects have at least one byte".into();
    Ok(WalkStep::Damage { reason, length: u64::MAX })
}

/// Whether an object of a class ends here: with the slice of `::Ice::Object`, which has no fields,
/// and no further objects.
fn ends_object(file: &mut ReadWindow<'_>, end: u64) -> Result<bool, Error> {
    const END: [u8; 6] = [5, 0, 0, 0, 0, 0];
    let Some(at) = end.checked_sub(END.len() as u64) else { return Ok(false) };
    Ok(file.bytes(at, END.len())?.starts_with(&END))
}

fn framed_step(file: &mut ReadWindow<'_>, begin: u64, len: u64) -> Result<WalkStep, Error> {
    let left = file.len.saturating_sub(begin);
    let (reason, length) = if len > LONGEST_RECORD {
        (format!("a record has a length of {len} bytes: more than any record has"), len)
    } else if len > left {
        (format!("a record of {len} bytes is cut off after {left}"), len)
    } else {
        let end = begin + len;
        let last = if len == 0 { None } else { file.bytes(end - 1, 1)?.first() };
        return Ok(WalkStep::Record { end, is_closed: last == Some(&0) });
    };
    Ok(WalkStep::Damage { reason, length })
}

fn line_step(file: &mut ReadWindow<'_>, at: u64) -> Result<WalkStep, Error> {
    let mut seek = at;
    while seek - at < LONGEST_TEXT {
        let bytes = file.bytes(seek, 1)?;
        if let Some(end) = memchr::memchr(b'\n', bytes) {
            return Ok(WalkStep::Record { end: seek + end as u64 + 1, is_closed: false });
        }
        if bytes.is_empty() {
            let reason = "the last line has no line break: it may be cut off".into();
            return Ok(WalkStep::Damage { reason, length: 0 });
        }
        seek += bytes.len() as u64;
    }
    let reason = format!("a line is longer than {LONGEST_TEXT} bytes");
    Ok(WalkStep::Damage { reason, length: 0 })
}
