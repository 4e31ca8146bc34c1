//! Shows what was found in a log: as JSON, or as text with a table of its channels.

use std::fmt::Write;

use serde_json::{Value, json};
use sluice_core::name::printable;
use sluice_core::plugin::times_clamped;
use sluice_core::{Channel, Clock, time};

use super::Found;
use super::census::{Census, Tally, Times};
use crate::damage;
use crate::units;

/// How many damaged ranges the text lists; the JSON has them all.
const MOST_SHOWN: usize = 20;

/// What was found, as one JSON object.
pub(super) fn json(found: &Found) -> Value {
    let Found { path, format, bytes, census, report, findings } = found;
    let some = |time: i64| (census.all.events > 0).then_some(time);
    let damage = report.damage.iter().map(|damage| {
        let (offset, length, reason) = (damage.offset, damage.length, &damage.reason);
        json!({ "input": damage.input, "offset": offset, "length": length, "reason": reason })
    });
    let channels =
        census.channels.iter().map(|(channel, tally)| channel_json(channel, tally, census));
    json!({
        "path": path.to_string_lossy(),
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
    })
}

fn channel_json(channel: &Channel, tally: &Tally, census: &Census) -> Value {
    let Tally { bytes, times, .. } = tally;
    let types = tally.common_types();
    let types = types.iter().map(|(key, events)| {
        let name = census.types.get(key);
        json!({ "fingerprint": key.to_string(), "name": name.map(|name| &**name), "events": events })
    });
    let types: Vec<Value> = types.collect();
    json!({
        "name": channel.name.text(),
        "source": &*channel.source,
        "events": times.events,
        "bytes": bytes,
        "encoding": channel.encoding.as_str(),
        "type": type_of(channel, tally, census),
        "types": types,
        "first_timestamp_ns": times.first,
        "last_timestamp_ns": times.last,
        "rate_hz": times.rate(),
        "largest_gap_ns": times.largest_gap,
        "steps_back": times.steps_back,
        "largest_step_back_ns": times.largest_step_back,
        "clamped_times": tally.wide_times,
    })
}

/// The name of the type that most of a channel's events are of; nothing if it is not known.
fn type_of<'c>(channel: &'c Channel, tally: &Tally, census: &'c Census) -> Option<&'c str> {
    let types = tally.common_types();
    let told = types.first().and_then(|(key, _)| census.types.get(key));
    told.or(channel.type_name.as_ref()).map(|name| &**name)
}

/// The types of a channel's events for people: names, or fingerprints of those that have none.
fn types_of(channel: &Channel, tally: &Tally, census: &Census) -> String {
    let types = tally.common_types();
    let each = types.iter().map(|(key, _)| match census.types.get(key) {
        Some(name) => printable(name).into_owned(),
        None => format!("{key}?"),
    });
    let each: Vec<String> = each.collect();
    match (each.is_empty(), channel.type_name.as_deref()) {
        (true, None) => "-".to_owned(),
        (true, Some(name)) => printable(name).into_owned(),
        (false, _) => each.join(", "),
    }
}

/// What was found, for people.
pub(super) fn text(found: &Found) -> String {
    let Found { path, format, bytes, census, report, findings } = found;
    let mut text = String::new();
    line(&mut text, format_args!("{}", printable(&path.to_string_lossy())));
    let size = bytes.map_or("size not known".to_owned(), units::bytes);
    line(&mut text, format_args!("  format   {format}, {size}"));
    let (events, channels) = (census.all.events, census.channels.len() as u64);
    let on = units::many(channels, "channel");
    line(&mut text, format_args!("  events   {} on {on}", units::count(events)));
    if events > 0 {
        let relative = census.channels.iter().any(|(channel, _)| channel.clock == Clock::Relative);
        line(&mut text, format_args!("  time     {}", period(&census.all, relative)));
        // Where every number jumps they are no count of events, and say nothing of their order.
        let is_count = census.number_jumps + 1 < census.all.events;
        let jumps = if is_count { census.number_jumps } else { 0 };
        line(&mut text, format_args!("  order    {}", order(&census.all, jumps)));
    }
    let ranges = units::many(report.damaged_ranges, "damaged range");
    let damage = if report.damaged_ranges == 0 { "none" } else { &ranges };
    line(&mut text, format_args!("  damage   {damage}"));
    list_damage(found, &mut text);
    for (channel, tally) in census.channels.iter().filter(|(_, tally)| tally.wide_times > 0) {
        let note = times_clamped(channel);
        let events = units::many(tally.wide_times, "event");
        line(&mut text, format_args!("  note     {note} ({events})"));
    }
    for finding in findings {
        line(&mut text, format_args!("  note     {}", printable(finding)));
    }
    if events > 0 {
        text.push('\n');
        table(found, &mut text);
    }
    text.push('\n');
    text
}

