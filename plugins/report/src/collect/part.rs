//! What a part of a log contributes: the events of a batch, or of several that follow each other.

use sluice_kit::census::BatchCensus;
use sluice_model::{Batch, ChannelId, Rows};

use super::bins::BinCounter;
use super::channel::ChannelPart;
use super::fields::BatchFields;
use super::gaps::LongestGaps;
use super::grid::{BucketWidth, MAX_BUCKETS, OccupiedBuckets};
use super::hints::CollectedTimes;
use super::latency::MessageTimes;
use super::type_rows::TypeRows;
use super::views::ViewContext;
use super::{PartContext, RowFigures};
use crate::GapFigures;

/// What a part of a log contributes to its figures.
///
/// Parts that follow each other can be added: how a log is cut does not matter.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    pub(super) census: BatchCensus,
    /// The width of buckets, and which are occupied by events of any channel.
    pub(super) times: OccupiedBuckets<MAX_BUCKETS>,
    /// The buckets from which a picture is kept.
    pub(super) picture_times: OccupiedBuckets<MAX_PICTURES>,
    /// In order of their first event.
    pub(super) channels: Vec<ChannelPart>,
    /// The place in `channels` by the channel's number.
    places: Vec<u32>,
    /// The fields of a batch. Those of several are collected apart.
    pub(super) fields: BatchFields,
}

/// No place.
const NONE: u32 = u32::MAX;

/// How much is kept of a log. What comes later is left out.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    pub(super) channels: usize,
    /// Of these, the first that may have thumbnails.
    pub(super) cameras: usize,
}

/// The most pictures that are kept of a channel until thumbnails are chosen.
const MAX_PICTURES: usize = 23;

impl Part {
    /// What a batch contributes.
    pub(super) fn from_batch(
        batch: &Batch,
        context: &PartContext<'_>,
        bins: &mut BinCounter,
    ) -> Self {
        let census = BatchCensus::from_batch(batch, &[], &[]);
        let hints = &context.collector.hints;
        let times = OccupiedBuckets::from_times(batch.timestamps(), hints.width());
        let picture_times = times.coarser(hints.picture_width());
        let mut part = Self { census, times, picture_times, ..Self::default() };
        part.add_times(batch, bins);
        part.add_undecoded(batch);
        if context.rows == RowFigures::Values {
            let by_type = part.rows_by_type(batch, context);
            part.fields = BatchFields::from_rows(&by_type, |place| part.channels[place].channel);
            part.add_shown(batch, &by_type, context, bins);
        }
        part
    }

    /// The number of its events.
    pub(crate) fn events(&self) -> u64 {
        self.census.all.events
    }

    /// The widths of its buckets, and of those for pictures.
    pub(super) fn widths(&self) -> (BucketWidth, BucketWidth) {
        (self.times.width(), self.picture_times.width())
    }

    /// The times of what later batches need not contribute again.
    pub(super) fn collected_times(&self) -> CollectedTimes {
        let (width, picture_width) = self.widths();
        let mut collected = CollectedTimes { width, picture_width, ..CollectedTimes::default() };
        for part in &self.channels {
            let (channel, views) = (part.channel, &part.views);
            let pictures = views.pictures.buckets();
            collected.pictures.extend(pictures.map(|(bucket, time)| ((channel, bucket), time)));
            let until = views.packets.as_ref().and_then(|(_, packets)| packets.until());
            collected.packets.extend(until.map(|until| (channel, until)));
            collected.scans.extend(views.cloud.as_ref().map(|cloud| (channel, cloud.origin())));
        }
        collected
    }

    /// The place of a channel in `channels`.
    pub(super) fn place(&self, channel: u32) -> Option<usize> {
        let place = self.places.get(channel as usize).copied().filter(|place| *place != NONE)?;
        Some(place as usize)
    }

    fn insert(&mut self, part: ChannelPart) {
        let slot = part.channel as usize;
        if self.places.len() <= slot {
            self.places.resize(slot + 1, NONE);
        }
        self.places[slot] = self.channels.len() as u32;
        self.channels.push(part);
    }

