//! What unnesting keeps: every element in order, and everything else of its event.

use std::sync::Arc;

use sluice_model::{BatchBuilder, ChannelId, MessageType, Payloads, TypeKey};

use super::pieces::PIECE_ROWS;
use super::*;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int32Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, Float64Array, Int32Array, Int64Array, LargeListArray,
    ListArray, RecordBatch, StringArray, StructArray,
};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Schema};
use proptest::collection::vec;
use proptest::prelude::*;

fn path(text: &str) -> FieldPath {
    FieldPath::parse(text).unwrap()
}

/// A batch of `count` events with payloads.
fn events(count: u32) -> Batch {
    let mut builder = BatchBuilder::default();
    for n in 0..i64::from(count) {
        builder.push_copy(n * 10, n, ChannelId(n as u32 % 2), b"a payload that is long enough");
    }
    builder.finish()
}

fn rows(events: &[u32], columns: Vec<(&str, ArrayRef)>) -> Rows {
    let columns: Vec<_> = columns.into_iter().map(|(n, a)| (n, a, true)).collect();
    let columns = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let message = MessageType::named("t", TypeKey(columns.num_columns() as u64)).into();
    Rows { message, payloads: Payloads::Kept, events: events.to_vec(), columns }
}

/// Lists of structs with `x` and `time`, with these lengths and nulls.
fn points(lengths: &[usize], nulls: Option<NullBuffer>) -> ArrayRef {
    let total: usize = lengths.iter().sum();
    let x: ArrayRef = Arc::new(Float64Array::from_iter_values((0..total).map(|n| n as f64)));
    let time: ArrayRef = Arc::new(Int64Array::from_iter_values((0..total as i64).map(|n| -n)));
    let inner = StructArray::try_from(vec![("x", x), ("time", time)]).unwrap();
    let element = Arc::new(Field::new("item", inner.data_type().clone(), false));
    let offsets = OffsetBuffer::from_lengths(lengths.iter().copied());
    Arc::new(ListArray::new(element, offsets, Arc::new(inner), nulls))
}

fn names(rows: &Rows) -> Vec<String> {
    rows.columns.schema_ref().fields().iter().map(|field| field.name().clone()).collect()
}

fn longs(rows: &Rows, name: &str) -> Vec<i64> {
    let column = rows.columns.column_by_name(name).unwrap();
    column.as_primitive::<Int64Type>().values().to_vec()
}

#[test]
fn the_columns_of_a_type_are_those_of_its_unnested_rows() {
    let utimes: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let scan = rows(&[0], vec![("time", utimes), ("points", points(&[2], None))]);
    let plain = rows(&[0], vec![("v", Arc::new(Int32Array::from(vec![5])))]);
    let schemas = [&scan, &plain].map(|rows| rows.columns.schema());
    let columns = DeclaredColumns::from_schemas(schemas.to_vec());
    let unnested = unnested_columns(&columns, &path("points"));
    assert_eq!(unnested.paths(), ["points_time", "time", "v", "x"]);
    assert!(unnested_columns(&columns, &path("elsewhere")).has(&path("points")));
}

