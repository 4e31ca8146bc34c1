//! Tests of the stage, made from options and fed with batches.

mod mistakes;

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, FixedSizeListArray, Float64Array, Int64Array, ListArray, RecordBatch,
};
use arrow_schema::{DataType, Field};
use datafusion::arrow::buffer::OffsetBuffer;
use serde_json::{Value, json};
use sluice_model::{
    Batch, BatchBuilder, Channel, Channels, Encoding, Error, MessageType, Name, OptionsError,
    Payloads, Registry, Rows, Stage, StageContext, TypeKey,
};

/// A running stage, part by part.
struct StageRun {
    parts: Vec<Stage>,
    channels: Arc<Channels>,
    entered: u64,
    filtered: u64,
    added: u64,
    notes: Vec<(String, u64)>,
}

fn make(options: Value) -> Result<Stage, OptionsError> {
    Registry::linked().stage("sql", options)
}

fn option_error(options: Value) -> String {
    let error = make(options).unwrap_err();
    format!("{}: {}", error.path.join("."), error.message)
}

/// Events on channels at times, with one field each.
fn batch(channels: &Channels, events: &[(&str, i64, f64)]) -> Batch {
    let mut builder = BatchBuilder::default();
    for (number, (name, time, _)) in events.iter().enumerate() {
        let channel = Channel::new(Name::from_text(name), "log", Encoding::Lcm);
        let id = channels.intern(channel).unwrap();
        builder.push_copy(*time, number as i64, id, format!("{name} at {time}").as_bytes());
    }
    let mut names: Vec<&str> = events.iter().map(|event| event.0).collect();
    names.sort_unstable();
    names.dedup();
    let rows = names.into_iter().filter(|name| *name != "RAW").map(|name| {
        let mine = (0u32..).zip(events).filter(|(_, event)| event.0 == name);
        let (events, values): (Vec<u32>, Vec<f64>) = mine.map(|(at, e)| (at, e.2)).unzip();
        let field = if name == "B" { "b" } else { "v" };
        rows(name, events, field, Arc::new(Float64Array::from(values)))
    });
    let rows: Vec<Rows> = rows.collect();
    builder.finish().with_rows(rows)
}

fn rows(name: &str, events: Vec<u32>, field: &str, column: ArrayRef) -> Rows {
    let columns = RecordBatch::try_from_iter_with_nullable([(field, column, true)]).unwrap();
    let message = MessageType::named(name, TypeKey(1)).into();
    Rows { message, payloads: Payloads::Kept, events, columns }
}

/// One step of a part of a stage.
type PartStep<'w> = dyn FnMut(&mut Stage, &mut StageContext<'_>) -> Result<Vec<Batch>, Error> + 'w;

impl StageRun {
    fn from_options(options: Value) -> Self {
        Self {
            parts: make(options).unwrap().into_parts(),
            channels: Arc::default(),
            entered: 0,
            filtered: 0,
            added: 0,
            notes: Vec::new(),
        }
    }

    fn from_query(query: &str) -> Self {
        Self::from_options(json!({ "query": query }))
    }

