//! Splits a row into cells, as in RFC 4180.
//!
//! Quotes are special only at the start of a cell. A quoted cell may contain anything, including
//! line ends.

#![warn(clippy::indexing_slicing)]

use std::borrow::Cow;
use std::ops::Range;

use memchr::{memchr, memchr2, memmem};

/// A cell: its place in the row, without quotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) place: Range<usize>,
    /// Whether it was quoted: then it is a text, even if empty.
    pub(crate) is_quoted: bool,
    /// Whether it contains doubled quotes.
    has_quotes: bool,
}

impl Cell {
    /// Its text; `row` is the row it was found in.
    pub(crate) fn text<'r>(&self, row: &'r [u8]) -> Cow<'r, [u8]> {
        let text = row.get(self.place.clone()).unwrap_or_default();
        if !self.has_quotes {
            return Cow::Borrowed(text);
        }
        let mut plain = Vec::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = memchr(b'"', rest) {
            let (before, after) = rest.split_at_checked(at + 1).unwrap_or((rest, &[]));
            plain.extend_from_slice(before);
            rest = after.strip_prefix(b"\"").unwrap_or(after);
        }
        plain.extend_from_slice(rest);
        Cow::Owned(plain)
    }
}

/// What bytes start with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RowScan {
    /// A row of this length, including its line end.
    Row(usize),
    /// More bytes are needed to tell.
    Incomplete,
    /// No valid row, and why.
    Invalid(&'static str),
}

/// Scans the row at the start of `bytes` into `cells`. `is_end` means that the file ends with
/// `bytes`, so a line end may be missing.
pub(crate) fn scan(bytes: &[u8], delimiter: u8, is_end: bool, cells: &mut Vec<Cell>) -> RowScan {
    cells.clear();
    let mut at = 0;
    loop {
        let quoted = bytes.get(at) == Some(&b'"');
        let found =
            if quoted { quoted_cell(bytes, at + 1) } else { Ok(plain_cell(bytes, at, delimiter)) };
        let (cell, behind) = match found {
            Ok(Some(found)) => found,
            Ok(None) if is_end && !quoted => {
                cells.push(Cell { place: at..bytes.len(), is_quoted: false, has_quotes: false });
                return RowScan::Row(bytes.len());
            }
            Ok(None) if is_end => return RowScan::Invalid("the file ends inside quotes"),
            Ok(None) => return RowScan::Incomplete,
            Err(why) => return RowScan::Invalid(why),
        };
        cells.push(cell);
        match bytes.get(behind) {
            Some(byte) if *byte == delimiter => at = behind + 1,
            Some(b'\n') => return RowScan::Row(behind + 1),
            Some(b'\r') if bytes.get(behind + 1) == Some(&b'\n') => {
                return RowScan::Row(behind + 2);
            }
            Some(b'\r') if behind + 1 == bytes.len() && !is_end => return RowScan::Incomplete,
            None if is_end => return RowScan::Row(bytes.len()),
            None => return RowScan::Incomplete,
            Some(_) => {
                return RowScan::Invalid("expected the end of the cell after a quote");
            }
        }
    }
}

/// What a file system leaves in place of what it lost, line ends included.
const ZEROS: &str = "zero bytes in a cell, as after a power loss: rows may be missing here";
/// The least that a disk loses. Fewer zeros, and those in quotes, are text.
const SECTOR: [u8; 512] = [0; 512];

/// Like [`scan`], but a row with zeros in place of what was lost is invalid.
pub(crate) fn checked_scan(
    bytes: &[u8],
    delimiter: u8,
    is_end: bool,
    cells: &mut Vec<Cell>,
) -> RowScan {
    match scan(bytes, delimiter, is_end, cells) {
        RowScan::Row(len) if has_zeros(bytes.get(..len).unwrap_or_default(), cells) => {
            RowScan::Invalid(ZEROS)
        }
        scanned => scanned,
    }
}

/// Whether a cell has zeros that are no text.
fn has_zeros(row: &[u8], cells: &[Cell]) -> bool {
    let is_lost = |cell: &Cell| {
        let text = row.get(cell.place.clone()).unwrap_or_default();
        !cell.is_quoted && text.len() >= SECTOR.len() && memmem::find(text, &SECTOR).is_some()
    };
    row.len() >= SECTOR.len() && memchr(0, row).is_some() && cells.iter().any(is_lost)
}

