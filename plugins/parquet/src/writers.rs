//! Writers for the columns of a row group: the encodings of their table, and zstd levels by
//! samples.

use std::io;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use parquet::arrow::arrow_writer::{ArrowColumnWriter, ArrowRowGroupWriterFactory};
use parquet::basic::{Compression, Type, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::{WriterProperties, WriterPropertiesPtr};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{self, ColumnDescPtr, SchemaDescPtr, TypePtr};
use sluice_io::frames::DEFAULT_LEVEL;
use sluice_io::level;

use crate::columns;

/// The bytes per page before compression. zstd is fastest when a page fits into the cache of a
/// core: with a quarter of a megabyte it takes 10 to 17 % less time than with a whole one, for 0.2
/// % (sorted by channel) to 1 % (by time) more bytes.
pub(crate) const PAGE: usize = 256 << 10;
/// The pieces of a sample, from all over a column.
const PIECES: usize = 8;
/// The length of a sample: that of a page, which is a little longer than its limit. zstd has other
/// tables for less.
const SAMPLE: usize = PAGE + (16 << 10);
/// Columns of fewer bytes have the usual level, as a sample would cost too much.
const LEAST: usize = 8 << 20;
/// A lower level may make a sample this part larger.
const ALLOWANCE: usize = 128;

/// Makes the column writers of a table's row groups.
pub(crate) struct ColumnWriters {
    pub(crate) arrow: SchemaRef,
    pub(crate) parquet: SchemaDescPtr,
    pub(crate) properties: WriterPropertiesPtr,
    leaves: Vec<Leaf>,
    /// The leaf columns for which a sample may find a lower level: bytes as they are.
    sampled: Vec<usize>,
}

/// A leaf column.
struct Leaf {
    arrow: DataType,
    /// The types from below the root to its own.
    path: Vec<TypePtr>,
}

impl ColumnWriters {
    pub(crate) fn new(
        arrow: SchemaRef,
        parquet: SchemaDescPtr,
        properties: WriterPropertiesPtr,
    ) -> Result<Self, ParquetError> {
        let usual_level = Compression::ZSTD(ZstdLevel::try_new(DEFAULT_LEVEL)?);
        let is_sampled = |column: &ColumnDescPtr| {
            let path = column.path();
            column.physical_type() == Type::BYTE_ARRAY
                && properties.compression(path) == usual_level
                && !properties.dictionary_enabled(path)
        };
        let columns = parquet.columns().iter().enumerate();
        let sampled = columns.filter(|(_, column)| is_sampled(column)).map(|(at, _)| at).collect();
        let mut paths = Vec::new();
        for field in parquet.root_schema().get_fields() {
            add_leaf_paths(field, &mut Vec::new(), &mut paths);
        }
        let mut leaves = Vec::new();
        arrow.fields().iter().for_each(|field| {
            columns::visit_leaf_types(field.data_type(), &mut |leaf| leaves.push(leaf.clone()));
        });
        let leaves = leaves.into_iter().zip(paths);
        let leaves = leaves.map(|(arrow, path)| Leaf { arrow, path }).collect();
        Ok(Self { arrow, parquet, properties, leaves, sampled })
    }

    /// Whether both write the same columns in the same way.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let (ours, theirs) = (&self.properties, &other.properties);
        let is_same = |column: &ColumnDescPtr| {
            let path = column.path();
            ours.encoding(path) == theirs.encoding(path)
                && ours.dictionary_enabled(path) == theirs.dictionary_enabled(path)
                && ours.compression(path) == theirs.compression(path)
                && ours.statistics_enabled(path) == theirs.statistics_enabled(path)
        };
        self.arrow == other.arrow
            && self.parquet.root_schema() == other.parquet.root_schema()
            && self.parquet.columns().iter().all(is_same)
    }

    /// The number of leaf columns.
    pub(crate) fn len(&self) -> usize {
        self.leaves.len()
    }

    /// The properties of a row group with these columns, batch by batch.
    pub(crate) fn properties_for(
        &self,
        batches: &[Vec<ArrayRef>],
    ) -> Result<WriterPropertiesPtr, ParquetError> {
        let levels = self.lower_levels(batches);
        if levels.is_empty() {
            return Ok(Arc::clone(&self.properties));
        }
        let mut properties = WriterProperties::clone(&self.properties).into_builder();
        for (leaf, level) in levels {
            let codec = Compression::ZSTD(ZstdLevel::try_new(level)?);
            properties =
                properties.set_column_compression(self.parquet.column(leaf).path().clone(), codec);
        }
        Ok(Arc::new(properties.build()))
    }

    /// The writer of one leaf column in a row group.
    ///
    /// The library makes the writers of all columns of a schema, and each takes a hundred kilobytes
    /// from the start, most of it for a decompressor. Of a schema with one column it makes one, so
    /// that only those exist that are in use.
    pub(crate) fn of_leaf(
        &self,
        leaf: usize,
        properties: &WriterPropertiesPtr,
    ) -> Result<ArrowColumnWriter, ParquetError> {
        let missing = || ParquetError::General("a column without a writer".into());
        let Leaf { arrow, path } = self.leaves.get(leaf).ok_or_else(missing)?;
        let field = Field::new("leaf", arrow.clone(), true);
        let parquet = schema_of_path(self.parquet.root_schema(), path)?;
        // Row groups are encoded before their file exists, but the library needs a file writer.
        let stand_in = SerializedFileWriter::new(io::sink(), parquet, Arc::clone(properties))?;
        let schema = Arc::new(Schema::new(vec![field]));
        let factory = ArrowRowGroupWriterFactory::new(&stand_in, schema);
        factory.create_column_writers(0)?.pop().ok_or_else(missing)
    }

    /// The leaf columns for which a lower level is as good, with that level.
    fn lower_levels(&self, batches: &[Vec<ArrayRef>]) -> Vec<(usize, i32)> {
        if self.sampled.is_empty() {
            return Vec::new();
        }
        let leaves: Vec<Vec<ArrayRef>> =
            batches.iter().map(|columns| columns::leaves(columns)).collect();
        let level = |leaf: &usize| {
            let arrays: Vec<&ArrayRef> = leaves.iter().filter_map(|all| all.get(*leaf)).collect();
            let level = level::quickest(&sample(&arrays)?, ALLOWANCE);
            (level < DEFAULT_LEVEL).then_some((*leaf, level))
        };
        self.sampled.iter().filter_map(level).collect()
    }
}

