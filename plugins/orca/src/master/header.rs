//! The header of a master, which lists the subfiles. Reads no data lines.

#![warn(clippy::indexing_slicing)]

use sluice_model::Error;

use super::data::DataLine;
use super::dialect::Dialect;
use super::lines::{LONGEST_LINE, MasterLine, MasterLines, ZERO_BYTES, has_zero_byte};
use super::writer_comment::WriterComment;
use super::{is_file_name, strip_bom, words};
use crate::display::display_name;

/// The maximum number of header lines that are read; each is a file.
pub(crate) const MAX_FILES: usize = 10_000;
/// The maximum length of a header.
const LONGEST_HEADER: u64 = 16 << 20;

const CUT_HEADER: &str = "the header of the master is cut off: no line behind it is read, since \
                          the numbers of subfiles are those of its lines";

/// A header line, which declares a subfile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FileLine {
    /// The file's name as written.
    pub(crate) name: Vec<u8>,
    /// The interface, without `::orca::` or `::` before it.
    pub(crate) interface: Vec<u8>,
    /// The encoding of the objects.
    pub(crate) encoding: Vec<u8>,
    /// Whether it is enabled for playback.
    pub(crate) enabled: bool,
    /// The origin of the objects, if the previous line names it: `laserscanner2d@alpha/laser2d`.
    pub(crate) proxy: Option<String>,
    /// The comment of our own sink.
    pub(crate) comment: Option<WriterComment>,
    /// The reason it cannot be used.
    pub(crate) refused: Option<String>,
}

/// A range of a master file that cannot be used, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HeaderDamage {
    /// The offset of its first byte.
    pub(crate) offset: u64,
    /// Its length in bytes.
    pub(crate) len: u64,
    /// The reason.
    pub(crate) reason: String,
}

/// The header of a master file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MasterHeader {
    /// Its dialect.
    pub(crate) dialect: Dialect,
    /// The subfiles, in order: the position of a line is the subfile's number.
    pub(crate) files: Vec<FileLine>,
    /// The offset of the first data line.
    pub(crate) data_start: u64,
    /// The ranges that could not be used, in order.
    pub(crate) damage: Vec<HeaderDamage>,
    /// Whether the header exceeds the limits and was read in part only.
    pub(crate) is_truncated: bool,
    /// Whether damage of compressed data cuts it off, so that the numbers of further subfiles are
    /// unknown.
    pub(crate) is_cut: bool,
}

impl MasterHeader {
    /// Reads the lines up to `#data`, or up to the first data line if that is missing.
    ///
    /// `Err` if the file cannot be read. Memory is bounded for any file.
    pub(crate) fn read(lines: &mut MasterLines) -> Result<Self, Error> {
        let mut header = HeaderParser::default();
        loop {
            let at = lines.position();
            let Some(line) = lines.next()? else {
                header.header.is_cut = lines.is_broken();
                let reason = match header.header.is_cut {
                    true => CUT_HEADER,
                    false => "the master has neither a line `#data` nor data lines",
                };
                return Ok(header.finish_without_data(at, at, reason));
            };
            let end = line.offset + line.len;
            match header.add_line(line) {
                HeaderStep::More => {}
                HeaderStep::Data => return Ok(header.finish(end)),
                HeaderStep::FirstLine => {
                    let reason = "the line `#data` before the first data line is missing";
                    return Ok(header.finish_without_data(at, at, reason));
                }
            }
            if end > LONGEST_HEADER || header.header.files.len() >= MAX_FILES {
                return header.find_data(lines);
            }
        }
    }
}

/// A header being parsed.
#[derive(Default)]
struct HeaderParser {
    header: MasterHeader,
    /// Taken from comments, for the next header line.
    proxy: Option<String>,
    comment: Option<WriterComment>,
}

enum HeaderStep {
    More,
    Data,
    FirstLine,
}

impl HeaderParser {
    fn add_line(&mut self, line: MasterLine<'_>) -> HeaderStep {
        if line.is_cut {
            self.add_damage(line, "a line of the header is cut off".to_owned());
            return HeaderStep::More;
        }
        let Some(text) = line.text else {
            self.add_damage(line, format!("a line is longer than {LONGEST_LINE} bytes"));
            return HeaderStep::More;
        };
        let text = if line.offset == 0 { strip_bom(text) } else { text };
        if text.trim_ascii_end() == b"#data" {
            return HeaderStep::Data;
        }
        match text.trim_ascii().split_first() {
            None => {}
            Some((b'#', _)) if has_zero_byte(text) => self.add_damage(line, ZERO_BYTES.to_owned()),
            Some((b'#', comment)) => self.add_comment(comment),
            Some(_) if matches!(DataLine::parse(text), Ok(Some(_))) => {
                return HeaderStep::FirstLine;
            }
            Some(_) => self.add_file(line, text),
        }
        HeaderStep::More
    }

