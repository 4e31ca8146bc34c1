//! A small log, and sinks run as in a pipeline, for tests.

use std::fs;
use std::sync::Arc;

use arrow_array::builder::{FixedSizeBinaryBuilder, ListBuilder, StringBuilder};
use arrow_array::types::Float64Type;
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, Float64Array, Int32Array, Int64Array, ListArray,
    RecordBatch, StringArray, StructArray,
};
use arrow_buffer::OffsetBuffer;
use arrow_schema::Field;
use serde_json::{Map, Value};
use sluice_io::tasks::TaskPool;
use sluice_model::{
    Batch, BatchBuilder, BlockPool, Channel, Channels, DynSink, Encoding, Error, MessageType, Name,
    OptionsError, Outputs, Overwrite, Payloads, PrepareContext, Registry, Rows, SinkContext,
    TypeKey, Written,
};

/// The text, the notes, and the number of rows in the manifest.
type SinkOutput = (String, Vec<(String, u64)>, u64);

#[derive(Clone)]
pub(crate) struct SampleLog {
    pub(crate) channels: Arc<Channels>,
    batch: Batch,
}

impl SampleLog {
    /// Events: channel, time, payload.
    pub(crate) fn new(events: &[(&[u8], i64, &[u8])]) -> Self {
        let channels = Arc::new(Channels::default());
        let mut builder = BatchBuilder::default();
        for (sequence, (name, time, payload)) in (0i64..).zip(events) {
            let channel = Channel::new(Name::from_bytes(name), "log \"1\"", Encoding::Lcm);
            let id = channels.intern(channel).unwrap();
            builder.push_copy(*time, sequence, id, payload);
        }
        Self { channels, batch: builder.finish() }
    }

    /// Adds a decoded type: rows of one field `v`.
    pub(crate) fn decoded(self, events: &[u32], values: &[i32]) -> Self {
        self.with_rows(events, vec![("v", Arc::new(Int32Array::from(values.to_vec())))])
    }

