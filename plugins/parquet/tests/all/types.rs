//! Types that Parquet does not have, or that could not be read back.

use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Int32Type, IntervalMonthDayNanoType, Time32MillisecondType,
    TimestampMillisecondType,
};
use arrow_array::{
    Array, ArrayRef, Date64Array, DictionaryArray, Float64Array, Int32Array, Int64Array,
    IntervalMonthDayNanoArray, ListArray, MapArray, RecordBatch, RunArray, StringArray,
    StructArray, Time32SecondArray, TimestampSecondArray, UnionArray,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field, TimeUnit, UnionFields};
use parquet::basic::{Encoding, LogicalType};
use parquet::file::reader::FileReader;
use serde_json::{Value, json};
use sluice_model::cast::cast;
use sluice_model::{
    Batch, Error, MessageType, Payloads, ReadContext, Rows, SinkContext, SplitStart, TypeKey,
};

use crate::kit::{batch, context, drive, event, footer, source, write};

/// An event for each row of these columns, on a channel of its own type.
fn decoded(context: &SinkContext, key: u64, columns: &[(&str, ArrayRef)]) -> Batch {
    let columns = RecordBatch::try_from_iter(columns.to_vec()).unwrap();
    let count = columns.num_rows() as i64;
    let events: Vec<_> = (0..count).map(|n| event(n * 1_000, n, "DEEP", b"")).collect();
    let message = MessageType::named("deep_t", TypeKey(key)).into();
    let events_of_rows = (0..count as u32).collect();
    let rows = Rows { message, payloads: Payloads::Gone, events: events_of_rows, columns };
    batch(&events, &context.channels).with_rows(vec![rows])
}

/// Writes one batch of these columns, and reads it back.
pub(crate) fn round_trip(path: &Path, columns: &[(&str, ArrayRef)]) -> Result<Batch, Error> {
    let context = context(64 << 20);
    let batches = vec![decoded(&context, 1, columns)];
    write(json!({ "path": path, "layout": "rows" }), batches, &context)?;
    let (source, read) = (source(path), ReadContext::standalone("tables"));
    let splits = source.splits(u64::MAX, &read.query)?;
    let batch = source.read(&splits[0], SplitStart::At(0), &read)?.next_batch()?;
    assert!(read.damage.take().is_empty());
    Ok(batch.unwrap())
}

/// A list of one element.
fn listed(inner: ArrayRef) -> ArrayRef {
    let item = Arc::new(Field::new("item", inner.data_type().clone(), true));
    let offsets = OffsetBuffer::from_lengths(vec![1; inner.len()]);
    Arc::new(ListArray::new(item, offsets, inner, None))
}

/// Calls a function on a stack that is large enough for the Parquet library, which recurses, if it
/// is not optimised.
fn on_large_stack(call: impl FnOnce() + Send + 'static) {
    let thread = std::thread::Builder::new().stack_size(1 << 24).spawn(call);
    thread.unwrap().join().unwrap();
}

fn nested(wrap: impl Fn(ArrayRef) -> ArrayRef, count: usize) -> ArrayRef {
    let innermost: ArrayRef = Arc::new(Int64Array::from(vec![7]));
    (0..count).fold(innermost, |inner, _| wrap(inner))
}

fn in_struct(inner: ArrayRef) -> ArrayRef {
    let field = Field::new("inner", inner.data_type().clone(), true);
    Arc::new(StructArray::from(vec![(Arc::new(field), inner)]))
}

#[test]
fn what_is_written_can_be_read_back_and_deeper_types_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep.parquet");
    // A table has 80 levels, of which a list takes three.
    on_large_stack(move || {
        for (wrap, most) in [(in_struct as fn(ArrayRef) -> ArrayRef, 79), (listed, 26)] {
            round_trip(&path, &[("a", nested(wrap, most))]).unwrap();
            let deeper = round_trip(&path, &[("a", nested(wrap, most + 1))]);
            let error = deeper.unwrap_err().to_string();
            for part in ["`deep_t`", "`a`", "80 levels", "`fields`", "deep.parquet"] {
                assert!(error.contains(part), "{part}: {error}");
            }
        }
    });
}

#[test]
fn a_type_that_nests_far_too_deep_is_refused_on_a_usual_stack() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep.parquet");
    for wrap in [in_struct as fn(ArrayRef) -> ArrayRef, listed] {
        let error = round_trip(&path, &[("a", nested(wrap, 300))]).unwrap_err().to_string();
        assert!(error.contains("80 levels"), "{error}");
    }
}

