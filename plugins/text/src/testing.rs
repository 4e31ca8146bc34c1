//! A small log, and sinks run as a pipeline runs them, for tests.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int32Array, RecordBatch};
use serde_json::{Map, Value};
use sluice_core::{
    Batch, BatchBuilder, BlockPool, Channel, Channels, EncodeContext, Encoding, Kind, Make,
    MessageType, Name, OptionsError, Outputs, Overwrite, Payloads, Registry, Rows, SinkContext,
    TypeKey,
};

pub(crate) struct Log {
    pub(crate) channels: Arc<Channels>,
    batch: Batch,
}

impl Log {
    /// Events: channel, time, payload.
    pub(crate) fn of(events: &[(&[u8], i64, &[u8])]) -> Self {
        let channels = Arc::new(Channels::default());
        let mut builder = BatchBuilder::default();
        for (sequence, (name, time, payload)) in (0i64..).zip(events) {
            let channel = Channel::new(Name::from_bytes(name), "log \"1\"", Encoding::Lcm);
            let id = channels.intern(channel).unwrap();
            builder.push_copy(*time, sequence, id, payload);
        }
        Self { channels, batch: builder.finish() }
    }

    /// The same with a decoded type more: rows of one field `v`.
    pub(crate) fn decoded(self, events: &[u32], values: &[i32]) -> Self {
        let mut rows = self.batch.rows().to_vec();
        let column: ArrayRef = Arc::new(Int32Array::from(values.to_vec()));
        rows.push(Rows {
            message: MessageType::named("t", TypeKey(rows.len() as u64)).into(),
            payloads: Payloads::Kept,
            events: events.to_vec(),
            columns: RecordBatch::try_from_iter([("v", column)]).unwrap(),
        });
        Self { batch: self.batch.with_rows(rows), ..self }
    }

    pub(crate) fn batch(&self) -> Batch {
        self.batch.clone()
    }

    /// What a sink writes of the log, cut into batches at `cuts`.
    pub(crate) fn written(&self, sink: &str, options: Value, cuts: &[usize]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let mut options: Map<String, Value> = options.as_object().unwrap().clone();
        options.insert("path".into(), path.to_str().unwrap().into());
        self.write(sink, options.into(), cuts, &path)
    }

    fn write(&self, sink: &str, options: Value, cuts: &[usize], path: &Path) -> String {
        let sink = make(sink, options).unwrap();
        assert_eq!(sink.targets(), [path]);
        let (outputs, buffers) =
            (Arc::new(Outputs::new(Overwrite::Refuse, false, &[])), BlockPool::new(64, 2));
        let (channels, len) = (Arc::clone(&self.channels), self.batch.len());
        let context =
            SinkContext { outputs: Arc::clone(&outputs), channels, ..SinkContext::standalone() };
        let mut output = sink.open(&context).unwrap();
        let mut written = 0;
        let ends = cuts.iter().map(|cut| cut % (len + 1)).chain([len]);
        let mut ends: Vec<usize> = ends.collect();
        ends.sort_unstable();
        let mut start = 0;
        for end in ends {
            let mut context = EncodeContext::new(&self.channels, &buffers);
            let piece = self.batch.slice(start, end - start);
            let block = sink.encode(piece, &mut context).unwrap();
            written += sink.append(output.as_mut(), block).unwrap();
            start = end;
        }
        written += sink.finish(output).unwrap();
        let published = outputs.publish(|_, _| Ok(String::new())).unwrap();
        assert_eq!((written, published[0].rows), (len as u64, len as u64));
        fs::read_to_string(path).unwrap()
    }
}

pub(crate) fn make(
    sink: &str,
    options: Value,
) -> Result<Box<dyn sluice_core::DynSink>, OptionsError> {
    let plugin = *Registry::linked().get(Kind::Sink, sink).unwrap();
    let Make::Sink(make) = plugin.make else { panic!("{sink} is no sink") };
    make(options)
}

#[cfg(test)]
mod properties {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use serde_json::json;

    proptest! {
        // Each case syncs six files to the disk.
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn batch_boundaries_do_not_matter(
            events in vec((vec(any::<u8>(), 0..6), any::<i64>(), vec(any::<u8>(), 0..40)), 0..30),
            cuts in vec(any::<usize>(), 0..8))
        {
            let slices: Vec<(&[u8], i64, &[u8])> =
                events.iter().map(|(name, time, payload)| (&name[..], *time, &payload[..])).collect();
            let log = Log::of(&slices);
            let values: Vec<i32> = (0..).take(slices.len().div_ceil(2)).collect();
            let even: Vec<u32> = (0..slices.len() as u32).step_by(2).collect();
            let log = if even.is_empty() { log } else { log.decoded(&even, &values) };
            let sinks = [
                ("jsonl", json!({ "payload": true })),
                ("csv", json!({ "payload": "hex" })),
                ("text", json!({})),
            ];
            for (sink, options) in sinks {
                let whole = log.written(sink, options.clone(), &[]);
                prop_assert_eq!(log.written(sink, options, &cuts), whole);
            }
        }
    }
}
