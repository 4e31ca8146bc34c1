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
    /// The same for streams that were split from one and then [shifted](super::Merge::shifted) in
    /// time.
    /// Events that the next step may precede wait for it.
    ShiftedStep,
}

#[derive(Debug, Default)]
pub(super) struct MergeInput {
    pub(super) batches: VecDeque<Batch>,
    /// The keys of the first batches, if the stream was shifted: the others may not be returned
    /// yet.
    pub(super) shifted_keys: VecDeque<Vec<i128>>,
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
    pub(super) overtaken_by: Option<(i128, usize)>,
}

/// What the events of a batch are ordered by.
#[derive(Clone, Copy)]
pub(super) enum Keys<'b> {
    /// Times or places.
    Own(&'b [i64]),
    Shifted(&'b [i128]),
}

impl Keys<'_> {
    pub(super) fn at(self, event: usize) -> i128 {
        match self {
            Self::Own(keys) => keys[event].into(),
            Self::Shifted(keys) => keys[event],
        }
    }
}

impl MergeInput {
    /// The key of the next event that may be returned.
    pub(super) fn head(&self, wait: MergeWait) -> Option<i128> {
        Some(self.keys(0, wait)?.at(self.next))
    }

    /// The keys of a batch whose events may be returned.
    pub(super) fn keys(&self, batch: usize, wait: MergeWait) -> Option<Keys<'_>> {
        match wait {
            MergeWait::Source => Some(Keys::Own(self.batches.get(batch)?.timestamps())),
            MergeWait::Step => Some(Keys::Own(self.batches.get(batch)?.places()?)),
            MergeWait::ShiftedStep => Some(Keys::Shifted(self.shifted_keys.get(batch)?)),
        }
    }

    /// Removes the first batch, all of which has been returned.
    pub(super) fn drop_first(&mut self) {
        let first = self.batches.pop_front();
        self.shifted_keys.pop_front();
        self.bytes -= first.map_or(0, |batch| batch.memory());
        self.next = 0;
    }

    /// Whether it may bring events that precede those of other streams.
    pub(super) fn is_waited_for(&self, wait: MergeWait) -> bool {
        // Streams that were split from one are idle together, and what they bring has an order.
        let is_idle = self.idle && wait == MergeWait::Source;
        !self.ended && !is_idle && self.batches.is_empty()
    }

    /// How many events of the last batch that has keys precede what was returned without waiting
    /// for them. `number` is that of the stream.
    pub(super) fn count_late(&self, number: usize, wait: MergeWait) -> u64 {
        let Some(by) = self.overtaken_by else { return 0 };
        let keyed = match wait {
            MergeWait::ShiftedStep => self.shifted_keys.len(),
            MergeWait::Source | MergeWait::Step => self.batches.len(),
        };
        let Some(last) = keyed.checked_sub(1) else { return 0 };
        let Some(keys) = self.keys(last, wait) else { return 0 };
        (0..self.batches[last].len()).filter(|event| (keys.at(*event), number) < by).count() as u64
    }
}
