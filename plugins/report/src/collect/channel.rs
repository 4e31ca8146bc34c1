//! The events of a channel.

use super::bins::Bins;
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

    /// Adds what follows in the order of the log.
    pub(super) fn append(&mut self, next: &mut Self) {
        if let Some(gap) = self.gap_before(next.first) {
            self.gaps.add(gap);
            self.intervals.add(gap.length);
        }
        self.last = next.last;
        self.intervals.append(&next.intervals);
        self.gaps.append(std::mem::take(&mut next.gaps));
        self.timeline.append(&next.timeline);
        self.without_rows += next.without_rows;
        self.first_without_rows = self.first_without_rows.or(next.first_without_rows);
        self.views.append(&mut next.views);
    }

    /// Its events, leaving none.
    pub(super) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::new(self.channel, self.first))
    }

    pub(super) fn widen(&mut self, from: BucketWidth, to: BucketWidth) {
        self.timeline.widen(from, to);
        self.views.track.widen(from, to);
        self.views.fixes.widen(from, to);
    }
}