#[test]
fn each_element_is_a_row_with_all_that_its_event_has() {
    let utimes: ArrayRef = Arc::new(Int64Array::from(vec![100, 200, 300]));
    let kinds: ArrayRef = Arc::new(Int64Array::from(vec![7, 8, 9]));
    let columns = vec![("utime", utimes), ("points", points(&[2, 0, 1], None)), ("time", kinds)];
    let plain = rows(&[2], vec![("v", Arc::new(Int32Array::from(vec![5])))]);
    let batch = events(5).with_channels(vec![3; 5]);
    let batch = batch.with_rows(vec![rows(&[0, 1, 3], columns), plain]);
    let UnnestedBatch { batch, counts, .. } = unnest(&batch, &path("points")).unwrap();
    assert_eq!(counts, [2, 0, 1, 1, 1]);
    assert_eq!(batch.sequences(), [0, 0, 2, 3, 4]);
    assert_eq!(batch.timestamps(), [0, 0, 20, 30, 40]);
    assert_eq!((batch.channels(), batch.origins()), (&[3; 5][..], &[0, 0, 0, 1, 0][..]));
    let lens: Vec<usize> = (0..5).map(|row| batch.payload_len(row)).collect();
    assert_eq!(lens, [0, 0, 29, 0, 29], "those of expanded events are gone");
    let [ours, plain] = batch.rows() else { panic!("{:?}", batch.rows()) };
    assert_eq!((&ours.events[..], &plain.events[..]), (&[0, 1, 3][..], &[2][..]));
    assert_eq!((ours.payloads, plain.payloads), (Payloads::Gone, Payloads::Kept));
    assert_eq!(names(ours), ["utime", "x", "points_time", "time"]);
    assert_eq!(longs(ours, "utime"), [100, 100, 300]);
    assert_eq!(longs(ours, "points_time"), [0, -1, -2]);
    assert_eq!(longs(ours, "time"), [7, 7, 9]);
    assert_eq!((&*ours.message.name, ours.message.key == TypeKey(3)), ("t", false));
}

#[test]
fn elements_are_not_copied_where_they_lie_one_behind_another() {
    let list = points(&[1, 2, 3], None).slice(1, 2);
    let before = list.as_list::<i32>().values().as_struct().column(0).to_data();
    let batch = events(2).with_rows(vec![rows(&[0, 1], vec![("points", list)])]);
    let apart = unnest(&batch, &path("points")).unwrap().batch;
    let x = apart.rows()[0].columns.column(0).to_data();
    assert_eq!(x.buffers()[0].data_ptr(), before.buffers()[0].data_ptr());
    let x = apart.rows()[0].columns.column(0).as_primitive::<Float64Type>();
    assert_eq!(x.values()[..], [1.0, 2.0, 3.0, 4.0, 5.0]);
}

#[test]
fn a_list_that_is_null_has_no_elements_whatever_lies_below() {
    let nulls = NullBuffer::from(vec![true, false, true]);
    let batch = rows(&[0, 1, 2], vec![("points", points(&[1, 2, 1], Some(nulls)))]);
    let batch = events(3).with_rows(vec![batch]);
    assert_eq!(row_counts(&batch, &path("points")).unwrap().unwrap(), [1, 0, 1]);
    let apart = unnest(&batch, &path("points")).unwrap().batch;
    assert_eq!(longs(&apart.rows()[0], "time"), [0, -3]);
}

#[test]
fn members_of_an_element_that_is_null_are_null() {
    let x: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3]));
    let fields = vec![Field::new("x", DataType::Int32, false)].into();
    let valid = NullBuffer::from(vec![true, false, true]);
    let inner = StructArray::new(fields, vec![x], Some(valid));
    let element = Arc::new(Field::new("item", inner.data_type().clone(), true));
    let list = ListArray::new(element, OffsetBuffer::from_lengths([3]), Arc::new(inner), None);
    let batch = events(1).with_rows(vec![rows(&[0], vec![("l", Arc::new(list))])]);
    let apart = unnest(&batch, &path("l")).unwrap().batch;
    let x = apart.rows()[0].columns.column(0).as_primitive::<Int32Type>();
    assert_eq!(x.iter().collect::<Vec<_>>(), [Some(1), None, Some(3)]);
}

#[test]
fn plain_values_are_a_column_and_lists_in_structs_leave_the_rest() {
    let a: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let ranges = LargeListArray::from_iter_primitive::<Float64Type, _, _>([
        Some(vec![Some(0.5), None]),
        Some(vec![Some(1.5)]),
    ]);
    let scan = StructArray::try_from(vec![("a", a), ("ranges", Arc::new(ranges) as ArrayRef)]);
    let batch = rows(&[0, 1], vec![("scan", Arc::new(scan.unwrap()))]);
    let apart = unnest(&events(2).with_rows(vec![batch]), &path("scan.ranges")).unwrap().batch;
    let ours = &apart.rows()[0];
    assert_eq!(names(ours), ["scan", "ranges"]);
    let left = ours.columns.column(0).as_struct();
    assert_eq!(left.column_names(), ["a"]);
    assert_eq!(left.column(0).as_primitive::<Int64Type>().values()[..], [1, 1, 2]);
    let ranges = ours.columns.column(1).as_primitive::<Float64Type>();
    assert_eq!(ranges.iter().collect::<Vec<_>>(), [Some(0.5), None, Some(1.5)]);
}

