//! Thinning: figures with less detail, so that the page stays small.
//!
//! Buckets of time are joined and bins added up, both exactly; the rest is left out and told.

use std::cmp::Reverse;

use super::MOST_PICTURE_BYTES;
use super::text::rounded;
use crate::{
    ChannelFigures, Figures, GapFigures, Histogram, HistogramBin, PictureFigures, Thinned, TimeGrid,
};

/// How much a page shows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Detail {
    /// Buckets of time that become one: a power of two.
    pub(super) joined: usize,
    /// Channels.
    channels: usize,
    /// Plots of fields.
    pub(super) plots: usize,
    /// Rows of tables of fields.
    pub(super) rows: usize,
    /// Whether channels have spark lines.
    pub(super) sparks: bool,
    /// Channels with a lane in the time line.
    pub(super) lanes: usize,
    /// Channels with histograms.
    pub(super) histograms: usize,
    /// Gaps of a channel.
    pub(super) gaps: usize,
    /// Points of a laser.
    pub(super) points: usize,
    /// Tracks and positions on the globe that are drawn.
    pub(super) ways: usize,
    /// The points of all of these together.
    pub(super) way_points: usize,
}

const FULL: Detail = Detail {
    joined: 1,
    channels: usize::MAX,
    plots: 60,
    rows: 1000,
    sparks: true,
    lanes: usize::MAX,
    histograms: 1000,
    gaps: 100,
    points: 6000,
    ways: usize::MAX,
    way_points: usize::MAX,
};
const HALF: Detail =
    Detail { joined: 2, plots: 40, rows: 600, gaps: 50, points: 4000, way_points: 20_000, ..FULL };
const QUARTER: Detail = Detail {
    joined: 4,
    plots: 20,
    rows: 300,
    histograms: 100,
    gaps: 20,
    points: 2000,
    ways: 200,
    way_points: 10_000,
    ..HALF
};
const LEAST: Detail = Detail {
    joined: 16,
    plots: 6,
    rows: 60,
    sparks: false,
    lanes: 200,
    histograms: 20,
    gaps: 1,
    points: 800,
    ways: 20,
    way_points: 2000,
    ..QUARTER
};

/// From the most detailed to the least.
pub(super) const DETAILS: [Detail; 8] = [
    FULL,
    Detail { plots: 40, rows: 600, points: 4000, way_points: 30_000, ..FULL },
    HALF,
    Detail { plots: 20, rows: 400, histograms: 300, gaps: 30, points: 3000, ..HALF },
    QUARTER,
    Detail { joined: 8, plots: 12, rows: 200, histograms: 50, gaps: 5, points: 1500, ..QUARTER },
    LEAST,
    // Long names alone take more.
    Detail { channels: 400, ..LEAST },
];

/// The number of bars of a histogram.
const MOST_BARS: f64 = 60.0;
/// The most bins to a factor of two: finer ones are not of equal ratio.
const MOST_PER_OCTAVE: f64 = 16.0;

/// The figures with this much detail, and what was left out.
pub(super) fn thinned(figures: &Figures, detail: &Detail) -> Figures {
    let mut figures = figures.clone();
    note(&mut figures.thinned, Thinned::CHANNELS, figures.channels.len(), detail.channels);
    figures.channels.truncate(detail.channels);
    join_buckets(&mut figures, detail.joined);
    thin_plots(&mut figures, detail.plots);
    thin_pictures(&mut figures);
    for channel in &mut figures.channels {
        thin_gaps(&mut channel.gaps, detail.gaps);
        join_bins(&mut channel.intervals);
        if let Some(latency) = &mut channel.latency {
            join_bins(&mut latency.histogram);
        }
        round_series(channel);
    }
    let fields = figures.channels.iter().map(|c| c.fields.len()).sum();
    note(&mut figures.thinned, "rows in tables of fields", fields, detail.rows);
    note(&mut figures.thinned, "lanes of the time line", figures.channels.len(), detail.lanes);
    for channel in figures.channels.iter_mut().skip(detail.lanes) {
        channel.timeline = Vec::new();
    }
    thin_histograms(&mut figures, detail.histograms);
    thin_clouds(&mut figures, detail.points);
    thin_ways(&mut figures, detail.ways, detail.way_points);
    round_points(&mut figures);
    figures
}

