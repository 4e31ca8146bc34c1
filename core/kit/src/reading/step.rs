//! What a consumer of splits runs and gets.

use sluice_model::{DamageList, Seam};

/// Work that a [`ReadAhead`](super::ReadAhead) has its consumer run.
pub enum ReadTask<'a> {
    /// Takes a while and never waits for another. Run it soon, or at once.
    Step(Box<dyn FnOnce() + Send + 'a>),
    /// May wait for its input and for the consumer. Run it on a thread of its own.
    Reader(Box<dyn FnOnce() + Send + 'a>),
}

/// What is made of a split, or of one batch of a split that is not read by a task.
#[derive(Debug, Default)]
pub struct ReadStep<O> {
    /// The split, as an index.
    pub split: usize,
    /// What the consumer makes of the batches.
    pub output: O,
    /// The bytes of memory that the output takes, for the budget. The consumer counts them.
    pub memory: usize,
    /// Set by the consumer if it needs no more than this, so that the rest of the split is not
    /// read.
    pub is_enough: bool,
    /// The damage found, in order.
    pub damage: DamageList,
    /// Notes of the reader, with counts. Those of live splits are in the context at once.
    pub notes: Vec<(String, u64)>,
    pub(super) seam: Seam,
    /// Whether the split is too large for a task, and has to be read by a reader from its start.
    pub(super) is_too_large: bool,
}
