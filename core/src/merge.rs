//! Merging ordered streams by time. Keeps each stream's own order, whatever its times do.
//!
//! The stream whose next event is the earliest goes first; at equal times the stream named first does.
//! Nothing is given out while a stream that may still bring an earlier event has nothing waiting, so
//! what comes out depends on the events alone.

use std::collections::VecDeque;

use crate::Batch;

/// How many events a merged batch has at most.
const BATCH: usize = 8192;

/// How long a merge waits for a stream that has nothing waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergeWait {
    /// Until it brings something or ends: streams of different sources, or of which one is held back.
    Source,
    /// Until the step that brought something to the others is over: streams that come at the same pace,
    /// cut apart and put together again.
    Step,
}

/// Streams that become one.
#[derive(Debug)]
pub struct Merge {
    wait: MergeWait,
    inputs: Vec<MergeInput>,
    /// Above this many bytes waiting, silent streams are no longer waited for.
    limit: usize,
}

#[derive(Debug, Default)]
struct MergeInput {
    batches: VecDeque<Batch>,
    /// The next event in the first batch.
    next: usize,
    bytes: usize,
    ended: bool,
    /// It has nothing now, and nobody knows when it will: a live stream that is silent.
    idle: bool,
    /// The last event that went before whatever it would bring, as there was no memory to wait: its time
    /// and its stream.
    overtaken_by: Option<(i64, usize)>,
}

impl MergeInput {
    fn head(&self) -> Option<i64> {
        self.batches.front().map(|batch| batch.timestamps()[self.next])
    }

    fn is_waited_for(&self) -> bool {
        !self.ended && !self.idle && self.batches.is_empty()
    }
}

impl Merge {
    /// A merge of so many streams, in which about `limit` bytes may wait.
    pub fn new(inputs: usize, patience: MergeWait, limit: usize) -> Self {
        let inputs = (0..inputs).map(|_| MergeInput::default()).collect();
        Self { wait: patience, inputs, limit }
    }

    /// Takes the next batch of a stream. Gives how many of its events are too late, as later ones of other
    /// streams could not wait for them.
    pub fn push(&mut self, input: usize, batch: Batch) -> u64 {
        if batch.is_empty() {
            return 0;
        }
        let (batch, waiting) = (batch.compact(), &mut self.inputs[input]);
        let is_late = |time: &&i64| waiting.overtaken_by.is_some_and(|by| (**time, input) < by);
        let late = batch.timestamps().iter().filter(is_late).count() as u64;
        waiting.bytes += batch.memory();
        waiting.batches.push_back(batch);
        late
    }

    /// Says that a stream brings nothing more.
    pub fn end(&mut self, input: usize) {
        self.inputs[input].ended = true;
    }

    /// Says whether a live stream is silent for now: others do not wait for it then.
    pub fn set_idle(&mut self, input: usize, idle: bool) {
        self.inputs[input].idle = idle;
    }

    /// Takes streams that have ended for ones that begin anew.
    pub fn begin_again(&mut self) {
        for waiting in &mut self.inputs {
            (waiting.ended, waiting.overtaken_by) = (false, None);
        }
    }

    /// Whether every stream has ended and nothing waits.
    pub fn is_over(&self) -> bool {
        self.inputs.iter().all(|waiting| waiting.ended && waiting.batches.is_empty())
    }

    /// The stream that has to bring something before anything can come out, if there is one.
    pub fn starved(&self) -> Option<usize> {
        if self.is_full() {
            return None;
        }
        self.inputs.iter().position(MergeInput::is_waited_for)
    }

    /// How many bytes wait.
    pub fn bytes(&self) -> usize {
        self.inputs.iter().map(|waiting| waiting.bytes).sum()
    }

    /// How many bytes of a stream wait.
    pub fn waiting_bytes(&self, input: usize) -> usize {
        self.inputs[input].bytes
    }

