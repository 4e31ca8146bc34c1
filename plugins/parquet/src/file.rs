//! A Parquet file being written: row groups in order, then the footer. Encodes nothing.
//!
//! The library's own file writer declares the same sort order for every row group. Here each row
//! group declares its own, and it and the footer have checksums, for which the format has no field.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use parquet::errors::ParquetError;
use parquet::file::metadata::{KeyValue, RowGroupMetaData, SortingColumn};
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
use crate::written_groups::{FooterFrame, WrittenGroups, write_error};

const MAGIC: &[u8] = b"PAR1";

/// A file to which row groups are appended.
pub(crate) struct TableFile {
    out: TrackedWrite<Checksummed>,
    /// The output below the Parquet library, whose footer writer does not return its writer.
    output: SharedOutput,
    schema: SchemaDescPtr,
    properties: WriterPropertiesPtr,
    groups: WrittenGroups,
    /// The metadata of its row groups for the footer.
    pub(crate) groups_meta: GroupsMeta,
    /// The number of rows so far.
    pub(crate) rows: u64,
}

/// An output, and the checksum of what was written to it.
struct Checksummed {
    output: SharedOutput,
    crc32: crc32fast::Hasher,
}

impl Write for Checksummed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
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
            out: TrackedWrite::new(Checksummed { output: output.clone(), crc32 }),
            output,
            schema,
            properties,
            groups: WrittenGroups::default(),
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
            let Self { out, schema, groups, .. } = file;
            let on_close = |_: &mut TrackedWrite<Checksummed>,
                            group: RowGroupMetaData,
                            _,
                            columns: Vec<Option<ColumnIndexMetaData>>,
                            offsets: Vec<Option<OffsetIndexMetaData>>| {
                let none = || ColumnIndexMetaData::NONE;
                let columns = columns.into_iter().map(|index| index.unwrap_or_else(none)).collect();
                let offsets: Option<Vec<_>> = offsets.into_iter().collect();
                let offsets = offsets.ok_or_else(|| {
                    ParquetError::General("a column chunk without an offset index".into())
                })?;
                groups.push(group, columns, offsets)
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
        self.write_with(|file| Ok(file.out.flush()?))?;
        let Self { out, output, schema, properties, groups, rows, .. } = self;
        let start = out.bytes_written() as u64;
        drop(out);
        let mut file = output.into_file()?;
        let frame = FooterFrame::new(schema, &properties, rows, entries).map_err(write_error)?;
        let mut crc32 = crc32fast::Hasher::new();
        groups.page_index(|part| {
            crc32.update(part);
            file.write_binary(part)
        })?;
        // The checksum of the footer precedes it.
        let mut len = 0;
        groups.footer(start, &frame, |part| {
            crc32.update(part);
            len += part.len();
            Ok(())
        })?;
        let len = u32::try_from(len).map_err(|_| {
            Error::invalid(format!(
                "the footer of a Parquet file holds at most 4 GiB; increase row_group_rows and \
                 row_group_bytes: {}",
                file.target().display()
            ))
        })?;
        let tail = [&len.to_le_bytes(), MAGIC].concat();
        crc32.update(&tail);
        let checksum = FooterChecksum { start, crc32: crc32.finalize() };
        file.write_binary(&checksum.to_bytes())?;
        groups.footer(start, &frame, |part| file.write_binary(part))?;
        file.write_binary(&tail)?;
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