    fn add_comment(&mut self, comment: &[u8]) {
        self.comment = WriterComment::parse(comment).or(self.comment.take());
        let comment = comment.trim_ascii();
        let is_proxy = memchr::memchr(b'@', comment).is_some() && words(comment).count() == 1;
        if is_proxy && let Ok(proxy) = std::str::from_utf8(comment) {
            self.proxy = Some(proxy.to_owned());
        }
    }

    fn add_file(&mut self, line: MasterLine<'_>, text: &[u8]) {
        let columns: Vec<&[u8]> = words(text).take(4).collect();
        if self.header.files.is_empty() {
            self.header.dialect = Dialect::detect(&columns);
        }
        let mut file = match (columns.as_slice(), self.header.dialect) {
            ([interface, encoding, name, ..], Dialect::A) => {
                FileLine::new(name, interface, encoding, true)
            }
            ([name, interface, encoding, rest @ ..], _) => {
                FileLine::new(name, interface, encoding, rest.first() != Some(&&b"0"[..]))
            }
            _ => {
                let found = columns.len();
                let reason = format!(
                    "expected a header line with a file, an interface and an encoding, found \
                     {found} columns"
                );
                self.add_damage(line, reason.clone());
                FileLine { refused: Some(reason), ..FileLine::default() }
            }
        };
        if file.refused.is_none() && has_zero_byte(text) {
            self.add_damage(line, ZERO_BYTES.to_owned());
            file.refused = Some(format!("the header line of the subfile has {ZERO_BYTES}"));
        }
        (file.proxy, file.comment) = (self.proxy.take(), self.comment.take());
        file.enabled &= !file.comment.as_ref().is_some_and(|own| own.is_disabled);
        if file.refused.is_none() {
            file.refused = self.refusal(&file.name);
        }
        self.header.files.push(file);
    }

    /// The reason that a file of this name is not read.
    fn refusal(&self, name: &[u8]) -> Option<String> {
        let shown = display_name(name);
        if !is_file_name(name) {
            return Some(format!(
                "the subfile `{shown}` is not opened: a subfile must be a file beside the master"
            ));
        }
        let same = self.header.files.iter().position(|file| file.name == name)?;
        Some(format!("the subfile `{shown}` is declared twice; it is read as subfile {same}"))
    }

    fn add_damage(&mut self, line: MasterLine<'_>, reason: String) {
        self.header.damage.push(HeaderDamage { offset: line.offset, len: line.len, reason });
    }

    fn finish(mut self, data: u64) -> MasterHeader {
        self.header.data_start = data;
        self.header
    }

    fn finish_without_data(mut self, offset: u64, data: u64, reason: &str) -> MasterHeader {
        let len = data - offset;
        self.header.damage.push(HeaderDamage { offset, len, reason: reason.into() });
        self.finish(data)
    }

    /// Searches for the end of a header that exceeds the limits.
    fn find_data(mut self, lines: &mut MasterLines) -> Result<MasterHeader, Error> {
        let begin = lines.position();
        loop {
            let at = lines.position();
            let Some(line) = lines.next()? else {
                (self.header.is_truncated, self.header.is_cut) = (true, lines.is_broken());
                let reason = "the header is too long, and no line `#data` follows";
                return Ok(self.finish_without_data(begin, at, reason));
            };
            if line.text.is_some_and(|text| text.trim_ascii_end() == b"#data") {
                let end = line.offset + line.len;
                if at > begin {
                    self.header.is_truncated = true;
                    let reason = format!(
                        "the header is too long: only the first {MAX_FILES} lines and 16 MiB \
                         are read"
                    );
                    self.header.damage.push(HeaderDamage {
                        offset: begin,
                        len: at - begin,
                        reason,
                    });
                }
                return Ok(self.finish(end));
            }
        }
    }
}

impl FileLine {
    fn new(name: &[u8], interface: &[u8], encoding: &[u8], enabled: bool) -> Self {
        let global = interface.strip_prefix(b"::").unwrap_or(interface);
        Self {
            name: name.to_owned(),
            interface: global.strip_prefix(b"orca::").unwrap_or(global).to_owned(),
            encoding: encoding.to_owned(),
            enabled,
            ..Self::default()
        }
    }
}
