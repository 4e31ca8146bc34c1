//! Where the row groups of a table are, as far as its footer can be believed.

use parquet::file::metadata::RowGroupMetaData;

use super::expansion;
use super::pages::byte_range;

/// A row group in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupSpan {
    /// Its number in the file.
    pub number: usize,
    /// The offset of its first byte.
    pub start: u64,
    /// The offset after its last byte.
    pub end: u64,
    /// The bytes of its rows in memory. A row group of equal values takes a few bytes in the file,
    /// however many rows it has.
    pub plain_bytes: u64,
}

impl GroupSpan {
    /// The spans of the row groups of a file of `len` bytes.
    ///
    /// `Err` if what the footer claims cannot be true.
    pub(super) fn of_all(groups: &[RowGroupMetaData], len: u64) -> Result<Vec<Self>, String> {
        groups.iter().enumerate().map(|(number, group)| Self::new(number, group, len)).collect()
    }

    fn new(number: usize, group: &RowGroupMetaData, len: u64) -> Result<Self, String> {
        if group.num_rows() < 0 {
            return Err(format!("row group {number} claims {} rows", group.num_rows()));
        }
        let mut hull: Option<(u64, u64)> = None;
        for column in group.columns() {
            let range = byte_range(column).filter(|(_, end)| *end <= len);
            let (start, end) = range.ok_or_else(|| {
                format!(
                    "row group {number} claims that its column `{}` is outside of the file",
                    column.column_path().string()
                )
            })?;
            let (first, last) = hull.unwrap_or((start, end));
            hull = Some((first.min(start), last.max(end)));
        }
        let (start, end) = hull.unwrap_or_default();
        Ok(Self { number, start, end, plain_bytes: expansion::group_bytes(group) as u64 })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parquet::file::metadata::ColumnChunkMetaData;
    use parquet::schema::parser::parse_message_type;
    use parquet::schema::types::SchemaDescriptor;

    use super::*;

    #[test]
    fn equal_values_count_with_what_they_take_in_memory() {
        let fields = parse_message_type("message m { repeated float state; }").unwrap();
        let columns = Arc::new(SchemaDescriptor::new(Arc::new(fields)));
        let chunk = ColumnChunkMetaData::builder(columns.column(0))
            .set_num_values(10 << 20)
            .set_data_page_offset(4)
            .set_total_compressed_size(100)
            .set_total_uncompressed_size(150);
        let group = RowGroupMetaData::builder(columns)
            .set_num_rows(1 << 20)
            .add_column_metadata(chunk.build().unwrap())
            .build();
        let spans = GroupSpan::of_all(&[group.unwrap()], 104).unwrap();
        let [span] = &spans[..] else { panic!("{spans:?}") };
        assert_eq!((span.start, span.end, span.plain_bytes), (4, 104, 40 << 20));
    }
}
