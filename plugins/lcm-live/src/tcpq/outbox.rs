//! The queue of frames for one client of a hub: bounded in bytes, and never blocking for those who
//! add frames.
//!
//! It does not write to sockets; the [`hub`](super::hub) does.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

/// Cost of a queued frame besides its bytes, so that empty messages fill a queue, too.
const OVERHEAD: usize = 96;

/// Most frames written at once.
const BATCH_FRAMES: usize = 256;

/// Bytes after which a batch is complete.
const BATCH_BYTES: usize = 1 << 20;

/// A queue between publishers and the thread that writes to a client.
#[derive(Debug)]
pub(super) struct Outbox {
    limit: usize,
    state: Mutex<State>,
    ready: Condvar,
}

#[derive(Debug, Default)]
struct State {
    frames: VecDeque<Bytes>,
    /// Cost of the frames queued or being written.
    cost: usize,
    /// Frames being written.
    writing: usize,
    closed: bool,
    /// Frames queued or being written when it was closed.
    unsent: usize,
}

/// The result of adding a frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EnqueueResult {
    /// It was queued.
    Queued,
    /// It was dropped: the queue is full.
    Dropped,
    /// The client is gone.
    Closed,
}

impl Outbox {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, state: Mutex::default(), ready: Condvar::new() }
    }

    /// Adds a frame if it fits. A frame longer than the whole queue is accepted by an empty one, as
    /// it could never be sent otherwise, and counts as half of the queue.
    pub(super) fn add(&self, frame: &Bytes) -> EnqueueResult {
        let mut state = self.state();
        if state.closed {
            return EnqueueResult::Closed;
        }
        if state.cost > 0 && state.cost + frame.len() + OVERHEAD > self.limit {
            return EnqueueResult::Dropped;
        }
        state.cost += self.cost_of(frame);
        state.frames.push_back(frame.clone());
        // The writer only sleeps on an empty queue: one system call per burst.
        if state.frames.len() == 1 {
            drop(state);
            self.ready.notify_one();
        }
        EnqueueResult::Queued
    }

    /// Moves the frames to write next to `batch`, whose frames have been written; waits for the
    /// first. `false` when the outbox is closed.
    pub(super) fn next_batch(&self, batch: &mut Vec<Bytes>) -> bool {
        let done: usize = batch.drain(..).map(|frame| self.cost_of(&frame)).sum();
        let mut state = self.state();
        state.cost = state.cost.saturating_sub(done);
        state.writing = 0;
        while state.frames.is_empty() && !state.closed {
            // A burst of small frames leaves a large queue behind; an idle client keeps none.
            state.frames.shrink_to(BATCH_FRAMES);
            state = self.ready.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let mut bytes = 0;
        while bytes < BATCH_BYTES
            && batch.len() < BATCH_FRAMES
            && let Some(frame) = state.frames.pop_front()
        {
            bytes += frame.len();
            batch.push(frame);
        }
        state.writing = batch.len();
        !state.closed
    }

    /// Closes it and drops queued frames; those being written may or may not arrive. Returns how
    /// many they were together, also if it was already closed.
    pub(super) fn close(&self) -> usize {
        let mut state = self.state();
        if !state.closed {
            state.closed = true;
            state.unsent = std::mem::take(&mut state.frames).len() + state.writing;
        }
        let left = state.unsent;
        drop(state);
        self.ready.notify_one();
        left
    }

    fn cost_of(&self, frame: &Bytes) -> usize {
        let cost = frame.len() + OVERHEAD;
        if cost > self.limit { self.limit / 2 } else { cost }
    }

    /// Bytes queued or being written.
    #[cfg(test)]
    pub(super) fn cost(&self) -> usize {
        self.state().cost
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(len: usize) -> Bytes {
        vec![0; len].into()
    }

    #[test]
    fn the_newest_is_dropped_when_there_is_no_room() {
        let outbox = Outbox::new(2 * (100 + OVERHEAD));
        assert_eq!(outbox.add(&frame(100)), EnqueueResult::Queued);
        assert_eq!(outbox.add(&frame(101)), EnqueueResult::Dropped);
        assert_eq!(outbox.add(&frame(100)), EnqueueResult::Queued);
        assert_eq!(outbox.add(&frame(0)), EnqueueResult::Dropped);
        let mut batch = Vec::new();
        assert!(outbox.next_batch(&mut batch));
        assert_eq!(batch.len(), 2);
        assert_eq!(
            outbox.add(&frame(0)),
            EnqueueResult::Dropped,
            "what is being written still counts"
        );
    }

    #[test]
    fn a_frame_longer_than_the_queue_is_taken_alone() {
        let outbox = Outbox::new(10);
        assert_eq!(outbox.add(&frame(1000)), EnqueueResult::Queued);
        assert_eq!(outbox.add(&frame(0)), EnqueueResult::Dropped);
    }

    #[test]
    fn there_is_room_behind_a_frame_longer_than_the_queue() {
        let outbox = Outbox::new(4 * OVERHEAD);
        assert_eq!(outbox.add(&frame(4000)), EnqueueResult::Queued);
        let rest = [0, 4000, 0, 0].map(|len| outbox.add(&frame(len)));
        use EnqueueResult::{Dropped, Queued};
        assert_eq!(rest, [Queued, Dropped, Queued, Dropped]);
        let mut batch = Vec::new();
        assert!(outbox.next_batch(&mut batch));
        assert_eq!((batch.len(), outbox.cost()), (3, 4 * OVERHEAD));
        assert_eq!(outbox.close(), 3);
        outbox.next_batch(&mut batch);
        assert_eq!(outbox.cost(), 0);
    }

    #[test]
    fn what_is_written_makes_room() {
        let outbox = Outbox::new(2 * (100 + OVERHEAD));
        let mut batch = Vec::new();
        for _ in 0..5 {
            assert_eq!(outbox.add(&frame(100)), EnqueueResult::Queued);
            // Releases the space of the previous frame.
            assert!(outbox.next_batch(&mut batch));
            assert_eq!((batch.len(), outbox.cost()), (1, 100 + OVERHEAD));
        }
    }

    #[test]
    fn a_closed_outbox_keeps_and_takes_nothing() {
        let outbox = Outbox::new(1000);
        outbox.add(&frame(1));
        outbox.add(&frame(2));
        assert_eq!((outbox.close(), outbox.close()), (2, 2));
        assert_eq!(outbox.add(&frame(3)), EnqueueResult::Closed);
        let mut batch = Vec::new();
        assert!(!outbox.next_batch(&mut batch) && batch.is_empty());
    }

    #[test]
    fn frames_that_are_being_written_are_left_when_it_is_closed() {
        let outbox = Outbox::new(1000);
        let mut batch = Vec::new();
        outbox.add(&frame(1));
        outbox.add(&frame(2));
        assert!(outbox.next_batch(&mut batch));
        outbox.add(&frame(3));
        assert_eq!((outbox.close(), outbox.close()), (3, 3));
        assert!(!outbox.next_batch(&mut batch));
        assert_eq!(outbox.close(), 3);
    }

    #[test]
    fn frames_that_were_written_are_not_left() {
        let outbox = Outbox::new(1000);
        let mut batch = Vec::new();
        outbox.add(&frame(1));
        assert!(outbox.next_batch(&mut batch));
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| outbox.next_batch(&mut batch));
            while outbox.cost() > 0 {
                std::thread::yield_now();
            }
            assert_eq!(outbox.close(), 0);
            assert!(!writer.join().unwrap());
        });
    }
}
