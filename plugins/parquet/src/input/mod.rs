//! Reads Parquet files that nobody vouches for, for this plugin and those whose formats consist of
//! such files. Knows neither events nor channels.
//!
//! What a footer claims is checked before the Parquet library gets to see it ([`ParquetInput`]),
//! panics of the library are errors, and rows come in slices that fit into memory
//! ([`GroupRows`]).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{DataType, FieldRef, Fields, Schema, SchemaRef};
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder, RowSelection,
};
use parquet::arrow::{ARROW_SCHEMA_META_KEY, ProjectionMask};
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, RowGroupMetaData};
use parquet::file::reader::Length;
use sluice_model::{Error, panics};

use crate::fixed_lists::{ListLengths, MissingValues, has_fixed_lists, with_lengths};

mod bytes;
mod codec;
mod expansion;
mod footer;
mod load;
mod nesting;
mod pages;
mod span;
mod stored;
#[cfg(test)]
mod test_store;
pub(crate) mod thrift;
mod time_units;
mod twelve_bytes;
mod types;

use bytes::ReadFailure;
pub use bytes::{TableByteReader, TableBytes};
pub(crate) use expansion::EVENT;
use footer::Footer;
use load::{LoadedColumns, load_columns};
use nesting::SchemaFault;
pub(crate) use nesting::check_fields;
pub use span::GroupSpan;
pub(crate) use stored::{as_stored, retyped};
pub(crate) use time_units::TimeUnits;
pub(crate) use twelve_bytes::int96_times;
pub(crate) use types::{map_leaves, word_dictionary};

/// The maximum rows per batch.
const MAX_ROWS: usize = 8 << 10;

/// How to write a table that is encrypted.
const UNENCRYPTED: &str = "without encryption";

/// How a file is read, and what errors call it.
#[derive(Clone, Copy, Debug)]
pub struct InputOptions<'o> {
    /// The subject of errors: `this data file`.
    pub name: &'o str,
    /// The columns of texts that are read as dictionaries.
    pub words: &'o [&'o str],
    /// Whether to read the page index, by which pages of rows that are not selected are skipped. It
    /// is read if it has a checksum that matches: a wrong one would lose rows.
    pub page_index: bool,
}

/// A Parquet file whose footer has been read and checked.
pub struct ParquetInput {
    path: PathBuf,
    bytes: TableBytes,
    /// Read with types of which rows share what is stored once.
    footer: ArrowReaderMetadata,
    /// The columns with the types that the file has.
    schema: SchemaRef,
    /// Why the Arrow schema that its writer stored cannot be read, if there is one that cannot.
    arrow_fault: Option<String>,
    footer_fault: Option<String>,
    spans: Vec<GroupSpan>,
    /// The columns with INT96 times in nanoseconds, unless the writer stored their units.
    int96_columns: Vec<usize>,
    time_units: TimeUnits,
}

