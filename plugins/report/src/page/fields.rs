//! Plots of numeric fields, and their figures.

use maud::{Markup, html};
use sluice_io::escape::printable;
use sluice_model::units;

use super::svg::PathData;
use super::text::{Clock, decimals, name, significant};
use super::timeline::Span;
use crate::{ChannelFigures, FieldFigures, Figures};

/// The number of channels that are seen without unfolding.
const OPEN_CHANNELS: usize = 8;
/// The size of a plot that does not need scripts, and the number of points along it.
const HEIGHT: f64 = 100.0;
const WIDTH: f64 = 300.0;

/// Nothing without numeric fields. `most_rows` rows of tables are shown.
pub(super) fn section(figures: &Figures, span: Span, clock: Clock, most_rows: usize) -> Markup {
    let mut rows_left = most_rows;
    let mut shown = 0;
    html! {
        @if figures.channels.iter().any(|channel| !channel.fields.is_empty()) {
            section #fields {
                h2 { "Fields" }
                p.lead {
                    "Numeric fields: the area between the least and the greatest value of each moment. "
                    span.script hidden { "Drag to zoom; the time line and all plots follow." }
                }
                (super::timeline::toolbar())
                @for (number, channel) in figures.channels.iter().enumerate() {
                    @if !channel.fields.is_empty() && rows_left > 0 {
                        @let rows = channel.fields.len().min(rows_left);
                        @let is_open = { rows_left -= rows; shown += 1; shown <= OPEN_CHANNELS };
                        (channel_fields(number, channel, rows, is_open, span, clock))
                    }
                }
            }
        }
    }
}

fn channel_fields(
    number: usize,
    channel: &ChannelFigures,
    rows: usize,
    is_open: bool,
    span: Span,
    clock: Clock,
) -> Markup {
    let plotted = channel.fields.iter().enumerate().filter(|(_, field)| !field.series.is_empty());
    html! {
        details.fields open[is_open] {
            summary {
                h3 { (name(&channel.name)) }
                " " small { (units::pluralize(channel.fields.len() as u64, "field")) }
            }
            div.plots {
                @for (place, field) in plotted { (plot(number, place, field, span)) }
            }
            (table(channel, rows, clock))
        }
    }
}

/// A plot as SVG; the script puts one that can be zoomed in its place.
fn plot(channel: usize, place: usize, field: &FieldFigures, span: Span) -> Markup {
    let (min, max) = (field.min.unwrap_or(0.0), field.max.unwrap_or(0.0));
    let text = format!(
        "min {}, max {}, mean {}",
        significant(min),
        significant(max),
        significant(field.mean.unwrap_or(0.0))
    );
    html! {
        figure.plot data-channel=(channel) data-field=(place) {
            figcaption { strong { (name(&field.path)) } small { (text) } }
            div.still {
                span.high { (significant(max)) }
                svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" role="img"
                    aria-label={ (printable(&field.path)) ": " (text) } {
                    path d=(envelope(field, span, min, max).as_str()) {}
                }
                span.low { (significant(min)) }
            }
            div.live aria-hidden="true" {}
        }
    }
}

/// The outline of the area between least and greatest values, broken where there are none.
fn envelope(field: &FieldFigures, span: Span, min: f64, max: f64) -> PathData {
    let height = max - min;
    let y = |value: f64| match height > 0.0 && height.is_finite() {
        true => (HEIGHT - 2.0 - (value - min) / height * (HEIGHT - 4.0)).clamp(0.0, HEIGHT),
        false => HEIGHT / 2.0,
    };
    let x = |bucket: usize| (bucket as f64 + 0.5 - span.from()) / span.width() * WIDTH;
    let mut path = PathData::default();
    for run in runs(&thinned(&field.series)) {
        let Some((first, last)) = run.first().zip(run.last()) else { continue };
        path.move_to(x(first.0), y(first.1[1]));
        for (bucket, [_, high]) in run.iter().skip(1) {
            path.line_to(x(*bucket), y(*high));
        }
        // A flat line has no area: its outline is drawn.
        path.line_to(x(last.0) + 0.3, y(last.1[1]));
        for (bucket, [low, _]) in run.iter().rev() {
            path.line_to(x(*bucket), y(*low));
        }
        path.close();
    }
    path
}

