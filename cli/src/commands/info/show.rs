//! What was found in a log, as text for people.

use sluice_core::census::TimeStatistics;
use sluice_core::name::printable;
use sluice_core::plugin::times_clamped;
use sluice_core::{Clock, time};

use super::Found;

use super::layout::{FIXED, Layout, line};
use super::table;
use crate::damage;
use crate::units;

/// How many damaged ranges the text lists; the JSON has them all.
const MOST_SHOWN: usize = 20;

/// Where the text behind a line's label begins.
const INDENT: usize = 11;

/// What was found, for people.
pub(super) fn text(found: &Found, layout: Layout) -> String {
    let Found { path, format, bytes, census, report, findings } = found;
    let mut text = String::new();
    line(&mut text, format_args!("{}", printable(&path.to_string_lossy())));
    let size = bytes.map_or("size not known".to_owned(), units::bytes);
    line(&mut text, format_args!("  format   {format}, {size}"));
    let (events, channels) = (census.all.events, census.channels.len() as u64);
    let on = units::many(channels, "channel");
    line(&mut text, format_args!("  events   {} on {on}", units::count(events)));
    if let Some(encoding) = table::encoding(census) {
        line(&mut text, format_args!("  payloads {encoding}"));
    }
    if events > 0 {
        let relative = census.channels.iter().any(|(channel, _)| channel.clock == Clock::Relative);
        layout.write("  time", INDENT, &period(&census.all, relative), &mut text);
        // Where every number jumps they are no count of events, and say nothing of their order.
        let is_count = census.number_jumps + 1 < census.all.events;
        let jumps = if is_count { census.number_jumps } else { 0 };
        layout.write("  order", INDENT, &order(&census.all, jumps), &mut text);
    }
    let ranges = units::many(report.damaged_ranges, "damaged range");
    let damage = if report.damaged_ranges == 0 { "none" } else { &ranges };
    line(&mut text, format_args!("  damage   {damage}"));
    list_damage(found, layout, &mut text);
    for (channel, tally) in census.channels.iter().filter(|(_, tally)| tally.wide_times > 0) {
        let note = times_clamped(channel);
        let events = units::many(tally.wide_times, "event");
        layout.write("  note", INDENT, &format!("{note} ({events})"), &mut text);
    }
    for finding in findings {
        layout.write("  note", INDENT, &printable(finding), &mut text);
    }
    if events > 0 {
        text.push('\n');
        table::write(census, layout, &mut text);
    }
    text.push('\n');
    text
}

fn period(times: &TimeStatistics, relative: bool) -> String {
    let moment = |nanos: i64| match relative {
        true => format!("{:.6} s", nanos as f64 / 1e9),
        false => time::format(nanos),
    };
    let (from, to) = (moment(times.earliest), moment(times.latest));
    let length = units::length(times.span()).replace(' ', &FIXED.to_string());
    format!("{from} to {to} ({length})")
}

fn order(times: &TimeStatistics, number_jumps: u64) -> String {
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

fn list_damage(found: &Found, layout: Layout, text: &mut String) {
    let (groups, more) = damage::groups(&found.report, MOST_SHOWN);
    for group in groups {
        layout.write("", INDENT, &printable(&group.text("")), text);
    }
    if more > 0 {
        line(text, format_args!("           and {} more", units::count(more)));
    }
}
