//! The metadata of row groups that are written, as compressed bytes, until their file has a footer.
//!
//! The library keeps it as structs that take about two kilobytes per column of each row group,
//! thirty times as much, and copies all of them to write a footer.

use std::ops::Range;
use std::sync::Arc;

use parquet::errors::ParquetError;
use parquet::file::metadata::{
    FileMetaData, KeyValue, ParquetMetaDataBuilder, ParquetMetaDataWriter, RowGroupMetaData,
};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::page_index::offset_index::OffsetIndexMetaData;
use parquet::file::properties::WriterProperties;
use parquet::schema::types::{SchemaDescPtr, SchemaDescriptor, Type};
use sluice_io::frames;
use sluice_model::Error;

use crate::input::thrift::CompactReader;

/// Fields of `FileMetaData`, `RowGroup` and `ColumnChunk`.
const ROW_GROUPS: i16 = 4;
const COLUMNS: i16 = 1;
const OFFSET_INDEX_OFFSET: i16 = 4;
const COLUMN_INDEX_OFFSET: i16 = 6;
/// The type of a list element that is a struct.
const STRUCT: u8 = 12;
/// The length of a list that does not fit into its first byte.
const LONG_LIST: u8 = 15;

/// The bytes of a footer's length and of what marks the end of a file.
const TAIL: usize = 8;

/// Quick: most of it are the names of columns.
const LEVEL: i32 = 1;

/// The row groups written so far.
#[derive(Default)]
pub(crate) struct WrittenGroups(Vec<WrittenGroup>);

struct WrittenGroup {
    column_index: Packed,
    offset_index: Packed,
    /// A `RowGroup` with the positions of its page indexes as if these stood at the start of the
    /// file, the column index first.
    metadata: Packed,
}

/// Compressed bytes.
struct Packed {
    len: usize,
    frame: Vec<u8>,
}

impl Packed {
    fn new(bytes: &[u8]) -> Result<Self, ParquetError> {
        let frame = frames::compress(bytes, LEVEL)?;
        Ok(Self { len: bytes.len(), frame })
    }

    fn unpacked(&self) -> Result<Vec<u8>, ParquetError> {
        let mut bytes = vec![0; self.len];
        frames::decompress(&self.frame, &mut bytes).map_err(ParquetError::General)?;
        Ok(bytes)
    }
}

impl WrittenGroups {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds the next row group.
    pub(crate) fn push(
        &mut self,
        group: RowGroupMetaData,
        column_index: Vec<ColumnIndexMetaData>,
        offset_index: Vec<OffsetIndexMetaData>,
    ) -> Result<(), ParquetError> {
        let file = FileMetaData::new(1, 0, None, None, no_columns()?, None);
        let metadata = ParquetMetaDataBuilder::new(file)
            .add_row_group(group)
            .set_column_index(Some(vec![column_index]))
            .set_offset_index(Some(vec![offset_index]))
            .build();
        let mut end = Vec::new();
        ParquetMetaDataWriter::new(&mut end, &metadata).finish()?;
        let (indexes, footer) = split_end(&end)?;
        let group = &footer[first_group(footer)?];
        let mut columns_len = indexes.len();
        walk_group(group, |id, _, offset| {
            if id == OFFSET_INDEX_OFFSET {
                columns_len = columns_len.min(usize::try_from(offset).unwrap_or(usize::MAX));
            }
        })?;
        let (column_index, offset_index) = indexes.split_at(columns_len);
        self.0.push(WrittenGroup {
            column_index: Packed::new(column_index)?,
            offset_index: Packed::new(offset_index)?,
            metadata: Packed::new(group)?,
        });
        Ok(())
    }

    /// Calls a function with the parts of the page index.
    pub(crate) fn page_index(
        &self,
        mut write: impl FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let columns = self.0.iter().map(|group| &group.column_index);
        let offsets = self.0.iter().map(|group| &group.offset_index);
        columns.chain(offsets).try_for_each(|part| write(&part.unpacked().map_err(write_error)?))
    }

