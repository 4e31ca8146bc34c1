//! The master file: its lines, its header, and what a line of data says. Opens no subfile.
//!
//! | dialect | header line | index of the first object | told by |
//! |---|---|---|---|
//! | A, 2006 | `::orca::Laser ice laser0.log` | 1 | the first column begins with `::`, or the second is an encoding and the third is not |
//! | B, from December 2006 | `laser0.log LaserScanner2d ice` | 0 | three columns |
//! | C, from 2007 | `laser0.log LaserScanner2d ice 1` | 0 | four columns |
//!
//! The first header line decides for all. The header ends with a line `#data`; other lines that begin with
//! `#` are comments everywhere, and blank lines mean nothing. A line of data is `seconds microseconds subfile
//! index`; what follows is ignored, unless it is a line of data again.

#![warn(clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::path::Path;

use sluice_core::files::LogFile;
use sluice_core::{Clock, Error};

use crate::log::shown;
use crate::percent;
use crate::subfile::Prefix;

/// Lines longer than this are damage.
pub const LONGEST_LINE: usize = 64 << 10;
/// The most header lines that are read: each is a file.
pub const MOST_FILES: usize = 10_000;
/// The longest header that is read.
const LONGEST_HEADER: u64 = 16 << 20;
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
    pub fn data(&self) -> Result<Option<Told>, String> {
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
        Ok(Some(Told { data, swallowed, says_more }))
    }
}

/// What a line says of objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
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
        self.log.broken()
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
        self.bytes.resize(kept + self.step, 0);
        let room = self.bytes.get_mut(kept..).unwrap_or_default();
        let read = self.log.read_at(self.at + kept as u64, room)?;
        self.bytes.truncate(kept + read);
        self.ended = read < self.step;
        Ok(())
    }
}

/// Which of the three forms of a log it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// The first, of 2006.
    A,
    /// The second, from December 2006 on.
    B,
    /// The third, from 2007 on.
    #[default]
    C,
}

impl Dialect {
    fn of(columns: &[&[u8]]) -> Self {
        match columns {
            [first, ..] if first.starts_with(b"::") => Self::A,
            // Descriptions of the format write the interface without the colons in front, too.
            [_, encoding, name, ..]
                if ENCODINGS.contains(encoding) && !ENCODINGS.contains(name) =>
            {
                Self::A
            }
            [_, _, _, _, ..] => Self::C,
            _ => Self::B,
        }
    }

    /// Its letter.
    pub fn word(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::B => "B",
            Self::C => "C",
        }
    }

    /// The index of a subfile's first object.
    pub fn base(self) -> u64 {
        u64::from(self == Self::A)
    }
}

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

/// What our own writer says in a comment before a header line: `# sluice config_records=1 …`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// How many records are configuration.
    pub config_records: u64,
    /// What stands before each record.
    pub prefix: Prefix,
    /// The channel's name.
    pub channel: Vec<u8>,
    /// The channel's source.
    pub source: String,
    /// The type of the payloads.
    pub type_name: Option<String>,
    /// What times count from.
    pub clock: Clock,
    /// The interface, where the header line has another word for it or is of no objects.
    pub interface: Option<String>,
    /// Whether it is not to be played, where the header line has no column for that.
    pub is_disabled: bool,
    /// What else is known of the channel.
    pub metadata: BTreeMap<String, String>,
}

impl Own {
    /// What comments of ours begin with, behind the `#`.
    pub(crate) const WORD: &'static str = "sluice";
    /// What stands before the keys of what else is known of the channel.
    const METADATA: &'static [u8] = b"metadata.";

