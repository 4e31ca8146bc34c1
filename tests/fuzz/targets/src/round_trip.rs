//! Logs that are read, written in some format, and read again.

use std::sync::Arc;

use serde_json::json;
use sluice_io::tasks::TaskPool;
use sluice_kit::contract::{PlainEvent, gather};
use sluice_model::{
    Batch, BlockPool, Channels, PrepareContext, Query, ReadContext, SinkContext, Source, SplitStart,
};

use crate::inputs;

/// The source of the input, and the format for writing and reading it again.
const WAYS: [(&str, &str); 6] = [
    ("lcm-log", "lcm-log"),
    ("lcm-log", "jsonl"),
    ("lcm-log", "archive"),
    ("lcm-log", "parquet"),
    ("vel", "vel"),
    ("jsonl", "lcm-log"),
];

/// The events in any bytes round-trip, unless the sink reports what it cannot represent.
pub fn round_trip(bytes: &[u8]) {
    let Some((which, log)) = bytes.split_first() else { return };
    let (from, to) = WAYS[usize::from(*which) % WAYS.len()];
    let source = inputs::source(from, json!({ "path": inputs::file("in", log) }));
    let channels = Arc::default();
    let Some(batches) = batches(&*source, &channels) else { return };
    let mut before: Vec<_> = batches.iter().flat_map(|batch| plain(batch, &channels)).collect();
    if before.is_empty() || !is_written(to, &batches, channels) {
        return;
    }
    let source = inputs::source(to, json!({ "path": inputs::path("written").join("out") }));
    let after = gather(&*source, u64::MAX).expect("what was written is read");
    assert_eq!(after.damage, []);
    let mut after = after.events;
    if to == "parquet" {
        // Rows are sorted by channel.
        before.sort_by(by_all);
        after.sort_by(by_all);
    }
    if !["jsonl", "parquet"].contains(&to) {
        // Only the whole run shows whether the loss of a source matters.
        before.iter_mut().chain(&mut after).for_each(|event| event.source.clear());
    }
    if to == "vel" {
        // Its events have no numbers, and get their index.
        before.iter_mut().chain(&mut after).for_each(|event| event.sequence = 0);
    }
    assert_eq!(before, after);
}

fn by_all(a: &PlainEvent, b: &PlainEvent) -> std::cmp::Ordering {
    let key = |e: &PlainEvent| (e.timestamp, e.sequence, e.channel.clone(), e.payload.clone());
    key(a).cmp(&key(b))
}

/// All batches of a log; `None` if it is refused.
fn batches(source: &dyn Source, channels: &Arc<Channels>) -> Option<Vec<Batch>> {
    let context = ReadContext { channels: Arc::clone(channels), ..ReadContext::standalone("test") };
    let mut batches = Vec::new();
    for split in source.splits(u64::MAX, &Query::default()).ok()? {
        let mut reader = source.read(&split, SplitStart::At(split.start), &context).ok()?;
        while let Some(batch) = reader.next_batch().ok()? {
            batches.push(batch);
        }
    }
    Some(batches)
}

fn plain(batch: &Batch, channels: &Channels) -> Vec<PlainEvent> {
    let event = batch.iter().map(|event| {
        let channel = channels.get(event.channel);
        PlainEvent {
            timestamp: event.timestamp,
            sequence: event.sequence,
            source: channel.source.to_string(),
            channel: channel.name.text().to_owned(),
            payload: event.payload.to_vec(),
        }
    });
    event.collect()
}

/// Writes the file `out`; false if the sink refuses an event or reports a loss.
fn is_written(format: &str, batches: &[Batch], channels: Arc<Channels>) -> bool {
    let mut options = json!({ "path": inputs::empty_folder("written").join("out") });
    match format {
        "jsonl" => options["payload"] = json!(true),
        "parquet" => {
            options["layout"] = json!("single");
            options["payload"] = json!("keep");
        }
        _ => {}
    }
    let sink = inputs::registry().sink(format, options).expect("good options");
    let context = SinkContext { channels, ..SinkContext::standalone() };
    let buffers = BlockPool::new(1 << 10, 4);
    let mut output = sink.open(&context, &TaskPool::default()).expect("it opens");
    for batch in batches {
        let mut encoding = PrepareContext::new(&context.channels, &buffers);
        let Ok(block) = sink.prepare(batch.clone(), &mut encoding) else { return false };
        let report = &encoding.report;
        let is_whole =
            report.refused.is_empty() && report.losses.is_empty() && report.clamped.is_empty();
        if !is_whole || output.push(block).is_err() {
            return false;
        }
    }
    output.finish().is_ok() && context.outputs.publish(|_, _| Ok(String::new())).is_ok()
}
