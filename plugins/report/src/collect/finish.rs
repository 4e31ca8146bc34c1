//! Turns what has been collected into figures.

use std::cmp::Reverse;
use std::sync::Arc;

use sluice_kit::census::{ChannelCensus, TimeStatistics};
use sluice_model::{Channel, Channels, Clock, FieldPath};

use super::Collection;
use super::bins::Bins;
use super::channel::ChannelPart;
use super::fields::Field;
use super::grid::BucketWidth;
use super::plots::PlotChoice;
use super::views::ViewParts;
use crate::{
    ChannelFigures, CloudFigures, Figures, FixFigures, GapFigures, NamedType, PictureFigures,
    RateFigures, Thinned, TimeGrid, TrackFigures,
};

/// With fewer intervals, nothing is usual.
const LEAST_INTERVALS: u64 = 10;
/// With fewer intervals, the 95th percentile is the longest of them.
const MANY_INTERVALS: u64 = 20;

impl Collection {
    /// The figures of all events, without inputs and provenance. `plots` are the paths of the
    /// fields that have a series; they are chosen if it is `None`.
    pub(crate) fn figures(mut self, channels: &Channels, plots: Option<&[FieldPath]>) -> Figures {
        let all = &self.part.census.all;
        let axis = (all.events > 0).then(|| self.part.times.axis(all.earliest, all.latest));
        let width = axis.map_or(self.part.times.width(), |axis| {
            BucketWidth::for_times(axis.start, axis.end).max(self.part.times.width())
        });
        let grid = axis.map_or(TimeGrid::default(), |axis| width.grid(axis.start, axis.end));
        self.widen(self.part.times.width(), width);
        let figures = self.figures_by_channel(channels, plots, (grid, width));
        Figures {
            axis_start: axis.map(|axis| axis.start),
            axis_end: axis.map(|axis| axis.end),
            off_axis: axis.map_or(0, |axis| axis.outside),
            ..figures
        }
    }

    fn widen(&mut self, from: BucketWidth, to: BucketWidth) {
        self.part.widen(from, to);
        self.fields.widen(from, to);
    }

    fn figures_by_channel(
        &self,
        channels: &Channels,
        plots: Option<&[FieldPath]>,
        (grid, width): (TimeGrid, BucketWidth),
    ) -> Figures {
        let names = channels.since(0);
        let all = &self.part.census.all;
        let is_empty = all.events == 0;
        let mut parts: Vec<(&ChannelPart, &ChannelCensus, &Arc<Channel>)> = self
            .part
            .channels
            .iter()
            .filter_map(|part| {
                let census = self.part.census.channels.get(&part.channel)?;
                Some((part, census, names.get(part.channel as usize)?))
            })
            .collect();
        parts.sort_by_key(|(_, census, channel)| {
            (Reverse(census.bytes), &channel.name, &channel.source)
        });
        let fields = parts.iter().map(|(part, ..)| self.fields_of(part));
        let plots = PlotChoice::new(fields, plots);
        let mut views = ViewFigures::default();
        for (part, _, channel) in &parts {
            views.add(part, channel);
        }
        let each = parts.iter().enumerate();
        let each = each.map(|(at, (part, census, channel))| {
            self.channel(part, census, channel, ((&grid, width), &plots, at))
        });
        Figures {
            events: all.events,
            bytes: self.part.census.channels.values().map(ChannelCensus::payload_bytes).sum(),
            start: (!is_empty).then_some(all.earliest),
            end: (!is_empty).then_some(all.latest),
            is_relative: parts.iter().any(|(.., channel)| channel.clock == Clock::Relative),
            steps_back: all.steps_back,
            sequence_jumps: self.sequence_jumps(),
            wide_times: self.part.census.channels.values().map(|census| census.wide_times).sum(),
            grid,
            channels: each.collect(),
            tracks: views.tracks,
            fixes: views.fixes,
            pictures: views.pictures,
            clouds: views.clouds,
            thinned: self.thinned(&plots),
            ..Figures::default()
        }
    }

    fn sequence_jumps(&self) -> Option<u64> {
        let census = &self.part.census;
        let is_sequence = census.all.events < 2 || census.sequence_jumps + 1 < census.all.events;
        is_sequence.then_some(census.sequence_jumps)
    }

