//! Chooses the encoding of a column from its first rows.

use std::collections::HashSet;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef};
use arrow_schema::DataType;
use parquet::basic::Encoding;

/// The encoding of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColumnEncoding {
    /// A dictionary, for columns with few distinct values.
    Dictionary,
    /// No dictionary.
    Plain(Encoding),
}

/// The number of values that are sampled.
const SAMPLE: usize = 4096;

/// Chooses the encoding of a leaf column from its first values.
pub(crate) fn choose_encoding(leaf: &ArrayRef) -> ColumnEncoding {
    let (none, data_type) = (ColumnEncoding::Plain(Encoding::PLAIN), leaf.data_type());
    let without = match data_type {
        DataType::Boolean => return none,
        // The type itself says that values repeat.
        DataType::Dictionary(..) => return ColumnEncoding::Dictionary,
        DataType::Float32 | DataType::Float64 => Encoding::BYTE_STREAM_SPLIT,
        _ if is_integer(data_type) => Encoding::DELTA_BINARY_PACKED,
        _ => Encoding::PLAIN,
    };
    if has_few_values(leaf) { ColumnEncoding::Dictionary } else { ColumnEncoding::Plain(without) }
}

fn is_integer(data_type: &DataType) -> bool {
    let other = matches!(
        data_type,
        DataType::Timestamp(..)
            | DataType::Date32
            | DataType::Date64
            | DataType::Time32(_)
            | DataType::Time64(_)
            | DataType::Duration(_)
    );
    data_type.is_integer() || other
}

/// Whether there are few distinct values: at most one for eight rows.
fn has_few_values(leaf: &ArrayRef) -> bool {
    let rows = sample(leaf.len());
    if rows.len() < 16 {
        // Too few to tell: times and floats rarely repeat.
        return !is_integer(leaf.data_type()) && !leaf.data_type().is_floating();
    }
    let most = rows.len() / 8;
    let mut seen: HashSet<&[u8]> = HashSet::new();
    let width = leaf.data_type().primitive_width();
    for row in rows {
        let Some(value) = bytes_of(leaf, row, width) else { return false };
        seen.insert(value);
        if seen.len() > most {
            return false;
        }
    }
    true
}

/// Sampled rows in runs spread over the column, so that local repetition is seen.
fn sample(len: usize) -> Vec<usize> {
    const RUN: usize = 64;
    if len <= SAMPLE {
        return (0..len).collect();
    }
    let (runs, mut rows) = (SAMPLE / RUN, Vec::with_capacity(SAMPLE));
    for run in 0..runs {
        let start = (len - RUN) / (runs - 1) * run;
        rows.extend(start..start + RUN);
    }
    rows
}

fn bytes_of(leaf: &ArrayRef, row: usize, width: Option<usize>) -> Option<&[u8]> {
    if leaf.is_null(row) {
        return Some(&[]);
    }
    Some(match leaf.data_type() {
        DataType::Utf8 => leaf.as_string::<i32>().value(row).as_bytes(),
        DataType::LargeUtf8 => leaf.as_string::<i64>().value(row).as_bytes(),
        DataType::Utf8View => leaf.as_string_view().value(row).as_bytes(),
        DataType::Binary => leaf.as_binary::<i32>().value(row),
        DataType::LargeBinary => leaf.as_binary::<i64>().value(row),
        DataType::BinaryView => leaf.as_binary_view().value(row),
        DataType::FixedSizeBinary(_) => leaf.as_fixed_size_binary().value(row),
        _ => {
            let width = width?;
            leaf_values(leaf)?.get(row * width..)?.get(..width)?
        }
    })
}

/// The values of a primitive array as bytes.
fn leaf_values(leaf: &ArrayRef) -> Option<&[u8]> {
    use arrow_array::downcast_primitive_array;
    let array = leaf.as_ref();
    downcast_primitive_array!(
        array => Some(array.values().inner().as_slice()),
        _ => None
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::{Float64Array, Int64Array, StringArray};
    use std::sync::Arc;

    fn chosen(leaf: impl Array + 'static) -> ColumnEncoding {
        choose_encoding(&(Arc::new(leaf) as ArrayRef))
    }

    #[test]
    fn few_values_get_a_dictionary() {
        let ints: Int64Array = (0..10_000).map(|n| n % 7).collect::<Vec<i64>>().into();
        assert_eq!(chosen(ints), ColumnEncoding::Dictionary);
        let words: StringArray = (0..1000).map(|n| Some(["a", "b"][n % 2])).collect();
        assert_eq!(chosen(words), ColumnEncoding::Dictionary);
    }

    #[test]
    fn other_columns_get_the_encoding_of_their_type() {
        let times: Int64Array = (0..10_000).collect::<Vec<i64>>().into();
        assert_eq!(chosen(times), ColumnEncoding::Plain(Encoding::DELTA_BINARY_PACKED));
        let floats: Float64Array = (0..100).map(f64::from).collect::<Vec<f64>>().into();
        assert_eq!(chosen(floats), ColumnEncoding::Plain(Encoding::BYTE_STREAM_SPLIT));
        let words: StringArray = (0..1000).map(|n| Some(n.to_string())).collect();
        assert_eq!(chosen(words), ColumnEncoding::Plain(Encoding::PLAIN));
    }

    #[test]
    fn a_sliced_column_is_sampled_by_its_own_values() {
        let all: Int64Array =
            (0..2000).map(|n| if n < 1000 { n } else { 5 }).collect::<Vec<i64>>().into();
        assert_eq!(chosen(all.slice(1000, 1000)), ColumnEncoding::Dictionary);
        assert_eq!(
            chosen(all.slice(0, 1000)),
            ColumnEncoding::Plain(Encoding::DELTA_BINARY_PACKED)
        );
    }
}
