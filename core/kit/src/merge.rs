//! Merges streams by time. Keeps the order within each stream, even if its times step back.
//!
//! The stream with the earliest next event comes first; at equal times the one with the lower
//! index. Nothing is returned while a stream that may still bring an earlier event is empty, so the
//! result depends on the events only.

use std::collections::VecDeque;

use sluice_model::Batch;

/// The most events in a merged batch.
const BATCH: usize = 8192;

/// How long a merge waits for an empty stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeWait {
    /// Until it has events or ends: for streams that advance independently, because they have
    /// different sources or one of them is delayed.
    Source,
    /// Until the current step is over: for streams that were split from one and advance together,
    /// perhaps [shifted](Merge::with_shifts). Events that the next step may precede wait for it:
    /// those at the latest time, and those of streams that are shifted further than others.
    Step,
}

/// Why nothing may follow for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergePause {
    /// The current step goes on.
    None,
    /// All events of the current step have been pushed.
    StepOver,
    /// The sources are silent. What follows is later by more than so many nanoseconds than what
    /// came.
    Silence(i64),
}

/// Merges several streams into one.
#[derive(Debug)]
pub struct Merge {
    wait: MergeWait,
    inputs: Vec<MergeInput>,
    /// The most bytes to buffer; above it, empty streams are no longer waited for.
    limit: usize,
    /// The latest time so far, without the shifts.
    newest: i64,
}

#[derive(Debug, Default)]
struct MergeInput {
    batches: VecDeque<Batch>,
    /// The next event in the first batch.
    next: usize,
    bytes: usize,
    /// What was added to the times of its events since the streams were split.
    shift: i64,
    ended: bool,
    /// A live stream that is silent for now.
    idle: bool,
    /// The last event that was returned without waiting for this stream, because the buffer was
    /// full: its time and stream.
    overtaken_by: Option<(i64, usize)>,
}

impl MergeInput {
    fn head(&self) -> Option<i64> {
        self.batches.front().map(|batch| batch.timestamps()[self.next])
    }

    /// Whether it may bring events that precede those of other streams.
    fn is_waited_for(&self, wait: MergeWait) -> bool {
        // Streams that were split from one are idle together, and what they bring has an order.
        let is_idle = self.idle && wait == MergeWait::Source;
        !self.ended && !is_idle && self.batches.is_empty()
    }
}

impl Merge {
    /// A merge of `inputs` streams that buffers about `limit` bytes.
    pub fn new(inputs: usize, wait: MergeWait, limit: usize) -> Self {
        let inputs = (0..inputs).map(|_| MergeInput::default()).collect();
        Self { wait, inputs, limit, newest: i64::MIN }
    }

    /// Streams that were split from one, and whose times were shifted differently since.
    pub fn with_shifts(mut self, shifts: &[i64]) -> Self {
        for (input, shift) in self.inputs.iter_mut().zip(shifts) {
            input.shift = *shift;
        }
        self
    }

    /// Adds the next batch of a stream. Returns the number of late events: later ones of other
    /// streams were returned already.
    pub fn push(&mut self, input: usize, batch: Batch) -> u64 {
        if batch.is_empty() {
            return 0;
        }
        let (batch, waiting) = (batch.compact(), &mut self.inputs[input]);
        let is_late = |time: &&i64| waiting.overtaken_by.is_some_and(|by| (**time, input) < by);
        let late = batch.timestamps().iter().filter(is_late).count() as u64;
        if let Some(newest) = batch.timestamps().iter().max() {
            self.newest = self.newest.max(newest.saturating_sub(waiting.shift));
        }
        waiting.bytes += batch.memory();
        waiting.batches.push_back(batch);
        late
    }

    /// Marks a stream as ended.
    pub fn end(&mut self, input: usize) {
        self.inputs[input].ended = true;
    }

    /// Marks a live stream as idle or not. Idle streams are not waited for, unless they were split
    /// from one: those follow [`MergePause::Silence`].
    pub fn set_idle(&mut self, input: usize, idle: bool) {
        self.inputs[input].idle = idle;
    }

    /// Whether a live stream is marked as idle.
    pub fn is_idle(&self, input: usize) -> bool {
        self.inputs[input].idle
    }

    /// Restarts all streams after they have ended.
    pub fn begin_again(&mut self) {
        for waiting in &mut self.inputs {
            (waiting.ended, waiting.overtaken_by) = (false, None);
        }
        self.newest = i64::MIN;
    }