/// Says that fewer are shown than there are; keeps what was known of the same subject.
fn note(thinned: &mut Vec<Thinned>, what: &str, of: usize, shown: usize) {
    if shown >= of {
        return;
    }
    let (of, shown) = (of as u64, shown as u64);
    match thinned.iter_mut().find(|entry| entry.what == what) {
        Some(entry) => {
            entry.of = entry.of.max(of);
            entry.shown = entry.shown.min(shown);
        }
        None => thinned.push(Thinned { what: what.to_owned(), of, shown }),
    }
}

/// Joins buckets of time, `joined` into one.
fn join_buckets(figures: &mut Figures, joined: usize) {
    let grid = figures.grid;
    if joined <= 1 || grid.width == 0 {
        return;
    }
    let width = grid.width.saturating_mul(joined as u64);
    let start =
        i64::try_from(i128::from(grid.start).div_euclid(i128::from(width)) * i128::from(width));
    // Near the ends of time there is no coarser grid.
    let Ok(start) = start else { return };
    let shift = (grid.start.abs_diff(start) / grid.width) as usize;
    let buckets = (grid.buckets + shift).div_ceil(joined);
    let place = |bucket: usize| ((bucket + shift) / joined).min(buckets.saturating_sub(1));
    for channel in &mut figures.channels {
        let mut counts = vec![0u64; if channel.timeline.is_empty() { 0 } else { buckets }];
        for (bucket, count) in channel.timeline.iter().enumerate() {
            if let Some(sum) = counts.get_mut(place(bucket)) {
                *sum = sum.saturating_add(*count);
            }
        }
        channel.timeline = counts;
        for field in channel.fields.iter_mut().filter(|field| !field.series.is_empty()) {
            let mut series: Vec<Option<[f64; 2]>> = vec![None; buckets];
            for (bucket, extent) in field.series.iter().enumerate() {
                let (Some([low, high]), Some(slot)) = (extent, series.get_mut(place(bucket)))
                else {
                    continue;
                };
                let [least, most] = slot.unwrap_or([*low, *high]);
                *slot = Some([least.min(*low), most.max(*high)]);
            }
            field.series = series;
        }
    }
    figures.grid = TimeGrid { start, width, buckets };
    note(&mut figures.thinned, "steps of time", grid.buckets, buckets);
}

/// Keeps `most` plots: the first of each channel, then the second of each, and so on.
fn thin_plots(figures: &mut Figures, most: usize) {
    let has_series = |channel: &ChannelFigures| -> Vec<usize> {
        let fields = channel.fields.iter().enumerate();
        fields.filter(|(_, field)| !field.series.is_empty()).map(|(place, _)| place).collect()
    };
    let plots: Vec<Vec<usize>> = figures.channels.iter().map(has_series).collect();
    let count = plots.iter().map(Vec::len).sum();
    let deepest = plots.iter().map(Vec::len).max().unwrap_or(0);
    let by_round = (0..deepest).flat_map(|round| {
        let of_round = plots.iter().enumerate();
        of_round.filter_map(move |(number, places)| Some((number, *places.get(round)?)))
    });
    for (number, place) in by_round.skip(most) {
        let channel = figures.channels.get_mut(number);
        if let Some(field) = channel.and_then(|channel| channel.fields.get_mut(place)) {
            field.series = Vec::new();
        }
    }
    note(&mut figures.thinned, "plots of fields", count, most);
}

/// The length of the pictures in the page.
pub(super) fn picture_bytes(figures: &Figures) -> usize {
    figures
        .pictures
        .iter()
        .flat_map(|camera| &camera.thumbnails)
        .map(|t| in_page(t.jpeg.len()))
        .sum()
}

/// The length in base64.
fn in_page(len: usize) -> usize {
    len.div_ceil(3) * 4
}

