//! Bounds what the rows of a small file expand to.
//!
//! A page stores a value that many rows share once. Columns are read with types of which rows share
//! it too, and get the type of the file, which has each value in full, only in slices of rows that
//! fit into memory.

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch, StructArray};
use arrow_schema::DataType;
use parquet::arrow::ProjectionMask;
use parquet::basic::Type;
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use sluice_model::{Split, array_bytes};

use super::pages::ChunkPages;

/// The most bytes of a row.
const MAX_ROW: usize = 1 << 30;

/// The most bytes of the rows that are expanded together, unless there is but one.
const MAX_SLICE: usize = 32 << 20;

/// The least bytes of an event in memory: time, sequence number, channel, row, and the view of its
/// payload.
pub(crate) const EVENT: usize = 40;

/// What is assumed of a row group whose footer claims more: the sum for all groups of a file must
/// not overflow.
const MAX_GROUP: usize = 1 << 48;

/// The bytes of a row group in memory according to the footer, with each value in full. More than a
/// task may keep if texts may take so much, whose lengths not every footer has.
pub(super) fn group_bytes(group: &RowGroupMetaData) -> usize {
    let bytes = column_bytes(group).max(rows(group).saturating_mul(EVENT)).min(MAX_GROUP);
    let texts = group.columns().iter().map(most_text_bytes).fold(0, usize::saturating_add);
    let too_many = Split::MAX_TASK_BYTES as usize + 1;
    if texts < too_many { bytes } else { bytes.max(too_many) }
}

/// The most bytes of texts whose lengths are not in the footer: each may be as long as the chunk.
fn most_text_bytes(chunk: &ColumnChunkMetaData) -> usize {
    let has_lengths = chunk.unencoded_byte_array_data_bytes().is_some();
    if chunk.column_type() != Type::BYTE_ARRAY || has_lengths {
        return 0;
    }
    let most = chunk.num_values().saturating_mul(chunk.uncompressed_size());
    usize::try_from(most).unwrap_or(0)
}

/// The average bytes of a row in the columns that are read, according to the footer and to pages,
/// by column, if they say more. `Err` says that it is too long.
pub(super) fn bytes_per_row(
    group: &RowGroupMetaData,
    mask: &ProjectionMask,
    pages: &[ChunkPages],
) -> Result<usize, String> {
    let chunks = group.columns().iter().enumerate().filter(|(at, _)| mask.leaf_included(*at));
    let bytes = chunks.map(|(at, chunk)| expanded_chunk(chunk, pages.get(at).copied()));
    check_row(bytes.fold(0, usize::saturating_add) / rows(group).max(1))
}

fn rows(group: &RowGroupMetaData) -> usize {
    usize::try_from(group.num_rows()).unwrap_or(usize::MAX)
}

fn column_bytes(group: &RowGroupMetaData) -> usize {
    group.columns().iter().map(|chunk| expanded_chunk(chunk, None)).fold(0, usize::saturating_add)
}

fn check_row(bytes: usize) -> Result<usize, String> {
    if bytes <= MAX_ROW {
        return Ok(bytes);
    }
    Err(format!("a row of {bytes} bytes; the longest that is read has {MAX_ROW}"))
}

fn expanded_chunk(chunk: &ColumnChunkMetaData, pages: Option<ChunkPages>) -> usize {
    let pages = pages.unwrap_or_default();
    let or_claimed = |pages, claimed: i64| i64::try_from(pages).unwrap_or(i64::MAX).max(claimed);
    let width = match chunk.column_type() {
        Type::BOOLEAN | Type::BYTE_ARRAY => 0,
        Type::INT32 | Type::FLOAT => 4,
        Type::INT64 | Type::DOUBLE => 8,
        Type::INT96 => 12,
        Type::FIXED_LEN_BYTE_ARRAY => i64::from(chunk.column_descr().type_length()),
    };
    let values = or_claimed(pages.values, chunk.num_values()).saturating_mul(width);
    let texts = chunk.unencoded_byte_array_data_bytes().unwrap_or(0);
    let most = or_claimed(pages.bytes, chunk.uncompressed_size()).max(values).max(texts);
    usize::try_from(most).unwrap_or(0)
}

