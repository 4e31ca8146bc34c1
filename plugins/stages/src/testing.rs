//! Runs a stage in tests, made by name from options as in a pipeline.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int32Array, RecordBatch};
use serde_json::Value;
use sluice_model::{
    Batch, BatchBuilder, Channel, Channels, Encoding, Error, FoldQuery, MessageType, Name,
    OptionsError, Payloads, Registry, Rows, Stage, StageContext, TimeWindow, TypeKey,
};

pub(crate) struct StageRunner {
    stage: Stage,
    pub(crate) channels: Arc<Channels>,
    pub(crate) origin: Option<i64>,
    pub(crate) wanted: TimeWindow,
    pub(crate) filtered: u64,
    pub(crate) notes: Vec<(String, u64)>,
    sequence: i64,
}

fn make(name: &str, options: Value) -> Result<Stage, OptionsError> {
    Registry::linked().stage(name, options)
}

pub(crate) fn times(batch: &Batch) -> Vec<i64> {
    batch.timestamps().to_vec()
}

/// Decoded rows of one field `v`.
pub(crate) fn int_rows(name: &str, events: &[u32], values: &[i32]) -> Rows {
    rows(name, events, vec![("v", Arc::new(Int32Array::from(values.to_vec())))])
}

/// Decoded rows of a type with this name.
pub(crate) fn rows(name: &str, events: &[u32], columns: Vec<(&str, ArrayRef)>) -> Rows {
    let columns = columns.into_iter().map(|(name, column)| (name, column, true));
    Rows {
        message: MessageType::named(name, TypeKey(1)).into(),
        payloads: Payloads::Kept,
        events: events.to_vec(),
        columns: RecordBatch::try_from_iter_with_nullable(columns).unwrap(),
    }
}

impl StageRunner {
    pub(crate) fn new(name: &str, options: Value) -> Self {
        Self {
            stage: make(name, options).unwrap(),
            channels: Arc::default(),
            origin: None,
            wanted: TimeWindow::default(),
            filtered: 0,
            notes: Vec::new(),
            sequence: 0,
        }
    }

    pub(crate) fn refusal(name: &str, options: Value) -> OptionsError {
        make(name, options).unwrap_err()
    }

    pub(crate) fn channel(name: &str) -> Channel {
        let mut channel = Channel::new(Name::from_text(name), "log", Encoding::Lcm);
        channel.type_name = Some("pkg.type_t".into());
        channel.metadata.insert("key".into(), "value".into());
        channel
    }

    /// A batch of events on these channels at these times, with consecutive sequence numbers.
    pub(crate) fn batch(&mut self, events: &[(&str, i64)]) -> Batch {
        let mut builder = BatchBuilder::default();
        for (name, time) in events {
            let id = self.channels.intern(Self::channel(name)).unwrap();
            let payload = format!("a payload of some length: {name} at {time}");
            builder.push_copy(*time, self.sequence, id, payload.as_bytes());
            self.sequence += 1;
        }
        builder.finish()
    }

    /// The output for one batch.
    pub(crate) fn push(&mut self, batch: Batch) -> Result<Batch, Error> {
        self.step(|stage, context| match stage {
            Stage::Map(map) => Ok(vec![map.apply(batch, context)?]),
            Stage::Fold(fold) => fold.push(batch, context),
            Stage::Chain(_) => panic!("no stage here is a chain"),
        })
    }

    /// The output for all batches and the end.
    pub(crate) fn all(&mut self, batches: impl IntoIterator<Item = Batch>) -> Result<Batch, Error> {
        let mut out = Vec::new();
        for batch in batches {
            out.push(self.push(batch)?);
        }
        out.push(self.step(|stage, context| match stage {
            Stage::Fold(fold) => fold.finish(context),
            _ => Ok(Vec::new()),
        })?);
        Ok(joined(&out))
    }

    /// The query of a stage with state.
    pub(crate) fn fold_query(&self) -> FoldQuery {
        let Stage::Fold(fold) = &self.stage else { panic!("the stage has no memory") };
        fold.query()
    }