    /// Calls a function with the parts of the footer of a file whose page index is at `start`,
    /// without its length.
    pub(crate) fn footer(
        &self,
        start: u64,
        frame: &FooterFrame,
        mut write: impl FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        write(frame.before())?;
        write(&list_header(self.len()))?;
        let columns_len: usize = self.0.iter().map(|group| group.column_index.len).sum();
        let (mut columns, mut offsets) = (start as i64, start as i64 + columns_len as i64);
        for group in &self.0 {
            let own_columns = group.column_index.len as i64;
            let metadata = group.metadata.unpacked();
            let moved = metadata
                .and_then(|metadata| with_indexes_at(&metadata, columns, offsets - own_columns));
            write(&moved.map_err(write_error)?)?;
            columns += own_columns;
            offsets += group.offset_index.len as i64;
        }
        write(frame.behind())
    }
}

/// A footer in which a single row group stands for all.
pub(crate) struct FooterFrame {
    footer: Vec<u8>,
    /// The list of row groups in it.
    groups: Range<usize>,
}

impl FooterFrame {
    /// The frame of a file of this schema with this many rows.
    pub(crate) fn new(
        schema: SchemaDescPtr,
        properties: &WriterProperties,
        rows: u64,
        entries: Vec<KeyValue>,
    ) -> Result<Self, ParquetError> {
        let (version, created_by) = (properties.writer_version(), properties.created_by());
        let created_by = Some(created_by.to_owned());
        let file = FileMetaData::new(
            version.as_num(),
            rows as i64,
            created_by,
            Some(entries),
            schema,
            None,
        );
        // The library counts the rows of the groups.
        let group = RowGroupMetaData::builder(no_columns()?).set_num_rows(rows as i64).build()?;
        let metadata = ParquetMetaDataBuilder::new(file).add_row_group(group).build();
        let mut end = Vec::new();
        ParquetMetaDataWriter::new(&mut end, &metadata).finish()?;
        let (_, footer) = split_end(&end)?;
        let group = first_group(footer)?;
        let groups = group.start - list_header(1).len()..group.end;
        Ok(Self { groups, footer: footer.to_vec() })
    }

    fn before(&self) -> &[u8] {
        &self.footer[..self.groups.start]
    }

    fn behind(&self) -> &[u8] {
        &self.footer[self.groups.end..]
    }
}

fn no_columns() -> Result<SchemaDescPtr, ParquetError> {
    let root = Type::group_type_builder("schema").build()?;
    Ok(Arc::new(SchemaDescriptor::new(Arc::new(root))))
}

/// What precedes the footer, and the footer without its length.
fn split_end(end: &[u8]) -> Result<(&[u8], &[u8]), ParquetError> {
    let split = end.len().checked_sub(TAIL).and_then(|tail| {
        let (before, tail) = end.split_at(tail);
        let len = u32::from_le_bytes(*tail.first_chunk()?);
        before.split_at_checked(before.len().checked_sub(len as usize)?)
    });
    split.ok_or_else(|| ParquetError::General("a footer is longer than what was written".into()))
}

/// Where the first row group of a footer is in it.
fn first_group(footer: &[u8]) -> Result<Range<usize>, ParquetError> {
    let mut reader = CompactReader(footer);
    let found = reader.seek(ROW_GROUPS).and_then(|()| reader.list());
    found.ok_or_else(malformed)?;
    let start = footer.len() - reader.0.len();
    Ok(start..start + walk_group(reader.0, |_, _, _| ())?)
}

/// Calls a function for each position of a page index in a row group, with the number of its field,
/// where it is, and its value. Returns the length of the row group.
fn walk_group(
    group: &[u8],
    mut found: impl FnMut(i16, Range<usize>, i64),
) -> Result<usize, ParquetError> {
    let mut reader = CompactReader(group);
    let read = reader.for_each_field(|reader, id, kind| {
        if id != COLUMNS {
            return reader.skip_field(&[], id, kind);
        }
        let (columns, _) = reader.list()?;
        (0..columns).try_for_each(|_| {
            reader.for_each_field(|reader, id, kind| {
                if ![OFFSET_INDEX_OFFSET, COLUMN_INDEX_OFFSET].contains(&id) {
                    return reader.skip_field(&[], id, kind);
                }
                let start = group.len() - reader.0.len();
                let offset = reader.int()?;
                found(id, start..group.len() - reader.0.len(), offset);
                Some(())
            })
        })
    });
    read.ok_or_else(malformed)?;
    Ok(group.len() - reader.0.len())
}

/// A row group whose column and offset indexes are this far behind where it says.
fn with_indexes_at(group: &[u8], columns: i64, offsets: i64) -> Result<Vec<u8>, ParquetError> {
    let (mut moved, mut copied) = (Vec::with_capacity(group.len()), 0);
    walk_group(group, |id, place, offset| {
        moved.extend(&group[copied..place.start]);
        let by = if id == COLUMN_INDEX_OFFSET { columns } else { offsets };
        push_varint(&mut moved, zigzag(offset + by));
        copied = place.end;
    })?;
    moved.extend(&group[copied..]);
    Ok(moved)
}