    /// All results for these batches.
    fn all(&mut self, batches: Vec<Batch>) -> Result<Vec<Batch>, Error> {
        let mut output = batches;
        self.entered = output.iter().map(|batch| batch.len() as u64).sum();
        for part in &mut self.parts {
            let mut next = Vec::new();
            let mut step = |work: &mut PartStep<'_>| -> Result<usize, Error> {
                let mut context = StageContext::new(&self.channels, None);
                let got = work(part, &mut context)?;
                self.filtered += context.report.filtered;
                self.added += context.report.added.len() as u64;
                self.notes.append(&mut context.report.notes);
                let count = got.len();
                next.extend(got);
                Ok(count)
            };
            let mut more = |part: &mut Stage, context: &mut StageContext<'_>| match part {
                Stage::Fold(fold) => fold.more(context),
                _ => Ok(Vec::new()),
            };
            for batch in output {
                step(&mut |part, context| match part {
                    Stage::Map(map) => Ok(vec![map.apply(batch.clone(), context)?]),
                    Stage::Fold(fold) => fold.push(batch.clone(), context),
                    Stage::Chain(_) => panic!("parts are no chains"),
                })?;
                while step(&mut more)? > 0 {}
            }
            step(&mut |part, context| match part {
                Stage::Fold(fold) => fold.finish(context),
                _ => Ok(Vec::new()),
            })?;
            while step(&mut more)? > 0 {}
            output = next;
        }
        let left: u64 = output.iter().map(|batch| batch.len() as u64).sum();
        assert_eq!(self.entered + self.added, left + self.filtered, "the books balance");
        output.retain(|batch| !batch.is_empty());
        Ok(output)
    }

    /// The channel, time, sequence number and field `x` of each result.
    fn events_of(&mut self, batches: Vec<Batch>) -> Vec<(String, i64, i64, Option<f64>)> {
        let output = self.all(batches).unwrap();
        let mut events = Vec::new();
        for batch in &output {
            let mut values = vec![None; batch.len()];
            for rows in batch.rows() {
                let Some(column) = rows.columns.column_by_name("x") else { continue };
                for (row, event) in rows.events.iter().enumerate() {
                    let value = match column.as_primitive_opt::<Float64Type>() {
                        Some(column) => column.value(row),
                        None => column.as_primitive::<Int64Type>().value(row) as f64,
                    };
                    values[*event as usize] = Some(value);
                }
            }
            for (event, value) in batch.iter().zip(values) {
                let name = self.channels.get(event.channel).name.text().to_owned();
                events.push((name, event.timestamp, event.sequence, value));
            }
        }
        events
    }
}

/// A few events in two batches.
fn two_batches(run: &StageRun) -> Vec<Batch> {
    let first = [("A", 10, 1.0), ("B", 11, 2.0), ("A", 12, 3.0), ("RAW", 13, 0.0)];
    vec![batch(&run.channels, &first), batch(&run.channels, &[("A", 20, 5.0), ("B", 21, 4.0)])]
}

fn event(name: &str, time: i64, number: i64, x: f64) -> (String, i64, i64, Option<f64>) {
    (name.to_owned(), time, number, Some(x))
}

#[test]
fn rows_inherit_time_channel_and_number_from_their_event() {
    let mut run = StageRun::from_query("select v * 2 as x from A where v > 1");
    let events = two_batches(&run);
    assert_eq!(run.events_of(events), [event("A", 12, 2, 6.0), event("A", 20, 0, 10.0)]);
    assert_eq!((run.filtered, run.added), (4, 0));
}

#[test]
fn columns_of_the_query_override_those_of_the_event() {
    let query = "select timestamp + interval '1 second' as timestamp, 'X' as channel, sequence + \
                 100 as sequence, v as x from A limit 1 offset 1";
    let mut run = StageRun::from_query(query);
    let events = two_batches(&run);
    assert_eq!(run.events_of(events), [event("X", 1_000_000_012, 102, 3.0)]);
}

#[test]
fn messages_that_differ_in_whether_lengths_of_lists_are_known_are_of_one_type() {
    let item = || Arc::new(Field::new("item", DataType::Float64, true));
    let numbers = || Arc::new(Float64Array::from(vec![1.0, 2.0, 3.0, 4.0]));
    let fixed: ArrayRef = Arc::new(FixedSizeListArray::new(item(), 2, numbers(), None));
    let offsets = OffsetBuffer::from_lengths([2, 2]);
    let plain: ArrayRef = Arc::new(ListArray::new(item(), offsets, numbers(), None));
    for columns in [[&fixed, &plain], [&plain, &fixed]] {
        let query = "select max(timestamp) as timestamp, 'X' as channel, sum(v[2]) as x from A";
        let mut run = StageRun::from_options(json!({ "query": query, "memory": "64MiB" }));
        let events = |column| {
            let events = [("A", 10, 0.0), ("A", 12, 0.0)];
            let rows = vec![rows("A", vec![0, 1], "v", Arc::clone(column))];
            batch(&run.channels, &events).with_rows(rows)
        };
        let events = columns.map(events).to_vec();
        let sums: Vec<_> = run.events_of(events).into_iter().map(|event| event.3).collect();
        assert_eq!((sums, &run.notes), (vec![Some(12.0)], &Vec::new()));
    }
}