    pub(crate) fn needs_origin(&self) -> bool {
        self.stage.needs_origin()
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(&self.stage, Stage::Fold(fold) if fold.is_done())
    }

    fn step(
        &mut self,
        step: impl FnOnce(&mut Stage, &mut StageContext<'_>) -> Result<Vec<Batch>, Error>,
    ) -> Result<Batch, Error> {
        let mut context = StageContext::new(&self.channels, self.origin).within(self.wanted);
        let out = step(&mut self.stage, &mut context)?;
        self.filtered += context.report.filtered;
        self.notes.append(&mut context.report.notes);
        Ok(joined(&out))
    }
}

fn joined(batches: &[Batch]) -> Batch {
    let rows = |(at, batch): (usize, &Batch)| {
        (0..batch.len() as u32).map(move |row| (at as u32, row)).collect::<Vec<_>>()
    };
    let picks: Vec<(u32, u32)> = batches.iter().enumerate().flat_map(rows).collect();
    Batch::interleave(batches, &picks)
}

#[cfg(test)]
mod properties {
    //! Batch boundaries do not matter to any stage, and every event is counted.

    use std::collections::BTreeMap;

    use super::*;
    use arrow_array::types::Int64Type;
    use arrow_array::{Int64Array, ListArray};
    use proptest::prelude::*;
    use serde_json::json;
    use sluice_model::ChannelId;

    /// Events and, for each, whether a batch starts there.
    type Events = Vec<(usize, i64, bool)>;

    const NAMES: [&str; 4] = ["A", "B", "CAM_1", "odd\\xff \"name\""];

    fn events() -> impl Strategy<Value = Events> {
        proptest::collection::vec((0..NAMES.len(), -20i64..60, any::<bool>()), 0..120)
    }

    /// The output: events with their channels by name, the filtered count, and notes by text.
    #[derive(Debug, PartialEq)]
    struct StageOutcome {
        events: Vec<(i64, i64, String, String, Vec<u8>)>,
        filtered: u64,
        notes: BTreeMap<String, u64>,
    }

    fn outcome(name: &str, options: Value, events: &Events, cut: bool) -> StageOutcome {
        let mut run = StageRunner::new(name, options);
        run.origin = events.iter().map(|event| event.1).min();
        let named = |events: &[(usize, i64, bool)]| -> Vec<(&str, i64)> {
            events.iter().map(|event| (NAMES[event.0], event.1)).collect()
        };
        let pieces: Vec<_> = events.chunk_by(|_, next| !(cut && next.2)).map(named).collect();
        let batches: Vec<Batch> =
            pieces.iter().map(|piece| decoded(run.batch(piece), piece)).collect();
        let out = run.all(batches).unwrap();
        let mut notes = BTreeMap::new();
        for (what, count) in run.notes {
            *notes.entry(what).or_default() += count;
        }
        let described = |row: usize| {
            let event = out.event(row);
            let channel = run.channels.get(event.channel);
            let origin = run.channels.get(ChannelId(out.origins()[row]));
            let names = (channel.name.text().to_owned(), origin.name.text().to_owned());
            (event.timestamp, event.sequence, names.0, names.1, event.payload.to_vec())
        };
        let events = (0..out.len()).map(described).collect();
        StageOutcome { events, filtered: run.filtered, notes }
    }

    /// Decodes the channels `A`, to their times, and `B`, to lists of that length.
    fn decoded(batch: Batch, events: &[(&str, i64)]) -> Batch {
        let of = |wanted: &str| -> (Vec<u32>, Vec<i64>) {
            let events = (0u32..).zip(events).filter(|(_, event)| event.0 == wanted);
            events.map(|(at, event)| (at, event.1)).unzip()
        };
        let ((a, times), (b, lengths)) = (of("A"), of("B"));
        let list = |len: &i64| (*len >= 0).then(|| (0..len % 4).map(Some).collect::<Vec<_>>());
        let lists: ListArray =
            ListArray::from_iter_primitive::<Int64Type, _, _>(lengths.iter().map(list));
        let times: ArrayRef = Arc::new(Int64Array::from(times));
        let all =
            [rows("a_t", &a, vec![("t", times)]), rows("b_t", &b, vec![("l", Arc::new(lists))])];
        batch.with_rows(all.into_iter().filter(|rows| !rows.events.is_empty()).collect())
    }

