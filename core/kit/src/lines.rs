//! Reads a file line by line, with a buffer no longer than the longest line.

use std::ops::Range;

use memchr::memchr;

use sluice_io::ReadBuffer;
use sluice_io::files::LogFile;
use sluice_model::Error;

/// How much to read at a time.
const STEP: usize = 256 << 10;
/// The minimum to read, for a line that continues after the end of the range.
const OVERHANG: usize = 4 << 10;

/// Reads the lines of a file in order.
#[derive(Debug)]
pub struct LineReader {
    log: LogFile,
    /// The maximum length of a line.
    max_len: usize,
    /// Beyond this position, only the rest of a line is read.
    needed_until: u64,
    buffer: ReadBuffer,
    /// The position of the buffer in the file.
    start: u64,
    /// The offset of the next line in the buffer.
    next: usize,
    /// How much of the buffer is known to contain no end of that line.
    scanned: usize,
    ended: bool,
    /// Whether the buffer has all that has come of a stream, and more is awaited.
    is_behind: bool,
}

/// The place of a line in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineSpan {
    /// The position of its first byte.
    pub at: u64,
    /// The position after its line feed, or the end of the file.
    pub end: u64,
    /// Whether it is short enough to be in the buffer.
    pub is_complete: bool,
}

impl LineReader {
    /// Reads the lines from `at` on, which starts a line. Those of more than `max_len` bytes,
    /// without their end, are only found, not kept.
    pub fn new(log: LogFile, at: u64, max_len: usize) -> Self {
        Self {
            log,
            max_len,
            needed_until: u64::MAX,
            buffer: ReadBuffer::default(),
            start: at,
            next: 0,
            scanned: 0,
            ended: false,
            is_behind: false,
        }
    }

    /// Declares that only lines that start before `end` are needed, so that little is read beyond.
    #[must_use]
    pub fn until(mut self, end: u64) -> Self {
        self.needed_until = end;
        self
    }

    /// The file.
    pub fn log(&self) -> &LogFile {
        &self.log
    }

    /// The same, for what is not reading.
    pub fn log_mut(&mut self) -> &mut LogFile {
        &mut self.log
    }

    /// Where the next line begins.
    pub fn position(&self) -> u64 {
        self.start + self.next as u64
    }

    /// The next line; `None` at the end of the file, and when the run is cancelled. What a stopped
    /// stream has of a line at its end is not one.
    pub fn step(&mut self) -> Result<Option<LineSpan>, Error> {
        loop {
            if let Some(end) = self.find_end() {
                return Ok(Some(self.take(end)));
            }
            self.scanned = self.buffer.len();
            if self.ended {
                let is_there = self.next < self.buffer.len() && !self.log.was_stopped();
                return Ok(is_there.then(|| self.take(self.buffer.len())));
            }
            if self.scanned - self.next > self.max_len {
                return self.step_over().map(Some);
            }
            if self.log.is_cancelled() {
                return Ok(None);
            }
            self.read_more()?;
        }
    }

    /// Whether [`step`](Self::step) would wait for the rest of a line.
    pub fn would_wait(&self) -> bool {
        self.is_behind && self.find_end().is_none()
    }

    /// Goes on behind damage that ended a compressed file, with what follows as a line, which may
    /// be the end of one. False if nothing can.
    pub fn resume(&mut self) -> Result<bool, Error> {
        let Some(start) = self.log.resume()? else { return Ok(false) };
        self.buffer = ReadBuffer::default();
        (self.start, self.next, self.scanned, self.ended) = (start, 0, 0, false);
        Ok(true)
    }

    /// The bytes of the line that [`step`](Self::step) returned last; empty if it was too long.
    pub fn bytes(&self, line: LineSpan) -> &[u8] {
        self.buffer.get(self.held(line)).unwrap_or_default()
    }

    /// What has already been read of the next line, and of the lines behind it.
    pub fn ahead(&self) -> &[u8] {
        self.buffer.get(self.next..).unwrap_or_default()
    }

    /// The next line, of which the caller has found out that it takes the first `len` bytes that
    /// are [`ahead`](Self::ahead). Spares the search for its end.
    pub fn step_by(&mut self, len: usize) -> LineSpan {
        self.take((self.next + len).min(self.buffer.len()))
    }

    /// Moves to the start of the next line, after a line feed at `position` or later, without
    /// keeping what precedes it. Returns false if there is none before `limit`.
    pub fn skip_line(&mut self, limit: u64) -> Result<bool, Error> {
        loop {
            if let Some(end) = self.find_end() {
                (self.next, self.scanned) = (end, end);
                return Ok(self.position() < limit);
            }
            self.next = self.buffer.len();
            self.scanned = self.next;
            if self.ended || self.position() >= limit || self.log.is_cancelled() {
                return Ok(false);
            }
            self.read_more()?;
        }
    }

    /// Whether no line follows.
    pub fn is_at_end(&mut self) -> Result<bool, Error> {
        while self.next == self.buffer.len() && !self.ended && !self.log.is_cancelled() {
            self.read_more()?;
        }
        Ok(self.next == self.buffer.len())
    }

