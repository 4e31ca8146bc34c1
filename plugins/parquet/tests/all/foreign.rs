//! Tables that other programs have written, with types that no log has.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow_array::builder::{Int64Builder, ListBuilder, MapBuilder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{
    Array, ArrayRef, BooleanArray, Decimal128Array, DictionaryArray, FixedSizeBinaryArray,
    Float64Array, Int32Array, Int64Array, ListArray, RecordBatch, StringArray, StructArray,
    TimestampMicrosecondArray, UInt64Array,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field};
use arrow_select::take::take;
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::arrow::{ArrowWriter, add_encoded_arrow_schema_to_metadata};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use sluice_model::cast::cast;
use sluice_model::{Batch, Query, ReadContext, SplitStart};

use crate::kit::source;

/// Two maps in a list, an empty list, and no list.
fn lists_of_maps() -> ArrayRef {
    let maps = MapBuilder::new(None, StringBuilder::new(), Int64Builder::new());
    let mut lists = ListBuilder::new(maps);
    for entries in [&[("a", 1), ("b", 2)][..], &[("c", 3)]] {
        for (key, value) in entries {
            lists.values().keys().append_value(key);
            lists.values().values().append_value(*value);
        }
        lists.values().append(true).unwrap();
    }
    lists.append(true);
    lists.append(true);
    lists.append(false);
    Arc::new(lists.finish())
}

fn write(path: &Path, rows: &RecordBatch) {
    let file = fs::File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, rows.schema(), None).unwrap();
    writer.write(rows).unwrap();
    writer.close().unwrap();
}

/// The batches of the table's row group, and the reasons of its damage.
fn read(path: &Path) -> (Vec<Batch>, Vec<String>) {
    let (source, context) = (source(path), ReadContext::standalone("tables"));
    let splits = source.splits(u64::MAX, &context.query).unwrap();
    let mut reader = source.read(&splits[0], SplitStart::At(0), &context).unwrap();
    let batches = std::iter::from_fn(|| reader.next_batch().unwrap()).collect();
    (batches, context.damage.take().into_iter().map(|damage| damage.reason).collect())
}

#[test]
fn maps_are_lists_of_their_entries() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("maps.parquet");
    let times: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![1, 2, 3]));
    let rows = RecordBatch::try_from_iter_with_nullable([
        ("timestamp", times, false),
        ("x", Arc::new(Int64Array::from(vec![7, 8, 9])) as ArrayRef, false),
        ("tags", lists_of_maps(), true),
    ])
    .unwrap();
    write(&path, &rows);
    let (batches, damage) = read(&path);
    assert_eq!(damage, [""; 0]);
    let columns = &batches[0].rows()[0].columns;
    let lists = columns.column_by_name("tags").unwrap().as_list::<i32>();
    assert_eq!((lists.value_length(0), lists.value_length(1), lists.is_null(2)), (2, 0, true));
    let entries_of = |map: usize| {
        let entries = lists.values().as_list::<i32>().value(map);
        let (keys, values) = (entries.as_struct().column(0), entries.as_struct().column(1));
        let keys: Vec<_> = keys.as_string::<i32>().iter().flatten().map(str::to_owned).collect();
        (keys, values.as_primitive::<Int64Type>().values().to_vec())
    };
    assert_eq!(entries_of(0), (vec!["a".to_owned(), "b".to_owned()], vec![1, 2]));
    assert_eq!(entries_of(1), (vec!["c".to_owned()], vec![3]));
}

/// `rows` rows with `text` as a column, in lists, and in maps.
fn repeated(rows: usize, text: &str) -> RecordBatch {
    let mut lists = ListBuilder::new(StringBuilder::new());
    let mut maps = MapBuilder::new(None, StringBuilder::new(), StringBuilder::new());
    for _ in 0..rows {
        lists.append_value([Some(text)]);
        maps.keys().append_value("key");
        maps.values().append_value(text);
        maps.append(true).unwrap();
    }
    let times: Vec<i64> = (0..rows as i64).collect();
    RecordBatch::try_from_iter_with_nullable([
        ("timestamp", Arc::new(TimestampMicrosecondArray::from(times)) as ArrayRef, false),
        ("text", Arc::new(StringArray::from(vec![text; rows])) as ArrayRef, false),
        ("lists", Arc::new(lists.finish()) as ArrayRef, true),
        ("maps", Arc::new(maps.finish()) as ArrayRef, false),
    ])
    .unwrap()
}

