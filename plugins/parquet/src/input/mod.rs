//! Reads Parquet files that nobody vouches for, for this plugin and those whose formats consist of
//! such files. Knows neither events nor channels.
//!
//! What a footer claims is checked before the Parquet library gets to see it ([`ParquetInput`]),
//! panics of the library are errors, and rows come in slices that fit into memory
//! ([`GroupRows`]).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{Schema, SchemaRef};
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder, RowSelection,
};
use parquet::arrow::{ARROW_SCHEMA_META_KEY, ProjectionMask};
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, RowGroupMetaData};
use parquet::file::reader::Length;
use sluice_model::{Error, panics};

mod bytes;
mod codec;
mod expansion;
mod nesting;
mod pages;
mod span;
mod stored;
mod thrift;
mod types;

use bytes::ReadFailure;
pub use bytes::{TableByteReader, TableBytes};
pub(crate) use expansion::EVENT;
pub(crate) use nesting::check_fields;
pub use span::GroupSpan;
pub(crate) use stored::retyped;
pub(crate) use types::word_dictionary;

/// The maximum rows per batch.
const MAX_ROWS: usize = 8 << 10;

/// How a file is read, and what errors call it.
#[derive(Clone, Copy, Debug)]
pub struct InputOptions<'o> {
    /// The subject of errors: `this data file`.
    pub name: &'o str,
    /// The columns of texts that are read as dictionaries.
    pub words: &'o [&'o str],
    /// Whether to read the page index, by which pages of rows that are not selected are skipped.
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
    spans: Vec<GroupSpan>,
}

impl ParquetInput {
    /// Opens a file and reads its footer.
    ///
    /// `Err` if it is not a complete Parquet file, nests too deep, or is compressed with a codec
    /// that this program is built without.
    pub fn open(path: &Path, options: InputOptions<'_>) -> Result<Self, Error> {
        let bytes = TableBytes::open(path)?;
        let len = bytes.len();
        let malformed = |what: String| Error::malformed(path.to_string_lossy(), len, what);
        let incomplete = |what: String| {
            malformed(format!("{} is not a complete Parquet file: {what}", options.name))
        };
        let nesting = nesting::check(&bytes);
        bytes.failure().check()?;
        nesting.map_err(malformed)?;
        let policy = match options.page_index {
            true => PageIndexPolicy::Optional,
            false => PageIndexPolicy::Skip,
        };
        let reading = ArrowReaderOptions::new().with_page_index_policy(policy);
        let (footer, arrow_fault) = load_footer(&bytes, &reading)?.map_err(incomplete)?;
        let schema = types::readable(footer.schema());
        let shared = types::shared(&schema, options.words);
        let metadata = Arc::clone(footer.metadata());
        // Types that cannot be read as views are cast later.
        let footer =
            catch_panics(|| ArrowReaderMetadata::try_new(metadata, reading.with_schema(shared)))
                .unwrap_or(footer);
        let groups = footer.metadata().row_groups();
        let spans = GroupSpan::of_all(groups, len).map_err(incomplete)?;
        if let Some(codec) = codec::unread_codec(groups) {
            return Err(Error::invalid(format!(
                "{} is compressed with {codec}, which this program does not read; write it with \
                 zstd, snappy or no compression: {}",
                options.name,
                path.display()
            )));
        }
        Ok(Self { path: path.to_owned(), bytes, footer, schema, arrow_fault, spans })
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
        Ok(rows.map(|rows| GroupRows { rows, failure, slices: Vec::new() }))
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
        let stored = stored::as_stored(column, field.data_type());
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
                Ok(Some(rows)) => match expansion::slices(rows) {
                    Ok(slices) => self.slices = slices,
                    Err(reason) => return Ok(Err(reason)),
                },
                Err(reason) => return Ok(Err(reason)),
            }
        }
    }
}

/// Calls the Parquet library, which panics on some malformed files.
fn catch_panics<T, E: std::fmt::Display>(call: impl FnOnce() -> Result<T, E>) -> Result<T, String> {
    panics::catch_panics("the Parquet library", call)
}

/// The footer of a file, and why the Arrow schema that its writer stored cannot be read, if so: it
/// may be damaged, or have types that are not known here. The inner `Err` says what is wrong with
/// the file.
fn load_footer(
    bytes: &TableBytes,
    reading: &ArrowReaderOptions,
) -> Result<Result<(ArrowReaderMetadata, Option<String>), String>, Error> {
    let load = |options| {
        let footer = catch_panics(|| ArrowReaderMetadata::load(bytes, options));
        bytes.failure().check().map(|()| footer)
    };
    Ok(match load(reading.clone())? {
        Ok(footer) => Ok((footer, None)),
        Err(reason) => {
            let footer = load(reading.clone().with_skip_arrow_metadata(true))?;
            footer.map(|footer| (footer, Some(reason)))
        }
    })
}
