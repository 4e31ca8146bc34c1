//! A Parquet file in the making: row groups one behind another, then the footer. Encodes nothing.
//!
//! The library's own file writer says the same of every row group; here each says how its own rows are
//! sorted, and has a checksum, which the format has no place for.

use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
use sluice_core::{Error, OutputFile};

use crate::group::{Group, RowOrder};
use crate::meta::GroupsMeta;
use crate::shape::{CHANNEL, SEQUENCE, SOURCE, TIMESTAMP};

const MAGIC: &[u8] = b"PAR1";

/// A file to which row groups are appended.
pub(crate) struct TableFile {
    out: TrackedWrite<Handle>,
    below: Arc<Mutex<Below>>,
    schema: SchemaDescPtr,
    properties: WriterPropertiesPtr,
    groups: Vec<RowGroupMetaData>,
    column_indexes: Vec<Vec<ColumnIndexMetaData>>,
    offset_indexes: Vec<Vec<OffsetIndexMetaData>>,
    /// What the footer will say of its row groups.
    pub(crate) said: GroupsMeta,
    /// Rows so far.
    pub(crate) rows: u64,
}

/// A table with its footer.
pub(crate) struct ClosedTable {
    file: OutputFile,
    rows: u64,
}

impl ClosedTable {
    /// Completes the file, as `target` if its name was not known before.
    pub(crate) fn finish(self, target: Option<&Path>) -> Result<(), Error> {
        match target {
            Some(target) => self.file.finish_as(target, self.rows),
            None => self.file.finish(self.rows),
        }
    }
}

/// The output below the Parquet library: keeps a checksum, and the reason when writing fails.
struct Below {
    file: OutputFile,
    crc32: crc32fast::Hasher,
    failed: Option<Error>,
}

/// What the Parquet library writes to. Its writer of footers takes it, and does not give it back.
struct Handle(Arc<Mutex<Below>>);

impl Write for Handle {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut below = lock(&self.0);
        below.crc32.update(bytes);
        match below.file.write_binary(bytes) {
            Ok(()) => Ok(bytes.len()),
            Err(error) => {
                below.failed.get_or_insert(error);
                Err(io::ErrorKind::Other.into())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn lock(below: &Mutex<Below>) -> MutexGuard<'_, Below> {
    below.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TableFile {
    /// Begins a file.
    pub(crate) fn new(
        file: OutputFile,
        schema: SchemaDescPtr,
        properties: WriterPropertiesPtr,
    ) -> Result<Self, Error> {
        let below = Below { file, crc32: crc32fast::Hasher::new(), failed: None };
        let below = Arc::new(Mutex::new(below));
        let mut file = Self {
            out: TrackedWrite::new(Handle(Arc::clone(&below))),
            below,
            schema,
            properties,
            groups: Vec::new(),
            column_indexes: Vec::new(),
            offset_indexes: Vec::new(),
            said: GroupsMeta::default(),
            rows: 0,
        };
        file.writing(|file| Ok(file.out.write_all(MAGIC)?))?;
        Ok(file)
    }

    /// Appends a row group.
    pub(crate) fn append(&mut self, group: Group) -> Result<(), Error> {
        let Group { chunks, rows, order, .. } = group;
        let number = i16::try_from(self.groups.len()).map_err(|_| {
            Error::invalid(format!(
                "a Parquet file holds at most {} row groups; let them be larger with row_group_rows and \
                 row_group_bytes: {}",
                i16::MAX,
                lock(&self.below).file.target().display()
            ))
        })?;
        let properties = self.sorted(order);
        // What is still buffered belongs to what was before.
        self.writing(|file| Ok(file.out.flush()?))?;
        lock(&self.below).crc32.reset();
        self.writing(|file| {
            let Self { out, schema, groups, column_indexes, offset_indexes, .. } = file;
            let on_close = |_: &mut TrackedWrite<Handle>,
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
        self.writing(|file| Ok(file.out.flush()?))?;
        let crc32 = lock(&self.below).crc32.clone();
        self.said.crc32.push(crc32.finalize());
        self.said.by_channel.push(order == RowOrder::Channel);
        self.rows += rows;
        Ok(())
    }

    /// Writes the footer, and waits until all is on the disk.
    pub(crate) fn close(mut self, entries: Vec<KeyValue>) -> Result<ClosedTable, Error> {
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
        let Self { out, below, rows, .. } = self;
        let written = ParquetMetaDataWriter::new_with_tracked(out, &metadata).finish();
        let Below { file, failed, .. } = Arc::into_inner(below)
            .ok_or_else(|| Error::internal("a table is still written to"))?
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        told(written, failed)?;
        file.sync()?;
        Ok(ClosedTable { file, rows })
    }

    /// Does something that writes; what the output says of a failure is what is told.
    fn writing(
        &mut self,
        write: impl FnOnce(&mut Self) -> Result<(), ParquetError>,
    ) -> Result<(), Error> {
        let written = write(self);
        let failed = lock(&self.below).failed.take();
        told(written, failed)
    }

    /// The properties of a row group whose rows are in this order.
    fn sorted(&self, order: RowOrder) -> WriterPropertiesPtr {
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
        // Only the row group's own metadata is made from these; its chunks are encoded already.
        Arc::new(WriterProperties::builder().set_sorting_columns(Some(columns)).build())
    }
}

/// What is told of writing that failed: what the output says of it, if that is why.
fn told(written: Result<(), ParquetError>, failed: Option<Error>) -> Result<(), Error> {
    match (written, failed) {
        (_, Some(error)) => Err(error),
        (Err(error), None) => Err(Error::internal(format!("a table cannot be written: {error}"))),
        (Ok(()), None) => Ok(()),
    }
}
