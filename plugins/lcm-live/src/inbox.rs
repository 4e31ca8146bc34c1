//! The bounded queue between receiver and pipeline. Batches that do not fit are dropped and
//! counted, so that receiving never waits for a disk.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sluice_model::{Batch, Error};

/// Batches on their way from the receiving thread to the pipeline.
#[derive(Debug)]
pub(crate) struct Inbox {
    queue: Mutex<InboxQueue>,
    changed: Condvar,
    capacity: usize,
}

#[derive(Debug, Default)]
struct InboxQueue {
    batches: VecDeque<Batch>,
    bytes: usize,
    /// Events that did not fit.
    dropped: u64,
    ended: Option<Result<(), Error>>,
    /// Whether the end has been set.
    closed: bool,
}

/// The result of waiting for a batch.
#[derive(Debug)]
pub(crate) enum InboxItem {
    Batch(Batch),
    /// Nothing arrived in time.
    Idle,
    /// Nothing will arrive any more.
    End,
}

impl Inbox {
    /// An inbox for about `capacity` bytes.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { queue: Mutex::default(), changed: Condvar::new(), capacity }
    }

    /// Adds a batch if it fits. An empty inbox takes any batch.
    pub(crate) fn push(&self, batch: Batch) {
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

    /// Ends the inbox with a result. Only the first call counts.
    pub(crate) fn end(&self, how: Result<(), Error>) {
        let mut queue = self.queue();
        if !std::mem::replace(&mut queue.closed, true) {
            queue.ended = Some(how);
        }
        drop(queue);
        self.changed.notify_one();
    }

    /// Events dropped so far.
    pub(crate) fn dropped(&self) -> u64 {
        self.queue().dropped
    }

    /// Takes the oldest batch; waits for one up to `patience`.
    pub(crate) fn receive(&self, patience: Duration) -> Result<InboxItem, Error> {
        let mut queue = self.queue();
        if queue.batches.is_empty() && queue.ended.is_none() {
            let waited = self.changed.wait_timeout(queue, patience);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if let Some(batch) = queue.batches.pop_front() {
            queue.bytes -= batch.memory();
            return Ok(InboxItem::Batch(batch));
        }
        match queue.ended.take() {
            None => Ok(InboxItem::Idle),
            Some(how) => {
                queue.ended = Some(Ok(()));
                how.map(|()| InboxItem::End)
            }
        }
    }

    fn queue(&self) -> MutexGuard<'_, InboxQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_model::{BatchBuilder, ChannelId};

    fn batch(events: usize) -> Batch {
        let mut builder = BatchBuilder::default();
        (0..events).for_each(|n| builder.push_copy(n as i64, 0, ChannelId(0), &[7; 100]));
        builder.finish()
    }

    #[test]
    fn what_no_longer_fits_is_counted_and_what_waits_is_kept() {
        let inbox = Inbox::new(3000);
        [10, 10, 10, 1].into_iter().for_each(|events| inbox.push(batch(events)));
        inbox.end(Ok(()));
        let mut taken = Vec::new();
        while let InboxItem::Batch(batch) = inbox.receive(Duration::ZERO).unwrap() {
            taken.push(batch.len());
        }
        assert_eq!((taken, inbox.dropped()), (vec![10, 10, 1], 10));
        assert!(matches!(inbox.receive(Duration::ZERO), Ok(InboxItem::End)));
    }

    #[test]
    fn one_batch_fits_whatever_its_size_and_a_failure_comes_after_what_was_received() {
        let inbox = Inbox::new(1);
        inbox.push(batch(1000));
        inbox.end(Err(Error::refused("the network is gone")));
        assert!(matches!(inbox.receive(Duration::ZERO), Ok(InboxItem::Batch(_))));
        assert!(inbox.receive(Duration::ZERO).is_err());
    }
}
