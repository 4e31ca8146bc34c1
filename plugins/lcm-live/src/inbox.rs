//! The channel from receiver to pipeline, bounded in bytes. Batches that do not fit are dropped and
//! counted, so that receiving never waits for a disk.

use std::collections::VecDeque;

use sluice_model::{Batch, LiveBatches, LiveSender};

/// The sending side, on the receiving thread.
#[derive(Debug)]
pub(crate) struct Inbox {
    batches: LiveSender,
    capacity: usize,
    /// The sizes of the batches in the channel, and of some that have been taken since.
    sizes: VecDeque<usize>,
    /// Their sum.
    bytes: usize,
    /// Events that did not fit.
    dropped: u64,
}

impl Inbox {
    /// An inbox for about `capacity` bytes, and where its batches arrive.
    pub(crate) fn new(capacity: usize) -> (Self, LiveBatches) {
        let (batches, arriving) = LiveSender::unbounded();
        (Self { batches, capacity, sizes: VecDeque::new(), bytes: 0, dropped: 0 }, arriving)
    }

    /// What sends the error that ends receiving.
    pub(crate) fn sender(&self) -> LiveSender {
        self.batches.clone()
    }

    /// Sends a batch if it fits; an empty channel takes any batch. Returns whether it fits.
    pub(crate) fn push(&mut self, batch: Batch) -> bool {
        while self.sizes.len() > self.batches.waiting() {
            self.bytes -= self.sizes.pop_front().unwrap_or_default();
        }
        let bytes = batch.memory();
        if self.bytes + bytes > self.capacity && !self.sizes.is_empty() {
            self.dropped += batch.len() as u64;
            return false;
        }
        self.bytes += bytes;
        self.sizes.push_back(bytes);
        // The receiver is gone if the run has failed.
        self.batches.send(batch)
    }

    /// Events dropped so far.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_model::{BatchBuilder, ChannelId, Error};

    fn batch(events: usize) -> Batch {
        let mut builder = BatchBuilder::default();
        (0..events).for_each(|n| builder.push_copy(n as i64, 0, ChannelId(0), &[7; 100]));
        builder.finish()
    }

    #[test]
    fn what_no_longer_fits_is_counted_and_what_waits_is_kept() {
        let (mut inbox, mut batches) = Inbox::new(3000);
        let fits = [10, 10, 10, 1].map(|events| inbox.push(batch(events)));
        assert_eq!((fits, inbox.dropped()), ([true, true, false, true], 10));
        let taken: Vec<usize> =
            batches.by_ref().take(3).map(|batch| batch.unwrap().len()).collect();
        assert_eq!(taken, [10, 10, 1]);
        assert!(inbox.push(batch(20)), "what was taken makes room");
        drop(inbox);
        assert_eq!(batches.count(), 1);
    }

    #[test]
    fn one_batch_fits_whatever_its_size_and_a_failure_comes_after_what_was_received() {
        let (mut inbox, mut batches) = Inbox::new(1);
        let errors = inbox.sender();
        inbox.push(batch(1000));
        errors.fail(Error::refused("the network is gone"));
        assert!(batches.next().unwrap().is_ok());
        assert!(batches.next().unwrap().is_err());
    }
}