/// Writes a type that nests too deep with these options.
fn write_deep(path: &Path, more: Value) -> Result<u64, Error> {
    let context = context(64 << 20);
    let shallow: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let columns = [("a", nested(listed, 27)), ("b", shallow)];
    let mut options = json!({ "path": path });
    options.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    write(options, vec![decoded(&context, 1, &columns)], &context)
}

#[test]
fn fields_that_do_not_nest_too_deep_are_written_without_those_that_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    write_deep(&path, json!({ "layout": "rows", "fields": ["b"] })).unwrap();
    write_deep(&path, json!({ "layout": "rows", "fields": ["b", "a[0][0]"] })).unwrap();
    // Without one of its lists, it just fits.
    write_deep(&path, json!({ "layout": "rows", "unnest": "a" })).unwrap();
    // A table of all events has no columns for fields.
    write_deep(&path, json!({ "layout": "single", "payload": "drop" })).unwrap();
    let error = write_deep(&folder.path().join("tables/"), json!({})).unwrap_err().to_string();
    assert!(error.contains("80 levels"), "{error}");
}

#[test]
fn a_deep_type_is_refused_when_its_first_event_comes() {
    let folder = tempfile::tempdir().unwrap();
    let context = context(64 << 20);
    let registry = sluice_model::Registry::linked();
    let sink = registry.sink("parquet", json!({ "path": folder.path().join("t/") })).unwrap();
    let mut output = sink.open(&context, &sluice_io::tasks::TaskPool::default()).unwrap();
    let buffers = sluice_model::BlockPool::new(64, 2);
    let mut prepare = sluice_model::PrepareContext::new(&context.channels, &buffers);
    let deep = decoded(&context, 1, &[("a", nested(listed, 27))]);
    let block = sink.prepare(deep, &mut prepare).unwrap();
    assert!(output.push(block).unwrap_err().to_string().contains("80 levels"));
}

#[test]
fn batches_without_events_are_written_to_any_table() {
    let folder = tempfile::tempdir().unwrap();
    let rows = drive(3);
    for (name, layout) in [("a.parquet", "single"), ("b.parquet", "rows"), ("c/", "channel")] {
        let (path, context) = (format!("{}/{name}", folder.path().display()), context(64 << 20));
        let (none, some) = (batch(&[], &context.channels), batch(&rows, &context.channels));
        let options = json!({ "path": path, "layout": layout });
        // A table of rows takes decoded events only.
        let all = if layout == "rows" { vec![none] } else { vec![none, some] };
        let written = write(options, all, &context).unwrap();
        assert_eq!(written, if layout == "rows" { 0 } else { 3 }, "{layout}");
    }
}

#[test]
fn times_in_seconds_are_times_in_the_table() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("times.parquet");
    let zoned = TimestampSecondArray::from(vec![Some(1_194_098_400), None]).with_timezone("UTC");
    let times: ArrayRef = Arc::new(TimestampSecondArray::from(vec![-5, 1 << 40]));
    let of_day: ArrayRef = Arc::new(Time32SecondArray::from(vec![0, 86_399]));
    let columns =
        [("zoned", Arc::new(zoned) as ArrayRef), ("day", of_day), ("in", in_struct(listed(times)))];
    let back = round_trip(&path, &columns).unwrap();
    let back = &back.rows()[0].columns;
    let zoned = back.column_by_name("zoned").unwrap();
    let zone = Some("UTC".into());
    assert_eq!(*zoned.data_type(), DataType::Timestamp(TimeUnit::Millisecond, zone));
    let zoned = zoned.as_primitive::<TimestampMillisecondType>();
    assert_eq!(zoned.iter().collect::<Vec<_>>(), [Some(1_194_098_400_000), None]);
    let day = back.column_by_name("day").unwrap().as_primitive::<Time32MillisecondType>();
    assert_eq!(day.values()[..], [0, 86_399_000]);
    let inner = back.column_by_name("in").unwrap().as_struct().column(0).as_list::<i32>();
    let inner = inner.values().as_primitive::<TimestampMillisecondType>();
    assert_eq!(inner.values()[..], [-5_000, (1 << 40) * 1_000]);
}