    /// Adds a decoded type with fields of many kinds.
    pub(crate) fn decoded_pose(self, events: &[u32]) -> Self {
        let len = events.len();
        let x: ArrayRef = Arc::new(Int32Array::from(vec![1; len]));
        let (mut names, mut hash) =
            (ListBuilder::new(StringBuilder::new()), FixedSizeBinaryBuilder::new(2));
        for _ in events {
            names.append_value([Some("a;"), Some("")]);
            hash.append_value([0xff, 0]).unwrap();
        }
        let pos = vec![Some([Some(f64::NAN), Some(2.5)]); len];
        let pos = FixedSizeListArray::from_iter_primitive::<Float64Type, _, _>(pos, 2);
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("utime", Arc::new(Int64Array::from(vec![5; len]))),
            ("pos", Arc::new(pos)),
            ("names", Arc::new(names.finish())),
            ("s", Arc::new(StructArray::try_from(vec![("x", x)]).unwrap())),
            ("text", Arc::new(StringArray::from(vec![""; len]))),
            ("hash", Arc::new(hash.finish())),
        ];
        self.with_rows(events, columns)
    }

    /// Adds a decoded type: rows with a list of this many points each.
    pub(crate) fn scans(self, events: &[u32], lengths: &[usize]) -> Self {
        let total: usize = lengths.iter().sum();
        let x: ArrayRef =
            Arc::new(Float64Array::from_iter_values((0..total).map(|n| n as f64 / 2.0)));
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..total as i64));
        let points = StructArray::try_from(vec![("x", x), ("sequence", numbers)]).unwrap();
        let element = Arc::new(Field::new("item", points.data_type().clone(), true));
        let offsets = OffsetBuffer::from_lengths(lengths.iter().copied());
        let list = ListArray::new(element, offsets, Arc::new(points), None);
        let count: ArrayRef = Arc::new(Int64Array::from_iter_values(0..lengths.len() as i64));
        let columns: Vec<(&str, ArrayRef)> =
            vec![("utime", Arc::clone(&count)), ("points", Arc::new(list)), ("sequence", count)];
        self.with_rows(events, columns)
    }

    /// Adds a field `x` to every event.
    pub(crate) fn doubles(self, values: &[f64]) -> Self {
        let events: Vec<u32> = (0..values.len() as u32).collect();
        self.with_rows(&events, vec![("x", Arc::new(Float64Array::from(values.to_vec())))])
    }

    fn with_rows(self, events: &[u32], columns: Vec<(&str, ArrayRef)>) -> Self {
        let mut rows = self.batch.rows().to_vec();
        rows.push(Rows {
            message: MessageType::named("t", TypeKey(rows.len() as u64)).into(),
            payloads: Payloads::Kept,
            events: events.to_vec(),
            columns: RecordBatch::try_from_iter(columns).unwrap(),
        });
        Self { batch: self.batch.with_rows(rows), ..self }
    }

    /// Drops the payloads of decoded events.
    pub(crate) fn without_payloads(self) -> Self {
        Self { batch: self.batch.without_payloads(), ..self }
    }

    pub(crate) fn batch(&self) -> Batch {
        self.batch.clone()
    }

    /// The text that a sink writes for the log, cut into batches at `cuts`.
    pub(crate) fn written(&self, sink: &str, options: Value, cuts: &[usize]) -> String {
        self.written_with_notes(sink, options, cuts).0
    }

    /// The same, with the sink's notes.
    pub(crate) fn written_with_notes(
        &self,
        sink: &str,
        options: Value,
        cuts: &[usize],
    ) -> (String, Vec<(String, u64)>) {
        let (text, notes, rows) = self.write(sink, options, cuts).unwrap();
        assert_eq!(rows, self.batch.len() as u64);
        (text, notes)
    }

    /// The same for a sink whose lines are not one per event.
    pub(crate) fn lines_with_notes(
        &self,
        sink: &str,
        options: Value,
        cuts: &[usize],
    ) -> (String, Vec<(String, u64)>) {
        let header = u64::from(sink == "csv" || options.get("header").is_some());
        let (text, notes, rows) = self.write(sink, options, cuts).unwrap();
        assert_eq!(rows + header, text.lines().count() as u64);
        (text, notes)
    }

    /// The same for a file that grows while it is written.
    pub(crate) fn recorded_with_notes(
        &self,
        sink: &str,
        options: Value,
        cuts: &[usize],
    ) -> (String, Vec<(String, u64)>) {
        let outputs = Outputs::new(Overwrite::Refuse, false, &[]).in_place(true);
        let (text, notes, _) = self.write_into(outputs, sink, options, cuts).unwrap();
        (text, notes)
    }

    /// Only the lines.
    pub(crate) fn lines(&self, sink: &str, options: Value) -> String {
        self.write(sink, options, &[]).unwrap().0
    }

    /// The output of a sink or its error, without paths.
    fn outcome(&self, sink: &str, options: Value, cuts: &[usize]) -> Result<SinkOutput, String> {
        let written = self.write(sink, options, cuts);
        written
            .map_err(|error| error.to_string().split(": /").next().unwrap_or_default().to_owned())
    }

    /// The error of a sink.
    pub(crate) fn failure(&self, sink: &str, options: Value) -> String {
        self.write(sink, options, &[]).unwrap_err().to_string()
    }

    fn write(&self, sink: &str, options: Value, cuts: &[usize]) -> Result<SinkOutput, Error> {
        let outputs = Outputs::new(Overwrite::Refuse, false, &[]);
        self.write_into(outputs, sink, options, cuts)
    }

    fn write_into(
        &self,
        outputs: Outputs,
        sink: &str,
        options: Value,
        cuts: &[usize],
    ) -> Result<SinkOutput, Error> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let mut options: Map<String, Value> = options.as_object().unwrap().clone();
        options.insert("path".into(), path.to_str().unwrap().into());
        let sink = make(sink, options.into()).unwrap();
        assert_eq!(sink.traits().targets, [&*path]);
        let (outputs, buffers) = (Arc::new(outputs), BlockPool::new(64, 2));
        let (channels, len) = (Arc::clone(&self.channels), self.batch.len());
        let context =
            SinkContext { outputs: Arc::clone(&outputs), channels, ..SinkContext::standalone() };
        let mut output = sink.open(&context, &TaskPool::default()).unwrap();
        let mut written = Written::default();
        let ends = cuts.iter().map(|cut| cut % (len + 1)).chain([len]);
        let mut ends: Vec<usize> = ends.collect();
        ends.sort_unstable();
        let mut start = 0;
        for end in ends {
            let mut context = PrepareContext::new(&self.channels, &buffers);
            let piece = self.batch.slice(start, end - start);
            let block = sink.prepare(piece, &mut context)?;
            written.add(output.push(block)?);
            start = end;
        }
        written.add(output.finish().unwrap());
        let published = outputs.publish(|_, _| Ok(String::new())).unwrap();
        assert_eq!(written.events, len as u64, "sinks count events");
        Ok((fs::read_to_string(path).unwrap(), written.notes, published[0].rows))
    }
}

