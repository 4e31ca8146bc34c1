//! Sorts events that are slightly out of order, in bounded memory.
//!
//! The *watermark* is the latest time so far minus the window. Events at or before it are passed
//! on; an event that arrives with an earlier time is late. A late event that is kept is sorted as
//! if its time were the watermark. This depends only on the events and their order, not on batch
//! boundaries.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

use serde::{Deserialize, Serialize};
use sluice_model::schemars::JsonSchema;
use sluice_model::{Batch, StageContext};

/// Events per output batch.
const BATCH: usize = 8192;

/// What happens to an event that arrives too late to be sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(crate = "sluice_model::schemars")]
pub(crate) enum LatePolicy {
    /// It is passed on at once, out of order.
    #[default]
    Keep,
    /// It is dropped.
    Drop,
}

/// The maximum to hold back. Beyond it, the earliest event is passed on early.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SortLimits {
    pub(crate) events: u64,
    pub(crate) bytes: u64,
}

/// Sorts events by time within a window. Stable: events of equal time keep their order.
#[derive(Debug)]
pub(crate) struct Sorter {
    window: i64,
    late: LatePolicy,
    limits: SortLimits,
    watermark: i64,
    /// The number of events that have arrived.
    arrivals: u64,
    /// The batches of the pending events, in order of arrival.
    held: VecDeque<HeldBatch>,
    run: SortedRun,
    /// Pending events of the current batch.
    incoming: BinaryHeap<Reverse<PendingEvent>>,
    /// Bytes of the payloads and rows of the pending events.
    bytes: u64,
}

/// A pending event. Ordered by time, then arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PendingEvent {
    time: i64,
    arrival: u64,
    bytes: u64,
}

/// A batch with pending events.
#[derive(Debug)]
struct HeldBatch {
    /// The arrival number of its first event.
    first: u64,
    /// How many of its events are pending.
    waiting: usize,
    batch: Batch,
}

/// Pending events in order; those before `head` are gone.
#[derive(Debug, Default)]
struct SortedRun {
    list: Vec<PendingEvent>,
    head: usize,
}

/// What happened while a batch was pushed.
#[derive(Default)]
struct PushTally {
    /// Arrival numbers of events that are due, in order.
    ready: Vec<u64>,
    late: u64,
    early: u64,
}

impl Sorter {
    /// A sorter for events that come at most `window` nanoseconds late.
    pub(crate) fn new(window: i64, late: LatePolicy, limits: SortLimits) -> Self {
        Self {
            window,
            late,
            limits,
            watermark: i64::MIN,
            arrivals: 0,
            held: VecDeque::new(),
            run: SortedRun::default(),
            incoming: BinaryHeap::new(),
            bytes: 0,
        }
    }

    /// Adds the next batch; returns the events that are due.
    pub(crate) fn push(&mut self, batch: Batch, context: &mut StageContext<'_>) -> Vec<Batch> {
        let batch = batch.compact();
        let first = self.arrivals;
        let mut waiting = 0;
        let mut tally = PushTally::default();
        let row_bytes = batch.row_bytes();
        for (row, time) in batch.timestamps().iter().enumerate() {
            let bytes = (batch.payload_len(row) + row_bytes[row]) as u64;
            let arrival = first + row as u64;
            if self.hold(PendingEvent { time: *time, arrival, bytes }, &mut tally) {
                waiting += 1;
                self.release(&mut tally);
            }
        }
        self.arrivals += batch.len() as u64;
        self.held.push_back(HeldBatch { first, waiting, batch });
        self.run.merge(std::mem::take(&mut self.incoming));
        self.note(&tally, context);
        self.emit(&tally.ready)
    }

    /// Returns all pending events.
    pub(crate) fn finish(&mut self) -> Vec<Batch> {
        let ready: Vec<u64> = self.run.rest().iter().map(|event| event.arrival).collect();
        self.run = SortedRun::default();
        self.bytes = 0;
        self.emit(&ready)
    }

    /// Holds an event until it is due. Returns false if it is late and dropped.
    fn hold(&mut self, event: PendingEvent, tally: &mut PushTally) -> bool {
        let is_late = event.time < self.watermark;
        tally.late += u64::from(is_late);
        if is_late && self.late == LatePolicy::Drop {
            return false;
        }
        let time = event.time.max(self.watermark);
        self.incoming.push(Reverse(PendingEvent { time, ..event }));
        self.bytes += event.bytes;
        self.watermark = self.watermark.max(event.time.saturating_sub(self.window));
        true
    }

    /// Releases events that are due, and the earliest if too many are pending.
    fn release(&mut self, tally: &mut PushTally) {
        while let Some(event) = self.earliest() {
            let is_due = event.time <= self.watermark;
            if !is_due && !self.is_over_limit() {
                return;
            }
            if !is_due {
                tally.early += 1;
                // Later arrivals with an earlier time can no longer be sorted.
                self.watermark = event.time;
            }
            self.remove_earliest();
            self.bytes -= event.bytes;
            tally.ready.push(event.arrival);
        }
    }

