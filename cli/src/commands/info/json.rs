//! `info --json`: a contract with scripts.

use serde_json::{Value, json};
use sluice_io::escape::path_text;
use sluice_kit::census::ChannelCensus;
use sluice_model::Channel;

use super::census::Census;
use super::summary::LogSummary;

/// The summary of a log as one JSON object.
pub(super) fn summary_json(summary: &LogSummary) -> Value {
    let LogSummary { path, format, bytes, census, report, findings } = summary;
    let some = |time: i64| (census.all.events > 0).then_some(time);
    let damage = report.damage.iter().map(|damage| {
        let (offset, length, reason) = (damage.offset, damage.length, &damage.reason);
        json!({ "input": damage.input, "offset": offset, "length": length, "reason": reason })
    });
    let channels =
        census.channels.iter().map(|(channel, tally)| channel_json(channel, tally, census));
    json!({
        "path": path_text(path),
        "format": format,
        "events": census.all.events,
        "bytes": bytes,
        "first_timestamp_ns": some(census.all.first),
        "last_timestamp_ns": some(census.all.last),
        "earliest_timestamp_ns": some(census.all.earliest),
        "latest_timestamp_ns": some(census.all.latest),
        "steps_back": census.all.steps_back,
        "largest_step_back_ns": census.all.largest_step_back,
        "number_jumps": census.number_jumps,
        "channels": channels.collect::<Vec<_>>(),
        "damage": damage.collect::<Vec<_>>(),
        "damaged_ranges": report.damaged_ranges,
        "findings": findings,
        "error": null,
    })
}

/// A log that could not be read as one JSON object.
pub(super) fn failure_json(log: &str, reason: &str) -> Value {
    json!({ "path": log, "error": reason })
}

fn channel_json(channel: &Channel, tally: &ChannelCensus, census: &Census) -> Value {
    let times = &tally.times;
    let types = tally.common_types();
    let types = types.iter().map(|(key, events)| {
        let (fingerprint, name) = (key.to_string(), census.types.get(key).map(|name| &**name));
        json!({ "fingerprint": fingerprint, "name": name, "events": events })
    });
    let types: Vec<Value> = types.collect();
    json!({
        "name": channel.name.text(),
        "source": &*channel.source,
        "events": times.events,
        "bytes": tally.payload_bytes(),
        "encoding": channel.encoding.as_str(),
        "type": type_of(channel, tally, census),
        "types": types,
        "first_timestamp_ns": times.first,
        "last_timestamp_ns": times.last,
        "earliest_timestamp_ns": times.earliest,
        "latest_timestamp_ns": times.latest,
        "rate_hz": times.rate(),
        "largest_gap_ns": times.largest_gap,
        "steps_back": times.steps_back,
        "largest_step_back_ns": times.largest_step_back,
        "clamped_times": tally.wide_times,
    })
}

/// The name of the most frequent type of a channel; `None` if it is unknown.
fn type_of<'c>(channel: &'c Channel, tally: &ChannelCensus, census: &'c Census) -> Option<&'c str> {
    let types = tally.common_types();
    let most_common = types.first().and_then(|(key, _)| census.types.get(key));
    most_common.or(channel.type_name.as_ref()).map(|name| &**name)
}
