//! The table of channels.

use maud::{Markup, html};
use sluice_io::escape::printable;
use sluice_model::units;

use super::svg::PathData;
use super::text::{Clock, decimals, name, percent};
use super::thin::Detail;
use crate::{ChannelFigures, Figures};

/// The number of points of a spark line.
const SPARK_POINTS: usize = 100;

pub(super) fn section(figures: &Figures, clock: Clock, detail: &Detail) -> Markup {
    let sources: Vec<&str> = figures.channels.iter().map(|c| c.source.as_str()).collect();
    let many_sources = sources.iter().any(|source| Some(source) != sources.first());
    html! {
        section #channels {
            h2 { "Channels" }
            @if figures.channels.is_empty() {
                p.muted { "The log has no channels." }
            } @else {
                div.scroll tabindex="0" role="region" aria-label="Channels" {
                    table.channels data-sortable {
                        caption { (units::pluralize(figures.channels.len() as u64, "channel"))
                            ", by bytes" }
                        thead { tr { (heads(detail.sparks)) } }
                        tbody {
                            @for (number, channel) in figures.channels.iter().enumerate() {
                                @let source = many_sources.then_some(channel.source.as_str());
                                @let row = Row { number, channel, source, bytes: figures.bytes };
                                (row.cells(clock, detail))
                            }
                        }
                    }
                }
            }
        }
    }
}

fn heads(with_sparks: bool) -> Markup {
    let numbers = [
        ("Events", ""),
        ("Rate", "Median; below it the rates that 1 % of intervals are slower and faster than"),
        ("Longest gap", "The longest interval between two events, and when it begins"),
        ("Bytes", "Bytes of payload, and their share of the log"),
        ("Undecoded", "Events without decoded fields"),
        ("Steps back", "Events earlier than the one before them on the channel"),
        ("Not a number", "Values of fields that are NaN or infinite"),
    ];
    html! {
        th scope="col" data-sort="text" { "Channel" }
        @for (title, explanation) in numbers {
            th.number scope="col" data-sort="number"
                title=[(!explanation.is_empty()).then_some(explanation)] { (title) }
        }
        @if with_sparks { th scope="col" { "Events over time" } }
    }
}

/// A channel's row.
struct Row<'f> {
    number: usize,
    channel: &'f ChannelFigures,
    /// Named if channels come from several.
    source: Option<&'f str>,
    /// Of the whole log.
    bytes: Option<u64>,
}

impl Row<'_> {
    fn cells(&self, clock: Clock, detail: &Detail) -> Markup {
        let Self { number, channel, source, bytes } = *self;
        let not_finite: u64 = channel.fields.iter().map(|field| field.not_finite).sum();
        html! {
            tr #{ "channel-" (number) } {
                th scope="row" data-value=(printable(&channel.name)) {
                    @if number < detail.lanes {
                        a href={ "#lane-" (number) } title=(printable(&channel.name)) {
                            (name(&channel.name))
                        }
                    } @else { (name(&channel.name)) }
                    (types(channel))
                    @if let Some(source) = source { small { "from " (name(source)) } }
                }
                td.number data-value=(channel.events) { (units::count(channel.events)) }
                (rate(channel))
                (gap(channel, clock))
                (payload(channel.bytes, bytes))
                (problems(channel.undecoded, percent(channel.undecoded, channel.events)))
                (problems(channel.steps_back, match channel.largest_step_back {
                    0 => String::new(),
                    step => format!("up to {}", units::duration(step)),
                }))
                (problems(not_finite, String::new()))
                @if detail.sparks { td.spark { (spark_line(channel)) } }
            }
        }
    }
}

/// The bytes of payload, and their share of all.
fn payload(bytes: Option<u64>, all: Option<u64>) -> Markup {
    html! {
        td.number data-value=(bytes.unwrap_or_default()) {
            (bytes.map_or("–".to_owned(), units::bytes))
            @if let Some((bytes, all)) = bytes.zip(all) {
                small { (percent(bytes, all)) " " (share_bar(bytes, all)) }
            }
        }
    }
}

fn types(channel: &ChannelFigures) -> Markup {
    html! {
        @if let [first, rest @ ..] = channel.types.as_slice() {
            small {
                (name(&first.name))
                @if !rest.is_empty() {
                    " and " (units::pluralize(rest.len() as u64, "other type"))
                }
            }
        } @else if !channel.encoding.is_empty() {
            small { (name(&channel.encoding)) }
        }
    }
}

fn rate(channel: &ChannelFigures) -> Markup {
    html! {
        @if let Some(rate) = &channel.rate {
            td.number data-value=(decimals(rate.median, 6)) {
                (units::rate(rate.median))
                small {
                    (units::rate(rate.p1).trim_end_matches(" Hz")) " – " (units::rate(rate.p99))
                }
            }
        } @else { (nothing()) }
    }
}

fn gap(channel: &ChannelFigures, clock: Clock) -> Markup {
    html! {
        @if let Some(gap) = &channel.longest_gap {
            td.number data-value=(gap.length) {
                (units::duration(gap.length))
                small { "at " (clock.offset(gap.start)) }
            }
        } @else { (nothing()) }
    }
}

/// A count of something that should be zero.
fn problems(count: u64, more: String) -> Markup {
    html! {
        td.number.problem[count > 0] data-value=(count) {
            (units::count(count))
            @if count > 0 && !more.is_empty() { small { (more) } }
        }
    }
}

fn nothing() -> Markup {
    html! { td.number data-value="-1" { "–" } }
}

fn share_bar(part: u64, whole: u64) -> Markup {
    let width = part as f64 * 100.0 / whole.max(1) as f64;
    html! {
        svg.share viewBox="0 0 100 4" preserveAspectRatio="none" aria-hidden="true" {
            rect width=(decimals(width, 1)) height="4" {}
        }
    }
}

/// Events over time as a small area.
fn spark_line(channel: &ChannelFigures) -> Markup {
    let per_point = channel.timeline.len().div_ceil(SPARK_POINTS).max(1);
    let sums: Vec<u64> = channel.timeline.chunks(per_point).map(|c| c.iter().sum()).collect();
    let highest = sums.iter().copied().max().unwrap_or(0).max(1) as f64;
    let mut path = PathData::default();
    path.move_to(0.0, 20.0);
    let mut x = 0.0;
    for sum in &sums {
        let y = 20.0 - *sum as f64 / highest * 18.0;
        path.line_to(x, y);
        x += 1.0;
        path.level(1.0);
    }
    path.line_to(x, 20.0);
    path.close();
    let width = sums.len().max(1);
    html! {
        svg viewBox={ "0 0 " (width) " 20" } preserveAspectRatio="none" aria-hidden="true" {
            path d=(path.as_str()) {}
        }
    }
}