#[test]
fn all_events_are_a_table_with_their_payloads() {
    let mut run =
        StageRun::from_query("select payload, channel from events where channel like 'R%'");
    let events = two_batches(&run);
    let output = run.all(events).unwrap();
    assert_eq!(output.len(), 1);
    assert_eq!((output[0].payload(0), output[0].rows().len()), (&b"RAW at 13"[..], 0));
}

#[test]
fn payload_sizes_are_a_column_but_no_field_beside_a_payload() {
    let mut run = StageRun::from_query("select size as x, sequence from events where size < 8");
    let events = two_batches(&run);
    let expected = [
        event("A", 10, 0, 7.0),
        event("B", 11, 1, 7.0),
        event("A", 12, 2, 7.0),
        event("A", 20, 0, 7.0),
        event("B", 21, 1, 7.0),
    ];
    assert_eq!(run.events_of(events), expected);
    let mut run = StageRun::from_query("select * from events where channel = 'RAW'");
    let events = two_batches(&run);
    let output = run.all(events).unwrap();
    assert_eq!((output[0].payload(0), output[0].rows().len()), (&b"RAW at 13"[..], 0));
    let mut run = StageRun::from_query("select size, channel as c from events");
    let events: Vec<Batch> =
        two_batches(&run).into_iter().map(|batch| batch.without_payloads()).collect();
    let output = run.all(events).unwrap();
    let sizes = output[0].rows()[0].columns.column_by_name("size").unwrap().clone();
    assert_eq!((0..4).map(|row| sizes.is_null(row)).collect::<Vec<_>>(), [true, true, true, false]);
}

#[test]
fn rows_of_several_tables_come_in_the_order_of_their_events() {
    let mut run = StageRun::from_query("select b as x from B union all select v as x from A");
    let events = two_batches(&run);
    let expected = [
        event("A", 10, 0, 1.0),
        event("B", 11, 1, 2.0),
        event("A", 12, 2, 3.0),
        event("A", 20, 0, 5.0),
        event("B", 21, 1, 4.0),
    ];
    assert_eq!(run.events_of(events), expected);
}

#[test]
fn elements_of_lists_become_rows_of_their_event() {
    let mut run =
        StageRun::from_query("select unnest(make_array(v, v + 1)) as x from A where v < 5");
    let events = two_batches(&run);
    let expected = [
        event("A", 10, 0, 1.0),
        event("A", 10, 0, 2.0),
        event("A", 12, 2, 3.0),
        event("A", 12, 2, 4.0),
    ];
    assert_eq!(run.events_of(events), expected);
    assert_eq!((run.filtered, run.added), (4, 2));
}

#[test]
fn a_query_over_a_channel_that_never_comes_is_empty() {
    let mut run = StageRun::from_query("select v as x from MISSING");
    let events = two_batches(&run);
    assert_eq!(run.events_of(events), []);
    let mut run = StageRun::from_query("select payload from RAW");
    let events = two_batches(&run);
    assert_eq!(run.events_of(events), []);
    assert!(run.notes[0].0.contains("put the stage `decode` before"), "{:?}", run.notes);
}

#[test]
fn a_query_over_several_channels_says_which_one_never_came() {
    let mut run = StageRun::from_query("select v from A union all select v from MISSING");
    let events = two_batches(&run);
    let message = run.all(events).unwrap_err().to_string();
    assert!(
        message.contains("no decoded event of `MISSING` came") && message.contains("`tables`"),
        "{message}"
    );
    let query = "select v as x from A union all select v as x from MISSING";
    let mut run = StageRun::from_options(
        json!({ "query": query, "tables": { "A": "v double", "MISSING": "v double" } }),
    );
    let events = two_batches(&run);
    assert_eq!(run.events_of(events).len(), 3);
}

#[test]
fn one_channel_may_have_messages_of_several_types() {
    let mut run = StageRun::from_query("select v as x from A");
    let events = batch(&run.channels, &[("A", 1, 0.5), ("A", 2, 0.0), ("A", 3, 1.5)]);
    let other = rows("other", vec![1], "v", Arc::new(Int64Array::from(vec![7])));
    let mut all: Vec<Rows> = events.rows().iter().map(|rows| rows.pick(&[0, 2])).collect();
    all.push(other);
    let output = run.events_of(vec![events.with_rows(all)]);
    assert_eq!(output, [event("A", 1, 0, 0.5), event("A", 2, 1, 7.0), event("A", 3, 2, 1.5)]);
}