/// Cuts rows so that each slice fits into memory when it is expanded, the first slice last. Missing
/// lists of fixed length in the columns of these types take at most `missing_bytes` of a slice of
/// several rows. `Err` says that a row does not fit.
pub(super) fn slices(
    rows: RecordBatch,
    fixed_lists: &[(usize, DataType)],
    missing_bytes: usize,
) -> Result<Vec<RecordBatch>, String> {
    let (mut todo, mut slices) = (vec![rows], Vec::new());
    while let Some(rows) = todo.pop() {
        let bytes = rows.columns().iter().map(array_bytes).sum::<usize>();
        let missing = fixed_lists.iter().filter_map(|(place, data_type)| {
            Some(bytes_of_missing(rows.columns().get(*place)?, data_type, rows.num_rows()))
        });
        let missing = missing.fold(0, usize::saturating_add);
        let half = rows.num_rows() / 2;
        if (bytes <= MAX_SLICE && missing <= missing_bytes) || half == 0 {
            check_row(bytes.saturating_add(missing))?;
            slices.push(rows);
            continue;
        }
        todo.push(rows.slice(0, half));
        todo.push(rows.slice(half, rows.num_rows() - half));
    }
    Ok(slices)
}

/// The bytes that missing lists of fixed length will take in a column of this type, whose lists are
/// plain still. There will be `count` of its values.
fn bytes_of_missing(column: &ArrayRef, data_type: &DataType, count: usize) -> usize {
    match data_type {
        DataType::FixedSizeList(item, len) => {
            let count = count.saturating_mul(*len as usize);
            elements(column).map_or(0, |values| bytes_of_missing(&values, item.data_type(), count))
        }
        DataType::List(item) | DataType::LargeList(item) | DataType::Map(item, _) => {
            let offsets = count.saturating_sub(column.len()).saturating_mul(size_of::<i32>());
            let inside =
                elements(column).map_or(0, |v| bytes_of_missing(&v, item.data_type(), v.len()));
            offsets.saturating_add(inside)
        }
        DataType::Struct(fields) => {
            let members = column.as_struct_opt().map_or(&[][..], StructArray::columns);
            let members = members.iter().zip(fields);
            let bytes = members.map(|(m, field)| bytes_of_missing(m, field.data_type(), count));
            bytes.fold(0, usize::saturating_add)
        }
        data_type => {
            let width = match data_type {
                DataType::FixedSizeBinary(len) => *len as usize,
                data_type => data_type.primitive_width().unwrap_or(size_of::<u128>()),
            };
            count.saturating_sub(column.len()).saturating_mul(width)
        }
    }
}

