//! The lines of a file, and the data lines among them.

#![warn(clippy::indexing_slicing)]

use std::path::Path;

use sluice_io::files::LogFile;
use sluice_kit::gap::{self, GapEnd};
use sluice_kit::lines::LineReader;
use sluice_model::Error;

use super::data::DataLine;
use super::{is_blank, next_word};

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
    /// Parses the line as a data line of a log with this number of subfiles; `None` if it is blank
    /// or a comment. `Err` is the reason it is invalid.
    pub(crate) fn data(&self, subfiles: usize) -> Result<Option<ParsedLine>, String> {
        let too_long = || format!("a line is longer than {LONGEST_LINE} bytes");
        let text = self.text.ok_or_else(too_long)?;
        let (data, rest) = match DataLine::parse_prefix(text) {
            Ok(Some(parsed)) => parsed,
            Ok(None) | Err(_) if has_zero_byte(text) => return Err(ZERO_BYTES.to_owned()),
            Ok(None) => return Ok(None),
            Err(reason) => return Err(reason.to_owned()),
        };
        if rest.is_empty() && self.is_unterminated {
            return Err("the last line has no line break: its index may be cut off".to_owned());
        }
        let damage = find_damage(rest, &data, subfiles).map(|(at, reason)| {
            let at = (text.len() - rest.len() + at) as u64;
            LineDamage { range: (self.offset + at, self.len - at), reason }
        });
        let extra = rest.trim_ascii();
        let has_extra_columns = damage.is_none() && !extra.is_empty() && !extra.starts_with(b"#");
        Ok(Some(ParsedLine { data, damage, has_extra_columns }))
    }
}

/// Why a line with zero bytes is damage: loggers write text.
pub(super) const ZERO_BYTES: &str = "zero bytes in the master: lines may be missing there";

/// Whether a text has zero bytes, as a part of a file that was never written.
pub(super) fn has_zero_byte(text: &[u8]) -> bool {
    memchr::memchr(0, text).is_some()
}

/// The maximum distance in nanoseconds between the times of a data line and of one that has lost
/// the line break before it. Other numbers are extra columns.
const NEAR: u128 = 3_600_000_000_000;

/// Where in the columns after the fourth of a data line damage begins, and why: at zero bytes, or
/// at another data line that is not in a comment.
fn find_damage(rest: &[u8], data: &DataLine, subfiles: usize) -> Option<(usize, &'static str)> {
    let zero = memchr::memchr(0, rest).map(|at| (at, ZERO_BYTES));
    let is_next = |next: &DataLine| {
        next.subfile < subfiles as u64 && next.time.abs_diff(data.time) <= NEAR && next.index >= 0
    };
    let line = find_line(rest, is_next);
    let line = line.map(|at| (at, "the line break before a data line is missing"));
    [zero, line].into_iter().flatten().min()
}

/// The offset of the first such data line in a text, unless a comment is before it.
fn find_line(text: &[u8], is_next: impl Fn(&DataLine) -> bool) -> Option<usize> {
    let mut rest = text;
    loop {
        let begin = rest.iter().position(|byte| !is_blank(*byte))?;
        rest = rest.get(begin..)?;
        match DataLine::parse_prefix(rest) {
            Ok(None) => return None,
            Ok(Some((data, _))) if is_next(&data) => return Some(text.len() - rest.len()),
            Ok(Some(_)) | Err(_) => next_word(&mut rest)?,
        };
    }
}

/// A parsed data line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ParsedLine {
    /// The first four numbers.
    pub(crate) data: DataLine,
    /// Damage in the columns after the fourth.
    pub(crate) damage: Option<LineDamage>,
    /// Whether more columns follow, which are ignored.
    pub(crate) has_extra_columns: bool,
}

/// The damaged end of a data line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LineDamage {
    /// Its offset and length.
    pub(crate) range: (u64, u64),
    /// The reason.
    pub(crate) reason: &'static str,
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
        Ok(Some((end.at - at, gap::reason_with_place(reason, self.0.log_mut()))))
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
