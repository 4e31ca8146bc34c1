//! Merges streams by time. Keeps the order within each stream, even if its times step back.
//!
//! The stream with the earliest next event comes first; at equal times the one with the lower
//! index. Nothing is returned while a stream that may still bring an earlier event is empty, so the
//! result depends on the events only.

use std::collections::VecDeque;

use sluice_model::{Batch, TimeWindow};

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
    /// those at about the latest time, and those of streams that are shifted further than others.
    Step,
}

/// Why nothing may follow for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergePause {
    /// The current step goes on.
    None,
    /// All events of the current step have been pushed. What follows may be earlier by at most so
    /// many nanoseconds than what came.
    StepOver(i64),
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
    /// The latest time of wanted events so far, without the shifts.
    newest: i64,
}

/// The place of events that nothing behind the merge wants: before all others, so that these come
/// in the order that they have without them.
const UNWANTED: i64 = i64::MIN;

/// A batch, and the times by which its events are placed, if some are [`UNWANTED`].
#[derive(Debug)]
struct PlacedBatch {
    batch: Batch,
    places: Option<Vec<i64>>,
}

impl PlacedBatch {
    fn places(&self) -> &[i64] {
        self.places.as_deref().unwrap_or_else(|| self.batch.timestamps())
    }
}

/// The events that are wanted behind a merge.
#[derive(Clone, Copy, Debug)]
pub struct WantedEvents<'w> {
    /// Their times.
    pub window: TimeWindow,
    /// Whether each channel is wanted.
    pub channels: &'w [bool],
}

impl WantedEvents<'_> {
    /// The places of all events; `None` if they are their times, as all are wanted.
    fn places(self, batch: &Batch) -> Option<Vec<i64>> {
        let (times, channels) = (batch.timestamps(), batch.channels());
        let wants_channel = |channel: &u32| self.channels[*channel as usize];
        if times.iter().all(|time| self.window.wants_time(*time))
            && (!self.channels.contains(&false) || channels.iter().all(wants_channel))
        {
            return None;
        }
        let place = |(time, channel): (&i64, &u32)| {
            let is_wanted = self.window.wants_time(*time) && wants_channel(channel);
            if is_wanted { *time } else { UNWANTED }
        };
        Some(times.iter().zip(channels).map(place).collect())
    }
}

#[derive(Debug, Default)]
struct MergeInput {
    batches: VecDeque<PlacedBatch>,
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
        self.batches.front().map(|batch| batch.places()[self.next])
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
        self.push_wanted(input, batch, None)
    }

    /// The same, if nothing behind the merge wants some of the events: the others come in the order
    /// that they have without these.
    pub fn push_wanted(
        &mut self,
        input: usize,
        batch: Batch,
        wanted: Option<WantedEvents<'_>>,
    ) -> u64 {
        if batch.is_empty() {
            return 0;
        }
        let batch = batch.compact();
        let places = wanted.and_then(|wanted| wanted.places(&batch));
        let batch = PlacedBatch { batch, places };
        let waiting = &mut self.inputs[input];
        let is_late = |time: &&i64| {
            **time != UNWANTED && waiting.overtaken_by.is_some_and(|by| (**time, input) < by)
        };
        let late = batch.places().iter().filter(is_late).count() as u64;
        if let Some(newest) = batch.places().iter().max() {
            self.newest = self.newest.max(newest.saturating_sub(waiting.shift));
        }
        waiting.bytes += batch.batch.memory();
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
                MergePause::StepOver(back) => Some(self.earliest_next().saturating_sub(back)),
                MergePause::Silence(by) => {
                    Some(self.earliest_next().saturating_add(by).saturating_add(1))
                }
            };
            // Live events have no other order than that in which they arrive.
            let is_ordered = !forced || is_full || matches!(pause, MergePause::StepOver(1..));
            let Some((time, first)) = self.earliest() else { break };
            if is_waiting && !forced || end.is_some_and(|end| time >= end) {
                break;
            }
            let place = *places[first].get_or_insert_with(|| {
                used.extend(self.inputs[first].batches.front().map(|next| next.batch.clone()));
                (used.len() - 1) as u32
            });
            let run = self.pick_run(first, (place, end), &mut picks);
            if run.is_end {
                places[first] = None;
            }
            if is_ordered {
                self.note_overtaken(first, run.latest);
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

    /// Records which streams were overtaken by events of stream `first` up to this time.
    fn note_overtaken(&mut self, first: usize, latest: i64) {
        let wait = self.wait;
        let silent =
            |(n, waiting): &(usize, &mut MergeInput)| *n != first && waiting.is_waited_for(wait);
        for (_, waiting) in self.inputs.iter_mut().enumerate().filter(silent) {
            waiting.overtaken_by = waiting.overtaken_by.max(Some((latest, first)));
        }
    }

    /// The time and the stream of the next event.
    fn earliest(&self) -> Option<(i64, usize)> {
        let heads = self.inputs.iter().enumerate();
        heads.filter_map(|(n, waiting)| Some((waiting.head()?, n))).min()
    }

    /// Picks events of stream `first` until another stream is due, or time `end`.
    fn pick_run(
        &mut self,
        first: usize,
        (place, end): (u32, Option<i64>),
        picks: &mut Vec<(u32, u32)>,
    ) -> PickedRun {
        let others = self.inputs.iter().enumerate().filter(|(n, _)| *n != first);
        let rival = others.filter_map(|(n, waiting)| Some((waiting.head()?, n))).min();
        let waiting = &mut self.inputs[first];
        let mut run = PickedRun { is_end: false, latest: UNWANTED };
        let Some(batch) = waiting.batches.front() else { return run };
        let len = batch.batch.len();
        while waiting.next < len && picks.len() < BATCH {
            let due = (batch.places()[waiting.next], first);
            if rival.is_some_and(|rival| rival < due) || end.is_some_and(|end| due.0 >= end) {
                return run;
            }
            run.latest = run.latest.max(due.0);
            picks.push((place, waiting.next as u32));
            waiting.next += 1;
        }
        if waiting.next == len {
            waiting.bytes -= batch.batch.memory();
            waiting.batches.pop_front();
            waiting.next = 0;
            run.is_end = true;
        }
        run
    }
}

/// Events of one stream that were picked in a row.
struct PickedRun {
    /// Whether they end their batch.
    is_end: bool,
    /// The latest of their times.
    latest: i64,
}

#[cfg(test)]
mod tests;
