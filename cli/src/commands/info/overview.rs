//! The overview of many logs: a line each, and one for all. Paths come last, so that other columns
//! line up.

use std::io::{self, IsTerminal};
use std::path::Path;

use sluice_core::name::printable;
use sluice_core::{Clock, time};

use super::Found;
use super::layout::{Layout, line};
use crate::terminal::width;
use crate::units;

/// What stands before the name of a damaged log.
const DAMAGED: char = '!';

/// What the last line sums up.
#[derive(Debug, Default)]
pub(super) struct Overview {
    logs: u64,
    bytes: u64,
    events: u64,
    damaged: u64,
    /// Those that could not be read.
    failed: u64,
}

impl Overview {
    /// The line above all others.
    pub(super) fn head() -> String {
        let mut text = String::new();
        let begins = "begins (UTC)";
        line(
            &mut text,
            format_args!(
                "{:8} {:>8} {:>11} {:>5}  {begins:19} {:>9}   log",
                "format", "size", "events", "chan.", "length"
            ),
        );
        text
    }

    /// The line of a log.
    pub(super) fn add(&mut self, found: &Found, layout: Layout) -> String {
        let Found { path, format, bytes, census, report, .. } = found;
        self.logs += 1;
        self.bytes += bytes.unwrap_or(0);
        self.events += census.all.events;
        self.damaged += u64::from(report.damaged_ranges > 0);
        let times = &census.all;
        let relative = census.channels.iter().any(|(channel, _)| channel.clock == Clock::Relative);
        let begins = match (times.events, relative) {
            (0, _) => "-".to_owned(),
            (_, true) => format!("+{:.3} s", times.earliest as f64 / 1e9),
            // To the second: the whole time is what `info` of one log is for.
            (_, false) => time::format(times.earliest).chars().take(19).collect(),
        };
        let length = if times.events == 0 { "-".to_owned() } else { clock(times.span()) };
        let mark = if report.damaged_ranges > 0 { DAMAGED } else { ' ' };
        let mut row = format!(
            "{format:8} {:>8} {:>11} {:>5}  {begins:19} {length:>9} {mark} ",
            bytes.map_or("-".to_owned(), units::bytes),
            units::count(times.events),
            units::count(census.channels.len() as u64),
        );
        row.push_str(&shown_path(path, layout.width.saturating_sub(width(&row))));
        row.push('\n');
        row
    }

    /// Notes a log that could not be read, which has no line.
    pub(super) fn add_failed(&mut self) {
        self.failed += 1;
    }

    /// How many logs there are.
    pub(super) fn logs(&self) -> u64 {
        self.logs + self.failed
    }

    /// The last line.
    pub(super) fn total(&self) -> String {
        let mut text = format!(
            "{}, {}, {}",
            units::many(self.logs, "log"),
            units::bytes(self.bytes),
            units::many(self.events, "event")
        );
        if self.damaged > 0 {
            text += &format!(", {} damaged ({DAMAGED})", units::count(self.damaged));
        }
        if self.failed > 0 {
            text += &format!(", {} not readable", units::count(self.failed));
        }
        text + "\n"
    }
}

/// A path as the last cell of a row: on a terminal its end, if all of it is too long; else always
/// whole.
fn shown_path(path: &Path, room: usize) -> String {
    /// Less of a path would say nothing.
    const LEAST: usize = 12;
    let path = path.to_string_lossy();
    let path = printable(&path);
    if !io::stdout().is_terminal() || width(&path) <= room.max(LEAST) {
        return path.into_owned();
    }
    let mut end: Vec<char> = Vec::new();
    let mut left = room.max(LEAST) - 1;
    for c in path.chars().rev() {
        let wide = width(c.encode_utf8(&mut [0; 4]));
        if wide > left {
            break;
        }
        left -= wide;
        end.push(c);
    }
    end.push('…');
    end.into_iter().rev().collect()
}

/// A length of time as a clock shows it: `9.990 s`, `1:02:03`.
fn clock(nanos: u64) -> String {
    let seconds = nanos / 1_000_000_000;
    if seconds < 60 {
        return format!("{:.3} s", nanos as f64 / 1e9);
    }
    format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_time_are_as_a_clock_shows_them() {
        let lengths = [0, 9_990_000_000, 60_000_000_000, 3_723_999_000_000, 360_000_000_000_000];
        assert_eq!(lengths.map(clock), ["0.000 s", "9.990 s", "0:01:00", "1:02:03", "100:00:00"]);
    }
}
