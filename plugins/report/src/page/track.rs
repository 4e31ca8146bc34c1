//! The ways: positions in metres with equal scales, coloured by speed and by time.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use maud::{Markup, html};
use sluice_io::escape::printable;

use super::svg::{PathData, round_step};
use super::text::{Clock, decimals, name, significant};
use crate::{Figures, FixFigures, Point};

/// The number of colours, classes `ramp-0` to `ramp-7`.
pub(super) const COLOURS: usize = 8;
/// The length of the longer side of a drawing.
const SIDE: f64 = 1000.0;

/// Nothing without positions.
pub(super) fn section(figures: &Figures, clock: Clock) -> Markup {
    let tracks = figures.tracks.iter().enumerate().filter(|(_, t)| !t.points.is_empty());
    let fixes = figures.fixes.iter().enumerate().filter(|(_, f)| !f.points.is_empty());
    let drawings: Vec<Markup> = tracks
        .map(|(number, track)| {
            let (length, fastest) = (metres(track.length), significant(track.greatest_speed));
            let what = format!("{length}, fastest {fastest} m/s");
            let way = Way { channel: &track.channel, points: &track.points, what: &what };
            drawing(&way, &format!("tracks-{number}"), clock, &html! {})
        })
        .chain(fixes.map(|(number, fix)| {
            let what = "positions on the globe";
            let way = Way { channel: &fix.channel, points: &fix.points, what };
            drawing(&way, &format!("fixes-{number}"), clock, &geo_json_link(fix))
        }))
        .collect();
    html! {
        @if !drawings.is_empty() {
            section #track {
                h2 { "Track" }
                p.lead {
                    "Positions in metres, seen from above, both axes to one scale. "
                    "○ is the start, □ the end."
                }
                div.toolbar.script hidden {
                    button type="button" data-colour="speed" aria-pressed="true" { "Colour by speed" }
                    button type="button" data-colour="time" aria-pressed="false" { "Colour by time" }
                }
                div.tracks { @for drawing in &drawings { (drawing) } }
            }
        }
    }
}

fn metres(length: f64) -> String {
    if length >= 10_000.0 {
        format!("{} km", decimals(length / 1000.0, 1))
    } else {
        format!("{} m", decimals(length, 1))
    }
}

/// A line to draw.
struct Way<'a> {
    channel: &'a str,
    points: &'a [Point],
    what: &'a str,
}

/// `id` says to the script which figures these are.
fn drawing(way: &Way<'_>, id: &str, clock: Clock, more: &Markup) -> Markup {
    let Way { channel, points, what } = *way;
    let frame = Frame::new(points);
    let speeds = Speeds::new(points);
    let legend = (significant(speeds.low), significant(speeds.high));
    let (start, end) = (points.first(), points.last());
    html! {
        figure.track {
            figcaption {
                strong { (name(channel)) }
                small { (what) ", a line of the grid every " (metres(frame.step)) }
                (more)
            }
            svg viewBox=(frame.view_box()) role="img"
                aria-label={ "Track of " (printable(channel)) ": " (what) } {
                path.mesh d=(frame.mesh().as_str()) {}
                g.by-speed { (lines(&frame, points, |n| speeds.colour(n))) }
                g.by-time { (lines(&frame, points, |n| n * COLOURS / points.len())) }
                @if let Some(start) = start {
                    @let (x, y) = frame.place(start);
                    circle.mark cx=(decimals(x, 1)) cy=(decimals(y, 1)) r="9" {
                        title { "start, " (clock.offset(start.time)) }
                    }
                }
                @if let Some(end) = end {
                    @let (x, y) = frame.place(end);
                    rect.mark x=(decimals(x - 8.0, 1)) y=(decimals(y - 8.0, 1)) width="16" height="16" {
                        title { "end, " (clock.offset(end.time)) }
                    }
                }
                circle.now r="10" visibility="hidden" data-way=(id) data-frame=(frame.numbers()) {}
            }
            div.legend.by-speed { span { (legend.0) " m/s" } (colour_bar()) span { (legend.1) " m/s" } }
            div.legend.by-time {
                span { (start.map_or(String::new(), |p| clock.offset(p.time))) }
                (colour_bar())
                span { (end.map_or(String::new(), |p| clock.offset(p.time))) }
            }
        }
    }
}

pub(super) fn colour_bar() -> Markup {
    html! {
        svg.ramp viewBox={ "0 0 " (COLOURS) " 1" } preserveAspectRatio="none" aria-hidden="true" {
            @for colour in 0..COLOURS {
                rect class={ "ramp-" (colour) } x=(colour) width="1.05" height="1" {}
            }
        }
    }
}

/// The line from point to point, a path per colour; `colour` says it of the segment that ends at
/// a point.
fn lines(frame: &Frame, points: &[Point], colour: impl Fn(usize) -> usize) -> Markup {
    let mut paths: [PathData; COLOURS] = Default::default();
    let mut before = None;
    for (number, pair) in points.windows(2).enumerate() {
        let [from, to] = pair else { continue };
        let colour = colour(number + 1).min(COLOURS - 1);
        let Some(path) = paths.get_mut(colour) else { continue };
        if before != Some(colour) {
            let (x, y) = frame.place(from);
            path.move_to(x, y);
        }
        let (x, y) = frame.place(to);
        path.line_to(x, y);
        before = Some(colour);
    }
    html! {
        @for (colour, path) in paths.iter().enumerate().filter(|(_, path)| !path.is_empty()) {
            path class={ "way ramp-" (colour) } d=(path.as_str()) {}
        }
    }
}

