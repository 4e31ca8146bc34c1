//! What a part of a log contributes: the events of a batch, or of several that follow each other.

use std::collections::BTreeSet;
use std::sync::Arc;

use sluice_kit::census::BatchCensus;
use sluice_model::{Batch, ChannelId, Rows};

use super::bins::Bins;
use super::channel::ChannelPart;
use super::fields::{ChannelRows, FieldPart, RowsChannel};
use super::grid::BucketWidth;
use super::views::{ViewContext, ViewRows, latencies};
use super::{PartContext, RowFigures, ShownContext};

/// What a part of a log contributes to its figures.
///
/// Parts that follow each other can be added in any grouping: how a log is cut does not matter.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    pub(super) census: BatchCensus,
    pub(super) width: BucketWidth,
    /// Of the buckets from which a picture is kept.
    pub(super) picture_width: BucketWidth,
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
const MAX_PICTURES: i128 = 23;

/// The most fields that are remembered as left out.
const MAX_LEFT_OUT: usize = 10_000;

impl Part {
    /// What a batch contributes.
    pub(crate) fn from_batch(batch: &Batch, context: &PartContext<'_>) -> Self {
        let census = BatchCensus::from_batch(batch, &[]);
        let width = BucketWidth::for_times(census.all.earliest, census.all.latest);
        let width = width.max(context.least_width);
        let times = (census.all.earliest, census.all.latest);
        let least_picture_width =
            context.shown.map(|shown| shown.pictures.width()).unwrap_or_default();
        let picture_width = BucketWidth::for_buckets(times.0, times.1, MAX_PICTURES);
        let picture_width = picture_width.max(least_picture_width);
        let mut part = Self { census, width, picture_width, ..Self::default() };
        part.add_times(batch);
        part.add_undecoded(batch);
        if context.rows == RowFigures::Values {
            part.add_rows(batch, context);
        }
        part
    }

    /// The number of its events.
    pub(crate) fn events(&self) -> u64 {
        self.census.all.events
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

    fn add_times(&mut self, batch: &Batch) {
        let mut intervals: Vec<Vec<u64>> = Vec::new();
        for (time, channel) in batch.timestamps().iter().zip(batch.channels()) {
            let bucket = self.width.bucket(*time);
            let Some(place) = self.place(*channel) else {
                let mut part = ChannelPart::new(*channel, *time);
                part.timeline.add(bucket, 1);
                self.insert(part);
                intervals.push(Vec::new());
                continue;
            };
            let part = &mut self.channels[place];
            if let Some(gap) = part.gap_before(*time) {
                part.gaps.add(gap);
                intervals[place].push(gap.length);
            }
            part.last = *time;
            part.timeline.add(bucket, 1);
        }
        for (part, values) in self.channels.iter_mut().zip(&mut intervals) {
            part.intervals = Bins::from_values(values);
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

    fn add_rows(&mut self, batch: &Batch, context: &PartContext<'_>) {
        // Fields are in order of their first event, then of the type's columns.
        let mut found: Vec<(RowsChannel, FieldPart)> = Vec::new();
        for rows in batch.rows() {
            let place = |event: u32| self.place(batch.channels()[event as usize]);
            let by_channel = ChannelRows::new(batch, rows, place);
            for path in by_channel.paths() {
                found.extend(by_channel.values(&path, self.width));
            }
            for (channel, events) in by_channel.by_channel() {
                match context.shown {
                    Some(shown) => self.add_views((batch, rows), (channel.place, &events), shown),
                    None => self.add_latencies(rows, (channel.place, &events)),
                }
            }
        }
        found.sort_by_key(|(channel, _)| channel.first);
        let mut fields = FieldBudget::UNLIMITED;
        for (channel, field) in found {
            self.add_field(channel.place, field, usize::MAX, &mut fields);
        }
    }

    fn add_views(
        &mut self,
        (batch, rows): (&Batch, &Rows),
        (place, events): (usize, &[(usize, i64)]),
        shown: ShownContext<'_>,
    ) {
        let Some(part) = self.channels.get_mut(place) else { return };
        let number = part.channel;
        let channel = shown.channels.get(ChannelId(number));
        let of = ViewRows { batch, rows, channel: &channel, number, events };
        let (width, picture_width) = (self.width, self.picture_width);
        let widths = ViewContext { width, picture_width, collected: shown.pictures };
        shown.views.add(&of, &mut part.views, widths);
    }

    fn add_latencies(&mut self, rows: &Rows, (place, events): (usize, &[(usize, i64)])) {
        let Some(part) = self.channels.get_mut(place) else { return };
        part.views.latencies.append(latencies(&rows.columns, events, None));
    }

    fn add_field(
        &mut self,
        place: usize,
        field: FieldPart,
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
        if self.census.all.events == 0 {
            (self.width, self.picture_width) = (next.width, next.picture_width);
        }
        self.census.append(std::mem::take(&mut next.census));
        let all = &self.census.all;
        let width = BucketWidth::for_times(all.earliest, all.latest);
        let width = width.max(self.width).max(next.width);
        self.channels.iter_mut().for_each(|part| part.widen(self.width, width));
        next.channels.iter_mut().for_each(|part| part.widen(next.width, width));
        self.width = width;
        let width = BucketWidth::for_buckets(all.earliest, all.latest, MAX_PICTURES);
        let width = width.max(self.picture_width).max(next.picture_width);
        let pictures = |part: &mut ChannelPart, from| part.views.pictures.widen(from, width);
        self.channels.iter_mut().for_each(|part| pictures(part, self.picture_width));
        next.channels.iter_mut().for_each(|part| pictures(part, next.picture_width));
        self.picture_width = width;
        for part in next.channels {
            self.append_channel(part, limits);
        }
        for field in next.left_out {
            if self.left_out.len() < MAX_LEFT_OUT {
                self.left_out.insert(field);
            }
        }
    }

    fn append_channel(&mut self, mut next: ChannelPart, limits: &mut Limits) {
        let place = self.place(next.channel);
        if place.unwrap_or(self.channels.len()) >= limits.cameras {
            next.views.pictures.drop_pictures();
            next.views.packets = None;
        }
        let (place, fields) = match place {
            Some(place) => (place, self.channels[place].append_events(next)),
            None if self.channels.len() < limits.channels => {
                let fields = next.take_fields();
                self.insert(next);
                (self.channels.len() - 1, fields)
            }
            None => return,
        };
        for (at, field) in fields.into_iter().enumerate() {
            self.add_field(place, field, at, &mut limits.fields);
        }
    }
}