/// Fewer pictures of each camera, evenly, until they fit.
fn thin_pictures(figures: &mut Figures) {
    let most = |camera: &PictureFigures| camera.thumbnails.len();
    let count: usize = figures.pictures.iter().map(most).sum();
    let mut each = figures.pictures.iter().map(most).max().unwrap_or(0);
    while each > 0 && picture_bytes(figures) > MOST_PICTURE_BYTES {
        each -= 1;
        for camera in &mut figures.pictures {
            every_nth(&mut camera.thumbnails, each);
        }
    }
    let shown = figures.pictures.iter().map(most).sum();
    note(&mut figures.thinned, "thumbnails of pictures", count, shown);
}

/// Histograms of the first channels.
fn thin_histograms(figures: &mut Figures, most: usize) {
    let has_bins = |channel: &&mut ChannelFigures| !channel.intervals.bins.is_empty();
    let channels: Vec<_> = figures.channels.iter_mut().filter(has_bins).collect();
    let count = channels.len();
    for channel in channels.into_iter().skip(most) {
        channel.intervals = Histogram::default();
        channel.latency = None;
    }
    note(&mut figures.thinned, "histograms of intervals", count, most);
}

/// Fewer points of each laser, to the centimetre.
fn thin_clouds(figures: &mut Figures, most: usize) {
    let (mut count, mut shown) = (0u64, 0);
    for cloud in &mut figures.clouds {
        every_nth(&mut cloud.points, most);
        for value in cloud.points.iter_mut().flatten() {
            *value = (*value * 100.0).round() / 100.0;
        }
        count = count.saturating_add(cloud.count);
        shown += cloud.points.len();
    }
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    note(&mut figures.thinned, "points of lasers", count, shown);
}

/// The first tracks and positions on the globe, each with fewer points.
fn thin_ways(figures: &mut Figures, most: usize, most_points: usize) {
    let ways = |figures: &Figures| figures.tracks.len() + figures.fixes.len();
    let points = |figures: &Figures| -> usize {
        let tracks = figures.tracks.iter().map(|track| track.points.len());
        tracks.chain(figures.fixes.iter().map(|fix| fix.points.len())).sum()
    };
    let before = (ways(figures), points(figures));
    figures.tracks.truncate(most);
    figures.fixes.truncate(most - figures.tracks.len());
    if points(figures) > most_points {
        let each = most_points / ways(figures).max(1);
        for track in &mut figures.tracks {
            from_end_to_end(&mut track.points, each);
        }
        for fix in &mut figures.fixes {
            from_end_to_end(&mut fix.points, each);
            from_end_to_end(&mut fix.positions, each);
        }
    }
    let after = (ways(figures), points(figures));
    note(&mut figures.thinned, "tracks", before.0, after.0);
    note(&mut figures.thinned, "points of tracks", before.1, after.1);
}

/// Keeps at most `most` values, evenly spaced, among them the first and the last.
fn from_end_to_end<T>(values: &mut Vec<T>, most: usize) {
    if values.len() > most {
        let last = values.pop();
        every_nth(values, most.saturating_sub(1));
        values.extend(last);
    }
}

/// Keeps at most `most` values, evenly spaced, among them the first.
fn every_nth<T>(values: &mut Vec<T>, most: usize) {
    let len = values.len();
    if len <= most {
        return;
    }
    let mut place = 0;
    let mut kept = 0;
    values.retain(|_| {
        let is_kept = kept < most && place * most >= kept * len;
        place += 1;
        kept += usize::from(is_kept);
        is_kept
    });
}

/// Keeps the longest gaps, in order of time.
fn thin_gaps(gaps: &mut Vec<GapFigures>, most: usize) {
    if gaps.len() > most {
        gaps.sort_by_key(|gap| (Reverse(gap.length), gap.start));
        gaps.truncate(most);
        gaps.sort_by_key(|gap| (gap.start, gap.length));
    }
}