    fn earliest(&self) -> Option<PendingEvent> {
        let (old, new) = (self.run.first(), self.incoming.peek().map(|event| event.0));
        match (old, new) {
            (Some(old), Some(new)) => Some(old.min(new)),
            (old, new) => old.or(new),
        }
    }

    fn remove_earliest(&mut self) {
        let is_old = match (self.run.first(), self.incoming.peek()) {
            (Some(old), Some(Reverse(new))) => old < *new,
            (old, _) => old.is_some(),
        };
        if is_old {
            self.run.head += 1;
        } else {
            self.incoming.pop();
        }
    }

    fn is_over_limit(&self) -> bool {
        let events = (self.run.rest().len() + self.incoming.len()) as u64;
        events > self.limits.events || self.bytes > self.limits.bytes
    }

    fn note(&self, tally: &PushTally, context: &mut StageContext<'_>) {
        let late = match self.late {
            LatePolicy::Keep => "too late to be sorted; passed on out of order",
            LatePolicy::Drop => "too late to be sorted; dropped",
        };
        if self.late == LatePolicy::Drop {
            context.report.filtered += tally.late;
        }
        let early = "passed on early: the sort window holds more than `sort_events` or \
                     `sort_bytes`";
        for (what, count) in [(late, tally.late), (early, tally.early)] {
            if count > 0 {
                context.note(what, count);
            }
        }
    }

    /// The events with these arrival numbers, in this order.
    fn emit(&mut self, ready: &[u64]) -> Vec<Batch> {
        let batches = ready.chunks(BATCH).map(|arrivals| self.gather(arrivals)).collect();
        while self.held.front().is_some_and(|held| held.waiting == 0) {
            self.held.pop_front();
        }
        batches
    }

    fn gather(&mut self, arrivals: &[u64]) -> Batch {
        let (mut batches, mut places) = (Vec::new(), HashMap::new());
        let mut picks = Vec::with_capacity(arrivals.len());
        let mut at = 0;
        for arrival in arrivals {
            if !self.held.get(at).is_some_and(|held| held.has(*arrival)) {
                at = self.held.partition_point(|held| held.first <= *arrival) - 1;
            }
            let held = &mut self.held[at];
            let place = *places.entry(at).or_insert_with(|| {
                batches.push(held.batch.clone());
                (batches.len() - 1) as u32
            });
            picks.push((place, (arrival - held.first) as u32));
            held.release_one();
        }
        Batch::interleave(&batches, &picks)
    }
}

impl HeldBatch {
    fn has(&self, arrival: u64) -> bool {
        (self.first..self.first + self.batch.len() as u64).contains(&arrival)
    }

    fn release_one(&mut self) {
        self.waiting -= 1;
        if self.waiting == 0 {
            // Earlier batches may still be pending; its memory is no longer needed.
            self.batch = Batch::default();
        }
    }
}

impl SortedRun {
    fn first(&self) -> Option<PendingEvent> {
        self.list.get(self.head).copied()
    }

    fn rest(&self) -> &[PendingEvent] {
        &self.list[self.head..]
    }