#[test]
fn aggregates_need_a_memory_limit_and_return_new_events_in_order() {
    let query =
        "select max(timestamp) as timestamp, channel, count(*) as x from events group by channel";
    let message = option_error(json!({ "query": query }));
    assert!(message.starts_with("query: GROUP BY needs all rows"), "{message}");
    assert!(message.contains("`memory = \"256MiB\"`"), "{message}");
    let mut run = StageRun::from_options(json!({ "query": query, "memory": "16MiB" }));
    let events = two_batches(&run);
    let expected = [event("RAW", 13, 0, 1.0), event("A", 20, 1, 3.0), event("B", 21, 2, 2.0)];
    assert_eq!(run.events_of(events), expected);
    assert_eq!((run.filtered, run.added), (6, 3));
    let new_channels = run.channels.since(3);
    assert!(
        new_channels.len() == 3 && new_channels.iter().all(|channel| &*channel.source == "sql"),
        "{new_channels:?}"
    );
}

#[test]
fn joins_sorts_windows_and_subqueries_see_all_rows() {
    let ask = |query: &str| {
        let mut run =
            StageRun::from_options(json!({ "query": query, "memory": "16MiB", "channel": "OUT" }));
        let events = two_batches(&run);
        run.events_of(events)
            .into_iter()
            .map(|(_, time, _, x)| (time, x.unwrap()))
            .collect::<Vec<_>>()
    };
    let joined = "select a.timestamp, a.v + b.b as x from A a join B b on a.v < b.b";
    assert_eq!(ask(joined), [(10, 3.0), (10, 5.0), (12, 7.0)]);
    assert_eq!(
        ask("select timestamp, v as x from A order by v desc limit 2"),
        [(20, 5.0), (12, 3.0)]
    );
    let window = "select timestamp, sum(v) over (order by timestamp) as x from A";
    assert_eq!(ask(window), [(10, 1.0), (12, 4.0), (20, 9.0)]);
    let itself = "select a.timestamp, b.v as x from A a join A b on a.timestamp = b.timestamp";
    assert_eq!(ask(itself), [(10, 1.0), (12, 3.0), (20, 5.0)]);
    let above = "select timestamp, v as x from A where v > (select avg(b) from B)";
    assert_eq!(ask(above), [(20, 5.0)]);
    assert_eq!(ask("select distinct timestamp, 1.0 as x from A where v < 2"), [(10, 1.0)]);
    let numbered = "select distinct 2 as two, -v as x, timestamp '1970-01-01' as timestamp from A";
    assert_eq!(ask(numbered), [(0, -5.0), (0, -3.0), (0, -1.0)]);
    let last = "select distinct on (channel) timestamp, v as x from A order by channel, v desc";
    assert_eq!(ask(last), [(20, 5.0)]);
    let each = "select distinct on (v) v as x, v, timestamp from A order by v desc, timestamp";
    assert_eq!(ask(each), [(20, 5.0), (12, 3.0), (10, 1.0)]);
    assert_eq!(ask("select distinct on (v) timestamp, v as x from A").len(), 3);
}

#[test]
fn long_conditions_do_not_overflow_the_stack() {
    for query in [
        format!("select v{} as x from A where v = 1", " + 1".repeat(390)),
        format!("select 391.0 as x from A where {}", ["v = 1"; 190].join(" and ")),
        format!("select 391.0 as x from A where v = 1 and {}v > 0", "not not ".repeat(6)),
    ] {
        let mut run = StageRun::from_query(&query);
        let events = two_batches(&run);
        assert_eq!(run.events_of(events), [event("A", 10, 0, 391.0)]);
    }
}

/// Many events on A, some on B in between, in batches of `batch_len`.
fn many_events(run: &StageRun, count: i64, batch_len: usize) -> Vec<Batch> {
    let each = |n: i64| (if n % 3 == 1 { "B" } else { "A" }, n, n as f64);
    let all: Vec<_> = (0..count).map(each).collect();
    all.chunks(batch_len).map(|events| batch(&run.channels, events)).collect()
}