    /// What can come out now. `step_over` says that everything the last step brought has arrived.
    pub fn take(&mut self, step_over: bool) -> Option<Batch> {
        let forced = self.wait == MergeWait::Step && step_over;
        let (mut used, mut picks): (Vec<Batch>, Vec<(u32, u32)>) = (Vec::new(), Vec::new());
        // For each stream, the place in `used` of the batch it is in.
        let mut places: Vec<Option<u32>> = vec![None; self.inputs.len()];
        while picks.len() < BATCH && (forced || self.starved().is_none()) {
            let Some(first) = self.earliest() else { break };
            let place = *places[first].get_or_insert_with(|| {
                used.extend(self.inputs[first].batches.front().cloned());
                (used.len() - 1) as u32
            });
            let begun = picks.len();
            if self.pick_run(first, place, &mut picks) {
                places[first] = None;
            }
            if !forced {
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

    /// Notes which streams could not be waited for when stream `first` gave these events.
    fn note_overtaken(&mut self, first: usize, picks: &[(u32, u32)], used: &[Batch]) {
        let silent =
            |(n, waiting): &(usize, &mut MergeInput)| *n != first && waiting.is_waited_for();
        for (_, waiting) in self.inputs.iter_mut().enumerate().filter(silent) {
            let times = picks.iter().map(|(batch, row)| {
                let batch = &used[*batch as usize];
                (batch.timestamps()[*row as usize], first)
            });
            waiting.overtaken_by = times.chain(waiting.overtaken_by).max();
        }
    }

    fn earliest(&self) -> Option<usize> {
        let heads = self.inputs.iter().enumerate();
        heads.filter_map(|(n, waiting)| Some((waiting.head()?, n))).min().map(|(_, n)| n)
    }

    /// Picks the events of stream `first` until another stream's next one is due. Gives whether its
    /// batch is used up.
    fn pick_run(&mut self, first: usize, place: u32, picks: &mut Vec<(u32, u32)>) -> bool {
        let others = self.inputs.iter().enumerate().filter(|(n, _)| *n != first);
        let rival = others.filter_map(|(n, waiting)| Some((waiting.head()?, n))).min();
        let waiting = &mut self.inputs[first];
        let Some(batch) = waiting.batches.front() else { return true };
        while waiting.next < batch.len() && picks.len() < BATCH {
            let due = (batch.timestamps()[waiting.next], first);
            if rival.is_some_and(|rival| rival < due) {
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
    use crate::{BatchBuilder, ChannelId};

    fn batch(times: &[i64], channel: u32) -> Batch {
        let mut builder = BatchBuilder::default();
        for time in times {
            builder.push_copy(*time, 0, ChannelId(channel), b"");
        }
        builder.finish()
    }

    fn drain(merge: &mut Merge, step_over: bool) -> Vec<(i64, u32)> {
        let mut all = Vec::new();
        while let Some(batch) = merge.take(step_over) {
            all.extend(batch.iter().map(|event| (event.timestamp, event.channel.0)));
        }
        all
    }

    #[test]
    fn the_earliest_goes_first_and_ties_keep_the_order_of_streams() {
        let mut merge = Merge::new(2, MergeWait::Source, 1 << 20);
        merge.push(1, batch(&[1, 3, 5], 1));
        assert_eq!(merge.starved(), Some(0));
        assert!(drain(&mut merge, true).is_empty());
        merge.push(0, batch(&[3, 4], 0));
        assert_eq!(drain(&mut merge, false), [(1, 1), (3, 0), (3, 1), (4, 0)]);
        merge.end(0);
        assert_eq!(drain(&mut merge, false), [(5, 1)]);
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
        assert_eq!(drain(&mut merge, false), [(5, 1), (10, 0), (2, 0), (11, 0), (12, 1)]);
    }

    #[test]
    fn streams_of_one_source_wait_no_longer_than_a_step() {
        let mut merge = Merge::new(2, MergeWait::Step, 1 << 20);
        merge.push(0, batch(&[1, 2], 0));
        assert!(drain(&mut merge, false).is_empty());
        assert_eq!(drain(&mut merge, true), [(1, 0), (2, 0)]);
    }

    #[test]
    fn a_live_stream_that_is_silent_keeps_nobody_waiting() {
        let mut merge = Merge::new(2, MergeWait::Source, 1 << 20);
        merge.push(0, batch(&[1, 2], 0));
        merge.set_idle(1, true);
        assert_eq!(drain(&mut merge, false), [(1, 0), (2, 0)]);
        merge.set_idle(1, false);
        merge.push(0, batch(&[5], 0));
        assert!(drain(&mut merge, false).is_empty());
    }

    #[test]
    fn a_silent_stream_is_waited_for_only_while_memory_lasts() {
        let mut merge = Merge::new(2, MergeWait::Source, 100);
        merge.push(0, batch(&[1, 2, 3, 4, 5, 6], 0));
        assert_eq!(merge.starved(), None);
        assert_eq!(drain(&mut merge, false).len(), 6);
    }

    #[test]
    fn what_comes_after_memory_did_not_last_is_told_if_it_is_too_late() {
        let mut merge = Merge::new(2, MergeWait::Source, 100);
        assert_eq!(merge.push(1, batch(&[1, 2, 3, 4, 5, 6], 1)), 0);
        assert_eq!(drain(&mut merge, false).len(), 6);
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
        assert_eq!(drain(&mut merge, false), [(5, 2)]);
        assert_eq!(merge.push(0, batch(&[1], 0)), 0);
    }
}