/// An unquoted cell at `at`, and the position of what ends it.
fn plain_cell(bytes: &[u8], at: usize, delimiter: u8) -> Option<(Cell, usize)> {
    let rest = bytes.get(at..).unwrap_or_default();
    let end = at + memchr2(delimiter, b'\n', rest)?;
    let is_line_end = bytes.get(end) == Some(&b'\n');
    let has_return = is_line_end && end > at && bytes.get(end - 1) == Some(&b'\r');
    let end = end - usize::from(has_return);
    Some((Cell { place: at..end, is_quoted: false, has_quotes: false }, end))
}

/// A quoted cell whose text starts at `at`, and the position after its closing quote.
fn quoted_cell(bytes: &[u8], at: usize) -> Result<Option<(Cell, usize)>, &'static str> {
    let (mut from, mut has_quotes) = (at, false);
    loop {
        let rest = bytes.get(from..).unwrap_or_default();
        let Some(quote) = memchr(b'"', rest).map(|quote| from + quote) else { return Ok(None) };
        if bytes.get(quote + 1) == Some(&b'"') {
            (from, has_quotes) = (quote + 2, true);
            continue;
        }
        let cell = Cell { place: at..quote, is_quoted: true, has_quotes };
        return Ok(Some((cell, quote + 1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn row(bytes: &[u8], is_end: bool) -> (RowScan, Vec<Vec<u8>>) {
        let mut cells = Vec::new();
        let scanned = scan(bytes, b',', is_end, &mut cells);
        (scanned, cells.iter().map(|cell| cell.text(bytes).into_owned()).collect())
    }

    fn cells(bytes: &[u8]) -> Vec<String> {
        let (scanned, cells) = row(bytes, true);
        assert_eq!(scanned, RowScan::Row(bytes.len()));
        cells.into_iter().map(|cell| String::from_utf8(cell).unwrap()).collect()
    }

    #[test]
    fn cells_lie_between_delimiters_or_in_quotes() {
        assert_eq!(
            cells(b"a,,b c,\"d,e\",\"f\"\"g\nh\",5\" pipe\r\n").join("|"),
            "a||b c|d,e|f\"g\nh|5\" pipe"
        );
        assert_eq!(cells(b"a,"), ["a", ""]);
        assert_eq!(cells(b"\"\""), [""]);
        assert_eq!(cells(b"\n"), [""]);
        assert_eq!(cells(b"a\rb,c"), ["a\rb", "c"]);
    }

    #[test]
    fn a_row_that_may_go_on_needs_more() {
        for part in [&b"a,b"[..], b"", b"\"a\nb", b"a,\"b\"", b"\"a\"\r", b"a,"] {
            assert_eq!(row(part, false).0, RowScan::Incomplete, "{}", part.escape_ascii());
        }
    }

    #[test]
    fn quotes_that_do_not_end_with_their_cell_are_bad() {
        assert!(matches!(row(b"\"a\"b,c\n", false).0, RowScan::Invalid(_)));
        assert!(matches!(row(b"\"a,b\n", true).0, RowScan::Invalid(_)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_row_bad_or_need_more_and_cells_lie_in_order(
            bytes in vec(
                prop_oneof![Just(b'"'), Just(b','), Just(b'\n'), Just(b'\r'), any::<u8>()], 0..60),
            is_end: bool)
        {
            let mut cells = Vec::new();
            match scan(&bytes, b',', is_end, &mut cells) {
                RowScan::Row(len) => prop_assert!(len <= bytes.len()),
                RowScan::Incomplete => prop_assert!(!is_end),
                RowScan::Invalid(_) => {}
            }
            for (one, next) in cells.iter().zip(cells.iter().skip(1)) {
                prop_assert!(one.place.end < next.place.start);
            }
        }

        #[test]
        fn what_another_writer_wrote_is_read(
            rows in vec(vec("[a,\"\n\r ;é]{0,6}", 2..5), 1..5))
        {
            for texts in rows {
                let mut writer = csv::WriterBuilder::new().from_writer(Vec::new());
                writer.write_record(&texts).unwrap();
                let bytes = writer.into_inner().unwrap();
                prop_assert_eq!(cells(&bytes), texts);
            }
        }

        #[test]
        fn more_bytes_do_not_change_a_row(
            bytes in vec(
                prop_oneof![Just(b'"'), Just(b','), Just(b'\n'), Just(b'\r'), Just(b'x')], 0..30),
            more in vec(any::<u8>(), 0..10))
        {
            let (before, cells) = row(&bytes, false);
            if before != RowScan::Incomplete {
                prop_assert_eq!((before, cells), row(&[bytes, more].concat(), false));
            }
        }
    }
}
