//! How a run is asked to end, and what becomes of it then. Listens for no signals.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use sluice_core::{DynSink, Error, ErrorKind};

use super::{Reading, SourceReading, sinks};
use crate::spec::Node;

/// What a shell adds to the number of the signal that ended a program.
const BY_SIGNAL: i32 = 128;
/// The exit code of a run that was asked to end by something else than a signal: that of Ctrl-C.
const BY_REQUEST: u8 = 130;

/// Stops a run: first as it suits what the run reads, then at once.
#[derive(Debug, Default)]
pub struct Stop {
    pub(super) drain: Arc<AtomicBool>,
    abort: AtomicBool,
    /// The signal that came first; 0 if there was none.
    signal: AtomicI32,
}

impl Stop {
    /// Asks the run to end. Safe in a signal handler.
    ///
    /// The first time, a run whose inputs can all be read again is given up: nothing of it is published.
    /// A run that reads live sources or pipes ends with what it has received. The second time, every
    /// run ends at once and publishes nothing.
    pub fn request(&self) {
        if self.drain.swap(true, Ordering::Relaxed) {
            self.abort.store(true, Ordering::Relaxed);
        }
    }

    /// As [`request`](Self::request), for a signal, which decides the exit code of what is given up.
    pub fn request_for(&self, signal: i32) {
        // The first one counts.
        if self.signal.load(Ordering::Relaxed) == 0 {
            self.signal.store(signal, Ordering::Relaxed);
        }
        self.request();
    }

    /// Whether the run was asked to end.
    pub fn is_requested(&self) -> bool {
        self.drain.load(Ordering::Relaxed)
    }

    /// Whether it was asked to end at once.
    pub fn is_aborted(&self) -> bool {
        self.abort.load(Ordering::Relaxed)
    }

    /// The exit code of what is given up: 128 and the number of the signal, as shells have it.
    pub fn exit(&self) -> u8 {
        match self.signal.load(Ordering::Relaxed) {
            0 => BY_REQUEST,
            signal => u8::try_from(BY_SIGNAL + signal).unwrap_or(BY_REQUEST),
        }
    }
}

/// What the first request to end does to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interruption {
    /// It is over: it receives from live sources only, or only sends to where things happen.
    IsTheEnd,
    /// What it has read is published, and the report says that more was to come: what a pipe has given
    /// cannot be had again.
    Truncates,
    /// Nothing is published: all it reads can be read again.
    GivesUp,
}

impl Interruption {
    /// What it does to a run that reads this.
    pub(super) fn of(reading: &Reading, nodes: &[Node], is_recording: bool) -> Self {
        let sources = &reading.sources;
        if sources.iter().all(SourceReading::is_live) {
            return Self::IsTheEnd;
        }
        match (sources.iter().all(can_be_read_again), is_recording) {
            (true, false) if sinks(nodes).all(|sink| DynSink::targets(sink).is_empty()) => {
                Self::IsTheEnd
            }
            (true, false) => Self::GivesUp,
            _ => Self::Truncates,
        }
    }

    /// `Err` if a run that it does this to is to be left where it is.
    pub(super) fn check(self, stop: &Stop) -> Result<(), Error> {
        if stop.is_aborted() {
            return Err(ErrorKind::Aborted.into());
        }
        if self.has_given_up(stop) {
            return Err(ErrorKind::Interrupted.into());
        }
        Ok(())
    }

    /// Whether a run that it does this to has been given up.
    pub(super) fn has_given_up(self, stop: &Stop) -> bool {
        stop.is_aborted() || self == Self::GivesUp && stop.is_requested()
    }
}

/// Whether all of a source is in files, or comes out of nothing: pipes and live inputs have no length.
fn can_be_read_again(source: &SourceReading) -> bool {
    let files = source.inputs.iter().filter(|input| input.bytes.is_some());
    let files: BTreeSet<&Path> = files.map(|input| input.path.as_path()).collect();
    let mut splits = source.splits.iter();
    splits.all(|split| {
        !split.live && (split.bytes.is_some() || files.contains(split.input.as_path()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
