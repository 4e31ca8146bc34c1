//! A stateless stage with its notes, batches for it, and the points in its output.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Int64Type, TimestampNanosecondType, UInt16Type};
use arrow_array::{Array, ArrayRef, RecordBatch};
use serde_json::Value;
use sluice_dgc::fuzzing::{PointFrame, Points};
use sluice_model::{
    Batch, BatchBuilder, Channel, Channels, Encoding, Error, Map, MessageType, Name, OptionsError,
    Payloads, Registry, Rows, Stage, StageContext, TypeKey,
};

pub(crate) struct PointRun {
    map: Box<dyn Map>,
    pub(crate) channels: Channels,
    pub(crate) notes: BTreeMap<String, u64>,
    pub(crate) filtered: u64,
    pub(crate) undecoded: usize,
}

/// Channel, time in nanoseconds, payload.
pub(crate) type RawEvent = (&'static str, i64, Vec<u8>);

pub(crate) fn make(name: &str, options: Value) -> Result<Stage, OptionsError> {
    Registry::linked().stage(name, options)
}

impl PointRun {
    pub(crate) fn new(name: &str, options: Value) -> Self {
        let Stage::Map(map) = make(name, options).unwrap() else { panic!("{name} has a memory") };
        let (channels, notes) = (Channels::default(), BTreeMap::new());
        Self { map, channels, notes, filtered: 0, undecoded: 0 }
    }

    pub(crate) fn batch(&self, events: &[RawEvent]) -> Batch {
        let mut builder = BatchBuilder::default();
        for (n, (name, time, payload)) in events.iter().enumerate() {
            let channel = Channel::new(Name::from_text(name), "log", Encoding::Lcm);
            let id = self.channels.intern(channel).unwrap();
            builder.push_copy(*time, n as i64, id, payload);
        }
        builder.finish()
    }

    pub(crate) fn apply(&mut self, batch: Batch) -> Result<Batch, Error> {
        let mut context = StageContext::new(&self.channels, None);
        let out = self.map.apply(batch, &mut context)?;
        for (what, count) in context.report.notes {
            *self.notes.entry(what).or_default() += count;
        }
        self.filtered += context.report.filtered;
        self.undecoded += context.report.undecoded.len();
        Ok(out)
    }

    /// The output for all events in one batch.
    pub(crate) fn all(&mut self, events: &[RawEvent]) -> Batch {
        let batch = self.batch(events);
        self.apply(batch).unwrap()
    }

    /// The notes, prefixed with their counts.
    pub(crate) fn counted_notes(&self) -> Vec<String> {
        self.notes.iter().map(|(what, count)| format!("{count} {what}")).collect()
    }
}

/// A point for comparison.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Point {
    pub(crate) xyz: [f64; 3],
    pub(crate) intensity: Option<f32>,
    pub(crate) laser: u16,
    pub(crate) azimuth: f32,
    pub(crate) time: i64,
}

/// The points of an event.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EventPoints {
    pub(crate) event: u32,
    pub(crate) utime: i64,
    pub(crate) points: Vec<Point>,
}

/// The points of a batch, event by event.
pub(crate) fn points(batch: &Batch) -> Vec<EventPoints> {
    let found: Vec<Points> = batch.rows().iter().filter_map(Points::from_rows).collect();
    let mut all: Vec<EventPoints> = found.iter().flat_map(event_points).collect();
    all.sort_by_key(|taken| taken.event);
    all
}

fn event_points(points: &Points) -> Vec<EventPoints> {
    assert_eq!(points.frame(), PointFrame::Sensor);
    let [x, y, z] = points.xyz();
    let intensity = points.member("intensity").unwrap().as_primitive::<Float32Type>();
    let laser = points.member("laser").unwrap().as_primitive::<UInt16Type>();
    let azimuth = points.member("azimuth").unwrap().as_primitive::<Float32Type>();
    let time = points.member("time").unwrap().as_primitive::<TimestampNanosecondType>();
    let utime = points.column("utime").unwrap().as_primitive::<Int64Type>();
    let point = |at: usize| Point {
        xyz: [x[at], y[at], z[at]],
        intensity: intensity.is_valid(at).then(|| intensity.value(at)),
        laser: laser.value(at),
        azimuth: azimuth.value(at),
        time: time.value(at),
    };
    let event = |(row, event): (usize, &u32)| EventPoints {
        event: *event,
        utime: utime.value(row),
        points: points.range(row).map(point).collect(),
    };
    points.events().iter().enumerate().map(event).collect()
}

/// Decoded rows of these events.
pub(crate) fn rows(events: &[u32], payloads: Payloads, columns: Vec<(&str, ArrayRef)>) -> Rows {
    let columns = columns.into_iter().map(|(name, column)| (name, column, true));
    Rows {
        message: Arc::new(MessageType::named("made_up", TypeKey(1))),
        payloads,
        events: events.to_vec(),
        columns: RecordBatch::try_from_iter_with_nullable(columns).unwrap(),
    }
}