#[test]
fn a_text_that_many_rows_share_is_not_in_memory_for_all_of_them() {
    let (folder, text) = (tempfile::tempdir().unwrap(), "x".repeat(50_000));
    let path = folder.path().join("shared.parquet");
    write(&path, &repeated(2_000, &text));
    assert!(fs::metadata(&path).unwrap().len() < 1_000_000, "each text is stored once");

    let (batches, damage) = read(&path);
    assert_eq!(damage, [""; 0]);
    assert_eq!(batches.iter().map(Batch::len).sum::<usize>(), 2_000);
    for batch in batches {
        let rows = &batch.rows()[0];
        assert!(rows.memory() < 64 << 20, "{} bytes at once", rows.memory());
        let columns = &rows.columns;
        let texts = columns.column_by_name("text").unwrap().as_string::<i32>();
        assert!(texts.iter().all(|found| found == Some(&text)));
        let lists = columns.column_by_name("lists").unwrap().as_list::<i32>();
        assert!(lists.values().as_string::<i32>().iter().all(|found| found == Some(&text)));
        let entries = columns.column_by_name("maps").unwrap().as_list::<i32>().values();
        let values = entries.as_struct().column(1).as_string::<i32>();
        assert!(values.iter().all(|found| found == Some(&text)));
    }
}

/// The time, the number and the field `x` of each event.
fn events(batches: &[Batch]) -> Vec<(i64, i64, i64)> {
    let each = batches.iter().flat_map(|batch| {
        let numbers = batch.rows()[0].columns.column_by_name("x").unwrap();
        let numbers = numbers.as_primitive::<Int64Type>().values().to_vec();
        let times = batch.timestamps().iter().zip(batch.sequences());
        times.zip(numbers).map(|((time, row), x)| (*time, *row, x)).collect::<Vec<_>>()
    });
    each.collect()
}

#[test]
fn a_row_that_is_no_event_costs_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gaps.parquet");
    let times = [Some(1), None, Some(i64::MAX), Some(4), Some(5)];
    let channels = [Some("a"), Some("a"), Some("b"), None, Some("b")];
    let table = |rows: std::ops::Range<usize>| {
        let times = TimestampMicrosecondArray::from(times[rows.clone()].to_vec());
        let channels = StringArray::from(channels[rows.clone()].to_vec());
        let numbers = Int64Array::from_iter_values(rows.map(|row| row as i64 * 10));
        RecordBatch::try_from_iter_with_nullable([
            ("timestamp", Arc::new(times) as ArrayRef, true),
            ("channel", Arc::new(channels) as ArrayRef, true),
            ("x", Arc::new(numbers) as ArrayRef, false),
        ])
        .unwrap()
    };

    write(&path, &table(0..5));
    let (batches, damage) = read(&path);
    assert_eq!(events(&batches), [(1000, 0, 0), (5000, 4, 40)]);
    assert_eq!(damage, ["row group 0: 3 rows are no events; row 1: its `timestamp` is missing"]);

    write(&path, &table(2..4));
    let (batches, damage) = read(&path);
    assert!(batches.is_empty());
    assert_eq!(damage.len(), 1);
    write(&path, &table(2..3));
    let reason = "row group 0: row 0: its time 9223372036854775807 is out of range";
    assert_eq!(read(&path).1, [reason]);
    let wide = RecordBatch::try_from_iter([
        ("timestamp", Arc::new(TimestampMicrosecondArray::from(vec![1, 2])) as ArrayRef),
        ("sequence", Arc::new(UInt64Array::from(vec![7, u64::MAX])) as ArrayRef),
        ("x", Arc::new(Int64Array::from(vec![5, 6])) as ArrayRef),
    ]);
    write(&path, &wide.unwrap());
    let (batches, damage) = read(&path);
    assert_eq!(events(&batches), [(1000, 7, 5)]);
    assert_eq!(damage, ["row group 0: row 1: its `sequence` is out of range"]);
    write(&path, &table(3..4));
    assert_eq!(read(&path).1, ["row group 0: row 0: its `channel` is missing"]);
}

