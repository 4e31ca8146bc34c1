//! What a part of a log contributes: the events of a batch, or of several that follow each other.

use std::collections::BTreeSet;
use std::sync::Arc;

use sluice_kit::census::BatchCensus;
use sluice_model::{Batch, ChannelId, Rows};

use super::bins::BinCounter;
use super::channel::ChannelPart;
use super::fields::{ChannelRows, FieldPart};
use super::gaps::LongestGaps;
use super::grid::{BucketWidth, MAX_BUCKETS, OccupiedBuckets};
use super::latency::MessageTimes;
use super::row_types::RowType;
use super::views::ViewContext;
use super::{PartContext, RowFigures};
use crate::GapFigures;

/// What a part of a log contributes to its figures.
///
/// Parts that follow each other can be added in any grouping: how a log is cut does not matter.
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
    /// Fields beyond the limits, by the channel's number and path.
    pub(super) left_out: BTreeSet<(u32, Arc<str>)>,
}

/// No place.
const NONE: u32 = u32::MAX;

/// How much is kept of a log. What comes later is left out.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    pub(super) channels: usize,
    /// Of these, the first that may have thumbnails.
    pub(super) cameras: usize,
    pub(super) fields: FieldBudget,
}

/// How many fields are kept.
#[derive(Clone, Debug)]
pub(super) struct FieldBudget {
    /// Of all channels, besides those that are there.
    pub(super) left: usize,
    /// Of each channel.
    pub(super) of_channel: usize,
    /// The paths of fields that are kept in any case.
    pub(super) kept: BTreeSet<String>,
}

impl FieldBudget {
    pub(super) const UNLIMITED: Self =
        Self { left: usize::MAX, of_channel: usize::MAX, kept: BTreeSet::new() };
}

impl Limits {
    /// For the parts of batches, which are small.
    #[cfg(test)]
    pub(super) const UNLIMITED: Self =
        Self { channels: usize::MAX, cameras: usize::MAX, fields: FieldBudget::UNLIMITED };
}

/// The most pictures that are kept of a channel until thumbnails are chosen.
const MAX_PICTURES: usize = 23;

/// The most fields that are remembered as left out.
const MAX_LEFT_OUT: usize = 10_000;

/// The rows of one type, by channel.
struct RowsOfType<'b> {
    rows: &'b Rows,
    of: Arc<RowType>,
    channels: Vec<ChannelRows>,
}

