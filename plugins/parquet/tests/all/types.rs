//! Types that Parquet does not have, or that could not be read back.

use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Time32MillisecondType, TimestampMillisecondType};
use arrow_array::{
    Array, ArrayRef, Int64Array, ListArray, RecordBatch, StructArray, Time32SecondArray,
    TimestampSecondArray,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field, TimeUnit};
use serde_json::{Value, json};
use sluice_model::{
    Batch, Error, MessageType, Payloads, ReadContext, Rows, SinkContext, SplitStart, TypeKey,
};

use crate::kit::{batch, context, drive, event, source, write};

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
fn round_trip(path: &Path, columns: &[(&str, ArrayRef)]) -> Result<Batch, Error> {
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