    /// Merges events, most of which are later than the present ones.
    fn merge(&mut self, incoming: BinaryHeap<Reverse<PendingEvent>>) {
        let mut incoming: Vec<PendingEvent> = incoming.into_iter().map(|event| event.0).collect();
        incoming.sort_unstable();
        let Some(first) = incoming.first().copied() else { return };
        if self.head > self.list.len() / 2 {
            self.list.drain(..self.head);
            self.head = 0;
        }
        let from = self.head + self.rest().partition_point(|event| *event < first);
        self.list.extend(incoming);
        // The standard sort detects two sorted runs and merges them.
        self.list[from..].sort();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::testing::{StageRunner, rows, times};
    use arrow_array::{ArrayRef, StringArray};
    use serde_json::{Value, json};
    use sluice_model::Batch;

    struct SortOutput {
        times: Vec<i64>,
        sequences: Vec<i64>,
        run: StageRunner,
    }

    fn sorted(options: Value, given: &[&[i64]]) -> SortOutput {
        let mut run = StageRunner::new("time", options);
        let batches: Vec<Batch> = given
            .iter()
            .map(|times| {
                let events: Vec<_> = times.iter().map(|time| ("A", *time)).collect();
                run.batch(&events)
            })
            .collect();
        let out = run.all(batches).unwrap();
        let given: usize = given.iter().map(|times| times.len()).sum();
        assert_eq!(out.len() + run.filtered as usize, given);
        SortOutput { times: times(&out), sequences: out.sequences().to_vec(), run }
    }

    #[test]
    fn events_within_the_window_come_in_order() {
        let out = sorted(json!({ "sort": "10ns" }), &[&[20, 15, 30, 25], &[20, 40, 35], &[30]]);
        assert_eq!(out.times, [15, 20, 20, 25, 30, 30, 35, 40]);
        assert!(out.run.notes.is_empty());
    }

    #[test]
    fn events_of_equal_time_stay_in_their_order() {
        let out = sorted(json!({ "sort": "10ns" }), &[&[5, 5, 3], &[5, 3, 5]]);
        assert_eq!(out.times, [3, 3, 5, 5, 5, 5]);
        assert_eq!(out.sequences, [2, 4, 0, 1, 3, 5]);
    }

    #[test]
    fn a_late_event_that_is_kept_is_sorted_at_the_watermark() {
        let out = sorted(json!({ "sort": "10ns" }), &[&[5, 20, 30, 9, 25, 40]]);
        assert_eq!(out.times, [5, 20, 9, 25, 30, 40]);
        let note = "too late to be sorted; passed on out of order";
        assert_eq!(out.run.notes, [(note.to_owned(), 1)]);
    }

    #[test]
    fn a_late_event_is_dropped_if_asked_for() {
        let out = sorted(json!({ "sort": "10ns", "late": "drop" }), &[&[5, 30], &[20, 9, 19]]);
        assert_eq!((out.times, out.run.filtered), (vec![5, 20, 30], 2));
        assert_eq!(out.run.notes, [("too late to be sorted; dropped".to_owned(), 2)]);
    }

    #[test]
    fn no_more_events_than_allowed_are_held_back() {
        let given: &[&[i64]] = &[&[4, 3, 2, 1, 5]];
        let out = sorted(json!({ "sort": "1h", "sort_events": 2 }), given);
        // 2 makes way for itself; 1 then comes after what was passed on; 5 pushes 3 out.
        assert_eq!(out.times, [2, 1, 3, 4, 5]);
        let counts: Vec<u64> = out.run.notes.iter().map(|note| note.1).collect();
        assert_eq!(counts, [1, 2]);
    }

    #[test]
    fn no_more_bytes_than_allowed_are_held_back() {
        let given: &[&[i64]] = &[&[3, 2, 1]];
        let all = sorted(json!({ "sort": "1h" }), given);
        assert_eq!(all.times, [1, 2, 3]);
        let out = sorted(json!({ "sort": "1h", "sort_bytes": 0 }), given);
        assert_eq!(out.times, [3, 2, 1]);
    }

    #[test]
    fn bytes_of_rows_count_like_those_of_payloads() {
        let text = "a text of 10000 bytes".repeat(500);
        for limit in [1_000_000, 25_000] {
            let options = json!({ "sort": "1h", "sort_bytes": limit });
            let mut run = StageRunner::new("time", options);
            let batches: Vec<Batch> = (1..4)
                .map(|back| {
                    let column: ArrayRef = Arc::new(StringArray::from(vec![text.as_str()]));
                    let rows = rows("t", &[0], vec![("text", column)]);
                    run.batch(&[("A", 10 - back)]).with_rows(vec![rows]).without_payloads()
                })
                .collect();
            let out = run.all(batches).unwrap();
            let is_held = limit > 100_000;
            assert_eq!(times(&out), [7, 8, 9]);
            assert_eq!(run.notes.is_empty(), is_held, "{limit}: {:?}", run.notes);
        }
    }

    #[test]
    fn an_event_is_held_no_longer_than_it_has_to() {
        let mut run = StageRunner::new("time", json!({ "sort": "10ns" }));
        let given = [run.batch(&[("A", 0), ("A", 5), ("A", 10)]), run.batch(&[("A", 15)])];
        let [first, second] = given.map(|batch| run.push(batch).unwrap());
        assert_eq!((times(&first), times(&second)), (vec![0], vec![5]));
    }

    #[test]
    fn the_ends_of_the_range_of_times_are_times_too() {
        let out = sorted(json!({ "sort": "1ns" }), &[&[i64::MIN, i64::MAX, i64::MAX, i64::MIN]]);
        assert_eq!(out.times, [i64::MIN, i64::MIN, i64::MAX, i64::MAX]);
    }

    #[test]
    fn payloads_channels_and_decoded_rows_follow_their_events() {
        let mut run = StageRunner::new("time", json!({ "sort": "1s" }));
        let batch = run.batch(&[("B", 2), ("A", 1)]);
        let wanted: Vec<_> = [1, 0].map(|row| format!("{:?}", batch.event(row))).to_vec();
        let out = run.all([batch]).unwrap();
        let found: Vec<_> = out.iter().map(|event| format!("{event:?}")).collect();
        assert_eq!(found, wanted);
    }
}