    /// Whether every stream has ended and is drained.
    pub fn is_over(&self) -> bool {
        self.inputs.iter().all(|waiting| waiting.ended && waiting.batches.is_empty())
    }

    /// The stream that must advance before anything can be returned, if any, and is not idle.
    pub fn starved(&self) -> Option<usize> {
        self.awaited().filter(|stream| !self.inputs[*stream].idle)
    }

    /// The stream whose events may precede those of all others, if any.
    fn awaited(&self) -> Option<usize> {
        // What one step brings has to be buffered in any case.
        if self.wait == MergeWait::Source && self.is_full() {
            return None;
        }
        self.inputs.iter().position(|waiting| waiting.is_waited_for(self.wait))
    }

    /// The number of buffered bytes.
    pub fn bytes(&self) -> usize {
        self.inputs.iter().map(|waiting| waiting.bytes).sum()
    }

    /// The number of buffered bytes of a stream.
    pub fn waiting_bytes(&self, input: usize) -> usize {
        self.inputs[input].bytes
    }

    /// Takes the next merged batch, if one is ready.
    pub fn take(&mut self, pause: MergePause) -> Option<Batch> {
        let forced = self.wait == MergeWait::Step && pause != MergePause::None;
        let (mut used, mut picks): (Vec<Batch>, Vec<(u32, u32)>) = (Vec::new(), Vec::new());
        // For each stream, the index in `used` of its current batch.
        let mut places: Vec<Option<u32>> = vec![None; self.inputs.len()];
        while picks.len() < BATCH {
            let is_waiting = self.awaited().is_some();
            let is_full = self.is_full();
            let end = match pause {
                _ if !is_waiting || is_full => None,
                MergePause::None => None,
                MergePause::StepOver => Some(self.earliest_next()),
                MergePause::Silence(by) => {
                    Some(self.earliest_next().saturating_add(by).saturating_add(1))
                }
            };
            let Some((time, first)) = self.earliest() else { break };
            if is_waiting && !forced || end.is_some_and(|end| time >= end) {
                break;
            }
            let place = *places[first].get_or_insert_with(|| {
                used.extend(self.inputs[first].batches.front().cloned());
                (used.len() - 1) as u32
            });
            let begun = picks.len();
            if self.pick_run(first, (place, end), &mut picks) {
                places[first] = None;
            }
            if !forced || is_full {
                self.note_overtaken(first, &picks[begun..], &used);
            }
        }
        match (picks.is_empty(), &used[..]) {
            (true, _) => None,
            (false, [one]) => Some(one.slice(picks[0].1 as usize, picks.len())),
            _ => Some(Batch::interleave(&used, &picks)),
        }
    }

    fn is_full(&self) -> bool {
        self.bytes() > self.limit
    }

    /// The earliest time that the next step may bring, if the times of its source do not step
    /// back. Where one step ends must not decide the order of equal times.
    fn earliest_next(&self) -> i64 {
        let shift = self.inputs.iter().map(|input| input.shift).min().unwrap_or(0);
        self.newest.saturating_add(shift)
    }

    /// Records which streams were overtaken by these events of stream `first`.
    fn note_overtaken(&mut self, first: usize, picks: &[(u32, u32)], used: &[Batch]) {
        let wait = self.wait;
        let silent =
            |(n, waiting): &(usize, &mut MergeInput)| *n != first && waiting.is_waited_for(wait);
        for (_, waiting) in self.inputs.iter_mut().enumerate().filter(silent) {
            let times = picks.iter().map(|(batch, row)| {
                let batch = &used[*batch as usize];
                (batch.timestamps()[*row as usize], first)
            });
            waiting.overtaken_by = times.chain(waiting.overtaken_by).max();
        }
    }

    /// The time and the stream of the next event.
    fn earliest(&self) -> Option<(i64, usize)> {
        let heads = self.inputs.iter().enumerate();
        heads.filter_map(|(n, waiting)| Some((waiting.head()?, n))).min()
    }

