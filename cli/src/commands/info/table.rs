//! The table of channels, fitted to the width of the output. Names that are too long get a line of
//! their own.

use sluice_io::escape::printable;
use sluice_kit::census::ChannelCensus;
use sluice_model::{Channel, units};

use super::census::Census;
use super::layout::{LineLayout, line};
use crate::table::{Align, Column, GAP, push_line};
use crate::terminal::{clipped, width};

/// The minimum width of name columns; longer names get lines of their own.
const MIN_NAME_WIDTH: usize = 12;

/// The row of a channel.
struct ChannelRow {
    channel: String,
    source: String,
    /// Events, bytes, rate, longest gap between events, steps back in time.
    numbers: [String; 5],
    types: String,
}

const NUMBERS: [&str; 5] = ["events", "bytes", "rate", "max gap", "back"];

/// The widths of the columns. `None` omits a column whose cells would all be the same.
struct ColumnWidths {
    channel: usize,
    source: Option<usize>,
    numbers: [Option<usize>; 5],
    types: usize,
}

/// Appends the table.
pub(super) fn write(census: &Census, layout: LineLayout, text: &mut String) {
    let has_encodings = encoding(census).is_none();
    let each = census.channels.iter();
    let each = each.map(|(channel, tally)| row(channel, tally, census, has_encodings));
    let heads = ChannelRow {
        channel: "channel".to_owned(),
        source: "source".to_owned(),
        numbers: NUMBERS.map(str::to_owned),
        types: if has_encodings { "encoding, type" } else { "type" }.to_owned(),
    };
    let rows: Vec<ChannelRow> = std::iter::once(heads).chain(each).collect();
    let columns = ColumnWidths::fit(&rows, census, layout.width);
    rows.iter().for_each(|row| columns.write(row, layout, text));
    if rows.iter().any(|row| row.types.ends_with('?') || row.types.contains("?,")) {
        let note = "?  declared neither in the log, nor built in, nor given with --types";
        line(text, format_args!("\n  {note}"));
    }
}

/// The encoding of all channels, if it is the same.
pub(super) fn encoding(census: &Census) -> Option<&str> {
    let mut all = census.channels.iter().map(|(channel, _)| channel.encoding.as_str());
    let first = all.next()?;
    all.all(|encoding| encoding == first).then_some(first)
}

fn row(
    channel: &Channel,
    tally: &ChannelCensus,
    census: &Census,
    has_encodings: bool,
) -> ChannelRow {
    let times = &tally.times;
    let dash = || "-".to_owned();
    let types = types(channel, tally, census);
    let encoding = channel.encoding.as_str();
    ChannelRow {
        channel: printable(channel.name.text()).into_owned(),
        source: printable(&channel.source).into_owned(),
        numbers: [
            units::count(times.events),
            tally.payload_bytes().map_or_else(dash, units::bytes),
            times.rate().map_or_else(dash, units::rate),
            if times.events > 1 { units::duration(times.largest_gap) } else { dash() },
            units::count(times.steps_back),
        ],
        types: if has_encodings { format!("{encoding} {types}") } else { types },
    }
}

/// The types of a channel's events: their names, or their fingerprints if unnamed. The only type of
/// a channel is called what the log calls it.
fn types(channel: &Channel, tally: &ChannelCensus, census: &Census) -> String {
    let types = tally.common_types();
    let of_channel = channel.type_name.as_deref().map(printable);
    let each = types.iter().map(|(key, _)| match (census.types.get(key), &of_channel) {
        (Some(name), _) => printable(name).into_owned(),
        (None, Some(name)) if types.len() == 1 => format!("{name}?"),
        (None, _) => format!("{key}?"),
    });
    let each: Vec<String> = each.collect();
    if each.is_empty() { of_channel.unwrap_or("-".into()).into_owned() } else { each.join(", ") }
}

impl ColumnWidths {
    fn fit(rows: &[ChannelRow], census: &Census, max_width: usize) -> Self {
        let channels = &census.channels;
        let widest = |cell: &dyn Fn(&ChannelRow) -> &str| {
            rows.iter().map(|row| width(cell(row))).max().unwrap_or(0)
        };
        let steps_back = channels.iter().any(|(_, tally)| tally.times.steps_back > 0);
        let numbers: [Option<usize>; 5] =
            std::array::from_fn(|n| (n < 4 || steps_back).then(|| widest(&|row| &row.numbers[n])));
        let sources = channels.windows(2).any(|pair| pair[0].0.source != pair[1].0.source);
        let numbers_width: usize = numbers.iter().flatten().map(|width| width + GAP.len()).sum();
        let max_width = max_width.saturating_sub(numbers_width + 2 * GAP.len());
        let (channel, types) = (widest(&|row| &row.channel), widest(&|row| &row.types));
        let source = if sources { widest(&|row| &row.source) } else { 0 };
        let names = channel + if sources { source + GAP.len() } else { 0 };
        if names + types <= max_width {
            return Self { channel, source: sources.then_some(source), numbers, types };
        }
        // Channel names take precedence over types, which are long and similar.
        let least = if sources { 2 * MIN_NAME_WIDTH } else { MIN_NAME_WIDTH };
        let types = types.min(max_width.saturating_sub(names).max(MIN_NAME_WIDTH));
        let names = names.min(max_width.saturating_sub(types).max(least));
        if !sources {
            return Self { channel: names, source: None, numbers, types };
        }
        // The source column gets half of the width, and what channels do not need.
        let half = names.saturating_sub(GAP.len()) / 2;
        let source = source.min(half.max(names.saturating_sub(channel + GAP.len())));
        let channel = names.saturating_sub(source + GAP.len());
        Self { channel, source: Some(source), numbers, types }
    }

    fn write(&self, row: &ChannelRow, layout: LineLayout, text: &mut String) {
        let fits = |(cell, column): (&str, usize)| width(cell) <= column;
        let source = self.source.map(|width| (row.source.as_str(), width));
        let mut names = vec![(row.channel.as_str(), self.channel)];
        names.extend(source);
        if !names.iter().copied().all(fits) {
            let max_width = layout.width.saturating_sub(2 * GAP.len());
            for (depth, (cell, _)) in names.iter_mut().enumerate() {
                let indent = GAP.repeat(depth + 1);
                line(text, format_args!("{indent}{}", clipped(cell, max_width)));
                *cell = "";
            }
        }
        let numbers = row.numbers.iter().zip(self.numbers);
        let numbers = numbers.filter_map(|(cell, width)| Some((cell.as_str(), width?)));
        let types = Some((row.types.as_str(), self.types)).filter(|types| fits(*types));
        let left = |(cell, width)| (cell, Column { width, align: Align::Left });
        let right = |(cell, width)| (cell, Column { width, align: Align::Right });
        let names = names.into_iter().map(left);
        text.push_str(GAP);
        push_line(names.chain(numbers.map(right)).chain(types.map(left)), text);
        text.push('\n');
        if types.is_none() {
            layout.write_wrapped("", 6, &row.types, text);
        }
    }
}
