//! Unit outcomes, shared by the local scheduler and by workers elsewhere.

use std::path::{Path, PathBuf};

use super::unit_record::{PlannedRun, RecordedRun, UnitRecord};
use crate::manifest::{self, RunEnd};
use crate::report::Report;
use crate::resolved;
use crate::spec::Pipeline;
use sluice_model::options::ByteSize;

/// The outcome of a unit.
#[derive(Debug)]
pub(crate) enum UnitOutcome {
    /// It was run.
    Done(Box<Report>),
    /// An earlier run had done it, and ended like this.
    Skipped(RunEnd),
    /// It failed, for this reason; and what is known of its run.
    Failed(String, Box<Report>),
    /// It was interrupted; nothing was published. What is known of its run.
    Interrupted(Box<Report>),
    /// It was not run.
    NotStarted,
}

impl UnitOutcome {
    /// Whether its outputs exist.
    pub(super) fn is_done(&self) -> bool {
        matches!(self, Self::Done(_) | Self::Skipped(_))
    }
}

/// The properties of a unit that decide whether an earlier run has already done it.
pub(crate) struct UnitKey<'u> {
    /// Its pipeline.
    pub(crate) pipeline: &'u Pipeline,
    /// Its memory cap.
    pub(crate) memory: ByteSize,
    /// Its outputs, as the record names them, sorted.
    pub(crate) outputs: &'u [PathBuf],
}

impl UnitKey<'_> {
    /// The first of `records` (latest first) that matches this unit and whose inputs and outputs
    /// are unchanged. Reads them in full.
    pub(crate) fn find_done<'r>(
        &self,
        records: impl Iterator<Item = &'r UnitRecord>,
        folder: &Path,
    ) -> Option<&'r UnitRecord> {
        self.find(records, |run, due| run.matches(due, folder))
    }

    /// The first of `records` that matches this unit, as far as the lengths of its inputs and
    /// outputs tell.
    pub(super) fn find_by_length<'r>(
        &self,
        records: impl Iterator<Item = &'r UnitRecord>,
        folder: &Path,
    ) -> Option<&'r UnitRecord> {
        self.find(records, |run, due| run.matches_by_length(due, folder))
    }

    fn find<'r>(
        &self,
        mut records: impl Iterator<Item = &'r UnitRecord>,
        matches: impl Fn(&RecordedRun<'_>, &PlannedRun<'_>) -> bool,
    ) -> Option<&'r UnitRecord> {
        let text = resolved::text(self.pipeline, self.memory);
        let plugins = manifest::plugin_names(&self.pipeline.nodes);
        // What cannot be listed is not there as it was.
        let inputs = self.pipeline.input_files().ok()?;
        let due = PlannedRun { pipeline: &text, plugins: &plugins, inputs: &inputs };
        let is_same = |record: &&UnitRecord| record.outputs == self.outputs;
        records.find(|record| is_same(record) && matches(&record.recorded_run(), &due))
    }
}
