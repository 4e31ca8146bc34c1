//! What tasks do with a source's batches, and the pool that runs them.

use std::sync::Arc;

use rayon::ThreadPool;
use sluice_kit::reading::{Executor, ReadAhead, ReadStep, ReadTask, SplitWork};
use sluice_model::{Batch, Error, Source};

use super::segment::{Branch, SegmentOutcome, TaskContext};
use super::topology::SourceNode;

/// A source being read.
pub(crate) type SourceSteps = ReadAhead<'static, SegmentWork>;

/// One step of a source.
pub(crate) type SourceStep = ReadStep<SegmentOutcome>;

/// Runs batches of a source through the segment that follows it.
pub(crate) struct SegmentWork {
    node: usize,
    source: Arc<dyn Source>,
    segment: Arc<Vec<Branch>>,
    shared: TaskContext,
}

impl SegmentWork {
    pub(crate) fn new(source: &SourceNode, shared: TaskContext) -> Self {
        let SourceNode { node, source, segment, .. } = source;
        Self { node: *node, source: Arc::clone(source), segment: Arc::clone(segment), shared }
    }
}

impl SplitWork for SegmentWork {
    type Output = SegmentOutcome;

    fn source(&self) -> &dyn Source {
        &*self.source
    }

    fn add(&self, batch: Batch, outcome: &mut SegmentOutcome) -> Result<(), Error> {
        self.shared.run(&self.segment, Some(self.node), batch, outcome)
    }

    fn memory(&self, outcome: &SegmentOutcome) -> usize {
        outcome.memory
    }
}

/// Runs tasks on the run's pool, and readers on threads of their own.
pub(crate) struct PoolExecutor(pub(crate) Arc<ThreadPool>);

impl Executor<'static> for PoolExecutor {
    fn spawn(&self, task: ReadTask<'static>) {
        self.0.spawn(task);
    }

    fn spawn_reader(&self, task: ReadTask<'static>) -> Result<(), Error> {
        let reader = std::thread::Builder::new().name("sluice-reader".into()).spawn(task);
        let failed = |e| Error::refused(format!("cannot start a thread to read: {e}"));
        reader.map(drop).map_err(failed)
    }
}