    fn parse(comment: &[u8]) -> Option<Self> {
        let mut words = words(comment);
        if words.next()? != Self::WORD.as_bytes() {
            return None;
        }
        let mut own = Self::default();
        for word in words {
            let Some(equals) = memchr::memchr(b'=', word) else { continue };
            let (key, value) = word.split_at_checked(equals)?;
            let value = percent::decoded(value.get(1..)?);
            let text = || String::from_utf8(value.clone()).ok();
            match key {
                b"config_records" => own.config_records = text()?.parse().ok()?,
                b"prefix" => own.prefix = Prefix::from_word(&text()?)?,
                b"source" => own.source = text()?,
                b"type" => own.type_name = Some(text()?),
                b"clock" if value == b"relative" => own.clock = Clock::Relative,
                b"channel" => own.channel = value,
                b"interface" => own.interface = Some(text()?),
                b"enabled" => own.is_disabled = value == b"0",
                key => {
                    let key = key.strip_prefix(Self::METADATA).map(percent::decoded);
                    if let Some((key, value)) =
                        key.and_then(|k| String::from_utf8(k).ok()).zip(text())
                    {
                        own.metadata.insert(key, value);
                    }
                }
            }
        }
        Some(own)
    }

    /// The comment, with its end.
    pub(crate) fn to_line(&self) -> String {
        let mut line = format!(
            "# {} config_records={} prefix={} channel={} source={}",
            Self::WORD,
            self.config_records,
            self.prefix.word(),
            percent::encoded(&self.channel),
            percent::encoded(self.source.as_bytes()),
        );
        if let Some(name) = &self.type_name {
            line += &format!(" type={}", percent::encoded(name.as_bytes()));
        }
        if self.clock == Clock::Relative {
            line += " clock=relative";
        }
        if let Some(interface) = &self.interface {
            line += &format!(" interface={}", percent::encoded(interface.as_bytes()));
        }
        if self.is_disabled {
            line += " enabled=0";
        }
        for (key, value) in &self.metadata {
            let (key, value) =
                (percent::encoded(key.as_bytes()), percent::encoded(value.as_bytes()));
            line += &format!(" metadata.{key}={value}");
        }
        line + "\n"
    }
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
                Taken::More => {}
                Taken::Data => return Ok(header.finish(end)),
                Taken::FirstLine => {
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

enum Taken {
    More,
    Data,
    FirstLine,
}

impl HeaderReader {
    fn take(&mut self, line: Line<'_>) -> Taken {
        let Some(text) = line.text else {
            self.unusable(line, format!("a line is longer than {LONGEST_LINE} bytes"));
            return Taken::More;
        };
        let text = if line.offset == 0 { without_mark(text) } else { text };
        if text.trim_ascii_end() == b"#data" {
            return Taken::Data;
        }
        match text.trim_ascii().split_first() {
            None => {}
            Some((b'#', comment)) => self.take_comment(comment),
            Some(_) if matches!(DataLine::parse(text), Ok(Some(_))) => return Taken::FirstLine,
            Some(_) => self.take_file(line, text),
        }
        Taken::More
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

/// What a line of data says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataLine {
    /// Nanoseconds since 1970, also where 64 bits cannot hold them.
    pub time: i128,
    /// The subfile's number.
    pub subfile: u64,
    /// The index of the object in it.
    pub index: i64,
}

const SECOND: i64 = 1_000_000_000;
const MICRO: i64 = 1_000;

impl DataLine {
    /// Reads a line; nothing if it is blank or a comment. `Err` says what is wrong with it.
    pub fn parse(text: &[u8]) -> Result<Option<Self>, &'static str> {
        Ok(Self::split(text)?.map(|(line, _)| line))
    }

    /// Reads a line, and gives what stands behind its numbers.
    fn split(mut text: &[u8]) -> Result<Option<(Self, &[u8])>, &'static str> {
        if let Some((plain, rest)) = plain_numbers(text) {
            return Ok(Some((Self::of(plain)?, rest)));
        }
        let first = match next_word(&mut text) {
            None => return Ok(None),
            Some(first) if first.starts_with(b"#") => return Ok(None),
            Some(first) => first,
        };
        let few = "a line of data has four numbers: seconds, microseconds, subfile, index";
        let mut next = || next_word(&mut text).ok_or(few);
        let (second, subfile, index) = (next()?, next()?, next()?);
        let seconds = number(first).ok_or("the seconds are no whole number")?;
        let micros = number(second).ok_or(NO_MICROS)?;
        let subfile = number(subfile).ok_or(NO_SUBFILE)?;
        let index = number(index).ok_or("the index is no whole number")?;
        Ok(Some((Self::of([seconds, micros, subfile, index])?, text)))
    }

    fn of([seconds, micros, subfile, index]: [i64; 4]) -> Result<Self, &'static str> {
        if !(0..1_000_000).contains(&micros) {
            return Err(NO_MICROS);
        }
        let subfile = u64::try_from(subfile).map_err(|_| NO_SUBFILE)?;
        let time = i128::from(seconds) * i128::from(SECOND) + i128::from(micros * MICRO);
        Ok(Self { time, subfile, index })
    }

