//! The inbox: what has been received and waits for the pipeline. Bounded; what no longer fits is dropped
//! and counted, so that receiving never waits for a disk.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sluice_core::{Batch, Error};

/// Batches between the thread that receives and the pipeline.
#[derive(Debug)]
pub(crate) struct Inbox {
    queue: Mutex<Queue>,
    changed: Condvar,
    capacity: usize,
}

#[derive(Debug, Default)]
struct Queue {
    batches: VecDeque<Batch>,
    bytes: usize,
    /// Events that did not fit.
    dropped: u64,
    ended: Option<Result<(), Error>>,
    /// Whether it has been said that nothing more comes.
    closed: bool,
}

/// What a look into the inbox gives.
#[derive(Debug)]
pub(crate) enum Mail {
    Batch(Batch),
    /// Nothing has come for a while.
    Nothing,
    /// Nothing will come.
    End,
}

impl Inbox {
    /// An inbox for about so many bytes.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { queue: Mutex::default(), changed: Condvar::new(), capacity }
    }

    /// Puts a batch in, if it still fits. One batch always does.
    pub(crate) fn put(&self, batch: Batch) {
        let mut queue = self.queue();
        let bytes = batch.memory();
        if queue.bytes + bytes > self.capacity && !queue.batches.is_empty() {
            queue.dropped += batch.len() as u64;
            return;
        }
        queue.bytes += bytes;
        queue.batches.push_back(batch);
        drop(queue);
        self.changed.notify_one();
    }

    /// Says that nothing more will come, and why. Only the first time counts.
    pub(crate) fn end(&self, how: Result<(), Error>) {
        let mut queue = self.queue();
        if !std::mem::replace(&mut queue.closed, true) {
            queue.ended = Some(how);
        }
        drop(queue);
        self.changed.notify_one();
    }

    /// How many events did not fit so far.
    pub(crate) fn dropped(&self) -> u64 {
        self.queue().dropped
    }

    /// The oldest batch; waits for one a little while.
    pub(crate) fn take(&self, patience: Duration) -> Result<Mail, Error> {
        let mut queue = self.queue();
        if queue.batches.is_empty() && queue.ended.is_none() {
            let waited = self.changed.wait_timeout(queue, patience);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if let Some(batch) = queue.batches.pop_front() {
            queue.bytes -= batch.memory();
            return Ok(Mail::Batch(batch));
        }
        match queue.ended.take() {
            None => Ok(Mail::Nothing),
            Some(how) => {
                queue.ended = Some(Ok(()));
                how.map(|()| Mail::End)
            }
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_core::{BatchBuilder, ChannelId};

    fn batch(events: usize) -> Batch {
        let mut builder = BatchBuilder::default();
        (0..events).for_each(|n| builder.push_copy(n as i64, 0, ChannelId(0), &[7; 100]));
        builder.finish()
    }

    #[test]
    fn what_no_longer_fits_is_counted_and_what_waits_is_kept() {
        let inbox = Inbox::new(3000);
        [10, 10, 10, 1].into_iter().for_each(|events| inbox.put(batch(events)));
        inbox.end(Ok(()));
        let mut taken = Vec::new();
        while let Mail::Batch(batch) = inbox.take(Duration::ZERO).unwrap() {
            taken.push(batch.len());
        }
        assert_eq!((taken, inbox.dropped()), (vec![10, 10, 1], 10));
        assert!(matches!(inbox.take(Duration::ZERO), Ok(Mail::End)));
    }

    #[test]
    fn one_batch_fits_whatever_its_size_and_a_failure_comes_after_what_was_received() {
        let inbox = Inbox::new(1);
        inbox.put(batch(1000));
        inbox.end(Err(Error::refused("the network is gone")));
        assert!(matches!(inbox.take(Duration::ZERO), Ok(Mail::Batch(_))));
        assert!(inbox.take(Duration::ZERO).is_err());
    }
}