/// The least positive value of a histogram, and the number of bins to a factor of two, a power of
/// two, with which it has at most about [`MOST_BARS`]. Zero has no logarithm: its bin stands apart.
pub(super) fn bin_scale(histogram: &Histogram) -> Option<(f64, f64)> {
    let least = histogram.bins.iter().map(|bin| bin.from).find(|from| *from > 0.0);
    let least = least.unwrap_or(1.0).max(f64::MIN_POSITIVE);
    let octaves = (histogram.bins.last()?.to / least).log2().max(0.01);
    let mut per_octave = MOST_PER_OCTAVE;
    while octaves * per_octave > MOST_BARS {
        per_octave /= 2.0;
    }
    Some((least, per_octave))
}

/// The place of a bin on that scale; `None` for that of zero.
pub(super) fn bin_place(bin: &HistogramBin, (least, per_octave): (f64, f64)) -> Option<usize> {
    let octaves = || (bin.from / least).log2();
    (bin.from > 0.0).then(|| (octaves() * per_octave + 0.01).max(0.0) as usize)
}

/// Adds up the bins that a drawing does not tell apart.
fn join_bins(histogram: &mut Histogram) {
    let Some(scale) = bin_scale(histogram) else { return };
    let is_same = |a: &HistogramBin, b: &HistogramBin| bin_place(a, scale) == bin_place(b, scale);
    let joined = histogram.bins.chunk_by(is_same).filter_map(|bins| {
        let (first, last) = (bins.first()?, bins.last()?);
        let count = bins.iter().fold(0u64, |sum, bin| sum.saturating_add(bin.count));
        Some(HistogramBin { from: first.from, to: last.to, count })
    });
    histogram.bins = joined.collect();
}

/// Rounds series to what a plot can show.
fn round_series(channel: &mut ChannelFigures) {
    for field in &mut channel.fields {
        let (Some(min), Some(max)) = (field.min, field.max) else { continue };
        for value in field.series.iter_mut().flatten().flatten() {
            *value = rounded(*value, max - min);
        }
    }
}

/// Rounds positions to millimetres.
fn round_points(figures: &mut Figures) {
    let tracks = figures.tracks.iter_mut().map(|track| &mut track.points);
    for point in tracks.chain(figures.fixes.iter_mut().map(|fix| &mut fix.points)).flatten() {
        (point.x, point.y) = (rounded(point.x, 10.0), rounded(point.y, 10.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FieldFigures;

    #[test]
    fn joined_buckets_keep_every_event_and_extreme() {
        let channel = ChannelFigures {
            timeline: vec![1, 2, 3, 4, 5],
            fields: vec![FieldFigures {
                series: vec![None, Some([1.0, 2.0]), Some([-1.0, 0.0]), None, Some([9.0, 9.0])],
                ..FieldFigures::default()
            }],
            ..ChannelFigures::default()
        };
        let grid = TimeGrid { start: -8, width: 8, buckets: 5 };
        let mut figures = Figures { grid, channels: vec![channel], ..Figures::default() };
        join_buckets(&mut figures, 2);
        assert_eq!(figures.grid, TimeGrid { start: -16, width: 16, buckets: 3 });
        assert_eq!(figures.channels[0].timeline, [1, 5, 9]);
        let series = &figures.channels[0].fields[0].series;
        assert_eq!(series, &[None, Some([-1.0, 2.0]), Some([9.0, 9.0])]);
    }

    #[test]
    fn evenly_spaced_values_are_as_many_as_asked_for() {
        for (len, most) in [(12, 5), (7, 7), (100, 1), (3, 0), (1000, 999)] {
            let mut values: Vec<usize> = (0..len).collect();
            every_nth(&mut values, most);
            assert_eq!(values.len(), most.min(len));
        }
    }

    #[test]
    fn bins_are_added_up() {
        let bin = |n: i32| HistogramBin {
            from: 2f64.powf(f64::from(n) / 64.0),
            to: 2f64.powf(f64::from(n + 1) / 64.0),
            count: 1,
        };
        let mut histogram = Histogram { bins: (640..768).map(bin).collect() };
        join_bins(&mut histogram);
        assert_eq!(histogram.bins.len(), 32);
        assert!(histogram.bins.iter().all(|bin| bin.count == 4));
    }
}
