//! What becomes of units, whoever runs them: the same words for the engine here and for workers elsewhere.

use std::path::{Path, PathBuf};

use sluice_core::Input;

use super::record::{Due, UnitRecord};
use crate::manifest;
use crate::report::Report;
use crate::resolved;
use crate::spec::Pipeline;
use sluice_core::options::ByteSize;

/// What became of a unit.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// It was run.
    Done(Box<Report>),
    /// It had been done, with this exit code.
    Skipped(u8),
    /// It failed, for this reason.
    Failed(String),
    /// It was given up, as the run was asked to end: nothing of it was published.
    Interrupted,
    /// It was not run.
    NotStarted,
}

impl Outcome {
    /// Whether its outputs are there.
    pub(super) fn is_done(&self) -> bool {
        matches!(self, Self::Done(_) | Self::Skipped(_))
    }
}

/// What of a unit decides whether it has been done before.
pub(crate) struct Errand<'u> {
    /// Its pipeline.
    pub(crate) pipeline: &'u Pipeline,
    /// The memory it is run with.
    pub(crate) memory: ByteSize,
    /// What it reads.
    pub(crate) input: &'u Input,
    /// What it is to write, as the record names it, sorted.
    pub(crate) outputs: &'u [PathBuf],
}

impl Errand<'_> {
    /// The record, of several that begin with the latest, that says that it has been done, if its inputs and
    /// outputs are as that says. Reads them whole.
    pub(crate) fn settled<'r>(
        &self,
        mut records: impl Iterator<Item = &'r UnitRecord>,
        folder: &Path,
    ) -> Option<&'r UnitRecord> {
        let text = resolved::text(self.pipeline, self.memory);
        let plugins = manifest::plugins(&self.pipeline.nodes);
        let inputs = std::slice::from_ref(self.input);
        let due = Due { pipeline: &text, plugins: &plugins, inputs };
        let is_same = |record: &&UnitRecord| record.outputs == self.outputs;
        records.find(|record| is_same(record) && record.claim().settles(&due, folder))
    }
}
