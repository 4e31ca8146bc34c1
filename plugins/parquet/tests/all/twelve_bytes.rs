//! Columns of twelve bytes that the Parquet library converts with losses: INT96 times, which
//! Spark, Hive and Impala write, and intervals. Their writers store no Arrow schema.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{TimestampMicrosecondType, TimestampNanosecondType, UInt32Type};
use arrow_array::{Array, ArrayRef, IntervalDayTimeArray, RecordBatch, TimestampMicrosecondArray};
use arrow_schema::{DataType, IntervalUnit, TimeUnit};
use parquet::arrow::ArrowWriter;
use parquet::data_type::{FixedLenByteArray, FixedLenByteArrayType, Int96, Int96Type};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use sluice_model::{Batch, ReadContext, SplitStart};

use crate::kit::{source, source_of};

/// 1970-01-01 as the day of an INT96 time.
const EPOCH: i64 = 2_440_588;

/// 9999-12-31 as days after 1970-01-01.
const LAST_DAY: i64 = 2_932_896;

/// A time: days after 1970-01-01, and nanoseconds.
fn int96(days: i64, nanos: u64) -> Int96 {
    let mut time = Int96::new();
    let day = u32::try_from(EPOCH + days).unwrap();
    time.set_data(nanos as u32, (nanos >> 32) as u32, day);
    time
}

/// Writes required INT96 columns: for each row group, the values of each column.
fn write_times(path: &Path, schema: &str, groups: &[&[&[Int96]]]) {
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let file = fs::File::create(path).unwrap();
    let mut writer = SerializedFileWriter::new(file, schema, Arc::default()).unwrap();
    for columns in groups {
        let mut group = writer.next_row_group().unwrap();
        for values in *columns {
            let mut column = group.next_column().unwrap().unwrap();
            let levels = vec![1; values.len()];
            // Only columns in lists have levels.
            let starts: Vec<i16> = (0..values.len()).map(|n| (n % 2) as i16).collect();
            let is_list = values.len() > 2;
            let levels = is_list.then_some((&levels[..], &starts[..])).unzip();
            column.typed::<Int96Type>().write_batch(values, levels.0, levels.1).unwrap();
            column.close().unwrap();
        }
        group.close().unwrap();
    }
    writer.close().unwrap();
}

/// The batches of the table, and the reasons of its damage.
fn read(path: &Path) -> (Vec<Batch>, Vec<String>) {
    let (batches, damage, _) = read_with_notes(path);
    (batches, damage)
}

fn read_with_notes(path: &Path) -> (Vec<Batch>, Vec<String>, Vec<String>) {
    let (source, context) = (source(path), ReadContext::standalone("tables"));
    let mut batches = Vec::new();
    for split in source.splits(u64::MAX, &context.query).unwrap() {
        let mut reader = source.read(&split, SplitStart::At(0), &context).unwrap();
        batches.extend(std::iter::from_fn(|| reader.next_batch().unwrap()));
    }
    let damage = context.damage.take().into_iter().map(|damage| damage.reason).collect();
    let notes = context.losses.take_notes().into_iter().map(|(note, _)| note).collect();
    (batches, damage, notes)
}

fn column<'b>(batch: &'b Batch, name: &str) -> &'b ArrayRef {
    batch.rows()[0].columns.column_by_name(name).unwrap()
}

#[test]
fn a_table_that_is_opened_again_keeps_the_unit_of_its_times() {
    let folder = tempfile::tempdir().unwrap();
    let [path, other] = ["a.parquet", "b.parquet"].map(|name| folder.path().join(name));
    let times = [int96(0, 0)];
    write_times(&path, TWO_COLUMNS, &[&[&times, &times], &[&times, &[int96(LAST_DAY, 0)]]]);
    write_times(&other, TWO_COLUMNS, &[&[&times, &times]]);
    let (sources, context) = (source_of(&[&path, &other]), ReadContext::standalone("tables"));
    let splits = sources.splits(u64::MAX, &context.query).unwrap();
    let [first, second, last] = &splits[..] else { panic!("{splits:?}") };
    let unit = |split| {
        let mut reader = sources.read(split, SplitStart::At(0), &context).unwrap();
        column(&reader.next_batch().unwrap().unwrap(), "at").data_type().clone()
    };
    let micros = DataType::Timestamp(TimeUnit::Microsecond, None);
    assert_eq!(unit(first), micros);
    assert_ne!(unit(last), micros);
    // Without its second row group, the table would have another unit if it was chosen anew.
    let mut bytes = fs::read(&path).unwrap();
    bytes[second.start as usize..second.end.unwrap() as usize].fill(0);
    fs::write(&path, bytes).unwrap();
    assert_eq!(unit(first), micros);
}

const TWO_COLUMNS: &str = "message m { required int96 timestamp; required int96 at; }";

#[test]
fn an_int96_time_that_nanoseconds_cannot_hold_is_damage_of_its_row() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let times = [int96(19_723, 1_000_000_001), int96(LAST_DAY, 0)];
    write_times(&path, TWO_COLUMNS, &[&[&times, &[int96(0, 5), int96(-1, 7)]]]);
    let (batches, damage) = read(&path);
    assert_eq!(batches[0].timestamps(), [19_723 * 86_400_000_000_000 + 1_000_000_001]);
    assert_eq!(damage, ["row group 0: row 1: its `timestamp` is out of range"]);
    let at = column(&batches[0], "at").as_primitive::<TimestampNanosecondType>();
    assert_eq!(at.values()[..], [5], "with its nanoseconds");
}

