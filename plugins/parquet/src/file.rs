//! A Parquet file being written: row groups in order, then the footer. Encodes nothing.
//!
//! The library's own file writer declares the same sort order for every row group. Here each row
//! group declares its own, and it and the footer have checksums, for which the format has no field.

use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use parquet::errors::ParquetError;
use parquet::file::metadata::{
    FileMetaData, KeyValue, ParquetMetaDataBuilder, ParquetMetaDataWriter, RowGroupMetaData,
    SortingColumn,
};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::page_index::offset_index::OffsetIndexMetaData;
use parquet::file::properties::{WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::{SerializedRowGroupWriter, TrackedWrite};
use parquet::schema::types::SchemaDescPtr;
use sluice_io::output::SharedOutput;
use sluice_kit::event_table::{CHANNEL, SEQUENCE, SOURCE, TIMESTAMP};
use sluice_model::{Error, OutputFile};

use crate::footer_checksum::FooterChecksum;
use crate::group::{EncodedGroup, RowOrder};
use crate::meta::GroupsMeta;

const MAGIC: &[u8] = b"PAR1";
/// The bytes of a footer's length and of [`MAGIC`].
const FOOTER_TAIL: usize = 8;

/// A file to which row groups are appended.
pub(crate) struct TableFile {
    out: TrackedWrite<Checksummed>,
    /// The output below the Parquet library, whose footer writer does not return its writer.
    output: SharedOutput,
    schema: SchemaDescPtr,
    properties: WriterPropertiesPtr,
    groups: Vec<RowGroupMetaData>,
    column_indexes: Vec<Vec<ColumnIndexMetaData>>,
    offset_indexes: Vec<Vec<OffsetIndexMetaData>>,
    /// The metadata of its row groups for the footer.
    pub(crate) groups_meta: GroupsMeta,
    /// The number of rows so far.
    pub(crate) rows: u64,
}

/// An output, and the checksum of what was written to it.
struct Checksummed {
    output: SharedOutput,
    crc32: crc32fast::Hasher,
    /// What is written from here on, in place of the output.
    end: Option<FileEnd>,
}

/// The page index and the footer of a file. Shared with their writer, which does not return it.
type FileEnd = Arc<Mutex<Vec<u8>>>;

impl Write for Checksummed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(end) = &self.end {
            end.lock().unwrap_or_else(PoisonError::into_inner).extend(bytes);
            return Ok(bytes.len());
        }
        let written = self.output.write(bytes)?;
        self.crc32.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

impl TableFile {
    /// Starts a file.
    pub(crate) fn new(
        file: OutputFile,
        schema: SchemaDescPtr,
        properties: WriterPropertiesPtr,
    ) -> Result<Self, Error> {
        let output = SharedOutput::new(file);
        let crc32 = crc32fast::Hasher::new();
        let mut file = Self {
            out: TrackedWrite::new(Checksummed { output: output.clone(), crc32, end: None }),
            output,
            schema,
            properties,
            groups: Vec::new(),
            column_indexes: Vec::new(),
            offset_indexes: Vec::new(),
            groups_meta: GroupsMeta::default(),
            rows: 0,
        };
        file.write_with(|file| Ok(file.out.write_all(MAGIC)?))?;
        Ok(file)
    }

    /// Appends a row group.
    pub(crate) fn append(&mut self, group: EncodedGroup) -> Result<(), Error> {
        let EncodedGroup { chunks, rows, order, .. } = group;
        let number = i16::try_from(self.groups.len()).map_err(|_| {
            Error::invalid(format!(
                "a Parquet file holds at most {} row groups; increase row_group_rows and \
                 row_group_bytes: {}",
                i16::MAX,
                self.output.target().display()
            ))
        })?;
        let properties = self.properties_for(order);
        // Bytes that are still buffered belong to the previous row group.
        self.write_with(|file| Ok(file.out.flush()?))?;
        self.out.inner_mut().crc32.reset();
        self.write_with(|file| {
            let Self { out, schema, groups, column_indexes, offset_indexes, .. } = file;
            let on_close = |_: &mut TrackedWrite<Checksummed>,
                            group: RowGroupMetaData,
                            _,
                            columns: Vec<Option<ColumnIndexMetaData>>,
                            offsets: Vec<Option<OffsetIndexMetaData>>| {
                groups.push(group);
                let none = || ColumnIndexMetaData::NONE;
                column_indexes
                    .push(columns.into_iter().map(|index| index.unwrap_or_else(none)).collect());
                let offsets: Option<Vec<_>> = offsets.into_iter().collect();
                offset_indexes.push(offsets.ok_or_else(|| {
                    ParquetError::General("a column chunk without an offset index".into())
                })?);
                Ok(())
            };
            let schema = Arc::clone(schema);
            let mut writer = SerializedRowGroupWriter::new(
                schema,
                properties,
                out,
                number,
                Some(Box::new(on_close)),
            );
            chunks.into_iter().try_for_each(|chunk| chunk.append_to_row_group(&mut writer))?;
            writer.close()?;
            Ok(())
        })?;
        self.write_with(|file| Ok(file.out.flush()?))?;
        let crc32 = self.out.inner().crc32.clone();
        self.groups_meta.crc32.push(crc32.finalize());
        self.groups_meta.by_channel.push(order == RowOrder::Channel);
        self.rows += rows;
        Ok(())
    }

    /// Writes the footer, and completes the file, under the name `target` if that was not known
    /// before.
    pub(crate) fn close(
        mut self,
        entries: Vec<KeyValue>,
        target: Option<&Path>,
    ) -> Result<(), Error> {
        let metadata = FileMetaData::new(
            self.properties.writer_version().as_num(),
            self.rows as i64,
            Some(self.properties.created_by().to_owned()),
            Some(entries),
            Arc::clone(&self.schema),
            None,
        );
        let metadata = ParquetMetaDataBuilder::new(metadata)
            .set_row_groups(std::mem::take(&mut self.groups))
            .set_column_index(Some(std::mem::take(&mut self.column_indexes)))
            .set_offset_index(Some(std::mem::take(&mut self.offset_indexes)))
            .build();
        let Self { mut out, output, rows, .. } = self;
        output.check(out.flush().map_err(ParquetError::from), write_error)?;
        let (start, end) = (out.bytes_written() as u64, FileEnd::default());
        out.inner_mut().end = Some(Arc::clone(&end));
        ParquetMetaDataWriter::new_with_tracked(out, &metadata).finish().map_err(write_error)?;
        let end = std::mem::take(&mut *end.lock().unwrap_or_else(PoisonError::into_inner));
        let mut file = output.into_file()?;
        let (page_index, footer) = split_end(&end)?;
        let mut crc32 = crc32fast::Hasher::new();
        crc32.update(page_index);
        crc32.update(footer);
        let checksum = FooterChecksum { start, crc32: crc32.finalize() };
        for part in [page_index, &checksum.to_bytes(), footer] {
            file.write_binary(part)?;
        }
        match target {
            Some(target) => file.finish_as(target, rows),
            None => file.finish(rows),
        }
    }

    /// Calls a function that writes. An error of the output takes precedence over the library's.
    fn write_with(
        &mut self,
        write: impl FnOnce(&mut Self) -> Result<(), ParquetError>,
    ) -> Result<(), Error> {
        let written = write(self);
        self.output.check(written, write_error)
    }

    /// The properties of a row group in this order.
    fn properties_for(&self, order: RowOrder) -> WriterPropertiesPtr {
        let place = |name: &str| {
            let found = self.schema.columns().iter().position(|column| column.name() == name);
            found.and_then(|at| i32::try_from(at).ok())
        };
        let names: &[&str] = match order {
            RowOrder::Channel => &[SOURCE, CHANNEL, SEQUENCE],
            RowOrder::Time => &[TIMESTAMP],
            RowOrder::Arrival => return Arc::clone(&self.properties),
        };
        let ascending =
            |column_idx| SortingColumn { column_idx, descending: false, nulls_first: false };
        let columns = names.iter().filter_map(|name| place(name)).map(ascending).collect();
        // These only affect the metadata of the row group: its chunks are encoded already.
        Arc::new(WriterProperties::builder().set_sorting_columns(Some(columns)).build())
    }
}

/// The page index and the footer, which ends with its length and [`MAGIC`].
fn split_end(end: &[u8]) -> Result<(&[u8], &[u8]), Error> {
    let footer = end.len().checked_sub(FOOTER_TAIL).and_then(|tail| {
        let len = u32::from_le_bytes(*end.get(tail..)?.first_chunk()?);
        end.split_at_checked(tail.checked_sub(len as usize)?)
    });
    footer.ok_or_else(|| Error::internal("a table's footer is longer than what was written"))
}

/// The library only rejects what we write because of a bug.
#[expect(clippy::needless_pass_by_value, reason = "used as a function value")]
fn write_error(error: ParquetError) -> Error {
    Error::internal(format!("a table cannot be written: {error}"))
}