#[test]
fn numbers_and_times_with_fractions_are_damage_of_their_rows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fractions.parquet");
    let numbers = Arc::new(Float64Array::from(vec![7.0, 8.5, f64::NAN, -9.0])) as ArrayRef;
    let texts = Arc::new(StringArray::from(vec!["7", "8.5", "x", "-9"])) as ArrayRef;
    let times = Arc::new(TimestampMicrosecondArray::from(vec![1, 2, 3, 4])) as ArrayRef;
    let xs = Arc::new(Int64Array::from(vec![5, 6, 7, 8])) as ArrayRef;
    for (column, reason) in
        [(&numbers, "its `sequence` has a fraction"), (&texts, "its `sequence` is not a number")]
    {
        let columns = [("timestamp", &times), ("sequence", column), ("x", &xs)];
        let columns = columns.map(|(name, column)| (name, Arc::clone(column)));
        write(&path, &RecordBatch::try_from_iter(columns).unwrap());
        let (batches, damage) = read(&path);
        assert_eq!(events(&batches), [(1000, 7, 5), (4000, -9, 8)]);
        let expected = format!("row group 0: 2 rows are no events; row 1: {reason}");
        assert_eq!(damage, [expected]);
    }
    let nanos = Arc::new(Float64Array::from(vec![1_007.0, 2_008.5, f64::NAN, 3_991.0])) as ArrayRef;
    let columns = [("timestamp", times), ("timestamp_ns", nanos), ("x", xs)];
    write(&path, &RecordBatch::try_from_iter(columns).unwrap());
    assert_eq!(events(&read(&path).0), [(1_007, 0, 5), (3_991, 3, 8)]);
}

#[test]
fn columns_and_members_of_one_name_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("twice.parquet");
    let times: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![1]));
    let numbers = |n| Arc::new(Int64Array::from(vec![n])) as ArrayRef;
    let member = || Arc::new(Field::new("a", DataType::Int64, false));
    let members = StructArray::from(vec![(member(), numbers(1)), (member(), numbers(4))]);
    let item = Arc::new(Field::new("item", members.data_type().clone(), false));
    let offsets = OffsetBuffer::from_lengths([1]);
    let lists: ArrayRef = Arc::new(ListArray::new(item, offsets, Arc::new(members), None));
    let tables = [
        (vec![("v", numbers(1)), ("v", numbers(4))], "two columns are called `v`"),
        (vec![("v", lists)], "two members in the column `v` are called `a`"),
    ];
    for (columns, what) in tables {
        let columns = [("timestamp", Arc::clone(&times))].into_iter().chain(columns);
        write(&path, &RecordBatch::try_from_iter(columns).unwrap());
        let (source, context) = (source(&path), ReadContext::standalone("tables"));
        let error = source.splits(u64::MAX, &context.query).unwrap_err().to_string();
        for part in [what, "twice.parquet"] {
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}

#[test]
fn dictionaries_of_any_type_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dictionaries.parquet");
    let bytes = FixedSizeBinaryArray::try_from_iter([b"ab", b"cd"].iter()).unwrap();
    let decimals = Decimal128Array::from(vec![15, 25]).with_precision_and_scale(5, 1).unwrap();
    let values: [ArrayRef; 5] = [
        Arc::new(BooleanArray::from(vec![true, false])),
        Arc::new(bytes),
        Arc::new(decimals),
        Arc::new(Int64Array::from(vec![1, 2])),
        Arc::new(StringArray::from(vec!["a", "b"])),
    ];
    for values in values {
        let times: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![1, 2, 3]));
        let keys = Int32Array::from(vec![0, 1, 0]);
        let dictionary: ArrayRef = Arc::new(DictionaryArray::new(keys, Arc::clone(&values)));
        let rows = RecordBatch::try_from_iter([("timestamp", times), ("x", dictionary)]).unwrap();
        // Its own writer takes no dictionary of booleans; others write such a schema.
        let plain = cast(rows.column(1), values.data_type()).unwrap();
        let schema = rows.schema();
        let rows =
            RecordBatch::try_from_iter([("timestamp", rows.column(0).clone()), ("x", plain)]);
        let mut properties = WriterProperties::default();
        add_encoded_arrow_schema_to_metadata(&schema, &mut properties);
        let options = ArrowWriterOptions::new().with_properties(properties);
        let options = options.with_skip_arrow_metadata(true);
        let (file, rows) = (fs::File::create(&path).unwrap(), rows.unwrap());
        let mut writer = ArrowWriter::try_new_with_options(file, rows.schema(), options).unwrap();
        writer.write(&rows).unwrap();
        writer.close().unwrap();

        let (batches, damage) = read(&path);
        assert_eq!(damage, [""; 0], "{}", values.data_type());
        let column = batches[0].rows()[0].columns.column_by_name("x").unwrap();
        let found = cast(column, values.data_type()).unwrap();
        let picks = Int32Array::from(vec![0, 1, 0]);
        assert_eq!(found.to_data(), take(&values, &picks, None).unwrap().to_data());
    }
}