#[test]
fn a_column_of_int96_times_out_of_range_is_in_microseconds_in_all_row_groups() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let times = [int96(0, 1), int96(1, 1)];
    let (usual, late) = ([int96(0, 7_000), int96(1, 0)], [int96(0, 0), int96(LAST_DAY, 3_000)]);
    write_times(&path, TWO_COLUMNS, &[&[&times, &usual], &[&times, &late]]);
    let (batches, damage, notes) = read_with_notes(&path);
    assert_eq!(damage, [""; 0]);
    assert!(matches!(&notes[..], [note] if note.contains("`at`")), "said once: {notes:?}");
    assert_eq!(batches[0].timestamps(), [1, 86_400_000_000_001]);
    let at = batches.iter().flat_map(|batch| {
        column(batch, "at").as_primitive::<TimestampMicrosecondType>().values().to_vec()
    });
    let day = 86_400_000_000;
    assert_eq!(at.collect::<Vec<_>>(), [7, day, 0, LAST_DAY * day + 3]);
}

#[test]
fn int96_times_that_no_unit_holds_are_damage_that_names_the_column() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let times = [int96(0, 1), int96(1, 1)];
    let (fine, late) = ([int96(0, 7), int96(1, 0)], [int96(0, 0), int96(LAST_DAY, 0)]);
    let latest = [int96(i64::from(u32::MAX) - EPOCH, 0), int96(0, 0)];
    for lost in [late, latest] {
        write_times(&path, TWO_COLUMNS, &[&[&times, &fine], &[&times, &lost]]);
        let (batches, damage) = read(&path);
        let at = column(&batches[0], "at").as_primitive::<TimestampNanosecondType>();
        assert_eq!((batches.len(), at.value(0)), (1, 7));
        assert_eq!(damage.len(), 1);
        for part in ["row group 1: column `at`", "1677 to 2262"] {
            assert!(damage[0].contains(part), "{part}: {}", damage[0]);
        }
    }
}

#[test]
fn int96_times_in_lists_in_structs_are_right_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let schema = "message m { required int96 timestamp; required group s {
        required group all (LIST) { repeated group list { required int96 element; } } } }";
    let times = [int96(0, 1), int96(1, 1)];
    let listed = [int96(0, 0), int96(LAST_DAY, 1_000), int96(-1, 0), int96(2, 0)];
    write_times(&path, schema, &[&[&times, &listed]]);
    let (batches, damage) = read(&path);
    assert_eq!(damage, [""; 0]);
    let lists = column(&batches[0], "s").as_struct().column(0).as_list::<i32>();
    let found = lists.values().as_primitive::<TimestampMicrosecondType>();
    let day = 86_400_000_000;
    assert_eq!(found.values()[..], [0, LAST_DAY * day + 1, -day, 2 * day]);
    let DataType::List(item) = lists.data_type() else { panic!("{}", lists.data_type()) };
    assert_eq!(*item.data_type(), DataType::Timestamp(TimeUnit::Microsecond, None));
}

#[test]
fn intervals_keep_their_months_days_and_milliseconds() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let schema = "message m { required int64 timestamp (TIMESTAMP(MICROS,true));
        optional fixed_len_byte_array(12) v (INTERVAL); }";
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let file = fs::File::create(&path).unwrap();
    let mut writer = SerializedFileWriter::new(file, schema, Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut times = group.next_column().unwrap().unwrap();
    times.typed::<parquet::data_type::Int64Type>().write_batch(&[1, 2], None, None).unwrap();
    times.close().unwrap();
    let bytes: Vec<u8> = [14, 3, u32::MAX].into_iter().flat_map(u32::to_le_bytes).collect();
    let mut intervals = group.next_column().unwrap().unwrap();
    let values = [FixedLenByteArray::from(bytes)];
    intervals.typed::<FixedLenByteArrayType>().write_batch(&values, Some(&[1, 0]), None).unwrap();
    intervals.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();

    let (batches, damage) = read(&path);
    assert_eq!(damage, [""; 0]);
    let intervals = column(&batches[0], "v").as_struct();
    assert_eq!(intervals.column_names(), ["months", "days", "milliseconds"]);
    assert!(intervals.is_valid(0) && intervals.is_null(1));
    let parts = intervals.columns().iter().map(|part| part.as_primitive::<UInt32Type>().value(0));
    assert_eq!(parts.collect::<Vec<_>>(), [14, 3, u32::MAX]);
}

#[test]
fn intervals_of_an_arrow_schema_keep_their_type() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let times: ArrayRef = Arc::new(TimestampMicrosecondArray::from(vec![1]));
    let value = arrow_array::types::IntervalDayTimeType::make_value(-3, 5);
    let intervals: ArrayRef = Arc::new(IntervalDayTimeArray::from(vec![value]));
    let rows = RecordBatch::try_from_iter([("timestamp", times), ("v", intervals)]).unwrap();
    let file = fs::File::create(&path).unwrap();
    let mut writer = ArrowWriter::try_new(file, rows.schema(), None).unwrap();
    writer.write(&rows).unwrap();
    writer.close().unwrap();
    let (batches, _) = read(&path);
    let back = column(&batches[0], "v");
    assert_eq!(*back.data_type(), DataType::Interval(IntervalUnit::DayTime));
    assert_eq!(back, rows.column(1));
}
