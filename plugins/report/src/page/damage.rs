//! The damage: where in its files, as a strip and as a table of ranges.

use maud::{Markup, html};
use sluice_io::escape::printable;
use sluice_model::units;

use super::svg::PathData;
use super::text::{decimals, name, percent};
use crate::{DamagedRange, Figures, InputFigures};

/// The number of ranges of an input that are listed.
pub(super) const MOST_RANGES: usize = 200;
/// The number of ranges that are listed without unfolding.
const OPEN_RANGES: usize = 20;
const HEIGHT: f64 = 40.0;

/// Nothing if no input is damaged.
pub(super) fn section(figures: &Figures) -> Markup {
    let damaged = |input: &&InputFigures| input.damaged_ranges > 0 || input.damaged_bytes > 0;
    let inputs: Vec<&InputFigures> = figures.inputs.iter().filter(damaged).collect();
    html! {
        @if !inputs.is_empty() {
            section #damage {
                h2 { "Damage" }
                p.lead {
                    "Each file from its first byte on the left to its last on the right. What could "
                    "not be read was left out; everything else is in this report."
                }
                @for input in inputs { (input_damage(input)) }
            }
        }
    }
}

fn input_damage(input: &InputFigures) -> Markup {
    let ranges = input.damage.get(..input.damage.len().min(MOST_RANGES)).unwrap_or_default();
    let (open, folded) = ranges.split_at(ranges.len().min(OPEN_RANGES));
    let unlisted = input.damaged_ranges.saturating_sub(ranges.len() as u64);
    html! {
        h3 { (name(&input.name)) }
        p {
            (units::bytes(input.damaged_bytes)) " in "
            (units::pluralize(input.damaged_ranges, "range"))
            @if let Some(length) = input.bytes {
                ", " (percent(input.damaged_bytes, length)) " of " (units::bytes(length))
            }
            "."
        }
        @if let Some(length) = input.bytes.filter(|length| *length > 0) {
            (strip(input, length))
        }
        (table(open, "Damaged ranges, by offset"))
        @if !folded.is_empty() {
            details {
                summary { (units::pluralize(folded.len() as u64, "more range")) }
                (table(folded, "More damaged ranges"))
            }
        }
        @if unlisted > 0 {
            p.muted { (units::pluralize(unlisted, "range")) " not listed." }
        }
    }
}

/// The file as a strip: a bar per part by the share that is lost, and an area per listed range that
/// says what it is when pointed at.
fn strip(input: &InputFigures, length: u64) -> Markup {
    let parts = input.damage_by_part.len().max(1) as f64;
    let part_bytes = length as f64 / parts;
    let scale = 1000.0 / parts;
    let mut bars = PathData::default();
    for (part, lost) in input.damage_by_part.iter().enumerate().filter(|(_, lost)| **lost > 0) {
        let share = (*lost as f64 / part_bytes).clamp(0.0, 1.0);
        // A byte in a large file is seen as well.
        bars.bar(part as f64 * scale, HEIGHT, scale.max(2.0), (share * HEIGHT).max(8.0));
    }
    let label = format!(
        "{} of {} lost, in {}",
        units::bytes(input.damaged_bytes),
        units::bytes(length),
        units::pluralize(input.damaged_ranges, "range"),
    );
    let listed = input.damage.iter().take(MOST_RANGES);
    html! {
        figure.strip {
            svg viewBox={ "0 0 1000 " (HEIGHT) } preserveAspectRatio="none" role="img"
                aria-label=(label) {
                rect.ground width="1000" height=(HEIGHT) {}
                path.lost d=(bars.as_str()) {}
                @for range in listed { (pointed(range, length)) }
            }
            div.ends { span { "0 B" } span { (units::bytes(length)) } }
        }
    }
}

/// The area over a range, wide enough to be pointed at.
fn pointed(range: &DamagedRange, length: u64) -> Markup {
    let from = range.offset as f64 / length as f64 * 1000.0;
    let width = (range.length as f64 / length as f64 * 1000.0).max(4.0);
    let from = from.clamp(0.0, (1000.0 - width).max(0.0));
    html! {
        rect.pointed x=(decimals(from, 1)) width=(decimals(width, 1)) height=(HEIGHT) {
            title {
                "offset " (units::count(range.offset)) ", " (units::bytes(range.length)) ": "
                (printable(&range.reason))
            }
        }
    }
}

fn table(ranges: &[DamagedRange], caption: &str) -> Markup {
    html! {
        @if !ranges.is_empty() {
            div.scroll tabindex="0" role="region" aria-label=(caption) {
                table.ranges {
                    caption { (caption) }
                    thead { tr {
                        th.number scope="col" { "Offset" }
                        th.number scope="col" { "Length" }
                        th scope="col" { "Reason" }
                    } }
                    tbody { @for range in ranges {
                        tr {
                            th.number scope="row" { (units::count(range.offset)) }
                            td.number { (units::bytes(range.length)) }
                            td { (name(&range.reason)) }
                        }
                    } }
                }
            }
        }
    }
}