impl ParquetInput {
    /// Opens a file and reads its footer.
    ///
    /// `Err` if it is not a complete Parquet file or its footer is damaged, which alone count as
    /// malformed, nests too deep, is encrypted, or is compressed with a codec that this program is
    /// built without.
    pub fn open(path: &Path, options: InputOptions<'_>) -> Result<Self, Error> {
        let bytes = TableBytes::open(path)?;
        let len = bytes.len();
        let malformed = |what: String| Error::malformed(path.to_string_lossy(), len, what);
        let incomplete = |what: String| {
            malformed(format!("{} is not a complete Parquet file: {what}", options.name))
        };
        let refused = |what: String| Error::invalid(format!("{what}: {}", path.display()));
        let unread = |what: &str, how: &str| {
            let name = options.name;
            refused(format!("{name} {what}, which this program does not read; write it {how}"))
        };
        let found = footer::read(&bytes);
        bytes.failure().check()?;
        let footer_start = found.as_ref().map(|found| len - found.len_to_end());
        let damaged_footer = |what: String| match footer_start {
            Some(start) => {
                let name = options.name;
                let what = format!(
                    "{name} has a damaged footer: {what}; no row can be read without it: restore \
                     the file from a copy, or write it again"
                );
                Error::malformed(path.to_string_lossy(), start, what)
            }
            None => incomplete(what),
        };
        let (encrypted, in_memory, checksum) = match found {
            Some(Footer { bytes, file, checksum }) => {
                nesting::check_footer(&bytes).map_err(|fault| match fault {
                    SchemaFault::Malformed(what) => damaged_footer(what),
                    SchemaFault::TooDeep(what) => refused(what),
                })?;
                (footer::encrypted_column(&bytes), file, checksum)
            }
            None if footer::is_encrypted(&bytes) => {
                return Err(unread("has an encrypted footer", UNENCRYPTED));
            }
            // Without a footer, the library says what is wrong with the file.
            None => (None, bytes.clone(), None),
        };
        // Only the way to rows is shorter with an index, so one that may be wrong is left out.
        let uses_index = options.page_index && checksum == Some(Ok(()));
        let index = if uses_index { PageIndexPolicy::Optional } else { PageIndexPolicy::Skip };
        let reading = ArrowReaderOptions::new().with_page_index_policy(index);
        let loaded = load_columns(&in_memory, reading, options.words)?.map_err(damaged_footer)?;
        let footer_fault = checksum.and_then(Result::err);
        let groups = loaded.footer.metadata().row_groups();
        // The checksum covers places in the file, so it is wrong if bytes are missing, too.
        let spans = GroupSpan::of_all(groups, len).map_err(|what| match footer_fault {
            Some(_) => damaged_footer(format!("{what}, unless bytes are missing before it")),
            None => incomplete(what),
        })?;
        if let Some(column) = encrypted.and_then(|place| column_at(groups, place)) {
            return Err(unread(&format!("has an encrypted column, `{column}`"), UNENCRYPTED));
        }
        if let Some(codec) = codec::unread_codec(groups) {
            let how = "with zstd, snappy or no compression";
            return Err(unread(&format!("is compressed with {codec}"), how));
        }
        let LoadedColumns { footer, schema, arrow_fault, int96_columns } = loaded;
        let (path, time_units) = (path.to_owned(), TimeUnits::default());
        Ok(Self {
            path,
            bytes,
            footer,
            schema,
            arrow_fault,
            footer_fault,
            spans,
            int96_columns,
            time_units,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        self.bytes.len()
    }

    /// Whether it has no bytes, which no Parquet file has.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What its footer says.
    pub fn metadata(&self) -> &ParquetMetaData {
        self.footer.metadata()
    }

    /// Its columns with the types that the file has.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Has the lists of columns of these names the lengths of which a record of ours tells.
    pub(crate) fn set_list_lengths(&mut self, lengths: &BTreeMap<String, ListLengths>) {
        let mut missing = MissingValues::default();
        let fields = self.schema.fields().iter().map(|field| match lengths.get(field.name()) {
            Some(lengths) => Arc::new(with_lengths(field, lengths, &mut missing)),
            None => Arc::clone(field),
        });
        let (fields, metadata) = (fields.collect::<Fields>(), self.schema.metadata().clone());
        self.schema = Arc::new(Schema::new_with_metadata(fields, metadata));
    }

    /// Its columns with the types of [`GroupRows`].
    pub(crate) fn read_schema(&self) -> &Schema {
        self.footer.schema()
    }

    /// Its row groups, by number.
    pub fn spans(&self) -> &[GroupSpan] {
        &self.spans
    }

    /// The number of rows.
    pub fn rows(&self) -> u64 {
        self.groups().iter().map(|group| group.num_rows() as u64).fold(0, u64::saturating_add)
    }

    pub(crate) fn groups(&self) -> &[RowGroupMetaData] {
        self.footer.metadata().row_groups()
    }

    /// What a run should say of an Arrow schema in the footer that cannot be read: rows can.
    pub fn arrow_note(&self) -> Option<String> {
        let reason = self.arrow_fault.as_ref()?;
        Some(format!(
            "{}: the footer's record `{ARROW_SCHEMA_META_KEY}` cannot be read: {reason}; columns \
             get their types from the Parquet schema",
            self.path.to_string_lossy()
        ))
    }

    /// How the footer or the page index differs from its checksum, if it has one. Then the index is
    /// not used, and what the footer says of rows may be wrong.
    pub(crate) fn footer_fault(&self) -> Option<&str> {
        self.footer_fault.as_deref()
    }

    /// The bytes of the file for a reader of a row group, fetched already if that saves requests.
    pub fn prefetch(&self, span: GroupSpan) -> Result<TableBytes, Error> {
        self.bytes.prefetch(span.start, span.end)
    }

    /// The rows of a row group, by its [`prefetch`](Self::prefetch)ed bytes, in slices of about
    /// `batch_bytes`: the columns of these names, or all, and the rows that are selected, or all.
    ///
    /// The inner `Err` says why they cannot be read.
    pub fn read(
        &self,
        bytes: TableBytes,
        span: GroupSpan,
        columns: Option<&[&str]>,
        selection: Option<RowSelection>,
        batch_bytes: usize,
    ) -> Result<Result<GroupRows, String>, Error> {
        let failure = bytes.failure();
        let rows = self.open_rows(bytes, span.number, columns, selection, batch_bytes);
        failure.check()?;
        let fixed_lists = self.columns_of_fixed_lists(columns);
        Ok(rows.map(|rows| GroupRows {
            rows,
            failure,
            fixed_lists,
            batch_bytes,
            slices: Vec::new(),
        }))
    }

    /// The columns with lists of fixed length among those of these names, or all, by their places
    /// among them.
    fn columns_of_fixed_lists(&self, columns: Option<&[&str]>) -> Vec<(usize, DataType)> {
        let is_read =
            |field: &&FieldRef| columns.is_none_or(|names| names.contains(&field.name().as_str()));
        let read = self.schema.fields().iter().filter(is_read).enumerate();
        let fixed = read.filter(|(_, field)| has_fixed_lists(field.data_type()));
        fixed.map(|(place, field)| (place, field.data_type().clone())).collect()
    }

    fn open_rows(
        &self,
        bytes: TableBytes,
        number: usize,
        columns: Option<&[&str]>,
        selection: Option<RowSelection>,
        batch_bytes: usize,
    ) -> Result<ParquetRecordBatchReader, String> {
        let mask = match columns {
            None => ProjectionMask::all(),
            Some(names) => {
                // Names may have dots, which are no paths.
                let roots = names.iter().filter_map(|name| self.schema.index_of(name).ok());
                ProjectionMask::roots(self.footer.parquet_schema(), roots)
            }
        };
        let group = self.groups().get(number).ok_or("there is no such row group")?;
        let measured = pages::measure(&bytes, self.metadata(), number, &mask)?;
        let row = expansion::bytes_per_row(group, &mask, &measured)?;
        let batch = (batch_bytes / row.max(1)).clamp(1, MAX_ROWS);
        catch_panics(|| {
            let mut builder =
                ParquetRecordBatchReaderBuilder::new_with_metadata(bytes, self.footer.clone())
                    .with_row_groups(vec![number])
                    .with_projection(mask)
                    .with_batch_size(batch);
            if let Some(selection) = selection {
                builder = builder.with_row_selection(selection);
            }
            builder.build()
        })
    }

    /// Calls a function with all rows, in order, in slices of about `batch_bytes` with the columns
    /// of these names. The inner `Err` says why they cannot be read, or is that of the function.
    pub fn for_each_slice(
        &self,
        columns: &[&str],
        batch_bytes: usize,
        mut each: impl FnMut(&RecordBatch) -> Result<(), String>,
    ) -> Result<Result<(), String>, Error> {
        for span in &self.spans {
            let bytes = self.prefetch(*span)?;
            let mut rows = match self.read(bytes, *span, Some(columns), None, batch_bytes)? {
                Ok(rows) => rows,
                Err(reason) => return Ok(Err(reason)),
            };
            loop {
                match rows.next_slice()? {
                    Ok(None) => break,
                    Ok(Some(slice)) => {
                        if let Err(reason) = each(&slice) {
                            return Ok(Err(reason));
                        }
                    }
                    Err(reason) => return Ok(Err(reason)),
                }
            }
        }
        Ok(Ok(()))
    }

    /// A column of [`GroupRows`] with the type that the file has for the column at this place of
    /// its [`schema`](Self::schema), and each value in full. `Err` says why that is not possible.
    pub fn as_stored(&self, place: usize, column: &ArrayRef) -> Result<ArrayRef, String> {
        let field = self.schema.fields().get(place).ok_or("there is no such column")?;
        let stored = match self.is_in_micros(place) {
            true => stored::as_stored(column, &twelve_bytes::in_micros(field.data_type())),
            false => stored::as_stored(column, field.data_type()),
        };
        stored.map_err(|e| format!("column `{}`: {e}", field.name()))
    }
}

/// The rows of a row group, in slices that fit into memory with each value in full.
///
/// Texts and bytes are views, which share what the file stores once: see
/// [`ParquetInput::as_stored`].
pub struct GroupRows {
    rows: ParquetRecordBatchReader,
    /// Whether reading the bytes failed.
    failure: ReadFailure,
    /// The columns with lists of fixed length, by their places.
    fixed_lists: Vec<(usize, DataType)>,
    batch_bytes: usize,
    /// Decoded rows, the next ones last.
    slices: Vec<RecordBatch>,
}

impl GroupRows {
    /// The next rows; none at the end. The inner `Err` is the reason that they cannot be read, and
    /// none can be read after it.
    pub fn next_slice(&mut self) -> Result<Result<Option<RecordBatch>, String>, Error> {
        loop {
            if let Some(rows) = self.slices.pop() {
                return Ok(Ok(Some(rows)));
            }
            let next = catch_panics(|| self.rows.next().transpose());
            self.failure.check()?;
            match next {
                Ok(None) => return Ok(Ok(None)),
                Ok(Some(rows)) if rows.num_rows() == 0 => {}
                Ok(Some(rows)) => {
                    match expansion::slices(rows, &self.fixed_lists, self.batch_bytes) {
                        Ok(slices) => self.slices = slices,
                        Err(reason) => return Ok(Err(reason)),
                    }
                }
                Err(reason) => return Ok(Err(reason)),
            }
        }
    }
}

/// The name of the column at this row group and place.
fn column_at(groups: &[RowGroupMetaData], (group, column): (u64, u64)) -> Option<String> {
    let columns = groups.get(usize::try_from(group).ok()?)?.columns();
    Some(columns.get(usize::try_from(column).ok()?)?.column_path().string())
}

/// Calls the Parquet library, which panics on some malformed files.
fn catch_panics<T, E: std::fmt::Display>(call: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
    panics::catch_panics("the Parquet library", call)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::Int64Array;
    use parquet::arrow::ArrowWriter;
    use parquet::file::metadata::KeyValue;
    use parquet::file::properties::WriterProperties;

    #[test]
    fn a_footer_is_fetched_once() {
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
        let rows = RecordBatch::try_from_iter([("n", numbers)]).unwrap();
        // More than is fetched at once.
        let long = KeyValue::new("text".to_owned(), "x".repeat((16 << 20) + 300_000));
        let properties = WriterProperties::builder().set_key_value_metadata(Some(vec![long]));
        let mut file = Vec::new();
        let properties = Some(properties.build());
        let mut writer = ArrowWriter::try_new(&mut file, rows.schema(), properties).unwrap();
        writer.write(&rows).unwrap();
        writer.close().unwrap();
        let path = test_store::object("footer.parquet", file);
        let options = InputOptions { name: "this", words: &[], page_index: false };
        let input = ParquetInput::open(&path, options).unwrap();
        assert_eq!(input.rows(), 3);
        let requests = test_store::take_requests(&path);
        let lens: Vec<u64> = requests.iter().map(|range| range.end - range.start).collect();
        // The end of the file, which has the length of the footer, and the footer in two parts.
        assert!(matches!(lens[..], [65_536, 16_777_216, 300_000..310_000]), "{lens:?}");
    }
}