    fn options() -> impl Strategy<Value = (&'static str, Value)> {
        let ns = |n: i64| format!("{n}ns");
        prop_oneof![
            (-10i64..30, 31i64..50).prop_map(move |(start, end)| (
                "filter",
                json!({ "start": ns(start), "end": ns(end), "exclude": "CAM_*" })
            )),
            (-5i64..5).prop_map(|_| ("filter", json!({ "channels": ["A", "odd*"] }))),
            (-10i64..40, any::<bool>()).prop_map(|(than, pass)| (
                "filter",
                json!({ "where": format!("t > {than} or l[-1] in [1, 2] and len(l) + t != 3"),
                    "missing": if pass { "pass" } else { "drop" }, "exclude": "CAM_*" })
            )),
            (0i64..60).prop_map(|than| (
                "filter",
                json!({ "where": format!("$sequence < {than} or t == 'text' or $channel matches \
                '?'") })
            )),
            (-9i64..9).prop_map(move |by| (
                "time",
                json!({ "shift": ns(by), "clip_start": "+10ns", "clip_end": "+40ns" })
            )),
            (0i64..40, any::<bool>(), 1u64..40, 0u64..2000).prop_map(
                move |(window, drop, events, bytes)| (
                    "time",
                    json!({ "sort": ns(window), "late": if drop { "drop" } else { "keep" },
                        "sort_events": events, "sort_bytes": bytes, "shift": "-3ns" })
                )
            ),
            (0i64..90).prop_map(move |window| ("time", json!({ "sort": ns(window) }))),
            Just((
                "rename",
                json!({ "channels": [{ "from": "re:([AB])", "to": "x$1" }], "prefix": "p" })
            )),
            (1u64..5).prop_map(|every| ("sample", json!({ "every": every, "channels": "?" }))),
            (1u64..30).prop_map(|ns| ("sample", json!({ "max_hz": 1e9 / ns as f64 }))),
            (0i64..40, 0u64..12, any::<bool>()).prop_map(move |(longer, factor, all)| (
                "gaps",
                json!({ "longer_than": ns(longer), "factor": factor as f64 / 4.0,
                    "channels": if all { json!([]) } else { json!("[AB]") } })
            )),
            (0u64..50, 0u64..20)
                .prop_map(|(all, each)| ("limit", json!({ "events": all, "per_channel": each }))),
        ]
    }

    proptest! {
        #[test]
        fn batch_boundaries_do_not_matter((name, options) in options(), events in events()) {
            let whole = outcome(name, options.clone(), &events, false);
            prop_assert_eq!(whole.events.len() as u64 + whole.filtered, events.len() as u64);
            prop_assert_eq!(outcome(name, options, &events, true), whole);
        }

        #[test]
        fn a_sort_that_is_wide_enough_is_a_stable_sort(events in events()) {
            let sorted = outcome("time", json!({ "sort": "1s" }), &events, true);
            let found: Vec<_> = sorted.events.iter().map(|event| (event.0, event.1)).collect();
            let mut wanted: Vec<_> =
                events.iter().enumerate().map(|(n, event)| (event.1, n as i64)).collect();
            wanted.sort();
            prop_assert_eq!(found, wanted);
        }

        #[test]
        fn events_that_are_not_late_come_in_order(window in 0i64..40, events in events()) {
            let options = json!({ "sort": format!("{window}ns"), "late": "drop" });
            let sorted = outcome("time", options, &events, true);
            prop_assert!(sorted.events.is_sorted_by_key(|event| (event.0, event.1)));
        }
    }
}
