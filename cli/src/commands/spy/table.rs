//! Renders the table of channels to a given width. Knows no terminal.

use std::time::Duration;

use sluice_io::escape::printable;
use sluice_model::units;

use super::messages::TypeLabel;
use crate::table::{Align, Column, line_width, push_line};
use crate::terminal::{clipped, width};

/// The row of a channel.
#[derive(Clone, Debug, Default)]
pub(super) struct SpyRow {
    pub(super) name: String,
    pub(super) kind: TypeLabel,
    pub(super) events: u64,
    pub(super) hz: Option<f64>,
    pub(super) jitter_ms: Option<f64>,
    pub(super) bytes_per_second: Option<f64>,
    pub(super) size: usize,
    pub(super) age: Duration,
}

const COLUMNS: usize = 8;

const HEADS: [&str; COLUMNS] =
    ["channel", "type", "count", "Hz", "jitter", "bandwidth", "size", "age"];

/// The columns to drop, in this order, if the table is too wide.
const DISPENSABLE: [usize; COLUMNS - 2] = [6, 4, 1, 7, 2, 5];

/// Text columns, which are left-aligned, and the width to which they may be clipped.
const TEXT_COLUMNS: [(usize, usize); 2] = [(0, 12), (1, 12)];

/// The header and one line per row, none wider than `max_width`.
pub(super) fn lines(rows: &[SpyRow], max_width: usize) -> Vec<String> {
    let cells: Vec<[String; COLUMNS]> =
        std::iter::once(HEADS.map(str::to_owned)).chain(rows.iter().map(cells)).collect();
    let widest =
        |column: usize| cells.iter().map(|row| width(&row[column])).max().unwrap_or_default();
    let widths = fit_widths(std::array::from_fn(widest), max_width);
    let line = |row: &[String; COLUMNS]| {
        let each = row.iter().zip(widths).enumerate().filter(|(_, (_, width))| *width > 0);
        let each = each.map(|(column, (cell, width))| {
            let align = if is_text(column) { Align::Left } else { Align::Right };
            (clipped(cell, width), Column { width, align })
        });
        let mut line = String::new();
        push_line(each, &mut line);
        clipped(&line, max_width)
    };
    cells.iter().map(line).collect()
}

fn is_text(column: usize) -> bool {
    TEXT_COLUMNS.iter().any(|(text, _)| *text == column)
}

/// The widths of the columns; dropped columns have width 0.
fn fit_widths(widest: [usize; COLUMNS], max_width: usize) -> [usize; COLUMNS] {
    let mut least = widest;
    TEXT_COLUMNS.iter().for_each(|(text, most)| least[*text] = widest[*text].min(*most));
    for column in DISPENSABLE {
        if total(&least) <= max_width {
            break;
        }
        least[column] = 0;
    }
    // Names get the remaining width first.
    for (text, _) in TEXT_COLUMNS {
        let more = max_width.saturating_sub(total(&least));
        if least[text] > 0 {
            least[text] += more.min(widest[text] - least[text]);
        }
    }
    least
}

fn total(widths: &[usize; COLUMNS]) -> usize {
    line_width(widths.iter().copied().filter(|width| *width > 0))
}

fn cells(row: &SpyRow) -> [String; COLUMNS] {
    let dash = || "-".to_owned();
    [
        printable(&row.name).into_owned(),
        type_text(&row.kind),
        units::count(row.events),
        row.hz.map_or_else(dash, hertz),
        row.jitter_ms.map_or_else(dash, |ms| format!("{ms:.2} ms")),
        row.bytes_per_second.map_or_else(dash, |bytes| format!("{}/s", units::bytes(bytes as u64))),
        units::bytes(row.size as u64),
        age(row.age),
    ]
}

/// The name of a type, or its fingerprint.
pub(super) fn type_text(kind: &TypeLabel) -> String {
    match (&kind.name, kind.key) {
        (Some(name), _) => printable(name).into_owned(),
        (None, Some(key)) => format!("{key}?"),
        (None, None) => "-".to_owned(),
    }
}

fn hertz(hz: f64) -> String {
    match hz {
        1000.0.. => units::count(hz.round() as u64),
        100.0.. => format!("{hz:.0}"),
        0.1.. => format!("{hz:.1}"),
        _ => format!("{hz:.3}"),
    }
}

/// Short, as it changes constantly.
fn age(age: Duration) -> String {
    match age.as_secs() {
        0..10 => format!("{:.1} s", age.as_secs_f64()),
        10..600 => format!("{} s", age.as_secs()),
        _ => format!("{} min", units::count(age.as_secs() / 60)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_model::TypeKey;

    fn row(name: &str) -> SpyRow {
        SpyRow {
            name: name.into(),
            kind: TypeLabel { name: Some("nav.pose_t".into()), key: Some(TypeKey(1)) },
            events: 12_345,
            hz: Some(99.95),
            jitter_ms: Some(0.128),
            bytes_per_second: Some(14_400.0),
            size: 144,
            age: Duration::from_millis(49),
        }
    }

    #[test]
    fn every_column_is_shown_where_there_is_room() {
        let unknown = SpyRow {
            kind: TypeLabel { name: None, key: Some(TypeKey(0x2e16)) },
            hz: None,
            jitter_ms: None,
            bytes_per_second: Some(0.0),
            age: Duration::from_secs(700),
            ..row("LIDAR")
        };
        let expected = [
            "channel  type                count   Hz   jitter  bandwidth   size     age",
            "POSE     nav.pose_t         12,345  100.0  0.13 ms  14.4 kB/s  144 B   0.0 s",
            "LIDAR    0000000000002e16?  12,345      -        -      0 B/s  144 B  11 min",
        ];
        let lines = lines(&[row("POSE"), unknown], 120);
        assert_eq!(lines[1..], expected[1..]);
        assert!(lines[0].split_whitespace().eq(expected[0].split_whitespace()), "{}", lines[0]);
    }

    #[test]
    fn no_line_is_wider_than_there_is_room() {
        let rows = [row("A"), row(&"LONG_".repeat(20)), row("日本語の長い名前のチャンネル")];
        for max_width in 0..130 {
            for line in lines(&rows, max_width) {
                assert!(width(&line) <= max_width, "{} of {max_width}: {line}", width(&line));
            }
        }
        let names =
            |max_width| lines(&rows, max_width)[0].split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(names(25), "channel Hz");
        assert_eq!(names(35), "channel Hz bandwidth");
        assert_eq!(names(130), "channel type count Hz jitter bandwidth size age");
    }

    #[test]
    fn names_cannot_control_the_terminal() {
        let lines = lines(&[row("A\x1b[2J\nB")], 120);
        assert!(!lines.concat().contains(char::is_control), "{lines:?}");
        assert!(lines[1].starts_with("A\\u{1b}[2J\\nB"), "{}", lines[1]);
    }

    #[test]
    fn rates_have_as_many_digits_as_they_need() {
        assert_eq!([0.1, 9.96, 123.4, 12_345.6].map(hertz), ["0.1", "10.0", "123", "12,346"]);
        assert_eq!([0.04, 0.0051].map(hertz), ["0.040", "0.005"]);
    }
}
