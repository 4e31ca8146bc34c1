//! Merges streams by time, or restores the order of one stream that was split into several. Keeps
//! the order within each stream, even if its times step back.
//!
//! The stream with the first next event comes first; at equal times the one with the lower index.
//! Nothing is returned while a stream that may still bring an earlier event is empty, so the result
//! depends on the events only.

use sluice_model::Batch;

mod input;
mod shifted;
#[cfg(test)]
mod tests;

pub use input::MergeWait;

use input::{MergeInput, keys};
use shifted::ShiftedClock;

/// The most events in a merged batch.
const BATCH: usize = 8192;

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
    /// The last place that came in this step.
    last_place: i64,
    clock: ShiftedClock,
    /// The events that came after later ones of other streams had been returned.
    late: u64,
}

impl Merge {
    /// A merge of `inputs` streams with different sources that buffers about `limit` bytes.
    pub fn new(inputs: usize, limit: usize) -> Self {
        Self::with(vec![0; inputs], MergeWait::Source, limit)
    }

    /// A merge of `inputs` streams that were split from one.
    pub fn of_split(inputs: usize) -> Self {
        // What one step brings has to be buffered in any case.
        Self::with(vec![0; inputs], MergeWait::Step, usize::MAX)
    }

    /// A merge of streams that were split from one, and whose times were shifted by so much since.
    /// All shifts differ, and descend: of two events with the same time, the one that was shifted
    /// further came first.
    pub fn shifted(shifts: Vec<i64>, limit: usize) -> Self {
        Self::with(shifts, MergeWait::ShiftedStep, limit)
    }

    fn with(shifts: Vec<i64>, wait: MergeWait, limit: usize) -> Self {
        let clock = ShiftedClock::new(&shifts);
        let input = |shift| MergeInput { shift, ..MergeInput::default() };
        let inputs = shifts.into_iter().map(input).collect();
        Self { wait, inputs, limit, last_place: i64::MIN, clock, late: 0 }
    }

    /// How long it waits for an empty stream.
    pub fn wait(&self) -> MergeWait {
        self.wait
    }

    /// Adds the next batch of a stream.
    pub fn push(&mut self, input: usize, batch: Batch) {
        if batch.is_empty() {
            return;
        }
        let (mut batch, wait) = (batch.compact(), self.wait);
        if wait != MergeWait::Source {
            if batch.places().is_none() {
                // A stage made them of nothing that came in this step.
                batch = batch.with_one_place(self.last_place);
            }
            let places = batch.places().unwrap_or_default().iter();
            self.last_place = places.copied().fold(self.last_place, i64::max);
        }
        let waiting = &mut self.inputs[input];
        waiting.bytes += batch.memory();
        if wait != MergeWait::ShiftedStep {
            self.late += waiting.count_late(input, keys(&batch, wait));
            waiting.ready += 1;
        }
        waiting.batches.push_back(batch);
    }

    /// The number of late events since the last call: later ones of other streams were returned
    /// already.
    pub fn take_late(&mut self) -> u64 {
        std::mem::take(&mut self.late)
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
        self.last_place = i64::MIN;
        self.clock.begin_again();
    }

    /// Whether every stream has ended and is drained.
    pub fn is_over(&self) -> bool {
        self.has_ended() && self.inputs.iter().all(|waiting| waiting.batches.is_empty())
    }

    fn has_ended(&self) -> bool {
        self.inputs.iter().all(|waiting| waiting.ended)
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
        let is_step_over = pause != MergePause::None || self.has_ended();
        if is_step_over {
            self.end_step();
        }
        let (mut used, mut picks): (Vec<Batch>, Vec<(u32, u32)>) = (Vec::new(), Vec::new());
        // For each stream, the index in `used` of its current batch.
        let mut indices: Vec<Option<u32>> = vec![None; self.inputs.len()];
        while picks.len() < BATCH {
            let Some((key, first)) = self.first() else { break };
            let (last, is_full) = (self.last_key(pause), self.is_full());
            let must_wait = match self.wait {
                MergeWait::Source => self.awaited().is_some(),
                MergeWait::Step => !is_step_over && self.awaited().is_some(),
                MergeWait::ShiftedStep => !is_step_over,
            };
            if must_wait || key > last {
                break;
            }
            let index = *indices[first].get_or_insert_with(|| {
                used.extend(self.inputs[first].batches.front().cloned());
                (used.len() - 1) as u32
            });
            let begun = picks.len();
            if self.pick_run(first, (index, last), &mut picks) {
                indices[first] = None;
            }
            if is_full {
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

    /// The key of the last event that nothing which is still to come can precede.
    fn last_key(&self, pause: MergePause) -> i64 {
        if self.wait != MergeWait::ShiftedStep || self.is_full() || self.has_ended() {
            return i64::MAX;
        }
        self.clock.now().saturating_add(match pause {
            MergePause::Silence(by) => by,
            MergePause::None | MergePause::StepOver => 0,
        })
    }

    /// Makes what a step has brought ready, now that all of it is there.
    fn end_step(&mut self) {
        // Places of the next one may count from the start again.
        self.last_place = i64::MIN;
        if self.wait == MergeWait::ShiftedStep {
            self.late += self.clock.give_keys(&mut self.inputs);
        }
    }

    /// Records which streams were overtaken by these events of stream `first`.
    fn note_overtaken(&mut self, first: usize, picks: &[(u32, u32)], used: &[Batch]) {
        let wait = self.wait;
        let silent =
            |(n, waiting): &(usize, &mut MergeInput)| *n != first && waiting.is_waited_for(wait);
        for (_, waiting) in self.inputs.iter_mut().enumerate().filter(silent) {
            let overtaking = picks.iter().map(|(batch, row)| {
                let batch = &used[*batch as usize];
                (keys(batch, wait)[*row as usize], first)
            });
            waiting.overtaken_by = overtaking.chain(waiting.overtaken_by).max();
        }
    }

    /// The key and the stream of the next event.
    fn first(&self) -> Option<(i64, usize)> {
        let heads = self.inputs.iter().enumerate();
        heads.filter_map(|(n, waiting)| Some((waiting.head(self.wait)?, n))).min()
    }

    /// Picks events of stream `first` until another stream is due, or behind key `last`. Returns
    /// whether its batch is exhausted.
    fn pick_run(
        &mut self,
        first: usize,
        (index, last): (u32, i64),
        picks: &mut Vec<(u32, u32)>,
    ) -> bool {
        let others = self.inputs.iter().enumerate().filter(|(n, _)| *n != first);
        let rival = others.filter_map(|(n, waiting)| Some((waiting.head(self.wait)?, n))).min();
        let waiting = &mut self.inputs[first];
        let Some(batch) = waiting.batches.front() else { return true };
        let keys = keys(batch, self.wait);
        while waiting.next < batch.len() && picks.len() < BATCH {
            let due = (keys[waiting.next], first);
            if rival.is_some_and(|rival| rival < due) || due.0 > last {
                return false;
            }
            picks.push((index, waiting.next as u32));
            waiting.next += 1;
        }
        if waiting.next < batch.len() {
            return false;
        }
        waiting.bytes -= batch.memory();
        waiting.batches.pop_front();
        waiting.ready -= 1;
        waiting.next = 0;
        true
    }
}