#[test]
fn a_time_in_seconds_that_milliseconds_cannot_hold_ends_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("times.parquet");
    let times: ArrayRef = Arc::new(TimestampSecondArray::from(vec![0, i64::MAX]));
    let error = round_trip(&path, &[("at", times)]).unwrap_err().to_string();
    for part in ["`deep_t`", "`at`", "milliseconds"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(!path.exists(), "nothing half written");
}

#[test]
fn dates_in_milliseconds_are_dates_in_the_table() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dates.parquet");
    let day = 86_400_000;
    let dates: ArrayRef = Arc::new(Date64Array::from(vec![Some(13_820 * day), None, Some(-day)]));
    let columns = [("date", Arc::clone(&dates)), ("in", in_struct(listed(dates)))];
    let back = round_trip(&path, &columns).unwrap();
    let table = footer(&path);
    let column = table.metadata().file_metadata().schema_descr().column(3);
    assert_eq!(column.logical_type_ref(), Some(&LogicalType::Date));
    let back = &back.rows()[0].columns;
    let days = [Some(13_820), None, Some(-1)];
    let date = back.column_by_name("date").unwrap().as_primitive::<Date32Type>();
    assert_eq!(date.iter().collect::<Vec<_>>(), days);
    let inner = back.column_by_name("in").unwrap().as_struct().column(0).as_list::<i32>();
    let inner = inner.values().as_primitive::<Date32Type>();
    assert_eq!(inner.iter().collect::<Vec<_>>(), days);
}

#[test]
fn a_date_with_a_time_of_day_or_out_of_range_ends_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dates.parquet");
    for (millis, what) in
        [(1, "a time of day"), (-1, "a time of day"), (86_400_000 << 33, "Date32")]
    {
        let dates: ArrayRef = Arc::new(Date64Array::from(vec![0, millis]));
        for column in [Arc::clone(&dates), in_struct(listed(dates))] {
            let error = round_trip(&path, &[("at", column)]).unwrap_err().to_string();
            for part in ["`deep_t`", "`at`", what] {
                assert!(error.contains(part), "{part}: {error}");
            }
            assert!(!path.exists(), "nothing half written");
        }
    }
}

/// Lists of one element, by views.
fn listed_by_views(inner: ArrayRef) -> ArrayRef {
    let lists = listed(inner);
    let DataType::List(item) = lists.data_type() else { panic!("{}", lists.data_type()) };
    cast(&lists, &DataType::ListView(Arc::clone(item))).unwrap()
}

/// The same in large lists.
fn large_by_views(inner: ArrayRef) -> ArrayRef {
    let lists = listed(inner);
    let DataType::List(item) = lists.data_type() else { panic!("{}", lists.data_type()) };
    let large = cast(&lists, &DataType::LargeList(Arc::clone(item))).unwrap();
    cast(&large, &DataType::LargeListView(Arc::clone(item))).unwrap()
}

/// Maps of one entry.
fn mapped(inner: ArrayRef) -> ArrayRef {
    let keys: ArrayRef = Arc::new(StringArray::from(vec!["k"; inner.len()]));
    let field = |name, of: &ArrayRef, is_null| Field::new(name, of.data_type().clone(), is_null);
    let fields = vec![field("key", &keys, false), field("value", &inner, true)];
    let offsets = OffsetBuffer::from_lengths(vec![1; inner.len()]);
    let entries = StructArray::new(fields.into(), vec![keys, inner], None);
    let entry = Arc::new(Field::new("entries", entries.data_type().clone(), false));
    Arc::new(MapArray::new(entry, offsets, entries, None, false))
}

/// Runs of one row.
fn in_runs(inner: ArrayRef) -> ArrayRef {
    let ends = Int32Array::from_iter_values(1..=inner.len() as i32);
    Arc::new(RunArray::<Int32Type>::try_new(&ends, &inner).unwrap())
}

