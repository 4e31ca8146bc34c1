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

use input::MergeInput;
use shifted::ShiftedClock;

/// The most events in a merged batch.
const BATCH: usize = 8192;

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
        waiting.batches.push_back(batch);
        if wait != MergeWait::ShiftedStep {
            self.late += waiting.count_late(input, wait);
        }
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
    /// from one: those follow what [`take`](Self::take) is told.
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

    /// Takes the next merged batch, if one is ready. `later_by` is `None` while the current step
    /// goes on. Once all its events have been pushed, it says by how many nanoseconds what follows
    /// is later, at least, than what came: 0 if nothing is known.
    pub fn take(&mut self, later_by: Option<i64>) -> Option<Batch> {
        let later_by = later_by.or(self.has_ended().then_some(0));
        if later_by.is_some() {
            self.end_step();
        }
        let (mut used, mut picks): (Vec<Batch>, Vec<(u32, u32)>) = (Vec::new(), Vec::new());
        // For each stream, the index in `used` of its current batch.
        let mut indices: Vec<Option<u32>> = vec![None; self.inputs.len()];
        while picks.len() < BATCH {
            let Some((key, first)) = self.first() else { break };
            let (last, is_full) = (self.last_key(later_by.unwrap_or(0)), self.is_full());
            let must_wait = match self.wait {
                MergeWait::Source => self.awaited().is_some(),
                MergeWait::Step => later_by.is_none() && self.awaited().is_some(),
                MergeWait::ShiftedStep => later_by.is_none(),
            };
            if must_wait || key > last {
                break;
            }
            let index = *indices[first].get_or_insert_with(|| {
                used.extend(self.inputs[first].batches.front().cloned());
                (used.len() - 1) as u32
            });
            let (is_exhausted, greatest) = self.pick_run(first, (index, last), &mut picks);
            if is_exhausted {
                indices[first] = None;
            }
            if is_full {
                self.note_overtaken(first, greatest);
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
    fn last_key(&self, later_by: i64) -> i128 {
        if self.wait != MergeWait::ShiftedStep || self.is_full() || self.has_ended() {
            return i128::MAX;
        }
        self.clock.now() + i128::from(later_by)
    }

    /// Makes what a step has brought ready, now that all of it is there.
    fn end_step(&mut self) {
        // Places of the next one may count from the start again.
        self.last_place = i64::MIN;
        if self.wait == MergeWait::ShiftedStep {
            self.late += self.clock.give_keys(&mut self.inputs);
        }
    }

    /// Records which streams were overtaken by stream `first`, by events up to this key.
    fn note_overtaken(&mut self, first: usize, greatest: i128) {
        for (n, waiting) in self.inputs.iter_mut().enumerate() {
            if n != first && waiting.is_waited_for(self.wait) {
                waiting.overtaken_by = waiting.overtaken_by.max(Some((greatest, first)));
            }
        }
    }

    /// The key and the stream of the next event.
    fn first(&self) -> Option<(i128, usize)> {
        self.heads().min()
    }

    fn heads(&self) -> impl Iterator<Item = (i128, usize)> {
        let heads = self.inputs.iter().enumerate();
        heads.filter_map(|(n, waiting)| Some((waiting.head(self.wait)?, n)))
    }

    /// Picks events of stream `first` until another stream is due, or behind key `last`. Returns
    /// whether its batch is exhausted, and the greatest key of those picked.
    fn pick_run(
        &mut self,
        first: usize,
        (index, last): (u32, i128),
        picks: &mut Vec<(u32, u32)>,
    ) -> (bool, i128) {
        let rival = self.heads().filter(|(_, n)| *n != first).min();
        let (waiting, mut greatest) = (&mut self.inputs[first], i128::MIN);
        let (Some(batch), Some(keys)) = (waiting.batches.front(), waiting.keys(0, self.wait))
        else {
            return (true, greatest);
        };
        let mut next = waiting.next;
        while next < batch.len() && picks.len() < BATCH {
            let key = keys.at(next);
            if rival.is_some_and(|rival| rival < (key, first)) || key > last {
                break;
            }
            greatest = greatest.max(key);
            picks.push((index, next as u32));
            next += 1;
        }
        let is_exhausted = next == batch.len();
        waiting.next = next;
        if is_exhausted {
            waiting.drop_first();
        }
        (is_exhausted, greatest)
    }
}