    fn channel(
        &self,
        part: &ChannelPart,
        census: &ChannelCensus,
        channel: &Channel,
        ((grid, width), plots, at): ((&TimeGrid, BucketWidth), &PlotChoice, usize),
    ) -> ChannelFigures {
        let times = &census.times;
        let (gaps, gap_count) = gaps(part);
        let fields =
            self.fields_of(part).iter().enumerate().map(|(nth, field)| {
                field.figures(plots.is_plotted(at, nth).then_some(grid), width)
            });
        ChannelFigures {
            name: channel.name.text().to_owned(),
            source: channel.source.to_string(),
            encoding: channel.encoding.as_str().to_owned(),
            types: self.types(census, channel),
            events: times.events,
            bytes: census.payload_bytes(),
            undecoded: part.without_rows,
            first_undecoded: part.first_without_rows,
            first: times.earliest,
            last: times.latest,
            steps_back: times.steps_back,
            largest_step_back: times.largest_step_back,
            rate: rate(times, &part.intervals),
            longest_gap: (times.events > 1).then_some(GapFigures {
                start: times.largest_gap_start,
                length: times.largest_gap,
            }),
            gaps,
            gap_count,
            intervals: part.intervals.histogram(),
            latency: part.views.latencies.figures(),
            timeline: part.timeline.dense(grid, width, |events| *events),
            fields: fields.collect(),
        }
    }

    fn fields_of(&self, part: &ChannelPart) -> &[Field] {
        self.part.place(part.channel).map_or(&[], |place| self.fields.of(place))
    }

    fn types(&self, census: &ChannelCensus, channel: &Channel) -> Vec<NamedType> {
        let named = &self.part.census.named;
        let name = |key| named.get(key).map_or_else(|| key.to_string(), |name| name.to_string());
        let common = census.common_types();
        let mut types: Vec<NamedType> = common
            .iter()
            .map(|(key, events)| NamedType { name: name(key), events: *events })
            .collect();
        if types.is_empty() {
            let declared = channel.type_name.as_ref().map(|name| name.to_string());
            types.extend(declared.map(|name| NamedType { name, events: census.times.events }));
        }
        types
    }

    fn thinned(&self, plots: &PlotChoice) -> Vec<Thinned> {
        let shown = |what: &str, of: usize, shown: usize| Thinned {
            what: what.to_owned(),
            of: of as u64,
            shown: shown as u64,
        };
        let fields = self.part.channels.iter().map(|part| self.fields_of(part).len());
        let fields: usize = fields.sum();
        let all = [
            shown(Thinned::CHANNELS, self.part.census.channels.len(), self.part.channels.len()),
            shown("numeric fields", fields + self.fields.left_out(), fields),
            shown("plots of fields", plots.candidates(), plots.len()),
        ];
        all.into_iter().filter(|thinned| thinned.shown < thinned.of).collect()
    }
}

/// What channels show.
#[derive(Default)]
struct ViewFigures {
    tracks: Vec<TrackFigures>,
    fixes: Vec<FixFigures>,
    pictures: Vec<PictureFigures>,
    clouds: Vec<CloudFigures>,
}

impl ViewFigures {
    fn add(&mut self, part: &ChannelPart, channel: &Channel) {
        let ViewParts { track, fixes, pictures, cloud, .. } = &part.views;
        let name = || channel.name.text().to_owned();
        if !track.is_empty() {
            self.tracks.push(track.track(name()));
        }
        if !fixes.is_empty() {
            self.fixes.push(fixes.fixes(name()));
        }
        self.pictures.extend(pictures.figures(name()));
        self.clouds.extend(cloud.as_ref().map(|cloud| cloud.figures(name())));
    }
}

fn rate(times: &TimeStatistics, intervals: &Bins) -> Option<RateFigures> {
    let mean = times.rate()?;
    let rate = |percent| {
        let interval = intervals.percentile(percent)?;
        Some(1e9 / interval.max(1) as f64)
    };
    Some(RateFigures { median: rate(50)?, p1: rate(99)?, p99: rate(1)?, mean })
}

/// The intervals that are longer than usual, and how many there are.
fn gaps(part: &ChannelPart) -> (Vec<GapFigures>, u64) {
    let intervals = &part.intervals;
    let Some(limit) = longest_usual(intervals) else { return (Vec::new(), 0) };
    let gaps = part.gaps.longer_than(|length| Bins::is_above(length, limit));
    (gaps, intervals.count_above(limit))
}

/// Five times the median, and twice the 95th percentile; of few intervals what the stage `gaps`
/// allows. `None` if there are too few to tell.
fn longest_usual(intervals: &Bins) -> Option<u64> {
    let median = intervals.percentile(50)?;
    let irregular = match intervals.count() {
        0..LEAST_INTERVALS => return None,
        LEAST_INTERVALS..MANY_INTERVALS => {
            let spread = intervals.percentile(90)?.saturating_sub(median);
            median.saturating_mul(2).saturating_add(spread.saturating_mul(8))
        }
        _ => intervals.percentile(95)?.saturating_mul(2),
    };
    Some(median.saturating_mul(5).max(irregular))
}
