//! A file of the cache: writing, and reading with checks.
//!
//! | part | |
//! |---|---|
//! | rows | an Arrow IPC stream |
//! | summary | JSON |
//! | length of the summary | 8 bytes, little-endian |
//! | BLAKE3 of everything before | 32 bytes |

#![warn(clippy::indexing_slicing)]

use std::fs::File;
use std::io::{self, BufWriter, Cursor, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::SystemTime;

use arrow_array::RecordBatch;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, Schema};
use tempfile::NamedTempFile;

use super::TableSummary;

/// The length of the length of the summary.
const SUMMARY_LEN_BYTES: usize = 8;

/// The length of what follows the summary.
const TRAILER_LEN: usize = SUMMARY_LEN_BYTES + blake3::OUT_LEN;

/// The longest summary.
const MAX_SUMMARY_BYTES: u64 = 4 << 20;

/// The batches of a table. Each has memory of its own.
pub(crate) type StoredBatches = StreamReader<Cursor<Vec<u8>>>;

/// Writes a table to a temporary file, which is removed when this is dropped.
pub(crate) struct TableWriter(StreamWriter<BufWriter<HashedFile>>);

/// A file of limited length, with the hash of what was written.
struct HashedFile {
    file: NamedTempFile,
    hash: blake3::Hasher,
    bytes_left: u64,
}

impl Write for HashedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = bytes.len() as u64;
        self.bytes_left = self.bytes_left.checked_sub(len).ok_or(io::ErrorKind::FileTooLarge)?;
        self.file.write_all(bytes)?;
        self.hash.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl TableWriter {
    /// Writes rows with this schema; at most `max_bytes`.
    pub(super) fn new(
        file: NamedTempFile,
        schema: &Schema,
        max_bytes: u64,
    ) -> Result<Self, ArrowError> {
        let file = HashedFile { file, hash: blake3::Hasher::new(), bytes_left: max_bytes };
        Ok(Self(StreamWriter::try_new_buffered(file, schema)?))
    }

    /// Adds rows, which come back as one batch. After an `Err` the table cannot be stored.
    pub(crate) fn add(&mut self, rows: &RecordBatch) -> Result<(), ArrowError> {
        self.0.write(rows)
    }

    /// Completes the file, and moves it to `path`.
    pub(super) fn finish(self, summary: &TableSummary, path: &Path) -> io::Result<()> {
        let summary = serde_json::to_vec(summary)?;
        if summary.len() as u64 > MAX_SUMMARY_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let rows = self.0.into_inner().map_err(io::Error::other)?;
        let mut out = rows.into_inner().map_err(io::IntoInnerError::into_error)?;
        out.write_all(&summary)?;
        out.write_all(&(summary.len() as u64).to_le_bytes())?;
        let hash = out.hash.finalize();
        out.write_all(hash.as_bytes())?;
        // Without a sync: a table that a crash has damaged is not used.
        out.file.persist(path)?;
        Ok(())
    }
}

/// The length of a file and its summary, without checking the rows. `None` if it is no table.
pub(super) fn read_summary(path: &Path) -> io::Result<Option<(u64, TableSummary)>> {
    let file = File::open(path)?;
    let len = file.metadata()?.len();
    let Some(end) = len.checked_sub(TRAILER_LEN as u64) else { return Ok(None) };
    let mut summary_len = [0; SUMMARY_LEN_BYTES];
    file.read_exact_at(&mut summary_len, end)?;
    let summary_len = u64::from_le_bytes(summary_len);
    let Some(start) = end.checked_sub(summary_len).filter(|_| summary_len <= MAX_SUMMARY_BYTES)
    else {
        return Ok(None);
    };
    let mut summary = vec![0; summary_len as usize];
    file.read_exact_at(&mut summary, start)?;
    Ok(serde_json::from_slice(&summary).ok().map(|summary| (len, summary)))
}

/// The rows of a table and its summary, which another process may have replaced since the last
/// look. `None` unless the whole file is as it was written. Reads these columns of the file.
pub(super) fn read_table(
    path: &Path,
    columns: Vec<usize>,
    max_bytes: u64,
) -> io::Result<Option<(TableSummary, StoredBatches)>> {
    let file = File::open(path)?;
    let len = file.metadata()?.len().min(max_bytes);
    let mut bytes = Vec::with_capacity(usize::try_from(len).unwrap_or_default());
    (&file).take(max_bytes).read_to_end(&mut bytes)?;
    let Some(summary) = checked_summary(&bytes) else { return Ok(None) };
    // When the table was last used. If that cannot be set, it is removed sooner.
    drop(file.set_modified(SystemTime::now()));
    let rows = StreamReader::try_new(Cursor::new(bytes), Some(columns)).ok();
    Ok(rows.map(|rows| (summary, rows)))
}