fn list_header(len: usize) -> Vec<u8> {
    match u8::try_from(len) {
        Ok(len) if len < LONG_LIST => vec![len << 4 | STRUCT],
        _ => {
            let mut header = vec![LONG_LIST << 4 | STRUCT];
            push_varint(&mut header, len as u64);
            header
        }
    }
}

fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}

fn push_varint(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

fn malformed() -> ParquetError {
    ParquetError::General("the metadata of a row group is malformed".into())
}

/// The library only rejects what we write because of a bug.
#[expect(clippy::needless_pass_by_value, reason = "used as a function value")]
pub(crate) fn write_error(error: ParquetError) -> Error {
    Error::internal(format!("a table cannot be written: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    use arrow_array::{ArrayRef, BinaryArray, Int64Array, RecordBatch, StringArray};
    use bytes::Bytes;
    use parquet::arrow::ArrowWriter;
    use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};
    use parquet::file::properties::EnabledStatistics;
    use parquet::file::writer::TrackedWrite;

    /// The metadata of a file with this many row groups, and a column without a column index.
    fn metadata(groups: i64) -> ParquetMetaData {
        let plain = EnabledStatistics::None;
        let properties = WriterProperties::builder()
            .set_data_page_row_count_limit(7)
            .set_write_batch_size(7)
            .set_column_statistics_enabled("b".into(), plain)
            .build();
        let rows = |group: i64| {
            let numbers = group * 100..group * 101 + 5;
            let texts = numbers.clone().map(|n| Some("x".repeat(n as usize % 90)));
            let bytes = numbers.clone().map(i64::to_le_bytes);
            let columns: [ArrayRef; 3] = [
                Arc::new(Int64Array::from_iter_values(numbers)),
                Arc::new(BinaryArray::from_iter_values(bytes)),
                Arc::new(texts.collect::<StringArray>()),
            ];
            RecordBatch::try_from_iter(["a", "b", "c"].into_iter().zip(columns)).unwrap()
        };
        let mut file = Vec::new();
        let mut writer =
            ArrowWriter::try_new(&mut file, rows(0).schema(), Some(properties)).unwrap();
        for group in 0..groups {
            writer.write(&rows(group)).unwrap();
            writer.flush().unwrap();
        }
        writer.close().unwrap();
        let mut reader =
            ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Required);
        reader.try_parse(&Bytes::from(file)).unwrap();
        reader.finish().unwrap()
    }

    /// What the library writes behind `start` bytes, without the length of the footer.
    fn written_by_library(metadata: &ParquetMetaData, start: usize) -> Vec<u8> {
        let mut file = Vec::new();
        let mut out = TrackedWrite::new(&mut file);
        out.write_all(&vec![0; start]).unwrap();
        ParquetMetaDataWriter::new_with_tracked(out, metadata).finish().unwrap();
        file[start..file.len() - TAIL].to_vec()
    }

    #[test]
    fn the_end_of_a_file_is_as_the_library_writes_it() {
        for (count, start) in [(1, 0), (3, 100), (20, 1 << 20)] {
            let metadata = metadata(count);
            let mut groups = WrittenGroups::default();
            for (n, group) in metadata.row_groups().iter().enumerate() {
                let columns = metadata.column_index().unwrap()[n].clone();
                let offsets = metadata.offset_index().unwrap()[n].clone();
                groups.push(group.clone(), columns, offsets).unwrap();
            }
            let file = metadata.file_metadata();
            let properties = WriterProperties::builder()
                .set_created_by(file.created_by().unwrap().to_owned())
                .build();
            let entries = file.key_value_metadata().unwrap().clone();
            let rows = file.num_rows() as u64;
            let frame =
                FooterFrame::new(file.schema_descr_ptr(), &properties, rows, entries).unwrap();
            let mut end: Vec<u8> = Vec::new();
            let mut write = |part: &[u8]| {
                end.extend(part);
                Ok(())
            };
            groups.page_index(&mut write).unwrap();
            groups.footer(start as u64, &frame, &mut write).unwrap();
            assert!(end == written_by_library(&metadata, start), "{count} row groups");
        }
    }
}