    /// The time, or the nearest one that 64 bits can hold.
    pub fn timestamp(&self) -> i64 {
        let nearest = if self.time < 0 { i64::MIN } else { i64::MAX };
        i64::try_from(self.time).unwrap_or(nearest)
    }
}

const NO_MICROS: &str = "the microseconds are no whole number from 0 to 999999";
const NO_SUBFILE: &str = "the subfile is no number of a header line";

/// The numbers that a line of data begins with, if they are written as loggers write them: digits, and blanks
/// between; and what follows. Nothing means that the line has to be looked at word by word.
fn plain_numbers(mut text: &[u8]) -> Option<([i64; 4], &[u8])> {
    let mut numbers = [0; 4];
    for number in &mut numbers {
        while let [b' ', rest @ ..] = text {
            text = rest;
        }
        let (mut value, mut digits) = (0, 0);
        while let [digit @ b'0'..=b'9', rest @ ..] = text {
            value = value * 10 + i64::from(digit - b'0');
            digits += 1;
            text = rest;
            if digits > MOST_DIGITS {
                return None;
            }
        }
        if digits == 0 || !matches!(text, [] | [b' ', ..]) {
            return None;
        }
        *number = value;
    }
    Some((numbers, text))
}

/// So many digits are a number of 64 bits, whatever they are.
const MOST_DIGITS: usize = 17;

/// A whole number in decimal digits.
fn number(word: &[u8]) -> Option<i64> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// Text without the mark that editors put before text of UTF-8.
fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)
}

/// The words of a line: what blanks lie between.
fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| is_blank(*byte)).filter(|word| !word.is_empty())
}

/// The next of the [`words`] of a text, which then begins behind it.
fn next_word<'l>(text: &mut &'l [u8]) -> Option<&'l [u8]> {
    let begin = text.iter().position(|byte| !is_blank(*byte))?;
    let word = text.get(begin..)?;
    let (word, rest) =
        word.split_at(word.iter().position(|byte| is_blank(*byte)).unwrap_or(word.len()));
    *text = rest;
    Some(word)
}