/// The summary of a complete file.
fn checked_summary(file: &[u8]) -> Option<TableSummary> {
    let (contents, hash) = file.split_last_chunk::<{ blake3::OUT_LEN }>()?;
    if blake3::hash(contents) != blake3::Hash::from_bytes(*hash) {
        return None;
    }
    let (contents, len) = contents.split_last_chunk::<SUMMARY_LEN_BYTES>()?;
    let len = usize::try_from(u64::from_le_bytes(*len)).ok()?;
    let (_, summary) = contents.split_at_checked(contents.len().checked_sub(len)?)?;
    serde_json::from_slice(summary).ok()
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test that cannot go on has failed")]
mod tests {
    use std::sync::Arc;

    use arrow_array::{Int64Array, RecordBatchOptions};
    use arrow_schema::{DataType, Field, SchemaRef};

    use super::*;

    fn summary() -> TableSummary {
        TableSummary { key: "a log".to_owned(), columns: vec![3], ..TableSummary::default() }
    }

    fn schema() -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]))
    }

    fn numbers(numbers: std::ops::Range<i64>) -> RecordBatch {
        RecordBatch::try_new(schema(), vec![Arc::new(Int64Array::from_iter(numbers))]).unwrap()
    }

    fn write(path: &Path, batches: &[RecordBatch], max_bytes: u64) -> Option<()> {
        let folder = path.parent().unwrap();
        let file = NamedTempFile::new_in(folder).unwrap();
        let schema = batches[0].schema();
        let mut writer = TableWriter::new(file, &schema, max_bytes).ok()?;
        for rows in batches {
            writer.add(rows).ok()?;
        }
        writer.finish(&summary(), path).ok()
    }

    #[test]
    fn rows_come_back_in_the_same_batches() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let batches: Vec<_> = (0..100).map(|n| numbers(n * 1000..n * 1000 + n)).collect();
        write(&path, &batches, 1 << 20).unwrap();
        let (read, rows) = read_table(&path, vec![0], 1 << 20).unwrap().unwrap();
        assert_eq!((read.key, read.columns), (summary().key, summary().columns));
        let rows: Vec<_> = rows.collect::<Result<_, _>>().unwrap();
        assert_eq!(rows, batches);
        assert_eq!(read_summary(&path).unwrap().unwrap().1.columns, [3]);
        assert!(read_table(&path, vec![0], 1000).unwrap().is_none(), "longer than allowed");
        assert!(read_table(&path, vec![1], 1 << 20).unwrap().is_none(), "no such column");
    }

    #[test]
    fn rows_without_columns_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let options = RecordBatchOptions::new().with_row_count(Some(50_000));
        let schema = Arc::new(Schema::empty());
        let none = RecordBatch::try_new_with_options(schema, Vec::new(), &options).unwrap();
        write(&path, &[none.clone(), none.slice(0, 7)], 1 << 20).unwrap();
        write(&folder.path().join("b"), &[numbers(0..99)], 1 << 20).unwrap();
        for (name, expected) in [("a", 50_007), ("b", 99)] {
            let (_, rows) =
                read_table(&folder.path().join(name), Vec::new(), 1 << 20).unwrap().unwrap();
            assert_eq!(rows.map(|rows| rows.unwrap().num_rows()).sum::<usize>(), expected);
        }
    }

    #[test]
    fn a_table_that_is_too_long_is_not_stored() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let batches: Vec<_> = (0..40).map(|n| numbers(n..n + 10_000)).collect();
        assert!(write(&path, &batches, 100_000).is_none());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "no file is left");
    }

    #[test]
    fn a_changed_file_is_no_table() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        write(&path, &[numbers(0..3)], 1 << 20).unwrap();
        let intact = std::fs::read(&path).unwrap();
        let is_absent = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            // The summary alone may still look right; it must not fail in any other way.
            drop(read_summary(&path));
            read_table(&path, vec![0], 1 << 20).unwrap().is_none()
        };
        assert!(!is_absent(&intact));
        for at in 0..intact.len() {
            let mut changed = intact.clone();
            changed[at] ^= 0x81;
            assert!(is_absent(&changed), "byte {at}");
            assert!(is_absent(&intact[..at]), "{at} bytes");
        }
        assert!(is_absent(&[&intact[..], b"x"].concat()));
        assert!(is_absent(&[0xff; 100]));
    }
}
