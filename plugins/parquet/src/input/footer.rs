//! The footer of a file as bytes: where it is, whether it matches its checksum, and which columns
//! it says are encrypted. Checks nothing else.

use std::ops::Range;

use bytes::Bytes;
use parquet::file::metadata::FooterTail;
use parquet::file::reader::{ChunkReader, Length};

use super::bytes::TableBytes;
use super::thrift::CompactReader;
use crate::footer_checksum::FooterChecksum;

/// The bytes of a file after its footer.
const TAIL_LEN: u64 = 8;

/// Fields of `FileMetaData`, `RowGroup` and `ColumnChunk`.
const ROW_GROUPS: i16 = 4;
const COLUMNS: i16 = 1;
const CRYPTO_METADATA: i16 = 8;
/// The type of a field that is a struct.
const STRUCT: u8 = 12;

/// The longest page index that is kept in memory from when its checksum is computed. A longer one
/// is at most a quarter of the file.
const MAX_KEPT_INDEX: u64 = 8 << 20;
/// The bytes of a longer one that are read at once.
const CHECKED_AT_ONCE: u64 = 1 << 20;

/// A footer.
pub(super) struct Footer {
    pub(super) bytes: Bytes,
    /// The bytes of its file for those who read it again, which are in memory from there on.
    pub(super) file: TableBytes,
    /// Whether it matches its checksum, if it has one. `Err` says how it differs.
    pub(super) checksum: Option<Result<(), String>>,
}

impl Footer {
    /// The bytes from its start to the end of the file.
    pub(super) fn len_to_end(&self) -> u64 {
        self.bytes.len() as u64 + TAIL_LEN
    }
}

/// Reads a footer. `None` if the file has none that is complete, or it is encrypted.
pub(super) fn read(file: &TableBytes) -> Option<Footer> {
    let (tail, end) = tail_of(file).filter(|(tail, _)| !tail.is_encrypted_footer())?;
    let len = tail.metadata_length();
    let start = end.checked_sub(len as u64)?;
    let checksum_at = start.saturating_sub(FooterChecksum::LEN as u64);
    let mut file =
        file.fetched(checksum_at, usize::try_from(file.len() - checksum_at).ok()?).ok()?;
    let before = file.get_bytes(checksum_at, (start - checksum_at) as usize).ok()?;
    let Some(checksum) = FooterChecksum::from_bytes(&before) else {
        return Some(Footer { bytes: file.get_bytes(start, len).ok()?, file, checksum: None });
    };
    let index_len = checksum_at.checked_sub(checksum.start);
    let matches = match index_len.filter(|len| *len <= MAX_KEPT_INDEX.max(checksum_at / 4)) {
        None => Err(damaged("its checksum is not that of a page index and a footer")),
        Some(index_len) => {
            if index_len <= MAX_KEPT_INDEX {
                let len = usize::try_from(file.len() - checksum.start).ok()?;
                file = file.fetched(checksum.start, len).ok()?;
            }
            let mut found = crc32fast::Hasher::new();
            add_bytes(&mut found, &file, checksum.start..checksum_at)?;
            add_bytes(&mut found, &file, start..file.len())?;
            let (expected, found) = (checksum.crc32, found.finalize());
            let differ =
                || damaged(&format!("expected the checksum {expected:08x}, found {found:08x}"));
            if found == expected { Ok(()) } else { Err(differ()) }
        }
    };
    Some(Footer { bytes: file.get_bytes(start, len).ok()?, file, checksum: Some(matches) })
}

/// Whether a file has a footer that is encrypted.
pub(super) fn is_encrypted(file: &TableBytes) -> bool {
    tail_of(file).is_some_and(|(tail, _)| tail.is_encrypted_footer())
}

/// What follows the footer of a file, and where the footer ends.
fn tail_of(file: &TableBytes) -> Option<(FooterTail, u64)> {
    let end = file.len().checked_sub(TAIL_LEN)?;
    let tail = file.get_bytes(end, TAIL_LEN as usize).ok()?;
    Some((FooterTail::try_from(&tail[..]).ok()?, end))
}

fn damaged(reason: &str) -> String {
    format!("the footer is damaged, so that names, types and rows may be wrong: {reason}")
}

/// Adds a range of a file to a checksum. `None` if it cannot be read.
fn add_bytes(
    crc32: &mut crc32fast::Hasher,
    file: &TableBytes,
    mut range: Range<u64>,
) -> Option<()> {
    while range.start < range.end {
        let len = (range.end - range.start).min(CHECKED_AT_ONCE);
        crc32.update(&file.get_bytes(range.start, len as usize).ok()?);
        range.start += len;
    }
    Some(())
}

/// The first column that a footer says is encrypted, as the numbers of its row group and itself.
/// None behind the first fault of the footer.
pub(super) fn encrypted_column(footer: &[u8]) -> Option<(u64, u64)> {
    let mut found = None;
    find_encrypted(&mut CompactReader(footer), &mut found);
    found
}

/// `None` if the footer is malformed, or has no row groups.
fn find_encrypted(footer: &mut CompactReader<'_>, found: &mut Option<(u64, u64)>) -> Option<()> {
    footer.seek(ROW_GROUPS)?;
    let (groups, _) = footer.list()?;
    // Each group and column takes a byte at least.
    (0..groups).try_for_each(|group| {
        footer.for_each_field(|reader, id, kind| {
            if id != COLUMNS {
                return reader.skip_field(&[], id, kind);
            }
            let (columns, _) = reader.list()?;
            (0..columns).try_for_each(|column| {
                if is_column_encrypted(reader)? {
                    found.get_or_insert((group, column));
                }
                Some(())
            })
        })
    })
}

/// Reads a `ColumnChunk`.
fn is_column_encrypted(reader: &mut CompactReader<'_>) -> Option<bool> {
    let mut has_key = false;
    reader.for_each_field(|reader, id, kind| {
        has_key |= id == CRYPTO_METADATA && kind == STRUCT;
        reader.skip_field(&[], id, kind)
    })?;
    Some(has_key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_column_with_a_key_is_encrypted() {
        // Row groups of two columns with a list of booleans each; the second has a key.
        let lists = [0x19, 0x31, 1, 2, 1];
        let columns = [&[0x19, 0x2c][..], &lists, &[0], &lists, &[0x7c, 0x1c, 0, 0, 0]].concat();
        let group = [&columns[..], &[0x16, 2, 0]].concat();
        let footer = [&[0x15, 4, 0x39, 0x2c][..], &group, &group, &[0]].concat();
        assert_eq!(encrypted_column(&footer), Some((0, 1)));
        // What precedes a cut is found.
        assert_eq!(encrypted_column(&footer[..4 + group.len() + 3]), Some((0, 1)));
        assert_eq!(encrypted_column(&footer[..4 + group.len() - 5]), None);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_searched(
            bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..300),
        ) {
            encrypted_column(&bytes);
            encrypted_column(&[&[0x49, 0xfc, 3, 0x19, 0x4c], &bytes[..]].concat());
        }
    }
}