impl Part {
    /// What a batch contributes.
    pub(super) fn from_batch(
        batch: &Batch,
        context: &PartContext<'_>,
        bins: &mut BinCounter,
    ) -> Self {
        let census = BatchCensus::from_batch(batch, &[]);
        let hints = &context.collector.hints;
        let times = OccupiedBuckets::from_times(batch.timestamps(), hints.width());
        let picture_times = times.coarser(hints.picture_width());
        let mut part = Self { census, times, picture_times, ..Self::default() };
        part.add_times(batch, bins);
        part.add_undecoded(batch);
        if context.rows == RowFigures::Values {
            let by_type = part.rows_by_channel(batch, context);
            part.add_fields(&by_type);
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

    fn place(&self, channel: u32) -> Option<usize> {
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
        for (part, gaps) in self.channels.iter_mut().zip(&gaps) {
            part.intervals = bins.bins(gaps.iter().map(|gap| gap.length));
            part.gaps = LongestGaps::from_gaps(gaps);
        }
    }

    fn add_undecoded(&mut self, batch: &Batch) {
        let mut has_rows = vec![false; batch.len()];
        let events = batch.rows().iter().flat_map(|rows| &rows.events);
        events.for_each(|event| has_rows[*event as usize] = true);
        for (row, has_rows) in has_rows.into_iter().enumerate() {
            if let Some(place) = self.place(batch.channels()[row]).filter(|_| !has_rows) {
                self.channels[place].add_without_rows(batch.timestamps()[row]);
            }
        }
    }

    fn rows_by_channel<'b>(
        &self,
        batch: &'b Batch,
        context: &PartContext<'_>,
    ) -> Vec<RowsOfType<'b>> {
        let place = |event: u32| self.place(batch.channels()[event as usize]);
        let of_type = |rows: &'b Rows| {
            let channels = ChannelRows::by_channel(batch, rows, self.times.width(), place);
            let views = context.shown.map(|shown| shown.views);
            RowsOfType { rows, of: context.collector.types.of_rows(rows, views), channels }
        };
        batch.rows().iter().map(of_type).collect()
    }

    fn add_fields(&mut self, by_type: &[RowsOfType<'_>]) {
        // Fields are in order of their first event, then of the type's columns.
        let mut types = vec![0; self.channels.len()];
        let channels = by_type.iter().flat_map(|of_type| &of_type.channels);
        channels.for_each(|channel| types[channel.place] += 1);
        let mut of_several: Vec<(&ChannelRows, FieldPart)> = Vec::new();
        for RowsOfType { rows, of, channels } in by_type {
            for channel in channels {
                self.channels[channel.place].fields.reserve_exact(of.leaves.len());
            }
            for leaf in &of.leaves {
                let Some(values) = leaf.numbers(&rows.columns) else { continue };
                for channel in channels {
                    let field = channel.values(&leaf.text, &values);
                    match types[channel.place] {
                        // The fields of a type differ.
                        1 => self.channels[channel.place].insert_field(field),
                        _ => of_several.push((channel, field)),
                    }
                }
            }
        }
        of_several.sort_by_key(|(channel, _)| channel.first);
        let mut fields = FieldBudget::UNLIMITED;
        for (channel, mut field) in of_several {
            self.add_field(channel.place, &mut field, usize::MAX, &mut fields);
        }
    }

    fn add_shown(
        &mut self,
        batch: &Batch,
        by_type: &[RowsOfType<'_>],
        context: &PartContext<'_>,
        bins: &mut BinCounter,
    ) {
        for RowsOfType { rows, of, channels } in by_type {
            let Some(shown) = context.shown else {
                self.add_latencies(rows, channels, bins);
                continue;
            };
            let mut shown_rows = shown.views.rows(batch, rows, of);
            let (width, picture_width) = self.widths();
            let hints = &context.collector.hints;
            for events in channels {
                let Some(part) = self.channels.get_mut(events.place) else { continue };
                let channel = shown.channels.get(ChannelId(part.channel));
                let context = ViewContext { width, picture_width, hints };
                let of = (part.channel, channel.name.text());
                shown_rows.add(events, of, &mut part.views, (context, bins));
            }
        }
    }

    fn add_latencies(&mut self, rows: &Rows, channels: &[ChannelRows], bins: &mut BinCounter) {
        let Some(times) = MessageTimes::resolve(None, &rows.columns) else { return };
        for channel in channels {
            let Some(part) = self.channels.get_mut(channel.place) else { continue };
            part.views.latencies.append(&mut times.latencies(channel.events(), bins));
        }
    }

    fn add_field(
        &mut self,
        place: usize,
        field: &mut FieldPart,
        expected: usize,
        budget: &mut FieldBudget,
    ) {
        let Some(part) = self.channels.get_mut(place) else { return };
        let Some(new) = part.append_field(field, expected) else { return };
        let is_within = part.fields.len() < budget.of_channel && budget.left > 0;
        if is_within || budget.kept.contains(&*new.path) {
            budget.left = budget.left.saturating_sub(1);
            part.insert_field(new);
        } else if self.left_out.len() < MAX_LEFT_OUT {
            self.left_out.insert((part.channel, new.path));
        }
    }

    /// Adds the part that follows, within limits.
    pub(super) fn append(&mut self, mut next: Self, limits: &mut Limits) {
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
        for field in next.left_out {
            if self.left_out.len() < MAX_LEFT_OUT {
                self.left_out.insert(field);
            }
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

    fn append_channel(&mut self, next: &mut ChannelPart, limits: &mut Limits) {
        let place = self.place(next.channel);
        if place.unwrap_or(self.channels.len()) >= limits.cameras {
            next.views.pictures.drop_pictures();
            next.views.packets = None;
        }
        let (place, mut fields) = match place {
            Some(place) => (place, self.channels[place].append_events(next)),
            None if self.channels.len() < limits.channels => {
                let fields = next.take_fields();
                self.insert(next.take());
                (self.channels.len() - 1, fields)
            }
            None => return,
        };
        for (at, field) in fields.iter_mut().enumerate() {
            self.add_field(place, field, at, &mut limits.fields);
        }
    }
}
