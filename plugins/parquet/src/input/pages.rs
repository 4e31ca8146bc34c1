//! What the pages of a row group say of themselves, which the Parquet library believes: it
//! allocates what a page claims to expand to, whatever the footer says. Reads the headers of pages,
//! and none of their contents.

use parquet::arrow::ProjectionMask;
use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData};
use parquet::file::page_index::offset_index::PageLocation;

use super::bytes::TableBytes;
use super::thrift::Value::{Bool, Int, Struct};
use super::thrift::{CompactReader, EMPTY, Value};

/// The most bytes of pages that are in memory at once, uncompressed: of each column a page and its
/// dictionary. A page has at least one value, which may have 1 GiB.
const MAX_PAGES: u64 = (1 << 30) + (64 << 20);

/// How many of them a byte of the file may stand for beyond that: wide tables need more.
const MAX_EXPANSION: u64 = 32;

/// The longest header of a page: it may have the least and the greatest value of the page.
const MAX_HEADER: usize = 16 << 20;

/// What is read first of a header.
const HEAD: usize = 256;

/// A page of an object that is as short as this is mostly followed by others: their headers are
/// fetched together, as a request takes as long as reading a megabyte.
const SHORT_PAGE: u64 = 256 << 10;
const READ_AHEAD: usize = 1 << 20;

/// Fields of `PageHeader`, and of the headers of data pages in it.
const PAGE_TYPE: i16 = 1;
const UNCOMPRESSED_SIZE: i16 = 2;
const COMPRESSED_SIZE: i16 = 3;
const DATA_PAGE: i16 = 5;
const DATA_PAGE_V2: i16 = 8;
const NUM_VALUES: i16 = 1;

/// `PageType`s.
const INDEX_PAGE: i32 = 1;
const DICTIONARY_PAGE: i32 = 2;

const PAGE_FIELDS: &[Value] = &[Int, Int, Int, Int, EMPTY, EMPTY, Struct(&[Int, Int, Bool])];
const DATA_FIELDS: &[Value] = &[Int, Int, Int, Int];
const DATA_V2_FIELDS: &[Value] = &[Int, Int, Int, Int, Int, Int, Bool];

/// The pages of a column chunk together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ChunkPages {
    /// The number of its values, nulls included.
    pub(super) values: u64,
    /// Its bytes, uncompressed.
    pub(super) bytes: u64,
    /// The bytes of its longest page, and those of its dictionaries.
    most: u64,
    dictionaries: u64,
    /// Its bytes in the file.
    compressed: u64,
}

/// The header of a page.
#[derive(Debug, Default, PartialEq, Eq)]
struct PageHeader {
    page_type: i32,
    uncompressed: u64,
    compressed: u64,
    values: u64,
    /// Its own length.
    len: u64,
}

/// The pages of the column chunks of a row group that the mask selects, by column.
pub(super) fn measure(
    bytes: &TableBytes,
    metadata: &ParquetMetaData,
    number: usize,
    mask: &ProjectionMask,
) -> Result<Vec<ChunkPages>, String> {
    let chunks = metadata.row_groups().get(number).map_or(&[][..], |group| group.columns());
    let index = metadata.offset_index().and_then(|index| index.get(number));
    let mut all = Vec::with_capacity(chunks.len());
    let (mut most, mut compressed) = (0u64, 0u64);
    let mut headers = HeaderReader::new(bytes);
    for (column, chunk) in chunks.iter().enumerate() {
        if !mask.leaf_included(column) {
            all.push(ChunkPages::default());
            continue;
        }
        let places = index.and_then(|index| index.get(column)).map(|i| &i.page_locations()[..]);
        let fault = |reason| format!("column `{}`: {reason}", chunk.column_path().string());
        let pages = measure_chunk(&mut headers, chunk, places).map_err(fault)?;
        most = most.saturating_add(pages.most).saturating_add(pages.dictionaries);
        compressed = compressed.saturating_add(pages.compressed);
        let max = MAX_PAGES.max(compressed.saturating_mul(MAX_EXPANSION));
        if most > max {
            return Err(fault(format!(
                "pages of {most} bytes are needed at once; at most {max} are read: write the table \
                 with smaller pages"
            )));
        }
        all.push(pages);
    }
    Ok(all)
}