/// A bucket of time with its least and greatest value.
type Extent = (usize, [f64; 2]);

/// The buckets that have values; of a long series, those of several joined.
fn thinned(series: &[Option<[f64; 2]>]) -> Vec<Extent> {
    let joined = series.len().div_ceil(WIDTH as usize).max(1);
    let chunks = series.chunks(joined).enumerate();
    let extents = chunks.filter_map(|(number, chunk)| {
        let values = chunk.iter().flatten();
        let extent = values.copied().reduce(|a, b| [a[0].min(b[0]), a[1].max(b[1])])?;
        Some((number * joined + joined / 2, extent))
    });
    extents.collect()
}

/// Stretches without gaps: without a distance much longer than usual.
fn runs(extents: &[Extent]) -> impl Iterator<Item = &[Extent]> {
    let mut distances: Vec<usize> =
        extents.windows(2).map(|pair| pair[1].0.saturating_sub(pair[0].0)).collect();
    distances.sort_unstable();
    let usual = distances.get(distances.len() / 2).copied().unwrap_or(1);
    extents.chunk_by(move |a, b| b.0.saturating_sub(a.0) <= usual.saturating_mul(3))
}

fn table(channel: &ChannelFigures, rows: usize, clock: Clock) -> Markup {
    let caption = format!("Fields of {}", printable(&channel.name));
    let hidden = channel.fields.len().saturating_sub(rows);
    html! {
        div.scroll tabindex="0" role="region" aria-label=(caption) {
            table data-sortable {
                caption { (caption) }
                thead { tr {
                    th scope="col" data-sort="text" { "Field" }
                    @for title in ["Values", "Least", "Greatest", "Mean", "Null", "Not a number"] {
                        th.number scope="col" data-sort="number" { (title) }
                    }
                } }
                tbody { @for field in channel.fields.iter().take(rows) { (row(field, clock)) } }
            }
        }
        @if hidden > 0 {
            p.muted { (units::pluralize(hidden as u64, "more field")) " in the figures below." }
        }
    }
}

fn row(field: &FieldFigures, clock: Clock) -> Markup {
    html! {
        tr {
            th scope="row" data-value=(printable(&field.path)) { (name(&field.path)) }
            td.number data-value=(field.count) { (units::count(field.count)) }
            (value(field.min, Some(clock.offset(field.min_at))))
            (value(field.max, Some(clock.offset(field.max_at))))
            (value(field.mean, None))
            td.number data-value=(field.nulls) { (units::count(field.nulls)) }
            td.number.problem[field.not_finite > 0] data-value=(field.not_finite) {
                (units::count(field.not_finite))
            }
        }
    }
}

fn value(value: Option<f64>, when: Option<String>) -> Markup {
    html! {
        @if let Some(value) = value {
            td.number data-value=(decimals(value, 9)) {
                (significant(value))
                @if let Some(when) = when { small { "at " (when) } }
            }
        } @else { td.number { "–" } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_is_broken_at_long_gaps_only() {
        let extents = [0, 10, 20, 30, 90, 100].map(|bucket| (bucket, [0.0, 1.0]));
        let lengths: Vec<usize> = runs(&extents).map(<[_]>::len).collect();
        assert_eq!(lengths, [4, 2]);
    }

    #[test]
    fn thinning_keeps_the_extremes() {
        let mut series = vec![Some([0.0, 0.0]); 1000];
        series[501] = Some([-5.0, 7.0]);
        series[502] = None;
        let extents = thinned(&series);
        assert!(extents.len() <= 300);
        assert!(extents.iter().any(|(_, extent)| *extent == [-5.0, 7.0]));
    }
}
