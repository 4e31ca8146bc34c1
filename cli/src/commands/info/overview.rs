//! The overview of several logs: one line per log, and a total. Paths are the last column, as their
//! widths vary.

use std::path::Path;

use sluice_io::escape::printable;
use sluice_model::{Clock, time, units};

use super::layout::{LineLayout, line};
use super::summary::LogSummary;
use crate::terminal::{stdout_width, width};

/// Marks a damaged log.
const DAMAGED: char = '!';

/// The totals of the last line.
#[derive(Debug, Default)]
pub(super) struct Overview {
    logs: u64,
    bytes: u64,
    events: u64,
    damaged: u64,
    /// The number of logs that could not be read.
    failed: u64,
}

impl Overview {
    /// The header line.
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
    pub(super) fn add(&mut self, summary: &LogSummary, layout: LineLayout) -> String {
        let LogSummary { path, format, bytes, census, report, .. } = summary;
        self.logs += 1;
        self.bytes += bytes.unwrap_or(0);
        self.events += census.all.events;
        self.damaged += u64::from(report.damaged_ranges > 0);
        let times = &census.all;
        let relative = census.channels.iter().any(|(channel, _)| channel.clock == Clock::Relative);
        let begins = match (times.events, relative) {
            (0, _) => "-".to_owned(),
            (_, true) => format!("+{:.3} s", times.earliest as f64 / 1e9),
            // To the second; `info` of a single log shows the full time.
            (_, false) => time::format(times.earliest).chars().take(19).collect(),
        };
        let length = if times.events == 0 { "-".to_owned() } else { clock_text(times.span()) };
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

    /// Counts a log that could not be read, which has no line.
    pub(super) fn add_failed(&mut self) {
        self.failed += 1;
    }

    /// The number of logs.
    pub(super) fn logs(&self) -> u64 {
        self.logs + self.failed
    }

    /// The last line.
    pub(super) fn total(&self) -> String {
        let mut text = format!(
            "{}, {}, {}",
            units::pluralize(self.logs, "log"),
            units::bytes(self.bytes),
            units::pluralize(self.events, "event")
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

/// A path as the last cell of a row. If too long for a terminal, only its end; otherwise in full.
fn shown_path(path: &Path, max_width: usize) -> String {
    /// The minimum width of a path.
    const LEAST: usize = 12;
    let path = path.to_string_lossy();
    let path = printable(&path);
    if stdout_width().is_none() || width(&path) <= max_width.max(LEAST) {
        return path.into_owned();
    }
    let mut end: Vec<char> = Vec::new();
    let mut left = max_width.max(LEAST) - 1;
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

/// A duration in the form of a clock: `9.990 s`, `1:02:03`.
fn clock_text(nanos: u64) -> String {
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
        assert_eq!(
            lengths.map(clock_text),
            ["0.000 s", "9.990 s", "0:01:00", "1:02:03", "100:00:00"]
        );
    }
}
