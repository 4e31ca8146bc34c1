//! Findings: the promises that a plugin broke, and how. Tests nothing itself.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The promises of plugins. Each trial describes those it checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Promise {
    /// Wrong options are refused naming the key, and every option is documented.
    Options,
    /// The sample is a valid part of a pipeline file and shows every option.
    Sample,
    /// It recognises its own files by their bytes, and does not claim those of other formats.
    Sniffing,
    /// Any splitting gives the same events, damage and order.
    Splitting,
    /// Any number of threads gives the same.
    Threads,
    /// A query by time or channel yields what filtering a full read would.
    Query,
    /// No input makes it panic or kills the process.
    NoPanic,
    /// It terminates.
    Termination,
    /// Its memory use does not depend on lengths claimed by the input.
    Memory,
    /// Damage is reported, loses no more than it must, and is not passed on as events.
    Damage,
    /// Its output can be read back, and holds the events it was given.
    Readable,
    /// Outputs appear complete or not at all, whatever fails.
    Atomic,
    /// Existing outputs are not replaced unless requested.
    Refusal,
    /// Decoded payloads encode to the same bytes.
    Identity,
    /// An undecodable payload affects no other row and leaves no row of its own.
    WholeRows,
    /// The result does not depend on how events are batched.
    Batches,
    /// It writes exactly the files that it announces.
    Targets,
    /// Dropped events are counted, delayed events come out, and none are invented.
    Accounting,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The promise.
    pub promise: Promise,
    /// What was done, what was expected and what happened.
    pub what: String,
}

impl Finding {
    /// Creates a finding.
    pub(crate) fn new(promise: Promise, what: impl Into<String>) -> Self {
        Self { promise, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.promise, self.what)
    }
}

/// A fault in one case of a trial. Faults of one kind become one finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fault {
    /// The promise.
    pub(crate) promise: Promise,
    /// What is wrong, in the same words for all cases.
    pub(crate) kind: String,
    /// Details of this case.
    pub(crate) detail: String,
}

impl Fault {
    /// Creates a fault of this kind.
    pub(crate) fn new(promise: Promise, kind: &str, detail: impl Into<String>) -> Self {
        Self { promise, kind: kind.to_owned(), detail: detail.into() }
    }
}

/// Faults by kind, with the first case of each.
#[derive(Debug, Default)]
pub(crate) struct FindingSet(Vec<(Fault, String, usize)>);

impl FindingSet {
    /// Adds a fault and its case.
    pub(crate) fn add(&mut self, fault: Fault, case: impl Into<String>) {
        let same = |known: &&mut (Fault, String, usize)| {
            (known.0.promise, &known.0.kind) == (fault.promise, &fault.kind)
        };
        match self.0.iter_mut().find(same) {
            Some((_, _, cases)) => *cases += 1,
            None => self.0.push((fault, case.into(), 1)),
        }
    }

    /// Whether the set has a fault of this kind.
    pub(crate) fn has(&self, fault: &Fault) -> bool {
        self.0
            .iter()
            .any(|(known, ..)| (known.promise, &known.kind) == (fault.promise, &fault.kind))
    }

    /// One finding per kind, sorted by promise.
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

/// Fails the calling test with all findings, if there are any.
///
/// # Panics
///
/// If there are findings.
#[track_caller]
pub(crate) fn expect_none(plugin: &str, findings: &[Finding]) {
    let list: String = findings.iter().map(|finding| format!("\n  {finding}")).collect();
    assert!(findings.is_empty(), "`{plugin}` does not keep what it promises:{list}");
}
