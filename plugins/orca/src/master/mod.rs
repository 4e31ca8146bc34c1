//! The master file: its lines, its header, and what a line of data says. Opens no subfile.
//!
//! | dialect | header line | index of the first object | told by |
//! |---|---|---|---|
//! | A, 2006 | `::orca::Laser ice laser0.log` | 1 | the first column begins with `::`; or the third is no encoding, and the second is one or only the third is like a file's name |
//! | B, from December 2006 | `laser0.log LaserScanner2d ice` | 0 | three columns |
//! | C, from 2007 | `laser0.log LaserScanner2d ice 1` | 0 | four columns |
//!
//! The first header line decides for all. The header ends with a line `#data`; other lines that begin with
//! `#` are comments everywhere, and blank lines mean nothing. A line of data is `seconds microseconds subfile
//! index`; what follows is ignored, unless it is a line of data again.

#![warn(clippy::indexing_slicing)]

mod data;
mod dialect;
mod header;
mod lines;
mod own;

#[cfg(test)]
mod tests;

pub use data::DataLine;
pub use dialect::{Dialect, looks_like};
pub use header::{FileLine, Header, MOST_FILES, Unusable};
pub use lines::{LONGEST_LINE, Line, Lines, ParsedLine, open};
pub use own::Own;

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
