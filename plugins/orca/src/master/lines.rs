//! The lines of a file, and the data lines among them.

#![warn(clippy::indexing_slicing)]

use std::path::Path;

use sluice_core::Error;
use sluice_core::files::LogFile;

use super::data::DataLine;
use super::is_blank;

/// The maximum length of a line; longer ones are damage.
pub(crate) const LONGEST_LINE: usize = 64 << 10;
/// The maximum bytes per read.
const MAX_READ: usize = 256 << 10;
/// The minimum bytes per read, if only some lines are needed.
const MIN_READ: usize = 1 << 10;

/// A line of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MasterLine<'l> {
    /// The offset of its first byte.
    pub(crate) offset: u64,
    /// Its length in bytes, line break included.
    pub(crate) len: u64,
    /// The text without the line break; `None` if it is longer than [`LONGEST_LINE`].
    pub(crate) text: Option<&'l [u8]>,
    /// Whether the file ends in or right after the line's last word, which may be cut off.
    pub(crate) is_unterminated: bool,
}

impl MasterLine<'_> {
    /// Parses the line as a data line; `None` if it is blank or a comment. `Err` is the reason it
    /// is invalid.
    pub(crate) fn data(&self) -> Result<Option<ParsedLine>, String> {
        let too_long = || format!("a line is longer than {LONGEST_LINE} bytes");
        let text = self.text.ok_or_else(too_long)?;
        let Some((data, rest)) = DataLine::parse_prefix(text)? else { return Ok(None) };
        if rest.is_empty() && self.is_unterminated {
            return Err("the last line has no line break: its index may be cut off".to_owned());
        }
        let is_line = matches!(DataLine::parse_prefix(rest), Ok(Some(_)));
        let blanks = rest.iter().take_while(|byte| is_blank(**byte)).count();
        let swallowed = text.len() - rest.len() + blanks;
        let swallowed =
            is_line.then(|| (self.offset + swallowed as u64, self.len - swallowed as u64));
        let extra = rest.trim_ascii();
        let has_extra_columns = !is_line && !extra.is_empty() && !extra.starts_with(b"#");
        Ok(Some(ParsedLine { data, swallowed, has_extra_columns }))
    }
}

/// A parsed data line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ParsedLine {
    /// The first four numbers.
    pub(crate) data: DataLine,
    /// The offset and length of a further data line whose preceding line break is missing.
    pub(crate) swallowed: Option<(u64, u64)>,
    /// Whether more columns follow, which are ignored.
    pub(crate) has_extra_columns: bool,
}

/// Reads the lines of a file in order.
#[derive(Debug)]
pub(crate) struct MasterLines {
    log: LogFile,
    /// Bytes of the file; those before `consumed` have been returned.
    bytes: Vec<u8>,
    consumed: usize,
    /// The position of `consumed` in the file.
    at: u64,
    ended: bool,
    /// The number of bytes per read.
    read_len: usize,
}

impl MasterLines {
    /// Reads the lines from the start of a line, `at`.
    pub(crate) fn new(log: LogFile, at: u64) -> Self {
        Self { log, bytes: Vec::new(), consumed: 0, at, ended: false, read_len: MAX_READ }
    }

    /// Sets the read size for a reader that needs about this many bytes.
    pub(crate) fn expecting(mut self, bytes: u64) -> Self {
        let bytes = usize::try_from(bytes).unwrap_or(MAX_READ);
        self.read_len = bytes.saturating_add(MIN_READ).min(MAX_READ);
        self
    }

    /// Reads from the first line that starts in `from..to`; `None` if none does.
    pub(crate) fn search(log: LogFile, from: u64, to: u64) -> Result<Option<Self>, Error> {
        let Some(before) = from.checked_sub(1).filter(|_| from < to) else {
            return Ok((from < to).then(|| Self::new(log, 0)));
        };
        let mut lines = Self::new(log, before).expecting(to - before);
        lines.skip_line(to)?;
        Ok((lines.at < to && lines.at > before && !lines.is_at_end()?).then_some(lines))
    }

    /// The position of the next line.
    pub(crate) fn position(&self) -> u64 {
        self.at
    }

    /// The error of a compressed file that could only be read up to here.
    pub(crate) fn broken(&self) -> Option<&str> {
        self.log.decompression_error()
    }

    /// The next line; `None` at the end of the file.
    pub(crate) fn next(&mut self) -> Result<Option<MasterLine<'_>>, Error> {
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
            return Ok(Some(MasterLine {
                offset,
                len: self.at - offset,
                text: None,
                is_unterminated: false,
            }));
        }
        let from = self.consumed;
        self.advance(len);
        let text = self.bytes.get(from..self.consumed).unwrap_or_default();
        let is_unterminated = text.last().is_some_and(|byte| !is_blank(*byte));
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        Ok(Some(MasterLine { offset, len: len as u64, text: Some(text), is_unterminated }))
    }

    /// Skips to the end of the current line, but not further than `to`.
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
        self.bytes.get(self.consumed..).unwrap_or_default()
    }

    fn advance(&mut self, by: usize) {
        self.consumed += by;
        self.at += by as u64;
    }

    fn read_more(&mut self) -> Result<(), Error> {
        self.bytes.drain(..self.consumed);
        self.consumed = 0;
        self.log.forget(self.at);
        let kept = self.bytes.len();
        let mut extra = vec![0; self.read_len];
        let read = self.log.read_at(self.at + kept as u64, &mut extra)?;
        self.bytes.extend_from_slice(extra.get(..read).unwrap_or_default());
        self.ended = read < self.read_len;
        Ok(())
    }
}

/// Opens the lines of a master from its start.
pub(crate) fn open(path: &Path) -> Result<MasterLines, Error> {
    Ok(MasterLines::new(LogFile::open(path)?, 0))
}
