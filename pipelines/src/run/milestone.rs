//! Milestones: what a run begins and ends with, for who wants to follow it closely. Changes nothing of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use sluice_core::Split;

use super::{Progress, SourceReading};

/// What a run has come to.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Milestone<'m> {
    /// It is known what will be read from a source.
    Planned {
        /// The source.
        node: &'m str,
        /// How many inputs it has.
        inputs: usize,
        /// In how many pieces they are read.
        pieces: usize,
        /// How many bytes these have, where that is known.
        bytes: Option<u64>,
    },
    /// The first events of an input are being looked at.
    InputBegun {
        /// The source.
        node: &'m str,
        /// The input.
        input: &'m Path,
    },
    /// All events of an input have been looked at.
    InputDone {
        /// The source.
        node: &'m str,
        /// The input.
        input: &'m Path,
        /// How many events were read of it.
        events: u64,
        /// How long it took since the input before it was done, or since the run began.
        seconds: f64,
    },
    /// An input of a batch was done by an earlier run.
    InputSkipped {
        /// The input.
        input: &'m Path,
    },
    /// Everything has been read; what sinks still hold is being written.
    Finishing,
    /// Outputs are complete and about to appear.
    Publishing {
        /// How long the run took until then.
        seconds: f64,
    },
    /// An output is there.
    Output {
        /// Where it is.
        path: &'m Path,
        /// How many events or rows it has.
        rows: u64,
        /// How many bytes it has.
        bytes: u64,
    },
}

impl<'m> Milestone<'m> {
    /// What is known of a source before anything is read.
    pub(super) fn planned(node: &'m str, reading: &SourceReading) -> Self {
        let SourceReading { inputs, splits, .. } = reading;
        let bytes = inputs.iter().map(|input| input.bytes).sum();
        Self::Planned { node, inputs: inputs.len(), pieces: splits.len(), bytes }
    }
}

/// Follows a source through its inputs, in the order in which it is read.
pub(super) struct InputLog {
    node: Arc<str>,
    /// Each input, with the first split behind it.
    inputs: Vec<(PathBuf, usize)>,
    /// The next input to begin.
    next: usize,
    /// The events of the one that was begun last, if it is not done.
    open: Option<u64>,
    /// When the one before it was done: inputs are read ahead, so there is no better beginning.
    since: Instant,
}

impl InputLog {
    /// Of a source that is read in these splits.
    pub(super) fn new(node: &Arc<str>, splits: &[Split]) -> Self {
        let mut inputs: Vec<(PathBuf, usize)> = Vec::new();
        for (place, split) in splits.iter().enumerate() {
            match inputs.last_mut().filter(|(path, _)| *path == split.input) {
                Some((_, end)) => *end = place + 1,
                None => inputs.push((split.input.clone(), place + 1)),
            }
        }
        Self { node: Arc::clone(node), inputs, next: 0, open: None, since: Instant::now() }
    }

    /// So many events were read of this split; all inputs before it are done.
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

    /// The source has been read to its end.
    pub(super) fn finish(&mut self, progress: &dyn Progress) {
        while self.begin_next(progress) {}
        self.close(progress);
    }

    /// Nothing more is read of the source.
    pub(super) fn close(&mut self, progress: &dyn Progress) {
        let Some(events) = self.open.take() else { return };
        let since = std::mem::replace(&mut self.since, Instant::now());
        let last = self.next.checked_sub(1).and_then(|last| self.inputs.get(last));
        if let Some((input, _)) = last {
            let seconds = since.elapsed().as_secs_f64();
            let (node, input) = (&*self.node, input.as_path());
            progress.milestone(&Milestone::InputDone { node, input, events, seconds });
        }
    }

    /// Whether the split lies behind the input that was begun last.
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
