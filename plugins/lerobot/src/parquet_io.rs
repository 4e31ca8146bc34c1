//! Parquet files: the outputs that the library writes to, and how inputs are opened. Knows no
//! dataset.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_writer::{
    ArrowColumnChunk, ArrowColumnWriter, ArrowRowGroupWriterFactory, compute_leaves,
};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use sluice_io::output::SharedOutput;
use sluice_model::{Error, OutputFile};
use sluice_parquet::input::{InputOptions, ParquetInput};

/// The program in footers.
pub(crate) const CREATED_BY: &str = concat!("sluice version ", env!("CARGO_PKG_VERSION"));

/// What it begins with, for any version.
pub(crate) const WRITER: &str = "sluice ";

/// A file that is being written. Row groups are encoded elsewhere, or by the library.
pub(crate) struct TableWriter {
    writer: SerializedFileWriter<SharedOutput>,
    columns: ArrowRowGroupWriterFactory,
    schema: SchemaRef,
    output: SharedOutput,
    pub(crate) rows: u64,
    pub(crate) groups: usize,
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

/// Opens a file of a dataset, which errors call by this name.
pub(crate) fn open_table(path: &Path, name: &str) -> Result<ParquetInput, Error> {
    ParquetInput::open(path, InputOptions { name, words: &[], page_index: false })
}