#[test]
fn times_in_lists_by_views_maps_and_runs_are_times_in_the_table() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("times.parquet");
    let wraps = [listed_by_views, large_by_views, mapped, in_runs];
    for outer in wraps {
        for inner in wraps {
            let times: ArrayRef = Arc::new(TimestampSecondArray::from(vec![5, 6, 7]));
            let column = outer(inner(times));
            let was = column.data_type().clone();
            let back = round_trip(&path, &[("at", column)]).unwrap();
            let mut back = Arc::clone(back.rows()[0].columns.column(0));
            while back.data_type().is_nested() {
                back = match back.as_struct_opt() {
                    Some(entries) => Arc::clone(entries.column(1)),
                    None => Arc::clone(back.as_list::<i32>().values()),
                };
            }
            let back = back.as_primitive_opt::<TimestampMillisecondType>();
            assert_eq!(
                back.map(|back| back.values().to_vec()),
                Some(vec![5_000, 6_000, 7_000]),
                "{was}"
            );
        }
    }
}

#[test]
fn each_column_behind_lists_by_views_has_its_own_encoding() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let floats: ArrayRef = Arc::new(Float64Array::from_iter_values((0..50).map(f64::from)));
    let words: ArrayRef =
        Arc::new(StringArray::from_iter_values((0..50).map(|n| format!("word {n}"))));
    for wrap in [listed_by_views, large_by_views, in_runs] {
        let member = |name: &str, of: &ArrayRef| {
            (Arc::new(Field::new(name, of.data_type().clone(), true)), Arc::clone(of))
        };
        let members = StructArray::from(vec![member("x", &floats), member("word", &words)]);
        let columns = [("a", wrap(Arc::new(members))), ("b", Arc::clone(&floats))];
        round_trip(&path, &columns).unwrap();
        let table = footer(&path);
        let encodings = table.metadata().row_group(0).columns()[3..].iter().map(|column| {
            column.encodings().any(|encoding| encoding == Encoding::BYTE_STREAM_SPLIT)
        });
        assert_eq!(encodings.collect::<Vec<_>>(), [true, false, true]);
    }
}

#[test]
fn a_struct_without_members_is_a_boolean_in_the_table() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let is_there = vec![true, false, true];
    let empty = StructArray::new_empty_fields(3, Some(is_there.into()));
    let empty: ArrayRef = Arc::new(empty);
    let columns = [("a", Arc::clone(&empty)), ("b", in_struct(listed(empty)))];
    let back = round_trip(&path, &columns).unwrap();
    let back = &back.rows()[0].columns;
    let expected = [Some(true), None, Some(true)];
    let plain = back.column(0).as_boolean();
    assert_eq!(plain.iter().collect::<Vec<_>>(), expected);
    let inner = back.column(1).as_struct().column(0).as_list::<i32>();
    assert_eq!(inner.values().as_boolean().iter().collect::<Vec<_>>(), expected);
}

#[test]
fn types_that_parquet_does_not_have_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let ints: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let kinds = UnionFields::try_new([0], [Field::new("int", DataType::Int64, true)]).unwrap();
    let union = UnionArray::try_new(kinds, vec![0].into(), None, vec![Arc::clone(&ints)]).unwrap();
    let interval = IntervalMonthDayNanoType::make_value(1, 2, 3);
    let in_dictionary = |value: ArrayRef| -> ArrayRef {
        Arc::new(DictionaryArray::<Int32Type>::new(Int32Array::from(vec![0]), value))
    };
    let empty: ArrayRef = Arc::new(StructArray::new_empty_fields(1, None));
    let hidden = "a struct without members in a view of lists, a dictionary or repeated values";
    let refused: [(ArrayRef, &str); 9] = [
        (Arc::new(union), "a union"),
        (
            Arc::new(IntervalMonthDayNanoArray::from(vec![interval])),
            "an interval of months, days and nanoseconds",
        ),
        (in_dictionary(listed(Arc::clone(&ints))), "a dictionary of structs or lists"),
        (in_dictionary(in_dictionary(ints)), "a dictionary of dictionaries"),
        (listed_by_views(Arc::clone(&empty)), hidden),
        (large_by_views(Arc::clone(&empty)), hidden),
        (in_runs(Arc::clone(&empty)), hidden),
        (in_dictionary(Arc::clone(&empty)), hidden),
        (mapped(empty), "a map and a struct without members"),
    ];
    for (column, what) in refused {
        for column in [Arc::clone(&column), in_struct(listed(column))] {
            let error = round_trip(&path, &[("a", column)]).unwrap_err().to_string();
            let says = format!("the field `a` is or has {what}, which Parquet does not have");
            for part in [&*says, "`deep_t`", "`fields`", "t.parquet"] {
                assert!(error.contains(part), "{part}: {error}");
            }
        }
    }
}