/// What lies between words: as C has it, so with the vertical tab.
fn is_blank(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

/// Whether a name is one of a file in a folder, and leads nowhere else.
pub fn is_plain(name: &[u8]) -> bool {
    !name.is_empty() && name != b"." && name != b".." && !name.iter().any(|b| matches!(b, 0 | b'/'))
}

/// Whether a file that begins with these bytes looks like a master: surely, if `#data` and more header lines
/// than others are there; perhaps, if all there is could be of one.
pub fn looks_like(head: &[u8]) -> (bool, bool) {
    let head = without_mark(head);
    let whole = memchr::memrchr(b'\n', head).map_or(0, |end| end + 1);
    let (mut files, mut others, mut data, mut lines) = (0, 0, false, 0);
    for line in head.get(..whole).unwrap_or_default().split(|b| *b == b'\n') {
        let text = line.trim_ascii_end();
        if text == b"#data" {
            data = true;
        } else if text.is_empty() || text.starts_with(b"#") {
            continue;
        } else if matches!(DataLine::parse(text), Ok(Some(_))) {
            lines += 1;
        } else if !data && lines == 0 && is_header_line(text) {
            files += 1;
        } else if !data {
            others += 1;
        }
    }
    let may_be = files > 0 && (data || others == 0) || data && others == 0;
    (data && files > others, may_be)
}

/// The encodings that header lines are told by.
const ENCODINGS: [&[u8]; 10] = [
    b"ice",
    b"ascii",
    b"asciigenerated",
    b"jpeg",
    b"bmp",
    b"avi",
    b"lcm",
    b"vel",
    b"text",
    b"unknown",
];

fn is_header_line(text: &[u8]) -> bool {
    let columns: Vec<&[u8]> = words(text).take(5).collect();
    // Names may be of any alphabet.
    let is_word = |word: &[u8]| word.iter().all(|b| b.is_ascii_graphic() || !b.is_ascii());
    match columns.as_slice() {
        [interface, encoding, name] if Dialect::of(&columns) == Dialect::A => {
            ENCODINGS.contains(encoding) && is_word(interface) && is_word(name)
        }
        [name, interface, encoding] | [name, interface, encoding, b"0" | b"1"] => {
            ENCODINGS.contains(encoding) && is_word(interface) && is_word(name)
        }
        _ => false,
    }
}

/// Opens the lines of a master from its start.
pub fn open(path: &Path) -> Result<Lines, Error> {
    Ok(Lines::new(LogFile::open(path)?, 0))
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test that cannot go on has failed")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lines(text: &[u8]) -> Lines {
        let stream = Box::new(std::io::Cursor::new(text.to_owned()));
        Lines::new(LogFile::stream(Path::new("x"), stream).unwrap(), 0)
    }

    fn header(text: &str) -> Header {
        Header::read(&mut lines(text.as_bytes())).unwrap()
    }

    fn data(text: &str) -> Result<Option<DataLine>, &'static str> {
        DataLine::parse(text.as_bytes())
    }

    #[test]
    fn the_first_header_line_tells_the_dialect() {
        let a = header("::orca::Laser  ice  laser0.log\n#data\n");
        assert_eq!((a.dialect, a.data), (Dialect::A, 37));
        assert_eq!(
            (&a.files[0].name[..], &a.files[0].interface[..]),
            (&b"laser0.log"[..], &b"Laser"[..])
        );
        assert_eq!(header("laser0.log Laser ice\n#data\n").dialect, Dialect::B);
        let c = header("laser0.log Laser ice 0\npower.log Power ascii 1\n#data\n");
        assert_eq!((c.dialect, c.files[0].enabled, c.files[1].enabled), (Dialect::C, false, true));
    }

    #[test]
    fn comments_and_blank_lines_are_passed_over() {
        let read = header(
            "# host: alpha\n\n\r\n# laser@alpha/laser2d\r\nlaser0.log Laser ice 1\r\n#data \r\n",
        );
        assert_eq!(read.files[0].proxy.as_deref(), Some("laser@alpha/laser2d"));
        assert_eq!((read.files.len(), read.damage.len()), (1, 0));
    }

    #[test]
    fn a_mark_before_the_text_is_passed_over() {
        let read = header("\u{feff}::orca::Laser ice laser0.log\n#data\n");
        assert_eq!((read.dialect, &read.files[0].interface[..]), (Dialect::A, &b"Laser"[..]));
        assert_eq!(header("\u{feff}#data\n"), Header { data: 9, ..Header::default() });
    }

    #[test]
    fn reasons_hold_nothing_that_a_terminal_obeys() {
        let read = header("a/\u{1b}[31m P ice\n#data\n");
        let reason = read.files[0].refused.as_deref().unwrap();
        assert!(reason.contains("u{1b}") && !reason.contains('\u{1b}'), "{reason}");
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused_and_counted() {
        let read =
            header("../x.log P ice 1\n/etc/passwd P ice 1\n.. P ice 1\na.log P ice 1\n#data\n");
        assert_eq!(read.files.iter().filter(|file| file.refused.is_some()).count(), 3);
        assert_eq!(read.files[3].refused, None);
        assert!(header("a P ice\na P ice\n#data\n").files[1].refused.is_some());
    }

    #[test]
    fn a_line_with_too_few_columns_keeps_its_number() {
        let read = header("a.log Power ice 1\nb.log\nc.log Power ice 1\n#data\n");
        assert_eq!((read.files.len(), read.damage.len(), read.damage[0].len), (3, 1, 6));
        assert!(read.files[1].refused.is_some());
    }

    #[test]
    fn without_its_mark_data_begins_with_the_first_line_of_numbers() {
        let read = header("a.log Power ice 1\n10 20 0 0\n");
        assert_eq!((read.data, read.damage[0].offset, read.damage[0].len), (18, 18, 0));
    }

    #[test]
    fn a_header_of_any_length_is_bounded() {
        let many = "a b\n".repeat(MOST_FILES + 50) + "#data\n1 2 0 0\n";
        let read = header(&many);
        assert_eq!(read.files.len(), MOST_FILES);
        assert_eq!(read.data, many.len() as u64 - 8);
        assert_eq!((read.damage.last().map(|d| d.len), read.is_cut), (Some(200), true));
    }

    #[test]
    fn microseconds_are_a_number_and_no_fraction() {
        let line = data("1154412007          22   0   1 more").unwrap().unwrap();
        assert_eq!(line, DataLine { time: 1_154_412_007_000_022_000, subfile: 0, index: 1 });
    }

    #[test]
    fn lines_that_say_no_time_or_place_are_malformed() {
        for (line, says) in [
            ("1 2 3", "four numbers"),
            ("x 2 3 4", "seconds"),
            ("1 1000000 3 4", "microseconds"),
            ("1 -1 3 4", "microseconds"),
            ("1 2 -3 4", "subfile"),
            ("1 2 3 4.5", "index"),
            ("9223372036854775808 0 0 0", "seconds"),
        ] {
            assert!(data(line).unwrap_err().contains(says), "{line}");
        }
        let late = data("9223372036854775807 1 0 0").unwrap().unwrap();
        let time = i128::from(i64::MAX) * 1_000_000_000 + 1_000;
        assert_eq!((late.time, late.timestamp()), (time, i64::MAX));
        assert_eq!(data("-9223372037 0 0 0").unwrap().unwrap().timestamp(), i64::MIN);
        assert_eq!((data("  # 1 2 3 4"), data("\t")), (Ok(None), Ok(None)));
    }

    #[test]
    fn a_last_index_that_may_be_cut_off_is_malformed() {
        let last = |text: &[u8]| lines(text).next().unwrap().unwrap().data();
        for whole in
            [&b"1 2 3 10\n"[..], b"1 2 3 10\r\n", b"1 2 3 10 ", b"1 2 3 10 more", b"# 1 2 3 10"]
        {
            assert!(last(whole).is_ok(), "{}", shown(whole));
        }
        assert!(last(b"1 2 3 10").unwrap_err().contains("cut off"));
    }

    #[test]
    fn a_line_whose_line_break_is_gone_is_told_where_it_begins() {
        let swallowed =
            |text: &[u8]| lines(text).next().unwrap().unwrap().data().unwrap().unwrap().swallowed;
        for blank in [b' ', b'\t', 0x0b, 0x0c, b'\r'] {
            let text = [b"1 2 3 4", &[blank][..], b"1 2 3 5\n"].concat();
            assert_eq!(swallowed(&text), Some((8, 8)), "{blank}");
        }
        for rest in ["", " more", " 1 2 3", " # 1 2 3 4"] {
            assert_eq!(swallowed(format!("1 2 3 4{rest}\n").as_bytes()), None, "{rest}");
        }
        let says_more =
            |text: &[u8]| lines(text).next().unwrap().unwrap().data().unwrap().unwrap().says_more;
        assert!(says_more(b"1 2 3 4 5 6 7\n") && !says_more(b"1 2 3 4 # 5\n"));
        assert!(!says_more(b"1 2 3 4 \n"));
    }

    #[test]
    fn a_line_without_end_is_stepped_over_whole() {
        let long = [&[b'x'; LONGEST_LINE + 10][..], b"\n1 2 3 4"].concat();
        let mut lines = lines(&long);
        let first = lines.next().unwrap().unwrap();
        assert_eq!((first.len, first.text), (LONGEST_LINE as u64 + 11, None));
        assert!(first.data().unwrap_err().contains("longer than 65536"));
        assert_eq!(lines.next().unwrap().unwrap().text, Some(&b"1 2 3 4"[..]));
        assert_eq!(lines.next().unwrap(), None);
    }

    #[test]
    fn what_our_writer_says_comes_back() {
        let own = Own {
            config_records: 2,
            prefix: Prefix { id: true, ..Prefix::default() },
            channel: b"a b%\xff".to_vec(),
            source: "robot ü".into(),
            type_name: Some("exlcm.pose_t".into()),
            clock: Clock::Relative,
            interface: Some("a b".into()),
            is_disabled: true,
            metadata: BTreeMap::from([("a key".to_owned(), "a=b %".to_owned())]),
        };
        let text = own.to_line() + "x.log a lcm 1\n#data\n";
        let files = header(&text).files;
        assert_eq!((files[0].own.as_ref(), files[0].enabled), (Some(&own), false));
    }

    #[test]
    fn only_masters_look_like_masters() {
        assert_eq!(
            looks_like(b"# c\n::orca::Laser  ice  laser0.log\n#data\n1 2 0 1\n"),
            (true, true)
        );
        assert_eq!(looks_like(b"laser0.log Laser ice 1\nx.lo"), (false, true));
        assert_eq!(looks_like(b"#data\n"), (false, true));
        let with_mark = "\u{feff}::orca::Laser ice f\u{fc}hler0.log\r\n#data\r\n";
        assert_eq!(looks_like(with_mark.as_bytes()), (true, true));
        for other in [
            &b"sec,usec\n1,2\n"[..],
            b"# a comment\n",
            b"",
            b"1 2 3 4\n",
            b"[sources.a]\n",
            b"\xed\xa1",
        ] {
            assert_eq!(looks_like(other), (false, false));
        }
    }

    proptest! {
        #[test]
        fn numbers_read_at_one_go_are_those_read_word_by_word(text in "[ 0-9]{0,60}[ \\ta+#-]{0,2}[ 0-9]{0,9}") {
            if let Some((plain, _)) = plain_numbers(text.as_bytes()) {
                let slow: Vec<_> = words(text.as_bytes()).take(4).filter_map(number).collect();
                prop_assert_eq!(plain.to_vec(), slow);
            }
        }

        #[test]
        fn any_text_has_a_header_and_lines(text in "[ a0-9#:\\n\\r./@=%-]{0,300}") {
            let mut lines = lines(text.as_bytes());
            let header = Header::read(&mut lines).unwrap();
            prop_assert!(header.data <= text.len() as u64);
            let all = super::tests::lines(text.as_bytes());
            let total = count(all);
            prop_assert_eq!(total, text.len() as u64);
            looks_like(text.as_bytes());
        }

        #[test]
        fn searching_anywhere_finds_the_lines_that_begin_there(
            text in "[a\\n]{0,60}", from in 0u64..60, len in 0u64..30)
        {
            let mut begins = vec![];
            let mut all = lines(text.as_bytes());
            while let Some(line) = all.next().unwrap() { begins.push(line.offset); }
            let file = lines(text.as_bytes()).log;
            let found = Lines::search(file, from, from + len).unwrap().map(|l| l.position());
            let due = begins.into_iter().find(|at| (from..from + len).contains(at));
            if from > 0 { prop_assert_eq!(found, due); }
        }
    }

    fn count(mut lines: Lines) -> u64 {
        let mut total = 0;
        while let Some(line) = lines.next().unwrap() {
            total += line.len;
        }
        total
    }
}