#[test]
fn the_order_of_rows_does_not_depend_on_batch_sizes() {
    let both = "select timestamp, v as x from A union all select timestamp, b as x from B";
    let named = "select timestamp, 1 as x from A union all select timestamp, 2 as x from B";
    let bare = "select 1 as x from A union all select 2 as x from B";
    for query in [
        format!("select timestamp, x from ({both} limit 2500)"),
        format!("select timestamp, x from ({named} limit 2500)"),
        format!("select 7 as timestamp, x from ({bare} limit 2500)"),
    ] {
        let ask = |batch_len: usize| {
            let mut run = StageRun::from_options(
                json!({ "query": &query, "memory": "16MiB", "channel": "OUT" }),
            );
            let events = many_events(&run, 9_000, batch_len);
            run.events_of(events)
        };
        let one = ask(9_000);
        assert!(!one.is_empty());
        for batch_len in [4_000, 700, 50] {
            assert!(one == ask(batch_len), "{query}, in batches of {batch_len}");
        }
    }
}

#[test]
fn a_table_with_few_rows_does_not_block_others() {
    let query = "select max(timestamp) as timestamp, count(*) as x from \
                 (select timestamp, v from A union all select timestamp, b as v from B)";
    let mut run =
        StageRun::from_options(json!({ "query": query, "memory": "8MiB", "channel": "OUT" }));
    let mut events = many_events(&run, 3, 3);
    for first in 0..100i64 {
        let all: Vec<_> = (0..4_000).map(|n| ("A", 10 + first * 4_000 + n, 1.0)).collect();
        events.push(batch(&run.channels, &all));
    }
    assert_eq!(run.events_of(events), [event("OUT", 400_009, 0, 400_003.0)]);
}

#[test]
fn a_query_dropped_midway_ends() {
    let query = "select timestamp, channel, v as x from A order by v";
    let mut run = StageRun::from_options(json!({ "query": query, "memory": "16MiB" }));
    let events = two_batches(&run);
    let mut context = StageContext::new(&run.channels, None);
    for part in &mut run.parts {
        if let Stage::Fold(fold) = part {
            fold.push(events[0].clone(), &mut context).unwrap();
        }
    }
    drop(run.parts);
}

/// A run that is aborted once it has been asked often enough.
#[derive(Default)]
struct AbortedRun {
    /// How many questions are still answered with no; negative for all.
    left: std::sync::atomic::AtomicI64,
}

impl sluice_model::RunHost for AbortedRun {
    fn log_line(&self, _: &str, _: &str) {}

    fn note(&self, _: &str, _: &str, _: u64) {}

    fn is_aborted(&self) -> bool {
        self.left.fetch_sub(1, std::sync::atomic::Ordering::Relaxed) == 0
    }
}

#[test]
fn joins_of_rows_that_they_have_read_can_be_aborted() {
    for (condition, asks_before) in [("a.channel = b.channel", 1), ("a.v + b.v < 0", 20)] {
        let query = format!(
            "select max(a.timestamp) as timestamp, count(*) as x from A a, A b where {condition}"
        );
        let mut run =
            StageRun::from_options(json!({ "query": query, "memory": "64MiB", "channel": "OUT" }));
        let events: Vec<_> = (0..40_000).map(|n| ("A", n, 1.0)).collect();
        let events = batch(&run.channels, &events);
        let host = Arc::new(AbortedRun { left: (-1).into() });
        let mut context = StageContext::new(&run.channels, None);
        context.run = sluice_model::RunHandle::new("sql", Arc::clone(&host) as _, Arc::default());
        let Some(Stage::Fold(fold)) = run.parts.last_mut() else { panic!("it needs all rows") };
        fold.push(events, &mut context).unwrap();
        host.left.store(asks_before, std::sync::atomic::Ordering::Relaxed);
        let error = fold.finish(&mut context).unwrap_err();
        assert!(matches!(error.kind(), sluice_model::ErrorKind::Aborted), "{error}");
    }
}