/// How metres become places of a drawing.
struct Frame {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
    scale: f64,
    /// Metres between lines of the grid.
    step: f64,
}

impl Frame {
    fn new(points: &[Point]) -> Self {
        let finite = |value: &f64| value.is_finite();
        let range = |values: &mut dyn Iterator<Item = f64>| {
            values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| {
                (low.min(v), high.max(v))
            })
        };
        let (left, right) = range(&mut points.iter().map(|p| p.x).filter(finite));
        let (bottom, top) = range(&mut points.iter().map(|p| p.y).filter(finite));
        let side = (right - left).max(top - bottom);
        let side = if side.is_finite() && side > 0.0 { side } else { 1.0 };
        // A straight line still has a field around it.
        let pad = |low: f64, high: f64, least: f64| {
            let (low, high) = if low <= high { (low, high) } else { (0.0, 0.0) };
            let missing = (least - (high - low)).max(0.0) / 2.0 + side * 0.05;
            (low - missing, high + missing)
        };
        let (left, right) = pad(left, right, side * 0.5);
        let (bottom, top) = pad(bottom, top, side * 0.4);
        let side = (right - left).max(top - bottom);
        let scale = SIDE / side;
        let (width, height) = ((right - left) * scale, (top - bottom) * scale);
        Self { left, top, width, height, scale, step: round_step(side, 8.0) }
    }

    fn view_box(&self) -> String {
        format!("0 0 {} {}", decimals(self.width, 0), decimals(self.height, 0))
    }

    /// Left and top edge in metres, and the scale.
    fn numbers(&self) -> String {
        format!("{} {} {}", decimals(self.left, 3), decimals(self.top, 3), self.scale)
    }

    fn place(&self, point: &Point) -> (f64, f64) {
        ((point.x - self.left) * self.scale, (self.top - point.y) * self.scale)
    }

    /// Lines at round metres.
    fn mesh(&self) -> PathData {
        let mut path = PathData::default();
        let step = self.step * self.scale;
        let first = |edge: f64| ((edge / self.step).ceil() * self.step - edge) * self.scale;
        let (left, bottom) = (first(self.left), first(self.top - self.height / self.scale));
        for n in 0..20 {
            let (x, y) = (left + f64::from(n) * step, self.height - bottom - f64::from(n) * step);
            if x <= self.width {
                path.move_to(x, 0.0);
                path.line_to(x, self.height);
            }
            if y >= 0.0 {
                path.move_to(0.0, y);
                path.level(self.width);
            }
        }
        path
    }
}

/// Speeds between points, and the range that colours span.
struct Speeds {
    /// Of the segment that ends at a point.
    at: Vec<f64>,
    low: f64,
    high: f64,
}

impl Speeds {
    fn new(points: &[Point]) -> Self {
        let between = |pair: &[Point]| -> f64 {
            let [from, to] = pair else { return 0.0 };
            let seconds = (i128::from(to.time) - i128::from(from.time)) as f64 / 1e9;
            let metres = (to.x - from.x).hypot(to.y - from.y);
            if seconds > 0.0 && metres.is_finite() { metres / seconds } else { 0.0 }
        };
        let at: Vec<f64> = std::iter::once(0.0).chain(points.windows(2).map(between)).collect();
        let mut sorted = at.get(1..).unwrap_or_default().to_vec();
        sorted.sort_by(f64::total_cmp);
        // A single jump must not make everything else one colour.
        let high = sorted.get(sorted.len() * 98 / 100).copied().unwrap_or(0.0);
        Self { at, low: sorted.first().copied().unwrap_or(0.0), high }
    }

    fn colour(&self, point: usize) -> usize {
        let speed = self.at.get(point).copied().unwrap_or(0.0);
        let span = self.high - self.low;
        if span <= 0.0 { 0 } else { ((speed - self.low) / span * COLOURS as f64).max(0.0) as usize }
    }
}

/// A download of the positions as a line of GeoJSON.
fn geo_json_link(fix: &FixFigures) -> Markup {
    let data = BASE64.encode(geo_json(fix));
    html! {
        a.download download="track.geojson" href={ "data:application/geo+json;base64," (data) } {
            "Save as GeoJSON"
        }
    }
}

fn geo_json(fix: &FixFigures) -> String {
    let mut places = String::new();
    let is_real = |place: &&[f64; 2]| place.iter().all(|degrees| degrees.is_finite());
    for [longitude, latitude] in fix.positions.iter().filter(is_real) {
        let comma = if places.is_empty() { "" } else { "," };
        // Seven decimals are a centimetre.
        let (longitude, latitude) = (decimals(*longitude, 7), decimals(*latitude, 7));
        let _written = write!(places, "{comma}[{longitude},{latitude}]");
    }
    let channel = serde_json::Value::from(fix.channel.as_str());
    format!(
        r#"{{"type":"Feature","properties":{{"channel":{channel}}},"geometry":{{"type":"LineString","coordinates":[{places}]}}}}"#
    )
}