#[test]
fn a_list_that_is_all_there_is_leaves_no_column_beside_it() {
    let list = FixedSizeListArray::from_iter_primitive::<Int32Type, _, _>(
        [Some([Some(1), Some(2)]), None],
        2,
    );
    let only = StructArray::try_from(vec![("l", Arc::new(list) as ArrayRef)]).unwrap();
    let batch = events(2).with_rows(vec![rows(&[0, 1], vec![("s", Arc::new(only))])]);
    let apart = unnest(&batch, &path("s.l")).unwrap();
    assert_eq!((names(&apart.batch.rows()[0]), apart.counts), (vec!["l".to_owned()], vec![2, 0]));
}

#[test]
fn what_the_list_says_its_members_say_too() {
    let list = points(&[1], None);
    let said = [("frame".to_owned(), "local".to_owned())].into();
    let field = Field::new("points", list.data_type().clone(), false).with_metadata(said);
    let columns = RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![list]).unwrap();
    let batch = Rows { columns, ..rows(&[0], vec![("v", Arc::new(Int32Array::from(vec![1])))]) };
    let apart = unnest(&events(1).with_rows(vec![batch]), &path("points")).unwrap().batch;
    let schema = apart.rows()[0].columns.schema();
    let frames: Vec<_> = schema.fields().iter().map(|f| f.metadata()["frame"].as_str()).collect();
    assert_eq!((frames, schema.field(0).is_nullable()), (vec!["local"; 2], false));
}

#[test]
fn without_such_a_list_all_stays_as_it_is() {
    let batch = rows(&[0], vec![("v", Arc::new(Int32Array::from(vec![5])))]);
    let batch = events(2).with_rows(vec![batch]);
    for text in ["points", "v", "v[0]", "v.x"] {
        let apart = unnest(&batch, &path(text)).unwrap();
        assert_eq!((apart.batch.len(), apart.counts), (2, vec![1, 1]), "{text}");
        assert!(!apart.has_lists);
        assert_eq!(apart.batch.payload(1), batch.payload(1));
    }
}

#[test]
fn lists_without_any_element_leave_a_type_and_no_rows() {
    let batch = rows(&[0, 1], vec![("points", points(&[0, 0], None))]);
    let apart = unnest(&events(2).with_rows(vec![batch]), &path("points")).unwrap();
    assert_eq!((apart.batch.len(), apart.counts), (0, vec![0, 0]));
    assert_eq!(names(&apart.batch.rows()[0]), ["x", "time"]);
}

#[test]
fn more_than_memory_holds_is_refused() {
    let nothing: ArrayRef = Arc::new(arrow_array::NullArray::new(MAX_ROWS + 1));
    let element = Arc::new(Field::new("item", DataType::Null, true));
    let offsets = OffsetBuffer::new(ScalarBuffer::from(vec![0, MAX_ROWS as i32 + 1]));
    let list = ListArray::new(element, offsets, nothing, None);
    let batch = events(1).with_rows(vec![rows(&[0], vec![("l", Arc::new(list))])]);
    let error = unnest(&batch, &path("l")).unwrap_err().to_string();
    assert!(error.contains("33554433 elements"), "{error}");
    let long: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(2 << 20)]));
    let many = points(&[1000], None);
    let batch = rows(&[0], vec![("text", long), ("points", many)]);
    let error = unnest(&events(1).with_rows(vec![batch]), &path("points")).unwrap_err();
    assert!(error.to_string().contains("repeated in each row"), "{error}");
}