/// The byte range of the pages of a column chunk as the library computes it, which panics for
/// negative numbers.
pub(super) fn byte_range(column: &ColumnChunkMetaData) -> Option<(u64, u64)> {
    let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
    let start = u64::try_from(start).ok()?;
    let end = start.checked_add(u64::try_from(column.compressed_size()).ok()?)?;
    Some((start, end))
}

/// The pages of a chunk, of which an index has these data pages.
fn measure_chunk(
    headers: &mut HeaderReader<'_>,
    chunk: &ColumnChunkMetaData,
    index: Option<&[PageLocation]>,
) -> Result<ChunkPages, String> {
    let (mut at, end) = byte_range(chunk).ok_or("it is outside of the file")?;
    let (mut pages, mut indexed) = (ChunkPages::default(), index.map(<[_]>::iter));
    while at < end {
        let header = headers.read(at, end)?;
        let after = at.checked_add(header.len).and_then(|at| at.checked_add(header.compressed));
        let next = after.filter(|next| *next <= end);
        let next = next.ok_or_else(|| format!("the page at {at} is longer than its column"))?;
        match header.page_type {
            INDEX_PAGE => {}
            DICTIONARY_PAGE => {
                pages.dictionaries = pages.dictionaries.saturating_add(header.uncompressed);
            }
            _ => {
                pages.most = pages.most.max(header.uncompressed);
                pages.values = pages.values.saturating_add(header.values);
                // The library reads the pages where their index says that they are.
                let is_there = |place: &PageLocation| {
                    let len = u64::try_from(place.compressed_page_size);
                    u64::try_from(place.offset) == Ok(at) && len == Ok(next - at)
                };
                if let Some(places) = &mut indexed
                    && !places.next().is_some_and(is_there)
                {
                    return Err(format!("the page at {at} is not where its index says"));
                }
            }
        }
        pages.bytes = pages.bytes.saturating_add(header.uncompressed);
        pages.compressed = pages.compressed.saturating_add(header.compressed);
        at = next;
    }
    match indexed.is_some_and(|mut places| places.next().is_some()) {
        true => Err("its index has pages that are not there".to_owned()),
        false => Ok(pages),
    }
}

/// Reads the headers of pages, in the order of the file.
struct HeaderReader<'b> {
    bytes: &'b TableBytes,
    /// The bytes that were read last, and their offset.
    last: (u64, Vec<u8>),
    /// How much is read for the next header at least.
    ahead: usize,
}

impl<'b> HeaderReader<'b> {
    fn new(bytes: &'b TableBytes) -> Self {
        Self { bytes, last: (0, Vec::new()), ahead: 0 }
    }

    /// Reads the header of the page at an offset, in a column that ends at another.
    fn read(&mut self, at: u64, end: u64) -> Result<PageHeader, String> {
        let most = usize::try_from(end - at).unwrap_or(usize::MAX).min(MAX_HEADER);
        if let Some(header) = self.find(at, most) {
            return Ok(header);
        }
        let mut len = most.min(HEAD).max(self.ahead);
        loop {
            self.last = (at, self.bytes.read_up_to(at, len).map_err(|e| e.to_string())?);
            if let Some(header) = self.find(at, most) {
                return Ok(header);
            }
            if self.last.1.len() < len || len >= most {
                return Err(format!("the header of the page at {at} is malformed"));
            }
            len = most.min(len.saturating_mul(16));
        }
    }

