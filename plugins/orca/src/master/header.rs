//! The header of a master: which subfiles there are. Reads no line of data.

#![warn(clippy::indexing_slicing)]

use sluice_core::Error;

use super::data::DataLine;
use super::dialect::Dialect;
use super::lines::{LONGEST_LINE, Line, Lines};
use super::own::Own;
use super::{is_plain, without_mark, words};
use crate::log::shown;

/// The most header lines that are read: each is a file.
pub const MOST_FILES: usize = 10_000;
/// The longest header that is read.
const LONGEST_HEADER: u64 = 16 << 20;

/// What a header line says of a subfile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileLine {
    /// The file's name, as it is written.
    pub name: Vec<u8>,
    /// The interface, without `::orca::` or `::` before it.
    pub interface: Vec<u8>,
    /// The word for how objects are written.
    pub encoding: Vec<u8>,
    /// Whether it is to be played.
    pub enabled: bool,
    /// Where the objects came from, if the line before said it: `laserscanner2d@alpha/laser2d`.
    pub proxy: Option<String>,
    /// What our own writer said of it.
    pub own: Option<Own>,
    /// Why it cannot be used.
    pub refused: Option<String>,
}

/// A range of a master file that says nothing, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable {
    /// Where it begins.
    pub offset: u64,
    /// How many bytes it takes.
    pub len: u64,
    /// What was found.
    pub reason: String,
}

/// The header of a master file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Its dialect.
    pub dialect: Dialect,
    /// What its lines say, in order: a line's place is the subfile's number.
    pub files: Vec<FileLine>,
    /// Where lines of data begin.
    pub data: u64,
    /// What of it could not be used, in order.
    pub damage: Vec<Unusable>,
    /// Whether it is longer than what is read of one.
    pub is_cut: bool,
}

impl Header {
    /// Reads the lines up to `#data`, or to the first line of data where that is missing.
    ///
    /// `Err` if the file cannot be read. Memory is bounded whatever the file holds.
    pub fn read(lines: &mut Lines) -> Result<Self, Error> {
        let mut header = HeaderReader::default();
        loop {
            let at = lines.position();
            let Some(line) = lines.next()? else {
                return Ok(header.without_data(
                    at,
                    at,
                    "there is no line `#data`, nor any of data",
                ));
            };
            let end = line.offset + line.len;
            match header.take(line) {
                HeaderStep::More => {}
                HeaderStep::Data => return Ok(header.finish(end)),
                HeaderStep::FirstLine => {
                    let reason = "there is no line `#data` before the first line of data";
                    return Ok(header.without_data(at, at, reason));
                }
            }
            if end > LONGEST_HEADER || header.header.files.len() >= MOST_FILES {
                return header.find_data(lines);
            }
        }
    }
}

/// A header in the making.
#[derive(Default)]
struct HeaderReader {
    header: Header,
    /// What comments said that the next header line is told by.
    proxy: Option<String>,
    own: Option<Own>,
}

enum HeaderStep {
    More,
    Data,
    FirstLine,
}

impl HeaderReader {
    fn take(&mut self, line: Line<'_>) -> HeaderStep {
        let Some(text) = line.text else {
            self.unusable(line, format!("a line is longer than {LONGEST_LINE} bytes"));
            return HeaderStep::More;
        };
        let text = if line.offset == 0 { without_mark(text) } else { text };
        if text.trim_ascii_end() == b"#data" {
            return HeaderStep::Data;
        }
        match text.trim_ascii().split_first() {
            None => {}
            Some((b'#', comment)) => self.take_comment(comment),
            Some(_) if matches!(DataLine::parse(text), Ok(Some(_))) => {
                return HeaderStep::FirstLine;
            }
            Some(_) => self.take_file(line, text),
        }
        HeaderStep::More
    }

    fn take_comment(&mut self, comment: &[u8]) {
        self.own = Own::parse(comment).or(self.own.take());
        let comment = comment.trim_ascii();
        let is_proxy = memchr::memchr(b'@', comment).is_some() && words(comment).count() == 1;
        if is_proxy && let Ok(proxy) = std::str::from_utf8(comment) {
            self.proxy = Some(proxy.to_owned());
        }
    }

    fn take_file(&mut self, line: Line<'_>, text: &[u8]) {
        let columns: Vec<&[u8]> = words(text).take(4).collect();
        if self.header.files.is_empty() {
            self.header.dialect = Dialect::of(&columns);
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
                    "a header line names a file, an interface and an encoding; this has {found} columns"
                );
                self.unusable(line, reason.clone());
                FileLine { refused: Some(reason), ..FileLine::default() }
            }
        };
        (file.proxy, file.own) = (self.proxy.take(), self.own.take());
        file.enabled &= !file.own.as_ref().is_some_and(|own| own.is_disabled);
        if file.refused.is_none() {
            file.refused = self.refusal(&file.name);
        }
        self.header.files.push(file);
    }

    /// Why a file of that name is not read.
    fn refusal(&self, name: &[u8]) -> Option<String> {
        let shown = shown(name);
        if !is_plain(name) {
            return Some(format!(
                "the subfile `{shown}` is not the name of a file beside the master, and is not opened"
            ));
        }
        let same = self.header.files.iter().position(|file| file.name == name)?;
        Some(format!("the subfile `{shown}` is named twice; it is read as number {same}"))
    }

    fn unusable(&mut self, line: Line<'_>, reason: String) {
        self.header.damage.push(Unusable { offset: line.offset, len: line.len, reason });
    }

    fn finish(mut self, data: u64) -> Header {
        self.header.data = data;
        self.header
    }

    fn without_data(mut self, offset: u64, data: u64, reason: &str) -> Header {
        let len = data - offset;
        self.header.damage.push(Unusable { offset, len, reason: reason.into() });
        self.finish(data)
    }

    /// The header is longer than any: only its end is looked for.
    fn find_data(mut self, lines: &mut Lines) -> Result<Header, Error> {
        let begin = lines.position();
        loop {
            let at = lines.position();
            let Some(line) = lines.next()? else {
                self.header.is_cut = true;
                let reason = "the header is too long, and no line `#data` ends it";
                return Ok(self.without_data(begin, at, reason));
            };
            if line.text.is_some_and(|text| text.trim_ascii_end() == b"#data") {
                let end = line.offset + line.len;
                if at > begin {
                    self.header.is_cut = true;
                    let reason = format!(
                        "of a header only the first {MOST_FILES} lines and 16 MiB are read"
                    );
                    self.header.damage.push(Unusable { offset: begin, len: at - begin, reason });
                }
                return Ok(self.finish(end));
            }
        }
    }
}

impl FileLine {
    fn new(name: &[u8], interface: &[u8], encoding: &[u8], enabled: bool) -> Self {
        let global = interface.strip_prefix(b"::").unwrap_or(interface);
        let bare = global.strip_prefix(b"orca::").or(Some(global));
        Self {
            name: name.to_owned(),
            interface: bare.unwrap_or(interface).to_owned(),
            encoding: encoding.to_owned(),
            enabled,
            ..Self::default()
        }
    }
}
