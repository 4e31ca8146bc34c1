//! Detects the dialect of a log, and whether a file looks like a master at all.

#![warn(clippy::indexing_slicing)]

use sluice_model::Encoding;

use super::data::DataLine;
use super::{strip_bom, words};

/// The three dialects of the format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// The first, of 2006.
    A,
    /// The second, from December 2006 on.
    B,
    /// The third, from 2007 on.
    #[default]
    C,
}

impl Dialect {
    pub(super) fn detect(columns: &[&[u8]]) -> Self {
        match columns {
            [first, ..] if first.starts_with(b"::") => Self::A,
            // Descriptions of the format also write the interface without leading colons.
            [interface, encoding, name, ..] if !is_encoding(name) => {
                let is_first = is_encoding(encoding) || is_interface_before_file(interface, name);
                if is_first { Self::A } else { Self::from_column_count(columns) }
            }
            _ => Self::from_column_count(columns),
        }
    }

    /// Tells apart the dialects that start with the file name.
    fn from_column_count(columns: &[&[u8]]) -> Self {
        match columns {
            [_, _, _, _, ..] => Self::C,
            _ => Self::B,
        }
    }

    /// The letter of the dialect.
    pub(crate) fn letter(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::B => "B",
            Self::C => "C",
        }
    }

    /// The index of a subfile's first object.
    pub(crate) fn first_index(self) -> u64 {
        u64::from(self == Self::A)
    }
}

/// Whether a file with this head surely, and whether it possibly is a master. Sure needs `#data`
/// and more header lines than other lines; possible, that nothing contradicts it.
pub(crate) fn looks_like_master(head: &[u8]) -> (bool, bool) {
    let head = strip_bom(head);
    let whole = memchr::memrchr(b'\n', head).map_or(0, |end| end + 1);
    let may_have_data = memchr::memmem::find(head, b"#data").is_some();
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
        } else if !data && lines == 0 && resembles_header_line(text) {
            unknown += 1;
        } else if !data {
            others += 1;
            // The heads of other files have thousands of lines.
            if !may_have_data {
                return (false, false);
            }
        }
    }
    // `#data` followed by numbers means a master, even if all encodings are unknown.
    let named = if data && lines > 0 { files + unknown } else { files };
    let others = files + unknown - named + others;
    let may_be = named > 0 && (data || others == 0) || data && others == 0;
    (data && named > others, may_be)
}

/// The encodings of objects and pictures by which header lines are recognised.
const OBJECT_ENCODINGS: [&[u8]; 6] = [b"ice", b"ascii", b"asciigenerated", b"jpeg", b"bmp", b"avi"];

/// Whether a word is that of payloads, which the sink writes as records, of any format.
pub(crate) fn is_encoding_of_payloads(word: &[u8]) -> bool {
    let known = std::str::from_utf8(word).map(Encoding::from_word);
    word == Encoding::Unknown.as_str().as_bytes()
        || known.is_ok_and(|encoding| encoding != Encoding::Unknown)
}

/// Whether a word is an encoding.
fn is_encoding(word: &[u8]) -> bool {
    OBJECT_ENCODINGS.contains(&word) || is_encoding_of_payloads(word)
}

/// Whether these columns are an interface and a file name, in this order: the former has a module
/// or no dot, the latter an extension.
fn is_interface_before_file(interface: &[u8], name: &[u8]) -> bool {
    let has_module = memchr::memmem::find(interface, b"::").is_some();
    let has_ending = |name: &[u8]| name.contains(&b'.');
    has_ending(name) && (has_module || !has_ending(interface))
}

/// Whether a word is printable, in any alphabet.
fn is_printable_word(word: &[u8]) -> bool {
    word.iter().all(|b| b.is_ascii_graphic() || !b.is_ascii())
}

/// Whether the line looks like a header line with an unknown encoding: as many words, one of which
/// names a file.
fn resembles_header_line(text: &[u8]) -> bool {
    let columns: Vec<&[u8]> = words(text).take(5).collect();
    let names_file = match columns.as_slice() {
        [interface, _, name] if is_interface_before_file(interface, name) => true,
        [name, interface, _] | [name, interface, _, b"0" | b"1"] => {
            is_interface_before_file(interface, name)
        }
        _ => false,
    };
    names_file && columns.iter().all(|word| is_printable_word(word))
}

fn is_header_line(text: &[u8]) -> bool {
    let columns: Vec<&[u8]> = words(text).take(5).collect();
    match columns.as_slice() {
        [interface, encoding, name] if Dialect::detect(&columns) == Dialect::A => {
            is_encoding(encoding) && is_printable_word(interface) && is_printable_word(name)
        }
        [name, interface, encoding] | [name, interface, encoding, b"0" | b"1"] => {
            is_encoding(encoding) && is_printable_word(interface) && is_printable_word(name)
        }
        _ => false,
    }
}
