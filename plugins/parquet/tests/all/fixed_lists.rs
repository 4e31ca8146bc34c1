//! Lists of fixed length, which Parquet does not have.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, Float64Array, ListArray, RecordBatch, StringArray,
    StructArray, TimestampMicrosecondArray,
};
use arrow_buffer::{NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field, Fields, Schema};
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::arrow::{ArrowWriter, add_encoded_arrow_schema_to_metadata};
use parquet::file::properties::WriterProperties;
use sluice_model::{Batch, ReadContext, SplitStart};

use crate::kit::{read, source};
use crate::types::round_trip;

/// Lists of `len` elements each.
fn fixed(inner: ArrayRef, len: usize) -> ArrayRef {
    let count = inner.len() / len;
    fixed_rows(inner, len as i32, count)
}

fn fixed_rows(inner: ArrayRef, len: i32, count: usize) -> ArrayRef {
    let item = Arc::new(Field::new("item", inner.data_type().clone(), inner.is_nullable()));
    let lists = FixedSizeListArray::try_new_with_length(item, len, inner, None, count);
    Arc::new(lists.unwrap())
}

/// Lists of two elements each.
fn listed(inner: ArrayRef) -> ArrayRef {
    let item = Arc::new(Field::new("item", inner.data_type().clone(), false));
    let offsets = OffsetBuffer::from_lengths(vec![2; inner.len() / 2]);
    Arc::new(ListArray::new(item, offsets, inner, None))
}

fn in_struct(inner: ArrayRef, nulls: Option<NullBuffer>) -> ArrayRef {
    let fields: Fields = vec![Field::new("v", inner.data_type().clone(), false)].into();
    Arc::new(StructArray::new(fields, vec![inner], nulls))
}

fn numbers(count: usize) -> ArrayRef {
    Arc::new(Float64Array::from_iter_values((0..count).map(|n| n as f64)))
}

fn texts(count: usize) -> ArrayRef {
    Arc::new(StringArray::from_iter_values((0..count).map(|n| format!("text {n}"))))
}

/// The types of lists, without their items' names.
fn shape(data_type: &DataType) -> String {
    match data_type {
        DataType::List(item) => format!("{}[]", shape(item.data_type())),
        DataType::FixedSizeList(item, len) => format!("{}[{len}]", shape(item.data_type())),
        DataType::Struct(fields) => {
            let members = fields.iter().map(|field| shape(field.data_type()));
            format!("{{{}}}", members.collect::<Vec<_>>().join(", "))
        }
        other => other.to_string(),
    }
}

#[test]
fn they_keep_their_length_wherever_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let columns = [
        ("plain", fixed(numbers(6), 3), "Float64[3]"),
        ("nested", fixed(fixed(numbers(12), 2), 3), "Float64[2][3]"),
        ("counted", listed(fixed(numbers(12), 3)), "Float64[3][]"),
        (
            "in",
            in_struct(fixed(in_struct(fixed(numbers(12), 3), None), 2), None),
            "{{Float64[3]}[2]}",
        ),
        ("each", fixed(listed(numbers(8)), 2), "Float64[][2]"),
    ];
    let written: Vec<(&str, ArrayRef)> =
        columns.iter().map(|(name, column, _)| (*name, Arc::clone(column))).collect();
    let back = round_trip(&path, &written).unwrap();
    for ((name, column, expected), back) in columns.iter().zip(back.rows()[0].columns.columns()) {
        assert_eq!(shape(back.data_type()), *expected, "{name}");
        assert_eq!(shape(back.data_type()), shape(column.data_type()), "{name}");
        assert_eq!(format!("{back:?}"), format!("{column:?}"), "{name}");
    }
}

