//! What the driver tells the progress listener of the run, and the notes of nodes. Does not affect
//! the run.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use sluice_model::Split;

use super::super::milestone::InputLog;
use super::super::{Progress, ReadPlan, Snapshot, SourcePlan};
use super::{RunDriver, RunningSource};

/// How often to report losses of live sources.
const LOSS_REPORT_INTERVAL: Duration = Duration::from_millis(100);

impl RunDriver<'_> {
    /// Records a note of a node, with how often it happened; 0 for a note without a count.
    pub(in crate::run) fn note(&mut self, node: usize, name: &str, what: &str, count: u64) {
        if let Some(progress) = &self.options.progress {
            progress.note(name, what, count);
        }
        self.tally.node(node).note(what, count);
    }

    /// The same for a source.
    pub(super) fn note_source(&mut self, source: usize, what: &str, count: u64) {
        let RunningSource { node, name, .. } = &self.sources[source];
        let (node, name) = (*node, Arc::clone(name));
        self.note(node, &name, what, count);
    }

    /// Records the notes of a live source.
    pub(super) fn note_losses(&mut self, source: usize) {
        let steps = &self.sources[source].steps;
        if steps.is_live() {
            let notes = steps.losses().take_notes();
            notes.iter().for_each(|(what, count)| self.note_source(source, what, *count));
        }
    }

    /// Updates a source's input log, if the run has a progress listener.
    pub(super) fn follow(
        &mut self,
        source: usize,
        step: impl FnOnce(&mut InputLog, &dyn Progress),
    ) {
        if let Some(progress) = &self.options.progress {
            step(&mut self.sources[source].inputs, &**progress);
        }
    }

    /// Reports the progress, and the losses of live sources now and then; at the end, always.
    pub(super) fn report_progress(&mut self, is_over: bool) {
        let Some(progress) = &self.options.progress else { return };
        progress.update(&Snapshot {
            bytes: self.setup.bytes_read.load(Ordering::Relaxed),
            events: self.events,
            damage: self.damage.ranges,
            lost: self.sources.iter().map(|source| source.steps.losses().total()).sum(),
            ..self.planned
        });
        if is_over || self.losses_reported.elapsed() >= LOSS_REPORT_INTERVAL {
            self.losses_reported = Instant::now();
            for source in self.sources.iter().filter(|source| source.steps.is_live()) {
                progress.losses(&source.name, &source.steps.losses().losses());
            }
        }
    }
}

/// What is known of the total before anything is read.
pub(super) fn planned(reading: &ReadPlan) -> Snapshot {
    Snapshot {
        total_bytes: reading.sources.iter().map(bytes_to_read).sum(),
        without_bytes: reading.sources.iter().all(|source| !source.has_files()),
        ..Snapshot::default()
    }
}

/// The bytes that are read of a source, if that is known.
fn bytes_to_read(source: &SourcePlan) -> Option<u64> {
    // Positions of sources without files are not bytes.
    let has_files = source.has_files();
    let length = |split: &Split| match split.end.filter(|_| has_files) {
        // Compressed splits hold more bytes than are read.
        Some(end) => Some(end.saturating_sub(split.start)),
        None => split.bytes,
    };
    let splits: u64 = source.splits.iter().map(length).sum::<Option<u64>>()?;
    // The last split of a compressed file may be open-ended.
    let files = source.inputs.iter().map(|input| input.bytes).sum::<Option<u64>>();
    Some(files.filter(|_| has_files).map_or(splits, |files| files.min(splits)))
}