    fn add_times(&mut self, batch: &Batch, bins: &mut BinCounter) {
        let width = self.times.width();
        let mut gaps: Vec<Vec<GapFigures>> = Vec::with_capacity(self.census.channels.len());
        self.channels.reserve_exact(self.census.channels.len());
        for (time, channel) in batch.timestamps().iter().zip(batch.channels()) {
            let bucket = width.bucket(*time);
            let Some(place) = self.place(*channel) else {
                let mut part = ChannelPart::new(*channel, *time);
                part.timeline.add(bucket, 1);
                self.insert(part);
                let census = self.census.channels.get(channel);
                let events = census.map_or(0, |census| census.times.events as usize);
                gaps.push(Vec::with_capacity(events.saturating_sub(1)));
                continue;
            };
            let part = &mut self.channels[place];
            gaps[place].extend(part.gap_before(*time));
            part.last = *time;
            part.timeline.add(bucket, 1);
        }
        for (part, gaps) in self.channels.iter_mut().zip(gaps) {
            part.intervals = bins.bins(gaps.iter().map(|gap| gap.length));
            part.gaps = LongestGaps::from_gaps(gaps);
        }
    }

    fn add_undecoded(&mut self, batch: &Batch) {
        for (row, has_rows) in batch.decoded_mask().into_iter().enumerate() {
            if let Some(place) = self.place(batch.channels()[row]).filter(|_| !has_rows) {
                self.channels[place].add_without_rows(batch.timestamps()[row]);
            }
        }
    }

    fn rows_by_type<'b>(&self, batch: &'b Batch, context: &PartContext<'_>) -> Vec<TypeRows<'b>> {
        let place = |event: u32| self.place(batch.channels()[event as usize]);
        let of_type = |rows: &'b Rows| {
            let views = context.shown.map(|shown| shown.views);
            let maps =
                |name: &str| views.map(|views| views.maps_for_type(name)).unwrap_or_default();
            let of = context.collector.types.of_rows(rows, maps);
            TypeRows::new(batch, (rows, of), self.times.width(), place)
        };
        batch.rows().iter().map(of_type).collect()
    }

    fn add_shown(
        &mut self,
        batch: &Batch,
        by_type: &[TypeRows<'_>],
        context: &PartContext<'_>,
        bins: &mut BinCounter,
    ) {
        for rows in by_type {
            let Some(shown) = context.shown else {
                self.add_latencies(rows, bins);
                continue;
            };
            let mut shown_rows = shown.views.rows(batch, rows.rows, &rows.of);
            let (width, picture_width) = self.widths();
            let hints = &context.collector.hints;
            for events in rows.channels() {
                let Some(part) = self.channels.get_mut(events.place) else { continue };
                let channel = shown.channels.get(ChannelId(part.channel));
                let context = ViewContext { width, picture_width, hints };
                let of = (part.channel, channel.name.text());
                shown_rows.add(&events, of, &mut part.views, (context, bins));
            }
        }
    }

    fn add_latencies(&mut self, rows: &TypeRows<'_>, bins: &mut BinCounter) {
        let Some(times) = MessageTimes::resolve(None, &rows.rows.columns) else { return };
        for channel in rows.channels() {
            let Some(part) = self.channels.get_mut(channel.place) else { continue };
            part.views.latencies.append(&mut times.latencies(channel.events(), bins));
        }
    }

    /// Adds the part that follows, within limits, but for its fields.
    pub(super) fn append(&mut self, mut next: Self, limits: &Limits) {
        if next.census.all.events == 0 {
            return;
        }
        self.census.append(std::mem::take(&mut next.census));
        let (ours, theirs) = (self.times.width(), next.times.width());
        self.times.append(std::mem::take(&mut next.times));
        self.widen(ours, self.times.width());
        next.widen(theirs, self.times.width());
        let (ours, theirs) = (self.picture_times.width(), next.picture_times.width());
        self.picture_times.append(std::mem::take(&mut next.picture_times));
        self.widen_pictures(ours, self.picture_times.width());
        next.widen_pictures(theirs, self.picture_times.width());
        for part in &mut next.channels {
            self.append_channel(part, limits);
        }
    }

    /// Makes the buckets of all channels wider.
    pub(super) fn widen(&mut self, from: BucketWidth, to: BucketWidth) {
        if from < to {
            self.channels.iter_mut().for_each(|part| part.widen(from, to));
        }
    }

    fn widen_pictures(&mut self, from: BucketWidth, to: BucketWidth) {
        if from < to {
            self.channels.iter_mut().for_each(|part| part.views.pictures.widen(from, to));
        }
    }

    fn append_channel(&mut self, next: &mut ChannelPart, limits: &Limits) {
        let place = self.place(next.channel);
        if place.unwrap_or(self.channels.len()) >= limits.cameras {
            next.views.pictures.drop_pictures();
            next.views.packets = None;
        }
        match place {
            Some(place) => self.channels[place].append(next),
            None if self.channels.len() < limits.channels => self.insert(next.take()),
            None => {}
        }
    }
}