#[test]
fn they_do_so_where_they_are_missing_or_have_no_elements() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let nulls = || Some(NullBuffer::from(vec![true, false, true]));
    let optional = |inner: ArrayRef| in_struct(fixed(in_struct(inner, None), 2), nulls());
    let item = Arc::new(Field::new("item", DataType::Float64, true));
    let missing = FixedSizeListArray::new(Arc::clone(&item), 2, numbers(6), nulls());
    let long = FixedSizeListArray::new(item, 3000, numbers(9000), nulls());
    let columns: [(&str, ArrayRef, &str); 4] = [
        ("none", fixed_rows(numbers(0), 0, 3), "Float64[0]"),
        ("missing", Arc::new(missing), "Float64[2]"),
        ("optional", optional(fixed(numbers(24), 4)), "{{Float64[4]}[2]}"),
        // Each that is missing would take as much memory as one that is not.
        ("long", Arc::new(long), "Float64[]"),
    ];
    let written: Vec<(&str, ArrayRef)> =
        columns.iter().map(|(name, column, _)| (*name, Arc::clone(column))).collect();
    let back = round_trip(&path, &written).unwrap();
    let back = back.rows()[0].columns.columns();
    for ((name, column, expected), back) in columns.iter().zip(back) {
        assert_eq!(shape(back.data_type()), *expected, "{name}");
        assert_eq!(back.nulls(), column.nulls(), "{name}");
        for row in (0..3).filter(|row| back.is_valid(*row) && *name != "long") {
            assert_eq!(back.slice(row, 1).to_data(), column.slice(row, 1).to_data(), "{name}");
        }
    }
    let long = back[3].as_list::<i32>();
    assert_eq!([0, 1, 2].map(|row| long.value_length(row)), [3000, 0, 3000]);
}

#[test]
fn a_list_of_another_length_is_damage() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    round_trip(&path, &[("a", fixed(numbers(6), 2))]).unwrap();
    // As a footer without a checksum may claim.
    let mut bytes = std::fs::read(&path).unwrap();
    for (from, to) in [("SluiceCk", "--------"), ("{\"length\":2}", "{\"length\":3}")] {
        let at = bytes.windows(from.len()).rposition(|found| found == from.as_bytes()).unwrap();
        bytes[at..at + from.len()].copy_from_slice(to.as_bytes());
    }
    std::fs::write(&path, bytes).unwrap();
    let contents = read(&path).unwrap();
    assert!(contents.events.is_empty());
    let damage = &contents.damage[0].2;
    assert!(damage.contains("column `a`: ") && damage.contains("2 elements, not 3"), "{damage}");
}

/// Writes these columns as other programs do, and reads them back.
fn round_trip_of_others(path: &Path, columns: &[(&str, ArrayRef)]) -> Batch {
    let times = TimestampMicrosecondArray::from_iter_values(0..columns[0].1.len() as i64);
    let times: (&str, ArrayRef, bool) = ("timestamp", Arc::new(times), false);
    let columns = columns.iter().map(|(name, column)| (*name, Arc::clone(column), true));
    let rows = RecordBatch::try_from_iter_with_nullable([times].into_iter().chain(columns));
    let rows = rows.unwrap();
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), rows.schema(), None);
    writer.as_mut().unwrap().write(&rows).unwrap();
    writer.unwrap().close().unwrap();
    let (source, context) = (source(path), ReadContext::standalone("tables"));
    let splits = source.splits(u64::MAX, &context.query).unwrap();
    let mut reader = source.read(&splits[0], SplitStart::At(0), &context).unwrap();
    let batch = reader.next_batch().unwrap();
    assert!(context.damage.take().is_empty());
    batch.unwrap()
}

