//! The streams that a merge merges.

use std::collections::VecDeque;

use sluice_model::Batch;

/// How long a merge waits for an empty stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeWait {
    /// Until it has events or ends: for streams that advance independently, because they have
    /// different sources or one of them is delayed.
    Source,
    /// Until the current step is over: for streams that were split from one and advance together.
    /// Its order is restored by [places](Batch::places), whatever its times are.
    Step,
    /// The same for streams that were split from one and then [shifted](super::Merge::shifted) in time.
    /// Events that the next step may precede wait for it.
    ShiftedStep,
}

#[derive(Debug, Default)]
pub(super) struct MergeInput {
    pub(super) batches: VecDeque<Batch>,
    /// How many of the batches may be returned, by their [`keys`].
    pub(super) ready: usize,
    /// The next event in the first batch.
    pub(super) next: usize,
    pub(super) bytes: usize,
    /// What was added to the times of its events since the streams were split.
    pub(super) shift: i64,
    pub(super) ended: bool,
    /// A live stream that is silent for now.
    pub(super) idle: bool,
    /// The last event that was returned without waiting for this stream, because the buffer was
    /// full: its key and stream.
    pub(super) overtaken_by: Option<(i64, usize)>,
}

impl MergeInput {
    pub(super) fn head(&self, wait: MergeWait) -> Option<i64> {
        let first = self.batches.front().filter(|_| self.ready > 0);
        first.map(|batch| keys(batch, wait)[self.next])
    }

    /// Whether it may bring events that precede those of other streams.
    pub(super) fn is_waited_for(&self, wait: MergeWait) -> bool {
        // Streams that were split from one are idle together, and what they bring has an order.
        let is_idle = self.idle && wait == MergeWait::Source;
        !self.ended && !is_idle && self.batches.is_empty()
    }

    /// How many of these events precede what was returned without waiting for them.
    pub(super) fn count_late(&self, input: usize, keys: &[i64]) -> u64 {
        let Some(by) = self.overtaken_by else { return 0 };
        keys.iter().filter(|key| (**key, input) < by).count() as u64
    }
}

/// What events are ordered by.
pub(super) fn keys(batch: &Batch, wait: MergeWait) -> &[i64] {
    let places = batch.places().filter(|_| wait != MergeWait::Source);
    places.unwrap_or_else(|| batch.timestamps())
}