    /// The header at an offset, of at most so many bytes, if it is in what was read last.
    fn find(&mut self, at: u64, most: usize) -> Option<PageHeader> {
        let (start, bytes) = &self.last;
        let bytes = bytes.get(usize::try_from(at.checked_sub(*start)?).ok()?..)?;
        let header = page_header(bytes.get(..most).unwrap_or(bytes))?;
        let has_short = self.bytes.is_remote() && header.compressed <= SHORT_PAGE;
        self.ahead = if has_short { READ_AHEAD } else { 0 };
        Some(header)
    }
}

/// Parses the header of a page. `None` if it is malformed, or cut.
fn page_header(bytes: &[u8]) -> Option<PageHeader> {
    let mut reader = CompactReader(bytes);
    let (mut last, mut page_type, mut sizes) = (0, None, [None; 2]);
    let mut values = 0;
    while let Some((id, kind)) = reader.field(last)? {
        match id {
            PAGE_TYPE => page_type = Some(reader.int32()?),
            UNCOMPRESSED_SIZE => sizes[0] = Some(reader.int32()?),
            COMPRESSED_SIZE => sizes[1] = Some(reader.int32()?),
            DATA_PAGE => values = data_page_values(&mut reader, DATA_FIELDS)?.max(values),
            DATA_PAGE_V2 => values = data_page_values(&mut reader, DATA_V2_FIELDS)?.max(values),
            _ => reader.skip_field(PAGE_FIELDS, id, kind)?,
        }
        last = id;
    }
    Some(PageHeader {
        page_type: page_type?,
        uncompressed: u64::try_from(sizes[0]?).ok()?,
        compressed: u64::try_from(sizes[1]?).ok()?,
        values,
        len: (bytes.len() - reader.0.len()) as u64,
    })
}

