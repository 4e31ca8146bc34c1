//! Rows as SQLite stores them: the types of all columns, then their values. Reads no file.

#![warn(clippy::indexing_slicing)]

use std::ops::Range;

/// A number of one to nine bytes at the start of `bytes`, and its length.
pub(crate) fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let mut value = 0;
    for (at, byte) in bytes.iter().take(8).enumerate() {
        value = value << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Some((value, at + 1));
        }
    }
    Some((value << 8 | u64::from(*bytes.get(8)?), 9))
}

/// What the value of a column is, and where it lies in the row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    kind: u64,
    place: Range<u64>,
}

/// The columns of a row of `len` bytes that begins with `start`; `None` unless they take exactly as
/// many, or if the start is too short to tell.
pub(crate) fn columns(start: &[u8], len: u64) -> Option<Vec<Column>> {
    let mut columns = Vec::new();
    each_column(start, len, |column| columns.push(column))?;
    Some(columns)
}

/// Calls `each` with the columns of a row, which is as for [`columns`].
pub(crate) fn each_column(start: &[u8], len: u64, mut each: impl FnMut(Column)) -> Option<()> {
    let (header, mut at) = varint(start)?;
    let kinds = start.get(..usize::try_from(header).ok()?)?;
    let mut value_at = header;
    while at < kinds.len() {
        let (kind, read) = varint(kinds.get(at..)?)?;
        at += read;
        let value_len = match kind {
            0 | 8 | 9 => 0,
            1..=4 => kind,
            5 => 6,
            6 | 7 => 8,
            10 | 11 => return None,
            _ => (kind - 12) / 2,
        };
        let end = value_at.checked_add(value_len)?;
        each(Column { kind, place: value_at..end });
        value_at = end;
    }
    (at == kinds.len() && value_at == len).then_some(())
}

impl Column {
    /// An integer; `None` if it is something else, or if `row` does not have all of it.
    pub(crate) fn integer(&self, row: &[u8]) -> Option<i64> {
        match self.kind {
            8 => Some(0),
            9 => Some(1),
            1..=6 => {
                let bytes = self.bytes(row)?;
                let sign = bytes.first().map_or(0, |byte| if byte & 0x80 == 0 { 0 } else { -1 });
                Some(bytes.iter().fold(sign, |value, byte| value << 8 | i64::from(*byte)))
            }
            _ => None,
        }
    }

    /// A text; `None` if it is something else, or if `row` does not have all of it.
    pub(crate) fn text<'r>(&self, row: &'r [u8]) -> Option<&'r [u8]> {
        let is_text = self.kind >= 13 && self.kind % 2 == 1;
        self.bytes(row).filter(|_| is_text)
    }

    /// Where the bytes of a blob or a text lie in the row; `None` if it is something else.
    pub(crate) fn blob(&self) -> Option<Range<u64>> {
        (self.kind >= 12).then(|| self.place.clone())
    }

    fn bytes<'r>(&self, row: &'r [u8]) -> Option<&'r [u8]> {
        let (start, end) = (usize::try_from(self.place.start), usize::try_from(self.place.end));
        row.get(start.ok()?..end.ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_up_to_nine_bytes() {
        assert_eq!(varint(&[0x05]), Some((5, 1)));
        assert_eq!(varint(&[0x81, 0x00, 7]), Some((128, 2)));
        assert_eq!(varint(&[0xff; 9]), Some((u64::MAX, 9)));
        assert_eq!(varint(&[0xff; 8]), None);
        assert_eq!(varint(&[]), None);
    }

    #[test]
    fn columns_take_all_bytes_of_a_row() {
        // NULL, -2 in one byte, 1, a time of six bytes, a text, a blob.
        let row = [7, 0, 1, 9, 5, 17, 16, 0xfe, 0, 0, 0, 0, 1, 2, b'o', b'k', 7, 8];
        let found = columns(&row, row.len() as u64).unwrap();
        let integers: Vec<_> = found.iter().map(|column| column.integer(&row)).collect();
        assert_eq!(integers, [None, Some(-2), Some(1), Some(258), None, None]);
        let [.., text, blob] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!((text.text(&row), text.blob()), (Some(b"ok".as_slice()), Some(14..16)));
        assert_eq!((blob.text(&row), blob.blob()), (None, Some(16..18)));
        for len in [17, 19] {
            assert_eq!(columns(&row, len), None);
        }
        assert_eq!(columns(&[3, 0], 3), None);
        assert_eq!(columns(&[2, 10], 2), None);
        assert_eq!(columns(&[3, 0x80, 0x80], 3), None);
    }
}