#[test]
fn those_of_other_programs_may_be_in_structs_that_are_missing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let nulls = || Some(NullBuffer::from(vec![true, false, true]));
    let optional = |inner: ArrayRef| in_struct(inner, nulls());
    let there = || Some(NullBuffer::from_iter([true, true, false, true, false, false]));
    let optional_pairs = |inner: ArrayRef| fixed(in_struct(inner, there()), 2);
    let columns = [
        ("numbers", optional(fixed(numbers(6), 2))),
        ("texts", optional(fixed(texts(6), 2))),
        ("nested", optional(fixed(fixed(texts(12), 2), 2))),
        ("deeper", optional(in_struct(fixed(texts(6), 2), None))),
        ("counted", optional(fixed(listed(fixed(texts(24), 2)), 2))),
        ("pairs", optional_pairs(in_struct(texts(6), None))),
        ("missing pairs", {
            let item = in_struct(in_struct(texts(6), None), there());
            let item_field = Arc::new(Field::new("item", item.data_type().clone(), true));
            Arc::new(FixedSizeListArray::new(item_field, 2, item, nulls()))
        }),
        ("pairs of pairs", optional_pairs(in_struct(fixed(numbers(12), 2), None))),
    ];
    let batch = round_trip_of_others(&path, &columns);
    let written = round_trip(&path, &columns).unwrap();
    for batch in
        [Batch::interleave(std::slice::from_ref(&batch), &[(0, 0), (0, 1), (0, 2)]), batch, written]
    {
        let back = batch.rows()[0].columns.columns();
        for ((name, column), back) in columns.iter().zip(back) {
            assert_eq!(back.to_data(), column.to_data(), "{name}");
        }
    }
}

#[test]
fn missing_ones_take_no_more_memory_than_a_length_that_is_meant() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let item = || Arc::new(Field::new("item", DataType::Float64, true));
    let missing: ArrayRef = Arc::new(ListArray::new_null(item(), 5));
    let elements = Arc::new(Field::new("item", missing.data_type().clone(), true));
    let many: ArrayRef = Arc::new(ListArray::new_null(item(), 50_000));
    let offsets = OffsetBuffer::from_lengths([50_000, 0, 0, 0, 0]);
    let listed: ArrayRef = Arc::new(ListArray::new(elements, offsets, many, None));
    let fixed = |len| DataType::FixedSizeList(item(), len);
    let list_of = |len| DataType::new_list(fixed(len), true);
    let plain = || missing.data_type().clone();
    let cases = [
        (&missing, fixed(1000), Ok(fixed(1000))),
        (&missing, fixed(1 << 27), Ok(plain())),
        (&missing, fixed(i32::MAX), Ok(plain())),
        (&listed, list_of(10), Ok(list_of(10))),
        (&listed, list_of(60_000), Err("a row of ")),
        (&listed, list_of(1 << 27), Ok(listed.data_type().clone())),
    ];
    for (column, claimed, expected) in cases {
        let times = TimestampMicrosecondArray::from_iter_values(0..5);
        let columns: [(&str, ArrayRef, bool); 2] =
            [("timestamp", Arc::new(times), false), ("a", Arc::clone(column), true)];
        let rows = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
        let mut fields = rows.schema().fields().to_vec();
        fields[1] = Arc::new(Field::new("a", claimed.clone(), true));
        let mut properties = WriterProperties::default();
        add_encoded_arrow_schema_to_metadata(&Schema::new(fields), &mut properties);
        let options = ArrowWriterOptions::new().with_properties(properties);
        let options = options.with_skip_arrow_metadata(true);
        let file = File::create(&path).unwrap();
        let mut writer = ArrowWriter::try_new_with_options(file, rows.schema(), options).unwrap();
        writer.write(&rows).unwrap();
        writer.close().unwrap();

        let (source, context) = (source(&path), ReadContext::standalone("tables"));
        let splits = source.splits(u64::MAX, &context.query).unwrap();
        let mut reader = source.read(&splits[0], SplitStart::At(0), &context).unwrap();
        let batches: Vec<Batch> = std::iter::from_fn(|| reader.next_batch().unwrap()).collect();
        let damage: Vec<_> = context.damage.take().into_iter().map(|one| one.reason).collect();
        match expected {
            Ok(expected) => {
                assert_eq!(damage, [""; 0], "{claimed}");
                assert_eq!(batches.iter().map(Batch::len).sum::<usize>(), 5, "{claimed}");
                let column = batches[0].rows()[0].columns.column(0);
                assert_eq!(*column.data_type(), expected, "{claimed}");
            }
            Err(expected) => assert!(damage[0].contains(expected), "{claimed}: {damage:?}"),
        }
    }
}
