//! The longest intervals of a channel.

use std::cmp::Reverse;

use crate::GapFigures;

/// How many are kept.
const KEPT: usize = 64;

/// The longest intervals, in descending order; the earlier of two of the same length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LongestGaps(Vec<GapFigures>);

impl LongestGaps {
    /// Those of some in the order of the log.
    pub(super) fn from_gaps(mut gaps: Vec<GapFigures>) -> Self {
        if gaps.len() <= KEPT {
            gaps.sort_by_key(|gap| Reverse(gap.length));
            return Self(gaps);
        }
        let mut ranked: Vec<(Reverse<u64>, u32)> =
            gaps.iter().map(|gap| Reverse(gap.length)).zip(0..).collect();
        ranked.select_nth_unstable(KEPT);
        ranked.truncate(KEPT);
        ranked.sort_unstable();
        Self(ranked.into_iter().map(|(_, at)| gaps[at as usize]).collect())
    }

    fn admits(&self, length: u64) -> bool {
        self.0.len() < KEPT || self.0.last().is_none_or(|least| length > least.length)
    }

    /// Adds the next in the order of the log.
    pub(super) fn add(&mut self, gap: GapFigures) {
        if self.admits(gap.length) {
            let at = self.0.partition_point(|longer| longer.length >= gap.length);
            self.0.insert(at, gap);
            self.0.truncate(KEPT);
        }
    }

    /// Adds those of what follows.
    pub(super) fn append(&mut self, next: Self) {
        for gap in next.0 {
            if !self.admits(gap.length) {
                // Those that follow are shorter.
                return;
            }
            self.add(gap);
        }
    }

    /// Those for which `is_long` is true, in order of time.
    pub(super) fn longer_than(&self, is_long: impl Fn(u64) -> bool) -> Vec<GapFigures> {
        let mut gaps: Vec<GapFigures> =
            self.0.iter().copied().filter(|gap| is_long(gap.length)).collect();
        gaps.sort_by_key(|gap| gap.start);
        gaps
    }
}
