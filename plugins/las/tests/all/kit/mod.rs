//! Test fixtures: events with points, and the sink run by hand.

#![allow(dead_code, clippy::allow_attributes, reason = "each test uses a part of it")]

use std::path::Path;
use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, Float32Array, Float64Array, Int32Array, Int64Array,
    LargeListArray, ListArray, RecordBatch, StructArray, TimestampNanosecondArray, UInt8Array,
    UInt16Array,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::{DataType, Field};
use serde_json::{Value, json};
use sluice_io::tasks::TaskPool;
use sluice_las as _;
use sluice_model::{
    Batch, BatchBuilder, BlockPool, Channel, Channels, DynSink, Encoding, Error, MessageType, Name,
    OptionsError, Outputs, Overwrite, Payloads, PrepareContext, Registry, Rows, SinkContext,
    TypeKey, Written,
};

/// The time of the first event: 2007-11-03T14:00:00Z.
pub(crate) const BEGIN: i64 = 1_194_098_400_000_000_000;

/// A test point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    pub(crate) position: [f64; 3],
    pub(crate) intensity: Option<f32>,
    pub(crate) laser: u16,
    pub(crate) time: i64,
    pub(crate) color: Option<[u8; 3]>,
}

/// A point at this position, with a value in every column.
pub(crate) fn at(x: f64, y: f64, z: f64) -> Point {
    let n = (x.abs() * 7.0 + y.abs() * 3.0) as i64 % 1_000_000;
    Point {
        position: [x, y, z],
        intensity: Some((n % 256) as f32 / 255.0),
        laser: (n % 64) as u16,
        time: BEGIN + n * 1_000,
        color: Some([(n % 256) as u8, 1, 255]),
    }
}

/// Points along a line from this position.
pub(crate) fn line(count: usize, from: [f64; 3]) -> Vec<Point> {
    (0..count).map(|n| at(from[0] + n as f64 * 0.0125, from[1] - n as f64 * 0.5, from[2])).collect()
}

/// An event: its channel and its points, if it has any.
#[derive(Clone, Debug)]
pub(crate) struct CloudEvent(pub(crate) &'static str, pub(crate) Option<Vec<Point>>);

/// The rows of these events' points, with or without colours.
fn rows(events: &[(u32, &Vec<Point>)], has_color: bool) -> Rows {
    let points = || events.iter().flat_map(|(_, points)| points.iter());
    let axis = |n: usize| -> ArrayRef {
        Arc::new(points().map(|p| p.position[n]).collect::<Float64Array>())
    };
    let intensity = points().map(|p| p.intensity).collect::<Float32Array>();
    let laser = points().map(|p| p.laser).collect::<Vec<u16>>();
    let times = points().map(|p| p.time).collect::<Vec<i64>>();
    let mut members: Vec<(&str, ArrayRef)> = vec![
        ("x", axis(0)),
        ("y", axis(1)),
        ("z", axis(2)),
        ("intensity", Arc::new(intensity)),
        ("laser", Arc::new(UInt16Array::from(laser))),
        ("azimuth", Arc::new(Float32Array::from(vec![0.5; points().count()]))),
        ("time", Arc::new(TimestampNanosecondArray::from(times).with_timezone("UTC"))),
    ];
    for (n, name) in ["red", "green", "blue"].into_iter().enumerate().filter(|_| has_color) {
        let part = points().map(|p| p.color.map(|color| color[n])).collect::<UInt8Array>();
        members.push((name, Arc::new(part)));
    }
    let fields: Vec<Field> = members
        .iter()
        .map(|(name, array)| Field::new(*name, array.data_type().clone(), true))
        .collect();
    let columns = members.into_iter().map(|(_, array)| array).collect();
    let structs = StructArray::new(fields.into(), columns, None);
    let lens = events.iter().map(|(_, points)| points.len());
    let element = Arc::new(Field::new_list_field(structs.data_type().clone(), false));
    let list = ListArray::new(element, OffsetBuffer::from_lengths(lens), Arc::new(structs), None);
    let utimes: ArrayRef = Arc::new(Int64Array::from(vec![5; events.len()]));
    let columns: Vec<(&str, ArrayRef)> = vec![("utime", utimes), ("points", Arc::new(list))];
    Rows {
        message: MessageType::named("points", TypeKey(u64::from(has_color))).into(),
        payloads: Payloads::Gone,
        events: events.iter().map(|(event, _)| *event).collect(),
        columns: RecordBatch::try_from_iter(columns).unwrap(),
    }
}

/// The events as one batch. An event with a point without a colour has no colours.
pub(crate) fn batch(events: &[CloudEvent], channels: &Channels) -> Batch {
    let mut builder = BatchBuilder::default();
    for (n, CloudEvent(channel, _)) in events.iter().enumerate() {
        let channel = Channel::new(Name::from_text(channel), "log", Encoding::Lcm);
        builder.push_copy(BEGIN + n as i64, n as i64, channels.intern(channel).unwrap(), b"");
    }
    let has_color = |points: &Vec<Point>| points.iter().all(|p| p.color.is_some());
    let with = |wanted: bool| -> Vec<(u32, &Vec<Point>)> {
        let all = events.iter().enumerate();
        let some = all.filter_map(|(n, CloudEvent(_, points))| Some((n as u32, points.as_ref()?)));
        some.filter(|(_, points)| has_color(points) == wanted).collect()
    };
    let kinds = [true, false].map(|wanted| (with(wanted), wanted));
    let kinds = kinds.into_iter().filter(|(events, _)| !events.is_empty());
    builder.finish().with_rows(kinds.map(|(events, color)| rows(&events, color)).collect())
}

/// A batch whose points are a list of integers.
pub(crate) fn batch_of_numbers(channels: &Channels) -> Batch {
    let mut builder = BatchBuilder::default();
    let channel = Channel::new(Name::from_text("N"), "log", Encoding::Lcm);
    builder.push_copy(BEGIN, 0, channels.intern(channel).unwrap(), b"");
    let element = Arc::new(Field::new_list_field(DataType::Int64, false));
    let numbers = Arc::new(Int64Array::from(vec![1, 2]));
    let list = ListArray::new(element, OffsetBuffer::from_lengths([2]), numbers, None);
    let points: ArrayRef = Arc::new(list);
    let rows = Rows {
        message: MessageType::named("numbers", TypeKey(9)).into(),
        payloads: Payloads::Gone,
        events: vec![0],
        columns: RecordBatch::try_from_iter([("points", points)]).unwrap(),
    };
    builder.finish().with_rows(vec![rows])
}

/// List types other than the usual one.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ListKind {
    Large,
    Fixed,
}

