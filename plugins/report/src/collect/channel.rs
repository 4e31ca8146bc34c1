//! The events of a channel, and the order of what is added to it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::bins::Bins;
use super::fields::FieldPart;
use super::gaps::LongestGaps;
use super::grid::{BucketWidth, Buckets};
use super::views::ViewParts;
use crate::GapFigures;

/// The events of a channel, beyond what the census has.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ChannelPart {
    /// Its number.
    pub(super) channel: u32,
    pub(super) first: i64,
    pub(super) last: i64,
    pub(super) intervals: Bins,
    pub(super) gaps: LongestGaps,
    pub(super) timeline: Buckets<u64>,
    /// Events without rows.
    pub(super) without_rows: u64,
    pub(super) first_without_rows: Option<i64>,
    pub(super) views: ViewParts,
    /// In order of their first event.
    pub(super) fields: Vec<FieldPart>,
    /// The place in `fields` by path, of those that have been looked up.
    by_path: BTreeMap<Arc<str>, usize>,
}

impl ChannelPart {
    /// The channel of this number, whose first event has this time.
    pub(super) fn new(channel: u32, first: i64) -> Self {
        Self {
            channel,
            first,
            last: first,
            intervals: Bins::default(),
            gaps: LongestGaps::default(),
            timeline: Buckets::default(),
            without_rows: 0,
            first_without_rows: None,
            views: ViewParts::default(),
            fields: Vec::new(),
            by_path: BTreeMap::new(),
        }
    }

    /// The interval from the last event to the one at `next`; `None` for a step back.
    pub(super) fn gap_before(&self, next: i64) -> Option<GapFigures> {
        let length = next.abs_diff(self.last);
        (next >= self.last).then_some(GapFigures { start: self.last, length })
    }

    pub(super) fn add_without_rows(&mut self, time: i64) {
        self.without_rows += 1;
        self.first_without_rows.get_or_insert(time);
    }

    /// Adds what follows in the order of the log, but for its fields.
    pub(super) fn append_events(&mut self, next: &mut Self) -> Vec<FieldPart> {
        if let Some(gap) = self.gap_before(next.first) {
            self.gaps.add(gap);
            self.intervals.append(&Bins::from_value(gap.length));
        }
        self.last = next.last;
        self.intervals.append(&next.intervals);
        self.gaps.append(std::mem::take(&mut next.gaps));
        self.timeline.append(&next.timeline);
        self.without_rows += next.without_rows;
        self.first_without_rows = self.first_without_rows.or(next.first_without_rows);
        self.views.append(&mut next.views);
        std::mem::take(&mut next.fields)
    }

    /// Its events, leaving none.
    pub(super) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::new(self.channel, self.first))
    }

    pub(super) fn take_fields(&mut self) -> Vec<FieldPart> {
        self.by_path.clear();
        std::mem::take(&mut self.fields)
    }

    /// Adds the values of a field, which is expected at a place; takes and returns those of a new
    /// field.
    pub(super) fn append_field(
        &mut self,
        field: &mut FieldPart,
        expected: usize,
    ) -> Option<FieldPart> {
        let is_expected = self.fields.get(expected).is_some_and(|known| known.path == field.path);
        let place = if is_expected { Some(expected) } else { self.place_of(&field.path) };
        match place.and_then(|place| self.fields.get_mut(place)) {
            Some(known) => {
                known.append(field);
                None
            }
            None => Some(field.take()),
        }
    }

    fn place_of(&mut self, path: &Arc<str>) -> Option<usize> {
        let fields = self.fields.iter().enumerate().skip(self.by_path.len());
        self.by_path.extend(fields.map(|(place, field)| (Arc::clone(&field.path), place)));
        self.by_path.get(path).copied()
    }

    /// Adds a field whose path it does not have.
    pub(super) fn insert_field(&mut self, field: FieldPart) {
        self.fields.push(field);
    }

    pub(super) fn widen(&mut self, from: BucketWidth, to: BucketWidth) {
        self.timeline.widen(from, to);
        self.views.track.widen(from, to);
        self.views.fixes.widen(from, to);
        self.fields.iter_mut().for_each(|field| field.widen(from, to));
    }
}
