//! The lines of a file, and the data lines among them.

#![warn(clippy::indexing_slicing)]

use std::path::Path;

use sluice_io::files::LogFile;
use sluice_kit::gap::{self, GapEnd};
use sluice_kit::lines::LineReader;
use sluice_model::Error;

use super::data::DataLine;
use super::is_blank;

/// The maximum length of a line without its end; longer ones are damage.
pub(crate) const LONGEST_LINE: usize = 64 << 10;

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
    /// Whether damage of compressed data cuts it off.
    pub(crate) is_cut: bool,
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

/// Reads the lines of a master in order.
#[derive(Debug)]
pub(crate) struct MasterLines(LineReader);

impl MasterLines {
    /// Reads the lines from the start of a line, `at`.
    pub(crate) fn new(log: LogFile, at: u64) -> Self {
        Self(LineReader::new(log, at, LONGEST_LINE))
    }

    /// Reads the data lines, the first of which starts at `at`, even if the log cannot be read
    /// there first.
    pub(crate) fn behind_header(log: LogFile, at: u64) -> Result<Self, Error> {
        let is_seekable = log.is_seekable();
        let mut lines = Self::new(log, if is_seekable { at } else { 0 });
        while lines.position() < at && lines.next()?.is_some() {}
        Ok(lines)
    }

    /// Declares that only lines that start before `end` are needed.
    pub(crate) fn until(self, end: u64) -> Self {
        Self(self.0.until(end))
    }

    /// Reads from the first line that starts in `from..to`; `None` if none does.
    pub(crate) fn search(log: LogFile, from: u64, to: u64) -> Result<Option<Self>, Error> {
        // Starting one byte earlier finds a line that starts exactly at `from`.
        let mut lines = Self::new(log, from.saturating_sub(1)).until(to);
        let is_placed = from < to && (from == 0 || lines.0.skip_line(to)?);
        Ok((is_placed && (from == 0 || !lines.0.is_at_end()?)).then_some(lines))
    }

    /// The position of the next line.
    pub(crate) fn position(&self) -> u64 {
        self.0.position()
    }

    /// Whether compressed data is damaged at the end of what is read.
    pub(crate) fn is_broken(&self) -> bool {
        self.0.log().decompression_error().is_some()
    }

    /// Goes on behind damage of compressed data that ended the file, with the first line that
    /// begins there, if any does. Returns the length of what is passed, and the reason; `None` at
    /// the end of the file.
    pub(crate) fn pass_gap(&mut self) -> Result<Option<(u64, String)>, Error> {
        let Some(reason) = self.0.log().decompression_error().map(str::to_owned) else {
            return Ok(None);
        };
        let at = self.position();
        let resume = |lines: &mut LineReader| Ok(lines.resume()?.then(|| lines.position()));
        let end = gap::pass_gap(&mut self.0, at, resume, |lines, _| {
            // Whatever comes first may be the end of a line.
            lines.skip_line(u64::MAX)?;
            Ok(GapEnd { at: lines.position(), is_found: !lines.is_at_end()? })
        })?;
        Ok(Some((end.at - at, reason)))
    }

    /// The next line with its offset and length, if it is a data line as loggers write it and has
    /// already been read. Gives the same as [`next`](Self::next), for a fraction of the cost.
    pub(crate) fn next_plain(&mut self) -> Option<(DataLine, (u64, u64))> {
        let (data, len) = DataLine::parse_plain(self.0.ahead())?;
        let span = self.0.step_by(len);
        Some((data, (span.at, span.end - span.at)))
    }

    /// The next line; `None` at the end of the file.
    pub(crate) fn next(&mut self) -> Result<Option<MasterLine<'_>>, Error> {
        let Some(span) = self.0.step()? else { return Ok(None) };
        let is_broken = self.is_broken();
        let text = span.is_complete.then(|| self.0.bytes(span));
        let last = text.and_then(<[u8]>::last);
        let is_unterminated = last.is_some_and(|byte| !is_blank(*byte));
        let is_cut = is_broken && last.is_some_and(|byte| *byte != b'\n');
        let text = text.map(|text| text.strip_suffix(b"\n").unwrap_or(text));
        let text = text.map(|text| text.strip_suffix(b"\r").unwrap_or(text));
        let len = span.end - span.at;
        Ok(Some(MasterLine { offset: span.at, len, text, is_unterminated, is_cut }))
    }
}

/// Opens the lines of a master from its start.
pub(crate) fn open(path: &Path) -> Result<MasterLines, Error> {
    Ok(MasterLines::new(LogFile::open(path)?, 0))
}
