//! Parquet files: the outputs that the library writes to, and the inputs that it reads from. Knows
//! no dataset.

use std::io::{self, BufReader, Read, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use bytes::Bytes;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{
    ArrowColumnChunk, ArrowColumnWriter, ArrowRowGroupWriterFactory, compute_leaves,
};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{ChunkReader, Length};
use parquet::file::writer::SerializedFileWriter;
use sluice_io::files::LogFile;
use sluice_io::output::SharedOutput;
use sluice_model::panics::catch_panics;
use sluice_model::{Error, OutputFile};

/// The program in footers.
pub(crate) const CREATED_BY: &str = concat!("sluice version ", env!("CARGO_PKG_VERSION"));

/// A file that is being written. Row groups are encoded elsewhere, or by the library.
pub(crate) struct TableWriter {
    writer: SerializedFileWriter<SharedOutput>,
    columns: ArrowRowGroupWriterFactory,
    schema: SchemaRef,
    output: SharedOutput,
    pub(crate) rows: u64,
    pub(crate) groups: usize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TableWriter {
    /// Starts a file.
    pub(crate) fn new(
        file: OutputFile,
        schema: SchemaRef,
        properties: WriterProperties,
    ) -> Result<Self, Error> {
        let output = SharedOutput::new(file);
        let made = parts(output.clone(), Arc::clone(&schema), properties);
        let (writer, columns) = output.check(made, encode_error)?;
        Ok(Self { writer, columns, schema, output, rows: 0, groups: 0 })
    }

    /// Appends an encoded row group.
    pub(crate) fn append(&mut self, chunks: Vec<ArrowColumnChunk>, rows: u64) -> Result<(), Error> {
        let written = self.writer.next_row_group().and_then(|mut group| {
            chunks.into_iter().try_for_each(|chunk| chunk.append_to_row_group(&mut group))?;
            group.close().map(drop)
        });
        self.output.check(written, encode_error)?;
        self.rows += rows;
        self.groups += 1;
        Ok(())
    }

    /// Encodes rows as a row group.
    pub(crate) fn write(&mut self, rows: &RecordBatch) -> Result<(), Error> {
        let encode = || {
            let mut writers = self.columns.create_column_writers(self.groups)?;
            let mut places = writers.iter_mut();
            for (field, column) in self.schema.fields().iter().zip(rows.columns()) {
                for (leaf, writer) in compute_leaves(field, column)?.iter().zip(&mut places) {
                    writer.write(leaf)?;
                }
            }
            writers.into_iter().map(ArrowColumnWriter::close).collect::<ParquetResult<Vec<_>>>()
        };
        let chunks = encode().map_err(encode_error)?;
        self.append(chunks, rows.num_rows() as u64)
    }

    /// The bytes of the file so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.writer.bytes_written() as u64
    }

    /// Writes the footer, and completes the file.
    pub(crate) fn close(self) -> Result<(), Error> {
        let Self { writer, output, rows, columns, .. } = self;
        drop(columns);
        let closed = writer.close().map(drop);
        output.check(closed, encode_error)?;
        output.into_file()?.finish(rows)
    }
}

/// A file writer, and what encodes row groups for it.
pub(crate) fn parts<W: Write + Send>(
    to: W,
    schema: SchemaRef,
    properties: WriterProperties,
) -> ParquetResult<(SerializedFileWriter<W>, ArrowRowGroupWriterFactory)> {
    ArrowWriter::try_new(to, schema, Some(properties))?.into_serialized_writer()
}

/// The library only rejects our values because of a bug, or for lack of memory.
#[expect(clippy::needless_pass_by_value, reason = "used as a function value")]
pub(crate) fn encode_error(error: ParquetError) -> Error {
    Error::internal(format!("a table cannot be encoded: {error}"))
}

/// A file or object that the library reads.
#[derive(Clone)]
pub(crate) struct TableBytes {
    file: Arc<Mutex<LogFile>>,
    len: u64,
    /// The reason why a read failed, which the library reports as a fault of the table.
    failed: Arc<Mutex<Option<Error>>>,
}

impl TableBytes {
    /// Opens a file or object.
    ///
    /// `Err` for something without an end, such as a pipe.
    pub(crate) fn open(path: &Path) -> Result<Self, Error> {
        let file = LogFile::open_plain(path)?;
        let len = file.len().filter(|_| file.is_seekable()).ok_or_else(|| {
            Error::refused(format!("expected a regular file: {}", path.display()))
        })?;
        Ok(Self { file: Arc::new(Mutex::new(file)), len, failed: Arc::default() })
    }

    /// Calls the library, which panics on some malformed files. The inner `Err` is what is wrong
    /// with the file; the outer one means that it could not be read.
    pub(crate) fn call<T, E: std::fmt::Display>(
        &self,
        call: impl FnOnce() -> Result<T, E>,
    ) -> Result<Result<T, String>, Error> {
        let result = catch_panics("the Parquet library", call);
        lock(&self.failed).take().map_or(Ok(result), Err)
    }

    fn read_at(&self, position: u64, buffer: &mut [u8]) -> io::Result<usize> {
        lock(&self.file).read_at(position, buffer).map_err(|error| {
            let text = io::Error::other(error.to_string());
            lock(&self.failed).get_or_insert(error);
            text
        })
    }
}

impl Length for TableBytes {
    fn len(&self) -> u64 {
        self.len
    }
}

impl ChunkReader for TableBytes {
    type T = BufReader<TableByteReader>;

    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        Ok(BufReader::new(TableByteReader { bytes: self.clone(), at: start }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        // A length beyond the file must not be allocated.
        let end = start.checked_add(length as u64).filter(|end| *end <= self.len);
        if end.is_none() {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let mut bytes = vec![0; length];
        TableByteReader { bytes: self.clone(), at: start }.read_exact(&mut bytes)?;
        Ok(bytes.into())
    }
}

/// Reads sequentially from an offset.
pub(crate) struct TableByteReader {
    bytes: TableBytes,
    at: u64,
}

impl Read for TableByteReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.bytes.read_at(self.at, buffer)?;
        self.at += read as u64;
        Ok(read)
    }
}