    /// Picks events of stream `first` until another stream is due, or time `end`. Returns whether
    /// its batch is exhausted.
    fn pick_run(
        &mut self,
        first: usize,
        (place, end): (u32, Option<i64>),
        picks: &mut Vec<(u32, u32)>,
    ) -> bool {
        let others = self.inputs.iter().enumerate().filter(|(n, _)| *n != first);
        let rival = others.filter_map(|(n, waiting)| Some((waiting.head()?, n))).min();
        let waiting = &mut self.inputs[first];
        let Some(batch) = waiting.batches.front() else { return true };
        while waiting.next < batch.len() && picks.len() < BATCH {
            let due = (batch.timestamps()[waiting.next], first);
            if rival.is_some_and(|rival| rival < due) || end.is_some_and(|end| due.0 >= end) {
                return false;
            }
            picks.push((place, waiting.next as u32));
            waiting.next += 1;
        }
        if waiting.next < batch.len() {
            return false;
        }
        waiting.bytes -= batch.memory();
        waiting.batches.pop_front();
        waiting.next = 0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_model::{BatchBuilder, ChannelId};

    fn batch(times: &[i64], channel: u32) -> Batch {
        let mut builder = BatchBuilder::default();
        for time in times {
            builder.push_copy(*time, 0, ChannelId(channel), b"");
        }
        builder.finish()
    }

    fn drain(merge: &mut Merge, pause: MergePause) -> Vec<(i64, u32)> {
        let mut all = Vec::new();
        while let Some(batch) = merge.take(pause) {
            all.extend(batch.iter().map(|event| (event.timestamp, event.channel.0)));
        }
        all
    }

    #[test]
    fn the_earliest_goes_first_and_ties_keep_the_order_of_streams() {
        let mut merge = Merge::new(2, MergeWait::Source, 1 << 20);
        merge.push(1, batch(&[1, 3, 5], 1));
        assert_eq!(merge.starved(), Some(0));
        assert!(drain(&mut merge, MergePause::StepOver).is_empty());
        merge.push(0, batch(&[3, 4], 0));
        assert_eq!(drain(&mut merge, MergePause::None), [(1, 1), (3, 0), (3, 1), (4, 0)]);
        merge.end(0);
        assert_eq!(drain(&mut merge, MergePause::None), [(5, 1)]);
        merge.end(1);
        assert!(merge.is_over());
    }

    #[test]
    fn a_streams_own_order_is_kept_where_its_times_step_back() {
        let mut merge = Merge::new(2, MergeWait::Source, 1 << 20);
        merge.push(0, batch(&[10, 2, 11], 0));
        merge.push(1, batch(&[5, 12], 1));
        merge.end(0);
        merge.end(1);
        assert_eq!(
            drain(&mut merge, MergePause::None),
            [(5, 1), (10, 0), (2, 0), (11, 0), (12, 1)]
        );
    }

    #[test]
    fn streams_of_one_source_wait_no_longer_than_a_step() {
        let mut merge = Merge::new(2, MergeWait::Step, 1 << 20);
        merge.push(0, batch(&[1, 2], 0));
        assert!(drain(&mut merge, MergePause::None).is_empty());
        assert_eq!(drain(&mut merge, MergePause::StepOver), [(1, 0)]);
        assert_eq!(drain(&mut merge, MergePause::Silence(0)), [(2, 0)]);
    }

    #[test]
    fn where_a_step_ends_decides_no_order() {
        let (events, mut wanted) = ([1, 2, 2, 2, 2, 3], None);
        for end in 0..=events.len() {
            let mut merge = Merge::new(2, MergeWait::Step, 1 << 20);
            let mut merged = Vec::new();
            for step in [0..end, end..events.len()] {
                // Events belong to the streams in turn.
                for (at, time) in events.iter().enumerate().filter(|(at, _)| step.contains(at)) {
                    merge.push(at % 2, batch(&[*time], (at % 2) as u32));
                    merged.extend(drain(&mut merge, MergePause::None));
                }
                merged.extend(drain(&mut merge, MergePause::StepOver));
            }
            (0..2).for_each(|stream| merge.end(stream));
            merged.extend(drain(&mut merge, MergePause::None));
            assert_eq!(&merged, wanted.get_or_insert_with(|| merged.clone()), "{end}");
        }
        assert_eq!(wanted.unwrap(), [(1, 0), (2, 0), (2, 0), (2, 1), (2, 1), (3, 1)]);
    }

    #[test]
    fn shifted_streams_of_one_source_wait_for_what_the_next_steps_bring() {
        let merged = |shift: i64, pause| {
            let mut merge = Merge::new(2, MergeWait::Step, 1 << 20).with_shifts(&[0, shift]);
            let mut merged = Vec::new();
            // In each step, an event of the second stream follows one of the first.
            for step in 0..20 {
                merge.push(0, batch(&[step * 10], 0));
                merge.push(1, batch(&[step * 10 + 5 + shift], 1));
                merged.extend(drain(&mut merge, pause));
                let waiting = merge.inputs.iter().flat_map(|input| &input.batches).count() as i64;
                assert!(waiting <= shift.abs() / 10 + 2, "{shift}: {waiting}");
            }
            (0..2).for_each(|stream| merge.end(stream));
            merged.extend(drain(&mut merge, MergePause::None));
            merged.into_iter().map(|(time, _)| time).collect::<Vec<_>>()
        };
        for shift in [0, 5, 100, -4, -5, -100] {
            for pause in [MergePause::StepOver, MergePause::Silence(0)] {
                let times = merged(shift, pause);
                assert!(times.len() == 40 && times.is_sorted(), "{shift}, {pause:?}: {times:?}");
            }
        }
    }

    #[test]
    fn shifted_streams_wait_in_a_silence_until_what_they_wait_for_would_be_later() {
        let mut merge = Merge::new(2, MergeWait::Step, 1 << 20).with_shifts(&[0, 100]);
        merge.push(0, batch(&[7], 0));
        merge.push(1, batch(&[105], 1));
        (0..2).for_each(|stream| merge.set_idle(stream, true));
        assert_eq!(drain(&mut merge, MergePause::None), [(7, 0)]);
        assert!(drain(&mut merge, MergePause::Silence(97)).is_empty());
        assert_eq!(drain(&mut merge, MergePause::Silence(98)), [(105, 1)]);
    }

    #[test]
    fn a_step_is_merged_whole_and_no_more_than_the_limit_waits_for_the_next() {
        let mut merge = Merge::new(2, MergeWait::Step, 100);
        // An absurd time, behind which all later events of its stream wait.
        merge.push(0, batch(&[1, i64::MAX, 2, 3, 4, 5, 6], 0));
        assert!(drain(&mut merge, MergePause::None).is_empty());
        assert_eq!(merge.push(1, batch(&[2, 3], 1)), 0);
        let first = drain(&mut merge, MergePause::StepOver);
        assert_eq!(first[..3], [(1, 0), (2, 1), (3, 1)]);
        assert_eq!((first.len(), merge.bytes()), (9, 0));
        assert_eq!(merge.push(1, batch(&[4, 5], 1)), 2, "later than the absurd time");
    }

    #[test]
    fn a_live_stream_that_is_silent_keeps_nobody_waiting() {
        let mut merge = Merge::new(2, MergeWait::Source, 1 << 20);
        merge.push(0, batch(&[1, 2], 0));
        merge.set_idle(1, true);
        assert_eq!(drain(&mut merge, MergePause::None), [(1, 0), (2, 0)]);
        merge.set_idle(1, false);
        merge.push(0, batch(&[5], 0));
        assert!(drain(&mut merge, MergePause::None).is_empty());
    }

    #[test]
    fn a_silent_stream_is_waited_for_until_the_buffer_is_full() {
        let mut merge = Merge::new(2, MergeWait::Source, 100);
        merge.push(0, batch(&[1, 2, 3, 4, 5, 6], 0));
        assert_eq!(merge.starved(), None);
        assert_eq!(drain(&mut merge, MergePause::None).len(), 6);
    }

    #[test]
    fn late_events_are_counted_after_the_buffer_was_full() {
        let mut merge = Merge::new(2, MergeWait::Source, 100);
        assert_eq!(merge.push(1, batch(&[1, 2, 3, 4, 5, 6], 1)), 0);
        assert_eq!(drain(&mut merge, MergePause::None).len(), 6);
        assert_eq!(
            merge.push(0, batch(&[5, 6, 7], 0)),
            2,
            "at equal times the first stream is first"
        );
        assert_eq!(merge.push(1, batch(&[2], 1)), 0, "a stream's own order is its own");
    }

    #[test]
    fn nothing_is_too_late_where_an_idle_or_ended_stream_was_not_waited_for() {
        let mut merge = Merge::new(3, MergeWait::Source, 1 << 20);
        merge.set_idle(0, true);
        merge.end(1);
        merge.push(2, batch(&[5], 2));
        assert_eq!(drain(&mut merge, MergePause::None), [(5, 2)]);
        assert_eq!(merge.push(0, batch(&[1], 0)), 0);
    }
}
