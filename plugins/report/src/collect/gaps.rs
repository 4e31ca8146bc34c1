//! The longest intervals of a channel.

use crate::GapFigures;

/// How many are kept.
const KEPT: usize = 64;

/// The longest intervals, in descending order; the earlier of two of the same length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LongestGaps(Vec<GapFigures>);

impl LongestGaps {
    /// Adds the next in the order of the log.
    #[inline]
    pub(super) fn add(&mut self, gap: GapFigures) {
        if self.0.len() == KEPT && self.0.last().is_some_and(|least| gap.length <= least.length) {
            return;
        }
        let at = self.0.partition_point(|longer| longer.length >= gap.length);
        self.0.insert(at, gap);
        self.0.truncate(KEPT);
    }

    pub(super) fn append(&mut self, next: Self) {
        next.0.into_iter().for_each(|gap| self.add(gap));
    }

    /// Those for which `is_long` is true, in order of time.
    pub(super) fn longer_than(&self, is_long: impl Fn(u64) -> bool) -> Vec<GapFigures> {
        let mut gaps: Vec<GapFigures> =
            self.0.iter().copied().filter(|gap| is_long(gap.length)).collect();
        gaps.sort_by_key(|gap| gap.start);
        gaps
    }
}
