//! Swim lanes: each channel's events over the time of the log, with its gaps.

use maud::{Markup, html};
use sluice_io::escape::printable;
use sluice_model::units;

use super::svg::{PathData, round_step};
use super::text::{Clock, decimals, name};
use crate::{ChannelFigures, Figures, GapFigures, TimeGrid};

/// The number of lanes that are seen without unfolding.
const OPEN_LANES: usize = 40;
/// The number of gaps of a lane that say when and how long they are.
const NAMED_GAPS: usize = 20;

/// The window of time that all plots share at first, in buckets of the grid.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    grid: TimeGrid,
    clock: Clock,
    from: f64,
    to: f64,
}

impl Span {
    pub(super) fn new(grid: TimeGrid, clock: Clock) -> Self {
        let place = |time: i64| Self::bucket(grid, time);
        let (from, to) = (place(clock.start), place(clock.end));
        // A log of one moment still has a width.
        let (from, to) =
            if to - from > 1e-6 { (from, to) } else { (0.0, grid.buckets.max(1) as f64) };
        Self { grid, clock, from, to }
    }

    fn bucket(grid: TimeGrid, time: i64) -> f64 {
        (i128::from(time) - i128::from(grid.start)) as f64 / grid.width.max(1) as f64
    }

    /// Where a time lies, in buckets.
    pub(super) fn place(&self, time: i64) -> f64 {
        Self::bucket(self.grid, time)
    }

    pub(super) fn from(&self) -> f64 {
        self.from
    }

    pub(super) fn width(&self) -> f64 {
        self.to - self.from
    }

    /// Seconds after the first event of a place in buckets.
    fn seconds(&self, bucket: f64) -> f64 {
        self.clock.seconds(self.grid.start) + bucket * self.grid.width as f64 / 1e9
    }
}