/// A table with the columns `timestamp` in microseconds and `timestamp_ns`, with or without
/// statistics.
fn write_nanos(path: &Path, micros: &[i64], nanos: ArrayRef, statistics: EnabledStatistics) {
    let rows = RecordBatch::try_from_iter([
        ("timestamp", Arc::new(TimestampMicrosecondArray::from(micros.to_vec())) as ArrayRef),
        ("timestamp_ns", nanos),
        ("x", Arc::new(Int64Array::from_iter_values(0..micros.len() as i64)) as ArrayRef),
    ])
    .unwrap();
    let properties = WriterProperties::builder().set_statistics_enabled(statistics).build();
    let file = fs::File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, rows.schema(), Some(properties)).unwrap();
    writer.write(&rows).unwrap();
    writer.close().unwrap();
}

#[test]
fn nanoseconds_of_other_times_are_damage_of_their_rows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("edited.parquet");
    // Times that are rounded are the same, those of the middle row are not.
    let nanos = || Arc::new(Int64Array::from(vec![1_000_001_999, 1_005_000_000, 1_010_000_000]));
    for statistics in [EnabledStatistics::None, EnabledStatistics::Chunk] {
        write_nanos(&path, &[1_000_001, 1_004_990, 1_010_001], nanos(), statistics);
        let (batches, damage) = read(&path);
        assert_eq!(events(&batches), [(1_000_001_999, 0, 0), (1_010_000_000, 2, 2)]);
        let [damage] = &damage[..] else { panic!("{damage:?}") };
        assert!(damage.contains("row 1: its `timestamp` and its `timestamp_ns`"), "{damage}");
    }
}

#[test]
fn nanoseconds_that_no_statistics_show_as_times_are_a_field() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("own.parquet");
    let numbers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "c"]));
    for own in [&numbers, &texts] {
        write_nanos(&path, &[5_000_000, 6, 7], Arc::clone(own), EnabledStatistics::Chunk);
        let (batches, damage) = read(&path);
        assert_eq!(damage, [""; 0]);
        assert_eq!(
            events(&batches),
            [(5_000_000_000, 0, 0), (6_000, 1, 1), (7_000, 2, 2)],
            "{own:?}"
        );
        let field = batches[0].rows()[0].columns.column_by_name("timestamp_ns").unwrap();
        assert_eq!(&cast(field, own.data_type()).unwrap(), own);
    }
    // Without statistics, the rows show it.
    write_nanos(&path, &[5_000_000, 6, 7], numbers, EnabledStatistics::None);
    let (batches, damage) = read(&path);
    assert!(batches.is_empty() && damage[0].starts_with("row group 0: 3 rows"), "{damage:?}");
}

#[test]
fn windows_find_times_that_the_unit_rounds() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rounded.parquet");
    let nanos = Arc::new(Int64Array::from(vec![1_999_600, 2_000_400]));
    write_nanos(&path, &[2_000, 2_000], nanos, EnabledStatistics::Chunk);
    for (start, end) in [(0, 1_999_700), (2_000_300, 3_000_000)] {
        let query = Query { start: Some(start), end: Some(end), ..Query::default() };
        assert_eq!(source(&path).splits(1, &query).unwrap().len(), 1, "{start}");
    }
}
