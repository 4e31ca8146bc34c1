//! Batches on their way from a reader or a live source to the loop over splits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Select, Sender};

use super::limits::SplitMeter;
use sluice_model::{
    Batch, DamageList, DamageLog, Error, LiveBatches, ReadContext, RunHandle, Source, Split,
    SplitStart,
};

/// Wakes the consumer of a [`ReadAhead`](super::ReadAhead).
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// How long a reader may read on after a stop request, not counting what its consumer takes.
const LONGEST_END: Duration = Duration::from_secs(2);

/// How much input a reader may have read, but not sent, when the stop is requested.
const MAX_UNSENT_BYTES: u64 = Split::MAX_TASK_BYTES;

/// Where the batches of a split arrive that is not read by a task.
pub(super) enum BatchReceiver {
    /// From a reader on its own thread, and whether its last message has arrived.
    Reader(Receiver<Result<ReadBatch, Error>>, bool),
    /// From a live source, whose damage is in the log.
    Live(LiveBatches, Arc<DamageLog>),
}

/// A batch of a reader, with what it has reported since the last one. The last message of a reader
/// has no batch, or is an error.
pub(super) struct ReadBatch {
    pub(super) batch: Option<Batch>,
    pub(super) damage: DamageList,
    pub(super) notes: Vec<(String, u64)>,
}

impl BatchReceiver {
    /// The next batch. Waits for it up to `patience`.
    pub(super) fn receive(
        &mut self,
        patience: Duration,
    ) -> Result<Result<ReadBatch, Error>, RecvTimeoutError> {
        match self {
            Self::Reader(batches, is_over) => match batches.recv_timeout(patience) {
                Ok(next) => {
                    *is_over = next.as_ref().map_or(true, |next| next.batch.is_none());
                    Ok(next)
                }
                Err(RecvTimeoutError::Disconnected) if !*is_over => {
                    *is_over = true;
                    Ok(Err(Error::panicked()))
                }
                Err(nothing) => Err(nothing),
            },
            Self::Live(batches, damage) => {
                let batch = batches.recv_timeout(patience)?;
                let with_damage = |batch| ReadBatch {
                    batch: Some(batch),
                    damage: damage.take_list(),
                    notes: Vec::new(),
                };
                Ok(batch.map(with_damage))
            }
        }
    }

    /// Adds the arrival of a batch to a selection.
    pub(super) fn add_to<'s>(&'s self, select: &mut Select<'s>) -> usize {
        match self {
            Self::Reader(batches, _) => select.recv(batches),
            Self::Live(batches, _) => batches.add_to(select),
        }
    }
}

/// Abandons a split on drop: a reader that waits for a program could not notice otherwise.
pub(super) struct AbandonGuard(RunHandle);

impl Drop for AbandonGuard {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// The context, abandoned when the guard is dropped.
pub(super) fn detached(context: ReadContext) -> (ReadContext, AbandonGuard) {
    let context = ReadContext { run: context.run.detached(), ..context };
    let guard = AbandonGuard(context.run.clone());
    (context, guard)
}

/// Sends results, and wakes the consumer after each and when it is dropped.
pub(super) struct Reply<T> {
    sender: Option<Sender<T>>,
    wake: Wake,
}

impl<T> Reply<T> {
    pub(super) fn new(sender: Sender<T>, wake: &Wake) -> Self {
        Self { sender: Some(sender), wake: Arc::clone(wake) }
    }

    /// Returns whether anyone receives it.
    pub(super) fn send(&self, value: T) -> bool {
        let is_received = self.sender.as_ref().is_some_and(|sender| sender.send(value).is_ok());
        (self.wake)();
        is_received
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        self.sender = None;
        (self.wake)();
    }
}

/// The result of a task; `None` if it is not complete in time.
pub(super) fn received<T>(
    result: &Receiver<Result<T, Error>>,
    patience: Duration,
) -> Result<Option<T>, Error> {
    match result.recv_timeout(patience) {
        Ok(step) => step.map(Some),
        Err(RecvTimeoutError::Timeout) => Ok(None),
        Err(RecvTimeoutError::Disconnected) => Err(Error::panicked()),
    }
}

/// Reads a split and sends its batches, as long as they are received.
pub(super) fn send_batches(
    source: &dyn Source,
    split: &Split,
    context: &ReadContext,
    reply: &Reply<Result<ReadBatch, Error>>,
) -> Result<(), Error> {
    let with_reports = |batch| {
        let (damage, notes) = (context.damage.take_list(), context.losses.take_notes());
        Ok(ReadBatch { batch, damage, notes })
    };
    let mut reader = source.read(split, SplitStart::At(split.start), context)?;
    // Readers end by themselves after a stop request, with what they have read. One that does not
    // is left.
    let (mut ending, mut unsent) = (Duration::ZERO, SplitMeter::new(Some(MAX_UNSENT_BYTES)));
    let mut is_left = false;
    loop {
        let started = Instant::now();
        let batch = if is_left { None } else { reader.next_batch()? };
        if context.run.is_cancelled() {
            ending += started.elapsed();
            let is_too_much = batch.as_ref().is_some_and(|batch| unsent.is_exceeded_by(batch));
            is_left = ending >= LONGEST_END || is_too_much;
        }
        let is_last = batch.is_none();
        if !reply.send(with_reports(batch)) || is_last {
            break;
        }
    }
    Ok(())
}
