//! The lines of a file, whatever they say, and what one says of objects.

#![warn(clippy::indexing_slicing)]

use std::path::Path;

use sluice_core::Error;
use sluice_core::files::LogFile;

use super::data::DataLine;
use super::is_blank;

/// Lines longer than this are damage.
pub const LONGEST_LINE: usize = 64 << 10;
/// How much of the file is read at a time, at most.
const STEP: usize = 256 << 10;
/// How much is read at a time where little is wanted: some lines.
const FEW: usize = 1 << 10;

/// A line of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'l> {
    /// Where it begins.
    pub offset: u64,
    /// How many bytes it takes, with its end.
    pub len: u64,
    /// What it says, without its end; nothing if it is longer than [`LONGEST_LINE`].
    pub text: Option<&'l [u8]>,
    /// Whether the file ends inside of its last word, or right behind it: nobody can tell which.
    pub is_open: bool,
}

impl Line<'_> {
    /// What it says as a line of data; nothing if it is blank or a comment. `Err` says what is wrong with it.
    pub fn data(&self) -> Result<Option<ParsedLine>, String> {
        let too_long = || format!("a line is longer than {LONGEST_LINE} bytes");
        let text = self.text.ok_or_else(too_long)?;
        let Some((data, rest)) = DataLine::split(text)? else { return Ok(None) };
        if rest.is_empty() && self.is_open {
            return Err("the last line has no line break, so its index may be cut off".to_owned());
        }
        let is_line = matches!(DataLine::split(rest), Ok(Some(_)));
        let blanks = rest.iter().take_while(|byte| is_blank(**byte)).count();
        let swallowed = text.len() - rest.len() + blanks;
        let swallowed =
            is_line.then(|| (self.offset + swallowed as u64, self.len - swallowed as u64));
        let more = rest.trim_ascii();
        let says_more = !is_line && !more.is_empty() && !more.starts_with(b"#");
        Ok(Some(ParsedLine { data, swallowed, says_more }))
    }
}

/// What a line says of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParsedLine {
    /// What its first four numbers say.
    pub data: DataLine,
    /// Where a line begins whose line break before it is gone, and how many bytes are left from there.
    pub swallowed: Option<(u64, u64)>,
    /// Whether it says more than its four numbers, which nobody reads.
    pub says_more: bool,
}

/// The lines of a file, one after another.
#[derive(Debug)]
pub struct Lines {
    log: LogFile,
    /// Bytes of the file, of which those before `used` have been given.
    bytes: Vec<u8>,
    used: usize,
    /// The position in the file of `used`.
    at: u64,
    ended: bool,
    /// How much is read at a time.
    step: usize,
}

impl Lines {
    /// The lines from `at` on, where one begins.
    pub fn new(log: LogFile, at: u64) -> Self {
        Self { log, bytes: Vec::new(), used: 0, at, ended: false, step: STEP }
    }

    /// The same lines, of which about this many bytes will be wanted.
    pub fn of_about(mut self, bytes: u64) -> Self {
        let bytes = usize::try_from(bytes).unwrap_or(STEP);
        self.step = bytes.saturating_add(FEW).min(STEP);
        self
    }

    /// The lines from the first on that begins in `from..to`; nothing if none does there.
    pub fn search(log: LogFile, from: u64, to: u64) -> Result<Option<Self>, Error> {
        let Some(before) = from.checked_sub(1).filter(|_| from < to) else {
            return Ok((from < to).then(|| Self::new(log, 0)));
        };
        let mut lines = Self::new(log, before).of_about(to - before);
        lines.skip_line(to)?;
        Ok((lines.at < to && lines.at > before && !lines.is_at_end()?).then_some(lines))
    }

    /// Where the next line begins.
    pub fn position(&self) -> u64 {
        self.at
    }

    /// What is wrong with a compressed file that could only be read up to here.
    pub fn broken(&self) -> Option<&str> {
        self.log.decompression_error()
    }

    /// The next line; nothing at the end of the file.
    #[expect(clippy::should_implement_trait, reason = "what it gives is borrowed from it")]
    pub fn next(&mut self) -> Result<Option<Line<'_>>, Error> {
        let offset = self.at;
        let len = loop {
            let rest = self.rest();
            if let Some(end) = memchr::memchr(b'\n', rest) {
                break end + 1;
            }
            if self.ended || rest.len() > LONGEST_LINE {
                break rest.len();
            }
            self.read_more()?;
        };
        if len == 0 {
            return Ok(None);
        }
        if len > LONGEST_LINE {
            self.skip_line(u64::MAX)?;
            return Ok(Some(Line { offset, len: self.at - offset, text: None, is_open: false }));
        }
        let from = self.used;
        self.advance(len);
        let text = self.bytes.get(from..self.used).unwrap_or_default();
        let is_open = text.last().is_some_and(|byte| !is_blank(*byte));
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        Ok(Some(Line { offset, len: len as u64, text: Some(text), is_open }))
    }

    /// Goes behind the end of the line that begins here, but not further than `to`.
    fn skip_line(&mut self, to: u64) -> Result<(), Error> {
        while self.at < to {
            let rest = self.rest();
            if let Some(end) = memchr::memchr(b'\n', rest) {
                self.advance(end + 1);
                return Ok(());
            }
            self.advance(rest.len());
            if self.ended {
                return Ok(());
            }
            self.read_more()?;
        }
        Ok(())
    }

    fn is_at_end(&mut self) -> Result<bool, Error> {
        while self.rest().is_empty() && !self.ended {
            self.read_more()?;
        }
        Ok(self.rest().is_empty())
    }

    fn rest(&self) -> &[u8] {
        self.bytes.get(self.used..).unwrap_or_default()
    }

    fn advance(&mut self, by: usize) {
        self.used += by;
        self.at += by as u64;
    }

    fn read_more(&mut self) -> Result<(), Error> {
        self.bytes.drain(..self.used);
        self.used = 0;
        self.log.forget(self.at);
        let kept = self.bytes.len();
        let mut more = vec![0; self.step];
        let read = self.log.read_at(self.at + kept as u64, &mut more)?;
        self.bytes.extend_from_slice(more.get(..read).unwrap_or_default());
        self.ended = read < self.step;
        Ok(())
    }
}

/// Opens the lines of a master from its start.
pub fn open(path: &Path) -> Result<Lines, Error> {
    Ok(Lines::new(LogFile::open(path)?, 0))
}