/// The elements of these lists, without those of others.
fn elements(lists: &ArrayRef) -> Option<ArrayRef> {
    let part = |first: usize, end: usize, values: &dyn Array| values.slice(first, end - first);
    match lists.data_type() {
        DataType::List(_) => {
            let (lists, last) = (lists.as_list::<i32>(), lists.len());
            let offsets = lists.value_offsets();
            Some(part(offsets[0] as usize, offsets[last] as usize, lists.values()))
        }
        DataType::LargeList(_) => {
            let (lists, last) = (lists.as_list::<i64>(), lists.len());
            let offsets = lists.value_offsets();
            Some(part(offsets[0] as usize, offsets[last] as usize, lists.values()))
        }
        DataType::Map(..) => {
            let (maps, last) = (lists.as_map(), lists.len());
            let offsets = maps.value_offsets();
            Some(part(offsets[0] as usize, offsets[last] as usize, maps.entries()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use arrow_array::ListArray;
    use arrow_array::builder::{ListBuilder, StringViewBuilder};
    use arrow_array::types::Int64Type;
    use arrow_schema::{Field, FieldRef};
    use parquet::schema::parser::parse_message_type;
    use parquet::schema::types::SchemaDescriptor;

    /// A row for each number: a list of so many texts of 1 MiB, all of which share theirs.
    fn lists(lens: &[usize]) -> RecordBatch {
        let texts = StringViewBuilder::new().with_deduplicate_strings();
        let (mut lists, text) = (ListBuilder::new(texts), "x".repeat(1 << 20));
        lens.iter().for_each(|len| lists.append_value(vec![Some(&text); *len]));
        RecordBatch::try_from_iter([("lists", Arc::new(lists.finish()) as ArrayRef)]).unwrap()
    }

    #[test]
    fn rows_are_cut_into_slices_in_order() {
        let slices = slices(lists(&[20, 20, 2, 100, 1, 1]), &[], 0).unwrap();
        let rows: Vec<usize> = slices.iter().rev().map(RecordBatch::num_rows).collect();
        assert_eq!(rows, [1, 2, 1, 2]);
        let bytes = slices.iter().rev().map(|slice| array_bytes(slice.column(0)) >> 20);
        assert_eq!(bytes.collect::<Vec<_>>(), [20, 22, 100, 2]);
    }

    #[test]
    fn a_row_that_does_not_fit_is_refused() {
        let reason = slices(lists(&[1, 1025]), &[], 0).unwrap_err();
        assert!(reason.starts_with("a row of 1074"), "{reason}");
    }

    #[test]
    fn missing_lists_of_fixed_length_count_as_the_others() {
        let pairs = [Some(vec![Some(1), Some(2)]), None].into_iter().cycle().take(100);
        let pairs = ListArray::from_iter_primitive::<Int64Type, _, _>(pairs);
        let fixed = |item: &FieldRef, len| DataType::FixedSizeList(Arc::clone(item), len);
        let item = Arc::new(Field::new_list_field(DataType::Int64, true));
        let rows = RecordBatch::try_from_iter([("a", Arc::new(pairs) as ArrayRef)]).unwrap();
        let rows_in = |data_type: DataType, missing: usize| {
            let slices = slices(rows.clone(), &[(0, data_type)], missing).unwrap();
            slices.iter().rev().map(RecordBatch::num_rows).collect::<Vec<_>>()
        };
        // Half of the 100 pairs, of 16 bytes each, are missing.
        assert_eq!(rows_in(fixed(&item, 2), 800), [100]);
        assert_eq!(rows_in(fixed(&item, 2), 799), [50, 50]);
        assert_eq!(rows_in(fixed(&item, 2), 150), [12, 13, 12, 13, 12, 13, 12, 13]);
        let all = slices(rows.clone(), &[(0, fixed(&item, i32::MAX))], 799);
        assert!(all.unwrap_err().starts_with("a row of 171798"));
    }

    #[test]
    fn so_is_one_whose_values_take_next_to_nothing_in_the_file() {
        let group = |values, rows| {
            let fields = parse_message_type("message m { repeated int64 list; }").unwrap();
            let columns = Arc::new(SchemaDescriptor::new(Arc::new(fields)));
            let chunk = ColumnChunkMetaData::builder(columns.column(0)).set_num_values(values);
            RowGroupMetaData::builder(columns)
                .set_num_rows(rows)
                .add_column_metadata(chunk.build().unwrap())
                .build()
                .unwrap()
        };
        let bytes_per_row = |group| bytes_per_row(&group, &ProjectionMask::all(), &[]);
        assert_eq!(group_bytes(&group(8000, 1000)), 64_000);
        assert_eq!(group_bytes(&group(8000, 8000)), 8000 * EVENT);
        assert_eq!(group_bytes(&group(i64::MAX, i64::MAX)), MAX_GROUP);
        assert_eq!(bytes_per_row(group(1 << 28, 2)), Ok(1 << 30));
        assert_eq!(bytes_per_row(group(8000, 1000)), Ok(64));
        assert!(bytes_per_row(group(1 << 28, 1)).is_err());
        assert!(bytes_per_row(group(i64::MAX, 0)).is_err());
    }

    #[test]
    fn texts_of_unknown_length_may_each_be_as_long_as_their_chunk() {
        let group = |values, lengths| {
            let fields = parse_message_type("message m { required binary text; }").unwrap();
            let columns = Arc::new(SchemaDescriptor::new(Arc::new(fields)));
            let chunk = ColumnChunkMetaData::builder(columns.column(0))
                .set_num_values(values)
                .set_total_uncompressed_size(1 << 20)
                .set_unencoded_byte_array_data_bytes(lengths);
            RowGroupMetaData::builder(columns)
                .set_num_rows(values)
                .add_column_metadata(chunk.build().unwrap())
                .build()
                .unwrap()
        };
        let max_task = Split::MAX_TASK_BYTES as usize;
        assert_eq!(group_bytes(&group(7, None)), 1 << 20);
        assert_eq!(group_bytes(&group(9, None)), max_task + 1);
        assert_eq!(group_bytes(&group(9, Some(2 << 20))), 2 << 20);
    }
}
