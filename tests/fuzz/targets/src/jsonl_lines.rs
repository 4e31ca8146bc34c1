//! Events as JSON lines.

use std::sync::Arc;

use serde_json::json;
use sluice_kit::contract::any_splitting_is_the_same;
use sluice_model::{Batch, Channels, Query, ReadContext, Source, SplitStart, options};
use sluice_text::fuzzing::{JsonLines, JsonParts, JsonPayload, JsonlSource};

use crate::inputs;

fn source(bytes: &[u8]) -> JsonlSource {
    let path = inputs::file("events.jsonl", bytes);
    options::read(json!({ "path": path, "max_line": 1 << 10 })).expect("good options")
}

fn batches(source: &JsonlSource, channels: &Arc<Channels>) -> Vec<Batch> {
    let channels = Arc::clone(channels);
    let context = ReadContext { channels, ..ReadContext::standalone("test") };
    let split = source.splits(u64::MAX, &Query::default()).expect("it is there").remove(0);
    let mut reader = source.read(&split, SplitStart::At(0), &context).expect("it opens");
    std::iter::from_fn(|| reader.next_batch().expect("it can be read")).collect()
}

fn written(batches: &[Batch], channels: &Channels) -> Vec<u8> {
    let (lines, mut out) = (JsonLines::default(), Vec::new());
    for batch in batches {
        let parts = JsonParts { crc32: true, payload: JsonPayload::Text };
        lines.write(batch, channels, parts, &mut out).expect("nothing is decoded");
    }
    out
}

/// Any bytes are a file of JSON lines: splits yield the same as the whole, and events round-trip.
pub fn jsonl_lines(bytes: &[u8]) {
    // Few splits, because each opens the file again.
    let targets = [3, 7, 20].map(|pieces| bytes.len() as u64 / pieces + 1);
    let found = any_splitting_is_the_same(&source(bytes), &targets);
    let mut at = 0;
    for (offset, length, reason) in &found.damage {
        assert!(*offset >= at && !reason.is_empty(), "damage comes in order");
        at = offset + length;
    }
    assert!(at <= bytes.len() as u64, "damage lies in the file");
    let channels = Arc::default();
    let once = written(&batches(&source(bytes), &channels), &channels);
    let longest = once.split(|byte| *byte == b'\n').map(<[u8]>::len).max().unwrap_or_default();
    // The output can be longer than the input, and than the limit.
    if longest <= 1 << 10 {
        let again = written(&batches(&source(&once), &channels), &channels);
        assert_eq!(once, again);
    }
}
