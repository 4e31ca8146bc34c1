//! The summary of a log as text.

use sluice_io::escape::{printable, printable_sentence};
use sluice_kit::census::TimeStatistics;
use sluice_model::{Clock, time};
use sluice_model::{plugin::times_clamped, units};

use super::summary::LogSummary;

use super::layout::{LineLayout, NO_BREAK_SPACE, line};
use super::table;
use crate::damage;

/// The number of damaged ranges listed; the JSON has all.
const MOST_SHOWN: usize = 20;

/// The column after the label of a line.
const INDENT: usize = 11;

/// Renders the summary of a log.
pub(super) fn render(summary: &LogSummary, layout: LineLayout) -> String {
    let LogSummary { path, format, bytes, census, report, findings } = summary;
    let mut text = String::new();
    line(&mut text, format_args!("{}", printable(&path.to_string_lossy())));
    let size = bytes.map_or("size not known".to_owned(), units::bytes);
    line(&mut text, format_args!("  format   {format}, {size}"));
    let (events, channels) = (census.all.events, census.channels.len() as u64);
    let on = units::pluralize(channels, "channel");
    line(&mut text, format_args!("  events   {} on {on}", units::count(events)));
    if let Some(encoding) = table::encoding(census) {
        line(&mut text, format_args!("  payloads {encoding}"));
    }
    if events > 0 {
        let relative = census.channels.iter().any(|(channel, _)| channel.clock == Clock::Relative);
        layout.write_wrapped("  time", INDENT, &period(&census.all, relative), &mut text);
        // If every number jumps, the numbers are not a sequence, and jumps mean nothing.
        let is_count = census.number_jumps + 1 < census.all.events;
        let jumps = if is_count { census.number_jumps } else { 0 };
        layout.write_wrapped("  order", INDENT, &order(&census.all, jumps), &mut text);
    }
    let ranges = units::pluralize(report.damaged_ranges, "damaged range");
    let damage = if report.damaged_ranges == 0 { "none" } else { &ranges };
    line(&mut text, format_args!("  damage   {damage}"));
    list_damage(summary, layout, &mut text);
    for (channel, tally) in census.channels.iter().filter(|(_, tally)| tally.wide_times > 0) {
        let note = times_clamped(channel);
        let events = units::pluralize(tally.wide_times, "event");
        layout.write_wrapped("  note", INDENT, &format!("{note} ({events})"), &mut text);
    }
    let views = census.channels.iter().filter(|(channel, _)| channel.is_view());
    let of_views: Vec<u64> = views.map(|(_, tally)| tally.times.events).collect();
    if !of_views.is_empty() {
        let events = units::pluralize(of_views.iter().sum(), "event");
        let on = units::pluralize(of_views.len() as u64, "channel");
        let note = format!("{events} on {on} only show others; `cat` and `convert` leave them out");
        layout.write_wrapped("  note", INDENT, &note, &mut text);
    }
    for finding in findings {
        layout.write_wrapped("  note", INDENT, &printable_sentence(finding), &mut text);
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
    let length = units::duration(times.span()).replace(' ', &NO_BREAK_SPACE.to_string());
    format!("{from} to {to} ({length})")
}

fn order(times: &TimeStatistics, number_jumps: u64) -> String {
    let steps = match times.steps_back {
        0 => "by time".to_owned(),
        steps => {
            let largest = units::duration(times.largest_step_back);
            format!("{} back in time, the largest {largest}", units::pluralize(steps, "step"))
        }
    };
    match number_jumps {
        0 => steps,
        jumps => format!("{steps}; event numbers jump {}", units::pluralize(jumps, "time")),
    }
}

fn list_damage(summary: &LogSummary, layout: LineLayout, text: &mut String) {
    let (groups, more) = damage::groups(&summary.report, MOST_SHOWN);
    for group in groups {
        layout.write_wrapped("", INDENT, &printable_sentence(&group.text("")), text);
    }
    if more > 0 {
        line(text, format_args!("           and {} more", units::count(more)));
    }
}
