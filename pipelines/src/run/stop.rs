//! How a run is stopped, and what that does to it. Handles no signals.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

use sluice_model::{Error, ErrorKind, Input, Split};

use super::{ReadPlan, SourcePlan};

/// Shells add this to the number of the signal that ended a program.
const SIGNAL_EXIT_BASE: i32 = 128;
/// The exit code of a run that was stopped by something other than a signal: that of Ctrl-C.
const REQUEST_EXIT: u8 = 130;

/// Stops a run: first gracefully, the second time at once.
#[derive(Debug, Default)]
pub struct Stop {
    pub(super) drain: Arc<AtomicBool>,
    pub(super) abort: Arc<AtomicBool>,
    /// The signal that came first; 0 if there was none.
    signal: AtomicI32,
    /// How many runs are publishing.
    publishing: AtomicUsize,
    /// How many runs the first request discards.
    discardable: AtomicUsize,
}

/// A run that counts among others until this is dropped.
pub(crate) struct CountedRun<'s>(&'s AtomicUsize);

impl<'s> CountedRun<'s> {
    fn among(runs: &'s AtomicUsize) -> Self {
        runs.fetch_add(1, Ordering::Relaxed);
        Self(runs)
    }
}

impl Drop for CountedRun<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Stop {
    /// Requests the end of the run. Async-signal-safe.
    ///
    /// The first time, a run whose inputs can all be read again is discarded: nothing of it is
    /// published. A run that reads live sources or pipes ends with what it has received. The second
    /// time, every run ends at once and publishes nothing.
    pub fn request(&self) {
        if self.drain.swap(true, Ordering::Relaxed) {
            self.abort.store(true, Ordering::Relaxed);
        }
    }

    /// Like [`request`](Self::request), for a signal, which decides the exit code of a discarded
    /// run.
    pub fn request_for(&self, signal: i32) {
        // The first signal counts.
        if self.signal.load(Ordering::Relaxed) == 0 {
            self.signal.store(signal, Ordering::Relaxed);
        }
        self.request();
    }

    /// Notes that a run begins to publish, which nothing should end half-way.
    pub(crate) fn publishing(&self) -> CountedRun<'_> {
        CountedRun::among(&self.publishing)
    }

    /// Whether a run is publishing.
    pub fn is_publishing(&self) -> bool {
        self.publishing.load(Ordering::Relaxed) > 0
    }

    /// Notes that a run begins which the first request discards.
    pub(super) fn discardable(&self) -> CountedRun<'_> {
        CountedRun::among(&self.discardable)
    }

    /// Whether a run goes on that is discarded, so that nothing is lost if the process ends.
    pub fn is_discarding(&self) -> bool {
        self.is_requested() && self.discardable.load(Ordering::Relaxed) > 0
    }

    /// Whether the end of the run was requested.
    pub fn is_requested(&self) -> bool {
        self.drain.load(Ordering::Relaxed)
    }

    /// Whether an immediate end was requested.
    pub fn is_aborted(&self) -> bool {
        self.abort.load(Ordering::Relaxed)
    }

    /// The flag that is raised when an immediate end is requested.
    pub(crate) fn abort_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.abort)
    }

    /// The exit code of a discarded run: 128 plus the signal number, as in shells.
    pub fn exit(&self) -> u8 {
        match self.signal.load(Ordering::Relaxed) {
            0 => REQUEST_EXIT,
            signal => u8::try_from(SIGNAL_EXIT_BASE + signal).unwrap_or(REQUEST_EXIT),
        }
    }
}

/// What the first stop request does to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interruption {
    /// The run completes with all that its sources have received: all of them are live.
    Completes,
    /// The run completes without the rest of its inputs: it only sends live.
    EndsSending,
    /// What has been read is published, and the report says that more was to come: a pipe cannot be
    /// read again.
    Truncates,
    /// Nothing is published: all inputs can be read again.
    Discards,
}

impl Interruption {
    /// What a stop request does to a run with this plan.
    pub(super) fn from_plan(reading: &ReadPlan, is_sent_live: bool, is_recording: bool) -> Self {
        let sources = &reading.sources;
        if sources.iter().all(SourcePlan::is_live) {
            return Self::Completes;
        }
        let is_file =
            |source: &SourcePlan| first_read_once(&source.splits, &source.inputs).is_none();
        match (sources.iter().all(is_file), is_recording) {
            (true, false) if is_sent_live => Self::EndsSending,
            (true, false) => Self::Discards,
            _ => Self::Truncates,
        }
    }

    /// `Err` if the run is to stop now without publishing.
    pub(super) fn check(self, stop: &Stop) -> Result<(), Error> {
        if stop.is_aborted() {
            return Err(ErrorKind::Aborted.into());
        }
        if self.is_discarded(stop) {
            return Err(ErrorKind::Interrupted.into());
        }
        Ok(())
    }

    /// Whether the run has been discarded.
    pub(super) fn is_discarded(self, stop: &Stop) -> bool {
        stop.is_aborted() || self == Self::Discards && stop.is_requested()
    }
}

/// The number of the first split that can be read only once. Files, and what is made up, can be
/// read again; pipes and live inputs have no length. Compressed files have one, but not their
/// splits.
pub(super) fn first_read_once(splits: &[Split], inputs: &[Input]) -> Option<usize> {
    let files = inputs.iter().filter(|input| input.bytes.is_some());
    let files: BTreeSet<&Path> = files.map(|input| input.path.as_path()).collect();
    let is_file = |split: &Split| files.contains(split.input.as_path());
    splits.iter().position(|split| split.live || split.bytes.is_none() && !is_file(split))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_publish_are_counted() {
        let stop = Stop::default();
        let first = stop.publishing();
        drop(stop.publishing());
        assert!(stop.is_publishing());
        drop(first);
        assert!(!stop.is_publishing());
    }

    #[test]
    fn a_run_is_discarded_from_the_first_request_to_its_end() {
        let stop = Stop::default();
        let run = stop.discardable();
        assert!(!stop.is_discarding());
        stop.request();
        assert!(stop.is_discarding());
        drop(run);
        assert!(!stop.is_discarding());
    }

    #[test]
    fn the_exit_code_is_that_of_the_first_signal() {
        let stop = Stop::default();
        stop.request();
        assert_eq!(stop.exit(), 130);
        for (signal, exit) in [(2, 130), (15, 143), (1, 129)] {
            let stop = Stop::default();
            stop.request_for(signal);
            stop.request_for(9);
            assert!(stop.is_aborted());
            assert_eq!(stop.exit(), exit);
        }
    }
}
