//! Findings: which promises a plugin did not keep, and how that showed.

use std::fmt;

/// What plugins promise. Each is told in full by the trial that looks at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Promise {
    /// Wrong options are refused with the key at fault, and every option is explained.
    Options,
    /// The sample is a piece of a pipeline file that shows every option.
    Sample,
    /// Its own files are known by their bytes, and those of others are not claimed.
    Sniffing,
    /// Any splitting gives the same events, damage and order.
    Splitting,
    /// Any number of threads gives the same.
    Threads,
    /// Nothing that is read makes it panic or ends its process.
    NoPanic,
    /// It comes to an end.
    Termination,
    /// What it takes of memory does not depend on what its input says.
    Memory,
    /// What is damaged is told, costs no more than it must, and is not passed on as events.
    Damage,
    /// What it writes can be read, and holds what it was given.
    Readable,
    /// Outputs appear whole or not at all, whatever fails.
    Atomic,
    /// What exists is not replaced unasked.
    Refusal,
    /// What is decoded is encoded to the same bytes.
    Identity,
    /// A payload that cannot be decoded takes no other's row with it, and leaves nothing of its own.
    WholeRows,
    /// How events are cut into batches does not matter.
    Batches,
}

/// A promise that was not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The promise.
    pub promise: Promise,
    /// How it showed: what was done, what was expected and what came instead.
    pub what: String,
}

impl Finding {
    /// A promise that was not kept.
    pub(crate) fn new(promise: Promise, what: impl Into<String>) -> Self {
        Self { promise, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.promise, self.what)
    }
}

/// Fails the test that asks, if there are findings: with all of them.
///
/// # Panics
///
/// If there are findings.
#[track_caller]
pub(crate) fn expect_none(plugin: &str, findings: &[Finding]) {
    let list: String = findings.iter().map(|finding| format!("\n  {finding}")).collect();
    assert!(findings.is_empty(), "`{plugin}` does not keep what it promises:{list}");
}