pub(crate) fn make(sink: &str, options: Value) -> Result<DynSink, OptionsError> {
    Registry::linked().sink(sink, options)
}

#[cfg(test)]
mod properties {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use serde_json::json;

    proptest! {
        // Each case syncs many files to the disk.
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn batch_boundaries_do_not_matter(
            events in vec((vec(any::<u8>(), 0..6), any::<i64>(), vec(any::<u8>(), 0..40)), 0..30),
            kinds in vec(0u8..3, 1..9),
            cuts in vec(any::<usize>(), 0..8))
        {
            let slices: Vec<(&[u8], i64, &[u8])> =
                events.iter().map(|(name, time, bytes)| (&name[..], *time, &bytes[..])).collect();
            let log = SampleLog::new(&slices);
            let of = |kind: u8| -> Vec<u32> {
                let kinds = (0..slices.len() as u32).zip(kinds.iter().cycle());
                kinds.filter(|(_, found)| **found == kind).map(|(event, _)| event).collect()
            };
            let values: Vec<i32> = (0..).take(of(1).len()).collect();
            let log = if values.is_empty() { log } else { log.decoded(&of(1), &values) };
            let log = if of(2).is_empty() { log } else { log.decoded_pose(&of(2)) };
            let fields = json!(["v", "names", "nowhere", "pos[-1]"]);
            let sinks = [
                ("jsonl", json!({ "payload": true })),
                ("jsonl", json!({ "fields": fields, "flatten": true })),
                ("jsonl", json!({ "payload": "text" })),
                ("csv", json!({ "payload": "hex" })),
                ("csv", json!({ "payload": "text" })),
                ("csv", json!({ "event_columns": [], "payload": "text" })),
                ("csv", json!({ "event_columns": ["size"] })),
                ("csv", json!({ "event_columns": [], "fields": fields })),
                ("text", json!({})),
            ];
            let lengths: Vec<usize> = of(0).iter().map(|event| *event as usize % 4).collect();
            let with_lists = match lengths.is_empty() {
                true => log.clone(),
                false => log.clone().scans(&of(0), &lengths),
            };
            for (sink, options) in [
                ("jsonl", json!({ "unnest": "points" })),
                ("csv", json!({ "unnest": "points", "fields": ["x", "v"],
                    "event_columns": ["size"] })),
                ("text", json!({ "unnest": "points" })),
                ("text", json!({ "unnest": "points", "line": "{x:.2} {utime}" })),
            ] {
                let whole = with_lists.lines_with_notes(sink, options.clone(), &[]);
                let cut = with_lists.lines_with_notes(sink, options, &cuts);
                prop_assert_eq!(cut, whole);
            }
            for (sink, options) in sinks {
                let whole = log.recorded_with_notes(sink, options.clone(), &[]);
                prop_assert_eq!(log.recorded_with_notes(sink, options.clone(), &cuts), whole);
                let whole = log.outcome(sink, options.clone(), &[]);
                prop_assert_eq!(log.outcome(sink, options, &cuts), whole);
            }
        }
    }
}
