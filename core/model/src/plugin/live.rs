//! The batches of a live source on their way from the thread that receives them to the run.
//! Receives nothing itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Select, Sender, bounded, unbounded};

use crate::{Batch, Error};

/// Sends the batches of a live split, which ends when all of its senders are dropped. A sender that
/// a panic drops fails the run instead, and so does [`fail`](Self::fail).
///
/// # Example
///
/// ```
/// use sluice_model::{Error, LiveBatches, LiveSender, ReadContext};
///
/// fn listen(context: &ReadContext) -> Result<LiveBatches, Error> {
///     let (sender, batches) = LiveSender::bounded(64);
///     let run = context.run.clone();
///     sender.start_thread(move |sender| {
///         while !run.is_cancelled() {
///             // Receives, and sends batches.
/// #           break;
///         }
///         Ok(())
///     })?;
///     Ok(batches)
/// }
/// # assert_eq!(listen(&ReadContext::standalone("live"))?.count(), 0);
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct LiveSender {
    batches: Sender<Result<Batch, Error>>,
    /// Set if a panic has dropped one when there was no room to say so.
    panicked: Arc<AtomicBool>,
}

/// The batches of a live split as they arrive. An error is the last one.
#[derive(Debug)]
pub struct LiveBatches {
    batches: Receiver<Result<Batch, Error>>,
    panicked: Arc<AtomicBool>,
}

impl LiveSender {
    /// A sender that waits while so many batches wait for the run, and where they arrive.
    pub fn bounded(batches: usize) -> (Self, LiveBatches) {
        let (sender, batches) = bounded(batches);
        Self::with_channel(sender, batches)
    }

    /// A sender that never waits, for sources that look at [`waiting`](Self::waiting), and where
    /// its batches arrive.
    pub fn unbounded() -> (Self, LiveBatches) {
        let (sender, batches) = unbounded();
        Self::with_channel(sender, batches)
    }

    fn with_channel(
        sender: Sender<Result<Batch, Error>>,
        batches: Receiver<Result<Batch, Error>>,
    ) -> (Self, LiveBatches) {
        let panicked = Arc::<AtomicBool>::default();
        let batches = LiveBatches { batches, panicked: Arc::clone(&panicked) };
        (Self { batches: sender, panicked }, batches)
    }

    /// Sends a batch. Returns whether anyone receives it: if not, the run has ended.
    pub fn send(&self, batch: Batch) -> bool {
        self.batches.send(Ok(batch)).is_ok()
    }

    /// Ends the split with an error, which fails the run.
    pub fn fail(self, error: Error) {
        // The receiver is gone if the run has failed.
        drop(self.batches.send(Err(error)));
    }

    /// The batches that wait for the run.
    pub fn waiting(&self) -> usize {
        self.batches.len()
    }

    /// Receives on a new thread until `receive` returns. If it fails or panics, the run fails.
    pub fn start_thread(
        self,
        receive: impl FnOnce(&Self) -> Result<(), Error> + Send + 'static,
    ) -> Result<(), Error> {
        let run = move || {
            if let Err(error) = Error::catching(|| receive(&self)) {
                self.fail(error);
            }
        };
        let thread = thread::Builder::new().name("sluice-receive".into()).spawn(run);
        let failed = |e| Error::refused(format!("cannot start the receiving thread: {e}"));
        thread.map(drop).map_err(failed)
    }
}

impl Drop for LiveSender {
    fn drop(&mut self) {
        // Waiting for room could be for ever: the receiver may belong to this thread.
        if thread::panicking() && self.batches.try_send(Err(Error::panicked())).is_err() {
            self.panicked.store(true, Ordering::Release);
        }
    }
}

impl LiveBatches {
    /// The next batch, or the error that ended receiving. Waits for it up to `patience`.
    pub fn recv_timeout(
        &self,
        patience: Duration,
    ) -> Result<Result<Batch, Error>, RecvTimeoutError> {
        match self.batches.recv_timeout(patience) {
            Err(_) if self.panicked.swap(false, Ordering::Acquire) => Ok(Err(Error::panicked())),
            next => next,
        }
    }

    /// The batches that have arrived.
    pub fn waiting(&self) -> usize {
        self.batches.len()
    }

    /// Adds the arrival of a batch to a selection.
    pub fn add_to<'s>(&'s self, select: &mut Select<'s>) -> usize {
        select.recv(&self.batches)
    }
}

/// Waits for each batch.
impl Iterator for LiveBatches {
    type Item = Result<Batch, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.recv_timeout(Duration::MAX).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BatchBuilder, ChannelId};

    fn batch() -> Batch {
        let mut batch = BatchBuilder::default();
        batch.push_copy(1, 0, ChannelId(0), b"");
        batch.finish()
    }

    /// Whether each item was a batch.
    fn received(batches: LiveBatches) -> Vec<bool> {
        batches.map(|batch| batch.is_ok()).collect()
    }

    #[test]
    fn a_thread_that_panics_or_fails_does_not_look_ended() {
        for most in [2, 9] {
            let (sender, batches) = LiveSender::bounded(most);
            sender
                .start_thread(|sender| {
                    assert!(sender.send(batch()) && sender.send(batch()));
                    panic!("no more");
                })
                .unwrap();
            assert_eq!(received(batches), [true, true, false]);
        }
        let (sender, batches) = LiveSender::unbounded();
        sender
            .start_thread(|sender| {
                assert!(sender.send(batch()));
                Err(Error::refused("the network is gone"))
            })
            .unwrap();
        assert_eq!(received(batches), [true, false]);
    }

    #[test]
    fn one_of_several_senders_that_a_panic_drops_is_noticed_while_the_others_go_on() {
        let (sender, batches) = LiveSender::unbounded();
        let other = sender.clone();
        sender.start_thread(|_| panic!("no more")).unwrap();
        assert!(batches.recv_timeout(Duration::from_secs(60)).unwrap().is_err());
        assert!(other.send(batch()));
    }

    #[test]
    fn an_end_is_no_failure() {
        let (sender, batches) = LiveSender::bounded(1);
        sender
            .start_thread(|sender| {
                assert!(sender.send(batch()));
                Ok(())
            })
            .unwrap();
        assert_eq!(received(batches), [true]);
        let (sender, batches) = LiveSender::bounded(1);
        drop(batches);
        assert!(!sender.send(batch()), "the run has ended");
    }
}