#[test]
fn a_long_list_is_taken_apart_in_pieces_that_together_are_the_whole() {
    let text = |len: usize| "x".repeat(len);
    let texts: ArrayRef = Arc::new(StringArray::from(vec![text(1), text(1 << 20), text(1)]));
    for (lengths, pieces) in [([3, 4, 5], 1), ([200_000, 20, 90_000], 10), ([0, 0, 0], 1)] {
        let columns = vec![("text", Arc::clone(&texts)), ("points", points(&lengths, None))];
        let batch = events(4).with_rows(vec![rows(&[0, 1, 3], columns)]);
        let whole = unnest(&batch, &path("points")).unwrap();
        let all: Vec<UnnestPiece> =
            UnnestPieces::new(batch, Some(&path("points"))).unwrap().collect();
        let found: Vec<UnnestedBatch> =
            all.iter().map(|piece| piece.unnest(&path("points")).unwrap()).collect();
        assert_eq!((all.iter().map(UnnestPiece::events).sum::<u64>(), all.len()), (4, pieces));
        assert!(found.iter().all(|piece| piece.batch.len() <= PIECE_ROWS));
        let column = |batch: &Batch| -> Vec<i64> {
            batch.rows().first().map(|rows| longs(rows, "time")).unwrap_or_default()
        };
        let times: Vec<i64> = found.iter().flat_map(|piece| column(&piece.batch)).collect();
        let numbers: Vec<i64> =
            found.iter().flat_map(|piece| piece.batch.sequences().to_vec()).collect();
        assert_eq!(times, column(&whole.batch));
        assert_eq!(numbers, whole.batch.sequences());
    }
}

#[test]
fn large_events_are_pieces_of_their_own_also_without_a_list() {
    let texts: ArrayRef = Arc::new(StringArray::from(vec!["x".repeat(9 << 20); 3]));
    let batch = events(3).with_rows(vec![rows(&[0, 1, 2], vec![("text", texts)])]);
    let all: Vec<UnnestPiece> = UnnestPieces::new(batch, None).unwrap().collect();
    let numbers: Vec<&[i64]> = all.iter().map(|piece| piece.batch().sequences()).collect();
    assert_eq!(numbers, [[0], [1], [2]]);
    assert_eq!(UnnestPieces::new(events(50), None).unwrap().count(), 1);
    assert_eq!(UnnestPieces::new(Batch::default(), None).unwrap().count(), 0);
}

proptest! {
    #[test]
    fn rows_are_the_elements_in_order(
        lists in vec(proptest::option::of(vec(proptest::option::of(any::<i32>()), 0..4)), 0..12),
        gaps in vec(1u32..3, 12), cut in 0usize..12)
    {
        let list = ListArray::from_iter_primitive::<Int32Type, _, _>(lists.iter().cloned());
        let start = cut.min(lists.len());
        let list: ArrayRef = Arc::new(list.slice(start, lists.len() - start));
        let lists = &lists[start..];
        let mut next = 0;
        let at: Vec<u32> = gaps.iter().take(lists.len()).map(|gap| {
            next += gap;
            next - 1
        }).collect();
        let ids = (0..lists.len() as i64).map(|n| n * 7);
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(ids));
        let batch = events(next + 1).with_rows(vec![rows(&at, vec![("l", list), ("id", ids)])]);
        let UnnestedBatch { batch: apart, counts, .. } = unnest(&batch, &path("l")).unwrap();

        let list_of = |event: u32| {
            at.iter().position(|found| *found == event).map(|row| (row, &lists[row]))
        };
        let mut wanted = Vec::new();
        for event in 0..next + 1 {
            match list_of(event) {
                None => wanted.push((event, None)),
                Some((row, list)) => wanted.extend(
                    list.iter().flatten().map(|v| (event, Some((*v, row as i64 * 7))))),
            }
        }
        prop_assert_eq!(counts.iter().sum::<u32>() as usize, wanted.len());
        let mut found: Vec<_> = apart.sequences().iter().map(|n| (*n as u32, None)).collect();
        for ours in apart.rows() {
            let values = ours.columns.column(0).as_primitive::<Int32Type>();
            let ids = longs(ours, "id");
            for (row, event) in ours.events.iter().enumerate() {
                let value = values.is_valid(row).then(|| values.value(row));
                found[*event as usize].1 = Some((value, ids[row]));
            }
        }
        prop_assert_eq!(found, wanted);
    }
}