/// The types on the way to each leaf column below `field`.
fn add_leaf_paths(field: &TypePtr, above: &mut Vec<TypePtr>, paths: &mut Vec<Vec<TypePtr>>) {
    above.push(Arc::clone(field));
    if field.is_primitive() {
        paths.push(above.clone());
    } else {
        field.get_fields().iter().for_each(|member| add_leaf_paths(member, above, paths));
    }
    above.pop();
}

/// A schema with only the leaf column at the end of `path`: of the groups around it, only names and
/// repetitions matter.
fn schema_of_path(root: &types::Type, path: &[TypePtr]) -> Result<TypePtr, ParquetError> {
    let mut below: Vec<TypePtr> = Vec::new();
    for field in path.iter().rev() {
        below = vec![if field.is_primitive() {
            Arc::clone(field)
        } else {
            let group = types::Type::group_type_builder(field.name());
            let repetition = field.get_basic_info().repetition();
            Arc::new(group.with_repetition(repetition).with_fields(below).build()?)
        }];
    }
    Ok(Arc::new(types::Type::group_type_builder(root.name()).with_fields(below).build()?))
}

/// A sample of a column of bytes; `None` for other columns, and for those with few bytes.
fn sample(arrays: &[&ArrayRef]) -> Option<Vec<u8>> {
    let values = arrays.iter().flat_map(|array| byte_values(array));
    let lens = values.clone().map(<[u8]>::len);
    let (count, bytes) = lens.fold((0, 0), |(count, bytes), len| (count + 1, bytes + len));
    let parts = values.flat_map(|value| {
        [PagePart::Length((value.len() as u32).to_le_bytes()), PagePart::Value(value)]
    });
    let total = bytes + count * size_of::<u32>();
    (bytes >= LEAST).then(|| level::sample(parts, total, PIECES, SAMPLE))
}

/// What pages of plain bytes consist of.
enum PagePart<'v> {
    Length([u8; 4]),
    Value(&'v [u8]),
}

impl AsRef<[u8]> for PagePart<'_> {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Length(len) => len,
            Self::Value(value) => value,
        }
    }
}

/// The values of a column of bytes; none of other columns.
fn byte_values(array: &ArrayRef) -> impl Iterator<Item = &[u8]> + Clone {
    let plain = array.as_binary_opt::<i32>().into_iter();
    let views = array.as_binary_view_opt().into_iter();
    let plain = plain.flat_map(|array| (0..array.len()).map(|row| array.value(row)));
    plain.chain(views.flat_map(|array| (0..array.len()).map(|row| array.value(row))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{BinaryArray, BinaryViewArray, Int64Array};

    /// An array whose values are these numbers, over and over, of this length each.
    fn numbered(numbers: std::ops::Range<u32>, len: usize) -> ArrayRef {
        let value = |n: u32| n.to_le_bytes().into_iter().cycle().take(len).collect::<Vec<u8>>();
        Arc::new(BinaryArray::from_iter_values(numbers.map(value)))
    }

    #[test]
    fn a_sample_has_values_from_all_over_the_column() {
        let last = numbered(10_000..30_000, 1020).slice(500, 15_000);
        let arrays = [numbered(0..10_000, 1020), numbered(0..0, 1020), last];
        let found = sample(&arrays.iter().collect::<Vec<_>>()).unwrap();
        assert_eq!(found.len(), SAMPLE);
        // A piece starts within a value, or its length.
        let len = SAMPLE / PIECES;
        let step = (25_000 * 1024 - len) / (PIECES - 1);
        let number = |(n, piece): (usize, &[u8])| {
            let next = &piece[1024 - n * step % 1024..];
            let (length, value) = next.split_first_chunk().unwrap();
            assert_eq!(u32::from_le_bytes(*length), 1020);
            u32::from_le_bytes(*value.first_chunk().unwrap())
        };
        let numbers: Vec<u32> = found.chunks_exact(len).enumerate().map(number).collect();
        let first_whole = |piece: usize| (piece * step / 1024 + 1) as u32;
        let after_gap = |n: u32| if n < 10_000 { n } else { n + 500 };
        let expected: Vec<u32> = (0..PIECES).map(first_whole).map(after_gap).collect();
        assert_eq!(numbers, expected);
        // The same values in another array.
        let views: BinaryViewArray = arrays[0].as_binary::<i32>().iter().collect();
        let views: ArrayRef = Arc::new(views);
        assert_eq!(sample(&[&views]), sample(&[&arrays[0]]));
    }

    #[test]
    fn only_large_columns_of_bytes_are_sampled() {
        assert_eq!(sample(&[&numbered(0..1000, 1020)]), None);
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..2 << 20));
        assert_eq!(sample(&[&numbers]), None);
        assert_eq!(sample(&[&numbered(0..1, 8 << 20)]).unwrap().len(), SAMPLE);
    }
}
