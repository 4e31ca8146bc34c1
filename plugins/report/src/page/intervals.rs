//! Histograms: intervals between events, and receive time less message time.

use maud::{Markup, html};
use sluice_io::escape::printable;
use sluice_model::units;

use super::svg::PathData;
use super::text::{Clock, name};
use super::thin::{bin_place, bin_scale};
use crate::{ChannelFigures, Figures, Histogram, LatencyFigures};

/// The number of histograms that are seen without unfolding.
const OPEN: usize = 12;
const HEIGHT: f64 = 60.0;

/// Nothing if no channel has two events.
pub(super) fn section(figures: &Figures, clock: Clock) -> Markup {
    let numbered = || figures.channels.iter().enumerate();
    let has_intervals = |channel: &ChannelFigures| !channel.intervals.bins.is_empty();
    let intervals: Vec<Markup> =
        numbered().filter(|(_, c)| has_intervals(c)).map(|(n, c)| interval(n, c, clock)).collect();
    let latencies: Vec<Markup> = numbered()
        .filter_map(|(number, channel)| Some(latency(number, channel, channel.latency.as_ref()?)))
        .collect();
    html! {
        @if !intervals.is_empty() || !latencies.is_empty() {
            section #intervals {
                h2 { "Intervals" }
                p.lead {
                    "Time between consecutive events. Both axes are logarithmic, so that single "
                    "long intervals are seen beside thousands of usual ones."
                }
                (grid(&intervals))
                @if !latencies.is_empty() {
                    h3 #latency { "Latency" }
                    p.lead { "Receive time less the time that messages carry." }
                    (grid(&latencies))
                }
            }
        }
    }
}

fn grid(figures: &[Markup]) -> Markup {
    let (open, folded) = figures.split_at(figures.len().min(OPEN));
    html! {
        div.grid { @for figure in open { (figure) } }
        @if !folded.is_empty() {
            details {
                summary { (units::pluralize(folded.len() as u64, "more histogram")) }
                div.grid { @for figure in folded { (figure) } }
            }
        }
    }
}

fn interval(number: usize, channel: &ChannelFigures, clock: Clock) -> Markup {
    let interval = |rate: f64| if rate > 0.0 { nanos(1e9 / rate) } else { "–".to_owned() };
    let [median, p1, p99] = match &channel.rate {
        Some(rate) => [rate.median, rate.p99, rate.p1].map(interval),
        None => ["–"; 3].map(str::to_owned),
    };
    let longest = channel
        .longest_gap
        .as_ref()
        .map(|gap| format!("{} at {}", units::duration(gap.length), clock.offset(gap.start)));
    html! {
        figure.histogram {
            figcaption {
                a href={ "#channel-" (number) } title=(printable(&channel.name)) { (name(&channel.name)) }
                small { "median " (median) ", 1 % below " (p1) ", 1 % above " (p99)
                    @if let Some(longest) = &longest { ", longest " (longest) }
                }
            }
            (bars(&channel.intervals, &format!("intervals, median {median}")))
        }
    }
}

fn latency(number: usize, channel: &ChannelFigures, latency: &LatencyFigures) -> Markup {
    let text = format!(
        "median {}, least {}, greatest {}",
        signed(latency.median),
        signed(latency.least),
        signed(latency.greatest)
    );
    html! {
        figure.histogram {
            figcaption {
                a href={ "#channel-" (number) } title=(printable(&channel.name)) { (name(&channel.name)) }
                small {
                    "less " code { (name(&latency.field)) } ": " (text)
                    @if latency.negative > 0 {
                        "; " (units::pluralize(latency.negative, "event"))
                        " received before its message’s time"
                    }
                }
            }
            (bars(&latency.histogram, &format!("latency, {text}")))
        }
    }
}

fn nanos(value: f64) -> String {
    units::duration(value.max(0.0).round() as u64)
}

fn signed(nanos: i64) -> String {
    let sign = if nanos < 0 { "−" } else { "" };
    format!("{sign}{}", units::duration(nanos.unsigned_abs()))
}

/// A histogram of nanoseconds as bars of equal ratio.
fn bars(histogram: &Histogram, label: &str) -> Markup {
    let Some(bars) = Bars::new(histogram) else { return html! {} };
    let highest = bars.counts.iter().copied().max().unwrap_or(0).max(1);
    let height =
        |count: u64| (1.0 + count as f64).ln() / (1.0 + highest as f64).ln() * (HEIGHT - 4.0);
    let mut path = PathData::default();
    for (place, count) in bars.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        path.bar(place as f64 * 10.0, HEIGHT, 9.0, height(*count));
    }
    let width = bars.counts.len() * 10;
    html! {
        svg viewBox={ "0 0 " (width) " " (HEIGHT) } preserveAspectRatio="none" role="img"
            aria-label=(label) {
            path d=(path.as_str()) {}
        }
        div.ends { span { (nanos(bars.from)) } span { (nanos(bars.to)) } }
    }
}

/// The bars of a histogram.
struct Bars {
    counts: Vec<u64>,
    from: f64,
    to: f64,
}

impl Bars {
    /// `None` without values.
    fn new(histogram: &Histogram) -> Option<Self> {
        let (first, last) = (histogram.bins.first()?, histogram.bins.last()?);
        let scale = bin_scale(histogram)?;
        let zero = usize::from(bin_place(first, scale).is_none());
        let mut counts = vec![0u64; zero];
        for bin in &histogram.bins {
            let place = bin_place(bin, scale).map_or(0, |place| zero + place.min(1_000));
            if place >= counts.len() {
                counts.resize(place + 1, 0);
            }
            if let Some(count) = counts.get_mut(place) {
                *count = count.saturating_add(bin.count);
            }
        }
        // A single bar in the middle of an empty field, rather than a wall.
        if counts.len() < 9 {
            let missing = 9 - counts.len();
            let before = if zero > 0 { 0 } else { missing / 2 };
            counts.splice(0..0, std::iter::repeat_n(0, before));
            counts.resize(9, 0);
        }
        Some(Self { counts, from: first.from.max(0.0), to: last.to })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HistogramBin;

    fn histogram(values: &[(f64, u64)]) -> Histogram {
        let ratio = 2f64.powf(1.0 / 64.0);
        let bin = |&(from, count)| HistogramBin { from, to: from * ratio, count };
        Histogram { bins: values.iter().map(bin).collect() }
    }

    #[test]
    fn all_values_are_in_a_bar() {
        let cases: [&[(f64, u64)]; 4] = [
            &[(1e8, 500)],
            &[(0.0, 3), (1e6, 2), (1e9, 1)],
            &[(1.0, 1), (1e18, 1)],
            &[(1e-300, 1), (1e300, 2)],
        ];
        for case in cases {
            let bars = Bars::new(&histogram(case)).unwrap();
            let total: u64 = bars.counts.iter().sum();
            assert_eq!(total, case.iter().map(|(_, count)| count).sum::<u64>(), "{case:?}");
            assert!((9..=66).contains(&bars.counts.len()), "{} for {case:?}", bars.counts.len());
        }
        assert!(Bars::new(&Histogram::default()).is_none());
    }
}