/// Lanes of the first `most` channels.
pub(super) fn section(figures: &Figures, span: Span, clock: Clock, most: usize) -> Markup {
    let channels = figures.channels.get(..most).unwrap_or(&figures.channels);
    let (open, folded) = channels.split_at(channels.len().min(OPEN_LANES));
    html! {
        @if !figures.channels.is_empty() {
            section #timeline {
                h2 { "Time line" }
                p.lead {
                    "Bars are events, stronger where there are more of them; a thin line in another "
                    "colour is a gap: much longer than usual on that channel. "
                    span.script hidden { "Drag over a stretch of time to zoom; all plots follow." }
                }
                (toolbar())
                div #lanes .lanes
                    data-start=(decimals(span.seconds(0.0), 9))
                    data-bucket=(decimals(span.grid.width as f64 / 1e9, 9))
                    data-from=(decimals(span.seconds(span.from), 9))
                    data-to=(decimals(span.seconds(span.to), 9)) {
                    (axis(&span))
                    @for (number, channel) in open.iter().enumerate() {
                        (lane(number, channel, &span, clock))
                    }
                    @if !folded.is_empty() {
                        details {
                            summary { (units::pluralize(folded.len() as u64, "more lane")) }
                            @for (number, channel) in folded.iter().enumerate() {
                                (lane(OPEN_LANES + number, channel, &span, clock))
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Buttons for the zoom; the script shows them.
pub(super) fn toolbar() -> Markup {
    let hint = "Arrow keys move and zoom, Escape shows the whole log";
    html! {
        div.toolbar.zoom.script role="group" aria-label="Zoom of the time line and all plots"
            title=(hint) hidden {
            button type="button" data-zoom="in" { "Zoom in" }
            button type="button" data-zoom="out" { "Zoom out" }
            button type="button" data-zoom="earlier" { "Earlier" }
            button type="button" data-zoom="later" { "Later" }
            button type="button" data-zoom="all" { "Whole log" }
            span.readout aria-hidden="true" {}
        }
    }
}

/// Ticks at round times; the script draws others when zooming.
fn axis(span: &Span) -> Markup {
    let (from, to) = (span.seconds(span.from), span.seconds(span.to));
    let step = round_step(to - from, 6.0);
    let first = (from / step).ceil();
    let ticks = (0..8).map(|n| (first + f64::from(n)) * step).filter(|tick| *tick <= to);
    html! {
        div.axis aria-hidden="true" {
            span.lane-name {}
            div.ticks {
                @for tick in ticks {
                    span style={ "left:" (decimals((tick - from) / (to - from) * 100.0, 2)) "%" } {
                        (tick_text(tick, step))
                    }
                }
            }
        }
    }
}

fn tick_text(seconds: f64, step: f64) -> String {
    if seconds.abs() < 60.0 {
        let places = (-step.log10().floor()).clamp(0.0, 9.0) as usize;
        return format!("{} s", decimals(seconds, places));
    }
    let whole = seconds.abs().floor() as u64;
    let (hours, minutes) = (whole / 3600, whole / 60 % 60);
    let sign = if seconds < 0.0 { "−" } else { "" };
    let rest = format!("{minutes:02}:{:02}", whole % 60);
    if hours > 0 { format!("{sign}{hours}:{rest}") } else { format!("{sign}{rest}") }
}

fn lane(number: usize, channel: &ChannelFigures, span: &Span, clock: Clock) -> Markup {
    let levels = levels(channel, span.width());
    let view = format!("{} 0 {} 10", decimals(span.from, 2), decimals(span.width(), 2));
    html! {
        div.lane #{ "lane-" (number) } {
            a.lane-name href={ "#channel-" (number) } title=(printable(&channel.name)) {
                (name(&channel.name))
            }
            svg viewBox=(view) preserveAspectRatio="none" role="img"
                aria-label=(label(channel, clock)) data-lane=(number) {
                @for (level, path) in levels.iter().enumerate().filter(|(_, p)| !p.is_empty()) {
                    path class={ "level-" (level + 1) } d=(path.as_str()) {}
                }
                (gaps(channel, span, clock))
            }
        }
    }
}

fn label(channel: &ChannelFigures, clock: Clock) -> String {
    let name = printable(&channel.name);
    let events = units::pluralize(channel.events, "event");
    let (first, last) = (clock.offset(channel.first), clock.offset(channel.last));
    let gaps = match channel.gap_count {
        0 => "no gaps".to_owned(),
        count => units::pluralize(count, "gap"),
    };
    format!("{name}: {events} from {first} to {last}, {gaps}")
}

/// The buckets with events, as lines in three levels of how many they are.
fn levels(channel: &ChannelFigures, width: f64) -> [PathData; 3] {
    let mut paths = [PathData::default(), PathData::default(), PathData::default()];
    let most = channel.timeline.iter().copied().max().unwrap_or(0);
    let level = |count: u64| match count {
        0 => None,
        count if count.saturating_mul(3) <= most => Some(0),
        count if count.saturating_mul(3) <= most.saturating_mul(2) => Some(1),
        _ => Some(2),
    };
    let mut at = 0usize;
    for run in channel.timeline.chunk_by(|a, b| level(*a) == level(*b)) {
        if let Some(path) =
            run.first().and_then(|count| level(*count)).and_then(|l| paths.get_mut(l))
        {
            path.move_to(at as f64, 5.0);
            // The only event of a channel is seen on a small screen as well.
            let least = if channel.events < 20 { width / 250.0 } else { 1.0 };
            path.level((run.len() as f64).max(least));
        }
        at += run.len();
    }
    paths
}

/// The gaps: a thin line each; the longest say when and how long they are.
fn gaps(channel: &ChannelFigures, span: &Span, clock: Clock) -> Markup {
    let mut longest: Vec<&GapFigures> = channel.gaps.iter().collect();
    longest.sort_by_key(|gap| (std::cmp::Reverse(gap.length), gap.start));
    let (named, others) = longest.split_at(longest.len().min(NAMED_GAPS));
    let mut path = PathData::default();
    for gap in others {
        line(&mut path, gap, span);
    }
    html! {
        @for gap in named {
            @let line_of_gap = { let mut path = PathData::default(); line(&mut path, gap, span); path };
            path.gap d=(line_of_gap.as_str()) {
                title { "silent for " (units::duration(gap.length)) " from " (clock.offset(gap.start)) }
            }
        }
        @if !path.is_empty() { path.gap d=(path.as_str()) {} }
    }
}

fn line(path: &mut PathData, gap: &GapFigures, span: &Span) {
    let from = span.place(gap.start);
    path.move_to(from, 5.0);
    path.level(gap.length as f64 / span.grid.width.max(1) as f64);
}
