//! One revolution or scan of each laser, seen from above.

use maud::{Markup, html};
use sluice_io::escape::printable;
use sluice_model::units;

use super::svg::{PathData, round_step};
use super::text::{Clock, decimals, name, significant};
use super::track::{COLOURS, colour_bar};
use crate::{CloudFigures, Figures};

/// Half the side of a drawing.
const HALF: f64 = 500.0;

/// Nothing without points.
pub(super) fn section(figures: &Figures, clock: Clock) -> Markup {
    let clouds: Vec<_> = figures.clouds.iter().filter(|c| !c.points.is_empty()).collect();
    html! {
        @if !clouds.is_empty() {
            section #cloud {
                h2 { "Laser, from above" }
                p.lead { "The sensor is in the middle, ahead is up. Colours are heights." }
                div.tracks { @for cloud in clouds { (drawing(cloud, clock)) } }
            }
        }
    }
}

fn drawing(cloud: &CloudFigures, clock: Clock) -> Markup {
    let range = Range::new(cloud);
    let rings = round_step(range.radius, 5.0);
    let what = format!(
        "{} at {}, a ring every {} m",
        units::pluralize(cloud.count, "point"),
        clock.offset(cloud.time),
        significant(rings)
    );
    let circles = (1..=5).map(|n| f64::from(n) * rings).filter(|r| *r <= range.radius);
    html! {
        figure.track.cloud {
            figcaption { strong { (name(&cloud.channel)) } small { (what) } }
            svg viewBox={ "-" (HALF) " -" (HALF) " " (2.0 * HALF) " " (2.0 * HALF) } role="img"
                aria-label={ "Points of " (printable(&cloud.channel)) ": " (what) } {
                @for circle in circles {
                    circle.mesh r=(decimals(circle * range.scale(), 1)) {}
                }
                @for (colour, path) in dots(cloud, &range).iter().enumerate() {
                    @if !path.is_empty() {
                        path class={ "dots ramp-" (colour) } d=(path.as_str()) {}
                    }
                }
                path.sensor d="M0-14L9 10L0 5L-9 10z" { title { "the sensor" } }
            }
            @if range.high > range.low {
                div.legend {
                    span { (significant(range.low)) " m" } (colour_bar())
                    span { (significant(range.high)) " m" }
                }
            }
        }
    }
}

/// What a drawing spans, in metres.
struct Range {
    radius: f64,
    low: f64,
    high: f64,
}

impl Range {
    /// Without the farthest and highest points, which are few.
    fn new(cloud: &CloudFigures) -> Self {
        let sorted = |of: fn(&[f32; 3]) -> f64| {
            let mut values: Vec<f64> =
                cloud.points.iter().map(of).filter(|value| value.is_finite()).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let at = |values: &[f64], percent: usize| {
            let last = values.len().saturating_sub(1);
            values.get(last * percent / 100).copied().unwrap_or(0.0)
        };
        let distances = sorted(|[x, y, _]| f64::from(*x).hypot(f64::from(*y)));
        let heights = sorted(|[_, _, z]| f64::from(*z));
        let radius = at(&distances, 98) * 1.05;
        let radius = if radius > 0.0 { radius } else { 1.0 };
        Self { radius, low: at(&heights, 2), high: at(&heights, 98) }
    }

    fn scale(&self) -> f64 {
        HALF / self.radius
    }

    fn colour(&self, z: f32) -> usize {
        let span = self.high - self.low;
        if span <= 0.0 {
            return COLOURS / 2;
        }
        let place = (f64::from(z) - self.low) / span * COLOURS as f64;
        (place.max(0.0) as usize).min(COLOURS - 1)
    }
}

fn dots(cloud: &CloudFigures, range: &Range) -> [PathData; COLOURS] {
    let mut paths: [PathData; COLOURS] = Default::default();
    for [x, y, z] in &cloud.points {
        let (right, down) = (-f64::from(*y) * range.scale(), -f64::from(*x) * range.scale());
        let is_inside = right.abs() <= HALF && down.abs() <= HALF;
        if let Some(path) = paths.get_mut(range.colour(*z)).filter(|_| is_inside) {
            path.dot(right.round(), down.round());
        }
    }
    paths
}
