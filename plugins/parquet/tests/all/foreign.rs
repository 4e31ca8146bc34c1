//! Tables that other programs have written, with types that no log has.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow_array::builder::{Int64Builder, ListBuilder, MapBuilder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{
    Array, ArrayRef, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use parquet::arrow::ArrowWriter;
use sluice_model::{Batch, ReadContext, SplitStart};

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
