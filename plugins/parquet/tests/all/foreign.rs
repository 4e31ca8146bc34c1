//! Tables that other programs have written, with types that no log has.

use std::fs;
use std::sync::Arc;

use arrow_array::builder::{Int64Builder, ListBuilder, MapBuilder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, TimestampMicrosecondArray};
use parquet::arrow::ArrowWriter;
use sluice_model::{ReadContext, SplitStart};

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
    let mut writer = ArrowWriter::try_new(fs::File::create(&path).unwrap(), rows.schema(), None);
    writer.as_mut().unwrap().write(&rows).unwrap();
    writer.unwrap().close().unwrap();

    let (source, context) = (source(&path), ReadContext::standalone("tables"));
    let splits = source.splits(u64::MAX, &context.query).unwrap();
    let mut reader = source.read(&splits[0], SplitStart::At(0), &context).unwrap();
    let batch = reader.next_batch().unwrap().unwrap();
    let columns = &batch.rows()[0].columns;
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
