//! Milestones of a run, for listeners that follow it closely. Do not affect the run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use sluice_model::Split;

use super::SourcePlan;
use crate::report::Report;

/// A snapshot of a run's progress.
#[derive(Clone, Copy, Debug, Default)]
pub struct Snapshot {
    /// Bytes of input read.
    pub bytes: u64,
    /// Total bytes of input, if known.
    pub total_bytes: Option<u64>,
    /// Events read.
    pub events: u64,
    /// Damaged ranges so far.
    pub damage: u64,
    /// Messages lost from live inputs.
    pub lost: u64,
    /// Whether no input has a known length: all of it is made up or received.
    pub without_bytes: bool,
    /// Finished inputs of a batch.
    pub units_done: u64,
    /// Total inputs of a batch.
    pub units: u64,
}

/// Receives the progress of a run after every step, from one thread at a time.
pub trait Progress: Send + Sync {
    /// Called at most a few hundred times a second; must not block.
    fn update(&self, snapshot: &Snapshot);

    /// The losses of a live input so far, by reason; at most ten times a second, and at the end.
    fn losses(&self, node: &str, losses: &BTreeMap<String, u64>) {
        let _ = (node, losses);
    }

    /// A line of output from a program that runs for a node, as it appears. Must not block.
    fn program_output(&self, node: &str, line: &str) {
        let _ = (node, line);
    }

    /// A note of a live input or output, as it appears, with how often it happened; 0 for a note
    /// without a count.
    fn note(&self, node: &str, what: &str, count: u64) {
        let _ = (node, what, count);
    }

    /// A milestone of the run: plan, inputs, outputs. Must not block.
    fn milestone(&self, milestone: &Milestone<'_>) {
        let _ = milestone;
    }
}

/// A milestone of a run.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Milestone<'m> {
    /// A source has been planned.
    Planned {
        /// The source.
        node: &'m str,
        /// The number of its inputs.
        inputs: usize,
        /// The number of splits.
        pieces: usize,
        /// Their total bytes, if known.
        bytes: Option<u64>,
    },
    /// An input has been started.
    InputBegun {
        /// The source.
        node: &'m str,
        /// The input.
        input: &'m Path,
    },
    /// An input has been read completely.
    InputDone {
        /// The source.
        node: &'m str,
        /// The input.
        input: &'m Path,
        /// The number of events read from it.
        events: u64,
        /// The time since the previous input was done, or since the start of the run.
        seconds: f64,
    },
    /// An earlier run had already done an input of a batch.
    InputSkipped {
        /// The input.
        input: &'m Path,
    },
    /// Everything has been read; sinks write what they still hold.
    Finishing,
    /// The outputs are complete and about to be published.
    Publishing {
        /// The duration of the run so far.
        seconds: f64,
    },
    /// An output was published.
    Output {
        /// Its path.
        path: &'m Path,
        /// The number of events or rows in it.
        rows: u64,
        /// Its length in bytes.
        bytes: u64,
    },
    /// The run has failed, or a batch that ran no unit or whose record could not be written.
    Failed {
        /// What it had read and published by then: no more is known of its sinks and channels.
        report: &'m Report,
    },
}

impl<'m> Milestone<'m> {
    /// The plan of a source.
    pub(super) fn planned(node: &'m str, reading: &SourcePlan) -> Self {
        let SourcePlan { inputs, splits, .. } = reading;
        let bytes = inputs.iter().map(|input| input.bytes).sum();
        Self::Planned { node, inputs: inputs.len(), pieces: splits.len(), bytes }
    }
}

/// Follows a source through its inputs, in reading order.
pub(super) struct InputLog {
    node: Arc<str>,
    /// Each input, with the index of the first split after it.
    inputs: Vec<(PathBuf, usize)>,
    /// The next input to start.
    next: usize,
    /// The events of the current input; `None` between inputs.
    open: Option<u64>,
    /// When the previous input was done. Inputs are read ahead, so there is no better start time.
    started: Instant,
}

impl InputLog {
    /// The log of a source that is read in these splits.
    pub(super) fn new(node: &Arc<str>, splits: &[Split]) -> Self {
        let mut inputs: Vec<(PathBuf, usize)> = Vec::new();
        for (place, split) in splits.iter().enumerate() {
            match inputs.last_mut().filter(|(path, _)| *path == split.input) {
                Some((_, end)) => *end = place + 1,
                None => inputs.push((split.input.clone(), place + 1)),
            }
        }
        Self { node: Arc::clone(node), inputs, next: 0, open: None, started: Instant::now() }
    }

    /// Counts events of this split; all inputs before it are done.
    pub(super) fn read(&mut self, split: usize, events: u64, progress: &dyn Progress) {
        while self.next == 0 || self.is_behind(split) {
            if !self.begin_next(progress) {
                break;
            }
        }
        if let Some(count) = &mut self.open {
            *count += events;
        }
    }

    /// Call when the source has been read to the end.
    pub(super) fn finish(&mut self, progress: &dyn Progress) {
        while self.begin_next(progress) {}
        self.close(progress);
    }

    /// Call when nothing more is read from the source.
    pub(super) fn close(&mut self, progress: &dyn Progress) {
        let Some(events) = self.open.take() else { return };
        let since = std::mem::replace(&mut self.started, Instant::now());
        let last = self.next.checked_sub(1).and_then(|last| self.inputs.get(last));
        if let Some((input, _)) = last {
            let seconds = since.elapsed().as_secs_f64();
            let (node, input) = (&*self.node, input.as_path());
            progress.milestone(&Milestone::InputDone { node, input, events, seconds });
        }
    }

    /// Whether the split is after the current input.
    fn is_behind(&self, split: usize) -> bool {
        let last = self.next.checked_sub(1).and_then(|last| self.inputs.get(last));
        last.is_some_and(|(_, end)| split >= *end)
    }

    fn begin_next(&mut self, progress: &dyn Progress) -> bool {
        self.close(progress);
        let Some((input, _)) = self.inputs.get(self.next) else { return false };
        progress.milestone(&Milestone::InputBegun { node: &self.node, input });
        self.next += 1;
        self.open = Some(0);
        true
    }
}
