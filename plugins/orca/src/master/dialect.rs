//! Which dialect a log is of, and whether a file looks like a master at all.

#![warn(clippy::indexing_slicing)]

use super::data::DataLine;
use super::{without_mark, words};

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
    pub(super) fn of(columns: &[&[u8]]) -> Self {
        match columns {
            [first, ..] if first.starts_with(b"::") => Self::A,
            // Descriptions of the format write the interface without the colons in front, too.
            [interface, encoding, name, ..] if !ENCODINGS.contains(name) => {
                let is_first = ENCODINGS.contains(encoding) || is_interface(interface, name);
                if is_first { Self::A } else { Self::later(columns) }
            }
            _ => Self::later(columns),
        }
    }

    /// Of the dialects in which the file comes first.
    fn later(columns: &[&[u8]]) -> Self {
        match columns {
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

/// Whether a file that begins with these bytes looks like a master: surely, if `#data` and more header lines
/// than others are there; perhaps, if all there is could be of one.
pub fn looks_like(head: &[u8]) -> (bool, bool) {
    let head = without_mark(head);
    let whole = memchr::memrchr(b'\n', head).map_or(0, |end| end + 1);
    let (mut files, mut others, mut data, mut lines, mut unknown) = (0, 0, false, 0, 0);
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
        } else if !data && lines == 0 && is_like_header_line(text) {
            unknown += 1;
        } else if !data {
            others += 1;
        }
    }
    // A line `#data` and numbers behind it are of a master, whatever its encodings are called.
    let named = if data && lines > 0 { files + unknown } else { files };
    let others = files + unknown - named + others;
    let may_be = named > 0 && (data || others == 0) || data && others == 0;
    (data && named > others, may_be)
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

/// Whether these are an interface and the name of a file, in this order: the one has a module or no dot in it, the other
/// an ending.
fn is_interface(interface: &[u8], name: &[u8]) -> bool {
    let has_module = memchr::memmem::find(interface, b"::").is_some();
    let has_ending = |name: &[u8]| name.contains(&b'.');
    has_ending(name) && (has_module || !has_ending(interface))
}

/// Names may be of any alphabet.
fn is_word(word: &[u8]) -> bool {
    word.iter().all(|b| b.is_ascii_graphic() || !b.is_ascii())
}

/// Whether it is one of an encoding that is not known: as many words, of which one names a file.
fn is_like_header_line(text: &[u8]) -> bool {
    let columns: Vec<&[u8]> = words(text).take(5).collect();
    let names_file = match columns.as_slice() {
        [interface, _, name] if is_interface(interface, name) => true,
        [name, interface, _] | [name, interface, _, b"0" | b"1"] => is_interface(interface, name),
        _ => false,
    };
    names_file && columns.iter().all(|word| is_word(word))
}

fn is_header_line(text: &[u8]) -> bool {
    let columns: Vec<&[u8]> = words(text).take(5).collect();
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
