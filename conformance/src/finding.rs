//! Findings: which promises a plugin did not keep, and how that showed. Tries nothing itself.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What plugins promise. Each is told in full by the trial that looks at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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
    /// What is asked for, by time or channel, is what reading everything would give of it.
    Query,
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
    /// The files that appear are those it says.
    Targets,
    /// What is left out is counted, what is held back comes out, and nothing is made up.
    Books,
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

/// What one case of a trial showed. Faults of one kind become one finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fault {
    /// The promise.
    pub(crate) promise: Promise,
    /// What is wrong, in the same words for every case.
    pub(crate) kind: String,
    /// What is special about this case.
    pub(crate) detail: String,
}

impl Fault {
    /// A fault of this kind.
    pub(crate) fn new(promise: Promise, kind: &str, detail: impl Into<String>) -> Self {
        Self { promise, kind: kind.to_owned(), detail: detail.into() }
    }
}

/// Faults with the case each was seen in, gathered by kind.
#[derive(Debug, Default)]
pub(crate) struct Gathered(Vec<(Fault, String, usize)>);

impl Gathered {
    /// Adds a fault that was seen in this case.
    pub(crate) fn add(&mut self, fault: Fault, case: impl Into<String>) {
        let same = |known: &&mut (Fault, String, usize)| {
            (known.0.promise, &known.0.kind) == (fault.promise, &fault.kind)
        };
        match self.0.iter_mut().find(same) {
            Some((_, _, cases)) => *cases += 1,
            None => self.0.push((fault, case.into(), 1)),
        }
    }

    /// Whether a fault of this kind is known.
    pub(crate) fn has(&self, fault: &Fault) -> bool {
        self.0
            .iter()
            .any(|(known, ..)| (known.promise, &known.kind) == (fault.promise, &fault.kind))
    }

    /// A finding a kind, by promise.
    pub(crate) fn findings(mut self) -> Vec<Finding> {
        self.0.sort_by_key(|(fault, ..)| fault.promise);
        let told = self.0.into_iter().map(|(Fault { promise, kind, detail }, case, cases)| {
            let detail = if detail.is_empty() { detail } else { format!(": {detail}") };
            let more = match cases - 1 {
                0 => String::new(),
                1 => " (and in one more case)".to_owned(),
                more => format!(" (and in {more} more cases)"),
            };
            Finding::new(promise, format!("{kind}: with {case}{detail}{more}"))
        });
        told.collect()
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