/// An event with two points whose integers have 32 bits and more; those of the second do not fit.
pub(crate) fn wide(kind: ListKind, channels: &Channels) -> Batch {
    let axis = || -> ArrayRef { Arc::new(Float64Array::from(vec![1.0, 2.0])) };
    let colour = || -> ArrayRef { Arc::new(Int32Array::from(vec![300, 70_000])) };
    let members = vec![
        ("x", axis()),
        ("y", axis()),
        ("z", axis()),
        ("laser", Arc::new(Int64Array::from(vec![7, -1])) as ArrayRef),
        ("time", Arc::new(Int64Array::from(vec![1, 2]))),
        ("red", colour()),
        ("green", colour()),
        ("blue", colour()),
    ];
    one_event(members, kind, channels)
}

/// An event with points that have these members.
pub(crate) fn one_event(
    members: Vec<(&str, ArrayRef)>,
    kind: ListKind,
    channels: &Channels,
) -> Batch {
    let mut builder = BatchBuilder::default();
    let channel = Channel::new(Name::from_text("W"), "log", Encoding::Lcm);
    builder.push_copy(BEGIN, 0, channels.intern(channel).unwrap(), b"");
    let structs = Arc::new(StructArray::try_from(members).unwrap());
    let element = Arc::new(Field::new_list_field(structs.data_type().clone(), false));
    let len = structs.len();
    let points: ArrayRef = match kind {
        ListKind::Large => {
            Arc::new(LargeListArray::new(element, OffsetBuffer::from_lengths([len]), structs, None))
        }
        ListKind::Fixed => Arc::new(FixedSizeListArray::new(element, len as i32, structs, None)),
    };
    let rows = Rows {
        message: MessageType::named("wide", TypeKey(8)).into(),
        payloads: Payloads::Gone,
        events: vec![0],
        columns: RecordBatch::try_from_iter([("points", points)]).unwrap(),
    };
    builder.finish().with_rows(vec![rows])
}

/// The context of a run.
pub(crate) fn context() -> SinkContext {
    let outputs = Arc::new(Outputs::new(Overwrite::Replace, true, &[]));
    SinkContext { outputs, memory: 64 << 20, ..SinkContext::standalone() }
}

pub(crate) fn make(options: Value) -> Result<DynSink, OptionsError> {
    Registry::linked().sink("las", options)
}

/// The result of writing events.
#[derive(Debug, Default)]
pub(crate) struct LasOutcome {
    pub(crate) written: u64,
    pub(crate) left_out: usize,
    pub(crate) refused: Vec<(u32, String)>,
    pub(crate) losses: Vec<&'static str>,
    pub(crate) notes: Vec<(String, u64)>,
}

/// Writes batches through the sink with these options.
pub(crate) fn run(
    options: Value,
    batches: Vec<Batch>,
    context: &SinkContext,
) -> Result<LasOutcome, Error> {
    run_on(&TaskPool::default(), options, batches, context)
}

/// The same with these tasks.
pub(crate) fn run_on(
    tasks: &TaskPool,
    options: Value,
    batches: Vec<Batch>,
    context: &SinkContext,
) -> Result<LasOutcome, Error> {
    let sink = make(options).unwrap();
    let (mut output, buffers) = (sink.open(context, tasks)?, BlockPool::new(64, 2));
    let (mut outcome, mut written) = (LasOutcome::default(), Written::default());
    for batch in batches {
        let mut encoding = PrepareContext::new(&context.channels, &buffers);
        let block = sink.prepare(batch, &mut encoding)?;
        outcome.refused.append(&mut encoding.report.refused);
        outcome.losses.extend(encoding.report.losses);
        written.add(output.push(block)?);
    }
    written.add(output.finish()?);
    (outcome.written, outcome.left_out) = (written.events, written.skipped.len());
    outcome.notes = written.notes;
    context.outputs.publish(|_, _| Ok("{}".to_owned()))?;
    Ok(outcome)
}

/// Writes events, as one batch, to this path.
pub(crate) fn write(path: &Path, events: &[CloudEvent], more: Value) -> Result<LasOutcome, Error> {
    let context = context();
    let mut options = json!({ "path": path });
    options.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let batches = vec![batch(events, &context.channels)];
    run(options, batches, &context)
}