fn period(times: &Times, relative: bool) -> String {
    let moment = |nanos: i64| match relative {
        true => format!("{:.6} s", nanos as f64 / 1e9),
        false => time::format(nanos),
    };
    let (from, to) = (moment(times.earliest), moment(times.latest));
    format!("{from} to {to} ({})", units::length(times.span()))
}

fn order(times: &Times, number_jumps: u64) -> String {
    let steps = match times.steps_back {
        0 => "by time".to_owned(),
        steps => {
            let largest = units::length(times.largest_step_back);
            format!("{} back in time, the largest {largest}", units::many(steps, "step"))
        }
    };
    match number_jumps {
        0 => steps,
        jumps => format!("{steps}; event numbers jump {}", units::many(jumps, "time")),
    }
}

fn list_damage(found: &Found, text: &mut String) {
    let (groups, more) = damage::groups(&found.report, MOST_SHOWN);
    for group in groups {
        line(text, format_args!("           {}", printable(&group.text(""))));
    }
    if more > 0 {
        line(text, format_args!("           and {} more", units::count(more)));
    }
}

const HEADS: [&str; 9] = [
    "channel",
    "source",
    "events",
    "bytes",
    "rate",
    "largest gap",
    "steps back",
    "encoding",
    "type",
];

/// How wide a column may be: names out of logs may be megabytes long. The JSON has them whole.
const WIDEST: usize = 100;

/// The column that is left out where it is the same in every row.
const SOURCE: usize = 1;

/// The columns with numbers, which are aligned at their right.
const NUMBERS: std::ops::Range<usize> = 2..7;

fn table(found: &Found, text: &mut String) {
    let mut rows = vec![HEADS.map(str::to_owned)];
    let channels = &found.census.channels;
    rows.extend(channels.iter().map(|(channel, tally)| row(channel, tally, &found.census)));
    let has_sources = channels.windows(2).any(|pair| pair[0].0.source != pair[1].0.source);
    let width =
        |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; HEADS.len()] = std::array::from_fn(width);
    for row in &rows {
        let cells = row.iter().zip(widths).enumerate();
        let cells = cells.filter(|(column, _)| has_sources || *column != SOURCE);
        let cells = cells.map(|(column, (cell, width))| {
            if NUMBERS.contains(&column) {
                format!("{cell:>width$}")
            } else {
                format!("{cell:width$}")
            }
        });
        let cells: Vec<String> = cells.collect();
        line(text, format_args!("  {}", cells.join("  ").trim_end()));
    }
}

fn row(channel: &Channel, tally: &Tally, census: &Census) -> [String; HEADS.len()] {
    let Tally { bytes, times, .. } = tally;
    let dash = || "-".to_owned();
    let cells = [
        printable(channel.name.text()).into_owned(),
        printable(&channel.source).into_owned(),
        units::count(times.events),
        units::bytes(*bytes),
        times.rate().map_or_else(dash, |rate| format!("{rate:.1} Hz")),
        if times.events > 1 { units::length(times.largest_gap) } else { dash() },
        units::count(times.steps_back),
        channel.encoding.as_str().to_owned(),
        types_of(channel, tally, census),
    ];
    cells.map(cut)
}

/// What of a cell has room in the table.
fn cut(cell: String) -> String {
    match cell.char_indices().nth(WIDEST) {
        Some((end, _)) => format!("{}…", cell.get(..end).unwrap_or_default()),
        None => cell,
    }
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _written = writeln!(text, "{line}");
}
