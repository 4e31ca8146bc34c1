//! Runs `align` without the engine, on events whose values are made from a number.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::types::{Float32Type, Float64Type};
use arrow_array::{
    ArrayRef, FixedSizeListArray, Float64Array, Int32Array, Int64Array, ListArray, NullArray,
    RecordBatch, StringArray, StructArray, UInt32Array,
};
use arrow_cast::display::array_value_to_string;
use arrow_schema::Field;
use serde_json::Value;
use sluice_model::{
    Batch, BatchBuilder, Channel, ChannelId, Channels, Encoding, Error, MessageType, Name,
    Payloads, Registry, Rows, Stage, StageContext, TimeWindow, TypeKey,
};

pub(super) const MS: i64 = 1_000_000;

/// An event: its channel, its time, and its value. The fields of channel `A` are `v`, a number,
/// `own`, its time in microseconds, and `q`, a quaternion; of `L` a list `l` of as many numbers; of
/// `S` `v` and `stamp`, its time 10 ms earlier in seconds and nanoseconds; of
/// `M` a number `m`, which is whole in batches with one of 100 or more; of
/// `N` a number `v`, and `x`, which is null by its type; of
/// `T` a text `s`; events of other channels have no rows.
pub(super) type TestEvent = (&'static str, i64, f64);

pub(super) struct Outcome {
    /// Times, and values as text.
    pub(super) rows: Vec<(i64, Vec<String>)>,
    pub(super) sequences: Vec<i64>,
    pub(super) types: Vec<String>,
    pub(super) notes: BTreeMap<String, u64>,
    pub(super) filtered: u64,
}

impl Outcome {
    pub(super) fn values(&self) -> Vec<(i64, &str)> {
        self.rows.iter().map(|(time, values)| (time / MS, values[0].as_str())).collect()
    }

    pub(super) fn note(&self, part: &str) -> u64 {
        let found = self.notes.iter().find(|(note, _)| note.contains(part));
        *found.unwrap_or_else(|| panic!("no note has `{part}`: {:?}", self.notes)).1
    }
}

pub(super) fn columns_of(
    channel: &str,
    values: &[(i64, f64)],
) -> Option<Vec<(&'static str, ArrayRef)>> {
    let numbers = || values.iter().map(|(_, value)| *value);
    let option = |value: f64| (value != 404.0).then_some(value);
    Some(match channel {
        "A" | "B" => {
            let v = Float64Array::from_iter(numbers().map(option));
            let own = values.iter().map(|(time, value)| time / 1000 - *value as i64);
            let q = numbers().map(|v| Some([(v / 2.0).cos(), 0.0, 0.0, (v / 2.0).sin()].map(Some)));
            let q = FixedSizeListArray::from_iter_primitive::<Float64Type, _, _>(q, 4);
            let own = Int64Array::from_iter_values(own);
            vec![("v", Arc::new(v)), ("own", Arc::new(own)), ("q", Arc::new(q))]
        }
        "L" => {
            let list = |v: f64| Some((0..v as usize).map(move |n| Some(v as f32 + n as f32)));
            let l = ListArray::from_iter_primitive::<Float32Type, _, _>(numbers().map(list));
            vec![("l", Arc::new(l))]
        }
        "M" if values.iter().any(|value| value.1 >= 100.0) => {
            let m = Int64Array::from_iter_values(numbers().map(|v| v as i64));
            vec![("m", Arc::new(m))]
        }
        "M" => vec![("m", Arc::new(Float64Array::from_iter_values(numbers())))],
        "N" => {
            let v = Float64Array::from_iter_values(numbers());
            vec![("v", Arc::new(v)), ("x", Arc::new(NullArray::new(values.len())))]
        }
        "S" => {
            // The message's own time is 10 ms earlier.
            let own = || values.iter().map(|(time, _)| time - 10 * MS);
            let sec = Int32Array::from_iter_values(own().map(|time| (time / (1000 * MS)) as i32));
            let nanos = UInt32Array::from_iter_values(own().map(|t| (t % (1000 * MS)) as u32));
            let part = |name: &str, values: ArrayRef| {
                (Arc::new(Field::new(name, values.data_type().clone(), true)), values)
            };
            let parts = vec![part("sec", Arc::new(sec)), part("nanosec", Arc::new(nanos))];
            let stamp = StructArray::from(parts);
            let v = Arc::new(Float64Array::from_iter_values(numbers()));
            vec![("v", v), ("stamp", Arc::new(stamp))]
        }
        "T" => {
            let s = StringArray::from_iter_values(numbers().map(|v| format!("t{v}")));
            vec![("s", Arc::new(s))]
        }
        _ => return None,
    })
}

/// The events of a channel in a batch, each with its time and value.
type TimedValues = (Vec<u32>, Vec<(i64, f64)>);

pub(super) fn batch(channels: &Channels, first: usize, events: &[TestEvent]) -> Batch {
    let mut builder = BatchBuilder::default();
    let mut by_channel: BTreeMap<&str, TimedValues> = BTreeMap::new();
    for (at, (name, time, value)) in events.iter().enumerate() {
        let source = if *name == "B" && *value < 0.0 { "other" } else { "log" };
        let channel = Channel::new(Name::from_text(name), source, Encoding::Unknown);
        let id = channels.intern(channel).unwrap();
        builder.push_copy(*time, (first + at) as i64, id, b"payload");
        let (rows, values) = by_channel.entry(name).or_default();
        rows.push(at as u32);
        values.push((*time, *value));
    }
    let rows = by_channel.into_iter().filter_map(|(name, (events, values))| {
        let columns = columns_of(name, &values)?;
        let columns = columns.into_iter().map(|(name, column)| (name, column, true));
        Some(Rows {
            message: MessageType::named(name, TypeKey(1)).into(),
            payloads: Payloads::Kept,
            events,
            columns: RecordBatch::try_from_iter_with_nullable(columns).unwrap(),
        })
    });
    builder.finish().with_rows(rows.collect())
}

pub(super) struct Runner {
    parts: Vec<Stage>,
    channels: Channels,
    windows: Vec<TimeWindow>,
    out: Vec<Batch>,
    pub(super) notes: BTreeMap<String, u64>,
    pub(super) filtered: u64,
    added: u64,
}

impl Runner {
    pub(super) fn new(options: Value, window: TimeWindow) -> Self {
        let parts = Registry::linked().stage("align", options).unwrap().into_parts();
        let Some(Stage::Fold(fold)) = parts.get(1) else { panic!("a map and a fold") };
        let after =
            sluice_model::Query { start: window.start, end: window.end, ..Default::default() };
        let before = fold.query().before(after).window();
        Self {
            parts,
            channels: Channels::default(),
            windows: vec![before, window],
            out: Vec::new(),
            notes: BTreeMap::new(),
            filtered: 0,
            added: 0,
        }
    }

    fn step(
        &mut self,
        place: usize,
        work: impl FnOnce(&mut Stage, &mut StageContext<'_>) -> Result<Vec<Batch>, Error>,
    ) -> Result<Vec<Batch>, Error> {
        let mut context = StageContext::new(&self.channels, Some(0)).within(self.windows[place]);
        let out = work(&mut self.parts[place], &mut context)?;
        self.filtered += context.report.filtered;
        self.added += context.report.added.len() as u64;
        for (note, count) in context.report.notes {
            *self.notes.entry(note).or_default() += count;
        }
        Ok(out)
    }

    fn fold(&mut self, batch: Option<Batch>) -> Result<(), Error> {
        let mut out = self.step(1, |part, context| match (part, batch) {
            (Stage::Fold(fold), Some(batch)) => fold.push(batch, context),
            (Stage::Fold(fold), None) => fold.finish(context),
            _ => unreachable!(),
        })?;
        while !out.is_empty() {
            self.out.extend(out);
            out = self.step(1, |part, context| match part {
                Stage::Fold(fold) => fold.more(context),
                _ => unreachable!(),
            })?;
        }
        Ok(())
    }

    pub(super) fn all(mut self, batches: &[&[TestEvent]]) -> Result<Outcome, Error> {
        let mut first = 0;
        for events in batches {
            let batch = batch(&self.channels, first, events);
            first += events.len();
            let selected = self.step(0, |part, context| match part {
                Stage::Map(map) => Ok(vec![map.apply(batch, context)?]),
                _ => unreachable!(),
            })?;
            for batch in selected {
                self.fold(Some(batch))?;
            }
        }
        self.fold(None)?;
        assert_eq!(self.filtered, first as u64, "every event is counted");
        let rows: usize = self.out.iter().map(Batch::len).sum();
        assert_eq!(self.added, rows as u64, "every row is counted");
        Ok(self.outcome())
    }

    fn outcome(self) -> Outcome {
        let (mut rows, mut sequences, mut types) = (Vec::new(), Vec::new(), Vec::new());
        for batch in &self.out {
            let mut values = vec![Vec::new(); batch.len()];
            for of in batch.rows() {
                types.push(format!("{:?}", of.columns.schema().field(0).data_type()));
                for (row, event) in of.events.iter().enumerate() {
                    let text = |column: &ArrayRef| match column.is_null(row) {
                        true => "null".to_owned(),
                        false => array_value_to_string(column, row).unwrap(),
                    };
                    values[*event as usize] = of.columns.columns().iter().map(text).collect();
                }
            }
            let name = |id: &u32| self.channels.get(ChannelId(*id)).name.text().to_owned();
            assert!(batch.channels().iter().all(|id| name(id) == "aligned"));
            assert!(values.iter().all(|values| !values.is_empty()), "every event has a row");
            rows.extend(batch.timestamps().iter().copied().zip(values));
            sequences.extend_from_slice(batch.sequences());
        }
        types.dedup();
        let Self { notes, filtered, .. } = self;
        Outcome { rows, sequences, types, notes, filtered }
    }
}