/// The number of values, by the header of a data page with these fields and statistics.
fn data_page_values(reader: &mut CompactReader<'_>, fields: &[Value]) -> Option<u64> {
    let (mut last, mut values) = (0, 0);
    while let Some((id, kind)) = reader.field(last)? {
        match id {
            NUM_VALUES => values = u64::try_from(reader.int32()?).ok()?,
            _ => reader.skip_field(fields, id, kind)?,
        }
        last = id;
    }
    Some(values)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
    use parquet::arrow::ArrowWriter;
    use parquet::file::metadata::{PageIndexPolicy, ParquetMetaDataReader};
    use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};

    use super::super::test_store;
    use super::*;

    /// A table of 1,000 numbers and texts in many pages: its bytes and its footer.
    fn table(version: WriterVersion, folder: &std::path::Path) -> (TableBytes, ParquetMetaData) {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..1000));
        let texts =
            (0..1000).map(|n| Some(format!("{}{}", "x".repeat(300), n % 3)).filter(|_| n > 9));
        let texts: ArrayRef = Arc::new(texts.collect::<StringArray>());
        let rows = RecordBatch::try_from_iter([("n", numbers), ("t", texts)]).unwrap();
        let properties = WriterProperties::builder()
            .set_writer_version(version)
            .set_statistics_enabled(EnabledStatistics::Page)
            .set_write_page_header_statistics(true)
            .set_data_page_row_count_limit(100)
            .set_write_batch_size(50)
            .build();
        let path = folder.join("t.parquet");
        let file = std::fs::File::create(&path).unwrap();
        let mut writer = ArrowWriter::try_new(file, rows.schema(), Some(properties)).unwrap();
        writer.write(&rows).unwrap();
        writer.close().unwrap();
        let bytes = TableBytes::open(&path).unwrap();
        let mut reader =
            ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Required);
        reader.try_parse(&bytes).unwrap();
        (bytes, reader.finish().unwrap())
    }

    #[test]
    fn pages_have_what_a_true_footer_says() {
        let folder = tempfile::tempdir().unwrap();
        for version in [WriterVersion::PARQUET_1_0, WriterVersion::PARQUET_2_0] {
            let (bytes, metadata) = table(version, folder.path());
            let found = measure(&bytes, &metadata, 0, &ProjectionMask::all()).unwrap();
            for (pages, chunk) in found.iter().zip(metadata.row_group(0).columns()) {
                assert_eq!(pages.values, 1000);
                let headers = chunk.uncompressed_size() as u64 - pages.bytes;
                assert!((100..10_000).contains(&headers), "{headers} bytes of headers");
                assert!(pages.dictionaries > 0 && pages.most < pages.bytes / 5);
            }
            let first = ProjectionMask::leaves(metadata.file_metadata().schema_descr(), [0]);
            let some = measure(&bytes, &metadata, 0, &first).unwrap();
            assert_eq!(some, [found[0], ChunkPages::default()]);
        }
    }

    #[test]
    fn an_index_that_is_not_that_of_the_pages_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (bytes, metadata) = table(WriterVersion::PARQUET_1_0, folder.path());
        let chunk = metadata.row_group(0).column(0);
        let index = metadata.offset_index().unwrap()[0][0].page_locations();
        let with = |change: &dyn Fn(&mut Vec<PageLocation>)| {
            let mut index = index.clone();
            change(&mut index);
            measure_chunk(&mut HeaderReader::new(&bytes), chunk, Some(&index)).map(drop)
        };
        assert_eq!(with(&|_| ()), Ok(()));
        let moved = "is not where its index says";
        assert!(with(&|index| index[1].offset += 1).unwrap_err().contains(moved));
        assert!(with(&|index| index[2].compressed_page_size -= 1).unwrap_err().contains(moved));
        assert!(with(&|index| index[2].offset = -1).unwrap_err().contains(moved));
        assert!(with(&|index| index.truncate(index.len() - 1)).unwrap_err().contains(moved));
        let more = with(&|index| index.push(index[0].clone())).unwrap_err();
        assert_eq!(more, "its index has pages that are not there");
    }

    /// The ranges that are requested to measure two columns of 4 MiB each, which are an object.
    fn requests(rows_of_page: usize) -> Vec<std::ops::Range<u64>> {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..512 << 10));
        let columns = [("a", Arc::clone(&numbers)), ("b", numbers)];
        let rows = RecordBatch::try_from_iter(columns).unwrap();
        let properties = WriterProperties::builder()
            .set_dictionary_enabled(false)
            .set_data_page_row_count_limit(rows_of_page)
            .build();
        let mut file = Vec::new();
        let mut writer = ArrowWriter::try_new(&mut file, rows.schema(), Some(properties)).unwrap();
        writer.write(&rows).unwrap();
        writer.close().unwrap();
        let path = test_store::object(&format!("pages-of-{rows_of_page}.parquet"), file);
        let bytes = TableBytes::open(&path).unwrap();
        let mut reader = ParquetMetaDataReader::new();
        reader.try_parse(&bytes).unwrap();
        let metadata = reader.finish().unwrap();
        test_store::take_requests(&path);
        let pages = measure(&bytes, &metadata, 0, &ProjectionMask::all()).unwrap();
        assert!(pages.iter().all(|pages| pages.values == 512 << 10));
        test_store::take_requests(&path)
    }

    #[test]
    fn only_headers_of_short_pages_are_fetched_together() {
        let bytes = |requests: &[std::ops::Range<u64>]| {
            requests.iter().map(|range| range.end - range.start).sum::<u64>()
        };
        // 512 pages of 16 KiB.
        let short = requests(2 << 10);
        assert!(short.len() < 16 && bytes(&short) < 10 << 20, "{short:?}");
        // 8 pages of 1 MiB.
        let long = requests(128 << 10);
        assert!(long.len() <= 9 && bytes(&long) < 1 << 20, "{long:?}");
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_a_header_or_none(
            bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..60),
        ) {
            let header = page_header(&[&[0x15, 0, 0x15, 4, 0x15, 4], &bytes[..]].concat());
            assert!(header.is_none_or(|header| header.len > 6));
            assert!(page_header(&bytes).is_none_or(|header| header.len > 0));
        }
    }
}
