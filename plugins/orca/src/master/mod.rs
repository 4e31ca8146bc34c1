//! The master file: its lines, its header and its data lines. Opens no subfile.
//!
//! | dialect | header line | index of the first object | recognised by |
//! |---|---|---|---|
//! | A, 2006 | `::orca::Laser ice laser0.log` | 1 | first column starts with `::`; or the third is no encoding, and the second is one or only the third resembles a file name |
//! | B, from December 2006 | `laser0.log LaserScanner2d ice` | 0 | three columns |
//! | C, from 2007 | `laser0.log LaserScanner2d ice 1` | 0 | four columns |
//!
//! The first header line decides the dialect of the log. The header ends with the line `#data`.
//! Other lines that start with `#` are comments everywhere, and blank lines are ignored. A data
//! line is `seconds microseconds subfile index`; anything after it is ignored, unless it is another
//! data line or has zero bytes.

#![warn(clippy::indexing_slicing)]

mod data;
mod dialect;
mod header;
mod lines;
mod writer_comment;

#[cfg(test)]
mod tests;

use sluice_io::escape::percent_encoded;

pub(crate) use data::DataLine;
pub(crate) use dialect::{Dialect, is_encoding_of_payloads, looks_like_master};
pub(crate) use header::{FileLine, MasterHeader};
pub(crate) use lines::{LONGEST_LINE, LineDamage, MasterLines, ParsedLine, open};
pub(crate) use writer_comment::WriterComment;

/// Text without the UTF-8 byte order mark that some editors add.
fn strip_bom(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text)
}

/// Bytes as one word, which [`percent_decoded`](sluice_io::escape::percent_decoded) reads.
pub(crate) fn encoded_word(bytes: &[u8]) -> String {
    percent_encoded(bytes, |byte| byte.is_ascii_graphic() && byte != b'%')
}

/// The words of a line, separated by blanks.
fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| is_blank(*byte)).filter(|word| !word.is_empty())
}

/// Removes the next of the [`words`] from the front of a text.
fn next_word<'l>(text: &mut &'l [u8]) -> Option<&'l [u8]> {
    let begin = text.iter().position(|byte| !is_blank(*byte))?;
    let word = text.get(begin..)?;
    let (word, rest) =
        word.split_at(word.iter().position(|byte| is_blank(*byte)).unwrap_or(word.len()));
    *text = rest;
    Some(word)
}

/// Whether a byte separates words: as in C, vertical tabs included.
fn is_blank(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

/// Whether a name is that of a file in a folder, without a path.
pub(crate) fn is_file_name(name: &[u8]) -> bool {
    !name.is_empty() && name != b"." && name != b".." && !name.iter().any(|b| matches!(b, 0 | b'/'))
}