    /// The end of the line that starts at `next`, if it is in the buffer.
    fn find_end(&self) -> Option<usize> {
        let unknown = self.buffer.get(self.scanned..)?;
        memchr(b'\n', unknown).map(|at| self.scanned + at + 1)
    }

    fn take(&mut self, end: usize) -> LineSpan {
        let at = self.position();
        let len = end - self.next;
        (self.next, self.scanned) = (end, end);
        // The line feed does not count, because it may be missing.
        let text = len - usize::from(self.buffer.get(end - 1) == Some(&b'\n'));
        LineSpan { at, end: self.position(), is_complete: text <= self.max_len }
    }

    /// Skips a line that is too long.
    fn step_over(&mut self) -> Result<LineSpan, Error> {
        let at = self.position();
        self.skip_line(u64::MAX)?;
        Ok(LineSpan { at, end: self.position(), is_complete: false })
    }

    fn held(&self, line: LineSpan) -> Range<usize> {
        let place = |at: u64| at.checked_sub(self.start).and_then(|at| usize::try_from(at).ok());
        match (place(line.at), place(line.end)) {
            (Some(from), Some(to)) if line.is_complete => from..to,
            _ => 0..0,
        }
    }

    fn read_more(&mut self) -> Result<(), Error> {
        self.buffer.discard(self.next);
        self.start += self.next as u64;
        self.scanned -= self.next;
        self.next = 0;
        let (len, from) = (self.buffer.len(), self.start + self.buffer.len() as u64);
        let needed_until = usize::try_from(self.needed_until.saturating_sub(from)).unwrap_or(STEP);
        let step = needed_until.max(len).clamp(OVERHANG, STEP);
        let read = self.buffer.append(step, |space| self.log.read_arrived(from, space, 1))?;
        self.is_behind = read < step && self.log.awaits_more(from + read as u64);
        self.ended = read < step && !self.is_behind;
        self.log.forget(from + read as u64);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;

    fn lines(text: &[u8], at: u64, max_len: usize) -> LineReader {
        let log = LogFile::stream(Path::new("-"), Box::new(Cursor::new(text.to_vec()))).unwrap();
        LineReader::new(log, at, max_len)
    }

    fn all(text: &[u8], max_len: usize) -> Vec<(u64, u64, Option<Vec<u8>>)> {
        let mut lines = lines(text, 0, max_len);
        let mut found = Vec::new();
        while let Some(span) = lines.step().unwrap() {
            let bytes = span.is_complete.then(|| lines.bytes(span).to_vec());
            found.push((span.at, span.end, bytes));
        }
        found
    }

    #[test]
    fn lines_above_the_maximum_length_are_skipped() {
        let long = [b"ab\n".as_slice(), &vec![b'x'; 3 * STEP], b"\ncd"].concat();
        let behind = 3 + 3 * STEP as u64 + 1;
        let wanted = [
            (0, 3, Some(b"ab\n".to_vec())),
            (3, behind, None),
            (behind, behind + 2, Some(b"cd".to_vec())),
        ];
        assert_eq!(all(&long, 10), wanted);
    }

    #[test]
    fn a_line_whose_end_is_known_is_stepped_over() {
        let mut lines = lines(b"ab\ncd\nef", 0, 10);
        assert_eq!(lines.ahead(), b"");
        lines.step().unwrap();
        assert_eq!(lines.ahead(), b"cd\nef");
        let line = lines.step_by(3);
        assert_eq!((line.at, line.end, lines.bytes(line)), (3, 6, &b"cd\n"[..]));
        assert_eq!((lines.position(), lines.ahead()), (6, &b"ef"[..]));
        assert_eq!(lines.step().unwrap().map(|line| (line.at, line.end)), Some((6, 8)));
    }

    #[test]
    fn a_line_feed_does_not_count_to_the_length() {
        assert!(all(b"abc\nabc", 3).iter().all(|line| line.2.is_some()));
        assert!(all(b"abc\nabc", 2).iter().all(|line| line.2.is_none()));
    }

    #[test]
    fn the_beginning_of_the_next_line_is_found_before_the_limit_only() {
        let next = |from, limit| {
            let mut lines = lines(b"ab\ncd\n", from, 10);
            let found = lines.skip_line(limit).unwrap();
            found.then(|| lines.position())
        };
        assert_eq!((next(0, 4), next(2, 4), next(3, 7)), (Some(3), Some(3), Some(6)));
        assert_eq!((next(0, 3), next(3, 6), next(6, 9)), (None, None, None));
    }

    proptest! {
        #[test]
        fn lines_tile_the_file(
            text in proptest::collection::vec(prop_oneof![Just(b'\n'), any::<u8>()], 0..200),
            max_len in 0usize..20)
        {
            let found = all(&text, max_len);
            let wanted: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
            prop_assert_eq!(found.len(), wanted.len());
            let mut at = 0;
            for ((from, to, bytes), wanted) in found.into_iter().zip(wanted) {
                prop_assert_eq!((from, to), (at, at + wanted.len() as u64));
                let is_short = wanted.strip_suffix(b"\n").unwrap_or(wanted).len() <= max_len;
                prop_assert_eq!(bytes, is_short.then(|| wanted.to_vec()));
                at = to;
            }
        }
    }
}
